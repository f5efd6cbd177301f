//! Stores of every version that was ever written are opened by this one, and lose nothing.
//!
//! `stores/N.sql` is a store of version N with a run in it, as it was written then. Whoever adds a
//! version adds its file, and edits none of the others.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hotlap::model::{Question, Role, Run, State, Violation};
use hotlap::render::{Format, render};
use hotlap::report::Report;
use hotlap::store::Store;
use hotlap_servers::observe::Observation;
use rusqlite::Connection;
use rusqlite::types::Value;

const STORES: [&str; 10] = [
    include_str!("stores/1.sql"),
    include_str!("stores/2.sql"),
    include_str!("stores/3.sql"),
    include_str!("stores/4.sql"),
    include_str!("stores/5.sql"),
    include_str!("stores/6.sql"),
    include_str!("stores/7.sql"),
    include_str!("stores/8.sql"),
    include_str!("stores/9.sql"),
    include_str!("stores/10.sql"),
];

/// Columns that have other names since version 6.
const COLUMNS: [(&str, &str); 3] =
    [("start.heat", "start.restart"), ("lap.heat", "lap.restart"), ("lap.block", "lap.round")];

/// Columns in whose values version 6 renamed things; `check` looks at those.
const RENAMED: [&str; 8] = [
    "run.question",
    "run.schedule_json",
    "server.role",
    "server.retired_json",
    "lap.failed_json",
    "lap.failures_json",
    "lap.series_json",
    "stress.subject_json",
];

/// A store of this version, in a file.
fn written(version: usize, folder: &Path) -> PathBuf {
    let path = folder.join(format!("{version}.db"));
    Connection::open(&path).unwrap().execute_batch(STORES[version - 1]).unwrap();
    path
}

/// Every value of every row, by table and column.
fn contents(path: &Path) -> BTreeMap<String, Vec<Value>> {
    let db = Connection::open(path).unwrap();
    let mut found = BTreeMap::new();
    for (table, column) in columns(&db) {
        let mut all = db.prepare(&format!("SELECT {column} FROM {table} ORDER BY rowid")).unwrap();
        let values = all.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        found.insert(format!("{table}.{column}"), values);
    }
    found
}

fn columns(db: &Connection) -> Vec<(String, String)> {
    let sql = "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c
               WHERE t.type = 'table' ORDER BY 1, c.cid";
    let mut all = db.prepare(sql).unwrap();
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// What the run in each of the stores is, as far as its version could say it.
fn check(version: usize, run: &Run) {
    assert_eq!(
        (run.number, run.began_ms, run.state),
        (Some(7), 1_795_292_100_000, State::Interrupted)
    );
    assert_eq!((run.question, run.suite.as_deref()), (Question::Layers, Some("mine")));
    assert_eq!((run.seed, run.command.len()), (8_228_364_081_012_749, 4));
    assert_eq!((run.schedule.rounds, run.schedule.precision), (6, Some(0.01)));
    assert_eq!(run.schedule.slice_ms, (version >= 5).then_some(48.0));
    assert_eq!((run.host.cores, run.host.facts[0].1.as_str()), (2, "performance"));
    assert_eq!(run.loads[0].request, "GET /");
    assert_eq!(run.baseline.as_deref(), (version >= 3).then_some("main"));
    assert_eq!(run.absent.len(), usize::from(version >= 2));

    let [go, node] = &run.servers[..] else { panic!("{} servers", run.servers.len()) };
    assert_eq!(
        (go.role, go.version.as_str(), go.about.as_str()),
        (Role::Reference, "go1.24", "Go's own.")
    );
    assert_eq!(go.published.len(), usize::from(version >= 2));
    assert_eq!(go.part.cpus, (version >= 2).then_some(2));
    assert_eq!(node.part.on, (version >= 2).then_some(0));
    assert_eq!(node.failure.as_ref().unwrap().log_tail, ["out of memory"]);

    let start = &run.starts[0];
    assert_eq!(
        (start.ready_ms, start.conformance, start.warmups[0].curve[1]),
        (Some(3.684_699), (12, 14), 200.5)
    );

    let [closed, open] = &run.laps[..] else { panic!("{} laps", run.laps.len()) };
    assert_eq!((closed.rate, open.rate), (None, Some(250.5)));
    assert_eq!((closed.is_held, open.is_held), (false, version >= 10));
    assert_eq!((closed.answers, closed.failures(), closed.bytes), (6_136, 3, (478_608, 214_760)));
    assert_eq!(closed.connections, (64, 63, 2));
    assert_eq!(closed.usage.unwrap().cpu_ns, (version < 5).then_some(38_996_347));
    assert_eq!(closed.failed, [Violation::Connections { asked: 64, up: 63, most: None }]);
    assert!(!closed.service.is_empty() && closed.response.is_empty());
    assert!(!open.response.is_empty() && !open.lag.is_empty());
    assert_eq!(closed.service_censored.is_empty(), version < 5);

    let sent: Vec<u64> = closed.generators.iter().map(|own| own.sent).collect();
    assert_eq!(sent, [4_010, 2_140][..if version >= 9 { 2 } else { 0 }]);
    assert!(open.generators.is_empty());

    let counts: Vec<(u64, u64, u64)> = closed
        .by_request
        .iter()
        .map(|own| (own.answers, own.failures, own.censored.open.len()))
        .collect();
    let expected = [(6_000, 1, 4), (136, 2, 0)];
    assert_eq!(counts, expected[..if version >= 7 { 2 } else { 0 }]);
    assert_eq!(run.loads[0].requests.len(), counts.len());
    assert!(counts.is_empty() || !closed.by_request[0].latency.is_empty());
    assert!(open.by_request.is_empty());

    assert_eq!(run.explain.len(), if version >= 8 { 3 } else { 0 });
    if let [plain, profiled, counted] = &run.explain[..] {
        assert_eq!((plain.requests, plain.cpu_ns, plain.answers), (4_000, Some(25_000_000), 3_990));
        assert_eq!((plain.bytes, plain.failed.len()), ((311_220, 139_650), 1));
        assert!(plain.observation.is_none());
        let Some(Observation::Profile(profile)) = &profiled.observation else { panic!() };
        assert_eq!((profile.samples(), profile.lost, profile.frames.len()), (100, 2, 2));
        let Some(Observation::SystemCalls(calls)) = &counted.observation else { panic!() };
        assert_eq!((calls["write"], counted.cpu_ns), (4_000, None));
    }

    assert_eq!(run.stress.len(), usize::from(version >= 4));
    for subject in &run.stress {
        assert_eq!(subject.trials[0].observed.before.failures[0].count, 2);
        assert_eq!(subject.trials[0].log_tail, ["bye"]);
    }
}

#[test]
fn a_store_of_every_version_is_brought_up_to_date_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for version in 1..=STORES.len() {
        let path = written(version, folder.path());
        let before = contents(&path);
        let mut store = Store::open(&path).unwrap();
        let run = store.run(7).unwrap();
        check(version, &run);
        let after = contents(&path);
        for (column, values) in before {
            if version < 6 && RENAMED.iter().any(|renamed| column == *renamed) {
                continue;
            }
            let column = COLUMNS
                .iter()
                .find(|(old, _)| *old == column)
                .map_or(column, |(_, new)| (*new).to_owned());
            assert!(after[&column] == values, "version {version}: {column} has changed");
        }
        // It is a store like any other from now on.
        let report = Report::of(&run);
        let formats = [Format::Json, Format::Html, Format::Markdown, Format::Csv, Format::Junit];
        assert!(formats.iter().all(|format| !render(&report, *format).is_empty()));
        let next = store.begin(&Run { number: None, ..run.clone() }).unwrap();
        store.lap(next, 0, &run.laps[0]).unwrap();
        assert_eq!((next, store.run(next).unwrap().laps.len()), (8, 1));
        drop(store);
        check(version, &Store::open_existing(&path).unwrap().run(7).unwrap());
    }
}

#[test]
fn every_way_leads_to_the_same_schema() {
    let folder = tempfile::tempdir().unwrap();
    let fresh = folder.path().join("fresh.db");
    drop(Store::open(&fresh).unwrap());
    let db = Connection::open(&fresh).unwrap();
    let expected = columns(&db);
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, STORES.len() as i64, "a new version needs a file in tests/stores");
    for version in 1..=STORES.len() {
        let path = written(version, folder.path());
        drop(Store::open(&path).unwrap());
        assert_eq!(columns(&Connection::open(&path).unwrap()), expected, "version {version}");
    }
}

#[test]
fn a_store_of_a_newer_version_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(5, folder.path());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let before = fs::read(&path).unwrap();
    for opened in [Store::open(&path), Store::open_existing(&path)] {
        let error = opened.unwrap_err().to_string();
        assert!(error.contains("version 99") && error.contains("update hotlap"), "{error}");
    }
    assert!(fs::read(&path).unwrap() == before, "the file was changed");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a file was left beside it");
}

/// `--store` with the wrong file made hotlap's tables in somebody else's database.
#[test]
fn a_database_of_another_program_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for version in [0, 5, 99, -1] {
        let path = folder.path().join(format!("theirs{version}.sqlite"));
        let db = Connection::open(&path).unwrap();
        db.execute_batch("CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('x')")
            .unwrap();
        db.pragma_update(None, "user_version", version).unwrap();
        drop(db);
        let before = fs::read(&path).unwrap();
        for opened in [Store::open(&path), Store::open_existing(&path)] {
            let error = opened.unwrap_err().to_string();
            assert!(error.contains("another program wrote it"), "{error}");
        }
        assert!(fs::read(&path).unwrap() == before, "version {version}: the file was changed");
    }
}
