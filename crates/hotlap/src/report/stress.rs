//! How servers bore overload, slow clients and malformed input, in words.
//!
//! Nothing is compared between servers here: each scenario has a verdict of its own, not a figure
//! with an interval.

use hotlap_bench::stress::{
    ERRORS, Fate, MEMORY_LEAST_BYTES, MEMORY_TIMES, Observed, P99_LEAST_NS, P99_TIMES, PACE, Pace,
    Subject, THREADS_LEAST, THREADS_TIMES, Trial, Verdict, words,
};
use serde::Serialize;

use crate::model::{Run, ServerFailure};
use crate::text::number;

/// Everything that is said of a stress.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Stress {
    /// How it was done, in parts.
    pub title: Vec<String>,
    /// The scenarios: name and description.
    pub scenarios: Vec<(String, String)>,
    /// What the verdicts mean, a line each.
    pub rules: Vec<String>,
    /// The servers, in the order in which they were tried.
    pub servers: Vec<StressedServer>,
    /// A sentence a server.
    pub sentences: Vec<String>,
}

/// One server.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct StressedServer {
    /// What tables call it.
    pub name: String,
    /// What really ran.
    pub version: String,
    /// A line a scenario.
    pub lines: Vec<ScenarioResult>,
    /// Why there is no more, if there is not.
    pub failure: Option<ServerFailure>,
    /// What should be told.
    pub notes: Vec<String>,
    /// Its socket errors under overload as they were published: `2016: 38 read, 21 write`.
    pub published: Vec<String>,
    /// All that was seen.
    #[schemars(with = "Vec<serde_json::Map<String, serde_json::Value>>")]
    pub measured: Vec<Trial>,
}

/// One scenario of one server.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct ScenarioResult {
    /// Its name.
    pub scenario: String,
    /// `well`, `suffered`, `scarred`, `hurt` or `down`.
    pub verdict: &'static str,
    /// Good clients' throughput during, of their fair share of that of before: `93 %`.
    pub of_fair_share: String,
    /// Their p99 before and during: `1.2 → 3.1 ms`.
    pub p99: String,
    /// Their requests that failed.
    pub errors: String,
    /// What became of the others: `40 × 4xx, 20 closed`, or their throughput.
    pub others: String,
    /// The errors of the others, where they are good clients too: `38 × connection reset`, `none`.
    pub others_errors: String,
    /// Memory before, during and after: `7 → 31 → 12 MB`.
    pub memory: String,
    /// Threads before, during and after.
    pub threads: String,
    /// Until a new connection was answered rightly, once all was over.
    pub recovered: String,
    /// What speaks against it.
    pub reasons: Vec<String>,
    /// The last lines that it printed, if it ended.
    pub log_tail: Vec<String>,
}

impl ScenarioResult {
    /// Its cells in the order of every table: the scenario, the verdict, the figures.
    #[must_use]
    pub fn figures(&self) -> [&str; 10] {
        [
            &self.scenario,
            self.verdict,
            &self.of_fair_share,
            &self.p99,
            &self.errors,
            &self.others,
            &self.others_errors,
            &self.memory,
            &self.threads,
            &self.recovered,
        ]
    }
}

impl Stress {
    /// What a run found; `None` where nobody was stressed.
    #[must_use]
    pub fn of(run: &Run) -> Option<Self> {
        let good = run.stress.first()?.good;
        let servers: Vec<StressedServer> =
            run.stress.iter().map(|s| StressedServer::of(run, s)).collect();
        let mut scenarios: Vec<(String, String)> = Vec::new();
        for trial in run.stress.iter().flat_map(|s| &s.trials) {
            if !scenarios.iter().any(|(name, _)| *name == trial.scenario) {
                scenarios.push((trial.scenario.clone(), trial.about.clone()));
            }
        }
        let mut title = vec!["stress".to_owned()];
        if let [(name, about)] = scenarios.as_slice() {
            title.push(format!("{name}: {about}"));
        }
        title.push(format!("{good} good clients, keep-alive"));
        Some(Self {
            title,
            scenarios,
            rules: rules(),
            sentences: servers.iter().filter_map(sentence).collect(),
            servers,
        })
    }

    /// Whether each server could be tried, and stands at the end of every scenario.
    #[must_use]
    pub fn all_stand(&self) -> bool {
        let stands = |s: &StressedServer| {
            s.failure.is_none() && s.measured.iter().all(|t| t.judgement.verdict != Verdict::Down)
        };
        self.servers.iter().all(stands)
    }

    /// The only scenario, if there is one: then a line a server says all.
    #[must_use]
    pub fn only(&self) -> Option<&str> {
        match self.scenarios.as_slice() {
            [(name, _)] => Some(name),
            _ => None,
        }
    }
}

impl StressedServer {
    fn of(run: &Run, subject: &Subject) -> Self {
        let server = run.servers.iter().find(|s| s.name == subject.name);
        let published = server.into_iter().flat_map(|s| &s.published);
        Self {
            name: subject.name.clone(),
            version: subject.version.clone(),
            lines: subject.trials.iter().map(ScenarioResult::of).collect(),
            failure: subject.failure.clone(),
            notes: subject.notes.clone(),
            published: published
                .filter_map(|p| Some(format!("{}: {}", p.year, socket_errors(p.socket_errors?))))
                .collect(),
            measured: subject.trials.clone(),
        }
    }
}

/// Errors as wrk counts them.
fn socket_errors([connect, read, write, timeout]: [u64; 4]) -> String {
    let kinds = [(connect, "connect"), (read, "read"), (write, "write"), (timeout, "timeout")];
    let some: Vec<String> = kinds
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{} {kind}", number::count(*count)))
        .collect();
    if some.is_empty() { "none".to_owned() } else { some.join(", ") }
}

/// Failures by kind: `38 × connection reset, 3 × no answer in time`.
fn by_kind(pace: &Pace) -> String {
    if let Some(why) = &pace.unreachable {
        return why.clone();
    }
    let mut kinds: Vec<(u64, &str)> = Vec::new();
    for failure in &pace.failures {
        match kinds.iter_mut().find(|(_, kind)| *kind == words(failure.failure)) {
            Some((count, _)) => *count += failure.count,
            None => kinds.push((failure.count, words(failure.failure))),
        }
    }
    kinds.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    kinds.extend((pace.unanswered > 0).then_some((pace.unanswered, "unanswered at the end")));
    let said: Vec<String> =
        kinds.iter().map(|(count, kind)| format!("{} × {kind}", number::count(*count))).collect();
    if said.is_empty() { "none".to_owned() } else { said.join(", ") }
}

impl ScenarioResult {
    fn of(trial: &Trial) -> Self {
        let Observed { before, during, fate, held, recovered_ms, others, .. } = &trial.observed;
        let fair = during.requests_per_s * trial.observed.crowding.max(1.0);
        let share = fair / before.requests_per_s.max(f64::MIN_POSITIVE) * 100.0;
        let ms = |ns: u64| number::time(ns as f64 / 1e6);
        let p99 = match (before.p99_ns, during.p99_ns) {
            (_, 0) => "–".to_owned(),
            (then, now) => format!("{} → {}", ms(then), ms(now)),
        };
        let mb = |bytes: u64| number::grouped(bytes as f64 / 1e6, 0);
        Self {
            scenario: trial.scenario.clone(),
            verdict: trial.judgement.verdict.as_str(),
            of_fair_share: format!("{} %", number::grouped(share, 0)),
            p99,
            errors: number::count(during.failed()),
            others: match (fate, others) {
                (Some(fate), _) => told(fate),
                (None, Some(others)) => {
                    format!("{} requests/s", number::rate(others.requests_per_s))
                }
                (None, None) => String::new(),
            },
            others_errors: others.as_ref().map_or_else(String::new, by_kind),
            memory: held.map_or_else(String::new, |[first, middle, last]| {
                let [first, middle, last] = [first, middle, last].map(|h| mb(h.rss_bytes));
                format!("{first} → {middle} → {last} MB")
            }),
            threads: held.map_or_else(String::new, |[first, middle, last]| {
                format!("{} → {} → {}", first.threads, middle.threads, last.threads)
            }),
            recovered: recovered_ms.map_or_else(|| "never".to_owned(), number::time),
            reasons: trial.judgement.reasons.iter().map(ToString::to_string).collect(),
            log_tail: trial.log_tail.clone(),
        }
    }
}

/// What became of rude clients: `240 × 4xx, 20 closed`.
fn told(fate: &Fate) -> String {
    let classes = [(2, "2xx"), (3, "3xx"), (4, "4xx"), (5, "5xx"), (0, "no HTTP")];
    let answered = classes.map(|(class, name)| (fate.of_class(class), format!("× {name}")));
    let rest = [
        (fate.closed, "closed".to_owned()),
        (fate.silent, "left waiting".to_owned()),
        (fate.refused, "not let in".to_owned()),
    ];
    let parts = answered.into_iter().chain(rest).filter(|(count, _)| *count > 0);
    let parts: Vec<String> =
        parts.map(|(count, what)| format!("{} {what}", number::count(count))).collect();
    parts.join(", ")
}

/// One server in a sentence; none if there is nothing to say.
fn sentence(server: &StressedServer) -> Option<String> {
    let all = server.lines.len();
    let well = server.lines.iter().filter(|l| l.verdict == Verdict::Well.as_str()).count();
    if all == 0 {
        return None;
    }
    let worse: Vec<String> = [
        (Verdict::Down, "down after"),
        (Verdict::Hurt, "good clients hurt by"),
        (Verdict::Scarred, "scarred by"),
        (Verdict::Suffered, "good clients suffer from"),
    ]
    .iter()
    .filter_map(|(verdict, words)| {
        let of = server.lines.iter().filter(|l| l.verdict == verdict.as_str());
        let names: Vec<&str> = of.map(|l| l.scenario.as_str()).collect();
        (!names.is_empty()).then(|| format!("{words} {}", names.join(", ")))
    })
    .collect();
    Some(match worse.is_empty() {
        true if all == 1 => format!("{} is well under {}.", server.name, server.lines[0].scenario),
        true => format!("{} is well under all {all}.", server.name),
        false if all == 1 => format!("{}: {}.", server.name, worse.join("; ")),
        false => format!("{} is well under {well} of {all}; {}.", server.name, worse.join("; ")),
    })
}

fn rules() -> Vec<String> {
    vec![
        format!(
            "suffered: good clients had under {:.0} % of their fair throughput, or a p99 over \
             {P99_TIMES:.0} times the fair one and {:.0} ms longer",
            PACE * 100.0,
            P99_LEAST_NS as f64 / 1e6
        ),
        format!(
            "scarred: serves again, but at under a third of its throughput, or keeps over {MEMORY_TIMES:.0} times the memory and \
             {} MB more, over {THREADS_TIMES:.0} times the threads and {THREADS_LEAST} more, or \
             stays busy",
            MEMORY_LEAST_BYTES / 1_000_000
        ),
        format!("hurt: over {:.1} % of the good clients' requests failed", ERRORS * 100.0),
        "down: ended, or not well once all was over".to_owned(),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use hotlap_bench::stress::{Held, judge};
    use hotlap_load::Failure;
    use hotlap_load::outcome::FailureCount;

    use crate::model::{Host, Published, Question, Server, State};

    use super::*;

    fn pace(requests_per_s: f64, p99_ms: u64) -> Pace {
        let answers = requests_per_s as u64;
        Pace { requests_per_s, answers, p99_ns: p99_ms * 1_000_000, ..Pace::default() }
    }

    fn trial(scenario: &str, observed: Observed) -> Trial {
        Trial {
            scenario: scenario.to_owned(),
            about: "somebody comes".to_owned(),
            judgement: judge(&observed),
            observed,
            log_tail: Vec::new(),
        }
    }

    /// A server that bears garbage and does not bear idle clients.
    pub fn report() -> Stress {
        let held = |mb: u64, threads| Held { rss_bytes: mb * 1_000_000, threads };
        let garbage = Observed {
            before: pace(10_000.0, 1),
            during: pace(9_300.0, 3),
            after: pace(9_900.0, 1),
            crowding: 1.0,
            fate: Some(Fate {
                connected: 260,
                answered: BTreeMap::from([(400, 200), (501, 40)]),
                closed: 20,
                ..Fate::default()
            }),
            held: Some([held(7, 3), held(9, 3), held(8, 3)]),
            idle: Some([0.0, 0.0]),
            recovered_ms: Some(0.4),
            ..Observed::default()
        };
        let idle = Observed {
            during: Pace { unanswered: 8, ..Pace::default() },
            after: Pace::default(),
            fate: Some(Fate { connected: 1000, closed: 1000, refused: 1000, ..Fate::default() }),
            recovered_ms: None,
            ended: Some("exited with code 1".to_owned()),
            held: None,
            ..garbage.clone()
        };
        let mut idle = trial("2,000 idle", idle);
        idle.log_tail = vec!["too many open files".to_owned()];
        let subject = Subject {
            name: "go/net-http".to_owned(),
            version: "go1.24".to_owned(),
            good: 8,
            trials: vec![trial("garbage", garbage), idle],
            failure: None,
            notes: Vec::new(),
        };
        Stress::of(&run(vec![subject])).unwrap()
    }

    /// Two servers under overload alone, one of which was published.
    pub fn overload() -> Stress {
        let failures = [(Failure::Reset, 38), (Failure::Timeout, 2)];
        let failures = failures.map(|(failure, count)| FailureCount {
            failure,
            phase: hotlap_load::Phase::FirstByte,
            count,
        });
        let observed = |failures: &[FailureCount]| Observed {
            before: pace(10_000.0, 1),
            during: pace(400.0, 25),
            after: pace(9_900.0, 1),
            others: Some(Pace { failures: failures.to_vec(), ..pace(9_300.0, 25) }),
            crowding: 26.0,
            recovered_ms: Some(0.4),
            ..Observed::default()
        };
        let subject = |name: &str, failures: &[FailureCount]| Subject {
            name: name.to_owned(),
            version: String::new(),
            good: 8,
            trials: vec![trial("overload", observed(failures))],
            failure: None,
            notes: Vec::new(),
        };
        let mut run = run(vec![subject("node", &failures), subject("go", &[])]);
        let published =
            Published { year: 2016, socket_errors: Some([0, 38, 21, 0]), ..Published::default() };
        run.servers.push(Server { published: vec![published], ..server("node") });
        Stress::of(&run).unwrap()
    }

    fn server(name: &str) -> Server {
        Server {
            name: name.to_owned(),
            role: crate::model::Role::Plain,
            command: String::new(),
            version: String::new(),
            about: String::new(),
            published: Vec::new(),
            part: crate::model::Part::default(),
            failure: None,
        }
    }

    fn run(stress: Vec<Subject>) -> Run {
        let schedule = serde_json::json!({
            "restarts": 0, "rounds": 0, "slice_ms": null, "budget_s": 0.0, "precision": null,
            "server_cpus": [0], "generator_cpus": [1], "freeze": false
        });
        Run {
            number: None,
            began_ms: 0,
            took_ms: 0,
            state: State::Finished,
            command: Vec::new(),
            hotlap: String::new(),
            suite: None,
            baseline: None,
            question: Question::Stress,
            about: String::new(),
            contract: "hello".to_owned(),
            seed: 0,
            schedule: serde_json::from_value(schedule).unwrap(),
            host: Host::default(),
            loads: Vec::new(),
            servers: Vec::new(),
            starts: Vec::new(),
            laps: Vec::new(),
            absent: Vec::new(),
            stress,
        }
    }

    #[test]
    fn a_server_ends_in_a_sentence_that_names_the_worst_first() {
        let report = report();
        assert_eq!(report.sentences, ["go/net-http is well under 1 of 2; down after 2,000 idle."]);
        assert!(!report.all_stand());
    }
}
