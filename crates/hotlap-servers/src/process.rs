//! Servers as processes: started, frozen, thawed and stopped, with nothing left behind.
//!
//! Each server runs under a [`supervisor`], a small process that outlives hotlap for just as long
//! as it takes to end the server. A [`Standby`] is a supervisor whose server has yet to start. When
//! a [`Process`] is gone, by [`Process::stop`], by being dropped in a panic, or because hotlap was
//! killed, so is every process that its server ever started.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::tree::{self, Member, ProcessTree};
use channel::{Heard, Order, Report};
use signal::{FREEZE_LIMIT, has_stopped, signal_one};

mod channel;
mod error;
mod log;
mod setting;
mod signal;
mod standby;
pub mod supervisor;

pub use error::{FreezeError, StartError};
pub use setting::{ProcessExit, ProcessSetting, Stopped};
pub use standby::{Standby, Supervisor};
pub use supervisor::is_ignored;

/// Whether a freeze looks for further processes until there are none, and a thaw looks again: on
/// Linux that takes microseconds, and elsewhere each look runs `ps`.
const LOOKS_AGAIN: bool = cfg!(target_os = "linux");

/// A server that was started. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    standby: Standby,
    server: Pid,
    census: ProcessTree,
    exit: Option<ProcessExit>,
    stopped: Option<Stopped>,
    /// The supervisor was told to end it.
    is_ending: bool,
    frozen: bool,
}

impl Standby {
    /// Starts the server.
    ///
    /// # Errors
    /// The program, or the supervisor.
    pub fn go(mut self) -> Result<Process, StartError> {
        Ok(Process {
            server: self.start_server()?,
            census: ProcessTree::new(Some(self.supervisor_pid()), Vec::new()),
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
    /// The folder, the log, the program or the supervisor.
    pub fn start(setting: &ProcessSetting, supervisor: &Supervisor) -> Result<Self, StartError> {
        Standby::new(setting, supervisor)?.go()
    }

    /// Starts a program that writes to the end of an open log.
    ///
    /// # Errors
    /// The folder, the program or the supervisor.
    pub(crate) fn start_with_log(
        setting: &ProcessSetting,
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
    pub fn exited(&mut self) -> Option<ProcessExit> {
        self.listen(Duration::ZERO);
        self.exit
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
        log::tail(&self.standby.setting.log, lines).unwrap_or_default()
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

    /// Says that a server was started, and nothing after that.
    const SILENT: &str = r#"
        read order; echo '{"ready":{"notes":[]}}' >&0
        read order; echo '{"started":{"pid":'$$'}}' >&0
        exec sleep 600"#;

    /// A supervisor that says nothing was waited for twice: by the stop, and by the drop after it.
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
