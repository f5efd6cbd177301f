//! Where the catalogue and the suites are: in a checkout, where `$HOTLAP_SERVERS` says, or inside
//! of this binary, from which they are unpacked to the cache when they are needed.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

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
    Ok(unpacked(FILES, &cache()?)?.join("servers"))
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
    Ok(unpacked(FILES, &cache()?)?.join("suites"))
}

/// Where builds and unpacked files go: `$HOTLAP_CACHE`, or else `$XDG_CACHE_HOME/hotlap`, or
/// `~/.cache/hotlap`. Where neither is set or can be written, a private folder within the one for
/// temporary files. It is made if it is not there.
///
/// Programs are started from it, so a folder that others can write to is refused, and the one
/// within the shared folder for temporary files must be this user's alone.
///
/// # Errors
/// Names the folder, what is wrong with it, and what to set.
pub fn cache() -> anyhow::Result<PathBuf> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let find = || {
        if let Some(named) = set("HOTLAP_CACHE") {
            return usable(&named).map_err(|why| refused(&named, &why));
        }
        let usual = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        if let Some(usual) = usual.map(|folder| folder.join("hotlap")) {
            match usable(&usual) {
                Err(Unusable::Unwritable(_)) => {}
                found => return found.map_err(|why| refused(&usual, &why)),
            }
        }
        let user = rustix::process::geteuid().as_raw();
        let private = std::env::temp_dir().join(format!("hotlap-{user}"));
        own(&private).map_err(|why| refused(&private, &why))
    };
    FOUND.get_or_init(find).clone().map_err(anyhow::Error::msg)
}

/// Why a folder cannot be the cache.
#[derive(Debug)]
enum Unusable {
    Unwritable(io::Error),
    Unsafe(String),
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        Self::Unwritable(error)
    }
}

fn refused(folder: &Path, why: &Unusable) -> String {
    let why = match why {
        Unusable::Unwritable(error) => error.to_string(),
        Unusable::Unsafe(why) => why.clone(),
    };
    format!(
        "cannot use {} for builds and unpacked files: {why}. Set HOTLAP_CACHE to a folder of yours",
        folder.display()
    )
}

/// A folder that the user has or names, made if it is not there: only its owner and group may be
/// able to write to it.
fn usable(folder: &Path) -> Result<PathBuf, Unusable> {
    fs::create_dir_all(folder)?;
    let mode = fs::metadata(folder)?.mode();
    if mode & 0o002 != 0 {
        return Err(Unusable::Unsafe("every user can write to it".to_owned()));
    }
    tempfile(folder)?;
    Ok(std::path::absolute(folder)?)
}

/// A folder of this user alone, within one that all users share: not a link that somebody else
/// made, owned by this user, and closed to all others.
fn own(folder: &Path) -> Result<PathBuf, Unusable> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e.into()),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    let user = rustix::process::geteuid().as_raw();
    let wrong = match () {
        () if found.is_symlink() => "it is a symbolic link, and may be somebody else's",
        () if !found.is_dir() => "it is no folder",
        () if found.uid() != user => "it belongs to another user",
        () if found.mode() & 0o077 != 0 => "other users can read or write it (chmod 700 closes it)",
        () => {
            tempfile(folder)?;
            return Ok(folder.to_owned());
        }
    };
    Err(Unusable::Unsafe(wrong.to_owned()))
}

/// Makes a file in a folder and takes it away again, which shows that it can be written.
fn tempfile(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".hotlap-{}.tmp", std::process::id()));
    let made = fs::OpenOptions::new().write(true).create(true).truncate(true).open(&path);
    made.map(drop)?;
    fs::remove_file(path)
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
    use std::os::unix::fs::PermissionsExt;

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
    fn a_folder_that_others_can_write_to_is_no_cache() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode));
        assert!(usable(folder.path()).is_ok());
        mode(0o777).unwrap();
        let why = refused(folder.path(), &usable(folder.path()).unwrap_err());
        assert!(why.contains("every user can write to it. Set HOTLAP_CACHE"), "{why}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_among_those_of_others_must_be_our_own() {
        let shared = tempfile::tempdir().unwrap();
        let path = |name: &str| shared.path().join(name);
        let private = own(&path("new")).unwrap();
        assert_eq!(fs::metadata(&private).unwrap().mode() & 0o777, 0o700);
        assert!(own(&private).is_ok(), "it is found again");
        std::os::unix::fs::symlink(&private, path("link")).unwrap();
        fs::write(path("file"), "").unwrap();
        fs::create_dir(path("open")).unwrap();
        fs::set_permissions(path("open"), fs::Permissions::from_mode(0o755)).unwrap();
        for (name, wrong) in [("link", "symbolic link"), ("file", "no folder"), ("open", "chmod")] {
            let why = refused(&path(name), &own(&path(name)).unwrap_err());
            assert!(why.contains(wrong) && why.contains("HOTLAP_CACHE"), "{why}");
        }
        // Only root can give a folder to somebody else.
        if rustix::process::geteuid().is_root() {
            fs::create_dir(path("theirs")).unwrap();
            std::os::unix::fs::chown(path("theirs"), Some(65_534), None).unwrap();
            let why = refused(&path("theirs"), &own(&path("theirs")).unwrap_err());
            assert!(why.contains("belongs to another user"), "{why}");
        }
    }

    #[test]
    fn a_cache_that_cannot_be_written_says_what_to_set() {
        let error = unpacked(&[("servers/x", b"")], Path::new("/proc/none")).unwrap_err();
        assert!(format!("{error:#}").contains("HOTLAP_CACHE"));
    }
}
