//! Finds why the measured CPU time of a server may differ from its CPU time in the long run.
//! Slices may have a bias, or the server may not have been steady, because of an unfinished
//! warm-up or a leak.
//!
//! Probes measure the slice bias before the first lap ([`Probed`]). A probe compares CPU time per
//! request in a slice with CPU time per request when the server is left running. Both are measured
//! within one stretch. So the ratio is precise even if the machine's speed varies by the second.
//!
//! As a check, CPU time per request in laps is compared with CPU time per request when the server
//! runs alone. The CPU time alone is measured at the end of the warm-up of the same restart. The
//! two measurements are seconds apart, so only several restarts make the ratio meaningful. The
//! ratio is exported, but no warning uses the ratio.

use std::collections::BTreeSet;

use hotlap_bench::lap::readings;
use hotlap_stats::{Bursts, ByRestart, Drift, Mean, Reading, apart, totals};

use super::Measure;
use crate::model::{Class, Probed, Run};

/// Returns the logarithm of CPU time in laps ÷ CPU time alone, by restart. `costs` has the readings
/// of the laps that count.
pub fn of_alone(run: &Run, (server, load): (usize, usize), costs: &[Reading]) -> ByRestart {
    // Warm-ups end in a closed loop. At a rate, a server sleeps between requests, so its CPU time
    // per request may differ.
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

/// Returns how much slices changed the ratio of two servers in one measure, given the probes of
/// each server. A server is included only if probes prove that it costs over 3% more or less in
/// slices. A change that noise may explain is not corrected.
pub fn shift(measure: Measure, [server, other]: [Option<&Probed>; 2]) -> Mean {
    let of = |probed: Option<&Probed>| {
        let found = probed.filter(|probed| probed.is_biased())?;
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

/// The smallest change of cost within a restart that is reported at any speed, as a share. With
/// such a change, the mean of the restart is off by half of the change. The limit is a convention.
const CHANGED: f64 = 0.05;

/// The limits for a smaller change that is fast: the change as a share of the cost, and that share
/// per second of CPU time. A warm-up may end while a server still changes at this speed. In a
/// longer restart, the server would change much more. Caches that fill in the first round of a
/// restart cause smaller changes.
const CHANGING: (f64, f64) = (0.03, 0.02);

/// Changes with a larger p-value may be chance, because rounds on a busy machine are not
/// independent. The limit is a convention.
const BY_CHANCE: f64 = 1e-3;

/// The reason why an unsteady server gets no rank, and no verdict except on memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unsteady {
    /// The server was not steady at the limit of the warm-up, in most of its starts.
    AtLimit,
    /// The server's CPU time per request changed within restarts.
    Changing {
        /// The change from the first to the last round as a share, negative if CPU time fell.
        change: f64,
        /// CPU time per request in the last third of the rounds, in nanoseconds.
        last_ns: f64,
    },
}

impl Unsteady {
    /// Returns why a server was not steady, from the cost readings of all servers.
    pub(super) fn of(
        run: &Run,
        (load, server): (usize, usize),
        costs: &[Reading],
        others: &[&[Reading]],
    ) -> Option<Self> {
        changing(costs, others)
            .or_else(|| settling(costs, others))
            .or_else(|| at_limit(run, load, server).then_some(Self::AtLimit))
    }
}

/// Returns the change of a server relative to the others, if the change is certain, large or fast,
/// and not caused by the other servers.
fn changing(costs: &[Reading], others: &[&[Reading]]) -> Option<Unsteady> {
    let (relative, own) = (Drift::of(costs, others)?, Drift::of(costs, &[])?);
    let is_its_own = own.log / relative.log >= 0.5;
    let change = relative.log.exp_m1();
    let (least, per_second) = CHANGING;
    // Without other servers, a change of the server cannot be told from the drift of the machine.
    let is_fast = !others.is_empty() && change.abs() >= (per_second * restart_s(costs)).max(least);
    let is_certain = relative.p < BY_CHANCE;
    ((change.abs() >= CHANGED || is_fast) && is_certain && is_its_own)
        .then(|| Unsteady::Changing { change, last_ns: last(costs) })
}

/// Returns the change of a server whose first rounds cost far more than all later ones. A line
/// through all rounds may not show such an early and short change.
fn settling(costs: &[Reading], others: &[&[Reading]]) -> Option<Unsteady> {
    let is_at_start = |others| Bursts::of(costs, others).filter(|bursts| bursts.at_start);
    // If another server is cheaper at first, this one only seems to cost more.
    is_at_start(&[])?;
    let bursts = is_at_start(others)?;
    Some(Unsteady::Changing { change: 1.0 / bursts.factor - 1.0, last_ns: last(costs) })
}

/// Returns the mean CPU time in the laps of a restart, in seconds.
fn restart_s(costs: &[Reading]) -> f64 {
    let restarts = costs.iter().map(|reading| reading.restart).collect::<BTreeSet<_>>().len();
    costs.iter().map(|reading| reading.share.amount / 1e9).sum::<f64>() / restarts as f64
}

/// Returns the cost in the last third of the rounds of each restart, rounded up to whole rounds.
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
    // One disturbed start among many does not show that the server is unsteady.
    never * 2 > classes.len()
}

#[cfg(test)]
mod tests {
    use hotlap_stats::Estimate;

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

        /// Returns readings of three restarts of six rounds, with 0.2 s of CPU time per round.
        /// `cost` returns the cost in a round, in microseconds.
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

        /// Regression test: Spring Boot counted as steady. Its measured cost was 873 µs, while the
        /// cost fell from 1,706 to 402 µs.
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
        fn a_server_whose_first_rounds_cost_more_was_still_warming_up() {
            let rounds = |first: f64| {
                let cost = |n: u32| if n < 2 { first } else { 2.85 };
                let reading = |n: u32| {
                    let wobble = 1.0 + 0.01 * f64::from(n * 7 % 3);
                    Reading { restart: 0, round: n, share: Share::whole(cost(n) * wobble) }
                };
                (0..24).map(reading).collect::<Vec<_>>()
            };
            let (falling, flat) = (rounds(9.1), rounds(2.85));
            let Some(Unsteady::Changing { change, .. }) = settling(&falling, &[&flat]) else {
                panic!("it falls");
            };
            assert!((-0.71..-0.66).contains(&change), "{change}");
            assert_eq!(settling(&flat, &[&falling]), None);
        }

        #[test]
        fn a_machine_that_becomes_slower_for_all_leaves_them_steady() {
            let slower = |round: u32| 1.0 + 0.1 * f64::from(round);
            let (one, other) =
                (costs(|round| 5.0 * slower(round)), costs(|round| 9.0 * slower(round)));
            assert_eq!(changing(&one, &[&other]), None);
        }

        /// Regression test: a server became cheaper for 20 s, by 3% of its first cost per second.
        /// The server was compared at nearly three times its later cost. Its restarts had one
        /// second of CPU time.
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
