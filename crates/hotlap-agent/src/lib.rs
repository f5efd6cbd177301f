//! hotlap on other hosts: both ends of a channel to an agent. An agent is hotlap itself, started
//! through a command that the user already trusts (`ssh host`, `ip netns exec`). It communicates
//! over its standard input and output. The channel needs no open port, no daemon and no secret.
//!
//! This crate knows nothing about experiments, flags, SQL or terminals.
//!
//! ```text
//! the controller's end                        the agent's end
//!   load       the sources of load              generator  loads: its orders, and what they do
//!     group    several generators               server     servers: its orders, and what they do
//!     outcome  what they measured together      serve      carries out orders
//!   remote     servers on another host
//!   channel    starts the command, calls the agent
//!   command    the command as typed, and its process
//!
//! both ends: message (the messages), frame (the wire format), clock, reach (addresses)
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
mod load;
mod outcome;
mod reach;
mod remote;
mod serve;
pub mod server;

pub use channel::Channel;
pub use clock::{Clock, Offset};
pub use command::{AgentCommand, CommandError};
pub use error::{ChannelError, ChannelFault};
pub use group::{GeneratorAgent, GeneratorCores, Generators, SAMPLES_PER_S};
pub use load::{LoadError, LoadHost, LoadOutcome, RunningLoad, ThisProcess, ValuesUsed};
pub use message::{AgentRole, AgentService, Answer, Hello, Order, report};
pub use outcome::{Contributions, GeneratorOutcome, Invalid, Sampled};
pub use remote::{Build, RemoteHost, Wanted};
pub use serve::{Ending, serve};
