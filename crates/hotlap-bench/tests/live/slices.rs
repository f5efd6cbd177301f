//! Tests in which real processes are frozen, thawed and measured in laps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotlap_bench::experiment::{Event, Experiment, Over};
use hotlap_bench::lap::{Lap, Violation};
use hotlap_bench::local::LocalRunner;
use hotlap_bench::participant::{Origin, Participant, Role};
use hotlap_bench::schedule;

use crate::setting::{as_nobody, launch, load, participant, permit, setting};
use crate::stand_in::{program, until};

/// The CPU time that the stand-in's server uses per response, in nanoseconds.
const COST: f64 = 200_000.0;

/// A script that serves, and counts its responses in a file named after the process.
const SERVE: &str = "exec $STAND_IN count $PORT $FOLDER/$$";

/// The results of a run: its laps, how it ended, and the notes on the servers' starts.
struct Ran {
    laps: Vec<Lap>,
    over: Over,
    notes: Vec<String>,
}

/// Runs these servers for one restart of this many rounds, in slices of 12 ms. Before each slice,
/// `watch` gets the number of the slice's server and the laps so far.
fn laps(
    folder: &Path,
    scripts: [&str; 2],
    rounds: u32,
    mut watch: impl FnMut(usize, &[Lap]),
) -> Ran {
    let roles = [Role::Reference, Role::Plain];
    let participants: Vec<Participant> = scripts
        .iter()
        .zip(roles)
        .map(|(script, role)| participant(script, role, Origin::Launch(launch(folder, script))))
        .collect();
    let experiment = Experiment {
        restarts: Some(1),
        rounds: Some(rounds),
        slices: vec![Duration::from_millis(12)],
        seed: 1,
        ..Experiment::new(participants, vec![load()], Duration::from_secs(60))
    };
    let setting = setting(Duration::from_millis(12), folder);
    let stop = Arc::new(AtomicBool::new(false));
    let mut runner = LocalRunner::new(setting, &experiment.participants, &experiment.loads, stop);
    let (mut laps, mut notes) = (Vec::new(), Vec::new());
    let over = schedule::run(&experiment, &mut runner, &mut |event| match event {
        Event::Lapping { participant, .. } => watch(participant, &laps),
        Event::Lap(lap) => laps.push(lap.clone()),
        Event::Started { ready, .. } => notes.extend(ready.notes.iter().cloned()),
        Event::ServerFailure { participant, why } => panic!("{participant} is out: {why:?}"),
        _ => {}
    });
    Ran { laps, over, notes }
}

/// The state of a server's process.
#[derive(Debug, Clone)]
struct Look {
    /// The state of each thread of the process, as in `/proc`. `T` means stopped.
    states: Vec<char>,
    /// The number of responses that the server has counted.
    responses: u64,
    /// CPU time, in ticks of 10 ms: user and system time, each rounded down.
    ticks: u64,
}

impl Look {
    /// Whether all threads of the process have stopped.
    fn has_stopped(&self) -> bool {
        self.states.iter().all(|state| *state == 'T')
    }
}

/// Finds the servers that run with this folder, by process id.
fn servers(folder: &Path) -> BTreeMap<u32, Look> {
    let own = format!("FOLDER={}", folder.display());
    let is_server = |pid: &u32| {
        let read = |what| std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let has = |text: Vec<u8>, part: &[u8]| text.windows(part.len()).any(|bytes| bytes == part);
        has(read("environ"), own.as_bytes()) && !has(read("cmdline"), b"supervisor")
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_server).filter_map(|pid| Some((pid, look(folder, pid)?))).collect()
}

fn look(folder: &Path, pid: u32) -> Option<Look> {
    let fields = |path: PathBuf| -> Option<Vec<String>> {
        let stat = std::fs::read_to_string(path.join("stat")).ok()?;
        Some(stat.rsplit(") ").next()?.split(' ').map(str::to_owned).collect())
    };
    let process = PathBuf::from(format!("/proc/{pid}"));
    let threads = std::fs::read_dir(process.join("task")).ok()?.flatten();
    let state = |thread: std::fs::DirEntry| fields(thread.path())?[0].chars().next();
    let states = threads.filter_map(state).collect();
    let fields = fields(process)?;
    let responses = std::fs::metadata(folder.join(pid.to_string())).map_or(0, |file| file.len());
    let ticks = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
    Some(Look { states, responses, ticks })
}

/// Returns how many of the servers that run with this folder have stopped, and how many have not.
fn stopped(folder: &Path) -> (usize, usize) {
    let servers = servers(folder);
    let stopped = servers.values().filter(|look| look.has_stopped()).count();
    (stopped, servers.len() - stopped)
}

/// All servers are stopped at each look. Between two looks, only the server that had a slice may
/// have responded, and its measured usage must be part of its total. The test passes however long
/// each step takes.
#[test]
fn servers_run_in_their_slices_only_and_are_measured_correctly() {
    const TICK_NS: u64 = 10_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut slices = Vec::new();
    let Ran { laps, over, notes } = laps(path, [SERVE, SERVE], 2, |server, laps| {
        until("both have stopped between two slices", || stopped(path) == (2, 0));
        slices.push((server, laps.len(), servers(path)));
    });
    assert_eq!((over, laps.len()), (Over::Done, 2 * 2 * 2));
    assert_eq!(notes, [""; 0]);
    // A lap of this length has eight slices.
    let own = |lap: &Lap| lap.usage.and_then(|usage| usage.slices).expect("it is measured");
    let a_lap = own(&laps[0]);
    assert!(a_lap >= 8 && laps.iter().all(|lap| own(lap) == a_lap), "{a_lap}");
    assert_eq!(slices.len(), a_lap as usize * laps.len());

    // The first slice in which a process has responded shows which server the process belongs to.
    let mut pids = BTreeMap::new();
    for pair in slices.windows(2) {
        let ((server, _, before), (.., after)) = (&pair[0], &pair[1]);
        for pid in after.keys().filter(|pid| after[*pid].responses > before[*pid].responses) {
            let own = pids.entry(*server).or_insert(*pid);
            assert_eq!(own, pid, "it answered in a slice of {server}");
        }
    }
    assert_eq!((pids.len(), pids[&0] == pids[&1]), (2, false));

    let (_, ended, last) = &slices[slices.len() - 1];
    for (server, pid) in pids {
        let own: Vec<&Lap> = laps.iter().filter(|lap| lap.server == server).collect();
        for lap in &own {
            // These two checks can fail because the machine is busy with something else.
            let is_busy = |violation: &Violation| {
                matches!(violation, Violation::Generator { .. } | Violation::LittlesLaw { .. })
            };
            assert!(lap.failed.iter().all(is_busy), "{:?}", lap.failed);
        }
        // Only count laps that had ended by the last look.
        let ended = laps[..*ended].iter().filter(|lap| lap.server == server);
        let usages: Vec<_> = ended.filter_map(|lap| lap.usage).collect();
        let (first, last) = (&slices[0].2[&pid], &last[&pid]);
        let measured_ns: u64 = usages.iter().filter_map(|usage| usage.cpu_ns).sum();
        let used_ns = (last.ticks - first.ticks + 2) * TICK_NS;
        assert!(measured_ns <= used_ns, "{measured_ns} of {used_ns} ns");
        // At the first look, a response may have been under way on each of two connections.
        let requests: u64 = usages.iter().map(|usage| usage.requests).sum();
        let responses = last.responses - first.responses + 2;
        assert!(requests <= responses, "{requests} of {responses} requests");
        let costs: Vec<f64> = own.iter().filter_map(|lap| lap.cost_ns()).collect();
        assert!(costs.iter().any(|cost| *cost >= COST), "{costs:?} ns a request");
    }
    assert!(servers(path).is_empty(), "all are stopped at the end");
}

/// Regression: requests during a stall longer than a slice were answered in no slice, so the stall
/// was not seen.
#[test]
fn a_stall_longer_than_a_slice_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let hang = folder.path().join("hang");
    let mut slices = 0;
    let script = "exec $STAND_IN hang $PORT $FOLDER/hang";
    let Ran { laps, over, .. } = laps(folder.path(), [SERVE, script], 4, |server, _| {
        slices += server;
        // The server does not respond in 20 of its slices. It has at least 64 slices.
        match slices {
            10..30 => std::fs::write(&hang, "").unwrap(),
            30 => _ = std::fs::remove_file(&hang),
            _ => {}
        }
    });
    assert!(over == Over::Done && slices >= 64, "{over:?} after {slices} slices");
    let longest_ms = |server: usize| {
        let own = laps.iter().filter(|lap| lap.server == server);
        let ages = own.map(|lap| {
            lap.outcome.service_time_censored.open.max().max(lap.outcome.service_time.max())
        });
        ages.max().unwrap_or_default() as f64 / 1e6
    };
    assert!(longest_ms(1) > 30.0, "{} ms is less than three slices", longest_ms(1));
}

/// Runs a server with a process that belongs to root, which another user cannot stop. The next test
/// runs this one as that user and reads `TEST_FOLDER/result`.
#[test]
#[ignore = "run as another user by the test after it"]
fn as_another_user() {
    let folder = PathBuf::from(std::env::var_os("TEST_FOLDER").unwrap());
    let guarded = "$FOLDER/become --reuid=0 --regid=0 --clear-groups sh -c '
            echo $$ > $FOLDER/roots; exec sleep 1001' &
        while [ ! -s $FOLDER/roots ]; do sleep 0.01; done
        exec $STAND_IN serve $PORT";
    let (mut slices, mut frozen) = (0, 0);
    let ran = laps(&folder, [SERVE, guarded], 1, |_, _| {
        slices += 1;
        frozen += stopped(&folder).0;
        // Only root can end the guarded process. The next test ends it once this file counts enough
        // slices.
        std::fs::write(folder.join("slices"), slices.to_string()).unwrap();
    });
    let valid = ran.laps.iter().filter(|lap| lap.cost_ns().is_some()).count();
    let notes = ran.notes.join("\n");
    let result = format!("{:?}, {valid} laps, {frozen} stopped\n{notes}", ran.over);
    std::fs::write(folder.join("result"), result).unwrap();
}

/// If one server cannot be frozen, no server is frozen from then on, and the run reports the cause.
#[test]
fn a_run_goes_on_without_freezing_where_a_freeze_is_refused() {
    let own = std::env::current_exe().unwrap();
    let Some(mut nobody) = as_nobody(&program()).and_then(|_| as_nobody(&own)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    permit(path, 0o777);
    std::fs::copy("/usr/bin/setpriv", path.join("become")).unwrap();
    permit(&path.join("become"), 0o4755);
    nobody.args(["--exact", "slices::as_another_user", "--ignored"]).env("TEST_FOLDER", path);
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
    let told = "the server cannot be frozen, so this run continues as with --no-freeze: ";
    assert_eq!(result.matches(told).count(), 1, "{result}");
    assert!(result.contains("): Operation not permitted"), "{result}");
}
