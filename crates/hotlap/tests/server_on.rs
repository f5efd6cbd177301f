//! `--server-on`: servers run under an agent, and are loaded from here. The agent is a subprocess,
//! or in a network namespace that is joined by a pair of virtual interfaces (as root).
#![cfg(target_os = "linux")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A hang is an error; a busy machine is not.
const LIMIT: Duration = Duration::from_secs(120);

const HOTLAP: &str = env!("CARGO_BIN_EXE_hotlap");

/// A store, a cache and an export, in a folder of their own.
struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// In the environment of every process that comes of this scene.
    fn tag(&self) -> String {
        self.folder.path().display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(HOTLAP);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("HOTLAP_TEST_SCENE", self.tag())
            .env("HOTLAP_CACHE", self.path("cache"))
            .env("XDG_DATA_HOME", self.path("data"))
            .env("HOTLAP_CONFIG", "/dev/null");
        command
    }

    /// A short run of one server on another host. Few connections: the machine may be busy.
    fn run(&self, server_on: &str, server: &str, more: &[&str]) -> Output {
        let export = self.path("run.json").display().to_string();
        let run = ["run", "--server-on", server_on, server, "--restarts", "1", "--rounds", "1"];
        let load = ["-c", "4", "-d", "2s", "--no-ceiling", "--export-json", &export];
        self.command(&[&run[..], &load[..], more].concat()).output().unwrap()
    }

    fn export(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("run.json")).unwrap()).unwrap()
    }

    /// Processes of this scene that still run.
    fn left(&self) -> Vec<String> {
        let tag = format!("HOTLAP_TEST_SCENE={}", self.tag()).into_bytes();
        let of = |entry: std::fs::DirEntry| {
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let is_ours = environment.split(|byte| *byte == 0).any(|variable| variable == tag);
            let command = std::fs::read(entry.path().join("cmdline")).ok()?;
            is_ours.then(|| String::from_utf8_lossy(&command).replace('\0', " "))
        };
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A command whose last word is the path of this hotlap, as after `ssh host`.
fn here() -> String {
    format!("env {HOTLAP}")
}

fn ceiling() -> String {
    format!("{HOTLAP} __ceiling")
}

#[test]
fn a_server_under_an_agent_is_measured_and_nothing_stays_behind() {
    let scene = Scene::new();
    let output = scene.run(&here(), &ceiling(), &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let export = scene.export();
    let lap = &export["laps"][0];
    assert!(lap["cpu_us"].as_f64().is_some_and(|us| us > 0.0), "{lap}");
    assert!(lap["rss_mb"].as_f64().is_some_and(|mb| mb > 0.0), "{lap}");
    let generator = &export["host"]["generator"];
    assert_eq!(generator["command"], here());
    // It shares this machine's network, so every server is reached.
    assert_eq!(generator["address"], "127.0.0.1");
    assert_eq!(generator["host"]["cores"], export["host"]["cores"]);
    assert_eq!(scene.left(), Vec::<String>::new());
    let logs = std::fs::read_dir(scene.path("cache/logs")).unwrap().flatten();
    let folders = logs.filter(|entry| entry.path().is_dir()).count();
    assert_eq!(folders, 0, "folders of logs are removed");
}

#[test]
fn an_agent_that_is_missing_is_named_with_a_remedy() {
    let scene = Scene::new();
    let output = scene.run("sh -c 'echo no such host >&2; exit 255'", &ceiling(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output).replace('\n', " ");
    assert!(told.contains("while connecting: no agent answered"), "{told}");
    assert!(told.contains("no such host"), "{told}");
    assert!(told.contains("/path/to/hotlap"), "{told}");
}

#[test]
fn a_server_that_fails_over_there_is_shown_with_its_last_lines() {
    let scene = Scene::new();
    let output = scene.run(&here(), "sh -c 'echo the disk is gone; exit 3'", &[]);
    assert_eq!(output.status.code(), Some(3));
    let failure = &scene.export()["failed"][0];
    assert_eq!(failure["phase"], "start");
    assert_eq!(failure["cause"], "the server exited with code 3 before its first response");
    assert_eq!(failure["log_tail"], serde_json::json!(["the disk is gone"]));
    assert_eq!(scene.left(), Vec::<String>::new());
}

/// A catalogue with one server, whose toolchain is missing on the other host alone.
#[test]
fn a_toolchain_that_is_missing_over_there_is_named_with_the_host() {
    let scene = Scene::new();
    let server = scene.path("servers/sh/one");
    std::fs::create_dir_all(&server).unwrap();
    let manifest = format!(
        "about = \"A server for a test.\"\nurl = \"https://example.org\"\nkind = \"hand-written\"\n\
         contracts = [\"hello\"]\n[toolchain]\nprobe = [\"no-such-toolchain\"]\n[run]\n\
         command = [\"{HOTLAP}\", \"__ceiling\"]\n"
    );
    std::fs::write(server.join("server.toml"), manifest).unwrap();
    let output = scene.run(&here(), "sh/one", &[]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let failure = &scene.export()["failed"][0];
    assert_eq!(failure["phase"], "toolchain");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let cause = failure["cause"].as_str().unwrap();
    assert!(cause.starts_with(&format!("on {host}: no-such-toolchain: ")), "{cause}");
}

/// The agent is killed in the middle of the measurement: the run ends with the laps so far, and the
/// servers of the agent end with it.
#[test]
fn a_killed_agent_ends_the_run_but_not_its_finished_laps() {
    let scene = Scene::new();
    let agent = here();
    let export = scene.path("run.json").display().to_string();
    let server = ceiling();
    let run = ["run", "--server-on", &agent, &server, "--restarts", "1", "--rounds", "2000"];
    let load = ["-c", "4", "-d", "600s", "--slice", "50ms", "--no-ceiling", "--export-json"];
    let mut command = scene.command(&[&run[..], &load[..], &[&export[..]]].concat());
    let mut child = Running(command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let store = scene.path("data/hotlap/hotlap.db");
    let laps = || {
        let db = rusqlite::Connection::open(&store).ok()?;
        db.query_row("SELECT count(*) FROM lap", [], |row| row.get::<_, i64>(0)).ok()
    };
    let until = Instant::now() + LIMIT;
    while laps().is_none_or(|laps| laps < 3) {
        assert!(Instant::now() < until, "no laps");
        std::thread::sleep(Duration::from_millis(20));
    }
    let agents = pids(&scene, " agent ");
    assert_eq!(agents.len(), 1);
    let pid = rustix::process::Pid::from_raw(agents[0]).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let status = child.0.wait().unwrap();
    assert_eq!(status.code(), Some(3));
    let export = scene.export();
    assert!(export["laps"].as_array().unwrap().len() >= 3);
    let failure = &export["failed"][0];
    let cause = failure["cause"].as_str().unwrap();
    assert!(cause.contains(HOTLAP) && cause.contains("the agent ended"), "{cause}");
    assert_eq!(scene.left(), Vec::<String>::new());
}

/// A process that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processes of a scene whose command has this in it.
fn pids(scene: &Scene, part: &str) -> Vec<i32> {
    let tag = format!("HOTLAP_TEST_SCENE={}", scene.tag()).into_bytes();
    let of = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let environment = std::fs::read(entry.path().join("environ")).ok()?;
        let is_ours = environment.split(|byte| *byte == 0).any(|variable| variable == tag);
        let command = std::fs::read(entry.path().join("cmdline")).ok()?;
        let command = format!("{} ", String::from_utf8_lossy(&command).replace('\0', " "));
        (is_ours && command.contains(part)).then_some(pid)
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect()
}

#[test]
fn what_cannot_run_over_there_is_rejected_at_once() {
    let scene = Scene::new();
    let output = scene.run("env", "http://127.0.0.1:1/", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("runs already"), "{}", stderr(&output));
}

/// Two hosts, as network namespaces that a pair of virtual interfaces joins. `None` without root.
struct Hosts {
    server: String,
    generator: String,
}

impl Hosts {
    fn new(name: &str) -> Option<Self> {
        let names = ["s", "g"].map(|end| format!("hl{end}{name}{}", std::process::id() % 10_000));
        let [server, generator] = names;
        let hosts = Self { server, generator };
        let (s, g) = (&hosts.server, &hosts.generator);
        let ip = |line: String| {
            let done = Command::new("ip").args(line.split(' ')).output();
            done.is_ok_and(|done| done.status.success())
        };
        let made = ip(format!("netns add {s}"))
            && ip(format!("netns add {g}"))
            && ip(format!("link add {s} netns {s} type veth peer name {g} netns {g}"))
            && ip(format!("-n {s} addr add 10.77.0.2/24 dev {s}"))
            && ip(format!("-n {g} addr add 10.77.0.1/24 dev {g}"))
            && [(s, s.as_str()), (s, "lo"), (g, g.as_str()), (g, "lo")]
                .iter()
                .all(|(host, device)| ip(format!("-n {host} link set {device} up")));
        if !made {
            let line = b"skipped: network namespaces need root and ip(8)\n";
            std::io::stderr().write_all(line).unwrap();
            return None;
        }
        Some(hosts)
    }

    /// The command that starts an agent on the servers' host.
    fn command(&self) -> String {
        format!("ip netns exec {} {HOTLAP}", self.server)
    }

    /// Runs a command on the generator's host.
    fn on_generator(&self, command: &Command, folder: &Path) -> Output {
        let mut outer = Command::new("ip");
        outer.args(["netns", "exec", &self.generator]).arg(command.get_program());
        outer.args(command.get_args()).current_dir(folder);
        outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        outer.output().unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in [&self.server, &self.generator] {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

#[test]
fn the_address_between_two_hosts_is_found_and_loaded() {
    let Some(hosts) = Hosts::new("a") else { return };
    let scene = Scene::new();
    let (export, agent, server) =
        (scene.path("run.json").display().to_string(), hosts.command(), ceiling());
    let run = ["run", "--server-on", &agent, &server, "--restarts", "1", "--rounds", "1", "-c4"];
    let load = ["-d", "2s", "--no-ceiling", "--export-json", &export];
    let command = scene.command(&[&run[..], &load[..]].concat());
    let output = hosts.on_generator(&command, scene.folder.path());
    assert!(output.status.success(), "{}", stderr(&output));
    let export = scene.export();
    assert_eq!(export["host"]["generator"]["address"], "10.77.0.2");
    assert!(export["laps"][0]["cpu_us"].as_f64().is_some_and(|us| us > 0.0));
    assert!(export["run"]["schedule"]["slice_ms"].as_f64().is_some_and(|ms| ms >= 300.0));
    assert_eq!(scene.left(), Vec::<String>::new());
}

#[test]
fn a_server_on_loopback_alone_is_named_with_the_remedy() {
    let Some(hosts) = Hosts::new("b") else { return };
    let scene = Scene::new();
    let (export, agent) = (scene.path("run.json").display().to_string(), hosts.command());
    let server = format!("env HOST=127.0.0.1 {HOTLAP} __ceiling");
    let run = ["run", "--server-on", &agent, &server, "--restarts", "1", "--rounds", "1"];
    let load = ["-d", "2s", "--start-timeout", "20s", "--no-ceiling", "--export-json", &export];
    let command = scene.command(&[&run[..], &load[..]].concat());
    let output = hosts.on_generator(&command, scene.folder.path());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let failure = &scene.export()["failed"][0];
    let cause = failure["cause"].as_str().unwrap();
    assert!(cause.starts_with("it listens on 127.0.0.1:"), "{cause}");
    assert!(cause.ends_with(", which other hosts do not reach"), "{cause}");
    assert_eq!(failure["remedy"], "make it listen on $HOST (10.77.0.2), or on all addresses");
}

#[test]
fn an_address_that_is_not_reached_is_an_error_with_a_remedy() {
    let Some(hosts) = Hosts::new("c") else { return };
    let scene = Scene::new();
    let (agent, server) = (hosts.command(), ceiling());
    let command = scene.command(&[
        "run",
        "--server-on",
        &agent,
        "--server-address",
        "10.77.0.9",
        &server,
        "-d",
        "2s",
    ]);
    let output = hosts.on_generator(&command, scene.folder.path());
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output).replace('\n', " ");
    assert!(told.contains("is not reached from here at any of its addresses"), "{told}");
    assert!(told.contains("10.77.0.9") && told.contains("--server-address"), "{told}");
}
