//! Two servers' laps in, a ratio with its interval and a verdict out.
//!
//! Laps are paired within their block, so what the machine does to both cancels; blocks lie within
//! heats (fresh starts), and starts differ, so the interval comes from heats first.

use serde::{Deserialize, Serialize};

use crate::Estimate;

/// One paired observation: what a block says of a server and the reference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The fresh start that the block belongs to.
    pub heat: u32,
    /// The block within the heat.
    pub block: u32,
    /// ln(server / reference), both being the block's mean over its mirrored laps.
    pub log_ratio: f64,
}

/// What the pairs say together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// server / reference, with its interval.
    pub ratio: Estimate,
    /// Two-sided p-value of "the ratio is 1".
    pub p: f64,
    /// Standard deviation between heats, in log units.
    pub sd_heat: f64,
    /// Standard deviation between blocks of one heat, in log units.
    pub sd_block: f64,
}

/// What may be said of a server against the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// More of the good or less of the bad, beyond the noise.
    Better,
    /// The other way round, beyond the noise.
    Worse,
    /// No difference that could be measured.
    NoDifference,
}
