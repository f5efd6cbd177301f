//! From a command to a server that answers.
//!
//! A port is chosen, the command is started with it, and its tree is watched until the first
//! answer: a server may die meanwhile, never listen, or listen somewhere else.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotlap_load::plan::{Endpoint, Target};

use crate::counters::Counters;
use crate::entrant::Launch;
use crate::owner::{Owner, owner};
use crate::process::{Exit, Process, Setting, Standby, Warden};
use crate::sample::Sampler;
use crate::track::Retired;
use crate::tree::{self, Listening};

/// How a server is to be started.
#[derive(Debug)]
pub struct Boot<'a> {
    /// Its command.
    pub launch: &'a Launch,
    /// How many cores are its own, for `CPUS`.
    pub cpus: usize,
    /// The cores that it is pinned to; none: not pinned.
    pub cores: &'a [usize],
    /// How its warden is started.
    pub warden: &'a Warden,
    /// Where what it prints goes.
    pub log: PathBuf,
    /// How long it may take until it answers.
    pub limit: Duration,
    /// Whether hardware counters are attached.
    pub counters: bool,
    /// Whether it may listen elsewhere than on `PORT`: somebody's command.
    pub elsewhere: bool,
    /// Set when the user has had enough.
    pub stop: &'a AtomicBool,
}

/// A server that answers.
#[derive(Debug)]
pub struct Booted {
    /// Its process.
    pub process: Process,
    /// Its hardware counters, off; or why there are none.
    pub counters: Result<Counters, String>,
    /// Where it answers.
    pub target: Target,
    /// Whose process answers there.
    pub owner: Owner,
    /// What samples it; none where it is not known which processes answer.
    pub sampler: Option<Sampler>,
    /// From its start to its first answer.
    pub ready: Duration,
    /// What should be told.
    pub notes: Vec<String>,
}

/// Between two tries to reach a server that starts.
const TRY_AGAIN: Duration = Duration::from_millis(2);

/// Between two looks at where a server listens, which cost more.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How long a server may give wrong answers at first: some accept before they are ready.
const UNREADY: Duration = Duration::from_secs(3);

/// How many of a server's last lines are worth showing.
pub const LAST_LINES: usize = 12;

/// Where a server may listen that was told a port, in the order in which it is tried.
const LOOPBACKS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

impl Boot<'_> {
    /// Starts it and waits until `answers` says so of the place where it listens.
    ///
    /// # Errors
    /// What went wrong, its last words, and the cure.
    pub fn run(
        &self,
        answers: &mut dyn FnMut(&Target) -> Result<(), String>,
    ) -> Result<Booted, Retired> {
        let port = free_port().map_err(|e| self.failed(&format!("no free port: {e}"), ""))?;
        let (argv, env) = self.filled(port);
        let setting = Setting {
            argv,
            env,
            cwd: self.launch.cwd.clone(),
            cpus: self.cores.to_vec(),
            log: self.log.clone(),
        };
        let failed = |e: crate::process::StartError| self.failed(&e.to_string(), "");
        let standby = Standby::new(&setting, self.warden).map_err(failed)?;
        let counters = match self.counters {
            true => Counters::open(&standby).map_err(|r| format!("{}; {}", r.why, r.cure)),
            false => Err("not asked for".to_owned()),
        };
        let began = Instant::now();
        let mut process = standby.go().map_err(failed)?;
        let target = self.await_answer(&mut process, port, began, answers)?;
        let ready = began.elapsed();
        let mut notes = process.notes().to_vec();
        if let Endpoint::Tcp(address) = &target.endpoint
            && address.port() != port
        {
            notes.push(format!("it listens on port {}, not on PORT", address.port()));
        }
        let owner = owner(&target.endpoint, &process.members().unwrap_or_default());
        notes.extend(owner.note());
        let sampler = Sampler::of(&owner, Some(&process));
        Ok(Booted { process, counters, target, owner, sampler, ready, notes })
    }

    fn await_answer(
        &self,
        process: &mut Process,
        port: u16,
        began: Instant,
        answers: &mut dyn FnMut(&Target) -> Result<(), String>,
    ) -> Result<Target, Retired> {
        let mut addresses: Vec<SocketAddr> =
            LOOPBACKS.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        let (mut looked, mut accepted) = (began, None);
        let mut answer = String::new();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(self.failed("interrupted", ""));
            }
            for address in &addresses {
                if TcpStream::connect_timeout(address, self.limit).is_err() {
                    continue;
                }
                accepted.get_or_insert_with(Instant::now);
                let target = Target { endpoint: Endpoint::Tcp(*address), tls: None };
                match answers(&target) {
                    Ok(()) => return Ok(target),
                    Err(what) => answer = what,
                }
            }
            // A daemon leaves its first process; as long as something of it runs, it may answer.
            if let Some(exit) = process.exited()
                && (exit != Exit::Code(0) || process.members().is_ok_and(|m| m.is_empty()))
            {
                let cause = format!("the server {} before it answered", ending(exit));
                return Err(self.out(process, &cause, "run its command by hand to see why"));
            }
            if looked.elapsed() > LOOK_AGAIN && accepted.is_none() {
                looked = Instant::now();
                if let Some(elsewhere) = listening_elsewhere(process, port) {
                    if self.elsewhere {
                        addresses = reachable(elsewhere);
                        continue;
                    }
                    if began.elapsed() > UNREADY {
                        let cause = format!("it listens on {elsewhere}, not on PORT ({port})");
                        return Err(self.out(process, &cause, "read PORT from the environment"));
                    }
                }
            }
            if accepted.is_some_and(|at| at.elapsed() > UNREADY) {
                let cause = format!("it does not answer as it must: {answer}");
                return Err(self.out(process, &cause, "hotlap check shows what it answers"));
            }
            if began.elapsed() > self.limit {
                let cause = format!("it does not listen after {} s", self.limit.as_secs());
                let cure = "it must listen on the port that PORT names, on loopback";
                return Err(self.out(process, &cause, cure));
            }
            std::thread::sleep(TRY_AGAIN);
        }
    }

    /// Command and environment, with the port and the number of cores put in.
    fn filled(&self, port: u16) -> (Vec<String>, BTreeMap<String, String>) {
        let (port, cpus) = (port.to_string(), self.cpus.to_string());
        let argv = self.launch.argv.iter().map(|w| fill(w, &port, &cpus)).collect();
        let env = self.launch.env.iter().map(|(k, v)| (k.clone(), fill(v, &port, &cpus)));
        let own = [("PORT".to_owned(), port.clone()), ("CPUS".to_owned(), cpus.clone())];
        (argv, env.chain(own).collect())
    }

    fn failed(&self, cause: &str, cure: &str) -> Retired {
        Retired {
            phase: "start".to_owned(),
            cause: cause.to_owned(),
            last_words: Vec::new(),
            cure: cure.to_owned(),
        }
    }

    fn out(&self, process: &Process, cause: &str, cure: &str) -> Retired {
        Retired { last_words: process.tail(LAST_LINES), ..self.failed(cause, cure) }
    }
}

/// How a process ended, as a verb.
#[must_use]
pub fn ending(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exited with code {code}"),
        Exit::Signal(signal) => format!("was ended by signal {signal}"),
        Exit::Lost => "was lost together with its warden".to_owned(),
    }
}

/// A port of loopback that is free now.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Where the server's tree listens, if not on `port`.
fn listening_elsewhere(process: &Process, port: u16) -> Option<SocketAddr> {
    let pids: Vec<u32> = process.members().ok()?.iter().map(|m| m.pid).collect();
    let sockets = tree::listening(&pids).ok()?;
    let mut addresses = sockets.iter().filter_map(|l| match l {
        Listening::Tcp(address) => Some(*address),
        Listening::Unix(_) => None,
    });
    addresses.find(|a| a.port() != port)
}

/// The addresses by which a listening socket is reached from here.
fn reachable(listening: SocketAddr) -> Vec<SocketAddr> {
    if listening.ip().is_unspecified() {
        LOOPBACKS.iter().map(|ip| SocketAddr::new(*ip, listening.port())).collect()
    } else {
        vec![listening]
    }
}

/// A word of a command, with the port and the number of cores put in.
fn fill(word: &str, port: &str, cpus: &str) -> String {
    let mut word = word.to_owned();
    for (name, value) in [("PORT", port), ("CPUS", cpus)] {
        let braces = format!("{{{}}}", name.to_lowercase());
        for form in [format!("${{{name}}}"), format!("${name}"), braces] {
            word = word.replace(&form, value);
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_and_cpus_are_put_in_in_every_form() {
        for word in ["--port=$PORT", "--port=${PORT}", "--port={port}"] {
            assert_eq!(fill(word, "8080", "2"), "--port=8080");
        }
        assert_eq!(fill("$CPUS:{cpus}:${CPUS}", "1", "2"), "2:2:2");
        assert_eq!(fill("$HOME {x}", "1", "2"), "$HOME {x}");
    }

    #[test]
    fn a_socket_on_every_address_is_reached_over_loopback() {
        assert_eq!(
            reachable("0.0.0.0:80".parse().unwrap()),
            ["127.0.0.1:80".parse().unwrap(), "[::1]:80".parse().unwrap()]
        );
        assert_eq!(reachable("127.0.0.2:80".parse().unwrap()).len(), 1);
    }
}
