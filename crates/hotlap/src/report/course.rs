//! One server over all stored runs: its figures, where they changed, and a line that shows it.

use hotlap_stats::{Estimate, change_points};
use serde::Serialize;

use super::figure::{micros, per_second, ratio, rounded};
use super::standing::Standing;
use super::summary::load_words;
use super::{Figure, Measure, date};
use crate::record::Run;

/// One server's course.
#[derive(Debug, Clone, Serialize)]
pub struct Course {
    /// What tables call the server.
    pub server: String,
    /// What was asked of it, in words.
    pub title: String,
    /// The runs that can be held together, oldest first.
    pub points: Vec<Point>,
    /// The measures, a line each.
    pub lines: Vec<Line>,
    /// Where a figure changed, in sentences.
    pub sentences: Vec<String>,
    /// Runs of this server that cannot be held together with the last one.
    pub left_out: usize,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// Its number.
    pub run: u64,
    /// When it began: `2026-11-21 20:15`.
    pub began: String,
    /// The server's version.
    pub version: String,
    /// Requests/s.
    pub requests_per_s: Option<Figure>,
    /// CPU time a request, in microseconds.
    pub cpu_us: Option<Figure>,
}

/// One measure over the runs.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// `requests/s` or `CPU µs/request`.
    pub measure: String,
    /// The values, rounded; `null` where a run has none.
    pub values: Vec<Option<f64>>,
    /// Where a new level begins, as indices into the values.
    pub changes: Vec<usize>,
    /// The values as a sparkline, a bar before each new level.
    pub sparkline: String,
}

impl Course {
    /// The course of a server over these runs, oldest first; `None` where none of them has it.
    ///
    /// Runs are held together when they asked the same under the same load on the same machine as
    /// the last of them.
    #[must_use]
    pub fn of(runs: &[Run], server: &str) -> Option<Self> {
        let place = |run: &Run| run.servers.iter().position(|s| s.name == server);
        let own: Vec<&Run> = runs.iter().filter(|run| place(run).is_some()).collect();
        let last = *own.last()?;
        let is_alike = |run: &&Run| {
            let loads = run.loads.first().zip(last.loads.first());
            key(run) == key(last) && loads.is_none_or(|(load, other)| load.is_same(other))
        };
        let alike: Vec<&Run> = own.iter().copied().filter(is_alike).collect();
        let mut course = Self {
            server: server.to_owned(),
            title: title(last),
            points: Vec::new(),
            lines: Vec::new(),
            sentences: Vec::new(),
            left_out: own.len() - alike.len(),
        };
        for run in alike {
            course.points.extend(place(run).and_then(|server| point(run, server)));
        }
        for measure in [Measure::Cost, Measure::Rate] {
            course.line(measure);
        }
        Some(course)
    }

    fn line(&mut self, measure: Measure) {
        let (name, words) = match measure {
            Measure::Cost => ("CPU µs/request", "CPU time per request"),
            _ => ("requests/s", "requests/s"),
        };
        let value = |point: &Point| match measure {
            Measure::Cost => point.cpu_us.as_ref().map(|f| f.value),
            _ => point.requests_per_s.as_ref().map(|f| f.value),
        };
        let values: Vec<Option<f64>> = self.points.iter().map(value).collect();
        if values.iter().all(Option::is_none) {
            return;
        }
        let series: Vec<f64> = values.iter().map(|v| v.unwrap_or(f64::NAN)).collect();
        let found = change_points(&series);
        let level = |from: usize, to: usize| {
            let known: Vec<f64> = values[from..to].iter().flatten().copied().collect();
            hotlap_stats::median(&known).unwrap_or(f64::NAN)
        };
        for (n, &at) in found.iter().enumerate() {
            let from = if n == 0 { 0 } else { found[n - 1] };
            let to = found.get(n + 1).copied().unwrap_or(values.len());
            let (before, after) = (level(from, at), level(at, to));
            self.sentences.push(self.change(at, words, before, after, measure));
        }
        let sparkline = sparkline(&series, &found);
        self.lines.push(Line { measure: name.to_owned(), values, changes: found, sparkline });
    }

    fn change(&self, at: usize, what: &str, before: f64, after: f64, measure: Measure) -> String {
        let exactly = |v: f64| Estimate { value: v, low: f64::NAN, high: f64::NAN };
        let text = |v: f64| match measure {
            Measure::Cost => format!("{} µs", micros(&exactly(v)).text),
            _ => per_second(&exactly(v)).text,
        };
        let (point, last) = (&self.points[at], &self.points[at - 1]);
        let version = match point.version == last.version {
            true => String::new(),
            false => format!(" Its version changed there: {}, {}.", last.version, point.version),
        };
        format!(
            "From run {} on ({}), {what} is {} what it was: {} after {}.{version}",
            point.run,
            point.began,
            ratio(&exactly(after / before)).text,
            text(after),
            text(before)
        )
    }
}

/// What two runs must have in common to stand in one line.
#[derive(PartialEq)]
struct Key<'a> {
    contract: &'a str,
    server_cpus: &'a [usize],
    cpu: &'a str,
    fingerprint: Option<&'a str>,
}

fn key(run: &Run) -> Key<'_> {
    let print = run.host.facts.iter().find(|(name, _)| name == "fingerprint");
    Key {
        contract: &run.contract,
        server_cpus: &run.schedule.server_cpus,
        cpu: &run.host.cpu,
        fingerprint: print.map(|(_, print)| print.as_str()),
    }
}

fn title(run: &Run) -> String {
    let load = run.loads.first().map_or_else(String::new, |l| format!(" · {}", load_words(l)));
    format!("{}{load}", run.contract)
}

fn point(run: &Run, server: usize) -> Option<Point> {
    let standing = Standing::of(run, 0);
    let measured = standing.servers.get(server)?;
    let cost = measured.cost.map(|c| Estimate {
        value: c.value / 1e3,
        low: c.low / 1e3,
        high: c.high / 1e3,
    });
    measured.rate.as_ref()?;
    Some(Point {
        run: run.number.unwrap_or(0),
        began: date::short(run.began_ms),
        version: run.servers[server].version.clone(),
        requests_per_s: measured.rate.as_ref().map(per_second),
        cpu_us: cost.as_ref().map(micros),
    })
}

/// Values as eighths of a line, from the least to the most; a change of level is a bar, and a value
/// that is missing is a blank. Differences under a twentieth of the level look as small as they
/// are.
#[must_use]
pub fn sparkline(values: &[f64], changes: &[usize]) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let known = || values.iter().copied().filter(|v| v.is_finite());
    let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
    let middle = f64::midpoint(low, high);
    let half = rounded(f64::midpoint(high, -low).max(middle.abs() * 0.025));
    let mut line = String::new();
    for (place, value) in values.iter().enumerate() {
        if changes.contains(&place) {
            line.push('|');
        }
        let step = ((value - middle) / half.max(f64::MIN_POSITIVE) * 3.5 + 3.5).round();
        line.push(match value.is_finite() {
            true => STEPS[(step.clamp(0.0, 7.0)) as usize],
            false => ' ',
        });
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_shows_the_level_and_where_it_changed() {
        let values = [10.0, 10.1, 9.9, 10.0, 15.0, 15.1, f64::NAN, 15.0];
        assert_eq!(sparkline(&values, &[4]), "▁▁▁▁|██ █");
        assert_eq!(sparkline(&[5.0, 5.0, 5.01], &[]), "▄▄▅");
        assert_eq!(sparkline(&[], &[]), "");
    }
}
