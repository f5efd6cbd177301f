//! Why a server could not be started or frozen.

use std::io;
use std::path::{Path, PathBuf};

use super::signal::FREEZE_LIMIT;

/// Why a server could not be frozen. It keeps running.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// Another user's process, or one that a security policy protects.
    #[error("cannot stop {name} ({pid}): {cause}; run hotlap as root or as that process's user")]
    Refused {
        /// Its name.
        name: String,
        /// Its process id.
        pid: u32,
        /// The system's error.
        cause: io::Error,
    },
    /// The process was sent SIGSTOP but did not stop in time, for instance in an uninterruptible
    /// wait.
    #[error("{name} ({pid}) was still running {} s after SIGSTOP", FREEZE_LIMIT.as_secs())]
    StillRuns {
        /// Its name.
        name: String,
        /// Its process id.
        pid: u32,
    },
    /// The process table cannot be read.
    #[error("cannot read the process table: {0}")]
    Table(io::Error),
}

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The command is empty.
    #[error("the command is empty; give a program to start")]
    Empty,
    /// The working directory cannot be entered.
    #[error(
        "cannot enter the folder {}: {cause}; create it, or correct `cwd`",
        path.display()
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The log cannot be written.
    #[error("cannot write the log {}: {cause}; check permissions and disk space", path.display())]
    Log {
        /// The log.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The program cannot be executed.
    #[error("cannot execute {program}: {cause}; {remedy}")]
    Program {
        /// The program, as given.
        program: String,
        /// The system's error.
        cause: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The supervisor did not start or did not answer.
    #[error(
        "the supervisor {} did not start: {cause}; check that this program can be executed",
        program.display()
    )]
    Supervisor {
        /// Its program.
        program: PathBuf,
        /// What happened.
        cause: io::Error,
    },
}

/// The remedy for a program that cannot be executed.
pub(super) fn remedy(errno: i32, program: &str, cwd: &Path) -> &'static str {
    let local = program.contains('/');
    match errno {
        libc::ENOENT if local && cwd.join(program).exists() => {
            "install the interpreter named in its first line, which is missing"
        }
        libc::ENOENT if local => "check the path, and that it has been built",
        libc::ENOENT => "install it or give its full path",
        libc::EACCES => "make it executable with chmod +x",
        libc::ENOEXEC => "it is no program for this machine: build it here or name its interpreter",
        _ => "run it by hand in its folder to see what is wrong",
    }
}
