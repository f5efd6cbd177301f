//! A folder for what servers print.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::paths;

/// The folder; it is removed at the end of the run.
pub struct Logs(PathBuf);

impl Logs {
    /// Makes it.
    ///
    /// # Errors
    /// When the cache cannot be written.
    pub fn new() -> anyhow::Result<Self> {
        let folder = paths::cache()?.join("logs").join(std::process::id().to_string());
        // What servers print may hold what only their user is to see.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.with_context(|| {
            format!("cannot make {}: set HOTLAP_CACHE to a folder of yours", folder.display())
        })?;
        Ok(Self(folder))
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
