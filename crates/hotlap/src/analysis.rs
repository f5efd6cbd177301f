//! Every number and every verdict: what the laps of a run show, load by load, and how two or more
//! runs compare. Nothing here is rounded or put into words; [`crate::report`] does that.
//!
//! [`Analysis`] is the central type: one load, with the figures of each server ([`measured`]) and
//! of each request to it ([`request`]), the comparisons of servers ([`compare`]) and their ranks
//! (`rank`). Each other module has one task: the cost of layers ([`layers`]), the capacity under a
//! goal ([`capacity`]), what explains a difference in cost ([`explain`]), how servers scale
//! ([`scaling`]), published figures ([`published`]), warnings ([`warnings`]), the bias of slices
//! ([`bias`]), what intervals rest on ([`nodes`]), the comparison of two runs ([`runs`]), and
//! changes over many runs ([`trend`]).

pub mod bias;
pub mod capacity;
pub mod compare;
pub mod explain;
pub mod latency;
pub mod layers;
mod load;
pub mod measure;
pub mod measured;
pub mod nodes;
pub mod published;
mod rank;
pub mod request;
pub mod runs;
pub mod scaling;
pub mod trend;
pub mod unsteady;
pub mod warnings;

pub use capacity::CapacityAnalysis;
pub use compare::{Found, Limited, ServerComparison};
pub use explain::Explanation;
pub use load::{Analysis, confidence};
pub use measure::{Measure, PerMeasure};
pub use measured::MeasuredServer;
pub use nodes::Level;
pub use request::{MeasuredRequest, RequestTimes};
