//! What a table says: one sentence a comparison, with the ratio, its interval and the cost.

use hotlap_stats::{Effect, Estimate, Inconclusive, MAX_CONTROL_DIFFERENCE, MIN_RESTARTS, Verdict};

use super::figure::{exactly, ratio};
use super::warnings::left_out;
use crate::analysis::layers::inverse;
use crate::analysis::{Analysis, Found, Limited, Measure, ServerComparison};
use crate::model::{Question, Run};
use crate::text::number::{count, grouped, plural};

/// More comparisons than this are read better in the table.
const MOST: usize = 8;

/// What a table says, in sentences: one for each server that is compared with the reference, the
/// first in the table first; how many servers the generator limits; which sent wrong responses; why
/// there are no figures; and what would decide what is inconclusive. What layers cost is said step
/// by step instead.
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

/// Servers that sent wrong responses, and what follows.
fn wrong_responses(run: &Run, analysis: &Analysis) -> Vec<String> {
    let sentence = |server: usize| {
        let wrong = match analysis.servers[server].wrong {
            0 => return None,
            1 => "1 of its responses was".to_owned(),
            n => format!("{} of its responses were", count(n)),
        };
        let then = match Some(server) == analysis.reference {
            true => "so nothing is compared with it",
            false => "so it is neither compared nor ranked",
        };
        Some(format!("{}: {wrong} wrong, {then}.", run.servers[server].name))
    };
    shown(run).filter_map(sentence).collect()
}

/// Why there are no figures at all, where no lap counts.
fn no_figures(run: &Run, analysis: &Analysis) -> Vec<String> {
    if analysis.is_measured() || shown(run).next().is_none() {
        return Vec::new();
    }
    let why = match analysis.servers.iter().map(|s| s.laps.1).sum::<u32>() {
        0 => "No lap was finished, so there are no figures.".to_owned(),
        1 => "The only lap failed a validity check, so there are no figures.".to_owned(),
        n => format!("All {n} laps failed a validity check, so there are no figures."),
    };
    let of_each = shown(run).filter_map(|server| left_out(run, analysis.load, server, true));
    std::iter::once(why).chain(of_each).collect()
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
    let name = |i: usize| run.servers[i].name.as_str();
    let sentence = |&i: &usize| {
        let against = analysis.servers[i].against.as_ref()?;
        Some(verdict(name(i), name(reference), against))
    };
    let mut sentences: Vec<String> = others.iter().take(MOST).filter_map(sentence).collect();
    if others.len() > MOST {
        let left = others.len() - MOST;
        sentences.push(format!("{left} more are in the table and in the exports."));
    }
    sentences
}

/// How many servers the generator limits, and how they are ordered.
fn limited(run: &Run, analysis: &Analysis) -> Option<String> {
    let is_limited = |&i: &usize| run.is_compared(i) && analysis.servers[i].generator_limited;
    let count = (0..run.servers.len()).filter(is_limited).count();
    let are = match count {
        0 => return None,
        1 => "it is",
        _ => "they are",
    };
    let servers = plural(count, "server");
    Some(format!("The load generator limits {servers} (≥); {are} ordered by CPU time per request."))
}

/// What would make inconclusive comparisons conclusive, given a run, what to call it, and one of
/// its loads; `None` where there are none.
pub(super) fn needed<'a>(
    run: &Run,
    name: &str,
    load: usize,
    found: impl IntoIterator<Item = &'a ServerComparison>,
) -> Option<String> {
    let both = |against: &ServerComparison| [against.found.cost, against.found.requests_per_s];
    let all = found.into_iter().flat_map(both).flatten();
    let why = all.map(|(_, verdict)| verdict).find_map(|verdict| match verdict {
        Verdict::Inconclusive(why) => Some(why),
        _ => None,
    })?;
    Some(match why {
        Inconclusive::TooFewRestarts => {
            let restarts = run.restarts(load);
            format!(
                "A verdict needs at least {MIN_RESTARTS} restarts of each server with laps that \
                 count; {name} has {restarts}. {}",
                remedy(run, restarts)
            )
        }
        Inconclusive::NoiseUnknown => {
            "A verdict needs the noise floor, which is unknown here: too few laps of the reference \
             or of its A/A control count."
                .to_owned()
        }
        Inconclusive::ControlDiffers => format!(
            "The A/A control, the same program as the reference, differs from it by more than {} %, \
             so other differences may have the same cause. Look for what disturbs one of the two, \
             and repeat the run.",
            grouped(100.0 * MAX_CONTROL_DIFFERENCE, 0)
        ),
    })
}

/// How a run gets enough restarts; the budget by what the restarts so far took.
fn remedy(run: &Run, restarts: u32) -> String {
    let option = format!("--restarts {MIN_RESTARTS}");
    if restarts == 0 || restarts >= MIN_RESTARTS || run.took_ms == 0 {
        return format!("A longer --duration, or {option}, gives more.");
    }
    let least_s = run.took_ms as f64 / 1e3 / f64::from(restarts) * f64::from(MIN_RESTARTS);
    // Rounded up to what somebody would type.
    let budget = match (least_s / 10.0).ceil() * 10.0 {
        seconds if seconds < 120.0 => format!("{seconds}s"),
        seconds => format!("{}m", (seconds / 60.0).ceil()),
    };
    format!("A --duration of about {budget}, or {option}, gives enough.")
}

/// What separates a server from another.
pub(super) fn verdict(server: &str, other: &str, against: &ServerComparison) -> String {
    let cost = against.found[Measure::Cost];
    match (against.difference(Measure::Rate), against.difference(Measure::Cost)) {
        (Some(rate), _) if rate.value >= 1.0 => faster(server, other, &rate, turned(cost, false)),
        (Some(rate), _) => faster(other, server, &inverse(&rate), turned(cost, true)),
        (None, Some(cost)) => costs_less(server, other, &cost, against),
        (None, None) => no_difference(server, other, against),
    }
}

fn faster(fast: &str, slow: &str, rate: &Estimate, cost: Option<(Estimate, Verdict)>) -> String {
    let lead = format!("{fast} serves {} the requests of {slow}", ratio(rate).full());
    match cost {
        None => format!("{lead}."),
        Some((ratio_of_cost, Verdict::NoDifference)) => format!(
            "{lead}; no difference in CPU time each could be measured ({}).",
            ratio(&ratio_of_cost).full()
        ),
        Some((ratio_of_cost, Verdict::Inconclusive(_))) => {
            format!("{lead}; CPU time each is inconclusive ({}).", ratio(&ratio_of_cost).full())
        }
        Some((ratio_of_cost, _)) => {
            format!("{lead}, at {} of its CPU time each.", ratio(&ratio_of_cost).full())
        }
    }
}

fn costs_less(server: &str, other: &str, cost: &Estimate, against: &ServerComparison) -> String {
    let (cheap, dear, cost) = match cost.value <= 1.0 {
        true => (server, other, *cost),
        false => (other, server, inverse(cost)),
    };
    let lead =
        format!("{cheap} spends {} of the CPU time of {dear} on each request", ratio(&cost).full());
    let rate = |effect: &Effect| match cheap == server {
        true => ratio(&effect.ratio).full(),
        false => ratio(&inverse(&effect.ratio)).full(),
    };
    match (against.found[Measure::Rate], against.limited) {
        (None, Some(Limited::Both)) => format!("{lead}."),
        (None, Some(limited)) => format!("{lead}; {}.", bound(server, other, limited)),
        (None, None) => format!("{lead}; requests/s cannot be compared."),
        (Some((effect, Verdict::Inconclusive(_))), _) => {
            format!("{lead}; requests/s is inconclusive ({}).", rate(&effect))
        }
        (Some((effect, _)), _) => {
            format!("{lead}; no difference in requests/s could be measured ({}).", rate(&effect))
        }
    }
}

/// What is known of requests/s where the generator limits one of two servers, or both. That it
/// limits both is said once for the table, see [`limited`].
fn bound(server: &str, other: &str, limited: Limited) -> String {
    let at_least = |fast: &str, slow: &str, low: f64| {
        let times = ratio(&exactly(low)).text;
        format!(
            "limited by the load generator, {fast} serves at least {times} the requests of {slow}"
        )
    };
    match limited {
        Limited::Server(Some(effect)) => at_least(server, other, effect.ratio.low),
        Limited::Other(Some(effect)) => at_least(other, server, 1.0 / effect.ratio.high),
        Limited::Server(None) => {
            format!("requests/s cannot be compared, because the load generator limits {server}")
        }
        Limited::Other(None) => {
            format!("requests/s cannot be compared, because the load generator limits {other}")
        }
        Limited::Both => {
            "requests/s cannot be compared, because the load generator limits both".to_owned()
        }
    }
}

fn no_difference(server: &str, other: &str, against: &ServerComparison) -> String {
    let (rate, cost) = (against.found[Measure::Rate], against.found[Measure::Cost]);
    let figures: Vec<String> = [
        rate.map(|(e, _)| format!("{} in requests/s", ratio(&e.ratio).full())),
        cost.map(|(e, _)| format!("{} in CPU time per request", ratio(&e.ratio).full())),
    ]
    .into_iter()
    .flatten()
    .collect();
    let known = || [rate, cost].into_iter().flatten();
    let is_undecided = |(_, v): (Effect, Verdict)| matches!(v, Verdict::Inconclusive(_));
    let figures = figures.join(", ");
    // Why requests/s is missing, where the sentence for the table does not say it.
    let bound = match against.limited {
        None | Some(Limited::Both) => String::new(),
        Some(limited) => format!("; {}", bound(server, other, limited)),
    };
    match () {
        () if known().count() == 0 => match against.limited {
            None => format!("{server} and {other} cannot be compared: too few laps count."),
            Some(_) => format!("The CPU time of {server} or {other} is unknown{bound}."),
        },
        () if known().all(is_undecided) => {
            format!("Inconclusive: {server} against {other}: {figures}{bound}.")
        }
        () if known().all(|(e, _)| !e.ratio.is_bounded()) => {
            format!("Too few laps to tell {server} from {other}: {figures}{bound}.")
        }
        () if known().any(|(e, _)| beyond_one(&e)) => format!(
            "Not sure that {server} and {other} differ: {figures}; among so many comparisons, or \
             beside today's noise, that may be chance{bound}."
        ),
        () => format!(
            "No difference between {server} and {other} could be measured: {figures}{bound}."
        ),
    }
}

/// Whether an interval leaves out 1: alone, it would be a difference.
fn beyond_one(effect: &Effect) -> bool {
    effect.ratio.is_bounded() && (effect.ratio.low > 1.0 || effect.ratio.high < 1.0)
}

/// A ratio and its verdict, seen from the other side where that is `wanted`.
fn turned(found: Found, wanted: bool) -> Option<(Estimate, Verdict)> {
    let turn = |e: Estimate| if wanted { inverse(&e) } else { e };
    found.map(|(effect, verdict)| (turn(effect.ratio), verdict))
}

#[cfg(test)]
mod tests {
    use hotlap_stats::Spread;

    use super::*;

    fn effect(value: f64, low: f64, high: f64) -> Effect {
        let ratio = Estimate { value, low, high };
        let spread = Spread { sd_restart: 0.0, sd_round: 0.0 };
        Effect { ratio, p: 0.001, spread, restarts: 3, rounds: 18 }
    }

    fn against(rate: (f64, Verdict), cost: (f64, Verdict)) -> ServerComparison {
        let near = |(v, verdict): (f64, Verdict)| (effect(v, v * 0.99, v * 1.01), verdict);
        let mut against = ServerComparison::nothing();
        against.found.requests_per_s = Some(near(rate));
        against.found.cost = Some(near(cost));
        against
    }

    /// "No difference" was said of a server at 0.65× [0.59, 0.72] of the cost, since three starts
    /// and twenty comparisons make sure of nothing.
    #[test]
    fn what_an_interval_would_tell_apart_is_not_called_no_difference() {
        let said = |low, value, high| {
            let mut against = ServerComparison::nothing();
            against.found.cost = Some((effect(value, low, high), Verdict::NoDifference));
            verdict("a", "b", &against)
        };
        assert_eq!(
            said(0.59, 0.65, 0.72),
            "Not sure that a and b differ: 0.65× [0.59, 0.72] in CPU time per request; among so \
             many comparisons, or beside today's noise, that may be chance."
        );
        assert_eq!(
            said(0.96, 1.02, 1.08),
            "No difference between a and b could be measured: 1.02× [0.96, 1.08] in CPU time per \
             request."
        );
    }

    #[test]
    fn the_faster_server_is_the_subject_whichever_side_it_is_on() {
        let found = against((1.51, Verdict::Better), (0.66, Verdict::Better));
        assert_eq!(
            verdict("a", "b", &found),
            "a serves 1.51× [1.49, 1.53] the requests of b, at 0.66× [0.65, 0.67] of its CPU time \
             each."
        );
        let found = against((0.5, Verdict::Worse), (2.0, Verdict::Worse));
        assert_eq!(
            verdict("a", "b", &found),
            "b serves 2.00× [1.98, 2.02] the requests of a, at 0.50× [0.50, 0.51] of its CPU time \
             each."
        );
    }

    #[test]
    fn cost_comes_first_where_it_alone_tells_them_apart() {
        let found = against((1.02, Verdict::NoDifference), (1.03, Verdict::Worse));
        assert_eq!(
            verdict("a", "b", &found),
            "b spends 0.97× [0.96, 0.98] of the CPU time of a on each request; no difference in \
             requests/s could be measured (0.98× [0.97, 0.99])."
        );
    }

    #[test]
    fn no_difference_is_a_verdict() {
        let found = against((1.01, Verdict::NoDifference), (1.0, Verdict::NoDifference));
        assert_eq!(
            verdict("a", "b", &found),
            "No difference between a and b could be measured: 1.01× [1.00, 1.02] in requests/s, \
             1.00× [0.99, 1.01] in CPU time per request."
        );
        let nothing = ServerComparison::nothing();
        assert_eq!(verdict("a", "b", &nothing), "a and b cannot be compared: too few laps count.");
    }
}
