//! How servers bore overload, slow clients and malformed input.
//!
//! Nothing is compared between servers here: each scenario has a verdict of its own, not a figure
//! with an interval.

mod results;
mod sections;

pub use results::{ScenarioResult, Stress, StressedServer};
pub use sections::{Remark, StressSection};
