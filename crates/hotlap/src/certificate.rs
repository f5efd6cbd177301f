//! The certificate of a machine: how small a difference runs on the machine can find.
//!
//! `hotlap selftest --power` measures this difference in trials with servers whose differences are
//! known. Reports of later runs on the same machine cite the certificate.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context;
use hotlap_stats::{Estimate, median, proportion};
use serde::{Deserialize, Serialize};

use crate::model::{PlantedDifference, PowerCertificate};
use crate::paths;
use crate::text::number;

/// The planted differences: how much more CPU time per request each planted server of a trial
/// needs, in per cent.
pub const PLANTED_PERCENT: [u32; 3] = [1, 3, 10];

/// The number of measurements of the A/A control per measurement of a server. The ceiling is left
/// out, because it is measured only once per restart.
const CONTROL: f64 = 0.25;

/// Returns the duration of a run of this many servers, the reference included, as a multiple of the
/// time that each server gets.
pub fn time_shares(servers: usize) -> f64 {
    servers as f64 + CONTROL
}

/// The result of one trial, in CPU time per request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PowerTrial {
    /// Whether the server that costs as much as the reference was called different.
    pub is_false_alarm: bool,
    /// Whether each planted server got the verdict that it costs more, in the order of
    /// [`PLANTED_PERCENT`].
    pub is_found: [bool; 3],
    /// The ratio of each planted server to the reference. `None` if it is unknown.
    pub ratios: [Option<f64>; 3],
    /// The smallest difference that would have got a verdict, as a share. `None` if not even a
    /// difference of 50% would have got one.
    pub smallest: Option<f64>,
    /// The noise floor, as a share. `None` if it is unknown.
    pub noise: Option<f64>,
}

/// The trials on a machine, as stored on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trials {
    /// The version of hotlap.
    pub hotlap: String,
    /// The fingerprint of the machine.
    pub machine: String,
    /// The `--duration`, in seconds, of a run in which two servers get as much time as each pair in
    /// the trials.
    pub pair_s: f64,
    /// How many more iterations of work each planted server does per request.
    pub rounds: [u64; 3],
    /// The end of the last trial, in milliseconds since 1970 (UTC).
    pub made_ms: u64,
    /// The trials.
    pub trials: Vec<PowerTrial>,
}

impl Trials {
    /// Reads the interrupted trials of this machine, if they have the same version and duration.
    pub fn unfinished(setting: &Self) -> anyhow::Result<Option<Self>> {
        let found = read(&Self::file(&setting.machine, "unfinished.json")?);
        let is_same = |found: &Self| {
            (&found.hotlap, &found.machine) == (&setting.hotlap, &setting.machine)
                && found.pair_s.total_cmp(&setting.pair_s).is_eq()
        };
        Ok(found.filter(is_same))
    }

    fn file(machine: &str, end: &str) -> anyhow::Result<PathBuf> {
        let folder = paths::data().context(
            "hotlap cannot store the certificate, because neither HOME nor XDG_DATA_HOME is set: \
             set one of them to a folder",
        )?;
        Ok(folder.join(format!("certificate-{machine}.{end}")))
    }

    /// Stores the trials on disk. If the trials are interrupted before [`Self::finish`], the next
    /// `hotlap selftest --power` continues them.
    ///
    /// # Errors
    /// Fails if the file cannot be written, or if neither `HOME` nor `XDG_DATA_HOME` is set.
    pub fn keep(&self) -> anyhow::Result<()> {
        let file = Self::file(&self.machine, "unfinished.json")?;
        let write = || -> io::Result<()> {
            file.parent().map_or(Ok(()), fs::create_dir_all)?;
            paths::replace(&file, &serde_json::to_vec(self)?)
        };
        write().with_context(|| format!("cannot write the trials to {}", file.display()))
    }

    /// Turns the trials into the machine's certificate, which replaces an earlier one.
    ///
    /// # Errors
    /// Fails if the file cannot be renamed, or if neither `HOME` nor `XDG_DATA_HOME` is set.
    pub fn finish(&self) -> anyhow::Result<()> {
        let [from, to] = ["unfinished.json", "json"].map(|end| Self::file(&self.machine, end));
        let (from, to) = (from?, to?);
        fs::rename(&from, &to).with_context(|| format!("cannot write {}", to.display()))
    }

    /// Returns the certificate that follows from the trials.
    pub fn certificate(&self) -> PowerCertificate {
        let count = |is: &dyn Fn(&PowerTrial) -> bool| {
            self.trials.iter().filter(|trial| is(trial)).count() as u32
        };
        let middle = |value: &dyn Fn(&PowerTrial) -> Option<f64>| {
            median(&self.trials.iter().filter_map(value).collect::<Vec<_>>())
        };
        let planted = |(at, percent): (usize, u32)| PlantedDifference {
            percent,
            ratio: middle(&|trial| trial.ratios[at]),
            found: count(&|trial| trial.is_found[at]),
        };
        let smallest = self.trials.iter().map(|trial| trial.smallest.unwrap_or(f64::INFINITY));
        PowerCertificate {
            made_ms: self.made_ms,
            hotlap: self.hotlap.clone(),
            pair_s: self.pair_s,
            trials: self.trials.len() as u32,
            false_alarms: count(&|trial| trial.is_false_alarm),
            planted: (0..).zip(PLANTED_PERCENT).map(planted).collect(),
            smallest: nine_in_ten(smallest).filter(|share| share.is_finite()),
            noise: middle(&|trial| trial.noise),
        }
    }
}

/// Reads trials. `None` if the file cannot be read, or has the format of another version.
fn read(file: &Path) -> Option<Trials> {
    serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
}

/// Returns the value that nine in ten values do not exceed. `None` without values.
pub fn nine_in_ten(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() * 9).div_ceil(10);
    sorted.get(at.checked_sub(1)?).copied()
}

impl PowerCertificate {
    /// Returns the certificate of the machine with this fingerprint. `None` if the machine has
    /// none.
    pub fn of_machine(fingerprint: &str) -> Option<Self> {
        let trials = read(&Trials::file(fingerprint, "json").ok()?)?;
        Some(trials.certificate())
    }

    /// Returns the smallest difference in CPU time per request that 9 of 10 runs of another
    /// duration find, as a share. The runs have this many servers, the reference included, each
    /// under this many loads. The error of a figure is inversely proportional to the square root of
    /// the time that it gets.
    pub fn smallest_in(&self, duration_s: f64, servers: usize, loads: usize) -> Option<f64> {
        let own_s = duration_s / time_shares(servers) / loads as f64;
        Some(self.smallest? * (self.pair_s / time_shares(2) / own_s).sqrt())
    }

    /// The day of the last trial, such as `2026-11-27`.
    pub fn day(&self) -> String {
        number::utc(self.made_ms)[..10].to_owned()
    }

    /// Formats a number of trials, with the interval of its share in all trials.
    fn share(&self, count: u32) -> String {
        let Estimate { low, high, .. } = proportion(count, self.trials);
        let [low, high] = [low, high].map(|share| number::grouped(100.0 * share, 0));
        format!("{count} of {} [{low}%, {high}%]", self.trials)
    }

    /// Returns the certificate in words, with one line for each finding.
    pub fn lines(&self) -> Vec<String> {
        let first = format!(
            "Verdicts on CPU time per request in runs of two servers, --duration {}s:",
            number::grouped(self.pair_s, 0)
        );
        let equal = format!("equal servers: called different in {}", self.share(self.false_alarms));
        let planted = self.planted.iter().map(|planted| {
            let ratio = planted.ratio.map_or_else(
                || "no figure".to_owned(),
                |ratio| format!("median {}×", number::grouped(ratio, 3)),
            );
            format!("{}% more: found in {}, {ratio}", planted.percent, self.share(planted.found))
        });
        let smallest = match self.smallest {
            Some(share) => {
                format!(
                    "smallest difference found in 9 of 10 runs: {}",
                    number::percent(100.0 * share)
                )
            }
            None => "smallest difference found in 9 of 10 runs: none up to 50%".to_owned(),
        };
        let noise =
            self.noise.map(|noise| format!("median noise floor: {}", number::spread(noise)));
        [first, equal].into_iter().chain(planted).chain([smallest]).chain(noise).collect()
    }

    /// Returns the sentences that cite the certificate in a report. The noise floor of the trials
    /// is cited only if `noise`, the noise floor of the run, is known.
    pub fn cited(&self, noise: Option<f64>) -> String {
        let finds = match self.smallest {
            Some(share) => {
                format!("9 of 10 runs find a difference of {}", number::percent(100.0 * share))
            }
            None => "fewer than 9 of 10 runs find even a difference of 50%".to_owned(),
        };
        let change = match (self.noise, noise) {
            (Some(before), Some(_)) => {
                format!(" The median noise floor of the trials was {}.", number::spread(before))
            }
            _ => String::new(),
        };
        format!(
            "Certificate of {}: in {} s for two servers, {finds} in CPU per request. {} of {} \
             trials had a false alarm.{change}",
            self.day(),
            number::grouped(self.pair_s, 0),
            self.false_alarms,
            self.trials
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trials(count: usize) -> Trials {
        let trial = |number: usize| PowerTrial {
            is_false_alarm: number == 0,
            is_found: [number.is_multiple_of(2), number > 0, true],
            ratios: [Some(1.01), Some(1.031), None],
            smallest: (number > 0).then_some(0.01 + number as f64 / 1e3),
            noise: Some(0.004),
        };
        Trials {
            hotlap: "0.1.0".to_owned(),
            machine: "abc".to_owned(),
            pair_s: 60.0,
            rounds: [1, 3, 10],
            made_ms: 1_795_737_600_000,
            trials: (0..count).map(trial).collect(),
        }
    }

    #[test]
    fn a_certificate_in_words() {
        let certificate = trials(20).certificate();
        insta::assert_snapshot!(certificate.lines().join("\n"), @"
        Verdicts on CPU time per request in runs of two servers, --duration 60s:
        equal servers: called different in 1 of 20 [1%, 24%]
        1% more: found in 10 of 20 [30%, 70%], median 1.010×
        3% more: found in 19 of 20 [76%, 99%], median 1.031×
        10% more: found in 20 of 20 [84%, 100%], no figure
        smallest difference found in 9 of 10 runs: 2.8%
        median noise floor: ± 0.4%
        ");
        insta::assert_snapshot!(certificate.cited(Some(0.013)), @"Certificate of 2026-11-27: in 60 s for two servers, 9 of 10 runs find a difference of 2.8% in CPU per request. 1 of 20 trials had a false alarm. The median noise floor of the trials was ± 0.4%.");
    }

    #[test]
    fn without_verdicts_in_two_of_ten_trials_no_difference_is_found() {
        let mut trials = trials(10);
        trials.trials[1].smallest = None;
        let certificate = trials.certificate();
        assert_eq!(certificate.smallest, None);
        assert!(certificate.cited(None).contains("fewer than 9 of 10 runs find"));
    }

    #[test]
    fn four_times_the_time_halves_the_smallest_difference() {
        let certificate = PowerCertificate { smallest: Some(0.02), ..trials(1).certificate() };
        assert_eq!(certificate.smallest_in(240.0, 2, 1), Some(0.01));
        assert_eq!(certificate.smallest_in(60.0, 2, 1), Some(0.02));
        assert_eq!(certificate.smallest_in(120.0, 2, 2), Some(0.02));
    }

    #[test]
    fn nine_in_ten_values_are_not_exceeded() {
        assert_eq!(nine_in_ten((1..=10).map(f64::from)), Some(9.0));
        assert_eq!(nine_in_ten((1..=20).map(f64::from)), Some(18.0));
        assert_eq!(nine_in_ten(std::iter::once(3.0)), Some(3.0));
        assert_eq!(nine_in_ten(std::iter::empty()), None);
    }
}
