//! `hotlap bisect`: finds the commit that changed a figure.
//!
//! Each race measures the good and the bad commit together with one or two others, so that every
//! commit has a place between the two, and the machine's drift cancels. [`hotlap_stats::Steps`]
//! turns the races into a probability for each commit, and chooses the commits of the next race.
//! The session is stored after each build and race, so an interrupted bisection continues where it
//! was.

mod race;
mod repository;
mod session;

use hotlap_stats::{Step, Steps};

use crate::cli::{BisectArgs, BisectMeasure};
use crate::console::Console;
use crate::exit::{Exit, server_failed, usage};
use crate::interrupt::Interrupt;
use crate::paths;
use race::{Entry, RaceReport, Raced, Races, Ratio, export};
use repository::{Commit, Repository, build};
use session::Session;

/// The name of the good commit in races.
const GOOD: &str = "good";

/// The name of the bad commit in races.
const BAD: &str = "bad";

/// Probabilities above this are shown as this, because the model is not exact.
const MOST_SURE: f64 = 0.999;

/// Carries out `hotlap bisect`.
pub fn run(args: &BisectArgs, console: &Console) -> anyhow::Result<Exit> {
    if !(0.5..1.0).contains(&args.probability) {
        return usage("--probability must be at least 50% and below 100%");
    }
    let options = shell_words::split(args.options.as_deref().unwrap_or_default())
        .or_else(|why| usage(format!("--options: {why}")))?;
    let interrupt = Interrupt::listen()?;
    let repository = Repository::open()?;
    let commits = repository.commits(&args.good, &args.bad, &args.paths)?;
    let identity = format!("{:?} {:?} {:?}", repository.root, commits, args);
    let session = Session::open(&paths::cache()?.join("bisect"), &identity)?;
    if session.races > 0 {
        let races = session.races;
        console.note(&format!("Continuing the bisection after {races} races."));
    }
    let races = Races {
        run: &args.run,
        options,
        duration: args.duration,
        measure: args.measure,
        export: export(session.folder()),
    };
    let mut bisection = Bisection { args, console, interrupt, repository, commits, races, session };
    let found = bisection.find();
    if found.as_ref().is_ok_and(|exit| *exit != Exit::Interrupted) {
        bisection.clean();
    }
    found
}

/// A bisection.
struct Bisection<'a> {
    args: &'a BisectArgs,
    console: &'a Console,
    interrupt: Interrupt,
    repository: Repository,
    /// The commits, from the good one to the bad one.
    commits: Vec<Commit>,
    races: Races<'a>,
    session: Session,
}

/// What the user asked for, or an interrupt.
enum Outcome<T> {
    Done(T),
    Interrupted,
}

impl Bisection<'_> {
    fn find(&mut self) -> anyhow::Result<Exit> {
        let last = self.last();
        self.console.note(&format!(
            "Looking for one of {last} commits between {} and {}.",
            self.commits[0].short(),
            self.commits[last].short()
        ));
        for end in [0, last] {
            match self.builds(end)? {
                Outcome::Interrupted => return Ok(Exit::Interrupted),
                Outcome::Done(true) => {}
                Outcome::Done(false) => {
                    let (name, log) = (self.commits[end].short(), self.session.log(end));
                    return server_failed(format!(
                        "{name} does not build, so there is nothing to compare with: see {}",
                        log.display()
                    ));
                }
            }
        }
        if self.session.readings.is_empty() {
            let Outcome::Done(report) = self.race(&[])? else { return Ok(Exit::Interrupted) };
            let Some(ratio) = report.ratio(BAD).filter(|ratio| ratio.is_different) else {
                self.console.print(&self.no_difference(report.ratio(BAD)))?;
                return Ok(Exit::Invalid);
            };
            self.keep(&report, &[])?;
            self.console.note(&format!("bad {} of good.", self.in_words(&ratio)));
        }
        while self.session.races < self.args.races {
            let steps = self.steps();
            let can = |place: usize| !self.session.broken.contains(&place);
            let Some(places) = steps.next(can, self.args.probability) else { break };
            let mut all_build = true;
            for place in &places {
                match self.builds(*place)? {
                    Outcome::Interrupted => return Ok(Exit::Interrupted),
                    Outcome::Done(builds) => all_build &= builds,
                }
            }
            // Otherwise, other commits may tell more.
            if all_build {
                let Outcome::Done(report) = self.race(&places)? else {
                    return Ok(Exit::Interrupted);
                };
                self.keep(&report, &places)?;
                self.show(&report, &places);
            }
        }
        self.conclude()
    }

    fn last(&self) -> usize {
        self.commits.len() - 1
    }

    /// Returns the steps that the races have shown so far.
    fn steps(&self) -> Steps {
        let found = Steps::of(self.last(), &self.session.readings);
        found.expect("the bad commit is in every race")
    }

    /// Builds a commit, unless it was built before. Returns whether it can be raced.
    fn builds(&mut self, place: usize) -> anyhow::Result<Outcome<bool>> {
        if self.session.broken.contains(&place) || self.session.built.contains(&place) {
            return Ok(Outcome::Done(self.session.built.contains(&place)));
        }
        let commit = &self.commits[place];
        let folder = self.repository.check_out(commit, &self.session.worktree(commit))?;
        let succeeded = match &self.args.build {
            None => true,
            Some(command) => {
                let (name, subject) = (commit.short(), &commit.subject);
                self.console.note(&format!("Building {name} ({subject}) …"));
                build(command, &folder, &self.session.log(place))?
            }
        };
        if self.interrupt.asked() {
            return Ok(Outcome::Interrupted);
        }
        match succeeded {
            true => self.session.built.insert(place),
            false => self.step_around(place, &format!("see {}", self.session.log(place).display())),
        };
        self.session.save()?;
        Ok(Outcome::Done(succeeded))
    }

    /// Excludes a commit from races. The change may still be in it.
    fn step_around(&mut self, place: usize, why: &str) -> bool {
        let name = self.commits[place].short();
        self.console.note(&format!("{name} cannot be measured: {why}"));
        self.session.built.remove(&place);
        self.session.broken.insert(place)
    }

    /// Races the good and the bad commit with some others.
    fn race(&mut self, places: &[usize]) -> anyhow::Result<Outcome<RaceReport>> {
        let ends = [(GOOD.to_owned(), 0), (BAD.to_owned(), self.last())];
        let named = |place: &usize| (self.commits[*place].short().to_owned(), *place);
        self.race_named(&ends.into_iter().chain(places.iter().map(named)).collect::<Vec<_>>())
    }

    fn race_named(&mut self, named: &[(String, usize)]) -> anyhow::Result<Outcome<RaceReport>> {
        let mut servers = Vec::new();
        for (name, place) in named {
            let commit = &self.commits[*place];
            let folder = self.repository.check_out(commit, &self.session.worktree(commit))?;
            servers.push(Entry { name: name.clone(), folder });
        }
        self.session.races += 1;
        let names: Vec<&str> = named.iter().map(|(name, _)| &name[..]).collect();
        self.console.note(&format!("Race {}: {}", self.session.races, names.join(", ")));
        match self.races.race(&servers)? {
            Raced::Interrupted => Ok(Outcome::Interrupted),
            Raced::Report(report) => {
                for end in [GOOD, BAD] {
                    if let Some(why) = report.failure(end) {
                        return server_failed(format!("the server of the {end} commit: {why}"));
                    }
                }
                Ok(Outcome::Done(report))
            }
        }
    }

    /// Adds what a race showed to the session. A commit whose server failed is raced no more.
    fn keep(&mut self, report: &RaceReport, places: &[usize]) -> anyhow::Result<()> {
        let last = self.last();
        self.session.readings.extend(report.ratio(BAD).map(|ratio| ratio.reading(last)));
        for &place in places {
            let name = self.commits[place].short().to_owned();
            match (report.failure(&name), report.ratio(&name)) {
                (Some(why), _) => drop(self.step_around(place, &why)),
                (None, Some(ratio)) => self.session.readings.push(ratio.reading(place)),
                (None, None) => {}
            }
        }
        self.session.save()
    }

    /// Prints what a race showed, and the most likely commit.
    fn show(&self, report: &RaceReport, places: &[usize]) {
        let names = places.iter().map(|place| self.commits[*place].short()).chain([BAD]);
        let ratio = |name: &str| Some(format!("{name} {}", interval(&report.ratio(name)?)));
        let ratios: Vec<String> = names.filter_map(ratio).collect();
        let (places, probability) = self.likeliest();
        self.console.note(&format!(
            "  {} of good. Most likely: {} ({})",
            ratios.join(", "),
            self.named(places),
            percent(probability)
        ));
    }

    /// Returns the places of the group that has the change with the highest probability.
    fn likeliest(&self) -> (std::ops::RangeInclusive<usize>, f64) {
        let can = |place: usize| !self.session.broken.contains(&place);
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

    /// Races the most likely commit against its parent, and prints the result.
    fn conclude(&mut self) -> anyhow::Result<Exit> {
        let (places, _) = self.likeliest();
        let (before, place) = (places.start() - 1, *places.end());
        if let Outcome::Interrupted = self.builds(before)? {
            return Ok(Exit::Interrupted);
        }
        // Fresh starts, and all four again on one scale.
        let others: Vec<usize> =
            [before, place].into_iter().filter(|n| (1..self.last()).contains(n)).collect();
        let Outcome::Done(report) = self.race(&others)? else { return Ok(Exit::Interrupted) };
        self.keep(&report, &others)?;
        self.show(&report, &others);
        let (places, probability) = self.likeliest();
        let step = self.steps().at(*places.end());
        let is_sure = probability >= self.args.probability;
        self.console.print(&self.verdict(places.clone(), probability, &step))?;
        if self.args.explain && is_sure {
            self.explain(&places)?;
        }
        Ok(if is_sure { Exit::Ok } else { Exit::Invalid })
    }

    /// Returns the last sentences of the bisection.
    fn verdict(
        &self,
        places: std::ops::RangeInclusive<usize>,
        probability: f64,
        step: &Step,
    ) -> String {
        let commit = &self.commits[*places.end()];
        let change = Ratio::of(step);
        let certainty = percent(probability);
        let is_sure = probability >= self.args.probability;
        let what = match (places.clone().count(), is_sure) {
            (1, true) => format!(
                "{} \"{}\" {} of its parent. Probability: {certainty}.\n",
                commit.short(),
                commit.subject,
                self.in_words(&change)
            ),
            (_, true) => format!(
                "The change is in {}, which cannot be told apart because only the last of them \
                 can be measured. Probability: {certainty}.\n",
                self.named(places)
            ),
            (_, false) => format!(
                "Not found: the most likely commit is {} ({certainty}). More --races, or a longer \
                 --duration, may find it.\n",
                self.named(places)
            ),
        };
        let others: Vec<String> = (1..=self.last())
            .filter(|place| *place != *self.likeliest().0.end())
            .map(|place| (place, self.steps().at(place).probability))
            .filter(|(_, probability)| *probability >= 0.5)
            .map(|(place, probability)| {
                format!("{} ({})", self.commits[place].short(), percent(probability))
            })
            .collect();
        match others.is_empty() {
            true => what,
            false => format!("{what}There is another change in {}.\n", others.join(", ")),
        }
    }

    /// Explains the difference between a commit and the one before.
    fn explain(&self, places: &std::ops::RangeInclusive<usize>) -> anyhow::Result<()> {
        let servers = [places.start() - 1, *places.end()].map(|place| Entry {
            name: self.commits[place].short().to_owned(),
            folder: self.session.worktree(&self.commits[place]).join(self.repository.inside()),
        });
        self.races.explain(&servers)
    }

    fn no_difference(&self, ratio: Option<Ratio>) -> String {
        let found = match &ratio {
            Some(ratio) => format!("bad {} of good", self.in_words(ratio)),
            None => "the figure is unknown".to_owned(),
        };
        format!(
            "No difference was found between the good and the bad commit: {found}. A longer \
             --duration finds smaller differences.\n"
        )
    }

    /// Returns a ratio as the predicate of a sentence: `has 1.05× the CPU per request`.
    fn in_words(&self, ratio: &Ratio) -> String {
        let figure = match self.args.measure {
            BisectMeasure::Cost => "CPU time per request",
            BisectMeasure::Rps => "throughput",
            BisectMeasure::P99 => "p99",
        };
        format!("has {} the {figure}", interval(ratio))
    }

    /// Removes the worktrees and the session, which are no longer needed.
    fn clean(&self) {
        for commit in &self.commits {
            let worktree = self.session.worktree(commit);
            if worktree.exists() {
                self.repository.remove(&worktree);
            }
        }
        self.session.remove();
    }
}

fn interval(ratio: &Ratio) -> String {
    let [value, low, high] = ratio.ends;
    format!("{value:.3}× [{low:.3}, {high:.3}]")
}

fn percent(probability: f64) -> String {
    match probability > MOST_SURE {
        true => format!("over {}%", 100.0 * MOST_SURE),
        false => format!("{:.1}%", 100.0 * probability),
    }
}
