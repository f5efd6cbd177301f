//! Finds the address at which this machine reaches the servers of another.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long one address may take to answer.
const LIMIT: Duration = Duration::from_secs(2);

/// The first of the addresses at which the agent's door answers with the secret. Loopback comes
/// first: it answers if the agent shares this machine's network, and every server listens there.
pub(crate) fn first(addresses: &[IpAddr], port: u16, secret: &str) -> Option<IpAddr> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut all = std::iter::once(loopback).chain(addresses.iter().copied());
    all.find(|address| answers(SocketAddr::new(*address, port), secret))
}

/// Whether the agent's door answers at this address. Another host may have the same private
/// address, and another program the same port, so the secret is compared.
pub(crate) fn answers(address: SocketAddr, secret: &str) -> bool {
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

/// A secret that no other program sends.
pub(crate) fn secret() -> String {
    use std::hash::{BuildHasher, RandomState};
    (0..4).map(|n| format!("{:016x}", RandomState::new().hash_one(n))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::door::Door;
    use super::*;

    #[test]
    fn an_address_answers_with_the_secret_alone_and_only_while_the_door_is_open() {
        let secret = secret();
        let door = Door::open(secret.clone()).expect("a door");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, door.port()));
        assert!(answers(address, &secret));
        assert!(!answers(address, &super::secret()));
        assert_eq!(first(&[], door.port(), &secret), Some(address.ip()));
        drop(door);
        assert!(!answers(address, &secret));
    }
}
