//! The checks that every lap passes or is left out for: its figures must agree with each other.
//!
//! Pure: a lap and its load in, failed gates out.

use hotlap_load::Failure;
use hotlap_load::plan::Reuse;

use crate::entrant::Load;
use crate::lap::{Gate, Kind, Lap};

/// How far Little's law may be off, as a share.
pub const LITTLE: f64 = 0.03;

/// How busy a generator thread may be, as a share of the window.
pub const BUSY: f64 = 0.90;

/// How many requests may fail, as a share.
pub const FAILING: f64 = 0.01;

/// How late a paced request may be sent at the 99th percentile, as a share of the mean gap between
/// two requests of one connection; and what is always allowed, in nanoseconds.
pub const LATE: (f64, u64) = (0.5, 200_000);

/// The gates that a lap fails. `limits` of nobody's choosing: they are the method.
#[must_use]
pub fn judge(lap: &Lap, load: &Load) -> Vec<Gate> {
    [
        wrong_answers(lap),
        failures(lap),
        connections(lap),
        bytes(lap),
        littles_law(lap, load),
        generator(lap),
        late(lap, load),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn wrong_answers(lap: &Lap) -> Option<Gate> {
    let failures = &lap.outcome.failures;
    let wrong = failures.of(Failure::WrongAnswer)
        + failures.of(Failure::WrongStatus)
        + failures.of(Failure::BadFraming);
    let example = lap.outcome.first_wrong.as_ref().map_or_else(String::new, |w| {
        format!("{}: {}", w.why, String::from_utf8_lossy(&w.head).escape_debug())
    });
    (wrong > 0).then_some(Gate::WrongAnswers { wrong, example })
}

fn failures(lap: &Lap) -> Option<Gate> {
    let failures = lap.outcome.failures.total();
    let requests = lap.outcome.answers + failures;
    let failed = requests == 0 || failures as f64 > requests as f64 * FAILING;
    failed.then_some(Gate::Failures { failures, requests })
}

fn connections(lap: &Lap) -> Option<Gate> {
    let c = lap.outcome.connections;
    (c.established < c.asked).then_some(Gate::Connections { asked: c.asked, up: c.established })
}

/// All bytes belong to right answers, but for what is under way at the window's two edges.
fn bytes(lap: &Lap) -> Option<Gate> {
    let o = &lap.outcome;
    if o.answers == 0 || o.failures.total() > 0 {
        return None;
    }
    let (expected, received) = (o.bytes.answered, o.bytes.received);
    let one = expected.div_ceil(o.answers);
    let edges = one * o.connections.asked.max(1) * 2;
    (expected.abs_diff(received) > edges).then_some(Gate::Bytes { expected, received })
}

/// Little's law (Little 1961): in a closed loop, requests in flight = rate × mean time in the
/// system. An answer under way at an edge of the window is counted whole or not at all, so what the
/// edges can shift, one mean time in the window, is allowed on top.
fn littles_law(lap: &Lap, load: &Load) -> Option<Gate> {
    let o = &lap.outcome;
    if lap.kind != Kind::Flat || o.answers == 0 || o.failures.total() > 0 {
        return None;
    }
    let in_flight = (load.connections * load.pipeline) as f64;
    let by_law = o.rate() * o.service.mean() / 1e9;
    let off = (in_flight - by_law).abs() / in_flight;
    // With a new connection each, closing the old one is outside of what is timed.
    let between = if load.reuse == Reuse::Close { 0.10 } else { 0.0 };
    let edges = o.service.mean() / o.window_ns.max(1) as f64;
    (off > LITTLE + between + edges).then_some(Gate::LittlesLaw { off: off * 100.0 })
}

fn generator(lap: &Lap) -> Option<Gate> {
    let busy = lap.outcome.threads.iter().map(|t| t.busy()).fold(0.0, f64::max);
    // A paced generator may wait actively; whether it was late says more.
    (lap.kind == Kind::Flat && busy > BUSY).then_some(Gate::Generator { busy: busy * 100.0 })
}

fn late(lap: &Lap, load: &Load) -> Option<Gate> {
    let Kind::Paced { rate } = lap.kind else { return None };
    if lap.outcome.lag.is_empty() {
        return None;
    }
    let p99_ns = lap.outcome.lag.quantile(0.99);
    let gap_ns = load.connections as f64 * 1e9 / rate;
    let limit_ns = (gap_ns * LATE.0).max(LATE.1 as f64);
    (p99_ns as f64 > limit_ns).then_some(Gate::Late { lag_us: p99_ns as f64 / 1e3 })
}
