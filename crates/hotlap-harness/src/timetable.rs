//! How many heats and blocks: what has been run, what it took, and what is still worth running.
//!
//! Apart from the schedule because it only counts: it starts nothing and asks nobody the time.

use std::time::Duration;

use hotlap_stats::compare::{effect, pairs};
use hotlap_stats::estimate::median;

use crate::entrant::Role;
use crate::lap::{Kind, Lap, readings};
use crate::race::{Over, Place, Race};

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

/// Fewest heats of a race that sizes itself: with two, one odd start could not be told from a rule.
const FEWEST_HEATS: u32 = 3;

/// Most heats of a race that sizes itself: beyond, more starts hardly narrow the interval.
const MOST_HEATS: u32 = 10;

/// What has been run and what it took.
#[derive(Debug)]
pub struct Timetable {
    race: Race,
    started: Vec<Duration>,
    blocks: Vec<Duration>,
    paced: Vec<Duration>,
    /// A server each: heat, block and cost of every lap that counts.
    costs: Vec<Vec<(u32, u32, f64)>>,
    rates: Vec<Vec<f64>>,
    out: Vec<bool>,
    planned: Option<(u32, u32)>,
}

impl Timetable {
    /// An empty one.
    #[must_use]
    pub fn new(race: &Race) -> Self {
        let n = race.entrants.len();
        Self {
            race: race.clone(),
            started: Vec::new(),
            blocks: Vec::new(),
            paced: Vec::new(),
            costs: vec![Vec::new(); n],
            rates: vec![Vec::new(); n],
            out: vec![false; n],
            planned: None,
        }
    }

    /// A heat's servers are started and warm.
    pub fn heat_started(&mut self, took: Duration) {
        self.started.push(took);
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
        if lap.kind != Kind::Flat || lap.load != 0 || !lap.counts() {
            return;
        }
        self.rates[lap.entrant].push(lap.outcome.rate());
        // Servers whose cost cannot be seen are compared by their rate.
        let value = lap.cost_ns().unwrap_or_else(|| lap.outcome.rate());
        self.costs[lap.entrant].push((lap.heat, lap.block, value));
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

    /// What comes next, `next` being the first place that is not run yet.
    pub fn next(&mut self, next: Place, elapsed: Duration) -> Next {
        let (heats, blocks) = self.plan(elapsed);
        let last_heat = next.heat + 1 >= heats;
        let sized = self.race.heats.is_some() && self.race.blocks.is_some();
        if next.block < blocks && (sized || !self.spent(elapsed, next.heat + 1 >= FEWEST_HEATS)) {
            return Next::Block;
        }
        if !sized && next.heat + 1 >= FEWEST_HEATS && self.precise_enough() {
            return Next::Stop(Over::Precise);
        }
        match (last_heat, sized) {
            (false, _) => Next::Heat,
            (true, true) => Next::Stop(Over::Done),
            (true, false) => Next::Stop(Over::Budget),
        }
    }

    /// What the race will probably still take.
    #[must_use]
    pub fn left(&self, next: Place, elapsed: Duration) -> Duration {
        let Some((heats, blocks)) = self.planned else {
            return self.race.budget.saturating_sub(elapsed);
        };
        let blocks_here = blocks.saturating_sub(next.block);
        let heats_after = heats.saturating_sub(next.heat + 1);
        let heat = mean(&self.started) + mean(&self.paced) + mean(&self.blocks) * blocks;
        mean(&self.blocks) * blocks_here + heat * heats_after
    }

    /// Heats and blocks a heat, settled once the first block has shown what things take.
    fn plan(&mut self, elapsed: Duration) -> (u32, u32) {
        let block = mean(&self.blocks).as_secs_f64().max(1e-9);
        let fixed = mean(&self.started).as_secs_f64() + if self.race.paced { block } else { 0.0 };
        let budget = self.race.budget.as_secs_f64().max(elapsed.as_secs_f64());
        *self.planned.get_or_insert_with(|| {
            let fits = |blocks: u32| (budget / (fixed + block * f64::from(blocks))) as u32;
            // As many blocks a heat as a start is worth (Kalibera and Jones 2013, section 9: the
            // repeats of a level grow with the root of the cost of the level above), and as many
            // heats as then fit.
            let worth = (fixed / block).sqrt().round() as u32;
            let blocks = self.race.blocks.unwrap_or_else(|| worth.clamp(1, 8));
            let heats = self.race.heats.unwrap_or_else(|| {
                fits(blocks).clamp(FEWEST_HEATS, MOST_HEATS)
            });
            let spare = (budget / f64::from(heats) - fixed) / block;
            let blocks = self.race.blocks.unwrap_or_else(|| blocks.max(spare as u32).max(1));
            (heats, blocks)
        })
    }

    /// Whether the budget holds no further block.
    fn spent(&self, elapsed: Duration, enough: bool) -> bool {
        enough && elapsed + mean(&self.blocks) > self.race.budget
    }

    /// Whether every server's cost is known as precisely as asked for.
    fn precise_enough(&self) -> bool {
        let Some(precision) = self.race.precision else { return false };
        let Some(reference) = self.race.entrants.iter().position(|e| e.role == Role::Reference)
        else {
            return false;
        };
        let against = readings(self.costs[reference].iter().copied());
        let others = (0..self.race.entrants.len()).filter(|n| *n != reference && !self.out[*n]);
        others.map(|n| pairs(&readings(self.costs[n].iter().copied()), &against)).all(|pairs| {
            effect(&pairs, 0.95).is_some_and(|e| e.ratio.relative_half_width() <= precision)
        })
    }
}

fn mean(durations: &[Duration]) -> Duration {
    let n = u32::try_from(durations.len()).unwrap_or(u32::MAX);
    durations.iter().sum::<Duration>().checked_div(n).unwrap_or_default()
}
