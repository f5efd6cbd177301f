//! Where did a stored figure change? Change points of a history, looking back.
//!
//! Apart from the steady state, which has to decide while the windows come in.

use crate::estimate::{NORMAL_PER_MEDIAN, median};

/// No stretch is shorter: two runs that are off are not a new level.
const SHORTEST: usize = 3;

/// What a further change must save, in standard deviations of the noise, for a history of `n`:
/// grows as the number of places where chance may find one, and is as large as keeps alarms under 5
/// of 100 in made-up histories of 6 to 100 normal values without a change.
fn price(n: usize) -> f64 {
    3.0 + 2.0 * (n as f64).ln()
}

/// The places at which a new level begins, in order: `[12]` says that values 0 to 11 lie around one
/// level and 12 and later around another. Empty for fewer than 6 values.
///
/// The history is cut so that the sum of the distances to the median of each stretch, plus a
/// penalty for each cut, is least: optimal partitioning (Jackson et al., IEEE Signal Processing
/// Letters 12, 2005), with distances and medians in place of squares and means, so that a single
/// wild run makes no change of its own. The noise is taken from the differences of neighbours,
/// which a change of level touches in one place only. Values that are not finite break no stretch:
/// they count as lying on the level before them.
#[must_use]
pub fn changes(values: &[f64]) -> Vec<usize> {
    let values = filled(values);
    let n = values.len();
    let steps: Vec<f64> = values.windows(2).map(|w| (w[1] - w[0]).abs()).collect();
    let noise = NORMAL_PER_MEDIAN * median(&steps).unwrap_or(0.0) / std::f64::consts::SQRT_2;
    // Without noise any step counts; a rounding of the values must not.
    let least = 1e-9 * values.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
    let penalty = price(n) * noise.max(least);

    // best[end]: the least cost of the values before `end`, and where their last stretch begins.
    let mut best = vec![(0.0, 0); n + 1];
    for end in SHORTEST..=n {
        best[end] = (0..=end - SHORTEST)
            .filter(|&start| start == 0 || start >= SHORTEST)
            .map(|start| {
                let cut = if start == 0 { 0.0 } else { penalty };
                (best[start].0 + cut + distance(&values[start..end]), start)
            })
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap_or((f64::INFINITY, 0));
    }
    let mut places = Vec::new();
    let mut end = n;
    while best[end].1 > 0 {
        end = best[end].1;
        places.push(end);
    }
    places.reverse();
    places
}

/// The sum of distances to the median.
fn distance(values: &[f64]) -> f64 {
    let centre = median(values).unwrap_or(0.0);
    values.iter().map(|v| (v - centre).abs()).sum()
}

/// With what is not finite replaced by the value before it, or the first that is.
fn filled(values: &[f64]) -> Vec<f64> {
    let mut last = values.iter().copied().find(|v| v.is_finite()).unwrap_or(0.0);
    values
        .iter()
        .map(|&v| {
            last = if v.is_finite() { v } else { last };
            last
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// About normal: twelve uniform values.
    fn noise(random: &mut Pcg64Mcg) -> f64 {
        (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
    }

    #[test]
    fn a_history_without_a_change_shows_none() {
        let mut random = Pcg64Mcg::seed_from_u64(5);
        for n in [10, 20, 50] {
            let alarms = (0..100)
                .filter(|_| {
                    let history: Vec<f64> = (0..n).map(|_| 100.0 + noise(&mut random)).collect();
                    !changes(&history).is_empty()
                })
                .count();
            assert!(alarms <= 7, "{alarms} of 100 histories of {n}");
        }
    }

    #[test]
    fn a_step_of_three_deviations_is_found_where_it_is() {
        let mut random = Pcg64Mcg::seed_from_u64(6);
        let mut exact = 0;
        for _ in 0..50 {
            let level = |i| if i < 15 { 100.0 } else { 103.0 };
            let history: Vec<f64> = (0..30).map(|i| level(i) + noise(&mut random)).collect();
            let found = changes(&history);
            assert!(found.iter().any(|at| at.abs_diff(15) <= 3), "{found:?}");
            exact += usize::from(found == [15]);
        }
        assert!(exact >= 25, "{exact} of 50");
    }

    #[test]
    fn one_wild_run_is_no_change() {
        let mut history: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i * 7 % 5) / 4.0).collect();
        history[9] = 300.0;
        history[14] = f64::NAN;
        assert_eq!(changes(&history), [0; 0]);
    }

    #[test]
    fn a_step_without_noise_is_found() {
        let history = [[5.0; 4], [6.0; 4], [5.0; 4]].concat();
        assert_eq!(changes(&history), [4, 8]);
        assert_eq!(changes(&[5.0; 30]), [0; 0]);
        assert_eq!(changes(&[1.0, 2.0]), [0; 0]);
        assert_eq!(changes(&[]), [0; 0]);
    }

    /// Values that alternate by ± 1 around two levels, 6 (or 12) each. Without a cut the distances
    /// to the median are 6 (12) times the step, with one they are 12 (24) and the penalty: the
    /// differences of neighbours are 2, so the noise is 1.4826 × 2 / √2 = 2.0967, and the penalty
    /// 3 + 2 ln 12 times that, 16.71 (3 + 2 ln 24 times, 19.62). So a step counts from
    /// (12 + 16.71) / 6 = 4.79 (or (24 + 19.62) / 12 = 3.64) on.
    #[test]
    fn a_step_counts_once_it_saves_more_than_the_penalty() {
        let history = |half: usize, step: f64| -> Vec<f64> {
            let wobble = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
            (0..2 * half).map(|i| wobble(i) + if i < half { 0.0 } else { step }).collect()
        };
        assert_eq!(changes(&history(6, 4.75)), [0; 0]);
        assert_eq!(changes(&history(6, 4.85)), [6]);
        assert_eq!(changes(&history(12, 3.6)), [0; 0]);
        assert_eq!(changes(&history(12, 3.7)), [12]);
    }

    #[test]
    fn a_stretch_has_at_least_three_values() {
        assert_eq!(changes(&[5.0, 5.0, 5.0, 6.0, 6.0, 6.0]), [3]);
        assert_eq!(changes(&[5.0, 5.0, 5.0, 6.0, 6.0]), [0; 0]);
        // A value at either end is no stretch of its own.
        assert_eq!(changes(&[9.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0]), [0; 0]);
        assert_eq!(changes(&[5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 9.0]), [0; 0]);
        let levels = [[5.0; 3], [6.0; 3], [7.0; 3], [5.0; 3]].concat();
        assert_eq!(changes(&levels), [3, 6, 9]);
    }

    /// Values of 10⁶ are known to 10⁻¹⁰.
    #[test]
    fn a_rounding_is_no_change() {
        let rounded = 1e6_f64.next_up();
        assert_eq!(changes(&[[1e6; 10], [rounded; 10]].concat()), [0; 0]);
        assert_eq!(changes(&[[-1e6; 10], [-rounded; 10]].concat()), [0; 0]);
    }

    #[test]
    fn what_is_not_finite_lies_on_the_level_before_it() {
        let nan = f64::NAN;
        assert_eq!(
            filled(&[nan, f64::INFINITY, 2.0, nan, 3.0, f64::NEG_INFINITY]),
            [2.0, 2.0, 2.0, 2.0, 3.0, 3.0]
        );
        assert_eq!(filled(&[nan, nan]), [0.0, 0.0]);
        assert_eq!(changes(&[nan, 5.0, 5.0, 5.0, 6.0, nan, 6.0, nan]), [4]);
    }
}
