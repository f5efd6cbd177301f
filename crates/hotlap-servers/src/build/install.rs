//! Installs missing toolchains from system packages.
//!
//! Only system packages are installed here. Packages of a language's own package manager are part
//! of the server's build.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use super::toolchain::{MissingKind, MissingToolchain, PackageManager};
use crate::catalogue::CatalogueServer;
use crate::interrupt::LOOK;

/// What this machine lacks to build some servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MissingPackages {
    /// The package manager. `None` if hotlap does not know the package manager of this machine.
    pub manager: Option<PackageManager>,
    /// The packages to install, sorted and without duplicates.
    pub packages: Vec<String>,
    /// The ids of the servers that can be built once these packages are installed.
    pub servers: Vec<String>,
    /// The ids of the servers whose toolchains this package manager cannot install, each with the
    /// remedy.
    pub other: Vec<(String, MissingToolchain)>,
    /// Packages that the package manager does not know, found by [`MissingPackages::measure`].
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
    /// Returns the estimated duration, in seconds. The estimate, 5 s plus 1 s for every 13 MB on
    /// disk, is a rough fit to two installations on two cores.
    pub fn about_s(self) -> u64 {
        5 + self.disk_bytes / 13_000_000
    }
}

impl MissingPackages {
    /// Groups the missing toolchains of these servers by how they are installed on this machine.
    pub fn of<'a>(
        manager: Option<PackageManager>,
        states: impl IntoIterator<Item = (&'a CatalogueServer, &'a MissingToolchain)>,
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

    /// Returns the commands that install the packages, in order. The list is empty if nothing is to
    /// be installed.
    pub fn commands(&self, ask: bool) -> Vec<Vec<String>> {
        match self.manager {
            Some(manager) if !self.packages.is_empty() => {
                vec![manager.update(), manager.command(&self.packages, ask)]
            }
            _ => Vec::new(),
        }
    }

    /// Asks the package manager for the size of the installation. Packages that the package manager
    /// does not know are moved to [`MissingPackages::unknown`]. Returns `None` if the package
    /// manager does not report a size. The result is also `None` without a list of packages, as in
    /// a new container.
    pub fn measure(&mut self) -> Option<Size> {
        if self.manager != Some(PackageManager::Apt) || !has_lists(Path::new(APT_LISTS)) {
            return None;
        }
        // Each pass either returns or removes at least one unknown package, so the loop ends.
        while !self.packages.is_empty() {
            // A dry run: the confirmation is declined. A dry run takes no lock, so any user may run
            // it.
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

    /// Installs the packages. The output is appended to `log` and reported line by line. Questions,
    /// such as for a password, go to the terminal. A command that has begun runs to its end, even
    /// if hotlap is killed. After `stop` is set, no further command begins.
    ///
    /// # Errors
    /// If a command cannot be started, or fails.
    pub fn run(
        &self,
        log: &Path,
        stop: &AtomicBool,
        on: &mut dyn FnMut(InstallProgress),
    ) -> Result<(), InstallError> {
        for argv in self.commands(false) {
            if !stop.load(Ordering::Relaxed) {
                run(&argv, log, stop, on)?;
            }
        }
        Ok(())
    }
}

/// The folder of apt's package lists (apt.conf(5), `Dir::State::lists`).
const APT_LISTS: &str = "/var/lib/apt/lists";

/// Returns whether apt has a list of packages. Without a list, apt knows only the installed
/// packages.
fn has_lists(folder: &Path) -> bool {
    let is_list = |name: &str| name.contains("_Packages");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| is_list(&entry.file_name().to_string_lossy()))
}

/// Returns the packages that apt reports as unknown.
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

/// Parses the size that apt reports: `Need to get 131 MB/140 MB of archives.` and `After this
/// operation, 551 MB of additional disk space will be used.`
fn size(said: &str) -> Option<Size> {
    let after = |words: &str| said.lines().find_map(|line| line.strip_prefix(words));
    let nothing = said.contains("0 newly installed");
    let download = after("Need to get ").and_then(amount).unwrap_or(0);
    match after("After this operation, ").and_then(amount) {
        Some(disk_bytes) => Some(Size { download_bytes: download, disk_bytes }),
        None => nothing.then(Size::default),
    }
}

/// Parses `1,234 kB of …` or `131 MB/140 MB of …` into bytes. Apt's units are powers of 1000.
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

/// Why an installation failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The command could not be started.
    #[error(
        "cannot run {command}: {source}. Install the packages yourself, as a user who may do so"
    )]
    Start {
        /// The command.
        command: String,
        /// The system's error.
        source: io::Error,
    },
    /// The command exited with an error.
    #[error("{command}: {ending}: see the last lines of its output")]
    Ended {
        /// The command.
        command: String,
        /// How the command ended.
        ending: String,
        /// The last lines that the command printed.
        log_tail: Vec<String>,
    },
}

/// What a package manager is doing.
#[derive(Debug, Clone, Copy)]
pub enum InstallProgress<'a> {
    /// The package manager printed this line.
    Line(&'a str),
    /// The user interrupted, but the command is allowed to finish. This event is reported once.
    Waiting,
}

/// Runs a package manager's command, which appends to the log, and follows the log. `stop` does not
/// end the command.
///
/// The command outlives hotlap, because an installation that is killed half-way leaves the system's
/// packages broken. Therefore, the command runs in its own session, where neither Ctrl-C nor a
/// closed terminal reaches it. The command writes to a log file, because a closed pipe would kill
/// it, too.
fn run(
    argv: &[String],
    log: &Path,
    stop: &AtomicBool,
    on: &mut dyn FnMut(InstallProgress),
) -> Result<(), InstallError> {
    let command = shell_words::join(argv);
    let mut log_tail = Vec::new();
    let mut on = |progress: InstallProgress| {
        if let InstallProgress::Line(line) = progress {
            log_tail.push(line.to_owned());
            log_tail.drain(..log_tail.len().saturating_sub(12));
        }
        on(progress);
    };
    let status = start(argv, &command, log)
        .and_then(|(child, lines)| follow(child, lines, stop, &mut on))
        .map_err(|source| InstallError::Start { command: command.clone(), source })?;
    if status.success() {
        return Ok(());
    }
    let ending =
        status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}"));
    Err(InstallError::Ended { command, ending, log_tail })
}

/// Starts the command. Also returns the log, positioned where the command's own output begins.
#[expect(unsafe_code, reason = "the moment between fork and exec")]
fn start(argv: &[String], command: &str, log: &Path) -> io::Result<(Child, File)> {
    let mut output = File::options().append(true).create(true).open(log)?;
    writeln!(output, "$ {command}")?;
    let mut lines = File::open(log)?;
    lines.seek(SeekFrom::End(0))?;
    let asks = argv[0] == "sudo";
    let argv = if asks { in_a_session(argv) } else { argv.to_vec() };
    let mut starter = Command::new(&argv[0]);
    starter.args(&argv[1..]).env("DEBIAN_FRONTEND", "noninteractive");
    starter.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let apart = move || match asks {
        false => rustix::process::setsid().map(drop).map_err(io::Error::from),
        true => {
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                // SAFETY: SIG_IGN is a valid disposition for each of these signals, and the call is
                // async-signal-safe.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
            Ok(())
        }
    };
    // SAFETY: the closure only makes system calls that are async-signal-safe and allocates nothing.
    unsafe { starter.pre_exec(apart) };
    Ok((starter.spawn()?, lines))
}

/// Gives a sudo command its own session. sudo itself stays in the terminal's session, where it asks
/// for the password.
fn in_a_session(argv: &[String]) -> Vec<String> {
    let apart = ["sudo", "setsid", "--fork", "--wait"].map(str::to_owned);
    apart.into_iter().chain(argv[1..].iter().cloned()).collect()
}

/// Reports each line of the log until the command has ended.
fn follow(
    mut child: Child,
    mut lines: File,
    stop: &AtomicBool,
    on: &mut dyn FnMut(InstallProgress),
) -> io::Result<ExitStatus> {
    let mut unread = Vec::new();
    let mut is_told = false;
    loop {
        // Check for the command's end before reading the log, so that its last output is read,
        // too.
        let ended = child.try_wait()?;
        lines.read_to_end(&mut unread)?;
        let whole = match ended {
            Some(_) => unread.len(),
            None => unread.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1),
        };
        let text = unread.drain(..whole).collect::<Vec<u8>>();
        for line in String::from_utf8_lossy(&text).lines() {
            on(InstallProgress::Line(line.trim_end()));
        }
        if let Some(status) = ended {
            return Ok(status);
        }
        if stop.load(Ordering::Relaxed) && !std::mem::replace(&mut is_told, true) {
            on(InstallProgress::Waiting);
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn server(id: &str, apt: &str) -> CatalogueServer {
        let text = format!(
            "about = \"x\"\nurl = \"https://example.org\"\nkind = \"framework\"\n\
             contracts = [\"hello\"]\n[toolchain]\nprobe = [\"true\"]\n\
             install = {{ apt = {apt} }}\n[run]\ncommand = [\"true\"]\n"
        );
        crate::catalogue::parse(&text, Path::new("/"), id).unwrap().remove(0)
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
        let missing = MissingPackages::of(Some(PackageManager::Apt), servers.iter().zip(&absences));
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
        assert!(MissingPackages::of(Some(PackageManager::Apt), []).commands(true).is_empty());
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

    /// Regression: in a new container, hotlap said that no package exists.
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

    fn words(argv: &[&str]) -> Vec<String> {
        argv.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_failed_installation_reports_its_last_lines() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut lines = Vec::new();
        let mut on = |progress: InstallProgress| match progress {
            InstallProgress::Line(line) => lines.push(line.to_owned()),
            InstallProgress::Waiting => panic!("no interrupt was sent"),
        };
        let argv = words(&["sh", "-c", "echo one; printf two >&2; exit 100"]);
        let error = run(&argv, log.path(), &AtomicBool::new(false), &mut on).unwrap_err();
        assert_eq!(lines, ["one", "two"]);
        let InstallError::Ended { ending, log_tail, .. } = error else { panic!() };
        assert_eq!((ending.as_str(), log_tail), ("exit code 100", lines));
        let log = fs::read_to_string(log.path()).unwrap();
        assert_eq!(log, "$ sh -c 'echo one; printf two >&2; exit 100'\none\ntwo");
    }

    #[test]
    fn an_interrupt_is_reported_once_and_does_not_end_the_command() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("setup.log");
        File::create(&log).unwrap();
        let mut told = Vec::new();
        let mut on = |progress: InstallProgress| match progress {
            InstallProgress::Line(line) => told.push(line.to_owned()),
            // The command ends only after this event was reported.
            InstallProgress::Waiting => {
                told.push("waits".to_owned());
                fs::write(folder.path().join("go"), "").unwrap();
            }
        };
        let script = "while [ ! -e \"$0\" ]; do sleep 0.02; done; sleep 0.2; echo done";
        let go = folder.path().join("go");
        let argv = words(&["sh", "-c", script, go.to_str().unwrap()]);
        run(&argv, &log, &AtomicBool::new(true), &mut on).unwrap();
        assert_eq!(told, ["waits", "done"]);
    }

    #[test]
    fn sudo_asks_in_the_terminals_session_and_its_command_has_another() {
        assert_eq!(
            in_a_session(&words(&["sudo", "apt-get", "update"])).join(" "),
            "sudo setsid --fork --wait apt-get update"
        );
    }
}
