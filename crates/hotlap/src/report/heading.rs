//! Describes a run, its loads and its machine in words.

use std::collections::BTreeSet;

use hotlap_load::plan::{Protocol, Reuse, Shape};
use serde::Serialize;

use crate::model;
use crate::model::{Load, Question, Run, RunSchedule, RunState};
use crate::text::number;
use crate::text::number::{plural, rounded};

/// What was run, when, and how it ended.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Heading {
    /// The number of the run in the store. `null` if the run is not stored.
    pub number: Option<u64>,
    /// The requests: the name of a contract such as `hello`, or `GET /path`.
    pub contract: String,
    /// The line above the table, in parts, such as contract, load, cores and schedule.
    pub title: Vec<String>,
    /// The time at which the run began: `2026-11-21T20:15:00Z`.
    pub began: String,
    /// The time that the run took, in seconds. `null` while the run is under way, or if hotlap was
    /// killed.
    pub took_s: Option<f64>,
    /// The state of the run: finished, under way, or ended early.
    pub state: RunState,
    /// What the state means for the reader. Empty if the run finished.
    pub state_note: String,
    /// The command that repeats the run.
    pub command: String,
    /// The version of hotlap.
    pub hotlap: String,
    /// The name of the baseline that the run was saved as. `null` if it is not a baseline.
    pub baseline: Option<String>,
    /// The name of the suite. `null` if the run did not use a suite.
    pub suite: Option<String>,
    /// The suite's description. Empty without a suite.
    pub about: String,
    /// The question that the run answers.
    pub question: Question,
    /// The question, in words.
    #[serde(skip)]
    pub question_words: &'static str,
    /// The seed of random choices, such as the order of the servers.
    pub seed: u64,
    /// The loads of the run.
    pub loads: Vec<model::Load>,
    /// The loads in words, each with its requests.
    #[serde(skip)]
    pub loads_in_words: Vec<String>,
    /// The planned restarts, rounds and slices, and the cores.
    pub schedule: model::RunSchedule,
    /// The database that hotlap started for the servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<model::DatabaseFacts>,
}

/// The machine that ran the servers, and one line that describes the machines of the run.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostView {
    /// The description: `8 × AMD EPYC, 24 GB, Debian GNU/Linux 12, Linux 6.18`.
    pub line: String,
    /// All known facts about the machine.
    #[serde(flatten)]
    pub facts: model::Host,
}

impl Heading {
    pub(super) fn of(run: &Run) -> Self {
        Self {
            number: run.number,
            contract: run.contract.clone(),
            title: title(run),
            began: number::utc(run.began_ms),
            took_s: (run.took_ms > 0).then(|| rounded(run.took_ms as f64 / 1e3)),
            state: run.state,
            state_note: state_note(run),
            command: shell_words::join(&run.command),
            hotlap: run.hotlap.clone(),
            baseline: run.baseline.clone(),
            suite: run.suite.clone(),
            about: run.about.clone(),
            question: run.question,
            question_words: question_words(run.question),
            seed: run.seed,
            loads: run.loads.clone(),
            loads_in_words: run.loads.iter().map(request_and_load).collect(),
            schedule: run.schedule.clone(),
            database: run.database.clone(),
        }
    }
}

impl HostView {
    pub(super) fn of(host: &model::Host) -> Self {
        let mut line = in_words(&host.machine);
        if let Some(controller) = &host.controller
            && host.generators.is_empty()
        {
            line += &format!("; load from {}", in_words(&controller.machine));
        }
        if let [first, ..] = &host.generators[..] {
            let count = plural(host.generators.len(), "generator");
            let are_alike =
                |own: &model::GeneratorMachine| in_words(&own.machine) == in_words(&first.machine);
            let more = if host.generators.iter().all(are_alike) { "" } else { " and others" };
            line += &format!("; load from {count}: {}{more}", in_words(&first.machine));
        }
        Self { line, facts: host.clone() }
    }
}

/// Describes a machine in a few words.
fn in_words(host: &model::Machine) -> String {
    let mut parts = Vec::new();
    if host.allowed > 0 {
        parts.push(format!("{} × {}", host.allowed, host.cpu).trim_end_matches(" × ").to_owned());
    }
    if host.memory_bytes > 0 {
        parts.push(format!("{:.0} GB", host.memory_bytes as f64 / 1e9));
    }
    parts.extend([&host.os, &host.kernel].into_iter().filter(|t| !t.is_empty()).cloned());
    parts.extend(host.virtualisation().map(str::to_owned));
    parts.join(", ")
}

fn question_words(question: Question) -> &'static str {
    match question {
        Question::Compare => "which is faster?",
        Question::Layers => "what does each step cost?",
        Question::Scale => "how does it scale?",
        Question::Capacity => "up to which rate does it meet the goals?",
        Question::Explain => "where does the difference in CPU time come from?",
        Question::Stress => "what happens when clients misbehave?",
    }
}

/// Returns what the state of a run means for the reader. Empty if the run finished.
pub(super) fn state_note(run: &Run) -> String {
    let laps = plural(run.laps.len() + run.explain.len(), "lap");
    match run.state {
        RunState::Finished => String::new(),
        _ if run.question == Question::Stress => {
            let tried = plural(run.stress.len(), "server");
            format!("This run is not complete. The results are from {tried}.")
        }
        RunState::UnderWay => format!(
            "This run has not ended: it is still running, or hotlap was killed. The figures \
             are from {laps} so far."
        ),
        RunState::Interrupted => {
            let next = match &run.suite {
                Some(suite) => {
                    format!(
                        " `hotlap run --suite {suite} --resume` continues the suite's last run."
                    )
                }
                None => String::new(),
            };
            format!("This run was interrupted. The figures are from {laps} until then.{next}")
        }
        RunState::Invalid => "No lap of this run passed the validity checks.".to_owned(),
        RunState::Failed => {
            format!("An error in hotlap ended this run. The figures are from {laps} until then.")
        }
    }
}

/// Returns the contract, the load, the cores and the schedule, in words.
fn title(run: &Run) -> Vec<String> {
    let mut parts = vec![run.contract.clone()];
    if let [load] = run.loads.as_slice() {
        parts.push(load_words(load));
    } else if run.loads.len() > 1 {
        parts.push(format!("{} loads", run.loads.len()));
    }
    let schedule = &run.schedule;
    if let (Some(server), Some(generator)) =
        (cores_in_words(&schedule.server_cpus), cores_in_words(&schedule.generator_cpus))
    {
        let other = if run.host.controller.is_some() { " of another host" } else { "" };
        parts.push(format!("server on {server}{other}, generator on {generator}"));
    }
    if let Some(database) = &run.database {
        let cores =
            cores_in_words(&database.cores).map_or_else(String::new, |c| format!(" on {c}"));
        parts.push(format!("{}{cores}", database.version));
    }
    if schedule.high_priority {
        parts.push("high priority".to_owned());
    }
    if !run.host.generators.is_empty() {
        parts.push(plural(run.host.generators.len(), "generator"));
    }
    let restarts = run.laps.iter().map(|l| l.restart + 1).max().unwrap_or(0);
    let rounds: BTreeSet<(u32, u32)> =
        run.laps.iter().filter(|l| run.is_main(l)).map(|l| (l.restart, l.round)).collect();
    let slices = slice_words(schedule).map(|words| format!("slices of {words}"));
    match &run.pool {
        _ if run.question == Question::Capacity => {
            let goals: Vec<String> = schedule.objectives.iter().map(ToString::to_string).collect();
            parts.push(format!("open loop, Poisson, {}", goals.join(" and ")));
            parts.push(plural(restarts as usize, "restart"));
        }
        _ if run.question == Question::Explain => {
            let last = run.explain.iter().map(|explains| explains.lap.restart + 1).max();
            parts.push(plural(last.unwrap_or(0) as usize, "restart"));
            parts.extend(slices);
        }
        Some(pool) => {
            let nodes = plural(pool.nodes.len(), "node");
            parts.push(format!("{nodes} with {}", plural(restarts as usize, "restart")));
            parts.extend(slices);
        }
        None if rounds.is_empty() => {}
        None => {
            parts.push(plural(restarts as usize, "restart"));
            parts.push(plural(rounds.len(), "round"));
            parts.extend(slices);
        }
    }
    parts
}

/// Returns `core 0`, `cores 0–3` or `cores 0, 2`. `None` if the list is empty, because nothing is
/// pinned.
pub fn cores_in_words(cpus: &[usize]) -> Option<String> {
    let (first, last) = (*cpus.first()?, *cpus.last()?);
    Some(match cpus {
        [one] => format!("core {one}"),
        _ if last.checked_sub(first) == Some(cpus.len() - 1) => format!("cores {first}–{last}"),
        _ => format!("cores {}", cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    })
}

/// Describes how requests travel: `64 connections, keep-alive`.
pub fn shape_words(shape: &Shape, protocol: Protocol, https: bool) -> String {
    let connections = plural(shape.connections, "connection");
    let mut words = match shape.reuse {
        Reuse::KeepAlive => format!("{connections}, keep-alive"),
        Reuse::Close => format!("{connections}, a new one per request"),
    };
    if protocol == Protocol::Http2 {
        let over = if https { " over TLS" } else { "" };
        words += &format!(", HTTP/2{over} with {}", plural(shape.pipeline, "stream"));
        if shape.connections > 1 {
            words += " each";
        }
    } else {
        if https {
            words += ", HTTPS";
        }
        if shape.pipeline > 1 {
            words += &format!(", {} requests in flight on each", shape.pipeline);
        }
    }
    words
}

/// Describes a load: `64 connections, keep-alive, 2 generator threads`.
pub(super) fn load_words(load: &Load) -> String {
    let mut words = shape_words(&load.shape, load.protocol, load.https);
    if load.shape.threads > 1 {
        words += &format!(", {} generator threads", load.shape.threads);
    }
    if let Some(rate) = load.rate {
        words += &format!(", {} requests/s offered", number::rate(rate));
    }
    words
}

/// Describes a load with its request: `GET / 64 connections, keep-alive`.
pub fn request_and_load(load: &Load) -> String {
    format!("{} {}", load.sends, load_words(load)).trim_start().to_owned()
}

/// Returns the name of one of several loads, for use in a sentence. A load without a name is
/// described instead. The request is added if the loads send different requests.
pub(super) fn load_name(load: &Load, among: &[&Load]) -> String {
    let name = if load.name.is_empty() { load_words(load) } else { load.name.clone() };
    let differ = among.iter().any(|other| other.sends != load.sends);
    match differ && !load.sends.is_empty() && name != load.sends {
        true => format!("{name}, {}", load.sends),
        false => name,
    }
}

/// Returns the title of one of several loads: its name and its description.
pub(super) fn load_title(load: &Load, among: &[&Load]) -> String {
    let (name, words) = (load_name(load, among), load_words(load));
    if load.name.is_empty() { name } else { format!("{name}: {words}") }
}

/// Returns the title of a load of a run. Empty if the run has only one load.
pub(super) fn title_of_one(run: &Run, load: usize) -> String {
    let all: Vec<&Load> = run.loads.iter().collect();
    if all.len() > 1 { load_title(all[load], &all) } else { String::new() }
}

/// Returns ` under POST /bla`, for a sentence about one of several loads. Empty for the only load.
pub(super) fn under(run: &Run, load: usize) -> String {
    let all: Vec<&Load> = run.loads.iter().collect();
    match run.loads.get(load).filter(|_| run.loads.len() > 1) {
        Some(load) => format!(" under {}", load_name(load, &all)),
        None => String::new(),
    }
}

/// Puts the load in front of a sentence, given the result of [`under`].
pub(super) fn with_load(under: &str, sentence: &str) -> String {
    match under.strip_prefix(" under ") {
        Some(load) => format!("{load}: {sentence}"),
        None => sentence.to_owned(),
    }
}

/// Formats the length of slices: `12 ms`, or `12 ms to 0.3 s` for loads with different lengths.
/// Returns `None` if no length is known.
pub(super) fn slice_words(schedule: &RunSchedule) -> Option<String> {
    let words = |ms: f64| match ms < 100.0 {
        true => format!("{ms} ms"),
        false => format!("{} s", (ms / 10.0).round() / 100.0),
    };
    let lengths = || schedule.slices_ms.iter().copied();
    let shortest = words(lengths().min_by(f64::total_cmp)?);
    let longest = words(lengths().max_by(f64::total_cmp)?);
    Some(if shortest == longest { longest } else { format!("{shortest} to {longest}") })
}
