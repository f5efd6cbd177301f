//! Every number and every verdict: what the laps of a run say, load by load, and what two or more
//! runs say together. Nothing here is rounded or put into words; that is [`crate::report`]'s part.
//!
//! [`Analysis`] is the heart: one load, with the figures of each server ([`measured`]), their
//! comparisons ([`compare`]) and ranks (`rank`). The other modules answer one question each:
//! what each layer costs ([`layers`]), how servers scale ([`scaling`]), how figures compare with
//! published ones ([`published`]), what speaks against the figures ([`warnings`], [`bias`]), what
//! differs between two runs ([`runs`]), and when a figure changed over many ([`trend`]).

pub mod bias;
pub mod compare;
pub mod latency;
pub mod layers;
mod load;
pub mod measure;
pub mod measured;
pub mod published;
mod rank;
pub mod runs;
pub mod scaling;
pub mod trend;
pub mod warnings;

pub use compare::{Found, Limited, ServerComparison};
pub use load::{Analysis, confidence};
pub use measure::{Measure, PerMeasure};
pub use measured::MeasuredServer;
