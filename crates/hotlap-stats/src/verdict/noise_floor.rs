//! The noise floor: the difference between two copies of one program.

use super::inconclusive::{Inconclusive, MAX_CONTROL_DIFFERENCE, MIN_RESTARTS};
use crate::compare::Effect;

/// The noise floor: the difference between two copies of one program in this run. The A/A control
/// is the second copy of the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NoiseFloor {
    /// The run has no control; the p-value decides alone.
    NoControl,
    /// A difference must exceed this, in log units; at least 0.
    Known(f64),
    /// There is a control, but no verdict can rest on it.
    Unusable(Inconclusive),
}

impl NoiseFloor {
    /// The noise floor from the control against the reference; `None` if the two have no round in
    /// common.
    ///
    /// It is the far end of the control's interval. So a control that differs by chance, as one in
    /// twenty does, raises the floor by its difference. If even the near end is further than
    /// [`MAX_CONTROL_DIFFERENCE`] from 1, it is not chance: something separates the two copies that
    /// may separate other servers too, and the floor cannot tell by how much.
    #[must_use]
    pub fn of(control: Option<&Effect>) -> Self {
        let usable = control.filter(|c| c.restarts >= MIN_RESTARTS && c.ratio.is_bounded());
        let Some(control) = usable else { return Self::Unusable(Inconclusive::NoiseUnknown) };
        let near = control.ratio.low.ln().max(-control.ratio.high.ln());
        match near > MAX_CONTROL_DIFFERENCE.ln_1p() {
            true => Self::Unusable(Inconclusive::ControlDiffers),
            false => Self::Known(control.far_end()),
        }
    }

    /// The higher of two floors: of two compared runs, or of two sources of noise.
    #[must_use]
    pub fn or_higher(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unusable(why), _) | (_, Self::Unusable(why)) => Self::Unusable(why),
            (Self::Known(a), Self::Known(b)) => Self::Known(a.max(b)),
            (known, Self::NoControl) | (Self::NoControl, known) => known,
        }
    }

    /// The floor for a comparison with reference and control together: √(1½ ÷ 2) of that between
    /// two single servers, for the reason given at [`crate::pooled`].
    #[must_use]
    pub fn against_pooled(self) -> Self {
        match self {
            Self::Known(noise) => Self::Known(noise * 0.75_f64.sqrt()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Spread;
    use crate::estimate::Estimate;

    /// A control from this many restarts, with this interval.
    fn control(restarts: u32, low: f64, high: f64) -> Effect {
        let ratio = Estimate { value: low.midpoint(high), low, high };
        let spread = Spread { sd_restart: 0.0, sd_round: 0.0 };
        Effect { ratio, p: 0.5, spread, restarts, rounds: 2 * restarts }
    }

    fn floor(low: f64, high: f64) -> NoiseFloor {
        NoiseFloor::of(Some(&control(3, low, high)))
    }

    const DIFFERS: NoiseFloor = NoiseFloor::Unusable(Inconclusive::ControlDiffers);

    /// Regression: an unknown noise floor counted as 0, so that knowing less made a verdict easier.
    #[test]
    fn without_an_interval_from_three_restarts_the_noise_is_unknown() {
        let unbounded = control(3, f64::NEG_INFINITY, f64::INFINITY);
        for control in [None, Some(unbounded), Some(control(2, 0.99, 1.01))] {
            let unknown = NoiseFloor::Unusable(Inconclusive::NoiseUnknown);
            assert_eq!(NoiseFloor::of(control.as_ref()), unknown, "{control:?}");
        }
    }

    #[test]
    fn a_control_that_differs_by_chance_raises_the_floor_and_by_far_makes_it_unusable() {
        assert_eq!(floor(1.01, 1.04), NoiseFloor::Known(1.04_f64.ln()));
        assert_eq!(floor(1.06, 1.09), DIFFERS);
        assert_eq!(floor(0.91, 0.94), DIFFERS);
    }

    #[test]
    fn a_control_that_differs_by_five_percent_is_still_chance() {
        assert_eq!(floor(1.049, 1.09), NoiseFloor::Known(1.09_f64.ln()));
        assert_eq!(floor(1.051, 1.09), DIFFERS);
        // 1 / 1.05 = 0.9524.
        assert_eq!(floor(0.91, 0.953), NoiseFloor::Known(-0.91_f64.ln()));
        assert_eq!(floor(0.91, 0.952), DIFFERS);
    }

    #[test]
    fn of_two_floors_the_higher_counts_and_an_unusable_one_most() {
        let (low, high) = (NoiseFloor::Known(0.01), NoiseFloor::Known(0.02));
        assert_eq!(low.or_higher(high), high);
        assert_eq!(NoiseFloor::NoControl.or_higher(low), low);
        assert_eq!(low.or_higher(NoiseFloor::NoControl), low);
        assert_eq!(NoiseFloor::NoControl.or_higher(NoiseFloor::NoControl), NoiseFloor::NoControl);
        assert_eq!(high.or_higher(DIFFERS), DIFFERS);
        assert_eq!(DIFFERS.or_higher(NoiseFloor::NoControl), DIFFERS);
    }

    #[test]
    fn only_a_known_floor_is_lower_against_pooled_readings() {
        let NoiseFloor::Known(found) = NoiseFloor::Known(2.0).against_pooled() else { panic!() };
        assert!((found - 3.0_f64.sqrt()).abs() < 1e-12, "{found}");
        assert_eq!(DIFFERS.against_pooled(), DIFFERS);
        assert_eq!(NoiseFloor::NoControl.against_pooled(), NoiseFloor::NoControl);
    }
}
