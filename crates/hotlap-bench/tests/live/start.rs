//! Tests servers whose first response takes longer than usual, or never comes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use hotlap_bench::local::LocalRunner;
use hotlap_bench::participant::{Origin, Role};
use hotlap_bench::runner::Runner;
use hotlap_servers::catalogue::ServerKind;
use hotlap_servers::launch::ServerFailure;
use hotlap_servers::verify::Requirements;
use hotlap_testbed::unused_address;

use crate::setting::{launch, load, participant, setting, start, start_unless};
use crate::stand_in::{LIMIT, until};

/// Regression: a server was dropped 3 s after it had first accepted a connection, and 2 s after any
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

/// All servers of a run are up at the same time, so two of them may want the same port.
#[test]
fn a_server_that_wants_the_port_of_another_fails_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("exec $STAND_IN serve {}", unused_address().port());
    let own = |name, script: &str| {
        participant(name, Role::Plain, Origin::Launch(launch(folder.path(), script)))
    };
    let all = [own("one", &script), own("two", &script), own("three", "exec false")];
    let setting = setting(Duration::from_millis(12), folder.path());
    let mut runner = LocalRunner::new(setting, &all, &[load()], Arc::default());
    runner.bring_up(0).expect("the port is free");
    let failure = runner.bring_up(1).unwrap_err();
    assert!(failure.remedy.starts_with("one runs at the same time and listens on"), "{failure:?}");
    // Regression: the remedy named a port even if the failure had another cause.
    let failure = runner.bring_up(2).unwrap_err();
    assert!(!failure.remedy.contains("port"), "{failure:?}");
}

/// Returns the port that is measured instead of `$PORT`, if any, and the notes about ports.
fn port_of(script: &str) -> (Option<u16>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let up = start(folder.path(), script, LIMIT).unwrap();
    let notes = up.notes.into_iter().filter(|note| note.contains("port"));
    (up.fixed_port, notes.collect())
}

/// Regression: a port for metrics that opened first was measured instead of `$PORT`.
#[test]
fn another_port_is_measured_only_if_port_stays_closed() {
    let [first, second] = [(); 2].map(|()| unused_address().port());
    // `$PORT` opens once the first port gets a request.
    let own = port_of(&format!("exec $STAND_IN two {first} 200 $(printenv PORT) 200"));
    assert_eq!(own, (None, vec![]));
    let note = format!(
        "$PORT stayed closed, so the server is measured on port {second}, where it responds as \
         expected. To make the server listen on $PORT, put $PORT in its command"
    );
    let other = port_of(&format!("exec $STAND_IN two {first} 404 {second} 200"));
    assert_eq!(other, (Some(second), vec![note]));
}

/// Regression: another port was measured although `$PORT` was open, because `$PORT` was not ready.
#[test]
fn another_port_is_not_measured_if_port_is_open() {
    let [first, second] = [(); 2].map(|()| unused_address().port());
    let script = format!("exec $STAND_IN two {first} 200 $(printenv PORT) 404");
    let failure = started(&script, 60).unwrap_err();
    assert!(failure.cause.starts_with("for 3 s, GET /: "), "{failure:?}");
    let script = format!("exec $STAND_IN two {first} 404 {second} 404");
    let failure = started(&script, 60).unwrap_err();
    assert!(failure.cause.starts_with("for 3 s, $PORT was closed, and on port "), "{failure:?}");
}

/// Regression: a program that ends when its input ends runs well by hand, so the remedy did not
/// help.
#[test]
fn a_program_that_ends_with_its_input_fails_with_how_to_see_it() {
    let failure = started("exec cat", 600).unwrap_err();
    assert_eq!(failure.cause, "the server exited with code 0 before its first response");
    assert_eq!(
        failure.remedy,
        "run the server's command by hand, with `< /dev/null`, to see why the server ended"
    );
}

/// Returns the result of starting this script.
fn started(script: &str, limit_s: u64) -> Result<(), ServerFailure> {
    let folder = tempfile::tempdir().unwrap();
    start(folder.path(), script, Duration::from_secs(limit_s)).map(drop)
}

/// Regression: a server that failed its start got SIGKILL without SIGTERM, so `docker run` left its
/// container behind.
#[test]
fn a_server_that_fails_its_start_can_clean_up() {
    let script = "trap 'touch $FOLDER/cleaned; exit' TERM; touch $FOLDER/up; sleep 1000 & wait";
    // On a busy machine, the script may not even begin within a second.
    let is_up = [1, 5, 25, 125].into_iter().any(|limit_s| {
        let folder = tempfile::tempdir().unwrap();
        start(folder.path(), script, Duration::from_secs(limit_s)).map(drop).unwrap_err();
        let is_up = folder.path().join("up").exists();
        assert_eq!(folder.path().join("cleaned").exists(), is_up);
        is_up
    });
    assert!(is_up);
}

/// Regression: a server that failed its verification got SIGKILL without SIGTERM.
#[test]
fn a_server_that_fails_its_verification_can_clean_up() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap 'touch $FOLDER/cleaned; exit' TERM; $STAND_IN serve $PORT & wait";
    let start = Origin::Launch(launch(folder.path(), script));
    let mut participant = participant("wrong", Role::Reference, start);
    // The stand-in sends its usual response even to a request for an unknown path.
    participant.requirements =
        Requirements::Catalogue { kind: ServerKind::Framework, keep_alive: true };
    let setting = setting(Duration::from_millis(12), folder.path());
    let mut runner = LocalRunner::new(setting, &[participant], &[load()], Arc::default());
    assert_eq!(runner.bring_up(0).unwrap_err().phase, "verify");
    assert!(folder.path().join("cleaned").exists());
}

/// Regression: an attempt to connect to a server that listens but does not accept took minutes,
/// during which hotlap noticed no interrupt.
#[test]
fn a_start_is_interrupted_while_a_server_does_not_accept() {
    // The script fills its accept queue before it reports that it is up.
    let script = "exec python3 -c \"import os, socket, time
address = ('127.0.0.1', int(os.environ['PORT']))
own = socket.socket()
own.bind(address)
own.listen(0)
queue = [socket.socket() for _ in range(8)]
for one in queue:
    one.setblocking(False)
    one.connect_ex(address)
open(os.environ['FOLDER'] + '/up', 'w')
time.sleep(600)\"";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, ended) = mpsc::channel();
    let own = Arc::clone(&stop);
    thread::spawn(move || {
        let started = start_unless(&own, &path, script, Duration::from_secs(3_600));
        sender.send(started.map(drop).unwrap_err())
    });
    until("the server is up", || folder.path().join("up").exists());
    stop.store(true, Ordering::Relaxed);
    let failure = ended.recv_timeout(LIMIT / 3).expect("the start should end");
    assert_eq!(failure.cause, "interrupted");
}

/// Returns the failure of a server that accepts connections and never responds.
fn refused(limit_s: u64) -> ServerFailure {
    started("exec $STAND_IN late $PORT 3600000", limit_s).unwrap_err()
}

/// Regression: a server that was not ready for 8 s counted as failed, and the message named no
/// limit.
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
    // On a busy machine, the server may not even listen within a second.
    let is_up = |(_, failure): &(u64, ServerFailure)| !failure.cause.contains("does not listen");
    let refused = [1, 5, 25, 125].into_iter().map(|limit_s| (limit_s, refused(limit_s)));
    let (limit_s, failure) = refused.into_iter().find(is_up).unwrap();
    let cause =
        format!("the server accepts connections but sent no correct response within {limit_s} s: ");
    assert!(failure.cause.starts_with(&cause), "{failure:?}");
    assert_eq!(failure.remedy, "--start-timeout allows more time");
}
