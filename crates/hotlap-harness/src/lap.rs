//! One short measured window of one server under one load.

use std::collections::BTreeMap;

use hotlap_load::Outcome;
use hotlap_stats::estimate::Reading;
use serde::{Deserialize, Serialize};

/// A lap, measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lap {
    /// Which entrant, as an index into the race's list.
    pub entrant: usize,
    /// Which load, as an index into the race's list.
    pub load: usize,
    /// Which fresh start, from 0.
    pub heat: u32,
    /// Which block of the heat, from 0.
    pub block: u32,
    /// Which place in the block, from 0: the order in which laps were run.
    pub place: u32,
    /// What was asked of the server.
    pub kind: Kind,
    /// When its window opened, in milliseconds since the race began.
    pub at_ms: u64,
    /// What the generator saw.
    pub outcome: Outcome,
    /// What the server used meanwhile; `None` where it cannot be seen (a URL).
    pub usage: Option<Usage>,
    /// The gates that it failed; a lap with any is kept, and left out of every estimate.
    pub failed: Vec<Gate>,
}

/// What a lap asks of a server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// As fast as it can, in a closed loop: requests/s, cost and service time.
    Flat,
    /// At a common rate: response time.
    Paced {
        /// Requests per second.
        rate: f64,
    },
}

/// What a server's whole process tree used between two samples, and the answers counted between the
/// same two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Wall time between the two samples, in nanoseconds.
    pub wall_ns: u64,
    /// Right answers and failures between the two samples.
    pub requests: u64,
    /// CPU time, from the scheduler's accounting, in nanoseconds.
    pub cpu_ns: u64,
    /// Context switches, voluntary.
    pub switches: u64,
    /// Context switches, involuntary.
    pub preemptions: u64,
    /// Resident memory summed over the tree, in bytes: the most seen.
    pub rss_bytes: u64,
    /// Proportional set size summed over the tree, in bytes: shared pages once. 0 where not read.
    pub pss_bytes: u64,
    /// Threads.
    pub threads: u32,
    /// Processes.
    pub processes: u32,
}

/// What the hardware counted while so many requests were served: of a stretch of its own, after the
/// warm-up, since counting costs the server something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Count {
    /// Right answers and failures.
    pub requests: u64,
    /// What was counted.
    pub counted: Counted,
}

/// What the hardware counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Instructions in user mode.
    pub instructions_user: u64,
    /// Instructions in the kernel; `None` where only user mode may be counted.
    pub instructions_kernel: Option<u64>,
    /// Cycles, in both modes, or in user mode where only that may be counted.
    pub cycles: u64,
}

/// A check on a lap's own consistency, failed: why it is left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "gate")]
pub enum Gate {
    /// Connections = rate × mean latency does not hold (Little's law): percent off.
    LittlesLaw {
        /// How far off, in per cent.
        off: f64,
    },
    /// Fewer connections than asked for were up.
    Connections {
        /// Asked for.
        asked: u64,
        /// Up.
        up: u64,
    },
    /// Bytes received are not answers × size.
    Bytes {
        /// By the answers' sizes.
        expected: u64,
        /// Received.
        received: u64,
    },
    /// A generator thread was busy beyond its limit, so the generator may be what was measured.
    /// The lap counts, as a lower bound.
    Generator {
        /// Per cent of the window that its busiest thread was on a core.
        busy: f64,
    },
    /// More failures than the limit.
    Failures {
        /// How many.
        failures: u64,
        /// Of so many requests.
        requests: u64,
    },
    /// Wrong answers: the server leaves the ranking.
    WrongAnswers {
        /// How many.
        wrong: u64,
        /// Why, and the first bytes of the first.
        example: String,
    },
    /// The generator sent late.
    Late {
        /// Schedule lag, 99th percentile, in microseconds.
        lag_us: f64,
    },
    /// The side effect did not happen as often as it must.
    SideEffect {
        /// Expected lines.
        expected: u64,
        /// Counted lines.
        counted: u64,
    },
}

impl Gate {
    /// Whether the lap is left out of every estimate; a busy generator only makes it a lower bound.
    #[must_use]
    pub fn invalidates(&self) -> bool {
        !matches!(self, Self::Generator { .. })
    }
}

impl Lap {
    /// Whether it takes part in estimates.
    #[must_use]
    pub fn counts(&self) -> bool {
        !self.failed.iter().any(Gate::invalidates)
    }

    /// CPU time of the server's tree per request, in nanoseconds.
    #[must_use]
    pub fn cost_ns(&self) -> Option<f64> {
        let usage = self.usage.as_ref()?;
        (usage.requests > 0).then(|| usage.cpu_ns as f64 / usage.requests as f64)
    }
}

/// One reading a block: the mean logarithm over its mirrored laps, each given as heat, block and
/// value, so that a drift that is linear in time cancels within the block.
#[must_use]
pub fn readings(laps: impl IntoIterator<Item = (u32, u32, f64)>) -> Vec<Reading> {
    let mut blocks = BTreeMap::<(u32, u32), (f64, f64)>::new();
    for (heat, block, value) in laps.into_iter().filter(|(_, _, value)| *value > 0.0) {
        let (sum, n) = blocks.entry((heat, block)).or_default();
        *sum += value.ln();
        *n += 1.0;
    }
    blocks
        .into_iter()
        .map(|((heat, block), (sum, n))| Reading { heat, block, value: (sum / n).exp() })
        .collect()
}

#[cfg(test)]
mod tests {
    use hotlap_stats::compare::pairs;

    use super::*;

    #[test]
    fn a_drift_that_is_linear_in_time_cancels_within_a_mirrored_block() {
        // Order A B · B A, and the machine grows slower by a tenth from lap to lap.
        let slow = |place: i32| 0.9f64.powi(place);
        let a = readings([(0, 0, 100.0 * slow(0)), (0, 0, 100.0 * slow(3))]);
        let b = readings([(0, 0, 120.0 * slow(1)), (0, 0, 120.0 * slow(2))]);
        let pairs = pairs(&b, &a);
        assert_eq!(pairs.len(), 1);
        assert!((pairs[0].log_ratio - 1.2f64.ln()).abs() < 1e-12);
    }
}
