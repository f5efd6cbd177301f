//! The sentences of a table: one per comparison, with ratios and intervals.

use std::time::Duration;

use hotlap_stats::{Effect, Estimate, Inconclusive, MIN_RESTARTS, Verdict};

use super::figure::{exactly, ratio};
use super::verdict::Judged;
use super::warnings::left_out;
use crate::analysis::{Analysis, Found, Limited, Measure, ServerComparison};
use crate::model::{Lap, Question, Run};
use crate::text::number::{self, count, plural};

/// The maximum number of comparisons in sentences. More comparisons are easier to read in the
/// table.
const MOST: usize = 5;

/// Returns the sentences of a table. The first sentences compare each server with the reference,
/// in the order of the table. Others state how many servers the generator limits, which servers
/// sent wrong responses, and why there are no figures. The last sentence states what would decide
/// inconclusive comparisons. A suite about layers has no comparisons, because each step has its
/// own sentence. If one reason withholds all verdicts, no sentence compares servers.
pub(super) fn of_table(run: &Run, analysis: &Analysis) -> Vec<String> {
    let mut sentences = Vec::new();
    if run.question != Question::Layers {
        sentences.extend(verdicts(run, analysis));
        sentences.extend(limited(run, analysis));
    }
    sentences.extend(wrong_responses(run, analysis));
    sentences.extend(no_figures(run, analysis));
    let found = analysis.servers.iter().filter_map(|s| s.against.as_ref());
    sentences.extend(needed(run, "this run", analysis.load, found));
    sentences
}

/// Names the servers that sent wrong responses, with the consequence.
fn wrong_responses(run: &Run, analysis: &Analysis) -> Vec<String> {
    let sentence = |server: usize| {
        let wrong = match analysis.servers[server].wrong {
            0 => return None,
            1 => "1 of its responses was".to_owned(),
            n => format!("{} of its responses were", count(n)),
        };
        let is_reference = Some(server) == analysis.reference;
        let then = match (analysis.servers[server].is_measured(), is_reference) {
            (true, true) => "so nothing is compared with it",
            (true, false) => "so it is neither compared nor ranked",
            (false, true) => "so it has no figures, and nothing is compared with it",
            (false, false) => "so it has no figures",
        };
        Some(format!("{}: {wrong} wrong, {then}.", run.servers[server].name))
    };
    shown(run).filter_map(sentence).collect()
}

/// States why there are no figures. Empty if a lap counts.
fn no_figures(run: &Run, analysis: &Analysis) -> Vec<String> {
    if analysis.is_measured() || shown(run).next().is_none() {
        return Vec::new();
    }
    let is_own = |lap: &&Lap| lap.load == analysis.load && run.is_main(lap);
    let is_lap_valid = run.laps.iter().filter(is_own).any(Lap::counts);
    let why = match analysis.servers.iter().map(|s| s.laps.1).sum::<u32>() {
        _ if is_lap_valid => {
            "Too many requests failed, some with wrong responses, so there are no figures."
                .to_owned()
        }
        0 => "No lap was finished, so there are no figures.".to_owned(),
        1 => "The only lap failed a validity check, so there are no figures.".to_owned(),
        n => format!("All {n} laps failed a validity check, so there are no figures."),
    };
    std::iter::once(why).chain(left_out(run, analysis.load, shown(run))).collect()
}

fn shown(run: &Run) -> impl Iterator<Item = usize> {
    (0..run.servers.len()).filter(|&server| run.is_shown(server))
}

fn verdicts(run: &Run, analysis: &Analysis) -> Vec<String> {
    let Some(reference) = analysis.reference else { return Vec::new() };
    let is_other =
        |i: &usize| *i != reference && run.is_compared(*i) && analysis.servers[*i].is_measured();
    let mut others: Vec<usize> = (0..run.servers.len()).filter(is_other).collect();
    analysis.sort(run, &mut others);
    let against = |i: &usize| analysis.servers[*i].against.as_ref();
    if others.iter().filter_map(against).all(is_withheld) {
        return Vec::new();
    }
    let name = |i: usize| run.servers[i].name.as_str();
    let sentence = |&i: &usize| {
        let against = against(&i)?;
        let sentence = verdict(name(i), name(reference), against);
        Some(match database(against) {
            Some(database) => format!("{}; {database}.", sentence.trim_end_matches('.')),
            None => sentence,
        })
    };
    let mut sentences: Vec<String> = others.iter().take(MOST).filter_map(sentence).collect();
    if others.len() > MOST {
        let left = others.len() - MOST;
        sentences.push(format!("The table has {}.", plural(left, "more comparison")));
    }
    sentences
}

/// Whether a comparison has no verdict, for a reason that applies to the whole table.
fn is_withheld(against: &ServerComparison) -> bool {
    let why = |found: Found| match found {
        Some((_, Verdict::Inconclusive(why))) => Some(why),
        _ => None,
    };
    let [rate, cost] = [against.found.requests_per_s, against.found.cost];
    let whole =
        [Inconclusive::TooFewRestarts, Inconclusive::TooFewNodes, Inconclusive::ControlDiffers];
    let is_whole = |found| why(found).is_some_and(|why| whole.contains(&why));
    let is_bound = why(rate) == Some(Inconclusive::DatabaseBound);
    let has_rate = rate.is_some() && !is_bound && !is_whole(rate);
    let has_database = against.difference(Measure::Database).is_some();
    match cost {
        Some(_) => is_whole(cost) && !has_rate && !has_database,
        // Without CPU time, the sentence says why.
        None => is_whole(rate) && against.limited.is_none(),
    }
}

/// States how many servers the generator limits, and how those servers are ordered.
fn limited(run: &Run, analysis: &Analysis) -> Option<String> {
    let is_limited = |&i: &usize| run.is_compared(i) && analysis.servers[i].generator_limited;
    let count = (0..run.servers.len()).filter(is_limited).count();
    let ranked = match count {
        0 => return None,
        1 => "",
        _ => " CPU per request decides their order.",
    };
    Some(format!("The load generator limited {} (≥).{ranked}", plural(count, "server")))
}

/// States how stored runs get a verdict.
pub(super) const TOO_FEW_RUNS: &str = "A verdict needs three runs on each side (hotlap compare \
                                       11-13 14-16), because each run is one sample of the \
                                       machine. One run with both versions decides sooner.";

/// States how to make inconclusive comparisons conclusive, given a run, its name, and one of its
/// loads. `None` if no comparison is inconclusive.
pub(super) fn needed<'a>(
    run: &Run,
    name: &str,
    load: usize,
    found: impl IntoIterator<Item = &'a ServerComparison>,
) -> Option<String> {
    let both = |against: &ServerComparison| [against.found.cost, against.found.requests_per_s];
    let all = found.into_iter().flat_map(both).flatten();
    let why = all.map(|(_, verdict)| verdict).find_map(|verdict| match verdict {
        // A separate warning names the unsteady server and the remedy.
        Verdict::Inconclusive(Inconclusive::NotSteady) => None,
        Verdict::Inconclusive(why) => Some(why),
        _ => None,
    })?;
    Some(match why {
        Inconclusive::TooFewRestarts => {
            let restarts = run.restarts(load);
            let found = match restarts < MIN_RESTARTS {
                true => format!("{name} has {restarts}"),
                false => "a server has fewer".to_owned(),
            };
            format!(
                "A verdict needs at least {MIN_RESTARTS} restarts of each server with laps that \
                 count, but {found}. {}",
                remedy(run, restarts)
            )
        }
        Inconclusive::TooFewNodes => {
            let remedy = match run.pool.as_ref().is_some_and(|pool| !pool.missing.is_empty()) {
                true => "Run the missing shards on nodes that have not run a shard yet, or measure",
                false => "Measure",
            };
            format!(
                "A verdict needs at least {MIN_RESTARTS} nodes on which a server and the reference \
                 have laps that count. {remedy} again with a higher --nodes-per-server."
            )
        }
        Inconclusive::TooFewRuns => TOO_FEW_RUNS.to_owned(),
        // A separate warning names the unsteady server and the remedy.
        Inconclusive::NotSteady => return None,
        Inconclusive::DatabaseBound => {
            "Throughput has no verdict: the database used more than half of the cores that it \
             shares with the servers. A verdict on throughput would compare the database. Compare \
             CPU time per request instead."
                .to_owned()
        }
        Inconclusive::ControlDiffers => {
            "Verdicts are withheld in each measure in which the A/A control, a second copy of the \
             reference, differs from the reference (p < 0.01). Other differences may have the same \
             cause. Look for what disturbs one of the two, and repeat the run."
                .to_owned()
        }
    })
}

/// States how to get enough restarts. The duration is what the run announced, or else an estimate
/// from the restarts so far.
fn remedy(run: &Run, restarts: u32) -> String {
    let option = format!("--restarts {MIN_RESTARTS}");
    if restarts == 0 || restarts >= MIN_RESTARTS || run.took_ms == 0 {
        return format!("A longer --duration, or {option}, gives more restarts.");
    }
    // The time of the first start is not part of the duration.
    let first_ms = run.laps.iter().map(|lap| lap.at_ms).min().unwrap_or(0);
    let least_ms = run.took_ms as f64 / f64::from(restarts) * f64::from(MIN_RESTARTS);
    let least_s = run.schedule.needed_s.unwrap_or((least_ms - first_ms as f64) / 1e3);
    let budget = number::duration(Duration::from_secs_f64(least_s));
    format!("A --duration of about {budget}, or {option}, gives enough restarts.")
}

/// States how a server compares with another. The sentence always starts with the server, so that
/// all sentences of a table have the same direction.
pub(super) fn verdict(server: &str, other: &str, against: &ServerComparison) -> String {
    let cost = against.found[Measure::Cost];
    match (against.difference(Measure::Rate), against.difference(Measure::Cost)) {
        (Some(rate), _) => {
            let throughput = format!("{server}: {}", times_the("throughput", &rate, Some(other)));
            match cost {
                None => format!("{throughput}."),
                Some((effect, verdict)) if verdict.differs() => {
                    format!("{throughput}, {}.", cpu(&effect.ratio, None))
                }
                Some(found) => format!("{throughput}; {}.", known("CPU per request", found)),
            }
        }
        (None, Some(cost)) => {
            let cost = format!("{server}: {}", cpu(&cost, Some(other)));
            match (against.found[Measure::Rate], against.limited) {
                (None, Some(limited)) => format!("{cost}{}.", bound(server, other, limited)),
                (None, None) => format!("{cost}; throughput: not known."),
                (Some(found), _) => format!("{cost}; {}.", known("throughput", found)),
            }
        }
        (None, None) => no_difference(server, other, against),
    }
}

/// States what is known about the CPU time of the run's database.
fn database(against: &ServerComparison) -> Option<String> {
    let found = against.found[Measure::Database]?;
    Some(match found.1.differs() {
        true => format!("the database needs {}", cpu(&found.0.ratio, None)),
        false => known("CPU per request of the database", found),
    })
}

/// Formats a ratio: `2.06× [2.03, 2.08]`.
fn times(estimate: &Estimate) -> String {
    ratio(estimate).full()
}

/// Describes a ratio: `2.06× the throughput of a [2.03, 2.08]`.
fn times_the(what: &str, estimate: &Estimate, other: Option<&str>) -> String {
    let of = other.map_or_else(String::new, |other| format!(" of {other}"));
    let figure = ratio(estimate);
    format!("{} the {what}{of} {}", figure.text, figure.spread).trim_end().to_owned()
}

/// Describes a ratio of CPU time: `52% less CPU per request [51, 53]`. The name of the other
/// server, if given, follows "than". A ratio of 2 or more stays a ratio, which is easier to grasp
/// than a large percentage.
fn cpu(ratio_of_cost: &Estimate, than: Option<&str>) -> String {
    let Estimate { value, low, high } = *ratio_of_cost;
    if value >= 1.995 {
        return times_the("CPU per request", ratio_of_cost, than);
    }
    let than = than.map_or_else(String::new, |than| format!(" than {than}"));
    let (word, low, high) = match value < 1.0 {
        true => ("less", 1.0 - high, 1.0 - low),
        false => ("more", low - 1.0, high - 1.0),
    };
    let share = (value - 1.0).abs();
    let [low, share, high] = number::percents_apart([low, share, high].map(|share| 100.0 * share));
    match ratio_of_cost.is_bounded() {
        true => format!("{share}% {word} CPU per request{than} [{low}, {high}]"),
        false => format!("{share}% {word} CPU per request{than}"),
    }
}

/// States what is known about throughput if the generator limits one of two servers, as the last
/// clause of a sentence. Empty if the generator limits both, which [`limited`] states once for the
/// table.
fn bound(server: &str, other: &str, limited: Limited) -> String {
    let figure = |value: f64| ratio(&exactly(value)).text;
    match limited {
        Limited::Server(Some(effect)) => {
            let least = figure(effect.ratio.low);
            format!("; throughput at least {least}, limited by the load generator")
        }
        Limited::Other(Some(effect)) => {
            let most = figure(effect.ratio.high);
            format!("; throughput at most {most}, as the load generator limits {other}")
        }
        Limited::Server(None) => unknown(server),
        Limited::Other(None) => unknown(other),
        Limited::Both => String::new(),
    }
}

fn unknown(limited: &str) -> String {
    format!("; throughput not known, because the load generator limits {limited}")
}

/// States what is known without a difference: `throughput equal within ±2% (1.01× [0.99, 1.02])`.
fn known(what: &str, (effect, verdict): (Effect, Verdict)) -> String {
    let words = match verdict {
        Verdict::Inconclusive(_) => "inconclusive".to_owned(),
        _ => Judged::undecided(&effect.ratio).words(None),
    };
    let alone = match verdict {
        Verdict::NoDifference if beyond_one(&effect) => {
            ", which may be chance among this many comparisons"
        }
        _ => "",
    };
    format!("{what} {words} ({}{alone})", times(&effect.ratio))
}

fn no_difference(server: &str, other: &str, against: &ServerComparison) -> String {
    let (rate, cost) = (against.found[Measure::Rate], against.found[Measure::Cost]);
    let clauses: Vec<String> = [
        rate.map(|found| known("throughput", found)),
        cost.map(|found| known("CPU per request", found)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let bound = against.limited.map(|limited| bound(server, other, limited)).unwrap_or_default();
    let pair = format!("{server} and {other}");
    match (clauses.is_empty(), against.limited) {
        (true, None) => format!("{pair}: not compared, because too few laps count."),
        (true, Some(_)) => format!("{pair}: not compared, because CPU time is not known{bound}."),
        (false, _) => format!("{pair}: {}{bound}.", clauses.join("; ")),
    }
}

/// Whether an interval excludes 1. If this were the only comparison, the two servers would differ.
fn beyond_one(effect: &Effect) -> bool {
    effect.ratio.is_bounded() && (effect.ratio.low > 1.0 || effect.ratio.high < 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(value: f64, low: f64, high: f64) -> Effect {
        let ratio = Estimate { value, low, high };
        Effect { ratio, p: 0.001, restarts: 3 }
    }

    fn against(rate: (f64, Verdict), cost: (f64, Verdict)) -> ServerComparison {
        let near = |(v, verdict): (f64, Verdict)| (effect(v, v * 0.99, v * 1.01), verdict);
        let mut against = ServerComparison::default();
        against.found.requests_per_s = Some(near(rate));
        against.found.cost = Some(near(cost));
        against
    }

    /// Regression: a server with 0.65× [0.59, 0.72] of the cost was reported as "no difference".
    /// Three restarts prove little in a family of twenty comparisons.
    #[test]
    fn what_an_interval_would_tell_apart_is_not_called_no_difference() {
        let said = |low, value, high| {
            let mut against = ServerComparison::default();
            against.found.cost = Some((effect(value, low, high), Verdict::NoDifference));
            verdict("a", "b", &against)
        };
        assert_eq!(
            said(0.59, 0.65, 0.72),
            "a and b: CPU per request not decided (0.65× [0.59, 0.72], which may be chance among \
             this many comparisons)."
        );
        assert_eq!(
            said(0.96, 1.02, 1.08),
            "a and b: CPU per request not decided (1.02× [0.96, 1.08])."
        );
    }

    #[test]
    fn every_sentence_is_from_the_side_of_the_reference() {
        let found = against((1.51, Verdict::Better), (0.66, Verdict::Better));
        assert_eq!(
            verdict("a", "b", &found),
            "a: 1.51× the throughput of b [1.49, 1.53], 34% less CPU per request [33, 35]."
        );
        let found = against((0.5, Verdict::Worse), (2.0, Verdict::Worse));
        assert_eq!(
            verdict("a", "b", &found),
            "a: 0.50× the throughput of b [0.49, 0.51], 2.00× the CPU per request [1.98, 2.02]."
        );
    }

    #[test]
    fn cost_comes_first_where_it_alone_tells_them_apart() {
        let found = against((1.02, Verdict::NoDifference), (1.03, Verdict::Worse));
        assert_eq!(
            verdict("a", "b", &found),
            "a: 3.0% more CPU per request than b [2.0, 4.0]; throughput equal within ±4% (1.02× \
             [1.01, 1.03], which may be chance among this many comparisons)."
        );
    }

    #[test]
    fn equal_is_a_verdict() {
        let found = against((1.01, Verdict::NoDifference), (1.0, Verdict::NoDifference));
        assert_eq!(
            verdict("a", "b", &found),
            "a and b: throughput equal within ±3% (1.01× [1.00, 1.02]); CPU per request equal \
             within ±1% (1.00× [0.99, 1.01])."
        );
        let nothing = ServerComparison::default();
        assert_eq!(
            verdict("a", "b", &nothing),
            "a and b: not compared, because too few laps count."
        );
    }
}
