//! Numbers that know nothing of the world.
//!
//! What is measured elsewhere comes in as plain figures; what it means goes out: histograms,
//! estimates with intervals, comparisons with verdicts, and the test for a steady state. There is
//! no I/O in here, no clock, no thread and no unsafe code; randomness is passed in by its seed, so
//! that the same figures always lead to the same words.
#![forbid(unsafe_code)]

pub mod changes;
pub mod compare;
pub mod estimate;
pub mod histogram;
pub mod percentile;
mod restarts;
pub mod steady;
pub mod stop;
pub mod student;
pub mod verdict;

pub use changes::changes;
pub use compare::{Effect, Pair};
pub use estimate::{Estimate, Reading};
pub use histogram::Histogram;
pub use percentile::{Ages, Censored, Percentile, Survival};
pub use verdict::{Bar, Better, Comparison, Floor, Verdict, Why};
