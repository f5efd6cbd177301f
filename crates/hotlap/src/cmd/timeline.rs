//! `hotlap timeline`: measures many versions of a server on one scale, and names the steps.
//!
//! Each race measures the oldest and the newest version together with up to three versions that
//! were not measured before, so all races have the same scale. Results are stored by version. A
//! later timeline with a new version measures only that version, next to the oldest version and
//! the version that was newest before.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::PathBuf;

use anyhow::Context;
use hotlap_stats::{LevelReading, VersionStep};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::versions::UnlessInterrupted;
use super::versions::race::{RaceServer, Races};
use super::versions::repository::{Commit, CommitBuilder, Repository};
use super::versions::session::SessionFolder;
use crate::cli::{RaceArgs, TimelineArgs};
use crate::console::Console;
use crate::exit::{Exit, server_failed, usage};
use crate::export::Exports;
use crate::interrupt::Interrupt;
use crate::paths;
use crate::render;
use crate::report::timeline::{Ratio, TimelineView, VersionRatio};
use crate::text::layout;

/// The largest number of versions that a race measures for the first time, except for the two
/// ends.
const GROUP: usize = 3;

/// The smallest step that is named, as a share.
const LEAST: f64 = 0.01;

/// The place of a version in the command that starts it.
const PLACE: &str = "{version}";

/// Carries out `hotlap timeline`.
pub fn run(args: &TimelineArgs, console: &Console) -> anyhow::Result<Exit> {
    let interrupt = Interrupt::listen()?;
    let source = Source::of(args)?;
    let RaceArgs { build, run, options, measure, .. } = &args.race;
    let place = source.folder()?;
    let identity = format!("{:?}", (place, source.versions[0].key(), build, run, options, measure));
    let folder = SessionFolder::open(&paths::cache()?.join("timeline"), &identity)?;
    let races = Races::of(&args.race, &folder)?;
    let mut exports = Exports::default();
    exports.add(args.export_html.as_deref(), render::timeline_page)?;
    let state = if args.again { State::default() } else { folder.read()? };
    let failed = BTreeMap::new();
    let mut timeline = Timeline { args, console, interrupt, source, races, folder, state, failed };
    let UnlessInterrupted::Done(()) = timeline.measure()? else { return Ok(Exit::Interrupted) };
    timeline.clean()?;
    let view = timeline.view();
    // A closed pipe must not prevent an export, and a full disk must not prevent output.
    let printed = match args.json {
        true => console.json(&timeline.json()),
        false => console.print(&timeline.text(&view)).map_err(Into::into),
    };
    exports.finish(&view)?;
    printed?;
    Ok(if timeline.levels().len() > 1 { Exit::Ok } else { Exit::Invalid })
}

/// A version of a server.
#[derive(Debug)]
struct Version {
    name: String,
    /// The commit. `None` for a version that the command itself obtains.
    commit: Option<Commit>,
}

impl Version {
    /// Returns the key that distinguishes the version from others.
    fn key(&self) -> &str {
        self.commit.as_ref().map_or(&self.name, |commit| &commit.hash)
    }
}

/// The versions, oldest first, and where they come from.
struct Source {
    repository: Option<Repository>,
    versions: Vec<Version>,
}

impl Source {
    fn of(args: &TimelineArgs) -> anyhow::Result<Self> {
        let Some(range) = &args.range else {
            if !args.race.run.contains(PLACE) {
                return usage(format!("--run has no {PLACE}, so all versions would be the same"));
            }
            if args.versions.len() < 2 {
                return usage("--versions has only one version: give at least two");
            }
            let mut names = BTreeSet::new();
            if let Some(twice) = args.versions.iter().find(|name| !names.insert(*name)) {
                return usage(format!("--versions has {twice} twice: give each version once"));
            }
            let version = |name: &String| Version { name: name.clone(), commit: None };
            let versions = args.versions.iter().map(version).collect();
            return Ok(Self { repository: None, versions });
        };
        let ends = range.split_once("..").filter(|(first, _)| !first.is_empty());
        let Some((first, last)) = ends else {
            return usage(format!("{range} is not a range: write v1.0..HEAD"));
        };
        let repository = Repository::open()?;
        let tags = repository.tags(first, if last.is_empty() { "HEAD" } else { last })?;
        let version = |(name, commit)| Version { name, commit: Some(commit) };
        let versions = tags.into_iter().map(version).collect();
        Ok(Self { repository: Some(repository), versions })
    }

    /// Returns the folder in which hotlap was started.
    fn folder(&self) -> anyhow::Result<PathBuf> {
        match &self.repository {
            Some(repository) => Ok(repository.root.join(repository.inside())),
            None => env::current_dir().context("cannot find the current folder"),
        }
    }
}

/// The measurements that are kept between timelines.
#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    /// The measurements of each version, by key.
    readings: BTreeMap<String, Vec<LevelReading>>,
}

struct Timeline<'a> {
    args: &'a TimelineArgs,
    console: &'a Console,
    interrupt: Interrupt,
    source: Source,
    races: Races<'a>,
    folder: SessionFolder,
    state: State,
    /// Why versions could not be measured.
    failed: BTreeMap<usize, String>,
}

impl Timeline<'_> {
    /// Races versions until all of them are measured.
    fn measure(&mut self) -> anyhow::Result<UnlessInterrupted<()>> {
        let last = self.source.versions.len() - 1;
        let newest = (1..=last).rev().find(|place| self.is_measured(*place));
        if (1..=last).all(|place| self.is_measured(place)) {
            self.console.note("All versions were measured before. --again measures them again.");
        }
        loop {
            let is_open =
                |place: &usize| !self.is_measured(*place) && !self.failed.contains_key(place);
            let open: Vec<usize> = (1..=last).filter(is_open).take(GROUP).collect();
            if open.is_empty() {
                return Ok(UnlessInterrupted::Done(()));
            }
            let ends = [Some(0), newest, Some(last)].into_iter().flatten();
            let group: BTreeSet<usize> =
                ends.filter(|place| !self.failed.contains_key(place)).chain(open).collect();
            match self.build(&group)? {
                UnlessInterrupted::Interrupted => return Ok(UnlessInterrupted::Interrupted),
                // Another version takes the place of a version that does not build.
                UnlessInterrupted::Done(false) => {}
                UnlessInterrupted::Done(true) => {
                    if let UnlessInterrupted::Interrupted = self.race(&group)? {
                        return Ok(UnlessInterrupted::Interrupted);
                    }
                }
            }
        }
    }

    fn is_measured(&self, place: usize) -> bool {
        self.state.readings.contains_key(self.source.versions[place].key())
    }

    /// Builds some versions. Returns whether all of them can be raced.
    fn build(&mut self, group: &BTreeSet<usize>) -> anyhow::Result<UnlessInterrupted<bool>> {
        let Some(repository) = &self.source.repository else {
            return Ok(UnlessInterrupted::Done(true));
        };
        let builder = CommitBuilder {
            repository,
            folder: &self.folder,
            command: self.args.race.build.as_deref(),
            interrupt: &self.interrupt,
            console: self.console,
        };
        for place in group {
            let version = &self.source.versions[*place];
            let Some(commit) = &version.commit else { continue };
            match builder.build(commit)? {
                UnlessInterrupted::Interrupted => return Ok(UnlessInterrupted::Interrupted),
                UnlessInterrupted::Done(None) => {}
                UnlessInterrupted::Done(Some(why)) if *place == 0 => {
                    let name = &version.name;
                    return server_failed(format!("{name} is needed for each race, but {why}"));
                }
                UnlessInterrupted::Done(Some(why)) => {
                    self.failed.insert(*place, why);
                    return Ok(UnlessInterrupted::Done(false));
                }
            }
        }
        Ok(UnlessInterrupted::Done(true))
    }

    /// Races some versions, and stores the measurements.
    fn race(&mut self, group: &BTreeSet<usize>) -> anyhow::Result<UnlessInterrupted<()>> {
        let names: Vec<&str> =
            group.iter().map(|place| &self.source.versions[*place].name[..]).collect();
        self.console.note(&format!("Race: {}", names.join(", ")));
        let servers: Vec<RaceServer> =
            group.iter().map(|place| self.entry(*place)).collect::<anyhow::Result<_>>()?;
        let UnlessInterrupted::Done(report) = self.races.race(&servers, &self.interrupt)? else {
            return Ok(UnlessInterrupted::Interrupted);
        };
        for &place in group {
            let version = &self.source.versions[place];
            match (report.failure(&version.name), report.ratio(&version.name)) {
                (Some(why), _) if place == 0 => {
                    let name = &version.name;
                    return server_failed(format!("the server of {name} failed: {why}"));
                }
                (None, _) if place == 0 => {}
                (None, Some(ratio)) => {
                    let own = self.state.readings.entry(version.key().to_owned()).or_default();
                    own.push(ratio.reading(place));
                }
                (why, _) => {
                    let words = || report.words(&version.name).unwrap_or("no figure").to_owned();
                    self.failed.insert(place, why.unwrap_or_else(words));
                }
            }
        }
        self.folder.write(&self.state)?;
        Ok(UnlessInterrupted::Done(()))
    }

    /// Returns a version as a server of a race.
    fn entry(&self, place: usize) -> anyhow::Result<RaceServer> {
        let Version { name, commit } = &self.source.versions[place];
        let folder = match (commit, &self.source.repository) {
            (Some(commit), Some(repository)) => {
                self.folder.worktree(commit).join(repository.inside())
            }
            _ => self.source.folder()?,
        };
        let run = self.args.race.run.replace(PLACE, &shell_words::quote(name));
        Ok(RaceServer { name: name.clone(), folder, run })
    }

    /// Returns the levels of all versions that were measured, relative to the oldest one.
    fn levels(&self) -> Vec<(usize, VersionStep)> {
        let level = |place: usize| {
            if place == 0 {
                return Some((0, VersionStep::measured(0.0, 0.0)));
            }
            let readings = self.state.readings.get(self.source.versions[place].key())?;
            Some((place, VersionStep::mean(readings)?))
        };
        (0..self.source.versions.len()).filter_map(level).collect()
    }

    /// Returns the certain steps between measured versions: both places, and the change.
    fn steps(&self) -> Vec<(usize, usize, VersionStep)> {
        let levels = self.levels();
        let change = |two: &[(usize, VersionStep)]| {
            let (before, after) = (two[0].1, two[1].1);
            let (size, error) = (after.size - before.size, after.error.hypot(before.error));
            (two[0].0, two[1].0, VersionStep::measured(size, error))
        };
        let is_step = |(_, _, step): &(usize, usize, VersionStep)| {
            step.is_certain() && step.size.abs() > LEAST.ln_1p()
        };
        levels.windows(2).map(change).filter(is_step).collect()
    }

    /// Returns the versions that were measured, and sentences about the steps.
    fn view(&self) -> TimelineView {
        let name = |place: usize| self.source.versions[place].name.clone();
        let measure = self.args.race.measure.words();
        let version = |(place, level)| VersionRatio { name: name(place), ratio: Ratio::of(&level) };
        let versions = self.levels().into_iter().map(version);
        let steps = self.steps();
        let mut sentences: Vec<String> = steps
            .iter()
            .map(|(before, after, step)| {
                let (after, before, ratio) = (name(*after), name(*before), Ratio::of(step));
                format!("{after} has {ratio} the {measure} of {before}.")
            })
            .collect();
        if steps.is_empty() {
            let none = match self.levels().len() {
                0 | 1 => "Fewer than two versions were measured.",
                _ => "No version certainly differs by over 1% from the version before it.",
            };
            sentences.push(none.to_owned());
        }
        let failed = self.failed.iter();
        sentences.extend(
            failed.map(|(place, why)| format!("{} could not be measured: {why}.", name(*place))),
        );
        TimelineView {
            measure: measure.to_owned(),
            reference: name(0),
            versions: versions.collect(),
            sentences,
        }
    }

    /// Returns the timeline as a table with a chart, and sentences.
    fn text(&self, view: &TimelineView) -> String {
        let table = layout::lines(&view.table_with_chart(), self.console.width);
        let mut lines: Vec<String> = table.all().map(ToString::to_string).collect();
        lines.push(String::new());
        lines.extend(view.sentences.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn json(&self) -> Value {
        let ratio = |step: &VersionStep| {
            let [value, low, high] = Ratio::of(step).ends;
            json!({ "value": value, "low": low, "high": high })
        };
        let levels: BTreeMap<usize, VersionStep> = self.levels().into_iter().collect();
        let name = |place: usize| &self.source.versions[place].name;
        let version = |(place, version): (usize, &Version)| {
            json!({
                "name": version.name,
                "commit": version.commit.as_ref().map(|commit| &commit.hash),
                "ratio": levels.get(&place).map(ratio),
                "failure": self.failed.get(&place),
            })
        };
        let step = |(before, after, change): &(usize, usize, VersionStep)| {
            let (from, to) = (name(*before), name(*after));
            json!({ "from": from, "to": to, "ratio": ratio(change) })
        };
        let versions = self.source.versions.iter().enumerate();
        json!({
            "measure": self.args.race.measure.key(),
            "reference": name(0),
            "versions": versions.map(version).collect::<Vec<_>>(),
            "steps": self.steps().iter().map(step).collect::<Vec<_>>(),
        })
    }

    /// Removes the worktrees, but keeps the measurements.
    fn clean(&self) -> anyhow::Result<()> {
        if let Some(repository) = &self.source.repository {
            let commits = self.source.versions.iter().filter_map(|v| v.commit.as_ref());
            for commit in commits {
                self.folder.set_built(commit, false)?;
                repository.remove(&self.folder.worktree(commit));
            }
        }
        Ok(())
    }
}
