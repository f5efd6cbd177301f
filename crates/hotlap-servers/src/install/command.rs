//! Runs one command of a package manager, which outlives hotlap: an installation that is killed
//! half-way leaves the system's packages broken.
//!
//! The command runs in its own session, so neither Ctrl-C nor a closed terminal reaches it, and
//! writes to a log file, since a closed pipe would kill it too.
#![expect(unsafe_code, reason = "the moment between fork and exec")]

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::interrupt::LOOK;

/// Why an installation failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The command could not be started.
    #[error("{command}: {source}: run it by hand, as a user with permission to install packages")]
    Start {
        /// The command.
        command: String,
        /// The system's error.
        source: io::Error,
    },
    /// It exited with an error.
    #[error("{command}: {ending}: see its last lines of output")]
    Ended {
        /// The command.
        command: String,
        /// How.
        ending: String,
        /// The last lines that it printed.
        log_tail: Vec<String>,
    },
}

/// What a package manager is doing.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// It printed this line.
    Line(&'a str),
    /// The user interrupted, but the command is allowed to finish. Reported once.
    Waiting,
}

/// Runs a command that appends to the log, and follows that log. `stop` does not end the command.
pub(super) fn run(
    argv: &[String],
    log: &Path,
    stop: &AtomicBool,
    on: &mut dyn FnMut(Progress),
) -> Result<(), InstallError> {
    let command = shell_words::join(argv);
    let mut log_tail = Vec::new();
    let mut on = |progress: Progress| {
        if let Progress::Line(line) = progress {
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

/// Starts it. Also returns the log, positioned where the command's own output begins.
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
                // SAFETY: SIG_IGN is a valid disposition for each of these; the call is
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

/// Reports each line until the command has ended.
fn follow(
    mut child: Child,
    mut lines: File,
    stop: &AtomicBool,
    on: &mut dyn FnMut(Progress),
) -> io::Result<ExitStatus> {
    let mut unread = Vec::new();
    let mut is_told = false;
    loop {
        // Check before reading: what it wrote before it ended is in the log then.
        let ended = child.try_wait()?;
        lines.read_to_end(&mut unread)?;
        let whole = match ended {
            Some(_) => unread.len(),
            None => unread.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1),
        };
        let text = unread.drain(..whole).collect::<Vec<u8>>();
        for line in String::from_utf8_lossy(&text).lines() {
            on(Progress::Line(line.trim_end()));
        }
        if let Some(status) = ended {
            return Ok(status);
        }
        if stop.load(Ordering::Relaxed) && !std::mem::replace(&mut is_told, true) {
            on(Progress::Waiting);
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn words(argv: &[&str]) -> Vec<String> {
        argv.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_failed_installation_reports_its_last_lines() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut lines = Vec::new();
        let mut on = |progress: Progress| match progress {
            Progress::Line(line) => lines.push(line.to_owned()),
            Progress::Waiting => panic!("no interrupt was sent"),
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
        let mut on = |progress: Progress| match progress {
            Progress::Line(line) => told.push(line.to_owned()),
            // It ends only after this was reported.
            Progress::Waiting => {
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
