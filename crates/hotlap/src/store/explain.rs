//! Rows of laps that explain.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use hotlap_servers::observe::Observation;
use rusqlite::{Row, Transaction, params};

use super::row::{damaged, json, read_json, unsigned};
use crate::model::ExplainLap;

/// The most that an observation is unpacked to, in bytes: many times what a large one takes.
const MOST: u64 = 1 << 28;

pub(super) fn put_explain_lap(
    tx: &Transaction,
    run: u64,
    sequence: usize,
    lap: &ExplainLap,
) -> rusqlite::Result<()> {
    tx.execute(
        "INSERT INTO explain_lap VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13,
                                         ?14, ?15)",
        params![
            run as i64,
            sequence as i64,
            lap.server as i64,
            lap.load as i64,
            lap.restart,
            lap.round,
            lap.place,
            lap.at_ms as i64,
            lap.requests as i64,
            lap.cpu_ns.map(|ns| ns as i64),
            lap.answers as i64,
            lap.bytes.0 as i64,
            lap.bytes.1 as i64,
            json(&lap.failed),
            lap.observation.as_ref().map(packed),
        ],
    )
    .map(drop)
}

pub(super) fn read_explain_lap(row: &Row) -> rusqlite::Result<ExplainLap> {
    let observation: Option<Vec<u8>> = row.get("observation")?;
    Ok(ExplainLap {
        server: unsigned(row, "server")? as usize,
        load: unsigned(row, "load")? as usize,
        restart: row.get("restart")?,
        round: row.get("round")?,
        place: row.get("place")?,
        at_ms: unsigned(row, "at_ms")?,
        requests: unsigned(row, "requests")?,
        cpu_ns: row.get::<_, Option<i64>>("cpu_ns")?.map(|ns| ns as u64),
        answers: unsigned(row, "answers")?,
        bytes: (unsigned(row, "sent_bytes")?, unsigned(row, "received_bytes")?),
        failed: read_json(row, "violations_json")?,
        observation: observation.map(|bytes| unpacked(&bytes)).transpose()?,
    })
}

fn packed(observation: &Observation) -> Vec<u8> {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
    let written = packer.write_all(json(observation).as_bytes()).and_then(|()| packer.finish());
    written.expect("memory takes everything")
}

fn unpacked(bytes: &[u8]) -> rusqlite::Result<Observation> {
    let mut text = String::new();
    let read = ZlibDecoder::new(bytes).take(MOST).read_to_string(&mut text);
    read.map_err(|error| damaged(format!("observation: {error}")))?;
    serde_json::from_str(&text).map_err(|error| damaged(format!("observation: {error}")))
}

#[cfg(test)]
mod tests {
    use hotlap_servers::observe::{Frame, Profile, Stack};

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
