//! How a log is replayed, and what comes of it.

use std::collections::BTreeMap;

use hotlap_load::plan::DueTimes;

use crate::contract::Requests;

/// How a log is replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replay {
    /// The order of the requests.
    pub order: ReplayOrder,
    /// Whether methods other than GET and HEAD are sent, too.
    pub unsafe_methods: bool,
}

/// The order in which the requests of a log are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReplayOrder {
    /// That of the lines.
    Lines,
    /// Random, each as often as in the log.
    Random {
        /// The same seed gives the same order.
        seed: u64,
    },
    /// Each at its time.
    Times {
        /// How many times as fast as in the log.
        speed: f64,
    },
}

/// A log that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessLog {
    /// Its requests, and their order.
    pub requests: Requests,
    /// When they are due; with [`ReplayOrder::Times`] only.
    pub due: Option<DueTimes>,
    /// What was left out.
    pub left_out: LeftOut,
}

/// The lines of a log that are not sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// All lines of the log that are not blank.
    pub of: u64,
    /// Lines that have no request that can be sent.
    pub lines: u64,
    /// The number of the first of them, from 1, and what is wrong with it: "line 3 has no request".
    pub first: Option<(u64, String)>,
    /// Requests with methods other than GET and HEAD, by method.
    pub methods: BTreeMap<String, u64>,
}
