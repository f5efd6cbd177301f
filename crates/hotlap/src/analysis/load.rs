//! Measures, compares and ranks the servers under one load.

use hotlap_bench::speed::{LapFigures, Speed};
use hotlap_stats::{
    Bursts, CONTROL_ALPHA, Effect, Estimate, Inconclusive, MIN_RESTARTS, NodeSpread, OddStarts,
    Reading, Verdict, pairs, ranks, totals,
};

use super::bias::{self, Unsteady};
use super::compare::{Compared, Found, ServerPair, found_in_families, judged};
use super::latency::{HIGH, Repeatable};
use super::{Level, Limited, Measure, MeasuredServer, PerMeasure, ServerComparison};
use crate::model::{Lap, Role, Run, Server};

/// A database that uses more than this share of the shared cores uses more of them than the server.
/// Requests/s then compare the database instead of the servers. The limit is a convention.
const DATABASE_BOUND: f64 = 0.5;

/// All servers of a run under one load.
#[derive(Debug)]
pub struct Analysis {
    /// The index of the load.
    pub load: usize,
    /// The rate of an open loop, in requests/s. `None` in a closed loop.
    pub offered: Option<f64>,
    /// The confidence of every interval.
    pub confidence: f64,
    /// The servers, in the order of the run.
    pub servers: Vec<MeasuredServer>,
    /// The index of the reference.
    pub reference: Option<usize>,
    /// The index of the ceiling.
    pub ceiling: Option<usize>,
    /// The comparison of the A/A control with the reference. `None` if it is unknown.
    pub noise: PerMeasure<Option<Effect>>,
    /// The index of the A/A control, which is the reference under a hidden name.
    control: Option<usize>,
    /// What intervals rest on: restarts, or nodes in a pool.
    pub rests_on: Level,
    /// How CPU time and requests/s depend on the speed of the servers' cores. Both are adjusted
    /// for this speed.
    pub speed: Speed,
    /// The number of cores on which both the servers and the database run. 0 without a database, or
    /// if no cores are shared.
    shared_with_database: usize,
}

impl Analysis {
    /// Analyses one load of a run.
    pub fn of(run: &Run, load: usize) -> Self {
        let role = |role| run.servers.iter().position(|s| s.role == role);
        let speed = speed(run, load);
        let measured = |n| MeasuredServer::of(run, (load, n), &speed, confidence(run));
        let mut analysis = Self {
            load,
            offered: run.loads.get(load).and_then(|load| load.rate),
            confidence: confidence(run),
            servers: (0..run.servers.len()).map(measured).collect(),
            reference: role(Role::Reference),
            ceiling: role(Role::Ceiling),
            noise: PerMeasure::default(),
            control: role(Role::Control),
            rests_on: Level::of(run),
            speed,
            shared_with_database: shared_with_database(run),
        };
        analysis.find_unsteady(run);
        analysis.noise = PerMeasure::of(|measure| analysis.noise_in(measure));
        analysis.compare_with_reference(run);
        analysis.rank(run);
        analysis
    }

    /// Analyses all loads of a run.
    pub fn of_all(run: &Run) -> Vec<Self> {
        (0..run.loads.len()).map(|load| Self::of(run, load)).collect()
    }

    /// Whether any lap of any server counts.
    pub fn is_measured(&self) -> bool {
        self.servers.iter().any(MeasuredServer::is_measured)
    }

    /// Returns the number of restarts, or of nodes in a pool, that a server has in a measure.
    pub fn restarts(&self, server: usize, measure: Measure) -> u32 {
        let logs = totals(&self.servers[server].readings[measure]);
        self.rests_on.mean(logs).map_or(0, |mean| mean.restarts)
    }

    /// Returns whether another run would reproduce each [`HIGH`] percentile of a server. The
    /// ceiling is left out of this comparison: it is faster than most servers, so the machine's
    /// stalls change its percentiles more.
    pub fn repeatable(&self, server: usize) -> [Repeatable; HIGH.len()] {
        let is_server = |other: &usize| Some(*other) != self.ceiling;
        std::array::from_fn(|place| {
            let laps = |server: usize| &self.servers[server].response_laps[place][..];
            Repeatable::of(laps(server), (0..self.servers.len()).filter(is_server).map(laps))
        })
    }

    fn noise_in(&self, measure: Measure) -> Option<Effect> {
        let (reference, control) = (&self.servers[self.reference?], &self.servers[self.control?]);
        // Even requests/s that the generator limits show the noise between the two servers.
        let is_bound = |s: &MeasuredServer| measure != Measure::Rate && s.is_lower_bound[measure];
        if is_bound(reference) || is_bound(control) {
            return None;
        }
        let pairs = pairs(&control.readings[measure], &reference.readings[measure]);
        Some(self.rests_on.mean(pairs)?.effect(self.confidence))
    }

    /// Whether the A/A control differs from the reference in a measure.
    pub fn control_differs(&self, measure: Measure) -> bool {
        let differs =
            |control: Effect| control.restarts >= MIN_RESTARTS && control.p < CONTROL_ALPHA;
        self.noise[measure].is_some_and(differs)
    }

    /// Returns why no verdict on these servers can be given in a measure, whatever their difference
    /// is. `restarts` is the number of restarts, or of nodes, in the comparison.
    pub fn withheld(
        &self,
        servers: &[usize],
        measure: Measure,
        restarts: u32,
    ) -> Option<Inconclusive> {
        let is_unsteady = |&server: &usize| self.servers[server].is_unsteady_in(measure);
        if servers.iter().any(is_unsteady) {
            return Some(Inconclusive::NotSteady);
        }
        if self.control_differs(measure) {
            return Some(Inconclusive::ControlDiffers);
        }
        let is_bound = |&server: &usize| self.is_database_bound(&self.servers[server], measure);
        if servers.iter().any(is_bound) {
            return Some(Inconclusive::DatabaseBound);
        }
        let few = match self.rests_on.is_nodes() {
            true => Inconclusive::TooFewNodes,
            false => Inconclusive::TooFewRestarts,
        };
        (restarts < MIN_RESTARTS).then_some(few)
    }

    /// Whether a server's figure in a measure mostly shows the speed of the database, because the
    /// database runs on the server's cores.
    pub(super) fn is_database_bound(&self, server: &MeasuredServer, measure: Measure) -> bool {
        let cores = self.shared_with_database as f64;
        let is_over = |share: f64| share > DATABASE_BOUND * cores;
        measure == Measure::Rate && cores > 0.0 && server.used.database_share.is_some_and(is_over)
    }

    /// Returns how far the A/A control may be from the reference, as a share. `None` if unknown.
    pub fn noise_band(&self, measure: Measure) -> Option<f64> {
        let control = self.noise[measure]?;
        let is_known = control.restarts >= MIN_RESTARTS && control.ratio.is_bounded();
        is_known.then(|| control.far_end().exp_m1())
    }

    /// Finds rounds in which a server cost far more than usual. `None` without such rounds, or if
    /// the end of the server's warm-up or an odd start explains them. `None` also for the
    /// reference.
    pub fn bursts(&self, server: usize) -> Option<Bursts> {
        let reference = self.reference.filter(|reference| *reference != server)?;
        let [own, other] = [server, reference].map(|s| &self.servers[s].readings[Measure::Cost]);
        Bursts::of(own, &[other])
            .filter(|bursts| !bursts.at_start && self.odd_starts(server).is_none())
    }

    /// Finds starts after which a server cost far more or less than usual. `None` without any.
    pub fn odd_starts(&self, server: usize) -> Option<OddStarts> {
        let costs = |server: usize| &self.servers[server].readings[Measure::Cost][..];
        let others = (0..self.servers.len()).filter(|other| *other != server);
        OddStarts::of(costs(server), &others.map(costs).collect::<Vec<_>>())
    }

    /// Returns the ceiling's CPU time per request ÷ a server's. `None` if either is unknown.
    pub fn of_ceiling(&self, server: usize) -> Option<Estimate> {
        let costs = |server: usize| &self.servers[server].readings[Measure::Cost];
        let pairs = pairs(costs(self.ceiling?), costs(server));
        Some(self.rests_on.mean(pairs)?.exp(self.confidence))
    }

    /// Sorts servers into the order in which tables and sentences name them. Servers that keep up
    /// come first, by CPU time. The others follow by requests/s, the highest first. Servers
    /// without requests/s follow, and the ceiling is last. Layers keep the order of their steps.
    pub fn sort(&self, run: &Run, servers: &mut [usize]) {
        servers.sort_by(|&a, &b| {
            let ((a, figure_a), (b, figure_b)) = (self.place(run, a), self.place(run, b));
            a.cmp(&b).then(figure_a.total_cmp(&figure_b))
        });
    }

    fn place(&self, run: &Run, server: usize) -> (u32, f64) {
        let measured = &self.servers[server];
        let cost = || measured.level[Measure::Cost].map_or(f64::MAX, |cost| cost.value);
        match (run.servers[server].role, measured.level[Measure::Rate]) {
            (Role::Ceiling, _) => (4, 0.0),
            _ if run.asks_for_layers() => (0, server as f64),
            // Servers that keep up all serve the same rate, so CPU time orders them.
            (_, Some(_)) if measured.keeps_up => (1, cost()),
            (_, Some(rate)) if measured.generator_limited => {
                (2, -rate.value.max(self.cores_used(run) * 1e9 / cost()))
            }
            (_, Some(rate)) => (2, -rate.value),
            (_, None) => (3, 0.0),
        }
    }

    /// Returns the most cores that any server used. With a faster generator, a server that the
    /// generator limits would use as many cores. Dividing these cores by the server's CPU time per
    /// request estimates its requests/s.
    fn cores_used(&self, run: &Run) -> f64 {
        let compared = (0..self.servers.len()).filter(|&server| run.is_compared(server));
        compared.filter_map(|server| self.servers[server].used.cpu_share).fold(0.0, f64::max)
    }

    /// Whether two servers both serve the full rate of an open loop, and so the same requests/s.
    pub(super) fn keep_up(&self, server: usize, other: usize) -> bool {
        self.servers[server].keeps_up && self.servers[other].keeps_up
    }
}

impl Analysis {
    /// Finds servers that were not steady.
    fn find_unsteady(&mut self, run: &Run) {
        let compared: Vec<usize> =
            (0..self.servers.len()).filter(|&server| run.is_compared(server)).collect();
        for &server in &compared {
            let costs = |server: usize| &self.servers[server].readings[Measure::Cost][..];
            let others: Vec<&[Reading]> = compared
                .iter()
                .filter(|other| **other != server && !costs(**other).is_empty())
                .map(|other| costs(*other))
                .collect();
            let found = Unsteady::of(run, (self.load, server), costs(server), &others);
            self.servers[server].unsteady = found;
        }
    }

    /// Compares every server with the reference.
    fn compare_with_reference(&mut self, run: &Run) {
        let is_right = |i: usize| self.servers[i].wrong == 0;
        let Some(reference) = self.reference.filter(|&i| is_right(i)) else { return };
        let others = (0..self.servers.len())
            .filter(|&i| i != reference && run.is_compared(i) && is_right(i));
        let pairs: Vec<ServerPair> = others.map(|i| (i, reference)).collect();
        for ((server, _), against) in pairs.iter().zip(self.compared(&pairs)) {
            self.servers[*server].against = Some(against);
        }
    }

    /// Compares the first server of each pair with the second. All pairs belong to one table, so
    /// their verdicts are corrected together, see [`hotlap_stats::verdicts`].
    pub fn compared(&self, pairs: &[ServerPair]) -> Vec<ServerComparison> {
        let compared = |&(server, other): &ServerPair| {
            PerMeasure::of(|measure| self.compared_in(server, other, measure))
        };
        let compared: Vec<_> = pairs.iter().map(compared).collect();
        let found = found_in_families(&compared).into_iter().zip(pairs);
        found.map(|(found, pair)| self.with_bounds(found, *pair)).collect()
    }

    /// Compares two servers in one measure. `None` if the ratio is unknown, or if either server
    /// sent wrong responses. `None` also if the generator hides the measure, or if a percentile of
    /// either server is a lower bound. Requests/s are compared unless the generator limits both
    /// servers, or both serve the full rate of an open loop. The lower bound of one limited server
    /// can still be higher than the requests/s of another server.
    pub(super) fn compared_in(&self, server: usize, other: usize, measure: Measure) -> Compared {
        let of_both = [&self.servers[server], &self.servers[other]];
        let limited = of_both.iter().filter(|s| s.generator_limited).count();
        let is_hidden = match measure {
            Measure::Rate => limited == 2 || self.keep_up(server, other),
            measure => {
                limited > 0 && measure.is_hidden_by_generator()
                    || of_both.iter().any(|server| server.is_lower_bound[measure])
            }
        };
        if is_hidden || of_both.iter().any(|s| s.wrong > 0) {
            return None;
        }
        let effect = self.effect(server, other, measure)?;
        let withheld = self.withheld(&[server, other], measure, effect.restarts);
        Some((measure.criterion(self.confidence, withheld), effect))
    }

    /// Returns the ratio of two servers in one measure. In a pool, servers that no shard measured
    /// together are compared through the reference.
    fn effect(&self, server: usize, other: usize, measure: Measure) -> Option<Effect> {
        let against = |a: usize, b: usize| {
            let [a, b] = [a, b].map(|server| &self.servers[server].readings[measure]);
            self.rests_on.mean(pairs(a, b))
        };
        let through_reference = || {
            let is_other = |r: &usize| self.rests_on.is_nodes() && ![server, other].contains(r);
            let reference = self.reference.filter(is_other)?;
            Some(against(server, reference)?.minus(&against(other, reference)?))
        };
        let probed = [server, other].map(|server| self.servers[server].probed.as_ref());
        let direct = against(server, other).map(|mean| mean.minus(&bias::shift(measure, probed)));
        Some(direct.or_else(through_reference)?.effect(self.confidence))
    }

    /// Returns how much nodes differ in the ratio of a server to the reference, in requests/s and
    /// CPU time per request. `None` in a run on one machine, and in measures that are not compared.
    pub fn node_spread(&self, server: usize) -> PerMeasure<Option<NodeSpread>> {
        PerMeasure::of(|measure| {
            self.servers[server].against.as_ref()?.found[measure]?;
            if !matches!(measure, Measure::Rate | Measure::Cost) {
                return None;
            }
            let [own, reference] = [server, self.reference?].map(|s| &self.servers[s].readings);
            self.rests_on.spread(pairs(&own[measure], &reference[measure]), self.confidence)
        })
    }

    /// Removes a ratio of requests/s that is only a bound, or that the offered rate determines.
    /// Keeps what a bound proves.
    fn with_bounds(
        &self,
        mut found: PerMeasure<Found>,
        (server, other): ServerPair,
    ) -> ServerComparison {
        let rate = found[Measure::Rate];
        let by = |verdict| rate.filter(|(_, v)| *v == verdict).map(|(effect, _)| effect);
        let is_limited = |server: usize| self.servers[server].generator_limited;
        let limited = match (is_limited(server), is_limited(other)) {
            (false, false) => self.keep_up(server, other).then_some(Limited::Both),
            (true, false) => Some(Limited::Server(by(Verdict::Better))),
            (false, true) => Some(Limited::Other(by(Verdict::Worse))),
            (true, true) => Some(Limited::Both),
        };
        if limited.is_some() {
            found.requests_per_s = None;
        }
        ServerComparison { found, limited }
    }
}

/// Returns the number of cores that the servers of a run share with the run's database.
fn shared_with_database(run: &Run) -> usize {
    match run.database.as_ref().filter(|database| database.shares_cores) {
        None => 0,
        Some(database) if database.cores.is_empty() => run.host.machine.allowed.max(1),
        Some(database) => database.cores.len(),
    }
}

/// Fits how the figures under a load depend on the speed of the cores. At a fixed rate, nothing is
/// adjusted.
fn speed(run: &Run, load: usize) -> Speed {
    if run.loads[load].rate.is_some() {
        return Speed::default();
    }
    let cores = |server: &Server| {
        server.cpus.as_ref().map_or(run.schedule.server_cpus.len(), |(cores, _)| *cores)
    };
    let servers = run.servers.iter().map(|server| (server.role, cores(server)));
    let counts = |lap: &&Lap| lap.load == load && run.is_main(lap) && lap.counts();
    let laps: Vec<LapFigures> = run.laps.iter().filter(counts).map(LapFigures::from).collect();
    let node_of = run.pool.as_ref().map_or(&[][..], |pool| &pool.node_of[..]);
    Speed::of(&laps, &servers.collect::<Vec<_>>(), node_of)
}

/// Returns the confidence of every interval of a run. 1 − confidence is the accepted rate of false
/// alarms over one family of comparisons. The confidence is higher if the run was allowed to end
/// early, see [`hotlap_stats::confidence`].
pub fn confidence(run: &Run) -> f64 {
    hotlap_stats::confidence(run.schedule.precision, run.schedule.limit.is_some())
}

impl Analysis {
    /// Ranks the servers, see [`ranks`]. Of two servers, the one with more requests/s by a verdict
    /// is better. If the generator limits both, or both serve the full rate of an open loop, the
    /// one with less CPU time per request is better. If the generator limits one server, that
    /// server is better if even its lower bound is higher. Servers that sent wrong responses are
    /// not ranked.
    ///
    /// Pairs with the reference use the verdicts of the table, so that a rank never contradicts a
    /// sentence. All other pairs form a separate family.
    fn rank(&mut self, run: &Run) {
        let fit: Vec<usize> =
            (0..self.servers.len()).filter(|&i| run.is_compared(i) && self.can_rank(i)).collect();
        if fit.len() < 2 {
            return;
        }
        let places = (0..fit.len()).flat_map(|a| (a + 1..fit.len()).map(move |b| (a, b)));
        let (with_reference, others): (Vec<ServerPair>, Vec<ServerPair>) =
            places.partition(|&(a, b)| [fit[a], fit[b]].map(Some).contains(&self.reference));
        // Pairs of places in which the first server is better than the second.
        let mut decided = Vec::new();
        for (a, b) in with_reference {
            let (server, reference) = if Some(fit[a]) == self.reference { (b, a) } else { (a, b) };
            let Some(against) = self.servers[fit[server]].against else { continue };
            match order(&against) {
                Some(Verdict::Better) => decided.push((server, reference)),
                Some(Verdict::Worse) => decided.push((reference, server)),
                _ => {}
            }
        }
        let is_limited = |place: usize| self.servers[fit[place]].generator_limited;
        let compared = others.iter().map(|&(a, b)| {
            let is_by_cost = (is_limited(a) && is_limited(b)) || self.keep_up(fit[a], fit[b]);
            self.compared_in(fit[a], fit[b], if is_by_cost { Measure::Cost } else { Measure::Rate })
        });
        for (&(a, b), found) in others.iter().zip(judged(compared.collect())) {
            match found.map(|(_, verdict)| verdict) {
                // An exact figure above a lower bound proves nothing.
                Some(Verdict::Better) if is_limited(a) >= is_limited(b) => decided.push((a, b)),
                Some(Verdict::Worse) if is_limited(b) >= is_limited(a) => decided.push((b, a)),
                _ => {}
            }
        }
        for (server, rank) in fit.iter().zip(ranks(fit.len(), &decided)) {
            self.servers[*server].rank = Some(rank);
        }
    }

    /// Whether a server sent only correct responses, and no verdict on the server is withheld.
    fn can_rank(&self, server: usize) -> bool {
        let measured = &self.servers[server];
        let is_by_cost = measured.generator_limited || measured.keeps_up;
        let by = if is_by_cost { Measure::Cost } else { Measure::Rate };
        let restarts = self.restarts(server, by);
        measured.wrong == 0 && self.withheld(&[server], by, restarts).is_none()
    }
}

/// Returns which of two servers is better, by the rules of [`Analysis::rank`].
fn order(against: &ServerComparison) -> Option<Verdict> {
    let by = |measure| against.found[measure].map(|(_, verdict)| verdict);
    match against.limited {
        None => by(Measure::Rate),
        Some(Limited::Both) => by(Measure::Cost),
        Some(Limited::Server(higher)) => higher.map(|_| Verdict::Better),
        Some(Limited::Other(lower)) => lower.map(|_| Verdict::Worse),
    }
}
