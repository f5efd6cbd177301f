//! Gives servers and the load generator priority over other programs.
//!
//! If other programs keep the cores busy, a server must wait for its core. The measured latency is
//! then the latency of the busy machine. With priority, hotlap measures nearly the same capacity
//! as on a quiet machine (docs/evidence.md, *Capacity*). Three settings of Linux are needed:
//!
//! - The nice value: a task at -20 gets 87 times the CPU time of a task at 0 (sched(7)).
//! - The slice: a task that wakes up interrupts a running task at once only if its own slice is
//!   shorter. Otherwise, the woken task waits some milliseconds until the running task has used its
//!   slice (`PREEMPT_SHORT` in the kernel's `sched/features.h`, since 6.12).
//! - The nice value of the session, if sessions rather than tasks share the cores (`autogroup` in
//!   sched(7)).
//!
//! All three settings are inherited, so it is enough to change them for the thread that starts
//! everything else.
//!
//! Programs that hotlap does not start do not get this priority. If one of them is part of the
//! application, such as a database on the same machine, that program is slowed down.

use std::io;

/// Priority over other programs, for this thread and what it starts from now on. Dropping this
/// value restores the former priority of the thread and of the session.
#[derive(Debug)]
#[must_use = "the priority ends when this is dropped"]
pub struct Priority {
    #[cfg(target_os = "linux")]
    former: linux::Former,
}

impl Priority {
    /// Raises the priority.
    ///
    /// # Errors
    /// If this process lacks `CAP_SYS_NICE`, or the system is not Linux.
    pub fn raise() -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        return linux::raise().map(|former| Self { former });
        #[cfg(not(target_os = "linux"))]
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(target_os = "linux")]
impl Drop for Priority {
    fn drop(&mut self) {
        self.former.restore();
    }
}

#[cfg(target_os = "linux")]
mod linux {
    #![expect(unsafe_code, reason = "no safe library sets the slice of a thread")]

    use std::fs;
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    /// The nice value with the highest priority.
    const HIGHEST: i32 = -20;

    /// The file with the nice value of this process's session.
    const AUTOGROUP: &str = "/proc/self/autogroup";

    /// The priority before it was raised.
    #[derive(Debug)]
    pub struct Former {
        scheduling: Scheduling,
        /// Restores the session's nice value. `None` if the value was not changed.
        session: Option<SessionGuard>,
    }

    /// A process that restores the nice value of the session, however hotlap ends. Without this
    /// process, a shell would stay in a session with high priority after hotlap is killed.
    #[derive(Debug)]
    struct SessionGuard(Child);

    impl SessionGuard {
        fn start(nice: &str) -> io::Result<Self> {
            // `read` returns when the pipe's other end is closed. The guard has its own process
            // group, because a terminal's Ctrl-C goes to hotlap's group.
            let restore = "read -r end; echo \"$1\" > \"$0\"";
            let mut guard = Command::new("sh");
            guard.args(["-c", restore, AUTOGROUP, nice]).stdin(Stdio::piped()).process_group(0);
            guard.stdout(Stdio::null()).stderr(Stdio::null());
            guard.spawn().map(Self)
        }
    }

    impl Drop for SessionGuard {
        fn drop(&mut self) {
            // `wait` closes the guard's input first.
            let _ = self.0.wait();
        }
    }

    /// How a thread is scheduled.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Scheduling {
        pub nice: i32,
        /// How long the thread may run before another task's turn, in nanoseconds. 0 if the kernel
        /// does not say.
        pub slice_ns: u64,
    }

    pub fn raise() -> io::Result<Former> {
        let scheduling = Scheduling::now()?;
        // A slice that is a tenth shorter than the slice of other programs is short enough.
        let slice_ns = scheduling.slice_ns / 10 * 9;
        Scheduling { nice: HIGHEST, slice_ns }.set()?;
        let session = fs::read_to_string(AUTOGROUP).ok();
        let session = session.as_deref().and_then(|text| text.rsplit_once("nice "));
        let session = session.and_then(|(_, nice)| SessionGuard::start(nice.trim()).ok());
        let session = session.filter(|_| fs::write(AUTOGROUP, HIGHEST.to_string()).is_ok());
        Ok(Former { scheduling, session })
    }

    impl Former {
        pub fn restore(&mut self) {
            let _ = self.scheduling.set();
            self.session = None;
        }
    }

    impl Scheduling {
        /// Returns how this thread is scheduled.
        pub fn now() -> io::Result<Self> {
            // SAFETY: zeros are valid for a structure of numbers.
            let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
            let size = size_of::<libc::sched_attr>();
            // SAFETY: the kernel writes at most `size` bytes into the structure.
            let result =
                unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
            match result {
                0 => Ok(Self { nice: attributes.sched_nice, slice_ns: attributes.sched_runtime }),
                _ => Err(io::Error::last_os_error()),
            }
        }

        /// Applies this scheduling to the thread. A slice of 0 means the kernel's default.
        pub fn set(self) -> io::Result<()> {
            // SAFETY: zeros are valid for a structure of numbers.
            let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
            attributes.size = size_of::<libc::sched_attr>() as u32;
            attributes.sched_policy = libc::SCHED_OTHER as u32;
            attributes.sched_nice = self.nice;
            attributes.sched_runtime = self.slice_ns;
            // SAFETY: the kernel only reads the structure, and its first field is its size.
            let result =
                unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
            if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::linux::Scheduling;
    use super::*;

    /// Runs in a separate thread, so that other tests keep their priority.
    #[test]
    fn threads_inherit_the_priority_until_it_is_dropped() {
        std::thread::spawn(|| {
            let before = Scheduling::now().unwrap();
            let inherited = || std::thread::spawn(Scheduling::now).join().unwrap().unwrap();
            match Priority::raise() {
                Ok(priority) => {
                    let raised = inherited();
                    assert_eq!(raised.nice, -20);
                    assert_eq!(raised.slice_ns, before.slice_ns / 10 * 9);
                    drop(priority);
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
            }
            assert_eq!(inherited(), before);
        })
        .join()
        .unwrap();
    }
}
