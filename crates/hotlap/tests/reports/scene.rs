//! A run as a test describes it. The laps of the servers are scripted, and everything else is real.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::PathBuf;
use std::time::Duration;

use hotlap::console::Console;
use hotlap::export::Exports;
use hotlap::model::{Host, Lap, Machine, Observing, Question, Run, RunSchedule, RunState, Server};
use hotlap::recorder::{Kept, Recorder};
use hotlap::render::terminal;
use hotlap::report::Report;
use hotlap::store::Store;
use hotlap_bench::experiment::Experiment;
use hotlap_bench::participant::{self, Participant, Role};
use hotlap_bench::scripted::{Script, Scripted};
use hotlap_bench::stress::{ClientService, Observed, StressTrial, Subject, judge};
use hotlap_load::outcome::RequestOutcome;
use hotlap_servers::contract::{Contract, Name};
use hotlap_servers::launch::Launch;
use hotlap_servers::verify::Requirements;

/// A test's description of a run.
#[derive(Clone)]
pub struct Scene {
    pub experiment: Experiment,
    pub scripts: Vec<Script>,
    pub question: Question,
    /// When the user interrupts the run.
    pub interrupted_at: Option<Duration>,
}

pub fn scene(servers: &[(&str, Role, Script)]) -> Scene {
    let participant = |(name, role, _): &(&str, Role, Script)| Participant {
        name: (*name).to_owned(),
        role: *role,
        start: participant::Origin::Launch(Launch {
            argv: vec!["./serve".to_owned(), (*name).to_owned()],
            cwd: PathBuf::from("."),
            ..Launch::default()
        }),
        contract: Contract::of(Name::Hello, None),
        requirements: Requirements::Custom,
        version: format!("{name} 1.0"),
        counts: None,
        cpus: None,
    };
    let participants = servers.iter().map(participant).collect();
    let load = participant::Load::new(64);
    Scene {
        experiment: Experiment {
            restarts: Some(3),
            rounds: Some(6),
            slices: vec![Duration::from_millis(20)],
            seed: 7,
            ..Experiment::new(participants, vec![load], Duration::from_secs(60))
        },
        scripts: servers.iter().map(|s| s.2.clone()).collect(),
        question: Question::Compare,
        interrupted_at: None,
    }
}

/// Returns a script whose laps differ a little from one another, in the same way in every round.
pub fn script(rate: f64, cost_ns: f64, megabytes: u64, wobble: &[f64]) -> Script {
    Script {
        rss_bytes: megabytes * 1_000_000,
        wobble: wobble.iter().map(|w| (1.0 + w, 1.0 - w / 5.0)).collect(),
        ..Script::new(rate, cost_ns)
    }
}

pub fn three() -> Scene {
    let go = script(57_900.0, 16_900.0, 7, &[0.01, -0.02, 0.015, -0.01, 0.005]);
    let node = script(38_300.0, 25_600.0, 131, &[-0.01, 0.02, 0.01, -0.015, 0.0, -0.02, 0.025]);
    let python = script(2_100.0, 470_000.0, 23, &[0.05, -0.05, 0.0, 0.02, -0.03]);
    let double = script(57_900.0, 16_900.0, 7, &[-0.01, 0.01, 0.02, -0.005, 0.0, 0.01, -0.02]);
    let ceiling = script(123_100.0, 7_100.0, 1, &[0.02, -0.01, 0.0, 0.01, -0.02, 0.01, -0.01]);
    scene(&[
        ("go/net-http", Role::Reference, go),
        ("node/http:cluster", Role::Plain, node),
        ("python3 app.py", Role::Plain, python),
        ("go/net-http (again)", Role::Control, double),
        ("ceiling", Role::Ceiling, ceiling),
    ])
}

/// Returns this many servers with names as in the catalogue, an A/A control and the ceiling. Each
/// server is slower than the one before it.
pub fn many(servers: usize) -> Scene {
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
    let mut names: Vec<String> = (0..servers).map(name).collect();
    names.extend([format!("{} (again)", names[0]), "ceiling".to_owned()]);
    let of = |(n, name)| {
        let (role, rate, cost) = match n {
            0 => (Role::Reference, 57_900.0, 16_900.0),
            n if n == servers => (Role::Control, 57_900.0, 16_900.0),
            n if n > servers => (Role::Ceiling, 123_100.0, 7_100.0),
            n => {
                let n = n as f64;
                (Role::Plain, 57_900.0 / (1.0 + n * 0.4), 16_900.0 * (1.0 + n * 0.3))
            }
        };
        let wobble = (0..7).map(|lap| (((lap * 5 + n * 3) % 7) as f64 - 3.0) * 0.008);
        (name, role, script(rate, cost, 7 + 13 * n as u64, &wobble.collect::<Vec<_>>()))
    };
    let servers: Vec<_> = names.iter().map(String::as_str).enumerate().map(of).collect();
    scene(&servers)
}

pub fn record(scene: &Scene) -> Run {
    Run {
        number: None,
        began_ms: 1_795_292_100_000,
        took_ms: 0,
        state: RunState::UnderWay,
        command: vec!["hotlap".to_owned(), "run".to_owned(), "python3 app.py".to_owned()],
        hotlap: "0.1.0".to_owned(),
        baseline: None,
        suite: None,
        question: scene.question,
        about: String::new(),
        contract: "hello".to_owned(),
        seed: scene.experiment.seed,
        schedule: RunSchedule {
            restarts: scene.experiment.restarts.unwrap_or(0),
            rounds: scene.experiment.rounds.unwrap_or(0),
            slices_ms: vec![500.0],
            probed: Vec::new(),
            duration_s: 60.0,
            needed_s: None,
            precision: None,
            limit: None,
            server_cpus: vec![0],
            generator_cpus: vec![1],
            freeze: true,
            high_priority: false,
            objectives: scene.experiment.objectives.clone(),
            observing: Observing::default(),
        },
        host: Host {
            machine: Machine {
                os: "Debian GNU/Linux 12".to_owned(),
                kernel: "Linux 6.18".to_owned(),
                architecture: "x86_64".to_owned(),
                cpu: "Imaginary CPU".to_owned(),
                allowed: 2,
                memory_bytes: 16_000_000_000,
                ..Machine::default()
            },
            ..Host::default()
        },
        loads: scene.experiment.loads.clone(),
        servers: scene.experiment.participants.iter().map(Server::from).collect(),
        starts: Vec::new(),
        laps: Vec::new(),
        absent: Vec::new(),
        stress: Vec::new(),
        explain: Vec::new(),
        shard: None,
        database: None,
        pool: None,
    }
}

pub fn hold(scene: &Scene, store: Option<Store>) -> Kept {
    hold_as(scene, record(scene), store)
}

/// Runs a scene like [`hold`], but with the test's own record.
pub fn hold_as(scene: &Scene, run: Run, store: Option<Store>) -> Kept {
    let (scripts, loads) = (scene.scripts.clone(), scene.experiment.loads.clone());
    let mut runner = Scripted::new(scripts, loads, scene.experiment.slices[0]);
    runner.interrupted_at = scene.interrupted_at;
    let (mut exports, console) =
        (Exports::default(), Console { quiet: true, ..Console::plain(80) });
    let recorder = Recorder::new(run, store, &mut exports, &console).unwrap();
    recorder.keep(&scene.experiment, &mut runner)
}

/// Returns the table of a scene, in this many columns.
pub fn table(scene: &Scene, width: usize) -> String {
    printed(&hold(scene, None).run, width)
}

/// Returns what a terminal of this many columns shows of a run.
pub fn printed(run: &Run, width: usize) -> String {
    let text = terminal::render(&Report::of(run), width, false);
    for line in text.lines() {
        assert!(line.chars().count() <= width, "{} columns: {line}", line.chars().count());
    }
    text
}

/// Returns a server that one stress scenario did not harm.
pub fn stressed(name: &str) -> Subject {
    let pace =
        ClientService { requests_per_s: 10_000.0, responses: 10_000, ..ClientService::default() };
    let observed = Observed {
        before: pace.clone(),
        during: pace.clone(),
        after: pace.clone(),
        others: Some(pace),
        crowding: 1.0,
        recovered_ms: Some(0.5),
        ..Observed::default()
    };
    Subject {
        name: name.to_owned(),
        version: format!("{name} 1.0"),
        good: 8,
        trials: vec![StressTrial {
            scenario: "overload".to_owned(),
            about: "200 connections".to_owned(),
            judgement: judge(&observed),
            observed,
            log_tail: Vec::new(),
        }],
        failure: None,
        notes: Vec::new(),
    }
}

/// Makes requests of a server hang in one restart. In each lap of this restart, more than 1% of the
/// requests are still unanswered when the window closes. These requests are 1.2 s old, so the p99
/// is a lower bound.
pub fn hang(run: &mut Run, server: usize) {
    let is_own = |lap: &&mut Lap| lap.server == server && lap.restart == 1;
    for lap in run.laps.iter_mut().filter(is_own) {
        lap.outcome.service_time_censored.open = [1_200_000_000; 64].into_iter().collect();
    }
}

/// The number of laps of [`three`], which has three restarts of six rounds. Each round has two laps
/// of each server. The first round also has two laps of the ceiling. The first and the fifth round
/// also have two laps of the A/A control.
pub const LAPS: usize = 3 * 2 * (6 * 3 + 1 + 2);

/// The names of the requests of [`mix`].
pub const USER: &str = "GET /users/${id}";
pub const ORDER: &str = "POST /orders";

/// Gives the load two requests. Nine of ten requests get a user and take as long as all requests
/// did before. One of ten sends an order and takes five times as long. The ceiling has only one
/// request.
pub fn mix(run: &mut Run) {
    let names = [USER, ORDER].map(str::to_owned);
    run.loads.iter_mut().for_each(|load| load.requests = names.to_vec());
    let ceiling = run.servers.iter().position(|server| server.role == Role::Ceiling);
    for lap in run.laps.iter_mut().filter(|lap| Some(lap.server) != ceiling) {
        let times = if lap.rate().is_some() {
            &lap.outcome.response_time
        } else {
            &lap.outcome.service_time
        };
        let mut own = [RequestOutcome::default(), RequestOutcome::default()];
        for (n, ns) in times.counts().flat_map(|(ns, n)| (0..n).map(move |_| ns)).enumerate() {
            let request = usize::from(n % 10 == 9);
            own[request].responses += 1;
            own[request].latency.record(if request == 1 { ns * 5 } else { ns });
        }
        lap.outcome.by_request = own.into();
    }
}
