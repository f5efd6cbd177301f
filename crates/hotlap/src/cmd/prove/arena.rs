//! Where known servers are raced: the same track as in `run`, with servers that the tool brings
//! along. The benchmark of the method uses it too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hotlap_harness::contract::{Contract, Name};
use hotlap_harness::cores::{self, Split};
use hotlap_harness::entrant::{Entrant, Launch, Load, Role, Start};
use hotlap_harness::live::Setting;
use hotlap_harness::process::Warden;
use hotlap_harness::race::{Place, Race};
use hotlap_harness::verify::Demand;
use hotlap_load::plan::Reuse;
use hotlap_testbed::Calibrated;

use crate::cmd::run::{GRACE, Logs, START_LIMIT};
use crate::record::{self, Question, Run, State};

/// How long one request may take: longer than the longest pause.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long servers may be probed at each slice length.
const PROBE_LIMIT: Duration = Duration::from_secs(12);

/// What all races of known servers share.
pub struct Arena {
    program: PathBuf,
    /// Who runs where: the server on one core, since each of its threads would keep a count of its
    /// own.
    pub cores: Split,
    logs: Logs,
}

impl Arena {
    /// With this program's own hidden commands, which `program` is.
    ///
    /// # Errors
    /// When the cache cannot be written.
    pub fn new(program: &Path) -> anyhow::Result<Self> {
        let cores = cores::split_here(Some(1));
        Ok(Self { program: program.to_owned(), cores, logs: Logs::new()? })
    }

    /// A server of known behaviour.
    #[must_use]
    pub fn entrant(&self, name: &str, known: Calibrated, role: Role) -> Entrant {
        let program = self.program.to_string_lossy().into_owned();
        let argv = vec![program, "__known".to_owned(), known.to_string()];
        Entrant {
            name: name.to_owned(),
            role,
            start: Start::Launch(Launch { argv, env: BTreeMap::new(), cwd: std::env::temp_dir() }),
            contract: Contract::of(Name::Hello, None),
            // Held to what a stranger is held to: one of them errs on purpose.
            demand: Demand::Stranger,
            version: format!("hotlap {}", env!("CARGO_PKG_VERSION")),
            counts: None,
            cpus: None,
        }
    }

    /// A closed loop, or half of it, over so many connections.
    #[must_use]
    pub fn load(&self, connections: usize) -> Load {
        Load {
            name: String::new(),
            connections,
            threads: 1,
            reuse: Reuse::KeepAlive,
            pipeline: 1,
            request: 0,
            rate: None,
        }
    }

    /// How laps are measured, in slices of that length, or of the one that is found to be right.
    #[must_use]
    pub fn setting(&self, slice: Option<Duration>, warm_limit: Duration) -> Setting {
        Setting {
            slice,
            probe_limit: PROBE_LIMIT,
            timeout: TIMEOUT,
            start_limit: START_LIMIT,
            warm_limit,
            grace: GRACE,
            freeze: true,
            counters: false,
            cores: self.cores.clone(),
            warden: Warden::new(&self.program, &["__warden"]),
            logs: self.logs.folder().to_owned(),
            against: BTreeMap::new(),
        }
    }

    /// A race of these for so long; without paced laps, which say nothing of cost.
    #[must_use]
    pub fn race(
        &self,
        entrants: Vec<Entrant>,
        connections: usize,
        slice: Option<Duration>,
        budget: Duration,
        seed: u64,
    ) -> Race {
        Race {
            entrants,
            loads: vec![self.load(connections)],
            budget,
            precision: None,
            heats: None,
            blocks: None,
            slice,
            paced: false,
            rate: None,
            seed,
            from: Place::default(),
            past: hotlap_harness::race::Past::default(),
        }
    }

    /// The record that such a race is kept in; it is not stored.
    #[must_use]
    pub fn record(&self, race: &Race) -> Run {
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Run {
            number: None,
            began_ms: began.as_millis() as u64,
            took_ms: 0,
            state: State::UnderWay,
            command: record::typed(),
            hotlap: env!("CARGO_PKG_VERSION").to_owned(),
            baseline: None,
            suite: None,
            question: Question::Compare,
            about: String::new(),
            contract: Name::Hello.to_string(),
            seed: race.seed,
            schedule: record::Schedule {
                heats: 0,
                blocks: 0,
                slice_ms: race.slice.map(|slice| slice.as_secs_f64() * 1e3),
                probed: Vec::new(),
                budget_s: race.budget.as_secs_f64(),
                precision: race.precision,
                server_cpus: self.cores.server.clone(),
                generator_cpus: self.cores.generator.clone(),
                freeze: true,
            },
            host: record::Host::default(),
            loads: race.loads.iter().map(record::Load::from).collect(),
            servers: race.entrants.iter().map(record::Server::from).collect(),
            starts: Vec::new(),
            laps: Vec::new(),
            absent: Vec::new(),
            stress: Vec::new(),
        }
    }
}
