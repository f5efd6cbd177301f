//! Tests the replay of an access log: which requests a server gets, in which order and when.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hotlap_testbed::TestServer;
use hotlap_testkit::{Said, Scene};

/// The heads of all requests, with the times at which they arrived.
type Seen = Arc<Mutex<Vec<(String, Instant)>>>;

/// Starts a server that records its requests. A path that begins with `/missing` gets a 404.
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

/// Returns the request lines without the version, in order.
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

/// Returns what a command prints about a log.
fn said(log: &str, words: &str, url: &str) -> Said {
    let scene = Scene::new();
    scene.write("access.log", log);
    scene.hotlap(words).words("--access-log access.log").arg(url).said()
}

#[test]
fn requests_are_sent_in_the_order_of_the_log_and_again_from_the_first() {
    let (server, seen) = recorder();
    let said = said(LOG, "load -n 10 -c1", &server.url()).succeeds();
    let expected: Vec<&str> = ONCE.into_iter().cycle().take(10).collect();
    assert_eq!(lines(&seen), expected);
    let cause = "line 5, which is neither in the Common or Combined Log Format nor a JSON object";
    said.has(&format!("access.log: hotlap leaves out 1 of 6 lines. The first is {cause}"))
        .has("leaves out 1 request with methods other than GET and HEAD (POST 1)");
}

#[test]
fn each_method_and_status_has_figures_of_its_own_and_no_path_is_exported() {
    let (server, _) = recorder();
    let said = said(LOG, "load -n 8 -c2 -t2 --format json", &server.url()).succeeds();
    let outcome = said.json();
    let own = outcome["figures"]["by_request"].as_array().unwrap();
    let counts: Vec<(&str, u64, u64)> = own
        .iter()
        .map(|own| {
            let count = |name: &str| own[name].as_u64().unwrap();
            (own["name"].as_str().unwrap(), count("responses"), count("errors"))
        })
        .collect();
    let expected = ["GET 200", "GET 404", "HEAD 200", "GET 2xx"].map(|name| (name, 2, 0));
    assert_eq!(counts, expected);
    assert_eq!(outcome["plan"]["order"]["entries"], 4);
    assert!(!said.out.contains("/missing"));
}

/// Returns a log of this many requests for `/0`, `/1`, and so on.
fn log_of(count: u32) -> String {
    let line = |n| format!("::1 - - [24/Nov/2026:08:24:04 +0000] \"GET /{n} HTTP/1.1\" 200 5\n");
    (0..count).map(line).collect()
}

/// Each thread sends every second entry, and one thread may get ahead of the other.
#[test]
fn two_threads_share_the_log() {
    let (server, seen) = recorder();
    said(&log_of(100), "load -n 100 -c2 -t2", &server.url()).succeeds();
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
    let log = LOG.replace("\"GET /missing", "\"GET /found");
    said(&log, "load -n 4 -c1", &server.url())
        .fails(3)
        .has("The first wrong response: status 200")
        .has("The access log has another status for this request.")
        .has(" | GET /found HTTP/1.1");
}

#[test]
fn unsafe_methods_are_sent_without_bodies_and_headers_are_added_as_they_are() {
    let (server, seen) = recorder();
    said(LOG, "load -n 5 -c1 --unsafe-methods -HX-Key:${a}", &server.url()).succeeds();
    let seen = seen.lock().unwrap();
    let post = &seen.iter().find(|(head, _)| head.starts_with("POST")).unwrap().0;
    assert!(post.contains("\r\nContent-Length: 0\r\n"), "{post}");
    assert!(seen.iter().all(|(head, _)| head.contains("\r\nX-Key: ${a}\r\n")));
}

#[test]
fn a_random_order_follows_from_the_seed() {
    let sent = |seed: u32| {
        let (server, seen) = recorder();
        let words = format!("load -n 50 -c1 --replay weights --seed {seed}");
        said(&log_of(50), &words, &server.url()).succeeds();
        lines(&seen)
    };
    let first = sent(1);
    assert_eq!(first, sent(1));
    assert_ne!(first, sent(2));
    let mut sorted = first;
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), 50);
}

/// No request may arrive before it is due. How late a request arrives depends on the machine.
#[test]
fn times_of_the_log_are_kept_and_the_load_ends_with_it() {
    let line = |ms: u32| {
        format!("{{\"ts\":1795508644.{ms:03},\"request\":\"GET /{ms} HTTP/1.1\",\"status\":200}}\n")
    };
    let log = [600, 0, 200].map(line).concat();
    for (speed, gaps_ms) in [("1", [200, 400]), ("4", [50, 100])] {
        let (server, seen) = recorder();
        let began = Instant::now();
        let words = format!("load --replay times --replay-speed {speed} -c3");
        let said = said(&log, &words, &server.url()).succeeds();
        assert!(began.elapsed() >= Duration::from_millis(gaps_ms[0] + gaps_ms[1]));
        assert_eq!(lines(&seen), ["GET /0", "GET /200", "GET /600"]);
        said.has("times of the log, ");
    }
    let (server, seen) = recorder();
    said(&log, "load --replay times -d 0.3s", &server.url()).succeeds();
    assert_eq!(lines(&seen), ["GET /0", "GET /200"]);
}

#[test]
fn a_run_replays_a_log_against_each_server() {
    let (server, seen) = recorder();
    let words = "run --no-store -c4 --restarts 1 --rounds 1 --slice 50ms --export-json -";
    let said = said(LOG, words, &server.url()).succeeds();
    let report = said.json();
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["errors"] == 0), "{rows:?}");
    assert_eq!(report["run"]["contract"], "4 logged requests");
    let mut kinds = lines(&seen);
    kinds.sort();
    kinds.dedup();
    let mut expected = ONCE;
    expected.sort_unstable();
    assert_eq!(kinds, expected);
    said.has("hotlap leaves out 1 of 6 lines");
}

#[test]
fn a_suite_may_name_a_log() {
    let ((server, seen), scene) = (recorder(), Scene::new());
    scene.write("access.log", LOG);
    let servers = format!("servers = [\"{}\"]", server.url());
    scene.write("mine.toml", format!("access_log = \"access.log\"\n{servers}\n"));
    let run = scene.hotlap("run --no-store --restarts 1 --rounds 1 --slice 50ms");
    run.words("--unsafe-methods --suite ./mine.toml").said().succeeds();
    assert!(lines(&seen).contains(&"POST /post".to_owned()));
}

#[test]
fn a_mistake_is_reported_before_anything_is_sent() {
    let (server, seen) = recorder();
    let url = server.url();
    for (log, words, expected) in [
        ("\n\0\n", "load", "access.log:2: no line can be sent (1 in all): this line is neither"),
        ("\n", "run", "access.log: the log is empty"),
        (LOG, "load --body x", "cannot be used with"),
        (LOG, "load --replay times -R 5", "leave out --rate"),
        (LOG, "load --replay-speed 5 --replay order", "add --replay times"),
        (
            LOG,
            "load --replay times -n 9",
            "9 requests are too many: the access log has times for 4",
        ),
        (LOG, "run --replay times", "works with `hotlap load` only"),
        (LOG, "run --path /x", "cannot be used with"),
        (LOG, "capacity --slo p99<1s --replay times", "`hotlap load` only"),
    ] {
        said(log, words, &url).fails(2).has(expected);
    }
    let said = Scene::new().hotlap("load --unsafe-methods").arg(&url).said();
    said.has("needs an access log: add --access-log FILE");
    assert_eq!(seen.lock().unwrap().len(), 0);
}
