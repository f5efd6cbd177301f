//! Hardware threads by the system's numbers: which ones this process may use, pinning to them, and
//! which of them share a physical core.

use std::path::Path;

/// Formats a list of cores: `0-3,6`.
#[must_use]
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

/// Parses such a list; `None` if it is malformed.
#[must_use]
pub fn parse(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for run in list.trim().split(',').filter(|run| !run.is_empty()) {
        let (start, end) = run.split_once('-').unwrap_or((run, run));
        cpus.extend(start.parse::<usize>().ok()?..=end.parse().ok()?);
    }
    Some(cpus)
}

/// Groups hardware threads by physical core, ordered by the first thread of each. A thread without
/// known siblings is a core of its own. `root` is the folder that contains `/sys`.
pub(crate) fn physical_in(root: &Path, cpus: &[usize]) -> Vec<Vec<usize>> {
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

pub use platform::{allowed, pin};

#[cfg(target_os = "linux")]
mod platform {
    use std::io;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// The cores that this thread may use.
    ///
    /// # Errors
    /// The system does not report them.
    pub fn allowed() -> io::Result<Vec<usize>> {
        let set = sched_getaffinity(None)?;
        Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
    }

    /// Pins this thread, and threads that it starts from now on, to cores.
    ///
    /// # Errors
    /// Not permitted, or no such core. Callers report this and go on.
    pub fn pin(cpus: &[usize]) -> io::Result<()> {
        let mut set = CpuSet::new();
        for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
            set.set(cpu);
        }
        Ok(sched_setaffinity(None, &set)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::io;

    /// All cores: this system does not report which ones a thread may use.
    ///
    /// # Errors
    /// The number of cores is unknown.
    pub fn allowed() -> io::Result<Vec<usize>> {
        std::thread::available_parallelism().map(|count| (0..count.get()).collect())
    }

    /// Pins this thread to cores.
    ///
    /// # Errors
    /// Always: not supported on this system.
    pub fn pin(_cpus: &[usize]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system cannot pin threads to cores"))
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
}
