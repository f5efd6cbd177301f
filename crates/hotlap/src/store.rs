//! Where runs are stored: an SQLite file in the user's data directory, or where `--store` says.
//!
//! The only module with SQL. Every lap is a transaction of its own, written as soon as the lap has
//! ended, so a crash loses at most the current lap. Reading returns exactly what was written:
//! [`crate::model`], without computed values.

mod error;
mod row;
mod schema;
mod sound;

use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Params, Transaction, TransactionBehavior, params,
};
use serde::{Deserialize, Serialize};

use crate::model::{ExplainLap, Lap, Role, Run, Start, State};
pub use error::StoreError;
use error::{explain, refused};
use row::{put_explain_lap, put_lap, read_explain_lap, read_lap, read_record, record};
use schema::Refused;

/// How long to wait for another process that writes to the store: much longer than any transaction
/// of hotlap takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// An open store.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    db: Connection,
    /// The identity of its file, as [`file`] returns it.
    file: Option<(u64, u64)>,
}

/// An entry of the list of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Its number.
    pub number: u64,
    /// When it began, in milliseconds since 1970 (UTC).
    pub began_ms: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// How it ended.
    pub state: State,
    /// The baseline that it was saved as, if any.
    pub baseline: Option<String>,
    /// The suite, if there was one.
    pub suite: Option<String>,
    /// The contract or the request.
    pub contract: String,
    /// Its servers, without the A/A control.
    pub servers: Vec<String>,
    /// Laps that are stored.
    pub laps: u64,
}

/// How many of the newest runs are searched for the last start of a server.
const RECENT: u32 = 100;

/// The part of a run that a list shows.
#[derive(Deserialize)]
struct Listed {
    began_ms: u64,
    took_ms: u64,
    state: State,
    baseline: Option<String>,
    suite: Option<String>,
    contract: String,
    servers: Vec<Named>,
}

/// The part of a run that says how its servers started.
#[derive(Deserialize)]
struct Starts {
    servers: Vec<Named>,
    starts: Vec<Start>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    role: Role,
}

/// Stores a run without its laps, under `number` or the next free one.
fn put_run(tx: &Transaction, run: &Run, number: Option<i64>) -> rusqlite::Result<u64> {
    tx.execute(
        "INSERT INTO run VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![number, run.began_ms as i64, run.seed as i64, run.suite, run.baseline, record(run)],
    )?;
    Ok(tx.last_insert_rowid() as u64)
}

/// Creates an empty file that only the user may read, unless the file exists. The commands,
/// requests and log lines of a run may contain secrets. SQLite gives its other files the same mode.
/// If the file cannot be created, SQLite says why.
fn private(path: &Path) {
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
}

impl Store {
    /// Opens the store for writing, and creates it if it does not exist. A file that is not a store
    /// of this version is left unchanged.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let unwritable = |cause: std::io::Error| StoreError::Unwritable {
            path: path.display().to_string(),
            cause: cause.to_string(),
        };
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(unwritable)?;
        }
        private(path);
        let mut db = Connection::open(path).map_err(|e| explain(path, &e))?;
        db.busy_timeout(PATIENCE).map_err(|e| explain(path, &e))?;
        schema::create(&mut db).map_err(|why| refused(path, why))?;
        let store = Self { path: path.to_owned(), db, file: file(path) };
        store.prepare().map_err(|e| store.explain(&e))?;
        Ok(store)
    }

    /// Opens an existing store for reading.
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(StoreError::Missing { path: path.display().to_string() });
        }
        if let Ok(store) = Self::open(path) {
            return Ok(store);
        }
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let db = Connection::open_with_flags(path, flags).map_err(|e| explain(path, &e))?;
        let mut store = Self { path: path.to_owned(), db, file: file(path) };
        let version = schema::is_store(&store.db);
        if matches!(version, Err(Refused::Sql(_))) && !has_log(path) {
            // Even a reader of a store with a write-ahead log makes files beside it. In a folder
            // that is not its own it may not, and where nothing waits in a log it need not.
            let flags = flags | rusqlite::OpenFlags::SQLITE_OPEN_URI;
            let unchanging = Connection::open_with_flags(unchanging(path), flags);
            store.db = unchanging.map_err(|e| explain(path, &e))?;
        }
        match schema::is_store(&store.db).map_err(|why| refused(path, why))? {
            true => Ok(store),
            false => Err(StoreError::Empty { path: store.shown() }),
        }
    }

    /// The path of the store.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its file was removed or replaced since it was opened, so that writes are lost.
    pub fn is_gone(&self) -> bool {
        self.file.is_none() || file(&self.path) != self.file
    }

    fn prepare(&self) -> rusqlite::Result<()> {
        self.db.pragma_update(None, "foreign_keys", true)?;
        // A lap that is lost to a power cut is no loss; one that is lost to a crash of hotlap
        // would be, and WAL with NORMAL keeps that one.
        self.db.pragma_update(None, "synchronous", "normal")?;
        let is_wal = || {
            self.db.pragma_query_value(None, "journal_mode", |row| {
                Ok(row.get::<_, String>(0)? == "wal")
            })
        };
        // Where another process opens the store too, SQLite may refuse to change the mode at once,
        // whatever the busy timeout is (sqlite.org/c3ref/busy_handler.html).
        let until = Instant::now() + PATIENCE;
        while !is_wal()? {
            match self.db.pragma_update(None, "journal_mode", "wal") {
                Err(e) if is_busy(&e) && Instant::now() < until => sleep(Duration::from_millis(5)),
                done => return done,
            }
        }
        Ok(())
    }

    /// Stores a run that begins, and returns its number.
    pub fn begin(&mut self, run: &Run) -> Result<u64, StoreError> {
        self.write(|tx| put_run(tx, run, None))
    }

    /// Stores a run as a whole, as far as it has come: it replaces the run with its number if the
    /// store has it, else it gets a new number. Used after a store has failed.
    pub fn save(&mut self, run: &Run) -> Result<u64, StoreError> {
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
            let mut laps = run.laps.iter().enumerate();
            laps.try_for_each(|(sequence, lap)| put_lap(tx, number, sequence, lap))?;
            let mut explain = run.explain.iter().enumerate();
            explain.try_for_each(|(sequence, lap)| put_explain_lap(tx, number, sequence, lap))?;
            Ok(number)
        })
    }

    /// Replaces the record of a run that is already stored. Its laps stay as they are.
    pub fn update(&mut self, run: &Run) -> Result<(), StoreError> {
        let number = run.number.map(|number| number as i64);
        let sql = "UPDATE run SET record = ?2 WHERE number = ?1";
        self.write(|tx| tx.execute(sql, params![number, record(run)]).map(drop))
    }

    /// Stores a lap, as the `sequence`-th of its run.
    pub fn lap(&mut self, run: u64, sequence: usize, lap: &Lap) -> Result<(), StoreError> {
        self.write(|tx| put_lap(tx, run, sequence, lap))
    }

    /// Stores a lap that explains, as the `sequence`-th of its run.
    pub fn explain_lap(
        &mut self,
        run: u64,
        sequence: usize,
        lap: &ExplainLap,
    ) -> Result<(), StoreError> {
        self.write(|tx| put_explain_lap(tx, run, sequence, lap))
    }

    /// The number of the last run of a suite.
    pub fn last_of(&self, suite: &str) -> Result<Option<u64>, StoreError> {
        let sql = "SELECT max(number) FROM run WHERE suite = ?1";
        let asked = self.db.query_row(sql, [suite], |row| row.get::<_, Option<i64>>(0));
        asked.map(|n| n.map(|n| n as u64)).map_err(|e| self.explain(&e))
    }

    /// The numbers of the newest three runs saved as this baseline, the oldest first. Without
    /// such a run, the names of all baselines.
    pub fn baseline(&self, name: &str) -> Result<Result<Vec<u64>, Vec<String>>, StoreError> {
        let found = || -> rusqlite::Result<_> {
            let newest = self.newest_if("baseline = ?1", [name])?;
            if !newest.is_empty() {
                return Ok(Ok(newest));
            }
            let sql = "SELECT DISTINCT baseline FROM run WHERE baseline NOT NULL ORDER BY 1";
            let mut names = self.db.prepare(sql)?;
            let names = names.query_map([], |row| row.get(0))?;
            Ok(Err(names.collect::<Result<_, _>>()?))
        };
        found().map_err(|e| self.explain(&e))
    }

    /// The number of the last run.
    pub fn last(&self) -> Result<u64, StoreError> {
        self.last_if("true")?.ok_or_else(|| StoreError::Empty { path: self.shown() })
    }

    /// The numbers of the newest three runs, the oldest first.
    pub fn newest(&self) -> Result<Vec<u64>, StoreError> {
        let found = self.newest_if("true", []).map_err(|e| self.explain(&e))?;
        if found.is_empty() { Err(StoreError::Empty { path: self.shown() }) } else { Ok(found) }
    }

    fn newest_if(&self, condition: &str, of: impl Params) -> rusqlite::Result<Vec<u64>> {
        let newest =
            format!("SELECT number FROM run WHERE {condition} ORDER BY number DESC LIMIT 3");
        let sql = format!("SELECT number FROM ({newest}) ORDER BY number");
        let mut found = self.db.prepare(&sql)?;
        let found = found.query_map(of, |row| row.get::<_, i64>(0))?;
        found.map(|number| number.map(|n| n as u64)).collect()
    }

    /// The number of the last run with a lap, an explanation or a stress; if there is none, of the
    /// last run.
    pub fn last_with_figures(&self) -> Result<u64, StoreError> {
        let has_figures = "EXISTS (SELECT 1 FROM lap WHERE run = number)
                           OR json_array_length(record, '$.stress') > 0";
        self.last_if(has_figures)?.map_or_else(|| self.last(), Ok)
    }

    fn last_if(&self, condition: &str) -> Result<Option<u64>, StoreError> {
        let sql = format!("SELECT max(number) FROM run WHERE {condition}");
        let asked = self.db.query_row(&sql, [], |row| row.get::<_, Option<i64>>(0));
        asked.map(|number| number.map(|n| n as u64)).map_err(|e| self.explain(&e))
    }

    /// A run with all its laps.
    pub fn run(&self, number: u64) -> Result<Run, StoreError> {
        self.found(number, true)
    }

    /// A run whose laps have no histograms and no outcomes of single requests, without laps that
    /// explain: reading those takes most of the time, and a list of many runs does not need them.
    pub fn outline(&self, number: u64) -> Result<Run, StoreError> {
        self.found(number, false)
    }

    fn found(&self, number: u64, times: bool) -> Result<Run, StoreError> {
        let read = self.read_run(number as i64, times).map_err(|e| self.explain(&e))?;
        let Some(run) = read else {
            let last = self.last()?;
            let there = format!("the last one is {last} (`hotlap history` lists them)");
            return Err(StoreError::NoSuchRun { number, path: self.shown(), there });
        };
        Ok(run)
    }

    /// How a server started when it was last measured, in the first restart of its run.
    pub fn first_start(&self, server: &str) -> Result<Option<Start>, StoreError> {
        let found = || -> rusqlite::Result<_> {
            let sql = "SELECT record FROM run ORDER BY number DESC LIMIT ?1";
            let mut runs = self.db.prepare(sql)?;
            for starts in runs.query_map([RECENT], read_record::<Starts>)? {
                let Starts { servers, starts } = starts?;
                let place = servers.iter().position(|known| known.name == server);
                let is_first = |start: &Start| {
                    Some(start.server) == place && start.restart == 0 && !start.warmups.is_empty()
                };
                if let Some(start) = starts.into_iter().find(is_first) {
                    return Ok(Some(start));
                }
            }
            Ok(None)
        };
        found().map_err(|e| self.explain(&e))
    }

    /// The stored runs, oldest first; with `server`, only those that contain it.
    pub fn lines(&self, server: Option<&str>) -> Result<Vec<Line>, StoreError> {
        let lines = self.read_lines().map_err(|e| self.explain(&e))?;
        let has = |servers: &[Named]| {
            server.is_none_or(|name| servers.iter().any(|server| server.name == name))
        };
        let own = lines.into_iter().filter(|(_, servers)| has(servers));
        Ok(own.map(|(line, _)| line).collect())
    }

    /// The stored runs, each with all of its servers.
    fn read_lines(&self) -> rusqlite::Result<Vec<(Line, Vec<Named>)>> {
        let mut runs = self.db.prepare(
            "SELECT number, record, (SELECT count(*) FROM lap WHERE run = number) AS laps
             FROM run ORDER BY number",
        )?;
        let rows = runs.query_map([], |row| {
            let Listed { began_ms, took_ms, state, baseline, suite, contract, servers } =
                read_record(row)?;
            let is_shown = |server: &&Named| matches!(server.role, Role::Plain | Role::Reference);
            let shown = servers.iter().filter(is_shown).map(|server| server.name.clone());
            let line = Line {
                number: row.get::<_, i64>("number")? as u64,
                began_ms,
                took_ms,
                state,
                baseline,
                suite,
                contract,
                servers: shown.collect(),
                laps: row.get::<_, i64>("laps")? as u64,
            };
            Ok((line, servers))
        })?;
        rows.collect()
    }

    fn read_run(&self, number: i64, times: bool) -> rusqlite::Result<Option<Run>> {
        let sql = "SELECT record FROM run WHERE number = ?1";
        let Some(mut run) = self.db.query_row(sql, [number], read_record::<Run>).optional()? else {
            return Ok(None);
        };
        run.number = Some(number as u64);
        let sql = "SELECT * FROM lap WHERE run = ?1 AND explains = ?2 ORDER BY sequence";
        let mut laps = self.db.prepare(sql)?;
        run.laps = laps
            .query_map(params![number, false], |row| read_lap(row, times))?
            .collect::<Result<_, _>>()?;
        if times {
            let explain = laps.query_map(params![number, true], read_explain_lap)?;
            run.explain = explain.collect::<Result<_, _>>()?;
        }
        sound::check(&run).map_err(row::damaged)?;
        Ok(Some(run))
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

    fn explain(&self, error: &rusqlite::Error) -> StoreError {
        explain(&self.path, error)
    }
}

/// The identity of a file: device and inode.
fn file(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether laps may be waiting in the write-ahead log beside a store.
fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

/// The URI of a file that does not change while it is read (`immutable`, sqlite.org/uri.html).
fn unchanging(path: &Path) -> String {
    let path = path.display().to_string();
    let path = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{path}?immutable=1")
}
