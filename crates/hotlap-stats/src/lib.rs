//! The statistics of hotlap: numbers in, numbers out.
//!
//! There is no I/O here, no clock, no thread, no randomness and no unsafe code, so the same figures
//! always give the same result. The main types, in the order in which a run meets them:
//!
//! 1. **Times.** The load generator records the time of each response in a [`Histogram`], and the
//!    age of each request without one in [`Censored`]. Both together give a [`Survival`] curve,
//!    from which each [`Percentile`] is read; it may be a lower bound. [`samples_suffice`] says
//!    whether there are enough samples for it.
//! 2. **Warm-up.** A [`SteadyDetector`] takes the speed of one window after another. It reports
//!    when the server has reached its [`SteadyState`], and the [`Class`] of its warm-up.
//! 3. **One server.** What a server did in one round is a [`Reading`]. [`level`] turns the totals
//!    of all restarts into an [`Estimate`] with a confidence interval.
//! 4. **Two servers.** [`pairs`] pairs their restarts, and [`effect`] turns the pairs into an
//!    [`Effect`]: a ratio with its interval and p-value. [`across_runs`] compares stored runs.
//!    What explains a difference is an [`Amount`] per request.
//! 5. **Stopping.** [`further_restarts`] divides the time of a run, and [`is_precise`] says whether
//!    the run may end early.
//! 6. **Verdicts.** [`verdicts`] compares each effect with a [`Criterion`] and returns a
//!    [`Verdict`]. [`ranks`] orders the servers by their verdicts.
//! 7. **Capacity.** A [`Trial`] is a window at one rate, which kept a goal or not. [`next_rate`]
//!    chooses the rates, and [`Capacity::fit`] finds the one that keeps it for long.
//! 8. **Nodes.** Where a run was repeated on several machines, [`by_node`] labels each restart with
//!    its node, so that [`effect`] rests on nodes. [`NodeSpread`] says how much nodes differ.
//! 9. **History.** [`change_points`] finds where a figure of stored runs moved to another level.
//!
//! # Modules
//!
//! Each module imports only from those below it:
//!
//! ```text
//!       stop
//!     verdict   capacity                                     survival
//!        │         │                                             │
//!     compare ─────┘  steady      change_points              censored
//!        │               │              │                       │
//!      fisher            │              │                       │
//!        │               │              │                       │
//!   estimate, student, robust ──────────┘                   histogram    sample_size
//! ```
#![forbid(unsafe_code)]

mod capacity;
mod censored;
mod change_points;
mod compare;
mod estimate;
mod fisher;
mod histogram;
mod robust;
mod sample_size;
mod steady;
mod stop;
pub mod student;
mod survival;
mod verdict;

pub use capacity::{Capacity, Side, Trial, is_bracketed, next_rate};
pub use censored::{Ages, Censored};
pub use change_points::change_points;
pub use compare::{
    Amount, Bursts, Change, Effect, NodeSpread, Pair, Reading, Share, Shift, across_nodes,
    across_runs, by_node, effect, level, level_of_nodes, level_of_runs, logs_by_restart, pairs,
    shifted_effect, shifted_level, values_by_restart,
};
pub use estimate::Estimate;
pub use histogram::export::interval_log;
pub use histogram::{BadHistogram, Histogram};
pub use robust::{mad, median};
pub use sample_size::{Concurrency, samples_suffice};
pub use steady::{
    Class, DetectorSettings, KnownSpeed, PreviousWarmup, SteadyDetector, SteadyState,
};
pub use stop::{Costs, RESTARTS_BEFORE_LOOK, confidence, further_restarts, is_precise};
pub use survival::{Percentile, Survival};
pub use verdict::{
    Better, CONTROL_ALPHA, Criterion, Inconclusive, MIN_RESTARTS, Rank, Verdict, holm, ranks,
    verdicts,
};
