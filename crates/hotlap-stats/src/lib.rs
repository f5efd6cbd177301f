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
//!    [`Effect`]: a ratio with its interval and p-value. Both come from a [`Mean`], and so do
//!    figures of stored runs and of what explains a difference.
//! 5. **Stopping.** [`further_restarts`] divides the time of a run, and [`is_precise`] says whether
//!    the run may end early.
//! 6. **Verdicts.** [`verdicts`] compares each effect with a [`Criterion`] and returns a
//!    [`Verdict`]. [`ranks`] orders the servers by their verdicts.
//! 7. **Capacity.** A [`Trial`] is a window at one rate, which kept a goal or not. [`next_rate`]
//!    chooses the rates, and [`Capacity::fit`] finds the one that keeps it for long.
//! 8. **Nodes.** Where a run was repeated on several machines, [`by_node`] labels each restart with
//!    its node, so that [`effect`] rests on nodes. [`NodeSpread`] says how much nodes differ.
//! 9. **History.** [`change_points`] finds where a figure of stored runs moved to another level.
#![forbid(unsafe_code)]

mod capacity;
mod change_points;
mod compare;
mod estimate;
mod histogram;
mod reading;
mod steady;
mod stop;
pub mod student;
mod survival;
mod verdict;

pub use capacity::{Capacity, Side, Trial, is_bracketed, next_rate};
pub use change_points::change_points;
pub use compare::{Effect, Mean, NodeSpread, by_node, effect, level};
pub use estimate::{Estimate, mad, median};
pub use histogram::{Histogram, interval_log};
pub use reading::{Bursts, ByRestart, Drift, Reading, Share, apart, of_both, pairs, totals};
pub use steady::{
    Class, DetectorSettings, KnownSpeed, PreviousWarmup, SteadyDetector, SteadyState,
};
pub use stop::{Costs, RESTARTS_BEFORE_LOOK, confidence, further_restarts, is_precise};
pub use survival::{Ages, Censored, Concurrency, Percentile, Survival, samples_suffice};
pub use verdict::{
    Better, CONTROL_ALPHA, Criterion, Inconclusive, MIN_RESTARTS, Rank, Verdict, holm, ranks,
    verdicts,
};
