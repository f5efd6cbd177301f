//! The mark of a server's processes: a variable of their environment with the path of the server's
//! log.
//!
//! If a supervisor was killed, hotlap finds processes that have left the tree by their mark. If
//! hotlap and its supervisors were killed together, the next hotlap finds the processes that are
//! left over.

use std::path::Path;

/// The name of the variable, which child processes inherit.
pub(super) const NAME: &str = "HOTLAP_SERVER_LOG";

/// Kills every process of this user whose mark is a log in this folder, or this log. Returns the
/// names and ids of the killed processes.
///
/// Another hotlap of this user may use the same folder. So the caller must know that the run to
/// which the logs belong has ended.
pub fn kill_marked(logs: &Path) -> Vec<String> {
    platform::kill_marked(logs)
}

#[cfg(target_os = "linux")]
mod platform {
    use std::collections::BTreeMap;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::time::Duration;

    use rustix::process::{PidfdFlags, Signal, getuid, pidfd_open, pidfd_send_signal};

    use crate::process::mark::NAME;
    use crate::process::signal::raw;
    use hotlap_observe::{Member, processes};

    /// How often to look for processes at most. A process that starts during one look is found by
    /// the next look.
    const LOOKS: usize = 10;
    const LOOK_AGAIN: Duration = Duration::from_millis(5);

    pub(super) fn kill_marked(logs: &Path) -> Vec<String> {
        let mut killed = BTreeMap::new();
        for look in 0..LOOKS {
            let all = processes::all().unwrap_or_default();
            let marked = all.into_iter().filter(|m| !m.zombie && is_marked(m.pid, logs));
            let names: Vec<(u32, String)> =
                marked.filter_map(|member| Some((member.pid, kill(&member, logs)?))).collect();
            // A process that was killed stays for a moment.
            if look > 0 && names.is_empty() {
                break;
            }
            killed.extend(names);
            std::thread::sleep(LOOK_AGAIN);
        }
        killed.into_values().collect()
    }

    /// Whether a process of this user has the mark. Processes of other users are left alone, even
    /// by root, who could read their environment.
    fn is_marked(pid: u32, logs: &Path) -> bool {
        let process = format!("/proc/{pid}");
        let is_own = fs::metadata(&process).is_ok_and(|found| found.uid() == getuid().as_raw());
        if !is_own || pid == std::process::id() {
            return false;
        }
        let variables = fs::read(format!("{process}/environ")).unwrap_or_default();
        let value = |variable: &[u8]| {
            let value = variable.strip_prefix(NAME.as_bytes())?.strip_prefix(b"=")?;
            Some(Path::new(OsStr::from_bytes(value)).starts_with(logs))
        };
        variables.split(|byte| *byte == 0).filter_map(value).any(|is_in| is_in)
    }

    /// Kills a marked process. Its id may belong to another process by now. So a handle of the
    /// process is opened first, and then the mark is checked again.
    fn kill(member: &Member, logs: &Path) -> Option<String> {
        let held = pidfd_open(raw(member.pid)?, PidfdFlags::empty()).ok()?;
        if !is_marked(member.pid, logs) {
            return None;
        }
        pidfd_send_signal(held, Signal::KILL).ok()?;
        Some(format!("{} ({})", member.name, member.pid))
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::path::Path;

    /// The environment of other processes is not read on this system.
    pub(super) fn kill_marked(_logs: &Path) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn processes_are_killed_by_their_mark_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let start = |run: &str| {
            let log = folder.path().join(run).join("0.log");
            Command::new("sleep").arg("600").env(NAME, log).process_group(0).spawn().unwrap()
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
