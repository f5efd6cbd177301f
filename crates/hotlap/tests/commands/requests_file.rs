//! Tests requests that vary, from the requests file on the command line to the figures of each
//! request.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};

use hotlap_testbed::TestServer;
use hotlap_testkit::{Said, Scene, ceiling};
use serde_json::Value;

/// The paths and bodies of all requests, in the order of arrival.
type Seen = Arc<Mutex<Vec<(String, String)>>>;

/// Starts an application. `GET /users/ID` returns the id, and `POST /orders` accepts each key once.
fn application() -> (TestServer, Seen) {
    application_that_refuses(usize::MAX)
}

/// Starts the same application, but with one order in `one_in` refused.
fn application_that_refuses(one_in: usize) -> (TestServer, Seen) {
    let seen = Seen::default();
    let (log, keys) = (seen.clone(), Mutex::new(BTreeSet::new()));
    let server = TestServer::start(move |mut client| {
        while let Some(request) = client.request() {
            let text = String::from_utf8(request).expect("text");
            let (head, body) = text.split_once("\r\n\r\n").expect("a head");
            let path = head.split(' ').nth(1).expect("a path");
            log.lock().expect("a log").push((path.to_owned(), body.to_owned()));
            let (status, answer) = match path.strip_prefix("/users/") {
                Some(id) => ("200 OK", format!("{{\"id\":{id}}}")),
                None => {
                    let order: Value = serde_json::from_str(body).expect("JSON");
                    let mut keys = keys.lock().expect("keys");
                    let is_new = keys.insert(order["key"].to_string());
                    let is_accepted = is_new && !keys.len().is_multiple_of(one_in);
                    let status = if is_accepted { "201 Created" } else { "409 Conflict" };
                    (status, format!("{{\"user\":{}}}", order["user"]))
                }
            };
            let length = answer.len();
            let response = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{answer}");
            if !client.send(response.as_bytes()) {
                return;
            }
        }
    });
    (server, seen)
}

const REQUESTS: &str = r#"
[fields]
id = { integer = [1, 100000] }
key = "uuid"

[[request]]
name = "user"
path = "/users/${id}"
weight = 3
expect_body = '{"id":${id}}'

[[request]]
name = "order"
path = "/orders"
headers = { Content-Type = "application/json" }
body = '{"user":${id},"key":"${key}"}'
expect_status = 201
expect_body = '{"user":${id}}'
"#;

/// Returns a scene with a requests file of this content.
fn scene(content: &str) -> Scene {
    let scene = Scene::new();
    scene.write("requests.toml", content);
    scene
}

/// Returns what a command prints about a requests file of this content.
fn said(content: &str, words: &str, url: &str) -> Said {
    scene(content).hotlap(words).words("--requests-file requests.toml").arg(url).said()
}

const RUN: &str = "run --restarts 1 --slice 50ms --export-json -";

#[test]
fn each_request_has_its_own_values_and_its_own_figures() {
    let (server, seen) = application();
    let said = said(REQUESTS, "load -n 400 -c4 -t2 --format json", &server.url()).succeeds();
    let outcome = said.json();
    let own = outcome["figures"]["by_request"].as_array().unwrap();
    let counts: Vec<(&str, u64, u64)> = own
        .iter()
        .map(|own| {
            let count = |name: &str| own[name].as_u64().unwrap();
            (own["name"].as_str().unwrap(), count("responses"), count("errors"))
        })
        .collect();
    assert_eq!(counts, [("user", 300, 0), ("order", 100, 0)]);
    assert!(own.iter().all(|own| own["latency"]["p50_ms"].as_f64().unwrap() > 0.0));
    let seen = seen.lock().unwrap();
    let paths: BTreeSet<&str> = seen.iter().map(|(path, _)| path.as_str()).collect();
    // The 300 ids are drawn from 100,000. For 40% of all seeds, two of the ids are equal, and this
    // seed is fixed.
    assert!(paths.len() > 290, "{} paths", paths.len());
}

#[test]
fn the_same_seed_sends_the_same_sequence() {
    let sent = |seed: u32| {
        let (server, seen) = application();
        let words = format!("load -n 50 -c1 --no-check --seed {seed}");
        said(REQUESTS, &words, &server.url()).succeeds();
        seen.lock().unwrap().clone()
    };
    assert_eq!(sent(1), sent(1));
    assert_ne!(sent(1), sent(2));
}

#[test]
fn a_wrong_response_is_shown_with_the_request_that_it_answered() {
    let (server, _) = application();
    let wrong = REQUESTS.replace("'{\"id\":${id}}'", "'{\"id\":1}'");
    let said = said(&wrong, "load -n 40 -c1 --no-check", &server.url()).fails(3);
    said.has(" user 0 30 ").has("The request was: | GET /users/");
}

#[test]
fn a_mistake_is_reported_before_anything_is_sent() {
    let (server, seen) = application();
    let no_file = REQUESTS.replace("\"uuid\"", "{ lines = \"none\" }");
    for (requests, expected) in [
        (
            REQUESTS.replace("${id}}'\n\n", "${user}}'\n\n"),
            "requests.toml:10:15: unknown field user",
        ),
        (REQUESTS.replace("[1, 100000]", "[2, 1]"), "requests.toml:3:6: field id: 2 is above 1"),
        (no_file, "requests.toml:4:7: field key: cannot"),
        (REQUESTS.replace("weight", "wieght"), "requests.toml:9:1: unknown field `wieght`"),
    ] {
        for command in ["load", "run"] {
            said(&requests, command, &server.url()).fails(2).has(expected);
        }
    }
    assert_eq!(seen.lock().unwrap().len(), 0);
}

/// Each lap has its own connections, and a key from an earlier lap would be refused. Two servers
/// that share a database never get the same key, not even while they are verified.
#[test]
fn values_are_not_repeated_in_a_run() {
    let (server, seen) = application();
    let words = format!("{RUN} --no-store -c4 --rounds 2 --name old --name new");
    let words = format!("{words} {}/", server.url().trim_end_matches('/'));
    let report = said(REQUESTS, &words, &server.url()).succeeds().json();
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["errors"] == 0));
    assert_eq!(report["run"]["contract"], "2 requests");
    let seen = seen.lock().unwrap();
    let orders = seen.iter().filter(|(path, _)| path == "/orders");
    let keys: Vec<String> = orders
        .map(|(_, body)| serde_json::from_str::<Value>(body).unwrap()["key"].to_string())
        .collect();
    assert!(keys.len() > 100);
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
}

#[test]
fn a_run_has_figures_of_each_request_and_names_the_one_that_was_answered_wrongly() {
    let (server, _) = application_that_refuses(20);
    let secret = "headers = { Authorization = \"Bearer s3cr3t-t0ken\", Content-Type";
    let scene = scene(&REQUESTS.replace("headers = { Content-Type", secret));
    let run = scene.hotlap(RUN).words("-c4 --rounds 2 --store runs.db --export-html page.html");
    let said = run.words("--requests-file requests.toml").arg(server.url()).said().fails(3);
    let report = said.json();
    assert_eq!(report["run"]["loads"][0]["requests"], serde_json::json!(["user", "order"]));
    let own = report["tables"][0]["by_request"].as_array().unwrap();
    let named: Vec<&str> = own.iter().map(|own| own["request"].as_str().unwrap()).collect();
    assert_eq!(named, ["user", "order"]);
    let count = |place: usize, name: &str| own[place][name].as_u64().unwrap();
    let (users, orders) = (count(0, "requests"), count(1, "requests"));
    assert!(orders > 100 && users.abs_diff(orders * 3) < orders / 10, "{users}, {orders}");
    // One order in 20 is refused, in the laps and between them.
    let (failed, refused) = (count(0, "errors"), count(1, "errors"));
    assert!(failed == 0 && refused > 0 && refused < orders / 10, "{failed}, {refused}");
    // The message is among the sentences if no lap counts, and among the warnings otherwise.
    let told = format!("{}{}", report["tables"][0]["sentences"], report["warnings"]);
    assert!(told.contains("responses were wrong (POST /orders: "), "{told}");

    let shown = scene.hotlap("report --store runs.db --details").said().has(" Each request ");
    for text in [said.out, said.err, shown.out, scene.read("page.html")] {
        assert!(!text.contains("s3cr3t-t0ken"));
    }
    let kept = fs::read(scene.path("runs.db")).unwrap();
    assert!(!kept.windows(12).any(|window| window == b"s3cr3t-t0ken"));
}

/// Regression: the stress of a suite with a requests file sent only the first request of the file.
/// No message said so.
#[test]
fn a_stress_and_a_requests_file_exclude_each_other() {
    let (server, seen) = application();
    let (scene, url) = (scene(REQUESTS), server.url());
    let lines = format!("requests_file = 'requests.toml'\nservers = ['{url}']\n");
    scene.write("suite.toml", format!("{lines}stress = ['overload']\n"));
    let said = scene.hotlap("run --no-store --suite ./suite.toml").said();
    said.fails(2).has("run without stress scenarios");
    assert_eq!(seen.lock().unwrap().len(), 0);
    self::said(REQUESTS, "run --stress", &url).fails(2);
}

/// Regression: the file was ignored.
#[test]
fn built_in_servers_alone_refuse_a_requests_file() {
    let said = scene(REQUESTS).hotlap("run go/net-http --requests-file requests.toml").said();
    said.fails(2).has("--requests-file applies to commands and URLs");
}

/// The message contains the values of the request's fields, which tell why the request failed.
#[test]
fn a_wrong_response_to_one_request_that_varies_is_named_too() {
    let (server, _) = application_that_refuses(20);
    let order = "fields.key = \"uuid\"\n[[request]]\npath = \"/orders?key=${key}\"\n\
                 body = '{\"user\":1,\"key\":\"${key}\"}'\nexpect_status = 201\n";
    let report = said(order, &format!("{RUN} --no-store -c1 --rounds 1"), &server.url()).json();
    let told = format!("{}{}", report["tables"][0]["sentences"], report["warnings"]);
    assert!(told.contains("responses were wrong (POST /orders?key="), "{told}");
    assert_eq!(report["tables"][0]["by_request"], serde_json::json!([]));
}

/// Regression: the message named neither the request nor the expected body. The suggested remedy
/// was `hotlap check`, which does not know the requests file.
#[test]
fn a_command_with_another_body_is_shown_with_the_expected_one() {
    let file = "[[request]]\npath = \"/\"\nexpect_body = \"Hallo\"\n";
    said(file, "run --no-store --start-timeout 2s", &ceiling())
        .fails(3)
        .has("GET /: expected 2xx, \"Hallo\"; got body \"Hello, World!\"")
        .has("correct what is expected: --expect-status");
}
