//! Holm's correction for multiple comparisons.

/// The p-values corrected for their number, so that each may be compared with the same alpha (Holm,
/// "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 1979). The
/// smallest is multiplied by their number, the next by one less, and so on; each is at least the
/// one before and at most 1. NaN counts as 1.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let p: Vec<f64> = p.iter().map(|&p| if p.is_nan() { 1.0 } else { p }).collect();
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut corrected = vec![1.0; p.len()];
    let mut floor = 0.0_f64;
    for (smaller, &i) in order.iter().enumerate() {
        floor = floor.max(p[i] * (p.len() - smaller) as f64).min(1.0);
        corrected[i] = floor;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_is_multiplied_by_their_number() {
        assert_eq!(holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
        assert_eq!(holm(&[0.4, f64::NAN, 0.9]), [1.0, 1.0, 1.0]);
        assert_eq!(holm(&[]), [0.0; 0]);
    }
}
