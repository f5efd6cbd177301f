//! Brings the CPU clock of a running server up to date, by a short visit to each of its cores.
//!
//! The kernel adds to a thread's CPU time when its core switches threads, when another thread
//! becomes ready there, or at the next clock tick. So the CPU clock of a process that is running,
//! read from another core, is up to one tick behind for each running thread: 4 ms at 250 Hz, a
//! third of a 12 ms slice. All cores tick at the same time, so these errors do not average out over
//! many cores.
//!
//! `benches/clock_read.rs` measures what a visit costs and how exact the clock is afterwards.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::cpus::{allowed, pin};

/// How long a visit waits for the other cores. Most helpers run within some microseconds. On a core
/// whose thread is not preempted at once, the kernel brought the clock up to date when the helper
/// became ready, if both are in one control group and session.
const LIMIT: Duration = Duration::from_micros(300);

/// A visit to some cores. The calling thread moves to the last of them and stays there, in place of
/// what was running, until this is dropped. On each of the other cores, a parked helper thread runs
/// for a moment, all at the same time.
///
/// This way the cost is that of one move for any number of cores. Moving to one core after the
/// other costs one move each, and by the end the clocks of the first cores are behind again.
#[derive(Debug)]
pub struct ClockFlush {
    home: Option<Vec<usize>>,
}

impl ClockFlush {
    /// Visits these cores, or all that this thread may use if the list is empty. Does nothing on
    /// systems that cannot pin threads.
    pub fn to(cpus: &[usize]) -> Self {
        let Ok(home) = allowed() else { return Self { home: None } };
        let cpus = if cpus.is_empty() { &home } else { cpus };
        if let Some((last, others)) = cpus.split_last() {
            // Move first: on a busy core this may wait for a tick, during which the clocks of the
            // other cores would fall behind again.
            if pin(&[*last]).is_ok() && !others.is_empty() {
                let helpers = Helpers::on(others);
                let answers = helpers.call();
                helpers.wait(answers, Instant::now() + LIMIT);
            }
        }
        Self { home: Some(home) }
    }
}

impl Drop for ClockFlush {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            let _ = pin(home);
        }
    }
}

/// Parked threads, each pinned to a core. They live as long as the process.
#[derive(Debug)]
struct Helpers {
    threads: Vec<Thread>,
    state: Arc<State>,
}

/// The number of calls so far, and the number of answers from all helpers together.
#[derive(Debug, Default)]
struct State {
    calls: AtomicU32,
    answers: AtomicU32,
}

impl Helpers {
    /// The helpers for a list of cores, started on first use.
    fn on(cpus: &[usize]) -> Arc<Self> {
        type Known = Vec<(Vec<usize>, Arc<Helpers>)>;
        static KNOWN: Mutex<Known> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, helpers)) = known.iter().find(|(on, _)| on == cpus) {
            return Arc::clone(helpers);
        }
        let helpers = Arc::new(Self::start(cpus));
        known.push((cpus.to_vec(), Arc::clone(&helpers)));
        helpers
    }

    fn start(cpus: &[usize]) -> Self {
        let state = Arc::new(State::default());
        let start = |&cpu: &usize| {
            let state = Arc::clone(&state);
            let helper = thread::Builder::new().name("clock".to_owned()).stack_size(64 << 10);
            let thread = helper.spawn(move || {
                let _ = pin(&[cpu]);
                let mut answered = 0;
                loop {
                    // A missed call is answered together with the next one.
                    while state.calls.load(Ordering::Acquire) == answered {
                        thread::park();
                    }
                    answered = state.calls.load(Ordering::Acquire);
                    state.answers.fetch_add(1, Ordering::Release);
                }
            });
            // Without a helper there, that core's clock is read as it is.
            Some(thread.ok()?.thread().clone())
        };
        Self { threads: cpus.iter().filter_map(start).collect(), state }
    }

    /// Wakes all helpers. Returns the number of answers once all have run.
    fn call(&self) -> u32 {
        let before = self.state.answers.load(Ordering::Acquire);
        self.state.calls.fetch_add(1, Ordering::Release);
        self.threads.iter().for_each(Thread::unpark);
        before.wrapping_add(self.threads.len() as u32)
    }

    fn wait(&self, answers: u32, until: Instant) {
        while answers.wrapping_sub(self.state.answers.load(Ordering::Acquire)).cast_signed() > 0
            && Instant::now() < until
        {
            std::hint::spin_loop();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_visit_moves_to_the_last_core_and_back() {
        let home = allowed().unwrap();
        for cpu in &home {
            let visit = ClockFlush::to(&[home[0], *cpu]);
            assert_eq!(rustix::thread::sched_getcpu(), *cpu);
            drop(visit);
            assert_eq!(allowed().unwrap(), home);
        }
        let visit = ClockFlush::to(&[]);
        assert_eq!(rustix::thread::sched_getcpu(), *home.last().unwrap());
        drop(visit);
        assert_eq!(allowed().unwrap(), home);
    }

    #[test]
    fn every_helper_answers_every_call() {
        let home = allowed().unwrap();
        let helpers = Helpers::start(&[home[0], home[0], *home.last().unwrap()]);
        for call in 1..=100 {
            let answers = helpers.call();
            assert_eq!(answers, 3 * call);
            helpers.wait(answers, Instant::now() + Duration::from_secs(60));
            assert_eq!(helpers.state.answers.load(Ordering::Acquire), answers);
        }
    }

    #[test]
    fn helpers_of_the_same_cores_are_started_once() {
        let home = allowed().unwrap();
        assert!(Arc::ptr_eq(&Helpers::on(&home), &Helpers::on(&home)));
    }
}
