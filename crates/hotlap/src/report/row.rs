//! One server under one load: a row of its table.

use std::fmt;

use hotlap_load::Failures;
use hotlap_stats::{Concurrency, Rank};
use serde::Serialize;

use super::figure::{self, Figure, bare, megabytes, millis, percent, ratio};
use super::{AgainstReference, Latency, OpenLoopView, PublishedView, warnings};
use crate::analysis::measured::Used;
use crate::analysis::{
    Analysis, Measure, bias, layers, scaling,
    warnings::{notes_of, tls},
};
use crate::model::{Lap, Role, Run};
use crate::text::number::grouped;

/// One server under one load.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Row {
    /// The places that it may have; `None` for the ceiling, and if there is no verdict (fewer than
    /// three restarts, a control that differs, a server that was still warming up).
    pub rank: Option<Rank>,
    /// Its name in tables.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// How it was started.
    pub command: String,
    /// Its version, as its toolchain reports it.
    pub version: String,
    /// Laps that count, and laps in all.
    pub laps: (u32, u32),
    /// The generator was the limit: requests/s is a lower bound (`≥`).
    pub generator_limited: bool,
    /// Correct responses per second.
    pub requests_per_s: Option<Figure>,
    /// The ceiling's CPU time per request, as a percentage of this server's.
    pub of_ceiling: Option<Figure>,
    /// CPU time of the whole process tree, in microseconds per request.
    pub cpu_us: Option<Figure>,
    /// The bias of slices, found by probes: CPU time per request in the window of a slice, divided
    /// by that when the server is left running.
    pub in_slices: Option<Figure>,
    /// CPU time per request in its laps, divided by that at the end of its warm-ups, when it ran
    /// alone.
    pub of_alone: Option<Figure>,
    /// Instructions per request in user mode.
    pub instructions_user: Option<Figure>,
    /// Instructions per request in the kernel; `None` if it does not permit counting.
    pub instructions_kernel: Option<Figure>,
    /// Why instructions were not counted; empty if they were.
    #[serde(skip)]
    pub uncounted: String,
    /// Context switches per request.
    pub switches: Option<Figure>,
    /// Compared with the reference.
    pub against: Option<AgainstReference>,
    /// Which laps do not count, the validity checks that they failed, and the remedy; empty if all
    /// count.
    #[serde(skip)]
    pub laps_left_out: String,
    /// Wrong responses in all laps. A server with any is neither compared nor ranked.
    pub wrong_responses: u64,
    /// Service time at saturation in a closed loop; response time in an open loop (`rate`).
    pub service: Latency,
    /// Response time in laps at a common rate, which follow those of a closed loop.
    pub response: Option<Latency>,
    /// How that common rate compares with the responses. If it was not reached (`is_behind`),
    /// `response` cannot be compared with that of other servers.
    pub open_loop: Option<OpenLoopView>,
    /// Maximum resident memory of the tree, in MB.
    pub rss_mb: Option<Figure>,
    /// Maximum proportional memory of the tree, in MB.
    pub pss_mb: Option<Figure>,
    /// CPU use, in per cent of one core.
    pub cpu_percent: Option<Figure>,
    /// Failures in all laps.
    pub errors: u64,
    /// Failures by kind and phase, most frequent first.
    pub errors_by_kind: Vec<ErrorCount>,
    /// Time to the first correct response, in milliseconds: the median of its starts.
    pub ready_ms: Option<Figure>,
    /// Time to steady, in milliseconds: the median of its starts.
    pub steady_ms: Option<Figure>,
    /// How it warmed up, in words.
    pub warmup: String,
    /// Version and cipher suite of TLS: `TLS 1.3, TLS_AES_256_GCM_SHA384`; empty without TLS.
    pub tls: String,
    /// Conformance checks; `null` if there were none.
    pub conformance: Option<Checks>,
    /// Correct responses to each of several generators, in the order of `host.generators`, in the
    /// laps that count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub answers_by_generator: Vec<u64>,
    /// Notes about it.
    pub notes: Vec<String>,
    /// Figures published elsewhere, beside the measured ones.
    pub published: Vec<PublishedView>,
}

/// Conformance checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Checks {
    /// The checks that a server passes.
    pub passed: u32,
    /// All checks that were made.
    pub made: u32,
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.passed, self.made)
    }
}

/// Failures of one kind in one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct ErrorCount {
    /// `timeout`, `reset`, …
    pub kind: String,
    /// `connect`, `send`, `first-byte`, `body`, `idle`.
    pub phase: String,
    /// The number of failures.
    pub count: u64,
}

impl Row {
    pub(super) fn of(run: &Run, analysis: &Analysis, index: usize) -> Self {
        let (server, measured) = (&run.servers[index], &analysis.servers[index]);
        let load = &run.loads[analysis.load];
        let in_flight = (load.connections * load.pipeline) as u64;
        let concurrency = |rate| Concurrency { in_flight, rate };
        let response = measured.response.as_ref();
        let mut warmups = run.starts.iter().filter(|s| s.server == index).flat_map(|s| &s.warmups);
        let Used { rss_bytes, pss_bytes, cpu_share, switches, .. } = measured.used;
        let instructions = |per_request: f64| bare(per_request, grouped(per_request, 0));
        Self {
            rank: measured.rank,
            name: server.name.clone(),
            role: server.role,
            command: server.command.clone(),
            version: server.version.clone(),
            laps: measured.laps,
            generator_limited: measured.generator_limited,
            requests_per_s: measured.level[Measure::Rate].as_ref().map(figure::per_second),
            of_ceiling: of_ceiling(analysis, index),
            cpu_us: measured.level[Measure::Cost].map(|cost| figure::micros(&cost.scaled(1e-3))),
            in_slices: bias::in_slices(run, analysis.load, index).as_ref().map(ratio),
            of_alone: measured.of_alone.as_ref().map(ratio),
            instructions_user: measured.used.instructions_user.map(instructions),
            instructions_kernel: measured.used.instructions_kernel.map(instructions),
            uncounted: run
                .starts
                .iter()
                .filter(|start| start.server == index)
                .flat_map(|start| &start.warmups)
                .find_map(|warmup| warmup.uncounted.clone())
                .unwrap_or_default(),
            switches: switches.map(|per| bare(per, format!("{per:.2}"))),
            against: measured
                .against
                .as_ref()
                .and_then(|found| AgainstReference::of(run, analysis, found)),
            laps_left_out: warnings::left_out(run, analysis.load, index, true).unwrap_or_default(),
            wrong_responses: measured.wrong,
            service: Latency::of(&measured.service, concurrency(load.rate)),
            response: response.map(|(times, rate)| {
                let latency = Latency::of(times, concurrency(Some(*rate)));
                latency.that_recurs(&measured.response_laps)
            }),
            open_loop: measured.open_loop.map(|found| OpenLoopView::from(found).rounded()),
            rss_mb: rss_bytes.map(|bytes| megabytes(bytes as f64)),
            pss_mb: pss_bytes.map(|bytes| megabytes(bytes as f64)),
            cpu_percent: cpu_share
                .map(|share| bare(share * 100.0, format!("{} %", grouped(share * 100.0, 0)))),
            errors: measured.failures.total(),
            errors_by_kind: ErrorCount::all_of(&measured.failures),
            ready_ms: measured.ready_ms.map(millis),
            steady_ms: measured.steady_ms.map(millis),
            warmup: warmups
                .rfind(|w| w.load == analysis.load)
                .map_or_else(String::new, |w| warnings::class(w.class).to_owned()),
            tls: tls(run, index).map(ToString::to_string).unwrap_or_default(),
            conformance: conformance(run, index),
            answers_by_generator: answers_by_generator(run, analysis.load, index),
            notes: notes(run, analysis.load, index),
            published: PublishedView::all_of(run, analysis, index).collect(),
        }
    }

    /// Response times at the common rate; `None` if that rate was not reached.
    pub fn at_rate(&self) -> Option<&Latency> {
        let is_behind = self.open_loop.as_ref().is_some_and(|found| found.is_behind);
        self.response.as_ref().filter(|_| !is_behind)
    }

    /// Whether it fails a conformance check.
    pub fn fails_checks(&self) -> bool {
        self.conformance.is_some_and(|checks| checks.passed < checks.made)
    }

    /// Requests/s, as a lower bound if the generator is the limit.
    pub fn rate(&self) -> Option<Figure> {
        let figure = self.requests_per_s.as_ref()?;
        Some(if self.generator_limited { figure.at_least() } else { figure.clone() })
    }
}

impl ErrorCount {
    /// Failures by kind and phase, most frequent first.
    fn all_of(failures: &Failures) -> Vec<Self> {
        let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let counts = failures.0.iter().map(|c| Self {
            kind: word(serde_json::json!(c.failure)),
            phase: word(serde_json::json!(c.phase)),
            count: c.count,
        });
        let mut counts: Vec<Self> = counts.collect();
        counts.sort_by_key(|c| std::cmp::Reverse(c.count));
        counts
    }
}

/// Correct responses to each of several generators in the laps of a server that count.
fn answers_by_generator(run: &Run, load: usize, server: usize) -> Vec<u64> {
    let mut sums = vec![0; run.host.generators.len()];
    let is_own = |lap: &&Lap| (lap.load, lap.server) == (load, server) && lap.counts();
    for lap in run.laps.iter().filter(is_own) {
        for (sum, own) in sums.iter_mut().zip(&lap.generators) {
            *sum += own.responses;
        }
    }
    sums
}

fn of_ceiling(analysis: &Analysis, server: usize) -> Option<Figure> {
    let is_known = analysis.servers[server].level[Measure::Cost].is_some();
    match analysis.ceiling == Some(server) && is_known {
        true => Some(bare(100.0, "100 %".to_owned())),
        false => analysis.of_ceiling(server).as_ref().map(percent),
    }
}

fn conformance(run: &Run, server: usize) -> Option<Checks> {
    let own = run.starts.iter().rev().filter(|start| start.server == server);
    let mut checks = own.map(|start| start.ready.conformance);
    let (passed, made) = checks.find(|(_, made)| *made > 0)?;
    Some(Checks { passed, made })
}

fn notes(run: &Run, load: usize, server: usize) -> Vec<String> {
    let cpus = run.servers[server].part.cpus;
    let beyond = cpus.and_then(|threads| scaling::beyond_cores(run, threads));
    let side_effect = layers::side_effect(run, load, server);
    let mut notes: Vec<String> = Vec::new();
    notes.extend(beyond.map(super::scaling::beyond_cores));
    notes.extend(side_effect.map(super::layers::side_effect));
    notes.extend(notes_of(run, server));
    notes
}
