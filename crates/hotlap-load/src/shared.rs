//! State that a session shares with its workers, and the system resources that they need. Except
//! for the progress, the state is written a few times per load or window, never per request.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use mio::Waker;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::outcome::{Failure, Outcome};
use crate::plan::{Plan, PlanError, Stop};

/// The state that a session shares with its workers.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The progress of each worker, which only that worker writes.
    pub(crate) progress: Vec<WorkerProgress>,
    /// The start of the load. 0 until it is known.
    start_ns: AtomicU64,
    opens_ns: AtomicU64,
    closes_ns: AtomicU64,
    is_stopped: AtomicBool,
    mode: Mode,
    /// The number of commands that were given to the workers of a held load.
    commands: AtomicU64,
    /// The number of the last command of each kind.
    windows: AtomicU64,
    collects: AtomicU64,
    pauses: AtomicU64,
    /// When the last call of [`pause`](Self::pause) ended. From then on, the server may have been
    /// stopped.
    paused_ns: AtomicU64,
    /// The number of workers that are still opening connections.
    connecting: AtomicUsize,
    /// The number of connections that opened without failing first.
    reached: AtomicU64,
    wakers: Vec<Arc<Waker>>,
    warmup: Duration,
    stop: Stop,
    start_at: Option<SystemTime>,
    state: Mutex<State>,
    changed: Condvar,
    /// The worker that panics at the next command. `usize::MAX` for none.
    #[cfg(test)]
    pub(crate) panics: AtomicUsize,
}

/// When a load begins, and whether it continues after a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The load has one window, and begins once all connections are open.
    Once,
    /// The load has one window, and begins on command.
    Waiting,
    /// The load continues between windows, which are opened one by one.
    Held,
}

/// The numbers of the last command of each kind that the session of a held load has given. All
/// commands are numbered in their order, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Commands {
    /// The number of the last command to open a window.
    pub(crate) windows: u64,
    /// The number of the last command to hand over the outcome of the windows so far.
    pub(crate) collects: u64,
    /// The number of the last command to send nothing until the next window.
    pub(crate) pauses: u64,
}

impl Commands {
    /// Returns the commands to carry out now, after `done`. A command that was given after the
    /// command to open a window waits until that window has closed. A worker that wakes up late
    /// finds the window and the command at the same time.
    pub(crate) fn next_after(self, done: Self) -> Self {
        if self.windows == done.windows {
            return self;
        }
        let next = |given, done| if given > self.windows { done } else { given };
        Self {
            windows: self.windows,
            collects: next(self.collects, done.collects),
            pauses: next(self.pauses, done.pauses),
        }
    }
}

/// The reports of the workers.
#[derive(Debug, Default)]
struct State {
    /// The window. `Some(None)` means that there will be no window.
    window: Option<Option<Window>>,
    /// Whether all workers are ready.
    is_ready: bool,
    first_connect_error: Option<(Failure, String)>,
    is_unreachable: bool,
    /// The outcomes collected from the workers of a held load.
    collected: Vec<Outcome>,
    /// The number of the last pause that a worker reported, and how many workers reported it. A
    /// worker reports a pause once it has no request in flight.
    idle: (u64, usize),
}

impl Shared {
    pub(crate) fn new(plan: &Plan, mode: Mode, wakers: Vec<Arc<Waker>>) -> Self {
        Self {
            progress: (0..plan.shape.threads).map(|_| WorkerProgress::default()).collect(),
            start_ns: AtomicU64::new(0),
            opens_ns: AtomicU64::new(0),
            closes_ns: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            mode,
            commands: AtomicU64::new(0),
            windows: AtomicU64::new(0),
            collects: AtomicU64::new(0),
            pauses: AtomicU64::new(0),
            paused_ns: AtomicU64::new(0),
            connecting: AtomicUsize::new(plan.shape.threads),
            reached: AtomicU64::new(0),
            wakers,
            warmup: plan.warmup,
            stop: plan.stop,
            start_at: plan.start_at,
            state: Mutex::default(),
            changed: Condvar::new(),
            #[cfg(test)]
            panics: AtomicUsize::new(usize::MAX),
        }
    }

    // Methods that workers call to read the state.

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.mode == Mode::Held
    }

    /// Returns when the load starts, and when its window opens and closes. Returns `None` until
    /// these times are known.
    pub(crate) fn times(&self) -> Option<Times> {
        let start_ns = self.start_ns.load(Ordering::Acquire);
        let opens_ns = self.opens_ns.load(Ordering::Relaxed);
        let closes_ns = self.closes_ns.load(Ordering::Relaxed);
        (start_ns > 0).then_some(Times { start_ns, opens_ns, closes_ns })
    }

    /// Returns the last command of each kind.
    #[inline]
    pub(crate) fn commands(&self) -> Commands {
        let read = |number: &AtomicU64| number.load(Ordering::Acquire);
        // Windows are read last, so that no command is seen without the window before it.
        let (collects, pauses) = (read(&self.collects), read(&self.pauses));
        Commands { windows: read(&self.windows), collects, pauses }
    }

    /// Returns when the last call of [`pause`](Self::pause) ended.
    pub(crate) fn paused_ns(&self) -> u64 {
        self.paused_ns.load(Ordering::Acquire)
    }

    // Methods that workers call to report.

    /// Reports that each connection of a worker has opened or failed, and that `reached` of them
    /// opened without failing first. The last report sets the times unless the load waits, or ends
    /// the load if no connection of any worker opened without failing first.
    pub(crate) fn ready(&self, reached: u64) {
        let reached = self.reached.fetch_add(reached, Ordering::AcqRel) + reached;
        if self.connecting.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        if reached == 0 {
            self.lock().is_unreachable = true;
            self.end();
            return;
        }
        self.lock().is_ready = true;
        if self.mode == Mode::Waiting {
            return;
        }
        let wait = self.start_at.and_then(|at| at.duration_since(SystemTime::now()).ok());
        self.begin(wait.unwrap_or_default(), Duration::ZERO);
    }

    /// Sets the times of a load that starts after `wait` and should have started `late` ago.
    pub(crate) fn begin(&self, wait: Duration, late: Duration) -> Window {
        let (warmup, length) = match self.stop {
            // The first window opens on command.
            _ if self.is_held() => (Duration::from_nanos(clock::FAR_NS), None),
            Stop::After(length) => (self.warmup, Some(length)),
            Stop::Requests(_) => (Duration::ZERO, None),
        };
        let (times, window) = Times::after(wait, late, warmup, length);
        self.opens_ns.store(times.opens_ns, Ordering::Relaxed);
        self.closes_ns.store(times.closes_ns, Ordering::Relaxed);
        self.start_ns.store(times.start_ns, Ordering::Release);
        self.set_window(Some(window));
        self.wake();
        window
    }

    /// Reports that a connection failed before the load started.
    pub(crate) fn connect_failed(&self, failure: Failure, why: &str) {
        self.lock().first_connect_error.get_or_insert_with(|| (failure, why.to_owned()));
    }

    /// Reports that a worker has no request in flight after the pause with this number.
    pub(crate) fn idle(&self, pause: u64) {
        let mut state = self.lock();
        let count = if state.idle.0 == pause { state.idle.1 } else { 0 };
        state.idle = (pause, count + 1);
        drop(state);
        self.changed.notify_all();
    }

    pub(crate) fn hand_over(&self, outcome: Outcome) {
        self.lock().collected.push(outcome);
        self.changed.notify_all();
    }

    // Methods that the session calls.

    pub(crate) fn end(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.set_window(None);
        self.wake();
    }

    /// Waits until the window is known. Returns `None` if there will be no window.
    pub(crate) fn wait_for_window(&self) -> Option<Window> {
        let is_unknown = |state: &mut State| state.window.is_none();
        let state = self.changed.wait_while(self.lock(), is_unknown);
        state.unwrap_or_else(PoisonError::into_inner).window.flatten()
    }

    /// Opens a window of a held load.
    pub(crate) fn open_window(&self, warmup: Duration, length: Duration) -> Window {
        let (times, window) = Times::after(Duration::ZERO, Duration::ZERO, warmup, Some(length));
        self.opens_ns.store(times.opens_ns, Ordering::Relaxed);
        self.closes_ns.store(times.closes_ns, Ordering::Relaxed);
        self.give(&self.windows);
        window
    }

    /// Makes the workers of a held load pause, and waits at most `limit` until no request is in
    /// flight. Returns whether no request is in flight.
    pub(crate) fn pause(&self, limit: Duration) -> bool {
        let pause = self.give(&self.pauses);
        let all_idle = (pause, self.progress.len());
        let is_busy = |state: &mut State| state.idle != all_idle && !self.is_stopped();
        let waited = self.changed.wait_timeout_while(self.lock(), limit, is_busy);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        self.paused_ns.store(clock::now(), Ordering::Release);
        state.idle == all_idle
    }

    /// Collects the outcome of the windows of a held load. Returns `None` if the load has ended.
    pub(crate) fn collect(&self) -> Option<Outcome> {
        self.give(&self.collects);
        let workers = self.progress.len();
        let is_incomplete =
            |state: &mut State| state.collected.len() < workers && !self.is_stopped();
        let state = self.changed.wait_while(self.lock(), is_incomplete);
        let mut collected =
            std::mem::take(&mut state.unwrap_or_else(PoisonError::into_inner).collected);
        if collected.len() < workers {
            return None;
        }
        let mut sum = collected.pop()?;
        collected.iter().for_each(|outcome| sum.merge(outcome));
        Some(sum)
    }

    /// Returns whether the load begins on command.
    pub(crate) fn is_waiting(&self) -> bool {
        self.mode == Mode::Waiting
    }

    /// Returns whether all workers are ready and the load has not ended.
    pub(crate) fn is_ready(&self) -> bool {
        self.lock().is_ready && !self.is_stopped()
    }

    /// Returns why a connection failed: the first failure before the load started.
    pub(crate) fn first_connect_error(&self) -> Option<(Failure, String)> {
        self.lock().first_connect_error.clone()
    }

    /// Returns whether every connection failed before it opened.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.lock().is_unreachable
    }

    fn set_window(&self, window: Option<Window>) {
        self.lock().window.get_or_insert(window);
        self.changed.notify_all();
    }

    /// Gives a command to the workers. Returns its number.
    fn give(&self, command: &AtomicU64) -> u64 {
        let number = self.commands.fetch_add(1, Ordering::AcqRel) + 1;
        command.store(number, Ordering::Release);
        self.wake();
        number
    }

    fn wake(&self) {
        for waker in &self.wakers {
            // A worker that cannot be woken notices the change at its next event or check. A paused
            // worker has neither, but on Linux a waker does not fail.
            let _ = waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason why a load cannot be run or has no result. Failures under load are not errors, and
/// are counted in the [`Outcome`](crate::Outcome).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The system refused a resource that the generator needs.
    #[error("cannot {what}: {why}")]
    System {
        /// What the generator tried, and what the user can do about the error.
        what: String,
        /// The system's error. It is not a source, because the message contains it.
        why: std::io::Error,
    },
    /// A worker thread panicked, which is a bug in the generator. Its counts are lost, so the load
    /// has no result.
    #[error(
        "a bug in the load generator: thread {thread} panicked ({why}), so this load has no \
         result. Please report the bug with the command"
    )]
    Panicked {
        /// The name of the thread.
        thread: String,
        /// The message of the panic.
        why: String,
    },
    /// Every connection failed before it opened.
    #[error("cannot connect to {target}: {why}")]
    Unreachable {
        /// The address of the server.
        target: String,
        /// The kind of the first failure.
        failure: Failure,
        /// The reason for the first failure.
        why: String,
    },
}

/// The progress of a load, over all workers. Each worker updates it at every wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// The number of correct responses so far, including the warm-up.
    pub responses: u64,
    /// The number of failures so far, including the warm-up.
    pub failures: u64,
    /// The number of connections that are open now.
    pub connected: u64,
}

/// The progress that one worker shows to other threads. It has 128 bytes of memory to itself,
/// because processors fetch cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerProgress {
    responses: AtomicU64,
    failures: AtomicU64,
    connected: AtomicU64,
}

impl WorkerProgress {
    #[inline]
    pub(crate) fn store(&self, responses: u64, failures: u64, connected: u64) {
        self.responses.store(responses, Ordering::Relaxed);
        self.failures.store(failures, Ordering::Relaxed);
        self.connected.store(connected, Ordering::Relaxed);
    }
}

impl Progress {
    /// Returns the number of requests that have a response or have failed so far.
    pub fn completed(&self) -> u64 {
        self.responses + self.failures
    }

    /// Adds the progress of another part of the load.
    pub fn add(&mut self, other: Self) {
        self.responses += other.responses;
        self.failures += other.failures;
        self.connected += other.connected;
    }

    /// Returns the progress summed over all workers.
    pub(crate) fn sum(workers: &[WorkerProgress]) -> Self {
        let mut sum = Self::default();
        for worker in workers {
            sum.add(Self {
                responses: worker.responses.load(Ordering::Relaxed),
                failures: worker.failures.load(Ordering::Relaxed),
                connected: worker.connected.load(Ordering::Relaxed),
            });
        }
        sum
    }
}

/// The measurement window, which opens after the warm-up.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// When the window opens.
    pub opens: Instant,
    /// When the window closes. `None` if the plan limits requests, or a held load has no window
    /// yet.
    pub closes: Option<Instant>,
}

/// When a load starts, and when its window opens and closes, on the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) start_ns: u64,
    pub(crate) opens_ns: u64,
    /// When the window closes. `u64::MAX` if that is not known in advance.
    pub(crate) closes_ns: u64,
}

impl Times {
    /// Times that are not yet known.
    pub(crate) const UNKNOWN: Self =
        Self { start_ns: u64::MAX, opens_ns: u64::MAX, closes_ns: u64::MAX };

    /// Returns the times of a load that starts after `wait`. Its window opens after `warmup` and
    /// stays open for `length`. If the load is `late`, the warm-up is shorter by that time. If the
    /// warm-up is not long enough, the window is shorter too.
    pub(crate) fn after(
        wait: Duration,
        late: Duration,
        warmup: Duration,
        length: Option<Duration>,
    ) -> (Self, Window) {
        let (instant, now) = (Instant::now(), clock::now());
        let start_ns = now + clock::nanos(wait);
        let late_ns = clock::nanos(late);
        let from_start = |ns: u64| start_ns + ns.saturating_sub(late_ns);
        let warmup_ns = clock::nanos(warmup);
        let opens_ns = from_start(warmup_ns);
        let closes_ns =
            length.map_or(u64::MAX, |length| from_start(warmup_ns + clock::nanos(length)));
        let opens = instant + Duration::from_nanos(opens_ns - now);
        let closes = length.map(|_| instant + Duration::from_nanos(closes_ns - now));
        (Self { start_ns, opens_ns, closes_ns }, Window { opens, closes })
    }
}

/// The number of files that the sessions of this process have reserved.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// The number of other files that the process may have open.
const OTHER_FILES: u64 = 128;

/// The number of files that one session has reserved, released on drop.
#[derive(Debug)]
pub(crate) struct OpenFiles(u64);

impl OpenFiles {
    /// Reserves the files that a plan needs, and raises the limit of open files if necessary.
    ///
    /// # Errors
    /// The system does not allow that many open files.
    pub(crate) fn reserve(plan: &Plan) -> Result<Self, Error> {
        // Each connection needs a file. Each worker needs three: event queue, waker and timer.
        let reserved = Self(plan.shape.connections as u64 + 3 * plan.shape.threads as u64);
        let others = RESERVED.fetch_add(reserved.0, Ordering::Relaxed);
        raise_limit(plan, others + reserved.0 + OTHER_FILES)?;
        Ok(reserved)
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        RESERVED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Raises the limit on open files to `needed`, unless it is high enough.
fn raise_limit(plan: &Plan, needed: u64) -> Result<(), Error> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    // Only root may raise the hard limit.
    let maximum = limit.maximum.map(|hard| hard.max(needed));
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).map_err(|errno| {
        let connections = match plan.shape.connections {
            1 => "1 connection".to_owned(),
            more => format!("{more} connections"),
        };
        let what = match limit.maximum {
            Some(most) => format!(
                "open {connections}, because at most {most} open files are allowed (as root, \
                 `ulimit -Hn {needed}` raises the limit)"
            ),
            None => {
                format!("open {connections}, because the system does not allow {needed} open files")
            }
        };
        Error::System { what, why: errno.into() }
    })
}

/// Pins the calling thread to its core. If that is not permitted, the thread runs on any core.
/// Callers that rely on the pinning must check it.
#[cfg(target_os = "linux")]
pub(crate) fn pin(plan: &Plan, worker: usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let Some(cpu) = plan.cpu(worker).filter(|cpu| *cpu < CpuSet::MAX_CPU) else { return };
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set);
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_plan: &Plan, _worker: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data that a thread writes at each wake-up shares no cache line with the data of another
    /// thread. The progress of all workers is one allocation, and the only data that threads share
    /// and write while a load runs. A worker itself is on the stack of its thread. That thread also
    /// allocates the slots, counts and events.
    #[test]
    fn no_two_workers_share_a_cache_line_or_a_pair_of_lines() {
        const PAIR: usize = 128;
        assert_eq!(align_of::<WorkerProgress>(), PAIR);
        assert_eq!(size_of::<WorkerProgress>() % PAIR, 0);
        let workers: Vec<WorkerProgress> = (0..4).map(|_| WorkerProgress::default()).collect();
        let pairs = workers.iter().map(|w| std::ptr::from_ref(w).addr() / PAIR);
        let distinct: std::collections::BTreeSet<usize> = pairs.collect();
        assert_eq!(distinct.len(), workers.len());
    }

    /// Regression: a worker that woke up late found a window and the pause after it, and paused
    /// first. Then the worker sent without end, and never reported that it was idle.
    #[test]
    fn a_pause_after_a_window_waits_until_the_window_has_closed() {
        let done = Commands { windows: 1, collects: 0, pauses: 2 };
        let all = Commands { windows: 3, collects: 5, pauses: 4 };
        let window = Commands { windows: 3, ..done };
        assert_eq!(all.next_after(done), window);
        assert_eq!(all.next_after(window), all);
        // Commands before the window are carried out before it opens.
        let reverse = Commands { windows: 5, collects: 4, pauses: 3 };
        assert_eq!(reverse.next_after(done), reverse);
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns how long after its start the window opens, and how long it is open, in milliseconds.
    fn window(late: Duration) -> (u64, u64) {
        let (times, _) = Times::after(Duration::ZERO, late, SECOND, Some(2 * SECOND));
        let ms = |from: u64, to: u64| (to - from) / 1_000_000;
        (ms(times.start_ns, times.opens_ns), ms(times.opens_ns, times.closes_ns))
    }

    #[test]
    fn a_late_load_has_less_warmup_and_then_a_shorter_window() {
        assert_eq!(window(Duration::ZERO), (1_000, 2_000));
        assert_eq!(window(Duration::from_millis(300)), (700, 2_000));
        assert_eq!(window(Duration::from_millis(1_500)), (0, 1_500));
        assert_eq!(window(Duration::from_secs(5)), (0, 0));
    }
}
