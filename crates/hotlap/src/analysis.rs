//! Every number and every verdict: what the laps of a run show, load by load, and how two or more
//! runs compare. Nothing here is rounded or put into words; [`crate::report`] does that.
//!
//! [`Analysis`] is the central type: one load, with its servers ([`MeasuredServer`], each with its
//! requests), their comparisons ([`ServerComparison`]) and ranks. Each other module has one task:
//! the questions of suites ([`suites`]), the capacity under a goal ([`capacity`]), what explains a
//! difference in cost ([`explain`]), warnings ([`warnings`]), the bias of slices and servers that
//! were not steady ([`bias`]), and stored runs ([`runs`]).

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
