//! A timer with nanosecond resolution, if the system has one: the timeout of a wait for events is
//! in milliseconds.

use std::io;
use std::time::Duration;

use mio::{Poll, Token};

#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct Timer(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Timer {
    pub(crate) fn new(poll: &Poll, token: Token) -> io::Result<Self> {
        use std::os::fd::AsRawFd;

        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let mut source = mio::unix::SourceFd(&fd.as_raw_fd());
        poll.registry().register(&mut source, token, mio::Interest::READABLE)?;
        Ok(Self(fd))
    }

    /// Arms it for `left` from now. Returns the timeout that the wait for events needs in addition.
    pub(crate) fn set(&self, left: Duration) -> Option<Duration> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        // 0 would disarm it.
        let left = left.max(Duration::from_nanos(1));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value =
            Timespec { tv_sec: left.as_secs() as _, tv_nsec: i64::from(left.subsec_nanos()) as _ };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        match timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &spec) {
            Ok(_) => None,
            Err(_) => Some(left),
        }
    }
}

#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct Timer;

#[cfg(not(target_os = "linux"))]
impl Timer {
    pub(crate) fn new(_poll: &Poll, _token: Token) -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) fn set(&self, left: Duration) -> Option<Duration> {
        Some(left)
    }
}
