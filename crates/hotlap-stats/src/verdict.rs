//! Verdicts and ranks: which differences between servers count.
//!
//! A verdict needs at least [`MIN_RESTARTS`] restarts, and a p-value that is at most alpha after
//! correction for the number of comparisons ([`holm`]). If copies of one program differ, there are
//! no verdicts: see [`Inconclusive::ControlDiffers`].

mod holm;
mod inconclusive;
mod ranks;

use crate::compare::Effect;
pub use holm::holm;
pub use inconclusive::{CONTROL_ALPHA, Inconclusive, MIN_RESTARTS};
pub use ranks::{Rank, ranks};

/// How a server compares with another in one measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is better, by more than noise.
    Better,
    /// It is worse, by more than noise.
    Worse,
    /// No difference that could be measured.
    NoDifference,
    /// The data do not permit a verdict.
    Inconclusive(Inconclusive),
}

impl Verdict {
    /// Whether the two servers differ.
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

/// What decides a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Criterion {
    /// The largest p-value that counts (0.05), after correction for the number of comparisons.
    pub alpha: f64,
    /// Why no verdict can be given, whatever the difference.
    pub withheld: Option<Inconclusive>,
    /// Which values are better.
    pub better: Better,
}

impl Criterion {
    /// The verdict on one comparison, given a corrected p-value.
    fn verdict(&self, effect: &Effect, p: f64) -> Verdict {
        if let Some(why) = self.withheld {
            return Verdict::Inconclusive(why);
        }
        if effect.restarts < MIN_RESTARTS {
            return Verdict::Inconclusive(Inconclusive::TooFewRestarts);
        }
        let log_ratio = effect.ratio.value.ln();
        // A NaN must lead to "no difference".
        let differs = p <= self.alpha && log_ratio.abs() > 0.0;
        match self.better {
            _ if !differs => Verdict::NoDifference,
            Better::Higher if log_ratio.is_sign_positive() => Verdict::Better,
            Better::Lower if log_ratio.is_sign_negative() => Verdict::Better,
            _ => Verdict::Worse,
        }
    }
}

/// The verdicts on comparisons that form one family, in their order. If nothing differs, at most
/// 5% of families have a false verdict: p-values are corrected for their number by [`holm`].
///
/// The sentences of a table give two verdicts per server, on CPU time per request and on
/// requests/s. They are one family. Further measures (latency, memory) are another one.
pub fn verdicts(comparisons: &[(Criterion, Effect)]) -> Vec<Verdict> {
    let p = holm(&comparisons.iter().map(|(_, effect)| effect.p).collect::<Vec<_>>());
    comparisons.iter().zip(p).map(|((criterion, effect), p)| criterion.verdict(effect, p)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::estimate::Estimate;

    fn ratio(value: f64, p: f64, restarts: u32) -> Effect {
        let ratio = Estimate { value, low: value * 0.99, high: value * 1.01 };
        Effect { ratio, p, restarts, rounds: 2 * restarts }
    }

    fn criterion(better: Better) -> Criterion {
        Criterion { alpha: 0.05, withheld: None, better }
    }

    fn verdict(criterion: Criterion, effect: Effect) -> Verdict {
        verdicts(&[(criterion, effect)])[0]
    }

    #[test]
    fn which_direction_is_better_depends_on_the_measure() {
        let more = ratio(1.02, 0.001, 5);
        assert_eq!(verdict(criterion(Better::Higher), more), Verdict::Better);
        assert_eq!(verdict(criterion(Better::Lower), more), Verdict::Worse);
        let less = ratio(0.98, 0.001, 5);
        assert_eq!(verdict(criterion(Better::Higher), less), Verdict::Worse);
        assert_eq!(verdict(criterion(Better::Lower), less), Verdict::Better);
    }

    /// Regression: verdicts were issued from the rounds of a single restart.
    #[test]
    fn fewer_than_three_restarts_are_inconclusive() {
        for count in 1..=4 {
            let found = verdict(criterion(Better::Higher), ratio(3.0, 1e-9, count));
            let few = Verdict::Inconclusive(Inconclusive::TooFewRestarts);
            assert_eq!(found, if count < 3 { few } else { Verdict::Better }, "{count}");
        }
    }

    #[test]
    fn a_reason_to_withhold_verdicts_withholds_each() {
        let withheld = Some(Inconclusive::ControlDiffers);
        let criterion = Criterion { withheld, ..criterion(Better::Higher) };
        for value in [1.0, 3.0] {
            let found = verdict(criterion, ratio(value, 1e-9, 5));
            assert_eq!(found, Verdict::Inconclusive(Inconclusive::ControlDiffers));
        }
    }

    #[test]
    fn a_p_value_of_alpha_counts_and_a_ratio_of_one_does_not() {
        let of = |value: f64, p| criterion(Better::Higher).verdict(&ratio(value, p, 5), p);
        assert_eq!(of(2.0, 0.05), Verdict::Better);
        assert_eq!(of(0.5, 0.05), Verdict::Worse);
        assert_eq!(of(2.0, 0.050_001), Verdict::NoDifference);
        assert_eq!(of(1.0, 0.0), Verdict::NoDifference);
        assert_eq!(of(f64::NAN, 0.0), Verdict::NoDifference);
        assert_eq!(of(2.0, f64::NAN), Verdict::NoDifference);
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
        assert!(!Verdict::Inconclusive(Inconclusive::TooFewNodes).differs());
    }

    proptest! {
        #[test]
        fn a_larger_p_or_fewer_restarts_never_make_a_verdict_easier(
            log_ratio in -0.2..0.2, p in 0.0..0.1, more in 0.0..0.1, restarts in 1..6u32,
        ) {
            let differs = |p, restarts| {
                let effect = ratio(f64::exp(log_ratio), p, restarts);
                criterion(Better::Lower).verdict(&effect, p).differs()
            };
            if !differs(p, restarts) {
                prop_assert!(!differs(p + more, restarts));
                prop_assert!(!differs(p, restarts - 1));
            }
        }
    }
}
