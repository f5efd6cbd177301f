//! Replay of an access log: what a server gets, in which order and when.

use std::fs;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::input::{Input, text};
use hotlap_testbed::TestServer;
use serde_json::Value;

/// The heads of all requests and the times at which they came.
type Seen = Arc<Mutex<Vec<(String, Instant)>>>;

/// A server that records what it gets. A path that begins with `/missing` is a 404.
fn recorder() -> (TestServer, Seen) {
    let seen = Seen::default();
    let log = seen.clone();
    let server = TestServer::start(move |mut client| {
        while let Some(request) = client.request() {
            let head = String::from_utf8(request).expect("text");
            let status = match head.contains(" /missing") {
                true => "404 Not Found",
                false => "200 OK",
            };
            log.lock().expect("a log").push((head.clone(), Instant::now()));
            let body = if head.starts_with("HEAD") { "" } else { "x" };
            let response = format!("HTTP/1.1 {status}\r\nContent-Length: 1\r\n\r\n{body}");
            if !client.send(response.as_bytes()) {
                return;
            }
        }
    });
    (server, seen)
}

/// The request lines without the version, in order.
fn lines(seen: &Seen) -> Vec<String> {
    let seen = seen.lock().unwrap();
    seen.iter().map(|(head, _)| head.split(" HTTP").next().unwrap().to_owned()).collect()
}

const LOG: &str = r#"::1 - - [24/Nov/2026:08:24:04 +0000] "GET /a?b=1 HTTP/1.1" 200 5 "-" "x"
::1 - - [24/Nov/2026:08:24:04 +0000] "GET /missing HTTP/1.1" 404 5 "-" "x"
{"ts":1795508644,"request":{"method":"HEAD","uri":"/head"},"status":200}
::1 - - [24/Nov/2026:08:24:04 +0000] "POST /post HTTP/1.1" 200 5 "-" "x"
not a line of a log
{"time_iso8601":"2026-11-24T08:24:05Z","request":"GET http://h/\"q\" HTTP/1.1","status":"304"}
"#;

const ONCE: [&str; 4] = ["GET /a?b=1", "GET /missing", "HEAD /head", "GET /\"q\""];

fn input(content: &str) -> Input {
    Input::new("access.log", "--access-log", content)
}

fn succeeded(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn requests_are_sent_in_the_order_of_the_log_and_again_from_the_first() {
    let (server, seen) = recorder();
    let folder = input(LOG);
    let output = folder.hotlap("load", &["-n", "10", "-c1", &server.url()]);
    succeeded(&output);
    let expected: Vec<&str> = ONCE.into_iter().cycle().take(10).collect();
    assert_eq!(lines(&seen), expected);
    let told = text(&output.stderr);
    let cause = "line 5 is neither in Common or Combined Log Format nor a JSON object";
    assert!(told.contains(&format!("access.log: 1 of 6 lines left out: {cause}")), "{told}");
    assert!(told.contains("1 request left out that are neither GET nor HEAD (POST 1)"), "{told}");
}

#[test]
fn each_method_and_status_has_figures_of_its_own_and_no_path_is_exported() {
    let (server, _) = recorder();
    let folder = input(LOG);
    let output =
        folder.hotlap("load", &["-n", "8", "-c2", "-t2", "--format", "json", &server.url()]);
    succeeded(&output);
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    let own = outcome["figures"]["by_request"].as_array().unwrap();
    let counts: Vec<(&str, u64, u64)> = own
        .iter()
        .map(|own| {
            let count = |name: &str| own[name].as_u64().unwrap();
            (own["name"].as_str().unwrap(), count("answers"), count("errors"))
        })
        .collect();
    let expected = ["GET 200", "GET 404", "HEAD 200", "GET 2xx"].map(|name| (name, 2, 0));
    assert_eq!(counts, expected);
    assert_eq!(outcome["plan"]["order"]["entries"], 4);
    assert!(!text(&output.stdout).contains("/missing"));
}

/// Each thread sends every second entry; a thread may get ahead of the other.
#[test]
fn two_threads_share_the_log() {
    let log: String = (0..100)
        .map(|n| format!("::1 - - [24/Nov/2026:08:24:04 +0000] \"GET /{n} HTTP/1.1\" 200 5\n"))
        .collect();
    let (server, seen) = recorder();
    let output = input(&log).hotlap("load", &["-n", "100", "-c2", "-t2", &server.url()]);
    succeeded(&output);
    let all: Vec<u32> =
        lines(&seen).iter().map(|line| line["GET /".len()..].parse().unwrap()).collect();
    for parity in [0, 1] {
        let share: Vec<u32> = all.iter().copied().filter(|n| n % 2 == parity).collect();
        assert_eq!(share, (0..50).map(|n| 2 * n + parity).collect::<Vec<_>>());
    }
}

#[test]
fn a_response_with_another_status_than_in_the_log_is_an_error() {
    let (server, _) = recorder();
    let folder = input(&LOG.replace("\"GET /missing", "\"GET /found"));
    let output = folder.hotlap("load", &["-n", "4", "-c1", &server.url()]);
    assert_eq!(output.status.code(), Some(3));
    let told = text(&output.stderr);
    assert!(told.contains("The first wrong response: status 200"), "{told}");
    assert!(told.contains("The access log has another status."), "{told}");
    assert!(told.contains("  | GET /found HTTP/1.1"), "{told}");
}

#[test]
fn unsafe_methods_are_sent_without_bodies_and_headers_are_added_as_they_are() {
    let (server, seen) = recorder();
    let folder = input(LOG);
    let arguments = ["-n", "5", "-c1", "--unsafe-methods", "-H", "X-Key: ${a}", &server.url()];
    succeeded(&folder.hotlap("load", &arguments));
    let seen = seen.lock().unwrap();
    let post = &seen.iter().find(|(head, _)| head.starts_with("POST")).unwrap().0;
    assert!(post.contains("\r\nContent-Length: 0\r\n"), "{post}");
    assert!(seen.iter().all(|(head, _)| head.contains("\r\nX-Key: ${a}\r\n")));
}

#[test]
fn a_random_order_follows_from_the_seed() {
    let log: String = (0..50)
        .map(|n| format!("::1 - - [24/Nov/2026:08:24:04 +0000] \"GET /{n} HTTP/1.1\" 200 5\n"))
        .collect();
    let folder = input(&log);
    let sent = |seed: &str| {
        let (server, seen) = recorder();
        let arguments = ["-n", "50", "-c1", "--replay", "weights", "--seed", seed, &server.url()];
        succeeded(&folder.hotlap("load", &arguments));
        lines(&seen)
    };
    let first = sent("1");
    assert_eq!(first, sent("1"));
    assert_ne!(first, sent("2"));
    let mut sorted = first;
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), 50);
}

/// No request can come before it is due. How late it comes depends on the machine.
#[test]
fn times_of_the_log_are_kept_and_the_load_ends_with_it() {
    let line = |ms: u32| {
        format!("{{\"ts\":1795508644.{ms:03},\"request\":\"GET /{ms} HTTP/1.1\",\"status\":200}}\n")
    };
    let log = [600, 0, 200].map(line).concat();
    let folder = input(&log);
    for (speed, gaps_ms) in [("1", [200, 400]), ("4", [50, 100])] {
        let (server, seen) = recorder();
        let began = Instant::now();
        let arguments = ["--replay", "times", "--replay-speed", speed, "-c3", &server.url()];
        let output = folder.hotlap("load", &arguments);
        succeeded(&output);
        assert!(began.elapsed() >= Duration::from_millis(gaps_ms[0] + gaps_ms[1]));
        assert_eq!(lines(&seen), ["GET /0", "GET /200", "GET /600"]);
        let out = text(&output.stdout);
        assert!(out.contains("times of the log, "), "{out}");
    }
    let (server, seen) = recorder();
    succeeded(&folder.hotlap("load", &["--replay", "times", "-d", "0.3s", &server.url()]));
    assert_eq!(lines(&seen), ["GET /0", "GET /200"]);
}

#[test]
fn a_run_replays_a_log_against_each_server() {
    let (server, seen) = recorder();
    let folder = input(LOG);
    let schedule = ["--restarts", "1", "--rounds", "1", "--slice", "50ms"];
    let mut arguments = vec!["--no-store", "-c4", "--export-json", "-"];
    arguments.extend(schedule);
    let url = server.url();
    arguments.push(&url);
    let output = folder.hotlap("run", &arguments);
    succeeded(&output);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["errors"] == 0), "{rows:?}");
    assert_eq!(report["run"]["contract"], "4 logged requests");
    let mut kinds = lines(&seen);
    kinds.sort();
    kinds.dedup();
    let mut expected = ONCE;
    expected.sort_unstable();
    assert_eq!(kinds, expected);
    assert!(text(&output.stderr).contains("1 of 6 lines left out"));
}

#[test]
fn a_suite_may_name_a_log() {
    let (server, seen) = recorder();
    let folder = input(LOG);
    let suite = folder.beside("mine.toml");
    fs::write(&suite, format!("access_log = \"access.log\"\nservers = [\"{}\"]\n", server.url()))
        .unwrap();
    let mut hotlap = Command::new(env!("CARGO_BIN_EXE_hotlap"));
    hotlap.args(["run", "--no-store", "--restarts", "1", "--rounds", "1", "--slice", "50ms"]);
    hotlap.args(["--unsafe-methods", "--suite"]).arg(suite).env("HOTLAP_CONFIG", "/dev/null");
    succeeded(&hotlap.output().unwrap());
    assert!(lines(&seen).contains(&"POST /post".to_owned()));
}

#[test]
fn a_mistake_is_reported_before_anything_is_sent() {
    let (server, seen) = recorder();
    let url = server.url();
    for (log, command, arguments, expected) in [
        ("\n\0\n", "load", vec![], "access.log:2: 0 of 1 lines can be sent: this line is neither"),
        ("\n", "run", vec![], "access.log: the log is empty"),
        (LOG, "load", vec!["--body", "x"], "cannot be used with"),
        (LOG, "load", vec!["--replay", "times", "-R", "5"], "leave out --rate"),
        (LOG, "load", vec!["--replay-speed", "5", "--replay", "order"], "add --replay times"),
        (LOG, "load", vec!["--replay", "times", "-n", "9"], "9 requests, but only 4 have times"),
        (LOG, "run", vec!["--replay", "times"], "works with `hotlap load` only"),
        (LOG, "run", vec!["--path", "/x"], "cannot be used with"),
        (LOG, "capacity", vec!["--slo", "p99<1s", "--replay", "times"], "`hotlap load` only"),
    ] {
        let output = input(log).hotlap(command, &[arguments, vec![&url]].concat());
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(expected), "{told} does not contain {expected}");
    }
    let mut hotlap = Command::new(env!("CARGO_BIN_EXE_hotlap"));
    let output = hotlap.args(["load", "--unsafe-methods", &url]).output().unwrap();
    assert!(text(&output.stderr).contains("needs an access log: add --access-log FILE"));
    assert_eq!(seen.lock().unwrap().len(), 0);
}
