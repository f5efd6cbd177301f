//! Runs servers as processes: starts, freezes, thaws and stops them, and leaves nothing behind.
//!
//! Each server runs under a [`supervisor`], a small process that outlives hotlap just long enough
//! to end the server. A [`Standby`] is a supervisor whose server has not started yet. When a
//! [`Process`] ends, every process that its server started ends, too. A [`Process`] ends when
//! [`Process::stop`] is called, when it is dropped, for example during a panic, or when hotlap is
//! killed.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hotlap_observe::{Member, ProcessTree, Roots, processes};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use channel::{Order, Received, Report, SUPERVISOR_NAME, Wire};
use signal::{FREEZE_LIMIT, MARK, has_stopped, raw, signal_one};

mod channel;
mod log;
mod signal;
pub mod supervisor;

pub use channel::{ProcessExit, ProcessSetting, Stopped};
pub use signal::kill_marked;
pub use supervisor::is_ignored;

/// Whether a freeze repeats its search until no new process turns up, and whether a thaw searches
/// again. On Linux, a search takes microseconds. On other systems, each search runs `ps`.
const LOOKS_AGAIN: bool = cfg!(target_os = "linux");

/// The time between SIGTERM and SIGKILL for a server that failed, that is dropped, or whose hotlap
/// has died. A command such as `docker run` removes its container when it gets SIGTERM. After
/// SIGKILL alone, the container would keep running.
pub const SHORT_GRACE: Duration = Duration::from_secs(2);

/// A running server. Dropping this value ends the server, with [`SHORT_GRACE`] between SIGTERM and
/// SIGKILL.
#[derive(Debug)]
pub struct Process {
    standby: Standby,
    server: Pid,
    census: ProcessTree,
    exit: Option<ProcessExit>,
    stopped: Option<Stopped>,
    /// Whether the supervisor has been told to end the server.
    is_ending: bool,
    frozen: bool,
}

impl Standby {
    /// Starts the server.
    ///
    /// # Errors
    /// If the program or the supervisor failed.
    pub fn go(mut self) -> Result<Process, StartError> {
        Ok(Process {
            server: self.start_server()?,
            census: ProcessTree::new(self.roots()),
            standby: self,
            exit: None,
            stopped: None,
            is_ending: false,
            frozen: false,
        })
    }
}

impl Process {
    /// Starts a server under a supervisor.
    ///
    /// # Errors
    /// If the command is empty, or the folder, the log, the program or the supervisor failed.
    pub fn start(setting: &ProcessSetting, supervisor: &Supervisor) -> Result<Self, StartError> {
        Standby::new(setting, supervisor)?.go()
    }

    /// Starts a program that appends to an open log.
    ///
    /// # Errors
    /// If the folder, the program or the supervisor failed.
    pub(crate) fn start_with_log(
        setting: &ProcessSetting,
        supervisor: &Supervisor,
        log: File,
    ) -> Result<Self, StartError> {
        Standby::with_log(setting, supervisor, log)?.go()
    }

    /// Returns the process id of the server's first process, which is also its process group id.
    pub fn pid(&self) -> u32 {
        self.server.as_raw_pid() as u32
    }

    /// Returns the supervisor's process id. The supervisor is the root of the tree, but not part of
    /// the server.
    pub fn supervisor_pid(&self) -> u32 {
        self.standby.supervisor_pid()
    }

    /// Returns the roots of the server's process tree.
    pub fn roots(&self) -> Roots {
        self.standby.roots()
    }

    /// Returns problems with the setup that did not prevent the start.
    pub fn notes(&self) -> &[String] {
        &self.standby.notes
    }

    /// Returns how the server's first process ended, or `None` if it still runs. The children of
    /// the first process may still run, as they do for a program that daemonizes.
    pub fn exited(&mut self) -> Option<ProcessExit> {
        self.listen(Duration::ZERO);
        self.exit
    }

    /// Returns how the server's first process ended, or `None` while the server runs. A server that
    /// daemonizes still runs if its first process ended with code 0 and left others.
    pub fn ended(&mut self) -> Option<ProcessExit> {
        let exit = self.exited()?;
        let is_daemon = exit == ProcessExit::Code(0) && self.members().is_ok_and(|m| !m.is_empty());
        (!is_daemon).then_some(exit)
    }

    /// Waits until the server's first process ends, or the time is up. Returns how the process
    /// ended, or `None` if it still runs.
    pub fn wait(&mut self, limit: Duration) -> Option<ProcessExit> {
        let until = Instant::now() + limit;
        while self.exit.is_none() && self.stopped.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if !self.listen(left) {
                break;
            }
        }
        self.exit
    }

    /// Returns all processes of the server: the first process and its descendants.
    ///
    /// # Errors
    /// If the process table cannot be read.
    pub fn members(&self) -> io::Result<Vec<Member>> {
        processes::descendants(self.supervisor_pid())
    }

    /// Freezes the server (SIGSTOP to its whole tree), so that it uses no CPU time while other
    /// servers are measured. On Linux, returns once every process has stopped or ended.
    ///
    /// # Errors
    /// If the process table cannot be read, or a process cannot be stopped. The processes that
    /// have stopped are then resumed.
    pub fn freeze(&mut self) -> Result<(), FreezeError> {
        let stopped = self.stop_all();
        self.frozen = stopped.is_ok();
        if stopped.is_err() {
            let _ = self.thaw();
        }
        stopped
    }

    fn stop_all(&mut self) -> Result<(), FreezeError> {
        if !LOOKS_AGAIN {
            // Signal the group atomically, so that no fork can escape. Processes outside of the
            // group follow.
            let _ = kill_process_group(self.server, Signal::STOP);
        }
        // A stopped process does not fork. If a process forked before its signal arrived, the next
        // pass finds its children.
        let mut stopped = HashSet::new();
        let until = Instant::now() + FREEZE_LIMIT;
        loop {
            self.census.refresh().map_err(FreezeError::Table)?;
            let new: Vec<&Member> = self
                .census
                .members()
                .filter(|member| !member.zombie && stopped.insert(member.pid))
                .collect();
            if new.is_empty() {
                return Ok(());
            }
            for member in &new {
                match signal_one(member, Signal::STOP) {
                    // The signal was sent, or the process has ended.
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(cause) => {
                        let (name, pid) = (member.name.clone(), member.pid);
                        return Err(FreezeError::Refused { name, pid, cause: cause.into() });
                    }
                }
            }
            for member in &new {
                if !has_stopped(member, until) {
                    let (name, pid) = (member.name.clone(), member.pid);
                    return Err(FreezeError::StillRuns { name, pid });
                }
            }
            if !LOOKS_AGAIN {
                return Ok(());
            }
        }
    }

    /// Resumes a frozen server (SIGCONT).
    ///
    /// # Errors
    /// If the process table cannot be read.
    pub fn thaw(&mut self) -> io::Result<()> {
        // A frozen server has created no new processes.
        if LOOKS_AGAIN || !self.frozen {
            self.census.refresh()?;
        }
        for member in self.census.members() {
            // A process that cannot be resumed could not have been stopped either.
            let _ = signal_one(member, Signal::CONT);
        }
        self.frozen = false;
        Ok(())
    }

    /// Returns whether the server is frozen.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Returns the last lines of the server's output, with stdout and stderr interleaved. Empty if
    /// the log cannot be read.
    pub fn tail(&self, lines: usize) -> Vec<String> {
        log::tail(&self.standby.setting.log, lines).unwrap_or_default()
    }

    /// Ends the server and everything that it started: SIGTERM, then SIGKILL after the grace
    /// period. With a grace period of zero, SIGKILL is sent at once.
    pub fn stop(mut self, grace: Duration) -> Stopped {
        self.end(grace)
    }

    /// Begins to end the server without waiting, so that several servers can end at the same time.
    /// Call [`Process::stop`] afterwards.
    pub fn begin_stop(&mut self, grace: Duration) {
        if !std::mem::replace(&mut self.is_ending, true) {
            let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
            let _ = self.standby.wire.send(&Order::Stop { grace_ms });
        }
    }

    fn end(&mut self, grace: Duration) -> Stopped {
        self.begin_stop(grace);
        let until = Instant::now() + grace.saturating_add(self.standby.limit);
        while self.stopped.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if !self.listen(left) {
                break;
            }
        }
        let first = format!("{} ({})", self.standby.setting.argv[0], self.pid());
        // The result is stored, so that a drop does not wait for the same supervisor again.
        let silent = || Stopped { survivors: vec![first], ..Stopped::default() };
        self.stopped.get_or_insert_with(silent).clone()
    }

    /// Reads messages from the supervisor. Returns whether a message arrived or the channel closed.
    fn listen(&mut self, limit: Duration) -> bool {
        let mut limit = limit;
        let mut heard = false;
        while self.stopped.is_none() {
            match self.standby.wire.receive(Some(limit)) {
                Received::Message(Report::Exited(exit)) => self.exit = Some(exit),
                Received::Message(Report::Stopped(stopped)) => {
                    self.exit = self.exit.or(stopped.exit);
                    self.stopped = Some(stopped);
                }
                Received::Message(_) => {}
                Received::Silence => return heard,
                Received::Closed => self.lose(),
            }
            heard = true;
            limit = Duration::ZERO;
        }
        heard
    }

    /// Kills what is left after the supervisor's death. On Linux, the kernel has already killed
    /// the server's first process. The other processes are found by the server's group and, on
    /// Linux, by the mark in their environment. A daemon has left both the group and the tree, but
    /// keeps the mark. Frozen processes end, too.
    fn lose(&mut self) {
        let left: Vec<Member> = processes::all().unwrap_or_default();
        if left.iter().any(|member| member.group == self.pid()) {
            let _ = kill_process_group(self.server, Signal::KILL);
        }
        let _ = kill_marked(&self.standby.setting.log);
        let exit = *self.exit.get_or_insert(ProcessExit::Lost);
        self.stopped = Some(Stopped { exit: Some(exit), ..Stopped::default() });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.stopped.is_none() {
            self.end(SHORT_GRACE);
        }
    }
}

/// How long a supervisor may take to respond. A supervisor only needs a core to respond, so this
/// limit is generous.
const SUPERVISOR_LIMIT: Duration = Duration::from_secs(30);

/// Returns a path through which this process, and processes started through that path, can execute
/// the running program again. On Linux, `/proc/self/exe` remains valid if the program's file is
/// rebuilt or removed.
///
/// # Errors
/// If the path of the running program is unknown.
pub fn own_program() -> io::Result<PathBuf> {
    match cfg!(target_os = "linux") {
        true => Ok(PathBuf::from("/proc/self/exe")),
        false => std::env::current_exe(),
    }
}

/// The command that starts a supervisor: a program and the arguments that make it run
/// [`supervisor::main`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervisor {
    program: PathBuf,
    arguments: Vec<String>,
    without: Vec<OsString>,
    limit: Duration,
}

/// A supervisor that is ready to start its server. Hardware counters are attached at this point.
#[derive(Debug)]
pub struct Standby {
    supervisor: Child,
    wire: Wire,
    /// How long the supervisor may be silent.
    limit: Duration,
    notes: Vec<String>,
    setting: ProcessSetting,
}

impl Supervisor {
    /// Returns the command for a program, with the arguments that make it a supervisor.
    pub fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            without: Vec::new(),
            limit: SUPERVISOR_LIMIT,
        }
    }

    /// Keeps the server from inheriting these environment variables from hotlap.
    pub fn without(mut self, variables: &[impl AsRef<OsStr>]) -> Self {
        self.without.extend(variables.iter().map(|variable| variable.as_ref().to_owned()));
        self
    }

    /// Sets how long to wait for a response before giving up.
    pub fn answers_within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Returns the command for this program with a hidden command:
    /// `Supervisor::this_program("__supervisor")`.
    ///
    /// # Errors
    /// If the path of the running program is unknown.
    pub fn this_program(command: &str) -> io::Result<Self> {
        Ok(Self::new(own_program()?, &[command]))
    }

    fn spawn(&self, path: &Path, log: File, stream: UnixStream) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.arg0(SUPERVISOR_NAME).args(&self.arguments).process_group(0);
        command.env(MARK, path);
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
    /// If the command is empty, or the folder, the log or the supervisor failed.
    pub fn new(setting: &ProcessSetting, supervisor: &Supervisor) -> Result<Self, StartError> {
        if setting.argv.first().is_none_or(String::is_empty) {
            return Err(StartError::Empty);
        }
        let log = log::open(&setting.log)
            .map_err(|cause| StartError::Log { path: setting.log.clone(), cause })?;
        Self::with_log(setting, supervisor, log)
    }

    /// Starts a supervisor like [`Standby::new`], with a log that is already open.
    fn with_log(
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

    /// Returns the supervisor's process id. Counters that are attached to it now are inherited by
    /// the server and all of its processes.
    pub fn supervisor_pid(&self) -> u32 {
        self.supervisor.id()
    }

    /// Returns the roots of the server's future process tree.
    pub fn roots(&self) -> Roots {
        Roots::below(self.supervisor_pid())
    }

    /// Tells the supervisor to start the server. Returns the server's process id.
    fn start_server(&mut self) -> Result<Pid, StartError> {
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
        // A supervisor without a server exits by itself once the channel is closed. A supervisor
        // that was told to stop is already exiting.
        self.wire.close();
        for _ in 0..200 {
            if !matches!(self.supervisor.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Why a server could not be frozen. The server keeps running.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// A process belongs to another user, or a security policy protects it.
    #[error("cannot freeze {name} ({pid}): {cause}. Run hotlap as root or as the process's user")]
    Refused {
        /// The name of the process.
        name: String,
        /// The process id.
        pid: u32,
        /// The system's error.
        cause: io::Error,
    },
    /// A process did not stop in time after SIGSTOP, for instance during an uninterruptible wait.
    #[error("{name} ({pid}) was still running {} s after SIGSTOP", FREEZE_LIMIT.as_secs())]
    StillRuns {
        /// The name of the process.
        name: String,
        /// The process id.
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
    #[error("the command is empty: give a program to start")]
    Empty,
    /// The working directory cannot be entered.
    #[error(
        "cannot enter the folder {}: {cause}. Check that the folder exists and can be entered",
        path.display()
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The log cannot be written.
    #[error("cannot write the log {}: {cause}. Check permissions and disk space", path.display())]
    Log {
        /// The path of the log.
        path: PathBuf,
        /// The system's error.
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
    /// The supervisor did not start or did not respond.
    #[error(
        "the supervisor {} did not start: {cause}. Check that this program can be executed",
        program.display()
    )]
    Supervisor {
        /// The supervisor's program.
        program: PathBuf,
        /// What happened.
        cause: io::Error,
    },
}

/// Returns the remedy for a program that cannot be executed.
fn remedy(errno: i32, program: &str, cwd: &Path) -> &'static str {
    let local = program.contains('/');
    match errno {
        libc::ENOENT if local && cwd.join(program).exists() => {
            "the program's interpreter is missing: install the interpreter that the program's \
             first line names, or build the program for this machine"
        }
        libc::ENOENT if local => "check the path, and whether the program is built",
        libc::ENOENT => "install the program, or give its full path",
        libc::EACCES => "make the program executable with chmod +x",
        libc::ENOEXEC => {
            "the file is neither a program for this machine nor a script with a #! line: build the \
             program here, or put its interpreter first in the command"
        }
        _ => "run the command by hand in its folder to see what is wrong",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rustix::process::kill_process;

    use super::*;

    /// A shell script that reports that a server was started, and then stays silent.
    const SILENT: &str = r#"
        read order; echo '{"ready":{"notes":[]}}' >&0
        read order; echo '{"started":{"pid":'$$'}}' >&0
        exec sleep 600"#;

    /// Regression: a silent supervisor was waited for twice, by the stop and by the drop after the
    /// stop.
    #[test]
    fn a_silent_supervisor_is_waited_for_once() {
        let folder = tempfile::tempdir().unwrap();
        let setting = ProcessSetting {
            argv: vec!["server".to_owned()],
            env: BTreeMap::new(),
            cwd: folder.path().to_owned(),
            cpus: Vec::new(),
            log: folder.path().join("log"),
        };
        let mut process =
            Process::start(&setting, &Supervisor::new("sh", &["-c", SILENT])).unwrap();
        process.standby.limit = Duration::from_millis(1);
        assert_eq!(process.end(Duration::ZERO).survivors.len(), 1);
        // A second wait would never end.
        process.standby.limit = Duration::from_secs(24 * 3_600);
        let supervisor = process.server;
        let (sender, dropped) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(process);
            sender.send(())
        });
        let dropped = dropped.recv_timeout(Duration::from_secs(60));
        let _ = kill_process(supervisor, Signal::KILL);
        dropped.expect("the drop should not wait for the supervisor again");
    }
}
