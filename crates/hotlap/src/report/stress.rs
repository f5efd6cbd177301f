//! What the stress of some servers found, finished for printing.
//!
//! It is a report of its own: nothing is compared between servers, and what counts is a verdict a
//! scenario, not a figure with an interval. The renderers below lay out what is here and compute
//! nothing.

pub mod json;
pub mod markdown;
pub mod terminal;

use hotlap_harness::stress::{
    ERRORS, Fate, MEMORY_LEAST_BYTES, MEMORY_TIMES, Observed, P99_LEAST_NS, P99_TIMES, PACE,
    Subject, THREADS_LEAST, THREADS_TIMES, Trial, Verdict,
};
use serde::Serialize;

use super::figure;
use crate::record::{Host, Retired, Server};

/// Everything that is said of a stress.
#[derive(Debug, Clone, Serialize)]
pub struct StressReport {
    /// Version of the form of this document: 1.
    pub schema: u32,
    /// When it began (UTC).
    pub date: String,
    /// The version of hotlap.
    pub hotlap: String,
    /// The command line.
    pub command: String,
    /// What a suite says of itself; empty when it was none.
    pub about: String,
    /// How it was done, in parts.
    pub title: Vec<String>,
    /// The machine, in a line.
    pub machine: String,
    /// What the verdicts mean, a line each.
    pub rules: Vec<String>,
    /// The servers, in the order in which they were named.
    pub servers: Vec<Stressed>,
    /// A sentence a server.
    pub sentences: Vec<String>,
    /// Ended early, by the user.
    pub interrupted: bool,
}

/// One server.
#[derive(Debug, Clone, Serialize)]
pub struct Stressed {
    /// What tables call it.
    pub name: String,
    /// What really ran.
    pub version: String,
    /// A line a scenario.
    pub lines: Vec<Line>,
    /// Why there is no more, if there is not.
    pub retired: Option<Retired>,
    /// What should be told.
    pub notes: Vec<String>,
    /// All that was seen.
    pub measured: Vec<Trial>,
}

/// One scenario of one server.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
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
    /// What became of the others: `40 × 4xx, 20 closed`.
    pub others: String,
    /// Memory before, during and after: `7 → 31 → 12 MB`.
    pub memory: String,
    /// Threads before, during and after.
    pub threads: String,
    /// Until a new connection was answered rightly, once all was over.
    pub recovered: String,
    /// What speaks against it.
    pub reasons: Vec<String>,
    /// The last lines that it printed, if it ended.
    pub last_words: Vec<String>,
}

/// How a stress was done.
#[derive(Debug, Clone)]
pub struct Heading {
    /// When it began, in milliseconds since 1970 (UTC).
    pub began_ms: u64,
    /// The words of the command line.
    pub command: Vec<String>,
    /// What a suite says of itself.
    pub about: String,
    /// How it was done, in parts.
    pub title: Vec<String>,
    /// The machine.
    pub host: Host,
    /// Ended early, by the user.
    pub interrupted: bool,
}

impl StressReport {
    /// Finishes it; `absent` are those who could take no part.
    #[must_use]
    pub fn of(heading: &Heading, subjects: &[Subject], absent: &[Server]) -> Self {
        let mut servers: Vec<Stressed> = subjects.iter().map(Stressed::of).collect();
        servers.extend(absent.iter().map(|server| Stressed {
            name: server.name.clone(),
            version: server.version.clone(),
            lines: Vec::new(),
            retired: server.retired.clone(),
            notes: Vec::new(),
            measured: Vec::new(),
        }));
        let host = &heading.host;
        let machine = [
            format!("{} × {}", host.cores, host.cpu),
            host.os.clone(),
            host.virtualisation.clone().unwrap_or_default(),
        ];
        let told: Vec<String> = machine.into_iter().filter(|part| !part.is_empty()).collect();
        Self {
            schema: 1,
            date: super::date::utc(heading.began_ms),
            hotlap: env!("CARGO_PKG_VERSION").to_owned(),
            command: shell_words::join(&heading.command),
            about: heading.about.clone(),
            title: heading.title.clone(),
            machine: told.join(" · "),
            rules: rules(),
            sentences: servers.iter().filter_map(sentence).collect(),
            servers,
            interrupted: heading.interrupted,
        }
    }

    /// Whether each server could be tried, and stands at the end of every scenario.
    #[must_use]
    pub fn all_stand(&self) -> bool {
        let stands = |s: &Stressed| {
            s.retired.is_none() && s.measured.iter().all(|t| t.judgement.verdict != Verdict::Down)
        };
        self.servers.iter().all(stands)
    }
}

impl Stressed {
    fn of(subject: &Subject) -> Self {
        Self {
            name: subject.name.clone(),
            version: subject.version.clone(),
            lines: subject.trials.iter().map(Line::of).collect(),
            retired: subject.retired.as_ref().map(Retired::from),
            notes: subject.notes.clone(),
            measured: subject.trials.clone(),
        }
    }
}

impl Line {
    fn of(trial: &Trial) -> Self {
        let Observed { before, during, fate, held, recovered_ms, others, .. } = &trial.observed;
        let fair = during.requests_per_s * trial.observed.crowding.max(1.0);
        let share = fair / before.requests_per_s.max(f64::MIN_POSITIVE) * 100.0;
        let ms = |ns: u64| figure::time(ns as f64 / 1e6);
        let p99 = match (before.p99_ns, during.p99_ns) {
            (_, 0) => "–".to_owned(),
            (then, now) => format!("{} → {}", ms(then), ms(now)),
        };
        let mb = |bytes: u64| figure::grouped(bytes as f64 / 1e6, 0);
        Self {
            scenario: trial.scenario.clone(),
            verdict: trial.judgement.verdict.as_str(),
            of_fair_share: format!("{} %", figure::grouped(share, 0)),
            p99,
            errors: figure::count(during.failed()),
            others: match (fate, others) {
                (Some(fate), _) => told(fate),
                (None, Some(others)) => {
                    let errors = match others.failed() {
                        0 => String::new(),
                        failed => format!(", {} errors", figure::count(failed)),
                    };
                    format!("{} requests/s{errors}", figure::rate(others.requests_per_s))
                }
                (None, None) => String::new(),
            },
            memory: held.map_or_else(String::new, |[first, middle, last]| {
                let [first, middle, last] = [first, middle, last].map(|h| mb(h.rss_bytes));
                format!("{first} → {middle} → {last} MB")
            }),
            threads: held.map_or_else(String::new, |[first, middle, last]| {
                format!("{} → {} → {}", first.threads, middle.threads, last.threads)
            }),
            recovered: recovered_ms.map_or_else(|| "never".to_owned(), figure::time),
            reasons: trial.judgement.reasons.iter().map(ToString::to_string).collect(),
            last_words: trial.last_words.clone(),
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
        parts.map(|(count, what)| format!("{} {what}", figure::count(count))).collect();
    parts.join(", ")
}

/// One server in a sentence; none if there is nothing to say.
fn sentence(server: &Stressed) -> Option<String> {
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
        true => format!("{} is well under all {all}.", server.name),
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
pub(super) mod tests {
    use std::collections::BTreeMap;

    use hotlap_harness::stress::{Held, Pace, judge};

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
            last_words: Vec::new(),
        }
    }

    /// A server that bears garbage and does not bear idle clients, and one that could not be built.
    pub(in crate::report::stress) fn report() -> StressReport {
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
        idle.last_words = vec!["too many open files".to_owned()];
        let subject = Subject {
            name: "go/net-http".to_owned(),
            version: "go1.24".to_owned(),
            trials: vec![trial("garbage", garbage), idle],
            retired: None,
            notes: Vec::new(),
        };
        let absent = Server {
            name: "nim/jester".to_owned(),
            role: crate::record::Role::Contestant,
            command: String::new(),
            version: String::new(),
            about: String::new(),
            published: Vec::new(),
            part: crate::record::Part::default(),
            retired: Some(Retired {
                phase: "build".to_owned(),
                cause: "nim is missing".to_owned(),
                last_words: Vec::new(),
                cure: "hotlap setup nim".to_owned(),
            }),
        };
        let heading = Heading {
            began_ms: 0,
            command: vec!["hotlap".to_owned(), "run".to_owned(), "--stress".to_owned()],
            about: String::new(),
            title: vec!["stress".to_owned(), "8 good clients, keep-alive".to_owned()],
            host: Host { cores: 2, cpu: "a processor".to_owned(), ..Host::default() },
            interrupted: false,
        };
        StressReport::of(&heading, &[subject], &[absent])
    }

    #[test]
    fn a_server_ends_in_a_sentence_that_names_the_worst_first() {
        let report = report();
        assert_eq!(report.sentences, ["go/net-http is well under 1 of 2; down after 2,000 idle."]);
        assert!(!report.all_stand());
    }
}
