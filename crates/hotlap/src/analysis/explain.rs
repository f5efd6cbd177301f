//! Explains where the difference in CPU time per request between two servers comes from.
//!
//! The difference itself is measured in laps without an instrument. The profile divides the
//! difference among functions ([`ledger`]). Counts of events show what a server does more often
//! ([`counts`]). An [`ExplainLap`] enters no other figure, and no other laps enter an explanation.

pub mod counts;
pub mod function;
pub mod ledger;

use hotlap_bench::lap::readings;
use hotlap_stats::{ByRestart, Estimate, MIN_RESTARTS, Mean, apart, of_both, totals};

use super::confidence;
use crate::model::{ExplainLap, Role, Run};
pub use counts::{Amounts, CountLine, CountedEvent};
pub use function::{CodeGroup, Function, is_collector};
use ledger::Sampled;
pub use ledger::{FlameStack, FunctionLine, GroupLine, Ledger};

/// The largest p-value at which a difference in CPU time per request is significant.
const ALPHA: f64 = 0.05;

/// The explanation of why a server costs more or less CPU time than its reference.
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
    /// Whether the two servers differ in CPU time per request.
    pub differs: bool,
    /// The cost of each function in both servers. `None` without a profile.
    pub ledger: Option<Ledger>,
    /// What the profiler adds to the difference, in nanoseconds per request. `None` without a
    /// profile.
    pub distortion: Option<Estimate>,
    /// The counts of system calls, kernel events and bytes.
    pub counts: Vec<CountLine>,
    /// The cost of each sampled stack in both servers.
    pub stacks: Vec<FlameStack>,
}

impl Explanation {
    /// Returns the explanations of all servers that were observed. Empty if no explain laps count.
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

    /// Explains one difference. `None` unless both servers have laps without an instrument.
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
        let [of_reference, of_server] = plain(both);
        let cost = Amounts::of(&of_reference, &of_server, confidence)?;
        let differs = cost.p <= ALPHA && cost.restarts >= MIN_RESTARTS;
        let sampled = Sampled::of_both(both, [&of_reference, &of_server]);
        let ledger = sampled.as_ref().and_then(|both| Ledger::of(both, confidence, differs));
        let difference = Mean::of(apart(&of_server, &of_reference))?;
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
            stacks: sampled.as_ref().map(ledger::stacks).unwrap_or_default(),
        })
    }

    /// Returns the counts in which the two servers differ.
    pub fn evidence(&self) -> impl Iterator<Item = &CountLine> {
        self.counts.iter().filter(|line| line.differs)
    }
}

/// Returns the CPU time per request of a reference and of a server, by restart. Only laps without
/// an instrument count, in rounds that both servers have.
fn plain(laps: [&[&ExplainLap]; 2]) -> [ByRestart; 2] {
    let [reference, server] = laps.map(|laps| {
        let plain = laps.iter().filter(|explains| explains.observation.is_none());
        let shares = plain.filter_map(|explains| {
            Some((explains.lap.restart, explains.lap.round, explains.cost_share()?))
        });
        readings(shares)
    });
    [(&reference, &server), (&server, &reference)].map(|(own, other)| {
        totals(of_both(own, other)).into_iter().map(|(restart, log)| (restart, log.exp())).collect()
    })
}
