//! A suite (`suites/*.toml`): any text.

use std::path::Path;

use hotlap_bench::suite::{Suite, SuiteError};

/// Reads it; whatever it says, an error names a line of the file.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match Suite::parse(&text, Path::new("/nowhere/suite.toml")) {
        Ok(suite) => suite.servers.iter().for_each(|entry| assert!(!entry.title().is_empty())),
        Err(SuiteError::Wrong { line, what, .. }) => {
            assert!(!what.is_empty());
            let lines = text.bytes().filter(|b| *b == b'\n').count() + 1;
            assert!(line.is_none_or(|line| (1..=lines).contains(&line)), "{line:?}: {what}");
        }
        Err(other) => panic!("{other}"),
    }
}
