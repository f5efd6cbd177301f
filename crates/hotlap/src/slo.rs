//! Goals as people type them: `p99<10ms`, `p50<2ms,p99.9<100ms,errors<0.1%`.
//!
//! This module is separate from `cli` because suite files follow the same rules.

use hotlap_bench::slo::Objective;

use crate::quantity;

/// Parses goals that are separated by commas.
pub fn parse(text: &str) -> Result<Vec<Objective>, String> {
    let goals: Vec<Objective> = text.split(',').map(goal).collect::<Result<_, _>>()?;
    for (place, one) in goals.iter().enumerate() {
        if goals[..place].iter().any(|other| is_alike(*one, *other)) {
            return Err(format!("{text:?} has two limits for one figure: leave out one of them"));
        }
    }
    Ok(goals)
}

fn goal(text: &str) -> Result<Objective, String> {
    let form = || format!("{text:?} is not a goal: write p99<10ms, p50<2ms or errors<0.1%");
    let (figure, limit) = text.split_once('<').ok_or_else(form)?;
    let (figure, limit) = (figure.trim(), limit.trim().trim_start_matches('=').trim());
    if figure == "errors" {
        let share = quantity::share(limit)?;
        return match share < 1.0 {
            true => Ok(Objective::Errors { share }),
            false => Err("a share of errors must be below 100%".to_owned()),
        };
    }
    let percentile: f64 =
        figure.strip_prefix('p').and_then(|number| number.parse().ok()).ok_or_else(form)?;
    if !(1.0..=99.99).contains(&percentile) {
        return Err(format!("{figure} cannot be a goal: use a percentile from p1 to p99.99"));
    }
    if !limit.ends_with('s') {
        return Err(format!("the limit {limit:?} needs the unit us, ms or s: write {figure}<10ms"));
    }
    let limit_ns = quantity::span(limit)?.as_nanos();
    let limit_ns = u64::try_from(limit_ns).map_err(|_| format!("{limit} is too long"))?;
    Ok(Objective::Latency { quantile: percentile / 100.0, limit_ns })
}

/// Whether two goals limit the same figure.
fn is_alike(one: Objective, other: Objective) -> bool {
    match (one.latency(), other.latency()) {
        (Some((a, _)), Some((b, _))) => (a - b).abs() < 1e-9,
        (None, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_read_as_people_write_them() {
        let shown = |text| {
            let goals: Result<Vec<Objective>, String> = parse(text);
            goals.map(|g| g.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        };
        assert_eq!(shown("p99<10ms").unwrap(), "p99 < 10 ms");
        assert_eq!(
            shown("p50 < 2ms, p99.9<=0.1s,errors<0.1%").unwrap(),
            "p50 < 2 ms, p99.9 < 100 ms, errors < 0.1%"
        );
        for (text, why) in [
            ("p99", "is not a goal"),
            ("p99<10", "needs the unit us, ms or s: write p99<10ms"),
            ("p99<10m", "needs the unit us, ms or s"),
            ("p99<0ms", "0 is too short"),
            ("p100<1ms", "cannot be a goal"),
            ("max<1ms", "is not a goal"),
            ("p99<1ms,p99<2ms", "two limits for one figure"),
            ("errors<1%,errors<2%", "two limits"),
            ("errors<100%", "must be below 100%"),
            ("errors<x", "a share looks like"),
        ] {
            let error = shown(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
