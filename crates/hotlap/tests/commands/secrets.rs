//! Secrets that requests carry are sent, and are nowhere else: not in the store, not in an export,
//! not on a page, not in what is printed.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hotlap::store::Store;
use hotlap_testbed::TestServer;
use serde_json::Value;

/// The values that must not turn up.
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

/// A server that sends back what it received, as some do for debugging; after `correct` requests,
/// with a status of 500. Its URL, and all that it received.
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

fn hotlap(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotlap"));
    command.args(arguments).env("HOTLAP_CONFIG", "/dev/null").stdin(Stdio::null());
    command
}

/// Fails if a secret is in these bytes, as text or as a list of numbers in JSON.
fn free_of_secrets(bytes: &[u8], whence: &str) {
    for secret in SECRETS {
        let found = bytes.windows(secret.len()).any(|w| w == secret.as_bytes());
        assert!(!found, "{secret} is in {whence}: {}", String::from_utf8_lossy(bytes));
        let numbers: Vec<String> = secret.bytes().map(|b| b.to_string()).collect();
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains(&numbers.join(",")), "the bytes of {secret} are in {whence}");
    }
}

fn printed(output: &Output) -> Vec<u8> {
    [&output.stdout[..], &output.stderr[..]].concat()
}

#[test]
fn a_run_sends_secrets_and_keeps_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (url, got) = echo(usize::MAX);
    // Regression: the store had the path as it was sent.
    let url = format!("{url}a?token=qu3ry-s3cr3t");
    let mut arguments = vec!["run", &url];
    HEADERS.iter().for_each(|header| arguments.extend(["-H", header]));
    arguments.extend(["--redact", "x-mine", "--restarts", "1", "--rounds", "1", "--slice", "12ms"]);
    arguments.extend(["--duration", "1s", "-c", "2", "--no-pin"]);
    let [store, json, markdown, html, csv, junit] =
        ["hotlap.db", "r.json", "r.md", "r.html", "r.csv", "r.xml"].map(path);
    arguments.extend(["--store", &store, "--export-json", &json, "--export-markdown", &markdown]);
    arguments.extend(["--export-html", &html, "--export-csv", &csv, "--export-junit", &junit]);
    let output = hotlap(&arguments).env("HOTLAP_CACHE", path("cache")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!([Some(0), Some(4)].contains(&output.status.code()), "{said}");

    let sent = String::from_utf8_lossy(&got.lock().unwrap()).into_owned();
    assert!(HEADERS.iter().all(|header| sent.contains(header)), "{sent}");
    free_of_secrets(&printed(&output), "what it printed");
    for entry in fs::read_dir(folder.path()).unwrap().flatten().filter(|e| e.path().is_file()) {
        free_of_secrets(&fs::read(entry.path()).unwrap(), &entry.path().display().to_string());
    }
    let run = Store::open_existing(store.as_ref()).unwrap().run(1).unwrap();
    let command = run.command.join(" ");
    assert!(command.contains("-H Authorization: REDACTED -H cookie: REDACTED"), "{command}");
    assert!(command.contains("-H X-API-Key: REDACTED -H X-Mine: REDACTED"), "{command}");
}

#[test]
fn a_load_and_its_first_wrong_response_keep_none() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    fs::write(&config, "redact = ['X-Mine']\n").unwrap();
    for correct in [0, 20] {
        for form in ["human", "json"] {
            let (url, got) = echo(correct);
            let mut arguments = vec!["load", "-n", "40", "-c", "1", "--format", form, &url];
            HEADERS.iter().for_each(|header| arguments.extend(["-H", header]));
            let output = hotlap(&arguments).env("HOTLAP_CONFIG", &config).output().unwrap();
            free_of_secrets(&printed(&output), &format!("the output as {form}"));
            let sent = String::from_utf8_lossy(&got.lock().unwrap()).into_owned();
            assert!(HEADERS.iter().all(|header| sent.contains(header)), "{sent}");
            if form == "json" && correct > 0 {
                let value: Value = serde_json::from_slice(&output.stdout).unwrap();
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
        let output = hotlap(arguments).output().unwrap();
        assert!(output.status.code() != Some(0), "{arguments:?}");
        free_of_secrets(&printed(&output), &format!("{arguments:?}"));
    }
}
