//! One race: a run of several versions, in another process of hotlap. Its report is read as JSON.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use anyhow::Context;
use hotlap_stats::{LevelReading, VersionStep};
use serde_json::Value;

use super::UnlessInterrupted;
use super::repository::finish;
use super::session::SessionFolder;
use crate::cli::{RaceArgs, RacedMeasure};
use crate::exit::{Exit, usage};
use crate::interrupt::Interrupt;
use crate::report::timeline::Ratio;

/// The number of standard errors on each side of an estimate in a 95% interval.
const NORMAL_95: f64 = 1.96;

/// A server of a race.
#[derive(Debug)]
pub struct RaceServer {
    /// The name in the report.
    pub name: String,
    /// The folder in which the server starts.
    pub folder: PathBuf,
    /// The shell command that starts the server.
    pub run: String,
}

/// The settings of all races.
#[derive(Debug)]
pub struct Races<'a> {
    /// Global options of this process that races get, too, such as `--redact`.
    pub passed_on: &'a [String],
    /// Further options of `hotlap run`.
    pub options: Vec<String>,
    /// The measuring time. `None` means the default of `hotlap run`.
    pub duration: Option<Duration>,
    /// The figure that is compared.
    pub measure: RacedMeasure,
    /// The file to which reports are exported.
    pub export: PathBuf,
}

/// The report of a race.
#[derive(Debug)]
pub struct RaceReport {
    report: Value,
    key: &'static str,
}

impl<'a> Races<'a> {
    /// Returns the settings that the user asked for. Reports are exported to the folder of the
    /// session.
    ///
    /// # Errors
    /// The further options cannot be split into words.
    pub fn of(args: &'a RaceArgs, folder: &SessionFolder) -> anyhow::Result<Self> {
        let options = shell_words::split(args.options.as_deref().unwrap_or_default())
            .or_else(|why| usage(format!("--options: {why}")))?;
        let export = folder.path().join("race.json");
        let RaceArgs { passed_on, duration, measure, .. } = args;
        Ok(Self { passed_on, options, duration: *duration, measure: *measure, export })
    }

    /// Measures the servers in one run. The first one is the reference.
    ///
    /// # Errors
    /// The run failed for a reason other than a server.
    pub fn race(
        &self,
        servers: &[RaceServer],
        interrupt: &Interrupt,
    ) -> anyhow::Result<UnlessInterrupted<RaceReport>> {
        let _ = fs::remove_file(&self.export);
        let mut command = self.command("run", servers)?;
        command.args(["--no-ceiling", "--reference", &servers[0].name]);
        command.arg("--export-json").arg(&self.export).stdout(Stdio::null());
        let status = finish(&mut command, interrupt).context("cannot start a race")?;
        let is = |exit: Exit| status.code() == Some(i32::from(exit as u8));
        if interrupt.asked() || is(Exit::Interrupted) {
            return Ok(UnlessInterrupted::Interrupted);
        }
        if status.code().is_none() {
            anyhow::bail!("a race was killed ({status})");
        }
        if is(Exit::Usage) || is(Exit::Error) {
            anyhow::bail!("a race failed ({status}). Its error is printed above");
        }
        let text = fs::read_to_string(&self.export);
        let text =
            text.with_context(|| format!("a race did not write {}", self.export.display()))?;
        let report = serde_json::from_str(&text).context("the report of a race is not JSON")?;
        Ok(UnlessInterrupted::Done(RaceReport { report, key: self.measure.key() }))
    }

    /// Prints where the difference in CPU time between two servers comes from.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn explain(&self, servers: &[RaceServer; 2], interrupt: &Interrupt) -> anyhow::Result<()> {
        let status = finish(&mut self.command("explain", servers)?, interrupt);
        status.map(drop).context("cannot start `hotlap explain`")
    }

    fn command(&self, verb: &str, servers: &[RaceServer]) -> anyhow::Result<Command> {
        let mut command = Command::new(env::current_exe().context("cannot find hotlap's path")?);
        command.args([verb, "--shell"]).args(self.passed_on);
        command.args(self.duration.map(|time| format!("--duration={}ms", time.as_millis())));
        command.args(&self.options);
        for RaceServer { name, .. } in servers {
            command.args(["--name", name]);
        }
        for RaceServer { folder, run, .. } in servers {
            let folder = folder.to_string_lossy();
            // `run` may be a list of commands. None of them may run in another folder.
            command.arg(format!("cd {} || exit 1\n{run}", shell_words::quote(&folder)));
        }
        command.stdin(Stdio::null());
        Ok(command)
    }
}

impl RaceReport {
    fn row(&self, name: &str) -> Option<&Value> {
        let rows = self.report.pointer("/tables/0/rows")?.as_array()?;
        rows.iter().find(|row| row["name"] == name)
    }

    /// Returns a server's ratio to the reference. `None` if the ratio or its interval is unknown.
    pub fn ratio(&self, name: &str) -> Option<Ratio> {
        let ratio = &self.row(name)?["against"][self.key]["ratio"];
        let end = |end: &str| ratio[end].as_f64();
        let ends = [end("value")?, end("low")?, end("high")?];
        // Without an interval, the ratio says nothing about its error.
        (ends[1] > 0.0 && ends[1] < ends[2]).then_some(Ratio { ends })
    }

    /// Returns a server's verdict in words. `None` if the server was not compared.
    pub fn words(&self, name: &str) -> Option<&str> {
        self.row(name)?["against"][self.key]["words"].as_str()
    }

    /// Returns why a server failed. `None` if the server did not fail.
    pub fn failure(&self, name: &str) -> Option<String> {
        let failed = self.report["failed"].as_array()?;
        let own = failed.iter().find(|failed| failed["name"] == name)?;
        Some(own["cause"].as_str().unwrap_or_default().to_owned())
    }
}

impl Ratio {
    /// Returns the ratio of two versions with its 95% interval, given the step between the
    /// versions.
    pub fn of(step: &VersionStep) -> Self {
        let end = |errors: f64| (step.size + errors * step.error).exp();
        Self { ends: [end(0.0), end(-NORMAL_95), end(NORMAL_95)] }
    }

    /// Returns the ratio as the level of the version at a place. The standard error is derived from
    /// the interval. If there were few restarts, the error is therefore overestimated.
    pub fn reading(&self, place: usize) -> LevelReading {
        let [level, low, high] = self.ends.map(f64::ln);
        LevelReading { place, level, error: (high - low) / (2.0 * NORMAL_95) }
    }
}
