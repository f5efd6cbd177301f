//! Student's t: how far a mean of few values may stray.
//!
//! Its own room because a table of quantiles would stop at some degree of freedom and some level,
//! and a statistics library would bring thirty packages for one function.

/// ln Γ(x) for x > 0: Stirling's series after shifting x above 10 (DLMF 5.11.1, 5.5.1); absolute
/// error below 1e-13 there.
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

/// The regularised incomplete beta function I_x(a, b), by the continued fraction DLMF 8.17.22 in
/// Lentz's evaluation; a, b > 0.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast below the mean; above it the mirrored one does (DLMF 8.17.4).
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    let guard = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let (mut c, mut d) = (1.0, 1.0 / guard(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for i in 1..500 {
        let m = f64::from(i);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut step = 1.0;
        for term in [even, odd] {
            d = 1.0 / guard(1.0 + term * d);
            c = guard(1.0 + term / c);
            step = c * d;
            fraction *= step;
        }
        if (step - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * fraction / a
}

/// The probability that |T| exceeds `t` at `df` degrees of freedom (> 0, whole or not): the
/// two-sided p-value of `t` (DLMF 8.17, Abramowitz & Stegun 26.7.1).
#[must_use]
pub fn two_sided_p(t: f64, df: f64) -> f64 {
    if t.is_nan() || df.is_nan() || df <= 0.0 {
        return 1.0;
    }
    if t.is_infinite() {
        return 0.0;
    }
    incomplete_beta(df / (df + t * t), df / 2.0, 0.5)
}

/// The t that |T| exceeds with probability `alpha` (0 < alpha < 1): 12.71 at one degree of freedom
/// and 5 %, 4.30 at two, 2.78 at four, 1.96 at very many. Infinite where `df` is not positive.
#[must_use]
pub fn quantile(alpha: f64, df: f64) -> f64 {
    if df.is_nan() || df <= 0.0 || alpha.is_nan() || alpha <= 0.0 {
        return f64::INFINITY;
    }
    // Newton from the middle outwards: the p-value falls ever more slowly with t, so each step ends
    // short of the goal and the next one comes closer.
    let ln_front =
        ln_gamma(df.midpoint(1.0)) - ln_gamma(df / 2.0) - 0.5 * (df * std::f64::consts::PI).ln();
    let density = |t: f64| (ln_front - df.midpoint(1.0) * (t * t / df).ln_1p()).exp();
    let mut t = 0.0;
    for _ in 0..2_000 {
        let step = (two_sided_p(t, df) - alpha) / (2.0 * density(t));
        t += step;
        if step.is_nan() || step <= 1e-13 * t {
            break;
        }
    }
    t
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
    fn quantile_and_p_are_each_others_inverse() {
        for df in [1.0, 1.5, 2.0, 4.0, 30.0, 1e4] {
            for alpha in [0.5, 0.05, 0.01, 1e-6] {
                let back = two_sided_p(quantile(alpha, df), df);
                assert!((back / alpha - 1.0).abs() < 1e-9, "df {df}, alpha {alpha}: {back}");
            }
        }
    }

    #[test]
    fn without_degrees_of_freedom_nothing_is_known() {
        assert_eq!(quantile(0.05, 0.0), f64::INFINITY);
        assert_eq!(two_sided_p(3.0, 0.0), 1.0);
    }
}
