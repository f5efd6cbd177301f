//! Databases on this machine that a server is connected to, but that hotlap did not start.

use std::fs;
use std::net::SocketAddr;

use hotlap_load::plan::Endpoint;
use hotlap_observe::{Member, Owner, Roots, is_here, owner, processes};

/// The beginnings of the process names of databases and caches. Any other program that a server is
/// connected to may be a backend that produces the responses.
const DATABASES: [&str; 9] = [
    "postgres",
    "mysqld",
    "mariadbd",
    "mongod",
    "redis-server",
    "valkey-server",
    "memcached",
    "cockroach",
    "clickhouse",
];

/// The ports on which these databases usually listen.
const PORTS: [u16; 7] = [5432, 3306, 27017, 6379, 11211, 26257, 9000];

/// Returns the topmost processes of the databases that these processes are connected to, and notes
/// for the user. The first value is `None` if there is no database, or if its processes are
/// unknown.
pub(crate) fn connected(pids: &[u32]) -> (Option<Roots>, Vec<String>) {
    // In a container, the same address leads to a different place.
    let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let here = network("self");
    let pids: Vec<u32> =
        pids.iter().copied().filter(|pid| network(&pid.to_string()) == here).collect();
    let addresses = processes::connected(&pids).unwrap_or_default();
    let here = addresses.into_iter().filter(|address| is_here(&Endpoint::Tcp(*address)));
    let (mut tops, mut notes) = (Vec::<Member>::new(), Vec::new());
    for address in here {
        match owner(&Endpoint::Tcp(address), &[]) {
            Owner::Others(found) => {
                let is_known = |top: &Member| {
                    pids.contains(&top.pid) || tops.iter().any(|known| known.pid == top.pid)
                };
                let found: Vec<Member> = found.into_iter().filter(is_database).collect();
                if let Some(first) = found.first().filter(|_| !found.iter().any(is_known)) {
                    notes.push(note(&first.name, address));
                    tops.extend(found);
                }
            }
            Owner::Unknown(_) if PORTS.contains(&address.port()) => notes.push(format!(
                "the server is connected to {address}, possibly a database of another user or in \
                 a container, so no figure includes its CPU time"
            )),
            Owner::Unknown(_) | Owner::Started => {}
        }
    }
    ((!tops.is_empty()).then_some(Roots { supervisor: None, tops }), notes)
}

fn is_database(member: &Member) -> bool {
    DATABASES.iter().any(|name| member.name.starts_with(name))
}

fn note(name: &str, address: SocketAddr) -> String {
    format!(
        "the server is connected to {name} at {address}. The CPU time of {name} counts as the \
         database's. hotlap did not start {name}, so the figure includes its other work"
    )
}
