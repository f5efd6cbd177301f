//! The trait that separates the schedule from the costly operations: starting servers, warming them
//! up, running laps, and stopping servers.
//!
//! [`crate::schedule`] uses only this trait. The real runner starts processes, and a scripted
//! runner returns what a test specified.

use hotlap_observe::{Instrument, Observation, ObserveError};
use hotlap_servers::database::DatabaseWork;
use hotlap_servers::launch::ServerFailure;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use hotlap_load::outcome::Negotiated;
use hotlap_stats::{Class, Estimate};

use crate::lap::{Count, Lap, LapKind};

/// The shortest lap with an instrument on, because switching an instrument on may take some
/// milliseconds.
pub const OBSERVED: Duration = Duration::from_millis(300);

/// Runs laps. If a method returns a failure, the participant is no longer measured.
pub trait Runner {
    /// Starts a participant and waits until it responds. With `observes`, instruments can be used
    /// on the participant, and its runtime is told to name its functions.
    ///
    /// # Errors
    /// Fails if the participant cannot be started or does not respond.
    fn start(&mut self, participant: usize, observes: bool) -> Result<(), ServerFailure>;

    /// Verifies started participants against their contracts. Returns, in order, the properties of
    /// each participant, or why it cannot take part.
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

    /// Loads a participant for a moment, outside of laps, if it was frozen for a long time.
    fn wake(&mut self, participant: usize, load: usize) -> Result<(), ServerFailure>;

    /// Returns the participants to probe next, in both orders, to choose the slice length of a
    /// load. The schedule calls this method again after the probes, until nothing is left to probe.
    fn probes(&mut self, load: usize) -> Vec<usize>;

    /// Probes a participant under a load. A probe does not count as a lap.
    fn probe(&mut self, participant: usize, load: usize) -> Result<(), ServerFailure>;

    /// The results of the probes, for each participant and load.
    fn probed(&self) -> Vec<Probed>;

    /// Length of a slice's window under a load.
    fn slice_length(&self, load: usize) -> Duration;

    /// The number of slices per lap, the same for all participants.
    fn slices(&self, load: usize) -> u32;

    /// Runs a participant for one slice, in a closed loop. Before and after the slice, the
    /// participant is frozen, unless freezing is off.
    fn slice(&mut self, participant: usize, load: usize) -> Result<(), ServerFailure>;

    /// Ends a lap: the sum of a participant's slices since the previous lap. The schedule fills
    /// in restart, round and place.
    fn lap(&mut self, participant: usize, load: usize) -> Result<Lap, ServerFailure>;

    /// Runs one lap at a rate, in requests/s, in one slice.
    fn paced_lap(
        &mut self,
        participant: usize,
        load: usize,
        rate: f64,
    ) -> Result<Lap, ServerFailure>;

    /// Runs one lap of a search: an open loop with Poisson arrivals, in one slice. Failures are
    /// data here (see [`crate::validity::judge_trial`]). The caller then waits for the server to
    /// [recover](Self::recover).
    fn trial_lap(
        &mut self,
        participant: usize,
        load: usize,
        trial: TrialWindow,
    ) -> Result<Lap, ServerFailure>;

    /// Waits until a participant has recovered from a lap at a rate.
    ///
    /// # Errors
    /// Fails if the participant does not recover.
    fn recover(
        &mut self,
        _participant: usize,
        _load: usize,
        _rate: f64,
    ) -> Result<(), ServerFailure> {
        Ok(())
    }

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

    /// The instruments that can be used on a running participant. Anything that cannot be observed
    /// is returned with the cause and a remedy.
    fn instruments(&mut self, participant: usize) -> (Vec<Instrument>, Vec<ObserveError>);

    /// Runs a lap with an instrument on, in a closed loop and in one slice of at least
    /// [`OBSERVED`]. If only the observation fails, the lap is still returned.
    fn observed_lap(
        &mut self,
        participant: usize,
        load: usize,
        instrument: Instrument,
    ) -> Result<(Lap, Result<Observation, ObserveError>), ServerFailure>;

    /// Stops participants one after another, so that each has the machine to itself while it ends.
    /// After an interrupt, all participants are stopped at once. Returns what the user should know
    /// about participants.
    fn stop(&mut self, participants: &[usize]) -> Vec<(usize, String)>;

    /// Time since the experiment began.
    fn elapsed(&self) -> Duration;

    /// Whether the user has interrupted the run.
    fn interrupted(&self) -> bool;
}

/// A window of a search for the highest rate at which a server meets the goals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialWindow {
    /// The rate, in requests/s.
    pub rate: f64,
    /// Length of the window.
    pub length: Duration,
    /// The seed of the times at which requests are due.
    pub seed: u64,
    /// Whether the window tests if the server meets the goals over a longer time. Other windows
    /// search for the rate.
    pub holds: bool,
}

impl TrialWindow {
    /// The kind of the window's lap.
    pub fn kind(&self) -> LapKind {
        let rate = self.rate;
        if self.holds { LapKind::Held { rate } } else { LapKind::Paced { rate } }
    }
}

/// The effect of slices on a server's cost, measured by probes. For a probe, the server is thawed
/// as for a slice but runs on for longer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Probed {
    /// The participant, as an index.
    pub participant: usize,
    /// The load, as an index.
    pub load: usize,
    /// Length of the slices, in milliseconds. This is the load's slice length, or a shorter one in
    /// which the server already recovered.
    pub slice_ms: f64,
    /// CPU time per request in the window of a slice, divided by the CPU time per request after it,
    /// with a 95% interval.
    pub ratio: Estimate,
    /// Requests/s in the window of a slice, divided by the requests/s after it, with a 95%
    /// interval.
    pub rate: Estimate,
}

/// A server that was frozen for this long is loaded before its slices, because its timers go on
/// during the freeze. Node's PostgreSQL pool, for example, closes a connection that was idle for
/// 10 s.
pub(crate) const LONG_FREEZE: Duration = Duration::from_secs(5);

/// The ratio by which a server may cost more or less in the window of a slice than after it. The
/// value is a convention: the largest slice bias that is accepted.
pub(crate) const TOLERANCE: f64 = 1.03;

impl Probed {
    /// Whether the probe proves a slice bias of over 3%.
    pub fn is_biased(&self) -> bool {
        self.ratio.is_bounded() && is_beyond(&self.ratio)
    }
}

/// Whether the whole interval of a probe's ratio lies beyond the tolerance.
pub(crate) fn is_beyond(ratio: &Estimate) -> bool {
    ratio.low > TOLERANCE || ratio.high < 1.0 / TOLERANCE
}

/// A verified server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Time from the start of the process to the first correct response, in milliseconds. `None`
    /// for a server that was already running.
    pub ready_ms: Option<f64>,
    /// Conformance checks, which are reported but not required: the number passed, and the total.
    pub conformance: (u32, u32),
    /// The work of the server's database for each request of the contract. `None` for a request
    /// without a database. Empty if statements were not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub database_work: Vec<Option<DatabaseWork>>,
    /// What the user should know, for example varying responses or another port.
    pub notes: Vec<String>,
    /// Resident memory before any load, in bytes. `None` if unknown.
    pub rss_bytes: Option<u64>,
}

/// The time limit of a warm-up is divided by this number if the server was never steady in its
/// previous warm-up.
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
    /// The server's warm-ups, one for each load. Empty before the first warm-up.
    pub warmups: Vec<Warmup>,
}

/// The result of a warm-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warmup {
    /// The load, as an index.
    pub load: usize,
    /// How the server became steady, if it did.
    pub class: Class,
    /// Whether a compiler was seen, in this warm-up or the previous one.
    pub compiles: bool,
    /// Time from the first request of the warm-up to the steady state, in milliseconds.
    pub steady_ms: f64,
    /// The curve: responses per second in windows of equal length.
    pub curve: Vec<f64>,
    /// Length of a window, in milliseconds.
    pub window_ms: f64,
    /// CPU time per request at the end of the warm-up, when the server ran alone and was warm, in
    /// nanoseconds. `None` if unknown.
    pub alone_cost_ns: Option<f64>,
    /// Hardware counts at the end of the warm-up's steady load, if the kernel permits them.
    pub count: Option<Count>,
    /// Why instructions are not counted. `None` if they are counted, or if counting was not tried.
    pub uncounted: Option<String>,
    /// What TLS negotiated. `None` without TLS.
    pub tls: Option<Negotiated>,
}

impl Warmup {
    /// Returns the warm-up of a server that needs none, with nothing measured.
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
