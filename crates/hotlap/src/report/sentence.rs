//! What a run ends in: one sentence a comparison, with the ratio, its interval and the cost.

use hotlap_stats::{Effect, Estimate, Inconclusive, MAX_CONTROL_DIFFERENCE, MIN_RESTARTS, Verdict};

use super::Figure;
use super::figure::{bare, count, grouped, plural, ratio, rounded};
use super::standing::{Against, Found, Limited, Standing, is_compared};
use super::summary::{in_order, is_measured};
use super::warning;
use crate::record::{Question, Role, Run};

/// More comparisons than this are read better in the table.
const MOST: usize = 8;

/// What a table says, in sentences: one for each server that is compared with the reference, the
/// first in the table first; which servers the generator limits; and what would decide what is
/// inconclusive. What layers cost is said step by step instead.
#[must_use]
pub fn sentences(run: &Run, standing: &Standing) -> Vec<String> {
    let mut sentences = match run.question {
        Question::Ladder => Vec::new(),
        _ => verdicts(run, standing).into_iter().chain(limited(run, standing)).collect(),
    };
    sentences.extend(unfit(run, standing));
    let found = standing.servers.iter().filter_map(|s| s.against.as_ref());
    sentences.extend(needed((run, "this run", standing.load), found));
    sentences
}

/// Servers that sent wrong responses, and what follows; and why there is no figure at all, where
/// no lap counts.
fn unfit(run: &Run, standing: &Standing) -> Vec<String> {
    let named =
        |i: &usize| run.servers[*i].role != Role::Double && run.servers[*i].retired.is_none();
    let all = || (0..run.servers.len()).filter(named);
    let mut said = Vec::new();
    for i in all().filter(|&i| standing.servers[i].wrong > 0) {
        let wrong = match standing.servers[i].wrong {
            1 => "1 of its responses was".to_owned(),
            n => format!("{} of its responses were", count(n)),
        };
        let then = match Some(i) == standing.reference {
            true => "so nothing is compared with it",
            false => "so it is neither compared nor ranked",
        };
        said.push(format!("{}: {wrong} wrong, {then}.", run.servers[i].name));
    }
    let had = standing.servers.iter().map(|s| s.laps.1).sum::<u32>();
    if all().next().is_some() && !standing.servers.iter().any(is_measured) {
        said.push(match had {
            0 => "No lap was finished, so there are no figures.".to_owned(),
            1 => "The only lap failed a validity check, so there are no figures.".to_owned(),
            n => format!("All {n} laps failed a validity check, so there are no figures."),
        });
        said.extend(all().filter_map(|i| warning::refused(run, standing.load, i, true)));
    }
    said
}

fn verdicts(run: &Run, standing: &Standing) -> Vec<String> {
    let Some(reference) = standing.reference else { return Vec::new() };
    let mut others: Vec<usize> = (0..run.servers.len())
        .filter(|&i| i != reference && is_compared(run, i) && is_measured(&standing.servers[i]))
        .collect();
    in_order(run, standing, &mut others);
    let left = others.len().saturating_sub(MOST);
    let names = |i: usize| run.servers[i].name.as_str();
    let mut sentences: Vec<String> = others
        .iter()
        .take(MOST)
        .filter_map(|&i| Some(verdict(names(i), names(reference), &standing.servers[i].against?)))
        .collect();
    if left > 0 {
        sentences.push(format!("{left} more are in the table and in the exports."));
    }
    sentences
}

/// How many servers the generator limits, and how they are ordered.
fn limited(run: &Run, standing: &Standing) -> Option<String> {
    let is_limited = |&i: &usize| is_compared(run, i) && standing.servers[i].is_bound;
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
#[must_use]
pub fn needed<'a>(
    (run, name, load): (&Run, &str, usize),
    found: impl IntoIterator<Item = &'a Against>,
) -> Option<String> {
    let all = found.into_iter().flat_map(|against| [against.cost, against.rate]).flatten();
    let why = all.map(|(_, verdict)| verdict).find_map(|verdict| match verdict {
        Verdict::Inconclusive(why) => Some(why),
        _ => None,
    })?;
    Some(match why {
        Inconclusive::TooFewRestarts => {
            let restarts = restarts(run, load);
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

/// How many restarts have laps under a load.
#[must_use]
pub fn restarts(run: &Run, load: usize) -> u32 {
    run.laps.iter().filter(|l| l.load == load).map(|l| l.heat + 1).max().unwrap_or(0)
}

/// How a run gets enough restarts; the budget by what the restarts so far took.
fn remedy(run: &Run, restarts: u32) -> String {
    let option = format!("--heats {MIN_RESTARTS}");
    if restarts == 0 || restarts >= MIN_RESTARTS || run.took_ms == 0 {
        return format!("A longer --budget, or {option}, gives more.");
    }
    let least_s = run.took_ms as f64 / 1e3 / f64::from(restarts) * f64::from(MIN_RESTARTS);
    // Rounded up to what somebody would type.
    let budget = match (least_s / 10.0).ceil() * 10.0 {
        seconds if seconds < 120.0 => format!("{seconds}s"),
        seconds => format!("{}m", (seconds / 60.0).ceil()),
    };
    format!("A --budget of about {budget}, or {option}, gives enough.")
}

/// What separates a server from another.
#[must_use]
pub fn verdict(server: &str, other: &str, against: &Against) -> String {
    let differs =
        |found: Found| found.filter(|(_, verdict)| verdict.differs()).map(|(e, _)| e.ratio);
    match (differs(against.rate), differs(against.cost)) {
        (Some(rate), _) if rate.value >= 1.0 => {
            faster(server, other, &rate, cost(against.cost, false))
        }
        (Some(rate), _) => faster(other, server, &inverse(&rate), cost(against.cost, true)),
        (None, Some(cost)) => cheaper(server, other, &cost, against),
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

fn cheaper(server: &str, other: &str, cost: &Estimate, against: &Against) -> String {
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
    match (against.rate, against.limited) {
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
        let times = ratio(&Estimate { value: low, low: f64::NAN, high: f64::NAN }).text;
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

fn no_difference(server: &str, other: &str, against: &Against) -> String {
    let figures: Vec<String> = [
        against.rate.map(|(e, _)| format!("{} in requests/s", ratio(&e.ratio).full())),
        against.cost.map(|(e, _)| format!("{} in CPU time per request", ratio(&e.ratio).full())),
    ]
    .into_iter()
    .flatten()
    .collect();
    let known = || [against.rate, against.cost].into_iter().flatten();
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

/// Whether an interval leaves out 1: by itself it would tell the two apart.
fn beyond_one(effect: &Effect) -> bool {
    effect.ratio.is_bounded() && (effect.ratio.low > 1.0 || effect.ratio.high < 1.0)
}

fn cost(found: Found, turned: bool) -> Option<(Estimate, Verdict)> {
    let turn = |e: Estimate| if turned { inverse(&e) } else { e };
    found.map(|(effect, verdict)| (turn(effect.ratio), verdict))
}

/// The same ratio, seen from the other side.
#[must_use]
pub fn inverse(ratio: &Estimate) -> Estimate {
    Estimate { value: 1.0 / ratio.value, low: 1.0 / ratio.high, high: 1.0 / ratio.low }
}

/// What one step of a ladder costs.
#[must_use]
pub fn step(
    to: &str,
    on: &str,
    cpu: Option<(Estimate, Verdict)>,
    wall: Option<(Estimate, Verdict)>,
) -> String {
    let said = |found: Option<(Estimate, Verdict)>, what: &str| {
        let (estimate, verdict) = found?;
        let caution = match caution(&estimate, verdict) {
            "" => String::new(),
            words => format!(" ({words})"),
        };
        Some(format!("{} {what}{caution}", difference(&estimate).full()))
    };
    let said: Vec<String> =
        [said(cpu, "of CPU"), said(wall, "of wall time")].into_iter().flatten().collect();
    match said.is_empty() {
        true => format!("{to}: too few laps count."),
        false => format!("{to}, on {}: {} a request.", short(on, to), said.join(", ")),
    }
}

/// What a difference is to be taken for; empty where it is to be believed.
#[must_use]
pub fn caution(difference: &Estimate, verdict: Verdict) -> &'static str {
    match verdict {
        _ if !difference.is_bounded() => "too few laps for an interval",
        Verdict::Inconclusive(_) => "inconclusive",
        Verdict::NoDifference => "within noise",
        _ => "",
    }
}

/// A variant's own name, beside another of the same server.
pub(super) fn short<'a>(name: &'a str, beside: &str) -> &'a str {
    match (name.split_once(':'), beside.split_once(':')) {
        (Some((base, variant)), Some((other, _))) if base == other => variant,
        _ => name,
    }
}

/// A difference in microseconds, with its interval.
#[must_use]
pub fn difference(estimate: &Estimate) -> Figure {
    let text = |us: f64| {
        let sign = if us < 0.0 { "−" } else { "+" };
        let decimals = if us.abs() < 10.0 { 2 } else { 1 };
        format!("{sign}{}", grouped(us.abs(), decimals))
    };
    let mut figure = bare(estimate.value, format!("{} µs", text(estimate.value)));
    if estimate.is_bounded() {
        figure.low = Some(rounded(estimate.low));
        figure.high = Some(rounded(estimate.high));
        figure.spread = format!("[{}, {}]", text(estimate.low), text(estimate.high));
    }
    figure
}

#[cfg(test)]
mod tests {
    use hotlap_stats::Spread;

    use super::*;

    fn effect(value: f64, low: f64, high: f64) -> Effect {
        let ratio = Estimate { value, low, high };
        let spread = Spread { sd_heat: 0.0, sd_block: 0.0 };
        Effect { ratio, p: 0.001, spread, heats: 3, blocks: 18 }
    }

    fn against(rate: (f64, Verdict), cost: (f64, Verdict)) -> Against {
        let near = |(v, verdict): (f64, Verdict)| (effect(v, v * 0.99, v * 1.01), verdict);
        let none = Against::by(|_| None);
        Against { rate: Some(near(rate)), cost: Some(near(cost)), ..none }
    }

    /// "No difference" was said of a server at 0.65× [0.59, 0.72] of the cost, since three starts
    /// and twenty comparisons make sure of nothing.
    #[test]
    fn what_an_interval_would_tell_apart_is_not_called_no_difference() {
        let said = |low, value, high| {
            let cost = Some((effect(value, low, high), Verdict::NoDifference));
            verdict("a", "b", &Against { cost, ..Against::by(|_| None) })
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
        let nothing = Against::by(|_| None);
        assert_eq!(verdict("a", "b", &nothing), "a and b cannot be compared: too few laps count.");
    }

    #[test]
    fn a_step_says_its_difference_in_microseconds() {
        let cpu = Estimate { value: 1.74, low: 1.6, high: 1.9 };
        let wall = Estimate { value: -0.2, low: -1.1, high: 0.7 };
        assert_eq!(
            step(
                "a:json",
                "a:plain",
                Some((cpu, Verdict::Worse)),
                Some((wall, Verdict::NoDifference))
            ),
            "a:json, on plain: +1.74 µs [+1.60, +1.90] of CPU, −0.20 µs [−1.10, +0.70] of wall time (within \
             noise) a request."
        );
    }
}
