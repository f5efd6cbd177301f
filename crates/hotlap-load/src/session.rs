//! Starts, observes and ends loads.

use std::any::Any;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::Waker;

use crate::io::Io;
use crate::outcome::{Failure, Outcome};
use crate::plan::{Pace, Plan, PlanError};
use crate::shared::{Error, Mode, OpenFiles, Progress, Shared, Window, pin};
use crate::tls::TlsConfig;
use crate::worker::Worker;

/// A load in progress. Dropping the session ends the load.
///
/// There are three kinds of sessions. [`Session::start`] runs a plan with one measurement window,
/// and [`Session::join`] returns the outcome. [`Session::start_waiting`] does the same, but begins
/// at a time that is set once all connections are open. [`Session::start_held`] keeps the load
/// running between any number of windows. [`Session::open_window`] opens a window, and
/// [`Session::collect`] returns the outcome of the windows.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<Outcome>>,
    target: String,
    /// The number of threads that take values in turn, and the maximum number of requests in
    /// flight.
    size: (u64, u64),
    /// The reserved files, which are released once all workers have ended.
    _files: OpenFiles,
}

/// The number of field values that a load has used, so that the next load can continue from there.
#[derive(Debug, Clone)]
pub struct ValuesUsed {
    shared: Arc<Shared>,
    size: (u64, u64),
}

impl ValuesUsed {
    /// Returns an upper bound on the number of used values.
    pub fn most(&self) -> u64 {
        let Progress { responses, failures, .. } = Progress::sum(&self.shared.progress);
        let (threads, in_flight) = self.size;
        // Threads take values in turn, and one thread may have sent all requests.
        (responses + failures + in_flight) * threads
    }
}

/// Runs a plan to its end.
///
/// # Errors
/// The errors of [`Session::start`] and [`Session::join`].
pub fn run(plan: &Plan) -> Result<Outcome, Error> {
    Session::start(plan)?.join()
}

impl Session {
    /// Starts the worker threads, which open the connections and run the plan.
    ///
    /// # Errors
    /// The plan is invalid, or the system refuses a resource that the load needs.
    pub fn start(plan: &Plan) -> Result<Self, Error> {
        Self::open(plan, Mode::Once)
    }

    /// Opens all connections and then waits for [`Session::begin`]. Several generators can thus
    /// agree on a time at which all of them are ready. The plan's `start_at` is ignored.
    ///
    /// # Errors
    /// The errors of [`Session::start`].
    pub fn start_waiting(plan: &Plan) -> Result<Self, Error> {
        Self::open(plan, Mode::Waiting)
    }

    /// Starts a held load. Once all connections are open, the load sends until it is paused or
    /// ended. Only the windows that [`Session::open_window`] opens count. Between windows, the
    /// server may be stopped (SIGSTOP) for any time, and no time passes for requests in flight.
    /// The plan's warm-up and stop are ignored.
    ///
    /// # Errors
    /// The errors of [`Session::start`]. An open loop is an error too, because requests would also
    /// become due between windows.
    pub fn start_held(plan: &Plan) -> Result<Self, Error> {
        if plan.pace != Pace::Closed {
            let why = "a load that is held between windows cannot keep a rate: use a closed loop";
            return Err(PlanError::OutOfRange(why.to_owned()).into());
        }
        Self::open(plan, Mode::Held)
    }

    fn open(plan: &Plan, mode: Mode) -> Result<Self, Error> {
        plan.check()?;
        let files = OpenFiles::reserve(plan)?;
        let tls = TlsConfig::of(&plan.target)?;
        let queues: Vec<(Io, Arc<Waker>)> = (0..plan.shape.threads)
            .map(|_| Io::new())
            .collect::<Result<_, _>>()
            .map_err(|why| Error::System { what: "open an event queue".to_owned(), why })?;
        let wakers = queues.iter().map(|(_, waker)| waker.clone()).collect();
        let shared = Arc::new(Shared::new(plan, mode, wakers));
        let target = plan.target.to_string();
        let plan = Arc::new(plan.clone());
        // The entries of an order may be sent again, but the values of a sequence may not.
        let takers = if plan.order.is_some() { 1 } else { plan.workers() as u64 };
        let size = (takers, plan.shape.in_flight() as u64);
        let mut session = Self { shared, workers: Vec::new(), target, size, _files: files };
        for (number, (io, _)) in queues.into_iter().enumerate() {
            let (plan, shared, tls) = (plan.clone(), session.shared.clone(), tls.clone());
            let worker = spawn(number, &session.shared, move || {
                pin(&plan, number);
                Worker::new(number, &plan, &shared, tls, io).run()
            })?;
            session.workers.push(worker);
        }
        Ok(session)
    }

    /// Returns whether each connection is open or has failed once, and the load has not ended. A
    /// waiting load can then begin with [`Session::begin`].
    pub fn is_ready(&self) -> bool {
        self.shared.is_ready()
    }

    /// Lets a waiting load begin at `start`, or now if that time has passed. The window opens and
    /// closes as the plan says, counted from `start`. If the load begins late, the warm-up is cut
    /// short, and then the window. Returns `None` if the load does not wait, is not ready or has
    /// ended.
    pub fn begin(&self, start: Instant) -> Option<Window> {
        let now = Instant::now();
        let wait = start.saturating_duration_since(now);
        let late = now.saturating_duration_since(start);
        let can_begin = self.shared.is_waiting() && self.shared.is_ready();
        can_begin.then(|| self.shared.begin(wait, late))
    }

    /// Waits until the load is ready or, for a waiting load, until [`Session::begin`]. Returns when
    /// the window opens and closes, or `None` if the session ends first.
    pub fn wait_for_window(&self) -> Option<Window> {
        self.shared.wait_for_window()
    }

    /// Opens a window of a held load, after `warmup` and for `length`. The previous window must
    /// have closed.
    pub fn open_window(&self, warmup: Duration, length: Duration) -> Window {
        self.shared.open_window(warmup, length)
    }

    /// Stops sending until the next window, and waits at most `limit` until every request in flight
    /// has a response or has failed. Returns whether no request is in flight, so that the server
    /// can be stopped.
    pub fn pause(&self, limit: Duration) -> bool {
        self.shared.pause(limit)
    }

    /// Returns the outcome of the windows of a held load since the last call. Returns `None` if the
    /// load has ended.
    pub fn collect(&self) -> Option<Outcome> {
        self.shared.collect()
    }

    /// Returns the progress of the load. This is cheap at any time and from any thread.
    pub fn progress(&self) -> Progress {
        Progress::sum(&self.shared.progress)
    }

    /// Returns a handle that tells how many field values the load has used, during the load and
    /// after it.
    pub fn values_used(&self) -> ValuesUsed {
        ValuesUsed { shared: self.shared.clone(), size: self.size }
    }

    /// Returns whether the load has ended, so that [`Session::join`] returns at once.
    pub fn is_finished(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Ends the load now, and keeps what was measured so far.
    pub fn stop(&self) {
        self.shared.end();
    }

    /// Waits for the end of the load, and returns its outcome.
    ///
    /// # Errors
    /// Every connection failed before it opened, or a worker thread panicked.
    pub fn join(mut self) -> Result<Outcome, Error> {
        let mut outcomes = Vec::new();
        let mut panicked = None;
        for worker in std::mem::take(&mut self.workers) {
            let thread = worker.thread().name().unwrap_or_default().to_owned();
            match worker.join() {
                Ok(outcome) => outcomes.push(outcome),
                Err(payload) => {
                    panicked.get_or_insert(Error::Panicked { thread, why: message(&*payload) });
                }
            }
        }
        if let Some(error) = panicked {
            return Err(error);
        }
        let first_connect_error = self.shared.first_connect_error();
        let sum = outcomes.into_iter().reduce(|mut sum, outcome| {
            sum.merge(&outcome);
            sum
        });
        match sum {
            Some(sum) if !self.shared.is_unreachable() => {
                let first_connect_error = first_connect_error.map(|(_, why)| why);
                Ok(Outcome { first_connect_error, ..sum })
            }
            _ => {
                let at_once = || (Failure::ClosedEarly, "closed at once".to_owned());
                let (failure, why) = first_connect_error.unwrap_or_else(at_once);
                Err(Error::Unreachable { target: self.target.clone(), failure, why })
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.end();
        for worker in std::mem::take(&mut self.workers) {
            let _ = worker.join();
        }
    }
}

/// Starts a worker thread. If the thread panics, the session ends, so that nothing waits forever.
fn spawn(
    number: usize,
    shared: &Arc<Shared>,
    work: impl FnOnce() -> Outcome + Send + 'static,
) -> Result<JoinHandle<Outcome>, Error> {
    struct EndOnPanic(Arc<Shared>);
    impl Drop for EndOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.end();
            }
        }
    }
    let guard = EndOnPanic(shared.clone());
    let work = move || {
        let _guard = guard;
        work()
    };
    let thread = std::thread::Builder::new().name(format!("load-{number}")).spawn(work);
    thread.map_err(|why| Error::System { what: "start a worker thread".to_owned(), why })
}

/// Returns the message of a panic.
fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::plan::Request;
    use crate::url;

    fn plan(url: &str) -> Plan {
        let target = url::resolve(url).expect("a target").target;
        let mut plan = Plan::new(target, Request::get("/", "test"));
        (plan.shape.connections, plan.shape.threads) = (2, 2);
        plan
    }

    /// Regression: `wait_for_window` and `collect` waited for the worker forever, and `join`
    /// panicked.
    #[test]
    fn a_worker_that_panics_ends_the_session_with_an_error() {
        let plan = plan("http://127.0.0.1:9/");
        let shared = Arc::new(Shared::new(&plan, Mode::Held, Vec::new()));
        let worker = spawn(0, &shared, || panic!("no such slot")).expect("a thread");
        let files = OpenFiles::reserve(&plan).expect("files");
        let session = Session {
            shared,
            workers: vec![worker],
            target: String::new(),
            size: (1, 1),
            _files: files,
        };
        assert!(session.wait_for_window().is_none());
        assert!(session.collect().is_none());
        let error = session.join().expect_err("a panic").to_string();
        assert_eq!(
            error,
            "a bug in the load generator: thread load-0 panicked (no such slot), so this load has \
             no result. Please report the bug with the command"
        );
    }

    /// One worker panics while the other gets responses.
    #[test]
    fn a_worker_that_panics_under_load_ends_every_wait() {
        let plan = plan(&hotlap_testbed::TestServer::responding(hotlap_testbed::HELLO).url());
        let waits: [fn(&Session) -> bool; 2] = [
            |session| session.collect().is_none(),
            |session| !session.pause(Duration::from_secs(3600)),
        ];
        for ends in waits {
            let session = Session::start_held(&plan).expect("a load");
            assert!(session.wait_for_window().is_some());
            session.shared.panics.store(1, Ordering::Relaxed);
            assert!(ends(&session));
            let error = session.join().expect_err("a panic").to_string();
            assert!(error.contains("thread load-1 panicked"), "{error}");
            assert!(error.contains("a deliberate panic"), "{error}");
        }
    }
}
