//! Laps with an instrument on.
//!
//! An instrument is on from before the first request of a lap until all requests are answered, so
//! it sees whole requests, and all of those are counted. What the lap used is sampled at the same
//! two moments.

use std::time::{Duration, Instant};

use hotlap_servers::observe::{Instrument, Observation, ObserveError};

use super::LocalRunner;
use super::instance::{Between, Instance};
use super::slices::{WHOLE, lead_in};
use super::trouble::{Run, Trouble};

impl LocalRunner {
    /// Length of an observed lap: that of others, but at least 0.3 s, because instruments take up
    /// to some milliseconds to be switched on.
    pub(super) fn observed_window(&self, load: usize) -> Duration {
        WHOLE.max(self.slices.length() * self.slices_a_lap(load))
    }

    /// Runs a lap with an instrument on. The server stays thawed.
    pub(super) fn observed(
        &mut self,
        participant: usize,
        load: usize,
        instrument: Instrument,
    ) -> Result<(Run, Result<Observation, ObserveError>), Trouble> {
        self.instances[participant].forget_lap();
        self.instances[participant].begin_lap();
        let mut held = self.hold(participant, load)?;
        let (opens, window) = (lead_in(self.slices.length()), self.observed_window(load));
        let instance = &mut self.instances[participant];
        let enabled = instance.enable(instrument);
        let before = instance.sample(&*held.session);
        let began = Instant::now();
        held.session.open_window(opens, window);
        if !self.wait(&*held.session, began + opens + window) {
            return Err(self.cut_short(participant, "lap", held.session));
        }
        held.pause(lead_in(window));
        let instance = &mut self.instances[participant];
        let after = instance.sample(&*held.session);
        instance.disable();
        held.add(before.at, &Between::of(&before, &after));
        instance.held = Some(held);
        let run = self.gather(participant)?;
        let instance = &mut self.instances[participant];
        instance.thaw();
        let seen = enabled.and_then(|()| instance.take(instrument));
        instance.forget_lap();
        Ok((run, seen))
    }
}

impl Instance {
    /// The instruments that can be used on it, and what they cannot see.
    pub(super) fn instruments(&self) -> (Vec<Instrument>, Vec<ObserveError>) {
        let none = || (Vec::new(), vec![not_running()]);
        self.server.as_ref().map_or_else(none, |server| server.instruments())
    }

    fn enable(&mut self, instrument: Instrument) -> Result<(), ObserveError> {
        self.server.as_mut().ok_or_else(not_running)?.enable(instrument)
    }

    fn disable(&mut self) {
        self.server.iter_mut().for_each(|server| server.disable());
    }

    fn take(&mut self, instrument: Instrument) -> Result<Observation, ObserveError> {
        self.server.as_mut().ok_or_else(not_running)?.take(instrument)
    }
}

/// Why nothing can be observed of a server that has been stopped.
fn not_running() -> ObserveError {
    ObserveError {
        what: "the server".into(),
        why: "it is not running".to_owned(),
        remedy: "see why it ended".to_owned(),
    }
}
