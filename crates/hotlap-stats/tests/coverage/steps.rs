//! Tests whether the probability that a bisection states is right. Histories of 64 commits are
//! bisected by races of three restarts, as `hotlap bisect` does.

use std::fmt::Write as _;
use std::io::Write as _;

use hotlap_stats::{ByRestart, LevelReading, Steps, effect};

use crate::data::{Machine, WORLDS};

/// The number of commits after the good one.
const COMMITS: usize = 64;

/// The number of restarts of a race.
const RESTARTS: u32 = 3;

/// A bisection stops at this probability, or after this many races.
const SURE: f64 = 0.95;
const MOST_RACES: u32 = 20;

/// The largest number of races of only the good and the bad commit.
const FIRST_RACES: u32 = 3;

/// The outcomes of the bisections of some histories.
#[derive(Debug, Default)]
struct Bisections {
    /// The first race found no difference.
    not_seen: u32,
    /// No commit reached the probability.
    not_found: u32,
    right: u32,
    wrong: u32,
    /// The sum of the probabilities stated with right and wrong answers.
    stated: f64,
    /// The numbers of races of right and wrong answers.
    races: Vec<f64>,
}

impl Bisections {
    fn answered(&self) -> u32 {
        self.right + self.wrong
    }
}

/// A history whose level changes at one commit.
struct History {
    /// The place of the change.
    culprit: usize,
    /// The change, in log units.
    step: f64,
    /// Two commits that do not build.
    broken: [usize; 2],
    /// The standard deviation of a server's level between restarts, in log units.
    noise: f64,
}

impl History {
    /// Races the good commit and some others. Returns a reading of each place. Errors of the good
    /// commit are common to all ratios.
    fn race(&self, places: &[usize], machine: &mut Machine) -> Vec<LevelReading> {
        let mut restarts =
            || -> Vec<f64> { (0..RESTARTS).map(|_| self.noise * machine.normal()).collect() };
        let good = restarts();
        let reading = |place: &usize| {
            let truth = if *place >= self.culprit { self.step } else { 0.0 };
            let own = restarts();
            let pairs: ByRestart = (0..)
                .zip(own.iter().zip(&good))
                .map(|(n, (own, g))| (n, truth + own - g))
                .collect();
            let ratio = effect(&pairs, 0.95).unwrap().ratio;
            let [level, low, high] = [ratio.value, ratio.low, ratio.high].map(f64::ln);
            LevelReading { place: *place, level, error: (high - low) / (2.0 * 1.96) }
        };
        places.iter().map(reading).collect()
    }

    fn bisect(&self, machine: &mut Machine, found: &mut Bisections) {
        let (mut readings, mut races) = (Vec::new(), 0);
        while Steps::of(COMMITS, &readings).is_none_or(|steps| !steps.whole().is_certain()) {
            if races == FIRST_RACES {
                found.not_seen += 1;
                return;
            }
            readings.extend(self.race(&[COMMITS], machine));
            races += 1;
        }
        let can = |place: usize| !self.broken.contains(&place);
        let likeliest = |readings: &[LevelReading]| {
            let groups = Steps::of(COMMITS, readings).unwrap().groups(can);
            groups.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap()
        };
        loop {
            let next = Steps::of(COMMITS, &readings).unwrap().next(can, SURE);
            let next = next.filter(|_| races + 1 < MOST_RACES);
            let places = next.clone().unwrap_or_else(|| {
                let (places, _) = likeliest(&readings);
                let both = [places.start() - 1, *places.end()];
                both.into_iter().filter(|place| (1..COMMITS).contains(place)).collect()
            });
            let all: Vec<usize> = places.into_iter().chain([COMMITS]).collect();
            readings.extend(self.race(&all, machine));
            races += 1;
            let (places, probability) = likeliest(&readings);
            if next.is_some() || probability < SURE && races < MOST_RACES {
                continue;
            }
            if probability < SURE {
                found.not_found += 1;
                return;
            }
            match places.contains(&self.culprit) {
                true => found.right += 1,
                false => found.wrong += 1,
            }
            found.stated += probability;
            found.races.push(f64::from(races));
            return;
        }
    }
}

fn bisections(step: f64, noise: f64, histories: u32) -> Bisections {
    let mut machine = Machine::new(WORLDS[0], 7);
    let mut found = Bisections::default();
    for _ in 0..histories {
        let mut place = || 1 + (machine.uniform() * (COMMITS - 1) as f64) as usize;
        let (culprit, broken) = (place(), [place(), place()]);
        let history = History { culprit, step: step.ln_1p(), broken, noise };
        history.bisect(&mut machine, &mut found);
    }
    found
}

const STEPS: [f64; 4] = [0.02, 0.03, 0.05, 0.1];
const NOISES: [f64; 3] = [0.003, 0.007, 0.015];

#[test]
fn a_bisection_is_right_as_often_as_it_says() {
    let (mut right, mut answered, mut stated) = (0, 0, 0.0);
    for step in STEPS {
        for noise in NOISES {
            let found = bisections(step, noise, 25);
            right += found.right;
            answered += found.answered();
            stated += found.stated;
        }
    }
    let (right, stated) = (f64::from(right) / f64::from(answered), stated / f64::from(answered));
    // With 200 answers, the standard error of a share of 97% is 1.2%.
    assert!(answered > 150 && right > stated - 0.035, "{right} of {answered}, {stated} stated");
}

/// Prints the table of docs/evidence.md: `cargo test --release -p hotlap-stats --test coverage
/// table_of_bisections -- --ignored --nocapture`.
#[test]
#[ignore = "writes a table"]
fn table_of_bisections() {
    let mut table = String::from("| step, noise | right | wrong | not found | races |\n");
    table += "|---|---|---|---|---|\n";
    for step in STEPS {
        for noise in NOISES {
            let found = bisections(step, noise, 1_000);
            let races = hotlap_stats::median(&found.races).unwrap_or(f64::NAN);
            let none = found.not_found + found.not_seen;
            let _ = writeln!(
                table,
                "| {:.0}%, {:.1}% | {} | {} ({:.1}) | {none} | {races} |",
                100.0 * step,
                100.0 * noise,
                found.right,
                found.wrong,
                f64::from(found.answered()) - found.stated,
            );
        }
    }
    std::io::stdout().write_all(table.as_bytes()).unwrap();
}
