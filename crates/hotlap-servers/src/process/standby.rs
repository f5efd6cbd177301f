//! A supervisor that has started but has not started its server yet.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hotlap_observe::Roots;
use rustix::process::Pid;

use super::channel::{Order, Received, Report, Wire};
use super::error::{StartError, remedy};
use super::log;
use super::mark;
use super::setting::ProcessSetting;
use super::signal::raw;

/// How long a supervisor may take to answer. It only needs a core, so this is generous.
const SUPERVISOR_LIMIT: Duration = Duration::from_secs(30);

/// The name of a supervisor's process. It is not `hotlap`, so that `killall -9 hotlap` does not
/// kill the supervisors too.
pub(super) const SUPERVISOR_NAME: &str = "server-guard";

/// The command that starts a supervisor: a program and the arguments that make it run
/// [`super::supervisor::main`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervisor {
    program: PathBuf,
    arguments: Vec<String>,
    without: Vec<String>,
    limit: Duration,
}

/// A supervisor that is ready to start its server. Hardware counters are attached at this point.
#[derive(Debug)]
pub struct Standby {
    supervisor: Child,
    pub(super) wire: Wire,
    /// How long the supervisor may be silent.
    pub(super) limit: Duration,
    pub(super) notes: Vec<String>,
    pub(super) setting: ProcessSetting,
}

impl Supervisor {
    /// A program and the arguments that make it a supervisor.
    pub fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            without: Vec::new(),
            limit: SUPERVISOR_LIMIT,
        }
    }

    /// Removes these environment variables from the server's environment.
    pub fn without(mut self, variables: &[&str]) -> Self {
        self.without.extend(variables.iter().map(ToString::to_string));
        self
    }

    /// Sets how long to wait for an answer before giving up.
    pub fn answers_within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// This program with a hidden command: `Supervisor::this_program("__supervisor")`.
    ///
    /// # Errors
    /// The path of the running program is unknown.
    pub fn this_program(command: &str) -> io::Result<Self> {
        // The program's file may be built again or removed meanwhile. On Linux, `/proc/self/exe`
        // still names the running program.
        let program = match cfg!(target_os = "linux") {
            true => PathBuf::from("/proc/self/exe"),
            false => std::env::current_exe()?,
        };
        Ok(Self::new(program, &[command]))
    }

    fn spawn(&self, path: &Path, log: File, stream: UnixStream) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.arg0(SUPERVISOR_NAME).args(&self.arguments).process_group(0);
        command.env(mark::NAME, path);
        self.without.iter().for_each(|variable| _ = command.env_remove(variable));
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(stream)));
        command.stderr(log.try_clone()?).stdout(log);
        command.spawn()
    }
}

impl Standby {
    /// Starts a supervisor, which prepares everything but does not start the server yet.
    ///
    /// # Errors
    /// The folder, the log or the supervisor failed.
    pub fn new(setting: &ProcessSetting, supervisor: &Supervisor) -> Result<Self, StartError> {
        if setting.argv.first().is_none_or(String::is_empty) {
            return Err(StartError::Empty);
        }
        let log = log::open(&setting.log)
            .map_err(|cause| StartError::Log { path: setting.log.clone(), cause })?;
        Self::with_log(setting, supervisor, log)
    }

    /// The same with a log that is already open.
    pub(super) fn with_log(
        setting: &ProcessSetting,
        supervisor: &Supervisor,
        log: File,
    ) -> Result<Self, StartError> {
        if setting.argv.first().is_none_or(String::is_empty) {
            return Err(StartError::Empty);
        }
        std::fs::read_dir(&setting.cwd)
            .map_err(|cause| StartError::Folder { path: setting.cwd.clone(), cause })?;
        let failed = |cause| StartError::Supervisor { program: supervisor.program.clone(), cause };
        let (near, far) = UnixStream::pair().map_err(failed)?;
        let child = supervisor.spawn(&setting.log, log, far).map_err(failed)?;
        let mut standby = Self {
            supervisor: child,
            wire: Wire::new(near),
            limit: supervisor.limit,
            notes: vec![],
            setting: setting.clone(),
        };
        standby.wire.send(&Order::Prepare(setting.clone())).map_err(failed)?;
        match standby.wire.receive(Some(supervisor.limit)) {
            Received::Message(Report::Ready { notes }) => standby.notes = notes,
            _ => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
        Ok(standby)
    }

    /// The supervisor's process id. Counters attached to it now are inherited by the server and all
    /// of its processes.
    pub fn supervisor_pid(&self) -> u32 {
        self.supervisor.id()
    }

    /// Where the server's processes will begin.
    pub fn roots(&self) -> Roots {
        Roots::below(self.supervisor_pid())
    }

    /// Tells the supervisor to start the server. Returns the server's process id.
    pub(super) fn start_server(&mut self) -> Result<Pid, StartError> {
        let program = self.setting.argv[0].clone();
        let sent = self.wire.send(&Order::Go);
        match self.wire.receive(Some(self.limit)) {
            Received::Message(Report::Started { pid }) => raw(pid).ok_or(StartError::Empty),
            Received::Message(Report::Failed { errno }) => Err(StartError::Program {
                remedy: remedy(errno, &program, &self.setting.cwd),
                cause: io::Error::from_raw_os_error(errno),
                program,
            }),
            _ => Err(StartError::Supervisor {
                program: program.into(),
                cause: sent.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()),
            }),
        }
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        // Once its end of the channel closes, a supervisor without a server exits by itself, and
        // one that was told to stop is already exiting.
        self.wire.close();
        for _ in 0..200 {
            if !matches!(self.supervisor.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
