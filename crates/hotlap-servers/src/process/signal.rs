//! Sends signals to a server's processes and waits until they take effect.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use hotlap_observe::Member;

/// How long a server's processes may take to stop. Usually they only wait for a core.
pub(super) const FREEZE_LIMIT: Duration = Duration::from_secs(2);

/// How often to check without sleeping whether a process has stopped, and the sleep between later
/// checks.
#[cfg(target_os = "linux")]
const FREEZE_YIELDS: u32 = 50;
#[cfg(target_os = "linux")]
const FREEZE_LOOK: Duration = Duration::from_micros(100);

/// Sends a signal to a server's process group and to each member of its tree.
///
/// The group comes first: the kernel signals it atomically, so no fork can escape. It is signalled
/// only while a member is in it, because the group id may be reused afterwards.
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
    kill_process(raw(member.pid).ok_or(Errno::SRCH)?, signal)
}

/// Waits until a process that was sent SIGSTOP has stopped or ended. SIGSTOP only marks a process:
/// each thread stops when it next returns from the kernel, for which it may have to wait for a
/// core. Usually it has stopped by the first check.
#[cfg(target_os = "linux")]
pub(super) fn has_stopped(member: &Member, until: Instant) -> bool {
    for look in 0.. {
        if hotlap_observe::processes::state(member.pid).is_none_or(|state| "TtZX".contains(state)) {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        // If both share a core, the process can only stop once this one yields.
        match look {
            0..FREEZE_YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(FREEZE_LOOK),
        }
    }
    unreachable!("the loop returns once the time is up")
}

/// On other systems the state of a process is not checked.
#[cfg(not(target_os = "linux"))]
pub(super) fn has_stopped(_member: &Member, _until: Instant) -> bool {
    true
}

pub(super) fn raw(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}
