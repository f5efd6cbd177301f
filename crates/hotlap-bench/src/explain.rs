//! Laps that explain where a difference in cost comes from.
//!
//! They are run apart from the laps of an experiment and count for none of its figures: the
//! instruments cost CPU time, and runtimes are started with flags that make them name their
//! functions. So the plain laps among them, which have no instrument on, count only here too.

use std::time::Duration;

use hotlap_observe::Observation;
use hotlap_stats::Share;
use serde::{Deserialize, Serialize};

use crate::lap::Lap;

/// Whether an experiment explains the differences in cost between its servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Explain {
    /// It does not.
    #[default]
    No,
    /// After its laps, in restarts of their own, for this long.
    After(Duration),
    /// It does nothing else; budget, restarts and rounds are those of the experiment.
    Only,
}

/// A lap that explains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExplainLap {
    /// The lap.
    pub lap: Lap,
    /// What an instrument saw in it; `None` if none was on.
    pub observation: Option<Observation>,
}

impl ExplainLap {
    /// Right responses and failures while the server was observed.
    pub fn requests(&self) -> u64 {
        self.lap.usage.map_or(0, |usage| usage.requests)
    }

    /// Whether it counts in estimates.
    pub fn counts(&self) -> bool {
        self.requests() > 0 && self.lap.counts()
    }

    /// Its contribution to the CPU time per request, in nanoseconds.
    pub fn cost_share(&self) -> Option<Share> {
        self.lap.cost_share()
    }
}
