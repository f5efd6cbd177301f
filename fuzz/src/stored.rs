//! A stored run in which one value was changed, as by a damaged disk or another program: reading it
//! is an error that says so, or gives a run of which a report can be made.
//!
//! The input's first byte chooses the column; the last two bits of its second, what becomes of the
//! value; and its other bits, the format of the report.

use std::sync::{Mutex, OnceLock, PoisonError};

use hotlap::render::{Format, render, terminal};
use hotlap::report::Report;
use hotlap::store::Store;
use rusqlite::types::Value;
use rusqlite::{Connection, params};
use tempfile::TempDir;

#[path = "../../crates/hotlap/tests/reports/scene.rs"]
mod scene;

/// A column, and the value in its first row.
struct Column {
    table: String,
    name: String,
    value: Value,
}

/// A store with one run, and a second way into it.
struct Kept {
    store: Store,
    db: Connection,
    columns: Vec<Column>,
    _folder: TempDir,
}

/// How many columns there are, for inputs that are to reach each.
pub fn columns() -> usize {
    kept().lock().unwrap_or_else(PoisonError::into_inner).columns.len()
}

fn kept() -> &'static Mutex<Kept> {
    static KEPT: OnceLock<Mutex<Kept>> = OnceLock::new();
    KEPT.get_or_init(|| Mutex::new(Kept::new()))
}

impl Kept {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hotlap.db");
        let mut three = scene::three();
        (three.experiment.restarts, three.experiment.rounds) = (Some(2), Some(1));
        scene::hold(&three, Some(Store::open(&path).expect("a store")));
        let db = Connection::open(&path).expect("a database");
        db.pragma_update(None, "synchronous", "off").expect("a setting");
        let mut columns = Vec::new();
        for table in ["run", "lap"] {
            let mut rows = db.prepare(&format!("SELECT * FROM {table} LIMIT 1")).expect("a table");
            let names: Vec<String> = rows.column_names().map(str::to_owned).collect();
            let values: Vec<Value> = rows
                .query_row([], |row| (0..names.len()).map(|at| row.get(at)).collect())
                .expect("a row");
            let both = names.into_iter().zip(values);
            let column = |(name, value)| Column { table: table.to_owned(), name, value };
            // Rows are found by the number of their run.
            columns.extend(both.map(column).filter(|c| c.name != "number" && c.name != "run"));
        }
        let store = Store::open_existing(&path).expect("a store");
        Self { store, db, columns, _folder: folder }
    }

    fn set(&self, column: &Column, value: &Value) -> rusqlite::Result<()> {
        let Column { table, name, .. } = column;
        let sql = format!(
            "UPDATE {table} SET {name} = ?1 WHERE rowid = (SELECT min(rowid) FROM {table})"
        );
        self.db.execute(&sql, params![value]).map(drop)
    }
}

/// What becomes of a value.
fn changed(value: &Value, kind: u8, rest: &[u8]) -> Value {
    let number = || {
        let mut bytes = [0; 8];
        let length = rest.len().min(8);
        bytes[..length].copy_from_slice(&rest[..length]);
        i64::from_le_bytes(bytes)
    };
    match (kind % 4, value) {
        (0, _) => Value::Null,
        (_, Value::Integer(_)) => Value::Integer(number()),
        (_, Value::Real(_)) => Value::Real(f64::from_bits(number() as u64)),
        (1, Value::Blob(_) | Value::Null) => Value::Blob(rest.to_vec()),
        (1, Value::Text(_)) => Value::Text(String::from_utf8_lossy(rest).into_owned()),
        (_, Value::Blob(old)) => Value::Blob(spliced(old, rest)),
        (_, Value::Text(old)) => {
            Value::Text(String::from_utf8_lossy(&spliced(old.as_bytes(), rest)).into_owned())
        }
        (_, Value::Null) => Value::Text(String::from_utf8_lossy(rest).into_owned()),
    }
}

/// `[place, place, how many]` bytes of the old are replaced by the rest.
fn spliced(old: &[u8], rest: &[u8]) -> Vec<u8> {
    let [low, high, gone, new @ ..] = rest else { return old.to_vec() };
    let at = usize::from(u16::from_le_bytes([*low, *high])) % (old.len() + 1);
    let behind = (at + usize::from(*gone)).min(old.len());
    [&old[..at], new, &old[behind..]].concat()
}

/// Changes a value, reads the run, reports it and puts the value back.
pub fn check(input: &[u8]) {
    let [which, kind, rest @ ..] = input else { return };
    let kept = kept().lock().unwrap_or_else(PoisonError::into_inner);
    let column = &kept.columns[usize::from(*which) % kept.columns.len()];
    // A value of another type, or one that breaks a rule of the schema, is refused.
    if kept.set(column, &changed(&column.value, *kind, rest)).is_err() {
        return;
    }
    let read = kept.store.run(1);
    let lines = kept.store.lines(None);
    kept.set(column, &column.value).expect("the value that was there");
    if let Err(error) = &lines {
        assert!(error.to_string().contains("hotlap.db"), "{error}");
    }
    match read {
        Err(error) => assert!(error.to_string().contains("hotlap.db"), "{error}"),
        Ok(run) => {
            let report = Report::of(&run);
            let text = match kind >> 2 {
                0..20 => terminal::render(&report, 80, false),
                20..30 => render(&report, Format::Json),
                30..40 => render(&report, Format::Markdown),
                40..50 => render(&report, Format::Csv),
                50..60 => render(&report, Format::Junit),
                _ => render(&report, Format::Html),
            };
            assert!(!text.is_empty());
        }
    }
}
