//! What tests of processes share: the stand-in program, and waiting with a bound.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hotlap_harness::cores::Split;
use hotlap_harness::entrant::Load;
use hotlap_harness::live;
use hotlap_harness::process::{Process, Setting, Standby, Warden};
use hotlap_harness::tree::{self, Member};
use hotlap_load::plan::Reuse;

/// A hang is an error; a busy machine is not.
pub const LIMIT: Duration = Duration::from_secs(30);

/// The example that `cargo test` builds beside the tests.
pub fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples/stand-in");
    assert!(program.exists(), "{} is not built: `cargo build --examples`", program.display());
    program
}

pub fn warden() -> Warden {
    Warden::new(program(), &["warden"])
}

pub fn setting(folder: &Path, argv: &[&str]) -> Setting {
    Setting {
        argv: argv.iter().map(ToString::to_string).collect(),
        env: [("FOLDER".to_owned(), folder.display().to_string())].into(),
        cwd: folder.to_owned(),
        cpus: vec![],
        log: folder.join("log"),
    }
}

#[allow(dead_code, reason = "not each test needs it")]
pub fn shell(folder: &Path, script: &str) -> Process {
    Standby::new(&setting(folder, &["sh", "-c", script]), &warden()).unwrap().go().unwrap()
}

/// Waits until something is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until none of these processes runs any more.
#[allow(dead_code, reason = "not each test needs it")]
pub fn gone(members: &[Member]) {
    until("the whole tree is gone", || still_there(members).is_empty());
}

/// Those of these processes that still run, whatever their parents are now.
#[allow(dead_code, reason = "not each test needs it")]
pub fn still_there(members: &[Member]) -> Vec<Member> {
    let is = |now: &Member, then: &Member| now.pid == then.pid && now.started == then.started;
    let table = tree::all().unwrap();
    table.into_iter().filter(|now| !now.zombie && members.iter().any(|m| is(now, m))).collect()
}

/// How real tracks are set up in tests: one slice length, no pinning, nothing probed.
#[allow(dead_code, reason = "not each test needs it")]
pub fn live(slice: Duration, logs: &Path) -> live::Setting {
    live::Setting {
        slice: Some(slice),
        probe_limit: Duration::ZERO,
        timeout: LIMIT,
        start_limit: LIMIT,
        warm_limit: Duration::from_secs(1),
        grace: Duration::ZERO,
        freeze: true,
        counters: false,
        cores: Split { server: vec![], generator: vec![], shared: true, notes: vec![] },
        warden: warden(),
        logs: logs.to_owned(),
        against: [].into(),
    }
}

/// A load of two connections that are kept alive.
#[allow(dead_code, reason = "not each test needs it")]
pub fn load() -> Load {
    Load {
        name: String::new(),
        connections: 2,
        threads: 1,
        reuse: Reuse::KeepAlive,
        pipeline: 1,
        request: 0,
        rate: None,
    }
}
