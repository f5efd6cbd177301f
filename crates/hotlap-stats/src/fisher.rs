//! Fisher's F distribution: quantiles at any degrees of freedom, for intervals of variances.

use crate::student::incomplete_beta;

/// Degrees of freedom of the denominator that stand for infinitely many: χ² divided by its degrees
/// of freedom is F with a denominator that is known exactly. The error is about 1 in 10⁵.
pub(crate) const MANY: f64 = 1e5;

/// The value that F exceeds with probability `alpha` (0 < alpha < 1), at `d1` and `d2` degrees of
/// freedom, both positive: the root of P(F > x) = I(d2 ÷ (d2 + d1 x); d2 ÷ 2, d1 ÷ 2) (Abramowitz
/// and Stegun 26.6.2), by bisection of its logarithm.
pub(crate) fn quantile(alpha: f64, d1: f64, d2: f64) -> f64 {
    let exceeds = |x: f64| incomplete_beta(d2 / (d2 + d1 * x), d2 / 2.0, d1 / 2.0);
    let (mut low, mut high) = (-40.0_f64, 40.0_f64);
    // 80 ÷ 2⁵⁰ is less than the precision of the distribution function.
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if exceeds(middle.exp()) > alpha {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::student;

    /// F with one degree of freedom above is the square of Student's t.
    #[test]
    fn with_one_degree_of_freedom_it_is_the_square_of_t() {
        for df in [1.0, 3.0, 10.0] {
            for alpha in [0.5, 0.05, 0.01] {
                let t = student::quantile(alpha, df);
                let ratio = quantile(alpha, 1.0, df) / (t * t);
                assert!((ratio - 1.0).abs() < 1e-8, "df {df}, alpha {alpha}: {ratio}");
            }
        }
    }

    /// Swapping numerator and denominator inverts F.
    #[test]
    fn the_lower_quantile_is_the_inverse_of_the_upper_one() {
        let product = quantile(0.975, 4.0, 9.0) * quantile(0.025, 9.0, 4.0);
        assert!((product - 1.0).abs() < 1e-8, "{product}");
    }

    /// χ² with two degrees of freedom is exponential: P(χ² > x) = exp(-x / 2).
    #[test]
    fn with_many_degrees_of_freedom_below_it_is_chi_squared() {
        for alpha in [0.975, 0.5, 0.025] {
            let ratio = 2.0 * quantile(alpha, 2.0, MANY) / (-2.0 * f64::ln(alpha));
            assert!((ratio - 1.0).abs() < 1e-4, "{alpha}: {ratio}");
        }
    }
}
