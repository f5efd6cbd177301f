//! The load generator: a [`Plan`] in, an [`Outcome`] out.
//!
//! The life of one request: a worker thread owns some connections. When the plan's pace says that a
//! request is due, its bytes, built once, are sent; what comes back is framed and held against what
//! was expected; the time between is counted in the worker's own histogram; and straight from that
//! check the next request goes out. Workers share nothing that is written per request.
//!
//! This crate knows nothing of TOML, flags, processes or terminals, and it never prints. What goes
//! wrong under load is counted, by kind and phase; an [`Error`] is only what keeps a load from
//! being run at all.

mod book;
mod check;
mod clock;
mod connection;
pub mod http;
mod io;
mod layout;
pub mod outcome;
mod pace;
pub mod plan;
pub mod rehearsal;
mod resources;
pub mod session;
mod tally;
pub mod target;
pub mod tls;
mod worker;

pub use outcome::{Failure, Failures, OpenLoop, Outcome, Phase};
pub use plan::{Plan, PlanError};
pub use session::{Error, Progress, Session, Window, run};
pub use target::{BadUrl, Resolved};
