//! Tests `--server-on`: servers run under an agent and are loaded from here. In some tests, the
//! agent, the connection to its host, or hotlap itself fails. hotlap must not hang, must leave
//! nothing behind on either host, and must keep finished laps. No lap that the fault has changed
//! may count. A message must name the command, the phase, the cause and the remedy.

use std::net::TcpStream;
use std::time::Duration;

use hotlap::store::Store;
use hotlap_testkit::hosts::{Hosts, Slow};
use hotlap_testkit::{Hotlap, Running, Said, Scene, agent, ceiling, program, until};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::{have_costs, laps, named, pids, short_run};

fn run(scene: &Scene, server_on: &str, server: &str) -> Hotlap {
    short_run(scene).args(["--server-on", server_on, server])
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A login banner is not a fault of the agent.
#[test]
fn a_server_under_an_agent_is_measured_and_nothing_stays_behind() {
    let scene = Scene::new();
    let banner = format!("sh -c 'echo Welcome; echo motd >&2; exec \"$@\"' sh {}", program());
    run(&scene, &banner, &ceiling()).said().measured();
    let export = scene.json("run.json");
    have_costs(&export);
    let lap = &export["laps"][0];
    assert!(lap["rss_mb"].as_f64().is_some_and(|mb| mb > 0.0), "{lap}");
    let controller = &export["host"]["controller"];
    assert_eq!(controller["command"], banner);
    // The agent shares this machine's network, so every server is reached.
    assert_eq!(controller["address"], "127.0.0.1");
    assert_eq!(controller["machine"]["allowed"], export["host"]["machine"]["allowed"]);
    scene.is_clean();
    let left = scene.names("cache/logs").into_iter();
    let folders = left.filter(|name| scene.path("cache/logs").join(name).is_dir());
    assert_eq!(folders.count(), 0, "folders of logs are removed");
}

#[test]
fn a_server_under_an_agent_is_stressed() {
    let scene = Scene::new();
    let line = "run --stress --scenario garbage --export-json run.json --server-on";
    let said = scene.hotlap(line).args([agent(), ceiling()]).said();
    let export = scene.json("run.json");
    let measured = &export["stress"]["servers"][0]["measured"][0]["observed"];
    assert!(measured["during"]["responses"].as_u64() > Some(0), "{}", said.flat());
    assert!(measured["fate"]["answered"]["400"].as_u64() > Some(0), "{measured}");
    assert!(measured["held"][2]["rss_bytes"].as_u64() > Some(0), "{measured}");
    assert!(measured["idle"].is_array(), "its CPU time is known: {measured}");
    scene.is_clean();
}

#[test]
fn what_is_missing_over_there_is_named() {
    let scene = Scene::new();
    run(&scene, "sh -c 'echo no such host >&2; exit 127'", &ceiling())
        .said()
        .fails(1)
        .has("while connecting: no agent answered")
        .has("no such host")
        .has("/path/to/hotlap");
    run(&scene, &agent(), "sh -c 'echo the disk is gone; exit 3'").said().fails(3);
    let failure = scene.json("run.json")["failed"][0].clone();
    assert_eq!(failure["phase"], "start");
    assert_eq!(failure["cause"], "the server exited with code 3 before its first response");
    assert_eq!(failure["log_tail"], json!(["the disk is gone"]));
    scene.server("sh/one", "probe = [\"no-such-toolchain\"]", &[&program(), "__ceiling"]);
    run(&scene, &agent(), "sh/one").said().fails(3);
    let failure = scene.json("run.json")["failed"][0].clone();
    assert_eq!(failure["phase"], "toolchain");
    let cause = failure["cause"].as_str().unwrap();
    assert!(cause.starts_with(&format!("on {}: no-such-toolchain: ", host_name())), "{cause}");
    scene.is_clean();
}

#[test]
fn a_difference_is_explained_on_another_host() {
    let scene = Scene::new();
    let explain = scene.hotlap("explain -c8 -d12s --export-json run.json --name one --name two");
    let two = format!("env OTHER=1 {}", ceiling());
    let said = explain.args(["--server-on", &agent(), &ceiling(), &two]).said().measured();
    let export = scene.json("run.json");
    let missing = export["run"]["schedule"]["observing"]["missing"].as_array().unwrap();
    let on = format!(" (on {})", host_name());
    assert!(missing.iter().all(|what| what["why"].as_str().unwrap().ends_with(&on)));
    if said.code == Some(0) {
        let ledger = export["explanations"][0]["ledger"].as_array().unwrap();
        assert!(!ledger.is_empty() || !missing.is_empty(), "{said:?}");
    }
    scene.is_clean();
}

/// A run of a server under an agent that a test can stop or kill.
struct UnderWay {
    scene: Scene,
    /// The command of the agent, as typed.
    typed: String,
    running: Running,
}

impl UnderWay {
    fn of(scene: Scene, server: &str, more: &str) -> Self {
        let typed = named(&scene, "pid");
        let running = start(&scene, &typed, server, more);
        Self { scene, typed, running }
    }

    /// Starts a run of many laps, and waits until three laps are stored.
    fn in_laps(more: &str) -> Self {
        let mut own = Self::of(Scene::new(), &ceiling(), &format!("--rounds 2000 -d 600s {more}"));
        own.some_laps(3);
        own
    }

    /// Waits until this many further laps are stored.
    fn some_laps(&mut self, more: u64) {
        let enough = laps(&self.scene) + more;
        self.running.until("more laps", || laps(&self.scene) >= enough);
    }

    fn signal(&self, signal: Signal) {
        kill_process(pids(&self.scene, "pid")[0], signal).unwrap();
    }

    /// Asserts that every server failed in this phase, for a reason that contains this text. At
    /// least this many laps must have been kept, and nothing may stay behind.
    fn fails(self, phase: &str, reason: &str, laps: usize) {
        let said = self.running.end().fails(3);
        // An agent that was stopped can end only after it continues.
        pids(&self.scene, "pid").into_iter().for_each(|pid| _ = kill_process(pid, Signal::CONT));
        let export = self.scene.json("run.json");
        let failure = &export["failed"][0];
        assert_eq!(failure["phase"], phase, "{failure}");
        let cause = failure["cause"].as_str().unwrap();
        assert!(cause.starts_with(&self.typed), "{cause}");
        assert!(cause.contains(reason) && cause.contains("Check that"), "{cause}");
        assert!(failure["remedy"].as_str().unwrap().contains("repeat the run"), "{failure}");
        assert!(export["laps"].as_array().unwrap().len() >= laps, "{said:?}");
        self.scene.is_clean();
    }

    /// Interrupts the run. Returns the laps that count, and the reasons why other laps do not.
    fn interrupted(self) -> (Vec<Value>, Vec<String>) {
        self.running.signal(Signal::INT);
        self.running.end().fails(130);
        self.scene.is_clean();
        counted(&self.scene.json("run.json"))
    }
}

fn start(scene: &Scene, typed: &str, server: &str, more: &str) -> Running {
    run_of(scene, more).args(["--server-on", typed, server]).start()
}

fn run_of(scene: &Scene, more: &str) -> Hotlap {
    scene.hotlap("run --restarts 1 --no-ceiling -c 4 --export-json run.json").words(more)
}

/// Returns the laps that count, and the reasons why other laps do not.
fn counted(export: &Value) -> (Vec<Value>, Vec<String>) {
    have_costs(export);
    let laps = export["laps"].as_array().unwrap().iter().cloned();
    let (counted, others): (Vec<Value>, Vec<Value>) = laps.partition(|lap| lap["counts"] == true);
    let doubts = others.iter().flat_map(|lap| lap["doubts"].as_array().unwrap().clone());
    (counted, doubts.map(|doubt| doubt.as_str().unwrap().to_owned()).collect())
}

fn is_silence(doubt: &str) -> bool {
    doubt.starts_with("the servers' host did not answer for ")
}

#[test]
fn an_agent_that_is_killed_while_it_builds_ends_the_run() {
    let scene = Scene::new();
    let build = format!("touch {}; sleep 1000", scene.file("reached"));
    let toolchain = format!("probe = [\"true\"]\nbuild = [[\"sh\", \"-c\", \"{build}\"]]");
    scene.server("sh/one", &toolchain, &[&program(), "__ceiling"]);
    let mut own = UnderWay::of(scene, "sh/one", "-d 600s");
    own.running.until("a build", || own.scene.path("reached").exists());
    own.signal(Signal::KILL);
    // The command that opens the channel may also print why it ended, in between.
    let said = own.running.end().fails(1);
    said.has("while building servers: the agent ended or lost its connection. ")
        .has("Check that its host and the");
    own.scene.is_clean();
}

#[test]
fn an_agent_that_is_killed_while_a_server_starts_ends_the_run() {
    let scene = Scene::new();
    let server = format!("sh -c 'touch {}; sleep 1000'", scene.file("reached"));
    let mut own = UnderWay::of(scene, &server, "-d 600s");
    own.running.until("a start", || own.scene.path("reached").exists());
    own.signal(Signal::KILL);
    own.fails("start", "while starting a server: the agent ended", 0);
}

#[test]
fn an_agent_that_is_killed_in_a_warm_up_ends_the_run() {
    let mut own = UnderWay::of(Scene::new(), &ceiling(), "-d 600s");
    let store = own.scene.store();
    own.running.until("a start", || {
        let run = Store::open_existing(&store).and_then(|store| store.run(1));
        run.is_ok_and(|run| !run.starts.is_empty())
    });
    own.signal(Signal::KILL);
    own.fails("warm-up", "the agent ended", 0);
}

#[test]
fn an_agent_that_is_killed_in_a_lap_keeps_the_finished_ones() {
    let own = UnderWay::in_laps("");
    own.signal(Signal::KILL);
    own.fails("lap", "the agent ended", 3);
}

#[test]
fn an_agent_that_stays_stopped_ends_the_run_after_10_s() {
    let own = UnderWay::in_laps("");
    own.signal(Signal::STOP);
    own.fails("lap", "did not answer within 10s", 3);
}

/// The load continues while the agent is stopped, and the agent takes its readings late.
/// Regression: the window of a slice opened while the server was still frozen.
#[test]
fn laps_in_which_the_agent_is_stopped_for_0_3_s_are_right() {
    let mut own = UnderWay::in_laps("--slice 300ms");
    for _ in 0..10 {
        own.some_laps(1);
        own.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(300));
        own.signal(Signal::CONT);
    }
    own.some_laps(2);
    let (laps, _) = own.interrupted();
    let mut costs: Vec<f64> = laps.iter().filter_map(|lap| lap["cpu_us"].as_f64()).collect();
    costs.sort_by(f64::total_cmp);
    assert!(costs.len() >= 8, "{costs:?}");
    let median = costs[costs.len() / 2];
    assert!(costs[0] > median / 2.0 && costs[costs.len() - 1] < median * 2.0, "{costs:?}");
}

#[test]
fn servers_and_agent_end_when_hotlap_is_killed() {
    let own = UnderWay::in_laps("");
    own.running.kill();
    own.scene.is_clean();
}

/// The hosts of the servers (0) and of the generator (1).
const SERVERS: usize = 0;
const GENERATOR: usize = 1;

/// A run whose channel runs over the cable between two hosts, as the channel of `ssh` does.
struct Cabled {
    hosts: Hosts,
    own: UnderWay,
}

impl Cabled {
    /// Changes the hosts, and starts a run on the generator's host.
    fn start(change: impl FnOnce(&Hosts), more: &str) -> Option<Self> {
        let (hosts, scene) = (Hosts::new(1)?, Scene::new());
        change(&hosts);
        let (typed, agent) = hosts.over_cable(SERVERS, GENERATOR, &scene.hotlap("agent"));
        std::thread::spawn(move || agent.recv().ok()?.wait().ok());
        let run = run_of(&scene, more).args(["--server-on", &typed, &ceiling()]);
        let running = run.under(&hosts.at(GENERATOR)).start();
        Some(Self { hosts, own: UnderWay { scene, typed, running } })
    }

    fn in_laps(more: &str) -> Option<Self> {
        let mut cabled = Self::start(|_| (), &format!("--rounds 2000 -d 600s {more}"))?;
        cabled.own.some_laps(3);
        Some(cabled)
    }

    /// Waits until no socket is open on either host. The agent may need 15 s to notice that hotlap
    /// is gone.
    fn is_clean(hosts: &Hosts) {
        until("sockets are closed", || {
            [SERVERS, GENERATOR].iter().all(|host| hosts.sockets(*host).is_empty())
        });
    }
}

#[test]
fn a_cable_that_is_unplugged_ends_the_run_and_the_agent() {
    let Some(Cabled { hosts, own }) = Cabled::in_laps("") else { return };
    hosts.cable(GENERATOR, "down");
    own.fails("lap", "did not answer within 10s", 3);
    Cabled::is_clean(&hosts);
}

/// The agent can only learn from silence that hotlap has been killed.
#[test]
fn servers_and_agent_end_when_hotlap_is_killed_behind_an_unplugged_cable() {
    let Some(Cabled { hosts, own }) = Cabled::in_laps("") else { return };
    hosts.cable(GENERATOR, "down");
    own.running.kill();
    own.scene.is_clean();
    Cabled::is_clean(&hosts);
}

/// For 3 s, no request gets a response. A lap that contains this time would make the server look
/// slow.
#[test]
fn no_lap_counts_in_which_the_cable_was_unplugged_for_a_while() {
    let Some(Cabled { hosts, mut own }) = Cabled::in_laps("--slice 300ms") else { return };
    hosts.cable(GENERATOR, "down");
    std::thread::sleep(Duration::from_secs(3));
    hosts.cable(GENERATOR, "up");
    own.some_laps(5);
    let (laps, doubts) = own.interrupted();
    let longest = laps.iter().map(|lap| lap["max_ms"].as_f64().unwrap()).fold(0.0, f64::max);
    assert!(longest < 2_000.0, "a response took {longest} ms in a lap that counts");
    assert!(doubts.iter().any(|doubt| is_silence(doubt)), "{doubts:?}");
}

#[test]
fn a_slow_cable_that_loses_packets_is_no_fault() {
    let slow = Slow { delay: Duration::from_millis(10), lost_of: 100 };
    let cabled = Cabled::start(|hosts| hosts.slow_cable(GENERATOR, slow), "-d 2s --rounds 1");
    let Some(Cabled { own, hosts: _hosts }) = cabled else { return };
    let said = own.running.end();
    let export = own.scene.json("run.json");
    // Readings may be late by a round trip, which must be short compared with a slice.
    let slice_ms = export["run"]["schedule"]["slices_ms"][0].as_f64().unwrap();
    assert!(slice_ms >= 333.0 * 20.0, "{slice_ms}");
    let (laps, doubts) = counted(&export);
    // A packet of the channel that is lost twice in a row takes 0.6 s. A lap that contains this
    // time must not count.
    match said.code {
        Some(0) => assert!(!laps.is_empty(), "{doubts:?}"),
        Some(4) => {
            assert!(laps.is_empty() && doubts.iter().all(|doubt| is_silence(doubt)), "{doubts:?}")
        }
        _ => panic!("{said:?}"),
    }
    own.scene.is_clean();
}

/// Makes a short run that is started on the generator's host.
fn run_between(hosts: &Hosts, scene: &Scene, server: &str, more: &str) -> Said {
    let run = run(scene, &hosts.agent(SERVERS), server).words(more);
    run.under(&hosts.at(GENERATOR)).said()
}

#[test]
fn the_address_between_two_hosts_is_found_or_named_with_a_remedy() {
    let Some(hosts) = Hosts::new(1) else { return };
    let scene = Scene::new();
    run_between(&hosts, &scene, &ceiling(), "").measured();
    let export = scene.json("run.json");
    assert_eq!(export["host"]["controller"]["address"], "10.177.0.1");
    have_costs(&export);
    assert!(export["run"]["schedule"]["slices_ms"][0].as_f64().is_some_and(|ms| ms >= 300.0));
    run_between(&hosts, &scene, &ceiling(), "--server-address 10.177.0.9")
        .fails(1)
        .has("cannot be reached from here at 10.177.0.9. Open its ports")
        .has("--server-address");
    let server = format!("env HOST=127.0.0.1 {}", ceiling());
    run_between(&hosts, &scene, &server, "--start-timeout 20s").fails(3);
    let failure = scene.json("run.json")["failed"][0].clone();
    let cause = failure["cause"].as_str().unwrap();
    assert!(cause.starts_with("the server listens on 127.0.0.1:"), "{cause}");
    assert!(cause.ends_with(", which other hosts cannot reach"), "{cause}");
    let remedy = "make the server listen on $HOST (10.177.0.1), or on all addresses";
    assert_eq!(failure["remedy"], remedy);
    scene.is_clean();
}

/// Starts the minimal server at this address of a host, outside of any run.
fn running(hosts: &Hosts, host: usize, ip: &str) -> Running {
    let server = Scene::new().hotlap("__ceiling").env("HOST", ip).env("PORT", "8080");
    let mut server = server.under(&hosts.at(host)).start();
    let address = format!("{ip}:8080");
    server.until("it answers", || {
        let address = address.clone();
        hosts.on(host, move || TcpStream::connect(address).is_ok())
    });
    server
}

#[test]
fn a_server_that_runs_already_is_measured_if_it_is_there_and_left_alone() {
    let Some(hosts) = Hosts::new(1) else { return };
    let scene = Scene::new();
    let mut server = running(&hosts, SERVERS, "10.177.0.1");
    run_between(&hosts, &scene, "http://10.177.0.1:8080/", "--allow-remote").measured();
    have_costs(&scene.json("run.json"));
    assert!(!server.has_ended(), "it still runs");
    let _elsewhere = running(&hosts, GENERATOR, "127.0.0.1");
    run_between(&hosts, &scene, "http://127.0.0.1:8080/", "").measured().has(&format!(
        "CPU time is unknown: http://127.0.0.1:8080 is not an address of {}.",
        host_name()
    ));
    assert_eq!(scene.json("run.json")["laps"][0]["cpu_us"], Value::Null);
    scene.is_clean();
}
