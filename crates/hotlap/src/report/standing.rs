//! How the servers stand under one load: readings out of laps, estimates, verdicts and ranks out of
//! readings. Words and rounding come later, in `summary`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use hotlap_harness::lap::{rates, readings, silent_blocks};
use hotlap_harness::track::Probed;
use hotlap_stats::{
    Better, Censored, Concurrency, Criterion, Effect, Estimate, Goal, Histogram, MIN_RESTARTS,
    NoiseFloor, Reading, Verdict, effect, level, pairs, pooled, ranks, verdicts,
};

use super::bias;
use super::latency::{Times, known};
use crate::record::{Gate, Lap, Role, Run};

/// The confidence of every interval of a run, and 1 - the share of false alarms that is accepted
/// over all comparisons of one table together. It is higher where the run was to end once it looked
/// precise, see [`Goal::confidence_of_run`].
#[must_use]
pub fn confidence(run: &Run) -> f64 {
    Goal { precision: run.schedule.precision, ..Goal::default() }.confidence_of_run()
}

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
    /// The rate that the load offers; `None` in a closed loop.
    pub offered: Option<f64>,
    /// Of every interval.
    pub confidence: f64,
    /// One a server of the run, in its order.
    pub servers: Vec<Measured>,
    /// What slices do to the cost of each server.
    probed: Vec<Probed>,
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
    /// Its rank: 1 + the number of servers that are better.
    pub rank: Option<u32>,
    /// Laps that count, and laps in all.
    pub laps: (u32, u32),
    /// The generator was the limit in most of its laps.
    pub is_bound: bool,
    /// It serves the rate that the load offers; never in a closed loop.
    pub keeps_up: bool,
    /// Wrong responses, in all of its laps: with any it is neither compared nor ranked.
    pub wrong: u64,
    /// Requests/s, a reading a block.
    pub rates: Vec<Reading>,
    /// CPU time a request in nanoseconds, a reading a block.
    pub costs: Vec<Reading>,
    /// The median service time in nanoseconds, a reading a block; at a rate, response time.
    pub p50s: Vec<Reading>,
    /// The 99th percentile of the same, a reading a block whose laps have answers enough to know
    /// it.
    pub p99s: Vec<Reading>,
    /// Resident memory in bytes, a reading a block.
    pub memories: Vec<Reading>,
    /// Cost in laps over cost alone, a reading a restart.
    pub of_alone: Vec<Reading>,
    /// Requests/s.
    pub rate: Option<Estimate>,
    /// CPU time a request, in nanoseconds.
    pub cost: Option<Estimate>,
    /// Rounds in which it sent no response.
    pub silent_rounds: u32,
    /// Against the reference.
    pub against: Option<Against>,
    /// Service time at saturation, all counting laps merged; response time under a load that offers
    /// a rate.
    pub service: Times,
    /// Response time at the common rate, all counting laps merged, and the rate.
    pub response: Option<(Times, f64)>,
}

/// What one measure says of a server against another; `None` where it says nothing.
pub type Found = Option<(Effect, Verdict)>;

/// Two servers, as indices: the first is compared with the second.
pub type Pair = (usize, usize);

/// A server against another.
#[derive(Debug, Clone, Copy)]
pub struct Against {
    /// Requests/s over the other's.
    pub rate: Found,
    /// CPU time a request over the other's.
    pub cost: Found,
    /// The median service time over the other's.
    pub p50: Found,
    /// The 99th percentile of service time over the other's.
    pub p99: Found,
    /// Resident memory over the other's.
    pub memory: Found,
    /// Where the generator limits the server, the other, or both, and `rate` is `None`.
    pub limited: Option<Limited>,
}

/// What is known of requests/s where the generator limits a server of a pair.
#[derive(Debug, Clone, Copy)]
pub enum Limited {
    /// The generator limits the server. Its lower bound over the other's requests/s, if it is
    /// higher by a verdict.
    Server(Option<Effect>),
    /// The generator limits the other. The requests/s over its lower bound, if they are lower by a
    /// verdict.
    Other(Option<Effect>),
    /// The generator limits both, or both serve the rate that the load offers.
    Both,
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

    /// Whether a busy generator hides the figure: how fast a server is, not what it spends.
    #[must_use]
    pub fn is_bound_by_generator(self) -> bool {
        matches!(self, Self::Rate | Self::P50 | Self::P99)
    }
}

impl Against {
    /// Asks for each measure in turn.
    pub fn by(mut found: impl FnMut(Measure) -> Found) -> Self {
        Self {
            rate: found(Measure::Rate),
            cost: found(Measure::Cost),
            p50: found(Measure::P50),
            p99: found(Measure::P99),
            memory: found(Measure::Memory),
            limited: None,
        }
    }

    /// What one measure says.
    #[must_use]
    pub fn of(&self, measure: Measure) -> Found {
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
            offered: run.loads.get(load).and_then(|load| load.rate),
            confidence: confidence(run),
            probed: run.schedule.probed.iter().filter(|p| p.load == load).copied().collect(),
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

    /// The noise floor of one measure, for two servers neither of which is the reference.
    #[must_use]
    pub fn floor(&self, measure: Measure) -> NoiseFloor {
        match self.reference.zip(self.double) {
            Some(_) => NoiseFloor::of(self.noise(measure).as_ref()),
            None => NoiseFloor::NoControl,
        }
    }

    /// The criterion for servers that are compared with `other`, without bias. The reference counts
    /// together with its double, see [`Self::side`].
    #[must_use]
    pub fn criterion_against(&self, other: usize, measure: Measure) -> Criterion {
        let is_pooled = Some(other) == self.reference && self.double.is_some();
        let floor = self.floor(measure);
        let floor = if is_pooled { floor.against_pooled() } else { floor };
        Criterion { alpha: 1.0 - self.confidence, floor, bias: 0.0, better: measure.better() }
    }

    /// Compares everyone with the reference.
    fn compare(&mut self, run: &Run) {
        let is_right = |i: usize| self.servers[i].wrong == 0;
        let Some(reference) = self.reference.filter(|&i| is_right(i)) else { return };
        let others = (0..self.servers.len())
            .filter(|&i| i != reference && is_compared(run, i) && is_right(i));
        let pairs: Vec<Pair> = others.map(|i| (i, reference)).collect();
        for ((server, _), against) in pairs.iter().zip(self.compared(&pairs)) {
            self.servers[*server].against = Some(against);
        }
    }

    /// The first server of each pair against the second. The pairs are those that one table shows:
    /// their verdicts are one family, see [`verdicts`].
    #[must_use]
    pub fn compared(&self, pairs: &[Pair]) -> Vec<Against> {
        let found = families(Measure::ALL.map(|measure| {
            let compared = |&(server, other): &Pair| self.compared_in(server, other, measure);
            pairs.iter().map(compared).collect()
        }));
        let of = |place: usize, pair: &Pair| {
            let against = Against::by(|measure| found[measure as usize][place]);
            self.with_bounds(against, *pair)
        };
        pairs.iter().enumerate().map(|(place, pair)| of(place, pair)).collect()
    }

    /// Two servers in one measure; `None` where they have no round in common, and where the
    /// generator hides what the measure would say. Requests/s of a server that the generator limits
    /// are a lower bound, which may still be higher than those of a server that it does not limit.
    fn compared_in(
        &self,
        server: usize,
        other: usize,
        measure: Measure,
    ) -> Option<(Criterion, Effect)> {
        let bound = [server, other].iter().filter(|i| self.servers[**i].is_bound).count();
        let is_hidden = match measure {
            Measure::Rate => bound == 2 || self.keep_up(server, other),
            Measure::P50 | Measure::P99 => bound > 0,
            Measure::Cost | Measure::Memory => false,
        };
        let is_wrong = [server, other].iter().any(|i| self.servers[*i].wrong > 0);
        if is_hidden || is_wrong {
            return None;
        }
        let pairs = pairs(&self.side(server, measure), &self.side(other, measure));
        let effect = effect(&pairs, self.confidence)?;
        let reference = if Some(server) == self.reference { server } else { other };
        let bias = self.bias(server, other, measure);
        Some((Criterion { bias, ..self.criterion_against(reference, measure) }, effect))
    }

    /// Takes the ratio of requests/s away where it is a bound, and keeps what the bound says.
    fn with_bounds(&self, against: Against, (server, other): Pair) -> Against {
        let higher = |verdict| against.rate.filter(|(_, v)| *v == verdict).map(|(e, _)| e);
        let limited = match (self.servers[server].is_bound, self.servers[other].is_bound) {
            (false, false) if self.keep_up(server, other) => Limited::Both,
            (false, false) => return against,
            (true, false) => Limited::Server(higher(Verdict::Better)),
            (false, true) => Limited::Other(higher(Verdict::Worse)),
            (true, true) => Limited::Both,
        };
        Against { rate: None, limited: Some(limited), ..against }
    }

    /// Whether two servers serve the rate that the load offers: their requests/s say nothing then.
    fn keep_up(&self, server: usize, other: usize) -> bool {
        self.servers[server].keeps_up && self.servers[other].keeps_up
    }

    /// By how much the way of measuring may have shifted `server` against `other`, in log units:
    /// what a verdict must exceed on top of the noise, see [`Criterion::bias`].
    fn bias(&self, server: usize, other: usize, measure: Measure) -> f64 {
        match measure {
            Measure::Cost => bias::proven(&self.probed, (server, other)),
            _ => 0.0,
        }
    }

    /// Ranks the servers, see [`ranks`]: of two servers, that one is better which has more
    /// requests/s by a verdict. Where the generator limits both, or both serve the rate that is
    /// offered, it is the one that costs less CPU time per request; where the generator limits one,
    /// that one is better if even its lower bound is higher. Servers that sent wrong responses are
    /// not ranked.
    ///
    /// A server that is compared with the reference keeps that verdict, so that a rank never
    /// contradicts a sentence. All other pairs are a family of their own.
    fn rank(&mut self, run: &Run) {
        let fit: Vec<usize> =
            (0..self.servers.len()).filter(|&i| is_compared(run, i) && self.can_rank(i)).collect();
        if fit.len() < 2 {
            return;
        }
        let places = (0..fit.len()).flat_map(|a| (a + 1..fit.len()).map(move |b| (a, b)));
        let (with_reference, others): (Vec<Pair>, Vec<Pair>) =
            places.partition(|&(a, b)| [fit[a], fit[b]].map(Some).contains(&self.reference));
        let mut told = Vec::new();
        for (a, b) in with_reference {
            let (server, place, reference) =
                if Some(fit[a]) == self.reference { (fit[b], b, a) } else { (fit[a], a, b) };
            let Some(against) = self.servers[server].against else { continue };
            match self.order(&against) {
                Some(Verdict::Better) => told.push((place, reference)),
                Some(Verdict::Worse) => told.push((reference, place)),
                _ => {}
            }
        }
        let contests = others.iter().map(|&(a, b)| {
            let (a, b) = (fit[a], fit[b]);
            let are_bound = self.servers[a].is_bound && self.servers[b].is_bound;
            let is_by_cost = are_bound || self.keep_up(a, b);
            self.compared_in(a, b, if is_by_cost { Measure::Cost } else { Measure::Rate })
        });
        for (&(a, b), found) in others.iter().zip(judged(contests.collect())) {
            let by = |i: usize| self.servers[fit[i]].is_bound;
            match found.map(|(_, verdict)| verdict) {
                // An exact figure that is higher than a lower bound says nothing.
                Some(Verdict::Better) if by(a) >= by(b) => told.push((a, b)),
                Some(Verdict::Worse) if by(b) >= by(a) => told.push((b, a)),
                _ => {}
            }
        }
        for (server, rank) in fit.iter().zip(ranks(fit.len(), &told)) {
            self.servers[*server].rank = Some(rank);
        }
    }

    /// Whether a server answers correctly, and has enough restarts and a noise floor to be ranked.
    fn can_rank(&self, server: usize) -> bool {
        let measured = &self.servers[server];
        let is_by_cost = measured.is_bound || measured.keeps_up;
        let by = if is_by_cost { Measure::Cost } else { Measure::Rate };
        let mut restarts: Vec<u32> = measured.readings(by).iter().map(|r| r.heat).collect();
        restarts.dedup();
        measured.wrong == 0
            && restarts.len() >= MIN_RESTARTS as usize
            && !matches!(self.floor(by), NoiseFloor::Unusable(_))
    }

    /// Which of two servers is better, as [`Self::rank`] orders them.
    fn order(&self, against: &Against) -> Option<Verdict> {
        match against.limited {
            None => against.rate.map(|(_, verdict)| verdict),
            Some(Limited::Both) => against.cost.map(|(_, verdict)| verdict),
            Some(Limited::Server(higher)) => higher.map(|_| Verdict::Better),
            Some(Limited::Other(lower)) => lower.map(|_| Verdict::Worse),
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

    /// The ceiling's CPU time per request over a server's; `None` where either is unknown.
    #[must_use]
    pub fn of_ceiling(&self, server: usize) -> Option<Estimate> {
        let ceiling = &self.servers[self.ceiling?];
        let pairs = pairs(&ceiling.costs, &self.servers[server].costs);
        Some(effect(&pairs, self.confidence)?.ratio)
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
        let offered = run.loads.get(load).and_then(|load| load.rate);
        let main: Vec<&Lap> = run.laps.iter().filter(own).filter(|l| run.is_main(l)).collect();
        let good: Vec<&Lap> = main.iter().copied().filter(|l| l.counts()).collect();
        let paced: Vec<&Lap> = run
            .laps
            .iter()
            .filter(own)
            .filter(|l| !run.is_main(l) && l.counts() && has_responses(l))
            .collect();
        let blocks = blocks(&good);
        let spent = |lap: &&Lap| Some((lap.heat, lap.block, lap.cost_share()?));
        let answered = || good.iter().map(|lap| (lap.heat, lap.block, lap.rate_share()));
        let rates = rates(answered());
        let costs = readings(good.iter().filter_map(spent));
        let quantile = |q: f64| {
            move |laps: &[&Lap]| {
                let times = Times::merged(laps.iter().map(|lap| times(lap, offered)));
                // Rounds and restarts are the units of the interval, so that samples of one round
                // may depend on each other: it is enough that they reach the percentile.
                known(&times.survival(), q, Concurrency::ONE).map(|found| found.ns as f64)
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
            laps: (good.len() as u32, main.len() as u32),
            is_bound: bound * 2 > good.len(),
            keeps_up: offered.is_some() && keeps_up(&good),
            wrong: run.laps.iter().filter(own).map(wrong).sum(),
            rate: level(&rates, confidence),
            cost: level(&costs, confidence),
            rates,
            costs,
            of_alone: bias::readings(run, (server, load), &good),
            p50s: each(&blocks, quantile(0.5)),
            p99s: each(&blocks, quantile(0.99)),
            memories: each(&blocks, memory),
            silent_rounds: silent_blocks(answered()),
            against: None,
            service: Times::merged(good.iter().map(|lap| times(lap, offered))),
            response: paced.last().and_then(|l| l.rate).map(|rate| {
                let laps = paced.iter().map(|l| (&l.response, &l.response_censored));
                (Times::merged(laps), rate)
            }),
        }
    }
}

/// The verdicts of one table, given the comparisons in each measure, in the order of
/// [`Measure::ALL`]. Which of them are corrected together is said at [`verdicts`].
#[must_use]
pub fn families(compared: [Vec<Option<(Criterion, Effect)>>; 5]) -> [Vec<Found>; 5] {
    let has_floor = compared.iter().flatten().flatten().all(|c| c.0.floor != NoiseFloor::NoControl);
    let [rate, cost, p50, p99, memory] = compared;
    let servers = rate.len();
    let (rate, cost) = match has_floor {
        true => (judged(rate), judged(cost)),
        false => {
            let mut rate = judged([rate, cost].concat());
            let cost = rate.split_off(servers);
            (rate, cost)
        }
    };
    let mut p50 = judged([p50, p99, memory].concat());
    let mut p99 = p50.split_off(servers);
    let memory = p99.split_off(servers);
    [rate, cost, p50, p99, memory]
}

/// The verdicts on comparisons that are made together; where nothing can be compared, none.
fn judged(compared: Vec<Option<(Criterion, Effect)>>) -> Vec<Found> {
    let known: Vec<(Criterion, Effect)> = compared.iter().flatten().copied().collect();
    let mut verdicts = verdicts(&known).into_iter();
    compared
        .into_iter()
        .map(|c| c.and_then(|(_, effect)| Some((effect, verdicts.next()?))))
        .collect()
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

/// Response times of a lap where its load offers a rate, else service times.
fn times(lap: &Lap, offered: Option<f64>) -> (&Histogram, &Censored) {
    match offered {
        None => (&lap.service, &lap.service_censored),
        Some(_) => (&lap.response, &lap.response_censored),
    }
}

/// The least share of the requests that are offered which a server answers that keeps up with them.
const KEEPS_UP: f64 = 0.98;

/// Whether laps at a rate answered what was offered, but for one request that each lap's edge cuts.
fn keeps_up(laps: &[&Lap]) -> bool {
    let due: u64 = laps.iter().map(|lap| lap.due).sum();
    let answers: u64 = laps.iter().map(|lap| lap.answers + 1).sum();
    !laps.is_empty() && answers as f64 >= KEEPS_UP * due as f64
}

/// Wrong responses of a lap.
fn wrong(lap: &Lap) -> u64 {
    let of = |gate: &Gate| match gate {
        Gate::WrongAnswers { wrong, .. } => *wrong,
        _ => 0,
    };
    lap.failed.iter().map(of).sum()
}

/// Whether anything is known of the response times of a lap, answered or not.
fn has_responses(lap: &Lap) -> bool {
    !lap.response.is_empty() || !lap.response_censored.is_empty()
}

/// One reading a block, of its laps together, where they have one.
fn each(blocks: &Blocks, figure: impl Fn(&[&Lap]) -> Option<f64>) -> Vec<Reading> {
    let reading = |(at, laps): (&(u32, u32), &Vec<&Lap>)| {
        Some(Reading { heat: at.0, block: at.1, value: figure(laps)? })
    };
    blocks.iter().filter_map(reading).collect()
}
