//! The bias that measuring in slices causes in a server's CPU time.
//!
//! Probes measure it before the first lap: the CPU time per request in the window of a slice,
//! divided by that when the server is left running ([`Probed`]). Both are measured within one
//! stretch, so the ratio is precise even on a machine whose speed varies from second to second.
//!
//! As a check, the CPU time per request in laps is divided by that of the server alone, at the end
//! of the warm-up of the same restart. Those two are seconds apart, and only several restarts make
//! the ratio meaningful. It reveals a server that was still warming up.

use std::collections::BTreeMap;

use hotlap_bench::lap::Share;
use hotlap_stats::{Estimate, Reading};

use crate::model::{Lap, Probed, Run};

/// A bias above this share is reported.
const REPORTED: f64 = 0.03;

/// CPU time in laps divided by that alone: one reading per restart, from the laps that count.
#[must_use]
pub fn of_alone(run: &Run, (server, load): (usize, usize), laps: &[&Lap]) -> Vec<Reading> {
    // Warm-ups end in a closed loop. At a rate, where a server sleeps between requests, its CPU
    // time per request may differ.
    if run.loads.get(load).is_some_and(|load| load.rate.is_some()) {
        return Vec::new();
    }
    let mut costs = BTreeMap::<u32, Share>::new();
    for lap in laps {
        if let Some(share) = lap.cost_share() {
            let sum = costs.entry(lap.restart).or_default();
            *sum = sum.and(share);
        }
    }
    let starts = run.starts.iter().filter(|start| start.server == server);
    let alone = starts.filter_map(|start| {
        let warmup = start.warmups.iter().find(|warmup| warmup.load == load)?;
        Some((start.restart, warmup.alone_cost_ns?))
    });
    let reading = |(restart, alone): (u32, f64)| {
        Some(Reading { restart, round: 0, value: costs.get(&restart)?.value()? / alone })
    };
    alone.filter_map(reading).collect()
}

/// What probes found for a server under a load: its CPU time in slices divided by that when left
/// running.
#[must_use]
pub fn in_slices(run: &Run, load: usize, server: usize) -> Option<Estimate> {
    let is_own = |probed: &&Probed| probed.participant == server && probed.load == load;
    run.schedule.probed.iter().find(is_own).map(|probed| probed.ratio)
}

/// The shift of the ratio of two servers' CPU times that slices cause, in log units, as far as the
/// probes prove it: the distance between the two probed ratios, less that of their intervals (half
/// widths added as independent errors). It is 0 if the intervals overlap or one is unknown. All
/// probes are of one load.
#[must_use]
pub fn proven_shift(probed: &[Probed], (server, other): (usize, usize)) -> f64 {
    let probed =
        |server| probed.iter().find(|probed| probed.participant == server).map(|p| p.ratio);
    let (Some(one), Some(two)) = (probed(server), probed(other)) else { return 0.0 };
    let half = |ratio: &Estimate| (ratio.high / ratio.low).ln() / 2.0;
    let shift = (one.value / two.value).ln().abs() - half(&one).hypot(half(&two));
    if shift.is_finite() { shift.max(0.0) } else { 0.0 }
}

/// Whether a server provably costs over 3 % more or less CPU time in its laps than alone at the end
/// of its warm-ups.
#[must_use]
pub fn is_reported(of_alone: &Estimate) -> bool {
    let away_from_one = of_alone.low.ln().max(-of_alone.high.ln());
    of_alone.is_bounded() && away_from_one > 0.0 && (of_alone.value - 1.0).abs() > REPORTED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shift(one: (f64, f64), two: (f64, f64)) -> f64 {
        let probed = |participant, (value, half): (f64, f64)| Probed {
            participant,
            load: 0,
            slice_ms: 12.0,
            ratio: Estimate { value, low: value / half, high: value * half },
        };
        let both = [probed(0, one), probed(1, two)];
        assert_eq!(proven_shift(&both, (0, 2)), 0.0, "that was not probed");
        proven_shift(&both, (0, 1))
    }

    #[test]
    fn only_the_part_of_a_bias_that_probes_prove_counts() {
        let shift_12 = shift((1.12, 1.02), (1.00, 1.01));
        assert!((shift_12 - (1.12_f64.ln() - 1.02_f64.ln().hypot(1.01_f64.ln()))).abs() < 1e-12);
        assert_eq!(shift((1.12, 1.2), (1.00, 1.01)), 0.0, "noise proves nothing");
        assert_eq!(shift((1.12, 1.001), (1.12, 1.001)), 0.0, "slices treat them alike");
        assert_eq!(shift((1.12, f64::INFINITY), (1.0, 1.01)), 0.0, "one probe proves nothing");
    }

    #[test]
    fn a_bias_counts_above_three_percent_where_restarts_prove_it() {
        let is_reported = |value, low, high| super::is_reported(&Estimate { value, low, high });
        assert!(is_reported(1.12, 1.09, 1.15) && is_reported(0.90, 0.85, 0.95));
        assert!(!is_reported(1.02, 1.01, 1.03) && !is_reported(1.12, 0.99, 1.25));
        assert!(!is_reported(1.12, f64::NEG_INFINITY, f64::INFINITY));
    }
}
