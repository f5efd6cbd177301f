//! What is missing, by the package manager that brings it, and the command that installs it.

use crate::manifest::Install;

/// A system's package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Manager {
    /// Debian and its like.
    Apt,
    /// Homebrew.
    Brew,
}

impl Manager {
    /// The one that this machine has.
    #[must_use]
    pub fn here() -> Option<Self> {
        [(Self::Apt, "apt-get"), (Self::Brew, "brew")]
            .into_iter()
            .find(|(_, program)| on_path(program))
            .map(|(manager, _)| manager)
    }

    /// Its share of what a server needs.
    #[must_use]
    pub fn packages(self, install: &Install) -> &[String] {
        match self {
            Self::Apt => &install.apt,
            Self::Brew => &install.brew,
        }
    }

    /// The command that installs packages; `ask`: it asks before it does.
    #[must_use]
    pub fn command(self, packages: &[String], ask: bool) -> Vec<String> {
        let mut words: Vec<&str> = Vec::new();
        match self {
            Self::Apt => {
                if !rustix::process::geteuid().is_root() {
                    words.push("sudo");
                }
                words.extend(["apt-get", "install", "--no-install-recommends"]);
                if !ask {
                    words.push("--yes");
                }
            }
            Self::Brew => words.extend(["brew", "install"]),
        }
        words.into_iter().map(str::to_owned).chain(packages.iter().cloned()).collect()
    }
}

fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}
