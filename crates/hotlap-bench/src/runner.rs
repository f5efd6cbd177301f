//! The costly things behind one seam: servers that start, warm up, run laps and stop.
//!
//! [`crate::experiment`] knows only this. The real runner starts processes; a scripted one returns
//! what a test wrote down.

use hotlap_servers::failure::ServerFailure;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use hotlap_stats::{Class, Estimate};

use crate::lap::{Count, Kind, Lap};

/// Where laps are run.
pub trait Runner {
    /// Starts a participant afresh and waits until it answers.
    ///
    /// # Errors
    /// Why it cannot take part (any more).
    fn start(&mut self, participant: usize) -> Result<(), ServerFailure>;

    /// Holds participants that were started against their contracts. For each of them, in order,
    /// what it is like, or why it cannot take part.
    fn verify(&mut self, participants: &[usize]) -> Vec<Result<Ready, ServerFailure>>;

    /// Starts one participant and verifies it.
    ///
    /// # Errors
    /// Why it cannot take part.
    fn bring_up(&mut self, participant: usize) -> Result<Ready, ServerFailure> {
        self.start(participant)?;
        self.verify(&[participant]).remove(0)
    }

    /// Loads a participant until it is steady, or a limit is reached.
    ///
    /// # Errors
    /// Why it cannot take part any more.
    fn warm(&mut self, participant: usize, load: usize) -> Result<Warmup, ServerFailure>;

    /// What is to be probed next, so that it is known how long slices have to be: participants with
    /// a load each, there and back. Asked again when they were probed, until there is nothing more.
    fn probes(&mut self) -> Vec<(usize, usize)> {
        Vec::new()
    }

    /// Probes a participant under a load. Nothing of it counts.
    ///
    /// # Errors
    /// Why it cannot take part any more.
    fn probe(&mut self, _participant: usize, _load: usize) -> Result<(), ServerFailure> {
        Ok(())
    }

    /// How long the window of a slice is.
    fn slice_length(&self) -> Duration;

    /// What the probes found, for each participant and load that was probed.
    fn probed(&self) -> Vec<Probed> {
        Vec::new()
    }

    /// How many slices a lap has, the same for all participants.
    fn slices(&self, load: usize) -> u32;

    /// Runs a participant for a slice, in a closed loop. It is frozen before and after.
    ///
    /// # Errors
    /// Why it cannot take part any more.
    fn slice(&mut self, participant: usize, load: usize) -> Result<(), ServerFailure>;

    /// The lap that a participant's slices since the last one make up. The experiment fills in
    /// restart, round and place.
    ///
    /// # Errors
    /// Why it cannot take part any more.
    fn lap(&mut self, participant: usize, load: usize) -> Result<Lap, ServerFailure>;

    /// Runs one lap at a rate, in requests/s, in one slice.
    ///
    /// # Errors
    /// Why it cannot take part any more.
    fn paced_lap(
        &mut self,
        participant: usize,
        load: usize,
        rate: f64,
    ) -> Result<Lap, ServerFailure>;

    /// Runs a whole lap at once, outside of an experiment.
    ///
    /// # Errors
    /// Why it cannot take part any more.
    fn whole_lap(
        &mut self,
        participant: usize,
        load: usize,
        kind: Kind,
    ) -> Result<Lap, ServerFailure> {
        if let Kind::Paced { rate } = kind {
            return self.paced_lap(participant, load, rate);
        }
        (0..self.slices(load)).try_for_each(|_| self.slice(participant, load))?;
        self.lap(participant, load)
    }

    /// Begins to stop a participant that [`Runner::stop`] will stop, so that several end at the
    /// same time.
    fn begin_stop(&mut self, _participant: usize) {}

    /// Stops a participant. Never fails: what is wrong is in what it returns.
    fn stop(&mut self, participant: usize) -> Option<String>;

    /// Time since the experiment began.
    fn elapsed(&self) -> Duration;

    /// Whether the user wants to end it now.
    fn interrupted(&self) -> bool;
}

/// What slices do to the cost of a server, as found by probes: it is thawed as for a slice, but
/// runs on for longer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Probed {
    /// Which server, as an index.
    pub participant: usize,
    /// Under which load, as an index.
    pub load: usize,
    /// Length of the slices, in milliseconds: that of the run, or a shorter one at which the server
    /// had recovered already.
    pub slice_ms: f64,
    /// CPU time per request in the window of a slice over that after it, with its interval at 95 %.
    pub ratio: Estimate,
}

/// A server that answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// From the start of the process to the first correct answer, in milliseconds; `None` for a
    /// server that runs already.
    pub ready_ms: Option<f64>,
    /// Conformance checks passed and made: those that are reported and not required.
    pub conformance: (u32, u32),
    /// What should be told (answers that vary, a port found).
    pub notes: Vec<String>,
    /// Resident memory before any load, in bytes; `None` where it is not known.
    pub rss_bytes: Option<u64>,
}

/// How a server came to be steady.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warmup {
    /// Which way it went.
    pub class: Class,
    /// From the first request of the warm-up to the steady state, in milliseconds.
    pub steady_ms: f64,
    /// The curve: answers per second in windows of equal length.
    pub curve: Vec<f64>,
    /// Length of one window, in milliseconds.
    pub window_ms: f64,
    /// CPU time per request at its end, when the server ran alone and was as warm as it gets, in
    /// nanoseconds; `None` where it is not known.
    pub alone_cost_ns: Option<f64>,
    /// What the hardware counted right after it, where the kernel permits it.
    pub count: Option<Count>,
    /// Why instructions are not counted; `None` where they are, and where that was not tried.
    pub uncounted: Option<String>,
}
