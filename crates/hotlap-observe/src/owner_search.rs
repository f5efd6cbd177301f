//! Searches for the owner of an address: the sockets that listen there, and the processes that hold
//! these sockets.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use hotlap_load::plan::Endpoint;
use procfs::net::{TcpNetEntries, TcpState, UnixNetEntries, UnixState};
use procfs::{FromRead, FromReadSI, current_system_info};

use crate::owner::Owner;
use crate::processes::{Member, member_in, sockets};

/// Programs that listen on behalf of a server in another network namespace or on another machine.
/// The kernel truncates names to 15 bytes.
const FORWARDERS: [&str; 11] = [
    "docker-proxy",
    "rootlessport",
    "rootlesskit",
    "slirp4netns",
    "pasta",
    "passt",
    "gvproxy",
    "ssh",
    "sshd",
    "kubectl",
    "systemd-socket-",
];

/// Returns the owner of an address. `tree` contains the processes that hotlap started for this
/// address.
pub fn owner(endpoint: &Endpoint, tree: &[Member]) -> Owner {
    let myself = Myself { pid: std::process::id(), uid: rustix::process::geteuid().as_raw() };
    Search { tables: Tables(Path::new("/proc")), myself }.run(endpoint, tree)
}

/// hotlap's process, which runs the search.
#[derive(Debug, Clone, Copy)]
struct Myself {
    pid: u32,
    uid: u32,
}

struct Search<'a> {
    tables: Tables<'a>,
    myself: Myself,
}

impl Search<'_> {
    fn run(&self, endpoint: &Endpoint, tree: &[Member]) -> Owner {
        let sockets = match self.tables.listening(endpoint) {
            Ok(sockets) if sockets.is_empty() => {
                return Owner::Unknown(
                    "no process on this machine listens on the address that hotlap connects to, \
                     so connections are possibly forwarded, for instance to a container. Use the \
                     server's own address instead"
                        .to_owned(),
                );
            }
            Ok(sockets) => sockets,
            Err(error) => {
                return Owner::Unknown(format!("cannot read the kernel's socket tables ({error})"));
            }
        };
        let wanted: HashSet<u64> = sockets.iter().map(|(inode, _)| *inode).collect();
        let started = self.tables.holders(tree.iter().map(|member| member.pid), &wanted);
        let own: Vec<&Member> =
            tree.iter().filter(|member| started.by_pid.contains_key(&member.pid)).collect();
        if let Some(forwarder) = own.iter().find(|member| forwards(member)) {
            return forwarded(forwarder);
        }
        let found = |holders: &Holders| -> HashSet<u64> {
            holders.by_pid.values().flatten().copied().collect()
        };
        if found(&started) == wanted {
            return Owner::Started;
        }
        // A program with extra capabilities hides its open files even from its own user.
        let uid = sockets.iter().find_map(|(_, uid)| *uid);
        let is_hidden = tree.iter().any(|member| started.hidden.contains(&member.pid));
        if is_hidden
            && uid == Some(self.myself.uid)
            && tree.iter().all(|member| self.tables.uid(member.pid) == uid)
        {
            return Owner::Started;
        }
        let table = self.tables.table();
        let all = self.tables.holders(table.keys().copied(), &wanted);
        let everywhere = found(&all);
        if everywhere != wanted {
            return self.not_found(uid, &all);
        }
        self.judge(&table, &all, tree)
    }

    /// Finds the topmost processes that hold the socket and that hotlap did not start.
    fn judge(&self, table: &BTreeMap<u32, Member>, all: &Holders, tree: &[Member]) -> Owner {
        // A service manager opens sockets for its services, and keeps the sockets open.
        let is_manager =
            |pid: &u32| *pid == 1 || table.get(pid).is_some_and(|member| member.name == "systemd");
        let mut holders: HashSet<u32> = all.by_pid.keys().copied().collect();
        if !holders.iter().all(is_manager) {
            holders.retain(|pid| !is_manager(pid));
        }
        let ancestors = |pid: u32| {
            let parent = |pid: &u32| table.get(pid).map(|member| member.parent);
            // A table that changed while being read may contain a cycle.
            std::iter::successors(parent(&pid), parent).take(table.len())
        };
        let is_ours = |pid: &u32| tree.iter().any(|member| member.pid == *pid);
        let tops: Vec<Member> = holders
            .iter()
            .filter(|pid| !is_ours(pid) && !ancestors(**pid).any(|a| holders.contains(&a)))
            .filter_map(|pid| table.get(pid).cloned())
            .collect();
        if let Some(forwarder) = tops.iter().find(|member| forwards(member)) {
            return forwarded(forwarder);
        }
        let me = self.myself.pid;
        let has_me = |top: &Member| top.pid == me || ancestors(me).any(|pid| pid == top.pid);
        if let Some(top) = tops.iter().find(|top| has_me(top)) {
            return Owner::Unknown(format!(
                "the server is {} ({}), which hotlap is part of or was started by. Start \
                 hotlap from another shell",
                top.name, top.pid
            ));
        }
        match tops.is_empty() {
            true => Owner::Started,
            false => {
                let mut tops = tops;
                tops.sort_by_key(|top| top.pid);
                Owner::Others(tops)
            }
        }
    }

    fn not_found(&self, uid: Option<u32>, all: &Holders) -> Owner {
        if all.hidden.is_empty() {
            return Owner::Unknown(
                "the process that listens on the server's address is not visible here, for \
                 instance because the process runs outside of this container. Run hotlap where \
                 the process runs"
                    .to_owned(),
            );
        }
        let user = uid.map_or_else(|| "another user".to_owned(), |uid| self.user(uid));
        Owner::Unknown(format!(
            "the socket belongs to a process of {user}, which hotlap may not inspect. Run \
             hotlap as root or as that user to measure CPU time"
        ))
    }

    /// Returns the name and id of a user.
    fn user(&self, uid: u32) -> String {
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let name = passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, number) = (fields.next()?, fields.nth(1)?);
            (number.parse() == Ok(uid)).then_some(name)
        });
        name.map_or_else(|| format!("user {uid}"), |name| format!("user {name} ({uid})"))
    }
}

fn forwards(member: &Member) -> bool {
    FORWARDERS.contains(&member.name.as_str())
}

fn forwarded(forwarder: &Member) -> Owner {
    Owner::Unknown(format!(
        "{} only forwards connections to a server in a container or on another machine. Use \
         the address of the server itself, or run it without forwarding (docker run \
         --network host)",
        forwarder.name
    ))
}
/// Access to the kernel's tables under `/proc`.
#[derive(Debug, Clone, Copy)]
struct Tables<'a>(&'a Path);

/// The inode of a listening socket, and its user if the kernel reports the user.
type Socket = (u64, Option<u32>);

impl Tables<'_> {
    /// Returns the listening sockets that best match connections to an address. There are several
    /// sockets if they share a port (`SO_REUSEPORT`).
    fn listening(&self, endpoint: &Endpoint) -> io::Result<Vec<Socket>> {
        let net = self.0.join("self/net");
        match endpoint {
            Endpoint::Tcp(address) => {
                let read = |name: &str| {
                    TcpNetEntries::from_file(net.join(name), current_system_info())
                        .map(|TcpNetEntries(entries)| entries)
                        .map_err(io::Error::other)
                };
                // A kernel without IPv6 has no tcp6.
                let entries = read("tcp")?.into_iter().chain(read("tcp6").unwrap_or_default());
                let fitting = entries.filter_map(|entry| {
                    let bound = entry.local_address;
                    let is_it = entry.state == TcpState::Listen && bound.port() == address.port();
                    let fit = fit(bound.ip(), address.ip()).filter(|_| is_it)?;
                    Some((fit, (entry.inode, Some(entry.uid))))
                });
                let fitting: Vec<(u8, Socket)> = fitting.collect();
                let best = fitting.iter().map(|(fit, _)| *fit).min();
                let best = fitting.into_iter().filter(|(fit, _)| Some(*fit) == best);
                Ok(best.map(|(_, socket)| socket).collect())
            }
            Endpoint::Unix(path) => {
                let UnixNetEntries(entries) =
                    UnixNetEntries::from_file(net.join("unix")).map_err(io::Error::other)?;
                let ours = entries.into_iter().filter(|entry| {
                    entry.path.as_ref() == Some(path) && entry.state == UnixState::UNCONNECTED
                });
                Ok(ours.map(|entry| (entry.inode, None)).collect())
            }
        }
    }

    /// Returns which of these processes hold which of the sockets.
    fn holders(&self, pids: impl Iterator<Item = u32>, wanted: &HashSet<u64>) -> Holders {
        let mut holders = Holders::default();
        for pid in pids {
            match sockets(self.0, pid) {
                Ok(sockets) => {
                    let held: Vec<u64> =
                        sockets.into_iter().filter(|inode| wanted.contains(inode)).collect();
                    if !held.is_empty() {
                        holders.by_pid.insert(pid, held);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    holders.hidden.insert(pid);
                }
                // The process has ended.
                Err(_) => {}
            }
        }
        holders
    }

    /// Returns all processes, by process id.
    fn table(&self) -> BTreeMap<u32, Member> {
        let names = fs::read_dir(self.0).into_iter().flatten();
        let pids = names.filter_map(|name| name.ok()?.file_name().to_str()?.parse::<u32>().ok());
        pids.filter_map(|pid| Some((pid, member_in(self.0, pid)?))).collect()
    }

    /// Returns the effective user of a process.
    fn uid(&self, pid: u32) -> Option<u32> {
        let status = fs::read_to_string(self.0.join(format!("{pid}/status"))).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }
}

/// The processes that hold sockets.
#[derive(Debug, Default)]
struct Holders {
    by_pid: HashMap<u32, Vec<u64>>,
    /// Processes whose open files hotlap may not read.
    hidden: HashSet<u32>,
}

/// Returns how well a socket bound to `bound` matches connections to `asked`, with 0 as the best.
/// `None` if the socket does not accept them. An exact address is preferred to a wildcard, and
/// IPv4's wildcard to IPv6's, as in the kernel (`compute_score` in net/ipv4/inet_hashtables.c).
fn fit(bound: IpAddr, asked: IpAddr) -> Option<u8> {
    let bound = bound.to_canonical();
    match (bound, asked) {
        _ if bound == asked => Some(0),
        (IpAddr::V4(bound), IpAddr::V4(_)) if bound.is_unspecified() => Some(1),
        (IpAddr::V6(bound), _) if bound.is_unspecified() => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    /// hotlap's process in the process tables of these tests.
    const ME: Myself = Myself { pid: 50, uid: 1000 };

    /// Returns a line of /proc/net/tcp with this bound address, user and inode.
    fn tcp(bound: &str, uid: u32, inode: u64) -> String {
        format!(
            "   0: {bound} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {uid:5} 0 {inode}\n"
        )
    }

    /// Creates a folder with a process table. Each process has an id, a parent, a name and sockets.
    fn proc(tcp: &[String], table: &[(u32, u32, &str, &[u64])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("self/net")).unwrap();
        fs::write(root.join("self/net/tcp"), format!("header\n{}", tcp.concat())).unwrap();
        for (pid, parent, name, sockets) in table {
            let path = root.join(pid.to_string());
            fs::create_dir_all(path.join("fd")).unwrap();
            let rest = "1 1 0 0 0 0 0 0 0 1 1 0 0 0 0 1 0 7 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
            fs::write(path.join("stat"), format!("{pid} ({name}) S {parent} {rest}")).unwrap();
            fs::write(path.join("status"), "Uid:\t1000\t1000\t1000\t1000\n").unwrap();
            for (n, inode) in sockets.iter().enumerate() {
                symlink(format!("socket:[{inode}]"), path.join("fd").join(n.to_string())).unwrap();
            }
        }
        folder
    }

    fn member(pid: u32, parent: u32, name: &str) -> Member {
        let name = name.to_owned();
        let (started, reaped_ticks) = (7, 0);
        Member { pid, parent, group: 1, name, started, zombie: false, reaped_ticks }
    }

    /// Returns the owner of 127.0.0.1:8080.
    fn found(proc: &Path, tree: &[Member]) -> Owner {
        let endpoint = Endpoint::Tcp("127.0.0.1:8080".parse().unwrap());
        Search { tables: Tables(proc), myself: ME }.run(&endpoint, tree)
    }

    const ANY_8080: &str = "00000000:1F90";

    #[test]
    fn a_server_in_the_tree_was_started_by_hotlap() {
        let proc = proc(&[tcp(ANY_8080, 0, 77)], &[(60, 50, "sh", &[]), (61, 60, "app", &[3, 77])]);
        let tree = [member(60, 50, "sh"), member(61, 60, "app")];
        assert_eq!(found(proc.path(), &tree), Owner::Started);
    }

    /// With `systemd-run`, the command is a client, and a daemon with its workers responds.
    #[test]
    fn a_delegated_server_is_the_topmost_process_with_the_socket() {
        let proc = proc(
            &[tcp(ANY_8080, 0, 77)],
            &[
                (1, 0, "systemd", &[77]),
                (60, 50, "systemd-run", &[]),
                (70, 1, "nginx", &[77]),
                (71, 70, "nginx", &[77, 78]),
                (72, 71, "nginx", &[77]),
            ],
        );
        let tree = [member(60, 50, "systemd-run")];
        assert_eq!(found(proc.path(), &tree), Owner::Others(vec![member(70, 1, "nginx")]));
    }

    #[test]
    fn the_main_process_of_a_container_is_a_server_like_any_other() {
        let proc = proc(&[tcp(ANY_8080, 0, 77)], &[(1, 0, "node", &[77]), (50, 0, "hotlap", &[])]);
        assert_eq!(found(proc.path(), &[]), Owner::Others(vec![member(1, 0, "node")]));
    }

    /// Two servers share a port, and hotlap did not start one of them.
    #[test]
    fn of_several_sockets_on_one_port_all_owners_count() {
        let proc = proc(
            &[tcp(ANY_8080, 0, 77), tcp(ANY_8080, 0, 78)],
            &[(60, 50, "app", &[77]), (70, 1, "app", &[78])],
        );
        let tree = [member(60, 50, "app")];
        assert_eq!(found(proc.path(), &tree), Owner::Others(vec![member(70, 1, "app")]));
    }

    #[test]
    fn an_exact_address_is_preferred_to_a_wildcard_and_other_ports_do_not_matter() {
        let sockets =
            [tcp(ANY_8080, 0, 77), tcp("0100007F:1F90", 0, 78), tcp("0100007F:1F91", 0, 79)];
        let proc = proc(
            &sockets,
            &[(60, 50, "app", &[78]), (70, 1, "other", &[77]), (71, 1, "third", &[79])],
        );
        assert_eq!(found(proc.path(), &[member(60, 50, "app")]), Owner::Started);
    }

    #[test]
    fn a_forwarder_is_not_the_server() {
        let proc = proc(&[tcp(ANY_8080, 0, 77)], &[(70, 1, "docker-proxy", &[77])]);
        let told = found(proc.path(), &[member(60, 50, "docker")]).note().unwrap();
        assert!(told.starts_with("CPU time is unknown: docker-proxy only forwards"), "{told}");
    }

    #[test]
    fn hotlap_does_not_measure_itself() {
        let proc = proc(
            &[tcp(ANY_8080, 0, 77)],
            &[(40, 1, "runner", &[77]), (45, 40, "sh", &[]), (50, 45, "hotlap", &[])],
        );
        let told = found(proc.path(), &[]).note().unwrap();
        assert!(told.contains("runner (40), which hotlap is part of"), "{told}");
    }

    #[test]
    fn an_invisible_owner_makes_cpu_time_unknown_and_never_zero() {
        let nowhere = proc(&[], &[]);
        let told = found(nowhere.path(), &[]).note().unwrap();
        assert!(told.contains("no process on this machine listens on the address"), "{told}");
        let outside = proc(&[tcp(ANY_8080, 0, 77)], &[(60, 50, "docker", &[])]);
        let told = found(outside.path(), &[member(60, 50, "docker")]).note().unwrap();
        assert!(told.contains("is not visible here"), "{told}");
    }

    /// Root may read all files, so this test checks nothing if it runs as root.
    #[test]
    fn the_note_names_the_user_to_run_as() {
        let proc = proc(&[tcp(ANY_8080, 0, 77)], &[(60, 50, "sudo", &[]), (70, 1, "app", &[77])]);
        let hidden = proc.path().join("70/fd");
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o0)).unwrap();
        if fs::read_dir(&hidden).is_ok() {
            return;
        }
        let told = found(proc.path(), &[member(60, 50, "sudo")]).note().unwrap();
        assert!(told.contains("user root (0), which hotlap may not inspect"), "{told}");
    }

    #[test]
    fn a_wildcard_accepts_its_own_family_and_that_of_ipv6_both() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(fit(ip("::"), ip("127.0.0.1")), Some(2));
        assert_eq!(fit(ip("::ffff:127.0.0.1"), ip("127.0.0.1")), Some(0));
        assert_eq!(fit(ip("0.0.0.0"), ip("::1")), None);
        assert_eq!(fit(ip("127.0.0.2"), ip("127.0.0.1")), None);
    }
}
