//! The command that starts a server, the log in which a server's side effect is counted, and
//! failures of servers.

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use hotlap_load::plan::Tls;
use serde::{Deserialize, Serialize};

mod certificate;

pub use certificate::Certificate;

/// The environment variable with the path of a server's certificate. A server that is started with
/// this variable and [`TLS_KEY`] speaks TLS on its port.
pub const TLS_CERT: &str = "TLS_CERT";
/// The environment variable with the path of the certificate's private key. See [`TLS_CERT`].
pub const TLS_KEY: &str = "TLS_KEY";

/// A command that starts a server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Launch {
    /// The program and its arguments. At the start, `$PORT`, `${PORT}` and `{port}` are replaced
    /// as whole words. `HOST` and `CPUS` are replaced likewise, with TLS also [`TLS_CERT`] and
    /// [`TLS_KEY`], and with a database or files also their variables.
    pub argv: Vec<String>,
    /// Environment variables to add, with the same replacements as in `argv`. `PORT`, `HOST` and
    /// `CPUS` are always added, and override variables of the same names.
    pub env: BTreeMap<String, String>,
    /// Environment variables to add only when the server is observed, with the same replacements as
    /// in `argv`. Such variables make a runtime name the functions that it compiles.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub explain_env: BTreeMap<String, String>,
    /// The working directory.
    pub cwd: PathBuf,
    /// A shell command that runs to its end in the working directory before each start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<String>,
    /// Whether the server gets a copy of the run's database, and the variables that lead to the
    /// copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_database: bool,
    /// Whether the server gets the files of the contract `static`, in the folder that `FILES`
    /// names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_files: bool,
    /// How to speak TLS to the server. `None` if the server does not use TLS.
    #[serde(default)]
    pub tls: Option<Tls>,
}

impl Launch {
    /// Adds a certificate to the launch. hotlap trusts the certificate, unless `tls` says what to
    /// trust.
    pub fn with_certificate(mut self, certificate: &Certificate, mut tls: Tls) -> Self {
        if tls.authorities.is_empty() && !tls.insecure {
            tls.authorities = vec![certificate.der.clone()];
        }
        let files = [(TLS_CERT, &certificate.file), (TLS_KEY, &certificate.key_file)];
        self.env.extend(files.map(|(name, file)| (name.to_owned(), file.display().to_string())));
        self.tls = Some(tls);
        self
    }

    /// Returns the files on this machine that the command names: its program, a script, an archive.
    pub fn files(&self) -> Vec<NamedFile> {
        let folders = self.env.get("PATH").map(Into::into).or_else(|| std::env::var_os("PATH"));
        let in_path = |word: &String| {
            let folders = folders.iter().flat_map(std::env::split_paths);
            folders.map(|folder| folder.join(word)).find(|file| file.is_file())
        };
        let program = self.argv.first().filter(|word| !word.contains('/')).and_then(in_path);
        let named = self.argv.iter().map(|word| self.cwd.join(word));
        program.into_iter().chain(named).filter_map(NamedFile::at).collect()
    }
}

/// The identity of a file at one moment. A rebuilt program counts as a different file, and so does
/// an executable file that has been written to. A data file that has been written to remains the
/// same file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// The path of the file.
    pub path: PathBuf,
    device: u64,
    inode: u64,
    written: Option<(i64, i64)>,
}

impl NamedFile {
    fn at(path: PathBuf) -> Option<Self> {
        let metadata = std::fs::metadata(&path).ok().filter(Metadata::is_file)?;
        let is_program = metadata.mode() & 0o111 != 0;
        Some(Self {
            path,
            device: metadata.dev(),
            inode: metadata.ino(),
            written: is_program.then(|| (metadata.mtime(), metadata.mtime_nsec())),
        })
    }
}

/// A side effect that must happen a known number of times per request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// The path of the file whose lines are counted, relative to the server's folder. Lines from
    /// before the start do not count.
    pub file: String,
    /// The number of lines per request.
    pub per_request: u32,
}

/// Why a server was dropped from the experiment: phase, cause, its last log lines and a remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{phase}: {cause}")]
pub struct ServerFailure {
    /// The phase: `protocol`, `toolchain`, `build`, `database`, `prepare`, `start`, `verify`,
    /// `warm-up`, `lap`, `recovery` or `stress`.
    pub phase: String,
    /// What happened.
    pub cause: String,
    /// The last lines that the server printed.
    pub log_tail: Vec<String>,
    /// What to do about the failure.
    pub remedy: String,
}

impl ServerFailure {
    /// Returns whether the last lines of the server say that a port is taken.
    pub fn is_port_taken(&self) -> bool {
        let says = |line: &String| {
            let line = line.to_lowercase();
            let is_of_port = line.contains("address") || line.contains("port");
            line.contains("addrinuse") || is_of_port && line.contains("in use")
        };
        self.log_tail.iter().any(says)
    }
}

/// How long lines may lag behind responses.
pub const LINES_LIMIT: Duration = Duration::from_secs(5);

/// The interval between checks for missing lines.
const LOOK: Duration = Duration::from_millis(20);

/// A counter of the lines that are appended to a file after the counter was created.
///
/// A log in a command's own folder belongs to the user. hotlap only reads such a log, beginning at
/// the log's end when the counter is created. If the log is rotated, counting continues with the
/// new file. If the log is truncated, counting continues from the start of the file.
///
/// A log in a build folder belongs to hotlap, which removes the log before each start and after the
/// server has ended. Variants of one build run in one folder and write logs of the same name, as do
/// a reference and its control. Because the older log is removed before a server starts, each
/// server has a separate file. Therefore, its counter keeps that file open and does not look at the
/// path again.
#[derive(Debug)]
pub struct LogLines {
    path: PathBuf,
    /// Whether the log is in a build folder, and therefore belongs to hotlap.
    is_ours: bool,
    file: Option<File>,
    /// How far the file has been read, in bytes.
    position: u64,
    lines: u64,
}

impl LogLines {
    /// Returns a counter for the file that a server is going to write. Call this before the server
    /// starts. Call [`count`](Self::count) before another server of the same folder starts, because
    /// that start replaces the file. `is_built` says whether the server runs in a build folder.
    pub fn of(counts: &Counts, launch: &Launch, is_built: bool) -> Self {
        let is_within = Path::new(&counts.file).components().all(|c| {
            // `..` and absolute paths lead out of the folder.
            matches!(c, Component::Normal(_) | Component::CurDir)
        });
        Self::at(launch.cwd.join(&counts.file), is_built && is_within)
    }

    fn at(path: PathBuf, is_ours: bool) -> Self {
        let mut own = Self { path, is_ours, file: None, position: 0, lines: 0 };
        if is_ours {
            own.remove();
        }
        if let Ok(mut file) = open(&own.path) {
            own.position = file.seek(SeekFrom::End(0)).unwrap_or(0);
            own.file = Some(file);
        }
        own
    }

    /// Removes the log if it is in a build folder, since it may be large.
    pub fn remove(&self) {
        if self.is_ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Returns the number of lines so far, or 0 if the file does not exist yet.
    pub fn count(&mut self) -> u64 {
        let _ = self.read_on();
        self.lines
    }

    /// Returns the number of lines, once none has been added for `quiet` (or after
    /// [`LINES_LIMIT`]). The server may still be writing the lines of earlier requests.
    pub fn settled(&mut self, quiet: Duration) -> u64 {
        let until = Instant::now() + LINES_LIMIT;
        let mut lines = self.count();
        loop {
            sleep(quiet);
            let before = std::mem::replace(&mut lines, self.count());
            if before == lines || Instant::now() > until {
                return lines;
            }
        }
    }

    /// Returns the number of lines, once there are at least `goal`, or none has been added for
    /// `quiet` (or after [`LINES_LIMIT`]).
    pub fn reach(&mut self, goal: u64, quiet: Duration) -> u64 {
        let began = Instant::now();
        let mut lines = self.count();
        let mut moved = began;
        while lines < goal && began.elapsed() < LINES_LIMIT && moved.elapsed() < quiet {
            sleep(LOOK);
            let before = std::mem::replace(&mut lines, self.count());
            if lines > before {
                moved = Instant::now();
            }
        }
        lines
    }

    fn read_on(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(open(&self.path)?);
        }
        self.read_to_end()?;
        if self.is_ours {
            return Ok(());
        }
        // After a rotation, the path names another file. First read what the server still wrote to
        // the old file.
        if let Ok(new) = open(&self.path)
            && !self.file.as_ref().is_some_and(|old| is_same(old, &new))
        {
            self.read_to_end()?;
            (self.file, self.position) = (Some(new), 0);
            self.read_to_end()?;
        }
        Ok(())
    }

    fn read_to_end(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        if file.metadata()?.len() < self.position {
            // After a truncation, everything in the file is new.
            self.position = file.seek(SeekFrom::Start(0))?;
        }
        let mut bytes = vec![0; 1 << 18];
        loop {
            let n = match file.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.position += n as u64;
            self.lines += bytes[..n].iter().filter(|b| **b == b'\n').count() as u64;
        }
    }
}

/// Opens a regular file only, because reading from a pipe would steal lines from its reader.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

fn is_same(one: &File, other: &File) -> bool {
    let id = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let id = |file: &File| file.metadata().map(id).ok();
    id(one) == id(other)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    fn append(path: &Path, text: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Regression: the log of a user's own server was removed before and after its start.
    #[test]
    fn a_users_log_is_kept_and_only_new_lines_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        append(&path, "old\nold\n");
        let mut lines = LogLines::at(path.clone(), false);
        assert_eq!(lines.count(), 0);
        append(&path, "a\nb\n");
        assert_eq!(lines.count(), 2);
        lines.remove();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old\nold\na\nb\n");
    }

    #[test]
    fn a_log_that_does_not_exist_yet_is_counted_from_its_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let mut lines = LogLines::at(path.clone(), false);
        assert_eq!(lines.count(), 0);
        append(&path, "a\n");
        assert_eq!(lines.count(), 1);
    }

    #[test]
    fn counting_continues_after_truncation_and_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        append(&path, "a long line from before\n");
        let mut lines = LogLines::at(path.clone(), false);
        append(&path, "a\n");
        assert_eq!(lines.count(), 1);
        // `copytruncate` does this, and so does a server that truncates its log when it starts.
        fs::write(&path, "b\n").unwrap();
        assert_eq!(lines.count(), 2);
        let rotated = folder.path().join("access.log.1");
        fs::rename(&path, &rotated).unwrap();
        append(&rotated, "c\n");
        assert_eq!(lines.count(), 3);
        append(&rotated, "d\n");
        append(&path, "e\nf\n");
        assert_eq!(lines.count(), 6);
        append(&path, "g\n");
        assert_eq!(lines.count(), 7);
    }

    /// Regression: the lines of two servers were both counted in the later server's file.
    #[test]
    fn two_servers_with_the_same_log_name_in_a_build_folder_are_counted_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let mut first = LogLines::at(path.clone(), true);
        assert_eq!(first.count(), 0);
        let mut firsts = File::create(&path).unwrap();
        firsts.write_all(b"a\n").unwrap();
        assert_eq!(first.count(), 1);
        let mut second = LogLines::at(path.clone(), true);
        File::create(&path).unwrap().write_all(b"b\nb\nb\n").unwrap();
        firsts.write_all(b"a\n").unwrap();
        assert_eq!((first.count(), second.count()), (2, 3));
        second.remove();
        assert!(!path.exists());
    }

    #[test]
    fn only_a_log_within_a_build_folder_is_ours() {
        let folder = tempfile::tempdir().unwrap();
        let is_ours = |file: &str, is_built| {
            let launch = Launch { cwd: folder.path().join("build"), ..Launch::default() };
            let counts = Counts { file: file.to_owned(), per_request: 1 };
            LogLines::of(&counts, &launch, is_built).is_ours
        };
        assert!(is_ours("access.log", true));
        assert!(!is_ours("../access.log", true));
        assert!(!is_ours(folder.path().join("access.log").to_str().unwrap(), true));
        assert!(!is_ours("access.log", false));
    }
}
