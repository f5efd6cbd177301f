//! The schema of the store, one step a version.
//!
//! A store says its version in `user_version`. To change the schema, add a step; a step that was
//! released is never edited, since stores exist that were made by it.

use rusqlite::{Connection, TransactionBehavior};

/// What each version adds to the one before it; the first makes the tables.
const STEPS: [&str; 6] = [
    include_str!("migrations/1.sql"),
    include_str!("migrations/2.sql"),
    include_str!("migrations/3.sql"),
    include_str!("migrations/4.sql"),
    include_str!("migrations/5.sql"),
    include_str!("migrations/6.sql"),
];

/// The version that this hotlap writes.
pub const VERSION: i64 = STEPS.len() as i64;

/// Why a database is not brought up to date; it is left as it is.
#[derive(Debug)]
pub enum Refused {
    /// It was written by a hotlap that knows more.
    Newer(i64),
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

/// Takes all steps that a database lacks, in one transaction. The version is read within it: of
/// several processes that open a new store at once, one makes the tables and the others find them.
///
/// # Errors
/// When the database is not one of hotlap's, is newer, or cannot be written.
pub fn bring_up_to_date(db: &mut Connection) -> Result<(), Refused> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = checked(&tx)?;
    if found == VERSION {
        return Ok(tx.rollback()?);
    }
    for step in &STEPS[found as usize..] {
        tx.execute_batch(step)?;
    }
    tx.pragma_update(None, "user_version", VERSION)?;
    Ok(tx.commit()?)
}

/// The version of a database that is a store of hotlap, or is empty.
///
/// # Errors
/// When it is not one of hotlap's, or is newer.
pub fn checked(db: &Connection) -> Result<i64, Refused> {
    let found: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let count = |sql| db.query_row(sql, [], |row| row.get::<_, i64>(0));
    let own = "SELECT count(*) FROM sqlite_master
               WHERE type = 'table' AND name IN ('run', 'server', 'start', 'lap')";
    match found {
        0 if count("SELECT count(*) FROM sqlite_master")? == 0 => Ok(0),
        1..=VERSION if count(own)? == 4 => Ok(found),
        // What the tables of a later version are called is not known.
        newer if newer > VERSION && count(own)? > 0 => Err(Refused::Newer(newer)),
        _ => Err(Refused::Foreign),
    }
}
