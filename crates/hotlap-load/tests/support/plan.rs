//! Plans of loads on test servers, and the counts in their outcomes.

use std::time::{Duration, Instant};

use hotlap_load::plan::{Endpoint, Request, Stop, Target};
use hotlap_load::{Failure, Outcome, Phase, Plan};
use hotlap_testbed::TestServer;

/// The time limit of a test. A hang exceeds this limit, but a busy machine does not.
const LIMIT: Duration = Duration::from_secs(120);

/// Waits until a condition holds.
#[allow(dead_code, reason = "not each test needs it")]
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub trait PlanFor {
    /// Returns a plan of `requests` requests over `connections` connections. Each response must be
    /// `Hello, World!`.
    fn plan(&self, connections: usize, requests: u64) -> Plan;
}

impl PlanFor for TestServer {
    fn plan(&self, connections: usize, requests: u64) -> Plan {
        let target = Target::plain(Endpoint::Tcp(self.address()));
        let mut plan = Plan::new(target, Request::get("/", "test").expecting(b"Hello, World!"));
        plan.shape.connections = connections;
        plan.stop = Stop::Requests(requests);
        plan.timeout = LIMIT;
        plan
    }
}

/// Returns the number of correct responses, and the failures as (kind, phase, count) in order.
pub fn counts(outcome: &Outcome) -> (u64, Vec<(Failure, Phase, u64)>) {
    let mut failures: Vec<_> =
        outcome.failures.0.iter().map(|f| (f.failure, f.phase, f.count)).collect();
    failures.sort();
    (outcome.responses, failures)
}

/// Runs a load to its end and returns its counts.
#[allow(dead_code, reason = "not each test needs it")]
pub fn counted(plan: &Plan) -> (u64, Vec<(Failure, Phase, u64)>) {
    counts(&hotlap_load::run(plan).expect("a load"))
}
