//! The supervisor: a small process between hotlap and a server, which ends the server's whole
//! process tree even if hotlap is killed.
//!
//! hotlap cannot always clean up after itself, because none of its code runs after `kill -9`. A
//! separate process can. On Linux, the supervisor is the subreaper of everything that the server
//! starts. A daemon that leaves its parent becomes a child of the supervisor instead of init. The
//! supervisor reads from a socket that the kernel closes when hotlap dies. Ctrl-C reaches only
//! hotlap, because the supervisor runs in its own process group and ignores the terminal's signals.
//!
//! The supervisor is hotlap's own binary, started with a hidden command. A fresh process has one
//! thread and no state, unlike a fork of a multi-threaded program.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions, getrlimit, setrlimit, wait};

use super::channel::{
    Order, ProcessExit, ProcessSetting, Received, Report, SUPERVISOR_NAME, Stopped, Wire, send,
};
use super::signal::signal_tree;
use super::{SHORT_GRACE, log};
use hotlap_observe::{Member, processes};

pub use signals::is_ignored;

/// How long to wait after SIGKILL before processes are reported as survivors. A process may be in
/// an uninterruptible wait, or belong to another user.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// The interval between checks of the length of the server's log.
const LOOK_AT_LOG: Duration = Duration::from_millis(250);

/// The minimum soft limit of open files for a server, if the hard limit permits it: 64 Ki. This is
/// enough for about 65,000 connections, and low enough for programs that loop over all possible
/// descriptors when they start.
const OPEN_FILES: u64 = 65_536;

/// The entry point of the hidden command, which expects one end of a socket pair on stdin, and a
/// log on stdout and stderr.
pub fn main() -> ExitCode {
    let Ok(stdin) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::from(2);
    };
    let stream = UnixStream::from(stdin);
    let Ok(outbox) = stream.try_clone() else {
        return ExitCode::from(2);
    };
    watch(Wire::new(stream), outbox)
}

fn watch(mut inbox: Wire, outbox: UnixStream) -> ExitCode {
    signals::ignore();
    #[cfg(target_os = "linux")]
    if let Ok(name) = std::ffi::CString::new(SUPERVISOR_NAME) {
        let _ = rustix::thread::set_name(&name);
    }
    let Received::Message(Order::Prepare(setting)) = inbox.receive(None) else {
        return ExitCode::from(2);
    };
    let _ = send(&outbox, &Report::Ready { notes: prepare(&setting) });
    let Received::Message(Order::Go) = inbox.receive(None) else {
        return ExitCode::SUCCESS;
    };
    let server = match spawn(&setting) {
        Ok(server) => server,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            let _ = send(&outbox, &Report::Failed { errno });
            return ExitCode::SUCCESS;
        }
    };
    let _ = send(&outbox, &Report::Started { pid: server.as_raw_pid() as u32 });
    let supervised = Arc::new(Supervised {
        server,
        log: setting.log,
        outbox,
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let listener = {
        let supervised = Arc::clone(&supervised);
        std::thread::spawn(move || supervised.wait_for_order(inbox))
    };
    // The main thread, which started the server, also reaps the children. On Linux, the kernel
    // kills the server when the thread that started it dies, and the server inherits hardware
    // counters from that thread.
    supervised.reap();
    let _ = listener.join();
    ExitCode::SUCCESS
}

/// Sets up what the server inherits from this process: cores and limits. Returns notes about what
/// failed. On Linux, also makes this process a subreaper.
fn prepare(setting: &ProcessSetting) -> Vec<String> {
    let mut notes = Vec::new();
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        notes.push(format!("daemons that the server starts may outlive the run: {error}"));
    }
    if !setting.cpus.is_empty()
        && let Err(error) = hotlap_observe::cpus::pin(&setting.cpus)
    {
        notes.push(format!("cannot pin the server to its cores: {error}"));
    }
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES, |hard| hard.min(OPEN_FILES));
    if limit.current.is_some_and(|soft| soft < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            notes.push(format!("cannot raise the server's limit on open files: {error}"));
        }
    }
    notes
}

fn spawn(setting: &ProcessSetting) -> io::Result<Pid> {
    let Some((program, arguments)) = setting.argv.split_first() else {
        return Err(io::Error::from_raw_os_error(Errno::INVAL.raw_os_error()));
    };
    let mut command = Command::new(program);
    command.args(arguments).envs(&setting.env).current_dir(&setting.cwd);
    command.stdin(Stdio::null()).process_group(0);
    signals::restore_in(&mut command);
    let child = command.spawn()?;
    Ok(Pid::from_child(&child))
}

/// A server under supervision.
struct Supervised {
    server: Pid,
    log: PathBuf,
    outbox: UnixStream,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How the server's first process ended.
    exit: Option<ProcessExit>,
    /// Whether no child is left. On Linux, where the supervisor is a subreaper, no descendant is
    /// left either.
    childless: bool,
}

impl Supervised {
    /// Reaps children until none are left. Blocks while the server runs.
    fn reap(&self) {
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) if pid == self.server => {
                    let exit = match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => ProcessExit::Code(code),
                        (None, Some(signal)) => ProcessExit::Signal(signal),
                        (None, None) => continue,
                    };
                    self.state().exit = Some(exit);
                    self.changed.notify_all();
                    let _ = send(&self.outbox, &Report::Exited(exit));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => {
                    self.state().childless = true;
                    self.changed.notify_all();
                    return;
                }
            }
        }
    }

    /// Waits for an order to stop, or until the socket closes because hotlap died. Keeps the
    /// server's log short meanwhile, and then ends the server.
    fn wait_for_order(&self, mut inbox: Wire) {
        let order = loop {
            match inbox.receive(Some(LOOK_AT_LOG)) {
                // If the log cannot be cut, the server's own writes eventually fail, and the server
                // reports the failure.
                Received::Silence => _ = log::cut(&self.log),
                order => break order,
            }
        };
        match order {
            Received::Message(Order::Stop { grace_ms }) => {
                let stopped = self.end(Duration::from_millis(grace_ms));
                let _ = send(&self.outbox, &Report::Stopped(stopped));
            }
            _ => {
                self.end(SHORT_GRACE);
            }
        }
        while !self.childless_within(Duration::from_secs(1)) {
            self.signal(Signal::KILL);
        }
    }

    fn end(&self, grace: Duration) -> Stopped {
        let mut stopped = Stopped::default();
        let gone_before = self.state().exit.is_some();
        if gone_before {
            stopped.left_behind = names(&self.members());
        }
        if !grace.is_zero() {
            self.signal(Signal::TERM);
            // A frozen process handles SIGTERM only after it is thawed.
            self.signal(Signal::CONT);
            self.childless_within(grace);
        }
        let since = Instant::now();
        let members = if self.state().childless { Vec::new() } else { self.members() };
        if !gone_before && !members.is_empty() {
            stopped.ignored_sigterm = self.state().exit.is_none() && !grace.is_zero();
            if !stopped.ignored_sigterm && !grace.is_zero() {
                stopped.left_behind = names(&members);
            }
        }
        let mut pause = Duration::from_millis(5);
        while !self.state().childless && since.elapsed() < KILL_LIMIT {
            self.signal(Signal::KILL);
            self.childless_within(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
        }
        if !self.state().childless {
            stopped.survivors = names(&self.members());
        }
        stopped.exit = self.state().exit;
        stopped
    }

    fn members(&self) -> Vec<Member> {
        processes::descendants(std::process::id()).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        signal_tree(self.server, &self.members(), signal);
    }

    fn childless_within(&self, limit: Duration) -> bool {
        let wait = self.changed.wait_timeout_while(self.state(), limit, |state| !state.childless);
        wait.unwrap_or_else(PoisonError::into_inner).0.childless
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the members that still run, as `name (pid)`.
fn names(members: &[Member]) -> Vec<String> {
    let running = members.iter().filter(|member| !member.zombie);
    running.map(|member| format!("{} ({})", member.name, member.pid)).collect()
}

/// Signal dispositions, which the standard library does not cover.
mod signals {
    #![expect(unsafe_code, reason = "signal dispositions and the moment between fork and exec")]

    use std::io;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// Signals that a terminal, a shell or a service manager may send to a whole session, and
    /// SIGPIPE from a write after hotlap's death. hotlap decides what to do with the server.
    const IGNORED: [i32; 8] = [
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGPIPE,
    ];

    /// Returns whether this process ignores a signal, as it does under `nohup`.
    pub fn is_ignored(signal: i32) -> bool {
        // SAFETY: the all-zero sigaction is only storage that the call fills in. Without a new
        // action nothing changes, and an unknown signal returns an error.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
        }
    }

    pub(super) fn ignore() {
        for signal in IGNORED {
            // SAFETY: SIG_IGN is a valid disposition for each of these, and no handler is
            // installed.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        // Children must become zombies that `wait` sees, even if hotlap was started with SIGCHLD
        // ignored.
        // SAFETY: SIG_DFL is a valid disposition for SIGCHLD.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }

    /// Gives the server what a login shell would: default dispositions, an empty mask and no
    /// inherited descriptors. On Linux, the kernel also kills the server if its supervisor is
    /// killed.
    pub(super) fn restore_in(command: &mut Command) {
        let supervisor = rustix::process::getpid();
        let restore = move || {
            for signal in 1..=64 {
                // SAFETY: SIG_DFL is valid for every signal, and a signal that cannot be set
                // returns an error. The call is async-signal-safe.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            // SAFETY: the all-zero sigset_t is only storage that sigemptyset initialises. Both
            // calls are async-signal-safe.
            unsafe {
                let mut none: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut none);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            }
            close_on_exec();
            #[cfg(target_os = "linux")]
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            if rustix::process::getppid() == Some(supervisor) {
                Ok(())
            } else {
                // The supervisor has already died, so nothing would end this server.
                Err(io::Error::from_raw_os_error(libc::ESRCH))
            }
        };
        // SAFETY: the closure only makes system calls that are async-signal-safe and allocates
        // nothing.
        unsafe { command.pre_exec(restore) };
    }

    /// Marks all descriptors above stderr as close-on-exec. Without `close_range`, only up to 1023.
    fn close_on_exec() {
        #[cfg(target_os = "linux")]
        // SAFETY: close_range with CLOSE_RANGE_CLOEXEC only sets a flag on descriptors.
        if unsafe {
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
        } == 0
        {
            return;
        }
        for fd in 3..1024 {
            // SAFETY: F_SETFD on a descriptor that is not open only fails with EBADF.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
}
