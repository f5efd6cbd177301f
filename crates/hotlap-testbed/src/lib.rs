//! Servers to measure with and to test with. This crate knows nothing of the load generator. The
//! two meet only on a socket.
//!
//! - **The ceiling** ([`serve_ceiling`]) does the least work with which a correct response can be
//!   sent: one edge-triggered event loop per core, each with its own listening socket. Every table
//!   compares servers with it, so that figures can be compared between machines.
//! - **Calibrated servers** ([`CalibratedServer`]) are the same loop with a known latency, error
//!   rate or cost. The self-test measures them and compares its results with the true values.
//! - **Planted servers** ([`Planted`]) are the same loop with one difference each. The explanation
//!   of a difference must name it.
//! - **Lookup servers** ([`Lookup`]) are the same loop with one database statement for each
//!   response.
//! - **Test servers** ([`TestServer`]) run in a test's own process, one blocking thread per
//!   connection. They follow the test's script, or misbehave in a named way: hang, reset, never
//!   respond, or break one rule of HTTP or of their contract ([`Flaw`]).
//! - **Unruly servers** ([`Unruly`]) misbehave at random, each seed in another way.
//!
//! # Modules
//!
//! Each module imports only from those below it:
//!
//! ```text
//! calibrated planted lookup     unruly
//!     └───┬──────┴─────┤          │
//!     event_loop    postgres faulty http2
//!      request                 └─┬──┘
//!                           test_server
//! ```

mod calibrated;
mod event_loop;
mod faulty;
pub mod http2;
mod lookup;
mod planted;
mod postgres;
mod request;
mod test_server;
mod unruly;

pub use calibrated::CalibratedServer;
pub use event_loop::{NotAServer, ServeError, serve_ceiling};
pub use faulty::{Flaw, Site};
pub use lookup::Lookup;
pub use planted::Planted;
pub use test_server::{HELLO, Peer, TestServer, unused_address};
pub use unruly::{Deed, Random, Speaks, Unruly, for_seeds, for_some_seeds, most_memory};
