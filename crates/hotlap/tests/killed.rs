//! However hotlap is ended, nothing that it started stays behind, its store opens, and what was
//! finished is there.
//!
//! `HOTLAP_KILLS=200 cargo test -p hotlap --test killed at_any_moment` kills it at 200 random
//! moments; without the variable, at a few.
#![cfg(target_os = "linux")]

mod processes;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A hang is an error; a busy machine is not.
const LIMIT: Duration = Duration::from_secs(120);

const HOTLAP: &str = env!("CARGO_BIN_EXE_hotlap");

/// Two servers that are built first, and a store, in a folder of their own.
struct Scene {
    folder: tempfile::TempDir,
    /// In the environment of every process that comes of this scene.
    tag: String,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for id in ["sh/one", "sh/two"] {
            let server = folder.path().join("servers").join(id);
            fs::create_dir_all(&server).unwrap();
            let manifest = format!(
                "about = \"A server for a test.\"\nurl = \"https://example.org\"\n\
                 kind = \"hand-written\"\ncontracts = [\"hello\"]\n[toolchain]\n\
                 probe = [\"true\"]\n\
                 build = [[\"sh\", \"-c\", \"sleep 0.5 & setsid sleep 0.5 & wait\"]]\n\
                 [run]\ncommand = [\"{HOTLAP}\", \"__ceiling\"]\n"
            );
            fs::write(server.join("server.toml"), manifest).unwrap();
        }
        let tag = format!("HOTLAP_TEST_SCENE={}", folder.path().display());
        Self { folder, tag }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(HOTLAP);
        self.prepare(command.args(arguments));
        command
    }

    fn prepare(&self, command: &mut Command) {
        let (name, value) = self.tag.split_once('=').unwrap();
        command
            .current_dir(self.folder.path())
            .env(name, value)
            .env("HOTLAP_CACHE", self.path("cache"))
            .env("HOTLAP_SERVERS", self.path("servers"))
            .env("XDG_DATA_HOME", self.path("data"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env_remove("HOTLAP_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.path("stderr")).unwrap());
    }

    /// A run of a few seconds.
    fn run(&self, servers: &[&str]) -> Command {
        self.run_with_restarts("2", servers)
    }

    /// A run that outlasts its test, on however busy a machine.
    fn long_run(&self, servers: &[&str]) -> Command {
        self.run_with_restarts("200", servers)
    }

    fn run_with_restarts(&self, restarts: &str, servers: &[&str]) -> Command {
        let schedule = "--rounds 2 --slice 12ms --no-pin --store store.db --export-json out.json";
        let servers = servers.iter().copied();
        let arguments = ["run", "--restarts", restarts].into_iter().chain(schedule.split(' '));
        self.command(&arguments.chain(servers).collect::<Vec<_>>())
    }

    /// The processes of this scene that still run.
    fn processes(&self) -> Vec<(i32, String)> {
        processes::with(&self.tag)
    }

    /// Waits until all processes are gone.
    fn is_empty_soon(&self, when: &str) {
        let began = Instant::now();
        while !self.processes().is_empty() {
            let left = self.processes();
            assert!(began.elapsed() < LIMIT, "ended {when}, these are left: {left:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stored laps, read beside hotlap; none where there is no store yet.
    fn laps(&self) -> i64 {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let Ok(store) = Connection::open_with_flags(self.path("store.db"), flags) else { return 0 };
        store.query_row("SELECT COUNT(*) FROM lap", [], |row| row.get(0)).unwrap_or(0)
    }

    /// The store opens, is whole, and has at least so many laps.
    fn store_is_whole(&self, laps: i64, when: &str) {
        let path = self.path("store.db");
        if !path.exists() {
            assert_eq!(laps, 0);
            return;
        }
        let history = self.command(&["history", "--json", "--store", "store.db"]).status().unwrap();
        let said = fs::read_to_string(self.path("stderr")).unwrap();
        let has_no_run = said.contains("no run is stored");
        assert!(history.success() || has_no_run, "ended {when}: {history:?}: {said}");
        let store = Connection::open(&path).unwrap();
        let check: String = store.query_row("PRAGMA integrity_check", [], |r| r.get(0)).unwrap();
        assert_eq!(check, "ok", "ended {when}");
        assert!(self.laps() >= laps, "ended {when}: {} of {laps} laps", self.laps());
    }

    /// How the run of this scene ended: it is invalid where a busy machine spoiled all of its laps.
    fn is_over(&self) -> bool {
        ["finished", "invalid"].contains(&self.state().as_str())
    }

    fn state(&self) -> String {
        let store = Connection::open(self.path("store.db")).unwrap();
        store
            .query_row("SELECT json_extract(record, '$.state') FROM run", [], |row| row.get(0))
            .unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for (process, _) in self.processes() {
            let _ = kill_process(Pid::from_raw(process).unwrap(), Signal::KILL);
        }
    }
}

/// Whether a run came to its end: exit code 4 says that a busy machine spoiled some of its laps.
fn is_done(status: ExitStatus) -> bool {
    [Some(0), Some(4)].contains(&status.code())
}

fn ended(child: &mut Child) -> ExitStatus {
    until(child, "it ends", |_| false).expect("it has ended")
}

/// Waits until something is so, or the child has ended.
fn until(
    child: &mut Child,
    what: &str,
    mut so: impl FnMut(&mut Child) -> bool,
) -> Option<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if so(child) {
            return None;
        }
        assert!(began.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until some laps are stored.
fn until_it_laps(scene: &Scene, child: &mut Child) -> i64 {
    until(child, "it stores laps", |_| scene.laps() > 2);
    scene.laps()
}

#[test]
fn killed_at_any_moment_it_leaves_no_process_and_a_whole_store() {
    let kills = std::env::var("HOTLAP_KILLS").map_or(6, |text| text.parse().unwrap());
    let whole = {
        let scene = Scene::new();
        let began = Instant::now();
        let status = scene.run(&["sh/one", "sh/two"]).status().unwrap();
        let said = fs::read_to_string(scene.path("stderr")).unwrap();
        assert!(is_done(status), "{status:?}: {said}");
        assert!(scene.path("out.json").exists());
        began.elapsed()
    };
    let mut random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 1_u8) | 1;
    for kill in 0..kills {
        // Xorshift (Marsaglia 2003), and one moment in each of so many equal parts of the time.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let part = f64::from(kill) + (random >> 11) as f64 / (1_u64 << 53) as f64;
        let moment = whole.mul_f64(part / f64::from(kills));
        let when = format!("after {moment:?} of {whole:?}");
        let scene = Scene::new();
        let mut child = scene.run(&["sh/one", "sh/two"]).spawn().unwrap();
        let began = Instant::now();
        until(&mut child, "the moment", |_| began.elapsed() >= moment);
        let laps = scene.laps();
        let _ = child.kill();
        child.wait().unwrap();
        scene.is_empty_soon(&when);
        scene.store_is_whole(laps, &when);
    }
}

/// `timeout` sends SIGTERM twice, at once: the second ended hotlap before it had printed anything.
#[test]
fn a_signal_that_is_sent_twice_at_once_is_one_request() {
    let scene = Scene::new();
    let mut command = scene.long_run(&["sh/one", "sh/two"]);
    let table = File::create(scene.path("table")).unwrap();
    let mut child = command.stdout(table).spawn().unwrap();
    let laps = until_it_laps(&scene, &mut child);
    let own = Pid::from_child(&child);
    // All of them arrive when it goes on. It takes different signals alike.
    for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::HUP, Signal::CONT] {
        kill_process(own, signal).unwrap();
    }
    assert_eq!(ended(&mut child).code(), Some(130));
    let table = fs::read_to_string(scene.path("table")).unwrap();
    assert!(table.contains("This run was interrupted"), "{table}");
    scene.is_empty_soon("by SIGTERM");
    scene.store_is_whole(laps, "by SIGTERM");
    assert_eq!(scene.state(), "interrupted");
}

#[test]
fn a_second_ctrl_c_ends_it_at_once_and_leaves_nothing() {
    let scene = Scene::new();
    // It takes its whole time to end.
    let deaf = format!("sh -c \"trap '' TERM; {HOTLAP} __ceiling; sleep 100\"");
    let mut child = scene.long_run(&[&deaf, "sh/one"]).spawn().unwrap();
    let laps = until_it_laps(&scene, &mut child);
    let own = Pid::from_child(&child);
    // What comes within a second of the first is the same request. Its servers have five.
    let status = until(&mut child, "it ends", |_| {
        kill_process(own, Signal::INT).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        false
    });
    assert_eq!(status.expect("it has ended").code(), Some(130));
    assert_eq!(scene.state(), "under-way", "it did not wait for its servers");
    scene.is_empty_soon("by a second Ctrl-C");
    scene.store_is_whole(laps, "by a second Ctrl-C");
}

/// Exports were not written once the terminal was gone.
#[test]
fn a_terminal_that_is_closed_loses_nothing() {
    let scene = Scene::new();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let theirs = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let hotlap = scene.long_run(&["sh/one", "sh/two"]);
    // The tests may have been started by nohup.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", "setsid", "--ctty"]);
    command.arg(HOTLAP).args(hotlap.get_args());
    scene.prepare(&mut command);
    command.stdin(theirs.try_clone().unwrap());
    command.stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    // This process has let go of the other end with the command.
    drop(command);
    let mut terminal = File::from(terminal);
    let mut drawn = [0; 4096];
    until(&mut child, "it stores laps", |_| {
        let _ = terminal.read(&mut drawn);
        scene.laps() > 2
    });
    let laps = scene.laps();
    drop(terminal);
    assert_eq!(ended(&mut child).code(), Some(130));
    scene.is_empty_soon("with its terminal");
    scene.store_is_whole(laps, "with its terminal");
    assert_eq!(scene.state(), "interrupted");
    let export = fs::read_to_string(scene.path("out.json")).unwrap();
    assert!(export.contains("\"laps\""), "{export}");
}

/// The write fails with EIO there, where it fails with EPIPE on a pipe: it was an error.
#[test]
fn a_terminal_that_was_closed_is_an_end_like_a_closed_pipe() {
    let scene = Scene::new();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let theirs = OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::NOCTTY.bits().cast_signed())
        .open(name.to_str().unwrap())
        .unwrap();
    drop(terminal);
    let mut command = scene.command(&["list"]);
    assert_eq!(command.stdout(theirs).status().unwrap().code(), Some(0));
    assert_eq!(fs::read_to_string(scene.path("stderr")).unwrap(), "");
    let disk = OpenOptions::new().write(true).open("/dev/full").unwrap();
    assert_eq!(command.stdout(disk).status().unwrap().code(), Some(1));
}

#[test]
fn under_nohup_a_closed_terminal_is_ignored() {
    let scene = Scene::new();
    let hotlap = scene.run(&["sh/one"]);
    let mut command = Command::new("nohup");
    command.arg(HOTLAP).args(hotlap.get_args());
    scene.prepare(&mut command);
    let mut child = command.spawn().unwrap();
    until_it_laps(&scene, &mut child);
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    let status = ended(&mut child);
    assert!(is_done(status) && scene.is_over(), "{status:?}, {}", scene.state());
}

/// `hotlap run … | head -1`: the exports were lost, and a failure was exit code 0.
#[test]
fn a_pipe_that_nobody_reads_changes_neither_exports_nor_exit_code() {
    let scene = Scene::new();
    let mut command = scene.run(&["sh/one", "false"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(ended(&mut child).code(), Some(3), "a server failed");
    let export = fs::read_to_string(scene.path("out.json")).unwrap();
    assert!(export.contains("\"laps\""), "{export}");
    assert!(scene.is_over(), "{}", scene.state());
    scene.is_empty_soon("with its reader");
}

/// Ctrl-C reaches the whole group in the foreground; hotlap stops its servers itself.
#[test]
fn ctrl_c_during_a_build_leaves_nothing() {
    let scene = Scene::new();
    let mut child = scene.long_run(&["sh/one", "sh/two"]).process_group(0).spawn().unwrap();
    let builds = |path: &Path| path.join("cache/builds").exists();
    until(&mut child, "it builds", |_| builds(scene.folder.path()));
    rustix::process::kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(ended(&mut child).code(), Some(130));
    scene.is_empty_soon("in a build");
}

/// Logs of servers of a run that was killed stayed behind for ever.
#[test]
fn the_next_run_removes_the_logs_of_a_run_that_was_killed_and_no_others() {
    let scene = Scene::new();
    let folders = || -> BTreeSet<PathBuf> {
        let entries = fs::read_dir(scene.path("cache/logs")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.join("0.log").exists()).collect()
    };
    let started = || {
        let before = folders();
        let mut child = scene.long_run(&["sh/one"]).spawn().unwrap();
        until(&mut child, "its server logs", |_| folders().len() > before.len());
        let own = folders().difference(&before).next().unwrap().clone();
        (child, own)
    };
    let mine = scene.path("cache/logs/mine");
    fs::create_dir_all(&mine).unwrap();
    fs::write(mine.join("0.log"), "a file of the user's").unwrap();
    let (mut alive, of_alive) = started();
    let (mut killed, of_killed) = started();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(of_killed.exists(), "it had no time to remove them");
    let next = scene.run(&["false"]).status().unwrap();
    assert_eq!(next.code(), Some(3), "a run whose only server fails");
    assert_eq!(folders(), [mine.clone(), of_alive.clone()].into());
    assert!(!of_killed.exists());
    alive.kill().unwrap();
    alive.wait().unwrap();
}

/// A server that leaves its group, with a process that outlives it.
const LEAVES: &str = "sh -c 'setsid sleep 600 & exec $0 __ceiling'";

impl Scene {
    /// Kills all supervisors, and this process with them, if there is one.
    fn kill_supervisors_and(&self, child: Option<&mut Child>) {
        let all = self.processes().into_iter();
        let supervisors = all.filter(|(_, command)| command.starts_with("server-guard"));
        let supervisors: Vec<i32> = supervisors.map(|(pid, _)| pid).collect();
        assert!(!supervisors.is_empty(), "{:?}", self.processes());
        if let Some(child) = child {
            child.kill().unwrap();
        }
        for pid in supervisors {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

/// Regression: in 32 of 34 cases, processes of servers were left, most of them stopped for ever.
#[test]
fn what_a_killed_run_and_its_killed_supervisors_leave_is_ended_by_the_next_run() {
    let scene = Scene::new();
    let server = LEAVES.replace("$0", HOTLAP);
    let mut child = scene.long_run(&[&server]).spawn().unwrap();
    until_it_laps(&scene, &mut child);
    scene.kill_supervisors_and(Some(&mut child));
    child.wait().unwrap();
    let is_left = |(_, command): &(i32, String)| command.starts_with("sleep 600");
    assert!(scene.processes().iter().any(is_left), "nothing is left: the test tests nothing");
    let next = scene.run(&["false"]).status().unwrap();
    assert_eq!(next.code(), Some(3), "a run whose only server fails");
    scene.is_empty_soon("together with its supervisors");
}

/// Regression: hotlap stopped processes whose supervisor had been killed, and never thawed or ended
/// them.
#[test]
fn a_run_whose_supervisors_are_killed_leaves_nothing() {
    let scene = Scene::new();
    let server = LEAVES.replace("$0", HOTLAP);
    let mut child = scene.long_run(&[&server, &server]).spawn().unwrap();
    until_it_laps(&scene, &mut child);
    scene.kill_supervisors_and(None);
    assert_eq!(ended(&mut child).code(), Some(3));
    scene.is_empty_soon("after its supervisors");
}
