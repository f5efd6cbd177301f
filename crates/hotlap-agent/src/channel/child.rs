//! The command that starts an agent, as a process.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::command::AgentCommand;
use crate::error::Fault;

/// How long the command has to end by itself once its input is closed.
const GRACE: Duration = Duration::from_secs(2);

/// How long to wait for the last words of a command that has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How much of what the command prints to standard error is kept.
const KEPT_BYTES: usize = 4096;

/// The command, with a session of its own: a terminal's Ctrl-C does not reach it, and it cannot
/// wait for a password that is typed there.
#[derive(Debug)]
pub(super) struct Child {
    command: AgentCommand,
    process: Mutex<std::process::Child>,
    printed: Arc<Mutex<String>>,
}

impl Child {
    /// Starts a command, and returns it with its standard input and output.
    pub(super) fn start(started: &AgentCommand) -> Result<(Self, ChildStdin, ChildStdout), Fault> {
        let [program, arguments @ ..] = started.argv() else {
            return Err(Fault::Malformed("an empty command".to_owned()));
        };
        let fault =
            |why: std::io::Error| Fault::Start { program: program.clone(), why: why.to_string() };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut process = start_apart(&mut command).map_err(fault)?;
        let (input, output, errors) =
            (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let printed = Arc::new(Mutex::new(String::new()));
        if let Some(errors) = errors {
            let printed = printed.clone();
            std::thread::spawn(move || keep_last(errors, &printed));
        }
        let child = Self { command: started.clone(), process: Mutex::new(process), printed };
        match (input, output) {
            (Some(input), Some(output)) => Ok((child, input, output)),
            _ => Err(Fault::Malformed("a command without input and output".to_owned())),
        }
    }

    /// What the command has printed to standard error so far: its end.
    pub(super) fn said(&self) -> String {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same, of a command that is ending.
    pub(super) fn said_last(&self) -> String {
        self.wait(LAST_WORDS);
        // The thread that reads it may be a little behind.
        std::thread::sleep(Duration::from_millis(20));
        self.said()
    }

    /// What to do if no agent answers: a sentence.
    pub(super) fn remedy(&self) -> String {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let status = process.try_wait().ok().flatten();
        self.command.remedy(status.and_then(|status| status.code()))
    }

    /// Waits for the end of the command, and returns whether it has ended.
    fn wait(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if !matches!(process.try_wait(), Ok(None)) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.wait(GRACE) {
            return;
        }
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        // It leads a process group, since it has a session of its own.
        if let Some(group) = Pid::from_raw(process.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// Starts a command in a session of its own.
#[expect(unsafe_code)]
fn start_apart(command: &mut Command) -> std::io::Result<std::process::Child> {
    let apart = || rustix::process::setsid().map(drop).map_err(std::io::Error::from);
    // SAFETY: between fork and exec only setsid(2) is called, which is async-signal-safe.
    unsafe { command.pre_exec(apart) };
    command.spawn()
}

/// Keeps the end of what is printed.
fn keep_last(errors: impl Read, printed: &Mutex<String>) {
    let mut errors = BufReader::new(errors);
    let mut line = Vec::new();
    // A line without an end is read in pieces.
    while let Ok(1..) = errors.by_ref().take(KEPT_BYTES as u64).read_until(b'\n', &mut line) {
        let mut kept = printed.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_str(&String::from_utf8_lossy(&line));
        let mut from = kept.len().saturating_sub(KEPT_BYTES);
        while !kept.is_char_boundary(from) {
            from += 1;
        }
        kept.drain(..from);
        line.clear();
    }
}
