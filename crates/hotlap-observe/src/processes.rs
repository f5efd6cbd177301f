//! Finds the processes of a server, and the addresses at which they listen.
//!
//! A tree contains all processes below a supervisor, found by parent ids in the process table. The
//! supervisor is a subreaper, so a process whose parent dies becomes the supervisor's child. A
//! process therefore never leaves its tree, which makes a [`ProcessTree`] cheap.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
#[cfg(target_os = "linux")]
use std::path::Path;
#[cfg(target_os = "linux")]
use std::sync::OnceLock;

/// A process of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The process id.
    pub pid: u32,
    /// The process id of the parent.
    pub parent: u32,
    /// The process group id.
    pub group: u32,
    /// The name, truncated by the kernel.
    pub name: String,
    /// The start time in the kernel's unit, or 0 if unknown. The start time distinguishes the
    /// process from an earlier process with the same id.
    pub started: u64,
    /// Whether the process has ended, but its parent has not waited for it yet.
    pub zombie: bool,
    /// The CPU time of ended descendants whose parents waited for them, in clock ticks.
    pub reaped_ticks: u64,
}

/// The processes with which a server begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roots {
    /// The supervisor that starts the server. All processes below the supervisor belong to the
    /// server, but the supervisor does not.
    pub supervisor: Option<u32>,
    /// Processes that hotlap did not start. These processes and all processes below them belong to
    /// the server.
    pub tops: Vec<Member>,
}

impl Roots {
    /// Returns the roots of everything that a supervisor has started or will start.
    pub fn below(supervisor: u32) -> Self {
        Self { supervisor: Some(supervisor), tops: Vec::new() }
    }
}

/// Returns every process below `root`, without `root` itself, in no particular order.
///
/// # Errors
/// The process table cannot be read.
pub fn descendants(root: u32) -> io::Result<Vec<Member>> {
    Ok(below(root, all()?))
}

/// Returns the members of a process table that are below `root`.
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

/// The processes of a tree, kept up to date cheaply.
///
/// The kernel reports the id of the process or thread that was created last (`/proc/loadavg`).
/// While this id does not change, there are no new processes. When the id changes, only members and
/// new processes are examined, because a process outside of the tree never becomes a member.
#[derive(Debug)]
pub struct ProcessTree {
    roots: Roots,
    newest: Option<u32>,
    /// All processes that are classified, with `None` for processes outside of the tree.
    known: HashMap<u32, Option<Member>>,
}

impl ProcessTree {
    /// Returns a tree that has not been looked at yet.
    pub fn new(roots: Roots) -> Self {
        Self { roots, newest: None, known: HashMap::new() }
    }

    /// Looks for new processes. Returns whether the process table had to be read.
    ///
    /// # Errors
    /// The process table cannot be read.
    pub fn refresh(&mut self) -> io::Result<bool> {
        self.refresh_by(if tells_newest() { newest() } else { None })
    }

    /// Looks for new processes, given the process or thread that was created last, if known.
    fn refresh_by(&mut self, newest: Option<u32>) -> io::Result<bool> {
        if newest.is_some() && newest == self.newest {
            return Ok(false);
        }
        self.newest = self.look()?.then_some(newest).flatten();
        Ok(true)
    }

    /// Looks for new members, forgets ended members, and rereads the others. Returns whether every
    /// process could be classified.
    ///
    /// # Errors
    /// The process table cannot be read.
    #[cfg(target_os = "linux")]
    pub(crate) fn look(&mut self) -> io::Result<bool> {
        let mut known = std::mem::take(&mut self.known);
        let mut unsettled = Vec::new();
        for pid in pids()?.into_iter().filter(|&pid| Some(pid) != self.roots.supervisor) {
            match known.remove(&pid) {
                Some(None) => {
                    self.known.insert(pid, None);
                }
                Some(Some(then)) => match member(pid) {
                    Some(now) if now.started == then.started => {
                        self.known.insert(pid, Some(now));
                    }
                    // The process has ended. Another process may have its id.
                    other => unsettled.extend(other),
                },
                None => unsettled.extend(member(pid)),
            }
        }
        // A child may have a lower id than its parent, so the loop repeats until a pass settles
        // nothing. A process whose parent is still not classified is examined again next time.
        loop {
            let before = unsettled.len();
            unsettled.retain(|new| !self.settle(new));
            if unsettled.len() == before {
                return Ok(unsettled.is_empty());
            }
        }
    }

    /// Looks for the members with one call of `ps`, which lists all processes. Trees without a
    /// supervisor are not looked for.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn look(&mut self) -> io::Result<bool> {
        let found = self.roots.supervisor.map_or(Ok(Vec::new()), descendants)?;
        self.known = found.into_iter().map(|member| (member.pid, Some(member))).collect();
        Ok(true)
    }

    /// Returns the members at the last look.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.known.values().flatten()
    }

    /// Returns the ids of the members at the last look that have not ended.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.members().filter(|member| !member.zombie).map(|member| member.pid).collect()
    }

    /// Returns whether a process at the top of one of the trees has ended since it was found.
    pub(crate) fn has_lost_a_top(&self) -> bool {
        let runs = |top: &Member| {
            let now = self.known.get(&top.pid).and_then(Option::as_ref);
            now.is_some_and(|now| is_same(top, now) && !now.zombie)
        };
        !self.roots.tops.iter().all(runs)
    }

    #[cfg(target_os = "linux")]
    fn settle(&mut self, new: &Member) -> bool {
        let belongs = match self.known.get(&new.parent) {
            _ if Some(new.parent) == self.roots.supervisor => true,
            _ if self.roots.tops.iter().any(|top| is_same(top, new)) => true,
            Some(parent) => parent.is_some(),
            // The parent is init, or a process that the process table does not show.
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

/// Returns whether the system reports which process or thread was created last.
#[cfg(target_os = "linux")]
fn tells_newest() -> bool {
    static TELLS: OnceLock<bool> = OnceLock::new();
    *TELLS.get_or_init(|| changes(newest))
}

#[cfg(not(target_os = "linux"))]
fn tells_newest() -> bool {
    false
}

/// Returns whether the reported id changes when a thread is started. On gVisor, the id never
/// changes.
#[cfg(target_os = "linux")]
fn changes(newest: impl Fn() -> Option<u32>) -> bool {
    let before = newest();
    let _ = std::thread::spawn(|| {}).join();
    before.is_some() && newest() != before
}

/// Returns the process or thread that was created last in this process's namespace.
fn newest() -> Option<u32> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().nth(4)?.parse().ok()
}

/// Returns the whole process table.
///
/// # Errors
/// The process table cannot be read.
#[cfg(target_os = "linux")]
pub fn all() -> io::Result<Vec<Member>> {
    Ok(pids()?.into_iter().filter_map(member).collect())
}

/// Returns the whole process table, as printed by POSIX `ps`.
///
/// # Errors
/// `ps` cannot be run.
#[cfg(not(target_os = "linux"))]
pub fn all() -> io::Result<Vec<Member>> {
    let columns = ["-A", "-o", "pid=,ppid=,pgid=,stat=,comm="];
    let output = std::process::Command::new("ps").args(columns).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let member = |line: &str| {
        let mut words = line.split_whitespace();
        let mut number = || words.next()?.parse().ok();
        let (pid, parent, group) = (number()?, number()?, number()?);
        let zombie = words.next()?.starts_with('Z');
        let name = words.collect::<Vec<_>>().join(" ");
        Some(Member { pid, parent, group, name, started: 0, zombie, reaped_ticks: 0 })
    };
    Ok(text.lines().filter_map(member).collect())
}

#[cfg(target_os = "linux")]
fn pids() -> io::Result<Vec<u32>> {
    let names =
        fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

/// Returns a process as the kernel describes it. `None` if the process has ended.
#[cfg(target_os = "linux")]
pub(crate) fn member(pid: u32) -> Option<Member> {
    member_in(Path::new("/proc"), pid)
}

/// Returns a process as described in `proc`, the folder with the process table.
#[cfg(target_os = "linux")]
pub(crate) fn member_in(proc: &Path, pid: u32) -> Option<Member> {
    read(fs::File::open(proc.join(format!("{pid}/stat"))).ok()?)
}

/// Returns whether a process still exists. A later process with the same id does not count. On
/// systems other than Linux, the result is always `true`.
pub fn is_still(known: &Member) -> bool {
    #[cfg(target_os = "linux")]
    return member(known.pid).is_some_and(|now| is_same(&now, known));
    #[cfg(not(target_os = "linux"))]
    return true;
}

/// Reads `/proc/<pid>/stat`, see proc_pid_stat(5).
#[cfg(target_os = "linux")]
fn read(stat: impl io::Read) -> Option<Member> {
    let stat = <procfs::process::Stat as procfs::FromRead>::from_read(stat).ok()?;
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

/// Returns the state of a process, as one letter. `None` if the process has ended. Callers read the
/// state in a loop until a process is frozen, so the rest of the line is not parsed.
#[cfg(target_os = "linux")]
pub fn state(pid: u32) -> Option<char> {
    use std::io::Read;
    // The name, in parentheses before the state, has at most 15 bytes, or 63 for a kernel thread.
    let mut line = [0; 128];
    let length = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
    let line = line.get(..length)?;
    let close = line.iter().rposition(|&byte| byte == b')')?;
    line.get(close + 2).map(|&byte| char::from(byte))
}

/// Returns the ids of the threads of a process. Empty if the process has ended, and on systems
/// other than Linux.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the CPU time of a thread in nanoseconds, which is the first number of its `schedstat`
/// (Documentation/scheduler/sched-stats.rst). `None` if the thread has ended.
pub(crate) fn thread_cpu_ns(pid: u32, thread: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Returns the words after a name at the start of a line, such as `Threads:` in
/// `/proc/<pid>/status`. Empty if there is no such line.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
}

/// Returns a field of `/proc/<pid>/status`. Empty if the process has ended.
#[cfg(target_os = "linux")]
pub(crate) fn status_field(pid: u32, name: &str) -> String {
    field(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(), name).to_owned()
}

/// Returns the inodes of the sockets that a process holds. `proc` is the folder with the process
/// table.
///
/// # Errors
/// The process has ended, or its open files may not be read.
#[cfg(target_os = "linux")]
pub(crate) fn sockets(proc: &Path, pid: u32) -> io::Result<Vec<u64>> {
    let files = fs::read_dir(proc.join(format!("{pid}/fd")))?;
    let inode = |file: io::Result<fs::DirEntry>| {
        let link = fs::read_link(file.ok()?.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    Ok(files.filter_map(inode).collect())
}

/// Returns the TCP addresses at which these processes listen, in order. If an IPv6 socket is bound
/// to an IPv4 address, the IPv4 address is returned (RFC 4291, section 2.5.5.2). Processes that
/// have ended, or whose open files this process may not read, are skipped.
///
/// # Errors
/// The kernel's socket tables cannot be read.
#[cfg(target_os = "linux")]
pub fn listening(pids: &[u32]) -> io::Result<Vec<SocketAddr>> {
    let entries = tcp_sockets(pids, procfs::net::TcpState::Listen)?;
    Ok(in_order(entries.into_iter().map(|entry| entry.local_address)))
}

/// Returns the TCP addresses to which these processes have opened connections, in order. Processes
/// that have ended, or whose open files this process may not read, are skipped.
///
/// # Errors
/// The kernel's socket tables cannot be read.
#[cfg(target_os = "linux")]
pub fn connected(pids: &[u32]) -> io::Result<Vec<SocketAddr>> {
    let own: Vec<u16> = listening(pids)?.iter().map(SocketAddr::port).collect();
    let mut entries = tcp_sockets(pids, procfs::net::TcpState::Established)?;
    // Connections from clients have a local port at which the process listens.
    entries.retain(|entry| !own.contains(&entry.local_address.port()));
    Ok(in_order(entries.into_iter().map(|entry| entry.remote_address)))
}

/// Returns the addresses in order, without duplicates. IPv4 addresses in IPv6 form become IPv4
/// addresses.
#[cfg(target_os = "linux")]
fn in_order(addresses: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
    let mut addresses: Vec<SocketAddr> = addresses.map(canonical).collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

/// Returns the TCP sockets of these processes that are in this state.
#[cfg(target_os = "linux")]
fn tcp_sockets(
    pids: &[u32],
    state: procfs::net::TcpState,
) -> io::Result<Vec<procfs::net::TcpNetEntry>> {
    let mut found = Vec::new();
    for &pid in pids {
        let held = sockets(Path::new("/proc"), pid).unwrap_or_default();
        let Ok(process) = procfs::process::Process::new(pid.cast_signed()) else { continue };
        if held.is_empty() {
            continue;
        }
        // The process's own tables are read, because the process may be in another network
        // namespace. A kernel without IPv6 has no tcp6.
        let mut entries = process.tcp().map_err(io::Error::other)?;
        entries.extend(process.tcp6().unwrap_or_default());
        found.extend(
            entries.into_iter().filter(|entry| entry.state == state && held.contains(&entry.inode)),
        );
    }
    Ok(found)
}

/// Fails, because the TCP addresses at which processes listen are unknown on this system.
///
/// # Errors
/// Always. The message names the remedy: use `$PORT` in the command.
#[cfg(not(target_os = "linux"))]
pub fn listening(_pids: &[u32]) -> io::Result<Vec<SocketAddr>> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "listening sockets of a process can be found on Linux only. Use $PORT in the command",
    ))
}

/// Fails, because the connections of processes are unknown on this system.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn connected(_pids: &[u32]) -> io::Result<Vec<SocketAddr>> {
    Err(io::ErrorKind::Unsupported.into())
}

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

    /// Regression: on systems where `/proc/loadavg` never changes, workers that were forked later
    /// were not found.
    #[cfg(target_os = "linux")]
    #[test]
    fn without_the_newest_process_id_every_look_finds_new_ones() {
        assert!(!changes(|| Some(7)), "as on gVisor");
        assert!(!changes(|| None));
        let mut census = ProcessTree::new(Roots::below(std::process::id()));
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
        let member = read(line.as_bytes()).unwrap();
        assert_eq!((member.pid, member.name.as_str()), (42, "a) b (c"));
        assert_eq!((member.parent, member.group), (7, 8));
        assert_eq!((member.reaped_ticks, member.started), (27, 777));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn sockets_of_this_process_are_found_where_they_listen() {
        let v4 = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let found = listening(&[std::process::id()]).unwrap();
        assert!(found.contains(&v4.local_addr().unwrap()), "{found:?}");
        if let Ok(v6) = std::net::TcpListener::bind("[::1]:0") {
            let found = listening(&[std::process::id()]).unwrap();
            assert!(found.contains(&v6.local_addr().unwrap()), "{found:?}");
            // Java binds an IPv4 address in this form.
            let mapped = std::net::TcpListener::bind("[::ffff:127.0.0.1]:0").unwrap();
            let address = ([127, 0, 0, 1], mapped.local_addr().unwrap().port()).into();
            let found = listening(&[std::process::id()]).unwrap();
            assert!(found.contains(&address), "{found:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_connection_belongs_to_the_process_that_opened_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let this = [std::process::id()];
        assert!(!connected(&this).unwrap().contains(&address));
        let client = std::net::TcpStream::connect(address).unwrap();
        let (_served, from) = listener.accept().unwrap();
        let found = connected(&this).unwrap();
        assert!(found.contains(&address), "{found:?}");
        assert!(!found.contains(&from), "a client's connection: {found:?}");
        drop(client);
    }
}
