//! Servers to measure with and to test with. This crate knows nothing of the load generator; the
//! two meet only on a socket.
//!
//! - **The ceiling** ([`serve_ceiling`]) does the least work with which a correct response can be
//!   sent: one edge-triggered event loop per core, each with its own listening socket. Every table
//!   compares servers with it, so that figures can be compared between machines.
//! - **Calibrated servers** ([`CalibratedServer`]) are the same loop with a known latency, error
//!   rate or cost. The self-test measures them and compares its results with the true values.
//! - **Planted servers** ([`Planted`]) are the same loop with one difference each. The explanation
//!   of a difference must name it.
//! - **Test servers** ([`TestServer`]) run in a test's own process, one blocking thread per
//!   connection. They follow the test's script, or misbehave in a named way: hang, reset, never
//!   respond, or break one rule of HTTP or of their contract ([`Fault`]).
//! - **Unruly servers** ([`Unruly`]) misbehave at random, each seed in another way.
//!
//! # Modules
//!
//! Each module imports only from those below it:
//!
//! ```text
//! ceiling  calibrated  planted  misbehaving   unruly
//!    └─────────┼──────────┘         │           │
//!            serve                faulty        │
//!         event_loop           http2_client ────┘
//! connection, timer            test_server
//!      request
//!      response
//! ```

mod calibrated;
mod ceiling;
mod connection;
mod event_loop;
mod faulty;
pub mod http2_client;
mod misbehaving;
mod planted;
mod request;
mod response;
mod serve;
mod test_server;
mod timer;
mod unruly;

pub use calibrated::{Calibrated, CalibratedServer, NotCalibrated};
pub use ceiling::serve_ceiling;
pub use faulty::{Fault, Site};
pub use planted::{NotPlanted, Planted};
pub use serve::ServeError;
pub use test_server::{Client, HELLO, TestServer, unused_address};
pub use unruly::{Speaks, Unruly, for_seeds, most_memory};
