//! Real processes that are frozen, thawed and measured in laps.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotlap_bench::experiment::{Event, Experiment, Over, Past, Place};
use hotlap_bench::lap::{Lap, Violation};
use hotlap_bench::local::LocalRunner;
use hotlap_bench::participant::{Origin, Participant, Role};
use hotlap_bench::schedule;
use hotlap_servers::contract::{Contract, Name};
use hotlap_servers::launch::Launch;
use hotlap_servers::verify::Requirements;

mod setting;
#[path = "../../hotlap-servers/tests/stand_in/mod.rs"]
mod stand_in;
use setting::{load, setting};
use stand_in::{program, until};

/// What the stand-in's server spends on a response, in nanoseconds.
const COST: f64 = 200_000.0;

fn participant(folder: &Path, name: &str, script: &str, role: Role) -> Participant {
    let launch = Launch {
        argv: ["sh", "-c", script].map(str::to_owned).into(),
        env: BTreeMap::from([
            ("FOLDER".to_owned(), folder.display().to_string()),
            ("STAND_IN".to_owned(), program().display().to_string()),
        ]),
        cwd: folder.to_owned(),
    };
    Participant {
        name: name.to_owned(),
        role,
        start: Origin::Launch(launch),
        contract: Contract::of(Name::Hello, None),
        requirements: Requirements::Custom,
        version: String::new(),
        counts: None,
        cpus: None,
    }
}

/// A script that serves.
const SERVE: &str = "exec $STAND_IN serve $PORT";

/// What came of a run: its laps, how it ended, and what was said of the servers' starts.
struct Ran {
    laps: Vec<Lap>,
    over: Over,
    notes: Vec<String>,
}

/// Runs these for a restart of so many rounds in slices of 12 ms; `watch` sees each slice begin.
fn laps(folder: &Path, scripts: [&str; 2], rounds: u32, mut watch: impl FnMut()) -> Ran {
    let roles = [Role::Reference, Role::Plain];
    let participants: Vec<Participant> = scripts
        .iter()
        .zip(roles)
        .map(|(script, role)| participant(folder, script, script, role))
        .collect();
    let experiment = Experiment {
        participants,
        loads: vec![load()],
        budget: Duration::from_secs(60),
        precision: None,
        restarts: Some(1),
        rounds: Some(rounds),
        slice: Some(Duration::from_millis(12)),
        paced: false,
        rate: None,
        seed: 1,
        from: Place::default(),
        past: Past::default(),
    };
    let setting = setting(Duration::from_millis(12), folder);
    let stop = Arc::new(AtomicBool::new(false));
    let mut runner = LocalRunner::new(setting, &experiment.participants, &experiment.loads, stop);
    let (mut laps, mut notes) = (Vec::new(), Vec::new());
    let over = schedule::run(&experiment, &mut runner, &mut |event| match event {
        Event::Lapping { .. } => watch(),
        Event::Lap(lap) => laps.push(lap.clone()),
        Event::Started { ready, .. } => notes.extend(ready.notes.iter().cloned()),
        Event::ServerFailure { participant, why } => panic!("{participant} is out: {why:?}"),
        _ => {}
    });
    Ran { laps, over, notes }
}

/// The states of the servers that run with this folder, as `/proc` names them: `T` is stopped.
fn states(folder: &Path) -> Vec<char> {
    let own = format!("FOLDER={}", folder.display());
    let is_server = |pid: &u32| {
        let read = |what| std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let has = |text: Vec<u8>, part: &[u8]| text.windows(part.len()).any(|bytes| bytes == part);
        has(read("environ"), own.as_bytes()) && !has(read("cmdline"), b"supervisor")
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_server)
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok())
        .filter_map(|stat| stat.rsplit(')').next()?.trim_start().chars().next())
        .collect()
}

#[test]
fn servers_run_in_their_slices_only_and_cost_what_they_cost() {
    let folder = tempfile::tempdir().unwrap();
    let mut frozen = 0;
    let Ran { laps, over, notes } = laps(folder.path(), [SERVE, SERVE], 2, || {
        let states = states(folder.path());
        assert_eq!(states, ['T', 'T'], "between two slices");
        frozen += 1;
    });
    assert_eq!((over, laps.len()), (Over::Done, 2 * 2 * 2));
    assert_eq!(notes, [""; 0]);
    // Eight slices a lap.
    assert_eq!(frozen, 8 * laps.len());
    for lap in &laps {
        let usage = lap.usage.as_ref().expect("it is measured");
        assert_eq!(usage.slices, Some(8));
        let cost = lap.cost_ns().expect("it answers");
        assert!((COST..2.5 * COST).contains(&cost), "{cost} ns a request");
        let is_wrong = |violation: &Violation| !matches!(violation, Violation::Generator { .. });
        assert!(!lap.failed.iter().any(is_wrong), "{:?}", lap.failed);
    }
    assert_eq!(states(folder.path()), [], "all are stopped at the end");
}

/// A hang that is longer than a slice was answered in none, and so was seen in none.
#[test]
fn a_hang_that_is_longer_than_a_slice_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let hangs = "exec $STAND_IN hang $PORT 150 300";
    let Ran { laps, over, .. } = laps(folder.path(), [SERVE, hangs], 4, || {});
    assert_eq!(over, Over::Done);
    let longest_ms = |server: usize| {
        let own = laps.iter().filter(|lap| lap.participant == server);
        let ages = own.map(|lap| {
            lap.outcome.service_time_censored.open.max().max(lap.outcome.service_time.max())
        });
        ages.max().unwrap_or_default() as f64 / 1e6
    };
    assert!(longest_ms(1) > 30.0, "{} ms is less than three slices", longest_ms(1));
}

/// A run whose second server has a process of root's, which another user may not stop. A test below
/// runs this as that user; what it finds is in `TEST_FOLDER/result`.
#[test]
#[ignore = "run as another user by the test after it"]
fn as_another_user() {
    let folder = std::path::PathBuf::from(std::env::var_os("TEST_FOLDER").unwrap());
    let guarded = "$FOLDER/become --reuid=0 --regid=0 --clear-groups sh -c '
            echo $$ > $FOLDER/roots; exec sleep 1001' &
        while [ ! -s $FOLDER/roots ]; do sleep 0.01; done
        exec $STAND_IN serve $PORT";
    let (mut slices, mut stopped) = (0, 0);
    let ran = laps(&folder, [SERVE, guarded], 1, || {
        slices += 1;
        stopped += states(&folder).iter().filter(|state| **state == 'T').count();
        // Only root can end it, so it must be gone before the run ends.
        std::fs::write(folder.join("slices"), slices.to_string()).unwrap();
    });
    let valid = ran.laps.iter().filter(|lap| lap.cost_ns().is_some()).count();
    let notes = ran.notes.join("\n");
    let result = format!("{:?}, {valid} laps, {stopped} stopped\n{notes}", ran.over);
    std::fs::write(folder.join("result"), result).unwrap();
}

/// When one server may not be frozen, none is from then on, and the run says so.
#[test]
fn a_run_goes_on_without_freezing_where_a_freeze_is_refused() {
    let Some(mut nobody) = another_user() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    permit(path, 0o777);
    std::fs::copy("/usr/bin/setpriv", path.join("become")).unwrap();
    permit(&path.join("become"), 0o4755);
    nobody.args(["--exact", "as_another_user", "--ignored"]).env("TEST_FOLDER", path);
    let mut run = nobody.spawn().unwrap();
    until("slices were run", || {
        let slices = std::fs::read_to_string(path.join("slices")).unwrap_or_default();
        slices.parse().is_ok_and(|slices: u32| slices > 4) || run.try_wait().unwrap().is_some()
    });
    let roots = std::fs::read_to_string(path.join("roots")).unwrap();
    let roots = rustix::process::Pid::from_raw(roots.trim().parse().unwrap()).unwrap();
    let _ = rustix::process::kill_process(roots, rustix::process::Signal::KILL);
    assert!(run.wait().unwrap().success());
    let result = std::fs::read_to_string(path.join("result")).unwrap();
    assert!(result.starts_with("Done, 4 laps, 0 stopped\n"), "{result}");
    let told = "it cannot be frozen, so this run goes on as with --no-freeze: ";
    assert_eq!(result.matches(told).count(), 1, "{result}");
    assert!(result.contains("may not be stopped: Operation not permitted"), "{result}");
}

/// This test program as another user, where these tests run as root and that user may execute it.
#[expect(clippy::print_stderr, reason = "a test that is skipped must say so")]
fn another_user() -> Option<std::process::Command> {
    let nobody = || {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command
    };
    let own = std::env::current_exe().unwrap();
    let may =
        |path: &Path| nobody().args(["test", "-x"]).arg(path).status().is_ok_and(|s| s.success());
    if !rustix::process::geteuid().is_root() || !may(&own) || !may(&program()) {
        eprintln!("skipped: it takes root, setpriv, and a target folder that others may read");
        return None;
    }
    let mut command = nobody();
    command.arg(own);
    Some(command)
}

fn permit(path: &Path, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).unwrap();
}
