//! What a load takes of the system: open files, and cores for its threads.

use crate::Plan;
use crate::session::Error;

/// The files that a plan needs: its connections, and three a worker (events, waker, timer).
pub(crate) fn files(plan: &Plan) -> u64 {
    plan.connections as u64 + 3 * plan.threads as u64
}

/// Raises the limit on open files as far as a plan and the others need.
pub(crate) fn allow_files(plan: &Plan, files: u64) -> Result<(), Error> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // And what the process has open besides.
    let needed = files + 128;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    let what = format!(
        "open {} connections, with at most {} open files allowed (ulimit -Hn {needed} raises that; \
         it takes an administrator)",
        plan.connections,
        limit.maximum.unwrap_or_default(),
    );
    let wanted = limit.maximum.map_or(needed, |hard| hard.max(needed));
    let raised = Rlimit { current: Some(needed), maximum: Some(wanted) };
    let kept = Rlimit { current: Some(needed), maximum: limit.maximum };
    let is_within = limit.maximum.is_none_or(|hard| hard >= needed);
    setrlimit(Resource::Nofile, if is_within { kept } else { raised })
        .map_err(|errno| Error::System { what, why: errno.into() })
}

/// Keeps the calling thread on its core. Where that is not permitted, it runs where it may; the
/// harness checks the pinning it relies on.
#[cfg(target_os = "linux")]
pub(crate) fn pin(plan: &Plan, number: usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let Some(cpu) = plan.cpus.get(number % plan.cpus.len().max(1)) else { return };
    let mut set = CpuSet::new();
    set.set(*cpu);
    let _ = sched_setaffinity(None, &set);
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_plan: &Plan, _number: usize) {}
