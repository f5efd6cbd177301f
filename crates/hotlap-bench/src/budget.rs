//! Decides how many restarts and rounds to run, from what has been run and how long it took.
//!
//! It is separate from the schedule because it only does arithmetic: it starts nothing and reads no
//! clock. The stopping rule is in `hotlap_stats`; counts that the user set override it.

use std::time::Duration;

use hotlap_stats::{
    Costs, Decision, Goal, MIN_RESTARTS, Pair, RESTARTS_BEFORE_LOOK, RunProgress, StopReason,
    StoppingRule, median, pairs, pooled,
};

use crate::experiment::{Experiment, Over, Place};
use crate::lap::{Kind, Lap, Share, readings};
use crate::participant::Role;

/// Maximum number of restarts that end with paced laps: the first ones, one for each of this many
/// parts of the budget (METHODOLOGY, *A run*).
const PACED_RESTARTS: u32 = 4;
const BUDGET_A_PACED_RESTART: Duration = Duration::from_secs(15);

/// What a budget that may grow always has time for: enough restarts to judge by, or, if those take
/// longer than [`LONG`], the fewest that allow a verdict. Each has more than one round, because
/// nothing shows whether a single round was disturbed.
const USEFUL_RESTARTS: [u32; 2] = [RESTARTS_BEFORE_LOOK, MIN_RESTARTS];
const USEFUL_ROUNDS: u32 = 2;

/// Nobody waits longer than this without having asked for it, as far as it can be helped.
const LONG: Duration = Duration::from_secs(600);

/// What to run next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another round of this restart.
    Round,
    /// Another restart.
    Restart,
    /// Nothing.
    Stop(Over),
}

/// What has been run, and how long it took.
#[derive(Debug)]
pub struct Budget {
    experiment: Experiment,
    /// The experiment's, or what a useful result takes if that is longer and the budget may grow.
    total: Duration,
    rule: StoppingRule,
    started: Vec<Duration>,
    /// Expected time to start all servers once more.
    again: Duration,
    rounds: Vec<Duration>,
    paced: Vec<Duration>,
    /// Restart, round and share of the cost of every lap that counts, by participant and load.
    costs: Vec<Vec<Vec<(u32, u32, Share)>>>,
    /// Requests/s of every lap that counts under the first closed loop, by participant.
    rates: Vec<Vec<f64>>,
    out: Vec<bool>,
}

impl Budget {
    /// A budget of which nothing is spent.
    #[must_use]
    pub fn new(experiment: &Experiment) -> Self {
        let n = experiment.participants.len();
        let goal = Goal {
            budget_s: experiment.budget.as_secs_f64(),
            precision: experiment.precision,
            ..Goal::default()
        };
        let mut budget = Self {
            rule: StoppingRule::new(goal),
            total: experiment.budget,
            started: Vec::new(),
            again: Duration::ZERO,
            rounds: Vec::new(),
            paced: Vec::new(),
            costs: vec![vec![Vec::new(); experiment.loads.len()]; n],
            rates: vec![Vec::new(); n],
            out: (0..n).map(|i| experiment.past.out.contains(&i)).collect(),
            experiment: experiment.clone(),
        };
        for lap in &experiment.past.laps {
            let share = lap.cost.unwrap_or(lap.rate);
            budget.costs[lap.participant][lap.load].push((lap.at.restart, lap.at.round, share));
            if Some(lap.load) == experiment.closed_loop() {
                budget.rates[lap.participant].extend(lap.rate.value());
            }
        }
        budget
    }

    /// The servers of a restart are started and warmed up; `again` is the part of that time that
    /// the next restart will take too.
    pub fn restart_started(&mut self, took: Duration, again: Duration) {
        self.started.push(took);
        self.again = again;
    }

    /// A round has ended.
    pub fn round_run(&mut self, took: Duration) {
        self.rounds.push(took);
    }

    /// A restart's paced laps have ended.
    pub fn paced_run(&mut self, took: Duration) {
        self.paced.push(took);
    }

    /// A server was dropped.
    pub fn failure(&mut self, participant: usize) {
        self.out[participant] = true;
    }

    /// A lap has ended.
    pub fn lap(&mut self, lap: &Lap) {
        // Laps at the common rate do not count for the cost under their load; laps of a load with
        // its own rate do.
        let is_paced = lap.kind != Kind::Flat;
        if is_paced != self.experiment.loads[lap.load].rate.is_some() || !lap.counts() {
            return;
        }
        if Some(lap.load) == self.experiment.closed_loop() {
            self.rates[lap.participant].push(lap.outcome.rate());
        }
        // Servers of unknown cost are compared by their rate.
        let share = lap.cost_share().unwrap_or_else(|| lap.rate_share());
        self.costs[lap.participant][lap.load].push((lap.restart, lap.round, share));
    }

    /// Half of the slowest server's throughput, in requests/s: a rate that all can sustain.
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

    /// Whether a restart ends with paced laps. Their histograms are merged, not paired, so more
    /// than four laps of each server, from four starts, add little; the time is better spent on
    /// pairs.
    #[must_use]
    pub fn is_paced(&self, restart: u32) -> bool {
        let paid = self.experiment.budget.as_secs() / BUDGET_A_PACED_RESTART.as_secs();
        let is_asked = self.experiment.paced && self.experiment.closed_loop().is_some();
        is_asked && u64::from(restart) < paid.clamp(1, u64::from(PACED_RESTARTS))
    }

    /// What to run next; `next` is the first place that has not been run.
    pub fn next(&mut self, next: Place, elapsed: Duration) -> Next {
        self.grow();
        let elapsed = self.of_the_budget(elapsed);
        let begun = next.restart + 1;
        match (self.experiment.restarts, self.experiment.rounds) {
            (Some(restarts), Some(rounds)) => {
                if next.round < rounds {
                    Next::Round
                } else if begun < restarts {
                    Next::Restart
                } else {
                    Next::Stop(Over::Done)
                }
            }
            (Some(restarts), None) => {
                let share = self.total * begun / restarts.max(1);
                if elapsed + self.paced_takes(next.restart) + mean(&self.rounds) <= share {
                    Next::Round
                } else if begun < restarts {
                    Next::Restart
                } else {
                    Next::Stop(Over::Budget)
                }
            }
            (None, Some(rounds)) if next.round < rounds => Next::Round,
            (None, Some(rounds)) => {
                // This restart's paced laps, and the next restart's.
                let paced = self.paced_takes(next.restart) + self.paced_takes(begun);
                let restart = self.start_takes() + mean(&self.rounds) * rounds;
                let fits = elapsed + restart + paced <= self.total;
                if fits { Next::Restart } else { Next::Stop(Over::Budget) }
            }
            (None, None) => self.by_rule(next, elapsed),
        }
    }

    /// Whether the budget has time for another round of this restart.
    #[must_use]
    pub fn has_time_for_round(&self, elapsed: Duration) -> bool {
        self.of_the_budget(elapsed) + mean(&self.rounds) <= self.total
    }

    /// Whether the budget has time for another restart of some rounds.
    #[must_use]
    pub fn has_time_for_restart(&self, elapsed: Duration, rounds: u32) -> bool {
        let restart = self.start_takes() + mean(&self.rounds) * rounds;
        self.of_the_budget(elapsed) + restart <= self.total
    }

    fn by_rule(&mut self, next: Place, elapsed: Duration) -> Next {
        let comparisons = self.comparisons();
        let progress = RunProgress {
            // What ends this restart is as good as spent.
            spent_s: (elapsed + self.paced_takes(next.restart)).as_secs_f64(),
            costs: self.what_time_buys(next.restart + 1),
            restarts: next.restart + 1,
            rounds: next.round,
            comparisons: &comparisons,
        };
        match self.rule.next(&progress) {
            Decision::Round => Next::Round,
            Decision::Restart => Next::Restart,
            Decision::Stop(StopReason::Precise) => Next::Stop(Over::Precise),
            Decision::Stop(StopReason::Budget) => Next::Stop(Over::Budget),
        }
    }

    /// Extends a budget that may grow, once the length of rounds and starts is known.
    fn grow(&mut self) {
        if !self.experiment.may_grow {
            return;
        }
        let [usual, fewest] = USEFUL_RESTARTS.map(|restarts| self.takes(restarts, USEFUL_ROUNDS));
        self.total = self.total.max(if usual <= LONG { usual } else { fewest });
        self.rule.set_budget_s(self.total.as_secs_f64());
    }

    /// The part of the budget that so many restarts take, of so many rounds each.
    fn takes(&self, restarts: u32, rounds: u32) -> Duration {
        let paced: Duration = (0..restarts).map(|restart| self.paced_takes(restart)).sum();
        mean(&self.rounds) * (restarts * rounds) + self.start_takes() * (restarts - 1) + paced
    }

    /// The whole budget, as it is now.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.total
    }

    /// Estimated time left.
    #[must_use]
    pub fn left(&self, next: Place, elapsed: Duration) -> Duration {
        let (Some(restarts), Some(rounds)) = (self.experiment.restarts, self.experiment.rounds)
        else {
            return self.total.saturating_sub(self.of_the_budget(elapsed));
        };
        let rounds_here = rounds.saturating_sub(next.round);
        let restarts_after = restarts.saturating_sub(next.restart + 1);
        let paced: Duration = (next.restart..next.restart + 1 + restarts_after)
            .map(|restart| self.paced_takes(restart))
            .sum();
        let restart = self.start_takes() + mean(&self.rounds) * rounds;
        mean(&self.rounds) * rounds_here + paced + restart * restarts_after
    }

    /// The part of the elapsed time that counts against the budget: not the first start, with its
    /// full verification and long warm-ups. The budget is for measuring.
    fn of_the_budget(&self, elapsed: Duration) -> Duration {
        elapsed.saturating_sub(self.started.first().copied().unwrap_or_default())
    }

    /// Time to start and warm up all servers once more.
    fn start_takes(&self) -> Duration {
        match &self.started[..] {
            [] | [_] => self.again,
            [_, later @ ..] => mean(later),
        }
    }

    /// Time of a restart's paced laps; before there are any, half of a load's round.
    fn paced_takes(&self, restart: u32) -> Duration {
        match (self.is_paced(restart), &self.paced[..]) {
            (false, _) => Duration::ZERO,
            (true, []) => {
                mean(&self.rounds) / 2 / u32::try_from(self.experiment.loads.len()).unwrap_or(1)
            }
            (true, paced) => mean(paced),
        }
    }

    /// The costs of the next restart and of a round. Each restart pays for the paced laps that end
    /// it.
    fn what_time_buys(&self, restart: u32) -> Costs {
        let round_s = mean(&self.rounds).as_secs_f64().max(1e-3);
        Costs { restart_s: (self.start_takes() + self.paced_takes(restart)).as_secs_f64(), round_s }
    }

    /// The pairs of every server and load against the reference, as in the report: reference and
    /// control count as one side, except for the control itself.
    fn comparisons(&self) -> Vec<Vec<Pair>> {
        let role = |role| self.experiment.participants.iter().position(|e| e.role == role);
        let Some(reference) = role(Role::Reference) else { return Vec::new() };
        let double = role(Role::Control);
        (0..self.experiment.participants.len())
            .filter(|n| *n != reference && !self.out[*n])
            .flat_map(|n| (0..self.experiment.loads.len()).map(move |load| (n, load)))
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
