//! Finds shards to set apart, because their node was disturbed or differs from what it reports.
//!
//! Only the reference, the A/A control and the ceiling decide. They are in every shard. The servers
//! whose ratios are merged never decide, because that would select results by their values. A node
//! that makes all servers equally faster or slower does not change their ratios, so the limits are
//! wide.

use hotlap_stats::{mad, median};

use crate::analysis::{Analysis, Measure};
use crate::model::{Apart, Run};

/// A noise floor is far off if it is above this many times the pool's median, and above [`QUIET`].
/// A shard needs three restarts to have a noise floor. In a pool of twelve shards with three
/// restarts each, the floor is this high by chance in about 1 of 500 shards (simulated).
const TIMES: f64 = 3.0;

/// The highest noise floor that is never far off, in log units.
const QUIET: f64 = 0.05;

/// A ceiling is far off if it differs from the pool's median by more than this factor, and by more
/// than [`DEVIATIONS`].
const FACTOR: f64 = 1.15;

/// The largest distance of a ceiling from the median, in standard deviations. The standard
/// deviation is estimated from the median absolute deviation.
const DEVIATIONS: f64 = 4.0;

/// The fewest shards that can show which of them is off.
const MIN_SHARDS: usize = 3;

/// The condition of a shard's node, as far as the shard shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Condition {
    /// Whether the reference has laps that count under every load.
    pub has_reference: bool,
    /// Whether the A/A control differs from the reference in CPU time per request, under any load.
    pub control_differs: bool,
    /// How far the control may be from the reference in CPU time per request, in log units: the
    /// most under any load. Requests/s are used if CPU time is unknown. `None` if both are unknown.
    pub noise: Option<f64>,
    /// The ceiling's CPU time per request under the first load, in nanoseconds.
    pub ceiling_ns: Option<f64>,
}

impl Condition {
    /// Determines the condition of a shard's node from the shard's run.
    pub fn of(run: &Run) -> Self {
        let analyses = Analysis::of_all(run);
        let measured = |a: &Analysis| a.reference.is_some_and(|r| a.servers[r].is_measured());
        let either = [Measure::Cost, Measure::Rate];
        let noise = |a: &Analysis| either.iter().find_map(|m| Some(a.noise_band(*m)?.ln_1p()));
        let differs = |a: &Analysis| a.control_differs(Measure::Cost);
        let ceiling = |a: &Analysis| Some(a.servers[a.ceiling?].level[Measure::Cost]?.value);
        Self {
            has_reference: !analyses.is_empty() && analyses.iter().all(measured),
            control_differs: analyses.iter().any(differs),
            noise: analyses.iter().filter_map(noise).max_by(f64::total_cmp),
            ceiling_ns: analyses.first().and_then(ceiling),
        }
    }
}

/// Returns which of these shards of one kind of machine are set apart, and why.
pub fn apart(shards: &[Condition]) -> Vec<Option<Apart>> {
    let noise: Vec<f64> = shards.iter().filter_map(|shard| shard.noise).collect();
    let ceilings: Vec<f64> = shards.iter().filter_map(|s| Some(s.ceiling_ns?.ln())).collect();
    let middle = |values: &[f64]| median(values).filter(|_| values.len() >= MIN_SHARDS);
    let (noise, ceiling) = (middle(&noise), middle(&ceilings));
    let spread = mad(&ceilings).unwrap_or(0.0);
    let is_noisy = |own: f64, pool: f64| own > QUIET && own > TIMES * pool;
    let is_off = |own: f64, pool: f64| {
        let distance = (own.ln() - pool).abs();
        distance > FACTOR.ln() && distance > DEVIATIONS * spread
    };
    let why = |shard: &Condition| match (shard.noise, shard.ceiling_ns) {
        _ if !shard.has_reference => Some(Apart::NoReference),
        // One control in a hundred differs by chance, but hardly by this much.
        (Some(own), _) if shard.control_differs && own > QUIET => Some(Apart::ControlDiffers),
        (Some(own), _) if noise.is_some_and(|pool| is_noisy(own, pool)) => {
            Some(Apart::Noise { own, pool: noise? })
        }
        (_, Some(own)) if ceiling.is_some_and(|pool| is_off(own, pool)) => {
            Some(Apart::Ceiling { own, pool: ceiling?.exp() })
        }
        _ => None,
    };
    shards.iter().map(why).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(noise: f64, ceiling_ns: f64) -> Condition {
        Condition {
            has_reference: true,
            control_differs: false,
            noise: Some(noise),
            ceiling_ns: Some(ceiling_ns),
        }
    }

    fn pool(own: Condition) -> Option<Apart> {
        let others = [0.02, 0.025, 0.018, 0.02, 0.022].map(|noise| shard(noise, 3600.0));
        let found = apart(&[&others[..], &[own]].concat());
        assert_eq!(found[..5], [None; 5]);
        found[5]
    }

    #[test]
    fn a_noise_floor_far_above_the_pools_sets_a_shard_apart() {
        assert_eq!(pool(shard(0.059, 3600.0)), None);
        let Some(Apart::Noise { own, pool }) = pool(shard(0.2, 3600.0)) else { panic!() };
        assert!(own == 0.2 && (pool - 0.021).abs() < 1e-12);
        let quiet = [0.001, 0.001, 0.001, 0.04].map(|noise| shard(noise, 3600.0));
        assert_eq!(apart(&quiet), [None; 4], "4% is not much, however quiet the others are");
    }

    #[test]
    fn a_ceiling_that_costs_something_else_sets_a_shard_apart() {
        assert_eq!(pool(shard(0.02, 4000.0)), None);
        for own in [4300.0, 2900.0] {
            let Some(Apart::Ceiling { own: found, pool }) = pool(shard(0.02, own)) else {
                panic!("{own}")
            };
            assert!(found == own && (pool - 3600.0).abs() < 1e-6);
        }
    }

    #[test]
    fn ceilings_that_scatter_are_not_off() {
        let scattered = [3000.0, 3600.0, 4300.0, 3200.0, 4000.0].map(|ns| shard(0.02, ns));
        assert_eq!(apart(&scattered), [None; 5]);
    }

    #[test]
    fn without_a_usable_reference_or_control_there_is_nothing_to_compare() {
        let none = Condition { has_reference: false, ..shard(0.02, 3600.0) };
        assert_eq!(pool(none), Some(Apart::NoReference));
        let differs = Condition { control_differs: true, ..shard(0.06, 3600.0) };
        assert_eq!(pool(differs), Some(Apart::ControlDiffers));
        let few = Condition { noise: None, ceiling_ns: None, ..shard(0.0, 0.0) };
        assert_eq!(pool(few), None, "too few restarts say nothing of the node");
    }

    #[test]
    fn two_shards_do_not_show_which_one_is_off() {
        assert_eq!(apart(&[shard(0.01, 3600.0), shard(0.9, 9000.0)]), [None; 2]);
    }
}
