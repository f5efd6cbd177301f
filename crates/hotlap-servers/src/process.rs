//! Servers as processes: started, frozen, thawed and stopped, with nothing left behind.
//!
//! Each server runs under a [`supervisor`], a small process that outlives hotlap for just as long
//! as it takes to end the server. What this room promises: when a [`Process`] is gone, by
//! [`Process::stop`], by being dropped in a panic, or because hotlap was killed, so is every
//! process that its server ever started.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::tree::{self, Member, ProcessTree};
use channel::{Heard, Order, Report, Wire};
use error::remedy;

mod channel;
mod error;
pub mod supervisor;

pub use error::{FreezeError, StartError};
pub use supervisor::is_ignored;

/// How long a supervisor may take to answer. It only waits for a core, so this is long.
const SUPERVISOR_LIMIT: Duration = Duration::from_secs(30);

/// How long a server's processes may take to stop. They only wait for a core.
const FREEZE_LIMIT: Duration = Duration::from_secs(2);

/// Looks at a process that has not stopped yet without a sleep, and the sleep between later ones.
#[cfg(target_os = "linux")]
const FREEZE_YIELDS: u32 = 50;
#[cfg(target_os = "linux")]
const FREEZE_LOOK: Duration = Duration::from_micros(100);

/// Whether a freeze looks for further processes until there are none, and a thaw looks again: on
/// Linux that takes microseconds, and elsewhere each look runs `ps`.
const LOOKS_AGAIN: bool = cfg!(target_os = "linux");

/// What [`Process::tail`] reads at most: the last lines of a log, however long it grew.
const TAIL_BYTES: u64 = 64 * 1024;

/// What a server is started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Program and arguments; no shell in between. A program with a slash is relative to `cwd`.
    pub argv: Vec<String>,
    /// Added to hotlap's own environment.
    pub env: BTreeMap<String, String>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// The cores that it may use; none: not pinned.
    pub cpus: Vec<usize>,
    /// Where stdout and stderr go; an older file is replaced.
    pub log: PathBuf,
}

/// The command that starts a supervisor: a program whose given arguments run [`supervisor::main`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervisor {
    program: PathBuf,
    arguments: Vec<String>,
    without: Vec<String>,
    limit: Duration,
}

/// A supervisor that is ready to start its server, and waits: the moment to attach counters.
#[derive(Debug)]
pub struct Standby {
    supervisor: Child,
    wire: Wire,
    /// How long the supervisor may be silent.
    limit: Duration,
    notes: Vec<String>,
    setting: Setting,
}

/// A server that was started. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    standby: Standby,
    server: Pid,
    census: ProcessTree,
    exit: Option<Exit>,
    stopped: Option<Stopped>,
    /// The supervisor was told to end it.
    is_ending: bool,
    frozen: bool,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Together with its supervisor, which somebody killed: how is not known.
    Lost,
}

/// How a server was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stopped {
    /// How the server's first process ended.
    pub exit: Option<Exit>,
    /// It was still there when its time to go in peace was over, and had to be killed.
    pub ignored_sigterm: bool,
    /// Processes that outlived the server's first process and had to be ended: `name (pid)`.
    pub left_behind: Vec<String>,
    /// Processes that not even SIGKILL ended: `name (pid)`. The supervisor goes on trying.
    pub survivors: Vec<String>,
}

impl Supervisor {
    /// A program and the arguments that make it a supervisor.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            without: Vec::new(),
            limit: SUPERVISOR_LIMIT,
        }
    }

    /// One whose server does not inherit these environment variables.
    #[must_use]
    pub fn without(mut self, variables: &[&str]) -> Self {
        self.without.extend(variables.iter().map(ToString::to_string));
        self
    }

    /// One that is given up when it has not answered for this long.
    #[must_use]
    pub fn answers_within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// This very program with a hidden command: `Supervisor::this_program("__supervisor")`.
    ///
    /// # Errors
    /// The system does not say what this program is.
    pub fn this_program(command: &str) -> io::Result<Self> {
        let mut program = std::env::current_exe()?;
        if cfg!(target_os = "linux") && !program.exists() {
            // Built again or removed meanwhile; what runs is still to be had under this name.
            program = PathBuf::from("/proc/self/exe");
        }
        Ok(Self::new(program, &[command]))
    }

    fn spawn(&self, log: File, stream: UnixStream) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).process_group(0);
        self.without.iter().for_each(|variable| _ = command.env_remove(variable));
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(stream)));
        command.stderr(log.try_clone()?).stdout(log);
        command.spawn()
    }
}

impl Standby {
    /// Starts a supervisor that makes everything ready but does not start the server yet.
    ///
    /// # Errors
    /// The folder, the log or the supervisor.
    pub fn new(setting: &Setting, supervisor: &Supervisor) -> Result<Self, StartError> {
        if setting.argv.first().is_none_or(String::is_empty) {
            return Err(StartError::Empty);
        }
        let log = open_log(&setting.log)
            .map_err(|cause| StartError::Log { path: setting.log.clone(), cause })?;
        Self::with_log(setting, supervisor, log)
    }

    /// The same with a log that is open already.
    fn with_log(setting: &Setting, supervisor: &Supervisor, log: File) -> Result<Self, StartError> {
        if setting.argv.first().is_none_or(String::is_empty) {
            return Err(StartError::Empty);
        }
        std::fs::read_dir(&setting.cwd)
            .map_err(|cause| StartError::Folder { path: setting.cwd.clone(), cause })?;
        let failed = |cause| StartError::Supervisor { program: supervisor.program.clone(), cause };
        let (near, far) = UnixStream::pair().map_err(failed)?;
        let child = supervisor.spawn(log, far).map_err(failed)?;
        let mut standby = Self {
            supervisor: child,
            wire: Wire::new(near),
            limit: supervisor.limit,
            notes: vec![],
            setting: setting.clone(),
        };
        standby.wire.send(&Order::Prepare(setting.clone())).map_err(failed)?;
        match standby.wire.hear(Some(supervisor.limit)) {
            Heard::Message(Report::Ready { notes }) => standby.notes = notes,
            _ => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
        Ok(standby)
    }

    /// The supervisor's process id: what is attached to it now, the server and all that it starts
    /// inherit.
    #[must_use]
    pub fn supervisor_pid(&self) -> u32 {
        self.supervisor.id()
    }

    /// Starts the server.
    ///
    /// # Errors
    /// The program, or the supervisor.
    pub fn go(mut self) -> Result<Process, StartError> {
        let program = self.setting.argv[0].clone();
        let sent = self.wire.send(&Order::Go);
        match self.wire.hear(Some(self.limit)) {
            Heard::Message(Report::Started { pid }) => Ok(Process {
                server: raw(pid).ok_or(StartError::Empty)?,
                census: ProcessTree::new(Some(self.supervisor_pid()), Vec::new()),
                standby: self,
                exit: None,
                stopped: None,
                is_ending: false,
                frozen: false,
            }),
            Heard::Message(Report::Failed { errno }) => Err(StartError::Program {
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
        // Its end of the line closes after this; a supervisor with no server then ends by itself,
        // and one that was stopped is ending. Whoever waits longer finds its process in a bad
        // state.
        self.wire.close();
        for _ in 0..200 {
            if !matches!(self.supervisor.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Process {
    /// Starts a server under a supervisor.
    ///
    /// # Errors
    /// The folder, the log, the program or the supervisor.
    pub fn start(setting: &Setting, supervisor: &Supervisor) -> Result<Self, StartError> {
        Standby::new(setting, supervisor)?.go()
    }

    /// Starts a program that writes to the end of an open log.
    ///
    /// # Errors
    /// The folder, the program or the supervisor.
    pub(crate) fn start_with_log(
        setting: &Setting,
        supervisor: &Supervisor,
        log: File,
    ) -> Result<Self, StartError> {
        Standby::with_log(setting, supervisor, log)?.go()
    }

    /// The process id of the server's first process, which is its process group's too.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server.as_raw_pid() as u32
    }

    /// The supervisor's process id: the root of the tree, not itself a part of the server.
    #[must_use]
    pub fn supervisor_pid(&self) -> u32 {
        self.standby.supervisor_pid()
    }

    /// What could not be had when it was started: sentences.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.standby.notes
    }

    /// How the server's first process ended, if it did. Its children may still run, as those of a
    /// program do that makes itself a daemon.
    pub fn exited(&mut self) -> Option<Exit> {
        self.listen(Duration::ZERO);
        self.exit
    }

    /// Waits until the server's first process ends, or the time is up.
    pub fn wait(&mut self, limit: Duration) -> Option<Exit> {
        let until = Instant::now() + limit;
        while self.exit.is_none() && self.stopped.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if !self.listen(left) {
                break;
            }
        }
        self.exit
    }

    /// Every process of the server that there is: its first, and all that came of it.
    ///
    /// # Errors
    /// The process table cannot be read.
    pub fn members(&self) -> io::Result<Vec<Member>> {
        tree::descendants(self.supervisor_pid())
    }

    /// Stops the server's whole tree (SIGSTOP), so that it uses no CPU time while other servers are
    /// measured. Returns once each of its processes is seen to have stopped.
    ///
    /// # Errors
    /// A process may not be stopped, or does not stop. Then none of them stays stopped.
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
            // In one go, against which a fork cannot race; processes outside of the group follow.
            let _ = kill_process_group(self.server, Signal::STOP);
        }
        // A stopped process does not fork. Children of a process that forked before its signal
        // arrived are found in the next round.
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
                    // It ended.
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

    /// Lets a frozen server go on (SIGCONT).
    ///
    /// # Errors
    /// The process table cannot be read.
    pub fn thaw(&mut self) -> io::Result<()> {
        // Nothing new comes of a server that is frozen.
        if LOOKS_AGAIN || !self.frozen {
            self.census.refresh()?;
        }
        for member in self.census.members() {
            // What may not be continued could not be stopped either.
            let _ = signal_one(member, Signal::CONT);
        }
        self.frozen = false;
        Ok(())
    }

    /// Whether it is frozen.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// The last lines that it printed, stdout and stderr as they came; fewer if there are not so
    /// many, none if the log cannot be read.
    #[must_use]
    pub fn tail(&self, lines: usize) -> Vec<String> {
        tail(&self.standby.setting.log, lines).unwrap_or_default()
    }

    /// Ends the server and all that it started: SIGTERM, and SIGKILL when the grace is over. No
    /// grace is SIGKILL at once.
    pub fn stop(mut self, grace: Duration) -> Stopped {
        self.end(grace)
    }

    /// Begins to end the server without waiting for it, so that several end at the same time. What
    /// is to come after is [`Process::stop`].
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
        // Kept, so that a drop does not wait for the same supervisor again.
        let silent = || Stopped { survivors: vec![first], ..Stopped::default() };
        self.stopped.get_or_insert_with(silent).clone()
    }

    /// Takes what the supervisor says. Whether something was heard.
    fn listen(&mut self, limit: Duration) -> bool {
        let mut limit = limit;
        let mut heard = false;
        while self.stopped.is_none() {
            match self.standby.wire.hear(Some(limit)) {
                Heard::Message(Report::Exited(exit)) => self.exit = Some(exit),
                Heard::Message(Report::Stopped(stopped)) => {
                    self.exit = self.exit.or(stopped.exit);
                    self.stopped = Some(stopped);
                }
                Heard::Message(_) => {}
                Heard::Silence => return heard,
                Heard::Closed => self.lose(),
            }
            heard = true;
            limit = Duration::ZERO;
        }
        heard
    }

    /// The supervisor is gone, and with it, by the kernel's doing, the server's first process. What
    /// is left in the server's group is killed; a daemon that left the group cannot be found any
    /// more.
    fn lose(&mut self) {
        let left: Vec<Member> = tree::all().unwrap_or_default();
        if left.iter().any(|member| member.group == self.pid()) {
            let _ = kill_process_group(self.server, Signal::KILL);
        }
        let exit = *self.exit.get_or_insert(Exit::Lost);
        self.stopped = Some(Stopped { exit: Some(exit), ..Stopped::default() });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.stopped.is_none() {
            self.end(Duration::ZERO);
        }
    }
}

/// Sends a signal to a server's group and to each member of its tree.
///
/// The group comes first: the kernel signals it in one go, against which a fork cannot race. It is
/// only signalled while a member is in it, since a group's number is free for others afterwards.
fn signal_tree(server: Pid, members: &[Member], signal: Signal) {
    let group = server.as_raw_pid() as u32;
    if members.iter().any(|member| member.group == group) {
        let _ = kill_process_group(server, signal);
    }
    for member in members.iter().filter(|member| member.group != group && !member.zombie) {
        let _ = signal_one(member, signal);
    }
}

fn signal_one(member: &Member, signal: Signal) -> Result<(), Errno> {
    kill_process(raw(member.pid).ok_or(Errno::SRCH)?, signal)
}

/// Waits until a process that was sent SIGSTOP has stopped or ended. A signal only marks a process:
/// each thread stops when it next returns from the kernel, for which it may have to wait for a
/// core. Usually that has happened by the time of the first look.
#[cfg(target_os = "linux")]
fn has_stopped(member: &Member, until: Instant) -> bool {
    for look in 0.. {
        if tree::state(member.pid).is_none_or(|state| "TtZX".contains(state)) {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        // Where both share a core, it can only stop if this process makes room.
        match look {
            0..FREEZE_YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(FREEZE_LOOK),
        }
    }
    unreachable!("the loop returns once the time is up")
}

/// The state of other systems' processes is not looked at.
#[cfg(not(target_os = "linux"))]
fn has_stopped(_member: &Member, _until: Instant) -> bool {
    true
}

fn raw(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

fn open_log(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().append(true).create(true).open(path)
}

fn tail(path: &Path, lines: usize) -> io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    Ok(all[all.len().saturating_sub(lines)..].iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says that a server was started, and nothing after that.
    const SILENT: &str = r#"
        read order; echo '{"ready":{"notes":[]}}' >&0
        read order; echo '{"started":{"pid":'$$'}}' >&0
        exec sleep 600"#;

    /// A supervisor that says nothing was waited for twice: by the stop, and by the drop after it.
    #[test]
    fn a_silent_supervisor_is_waited_for_once() {
        let folder = tempfile::tempdir().unwrap();
        let setting = Setting {
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
        // A second wait would not end.
        process.standby.limit = Duration::from_secs(24 * 3_600);
        let supervisor = process.server;
        let (sender, dropped) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(process);
            sender.send(())
        });
        let dropped = dropped.recv_timeout(Duration::from_secs(60));
        let _ = kill_process(supervisor, Signal::KILL);
        dropped.expect("the drop waits for the supervisor again");
    }
}
