//! Missing toolchains: the system packages that provide them, and the commands that install those.
//!
//! Only system packages are installed here; packages of a language's own package manager are part
//! of the server's build.

mod command;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::manifest::Server;
use crate::package_manager::PackageManager;
use crate::toolchain::{MissingKind, MissingToolchain};

pub use command::{InstallError, Progress};

/// What some servers are missing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Missing {
    /// The package manager; `None` if this machine has none that hotlap knows.
    pub manager: Option<PackageManager>,
    /// Packages to install, sorted, each once.
    pub packages: Vec<String>,
    /// Ids of the servers that these packages make buildable.
    pub servers: Vec<String>,
    /// Ids of servers that no package of this manager makes buildable, each with its remedy.
    pub other: Vec<(String, MissingToolchain)>,
    /// Packages that the manager does not know, found by [`Missing::measure`].
    pub unknown: Vec<String>,
}

/// The size of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    /// Download size, in bytes.
    pub download_bytes: u64,
    /// Disk usage, in bytes.
    pub disk_bytes: u64,
}

impl Size {
    /// Estimated duration, in seconds: 551 MB of small packages took 59 s on two cores, 876 MB of
    /// larger ones 46 s, so about 13 MB are unpacked per second.
    pub fn about_s(self) -> u64 {
        5 + self.disk_bytes / 13_000_000
    }
}

impl Missing {
    /// Groups what these servers are missing by how it can be installed here.
    pub fn of<'a>(
        manager: Option<PackageManager>,
        states: impl IntoIterator<Item = (&'a Server, &'a MissingToolchain)>,
    ) -> Self {
        let mut missing = Self { manager, ..Self::default() };
        let mut packages = BTreeSet::new();
        for (server, absence) in states {
            let install = &server.toolchain.install;
            let own = manager.map(|manager| manager.packages(install)).unwrap_or_default();
            if own.is_empty() || absence.kind == MissingKind::Unreachable {
                missing.other.push((server.id.clone(), absence.clone()));
            } else {
                packages.extend(own.iter().cloned());
                missing.servers.push(server.id.clone());
            }
        }
        missing.packages = packages.into_iter().collect();
        missing
    }

    /// The commands that install the packages, in order; empty if there is nothing to install.
    pub fn commands(&self, ask: bool) -> Vec<Vec<String>> {
        match self.manager {
            Some(manager) if !self.packages.is_empty() => {
                vec![manager.update(), manager.command(&self.packages, ask)]
            }
            _ => Vec::new(),
        }
    }

    /// Asks the package manager for the size, and moves packages that it does not know to
    /// [`Missing::unknown`]. `None` if it does not report a size, or has no list of packages yet,
    /// as in a new container.
    pub fn measure(&mut self) -> Option<Size> {
        if self.manager != Some(PackageManager::Apt) || !has_lists(Path::new(APT_LISTS)) {
            return None;
        }
        // Each pass names at least one unknown package, so this ends.
        while !self.packages.is_empty() {
            // A dry run: the confirmation is declined. It takes no lock, so any user may run it.
            let output = Command::new("apt-get")
                .args(["install", "--no-install-recommends", "--assume-no"])
                .args(["-o", "Debug::NoLocking=1", "--"])
                .args(&self.packages)
                .env("LC_ALL", "C")
                .stdin(Stdio::null())
                .output()
                .ok()?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            let unknown = unknown_packages(&said);
            if unknown.is_empty() {
                return size(&said);
            }
            let (gone, kept) =
                self.packages.drain(..).partition(|package| unknown.contains(package));
            self.packages = kept;
            let gone: Vec<String> = gone;
            if gone.is_empty() {
                return None;
            }
            self.unknown.extend(gone);
        }
        Some(Size::default())
    }

    /// Installs the packages. Output is appended to `log` and reported line by line; questions (a
    /// password) go to the terminal. A command that has begun runs to its end, even if hotlap is
    /// killed; after `stop` no further command begins.
    ///
    /// # Errors
    /// The command that failed, with its last lines.
    pub fn run(
        &self,
        log: &Path,
        stop: &AtomicBool,
        on: &mut dyn FnMut(Progress),
    ) -> Result<(), InstallError> {
        for argv in self.commands(false) {
            if !stop.load(Ordering::Relaxed) {
                command::run(&argv, log, stop, on)?;
            }
        }
        Ok(())
    }
}

/// Where apt has its lists of packages (apt.conf(5), `Dir::State::lists`).
const APT_LISTS: &str = "/var/lib/apt/lists";

/// Whether apt has a list of packages. Without one, it knows no package at all.
fn has_lists(folder: &Path) -> bool {
    let is_list = |name: &str| name.contains("_Packages");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| is_list(&entry.file_name().to_string_lossy()))
}

/// Packages that apt reports as unknown.
fn unknown_packages(said: &str) -> Vec<String> {
    let named = |line: &str| {
        let line = line.strip_prefix("E: ")?;
        let located = line.strip_prefix("Unable to locate package ");
        let candidate = line.strip_prefix("Package '").and_then(|rest| {
            rest.split_once("' has no installation candidate").map(|(name, _)| name)
        });
        located.or(candidate).map(|name| name.trim().to_owned())
    };
    said.lines().filter_map(named).collect()
}

/// The size that apt reports: `Need to get 131 MB/140 MB of archives.` and `After this operation,
/// 551 MB of additional disk space will be used.`
fn size(said: &str) -> Option<Size> {
    let after = |words: &str| said.lines().find_map(|line| line.strip_prefix(words));
    let nothing = said.contains("0 newly installed");
    let download = after("Need to get ").and_then(amount).unwrap_or(0);
    match after("After this operation, ").and_then(amount) {
        Some(disk_bytes) => Some(Size { download_bytes: download, disk_bytes }),
        None => nothing.then(Size::default),
    }
}

/// Parses `1,234 kB of …` or `131 MB/140 MB of …` into bytes; apt's units are powers of 1000.
fn amount(words: &str) -> Option<u64> {
    let (number, rest) = words.split_once(' ')?;
    let number: f64 = number.replace(',', "").parse().ok()?;
    let unit = match rest.split([' ', '/']).next()? {
        "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return None,
    };
    Some((number * unit) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(id: &str, apt: &str) -> Server {
        let text = format!(
            "about = \"x\"\nurl = \"https://example.org\"\nkind = \"framework\"\n\
             contracts = [\"hello\"]\n[toolchain]\nprobe = [\"true\"]\n\
             install = {{ apt = {apt} }}\n[run]\ncommand = [\"true\"]\n"
        );
        crate::manifest::parse(&text, Path::new("/"), id).unwrap().remove(0)
    }

    fn absence(kind: MissingKind) -> MissingToolchain {
        let text = String::new;
        MissingToolchain { kind, command: text(), why: text(), remedy: text() }
    }

    #[test]
    fn packages_are_listed_once_and_servers_without_a_package_are_reported() {
        let servers = [
            server("go/a", "[\"golang-go\", \"gcc\"]"),
            server("go/b", "[\"golang-go\"]"),
            server("nim/jester", "[\"nim\"]"),
            server("x/y", "[]"),
        ];
        let kinds = [
            MissingKind::Missing,
            MissingKind::Unfit,
            MissingKind::Unreachable,
            MissingKind::Missing,
        ];
        let absences = kinds.map(absence);
        let missing = Missing::of(Some(PackageManager::Apt), servers.iter().zip(&absences));
        assert_eq!(missing.packages, ["gcc", "golang-go"]);
        assert_eq!(missing.servers, ["go/a", "go/b"]);
        let other: Vec<_> = missing.other.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(other, ["nim/jester", "x/y"]);
        let commands: Vec<_> = missing.commands(false).iter().map(|c| c.join(" ")).collect();
        assert!(commands[0].ends_with("apt-get update"));
        assert!(
            commands[1].ends_with("apt-get install --no-install-recommends --yes -- gcc golang-go")
        );
    }

    #[test]
    fn nothing_missing_needs_no_command() {
        assert!(Missing::of(Some(PackageManager::Apt), []).commands(true).is_empty());
    }

    #[test]
    fn the_size_is_read_from_apts_output() {
        let said = "The following NEW packages will be installed:\n  nim\n\
                    0 upgraded, 1 newly installed, 0 to remove and 3 not upgraded.\n\
                    Need to get 2,950 kB/8,421 kB of archives.\n\
                    After this operation, 16.2 MB of additional disk space will be used.\nAbort.\n";
        let expected = Size { download_bytes: 2_950_000, disk_bytes: 16_200_000 };
        assert_eq!(size(said), Some(expected));
        assert_eq!(expected.about_s(), 6);
        assert_eq!(size("E: broken"), None);
        assert_eq!(size("0 upgraded, 0 newly installed, 0 to remove"), Some(Size::default()));
    }

    /// Regression: in a new container, every package was said not to exist.
    #[test]
    fn without_lists_apt_is_not_asked_for_packages() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!has_lists(&folder.path().join("none")));
        std::fs::write(folder.path().join("lock"), "").unwrap();
        assert!(!has_lists(folder.path()));
        let list = "deb.debian.org_debian_dists_trixie_main_binary-amd64_Packages.lz4";
        std::fs::write(folder.path().join(list), "").unwrap();
        assert!(has_lists(folder.path()));
    }

    #[test]
    fn packages_unknown_to_apt_are_recognised() {
        let said = "Reading package lists...\nE: Unable to locate package crystal\n\
                    E: Package 'temurin-25-jdk' has no installation candidate\n";
        assert_eq!(unknown_packages(said), ["crystal", "temurin-25-jdk"]);
    }
}
