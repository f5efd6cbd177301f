//! Servers on another host: the agent builds and starts them there, freezes, samples and observes
//! them, and stops them. Requests do not pass through the agent.
//!
//! ```text
//! remote     the controller's end: a host that starts servers
//!   running  a server that runs there
//!   reach    the address at which the generator reaches it
//! service    the agent's end
//!   task     what takes longer than a call may: builds and starts
//!   door     lets the controller find out which of the agent's addresses it reaches
//! order      what is said
//! ```

pub(crate) mod door;
mod order;
pub(crate) mod reach;
mod remote;
mod running;
mod service;
mod task;

pub(crate) use order::boot;
pub use order::{BuiltThere, Description};
pub use remote::{Build, RemoteHost, Wanted};
pub use service::{ServerService, ServerSetting};
