//! Tests a server on another host when the order to thaw the server reaches its agent late.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotlap_agent::server::{ServerService, ServerSetting};
use hotlap_agent::{
    AgentRole, AgentService, Channel, Clock, RemoteHost, ThisProcess, Wanted, serve,
};
use hotlap_bench::lap::Violation;
use hotlap_bench::local::{LocalRunner, Setting};
use hotlap_bench::participant::{Load, Origin, Participant, Role};
use hotlap_bench::runner::Runner;
use hotlap_servers::contract::{Contract, Name};
use hotlap_servers::launch::Launch;
use hotlap_servers::machine::CpuAllocation;
use hotlap_servers::process::Supervisor;
use hotlap_testkit::{LIMIT, Scene, program};

/// The delay of an order to thaw, which is ten times as long as a slice.
const LATE: Duration = Duration::from_secs(3);

/// A writer that delays orders to thaw, and everything after them, while the flag is set.
struct Delays<W>(W, Arc<AtomicBool>);

impl<W: Write> Write for Delays<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_thaw = bytes.windows(6).any(|word| word == b"\"Thaw\"");
        if is_thaw && self.1.load(Ordering::Relaxed) {
            std::thread::sleep(LATE);
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Regression: the window opened before the server ran, so the lap had few responses or none. Laps
/// also counted if the connection was interrupted during them.
#[test]
fn a_window_does_not_open_before_a_server_on_another_host_is_thawed() {
    let (scene, hotlap) = (Scene::new(), program());
    std::fs::create_dir(scene.path("logs")).unwrap();
    let there = ServerSetting {
        supervisor: Supervisor::new(&hotlap, &["__supervisor"]),
        logs: scene.path("logs"),
        cache: scene.path("cache"),
        catalogue: PathBuf::new(),
        program: hotlap.clone().into(),
    };
    let (input, to_agent) = io::pipe().unwrap();
    let (from_agent, output) = io::pipe().unwrap();
    let service = ServerService::new(there, Clock::default());
    let open = |_| Ok(Box::new(service) as Box<dyn AgentService>);
    let agent = std::thread::spawn(|| serve(input, output, Clock::default(), open, || ()));
    let is_late = Arc::new(AtomicBool::new(false));
    let to_agent = Delays(to_agent, Arc::clone(&is_late));
    let channel = Channel::over("test", AgentRole::Server, LIMIT, to_agent, from_agent).unwrap();
    let wanted = Wanted { starts: true, ..Wanted::default() };
    let host = RemoteHost::over(channel, wanted).unwrap();

    let launch = Launch { argv: vec![hotlap, "__ceiling".into()], ..Launch::default() };
    let (start, contract) = (Origin::Launch(launch), Contract::of(Name::Hello, None));
    let participant = Participant::new("it", Role::Reference, start, contract);
    let setting = Setting {
        slices: vec![LATE / 10],
        probe_limit: Duration::ZERO,
        timeout: LIMIT,
        start_limit: LIMIT,
        level_for: Duration::ZERO,
        warm_limit: Duration::from_secs(1),
        grace: Duration::ZERO,
        freeze: true,
        counters: false,
        cores: CpuAllocation { server: vec![], generator: vec![], shared: true, notes: vec![] },
        host: Arc::new(host),
        generator: Arc::new(ThisProcess),
        against: [].into(),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let mut runner = LocalRunner::new(setting, &[participant], &[Load::new(2)], stop);
    runner.bring_up(0).unwrap();
    runner.warm(0, 0, &mut |_| ()).unwrap();
    // The first slice opens its own connections, for which the server is thawed.
    runner.slice(0, 0).unwrap();
    is_late.store(true, Ordering::Relaxed);
    runner.slice(0, 0).unwrap();
    is_late.store(false, Ordering::Relaxed);
    let lap = runner.lap(0, 0).unwrap();
    let longest = Duration::from_nanos(lap.outcome.service_time.max());
    assert!(longest < LATE / 2, "a request waited {longest:?} for a server that was frozen");
    let is_silence = |failed: &Violation| matches!(failed, Violation::Silence { .. });
    assert!(lap.failed.iter().any(is_silence), "{:?}", lap.failed);
    assert!(!lap.counts());
    runner.stop(&[0]);
    drop(runner);
    agent.join().unwrap();
}
