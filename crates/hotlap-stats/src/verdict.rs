//! Verdicts and ranks: which differences between servers count.
//!
//! A verdict needs three things: at least [`MIN_RESTARTS`] restarts, a p-value that accounts for
//! the number of comparisons ([`holm`]), and a difference larger than the noise floor
//! ([`NoiseFloor`]) plus the bias that the method may have added. With too few restarts, or an
//! unknown noise floor, a comparison is inconclusive.

mod holm;
mod inconclusive;
mod noise_floor;
mod ranks;

use crate::compare::Effect;
pub use holm::holm;
pub use inconclusive::{Inconclusive, MAX_CONTROL_DIFFERENCE, MIN_RESTARTS};
pub use noise_floor::NoiseFloor;
pub use ranks::ranks;

/// How a server compares with another in one measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is better, by more than noise and bias.
    Better,
    /// It is worse, by more than noise and bias.
    Worse,
    /// No difference that could be measured.
    NoDifference,
    /// The data do not permit a verdict.
    Inconclusive(Inconclusive),
}

impl Verdict {
    /// Whether the two servers differ.
    #[must_use]
    pub fn differs(self) -> bool {
        matches!(self, Self::Better | Self::Worse)
    }
}

/// Which values of a measure are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Better {
    /// The higher: requests per second.
    Higher,
    /// The lower: cost, latency, memory.
    Lower,
}

/// What a difference must exceed to count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Criterion {
    /// The largest p-value that counts (0.05), after correction for the number of comparisons.
    pub alpha: f64,
    /// The noise floor.
    pub floor: NoiseFloor,
    /// By how much the measuring method may have shifted the ratio, in log units, at least 0. Added
    /// to the noise floor: the A/A control cannot show it, because it shifts both copies of one
    /// program alike.
    pub bias: f64,
    /// Which values are better.
    pub better: Better,
}

impl Criterion {
    /// The verdict on one comparison, given a corrected p-value.
    fn verdict(&self, effect: &Effect, p: f64) -> Verdict {
        if effect.restarts < MIN_RESTARTS {
            return Verdict::Inconclusive(Inconclusive::TooFewRestarts);
        }
        let noise = match self.floor {
            NoiseFloor::NoControl => 0.0,
            NoiseFloor::Known(noise) => noise,
            NoiseFloor::Unusable(why) => return Verdict::Inconclusive(why),
        };
        let log_ratio = effect.ratio.value.ln();
        // A NaN on either side must lead to "no difference".
        let differs = p <= self.alpha && log_ratio.abs() > noise + self.bias;
        match self.better {
            _ if !differs => Verdict::NoDifference,
            Better::Higher if log_ratio.is_sign_positive() => Verdict::Better,
            Better::Lower if log_ratio.is_sign_negative() => Verdict::Better,
            _ => Verdict::Worse,
        }
    }
}

/// The verdicts on comparisons that form one family, in their order: p-values are corrected for
/// their number by [`holm`].
///
/// # The family of a table
///
/// The sentences of a table give two verdicts per server, on CPU time per request and on
/// requests/s. They are one family: if nothing differs, at most 5 % of tables may have a false
/// sentence. Holm's method ensures this within each measure. Across the two, p-values are not
/// corrected, which keeps the full power for CPU time per request (one server against the
/// reference: p ≤ 0.05). There the noise floor limits the family: a second condition, based on
/// other data than the p-value. Without a real difference, both hold in 0.3 to 2.5 % of tables in
/// one measure, and in at most 5 % in two (simulated in `tests/coverage/family.rs`). Without a
/// control there is no second condition, and the two measures must be passed in together.
///
/// Further measures (latency, memory) are a separate family, and are passed in together.
#[must_use]
pub fn verdicts(comparisons: &[(Criterion, Effect)]) -> Vec<Verdict> {
    let p = holm(&comparisons.iter().map(|(_, effect)| effect.p).collect::<Vec<_>>());
    comparisons.iter().zip(p).map(|((criterion, effect), p)| criterion.verdict(effect, p)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compare::{Reading, Spread, effect, pairs};
    use crate::estimate::Estimate;

    /// Five restarts of two rounds around `value`, ± 0.2 %.
    fn server(value: f64) -> Vec<Reading> {
        restarts(5, value)
    }

    fn restarts(count: u32, value: f64) -> Vec<Reading> {
        let wobble = |i: u32| 1.0 + 0.001 * (f64::from(i * 7 % 5) - 2.0);
        let reading = |i| Reading { restart: i / 2, round: i % 2, value: value * wobble(i) };
        (0..2 * count).map(reading).collect()
    }

    /// As `server`, with the noise in another order.
    fn other(value: f64) -> Vec<Reading> {
        let mut readings = server(value);
        let values: Vec<f64> = readings.iter().map(|r| r.value).collect();
        readings.iter_mut().zip(values.iter().rev()).for_each(|(r, v)| r.value = *v);
        readings
    }

    fn criterion(better: Better) -> Criterion {
        Criterion { alpha: 0.05, floor: NoiseFloor::Known(0.002), bias: 0.0, better }
    }

    fn higher(floor: NoiseFloor, bias: f64) -> Criterion {
        Criterion { floor, bias, ..criterion(Better::Higher) }
    }

    fn compared(server: &[Reading], reference: &[Reading]) -> Effect {
        effect(&pairs(server, reference), 0.95).unwrap()
    }

    fn verdict(criterion: Criterion, effect: Effect) -> Verdict {
        verdicts(&[(criterion, effect)])[0]
    }

    /// An effect of this ratio.
    fn ratio(value: f64, p: f64, restarts: u32) -> Effect {
        let spread = Spread { sd_restart: 0.0, sd_round: 0.0 };
        let ratio = Estimate { value, low: value, high: value };
        Effect { ratio, p, spread, restarts, rounds: 2 * restarts }
    }

    #[test]
    fn better_depends_on_which_values_are_better() {
        let effect = compared(&other(110.0), &server(100.0));
        assert_eq!(verdict(criterion(Better::Higher), effect), Verdict::Better);
        assert_eq!(verdict(criterion(Better::Lower), effect), Verdict::Worse);
        let effect = compared(&other(90.0), &server(100.0));
        assert_eq!(verdict(criterion(Better::Higher), effect), Verdict::Worse);
        assert_eq!(verdict(criterion(Better::Lower), effect), Verdict::Better);
    }

    #[test]
    fn a_difference_within_noise_and_bias_is_none_however_significant() {
        let effect = compared(&server(102.0), &server(100.0));
        assert!(effect.p < 1e-6);
        let of = |noise, bias| verdict(higher(NoiseFloor::Known(noise), bias), effect);
        assert_eq!(of(0.002, 0.0), Verdict::Better);
        assert_eq!(of(0.03, 0.0), Verdict::NoDifference);
        assert_eq!(of(0.002, 0.03), Verdict::NoDifference);
    }

    /// Regression: verdicts were issued from the rounds of a single restart.
    #[test]
    fn fewer_than_three_restarts_are_inconclusive() {
        for count in 1..=4 {
            let effect = compared(&restarts(count, 300.0), &server(100.0));
            let found = verdict(criterion(Better::Higher), effect);
            let few = Verdict::Inconclusive(Inconclusive::TooFewRestarts);
            assert_eq!(found, if count < 3 { few } else { Verdict::Better }, "{count}");
        }
    }

    #[test]
    fn an_unusable_noise_floor_forbids_verdicts_and_a_missing_control_does_not() {
        let effect = compared(&server(300.0), &server(100.0));
        let unusable = NoiseFloor::Unusable(Inconclusive::NoiseUnknown);
        let inconclusive = Verdict::Inconclusive(Inconclusive::NoiseUnknown);
        assert_eq!(verdict(higher(unusable, 0.0), effect), inconclusive);
        assert_eq!(verdict(higher(NoiseFloor::NoControl, 0.0), effect), Verdict::Better);
    }

    #[test]
    fn nan_is_no_difference() {
        let effect = compared(&server(102.0), &server(100.0));
        for (noise, bias) in [(f64::NAN, 0.0), (0.002, f64::NAN)] {
            let criterion = higher(NoiseFloor::Known(noise), bias);
            assert_eq!(verdict(criterion, effect), Verdict::NoDifference);
        }
    }

    #[test]
    fn a_p_value_of_alpha_counts_and_a_ratio_at_the_floor_does_not() {
        let of = |value: f64, p, floor| higher(floor, 0.0).verdict(&ratio(value, p, 5), p);
        assert_eq!(of(2.0, 0.05, NoiseFloor::NoControl), Verdict::Better);
        assert_eq!(of(0.5, 0.05, NoiseFloor::NoControl), Verdict::Worse);
        assert_eq!(of(2.0, 0.050_001, NoiseFloor::NoControl), Verdict::NoDifference);
        assert_eq!(of(1.0, 0.0, NoiseFloor::NoControl), Verdict::NoDifference);
        let floor = NoiseFloor::Known(2.0_f64.ln());
        assert_eq!(of(2.0, 0.0, floor), Verdict::NoDifference);
        assert_eq!(of(2.001, 0.0, floor), Verdict::Better);
        assert_eq!(of(0.5, 0.0, floor), Verdict::NoDifference);
        assert_eq!(of(0.499, 0.0, floor), Verdict::Worse);
    }

    #[test]
    fn p_values_are_corrected_for_the_number_of_comparisons() {
        let one = (criterion(Better::Higher), ratio(2.0, 0.03, 5));
        assert_eq!(verdicts(&[one]), [Verdict::Better]);
        assert_eq!(verdicts(&[one, one]), [Verdict::NoDifference; 2]);
    }

    #[test]
    fn only_better_and_worse_differ() {
        assert!(Verdict::Better.differs() && Verdict::Worse.differs());
        assert!(!Verdict::NoDifference.differs());
        assert!(!Verdict::Inconclusive(Inconclusive::NoiseUnknown).differs());
    }

    proptest! {
        #[test]
        fn more_noise_more_bias_or_fewer_restarts_never_make_a_verdict_easier(
            log_ratio in -0.2..0.2, p in 0.0..0.1, noise in 0.0..0.1, bias in 0.0..0.1,
            more in 0.0..0.1, restarts in 1..6u32,
        ) {
            let differs = |noise, bias, restarts| {
                let floor = NoiseFloor::Known(noise);
                let criterion = Criterion { floor, bias, ..criterion(Better::Lower) };
                criterion.verdict(&ratio(f64::exp(log_ratio), p, restarts), p).differs()
            };
            if !differs(noise, bias, restarts) {
                prop_assert!(!differs(noise + more, bias, restarts));
                prop_assert!(!differs(noise, bias + more, restarts));
                prop_assert!(!differs(noise, bias, restarts - 1));
            }
        }
    }
}
