//! What measuring in slices may have done to the cost of a server: the cost in its laps over the
//! cost alone.
//!
//! Alone means at the end of the warm-up of the same restart, when nothing else ran. The two lie
//! seconds apart, so on a machine whose speed varies one restart says little; the ratio has an
//! interval over restarts, like everything else.

use std::collections::BTreeMap;

use hotlap_harness::lap::Share;
use hotlap_stats::compare::{effect, pairs};
use hotlap_stats::{Estimate, Reading};

use super::figure::{grouped, ratio};
use crate::record::{Lap, Run};

/// A bias above this is named.
const NAMED: f64 = 0.03;

/// Cost in laps over cost alone, a reading a restart, from the laps that count.
#[must_use]
pub fn readings(run: &Run, (server, load): (usize, usize), laps: &[&Lap]) -> Vec<Reading> {
    let mut costs = BTreeMap::<u32, Share>::new();
    for lap in laps {
        if let Some(share) = lap.cost_share() {
            let sum = costs.entry(lap.heat).or_default();
            *sum = sum.and(share);
        }
    }
    let starts = run.starts.iter().filter(|start| start.server == server);
    let alone = starts.filter_map(|start| {
        let warmup = start.warmups.iter().find(|warmup| warmup.load == load)?;
        Some((start.heat, warmup.alone_cost_ns?))
    });
    let reading = |(heat, alone): (u32, f64)| {
        Some(Reading { heat, block: 0, value: costs.get(&heat)?.value()? / alone })
    };
    alone.filter_map(reading).collect()
}

/// By how much slices have shifted the ratio of two servers' costs, in log units, as far as the
/// restarts prove it: the end of the interval that is nearer to no shift, 0 where the interval
/// includes that.
#[must_use]
pub fn proven(server: &[Reading], other: &[Reading], confidence: f64) -> f64 {
    let shift = effect(&pairs(server, other), confidence).map(|effect| effect.ratio);
    shift.filter(Estimate::is_bounded).map_or(0.0, |shift| away_from_one(&shift))
}

/// How far an interval stays away from 1, in log units.
fn away_from_one(ratio: &Estimate) -> f64 {
    ratio.low.ln().max(-ratio.high.ln()).max(0.0)
}

/// The warning about a server whose bias is larger than 3 %, if restarts prove one.
#[must_use]
pub fn warning(name: &str, of_alone: &Estimate) -> Option<String> {
    let is_named = (of_alone.value - 1.0).abs() > NAMED
        && of_alone.is_bounded()
        && away_from_one(of_alone) > 0.0;
    let percent = grouped((of_alone.value - 1.0).abs() * 100.0, 0);
    let found = ratio(of_alone).spread;
    is_named.then(|| match of_alone.value > 1.0 {
        true => format!(
            "{name} costs {percent} % more CPU per request in its slices than alone ({found}); \
             comparisons allow for that. Use longer slices (--slice 1s)."
        ),
        false => format!(
            "{name} costs {percent} % less CPU per request in its laps than at the end of its \
             warm-up ({found}): it was still warming up. Comparisons allow for that; a longer \
             --budget warms it up for longer."
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(values: &[f64]) -> Vec<Reading> {
        (0..).zip(values).map(|(heat, &value)| Reading { heat, block: 0, value }).collect()
    }

    #[test]
    fn only_the_part_of_a_bias_that_restarts_prove_counts() {
        let one = readings(&[1.10, 1.12, 1.11, 1.09]);
        let other = readings(&[1.00, 1.01, 0.99, 1.00]);
        let shift = proven(&one, &other, 0.95);
        assert!(shift > 0.08 && shift < 1.105_f64.ln(), "{shift}");
        assert!((proven(&other, &one, 0.95) - shift).abs() < 1e-12);
        let noisy = readings(&[1.5, 0.8, 1.2, 0.9]);
        assert_eq!(proven(&noisy, &other, 0.95), 0.0);
        assert_eq!(proven(&one[..1], &other[..1], 0.95), 0.0, "one restart proves nothing");
    }

    #[test]
    fn two_servers_that_slices_treat_alike_have_no_bias_between_them() {
        let one = readings(&[1.10, 1.12, 1.11, 1.09]);
        assert_eq!(proven(&one, &one, 0.95), 0.0);
    }

    #[test]
    fn a_bias_above_three_percent_is_named_with_its_remedy() {
        let of = |value, low, high| warning("a", &Estimate { value, low, high });
        assert_eq!(
            of(1.12, 1.09, 1.15).unwrap(),
            "a costs 12 % more CPU per request in its slices than alone ([1.09, 1.15]); comparisons \
             allow for that. Use longer slices (--slice 1s)."
        );
        assert_eq!(
            of(0.90, 0.85, 0.95).unwrap(),
            "a costs 10 % less CPU per request in its laps than at the end of its warm-up ([0.85, \
             0.95]): it was still warming up. Comparisons allow for that; a longer --budget warms \
             it up for longer."
        );
        assert_eq!(of(1.02, 1.01, 1.03), None);
        assert_eq!(of(1.12, 0.99, 1.25), None);
        assert_eq!(of(1.12, f64::NEG_INFINITY, f64::INFINITY), None);
    }
}
