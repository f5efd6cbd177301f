//! Finds the processes that answer at an address: the owners of its listening socket.
//!
//! A command need not be the server: `docker run`, `systemd-run` and `ssh` ask a daemon to start
//! it, outside of the process tree that hotlap started. CPU time of that tree is the client's,
//! close to nothing. So once a server answers, hotlap looks up the owner of the socket. An owner
//! outside of the tree is measured if it can be found. Otherwise CPU time is unknown. The same
//! lookup finds the server behind a URL on this machine.

use std::net::UdpSocket;

use hotlap_load::plan::Endpoint;

use crate::processes::{Member, Roots};

/// Whose processes answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// Processes of the tree that hotlap started.
    Started,
    /// Processes that hotlap did not start: the topmost of each tree. They may be measured but
    /// never stopped.
    Others(Vec<Member>),
    /// Not found: the cause and a remedy, in one or two sentences.
    Unknown(String),
}

impl Owner {
    /// Where the processes that answer begin. `None` if they are unknown. `supervisor` is the
    /// supervisor of the server that hotlap started for the address, if any.
    pub fn roots(&self, supervisor: Option<u32>) -> Option<Roots> {
        match self {
            Self::Started => Some(Roots { supervisor, tops: Vec::new() }),
            Self::Others(tops) => Some(Roots { supervisor, tops: tops.clone() }),
            Self::Unknown(_) => None,
        }
    }

    /// What the user must know. `None` for a server that hotlap started.
    pub fn note(&self) -> Option<String> {
        match self {
            Self::Started => None,
            Self::Others(tops) => Some(format!(
                "the server is {}, which hotlap did not start: its CPU time is measured with that \
                 of its child processes, and it is not frozen while other servers are measured",
                names(tops)
            )),
            Self::Unknown(why) => Some(format!("CPU time is unknown: {why}")),
        }
    }
}

/// Whether an address belongs to this machine.
pub fn is_here(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Unix(_) => true,
        // Only a local address can be bound to, and binding a UDP socket sends nothing.
        Endpoint::Tcp(address) => {
            address.ip().is_loopback() || UdpSocket::bind((address.ip(), 0)).is_ok()
        }
    }
}

/// Without process ids, which change at every start, so that the same note is printed only once.
fn names(members: &[Member]) -> String {
    let mut names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    names.dedup();
    names.join(", ")
}

/// The owner of an address: not looked up on this system, where a command is taken to be the
/// server.
#[cfg(not(target_os = "linux"))]
pub fn owner(_endpoint: &Endpoint, tree: &[Member]) -> Owner {
    match tree {
        [] => Owner::Unknown("socket owners can be looked up on Linux only".to_owned()),
        _ => Owner::Started,
    }
}
