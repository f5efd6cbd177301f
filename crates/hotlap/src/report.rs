//! Records in, a finished report out: every figure rounded, every verdict taken, every sentence
//! written, before any renderer runs.
//!
//! The renderers below lay out what is here and compute nothing. The JSON form of [`Report`] is
//! published (`schemas/report.schema.json`): what a page draws is all in it.

pub mod bench;
mod bias;
pub mod comparison;
pub mod course;
pub mod csv;
pub mod date;
pub mod figure;
pub mod html;
pub mod json;
pub mod junit;
mod laps;
pub mod latency;
mod layers;
pub mod layout;
pub mod markdown;
mod plot;
mod plots;
mod published;
mod scaling;
pub mod sentence;
pub mod standing;
pub mod stress;
mod summary;
pub mod terminal;
mod warning;

use serde::Serialize;

use crate::record;

pub use crate::record::{Absent, Role};
pub use laps::{Lap, Start, Warmup};
pub use standing::Measure;

/// The verdict that a server's requests/s are less than the reference's.
pub const SLOWER: &str = "slower";

/// The verdict that a server's CPU time a request is more than the reference's.
pub const COSTS_MORE: &str = "costs more";

/// The verdict that a server's service time is more than the reference's.
pub const LONGER: &str = "longer";

/// The verdict that a server's memory is more than the reference's.
pub const MORE: &str = "more";

/// In place of a verdict on requests/s, where both servers serve the rate that the load offers.
pub const KEEP_UP: &str = "both serve the rate that is offered";

/// What a verdict begins with where the data do not permit one; the reason follows.
pub const INCONCLUSIVE: &str = "inconclusive";

/// Whether a verdict, in words, is that a server is worse than the other.
#[must_use]
pub fn is_worse(verdict: &str) -> bool {
    [SLOWER, COSTS_MORE, LONGER, MORE].contains(&verdict)
}

/// How a report can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Every figure and every lap.
    Json,
    /// The table and the sentences.
    Markdown,
    /// One line a server.
    Csv,
    /// One page.
    Html,
    /// Tests that passed and failed.
    Junit,
    /// What github-action-benchmark reads.
    Github,
    /// What Bencher reads.
    Bencher,
}

/// Everything that is said of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of the form of this document: 1.
    pub schema: u32,
    /// Which run.
    pub run: Heading,
    /// The machine.
    pub host: Host,
    /// The sentences that the run ends in; the verdict first.
    pub sentences: Vec<String>,
    /// What separates the reference from itself.
    pub noise: Option<Noise>,
    /// What speaks against the figures, and what to do about it.
    pub warnings: Vec<String>,
    /// One table a load.
    pub tables: Vec<Table>,
    /// Servers that failed, and why.
    pub failed: Vec<Failed>,
    /// Each step of a suite about layers; empty for other questions.
    pub layers: Vec<Step>,
    /// How each server scales; empty where neither threads nor loads form a scale.
    pub scaling: Vec<Scaling>,
    /// Whom the suite's sources published, and who takes no part, with the reason.
    pub absent: Vec<Absent>,
    /// What became of servers when others misbehaved; `null` where nobody did.
    pub stress: Option<stress::Stress>,
    /// Every fresh start with its warm-up curves.
    pub starts: Vec<Start>,
    /// Every lap, in the order in which they were run.
    pub laps: Vec<Lap>,
    /// Rules of `--fail-if` that servers break.
    #[serde(skip)]
    pub broken: Vec<Broken>,
}

/// A rule of `--fail-if` that a server breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// What tables call the server.
    pub server: String,
    /// Under which load, as an index.
    pub load: usize,
    /// It said in a sentence.
    pub sentence: String,
}

/// Which run it is.
#[derive(Debug, Clone, Serialize)]
pub struct Heading {
    /// Its number in the store, if it is stored.
    pub number: Option<u64>,
    /// `hello`, or `GET /path`.
    pub contract: String,
    /// The one line over the table, in parts: contract, load, cores, schedule.
    pub title: Vec<String>,
    /// When it began: `2026-11-21T20:15:00Z`.
    pub began: String,
    /// How long it took, in seconds.
    /// `None` while it is under way, and where hotlap was killed.
    pub took_s: Option<f64>,
    /// How it ended.
    pub state: record::State,
    /// What the state means for the reader; empty when it finished.
    pub state_note: String,
    /// The command that repeats it.
    pub command: String,
    /// The version of hotlap.
    pub hotlap: String,
    /// The baseline that it was kept as, if it was.
    pub baseline: Option<String>,
    /// The suite, if it was one.
    pub suite: Option<String>,
    /// What the suite says of itself.
    pub about: String,
    /// What was asked.
    pub question: record::Question,
    /// The question, in words.
    #[serde(skip)]
    pub asked: &'static str,
    /// The seed of the order.
    pub seed: u64,
    /// The loads, as planned.
    pub loads: Vec<record::Load>,
    /// The same in words, with their requests.
    #[serde(skip)]
    pub loads_in_words: Vec<String>,
    /// The schedule, as planned.
    pub schedule: record::Schedule,
}

/// The machine, and one line that says it.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    /// `8 × AMD EPYC, 24 GB, Debian GNU/Linux 12, Linux 6.18`.
    pub line: String,
    /// All that is known.
    #[serde(flatten)]
    pub facts: record::Host,
}

/// A figure: what to draw, and what to write.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The value, rounded.
    pub value: f64,
    /// Lower end of its interval; `null` where there is none.
    pub low: Option<f64>,
    /// Upper end of its interval; `null` where there is none.
    pub high: Option<f64>,
    /// The value as it is written: `57,900`, `0.9 ms`.
    pub text: String,
    /// The interval as it is written: `± 2.1%`; empty where there is none.
    pub spread: String,
    /// The true value may be larger; the text begins with `≥`.
    pub is_lower_bound: bool,
}

/// Today's noise: the reference against itself.
#[derive(Debug, Clone, Serialize)]
pub struct Noise {
    /// Which server was run twice.
    pub server: String,
    /// The control's requests/s over the reference's.
    pub requests_per_s: Option<Figure>,
    /// The control's CPU time per request over the reference's.
    pub cost: Option<Figure>,
    /// The least difference that is told from noise, as a share, in requests/s.
    pub requests_per_s_band: Option<f64>,
    /// The least difference that is told from noise, as a share, in cost.
    pub cost_band: Option<f64>,
    /// The requests/s that cannot be told from the reference's: its own, less and more the band.
    pub requests_per_s_around: Option<(f64, f64)>,
    /// The CPU time per request, in microseconds, that cannot be told from the reference's.
    pub cost_around: Option<(f64, f64)>,
    /// It said in one sentence.
    pub sentence: String,
}

/// One load's standings.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// Which load, as an index.
    pub load: usize,
    /// What the load is, in words; empty where it is the only one.
    pub title: String,
    /// ` under POST /bla`, for a sentence about one of several loads; empty for the only one.
    #[serde(skip)]
    pub under: String,
    /// The rate that the load offers, in requests/s; `None` in a closed loop.
    pub rate: Option<f64>,
    /// Whether any server has a lap that counts.
    #[serde(skip)]
    pub is_measured: bool,
    /// Name of the reference.
    pub reference: Option<String>,
    /// What separates the reference from itself under this load.
    pub noise: Option<Noise>,
    /// By rank; then those without one; the ceiling last.
    pub rows: Vec<Row>,
    /// What this table says, in sentences.
    pub sentences: Vec<String>,
}

/// One server under one load.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// 1 + the number of servers that are better; `None` for the ceiling and where no verdict is
    /// possible (fewer than three restarts, an unknown noise floor).
    pub rank: Option<u32>,
    /// What tables call it.
    pub name: String,
    /// Why it takes part.
    pub role: record::Role,
    /// How it was started.
    pub command: String,
    /// The version receipt.
    pub version: String,
    /// Laps that count, and laps in all.
    pub laps: (u32, u32),
    /// The generator was the limit: requests/s is a lower bound (`≥`).
    pub is_bound: bool,
    /// Right answers per second.
    pub requests_per_s: Option<Figure>,
    /// The ceiling's CPU time per request, as per cent of this server's.
    pub of_ceiling: Option<Figure>,
    /// CPU time of the whole process tree, in microseconds a request.
    pub cpu_us: Option<Figure>,
    /// CPU time per request in the window of a slice over that when it is left running, by probes.
    pub in_slices: Option<Figure>,
    /// CPU time per request in its laps over that at the end of its warm-ups, when it ran alone.
    pub of_alone: Option<Figure>,
    /// Instructions a request in user mode.
    pub instructions_user: Option<Figure>,
    /// Instructions a request in the kernel; `None` where it does not permit counting.
    pub instructions_kernel: Option<Figure>,
    /// Context switches a request.
    pub switches: Option<Figure>,
    /// Against the reference.
    pub against: Option<Against>,
    /// Which laps do not count, by which validity checks, and what to do; empty where all count.
    #[serde(skip)]
    pub refused: String,
    /// Wrong responses in all laps. A server with any is neither compared nor ranked.
    pub wrong_responses: u64,
    /// In a closed loop: at saturation, from sending. Under a load that offers a rate (`rate`):
    /// from the moment each request was due.
    pub service: Latency,
    /// In laps at a common rate that follow those of a closed loop: from the moment each request
    /// was due.
    pub response: Option<Latency>,
    /// Most resident memory of the tree, in MB.
    pub rss_mb: Option<Figure>,
    /// Most proportional memory of the tree, in MB.
    pub pss_mb: Option<Figure>,
    /// CPU use, in per cent of one core.
    pub cpu_percent: Option<Figure>,
    /// Failures in all laps.
    pub errors: u64,
    /// Failures by kind and phase, most first.
    pub errors_by_kind: Vec<ErrorCount>,
    /// Time to the first right answer, in milliseconds: the median start.
    pub ready_ms: Option<Figure>,
    /// Time to steady, in milliseconds: the median start.
    pub steady_ms: Option<Figure>,
    /// How it warmed up, in words.
    pub warmup: String,
    /// Reported checks that it passes: `11/14`; empty where none were made.
    pub conformance: String,
    /// What else should be told.
    pub notes: Vec<String>,
    /// What was published for it elsewhere, beside what was measured here.
    pub published: Vec<Published>,
}

/// A server against the reference.
#[derive(Debug, Clone, Serialize)]
pub struct Against {
    /// Name of the reference.
    pub reference: String,
    /// Requests/s over the reference's.
    pub requests_per_s: Option<Figure>,
    /// `faster`, `slower`, `no difference that could be measured`, or `inconclusive: ` and why.
    pub requests_per_s_verdict: String,
    /// CPU time a request over the reference's.
    pub cost: Option<Figure>,
    /// `costs less`, `costs more`, `no difference that could be measured`, or `inconclusive: ` and
    /// why.
    pub cost_verdict: String,
    /// The median service time over the reference's.
    pub p50: Option<Figure>,
    /// `shorter`, `longer`, `no difference that could be measured`, or `inconclusive: ` and why.
    pub p50_verdict: String,
    /// The 99th percentile of service time over the reference's; `None` where a lap has too few
    /// answers to know it.
    pub p99: Option<Figure>,
    /// `shorter`, `longer`, `no difference that could be measured`, or `inconclusive: ` and why.
    pub p99_verdict: String,
    /// Resident memory over the reference's.
    pub memory: Option<Figure>,
    /// `less`, `more`, `no difference that could be measured`, or `inconclusive: ` and why.
    pub memory_verdict: String,
}

/// Latencies of one server under one load.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Latency {
    /// Requests that were answered right.
    pub count: u64,
    /// Requests that were not: in flight or waiting when a window closed, or failed. They count in
    /// percentiles and the maximum at the age at which they were last seen.
    pub unanswered: u64,
    /// The rate at which requests were due; `None` at saturation.
    pub rate: Option<f64>,
    /// Mean of those that were answered, in milliseconds.
    pub mean: Option<Figure>,
    /// Standard deviation of those that were answered, in milliseconds.
    pub stdev: Option<Figure>,
    /// Half are shorter, in milliseconds.
    pub p50: Option<Figure>,
    /// 90 % are shorter, in milliseconds.
    pub p90: Option<Figure>,
    /// 99 % are shorter, in milliseconds; `None` where there are too few samples to know it.
    pub p99: Option<Figure>,
    /// 99.9 % are shorter, in milliseconds; `None` where there are too few samples to know it.
    pub p999: Option<Figure>,
    /// The longest, in milliseconds.
    pub max: Option<Figure>,
    /// Points of the percentile curve: the share, and the milliseconds that it does not exceed.
    /// They end where the samples no longer tell.
    pub points: Vec<(f64, f64)>,
}

/// Failures of one kind in one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorCount {
    /// `timeout`, `reset`, …
    pub kind: String,
    /// `connect`, `send`, `first-byte`, `body`, `idle`.
    pub phase: String,
    /// How often.
    pub count: u64,
}

/// What somebody published, beside what was measured here.
#[derive(Debug, Clone, Serialize)]
pub struct Published {
    /// What it was called there.
    pub called: String,
    /// Requests per second, then.
    pub requests_per_s: Figure,
    /// Average, standard deviation and longest latency, then, in milliseconds.
    pub latency_ms: Option<[f64; 3]>,
    /// Memory, then, in MB.
    pub memory_mb: Option<f64>,
    /// CPU use, then, in per cent of one core.
    pub cpu_percent: Option<f64>,
    /// The year.
    pub year: u32,
    /// Where.
    pub source: String,
    /// On which machine.
    pub machine: String,
    /// How it was measured.
    pub command: String,
    /// The server that it is set against; empty where there is none.
    pub than: String,
    /// Relative to that server, then.
    pub ratio_then: Option<Figure>,
    /// Relative to that server, here.
    pub ratio_here: Option<Figure>,
    /// `2016: 2.30× of puma · here: 4.10× [4.00, 4.20]`.
    pub sentence: String,
    /// Why it cannot be trusted; empty when nothing speaks against it.
    pub doubt: String,
    /// What speaks against all that its source published; empty when nothing does.
    pub source_doubt: String,
    /// Socket errors under overload, then: connect, read, write, timeout.
    pub socket_errors: Option<[u64; 4]>,
}

/// A server that failed.
#[derive(Debug, Clone, Serialize)]
pub struct Failed {
    /// What tables call it.
    pub name: String,
    /// In which phase.
    pub phase: String,
    /// How it was started.
    pub command: String,
    /// What happened.
    pub cause: String,
    /// The last lines that it printed.
    pub log_tail: Vec<String>,
    /// What to do about it.
    pub remedy: String,
    /// What was published for it elsewhere.
    pub published: Vec<Published>,
}

/// One step of a suite about layers: a server and the one that it stands on.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// Which load, as an index.
    pub load: usize,
    /// The lower step.
    pub from: String,
    /// The upper step.
    pub to: String,
    /// Both as a table calls them, the upper one first: variants of one server without its name.
    #[serde(skip)]
    pub short: (String, String),
    /// What the step costs, in microseconds of CPU a request.
    pub cpu_us: Option<Figure>,
    /// What the step costs, in microseconds of wall time a request (1/rate).
    pub wall_us: Option<Figure>,
    /// The upper step's requests/s over the lower's.
    pub requests_per_s: Option<Figure>,
    /// The upper step's CPU time a request over the lower's.
    pub cost: Option<Figure>,
    /// What is wrong with the upper step's side effect; empty where nothing is.
    pub side_effect: String,
    /// What the CPU time is to be taken for, in a word or two; empty where it is to be believed.
    #[serde(skip)]
    pub caution: &'static str,
    /// It said in one sentence.
    pub sentence: String,
}

/// How one server scales.
#[derive(Debug, Clone, Serialize)]
pub struct Scaling {
    /// Name of the server.
    pub server: String,
    /// What differs between the loads: `connections`.
    pub parameter: String,
    /// The values, the least first.
    pub points: Vec<ScalePoint>,
    /// It said in one sentence.
    pub sentence: String,
}

/// One server under one of the loads that it scales over.
#[derive(Debug, Clone, Serialize)]
pub struct ScalePoint {
    /// Which load, as an index.
    pub load: usize,
    /// How many of what differs.
    pub at: u64,
    /// Right answers per second.
    pub requests_per_s: Option<Figure>,
    /// What it would be if it grew in proportion from the least value.
    pub ideal: Option<f64>,
    /// How much of the proportion the step from the value before it gives: 1 is all.
    pub efficiency: Option<f64>,
    /// What is to be told of it: where the machine ends; else empty.
    pub note: String,
}

impl Against {
    /// What one measure says: the ratio, if it is known, and the verdict in words.
    #[must_use]
    pub fn of(&self, measure: Measure) -> (Option<&Figure>, &str) {
        let (ratio, verdict) = match measure {
            Measure::Rate => (&self.requests_per_s, &self.requests_per_s_verdict),
            Measure::Cost => (&self.cost, &self.cost_verdict),
            Measure::P50 => (&self.p50, &self.p50_verdict),
            Measure::P99 => (&self.p99, &self.p99_verdict),
            Measure::Memory => (&self.memory, &self.memory_verdict),
        };
        (ratio.as_ref(), verdict)
    }
}

impl Report {
    /// The report in one of its forms.
    #[must_use]
    pub fn render(&self, form: Form) -> String {
        match form {
            Form::Json => json::render(self),
            Form::Markdown => markdown::render(self),
            Form::Csv => csv::render(self),
            Form::Html => html::render(self),
            Form::Junit => junit::render(self),
            Form::Github => bench::github(self),
            Form::Bencher => bench::bencher(self),
        }
    }
}
