//! Runs one command of a probe or a build. When the user interrupts, everything that it started
//! ends.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::interrupt;
use crate::process::{Process, ProcessExit, ProcessSetting, StartError, Supervisor};

/// Variables by which an outer cargo build would redirect the server's build output.
const OUTER: [&str; 2] = ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"];

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself.
    Exited(ExitStatus),
    /// Killed because it took longer than this.
    TooLong(Duration),
    /// Killed because the user interrupted.
    Stopped,
}

impl Ended {
    pub(crate) fn success(self) -> bool {
        matches!(self, Self::Exited(status) if status.success())
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => match status.code() {
                Some(code) => write!(f, "exit code {code}"),
                None => write!(f, "{status}"),
            },
            Self::TooLong(limit) => write!(f, "killed after {} s", limit.as_secs()),
            Self::Stopped => f.write_str("interrupted"),
        }
    }
}

/// The output of a short command.
pub(crate) struct Captured {
    pub(crate) ended: Ended,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The command as a process would be started for it: paths are relative to its folder.
fn command(argv: &[String], cwd: &Path) -> Command {
    let program = Path::new(&argv[0]);
    let mut command = if argv[0].contains('/') && program.is_relative() {
        Command::new(cwd.join(program))
    } else {
        Command::new(program)
    };
    command.args(&argv[1..]).current_dir(cwd).stdin(Stdio::null()).process_group(0);
    OUTER.iter().for_each(|variable| _ = command.env_remove(variable));
    command
}

/// Runs a command with little output.
pub(crate) fn capture(
    argv: &[String],
    cwd: &Path,
    limit: Duration,
    stop: &AtomicBool,
) -> io::Result<Captured> {
    let mut child = command(argv, cwd).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().map(reader);
    let stderr = child.stderr.take().map(reader);
    let ended = wait(&mut child, limit, stop)?;
    // A process that inherited the pipe and is still running must not block this.
    let said = |reader: Option<mpsc::Receiver<String>>| {
        reader.and_then(|r| r.recv_timeout(Duration::from_secs(2)).ok()).unwrap_or_default()
    };
    Ok(Captured { ended, stdout: said(stdout), stderr: said(stderr) })
}

/// Runs a command and appends its output to a log, in the order written. A supervisor ends it with
/// everything that it started: when it exits, when the user interrupts, and when hotlap is killed.
pub(crate) fn logged(
    argv: &[String],
    cwd: &Path,
    (log, path): (&File, &Path),
    supervisor: &Supervisor,
    limit: Duration,
    stop: &AtomicBool,
) -> io::Result<Ended> {
    let setting = ProcessSetting {
        argv: argv.to_vec(),
        env: BTreeMap::new(),
        cwd: cwd.to_owned(),
        cpus: Vec::new(),
        log: path.to_owned(),
    };
    let supervisor = supervisor.clone().without(&OUTER);
    let started = Process::start_with_log(&setting, &supervisor, log.try_clone()?);
    let mut process = started.map_err(|error| match error {
        StartError::Program { cause, .. } => cause,
        other => io::Error::other(other),
    })?;
    let until = Instant::now() + limit;
    let ended = loop {
        if let Some(exit) = process.wait(interrupt::LOOK) {
            break match exit {
                ProcessExit::Code(code) => Ended::Exited(ExitStatus::from_raw(code << 8)),
                ProcessExit::Signal(signal) => Ended::Exited(ExitStatus::from_raw(signal)),
                ProcessExit::Lost => return Err(io::Error::other("its supervisor was killed")),
            };
        }
        if stop.load(Ordering::Relaxed) {
            break Ended::Stopped;
        }
        if Instant::now() > until {
            break Ended::TooLong(limit);
        }
    };
    process.stop(Duration::ZERO);
    Ok(ended)
}

fn reader(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.by_ref().take(1 << 20).read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
        let _ = io::copy(&mut pipe, &mut io::sink());
    });
    receiver
}

fn wait(child: &mut Child, limit: Duration, stop: &AtomicBool) -> io::Result<Ended> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::Exited(status));
        }
        let ended = if started.elapsed() > limit {
            Ended::TooLong(limit)
        } else if interrupt::sleep(pause, stop) {
            pause = (pause * 2).min(interrupt::LOOK);
            continue;
        } else {
            Ended::Stopped
        };
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait();
        return Ok(ended);
    }
}
