//! A load under way: started, watched, ended.
//!
//! [`run`] is the short way. A [`Session`] is for those who sample the server at the window's two
//! edges, or draw while it runs.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use mio::Waker;

use crate::io::Io;
use crate::outcome::Failure;
use crate::plan::{Pace, Stop};
use crate::resources::{allow_files, files, pin};
use crate::tls::Secure;
use crate::worker::{Board, Worker};
use crate::{Outcome, Plan, PlanError, clock};

/// What keeps a load from being run at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan makes no sense.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The system refused something that the generator needs.
    #[error("{what}: {why}")]
    System {
        /// What was wanted, and what to do about it.
        what: String,
        /// The system's word. Not a source: it is told already.
        why: std::io::Error,
    },
    /// A worker thread panicked: a defect of the generator. What it counted is lost, so the load
    /// has no result.
    #[error(
        "thread {thread} of the load generator panicked: {why}: this load has no result; please \
         report it with the command"
    )]
    Panicked {
        /// The name of the thread.
        thread: String,
        /// The message of the panic.
        why: String,
    },
    /// No connection could be opened at all.
    #[error("no connection to {target}: {why}")]
    Unreachable {
        /// The address.
        target: String,
        /// The first failure.
        why: String,
    },
}

/// The measured window: after the ramp, before the end.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// It opens.
    pub opens: Instant,
    /// It closes, where the plan names a duration.
    pub closes: Option<Instant>,
}

/// Where a session stands now; summed over the workers, each of which publishes at every wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Right answers so far, ramp included.
    pub answers: u64,
    /// Failures so far, ramp included.
    pub failures: u64,
    /// Connections up now.
    pub connected: u64,
}

/// What workers and session know of each other. Written a few times per load, but for the boards,
/// each of which is a worker's own.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) boards: Vec<Board>,
    /// 0 until it is known.
    go_ns: AtomicU64,
    opens_ns: AtomicU64,
    closes_ns: AtomicU64,
    stopped: AtomicBool,
    /// Whether the load goes on between windows, which are opened one by one.
    held: bool,
    /// Windows of a held load that were opened, and how often its counts were asked for.
    turn: AtomicU64,
    asked: AtomicU64,
    /// Times that a held load was told to send nothing until its next window.
    pauses: AtomicU64,
    /// When the last pause was over, and the server may have been stopped.
    paused_ns: AtomicU64,
    /// Workers that are not ready.
    unready: AtomicUsize,
    /// Connections that were up once.
    reached: AtomicU64,
    wakers: Vec<Arc<Waker>>,
    ramp: Duration,
    stop: Stop,
    start_at: Option<SystemTime>,
    story: Mutex<Story>,
    told: Condvar,
    /// The worker that panics instead of giving its counts or pausing; `usize::MAX`: none.
    #[cfg(test)]
    panics: AtomicUsize,
}

/// What is known of how it went so far.
#[derive(Debug, Default)]
struct Story {
    /// When the window is, or that there will be none.
    window: Option<Option<Window>>,
    first_failure: Option<String>,
    unreachable: bool,
    /// What workers have counted of a held load, where it was asked for.
    given: Vec<Outcome>,
    /// Workers that have no request in flight since the pause with that number.
    idle: (u64, usize),
}

impl Shared {
    fn new(plan: &Plan, held: bool, wakers: Vec<Arc<Waker>>) -> Self {
        Self {
            held,
            turn: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            pauses: AtomicU64::new(0),
            paused_ns: AtomicU64::new(0),
            boards: (0..plan.threads).map(|_| Board::default()).collect(),
            go_ns: AtomicU64::new(0),
            opens_ns: AtomicU64::new(0),
            closes_ns: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            unready: AtomicUsize::new(plan.threads),
            reached: AtomicU64::new(0),
            wakers,
            ramp: plan.ramp,
            stop: plan.stop,
            start_at: plan.start_at,
            story: Mutex::default(),
            told: Condvar::new(),
            #[cfg(test)]
            panics: AtomicUsize::new(usize::MAX),
        }
    }

    /// Panics if a test has planted that for this worker.
    #[cfg(test)]
    pub(crate) fn planted_panic(&self, worker: usize) {
        assert_ne!(self.panics.load(Ordering::Relaxed), worker, "a planted panic");
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Which window of a held load it is, how often its counts were asked for, and how often it
    /// was paused.
    pub(crate) fn calls(&self) -> (u64, u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Acquire);
        (read(&self.turn), read(&self.asked), read(&self.pauses))
    }

    /// When the last pause was over, and the server may have been stopped.
    pub(crate) fn paused_ns(&self) -> u64 {
        self.paused_ns.load(Ordering::Acquire)
    }

    /// A worker has no request in flight any more, since the pause with this number.
    pub(crate) fn idle(&self, pause: u64) {
        let mut story = self.lock();
        let count = if story.idle.0 == pause { story.idle.1 } else { 0 };
        story.idle = (pause, count + 1);
        drop(story);
        self.told.notify_all();
    }

    /// When the window opens and closes.
    pub(crate) fn edges(&self) -> (u64, u64) {
        (self.opens_ns.load(Ordering::Relaxed), self.closes_ns.load(Ordering::Relaxed))
    }

    /// What a worker has counted of a held load.
    pub(crate) fn give(&self, outcome: Outcome) {
        self.lock().given.push(outcome);
        self.told.notify_all();
    }

    /// When the ramp begins, the window opens, and closes (`u64::MAX`: when all requests are
    /// done).
    pub(crate) fn times(&self) -> Option<(u64, u64, u64)> {
        let go = self.go_ns.load(Ordering::Acquire);
        let opens = self.opens_ns.load(Ordering::Relaxed);
        (go > 0).then(|| (go, opens, self.closes_ns.load(Ordering::Relaxed)))
    }

    /// So many of a worker's connections were up, and all others have failed once. The last worker
    /// to say so sets the times.
    pub(crate) fn ready(&self, reached: u64) {
        let all = self.reached.fetch_add(reached, Ordering::AcqRel) + reached;
        if self.unready.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        if all == 0 {
            self.lock().unreachable = true;
            self.end();
            return;
        }
        let wait = self.start_at.and_then(|at| at.duration_since(SystemTime::now()).ok());
        let wait_ns = nanos(wait.unwrap_or_default());
        let (instant, now) = (Instant::now(), clock::now());
        let go = now + wait_ns;
        let (ramp_ns, length_ns) = match self.stop {
            // Nothing counts before the first turn.
            _ if self.held => (u64::MAX >> 2, None),
            Stop::After(length) => (nanos(self.ramp), Some(nanos(length))),
            Stop::Requests(_) => (0, None),
        };
        let opens = go + ramp_ns;
        self.opens_ns.store(opens, Ordering::Relaxed);
        self.closes_ns.store(length_ns.map_or(u64::MAX, |l| opens + l), Ordering::Relaxed);
        self.go_ns.store(go, Ordering::Release);
        let opens = instant + Duration::from_nanos(wait_ns + ramp_ns);
        let closes = length_ns.map(|length| opens + Duration::from_nanos(length));
        self.tell(Some(Window { opens, closes }));
        self.wake();
    }

    /// A connection failed before any was loaded.
    pub(crate) fn failed(&self, failure: Failure, why: &str) {
        let mut story = self.lock();
        if story.first_failure.is_none() {
            let why = if failure == Failure::Timeout { "no answer in time" } else { why };
            story.first_failure = Some(why.to_owned());
        }
    }

    fn end(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.tell(None);
        self.wake();
    }

    fn tell(&self, window: Option<Window>) {
        self.lock().window.get_or_insert(window);
        self.told.notify_all();
    }

    fn wake(&self) {
        for waker in &self.wakers {
            // A worker that cannot be woken looks at least every tenth of a second.
            let _ = waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Story> {
        self.story.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nanos(duration: Duration) -> u64 {
    // A quarter of the range, 146 years, so that sums stay within it.
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX >> 2)
}

/// A load under way. Dropping it ends it.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<Outcome>>,
    target: String,
    files: u64,
}

/// Files that the sessions of this process need.
static OPEN_FILES: AtomicU64 = AtomicU64::new(0);

impl Session {
    /// Starts the worker threads and opens the connections.
    ///
    /// # Errors
    /// When the plan makes no sense or the system refuses.
    pub fn start(plan: &Plan) -> Result<Self, Error> {
        Self::open(plan, false)
    }

    /// Starts it as a load that is held: once all connections are up it is sent without an end,
    /// and what counts are the windows that [`Session::turn`] opens. Between two of them the
    /// server may be stopped (SIGSTOP): what was under way then goes on after it, as if no time
    /// had passed, and waits for it for as long as that takes. Ramp and stop of the plan do not
    /// matter.
    ///
    /// # Errors
    /// As [`Session::start`], and for an open loop: its requests are due at moments of a clock that
    /// does not stop between windows.
    pub fn hold(plan: &Plan) -> Result<Self, Error> {
        if plan.pace != Pace::Closed {
            let why = "a load that is held between windows cannot keep a rate: use a closed loop";
            return Err(PlanError::OutOfRange(why.to_owned()).into());
        }
        Self::open(plan, true)
    }

    fn open(plan: &Plan, held: bool) -> Result<Self, Error> {
        plan.check()?;
        let files = files(plan);
        // Loads that are held stand beside each other.
        let others = OPEN_FILES.fetch_add(files, Ordering::Relaxed);
        let opened = Self::begin(plan, held, others, files);
        if opened.is_err() {
            OPEN_FILES.fetch_sub(files, Ordering::Relaxed);
        }
        opened
    }

    fn begin(plan: &Plan, held: bool, others: u64, files: u64) -> Result<Self, Error> {
        allow_files(plan, others + files)?;
        let secure = plan.target.tls.as_ref().map(Secure::new).transpose()?;
        let plan = Arc::new(plan.clone());
        let queues: Vec<(Io, Arc<Waker>)> = (0..plan.threads)
            .map(|_| Io::new())
            .collect::<Result<_, _>>()
            .map_err(|why| Error::System { what: "open a queue of events".into(), why })?;
        let wakers = queues.iter().map(|(_, waker)| waker.clone()).collect();
        let shared = Arc::new(Shared::new(&plan, held, wakers));
        let target = plan.target.to_string();
        // It counts the files as its own, to be given back when it is dropped, once it is whole.
        let mut session = Self { shared: shared.clone(), workers: Vec::new(), target, files: 0 };
        for (number, (io, _)) in queues.into_iter().enumerate() {
            let (plan, shared, secure) = (plan.clone(), shared.clone(), secure.clone());
            let worker = spawn(number, &shared.clone(), move || {
                pin(&plan, number);
                Worker::new(number, &plan, &shared, secure, io).run()
            })?;
            session.workers.push(worker);
        }
        session.files = files;
        Ok(session)
    }

    /// Waits until all connections are up (or have failed), and says when the window is. `None`
    /// when the session ends before that.
    #[must_use]
    pub fn window(&self) -> Option<Window> {
        let is_untold = |story: &mut Story| story.window.is_none();
        let story = self.shared.told.wait_while(self.shared.lock(), is_untold);
        story.unwrap_or_else(PoisonError::into_inner).window.flatten()
    }

    /// Opens the next window of a load that is held, so long from now and for so long. The last
    /// one must have closed.
    #[must_use]
    pub fn turn(&self, ramp: Duration, length: Duration) -> Window {
        let (instant, now) = (Instant::now(), clock::now());
        let opens = now + nanos(ramp);
        self.shared.opens_ns.store(opens, Ordering::Relaxed);
        self.shared.closes_ns.store(opens + nanos(length), Ordering::Relaxed);
        self.shared.turn.fetch_add(1, Ordering::Release);
        self.shared.wake();
        Window { opens: instant + ramp, closes: Some(instant + ramp + length) }
    }

    /// Sends nothing more until the next window, and waits until every request in flight is
    /// answered or has failed, but no longer than `limit`. Whether all are. The server can be
    /// stopped then without a request of its own under way.
    pub fn pause(&self, limit: Duration) -> bool {
        let pause = self.shared.pauses.fetch_add(1, Ordering::AcqRel) + 1;
        self.shared.wake();
        let workers = self.workers.len();
        let is_busy =
            |story: &mut Story| story.idle != (pause, workers) && !self.shared.is_stopped();
        let waited = self.shared.told.wait_timeout_while(self.shared.lock(), limit, is_busy);
        let (story, _) = waited.unwrap_or_else(PoisonError::into_inner);
        self.shared.paused_ns.store(clock::now(), Ordering::Release);
        story.idle == (pause, workers)
    }

    /// What was counted in the windows of a load that is held since this was asked last. `None`
    /// when it was stopped.
    #[must_use]
    pub fn collect(&self) -> Option<Outcome> {
        self.shared.asked.fetch_add(1, Ordering::Release);
        self.shared.wake();
        let workers = self.workers.len();
        let story = self.shared.told.wait_while(self.shared.lock(), |story: &mut Story| {
            story.given.len() < workers && !self.shared.is_stopped()
        });
        let mut given = std::mem::take(&mut story.unwrap_or_else(PoisonError::into_inner).given);
        if given.len() < workers {
            return None;
        }
        let mut sum = given.pop()?;
        given.iter().for_each(|outcome| sum.merge(outcome));
        Some(sum)
    }

    /// How far it is. Cheap, from any thread, at any time.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let mut sum = Progress::default();
        for board in &self.shared.boards {
            sum.answers += board.answers.load(Ordering::Relaxed);
            sum.failures += board.failures.load(Ordering::Relaxed);
            sum.connected += board.connected.load(Ordering::Relaxed);
        }
        sum
    }

    /// Whether all of it is done, so that [`Session::join`] does not wait.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Ends it now; what is measured so far stays.
    pub fn stop(&self) {
        self.shared.end();
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// When no connection could be opened at all, or a worker thread panicked.
    pub fn join(mut self) -> Result<Outcome, Error> {
        let mut sum: Option<Outcome> = None;
        let mut panic = None;
        for worker in std::mem::take(&mut self.workers) {
            let thread = worker.thread().name().unwrap_or_default().to_owned();
            match (worker.join(), &mut sum) {
                (Ok(outcome), Some(sum)) => sum.merge(&outcome),
                (Ok(outcome), None) => sum = Some(outcome),
                (Err(payload), _) => panic = panic.or(Some((thread, payload))),
            }
        }
        if let Some((thread, payload)) = panic {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
            return Err(Error::Panicked { thread, why: text.unwrap_or_default() });
        }
        let story = self.shared.lock();
        match sum {
            Some(mut outcome) if !story.unreachable => {
                outcome.first_failure.clone_from(&story.first_failure);
                Ok(outcome)
            }
            _ => Err(Error::Unreachable {
                target: self.target.clone(),
                why: story.first_failure.clone().unwrap_or_else(|| "closed at once".to_owned()),
            }),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.end();
        for worker in std::mem::take(&mut self.workers) {
            let _ = worker.join();
        }
        OPEN_FILES.fetch_sub(self.files, Ordering::Relaxed);
    }
}

/// Starts a worker thread. If it panics, the session is stopped, so that nobody waits for it.
fn spawn(
    number: usize,
    shared: &Arc<Shared>,
    work: impl FnOnce() -> Outcome + Send + 'static,
) -> Result<JoinHandle<Outcome>, Error> {
    struct StopsOnPanic(Arc<Shared>);
    impl Drop for StopsOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.end();
            }
        }
    }
    let guard = StopsOnPanic(shared.clone());
    let work = move || {
        let _guard = guard;
        work()
    };
    let thread = std::thread::Builder::new().name(format!("load-{number}")).spawn(work);
    let what = || "start a worker thread".to_owned();
    thread.map_err(|why| Error::System { what: what(), why })
}

/// Runs a plan to its end.
///
/// # Errors
/// As [`Session::start`] and [`Session::join`].
pub fn run(plan: &Plan) -> Result<Outcome, Error> {
    Session::start(plan)?.join()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Request, Target};

    /// `window` and `collect` waited for the worker for ever, and `join` panicked in its turn.
    #[test]
    fn a_worker_that_panics_ends_the_session_with_an_error() {
        let target = Target::resolve("http://127.0.0.1:9/").expect("a target").target;
        let mut plan = Plan::new(target, Request::get("/", "test"));
        plan.connections = 2;
        plan.threads = 2;
        let shared = Arc::new(Shared::new(&plan, true, Vec::new()));
        let worker = spawn(0, &shared, || panic!("no such lane")).expect("a thread");
        let (workers, target) = (vec![worker], String::new());
        let session = Session { shared, workers, target, files: 0 };
        assert!(session.window().is_none());
        assert!(session.collect().is_none());
        let error = session.join().expect_err("a panic").to_string();
        assert_eq!(
            error,
            "thread load-0 of the load generator panicked: no such lane: this load has no result; \
             please report it with the command"
        );
    }

    /// The other worker has counted and answers; what is waited for is the one that does not.
    #[test]
    fn a_worker_that_panics_under_load_ends_every_wait() {
        use std::io::{Read, Write};
        const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
                        let _ = stream.write_all(EMPTY);
                    }
                });
            }
        });
        let target = Target::resolve(&url).expect("a target").target;
        let mut plan = Plan::new(target, Request::get("/", "test"));
        (plan.connections, plan.threads) = (2, 2);
        let waits: [fn(&Session) -> bool; 2] = [
            |session| session.collect().is_none(),
            |session| !session.pause(Duration::from_secs(3600)),
        ];
        for ends in waits {
            let session = Session::hold(&plan).expect("a load");
            assert!(session.window().is_some());
            session.shared.panics.store(1, Ordering::Relaxed);
            assert!(ends(&session));
            let error = session.join().expect_err("a panic").to_string();
            assert!(error.starts_with("thread load-1 of "), "{error}");
            assert!(error.contains("a planted panic"), "{error}");
        }
    }
}
