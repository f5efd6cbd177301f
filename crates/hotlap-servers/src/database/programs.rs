//! Finds PostgreSQL's programs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs that hotlap needs for a database. If PostgreSQL already runs, hotlap needs only
/// `psql`.
const NEEDED: [&str; 3] = ["initdb", "postgres", "psql"];

/// The oldest version that can be used. Earlier versions do not end the connections to a database
/// that they drop.
const OLDEST: u32 = 13;

/// Folders in which packages create one folder per version: Debian's packages, PostgreSQL's own
/// packages for Fedora, and Homebrew's packages.
const PLACES: [&str; 4] = ["/usr/lib/postgresql", "/usr", "/opt/homebrew/opt", "/usr/local/opt"];

/// The programs of one PostgreSQL installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    folder: PathBuf,
    version: String,
}

impl Programs {
    /// Finds the programs in a folder, or in its `bin`. Without a folder, finds the programs of the
    /// newest version in the usual places.
    ///
    /// # Errors
    /// If a program is missing or too old.
    pub fn find(folder: Option<&Path>) -> Result<Self, String> {
        Self::with(&NEEDED, folder)
    }

    /// Finds `psql` in the same places as [`Self::find`]. A PostgreSQL that already runs needs no
    /// other program.
    ///
    /// # Errors
    /// If `psql` is missing or too old.
    pub fn find_client(folder: Option<&Path>) -> Result<Self, String> {
        Self::with(&NEEDED[2..], folder)
    }

    fn with(needed: &[&str], folder: Option<&Path>) -> Result<Self, String> {
        let is_complete =
            |folder: &Path| needed.iter().all(|program| folder.join(program).is_file());
        let folder = match folder {
            Some(folder) => {
                let places = [folder.to_owned(), folder.join("bin")];
                let found = places.into_iter().find(|folder| is_complete(folder));
                let needed = needed.join(", ").replace(", psql", " or psql");
                found.ok_or_else(|| format!("{} lacks {needed}", folder.display()))
            }
            None => {
                let newest = newest(PLACES.map(Path::new), is_complete);
                newest.ok_or_else(|| match needed {
                    ["psql"] => "psql was not found".to_owned(),
                    _ => "PostgreSQL was not found".to_owned(),
                })
            }
        }?;
        let version = version(&folder);
        let major = version.trim_start_matches(|c: char| !c.is_ascii_digit()).split('.').next();
        match major.and_then(|major| major.parse().ok()) {
            Some(1..OLDEST) => {
                Err(format!("{version} is too old: PostgreSQL {OLDEST} or later is needed"))
            }
            _ => Ok(Self { folder, version }),
        }
    }

    /// Returns the path of a program.
    pub fn path(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }

    /// Returns the version: `PostgreSQL 15.18`, or `PostgreSQL` if the number is unknown.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns a command for `psql` that ignores the user's files and variables. The command prints
    /// only rows, and ends at the first error.
    pub(super) fn psql(&self) -> Command {
        let mut command = Command::new(self.path("psql"));
        inherited().iter().for_each(|name| _ = command.env_remove(name));
        command.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"]);
        command.args(["--set", "ON_ERROR_STOP=1"]);
        command
    }
}

/// Returns the names of the inherited variables that PostgreSQL's programs and libpq may read. With
/// these variables, clients might connect to a database other than the run's, or in another way.
pub(crate) fn inherited() -> Vec<OsString> {
    of_postgres(std::env::vars_os().map(|(name, _)| name))
}

fn of_postgres(names: impl Iterator<Item = OsString>) -> Vec<OsString> {
    names.filter(|name| name.as_encoded_bytes().starts_with(b"PG")).collect()
}

fn version(folder: &Path) -> String {
    let output = Command::new(folder.join("psql")).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    // The output looks like `psql (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
    let number = text.ok().and_then(|text| text.split(' ').nth(2).map(str::to_owned));
    format!("PostgreSQL {}", number.unwrap_or_default().trim()).trim_end().to_owned()
}

/// Returns the folder with the programs of the highest version in these places. Only complete
/// folders count. The folder of a version has a name like `15`, `pgsql-15` or `postgresql@15`.
fn newest<'a>(
    places: impl IntoIterator<Item = &'a Path>,
    is_complete: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let version = |name: &str| -> Option<u32> {
        let rest = name.strip_prefix("pgsql-").or_else(|| name.strip_prefix("postgresql@"));
        match name {
            // Homebrew's name for the newest version. Folders with a version in their names come
            // first.
            "postgresql" => Some(0),
            _ => rest.unwrap_or(name).parse().ok(),
        }
    };
    let entries = places.into_iter().filter_map(|place| fs::read_dir(place).ok()).flatten();
    let found = entries.flatten().filter_map(|entry| {
        let folder = entry.path().join("bin");
        Some((version(entry.file_name().to_str()?)?, folder))
    });
    found.filter(|(_, folder)| is_complete(folder)).max().map(|(_, folder)| folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(root: &Path, name: &str, programs: &[&str]) -> PathBuf {
        let folder = root.join(name).join("bin");
        fs::create_dir_all(&folder).unwrap();
        programs.iter().for_each(|program| fs::write(folder.join(program), "").unwrap());
        folder
    }

    /// Regression: servers inherited `PGCHANNELBINDING` and other variables, because only seven
    /// were known by name.
    #[test]
    fn all_variables_of_postgresql_are_left_out() {
        let names = ["PATH", "PGCHANNELBINDING", "PGGSSENCMODE", "MY_PGHOST", "PGSSLMODE"];
        let found = of_postgres(names.into_iter().map(OsString::from));
        assert_eq!(found, ["PGCHANNELBINDING", "PGGSSENCMODE", "PGSSLMODE"]);
    }

    #[test]
    fn the_newest_complete_version_is_used() {
        let root = tempfile::tempdir().unwrap();
        let newest = |of: fn(Option<&Path>) -> Result<Programs, String>| {
            newest([root.path()], |folder| of(Some(folder)).is_ok())
        };
        assert_eq!(newest(Programs::find), None);
        install(root.path(), "9", &NEEDED);
        let expected = install(root.path(), "15", &NEEDED);
        install(root.path(), "16", &["postgres"]);
        install(root.path(), "notes", &NEEDED);
        assert_eq!(newest(Programs::find), Some(expected.clone()));
        let client = install(root.path(), "17", &["psql"]);
        assert_eq!(newest(Programs::find_client), Some(client));
        let of = |folder: &Path| Programs::find(Some(folder));
        let bin = Programs { folder: expected.clone(), version: "PostgreSQL".to_owned() };
        assert_eq!(of(&expected), Ok(bin.clone()));
        assert_eq!(of(&root.path().join("15")), Ok(bin));
        assert!(of(&root.path().join("16")).unwrap_err().ends_with("initdb, postgres or psql"));
    }
}
