//! The participants of a run. Catalogue servers are built, the reference gets its A/A control, and
//! the ceiling is added. Servers that cannot run are kept with the reason.

use std::collections::BTreeMap;

use anyhow::Context;
use hotlap_agent::{Build, RemoteHost};
use hotlap_bench::participant::{Origin, Participant, Role};
use hotlap_bench::suite::Question;
use hotlap_servers::build::Unready;
use hotlap_servers::catalogue::{self, ServerKind, SpokenProtocol};
use hotlap_servers::contract::{Contract, Name, named};
use hotlap_servers::launch::{Certificate, Launch};
use hotlap_servers::machine::CpuAllocation;
use hotlap_servers::process::{Supervisor, own_program};
use hotlap_servers::verify::Requirements;

use super::hosts::{RunHosts, unpinned};
use super::spec::server::{CEILING, ServerSpec, Source};
use super::spec::{Reference, RunSpec};
use crate::cmd::setup::build_all;
use crate::console::Console;
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::model::{Published, Server, ServerFailure, Than};
use crate::paths;
use crate::text::number::plural;

/// The servers of a run.
#[derive(Debug)]
pub struct Participants {
    /// The servers that can take part, in the order of the experiment.
    pub ready: Vec<Participant>,
    /// Records of all servers: first the participants in order, then servers that cannot take part.
    pub servers: Vec<Server>,
    /// The name of the contract or of the request.
    pub contract: String,
    /// The hosts that run the servers and generate the load.
    pub hosts: RunHosts,
}

/// By server id: how a catalogue server is started and its version, or why it cannot be started.
pub type Builds = BTreeMap<String, Result<(Launch, String), Unready>>;

/// Installs missing toolchains of the catalogue servers, if `--setup` asks for it.
pub fn install(spec: &RunSpec, interrupt: &Interrupt, console: &Console) -> anyhow::Result<()> {
    let servers = from_catalogue(spec);
    if spec.install && spec.server_host.is_none() && !spec.is_dry && !servers.is_empty() {
        crate::cmd::setup::install(&servers, true, interrupt, console)?;
    }
    Ok(())
}

/// Builds the catalogue servers.
pub fn build(spec: &RunSpec, interrupt: &Interrupt, console: &Console) -> anyhow::Result<Builds> {
    let servers = from_catalogue(spec);
    if servers.is_empty() {
        return Ok(Builds::new());
    }
    let supervisor =
        Supervisor::this_program("__supervisor").context("cannot find hotlap's own program")?;
    let results = build_all(&servers, &supervisor, interrupt, console)?;
    let launched = servers.iter().zip(results).map(|(server, result)| {
        let ready = result.map(|built| (built.launch(server), built.version.clone()));
        (server.id.clone(), ready)
    });
    Ok(launched.collect())
}

/// Builds the catalogue servers on another host. For a dry run, only probes their toolchains.
pub fn build_there(
    spec: &RunSpec,
    host: &RemoteHost,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Builds> {
    let ids: Vec<String> = from_catalogue(spec).iter().map(|server| server.id.clone()).collect();
    if ids.is_empty() {
        return Ok(Builds::new());
    }
    let live = Live::start(console);
    let build = Build { ids: &ids, probes: spec.is_dry, stop: interrupt.flag() };
    let built = host.build(build, |step| live.phase(format!("{}: {step}", host.name())));
    let built = built.map_err(anyhow::Error::msg)?.into_iter();
    let launched = built.map(|built| built.map(|built| (built.launch, built.version)));
    Ok(ids.into_iter().zip(launched).collect())
}

/// The catalogue servers of a run that speak the protocols of its loads, without duplicates.
pub fn from_catalogue(spec: &RunSpec) -> Vec<&catalogue::CatalogueServer> {
    let mut servers: Vec<&catalogue::CatalogueServer> = Vec::new();
    for server in &spec.servers {
        if let Source::Catalogue(server, _) = &server.source
            && missing_protocol(spec, server).is_none()
            && !servers.iter().any(|s| s.id == server.id)
        {
            servers.push(server);
        }
    }
    servers
}

/// The first protocol of the loads that a catalogue server does not speak.
fn missing_protocol(spec: &RunSpec, server: &catalogue::CatalogueServer) -> Option<SpokenProtocol> {
    let mut needed = spec.loads.iter().map(|load| SpokenProtocol::of(load.protocol, load.https));
    needed.find(|protocol| !server.protocols.contains(protocol))
}

/// Whether the user named this participant. False for the A/A control and the ceiling.
pub fn is_named(participant: &Participant) -> bool {
    matches!(participant.role, Role::Plain | Role::Reference)
}

impl Participants {
    /// Collects the participants of a run from the plan and the results of the builds.
    pub fn new(
        spec: &RunSpec,
        builds: &Builds,
        hosts: RunHosts,
        console: &Console,
    ) -> anyhow::Result<Self> {
        let mut all =
            Self { ready: Vec::new(), servers: Vec::new(), contract: String::new(), hosts };
        // For each record, the index of its server in `spec`.
        let mut origins: Vec<Option<usize>> = Vec::new();
        let mut absent = Vec::new();
        for (index, server) in spec.servers.iter().enumerate() {
            let built = match &server.source {
                Source::Custom(..) => None,
                Source::Catalogue(own, _) => match started(spec, own, builds)? {
                    Ok(built) => Some(built),
                    Err(LeftOut::Noted(why)) => {
                        console.note(&format!("{} is left out: {why}", own.id));
                        continue;
                    }
                    Err(LeftOut::Failed(failure)) => {
                        let failure = all.located(failure);
                        absent.push((index, without(&server.name, own, failure)));
                        continue;
                    }
                },
            };
            let participant = all.placed(participant(spec, server, built, all.hosts.server_cpus));
            all.add(participant);
            if let Source::Catalogue(own, _) = &server.source {
                all.servers.last_mut().expect("added").about.clone_from(&own.about);
            }
            origins.push(Some(index));
        }
        if spec.servers.is_empty() || (all.ready.is_empty() && spec.leaves_out_missing) {
            console.note(
                "No server of this suite can run here, so nothing is measured. `hotlap setup` \
                 prints how to install missing toolchains.",
            );
        }
        all.contract = all.title();
        all.start_with_certificate(spec)?;
        all.choose_reference(spec, &origins);
        if spec.has_ceiling && !all.run_already() {
            let ceiling = all.ceiling(spec)?;
            all.add(ceiling);
        }
        // The control and the ceiling come before the absent servers, and have no origin.
        origins.resize(all.servers.len(), None);
        for (index, server) in absent {
            origins.push(Some(index));
            all.servers.push(server);
        }
        all.assign(spec, &origins);
        Ok(all)
    }

    /// The number of servers that the user named, including servers that cannot be started.
    pub fn named(&self) -> usize {
        let is_named = |s: &&Server| !matches!(s.role, Role::Control | Role::Ceiling);
        self.servers.iter().filter(is_named).count()
    }

    /// The cores of servers and generator. None are assigned if hotlap starts none of the servers.
    pub fn cores(&self) -> CpuAllocation {
        if self.run_already() { unpinned() } else { self.hosts.cores.clone() }
    }

    /// Whether hotlap starts none of the servers.
    fn run_already(&self) -> bool {
        let own = |e: &&Participant| e.role != Role::Ceiling;
        let runs = |e: &Participant| matches!(e.start, Origin::Running { .. });
        self.ready.iter().filter(own).all(runs)
    }

    /// Makes the servers start with hotlap's certificate, if the run uses TLS. `--dry-run` writes
    /// nothing, so it creates no certificate.
    fn start_with_certificate(&mut self, spec: &RunSpec) -> anyhow::Result<()> {
        let Some(tls) = spec.tls.as_ref().filter(|_| !spec.is_dry) else { return Ok(()) };
        let certificate = match &self.hosts.servers {
            Some(host) => host.certificate().map_err(anyhow::Error::msg)?,
            None => Certificate::kept_in(&paths::cache()?.join(Certificate::FOLDER))?,
        };
        for participant in &mut self.ready {
            if let Origin::Launch(launch) = &mut participant.start {
                *launch = launch.clone().with_certificate(&certificate, tls.clone());
            }
        }
        Ok(())
    }

    /// Returns a participant whose command starts in the right folder. On another host, this is the
    /// agent's folder.
    fn placed(&self, mut participant: Participant) -> Participant {
        if let Some(host) = &self.hosts.servers
            && participant.requirements == Requirements::Custom
            && let Origin::Launch(launch) = &mut participant.start
        {
            launch.cwd.clone_from(&host.description().folder);
        }
        participant
    }

    /// Returns the failure, with the name of the host if the servers run on another host.
    fn located(&self, failure: ServerFailure) -> ServerFailure {
        match &self.hosts.servers {
            Some(host) => {
                ServerFailure { cause: format!("on {}: {}", host.name(), failure.cause), ..failure }
            }
            None => failure,
        }
    }

    /// Returns the ceiling, hotlap's own minimal server, which does the work of the contracts.
    fn ceiling(&self, spec: &RunSpec) -> anyhow::Result<Participant> {
        let (program, cwd) = match &self.hosts.servers {
            Some(host) => (host.description().program.clone(), host.description().folder.clone()),
            None => {
                let program = own_program();
                (program.context("cannot find hotlap's own program")?, std::env::temp_dir())
            }
        };
        let contracts = spec.servers.iter().find_map(|server| match &server.source {
            Source::Catalogue(_, names) if names.iter().any(|name| name.asks_for_work()) => {
                Some(&names[..])
            }
            _ => None,
        });
        let command = if contracts.is_some() { "__floor" } else { "__ceiling" };
        let argv = vec![program.to_string_lossy().into_owned(), command.to_owned()];
        let has_database = contracts.is_some_and(|c| c.iter().any(|name| name.needs_database()));
        let has_files = contracts.is_some_and(|c| c.contains(&Name::Static));
        let launch = Launch { argv, cwd, has_database, has_files, ..Launch::default() };
        Ok(Participant {
            name: CEILING.to_owned(),
            role: Role::Ceiling,
            start: Origin::Launch(launch),
            contract: Contract::of_all(contracts.unwrap_or(&[Name::Hello]), None),
            requirements: Requirements::Catalogue {
                kind: ServerKind::HandWritten,
                keep_alive: true,
            },
            version: format!("hotlap {}", env!("CARGO_PKG_VERSION")),
            counts: None,
            cpus: None,
        })
    }

    fn add(&mut self, participant: Participant) {
        self.servers.push(Server::from(&participant));
        self.ready.push(participant);
    }

    /// Summarizes the requests to all servers in a few words.
    fn title(&self) -> String {
        let mut titles: Vec<String> = Vec::new();
        for participant in &self.ready {
            let contract = &participant.contract;
            let title = match &contract.fields.order {
                _ if !contract.is_custom() => named(&contract.names),
                Some(order) => plural(order.len(), "logged request"),
                None if contract.exchanges.len() > 1 => {
                    format!("{} requests", contract.exchanges.len())
                }
                None => contract.exchanges[0].name.clone(),
            };
            if !titles.contains(&title) {
                titles.push(title);
            }
        }
        titles.join(", ")
    }

    /// Makes a server the reference, and adds a copy of the server as the A/A control.
    fn choose_reference(&mut self, spec: &RunSpec, origins: &[Option<usize>]) {
        let position = |is: &dyn Fn(usize) -> bool| origins.iter().position(|o| o.is_some_and(is));
        let found = match spec.reference {
            Reference::Server(server) => position(&|index| index == server),
            Reference::Entry(entry) => {
                position(&|index| spec.servers[index].entry == entry).or(Some(0))
            }
        };
        if let Some(reference) = found.filter(|_| self.ready.len() > 1) {
            self.ready[reference].role = Role::Reference;
            self.servers[reference].role = Role::Reference;
            // In searches and explanations, the intervals rest on restarts alone. A control would
            // take as long as another server.
            if matches!(spec.question, Question::Capacity | Question::Explain) {
                return;
            }
            let name = format!("{} (again)", self.ready[reference].name);
            let control =
                Participant { name, role: Role::Control, ..self.ready[reference].clone() };
            self.add(control);
        }
    }

    /// Adds the layer below each server, its number of cores, and its published figures. `origins`
    /// has the index of each server in `spec`.
    fn assign(&mut self, spec: &RunSpec, origins: &[Option<usize>]) {
        let entry_of = |origin: &Option<usize>| origin.map(|index| spec.servers[index].entry);
        let entries: Vec<Option<usize>> = origins.iter().map(entry_of).collect();
        let server = |entry: usize| entries.iter().position(|e| *e == Some(entry));
        for (place, own) in entries.iter().enumerate() {
            let Some(entry) = own.map(|own| &spec.entries[own]) else { continue };
            let before = place.checked_sub(1).filter(|before| entries[*before] == *own);
            // If one pattern matches several servers, each server is the layer below the next one.
            self.servers[place].on = before
                .filter(|_| spec.question == Question::Layers)
                .or_else(|| entries.iter().rposition(|e| e.is_some() && *e == entry.on));
            self.servers[place].cpus.clone_from(&entry.cpus);
            let published = entry.published.iter().cloned().map(|p| Published {
                than: p.than.and_then(|t| Some(Than { server: server(t.server)?, ..t })),
                ..p
            });
            self.servers[place].published = published.collect();
        }
    }
}

/// Turns a server into a participant. The launch of a catalogue server comes from its build.
fn participant(
    spec: &RunSpec,
    server: &ServerSpec,
    built: Option<(Launch, String)>,
    server_cpus: Option<usize>,
) -> Participant {
    let entry = &spec.entries[server.entry];
    let cpus = entry.cpus.as_ref().map(|(n, _)| *n).or(server_cpus);
    let plain = |start, contract, requirements, version| Participant {
        name: server.name.clone(),
        role: Role::Plain,
        start,
        contract,
        requirements,
        version,
        counts: entry.counts.clone(),
        cpus,
    };
    let has_database = spec.database.is_some();
    let prepared =
        |launch: Launch| Launch { prepare: spec.prepare.clone(), has_database, ..launch };
    match (&server.source, built) {
        (Source::Catalogue(own, contracts), Some((launch, version))) => {
            let launch = prepared(launch);
            let contract = Contract::of_all(contracts, own.api.as_ref());
            let requirements =
                Requirements::Catalogue { kind: own.kind, keep_alive: own.keep_alive };
            let plain = plain(Origin::Launch(launch), contract, requirements, version);
            let counts = plain.counts.or_else(|| own.counts.clone());
            Participant { counts, ..plain }
        }
        (Source::Catalogue(..), None) => unreachable!("catalogue servers are built"),
        (Source::Custom(start, requests), _) => {
            let contract = Contract::custom_requests(requests);
            let start = match (**start).clone() {
                Origin::Launch(launch) => Origin::Launch(prepared(launch)),
                running @ Origin::Running { .. } => running,
            };
            plain(start, contract, Requirements::Custom, String::new())
        }
    }
}

/// Why a catalogue server cannot take part.
enum LeftOut {
    /// The suite leaves out servers that cannot run, so the reason is only printed.
    Noted(String),
    /// The server is shown as failed in the table, with this failure.
    Failed(ServerFailure),
}

/// Returns how a catalogue server is started and its version, or why the server cannot take part.
fn started(
    spec: &RunSpec,
    server: &catalogue::CatalogueServer,
    builds: &Builds,
) -> anyhow::Result<Result<(Launch, String), LeftOut>> {
    if let Some(protocol) = missing_protocol(spec, server) {
        let failure = unspoken(spec, protocol);
        return Ok(Err(match spec.leaves_out_missing {
            true => LeftOut::Noted(failure.cause),
            false => LeftOut::Failed(failure),
        }));
    }
    let built = builds.get(&server.id).with_context(|| format!("{} was not built", server.id))?;
    Ok(built.clone().map_err(|why| match why {
        Unready::Absent(why) if spec.leaves_out_missing => LeftOut::Noted(why.to_string()),
        why => LeftOut::Failed(unready(&why)),
    }))
}

/// Describes why a catalogue server cannot take part in a run whose loads need `protocol`.
fn unspoken(spec: &RunSpec, protocol: SpokenProtocol) -> ServerFailure {
    let remedy = match (protocol, &spec.suite) {
        (_, Some(suite)) => format!("remove the server, or these loads, from the suite {suite}"),
        (SpokenProtocol::Http1, None) => "add --http2, or name another server".to_owned(),
        (SpokenProtocol::H2c, None) => "leave out --http2, or name another server".to_owned(),
        (SpokenProtocol::Https, None) => "leave out --https, or name another server".to_owned(),
        (SpokenProtocol::H2, None) => {
            "leave out --http2 or --https, or name another server".to_owned()
        }
    };
    ServerFailure {
        phase: "protocol".to_owned(),
        cause: format!("it does not speak {}", protocol.title()),
        log_tail: Vec::new(),
        remedy: format!("{remedy}; `hotlap list` shows protocols"),
    }
}

/// Describes why a catalogue server could not be built.
fn unready(why: &Unready) -> ServerFailure {
    match why {
        Unready::Absent(absence) => ServerFailure {
            phase: "toolchain".to_owned(),
            cause: format!("{}: {}", absence.command, absence.why),
            log_tail: Vec::new(),
            remedy: absence.remedy.clone(),
        },
        Unready::Failed(error) => ServerFailure {
            phase: "build".to_owned(),
            cause: format!("{}: {}", error.what, error.cause),
            log_tail: error.log_tail.clone(),
            remedy: error.remedy.clone(),
        },
    }
}

/// The record of a catalogue server that cannot take part.
fn without(name: &str, server: &catalogue::CatalogueServer, failure: ServerFailure) -> Server {
    Server {
        name: name.to_owned(),
        role: Role::Plain,
        command: shell_words::join(&server.command),
        version: String::new(),
        about: server.about.clone(),
        published: Vec::new(),
        on: None,
        cpus: None,
        failure: Some(failure),
    }
}
