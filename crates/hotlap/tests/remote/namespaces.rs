//! `hotlap load --generator-on` with hosts of its own for server and generators: network namespaces
//! that are joined by virtual cables, which the tests unplug and slow down. Needs root; skipped
//! otherwise, with a message.

use crate::laps;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::hosts::{Hosts, Slow, hosts};
use hotlap_testbed::TestServer;
use serde_json::Value;

const HOTLAP: &str = env!("CARGO_BIN_EXE_hotlap");

fn load(generators: &[String], arguments: &[&str]) -> Command {
    let mut load = Command::new(HOTLAP);
    load.arg("load").env("HOTLAP_CONFIG", "/dev/null");
    generators.iter().for_each(|typed| {
        load.args(["--generator-on", typed]);
    });
    load.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    load
}

fn text(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Waits for the end of a process, which must come by itself.
fn ended(mut child: Child) -> (Option<i32>, String, String) {
    let deadline = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it has not ended: {:?}", text(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    text(&child.wait_with_output().unwrap())
}

/// A test that waits for longer than this has failed; nothing is measured with it.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn generators_on_other_hosts_count_what_the_server_counts() {
    let Some(hosts) = hosts(2) else { return };
    let server = hosts.server();
    let generators: Vec<String> = hosts.generators().collect();
    let url = server.url();
    let counted = ["--no-check", "-n10000", "-c8", "--format", "json", &url];
    let (code, stdout, stderr) = text(&load(&generators, &counted).output().unwrap());
    assert!(laps::were_measured(code), "{code:?} {stderr}");
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["figures"]["answers"], 10_000, "{json}");
    assert_eq!(server.requests(), 10_000);
    // The server is probed by a generator: this process cannot reach it.
    let output = load(&generators, &["-n100", "-c2", &url]).output().unwrap();
    let (code, stdout, stderr) = text(&output);
    assert!(laps::were_measured(code), "{code:?} {stderr}");
    assert!(stdout.contains("100 correct responses, 0 errors"), "{stdout}");
}

/// Two generators whose channels go over their cables, and their agents' processes.
struct Cabled {
    hosts: Hosts,
    server: TestServer,
    generators: Vec<String>,
    agents: Vec<mpsc::Receiver<Child>>,
}

fn cabled() -> Option<Cabled> {
    let hosts = hosts(3)?;
    let server = hosts.server();
    let over_cable = |host| {
        let mut agent = Command::new(HOTLAP);
        agent.arg("agent");
        hosts.over_cable(host, 3, agent)
    };
    let (generators, agents) = [1, 2].into_iter().map(over_cable).unzip();
    Some(Cabled { hosts, server, generators, agents })
}

impl Cabled {
    /// Starts a load and waits until it is under way.
    fn start(&self, arguments: &[&str]) -> Child {
        let url = self.server.url();
        let arguments = [&["--no-check", "-c4", &url], arguments].concat();
        let mut child = load(&self.generators, &arguments).spawn().unwrap();
        let deadline = Instant::now() + LIMIT;
        while self.server.requests() < 100 {
            let is_under_way = child.try_wait().unwrap().is_none() && Instant::now() < deadline;
            assert!(is_under_way, "{:?}", text(&child.wait_with_output().unwrap()));
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    /// Nothing is left of the agents.
    fn are_gone(&self) {
        for agent in &self.agents {
            let _ = ended(agent.recv_timeout(LIMIT).unwrap());
        }
    }
}

#[test]
fn a_cable_that_is_unplugged_loses_the_generator() {
    let Some(cabled) = cabled() else { return };
    let child = cabled.start(&["-d1h"]);
    cabled.hosts.cable(1, "down").unwrap();
    let (code, _, stderr) = ended(child);
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("NOT VALID: a generator was lost"), "{stderr}");
    assert!(stderr.contains("while loading: no answer within 10s"), "{stderr}");
    cabled.are_gone();
}

#[test]
fn a_cable_that_is_unplugged_for_a_while_makes_the_load_invalid() {
    let Some(cabled) = cabled() else { return };
    let child = cabled.start(&["-d6s", "--format", "json"]);
    cabled.hosts.cable(1, "down").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    cabled.hosts.cable(1, "up").unwrap();
    let (code, stdout, stderr) = ended(child);
    assert_eq!(code, Some(4), "{stdout}{stderr}");
    // The channel may come back later than its limit, and then the generator is lost. On a busy
    // host, the other one may get no response in those 2 s either, and then has too small a share.
    let reasons = [
        "s while the others did. Check its connection",
        "a generator was lost",
        " % of its share of the requests",
    ];
    assert!(reasons.iter().any(|reason| stderr.contains(reason)), "{stderr}");
    cabled.are_gone();
}

/// A round trip of 100 ms: clocks are known to within 50 ms, and that counts against the overlap.
#[test]
fn a_slow_cable_is_no_fault_if_the_window_is_long_enough() {
    let Some(cabled) = cabled() else { return };
    let slow = Slow { delay: Duration::from_millis(50), lost_of: 0 };
    cabled.hosts.slow_cable(1, slow).unwrap();
    let child = cabled.start(&["-R200", "-d5s", "--format", "json"]);
    let (code, stdout, stderr) = ended(child);
    assert!(laps::were_measured(code), "{code:?} {stderr}");
    let json: Value = serde_json::from_str(&stdout).unwrap();
    let each = &json["generators"]["each"];
    assert!(each[0]["before"]["error_ns"].as_u64().unwrap() >= 50_000_000, "{each}");
    assert!(!stderr.contains("all generators measured together for "), "{stderr}");
    let overlap = json["generators"]["overlap"].as_f64().unwrap();
    assert!(overlap > 0.9 && overlap < 0.99, "{overlap}");
    cabled.are_gone();
}

#[test]
fn a_slow_cable_makes_a_short_load_invalid() {
    let Some(cabled) = cabled() else { return };
    let slow = Slow { delay: Duration::from_millis(50), lost_of: 100 };
    cabled.hosts.slow_cable(1, slow).unwrap();
    let child = cabled.start(&["-R2000", "-d600ms"]);
    let (code, stdout, stderr) = ended(child);
    assert_eq!(code, Some(4), "{stdout}{stderr}");
    assert!(stderr.contains("all generators measured together for "), "{stderr}");
    cabled.are_gone();
}
