//! Whether a server is one: its answers held against its contract, and its manners against HTTP.
//!
//! A server that answers wrongly, or without being asked, is fast for the wrong reason. So before
//! it is raced, each request of its contract is held against the exact answer, and some twenty
//! checks say whether it speaks HTTP/1.1 with clients that are slow, impatient, old or rude. What a
//! server cannot be raced without is [`Findings::required`]; the rest is told as conformance
//! checks.
//!
//! One connection at a time, closed before the next is opened, because a server that serves one at
//! a time is slow and not wrong; every wait is bounded.

mod checks;
pub(crate) mod client;
mod conformance;
mod findings;
mod verifier;

pub use findings::{Check, Findings};
pub use verifier::{LIMIT, PAUSE, Requirements, Verifier};

/// Makes all checks.
#[must_use]
pub fn verify(verifier: &Verifier<'_>) -> Findings {
    let mut bench = checks::Bench::new(verifier);
    bench.run();
    if bench.report.ended.is_none() {
        let conformance = conformance::run(verifier, &bench);
        bench.report.conformance.splice(0..0, conformance);
    }
    bench.report
}
