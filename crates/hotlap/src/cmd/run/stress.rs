//! `hotlap run --stress`: what overload and misbehaving clients do to servers and their normal
//! clients. It runs alone, or after the measurement of a suite that asks for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hotlap_bench::experiment::Over;
use hotlap_bench::stress::{StressEvent, StressSetting, Subject, Timing, stress};
use hotlap_servers::machine::CpuAllocation;
use hotlap_servers::running::ServerHost;

use super::finish::finish;
use super::logs::Logs;
use super::participants::{Participants, is_named};
use super::spec::RunSpec;
use super::timing::GRACE;
use super::{announcement, measure, record, resume};
use crate::console::Console;
use crate::exit::Exit;
use crate::export::Exports;
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::model::{self, Run, State};
use crate::recorder::Recorder;
use crate::store::Store;

/// Connections of normal clients: enough to keep a single-threaded server busy, and few enough that
/// each of them notices the attackers.
const GOOD: usize = 8;

/// The cores and the record of a stress run that is about to begin or continue.
pub fn prepared(
    spec: &RunSpec,
    participants: &Participants,
) -> anyhow::Result<(CpuAllocation, Run)> {
    let cores = participants.cores(spec);
    let run = record::begin(spec, participants, &cores, None);
    let Some(earlier) = spec.earlier.clone() else { return Ok((cores, run)) };
    resume::same_suite(&earlier, &run)?;
    Ok((cores, Run { state: State::UnderWay, servers: run.servers, ..earlier }))
}

/// Stresses servers, without a measurement.
pub fn run(
    spec: &RunSpec,
    participants: &Participants,
    store: Option<Store>,
    exports: &mut Exports,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Exit> {
    let logs = Logs::new()?;
    let began = Instant::now();
    let (cores, run) = prepared(spec, participants)?;
    let spent = Duration::from_millis(spec.earlier.as_ref().map_or(0, |earlier| earlier.took_ms));
    console.note(&announcement::of_stress(&participants.ready, &run, &spec.scenarios));
    let mut recorder = Recorder::new(run, store, exports, console)?;
    logs.measures(recorder.so_far().number, recorder.store_path());
    let host = measure::server_host(participants, &logs)?;
    let stressed = stress_all(spec, participants, &cores, host, &mut recorder, interrupt, console);
    let over = match stressed {
        Ok(true) => Over::Done,
        Ok(false) => Over::Interrupted,
        Err(error) => {
            recorder.fail(spent + began.elapsed());
            return Err(error);
        }
    };
    let kept = recorder.end(over, spent + began.elapsed());
    finish(&kept, spec, &[], exports, console)
}

/// Stresses servers one after the other; only one of them runs at a time. Servers that failed, and
/// scenarios that are already done, are skipped. Returns whether all were completed.
pub fn stress_all(
    spec: &RunSpec,
    participants: &Participants,
    cores: &CpuAllocation,
    host: Arc<dyn ServerHost>,
    recorder: &mut Recorder<'_>,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<bool> {
    let setting = StressSetting {
        scenarios: spec.scenarios.clone(),
        timing: Timing::default(),
        good: GOOD,
        cores: cores.clone(),
        host,
        start_limit: spec.start_timeout,
        grace: GRACE,
        allow_remote: spec.allow_remote,
    };
    let mut live = Live::start(console);
    let named = participants.ready.iter().enumerate().filter(|(_, e)| is_named(e));
    for (number, participant) in named {
        let run = recorder.so_far();
        let is_out = |s: &model::Server| s.name == participant.name && s.failure.is_some();
        let before = run.stress.iter().find(|s| s.name == participant.name).cloned();
        let before = before.unwrap_or_else(|| Subject::new(participant, GOOD));
        if run.servers.iter().any(is_out) || before.left(&setting.scenarios).is_empty() {
            continue;
        }
        let subject = stress(
            number,
            participant,
            &setting,
            before,
            interrupt.flag(),
            &mut |event| match event {
                StressEvent::Scenario { server, scenario } => {
                    live.phase(format!("{server}: {scenario}"))
                }
                StressEvent::Trial { subject } => {
                    if let Some(trial) = subject.trials.last() {
                        let verdict = trial.judgement.impact.as_str();
                        live.say(&format!("{}: {}: {verdict}", subject.name, trial.scenario));
                    }
                    recorder.stressed((*subject).clone());
                }
            },
        );
        // The results so far are already stored.
        if subject.failure.is_some() {
            recorder.stressed(subject);
        }
        if interrupt.asked() {
            live.clear();
            return Ok(false);
        }
    }
    live.clear();
    Ok(true)
}
