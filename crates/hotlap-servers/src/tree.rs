//! Finds the processes of a server and where they listen.
//!
//! A tree is everything below a supervisor, found by parent ids in the process table. The
//! supervisor is a subreaper, so a process whose parent dies becomes its child: once in a tree, a
//! process stays in it. That makes a [`ProcessTree`] cheap.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A process of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its process id.
    pub pid: u32,
    /// Its parent's process id.
    pub parent: u32,
    /// Its process group id.
    pub group: u32,
    /// Its name, truncated by the kernel.
    pub name: String,
    /// When it started, in the kernel's unit; tells it from an earlier process with the same id. 0
    /// if unknown.
    pub started: u64,
    /// It has ended, but its parent has not waited for it yet.
    pub zombie: bool,
    /// CPU time of its ended children that were waited for, including theirs, in clock ticks.
    pub reaped_ticks: u64,
}

/// Where a process listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Listening {
    /// A TCP socket. An IPv4 address to which an IPv6 socket is bound is one of IPv4 (RFC 4291,
    /// section 2.5.5.2).
    Tcp(SocketAddr),
    /// A unix socket with a path; an abstract one starts with `@`.
    Unix(PathBuf),
}

/// Every process below `root`, without `root` itself, in no particular order.
///
/// # Errors
/// The process table cannot be read.
pub fn descendants(root: u32) -> io::Result<Vec<Member>> {
    Ok(below(root, all()?))
}

/// The members of a process table that are below `root`.
fn below(root: u32, table: Vec<Member>) -> Vec<Member> {
    let mut children: HashMap<u32, Vec<Member>> = HashMap::new();
    for member in table {
        children.entry(member.parent).or_default().push(member);
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for member in children.remove(&parent).unwrap_or_default() {
            open.push(member.pid);
            found.push(member);
        }
    }
    found
}

pub use platform::{ProcessTree, all, listening};

#[cfg(target_os = "linux")]
mod platform {
    use std::collections::HashSet;
    use std::net::SocketAddr;

    use procfs::process::{FDTarget, Process};

    pub use super::census::ProcessTree;
    use super::{Listening, Member, io};

    /// The whole process table.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn all() -> io::Result<Vec<Member>> {
        Ok(super::census::pids()?.into_iter().filter_map(super::census::member).collect())
    }

    /// Where these processes listen, in order: TCP by address, then unix sockets. Processes that
    /// have ended or belong to another user are skipped.
    ///
    /// # Errors
    /// The kernel's socket tables cannot be read.
    pub fn listening(pids: &[u32]) -> io::Result<Vec<Listening>> {
        let mut found = Vec::new();
        for &pid in pids {
            let Ok(process) = Process::new(pid.cast_signed()) else { continue };
            let Ok(fds) = process.fd() else { continue };
            let sockets: HashSet<u64> = fds
                .filter_map(|fd| match fd.ok()?.target {
                    FDTarget::Socket(inode) => Some(inode),
                    _ => None,
                })
                .collect();
            if sockets.is_empty() {
                continue;
            }
            // Read the process's own tables, because it may be in another network namespace. A
            // kernel without IPv6 has no tcp6.
            let mut tcp = process.tcp().map_err(io::Error::other)?;
            tcp.extend(process.tcp6().unwrap_or_default());
            for entry in tcp {
                if entry.state == procfs::net::TcpState::Listen && sockets.contains(&entry.inode) {
                    let (ip, port) = (entry.local_address.ip(), entry.local_address.port());
                    found.push(Listening::Tcp(SocketAddr::new(ip.to_canonical(), port)));
                }
            }
            for entry in process.unix().unwrap_or_default() {
                // A stream socket with a name and no peer is a listening one.
                if sockets.contains(&entry.inode)
                    && i32::from(entry.socket_type) == libc::SOCK_STREAM
                    && entry.state == procfs::net::UnixState::UNCONNECTED
                    && let Some(path) = entry.path
                {
                    found.push(Listening::Unix(path));
                }
            }
        }
        found.sort();
        found.dedup();
        Ok(found)
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::process::Command;

    use super::{Listening, Member, io};

    /// The whole process table, from POSIX `ps`.
    ///
    /// # Errors
    /// `ps` cannot be run.
    pub fn all() -> io::Result<Vec<Member>> {
        let columns = ["-A", "-o", "pid=,ppid=,pgid=,stat=,comm="];
        let output = Command::new("ps").args(columns).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text.lines().filter_map(member).collect())
    }

    /// The processes of a tree.
    #[derive(Debug)]
    pub struct ProcessTree {
        root: Option<u32>,
        found: Vec<Member>,
    }

    impl ProcessTree {
        /// The tree below one process. Other trees are not supported on this system.
        pub fn new(root: Option<u32>, _tops: Vec<Member>) -> Self {
            Self { root, found: Vec::new() }
        }

        /// Looks for new processes. Returns whether the process table had to be read, which here is
        /// always.
        ///
        /// # Errors
        /// The process table cannot be read.
        pub fn refresh(&mut self) -> io::Result<bool> {
            self.found = self.root.map_or(Ok(Vec::new()), super::descendants)?;
            Ok(true)
        }

        /// The members at the last look.
        pub fn members(&self) -> impl Iterator<Item = &Member> {
            self.found.iter()
        }
    }

    fn member(line: &str) -> Option<Member> {
        let mut words = line.split_whitespace();
        let mut number = || words.next()?.parse().ok();
        let (pid, parent, group) = (number()?, number()?, number()?);
        let zombie = words.next()?.starts_with('Z');
        let name = words.collect::<Vec<_>>().join(" ");
        Some(Member { pid, parent, group, name, started: 0, zombie, reaped_ticks: 0 })
    }

    /// Where these processes listen: unknown on this system.
    ///
    /// # Errors
    /// Always. The remedy is to pass the port to the command.
    pub fn listening(_pids: &[u32]) -> io::Result<Vec<Listening>> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "listening sockets of a process can be found on Linux only; use $PORT in the command",
        ))
    }
}

#[cfg(target_os = "linux")]
mod census {
    use std::collections::HashMap;
    use std::fs;
    use std::io::{self, Read};
    use std::sync::OnceLock;

    use procfs::FromRead;
    use procfs::process::Stat;

    use super::Member;

    /// The processes of a tree, kept up to date cheaply.
    ///
    /// The kernel reports which process or thread was created last (`/proc/loadavg`). While that
    /// does not change, there are no new processes. When it does, only processes not seen before
    /// are examined, because a process outside of the tree never becomes a member.
    #[derive(Debug)]
    pub struct ProcessTree {
        root: Option<u32>,
        tops: Vec<Member>,
        newest: Option<u32>,
        /// Whether a process is a member, for all processes that are settled.
        known: HashMap<u32, Option<Member>>,
    }

    impl ProcessTree {
        /// The tree below one process, which is not a member itself, and the trees of other
        /// processes, which are.
        pub fn new(root: Option<u32>, tops: Vec<Member>) -> Self {
            Self { root, tops, newest: None, known: HashMap::new() }
        }

        /// Looks for new processes. Returns whether the process table had to be read.
        ///
        /// # Errors
        /// The process table cannot be read.
        pub fn refresh(&mut self) -> io::Result<bool> {
            self.refresh_by(if tells_newest() { newest() } else { None })
        }

        /// The same, given the process or thread that was created last, if known.
        pub(super) fn refresh_by(&mut self, newest: Option<u32>) -> io::Result<bool> {
            if newest.is_some() && newest == self.newest {
                return Ok(false);
            }
            self.newest = self.look()?.then_some(newest).flatten();
            Ok(true)
        }

        /// Looks for new members, forgets ended ones, and rereads the others. Returns whether every
        /// process could be classified.
        ///
        /// # Errors
        /// The process table cannot be read.
        pub fn look(&mut self) -> io::Result<bool> {
            let mut known = std::mem::take(&mut self.known);
            let mut unsettled = Vec::new();
            for pid in pids()?.into_iter().filter(|&pid| Some(pid) != self.root) {
                match known.remove(&pid) {
                    Some(None) => {
                        self.known.insert(pid, None);
                    }
                    Some(Some(then)) => match member(pid) {
                        Some(now) if now.started == then.started => {
                            self.known.insert(pid, Some(now));
                        }
                        // The id was reused.
                        other => unsettled.extend(other),
                    },
                    None => unsettled.extend(member(pid)),
                }
            }
            // A child may have a lower id than its parent, so this takes as many passes as there
            // are generations. A process whose parent is still not settled is examined again next
            // time.
            loop {
                let before = unsettled.len();
                unsettled.retain(|new| !self.settle(new));
                if unsettled.len() == before {
                    return Ok(unsettled.is_empty());
                }
            }
        }

        /// The members at the last look.
        pub fn members(&self) -> impl Iterator<Item = &Member> {
            self.known.values().flatten()
        }

        /// Whether a process at the top of one of the trees has ended since it was found.
        pub fn has_lost_a_top(&self) -> bool {
            let runs = |top: &Member| {
                let now = self.known.get(&top.pid).and_then(Option::as_ref);
                now.is_some_and(|now| is_same(top, now) && !now.zombie)
            };
            !self.tops.iter().all(runs)
        }

        fn settle(&mut self, new: &Member) -> bool {
            let belongs = match self.known.get(&new.parent) {
                _ if Some(new.parent) == self.root => true,
                _ if self.tops.iter().any(|top| is_same(top, new)) => true,
                Some(parent) => parent.is_some(),
                // Parents of all: init, and processes that the process table does not show.
                None if new.parent <= 1 => false,
                None => return false,
            };
            self.known.insert(new.pid, belongs.then(|| new.clone()));
            true
        }
    }

    fn is_same(one: &Member, other: &Member) -> bool {
        one.pid == other.pid && one.started == other.started
    }

    /// Whether the system reports which process or thread was created last.
    fn tells_newest() -> bool {
        static TELLS: OnceLock<bool> = OnceLock::new();
        *TELLS.get_or_init(|| changes(newest))
    }

    /// Whether the reported id changes when a thread is started. On gVisor it never does.
    pub(super) fn changes(newest: impl Fn() -> Option<u32>) -> bool {
        let before = newest();
        let _ = std::thread::spawn(|| {}).join();
        before.is_some() && newest() != before
    }

    /// The process or thread that was created last in this process's namespace.
    fn newest() -> Option<u32> {
        let text = fs::read_to_string("/proc/loadavg").ok()?;
        text.split_whitespace().nth(4)?.parse().ok()
    }

    pub(super) fn pids() -> io::Result<Vec<u32>> {
        let names =
            fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.filter_map(|name| name.parse().ok()).collect())
    }

    /// A process as the kernel describes it; `None` if it has ended.
    pub(crate) fn member(pid: u32) -> Option<Member> {
        read(fs::File::open(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads `/proc/<pid>/stat`: proc_pid_stat(5).
    pub(crate) fn read(stat: impl Read) -> Option<Member> {
        let stat = Stat::from_read(stat).ok()?;
        Some(Member {
            pid: stat.pid.cast_unsigned(),
            parent: stat.ppid.cast_unsigned(),
            group: stat.pgrp.cast_unsigned(),
            name: stat.comm,
            started: stat.starttime,
            zombie: matches!(stat.state, 'Z' | 'X'),
            reaped_ticks: (stat.cutime + stat.cstime).cast_unsigned(),
        })
    }

    /// The state of a process, as one letter; `None` if it has ended. It is read in a loop until a
    /// freeze holds, so the rest of the line is not parsed.
    pub(crate) fn state(pid: u32) -> Option<char> {
        // The name, in parentheses before it, has at most 15 bytes, or 63 for a kernel thread.
        let mut line = [0; 128];
        let length = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
        let line = line.get(..length)?;
        let close = line.iter().rposition(|&byte| byte == b')')?;
        line.get(close + 2).map(|&byte| char::from(byte))
    }
}

#[cfg(target_os = "linux")]
pub(crate) use census::{member, read, state};

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32) -> Member {
        Member {
            pid,
            parent,
            group: 1,
            name: String::new(),
            started: 0,
            zombie: false,
            reaped_ticks: 0,
        }
    }

    #[test]
    fn a_tree_is_everything_below_its_root_and_nothing_else() {
        let table = vec![process(1, 0), process(9, 1), process(3, 9), process(2, 3), process(5, 1)];
        let mut pids: Vec<u32> = below(9, table).iter().map(|member| member.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [2, 3]);
    }

    /// Regression: where `/proc/loadavg` never changes, workers forked later were not found.
    #[cfg(target_os = "linux")]
    #[test]
    fn without_the_newest_process_id_every_look_finds_new_ones() {
        assert!(!census::changes(|| Some(7)), "as on gVisor");
        assert!(!census::changes(|| None));
        let mut census = ProcessTree::new(Some(std::process::id()), Vec::new());
        assert!(census.refresh_by(None).unwrap());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(census.refresh_by(None).unwrap());
        let is_seen = census.members().any(|member| member.pid == child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_seen);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let line = "42 (a) b (c) S 7 8 42 0 -1 4194560 9 0 0 0 11 12 13 14 20 0 1 0 777 0 0 \
                    18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
        let member = census::read(line.as_bytes()).unwrap();
        assert_eq!((member.pid, member.name.as_str()), (42, "a) b (c"));
        assert_eq!((member.parent, member.group), (7, 8));
        assert_eq!((member.reaped_ticks, member.started), (27, 777));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn sockets_of_this_process_are_found_where_they_listen() {
        let v4 = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let found = listening(&[std::process::id()]).unwrap();
        assert!(found.contains(&Listening::Tcp(v4.local_addr().unwrap())), "{found:?}");
        assert!(found.contains(&Listening::Unix(path)), "{found:?}");
        if let Ok(v6) = std::net::TcpListener::bind("[::1]:0") {
            let found = listening(&[std::process::id()]).unwrap();
            assert!(found.contains(&Listening::Tcp(v6.local_addr().unwrap())), "{found:?}");
            // As Java binds an IPv4 address.
            let mapped = std::net::TcpListener::bind("[::ffff:127.0.0.1]:0").unwrap();
            let address = ([127, 0, 0, 1], mapped.local_addr().unwrap().port()).into();
            let found = listening(&[std::process::id()]).unwrap();
            assert!(found.contains(&Listening::Tcp(address)), "{found:?}");
        }
    }
}
