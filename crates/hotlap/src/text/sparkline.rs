//! A series of values as a line of block characters.

/// If values vary by less than this share of the median, at most half of the height is used, so
/// that small differences look small.
const LEAST_RANGE: f64 = 0.025;

/// Values as eighths of a line, from the lowest to the highest, with a bar before each index in
/// `changes` and a space for each missing value (NaN).
pub fn sparkline(values: &[f64], changes: &[usize]) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let known = || values.iter().copied().filter(|v| v.is_finite());
    let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
    let middle = f64::midpoint(low, high);
    let half = f64::midpoint(high, -low).max(middle.abs() * LEAST_RANGE).max(f64::MIN_POSITIVE);
    let mut line = String::new();
    for (place, value) in values.iter().enumerate() {
        if changes.contains(&place) {
            line.push('|');
        }
        let step = ((value - middle) / half * 3.5 + 3.5).round();
        line.push(match value.is_finite() {
            true => STEPS[(step.clamp(0.0, 7.0)) as usize],
            false => ' ',
        });
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_shows_the_level_and_where_it_changed() {
        let values = [10.0, 10.1, 9.9, 10.0, 15.0, 15.1, f64::NAN, 15.0];
        assert_eq!(sparkline(&values, &[4]), "▁▁▁▁|██ █");
        assert_eq!(sparkline(&[5.0, 5.0, 5.01], &[]), "▄▄▅");
        assert_eq!(sparkline(&[], &[]), "");
    }
}
