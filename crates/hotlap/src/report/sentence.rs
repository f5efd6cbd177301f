//! What a run ends in: one sentence a comparison, with the ratio, its interval and the cost.

use hotlap_stats::{Effect, Estimate, Verdict};

use super::Figure;
use super::figure::{bare, grouped, ratio, rounded};
use super::standing::{Against, Standing, is_compared};
use super::summary::is_measured;
use crate::record::{Question, Run};

/// More comparisons than this are read better in the table.
const MOST: usize = 8;

/// One sentence for each server that is held against the reference, the fastest first.
#[must_use]
pub fn verdicts(run: &Run, standing: &Standing) -> Vec<String> {
    let Some(reference) = standing.reference else { return Vec::new() };
    if run.question == Question::Ladder {
        return Vec::new();
    }
    let mut others: Vec<usize> = (0..run.servers.len())
        .filter(|&i| i != reference && is_compared(run, i) && is_measured(&standing.servers[i]))
        .collect();
    let rate = |i: usize| standing.servers[i].rate.map_or(0.0, |r| r.value);
    others.sort_by(|&a, &b| rate(b).total_cmp(&rate(a)));
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

/// What separates a server from another.
#[must_use]
pub fn verdict(server: &str, other: &str, against: &Against) -> String {
    let differs = |found: Option<(Effect, Verdict)>| {
        found.filter(|(_, v)| *v != Verdict::NoDifference).map(|(e, _)| e.ratio)
    };
    match (differs(against.rate), differs(against.cost)) {
        (Some(rate), _) if rate.value >= 1.0 => {
            faster(server, other, &rate, cost(against.cost, false))
        }
        (Some(rate), _) => faster(other, server, &inverse(&rate), cost(against.cost, true)),
        (None, Some(cost)) => cheaper(server, other, &cost, against.rate),
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
        Some((ratio_of_cost, _)) => {
            format!("{lead}, at {} of its CPU time each.", ratio(&ratio_of_cost).full())
        }
    }
}

fn cheaper(server: &str, other: &str, cost: &Estimate, rate: Option<(Effect, Verdict)>) -> String {
    let (cheap, dear, cost) = match cost.value <= 1.0 {
        true => (server, other, *cost),
        false => (other, server, inverse(cost)),
    };
    let lead =
        format!("{cheap} spends {} of the CPU time of {dear} on each request", ratio(&cost).full());
    match rate {
        None => format!("{lead}; which serves more is not to be told."),
        Some((effect, _)) => {
            let rate = if cheap == server { effect.ratio } else { inverse(&effect.ratio) };
            format!(
                "{lead}; no difference in requests/s could be measured ({}).",
                ratio(&rate).full()
            )
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
    let bounded =
        |found: Option<(Effect, Verdict)>| found.is_some_and(|(e, _)| e.ratio.is_bounded());
    match figures.is_empty() {
        true => format!("{server} and {other} cannot be compared: too few laps count."),
        false if !bounded(against.rate) && !bounded(against.cost) => {
            format!("Too few laps to tell {server} from {other}: {}.", figures.join(", "))
        }
        false if beyond_one(against.rate) || beyond_one(against.cost) => format!(
            "Not sure that {server} and {other} differ: {}; among so many comparisons, or beside \
             today's noise, that may be chance.",
            figures.join(", ")
        ),
        false => format!(
            "No difference between {server} and {other} could be measured: {}.",
            figures.join(", ")
        ),
    }
}

/// Whether an interval leaves out 1: by itself it would tell the two apart.
fn beyond_one(found: Option<(Effect, Verdict)>) -> bool {
    found.is_some_and(|(e, _)| e.ratio.is_bounded() && (e.ratio.low > 1.0 || e.ratio.high < 1.0))
}

fn cost(found: Option<(Effect, Verdict)>, turned: bool) -> Option<(Estimate, Verdict)> {
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
    use super::*;

    fn effect(value: f64, low: f64, high: f64) -> Effect {
        let ratio = Estimate { value, low, high };
        Effect { ratio, p: 0.001, sd_heat: 0.0, sd_block: 0.0, heats: 3, blocks: 18 }
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
