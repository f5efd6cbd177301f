//! What speaks against the figures, each with what to do about it.

use std::collections::BTreeMap;

use hotlap_stats::{Reading, level, median};

use super::bias;
use super::figure::{count, grouped, plural, rate};
use super::standing::{Measured, Standing};
use super::summary::{is_measured, under};
use crate::record::{self, Class, Gate, Lap, Role, Run};

/// Everything that a reader must know before trusting the table.
#[must_use]
pub fn warnings(run: &Run, standings: &[Standing]) -> Vec<String> {
    let mut warnings = run.host.doubts.clone();
    for standing in standings {
        warnings.extend(bound(run, standing));
        for (server, measured) in standing.servers.iter().enumerate() {
            let role = run.servers[server].role;
            if run.servers[server].retired.is_some() || role == Role::Double {
                continue;
            }
            let name = &format!("{}{}", run.servers[server].name, under(run, standing.load));
            if let Some(moved) = moved(&measured.costs) {
                let percent = grouped(100.0 * moved.abs(), 0);
                let which = if moved < 0.0 { "cheaper" } else { "dearer" };
                warnings.push(format!(
                    "{name} became {percent} % {which} while it was measured, so its figures are of \
                     no steady state. A longer --budget warms it up for longer."
                ));
            }
            if waits_for_acknowledgements(measured) {
                warnings.push(format!(
                    "{name}: next to no answer takes under 40 ms, though the server mostly waits. \
                     So it looks where an answer is sent in two pieces, of which the second waits \
                     until the first is acknowledged (Nagle's algorithm); one write for each \
                     answer, or TCP_NODELAY, is the cure."
                ));
            }
            let of_alone = level(&measured.of_alone, standing.confidence);
            warnings.extend(
                of_alone.and_then(|of_alone| bias::warning(name, &of_alone, run.schedule.slice_ms)),
            );
            warnings.extend(silent(name, measured));
            warnings.extend(behind(name, measured, standing.offered));
            // Where nothing counts, the table itself says why.
            if standing.servers.iter().any(is_measured) {
                warnings.extend(refused(run, standing.load, server, true));
            }
            warnings.extend(refused(run, standing.load, server, false));
        }
    }
    warnings.extend(never_steady(run));
    warnings.extend(notes(run));
    warnings
}

/// Which servers the generator was the limit of.
fn bound(run: &Run, standing: &Standing) -> Option<String> {
    let is_told = |(server, measured): &(usize, &Measured)| {
        let server = &run.servers[*server];
        let is_named = !matches!(server.role, Role::Double | Role::Ceiling);
        measured.is_bound && is_named && server.retired.is_none()
    };
    let told = standing.servers.iter().enumerate().filter(is_told);
    let names: Vec<&str> = told.map(|(server, _)| run.servers[server].name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    Some(format!(
        "{}{}: requests/s is a lower bound (≥), because the load generator was busy. Give it \
         more cores (-t 2), or the server fewer (--cpus 1).",
        names.join(", "),
        under(run, standing.load)
    ))
}

/// That a server does not serve the rate that its load offers.
fn behind(name: &str, measured: &Measured, offered: Option<f64>) -> Option<String> {
    let (offered, reached) = (offered?, measured.rate.as_ref()?);
    (!measured.keeps_up).then(|| {
        format!(
            "{name} served {} of the {} requests/s that were offered: requests queued, and response \
             times grew for as long as a lap took. Offer less to measure them.",
            rate(reached.value),
            rate(offered)
        )
    })
}

/// Rounds in which a server sent no response.
fn silent(name: &str, measured: &Measured) -> Option<String> {
    let rounds = match measured.silent_rounds {
        0 => return None,
        n => plural(n as usize, "round"),
    };
    Some(format!(
        "{name} sent no response in {rounds}. They count: its requests/s in such a restart are all \
         of its responses ÷ all of its time. Look for what made it wait, for instance in its log."
    ))
}

/// Blocks of a heat before it is asked whether a server moved in it.
const BLOCKS_THAT_MOVE: usize = 6;

/// A change within a heat that is told of: no machine's drift is as large.
const MOVED: f64 = 0.1;

/// By how much the last third of the blocks of a heat is above the first third, in the middle of
/// the heats that have blocks enough, where that is worth telling: a program that goes on compiling
/// itself, or a leak.
fn moved(costs: &[Reading]) -> Option<f64> {
    let mut heats = BTreeMap::<u32, Vec<f64>>::new();
    for reading in costs {
        heats.entry(reading.heat).or_default().push(reading.value);
    }
    let change = |blocks: &Vec<f64>| {
        let third = blocks.len() / 3;
        let (first, last) = (median(&blocks[..third])?, median(&blocks[blocks.len() - third..])?);
        Some(last / first - 1.0)
    };
    let long = heats.values().filter(|blocks| blocks.len() >= BLOCKS_THAT_MOVE);
    let changes: Vec<f64> = long.filter_map(change).collect();
    median(&changes).filter(|moved| moved.abs() >= MOVED)
}

/// Whether nine of ten answers take as long as Linux waits at least before it acknowledges what it
/// has nothing to answer to (`TCP_DELACK_MIN`, 40 ms), and hardly longer, by a server that mostly
/// waits: Nagle's algorithm holds back the rest of an answer until then (RFC 1122, sections 4.2.3.2
/// and 4.2.3.4).
fn waits_for_acknowledgements(measured: &Measured) -> bool {
    let (Some(rate), Some(cost)) = (&measured.rate, &measured.cost) else { return false };
    let busy = rate.value * cost.value / 1e9;
    let ms = |q| measured.service.answered.quantile(q) as f64 / 1e6;
    busy < 0.5 && ms(0.1) >= 39.5 && ms(0.5) < 60.0
}

/// Laps of a server that do not count, the validity checks that they failed, and what to do; of the
/// main laps of a load, or else of those at a common rate, on which response times alone rest.
#[must_use]
pub fn refused(run: &Run, load: usize, server: usize, main: bool) -> Option<String> {
    let own = |l: &&Lap| l.server == server && l.load == load && run.is_main(l) == main;
    let laps: Vec<&Lap> = run.laps.iter().filter(own).collect();
    let first = |lap: &&Lap| lap.failed.iter().find(|g| g.invalidates()).cloned();
    let gates: Vec<Gate> = laps.iter().filter_map(first).collect();
    let mut checks: Vec<(&Gate, usize)> = Vec::new();
    for failed in &gates {
        match checks.iter_mut().find(|(known, _)| check(known).0 == check(failed).0) {
            Some((_, times)) => *times += 1,
            None => checks.push((failed, 1)),
        }
    }
    checks.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    let (most, _) = checks.first()?;
    let name = format!("{}{}", run.servers[server].name, under(run, load));
    let which = if main { "" } else { " at a common rate" };
    let out = match (laps.len(), gates.len()) {
        (1, 1) => format!("its only lap{which} does"),
        (all, out) if all == out => format!("all {all} laps{which} do"),
        (all, 1) => format!("1 of {all} laps{which} does"),
        (all, out) => format!("{out} of {all} laps{which} do"),
    };
    let why = match checks.as_slice() {
        [(only, 1)] => gate(only),
        [(only, _)] => format!("{} in the first of them", gate(only)),
        many => {
            let each = |(failed, times): &(&Gate, usize)| {
                format!("{times} × {} (first: {})", check(failed).0, gate(failed))
            };
            many.iter().map(each).collect::<Vec<_>>().join(", ")
        }
    };
    let rest = match main {
        true => "",
        false => " Requests/s and CPU time do not rest on them.",
    };
    Some(format!("{name}: {out} not count: {why}. {}{rest}", check(most).1))
}

/// A validity check in a word or two, and what to do about laps that fail it.
fn check(gate: &Gate) -> (&'static str, &'static str) {
    match gate {
        Gate::LittlesLaw { .. } => (
            "Little's law",
            "Something delayed requests outside of the server: repeat the run while nothing else is \
             at work on the machine.",
        ),
        Gate::Connections { .. } => (
            "connections",
            "See whether the server limits its connections (backlog, `ulimit -n`), or use fewer (-c).",
        ),
        Gate::Bytes { .. } => (
            "bytes",
            "The server sends more or less than its responses: `hotlap check` shows them.",
        ),
        Gate::Generator { .. } => ("generator", "Give the generator more cores (-t)."),
        Gate::Failures { .. } => (
            "failed requests",
            "Look into the server's log, and try fewer connections (-c) or a longer --timeout.",
        ),
        Gate::WrongAnswers { .. } => (
            "wrong responses",
            "If that response is right, say so with --expect-status and --expect-body.",
        ),
        Gate::Late { .. } => ("lateness", "Give the generator more cores (-t), or lower the rate."),
        Gate::SideEffect { .. } => (
            "side effect",
            "See whether the server drops work, and whether `counts` names the right file.",
        ),
    }
}

fn never_steady(run: &Run) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for (index, server) in run.servers.iter().enumerate() {
        let own = run.starts.iter().filter(|s| s.server == index).flat_map(|s| &s.warmups);
        let classes: Vec<Class> = own.map(|w| w.class).collect();
        let never = classes.iter().filter(|c| **c == Class::NeverSteady).count();
        // One start among many that a neighbour disturbed says nothing of the server.
        if never * 2 > classes.len() && server.role != Role::Double {
            names.push(&server.name);
        }
    }
    (!names.is_empty()).then(|| {
        format!(
            "{} never became steady within the warm-up's limit: what is measured may still be \
             moving. A longer --budget gives it more time; a quieter machine helps.",
            names.join(", ")
        )
    })
}

/// What was noted at the starts, each note once.
fn notes(run: &Run) -> Vec<String> {
    let mut said: Vec<(String, Vec<usize>)> = Vec::new();
    let is_shown = |server: usize| run.servers[server].role != Role::Double;
    for server in (0..run.servers.len()).filter(|server| is_shown(*server)) {
        for note in notes_of(run, server) {
            match said.iter_mut().find(|(known, _)| *known == note) {
                None => said.push((note, vec![server])),
                Some((_, servers)) => servers.push(server),
            }
        }
    }
    said.into_iter().map(|(note, servers)| noted(run, &note, servers)).collect()
}

/// A note with the servers that it is about. The ceiling, which nobody named, is not counted among
/// others.
fn noted(run: &Run, note: &str, mut servers: Vec<usize>) -> String {
    let is_named = |server: &usize| run.servers[*server].role != Role::Ceiling;
    if servers.iter().any(is_named) {
        servers.retain(is_named);
    }
    let named = |server: &record::Server| !matches!(server.role, Role::Ceiling | Role::Double);
    let all = run.servers.iter().filter(|s| named(s) && s.retired.is_none()).count();
    let names: Vec<&str> = servers.iter().map(|i| run.servers[*i].name.as_str()).collect();
    match names.len() {
        0..=3 => format!("{}: {note}", names.join(", ")),
        n if n >= all => format!("All {n} servers: {note}"),
        n => format!("{n} servers: {note}"),
    }
}

/// What was noted at the starts of one server. Notes that differ in their numbers alone, as in a
/// port that each start chooses anew, are one: the first.
#[must_use]
pub fn notes_of(run: &Run, server: usize) -> Vec<String> {
    let numberless = |note: &str| note.replace(|c: char| c.is_ascii_digit(), "");
    let mut notes: Vec<String> = Vec::new();
    for note in run.starts.iter().filter(|s| s.server == server).flat_map(|s| &s.notes) {
        if !notes.iter().any(|known| numberless(known) == numberless(note)) {
            notes.push(note.clone());
        }
    }
    notes
}

/// How a warm-up went, in words.
#[must_use]
pub fn class(class: Class) -> &'static str {
    match class {
        Class::Flat => "flat",
        Class::WarmedUp => "warmed up",
        Class::SlowingDown => "slowing down",
        Class::NeverSteady => "never steady",
    }
}

/// A failed gate, as a clause that reads after "because".
#[must_use]
pub fn gate(gate: &Gate) -> String {
    match gate {
        Gate::LittlesLaw { off } => format!(
            "connections = rate × latency does not hold (Little's law, {} % off)",
            grouped(*off, 1)
        ),
        Gate::Connections { asked, up } => {
            format!("only {} of {} connections were up", count(*up), count(*asked))
        }
        Gate::Bytes { expected, received } => {
            format!("{} bytes came where the answers make {}", count(*received), count(*expected))
        }
        Gate::Generator { busy } => {
            format!("the generator was busy {} % of the time", grouped(*busy, 0))
        }
        Gate::Failures { failures, requests } => {
            format!("{} of {} requests failed", count(*failures), count(*requests))
        }
        Gate::WrongAnswers { wrong, example } => {
            format!("{} answers were wrong ({example})", count(*wrong))
        }
        Gate::Late { lag_us } => {
            format!("the generator sent {} µs late (p99)", grouped(*lag_us, 0))
        }
        Gate::SideEffect { expected, counted } => format!(
            "its side effect happened {} times where {} requests were answered",
            count(*counted),
            count(*expected)
        ),
    }
}
