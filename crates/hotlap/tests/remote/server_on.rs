//! `--server-on`: servers run under an agent, and are loaded from here. The agent is a subprocess,
//! or in a network namespace that is joined by a virtual cable (as root).
#![cfg(target_os = "linux")]

use crate::laps;
use crate::processes;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::hosts::{Hosts, hosts};
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
        if self.path("servers").is_dir() {
            command.env("HOTLAP_SERVERS", self.path("servers"));
        }
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
        let all = processes::with(&format!("HOTLAP_TEST_SCENE={}", self.tag()));
        all.into_iter().map(|(_, command)| command).collect()
    }

    /// Nothing is left; what ends with an agent does so a moment after it.
    fn is_clean(&self) {
        let until = Instant::now() + LIMIT;
        while !self.left().is_empty() {
            assert!(Instant::now() < until, "left over: {:?}", self.left());
            std::thread::sleep(Duration::from_millis(20));
        }
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
    assert!(laps::were_measured(output.status.code()), "{}", stderr(&output));
    let export = scene.export();
    laps::have_costs(&export);
    let lap = &export["laps"][0];
    assert!(lap["rss_mb"].as_f64().is_some_and(|mb| mb > 0.0), "{lap}");
    let generator = &export["host"]["generator"];
    assert_eq!(generator["command"], here());
    // It shares this machine's network, so every server is reached.
    assert_eq!(generator["address"], "127.0.0.1");
    assert_eq!(generator["host"]["cores"], export["host"]["cores"]);
    scene.is_clean();
    let logs = std::fs::read_dir(scene.path("cache/logs")).unwrap().flatten();
    let folders = logs.filter(|entry| entry.path().is_dir()).count();
    assert_eq!(folders, 0, "folders of logs are removed");
}

#[test]
fn an_agent_that_is_missing_is_named_with_a_remedy() {
    let scene = Scene::new();
    let output = scene.run("sh -c 'echo no such host >&2; exit 127'", &ceiling(), &[]);
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
    scene.is_clean();
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
    scene.is_clean();
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
    let all = processes::with(&format!("HOTLAP_TEST_SCENE={}", scene.tag()));
    all.into_iter().filter(|(_, command)| command.contains(part)).map(|(pid, _)| pid).collect()
}

/// The minimal server, which nobody but the test starts, at this address of a host.
fn running(hosts: &Hosts, host: usize, ip: &str) -> Running {
    let mut server = hosts.command(host, HOTLAP);
    server.arg("__ceiling").env("HOST", ip).env("PORT", "8080");
    let server = Running(server.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let address = format!("{ip}:8080");
    let until = Instant::now() + LIMIT;
    while !hosts.on(host, {
        let address = address.clone();
        move || std::net::TcpStream::connect(address).is_ok()
    }) {
        assert!(Instant::now() < until, "{address} does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

#[test]
fn a_server_that_runs_there_already_is_measured_and_left_alone() {
    let Some(hosts) = hosts(1) else { return };
    let scene = Scene::new();
    let mut server = running(&hosts, 0, "10.177.0.1");
    let (export, agent) = (scene.path("run.json").display().to_string(), hosts.agent(0));
    let run = ["run", "--server-on", &agent, "http://10.177.0.1:8080/", "--restarts", "1"];
    let load = ["--rounds", "1", "-c4", "-d2s", "--allow-remote", "--export-json", &export];
    let output = on_generator(&hosts, &scene, &[&run[..], &load[..]].concat());
    assert!(laps::were_measured(output.status.code()), "{}", stderr(&output));
    laps::have_costs(&scene.export());
    assert_eq!(server.0.try_wait().unwrap(), None, "it still runs");
    scene.is_clean();
}

#[test]
fn a_server_that_runs_elsewhere_has_no_cpu_time() {
    let Some(hosts) = hosts(1) else { return };
    let scene = Scene::new();
    let _server = running(&hosts, 1, "127.0.0.1");
    let (export, agent) = (scene.path("run.json").display().to_string(), hosts.agent(0));
    let run = ["run", "--server-on", &agent, "http://127.0.0.1:8080/", "--restarts", "1"];
    let load = ["--rounds", "1", "-c4", "-d", "2s", "--export-json", &export];
    let output = on_generator(&hosts, &scene, &[&run[..], &load[..]].concat());
    assert!(laps::were_measured(output.status.code()), "{}", stderr(&output));
    assert_eq!(scene.export()["laps"][0]["cpu_us"], Value::Null);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let expected = format!("CPU time is unknown: http://127.0.0.1:8080 is no address of {host}.");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains(&expected), "{told}");
}

/// Runs a command of a scene on the host of the generator.
fn on_generator(hosts: &Hosts, scene: &Scene, arguments: &[&str]) -> Output {
    let inner = scene.command(&[]);
    let mut outer = hosts.command(1, HOTLAP);
    outer.args(arguments).current_dir(scene.folder.path());
    outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer.output().unwrap()
}

#[test]
fn the_address_between_two_hosts_is_found_and_loaded() {
    let Some(hosts) = hosts(1) else { return };
    let scene = Scene::new();
    let (export, agent, server) =
        (scene.path("run.json").display().to_string(), hosts.agent(0), ceiling());
    let run = ["run", "--server-on", &agent, &server, "--restarts", "1", "--rounds", "1", "-c4"];
    let load = ["-d", "2s", "--no-ceiling", "--export-json", &export];
    let output = on_generator(&hosts, &scene, &[&run[..], &load[..]].concat());
    assert!(laps::were_measured(output.status.code()), "{}", stderr(&output));
    let export = scene.export();
    assert_eq!(export["host"]["generator"]["address"], "10.177.0.1");
    laps::have_costs(&export);
    assert!(export["run"]["schedule"]["slice_ms"].as_f64().is_some_and(|ms| ms >= 300.0));
    scene.is_clean();
}

#[test]
fn a_server_on_loopback_alone_is_named_with_the_remedy() {
    let Some(hosts) = hosts(1) else { return };
    let scene = Scene::new();
    let (export, agent) = (scene.path("run.json").display().to_string(), hosts.agent(0));
    let server = format!("env HOST=127.0.0.1 {HOTLAP} __ceiling");
    let run = ["run", "--server-on", &agent, &server, "--restarts", "1", "--rounds", "1"];
    let load = ["-d", "2s", "--start-timeout", "20s", "--no-ceiling", "--export-json", &export];
    let output = on_generator(&hosts, &scene, &[&run[..], &load[..]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let failure = &scene.export()["failed"][0];
    let cause = failure["cause"].as_str().unwrap();
    assert!(cause.starts_with("it listens on 127.0.0.1:"), "{cause}");
    assert!(cause.ends_with(", which other hosts do not reach"), "{cause}");
    assert_eq!(failure["remedy"], "make it listen on $HOST (10.177.0.1), or on all addresses");
}

#[test]
fn an_address_that_is_not_reached_is_an_error_with_a_remedy() {
    let Some(hosts) = hosts(1) else { return };
    let scene = Scene::new();
    let (agent, server) = (hosts.agent(0), ceiling());
    let run = ["run", "--server-on", &agent, "--server-address", "10.177.0.9", &server, "-d", "2s"];
    let output = on_generator(&hosts, &scene, &run);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output).replace('\n', " ");
    assert!(told.contains("is not reached from here at any of its addresses"), "{told}");
    assert!(told.contains("10.177.0.9") && told.contains("--server-address"), "{told}");
}

/// Whatever the machine is doing, windows are run there and their CPU time is read. On a busy one,
/// the load generator may be late in all of them, and the other host may stand still; then a window
/// does not count, and may have no cost.
#[test]
fn a_capacity_is_searched_on_another_host() {
    let Some(hosts) = hosts(1) else { return };
    let scene = Scene::new();
    let (export, agent, server) =
        (scene.path("run.json").display().to_string(), hosts.agent(0), ceiling());
    let search = ["capacity", "--server-on", &agent, "--slo", "p99<100ms", &server, "-c8"];
    let output = on_generator(
        &hosts,
        &scene,
        &[&search[..], &["-d", "10s", "--export-json", &export]].concat(),
    );
    assert!(laps::were_measured(output.status.code()), "{}", stderr(&output));
    let export = scene.export();
    assert_eq!(export["host"]["generator"]["address"], "10.177.0.1");
    assert_eq!(
        export["capacity"][0]["rows"].as_array().unwrap().len(),
        1,
        "{}",
        export["capacity"]
    );
    let laps = export["laps"].as_array().unwrap();
    assert!(!laps.is_empty(), "{}", stderr(&output));
    for lap in laps {
        let doubts = lap["doubts"].as_array().unwrap().iter().map(|doubt| doubt.as_str().unwrap());
        let stood_still = "the servers' host did not answer for ";
        let is_still = doubts.clone().any(|doubt| doubt.starts_with(stood_still));
        assert!(is_still || lap["cpu_us"].as_f64().is_some_and(|us| us > 0.0), "{lap}");
        let known = |doubt: &str| doubt.starts_with("the generator sent ") || is_still;
        assert!(doubts.into_iter().all(known), "{lap}");
        assert!(!is_still || lap["counts"] == false, "{lap}");
    }
    scene.is_clean();
}

#[test]
fn a_difference_is_explained_on_another_host() {
    let Some(hosts) = hosts(1) else { return };
    let scene = Scene::new();
    let (export, agent) = (scene.path("run.json").display().to_string(), hosts.agent(0));
    let (one, two) = (ceiling(), format!("env OTHER=1 {HOTLAP} __ceiling"));
    let explain = ["explain", "--server-on", &agent, &one, &two, "--name", "one", "--name", "two"];
    let output = on_generator(
        &hosts,
        &scene,
        &[&explain[..], &["-c8", "-d", "12s", "--export-json", &export]].concat(),
    );
    assert!(laps::were_measured(output.status.code()), "{}", stderr(&output));
    let export = scene.export();
    assert_eq!(export["host"]["generator"]["address"], "10.177.0.1");
    let missing = export["run"]["schedule"]["observing"]["missing"].as_array().unwrap();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for what in missing {
        assert!(what["why"].as_str().unwrap().starts_with(&format!("on {host}: ")), "{what}");
    }
    if output.status.success() {
        let ledger = export["explanations"][0]["ledger"].as_array().unwrap();
        assert!(!ledger.is_empty() || !missing.is_empty(), "{}", stderr(&output));
    }
    scene.is_clean();
}
