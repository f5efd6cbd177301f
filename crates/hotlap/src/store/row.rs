//! Rows of the store: converts each record to its columns, and back.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use hotlap_load::outcome::Histograms;
use hotlap_observe::Observation;
use hotlap_stats::Histogram;
use rusqlite::{Row, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{ExplainLap, Lap};

/// The most that an observation is unpacked to, in bytes: many times what a large one takes.
const MOST: u64 = 1 << 28;

pub(super) fn put_lap(
    tx: &Transaction,
    run: u64,
    sequence: usize,
    lap: &Lap,
) -> rusqlite::Result<()> {
    put(tx, (run, false, sequence), lap, None)
}

pub(super) fn put_explain_lap(
    tx: &Transaction,
    run: u64,
    sequence: usize,
    explains: &ExplainLap,
) -> rusqlite::Result<()> {
    put(tx, (run, true, sequence), &explains.lap, explains.observation.as_ref().map(packed))
}

/// Stores a lap, given its run, whether it explains, and its sequence.
fn put(
    tx: &Transaction,
    (run, explains, sequence): (u64, bool, usize),
    lap: &Lap,
    observation: Option<Vec<u8>>,
) -> rusqlite::Result<()> {
    let mut lap = lap.clone();
    let times = bytes(&lap.outcome.take_histograms());
    tx.execute(
        "INSERT INTO lap VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![run as i64, explains, sequence as i64, record(&lap), times, observation],
    )
    .map(drop)
}

/// A lap. Without `times`, it has no histograms and no outcomes of single requests.
pub(super) fn read_lap(row: &Row, times: bool) -> rusqlite::Result<Lap> {
    let mut lap: Lap = read_record(row)?;
    if times {
        let read = histograms(&row.get::<_, Vec<u8>>("times")?);
        lap.outcome.put_histograms(read.map_err(|why| damaged(format!("times: {why}")))?);
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

/// Histograms in HdrHistogram's compressed form, each after its length in four bytes. The length of
/// an empty histogram is 0.
fn bytes(times: &Histograms) -> Vec<u8> {
    let Histograms { service, response, lag, connect, handshake } = times;
    let mut all = Vec::new();
    for histogram in [service, response, lag, connect, handshake] {
        let bytes = if histogram.is_empty() { Vec::new() } else { histogram.to_bytes() };
        all.extend((bytes.len() as u32).to_le_bytes());
        all.extend(bytes);
    }
    all
}

fn histograms(mut bytes: &[u8]) -> Result<Histograms, String> {
    let mut next = || -> Result<Histogram, String> {
        let (length, rest) = bytes.split_first_chunk().ok_or("too short")?;
        let length = u32::from_le_bytes(*length) as usize;
        let (own, rest) = rest.split_at_checked(length).ok_or("too short")?;
        bytes = rest;
        match own {
            [] => Ok(Histogram::new()),
            _ => Histogram::from_bytes(own).map_err(|error| error.to_string()),
        }
    };
    Ok(Histograms {
        service: next()?,
        response: next()?,
        lag: next()?,
        connect: next()?,
        handshake: next()?,
    })
}

fn packed(observation: &Observation) -> Vec<u8> {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
    let written = packer.write_all(record(observation).as_bytes()).and_then(|()| packer.finish());
    written.expect("memory takes everything")
}

fn unpacked(bytes: &[u8]) -> rusqlite::Result<Observation> {
    let mut text = String::new();
    let read = ZlibDecoder::new(bytes).take(MOST).read_to_string(&mut text);
    read.map_err(|error| damaged(format!("observation: {error}")))?;
    serde_json::from_str(&text).map_err(|error| damaged(format!("observation: {error}")))
}

/// The error for a value that was read and is invalid.
pub(super) fn damaged(why: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, why.into())
}

#[cfg(test)]
mod tests {
    use hotlap_observe::{Frame, Profile, Stack};

    use super::*;

    /// A profile of a thousand stacks takes about ten bytes for each.
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
