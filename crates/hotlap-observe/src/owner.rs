//! Finds the processes that respond at an address, which are the owners of its listening socket.
//!
//! A command need not be the server. `docker run`, `systemd-run` and `ssh` ask a daemon to start
//! the server, outside of the process tree that hotlap started. The CPU time of this tree then
//! belongs to a client and is close to zero. So once a server responds, hotlap looks up the owner
//! of the socket. An owner outside of the tree is measured if it can be found. Otherwise, CPU time
//! is unknown. This lookup also finds the server behind a URL on this machine.

use std::net::UdpSocket;

use hotlap_load::plan::Endpoint;

use crate::processes::{Member, Roots};

/// The processes that respond at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// The processes belong to the tree that hotlap started.
    Started,
    /// hotlap did not start the processes. These are the topmost processes of each tree, which may
    /// be measured but never stopped.
    Others(Vec<Member>),
    /// The processes were not found. The text states the cause, and usually a remedy, in one or
    /// two sentences.
    Unknown(String),
}

impl Owner {
    /// Returns the roots of the processes that respond. `None` if these processes are unknown.
    /// `supervisor` is the supervisor of the server that hotlap started for the address, if any.
    pub fn roots(&self, supervisor: Option<u32>) -> Option<Roots> {
        match self {
            Self::Started => Some(Roots { supervisor, tops: Vec::new() }),
            Self::Others(tops) => Some(Roots { supervisor, tops: tops.clone() }),
            Self::Unknown(_) => None,
        }
    }

    /// Returns a note for the user. `None` for a server that hotlap started.
    pub fn note(&self) -> Option<String> {
        match self {
            Self::Started => None,
            Self::Others(tops) => Some(format!(
                "the server is {}, which hotlap did not start. CPU time includes child processes, \
                 and hotlap does not freeze this server while other servers are measured",
                names(tops)
            )),
            Self::Unknown(why) => Some(format!("CPU time is unknown: {why}")),
        }
    }
}

/// Returns whether an address belongs to this machine.
pub fn is_here(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Unix(_) => true,
        // Only local addresses can be bound, and binding a UDP socket sends nothing.
        Endpoint::Tcp(address) => {
            address.ip().is_loopback() || UdpSocket::bind((address.ip(), 0)).is_ok()
        }
    }
}

/// Returns the names of processes. Process ids are left out. They change at every start, and the
/// same note must be printed only once.
fn names(members: &[Member]) -> String {
    let mut names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    names.dedup();
    names.join(", ")
}

/// Returns the owner of an address. This system has no lookup, so a command is assumed to be the
/// server.
#[cfg(not(target_os = "linux"))]
pub fn owner(_endpoint: &Endpoint, tree: &[Member]) -> Owner {
    match tree {
        [] => Owner::Unknown("socket owners can be looked up on Linux only".to_owned()),
        _ => Owner::Started,
    }
}
