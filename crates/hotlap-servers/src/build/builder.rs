//! Builds each server of the catalogue once, in the cache.
//!
//! The name of a build is derived from everything that goes into the build: the sources, the
//! commands, the platform, and what the toolchain's probes print. Therefore, nothing is built
//! twice, and no stale build is run. Two builds of one server at the same time are safe: the
//! second waits and uses the result of the first.

use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use fnv::FnvHasher;
use serde::{Deserialize, Serialize};

use super::step::{self, Ended};
use super::toolchain::{MissingToolchain, probe};
use crate::catalogue::{CatalogueServer, FILE_NAME};
use crate::interrupt;
use crate::launch::Launch;
use crate::process::Supervisor;

/// The file that marks a complete build, and contains the version.
const DONE: &str = ".hotlap-built";

/// The time limit for one build command. The slowest known command is a whole-program compiler,
/// which takes three minutes on two busy cores.
const STEP_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The time limit for the version command.
const RECEIPT_LIMIT: Duration = Duration::from_secs(60);

/// The number of lines that are shown of a failed command's output.
const LOG_TAIL: usize = 12;

/// The memory allowed for one build, in bytes. Release builds with whole-program optimization stay
/// under 1 GiB (the largest known, Crystal's, takes 620 MB). Package managers on a JVM stay under
/// 1.5 GiB.
const MEMORY_PER_BUILD: u64 = 3 << 29;

/// A server that is ready to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The folder in which the server was built and runs.
    pub folder: PathBuf,
    /// The server's version: the first line that the version command prints. Without a version
    /// command, it is the first line that the probes print.
    pub version: String,
    /// Whether the server was built just now, rather than found in the cache.
    pub fresh: bool,
    /// How long the probes, the wait for another process, and the build took.
    pub took: Duration,
}

impl Built {
    /// Returns the command that starts the server.
    pub fn launch(&self, server: &CatalogueServer) -> Launch {
        server.launch(self.folder.clone())
    }
}

/// Why a server cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unready {
    /// The toolchain is missing.
    #[error(transparent)]
    Absent(#[from] MissingToolchain),
    /// The build failed.
    #[error(transparent)]
    Failed(#[from] BuildError),
}

/// A build that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{server}: {what}: {cause}")]
pub struct BuildError {
    /// The server's id.
    pub server: String,
    /// The command that failed, or the file or manifest entry that cannot be used.
    pub what: String,
    /// How the command failed.
    pub cause: String,
    /// The last lines of the command's output.
    pub log_tail: Vec<String>,
    /// What to do about the failure.
    pub remedy: String,
}

/// The progress of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildEvent<'a> {
    /// Another process is building the same server, and this process waits for it.
    Waiting {
        /// The server's id.
        server: &'a str,
    },
    /// A build command starts.
    Step {
        /// The server's id.
        server: &'a str,
        /// The command.
        command: String,
        /// The number of the command, counted from 1.
        number: usize,
        /// The number of commands in the build.
        of: usize,
    },
    /// The server is ready to start.
    Built {
        /// The server's id.
        server: &'a str,
        /// The result of the build.
        built: &'a Built,
    },
    /// The server cannot be started.
    Unready {
        /// The server's id.
        server: &'a str,
        /// Why the server cannot be started.
        why: &'a Unready,
    },
}

/// Builds servers in a cache.
#[derive(Clone, Copy)]
pub struct Builder<'a> {
    /// The cache folder. Builds are in its subfolder `builds`.
    pub cache: &'a Path,
    /// The command that starts the supervisor of a build.
    pub supervisor: &'a Supervisor,
    /// A flag that ends the current build when it is set.
    pub stop: &'a AtomicBool,
    /// The function that is called on progress, from any thread.
    pub on: &'a (dyn Fn(BuildEvent<'_>) + Sync),
}

impl Builder<'_> {
    /// Probes a server's toolchain and builds the server, unless the cache has a build.
    ///
    /// # Errors
    /// If the toolchain is missing, or the build fails.
    pub fn build(&self, server: &CatalogueServer) -> Result<Built, Unready> {
        let result = self.build_quietly(server);
        match &result {
            Ok(built) => (self.on)(BuildEvent::Built { server: &server.id, built }),
            Err(why) => (self.on)(BuildEvent::Unready { server: &server.id, why }),
        }
        result
    }

    /// Builds many servers, as many at a time as cores and memory allow. The results are in the
    /// order of the servers.
    pub fn build_all(&self, servers: &[&CatalogueServer]) -> Vec<Result<Built, Unready>> {
        // Variants that share a build would only wait for each other, so one thread builds all of
        // them.
        let key =
            |server: &&CatalogueServer| (server.folder.clone(), server.toolchain.build.clone());
        step::map_groups(servers, key, at_a_time(), |group| {
            group.iter().map(|server| self.build(server)).collect()
        })
    }

    fn build_quietly(&self, server: &CatalogueServer) -> Result<Built, Unready> {
        let started = Instant::now();
        let receipt = probe(server, self.stop)?;
        let builds = self.cache.join("builds");
        let refused = |what: &Path, error: io::Error| self.refused(server, what, &error);
        fs::create_dir_all(&builds).map_err(|e| refused(&builds, e))?;
        let key = key(server, &receipt).map_err(|e| refused(&server.folder, e))?;
        let folder = builds.join(&key);
        let lock = self.lock(server, &builds.join(format!("{key}.lock")))?;
        let done = folder.join(DONE);
        if let Ok(version) = fs::read_to_string(&done)
            && is_whole(&server.command, &folder)
        {
            return Ok(Built { folder, version, fresh: false, took: started.elapsed() });
        }
        let log = builds.join(format!("{key}.log"));
        let version = self.make(server, &folder, &log, &receipt).inspect_err(|_| {
            // Remove an incomplete build, but keep its log.
            let _ = fs::remove_dir_all(&folder);
        })?;
        // The marker of a complete build must not reach the disk before the build does.
        sync(&folder).map_err(|e| refused(&folder, e))?;
        fs::write(&done, &version).map_err(|e| refused(&done, e))?;
        let _ = fs::remove_file(&log);
        drop(lock);
        Ok(Built { folder, version, fresh: true, took: started.elapsed() })
    }

    /// Copies the sources, runs the build commands, and returns the version.
    fn make(
        &self,
        server: &CatalogueServer,
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

    /// Returns the version of the server, or of its toolchain if there is no version command.
    fn receipt(
        &self,
        server: &CatalogueServer,
        folder: &Path,
        probed: &str,
    ) -> Result<String, BuildError> {
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

    /// Checks that the command's program exists after the build, if the command names a file in the
    /// folder.
    fn starts(&self, server: &CatalogueServer, folder: &Path) -> Result<(), BuildError> {
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
            cause: "not produced by the build".to_owned(),
            log_tail: Vec::new(),
            remedy: "set `command` to the file that the build produces".to_owned(),
        })
    }

    fn judge(
        &self,
        server: &CatalogueServer,
        command: &str,
        ended: io::Result<Ended>,
        mut log_tail: Vec<String>,
        log: Option<&Path>,
    ) -> Result<(), BuildError> {
        let cause = match ended {
            Ok(ended) if ended.success() => return Ok(()),
            Ok(ended) => ended.to_string(),
            Err(error) => format!("cannot run: {error}"),
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
        let whole = log.map(|log| format!("; full output: {}", log.display()));
        let whole = whole.unwrap_or_default();
        if said(&NO_NETWORK) {
            return format!("a download possibly failed: check the network, then try again{whole}");
        }
        if said(&LOCKFILE) {
            return format!(
                "the lockfile does not match its manifest or a download: update the lockfile{whole}"
            );
        }
        format!("run the command by hand in a copy of the server's folder{whole}")
    }

    fn space(&self) -> String {
        format!(
            "the disk is full: free space in {}, or set HOTLAP_CACHE to another folder",
            self.cache.display()
        )
    }

    fn refused(&self, server: &CatalogueServer, what: &Path, error: &io::Error) -> BuildError {
        let remedy = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => self.space(),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "set HOTLAP_CACHE to a writable folder".to_owned()
            }
            _ => format!("check {}", what.display()),
        };
        BuildError {
            server: server.id.clone(),
            what: what.display().to_string(),
            cause: error.to_string(),
            log_tail: Vec::new(),
            remedy,
        }
    }

    /// Takes the lock, which is held until the result is dropped. The system releases the lock when
    /// the process dies.
    fn lock(&self, server: &CatalogueServer, path: &Path) -> Result<Lock, BuildError> {
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

/// A locked file, which is unlocked explicitly. A process that another thread is starting inherits
/// the file until it executes its program. Without the explicit unlock, that process would keep
/// the lock.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Messages that package managers print without a network.
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

/// Messages that package managers print about an outdated lockfile.
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
    step::threads().min(usize::try_from(by_memory).unwrap_or(1)).max(1)
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

/// Returns whether the program of a build exists, and no file that its command names is empty. A
/// power cut or a full disk may leave missing or empty files.
fn is_whole(command: &[String], folder: &Path) -> bool {
    let has_program = command
        .first()
        .is_none_or(|program| !program.contains('/') || fs::metadata(folder.join(program)).is_ok());
    let is_empty = |word: &String| {
        fs::metadata(folder.join(word)).is_ok_and(|found| found.is_file() && found.len() == 0)
    };
    has_program && !command.iter().any(is_empty)
}

/// Flushes a folder to its disk.
fn sync(folder: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(fs::File::open(folder)?)?;
    #[cfg(not(target_os = "linux"))]
    fs::File::open(folder)?.sync_all()?;
    Ok(())
}

/// Folders of a working copy that are not sources.
const LEFTOVERS: [&str; 4] = [".git", "target", "node_modules", "__pycache__"];

/// Returns the files below a folder, as sorted relative paths. Symbolic links are not followed.
fn files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name();
            if LEFTOVERS.iter().any(|leftover| name == *leftover) {
                continue;
            }
            let path = folder.join(&name);
            if entry.file_type()?.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for file in files(from)? {
        let target = to.join(&file);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        let source = from.join(&file);
        if source.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

/// Returns the name of a build: the server's name and a hash of everything that the build depends
/// on. The manifest's run command, environment and description do not affect the build, so the
/// hash does not cover them. Variants that differ only in these share a build.
///
/// The hash is 64-bit FNV-1a. Builds outlive a hotlap release, and the standard library's hash may
/// change between releases. With a million builds, the chance that two of them share a name is 1 in
/// 4 × 10⁷.
fn key(server: &CatalogueServer, receipt: &str) -> io::Result<String> {
    let mut hasher = FnvHasher::default();
    // Also hash the length of each part, so that different parts never form the same input.
    let mut add = |part: &[u8]| {
        hasher.write(part);
        hasher.write(&(part.len() as u64).to_le_bytes());
    };
    add(b"1");
    add(std::env::consts::ARCH.as_bytes());
    add(std::env::consts::OS.as_bytes());
    add(receipt.as_bytes());
    for argv in server.toolchain.build.iter().chain([&server.toolchain.version]) {
        add(&(argv.len() as u64).to_le_bytes());
        argv.iter().for_each(|word| add(word.as_bytes()));
    }
    for file in files(&server.folder)? {
        if file == Path::new(FILE_NAME) {
            continue;
        }
        let path = server.folder.join(&file);
        add(file.as_os_str().as_encoded_bytes());
        if path.is_symlink() {
            add(fs::read_link(&path)?.as_os_str().as_encoded_bytes());
        } else {
            add(&[u8::from(path.metadata()?.permissions().mode() & 0o100 != 0)]);
            add(&fs::read(&path)?);
        }
    }
    Ok(format!("{}-{:016x}", server.base_id().replace('/', "-"), hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a program that a power cut had left empty was trusted for ever.
    #[test]
    fn a_build_with_an_empty_program_is_not_whole() {
        let folder = tempfile::tempdir().unwrap();
        let is_whole = |command: &[&str]| {
            super::is_whole(
                &command.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(),
                folder.path(),
            )
        };
        fs::write(folder.path().join("empty"), "").unwrap();
        fs::write(folder.path().join("app.js"), "1").unwrap();
        assert!(is_whole(&["node", "app.js", "--port", "1"]) && is_whole(&["./app.js"]));
        assert!(!is_whole(&["./empty"]) && !is_whole(&["java", "-jar", "empty"]));
        assert!(!is_whole(&["./missing"]));
    }

    /// Regression: a process that another thread was starting held the lock. The next build of the
    /// same server then claimed to wait for another process.
    #[test]
    fn a_lock_ends_with_its_owner_even_if_a_child_inherited_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let open = || File::options().create(true).append(true).open(&path).unwrap();
        let lock = Lock(open());
        lock.0.try_lock().unwrap();
        // A fork duplicates the file in the same way.
        let inherited = lock.0.try_clone().unwrap();
        assert!(open().try_lock().is_err());
        drop(lock);
        open().try_lock().unwrap();
        drop(inherited);
    }
}
