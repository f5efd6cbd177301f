//! `--server-on` when something fails: the agent, the connection to its host, or hotlap itself.
//! Servers are in one network namespace and the generator in another, and the channel goes over the
//! cable between them, as that of `ssh` does. Needs root; skipped otherwise, with a message.
//!
//! Each time: no hang, nothing left over on either host, finished laps kept, no lap counted that
//! the fault has changed, and a message that names the command, the phase, the cause and the remedy.
#![cfg(target_os = "linux")]

use crate::laps;
use crate::processes;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::hosts::{Hosts, Slow, hosts};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A hang is an error; a busy machine is not.
const LIMIT: Duration = Duration::from_secs(180);

const HOTLAP: &str = env!("CARGO_BIN_EXE_hotlap");

/// Hosts of the servers (0) and of the generator (1).
const SERVERS: usize = 0;
const GENERATOR: usize = 1;

/// Enough connections that they can be told from those of verification.
const CONNECTIONS: usize = 24;

/// What happens, on the hosts of a test.
struct Scene {
    folder: tempfile::TempDir,
    hosts: Hosts,
}

/// A run under way.
struct Running {
    scene: Scene,
    /// The command of the agent, as typed.
    typed: String,
    hotlap: Child,
    agent: Child,
}

/// The end of a run.
struct Ended {
    scene: Scene,
    typed: String,
    code: Option<i32>,
    /// What it printed, in one line.
    printed: String,
}

impl Scene {
    fn new() -> Option<Self> {
        let hosts = hosts(1)?;
        let folder = tempfile::tempdir().unwrap();
        // A server of the catalogue whose build does not end.
        let server = folder.path().join("servers/sh/one");
        fs::create_dir_all(&server).unwrap();
        let reached = folder.path().join("reached");
        let manifest = format!(
            "about = \"A server for a test.\"\nurl = \"https://example.org\"\n\
             kind = \"hand-written\"\ncontracts = [\"hello\"]\n[toolchain]\nprobe = [\"true\"]\n\
             build = [[\"sh\", \"-c\", \"touch {}; sleep 1000\"]]\n[run]\n\
             command = [\"{HOTLAP}\", \"__ceiling\"]\n",
            reached.display()
        );
        fs::write(server.join("server.toml"), manifest).unwrap();
        Some(Self { folder, hosts })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Everything that comes of this scene has this in its environment.
    fn tag(&self) -> String {
        self.folder.path().display().to_string()
    }

    fn prepare<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .current_dir(self.folder.path())
            .env("HOTLAP_TEST_SCENE", self.tag())
            .env("HOTLAP_CACHE", self.path("cache"))
            .env("HOTLAP_SERVERS", self.path("servers"))
            .env("XDG_DATA_HOME", self.path("data"))
            .env("HOTLAP_CONFIG", "/dev/null")
    }

    /// Starts hotlap on the generator's host and the agent on that of the servers.
    fn start(self, server: &str, more: &[&str]) -> Running {
        let mut agent = Command::new(HOTLAP);
        self.prepare(agent.arg("agent").stderr(Stdio::null()));
        let (typed, agent) = self.hosts.over_cable(SERVERS, GENERATOR, agent);
        let connections = CONNECTIONS.to_string();
        let mut hotlap = self.hosts.command(GENERATOR, HOTLAP);
        hotlap.args(["run", "--server-on", &typed, server, "--restarts", "1", "--no-ceiling"]);
        hotlap.args(["-c", &connections, "--export-json", "run.json"]).args(more);
        let log = fs::File::create(self.path("log")).unwrap();
        let log = self.prepare(&mut hotlap).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let hotlap = log.spawn().unwrap();
        let agent = agent.recv_timeout(LIMIT).unwrap();
        Running { scene: self, typed, hotlap, agent }
    }

    /// A run of many laps, once at least three are stored.
    fn in_laps(self, more: &[&str]) -> Running {
        let endless = ["--rounds", "2000", "-d", "600s"];
        let running = self.start(&ceiling(), &[&endless[..], more].concat());
        running.until("three laps", |running| running.laps() >= 3);
        running
    }

    /// Processes of this scene that still run.
    fn left(&self) -> Vec<String> {
        let all = processes::with(&format!("HOTLAP_TEST_SCENE={}", self.tag()));
        all.into_iter().map(|(_, command)| command).collect()
    }

    /// Nothing is left on either host; the agent may need 15 s to notice.
    fn is_clean(&self) {
        let open = || [SERVERS, GENERATOR].map(|host| self.hosts.sockets(host)).concat();
        let until = Instant::now() + LIMIT;
        while !self.left().is_empty() || !open().is_empty() {
            assert!(Instant::now() < until, "left over: {:?} {:?}", self.left(), open());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn cable(&self, state: &str) {
        self.hosts.cable(GENERATOR, state).unwrap();
    }
}

fn ceiling() -> String {
    format!("{HOTLAP} __ceiling")
}

impl Running {
    /// Waits until something is so while the run goes on.
    fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + LIMIT;
        while !is_so(self) {
            assert!(Instant::now() < until, "{what}: {}", self.printed());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn printed(&self) -> String {
        fs::read_to_string(self.scene.path("log")).unwrap_or_default()
    }

    /// The laps that are stored.
    fn laps(&self) -> i64 {
        let count = || {
            let db = rusqlite::Connection::open(self.scene.path("data/hotlap/hotlap.db")).ok()?;
            db.query_row("SELECT count(*) FROM lap", [], |row| row.get(0)).ok()
        };
        count().unwrap_or(0)
    }

    /// Waits for some more laps.
    fn some_laps(&self, more: i64) {
        let enough = self.laps() + more;
        self.until("more laps", |running| running.laps() >= enough);
    }

    fn signal_agent(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.agent), signal).unwrap();
    }

    /// Waits for hotlap's end, which must come by itself.
    fn ended(mut self) -> Ended {
        let until = Instant::now() + LIMIT;
        let status = loop {
            match self.hotlap.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > until => {
                    self.hotlap.kill().unwrap();
                    panic!("hotlap hangs: {}", self.printed());
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        // An agent that was stopped can only end when it goes on.
        self.signal_agent(Signal::CONT);
        let printed = self.printed().split_whitespace().collect::<Vec<_>>().join(" ");
        let scene = self.scene;
        let mut agent = self.agent;
        std::thread::spawn(move || agent.wait());
        Ended { code: status.code(), printed, typed: self.typed, scene }
    }

    /// The same for Ctrl-C.
    fn interrupted(self) -> Ended {
        kill_process(Pid::from_child(&self.hotlap), Signal::INT).unwrap();
        self.ended()
    }
}

impl Ended {
    fn export(&self) -> Value {
        let path = self.scene.path("run.json");
        serde_json::from_slice(&fs::read(path).expect(&self.printed)).unwrap()
    }

    /// Every server failed in this phase, for a reason that has this in it and names the command;
    /// at least this many laps were kept, and nothing is left over.
    fn has_failed(&self, phase: &str, reason: &str, laps: usize) {
        assert_eq!(self.code, Some(3), "{}", self.printed);
        let export = self.export();
        let failure = &export["failed"][0];
        assert_eq!(failure["phase"], phase, "{failure}");
        let cause = failure["cause"].as_str().unwrap();
        assert!(cause.starts_with(&self.typed), "{cause}");
        assert!(cause.contains(reason), "{cause}");
        assert!(cause.contains("Check that"), "{cause}");
        assert!(failure["remedy"].as_str().unwrap().contains("repeat the run"), "{failure}");
        assert!(export["laps"].as_array().unwrap().len() >= laps, "{}", self.printed);
        self.scene.is_clean();
    }

    /// The laps that count, and the reasons why others do not.
    fn laps(&self) -> (Vec<Value>, Vec<String>) {
        let export = self.export();
        let laps = export["laps"].as_array().unwrap().iter().cloned();
        let (counted, others): (Vec<Value>, Vec<Value>) =
            laps.partition(|lap| lap["counts"] == true);
        let doubts = others.iter().flat_map(|lap| lap["doubts"].as_array().unwrap().clone());
        (counted, doubts.map(|doubt| doubt.as_str().unwrap().to_owned()).collect())
    }
}

#[test]
fn an_agent_that_is_killed_while_it_builds_ends_the_run() {
    let Some(scene) = Scene::new() else { return };
    let running = scene.start("sh/one", &[]);
    running.until("a build", |running| running.scene.path("reached").exists());
    running.signal_agent(Signal::KILL);
    let ended = running.ended();
    assert_eq!(ended.code, Some(1), "{}", ended.printed);
    // The command that opens the channel may print why it ended, in between.
    for expected in ["while building servers: the agent ended. ", "Check that its host and the"] {
        assert!(ended.printed.contains(expected), "{}", ended.printed);
    }
    ended.scene.is_clean();
}

#[test]
fn an_agent_that_is_killed_while_a_server_starts_ends_the_run() {
    let Some(scene) = Scene::new() else { return };
    let reached = scene.path("reached").display().to_string();
    let running = scene.start(&format!("sh -c 'touch {reached}; sleep 1000'"), &[]);
    running.until("a start", |running| running.scene.path("reached").exists());
    running.signal_agent(Signal::KILL);
    running.ended().has_failed("start", "while starting a server: the agent ended", 0);
}

#[test]
fn an_agent_that_is_killed_in_a_warm_up_ends_the_run() {
    let Some(scene) = Scene::new() else { return };
    let running = scene.start(&ceiling(), &["-d", "600s"]);
    running.until("a load", |running| running.scene.hosts.sockets(SERVERS).len() > CONNECTIONS);
    assert_eq!(running.laps(), 0);
    running.signal_agent(Signal::KILL);
    running.ended().has_failed("warm-up", "while sampling a server: the agent ended", 0);
}

#[test]
fn an_agent_that_is_killed_in_a_lap_keeps_the_finished_ones() {
    let Some(scene) = Scene::new() else { return };
    let running = scene.in_laps(&[]);
    running.signal_agent(Signal::KILL);
    running.ended().has_failed("lap", "the agent ended", 3);
}

#[test]
fn an_agent_that_stays_stopped_ends_the_run_after_10_s() {
    let Some(scene) = Scene::new() else { return };
    let running = scene.in_laps(&[]);
    running.signal_agent(Signal::STOP);
    running.ended().has_failed("lap", "no answer within 10s", 3);
}

/// The load goes on meanwhile, and readings are as late as the agent. Regression: the window of a
/// slice opened while the server was still frozen.
#[test]
fn laps_in_which_the_agent_is_stopped_for_0_3_s_are_right() {
    let Some(scene) = Scene::new() else { return };
    let running = scene.in_laps(&["--slice", "300ms"]);
    for _ in 0..10 {
        running.some_laps(1);
        running.signal_agent(Signal::STOP);
        std::thread::sleep(Duration::from_millis(300));
        running.signal_agent(Signal::CONT);
    }
    running.some_laps(2);
    let ended = running.interrupted();
    assert_eq!(ended.code, Some(130), "{}", ended.printed);
    let (laps, _) = ended.laps();
    laps::have_costs(&ended.export());
    let mut costs: Vec<f64> = laps.iter().filter_map(|lap| lap["cpu_us"].as_f64()).collect();
    costs.sort_by(f64::total_cmp);
    assert!(costs.len() >= 8, "{costs:?}");
    let median = costs[costs.len() / 2];
    assert!(costs[0] > median / 2.0 && costs[costs.len() - 1] < median * 2.0, "{costs:?}");
    ended.scene.is_clean();
}

#[test]
fn a_cable_that_is_unplugged_ends_the_run_and_the_agent() {
    let Some(scene) = Scene::new() else { return };
    let running = scene.in_laps(&[]);
    running.scene.cable("down");
    running.ended().has_failed("lap", "no answer within 10s", 3);
}

/// For 3 s, nothing is answered. A lap with that in it would make the server look slow.
#[test]
fn no_lap_counts_in_which_the_cable_was_unplugged_for_a_while() {
    let Some(scene) = Scene::new() else { return };
    let running = scene.in_laps(&["--slice", "300ms"]);
    running.scene.cable("down");
    std::thread::sleep(Duration::from_secs(3));
    running.scene.cable("up");
    running.some_laps(5);
    let ended = running.interrupted();
    assert_eq!(ended.code, Some(130), "{}", ended.printed);
    let (laps, doubts) = ended.laps();
    let longest = laps.iter().map(|lap| lap["max_ms"].as_f64().unwrap()).fold(0.0, f64::max);
    assert!(longest < 2_000.0, "a response took {longest} ms in a lap that counts");
    let is_silence = |doubt: &String| doubt.starts_with("the servers' host did not answer for ");
    assert!(doubts.iter().any(is_silence), "{doubts:?}");
    ended.scene.is_clean();
}

#[test]
fn a_slow_cable_that_loses_packets_is_no_fault() {
    let Some(scene) = Scene::new() else { return };
    let slow = Slow { delay: Duration::from_millis(10), lost_of: 100 };
    scene.hosts.slow_cable(GENERATOR, slow).unwrap();
    let ended = scene.start(&ceiling(), &["-d", "2s", "--rounds", "1"]).ended();
    let export = ended.export();
    // Readings may be late by a round trip, which must be little compared with a slice.
    let slice_ms = export["run"]["schedule"]["slice_ms"].as_f64().unwrap();
    assert!(slice_ms >= 333.0 * 20.0, "{slice_ms}");
    let (laps, doubts) = ended.laps();
    laps::have_costs(&export);
    // A packet of the channel that is lost twice in a row takes 0.6 s, which a lap must not have.
    let is_lost_twice = |doubt: &String| doubt.starts_with("the servers' host did not answer for ");
    match ended.code {
        Some(0) => assert!(!laps.is_empty(), "{doubts:?}"),
        Some(4) => assert!(laps.is_empty() && doubts.iter().all(is_lost_twice), "{doubts:?}"),
        code => panic!("{code:?}: {}", ended.printed),
    }
    ended.scene.is_clean();
}

#[test]
fn servers_and_agent_end_when_hotlap_is_killed() {
    let Some(scene) = Scene::new() else { return };
    let mut running = scene.in_laps(&[]);
    running.hotlap.kill().unwrap();
    let laps = running.laps();
    let ended = running.ended();
    assert!(laps >= 3 && ended.code.is_none());
    ended.scene.is_clean();
}

/// Then the agent learns of it by silence alone.
#[test]
fn servers_and_agent_end_when_hotlap_is_killed_behind_an_unplugged_cable() {
    let Some(scene) = Scene::new() else { return };
    let mut running = scene.in_laps(&[]);
    running.scene.cable("down");
    running.hotlap.kill().unwrap();
    running.ended().scene.is_clean();
}

#[test]
fn an_agent_of_another_version_is_an_error_before_anything_is_started() {
    let Some(scene) = Scene::new() else { return };
    let hello = r#"{"protocol":1,"version":"9.9.9","host":"bench2","role":"server"}"#;
    let frame = [&(hello.len() as u32).to_le_bytes(), hello.as_bytes()].concat();
    let said = scene.path("said");
    fs::write(&said, [b"\0hotlap-agent\0\n".as_slice(), &frame].concat()).unwrap();
    let typed = format!("sh -c 'cat {}; exec sleep 1000' sh", said.display());
    let (code, printed) = plain(&scene, &typed);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("while connecting: the agent on bench2 is hotlap 9.9.9"), "{printed}");
    assert!(printed.contains("install the same version on both hosts"), "{printed}");
    scene.is_clean();
}

#[test]
fn a_login_banner_is_no_fault() {
    let Some(scene) = Scene::new() else { return };
    let agent = scene.hosts.agent(SERVERS);
    let typed = format!("sh -c 'echo Welcome; echo motd >&2; exec \"$@\"' sh {agent}");
    let (code, printed) = plain(&scene, &typed);
    assert!(laps::were_measured(code), "{code:?} {printed}");
    scene.is_clean();
}

/// A short run whose agent is started by this command, and what it printed, in one line.
fn plain(scene: &Scene, typed: &str) -> (Option<i32>, String) {
    let mut hotlap = scene.hosts.command(GENERATOR, HOTLAP);
    hotlap.args(["run", "--server-on", typed, &ceiling(), "--restarts", "1", "--rounds", "1"]);
    hotlap.args(["-c4", "-d1s", "--no-ceiling"]);
    let output = scene.prepare(&mut hotlap).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), printed.split_whitespace().collect::<Vec<_>>().join(" "))
}
