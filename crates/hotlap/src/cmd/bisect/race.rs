//! One race: a run of several commits, in another process of hotlap. Its report is read as JSON.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use hotlap_stats::{LevelReading, Step};
use serde_json::Value;

use crate::cli::BisectMeasure;
use crate::exit::Exit;

/// The number of standard errors on each side of an estimate in a 95% interval.
const NORMAL_95: f64 = 1.96;

/// A server of a race.
#[derive(Debug)]
pub struct Entry {
    /// The name in the report.
    pub name: String,
    /// The folder in which the server starts.
    pub folder: PathBuf,
}

/// The settings of all races.
#[derive(Debug)]
pub struct Races<'a> {
    /// The shell command that starts a server.
    pub run: &'a str,
    /// Further options of `hotlap run`.
    pub options: Vec<String>,
    /// The measuring time. `None`: the usual one.
    pub duration: Option<Duration>,
    /// The figure that is compared.
    pub measure: BisectMeasure,
    /// The file to which reports are exported.
    pub export: PathBuf,
}

/// How a race ended.
#[derive(Debug)]
pub enum Raced {
    /// The race was finished.
    Report(RaceReport),
    /// The user interrupted it.
    Interrupted,
}

/// The report of a race.
#[derive(Debug)]
pub struct RaceReport {
    report: Value,
    key: &'static str,
}

/// The ratio of a server's figure to that of the first server, with its 95% interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The estimate, and both ends of the interval.
    pub ends: [f64; 3],
    /// Whether the report calls the two servers different.
    pub is_different: bool,
}

impl Races<'_> {
    /// Measures the servers in one run. The first one is the reference.
    ///
    /// # Errors
    /// The run failed for a reason that is not one of the servers.
    pub fn race(&self, servers: &[Entry]) -> anyhow::Result<Raced> {
        let _ = fs::remove_file(&self.export);
        let mut command = self.command("run", servers)?;
        command.args(["--no-ceiling", "--reference", &servers[0].name]);
        command.arg("--export-json").arg(&self.export).stdout(Stdio::null());
        let status = command.status().context("cannot start a race")?;
        let code = status.code().unwrap_or(i32::from(Exit::Interrupted as u8));
        let is = |exit: Exit| code == i32::from(exit as u8);
        if is(Exit::Interrupted) {
            return Ok(Raced::Interrupted);
        }
        if is(Exit::Usage) || is(Exit::Error) {
            anyhow::bail!("a race failed. Its error is printed above");
        }
        let text = fs::read_to_string(&self.export);
        let text = text.with_context(|| format!("a race wrote no {}", self.export.display()))?;
        let report = serde_json::from_str(&text).context("the report of a race is not JSON")?;
        Ok(Raced::Report(RaceReport { report, key: self.key() }))
    }

    /// Prints where the difference in CPU time between two servers comes from.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn explain(&self, servers: &[Entry; 2]) -> anyhow::Result<()> {
        let status = self.command("explain", servers)?.status();
        status.map(drop).context("cannot start an explanation")
    }

    fn command(&self, verb: &str, servers: &[Entry]) -> anyhow::Result<Command> {
        let mut command = Command::new(env::current_exe().context("hotlap has no path")?);
        command.args([verb, "--shell"]);
        command.args(self.duration.map(|time| format!("--duration={}ms", time.as_millis())));
        command.args(&self.options);
        for Entry { name, .. } in servers {
            command.args(["--name", name]);
        }
        for Entry { folder, .. } in servers {
            let folder = folder.to_string_lossy();
            command.arg(format!("cd {} && {}", shell_words::quote(&folder), self.run));
        }
        command.stdin(Stdio::null());
        Ok(command)
    }

    /// Returns the name of the measure in a report.
    fn key(&self) -> &'static str {
        match self.measure {
            BisectMeasure::Cost => "cost",
            BisectMeasure::Rps => "requests_per_s",
            BisectMeasure::P99 => "p99",
        }
    }
}

impl RaceReport {
    /// Returns a server's ratio to the reference. `None` if it is unknown.
    pub fn ratio(&self, name: &str) -> Option<Ratio> {
        let rows = self.report.pointer("/tables/0/rows")?.as_array()?;
        let row = rows.iter().find(|row| row["name"] == name)?;
        let found = &row["against"][self.key];
        let end = |end: &str| found["ratio"][end].as_f64();
        Some(Ratio {
            ends: [end("value")?, end("low")?, end("high")?],
            is_different: found["verdict"] == "better" || found["verdict"] == "worse",
        })
    }

    /// Returns why a server failed. `None` if it did not.
    pub fn failure(&self, name: &str) -> Option<String> {
        let failed = self.report["failed"].as_array()?;
        let own = failed.iter().find(|failed| failed["name"] == name)?;
        Some(own["cause"].as_str().unwrap_or_default().to_owned())
    }
}

impl Ratio {
    /// Returns the ratio of a commit to its parent, given the step between the two.
    pub fn of(step: &Step) -> Self {
        let end = |errors: f64| (step.size + errors * step.error).exp();
        Self { ends: [end(0.0), end(-NORMAL_95), end(NORMAL_95)], is_different: true }
    }

    /// Returns the ratio as a level of the commit at a place. Its standard error follows from the
    /// interval, which is wider than of a normal distribution if there were few restarts.
    pub fn reading(&self, place: usize) -> LevelReading {
        let [level, low, high] = self.ends.map(f64::ln);
        LevelReading { place, level, error: (high - low) / (2.0 * NORMAL_95) }
    }
}

/// Returns the path of the report within the folder of a bisection.
pub fn export(folder: &Path) -> PathBuf {
    folder.join("race.json")
}
