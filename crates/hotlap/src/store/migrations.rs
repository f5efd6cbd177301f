//! The schema of the store, with one migration per version.
//!
//! A store has its version in `user_version`. To change the schema, add a migration. A released
//! migration is never edited, because stores exist that were created by it.

use rusqlite::{Connection, TransactionBehavior};

/// The migration to each version from the previous one; the first creates the tables.
const STEPS: [&str; 10] = [
    include_str!("migrations/1.sql"),
    include_str!("migrations/2.sql"),
    include_str!("migrations/3.sql"),
    include_str!("migrations/4.sql"),
    include_str!("migrations/5.sql"),
    include_str!("migrations/6.sql"),
    include_str!("migrations/7.sql"),
    include_str!("migrations/8.sql"),
    include_str!("migrations/9.sql"),
    include_str!("migrations/10.sql"),
];

/// The version that this hotlap writes.
pub const VERSION: i64 = STEPS.len() as i64;

/// Why a database is not migrated; it is left unchanged.
#[derive(Debug)]
pub enum Refused {
    /// A newer version of hotlap wrote it.
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

/// Runs all missing migrations in one transaction. The version is read within the transaction, so
/// if several processes open a new store at once, one of them creates the tables and the others
/// find them.
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

/// The version of a database that is a store of hotlap, or empty.
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
        // The names of tables in later versions are unknown.
        newer if newer > VERSION && count(own)? > 0 => Err(Refused::Newer(newer)),
        _ => Err(Refused::Foreign),
    }
}
