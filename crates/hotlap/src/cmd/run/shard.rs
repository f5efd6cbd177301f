//! `hotlap run --shard I/N`: measures a shard, whose result is either complete or absent.
//!
//! A shard writes its store to a temporary folder on the local disk. Writes to a network file
//! system would add work between laps, and SQLite's write-ahead log does not work there
//! (sqlite.org/wal.html). The finished store is copied under a temporary name, and then linked to
//! its final name. The link fails if another task was first. So a task may be killed and started
//! again at any time, and two tasks with the same shard do no harm.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;

use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::model::{RunState, Shard};
use crate::store::Store;

/// Measures a shard, unless its result exists. `measure` gets the path of the store.
pub fn run(
    shard: &Shard,
    to: &Path,
    console: &Console,
    measure: impl FnOnce(PathBuf) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let number = format!("{} of {}", shard.number, shard.of);
    if to.exists() {
        is_result(to, shard)?;
        console.note(&format!("Shard {number} is already done: {}", to.display()));
        return Ok(Exit::Ok);
    }
    is_writable(to).with_context(|| {
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).display();
        format!("cannot write to {folder}, the folder of --store")
    })?;
    let unfinished = Unfinished::new()
        .with_context(|| format!("cannot make a folder in {}", std::env::temp_dir().display()))?;
    let store = unfinished.store();
    let exit = measure(store.clone())?;
    if !matches!(exit, Exit::Ok | Exit::ServerFailed) || !is_finished(&store)? {
        return Ok(exit);
    }
    let published = publish_patiently(&store, to).map_err(|error| {
        let kept = unfinished.keep();
        anyhow::anyhow!(
            "cannot write {} ({error}). The result is complete: copy {} to that path",
            to.display(),
            kept.display()
        )
    })?;
    match published {
        Published::Here => console.note(&format!("Shard {number} is done: {}", to.display())),
        Published::Earlier => console.note(&format!(
            "Another task finished shard {number} first, and its result is kept: {}",
            to.display()
        )),
    }
    Ok(exit)
}

/// Rejects a file that is not the result of this shard. Such a file is never overwritten.
fn is_result(file: &Path, asked: &Shard) -> anyhow::Result<()> {
    let store = Store::open_existing(file)?;
    let run = store.outline(store.last()?)?;
    let why = match run.shard {
        None => "its run is not a shard".to_owned(),
        Some(_) if run.state != RunState::Finished => "its run did not end as planned".to_owned(),
        Some(found) if found == *asked => return Ok(()),
        Some(found) => asked
            .other_pool(&found)
            .unwrap_or_else(|| format!("it is shard {} of {}", found.number, found.of)),
    };
    usage(format!(
        "{} exists, but is not the result of shard {} of {}: {why}. Move the file away, or name \
         another file (--store)",
        file.display(),
        asked.number,
        asked.of
    ))
}

/// Returns the name that the user or the scheduler gave this machine, or else its host name.
pub fn node() -> String {
    let of = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    of("HOTLAP_NODE").or_else(|| of("SLURMD_NODENAME")).unwrap_or_else(host)
}

/// Whether a store has a run that ended as planned. After a store is closed, all of its data is in
/// one file.
fn is_finished(store: &Path) -> anyhow::Result<bool> {
    if !store.exists() {
        return Ok(false);
    }
    let store = Store::open_existing(store)?;
    Ok(store.outline(store.last()?)?.state == RunState::Finished)
}

/// A folder for an unfinished store. The folder is removed when this value is dropped.
#[derive(Debug)]
struct Unfinished {
    folder: PathBuf,
}

impl Unfinished {
    /// Creates a folder with an unused name.
    fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("hotlap-shard-{}-{next}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Ok(Self { folder }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn store(&self) -> PathBuf {
        self.folder.join("shard.db")
    }

    /// Keeps the folder, and returns the path of the store.
    fn keep(mut self) -> PathBuf {
        let store = self.store();
        self.folder = PathBuf::new();
        store
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.folder.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Checks that a store can be put under this name later. Without the check, a run of half an hour
/// could end without a place for its result.
fn is_writable(to: &Path) -> io::Result<()> {
    let part = to.with_file_name(format!("{}{}", part_prefix(to), unique()));
    File::create(&part)?;
    fs::remove_file(&part)
}

/// The number of attempts to copy a finished store, and the pause between two attempts. A file
/// server may be unavailable for a moment.
const TRIES: (u32, Duration) = (4, Duration::from_secs(5));

/// Puts a finished store under its name with [`publish`], and tries again after a failure.
fn publish_patiently(from: &Path, to: &Path) -> io::Result<Published> {
    let (tries, pause) = TRIES;
    for _ in 1..tries {
        match publish(from, to) {
            Ok(published) => return Ok(published),
            Err(_) => std::thread::sleep(pause),
        }
    }
    publish(from, to)
}

/// The task that put the store under its final name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Published {
    /// This task.
    Here,
    /// Another task, which was earlier.
    Earlier,
}

/// Puts a finished and closed store under its name.
fn publish(from: &Path, to: &Path) -> io::Result<Published> {
    let part = to.with_file_name(format!("{}{}", part_prefix(to), unique()));
    let copied = fs::copy(from, &part).and_then(|_| File::open(&part)?.sync_all());
    let linked = copied.and_then(|()| match fs::hard_link(&part, to) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Published::Earlier),
        // The next two cases are for file systems without hard links.
        Err(_) if to.exists() => Ok(Published::Earlier),
        Err(_) => fs::rename(&part, to).map(|()| Published::Here),
        Ok(()) => Ok(Published::Here),
    });
    let _ = fs::remove_file(&part);
    if linked.is_ok() {
        remove_parts(to);
        if let Some(folder) = to.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
        }
    }
    linked
}

/// Returns the beginning of a store's temporary names.
fn part_prefix(store: &Path) -> String {
    format!(".{}.part-", store.file_name().unwrap_or_default().to_string_lossy())
}

fn unique() -> String {
    let node = rustix::system::uname().nodename().to_string_lossy().replace('/', "-");
    format!("{node}-{}", std::process::id())
}

/// Removes the temporary files that killed tasks left behind, once the store is in place.
fn remove_parts(store: &Path) {
    let prefix = part_prefix(store);
    let folder = store.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_task_wins_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, text) in [("one", "first"), ("two", "second")] {
            fs::write(path(name), text).unwrap();
        }
        fs::write(path(".shard-3.db.part-n1-99"), "of a killed task").unwrap();
        fs::write(path(".shard-30.db.part-n1-99"), "of another shard").unwrap();
        let to = path("shard-3.db");
        assert_eq!(publish(&path("one"), &to).unwrap(), Published::Here);
        assert_eq!(publish(&path("two"), &to).unwrap(), Published::Earlier);
        assert_eq!(fs::read_to_string(&to).unwrap(), "first");
        let mut names: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, [".shard-30.db.part-n1-99", "one", "shard-3.db", "two"]);
    }

    #[test]
    fn a_store_that_cannot_be_copied_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("shard-0.db");
        assert!(publish(&folder.path().join("none"), &to).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// Regression: if the last copy failed, the finished measurement was deleted.
    #[test]
    fn a_store_that_is_kept_stays() {
        let unfinished = Unfinished::new().unwrap();
        fs::write(unfinished.store(), "laps").unwrap();
        let kept = unfinished.keep();
        assert_eq!(fs::read_to_string(&kept).unwrap(), "laps");
        fs::remove_dir_all(kept.parent().unwrap()).unwrap();
        assert!(is_writable(&kept).is_err());
    }

    #[test]
    fn the_folder_of_an_unfinished_store_goes_with_it() {
        let unfinished = Unfinished::new().unwrap();
        let (store, other) = (unfinished.store(), Unfinished::new().unwrap().store());
        fs::write(&store, "").unwrap();
        assert_ne!(store, other);
        drop(unfinished);
        assert!(!store.parent().unwrap().exists() && !other.parent().unwrap().exists());
    }
}
