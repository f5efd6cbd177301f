//! Counts system calls by stopping every thread at each call, with ptrace(2).
//!
//! Tracing usually needs no privileges, but each call takes two stops of a few microseconds. A
//! thread of hotlap traces all threads of the server. However hotlap ends, the kernel detaches the
//! traced threads, and they go on.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::processes::{ProcessTree, Roots, status_field, threads};
use calls::{Request, Stop};

/// The time limit for a thread to stop so that it can be detached. A thread that takes longer, in
/// an uninterruptible wait, is detached by the kernel when the tracing thread ends.
const DETACH_LIMIT: Duration = Duration::from_secs(2);

/// The time to sleep if no thread of the server has stopped.
const IDLE: Duration = Duration::from_micros(100);

/// How many times the tracer finds no stopped thread before it begins to sleep between looks.
const LOOKS: u32 = 100;

/// Counts by the number of the system call.
pub(crate) type Counts = HashMap<u64, u64>;

/// Counts a server's system calls by stopping its threads.
#[derive(Debug)]
pub(crate) struct Ptrace {
    roots: Roots,
    tracer: Option<(Arc<AtomicBool>, JoinHandle<Counts>)>,
    counts: Counts,
}

impl Ptrace {
    /// Prepares to count, without attaching to any thread yet.
    pub(crate) fn new(roots: &Roots) -> Self {
        Self { roots: roots.clone(), tracer: None, counts: Counts::new() }
    }

    /// Attaches to every thread of the server.
    ///
    /// # Errors
    /// The kernel does not permit tracing, or another program traces the server. No thread stays
    /// attached then.
    pub(crate) fn enable(&mut self) -> io::Result<()> {
        let stop = Arc::new(AtomicBool::new(false));
        let (told, tree) = (Arc::clone(&stop), ProcessTree::new(self.roots.clone()));
        let (sender, attached) = channel();
        let thread = thread::spawn(move || Tracer::default().run(tree, &told, &sender));
        let attached = attached.recv().unwrap_or_else(|_| Err(io::Error::other("no tracer")));
        match attached {
            Ok(()) => self.tracer = Some((stop, thread)),
            Err(error) => {
                let _ = thread.join();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Detaches from the server.
    pub(crate) fn disable(&mut self) {
        let Some((stop, thread)) = self.tracer.take() else { return };
        stop.store(true, Ordering::Release);
        let counts = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for (number, count) in counts {
            *self.counts.entry(number).or_insert(0) += count;
        }
    }

    /// Returns the counts since the last call.
    pub(crate) fn take(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }
}

impl Drop for Ptrace {
    fn drop(&mut self) {
        self.disable();
    }
}

/// The state of the tracing thread, the only thread from which the kernel accepts requests.
#[derive(Debug, Default)]
struct Tracer {
    threads: BTreeSet<i32>,
    counts: Counts,
}

impl Tracer {
    fn run(
        mut self,
        tree: ProcessTree,
        stop: &AtomicBool,
        attached: &Sender<io::Result<()>>,
    ) -> Counts {
        let begun = self.attach(tree);
        let is_attached = begun.is_ok();
        let _ = attached.send(begun);
        let mut idle = 0;
        while is_attached && !stop.load(Ordering::Acquire) {
            match calls::stopped() {
                Ok(Some((thread, stop))) => {
                    self.handle(thread, stop);
                    idle = 0;
                }
                Ok(None) | Err(_) => {
                    idle += 1;
                    if idle < LOOKS { thread::yield_now() } else { thread::sleep(IDLE) }
                }
            }
        }
        self.detach();
        self.counts
    }

    /// Attaches to all threads. When an attached thread starts a new thread, the kernel attaches
    /// the new thread too. The next look finds other new threads.
    fn attach(&mut self, mut tree: ProcessTree) -> io::Result<()> {
        loop {
            let mut found = false;
            let _ = tree.look();
            let threads = tree.pids().into_iter().flat_map(threads);
            for thread in threads.map(u32::cast_signed) {
                if self.threads.contains(&thread) {
                    continue;
                }
                match calls::seize(thread) {
                    Ok(()) => {}
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                    Err(_) if is_traced_here(thread) => {}
                    Err(error) => return Err(error),
                }
                found = true;
                self.threads.insert(thread);
                // A thread stops at system calls only after it has been stopped and resumed.
                let _ = calls::ask(Request::Interrupt, thread, 0);
            }
            if !found {
                return Ok(());
            }
        }
    }

    /// Handles the stop of a thread: counts a system call, and lets the thread go on.
    fn handle(&mut self, thread: i32, stop: Stop) {
        self.threads.insert(thread);
        let signal = match stop {
            Stop::Gone => {
                self.threads.remove(&thread);
                return;
            }
            Stop::SystemCall => {
                if let Some(number) = calls::entered(thread) {
                    *self.counts.entry(number).or_insert(0) += 1;
                }
                0
            }
            Stop::Frozen => {
                // The thread stays stopped, and stops again when it is resumed.
                let _ = calls::ask(Request::Listen, thread, 0);
                return;
            }
            Stop::Started(child) => {
                self.threads.extend(child);
                0
            }
            Stop::Other => 0,
            Stop::Signal(signal) => signal,
        };
        let _ = calls::ask(Request::ToSystemCall, thread, signal);
    }

    /// Stops every thread and detaches from it. A thread that had stopped for a signal receives the
    /// signal.
    fn detach(&mut self) {
        for &thread in &self.threads {
            let _ = calls::ask(Request::Interrupt, thread, 0);
        }
        let until = Instant::now() + DETACH_LIMIT;
        while !self.threads.is_empty() && Instant::now() < until {
            let (thread, stop) = match calls::stopped() {
                Ok(Some(stopped)) => stopped,
                Ok(None) => {
                    thread::sleep(IDLE);
                    continue;
                }
                // No traced thread is left.
                Err(_) => return,
            };
            let signal = if let Stop::Signal(signal) = stop { signal } else { 0 };
            if let Stop::Started(Some(child)) = stop {
                self.threads.insert(child);
            }
            if matches!(stop, Stop::SystemCall)
                && let Some(number) = calls::entered(thread)
            {
                *self.counts.entry(number).or_insert(0) += 1;
            }
            self.threads.remove(&thread);
            if !matches!(stop, Stop::Gone) {
                let _ = calls::ask(Request::Detach, thread, signal);
            }
        }
    }
}

/// Returns whether a thread of this process traces `thread`.
fn is_traced_here(thread: i32) -> bool {
    let tracer = status_field(thread.cast_unsigned(), "TracerPid:");
    !tracer.is_empty() && fs::exists(format!("/proc/self/task/{tracer}")).unwrap_or(false)
}

/// The requests and reports of ptrace(2).
mod calls {
    #![expect(
        unsafe_code,
        reason = "no safe library offers PTRACE_LISTEN or waits for particular tracees"
    )]

    use std::io;

    const SEIZE: libc::c_long = 0x4206;
    const GET_EVENT_MESSAGE: libc::c_long = 0x4201;
    const GET_SYSCALL_INFO: libc::c_long = 0x420e;

    /// The options that mark stops at system calls, and also trace new threads, processes and
    /// programs.
    const OPTIONS: libc::c_long = 0x1 | 0x2 | 0x4 | 0x8 | 0x10;

    /// The events in the status of a stopped thread.
    const EVENT_FORK: i32 = 1;
    const EVENT_VFORK: i32 = 2;
    const EVENT_CLONE: i32 = 3;
    const EVENT_EXEC: i32 = 4;
    const EVENT_STOP: i32 = 128;

    /// The bit that is added to SIGTRAP for a stop at a system call.
    const MARK: i32 = 0x80;

    /// A request to a thread.
    #[derive(Debug, Clone, Copy)]
    pub(super) enum Request {
        /// Stop.
        Interrupt = 0x4207,
        /// Go on until the beginning or the end of a system call.
        ToSystemCall = 24,
        /// Stay stopped until SIGCONT arrives.
        Listen = 0x4208,
        /// Go on untraced.
        Detach = 17,
    }

    /// The reason why a thread has stopped.
    #[derive(Debug, Clone, Copy)]
    pub(super) enum Stop {
        /// The thread has ended.
        Gone,
        /// The thread began or ended a system call.
        SystemCall,
        /// The process received SIGSTOP or a similar signal.
        Frozen,
        /// The thread started a thread or a process, with this id if known.
        Started(Option<i32>),
        /// The stop matters only to the tracer.
        Other,
        /// The thread is about to receive a signal.
        Signal(i32),
    }

    fn ptrace(
        request: libc::c_long,
        thread: i32,
        address: usize,
        data: usize,
    ) -> io::Result<libc::c_long> {
        // SAFETY: the requests used here write only to `data`. The argument `data` is a number, or
        // points to a buffer of at least the size in `address`, or to a long for GET_EVENT_MESSAGE.
        let result = unsafe {
            libc::syscall(libc::SYS_ptrace, request, libc::c_long::from(thread), address, data)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    /// Begins to trace a thread without stopping it.
    pub(super) fn seize(thread: i32) -> io::Result<()> {
        ptrace(SEIZE, thread, 0, OPTIONS as usize).map(drop)
    }

    /// Sends a request to a thread. Unless `signal` is 0, also delivers this signal to the thread.
    pub(super) fn ask(request: Request, thread: i32, signal: i32) -> io::Result<()> {
        ptrace(request as libc::c_long, thread, 0, signal as usize).map(drop)
    }

    /// Returns the number of the system call that a stopped thread is about to begin. `None` if the
    /// thread has ended a system call. The first byte of `struct ptrace_syscall_info` is 1 at the
    /// beginning of a call, and the 8 bytes from 24 on are the number.
    pub(super) fn entered(thread: i32) -> Option<u64> {
        let mut info = [0_u64; 11];
        let at = std::ptr::from_mut(&mut info) as usize;
        ptrace(GET_SYSCALL_INFO, thread, size_of_val(&info), at).ok()?;
        (info[0].to_ne_bytes()[0] == 1).then_some(info[3])
    }

    /// Returns the id of the thread or process that a stopped thread has started.
    fn message(thread: i32) -> Option<i32> {
        let mut message: libc::c_ulong = 0;
        let at = std::ptr::from_mut(&mut message) as usize;
        ptrace(GET_EVENT_MESSAGE, thread, 0, at).ok()?;
        i32::try_from(message).ok()
    }

    /// Returns a thread that has stopped or ended, if any, of the threads that the calling thread
    /// traces.
    ///
    /// # Errors
    /// The calling thread traces no thread.
    pub(super) fn stopped() -> io::Result<Option<(i32, Stop)>> {
        let mut status = 0;
        let flags = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
        // SAFETY: `status` is valid for writes.
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
            (EVENT_STOP, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) => {
                Stop::Frozen
            }
            (EVENT_FORK | EVENT_VFORK | EVENT_CLONE, _) => Stop::Started(message(thread)),
            (EVENT_STOP | EVENT_EXEC, _) => Stop::Other,
            (0, _) => Stop::Signal(signal),
            _ => Stop::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Lines, Write};
    use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

    use super::*;

    /// The environment variable that tells a tracing process the id of the process to trace.
    const TRACED: &str = "HOTLAP_TRACED_PID";

    /// A shell that reads a number from a line, calls kill(2) that many times, then writes a line.
    struct Shell {
        child: Child,
        input: ChildStdin,
        output: Lines<BufReader<ChildStdout>>,
    }

    impl Shell {
        fn start() -> Self {
            let script = "echo; while read n; do
                while [ $n -gt 0 ]; do kill -0 $$; n=$((n - 1)); done; (kill -0 $$); echo; done";
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let input = child.stdin.take().unwrap();
            let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
            output.next().unwrap().unwrap();
            Self { child, input, output }
        }

        fn roots(pid: u32) -> Roots {
            Roots { supervisor: None, tops: vec![crate::processes::member(pid).unwrap()] }
        }

        /// Makes the shell call kill(2) this many times, and once more in a child process.
        fn kill(&mut self, times: u32) {
            writeln!(self.input, "{times}").unwrap();
            self.output.next().unwrap().unwrap();
        }

        fn signal(&self, signal: rustix::process::Signal) {
            let pid = rustix::process::Pid::from_child(&self.child);
            rustix::process::kill_process(pid, signal).unwrap();
        }

        fn status(&self, field: &str) -> String {
            status_field(self.child.id(), field)
        }

        fn until(&self, field: &str, is: impl Fn(&str) -> bool) {
            let since = Instant::now();
            while !is(&self.status(field)) {
                let now = self.status(field);
                assert!(since.elapsed() < Duration::from_secs(60), "{field} {now}");
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// Returns whether tracing was permitted. If it was not, a line is printed.
    fn is_permitted(enabled: io::Result<()>) -> bool {
        if let Err(error) = &enabled {
            assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
            let line = format!("skipped: nothing was traced: {error}\n");
            io::stderr().write_all(line.as_bytes()).unwrap();
        }
        enabled.is_ok()
    }

    fn kills(ptrace: &mut Ptrace) -> u64 {
        ptrace.take().get(&(libc::SYS_kill as u64)).copied().unwrap_or(0)
    }

    #[test]
    fn calls_of_a_process_and_its_children_are_counted_while_enabled() {
        let mut shell = Shell::start();
        let mut ptrace = Ptrace::new(&Shell::roots(shell.child.id()));
        shell.kill(10);
        if !is_permitted(ptrace.enable()) {
            return;
        }
        shell.kill(200);
        ptrace.disable();
        shell.kill(10);
        assert_eq!(kills(&mut ptrace), 201);
        ptrace.enable().unwrap();
        shell.kill(3);
        ptrace.disable();
        assert_eq!(kills(&mut ptrace), 4);
        assert_eq!(shell.status("TracerPid:"), "0");
    }

    #[test]
    fn a_frozen_process_stays_frozen_and_is_counted_once_it_goes_on() {
        use rustix::process::Signal;
        let mut shell = Shell::start();
        let mut ptrace = Ptrace::new(&Shell::roots(shell.child.id()));
        for _ in 0..3 {
            shell.signal(Signal::STOP);
            shell.until("State:", |state| state.starts_with('T'));
            if !is_permitted(ptrace.enable()) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
            assert!(shell.status("State:").starts_with('t'), "{}", shell.status("State:"));
            shell.signal(Signal::CONT);
            shell.kill(20);
            shell.signal(Signal::STOP);
            shell.until("State:", |state| state.starts_with('t'));
            ptrace.disable();
            assert_eq!(shell.status("TracerPid:"), "0");
            shell.until("State:", |state| state.starts_with('T'));
            assert_eq!(kills(&mut ptrace), 21);
            shell.signal(Signal::CONT);
            shell.kill(5);
            assert_eq!(kills(&mut ptrace), 0);
        }
    }

    /// This function is not a test. The next test runs it in a process, and kills the process.
    #[test]
    fn tracing() {
        let Ok(pid) = std::env::var(TRACED) else { return };
        let mut ptrace = Ptrace::new(&Shell::roots(pid.parse().unwrap()));
        if is_permitted(ptrace.enable()) {
            thread::sleep(Duration::from_secs(600));
        }
    }

    #[test]
    fn a_process_goes_on_when_hotlap_is_killed_while_it_traces() {
        let mut shell = Shell::start();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "ptrace::tests::tracing"]).stdout(Stdio::null());
        let mut tracing = command.env(TRACED, shell.child.id().to_string()).spawn().unwrap();
        while shell.status("TracerPid:") == "0" {
            if tracing.try_wait().unwrap().is_some() {
                return; // Tracing was not permitted.
            }
            thread::sleep(Duration::from_millis(1));
        }
        shell.kill(50);
        tracing.kill().unwrap();
        tracing.wait().unwrap();
        shell.until("TracerPid:", |tracer| tracer == "0");
        shell.kill(50);
        assert!(shell.child.try_wait().unwrap().is_none());
    }
}
