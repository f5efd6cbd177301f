//! The addresses of servers: on the loopback interface, or where other hosts reach them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use serde::{Deserialize, Serialize};

/// Where the servers of a run listen, and where hotlap checks that they are up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The address to listen on, which is `HOST` in a server's environment.
    pub bind: IpAddr,
    /// The addresses at which the servers' own machine reaches them, in the order in which they are
    /// tried.
    pub reach: Vec<IpAddr>,
}

/// The addresses of the loopback interface.
const LOOPBACKS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

impl Network {
    /// Returns the network for a generator and servers on one machine.
    pub fn loopback() -> Self {
        Self { bind: LOOPBACKS[0], reach: LOOPBACKS.to_vec() }
    }

    /// Returns the network for a generator that reaches the servers' machine at this address. If
    /// the machine does not have that address (a router may translate it), servers listen on all
    /// addresses.
    pub fn at(address: IpAddr, is_own: bool) -> Self {
        match (address, is_own) {
            _ if address.is_loopback() => Self::loopback(),
            (_, true) => Self::only(address),
            (IpAddr::V4(_), false) => {
                Self { bind: Ipv4Addr::UNSPECIFIED.into(), reach: LOOPBACKS.to_vec() }
            }
            (IpAddr::V6(_), false) => {
                Self { bind: Ipv6Addr::UNSPECIFIED.into(), reach: LOOPBACKS.to_vec() }
            }
        }
    }

    /// Returns the network for servers that listen at this address only.
    pub fn only(address: IpAddr) -> Self {
        Self { bind: address, reach: vec![address] }
    }

    /// Returns whether other hosts must reach the servers.
    pub fn is_open(&self) -> bool {
        !self.bind.is_loopback()
    }

    /// Returns whether the generator reaches a server that listens at this address. A machine
    /// reaches itself at all of its addresses. A translated address leads to any address but
    /// loopback.
    pub fn leads_to(&self, listening: IpAddr) -> bool {
        if self.bind.is_loopback() || listening.is_unspecified() {
            return true;
        }
        let is_translated = self.bind.is_unspecified();
        if is_translated { !listening.is_loopback() } else { listening == self.bind }
    }
}

/// Returns this machine's addresses in the system's order. Addresses of the loopback interface, and
/// addresses that are valid on one link only, are left out.
#[cfg(target_os = "linux")]
pub fn addresses() -> Vec<IpAddr> {
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let mut all = parse_v4(&read("/proc/net/fib_trie"));
    all.extend(parse_v6(&read("/proc/net/if_inet6")));
    all
}

/// Returns no addresses, because they are unknown on this system.
#[cfg(not(target_os = "linux"))]
pub fn addresses() -> Vec<IpAddr> {
    Vec::new()
}

/// Parses the addresses in `/proc/net/fib_trie`. Each address is in a line `|-- ADDRESS`, with
/// `/32 host LOCAL` below it.
#[cfg(any(target_os = "linux", test))]
fn parse_v4(text: &str) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = last
            && !address.is_loopback()
            && !address.is_link_local()
            && !found.contains(&address.into())
        {
            found.push(address.into());
        }
    }
    found
}

/// Parses the addresses in `/proc/net/if_inet6`. A line has 32 hexadecimal digits, the interface's
/// number, the length of the prefix, and the scope. The scope is 00 for addresses that are valid
/// everywhere.
#[cfg(any(target_os = "linux", test))]
fn parse_v6(text: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let mut fields = line.split_whitespace();
        let (digits, scope) = (fields.next()?, fields.nth(2)?);
        let number = u128::from_str_radix(digits, 16).ok()?;
        (scope == "00").then_some(IpAddr::V6(Ipv6Addr::from(number)))
    };
    text.lines().filter_map(address).collect()
}

/// Returns a port that is free on an address.
pub(crate) fn free_port(address: IpAddr) -> io::Result<u16> {
    Ok(TcpListener::bind((address, 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_other_hosts_reach_are_found() {
        let trie = "
            Main:
              +-- 0.0.0.0/0 3 0 5
                 |-- 0.0.0.0
                    /0 universe UNICAST
            Local:
                 |-- 10.0.0.0
                    /24 link UNICAST
                 |-- 10.0.0.2
                    /32 host LOCAL
                 |-- 10.0.0.255
                    /32 link BROADCAST
                 |-- 127.0.0.1
                    /32 host LOCAL
                 |-- 169.254.1.1
                    /32 host LOCAL
                 |-- 10.0.0.2
                    /32 host LOCAL
        ";
        assert_eq!(parse_v4(trie), ["10.0.0.2".parse::<IpAddr>().unwrap()]);
        let inet6 = "fe80000000000000000000000000000a 02 40 20 80     eth0\n\
                     fd000000000000000000000000000002 02 40 00 80     eth0\n\
                     00000000000000000000000000000001 01 80 10 80       lo\n";
        assert_eq!(parse_v6(inet6), ["fd00::2".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn servers_listen_at_the_address_that_the_generator_uses_if_it_is_theirs() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let own = Network::at(ip("10.0.0.2"), true);
        assert_eq!(
            (own.bind, &own.reach[..], own.is_open()),
            (own.reach[0], &[own.bind][..], true)
        );
        let translated = Network::at(ip("203.0.113.7"), false);
        assert_eq!((translated.bind, translated.is_open()), (ip("0.0.0.0"), true));
        assert_eq!(Network::at(ip("fd00::2"), false).bind, ip("::"));
        assert!(!Network::at(ip("127.0.0.1"), true).is_open());
    }

    #[test]
    fn a_server_is_reached_at_its_host_at_all_addresses_or_where_the_network_leads() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let listening = ["0.0.0.0", "::", "10.0.0.2", "10.0.0.3", "127.0.0.1"].map(ip);
        let reached = |network: Network| listening.map(|at| network.leads_to(at));
        assert_eq!(reached(Network::at(ip("10.0.0.2"), true)), [true, true, true, false, false]);
        // The address that a router translates to is unknown, but it is not loopback.
        assert_eq!(reached(Network::at(ip("203.0.113.7"), false)), [true, true, true, true, false]);
        assert_eq!(reached(Network::loopback()), [true; 5]);
    }
}
