//! `hotlap run --generator-on`: the load of each lap comes from agents. They are subprocesses, or in
//! network namespaces that virtual interfaces join (as root).
#![cfg(target_os = "linux")]

use crate::laps;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const HOTLAP: &str = env!("CARGO_BIN_EXE_hotlap");

/// A hang is an error; a busy machine is not.
const LIMIT: Duration = Duration::from_secs(180);

/// A folder with a store, an export and whatever else a test needs.
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

    /// A command with these generators, in a folder of its own.
    fn command(&self, words: &[&str], generators: &[String]) -> Command {
        let mut command = Command::new(HOTLAP);
        command.args(words);
        generators.iter().for_each(|typed| {
            command.args(["--generator-on", typed]);
        });
        command
            .arg("--export-json")
            .arg(self.path("run.json"))
            .current_dir(self.folder.path())
            .env("HOTLAP_CACHE", self.path("cache"))
            .env("XDG_DATA_HOME", self.path("data"))
            .env("HOTLAP_CONFIG", "/dev/null")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A short run of one server.
    fn run(&self, generators: &[String], more: &[&str]) -> Output {
        let server = ceiling();
        let words = ["run", &server, "--restarts", "1", "--rounds", "1", "-c4", "-d2s"];
        self.command(&[&words[..], &["--no-ceiling"], more].concat(), generators).output().unwrap()
    }

    fn export(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path("run.json")).unwrap()).unwrap()
    }

    /// The number of laps in the store.
    fn laps(&self) -> i64 {
        let db = rusqlite::Connection::open(self.path("data/hotlap/hotlap.db"));
        let count = |db: rusqlite::Connection| {
            db.query_row("SELECT count(*) FROM lap", [], |row| row.get(0))
        };
        db.and_then(count).unwrap_or(0)
    }
}

/// A server that hotlap has.
fn ceiling() -> String {
    format!("{HOTLAP} __ceiling")
}

/// A generator of this host.
fn plain() -> String {
    format!("env {HOTLAP}")
}

/// One that appends its process number to a file each time that it is started.
fn named(file: &Path) -> String {
    format!("sh -c 'echo $$ >> {}; exec \"$@\"' sh {HOTLAP}", file.display())
}

/// The process numbers in a file.
fn pids(file: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The export of a run that ends by itself, its exit code and its messages.
fn ended(scene: &Scene, mut child: Child) -> (Option<i32>, Value, String) {
    let deadline = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it has not ended: {}", stderr(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
    (output.status.code(), scene.export(), told)
}

/// Every counted lap is the sum of what its generators contributed, and has a cost.
fn adds_up(export: &Value, generators: usize) {
    laps::have_costs(export);
    let laps = export["laps"].as_array().unwrap();
    for lap in laps.iter().filter(|lap| lap["counts"] == true) {
        let each = lap["generators"].as_array().unwrap();
        assert_eq!(each.len(), generators, "{lap}");
        let sum: u64 = each.iter().map(|own| own["answers"].as_u64().unwrap()).sum();
        assert_eq!(Some(sum), lap["answers"].as_u64(), "{lap}");
    }
}

#[test]
fn the_load_of_every_lap_comes_from_all_generators() {
    let scene = Scene::new();
    let output = scene.run(&[plain(), plain()], &["--details"]);
    let export = scene.export();
    adds_up(&export, 2);
    let hosts = export["host"]["generators"].as_array().unwrap();
    assert_eq!(hosts.len(), 2);
    assert_eq!(hosts[0]["command"], plain());
    assert!(hosts.iter().all(|own| own["host"]["cores"].as_u64().unwrap() > 0), "{hosts:?}");
    // Readings take a round trip, so slices are as long as those of a server on another host.
    assert!(export["run"]["schedule"]["slice_ms"].as_f64().is_some_and(|ms| ms >= 300.0));
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("responses by generator: "), "{stdout}{}", stderr(&output));
    assert!(stderr(&output).contains("The load comes from 2 generators: "), "{}", stderr(&output));
}

/// Regression: connections are kept for the second half of a round, but generators held those of
/// the last server only. Every second lap of the others had its responses, or none. A busy machine
/// may disturb a few laps.
#[test]
fn each_server_has_the_figures_of_its_own_load() {
    let scene = Scene::new();
    let (fast, slow) = (ceiling(), format!("{HOTLAP} __known working:3000"));
    let words = ["run", &fast, &slow, "--name", "fast", "--name", "slow", "--restarts", "1"];
    let load = ["--rounds", "3", "-c4", "-d12s", "--no-ceiling", "--slice", "300ms"];
    let output =
        scene.command(&[&words[..], &load[..]].concat(), &[plain(), plain()]).output().unwrap();
    let export = scene.export();
    adds_up(&export, 2);
    let laps = export["laps"].as_array().unwrap();
    let costs = |name: &str| {
        let of = |lap: &&Value| lap["server"] == name && lap["counts"] == true;
        let mut costs: Vec<f64> =
            laps.iter().filter(of).filter_map(|lap| lap["cpu_us"].as_f64()).collect();
        costs.sort_by(f64::total_cmp);
        costs
    };
    let (fast, slow) = (costs("fast"), costs("slow"));
    assert!(fast.len() >= 3 && slow.len() >= 3, "{}", stderr(&output));
    let (highest, lowest) = (fast[fast.len() - 1 - fast.len() / 3], slow[slow.len() / 3]);
    assert!(lowest > highest, "{fast:?} {slow:?}");
}

#[test]
fn slices_that_are_too_short_for_the_way_to_a_generator_are_lengthened() {
    let scene = Scene::new();
    let output = scene.run(&[plain()], &["--slice", "1ms"]);
    let told = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        told.contains("Warning: slices are ") && told.contains(" long instead of 1.0 ms: a round"),
        "{told}"
    );
    let slice_ms = scene.export()["run"]["schedule"]["slice_ms"].as_f64().unwrap();
    assert!(slice_ms > 1.0, "{slice_ms}");
}

#[test]
fn a_capacity_is_searched_with_several_generators() {
    let scene = Scene::new();
    let server = ceiling();
    let words = ["capacity", &server, "--slo", "p99<1s", "--restarts", "1", "-c4", "-d5s"];
    let output = scene.command(&words, &[plain(), plain()]).output().unwrap();
    assert!(laps::were_measured(output.status.code()), "{}", stderr(&output));
    adds_up(&scene.export(), 2);
}

#[test]
fn servers_and_generators_may_both_be_elsewhere() {
    let scene = Scene::new();
    scene.run(&[plain(), plain()], &["--server-on", &plain()]);
    let export = scene.export();
    adds_up(&export, 2);
    assert_eq!(export["host"]["generator"]["command"], plain());
}

#[test]
fn a_load_that_cannot_be_divided_is_a_usage_error() {
    let scene = Scene::new();
    let output = scene.run(&vec![plain(); 5], &[]);
    assert_eq!(output.status.code(), Some(2));
    let expected = "4 connections cannot be divided among 5 generators: use at least 5 (-c)";
    assert!(stderr(&output).replace('\n', " ").contains(expected), "{}", stderr(&output));
    let alone = scene.run(&[], &["--server-address", "10.0.0.1"]);
    assert_eq!(alone.status.code(), Some(2));
    assert!(stderr(&alone).contains("--generator-on"), "{}", stderr(&alone));
}

#[test]
fn a_generator_that_cannot_be_started_ends_the_run_before_anything_else() {
    let scene = Scene::new();
    let failing = "sh -c 'echo No route to host >&2; exit 255' sh".to_owned();
    let output = scene.run(&[plain(), failing], &[]);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output).replace('\n', " ");
    assert!(told.contains("while connecting: no agent answered"), "{told}");
    assert!(told.contains("No route to host"), "{told}");
}

/// A run of two generators, of which one can be stopped or killed, once it has some laps.
struct UnderWay {
    scene: Scene,
    child: Child,
    file: PathBuf,
}

fn under_way(scene: Scene, generator: &str, rounds: &str) -> UnderWay {
    let file = scene.path("pids");
    let server = ceiling();
    let words = ["run", &server, "--restarts", "1", "--rounds", rounds, "-c4", "-d600s"];
    let more = ["--slice", "300ms", "--no-ceiling"];
    let generators = [plain(), generator.to_owned()];
    let words = [&words[..], &more].concat();
    let child = scene.command(&words, &generators).spawn().unwrap();
    until("no laps", || scene.laps() >= 3);
    UnderWay { scene, child, file }
}

/// Laps that do not count because of a generator.
fn left_out<'a>(export: &'a Value, why: &str) -> Vec<&'a Value> {
    let laps = export["laps"].as_array().unwrap().iter();
    let because = |lap: &&Value| {
        let doubts = lap["doubts"].as_array().unwrap();
        lap["counts"] == false && doubts.iter().any(|doubt| doubt.as_str().unwrap().contains(why))
    };
    laps.filter(because).collect()
}

#[test]
fn a_generator_that_is_killed_costs_one_lap_at_most_and_is_started_again() {
    let scene = Scene::new();
    let generator = named(&scene.path("pids"));
    let UnderWay { scene, child, file } = under_way(scene, &generator, "12");
    let [agent] = pids(&file)[..] else { panic!("{:?}", pids(&file)) };
    kill_process(agent, Signal::KILL).unwrap();
    let (_, export, told) = ended(&scene, child);
    let lost = left_out(&export, "a generator was lost: sh -c 'echo $$ >> ");
    // Between two loads, it costs no lap.
    assert!(lost.len() <= 1, "{told}{lost:#?}");
    for lap in &lost {
        assert!(lap["doubts"][0].as_str().unwrap().contains("while "), "{lap}");
    }
    assert_eq!(pids(&file).len(), 2, "it was not started again");
    // Twelve rounds of two laps each.
    assert!(export["laps"].as_array().unwrap().len() >= 24, "{told}");
    adds_up(&export, 2);
    let told = told.replace('\n', " ");
    assert_eq!(told.contains("the agent ended"), !lost.is_empty(), "{told}");
}

#[test]
fn a_generator_that_stands_still_makes_its_lap_invalid() {
    let scene = Scene::new();
    let generator = named(&scene.path("pids"));
    let UnderWay { scene, child, file } = under_way(scene, &generator, "12");
    let [agent] = pids(&file)[..] else { panic!("{:?}", pids(&file)) };
    kill_process(agent, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    kill_process(agent, Signal::CONT).unwrap();
    let (_, export, told) = ended(&scene, child);
    // It stood still in a window, or learned of the next one too late.
    let still = [left_out(&export, "stood still for "), left_out(&export, " ms late")].concat();
    assert!(!still.is_empty(), "{told}");
    assert_eq!(pids(&file).len(), 1, "it was started again");
}

/// It does not answer any more, and cannot end by itself.
#[test]
fn a_generator_that_stays_stopped_is_replaced() {
    let scene = Scene::new();
    let generator = named(&scene.path("pids"));
    let UnderWay { scene, child, file } = under_way(scene, &generator, "6");
    let [agent] = pids(&file)[..] else { panic!("{:?}", pids(&file)) };
    kill_process(agent, Signal::STOP).unwrap();
    let (_, export, told) = ended(&scene, child);
    assert!(left_out(&export, "no answer within 10s").len() <= 1, "{told}");
    assert_eq!(pids(&file).len(), 2, "it was not started again");
}

#[test]
fn a_generator_that_cannot_be_started_again_ends_the_run_with_what_is_finished() {
    let scene = Scene::new();
    let file = scene.path("pids").display().to_string();
    let once = format!(
        "sh -c 'test -e {file} && echo The host is down >&2 && exit 1; echo $$ > {file}; \
         exec \"$@\"' sh {HOTLAP}"
    );
    let UnderWay { scene, child, file } = under_way(scene, &once, "1000");
    kill_process(pids(&file)[0], Signal::KILL).unwrap();
    let (code, export, told) = ended(&scene, child);
    assert_eq!(code, Some(3), "{told}");
    assert!(export["laps"].as_array().unwrap().len() >= 4, "{export}");
    let failure = &export["failed"][0];
    let cause = failure["cause"].as_str().unwrap();
    assert!(cause.contains("a generator was lost and cannot be started again: sh -c"), "{cause}");
    assert!(cause.contains("while connecting") && cause.contains("The host is down"), "{cause}");
    assert!(failure["remedy"].as_str().unwrap().contains("repeat the run"), "{failure}");
}

/// Hosts, as network namespaces on one bridge; the first has the bridge. `None` without root.
struct Hosts(Vec<String>);

impl Hosts {
    fn new(name: &str, count: usize) -> Option<Self> {
        let of = |host: usize| format!("hr{name}{}-{host}", std::process::id() % 100_000);
        let hosts = Self((0..count).map(of).collect());
        let ip = |line: String| {
            let done = Command::new("ip").args(line.split(' ')).output();
            done.is_ok_and(|done| done.status.success())
        };
        let first = &hosts.0[0];
        let mut made = hosts
            .0
            .iter()
            .all(|host| ip(format!("netns add {host}")) && ip(format!("-n {host} link set lo up")));
        made = made
            && ip(format!("-n {first} link add br0 type bridge"))
            && ip(format!("-n {first} address add 10.178.0.1/24 dev br0"))
            && ip(format!("-n {first} link set br0 up"));
        for (number, host) in hosts.0.iter().enumerate().skip(1) {
            let peer = format!("type veth peer name port{number} netns {first}");
            made = made
                && ip(format!("-n {host} link add eth0 {peer}"))
                && ip(format!("-n {first} link set port{number} master br0 up"))
                && ip(format!("-n {host} address add 10.178.0.{}/24 dev eth0", number + 1))
                && ip(format!("-n {host} link set eth0 up"));
        }
        if !made {
            let line = b"skipped: network namespaces need root and ip(8)\n";
            std::io::stderr().write_all(line).unwrap();
            return None;
        }
        Some(hosts)
    }

    /// The command that starts an agent on a host.
    fn agent(&self, host: usize) -> String {
        format!("ip netns exec {} {HOTLAP}", self.0[host])
    }

    /// Runs a command on a host.
    fn on(&self, host: usize, command: &Command, folder: &Path) -> Output {
        let mut outer = Command::new("ip");
        outer.args(["netns", "exec", &self.0[host]]).arg(command.get_program());
        outer.args(command.get_args()).current_dir(folder);
        outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        outer.output().unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

#[test]
fn generators_of_other_hosts_find_the_servers_of_this_one() {
    let Some(hosts) = Hosts::new("a", 3) else { return };
    let scene = Scene::new();
    let server = ceiling();
    let words = ["run", &server, "--restarts", "1", "--rounds", "1", "-c4", "-d2s", "--no-ceiling"];
    let command = scene.command(&words, &[hosts.agent(1), hosts.agent(2)]);
    let output = hosts.on(0, &command, scene.folder.path());
    adds_up(&scene.export(), 2);
    let told = stderr(&output).replace('\n', " ");
    assert!(told.contains("servers are at 10.178.0.1"), "{told}");
}

/// The servers' host is not the one on which hotlap is started, and neither are the generators'.
#[test]
fn servers_and_generators_may_be_on_three_hosts() {
    let Some(hosts) = Hosts::new("b", 4) else { return };
    let scene = Scene::new();
    let (server, there) = (ceiling(), hosts.agent(0));
    let words = ["run", &server, "--server-on", &there, "--restarts", "1", "--rounds", "1"];
    let words = [&words[..], &["-c4", "-d2s", "--no-ceiling"]].concat();
    let command = scene.command(&words, &[hosts.agent(1), hosts.agent(2)]);
    hosts.on(3, &command, scene.folder.path());
    let export = scene.export();
    adds_up(&export, 2);
    assert_eq!(export["host"]["generator"]["address"], "10.178.0.1");
}

#[test]
fn generators_that_do_not_reach_this_machine_are_named_with_a_remedy() {
    let Some(hosts) = Hosts::new("c", 2) else { return };
    let scene = Scene::new();
    let server = ceiling();
    let words = ["run", &server, "--server-address", "10.178.0.9", "-c4", "-d2s"];
    let command = scene.command(&words, &[hosts.agent(1)]);
    let output = hosts.on(0, &command, scene.folder.path());
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output).replace('\n', " ");
    assert!(told.contains("while looking for the servers' address"), "{told}");
    assert!(told.contains("tried 10.178.0.9") && told.contains("--server-address"), "{told}");
}
