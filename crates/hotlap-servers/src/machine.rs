//! Where figures come from: the machine, and what on it makes them doubtful.

mod arm;
mod doubt;
mod field;
mod host;
mod times;

pub use doubt::Doubt;
pub use host::Machine;
pub use times::{CpuShare, CpuTimes};
