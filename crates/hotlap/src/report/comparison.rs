//! The comparison of stored runs, in words, with warnings.

use hotlap_stats::{Inconclusive, Verdict};
use serde::Serialize;

use crate::analysis::runs::{
    LoadSides, Matched, SearchSides, compared, matched_loads, matched_servers,
};
use crate::analysis::{Measure, ServerComparison};
use crate::model::{Load, Run, Server};
use crate::report::capacity::{capacity_figure, with_interval};
use crate::report::figure::{Figure, cell, of_measure, ratio};
use crate::report::heading::{
    cores_in_words, load_name, load_title, load_words, slice_words, state_note, with_load,
};
use crate::report::sentences::TOO_FEW_RUNS;
use crate::report::verdict::{Judged, MeasureVerdict};
use crate::report::{measure_name, sentences};
use crate::text::table::{Cell, Column, Table, Tone, UNKNOWN};
use crate::text::{number, visible};

/// The name of the only measure of a search.
pub const CAPACITY: &str = "capacity, req/s";

/// The comparison of stored runs.
#[derive(Debug, Clone, Serialize)]
pub struct RunComparison {
    /// The version of the document format: 1.
    pub schema: u32,
    /// The earlier runs.
    pub before: ComparedSide,
    /// The later runs.
    pub after: ComparedSide,
    /// One table per load that all runs have.
    pub tables: Vec<ComparedLoad>,
    /// A sentence for each server under each load, and what a verdict needs.
    pub sentences: Vec<String>,
    /// Warnings about the comparison.
    pub warnings: Vec<String>,
}

/// One side of the comparison: the earlier or the later runs.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedSide {
    /// The name of the side in this comparison: `run 11`, `runs 11–13`.
    pub name: String,
    /// The runs of the side, at least one.
    pub runs: Vec<ComparedRun>,
}

/// One run of a side.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedRun {
    /// The number of the run in its store.
    pub number: Option<u64>,
    /// The time at which the run began: `2026-11-21T20:15:00Z`.
    pub began: String,
    /// The command that repeats the run.
    pub command: String,
}

/// One load that all runs have.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedLoad {
    /// The load, in words.
    pub title: String,
    /// The words ` under POST /bla`, for a sentence about one of several loads. Empty for one load.
    #[serde(skip)]
    pub under: String,
    /// Whether the load offers a rate, so that latency is response time.
    #[serde(skip)]
    pub is_offered: bool,
    /// How the ceiling changed. Empty if no ratio is relative to the ceiling.
    pub control: String,
    /// The servers that all runs have.
    pub servers: Vec<ComparedServer>,
}

/// One server on both sides.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedServer {
    /// The server's name in tables.
    pub name: String,
    /// The server's version in the earlier and in the later runs.
    pub versions: (String, String),
    /// One entry per measure.
    pub changes: Vec<MeasureChange>,
}

/// One measure of one server on both sides.
#[derive(Debug, Clone, Serialize)]
pub struct MeasureChange {
    /// The name of the measure: `requests/s`, `CPU µs/request`, `database µs/request`,
    /// `total µs/request`, `p50`, `p99` or `memory`. `capacity, req/s` for searches.
    pub measure: String,
    /// The measure. `None` for a capacity.
    #[serde(skip)]
    pub of: Option<Measure>,
    /// The level in the earlier runs.
    pub before: Option<Figure>,
    /// The level in the later runs.
    pub after: Option<Figure>,
    /// The ratio of the later level to the earlier one, and the verdict. If `is_relative` is true,
    /// both levels are divided by the ceiling's level.
    #[serde(flatten)]
    pub found: MeasureVerdict,
    /// Whether the ratio and the verdict are relative to the change of the ceiling.
    pub is_relative: bool,
    /// Whether the verdict is that the server became worse.
    pub is_worse: bool,
}

/// Why runs cannot be compared, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Incomparable(String);

/// The runs of a side, at least one, and the name of the side in this comparison.
type Side<'a> = (&'a [Run], &'a str);

impl RunComparison {
    /// Compares `after` with `before`. The sentences use the names of the sides.
    pub fn of(before: Side, after: Side) -> Result<Self, Incomparable> {
        for run in before.0.iter().chain(after.0) {
            Self::are_alike((run, before.1), (&after.0[0], after.1))?;
        }
        let sides = [before.0, after.0];
        let of_each = |side: Side, what: &dyn Fn(&Run) -> String| {
            let mut each: Vec<String> = side.0.iter().map(what).collect();
            each.dedup();
            each.join("; ")
        };
        let servers = matched_servers(sides);
        if servers.is_empty() {
            return Err(Incomparable(format!(
                "{} and {} have no server in common ({}; {}): compare runs of the same servers, or \
                 measure both in one run",
                before.1,
                after.1,
                of_each(before, &server_names),
                of_each(after, &server_names)
            )));
        }
        let loads = matched_loads(sides);
        if loads.is_empty() {
            let all = |run: &Run| {
                run.loads.iter().map(|load| requested(run, load)).collect::<Vec<_>>().join("; ")
            };
            let (theirs, ours) = (of_each(before, &all), of_each(after, &all));
            let (before, after) = (before.1, after.1);
            return Err(Incomparable(format!(
                "{before} and {after} have no load in common: {theirs} in {before}, {ours} in \
                 {after}. Only runs with the same requests, connections, threads and rate can be \
                 compared: repeat one with the load of the other"
            )));
        }
        let mut comparison = Self {
            schema: 1,
            before: ComparedSide::of(before),
            after: ComparedSide::of(after),
            tables: Vec::new(),
            sentences: Vec::new(),
            warnings: warnings([before, after], &servers),
        };
        comparison.warnings.extend(unmatched_loads([before, after], &loads));
        for load in &loads {
            match after.0[0].is_search() {
                true => comparison.add_search([before, after], load, &servers, loads.len() > 1),
                false => comparison.add_load([before, after], load, &servers, loads.len() > 1),
            }
        }
        Ok(comparison)
    }

    fn add_load(
        &mut self,
        [before, after]: [Side; 2],
        load: &Matched,
        servers: &[Matched],
        are_many: bool,
    ) {
        let sides = LoadSides::of([before.0, after.0], load);
        let found = sides.compared(servers);
        let mut table = ComparedLoad::of([before.0, after.0], load, are_many);
        table.control = control(&sides);
        for (matched, against) in servers.iter().zip(&found) {
            let [old_server, server] = first_servers([before, after], matched);
            let (own, earlier) = (
                format!("{} of {}", server.name, after.1),
                format!("{} of {}", old_server.name, before.1),
            );
            let [rate, cost] = [Measure::Rate, Measure::Cost].map(|m| against.found[m]);
            let sentence = match (rate.or(cost), against.limited) {
                (None, None) => format!(
                    "{own} and {earlier}: not compared, because too few laps count, responses \
                     were wrong, or the load generator limits a server."
                ),
                _ => sentences::verdict(&own, &earlier, against),
            };
            self.sentences.push(with_load(&table.under, &sentence));
            table.servers.push(ComparedServer {
                name: server.name.clone(),
                versions: (old_server.version.clone(), server.version.clone()),
                changes: changes(&sides, matched, against),
            });
        }
        self.tables.push(table);
        let [_, newest] = load.first();
        self.need(sentences::needed(&after.0[0], after.1, newest, &found));
    }

    /// Adds a sentence on what a verdict needs, unless the sentence is there already.
    fn need(&mut self, sentence: Option<String>) {
        self.sentences.extend(sentence.filter(|sentence| !self.sentences.contains(sentence)));
    }
}

/// States how the ceiling changed. Empty if servers are not compared as ratios to the ceiling.
fn control(sides: &LoadSides) -> String {
    let of = |measure, what| {
        let change = sides.ceiling(measure)?;
        Some(format!("to {} in {what}", ratio(&change.ratio).full()))
    };
    let changes = [of(Measure::Rate, "requests/s"), of(Measure::Cost, "CPU per request")];
    let changes: Vec<String> = changes.into_iter().flatten().collect();
    match changes.is_empty() {
        true => String::new(),
        false => format!(
            "* relative to the ceiling, the same program in all runs, which changed {}",
            changes.join(" and ")
        ),
    }
}

/// Returns a server as it is in the first run of each side.
fn first_servers<'a>([before, after]: [Side<'a>; 2], server: &Matched) -> [&'a Server; 2] {
    let [old, new] = server.first();
    [&before.0[0].servers[old], &after.0[0].servers[new]]
}

impl RunComparison {
    /// Returns the table of one load that all runs have, for every output.
    pub fn table(&self, load: &ComparedLoad) -> Table {
        let rows = || load.servers.iter().flat_map(|s| s.changes.iter().map(move |c| (s, c)));
        let cells = |of: fn(&MeasureChange) -> Cell| rows().map(move |(_, change)| of(change));
        // A terminal shows the name of each server only once.
        let names = load.servers.iter().flat_map(|server| {
            let name = |place| {
                Cell::from(&server.name).shortened_to(match place {
                    0 => server.name.as_str(),
                    _ => "",
                })
            };
            (0..server.changes.len()).map(name)
        });
        let level = |figure: Option<&Figure>| {
            cell(figure).shortened_to(figure.map_or(UNKNOWN, |figure| &figure.text))
        };
        let (before, after) = (visible(&self.before.name), visible(&self.after.name));
        Table::new(vec![
            Column::name("server", names),
            Column::left("", cells(measure)),
            Column::right(&before, rows().map(|(_, c)| level(c.before.as_ref()))).required(),
            Column::right(&after, rows().map(|(_, c)| level(c.after.as_ref()))).required(),
            Column::right("ratio", cells(change_cell)),
            Column::left("", cells(verdict)).drop_order(1),
        ])
        .with_tones(rows().map(|(_, change)| tone(change)).collect())
    }
}

/// Returns the name of a measure, with a short form for narrow terminals.
fn measure(change: &MeasureChange) -> Cell {
    Cell::from(&change.measure).shortened_to(change.measure.replace("/request", ""))
}

/// Returns a verdict, with one word for narrow terminals.
fn verdict(change: &MeasureChange) -> Cell {
    Cell::from(&change.found.words).shortened_to(change.found.judged.word(change.of))
}

/// Returns the ratio of the two levels, with a mark if the ratio is relative to the ceiling.
fn change_cell(change: &MeasureChange) -> Cell {
    let found = cell(change.found.ratio.as_ref());
    match change.is_relative {
        true => Cell { text: format!("{}*", found.text), ..found },
        false => found,
    }
}

fn tone(change: &MeasureChange) -> Tone {
    if change.is_worse { Tone::Bad } else { Tone::Plain }
}

impl ComparedLoad {
    /// Creates the table of a load that all runs have, without servers.
    fn of(sides: [&[Run]; 2], load: &Matched, are_many: bool) -> Self {
        // The title of a load includes its request if the loads send different requests.
        let all = sides.into_iter().flatten().flat_map(|run| &run.loads);
        let all: Vec<&Load> = all.filter(|load| !load.sends.is_empty()).collect();
        let own = &sides[1][0].loads[load.first()[1]];
        Self {
            title: load_title(own, &all),
            under: match are_many {
                true => format!(" under {}", load_name(own, &all)),
                false => String::new(),
            },
            is_offered: own.rate.is_some(),
            control: String::new(),
            servers: Vec::new(),
        }
    }
}

impl ComparedSide {
    fn of((runs, name): Side) -> Self {
        let run = |run: &Run| ComparedRun {
            number: run.number,
            began: number::utc(run.began_ms),
            command: shell_words::join(&run.command),
        };
        Self { name: name.to_owned(), runs: runs.iter().map(run).collect() }
    }
}

fn changes(sides: &LoadSides, server: &Matched, against: &ServerComparison) -> Vec<MeasureChange> {
    let change = |measure: Measure| {
        let [before, after] = sides.levels(server, measure).map(|level| {
            let (level, is_lower_bound) = level?;
            let figure = of_measure(measure, &level);
            Some(if is_lower_bound { figure.at_least() } else { figure })
        });
        let found = MeasureVerdict::of(against, measure, true);
        MeasureChange {
            measure: measure_name(measure).to_owned(),
            of: Some(measure),
            before,
            after,
            is_relative: found.ratio.is_some() && sides.is_relative(server, measure),
            is_worse: found.judged == Judged::Worse,
            found,
        }
    };
    let is_known = |change: &MeasureChange| change.before.is_some() || change.after.is_some();
    Measure::ALL.map(change).into_iter().filter(is_known).collect()
}

fn server_names(run: &Run) -> String {
    let names = compared(run).into_iter().map(|i| run.servers[i].name.as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    if names.is_empty() { "none without a failure".to_owned() } else { names }
}

/// Describes a load with its request.
fn requested(run: &Run, load: &Load) -> String {
    let request = if load.sends.is_empty() { &run.contract } else { &load.sends };
    format!("{request} with {}", load_words(load))
}

/// Names the loads that only one of the two sides has.
fn unmatched_loads(sides: [Side; 2], matched: &[Matched]) -> Vec<String> {
    let only = |side: usize| {
        let (runs, name) = sides[side];
        let loads = runs[0].loads.iter().enumerate();
        let left = loads.filter(|(place, _)| !matched.iter().any(|m| m.first()[side] == *place));
        let left: Vec<String> = left.map(|(_, load)| requested(&runs[0], load)).collect();
        (!left.is_empty()).then(|| format!("Only {name} has {}.", left.join("; ")))
    };
    [0, 1].into_iter().filter_map(only).collect()
}

/// Returns what differs between the runs, and which runs did not finish.
fn warnings(sides: [Side; 2], servers: &[Matched]) -> Vec<String> {
    let [before, after] = sides;
    let of_both = servers.iter().map(Matched::first).collect::<Vec<_>>();
    let mut warnings = differences((&before.0[0], before.1), (&after.0[0], after.1), &of_both);
    for (side, (runs, name)) in sides.into_iter().enumerate() {
        let named = |run: &Run| run.number.map_or_else(|| name.to_owned(), |n| format!("run {n}"));
        for (place, run) in runs.iter().enumerate() {
            // The runs of one side are expected to be alike.
            let servers: Vec<[usize; 2]> =
                servers.iter().map(|server| [server.0[side][0], server.0[side][place]]).collect();
            let names = (named(&runs[0]), named(run));
            warnings.extend(differences((&runs[0], &names.0), (run, &names.1), &servers));
            let note = state_note(run);
            if !note.is_empty() {
                warnings.push(format!("{}: {note}", names.1));
            }
        }
    }
    warnings
}

/// Returns what differs between two runs and between their servers, which are given by index.
fn differences(
    (old, old_name): (&Run, &str),
    (new, new_name): (&Run, &str),
    servers: &[[usize; 2]],
) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: &str, a: String, b: String| {
        if a != b {
            let [a, b] = [a, b].map(|of| if of.is_empty() { "unknown".to_owned() } else { of });
            found.push(format!("{what} differs: {a} in {old_name}, {b} in {new_name}."));
        }
    };
    let machine = |run: &Run| {
        let machine = &run.host.machine;
        let print = match machine.fingerprint.as_str() {
            "" => String::new(),
            print => format!(" ({print})"),
        };
        format!("{} × {}{print}", machine.allowed, machine.cpu)
    };
    differ("The machine", machine(old), machine(new));
    differ("The kernel", old.host.machine.kernel.clone(), new.host.machine.kernel.clone());
    differ("The version of hotlap", old.hotlap.clone(), new.hotlap.clone());
    differ("The contract", old.contract.clone(), new.contract.clone());
    let slice = |run: &Run| slice_words(&run.schedule).unwrap_or_else(|| "unknown".to_owned());
    differ("The length of a slice", slice(old), slice(new));
    let cores = |run: &Run| {
        cores_in_words(&run.schedule.server_cpus).unwrap_or_else(|| "not pinned".to_owned())
    };
    differ("The choice of cores for servers", cores(old), cores(new));
    let priority = |run: &Run| if run.schedule.high_priority { "high" } else { "normal" };
    differ("The priority", priority(old).to_owned(), priority(new).to_owned());
    for &[a, b] in servers {
        let (a, b) = (&old.servers[a], &new.servers[b]);
        if a.name == b.name {
            differ(&format!("The version of {}", a.name), a.version.clone(), b.version.clone());
            if a.version.is_empty() {
                differ(&format!("The command of {}", a.name), a.command.clone(), b.command.clone());
            }
        } else {
            differ("The server", a.name.clone(), b.name.clone());
        }
    }
    found
}

/// Returns the goals of a search: `p99 < 10 ms and errors < 0.1%`.
fn goals(run: &Run) -> String {
    let goals: Vec<String> = run.schedule.objectives.iter().map(ToString::to_string).collect();
    goals.join(" and ")
}

impl RunComparison {
    /// Checks that both runs are searches with the same goals, or that neither is a search.
    fn are_alike(before: (&Run, &str), after: (&Run, &str)) -> Result<(), Incomparable> {
        let searched = |(_, name): (&Run, &str), (_, other): (&Run, &str)| {
            Err(Incomparable(format!(
                "{name} searched for capacities, but {other} did not: compare runs of `hotlap \
                 capacity` with each other"
            )))
        };
        match (before.0.is_search(), after.0.is_search()) {
            (true, false) => searched(before, after),
            (false, true) => searched(after, before),
            _ if before.0.schedule.objectives == after.0.schedule.objectives => Ok(()),
            _ => Err(Incomparable(format!(
                "{} searched for {}, but {} for {}: repeat one of them with the goals of the \
                 other (--slo)",
                before.1,
                goals(before.0),
                after.1,
                goals(after.0)
            ))),
        }
    }

    fn add_search(
        &mut self,
        [before, after]: [Side; 2],
        load: &Matched,
        servers: &[Matched],
        are_many: bool,
    ) {
        let sides = SearchSides::of([before.0, after.0], load);
        let mut table = ComparedLoad::of([before.0, after.0], load, are_many);
        let goals = goals(&after.0[0]);
        table.title = format!("{} · {goals}", table.title);
        let compared = sides.compared(servers);
        let are_few = compared
            .iter()
            .flatten()
            .any(|(_, verdict)| *verdict == Verdict::Inconclusive(Inconclusive::TooFewRuns));
        for (matched, found) in servers.iter().zip(compared) {
            let [old_server, server] = first_servers([before, after], matched);
            let [old, new] = sides.capacities(matched).map(capacity_figure);
            let found = MeasureVerdict::of_capacity(found);
            let change = MeasureChange {
                measure: CAPACITY.to_owned(),
                of: None,
                before: old,
                after: new,
                is_relative: false,
                is_worse: found.judged == Judged::Worse,
                found,
            };
            let names = [
                format!("{} of {}", server.name, after.1),
                format!("{} of {}", old_server.name, before.1),
            ];
            let sentence = sentence(&change, &goals, &names);
            self.sentences.push(with_load(&table.under, &sentence));
            table.servers.push(ComparedServer {
                name: server.name.clone(),
                versions: (old_server.version.clone(), server.version.clone()),
                changes: vec![change],
            });
        }
        self.tables.push(table);
        self.need(are_few.then(|| TOO_FEW_RUNS.to_owned()));
    }
}

/// States the result for a server in one sentence, given its name in the later and in the earlier
/// search.
fn sentence(change: &MeasureChange, goals: &str, [name, earlier]: &[String; 2]) -> String {
    let (Some(after), Some(ratio)) = (&change.after, &change.found.ratio) else {
        return format!(
            "{name} and {earlier}: not comparable, because one of the capacities is only a bound \
             or is unknown."
        );
    };
    let own = format!("{name} meets {goals} up to {} requests/s", with_interval(after));
    let ratio = ratio.full();
    match change.found.judged {
        Judged::Better | Judged::Worse => format!("{own}: {ratio} the capacity of {earlier}."),
        _ => format!("{own}: {ratio} the capacity of {earlier}, {}.", change.found.words),
    }
}
