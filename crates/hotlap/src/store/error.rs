//! Why the store cannot be used, and what to do about it.

use std::path::Path;

use rusqlite::ErrorCode;

/// Why the store cannot be used, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Written by another version of hotlap.
    #[error(
        "the store {path} has version {found}, and this hotlap reads and writes version {known}: \
         use the hotlap that wrote it, or name another file with --store"
    )]
    OtherVersion {
        /// The file.
        path: String,
        /// Its version.
        found: i64,
        /// The version of this hotlap.
        known: i64,
    },
    /// Not a store of hotlap.
    #[error(
        "{path} is damaged, or not a store of hotlap ({cause}): move it away, or name another \
         file with --store"
    )]
    Damaged {
        /// The file.
        path: String,
        /// SQLite's message.
        cause: String,
    },
    /// A folder, a device or a named pipe.
    #[error("{path} is not a file, so it cannot be a store: name a file with --store")]
    NoFile {
        /// The path.
        path: String,
    },
    /// No space left.
    #[error(
        "no space left for the store {path}: free some space, or name a file on another disk \
         with --store"
    )]
    Full {
        /// The file.
        path: String,
    },
    /// No permission.
    #[error(
        "cannot write the store {path} ({cause}): check its permissions, or name another file \
         with --store"
    )]
    Unwritable {
        /// The file.
        path: String,
        /// The message of the system or SQLite.
        cause: String,
    },
    /// The file does not exist.
    #[error("no store at {path}: `hotlap run` creates one, or name the right file with --store")]
    Missing {
        /// The file.
        path: String,
    },
    /// The run does not exist.
    #[error("no run {number} in {path}: {there}")]
    NoSuchRun {
        /// The number of the run.
        number: u64,
        /// The file.
        path: String,
        /// The runs that exist instead.
        there: String,
    },
    /// No run is stored yet.
    #[error("no run is stored in {path} yet: `hotlap run` stores one")]
    Empty {
        /// The file.
        path: String,
    },
    /// Any other error of SQLite.
    #[error("the store {path} failed: {cause}; name another file with --store")]
    Other {
        /// The file.
        path: String,
        /// SQLite's message.
        cause: String,
    },
}

impl StoreError {
    /// Whether a store in another place could work, because this one cannot be written.
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
        // A column is missing or cannot be parsed: another program wrote it.
        None => StoreError::Damaged { path, cause },
    }
}

/// Why a database is not used. It is left unchanged.
#[derive(Debug)]
pub(super) enum Refused {
    /// Another version of hotlap wrote it.
    OtherVersion {
        /// Its version.
        found: i64,
        /// The version of this hotlap.
        known: i64,
    },
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
