//! The state of a session on disk: worktrees, logs of builds, and the races so far.

use std::fs::{self, File, TryLockError};
use std::hash::Hasher;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use fnv::FnvHasher;
use rustix::io::{FdFlags, fcntl_setfd};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::repository::Commit;
use crate::paths;

/// The file with the state, in the folder of a session.
const STATE: &str = "session.json";

/// The folder of a session.
#[derive(Debug)]
pub struct SessionFolder {
    path: PathBuf,
    /// A lock on the session, which builds and races inherit. If hotlap is killed, the lock is held
    /// until these processes have ended.
    _lock: File,
}

impl SessionFolder {
    /// Opens the folder of a session, in a folder for all sessions of a kind. `identity`
    /// distinguishes the session from the others.
    ///
    /// # Errors
    /// The folder cannot be created, or the session is in use.
    pub fn open(all: &Path, identity: &str) -> anyhow::Result<Self> {
        let mut hasher = FnvHasher::default();
        hasher.write(identity.as_bytes());
        let path = all.join(format!("{:016x}", hasher.finish()));
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { _lock: lock(&path)?, path })
    }

    /// Reads the state of an earlier session. Without one, the state is the default.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn read<T: DeserializeOwned + Default>(&self) -> anyhow::Result<T> {
        let path = self.path.join(STATE);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|why| {
                anyhow::anyhow!("{} is damaged ({why}): remove the file", path.display())
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(T::default()),
            Err(error) => Err(error).context(format!("cannot read {}", path.display())),
        }
    }

    /// Writes the state. An interrupted write leaves the earlier state.
    ///
    /// # Errors
    /// The disk is full, for example.
    pub fn write(&self, state: &impl Serialize) -> anyhow::Result<()> {
        let path = self.path.join(STATE);
        paths::replace(&path, &serde_json::to_vec(state)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a commit's worktree.
    pub fn worktree(&self, commit: &Commit) -> PathBuf {
        self.path.join("worktrees").join(&commit.hash)
    }

    /// Returns whether the worktree of a commit is built.
    pub fn is_built(&self, commit: &Commit) -> bool {
        self.mark(commit).exists() && self.worktree(commit).exists()
    }

    /// Records whether the worktree of a commit is built.
    ///
    /// # Errors
    /// The disk is full, for example.
    pub fn set_built(&self, commit: &Commit, is_built: bool) -> anyhow::Result<()> {
        let mark = self.mark(commit);
        let kept = match is_built {
            true => File::create(&mark).map(drop),
            false => fs::remove_file(&mark).or_else(|why| match why.kind() {
                ErrorKind::NotFound => Ok(()),
                _ => Err(why),
            }),
        };
        kept.with_context(|| format!("cannot write {}", mark.display()))
    }

    /// Returns the path of the file whose existence marks a commit as built.
    fn mark(&self, commit: &Commit) -> PathBuf {
        self.path.join("worktrees").join(format!("{}.built", commit.hash))
    }

    /// Returns the path of the log of a commit's build.
    pub fn log(&self, commit: &Commit) -> PathBuf {
        self.path.join("logs").join(format!("{}.log", commit.short()))
    }

    /// Removes the folder.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Locks a session. Processes that are started later hold the lock, too.
fn lock(folder: &Path) -> anyhow::Result<File> {
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    fcntl_setfd(&file, FdFlags::empty())?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => anyhow::bail!(
            "another hotlap, or a build or a race that another hotlap started, still works on \
             these versions: wait for its end"
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).context(format!("cannot lock {}", path.display()))
        }
    }
}
