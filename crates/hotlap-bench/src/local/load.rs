//! Loads of servers: as a plan, opened and ended, and the laps that come of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hotlap_load::plan::{Plan, Request, Target};
use hotlap_load::{Failure, Outcome};
use hotlap_servers::contract::Fields;
use hotlap_servers::failure::ServerFailure;
use hotlap_servers::interrupt;
use hotlap_servers::verify::LIMIT;

use super::LocalRunner;
use super::instance::Held;
use super::trouble::{Run, Trouble};
use crate::lap::{Kind, Lap, Violation};
use crate::load_host::{LoadError, Measured, RunningLoad};
use crate::participant::Load;

impl LocalRunner {
    /// A load as a plan for one server.
    pub(super) fn plan(&self, participant: usize, load: usize) -> Result<Plan, ServerFailure> {
        let instance = &self.instances[participant];
        let load = &self.loads[load];
        let target = instance.target.clone();
        let target =
            target.ok_or_else(|| instance.out("lap", "it is not running".to_owned(), ""))?;
        let target = Target { protocol: load.protocol, ..target };
        let mut plan = Plan::new(target, Request::get("/", ""));
        plan.requests = instance.requests(load);
        let Fields { list, seed, unique, order } = instance.participant.contract.fields.clone();
        (plan.fields, plan.seed, plan.order) = (list, seed, order);
        (plan.unique, plan.first_value) = (unique, instance.first_value());
        plan.connections = load.connections;
        plan.threads = load.threads;
        plan.reuse = load.reuse;
        plan.pipeline = load.pipeline;
        plan.timeout = self.setting.timeout;
        plan.cpus = self.setting.cores.generator.clone();
        plan.busy_poll = !self.setting.cores.shared;
        Ok(plan)
    }

    /// Sleeps until the deadline. Returns false if the user interrupted.
    pub(super) fn wait(&self, session: &dyn RunningLoad, until: Instant) -> bool {
        wait(session, until, &self.stop)
    }

    /// Thaws a server and connects to it. Nothing is sent until a window is opened.
    pub(super) fn hold(&mut self, participant: usize, load: usize) -> Result<Held, Trouble> {
        let plan = self.plan(participant, load)?;
        self.instances[participant].thaw();
        let session = self.setting.generator.hold(&plan);
        let session = self.begun(participant, "lap", session)?;
        match session.wait_for_window() {
            Some(_) => Ok(Held::new(load, session)),
            None => Err(self.cut_short(participant, "lap", session)),
        }
    }

    /// A load that has just been started.
    pub(super) fn begun(
        &mut self,
        participant: usize,
        phase: &str,
        started: Result<Box<dyn RunningLoad>, LoadError>,
    ) -> Result<Box<dyn RunningLoad>, Trouble> {
        let instance = &mut self.instances[participant];
        let session = started.map_err(|error| Trouble::of(error, instance, phase))?;
        instance.uses_values(&*session);
        Ok(session)
    }

    /// Waits for the end of a load.
    pub(super) fn ended(
        &mut self,
        participant: usize,
        phase: &str,
        session: Box<dyn RunningLoad>,
    ) -> Result<Measured, Trouble> {
        session.join().map_err(|error| Trouble::of(error, &mut self.instances[participant], phase))
    }

    /// Why a load ended early: the user interrupted, a generator was lost, or one of the load's
    /// threads failed.
    pub(super) fn cut_short(
        &mut self,
        participant: usize,
        phase: &'static str,
        session: Box<dyn RunningLoad>,
    ) -> Trouble {
        let instance = &mut self.instances[participant];
        if self.stop.load(Ordering::Relaxed) {
            return instance.out(phase, "interrupted".to_owned(), "").into();
        }
        match session.lost() {
            Some(why) => Trouble::Generator(why),
            None => {
                let joined = session.join().map(|measured| measured.outcome);
                instance.unanswered(phase, joined).into()
            }
        }
    }

    /// A lap without a response counts: the server stalled. Once its requests time out, the server
    /// is dropped unless it answers a new one.
    pub(super) fn unless_it_hangs(
        &mut self,
        participant: usize,
        outcome: Outcome,
    ) -> Result<Outcome, ServerFailure> {
        let is_silent = outcome.responses == 0 && outcome.failures.of(Failure::Timeout) > 0;
        if !is_silent || self.stop.load(Ordering::Relaxed) {
            return Ok(outcome);
        }
        let instance = &mut self.instances[participant];
        instance.held = None;
        instance.thaw();
        match instance.ask_again(self.setting.timeout.max(LIMIT)) {
            Ok(_) => Ok(outcome),
            Err(_) => Err(instance.unanswered("lap", Ok(outcome))),
        }
    }

    /// Judges a run and returns it as a lap. One in which a generator was lost has no figures.
    pub(super) fn judged(
        &mut self,
        (participant, load, kind): (usize, usize, Kind),
        run: Result<Run, Trouble>,
        judge: fn(&Lap, &Load) -> Vec<Violation>,
    ) -> Result<Lap, ServerFailure> {
        let at_ms = |at: Instant| at.saturating_duration_since(self.began).as_millis() as u64;
        let run = match run {
            Ok(run) => run,
            Err(Trouble::Server(failure)) => return Err(failure),
            Err(Trouble::Generator(why)) => {
                let at_ms = at_ms(Instant::now());
                self.instances[participant].forget_lap();
                let of = (participant, load);
                let mut lap = Lap::new(of, kind, at_ms, Outcome::default(), None);
                lap.failed = vec![Violation::GeneratorLost { why }];
                return Ok(lap);
            }
        };
        let of = (participant, load);
        let mut lap = Lap::new(of, kind, at_ms(run.at), run.outcome, run.usage);
        lap.failed = judge(&lap, &self.loads[load]);
        lap.failed.extend(run.failed);
        lap.generators = run.generators;
        Ok(lap)
    }
}

/// Sleeps until the deadline; an interrupt also ends the load. Returns false if the user
/// interrupted.
pub(super) fn wait(session: &dyn RunningLoad, until: Instant, stop: &AtomicBool) -> bool {
    let is_over = interrupt::sleep(until.saturating_duration_since(Instant::now()), stop);
    if !is_over {
        session.stop();
    }
    is_over
}
