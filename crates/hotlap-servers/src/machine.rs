//! The machine, and reasons why figures measured on it may be unreliable.

mod arm;
mod doubt;
mod field;
mod host;
mod times;

pub use doubt::Doubt;
pub use host::Machine;
pub use times::{CpuShare, CpuTimes};
