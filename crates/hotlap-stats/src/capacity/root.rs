//! The root of a decreasing function.

/// Roots are known to this precision: logarithms of rates, for intervals of some per cent.
const PRECISION: f64 = 1e-5;

/// The point at which a decreasing function crosses 0, within a range; the nearer end if it does
/// not. The Illinois method (Dowell and Jarratt, BIT 11, 1971): a secant that keeps both sides, in
/// which an end that stays counts half.
pub(super) fn root(mut low: f64, mut high: f64, function: impl Fn(f64) -> f64) -> f64 {
    let (mut at_low, mut at_high) = (function(low), function(high));
    if at_low <= 0.0 {
        return low;
    }
    if at_high >= 0.0 {
        return high;
    }
    let mut was_high = None;
    for _ in 0..100 {
        if high - low <= PRECISION {
            break;
        }
        let secant = (low * at_high - high * at_low) / (at_high - at_low);
        // Not closer to an end than a rounding error, so that each step is a step.
        let at = secant.clamp(low + PRECISION / 10.0, high - PRECISION / 10.0);
        let value = function(at);
        let is_high = value <= 0.0;
        let other = if is_high {
            (high, at_high) = (at, value);
            &mut at_low
        } else {
            (low, at_low) = (at, value);
            &mut at_high
        };
        if was_high == Some(is_high) {
            *other /= 2.0;
        }
        was_high = Some(is_high);
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The root between 0 and 10, and how often the function is computed.
    fn found(function: impl Fn(f64) -> f64) -> (f64, u32) {
        let count = Cell::new(0);
        let counted = |x: f64| {
            count.set(count.get() + 1);
            function(x)
        };
        (root(0.0, 10.0, counted), count.get())
    }

    /// Twice at the ends, once at the root, and once to see that it is one.
    #[test]
    fn the_root_of_a_line_is_found_at_once() {
        assert_eq!(found(|x| 4.0 - x), (4.0 - PRECISION / 20.0, 4));
        // At 4 it is still above 0.
        let late = |x: f64| if x > 4.0 { 4.0 - x } else { 4.0 - x + f64::MIN_POSITIVE };
        let (at, count) = found(late);
        assert!((at - 4.0 - PRECISION / 20.0).abs() < 1e-9 && count == 4, "{at}, {count}");
    }

    /// A secant that moves only one end takes thousands of steps.
    #[test]
    fn the_root_of_an_exponential_takes_few_steps_from_either_side() {
        let (from_below, few) = found(|x| (50.0 - x.exp()) / 1e5);
        assert!((from_below - 50.0_f64.ln()).abs() < PRECISION && few < 25, "{few}");
        let (from_above, few) = found(|x| ((10.0 - x).exp() - 50.0) / 1e5);
        assert!((from_above - (10.0 - 50.0_f64.ln())).abs() < PRECISION && few < 25, "{few}");
    }

    #[test]
    fn a_function_that_does_not_cross_zero_has_its_root_at_the_nearer_end() {
        assert_eq!(found(|x| -1.0 - x).0, 0.0);
        assert_eq!(found(|x| 11.0 - x).0, 10.0);
        assert_eq!((found(|x| -x).0, found(|x| 10.0 - x).0), (0.0, 10.0));
    }
}
