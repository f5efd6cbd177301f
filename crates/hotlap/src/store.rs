//! Where runs are kept: a SQLite file in the user's data directory, or where `--store` says.
//!
//! The only room that speaks SQL. Every lap is a transaction of its own and is there as soon as it
//! has ended, so that a crash loses at most the lap under way. What is read back is what was put
//! in: [`crate::record`], nothing computed.

mod row;
mod sound;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, params};
use serde::Serialize;

use crate::record::{Lap, Retired, Run, Schedule, Start, State, Subject};
use row::{
    json, put_lap, put_server, read_lap, read_run, read_server, read_start, read_subject,
    read_word, unsigned, word,
};

/// The version of the schema that this hotlap writes.
const VERSION: i64 = 5;

/// A store, open.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    db: Connection,
}

/// Why the store cannot be used, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Written by a hotlap that knows more.
    #[error(
        "the store {path} is of version {found}, and this hotlap knows versions up to {known}: update hotlap, or name another file with --store"
    )]
    Newer {
        /// The file.
        path: String,
        /// Its version.
        found: i64,
        /// The newest version that is known.
        known: i64,
    },
    /// Not a store.
    #[error(
        "the store {path} is damaged or no store of hotlap ({cause}): move it away, or name another file with --store"
    )]
    Damaged {
        /// The file.
        path: String,
        /// SQLite's word.
        cause: String,
    },
    /// No space left.
    #[error(
        "no space left for the store {path}: free some, or name a file on another disk with --store"
    )]
    Full {
        /// The file.
        path: String,
    },
    /// No permission.
    #[error(
        "the store {path} cannot be written ({cause}): see to its permissions, or name another file with --store"
    )]
    Unwritable {
        /// The file.
        path: String,
        /// The system's or SQLite's word.
        cause: String,
    },
    /// Nothing is there.
    #[error(
        "no store at {path}: `hotlap run` makes one, or name the file that has the runs with --store"
    )]
    Missing {
        /// The file.
        path: String,
    },
    /// No such run.
    #[error("no run {number} in {path}: {there}")]
    NoSuchRun {
        /// The number asked for.
        number: u64,
        /// The file.
        path: String,
        /// What is there instead.
        there: String,
    },
    /// Nothing was stored yet.
    #[error("no run is stored in {path} yet: `hotlap run` stores one")]
    Empty {
        /// The file.
        path: String,
    },
    /// Anything else that SQLite says.
    #[error("the store {path} failed: {cause}")]
    Other {
        /// The file.
        path: String,
        /// SQLite's word.
        cause: String,
    },
}

/// One line of the list of runs.
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
    /// The baseline that it was kept as, if it was.
    pub baseline: Option<String>,
    /// The suite, if it was one.
    pub suite: Option<String>,
    /// What was asked for.
    pub contract: String,
    /// Who took part, hidden ones left out.
    pub servers: Vec<String>,
    /// Laps that are stored.
    pub laps: u64,
}

impl Store {
    /// Where runs are kept unless told otherwise: `hotlap/hotlap.db` in `$XDG_DATA_HOME` or
    /// `~/.local/share`.
    #[must_use]
    pub fn usual_path() -> PathBuf {
        let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let data = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")));
        data.unwrap_or_else(|| PathBuf::from(".")).join("hotlap").join("hotlap.db")
    }

    /// Opens the store to write to, makes it where there is none, and brings it up to date.
    ///
    /// # Errors
    /// Names the file, the cause and the cure.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let unwritable = |cause: std::io::Error| StoreError::Unwritable {
            path: path.display().to_string(),
            cause: cause.to_string(),
        };
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(unwritable)?;
        }
        let db = Connection::open(path).map_err(|e| explain(path, &e))?;
        let mut store = Self { path: path.to_owned(), db };
        store.prepare().map_err(|e| store.explain(&e))?;
        let version = store.version()?;
        if version < VERSION {
            store.upgrade(version).map_err(|e| store.explain(&e))?;
        }
        Ok(store)
    }

    /// Opens a store that is there, to read from.
    ///
    /// # Errors
    /// Names the file, the cause and the cure.
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(StoreError::Missing { path: path.display().to_string() });
        }
        if let Ok(store) = Self::open(path) {
            return Ok(store);
        }
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let db = Connection::open_with_flags(path, flags).map_err(|e| explain(path, &e))?;
        let mut store = Self { path: path.to_owned(), db };
        if store.version().is_err() && !has_log(path) {
            // Even a reader of a store with a write-ahead log makes files beside it. In a folder
            // that is not its own it may not, and where nothing waits in a log it need not.
            let flags = flags | rusqlite::OpenFlags::SQLITE_OPEN_URI;
            let unchanging = Connection::open_with_flags(unchanging(path), flags);
            store.db = unchanging.map_err(|e| explain(path, &e))?;
        }
        match store.version()? {
            VERSION => Ok(store),
            older => Err(StoreError::Unwritable {
                path: store.shown(),
                cause: format!("it is of version {older} and has to be brought up to date once"),
            }),
        }
    }

    fn prepare(&self) -> rusqlite::Result<()> {
        self.db.busy_timeout(std::time::Duration::from_secs(5))?;
        self.db.pragma_update(None, "foreign_keys", true)?;
        self.db.pragma_update(None, "journal_mode", "wal")?;
        // A lap that is lost to a power cut is no loss; one that is lost to a crash of hotlap
        // would be, and WAL with NORMAL keeps that one.
        self.db.pragma_update(None, "synchronous", "normal")
    }

    fn version(&self) -> Result<i64, StoreError> {
        let asked = self.db.pragma_query_value(None, "user_version", |row| row.get(0));
        let found: i64 = asked.map_err(|e| self.explain(&e))?;
        if found > VERSION {
            return Err(StoreError::Newer { path: self.shown(), found, known: VERSION });
        }
        Ok(found)
    }

    fn upgrade(&mut self, from: i64) -> rusqlite::Result<()> {
        let step = self.db.transaction()?;
        if from < 1 {
            step.execute_batch(include_str!("schema.sql"))?;
        }
        if from < 2 {
            step.execute_batch(
                "ALTER TABLE run ADD COLUMN absent_json TEXT NOT NULL DEFAULT '[]';
                 ALTER TABLE server ADD COLUMN part_json TEXT NOT NULL DEFAULT '{}';",
            )?;
        }
        if from < 3 {
            step.execute_batch("ALTER TABLE run ADD COLUMN baseline TEXT;")?;
        }
        if from < 4 {
            step.execute_batch(
                "CREATE TABLE stress (
                     run          INTEGER NOT NULL REFERENCES run (number) ON DELETE CASCADE,
                     sequence     INTEGER NOT NULL,
                     subject_json TEXT    NOT NULL,
                     PRIMARY KEY (run, sequence)
                 ) STRICT;",
            )?;
        }
        if from < 5 {
            step.execute_batch(
                "ALTER TABLE lap ADD COLUMN service_censored_json TEXT NOT NULL DEFAULT '{}';
                 ALTER TABLE lap ADD COLUMN response_censored_json TEXT NOT NULL DEFAULT '{}';",
            )?;
        }
        step.pragma_update(None, "user_version", VERSION)?;
        step.commit()
    }

    /// Stores a run that begins, and returns its number.
    ///
    /// # Errors
    /// Names the file, the cause and the cure.
    pub fn begin(&mut self, run: &Run) -> Result<u64, StoreError> {
        self.write(|tx| {
            tx.execute(
                "INSERT INTO run (began_ms, took_ms, state, command_json, hotlap, suite, question,
                                  about, contract, seed, schedule_json, host_json, loads_json,
                                  absent_json, baseline)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
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
                ],
            )?;
            let number = tx.last_insert_rowid();
            for (place, server) in run.servers.iter().enumerate() {
                put_server(tx, number, place, server)?;
            }
            Ok(number as u64)
        })
    }

    /// Stores a fresh start, or what is new about it.
    ///
    /// # Errors
    /// Names the file, the cause and the cure.
    pub fn start(&mut self, run: u64, start: &Start) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute(
                "INSERT OR REPLACE INTO start VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    run as i64,
                    start.server as i64,
                    start.heat,
                    start.ready_ms,
                    start.badges.0,
                    start.badges.1,
                    start.rss_bytes as i64,
                    json(&start.notes),
                    json(&start.warmups),
                ],
            )
            .map(drop)
        })
    }

    /// Stores a lap, as the `sequence`-th of its run.
    ///
    /// # Errors
    /// Names the file, the cause and the cure.
    pub fn lap(&mut self, run: u64, sequence: usize, lap: &Lap) -> Result<(), StoreError> {
        self.write(|tx| put_lap(tx, run, sequence, lap))
    }

    /// Stores what became of a server under stress so far, as the `sequence`-th of its run.
    ///
    /// # Errors
    /// Names the file, the cause and the cure.
    pub fn stress(&mut self, run: u64, sequence: usize, found: &Subject) -> Result<(), StoreError> {
        self.write(|tx| {
            let values = params![run as i64, sequence as i64, json(found)];
            tx.execute("INSERT OR REPLACE INTO stress VALUES (?1, ?2, ?3)", values).map(drop)
        })
    }

    /// Stores that a server is out.
    ///
    /// # Errors
    /// Names the file, the cause and the cure.
    pub fn retire(&mut self, run: u64, server: usize, why: &Retired) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute(
                "UPDATE server SET retired_json = ?3 WHERE run = ?1 AND place = ?2",
                params![run as i64, server as i64, json(why)],
            )
            .map(drop)
        })
    }

    /// Stores how a run ended.
    ///
    /// # Errors
    /// Names the file, the cause and the cure.
    pub fn end(&mut self, run: u64, state: State, took_ms: u64) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute(
                "UPDATE run SET state = ?2, took_ms = ?3 WHERE number = ?1",
                params![run as i64, word(&state), took_ms as i64],
            )
            .map(drop)
        })
    }

    /// The schedule of a run, once more of it is settled.
    ///
    /// # Errors
    /// Names the file, the cause and the cure.
    pub fn schedule(&mut self, run: u64, schedule: &Schedule) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute(
                "UPDATE run SET schedule_json = ?2 WHERE number = ?1",
                params![run as i64, json(schedule)],
            )
            .map(drop)
        })
    }

    /// A run that had stopped goes on.
    ///
    /// # Errors
    /// Names the file, the cause and the cure.
    pub fn reopen(&mut self, run: u64) -> Result<(), StoreError> {
        self.end(run, State::UnderWay, 0)
    }

    /// Number of the last run of a suite.
    ///
    /// # Errors
    /// When the store fails.
    pub fn last_of(&self, suite: &str) -> Result<Option<u64>, StoreError> {
        let sql = "SELECT max(number) FROM run WHERE suite = ?1";
        let asked = self.db.query_row(sql, [suite], |row| row.get::<_, Option<i64>>(0));
        asked.map(|n| n.map(|n| n as u64)).map_err(|e| self.explain(&e))
    }

    /// Number of the newest run that was kept as this baseline; without one, all their names.
    ///
    /// # Errors
    /// When the store fails.
    pub fn baseline(&self, name: &str) -> Result<Result<u64, Vec<String>>, StoreError> {
        let found = || -> rusqlite::Result<_> {
            let sql = "SELECT max(number) FROM run WHERE baseline = ?1";
            let number: Option<i64> = self.db.query_row(sql, [name], |row| row.get(0))?;
            if let Some(number) = number {
                return Ok(Ok(number as u64));
            }
            let sql = "SELECT DISTINCT baseline FROM run WHERE baseline NOT NULL ORDER BY 1";
            let mut names = self.db.prepare(sql)?;
            let names = names.query_map([], |row| row.get(0))?;
            Ok(Err(names.collect::<Result<_, _>>()?))
        };
        found().map_err(|e| self.explain(&e))
    }

    /// Number of the last run.
    ///
    /// # Errors
    /// When there is none, or the store fails.
    pub fn last(&self) -> Result<u64, StoreError> {
        let asked = self.db.query_row("SELECT max(number) FROM run", [], |row| row.get(0));
        let number: Option<i64> = asked.map_err(|e| self.explain(&e))?;
        number.map(|n| n as u64).ok_or_else(|| StoreError::Empty { path: self.shown() })
    }

    /// A run with all its laps.
    ///
    /// # Errors
    /// When there is no such run, or the store fails.
    pub fn run(&self, number: u64) -> Result<Run, StoreError> {
        self.found(number, true)
    }

    /// A run whose laps have no histograms: reading those is most of the work, and a list of many
    /// runs needs none.
    ///
    /// # Errors
    /// When there is no such run, or the store fails.
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

    /// How a server started when it was last raced, in the first heat of its run.
    ///
    /// # Errors
    /// When the store fails.
    pub fn first_start(&self, server: &str) -> Result<Option<Start>, StoreError> {
        let sql = "SELECT start.* FROM start
                   JOIN server ON server.run = start.run AND server.place = start.server
                   WHERE server.name = ?1 AND start.heat = 0 AND start.warmups_json <> '[]'
                   ORDER BY start.run DESC LIMIT 1";
        self.db.query_row(sql, [server], read_start).optional().map_err(|e| self.explain(&e))
    }

    /// The stored runs, oldest first; only those of `server`, if it is given.
    ///
    /// # Errors
    /// When the store fails.
    pub fn lines(&self, server: Option<&str>) -> Result<Vec<Line>, StoreError> {
        self.read_lines(server).map_err(|e| self.explain(&e))
    }

    fn read_lines(&self, server: Option<&str>) -> rusqlite::Result<Vec<Line>> {
        let mut names = self.db.prepare(
            "SELECT name FROM server
             WHERE run = ?1 AND role IN ('contestant', 'reference') ORDER BY place",
        )?;
        let mut runs = self.db.prepare(
            "SELECT number, began_ms, took_ms, state, baseline, suite, contract,
                    (SELECT count(*) FROM lap WHERE lap.run = number) AS laps
             FROM run
             WHERE ?1 IS NULL OR number IN (SELECT run FROM server WHERE name = ?1)
             ORDER BY number",
        )?;
        let rows = runs.query_map([server], |row| {
            let number: i64 = row.get("number")?;
            Ok(Line {
                number: number as u64,
                began_ms: unsigned(row, "began_ms")?,
                took_ms: unsigned(row, "took_ms")?,
                state: read_word(row, "state")?,
                baseline: row.get("baseline")?,
                suite: row.get("suite")?,
                contract: row.get("contract")?,
                servers: names.query_map([number], |r| r.get(0))?.collect::<Result<_, _>>()?,
                laps: unsigned(row, "laps")?,
            })
        })?;
        rows.collect()
    }

    fn read_run(&self, number: i64, times: bool) -> rusqlite::Result<Option<Run>> {
        let sql = "SELECT * FROM run WHERE number = ?1";
        let Some(mut run) = self.db.query_row(sql, [number], read_run).optional()? else {
            return Ok(None);
        };
        let mut servers = self.db.prepare("SELECT * FROM server WHERE run = ?1 ORDER BY place")?;
        run.servers = servers.query_map([number], read_server)?.collect::<Result<_, _>>()?;
        let mut starts =
            self.db.prepare("SELECT * FROM start WHERE run = ?1 ORDER BY heat, server")?;
        run.starts = starts.query_map([number], read_start)?.collect::<Result<_, _>>()?;
        let mut laps = self.db.prepare("SELECT * FROM lap WHERE run = ?1 ORDER BY sequence")?;
        run.laps =
            laps.query_map([number], |row| read_lap(row, times))?.collect::<Result<_, _>>()?;
        let mut stress =
            self.db.prepare("SELECT * FROM stress WHERE run = ?1 ORDER BY sequence")?;
        run.stress = stress.query_map([number], read_subject)?.collect::<Result<_, _>>()?;
        sound::check(&run).map_err(row::damaged)?;
        Ok(Some(run))
    }

    fn write<T>(
        &mut self,
        act: impl FnOnce(&Transaction) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let done = self.db.transaction().and_then(|tx| {
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

/// Whether laps may wait in the log beside a store.
fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

/// A file that nobody changes while it is read, as SQLite wants to be told (sqlite.org/uri.html).
fn unchanging(path: &Path) -> String {
    let path = path.display().to_string();
    let path = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{path}?immutable=1")
}

/// What an error of SQLite means for the user.
fn explain(path: &Path, error: &rusqlite::Error) -> StoreError {
    let path = path.display().to_string();
    let cause = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            StoreError::Damaged { path, cause }
        }
        Some(ErrorCode::DiskFull) => StoreError::Full { path },
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            StoreError::Unwritable { path, cause }
        }
        Some(_) => StoreError::Other { path, cause },
        // A column that is missing or holds what cannot be read: written by something else.
        None => StoreError::Damaged { path, cause },
    }
}
