//! The locations of this user's files: the configuration, the stored runs and the cache.
//!
//! The directories follow the XDG Base Directory Specification, version 0.8. An XDG variable that
//! is empty or holds a relative path is ignored.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The path of the user's configuration: `hotlap/config.toml` in `$XDG_CONFIG_HOME` or `~/.config`.
/// The path is `None` if neither `XDG_CONFIG_HOME` nor `HOME` is set.
pub fn config() -> Option<PathBuf> {
    Some(base("XDG_CONFIG_HOME", ".config")?.join("hotlap/config.toml"))
}

/// The folder for stored runs and certificates: `hotlap` in `$XDG_DATA_HOME` or `~/.local/share`.
/// The path is `None` if neither `XDG_DATA_HOME` nor `HOME` is set.
pub fn data() -> Option<PathBuf> {
    Some(base("XDG_DATA_HOME", ".local/share")?.join("hotlap"))
}

/// The path of the default store, a file in [`data`].
pub fn store() -> Option<PathBuf> {
    Some(data()?.join("hotlap.db"))
}

/// Writes a file in place of an earlier one. If the write is interrupted, the earlier file stays.
///
/// # Errors
/// Fails if the file cannot be written or renamed, for example because the disk is full.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, content)?;
    fs::rename(&new, path)
}

/// The folder for builds and unpacked files: `$HOTLAP_CACHE`, or else `hotlap` in
/// `$XDG_CACHE_HOME` or `~/.cache`. Without these variables and `HOME`, or if the usual folder
/// cannot be written, the cache is a private folder in the system's temporary folder. The cache is
/// created if it does not exist.
///
/// hotlap starts programs from the cache, so a folder that every user can write to is refused. A
/// folder in the shared temporary folder must belong to this user alone.
pub fn cache() -> anyhow::Result<PathBuf> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let find = || {
        if let Some(named) = from_env("HOTLAP_CACHE") {
            return usable(&named).map_err(|why| refused(&named, &why));
        }
        if let Some(usual) = base("XDG_CACHE_HOME", ".cache").map(|folder| folder.join("hotlap")) {
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

/// Returns the path in an environment variable, unless the variable is unset or empty.
pub fn from_env(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns one of the XDG base directories.
fn base(variable: &str, below_home: &str) -> Option<PathBuf> {
    let named = from_env(variable).filter(|path| path.is_absolute());
    named.or_else(|| Some(from_env("HOME")?.join(below_home)))
}

/// The reason why a folder cannot be the cache.
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
        "cannot use {} as the cache: {why}. Set HOTLAP_CACHE to a folder of your own",
        folder.display()
    )
}

/// Checks the folder that the user named, or the usual folder, and creates it if it does not
/// exist. A folder that all users can write to is refused.
fn usable(folder: &Path) -> Result<PathBuf, Unusable> {
    fs::create_dir_all(folder)?;
    let mode = fs::metadata(folder)?.mode();
    if mode & 0o002 != 0 {
        return Err(Unusable::Unsafe("all users can write to it".to_owned()));
    }
    try_to_write(folder)?;
    Ok(std::path::absolute(folder)?)
}

/// Checks a private folder inside a shared one, and creates it if it does not exist. The folder
/// must be owned by this user and closed to all others. A symbolic link is refused, since another
/// user may have made it.
fn own(folder: &Path) -> Result<PathBuf, Unusable> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e.into()),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    let user = rustix::process::geteuid().as_raw();
    let wrong = match () {
        () if found.is_symlink() => "it is a symbolic link, and may belong to another user",
        () if !found.is_dir() => "it is not a folder",
        () if found.uid() != user => "it belongs to another user",
        () if found.mode() & 0o077 != 0 => "other users can read or write it (chmod 700 closes it)",
        () => {
            try_to_write(folder)?;
            return Ok(folder.to_owned());
        }
    };
    Err(Unusable::Unsafe(wrong.to_owned()))
}

/// Creates a file in a folder and removes it, which shows that the folder can be written.
fn try_to_write(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".hotlap-{}.tmp", std::process::id()));
    let made = fs::OpenOptions::new().write(true).create(true).truncate(true).open(&path);
    made.map(drop)?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_that_others_can_write_to_is_no_cache() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode));
        assert!(usable(folder.path()).is_ok());
        mode(0o777).unwrap();
        let why = refused(folder.path(), &usable(folder.path()).unwrap_err());
        assert!(why.contains("all users can write to it. Set HOTLAP_CACHE"), "{why}");
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
        for (name, wrong) in
            [("link", "symbolic link"), ("file", "not a folder"), ("open", "chmod")]
        {
            let why = refused(&path(name), &own(&path(name)).unwrap_err());
            assert!(why.contains(wrong) && why.contains("HOTLAP_CACHE"), "{why}");
        }
        // Only root can give a folder to another user.
        if rustix::process::geteuid().is_root() {
            fs::create_dir(path("theirs")).unwrap();
            std::os::unix::fs::chown(path("theirs"), Some(65_534), None).unwrap();
            let why = refused(&path("theirs"), &own(&path("theirs")).unwrap_err());
            assert!(why.contains("belongs to another user"), "{why}");
        }
    }
}
