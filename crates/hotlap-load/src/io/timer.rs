//! Wakes a worker at a given time, to the nanosecond if the system can: epoll's own timeout is in
//! milliseconds.

use std::io;
use std::time::Duration;

use mio::{Poll, Token};

/// The token of the timer's own event.
pub(super) const TIMER: Token = Token(usize::MAX - 1);

/// A timer in the event queue.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(super) struct Timer {
    fd: std::os::fd::OwnedFd,
    armed_ns: u64,
}

#[cfg(target_os = "linux")]
impl Timer {
    pub(super) fn new(poll: &Poll) -> io::Result<Self> {
        use mio::Interest;
        use mio::unix::SourceFd;
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        use std::os::fd::AsRawFd;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        poll.registry().register(&mut SourceFd(&fd.as_raw_fd()), TIMER, Interest::READABLE)?;
        Ok(Self { fd, armed_ns: 0 })
    }

    /// Arms the timer, unless it is armed for that time already. Returns the timeout for the wait
    /// itself, which is none.
    pub(super) fn arm(&mut self, at_ns: u64) -> Option<Duration> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        if self.armed_ns != at_ns {
            self.armed_ns = at_ns;
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let spec = Itimerspec { it_interval: zero, it_value: timespec(at_ns) };
            // This fails only for times out of range, which never come.
            let _ = timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &spec);
        }
        None
    }
}

/// A monotonic time, to the nanosecond. Zero would disarm the timer.
#[cfg(target_os = "linux")]
fn timespec(at_ns: u64) -> rustix::time::Timespec {
    let at_ns = at_ns.max(1);
    rustix::time::Timespec {
        tv_sec: (at_ns / 1_000_000_000) as _,
        tv_nsec: (at_ns % 1_000_000_000) as _,
    }
}

/// On other systems, the timeout of the wait itself.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) struct Timer;

#[cfg(not(target_os = "linux"))]
impl Timer {
    pub(super) fn new(_poll: &Poll) -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) fn arm(&mut self, at_ns: u64) -> Option<Duration> {
        Some(Duration::from_nanos(at_ns.saturating_sub(crate::clock::now())))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_armed_to_the_nanosecond() {
        let parts = |at_ns| (timespec(at_ns).tv_sec, timespec(at_ns).tv_nsec);
        assert_eq!(parts(5_000_333_333), (5, 333_333));
        assert_eq!(parts(999_999_999), (0, 999_999_999));
        assert_eq!(parts(0), (0, 1));
    }
}
