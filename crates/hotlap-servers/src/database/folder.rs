//! The folder of a PostgreSQL that hotlap starts, with its data, its socket and its password.
//!
//! The folder is in the system's folder for temporary files, for two reasons. The path of a socket
//! is limited to about 100 bytes, and another user must reach the folder if hotlap is root. A note
//! in the folder of the run records the path. If hotlap is killed, the next hotlap uses the note
//! to remove the folder.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown, fchown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::random_text;

/// The file with the path of a database's folder, in the folder of the run.
const NOTE: &str = "database";

/// The file with PostgreSQL's output, in the folder of the run.
pub const LOG: &str = "database.log";

/// The beginning of the names of these folders.
const PREFIX: &str = "hotlap-db-";

/// The longest path of the folder for temporary files, in bytes. The path of a socket may have 103
/// bytes on macOS, and 107 bytes on Linux.
const LONGEST: usize = 60;

/// How long PostgreSQL may take to end after each signal, and how long the removal of its folder
/// may be retried.
const END_LIMIT: Duration = Duration::from_secs(2);

/// The user that runs PostgreSQL. PostgreSQL refuses to run as root.
pub(super) struct Owner(Option<(u32, u32)>);

impl Owner {
    /// Returns the current user, or `postgres` or `nobody` if the current user is root.
    pub(super) fn of_servers() -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self(None);
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let ids = |name: &str| ids_of(&users, name);
        // These are the ids of `nobody` on most systems.
        Self(ids("postgres").or_else(|| ids("nobody")).or(Some((65534, 65534))))
    }

    /// Returns a command that runs a program as this user.
    pub(super) fn command(&self, program: String, arguments: &[String]) -> Vec<String> {
        let mut argv = Vec::new();
        if let Some((user, group)) = self.0 {
            argv.extend(["setpriv".to_owned(), format!("--reuid={user}")]);
            argv.extend([format!("--regid={group}"), "--clear-groups".to_owned()]);
            // Without this option, another user's process would outlive its supervisor.
            argv.extend(["--pdeathsig".to_owned(), "keep".to_owned()]);
        }
        argv.push(program);
        argv.extend_from_slice(arguments);
        argv
    }

    fn give(&self, path: &Path) -> io::Result<()> {
        match self.0 {
            Some((user, group)) => chown(path, Some(user), Some(group)),
            None => Ok(()),
        }
    }
}

/// Returns the user id and group id of a user, from the text of `/etc/passwd`.
fn ids_of(users: &str, name: &str) -> Option<(u32, u32)> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// A folder that is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    note: PathBuf,
    owner: Option<(u32, u32)>,
}

impl Folder {
    /// Creates a folder that only its owner can read. The note in the folder of the run is written
    /// before the folder exists.
    pub(super) fn new(logs: &Path, owner: &Owner) -> io::Result<Self> {
        let all = std::env::temp_dir();
        let is_short = all.as_os_str().len() <= LONGEST;
        let all = if is_short { all } else { PathBuf::from("/tmp") };
        let path = all.join(format!("{PREFIX}{}", &random_text()?[..12]));
        let folder = Self { note: logs.join(NOTE), path, owner: owner.0 };
        fs::write(&folder.note, folder.path.as_os_str().as_encoded_bytes())?;
        DirBuilder::new().mode(0o700).create(&folder.path)?;
        owner.give(&folder.path)?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file that only its owner can read.
    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.path.join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        match self.owner {
            // Uses the open file, because the owner of the folder could replace the path with a
            // link.
            Some((user, group)) => fchown(&file, Some(user), Some(group)),
            None => Ok(()),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if remove(&self.path) {
            let _ = fs::remove_file(&self.note);
        }
    }
}

/// Returns whether the folder of a run's database may still be there. `logs` is the folder of that
/// run.
pub fn is_noted(logs: &Path) -> bool {
    logs.join(NOTE).exists()
}

/// Removes what the database of a killed run left behind. `logs` is the folder of that run. Call
/// this after the marked processes of the run have been killed. Returns false if the database's
/// folder is still there. Its note then remains, so that the next command tries again.
pub fn remove_left(logs: &Path) -> bool {
    let _ = fs::remove_file(logs.join(LOG));
    let Ok(path) = fs::read_to_string(logs.join(NOTE)).map(PathBuf::from) else { return true };
    let is_ours = |name: &str| name.starts_with(PREFIX);
    let is_ours = path.file_name().and_then(|name| name.to_str()).is_some_and(is_ours);
    if path.is_absolute() && is_ours && !remove(&path) {
        return false;
    }
    let _ = fs::remove_file(logs.join(NOTE));
    true
}

/// Removes a database's folder, and ends what still runs in it. Returns whether the folder is gone.
fn remove(folder: &Path) -> bool {
    let until = Instant::now() + END_LIMIT;
    // A process that was just killed may still write, so the folder can fill up again.
    while folder.exists() {
        end(folder);
        remove_memory(folder);
        if fs::remove_dir_all(folder).is_err() {
            if Instant::now() > until {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    true
}

/// Ends the PostgreSQL of this folder if it still runs, which happens if hotlap and its supervisor
/// were killed together. The folder contains the process id. The command of that process must name
/// the folder, so no other process is ended.
fn end(folder: &Path) {
    let file = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
    // The PostgreSQL that `initdb` runs writes a negative number.
    let number = file.lines().next().and_then(|line| line.trim().parse::<i32>().ok());
    let Some(pid) = number.and_then(i32::checked_abs) else { return };
    let is_ours = || {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let folder = folder.as_os_str().as_encoded_bytes();
        command.windows(folder.len()).any(|part| part == folder)
    };
    // SIGQUIT ends all processes of PostgreSQL without a checkpoint, and frees its memory.
    for signal in [Signal::QUIT, Signal::KILL] {
        let Some(pid) = Pid::from_raw(pid).filter(|_| is_ours()) else { return };
        let _ = kill_process(pid, signal);
        let until = Instant::now() + END_LIMIT;
        while is_ours() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Removes the 56 bytes of shared memory that a killed PostgreSQL leaves behind. The seventh line
/// of `postmaster.pid` has the segment's id.
fn remove_memory(folder: &Path) {
    let lines = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
    let id = lines.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
    if let Some(id) = id.filter(|id| id.bytes().all(|byte| byte.is_ascii_digit())) {
        let _ = Command::new("ipcrm").args(["--shmem-id", id]).output();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_owner_and_with_a_killed_run() {
        let logs = tempfile::tempdir().unwrap();
        let folder = Folder::new(logs.path(), &Owner(None)).unwrap();
        let path = folder.path().to_owned();
        folder.write("password", "secret").unwrap();
        drop(folder);
        assert!(!path.exists() && !logs.path().join(NOTE).exists());
        let killed = Folder::new(logs.path(), &Owner(None)).unwrap();
        let path = killed.path().to_owned();
        std::mem::forget(killed);
        assert!(remove_left(logs.path()));
        assert!(!path.exists() && !logs.path().join(NOTE).exists());
    }

    /// Regression: a killed PostgreSQL wrote once more while its folder was removed. The folder
    /// then remained for good.
    #[test]
    fn a_folder_that_fills_up_again_is_removed_too() {
        let logs = tempfile::tempdir().unwrap();
        let killed = Folder::new(logs.path(), &Owner(None)).unwrap();
        let path = killed.path().to_owned();
        std::mem::forget(killed);
        let folder = path.clone();
        let writer = thread::spawn(move || {
            for n in 0..2_000 {
                let _ = fs::write(folder.join(n.to_string()), "x");
            }
        });
        while fs::read_dir(&path).unwrap().next().is_none() {}
        assert!(remove_left(logs.path()));
        assert!(!path.exists() && !logs.path().join(NOTE).exists());
        writer.join().unwrap();
    }

    /// Regression: a folder that could not be removed at the end of a run remained for good,
    /// because its note was removed.
    #[test]
    fn a_folder_that_fills_up_at_the_end_of_a_run_is_removed_or_noted() {
        let logs = tempfile::tempdir().unwrap();
        let folder = Folder::new(logs.path(), &Owner(None)).unwrap();
        let path = folder.path().to_owned();
        let written = path.clone();
        let writer = thread::spawn(move || {
            for n in 0..2_000 {
                let _ = fs::write(written.join(n.to_string()), "x");
            }
        });
        while fs::read_dir(&path).unwrap().next().is_none() {}
        drop(folder);
        assert_eq!(is_noted(logs.path()), path.exists());
        writer.join().unwrap();
        assert!(remove_left(logs.path()) && !path.exists() && !is_noted(logs.path()));
    }

    /// Nothing is removed if the note names any other folder.
    #[test]
    fn no_folder_of_the_users_is_removed() {
        let logs = tempfile::tempdir().unwrap();
        let theirs = tempfile::tempdir().unwrap();
        for path in [theirs.path(), &theirs.path().join("..")] {
            fs::write(logs.path().join(NOTE), path.as_os_str().as_encoded_bytes()).unwrap();
            assert!(remove_left(logs.path()));
            assert!(theirs.path().exists());
        }
    }

    #[test]
    fn root_runs_it_as_another_user() {
        let users = "root:x:0:0::/root:/bin/sh\npostgres:x:101:104::/var/lib/postgresql:/bin/sh\n";
        assert_eq!(ids_of(users, "postgres"), Some((101, 104)));
        assert_eq!(ids_of(users, "nobody"), None);
        let argv = Owner(Some((101, 104))).command("initdb".to_owned(), &["-D".to_owned()]);
        let expected = [
            "setpriv",
            "--reuid=101",
            "--regid=104",
            "--clear-groups",
            "--pdeathsig",
            "keep",
            "initdb",
            "-D",
        ];
        assert_eq!(argv, expected);
        assert_eq!(Owner(None).command("initdb".to_owned(), &[]), ["initdb"]);
    }
}
