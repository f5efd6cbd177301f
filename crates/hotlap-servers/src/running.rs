//! A server while it runs, wherever that is: what a runner does with it between start and stop, and
//! who starts it.
//!
//! [`LocalHost`] starts servers as processes of this machine. Those of another host are behind the
//! same two traits, in `hotlap-agent`.

mod here;
mod host;
mod server;

pub use here::LocalServer;
pub use host::{Found, LocalHost, ServerHost, StartOrder, Up};
pub use server::{LogWait, RunningServer, Sample, State, Unreachable};
