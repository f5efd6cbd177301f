//! Loads of servers that misbehave at random: each ends in time, without a panic, and counts no
//! response that was not sent. `HOTLAP_SEEDS=20000` tries 20,000 servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hotlap_load::plan::{Endpoint, Pace, Protocol, Request, Reuse, Stop, Target, Tls};
use hotlap_load::{Plan, run};
use hotlap_testbed::{Speaks, TestServer, Unruly, for_seeds, most_memory};

/// How long a load may take beyond its time.
const BEYOND: Duration = Duration::from_secs(2);

/// The load of a seed.
fn plan(seed: u64, server: &TestServer, speaks: Speaks) -> Plan {
    let mut target = Target::plain(Endpoint::Tcp(server.address()));
    match speaks {
        Speaks::Http1 => {}
        Speaks::Http2 => target.protocol = Protocol::Http2,
        Speaks::Tls => {
            target.tls = Some(Tls { insecure: true, ..Tls::with("localhost".to_owned()) })
        }
    }
    let mut plan = Plan::new(target, Request::get("/", "test").expecting(b"Hello, World!"));
    plan.connections = 1 + seed as usize % 3;
    plan.pipeline = [1, 1, 4][seed as usize / 3 % 3];
    plan.timeout = Duration::from_millis(40);
    plan.stop = Stop::After(Duration::from_millis(80));
    match seed % 5 {
        0 if plan.pipeline == 1 => plan.reuse = Reuse::Close,
        1 => plan.pace = Pace::Constant { rate: 500.0 },
        _ => {}
    }
    plan
}

fn try_one(seed: u64) {
    let unruly = Arc::new(Unruly::new(seed));
    let server = unruly.start();
    let plan = plan(seed, &server, unruly.speaks);
    let began = Instant::now();
    let outcome = run(&plan);
    let took = began.elapsed();
    let limit = plan.timeout + Duration::from_millis(80) + BEYOND;
    assert!(took < limit, "seed {seed}: {took:?}, {unruly:?}");
    let outcome = match outcome {
        Ok(outcome) => outcome,
        // No connection could be opened.
        Err(error) => {
            return assert!(!error.to_string().contains("bug"), "seed {seed}: {error}, {unruly:?}");
        }
    };
    let responses = outcome.totals.responses;
    let counts = (responses, &outcome.failures, outcome.in_flight);
    assert!(responses <= outcome.totals.sent, "seed {seed}: {counts:?}, {unruly:?}");
    // A server may respond to requests that it has not read.
    let is_read = plan.pipeline > 1 || responses <= unruly.requests();
    assert!(is_read, "seed {seed}: {counts:?}, {unruly:?}");
    if unruly.is_plain() && plan.pipeline == 1 {
        // Each connection may have been given up while its response was on the way.
        let given_up = outcome.failures.total() + outcome.in_flight;
        let counted = responses..=responses + given_up;
        assert!(counted.contains(&unruly.sent()), "seed {seed}: {counts:?}, {unruly:?}");
    }
}

#[test]
fn loads_of_unruly_servers_end_and_count_what_was_sent() {
    for_seeds(300, 8, try_one);
    let most = most_memory("self");
    assert!(most.is_none_or(|bytes| bytes < 300 << 20), "{most:?}");
}
