//! Whether a server's cost changes within its restarts: possibly it still warms up, or it leaks.

use std::collections::{BTreeMap, HashMap};

use super::reading::Reading;
use crate::student::two_sided_p;

/// Degrees of freedom below which a change is unknown.
const LEAST_DF: usize = 3;

/// The change of a server's cost from the first to the last round of a restart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// In log units, negative if the cost falls.
    pub log: f64,
    /// How likely a change at least as large is by chance, if rounds are independent.
    pub p: f64,
}

impl Change {
    /// The change of a server relative to the mean of others, in the rounds that any of them has
    /// too. Without others, its own change.
    ///
    /// A line is fitted to the logarithms of the rounds by least squares, with the same slope in
    /// each restart. The change is this slope times the mean length of a restart. `None` if there
    /// are too few rounds.
    pub fn of(server: &[Reading], others: &[&[Reading]]) -> Option<Self> {
        let mut restarts = BTreeMap::<u32, Vec<(f64, f64)>>::new();
        let logs = |readings: &[Reading]| -> HashMap<(u32, u32), f64> {
            readings.iter().filter_map(|r| Some((r.place(), r.share.log()?))).collect()
        };
        let others: Vec<_> = others.iter().map(|readings| logs(readings)).collect();
        for (place, own) in logs(server) {
            let at: Vec<f64> = others.iter().filter_map(|o| o.get(&place).copied()).collect();
            if at.is_empty() && !others.is_empty() {
                continue;
            }
            let mean = at.iter().sum::<f64>() / at.len().max(1) as f64;
            restarts.entry(place.0).or_default().push((f64::from(place.1), own - mean));
        }
        restarts.retain(|_, rounds| rounds.len() > 1);
        let rounds: usize = restarts.values().map(Vec::len).sum();
        let df = rounds.checked_sub(restarts.len() + 1).filter(|df| *df >= LEAST_DF)?;
        let [mut xx, mut xy, mut yy, mut length] = [0.0; 4];
        for rounds in restarts.values() {
            let n = rounds.len() as f64;
            let (x, y) = rounds.iter().fold((0.0, 0.0), |(x, y), r| (x + r.0 / n, y + r.1 / n));
            for (at, log) in rounds {
                let (dx, dy) = (at - x, log - y);
                (xx, xy, yy) = (xx + dx * dx, xy + dx * dy, yy + dy * dy);
            }
            length += (n - 1.0) / restarts.len() as f64;
        }
        let slope = xy / xx;
        let rest = (yy - slope * xy).max(f64::MIN_POSITIVE);
        let error = (rest / df as f64 / xx).sqrt();
        Some(Self { log: slope * length, p: two_sided_p(slope / error, df as f64) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Share;

    /// Three restarts of five rounds, with a machine that becomes slower by 10% a round.
    fn readings(cost: impl Fn(u32, u32) -> f64) -> Vec<Reading> {
        let machine = |round: u32| 1.1_f64.powi(round as i32);
        let places = (0..3).flat_map(|restart| (0..5).map(move |round| (restart, round)));
        places
            .map(|(restart, round)| {
                let wobble = 1.0 + 0.01 * f64::from((restart * 5 + round) * 7 % 3);
                let share = Share::whole(cost(restart, round) * machine(round) * wobble);
                Reading { restart, round, share }
            })
            .collect()
    }

    #[test]
    fn a_server_that_falls_in_each_restart_changes_and_the_machine_does_not_count() {
        let falling = readings(|_, round| 50.0 * 0.8_f64.powi(round as i32));
        let flat = readings(|restart, _| 20.0 + f64::from(restart));
        let found = Change::of(&falling, &[&flat]).unwrap();
        assert!((found.log - 4.0 * 0.8_f64.ln()).abs() < 0.02 && found.p < 1e-6, "{found:?}");
        let other = readings(|restart, _| 30.0 - f64::from(restart));
        let found = Change::of(&flat, &[&other, &other]).unwrap();
        assert!(found.log.abs() < 0.02 && found.p > 0.01, "{found:?}");
        // Without others, the machine cannot be told from the server.
        assert!((Change::of(&flat, &[]).unwrap().log - 4.0 * 1.1_f64.ln()).abs() < 0.02);
    }

    #[test]
    fn restarts_of_one_round_tell_nothing() {
        let one = readings(|_, _| 1.0).into_iter().filter(|r| r.round == 0).collect::<Vec<_>>();
        assert_eq!(Change::of(&one, &[]), None);
        let two = readings(|_, _| 1.0).into_iter().filter(|r| r.round < 2).collect::<Vec<_>>();
        assert_eq!(Change::of(&two, &[]), None, "two degrees of freedom");
    }
}
