//! Servers whose first response takes longer than usual.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotlap_bench::local::LocalRunner;
use hotlap_bench::participant::{Origin, Participant, Role};
use hotlap_bench::runner::Runner;
use hotlap_servers::contract::{Contract, Name};
use hotlap_servers::launch::{Launch, ServerFailure};
use hotlap_servers::machine::Network;
use hotlap_servers::start::Startup;
use hotlap_servers::verify::Requirements;

use crate::setting::{load, setting};
use crate::stand_in::{program, supervisor};

fn launch(folder: &Path, script: &str) -> Launch {
    Launch {
        argv: ["sh", "-c", script].map(str::to_owned).into(),
        env: BTreeMap::from([("STAND_IN".to_owned(), program().display().to_string())]),
        cwd: folder.to_owned(),
        ..Launch::default()
    }
}

/// Regression: it was dropped 3 s after it had first accepted a connection, and 2 s after any
/// request.
#[test]
fn a_first_response_may_take_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let participant = Participant {
        name: "late".to_owned(),
        role: Role::Reference,
        start: Origin::Launch(launch(folder.path(), "exec $STAND_IN late $PORT 4000")),
        contract: Contract::of(Name::Hello, None),
        requirements: Requirements::Custom,
        version: String::new(),
        counts: None,
        cpus: None,
    };
    let setting = setting(Duration::from_millis(12), folder.path());
    let stop = Arc::new(AtomicBool::new(false));
    let mut runner = LocalRunner::new(setting, &[participant], &[load()], stop);
    let ready = runner.bring_up(0).expect("a late first response");
    assert!(ready.ready_ms.is_some_and(|ms| ms >= 4_000.0), "{ready:?}");
}

/// The result of starting this script.
fn started(script: &str, limit_s: u64) -> Result<(), ServerFailure> {
    let folder = tempfile::tempdir().unwrap();
    let startup = Startup {
        launch: &launch(folder.path(), script),
        first: &Contract::of(Name::Hello, None).exchanges[0],
        protocol: hotlap_load::plan::Protocol::Http1,
        accepts_wrong: false,
        cpus: 1,
        cores: &[],
        supervisor: &supervisor(),
        log: folder.path().join("log"),
        limit: Duration::from_secs(limit_s),
        counters: false,
        observes: false,
        elsewhere: false,
        network: &Network::loopback(),
        stop: &AtomicBool::new(false),
    };
    startup.run().map(drop)
}

/// The failure of a server that accepts connections and never answers.
fn refused(limit_s: u64) -> ServerFailure {
    started("exec $STAND_IN late $PORT 3600000", limit_s).unwrap_err()
}

/// Regression: a server that was not ready for 8 s had failed, and the message named no limit.
#[test]
fn a_server_may_be_unavailable_for_a_quarter_of_the_limit() {
    let unavailable = |seconds: u64| {
        format!(
            "exec python3 -c \"import http.server as h, os, time; began = time.time()
class H(h.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if time.time() < began + {seconds} else 200)
        self.send_header('Content-Type', 'text/plain')
        self.send_header('Content-Length', '13')
        self.end_headers()
        self.wfile.write(b'Hello, World!')
h.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), H).serve_forever()\" 2> /dev/null"
        )
    };
    assert_eq!(started(&unavailable(3), 40), Ok(()));
    let failure = started(&unavailable(60), 4).unwrap_err();
    assert!(failure.cause.starts_with("for 1 s, GET /: "), "{failure:?}");
    assert_eq!(failure.remedy, "--start-timeout allows more time");
}

#[test]
fn a_server_that_accepts_and_never_answers_fails_with_the_option_for_more_time() {
    // On a busy machine it may not even listen within a second.
    let is_up = |(_, failure): &(u64, ServerFailure)| !failure.cause.contains("does not listen");
    let refused = [1, 5, 25, 125].into_iter().map(|limit_s| (limit_s, refused(limit_s)));
    let (limit_s, failure) = refused.into_iter().find(is_up).unwrap();
    let cause = format!("it accepts connections but sent no response in {limit_s} s: ");
    assert!(failure.cause.starts_with(&cause), "{failure:?}");
    assert_eq!(failure.remedy, "--start-timeout allows more time");
}
