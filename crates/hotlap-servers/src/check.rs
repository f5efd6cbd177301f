//! Checks servers: builds each, starts it, verifies it against each of its contracts over each of
//! its protocols, and stops it; one row per server.
//!
//! This is the catalogue's test, and the first command that a contributor runs. Failures are states
//! of a row rather than errors, so one server never keeps the others from being checked.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotlap_load::plan::{Endpoint, Target, Tls};

use crate::build::{self, BuildError, Builder, MissingToolchain, Unready};
use crate::catalogue::{CatalogueServer, SpokenProtocol};
use crate::contract::{Ask, Contract, Exchange, Name};
use crate::infer;
use crate::launch::{Certificate, Counts, LINES_LIMIT, Launch, LogLines, ServerFailure};
use crate::machine::{self, Network};
use crate::running::HOST;
use crate::running::{LocalHost, LocalServer, RunningServer, ServerState, StartOrder, Up};
use crate::verify::client::Wire;
use crate::verify::{Check, Findings, LIMIT, PAUSE, Requirements, Verifier, verify};

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// Number of requests whose side effects are counted.
const COUNTED: u32 = 50;

/// A log that has not grown for this long is complete.
const SETTLED: Duration = Duration::from_millis(200);

/// Checks servers.
#[derive(Clone, Copy)]
pub struct Checker<'a> {
    /// Builds the servers.
    pub builder: Builder<'a>,
    /// The folder for the servers' logs.
    pub logs: &'a Path,
    /// Time limit from a server's start to its first response.
    pub start_limit: Duration,
}

/// The result for one server.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedServer {
    /// Its id, or the command.
    pub id: String,
    /// The outcome.
    pub outcome: CheckOutcome,
    /// Its version, as it reports it. Empty if unknown.
    pub version: String,
    /// Time from its start to its first response. 0 if there was none.
    pub ready: Duration,
    /// Resident memory of its whole tree before any load, in bytes. 0 if unknown.
    pub rss_bytes: u64,
    /// The findings for each contract over each protocol, as far as they came.
    pub reports: Vec<ContractReport>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// The findings for a contract over a protocol.
#[derive(Debug, Clone, PartialEq)]
pub struct ContractReport {
    /// The contract. `None`: an inferred one.
    pub contract: Option<Name>,
    /// The protocol.
    pub protocol: SpokenProtocol,
    /// The findings.
    pub findings: Findings,
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq)]
pub enum CheckOutcome {
    /// The server may be measured.
    Passed,
    /// Its toolchain is missing.
    Skipped(MissingToolchain),
    /// It could not be built.
    Unbuilt(BuildError),
    /// It did not start, or did not keep running.
    ServerFailure(ServerFailure),
    /// It gave wrong responses. See its findings.
    Failed,
}

impl CheckedServer {
    fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            outcome: CheckOutcome::Passed,
            version: String::new(),
            ready: Duration::ZERO,
            rss_bytes: 0,
            reports: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Conformance checks of the first contract: passed, and total.
    pub fn conformance(&self) -> (u32, u32) {
        self.reports.first().map_or((0, 0), |report| report.findings.conformance_count())
    }

    /// The conformance checks of the first contract that failed.
    pub fn unmet(&self) -> impl Iterator<Item = &Check> {
        let checks = self.reports.first().into_iter().flat_map(|r| &r.findings.conformance);
        checks.filter(|check| !check.pass)
    }

    /// The required checks that failed, each with the report that has it.
    pub fn failures(&self) -> impl Iterator<Item = (&ContractReport, &Check)> {
        self.reports
            .iter()
            .flat_map(|report| report.findings.failures().map(move |check| (report, check)))
    }

    /// Whether its responses over a protocol were right. `None` if that was not checked.
    pub fn passed_over(&self, protocol: SpokenProtocol) -> Option<bool> {
        let mut over = self.reports.iter().filter(|report| report.protocol == protocol).peekable();
        over.peek()?;
        Some(over.all(|report| report.findings.passed()))
    }
}

impl Checker<'_> {
    /// Checks many servers, `at_a_time` of them at a time, and calls `on` with each row as it
    /// comes, from any thread. Rows are in the order of the servers. After an interrupt, some are
    /// missing.
    pub fn check_all(
        &self,
        servers: &[&CatalogueServer],
        at_a_time: usize,
        on: &(dyn Fn(&CheckedServer) + Sync),
    ) -> Vec<CheckedServer> {
        // Variants of one build run in one folder, so those whose lines are counted are checked in
        // turn.
        let counted = Mutex::new(());
        let numbered: Vec<_> = servers.iter().enumerate().collect();
        let rows = build::map(&numbered, at_a_time, |(number, server)| {
            if self.builder.stop.load(Ordering::Relaxed) {
                return None;
            }
            let alone = server.counts.as_ref().map(|_| counted.lock());
            let row = self.check(*number, server);
            drop(alone);
            on(&row);
            Some(row)
        });
        rows.into_iter().flatten().collect()
    }

    /// Checks a server of the catalogue against each of its contracts, over each of its protocols.
    /// Its log is named after `number`.
    pub fn check(&self, number: usize, server: &CatalogueServer) -> CheckedServer {
        let mut row = CheckedServer::new(&server.id);
        let built = match self.builder.build(server) {
            Ok(built) => built,
            Err(Unready::Absent(absence)) => {
                return CheckedServer { outcome: CheckOutcome::Skipped(absence), ..row };
            }
            Err(Unready::Failed(error)) => {
                return CheckedServer { outcome: CheckOutcome::Unbuilt(error), ..row };
            }
        };
        row.version.clone_from(&built.version);
        let contracts: Vec<Contract> =
            server.contracts.iter().map(|name| Contract::of(*name, server.api.as_ref())).collect();
        let requirements =
            Requirements::Catalogue { kind: server.kind, keep_alive: server.keep_alive };
        let counts = server.counts.as_ref();
        let (over_tls, others): (Vec<_>, Vec<_>) =
            server.protocols.iter().partition(|p| p.is_tls());
        for protocols in [others, over_tls].into_iter().filter(|protocols| !protocols.is_empty()) {
            let launch = match self.launch(built.launch(server), &protocols) {
                Ok(launch) => launch,
                Err(failure) => {
                    row.outcome = CheckOutcome::ServerFailure(failure);
                    break;
                }
            };
            let known = ToCheck {
                launch,
                contracts: &contracts,
                protocols: &protocols,
                requirements,
                counts,
            };
            self.start_and_verify(&mut row, number, known);
            if row.outcome != CheckOutcome::Passed {
                break;
            }
        }
        row
    }

    /// With a certificate, if these protocols run over TLS.
    fn launch(
        &self,
        launch: Launch,
        protocols: &[SpokenProtocol],
    ) -> Result<Launch, ServerFailure> {
        if !protocols.iter().all(|protocol| protocol.is_tls()) {
            return Ok(launch);
        }
        let certificate = Certificate::kept_in(&self.builder.cache.join(Certificate::FOLDER));
        let certificate = certificate.map_err(|error| ServerFailure {
            phase: "start".to_owned(),
            cause: error.to_string(),
            log_tail: Vec::new(),
            remedy: "set HOTLAP_CACHE to a writable folder".to_owned(),
        })?;
        Ok(launch.with_certificate(&certificate, Tls::with(HOST.to_owned())))
    }

    /// Checks a user's command against its own first response. Its log is named after `number`.
    pub fn check_command(
        &self,
        number: usize,
        name: &str,
        launch: Launch,
        ask: &Ask,
    ) -> CheckedServer {
        let mut row = CheckedServer::new(name);
        let custom = ToCheck {
            launch,
            contracts: &[Contract::custom(ask)],
            protocols: &[SpokenProtocol::Http1],
            requirements: Requirements::Custom,
            counts: None,
        };
        self.start_and_verify(&mut row, number, custom);
        row
    }

    /// Checks a server that is already running. Set `rude` only if it is the user's own.
    pub fn check_running(
        &self,
        name: &str,
        target: &Target,
        host: &str,
        ask: &Ask,
        rude: bool,
    ) -> CheckedServer {
        let mut row = CheckedServer::new(name);
        let contracts = [Contract::custom(ask)];
        self.verify_contracts(&mut row, target, host, &contracts, Requirements::Custom, rude);
        row
    }

    fn start_and_verify(&self, row: &mut CheckedServer, number: usize, server: ToCheck<'_>) {
        let ToCheck { contracts, protocols, requirements, .. } = server;
        let first = row.reports.len();
        let mut up = match self.start(number, &server) {
            Ok(up) => up,
            Err(failure) => {
                row.outcome = CheckOutcome::ServerFailure(failure);
                return;
            }
        };
        row.notes.append(&mut up.notes);
        // Another start, with a certificate, is not the one to report.
        if row.ready.is_zero() {
            row.ready = up.ready;
            row.rss_bytes = up.server.resident().map_or(0, |memory| memory.rss_bytes);
        }
        for protocol in protocols {
            let target = Target { protocol: protocol.version(), ..up.target.clone() };
            self.verify_contracts(row, &target, HOST, contracts, requirements, true);
        }
        let mut checks = Vec::new();
        if requirements != Requirements::Custom {
            checks.push(listens_at(&up, network(requirements).bind));
        }
        let is_right = row.outcome == CheckOutcome::Passed && checks.iter().all(|check| check.pass);
        if let (Some(counts), Some(lines), true) = (server.counts, &mut up.server.lines, is_right) {
            let outcome = side_effect(
                &up.target,
                &contracts[0].exchanges[0],
                lines,
                counts,
                self.builder.stop,
            );
            checks.push(Check {
                name: "side effect".to_owned(),
                expected: format!("{} lines per request in {}", counts.per_request, counts.file),
                pass: outcome.is_ok(),
                got: outcome.err().unwrap_or_default(),
            });
        }
        if !checks.iter().all(|check| check.pass) {
            row.outcome = CheckOutcome::Failed;
        }
        if let Some(report) = row.reports.get_mut(first) {
            report.findings.required.append(&mut checks);
        }
        stop(row, up.server);
    }

    fn start(&self, number: usize, server: &ToCheck<'_>) -> Result<Up<LocalServer>, ServerFailure> {
        let host = LocalHost {
            supervisor: self.builder.supervisor.clone(),
            logs: self.logs.to_owned(),
            network: network(server.requirements),
            database: None,
        };
        let order = StartOrder {
            number,
            launch: server.launch.clone(),
            counts: server.counts.cloned(),
            requirements: server.requirements,
            first: server.contracts[0].exchanges[0].clone(),
            protocol: server.protocols[0].version(),
            accepts_wrong: true,
            cpus: machine::split_here(None).of_server(None).0,
            // Nothing is timed here, so the server may use every core.
            cores: Vec::new(),
            all_cores: Vec::new(),
            limit: self.start_limit,
            counters: false,
            observes: false,
        };
        host.start_here(&order, self.builder.stop)
    }

    /// Verifies a running server against its contracts over the target's protocol, one after the
    /// other.
    fn verify_contracts(
        &self,
        row: &mut CheckedServer,
        target: &Target,
        host: &str,
        contracts: &[Contract],
        requirements: Requirements,
        rude: bool,
    ) {
        for mut contract in contracts.iter().cloned() {
            if contract.name.is_none() {
                match infer::infer(target, host, LIMIT, &contract, self.builder.stop) {
                    Ok(inferred) => {
                        contract = inferred.contract;
                        row.notes.extend(inferred.notes);
                    }
                    Err(cause) => {
                        row.outcome = CheckOutcome::ServerFailure(ServerFailure {
                            phase: "verify".to_owned(),
                            cause,
                            log_tail: Vec::new(),
                            remedy: "start it by hand and try it with curl".to_owned(),
                        });
                        return;
                    }
                }
            }
            let findings = verify(&Verifier {
                target,
                host,
                contract: &contract,
                requirements,
                rude,
                limit: LIMIT,
                pause: PAUSE,
                stop: self.builder.stop,
            });
            if self.builder.stop.load(Ordering::Relaxed) {
                return;
            }
            if !findings.passed() {
                row.outcome = CheckOutcome::Failed;
            }
            let protocol = SpokenProtocol::of(target.protocol, target.tls.is_some());
            row.reports.push(ContractReport { contract: contract.name, protocol, findings });
        }
    }
}

/// A server that is ready to be started, and what to check.
struct ToCheck<'a> {
    launch: Launch,
    contracts: &'a [Contract],
    /// All of them with TLS, or all of them without.
    protocols: &'a [SpokenProtocol],
    requirements: Requirements,
    /// The side effect to count.
    counts: Option<&'a Counts>,
}

/// Stops a server and records how that went.
fn stop(row: &mut CheckedServer, mut server: LocalServer) {
    if row.outcome != CheckOutcome::Passed {
        if let ServerState::Ended(exit) = server.state() {
            row.notes.push(format!("it {exit} during the check"));
        }
        let log_tail = server.tail();
        if !log_tail.is_empty() {
            row.notes.push(format!("its last lines: {}", log_tail.join("\n")));
        }
    }
    let Some(stopped) = Box::new(server).stop(GRACE) else { return };
    if stopped.ignored_sigterm {
        row.notes.push(format!("it ignored SIGTERM for {} s and was killed", GRACE.as_secs()));
    }
    if !stopped.left_behind.is_empty() {
        let left = stopped.left_behind.join(", ");
        row.notes.push(format!("it left child processes behind: {left}"));
    }
    if !stopped.survivors.is_empty() {
        let survivors = stopped.survivors.join(", ");
        row.notes.push(format!("these processes survived SIGKILL: {survivors}"));
    }
}

/// Where a server is told to listen. One of the catalogue gets another address than the usual one,
/// so that it fails if it ignores `HOST`. Only Linux has all of 127.0.0.0/8.
fn network(requirements: Requirements) -> Network {
    match requirements {
        Requirements::Catalogue { .. } if cfg!(target_os = "linux") => {
            Network::only(Ipv4Addr::new(127, 0, 0, 2).into())
        }
        _ => Network::loopback(),
    }
}

/// Checks that a server listens at `HOST` and nowhere else. Only the port that answers counts:
/// its processes may have sockets between them.
fn listens_at(up: &Up<LocalServer>, host: IpAddr) -> Check {
    let port = match &up.target.endpoint {
        Endpoint::Tcp(address) => Some(address.port()),
        Endpoint::Unix(_) => None,
    };
    let is_wrong = |at: &SocketAddr| Some(at.port()) == port && at.ip() != host;
    let others: BTreeSet<SocketAddr> = up.server.sockets().into_iter().filter(is_wrong).collect();
    Check {
        name: "address".to_owned(),
        expected: format!("a socket at $HOST ({host}) alone"),
        pass: others.is_empty(),
        got: others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// Sends a known number of requests and counts the lines that they add to a file.
fn side_effect(
    target: &Target,
    exchange: &Exchange,
    lines: &mut LogLines,
    counts: &Counts,
    stop: &AtomicBool,
) -> Result<(), String> {
    let before = lines.settled(SETTLED);
    for _ in 0..COUNTED {
        Wire::open(target, LIMIT, stop)?.ask(exchange, HOST)?;
    }
    let expected = u64::from(COUNTED) * u64::from(counts.per_request);
    lines.reach(before + expected, LINES_LIMIT);
    match lines.settled(SETTLED) - before {
        counted if counted == expected => Ok(()),
        counted => Err(format!("{counted} lines for {COUNTED} requests")),
    }
}
