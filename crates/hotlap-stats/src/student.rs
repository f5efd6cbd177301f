//! Student's t distribution, with p-values and quantiles at any degrees of freedom, and quantiles
//! of F.
//!
//! This crate has its own functions because a table of quantiles is limited in degrees of freedom
//! and levels. A statistics library would add thirty packages for a few functions. The tests
//! compare p-values and quantiles of t with SciPy. Formulas are from the NIST Digital Library of
//! Mathematical Functions (DLMF) and from Abramowitz and Stegun, "Handbook of Mathematical
//! Functions", 1964.

/// Returns ln Γ(x) for x > 0, by Stirling's series after shifting x to 10 or above (DLMF 5.11.1,
/// 5.5.1). From 10 on, the absolute error of the series is below its next term, 1 / (1188 x⁹), and
/// so below 1e-12.
fn ln_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 10.0 {
        shift += x.ln();
        x += 1.0;
    }
    let (r, r2) = (1.0 / x, 1.0 / (x * x));
    let series = r * (1.0 / 12.0 - r2 * (1.0 / 360.0 - r2 * (1.0 / 1260.0 - r2 / 1680.0)));
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - shift
}

/// Returns a denominator of a continued fraction, or 1e-300 if the denominator is closer to 0.
fn nonzero(v: f64) -> f64 {
    if v.abs() < 1e-300 { 1e-300 } else { v }
}

/// Returns whether a factor is so close to 1 that the product hardly changes.
fn has_converged(factor: f64) -> bool {
    (factor - 1.0).abs() < 4.0 * f64::EPSILON
}

/// Returns whether the continued fraction of I_x(a, b) converges slowly. Convergence is slow for x
/// above about the mean of the beta distribution (DLMF 8.17.22).
fn converges_slowly(x: f64, a: f64, b: f64) -> bool {
    x > (a + 1.0) / (a + b + 2.0)
}

/// Returns the regularised incomplete beta function I_x(a, b) for a, b > 0. The continued fraction
/// DLMF 8.17.22 is evaluated by Lentz's method ("Generating Bessel functions in Mie scattering
/// calculations using continued fractions", Applied Optics 15, 1976).
pub(crate) fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // If this fraction converges slowly, the mirrored fraction converges fast (DLMF 8.17.4).
    if converges_slowly(x, a, b) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    let (mut c, mut d) = (1.0, 1.0 / nonzero(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for i in 1..500 {
        let m = f64::from(i);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut step = 1.0;
        for term in [even, odd] {
            d = 1.0 / nonzero(1.0 + term * d);
            c = nonzero(1.0 + term / c);
            step = c * d;
            fraction *= step;
        }
        if has_converged(step) {
            break;
        }
    }
    front * fraction / a
}

/// Returns the two-sided p-value of `t`, the probability that |T| exceeds |`t`| at `df` degrees of
/// freedom (Abramowitz and Stegun, section 26.7). `df` need not be whole. The result is 1 if `df`
/// is not positive, or for NaN.
pub fn two_sided_p(t: f64, df: f64) -> f64 {
    if t.is_nan() || df.is_nan() || df <= 0.0 {
        return 1.0;
    }
    if t.is_infinite() {
        return 0.0;
    }
    incomplete_beta(df / (df + t * t), df / 2.0, 0.5)
}

/// Returns the t that |T| exceeds with probability `alpha` (0 < alpha < 1). At 5%, t is 12.71 with
/// one degree of freedom, 4.30 with two, 2.78 with four, and 1.96 in the limit. The result is
/// infinite if `df` or `alpha` is not positive, or for NaN.
pub fn quantile(alpha: f64, df: f64) -> f64 {
    if df.is_nan() || df <= 0.0 || alpha.is_nan() || alpha <= 0.0 {
        return f64::INFINITY;
    }
    // Newton's method starts at 0. The p-value falls ever more slowly with t, so each step ends
    // below the root, and t only grows.
    let mut t = 0.0;
    for _ in 0..2_000 {
        let step = (two_sided_p(t, df) - alpha) / (2.0 * density(t, df));
        t += step;
        if is_negligible(step, t) {
            break;
        }
    }
    t
}

/// Returns whether a step to `t` changes none of the first twelve digits of `t`.
fn is_negligible(step: f64, t: f64) -> bool {
    step <= 1e-13 * t
}

/// Returns the probability density of Student's t at `df` degrees of freedom (Abramowitz and
/// Stegun, section 26.7).
fn density(t: f64, df: f64) -> f64 {
    let half = df.midpoint(1.0);
    let ln_front = ln_gamma(half) - ln_gamma(df / 2.0) - 0.5 * (df * std::f64::consts::PI).ln();
    (ln_front - half * (t * t / df).ln_1p()).exp()
}

/// The number of degrees of freedom that stands for infinitely many, with an error of about 1 in
/// 10⁵. With this number in the denominator, F becomes χ² divided by its degrees of freedom.
pub(crate) const MANY: f64 = 1e5;

/// Returns the value that F exceeds with probability `alpha` (0 < alpha < 1), at `d1` and `d2`
/// degrees of freedom, both positive. Bisection of ln x solves P(F > x) = I(d2 ÷ (d2 + d1 x); d2 ÷
/// 2, d1 ÷ 2) = `alpha` (Abramowitz and Stegun, section 26.6).
pub(crate) fn fisher_quantile(alpha: f64, d1: f64, d2: f64) -> f64 {
    let exceeds = |x: f64| incomplete_beta(d2 / (d2 + d1 * x), d2 / 2.0, d1 / 2.0);
    let (mut low, mut high) = (-40.0_f64, 40.0_f64);
    // After 50 steps, the interval of 80 ÷ 2⁵⁰ is smaller than the precision of the distribution
    // function.
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

    #[test]
    fn one_degree_of_freedom_is_the_cauchy_distribution() {
        for t in [0.1, 1.0, 12.7, 1e6] {
            let cauchy = 1.0 - 2.0 * f64::atan(t) / std::f64::consts::PI;
            assert!((two_sided_p(t, 1.0) - cauchy).abs() < 1e-12, "{t}");
        }
    }

    #[test]
    fn quantile_and_p_value_are_inverse() {
        for df in [1.0, 1.5, 2.0, 4.0, 30.0, 1e4] {
            for alpha in [0.5, 0.05, 0.01, 1e-6] {
                let back = two_sided_p(quantile(alpha, df), df);
                assert!((back / alpha - 1.0).abs() < 1e-9, "df {df}, alpha {alpha}: {back}");
            }
        }
    }

    #[test]
    fn without_degrees_of_freedom_the_quantile_is_infinite_and_p_is_1() {
        for df in [0.0, -1.0, f64::NAN] {
            assert_eq!(quantile(0.05, df), f64::INFINITY, "{df}");
            assert_eq!(two_sided_p(3.0, df), 1.0, "{df}");
        }
        for alpha in [0.0, -0.05, f64::NAN] {
            assert_eq!(quantile(alpha, 3.0), f64::INFINITY, "{alpha}");
        }
        assert_eq!(two_sided_p(f64::NAN, 3.0), 1.0);
    }

    #[test]
    fn p_is_1_at_0_and_0_at_infinity() {
        for df in [0.5, 1.0, 7.0] {
            assert_eq!(two_sided_p(0.0, df), 1.0);
            assert_eq!(two_sided_p(1e200, df), 0.0, "t² is infinite");
            assert_eq!(two_sided_p(f64::NEG_INFINITY, df), 0.0);
            assert_eq!(two_sided_p(-2.0, df), two_sided_p(2.0, df));
        }
    }

    #[test]
    fn the_gamma_function_of_whole_and_half_numbers() {
        // Γ(n) is (n - 1)!, and Γ(1/2) is √π.
        for (x, gamma) in
            [(1.0, 1.0), (2.0, 1.0), (5.0, 24.0), (10.0, 362_880.0), (13.0, 479_001_600.0)]
        {
            assert!((ln_gamma(x) - f64::ln(gamma)).abs() < 1e-12, "{x}: {}", ln_gamma(x));
        }
        assert!((ln_gamma(0.5) - std::f64::consts::PI.ln() / 2.0).abs() < 1e-12);
    }

    /// At one and two degrees of freedom, the density is 1 / (π (1 + t²)) and (2 + t²)^(-3/2).
    #[test]
    fn the_density_of_t_in_closed_form() {
        for t in [0.0, 0.5, 3.0, 40.0] {
            let [one, two] =
                [1.0 / (std::f64::consts::PI * (1.0 + t * t)), f64::powf(2.0 + t * t, -1.5)];
            assert!((density(t, 1.0) / one - 1.0).abs() < 1e-12, "{t}");
            assert!((density(t, 2.0) / two - 1.0).abs() < 1e-12, "{t}");
        }
    }

    #[test]
    fn the_incomplete_beta_function_in_closed_form() {
        // I_x(1, b) is 1 - (1 - x)^b, and I_x(a, 1) is x^a (DLMF 8.17.5).
        for x in [1e-3, 0.2, 0.5, 0.8, 0.999] {
            for n in [0.5_f64, 1.0, 2.5, 40.0] {
                let first = 1.0 - f64::powf(1.0 - x, n);
                assert!((incomplete_beta(x, 1.0, n) - first).abs() < 1e-12, "{x}, 1, {n}");
                assert!((incomplete_beta(x, n, 1.0) - x.powf(n)).abs() < 1e-12, "{x}, {n}, 1");
            }
        }
        assert_eq!((incomplete_beta(0.0, 2.0, 3.0), incomplete_beta(1.0, 2.0, 3.0)), (0.0, 1.0));
    }

    /// The number of iterations affects only the time taken, so the conditions are tested directly.
    #[test]
    fn iterations_end_when_nothing_changes_any_more() {
        let [three, four] = [3.0, 4.0].map(|n| n * f64::EPSILON);
        assert!(has_converged(1.0 + three) && has_converged(1.0 - three));
        assert!(!has_converged(1.0 + four) && !has_converged(1.0 - four));
        assert!(is_negligible(1e-13, 1.0) && !is_negligible(1.1e-13, 1.0));
        assert!(is_negligible(1e-11, 100.0) && !is_negligible(2e-13, 0.5));
        assert!(is_negligible(-1.0, 2.0));
        // The limit is (2 + 1) / (2 + 1 + 2) = 0.6.
        assert!(!converges_slowly(0.6, 2.0, 1.0) && converges_slowly(0.601, 2.0, 1.0));
        assert_eq!([0.0, -1e-301].map(nonzero), [1e-300; 2]);
        assert_eq!([2.0, -2.0, -1e-300].map(nonzero), [2.0, -2.0, -1e-300]);
    }

    mod fisher {
        use super::super::*;

        /// F with one degree of freedom in the numerator is the square of Student's t.
        #[test]
        fn with_one_degree_of_freedom_it_is_the_square_of_t() {
            for df in [1.0, 3.0, 10.0] {
                for alpha in [0.5, 0.05, 0.01] {
                    let t = quantile(alpha, df);
                    let ratio = fisher_quantile(alpha, 1.0, df) / (t * t);
                    assert!((ratio - 1.0).abs() < 1e-8, "df {df}, alpha {alpha}: {ratio}");
                }
            }
        }

        /// Swapping numerator and denominator inverts F.
        #[test]
        fn the_lower_quantile_is_the_inverse_of_the_upper_one() {
            let product = fisher_quantile(0.975, 4.0, 9.0) * fisher_quantile(0.025, 9.0, 4.0);
            assert!((product - 1.0).abs() < 1e-8, "{product}");
        }

        /// χ² with two degrees of freedom is exponential: P(χ² > x) = exp(-x / 2).
        #[test]
        fn with_many_degrees_of_freedom_below_it_is_chi_squared() {
            for alpha in [0.975, 0.5, 0.025] {
                let ratio = 2.0 * fisher_quantile(alpha, 2.0, MANY) / (-2.0 * f64::ln(alpha));
                assert!((ratio - 1.0).abs() < 1e-4, "{alpha}: {ratio}");
            }
        }
    }
}
