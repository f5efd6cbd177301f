//! Rows of the store: converts each record to its columns, and back.

use hotlap_stats::{Ages, Censored, Histogram};
use rusqlite::{Row, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{Lap, LapRequest, Run, Server, Start, Subject};
use crate::redact;

/// Stores a run with its servers but without laps, under `number` or the next free one.
pub(super) fn put_run(tx: &Transaction, run: &Run, number: Option<i64>) -> rusqlite::Result<u64> {
    tx.execute(
        "INSERT INTO run (began_ms, took_ms, state, command_json, hotlap, suite, question, about,
                          contract, seed, schedule_json, host_json, loads_json, absent_json,
                          baseline, number)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        params![
            run.began_ms as i64,
            run.took_ms as i64,
            word(&run.state),
            json(&run.command),
            run.hotlap,
            run.suite,
            word(&run.question),
            run.about,
            run.contract,
            run.seed as i64,
            json(&run.schedule),
            json(&run.host),
            json(&run.loads),
            json(&run.absent),
            run.baseline,
            number,
        ],
    )?;
    let number = tx.last_insert_rowid();
    for (place, server) in run.servers.iter().enumerate() {
        put_server(tx, number, place, server)?;
    }
    Ok(number as u64)
}

pub(super) fn put_start(tx: &Transaction, run: u64, start: &Start) -> rusqlite::Result<()> {
    tx.execute(
        "INSERT OR REPLACE INTO start VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            run as i64,
            start.server as i64,
            start.restart,
            start.ready_ms.unwrap_or(0.0),
            start.conformance.0,
            start.conformance.1,
            start.rss_bytes.unwrap_or(0) as i64,
            json(&start.notes),
            json(&start.warmups),
        ],
    )
    .map(drop)
}

pub(super) fn put_subject(
    tx: &Transaction,
    run: u64,
    sequence: usize,
    found: &Subject,
) -> rusqlite::Result<()> {
    let values = params![run as i64, sequence as i64, json(found)];
    tx.execute("INSERT OR REPLACE INTO stress VALUES (?1, ?2, ?3)", values).map(drop)
}

fn put_server(tx: &Transaction, run: i64, place: usize, server: &Server) -> rusqlite::Result<()> {
    tx.execute(
        "INSERT INTO server VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            run,
            place as i64,
            server.name,
            word(&server.role),
            server.command,
            server.version,
            server.about,
            (!server.published.is_empty()).then(|| json(&server.published)),
            server.failure.as_ref().map(json),
            json(&server.part),
        ],
    )
    .map(drop)
}

pub(super) fn put_lap(
    tx: &Transaction,
    run: u64,
    sequence: usize,
    lap: &Lap,
) -> rusqlite::Result<()> {
    tx.execute(
        "INSERT INTO lap VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
                                 ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28,
                                 ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36)",
        params![
            run as i64,
            sequence as i64,
            lap.server as i64,
            lap.load as i64,
            lap.restart,
            lap.round,
            lap.place,
            lap.rate,
            lap.at_ms as i64,
            lap.window_ns as i64,
            lap.answers as i64,
            lap.failures() as i64,
            lap.due as i64,
            lap.in_flight as i64,
            lap.connections.0 as i64,
            lap.connections.1 as i64,
            lap.connections.2 as i64,
            lap.bytes.0 as i64,
            lap.bytes.1 as i64,
            blob(&lap.service),
            blob(&lap.response),
            blob(&lap.lag),
            blob(&lap.connect),
            lap.backend,
            lap.generator.0 as i64,
            lap.generator.1,
            lap.usage.and_then(|u| u.cpu_ns).map(|ns| ns as i64),
            json(&lap.failures),
            json(&lap.statuses),
            json(&lap.series),
            lap.usage.as_ref().map(json),
            json(&lap.failed),
            json(&lap.service_censored),
            json(&lap.response_censored),
            (!lap.generators.is_empty()).then(|| json(&lap.generators)),
            lap.is_held,
        ],
    )?;
    let mut requests = lap.by_request.iter().enumerate();
    requests.try_for_each(|(place, own)| put_request(tx, (run, sequence, place), own))
}

/// Stores the outcome of a request of a lap, given as run, sequence of the lap and place in the
/// load.
fn put_request(
    tx: &Transaction,
    (run, lap, place): (u64, usize, usize),
    own: &LapRequest,
) -> rusqlite::Result<()> {
    let mut latency = Histogram::new();
    own.latency.add_to(&mut latency);
    tx.execute(
        "INSERT INTO lap_request VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            run as i64,
            lap as i64,
            place as i64,
            own.answers as i64,
            own.failures as i64,
            blob(&latency),
            json(&own.censored),
        ],
    )
    .map(drop)
}

pub(super) fn read_run(row: &Row) -> rusqlite::Result<Run> {
    Ok(Run {
        number: Some(unsigned(row, "number")?),
        began_ms: unsigned(row, "began_ms")?,
        took_ms: unsigned(row, "took_ms")?,
        state: read_word(row, "state")?,
        // Runs that were stored before secrets were redacted may contain some.
        command: redact::words(&read_json::<Vec<String>>(row, "command_json")?),
        hotlap: row.get("hotlap")?,
        baseline: row.get("baseline")?,
        suite: row.get("suite")?,
        question: read_word(row, "question")?,
        about: row.get("about")?,
        contract: row.get("contract")?,
        seed: unsigned(row, "seed")?,
        schedule: read_json(row, "schedule_json")?,
        host: read_json(row, "host_json")?,
        loads: read_json(row, "loads_json")?,
        absent: read_json(row, "absent_json")?,
        servers: Vec::new(),
        starts: Vec::new(),
        laps: Vec::new(),
        stress: Vec::new(),
        explain: Vec::new(),
        pool: None,
    })
}

pub(super) fn read_server(row: &Row) -> rusqlite::Result<Server> {
    Ok(Server {
        name: row.get("name")?,
        role: read_word(row, "role")?,
        command: row.get("command")?,
        version: row.get("version")?,
        about: row.get("about")?,
        published: read_json_or_null(row, "published_json")?.unwrap_or_default(),
        part: read_json(row, "part_json")?,
        failure: read_json_or_null(row, "failure_json")?,
    })
}

pub(super) fn read_start(row: &Row) -> rusqlite::Result<Start> {
    Ok(Start {
        server: unsigned(row, "server")? as usize,
        restart: row.get("restart")?,
        // Both are positive if known.
        ready_ms: Some(row.get("ready_ms")?).filter(|ms| *ms > 0.0),
        conformance: (row.get("passed")?, row.get("made")?),
        rss_bytes: Some(unsigned(row, "rss_bytes")?).filter(|bytes| *bytes > 0),
        notes: read_json(row, "notes_json")?,
        warmups: read_json(row, "warmups_json")?,
    })
}

pub(super) fn read_subject(row: &Row) -> rusqlite::Result<Subject> {
    read_json(row, "subject_json")
}

/// The outcome of a request, and the sequence of its lap.
pub(super) fn read_request(row: &Row) -> rusqlite::Result<(u64, LapRequest)> {
    let own = LapRequest {
        answers: unsigned(row, "answers")?,
        failures: unsigned(row, "errors")?,
        latency: Ages::from(&histogram(row, "latency")?),
        censored: read_json(row, "censored_json")?,
    };
    Ok((unsigned(row, "lap")?, own))
}

/// A lap without the outcome of each request, and its sequence.
pub(super) fn read_lap(row: &Row, times: bool) -> rusqlite::Result<(u64, Lap)> {
    let histogram = |row: &Row, column: &str| match times {
        true => histogram(row, column),
        false => Ok(Histogram::new()),
    };
    let censored = |row: &Row, column: &str| match times {
        true => read_json(row, column),
        false => Ok(Censored::default()),
    };
    let lap = Lap {
        server: unsigned(row, "server")? as usize,
        load: unsigned(row, "load")? as usize,
        restart: row.get("restart")?,
        round: row.get("round")?,
        place: row.get("place")?,
        rate: row.get("rate")?,
        is_held: row.get("is_held")?,
        at_ms: unsigned(row, "at_ms")?,
        window_ns: unsigned(row, "window_ns")?,
        answers: unsigned(row, "answers")?,
        failures: read_json(row, "failures_json")?,
        statuses: read_json(row, "statuses_json")?,
        due: unsigned(row, "due")?,
        in_flight: unsigned(row, "in_flight")?,
        connections: (
            unsigned(row, "connections_asked")?,
            unsigned(row, "connections_up")?,
            unsigned(row, "connections_again")?,
        ),
        bytes: (unsigned(row, "received_bytes")?, unsigned(row, "sent_bytes")?),
        service: histogram(row, "service")?,
        response: histogram(row, "response")?,
        service_censored: censored(row, "service_censored_json")?,
        response_censored: censored(row, "response_censored_json")?,
        lag: histogram(row, "lag")?,
        connect: histogram(row, "connect")?,
        series: read_json(row, "series_json")?,
        backend: row.get("backend")?,
        generator: (unsigned(row, "generator_cpu_ns")?, row.get("generator_busy")?),
        usage: read_json_or_null(row, "usage_json")?,
        failed: read_json(row, "violations_json")?,
        by_request: Vec::new(),
        generators: read_json_or_null(row, "generators_json")?.unwrap_or_default(),
    };
    Ok((unsigned(row, "sequence")?, lap))
}

/// SQLite's integers are signed; the bits are kept.
pub(super) fn unsigned(row: &Row, column: &str) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|n| n as u64)
}

pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records are plain data")
}

/// The word for a unit variant.
pub(super) fn word(value: &impl Serialize) -> String {
    json(value).trim_matches('"').to_owned()
}

pub(super) fn read_word<T: DeserializeOwned>(row: &Row, column: &str) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_value(serde_json::Value::String(text)).map_err(|e| unreadable(column, e))
}

pub(super) fn read_json<T: DeserializeOwned>(row: &Row, column: &str) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|e| unreadable(column, e))
}

fn read_json_or_null<T: DeserializeOwned>(row: &Row, column: &str) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    text.map(|t| serde_json::from_str(&t).map_err(|e| unreadable(column, e))).transpose()
}

fn blob(histogram: &Histogram) -> Option<Vec<u8>> {
    (!histogram.is_empty()).then(|| histogram.to_bytes())
}

fn histogram(row: &Row, column: &str) -> rusqlite::Result<Histogram> {
    let bytes: Option<Vec<u8>> = row.get(column)?;
    match bytes {
        None => Ok(Histogram::new()),
        Some(bytes) => Histogram::from_bytes(&bytes).map_err(|e| unreadable(column, e)),
    }
}

fn unreadable(
    column: &str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    damaged(format!("{column}: {error}"))
}

/// The error for a value that was read and is invalid.
pub(super) fn damaged(why: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, why.into())
}
