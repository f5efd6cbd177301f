//! hotlap on other hosts: both ends of a channel to an agent. An agent is the same program, started
//! by a command that the user already trusts (`ssh host`, `ip netns exec`), which speaks over its
//! standard input and output. There is no port, no daemon and no secret.
//!
//! This crate knows nothing of experiments, flags, SQL or terminals.
//!
//! ```text
//! group        several generators that send one load together, with one window or many
//!   remote     one generator and its loads, as their controller sees them
//! generator    what an agent does that generates load
//! channel      the controller's end: starts the command, calls the agent
//! serve        the agent's end: carries out orders
//!   message    what is said
//!     hello    the first thing said: protocol, version, role
//!     frame    how it is written: a length, then JSON
//!   clock      time, and the offset between two clocks
//! server       servers on another host, both ends
//! command      the command as typed, and its words
//! together     several agents at the same time
//! ```

#[macro_use]
mod message;

mod channel;
mod clock;
mod command;
mod error;
mod frame;
pub mod generator;
mod group;
mod hello;
mod remote;
mod serve;
pub mod server;
mod together;

pub use channel::Channel;
pub use clock::{Clock, Offset};
pub use command::{AgentCommand, CommandError};
pub use error::{ChannelError, Fault};
pub use group::{
    Contributions, GeneratorHost, GeneratorOutcome, Generators, GroupError, GroupOutcome,
    GroupValues, Invalid, Placement, Running, SAMPLES_PER_S, Sampled,
};
pub use hello::{Hello, Role};
pub use message::Order;
pub use remote::{RemoteGenerator, RemoteLoad};
pub use serve::{Answer, Ending, Handler, Service, handler, report, serve};
