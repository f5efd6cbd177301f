//! Explains why the store cannot be used, and what to do about it.

use std::path::Path;

use rusqlite::ErrorCode;

/// The reason why the store cannot be used, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another version of hotlap wrote the store.
    #[error(
        "the store {path} has version {found}, and this hotlap reads and writes version {known}: \
         use the hotlap that wrote it, or name another file with --store"
    )]
    OtherVersion {
        /// The path of the file.
        path: String,
        /// The version of the store.
        found: i64,
        /// The version of this hotlap.
        known: i64,
    },
    /// The file is damaged, or is not a store of hotlap.
    #[error(
        "{path} is damaged, or not a store of hotlap ({cause}): move it away, or name another \
         file with --store"
    )]
    Damaged {
        /// The path of the file.
        path: String,
        /// SQLite's message, or what is wrong with the file.
        cause: String,
    },
    /// The path is a folder, a device or a named pipe.
    #[error("{path} is not a file, so it cannot be a store: name a file with --store")]
    NoFile {
        /// The path.
        path: String,
    },
    /// The disk has no space left for the store.
    #[error(
        "no space left for the store {path}: free some space, or name a file on another disk \
         with --store"
    )]
    Full {
        /// The path of the file.
        path: String,
    },
    /// The store cannot be opened or written.
    #[error(
        "cannot use the store {path} ({cause}): check its permissions and whether another \
         program uses it, or name another file with --store"
    )]
    Unwritable {
        /// The path of the file.
        path: String,
        /// The message of the system or of SQLite, or that another program has locked the store.
        cause: String,
    },
    /// The file does not exist.
    #[error("no store at {path}: `hotlap run` creates one, or name the right file with --store")]
    Missing {
        /// The path of the file.
        path: String,
    },
    /// The run does not exist.
    #[error("no run {number} in {path}: {there}")]
    NoSuchRun {
        /// The number of the run.
        number: u64,
        /// The path of the file.
        path: String,
        /// A text that says which runs exist.
        there: String,
    },
    /// No run is stored yet.
    #[error("no run is stored in {path} yet: `hotlap run` stores one")]
    Empty {
        /// The path of the file.
        path: String,
    },
    /// SQLite reported any other error.
    #[error("the store {path} failed ({cause}): name another file with --store")]
    Other {
        /// The path of the file.
        path: String,
        /// SQLite's message.
        cause: String,
    },
}

impl StoreError {
    /// Returns the message for a store that the command line names without `--store`.
    pub fn of_argument(&self) -> String {
        self.to_string().replace(" with --store", "")
    }

    /// Whether a store at another path could work, because this store cannot be written.
    pub fn is_about_its_place(&self) -> bool {
        matches!(self, Self::Unwritable { .. } | Self::Full { .. })
    }
}

/// Explains why a store cannot be opened.
pub(super) fn refused(path: &Path, why: Refused) -> StoreError {
    let shown = path.display().to_string();
    match why {
        Refused::OtherVersion { found, known } => {
            StoreError::OtherVersion { path: shown, found, known }
        }
        Refused::Foreign => {
            StoreError::Damaged { path: shown, cause: "another program wrote it".to_owned() }
        }
        Refused::Sql(error) => explain(path, &error),
    }
}

/// Translates an error of SQLite for the user.
pub(super) fn explain(path: &Path, error: &rusqlite::Error) -> StoreError {
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
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            let cause = "another program has locked it for 30 s".to_owned();
            StoreError::Unwritable { path, cause }
        }
        Some(_) => StoreError::Other { path, cause },
        // A column is missing or a value is invalid: the disk or another program changed the file.
        None => StoreError::Damaged { path, cause },
    }
}

/// The reason why a database is not used. The database is left unchanged.
#[derive(Debug)]
pub(super) enum Refused {
    /// Another version of hotlap wrote the database.
    OtherVersion {
        /// The version of the database.
        found: i64,
        /// The version of this hotlap.
        known: i64,
    },
    /// Another program wrote the database.
    Foreign,
    /// SQLite reported an error.
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}
