//! Text around the tables: the headline, how the run was measured, the order of its laps, and the
//! details of each server.

use super::{ErrorCount, Figure, Latency, Measure, Report, Role, Row};
use crate::text::number::count;

/// A fact: its name and value.
pub type Fact = (String, String);

impl Report {
    /// The sentences at the top of the page. If there are several loads, only the first sentence,
    /// since each load has its own; if nothing is compared, what was measured.
    pub fn headline(&self) -> Vec<String> {
        if self.tables.len() > 1 {
            let mut firsts = self.tables.iter().filter_map(|t| Some((t, t.sentences.first()?)));
            if let Some((load, sentence)) = firsts.next() {
                return vec![format!("{}: {sentence}", load.title)];
            }
        }
        if self.capacity.len() > 1 {
            return self.sentences.first().cloned().into_iter().collect();
        }
        let steps = self.layers.iter().map(|step| &step.sentence);
        let sentences: Vec<String> = steps.chain(&self.sentences).cloned().collect();
        if !sentences.is_empty() {
            return sentences;
        }
        let rows = self.tables.iter().flat_map(|t| &t.rows).filter(|r| r.role != Role::Ceiling);
        let measured: Vec<String> = rows.filter_map(measured).collect();
        match (measured.is_empty(), self.failed.as_slice()) {
            (false, _) => measured,
            (true, []) => vec!["Nothing was measured.".to_owned()],
            (true, [only]) => vec![format!("{} failed: nothing was measured.", only.name)],
            (true, all) => vec![format!("All {} servers failed: nothing was measured.", all.len())],
        }
    }

    /// How the run was measured; unknown facts are left out.
    pub fn facts(&self) -> Vec<Fact> {
        let run = &self.run;
        let schedule = &run.schedule;
        let size = match (schedule.restarts, schedule.rounds) {
            (0, _) | (_, 0) => "as many restarts and rounds as the time allows".to_owned(),
            (restarts, rounds) => format!("{restarts} restarts × {rounds} rounds"),
        };
        let frozen = if schedule.freeze { ", servers frozen outside of their slices" } else { "" };
        let mut facts = vec![
            ("host", self.host.line.clone()),
            ("hotlap", run.hotlap.clone()),
            ("suite", run.suite.clone().unwrap_or_default()),
            ("about", run.about.clone()),
            ("began", run.began.clone()),
            ("took", run.took_s.map_or_else(String::new, |took_s| format!("{took_s} s"))),
            ("seed of the order", run.seed.to_string()),
        ];
        facts.extend(run.loads_in_words.iter().map(|load| ("load", load.clone())));
        facts.push(("planned", format!("{size}, {} s in all{frozen}", schedule.budget_s)));
        let elsewhere = self.host.facts.generator.as_ref();
        facts.extend(elsewhere.map(|generator| {
            let at = generator.address.iter().map(|address| format!(", at {address}"));
            ("servers on", generator.command.clone() + &at.collect::<String>())
        }));
        let generators = self.host.facts.generators.iter();
        facts
            .extend(generators.map(|own| ("load from", format!("{} ({})", own.command, own.name))));
        let of_host = self.host.facts.facts.iter().cloned();
        let all = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(of_host);
        all.filter(|(_, value)| !value.is_empty()).collect()
    }

    /// The order of the servers' laps, one line per round.
    pub fn lap_order(&self) -> String {
        let mut out = String::new();
        let mut last = None;
        for lap in &self.laps {
            let round = (lap.load, lap.restart, lap.round, lap.rate.is_some());
            out += &match last == Some(round) {
                true => " · ".to_owned(),
                false => format!("\nrestart {} round {}: ", lap.restart, lap.round),
            };
            out += &lap.server;
            last = Some(round);
        }
        out.trim_start().to_owned()
    }
}

impl Row {
    /// Details of the server; unknown facts are left out.
    pub fn details(&self) -> Vec<Fact> {
        let text = |figure: &Option<Figure>| {
            figure.as_ref().map_or_else(String::new, |figure| figure.full())
        };
        let ratio = |measure: Measure| {
            let Some(against) = &self.against else { return String::new() };
            let found = &against.measures[measure];
            match &found.ratio {
                Some(ratio) => format!("{}: {}", ratio.full(), found.words),
                None => found.words.clone(),
            }
        };
        let cpu =
            self.cpu_us.as_ref().map(|figure| format!("{} µs {}", figure.text, figure.spread));
        let errors = match self.errors {
            0 => "none".to_owned(),
            _ => {
                let of_kind =
                    |e: &ErrorCount| format!("{} × {} ({})", count(e.count), e.kind, e.phase);
                self.errors_by_kind.iter().map(of_kind).collect::<Vec<_>>().join(", ")
            }
        };
        let (counting, all) = self.laps;
        let facts = [
            ("version", self.version.clone()),
            ("command", self.command.clone()),
            ("requests/s", text(&self.rate())),
            ("requests/s vs reference", ratio(Measure::Rate)),
            ("CPU time per request", cpu.unwrap_or_default()),
            ("CPU time vs reference", ratio(Measure::Cost)),
            ("of ceiling", text(&self.of_ceiling)),
            ("latency under the load", self.service.in_words()),
            (
                "latency at the common rate",
                self.response.as_ref().map_or_else(String::new, Latency::in_words),
            ),
            ("TLS", self.tls.clone()),
            ("errors", errors),
            (
                "conformance checks passed",
                self.conformance.map_or_else(String::new, |checks| checks.to_string()),
            ),
            ("memory (RSS, PSS)", [text(&self.rss_mb), text(&self.pss_mb)].join(", ")),
            ("CPU use", text(&self.cpu_percent)),
            ("context switches per request", text(&self.switches)),
            ("instructions per request", self.instructions()),
            ("CPU time in slices ÷ when left running", text(&self.in_slices)),
            ("CPU time in laps ÷ alone after warm-up", text(&self.of_alone)),
            ("time to first response", text(&self.ready_ms)),
            ("warm-up", [self.warmup.clone(), text(&self.steady_ms)].join(", ")),
            ("responses by generator", self.responses_by_generator()),
            ("laps that count", format!("{counting} of {all}")),
            ("note", self.notes.join(" · ")),
        ];
        let facts = facts.into_iter().map(|(name, value)| {
            (name.to_owned(), value.trim().trim_matches([',', ' ']).to_owned())
        });
        facts.filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Responses to each of several generators, in their order; empty if there was one.
    fn responses_by_generator(&self) -> String {
        self.answers_by_generator.iter().map(|sum| count(*sum)).collect::<Vec<_>>().join(" + ")
    }

    /// Instructions per request in user mode and in the kernel, or why they are unknown.
    fn instructions(&self) -> String {
        let text = |figure: &Figure, mode: &str| format!("{} {mode}", figure.full());
        let user = self.instructions_user.as_ref().map(|figure| text(figure, "user"));
        let kernel = self.instructions_kernel.as_ref().map(|figure| text(figure, "kernel"));
        match user {
            Some(user) => user + &kernel.map_or_else(String::new, |kernel| format!(", {kernel}")),
            None if self.uncounted.is_empty() => String::new(),
            None => format!("unavailable: {}", self.uncounted),
        }
    }
}

/// The figures of a server without a comparison.
fn measured(row: &Row) -> Option<String> {
    let rate = row.requests_per_s.as_ref()?.full();
    let bound = if row.generator_limited { "at least " } else { "" };
    let cost = row.cpu_us.as_ref().map(|c| format!(", at {} µs of CPU time each", c.full()));
    Some(format!("{} serves {bound}{rate} requests/s{}.", row.name, cost.unwrap_or_default()))
}
