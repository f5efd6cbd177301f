//! Servers to measure with and to test with.
//!
//! - **The ceiling** ([`serve_ceiling`]) does the least work that a correct response takes: one
//!   edge-triggered event loop per core, each with a listening socket of its own. Every table shows
//!   each server's share of it, so that figures can be compared between machines.
//! - **Calibrated servers** ([`Calibrated`]) are the same loop with a known latency, error rate or
//!   cost. The self-test measures them and compares what it finds with what is true.
//!
//! This crate knows nothing of the load generator; the two meet only on a socket.
//!
//! # Modules
//!
//! Each module imports only from those below it:
//!
//! ```text
//! ceiling    calibrated
//!      └──┬──────┘
//!       serve
//!     event_loop
//!     connection      timer
//!      request
//!      response
//! ```

mod calibrated;
mod ceiling;
mod connection;
mod event_loop;
mod request;
mod response;
mod serve;
mod timer;

pub use calibrated::{Calibrated, NotCalibrated};
pub use ceiling::serve_ceiling;
pub use serve::ServeError;
