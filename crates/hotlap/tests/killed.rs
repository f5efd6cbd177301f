//! However hotlap is ended, no process that it started stays behind. The store still opens and has
//! all finished laps. An installation that has begun is completed.
//!
//! `HOTLAP_KILLS=200 cargo test -p hotlap --test killed at_any_moment` kills hotlap at 200 random
//! moments. Without the variable, the tests kill hotlap at a few moments.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hotlap::model::RunState;
use hotlap::store::Store;
use hotlap_servers::database::Programs;
use hotlap_testkit::{Hotlap, Running, Scene, ceiling, program, pty, until};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Returns a scene with two servers that must be built before they start.
fn scene() -> Scene {
    let scene = Scene::new();
    for id in ["sh/one", "sh/two"] {
        let build = "build = [[\"sh\", \"-c\", \"sleep 0.2 & setsid sleep 0.2 & wait\"]]";
        let toolchain = format!("probe = [\"true\"]\n{build}");
        scene.server(id, &toolchain, &[&program(), "__ceiling"]);
    }
    scene
}

/// Returns a run without a number of restarts, which the caller adds.
fn run(scene: &Scene) -> Hotlap {
    scene.hotlap("run --rounds 2 --slice 12ms --no-pin --store store.db --export-json out.json")
}

fn short_run(scene: &Scene) -> Hotlap {
    run(scene).words("--restarts 1")
}

/// Returns a run that outlasts its test even on a busy machine.
fn long_run(scene: &Scene) -> Hotlap {
    run(scene).words("--restarts 200")
}

/// Reads the state and the number of laps of the stored run while hotlap may be running. Returns
/// `None` while there is no store.
fn stored(scene: &Scene) -> Option<(RunState, u64)> {
    let lines = Store::open_existing(&scene.path("store.db")).ok()?.lines(None).ok()?;
    lines.first().map(|run| (run.state, run.laps))
}

fn laps(scene: &Scene) -> u64 {
    stored(scene).map_or(0, |(_, laps)| laps)
}

fn state(scene: &Scene) -> RunState {
    stored(scene).expect("a run").0
}

/// Waits until some laps are stored, and returns their number.
fn until_it_laps(scene: &Scene, running: &mut Running) -> u64 {
    running.until("it stores laps", || laps(scene) > 2);
    laps(scene)
}

/// Asserts that no process stays behind and that the store is whole and has at least `least` laps.
fn is_whole(scene: &Scene, least: u64) {
    scene.is_clean();
    if !scene.path("store.db").exists() {
        assert_eq!(least, 0);
        return;
    }
    let history = scene.hotlap("history --json --store store.db").said();
    assert!(history.code == Some(0) || history.err.contains("no run is stored"), "{history:?}");
    let store = Connection::open(scene.path("store.db")).unwrap();
    let check: String = store.query_row("PRAGMA integrity_check", [], |r| r.get(0)).unwrap();
    assert_eq!(check, "ok");
    assert!(laps(scene) >= least, "{} of {least} laps", laps(scene));
}

/// Asserts that a run came to its end. The run is invalid if a busy machine spoiled all of its
/// laps.
fn is_over(scene: &Scene) {
    assert!(matches!(state(scene), RunState::Finished | RunState::Invalid), "{:?}", state(scene));
}

/// Makes the run that follows a killed run. The only server of the new run fails.
fn next_run(scene: &Scene) {
    run(scene).words("--restarts 1 false").said().fails(3);
}

#[test]
fn killed_at_any_moment_it_leaves_no_process_and_a_whole_store() {
    let kills = std::env::var("HOTLAP_KILLS").map_or(6, |text| text.parse().unwrap());
    let whole = {
        let (scene, began) = (scene(), Instant::now());
        short_run(&scene).words("sh/one sh/two").said().measured();
        assert!(scene.path("out.json").exists());
        began.elapsed()
    };
    for kill in 0..kills {
        // The time is divided into equal parts, and each kill happens at a random moment of its
        // part.
        let random = RandomState::new().hash_one(kill) as f64 / u64::MAX as f64;
        let moment = whole.mul_f64((f64::from(kill) + random) / f64::from(kills));
        let scene = scene();
        let mut running = short_run(&scene).words("sh/one sh/two").start();
        let began = Instant::now();
        while began.elapsed() < moment && !running.has_ended() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let laps = laps(&scene);
        running.kill();
        println!("killed after {moment:?} of {whole:?}");
        is_whole(&scene, laps);
    }
}

/// Returns the segments in `/dev/shm` that this scene's PostgreSQL uses. The programs that `initdb`
/// runs are left out, because `initdb` has no option for these segments before PostgreSQL 16.
fn segments(scene: &Scene) -> BTreeSet<PathBuf> {
    let all = scene.processes().into_iter();
    let servers = all.filter(|(_, line)| !line.contains("--boot") && !line.contains("--single"));
    let maps =
        servers.filter_map(|(pid, _)| std::fs::read_to_string(format!("/proc/{pid}/maps")).ok());
    let maps: String = maps.collect();
    let paths = maps.lines().filter_map(|line| line.find("/dev/shm/Postgre").map(|at| &line[at..]));
    paths.map(PathBuf::from).collect()
}

/// The next command removes the folder of a killed run's database. Afterwards, no process, folder
/// or shared memory of the database is left. Regression: 1.1 MB was left in `/dev/shm`.
#[test]
fn killed_at_any_moment_it_leaves_no_database() {
    if let Err(why) = Programs::find(None) {
        println!("skipped: {why}");
        return;
    }
    let kills = std::env::var("HOTLAP_KILLS").map_or(3, |text| text.parse().unwrap());
    for kill in 0..kills {
        let scene = Scene::new();
        scene.write("schema.sql", "CREATE TABLE a (b int PRIMARY KEY);");
        let server = format!("{} __lookup '9 SELECT b FROM a WHERE b = $1'", program());
        let run = long_run(&scene).words("--with-postgres schema.sql").args([&server]);
        let running = run.start();
        // After four seconds, a run with a database has begun all of its steps.
        let random = RandomState::new().hash_one(kill) as f64 / u64::MAX as f64;
        std::thread::sleep(Duration::from_secs_f64(4.0 * random));
        let logs = scene.path("cache/logs");
        let notes = || {
            let runs = std::fs::read_dir(&logs).into_iter().flatten().flatten();
            runs.filter_map(|run| std::fs::read_to_string(run.path().join("database")).ok())
        };
        let folders: Vec<PathBuf> = notes().map(PathBuf::from).collect();
        let segments = segments(&scene);
        // Every other time, the supervisors are killed too, as `kill -9 -1` does.
        let guards: Vec<i32> = match kill % 2 {
            0 => Vec::new(),
            _ => scene
                .processes()
                .into_iter()
                .filter(|(_, name)| name.contains("guard"))
                .map(|(pid, _)| pid)
                .collect(),
        };
        running.kill();
        for guard in &guards {
            let _ = kill_process(Pid::from_raw(*guard).unwrap(), Signal::KILL);
        }
        next_run(&scene);
        scene.is_clean();
        println!("killed after {:.1} s, with {guards:?} and {folders:?}", 4.0 * random);
        assert!(folders.iter().all(|folder| !folder.exists()), "{folders:?}");
        assert!(segments.iter().all(|segment| !segment.exists()), "{segments:?}");
        assert_eq!(notes().count(), 0);
    }
}

/// Regression: `timeout` sends SIGTERM twice at once. The second signal ended hotlap before it had
/// printed anything.
#[test]
fn a_signal_that_is_sent_twice_at_once_is_one_request() {
    let scene = scene();
    let mut running = long_run(&scene).words("sh/one sh/two").start();
    let laps = until_it_laps(&scene, &mut running);
    // All signals arrive when hotlap continues. hotlap treats the different signals alike.
    for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::HUP, Signal::CONT] {
        running.signal(signal);
    }
    running.end().fails(130).has("This run was interrupted");
    is_whole(&scene, laps);
    assert_eq!(state(&scene), RunState::Interrupted);
}

#[test]
fn a_second_ctrl_c_ends_it_at_once_and_leaves_nothing() {
    let scene = scene();
    // The server ignores SIGTERM, so it takes its whole time limit to end.
    let deaf = format!("sh -c \"trap '' TERM; {}; sleep 100\"", ceiling());
    let mut running = long_run(&scene).args([&deaf, "sh/one"]).start();
    let laps = until_it_laps(&scene, &mut running);
    // Signals within a second of the first one count as one request. The servers have five seconds
    // to end.
    while !running.has_ended() {
        running.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(100));
    }
    running.end().fails(130);
    assert_eq!(state(&scene), RunState::UnderWay, "it did not wait for its servers");
    is_whole(&scene, laps);
}

/// Regression: exports were not written once the terminal was gone.
#[test]
fn a_terminal_that_is_closed_loses_nothing() {
    let scene = scene();
    let (terminal, theirs) = pty();
    // The tests may have been started by `nohup`, which ignores SIGHUP.
    let run = long_run(&scene).words("sh/one sh/two");
    let run = run.under("env --default-signal=HUP setsid --ctty");
    let own = || theirs.try_clone().unwrap();
    let mut running = run.start_with(|command| {
        command.stdin(own()).stdout(own()).stderr(own());
    });
    drop(theirs);
    let mut terminal = File::from(terminal);
    running.until("it stores laps", || {
        let _ = terminal.read(&mut [0; 4096]);
        laps(&scene) > 2
    });
    let laps = laps(&scene);
    drop(terminal);
    running.end().fails(130);
    is_whole(&scene, laps);
    assert_eq!(state(&scene), RunState::Interrupted);
    assert!(scene.read("out.json").contains("\"laps\""));
}

/// Regression: a write to a closed terminal was an error. The write fails with EIO, but a write to
/// a closed pipe fails with EPIPE.
#[test]
fn a_terminal_that_was_closed_is_an_end_like_a_closed_pipe() {
    let scene = scene();
    let (terminal, theirs) = pty();
    drop(terminal);
    let list = |out: File| scene.hotlap("list").start_with(|list| _ = list.stdout(out)).end();
    assert_eq!(list(theirs).succeeds().err, "");
}

/// Regression: on a full disk, the help and the version were lost, and the exit code was 0.
#[test]
fn a_full_disk_is_an_error_whatever_is_printed() {
    let scene = scene();
    for line in ["list", "check sh/one", "help run", "run --help", "--version"] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let said = scene.hotlap(line).start_with(|command| _ = command.stdout(full)).end();
        said.fails(1).has("No space left");
    }
}

#[test]
fn under_nohup_a_closed_terminal_is_ignored() {
    let scene = scene();
    let mut running = run(&scene).words("--restarts 2 sh/one").under("nohup").start();
    until_it_laps(&scene, &mut running);
    running.signal(Signal::HUP);
    running.end().measured();
    is_over(&scene);
}

/// Regression: with `hotlap run … | head -1`, the exports were lost, and a failure had exit code 0.
#[test]
fn a_pipe_that_nobody_reads_changes_neither_exports_nor_exit_code() {
    let scene = scene();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let run = short_run(&scene).words("sh/one false");
    run.start_with(|run| _ = run.stdout(writer)).end().fails(3);
    assert!(scene.read("out.json").contains("\"laps\""));
    is_over(&scene);
    scene.is_clean();
}

/// Ctrl-C reaches the whole process group in the foreground. hotlap stops its servers itself.
#[test]
fn ctrl_c_during_a_build_leaves_nothing() {
    let scene = scene();
    let run = long_run(&scene).words("sh/one sh/two");
    let mut running = run.start_with(|run| _ = run.process_group(0));
    running.until("it builds", || scene.path("cache/builds").exists());
    kill_process_group(running.pid(), Signal::INT).unwrap();
    running.end().fails(130);
    scene.is_clean();
}

/// Regression: the server logs of a killed run stayed behind for ever.
#[test]
fn the_next_run_removes_the_logs_of_a_run_that_was_killed_and_no_others() {
    let scene = scene();
    let folders = || -> BTreeSet<PathBuf> {
        let names = scene.names("cache/logs").into_iter();
        let paths = names.map(|name| scene.path("cache/logs").join(name));
        paths.filter(|path| path.join("0.log").exists()).collect()
    };
    let started = || {
        let before = folders();
        let mut running = long_run(&scene).words("sh/one").start();
        running.until("its server logs", || folders().len() > before.len());
        let own = folders().difference(&before).next().unwrap().clone();
        (running, own)
    };
    scene.write("cache/logs/mine/0.log", "a file of the user's");
    let (_alive, of_alive) = started();
    let (killed, of_killed) = started();
    killed.kill();
    assert!(of_killed.exists(), "it had no time to remove them");
    next_run(&scene);
    assert_eq!(folders(), [scene.path("cache/logs/mine"), of_alive].into());
}

/// Returns a server that starts a process outside of its process group. The process outlives the
/// server.
fn leaves() -> String {
    format!("sh -c 'setsid sleep 600 & exec {}'", ceiling())
}

fn kill_supervisors(scene: &Scene) {
    let all = scene.processes().into_iter();
    let supervisors = all.filter(|(_, command)| command.starts_with("server-guard"));
    let supervisors: Vec<i32> = supervisors.map(|(pid, _)| pid).collect();
    assert!(!supervisors.is_empty(), "{:?}", scene.processes());
    for pid in supervisors {
        let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
}

/// Regression: in 32 of 34 cases, processes of servers stayed behind, most of them stopped for
/// ever.
#[test]
fn what_a_killed_run_and_its_killed_supervisors_leave_is_ended_by_the_next_run() {
    let scene = scene();
    let mut running = long_run(&scene).arg(leaves()).start();
    until_it_laps(&scene, &mut running);
    // A supervisor that outlived hotlap would end the servers, so hotlap is stopped first.
    running.signal(Signal::STOP);
    kill_supervisors(&scene);
    running.kill();
    let is_left = |(_, command): &(i32, String)| command.starts_with("sleep 600");
    assert!(scene.processes().iter().any(is_left), "nothing is left: the test tests nothing");
    next_run(&scene);
    scene.is_clean();
}

/// Regression: hotlap stopped processes whose supervisor had been killed, and never thawed or ended
/// these processes.
#[test]
fn a_run_whose_supervisors_are_killed_leaves_nothing() {
    let scene = scene();
    let mut running = long_run(&scene).args([leaves(), leaves()]).start();
    until_it_laps(&scene, &mut running);
    kill_supervisors(&scene);
    running.end().fails(3);
    scene.is_clean();
}

/// A stand-in for apt-get, which begins, waits for a file to appear, and then continues.
const APT_GET: &str = r#"#!/bin/sh
case "$*" in
*--assume-no*) echo "0 upgraded, 0 newly installed"; exit 1 ;;
*update) exit 0 ;;
esac
echo "Unpacking one"
touch begun
n=0
while [ ! -e go ]; do
    sleep 0.05
    n=$((n + 1))
    [ $n -lt 2000 ] || exit 1
done
echo "Unpacking two" || exit 1
touch installed
"#;

/// Returns `hotlap setup --yes` in a scene with a package manager and a server that lacks a
/// package.
fn setup(scene: &Scene) -> Hotlap {
    scene.write_program("bin/apt-get", APT_GET);
    scene.write_program("bin/sudo", "#!/bin/sh\nexec \"$@\"\n");
    let lacks = "probe = [\"no-such-tool\"]\ninstall = { apt = [\"no-such-package\"] }";
    scene.server("sh/one", lacks, &["true"]);
    let path = format!("{}:{}", scene.file("bin"), std::env::var("PATH").unwrap());
    scene.hotlap("setup --yes").env("PATH", path)
}

const WAITS: &str = "Waiting for the package manager";

/// Asserts that the package manager comes to its end, and that its log has all of its output.
fn installs_to_the_end(scene: &Scene) {
    scene.write("go", "");
    until("all is installed", || scene.path("installed").exists());
    let log = scene.read("cache/setup.log");
    assert!(log.contains("install --no-install-recommends --yes -- no-such-package\n"), "{log}");
    assert!(log.ends_with("\nUnpacking one\nUnpacking two\n"), "{log}");
}

/// Regression: the package manager wrote to a pipe. When the pipe closed, the package manager ended
/// between two packages.
#[test]
fn a_package_manager_outlives_a_hotlap_that_is_killed() {
    let scene = Scene::new();
    let mut running = setup(&scene).start_with(|setup| _ = setup.process_group(0));
    running.until("it begins to install", || scene.path("begun").exists());
    // The signal reaches everything that hotlap has started in its own group, as `kill -9 -<group>`
    // does.
    kill_process_group(running.pid(), Signal::KILL).unwrap();
    running.kill();
    assert!(!scene.path("installed").exists());
    installs_to_the_end(&scene);
}

/// A closed terminal sends SIGHUP to all processes in its foreground. A process under `nohup`
/// ignores this signal.
#[test]
fn a_package_manager_outlives_its_terminal() {
    let scene = Scene::new();
    let (terminal, theirs) = pty();
    let own = || theirs.try_clone().unwrap();
    let setup = setup(&scene).under("env --default-signal=HUP setsid --ctty --wait");
    let mut running = setup.start_with(|setup| _ = setup.stdin(own()).stdout(own()));
    drop(theirs);
    running.until("it begins to install", || scene.path("begun").exists());
    drop(terminal);
    until("it says that it waits", || running.so_far().err.contains(WAITS));
    installs_to_the_end(&scene);
    running.end();
}

/// Regression: Ctrl-C ended the package manager together with hotlap.
#[test]
fn ctrl_c_waits_for_the_package_manager_and_says_so() {
    let scene = Scene::new();
    let mut running = setup(&scene).start_with(|setup| _ = setup.process_group(0));
    running.until("it begins to install", || scene.path("begun").exists());
    kill_process_group(running.pid(), Signal::INT).unwrap();
    until("it says that it waits", || running.so_far().err.contains(WAITS));
    assert!(!running.has_ended());
    installs_to_the_end(&scene);
    let said = running.end().fails(130).has("cache/setup.log");
    assert_eq!(said.err.matches(WAITS).count(), 1);
}
