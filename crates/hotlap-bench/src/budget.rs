//! Decides how many restarts and rounds to run, from what has been run and how long it took.
//!
//! It is separate from the schedule because it only does arithmetic: it starts nothing and reads no
//! clock. How many restarts divide the time best is known by `hotlap_stats`. Counts that the user
//! set come first.

use std::time::Duration;

use hotlap_stats::{
    ByRestart, Costs, MIN_RESTARTS, RESTARTS_BEFORE_LOOK, Share, further_restarts, is_precise,
    median, pairs,
};

use crate::experiment::{Experiment, Over, Place};
use crate::lap::{Lap, LapKind, readings};
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
    started: Vec<Duration>,
    /// Expected time to start all servers once more.
    again: Duration,
    /// How long rounds took. The first of each restart has the A/A control and the ceiling too.
    first_rounds: Vec<Duration>,
    rounds: Vec<Duration>,
    paced: Vec<Duration>,
    /// The rounds of the restarts that have ended.
    had: Vec<u32>,
    /// The present restart, and when the next one should begin.
    until: Option<(u32, Duration)>,
    /// Length of a lap.
    lap: Duration,
    /// Restart, round and share of the cost of every lap that counts, by participant and load.
    costs: Vec<Vec<Vec<(u32, u32, Share)>>>,
    /// Requests/s of every lap that counts under the first closed loop, by participant.
    rates: Vec<Vec<f64>>,
    out: Vec<bool>,
}

impl Budget {
    /// A budget of which nothing is spent.
    pub fn new(experiment: &Experiment) -> Self {
        let n = experiment.participants.len();
        let mut budget = Self {
            total: experiment.budget,
            started: Vec::new(),
            again: Duration::ZERO,
            first_rounds: Vec::new(),
            rounds: Vec::new(),
            paced: Vec::new(),
            had: vec![0; experiment.from.restart as usize],
            until: None,
            lap: Duration::ZERO,
            costs: vec![vec![Vec::new(); experiment.loads.len()]; n],
            rates: vec![Vec::new(); n],
            out: (0..n).map(|i| experiment.past.out.contains(&i)).collect(),
            experiment: experiment.clone(),
        };
        for lap in &experiment.past.laps {
            if let Some(rounds) = budget.had.get_mut(lap.restart as usize) {
                *rounds = (*rounds).max(lap.round + 1);
            }
            budget.lap(lap);
        }
        budget
    }

    /// The servers of a restart are started and warmed up. `again` is the part of that time that
    /// the next restart will take too.
    pub fn restart_started(&mut self, took: Duration, again: Duration) {
        self.started.push(took);
        self.again = again;
    }

    /// A round has ended. Whether it was the first of its restart.
    pub fn round_run(&mut self, is_first: bool, took: Duration) {
        if is_first { &mut self.first_rounds } else { &mut self.rounds }.push(took);
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
        // Laps at the common rate do not count for the cost under their load. Laps of a load with
        // its own rate do.
        let is_paced = lap.kind != LapKind::Flat;
        if is_paced != self.experiment.loads[lap.load].rate.is_some() || !lap.counts() {
            return;
        }
        if Some(lap.load) == self.experiment.closed_loop() {
            self.rates[lap.server].push(lap.outcome.rate());
            self.lap = Duration::from_nanos(lap.outcome.window_ns);
        }
        // Servers of unknown cost are compared by their rate.
        let share = lap.cost_share().unwrap_or_else(|| lap.rate_share());
        self.costs[lap.server][lap.load].push((lap.restart, lap.round, share));
    }

    /// Half of the slowest server's throughput, in requests/s: a rate that all can sustain.
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
    /// than four laps of each server, from four starts, add little. The time is better spent on
    /// pairs.
    pub fn is_paced(&self, restart: u32) -> bool {
        let paid = self.experiment.budget.as_secs() / BUDGET_A_PACED_RESTART.as_secs();
        let is_asked = self.experiment.paced && self.experiment.closed_loop().is_some();
        is_asked && u64::from(restart) < paid.clamp(1, u64::from(PACED_RESTARTS))
    }

    /// What to run next. `next` is the first place that has not been run.
    pub fn next(&mut self, next: Place, elapsed: Duration) -> Next {
        self.grow();
        let elapsed = self.of_the_budget(elapsed) + self.paced_takes(next.restart);
        let begun = next.restart + 1;
        let until = self.plan(next.restart, elapsed);
        let another_round = match self.experiment.rounds {
            Some(rounds) => next.round < rounds,
            None => elapsed + self.round_takes() <= until,
        };
        if another_round {
            return Next::Round;
        }
        let had: Vec<u32> = self.had.iter().copied().chain([next.round]).collect();
        if self.experiment.precision.is_some_and(|p| is_precise(&self.comparisons(), p)) {
            return Next::Stop(Over::Precise);
        }
        let another_restart = match (self.experiment.restarts, self.experiment.rounds) {
            (Some(restarts), _) => begun < restarts,
            (None, Some(rounds)) => self.fits(elapsed, rounds),
            (None, None) => self.further_restarts(&had, self.total.saturating_sub(elapsed)) > 0,
        };
        if another_restart {
            self.had = had;
            return Next::Restart;
        }
        match (self.experiment.restarts, self.experiment.rounds) {
            (Some(_), Some(_)) => Next::Stop(Over::Done),
            (None, None) if elapsed + self.round_takes() <= self.total => Next::Round,
            _ => Next::Stop(Over::Budget),
        }
    }

    /// When this restart should end: the rest of the budget is divided evenly among it and the
    /// restarts to come.
    fn plan(&mut self, restart: u32, elapsed: Duration) -> Duration {
        if let Some((_, until)) = self.until.filter(|(planned, _)| *planned == restart) {
            return until;
        }
        let first_round = self.first_rounds.last().copied().unwrap_or_default();
        let began = elapsed.saturating_sub(first_round);
        let start = self.start_takes();
        let left = self.total.saturating_sub(began) + start;
        let restarts = match self.experiment.restarts {
            Some(restarts) => restarts.saturating_sub(restart),
            None => self.further_restarts(&self.had, left),
        };
        // A first round may have changed the length of the others, so the total is a limit too.
        let until = began + (left / restarts.max(1)).saturating_sub(start);
        let until = until.min(self.total);
        self.until = Some((restart, until));
        until
    }

    fn further_restarts(&self, had: &[u32], left: Duration) -> u32 {
        let round = self.round_takes();
        let extra = mean(&self.first_rounds).saturating_sub(round);
        let restart = self.start_takes() + extra + self.paced_takes(had.len() as u32);
        let costs = Costs {
            restart_s: restart.as_secs_f64(),
            round_s: round.as_secs_f64().max(1e-3),
            lap_s: 2.0 * self.lap.as_secs_f64(),
        };
        further_restarts(had, left.as_secs_f64(), &costs)
    }

    /// Whether the budget has time for another round of this restart.
    pub fn has_time_for_round(&self, elapsed: Duration) -> bool {
        self.of_the_budget(elapsed) + self.round_takes() <= self.total
    }

    /// Whether the budget has time for another restart of some rounds.
    pub fn has_time_for_restart(&self, elapsed: Duration, rounds: u32) -> bool {
        self.fits(self.of_the_budget(elapsed), rounds)
    }

    /// Whether another restart fits into the rest of the budget, with its paced laps.
    fn fits(&self, elapsed: Duration, rounds: u32) -> bool {
        let paced = self.paced_takes(self.had.len() as u32 + 1);
        elapsed + self.start_takes() + self.round_takes() * rounds + paced <= self.total
    }

    /// Extends a budget that may grow, once the length of rounds and starts is known.
    fn grow(&mut self) {
        if !self.experiment.may_grow {
            return;
        }
        let [usual, fewest] = USEFUL_RESTARTS.map(|restarts| self.takes(restarts, USEFUL_ROUNDS));
        self.total = self.total.max(if usual <= LONG { usual } else { fewest });
    }

    /// The time of three restarts with a useful number of rounds, if servers are compared and the
    /// budget is too short for three restarts with one.
    pub fn is_too_short(&self) -> Option<Duration> {
        let Experiment { participants, restarts, rounds, .. } = &self.experiment;
        let is_compared = participants.iter().any(|participant| participant.role == Role::Plain);
        let is_given = restarts.is_some() || rounds.is_some();
        let fits = self.takes(MIN_RESTARTS, 1) <= self.total;
        (is_compared && !is_given && !fits).then(|| self.takes(MIN_RESTARTS, USEFUL_ROUNDS))
    }

    /// The part of the budget that so many restarts take, of so many rounds each.
    fn takes(&self, restarts: u32, rounds: u32) -> Duration {
        let paced: Duration = (0..restarts).map(|restart| self.paced_takes(restart)).sum();
        self.round_takes() * (restarts * rounds) + self.start_takes() * (restarts - 1) + paced
    }

    /// The whole budget, as it is now.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// Estimated time left.
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
        let restart = self.start_takes() + self.round_takes() * rounds;
        self.round_takes() * rounds_here + paced + restart * restarts_after
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

    /// Time of a restart's paced laps. Before there are any, half of a load's round.
    fn paced_takes(&self, restart: u32) -> Duration {
        match (self.is_paced(restart), &self.paced[..]) {
            (false, _) => Duration::ZERO,
            (true, []) => {
                self.round_takes() / 2 / u32::try_from(self.experiment.loads.len()).unwrap_or(1)
            }
            (true, paced) => mean(paced),
        }
    }

    /// Time of a round that is not the first of its restart.
    fn round_takes(&self) -> Duration {
        if self.rounds.is_empty() { mean(&self.first_rounds) } else { mean(&self.rounds) }
    }

    /// The pairs of every server and load against the reference, as in the report.
    fn comparisons(&self) -> Vec<ByRestart> {
        let participants = &self.experiment.participants;
        let reference = participants.iter().position(|e| e.role == Role::Reference);
        let Some(reference) = reference else { return Vec::new() };
        let of = |n: usize, load: usize| readings(self.costs[n][load].iter().copied());
        (0..participants.len())
            .filter(|n| participants[*n].role == Role::Plain && !self.out[*n])
            .flat_map(|n| (0..self.experiment.loads.len()).map(move |load| (n, load)))
            .map(|(n, load)| pairs(&of(n, load), &of(reference, load)))
            .collect()
    }
}

fn mean(durations: &[Duration]) -> Duration {
    let n = u32::try_from(durations.len()).unwrap_or(u32::MAX);
    durations.iter().sum::<Duration>().checked_div(n).unwrap_or_default()
}
