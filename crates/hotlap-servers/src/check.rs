//! Checks servers and returns one row per server. Each server is built, started, verified against
//! each of its contracts over each of its protocols, and stopped.
//!
//! `hotlap check` is the catalogue's test, and the first command that a contributor runs. A failure
//! is a state of a row rather than an error, so one failed server never prevents the checks of the
//! others.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hotlap_load::plan::{Endpoint, Target, Tls};

use crate::build::{self, BuildError, Builder, MissingToolchain, Unready};
use crate::catalogue::{CatalogueServer, SpokenProtocol};
use crate::contract::{Ask, Contract, Exchange, Name};
use crate::database::Database;
use crate::infer;
use crate::launch::{Certificate, Counts, LINES_LIMIT, Launch, LogLines, ServerFailure};
use crate::machine::{self, Network};
use crate::running::HOST;
use crate::running::{LocalHost, LocalServer, RunningServer, ServerState, StartOrder, Up};
use crate::verify::client::Wire;
use crate::verify::{Check, Findings, LIMIT, PAUSE, Requirements, Verifier, verify};

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// The number of requests that are sent to count their side effects.
const COUNTED: u32 = 50;

/// A log that has not grown for this long is complete.
const SETTLED: Duration = Duration::from_millis(200);

/// Checks servers of the catalogue, commands, and running servers.
#[derive(Clone, Copy)]
pub struct Checker<'a> {
    /// The builder of the servers.
    pub builder: Builder<'a>,
    /// The folder for the servers' logs.
    pub logs: &'a Path,
    /// The time limit from a server's start to its first response.
    pub start_limit: Duration,
    /// The contracts to check. Empty means all contracts of each server.
    pub contracts: &'a [Name],
    /// The database for servers whose contracts need one.
    pub database: Option<&'a Arc<Database>>,
}

/// The result for one server.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedServer {
    /// The id of a server in the catalogue, or the name of a command or URL.
    pub id: String,
    /// The outcome of the check.
    pub outcome: CheckOutcome,
    /// The version that the server or its toolchain reports. Empty if unknown.
    pub version: String,
    /// The time from the server's start to its first response. 0 if there was no response.
    pub ready: Duration,
    /// The resident memory of the whole process tree before any load, in bytes. 0 if unknown.
    pub rss_bytes: u64,
    /// The findings for each contract and protocol that was verified.
    pub reports: Vec<ContractReport>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The findings for one contract over one protocol.
#[derive(Debug, Clone, PartialEq)]
pub struct ContractReport {
    /// The contract. `None` if the contract was inferred.
    pub contract: Option<Name>,
    /// The protocol that the requests were sent over.
    pub protocol: SpokenProtocol,
    /// The results of all checks.
    pub findings: Findings,
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq)]
pub enum CheckOutcome {
    /// The server may be measured.
    Passed,
    /// The server's toolchain is missing.
    Skipped(MissingToolchain),
    /// The server could not be built.
    Unbuilt(BuildError),
    /// The server did not start, or its expected response cannot be inferred.
    ServerFailure(ServerFailure),
    /// A required check failed. The reports contain the findings.
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

    /// Returns how many conformance checks of the first report passed, and how many there are.
    pub fn conformance(&self) -> (u32, u32) {
        self.reports.first().map_or((0, 0), |report| report.findings.conformance_count())
    }

    /// Returns the failed conformance checks of the first report.
    pub fn unmet(&self) -> impl Iterator<Item = &Check> {
        let checks = self.reports.first().into_iter().flat_map(|r| &r.findings.conformance);
        checks.filter(|check| !check.pass)
    }

    /// Returns the required checks that failed, each with its report.
    pub fn failures(&self) -> impl Iterator<Item = (&ContractReport, &Check)> {
        self.reports
            .iter()
            .flat_map(|report| report.findings.failures().map(move |check| (report, check)))
    }

    /// Returns whether all required checks over `protocol` passed, or `None` if none ran.
    pub fn passed_over(&self, protocol: SpokenProtocol) -> Option<bool> {
        let mut over = self.reports.iter().filter(|report| report.protocol == protocol).peekable();
        over.peek()?;
        Some(over.all(|report| report.findings.passed()))
    }
}

impl Checker<'_> {
    /// Checks many servers, `at_a_time` of them at a time. Calls `on` with each row when the row is
    /// ready, from any thread. The rows are returned in the order of the servers. After an
    /// interrupt, some rows are missing.
    pub fn check_all(
        &self,
        servers: &[&CatalogueServer],
        at_a_time: usize,
        on: &(dyn Fn(&CheckedServer) + Sync),
    ) -> Vec<CheckedServer> {
        // Variants of one build share a folder. Servers whose log lines are counted are therefore
        // checked one at a time.
        let counted = Mutex::new(());
        let numbered: Vec<_> = servers.iter().enumerate().collect();
        let rows = build::map(&numbered, at_a_time, |(number, server)| {
            if self.builder.stop.load(Ordering::Relaxed) {
                return None;
            }
            let alone = server.counts.as_ref().map(|_| counted.lock());
            let row = self.check(*number, server);
            drop(alone);
            if self.builder.stop.load(Ordering::Relaxed) {
                return None;
            }
            on(&row);
            Some(row)
        });
        rows.into_iter().flatten().collect()
    }

    /// Checks a server of the catalogue against each of its contracts, over each of its protocols.
    /// The server's log is named after `number`.
    pub fn check(&self, number: usize, server: &CatalogueServer) -> CheckedServer {
        let mut row = CheckedServer::new(&server.id);
        if let (None, Err(absence)) = (self.database, build::probe_database(server)) {
            return CheckedServer { outcome: CheckOutcome::Skipped(absence), ..row };
        }
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
        let is_wanted = |name: &&Name| self.contracts.is_empty() || self.contracts.contains(name);
        let names = server.contracts.iter().filter(is_wanted);
        let contracts: Vec<Contract> =
            names.map(|name| Contract::of(*name, server.api.as_ref())).collect();
        let requirements =
            Requirements::Catalogue { kind: server.kind, keep_alive: server.keep_alive };
        let counts = server.counts.as_ref();
        let (over_tls, others): (Vec<_>, Vec<_>) =
            server.protocols.iter().partition(|p| p.is_tls());
        for protocols in [others, over_tls].into_iter().filter(|protocols| !protocols.is_empty()) {
            let launch = Launch { has_database: server.needs_database(), ..built.launch(server) };
            let launch = match self.launch(launch, &protocols) {
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

    /// Adds a certificate to the launch if all these protocols run over TLS.
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
            remedy: "remove that folder, or set HOTLAP_CACHE to a writable folder".to_owned(),
        })?;
        Ok(launch.with_certificate(&certificate, Tls::with(HOST.to_owned())))
    }

    /// Checks a user's command against its own first response. The command's log is named after
    /// `number`.
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

    /// Checks a server that is already running. Set `rude` only if the server is the user's own.
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
        let at = (target, host);
        self.verify_contracts(&mut row, None, at, &contracts, Requirements::Custom, rude);
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
        // Report only the first start. A second start, with a certificate, may follow.
        if row.ready.is_zero() {
            row.ready = up.ready;
            row.rss_bytes = up.server.resident().map_or(0, |memory| memory.rss_bytes);
        }
        for (number, protocol) in protocols.iter().enumerate() {
            let target = Target { protocol: protocol.version(), ..up.target.clone() };
            // The statements of a request do not depend on the protocol.
            let server = Some(&up.server).filter(|_| number == 0);
            self.verify_contracts(row, server, (&target, HOST), contracts, requirements, true);
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
                expected: match counts.per_request {
                    1 => format!("1 line per request in {}", counts.file),
                    lines => format!("{lines} lines per request in {}", counts.file),
                },
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
            database: self.database.cloned(),
        };
        let order = StartOrder {
            number,
            launch: server.launch.clone(),
            counts: server.counts.cloned(),
            requirements: server.requirements,
            first: server.contracts[0].with_values(0).exchanges[0].clone(),
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

    /// Verifies a running server over the target's protocol, against one contract after another.
    /// With `server`, the server's statements are counted, too.
    fn verify_contracts(
        &self,
        row: &mut CheckedServer,
        server: Option<&LocalServer>,
        (target, host): (&Target, &str),
        contracts: &[Contract],
        requirements: Requirements,
        rude: bool,
    ) {
        for mut contract in contracts.iter().cloned() {
            if contract.is_custom() {
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
                            remedy: "send the request with curl to see the response".to_owned(),
                        });
                        return;
                    }
                }
            }
            let mut findings = verify(&Verifier {
                target,
                host,
                contract: &contract.with_values(0),
                requirements,
                rude,
                limit: LIMIT,
                pause: PAUSE,
                stop: self.builder.stop,
            });
            if self.builder.stop.load(Ordering::Relaxed) {
                return;
            }
            if let (Some(server), true) = (server, findings.passed()) {
                let requests = findings.requests(&contract, host);
                let proof = server.prove(&contract, &requests, target, self.builder.stop);
                findings.required.extend(proof.checks);
            }
            if !findings.passed() {
                row.outcome = CheckOutcome::Failed;
            }
            let protocol = SpokenProtocol::of(target.protocol, target.tls.is_some());
            let contract = contract.names.first().copied();
            row.reports.push(ContractReport { contract, protocol, findings });
        }
    }
}

/// A server that is ready to be started, and the checks that it needs.
struct ToCheck<'a> {
    launch: Launch,
    contracts: &'a [Contract],
    /// The protocols to check. Either all of them run over TLS, or none does.
    protocols: &'a [SpokenProtocol],
    requirements: Requirements,
    /// The side effect to count.
    counts: Option<&'a Counts>,
}

/// Stops a server and records how the server ended.
fn stop(row: &mut CheckedServer, mut server: LocalServer) {
    if row.outcome != CheckOutcome::Passed {
        if let ServerState::Ended(exit) = server.state() {
            row.notes.push(format!("the server {exit} during the check"));
        }
        let log_tail = server.tail();
        if !log_tail.is_empty() {
            row.notes.push(format!("the server's last lines: {}", log_tail.join("\n")));
        }
    }
    let Some(stopped) = Box::new(server).stop(GRACE) else { return };
    if stopped.ignored_sigterm {
        let s = GRACE.as_secs();
        row.notes.push(format!("the server ignored SIGTERM for {s} s and was killed"));
    }
    if !stopped.left_behind.is_empty() {
        let left = stopped.left_behind.join(", ");
        row.notes.push(format!("the server left child processes behind: {left}"));
    }
    if !stopped.survivors.is_empty() {
        let survivors = stopped.survivors.join(", ");
        row.notes.push(format!("these processes survived SIGKILL: {survivors}"));
    }
}

/// Returns the network that a server is told to listen on. On Linux, a server of the catalogue
/// gets an unusual loopback address, so that a server that ignores `HOST` fails. Linux has all of
/// 127.0.0.0/8 as loopback addresses.
fn network(requirements: Requirements) -> Network {
    match requirements {
        Requirements::Catalogue { .. } if cfg!(target_os = "linux") => {
            Network::only(Ipv4Addr::new(127, 0, 0, 2).into())
        }
        _ => Network::loopback(),
    }
}

/// Checks that a server listens at no address other than `host`. Only the port of the target
/// counts, because the server's processes may have sockets between them.
fn listens_at(up: &Up<LocalServer>, host: IpAddr) -> Check {
    let port = match &up.target.endpoint {
        Endpoint::Tcp(address) => Some(address.port()),
        Endpoint::Unix(_) => None,
    };
    let is_wrong = |at: &SocketAddr| Some(at.port()) == port && at.ip() != host;
    let others: BTreeSet<SocketAddr> = up.server.sockets().into_iter().filter(is_wrong).collect();
    Check {
        name: "address".to_owned(),
        expected: format!("sockets at $HOST ({host}) only"),
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
