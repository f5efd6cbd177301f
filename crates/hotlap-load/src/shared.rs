//! State shared between a session and its workers. Apart from the progress, it is written a few
//! times per load, never per request.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use mio::Waker;

use crate::clock;
use crate::outcome::Outcome;
use crate::plan::{Plan, Stop};
use crate::progress::WorkerProgress;
use crate::window::{Times, Window};

/// State shared between a session and its workers.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Written by one worker each.
    pub(crate) progress: Vec<WorkerProgress>,
    /// When the load starts; 0 until all workers are ready.
    start_ns: AtomicU64,
    opens_ns: AtomicU64,
    closes_ns: AtomicU64,
    is_stopped: AtomicBool,
    mode: Mode,
    /// The commands to the workers of a held load.
    windows: AtomicU64,
    collects: AtomicU64,
    pauses: AtomicU64,
    /// When the last pause ended; from then on the server may have been stopped.
    paused_ns: AtomicU64,
    /// Workers that are still opening connections.
    connecting: AtomicUsize,
    /// Connections that have been open at least once.
    reached: AtomicU64,
    wakers: Vec<Arc<Waker>>,
    warmup: Duration,
    stop: Stop,
    start_at: Option<SystemTime>,
    state: Mutex<State>,
    changed: Condvar,
    /// The worker that panics at the next command; `usize::MAX` for none.
    #[cfg(test)]
    pub(crate) panics: AtomicUsize,
}

/// When a load begins, and whether it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It has one window, and begins once all connections are open.
    Once,
    /// It has one window, and begins on command.
    Waiting,
    /// It continues between windows, which are opened one by one.
    Held,
}

/// How many times the session of a held load has given each command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Commands {
    /// Open a window.
    pub(crate) windows: u64,
    /// Hand over the outcome of the windows so far.
    pub(crate) collects: u64,
    /// Send nothing until the next window.
    pub(crate) pauses: u64,
}

/// Reports of the workers.
#[derive(Debug, Default)]
struct State {
    /// The window; `Some(None)` if there will be none.
    window: Option<Option<Window>>,
    /// Whether all workers are ready.
    is_ready: bool,
    first_connect_error: Option<String>,
    is_unreachable: bool,
    /// The outcomes that were collected from the workers of a held load.
    collected: Vec<Outcome>,
    /// The number of a pause, and how many workers have had no request in flight since then.
    idle: (u64, usize),
}

impl Shared {
    pub(crate) fn new(plan: &Plan, mode: Mode, wakers: Vec<Arc<Waker>>) -> Self {
        Self {
            progress: (0..plan.threads).map(|_| WorkerProgress::default()).collect(),
            start_ns: AtomicU64::new(0),
            opens_ns: AtomicU64::new(0),
            closes_ns: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            mode,
            windows: AtomicU64::new(0),
            collects: AtomicU64::new(0),
            pauses: AtomicU64::new(0),
            paused_ns: AtomicU64::new(0),
            connecting: AtomicUsize::new(plan.threads),
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

    // For workers to read.

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.mode == Mode::Held
    }

    /// When the load starts, and when its window opens and closes; `None` until all workers are
    /// ready.
    pub(crate) fn times(&self) -> Option<Times> {
        let start_ns = self.start_ns.load(Ordering::Acquire);
        let opens_ns = self.opens_ns.load(Ordering::Relaxed);
        let closes_ns = self.closes_ns.load(Ordering::Relaxed);
        (start_ns > 0).then_some(Times { start_ns, opens_ns, closes_ns })
    }

    /// How many times each command was given.
    #[inline]
    pub(crate) fn commands(&self) -> Commands {
        let read = |count: &AtomicU64| count.load(Ordering::Acquire);
        Commands {
            windows: read(&self.windows),
            collects: read(&self.collects),
            pauses: read(&self.pauses),
        }
    }

    /// When the last pause ended; from then on the server may have been stopped.
    pub(crate) fn paused_ns(&self) -> u64 {
        self.paused_ns.load(Ordering::Acquire)
    }

    // For workers to report.

    /// Reports that all connections of a worker have been open or have failed, and that `reached`
    /// have been open. The last worker to report sets the times.
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

    /// Sets the times of a load that starts after `wait`, and should have started `late` ago.
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

    /// Reports that a connection failed before any load was sent.
    pub(crate) fn connect_failed(&self, why: &str) {
        self.lock().first_connect_error.get_or_insert_with(|| why.to_owned());
    }

    /// Reports that a worker has had no request in flight since the pause with this number.
    pub(crate) fn idle(&self, pause: u64) {
        let mut state = self.lock();
        let count = if state.idle.0 == pause { state.idle.1 } else { 0 };
        state.idle = (pause, count + 1);
        drop(state);
        self.changed.notify_all();
    }

    /// Hands over a worker's outcome.
    pub(crate) fn hand_over(&self, outcome: Outcome) {
        self.lock().collected.push(outcome);
        self.changed.notify_all();
    }

    // For the session.

    /// Ends the load.
    pub(crate) fn end(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.set_window(None);
        self.wake();
    }

    /// Waits until the window is known; `None` if there will be none.
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
        self.windows.fetch_add(1, Ordering::Release);
        self.wake();
        window
    }

    /// Makes the workers of a held load pause, and waits until no request is in flight, for at most
    /// `limit`. Returns whether none is.
    pub(crate) fn pause(&self, limit: Duration) -> bool {
        let pause = self.pauses.fetch_add(1, Ordering::AcqRel) + 1;
        self.wake();
        let all_idle = (pause, self.progress.len());
        let is_busy = |state: &mut State| state.idle != all_idle && !self.is_stopped();
        let waited = self.changed.wait_timeout_while(self.lock(), limit, is_busy);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        self.paused_ns.store(clock::now(), Ordering::Release);
        state.idle == all_idle
    }

    /// Collects the outcome of the windows of a held load; `None` if the load has ended.
    pub(crate) fn collect(&self) -> Option<Outcome> {
        self.collects.fetch_add(1, Ordering::Release);
        self.wake();
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

    /// Whether the load begins on command.
    pub(crate) fn is_waiting(&self) -> bool {
        self.mode == Mode::Waiting
    }

    /// Whether all workers are ready and the load has not ended.
    pub(crate) fn is_ready(&self) -> bool {
        self.lock().is_ready && !self.is_stopped()
    }

    /// Why the first of the connections that failed before any load was sent did so.
    pub(crate) fn first_connect_error(&self) -> Option<String> {
        self.lock().first_connect_error.clone()
    }

    /// Whether no connection could be opened.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.lock().is_unreachable
    }

    fn set_window(&self, window: Option<Window>) {
        self.lock().window.get_or_insert(window);
        self.changed.notify_all();
    }

    fn wake(&self) {
        for waker in &self.wakers {
            // A worker that cannot be woken checks at least ten times a second.
            let _ = waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
