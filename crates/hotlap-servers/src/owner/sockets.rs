//! Reads the kernel's tables of sockets and processes: which sockets listen, and which processes
//! hold them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use hotlap_load::plan::Endpoint;
use procfs::net::{TcpNetEntries, TcpState, UnixNetEntries, UnixState};
use procfs::{FromRead, FromReadSI, current_system_info};

use crate::tree::{self, Member};

/// The kernel's tables under `/proc`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tables<'a>(pub(super) &'a Path);

/// A listening socket: its inode, and its user if the kernel reports it.
pub(super) type Socket = (u64, Option<u32>);

impl Tables<'_> {
    /// The listening sockets that accept connections to an address, by best match. There are
    /// several if they share a port (`SO_REUSEPORT`).
    pub(super) fn listening(&self, endpoint: &Endpoint) -> io::Result<Vec<Socket>> {
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

    /// Which of these processes hold which of the sockets.
    pub(super) fn holders(
        &self,
        pids: impl Iterator<Item = u32>,
        wanted: &HashSet<u64>,
    ) -> Holders {
        let mut holders = Holders::default();
        for pid in pids {
            match self.sockets(pid) {
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
                // It ended.
                Err(_) => {}
            }
        }
        holders
    }

    /// The inodes of a process's sockets.
    fn sockets(&self, pid: u32) -> io::Result<Vec<u64>> {
        let files = fs::read_dir(self.0.join(format!("{pid}/fd")))?;
        let inode = |file: io::Result<fs::DirEntry>| {
            let link = fs::read_link(file.ok()?.path()).ok()?;
            link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        };
        Ok(files.filter_map(inode).collect())
    }

    /// All processes, by process id.
    pub(super) fn table(&self) -> BTreeMap<u32, Member> {
        let names = fs::read_dir(self.0).into_iter().flatten();
        let pids = names.filter_map(|name| name.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let stat = |pid| fs::File::open(self.0.join(format!("{pid}/stat"))).ok();
        let member = |pid: u32| tree::read(stat(pid)?);
        pids.filter_map(|pid| Some((pid, member(pid)?))).collect()
    }

    /// The effective user of a process.
    pub(super) fn uid(&self, pid: u32) -> Option<u32> {
        let status = fs::read_to_string(self.0.join(format!("{pid}/status"))).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }
}

/// The processes that hold sockets.
#[derive(Debug, Default)]
pub(super) struct Holders {
    pub(super) by_pid: HashMap<u32, Vec<u64>>,
    /// Processes whose open files hotlap may not read.
    pub(super) hidden: HashSet<u32>,
}

/// Whether a socket bound to `bound` accepts connections to `asked`, and how well it matches: an
/// exact address is preferred to a wildcard, and IPv4's wildcard to IPv6's, as in the kernel
/// (`compute_score` in net/ipv4/inet_hashtables.c).
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
    use super::*;

    #[test]
    fn a_wildcard_accepts_its_own_family_and_that_of_ipv6_both() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(fit(ip("::"), ip("127.0.0.1")), Some(2));
        assert_eq!(fit(ip("::ffff:127.0.0.1"), ip("127.0.0.1")), Some(0));
        assert_eq!(fit(ip("0.0.0.0"), ip("::1")), None);
        assert_eq!(fit(ip("127.0.0.2"), ip("127.0.0.1")), None);
    }
}
