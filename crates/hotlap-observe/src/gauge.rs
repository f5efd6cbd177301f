//! Gauges the speed of cores by timing system calls on them.
//!
//! On a shared machine, the same core is sometimes fast and sometimes slow. Possibly, another
//! machine on the host uses the second hardware thread of the physical core. A short system call
//! takes longer in the same moments as a server does. So the time of a system call shows how fast
//! the core was during a lap.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::getppid;
use serde::{Deserialize, Serialize};

use crate::cpus::pin;

/// The time between two readings of a core. One reading takes about 5 µs, so a gauge takes 0.3% of
/// each core from every server alike. A slice of 12 ms has about six readings.
const EVERY: Duration = Duration::from_millis(2);

/// The number of timed system calls in a reading. As many calls come first and do not count. The
/// timed calls then find their code in the caches, whatever ran on the core before.
const CALLS: u32 = 16;

/// A reading counts as at most this many times the core's fastest reading so far. One reading in a
/// thousand takes ten to thirty times as long. With such readings, the gauge explains nearly
/// nothing (docs/lab-notebook.md, *A gauge on the core*).
const SLOWEST: u32 = 2;

/// A reading counts as at least this long, however coarse the clock is.
const SHORTEST: Duration = Duration::from_nanos(CALLS as u64);

/// System calls on some cores, and how long they took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gauged {
    /// The number of timed system calls.
    pub calls: u64,
    /// The time that these calls took, in nanoseconds.
    pub ns: u64,
}

impl Gauged {
    /// Returns what was timed after an earlier reading.
    pub fn since(self, before: Self) -> Self {
        let (calls, ns) =
            (self.calls.saturating_sub(before.calls), self.ns.saturating_sub(before.ns));
        Self { calls, ns }
    }

    /// Returns the sum of two readings.
    pub fn and(self, other: Self) -> Self {
        Self { calls: self.calls + other.calls, ns: self.ns + other.ns }
    }

    /// Returns the mean time of a call, in nanoseconds. `None` without calls.
    pub fn mean_ns(self) -> Option<f64> {
        (self.calls > 0).then(|| self.ns as f64 / self.calls as f64)
    }
}

/// Threads that time system calls, one on each core. The threads end when the gauge is dropped.
#[derive(Debug, Default)]
pub struct Gauge {
    calls: AtomicU64,
    ns: AtomicU64,
}

impl Gauge {
    /// Returns the gauge of these cores. Servers on the same cores share it.
    pub fn on(cores: &[usize]) -> Arc<Self> {
        type Known = Vec<(Vec<usize>, Weak<Gauge>)>;
        static KNOWN: Mutex<Known> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, gauge)| gauge.strong_count() > 0);
        if let Some(gauge) = known.iter().find(|(on, _)| on == cores).and_then(|(_, g)| g.upgrade())
        {
            return gauge;
        }
        let gauge = Arc::new(Self::default());
        for &core in cores {
            let gauge = Arc::downgrade(&gauge);
            let reader = thread::Builder::new().name("gauge".to_owned()).stack_size(64 << 10);
            // A core whose thread cannot be started is not gauged.
            let _ = reader.spawn(move || keep_reading(core, &gauge));
        }
        known.push((cores.to_vec(), Arc::downgrade(&gauge)));
        gauge
    }

    fn add(&self, took: Duration) {
        self.calls.fetch_add(u64::from(CALLS), Ordering::Relaxed);
        self.ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns all calls so far.
    pub fn read(&self) -> Gauged {
        let read = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Gauged { calls: read(&self.calls), ns: read(&self.ns) }
    }
}

fn keep_reading(core: usize, gauge: &Weak<Gauge>) {
    if pin(&[core]).is_err() {
        return;
    }
    let mut fastest = Duration::MAX;
    while let Some(gauge) = gauge.upgrade() {
        let took = time_calls().max(SHORTEST);
        fastest = fastest.min(took);
        gauge.add(took.min(fastest * SLOWEST));
        drop(gauge);
        thread::sleep(EVERY);
    }
}

fn time_calls() -> Duration {
    let call = || {
        let began = Instant::now();
        for _ in 0..CALLS {
            let _ = getppid();
        }
        began.elapsed()
    };
    call();
    call()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::cpus::allowed;

    #[test]
    fn a_gauge_reads_until_its_last_server_is_gone() {
        let core = &allowed().unwrap()[..1];
        let (gauge, same) = (Gauge::on(core), Gauge::on(core));
        assert!(Arc::ptr_eq(&gauge, &same));
        let before = gauge.read();
        let since = || gauge.read().since(before);
        while since().calls < 3 * u64::from(CALLS) {
            thread::sleep(EVERY);
        }
        assert!(since().mean_ns().unwrap() > 1.0, "{:?}", since());
        assert_eq!(since().and(since()).mean_ns(), since().mean_ns());
        let gone = Arc::downgrade(&gauge);
        drop((gauge, same));
        while gone.strong_count() > 0 {
            thread::sleep(EVERY);
        }
        assert!(!Weak::ptr_eq(&gone, &Arc::downgrade(&Gauge::on(core))));
    }
}
