//! The file that receives a server's output.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The number of bytes at the end of a log that [`tail`] reads, however long the log is.
const TAIL_BYTES: u64 = 64 * 1024;

/// The length above which a log is cut, in bytes. A server that logs each request can write this
/// much in a second. Without the limit, its log would fill the disk.
const LIMIT_BYTES: u64 = 16 << 20;

/// How many bytes of the oldest and of the newest lines are kept when a log is cut.
const KEPT_BYTES: u64 = 1 << 20;

/// Opens an empty log and replaces an older file.
pub(super) fn open(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().append(true).create(true).open(path)
}

/// Removes the middle of a log that is too long. The server continues to write at the log's end,
/// because [`open`] opens the log for appending.
pub(super) fn cut(path: &Path) -> io::Result<()> {
    let length = std::fs::metadata(path)?.len();
    if length <= LIMIT_BYTES {
        return Ok(());
    }
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    file.seek(SeekFrom::Start(length - KEPT_BYTES))?;
    let mut newest = Vec::new();
    (&file).take(KEPT_BYTES).read_to_end(&mut newest)?;
    let line = newest.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    file.set_len(KEPT_BYTES)?;
    let removed = (length - 2 * KEPT_BYTES) >> 20;
    write!(file, "\n[hotlap removed {removed} MiB here]\n")?;
    file.write_all(&newest[line..])
}

/// Returns the last lines of a log.
pub(super) fn tail(path: &Path, lines: usize) -> io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    Ok(all[all.len().saturating_sub(lines)..].iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a server that logged each request filled the disk.
    #[test]
    fn a_long_log_keeps_its_oldest_and_newest_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.log");
        let mut server = open(&path).unwrap();
        let line = |n: usize| format!("{n:015}\n");
        let lines = LIMIT_BYTES as usize / 16;
        server.write_all((0..lines).map(line).collect::<String>().as_bytes()).unwrap();
        cut(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), LIMIT_BYTES, "not over the limit");
        server.write_all(line(lines).as_bytes()).unwrap();
        cut(&path).unwrap();
        server.write_all(b"later\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.len() < 3 << 20 && text.starts_with(&line(0)), "{} bytes", text.len());
        assert!(text.contains("\n[hotlap removed 14 MiB here]\n"));
        assert_eq!(tail(&path, 2).unwrap(), [line(lines).trim_end(), "later"]);
    }
}
