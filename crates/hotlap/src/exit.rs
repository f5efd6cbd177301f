//! The exit codes, which scripts and CI rely on.

use std::process::ExitCode;

/// The exit codes of hotlap. The numbers are part of the interface and do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything succeeded.
    Ok = 0,
    /// hotlap itself failed because of a file, the store or the system.
    Error = 1,
    /// The command line, a suite or a manifest is invalid.
    Usage = 2,
    /// A server failed, sent wrong responses, or could not take part.
    ServerFailed = 3,
    /// The measurement is not reliable. For example, a server has no lap that counts, a rule of
    /// `--fail-if` is undecided, or the selftest found a wrong figure.
    Invalid = 4,
    /// A regression exceeds both `--fail-if` and the noise.
    Regression = 5,
    /// Ctrl-C, SIGTERM or SIGHUP ended hotlap. Finished results are kept.
    Interrupted = 130,
}

impl Exit {
    /// Every exit code with its meaning, as in the help text.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Ok, "all went well"),
        (Self::Error, "an error in hotlap's environment (a file, the store, the system)"),
        (Self::Usage, "an error in the command line, a suite or a manifest"),
        (Self::ServerFailed, "a server failed, sent wrong responses, or could not be built"),
        (Self::Invalid, "no valid measurement, or too little data to decide --fail-if"),
        (Self::Regression, "a regression beyond --fail-if and beyond the noise"),
        (Self::Interrupted, "interrupted (Ctrl-C, SIGTERM, SIGHUP); finished laps are stored"),
    ];

    /// Returns the worse of two exit codes. An interrupt takes precedence over all others.
    pub fn and(self, other: Self) -> Self {
        let weight = |e: Self| match e {
            Self::Ok => 0,
            Self::Regression => 1,
            Self::Invalid => 2,
            Self::ServerFailed => 3,
            Self::Usage => 4,
            Self::Error => 5,
            Self::Interrupted => 6,
        };
        if weight(other) > weight(self) { other } else { self }
    }
}

/// The option that makes hotlap exit as `git bisect run` expects.
pub const GIT_BISECT: &str = "--git-bisect";

/// The exit code that tells `git bisect run` to skip a commit (git-bisect(1)).
const SKIP: u8 = 125;

/// The lowest exit code that ends `git bisect run`.
const ABORT: u8 = 128;

impl Exit {
    /// Returns the exit code for `git bisect run`. Only a regression makes a commit bad. A commit
    /// is skipped if its server fails, or if the measurement is not reliable. All other errors
    /// have nothing to do with the commit, so they end the bisection.
    pub fn for_git_bisect(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Regression => 1,
            Self::ServerFailed | Self::Invalid => SKIP,
            Self::Error | Self::Usage => ABORT,
            Self::Interrupted => Self::Interrupted as u8,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error in the usage of hotlap, with exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Returns a [`UsageError`] as an error.
pub fn usage<T>(message: impl Into<String>) -> anyhow::Result<T> {
    Err(UsageError(message.into()).into())
}

/// A server failure that ends the command, with exit code 3.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ServerError(pub String);

/// Returns a [`ServerError`] as an error.
pub fn server_failed<T>(message: impl Into<String>) -> anyhow::Result<T> {
    Err(ServerError(message.into()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_a_contract() {
        let numbers: Vec<u8> = Exit::ALL.iter().map(|(exit, _)| *exit as u8).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 130]);
    }

    #[test]
    fn only_a_regression_makes_a_commit_bad() {
        let codes: Vec<u8> = Exit::ALL.iter().map(|(exit, _)| exit.for_git_bisect()).collect();
        assert_eq!(codes, [0, 128, 128, 125, 125, 1, 130]);
    }

    #[test]
    fn the_worse_end_wins() {
        assert_eq!(Exit::Ok.and(Exit::Regression), Exit::Regression);
        assert_eq!(Exit::ServerFailed.and(Exit::Invalid), Exit::ServerFailed);
        assert_eq!(Exit::Interrupted.and(Exit::Error), Exit::Interrupted);
        assert_eq!(Exit::Ok.and(Exit::Ok), Exit::Ok);
    }
}
