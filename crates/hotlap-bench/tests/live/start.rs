//! Servers whose first response takes longer than usual, or never comes.

use std::sync::Arc;
use std::time::Duration;

use hotlap_bench::local::LocalRunner;
use hotlap_bench::participant::{Origin, Role};
use hotlap_bench::runner::Runner;
use hotlap_servers::launch::ServerFailure;
use hotlap_testbed::unused_address;

use crate::setting::{launch, load, participant, setting, start};

/// Regression: it was dropped 3 s after it had first accepted a connection, and 2 s after any
/// request.
#[test]
fn a_first_response_may_take_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let script = "exec $STAND_IN late $PORT 4000";
    let start = Origin::Launch(launch(folder.path(), script));
    let participant = participant("late", Role::Reference, start);
    let setting = setting(Duration::from_millis(12), folder.path());
    let mut runner = LocalRunner::new(setting, &[participant], &[load()], Arc::default());
    let ready = runner.bring_up(0).expect("a late first response");
    assert!(ready.ready_ms.is_some_and(|ms| ms >= 4_000.0), "{ready:?}");
}

/// All servers of a run run at the same time.
#[test]
fn a_server_that_wants_the_port_of_another_fails_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("exec $STAND_IN serve {}", unused_address().port());
    let own = |name| participant(name, Role::Plain, Origin::Launch(launch(folder.path(), &script)));
    let both = [own("one"), own("two")];
    let setting = setting(Duration::from_millis(12), folder.path());
    let mut runner = LocalRunner::new(setting, &both, &[load()], Arc::default());
    runner.bring_up(0).expect("the port is free");
    let failure = runner.bring_up(1).unwrap_err();
    assert!(failure.remedy.starts_with("one runs at the same time and listens on"), "{failure:?}");
}

/// The result of starting this script.
fn started(script: &str, limit_s: u64) -> Result<(), ServerFailure> {
    let folder = tempfile::tempdir().unwrap();
    start(folder.path(), script, Duration::from_secs(limit_s)).map(drop)
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
