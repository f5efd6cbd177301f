//! Finds out whether a server's toolchain is installed, and how to install a missing toolchain.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::step;
use crate::catalogue::{CatalogueServer, Install};
use crate::database::Programs;

/// The time limit for one probe. A JVM language's probe takes a second or two on a busy machine.
const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// Why a server's toolchain cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{command}: {why}: {remedy}")]
pub struct MissingToolchain {
    /// How the toolchain is missing.
    pub kind: MissingKind,
    /// The probe command that failed.
    pub command: String,
    /// How the probe failed.
    pub why: String,
    /// The command that installs the toolchain, or where to get it.
    pub remedy: String,
}

/// In which way a toolchain is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MissingKind {
    /// The program is not installed.
    Missing,
    /// The program is installed, but the probe rejects it: it has the wrong version or is
    /// incomplete.
    Unfit,
    /// No common registry has the toolchain. The remedy says where to get it.
    Unreachable,
}

/// Probes the toolchain of one server. Returns the output of the probes.
///
/// # Errors
/// Returns what is missing and how to install it.
pub fn probe(server: &CatalogueServer, stop: &AtomicBool) -> Result<String, MissingToolchain> {
    let mut receipt = String::new();
    for command in &server.toolchain.probe {
        match run_probe(command, &server.folder, stop) {
            Ok(output) => receipt.push_str(&output),
            Err((kind, why)) => return Err(absence(server, command, kind, why)),
        }
    }
    Ok(receipt)
}

/// Finds out whether PostgreSQL is installed, if a contract of the server needs it.
///
/// # Errors
/// If PostgreSQL is needed but not installed. The error says how to install it.
pub fn probe_database(server: &CatalogueServer) -> Result<(), MissingToolchain> {
    if !server.needs_database() {
        return Ok(());
    }
    let missing = |why| absence(server, &["postgres".to_owned()], MissingKind::Missing, why);
    Programs::find(None).map(drop).map_err(missing)
}

/// Probes many servers, as many at a time as there are cores. Identical probes of one folder are
/// run once. The results are in the order of the servers.
pub fn probe_all(
    servers: &[&CatalogueServer],
    stop: &AtomicBool,
) -> Vec<Result<String, MissingToolchain>> {
    let key =
        |server: &&'_ CatalogueServer| (server.folder.clone(), server.toolchain.probe.clone());
    step::map_groups(servers, key, step::threads(), |group| {
        let output = probe(group[0], stop);
        // Variants of one folder share the output of the probe, but not the remedy.
        let of = |server: &&&CatalogueServer| match &output {
            Ok(receipt) => Ok(receipt.clone()),
            Err(a) => Err(absence(server, &words(&a.command), a.kind, a.why.clone())),
        };
        group.iter().map(of).collect()
    })
}

/// Works like [`probe_all`], and also looks for PostgreSQL if a server's contracts need it.
pub fn probe_with_databases(
    servers: &[&CatalogueServer],
    stop: &AtomicBool,
) -> Vec<Result<String, MissingToolchain>> {
    let probed = probe_all(servers, stop).into_iter().zip(servers);
    probed
        .map(|(probed, server)| probed.and_then(|output| probe_database(server).map(|()| output)))
        .collect()
}

fn words(command: &str) -> Vec<String> {
    shell_words::split(command).unwrap_or_else(|_| vec![command.to_owned()])
}

fn run_probe(
    command: &[String],
    folder: &Path,
    stop: &AtomicBool,
) -> Result<String, (MissingKind, String)> {
    let captured =
        step::capture(command, folder, PROBE_LIMIT, stop).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                (MissingKind::Missing, format!("{:?} is not installed", command[0]))
            }
            _ => (MissingKind::Unfit, format!("cannot start: {error}")),
        })?;
    let output = format!("{}{}", captured.stdout, captured.stderr);
    if captured.ended.success() {
        return Ok(output);
    }
    let last = output.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no output");
    Err((MissingKind::Unfit, format!("{}: {last}", captured.ended)))
}

fn absence(
    server: &CatalogueServer,
    command: &[String],
    kind: MissingKind,
    why: String,
) -> MissingToolchain {
    let command = shell_words::join(command);
    match &server.toolchain.upstream {
        Some(upstream) => MissingToolchain {
            kind: MissingKind::Unreachable,
            command,
            why: format!("{why}; {}", upstream.why),
            remedy: format!("install with: {}", upstream.install),
        },
        None => {
            MissingToolchain { kind, command, why, remedy: remedy(server, PackageManager::here()) }
        }
    }
}

/// Says how to install a server's toolchain with the machine's package manager. Without a known
/// package manager, lists the names of the Debian packages.
fn remedy(server: &CatalogueServer, manager: Option<PackageManager>) -> String {
    let install = &server.toolchain.install;
    let packages = manager.unwrap_or(PackageManager::Apt).packages(install);
    if packages.is_empty() {
        return format!("see {}", server.url);
    }
    match manager {
        Some(manager) => {
            format!("install with: {}", shell_words::join(manager.command(packages, true)))
        }
        None => format!(
            "neither apt-get nor brew is installed. Install these packages (Debian's names): {}. \
             Or see {}",
            packages.join(", "),
            server.url
        ),
    }
}

/// A system's package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PackageManager {
    /// The package manager of Debian and derivatives.
    Apt,
    /// Homebrew.
    Brew,
}

impl PackageManager {
    /// Returns the package manager of this machine, if hotlap knows it.
    pub fn here() -> Option<Self> {
        [(Self::Apt, "apt-get"), (Self::Brew, "brew")]
            .into_iter()
            .find(|(_, program)| on_path(program))
            .map(|(manager, _)| manager)
    }

    /// Returns the packages of this package manager that a server needs.
    pub fn packages(self, install: &Install) -> &[String] {
        match self {
            Self::Apt => &install.apt,
            Self::Brew => &install.brew,
        }
    }

    /// Returns the command that updates the list of packages.
    pub fn update(self) -> Vec<String> {
        match self {
            Self::Apt => as_root(&["apt-get", "update"]),
            Self::Brew => vec!["brew".to_owned(), "update".to_owned()],
        }
    }

    /// Returns the command that installs packages. Only apt-get asks for confirmation, with `ask`.
    pub fn command(self, packages: &[String], ask: bool) -> Vec<String> {
        let mut words = match self {
            Self::Apt => as_root(&["apt-get", "install", "--no-install-recommends"]),
            Self::Brew => vec!["brew".to_owned(), "install".to_owned()],
        };
        if self == Self::Apt && !ask {
            words.push("--yes".to_owned());
        }
        words.push("--".to_owned());
        words.extend(packages.iter().cloned());
        words
    }
}

fn as_root(words: &[&str]) -> Vec<String> {
    let sudo = (!rustix::process::geteuid().is_root()).then_some("sudo");
    sudo.iter().chain(words).map(|&word| word.to_owned()).collect()
}

/// Returns whether a folder of `PATH` has a file of this name.
pub fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    fn server(toolchain: &str) -> CatalogueServer {
        let text = format!(
            "about = \"x\"\nurl = \"https://example.org\"\nkind = \"framework\"\n\
             contracts = [\"hello\"]\n[toolchain]\n{toolchain}\n[run]\ncommand = [\"true\"]\n"
        );
        catalogue::parse(&text, Path::new("/"), "x/y").unwrap().remove(0)
    }

    fn probed(toolchain: &str) -> Result<String, MissingToolchain> {
        probe(&server(toolchain), &AtomicBool::new(false))
    }

    #[test]
    fn a_probe_that_succeeds_returns_its_output() {
        assert_eq!(probed("probe = [[\"echo\", \"a\"], [\"echo\", \"b\"]]").unwrap(), "a\nb\n");
    }

    #[test]
    fn without_a_package_manager_the_remedy_names_the_packages() {
        let server = server("probe = [\"x\"]\ninstall = { apt = [\"gcc\", \"make\"], brew = [] }");
        assert_eq!(
            remedy(&server, None),
            "neither apt-get nor brew is installed. Install these packages (Debian's names): gcc, \
             make. Or see https://example.org"
        );
        assert!(
            remedy(&server, Some(PackageManager::Apt))
                .ends_with("install --no-install-recommends -- gcc make")
        );
        assert_eq!(remedy(&server, Some(PackageManager::Brew)), "see https://example.org");
    }

    #[test]
    fn a_missing_program_is_reported_with_how_to_install_it() {
        let absence = probed(
            "probe = [\"no-such-compiler\", \"-v\"]\n\
             install = { apt = [\"gcc\"], brew = [\"gcc\"] }",
        )
        .unwrap_err();
        assert_eq!(absence.kind, MissingKind::Missing);
        assert!(absence.to_string().starts_with(
            "no-such-compiler -v: \"no-such-compiler\" is not installed: install with: "
        ));
        assert!(absence.remedy.ends_with(" gcc"), "{}", absence.remedy);
    }

    #[test]
    fn a_wrong_version_is_reported_in_the_probes_own_words() {
        let absence =
            probed("probe = [\"sh\", \"-c\", \"echo needs Java 25, found 17 >&2; exit 3\"]")
                .unwrap_err();
        assert_eq!(absence.kind, MissingKind::Unfit);
        assert_eq!(absence.why, "exit code 3: needs Java 25, found 17");
        assert_eq!(absence.remedy, "see https://example.org");
    }

    #[test]
    fn a_toolchain_that_no_registry_has_names_its_source() {
        let absence = probed(
            "probe = [\"false\"]\nupstream = { install = \"nimble install jester\", \
             why = \"only nimble has it\" }",
        )
        .unwrap_err();
        assert_eq!(
            absence.to_string(),
            "false: exit code 1: no output; only nimble has it: install with: nimble install \
             jester"
        );
    }

    #[test]
    fn results_of_many_probes_are_in_the_order_of_the_servers() {
        let servers = [
            server("probe = [\"echo\", \"a\"]"),
            server("probe = [\"false\"]"),
            server("probe = [\"echo\", \"a\"]"),
        ];
        let servers: Vec<_> = servers.iter().collect();
        let answers = probe_all(&servers, &AtomicBool::new(false));
        assert_eq!(answers[0].as_deref(), Ok("a\n"));
        assert!(answers[1].is_err());
        assert_eq!(answers[2].as_deref(), Ok("a\n"));
    }
}
