//! The results of one load: its servers as rows, the columns of every output, and its tables.

use std::fmt;

use hotlap_load::outcome::FailureCount;
use hotlap_load::{Failure, Failures, Phase};
use hotlap_servers::database::DatabaseWork;
use hotlap_stats::{Concurrency, Rank};
use serde::Serialize;

use crate::analysis::warnings::{notes_of, tls};
use crate::analysis::{Analysis, Measure, MeasuredServer, Used, suites};
use crate::model::{Lap, Load, Role, Run};
use crate::report::figure::{Figure, bare, cell, megabytes, millis, percent, ratio, text_cell};
use crate::report::heading::{title_of_one, under, with_load};
use crate::report::latency::{Latency, OpenLoopView, RequestRow};
use crate::report::suite::{PublishedSource, PublishedView, beyond_cores, side_effect};
use crate::report::verdict::{AgainstReference, Noise};
use crate::report::{figure, sentences, warnings};
use crate::text::name;
use crate::text::number::{self, count, grouped, rounded};
use crate::text::table::{Cell, Column, Table, Tone};

/// The results of one load.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadResults {
    /// The index of the load.
    pub load: usize,
    /// The load, in words. Empty if the run has only one load.
    pub title: String,
    /// The words ` under POST /bla`, for a sentence about one of several loads. Empty for one load.
    #[serde(skip)]
    pub under: String,
    /// The rate that the load offers, in requests/s. `null` in a closed loop.
    pub rate: Option<f64>,
    /// Whether any server has a lap that counts.
    #[serde(skip)]
    pub is_measured: bool,
    /// The name of the reference.
    pub reference: Option<String>,
    /// The noise floor under this load. `null` if it is unknown.
    pub noise: Option<Noise>,
    /// If CPU time or requests/s are adjusted for the speed of the servers' cores, by how much
    /// that speed varied between laps, as a share. `null` if neither is adjusted.
    pub adjusted_for_speed: Option<f64>,
    /// The servers in the order of the table. Servers that serve the load's full rate come first,
    /// by CPU time. The others follow by requests/s, and the ceiling is last. Layers keep their
    /// order.
    pub rows: Vec<Row>,
    /// The figures of each request to each server. Empty if the load sends only one request.
    pub by_request: Vec<RequestRow>,
    /// The results under this load, in sentences.
    pub sentences: Vec<String>,
}

impl LoadResults {
    pub(super) fn of(run: &Run, analysis: &Analysis) -> Self {
        let load = &run.loads[analysis.load];
        let mut order: Vec<usize> =
            (0..run.servers.len()).filter(|&server| run.is_shown(server)).collect();
        analysis.sort(run, &mut order);
        let mut results = Self {
            load: analysis.load,
            title: title_of_one(run, analysis.load),
            under: under(run, analysis.load),
            rate: load.rate.map(rounded),
            is_measured: analysis.is_measured(),
            reference: analysis.reference.map(|r| run.servers[r].name.clone()),
            noise: Noise::of(run, analysis),
            adjusted_for_speed: analysis.speed.adjusts().then(|| rounded(analysis.speed.varied)),
            rows: order.iter().map(|server| Row::of(run, analysis, *server)).collect(),
            by_request: Vec::new(),
            sentences: sentences::of_table(run, analysis),
        };
        let common_rate = results.common_rate();
        let rows = order.into_iter().zip(&results.rows);
        let requests = rows.flat_map(|(server, row)| {
            RequestRow::all_of(run, analysis, server, common_rate, row.at_rate().is_some())
        });
        results.by_request = requests.collect();
        results
    }

    /// Returns the sentences. Each sentence begins with its load if there are several loads.
    pub(super) fn sentences_with_load(&self) -> impl Iterator<Item = String> {
        self.sentences.iter().map(|sentence| with_load(&self.under, sentence))
    }
}

/// One server under one load.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// The ranks that the server may have. `null` for the ceiling, after a wrong response, and if
    /// verdicts are withheld, for example with fewer than three restarts.
    pub rank: Option<Rank>,
    /// The server's name in tables.
    pub name: String,
    /// The server's role in the run.
    pub role: Role,
    /// The command that started the server, or its URL.
    pub command: String,
    /// The server's version, as its toolchain reports it.
    pub version: String,
    /// The number of laps that count, and of all laps. Laps at a common rate are left out.
    pub laps: (u32, u32),
    /// Whether the generator was the limit, so that requests/s is a lower bound (`≥`).
    pub generator_limited: bool,
    /// The number of correct responses per second.
    pub requests_per_s: Option<Figure>,
    /// The ceiling's CPU time per request, as a percentage of this server's.
    pub of_ceiling: Option<Figure>,
    /// CPU time of the server's whole process tree, in microseconds per request.
    pub cpu_us: Option<Figure>,
    /// CPU time of the run's database, in microseconds per request. `null` without a database.
    pub database_us: Option<Figure>,
    /// CPU time of server and database, in microseconds per request. `null` without a database.
    pub total_us: Option<Figure>,
    /// Statements per request that the database executed. Statements are counted before the load,
    /// for servers whose contract needs a database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statements: Option<Figure>,
    /// How often per request the database waited for the server. Statements that are sent together
    /// take one round trip. Round trips are counted together with the statements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<Figure>,
    /// The slice bias, found by probes: CPU time per request in the window of a slice, divided by
    /// CPU time per request when left running.
    pub in_slices: Option<Figure>,
    /// CPU time per request in the server's laps, divided by CPU time per request at the end of
    /// warm-ups, when the server ran alone.
    pub of_alone: Option<Figure>,
    /// Instructions per request in user mode.
    pub instructions_user: Option<Figure>,
    /// Instructions per request in the kernel. `null` if the kernel does not permit counting.
    pub instructions_kernel: Option<Figure>,
    /// Why instructions were not counted. Empty if they were counted.
    #[serde(skip)]
    pub uncounted: String,
    /// Context switches per request.
    pub switches: Option<Figure>,
    /// The comparison with the reference.
    pub against: Option<AgainstReference>,
    /// The excluded laps, the validity checks that they failed, and the remedy. Empty if all laps
    /// count.
    #[serde(skip)]
    pub laps_excluded: String,
    /// The number of wrong responses in all laps. A server with a wrong response is not compared
    /// and not ranked.
    pub wrong_responses: u64,
    /// The latency under the load: service time at saturation, or response time in an open loop.
    pub service: Latency,
    /// Response time in laps at a common rate, which follow the laps of a closed loop.
    pub response: Option<Latency>,
    /// The common rate compared with the responses. If the server did not reach the rate
    /// (`is_behind`), its `response` cannot be compared with other servers.
    pub open_loop: Option<OpenLoopView>,
    /// The largest resident memory of the process tree in a restart, as a mean over restarts, in
    /// MB.
    pub rss_mb: Option<Figure>,
    /// Maximum proportional memory of the process tree, in MB.
    pub pss_mb: Option<Figure>,
    /// CPU use, in per cent of one core.
    pub cpu_percent: Option<Figure>,
    /// The number of failures in all laps.
    pub errors: u64,
    /// Failures by kind and phase, the most frequent first.
    pub errors_by_kind: Vec<ErrorCount>,
    /// Time to the first correct response, in milliseconds: the median of the server's starts.
    pub ready_ms: Option<Figure>,
    /// Time until the server was steady, in milliseconds: the median of the server's starts.
    pub steady_ms: Option<Figure>,
    /// How the server warmed up, in words.
    pub warmup: String,
    /// Version and cipher suite of TLS: `TLS 1.3, TLS_AES_256_GCM_SHA384`. Empty without TLS.
    pub tls: String,
    /// The conformance checks. `null` if none were made.
    pub conformance: Option<Checks>,
    /// Correct responses to each of several generators in the laps that count, in the order of
    /// `host.generators`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub responses_by_generator: Vec<u64>,
    /// Notes about the server.
    pub notes: Vec<String>,
    /// Figures that are published elsewhere, for comparison with the measured figures.
    pub published: Vec<PublishedView>,
}

/// The result of conformance checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Checks {
    /// The number of checks that the server passed.
    pub passed: u32,
    /// The number of checks that were made.
    pub made: u32,
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.passed, self.made)
    }
}

/// Failures of one kind in one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorCount {
    /// The kind of failure: `timeout`, `reset`, …
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub kind: Failure,
    /// The phase of the request: `connect`, `send`, `first-byte`, `body`, `idle`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub phase: Phase,
    /// The number of failures.
    pub count: u64,
}

impl Row {
    pub(super) fn of(run: &Run, analysis: &Analysis, index: usize) -> Self {
        let (server, measured) = (&run.servers[index], &analysis.servers[index]);
        let load = &run.loads[analysis.load];
        let in_flight = load.shape.in_flight() as u64;
        let concurrency = |rate| Concurrency { in_flight, rate };
        let response = measured.response.as_ref();
        let mut warmups = run.starts.iter().filter(|s| s.server == index).flat_map(|s| &s.warmups);
        let Used { pss_bytes, cpu_share, switches, .. } = measured.used;
        let level =
            |measure| measured.level[measure].map(|level| figure::of_measure(measure, &level));
        let instructions = |per_request: f64| bare(per_request, grouped(per_request, 0));
        let work = database_work(run, load, index);
        let counted = |per_request: f64| bare(per_request, grouped(per_request, 1));
        Self {
            rank: measured.rank,
            name: server.name.clone(),
            role: server.role,
            command: server.command.clone(),
            version: server.version.clone(),
            laps: measured.laps,
            generator_limited: measured.generator_limited,
            requests_per_s: rate(measured),
            of_ceiling: of_ceiling(analysis, index),
            cpu_us: level(Measure::Cost),
            database_us: level(Measure::Database),
            total_us: level(Measure::Total),
            statements: work.map(|work| counted(work.statements)),
            round_trips: work.and_then(|work| work.round_trips).map(counted),
            in_slices: measured.probed.map(|probed| ratio(&probed.ratio)),
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
            laps_excluded: warnings::left_out(run, analysis.load, [index]).concat(),
            wrong_responses: measured.wrong,
            service: Latency::of(&measured.service, concurrency(load.rate)),
            response: response.map(|(times, rate)| {
                let latency = Latency::of(times, concurrency(Some(*rate)));
                latency.that_recurs(analysis.repeatable(index))
            }),
            open_loop: measured.open_loop.map(|found| OpenLoopView::of(found, rounded)),
            rss_mb: level(Measure::Memory),
            pss_mb: pss_bytes.map(|bytes| megabytes(bytes as f64)),
            cpu_percent: cpu_share
                .map(|share| bare(share * 100.0, format!("{}%", grouped(share * 100.0, 0)))),
            errors: measured.failures.total(),
            errors_by_kind: ErrorCount::all_of(&measured.failures),
            ready_ms: measured.ready_ms.map(millis),
            steady_ms: measured.steady_ms.map(millis),
            warmup: warmups
                .rfind(|w| w.load == analysis.load)
                .map_or_else(String::new, |w| warnings::class(w.class).to_owned()),
            tls: tls(run, index).map(ToString::to_string).unwrap_or_default(),
            conformance: conformance(run, index),
            responses_by_generator: responses_by_generator(run, analysis.load, index),
            notes: notes(run, analysis.load, index),
            published: PublishedView::all_of(run, analysis, index).collect(),
        }
    }

    /// Returns the response times at the common rate. `None` if the server did not reach this rate.
    pub fn at_rate(&self) -> Option<&Latency> {
        let is_behind = self.open_loop.as_ref().is_some_and(|found| found.is_behind);
        self.response.as_ref().filter(|_| !is_behind)
    }

    /// Whether the server fails a conformance check.
    pub fn fails_checks(&self) -> bool {
        self.conformance.is_some_and(|checks| checks.passed < checks.made)
    }
}

impl ErrorCount {
    /// Counts failures by kind and phase, the most frequent first.
    fn all_of(failures: &Failures) -> Vec<Self> {
        let count = |c: &FailureCount| Self { kind: c.failure, phase: c.phase, count: c.count };
        let mut counts: Vec<Self> = failures.0.iter().map(count).collect();
        counts.sort_by_key(|c| std::cmp::Reverse(c.count));
        counts
    }
}

/// Counts correct responses to each of several generators, in the laps of a server that count.
fn responses_by_generator(run: &Run, load: usize, server: usize) -> Vec<u64> {
    let mut sums = vec![0; run.host.generators.len()];
    let is_own = |lap: &&Lap| (lap.load, lap.server) == (load, server) && lap.counts();
    for lap in run.laps.iter().filter(is_own) {
        for (sum, own) in sums.iter_mut().zip(&lap.generators) {
            *sum += own.responses;
        }
    }
    sums
}

/// Returns requests/s, as a lower bound if the generator was the limit.
fn rate(server: &MeasuredServer) -> Option<Figure> {
    let figure = figure::of_measure(Measure::Rate, &server.level[Measure::Rate]?);
    Some(if server.generator_limited { figure.at_least() } else { figure })
}

fn of_ceiling(analysis: &Analysis, server: usize) -> Option<Figure> {
    let is_known = analysis.servers[server].level[Measure::Cost].is_some();
    match analysis.ceiling == Some(server) && is_known {
        true => Some(bare(100.0, "100%".to_owned())),
        false => analysis.of_ceiling(server).as_ref().map(percent),
    }
}

/// Returns the work of a server's database for the request of a load. `None` if the load sends
/// several requests, or if the work is unknown.
fn database_work(run: &Run, load: &Load, server: usize) -> Option<DatabaseWork> {
    let mut own = run.starts.iter().filter(|start| start.server == server);
    let counted = own.find(|start| !start.ready.database_work.is_empty())?;
    counted.ready.database_work.get(load.request?).copied().flatten()
}

fn conformance(run: &Run, server: usize) -> Option<Checks> {
    let own = run.starts.iter().rev().filter(|start| start.server == server);
    let mut checks = own.map(|start| start.ready.conformance);
    let (passed, made) = checks.find(|(_, made)| *made > 0)?;
    Some(Checks { passed, made })
}

fn notes(run: &Run, load: usize, server: usize) -> Vec<String> {
    let cpus = run.servers[server].cpus.as_ref().map(|(cpus, _)| *cpus);
    let beyond = cpus.and_then(|threads| suites::beyond_cores(run, threads));
    let mut notes: Vec<String> = Vec::new();
    notes.extend(beyond.map(beyond_cores));
    notes.extend(suites::side_effect(run, load, server).map(side_effect));
    notes.extend(notes_of(run, server));
    notes
}

/// A fact about a row. One list of facts serves every output. `--details` and the page show the
/// facts that have a name. The CSV shows the facts that have a field, and the table of servers
/// shows the facts that have a column.
pub struct Fact {
    /// The name in `--details` and on the page. Empty if another fact's text includes this one.
    pub name: &'static str,
    /// The name of the field in the CSV, with the unit. Empty if the CSV has no such field.
    pub field: &'static str,
    /// How the value is read from a row.
    pub value: Value,
    column: Option<fn(&LoadResults) -> Option<Column>>,
}

/// How the value of a fact is read from a row.
#[derive(Clone, Copy)]
pub enum Value {
    /// A figure.
    Figure(fn(&Row) -> Option<&Figure>),
    /// A figure. The CSV also has both ends of its interval.
    Interval(fn(&Row) -> Option<&Figure>),
    /// Words or a count. Empty if unknown.
    Words(fn(&Row) -> String),
}

/// All facts, in the order in which they are shown.
pub const FACTS: &[Fact] = &[
    words("version", |r| r.version.clone()),
    words("command", |r| r.command.clone()),
    words("requests/s", |r| full(r.requests_per_s.as_ref()))
        .column(|t| Some(t.column("req/s", requests).required())),
    field("requests_per_s", Value::Interval(|r| r.requests_per_s.as_ref())),
    field("generator_limited", Value::Words(|r| r.generator_limited.to_string())),
    words("requests/s vs reference", |r| against(r, Measure::Rate))
        .column(|t| Some(t.against(Measure::Rate))),
    figure_of("of ceiling", "of_ceiling_percent", |r| r.of_ceiling.as_ref()),
    words("CPU time per request", |r| of_micros(r.cpu_us.as_ref()))
        .column(|t| Some(t.column("CPU/req", cost))),
    field("cpu_us", Value::Interval(|r| r.cpu_us.as_ref())),
    words("CPU time vs reference", |r| against(r, Measure::Cost))
        .column(|t| Some(t.against(Measure::Cost))),
    words("CPU time of the database per request", |r| of_micros(r.database_us.as_ref()))
        .column(|t| t.any(|r| r.database_us.is_some(), |t| t.column("DB/req", database))),
    field("database_us", Value::Interval(|r| r.database_us.as_ref())),
    words("CPU time of the database vs reference", |r| against(r, Measure::Database)).column(|t| {
        t.any(|r| r.database_us.is_some(), |t| t.against(Measure::Database).drop_order(1))
    }),
    words("CPU time of server and database per request", |r| of_micros(r.total_us.as_ref()))
        .column(|t| t.any(|r| r.database_us.is_some(), |t| t.column("both", total).drop_order(2))),
    field("total_us", Value::Interval(|r| r.total_us.as_ref())),
    figure_of("statements per request", "statements", |r| r.statements.as_ref()).column(|t| {
        let cell = |r: &Row| text_cell(r.statements.as_ref());
        t.any(|r| r.statements.is_some(), |t| t.column("stmt/req", cell).wide())
    }),
    figure_of("round trips to the database per request", "round_trips", |r| r.round_trips.as_ref())
        .column(|t| {
            let cell = |r: &Row| text_cell(r.round_trips.as_ref());
            t.any(|r| r.round_trips.is_some(), |t| t.column("trips/req", cell).wide())
        }),
    words("CPU time of both vs reference", |r| against(r, Measure::Total)),
    words("instructions per request", instructions),
    field("instructions_user", Value::Figure(|r| r.instructions_user.as_ref())),
    field("instructions_kernel", Value::Figure(|r| r.instructions_kernel.as_ref())),
    figure_of("context switches per request", "switches", |r| r.switches.as_ref()),
    words("CPU time in slices ÷ when left running", |r| full(r.in_slices.as_ref())),
    words("CPU time in laps ÷ alone after warm-up", |r| full(r.of_alone.as_ref())),
    words("latency under the load", |r| r.service.in_words()),
    field("mean_ms", Value::Figure(|r| r.service.mean.as_ref())),
    field("stdev_ms", Value::Figure(|r| r.service.stdev.as_ref())),
    field("p50_ms", Value::Figure(|r| r.service.p50.as_ref()))
        .column(|t| Some(t.percentile("p50", |l| l.p50.as_ref()).drop_order(5))),
    field("p90_ms", Value::Figure(|r| r.service.p90.as_ref())),
    field("p99_ms", Value::Figure(|r| r.service.p99.as_ref()))
        .column(|t| t.has_p99().then(|| t.percentile("p99", |l| l.p99.as_ref()).drop_order(4))),
    field("p999_ms", Value::Figure(|r| r.service.p999.as_ref())),
    field("max_ms", Value::Figure(|r| r.service.max.as_ref())),
    words("latency at the common rate", |r| {
        r.response.as_ref().map_or_else(String::new, Latency::in_words)
    }),
    field("rate", Value::Words(|r| text(r.response.as_ref().and_then(|at| at.rate)))),
    field("rate_reached", Value::Words(|r| text(r.open_loop.as_ref().map(|o| o.reached_per_s)))),
    field("rate_p50_ms", Value::Figure(|r| r.at_rate()?.p50.as_ref())),
    field("rate_p99_ms", Value::Figure(|r| r.at_rate()?.p99.as_ref())),
    words("TLS", |r| r.tls.clone()),
    words("memory (RSS, PSS)", |r| {
        joined([full(r.rss_mb.as_ref()), full(r.pss_mb.as_ref())], ", ")
    }),
    field("rss_mb", Value::Figure(|r| r.rss_mb.as_ref()))
        .column(|t| Some(t.column("memory", |r| text_cell(r.rss_mb.as_ref())).drop_order(3))),
    field("pss_mb", Value::Figure(|r| r.pss_mb.as_ref())),
    figure_of("CPU use", "cpu_percent", |r| r.cpu_percent.as_ref()),
    words("errors", errors_in_words),
    field("errors", Value::Words(|r| r.errors.to_string())).column(|t| {
        let any = t.rows.iter().any(|row| row.errors > 0);
        any.then(|| t.column("errors", errors))
    }),
    words("conformance checks passed", |r| text(r.conformance)).column(|t| {
        let any = t.rows.iter().any(Row::fails_checks);
        any.then(|| t.column("checks", |r| Cell::from(text(r.conformance))).wide())
    }),
    figure_of("time to first response", "ready_ms", |r| r.ready_ms.as_ref()),
    words("warm-up", |r| joined([r.warmup.clone(), full(r.steady_ms.as_ref())], ", ")),
    field("steady_ms", Value::Figure(|r| r.steady_ms.as_ref())),
    words("responses by generator", |r| {
        joined(r.responses_by_generator.iter().map(|sum| count(*sum)), " + ")
    }),
    words("laps that count", |r| format!("{} of {}", r.laps.0, r.laps.1)),
    field("laps", Value::Words(|r| r.laps.0.to_string())),
    field("laps_excluded", Value::Words(|r| (r.laps.1 - r.laps.0).to_string())),
    words("note", |r| r.notes.join(" · ")),
];

const fn words(name: &'static str, of: fn(&Row) -> String) -> Fact {
    Fact { name, field: "", value: Value::Words(of), column: None }
}

const fn field(field: &'static str, value: Value) -> Fact {
    Fact { name: "", field, value, column: None }
}

const fn figure_of(
    name: &'static str,
    field: &'static str,
    of: fn(&Row) -> Option<&Figure>,
) -> Fact {
    Fact { name, field, value: Value::Figure(of), column: None }
}

impl Fact {
    /// Adds a column to a fact. `column` returns `None` if the table does not need the column.
    const fn column(self, column: fn(&LoadResults) -> Option<Column>) -> Self {
        Self { column: Some(column), ..self }
    }

    fn in_words(&self, row: &Row) -> String {
        match self.value {
            Value::Figure(of) | Value::Interval(of) => full(of(row)),
            Value::Words(of) => of(row),
        }
    }
}

fn full(figure: Option<&Figure>) -> String {
    figure.map_or_else(String::new, Figure::full)
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Joins the parts that are not empty.
fn joined(parts: impl IntoIterator<Item = String>, by: &str) -> String {
    let known: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    known.join(by)
}

/// Formats microseconds with their interval: `17.3 µs ± 1.1%`.
pub(super) fn in_micros(figure: &Figure) -> String {
    format!("{} µs {}", figure.text, figure.spread).trim_end().to_owned()
}

fn of_micros(figure: Option<&Figure>) -> String {
    figure.map_or_else(String::new, in_micros)
}

fn against(row: &Row, measure: Measure) -> String {
    let Some(against) = &row.against else { return String::new() };
    if matches!(measure, Measure::Database | Measure::Total) && row.database_us.is_none() {
        return String::new();
    }
    let found = &against.measures[measure];
    match &found.ratio {
        Some(ratio) => format!("{}: {}", ratio.full(), found.words),
        None => found.words.clone(),
    }
}

fn errors_in_words(row: &Row) -> String {
    let of_kind =
        |e: &ErrorCount| format!("{} × {} ({})", count(e.count), name(&e.kind), name(&e.phase));
    match row.errors {
        0 => "none".to_owned(),
        _ => joined(row.errors_by_kind.iter().map(of_kind), ", "),
    }
}

/// Returns instructions per request in user mode and in the kernel, or why they are unknown.
fn instructions(row: &Row) -> String {
    let text = |figure: &Option<Figure>, mode: &str| {
        figure.as_ref().map_or_else(String::new, |figure| format!("{} {mode}", figure.full()))
    };
    match (&row.instructions_user, row.uncounted.is_empty()) {
        (Some(_), _) => {
            let each = [(&row.instructions_user, "user"), (&row.instructions_kernel, "kernel")];
            joined(each.map(|(figure, mode)| text(figure, mode)), ", ")
        }
        (None, true) => String::new(),
        (None, false) => format!("unavailable: {}", row.uncounted),
    }
}

impl Row {
    /// Returns the names and values of all known facts, for `--details` and the page.
    pub fn details(&self) -> Vec<(&'static str, String)> {
        let named = FACTS.iter().filter(|fact| !fact.name.is_empty());
        let facts = named.map(|fact| (fact.name, fact.in_words(self)));
        facts.filter(|(_, value)| !value.is_empty()).collect()
    }
}

impl LoadResults {
    /// Returns the table of servers: levels, and ratios to the reference with their intervals. A
    /// terminal shows levels without intervals. [`Row::details`] has the other facts.
    pub fn table(&self) -> Table {
        let mut columns = vec![
            Column::right("", self.ranks()).required(),
            Column::name("server", self.rows.iter().map(|row| &row.name)).required(),
        ];
        columns.extend(FACTS.iter().filter_map(|fact| fact.column?(self)));
        Table::new(columns).with_tones(self.rows.iter().map(tone).collect())
    }

    /// Returns a column if any row has its figure.
    fn any(&self, has: fn(&Row) -> bool, column: impl FnOnce(&Self) -> Column) -> Option<Column> {
        self.rows.iter().any(has).then(|| column(self))
    }

    fn column(&self, heading: &str, of: fn(&Row) -> Cell) -> Column {
        Column::right(heading, self.rows.iter().map(of))
    }

    fn percentile(&self, name: &str, of: fn(&Latency) -> Option<&Figure>) -> Column {
        let cells = self.rows.iter().map(|row| text_cell(self.latency_of(row).and_then(of)));
        Column::right(&format!("{name}{}", self.mark()), cells)
    }

    /// Returns the column of ratios to the reference in one measure. A narrow terminal leaves out
    /// the ratio that does not determine the order.
    fn against(&self, measure: Measure) -> Column {
        let decides = match measure {
            Measure::Rate => !self.is_ordered_by_cost(),
            _ => measure == Measure::Cost && self.is_ordered_by_cost(),
        };
        let ratio = |row: &Row| row.against.as_ref()?.measures[measure].ratio.clone();
        let any = self.rows.iter().any(|row| ratio(row).is_some());
        let cells = self.rows.iter().map(|row| match Some(&row.name) == self.reference.as_ref() {
            true if any && decides => Cell::from("reference").sorted_by(1.0),
            _ => cell(ratio(row).as_ref()),
        });
        let heading = match (measure, decides) {
            (Measure::Rate, true) => "vs reference",
            (Measure::Rate, false) => "req/s vs ref.",
            (Measure::Database, _) => "DB vs ref.",
            (_, true) => "CPU vs reference",
            (_, false) => "CPU vs ref.",
        };
        let column = Column::right(heading, cells.collect::<Vec<_>>());
        if decides { column } else { column.drop_order(2) }
    }

    /// Whether CPU time per request decides at least part of the order of the servers. The load
    /// then has a rate, or the generator limits a server.
    fn is_ordered_by_cost(&self) -> bool {
        let is_own = |row: &&Row| row.role != Role::Ceiling;
        self.rate.is_some() || self.rows.iter().filter(is_own).any(|row| row.generator_limited)
    }

    /// Returns the latency whose percentiles a row shows. With a common rate, this is the response
    /// time at that rate, or `None` if the server did not reach the rate. Otherwise, this is the
    /// latency under the load.
    pub(crate) fn latency_of<'a>(&self, row: &'a Row) -> Option<&'a Latency> {
        if self.common_rate().is_some() { row.at_rate() } else { Some(&row.service) }
    }

    /// Returns the common rate. `None` if no server has a percentile at this rate.
    pub(super) fn common_rate(&self) -> Option<f64> {
        let is_known = |latency: &&Latency| latency.p50.is_some();
        self.rows.iter().filter_map(Row::at_rate).find(is_known)?.rate
    }

    /// Whether the p99 of any server other than the ceiling is known.
    fn has_p99(&self) -> bool {
        let mut own = self.rows.iter().filter(|row| row.role != Role::Ceiling);
        own.any(|row| self.latency_of(row).is_some_and(|latency| latency.p99.is_some()))
    }

    /// States what the percentiles of the table are. `None` if the table has no percentiles.
    pub(crate) fn latency_mark(&self) -> Option<String> {
        let has_any = |row: &Row| self.latency_of(row).is_some_and(|l| l.p50.is_some());
        if !self.rows.iter().any(has_any) {
            return None;
        }
        Some(match self.common_rate().or(self.rate) {
            Some(rate) => format!(
                "* open loop at {} req/s, latency from when each request was due",
                number::rate(rate)
            ),
            None => "* closed loop, at saturation".to_owned(),
        })
    }

    /// Returns the mark of columns with percentiles, which [`Self::notes`] explains.
    fn mark(&self) -> &'static str {
        if self.latency_mark().is_some() { "*" } else { "" }
    }

    /// Returns the footnotes to the columns of the table.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.latency_mark().into_iter().collect();
        let lacks_p99 =
            |row: &Row| self.latency_of(row).is_some_and(|l| l.p50.is_some() && l.p99.is_none());
        if self.rows.iter().any(lacks_p99) {
            let what = match self.has_p99() {
                true => "left out (–) where it is",
                false => "not shown, because it is",
            };
            notes.push(format!("p99 is {what} known only roughly: a longer --duration helps"));
        }
        notes.extend(self.is_the_machines());
        notes
    }

    /// Returns the note that the p99 of some servers cannot be told from the ceiling's p99. A
    /// percentile that is shown is known within a factor of two.
    fn is_the_machines(&self) -> Option<String> {
        let p99 = |row: &Row| Some(self.latency_of(row)?.p99.as_ref()?.value);
        let (ceiling, own): (Vec<&Row>, Vec<&Row>) =
            self.rows.iter().partition(|row| row.role == Role::Ceiling);
        let host = ceiling.into_iter().find_map(p99)?;
        let is_alike = |row: &&Row| p99(row).is_some_and(|own| own < 2.0 * host);
        let alike: Vec<&str> =
            own.into_iter().filter(is_alike).map(|row| row.name.as_str()).collect();
        (!alike.is_empty()).then(|| {
            format!(
                "the p99 of {} cannot be told apart from the ceiling's p99: possibly the machine \
                 causes it",
                alike.join(", ")
            )
        })
    }

    /// Returns the failures, with one row per server, kind and phase.
    pub fn error_table(&self) -> Table {
        let all = || self.rows.iter().flat_map(|r| r.errors_by_kind.iter().map(move |e| (r, e)));
        Table::new(vec![
            Column::name("server", all().map(|(r, _)| &r.name)),
            Column::left("kind", all().map(|(_, e)| name(&e.kind))),
            Column::left("phase", all().map(|(_, e)| name(&e.phase))),
            Column::right("count", all().map(|(_, e)| Cell::from(count(e.count)))),
        ])
    }

    /// Returns the figures of each request, with one row per server and request.
    pub fn request_table(&self) -> Table {
        let cells = |of: fn(&RequestRow) -> Cell| self.by_request.iter().map(of);
        let number = |of: fn(&RequestRow) -> u64| {
            self.by_request.iter().map(move |r| Cell::from(count(of(r))).sorted_by(of(r) as f64))
        };
        let has_errors = self.by_request.iter().any(|r| r.errors > 0);
        let mark = self.mark();
        let mut columns = vec![
            Column::name("server", self.servers_of_requests()),
            Column::prose("request", cells(|r| Cell::from(&r.request))),
            Column::right("requests", number(|r| r.requests)),
            Column::right("share", cells(|r| text_cell(r.share_percent.as_ref()))).drop_order(1),
        ];
        if has_errors {
            columns.push(Column::right("errors", number(|r| r.errors)));
        }
        columns.extend([
            Column::right(&format!("p50{mark}"), cells(|r| text_cell(r.p50.as_ref()))).required(),
            Column::right(&format!("p99{mark}"), cells(|r| text_cell(r.p99.as_ref()))).required(),
        ]);
        Table::new(columns)
    }

    /// Returns the server of each request. A terminal shows each server only once.
    fn servers_of_requests(&self) -> Vec<Cell> {
        let is_again = |place: usize, server: &str| {
            place.checked_sub(1).is_some_and(|before| self.by_request[before].server == server)
        };
        let cell = |(place, r): (usize, &RequestRow)| match is_again(place, &r.server) {
            false => Cell::from(&r.server),
            true => Cell::from(&r.server).shortened_to(""),
        };
        self.by_request.iter().enumerate().map(cell).collect()
    }

    fn ranks(&self) -> Vec<Cell> {
        let rank = |(place, row): (usize, &Row)| {
            let text = row.rank.map_or_else(String::new, |rank| rank.to_string());
            Cell::from(text).sorted_by(place as f64)
        };
        self.rows.iter().enumerate().map(rank).collect()
    }
}

fn tone(row: &Row) -> Tone {
    match row.role {
        Role::Ceiling => Tone::Faint,
        _ if row.errors > 0 => Tone::Bad,
        _ if row.rank.is_some_and(|rank| rank.best == 1) => Tone::Good,
        _ => Tone::Plain,
    }
}

/// Returns requests/s with its interval. The table in the terminal leaves this interval out,
/// because verdicts rest on the intervals of the ratios.
fn requests(row: &Row) -> Cell {
    match &row.requests_per_s {
        Some(figure) => cell(Some(figure)).shortened_to(&figure.text),
        None if row.wrong_responses > 0 => "wrong responses".into(),
        None => "no valid laps".into(),
    }
}

fn cost(row: &Row) -> Cell {
    micros_cell(row.cpu_us.as_ref())
}

fn database(row: &Row) -> Cell {
    micros_cell(row.database_us.as_ref())
}

fn total(row: &Row) -> Cell {
    micros_cell(row.total_us.as_ref())
}

fn micros_cell(figure: Option<&Figure>) -> Cell {
    let Some(figure) = figure else { return text_cell(None) };
    let text = format!("{} µs", figure.text);
    Cell { text: text.clone(), ..cell(Some(figure)) }.shortened_to(text)
}

fn errors(row: &Row) -> Cell {
    Cell::from(count(row.errors)).sorted_by(row.errors as f64)
}

impl LoadResults {
    /// Returns the published figures for the servers of this table, by source.
    pub fn sources(&self) -> Vec<PublishedSource<'_>> {
        let mut sources: Vec<PublishedSource> = Vec::new();
        for row in &self.rows {
            for then in &row.published {
                let key =
                    |p: &PublishedView| (p.source.clone(), p.machine.clone(), p.command.clone());
                match sources.iter_mut().find(|source| key(source.any) == key(then)) {
                    Some(source) => source.rows.push((&row.name, then)),
                    None => {
                        sources.push(PublishedSource { any: then, rows: vec![(&row.name, then)] })
                    }
                }
            }
        }
        sources
    }
}
