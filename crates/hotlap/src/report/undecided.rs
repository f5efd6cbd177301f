//! What is known of two servers that no verdict tells apart.

use hotlap_stats::Estimate;

/// Two servers are equal if the interval of their ratio lies within this share of 1. A convention.
/// This is an equivalence test at half its usual error rate (Schuirmann, "A comparison of the two
/// one-sided tests procedure and the power approach", Journal of Pharmacokinetics and
/// Biopharmaceutics 15, 1987).
const EQUAL: f64 = 0.05;

/// An interval whose ends differ by this factor or more says nothing that a reader could use.
const USELESS: f64 = 2.0;

/// The start of the words for servers that are equal.
pub(super) const EQUAL_WITHIN: &str = "equal within";

/// `equal within ±2%`, `not decided`, or `not measured well enough`, given the ratio.
pub(super) fn words(ratio: &Estimate) -> String {
    // Without what binary fractions add to 0.05.
    let far = (ratio.high - 1.0).max(1.0 - ratio.low) - 1e-9;
    match ratio.is_bounded() {
        false => "not measured well enough".to_owned(),
        _ if far <= EQUAL => {
            // Rounded up, so that the interval lies within.
            let percent = (100.0 * far).max(0.0);
            let tenths = (percent * 10.0).ceil().max(1.0);
            let shown = if percent < 1.0 { tenths / 10.0 } else { percent.ceil() };
            format!("{EQUAL_WITHIN} ±{shown}%")
        }
        _ if ratio.high >= USELESS * ratio.low => "not measured well enough".to_owned(),
        _ => "not decided".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: [0.68, 1.23] and [0.83, 1.44] were "no difference that could be measured", which
    /// was called a result.
    #[test]
    fn equal_is_what_lies_within_five_percent() {
        let said = |low, high| words(&Estimate { value: 1.0, low, high });
        assert_eq!(said(0.98, 1.013), "equal within ±2%");
        assert_eq!(said(0.9996, 1.0031), "equal within ±0.4%");
        assert_eq!(said(1.0, 1.0), "equal within ±0.1%");
        assert_eq!(said(0.95, 1.05), "equal within ±5%");
        assert_eq!(said(0.949, 1.0), "not decided");
        assert_eq!(said(0.68, 1.23), "not decided");
        assert_eq!(said(0.7, 1.41), "not measured well enough");
        assert_eq!(said(0.0, f64::INFINITY), "not measured well enough");
    }
}
