//! Two stored runs against each other: the same statistics as within a run, as far as laps that are
//! not paired permit, and what speaks against holding the two together.

pub mod markdown;
pub mod terminal;

use hotlap_stats::{Criterion, Effect, Estimate, NoiseFloor, Verdict, unpaired};
use serde::Serialize;

use super::figure::{megabytes, micros, millis, per_second, ratio};
use super::standing::{Against, Limited, Measure, Standing, confidence, families, is_compared};
use super::summary::{load_name, load_title, load_words, state_note, verdict};
use super::{Figure, KEEP_UP, date, sentence};
use crate::record::{Load, Run};
use crate::text::visible_json;

/// What every comparison of two runs must say of itself.
const APART: &str = "The two runs are not paired: what the machine did meanwhile is part of the \
                     difference. Both servers in one run (hotlap run OLD NEW) tell finer.";

/// Everything that is said of two runs.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// Version of the form of this document: 1.
    pub schema: u32,
    /// The run that is compared with.
    pub before: Side,
    /// The run that is compared.
    pub after: Side,
    /// One a load that both have.
    pub tables: Vec<Table>,
    /// A sentence for each server.
    pub sentences: Vec<String>,
    /// What an unchanged program did from run to run; empty where there is none.
    pub control: String,
    /// What speaks against the comparison.
    pub warnings: Vec<String>,
}

/// One of the two runs.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// What it is called here: `run 11`.
    pub name: String,
    /// Its number in its store.
    pub number: Option<u64>,
    /// When it began: `2026-11-21T20:15:00Z`.
    pub began: String,
    /// The command that repeats it.
    pub command: String,
}

/// One load that both runs have.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// The load, in words.
    pub title: String,
    /// ` under POST /bla`, for a sentence about one of several loads; empty for the only one.
    #[serde(skip)]
    pub under: String,
    /// Whether the load offers a rate, so that latency is response time.
    #[serde(skip)]
    pub is_offered: bool,
    /// The servers that both runs have.
    pub servers: Vec<Server>,
}

/// One server in both runs.
#[derive(Debug, Clone, Serialize)]
pub struct Server {
    /// What tables call it.
    pub name: String,
    /// Its version, before and after.
    pub versions: (String, String),
    /// A measure each.
    pub changes: Vec<Change>,
}

/// One measure of one server in both runs.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    /// `requests/s`, `CPU µs/request`, `p50`, `p99`, `memory`.
    pub measure: String,
    /// In the run that is compared with.
    pub before: Option<Figure>,
    /// In the run that is compared.
    pub after: Option<Figure>,
    /// The second over the first.
    pub ratio: Option<Figure>,
    /// `faster`, `dearer`, `no difference that could be measured`, …
    pub verdict: String,
    /// Whether the verdict is that it became worse.
    pub is_worse: bool,
}

/// Why two runs cannot be compared at all.
#[derive(Debug, thiserror::Error)]
pub enum Incomparable {
    /// No server is in both.
    #[error(
        "{before} and {after} have no server in common ({theirs}; {ours}): compare runs of the same servers, or race both in one run"
    )]
    NoServer {
        /// The one run.
        before: String,
        /// The other.
        after: String,
        /// Servers of the one.
        theirs: String,
        /// Servers of the other.
        ours: String,
    },
    /// No load is in both.
    #[error(
        "{before} and {after} have no load in common: {theirs} in {before}, {ours} in {after}. Runs are compared under the same requests, connections, threads and rate: repeat one of the two with the load of the other"
    )]
    NoLoad {
        /// The one run.
        before: String,
        /// The other.
        after: String,
        /// Loads of the one.
        theirs: String,
        /// Loads of the other.
        ours: String,
    },
}

/// A server or a load in both runs, as indices.
type Both = (usize, usize);

impl Comparison {
    /// Compares `after` with `before`, each called by the name given.
    ///
    /// # Errors
    /// When they have no server in common.
    pub fn of(before: (&Run, &str), after: (&Run, &str)) -> Result<Self, Incomparable> {
        let servers = servers(before.0, after.0);
        if servers.is_empty() {
            let named = |run: &Run| names(run).join(", ");
            return Err(Incomparable::NoServer {
                before: before.1.to_owned(),
                after: after.1.to_owned(),
                theirs: named(before.0),
                ours: named(after.0),
            });
        }
        let loads = loads(before.0, after.0);
        if loads.is_empty() {
            let told =
                |run: &Run| run.loads.iter().map(|l| asked(run, l)).collect::<Vec<_>>().join("; ");
            return Err(Incomparable::NoLoad {
                before: before.1.to_owned(),
                after: after.1.to_owned(),
                theirs: told(before.0),
                ours: told(after.0),
            });
        }
        let mut comparison = Self {
            schema: 1,
            before: side(before),
            after: side(after),
            tables: Vec::new(),
            sentences: Vec::new(),
            control: String::new(),
            warnings: warnings(before, after, &servers),
        };
        comparison.warnings.extend(alone(before, after, &loads));
        let titles = Titles::of(before.0, after.0, &loads);
        for load in loads {
            comparison.load(before, after, load, &servers, &titles);
        }
        Ok(comparison)
    }

    fn load(
        &mut self,
        before: (&Run, &str),
        after: (&Run, &str),
        load: Both,
        servers: &[Both],
        titles: &Titles,
    ) {
        let sides = (Standing::of(before.0, load.0), Standing::of(after.0, load.1));
        let confidence = confidence(before.0).max(confidence(after.0));
        let mut table = Table {
            title: titles.title(load.1),
            under: titles.under(load.1),
            is_offered: after.0.loads[load.1].rate.is_some(),
            servers: Vec::new(),
        };
        let found = compared(&sides, servers, confidence);
        for (&(old, new), against) in servers.iter().zip(&found) {
            let name = &after.0.servers[new].name;
            let said = sentence::verdict(
                &format!("{name} of {}", after.1),
                &format!("{} of {}", before.0.servers[old].name, before.1),
                against,
            );
            self.sentences.push(match table.under.strip_prefix(" under ") {
                Some(load) => format!("{load}: {said}"),
                None => said,
            });
            table.servers.push(Server {
                name: name.clone(),
                versions: (
                    before.0.servers[old].version.clone(),
                    after.0.servers[new].version.clone(),
                ),
                changes: changes(&sides, (old, new), against),
            });
        }
        self.tables.push(table);
        let weaker = [(before.0, before.1, load.0), (after.0, after.1, load.1)]
            .into_iter()
            .min_by_key(|(run, _, load)| sentence::restarts(run, *load));
        self.sentences.extend(weaker.and_then(|run| sentence::needed(run, &found)));
        if let Some(change) = ceiling(&sides, confidence).filter(|_| self.control.is_empty()) {
            self.control = format!(
                "The ceiling, the same program in both runs, made {} the requests/s from run to \
                 run: nothing smaller is called a difference.",
                ratio(&change.ratio).full()
            );
        }
    }

    /// The comparison as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("a comparison is plain data") + "\n";
        visible_json(&text)
    }
}

/// Each server against itself in the other run.
fn compared(sides: &(Standing, Standing), servers: &[Both], confidence: f64) -> Vec<Against> {
    let found = families(Measure::ALL.map(|measure| {
        let criterion = criterion(sides, measure, confidence);
        let effects = servers.iter().map(|pair| effect(sides, *pair, measure, confidence));
        effects.map(|effect| Some((criterion, effect?))).collect()
    }));
    let of = |(place, (old, new)): (usize, &Both)| {
        let keep_up = sides.0.servers[*old].keeps_up && sides.1.servers[*new].keeps_up;
        let limited = keep_up.then_some(Limited::Both);
        Against { limited, ..Against::by(|measure| found[measure as usize][place]) }
    };
    servers.iter().enumerate().map(of).collect()
}

/// One server in both runs; none where the generator hides what the measure would say.
fn effect(
    (before, after): &(Standing, Standing),
    (old, new): Both,
    measure: Measure,
    confidence: f64,
) -> Option<Effect> {
    let (old, new) = (&before.servers[old], &after.servers[new]);
    let is_bound = measure.is_bound_by_generator() && (old.is_bound || new.is_bound);
    let is_offered = measure == Measure::Rate && old.keeps_up && new.keeps_up;
    if is_offered || old.wrong + new.wrong > 0 {
        return None;
    }
    let found = || unpaired(new.readings(measure), old.readings(measure), confidence);
    if is_bound { None } else { found() }
}

/// The noise floor is the higher one of the two runs, and at least what the ceiling did from one to
/// the other.
fn criterion(
    (before, after): &(Standing, Standing),
    measure: Measure,
    confidence: f64,
) -> Criterion {
    let drift = before.ceiling.zip(after.ceiling).and_then(|(old, new)| {
        let (old, new) = (&before.servers[old], &after.servers[new]);
        unpaired(new.readings(measure), old.readings(measure), confidence)
    });
    let drift =
        drift.map_or(NoiseFloor::NoControl, |d| NoiseFloor::Known(d.ratio.value.ln().abs()));
    let floor = before.floor(measure).or_higher(after.floor(measure)).or_higher(drift);
    Criterion { alpha: 1.0 - confidence, floor, bias: 0.0, better: measure.better() }
}

fn ceiling((before, after): &(Standing, Standing), confidence: f64) -> Option<Effect> {
    let (old, new) = (&before.servers[before.ceiling?], &after.servers[after.ceiling?]);
    unpaired(new.readings(Measure::Rate), old.readings(Measure::Rate), confidence)
}

fn changes(
    (before, after): &(Standing, Standing),
    (old, new): Both,
    against: &Against,
) -> Vec<Change> {
    let level = |standing: &Standing, server: usize, measure| {
        let readings = standing.servers[server].readings(measure);
        let estimate = hotlap_stats::level(readings, standing.confidence)?;
        Some(shown(measure, &estimate))
    };
    let change = |measure| Change {
        measure: title(measure).to_owned(),
        before: level(before, old, measure),
        after: level(after, new, measure),
        ratio: against.of(measure).map(|(e, _)| ratio(&e.ratio)),
        verdict: match (measure, against.limited) {
            (Measure::Rate, Some(Limited::Both)) => KEEP_UP.to_owned(),
            _ => verdict(measure, against.of(measure).map(|(_, v)| v)).to_owned(),
        },
        is_worse: against.of(measure).is_some_and(|(_, v)| v == Verdict::Worse),
    };
    Measure::ALL
        .map(change)
        .into_iter()
        .filter(|c| c.before.is_some() || c.after.is_some())
        .collect()
}

/// A level in the unit of its measure.
fn shown(measure: Measure, estimate: &Estimate) -> Figure {
    let scaled = |by: f64| Estimate {
        value: estimate.value * by,
        low: estimate.low * by,
        high: estimate.high * by,
    };
    match measure {
        Measure::Rate => per_second(estimate),
        Measure::Cost => micros(&scaled(1e-3)),
        Measure::P50 | Measure::P99 => millis(estimate.value / 1e6),
        Measure::Memory => megabytes(estimate.value),
    }
}

/// What a measure is called.
#[must_use]
pub fn title(measure: Measure) -> &'static str {
    match measure {
        Measure::Rate => "requests/s",
        Measure::Cost => "CPU µs/request",
        Measure::P50 => "p50",
        Measure::P99 => "p99",
        Measure::Memory => "memory",
    }
}

fn side((run, name): (&Run, &str)) -> Side {
    Side {
        name: name.to_owned(),
        number: run.number,
        began: date::utc(run.began_ms),
        command: shell_words::join(&run.command),
    }
}

fn names(run: &Run) -> Vec<&str> {
    let compared = (0..run.servers.len()).filter(|&i| is_compared(run, i));
    compared.map(|i| run.servers[i].name.as_str()).collect()
}

/// Servers of the same name in both; where each run has one server alone, these two.
fn servers(before: &Run, after: &Run) -> Vec<Both> {
    let compared =
        |run: &Run| (0..run.servers.len()).filter(|&i| is_compared(run, i)).collect::<Vec<_>>();
    let (old, new) = (compared(before), compared(after));
    if let ([old], [new]) = (&old[..], &new[..]) {
        return vec![(*old, *new)];
    }
    let same = |new: &usize| {
        let name = &after.servers[*new].name;
        Some((*old.iter().find(|&&i| before.servers[i].name == *name)?, *new))
    };
    new.iter().filter_map(same).collect()
}

/// Loads that both runs have, by all that defines a load: see [`Load::is_same`].
fn loads(before: &Run, after: &Run) -> Vec<Both> {
    let mut both: Vec<Both> = Vec::new();
    for (new, load) in after.loads.iter().enumerate() {
        let is_same = |(old, other): &(usize, &Load)| {
            let is_asked = load.request.is_empty() || other.request.is_empty();
            let is_taken = both.iter().any(|(taken, _)| taken == old);
            load.is_same(other) && !is_taken && (!is_asked || share_a_contract(before, after))
        };
        let same = before.loads.iter().enumerate().find(is_same);
        both.extend(same.map(|(old, _)| (old, new)));
    }
    both
}

/// Whether some server of both runs was asked for the same contract, or the same path.
fn share_a_contract(before: &Run, after: &Run) -> bool {
    let theirs = || before.contract.split(", ");
    after.contract.split(", ").any(|own| theirs().any(|other| other == own))
}

/// A load in words, with what it requests.
fn asked(run: &Run, load: &Load) -> String {
    let request = if load.request.is_empty() { &run.contract } else { &load.request };
    format!("{request} with {}", load_words(load))
}

/// What the loads of two runs are called: with their requests, where these differ.
struct Titles<'a> {
    loads: &'a [Load],
    all: Vec<&'a Load>,
    are_many: bool,
}

impl<'a> Titles<'a> {
    fn of(before: &'a Run, after: &'a Run, both: &[Both]) -> Self {
        let all = before.loads.iter().chain(&after.loads).filter(|l| !l.request.is_empty());
        Self { loads: &after.loads, all: all.collect(), are_many: both.len() > 1 }
    }

    fn title(&self, load: usize) -> String {
        load_title(&self.loads[load], &self.all)
    }

    fn under(&self, load: usize) -> String {
        match self.are_many {
            true => format!(" under {}", load_name(&self.loads[load], &self.all)),
            false => String::new(),
        }
    }
}

/// Loads that only one of the two runs has.
fn alone(before: (&Run, &str), after: (&Run, &str), both: &[Both]) -> Vec<String> {
    let only = |(run, name): (&Run, &str), of: fn(&Both) -> usize, other: &str| {
        let loads = run.loads.iter().enumerate();
        let left = loads.filter(|(place, _)| !both.iter().any(|pair| of(pair) == *place));
        let said: Vec<String> = left.map(|(_, load)| asked(run, load)).collect();
        (!said.is_empty())
            .then(|| format!("Only {name} has {}: {other} has nothing like it.", said.join("; ")))
    };
    [only(before, |pair| pair.0, after.1), only(after, |pair| pair.1, before.1)]
        .into_iter()
        .flatten()
        .collect()
}

/// What differs between the two runs beside the servers' own change.
fn warnings(before: (&Run, &str), after: (&Run, &str), servers: &[Both]) -> Vec<String> {
    let ((old, old_name), (new, new_name)) = (before, after);
    let mut warnings = vec![APART.to_owned()];
    let mut differ = |what: &str, a: String, b: String| {
        if a != b {
            warnings.push(format!("{what} differs: {a} in {old_name}, {b} in {new_name}."));
        }
    };
    let machine = |run: &Run| {
        let host = &run.host;
        let print = host.facts.iter().find(|(name, _)| name == "fingerprint");
        let print = print.map_or_else(String::new, |(_, print)| format!(" ({print})"));
        format!("{} × {}{print}", host.cores, host.cpu)
    };
    differ("The machine", machine(old), machine(new));
    differ("The kernel", old.host.kernel.clone(), new.host.kernel.clone());
    differ("hotlap", old.hotlap.clone(), new.hotlap.clone());
    differ("The contract", old.contract.clone(), new.contract.clone());
    let slice_words = super::summary::slice;
    let slice = |run: &Run| run.schedule.slice_ms.map_or("unknown".to_owned(), slice_words);
    differ("The length of a slice", slice(old), slice(new));
    let cores = |run: &Run| format!("{:?}", run.schedule.server_cpus);
    differ("The servers' cores", cores(old), cores(new));
    for &(a, b) in servers {
        let (a, b) = (&old.servers[a], &new.servers[b]);
        if a.name == b.name {
            differ(&format!("The version of {}", a.name), a.version.clone(), b.version.clone());
        } else {
            differ("The server", a.name.clone(), b.name.clone());
        }
    }
    for (run, name) in [before, after] {
        let note = state_note(run);
        if !note.is_empty() {
            warnings.push(format!("{name}: {note}"));
        }
    }
    warnings
}
