//! The statistics of hotlap, with numbers as input and output.
//!
//! This crate has no I/O, no clock, no threads, no randomness and no unsafe code, so the same
//! figures always give the same result. These are the main types, in the order in which a run uses
//! them:
//!
//! 1. **Times.** The load generator records the time of each response in a [`Histogram`].
//!    [`Censored`] has the ages of requests that were not observed from beginning to end. Both
//!    together give a [`Survival`] curve, from which each [`Percentile`] is read. A percentile may
//!    be a lower bound. [`samples_suffice`] says whether there are enough samples for a
//!    percentile.
//! 2. **Warm-up.** A [`SteadyDetector`] takes the speed of one window after another. It returns the
//!    [`SteadyState`] of the server so far, and finally the [`Class`] of the warm-up.
//! 3. **One server.** A [`Reading`] holds the result of a server in one round. [`level`] turns the
//!    totals of all restarts into an [`Estimate`] with a confidence interval.
//!    Before that, [`CoreSpeed`] removes the effect of fast and slow cores from the laps.
//! 4. **Two servers.** [`pairs`] pairs the restarts of two servers. [`effect`] turns the pairs into
//!    an [`Effect`], which is a ratio with its interval and p-value. Levels and effects come from a
//!    [`Mean`], as do figures of stored runs and of the causes of a difference.
//! 5. **Stopping.** [`further_restarts`] divides the time of a run into restarts. [`is_precise`]
//!    and [`is_certain`] say whether the run may end early.
//! 6. **Verdicts.** [`verdicts`] compares each effect with a [`Criterion`] and returns a
//!    [`Verdict`]. [`ranks`] orders the servers by their verdicts.
//! 7. **Capacity.** A [`Trial`] is a window at one rate, in which the goal was met or missed.
//!    [`next_rate`] chooses the rates, and [`Capacity::fit`] finds the rate at which the goal is
//!    met in the long run.
//! 8. **Nodes.** If a run was repeated on several machines, [`by_node`] labels each restart with
//!    its node, so that intervals rest on nodes. [`NodeSpread`] says how much nodes differ.
//! 9. **History.** [`change_points`] finds where a figure of stored runs moved to another level.
#![forbid(unsafe_code)]

mod capacity;
mod change_points;
mod compare;
mod core_speed;
mod estimate;
mod histogram;
mod reading;
mod steady;
mod steps;
mod stop;
pub mod student;
mod survival;
mod verdict;

pub use capacity::{Capacity, Side, Trial, is_bracketed, next_rate};
pub use change_points::change_points;
pub use compare::{Effect, Mean, NodeSpread, by_node, effect, level};
pub use core_speed::{CoreSpeed, GaugedLap};
pub use estimate::{Estimate, mad, median, proportion};
pub use histogram::{Histogram, interval_log};
pub use reading::{
    Bursts, ByRestart, Drift, OddStarts, Reading, Share, apart, of_both, pairs, totals,
};
pub use steady::{
    Class, DetectorSettings, GaugedWindow, KnownSpeed, PreviousWarmup, SteadyDetector, SteadyState,
    USUAL_SLOPE,
};
pub use steps::{LevelReading, Steps, VersionStep};
pub use stop::{Costs, RESTARTS_BEFORE_LOOK, confidence, further_restarts, is_certain, is_precise};
pub use survival::{Ages, Censored, Concurrency, Percentile, Survival, samples_suffice};
pub use verdict::{
    Better, CONTROL_ALPHA, Criterion, Inconclusive, MIN_RESTARTS, Rank, Verdict, holm, ranks,
    verdicts,
};
