//! Decides how many restarts and rounds to run, from what has already run and how long it took.
//!
//! The budget is separate from the schedule because it only does arithmetic: it starts nothing and
//! reads no clock. `hotlap_stats` knows how many restarts divide the time best. Counts that the
//! user sets take precedence.

use std::time::Duration;

use hotlap_stats::{
    ByRestart, CONTROL_ALPHA, Costs, MIN_RESTARTS, Mean, RESTARTS_BEFORE_LOOK, further_restarts,
    is_certain, is_precise, median, pairs,
};

use crate::experiment::{Experiment, Growth, Over, Place};
use crate::lap::{Lap, LapKind, readings};
use crate::participant::Role;
use crate::runner::Probed;
use crate::speed::{LapFigures, Speed};

/// The budgets, in seconds, from which the first one, two, three and four restarts end with paced
/// laps (METHODOLOGY, *A run*).
const PACED_FROM_S: [u64; 4] = [0, 40, 60, 120];

/// If the number of restarts is not set, a budget that may grow has time for at least this many.
/// The first number is for [`Growth::Usual`]. The second is for [`Growth::Verdict`], and for
/// [`Growth::Usual`] if the first takes longer than [`LONG`]. Each restart has more than one pair
/// of laps, because nothing shows whether a single pair was disturbed.
const USEFUL_RESTARTS: [u32; 2] = [RESTARTS_BEFORE_LOOK, MIN_RESTARTS];
const USEFUL_PAIRS: u32 = 2;

/// If the usual number of restarts takes longer than this, a budget grows only to the time of the
/// fewest restarts that allow a verdict.
const LONG: Duration = Duration::from_secs(600);

/// What to run next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another round of this restart.
    Round,
    /// Another restart.
    Restart,
    /// Run nothing more.
    Stop(Over),
}

/// The restarts and rounds that have been run, and how long each of them took.
#[derive(Debug)]
pub struct Budget {
    experiment: Experiment,
    /// The experiment's budget, and what it has grown by.
    total: Duration,
    started: Vec<Duration>,
    /// Expected time to start and warm up all servers again.
    again: Duration,
    /// The part of `again` that a later round takes too, if every round has warm-ups.
    warming: Duration,
    /// How long the first round of each restart took. It includes the A/A control and the ceiling.
    /// Its warm-ups count as part of the start.
    first_rounds: Vec<Duration>,
    /// How long each other round took.
    rounds: Vec<Duration>,
    paced: Vec<Duration>,
    /// The number of rounds in each restart that has ended.
    had: Vec<u32>,
    /// The current restart, and when the next restart should begin.
    until: Option<(u32, Duration)>,
    /// Length of a lap, and the number of pairs of laps in a round.
    lap: Duration,
    pairs: u32,
    /// The laps that count, in a closed loop or at the load's own rate, by load.
    laps: Vec<Vec<LapFigures>>,
    out: Vec<bool>,
    /// Whether the ratios in the report may differ from [`Self::comparisons`]. Either the CPU time
    /// of a lap is unknown, or probes proved a slice bias.
    is_provisional: bool,
    /// Whether the budget seemed to have time for a verdict after the first round.
    promises_verdict: bool,
}

impl Budget {
    /// Creates the budget of an experiment. If the experiment continues a run, the laps of that
    /// run count.
    pub fn new(experiment: &Experiment) -> Self {
        let n = experiment.participants.len();
        let mut budget = Self {
            total: experiment.budget,
            started: Vec::new(),
            again: Duration::ZERO,
            warming: Duration::ZERO,
            first_rounds: Vec::new(),
            rounds: Vec::new(),
            paced: Vec::new(),
            had: vec![0; experiment.from.restart as usize],
            until: None,
            lap: Duration::ZERO,
            pairs: 1,
            laps: vec![Vec::new(); experiment.loads.len()],
            is_provisional: experiment.past.probed.iter().any(Probed::is_biased),
            out: (0..n).map(|i| experiment.past.out.contains(&i)).collect(),
            promises_verdict: experiment.from.restart > 0,
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

    /// Records how long the servers of a restart took to start, with any warm-ups. `again` is the
    /// part of that time that the next restart will take too.
    pub fn restart_started(&mut self, took: Duration, again: Duration) {
        self.started.push(took);
        self.again = again;
        self.warming = Duration::ZERO;
    }

    /// Adds warm-ups of the latest restart to the time of its start. The first two arguments are as
    /// in [`Self::restart_started`]. `later` is the part of the time that a later round takes too.
    pub fn restart_warmed(&mut self, took: Duration, again: Duration, later: Duration) {
        if let Some(started) = self.started.last_mut() {
            *started += took;
        }
        self.again += again;
        self.warming += later;
    }

    /// Records that a round with this many pairs of laps has ended, and whether it was the first
    /// round of its restart.
    pub fn round_run(&mut self, is_first: bool, took: Duration, pairs: u32) {
        self.pairs = pairs;
        if is_first { &mut self.first_rounds } else { &mut self.rounds }.push(took);
    }

    /// Records that the paced laps of a restart have ended.
    pub fn paced_run(&mut self, took: Duration) {
        self.paced.push(took);
    }

    /// Records that a server was dropped.
    pub fn failure(&mut self, participant: usize) {
        self.out[participant] = true;
    }

    /// Records what probes found about slices.
    pub fn probed(&mut self, probed: &[Probed]) {
        self.is_provisional |= probed.iter().any(Probed::is_biased);
    }

    /// Records a lap that has ended.
    pub fn lap(&mut self, lap: &Lap) {
        // Laps at the common rate do not count toward the cost under their load. Laps of a load
        // with its own rate do.
        let is_paced = lap.kind != LapKind::Flat;
        if is_paced != self.experiment.loads[lap.load].rate.is_some() || !lap.counts() {
            return;
        }
        if Some(lap.load) == self.experiment.closed_loop() {
            self.lap = Duration::from_nanos(lap.outcome.window_ns);
        }
        let figures = LapFigures::from(lap);
        self.is_provisional |= figures.cost.is_none();
        self.laps[lap.load].push(figures);
    }

    /// Half of the slowest server's throughput, in requests/s: a rate that all can sustain.
    pub fn common_rate(&self) -> Option<f64> {
        let laps = &self.laps[self.experiment.closed_loop()?];
        let rates = |server| -> Vec<f64> {
            let own = laps.iter().filter(|lap| lap.server == server);
            own.filter_map(|lap| lap.rate.value()).collect()
        };
        (0..self.out.len())
            .filter(|server| !self.out[*server])
            .filter_map(|server| median(&rates(server)))
            .filter(|rate| *rate > 0.0)
            .min_by(f64::total_cmp)
            .map(|rate| rate / 2.0)
    }

    /// Whether a restart ends with paced laps. Their histograms are merged, not paired, so more
    /// than four laps of each server, from four starts, add little. The time is better spent on
    /// pairs.
    pub fn is_paced(&self, restart: u32) -> bool {
        let budget_s = self.experiment.budget.as_secs();
        let is_search = !self.experiment.objectives.is_empty();
        let is_asked =
            self.experiment.paced && !is_search && self.experiment.closed_loop().is_some();
        is_asked && PACED_FROM_S.get(restart as usize).is_some_and(|from_s| budget_s >= *from_s)
    }

    /// Decides what to run next. `next` is the first place that has not been run.
    pub fn next(&mut self, next: Place, elapsed: Duration) -> Next {
        self.grow();
        if next == (Place { restart: 0, round: 1 }) {
            self.promises_verdict = self.is_too_short().is_none();
        }
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
        if self.experiment.limit.is_some_and(|limit| self.is_certain(limit)) {
            return Next::Stop(Over::Certain);
        }
        let another_restart = match (self.experiment.restarts, self.experiment.rounds) {
            (Some(restarts), _) => begun < restarts,
            (None, Some(rounds)) => self.fits(elapsed, rounds),
            (None, None) => {
                let left = self.total.saturating_sub(elapsed);
                let (further, more) = self.planned_restarts(&had, left);
                self.total += more;
                further > 0
            }
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

    /// The time at which this restart should end. The rest of the budget is divided evenly among
    /// this restart and all later ones.
    fn plan(&mut self, restart: u32, elapsed: Duration) -> Duration {
        if let Some((_, until)) = self.until.filter(|(planned, _)| *planned == restart) {
            return until;
        }
        let first_round = self.first_rounds.last().copied().unwrap_or_default();
        let began = elapsed.saturating_sub(first_round + self.paced_takes(restart));
        let start = self.start_takes();
        let left = self.total.saturating_sub(began) + start;
        let (restarts, more) = match self.experiment.restarts {
            Some(restarts) => (restarts.saturating_sub(restart), Duration::ZERO),
            None => self.planned_restarts(&self.had, left),
        };
        self.total += more;
        let left = left + more;
        // The restart may have begun after the end of the budget, so the total is a limit too.
        let until = began + (left / restarts.max(1)).saturating_sub(start);
        let until = until.min(self.total);
        self.until = Some((restart, until));
        until
    }

    /// The number of restarts for the rest of the budget, and what to add to the budget for them.
    /// Time is added only if starts or rounds take longer than expected, so that the run would miss
    /// its verdict. At most half of the user's budget is added in all.
    fn planned_restarts(&self, had: &[u32], left: Duration) -> (u32, Duration) {
        let planned = self.further_restarts(had, left);
        let begun = had.len() as u32;
        let missing = MIN_RESTARTS.saturating_sub(begun);
        if planned > 0 || missing == 0 || !self.promises_verdict || !self.needs_verdict() {
            return (planned, Duration::ZERO);
        }
        let each =
            self.start_takes() + self.rounds_take(self.useful_rounds()) + self.paced_takes(begun);
        let most = (self.experiment.budget * 3 / 2).saturating_sub(self.total);
        let more = (each * missing).saturating_sub(left).min(most);
        match self.further_restarts(had, left + more) {
            0 => (0, Duration::ZERO),
            planned => (planned, more),
        }
    }

    fn further_restarts(&self, had: &[u32], left: Duration) -> u32 {
        let round = self.round_takes();
        let paced = self.paced_takes(had.len() as u32);
        let restart = self.start_takes() + self.first_round_takes() + paced;
        let costs = Costs {
            restart_s: restart.saturating_sub(round).as_secs_f64(),
            round_s: round.as_secs_f64().max(1e-3),
            lap_s: f64::from(2 * self.pairs) * self.lap.as_secs_f64(),
        };
        further_restarts(had, left.as_secs_f64(), &costs, self.experiment.limit.is_some())
    }

    /// Whether the budget has time for another round of this restart.
    pub fn has_time_for_round(&self, elapsed: Duration) -> bool {
        self.of_the_budget(elapsed) + self.round_takes() <= self.total
    }

    /// Whether the budget has time for another restart of this many rounds.
    pub fn has_time_for_restart(&self, elapsed: Duration, rounds: u32) -> bool {
        self.fits(self.of_the_budget(elapsed), rounds)
    }

    /// Whether the budget has time for another restart of this many rounds, with its paced laps.
    fn fits(&self, elapsed: Duration, rounds: u32) -> bool {
        let paced = self.paced_takes(self.had.len() as u32 + 1);
        elapsed + self.start_takes() + self.rounds_take(rounds) + paced <= self.total
    }

    /// Extends a budget that may grow, once the length of rounds and starts is known.
    fn grow(&mut self) {
        let [usual, fewest] = USEFUL_RESTARTS.map(|restarts| self.usefully_takes(restarts));
        let needed = match (self.experiment.growth, self.experiment.restarts) {
            (Growth::None, _) => return,
            (_, Some(restarts)) => self.usefully_takes(restarts),
            (Growth::Usual, None) if usual <= LONG => usual,
            (Growth::Usual | Growth::Verdict, None) => fewest,
        };
        self.total = self.total.max(needed);
    }

    /// Whether servers are compared, and the budget decides how many restarts and rounds to run.
    fn needs_verdict(&self) -> bool {
        let Experiment { participants, restarts, rounds, .. } = &self.experiment;
        let is_compared = participants.iter().any(|participant| participant.role == Role::Plain);
        is_compared && restarts.is_none() && rounds.is_none()
    }

    /// The time that three restarts with enough pairs of laps take. `None` if the budget has time
    /// for three restarts of one round, or if the run needs no verdict.
    pub fn is_too_short(&self) -> Option<Duration> {
        let fits = self.takes(MIN_RESTARTS, 1) <= self.total;
        (self.needs_verdict() && !fits).then(|| self.usefully_takes(MIN_RESTARTS))
    }

    /// The part of the budget that this many restarts take, each with this many rounds.
    fn takes(&self, restarts: u32, rounds: u32) -> Duration {
        let paced: Duration = (0..restarts).map(|restart| self.paced_takes(restart)).sum();
        self.rounds_take(rounds) * restarts + self.start_takes() * (restarts - 1) + paced
    }

    /// The part of the budget that this many restarts take, each with enough pairs of laps.
    fn usefully_takes(&self, restarts: u32) -> Duration {
        self.takes(restarts, self.experiment.rounds.unwrap_or(0).max(self.useful_rounds()))
    }

    /// The smallest number of rounds with enough pairs of laps.
    fn useful_rounds(&self) -> u32 {
        USEFUL_PAIRS.div_ceil(self.pairs.max(1))
    }

    /// The whole budget, including what it has grown by.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// The estimated time left.
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
        let restart = self.start_takes() + self.rounds_take(rounds);
        self.round_takes() * rounds_here + paced + restart * restarts_after
    }

    /// The part of the elapsed time that counts against the budget. The budget is for measuring, so
    /// the first start, with its full verification and long warm-ups, does not count.
    fn of_the_budget(&self, elapsed: Duration) -> Duration {
        let first = self.started.first().copied().unwrap_or_default();
        elapsed.saturating_sub(first + self.experiment.past.starting)
    }

    /// The time to start and warm up all servers again.
    fn start_takes(&self) -> Duration {
        match &self.started[..] {
            [] | [_] => self.again,
            [_, later @ ..] => mean(later),
        }
    }

    /// The time of a restart's paced laps. Until some have run, the estimate is half of one load's
    /// round, plus the load's warm-ups.
    fn paced_takes(&self, restart: u32) -> Duration {
        match (self.is_paced(restart), &self.paced[..]) {
            (false, _) => Duration::ZERO,
            (true, []) => {
                let loads = u32::try_from(self.experiment.loads.len()).unwrap_or(1);
                (self.first_round_takes() / 2 + self.warming) / loads
            }
            (true, paced) => mean(paced),
        }
    }

    /// The time of this many rounds of a restart, without the warm-ups of the first round.
    fn rounds_take(&self, rounds: u32) -> Duration {
        let later = self.round_takes() * rounds.saturating_sub(1);
        if rounds == 0 { Duration::ZERO } else { self.first_round_takes() + later }
    }

    /// The time of the first round of a restart, without its warm-ups.
    fn first_round_takes(&self) -> Duration {
        if self.first_rounds.is_empty() { mean(&self.rounds) } else { mean(&self.first_rounds) }
    }

    /// The time of a round that is not the first round of its restart, with its warm-ups.
    fn round_takes(&self) -> Duration {
        if self.rounds.is_empty() {
            mean(&self.first_rounds) + self.warming
        } else {
            mean(&self.rounds)
        }
    }

    /// Whether every cost ratio is certainly above or below the limit. If the A/A control differs,
    /// verdicts would be withheld, so the run goes on. The run also goes on if the report may have
    /// other ratios.
    fn is_certain(&self, limit: f64) -> bool {
        let differs =
            |pairs: &ByRestart| Mean::of(pairs.clone()).is_some_and(|m| m.p() < CONTROL_ALPHA);
        !self.is_provisional
            && !self.compared(Role::Control).iter().any(differs)
            && is_certain(&self.comparisons(), limit)
    }

    /// The pairs of every server and load with the reference, as in the report.
    fn comparisons(&self) -> Vec<ByRestart> {
        self.compared(Role::Plain)
    }

    /// The pairs of every participant in this role with the reference, for each load.
    fn compared(&self, role: Role) -> Vec<ByRestart> {
        let participants = &self.experiment.participants;
        let reference = participants.iter().position(|e| e.role == Role::Reference);
        let Some(reference) = reference else { return Vec::new() };
        let is_compared = |n: &usize| participants[*n].role == role && !self.out[*n];
        let mut compared = Vec::new();
        for (load, laps) in self.laps.iter().enumerate() {
            let speed = self.speed(load);
            let of = |server: usize| {
                let own = || laps.iter().filter(move |lap| lap.server == server);
                let reading = |lap: &LapFigures, share| (lap.restart, lap.round, share);
                // A server whose CPU time is unknown is compared by its requests/s.
                if own().all(|lap| lap.cost.is_none()) {
                    return readings(own().map(|lap| reading(lap, speed.rate_share(*lap, false))));
                }
                readings(own().filter_map(|lap| Some(reading(lap, speed.cost_share(*lap)?))))
            };
            let (servers, reference) = ((0..participants.len()).filter(is_compared), of(reference));
            compared.extend(servers.map(|server| pairs(&of(server), &reference)));
        }
        compared
    }

    /// How the figures under a load depend on the speed of the cores. At a fixed rate, nothing is
    /// adjusted.
    fn speed(&self, load: usize) -> Speed {
        let Experiment { participants, loads, .. } = &self.experiment;
        if loads[load].rate.is_some() {
            return Speed::default();
        }
        // All servers without their own number of cores have the same number.
        let servers = participants.iter().map(|own| (own.role, own.cpus.unwrap_or(0)));
        Speed::of(&self.laps[load], &servers.collect::<Vec<_>>(), &[])
    }
}

fn mean(durations: &[Duration]) -> Duration {
    let n = u32::try_from(durations.len()).unwrap_or(u32::MAX);
    durations.iter().sum::<Duration>().checked_div(n).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::tests::experiment;

    /// Regression: the second start took twice as long as expected, and the run ended after two of
    /// the three restarts that a verdict needs.
    #[test]
    fn a_run_does_not_end_just_short_of_a_verdict() {
        let seconds = Duration::from_secs;
        let ran = |budget_s, later: u64| {
            let budget = seconds(budget_s);
            let mut budget =
                Budget::new(&Experiment { paced: true, budget, ..experiment(None, None) });
            let (mut place, mut elapsed) = (Place::default(), seconds(0));
            loop {
                let start = seconds(if place.restart == 0 { 30 } else { later });
                budget.restart_started(start, seconds(9));
                elapsed += start;
                let next = loop {
                    elapsed += seconds(2);
                    budget.round_run(place.round == 0, seconds(2), 1);
                    place.round += 1;
                    let next = budget.next(place, elapsed);
                    if next != Next::Round {
                        break next;
                    }
                };
                if budget.is_paced(place.restart) {
                    elapsed += seconds(4);
                    budget.paced_run(seconds(4));
                }
                place = Place { restart: place.restart + 1, round: 0 };
                if let Next::Stop(_) = next {
                    return (place.restart, elapsed.as_secs() - 30);
                }
            }
        };
        assert_eq!(ran(60, 9), (4, 59));
        assert_eq!(ran(60, 26), (3, 78));
        assert_eq!(ran(40, 16), (3, 54));
        assert_eq!(ran(60, 60), (2, 76), "adding half of the budget is not enough");
    }

    /// Regression: the plan left out the warm-ups of later rounds, so the first restarts got so
    /// many rounds that no third restart was possible.
    #[test]
    fn with_several_loads_a_later_round_contains_its_warm_ups() {
        let seconds = Duration::from_secs;
        let next = |warming| {
            let mut budget = Budget::new(&experiment(Some(3), None));
            budget.restart_started(seconds(2), seconds(11) - warming);
            budget.restart_warmed(seconds(14), warming, warming);
            budget.round_run(true, seconds(6), 3);
            budget.next(Place { restart: 0, round: 1 }, seconds(2 + 14 + 6))
        };
        assert_eq!(next(seconds(0)), Next::Round, "two rounds fit in a third of the time");
        assert_eq!(next(seconds(10)), Next::Restart);
    }
}
