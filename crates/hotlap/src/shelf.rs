//! Where the catalogue and the suites are: in a checkout, where `$HOTLAP_SERVERS` says, or inside
//! of this binary, from which they are unpacked to the cache when they are needed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Every file of `servers/` and `suites/`, as of when this binary was built.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/shelf.rs"));

/// The folder of the servers.
///
/// # Errors
/// When `$HOTLAP_SERVERS` is no folder, or the cache cannot be written.
pub fn servers() -> anyhow::Result<PathBuf> {
    if let Some(told) = std::env::var_os("HOTLAP_SERVERS").filter(|v| !v.is_empty()) {
        let told = PathBuf::from(told);
        if !told.is_dir() {
            anyhow::bail!("HOTLAP_SERVERS names {}, which is no folder", told.display());
        }
        return Ok(told);
    }
    let here = PathBuf::from("servers");
    if is_catalogue(&here) {
        return Ok(std::path::absolute(here)?);
    }
    Ok(unpacked(FILES, &cache())?.join("servers"))
}

/// The folder of the suites.
///
/// # Errors
/// When the cache cannot be written.
pub fn suites() -> anyhow::Result<PathBuf> {
    let here = PathBuf::from("suites");
    if here.is_dir() && is_catalogue(Path::new("servers")) {
        return Ok(std::path::absolute(here)?);
    }
    Ok(unpacked(FILES, &cache())?.join("suites"))
}

/// Where builds and unpacked files go: `$HOTLAP_CACHE`, `$XDG_CACHE_HOME/hotlap` or
/// `~/.cache/hotlap`.
#[must_use]
pub fn cache() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("HOTLAP_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("hotlap")))
        .or_else(|| Some(set("HOME")?.join(".cache").join("hotlap")))
        .unwrap_or_else(|| std::env::temp_dir().join("hotlap"))
}

/// Whether a folder holds servers: `<language>/<name>/server.toml`.
fn is_catalogue(folder: &Path) -> bool {
    let inside =
        |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    inside(folder).flat_map(|language| inside(&language)).any(|s| s.join("server.toml").is_file())
}

/// Unpacks the files, unless that was done before: the folder is named after what is in it.
fn unpacked(files: &[(&str, &[u8])], cache: &Path) -> anyhow::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    let folder = cache.join("shelf").join(format!("{:016x}", hasher.finish()));
    if folder.is_dir() {
        return Ok(folder);
    }
    let fresh = cache.join("shelf").join(format!("unpacking-{}", std::process::id()));
    let cannot = || {
        format!(
            "cannot unpack the catalogue to {}: set HOTLAP_CACHE to a folder of yours",
            cache.display()
        )
    };
    for (name, bytes) in files {
        let file = fresh.join(name);
        std::fs::create_dir_all(file.parent().unwrap_or(&fresh)).with_context(cannot)?;
        std::fs::write(&file, bytes).with_context(cannot)?;
    }
    std::fs::create_dir_all(&fresh).with_context(cannot)?;
    // Two hotlaps may unpack at once: whoever is second finds the folder there, and is content.
    if std::fs::rename(&fresh, &folder).is_err() {
        let _ = std::fs::remove_dir_all(&fresh);
        anyhow::ensure!(folder.is_dir(), cannot());
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
        let first = unpacked(files, cache.path()).unwrap();
        assert!(is_catalogue(&first.join("servers")));
        assert_eq!(unpacked(files, cache.path()).unwrap(), first);
        assert_eq!(std::fs::read_dir(cache.path().join("shelf")).unwrap().count(), 1);
        let other = unpacked(&[("suites/other.toml", b"")], cache.path()).unwrap();
        assert_ne!(first, other);
    }

    #[test]
    fn a_cache_that_cannot_be_written_says_what_to_set() {
        let error = unpacked(&[("servers/x", b"")], Path::new("/proc/none")).unwrap_err();
        assert!(format!("{error:#}").contains("HOTLAP_CACHE"));
    }
}
