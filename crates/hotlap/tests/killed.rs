//! However hotlap is ended, no process that it started stays behind. Its store opens, finished laps
//! are in the store, and an installation that has begun is completed.
//!
//! `HOTLAP_KILLS=200 cargo test -p hotlap --test killed at_any_moment` kills it at 200 random
//! moments. Without the variable, at a few.
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

/// A scene with two servers that are built first.
fn scene() -> Scene {
    let scene = Scene::new();
    for id in ["sh/one", "sh/two"] {
        let build = "build = [[\"sh\", \"-c\", \"sleep 0.2 & setsid sleep 0.2 & wait\"]]";
        let toolchain = format!("probe = [\"true\"]\n{build}");
        scene.server(id, &toolchain, &[&program(), "__ceiling"]);
    }
    scene
}

/// A run of a few seconds.
fn run(scene: &Scene) -> Hotlap {
    scene.hotlap("run --rounds 2 --slice 12ms --no-pin --store store.db --export-json out.json")
}

fn short_run(scene: &Scene) -> Hotlap {
    run(scene).words("--restarts 1")
}

/// A run that outlasts its test, on however busy a machine.
fn long_run(scene: &Scene) -> Hotlap {
    run(scene).words("--restarts 200")
}

/// The state of the run that is stored and its laps, read beside hotlap. None where there is no
/// store yet.
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

/// Waits until some laps are stored.
fn until_it_laps(scene: &Scene, running: &mut Running) -> u64 {
    running.until("it stores laps", || laps(scene) > 2);
    laps(scene)
}

/// Nothing stays behind, and the store opens, is whole, and has at least so many laps.
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

/// A run came to its end: it is invalid where a busy machine spoiled all of its laps.
fn is_over(scene: &Scene) {
    assert!(matches!(state(scene), RunState::Finished | RunState::Invalid), "{:?}", state(scene));
}

/// What follows the kill of a run: a run whose only server fails.
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
        // One moment in each of so many equal parts of the time.
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

/// No process, folder or shared memory of a database stays behind. The next command removes the
/// folder.
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
        // A run with a database has begun all of its steps after four seconds.
        let random = RandomState::new().hash_one(kill) as f64 / u64::MAX as f64;
        std::thread::sleep(Duration::from_secs_f64(4.0 * random));
        let logs = scene.path("cache/logs");
        let notes = || {
            let runs = std::fs::read_dir(&logs).into_iter().flatten().flatten();
            runs.filter_map(|run| std::fs::read_to_string(run.path().join("database")).ok())
        };
        let folders: Vec<PathBuf> = notes().map(PathBuf::from).collect();
        // Every other time together with the supervisors, as `kill -9 -1` does.
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
        assert_eq!(notes().count(), 0);
    }
}

/// `timeout` sends SIGTERM twice, at once: the second ended hotlap before it had printed anything.
#[test]
fn a_signal_that_is_sent_twice_at_once_is_one_request() {
    let scene = scene();
    let mut running = long_run(&scene).words("sh/one sh/two").start();
    let laps = until_it_laps(&scene, &mut running);
    // All of them arrive when it goes on. It takes different signals alike.
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
    // It takes its whole time to end.
    let deaf = format!("sh -c \"trap '' TERM; {}; sleep 100\"", ceiling());
    let mut running = long_run(&scene).args([&deaf, "sh/one"]).start();
    let laps = until_it_laps(&scene, &mut running);
    // What comes within a second of the first is the same request. Its servers have five.
    while !running.has_ended() {
        running.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(100));
    }
    running.end().fails(130);
    assert_eq!(state(&scene), RunState::UnderWay, "it did not wait for its servers");
    is_whole(&scene, laps);
}

/// Exports were not written once the terminal was gone.
#[test]
fn a_terminal_that_is_closed_loses_nothing() {
    let scene = scene();
    let (terminal, theirs) = pty();
    // The tests may have been started by nohup.
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

/// The write fails with EIO there, where it fails with EPIPE on a pipe: it was an error.
#[test]
fn a_terminal_that_was_closed_is_an_end_like_a_closed_pipe() {
    let scene = scene();
    let (terminal, theirs) = pty();
    drop(terminal);
    let list = |out: File| scene.hotlap("list").start_with(|list| _ = list.stdout(out)).end();
    assert_eq!(list(theirs).succeeds().err, "");
}

/// Regression: the help and the version were lost, and the exit code was 0.
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

/// `hotlap run … | head -1`: the exports were lost, and a failure was exit code 0.
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

/// Ctrl-C reaches the whole group in the foreground. hotlap stops its servers itself.
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

/// Logs of servers of a run that was killed stayed behind for ever.
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

/// A server that leaves its group, with a process that outlives it.
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

/// Regression: in 32 of 34 cases, processes of servers were left, most of them stopped for ever.
#[test]
fn what_a_killed_run_and_its_killed_supervisors_leave_is_ended_by_the_next_run() {
    let scene = scene();
    let mut running = long_run(&scene).arg(leaves()).start();
    until_it_laps(&scene, &mut running);
    // A supervisor that outlived hotlap would end the servers.
    running.signal(Signal::STOP);
    kill_supervisors(&scene);
    running.kill();
    let is_left = |(_, command): &(i32, String)| command.starts_with("sleep 600");
    assert!(scene.processes().iter().any(is_left), "nothing is left: the test tests nothing");
    next_run(&scene);
    scene.is_clean();
}

/// Regression: hotlap stopped processes whose supervisor had been killed, and never thawed or ended
/// them.
#[test]
fn a_run_whose_supervisors_are_killed_leaves_nothing() {
    let scene = scene();
    let mut running = long_run(&scene).args([leaves(), leaves()]).start();
    until_it_laps(&scene, &mut running);
    kill_supervisors(&scene);
    running.end().fails(3);
    scene.is_clean();
}

/// What stands for apt-get: it begins, waits for a file to appear, and goes on.
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

/// `hotlap setup --yes` in a scene with a server that lacks a package, and a package manager.
fn setup(scene: &Scene) -> Hotlap {
    scene.write_program("bin/apt-get", APT_GET);
    scene.write_program("bin/sudo", "#!/bin/sh\nexec \"$@\"\n");
    let lacks = "probe = [\"no-such-tool\"]\ninstall = { apt = [\"no-such-package\"] }";
    scene.server("sh/one", lacks, &["true"]);
    let path = format!("{}:{}", scene.file("bin"), std::env::var("PATH").unwrap());
    scene.hotlap("setup --yes").env("PATH", path)
}

const WAITS: &str = "Waiting for the package manager";

/// The package manager comes to its end, and its log has all that it said.
fn installs_to_the_end(scene: &Scene) {
    scene.write("go", "");
    until("all is installed", || scene.path("installed").exists());
    let log = scene.read("cache/setup.log");
    assert!(log.contains("install --no-install-recommends --yes -- no-such-package\n"), "{log}");
    assert!(log.ends_with("\nUnpacking one\nUnpacking two\n"), "{log}");
}

/// It wrote to a pipe, whose end ended it between two packages.
#[test]
fn a_package_manager_outlives_a_hotlap_that_is_killed() {
    let scene = Scene::new();
    let mut running = setup(&scene).start_with(|setup| _ = setup.process_group(0));
    running.until("it begins to install", || scene.path("begun").exists());
    // As `kill -9 -<group>` does, which reaches what hotlap has started in its own group.
    kill_process_group(running.pid(), Signal::KILL).unwrap();
    running.kill();
    assert!(!scene.path("installed").exists());
    installs_to_the_end(&scene);
}

/// A terminal that is closed sends SIGHUP to all processes in its foreground. `nohup` ignores it.
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

/// Ctrl-C ended the package manager together with hotlap.
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
