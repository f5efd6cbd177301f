//! `hotlap bisect`: finds the commit that changed a figure.
//!
//! The first races measure only the good and the bad commit. Each later race also measures up to
//! two others. All races therefore have the same scale, and the machine's drift cancels.
//! [`hotlap_stats::Steps`] turns the races into a probability for each commit, and chooses the
//! commits of the next race. The session is stored after each build and race, so an interrupted
//! bisection continues after the last of them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use hotlap_stats::{LevelReading, Steps, VersionStep};
use serde::{Deserialize, Serialize};

use super::versions::UnlessInterrupted;
use super::versions::race::{RaceReport, RaceServer, Races};
use super::versions::repository::{Commit, CommitBuilder, Repository};
use super::versions::session::SessionFolder;
use crate::cli::{BisectArgs, RaceArgs};
use crate::console::Console;
use crate::exit::{Exit, server_failed, usage};
use crate::interrupt::Interrupt;
use crate::paths;
use crate::report::timeline::Ratio;
use crate::text::number::plural;

/// The name of the good commit in races.
const GOOD: &str = "good";

/// The name of the bad commit in races.
const BAD: &str = "bad";

/// The largest number of races of only the good and the bad commit. If the two commits still do not
/// differ, there is nothing to find.
const FIRST_RACES: u32 = 3;

/// Higher probabilities are shown as "over" this probability, because the model is not exact.
const MOST_SURE: f64 = 0.999;

/// Carries out `hotlap bisect`.
pub fn run(args: &BisectArgs, console: &Console) -> anyhow::Result<Exit> {
    if !(0.5..1.0).contains(&args.probability) {
        return usage("--probability must be at least 50% and below 100%");
    }
    let interrupt = Interrupt::listen()?;
    let repository = Repository::open()?;
    let commits = repository.commits(&args.good, &args.bad, &args.paths)?;
    // Longer races, more of them, or another probability continue the same bisection.
    let RaceArgs { build, run, options, measure, .. } = &args.race;
    let place = (&repository.root, repository.inside());
    let identity = format!("{:?}", (place, &commits, build, run, options, measure));
    let folder = SessionFolder::open(&paths::cache()?.join("bisect"), &identity)?;
    let races = Races::of(&args.race, &folder)?;
    let state = State { broken: BTreeSet::new(), ..folder.read()? };
    if state.races > 0 {
        let races = plural(state.races as usize, "race");
        console.note(&format!("Continuing the bisection after {races}."));
    }
    let mut bisection =
        Bisection { args, console, interrupt, repository, commits, races, folder, state };
    let found = bisection.find();
    match &found {
        Ok(Exit::Ok) => bisection.clean(),
        _ => console.note(&format!(
            "To continue the bisection, repeat the command. To drop its builds, remove {} and run \
             `git worktree prune`.",
            bisection.folder.path().display()
        )),
    }
    found
}

/// The state of a bisection. Commits are numbered from the good one, which has place 0.
#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    /// The number of races so far.
    races: u32,
    /// The commits that do not build, or whose servers fail. They are tried again when an
    /// interrupted bisection continues.
    broken: BTreeSet<usize>,
    /// The measurements of the races.
    readings: Vec<LevelReading>,
}

struct Bisection<'a> {
    args: &'a BisectArgs,
    console: &'a Console,
    interrupt: Interrupt,
    repository: Repository,
    /// The commits, from the good one to the bad one.
    commits: Vec<Commit>,
    races: Races<'a>,
    folder: SessionFolder,
    state: State,
}

impl Bisection<'_> {
    fn find(&mut self) -> anyhow::Result<Exit> {
        let last = self.last();
        self.console.note(&format!(
            "Searching the {} after {}, up to {}.",
            plural(last, "commit"),
            self.commits[0].short(),
            self.commits[last].short()
        ));
        for end in [0, last] {
            if let UnlessInterrupted::Interrupted = self.builds(end)? {
                return Ok(Exit::Interrupted);
            }
        }
        let (earlier, mut words) = (self.state.races, "--races allows no more races".to_owned());
        while Steps::of(last, &self.state.readings).is_none_or(|steps| !steps.whole().is_certain())
        {
            if self.state.races >= (earlier + FIRST_RACES).min(self.args.races) {
                self.console.print(&self.no_difference(&words))?;
                return Ok(Exit::Invalid);
            }
            let UnlessInterrupted::Done(report) = self.race(&[])? else {
                return Ok(Exit::Interrupted);
            };
            self.keep(&report, &[])?;
            words = report.words(BAD).unwrap_or("not known").to_owned();
            if let Some(ratio) = report.ratio(BAD) {
                self.console.note(&format!("  bad {} of good: {words}", self.in_words(&ratio)));
            }
        }
        loop {
            let steps = self.steps();
            let can = |place: usize| !self.state.broken.contains(&place);
            let next = steps.next(can, self.args.probability);
            let is_last = self.state.races + 1 >= self.args.races;
            let ended = match next.filter(|_| !is_last) {
                Some(places) => self.try_places(&places)?,
                None => self.confirm()?,
            };
            if let Some(exit) = ended {
                return Ok(exit);
            }
        }
    }

    /// Races these commits, if all of them build. Otherwise, races nothing, so that the caller
    /// can choose other commits. Returns the exit code if the bisection has ended.
    fn try_places(&mut self, places: &[usize]) -> anyhow::Result<Option<Exit>> {
        for place in places {
            match self.builds(*place)? {
                UnlessInterrupted::Interrupted => return Ok(Some(Exit::Interrupted)),
                UnlessInterrupted::Done(true) => {}
                UnlessInterrupted::Done(false) => return Ok(None),
            }
        }
        let UnlessInterrupted::Done(report) = self.race(places)? else {
            return Ok(Some(Exit::Interrupted));
        };
        self.keep(&report, places)?;
        self.show(&report, places);
        Ok(None)
    }

    fn last(&self) -> usize {
        self.commits.len() - 1
    }

    /// Returns the steps that the races have shown so far.
    fn steps(&self) -> Steps {
        let found = Steps::of(self.last(), &self.state.readings);
        found.expect("the bad commit is in every race")
    }

    /// Builds a commit, and returns whether the commit can be raced. It is an error if the good or
    /// the bad commit does not build.
    fn builds(&mut self, place: usize) -> anyhow::Result<UnlessInterrupted<bool>> {
        if self.state.broken.contains(&place) {
            return Ok(UnlessInterrupted::Done(false));
        }
        let builder = CommitBuilder {
            repository: &self.repository,
            folder: &self.folder,
            command: self.args.race.build.as_deref(),
            interrupt: &self.interrupt,
            console: self.console,
        };
        let UnlessInterrupted::Done(failure) = builder.build(&self.commits[place])? else {
            return Ok(UnlessInterrupted::Interrupted);
        };
        let is_built = failure.is_none();
        match failure {
            None => {}
            // Every race needs both ends. If an end does not build, its build is tried again the
            // next time.
            Some(why) if place == 0 || place == self.last() => {
                let name = self.commits[place].short();
                return server_failed(format!("{name} is needed for each race, but {why}"));
            }
            Some(why) => self.step_around(place, &why)?,
        }
        self.folder.write(&self.state)?;
        Ok(UnlessInterrupted::Done(is_built))
    }

    /// Excludes a commit from races. The change may still be in this commit.
    fn step_around(&mut self, place: usize, why: &str) -> anyhow::Result<()> {
        let commit = &self.commits[place];
        self.console.note(&format!("{} cannot be measured: {why}", commit.short()));
        self.state.broken.insert(place);
        self.folder.set_built(commit, false)
    }

    /// Races the good and the bad commit with some others.
    fn race(&mut self, places: &[usize]) -> anyhow::Result<UnlessInterrupted<RaceReport>> {
        let ends = [(GOOD, 0), (BAD, self.last())];
        let others = places.iter().map(|place| (self.commits[*place].short(), *place));
        let server = |(name, place): (&str, usize)| RaceServer {
            name: name.to_owned(),
            folder: self.start_folder(place),
            run: self.args.race.run.clone(),
        };
        let servers: Vec<RaceServer> = ends.into_iter().chain(others).map(server).collect();
        self.state.races += 1;
        let names: Vec<&str> = servers.iter().map(|server| &server.name[..]).collect();
        self.console.note(&format!("Race {}: {}", self.state.races, names.join(", ")));
        match self.races.race(&servers, &self.interrupt)? {
            UnlessInterrupted::Interrupted => Ok(UnlessInterrupted::Interrupted),
            UnlessInterrupted::Done(report) => {
                for end in [GOOD, BAD] {
                    if let Some(why) = report.failure(end) {
                        return server_failed(format!("the {end} commit's server failed: {why}"));
                    }
                }
                Ok(UnlessInterrupted::Done(report))
            }
        }
    }

    /// Adds the measurements of a race to the session. Excludes commits whose servers failed or
    /// have no figure.
    fn keep(&mut self, report: &RaceReport, places: &[usize]) -> anyhow::Result<()> {
        let last = self.last();
        self.state.readings.extend(report.ratio(BAD).map(|ratio| ratio.reading(last)));
        for &place in places {
            let name = self.commits[place].short().to_owned();
            match (report.failure(&name), report.ratio(&name)) {
                (Some(why), _) => self.step_around(place, &why)?,
                (None, Some(ratio)) => self.state.readings.push(ratio.reading(place)),
                (None, None) if report.ratio(BAD).is_some() => {
                    self.step_around(place, report.words(&name).unwrap_or("it has no figure"))?;
                }
                (None, None) => {}
            }
        }
        self.folder.write(&self.state)
    }

    /// Prints the result of a race, and the most likely commit.
    fn show(&self, report: &RaceReport, places: &[usize]) {
        let names = places.iter().map(|place| self.commits[*place].short()).chain([BAD]);
        let ratio = |name: &str| Some(format!("{name} {}", report.ratio(name)?));
        let ratios: Vec<String> = names.filter_map(ratio).collect();
        let found = match ratios.is_empty() {
            true => "The race has no figures, possibly because it had too few restarts.".to_owned(),
            false => format!("{} of good.", ratios.join(", ")),
        };
        let (places, probability) = self.likeliest();
        self.console.note(&format!(
            "  {found} Most likely: {} ({})",
            self.named(places),
            percent(probability)
        ));
    }

    /// Returns the places of the group that most likely has the change, and the probability.
    fn likeliest(&self) -> (std::ops::RangeInclusive<usize>, f64) {
        let can = |place: usize| !self.state.broken.contains(&place);
        let groups = self.steps().groups(can);
        groups.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("a group for the bad commit")
    }

    fn named(&self, places: std::ops::RangeInclusive<usize>) -> String {
        let (first, last) = (&self.commits[*places.start()], &self.commits[*places.end()]);
        match places.count() {
            1 => last.short().to_owned(),
            count => format!("one of the {count} commits {} to {}", first.short(), last.short()),
        }
    }

    /// Races the most likely commit and the one before from fresh starts. If the commit is still
    /// likely enough, or if no races are left, prints the result. Returns the exit code if the
    /// bisection has ended.
    fn confirm(&mut self) -> anyhow::Result<Option<Exit>> {
        let (places, _) = self.likeliest();
        let named = self.named(places.clone());
        self.console.note(&format!("The next race tests {named} again, from fresh starts."));
        let pair = [places.start() - 1, *places.end()];
        let others: Vec<usize> =
            pair.into_iter().filter(|place| (1..self.last()).contains(place)).collect();
        let ended = self.try_places(&others)?;
        if ended.is_some() {
            return Ok(ended);
        }
        let (places, probability) = self.likeliest();
        let is_sure = probability >= self.args.probability;
        // A commit that does not build was not raced, so its group has grown.
        let is_raced = !others.iter().any(|place| self.state.broken.contains(place));
        if self.state.races < self.args.races && !(is_sure && is_raced) {
            return Ok(None);
        }
        let step = self.steps().at(*places.end());
        self.console.print(&self.verdict(places.clone(), probability, &step))?;
        if self.args.explain && is_sure {
            self.explain(&places)?;
        }
        Ok(Some(if is_sure { Exit::Ok } else { Exit::Invalid }))
    }

    /// Returns the result of the bisection as sentences.
    fn verdict(
        &self,
        places: std::ops::RangeInclusive<usize>,
        probability: f64,
        step: &VersionStep,
    ) -> String {
        let (commit, found) = (&self.commits[*places.end()], places.clone());
        let change = Ratio::of(step);
        let certainty = percent(probability);
        let is_sure = probability >= self.args.probability;
        let what = match (places.clone().count(), is_sure) {
            (1, true) => format!(
                "{} \"{}\" {} of the commit before. Probability: {certainty}.\n",
                commit.short(),
                commit.subject,
                self.in_words(&change)
            ),
            (_, true) => format!(
                "The change is in {}. Only the last of them can be measured, so they cannot be \
                 told apart. Probability: {certainty}.\n",
                self.named(places)
            ),
            (_, false) => format!(
                "Not found: the most likely commit is {} ({certainty}). More --races, or a longer \
                 --duration, may find it.\n",
                self.named(places)
            ),
        };
        let steps = self.steps();
        let others: Vec<String> = (1..=self.last())
            .filter(|place| !found.contains(place))
            .map(|place| (place, steps.at(place).probability))
            .filter(|(_, probability)| *probability >= 0.5)
            .map(|(place, probability)| {
                format!("{} ({})", self.commits[place].short(), percent(probability))
            })
            .collect();
        match others.is_empty() {
            true => what,
            false => format!("{what}There is probably another change in {}.\n", others.join(", ")),
        }
    }

    /// Returns the folder in which the commands of a commit start.
    fn start_folder(&self, place: usize) -> PathBuf {
        self.folder.worktree(&self.commits[place]).join(self.repository.inside())
    }

    /// Explains the difference between a commit and the one before.
    fn explain(&self, places: &std::ops::RangeInclusive<usize>) -> anyhow::Result<()> {
        let servers = [places.start() - 1, *places.end()].map(|place| RaceServer {
            name: self.commits[place].short().to_owned(),
            folder: self.start_folder(place),
            run: self.args.race.run.clone(),
        });
        self.races.explain(&servers, &self.interrupt)
    }

    fn no_difference(&self, words: &str) -> String {
        let found = match Steps::of(self.last(), &self.state.readings) {
            Some(steps) => format!("bad {} of good", self.in_words(&Ratio::of(&steps.whole()))),
            None => "the figure is unknown".to_owned(),
        };
        format!(
            "No difference was found between the good and the bad commit: {found} ({words}). A \
             longer --duration may find smaller differences.\n"
        )
    }

    /// Returns a ratio as the predicate of a sentence: `has 1.050× [1.040, 1.060] the p99`.
    fn in_words(&self, ratio: &Ratio) -> String {
        let figure = self.args.race.measure.words();
        format!("has {ratio} the {figure}")
    }

    /// Removes the worktrees and the session.
    fn clean(&self) {
        for commit in &self.commits {
            // If hotlap is killed here, a partly removed worktree must not count as built.
            let _ = self.folder.set_built(commit, false);
            self.repository.remove(&self.folder.worktree(commit));
        }
        self.folder.remove();
    }
}

fn percent(probability: f64) -> String {
    match probability > MOST_SURE {
        true => format!("over {}%", 100.0 * MOST_SURE),
        false => format!("{:.1}%", 100.0 * probability),
    }
}
