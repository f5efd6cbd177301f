//! Trials of a rate, and the border between rates that keep a goal and others.

/// One window at a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The restart that the window belongs to.
    pub restart: u32,
    /// Offered rate, in requests/s.
    pub rate: f64,
    /// Whether the window kept every goal.
    pub is_kept: bool,
}

/// The neighbours of the border that best separates rates that kept the goal from those that did
/// not: the highest rate below it, and the lowest above it. Single trials may be on the wrong side,
/// so the border is where fewest of them are.
pub(super) fn border(trials: &[Trial]) -> (Option<f64>, Option<f64>) {
    let mut sorted: Vec<&Trial> = trials.iter().collect();
    sorted.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    // With all of them above the border, those that kept the goal are on the wrong side.
    let mut wrong = sorted.iter().filter(|trial| trial.is_kept).count() as i64;
    let mut best = (wrong, 0);
    for (place, trial) in sorted.iter().enumerate() {
        wrong += if trial.is_kept { -1 } else { 1 };
        if wrong < best.0 {
            best = (wrong, place + 1);
        }
    }
    let rate = |place: usize| sorted.get(place).map(|trial| trial.rate);
    (best.1.checked_sub(1).and_then(rate), rate(best.1))
}
