//! Signals to a server's processes, and the wait until they take effect.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::tree::Member;

/// How long a server's processes may take to stop. They only wait for a core.
pub(super) const FREEZE_LIMIT: Duration = Duration::from_secs(2);

/// Looks at a process that has not stopped yet without a sleep, and the sleep between later ones.
#[cfg(target_os = "linux")]
const FREEZE_YIELDS: u32 = 50;
#[cfg(target_os = "linux")]
const FREEZE_LOOK: Duration = Duration::from_micros(100);

/// Sends a signal to a server's group and to each member of its tree.
///
/// The group comes first: the kernel signals it in one go, against which a fork cannot race. It is
/// only signalled while a member is in it, since a group's number is free for others afterwards.
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

/// Waits until a process that was sent SIGSTOP has stopped or ended. A signal only marks a process:
/// each thread stops when it next returns from the kernel, for which it may have to wait for a
/// core. Usually that has happened by the time of the first look.
#[cfg(target_os = "linux")]
pub(super) fn has_stopped(member: &Member, until: Instant) -> bool {
    for look in 0.. {
        if crate::tree::state(member.pid).is_none_or(|state| "TtZX".contains(state)) {
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
pub(super) fn has_stopped(_member: &Member, _until: Instant) -> bool {
    true
}

pub(super) fn raw(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}
