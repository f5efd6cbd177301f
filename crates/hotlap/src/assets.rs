//! The folders of the catalogue and the suites. Both come from the current folder if it is a
//! checkout of hotlap. Otherwise, the copy inside this binary is unpacked to the cache.
//! `$HOTLAP_SERVERS` may name another catalogue.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::paths;

// Defines `FILES`, the files of `servers/` and `suites/` with their contents, and `KEY`, their
// hash.
include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// Returns the folder of the servers.
pub fn servers() -> anyhow::Result<PathBuf> {
    if let Some(named) = paths::from_env("HOTLAP_SERVERS") {
        if !named.is_dir() {
            anyhow::bail!("HOTLAP_SERVERS is {}, which is not a folder", named.display());
        }
        return Ok(named);
    }
    if is_checkout(Path::new(".")) {
        return Ok(std::path::absolute("servers")?);
    }
    Ok(unpacked(FILES, KEY, &paths::cache()?)?.join("servers"))
}

/// Returns the folder of the suites.
pub fn suites() -> anyhow::Result<PathBuf> {
    if is_checkout(Path::new(".")) {
        return Ok(std::path::absolute("suites")?);
    }
    Ok(unpacked(FILES, KEY, &paths::cache()?)?.join("suites"))
}

/// Whether a folder is a checkout of hotlap. In any other project, the folder `servers` may contain
/// commands that nobody asked hotlap to execute.
fn is_checkout(folder: &Path) -> bool {
    ["crates/hotlap/Cargo.toml", "servers/README.md", "suites"]
        .iter()
        .all(|part| folder.join(part).exists())
}

/// Unpacks the files to a cache folder that is named after `key`, unless that folder exists.
fn unpacked(files: &[(&str, &[u8])], key: &str, cache: &Path) -> anyhow::Result<PathBuf> {
    let folder = cache.join("assets").join(key);
    if folder.is_dir() {
        return Ok(folder);
    }
    // Each thread of each process that unpacks at the same time gets its own folder.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let unique = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let fresh = cache.join("assets").join(format!("unpacking-{unique}"));
    let cannot = |error: std::io::Error| {
        anyhow::anyhow!(
            "cannot unpack the catalogue to {} ({error}): set HOTLAP_CACHE to a folder that you \
             can write to",
            cache.display()
        )
    };
    for (name, bytes) in files {
        let file = fresh.join(name);
        fs::create_dir_all(file.parent().unwrap_or(&fresh)).map_err(cannot)?;
        fs::write(&file, bytes).map_err(cannot)?;
    }
    // If two threads or processes unpack at once, the second uses the folder of the first.
    if let Err(error) = fs::rename(&fresh, &folder) {
        let _ = fs::remove_dir_all(&fresh);
        if !folder.is_dir() {
            return Err(cannot(error));
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_travels_inside_and_is_unpacked_once() {
        let cache = tempfile::tempdir().unwrap();
        let files: &[(&str, &[u8])] =
            &[("servers/go/net-http/server.toml", b"about = ''"), ("suites/hello.toml", b"")];
        let first = unpacked(files, "1", cache.path()).unwrap();
        assert!(!is_checkout(&first), "it has no code");
        assert_eq!(unpacked(files, "1", cache.path()).unwrap(), first);
        assert_eq!(fs::read_dir(cache.path().join("assets")).unwrap().count(), 1);
        let other = unpacked(&[("suites/other.toml", b"")], "2", cache.path()).unwrap();
        assert_ne!(first, other);
    }

    /// Regression: threads of one process shared a folder while they unpacked.
    #[test]
    fn several_threads_unpack_at_once() {
        let cache = tempfile::tempdir().unwrap();
        let files: Vec<(String, [u8; 1])> =
            (0..100).map(|n| (format!("servers/go/{n}/server.toml"), [n])).collect();
        let files: Vec<(&str, &[u8])> =
            files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        std::thread::scope(|scope| {
            let unpack = || unpacked(&files, "1", cache.path()).unwrap();
            let all: Vec<_> = (0..8).map(|_| scope.spawn(unpack)).collect();
            for folder in all.into_iter().map(|thread| thread.join().unwrap()) {
                assert_eq!(fs::read_dir(folder.join("servers/go")).unwrap().count(), 100);
            }
        });
        assert_eq!(fs::read_dir(cache.path().join("assets")).unwrap().count(), 1);
    }

    #[test]
    fn a_cache_that_cannot_be_written_says_what_to_set() {
        let error = unpacked(&[("servers/x", b"")], "1", Path::new("/proc/none")).unwrap_err();
        assert!(format!("{error:#}").contains("HOTLAP_CACHE"));
    }

    /// `cargo install` does not keep the checkout, so the binary must contain what the tool needs.
    #[test]
    fn the_binary_has_the_catalogue_and_nothing_that_a_build_left_behind() {
        let has = |name: &str| FILES.iter().any(|(file, _)| *file == name);
        assert!(has("servers/go/net-http/server.toml") && has("suites/quick.toml"));
        assert!(!FILES.iter().any(|(file, _)| file.contains("/target/")));
    }
}
