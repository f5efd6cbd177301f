//! The load generator, which runs a [`Plan`] and returns an [`Outcome`]. This crate reads no TOML
//! and no flags, starts no processes, and never prints.
//!
//! The main types, in the order in which a caller needs them:
//!
//! 1. [`url::resolve`] turns a URL into a [`Target`](plan::Target), a `Host` header and a path.
//!    [`Request::build`](plan::Request::build) makes a [`Request`](plan::Request), with the
//!    [expected response](plan::ExpectedResponse).
//! 2. A [`Plan`] says what to send, over how many connections and threads, how fast ([closed or
//!    open loop](plan::Pace)), and [when to stop](plan::Stop).
//! 3. [`run`] runs a plan to its end. A [`Session`] is a load in progress. It is for callers that
//!    sample the server at the edges of the [`Window`], show the [`Progress`], or need several
//!    windows.
//! 4. The [`Outcome`] has histograms, [`Failures`] by kind and [`Phase`],
//!    [censored](hotlap_stats::Censored) latency, and the resource usage of the generator. Outcomes
//!    of several generators can be merged.
//!
//! Failures under load are counted in the outcome. An [`Error`] says why a load could not run or
//! has no result.
//!
//! ```no_run
//! use hotlap_load::plan::{Pace, Plan, Request};
//!
//! let url = hotlap_load::url::resolve("http://127.0.0.1:8080/")?;
//! let request = Request::get(&url.path, &url.host).expecting(b"Hello, World!");
//! let mut plan = Plan::new(url.target, request);
//! plan.pace = Pace::Constant { rate: 10_000.0 };
//! let outcome = hotlap_load::run(&plan)?;
//! println!("{} requests/s, {} failures", outcome.rate(), outcome.failures.total());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Inside
//!
//! Each worker thread owns some of the connections. When a request is due, the worker sends it,
//! reads the response, and compares the response with the expected response. Then the worker
//! records the time in its own histogram. In a closed loop, the next request is due at once.
//! Workers share no data that is written for each request.
//!
//! ```text
//! session       starts workers, waits for them, merges their outcomes
//!   worker      one loop, in which worker/requests sends, receives and counts
//!     tally         counts             schedule    due times of an open loop
//!     connection    the protocol on one connection, without sockets: HTTP/1.1 or HTTP/2
//!       requests      the next request, rendered      expected    whether a response is right
//!         http          HTTP/1.1 framing                http2       HTTP/2 on one connection
//!     io, tls       sockets, events, encryption
//!   shared        what a session and its workers share
//! outcome, plan, clock
//! ```
//!
//! Each module uses only modules below it or to its right.

mod clock;
mod connection;
mod expected;
pub mod http;
pub mod http2;
mod io;
pub mod outcome;
pub mod plan;
mod requests;
mod schedule;
mod session;
mod shared;
mod tally;
pub mod testing;
pub mod tls;
pub mod url;
mod worker;

pub use outcome::{Failure, Failures, OpenLoop, Outcome, Phase};
pub use plan::{Plan, PlanError};
pub use session::{Session, ValuesUsed, run};
pub use shared::{Error, Progress, Window};
