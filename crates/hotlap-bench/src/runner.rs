//! The trait that separates the schedule from the costly operations: starting servers, warming them
//! up, running laps, stopping them.
//!
//! [`crate::schedule`] uses only this trait. The real runner starts processes. A scripted one
//! returns what a test specified.

use hotlap_observe::{Instrument, Observation, ObserveError};
use hotlap_servers::launch::ServerFailure;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use hotlap_load::outcome::Negotiated;
use hotlap_stats::{Class, Estimate};

use crate::lap::{Count, Lap, LapKind};

/// The shortest lap with an instrument on, because instruments take up to some milliseconds to be
/// switched on.
pub const OBSERVED: Duration = Duration::from_millis(300);

/// Runs laps. If a method returns a failure, the participant is not measured any further.
pub trait Runner {
    /// Starts a participant and waits until it answers. With `observes`, instruments can be used on
    /// it, and its runtime is told to name its functions.
    ///
    /// # Errors
    /// It cannot take part (any more).
    fn start(&mut self, participant: usize, observes: bool) -> Result<(), ServerFailure>;

    /// Verifies started participants against their contracts. Returns for each, in order, its
    /// properties, or why it cannot take part.
    fn verify(&mut self, participants: &[usize]) -> Vec<Result<Ready, ServerFailure>>;

    /// Starts and verifies one participant.
    fn bring_up(&mut self, participant: usize) -> Result<Ready, ServerFailure> {
        self.start(participant, false)?;
        self.verify(&[participant]).remove(0)
    }

    /// Loads a participant until it is steady or a limit is reached. `watch` gets the requests/s of
    /// each window.
    fn warm(
        &mut self,
        participant: usize,
        load: usize,
        watch: &mut dyn FnMut(f64),
    ) -> Result<Warmup, ServerFailure>;

    /// The participants and loads to probe next, in both orders, in order to choose the slice
    /// length. Called again after they were probed, until it returns none.
    fn probes(&mut self) -> Vec<(usize, usize)>;

    /// Probes a participant under a load. The probe is excluded as a lap.
    fn probe(&mut self, participant: usize, load: usize) -> Result<(), ServerFailure>;

    /// The results of the probes, for each participant and load.
    fn probed(&self) -> Vec<Probed>;

    /// Length of a slice's window.
    fn slice_length(&self) -> Duration;

    /// The number of slices per lap, the same for all participants.
    fn slices(&self, load: usize) -> u32;

    /// Runs a participant for a slice, in a closed loop. It is frozen before and after.
    fn slice(&mut self, participant: usize, load: usize) -> Result<(), ServerFailure>;

    /// Ends a lap: the sum of a participant's slices since the last one. The experiment fills in
    /// restart, round and place.
    fn lap(&mut self, participant: usize, load: usize) -> Result<Lap, ServerFailure>;

    /// Runs one lap at a rate, in requests/s, in one slice.
    fn paced_lap(
        &mut self,
        participant: usize,
        load: usize,
        rate: f64,
    ) -> Result<Lap, ServerFailure>;

    /// Runs one lap of a search: an open loop with Poisson arrivals, in one slice. Failures are
    /// data here, see [`crate::validity::judge_trial`]. Afterwards the server gets time to recover.
    /// It is a failure if the server does not.
    fn trial_lap(
        &mut self,
        participant: usize,
        load: usize,
        trial: TrialWindow,
    ) -> Result<Lap, ServerFailure>;

    /// Runs a whole lap at once, outside of an experiment.
    fn whole_lap(
        &mut self,
        participant: usize,
        load: usize,
        kind: LapKind,
    ) -> Result<Lap, ServerFailure> {
        if let LapKind::Paced { rate } = kind {
            return self.paced_lap(participant, load, rate);
        }
        (0..self.slices(load)).try_for_each(|_| self.slice(participant, load))?;
        self.lap(participant, load)
    }

    /// The instruments that can be used on a running participant, and what they cannot see: the
    /// cause, and what would permit it.
    fn instruments(&mut self, participant: usize) -> (Vec<Instrument>, Vec<ObserveError>);

    /// Runs a lap with an instrument on, in a closed loop and in one slice. The slice lasts at
    /// least [`OBSERVED`], so that the cost of thawing a server hardly shows. If only the
    /// observation failed, there is still a lap.
    fn observed_lap(
        &mut self,
        participant: usize,
        load: usize,
        instrument: Instrument,
    ) -> Result<(Lap, Result<Observation, ObserveError>), ServerFailure>;

    /// Stops participants: one after another, so that each has the machine to itself while it ends;
    /// all at once if the user is waiting. Returns a description of each problem.
    fn stop(&mut self, participants: &[usize]) -> Vec<(usize, String)>;

    /// Time since the experiment began.
    fn elapsed(&self) -> Duration;

    /// Whether the user has interrupted.
    fn interrupted(&self) -> bool;
}

/// A window of a search for the highest rate that meets a goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialWindow {
    /// The rate, in requests/s.
    pub rate: f64,
    /// Length of the window.
    pub length: Duration,
    /// The seed of the times at which requests are due.
    pub seed: u64,
    /// Whether the window shows that the server meets the goals for longer. Other windows search
    /// for the rate.
    pub holds: bool,
}

impl TrialWindow {
    /// The kind of its lap.
    pub fn kind(&self) -> LapKind {
        let rate = self.rate;
        if self.holds { LapKind::Held { rate } } else { LapKind::Paced { rate } }
    }
}

/// The effect of slices on a server's cost, measured by probes: the server is thawed as for a slice
/// but runs on for longer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Probed {
    /// The participant, as an index.
    pub participant: usize,
    /// The load, as an index.
    pub load: usize,
    /// Length of the slices, in milliseconds: the run's, or a shorter one at which the server
    /// already recovered.
    pub slice_ms: f64,
    /// CPU time per request in the window of a slice over that after it, with its 95% interval.
    pub ratio: Estimate,
    /// The same for requests/s.
    pub rate: Estimate,
}

/// A verified server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Time from the start of the process to the first correct response, in milliseconds. `None`
    /// for a server that was already running.
    pub ready_ms: Option<f64>,
    /// Conformance checks, which are reported but not required: passed, and total.
    pub conformance: (u32, u32),
    /// What the user should know (varying responses, another port).
    pub notes: Vec<String>,
    /// Resident memory before any load, in bytes. `None` if unknown.
    pub rss_bytes: Option<u64>,
}

/// The limit of a warm-up is divided by this for a server that was never steady in an earlier one.
pub const UNSTEADY_AGAIN: u32 = 3;

/// A start of a server, and its warm-ups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The server, as an index into the run's servers.
    pub server: usize,
    /// The restart, from 0.
    pub restart: u32,
    /// The verified server.
    pub ready: Ready,
    /// Its warm-ups, one for each load. Empty before the first one.
    pub warmups: Vec<Warmup>,
}

/// The result of a warm-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warmup {
    /// The load, as an index.
    pub load: usize,
    /// How the server became steady.
    pub class: Class,
    /// Whether a compiler was seen, so that it was also loaded in bursts.
    pub compiles: bool,
    /// Time from the first request of the warm-up to the steady state, in milliseconds.
    pub steady_ms: f64,
    /// The curve: responses per second in windows of equal length.
    pub curve: Vec<f64>,
    /// Length of a window, in milliseconds.
    pub window_ms: f64,
    /// CPU time per request at its end, when the server ran alone and was warm, in nanoseconds.
    /// `None` if unknown.
    pub alone_cost_ns: Option<f64>,
    /// Hardware counts right after it, if the kernel permits them.
    pub count: Option<Count>,
    /// Why instructions are not counted. `None` where they are, and where that was not tried.
    pub uncounted: Option<String>,
    /// What TLS negotiated. `None` without TLS.
    pub tls: Option<Negotiated>,
}

impl Warmup {
    /// Of a server that needs none, with nothing measured.
    pub(crate) fn flat(load: usize) -> Self {
        Self {
            load,
            class: Class::Flat,
            compiles: false,
            steady_ms: 0.0,
            curve: Vec::new(),
            window_ms: 0.0,
            alone_cost_ns: None,
            count: None,
            uncounted: None,
            tls: None,
        }
    }
}
