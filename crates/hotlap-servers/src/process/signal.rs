//! Sends signals to the processes of a server, found in its process tree or by their mark.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use hotlap_observe::{Member, processes};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getuid, kill_process, kill_process_group};

/// The mark of a server's processes: an environment variable with the path of the server's log,
/// which child processes inherit.
///
/// If a supervisor was killed, hotlap uses the mark to find processes that have left the tree. If
/// hotlap and its supervisors were killed together, the next hotlap uses the mark to find the
/// processes that are left over.
pub(super) const MARK: &str = "HOTLAP_SERVER_LOG";

/// How long a server's processes may take to stop. Usually they only wait for a core.
pub(super) const FREEZE_LIMIT: Duration = Duration::from_secs(2);

/// How often to check, without sleeping, whether a process has stopped, and the sleep between later
/// checks.
#[cfg(target_os = "linux")]
const FREEZE_YIELDS: u32 = 50;
#[cfg(target_os = "linux")]
const FREEZE_LOOK: Duration = Duration::from_micros(100);

/// Sends a signal to a server's process group and to each member of its tree.
///
/// The group comes first, because the kernel signals it atomically, so no fork can escape. The
/// group is signalled only while a member is in it, because the group id may be reused afterwards.
pub(super) fn signal_tree(server: Pid, members: &[Member], signal: Signal) {
    let group = server.as_raw_pid() as u32;
    if members.iter().any(|member| member.group == group) {
        let _ = kill_process_group(server, signal);
    }
    for member in members.iter().filter(|member| member.group != group && !member.zombie) {
        let _ = signal_one(member, signal);
    }
}

pub(super) fn signal_one(member: &Member, signal: Signal) -> Result<(), Errno> {
    signal_if(member.pid, signal, || processes::is_still(member))
}

/// Sends a signal to a process if `is_meant` confirms the process. The id may have passed to
/// another process. Therefore, a process handle is opened first, and the process is checked
/// afterwards.
#[cfg(target_os = "linux")]
fn signal_if(pid: u32, signal: Signal, is_meant: impl FnOnce() -> bool) -> Result<(), Errno> {
    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
    let pid = raw(pid).ok_or(Errno::SRCH)?;
    let held = pidfd_open(pid, PidfdFlags::empty());
    match held {
        Err(error) if error != Errno::NOSYS => Err(error),
        _ if !is_meant() => Err(Errno::SRCH),
        Ok(held) => pidfd_send_signal(held, signal),
        // gVisor has no process handles.
        Err(_) => kill_process(pid, signal),
    }
}

/// Sends a signal to a process if `is_meant` confirms the process. This system has no process
/// handles.
#[cfg(not(target_os = "linux"))]
fn signal_if(pid: u32, signal: Signal, is_meant: impl FnOnce() -> bool) -> Result<(), Errno> {
    let pid = raw(pid).filter(|_| is_meant()).ok_or(Errno::SRCH)?;
    kill_process(pid, signal)
}

/// Waits until a process that was sent SIGSTOP has stopped or ended, or the time is `until`.
/// Returns whether the process has stopped or ended. SIGSTOP only marks a process. Each thread
/// stops when it next returns from the kernel, and may first have to wait for a core. Usually the
/// process has stopped by the first check.
#[cfg(target_os = "linux")]
pub(super) fn has_stopped(member: &Member, until: Instant) -> bool {
    for look in 0.. {
        if hotlap_observe::processes::state(member.pid).is_none_or(|state| "TtZX".contains(state)) {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        // If hotlap and the process share a core, the process can only stop once hotlap yields.
        match look {
            0..FREEZE_YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(FREEZE_LOOK),
        }
    }
    unreachable!("the loop returns once the time is up")
}

/// Returns true without a check on systems other than Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn has_stopped(_member: &Member, _until: Instant) -> bool {
    true
}

pub(super) fn raw(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// The time limit for finding and killing processes. A killed process needs a core to end. A
/// process that starts during one look is found by a later one.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// How many looks in a row must find nothing. A process has no environment for a moment during
/// `execve`, so one look may miss it.
const EMPTY_LOOKS: u32 = 4;
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Kills every process of this user whose mark is this log, or a log in this folder. Returns the
/// names and ids of the killed processes. On systems other than Linux, the environment of other
/// processes is not read, and no process is killed.
///
/// The caller must know that the run to which the logs belong has ended, because another hotlap of
/// this user may use the same folder.
pub fn kill_marked(logs: &Path) -> Vec<String> {
    let mut killed = BTreeMap::new();
    let until = Instant::now() + LOOK_LIMIT;
    let mut empty = 0;
    while empty < EMPTY_LOOKS && Instant::now() < until {
        if empty > 0 {
            std::thread::sleep(LOOK_AGAIN);
        }
        let all = processes::all().unwrap_or_default();
        let marked = all.into_iter().filter(|m| !m.zombie && is_marked(m.pid, logs));
        let names: Vec<(u32, String)> = marked.filter_map(|member| kill(&member, logs)).collect();
        empty = if names.is_empty() { empty + 1 } else { 0 };
        killed.extend(names);
    }
    killed.into_values().collect()
}

/// Returns whether a process of this user has the mark. Processes of other users are left alone,
/// even by root, who could read their environment.
fn is_marked(pid: u32, logs: &Path) -> bool {
    let process = format!("/proc/{pid}");
    let is_own = fs::metadata(&process).is_ok_and(|found| found.uid() == getuid().as_raw());
    if !is_own || pid == std::process::id() {
        return false;
    }
    let variables = fs::read(format!("{process}/environ")).unwrap_or_default();
    let value = |variable: &[u8]| {
        let value = variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"=")?;
        Some(Path::new(OsStr::from_bytes(value)).starts_with(logs))
    };
    variables.split(|byte| *byte == 0).filter_map(value).any(|is_in| is_in)
}

/// Kills a process if it still has the mark. Returns its id, and its name with the id.
fn kill(member: &Member, logs: &Path) -> Option<(u32, String)> {
    signal_if(member.pid, Signal::KILL, || is_marked(member.pid, logs)).ok()?;
    Some((member.pid, format!("{} ({})", member.name, member.pid)))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    /// The id of a process may have belonged to an earlier process.
    #[test]
    fn only_the_process_that_is_meant_gets_a_signal() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let found = processes::all().unwrap().into_iter().find(|m| m.pid == child.id()).unwrap();
        let earlier = Member { started: found.started - 1, ..found.clone() };
        assert_eq!(signal_one(&earlier, Signal::KILL), Err(Errno::SRCH));
        assert!(child.try_wait().unwrap().is_none());
        assert_eq!(signal_one(&found, Signal::KILL), Ok(()));
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn processes_are_killed_by_their_mark_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let start = |run: &str| {
            let log = folder.path().join(run).join("0.log");
            Command::new("sleep").arg("600").env(MARK, log).process_group(0).spawn().unwrap()
        };
        let (mut dead, mut alive) = (start("7"), start("71"));
        let killed = kill_marked(&folder.path().join("7"));
        assert_eq!(killed, [format!("sleep ({})", dead.id())]);
        assert!(!dead.wait().unwrap().success());
        assert!(alive.try_wait().unwrap().is_none());
        alive.kill().unwrap();
        alive.wait().unwrap();
    }
}
