//! The effect of overload, slow clients and malformed input on servers.
//!
//! Servers are not compared with each other: each scenario has its own verdict rather than a figure
//! with an interval.

mod results;
mod sections;

pub use results::{ScenarioResult, Stress, StressedServer};
pub use sections::{Remark, StressSection};
