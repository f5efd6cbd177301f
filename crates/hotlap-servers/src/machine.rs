//! The machine that is measured on, and what about it makes figures unreliable.

mod arm;
mod doubt;
mod field;
mod host;
mod times;

pub use doubt::Doubt;
pub use host::Machine;
pub use times::{CpuShare, CpuTimes};
