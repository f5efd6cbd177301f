//! A running server, on this machine or on another host.
//!
//! [`LocalHost`] starts servers as processes of this machine. `hotlap-agent` implements the traits
//! [`ServerHost`] and [`RunningServer`] for other hosts.

mod host;
mod local;
mod server;
mod start;

pub use host::LocalHost;
pub use local::LocalServer;
pub use server::{
    Found, LogWait, RunningServer, Sample, ServerHost, ServerState, StartOrder, Unreachable, Up,
};
pub use start::{HOST, NO_PORT, RUN_BY_HAND, UNREADY};
