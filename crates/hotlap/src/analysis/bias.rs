//! The bias that measuring in slices causes in a server's CPU time.
//!
//! Probes measure it before the first lap: the CPU time per request in the window of a slice,
//! divided by that when the server is left running ([`Probed`]). Both are measured within one
//! stretch, so the ratio is precise even on a machine whose speed varies from second to second.
//!
//! As a check, the CPU time per request in laps is divided by that of the server alone, at the end
//! of the warm-up of the same restart. Those two are seconds apart, and only several restarts make
//! the ratio meaningful. The ratio is exported, and no warning rests on it.

use std::collections::BTreeMap;

use hotlap_bench::local::TOLERANCE;
use hotlap_stats::{Estimate, Reading, Share, Shift};

use super::Measure;
use crate::model::{Lap, Probed, Run};

/// CPU time in laps divided by that alone: one reading per restart, from the laps that count.
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
        let share = Share::whole(costs.get(&restart)?.value()? / alone);
        Some(Reading { restart, round: 0, share })
    };
    alone.filter_map(reading).collect()
}

/// What probes found for a server under a load: its CPU time in slices divided by that when left
/// running.
pub fn in_slices(run: &Run, load: usize, server: usize) -> Option<Estimate> {
    let is_own = |probed: &&Probed| probed.participant == server && probed.load == load;
    run.schedule.probed.iter().find(is_own).map(|probed| probed.ratio)
}

/// What slices did to the ratio of two servers in one measure, as far as probes prove that a server
/// costs more or less in slices. What noise may explain is not taken off.
pub fn shift(probed: &[Probed], measure: Measure, (server, other): (usize, usize)) -> Shift {
    let of = |server: usize| {
        let found = probed.iter().find(|probed| probed.participant == server)?;
        let ratio = match measure {
            Measure::Cost => found.ratio,
            Measure::Rate => found.rate,
            Measure::P50 | Measure::P99 | Measure::Memory => return None,
        };
        is_biased(&found.ratio).then_some(ratio)
    };
    let (log, variance) = [(server, 1.0), (other, -1.0)]
        .into_iter()
        .filter_map(|(server, sign)| Some((of(server)?, sign)))
        .map(|(ratio, sign)| {
            // Half of a 95% interval is 1.96 standard errors.
            (sign * ratio.value.ln(), ((ratio.high / ratio.low).ln() / 3.92).powi(2))
        })
        .fold((0.0, 0.0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
    Shift { log, standard_error: variance.sqrt() }
}

/// Whether probes prove that a server costs over 3% more or less in slices than alone.
pub fn is_biased(in_slices: &Estimate) -> bool {
    in_slices.is_bounded() && (in_slices.low > TOLERANCE || in_slices.high < 1.0 / TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_that_probes_prove_is_taken_off_with_its_error() {
        let probed = |participant, value: f64, half: f64| {
            let of = |value: f64| Estimate { value, low: value / half, high: value * half };
            Probed { participant, load: 0, slice_ms: 12.0, ratio: of(value), rate: of(1.0 / value) }
        };
        let probes = [probed(0, 1.12, 1.02), probed(1, 0.89, 1.03), probed(2, 1.2, 1.3)];
        let of = |measure, pair| shift(&probes, measure, pair);
        let found = of(Measure::Cost, (0, 1));
        assert!((found.log - f64::ln(1.12 / 0.89)).abs() < 1e-12);
        let error = 1.02_f64.ln().hypot(1.03_f64.ln()) / 1.96;
        assert!((found.standard_error - error).abs() < 1e-12);
        assert!((of(Measure::Rate, (0, 1)).log + found.log).abs() < 1e-12);
        assert_eq!(of(Measure::Cost, (2, 3)), Shift::default(), "noise proves nothing");
        assert_eq!(of(Measure::P99, (0, 1)), Shift::default());
    }
}
