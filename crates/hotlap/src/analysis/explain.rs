//! Where the difference in CPU time per request between two servers comes from.
//!
//! The difference itself is that of the laps without an instrument. The profile divides it among
//! functions ([`ledger`]); what was counted shows what a server does more often ([`counts`]). Laps
//! that explain count for nothing else, and no other laps count here.

mod amounts;
pub mod counts;
mod flame;
pub mod function;
pub mod group;
pub mod ledger;

use std::collections::BTreeMap;

use hotlap_bench::lap::readings;
use hotlap_stats::{Amount, Estimate, MIN_RESTARTS};

use super::confidence;
use crate::model::{ExplainLap, Role, Run};
pub use amounts::Amounts;
pub use counts::{CountLine, Counted};
pub use flame::FlameStack;
pub use function::Function;
pub use group::{Group, is_collector};
pub use ledger::{FunctionLine, GroupLine, Ledger};

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
    /// The part of the difference that the profile does not show, in nanoseconds per request.
    pub unexplained: Option<Estimate>,
    /// What was counted.
    pub counts: Vec<CountLine>,
    /// Both profiles by stack.
    pub stacks: Vec<FlameStack>,
}

impl Explanation {
    /// The explanations of all servers that were observed; none if no laps explain.
    #[must_use]
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
            let own = |lap: &&ExplainLap| lap.server == server && lap.load == load && lap.counts();
            run.explain.iter().filter(own).collect()
        };
        let (a, b) = (laps(reference), laps(server));
        let both = [&a[..], &b[..]];
        let (cost, difference) = cost(both, confidence)?;
        let differs = cost.p <= ALPHA && cost.restarts >= MIN_RESTARTS;
        let ledger = Ledger::of(both, confidence, differs);
        let unexplained =
            ledger.as_ref().map(|ledger| difference.minus(&ledger.apart).estimate(confidence));
        Some(Self {
            load,
            reference,
            server,
            cost,
            differs,
            ledger,
            unexplained,
            counts: counts::counts(both, confidence),
            stacks: flame::stacks(both),
        })
    }

    /// What was counted and differs.
    pub fn evidence(&self) -> impl Iterator<Item = &CountLine> {
        self.counts.iter().filter(|line| line.differs)
    }
}

/// CPU time per request of the laps without an instrument, and the difference. Rounds are pairs, so
/// what disturbs one round does not count much.
fn cost([reference, server]: [&[&ExplainLap]; 2], confidence: f64) -> Option<(Amounts, Amount)> {
    let of = |laps: &[&ExplainLap]| -> BTreeMap<(u32, u32), f64> {
        let plain = laps.iter().filter(|lap| lap.observation.is_none());
        let shares = plain.filter_map(|lap| Some((lap.restart, lap.round, lap.cost_share()?)));
        readings(shares).iter().map(|r| ((r.restart, r.round), r.value)).collect()
    };
    let (a, b) = (of(reference), of(server));
    let both: Vec<(u32, u32)> = a.keys().filter(|round| b.contains_key(round)).copied().collect();
    let level = |own: &BTreeMap<(u32, u32), f64>| {
        Amount::of(both.iter().map(|round| (round.0, own[round])))
    };
    let difference = Amount::of(both.iter().map(|round| (round.0, b[round] - a[round])))?;
    let amounts = Amounts {
        reference: level(&a)?.estimate(confidence),
        server: level(&b)?.estimate(confidence),
        difference: difference.estimate(confidence),
        p: difference.p(),
        restarts: difference.restarts,
    };
    Some((amounts, difference))
}
