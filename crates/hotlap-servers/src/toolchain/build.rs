//! From a folder of the catalogue to something that runs, in the cache, once.
//!
//! A build is named after all that goes into it (sources, commands, what the toolchain says of
//! itself), so that nothing is built twice and nothing stale is ever run. Two builds of one server
//! at the same time are safe: the second waits for the first and takes what it made.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::probe::{MissingToolchain, probe};
use super::sources::{copy, key};
use super::step::{self, Ended};
use crate::interrupt;
use crate::launch::Launch;
use crate::manifest::{FILE_NAME, Server};
use crate::pool;
use crate::process::Supervisor;

/// Written into a build's folder when all of it succeeded; holds the receipt.
const DONE: &str = ".hotlap-built";

/// How long one command of a build may take. The slowest known (a whole-program compiler on two
/// busy cores) takes three minutes.
const STEP_LIMIT: Duration = Duration::from_secs(30 * 60);

/// How long the receipt may take.
const RECEIPT_LIMIT: Duration = Duration::from_secs(60);

/// Lines of a failed command's output that are told.
const LOG_TAIL: usize = 12;

/// Memory that one build may want, in bytes: release builds with whole-program optimization stay
/// under 1 GiB (620 MB for Crystal's, the largest known), and package managers with a JVM under
/// 1.5.
const MEMORY_PER_BUILD: u64 = 3 << 29;

/// A server that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// Where it was built and runs.
    pub folder: PathBuf,
    /// What really runs: the first line that it says of itself.
    pub version: String,
    /// Whether it was built just now, and not found done.
    pub fresh: bool,
    /// How long that took.
    pub took: Duration,
}

impl Built {
    /// What starts it.
    #[must_use]
    pub fn launch(&self, server: &Server) -> Launch {
        Launch { argv: server.command.clone(), env: server.env.clone(), cwd: self.folder.clone() }
    }
}

/// Why there is nothing to start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    /// The toolchain is not here.
    #[error(transparent)]
    Absent(#[from] MissingToolchain),
    /// The build failed.
    #[error(transparent)]
    Failed(#[from] BuildError),
}

/// A build that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{server}: {what}: {cause}")]
pub struct BuildError {
    /// Its id.
    pub server: String,
    /// The command, or what was being done.
    pub what: String,
    /// What came of it.
    pub cause: String,
    /// The last lines that the command printed.
    pub log_tail: Vec<String>,
    /// What to do about it.
    pub remedy: String,
}

/// What a build is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildEvent<'a> {
    /// Another process builds the same; this one waits for it.
    Waiting {
        /// Its id.
        server: &'a str,
    },
    /// A command starts.
    Step {
        /// Its id.
        server: &'a str,
        /// The command.
        command: String,
        /// Which one, from 1.
        number: usize,
        /// Of so many.
        of: usize,
    },
    /// It can be started.
    Built {
        /// Its id.
        server: &'a str,
        /// What there is now.
        built: &'a Built,
    },
    /// There is nothing to start.
    Unready {
        /// Its id.
        server: &'a str,
        /// Why.
        why: &'a Unready,
    },
}

/// Builds servers into a cache.
#[derive(Clone, Copy)]
pub struct Builder<'a> {
    /// The cache's folder; builds are in `builds/` under it.
    pub cache: &'a Path,
    /// How the supervisor of a build is started.
    pub supervisor: &'a Supervisor,
    /// Set to end what is under way.
    pub stop: &'a AtomicBool,
    /// Told what happens, from any thread.
    pub on: &'a (dyn Fn(BuildEvent<'_>) + Sync),
}

impl Builder<'_> {
    /// Probes a server's toolchain and builds it, unless that was done before.
    ///
    /// # Errors
    /// What is absent, or which command failed.
    pub fn build(&self, server: &Server) -> Result<Built, Unready> {
        let result = self.build_quietly(server);
        match &result {
            Ok(built) => (self.on)(BuildEvent::Built { server: &server.id, built }),
            Err(why) => (self.on)(BuildEvent::Unready { server: &server.id, why }),
        }
        result
    }

    /// Builds many, as many at a time as cores and memory allow. The results are in the order of
    /// the servers.
    #[must_use]
    pub fn build_all(&self, servers: &[&Server]) -> Vec<Result<Built, Unready>> {
        // Variants that share a build would only wait for each other: one thread builds them all.
        let key = |server: &&Server| (server.folder.clone(), server.toolchain.build.clone());
        pool::map_groups(servers, key, at_a_time(), |group| {
            group.iter().map(|server| self.build(server)).collect()
        })
    }

    fn build_quietly(&self, server: &Server) -> Result<Built, Unready> {
        let started = Instant::now();
        let receipt = probe(server, self.stop)?;
        let builds = self.cache.join("builds");
        let refused = |what: &Path, error: io::Error| self.refused(server, what, &error);
        fs::create_dir_all(&builds).map_err(|e| refused(&builds, e))?;
        let key = key(server, &receipt).map_err(|e| refused(&server.folder, e))?;
        let folder = builds.join(&key);
        let lock = self.lock(server, &builds.join(format!("{key}.lock")))?;
        let done = folder.join(DONE);
        if let Ok(version) = fs::read_to_string(&done) {
            return Ok(Built { folder, version, fresh: false, took: started.elapsed() });
        }
        let log = builds.join(format!("{key}.log"));
        let version = self.make(server, &folder, &log, &receipt).inspect_err(|_| {
            // What is half made takes space and helps nobody; the log stays.
            let _ = fs::remove_dir_all(&folder);
        })?;
        fs::write(&done, &version).map_err(|e| refused(&done, e))?;
        let _ = fs::remove_file(&log);
        drop(lock);
        Ok(Built { folder, version, fresh: true, took: started.elapsed() })
    }

    /// Copies, builds, and asks for the receipt.
    fn make(
        &self,
        server: &Server,
        folder: &Path,
        log: &Path,
        receipt: &str,
    ) -> Result<String, BuildError> {
        let refused = |what: &Path, error: io::Error| self.refused(server, what, &error);
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(|e| refused(folder, e))?;
        }
        copy(&server.folder, folder).map_err(|e| refused(folder, e))?;
        let mut file = File::options()
            .create(true)
            .append(true)
            .read(true)
            .open(log)
            .and_then(|file| file.set_len(0).map(|()| file))
            .map_err(|e| refused(log, e))?;
        let of = server.toolchain.build.len();
        for (index, argv) in server.toolchain.build.iter().enumerate() {
            let command = shell_words::join(argv);
            (self.on)(BuildEvent::Step {
                server: &server.id,
                command: command.clone(),
                number: index + 1,
                of,
            });
            writeln!(file, "$ {command}").map_err(|e| refused(log, e))?;
            let begin = file.metadata().map_or(0, |metadata| metadata.len());
            let output = (&file, log);
            let ended = step::logged(argv, folder, output, self.supervisor, STEP_LIMIT, self.stop);
            let log_tail = last_lines(&mut file, begin);
            self.judge(server, &command, ended, log_tail, Some(log))?;
        }
        self.starts(server, folder)?;
        self.receipt(server, folder, receipt)
    }

    /// What the server says of itself, or what its toolchain said.
    fn receipt(&self, server: &Server, folder: &Path, probed: &str) -> Result<String, BuildError> {
        let argv = &server.toolchain.version;
        if argv.is_empty() {
            return Ok(first_line(probed).to_owned());
        }
        let command = shell_words::join(argv);
        match step::capture(argv, folder, RECEIPT_LIMIT, self.stop) {
            Ok(said) => {
                let lines = format!("{}\n{}", said.stdout, said.stderr);
                let words = lines.lines().map(str::to_owned).collect();
                self.judge(server, &command, Ok(said.ended), words, None)?;
                Ok(first_line(&lines).to_owned())
            }
            Err(error) => {
                self.judge(server, &command, Err(error), Vec::new(), None)?;
                Ok(String::new())
            }
        }
    }

    /// A command that names a file of the folder must find it there.
    fn starts(&self, server: &Server, folder: &Path) -> Result<(), BuildError> {
        let program = Path::new(&server.command[0]);
        if !server.command[0].contains('/')
            || program.is_absolute()
            || folder.join(program).exists()
        {
            return Ok(());
        }
        Err(BuildError {
            server: server.id.clone(),
            what: format!(
                "{}:{}: command {}",
                server.folder.join(FILE_NAME).display(),
                server.command_line,
                server.command[0]
            ),
            cause: "no such file after the build".to_owned(),
            log_tail: Vec::new(),
            remedy: "name the file that the last build command makes".to_owned(),
        })
    }

    fn judge(
        &self,
        server: &Server,
        command: &str,
        ended: io::Result<Ended>,
        mut log_tail: Vec<String>,
        log: Option<&Path>,
    ) -> Result<(), BuildError> {
        let cause = match ended {
            Ok(ended) if ended.success() => return Ok(()),
            Ok(ended) => ended.to_string(),
            Err(error) => format!("cannot be started: {error}"),
        };
        log_tail.retain(|line| !line.trim().is_empty());
        log_tail.drain(..log_tail.len().saturating_sub(LOG_TAIL));
        let remedy = self.remedy(&log_tail, log);
        let server = server.id.clone();
        Err(BuildError { server, what: command.to_owned(), cause, log_tail, remedy })
    }

    fn remedy(&self, log_tail: &[String], log: Option<&Path>) -> String {
        let said = |signs: &[&str]| log_tail.iter().any(|l| signs.iter().any(|s| l.contains(s)));
        if said(&["No space left on device", "ENOSPC", "os error 28"]) {
            return self.space();
        }
        let whole = log.map(|log| format!("; all of its output is in {}", log.display()));
        let whole = whole.unwrap_or_default();
        if said(&NO_NETWORK) {
            return format!("it could not fetch something: look at the network, then again{whole}");
        }
        if said(&LOCKFILE) {
            return format!("its lockfile does not match its manifest: lock it again{whole}");
        }
        format!("run it by hand in a copy of the server's folder{whole}")
    }

    fn space(&self) -> String {
        format!(
            "the disk is full: make room in {}, or name another folder in HOTLAP_CACHE",
            self.cache.display()
        )
    }

    fn refused(&self, server: &Server, what: &Path, error: &io::Error) -> BuildError {
        let remedy = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => self.space(),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "name a folder that you may write to in HOTLAP_CACHE".to_owned()
            }
            _ => format!("look at {}", what.display()),
        };
        BuildError {
            server: server.id.clone(),
            what: what.display().to_string(),
            cause: error.to_string(),
            log_tail: Vec::new(),
            remedy,
        }
    }

    /// Held until dropped; the system lets go of it when a process dies.
    fn lock(&self, server: &Server, path: &Path) -> Result<Lock, BuildError> {
        let refused = |error: io::Error| self.refused(server, path, &error);
        let file = File::options().create(true).append(true).open(path).map_err(refused)?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock(file)),
                Err(fs::TryLockError::Error(error)) => return Err(refused(error)),
                Err(fs::TryLockError::WouldBlock) => {}
            }
            if !std::mem::replace(&mut told, true) {
                (self.on)(BuildEvent::Waiting { server: &server.id });
            }
            if !interrupt::sleep(interrupt::LOOK, self.stop) {
                return Err(refused(io::Error::new(io::ErrorKind::Interrupted, "interrupted")));
            }
        }
    }
}

/// A locked file. It is unlocked rather than only closed: a process that another thread starts at
/// this moment has the file open too, until it executes its program, and would hold the lock.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// What package managers say when they reach nobody.
const NO_NETWORK: [&str; 14] = [
    "Could not resolve",
    "Couldn't resolve",
    "Could not transfer artifact",
    "Temporary failure in name resolution",
    "Name or service not known",
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "Connection refused",
    "Network is unreachable",
    "UnknownHostException",
    "no such host",
    "dial tcp",
    "Failed to establish a new connection",
];

/// What they say when the lockfile belongs to another manifest.
const LOCKFILE: [&str; 5] = [
    "--locked was passed",
    "lock file needs to be updated",
    "in sync with your",
    "missing go.sum entry",
    "checksum mismatch",
];

fn first_line(text: &str) -> &str {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("")
}

fn last_lines(file: &mut File, begin: u64) -> Vec<String> {
    let end = file.seek(SeekFrom::End(0)).unwrap_or(begin);
    let from = begin.max(end.saturating_sub(16 << 10));
    let mut bytes = Vec::new();
    let _ = file.seek(SeekFrom::Start(from));
    let _ = file.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}

fn at_a_time() -> usize {
    let by_memory = memory_available().map_or(2, |bytes| bytes / MEMORY_PER_BUILD);
    pool::threads().min(usize::try_from(by_memory).unwrap_or(1)).max(1)
}

#[cfg(target_os = "linux")]
fn memory_available() -> Option<u64> {
    use procfs::Current;
    procfs::Meminfo::current().ok()?.mem_available
}

#[cfg(not(target_os = "linux"))]
fn memory_available() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lock was held by whatever another thread started just then, so the next build of the
    /// same server reported that it waited for another one.
    #[test]
    fn a_lock_ends_with_its_owner_though_a_child_has_inherited_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let open = || File::options().create(true).append(true).open(&path).unwrap();
        let lock = Lock(open());
        lock.0.try_lock().unwrap();
        // What a fork does.
        let inherited = lock.0.try_clone().unwrap();
        assert!(open().try_lock().is_err());
        drop(lock);
        open().try_lock().unwrap();
        drop(inherited);
    }
}
