//! The system's package manager and its commands.

use crate::manifest::Install;

/// A system's package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PackageManager {
    /// Debian and derivatives.
    Apt,
    /// Homebrew.
    Brew,
}

impl PackageManager {
    /// The package manager of this machine.
    pub fn here() -> Option<Self> {
        [(Self::Apt, "apt-get"), (Self::Brew, "brew")]
            .into_iter()
            .find(|(_, program)| on_path(program))
            .map(|(manager, _)| manager)
    }

    /// The packages that a server needs from it.
    pub fn packages(self, install: &Install) -> &[String] {
        match self {
            Self::Apt => &install.apt,
            Self::Brew => &install.brew,
        }
    }

    /// The command that updates the list of packages.
    pub fn update(self) -> Vec<String> {
        match self {
            Self::Apt => as_root(&["apt-get", "update"]),
            Self::Brew => vec!["brew".to_owned(), "update".to_owned()],
        }
    }

    /// The command that installs packages; with `ask` it asks for confirmation.
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

fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}
