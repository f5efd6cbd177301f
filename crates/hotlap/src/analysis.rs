//! Computes every number and every verdict from the laps of one or several runs. [`crate::report`]
//! rounds the numbers and puts them into words.
//!
//! [`Analysis`] is the central type. An analysis has the servers of one load ([`MeasuredServer`]),
//! their comparisons ([`ServerComparison`]) and their ranks. Each of these modules has one task:
//!
//! - `suites` answers the questions that suites ask.
//! - `capacity` finds the highest rate at which a server meets the goals.
//! - `explain` finds what explains a difference in cost.
//! - `warnings` finds what may be wrong with the figures.
//! - `bias` finds the slice bias, and servers that were not steady.
//! - `runs` compares stored runs with one another.

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
