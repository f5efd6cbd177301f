//! Laps whose load comes from several generators. The generators are agents in the test's own
//! process, with separate clocks.

use std::io::{self, PipeWriter, Write, pipe};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotlap_agent::generator::Generator;
use hotlap_agent::{AgentRole, AgentService, Answer, Channel, Clock, Generators, serve};
use hotlap_bench::lap::{Lap, LapKind, Violation};
use hotlap_bench::local::{LocalRunner, Setting};
use hotlap_bench::participant::{Load, Participant, Role};
use hotlap_bench::runner::{Runner, TrialWindow};
use hotlap_testbed::{HELLO, TestServer};
use serde_json::value::RawValue;

use crate::setting::{participant, running, setting};
use crate::stand_in::LIMIT;

/// The output of an agent, which is closed once the flag is set.
struct Ending {
    output: Option<PipeWriter>,
    has_ended: Arc<AtomicBool>,
}

impl Write for Ending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.has_ended.load(Ordering::SeqCst) {
            self.output = None;
        }
        self.output.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A generator whose channel ends after this many orders.
struct Limited {
    generator: Generator,
    left: u64,
    has_ended: Arc<AtomicBool>,
}

impl AgentService for Limited {
    fn carry_out(&mut self, order: &RawValue) -> Answer {
        self.has_ended.fetch_or(self.left == 0, Ordering::SeqCst);
        self.left = self.left.saturating_sub(1);
        self.generator.carry_out(order)
    }
}

/// Returns a generator whose clock is ahead. Its channel ends after this many orders.
fn generator(ahead_ns: i64, orders: u64) -> Channel {
    let (agent_input, output) = pipe().expect("a pipe");
    let (input, agent_output) = pipe().expect("a pipe");
    let clock = Clock::shifted(ahead_ns);
    let has_ended = Arc::new(AtomicBool::new(false));
    let agent_output = Ending { output: Some(agent_output), has_ended: Arc::clone(&has_ended) };
    std::thread::spawn(move || {
        let generator = Generator::new(clock);
        let limited = Limited { generator, left: orders, has_ended };
        let open = move |_| Ok(Box::new(limited) as Box<dyn AgentService>);
        serve(agent_input, agent_output, clock, open, || {})
    });
    let name = format!("generator {ahead_ns}");
    Channel::over(&name, AgentRole::Generator, LIMIT, output, input).expect("a channel")
}

fn runner(server: &TestServer, generators: Vec<Channel>) -> LocalRunner {
    runner_of(&[(server, Role::Reference)], Duration::from_millis(60), generators)
}

fn runner_of(
    servers: &[(&TestServer, Role)],
    slice: Duration,
    generators: Vec<Channel>,
) -> LocalRunner {
    let of = |(server, role): &(&TestServer, Role)| {
        participant(&format!("{role:?}"), *role, running(server.address()))
    };
    let participants: Vec<Participant> = servers.iter().map(of).collect();
    let generator = Arc::new(Generators::over(generators, false).expect("generators"));
    let setting = Setting { generator, ..setting(slice, Path::new("")) };
    LocalRunner::new(setting, &participants, &[Load::new(6)], Arc::default())
}

fn sent(lap: &Lap) -> u64 {
    lap.generators.iter().map(|own| own.sent).sum()
}

/// Counts do not depend on a generator's clock. A lap may be excluded, but no count is wrong.
#[test]
fn the_counts_of_a_lap_equal_those_of_the_server() {
    let server = TestServer::responding(HELLO);
    let clocks = [0, 3_000_000_000, -3_000_000_000];
    let all = clocks.map(|ns| generator(ns, u64::MAX)).into();
    let mut runner = runner(&server, all);
    runner.bring_up(0).expect("a running server");
    let warmup = runner.warm(0, 0, &mut |_| ()).expect("a warm-up");
    assert!(warmup.curve.iter().sum::<f64>() > 0.0);
    let before = server.requests() as u64;
    for _ in 0..2 {
        let lap = runner.whole_lap(0, 0, LapKind::Flat).expect("a lap");
        // Both laps use the same connections.
        assert_eq!(sent(&lap), server.requests() as u64 - before);
        let responses: Vec<u64> = lap.generators.iter().map(|own| own.responses).collect();
        assert_eq!(responses.len(), 3);
        assert_eq!(responses.iter().sum::<u64>(), lap.outcome.responses);
        assert_eq!(lap.outcome.service_time.len(), lap.outcome.responses);
        assert_eq!(lap.outcome.connections.established, 6);
    }
}

/// Regression: from the second lap of a server on, its load was the load of the next server. In
/// this test, slices are so short that a lap has several alternating slices, and connections are
/// kept.
#[test]
fn the_laps_of_several_servers_have_the_counts_of_their_own_servers() {
    let servers = [TestServer::responding(HELLO), TestServer::responding(HELLO)];
    let [one, two] = &servers;
    let all = vec![generator(0, u64::MAX), generator(3_000_000_000, u64::MAX)];
    let both = [(one, Role::Reference), (two, Role::Plain)];
    let mut runner = runner_of(&both, Duration::from_millis(30), all);
    for participant in [0, 1] {
        runner.bring_up(participant).expect("a running server");
        runner.warm(participant, 0, &mut |_| ()).expect("a warm-up");
    }
    let before = servers.each_ref().map(|server| server.requests() as u64);
    // Both laps use one set of connections, and their counts add up.
    for lap in 1..=2 {
        for _ in 0..runner.slices(0) {
            for participant in [0, 1] {
                runner.slice(participant, 0).expect("a slice");
            }
        }
        for (participant, server) in servers.iter().enumerate() {
            let found = runner.lap(participant, 0).expect("a lap");
            assert_eq!(sent(&found), server.requests() as u64 - before[participant], "{lap}");
            assert!(found.outcome.responses > 0, "{:?}", found.failed);
        }
    }
}

#[test]
fn a_lap_at_a_rate_is_that_of_all_generators_together() {
    let server = TestServer::responding(HELLO);
    let mut runner = runner(&server, vec![generator(0, u64::MAX), generator(7, u64::MAX)]);
    runner.bring_up(0).expect("a running server");
    runner.warm(0, 0, &mut |_| ()).expect("a warm-up");
    let before = server.requests() as u64;
    let length = Duration::from_millis(500);
    let trial = TrialWindow { rate: 400.0, length, seed: 1, holds: false };
    let lap = runner.trial_lap(0, 0, trial).expect("a lap");
    // The server may get more requests than the generators send for the lap.
    let after = server.requests() as u64 - before;
    assert!((sent(&lap)..sent(&lap) + 100).contains(&after), "{after} and {}", sent(&lap));
    // 200 requests are due in the window, with a standard deviation of 14.
    assert!((100..300).contains(&lap.outcome.due), "{}", lap.outcome.due);
}

/// The generator cannot be started again, because no command started it.
#[test]
fn a_lap_in_which_a_generator_is_lost_does_not_count_and_the_run_ends_with_its_name() {
    let server = TestServer::responding(HELLO);
    // Six orders are enough to hold a load, but too few to end a lap.
    let mut runner = runner(&server, vec![generator(0, u64::MAX), generator(7, 6)]);
    runner.bring_up(0).expect("a running server");
    let lap = runner.whole_lap(0, 0, LapKind::Flat).expect("a lap");
    assert!(!lap.counts());
    assert_eq!((lap.outcome.responses, lap.usage), (0, None));
    let [Violation::GeneratorLost { why }] = &lap.failed[..] else { panic!("{:?}", lap.failed) };
    assert!(why.starts_with("generator 7: while ") && why.contains("the agent ended"), "{why}");
    let failure = runner.whole_lap(0, 0, LapKind::Flat).expect_err("no generator");
    assert!(failure.cause.contains("cannot be started again: generator 7: "), "{failure:?}");
    assert!(failure.remedy.contains("repeat the run"), "{failure:?}");
}
