//! The trend of one server over all stored runs, in words.

use serde::Serialize;

use super::figure::{Figure, cell, exactly, of_measure, ratio};
use super::heading::load_words;
use super::measure_name;
use crate::analysis::Measure;
use crate::analysis::runs::{FOLLOWED, LevelChange, Trend, TrendPoint, level_changes};
use crate::model::Run;
use crate::text::number::rounded;
use crate::text::number::{self, sparkline};
use crate::text::table::{Column, Table};

/// The trend of one server over the stored runs.
#[derive(Debug, Clone, Serialize)]
pub struct ServerTrend {
    /// The server's name in tables.
    pub server: String,
    /// The requests to the server, and the load.
    pub title: String,
    /// The comparable runs, the oldest first.
    pub points: Vec<TrendRun>,
    /// One line per measure.
    pub lines: Vec<TrendLine>,
    /// Sentences about changes of the level.
    pub sentences: Vec<String>,
    /// The number of the server's runs that are not comparable with the last one.
    pub left_out: usize,
}

/// One run of a trend.
#[derive(Debug, Clone, Serialize)]
pub struct TrendRun {
    /// The number of the run.
    pub run: u64,
    /// The time at which the run began: `2026-11-21 20:15`.
    pub began: String,
    /// The server's version.
    pub version: String,
    /// The server's requests/s.
    pub requests_per_s: Option<Figure>,
    /// The server's CPU time per request, in microseconds.
    pub cpu_us: Option<Figure>,
}

/// One measure over the runs.
#[derive(Debug, Clone, Serialize)]
pub struct TrendLine {
    /// The name of the measure: `requests/s` or `CPU µs/request`.
    pub measure: String,
    /// The values of the runs, rounded. `null` for a run without a value.
    pub values: Vec<Option<f64>>,
    /// The indices of the values at which the level changes.
    pub changes: Vec<usize>,
    /// The values as a sparkline, with a bar before each new level.
    pub sparkline: String,
}

impl ServerTrend {
    /// Returns the trend of a server over runs, the oldest first. `None` if no run has the server.
    pub fn of(runs: &[Run], server: &str) -> Option<Self> {
        let trend = Trend::of(runs, server)?;
        let mut report = Self {
            server: server.to_owned(),
            title: title(trend.last),
            points: trend.points.iter().map(TrendRun::of).collect(),
            lines: Vec::new(),
            sentences: Vec::new(),
            left_out: trend.left_out,
        };
        for measure in FOLLOWED {
            report.add_line(measure, trend.values(measure));
        }
        Some(report)
    }

    /// Returns the runs as a table.
    pub fn table(&self) -> Table {
        let points = || self.points.iter();
        Table::new(vec![
            Column::right("run", points().map(|p| p.run.to_string())),
            Column::left("began (UTC)", points().map(|p| &p.began)),
            Column::right("requests/s", points().map(|p| cell(p.requests_per_s.as_ref()))),
            Column::right("CPU µs\n/request", points().map(|p| cell(p.cpu_us.as_ref()))),
            Column::prose("version", points().map(|p| &p.version)),
        ])
    }

    /// Returns why there are no sentences. `None` if there are sentences.
    pub fn no_change(&self) -> Option<&'static str> {
        match (self.sentences.is_empty(), self.points.len()) {
            (false, _) => None,
            (true, ..6) => Some("Changes of level need at least six runs."),
            (true, _) => Some("No change of level."),
        }
    }

    /// States how many runs are left out, and why. `None` if no run is left out.
    pub fn left_out_words(&self) -> Option<String> {
        (self.left_out > 0).then(|| {
            format!(
                "hotlap leaves out {}, because requests, load, machine or server cores differ from \
                 the last run.",
                number::plural(self.left_out, "run")
            )
        })
    }

    fn add_line(&mut self, measure: Measure, values: Vec<Option<f64>>) {
        if values.iter().all(Option::is_none) {
            return;
        }
        let found = level_changes(&values);
        let sentences: Vec<String> = found.iter().map(|c| self.sentence(measure, c)).collect();
        self.sentences.extend(sentences);
        let changes: Vec<usize> = found.iter().map(|change| change.at).collect();
        let series: Vec<f64> = values.iter().map(|v| v.unwrap_or(f64::NAN)).collect();
        self.lines.push(TrendLine {
            measure: measure_name(measure).to_owned(),
            values: values.iter().map(|v| v.map(|v| rounded(v * unit(measure)))).collect(),
            sparkline: sparkline(&series, &changes),
            changes,
        });
    }

    fn sentence(&self, measure: Measure, change: &LevelChange) -> String {
        let what = match measure {
            Measure::Cost => "CPU time per request",
            _ => "requests/s",
        };
        let text = |level: f64| {
            let figure = of_measure(measure, &exactly(level)).text;
            if measure == Measure::Cost { format!("{figure} µs") } else { figure }
        };
        let (point, last) = (&self.points[change.at], &self.points[change.at - 1]);
        let is_unknown = point.version.is_empty() || last.version.is_empty();
        let version = match is_unknown || point.version == last.version {
            true => String::new(),
            false => format!(
                " The version changed in that run, from {} to {}.",
                last.version, point.version
            ),
        };
        format!(
            "From run {} on ({}), {what} is {} what it was: {} instead of {}.{version}",
            point.run,
            point.began,
            ratio(&exactly(change.after / change.before)).text,
            text(change.after),
            text(change.before)
        )
    }
}

impl TrendRun {
    fn of(point: &TrendPoint) -> Self {
        let level = |measure: Measure| {
            point.level[measure].as_ref().map(|level| of_measure(measure, level))
        };
        Self {
            run: point.run.number.unwrap_or(0),
            began: number::utc_to_minute(point.run.began_ms),
            version: point.run.servers[point.server].version.clone(),
            requests_per_s: level(Measure::Rate),
            cpu_us: level(Measure::Cost),
        }
    }
}

/// Returns the factor from the unit of a measure's readings to the unit in which they are shown.
fn unit(measure: Measure) -> f64 {
    match measure {
        Measure::Cost => 1e-3,
        _ => 1.0,
    }
}

fn title(run: &Run) -> String {
    let load = run.loads.first().map_or_else(String::new, |l| format!(" · {}", load_words(l)));
    format!("{}{load}", run.contract)
}
