//! Starts a command and waits until its server responds.
//!
//! A port is chosen, the command is started with this port, and its process tree is watched until
//! the first response. Meanwhile, the server may die, never listen, or listen somewhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use hotlap_load::plan::{Endpoint, Target};
use hotlap_observe::{Counters, Gauge, Observer, Sampler, owner};

use crate::contract::{Exchange, files};
use crate::database::{self, Database};
use crate::interrupt;
use crate::launch::{Launch, LogLines, ServerFailure, TLS_CERT, TLS_KEY};
use crate::machine::{Network, free_port};
use crate::process::{Process, ProcessExit, ProcessSetting, Standby, Supervisor};
use crate::verify::client::{OpenError, Wire};
use crate::verify::{LIMIT, Requirements};

use super::local::{DatabaseCopy, LAST_LINES, sockets};
use super::{LocalServer, StartOrder, Up};

/// A server that is being started.
pub(crate) struct Starting<'a> {
    pub(crate) supervisor: &'a Supervisor,
    /// The file that receives the server's output.
    pub(crate) log: PathBuf,
    /// Where the server listens.
    pub(crate) network: &'a Network,
    /// The database of the run. `None` if no server needs one.
    pub(crate) database: Option<&'a Arc<Database>>,
    pub(crate) order: &'a StartOrder,
    /// Set when the user interrupts.
    pub(crate) stop: &'a AtomicBool,
}

/// The interval between attempts to reach a starting server.
const TRY_AGAIN: Duration = Duration::from_millis(2);

/// The interval between searches for the port that the server listens on. A search costs more than
/// an attempt.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Wrong responses are allowed for the start limit divided by this number: 6 s of two minutes. Some
/// servers accept connections before they are ready and send wrong responses at first, or listen on
/// another port first. A server that does not respond at all has the whole limit.
pub const UNREADY: u32 = 20;

/// Responses with status 503 are allowed for the start limit divided by this number: 30 s of two
/// minutes.
const UNAVAILABLE: u32 = 4;

/// How long `$PORT` must stay closed before a server that responds on another port is measured
/// there. A port for metrics or for a debugger may open first. If a command names `$PORT`, its
/// server is never looked for on another port.
const PORT_STAYS_CLOSED: Duration = Duration::from_secs(1);

/// How long to wait for the first response before trying again over a new connection. The first
/// connection may have been lost. The wait doubles each time, because the server may be slow.
const FIRST_WAIT: Duration = LIMIT;

/// Why a server is not up yet.
#[derive(Debug, thiserror::Error)]
enum NotYet {
    /// No complete response came.
    #[error("{0}")]
    Silent(String),
    /// The response is wrong.
    #[error("{0}")]
    Wrong(String),
    /// The response has a status of 500 or above, other than 503: the server itself failed.
    #[error("{0}")]
    Failing(String),
    /// The response has status 503: the server is not ready (RFC 9110 section 15.6.4).
    #[error("{0}")]
    Unavailable(String),
    /// The server speaks another protocol.
    #[error("{0}")]
    OtherProtocol(String),
}

impl NotYet {
    /// Returns what to do. `is_command` says whether the server is a user's command.
    fn remedy(&self, is_command: bool) -> &'static str {
        match self {
            Self::Silent(_) | Self::Unavailable(_) => "--start-timeout allows more time",
            Self::Failing(_) if is_command => {
                "look for the reason in the server's log, or set another path (--path, or path in \
                 the requests file)"
            }
            Self::Failing(_) => "look for the reason in the server's log",
            Self::Wrong(_) if is_command => {
                "if the response is right, correct what is expected: --expect-status and \
                 --expect-body, or the requests file"
            }
            Self::Wrong(_) => "`hotlap check` shows the server's responses",
            Self::OtherProtocol(_) => {
                "make the server speak TLS on $PORT with the files in TLS_CERT and TLS_KEY, and \
                 offer h2 for HTTP/2"
            }
        }
    }
}

/// How long processes that a preparation left running may take to end.
const PREPARE_GRACE: Duration = Duration::from_secs(5);

/// What to do if no port is free.
pub const NO_PORT: &str = "wait a minute, because each closed connection occupies a port for that \
                           time (`ss -s` counts them)";

/// What to do if a server ended. The input of a server is empty. Without `< /dev/null`, a program
/// that exits at the end of its input would keep running when started by hand.
pub const RUN_BY_HAND: &str =
    "run the server's command by hand, with `< /dev/null`, to see why the server ended";

impl Starting<'_> {
    /// Starts the server and waits until it responds.
    pub(crate) fn run(&self) -> Result<Up<LocalServer>, ServerFailure> {
        let counts = self.order.counts.as_ref();
        let lines =
            counts.map(|counts| LogLines::of(counts, &self.order.launch, !self.is_a_users()));
        let database = self.database.filter(|_| self.order.launch.has_database);
        let variables = self.variables(database)?;
        let foreign = database.map_or_else(Vec::new, |_| database::inherited());
        let supervisor = self.supervisor.clone().without(&foreign);
        if let Some(command) = &self.order.launch.prepare {
            self.prepare(command, &variables, &supervisor)?;
        }
        let port = free_port(self.network.bind).map_err(|e| self.without_port(&e))?;
        let (argv, env) = self.filled(port, variables);
        let setting = ProcessSetting {
            argv,
            env,
            cwd: self.order.launch.cwd.clone(),
            cpus: self.order.cores.clone(),
            log: self.log.clone(),
        };
        let failed = |e: crate::process::StartError| self.failed(&e.to_string(), "");
        let standby = Standby::new(&setting, &supervisor).map_err(failed)?;
        let (counters, uncounted) =
            match self.order.counters.then(|| Counters::open(standby.supervisor_pid())) {
                Some(Ok(counters)) => (Some(counters), None),
                Some(Err(r)) => (None, Some(format!("{}; {}", r.why, r.remedy))),
                None => (None, None),
            };
        let observer = self.order.observes.then(|| Observer::open(&standby.roots()));
        let began = Instant::now();
        let mut process = standby.go().map_err(failed)?;
        let target = self.await_answer(&mut process, port, began)?;
        let ready = began.elapsed();
        if let Endpoint::Tcp(address) = &target.endpoint
            && address.ip() != self.network.bind
        {
            self.is_reached(&process, address.port())?;
        }
        let mut notes = process.notes().to_vec();
        let fixed_port = match &target.endpoint {
            Endpoint::Tcp(address) => Some(address.port()).filter(|own| *own != port),
            Endpoint::Unix(_) => None,
        };
        notes.extend(fixed_port.map(|own| {
            format!(
                "$PORT stayed closed, so the server is measured on port {own}, where it responds \
                 as expected. To make the server listen on $PORT, put $PORT in its command"
            )
        }));
        let owner = owner(&target.endpoint, &process.members().unwrap_or_default());
        notes.extend(owner.note());
        let sampler = owner.roots(Some(process.supervisor_pid())).map(Sampler::new);
        let server = LocalServer {
            process: Some(process),
            sampler,
            counters,
            observer,
            lines,
            clocks: cores_of_both(&self.order.cores, database.map(Arc::as_ref)),
            database: database.and_then(|database| database.sampler()),
            copy: database.map(|database| DatabaseCopy::of(database, self.order.number)),
            own: self.order.cores.clone(),
            gauge: Some(&self.order.cores[..]).filter(|own| self.is_gauged(own)).map(Gauge::on),
            all: self.order.all_cores.clone(),
            ..LocalServer::default()
        };
        Ok(Up { server, target, fixed_port, ready, uncounted, notes })
    }

    /// Returns whether the server gets a gauge on these cores. A gauge would add context switches
    /// to what instruments observe.
    fn is_gauged(&self, own: &[usize]) -> bool {
        !own.is_empty() && !self.order.observes
    }

    /// Creates the server's copy of the database and the files of the contract `static`, if the
    /// server needs them. Returns the environment variables that lead the server to them.
    fn variables(&self, database: Option<&Arc<Database>>) -> Result<Vec<Variable>, ServerFailure> {
        let mut variables = match database {
            Some(database) => database.copy_for(self.order.number)?,
            None => Vec::new(),
        };
        if self.order.launch.has_files {
            let folder = self.log.with_extension("files");
            files::write(&folder).map_err(|error| {
                self.failed(
                    &format!("cannot write {}: {error}", folder.display()),
                    "free disk space, or set HOTLAP_CACHE to another folder",
                )
            })?;
            variables.push(("FILES", folder.display().to_string()));
        }
        Ok(variables)
    }

    /// Returns whether the server is a user's command, which may listen on a port other than
    /// `PORT`.
    fn is_a_users(&self) -> bool {
        self.order.requirements == Requirements::Custom
    }

    /// Runs the command that prepares a start, and waits until it ends.
    fn prepare(
        &self,
        command: &str,
        variables: &[Variable],
        supervisor: &Supervisor,
    ) -> Result<(), ServerFailure> {
        let failed = |cause: String| ServerFailure {
            phase: "prepare".to_owned(),
            ..self.failed(&cause, "run the command by hand to see why")
        };
        let setting = ProcessSetting {
            argv: ["sh", "-c", command].map(str::to_owned).to_vec(),
            env: self
                .order
                .launch
                .env
                .clone()
                .into_iter()
                .chain(variables.iter().map(owned))
                .collect(),
            cwd: self.order.launch.cwd.clone(),
            cpus: Vec::new(),
            log: self.log.clone(),
        };
        let mut process =
            Process::start(&setting, supervisor).map_err(|e| failed(e.to_string()))?;
        let began = Instant::now();
        let exit = loop {
            match process.exited() {
                Some(exit) => break exit,
                None if began.elapsed() > self.order.limit => {
                    let cause = format!(
                        "the --prepare command did not end within {} s",
                        self.order.limit.as_secs_f64()
                    );
                    return Err(failed(cause));
                }
                None if !interrupt::sleep(TRY_AGAIN, self.stop) => {
                    return Err(failed("interrupted".to_owned()));
                }
                None => {}
            }
        };
        let log_tail = process.tail(LAST_LINES);
        if exit == ProcessExit::Code(0) {
            let stopped = process.stop(PREPARE_GRACE);
            return match &stopped.left_behind[..] {
                [] => Ok(()),
                left => Err(ServerFailure {
                    remedy: "start these processes yourself, before you start hotlap".to_owned(),
                    ..failed(format!("the --prepare command left {} running", left.join(", ")))
                }),
            };
        }
        Err(ServerFailure { log_tail, ..failed(format!("the --prepare command {exit}")) })
    }

    fn await_answer(
        &self,
        process: &mut Process,
        port: u16,
        began: Instant,
    ) -> Result<Target, ServerFailure> {
        let at = |ip: &IpAddr| SocketAddr::new(*ip, port);
        let mut addresses: Vec<SocketAddr> = self.network.reach.iter().map(at).collect();
        let unready = self.order.limit / UNREADY;
        let (mut looked, mut wait) = (began, FIRST_WAIT);
        let (mut silence, mut wrong) = (None::<String>, None::<(Instant, u16, NotYet)>);
        let takes_other_ports = self.is_a_users() && !self.names_port();
        let (mut is_open, mut on_another_port) = (false, None::<(Instant, Target)>);
        loop {
            // Check this before trying `$PORT`, because this thread may have to wait for a core at
            // any time.
            let may_take_another = on_another_port
                .as_ref()
                .is_some_and(|(since, _)| since.elapsed() > PORT_STAYS_CLOSED);
            for address in &addresses {
                let is_own = address.port() == port;
                if !is_own && (is_open || on_another_port.is_some()) {
                    continue;
                }
                // A server on this machine accepts within microseconds, unless its accept queue is
                // full. Short attempts let hotlap notice an interrupt, or the end of the server.
                if TcpStream::connect_timeout(address, interrupt::LOOK).is_err() {
                    continue;
                }
                if is_own && !is_open {
                    // Earlier responses from another port no longer matter.
                    (is_open, on_another_port, silence, wrong) = (true, None, None, None);
                }
                let target = Target {
                    endpoint: Endpoint::Tcp(*address),
                    tls: self.order.launch.tls.clone(),
                    protocol: self.order.protocol,
                };
                let left = self.order.limit.saturating_sub(began.elapsed()).max(FIRST_WAIT);
                match self.is_up(&target, wait.min(left)) {
                    Ok(()) if is_own => return Ok(target),
                    Ok(()) => on_another_port = Some((Instant::now(), target)),
                    Err(NotYet::Silent(why)) => {
                        wait = wait.saturating_mul(2);
                        silence = Some(why);
                    }
                    Err(unfit) => {
                        let since = wrong.map_or_else(Instant::now, |(since, ..)| since);
                        let is_other = matches!(unfit, NotYet::OtherProtocol(_));
                        let is_accepted = self.order.accepts_wrong && !is_other;
                        if is_accepted && since.elapsed() > self.patience(&unfit) / 2 {
                            return Ok(target);
                        }
                        wrong = Some((since, address.port(), unfit));
                    }
                }
            }
            if may_take_another && let Some((_, target)) = on_another_port.take() {
                return Ok(target);
            }
            if let Some(exit) = process.ended() {
                let cause = format!("the server {exit} before its first response");
                return Err(self.out(process, &cause, RUN_BY_HAND));
            }
            let is_accepted = silence.is_some() || wrong.is_some();
            if looked.elapsed() > LOOK_AGAIN && on_another_port.is_none() {
                looked = Instant::now();
                if let Some(elsewhere) = listening_elsewhere(process, &addresses) {
                    if takes_other_ports && self.network.leads_to(elsewhere.ip()) {
                        addresses.extend(reachable(elsewhere, self.network));
                        continue;
                    }
                    if began.elapsed() > unready && !is_accepted {
                        return Err(self.not_at_its_address(process, elsewhere, port));
                    }
                }
            }
            if let Some((since, own, unfit)) = &wrong
                && since.elapsed() > self.patience(unfit)
            {
                let place = match is_open {
                    true => String::new(),
                    false => format!("$PORT was closed, and on port {own}, "),
                };
                let cause = format!("for {} s, {place}{unfit}", self.patience(unfit).as_secs_f64());
                return Err(self.out(process, &cause, unfit.remedy(self.is_a_users())));
            }
            if began.elapsed() > self.order.limit {
                let limit = self.order.limit.as_secs_f64();
                let (cause, remedy) = match wrong.map(|(.., unfit)| unfit.to_string()).or(silence) {
                    Some(what) => (
                        format!(
                            "the server accepts connections but sent no correct response within \
                             {limit} s: {what}"
                        ),
                        "--start-timeout allows more time",
                    ),
                    None => (
                        format!("after {limit} s, the server does not listen on $PORT"),
                        match self.network.is_open() {
                            true => {
                                "make the server listen on $PORT at the address in $HOST. \
                                 --start-timeout allows more time"
                            }
                            false => {
                                "make the server listen on $PORT on the loopback interface. \
                                 --start-timeout allows more time"
                            }
                        },
                    ),
                };
                return Err(self.out(process, &cause, remedy));
            }
            if !interrupt::sleep(TRY_AGAIN, self.stop) {
                return Err(self.failed("interrupted", ""));
            }
        }
    }

    /// Checks that the generator can reach a server that responded on this machine. The check fails
    /// only if the sockets of the server's processes on this port are known, and the generator can
    /// reach none of them.
    fn is_reached(&self, process: &Process, port: u16) -> Result<(), ServerFailure> {
        let on_port = sockets(process).into_iter().filter(|a| a.port() == port);
        let (reached, missed): (Vec<_>, Vec<_>) =
            on_port.partition(|a| self.network.leads_to(a.ip()));
        match missed.first() {
            Some(address) if reached.is_empty() => {
                Err(self.not_at_its_address(process, *address, port))
            }
            _ => Ok(()),
        }
    }

    /// Returns the failure of a server that cannot be measured because it listens at the wrong
    /// address or port.
    fn not_at_its_address(
        &self,
        process: &Process,
        listening: SocketAddr,
        port: u16,
    ) -> ServerFailure {
        let bind = self.network.bind;
        let is_missed = !self.network.leads_to(listening.ip()) || listening.port() == port;
        let (cause, remedy) = match is_missed {
            false => (
                format!("the server listens on {listening}, not on $PORT ({port})"),
                "make the server read PORT from the environment".to_owned(),
            ),
            true if self.network.is_open() && listening.ip().is_loopback() => (
                format!("the server listens on {listening}, which other hosts cannot reach"),
                format!("make the server listen on $HOST ({bind}), or on all addresses"),
            ),
            true => (
                format!("the server listens on {listening}, not at $HOST ({bind})"),
                "make the server read HOST from the environment".to_owned(),
            ),
        };
        self.out(process, &cause, &remedy)
    }

    /// Checks that the server gives the right response within `limit`.
    fn is_up(&self, target: &Target, limit: Duration) -> Result<(), NotYet> {
        let exchange = self.order.first.readiness();
        let mut wire = Wire::open(target, limit, self.stop).map_err(|error| match error {
            OpenError::Silent(why) => NotYet::Silent(why),
            OpenError::OtherProtocol(why) => NotYet::OtherProtocol(why),
        })?;
        let answer = wire.ask(&exchange, HOST).map_err(NotYet::Silent)?;
        exchange.check(&answer, SystemTime::now()).map_err(|why| {
            let Exchange { method, path, .. } = &exchange;
            let expected = exchange.expected();
            let what = format!("{method} {path}: expected {expected}; got {why}");
            match answer.status {
                503 => NotYet::Unavailable(what),
                500.. => NotYet::Failing(what),
                _ => NotYet::Wrong(what),
            }
        })
    }

    /// Returns how long a server may respond like this at first.
    fn patience(&self, unfit: &NotYet) -> Duration {
        match unfit {
            NotYet::Unavailable(_) => self.order.limit / UNAVAILABLE,
            _ => self.order.limit / UNREADY,
        }
    }

    /// Returns whether the command or its environment has a place for the port.
    fn names_port(&self) -> bool {
        let any = [("PORT", String::new())];
        let Launch { argv, env, .. } = &self.order.launch;
        argv.iter().chain(env.values()).any(|word| fill(word, &any) != *word)
    }

    /// Returns the command and its environment, with the port, the address, the number of cores,
    /// the certificate's files, the database and the folder of files filled in.
    fn filled(
        &self,
        port: u16,
        database: Vec<Variable>,
    ) -> (Vec<String>, BTreeMap<String, String>) {
        let Launch { argv, env, explain_env, .. } = &self.order.launch;
        let of_tls = [TLS_CERT, TLS_KEY].map(|name| Some((name, env.get(name)?.clone())));
        let own = [
            ("PORT", port.to_string()),
            ("HOST", self.network.bind.to_string()),
            ("CPUS", self.order.cpus.to_string()),
        ];
        let of_tls = of_tls.into_iter().flatten();
        let values: Vec<Variable> = own.into_iter().chain(of_tls).chain(database).collect();
        let argv = argv.iter().map(|word| fill(word, &values)).collect();
        let env = env.iter().chain(explain_env.iter().filter(|_| self.order.observes));
        let env = env.map(|(name, value)| (name.clone(), fill(value, &values)));
        (argv, env.chain(values.iter().map(owned)).collect())
    }

    fn without_port(&self, error: &io::Error) -> ServerFailure {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => NO_PORT,
            _ => "",
        };
        self.failed(&format!("cannot reserve a port at {}: {error}", self.network.bind), remedy)
    }

    fn failed(&self, cause: &str, remedy: &str) -> ServerFailure {
        ServerFailure {
            phase: "start".to_owned(),
            cause: cause.to_owned(),
            log_tail: Vec::new(),
            remedy: remedy.to_owned(),
        }
    }

    fn out(&self, process: &Process, cause: &str, remedy: &str) -> ServerFailure {
        ServerFailure { log_tail: process.tail(LAST_LINES), ..self.failed(cause, remedy) }
    }
}

/// The `Host` header of requests to servers that hotlap starts. The header has no port, so requests
/// have the same bytes after every start.
pub const HOST: &str = "localhost";

/// A variable of a server's environment.
type Variable = (&'static str, String);

fn owned((name, value): &Variable) -> (String, String) {
    ((*name).to_owned(), value.clone())
}

/// Returns the cores of a server and of its database. Empty means all cores.
fn cores_of_both(own: &[usize], database: Option<&Database>) -> Vec<usize> {
    let more = database.map_or(&[][..], Database::cores);
    match own.is_empty() || database.is_some() && more.is_empty() {
        true => Vec::new(),
        false => BTreeSet::from_iter(own.iter().chain(more).copied()).into_iter().collect(),
    }
}

/// Returns an address where the server's process tree listens, and to which none of the `asked`
/// addresses leads.
fn listening_elsewhere(process: &Process, asked: &[SocketAddr]) -> Option<SocketAddr> {
    let is_asked = |listening: &SocketAddr| {
        let at_port = |address: &&SocketAddr| address.port() == listening.port();
        let ip = listening.ip();
        asked.iter().filter(at_port).any(|address| ip.is_unspecified() || address.ip() == ip)
    };
    sockets(process).into_iter().find(|listening| !is_asked(listening))
}

/// Returns the addresses at which this machine reaches a listening socket.
fn reachable(listening: SocketAddr, network: &Network) -> Vec<SocketAddr> {
    if listening.ip().is_unspecified() {
        network.reach.iter().map(|ip| SocketAddr::new(*ip, listening.port())).collect()
    } else {
        vec![listening]
    }
}

/// Fills in values where a word of a command names them as whole words: `$PORT`, `${PORT}` and
/// `{port}`. `$PORT_HTTP` and `${port}` are the command's own variables and stay unchanged.
fn fill(word: &str, values: &[(&str, String)]) -> String {
    let forms: Vec<(String, &str)> = values
        .iter()
        .flat_map(|(name, value)| {
            let forms = [
                format!("${{{name}}}"),
                format!("${name}"),
                format!("{{{}}}", name.to_lowercase()),
            ];
            forms.map(|form| (form, value.as_str()))
        })
        .collect();
    let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let mut filled = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let found = forms.iter().find_map(|(form, value)| {
            let after = rest.strip_prefix(form.as_str())?;
            let goes_on = !form.ends_with('}') && after.starts_with(is_name);
            let is_variable = form.starts_with('{') && filled.ends_with('$');
            (!goes_on && !is_variable).then_some((after, *value))
        });
        match found {
            Some((after, value)) => {
                filled.push_str(value);
                rest = after;
            }
            None => {
                filled.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_and_cpus_are_filled_in_in_every_form() {
        let filled = |word| fill(word, &[("PORT", "8080".to_owned()), ("CPUS", "2".to_owned())]);
        for word in ["--port=$PORT", "--port=${PORT}", "--port={port}"] {
            assert_eq!(filled(word), "--port=8080");
        }
        assert_eq!(filled("$CPUS:{cpus}:${CPUS}"), "2:2:2");
        assert_eq!(filled("$HOME {x} $TLS_CERT"), "$HOME {x} $TLS_CERT");
    }

    /// Regression: `$PORT_HTTP` became `8080_HTTP`.
    #[test]
    fn only_whole_words_are_replaced() {
        let filled = |word| fill(word, &[("PORT", "8080".to_owned()), ("CPUS", "2".to_owned())]);
        for own in ["$PORT_HTTP", "$PORTS", "$PORT2", "${PORT_HTTP}", "${port}", "$CPUS_MAX"] {
            assert_eq!(filled(own), own);
        }
        assert_eq!(filled("a$PORT-b:$PORT.c/${PORT}d"), "a8080-b:8080.c/8080d");
        assert_eq!(filled("{\"port\":{port},\"é\":1}"), "{\"port\":8080,\"é\":1}");
    }

    #[test]
    fn a_socket_on_every_address_is_reached_over_loopback() {
        let network = Network::loopback();
        assert_eq!(
            reachable("0.0.0.0:80".parse().unwrap(), &network),
            ["127.0.0.1:80".parse().unwrap(), "[::1]:80".parse().unwrap()]
        );
        assert_eq!(reachable("127.0.0.2:80".parse().unwrap(), &network).len(), 1);
    }
}
