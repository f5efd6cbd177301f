//! The schema of the store, and whether a file has it.
//!
//! A run is one row with its record in JSON. Its laps are rows of their own, because each is
//! written when it has ended. Histograms and observations are packed, and read only if they are
//! needed.

use rusqlite::{Connection, TransactionBehavior};

/// The version of the schema, in `user_version`. It changes with the schema and with the records.
pub const VERSION: i64 = 1;

/// Marks a store of hotlap, in `application_id`: "hotl".
const APPLICATION: i64 = 0x686f_746c;

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

/// Why a database is not used; it is left unchanged.
#[derive(Debug)]
pub enum Refused {
    /// Another version of hotlap wrote it.
    OtherVersion(i64),
    /// Another program wrote it.
    Foreign,
    /// SQLite failed.
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Creates the tables in an empty database. The version is read within the transaction, so if
/// several processes open a new store at once, one of them creates the tables and the others find
/// them.
pub fn create(db: &mut Connection) -> Result<(), Refused> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if is_store(&tx)? {
        return Ok(tx.rollback()?);
    }
    tx.execute_batch(SCHEMA)?;
    tx.pragma_update(None, "application_id", APPLICATION)?;
    tx.pragma_update(None, "user_version", VERSION)?;
    Ok(tx.commit()?)
}

/// Whether a database is a store of this version; `false` for an empty one.
pub fn is_store(db: &Connection) -> Result<bool, Refused> {
    let pragma = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let tables = "SELECT count(*) FROM sqlite_master";
    let tables: i64 = db.query_row(tables, [], |row| row.get(0))?;
    match (pragma("application_id")?, pragma("user_version")?) {
        (APPLICATION, VERSION) => Ok(true),
        (APPLICATION, other) => Err(Refused::OtherVersion(other)),
        (0, 0) if tables == 0 => Ok(false),
        _ => Err(Refused::Foreign),
    }
}
