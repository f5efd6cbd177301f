//! The protocol between hotlap and a supervisor: one JSON object per line over a socket pair.
//!
//! There is no message for hotlap's death. The kernel closes hotlap's end of the socket pair, and
//! the supervisor then ends the server.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The name of a supervisor's process. The name is not `hotlap`, so that `killall -9 hotlap` does
/// not kill the supervisors, too.
pub(super) const SUPERVISOR_NAME: &str = "server-guard";

/// The settings that a server is started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSetting {
    /// The program and its arguments, without a shell. A path such as `./server` is relative to
    /// `cwd`.
    pub argv: Vec<String>,
    /// Variables to add to hotlap's environment.
    pub env: BTreeMap<String, String>,
    /// The working directory.
    pub cwd: PathBuf,
    /// The cores that the server may use. Empty if the server is not pinned.
    pub cpus: Vec<usize>,
    /// The file that receives stdout and stderr.
    pub log: PathBuf,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessExit {
    /// The process exited with this code.
    Code(i32),
    /// The process was ended by this signal.
    Signal(i32),
    /// The process ended when its supervisor was killed, so its own status is unknown.
    Lost,
}

/// Formats a verb phrase: `exited with code 1`.
impl fmt::Display for ProcessExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Self::Lost => f.write_str("ended when its supervisor was killed"),
        }
    }
}

/// How a server was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stopped {
    /// How the server's first process ended.
    pub exit: Option<ProcessExit>,
    /// Whether the server ignored SIGTERM until the grace period was over and had to be killed.
    pub ignored_sigterm: bool,
    /// Processes that outlived the server's first process and had to be ended: `name (pid)`.
    pub left_behind: Vec<String>,
    /// Processes that survived even SIGKILL: `name (pid)`. The supervisor keeps trying.
    pub survivors: Vec<String>,
}

/// A message from hotlap to a supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// Prepare to start this server, then wait.
    Prepare(ProcessSetting),
    /// Start the server.
    Go,
    /// End the server: SIGTERM, then SIGKILL.
    Stop {
        /// The time between SIGTERM and SIGKILL, in milliseconds.
        grace_ms: u64,
    },
}

/// A message from a supervisor to hotlap.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Report {
    /// The supervisor is ready to start the server.
    Ready {
        /// Parts of the setup that failed, as sentences.
        notes: Vec<String>,
    },
    /// The server runs.
    Started {
        /// The server's process id, which is also its process group id.
        pid: u32,
    },
    /// The program could not be executed.
    Failed {
        /// The system's error number.
        errno: i32,
    },
    /// The server's first process has ended.
    Exited(ProcessExit),
    /// The server was stopped. Some processes may have survived.
    Stopped(Stopped),
}

/// An end of the channel, for hotlap or for a supervisor.
#[derive(Debug)]
pub(super) struct Wire {
    stream: UnixStream,
    held: Vec<u8>,
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum Received<T> {
    /// A message arrived.
    Message(T),
    /// No message arrived within the time limit.
    Silence,
    /// The other end is closed, or sent something invalid.
    Closed,
}

impl Wire {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, held: Vec::new() }
    }

    /// Sends a message. The next read reports a closed end, so callers may ignore the error.
    pub(super) fn send<T: Serialize>(&self, message: &T) -> io::Result<()> {
        send(&self.stream, message)
    }

    /// Waits for a message: indefinitely without a limit, and not at all with a limit of zero.
    pub(super) fn receive<T: DeserializeOwned>(&mut self, limit: Option<Duration>) -> Received<T> {
        let until = limit.map(|limit| Instant::now() + limit);
        loop {
            if let Some(end) = self.held.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.held.drain(..=end).collect();
                return serde_json::from_slice(&line).map_or(Received::Closed, Received::Message);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match self.readable(left) {
                Ok(true) => {}
                Ok(false) => return Received::Silence,
                Err(_) => return Received::Closed,
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Received::Closed,
                Ok(count) => self.held.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Received::Closed,
            }
        }
    }

    /// Closes the channel in both directions.
    pub(super) fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn readable(&self, limit: Option<Duration>) -> io::Result<bool> {
        let limit = limit.map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        loop {
            let mut fds = [PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::IN)];
            match poll(&mut fds, limit.as_ref()) {
                Ok(count) => return Ok(count > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

pub(super) fn send<T: Serialize>(mut stream: &UnixStream, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}
