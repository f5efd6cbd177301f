//! Every number and every verdict: what the laps of a run show, load by load, and how two or more
//! runs compare. Nothing here is rounded or put into words. [`crate::report`] does that.
//!
//! [`Analysis`] is the central type: one load, with its servers ([`MeasuredServer`], each with its
//! requests), their comparisons ([`ServerComparison`]) and ranks. Each other module has one task:
//!
//! - `suites` answers the questions of suites.
//! - `capacity` finds the capacity under a goal.
//! - `explain` finds what explains a difference in cost.
//! - `warnings` finds what may be wrong with the figures.
//! - `bias` finds the bias of slices, and servers that were not steady.
//! - `runs` compares stored runs.

pub mod bias;
pub mod capacity;
mod compare;
pub mod explain;
pub mod latency;
mod load;
mod measured;
pub mod runs;
pub mod suites;
pub mod warnings;

pub use bias::Unsteady;
pub use capacity::CapacityAnalysis;
pub use compare::{Found, Level, Limited, Measure, PerMeasure, ServerComparison};
pub use explain::Explanation;
pub use load::{Analysis, confidence};
pub use measured::{MeasuredRequest, MeasuredServer, RequestTimes, Used};
