//! The speed of the servers' cores during each lap, and the effect of this speed on the figures.

use std::collections::BTreeMap;

use hotlap_stats::{CoreSpeed, GaugedLap, Share};

use crate::model::{Lap, Role, Run, Server};

/// Nothing is adjusted unless each server has a gauge in this share of its laps. A sample from
/// another host may be lost.
const GAUGED: f64 = 0.9;

/// How the figures under one load depend on the speed of the servers' cores.
#[derive(Debug, Default)]
pub struct Speed {
    /// The mean logarithm of the gauge over laps, by node. A run on one machine has one node.
    usual: BTreeMap<u32, f64>,
    /// The node of each restart in a pool.
    node_of: Vec<u32>,
    /// The effect of the speed on CPU time per request. `None` if CPU time is not adjusted.
    pub cost: Option<CoreSpeed>,
    /// The effect of the speed on requests/s. `None` if requests/s are not adjusted.
    pub rate: Option<CoreSpeed>,
    /// By how much the gauge varied, as a share: one standard deviation over laps. In a pool, the
    /// deviations are from each node's own mean.
    pub varied: f64,
}

impl Speed {
    /// Fits how figures under a load depend on the speed of the cores, over main laps that count.
    pub(super) fn of(run: &Run, load: usize) -> Self {
        let node_of = run.pool.as_ref().map_or(Vec::new(), |pool| pool.node_of.clone());
        let mut speed = Self { node_of, ..Self::default() };
        let is_own = |lap: &&Lap| lap.load == load && run.is_main(lap) && lap.counts();
        let laps: Vec<&Lap> = run.laps.iter().filter(is_own).collect();
        if run.loads[load].rate.is_some() || !are_comparable(run, &laps) {
            return speed;
        }
        let mut nodes = BTreeMap::<u32, Vec<f64>>::new();
        for (lap, gauge) in laps.iter().filter_map(|lap| Some((lap, gauge(lap)?))) {
            nodes.entry(speed.node(lap)).or_default().push(gauge);
        }
        let mean = |gauges: &[f64]| gauges.iter().sum::<f64>() / gauges.len() as f64;
        speed.usual = nodes.iter().map(|(node, gauges)| (*node, mean(gauges))).collect();
        // A slow core makes both figures larger.
        let gauged = |lap: &Lap, figure: Option<f64>| {
            let (figure, gauge) = (figure?.ln(), speed.relative(lap)?);
            Some(GaugedLap { server: lap.server, restart: lap.restart, figure, gauge })
        };
        let fit = |figure: fn(&Lap) -> Option<f64>| {
            CoreSpeed::of(
                &laps.iter().filter_map(|lap| gauged(lap, figure(lap))).collect::<Vec<_>>(),
            )
        };
        let squares: Vec<f64> =
            laps.iter().filter_map(|lap| Some(speed.relative(lap)?.powi(2))).collect();
        let (cost, rate) = (fit(Lap::cost_ns), fit(free_time));
        let varied = if squares.is_empty() { 0.0 } else { mean(&squares).sqrt().exp_m1() };
        Self { cost, rate, varied, ..speed }
    }

    /// Whether CPU time per request or requests/s are adjusted.
    pub fn adjusts(&self) -> bool {
        self.cost.is_some() || self.rate.is_some()
    }

    /// Returns a lap's CPU time per request at the mean speed of the cores.
    pub(super) fn cost_share(&self, lap: &Lap) -> Option<Share> {
        let share = lap.cost_share()?;
        Some(Share { amount: share.amount * self.factor(self.cost.as_ref(), lap), ..share })
    }

    /// Returns a lap's CPU time per request of server and database. The speed of the database's
    /// cores is unknown, so only the server's CPU time is adjusted.
    pub(super) fn total_share(&self, lap: &Lap) -> Option<Share> {
        let (own, database) = (self.cost_share(lap)?, lap.usage.as_ref()?.database_share()?);
        Some(Share { amount: own.amount + database.amount, ..own })
    }

    /// Returns a lap's requests/s at the mean speed of the cores. Requests/s that the generator
    /// limits do not depend on the speed of the cores.
    pub(super) fn rate_share(&self, lap: &Lap, generator_limited: bool) -> Share {
        let share = lap.rate_share();
        let rate = self.rate.as_ref().filter(|_| !generator_limited);
        // The number of responses is not adjusted, because a round without a response has stalled.
        Share { of: share.of * self.factor(rate, lap), ..share }
    }

    fn factor(&self, speed: Option<&CoreSpeed>, lap: &Lap) -> f64 {
        let gauged = speed.zip(self.relative(lap));
        gauged.map_or(1.0, |(speed, gauge)| speed.factor(lap.server, gauge))
    }

    /// Returns how slow a lap's cores were: the logarithm of the gauge, minus the mean of the node.
    fn relative(&self, lap: &Lap) -> Option<f64> {
        Some(gauge(lap)? - self.usual.get(&self.node(lap))?)
    }

    fn node(&self, lap: &Lap) -> u32 {
        self.node_of.get(lap.restart as usize).copied().unwrap_or(0)
    }
}

fn gauge(lap: &Lap) -> Option<f64> {
    lap.usage.as_ref()?.gauged?.mean_ns().map(f64::ln).filter(|log| log.is_finite())
}

/// Returns the time per response of a lap, unless the generator limited it.
fn free_time(lap: &Lap) -> Option<f64> {
    let is_free = !lap.is_generator_limited() && lap.outcome.responses > 0;
    is_free.then(|| 1.0 / lap.requests_per_s())
}

/// Whether gauges of the servers can be compared. All servers must have the same cores, and a
/// gauge. The ratio of an adjusted server to another would change with the speed of the cores.
fn are_comparable(run: &Run, laps: &[&Lap]) -> bool {
    let cores = |server: &Server| server.cpus.as_ref().map(|(cores, _)| *cores);
    let mut all = run.servers.iter().filter(|server| server.role != Role::Ceiling).map(cores);
    let first = all.next();
    let mut gauged = BTreeMap::<usize, (usize, usize)>::new();
    for lap in laps {
        let (with, of) = gauged.entry(lap.server).or_default();
        *with += usize::from(gauge(lap).is_some());
        *of += 1;
    }
    all.all(|cores| Some(cores) == first)
        && gauged.values().all(|(with, of)| *with as f64 >= GAUGED * *of as f64)
}
