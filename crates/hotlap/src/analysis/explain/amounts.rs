//! An amount per request of two servers, and its difference.

use std::collections::{BTreeMap, BTreeSet};

use hotlap_stats::{Amount, Estimate};

/// An amount per request of the reference and of a server, and the difference between the two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Amounts {
    /// Of the reference.
    pub reference: Estimate,
    /// Of the server.
    pub server: Estimate,
    /// The server's minus the reference's.
    pub difference: Estimate,
    /// Two-sided p-value of the hypothesis that they do not differ.
    pub p: f64,
    /// The restarts that it rests on.
    pub restarts: u32,
}

impl Amounts {
    /// The server's amount ÷ the reference's. Its interval carries only the error of the
    /// difference.
    pub fn ratio(&self) -> Estimate {
        let of = |difference: f64| 1.0 + difference / self.reference.value;
        let Estimate { value, low, high } = self.difference;
        Estimate { value: of(value), low: of(low), high: of(high) }
    }
}

/// One value for each restart.
pub(super) type ByRestart = BTreeMap<u32, f64>;

/// The server's value minus the reference's in each restart that both have.
pub(super) fn apart(reference: &ByRestart, server: &ByRestart) -> impl Iterator<Item = (u32, f64)> {
    server.iter().filter_map(|(restart, own)| Some((*restart, own - reference.get(restart)?)))
}

impl Amounts {
    /// From one value of each server for each restart; restarts that only one of them has are left
    /// out. `None` without any.
    pub(super) fn of(reference: &ByRestart, server: &ByRestart, confidence: f64) -> Option<Self> {
        let both: BTreeSet<u32> =
            reference.keys().filter(|restart| server.contains_key(restart)).copied().collect();
        let of =
            |values: &ByRestart| Amount::of(both.iter().map(|restart| (*restart, values[restart])));
        let difference = Amount::of(apart(reference, server))?;
        Some(Self {
            reference: of(reference)?.estimate(confidence),
            server: of(server)?.estimate(confidence),
            difference: difference.estimate(confidence),
            p: difference.p(),
            restarts: difference.restarts,
        })
    }

    /// The larger of the two amounts.
    pub fn larger(&self) -> f64 {
        self.reference.value.abs().max(self.server.value.abs())
    }
}
