//! The speed of the servers' cores during each lap, and the effect of this speed on the figures.

use std::collections::BTreeMap;

use hotlap_stats::{CoreSpeed, GaugedLap, Share};

use crate::lap::Lap;
use crate::participant::{Role, program};

/// Nothing is adjusted unless each server has a gauge in at least this share of its laps. A sample
/// from another host may be lost.
const GAUGED: f64 = 0.9;

/// The figures of a lap that are compared, and the speed of the server's cores.
#[derive(Debug, Clone, Copy)]
pub struct LapFigures {
    /// The server, as an index into the experiment's participants.
    pub server: usize,
    /// Restart number, from 0.
    pub restart: u32,
    /// Round number within the restart, from 0.
    pub round: u32,
    /// CPU time per request, in nanoseconds. `None` if unknown.
    pub cost: Option<Share>,
    /// Requests/s.
    pub rate: Share,
    database: Option<Share>,
    is_generator_limited: bool,
    /// The logarithm of the gauge. `None` without a gauge.
    gauge: Option<f64>,
}

impl From<&Lap> for LapFigures {
    fn from(lap: &Lap) -> Self {
        let gauge = lap.usage.and_then(|usage| usage.gauged?.mean_ns()).map(f64::ln);
        Self {
            server: lap.server,
            restart: lap.restart,
            round: lap.round,
            cost: lap.cost_share(),
            rate: lap.rate_share(),
            database: lap.usage.and_then(|usage| usage.database_share()),
            is_generator_limited: lap.is_generator_limited(),
            gauge: gauge.filter(|log| log.is_finite()),
        }
    }
}

impl LapFigures {
    /// The logarithm of the CPU time per request.
    fn cost_log(&self) -> Option<f64> {
        Some(self.cost?.value()?.ln())
    }

    /// The logarithm of the time per response, unless the generator limited the lap.
    fn time_log(&self) -> Option<f64> {
        let rate = self.rate.value().filter(|rate| !self.is_generator_limited && *rate > 0.0);
        rate.map(|rate| -rate.ln())
    }
}

/// How the figures under one load depend on the speed of the servers' cores.
#[derive(Debug, Default)]
pub struct Speed {
    /// The mean logarithm of the gauge over laps, by node. A run on one machine has one node.
    usual: BTreeMap<u32, f64>,
    /// The node of each restart in a pool.
    node_of: Vec<u32>,
    /// The program of each server. The control runs the reference's program.
    programs: Vec<usize>,
    /// The effect of the speed on CPU time per request. `None` if CPU time is not adjusted.
    pub cost: Option<CoreSpeed>,
    /// The effect of the speed on requests/s. `None` if requests/s are not adjusted.
    pub rate: Option<CoreSpeed>,
    /// By how much the gauge varied, as a share: one standard deviation over laps. In a pool, the
    /// deviations are from each node's own mean.
    pub varied: f64,
}

impl Speed {
    /// Fits how the figures of laps under one load depend on the speed of the cores. `servers` has
    /// each server's role and number of cores. In a pool, `node_of` has the node of each restart.
    /// Without a pool, `node_of` is empty. Nothing is adjusted if servers use different numbers of
    /// cores, or if a server has a gauge in too few laps.
    pub fn of(laps: &[LapFigures], servers: &[(Role, usize)], node_of: &[u32]) -> Self {
        let roles = || servers.iter().map(|(role, _)| *role);
        let programs = (0..servers.len()).map(|server| program(roles(), server));
        let mut speed =
            Self { node_of: node_of.to_vec(), programs: programs.collect(), ..Self::default() };
        if !have_same_cores(servers) || !are_gauged(laps) {
            return speed;
        }
        let mut nodes = BTreeMap::<u32, Vec<f64>>::new();
        for (lap, gauge) in laps.iter().filter_map(|lap| Some((lap, lap.gauge?))) {
            nodes.entry(speed.node(lap)).or_default().push(gauge);
        }
        let mean = |gauges: &[f64]| gauges.iter().sum::<f64>() / gauges.len() as f64;
        speed.usual = nodes.iter().map(|(node, gauges)| (*node, mean(gauges))).collect();
        // A slow core makes both figures larger.
        let gauged = |lap: &LapFigures, figure: Option<f64>| {
            let (figure, gauge) = (figure?, speed.relative(lap)?);
            let (program, start) = (speed.programs[lap.server], (lap.server, lap.restart));
            Some(GaugedLap { program, start, figure, gauge })
        };
        let fit = |figure: fn(&LapFigures) -> Option<f64>| {
            CoreSpeed::of(
                &laps.iter().filter_map(|lap| gauged(lap, figure(lap))).collect::<Vec<_>>(),
            )
        };
        let squares: Vec<f64> =
            laps.iter().filter_map(|lap| Some(speed.relative(lap)?.powi(2))).collect();
        let (cost, rate) = (fit(LapFigures::cost_log), fit(LapFigures::time_log));
        let varied = if squares.is_empty() { 0.0 } else { mean(&squares).sqrt().exp_m1() };
        Self { cost, rate, varied, ..speed }
    }

    /// Whether CPU time per request or requests/s are adjusted.
    pub fn adjusts(&self) -> bool {
        self.cost.is_some() || self.rate.is_some()
    }

    /// Returns a lap's CPU time per request at the mean speed of the cores.
    pub fn cost_share(&self, lap: impl Into<LapFigures>) -> Option<Share> {
        let lap = lap.into();
        let share = lap.cost?;
        Some(Share { amount: share.amount * self.factor(self.cost.as_ref(), &lap), ..share })
    }

    /// Returns a lap's CPU time per request of server and database. The speed of the database's
    /// cores is unknown, so only the server's CPU time is adjusted.
    pub fn total_share(&self, lap: impl Into<LapFigures>) -> Option<Share> {
        let lap = lap.into();
        let (own, database) = (self.cost_share(lap)?, lap.database?);
        Some(Share { amount: own.amount + database.amount, ..own })
    }

    /// Returns a lap's requests/s at the mean speed of the cores. Requests/s that the generator
    /// limits do not depend on the speed of the cores.
    pub fn rate_share(&self, lap: impl Into<LapFigures>, generator_limited: bool) -> Share {
        let lap = lap.into();
        let rate = self.rate.as_ref().filter(|_| !generator_limited);
        // The number of responses is not adjusted, because a round without a response has stalled.
        Share { of: lap.rate.of * self.factor(rate, &lap), ..lap.rate }
    }

    fn factor(&self, speed: Option<&CoreSpeed>, lap: &LapFigures) -> f64 {
        let gauged = speed.zip(self.relative(lap));
        gauged.map_or(1.0, |(speed, gauge)| speed.factor(self.programs[lap.server], gauge))
    }

    /// Returns how slow a lap's cores were: the logarithm of the gauge, minus the mean of the node.
    fn relative(&self, lap: &LapFigures) -> Option<f64> {
        Some(lap.gauge? - self.usual.get(&self.node(lap))?)
    }

    fn node(&self, lap: &LapFigures) -> u32 {
        self.node_of.get(lap.restart as usize).copied().unwrap_or(0)
    }
}

/// Whether each server has a gauge in enough laps. Otherwise, the ratio of an adjusted server to
/// one that is not adjusted would change with the speed of the cores.
fn are_gauged(laps: &[LapFigures]) -> bool {
    let mut gauged = BTreeMap::<usize, (usize, usize)>::new();
    for lap in laps {
        let (with, of) = gauged.entry(lap.server).or_default();
        *with += usize::from(lap.gauge.is_some());
        *of += 1;
    }
    gauged.values().all(|(with, of)| *with as f64 >= GAUGED * *of as f64)
}

/// Whether the gauges of servers can be compared, because all servers use the same number of
/// cores. The ceiling may use another number, because the ceiling is not compared. The control has
/// the cores of the reference.
fn have_same_cores(servers: &[(Role, usize)]) -> bool {
    let is_compared = |role| matches!(role, Role::Plain | Role::Reference);
    let mut cores = servers.iter().filter(|(role, _)| is_compared(*role)).map(|own| own.1);
    let first = cores.next();
    cores.all(|cores| Some(cores) == first)
}
