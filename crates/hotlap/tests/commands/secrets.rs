//! Tests that secrets in requests are sent but appear nowhere else. The store, exports, pages and
//! the output are free of secrets.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hotlap::store::Store;
use hotlap_testbed::TestServer;
use hotlap_testkit::{Hotlap, Said, Scene};

/// The values that must not appear anywhere.
const SECRETS: [&str; 6] = [
    "s3cr3t-t0ken",
    "sid-47110815",
    "k3y-0f-th3-api",
    "0wn-s3cr3t",
    "s3t-by-th3-s3rv3r",
    "qu3ry-s3cr3t",
];

const HEADERS: [&str; 4] = [
    "Authorization: Bearer s3cr3t-t0ken",
    "cookie: lang=en; session=sid-47110815",
    "X-API-Key: k3y-0f-th3-api",
    "X-Mine: 0wn-s3cr3t",
];

/// Starts a server that sends back what it received, as some servers do for debugging. After
/// `correct` requests, its responses have the status 500. Returns its URL and everything that it
/// received.
fn echo(correct: usize) -> (String, Arc<Mutex<Vec<u8>>>) {
    let (received, count) = (Arc::new(Mutex::new(Vec::new())), AtomicUsize::new(0));
    let all = Arc::clone(&received);
    let server = TestServer::start(move |mut client| {
        while let Some(body) = client.request() {
            if all.lock().unwrap().len() < 1 << 16 {
                all.lock().unwrap().extend(&body);
            }
            let is_correct = count.fetch_add(1, Ordering::SeqCst) < correct;
            let (status, length) = (if is_correct { 200 } else { 500 }, body.len());
            let head = format!(
                "HTTP/1.1 {status} Some\r\nSet-Cookie: s3t-by-th3-s3rv3r\r\n\
                 Content-Length: {length}\r\n\r\n"
            );
            client.send(&[head.as_bytes(), &body].concat());
        }
    });
    (server.url(), received)
}

fn with_headers(command: Hotlap) -> Hotlap {
    HEADERS.iter().fold(command, |command, header| command.args(["-H", header]))
}

/// Fails if these bytes contain a secret, either as text or as a list of numbers in JSON.
fn free_of_secrets(bytes: &[u8], whence: &str) {
    for secret in SECRETS {
        let found = bytes.windows(secret.len()).any(|w| w == secret.as_bytes());
        assert!(!found, "{secret} is in {whence}: {}", String::from_utf8_lossy(bytes));
        let numbers: Vec<String> = secret.bytes().map(|b| b.to_string()).collect();
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains(&numbers.join(",")), "the bytes of {secret} are in {whence}");
    }
}

fn is_free_of_secrets(said: &Said, whence: &str) {
    free_of_secrets(format!("{}{}", said.out, said.err).as_bytes(), whence);
}

#[test]
fn a_run_sends_secrets_and_keeps_none() {
    let (scene, (url, got)) = (Scene::new(), echo(usize::MAX));
    // Regression: the store contained the path with the secret, as it was sent.
    let run = scene.hotlap("run --redact x-mine --restarts 1 --rounds 1 --slice 12ms -d 1s -c 2");
    let run = run.words("--no-pin --store hotlap.db --export-json r.json --export-html r.html");
    let run = run.words("--export-markdown r.md --export-csv r.csv --export-junit r.xml");
    let said = with_headers(run).arg(format!("{url}a?token=qu3ry-s3cr3t")).said().measured();

    let sent = String::from_utf8_lossy(&got.lock().unwrap()).into_owned();
    assert!(HEADERS.iter().all(|header| sent.contains(header)), "{sent}");
    is_free_of_secrets(&said, "what it printed");
    for name in scene.names("").into_iter().filter(|name| scene.path(name).is_file()) {
        free_of_secrets(&fs::read(scene.path(&name)).unwrap(), &name);
    }
    let run = Store::open_existing(&scene.path("hotlap.db")).unwrap().run(1).unwrap();
    let command = run.command.join(" ");
    assert!(command.contains("-H Authorization: REDACTED -H cookie: REDACTED"), "{command}");
    assert!(command.contains("-H X-API-Key: REDACTED -H X-Mine: REDACTED"), "{command}");
}

#[test]
fn a_load_and_its_first_wrong_response_keep_none() {
    let scene = Scene::new();
    scene.write("config.toml", "redact = ['X-Mine']\n");
    for correct in [0, 20] {
        // Regression: the formats wrk and csv contained secrets.
        for form in ["human", "json", "wrk", "csv"] {
            let (url, got) = echo(correct);
            let requests =
                "[[request]]\npath = '/a?token=qu3ry-s3cr3t'\n[[request]]\npath = '/b'\n";
            scene.write("requests.toml", requests);
            let load = scene.hotlap(&format!("load -n 40 -c 1 --format {form}"));
            let load = match form {
                "csv" => load.words("--requests-file requests.toml").arg(url),
                _ => load.arg(format!("{url}a?token=qu3ry-s3cr3t")),
            };
            let said = with_headers(load).env("HOTLAP_CONFIG", "config.toml").said();
            is_free_of_secrets(&said, &format!("the output as {form}"));
            let sent = String::from_utf8_lossy(&got.lock().unwrap()).into_owned();
            assert!(HEADERS.iter().all(|header| sent.contains(header)), "{sent}");
            if form == "json" && correct > 0 {
                let value = said.json();
                let headers = value["plan"]["requests"][0]["headers"].to_string();
                let redacted = r#"["Authorization",[{"bytes":"REDACTED"}]]"#;
                assert!(headers.contains(redacted), "{headers}");
                assert!(!value["outcome"]["first_wrong"].is_null());
            }
        }
    }
}

#[test]
fn an_error_says_no_secret() {
    for arguments in [
        &["run", "http://me:s3cr3t-t0ken@127.0.0.1:1/"][..],
        &["load", "http://s3cr3t-t0ken@127.0.0.1:1/"],
        &["load", "http://127.0.0.1:1/", "-H", "Authorization Bearer s3cr3t-t0ken"],
        &["load", "http://127.0.0.1:1/", "-H", "Authorization: s3cr3t-t0ken\u{7}"],
        &["load", "http://127.0.0.1:1/", "-H", "Auth orization: s3cr3t-t0ken"],
        &["load", "http://127.0.0.1:1/", "-H", "Authorization: Bearer s3cr3t-t0ken"],
        &["check", "http://me:s3cr3t-t0ken@127.0.0.1:1/"],
        &["run", "./none --db postgres://me:s3cr3t-t0ken@db/x", "--no-store"],
    ] {
        let said = Scene::new().hotlap("").args(arguments).said();
        assert!(said.code != Some(0), "{arguments:?}");
        is_free_of_secrets(&said, &format!("{arguments:?}"));
    }
}
