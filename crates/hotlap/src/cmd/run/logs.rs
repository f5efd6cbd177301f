//! The folder for the output of servers, which is removed at the end of the run.
//!
//! The next command removes the folders of killed runs, and ends their servers. A running hotlap
//! holds a lock on a file in its folder, and the kernel releases the lock when the process ends. A
//! process id would not be enough: another process may have the same id, for instance in a
//! container that shares the cache.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use hotlap_servers::database;
use hotlap_servers::process::kill_marked;

use crate::paths;

/// The name of the lock file. In the folder of all runs, the lock is held while a folder is created
/// or removed. In the folder of one run, the lock is held until that run ends.
const LOCK: &str = ".hotlap-run";

/// The name of the file that says which run is measured.
const RUN: &str = "run";

/// A folder for the output of servers, which is removed at the end of the run.
#[derive(Debug)]
pub struct Logs {
    folder: PathBuf,
    /// The lock on the folder, which is held until this value is dropped.
    _lock: File,
}

impl Logs {
    /// Creates the folder, and removes the folders of killed runs.
    pub fn new() -> anyhow::Result<Self> {
        let all = paths::cache()?.join("logs");
        Self::within(&all).map_err(|error| {
            let all = all.display();
            anyhow::anyhow!(
                "cannot make a folder in {all} ({error}): set HOTLAP_CACHE to a folder that you \
                 can write to"
            )
        })
    }

    /// The path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Records which run of a store is measured, until this value is dropped.
    pub fn measures(&self, number: Option<u64>, store: Option<&Path>) {
        if let (Some(number), Some(store)) = (number, store) {
            // If the file cannot be written, a second hotlap may resume the run meanwhile.
            let _ = fs::write(self.folder.join(RUN), of_store(number, store));
        }
    }

    /// Whether a hotlap process is measuring this run of a store.
    pub fn is_under_way(number: u64, store: &Path) -> bool {
        let Ok(cache) = paths::cache() else { return false };
        is_measured(&cache.join("logs"), &of_store(number, store))
    }

    fn within(all: &Path) -> io::Result<Self> {
        // Only the user may read the folder, because servers may print secrets.
        DirBuilder::new().recursive(true).mode(0o700).create(all)?;
        let others = lock_file(all)?;
        // On a file system without locks, no run is known to have ended, so every folder stays.
        if others.lock().is_ok() {
            remove_those_of_dead_runs(all);
        }
        let folder = make(all)?;
        let lock = lock_file(&folder)?;
        let _ = lock.try_lock();
        Ok(Self { folder, _lock: lock })
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        // If a database's folder is still there, the next command removes it. That command needs
        // the note and the lock file in this folder.
        if !database::is_noted(&self.folder) {
            remove(&self.folder);
        }
    }
}

/// Creates a folder named after the process id, with a number appended if that name is taken.
fn make(all: &Path) -> io::Result<PathBuf> {
    let pid = std::process::id();
    let names = std::iter::once(pid.to_string()).chain((2..).map(|n| format!("{pid}-{n}")));
    for folder in names.map(|name| all.join(name)) {
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder),
        }
    }
    unreachable!("more log folders than numbers")
}

/// Ends the servers that killed runs left behind, and removes the folders of those runs.
pub fn end_leftovers() {
    let Ok(all) = paths::cache().map(|cache| cache.join("logs")) else { return };
    if all.is_dir() && lock_file(&all).is_ok_and(|others| others.lock().is_ok()) {
        remove_those_of_dead_runs(&all);
    }
}

/// Returns a text that identifies one run of a store.
fn of_store(number: u64, store: &Path) -> String {
    let store = store.canonicalize().unwrap_or_else(|_| store.to_owned());
    format!("{number} {}", store.display())
}

/// Whether a folder with a held lock belongs to this run.
fn is_measured(all: &Path, run: &str) -> bool {
    let is_this = |folder: &Path| fs::read_to_string(folder.join(RUN)).is_ok_and(|of| of == run);
    let is_held = |folder: &Path| {
        let lock = OpenOptions::new().write(true).open(folder.join(LOCK));
        lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
    };
    let folders = fs::read_dir(all).into_iter().flatten().flatten().map(|entry| entry.path());
    folders.into_iter().any(|folder| is_this(&folder) && is_held(&folder))
}

fn lock_file(folder: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(folder.join(LOCK))
}

/// Ends the servers of runs whose lock is not held, and removes their folders. A folder without a
/// lock file is not from a run.
fn remove_those_of_dead_runs(all: &Path) {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        // Symbolic links are not followed, because they may point to a folder elsewhere.
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let lock = OpenOptions::new().write(true).open(entry.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            // Servers outlive their run if hotlap and its supervisors were killed together.
            let _ = kill_marked(&entry.path());
            if database::remove_left(&entry.path()) {
                remove(&entry.path());
            }
        }
    }
}

/// Removes what a run writes, and then the folder if it is empty.
fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if is_a_runs(&name) {
            let _ = fs::remove_file(entry.path());
        } else if name.strip_suffix(".files").is_some_and(is_number) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let _ = fs::remove_file(folder.join(LOCK));
    let _ = fs::remove_dir(folder);
}

/// Whether a run or a check writes a file with this name: `run`, the log of the database, or
/// `3.log` for the fourth server.
fn is_a_runs(name: &str) -> bool {
    name == RUN || name == database::LOG || name.strip_suffix(".log").is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folder of a run that was killed after it had started two servers.
    fn killed(all: &Path, name: &str) -> PathBuf {
        let folder = all.join(name);
        fs::create_dir_all(&folder).unwrap();
        for file in ["0.log", "1.log", LOCK] {
            fs::write(folder.join(file), "ready\n").unwrap();
        }
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn folders_of_runs_that_were_killed_are_removed_and_those_of_live_ones_stay() {
        let all = tempfile::tempdir().unwrap();
        let alive = Logs::within(all.path()).unwrap();
        fs::write(alive.folder().join("0.log"), "ready\n").unwrap();
        let dead = killed(all.path(), "7");
        let new = Logs::within(all.path()).unwrap();
        assert!(!dead.exists() && alive.folder().join("0.log").exists());
        assert_ne!(new.folder(), alive.folder(), "two of one process are told apart");
        drop((alive, new));
        assert_eq!(names(all.path()), [LOCK]);
    }

    /// Regression: `--resume` of a run that was under way overwrote its laps.
    #[test]
    fn a_run_is_under_way_while_its_folder_is_locked() {
        let all = tempfile::tempdir().unwrap();
        let store = Path::new("/none/store.db");
        let logs = Logs::within(all.path()).unwrap();
        logs.measures(Some(7), Some(store));
        let is_measured = |number| is_measured(all.path(), &of_store(number, store));
        assert_eq!([7, 8].map(is_measured), [true, false]);
        drop(logs);
        assert!(!is_measured(7));
        fs::write(killed(all.path(), "5").join(RUN), of_store(7, store)).unwrap();
        assert!(!is_measured(7));
    }

    #[test]
    fn a_file_of_the_users_is_never_removed() {
        let all = tempfile::tempdir().unwrap();
        let theirs = tempfile::tempdir().unwrap();
        killed(theirs.path(), "run");
        std::os::unix::fs::symlink(theirs.path().join("run"), all.path().join("9")).unwrap();
        fs::write(all.path().join("check-go.log"), "").unwrap();
        fs::create_dir(all.path().join("mine")).unwrap();
        fs::write(all.path().join("mine/0.log"), "").unwrap();
        let dead = killed(all.path(), "7");
        fs::write(dead.join("notes.log"), "").unwrap();
        fs::create_dir(dead.join("2.log")).unwrap();
        drop(Logs::within(all.path()).unwrap());
        assert_eq!(names(all.path()), [LOCK, "7", "9", "check-go.log", "mine"]);
        assert_eq!(names(&dead), ["2.log", "notes.log"]);
        assert_eq!(names(&all.path().join("mine")), ["0.log"]);
        assert_eq!(names(&theirs.path().join("run")), [LOCK, "0.log", "1.log"]);
    }
}
