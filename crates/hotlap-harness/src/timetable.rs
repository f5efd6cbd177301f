//! How many heats and blocks: what has been run, what it took, and what is still worth running.
//!
//! Apart from the schedule because it only counts: it starts nothing and asks nobody the time. The
//! rule itself is the statistics'; here it is fed, and the counts that a user asked for override
//! it.

use std::time::Duration;

use hotlap_stats::{
    Costs, Decision, Goal, Pair, RunProgress, StopReason, StoppingRule, median, pairs, pooled,
};

use crate::entrant::Role;
use crate::lap::{Kind, Lap, Share, readings};
use crate::race::{Over, Place, Race};

/// Heats that end with paced laps: the first ones, at most so many, and one for each of these parts
/// of the budget.
const PACED_HEATS: u32 = 4;
const BUDGET_A_PACED_HEAT: Duration = Duration::from_secs(15);

/// What to run next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another block of this heat.
    Block,
    /// Another heat.
    Heat,
    /// Nothing.
    Stop(Over),
}

/// What has been run and what it took.
#[derive(Debug)]
pub struct Timetable {
    race: Race,
    rule: StoppingRule,
    started: Vec<Duration>,
    /// What a second start of all is expected to take.
    again: Duration,
    blocks: Vec<Duration>,
    paced: Vec<Duration>,
    /// Heat, block and share of the cost of every lap that counts, by entrant and load.
    costs: Vec<Vec<Vec<(u32, u32, Share)>>>,
    /// Requests/s of every lap that counts under the first closed loop, by entrant.
    rates: Vec<Vec<f64>>,
    out: Vec<bool>,
}

impl Timetable {
    /// An empty one.
    #[must_use]
    pub fn new(race: &Race) -> Self {
        let n = race.entrants.len();
        let goal = Goal {
            budget_s: race.budget.as_secs_f64(),
            precision: race.precision,
            ..Goal::default()
        };
        let mut timetable = Self {
            rule: StoppingRule::new(goal),
            started: Vec::new(),
            again: Duration::ZERO,
            blocks: Vec::new(),
            paced: Vec::new(),
            costs: vec![vec![Vec::new(); race.loads.len()]; n],
            rates: vec![Vec::new(); n],
            out: (0..n).map(|i| race.past.out.contains(&i)).collect(),
            race: race.clone(),
        };
        for lap in &race.past.laps {
            let share = lap.cost.unwrap_or(lap.rate);
            timetable.costs[lap.entrant][lap.load].push((lap.at.heat, lap.at.block, share));
            if Some(lap.load) == race.closed_loop() {
                timetable.rates[lap.entrant].extend(lap.rate.value());
            }
        }
        timetable
    }

    /// A heat's servers are started and warm; `again` is what of that the next heat will take too.
    pub fn heat_started(&mut self, took: Duration, again: Duration) {
        self.started.push(took);
        self.again = again;
    }

    /// A block is run.
    pub fn block_run(&mut self, took: Duration) {
        self.blocks.push(took);
    }

    /// A heat's paced laps are run.
    pub fn paced_run(&mut self, took: Duration) {
        self.paced.push(took);
    }

    /// A server is out.
    pub fn retired(&mut self, entrant: usize) {
        self.out[entrant] = true;
    }

    /// A lap is run.
    pub fn lap(&mut self, lap: &Lap) {
        // Laps at a common rate say nothing of the cost under their load; those of a load that has
        // a rate of its own do.
        let is_paced = lap.kind != Kind::Flat;
        if is_paced != self.race.loads[lap.load].rate.is_some() || !lap.counts() {
            return;
        }
        if Some(lap.load) == self.race.closed_loop() {
            self.rates[lap.entrant].push(lap.outcome.rate());
        }
        // Servers whose cost cannot be seen are compared by their rate.
        let share = lap.cost_share().unwrap_or_else(|| lap.rate_share());
        self.costs[lap.entrant][lap.load].push((lap.heat, lap.block, share));
    }

    /// Half of what the slowest reaches: a rate that all can carry, in requests/s.
    #[must_use]
    pub fn common_rate(&self) -> Option<f64> {
        self.rates
            .iter()
            .enumerate()
            .filter(|(n, _)| !self.out[*n])
            .filter_map(|(_, rates)| median(rates))
            .filter(|rate| *rate > 0.0)
            .min_by(f64::total_cmp)
            .map(|rate| rate / 2.0)
    }

    /// Whether a heat ends with paced laps. Their histograms are merged and not paired, so four
    /// laps of each server, of four starts, tell what more would tell, and the time is better spent
    /// on pairs.
    #[must_use]
    pub fn is_paced(&self, heat: u32) -> bool {
        let paid = self.race.budget.as_secs() / BUDGET_A_PACED_HEAT.as_secs();
        let is_asked = self.race.paced && self.race.closed_loop().is_some();
        is_asked && u64::from(heat) < paid.clamp(1, u64::from(PACED_HEATS))
    }

    /// What comes next, `next` being the first place that is not run yet.
    pub fn next(&mut self, next: Place, elapsed: Duration) -> Next {
        let elapsed = self.of_the_budget(elapsed);
        let begun = next.heat + 1;
        match (self.race.heats, self.race.blocks) {
            (Some(heats), Some(blocks)) => {
                if next.block < blocks {
                    Next::Block
                } else if begun < heats {
                    Next::Heat
                } else {
                    Next::Stop(Over::Done)
                }
            }
            (Some(heats), None) => {
                let share = self.race.budget * begun / heats.max(1);
                if elapsed + self.paced_takes(next.heat) + mean(&self.blocks) <= share {
                    Next::Block
                } else if begun < heats {
                    Next::Heat
                } else {
                    Next::Stop(Over::Budget)
                }
            }
            (None, Some(blocks)) if next.block < blocks => Next::Block,
            (None, Some(blocks)) => {
                // This heat's paced laps, and all of the next.
                let paced = self.paced_takes(next.heat) + self.paced_takes(begun);
                let heat = self.start_takes() + mean(&self.blocks) * blocks;
                let fits = elapsed + heat + paced <= self.race.budget;
                if fits { Next::Heat } else { Next::Stop(Over::Budget) }
            }
            (None, None) => self.by_rule(next, elapsed),
        }
    }

    fn by_rule(&mut self, next: Place, elapsed: Duration) -> Next {
        let comparisons = self.comparisons();
        let progress = RunProgress {
            // What ends this heat is as good as spent.
            spent_s: (elapsed + self.paced_takes(next.heat)).as_secs_f64(),
            costs: self.what_time_buys(next.heat + 1),
            heats: next.heat + 1,
            blocks: next.block,
            comparisons: &comparisons,
        };
        match self.rule.next(&progress) {
            Decision::Block => Next::Block,
            Decision::Heat => Next::Heat,
            Decision::Stop(StopReason::Precise) => Next::Stop(Over::Precise),
            Decision::Stop(StopReason::Budget) => Next::Stop(Over::Budget),
        }
    }

    /// What the race will probably still take.
    #[must_use]
    pub fn left(&self, next: Place, elapsed: Duration) -> Duration {
        let (Some(heats), Some(blocks)) = (self.race.heats, self.race.blocks) else {
            return self.race.budget.saturating_sub(self.of_the_budget(elapsed));
        };
        let blocks_here = blocks.saturating_sub(next.block);
        let heats_after = heats.saturating_sub(next.heat + 1);
        let paced: Duration =
            (next.heat..next.heat + 1 + heats_after).map(|heat| self.paced_takes(heat)).sum();
        let heat = self.start_takes() + mean(&self.blocks) * blocks;
        mean(&self.blocks) * blocks_here + paced + heat * heats_after
    }

    /// What of the time so far is the budget's: the first start is not, in which contracts are
    /// verified whole and warm-ups judged at length. A budget buys measuring.
    fn of_the_budget(&self, elapsed: Duration) -> Duration {
        elapsed.saturating_sub(self.started.first().copied().unwrap_or_default())
    }

    /// What it takes to start and to warm up all servers once more.
    fn start_takes(&self) -> Duration {
        match &self.started[..] {
            [] | [_] => self.again,
            [_, later @ ..] => mean(later),
        }
    }

    /// What the paced laps of a heat take; half of a load's block, before there are any.
    fn paced_takes(&self, heat: u32) -> Duration {
        match (self.is_paced(heat), &self.paced[..]) {
            (false, _) => Duration::ZERO,
            (true, []) => {
                mean(&self.blocks) / 2 / u32::try_from(self.race.loads.len()).unwrap_or(1)
            }
            (true, paced) => mean(paced),
        }
    }

    /// What the next heat and a block cost. Paced laps end a heat, so each heat pays for its own.
    fn what_time_buys(&self, heat: u32) -> Costs {
        let block_s = mean(&self.blocks).as_secs_f64().max(1e-3);
        Costs { heat_s: (self.start_takes() + self.paced_takes(heat)).as_secs_f64(), block_s }
    }

    /// The pairs of every server and load against the reference, as the report will have them: the
    /// reference and its double are one side, but for the double itself.
    fn comparisons(&self) -> Vec<Vec<Pair>> {
        let role = |role| self.race.entrants.iter().position(|e| e.role == role);
        let Some(reference) = role(Role::Reference) else { return Vec::new() };
        let double = role(Role::Double);
        (0..self.race.entrants.len())
            .filter(|n| *n != reference && !self.out[*n])
            .flat_map(|n| (0..self.race.loads.len()).map(move |load| (n, load)))
            .map(|(n, load)| {
                let of = |n: usize| readings(self.costs[n][load].iter().copied());
                let against = match double.filter(|double| *double != n) {
                    Some(double) => pooled(&of(reference), &of(double)),
                    None => of(reference),
                };
                pairs(&of(n), &against)
            })
            .collect()
    }
}

fn mean(durations: &[Duration]) -> Duration {
    let n = u32::try_from(durations.len()).unwrap_or(u32::MAX);
    durations.iter().sum::<Duration>().checked_div(n).unwrap_or_default()
}
