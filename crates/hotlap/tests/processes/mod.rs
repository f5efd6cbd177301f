//! Processes that come of a test.

use std::fs;

/// Process ids and commands of those that have this text, which is the test's own, in their
/// environment or command.
pub fn with(text: &str) -> Vec<(i32, String)> {
    let has = |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    let of = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let command_text = String::from_utf8_lossy(&command).replace('\0', " ");
        (has(&command) || has(&environment)).then_some((pid, command_text))
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect()
}
