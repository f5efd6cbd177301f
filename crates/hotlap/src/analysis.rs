//! Every number and every verdict: what the laps of a run say, load by load, and what two or more
//! runs say together. Nothing here is rounded or put into words; that is [`crate::report`]'s part.
//!
//! [`Analysis`] is the heart: one load, with the figures of each server ([`measured`]), their
//! comparisons ([`compare`]) and ranks ([`rank`]). The other modules answer one question each:
//! what each layer costs ([`layers`]), how servers scale ([`scaling`]), how figures compare with
//! published ones ([`published`]), what speaks against the figures ([`warnings`], [`bias`]), what
//! differs between two runs ([`runs`]), and when a figure changed over many ([`trend`]).

pub mod bias;
pub mod compare;
pub mod latency;
pub mod layers;
pub mod measure;
pub mod measured;
pub mod published;
mod rank;
pub mod runs;
pub mod scaling;
pub mod trend;
pub mod warnings;

use std::borrow::Cow;

use hotlap_stats::{
    Effect, Estimate, Goal, Inconclusive, NoiseFloor, Reading, effect, pairs, pooled,
};

use crate::model::{Probed, Role, Run};

pub use compare::{Found, Limited, ServerComparison};
pub use measure::{Measure, PerMeasure};
pub use measured::MeasuredServer;

/// All servers of a run under one load.
#[derive(Debug)]
pub struct Analysis {
    /// Which load, as an index.
    pub load: usize,
    /// The rate that the load offers, in requests/s; `None` in a closed loop.
    pub offered: Option<f64>,
    /// Of every interval.
    pub confidence: f64,
    /// The servers of the run, in its order.
    pub servers: Vec<MeasuredServer>,
    /// The reference, as an index.
    pub reference: Option<usize>,
    /// The ceiling, as an index.
    pub ceiling: Option<usize>,
    /// The A/A control against the reference; `None` where they have no round in common.
    pub noise: PerMeasure<Option<Effect>>,
    /// The A/A control: the reference under a hidden name, as an index.
    control: Option<usize>,
    /// What slices do to the cost of each server.
    probed: Vec<Probed>,
}

impl Analysis {
    /// The analysis of one load, given as an index.
    #[must_use]
    pub fn of(run: &Run, load: usize) -> Self {
        let role = |role| run.servers.iter().position(|s| s.role == role);
        let mut analysis = Self {
            load,
            offered: run.loads.get(load).and_then(|load| load.rate),
            confidence: confidence(run),
            servers: (0..run.servers.len()).map(|s| MeasuredServer::of(run, load, s)).collect(),
            reference: role(Role::Reference),
            ceiling: role(Role::Ceiling),
            noise: PerMeasure::default(),
            control: role(Role::Control),
            probed: run.schedule.probed.iter().filter(|p| p.load == load).copied().collect(),
        };
        analysis.noise = PerMeasure::of(|measure| analysis.noise_in(measure));
        analysis.compare_with_reference(run);
        analysis.rank(run);
        analysis
    }

    /// The analyses of all loads of a run.
    #[must_use]
    pub fn of_all(run: &Run) -> Vec<Self> {
        (0..run.loads.len()).map(|load| Self::of(run, load)).collect()
    }

    /// Whether any lap of any server counts.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.servers.iter().any(MeasuredServer::is_measured)
    }

    fn noise_in(&self, measure: Measure) -> Option<Effect> {
        let (reference, control) = (&self.servers[self.reference?], &self.servers[self.control?]);
        effect(&pairs(&control.readings[measure], &reference.readings[measure]), self.confidence)
    }

    /// The noise floor of one measure, for two servers neither of which is the reference.
    #[must_use]
    pub fn floor(&self, measure: Measure) -> NoiseFloor {
        match self.reference.zip(self.control) {
            Some(_) => NoiseFloor::of(self.noise[measure].as_ref()),
            None => NoiseFloor::NoControl,
        }
    }

    /// The least difference from the reference that is not noise, as a share; `None` where it is
    /// not known.
    #[must_use]
    pub fn noise_band(&self, measure: Measure) -> Option<f64> {
        let is_known = self.floor(measure) != NoiseFloor::Unusable(Inconclusive::NoiseUnknown);
        is_known.then_some(self.noise[measure]?.far_end().exp_m1())
    }

    /// A server's readings as one side of a comparison. The A/A control is the same program as the
    /// reference, so that its readings count as the reference's second half.
    #[must_use]
    pub fn side(&self, server: usize, measure: Measure) -> Cow<'_, [Reading]> {
        let own = &self.servers[server].readings[measure];
        match self.control.filter(|_| Some(server) == self.reference) {
            Some(control) => pooled(own, &self.servers[control].readings[measure]).into(),
            None => own.into(),
        }
    }

    /// The ceiling's CPU time per request over a server's; `None` where either is unknown.
    #[must_use]
    pub fn of_ceiling(&self, server: usize) -> Option<Estimate> {
        let costs = |server: usize| &self.servers[server].readings[Measure::Cost];
        Some(effect(&pairs(costs(self.ceiling?), costs(server)), self.confidence)?.ratio)
    }

    /// Servers in the order in which tables and sentences name them.
    ///
    /// They are sorted by rank; within a rank, those that the generator limits come first, by CPU
    /// time per request, then the others by requests/s. Those without a rank follow in the same
    /// order, then the ceiling. Layers keep the order of their steps.
    pub fn sort(&self, run: &Run, servers: &mut [usize]) {
        servers.sort_by(|&a, &b| {
            let ((a, figure_a), (b, figure_b)) = (self.place(run, a), self.place(run, b));
            a.cmp(&b).then(figure_a.total_cmp(&figure_b))
        });
    }

    fn place(&self, run: &Run, server: usize) -> ((u32, u32), f64) {
        let measured = &self.servers[server];
        let rank = measured.rank.unwrap_or(u32::MAX - 1);
        match (run.servers[server].role, &measured.level[Measure::Rate]) {
            (Role::Ceiling, _) => ((u32::MAX, 0), 0.0),
            _ if run.asks_for_layers() => ((0, 0), server as f64),
            (_, Some(_)) if measured.generator_limited => {
                ((rank, 0), measured.level[Measure::Cost].map_or(f64::MAX, |cost| cost.value))
            }
            (_, Some(rate)) => ((rank, 1), -rate.value),
            (_, None) => ((rank, 2), 0.0),
        }
    }

    /// Whether two servers serve the rate that the load offers: their requests/s say nothing then.
    fn keep_up(&self, server: usize, other: usize) -> bool {
        self.servers[server].keeps_up && self.servers[other].keeps_up
    }
}

/// The confidence of every interval of a run, and 1 - the share of false alarms that is accepted
/// over all comparisons of one table together. It is higher where the run was to end once it looked
/// precise, see [`Goal::confidence_of_run`].
#[must_use]
pub fn confidence(run: &Run) -> f64 {
    Goal { precision: run.schedule.precision, ..Goal::default() }.confidence_of_run()
}

/// Whether a server takes part in comparisons: not the ceiling, not the A/A control, not one that
/// failed.
#[must_use]
pub fn is_compared(run: &Run, server: usize) -> bool {
    let server = &run.servers[server];
    matches!(server.role, Role::Plain | Role::Reference) && server.failure.is_none()
}

/// Whether tables show a server: not the A/A control, not one that failed.
#[must_use]
pub fn is_shown(run: &Run, server: usize) -> bool {
    let server = &run.servers[server];
    server.role != Role::Control && server.failure.is_none()
}

/// How many restarts have laps under a load.
#[must_use]
pub fn restarts(run: &Run, load: usize) -> u32 {
    run.laps.iter().filter(|l| l.load == load).map(|l| l.restart + 1).max().unwrap_or(0)
}
