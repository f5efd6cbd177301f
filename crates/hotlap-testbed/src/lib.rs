//! Servers for measurements and for tests. This crate does not depend on the load generator. The
//! two communicate only through sockets.
//!
//! - **The ceiling** ([`serve_ceiling`]) does the least work that a correct response needs. It has
//!   one edge-triggered event loop per thread, each with its own listening socket. Tables compare
//!   servers with the ceiling, so that figures can be compared between machines.
//! - **Calibrated servers** ([`CalibratedServer`]) are the ceiling's loop with a known latency,
//!   error rate or cost. The self-test measures them and compares its results with the true
//!   values.
//! - **Planted servers** ([`Planted`]) are the ceiling's loop with one difference each. hotlap's
//!   explanation of a difference must name the planted one.
//! - **The floor** ([`serve_floor`]) is the ceiling's loop with the contracts that need a
//!   database, files, bodies or delays. The floor does the least work that these contracts need.
//! - **Lookup servers** ([`Lookup`]) are the ceiling's loop with one database statement for each
//!   response.
//! - **Test servers** ([`TestServer`]) run in a test's own process, with one blocking thread per
//!   connection. They follow the test's script or misbehave in a named way: hang, reset, never
//!   respond, or break one rule of HTTP or of their contract ([`Flaw`]).
//! - **Unruly servers** ([`Unruly`]) misbehave at random. Each seed gives a different server.
//!
//! # Modules
//!
//! Each module imports only from modules below it:
//!
//! ```text
//! calibrated planted lookup floor  unruly
//!     └───┬──────┴──────┤     │       │
//!     event_loop        postgres faulty http2
//!      request                     └─┬──┘
//!                               test_server
//! ```

mod calibrated;
mod event_loop;
mod faulty;
mod floor;
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
pub use floor::{Cheat, serve_floor};
pub use lookup::Lookup;
pub use planted::Planted;
pub use test_server::{HELLO, Peer, TestServer, unused_address};
pub use unruly::{Deed, Random, Speaks, Unruly, for_seeds, for_some_seeds, most_memory};
