//! Measures whether a figure depends on where the server runs or where the load comes from. One
//! experiment starts one program both here and through an agent. Load comes from here and from
//! agents, in slices of the same rounds. The output is the cost of each combination, relative to
//! the server that is started and loaded here.
//!
//!     cargo bench -p hotlap --bench hosts -- [--server COMMAND] [--server-on COMMAND]
//!         [--generator-on COMMAND]... [--seconds 120] [--connections 64] [--seed 1]
//!
//! With n options `--generator-on`, servers are also loaded by one agent, by two agents, and so on
//! up to n. Without other hosts, `--server-on 'env target/release/hotlap'` shows what the channel
//! changes.

#![allow(clippy::print_stdout, reason = "a bench prints its table")]

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hotlap::analysis::{Analysis, Measure};
use hotlap::cmd::selftest::arena::Arena;
use hotlap::console::Console;
use hotlap::export::Exports;
use hotlap::recorder::Recorder;
use hotlap_agent::{
    AgentCommand, GeneratorCores, Generators, LoadError, LoadHost, RemoteHost, RunningLoad,
    ThisProcess, Wanted,
};
use hotlap_bench::local::{LocalRunner, Setting};
use hotlap_bench::participant::{Origin, Participant, Role};
use hotlap_load::plan::{Plan, Target};
use hotlap_servers::launch::{Launch, ServerFailure};
use hotlap_servers::running::{Found, LocalHost, ServerHost, StartOrder, Up};
use hotlap_servers::verify::Requirements;
use hotlap_stats::Effect;

/// A server and its load, each on its own host.
#[derive(Debug)]
struct Placed {
    name: String,
    host: Arc<dyn ServerHost>,
    generator: Arc<dyn LoadHost>,
}

/// Starts and loads each participant on its own hosts.
#[derive(Debug, Default)]
struct Mixed {
    placed: Vec<Placed>,
    /// The addresses of started servers, each with the index of its place.
    targets: Mutex<Vec<(Target, usize)>>,
}

impl Mixed {
    /// Returns the host from which a target is loaded.
    fn generator(&self, target: &Target) -> &dyn LoadHost {
        let targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let found = targets.iter().rev().find(|(own, _)| own == target).expect("a started server");
        &*self.placed[found.1].generator
    }
}

impl ServerHost for Mixed {
    fn is_here(&self) -> bool {
        false
    }

    fn start(&self, order: &StartOrder, stop: &AtomicBool) -> Result<Up, ServerFailure> {
        let up = self.placed[order.number].host.start(order, stop)?;
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.push((up.target.clone(), order.number));
        Ok(up)
    }

    fn find(&self, target: &Target, observes: bool) -> Result<Found, ServerFailure> {
        self.placed[0].host.find(target, observes)
    }
}

impl LoadHost for Mixed {
    fn start(&self, plan: &Plan) -> Result<Box<dyn RunningLoad>, LoadError> {
        self.generator(&plan.target).start(plan)
    }

    fn hold(&self, plan: &Plan) -> Result<Box<dyn RunningLoad>, LoadError> {
        self.generator(&plan.target).hold(plan)
    }

    fn delay(&self) -> Duration {
        self.placed.iter().map(|placed| placed.generator.delay()).max().unwrap_or_default()
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let all = |name: &'static str| {
        args.windows(2).filter(move |pair| pair[0] == name).map(|pair| pair[1].clone())
    };
    let whole = |name, usual| all(name).next().map_or(usual, |n| n.parse().expect("a number"));
    let command = |typed: String| typed.parse::<AgentCommand>().expect("a command");
    let (seconds, connections) = (whole("--seconds", 120), whole("--connections", 64) as usize);
    let arena = Arena::new(Path::new(env!("CARGO_BIN_EXE_hotlap"))).expect("an arena");
    let plain = arena.setting(&[], Duration::from_secs(10));
    let servers = all("--server-on").next().map(command);
    let generators: Vec<AgentCommand> = all("--generator-on").map(command).collect();
    let mixed = Arc::new(Mixed {
        placed: placed(&arena, servers.as_ref(), &generators),
        ..Mixed::default()
    });
    let setting = Setting { host: mixed.clone(), generator: mixed.clone(), ..plain };
    let role = |index: usize| match index {
        0 => Role::Reference,
        1 => Role::Control,
        _ => Role::Plain,
    };
    let typed = all("--server").next();
    let participants: Vec<Participant> = (0..)
        .zip(&mixed.placed)
        .map(|(index, placed)| match &typed {
            None => arena.participant(&placed.name, "working:0", role(index)),
            Some(typed) => of_command(&arena, &placed.name, typed, role(index)),
        })
        .collect();
    let budget = Duration::from_secs(seconds);
    let experiment = arena.experiment(participants, connections, None, budget, whole("--seed", 1));
    let stop = Arc::new(AtomicBool::new(false));
    let mut runner = LocalRunner::new(setting, &experiment.participants, &experiment.loads, stop);
    let (mut exports, quiet) = (Exports::default(), Console { quiet: true, ..Console::plain(80) });
    let keeper = Recorder::new(arena.record(&experiment), None, &mut exports, &quiet);
    let run = keeper.expect("a record").keep(&experiment, &mut runner).run;
    println!(
        "{}, {connections} connections, slices of {:.0} ms, {} restarts",
        typed.as_deref().unwrap_or("hotlap's ceiling"),
        run.schedule.slices_ms.first().copied().unwrap_or_default(),
        run.schedule.restarts,
    );
    println!("| server, load | rounds | CPU/req | ratio | 95% interval |");
    println!("|---|---:|---:|---:|---|");
    let analysis = Analysis::of(&run, 0);
    for (index, server) in analysis.servers.iter().enumerate() {
        let name = &mixed.placed[index].name;
        let rounds = server.readings[Measure::Cost].len();
        let cost = server.level[Measure::Cost].map_or(f64::NAN, |cost| cost.value / 1e3);
        let effect = match role(index) {
            Role::Control => analysis.noise[Measure::Cost],
            _ => server.against.as_ref().and_then(|own| own.found[Measure::Cost]).map(|own| own.0),
        };
        let ratio = effect.map_or_else(
            || "reference |".to_owned(),
            |Effect { ratio, .. }| {
                format!("{:.3} | [{:.3}, {:.3}]", ratio.value, ratio.low, ratio.high)
            },
        );
        println!("| {name} | {rounds} | {cost:.2} µs | {ratio} |");
    }
}

/// Returns the reference, its control, and one participant for each other place.
fn placed(
    arena: &Arena,
    servers: Option<&AgentCommand>,
    generators: &[AgentCommand],
) -> Vec<Placed> {
    let own = arena.setting(&[], Duration::ZERO).host;
    let here: Arc<dyn LoadHost> = Arc::new(ThisProcess);
    let mut placed: Vec<Placed> = ["here", "here, again"]
        .map(|name| Placed {
            name: name.to_owned(),
            host: Arc::clone(&own),
            generator: Arc::clone(&here),
        })
        .into();
    if let Some(command) = servers {
        let host = RemoteHost::open(
            command,
            Wanted { starts: true, ..Wanted::default() },
            &Arc::default(),
        )
        .expect("an agent");
        let ip = host.address().expect("an address");
        let name = format!("server under an agent, at {ip}");
        placed.push(Placed { name, host: Arc::new(host), generator: here });
    }
    for count in 1..=generators.len() {
        let mut group =
            Generators::open(&generators[..count], None, &Arc::default()).expect("generators");
        let (network, ip) = group.find_network(None).expect("an address");
        let placement = GeneratorCores {
            cpus: arena.cores.generator.clone(),
            is_alone: count == 1 && !arena.cores.shared,
        };
        group.place(vec![placement; count]);
        placed.push(Placed {
            name: format!("load from {count} agents, server at {ip}"),
            host: Arc::new(LocalHost { network, ..arena.host() }),
            generator: Arc::new(group),
        });
    }
    placed
}

fn of_command(arena: &Arena, name: &str, typed: &str, role: Role) -> Participant {
    let argv = shell_words::split(typed).expect("words");
    let launch = Launch { argv, cwd: std::env::temp_dir(), ..Launch::default() };
    Participant {
        start: Origin::Launch(launch),
        requirements: Requirements::Custom,
        version: String::new(),
        ..arena.participant(name, "working:0", role)
    }
}
