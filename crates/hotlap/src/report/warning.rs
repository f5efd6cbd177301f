//! What speaks against the figures, each with what to do about it.

use std::collections::BTreeMap;

use hotlap_stats::Reading;
use hotlap_stats::estimate::{level, median};

use super::bias;
use super::figure::{count, grouped, plural};
use super::standing::{Measured, Standing};
use crate::record::{Class, Gate, Role, Run};

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
            let name = &run.servers[server].name;
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
            warnings.extend(left_out(run, standing.load, server, false));
            warnings.extend(left_out(run, standing.load, server, true));
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
    let load = match run.loads.get(standing.load) {
        Some(load) if run.loads.len() > 1 => format!(" (load {})", load.name),
        _ => String::new(),
    };
    Some(format!(
        "{}{load}: requests/s is a lower bound (≥), because the load generator was busy. Give it \
         more cores (-t 2), or the server fewer (--cpus 1).",
        names.join(", ")
    ))
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

/// Laps of a server that do not count, and the reason of the first: those in a closed loop, or
/// those at a rate, which no other figure but the response time rests on.
fn left_out(run: &Run, load: usize, server: usize, paced: bool) -> Option<String> {
    let own =
        |l: &&crate::record::Lap| l.server == server && l.load == load && l.rate.is_some() == paced;
    let laps: Vec<_> = run.laps.iter().filter(own).collect();
    let out: Vec<_> = laps.iter().filter(|l| !l.counts()).collect();
    let first = out.first()?.failed.iter().find(|g| g.invalidates())?;
    let (name, all) = (&run.servers[server].name, plural(laps.len(), "lap"));
    let (out, why) = (out.len(), gate(first));
    Some(match paced {
        false => format!("{name}: {out} of {all} left out, the first because {why}."),
        true => format!(
            "{name}: {out} of {all} at a rate left out of the response time, the first because \
             {why}; requests/s and cost do not rest on them."
        ),
    })
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

/// What was noted at the starts; the same note of several servers is told once.
fn notes(run: &Run) -> Vec<String> {
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for start in &run.starts {
        let server = &run.servers[start.server];
        if server.role == Role::Double {
            continue;
        }
        for note in &start.notes {
            match said.iter_mut().find(|(told, _)| told == note) {
                None => said.push((note, vec![&server.name])),
                Some((_, names)) if names.contains(&server.name.as_str()) => {}
                Some((_, names)) => names.push(&server.name),
            }
        }
    }
    let line = |(note, names): (&str, Vec<&str>)| match names.len() {
        0..=3 => format!("{}: {note}", names.join(", ")),
        n => format!("{n} servers: {note}"),
    };
    said.into_iter().map(line).collect()
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
