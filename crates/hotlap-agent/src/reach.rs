//! Finds the addresses at which one host reaches another, and whether two hosts are one machine.
//!
//! A [`Door`] is a socket on all addresses that sends a secret to every client that connects, and
//! reads nothing. The door normally closes when the search for an address ends.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::channel::together;

/// How often the door's thread checks whether the door is closed.
const LOOK: Duration = Duration::from_millis(10);

/// How long a connection may take to accept the secret.
const WRITE: Duration = Duration::from_secs(1);

/// An open door. Dropping this value closes the door.
#[derive(Debug)]
pub(crate) struct Door {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    pub(crate) fn open(secret: String) -> io::Result<Self> {
        // By default, a socket on all IPv6 addresses of Linux also listens on all IPv4 addresses.
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        listener.set_nonblocking(true)?;
        let (port, stop) = (listener.local_addr()?.port(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || tell(&listener, &secret, &stopped));
        Ok(Self { port, stop, thread: Some(thread) })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn tell(listener: &TcpListener, secret: &str, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((mut visitor, _)) => {
                let _ = visitor.set_nonblocking(false);
                let _ = visitor.set_write_timeout(Some(WRITE));
                let _ = visitor.write_all(secret.as_bytes());
            }
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

/// How long one address may take to respond.
const LIMIT: Duration = Duration::from_secs(2);

/// Returns the first address at which the door answers with the secret. Loopback comes first,
/// because it works if the hosts share a network, and every server listens there.
pub(crate) fn first(addresses: &[IpAddr], port: u16, secret: &str) -> Option<IpAddr> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut all = std::iter::once(loopback).chain(addresses.iter().copied());
    all.find(|address| is_door(*address, port, secret))
}

/// Returns all addresses at which the door answers. All are tried at the same time.
pub(crate) fn reached(addresses: &[IpAddr], port: u16, secret: &str) -> Vec<IpAddr> {
    let tried = together(addresses, |ip| is_door(*ip, port, secret));
    addresses.iter().zip(tried).filter(|(_, is_reached)| *is_reached).map(|(ip, _)| *ip).collect()
}

/// Whether the door answers at this address. Another host may have the same private address, and
/// another program the same port, so the secret is compared.
pub(crate) fn is_door(ip: IpAddr, port: u16, secret: &str) -> bool {
    let address = SocketAddr::new(ip, port);
    let until = Instant::now() + LIMIT;
    let Ok(mut stream) = TcpStream::connect_timeout(&address, LIMIT) else { return false };
    let mut found = vec![0; secret.len()];
    let mut length = 0;
    while length < found.len() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return false;
        }
        match stream.read(&mut found[length..]) {
            Ok(count @ 1..) => length += count,
            _ => return false,
        }
    }
    found == secret.as_bytes()
}

/// Returns a secret that no other program sends.
pub(crate) fn secret() -> String {
    use std::hash::{BuildHasher, RandomState};
    (0..4).map(|n| format!("{:016x}", RandomState::new().hash_one(n))).collect()
}

/// The random ID that this machine's kernel chose at boot. Empty if unknown.
pub(crate) fn boot() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_answers_with_the_secret_alone_and_only_while_the_door_is_open() {
        let secret = secret();
        let door = Door::open(secret.clone()).expect("a door");
        let (ip, port) = (IpAddr::V4(Ipv4Addr::LOCALHOST), door.port());
        assert!(is_door(ip, port, &secret));
        assert!(!is_door(ip, port, &super::secret()));
        assert_eq!(first(&[], port, &secret), Some(ip));
        drop(door);
        assert!(!is_door(ip, port, &secret));
    }
}
