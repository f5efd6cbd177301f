//! The command that starts an agent, as the user typed it and as a process.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::ChannelFault;

/// The command that starts an agent on another host: `ssh bench2`, `ip netns exec ns1`, `kubectl
/// exec -i pod --`. The command is split into words as a shell splits them. `hotlap agent` is
/// appended unless the command already ends with it. Only `agent` is appended after a path to a
/// file called `hotlap`, and to the single word `hotlap`. Everything else goes over the channel as
/// data, so nothing needs to be quoted twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCommand {
    typed: String,
    /// The words of the whole command, including `agent`. There are at least two words.
    argv: Vec<String>,
}

/// Why a command that starts an agent cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The command has no words.
    #[error("the command that starts an agent is empty: use, for example, 'ssh HOST'")]
    Empty,
    /// A quote in the command is not closed.
    #[error("{0}: a quote is not closed")]
    Quotes(String),
}

/// The file name of the installed program.
const PROGRAM: &str = "hotlap";

/// The subcommand that runs an agent.
const AGENT: &str = "agent";

impl FromStr for AgentCommand {
    type Err = CommandError;

    fn from_str(typed: &str) -> Result<Self, CommandError> {
        let split = shell_words::split(typed);
        let mut argv = split.map_err(|_| CommandError::Quotes(typed.to_owned()))?;
        let last = argv.last().ok_or(CommandError::Empty)?;
        let is_program =
            |word: &str| Path::new(word).file_name().is_some_and(|name| name == PROGRAM);
        if !matches!(&argv[..], [.., program, last] if is_program(program) && last == AGENT) {
            // A host may be called hotlap, so a bare `hotlap` after other words is not the
            // program.
            if !is_program(last) || !(last.contains('/') || argv.len() == 1) {
                argv.push(PROGRAM.to_owned());
            }
            argv.push(AGENT.to_owned());
        }
        Ok(Self { typed: typed.trim().to_owned(), argv })
    }
}

impl AgentCommand {
    /// Returns a sentence that says what to do if no agent answered. `code` is the exit code of
    /// the command, or `None` if the command is still running or was killed by a signal.
    pub(crate) fn remedy(&self, code: Option<i32>) -> String {
        let (started, host) =
            (&self.argv[..self.argv.len() - 1], &self.argv[..self.argv.len() - 2]);
        let has_path = started.last().is_some_and(|program| program != PROGRAM);
        let by_hand = format!("'{} --version'", shell_words::join(started));
        match code {
            // ssh(1), EXIT STATUS: 255 after an error of ssh, otherwise the exit status of the
            // remote command.
            Some(255) => format!("Check the connection: run {by_hand} in a terminal"),
            _ if has_path => format!("Is hotlap installed there? Check it with {by_hand}"),
            _ => {
                let words = host.iter().map(String::as_str).chain(["/path/to/hotlap"]);
                format!(
                    "Is hotlap installed there and in the PATH? Otherwise name its path: '{}'",
                    shell_words::join(words)
                )
            }
        }
    }
}

/// Shows the command as the user typed it.
impl fmt::Display for AgentCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

/// How long the command may take to end by itself once its input is closed.
const GRACE: Duration = Duration::from_secs(2);

/// How long to wait for the last output of a command that is ending.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How many bytes of the command's standard error are kept.
const KEPT_BYTES: usize = 4096;

/// The command's process, in a separate session. A terminal's Ctrl-C does not reach the command,
/// and the command cannot ask for a password on the terminal.
#[derive(Debug)]
pub(crate) struct Child {
    command: AgentCommand,
    process: Mutex<std::process::Child>,
    printed: Arc<Mutex<String>>,
}

impl Child {
    /// Starts a command, and returns it with its standard input and output.
    pub(crate) fn start(
        started: &AgentCommand,
    ) -> Result<(Self, ChildStdin, ChildStdout), ChannelFault> {
        let [program, arguments @ ..] = &started.argv[..] else {
            return Err(ChannelFault::Malformed("an empty command".to_owned()));
        };
        let fault = |why: std::io::Error| ChannelFault::Start {
            program: program.clone(),
            why: why.to_string(),
        };
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
            _ => Err(ChannelFault::Malformed("a command without input and output".to_owned())),
        }
    }

    /// Returns the end of what the command has printed to standard error so far.
    pub(crate) fn said(&self) -> String {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits briefly for the command to end, and returns the end of its standard error.
    pub(crate) fn said_last(&self) -> String {
        self.wait(LAST_WORDS);
        // The thread that reads standard error may be a little behind.
        std::thread::sleep(Duration::from_millis(20));
        self.said()
    }

    /// Returns a sentence that says what to do if no agent answers.
    pub(crate) fn remedy(&self) -> String {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let status = process.try_wait().ok().flatten();
        self.command.remedy(status.and_then(|status| status.code()))
    }

    /// Waits at most `limit` for the end of the command, and returns whether the command has
    /// ended.
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
        // The command has its own session, so it leads a process group.
        if let Some(group) = Pid::from_raw(process.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// Starts a command in its own session.
#[expect(unsafe_code)]
fn start_apart(command: &mut Command) -> std::io::Result<std::process::Child> {
    let apart = || rustix::process::setsid().map(drop).map_err(std::io::Error::from);
    // SAFETY: between fork and exec only setsid(2) is called, which is async-signal-safe.
    unsafe { command.pre_exec(apart) };
    command.spawn()
}

/// Keeps the end of what the command prints to standard error.
fn keep_last(errors: impl Read, printed: &Mutex<String>) {
    let mut errors = BufReader::new(errors);
    let mut line = Vec::new();
    // A very long line is read in pieces.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(typed: &str) -> Vec<String> {
        typed.parse::<AgentCommand>().expect("a command").argv
    }

    #[test]
    fn the_program_and_its_command_are_appended() {
        assert_eq!(argv("ssh bench2"), ["ssh", "bench2", "hotlap", "agent"]);
        assert_eq!(
            argv("kubectl exec -i pod --"),
            ["kubectl", "exec", "-i", "pod", "--", "hotlap", "agent"]
        );
        assert_eq!(
            argv("sh -c 'exec \"$@\"' 'a b'"),
            ["sh", "-c", "exec \"$@\"", "a b", "hotlap", "agent"]
        );
    }

    #[test]
    fn a_path_to_the_program_replaces_its_name() {
        assert_eq!(argv("ssh bench2 /opt/hotlap"), ["ssh", "bench2", "/opt/hotlap", "agent"]);
        assert_eq!(argv("./hotlap"), ["./hotlap", "agent"]);
        assert_eq!(argv("hotlap"), ["hotlap", "agent"]);
        assert_eq!(argv("ssh hotlap"), ["ssh", "hotlap", "hotlap", "agent"]);
        assert_eq!(argv("ssh bench2 hotlap agent"), ["ssh", "bench2", "hotlap", "agent"]);
        assert_eq!(argv("srun /opt/hotlap agent"), ["srun", "/opt/hotlap", "agent"]);
        assert_eq!(argv("ssh agent"), ["ssh", "agent", "hotlap", "agent"]);
        assert_eq!(argv("env /opt/hotlap.sh"), ["env", "/opt/hotlap.sh", "hotlap", "agent"]);
    }

    #[test]
    fn the_remedy_fits_the_exit_code_and_the_command() {
        let remedy = |typed: &str, code| typed.parse::<AgentCommand>().unwrap().remedy(code);
        let installed = "Is hotlap installed there and in the PATH? Otherwise name its path: 'ssh \
                         b /path/to/hotlap'";
        assert_eq!(remedy("ssh b", Some(127)), installed);
        assert_eq!(remedy("ssh b", None), installed);
        assert_eq!(remedy("ssh b hotlap agent", None), installed);
        assert_eq!(
            remedy("ssh b /opt/hotlap", Some(127)),
            "Is hotlap installed there? Check it with 'ssh b /opt/hotlap --version'"
        );
        assert_eq!(
            remedy("ssh b", Some(255)),
            "Check the connection: run 'ssh b hotlap --version' in a terminal"
        );
        assert_eq!(
            remedy("ssh b /opt/hotlap", Some(255)),
            "Check the connection: run 'ssh b /opt/hotlap --version' in a terminal"
        );
    }

    #[test]
    fn a_command_without_words_or_with_an_open_quote_is_an_error() {
        assert_eq!(" ".parse::<AgentCommand>(), Err(CommandError::Empty));
        let error = "ssh 'a".parse::<AgentCommand>().expect_err("an open quote");
        assert_eq!(error.to_string(), "ssh 'a: a quote is not closed");
    }
}
