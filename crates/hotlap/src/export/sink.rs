//! The destination of one export: standard output, a device or a pipe, or a file that is replaced
//! as a whole.
//!
//! A file is written under a temporary name in the same folder, synced to disk and renamed. So
//! readers never see half of the content, not even after a crash or on a full disk. A file that
//! cannot be replaced is overwritten in place, such as a file with two hard links.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context;

use crate::redact;

/// The maximum number of symbolic links that are followed to a file. This is the kernel's limit.
const LINKS: usize = 40;

/// The destination of one export.
#[derive(Debug)]
pub enum Sink {
    /// Standard output. If it is a file that was opened for appending, text is appended.
    Stdout,
    /// A device, a pipe, a terminal, or an inherited descriptor, which is written once.
    Stream(PathBuf, File),
    /// A file that is replaced.
    File(PathBuf, Replaced),
}

/// The file extensions of exports.
const EXTENSIONS: [&str; 11] =
    ["json", "md", "markdown", "csv", "html", "htm", "svg", "xml", "txt", "hgrm", "out"];

/// A file that is replaced.
#[derive(Debug)]
pub struct Replaced {
    /// The path of the file, with symbolic links resolved.
    path: PathBuf,
    /// Set if the file has further hard links, or if no temporary file with its owner can be
    /// created. The content is then replaced instead of the file.
    in_place: Option<File>,
}

impl Sink {
    /// Checks that the destination can be written, without changing it.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let stdout = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
        if stdout.iter().any(|name| path == Path::new(name)) {
            return Ok(Self::Stdout);
        }
        opened(path).map_err(|cause| {
            anyhow::anyhow!(
                "cannot write {}: {cause}. Name another file, in an existing folder that you can \
                 write to",
                path.display()
            )
        })
    }

    /// Whether the destination is standard output.
    pub fn is_stdout(&self) -> bool {
        matches!(self, Self::Stdout)
    }

    /// Whether the destination can be written repeatedly, each time replacing the previous content.
    pub fn can_be_rewritten(&self) -> bool {
        matches!(self, Self::File(_, Replaced { in_place: None, .. }))
    }

    /// Returns the path of the file. `None` for standard output and streams.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(_, replaced) => Some(&replaced.path),
            Self::Stdout | Self::Stream(..) => None,
        }
    }

    /// Writes the whole content.
    pub fn write(&mut self, text: &str) -> anyhow::Result<()> {
        let text = redact::text(text);
        let (path, written) = match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                return Ok(out.flush()?);
            }
            Self::Stream(path, file) => (path, file.write_all(text.as_bytes())),
            Self::File(path, replaced) => (path, replaced.write(text.as_bytes())),
        };
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

fn opened(path: &Path) -> io::Result<Sink> {
    let is_descriptor = path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd");
    let kind = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder"));
        }
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if is_descriptor || path == Path::new("/dev/stderr") {
        // Another process may be writing to the same file, so text is only appended to it.
        let file = OpenOptions::new().append(true).open(path)?;
        return Ok(Sink::Stream(path.to_owned(), file));
    }
    let is_stream = |m: &fs::Metadata| {
        let kind = m.file_type();
        kind.is_fifo() || kind.is_char_device() || kind.is_block_device() || kind.is_socket()
    };
    if kind.as_ref().is_some_and(is_stream) {
        let file = OpenOptions::new().write(true).open(path)?;
        return Ok(Sink::Stream(path.to_owned(), file));
    }
    let replaced = Replaced::new(path, kind.as_ref())?;
    Ok(Sink::File(path.to_owned(), replaced))
}

impl Replaced {
    fn new(path: &Path, there: Option<&fs::Metadata>) -> io::Result<Self> {
        let path = target(path)?;
        let Some(there) = there else {
            Draft::new(&path, None)?;
            return Ok(Self { path, in_place: None });
        };
        if is_store(&path) {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is a store of runs"));
        }
        if there.len() > 0 && !is_replaceable(&path) {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "it already exists and does not look like an export, so it is not replaced",
            ));
        }
        // Opening a read-only file for writing fails, so a read-only file is not replaced.
        let file = OpenOptions::new().write(true).open(&path)?;
        let can_replace = there.nlink() == 1 && Draft::new(&path, Some(there)).is_ok();
        Ok(Self { path, in_place: (!can_replace).then_some(file) })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(file) = &mut self.in_place {
            return overwrite(file, bytes);
        }
        let there = fs::metadata(&self.path).ok();
        let mut draft = Draft::new(&self.path, there.as_ref())?;
        draft.file.write_all(bytes)?;
        synced(&draft.file)?;
        match draft.replace(&self.path) {
            // A single file that is mounted into a container cannot be replaced by renaming.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                overwrite(&mut OpenOptions::new().write(true).open(&self.path)?, bytes)
            }
            replaced => replaced,
        }
    }
}

/// Returns the file that a path refers to, which need not exist yet. A symbolic link stays a link.
fn target(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(resolved(path)),
        }
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "too many symbolic links"))
}

/// Resolves symbolic links in the folder of a path, so that two paths of one file are equal.
fn resolved(path: PathBuf) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    match (folder, path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}

/// Whether a file is a store, that is, whether it begins like an SQLite file
/// (sqlite.org/fileformat.html).
fn is_store(path: &Path) -> bool {
    let mut begin = [0; 15];
    File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok()
        && begin == *b"SQLite format 3"
}

/// Whether an existing file looks like an export, by its extension or its first byte. A file
/// without an extension looks like one unless it is executable. Any other file may be a program or
/// its source that the user named by mistake.
fn is_replaceable(path: &Path) -> bool {
    let Some(extension) = path.extension().map(|e| e.to_string_lossy().to_lowercase()) else {
        return rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_err();
    };
    let mut first = [0];
    let begins = File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok();
    EXTENSIONS.contains(&&*extension) || begins && b"{[<".contains(&first[0])
}

/// Overwrites the content of a file that cannot be replaced.
fn overwrite(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.set_len(0)?;
    file.write_all(bytes)?;
    synced(file)
}

/// Syncs a file to disk. A file system that does not support syncing causes no error.
fn synced(file: &File) -> io::Result<()> {
    match file.sync_all() {
        Err(e) if [ErrorKind::InvalidInput, ErrorKind::Unsupported].contains(&e.kind()) => Ok(()),
        done => done,
    }
}

/// A temporary file, which is removed when dropped unless it has replaced its target.
struct Draft {
    path: PathBuf,
    file: File,
}

impl Draft {
    /// Creates a temporary file next to `of`, with the owner and mode of the file to replace. Only
    /// the user may read a new file, because the commands and responses in it may contain secrets.
    fn new(of: &Path, there: Option<&fs::Metadata>) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!(".hotlap-{}-{number}.tmp", std::process::id());
        let path = of.parent().unwrap_or(Path::new("")).join(name);
        let mut open = OpenOptions::new();
        open.write(true).create_new(true).mode(0o600);
        let draft = Self { file: open.open(&path)?, path };
        if let Some(there) = there {
            let own = draft.file.metadata()?;
            if (own.uid(), own.gid()) != (there.uid(), there.gid()) {
                fchown(&draft.file, Some(there.uid()), Some(there.gid()))?;
            }
            draft.file.set_permissions(Permissions::from_mode(there.mode() & 0o7777))?;
        }
        Ok(draft)
    }

    fn replace(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        // Syncing the folder makes the new name durable. Some file systems cannot sync a folder.
        let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
        if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After the rename, no file has the temporary name.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn written(path: &Path, text: &str) {
        Sink::open(path).unwrap().write(text).unwrap();
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<String> =
            entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.md");
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let mut sink = Sink::open(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before", "opening changes nothing");
        let reader = File::open(&path).unwrap();
        sink.write("after").unwrap();
        sink.write("after all").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after all");
        assert_eq!(
            io::read_to_string(reader).unwrap(),
            "before",
            "an open file has the old content"
        );
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(names(folder.path()), ["report.md"]);
    }

    #[test]
    fn a_target_that_cannot_be_written_is_reported_first_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [folder.path().join("none/x"), file.join("x"), folder.path().to_owned()] {
            let error = format!("{:#}", Sink::open(&path).unwrap_err());
            assert!(error.starts_with(&format!("cannot write {}: ", path.display())), "{error}");
            assert!(error.ends_with("that you can write to"), "{error}");
        }
        drop(Sink::open(&folder.path().join("new")).unwrap());
        assert_eq!(names(folder.path()), ["file"], "a run that fails early leaves no empty file");
    }

    /// Regression: `--export-json app.py` replaced the program.
    #[test]
    fn a_program_or_its_source_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let text = |name| match name {
            "empty.py" => "",
            "run.gab" => "[]",
            _ => "text",
        };
        for name in ["app.py", "app", "summary", "run.json", "run.gab", "empty.py"] {
            fs::write(path(name), text(name)).unwrap();
        }
        fs::set_permissions(path("app"), Permissions::from_mode(0o755)).unwrap();
        let opens = |name: &&str| Sink::open(&path(name)).is_ok();
        assert!(["summary", "run.json", "run.gab", "empty.py"].iter().all(opens));
        assert!(!["app.py", "app"].iter().any(opens));
    }

    #[test]
    fn a_symbolic_link_stays_one_whether_or_not_its_file_exists() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("real")).unwrap();
        symlink("real/page.html", path("link")).unwrap();
        for text in ["first", "second"] {
            written(&path("link"), text);
            assert_eq!(fs::read_to_string(path("real/page.html")).unwrap(), text);
            assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink());
        }
        symlink("loop", path("loop")).unwrap();
        assert!(Sink::open(&path("loop")).is_err());
    }

    #[test]
    fn a_file_with_two_names_keeps_both() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        fs::write(&one, "a long text before").unwrap();
        fs::hard_link(&one, &two).unwrap();
        written(&one, "after");
        assert_eq!(fs::read_to_string(&two).unwrap(), "after");
    }

    #[test]
    fn devices_and_pipes_are_written_to_and_not_replaced() {
        written(Path::new("/dev/null"), "gone");
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        let mut sink = Sink::open(&pipe).unwrap();
        assert!(!sink.can_be_rewritten(), "a reader of a pipe gets one document");
        sink.write("through the pipe").unwrap();
        drop(sink);
        assert_eq!(reader.join().unwrap(), "through the pipe");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    }

    #[test]
    fn a_descriptor_that_appends_is_appended_to() {
        use std::os::fd::AsRawFd;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.csv");
        fs::write(&path, "kept\n").unwrap();
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        written(Path::new(&format!("/dev/fd/{}", file.as_raw_fd())), "added\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept\nadded\n");
    }
}
