//! Why a server could not be started or frozen.

use std::io;
use std::path::{Path, PathBuf};

use super::signal::FREEZE_LIMIT;

/// Why a server could not be frozen. It goes on as before.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// Another user's process, or one that a security policy protects.
    #[error("{name} ({pid}) may not be stopped: {cause}; run hotlap as root or as its user")]
    Refused {
        /// Its name.
        name: String,
        /// Its process id.
        pid: u32,
        /// The system's error.
        cause: io::Error,
    },
    /// It was sent SIGSTOP and did not stop in time, as in an uninterruptible wait.
    #[error("{name} ({pid}) has not stopped {} s after SIGSTOP", FREEZE_LIMIT.as_secs())]
    StillRuns {
        /// Its name.
        name: String,
        /// Its process id.
        pid: u32,
    },
    /// The process table cannot be read.
    #[error("the process table cannot be read: {0}")]
    Table(io::Error),
}

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no program.
    #[error("the command is empty; name a program")]
    Empty,
    /// The folder to run in is not there.
    #[error(
        "the folder {} cannot be entered: {cause}; create it, or correct `cwd`",
        path.display()
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The log cannot be written.
    #[error("the log {} cannot be written: {cause}; free or permit the place", path.display())]
    Log {
        /// The log.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The program cannot be executed.
    #[error("{program} cannot be executed: {cause}; {remedy}")]
    Program {
        /// The program, as it was named.
        program: String,
        /// The system's error.
        cause: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The supervisor did not do its job.
    #[error(
        "the supervisor {} did not start: {cause}; see whether it can be executed",
        program.display()
    )]
    Supervisor {
        /// Its program.
        program: PathBuf,
        /// What happened.
        cause: io::Error,
    },
}

/// What to do about a program that cannot be executed.
pub(super) fn remedy(errno: i32, program: &str, cwd: &Path) -> &'static str {
    let local = program.contains('/');
    match errno {
        libc::ENOENT if local && cwd.join(program).exists() => {
            "the interpreter that its first line names is missing: install it"
        }
        libc::ENOENT if local => "see whether the path is right, and whether it was built",
        libc::ENOENT => "install it, or give its path",
        libc::EACCES => "permit its execution with chmod +x",
        libc::ENOEXEC => "it is no program of this machine: build it here, or name its interpreter",
        _ => "start it by hand in its folder to see what is wrong",
    }
}
