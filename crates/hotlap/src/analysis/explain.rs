//! Where the difference in CPU time per request between two servers comes from.
//!
//! The difference itself is that of the laps without an instrument. The profile divides it among
//! functions ([`ledger`]); what was counted shows what a server does more often ([`counts`]). Laps
//! that explain count for nothing else, and no other laps count here.

mod amounts;
mod callers;
pub mod counts;
mod flame;
pub mod function;
pub mod group;
pub mod ledger;
mod sampled;

use hotlap_bench::lap::readings;
use hotlap_stats::{Amount, Estimate, MIN_RESTARTS, values_by_restart};

use super::confidence;
use crate::model::{ExplainLap, Role, Run};
pub use amounts::Amounts;
use amounts::ByRestart;
pub use counts::{CountLine, Counted};
pub use flame::FlameStack;
pub use function::Function;
pub use group::{Group, is_collector};
pub use ledger::{FunctionLine, GroupLine, Ledger};
use sampled::Sampled;

/// The largest p-value at which the difference itself counts.
const ALPHA: f64 = 0.05;

/// Why a server costs more or less than its reference.
#[derive(Debug)]
pub struct Explanation {
    /// The index of the load.
    pub load: usize,
    /// The index of the reference.
    pub reference: usize,
    /// The index of the server.
    pub server: usize,
    /// CPU time per request, in nanoseconds.
    pub cost: Amounts,
    /// Whether the two differ in it.
    pub differs: bool,
    /// What the functions of both cost; `None` without a profile.
    pub ledger: Option<Ledger>,
    /// What the profiler adds to the difference, in nanoseconds per request; `None` without a
    /// profile.
    pub distortion: Option<Estimate>,
    /// What was counted.
    pub counts: Vec<CountLine>,
    /// Both profiles by stack.
    pub stacks: Vec<FlameStack>,
}

impl Explanation {
    /// The explanations of all servers that were observed; none if no laps explain.
    pub fn of_all(run: &Run) -> Vec<Self> {
        let Some(reference) = run.servers.iter().position(|s| s.role == Role::Reference) else {
            return Vec::new();
        };
        let others =
            (0..run.servers.len()).filter(|&server| server != reference && run.is_compared(server));
        let loads = 0..run.loads.len();
        let pairs = loads.flat_map(|load| others.clone().map(move |server| (load, server)));
        pairs.filter_map(|(load, server)| Self::of(run, load, (reference, server))).collect()
    }

    /// The explanation of one difference; `None` without laps of both servers.
    fn of(run: &Run, load: usize, (reference, server): (usize, usize)) -> Option<Self> {
        let confidence = confidence(run);
        let laps = |server: usize| -> Vec<&ExplainLap> {
            let own = |explains: &&ExplainLap| {
                explains.lap.server == server && explains.lap.load == load && explains.counts()
            };
            run.explain.iter().filter(own).collect()
        };
        let (a, b) = (laps(reference), laps(server));
        let both = [&a[..], &b[..]];
        let plain = Plain::of(both)?;
        let difference = plain.difference()?;
        let cost = plain.amounts(&difference, confidence)?;
        let differs = cost.p <= ALPHA && cost.restarts >= MIN_RESTARTS;
        let [of_reference, of_server] = &plain.by_restart;
        let sampled = Sampled::of_both(both, [of_reference, of_server]);
        let ledger = sampled.as_ref().and_then(|both| Ledger::of(both, confidence, differs));
        let distortion =
            ledger.as_ref().map(|ledger| ledger.profiled.minus(&difference).estimate(confidence));
        Some(Self {
            load,
            reference,
            server,
            cost,
            differs,
            ledger,
            distortion,
            counts: counts::counts(both, confidence),
            stacks: sampled.as_ref().map(flame::stacks).unwrap_or_default(),
        })
    }

    /// What was counted and differs.
    pub fn evidence(&self) -> impl Iterator<Item = &CountLine> {
        self.counts.iter().filter(|line| line.differs)
    }
}

/// CPU time per request of the laps without an instrument, by restart, over the rounds that both
/// servers have.
struct Plain {
    by_restart: [ByRestart; 2],
}

impl Plain {
    /// Of a reference and a server; `None` without a round of both.
    fn of(laps: [&[&ExplainLap]; 2]) -> Option<Self> {
        let of_both = laps.map(|laps| {
            let plain = laps.iter().filter(|explains| explains.observation.is_none());
            let shares = plain.filter_map(|explains| {
                Some((explains.lap.restart, explains.lap.round, explains.cost_share()?))
            });
            readings(shares)
        });
        let [reference, server] = &of_both;
        let by_restart =
            [values_by_restart(reference, server), values_by_restart(server, reference)];
        (!by_restart[0].is_empty()).then_some(Self { by_restart })
    }

    /// The difference, restart by restart.
    fn difference(&self) -> Option<Amount> {
        let [a, b] = &self.by_restart;
        Amount::of(
            a.iter().filter_map(|(restart, value)| Some((*restart, b.get(restart)? - value))),
        )
    }

    fn amounts(&self, difference: &Amount, confidence: f64) -> Option<Amounts> {
        let level = |own: &ByRestart| {
            Some(Amount::of(own.iter().map(|(n, value)| (*n, *value)))?.estimate(confidence))
        };
        Some(Amounts {
            reference: level(&self.by_restart[0])?,
            server: level(&self.by_restart[1])?,
            difference: difference.estimate(confidence),
            p: difference.p(),
            restarts: difference.restarts,
        })
    }
}
