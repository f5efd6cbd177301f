//! How laps were driven, in words: how many a block, how long, and in which turns.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hotlap_stats::estimate::median;

use super::figure::plural;
use crate::record::{self, Run};

/// How laps at full load were driven: ` × 4 laps of 0.1 s in turns of 12 ms, or 2 of 0.3 s in one
/// piece` where servers differ. With several loads that differ in it, from what to what.
#[must_use]
pub fn words(run: &Run) -> Option<String> {
    let of_load = |load| [true, false].map(|in_turns| of(run, load, in_turns));
    let all: BTreeSet<[Option<Driven>; 2]> = (0..run.loads.len()).map(of_load).collect();
    let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
    let mut each = all.iter().flatten().flatten();
    if all.len() > 1 {
        let lengths: BTreeSet<u64> = each.map(|driven| driven.lap_ms).collect();
        return Some(match (lengths.first()?, lengths.last()?) {
            (short, long) if short == long => format!(", laps of {} s", seconds(*short)),
            (short, long) => format!(", laps of {} to {} s", seconds(*short), seconds(*long)),
        });
    }
    let first = each.next()?;
    let mut words =
        format!(" × {} of {} s", plural(first.laps as usize, "lap"), seconds(first.lap_ms));
    if let Some(turn_ms) = first.turn_ms {
        words += &format!(" in turns of {turn_ms} ms");
    }
    if let Some(other) = each.next() {
        words += &format!(", or {} of {} s in one piece", other.laps, seconds(other.lap_ms));
    }
    Some(words)
}

/// How laps of a load were driven by most servers that took turns, or did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Driven {
    /// A server's laps in a block.
    laps: u32,
    /// The length of one, in milliseconds.
    lap_ms: u64,
    /// The length of a turn, in milliseconds; none in one piece.
    turn_ms: Option<u64>,
}

/// How they were: the median of each, over all laps in turns or all others of a load; none where
/// there are none.
fn of(run: &Run, load: usize, in_turns: bool) -> Option<Driven> {
    let pieces = |l: &record::Lap| l.usage.as_ref().map_or(1, |usage| usage.pieces.max(1));
    let is_meant =
        |l: &&record::Lap| l.load == load && l.rate.is_none() && (pieces(l) > 1) == in_turns;
    let laps = || run.laps.iter().filter(is_meant);
    let mut blocks = BTreeMap::<_, u32>::new();
    laps().for_each(|l| *blocks.entry((l.heat, l.block, l.server)).or_default() += 1);
    let count = median(&blocks.values().copied().map(f64::from).collect::<Vec<_>>())?;
    let window_ms = |l: &record::Lap| l.window_ns as f64 / 1e6;
    let lap_ms: Vec<f64> = laps().map(window_ms).collect();
    let turn_ms: Vec<f64> = laps().map(|l| window_ms(l) / f64::from(pieces(l))).collect();
    // A lap is a little longer or shorter than it is meant to be.
    let whole =
        |ms: f64| if ms >= 50.0 { (ms / 10.0).round() as u64 * 10 } else { ms.round() as u64 };
    let turn_ms = in_turns.then_some(whole(median(&turn_ms)?));
    Some(Driven { laps: count.round() as u32, lap_ms: whole(median(&lap_ms)?), turn_ms })
}
