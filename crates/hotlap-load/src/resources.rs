//! The system resources that a load needs: open files, and cores for its threads.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::Error;
use crate::plan::Plan;

/// Files that the sessions of this process have reserved.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// Other files that the process has open.
const OTHER_FILES: u64 = 128;

/// The open files of one session, released on drop.
#[derive(Debug)]
pub(crate) struct OpenFiles(u64);

impl OpenFiles {
    /// Reserves the files that a plan needs, and raises the limit of open files if necessary.
    ///
    /// # Errors
    /// The system does not allow that many.
    pub(crate) fn reserve(plan: &Plan) -> Result<Self, Error> {
        // A file for each connection, and three for each worker: event queue, waker, timer.
        let reserved = Self(plan.connections as u64 + 3 * plan.threads as u64);
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

/// Raises the limit on open files to what is needed.
fn raise_limit(plan: &Plan, needed: u64) -> Result<(), Error> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    // Only root may raise the hard limit.
    let maximum = limit.maximum.map(|hard| hard.max(needed));
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).map_err(|errno| {
        let what = format!(
            "open {} connections: at most {} open files are allowed (ulimit -Hn {needed} raises \
             that, as root)",
            plan.connections,
            limit.maximum.unwrap_or_default(),
        );
        Error::System { what, why: errno.into() }
    })
}

/// Pins the calling thread to its core. If that is not permitted, the thread runs on any core:
/// callers check the pinning that they rely on.
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
