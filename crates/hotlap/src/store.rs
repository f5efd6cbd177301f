//! Stores runs in an SQLite file in the user's data directory. `--store` or the configuration may
//! name another file.
//!
//! No other module contains SQL. Every lap is a separate transaction, which is written as soon as
//! the lap has ended. So a crash loses at most the current lap. Reading returns exactly what was
//! written: [`crate::model`], without computed values.

mod error;
mod record;

use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Params, Row, Transaction, TransactionBehavior, params,
};
use serde::{Deserialize, Serialize};

use crate::model::{Probed, Role, Run, RunState, Start};
use crate::redact::Redacted;
pub use error::StoreError;
use error::{Refused, explain, refused};
use record::{put_lap, put_run, read_explain_lap, read_lap, read_record, record};

/// The version of the schema, in `user_version`. The version also changes when the records change.
const VERSION: i64 = 2;

/// The number that marks a store of hotlap, in `application_id`: "hotl".
const APPLICATION: i64 = 0x686f_746c;

/// The tables of a store. A run is one row with its record in JSON. Each lap is a separate row,
/// because it is written when the lap has ended. Histograms and observations are packed, and read
/// only if they are needed.
const SCHEMA: &str = "
    CREATE TABLE run (
        number   INTEGER PRIMARY KEY,
        began_ms INTEGER NOT NULL,
        seed     INTEGER NOT NULL,
        suite    TEXT,
        baseline TEXT,
        record   TEXT NOT NULL
    ) STRICT;
    CREATE TABLE lap (
        run         INTEGER NOT NULL REFERENCES run (number) ON DELETE CASCADE,
        explains    INTEGER NOT NULL,
        sequence    INTEGER NOT NULL,
        record      TEXT    NOT NULL,
        times       BLOB    NOT NULL,
        observation BLOB,
        PRIMARY KEY (run, explains, sequence)
    ) STRICT;
";

/// How long to wait for another process that writes to the store. Every transaction of hotlap takes
/// much less time.
const PATIENCE: Duration = Duration::from_secs(30);

/// An open store.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    db: Connection,
    /// The identity of the store's file, as [`file`] returns it.
    file: Option<(u64, u64)>,
}

/// An entry of the list of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListedRun {
    /// The number of the run.
    pub number: u64,
    /// When the run began, in milliseconds since 1970 (UTC).
    pub began_ms: u64,
    /// How long the run took, in milliseconds.
    pub took_ms: u64,
    /// The state of the run.
    pub state: RunState,
    /// The baseline that the run was saved as, if any.
    pub baseline: Option<String>,
    /// The suite of the run, if any.
    pub suite: Option<String>,
    /// The contract or the request.
    pub contract: String,
    /// The names of the servers, without the A/A control and the ceiling.
    pub servers: Vec<String>,
    /// The number of stored laps.
    pub laps: u64,
}

/// The part of a run that a list shows.
#[derive(Deserialize)]
struct Listed {
    began_ms: u64,
    took_ms: u64,
    state: RunState,
    baseline: Option<String>,
    suite: Option<String>,
    contract: String,
    servers: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    role: Role,
}

/// How a server started in its last run.
#[derive(Debug, PartialEq, Deserialize)]
pub struct LastStart {
    /// The start in the first restart of the run.
    pub start: Start,
    /// The length of the run's slices under each load, in milliseconds.
    pub slices_ms: Vec<f64>,
    /// The results of the probes of all servers.
    pub probed: Vec<Probed>,
}

/// Creates an empty file that only the user may read, unless the file exists. The commands,
/// requests and log lines of a run may contain secrets. SQLite gives the other files of a store the
/// same mode. If the file cannot be created, SQLite reports the cause later.
fn private(path: &Path) {
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
}

impl Store {
    /// Opens the store for writing, and creates it if it does not exist. A non-empty file that is
    /// not a store of this version is left unchanged.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let unwritable = |cause: std::io::Error| StoreError::Unwritable {
            path: path.display().to_string(),
            cause: cause.to_string(),
        };
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(unwritable)?;
        }
        is_no_other_kind(path)?;
        private(path);
        let mut db = Connection::open(path).map_err(|e| explain(path, &e))?;
        db.busy_timeout(PATIENCE).map_err(|e| explain(path, &e))?;
        create(&mut db).map_err(|why| refused(path, why))?;
        let store = Self { path: path.to_owned(), db, file: file(path) };
        store.read(prepare)?;
        Ok(store)
    }

    /// Opens an existing store. A store that cannot be written is opened only for reading.
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        let shown = || path.display().to_string();
        is_no_other_kind(path)?;
        match path.metadata() {
            Err(why) if why.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(StoreError::Unwritable { path: shown(), cause: why.to_string() });
            }
            Err(_) => return Err(StoreError::Missing { path: shown() }),
            // Opening an empty file for writing would make it a store.
            Ok(found) if found.len() == 0 => return Err(StoreError::Empty { path: shown() }),
            Ok(_) => {}
        }
        if let Ok(store) = Self::open(path) {
            return Ok(store);
        }
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let db = Connection::open_with_flags(path, flags).map_err(|e| explain(path, &e))?;
        let mut store = Self { path: path.to_owned(), db, file: file(path) };
        let version = is_store(&store.db);
        if matches!(version, Err(Refused::Sql(_))) && !has_log(path) {
            // Even a reader of a store with a write-ahead log creates files next to the store. The
            // reader may lack the permission, and an empty log makes these files unnecessary.
            let flags = flags | rusqlite::OpenFlags::SQLITE_OPEN_URI;
            let unchanging = Connection::open_with_flags(unchanging(path), flags);
            store.db = unchanging.map_err(|e| explain(path, &e))?;
        }
        match is_store(&store.db).map_err(|why| refused(path, why))? {
            true => Ok(store),
            false => Err(StoreError::Empty { path: store.shown() }),
        }
    }

    /// Returns the path of the store.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the store's file was removed or replaced after it was opened, so writes are lost.
    pub fn is_gone(&self) -> bool {
        self.file.is_none() || file(&self.path) != self.file
    }

    /// Stores a run that begins, and returns its number.
    pub fn begin(&mut self, run: &Redacted<Run>) -> Result<u64, StoreError> {
        self.write(|tx| put_run(tx, run, None))
    }

    /// Stores everything that a run has so far, after its store failed or was removed. Returns the
    /// run's number. A run that is already stored is replaced, and any other run gets a new
    /// number.
    pub fn save(&mut self, run: &Redacted<Run>) -> Result<u64, StoreError> {
        self.write(|tx| {
            let same = "DELETE FROM run WHERE number = ?1 AND began_ms = ?2 AND seed = ?3";
            let known = match run.number {
                Some(number) => {
                    let key = params![number as i64, run.began_ms as i64, run.seed as i64];
                    (tx.execute(same, key)? > 0).then_some(number as i64)
                }
                None => None,
            };
            let number = put_run(tx, run, known)?;
            for (sequence, lap) in run.laps.iter().enumerate() {
                put_lap(tx, number, (false, sequence), lap, None)?;
            }
            for (sequence, own) in run.explain.iter().enumerate() {
                put_lap(tx, number, (true, sequence), &own.lap, own.observation.as_ref())?;
            }
            Ok(number)
        })
    }

    /// Replaces the record of a run that is already stored. The laps of the run stay as they are.
    pub fn update(&mut self, run: &Redacted<Run>) -> Result<(), StoreError> {
        let number = run.number.map(|number| number as i64);
        let sql = "UPDATE run SET record = ?2 WHERE number = ?1";
        self.write(|tx| tx.execute(sql, params![number, record(&**run)]).map(drop))
    }

    /// Stores the last lap of a run that is already stored.
    pub fn add_lap(&mut self, run: &Redacted<Run>) -> Result<(), StoreError> {
        let (Some(number), [before @ .., lap]) = (run.number, &run.laps[..]) else {
            return Ok(());
        };
        self.write(|tx| put_lap(tx, number, (false, before.len()), lap, None))
    }

    /// Stores the last explain lap of a run that is already stored.
    pub fn add_explain_lap(&mut self, run: &Redacted<Run>) -> Result<(), StoreError> {
        let (Some(number), [before @ .., own]) = (run.number, &run.explain[..]) else {
            return Ok(());
        };
        let place = (true, before.len());
        self.write(|tx| put_lap(tx, number, place, &own.lap, own.observation.as_ref()))
    }

    /// Returns the number of the last run of a suite.
    pub fn last_of(&self, suite: &str) -> Result<Option<u64>, StoreError> {
        Ok(self.newest_if(1, "suite = ?1", [suite])?.pop())
    }

    /// Returns the numbers of up to three newest runs saved as this baseline, the oldest first.
    /// Without such a run, the names of all baselines are returned as the inner error.
    pub fn baseline(&self, name: &str) -> Result<Result<Vec<u64>, Vec<String>>, StoreError> {
        let newest = self.newest_if(3, "baseline = ?1", [name])?;
        if !newest.is_empty() {
            return Ok(Ok(newest));
        }
        let sql = "SELECT DISTINCT baseline FROM run WHERE baseline NOT NULL ORDER BY 1";
        let names = self.read(|db| db.prepare(sql)?.query_map([], |row| row.get(0))?.collect());
        Ok(Err(names?))
    }

    /// Returns the number of the last run.
    pub fn last(&self) -> Result<u64, StoreError> {
        let last = self.newest_if(1, "true", [])?.pop();
        last.ok_or_else(|| StoreError::Empty { path: self.shown() })
    }

    /// Returns the numbers of up to three newest runs, the oldest first.
    pub fn newest(&self) -> Result<Vec<u64>, StoreError> {
        let found = self.newest_if(3, "true", [])?;
        if found.is_empty() { Err(StoreError::Empty { path: self.shown() }) } else { Ok(found) }
    }

    /// Returns the number of the last run with a lap, an explanation or a stress result. Without
    /// such a run, the number of the last run is returned.
    pub fn last_with_figures(&self) -> Result<u64, StoreError> {
        let has_figures = "EXISTS (SELECT 1 FROM lap WHERE run = number)
                           OR json_array_length(record, '$.stress') > 0";
        self.newest_if(1, has_figures, [])?.pop().map_or_else(|| self.last(), Ok)
    }

    /// Returns the numbers of the newest `most` runs that meet a condition, the oldest first.
    fn newest_if(
        &self,
        most: u32,
        condition: &str,
        of: impl Params,
    ) -> Result<Vec<u64>, StoreError> {
        let newest =
            format!("SELECT number FROM run WHERE {condition} ORDER BY number DESC LIMIT {most}");
        let sql = format!("SELECT number FROM ({newest}) ORDER BY number");
        let number = |row: &Row| row.get::<_, i64>(0).map(|number| number as u64);
        self.read(|db| db.prepare(&sql)?.query_map(of, number)?.collect())
    }

    /// Returns a run with all its laps.
    pub fn run(&self, number: u64) -> Result<Run, StoreError> {
        self.found(number, true)
    }

    /// Returns a run without explain laps. Its other laps have no histograms and no outcomes by
    /// request. Reading these parts takes most of the time, and a list of many runs does not need
    /// them.
    pub fn outline(&self, number: u64) -> Result<Run, StoreError> {
        self.found(number, false)
    }

    fn found(&self, number: u64, times: bool) -> Result<Run, StoreError> {
        if let Some(run) = self.read(|db| read_run(db, number as i64, times))? {
            return Ok(run);
        }
        let there = format!("the last one is {} (`hotlap history` lists them)", self.last()?);
        Err(StoreError::NoSuchRun { number, path: self.shown(), there })
    }

    /// Returns how a server started when it was last measured. Only the newest 100 runs are
    /// searched.
    pub fn first_start(&self, server: &str) -> Result<Option<LastStart>, StoreError> {
        let sql = "
            SELECT json_object(
                'start', json(start.value),
                'slices_ms', json(coalesce(newest.record -> '$.schedule.slices_ms', '[]')),
                'probed', json(coalesce(newest.record -> '$.schedule.probed', '[]'))
            ) AS record
            FROM (SELECT number, record FROM run ORDER BY number DESC LIMIT 100) AS newest,
                 json_each(newest.record, '$.servers') AS server,
                 json_each(newest.record, '$.starts') AS start
            WHERE server.value ->> 'name' = ?1
                AND start.value ->> 'server' = server.key
                AND start.value ->> 'restart' = 0
                AND json_array_length(start.value, '$.warmups') > 0
            ORDER BY newest.number DESC LIMIT 1";
        self.read(|db| db.query_row(sql, [server], read_record).optional())
    }

    /// Returns the stored runs, oldest first. With `server`, returns only runs with this server.
    pub fn lines(&self, server: Option<&str>) -> Result<Vec<ListedRun>, StoreError> {
        let is_asked = |own: &[Named]| server.is_none_or(|name| own.iter().any(|s| s.name == name));
        let listed = |row: &Row| {
            let Listed { began_ms, took_ms, state, baseline, suite, contract, servers } =
                read_record(row)?;
            let is_shown = |server: &&Named| matches!(server.role, Role::Plain | Role::Reference);
            let shown = servers.iter().filter(is_shown).map(|server| server.name.clone());
            Ok(is_asked(&servers).then_some(ListedRun {
                number: row.get::<_, i64>("number")? as u64,
                began_ms,
                took_ms,
                state,
                baseline,
                suite,
                contract,
                servers: shown.collect(),
                laps: row.get::<_, i64>("laps")? as u64,
            }))
        };
        let sql = "SELECT number, record, (SELECT count(*) FROM lap WHERE run = number) AS laps
                   FROM run ORDER BY number";
        self.read(|db| {
            db.prepare(sql)?.query_map([], listed)?.filter_map(Result::transpose).collect()
        })
    }

    fn read<T>(
        &self,
        ask: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        ask(&self.db).map_err(|e| explain(&self.path, &e))
    }

    fn write<T>(
        &mut self,
        act: impl FnOnce(&Transaction) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let begun = self.db.transaction_with_behavior(TransactionBehavior::Immediate);
        let done = begun.and_then(|tx| {
            let value = act(&tx)?;
            tx.commit()?;
            Ok(value)
        });
        done.map_err(|e| explain(&self.path, &e))
    }

    fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

/// Reads a run with its laps. Without `times`, only the parts of [`Store::outline`] are read.
fn read_run(db: &Connection, number: i64, times: bool) -> rusqlite::Result<Option<Run>> {
    let sql = "SELECT record FROM run WHERE number = ?1";
    let Some(mut run) = db.query_row(sql, [number], read_record::<Run>).optional()? else {
        return Ok(None);
    };
    run.number = Some(number as u64);
    let sql = "SELECT * FROM lap WHERE run = ?1 AND explains = ?2 ORDER BY sequence";
    let mut laps = db.prepare(sql)?;
    run.laps = laps
        .query_map(params![number, false], |row| read_lap(row, times))?
        .collect::<Result<_, _>>()?;
    if times {
        let explain = laps.query_map(params![number, true], read_explain_lap)?;
        run.explain = explain.collect::<Result<_, _>>()?;
    }
    record::check(&run).map_err(record::damaged)?;
    Ok(Some(run))
}

/// Sets the options for writing to an open store.
fn prepare(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, "foreign_keys", true)?;
    // A power cut may lose the last laps, but a crash of hotlap must not. WAL with NORMAL is
    // enough.
    db.pragma_update(None, "synchronous", "normal")?;
    let is_wal =
        || db.pragma_query_value(None, "journal_mode", |row| Ok(row.get::<_, String>(0)? == "wal"));
    // If another process opens the store at the same time, SQLite may refuse at once to change the
    // mode. The busy timeout does not apply then (sqlite.org/c3ref/busy_handler.html).
    let until = Instant::now() + PATIENCE;
    while !is_wal()? {
        match db.pragma_update(None, "journal_mode", "wal") {
            Err(e) if is_busy(&e) && Instant::now() < until => sleep(Duration::from_millis(5)),
            done => return done,
        }
    }
    Ok(())
}

/// Returns the identity of a file: its device and inode.
fn file(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// Refuses a folder, a device and a named pipe. SQLite would wait for a named pipe.
fn is_no_other_kind(path: &Path) -> Result<(), StoreError> {
    match path.metadata() {
        Ok(found) if !found.is_file() => {
            Err(StoreError::NoFile { path: path.display().to_string() })
        }
        _ => Ok(()),
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether laps may be waiting in the write-ahead log next to a store.
fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

/// Returns the URI of a file that does not change while it is read (`immutable`,
/// sqlite.org/uri.html).
fn unchanging(path: &Path) -> String {
    let path = path.display().to_string();
    let path = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{path}?immutable=1")
}

/// Creates the tables in an empty database. The version is read within the transaction. So if
/// several processes open a new store at once, one creates the tables and the others find them.
fn create(db: &mut Connection) -> Result<(), Refused> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if is_store(&tx)? {
        return Ok(tx.rollback()?);
    }
    tx.execute_batch(SCHEMA)?;
    tx.pragma_update(None, "application_id", APPLICATION)?;
    tx.pragma_update(None, "user_version", VERSION)?;
    Ok(tx.commit()?)
}

/// Whether a database is a store of this version. `false` for an empty database.
fn is_store(db: &Connection) -> Result<bool, Refused> {
    let pragma = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let tables = "SELECT count(*) FROM sqlite_master";
    let tables: i64 = db.query_row(tables, [], |row| row.get(0))?;
    match (pragma("application_id")?, pragma("user_version")?) {
        (APPLICATION, VERSION) => Ok(true),
        (APPLICATION, found) => Err(Refused::OtherVersion { found, known: VERSION }),
        (0, 0) if tables == 0 => Ok(false),
        _ => Err(Refused::Foreign),
    }
}
