//! The stopping rule: another round, another restart, or the end.
//!
//! The time is planned before anything is known, and again at the beginning of each restart from
//! the results so far. Only the *widths* of intervals decide, never the direction of a difference:
//! a rule that stops because a difference looks significant finds one between identical servers
//! sooner or later (Armitage, McPherson and Rowe, "Repeated significance tests on accumulating
//! data", JRSS A 132, 1969).

mod plan;

use crate::compare::{Pair, Spread, effect};
use crate::robust::median;
use crate::verdict::MIN_RESTARTS;
pub use plan::Costs;
use plan::{Plan, RESTARTS_MAX, ROUNDING, ROUNDS_MAX};

/// Restarts before the first look at the widths. Fewer may agree by chance and look precise
/// (simulated in `tests/coverage/stopping.rs`).
pub const RESTARTS_BEFORE_LOOK: u32 = 5;

/// The spread assumed before anything is known, and the smallest ratio of the two afterwards:
/// restarts differ half as much as rounds. A convention; the false alarms in METHODOLOGY, appendix
/// A.15, were counted with it.
const ASSUMED: Spread = Spread { sd_restart: 0.5, sd_round: 1.0 };

/// The goal of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// Budget in seconds, including restarts and warm-up (`--budget`).
    pub budget_s: f64,
    /// The run may end once the relative half-width of every interval is at most this
    /// (`--precision`, 0.01 for 1 %); `None` spends the budget.
    pub precision: Option<f64>,
    /// The share of intervals that should contain the true ratio (0.95).
    pub confidence: f64,
}

impl Goal {
    /// The confidence at which the intervals of this run must be computed, for [`effect`],
    /// [`crate::level`] and (as 1 − this) [`crate::Criterion::alpha`], so that `confidence` holds.
    ///
    /// If the budget alone ends the run, it is `confidence` itself. A run that ends when it looks
    /// precise ends too often when the restarts agree by chance: at 95 % it finds a difference
    /// between identical servers in up to 10 of 100 runs. With half the alpha, and no look before
    /// the fifth restart, it does so in fewer than 5, however many looks there are (simulated in
    /// `tests/coverage/stopping.rs`).
    #[must_use]
    pub fn confidence_of_run(&self) -> f64 {
        match self.precision {
            Some(_) => 1.0 - (1.0 - self.confidence) / 2.0,
            None => self.confidence,
        }
    }
}

impl Default for Goal {
    fn default() -> Self {
        Self { budget_s: 60.0, precision: None, confidence: 0.95 }
    }
}

/// The progress of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunProgress<'a> {
    /// Seconds of the budget spent so far.
    pub spent_s: f64,
    /// Average cost of a restart and a round so far; before the first, estimates.
    pub costs: Costs,
    /// Restarts begun, including the present one.
    pub restarts: u32,
    /// Completed rounds of the present restart.
    pub rounds: u32,
    /// The pairs so far, for each compared server and load.
    pub comparisons: &'a [Vec<Pair>],
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Another round in the present restart.
    Round,
    /// Start every server afresh.
    Restart,
    /// End the run.
    Stop(StopReason),
}

/// Why a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// Every interval is as narrow as [`Goal::precision`].
    Precise,
    /// The rest of the budget does not pay for another round.
    Budget,
}

/// The stopping rule of one run, consulted after each round and once before the first restart.
#[derive(Debug, Clone, PartialEq)]
pub struct StoppingRule {
    goal: Goal,
    /// Planned number of rounds of the present restart.
    rounds: u32,
    /// The restart that `rounds` is planned for.
    planned: u32,
}

impl StoppingRule {
    /// A rule for one run.
    #[must_use]
    pub fn new(goal: Goal) -> Self {
        Self { goal, rounds: 1, planned: 0 }
    }

    /// Changes the budget, for what is decided from now on.
    pub fn set_budget_s(&mut self, budget_s: f64) {
        self.goal.budget_s = budget_s;
    }

    /// What to do next.
    pub fn next(&mut self, progress: &RunProgress<'_>) -> Decision {
        let left_s = self.goal.budget_s - progress.spent_s;
        if progress.restarts == 0 {
            return Decision::Restart;
        }
        if self.planned != progress.restarts {
            self.rounds = planned_rounds(progress, left_s);
            self.planned = progress.restarts;
        }
        let is_affordable = |cost_s: f64| cost_s <= left_s + ROUNDING;
        let another_round = is_affordable(progress.costs.round_s);
        if progress.rounds == 0 || (progress.rounds < self.rounds && another_round) {
            return Decision::Round;
        }
        if self.is_precise(progress) {
            return Decision::Stop(StopReason::Precise);
        }
        // A second restart is worth its cost only if a third one can follow.
        let to_come = if progress.restarts == 1 { 2.0 } else { 1.0 };
        let another_restart =
            is_affordable(to_come * (progress.costs.restart_s + progress.costs.round_s));
        if progress.restarts < RESTARTS_MAX && another_restart {
            return Decision::Restart;
        }
        if another_round && progress.rounds < ROUNDS_MAX {
            return Decision::Round;
        }
        Decision::Stop(StopReason::Budget)
    }

    /// Whether every interval is narrow enough.
    fn is_precise(&self, progress: &RunProgress<'_>) -> bool {
        let Some(precision) = self.goal.precision else { return false };
        !progress.comparisons.is_empty()
            && progress.comparisons.iter().all(|pairs| {
                let effect = effect(pairs, self.goal.confidence_of_run());
                effect.is_some_and(|e| {
                    e.restarts >= RESTARTS_BEFORE_LOOK && e.ratio.relative_half_width() <= precision
                })
            })
    }
}

/// The number of rounds of the present restart, by the best plan for the time that was left at its
/// beginning.
fn planned_rounds(progress: &RunProgress<'_>, left_s: f64) -> u32 {
    let before = progress.restarts - 1;
    let done_s = f64::from(progress.rounds) * progress.costs.round_s;
    let at_start_s = left_s + progress.costs.restart_s + done_s;
    Plan::within(at_start_s, &progress.costs, &spread(progress.comparisons), before).rounds
}

/// The spread to plan with: the median over all comparisons with enough restarts for a verdict.
/// With two restarts the spread has one degree of freedom.
fn spread(comparisons: &[Vec<Pair>]) -> Spread {
    let known: Vec<Spread> = comparisons
        .iter()
        .filter_map(|pairs| effect(pairs, 0.95))
        .filter(|effect| effect.restarts >= MIN_RESTARTS)
        .map(|effect| effect.spread)
        .collect();
    let of = |sd: fn(&Spread) -> f64| median(&known.iter().map(sd).collect::<Vec<_>>());
    match (of(|s| s.sd_restart), of(|s| s.sd_round)) {
        // Never plan fewer restarts than before anything was known. Otherwise restarts that agree
        // by chance would end the run: one or two more false alarms in 100 runs.
        (Some(sd_restart), Some(sd_round)) if sd_round > 0.0 => {
            Spread { sd_restart: sd_restart.max(ASSUMED.sd_restart * sd_round), sd_round }
        }
        _ => ASSUMED,
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    const CHEAP: Costs = Costs { restart_s: 1.0, round_s: 3.0 };

    fn played(goal: Goal, costs: Costs) -> (Vec<u32>, StopReason) {
        let mut rule = StoppingRule::new(goal);
        let (mut spent_s, mut restarts) = (0.0, Vec::<u32>::new());
        loop {
            let rounds = restarts.last().copied().unwrap_or(0);
            let progress = RunProgress {
                spent_s,
                costs,
                restarts: restarts.len() as u32,
                rounds,
                comparisons: &[],
            };
            match rule.next(&progress) {
                Decision::Restart => {
                    restarts.push(0);
                    spent_s += costs.restart_s;
                }
                Decision::Round => {
                    *restarts.last_mut().unwrap() += 1;
                    spent_s += costs.round_s;
                }
                Decision::Stop(why) => return (restarts, why),
            }
        }
    }

    #[test]
    fn the_budget_is_spent_and_never_exceeded() {
        for restart_s in [0.1, 1.0, 5.0, 20.0] {
            for round_s in [1.0, 3.0, 9.0] {
                let costs = Costs { restart_s, round_s };
                let (restarts, why) = played(Goal::default(), costs);
                let rounds: u32 = restarts.iter().sum();
                let spent_s = restarts.len() as f64 * restart_s + f64::from(rounds) * round_s;
                assert_eq!(why, StopReason::Budget);
                assert!(spent_s <= 60.0 + 1e-6, "{costs:?}: {spent_s} s, {restarts:?}");
                assert!(spent_s > 60.0 - restart_s - round_s - 1e-6, "{costs:?}: {spent_s} s");
            }
        }
    }

    /// Regression: sixteen virtual machines that take three minutes to start had two restarts in
    /// five minutes, and no interval said anything.
    #[test]
    fn if_three_restarts_are_too_expensive_there_is_one() {
        let goal = Goal { budget_s: 300.0, ..Goal::default() };
        let restarts = |restart_s| played(goal, Costs { restart_s, round_s: 13.0 }).0;
        assert_eq!(restarts(180.0), [9]);
        assert_eq!(restarts(100.0), [15]);
        assert_eq!(restarts(80.0), [1, 1, 2]);
        assert_eq!(restarts(40.0), [2, 2, 3, 3]);
    }

    #[test]
    fn a_larger_budget_pays_for_another_restart() {
        let mut rule = StoppingRule::new(Goal::default());
        let progress =
            RunProgress { spent_s: 60.0, costs: CHEAP, restarts: 3, rounds: 20, comparisons: &[] };
        assert_eq!(rule.next(&progress), Decision::Stop(StopReason::Budget));
        rule.set_budget_s(64.0);
        assert_eq!(rule.next(&progress), Decision::Restart);
    }

    #[test]
    fn a_budget_that_is_too_small_still_gives_one_round() {
        let goal = Goal { budget_s: 0.5, ..Goal::default() };
        assert_eq!(played(goal, CHEAP), (vec![1], StopReason::Budget));
    }

    /// Pairs of this many restarts of two rounds: restarts differ by ± `restart`, rounds by ±
    /// `round`.
    fn pairs(restarts: u32, restart: f64, round: f64) -> Vec<Pair> {
        let sign = |i: u32| if i.is_multiple_of(2) { -1.0 } else { 1.0 };
        let pair = |i: u32| Pair {
            restart: i / 2,
            round: i % 2,
            log_ratio: restart * sign(i / 2) + round * sign(i),
        };
        (0..2 * restarts).map(pair).collect()
    }

    fn ended(comparisons: &[Vec<Pair>], precision: f64) -> bool {
        let goal = Goal { precision: Some(precision), ..Goal::default() };
        let progress =
            RunProgress { spent_s: 0.0, costs: CHEAP, restarts: 6, rounds: 50, comparisons };
        StoppingRule::new(goal).next(&progress) == Decision::Stop(StopReason::Precise)
    }

    #[test]
    fn a_run_ends_once_every_interval_is_narrow_enough() {
        let (close, apart) = (pairs(6, 0.001, 0.001), pairs(6, 0.02, 0.001));
        assert!(ended(from_ref(&close), 0.01) && ended(&[close.clone(), close.clone()], 0.01));
        assert!(!ended(&[close.clone(), apart.clone()], 0.01));
        assert!(!ended(&[close, Vec::new()], 0.01));
        assert!(!ended(&[], 0.01));
        // The half width of the widest one, at the confidence of the run.
        let half = effect(&apart, 0.975).unwrap().ratio.relative_half_width();
        assert!(ended(from_ref(&apart), half) && !ended(&[apart], half * 0.999));
    }

    #[test]
    fn four_restarts_are_too_few_to_look() {
        assert!(!ended(&[pairs(4, 0.001, 0.001)], 0.5));
        assert!(ended(&[pairs(5, 0.001, 0.001)], 0.5));
    }

    #[test]
    fn a_run_that_may_end_early_has_half_the_alpha() {
        let goal = Goal::default();
        assert_eq!(goal.confidence_of_run(), 0.95);
        let early = Goal { precision: Some(0.01), ..goal };
        assert!((early.confidence_of_run() - 0.975).abs() < 1e-12);
    }

    #[test]
    fn there_are_at_most_20_restarts_of_50_rounds() {
        let goal = Goal { budget_s: 1e6, ..Goal::default() };
        assert_eq!(played(goal, CHEAP), (vec![50; 20], StopReason::Budget));
    }

    #[test]
    fn a_restart_gets_the_same_plan_whenever_it_is_made() {
        // The first restart of 140 s: at its beginning, and after some of its rounds.
        let costs = Costs { restart_s: 20.0, round_s: 2.0 };
        let asked = |rounds: u32| {
            let mut rule = StoppingRule::new(Goal { budget_s: 140.0, ..Goal::default() });
            let spent_s = costs.restart_s + costs.round_s * f64::from(rounds);
            let progress = RunProgress { spent_s, costs, restarts: 1, rounds, comparisons: &[] };
            let _ = rule.next(&progress);
            rule.rounds
        };
        let planned = Plan::within(140.0, &costs, &ASSUMED, 0);
        assert_eq!(planned, Plan { restarts: 5, rounds: 4 });
        assert_eq!([asked(0), asked(1), asked(3), asked(4)], [4; 4]);
    }

    #[test]
    fn plans_use_the_median_spread() {
        let spreads =
            [pairs(4, 0.3, 0.1), pairs(4, 0.5, 0.2), pairs(4, 0.9, 0.3), pairs(2, 99.0, 99.0)];
        let found = spread(&spreads);
        let middle = effect(&spreads[1], 0.95).unwrap();
        assert_eq!(found, middle.spread);
        // Restarts that agree by chance count as half as different as rounds.
        let found = spread(&[pairs(4, 0.0, 0.2)]);
        assert!(found.sd_round > 0.1 && found.sd_restart == 0.5 * found.sd_round, "{found:?}");
        // Two restarts, or rounds without noise, say nothing.
        assert_eq!(spread(&[pairs(2, 0.3, 0.1)]), ASSUMED);
        assert_eq!(spread(&[pairs(4, 0.3, 0.0)]), ASSUMED);
        assert_ne!(spread(&[pairs(3, 0.3, 0.1)]), ASSUMED);
    }

    #[test]
    fn a_second_restart_takes_the_time_for_a_third() {
        let next = |restarts, rounds, left_s: f64| {
            let mut rule = StoppingRule::new(Goal::default());
            let progress = RunProgress {
                spent_s: 60.0 - left_s,
                costs: CHEAP,
                restarts,
                rounds,
                comparisons: &[],
            };
            rule.next(&progress)
        };
        assert_eq!((next(1, 20, 8.0), next(1, 20, 7.9)), (Decision::Restart, Decision::Round));
        assert_eq!((next(2, 20, 4.0), next(2, 20, 3.9)), (Decision::Restart, Decision::Round));
        let stop = Decision::Stop(StopReason::Budget);
        assert_eq!((next(2, 20, 3.0), next(2, 20, 2.9)), (Decision::Round, stop));
        // The maximum is 20 restarts and 50 rounds.
        assert_eq!((next(19, 50, 4.0), next(20, 50, 4.0)), (Decision::Restart, stop));
        assert_eq!((next(20, 49, 4.0), next(2, 50, 3.9)), (Decision::Round, stop));
    }
}
