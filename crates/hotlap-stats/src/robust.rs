//! Location and scale that a few outliers do not affect.

/// The median; for an even count the mean of the middle two. `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(sorted[n / 2]),
        _ => Some(f64::midpoint(sorted[n / 2 - 1], sorted[n / 2])),
    }
}

/// The standard deviation of normal values as a multiple of their median absolute deviation:
/// 1 / Φ⁻¹(3/4).
pub(crate) const MAD_TO_SD: f64 = 1.482_602_218_505_602;

/// The median absolute deviation from the median, times 1.4826. For normal values this estimates
/// the standard deviation, and up to half of the values may be outliers (Hampel, "The influence
/// curve and its role in robust estimation", JASA 69, 1974). `None` without values.
#[must_use]
pub fn mad(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|v| (v - centre).abs()).collect();
    Some(MAD_TO_SD * median(&deviations)?)
}

/// The tuning constant of Tukey's biweight, in standard deviations: values further than this from
/// the centre have no weight. With 4.685 the biweight is 95 % efficient for normal values
/// (Mosteller and Tukey, "Data Analysis and Regression", 1977, chapter 10).
const BIWEIGHT_CUTOFF: f64 = 4.685;

/// Distance from the centre in units of the cutoff, squared: `u²` of the biweight's formulas.
pub(crate) fn biweight_u2(value: f64, centre: f64, scale: f64) -> f64 {
    ((value - centre) / scale / BIWEIGHT_CUTOFF).powi(2)
}

/// Tukey's biweight location: the weighted mean with weights (1 − u²)², where u² is
/// [`biweight_u2`], found by iteration from `start`. `scale` is the standard deviation of the
/// values without outliers; if it is 0, the result is `start`.
pub(crate) fn biweight(values: &[f64], start: f64, scale: f64) -> f64 {
    let mut centre = start;
    if scale <= 0.0 {
        return centre;
    }
    for _ in 0..20 {
        let (mut sum, mut weights) = (0.0, 0.0);
        for v in values {
            let weight = (1.0 - biweight_u2(*v, centre, scale)).max(0.0).powi(2);
            // Averaging distances instead of values keeps equal values exactly equal.
            sum += weight * (v - centre);
            weights += weight;
        }
        let step = sum / weights;
        if weights <= 0.0 || is_negligible(step, scale) {
            break;
        }
        centre += step;
    }
    centre
}

/// Whether a step of the iteration is too small to matter.
fn is_negligible(step: f64, scale: f64) -> bool {
    step.abs() <= 1e-12 * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[7.0, 1.0, 9.0, 3.0]), Some(5.0));
    }

    #[test]
    fn mad_ignores_an_outlier() {
        assert_eq!(mad(&[1.0, 2.0, 3.0, 4.0, 1e9]), Some(1.482_602_218_505_602));
        assert_eq!(mad(&[]), None);
    }

    #[test]
    fn the_iteration_ends_at_a_trillionth_of_the_scale() {
        assert!(is_negligible(1e-12, 1.0) && is_negligible(-2e-12, 2.0));
        assert!(!is_negligible(1.1e-12, 1.0) && !is_negligible(1e-12, 0.5));
    }
}
