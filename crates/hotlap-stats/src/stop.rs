//! How many heats and blocks, and when to stop.
//!
//! The time to spend is planned before anything is known, and planned again at the end of each heat
//! from what the heats so far have shown. Only the *widths* of the intervals decide, never which
//! way a difference points: a rule that stops because a difference looks significant would find one
//! in identical servers, sooner or later (Armitage, McPherson and Rowe, JRSS A 132, 1969).

use serde::{Deserialize, Serialize};

use crate::compare::{Pair, effect};
use crate::estimate::median;
use crate::student;

/// Heats beyond this many add little: Student's quantile has come down to 2.1, and each costs a
/// start of every server.
const HEATS_MAX: u32 = 20;

/// Heats before the first look at the widths: fewer may agree by chance and look precise.
const HEATS_BEFORE_LOOK: u32 = 5;

/// Blocks of one heat beyond this many say more and more of that one start only.
const BLOCKS_MAX: u32 = 50;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Seconds that may be spent, starts and warm-up included (`--budget`).
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
    /// precise ends too often where the heats agree by chance: at 95 % it finds a difference
    /// between identical servers in up to 10 of 100 runs. With half the alpha, and no look before
    /// the fifth heat, it is fewer than 5, however many looks there are (the second table in
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
    /// Seconds that a heat costs before its first block: starting and warming up every server.
    pub heat_s: f64,
    /// Seconds that one block costs: every server twice, with what lies between the laps.
    pub block_s: f64,
}

/// How much is due to what, in log units.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Standard deviation between heats.
    pub sd_heat: f64,
    /// Standard deviation between blocks of one heat.
    pub sd_block: f64,
}

impl Default for Spread {
    /// Before anything is known: starts differ half as much as blocks do.
    fn default() -> Self {
        Self { sd_heat: 0.5, sd_block: 1.0 }
    }
}

/// So many heats of so many blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Fresh starts.
    pub heats: u32,
    /// Blocks in each.
    pub blocks: u32,
}

impl Plan {
    /// Seconds that it takes.
    #[must_use]
    pub fn seconds(&self, costs: &Costs) -> f64 {
        f64::from(self.heats) * (costs.heat_s + f64::from(self.blocks) * costs.block_s)
    }

    /// The plan with the narrowest expected interval that `budget_s` pays for, given that `before`
    /// heats are already there; at least one heat of one block, even if that is over the budget.
    ///
    /// Kalibera and Jones (ISMM 2013, section 6.3) give the blocks that make best use of time,
    /// √(start / block cost × block / start variance), but leave the heats to the wish for
    /// precision. With few heats Student's quantile decides as much as the variances do (12.7 at
    /// two heats, 4.3 at three, 2.8 at five), so the plan is searched for instead: the least
    /// t(heats - 1) × √((sd_heat² + sd_block² / blocks) / heats).
    #[must_use]
    pub fn within(budget_s: f64, costs: &Costs, spread: &Spread, before: u32) -> Self {
        let least = Self { heats: 1, blocks: 1 };
        let affordable = (1..=HEATS_MAX).filter_map(|heats| {
            let blocks = (budget_s / f64::from(heats) - costs.heat_s) / costs.block_s;
            // A share of a block that is missing for want of a rounding is not missing.
            let blocks = (blocks + 1e-9).floor().min(f64::from(BLOCKS_MAX));
            (blocks >= 1.0).then_some(Self { heats, blocks: blocks as u32 })
        });
        affordable
            .map(|plan| (plan.half_width(spread, before), plan))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map_or(least, |(_, plan)| plan)
    }

    /// Half the interval that is to be expected at 95 %, in log units.
    fn half_width(&self, spread: &Spread, before: u32) -> f64 {
        let heats = f64::from(self.heats + before);
        // A lone block has none beside it to show that it was disturbed: with 5 % of laps hit, five
        // heats of one block know three times less than five of two (the table in tests/coverage).
        let lone = if self.blocks == 1 { 3.0 } else { 1.0 };
        let within = (lone * spread.sd_block).powi(2) / f64::from(self.blocks);
        // One heat alone rests on its blocks, which say nothing of the next start, and two say next
        // to nothing at all (12.7): of these two plans of last resort, the one that says something.
        if heats < 3.0 {
            return if heats < 2.0 { f64::MAX / 2.0 } else { f64::MAX };
        }
        student::quantile(0.05, heats - 1.0) * ((spread.sd_heat.powi(2) + within) / heats).sqrt()
    }
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress<'a> {
    /// Seconds spent so far, of the goal's budget.
    pub spent_s: f64,
    /// What a heat and a block have cost so far; before the first, what they are expected to.
    pub costs: Costs,
    /// Heats begun, the present one included.
    pub heats: u32,
    /// Blocks of the present heat that are done.
    pub blocks: u32,
    /// The pairs of every server that is compared, so far.
    pub contestants: &'a [Vec<Pair>],
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Next {
    /// Another block in the present heat.
    Block,
    /// Start every server afresh.
    Heat,
    /// It is enough.
    Stop(Why),
}

/// Why it is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Every interval is as narrow as was asked for.
    Precise,
    /// What is left of the budget does not pay for another block.
    Budget,
}

/// The stopping rule of one run: asked after each block (and once before the first heat).
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    goal: Goal,
    /// Blocks that the present heat is to have.
    blocks: u32,
    /// The heat that `blocks` was planned for.
    planned: u32,
}

impl Rule {
    /// A rule for one run.
    #[must_use]
    pub fn new(goal: Goal) -> Self {
        Self { goal, blocks: 1, planned: 0 }
    }

    /// What to do next.
    pub fn next(&mut self, progress: &Progress<'_>) -> Next {
        let left_s = self.goal.budget_s - progress.spent_s;
        if progress.heats == 0 {
            return Next::Heat;
        }
        if self.planned != progress.heats {
            self.blocks = self.blocks_of_heat(progress, left_s);
            self.planned = progress.heats;
        }
        let pays = |cost_s: f64| cost_s <= left_s + 1e-9;
        let another_block = pays(progress.costs.block_s);
        if progress.blocks == 0 || (progress.blocks < self.blocks && another_block) {
            return Next::Block;
        }
        if self.is_precise(progress) {
            return Next::Stop(Why::Precise);
        }
        // A second heat is worth its start only where a third can follow.
        let to_come = if progress.heats == 1 { 2.0 } else { 1.0 };
        let another_heat = pays(to_come * (progress.costs.heat_s + progress.costs.block_s));
        if progress.heats < HEATS_MAX && another_heat {
            return Next::Heat;
        }
        if another_block && progress.blocks < BLOCKS_MAX {
            return Next::Block;
        }
        Next::Stop(Why::Budget)
    }

    /// How many blocks the heat that has just begun is to have: the best plan for what is left.
    fn blocks_of_heat(&self, progress: &Progress<'_>, left_s: f64) -> u32 {
        let before = progress.heats - 1;
        let at_start_s = left_s + progress.costs.heat_s + self.done_s(progress);
        let spread = spread(progress.contestants);
        Plan::within(at_start_s, &progress.costs, &spread, before).blocks
    }

    fn done_s(&self, progress: &Progress<'_>) -> f64 {
        f64::from(progress.blocks) * progress.costs.block_s
    }

    /// Whether every interval is narrow enough.
    fn is_precise(&self, progress: &Progress<'_>) -> bool {
        let Some(precision) = self.goal.precision else { return false };
        !progress.contestants.is_empty()
            && progress.contestants.iter().all(|pairs| {
                let effect = effect(pairs, self.goal.confidence_of_run());
                effect.is_some_and(|e| {
                    e.heats >= HEATS_BEFORE_LOOK && e.ratio.relative_half_width() <= precision
                })
            })
    }
}

/// The spread to plan with: that of the contestant in the middle, once there are heats to tell it.
fn spread(contestants: &[Vec<Pair>]) -> Spread {
    let effects: Vec<_> =
        contestants.iter().filter_map(|p| effect(p, 0.95)).filter(|e| e.heats >= 3).collect();
    let heats = median(&effects.iter().map(|e| e.sd_heat).collect::<Vec<_>>());
    let blocks = median(&effects.iter().map(|e| e.sd_block).collect::<Vec<_>>());
    let least = Spread::default();
    match (heats, blocks) {
        // Never fewer heats than before anything was known: heats that agree by chance would
        // otherwise end the run while they do, and that is a false alarm more in 100 runs or two.
        (Some(sd_heat), Some(sd_block)) if sd_block > 0.0 => {
            Spread { sd_heat: sd_heat.max(least.sd_heat * sd_block), sd_block }
        }
        _ => least,
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    const CHEAP: Costs = Costs { heat_s: 1.0, block_s: 3.0 };

    fn played(goal: Goal, costs: Costs) -> (Vec<u32>, Why) {
        let mut rule = Rule::new(goal);
        let (mut spent_s, mut heats) = (0.0, Vec::<u32>::new());
        loop {
            let blocks = heats.last().copied().unwrap_or(0);
            let progress =
                Progress { spent_s, costs, heats: heats.len() as u32, blocks, contestants: &[] };
            match rule.next(&progress) {
                Next::Heat => {
                    heats.push(0);
                    spent_s += costs.heat_s;
                }
                Next::Block => {
                    *heats.last_mut().unwrap() += 1;
                    spent_s += costs.block_s;
                }
                Next::Stop(why) => return (heats, why),
            }
        }
    }

    #[test]
    fn the_budget_is_spent_and_never_exceeded() {
        for heat_s in [0.1, 1.0, 5.0, 20.0] {
            for block_s in [1.0, 3.0, 9.0] {
                let costs = Costs { heat_s, block_s };
                let (heats, why) = played(Goal::default(), costs);
                let blocks: u32 = heats.iter().sum();
                let spent_s = heats.len() as f64 * heat_s + f64::from(blocks) * block_s;
                assert_eq!(why, Why::Budget);
                assert!(spent_s <= 60.0 + 1e-6, "{costs:?}: {spent_s} s, {heats:?}");
                assert!(spent_s > 60.0 - heat_s - block_s - 1e-6, "{costs:?}: {spent_s} s");
            }
        }
    }

    #[test]
    fn where_starts_are_cheap_there_are_at_least_five() {
        let plan = Plan::within(60.0, &CHEAP, &Spread::default(), 0);
        assert!(plan.heats >= 5, "{plan:?}");
        assert!(plan.seconds(&CHEAP) <= 60.0);
    }

    /// Sixteen virtual machines that take three minutes to start had two heats in five minutes, and
    /// every interval said nothing.
    #[test]
    fn where_three_starts_are_too_dear_there_is_one() {
        let goal = Goal { budget_s: 300.0, ..Goal::default() };
        let heats = |heat_s| played(goal, Costs { heat_s, block_s: 13.0 }).0;
        assert_eq!(heats(180.0), [9]);
        assert_eq!(heats(100.0), [15]);
        assert_eq!(heats(80.0), [1, 1, 2]);
        assert_eq!(heats(40.0), [2, 2, 3, 3]);
    }

    #[test]
    fn repeats_go_where_the_variance_is() {
        let plan = |sd_heat, heat_s| {
            let costs = Costs { heat_s, block_s: 1.0 };
            Plan::within(120.0, &costs, &Spread { sd_heat, sd_block: 1.0 }, 0)
        };
        assert!(plan(2.0, 5.0).blocks < plan(0.0, 5.0).blocks);
        assert!(plan(0.5, 20.0).heats < plan(0.5, 2.0).heats);
    }

    #[test]
    fn a_budget_too_small_still_gives_one_block() {
        let goal = Goal { budget_s: 0.5, ..Goal::default() };
        assert_eq!(played(goal, CHEAP), (vec![1], Why::Budget));
    }

    /// Pairs of this many heats of two blocks: each heat around 0 by ± `heat`, each block by
    /// ± `block`.
    fn pairs(heats: u32, heat: f64, block: f64) -> Vec<Pair> {
        let sign = |i: u32| if i.is_multiple_of(2) { -1.0 } else { 1.0 };
        let pair = |i: u32| Pair {
            heat: i / 2,
            block: i % 2,
            log_ratio: heat * sign(i / 2) + block * sign(i),
        };
        (0..2 * heats).map(pair).collect()
    }

    fn ended(contestants: &[Vec<Pair>], precision: f64) -> bool {
        let goal = Goal { precision: Some(precision), ..Goal::default() };
        let progress = Progress { spent_s: 0.0, costs: CHEAP, heats: 6, blocks: 50, contestants };
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
    fn four_heats_are_too_few_to_look() {
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
    fn a_plan_costs_its_starts_and_its_blocks() {
        assert_eq!(Plan { heats: 4, blocks: 2 }.seconds(&CHEAP), 28.0);
    }

    /// Computed in Python by trying all plans: the least
    /// `t * sqrt((sd_heat**2 + sd_block**2 / blocks) / (before + heats))`, t being the 97.5 %
    /// quantile at before + heats - 1 degrees of freedom (by integrating the density), where one
    /// block counts with three times its deviation.
    #[test]
    fn the_plan_is_the_one_with_the_narrowest_interval() {
        let plan = |sd_heat, budget_s, heat_s, block_s, before| {
            let (costs, spread) = (Costs { heat_s, block_s }, Spread { sd_heat, sd_block: 1.0 });
            let plan = Plan::within(budget_s, &costs, &spread, before);
            (plan.heats, plan.blocks)
        };
        assert_eq!(plan(0.5, 60.0, 1.0, 3.0, 0), (8, 2));
        assert_eq!(plan(0.5, 60.0, 1.0, 3.0, 3), (8, 2));
        assert_eq!(plan(2.0, 120.0, 5.0, 1.0, 0), (17, 2));
        assert_eq!(plan(0.0, 120.0, 5.0, 1.0, 0), (8, 10));
        assert_eq!(plan(0.5, 120.0, 20.0, 1.0, 0), (5, 4));
        assert_eq!(plan(0.5, 120.0, 2.0, 1.0, 0), (20, 4));
        assert_eq!(plan(0.1, 300.0, 30.0, 2.0, 0), (5, 15));
        assert_eq!(plan(0.5, 6_000.0, 1.0, 3.0, 0), (20, 50));
        // Not even one block is affordable, and just one is.
        assert_eq!(plan(0.5, 3.9, 1.0, 3.0, 0), (1, 1));
        assert_eq!(plan(0.5, 4.0, 1.0, 3.0, 0), (1, 1));
    }

    #[test]
    fn there_are_at_most_20_heats_of_50_blocks() {
        let goal = Goal { budget_s: 1e6, ..Goal::default() };
        assert_eq!(played(goal, CHEAP), (vec![50; 20], Why::Budget));
    }

    #[test]
    fn fewer_than_three_heats_say_nothing_and_one_says_more_than_two() {
        let half = |heats, before| Plan { heats, blocks: 2 }.half_width(&Spread::default(), before);
        assert_eq!((half(1, 0), half(2, 0), half(1, 1)), (f64::MAX / 2.0, f64::MAX, f64::MAX));
        // t(2) = 4.3027, √((0.25 + 1 / 2) / 3) = 0.5.
        assert!((half(3, 0) - 2.151_326).abs() < 1e-5 && half(3, 0) == half(1, 2));
        // A lone block counts with three times its deviation: √((0.25 + 9) / 3).
        let lone = Plan { heats: 3, blocks: 1 }.half_width(&Spread::default(), 0);
        assert!((lone - 4.302_653 * f64::sqrt(9.25 / 3.0)).abs() < 1e-5);
        let spread = Spread { sd_heat: 0.5, sd_block: 2.0 };
        let lone = Plan { heats: 3, blocks: 1 }.half_width(&spread, 0);
        assert!((lone - 4.302_653 * f64::sqrt(36.25 / 3.0)).abs() < 1e-5);
    }

    #[test]
    fn a_heat_gets_the_same_plan_whenever_it_is_made() {
        // The first heat of 140 s: at its start, and after some blocks of it.
        let costs = Costs { heat_s: 20.0, block_s: 2.0 };
        let asked = |blocks: u32| {
            let mut rule = Rule::new(Goal { budget_s: 140.0, ..Goal::default() });
            let spent_s = costs.heat_s + costs.block_s * f64::from(blocks);
            let progress = Progress { spent_s, costs, heats: 1, blocks, contestants: &[] };
            let _ = rule.next(&progress);
            rule.blocks
        };
        let planned = Plan::within(140.0, &costs, &Spread::default(), 0);
        assert_eq!(planned, Plan { heats: 5, blocks: 4 });
        assert_eq!([asked(0), asked(1), asked(3), asked(4)], [4; 4]);
    }

    #[test]
    fn plans_go_by_the_spread_of_the_contestant_in_the_middle() {
        let spreads =
            [pairs(4, 0.3, 0.1), pairs(4, 0.5, 0.2), pairs(4, 0.9, 0.3), pairs(2, 99.0, 99.0)];
        let found = spread(&spreads);
        let middle = effect(&spreads[1], 0.95).unwrap();
        assert_eq!(found, Spread { sd_heat: middle.sd_heat, sd_block: middle.sd_block });
        // Heats that agree by chance are taken for half as different as blocks.
        let found = spread(&[pairs(4, 0.0, 0.2)]);
        assert!(found.sd_block > 0.1 && found.sd_heat == 0.5 * found.sd_block, "{found:?}");
        // Nothing is known of two heats, or of heats of one block.
        assert_eq!(spread(&[pairs(2, 0.3, 0.1)]), Spread::default());
        assert_eq!(spread(&[pairs(4, 0.3, 0.0)]), Spread::default());
        assert_ne!(spread(&[pairs(3, 0.3, 0.1)]), Spread::default());
    }

    #[test]
    fn a_second_heat_needs_the_time_of_a_third() {
        let next = |heats, blocks, left_s: f64| {
            let mut rule = Rule::new(Goal::default());
            let progress =
                Progress { spent_s: 60.0 - left_s, costs: CHEAP, heats, blocks, contestants: &[] };
            rule.next(&progress)
        };
        assert_eq!((next(1, 20, 8.0), next(1, 20, 7.9)), (Next::Heat, Next::Block));
        assert_eq!((next(2, 20, 4.0), next(2, 20, 3.9)), (Next::Heat, Next::Block));
        let stop = Next::Stop(Why::Budget);
        assert_eq!((next(2, 20, 3.0), next(2, 20, 2.9)), (Next::Block, stop));
        // There are no more than 20 heats and 50 blocks.
        assert_eq!((next(19, 50, 4.0), next(20, 50, 4.0)), (Next::Heat, stop));
        assert_eq!((next(20, 49, 4.0), next(2, 50, 3.9)), (Next::Block, stop));
    }
}
