//! Counts the TCP segments that a server's sockets have sent and received.
//!
//! The kernel counts segments with data for each socket, and reports the counts to anyone through
//! `sock_diag` (sock_diag(7)). The counts of closed sockets are not reported, so segments are known
//! only if the server kept its connections open.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

use crate::processes::sockets;

/// The kernel counts the connections of all programs together. Connections that came and went are
/// attributed to other programs if their number is at most the server's received segments divided
/// by this number. A connection of the server would receive a segment for each of its requests.
const ONE_IN: u64 = 10;

/// The kernel's counts for each socket of a server.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    /// The counts by the kernel's number for a socket, which is never reused.
    by_cookie: HashMap<u64, Segments>,
    /// The number of connections that all programs in the server's network namespace have accepted
    /// so far.
    accepted: u64,
}

/// The numbers of segments with data, modulo 2³².
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Segments {
    sent: u32,
    received: u32,
}

/// The numbers of segments of all sockets together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Traffic {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl Sockets {
    /// Reads the TCP sockets that these processes hold.
    ///
    /// # Errors
    /// The processes are in another network namespace, their open files may not be read, or the
    /// kernel does not report their sockets.
    pub(crate) fn of(pids: &[u32]) -> io::Result<Self> {
        let own = fs::read_link("/proc/self/ns/net")?;
        let mut inodes = HashSet::new();
        for &pid in pids {
            // A process may end at any time.
            let Ok(namespace) = fs::read_link(format!("/proc/{pid}/ns/net")) else { continue };
            if namespace != own {
                return Err(io::ErrorKind::Unsupported.into());
            }
            inodes.extend(sockets(Path::new("/proc"), pid)?);
        }
        let snmp = procfs::net::snmp().map_err(io::Error::other)?;
        let mut held = Self { accepted: snmp.tcp_passive_opens, ..Self::default() };
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            dump(family, |socket| {
                if inodes.contains(&u64::from(socket.inode)) {
                    held.by_cookie.insert(socket.cookie, socket.segments);
                }
            })?;
        }
        Ok(held)
    }

    /// Returns the segments since an earlier reading. `None` if connections of the server were
    /// closed. Also `None` if so many connections came and went that some may have been the
    /// server's.
    pub(crate) fn since(&self, earlier: &Self) -> Option<Traffic> {
        let mut traffic = Traffic::default();
        let mut opened = 0;
        for (key, now) in &self.by_cookie {
            let then = earlier.by_cookie.get(key).copied().unwrap_or_else(|| {
                opened += 1;
                Segments::default()
            });
            traffic.sent += u64::from(now.sent.wrapping_sub(then.sent));
            traffic.received += u64::from(now.received.wrapping_sub(then.received));
        }
        let is_closed = |key: &u64| !self.by_cookie.contains_key(key);
        let unseen = self.accepted.saturating_sub(earlier.accepted).saturating_sub(opened);
        let is_known = unseen * ONE_IN <= traffic.received;
        (is_known && !earlier.by_cookie.keys().any(is_closed)).then_some(traffic)
    }
}

/// A socket, as the kernel reports it.
#[derive(Debug, PartialEq, Eq)]
struct Reported {
    cookie: u64,
    inode: u32,
    segments: Segments,
}

/// Types of netlink messages, and flags of a request for all sockets, from
/// include/uapi/linux/netlink.h and sock_diag.h.
const BY_FAMILY: u16 = 20;
const DONE: u16 = 3;
const ERROR: u16 = 2;
const REQUEST_ALL: u16 = 0x301;

/// The attribute `INET_DIAG_INFO`, which contains `struct tcp_info`, and its bit in a request.
const INFO: u16 = 2;
const INFO_BIT: u8 = 1 << (INFO - 1);

/// The states of sockets that have segments, which are all states except TIME_WAIT (6), CLOSE (7)
/// and LISTEN (10).
const STATES: u32 = 0xfff & !(1 << 6 | 1 << 7 | 1 << 10);

/// The sizes of `struct nlmsghdr`, `inet_diag_req_v2` and `inet_diag_msg`, in bytes.
const HEADER: usize = 16;
const ASKED: usize = 56;
const MESSAGE: usize = 72;

/// Asks the kernel for all TCP sockets of an address family, and passes each to `each`.
fn dump(family: AddressFamily, mut each: impl FnMut(Reported)) -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )?;
    let mut request = Vec::with_capacity(HEADER + ASKED);
    request.extend_from_slice(&((HEADER + ASKED) as u32).to_ne_bytes());
    request.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&REQUEST_ALL.to_ne_bytes());
    request.extend_from_slice(&[0; 8]);
    request.extend_from_slice(&[family.as_raw() as u8, libc::IPPROTO_TCP as u8, INFO_BIT, 0]);
    request.extend_from_slice(&STATES.to_ne_bytes());
    request.resize(HEADER + ASKED, 0);
    sendto(&socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..length];
        while let Some((kind, body, after)) = message(rest) {
            match kind {
                DONE => return Ok(()),
                ERROR => return Err(io::ErrorKind::Unsupported.into()),
                _ => reported(body).into_iter().for_each(&mut each),
            }
            rest = after;
        }
    }
}

/// Splits off the first of several messages. Returns its type, the bytes after its header, and the
/// other messages.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32_at(bytes, 0)? as usize;
    let body = bytes.get(HEADER..length)?;
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((u16_at(bytes, 4)?, body, after))
}

/// Reads `struct inet_diag_msg`. From the attributes after it, `data_segs_in` and `data_segs_out`
/// of `struct tcp_info` are read (Linux 4.6 and later).
fn reported(body: &[u8]) -> Option<Reported> {
    let cookie = u64::from(u32_at(body, 44)?) | u64::from(u32_at(body, 48)?) << 32;
    let inode = u32_at(body, 68)?;
    let mut rest = body.get(MESSAGE..)?;
    loop {
        let length = usize::from(u16_at(rest, 0)?).max(4);
        if u16_at(rest, 2)? == INFO {
            let info = rest.get(4..length)?;
            let segments = Segments { received: u32_at(info, 152)?, sent: u32_at(info, 156)? };
            return Some(Reported { cookie, inode, segments });
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn segments_of_an_open_connection_are_counted_each_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let cookie_of = |local: u16| {
            let mut found = Vec::new();
            dump(AddressFamily::INET, |socket| found.push(socket)).unwrap();
            let mut inodes = procfs::net::tcp().unwrap();
            inodes.retain(|entry| entry.local_address.port() == local && entry.inode > 0);
            inodes.retain(|entry| entry.remote_address.port() != 0);
            found.retain(|socket| inodes.iter().any(|e| e.inode == u64::from(socket.inode)));
            found.remove(0).segments
        };
        let port = client.local_addr().unwrap().port();
        let before = cookie_of(port);
        for _ in 0..3 {
            client.write_all(b"ping").unwrap();
            server.read_exact(&mut [0; 4]).unwrap();
        }
        server.write_all(b"pong").unwrap();
        client.read_exact(&mut [0; 4]).unwrap();
        let after = cookie_of(port);
        assert_eq!((after.sent - before.sent, after.received - before.received), (3, 1));
    }

    fn sockets(accepted: u64, list: &[(u64, u32, u32)]) -> Sockets {
        let one = |&(key, sent, received): &(u64, u32, u32)| (key, Segments { sent, received });
        Sockets { by_cookie: list.iter().map(one).collect(), accepted }
    }

    #[test]
    fn a_count_that_wraps_and_a_new_connection_are_summed() {
        let before = sockets(5, &[(1, u32::MAX, 10)]);
        let after = sockets(6, &[(1, 4, 12), (2, 7, 8)]);
        assert_eq!(after.since(&before), Some(Traffic { sent: 12, received: 10 }));
    }

    #[test]
    fn segments_of_connections_that_were_closed_are_unknown() {
        let before = sockets(5, &[(1, 1, 1), (2, 1, 1)]);
        assert_eq!(sockets(5, &[(1, 2, 2)]).since(&before), None, "one is gone");
        let both = sockets(6, &[(1, 9, 9), (2, 2, 2)]);
        assert_eq!(both.since(&before), None, "one came and went for nine segments");
        let both = sockets(6, &[(1, 9, 10), (2, 2, 2)]);
        assert_eq!(both.since(&before), Some(Traffic { sent: 9, received: 10 }));
    }

    #[test]
    fn a_message_that_is_cut_off_is_ignored() {
        assert_eq!(message(&[40, 0, 0, 0, 20, 0]), None);
        assert_eq!(reported(&[0; MESSAGE]), None);
    }
}
