//! How the servers stand under one load: readings out of laps, estimates, verdicts and ranks out of
//! readings. Words and rounding come later, in `summary`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use hotlap_harness::lap::{Share, readings};
use hotlap_stats::compare::{effect, pairs, pooled};
use hotlap_stats::estimate::level;
use hotlap_stats::stop::Goal;
use hotlap_stats::{Bar, Better, Comparison, Effect, Estimate, Histogram, Reading, Verdict};

use super::latency::known;
use crate::record::{Lap, Role, Run};

/// The confidence of every interval of a run, and 1 - the share of false alarms that is accepted
/// over all comparisons of one table together. It is higher where the run was to end once it looked
/// precise, see [`Goal::confidence_of_run`].
#[must_use]
pub fn confidence(run: &Run) -> f64 {
    Goal { precision: run.schedule.precision, ..Goal::default() }.confidence_of_run()
}

/// How much closer a third server of the same program is to the mean of two than these are to each
/// other: √(1 + ½) of the noise of one, against √2 of it.
const TO_THE_MEAN: f64 = 0.866_025_403_784_438_6;

/// What servers are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Requests per second.
    Rate,
    /// CPU time a request.
    Cost,
    /// Half of the service times are shorter.
    P50,
    /// 99 % of the service times are shorter.
    P99,
    /// Resident memory, the most of a block.
    Memory,
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
    /// The reference under its hidden name, as an index.
    double: Option<usize>,
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
    /// The median service time in nanoseconds, a reading a block.
    pub p50s: Vec<Reading>,
    /// The 99th percentile of service time in nanoseconds, a reading a block whose laps have
    /// answers enough to know it.
    pub p99s: Vec<Reading>,
    /// Resident memory in bytes, a reading a block.
    pub memories: Vec<Reading>,
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
    /// The median service time over the other's.
    pub p50: Option<(Effect, Verdict)>,
    /// The 99th percentile of service time over the other's.
    pub p99: Option<(Effect, Verdict)>,
    /// Resident memory over the other's.
    pub memory: Option<(Effect, Verdict)>,
}

impl Measure {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 5] = [Self::Rate, Self::Cost, Self::P50, Self::P99, Self::Memory];

    /// Which way it is better.
    #[must_use]
    pub fn better(self) -> Better {
        match self {
            Self::Rate => Better::Higher,
            Self::Cost | Self::P50 | Self::P99 | Self::Memory => Better::Lower,
        }
    }

    /// What a busy generator makes a bound of: how fast a server is, not what it spends.
    #[must_use]
    pub fn is_bound_by_generator(self) -> bool {
        matches!(self, Self::Rate | Self::P50 | Self::P99)
    }
}

impl Against {
    /// Asks for each measure in turn.
    pub fn by(mut found: impl FnMut(Measure) -> Option<(Effect, Verdict)>) -> Self {
        Self {
            rate: found(Measure::Rate),
            cost: found(Measure::Cost),
            p50: found(Measure::P50),
            p99: found(Measure::P99),
            memory: found(Measure::Memory),
        }
    }

    /// What one measure says.
    #[must_use]
    pub fn of(&self, measure: Measure) -> Option<(Effect, Verdict)> {
        match measure {
            Measure::Rate => self.rate,
            Measure::Cost => self.cost,
            Measure::P50 => self.p50,
            Measure::P99 => self.p99,
            Measure::Memory => self.memory,
        }
    }
}

impl Standing {
    /// Works out how the servers stand under the load with this index.
    #[must_use]
    pub fn of(run: &Run, load: usize) -> Self {
        let servers: Vec<Measured> =
            (0..run.servers.len()).map(|server| Measured::of(run, load, server)).collect();
        let role = |role| run.servers.iter().position(|s| s.role == role);
        let reference = role(Role::Reference);
        let mut standing = Self {
            load,
            confidence: confidence(run),
            reference,
            double: role(Role::Double),
            ceiling: role(Role::Ceiling),
            rate_noise: None,
            cost_noise: None,
            servers,
        };
        standing.rate_noise = standing.noise(Measure::Rate);
        standing.cost_noise = standing.noise(Measure::Cost);
        standing.compare(run);
        standing.rank(run);
        standing
    }

    /// The double against the reference: what no difference looks like here.
    #[must_use]
    pub fn noise(&self, measure: Measure) -> Option<Effect> {
        let (reference, double) = (&self.servers[self.reference?], &self.servers[self.double?]);
        effect(&pairs(double.readings(measure), reference.readings(measure)), self.confidence)
    }

    /// How far the noise reaches, in log units; 0 where it is not known.
    #[must_use]
    pub fn reach(&self, measure: Measure) -> f64 {
        // An interval without ends would forbid every verdict; the p-value alone then decides.
        self.noise(measure).map(|n| n.reach()).filter(|r| r.is_finite()).unwrap_or(0.0)
    }

    /// For two servers, neither of which is the reference.
    fn bar(&self, measure: Measure) -> Bar {
        Bar { alpha: 1.0 - self.confidence, noise: self.reach(measure), better: measure.better() }
    }

    /// For servers that are held against `other`: the reference's noise is that of one server, but
    /// it counts with its double, see [`Self::side`].
    #[must_use]
    pub fn bar_against(&self, other: usize, measure: Measure) -> Bar {
        let bar = self.bar(measure);
        let is_pooled = Some(other) == self.reference && self.double.is_some();
        Bar { noise: bar.noise * if is_pooled { TO_THE_MEAN } else { 1.0 }, ..bar }
    }

    /// Ranks those that can be ranked.
    fn rank(&mut self, run: &Run) {
        let fit: Vec<usize> = (0..self.servers.len())
            .filter(|&i| is_compared(run, i) && !self.servers[i].is_bound)
            .collect();
        let readings: Vec<_> = fit.iter().map(|&i| self.servers[i].rates.clone()).collect();
        let told = self.told_from_reference(&fit);
        let ranks = self.bar(Measure::Rate).ranks(&readings, &told);
        for (server, rank) in fit.into_iter().zip(ranks) {
            self.servers[server].rank = rank;
        }
    }

    /// Pairs of `fit` that the comparison with the reference told apart in requests/s.
    fn told_from_reference(&self, fit: &[usize]) -> Vec<(usize, usize)> {
        let place = fit.iter().position(|&i| Some(i) == self.reference);
        let Some(reference) = place else { return Vec::new() };
        let differs = |&i: &usize| {
            let found = self.servers[i].against.and_then(|a| a.rate);
            found.is_some_and(|(_, verdict)| verdict != Verdict::NoDifference)
        };
        let others = fit.iter().enumerate().filter(|(_, i)| differs(i));
        others.map(|(other, _)| (reference, other)).collect()
    }

    /// Holds everyone against the reference.
    fn compare(&mut self, run: &Run) {
        let Some(reference) = self.reference else { return };
        let others: Vec<usize> =
            (0..self.servers.len()).filter(|&i| i != reference && is_compared(run, i)).collect();
        let found = Measure::ALL.map(|measure| self.verdicts(&others, reference, measure));
        for (place, server) in others.into_iter().enumerate() {
            let of = |measure| found[measure as usize][place];
            self.servers[server].against = Some(Against::by(of));
        }
    }

    /// A server's readings as one side of a comparison: the reference's double is the same program
    /// and counts as its second half.
    #[must_use]
    pub fn side(&self, server: usize, measure: Measure) -> Cow<'_, [Reading]> {
        let own = self.servers[server].readings(measure);
        match self.double.filter(|_| Some(server) == self.reference) {
            Some(double) => pooled(own, self.servers[double].readings(measure)).into(),
            None => own.into(),
        }
    }

    fn verdicts(
        &self,
        others: &[usize],
        reference: usize,
        measure: Measure,
    ) -> Vec<Option<(Effect, Verdict)>> {
        let against = self.side(reference, measure);
        let bound = |i: usize| measure.is_bound_by_generator() && self.servers[i].is_bound;
        let comparisons = others
            .iter()
            .map(|&i| {
                let is_exact = !bound(i) && !bound(reference);
                let pairs = is_exact.then(|| pairs(&self.side(i, measure), &against))?;
                let bias = self.bias(i, reference, measure);
                Some(Comparison { effect: effect(&pairs, self.confidence)?, bias })
            })
            .collect();
        judged(&self.bar_against(reference, measure), comparisons)
    }

    /// By how much the way of measuring may have shifted `server` against `other`, in log units:
    /// what a verdict must exceed on top of the noise, see [`Comparison::bias`].
    fn bias(&self, _server: usize, _other: usize, _measure: Measure) -> f64 {
        0.0
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
        Against::by(|measure| self.verdicts(&[upper], lower, measure).into_iter().next().flatten())
    }
}

impl Measured {
    /// The readings of one measure.
    #[must_use]
    pub fn readings(&self, measure: Measure) -> &[Reading] {
        match measure {
            Measure::Rate => &self.rates,
            Measure::Cost => &self.costs,
            Measure::P50 => &self.p50s,
            Measure::P99 => &self.p99s,
            Measure::Memory => &self.memories,
        }
    }

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
        let blocks = blocks(&good);
        let sum = |share: fn(&Lap) -> Option<Share>| {
            readings(good.iter().filter_map(|lap| Some((lap.heat, lap.block, share(lap)?))))
        };
        let rates = sum(|lap| Some(lap.rate_share()));
        let costs = sum(Lap::cost_share);
        let quantile = |q: f64| {
            move |laps: &[&Lap]| {
                known(&merged(laps.iter().map(|l| &l.service)), q).map(|ns| ns as f64)
            }
        };
        let memory = |laps: &[&Lap]| {
            let most = laps.iter().filter_map(|l| Some(l.usage.as_ref()?.rss_bytes)).max();
            most.filter(|bytes| *bytes > 0).map(|bytes| bytes as f64)
        };
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
            p50s: each(&blocks, quantile(0.5)),
            p99s: each(&blocks, quantile(0.99)),
            memories: each(&blocks, memory),
            against: None,
            service: merged(good.iter().map(|l| &l.service)),
            response: paced
                .last()
                .and_then(|l| l.rate)
                .map(|rate| (merged(paced.iter().map(|l| &l.response)), rate)),
        }
    }
}

/// Effects with their verdicts; those that are not known stay so.
#[must_use]
pub fn judged(bar: &Bar, comparisons: Vec<Option<Comparison>>) -> Vec<Option<(Effect, Verdict)>> {
    let known: Vec<Comparison> = comparisons.iter().flatten().copied().collect();
    let mut verdicts = bar.verdicts(&known).into_iter();
    comparisons.into_iter().map(|c| c.and_then(|c| Some((c.effect, verdicts.next()?)))).collect()
}

/// Whether a server takes part in comparisons: not the ceiling, not the hidden double, not one that
/// is out.
#[must_use]
pub fn is_compared(run: &Run, server: usize) -> bool {
    let server = &run.servers[server];
    matches!(server.role, Role::Contestant | Role::Reference) && server.retired.is_none()
}

/// A server's laps of each block.
type Blocks<'a> = BTreeMap<(u32, u32), Vec<&'a Lap>>;

fn blocks<'a>(laps: &[&'a Lap]) -> Blocks<'a> {
    let mut blocks = Blocks::new();
    for lap in laps {
        blocks.entry((lap.heat, lap.block)).or_default().push(lap);
    }
    blocks
}

/// One reading a block, of its laps together, where they have one.
fn each(blocks: &Blocks, figure: impl Fn(&[&Lap]) -> Option<f64>) -> Vec<Reading> {
    let reading = |(at, laps): (&(u32, u32), &Vec<&Lap>)| {
        Some(Reading { heat: at.0, block: at.1, value: figure(laps)? })
    };
    blocks.iter().filter_map(reading).collect()
}

fn merged<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Histogram {
    histograms.fold(Histogram::new(), |mut all, one| {
        all.merge(one);
        all
    })
}
