//! Runs to make pages of, with scripted laps: many servers, one, none that works, an interrupted
//! one, layers, loads that scale, and names that would be tags.

use std::path::PathBuf;
use std::time::Duration;

use hotlap::console::Console;
use hotlap::export::Exports;
use hotlap::model::{
    Host, Load, Observing, Published, Question, Run, Schedule, Server, State, Than,
};
use hotlap::recorder::Recorder;
use hotlap_bench::experiment::{Experiment, Place};
use hotlap_bench::explain::Explain;
use hotlap_bench::participant::{self, Participant, Role};
use hotlap_bench::scripted::{Script, Scripted};
use hotlap_load::outcome::Tick;
use hotlap_servers::contract::{Contract, Name};
use hotlap_servers::launch::Launch;
use hotlap_servers::verify::Requirements;

/// A run before it is held.
pub struct Scene {
    /// Names, in order; the first is the reference.
    pub names: Vec<String>,
    /// Changes what a server does, by its place.
    pub script: fn(usize, Script) -> Script,
    /// What is asked.
    pub question: Question,
    /// Connections of each load.
    pub connections: Vec<usize>,
    /// Restarts and rounds.
    pub size: (u32, u32),
    /// When it is interrupted.
    pub interrupted_at: Option<Duration>,
    /// Whether figures were published for its servers.
    pub published: bool,
    /// Whether a ceiling and a control take part.
    pub company: bool,
    pub explain: Explain,
}

impl Scene {
    /// So many servers with names as in the catalogue.
    pub fn of(servers: usize) -> Self {
        const NAMES: [&str; 9] = [
            "go/net-http",
            "node/http:cluster",
            "rust/axum",
            "python3 app.py",
            "c/libmicrohttpd",
            "java/netty",
            "ruby/puma",
            "nim/asynchttpserver:a-long-variant-name",
            "erlang/cowboy",
        ];
        let name = |n: usize| match n / NAMES.len() {
            0 => NAMES[n].to_owned(),
            round => format!("{} {round}", NAMES[n % NAMES.len()]),
        };
        Self {
            names: (0..servers).map(name).collect(),
            script: |_, script| script,
            question: Question::Compare,
            connections: vec![64],
            size: (3, 6),
            interrupted_at: None,
            published: false,
            company: true,
            explain: Explain::No,
        }
    }

    /// The run, held.
    pub fn run(&self) -> Run {
        let experiment = self.experiment();
        let scripts = (0..experiment.participants.len()).map(|n| self.scripted(n)).collect();
        let mut runner =
            Scripted::new(scripts, experiment.loads.clone(), experiment.slice.expect("scripted"));
        runner.interrupted_at = self.interrupted_at;
        let (mut exports, console) =
            (Exports::default(), Console { quiet: true, ..Console::plain(80) });
        let keeper = Recorder::new(self.record(&experiment), None, &mut exports, &console).unwrap();
        let mut run = keeper.keep(&experiment, &mut runner).run;
        // As many ticks as a lap of half a second has, so that a page is as large as a real one.
        for lap in &mut run.laps {
            let Some(tick) = lap.outcome.series.first().copied() else { continue };
            let ticks = (0..5).map(|n| Tick {
                responses: tick.responses / 5,
                max_ns: tick.max_ns * (2 + (n * 7 + u64::from(lap.round)) % 5),
                sum_ns: tick.sum_ns / 100 * (18 + n),
                ..tick
            });
            lap.outcome.series = ticks.collect();
        }
        run
    }

    fn scripted(&self, n: usize) -> Script {
        let (rate, cost) = match n {
            n if n < self.names.len() => {
                (57_900.0 / (1.0 + n as f64 * 0.4), 16_900.0 * (1.0 + n as f64 * 0.3))
            }
            n if n == self.names.len() => (57_900.0, 16_900.0),
            _ => (123_100.0, 7_100.0),
        };
        let wobble = (0..7).map(|i| {
            let phase = (i * 5 + n * 3) % 7;
            (1.0 + (phase as f64 - 3.0) * 0.008, 1.0 - (phase as f64 - 3.0) * 0.002)
        });
        let script = Script {
            rss_bytes: (7 + 13 * n as u64) * 1_000_000,
            wobble: wobble.collect(),
            ..Script::new(rate, cost)
        };
        if n < self.names.len() { (self.script)(n, script) } else { script }
    }

    fn experiment(&self) -> Experiment {
        let mut cast: Vec<(String, Role)> = self
            .names
            .iter()
            .enumerate()
            .map(|(n, name)| {
                let role = if n == 0 { Role::Reference } else { Role::Plain };
                (name.clone(), role)
            })
            .collect();
        if self.company {
            cast.push((format!("{} (again)", self.names[0]), Role::Control));
            cast.push(("ceiling".to_owned(), Role::Ceiling));
        }
        let participant = |(name, role): (String, Role)| Participant {
            start: participant::Origin::Launch(Launch {
                argv: vec!["./serve".to_owned(), name.clone()],
                cwd: PathBuf::from("."),
                ..Launch::default()
            }),
            version: format!("{name} 1.0"),
            name,
            role,
            contract: Contract::of(Name::Hello, None),
            requirements: Requirements::Custom,
            counts: None,
            cpus: None,
        };
        let load = |connections: &usize| participant::Load::new(*connections);
        Experiment {
            participants: cast.into_iter().map(participant).collect(),
            loads: self.connections.iter().map(load).collect(),
            budget: Duration::from_secs(60),
            may_grow: false,
            precision: None,
            restarts: Some(self.size.0),
            rounds: Some(self.size.1),
            slice: Some(Duration::from_millis(20)),
            paced: false,
            rate: None,
            objectives: Vec::new(),
            explain: self.explain,
            seed: 7,
            from: Place::default(),
            past: hotlap_bench::experiment::Past::default(),
        }
    }

    fn record(&self, experiment: &Experiment) -> Run {
        let mut servers: Vec<Server> = experiment.participants.iter().map(Server::from).collect();
        for (n, server) in servers.iter_mut().enumerate().filter(|_| self.published) {
            server.published = vec![Published {
                requests_per_s: 40_000.0 / (1.0 + n as f64),
                than: Some(Than { server: 0, requests_per_s: 40_000.0 }),
                year: 2016,
                source: "a page".to_owned(),
                doubt: "best of three".to_owned(),
                ..Published::default()
            }];
        }
        Run {
            number: Some(12),
            began_ms: 1_795_292_100_000,
            took_ms: 0,
            state: State::UnderWay,
            command: ["hotlap", "run"]
                .map(str::to_owned)
                .into_iter()
                .chain(self.names.iter().cloned())
                .collect(),
            hotlap: "0.1.0".to_owned(),
            baseline: None,
            suite: None,
            question: self.question,
            about: String::new(),
            contract: "hello".to_owned(),
            seed: experiment.seed,
            schedule: Schedule {
                restarts: self.size.0,
                rounds: self.size.1,
                slice_ms: Some(500.0),
                probed: Vec::new(),
                budget_s: 60.0,
                precision: None,
                server_cpus: vec![0],
                generator_cpus: vec![1],
                freeze: true,
                high_priority: false,
                objectives: Vec::new(),
                observing: Observing::default(),
            },
            host: Host {
                os: "Debian GNU/Linux 12".to_owned(),
                kernel: "Linux 6.18".to_owned(),
                arch: "x86_64".to_owned(),
                cpu: "Imaginary CPU".to_owned(),
                cores: 2,
                memory_bytes: 16_000_000_000,
                ..Host::default()
            },
            loads: experiment.loads.iter().map(Load::from).collect(),
            servers,
            starts: Vec::new(),
            laps: Vec::new(),
            absent: Vec::new(),
            stress: Vec::new(),
            explain: Vec::new(),
            shard: None,
            pool: None,
        }
    }
}
