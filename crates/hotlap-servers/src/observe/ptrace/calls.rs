//! The requests of ptrace(2), and what it reports.
#![expect(unsafe_code, reason = "no safe library has PTRACE_LISTEN and waits for own tracees")]

use std::io;

const SEIZE: libc::c_long = 0x4206;
const GET_EVENT_MESSAGE: libc::c_long = 0x4201;
const GET_SYSCALL_INFO: libc::c_long = 0x420e;

/// Options: stops at system calls are marked, and new threads, new processes and new programs
/// are traced as well.
const OPTIONS: libc::c_long = 0x1 | 0x2 | 0x4 | 0x8 | 0x10;

/// Events in the status of a stopped thread.
const EVENT_FORK: i32 = 1;
const EVENT_VFORK: i32 = 2;
const EVENT_CLONE: i32 = 3;
const EVENT_EXEC: i32 = 4;
const EVENT_STOP: i32 = 128;

/// Added to SIGTRAP for a stop at a system call.
const MARK: i32 = 0x80;

/// What a thread is told to do.
#[derive(Debug, Clone, Copy)]
pub(super) enum Request {
    /// To stop.
    Interrupt = 0x4207,
    /// To go on until the beginning or the end of a system call.
    ToSystemCall = 24,
    /// To stay stopped until it gets SIGCONT.
    Listen = 0x4208,
    /// To go on untraced.
    Detach = 17,
}

/// Why a thread has stopped.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stop {
    /// It has ended.
    Gone,
    /// It began or ended a system call.
    SystemCall,
    /// Its process was sent SIGSTOP or the like.
    Frozen,
    /// It started a thread or a process, with this id if known.
    Started(Option<i32>),
    /// For the tracer alone.
    Other,
    /// It is about to get a signal.
    Signal(i32),
}

fn ptrace(
    request: libc::c_long,
    thread: i32,
    address: usize,
    data: usize,
) -> io::Result<libc::c_long> {
    // SAFETY: the requests used here write only to `data`, which is a number or points to a
    // buffer of at least the size in `address`, or of a long for GET_EVENT_MESSAGE.
    let result = unsafe {
        libc::syscall(libc::SYS_ptrace, request, libc::c_long::from(thread), address, data)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Begins to trace a thread without stopping it.
pub(super) fn seize(thread: i32) -> io::Result<()> {
    ptrace(SEIZE, thread, 0, OPTIONS as usize).map(drop)
}

/// Tells a thread what to do, with a signal that it gets if not 0.
pub(super) fn ask(request: Request, thread: i32, signal: i32) -> io::Result<()> {
    ptrace(request as libc::c_long, thread, 0, signal as usize).map(drop)
}

/// The number of the system call that a stopped thread is about to begin; `None` if it has
/// ended one. `struct ptrace_syscall_info`: what it is in the first byte (1: the beginning), the
/// number in the 8 bytes from 24.
pub(super) fn entered(thread: i32) -> Option<u64> {
    let mut info = [0_u64; 11];
    let at = std::ptr::from_mut(&mut info) as usize;
    ptrace(GET_SYSCALL_INFO, thread, size_of_val(&info), at).ok()?;
    (info[0].to_ne_bytes()[0] == 1).then_some(info[3])
}

/// The id of the thread or process that a stopped thread has started.
fn message(thread: i32) -> Option<i32> {
    let mut message: libc::c_ulong = 0;
    let at = std::ptr::from_mut(&mut message) as usize;
    ptrace(GET_EVENT_MESSAGE, thread, 0, at).ok()?;
    i32::try_from(message).ok()
}

/// A thread that has stopped or ended, if any, of those that this thread traces.
///
/// # Errors
/// It traces none.
pub(super) fn stopped() -> io::Result<Option<(i32, Stop)>> {
    let mut status = 0;
    let flags = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
    // SAFETY: `status` is written only.
    let thread = unsafe { libc::waitpid(-1, &raw mut status, flags) };
    match thread {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => Ok(Some((thread, reason(thread, status)))),
    }
}

fn reason(thread: i32, status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Gone;
    }
    let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
    match (event, signal) {
        (0, _) if signal == libc::SIGTRAP | MARK => Stop::SystemCall,
        (EVENT_STOP, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) => Stop::Frozen,
        (EVENT_FORK | EVENT_VFORK | EVENT_CLONE, _) => Stop::Started(message(thread)),
        (EVENT_STOP | EVENT_EXEC, _) => Stop::Other,
        (0, _) => Stop::Signal(signal),
        _ => Stop::Other,
    }
}
