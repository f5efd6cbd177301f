//! Location and scale that a few outliers do not affect.

/// The median; for an even count the mean of the middle two. `None` without values.
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
pub fn mad(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|v| (v - centre).abs()).collect();
    Some(MAD_TO_SD * median(&deviations)?)
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
}
