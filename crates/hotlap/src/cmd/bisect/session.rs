//! The state of a bisection on disk: worktrees, logs of builds, and the races so far.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::hash::Hasher;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use fnv::FnvHasher;
use hotlap_stats::LevelReading;
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};

use super::repository::Commit;

/// The file with the state, in the folder of the session.
const STATE: &str = "session.json";

/// The state of a bisection. Commits are numbered from the good one, which has place 0.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Session {
    #[serde(skip)]
    folder: PathBuf,
    /// A lock on the session, which builds and races inherit. If hotlap is killed, it is held until
    /// they have ended.
    #[serde(skip)]
    _lock: Option<File>,
    /// The number of races so far.
    pub races: u32,
    /// The commits that were built.
    pub built: BTreeSet<usize>,
    /// The commits that do not build, or whose servers fail.
    pub broken: BTreeSet<usize>,
    /// What the races showed.
    pub readings: Vec<LevelReading>,
}

impl Session {
    /// Opens the session of a bisection in a folder for all of them. `identity` tells it from
    /// others. Commits that failed in an earlier session are tried again.
    ///
    /// # Errors
    /// The folder cannot be created, the state of an earlier session cannot be read, or the session
    /// is in use.
    pub fn open(all: &Path, identity: &str) -> anyhow::Result<Self> {
        let mut hasher = FnvHasher::default();
        hasher.write(identity.as_bytes());
        let folder = all.join(format!("{:016x}", hasher.finish()));
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let lock = lock(&folder)?;
        let path = folder.join(STATE);
        let earlier = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{} is damaged: remove it", path.display()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Self::default(),
            Err(error) => return Err(error).context(format!("cannot read {}", path.display())),
        };
        Ok(Self { folder, _lock: Some(lock), broken: BTreeSet::new(), ..earlier })
    }

    /// Writes the state. An interrupted write leaves the earlier state.
    ///
    /// # Errors
    /// The disk is full, for example.
    pub fn save(&self) -> anyhow::Result<()> {
        let (path, new) = (self.folder.join(STATE), self.folder.join("session.new"));
        let written = fs::write(&new, serde_json::to_vec(self)?);
        written
            .and_then(|()| fs::rename(&new, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the folder of the session.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of a commit's worktree.
    pub fn worktree(&self, commit: &Commit) -> PathBuf {
        self.folder.join("worktrees").join(&commit.hash)
    }

    /// Returns the path of the log of a commit's build.
    pub fn log(&self, place: usize) -> PathBuf {
        self.folder.join("logs").join(format!("{place}.log"))
    }

    /// Removes the session.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.folder);
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
            "another bisection of these commits is running, or a build or a race of it: wait until \
             it ends"
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).context(format!("cannot lock {}", path.display()))
        }
    }
}
