//! Shared code of the tests of processes: the stand-in program, and waiting with a time limit.

use std::path::{Path, PathBuf};

use hotlap_observe::{Member, processes};
use hotlap_servers::process::{Process, ProcessSetting, Standby, Supervisor};
pub use hotlap_testkit::{LIMIT, until};

/// Returns the path of the example that `cargo test` builds next to the tests.
pub fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples/stand-in");
    assert!(
        program.exists(),
        "{} is not built: cargo build -p hotlap-servers --examples",
        program.display()
    );
    program
}

pub fn supervisor() -> Supervisor {
    Supervisor::new(program(), &["supervisor"])
}

pub fn setting(folder: &Path, argv: &[&str]) -> ProcessSetting {
    ProcessSetting {
        argv: argv.iter().map(ToString::to_string).collect(),
        env: [("FOLDER".to_owned(), folder.display().to_string())].into(),
        cwd: folder.to_owned(),
        cpus: vec![],
        log: folder.join("log"),
    }
}

#[allow(dead_code, reason = "not each test needs it")]
pub fn shell(folder: &Path, script: &str) -> Process {
    Standby::new(&setting(folder, &["sh", "-c", script]), &supervisor()).unwrap().go().unwrap()
}

/// Waits until none of these processes runs.
#[allow(dead_code, reason = "not each test needs it")]
pub fn gone(members: &[Member]) {
    until("the whole tree is gone", || still_there(members).is_empty());
}

/// Returns the processes in `members` that still run, whatever their parents are now.
#[allow(dead_code, reason = "not each test needs it")]
pub fn still_there(members: &[Member]) -> Vec<Member> {
    let is = |now: &Member, then: &Member| now.pid == then.pid && now.started == then.started;
    let table = processes::all().unwrap();
    table.into_iter().filter(|now| !now.zombie && members.iter().any(|m| is(now, m))).collect()
}
