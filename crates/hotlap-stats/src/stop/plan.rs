//! Plans how many restarts of how many rounds make the best use of the remaining time.

use crate::compare::Spread;
use crate::student;

/// More restarts add little: Student's quantile is down to 2.1 at 20, and each restart costs a
/// start of every server.
pub(super) const RESTARTS_MAX: u32 = 20;

/// A bound on the plan. Restarts are assumed to differ at least half as much as rounds, so the
/// width falls with √(1/4 + 1/rounds); beyond 50 rounds, by at most another 4 %.
pub(super) const ROUNDS_MAX: u32 = 50;

/// A single round in a restart counts with this many times its standard deviation, because no other
/// round shows whether it was disturbed. With 5 % of laps disturbed, the interval from five
/// restarts of one round is three times as wide as from five of two (`tests/coverage`).
const SINGLE_ROUND: f64 = 3.0;

/// Tolerance for rounding, so that it cannot make a plan too expensive.
pub(super) const ROUNDING: f64 = 1e-9;

/// The costs of restarts and rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Seconds that a restart costs before its first round: starting and warming up every server.
    pub restart_s: f64,
    /// Seconds that one round costs: every server twice, including the time between laps.
    pub round_s: f64,
}

/// A number of restarts, with the same number of rounds each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    pub restarts: u32,
    pub rounds: u32,
}

impl Plan {
    /// The plan with the narrowest expected interval that `budget_s` pays for, after `before`
    /// restarts; at least one restart of one round, even if that exceeds the budget.
    ///
    /// Kalibera and Jones (ISMM 2013, section 6.3) give the number of rounds that makes the best
    /// use of time, √(restart cost / round cost × round variance / restart variance), and leave the
    /// number of restarts to the desired precision. With few restarts, Student's quantile matters
    /// as much as the variances (12.7 at two restarts, 4.3 at three, 2.8 at five). So this searches
    /// for the minimum of t(restarts − 1) × √((sd_restart² + sd_round² / rounds) / restarts).
    pub fn within(budget_s: f64, costs: &Costs, spread: &Spread, before: u32) -> Self {
        let affordable = (1..=RESTARTS_MAX).filter_map(|restarts| {
            let rounds = (budget_s / f64::from(restarts) - costs.restart_s) / costs.round_s;
            let rounds = (rounds + ROUNDING).floor().min(f64::from(ROUNDS_MAX));
            (rounds >= 1.0).then_some(Self { restarts, rounds: rounds as u32 })
        });
        affordable
            .map(|plan| (plan.half_width(spread, before), plan))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map_or(Self { restarts: 1, rounds: 1 }, |(_, plan)| plan)
    }

    /// Half of the expected 95 % interval, in log units.
    fn half_width(&self, spread: &Spread, before: u32) -> f64 {
        let restarts = f64::from(self.restarts + before);
        // One restart relies on its rounds, which say nothing about the next restart. Two say next
        // to nothing (12.7), so of these last resorts, one restart is better.
        if restarts < 3.0 {
            return if restarts < 2.0 { f64::MAX / 2.0 } else { f64::MAX };
        }
        let single = if self.rounds == 1 { SINGLE_ROUND } else { 1.0 };
        let within = (single * spread.sd_round).powi(2) / f64::from(self.rounds);
        student::quantile(0.05, restarts - 1.0)
            * ((spread.sd_restart.powi(2) + within) / restarts).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: Costs = Costs { restart_s: 1.0, round_s: 3.0 };
    const SPREAD: Spread = Spread { sd_restart: 0.5, sd_round: 1.0 };

    #[test]
    fn cheap_restarts_are_at_least_five() {
        let plan = Plan::within(60.0, &CHEAP, &SPREAD, 0);
        assert!(plan.restarts >= 5, "{plan:?}");
        let seconds = f64::from(plan.restarts) * (1.0 + f64::from(plan.rounds) * 3.0);
        assert!(seconds <= 60.0, "{plan:?}");
    }

    #[test]
    fn repetitions_go_where_the_variance_is() {
        let plan = |sd_restart, restart_s| {
            let costs = Costs { restart_s, round_s: 1.0 };
            Plan::within(120.0, &costs, &Spread { sd_restart, sd_round: 1.0 }, 0)
        };
        assert!(plan(2.0, 5.0).rounds < plan(0.0, 5.0).rounds);
        assert!(plan(0.5, 20.0).restarts < plan(0.5, 2.0).restarts);
    }

    /// Computed in Python by trying all plans: the least `t * sqrt((sd_restart**2 + sd_round**2 /
    /// rounds) / (before + restarts))`, where t is the 97.5 % quantile at before + restarts - 1
    /// degrees of freedom (by integrating the density), and a single round counts with three times
    /// its deviation.
    #[test]
    fn the_plan_is_the_one_with_the_narrowest_interval() {
        let plan = |sd_restart, budget_s, restart_s, round_s, before| {
            let (costs, spread) =
                (Costs { restart_s, round_s }, Spread { sd_restart, sd_round: 1.0 });
            let plan = Plan::within(budget_s, &costs, &spread, before);
            (plan.restarts, plan.rounds)
        };
        assert_eq!(plan(0.5, 60.0, 1.0, 3.0, 0), (8, 2));
        assert_eq!(plan(0.5, 60.0, 1.0, 3.0, 3), (8, 2));
        assert_eq!(plan(2.0, 120.0, 5.0, 1.0, 0), (17, 2));
        assert_eq!(plan(0.0, 120.0, 5.0, 1.0, 0), (8, 10));
        assert_eq!(plan(0.5, 120.0, 20.0, 1.0, 0), (5, 4));
        assert_eq!(plan(0.5, 120.0, 2.0, 1.0, 0), (20, 4));
        assert_eq!(plan(0.1, 300.0, 30.0, 2.0, 0), (5, 15));
        assert_eq!(plan(0.5, 6_000.0, 1.0, 3.0, 0), (20, 50));
        // Not even one round is affordable; exactly one is.
        assert_eq!(plan(0.5, 3.9, 1.0, 3.0, 0), (1, 1));
        assert_eq!(plan(0.5, 4.0, 1.0, 3.0, 0), (1, 1));
    }

    #[test]
    fn fewer_than_three_restarts_say_nothing_and_one_says_more_than_two() {
        let half = |restarts, before| Plan { restarts, rounds: 2 }.half_width(&SPREAD, before);
        assert_eq!((half(1, 0), half(2, 0), half(1, 1)), (f64::MAX / 2.0, f64::MAX, f64::MAX));
        // t(2) = 4.3027, √((0.25 + 1 / 2) / 3) = 0.5.
        assert!((half(3, 0) - 2.151_326).abs() < 1e-5 && half(3, 0) == half(1, 2));
        // A single round counts with three times its deviation: √((0.25 + 9) / 3).
        let single = Plan { restarts: 3, rounds: 1 };
        let half = single.half_width(&SPREAD, 0);
        assert!((half - 4.302_653 * f64::sqrt(9.25 / 3.0)).abs() < 1e-5);
        let half = single.half_width(&Spread { sd_restart: 0.5, sd_round: 2.0 }, 0);
        assert!((half - 4.302_653 * f64::sqrt(36.25 / 3.0)).abs() < 1e-5);
    }
}
