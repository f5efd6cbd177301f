//! How the servers stand under one load: readings out of laps, estimates, verdicts and ranks out of
//! readings. Words and rounding come later, in `summary`.

use std::collections::BTreeMap;

use hotlap_stats::compare::{effect, pairs};
use hotlap_stats::estimate::level;
use hotlap_stats::stop::Goal;
use hotlap_stats::{Bar, Better, Effect, Estimate, Histogram, Reading, Verdict};

use crate::record::{Lap, Role, Run};

/// The confidence of every interval of a run, and 1 - the share of false alarms that is accepted
/// over all comparisons of one table together. It is higher where the run was to end once it looked
/// precise, see [`Goal::confidence_of_run`].
#[must_use]
pub fn confidence(run: &Run) -> f64 {
    Goal { precision: run.schedule.precision, ..Goal::default() }.confidence_of_run()
}

/// All servers under one load.
#[derive(Debug)]
pub struct Standing {
    /// Which load, as an index.
    pub load: usize,
    /// Of every interval.
    pub confidence: f64,
    /// One a server of the run, in its order.
    pub servers: Vec<Measured>,
    /// The reference, as an index.
    pub reference: Option<usize>,
    /// The ceiling, as an index.
    pub ceiling: Option<usize>,
    /// The double against the reference, requests/s.
    pub rate_noise: Option<Effect>,
    /// The double against the reference, CPU time a request.
    pub cost_noise: Option<Effect>,
}

/// One server under one load.
#[derive(Debug)]
pub struct Measured {
    /// Its rank by requests/s.
    pub rank: Option<u32>,
    /// Laps that count, and laps in all.
    pub laps: (u32, u32),
    /// The generator was the limit in most of its laps.
    pub is_bound: bool,
    /// Requests/s, a reading a block.
    pub rates: Vec<Reading>,
    /// CPU time a request in nanoseconds, a reading a block.
    pub costs: Vec<Reading>,
    /// Requests/s.
    pub rate: Option<Estimate>,
    /// CPU time a request, in nanoseconds.
    pub cost: Option<Estimate>,
    /// Against the reference.
    pub against: Option<Against>,
    /// Service time at saturation, all counting laps merged.
    pub service: Histogram,
    /// Response time at the common rate, all counting laps merged, and the rate.
    pub response: Option<(Histogram, f64)>,
}

/// A server against another.
#[derive(Debug, Clone, Copy)]
pub struct Against {
    /// Requests/s over the other's.
    pub rate: Option<(Effect, Verdict)>,
    /// CPU time a request over the other's.
    pub cost: Option<(Effect, Verdict)>,
}

impl Standing {
    /// Works out how the servers stand under the load with this index.
    #[must_use]
    pub fn of(run: &Run, load: usize) -> Self {
        let servers: Vec<Measured> =
            (0..run.servers.len()).map(|server| Measured::of(run, load, server)).collect();
        let role = |role| run.servers.iter().position(|s| s.role == role);
        let (reference, double) = (role(Role::Reference), role(Role::Double));
        let confidence = confidence(run);
        let noise = |readings: fn(&Measured) -> &[Reading]| {
            let (reference, double) = (&servers[reference?], &servers[double?]);
            effect(&pairs(readings(double), readings(reference)), confidence)
        };
        let mut standing = Self {
            load,
            confidence,
            reference,
            ceiling: role(Role::Ceiling),
            rate_noise: noise(|m| &m.rates),
            cost_noise: noise(|m| &m.costs),
            servers,
        };
        standing.rank(run);
        standing.compare(run);
        standing
    }

    fn bar(&self, better: Better) -> Bar {
        let noise = match better {
            Better::Higher => self.rate_noise,
            Better::Lower => self.cost_noise,
        };
        // An interval without ends would forbid every verdict; the p-value alone then decides.
        let reach = noise.map(|n| n.reach()).filter(|r| r.is_finite());
        Bar { alpha: 1.0 - self.confidence, noise: reach.unwrap_or(0.0), better }
    }

    /// Ranks those that can be ranked.
    fn rank(&mut self, run: &Run) {
        let fit: Vec<usize> = (0..self.servers.len())
            .filter(|&i| is_compared(run, i) && !self.servers[i].is_bound)
            .collect();
        let readings: Vec<_> = fit.iter().map(|&i| self.servers[i].rates.clone()).collect();
        let ranks = self.bar(Better::Higher).ranks(&readings);
        for (server, rank) in fit.into_iter().zip(ranks) {
            self.servers[server].rank = rank;
        }
    }

    /// Holds everyone against the reference.
    fn compare(&mut self, run: &Run) {
        let Some(reference) = self.reference else { return };
        let others: Vec<usize> =
            (0..self.servers.len()).filter(|&i| i != reference && is_compared(run, i)).collect();
        let rates = self.verdicts(&others, reference, Better::Higher);
        let costs = self.verdicts(&others, reference, Better::Lower);
        for ((server, rate), cost) in others.into_iter().zip(rates).zip(costs) {
            self.servers[server].against = Some(Against { rate, cost });
        }
    }

    fn verdicts(
        &self,
        others: &[usize],
        reference: usize,
        better: Better,
    ) -> Vec<Option<(Effect, Verdict)>> {
        let readings = |i: usize| match better {
            Better::Higher => &self.servers[i].rates,
            Better::Lower => &self.servers[i].costs,
        };
        let bound = |i: usize| better == Better::Higher && self.servers[i].is_bound;
        let effects: Vec<Option<Effect>> = others
            .iter()
            .map(|&i| match bound(i) || bound(reference) {
                true => None,
                false => effect(&pairs(readings(i), readings(reference)), self.confidence),
            })
            .collect();
        let known: Vec<Effect> = effects.iter().flatten().copied().collect();
        let mut verdicts = self.bar(better).verdicts(&known).into_iter();
        effects.into_iter().map(|e| e.and_then(|e| Some((e, verdicts.next()?)))).collect()
    }

    /// A server's requests/s over the ceiling's.
    #[must_use]
    pub fn of_ceiling(&self, server: usize) -> Option<Estimate> {
        let ceiling = &self.servers[self.ceiling?];
        let pairs = pairs(&self.servers[server].rates, &ceiling.rates);
        Some(effect(&pairs, self.confidence)?.ratio)
    }

    /// `upper` against `lower`, whoever the reference is: requests/s and CPU time a request.
    #[must_use]
    pub fn step(&self, lower: usize, upper: usize) -> Against {
        let verdict = |better| self.verdicts(&[upper], lower, better).into_iter().next().flatten();
        Against { rate: verdict(Better::Higher), cost: verdict(Better::Lower) }
    }
}

impl Measured {
    fn of(run: &Run, load: usize, server: usize) -> Self {
        let own = |lap: &&Lap| lap.server == server && lap.load == load;
        let flat: Vec<&Lap> = run.laps.iter().filter(own).filter(|l| l.rate.is_none()).collect();
        let good: Vec<&Lap> = flat.iter().copied().filter(|l| l.counts()).collect();
        let paced: Vec<&Lap> = run
            .laps
            .iter()
            .filter(own)
            .filter(|l| l.rate.is_some() && l.counts() && !l.response.is_empty())
            .collect();
        let rates = readings(&good, |lap| Some(lap.requests_per_s()));
        let costs = readings(&good, Lap::cost_ns);
        let bound = good.iter().filter(|l| l.is_bound()).count();
        let confidence = confidence(run);
        Self {
            rank: None,
            laps: (good.len() as u32, flat.len() as u32),
            is_bound: bound * 2 > good.len(),
            rate: level(&rates, confidence),
            cost: level(&costs, confidence),
            rates,
            costs,
            against: None,
            service: merged(good.iter().map(|l| &l.service)),
            response: paced
                .last()
                .and_then(|l| l.rate)
                .map(|rate| (merged(paced.iter().map(|l| &l.response)), rate)),
        }
    }
}

/// Whether a server takes part in comparisons: not the ceiling, not the hidden double, not one that
/// is out.
#[must_use]
pub fn is_compared(run: &Run, server: usize) -> bool {
    let server = &run.servers[server];
    matches!(server.role, Role::Contestant | Role::Reference) && server.retired.is_none()
}

/// One reading a block: the mean over its laps that count.
fn readings(laps: &[&Lap], figure: impl Fn(&Lap) -> Option<f64>) -> Vec<Reading> {
    let mut blocks: BTreeMap<(u32, u32), Vec<f64>> = BTreeMap::new();
    for lap in laps {
        if let Some(value) = figure(lap) {
            blocks.entry((lap.heat, lap.block)).or_default().push(value);
        }
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let reading =
        |((heat, block), values): (_, Vec<f64>)| Reading { heat, block, value: mean(&values) };
    blocks.into_iter().map(reading).collect()
}

fn merged<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Histogram {
    histograms.fold(Histogram::new(), |mut all, one| {
        all.merge(one);
        all
    })
}
