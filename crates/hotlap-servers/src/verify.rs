//! Verifies a server before it is measured: its responses against its contract, and its behaviour
//! against the HTTP specifications.
//!
//! A server that sends wrong responses, or sends responses before the request, is fast for the
//! wrong reason. Therefore, verification sends each request of the contract and compares the
//! response with the expected one. Some 25 further checks, or 12 over HTTP/2, cover clients that
//! are slow, impatient, outdated or hostile. Checks in [`Findings::required`] must pass before a
//! server is measured. The other checks are reported as conformance checks.
//!
//! Only one connection is open at a time, because a server that handles one connection at a time is
//! slow but not wrong. Every wait has a time limit.

mod checks;
pub(crate) mod client;
mod conformance;
mod findings;
mod http2_conformance;

pub use client::ask;
pub use findings::{Check, Findings, LIMIT, PAUSE, Requirements, Verifier};

/// Runs all checks on a server.
pub fn verify(verifier: &Verifier<'_>) -> Findings {
    let mut bench = checks::Bench::new(verifier);
    bench.run();
    if bench.report.ended.is_none() {
        let conformance = match bench.is_http2() {
            false => conformance::run(verifier, &bench),
            true => {
                let first = bench.first.as_ref();
                http2_conformance::run(verifier, first.map_or(0, |(first, ..)| first.status))
            }
        };
        bench.report.conformance.splice(0..0, conformance);
    }
    bench.report
}
