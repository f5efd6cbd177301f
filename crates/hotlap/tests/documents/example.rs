//! README shows what hotlap prints about a run that is stored in `run.sql.gz`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::mem::take;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use hotlap::model::{Role, Run};
use hotlap::redact;
use hotlap::render::terminal;
use hotlap::report::Report;
use hotlap::store::Store;
use rusqlite::Connection;

/// The number of columns that a code block on GitHub's pages has without a scroll bar.
pub const COLUMNS: usize = 80;

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/example/run.sql.gz")
}

/// Returns what `hotlap report` prints about the run.
pub fn printed() -> String {
    let (scene, mut sql) = (hotlap_testkit::Scene::new(), String::new());
    GzDecoder::new(File::open(file()).unwrap()).read_to_string(&mut sql).unwrap();
    Connection::open(scene.path("runs.db")).unwrap().execute_batch(&sql).unwrap();
    let report = scene.hotlap("report --no-config --color never --store runs.db");
    report.env("COLUMNS", COLUMNS.to_string()).said().succeeds().out
}

/// Makes the last run of a store the example.
pub fn replace_by(store: &Path) {
    let store = Store::open_existing(store).unwrap();
    let run = store.run(store.last().unwrap()).unwrap();
    let text = |run: &Run| terminal::render(&Report::of(run), COLUMNS, false);
    let short = shortened(run.clone());
    assert_eq!(text(&short), text(&run), "what is left out is printed");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let short = redact::run(Run { number: None, ..short });
    Store::open(&path).unwrap().save(&short).unwrap();
    let mut packed = GzEncoder::new(File::create(file()).unwrap(), Compression::best());
    packed.write_all(dump(&path).as_bytes()).unwrap();
    packed.finish().unwrap();
}

/// Removes from a run what is large and does not show in the terminal. Times of requests are kept
/// for each server that is shown, not for each lap.
fn shortened(mut run: Run) -> Run {
    let mut first = BTreeMap::new();
    for index in 0..run.laps.len() {
        let lap = &mut run.laps[index];
        (lap.outcome.lag, lap.outcome.connect_time, lap.outcome.series) = Default::default();
        if run.servers[lap.server].role == Role::Control {
            (lap.outcome.service_time, lap.outcome.response_time) = Default::default();
            (lap.outcome.service_time_censored, lap.outcome.response_time_censored) =
                Default::default();
        }
        let kind = (lap.server, lap.load, lap.rate().is_some(), lap.counts());
        let target: usize = *first.entry(kind).or_insert(index);
        if target == index {
            continue;
        }
        let (service, response) =
            (take(&mut lap.outcome.service_time), take(&mut lap.outcome.response_time));
        let (open, late) = (
            take(&mut lap.outcome.service_time_censored),
            take(&mut lap.outcome.response_time_censored),
        );
        let target = &mut run.laps[target].outcome;
        target.service_time.merge(&service);
        target.response_time.merge(&response);
        target.service_time_censored.merge(&open);
        target.response_time_censored.merge(&late);
    }
    for ceiling in run.servers.iter_mut().filter(|server| server.role == Role::Ceiling) {
        // The path of hotlap on that machine does not matter to readers.
        ceiling.command = "hotlap __ceiling".to_owned();
    }
    run
}

/// Returns a store as the SQL that creates it.
fn dump(path: &Path) -> String {
    let db = Connection::open(path).unwrap();
    let column = |sql: &str| -> Vec<String> {
        let mut all = db.prepare(sql).unwrap();
        all.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let mut text = "-- The run that README shows, as a store that hotlap wrote.\n".to_owned();
    for sql in column("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid") {
        text += &format!("{sql};\n");
    }
    for table in column("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid") {
        let names = column(&format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid"));
        let quoted: Vec<String> = names.iter().map(|name| format!("quote({name})")).collect();
        let rows = format!("SELECT {} FROM {table} ORDER BY rowid", quoted.join(" || ', ' || "));
        for row in column(&rows) {
            text += &format!("INSERT INTO {table} VALUES ({row});\n");
        }
    }
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    let application: i64 = db.pragma_query_value(None, "application_id", |row| row.get(0)).unwrap();
    text + &format!("PRAGMA application_id = {application};\nPRAGMA user_version = {version};\n")
}
