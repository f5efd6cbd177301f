//! Why a server's CPU time may differ from its CPU time in the long run. Measuring in slices has a
//! bias, or the server was not steady, because it was still warming up or leaked.
//!
//! Probes measure the bias before the first lap: the CPU time per request in the window of a slice,
//! divided by that when the server is left running ([`Probed`]). Both are measured within one
//! stretch, so the ratio is precise even on a machine whose speed varies from second to second.
//!
//! As a check, the CPU time per request in laps is divided by that of the server alone, at the end
//! of the warm-up of the same restart. Those two are seconds apart, and only several restarts make
//! the ratio meaningful. The ratio is exported, and no warning rests on it.

use std::collections::BTreeSet;

use hotlap_bench::lap::readings;
use hotlap_bench::local::TOLERANCE;
use hotlap_stats::{ByRestart, Drift, Estimate, Mean, Reading, apart, totals};

use super::Measure;
use crate::model::{Class, Probed, Run};

/// CPU time in laps divided by CPU time alone, from the readings of the laps that count.
pub fn of_alone(run: &Run, (server, load): (usize, usize), costs: &[Reading]) -> ByRestart {
    // Warm-ups end in a closed loop. At a rate, where a server sleeps between requests, its CPU
    // time per request may differ.
    if run.loads.get(load).is_some_and(|load| load.rate.is_some()) {
        return ByRestart::new();
    }
    let starts = run.starts.iter().filter(|start| start.server == server);
    let alone = starts.filter_map(|start| {
        let warmup = start.warmups.iter().find(|warmup| warmup.load == load)?;
        Some((start.restart, warmup.alone_cost_ns?.ln()))
    });
    apart(&totals(costs), &alone.collect())
}

/// How slices changed the ratio of two servers in one measure, given what probes found for each. A
/// server is included only if probes prove that it costs more or less in slices. A change that
/// noise may explain is not corrected.
pub fn shift(measure: Measure, [server, other]: [Option<&Probed>; 2]) -> Mean {
    let of = |probed: Option<&Probed>| {
        let found = probed.filter(|probed| is_biased(&probed.ratio))?;
        let ratio = match measure {
            Measure::Cost => found.ratio,
            Measure::Rate => found.rate,
            _ => return None,
        };
        // Half of a 95% interval is 1.96 standard errors.
        Some((ratio.value.ln(), (ratio.high / ratio.low).ln() / 3.92))
    };
    let [server, other] = [server, other].map(|probed| of(probed).unwrap_or_default());
    Mean::known(server.0 - other.0, server.1.hypot(other.1))
}

/// Whether probes prove that a server costs over 3% more or less in slices than alone.
pub fn is_biased(in_slices: &Estimate) -> bool {
    in_slices.is_bounded() && (in_slices.low > TOLERANCE || in_slices.high < 1.0 / TOLERANCE)
}

/// A change of cost within a restart from this share on is reported: the mean of the restart is off
/// by half of the change. A convention.
const CHANGED: f64 = 0.05;

/// A smaller change, from this share on, is reported if the cost changes by at least so much per
/// second of CPU time. That is what a warm-up permits, and such a server would change much more in
/// a longer restart. Caches that fill in the first round of a restart make smaller changes.
const CHANGING: (f64, f64) = (0.03, 0.02);

/// A change with a larger p-value may be chance: rounds of a busy machine are not independent. A
/// convention.
const BY_CHANCE: f64 = 1e-3;

/// Why a server gets no verdict and no rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unsteady {
    /// It was not steady at the limit of the warm-up, in most of its starts.
    AtLimit,
    /// Its CPU time per request changed within restarts.
    Changing {
        /// By this share from the first to the last round, negative if it fell.
        change: f64,
        /// CPU time per request in the last third of the rounds, in nanoseconds.
        last_ns: f64,
    },
}

impl Unsteady {
    /// Why a server was not steady, given the readings of its cost and of the other servers' costs.
    pub(super) fn of(
        run: &Run,
        (load, server): (usize, usize),
        costs: &[Reading],
        others: &[&[Reading]],
    ) -> Option<Self> {
        changing(costs, others).or_else(|| at_limit(run, load, server).then_some(Self::AtLimit))
    }
}

/// The change of a server relative to the others, if it is large, and the others do not cause it.
fn changing(costs: &[Reading], others: &[&[Reading]]) -> Option<Unsteady> {
    let (relative, own) = (Drift::of(costs, others)?, Drift::of(costs, &[])?);
    let is_its_own = own.log / relative.log >= 0.5;
    let change = relative.log.exp_m1();
    let (least, per_second) = CHANGING;
    // Alone, a server cannot be told from its machine, which drifts by as much.
    let is_fast = !others.is_empty() && change.abs() >= (per_second * restart_s(costs)).max(least);
    let is_certain = relative.p < BY_CHANCE;
    ((change.abs() >= CHANGED || is_fast) && is_certain && is_its_own)
        .then(|| Unsteady::Changing { change, last_ns: last(costs) })
}

/// The mean CPU time in the laps of a restart, in seconds.
fn restart_s(costs: &[Reading]) -> f64 {
    let restarts = costs.iter().map(|reading| reading.restart).collect::<BTreeSet<_>>().len();
    costs.iter().map(|reading| reading.share.amount / 1e9).sum::<f64>() / restarts as f64
}

/// The cost in the last third of the rounds of each restart, at least one round.
fn last(costs: &[Reading]) -> f64 {
    let rounds = |restart: u32| costs.iter().filter(move |r| r.restart == restart);
    let is_last = |reading: &&Reading| {
        let later = rounds(reading.restart).filter(|other| other.round > reading.round).count();
        later < rounds(reading.restart).count().div_ceil(3)
    };
    let last = costs.iter().filter(is_last).map(|reading| (0, 0, reading.share));
    readings(last).first().and_then(|sum| sum.share.value()).unwrap_or(f64::NAN)
}

fn at_limit(run: &Run, load: usize, server: usize) -> bool {
    let starts = run.starts.iter().filter(|start| start.server == server);
    let warmups = starts.flat_map(|start| &start.warmups).filter(|warmup| warmup.load == load);
    let classes: Vec<Class> = warmups.map(|warmup| warmup.class).collect();
    let never = classes.iter().filter(|class| **class == Class::NeverSteady).count();
    // One disturbed start among many does not show anything about the server.
    never * 2 > classes.len()
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
        let of = |measure, pair: [usize; 2]| shift(measure, pair.map(|n| probes.get(n)));
        let found = of(Measure::Cost, [0, 1]).estimate(0.95);
        assert!((found.value - f64::ln(1.12 / 0.89)).abs() < 1e-12);
        let half = 1.02_f64.ln().hypot(1.03_f64.ln());
        assert!((found.high - found.value - half).abs() < 1e-4, "{found:?}");
        assert!((of(Measure::Rate, [0, 1]).estimate(0.95).value + found.value).abs() < 1e-12);
        assert_eq!(of(Measure::Cost, [2, 3]), Mean::known(0.0, 0.0), "noise proves nothing");
        assert_eq!(of(Measure::P99, [0, 1]), Mean::known(0.0, 0.0));
    }

    mod unsteady {
        use hotlap_stats::Share;

        use super::super::*;

        /// Three restarts of six rounds, with a cost in microseconds and 0.2 s of CPU time per
        /// round.
        fn costs(cost: impl Fn(u32) -> f64) -> Vec<Reading> {
            let places = (0..3).flat_map(|restart| (0..6).map(move |round| (restart, round)));
            places
                .map(|(restart, round)| {
                    let wobble = 1.0 + 0.01 * f64::from((restart * 6 + round) * 7 % 3);
                    let cost_ns = 1e3 * cost(round) * wobble;
                    Reading { restart, round, share: Share { amount: 2e8, of: 2e8 / cost_ns } }
                })
                .collect()
        }

        /// Regression: Spring Boot was "flat", measured at 873 µs while it fell from 1,706 to 402
        /// µs.
        #[test]
        fn of_two_servers_the_one_that_falls_is_unsteady() {
            let falling = costs(|round| 1706.0 * 0.75_f64.powi(round as i32));
            let flat = costs(|_| 70.0);
            let Some(Unsteady::Changing { change, last_ns }) = changing(&falling, &[&flat]) else {
                panic!("it falls");
            };
            assert!(
                (-0.77..-0.75).contains(&change) && (400e3..560e3).contains(&last_ns),
                "{change}"
            );
            assert_eq!(changing(&flat, &[&falling]), None);
        }

        #[test]
        fn a_machine_that_becomes_slower_for_all_leaves_them_steady() {
            let slower = |round: u32| 1.0 + 0.1 * f64::from(round);
            let (one, other) =
                (costs(|round| 5.0 * slower(round)), costs(|round| 9.0 * slower(round)));
            assert_eq!(changing(&one, &[&other]), None);
        }

        /// Regression: a server that became cheaper for 20 s, by 3% of its first cost per second,
        /// was compared at nearly three times its later cost. Its restarts had a second of CPU
        /// time.
        #[test]
        fn a_small_change_counts_if_it_is_fast() {
            let flat = costs(|_| 9.0);
            let of = |per_round: f64| costs(|round| 5.0 * (1.0 - per_round * f64::from(round)));
            assert!(changing(&of(0.008), &[&flat]).is_some(), "4% in 1.2 s");
            assert_eq!(changing(&of(0.004), &[&flat]), None, "2%, as caches do");
            let long = |costs: Vec<Reading>| -> Vec<Reading> {
                let longer =
                    |share: Share| Share { amount: 10.0 * share.amount, of: 10.0 * share.of };
                costs.into_iter().map(|r| Reading { share: longer(r.share), ..r }).collect()
            };
            assert_eq!(changing(&long(of(0.008)), &[&flat]), None, "4% in 12 s");
        }
    }
}
