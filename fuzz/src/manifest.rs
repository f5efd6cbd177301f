//! A server's manifest (`server.toml`): any text.

use std::path::Path;

use hotlap_servers::catalogue::parse;

/// Reads it; whatever it says, an error names a line of the file.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match parse(&text, Path::new("/nowhere/language/name"), "language/name") {
        Ok(servers) => {
            assert_eq!(servers[0].id, "language/name");
            assert!(servers[1..].iter().all(|s| s.base_id() == "language/name"));
        }
        Err(error) => {
            assert!(!error.what.is_empty() && !error.what.contains('\n'), "{error}");
            let lines = text.bytes().filter(|b| *b == b'\n').count() + 1;
            assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)), "{error}");
        }
    }
}
