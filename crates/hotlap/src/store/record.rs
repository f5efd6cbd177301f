//! Converts runs and laps to the columns of the store, and back. Values are checked when they are
//! read, because a damaged disk or another program may have changed them. Without the checks, a
//! changed value could cause a panic or a wrong figure later.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use hotlap_load::Outcome;
use hotlap_observe::Observation;
use hotlap_stats::Histogram;
use rusqlite::{Row, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{ExplainLap, Lap, Run, Shard};

/// The largest size to which an observation is unpacked, in bytes. Even large observations are many
/// times smaller.
const UNPACKED: u64 = 1 << 28;

/// The highest accepted count of requests, bytes, nanoseconds and so on. The sum of 2,000 such
/// counts still fits into 64 bits.
const MOST: u64 = 1 << 53;

/// The highest accepted number of a restart, a round, or a place in a round. The numbers in a run
/// of a month are lower.
const LAST: u32 = 1 << 24;

/// Stores a run without its laps, under `number` or under the next free number.
pub(super) fn put_run(tx: &Transaction, run: &Run, number: Option<i64>) -> rusqlite::Result<u64> {
    tx.execute(
        "INSERT INTO run VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![number, run.began_ms as i64, run.seed as i64, run.suite, run.baseline, record(run)],
    )?;
    Ok(tx.last_insert_rowid() as u64)
}

/// Stores a lap of a run. An explain lap is stored with its observation.
pub(super) fn put_lap(
    tx: &Transaction,
    run: u64,
    (explains, sequence): (bool, usize),
    lap: &Lap,
    observation: Option<&Observation>,
) -> rusqlite::Result<()> {
    let mut lap = lap.clone();
    let times = take_times(&mut lap.outcome);
    tx.execute(
        "INSERT INTO lap VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            run as i64,
            explains,
            sequence as i64,
            record(&lap),
            times,
            observation.map(packed)
        ],
    )
    .map(drop)
}

/// Reads a lap. Without `times`, the lap has no histograms and no outcomes by request.
pub(super) fn read_lap(row: &Row, times: bool) -> rusqlite::Result<Lap> {
    let mut lap: Lap = read_record(row)?;
    if times {
        let read = put_times(&mut lap.outcome, &row.get::<_, Vec<u8>>("times")?);
        read.map_err(|why| damaged(format!("times: {why}")))?;
    } else {
        lap.outcome.by_request.clear();
    }
    Ok(lap)
}

pub(super) fn read_explain_lap(row: &Row) -> rusqlite::Result<ExplainLap> {
    let observation: Option<Vec<u8>> = row.get("observation")?;
    Ok(ExplainLap {
        lap: read_lap(row, true)?,
        observation: observation.map(|bytes| unpacked(&bytes)).transpose()?,
    })
}

pub(super) fn record(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records are plain data")
}

pub(super) fn read_record<T: DeserializeOwned>(row: &Row) -> rusqlite::Result<T> {
    let text: String = row.get("record")?;
    serde_json::from_str(&text).map_err(|error| damaged(format!("record: {error}")))
}

/// Takes the histograms out of an outcome, in HdrHistogram's compressed form. The length of each
/// histogram precedes it in four bytes.
fn take_times(outcome: &mut Outcome) -> Vec<u8> {
    let mut all = Vec::new();
    for histogram in outcome.histograms_mut() {
        let bytes = std::mem::take(histogram).to_bytes();
        all.extend((bytes.len() as u32).to_le_bytes());
        all.extend(bytes);
    }
    all
}

fn put_times(outcome: &mut Outcome, mut bytes: &[u8]) -> Result<(), String> {
    for histogram in outcome.histograms_mut() {
        let (length, rest) = bytes.split_first_chunk().ok_or("too short")?;
        let length = u32::from_le_bytes(*length) as usize;
        let (own, rest) = rest.split_at_checked(length).ok_or("too short")?;
        *histogram = Histogram::from_bytes(own)?;
        bytes = rest;
    }
    Ok(())
}

fn packed(observation: &Observation) -> Vec<u8> {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
    let written = packer.write_all(record(observation).as_bytes()).and_then(|()| packer.finish());
    written.expect("memory takes everything")
}

fn unpacked(bytes: &[u8]) -> rusqlite::Result<Observation> {
    let mut text = String::new();
    let read = ZlibDecoder::new(bytes).take(UNPACKED).read_to_string(&mut text);
    read.map_err(|error| damaged(format!("observation: {error}")))?;
    serde_json::from_str(&text).map_err(|error| damaged(format!("observation: {error}")))
}

/// Returns the error for an invalid value in the store.
pub(super) fn damaged(why: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, why.into())
}

fn within(what: &str, index: usize, of: usize) -> Result<(), String> {
    match index < of {
        true => Ok(()),
        false => Err(format!("{what} {index} of {of}")),
    }
}

fn counts(what: &str, counts: &[u64]) -> Result<(), String> {
    match counts.iter().find(|count| **count > MOST) {
        None => Ok(()),
        Some(count) => Err(format!("{what}: a count of {count}")),
    }
}

/// Checks the values of a run, and returns what is wrong as an error.
pub(super) fn check(run: &Run) -> Result<(), String> {
    let (servers, loads) = (run.servers.len(), run.loads.len());
    let numbers = |what: &str, numbers: &[u32]| match numbers.iter().find(|n| **n > LAST) {
        None => Ok(()),
        Some(number) => Err(format!("{what}: number {number} of a restart, round or place")),
    };
    let is_time = |what: &str, value: f64| match value.is_finite() && value >= 0.0 {
        true => Ok(()),
        false => Err(format!("{what} of {value}")),
    };
    counts("run", &[run.began_ms, run.took_ms])?;
    references(run)?;
    for start in &run.starts {
        within("start of server", start.server, servers)?;
        numbers("start", &[start.restart])?;
        is_time("a start", start.ready.ready_ms.unwrap_or_default())?;
        counts("start", &[start.ready.rss_bytes.unwrap_or_default()])?;
        start.warmups.iter().try_for_each(|w| within("warm-up of load", w.load, loads))?;
    }
    let explaining = run.explain.iter().map(|explains| &explains.lap);
    for lap in run.laps.iter().chain(explaining) {
        within("lap of server", lap.server, servers)?;
        within("lap of load", lap.load, loads)?;
        numbers("lap", &[lap.restart, lap.round, lap.place])?;
        is_time("a lap's rate", lap.rate().unwrap_or_default())?;
        outcome(&lap.outcome)?;
        let usage = lap.usage.unwrap_or_default();
        counts("lap", &[lap.at_ms, usage.wall_ns, usage.requests, usage.cpu_ns.unwrap_or(0)])?;
        let mut own = lap.generators.iter();
        own.try_for_each(|own| counts("generator", &[own.responses, own.failures, own.sent]))?;
    }
    let mut observations = run.explain.iter().filter_map(|explains| explains.observation.as_ref());
    observations.try_for_each(observation)?;
    let observing = &run.schedule.observing;
    observing.env.iter().try_for_each(|(server, _)| within("flags of server", *server, servers))?;
    let mut missing = observing.missing.iter();
    missing.try_for_each(|missing| within("instrument of server", missing.server, servers))
}

/// Checks the counts of an outcome, and returns what is wrong as an error.
fn outcome(found: &Outcome) -> Result<(), String> {
    let (asked, bytes) = (&found.connections, &found.bytes);
    let mut all = vec![found.window_ns, found.responses, found.due, found.in_flight, found.queued];
    all.extend([asked.requested, asked.established, asked.reopened, bytes.received, bytes.sent]);
    all.extend(found.threads.iter().flat_map(|own| [own.cpu_ns, own.wall_ns, own.idle_ns]));
    all.extend(found.failures.0.iter().map(|failed| failed.count));
    all.extend(found.statuses.values());
    all.extend(found.by_request.iter().flat_map(|own| [own.responses, own.failures]));
    let ticks = found.series.iter();
    all.extend(ticks.flat_map(|t| [t.responses, t.failures, t.max_ns, t.sum_ns]));
    counts("lap", &all)
}

/// Checks the indices of servers, loads, layers and the shard in the description of a run.
fn references(run: &Run) -> Result<(), String> {
    let (servers, loads) = (run.servers.len(), run.loads.len());
    for server in &run.servers {
        let than = server.published.iter().filter_map(|figure| figure.than.as_ref());
        than.map(|than| than.server)
            .chain(server.on)
            .try_for_each(|other| within("reference to server", other, servers))?;
    }
    for layer in 0..servers {
        let mut on = run.servers[layer].on;
        for _ in 0..servers {
            on = on.and_then(|below| run.servers[below].on);
        }
        if on.is_some() {
            return Err(format!("the layers below server {layer} form a circle"));
        }
    }
    if let Some(shard) = &run.shard {
        within("shard", shard.number, shard.of)?;
        within("number of shards", shard.of, Shard::MOST + 1)?;
    }
    for probed in &run.schedule.probed {
        within("probe of server", probed.participant, servers)?;
        within("probe of load", probed.load, loads)?;
    }
    Ok(())
}

/// Checks the frames of a profile, and the counts of samples and system calls.
fn observation(seen: &Observation) -> Result<(), String> {
    let is_count = |count: u64| match count <= MOST {
        true => Ok(()),
        false => Err(format!("observation: a count of {count}")),
    };
    match seen {
        Observation::Profile(profile) => {
            is_count(profile.period_ns)?;
            let frames = profile.frames.len();
            let stacks = profile.stacks.iter();
            if stacks.clone().flat_map(|stack| &stack.frames).any(|at| *at as usize >= frames) {
                return Err(format!("a stack refers to a frame beyond the last of {frames}"));
            }
            stacks.into_iter().try_for_each(|stack| is_count(stack.samples))
        }
        Observation::SystemCalls(calls) => calls.values().try_for_each(|count| is_count(*count)),
        Observation::Events(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use hotlap_observe::{Frame, Profile, Stack};

    use super::*;

    /// A packed profile of 1,000 stacks takes less than ten bytes per stack.
    #[test]
    fn a_profile_is_stored_compactly_and_whole() {
        let frame = |n: u32| Frame { function: format!("function_{n}"), library: "app".to_owned() };
        let stack = |n: u32| Stack {
            process: "app".to_owned(),
            frames: (n % 7..n % 7 + 20).collect(),
            samples: u64::from(n % 13),
        };
        let profile = Observation::Profile(Profile {
            period_ns: 250_000,
            lost: 0,
            frames: (0..40).map(frame).collect(),
            stacks: (0..1_000).map(stack).collect(),
        });
        let bytes = packed(&profile);
        assert!(bytes.len() < 10_000, "{} bytes", bytes.len());
        assert_eq!(unpacked(&bytes).unwrap(), profile);
        let cut_off = unpacked(&bytes[..bytes.len() / 2]).unwrap_err().to_string();
        assert!(cut_off.contains("observation"), "{cut_off}");
    }
}
