//! `hotlap load --generator-on`, with agents that are processes of this host.

use crate::laps;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use hotlap_testbed::{HELLO, TestServer};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

const HOTLAP: &str = env!("CARGO_BIN_EXE_hotlap");

/// A test that waits for longer than this has failed; nothing is measured with it.
const LIMIT: Duration = Duration::from_secs(60);

/// `hotlap load` with these generators.
fn load(generators: &[String], arguments: &[&str]) -> Command {
    let mut command = Command::new(HOTLAP);
    command.arg("load").env("HOTLAP_CONFIG", "/dev/null");
    generators.iter().for_each(|typed| {
        command.args(["--generator-on", typed]);
    });
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A generator of this host.
fn plain() -> String {
    format!("env {HOTLAP}")
}

/// One that writes its process number to a file, so that a test can stop or kill it.
fn named(file: &Path) -> String {
    format!("sh -c 'echo $$ > {}; exec \"$@\"' sh {HOTLAP}", file.display())
}

/// The process number in a file.
fn pid(file: &Path) -> Pid {
    let text = fs::read_to_string(file).unwrap();
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

fn text(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Waits until something is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the end of a process, which must come by itself.
fn ended(mut child: Child) -> (Option<i32>, String, String) {
    let deadline = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("hotlap has not ended: {:?}", text(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    text(&child.wait_with_output().unwrap())
}

/// A load without end of two generators whose process numbers are known, once it is under way.
struct UnderWay {
    server: TestServer,
    child: Child,
    agents: [Pid; 2],
    _folder: tempfile::TempDir,
}

fn under_way(arguments: &[&str]) -> UnderWay {
    let folder = tempfile::tempdir().unwrap();
    let files: [PathBuf; 2] = ["a", "b"].map(|name| folder.path().join(name));
    let server = TestServer::responding(HELLO);
    let url = server.url();
    let arguments = [&["--no-check", "-c4", &url], arguments].concat();
    let child = load(&files.each_ref().map(|file| named(file)), &arguments).spawn().unwrap();
    until("no load", || server.requests() > 100);
    UnderWay { server, child, agents: files.each_ref().map(|file| pid(file)), _folder: folder }
}

/// Nothing is left of an agent.
fn is_gone(agent: Pid) {
    until("an agent goes on", || test_kill_process(agent).is_err());
}

#[test]
fn the_counts_of_two_and_four_generators_equal_those_of_the_server() {
    for count in [2, 4] {
        let server = TestServer::responding(HELLO);
        let arguments = ["--no-check", "-n20000", "-c8", "--format", "json", &server.url()];
        let output = load(&vec![plain(); count], &arguments).output().unwrap();
        let (code, stdout, stderr) = text(&output);
        assert!(laps::were_measured(code), "{code:?} {stderr}");
        let json: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(json["figures"]["answers"], 20_000);
        assert_eq!(json["figures"]["service"]["count"], 20_000);
        assert_eq!(server.requests(), 20_000);
        let each = json["generators"]["each"].as_array().unwrap();
        let counts: Vec<u64> = each.iter().map(|g| g["responses"].as_u64().unwrap()).collect();
        assert_eq!(counts, vec![20_000 / count as u64; count]);
        let invalid = json["generators"]["invalid"].as_array().unwrap();
        assert_eq!(invalid.is_empty(), code == Some(0), "{json}");
    }
}

/// Without `--no-check`, the server is probed by a generator.
#[test]
fn people_see_what_each_generator_contributed() {
    let server = TestServer::responding(HELLO);
    let output = load(&[plain(), plain()], &["-n1000", "-c4", &server.url()]).output().unwrap();
    let (code, stdout, stderr) = text(&output);
    assert!(laps::were_measured(code), "{code:?} {stderr}");
    assert!(stdout.contains("1,000 correct responses, 0 errors"), "{stdout}");
    let rows = stdout.lines().filter(|line| line.trim_start().starts_with("env /"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split_whitespace().rev().collect()).collect();
    assert_eq!(rows.len(), 2, "{stdout}");
    assert!(rows.iter().all(|row| row.contains(&"500")), "{stdout}");
    assert!(server.requests() > 1_000, "there were no probes");
}

#[test]
fn latency_is_sampled_while_generators_load() {
    let server = TestServer::responding(HELLO);
    let sampler = plain();
    let arguments = ["--no-check", "-c4", "-d1s", "--sample-from", &sampler, &server.url()];
    let human = load(&[plain()], &arguments).output().unwrap();
    let (_, stdout, stderr) = text(&human);
    assert!(stdout.contains("\n  sampled     p50 "), "{stdout}{stderr}");
    let arguments = [&arguments[..], &["--format", "json"]].concat();
    let (_, stdout, stderr) = text(&load(&[plain()], &arguments).output().unwrap());
    let json: Value = serde_json::from_str(&stdout).unwrap();
    let sampler = &json["generators"]["sampler"];
    let known = &sampler["latency"];
    let seen = known["count"].as_u64().unwrap() + known["unanswered"].as_u64().unwrap();
    assert!((50..500).contains(&seen), "{sampler}{stderr}");
    assert_eq!(json["generators"]["each"].as_array().unwrap().len(), 1);
}

#[test]
fn a_wrong_response_is_found_by_generators_too() {
    let server = TestServer::responding(HELLO);
    let arguments = ["-n100", "-c2", "--expect-body", "Bye", &server.url()];
    let (code, _, stderr) = text(&load(&[plain()], &arguments).output().unwrap());
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("a body of 13 bytes instead of 3"), "{stderr}");
}

#[test]
fn a_server_that_does_not_respond_is_named() {
    let url = format!("http://{}/", hotlap_testbed::unused_address());
    let (code, _, stderr) = text(&load(&[plain()], &["-n100", "-c2", &url]).output().unwrap());
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("while probing the server"), "{stderr}");
}

#[test]
fn headers_with_spaces_and_quotes_arrive_as_they_are() {
    let server = TestServer::start(|mut client| {
        while let Some(request) = client.request() {
            let request = String::from_utf8_lossy(&request).into_owned();
            let is_whole = request.contains("X-Test: a 'b' \"c\" $HOME `d` \\n\r\n")
                && request.ends_with("\r\n\r\nline 1\nline '2'");
            let wrong = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
            client.send(if is_whole { HELLO } else { wrong });
        }
    });
    let header = ["-H", "X-Test: a 'b' \"c\" $HOME `d` \\n", "--body", "line 1\nline '2'"];
    let url = server.url();
    let arguments = [&["--no-check", "-n50", "-c2", &url], &header[..]].concat();
    let (code, _, stderr) = text(&load(&[plain(), plain()], &arguments).output().unwrap());
    assert!(laps::were_measured(code), "{code:?} {stderr}");
    assert_eq!(server.requests(), 50);
}

#[test]
fn fewer_connections_than_generators_are_a_usage_error() {
    let arguments = ["--no-check", "-n10", "-c1", "http://127.0.0.1:9/"];
    let (code, _, stderr) = text(&load(&[plain(), plain()], &arguments).output().unwrap());
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("1 connections cannot be divided among 2 generators"), "{stderr}");
}

#[test]
fn a_login_banner_is_no_fault() {
    let server = TestServer::responding(HELLO);
    let banner = format!("sh -c 'echo Welcome; echo motd >&2; exec \"$@\"' sh {HOTLAP}");
    let arguments = ["--no-check", "-n100", "-c2", &server.url()];
    let (code, _, stderr) = text(&load(&[banner], &arguments).output().unwrap());
    assert!(laps::were_measured(code), "{code:?} {stderr}");
    assert_eq!(server.requests(), 100);
}

#[test]
fn a_command_that_prints_an_error_and_ends_is_quoted() {
    let failing = "sh -c 'echo No route to host >&2; exit 255' sh".to_owned();
    let arguments = ["--no-check", "-n100", "-c2", "http://127.0.0.1:9/"];
    let (code, _, stderr) = text(&load(&[plain(), failing], &arguments).output().unwrap());
    assert_eq!(code, Some(1), "{stderr}");
    let expected = "while connecting: no agent answered. It printed \"No route to host\". Check";
    assert!(stderr.contains(expected), "{stderr}");
}

/// The other version does not end by itself.
#[test]
fn an_agent_of_another_version_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (said, number) = (folder.path().join("said"), folder.path().join("pid"));
    let hello = r#"{"protocol":1,"version":"9.9.9","host":"bench2","role":"generator"}"#;
    let frame = [&(hello.len() as u32).to_le_bytes(), hello.as_bytes()].concat();
    fs::write(&said, [b"\0hotlap-agent\0\n".as_slice(), &frame].concat()).unwrap();
    let (said, pid_file) = (said.display(), number.display());
    let other = format!("sh -c 'echo $$ > {pid_file}; cat {said}; exec sleep 1000' sh");
    let arguments = ["--no-check", "-n100", "-c2", "http://127.0.0.1:9/"];
    let (code, _, stderr) = ended(load(&[other], &arguments).spawn().unwrap());
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("the agent on bench2 is hotlap 9.9.9"), "{stderr}");
    is_gone(pid(&number));
}

#[test]
fn a_generator_that_is_killed_makes_the_load_invalid() {
    let UnderWay { server, child, agents, .. } = under_way(&["-d1h", "--format", "json"]);
    kill_process(agents[1], Signal::KILL).unwrap();
    let (code, stdout, stderr) = ended(child);
    assert_eq!(code, Some(4), "{stderr}");
    assert_eq!(stdout, "", "there are no figures");
    let expected = "NOT VALID: a generator was lost, so the load has no result: sh -c 'echo $$ > ";
    assert!(stderr.contains(expected), "{stderr}");
    assert!(stderr.contains("while loading: the agent ended"), "{stderr}");
    agents.into_iter().for_each(is_gone);
    drop(server);
}

#[test]
fn a_generator_that_is_stopped_for_a_while_makes_the_load_invalid() {
    let UnderWay { child, agents, .. } = under_way(&["-d3s", "--format", "json"]);
    kill_process(agents[0], Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    kill_process(agents[0], Signal::CONT).unwrap();
    let (code, stdout, stderr) = ended(child);
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("stood still for "), "{stderr}");
    let json: Value = serde_json::from_str(&stdout).unwrap();
    let invalid = json["generators"]["invalid"].as_array().unwrap();
    assert!(invalid.iter().any(|why| why.as_str().unwrap().contains("stood still")), "{json}");
}

/// It does not answer any more, and cannot end by itself.
#[test]
fn a_generator_that_stays_stopped_is_lost() {
    let UnderWay { child, agents, .. } = under_way(&["-d1h"]);
    kill_process(agents[0], Signal::STOP).unwrap();
    let (code, _, stderr) = ended(child);
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("while loading: no answer within 10s"), "{stderr}");
    agents.into_iter().for_each(is_gone);
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    let UnderWay { child, agents, .. } = under_way(&["-d1h", "--format", "json"]);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let (code, stdout, stderr) = ended(child);
    assert_eq!(code, Some(130), "{stderr}");
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert!(json["figures"]["answers"].as_u64().unwrap() > 0, "{json}");
    agents.into_iter().for_each(is_gone);
}

#[test]
fn agents_end_when_their_controller_is_killed() {
    let UnderWay { mut child, agents, .. } = under_way(&["-d1h"]);
    child.kill().unwrap();
    child.wait().unwrap();
    agents.into_iter().for_each(is_gone);
}

#[test]
fn an_agent_accepts_no_terminal_and_no_other_version() {
    let mut agent = Command::new(HOTLAP);
    agent.arg("agent").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (code, stdout, _) = text(&agent.output().unwrap());
    assert_eq!((code, stdout.as_str()), (Some(1), "\0hotlap-agent\0\n"));
}
