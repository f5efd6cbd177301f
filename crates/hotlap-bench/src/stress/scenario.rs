//! Scenarios: attacks on a server, as data.
//!
//! Every attack has a limited number of clients. Clients that abuse HTTP send at a modest rate. If
//! normal clients then lose throughput, the likely cause is the server's design rather than an
//! overloaded machine.

use std::time::Duration;

use hotlap_load::plan::Reuse;
use serde::{Deserialize, Serialize};

use hotlap_servers::contract::Exchange;

/// An attack on a server, with its name and description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scenario {
    /// A short name, for tables and `--scenario`.
    pub name: String,
    /// What the attackers do, in one line.
    pub about: String,
    /// What the attackers do, as data.
    pub attack: Attack,
}

/// The load on the server in addition to its normal clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// More normal clients, in a closed loop.
    Load {
        /// The number of concurrent connections.
        connections: usize,
        /// The number of generator threads.
        threads: usize,
        /// Whether connections are kept alive, or each request has a new connection.
        reuse: Reuse,
    },
    /// Clients that violate or abuse HTTP.
    Rude(Rude),
}

/// Clients that violate or abuse HTTP, all in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rude {
    /// The number of concurrent connections.
    pub clients: usize,
    /// What each client sends.
    pub says: Says,
    /// Time between two bytes of a slow client, or between two connections of a client that
    /// reconnects.
    pub pause_ms: u64,
    /// How long a client keeps a connection open before it closes the connection and reconnects.
    /// `None`: until the scenario ends.
    pub patience_ms: Option<u64>,
    /// Whether the client resets the connection at the first byte of a response.
    pub resets: bool,
}

/// What an attacker sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Says {
    /// No bytes at all.
    Nothing,
    /// This many correct requests at once.
    Requests(usize),
    /// The first half of a correct request.
    Half,
    /// A correct request, one byte at a time.
    SlowHead,
    /// The head of a POST at once, then its body one byte at a time.
    SlowBody,
    /// Invalid HTTP. Clients take turns: a TLS client hello, zeros, a word, a malformed header.
    Garbage,
    /// A correct request with a header of this many bytes.
    Header(usize),
}

/// The bytes that an attacker sends: first the bytes sent at once, then the bytes sent one by one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Message {
    pub(super) at_once: Vec<u8>,
    pub(super) slowly: Vec<u8>,
}

/// The Content-Length that a slow client announces, which is more than the client ever sends.
const SLOW_BODY: usize = 1_000;

impl Scenario {
    /// Returns all scenarios in the order in which they run. Scenarios that most servers survive
    /// come first.
    pub fn all() -> Vec<Self> {
        let load = |connections, threads, reuse| Attack::Load { connections, threads, reuse };
        let rude = |clients, says, pause_ms, patience_ms| {
            Attack::Rude(Rude { clients, says, pause_ms, patience_ms, resets: false })
        };
        let resets = Attack::Rude(Rude {
            clients: 10,
            says: Says::Requests(10),
            pause_ms: 200,
            patience_ms: Some(500),
            resets: true,
        });
        let all = [
            (
                "overload",
                "200 connections from 8 generator threads",
                load(200, 8, Reuse::KeepAlive),
            ),
            ("churn", "32 clients with a new connection each time", load(32, 1, Reuse::Close)),
            (
                "slow headers",
                "100 clients that send a request one byte at a time",
                rude(100, Says::SlowHead, 100, None),
            ),
            (
                "slow bodies",
                "100 clients that send a body one byte at a time",
                rude(100, Says::SlowBody, 100, None),
            ),
            (
                "half-open",
                "200 clients that send half a request and wait",
                rude(200, Says::Half, 0, None),
            ),
            (
                "resets",
                "10 clients that send ten requests at once, then reset the connection, repeatedly",
                resets,
            ),
            (
                "garbage",
                "40 clients that send invalid HTTP, repeatedly",
                rude(40, Says::Garbage, 100, Some(500)),
            ),
            (
                "64 KiB header",
                "10 clients that send a 64 KiB header, repeatedly",
                rude(10, Says::Header(64 << 10), 200, Some(500)),
            ),
            (
                "1 MiB header",
                "10 clients that send a 1 MiB header, repeatedly",
                rude(10, Says::Header(1 << 20), 200, Some(500)),
            ),
            (
                "2,000 idle",
                "2,000 connections that send nothing",
                rude(2_000, Says::Nothing, 0, None),
            ),
        ];
        let scenario = |(name, about, attack): (&str, &str, Attack)| Self {
            name: name.to_owned(),
            about: about.to_owned(),
            attack,
        };
        all.into_iter().map(scenario).collect()
    }

    /// The number of sockets that the scenario takes on the clients' side.
    pub fn connections(&self) -> usize {
        match &self.attack {
            Attack::Load { connections, .. } => *connections,
            Attack::Rude(rude) => rude.clients,
        }
    }
}

impl Says {
    /// Returns the messages that the clients send. Successive clients use them in turn.
    pub(super) fn messages(self, exchange: &Exchange, host: &str) -> Vec<Message> {
        let right = exchange.bytes(host);
        let at_once = |at_once: Vec<u8>| Message { at_once, slowly: Vec::new() };
        match self {
            Self::Nothing => vec![Message::default()],
            Self::Requests(count) => vec![at_once(right.repeat(count))],
            Self::Half => vec![at_once(right[..right.len() / 2].to_vec())],
            Self::SlowHead => vec![Message { at_once: Vec::new(), slowly: right }],
            Self::SlowBody => vec![Message {
                at_once: format!(
                    "POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
                     Content-Length: {SLOW_BODY}\r\n\r\n",
                    exchange.path
                )
                .into_bytes(),
                slowly: vec![b' '; SLOW_BODY - 1],
            }],
            Self::Garbage => vec![
                // The first bytes of a TLS 1.2 ClientHello (RFC 5246 section 7.4.1.2), then zeros.
                at_once([&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &[0; 506]].concat()),
                at_once(vec![0; 1024]),
                at_once(b"HELO there\r\n\r\n".to_vec()),
                at_once(format!("GET / HTTP/1.1\r\nHost: {host}\r\n: \x01\0\r\n\r\n").into_bytes()),
            ],
            Self::Header(bytes) => {
                let padding = "x".repeat(bytes);
                vec![at_once(exchange.bytes_with(host, &[("X-Padding", &padding)]))]
            }
        }
    }
}

impl Rude {
    pub(super) fn pause(&self) -> Duration {
        Duration::from_millis(self.pause_ms)
    }

    pub(super) fn patience(&self) -> Option<Duration> {
        self.patience_ms.map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use hotlap_servers::contract::{Contract, Name};

    use super::*;

    #[test]
    fn every_scenario_is_bounded_and_has_a_unique_name() {
        let all = Scenario::all();
        for scenario in &all {
            assert!(scenario.connections() <= 2_000, "{}", scenario.name);
            assert_eq!(all.iter().filter(|s| s.name == scenario.name).count(), 1);
            let Attack::Rude(rude) = &scenario.attack else { continue };
            // Clients reconnect only after a pause. Without a pause, the attack would be a flood.
            assert!(rude.patience_ms.is_none() || rude.pause_ms >= 100, "{}", scenario.name);
        }
    }

    #[test]
    fn attackers_send_valid_requests_only_on_purpose() {
        let exchange = &Contract::of(Name::Hello, None).exchanges[0];
        let of = |says: Says| says.messages(exchange, "test");
        let right = exchange.bytes("test");
        assert_eq!(of(Says::Half)[0].at_once, right[..right.len() / 2]);
        assert_eq!(of(Says::SlowHead)[0].slowly, right);
        assert_eq!(of(Says::Requests(3))[0].at_once.len(), 3 * right.len());
        assert!(of(Says::Header(64 << 10))[0].at_once.len() > 64 << 10);
        // The client sends one byte less than announced, so the request is never complete.
        assert_eq!(of(Says::SlowBody)[0].slowly.len(), 999);
        assert!(of(Says::Garbage).iter().all(|m| !m.at_once.starts_with(b"GET / HTTP/1.1\r\n\r")));
    }
}
