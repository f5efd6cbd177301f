//! Cores, identified by the system's numbers. A core is a hardware thread here, unless it is
//! called a physical core. This module lists the cores that a thread may use, moves threads to
//! cores, and finds which cores share a physical core.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Formats a list of cores, such as `0-3,6`.
pub fn list(cpus: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == cpu => *end = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let runs = runs.iter().map(|&(start, end)| match end - start {
        0 => start.to_string(),
        _ => format!("{start}-{end}"),
    });
    runs.collect::<Vec<_>>().join(",")
}

/// Parses a list of cores, such as `0-3,6`. `None` if the list is malformed.
pub fn parse(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for run in list.trim().split(',').filter(|run| !run.is_empty()) {
        let (start, end) = run.split_once('-').unwrap_or((run, run));
        cpus.extend(start.parse::<usize>().ok()?..=end.parse().ok()?);
    }
    Some(cpus)
}

/// Groups cores by physical core, in the order of the first core of each group. A core without
/// known siblings is a group of its own. `root` is the folder that contains `/sys`.
pub fn physical_in(root: &Path, cpus: &[usize]) -> Vec<Vec<usize>> {
    group(cpus, |cpu| {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        parse(&std::fs::read_to_string(root.join(path)).ok()?)
    })
}

fn group(cpus: &[usize], siblings: impl Fn(usize) -> Option<Vec<usize>>) -> Vec<Vec<usize>> {
    let mut cores: Vec<Vec<usize>> = Vec::new();
    for &cpu in cpus {
        if cores.iter().flatten().any(|&seen| seen == cpu) {
            continue;
        }
        let mut core = siblings(cpu).unwrap_or_default();
        core.retain(|sibling| cpus.contains(sibling) && *sibling != cpu);
        core.insert(0, cpu);
        cores.push(core);
    }
    cores
}

pub use platform::{allowed, move_threads, pin};

#[cfg(target_os = "linux")]
mod platform {
    use std::io;

    use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

    use crate::processes::threads;

    /// The largest number of searches for threads. A thread may start another thread before it is
    /// moved, so several searches may be needed.
    const MOST_LOOKS: usize = 10;

    /// Returns the cores that this thread may use.
    ///
    /// # Errors
    /// The system does not report the cores.
    pub fn allowed() -> io::Result<Vec<usize>> {
        allowed_to(None)
    }

    fn allowed_to(thread: Option<Pid>) -> io::Result<Vec<usize>> {
        let set = sched_getaffinity(thread)?;
        Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
    }

    /// Moves the threads of these processes to the cores `to`. A thread is moved if it may use
    /// exactly the cores `from`, or any core outside of `to`. A thread that pinned itself to some
    /// of `to` stays there, and so does a thread that the system does not let us move. Both lists
    /// must be sorted.
    ///
    /// # Errors
    /// The processes cannot be listed.
    pub fn move_threads(
        mut pids: impl FnMut() -> io::Result<Vec<u32>>,
        from: &[usize],
        to: &[usize],
    ) -> io::Result<()> {
        if from == to {
            return Ok(());
        }
        let moves = |thread: u32| {
            let id = Pid::from_raw(thread.cast_signed());
            let Ok(cores) = allowed_to(id) else { return false };
            let is_placed = cores != from && cores.iter().all(|core| to.contains(core));
            !is_placed && sched_setaffinity(id, &set(to)).is_ok()
        };
        for _ in 0..MOST_LOOKS {
            let threads = pids()?.into_iter().flat_map(threads);
            if threads.filter(|&thread| moves(thread)).count() == 0 {
                break;
            }
        }
        Ok(())
    }

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
            set.set(cpu);
        }
        set
    }

    /// Pins this thread, and threads that it starts later, to cores.
    ///
    /// # Errors
    /// Pinning is not permitted, or there is no such core.
    pub fn pin(cpus: &[usize]) -> io::Result<()> {
        Ok(sched_setaffinity(None, &set(cpus))?)
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::io;

    /// Returns all cores, because this system does not report which cores a thread may use.
    ///
    /// # Errors
    /// The number of cores is unknown.
    pub fn allowed() -> io::Result<Vec<usize>> {
        std::thread::available_parallelism().map(|count| (0..count.get()).collect())
    }

    /// Does nothing, because this system cannot move threads.
    ///
    /// # Errors
    /// Never.
    pub fn move_threads(
        _pids: impl FnMut() -> io::Result<Vec<u32>>,
        _from: &[usize],
        _to: &[usize],
    ) -> io::Result<()> {
        Ok(())
    }

    /// Fails, because this system cannot pin threads to cores.
    ///
    /// # Errors
    /// Always.
    pub fn pin(_cpus: &[usize]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system cannot pin threads to cores"))
    }
}

/// How long a flush waits for the helpers on the other cores. Most helpers run within a few
/// microseconds. Even a helper that cannot run immediately may help. When the helper becomes ready,
/// the kernel updates the running thread's clock if both threads are in one control group and
/// session.
const LIMIT: Duration = Duration::from_micros(300);

/// Brings a running server's CPU clock up to date by running briefly on each of the server's cores.
///
/// The kernel adds to a thread's CPU time when its core switches threads, when another thread
/// becomes ready there, or at the next clock tick. So if another core reads the CPU clock of a
/// running process, the clock is up to one tick behind for each running thread. One tick is 4 ms at
/// 250 Hz, a third of a 12 ms slice. All cores tick at the same time, so these errors do not
/// average out over many cores.
///
/// `clock_read`, a bench of `hotlap-servers`, measures the cost of a flush, and how exact the clock
/// is afterwards.
///
/// The calling thread moves to the last of the cores. The thread that ran there is displaced until
/// the `ClockFlush` is dropped. On each of the other cores, a parked helper thread runs for a
/// moment, and all helpers run at the same time.
///
/// A flush therefore costs one move for any number of cores. Moving from core to core would cost
/// one move for each, and the clocks of the first cores would be behind again at the end.
#[derive(Debug)]
pub struct ClockFlush {
    home: Option<Vec<usize>>,
}

impl ClockFlush {
    /// Flushes the clocks of these cores, or of all cores that this thread may use if the list is
    /// empty. Does nothing on systems that cannot pin threads.
    pub fn to(cpus: &[usize]) -> Self {
        let Ok(home) = allowed() else { return Self { home: None } };
        let cpus = if cpus.is_empty() { &home } else { cpus };
        if let Some((last, others)) = cpus.split_last() {
            // The calling thread moves first, because the move to a busy core may wait for a tick.
            // If the thread moved last, the clocks of the other cores would fall behind again.
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

/// Parked threads, each pinned to a core, that live as long as the process.
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
    /// Returns the helpers for a list of cores, which are started on first use.
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
                    // A missed call is answered together with the next call.
                    while state.calls.load(Ordering::Acquire) == answered {
                        thread::park();
                    }
                    answered = state.calls.load(Ordering::Acquire);
                    state.answers.fetch_add(1, Ordering::Release);
                }
            });
            // If the helper cannot be started, the clock of its core stays behind.
            Some(thread.ok()?.thread().clone())
        };
        Self { threads: cpus.iter().filter_map(start).collect(), state }
    }

    /// Wakes all helpers. Returns the number of answers that there will be once all helpers have
    /// run.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_outside_of_the_allowed_cores_are_left_out() {
        let siblings = |cpu: usize| Some(vec![cpu % 4, cpu % 4 + 4]);
        assert_eq!(group(&[1, 2, 5], siblings), vec![vec![1, 5], vec![2]]);
        assert_eq!(group(&[1, 2], |_| None), vec![vec![1], vec![2]]);
    }

    #[test]
    fn a_formatted_list_of_cores_parses_back() {
        assert_eq!(parse("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(list(&[0, 1, 2, 5]), "0-2,5");
        assert_eq!(parse(""), Some(vec![]));
        assert_eq!(parse("a"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_pinned_thread_reports_its_core() {
        let thread = std::thread::spawn(|| {
            let cpus = allowed().unwrap();
            let last = cpus[cpus.len() - 1];
            pin(&[last]).unwrap();
            assert_eq!(allowed().unwrap(), [last]);
        });
        thread.join().unwrap();
    }

    /// A child process is moved, because the test process also has the threads of other tests.
    #[cfg(target_os = "linux")]
    #[test]
    fn threads_are_moved_unless_they_pinned_themselves() {
        let cpus = allowed().unwrap();
        let [first, .., last] = cpus[..] else { return };
        let cores_of = |pid: u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let line = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
            parse(line.unwrap()).unwrap()
        };
        let start = |on: usize| {
            let thread = std::thread::spawn(move || {
                pin(&[on]).unwrap();
                std::process::Command::new("sleep").arg("1000").spawn().unwrap()
            });
            thread.join().unwrap()
        };
        let move_all = |pid: u32, from: &[usize], to: &[usize]| {
            move_threads(|| Ok(vec![pid]), from, to).unwrap();
        };
        let mut child = start(first);
        move_all(child.id(), &[first], &cpus);
        assert_eq!(cores_of(child.id()), cpus);
        move_all(child.id(), &cpus, &[first]);
        assert_eq!(cores_of(child.id()), [first]);
        // The child is treated as if it had chosen one of the cores itself.
        move_all(child.id(), &[last], &cpus);
        assert_eq!(cores_of(child.id()), [first]);
        // The child is treated as if it had chosen a core that it may not use.
        move_all(child.id(), &cpus, &[last]);
        assert_eq!(cores_of(child.id()), [last]);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[cfg(target_os = "linux")]
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

    #[cfg(target_os = "linux")]
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

    #[cfg(target_os = "linux")]
    #[test]
    fn helpers_of_the_same_cores_are_started_once() {
        let home = allowed().unwrap();
        assert!(Arc::ptr_eq(&Helpers::on(&home), &Helpers::on(&home)));
    }
}
