//! The ceiling, and servers of known behaviour.
//!
//! The ceiling is the least work with which a correct answer can be given here: one edge-triggered
//! event loop a core, each with a listening socket of its own. Every table shows what share of it a
//! server reaches, so that figures travel between machines. The known servers are the same loop
//! with a stated service time, error rate or cost: `prove` holds the instrument against them.
//!
//! This crate knows nothing of the generator that loads it; the two meet on a socket only.

pub mod known;
pub mod request;
pub mod serve;
mod timer;

pub use known::Known;
pub use serve::{Hello, ServeError, serve};
