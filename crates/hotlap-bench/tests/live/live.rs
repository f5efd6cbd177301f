//! The real runner, with a server in the test's own process.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hotlap_bench::lap::LapKind;
use hotlap_bench::local::LocalRunner;
use hotlap_bench::participant::{Load, Role};
use hotlap_bench::runner::Runner;
use hotlap_load::plan::Protocol;
use hotlap_testbed::{HELLO, TestServer};

use crate::setting::{load, participant, running, setting};

/// Starts a server that sets `stop` once it has sent `due` more responses.
fn serve(due: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> SocketAddr {
    let server = TestServer::start(move |mut client| {
        while client.request().is_some() && client.send(HELLO) {
            if due.fetch_sub(1, Ordering::SeqCst) == 1 {
                stop.store(true, Ordering::SeqCst);
            }
        }
    });
    server.address()
}

fn runner(
    address: SocketAddr,
    slice: Duration,
    loads: &[Load],
    stop: Arc<AtomicBool>,
) -> LocalRunner {
    let participant = participant("it", Role::Reference, running(address));
    let setting = setting(slice, Path::new(""));
    LocalRunner::new(setting, &[participant], loads, stop)
}

/// Regression: an incomplete lap was stored and counted.
#[test]
fn an_incomplete_lap_does_not_count() {
    let stop = Arc::new(AtomicBool::new(false));
    let due = Arc::new(AtomicU64::new(u64::MAX));
    let address = serve(Arc::clone(&due), Arc::clone(&stop));
    let hour = Duration::from_secs(3_600);
    let mut runner = runner(address, hour, &[load()], stop);
    runner.bring_up(0).expect("a running server");
    due.store(1_000, Ordering::SeqCst);
    let cut = runner.whole_lap(0, 0, LapKind::Flat).expect_err("an interrupt");
    assert_eq!((cut.phase.as_str(), cut.cause.as_str()), ("lap", "interrupted"));
}

/// Regression: if loads had several protocols, a server was verified only over HTTP/1.1.
#[test]
fn a_server_is_verified_over_each_protocol_of_the_loads() {
    let address = serve(Arc::new(AtomicU64::new(u64::MAX)), Arc::default());
    let second = Duration::from_secs(1);
    let loads = [load(), Load { protocol: Protocol::Http2, ..load() }];
    let mut runner = runner(address, second, &loads, Arc::default());
    let failure = runner.bring_up(0).expect_err("it does not speak HTTP/2");
    assert_eq!(failure.phase, "verify");
    assert!(failure.cause.starts_with("over h2c: GET /: "), "{failure:?}");
}
