//! How many restarts and rounds, and when to stop.
//!
//! The time to spend is planned before anything is known, and planned again at the end of each
//! restart from what the restarts so far have shown. Only the *widths* of the intervals decide,
//! never which way a difference points: a rule that stops because a difference looks significant
//! would find one in identical servers, sooner or later (Armitage, McPherson and Rowe, JRSS A 132,
//! 1969).

use serde::{Deserialize, Serialize};

use crate::compare::{Pair, effect};
use crate::estimate::median;
use crate::student;

/// Restarts beyond this many add little: Student's quantile has come down to 2.1, and each costs a
/// start of every server.
const RESTARTS_MAX: u32 = 20;

/// Restarts before the first look at the widths: fewer may agree by chance and look precise.
const RESTARTS_BEFORE_LOOK: u32 = 5;

/// Rounds of one restart beyond this many say more and more of that one start only.
const ROUNDS_MAX: u32 = 50;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Seconds that may be spent, starts and warm-up included (`--duration`).
    pub budget_s: f64,
    /// Relative half width of every interval that is narrow enough (`--precision`, 0.01 for 1 %);
    /// `None` spends the budget.
    pub precision: Option<f64>,
    /// What the intervals are to hold (0.95).
    pub confidence: f64,
}

impl Goal {
    /// The confidence at which the intervals of this run have to be made, for [`effect`],
    /// [`crate::estimate::level`] and, as 1 - this, [`crate::Bar::alpha`], so that they hold what
    /// `confidence` promises.
    ///
    /// It is `confidence` itself where the budget alone ends the run. A run that ends when it looks
    /// precise ends too often where the restarts agree by chance: at 95 % it finds a difference
    /// between identical servers in up to 10 of 100 runs. With half the alpha, and no look before
    /// the fifth restart, it is fewer than 5, however many looks there are (the second table in
    /// `tests/coverage`).
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

/// What time buys.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Seconds that a restart costs before its first round: starting and warming up every server.
    pub restart_s: f64,
    /// Seconds that one round costs: every server twice, with what lies between the laps.
    pub round_s: f64,
}

/// How much is due to what, in log units.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Standard deviation between restarts.
    pub sd_restart: f64,
    /// Standard deviation between rounds of one restart.
    pub sd_round: f64,
}

impl Default for Spread {
    /// Before anything is known: starts differ half as much as rounds do.
    fn default() -> Self {
        Self { sd_restart: 0.5, sd_round: 1.0 }
    }
}

/// So many restarts of so many rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Fresh starts.
    pub restarts: u32,
    /// Rounds in each.
    pub rounds: u32,
}

impl Plan {
    /// Seconds that it takes.
    #[must_use]
    pub fn seconds(&self, costs: &Costs) -> f64 {
        f64::from(self.restarts) * (costs.restart_s + f64::from(self.rounds) * costs.round_s)
    }

    /// The plan with the narrowest expected interval that `budget_s` pays for, given that `before`
    /// restarts are already there; at least one restart of one round, even if that is over the
    /// budget.
    ///
    /// Kalibera and Jones (ISMM 2013, section 6.3) give the rounds that make best use of time,
    /// √(start / round cost × round / start variance), but leave the restarts to the wish for
    /// precision. With few restarts Student's quantile decides as much as the variances do (12.7 at
    /// two restarts, 4.3 at three, 2.8 at five), so the plan is searched for instead: the least
    /// t(restarts - 1) × √((sd_restart² + sd_round² / rounds) / restarts).
    #[must_use]
    pub fn within(budget_s: f64, costs: &Costs, spread: &Spread, before: u32) -> Self {
        let least = Self { restarts: 1, rounds: 1 };
        let affordable = (1..=RESTARTS_MAX).filter_map(|restarts| {
            let rounds = (budget_s / f64::from(restarts) - costs.restart_s) / costs.round_s;
            // A share of a round that is missing for want of a rounding is not missing.
            let rounds = (rounds + 1e-9).floor().min(f64::from(ROUNDS_MAX));
            (rounds >= 1.0).then_some(Self { restarts, rounds: rounds as u32 })
        });
        affordable
            .map(|plan| (plan.half_width(spread, before), plan))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map_or(least, |(_, plan)| plan)
    }

    /// Half the interval that is to be expected at 95 %, in log units.
    fn half_width(&self, spread: &Spread, before: u32) -> f64 {
        let restarts = f64::from(self.restarts + before);
        // A lone round has none beside it to show that it was disturbed: with 5 % of laps hit, five
        // restarts of one round know three times less than five of two (the table in
        // tests/coverage).
        let lone = if self.rounds == 1 { 3.0 } else { 1.0 };
        let within = (lone * spread.sd_round).powi(2) / f64::from(self.rounds);
        // One restart alone rests on its rounds, which say nothing of the next start, and two say
        // next to nothing at all (12.7): of these two plans of last resort, the one that says
        // something.
        if restarts < 3.0 {
            return if restarts < 2.0 { f64::MAX / 2.0 } else { f64::MAX };
        }
        student::quantile(0.05, restarts - 1.0)
            * ((spread.sd_restart.powi(2) + within) / restarts).sqrt()
    }
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress<'a> {
    /// Seconds spent so far, of the goal's budget.
    pub spent_s: f64,
    /// What a restart and a round have cost so far; before the first, what they are expected to.
    pub costs: Costs,
    /// Restarts begun, the present one included.
    pub restarts: u32,
    /// Rounds of the present restart that are done.
    pub rounds: u32,
    /// The pairs of every server that is compared, so far.
    pub contestants: &'a [Vec<Pair>],
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Next {
    /// Another round in the present restart.
    Round,
    /// Start every server afresh.
    Restart,
    /// It is enough.
    Stop(Why),
}

/// Why it is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Every interval is as narrow as was asked for.
    Precise,
    /// What is left of the budget does not pay for another round.
    Budget,
}

/// The stopping rule of one run: asked after each round (and once before the first restart).
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    goal: Goal,
    /// Rounds that the present restart is to have.
    rounds: u32,
    /// The restart that `rounds` was planned for.
    planned: u32,
}

impl Rule {
    /// A rule for one run.
    #[must_use]
    pub fn new(goal: Goal) -> Self {
        Self { goal, rounds: 1, planned: 0 }
    }

    /// What to do next.
    pub fn next(&mut self, progress: &Progress<'_>) -> Next {
        let left_s = self.goal.budget_s - progress.spent_s;
        if progress.restarts == 0 {
            return Next::Restart;
        }
        if self.planned != progress.restarts {
            self.rounds = self.rounds_of_restart(progress, left_s);
            self.planned = progress.restarts;
        }
        let pays = |cost_s: f64| cost_s <= left_s + 1e-9;
        let another_round = pays(progress.costs.round_s);
        if progress.rounds == 0 || (progress.rounds < self.rounds && another_round) {
            return Next::Round;
        }
        if self.is_precise(progress) {
            return Next::Stop(Why::Precise);
        }
        // A second restart is worth its start only where a third can follow.
        let to_come = if progress.restarts == 1 { 2.0 } else { 1.0 };
        let another_restart = pays(to_come * (progress.costs.restart_s + progress.costs.round_s));
        if progress.restarts < RESTARTS_MAX && another_restart {
            return Next::Restart;
        }
        if another_round && progress.rounds < ROUNDS_MAX {
            return Next::Round;
        }
        Next::Stop(Why::Budget)
    }

    /// How many rounds the restart that has just begun is to have: the best plan for what is left.
    fn rounds_of_restart(&self, progress: &Progress<'_>, left_s: f64) -> u32 {
        let before = progress.restarts - 1;
        let at_start_s = left_s + progress.costs.restart_s + self.done_s(progress);
        let spread = spread(progress.contestants);
        Plan::within(at_start_s, &progress.costs, &spread, before).rounds
    }

    fn done_s(&self, progress: &Progress<'_>) -> f64 {
        f64::from(progress.rounds) * progress.costs.round_s
    }

    /// Whether every interval is narrow enough.
    fn is_precise(&self, progress: &Progress<'_>) -> bool {
        let Some(precision) = self.goal.precision else { return false };
        !progress.contestants.is_empty()
            && progress.contestants.iter().all(|pairs| {
                let effect = effect(pairs, self.goal.confidence_of_run());
                effect.is_some_and(|e| {
                    e.restarts >= RESTARTS_BEFORE_LOOK && e.ratio.relative_half_width() <= precision
                })
            })
    }
}

/// The spread to plan with: that of the participant in the middle, once there are restarts to
/// tell it.
fn spread(contestants: &[Vec<Pair>]) -> Spread {
    let effects: Vec<_> =
        contestants.iter().filter_map(|p| effect(p, 0.95)).filter(|e| e.restarts >= 3).collect();
    let restarts = median(&effects.iter().map(|e| e.sd_restart).collect::<Vec<_>>());
    let rounds = median(&effects.iter().map(|e| e.sd_round).collect::<Vec<_>>());
    let least = Spread::default();
    match (restarts, rounds) {
        // Never fewer restarts than before anything was known: restarts that agree by chance would
        // otherwise end the run while they do, and that is a false alarm more in 100 runs or two.
        (Some(sd_restart), Some(sd_round)) if sd_round > 0.0 => {
            Spread { sd_restart: sd_restart.max(least.sd_restart * sd_round), sd_round }
        }
        _ => least,
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    const CHEAP: Costs = Costs { restart_s: 1.0, round_s: 3.0 };

    fn played(goal: Goal, costs: Costs) -> (Vec<u32>, Why) {
        let mut rule = Rule::new(goal);
        let (mut spent_s, mut restarts) = (0.0, Vec::<u32>::new());
        loop {
            let rounds = restarts.last().copied().unwrap_or(0);
            let progress = Progress {
                spent_s,
                costs,
                restarts: restarts.len() as u32,
                rounds,
                contestants: &[],
            };
            match rule.next(&progress) {
                Next::Restart => {
                    restarts.push(0);
                    spent_s += costs.restart_s;
                }
                Next::Round => {
                    *restarts.last_mut().unwrap() += 1;
                    spent_s += costs.round_s;
                }
                Next::Stop(why) => return (restarts, why),
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
                assert_eq!(why, Why::Budget);
                assert!(spent_s <= 60.0 + 1e-6, "{costs:?}: {spent_s} s, {restarts:?}");
                assert!(spent_s > 60.0 - restart_s - round_s - 1e-6, "{costs:?}: {spent_s} s");
            }
        }
    }

    #[test]
    fn where_starts_are_cheap_there_are_at_least_five() {
        let plan = Plan::within(60.0, &CHEAP, &Spread::default(), 0);
        assert!(plan.restarts >= 5, "{plan:?}");
        assert!(plan.seconds(&CHEAP) <= 60.0);
    }

    /// Sixteen virtual machines that take three minutes to start had two restarts in five minutes,
    /// and every interval said nothing.
    #[test]
    fn where_three_starts_are_too_dear_there_is_one() {
        let goal = Goal { budget_s: 300.0, ..Goal::default() };
        let restarts = |restart_s| played(goal, Costs { restart_s, round_s: 13.0 }).0;
        assert_eq!(restarts(180.0), [9]);
        assert_eq!(restarts(100.0), [15]);
        assert_eq!(restarts(80.0), [1, 1, 2]);
        assert_eq!(restarts(40.0), [2, 2, 3, 3]);
    }

    #[test]
    fn repeats_go_where_the_variance_is() {
        let plan = |sd_restart, restart_s| {
            let costs = Costs { restart_s, round_s: 1.0 };
            Plan::within(120.0, &costs, &Spread { sd_restart, sd_round: 1.0 }, 0)
        };
        assert!(plan(2.0, 5.0).rounds < plan(0.0, 5.0).rounds);
        assert!(plan(0.5, 20.0).restarts < plan(0.5, 2.0).restarts);
    }

    #[test]
    fn a_budget_too_small_still_gives_one_round() {
        let goal = Goal { budget_s: 0.5, ..Goal::default() };
        assert_eq!(played(goal, CHEAP), (vec![1], Why::Budget));
    }

    /// Pairs of this many restarts of two rounds: each restart around 0 by ± `restart`, each round
    /// by ± `round`.
    fn pairs(restarts: u32, restart: f64, round: f64) -> Vec<Pair> {
        let sign = |i: u32| if i.is_multiple_of(2) { -1.0 } else { 1.0 };
        let pair = |i: u32| Pair {
            restart: i / 2,
            round: i % 2,
            log_ratio: restart * sign(i / 2) + round * sign(i),
        };
        (0..2 * restarts).map(pair).collect()
    }

    fn ended(contestants: &[Vec<Pair>], precision: f64) -> bool {
        let goal = Goal { precision: Some(precision), ..Goal::default() };
        let progress =
            Progress { spent_s: 0.0, costs: CHEAP, restarts: 6, rounds: 50, contestants };
        Rule::new(goal).next(&progress) == Next::Stop(Why::Precise)
    }

    #[test]
    fn a_run_ends_once_every_interval_is_narrow_enough() {
        let (close, apart) = (pairs(6, 0.001, 0.001), pairs(6, 0.02, 0.001));
        assert!(ended(from_ref(&close), 0.01) && ended(&[close.clone(), close.clone()], 0.01));
        assert!(!ended(&[close.clone(), apart.clone()], 0.01));
        assert!(!ended(&[close, Vec::new()], 0.01));
        assert!(!ended(&[], 0.01));
        // The half width of the one that decides, at the confidence of the run.
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
    fn a_plan_costs_its_starts_and_its_rounds() {
        assert_eq!(Plan { restarts: 4, rounds: 2 }.seconds(&CHEAP), 28.0);
    }

    /// Computed in Python by trying all plans: the least
    /// `t * sqrt((sd_restart**2 + sd_round**2 / rounds) / (before + restarts))`, t being the 97.5 %
    /// quantile at before + restarts - 1 degrees of freedom (by integrating the density), where one
    /// round counts with three times its deviation.
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
        // Not even one round is affordable, and just one is.
        assert_eq!(plan(0.5, 3.9, 1.0, 3.0, 0), (1, 1));
        assert_eq!(plan(0.5, 4.0, 1.0, 3.0, 0), (1, 1));
    }

    #[test]
    fn there_are_at_most_20_restarts_of_50_rounds() {
        let goal = Goal { budget_s: 1e6, ..Goal::default() };
        assert_eq!(played(goal, CHEAP), (vec![50; 20], Why::Budget));
    }

    #[test]
    fn fewer_than_three_restarts_say_nothing_and_one_says_more_than_two() {
        let half =
            |restarts, before| Plan { restarts, rounds: 2 }.half_width(&Spread::default(), before);
        assert_eq!((half(1, 0), half(2, 0), half(1, 1)), (f64::MAX / 2.0, f64::MAX, f64::MAX));
        // t(2) = 4.3027, √((0.25 + 1 / 2) / 3) = 0.5.
        assert!((half(3, 0) - 2.151_326).abs() < 1e-5 && half(3, 0) == half(1, 2));
        // A lone round counts with three times its deviation: √((0.25 + 9) / 3).
        let lone = Plan { restarts: 3, rounds: 1 }.half_width(&Spread::default(), 0);
        assert!((lone - 4.302_653 * f64::sqrt(9.25 / 3.0)).abs() < 1e-5);
        let spread = Spread { sd_restart: 0.5, sd_round: 2.0 };
        let lone = Plan { restarts: 3, rounds: 1 }.half_width(&spread, 0);
        assert!((lone - 4.302_653 * f64::sqrt(36.25 / 3.0)).abs() < 1e-5);
    }

    #[test]
    fn a_restart_gets_the_same_plan_whenever_it_is_made() {
        // The first restart of 140 s: at its start, and after some rounds of it.
        let costs = Costs { restart_s: 20.0, round_s: 2.0 };
        let asked = |rounds: u32| {
            let mut rule = Rule::new(Goal { budget_s: 140.0, ..Goal::default() });
            let spent_s = costs.restart_s + costs.round_s * f64::from(rounds);
            let progress = Progress { spent_s, costs, restarts: 1, rounds, contestants: &[] };
            let _ = rule.next(&progress);
            rule.rounds
        };
        let planned = Plan::within(140.0, &costs, &Spread::default(), 0);
        assert_eq!(planned, Plan { restarts: 5, rounds: 4 });
        assert_eq!([asked(0), asked(1), asked(3), asked(4)], [4; 4]);
    }

    #[test]
    fn plans_go_by_the_spread_of_the_contestant_in_the_middle() {
        let spreads =
            [pairs(4, 0.3, 0.1), pairs(4, 0.5, 0.2), pairs(4, 0.9, 0.3), pairs(2, 99.0, 99.0)];
        let found = spread(&spreads);
        let middle = effect(&spreads[1], 0.95).unwrap();
        assert_eq!(found, Spread { sd_restart: middle.sd_restart, sd_round: middle.sd_round });
        // Restarts that agree by chance are taken for half as different as rounds.
        let found = spread(&[pairs(4, 0.0, 0.2)]);
        assert!(found.sd_round > 0.1 && found.sd_restart == 0.5 * found.sd_round, "{found:?}");
        // Nothing is known of two restarts, or of restarts of one round.
        assert_eq!(spread(&[pairs(2, 0.3, 0.1)]), Spread::default());
        assert_eq!(spread(&[pairs(4, 0.3, 0.0)]), Spread::default());
        assert_ne!(spread(&[pairs(3, 0.3, 0.1)]), Spread::default());
    }

    #[test]
    fn a_second_restart_needs_the_time_of_a_third() {
        let next = |restarts, rounds, left_s: f64| {
            let mut rule = Rule::new(Goal::default());
            let progress = Progress {
                spent_s: 60.0 - left_s,
                costs: CHEAP,
                restarts,
                rounds,
                contestants: &[],
            };
            rule.next(&progress)
        };
        assert_eq!((next(1, 20, 8.0), next(1, 20, 7.9)), (Next::Restart, Next::Round));
        assert_eq!((next(2, 20, 4.0), next(2, 20, 3.9)), (Next::Restart, Next::Round));
        let stop = Next::Stop(Why::Budget);
        assert_eq!((next(2, 20, 3.0), next(2, 20, 2.9)), (Next::Round, stop));
        // There are no more than 20 restarts and 50 rounds.
        assert_eq!((next(19, 50, 4.0), next(20, 50, 4.0)), (Next::Restart, stop));
        assert_eq!((next(20, 49, 4.0), next(2, 50, 3.9)), (Next::Round, stop));
    }
}
