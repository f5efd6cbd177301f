//! Loads a server, and turns the results into laps.

use std::time::{Duration, Instant};

use hotlap_agent::{LoadError, LoadOutcome, RunningLoad};
use hotlap_load::plan::{Pace, Plan, Request, Stop, Target};
use hotlap_load::{Failure, Outcome};
use hotlap_observe::{Instrument, Observation, ObserveError};
use hotlap_servers::contract::Fields;
use hotlap_servers::launch::ServerFailure;
use hotlap_servers::running::Sample;
use hotlap_servers::verify::LIMIT;

use super::super::slices::{AWAKE, lead_in, spread_lead_in};
use super::{Between, Held, Instance, Trouble};
use crate::lap::{Contribution, Lap, LapKind, Usage, Violation};
use crate::participant::Load;
use crate::runner::{LONG_FREEZE, TrialWindow};
use crate::validity;

/// The longest time that a single request takes on an idle server. The limit is longer for a server
/// whose mean service time under saturation was longer.
const CALM: Duration = Duration::from_millis(50);

/// The time that a server gets to recover from overload, unless the timeout of a request is longer.
/// Clients have abandoned the requests that the server had accepted, but many servers still carry
/// them out.
const RECOVERY: Duration = Duration::from_secs(10);

impl Instance {
    /// Returns a load as a plan for the generator.
    pub(super) fn plan(&self, load: usize) -> Result<Plan, ServerFailure> {
        let (setting, load) = (&self.run.setting, &self.run.loads[load]);
        let target = self.target.clone();
        let target = target
            .ok_or_else(|| self.failure("lap", "the server is not running".to_owned(), ""))?;
        let target = Target { protocol: load.protocol, ..target };
        let mut plan = Plan::new(target, Request::get("/", ""));
        plan.requests = match load.request {
            None => self.requests.clone(),
            Some(request) => {
                let request = request.min(self.requests.len().saturating_sub(1));
                // Without other requests, the weight of a request makes no difference.
                vec![Request { weight: 1, ..self.requests[request].clone() }]
            }
        };
        let Fields { list, seed, unique, order } = self.participant.contract.fields.clone();
        (plan.fields, plan.seed, plan.order) = (list, seed, order);
        (plan.unique, plan.first_value) = (unique, self.first_value());
        plan.shape = load.shape;
        plan.timeout = setting.timeout;
        plan.cpus = setting.cores.generator.clone();
        plan.busy_poll = !setting.cores.shared;
        Ok(plan)
    }

    /// The number of values of each field that are used up. No value is used again, because a
    /// request with the same key might be refused the second time.
    fn first_value(&self) -> u64 {
        let (earlier, latest) = &self.values_used;
        earlier + latest.as_ref().map_or(0, |used| used())
    }

    /// Takes over a load that has just been started, or returns why it could not be started.
    pub(super) fn begun(
        &mut self,
        phase: &str,
        started: Result<Box<dyn RunningLoad>, LoadError>,
    ) -> Result<Box<dyn RunningLoad>, Trouble> {
        let session = started.map_err(|error| self.trouble(phase, error))?;
        self.values_used = (self.first_value(), Some(session.values_used()));
        Ok(session)
    }

    /// Returns why a load ended early: the user interrupted, a generator was lost, or one of the
    /// load's threads failed.
    pub(super) fn cut_short(&mut self, phase: &str, session: Box<dyn RunningLoad>) -> Trouble {
        if self.run.is_stopped() {
            return self.failure(phase, "interrupted".to_owned(), "").into();
        }
        match session.lost() {
            Some(why) => Trouble::Generator(why.to_string()),
            None => {
                let joined = session.join().map(|measured| measured.outcome);
                self.unanswered(phase, joined).into()
            }
        }
    }

    /// Thaws the server and opens the connections. Nothing is sent until a window is opened.
    fn hold(&mut self, load: usize) -> Result<Held, Trouble> {
        let plan = self.plan(load)?;
        self.thaw();
        let session = self.run.setting.generator.hold(&plan);
        let session = self.begun("lap", session)?;
        match session.wait_for_window() {
            Some(_) => Ok(Held::new(load, session)),
            None => Err(self.cut_short("lap", session)),
        }
    }

    /// Loads the server and samples it at the given times. The window opens at the first time and
    /// closes at the last. Afterwards, the server has up to `rest` to finish requests in flight.
    pub fn drive<const N: usize>(
        &mut self,
        load: usize,
        edges: [Duration; N],
        rest: Duration,
    ) -> Result<[Sample; N], Trouble> {
        let kept = self.held.take().filter(|held| held.goes_on(load));
        let mut held = match kept {
            Some(held) => held,
            None => self.hold(load)?,
        };
        // The server must run before the window opens. A call to another host takes a while, and a
        // generator that never sleeps may keep this thread from its core for milliseconds. If
        // server and generator share their cores, a running server may also delay this thread, so
        // the window opens first.
        if !self.run.setting.cores.shared || self.is_elsewhere() {
            self.thaw();
        }
        let began = Instant::now();
        held.session.open_window(edges[0], edges[N - 1] - edges[0]);
        self.thaw();
        let mut samples = Vec::with_capacity(N);
        for edge in edges {
            // An incomplete slice is excluded.
            let is_lost = held.session.lost().is_some();
            if is_lost || !self.run.wait(&*held.session, began + edge) {
                return Err(self.cut_short("lap", held.session));
            }
            samples.push(self.sample(&*held.session));
        }
        held.pause(rest);
        if held.session.lost().is_some() {
            return Err(self.cut_short("lap", held.session));
        }
        self.held = Some(held);
        Ok(samples.try_into().expect("one sample for each edge"))
    }

    /// Loads the server for [`AWAKE`] outside of laps, if it was frozen for [`LONG_FREEZE`].
    pub fn wake(&mut self, load: usize) -> Result<(), Trouble> {
        if self.frozen.is_some_and(|since| since.elapsed() >= LONG_FREEZE) {
            let opens = lead_in(AWAKE);
            self.drive(load, [opens, opens + AWAKE], opens)?;
            self.forget_lap();
        }
        Ok(())
    }

    /// The server's mean service time. Zero before its warm-up.
    fn service(&self, load: usize) -> Duration {
        self.known[load].map_or(Duration::ZERO, |known| known.service)
    }

    /// Runs one slice, as part of the lap under way or as the first slice of a new lap. If a
    /// generator is lost, the lap is excluded, and its remaining slices are skipped.
    pub fn slice(&mut self, load: usize, window: Duration) -> Result<(), ServerFailure> {
        if self.lost.is_some() {
            return Ok(());
        }
        self.begin_lap();
        self.slices = self.slices.wrapping_add(1);
        let opens = spread_lead_in(window, self.slices, self.service(load));
        match self.drive(load, [opens, opens + window], lead_in(window)) {
            Ok([before, after]) => {
                if let Some(held) = &mut self.held {
                    held.add(before.at, &Between::of(&before, &after));
                }
                Ok(())
            }
            Err(Trouble::Generator(why)) => {
                self.lost = Some(why);
                Ok(())
            }
            Err(Trouble::Server(failure)) => Err(failure),
        }
    }

    /// Ends the lap under way and judges the sum of its slices.
    pub fn lap(&mut self, load: usize) -> Result<Lap, ServerFailure> {
        let lap = self.gather(load);
        self.judged(load, LapKind::Flat, lap, validity::judge)
    }

    fn gather(&mut self, load: usize) -> Result<Lap, Trouble> {
        if let Some(why) = self.lost.take() {
            return Err(Trouble::Generator(why));
        }
        self.still_there("lap")?;
        let Some(mut held) = self.held.take() else {
            return Err(self.failure("lap", "interrupted".to_owned(), "").into());
        };
        let Some((measured, (at, between, requests))) = held.session.collect().zip(held.end_lap())
        else {
            return Err(self.cut_short("lap", held.session));
        };
        // After the server's host was silent, the connections may not have recovered yet.
        self.held = Some(held).filter(|_| validity::silence(between.silence).is_none());
        let switches = self.before_lap.and_then(|(first, _)| first.zip(self.switches()));
        let usage = self.usage(&between, switches, requests);
        Ok(self.measured((load, LapKind::Flat, at), &between, usage, measured)?)
    }

    /// Returns a lap that is not judged yet. Its failed checks so far concern the generators, the
    /// server's host and the side effect.
    fn measured(
        &mut self,
        (load, kind, at): (usize, LapKind, Instant),
        between: &Between,
        usage: Option<Usage>,
        measured: LoadOutcome,
    ) -> Result<Lap, ServerFailure> {
        let LoadOutcome { outcome, contributions } = measured;
        let (mut generators, mut failed) = (Vec::new(), Vec::new());
        if let Some(own) = &contributions {
            generators.extend(own.generators.iter().map(Contribution::from));
            let apart = own.invalid.iter().map(|why| Violation::Generators { why: why.cause() });
            failed.extend(apart);
        }
        failed.extend(validity::silence(between.silence));
        failed.extend(self.side_effect(&outcome.totals));
        let outcome = self.unless_it_hangs(outcome)?;
        let lap = Lap::new((self.number, load), kind, self.run.at_ms(at), outcome, usage);
        Ok(Lap { generators, failed, ..lap })
    }

    /// Returns the outcome unless the server hangs. A lap without a response is valid, because it
    /// shows a stall. Once requests time out, the server is dropped unless it responds to a new
    /// request.
    fn unless_it_hangs(&mut self, outcome: Outcome) -> Result<Outcome, ServerFailure> {
        let is_silent = outcome.responses == 0 && outcome.failures.of(Failure::Timeout) > 0;
        if !is_silent || self.run.is_stopped() {
            return Ok(outcome);
        }
        self.held = None;
        self.thaw();
        match self.asks_safely(self.run.setting.timeout.max(LIMIT)) {
            Ok(_) => Ok(outcome),
            Err(_) => Err(self.unanswered("lap", Ok(outcome))),
        }
    }

    /// Judges a lap. A lap in which a generator was lost has no figures.
    fn judged(
        &mut self,
        load: usize,
        kind: LapKind,
        lap: Result<Lap, Trouble>,
        judge: fn(&Lap, &Load) -> Vec<Violation>,
    ) -> Result<Lap, ServerFailure> {
        match lap {
            Ok(mut lap) => {
                let own = std::mem::take(&mut lap.failed);
                lap.failed = judge(&lap, &self.run.loads[load]);
                lap.failed.extend(own);
                Ok(lap)
            }
            Err(Trouble::Server(failure)) => Err(failure),
            Err(Trouble::Generator(why)) => {
                self.forget_lap();
                let (of, at_ms) = ((self.number, load), self.run.at_ms(Instant::now()));
                let lap = Lap::new(of, kind, at_ms, Outcome::default(), None);
                Ok(Lap { failed: vec![Violation::GeneratorLost { why }], ..lap })
            }
        }
    }

    /// Runs one lap at a rate, for this long. The n-th lap at a rate has the same arrival times on
    /// all servers.
    pub fn paced_lap(
        &mut self,
        load: usize,
        rate: f64,
        window: Duration,
    ) -> Result<Lap, ServerFailure> {
        self.paced += 1;
        let kind = LapKind::Paced { rate };
        let lap = self.open_loop(load, kind, Pace::Poisson { rate, seed: self.paced }, window);
        self.judged(load, kind, lap, validity::judge)
    }

    /// Runs one lap of a search.
    pub fn trial_lap(&mut self, load: usize, trial: TrialWindow) -> Result<Lap, ServerFailure> {
        let TrialWindow { rate, length, seed, .. } = trial;
        let lap = self.open_loop(load, trial.kind(), Pace::Poisson { rate, seed }, length);
        self.judged(load, trial.kind(), lap, validity::judge_trial)
    }

    /// Runs one lap in an open loop. The server stays thawed.
    fn open_loop(
        &mut self,
        load: usize,
        kind: LapKind,
        pace: Pace,
        window: Duration,
    ) -> Result<Lap, Trouble> {
        self.forget_lap();
        let mut plan = self.plan(load)?;
        plan.warmup = lead_in(window);
        plan.stop = Stop::After(window);
        plan.pace = pace;
        self.thaw();
        self.begin_lap();
        let lap = self.measure_paced((load, kind), &plan);
        self.forget_lap();
        lap
    }

    fn measure_paced(
        &mut self,
        (load, kind): (usize, LapKind),
        plan: &Plan,
    ) -> Result<Lap, Trouble> {
        let session = self.run.setting.generator.start(plan);
        let session = self.begun("lap", session)?;
        let Some(window) = session.wait_for_window() else {
            return Err(self.cut_short("lap", session));
        };
        self.run.wait(&*session, window.opens);
        let at = Instant::now();
        let first = self.switches();
        let before = self.sample(&*session);
        // An incomplete lap is excluded.
        if window.closes.is_some_and(|closes| !self.run.wait(&*session, closes)) {
            return Err(self.cut_short("lap", session));
        }
        let after = self.sample(&*session);
        let switches = first.zip(self.switches());
        let measured = session.join().map_err(|error| self.trouble("lap", error))?;
        self.still_there("lap")?;
        let between = Between::of(&before, &after);
        let usage = self.usage(&between, switches, between.requests);
        Ok(self.measured((load, kind, at), &between, usage, measured)?)
    }

    /// Waits until a server that was loaded at a rate is idle again. The server is idle once two
    /// single requests in a row take no longer than [`CALM`] or, if longer, the server's mean
    /// service time under saturation.
    pub fn recover(&mut self, load: usize, rate: f64) -> Result<(), ServerFailure> {
        self.thaw();
        let calm = CALM.max(self.service(load));
        let limit = self.run.setting.timeout.max(RECOVERY);
        let until = Instant::now() + limit;
        let mut in_a_row = 0;
        while in_a_row < 2 {
            self.still_there("recovery")?;
            let asked = Instant::now();
            let is_calm = self.asks_safely(calm).is_ok();
            in_a_row = if is_calm && asked.elapsed() <= calm { in_a_row + 1 } else { 0 };
            if self.run.is_stopped() {
                return Ok(());
            }
            if Instant::now() > until {
                let cause = format!(
                    "{:.0} s after a load of {rate:.0} requests/s, a single request still took \
                     longer than {} ms, or failed",
                    limit.as_secs_f64(),
                    calm.as_millis()
                );
                let remedy = "possibly the server's queue is too long: limit its length";
                return Err(self.failure("recovery", cause, remedy));
            }
        }
        Ok(())
    }

    /// The instruments that can be used on the server, and what cannot be observed.
    pub fn instruments(&self) -> (Vec<Instrument>, Vec<ObserveError>) {
        let none = || (Vec::new(), vec![not_running()]);
        self.server.as_ref().map_or_else(none, |server| server.instruments())
    }

    /// Runs a lap of one slice with an instrument on. The server stays thawed.
    pub fn observed_lap(
        &mut self,
        load: usize,
        instrument: Instrument,
        times: (Duration, Duration),
    ) -> Result<(Lap, Result<Observation, ObserveError>), ServerFailure> {
        let (lap, seen) = match self.observed(load, instrument, times) {
            Ok((lap, seen)) => (Ok(lap), seen),
            Err(trouble) => {
                (Err(trouble), Err(unobserved("a generator was lost", "repeat the run")))
            }
        };
        Ok((self.judged(load, LapKind::Flat, lap, validity::judge)?, seen))
    }

    /// Runs a lap whose instrument is on from before the first request until all requests are
    /// answered, within a limit. The instrument therefore sees whole requests, and all requests are
    /// counted. The lap's usage covers the same time.
    fn observed(
        &mut self,
        load: usize,
        instrument: Instrument,
        (opens, window): (Duration, Duration),
    ) -> Result<(Lap, Result<Observation, ObserveError>), Trouble> {
        self.forget_lap();
        self.begin_lap();
        let mut held = self.hold(load)?;
        let enabled = match &mut self.server {
            Some(server) => server.enable(instrument),
            None => Err(not_running()),
        };
        let before = self.sample(&*held.session);
        let began = Instant::now();
        held.session.open_window(opens, window);
        if !self.run.wait(&*held.session, began + opens + window) {
            return Err(self.cut_short("lap", held.session));
        }
        held.pause(lead_in(window));
        let after = self.sample(&*held.session);
        self.server.iter_mut().for_each(|server| server.disable());
        held.add(before.at, &Between::of(&before, &after));
        self.held = Some(held);
        let lap = self.gather(load)?;
        self.thaw();
        let seen = match &mut self.server {
            Some(server) => enabled.and_then(|()| server.take(instrument)),
            None => Err(not_running()),
        };
        self.forget_lap();
        Ok((lap, seen))
    }
}

/// Returns the error for a server that cannot be observed because it has been stopped.
fn not_running() -> ObserveError {
    unobserved("it is not running", "repeat the run")
}

fn unobserved(why: &str, remedy: &str) -> ObserveError {
    ObserveError { what: "the server".into(), why: why.to_owned(), remedy: remedy.to_owned() }
}
