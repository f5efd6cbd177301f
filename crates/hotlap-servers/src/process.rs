//! Servers as processes: started, frozen, thawed and stopped, leaving nothing behind.
//!
//! Each server runs under a [`supervisor`], a small process that outlives hotlap just long enough
//! to end the server. A [`Standby`] is a supervisor whose server has not started yet. When a
//! [`Process`] ends, by [`Process::stop`], by a drop during a panic, or because hotlap was killed,
//! every process that its server started ends too.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use channel::{Order, Received, Report};
use hotlap_observe::{Member, ProcessTree, Roots, processes};
use signal::{FREEZE_LIMIT, has_stopped, signal_one};

mod channel;
mod error;
mod log;
mod mark;
mod setting;
mod signal;
mod standby;
pub mod supervisor;

pub use error::{FreezeError, StartError};
pub use mark::kill_marked;
pub use setting::{ProcessExit, ProcessSetting, Stopped};
pub use standby::{Standby, Supervisor};
pub use supervisor::is_ignored;

/// Whether a freeze repeats its search until no new process turns up, and a thaw searches again. On
/// Linux a search takes microseconds; elsewhere each one runs `ps`.
const LOOKS_AGAIN: bool = cfg!(target_os = "linux");

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    standby: Standby,
    server: Pid,
    census: ProcessTree,
    exit: Option<ProcessExit>,
    stopped: Option<Stopped>,
    /// The supervisor has been told to end it.
    is_ending: bool,
    frozen: bool,
}

impl Standby {
    /// Starts the server.
    ///
    /// # Errors
    /// The program or the supervisor failed.
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
    /// The folder, the log, the program or the supervisor failed.
    pub fn start(setting: &ProcessSetting, supervisor: &Supervisor) -> Result<Self, StartError> {
        Standby::new(setting, supervisor)?.go()
    }

    /// Starts a program that appends to an open log.
    ///
    /// # Errors
    /// The folder, the program or the supervisor failed.
    pub(crate) fn start_with_log(
        setting: &ProcessSetting,
        supervisor: &Supervisor,
        log: File,
    ) -> Result<Self, StartError> {
        Standby::with_log(setting, supervisor, log)?.go()
    }

    /// The process id of the server's first process, which is also its process group id.
    pub fn pid(&self) -> u32 {
        self.server.as_raw_pid() as u32
    }

    /// The supervisor's process id: the root of the tree, but not part of the server.
    pub fn supervisor_pid(&self) -> u32 {
        self.standby.supervisor_pid()
    }

    /// Where its processes begin.
    pub fn roots(&self) -> Roots {
        self.standby.roots()
    }

    /// Problems with its setup that did not prevent the start.
    pub fn notes(&self) -> &[String] {
        &self.standby.notes
    }

    /// How the server's first process ended, if it did. Its children may still run, as they do for
    /// a program that daemonizes.
    pub fn exited(&mut self) -> Option<ProcessExit> {
        self.listen(Duration::ZERO);
        self.exit
    }

    /// How the server ended, which is how its first process ended. `None` while the server runs. A
    /// program that daemonizes still runs if its first process ended with code 0 and left others.
    pub fn ended(&mut self) -> Option<ProcessExit> {
        let exit = self.exited()?;
        let is_daemon = exit == ProcessExit::Code(0) && self.members().is_ok_and(|m| !m.is_empty());
        (!is_daemon).then_some(exit)
    }

    /// Waits until the server's first process ends, or the time is up.
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

    /// All processes of the server: the first one and its descendants.
    ///
    /// # Errors
    /// The process table cannot be read.
    pub fn members(&self) -> io::Result<Vec<Member>> {
        processes::descendants(self.supervisor_pid())
    }

    /// Freezes the server (SIGSTOP to its whole tree), so that it uses no CPU time while other
    /// servers are measured. Returns once every process has been seen to stop.
    ///
    /// # Errors
    /// A process cannot be stopped or does not stop in time. All of them are resumed then.
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
            // Signals the group atomically, so no fork can escape. Processes outside of the group
            // follow.
            let _ = kill_process_group(self.server, Signal::STOP);
        }
        // A stopped process does not fork. Children of a process that forked before its signal
        // arrived are found in the next pass.
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

    /// Resumes a frozen server (SIGCONT).
    ///
    /// # Errors
    /// The process table cannot be read.
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

    /// Whether the server is frozen.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// The last lines of its output, stdout and stderr interleaved. Empty if the log cannot be
    /// read.
    pub fn tail(&self, lines: usize) -> Vec<String> {
        log::tail(&self.standby.setting.log, lines).unwrap_or_default()
    }

    /// Ends the server and everything that it started: SIGTERM, then SIGKILL after the grace
    /// period. With a grace of zero, SIGKILL at once.
    pub fn stop(mut self, grace: Duration) -> Stopped {
        self.end(grace)
    }

    /// Starts ending the server without waiting for it, so that several can end at the same time.
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
        // Kept, so that a drop does not wait for the same supervisor again.
        let silent = || Stopped { survivors: vec![first], ..Stopped::default() };
        self.stopped.get_or_insert_with(silent).clone()
    }

    /// Reads messages from the supervisor. Returns whether one came.
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

    /// The supervisor is gone, and the kernel has killed the server's first process with it. Kills
    /// what is left, by the server's group and by the mark in the environment: a daemon has left
    /// both the group and the tree. Frozen processes end too.
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
            self.end(Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rustix::process::kill_process;

    use super::*;

    /// Reports that a server was started, then stays silent.
    const SILENT: &str = r#"
        read order; echo '{"ready":{"notes":[]}}' >&0
        read order; echo '{"started":{"pid":'$$'}}' >&0
        exec sleep 600"#;

    /// Regression: a silent supervisor was waited for twice, by the stop and by the drop after it.
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
