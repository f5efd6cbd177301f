//! Reads events at both ends of a slice. The kernel counts these events for every process anyway,
//! except for moves between cores, which need a perf counter.

use std::collections::HashMap;
use std::fs;

use perf_event::events::Software;
use perf_event::{Builder, Counter};
use procfs::process::{Process, Stat};

use crate::cpus;
use crate::observation::{Device, Events, Observation, ObserveError, refusal};
use crate::processes::{Roots, status_field, thread_cpu_ns, threads};
use crate::rings::to_attach;
use crate::segments::{Sockets, Traffic};
use crate::usage::{Sampler, Switches};

/// A thread counts as idle if it used less CPU time than the total of all threads divided by this
/// number.
const ONE_IN: u64 = 100;

/// The instrument that reads the events of a server.
#[derive(Debug)]
pub(crate) struct EventCounts {
    supervisor: Option<u32>,
    sampler: Sampler,
    /// A counter for each attached thread. Threads that start later inherit the counter.
    migrations: Result<Vec<Counter>, ObserveError>,
    began: Option<Edge>,
    sum: Option<Events>,
    /// The CPU time of each thread in all slices, in nanoseconds.
    threads: HashMap<u32, u64>,
}

/// The readings at one end of a slice.
#[derive(Debug)]
struct Edge {
    sums: Sums,
    switches: Option<Switches>,
    migrations: Option<u64>,
    sockets: Option<Sockets>,
    /// The CPU time of each thread, in nanoseconds.
    threads: HashMap<u32, u64>,
}

/// Sums over all processes, including ended children that their parents waited for.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    minor_faults: u64,
    major_faults: u64,
    user_ticks: u64,
    kernel_ticks: u64,
    /// Whether the kernel measures user and kernel time, instead of estimating both at ticks.
    is_exact: bool,
}

impl EventCounts {
    /// Prepares to read the events. Events that may not be read are unknown.
    pub(crate) fn open(roots: &Roots) -> Self {
        let open = |thread: u32| {
            let mut builder = Builder::new(Software::CPU_MIGRATIONS);
            builder.observe_pid(thread.cast_signed()).any_cpu().inherit(true);
            builder.enabled(false).include_kernel().build()
        };
        let migrations = to_attach(roots).into_iter().map(open).collect::<Result<_, _>>();
        Self {
            sampler: Sampler::new(roots.clone()),
            migrations: migrations.map_err(|error| refusal("moves between cores", &error)),
            supervisor: roots.supervisor,
            began: None,
            sum: None,
            threads: HashMap::new(),
        }
    }

    fn edge(&mut self) -> Edge {
        let pids = self.sampler.pids();
        let read = |counter: &mut Counter| counter.read().ok();
        let migrations = self.migrations.as_mut().ok();
        Edge {
            sums: Sums::of(self.supervisor, &pids),
            switches: self.sampler.switches().ok(),
            migrations: migrations.and_then(|counters| counters.iter_mut().map(read).sum()),
            sockets: Sockets::of(&pids).ok(),
            threads: pids.iter().flat_map(|&pid| thread_times(pid)).collect(),
        }
    }
}

impl Device for EventCounts {
    fn enable(&mut self) -> Result<(), ObserveError> {
        if let Ok(counters) = &mut self.migrations {
            let enabled = counters.iter_mut().try_for_each(Counter::enable);
            enabled.map_err(|error| refusal("moves between cores", &error))?;
        }
        self.began = Some(self.edge());
        Ok(())
    }

    fn disable(&mut self) {
        for counter in self.migrations.iter_mut().flatten() {
            let _ = counter.disable();
        }
        let Some(began) = self.began.take() else { return };
        let ended = self.edge();
        for (thread, ns) in &ended.threads {
            let before = began.threads.get(thread).copied().unwrap_or(0);
            *self.threads.entry(*thread).or_insert(0) += ns.saturating_sub(before);
        }
        let events = between(&began, &ended);
        match &mut self.sum {
            Some(sum) => sum.merge(events),
            None => self.sum = Some(events),
        }
    }

    fn take(&mut self) -> Result<Observation, ObserveError> {
        let mut events = self.sum.take().unwrap_or_default();
        let threads = std::mem::take(&mut self.threads);
        events.threads = Some(workers(threads.values().copied()));
        Ok(Observation::Events(events))
    }

    fn limits(&self) -> Vec<ObserveError> {
        self.migrations.as_ref().err().cloned().into_iter().collect()
    }
}

/// Returns the events between both ends of a slice, without the number of threads.
fn between(began: &Edge, ended: &Edge) -> Events {
    let since = |now: u64, then: u64| Some(now.saturating_sub(then));
    let switches = began.switches.zip(ended.switches);
    let traffic = began.sockets.as_ref().zip(ended.sockets.as_ref());
    let traffic: Option<Traffic> = traffic.and_then(|(began, ended)| ended.since(began));
    let is_exact = began.sums.is_exact && ended.sums.is_exact;
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let ns = |now: u64, then: u64| is_exact.then(|| now.saturating_sub(then) * tick_ns);
    Events {
        minor_faults: since(ended.sums.minor_faults, began.sums.minor_faults),
        major_faults: since(ended.sums.major_faults, began.sums.major_faults),
        voluntary_switches: switches.and_then(|(a, b)| since(b.voluntary, a.voluntary)),
        involuntary_switches: switches.and_then(|(a, b)| since(b.involuntary, a.involuntary)),
        migrations: began.migrations.zip(ended.migrations).and_then(|(a, b)| since(b, a)),
        segments_sent: traffic.map(|traffic| traffic.sent),
        segments_received: traffic.map(|traffic| traffic.received),
        user_ns: ns(ended.sums.user_ticks, began.sums.user_ticks),
        kernel_ns: ns(ended.sums.kernel_ticks, began.sums.kernel_ticks),
        threads: Some(0),
    }
}

/// Returns how many of these CPU times belong to threads that do work.
fn workers(times: impl Iterator<Item = u64> + Clone) -> u64 {
    let all: u64 = times.clone().sum();
    times.filter(|ns| *ns > 0 && ns.saturating_mul(ONE_IN) >= all).count() as u64
}

impl Sums {
    /// Reads `/proc/PID/stat` of all processes, see proc_pid_stat(5). A parent that waits for an
    /// ended process receives the counts of this process, so the sum stays right.
    fn of(supervisor: Option<u32>, pids: &[u32]) -> Self {
        let stat = |pid: u32| Process::new(pid.cast_signed()).ok()?.stat().ok();
        let mut sum = Self { is_exact: is_exact(pids), ..Self::default() };
        for one in pids.iter().filter_map(|&pid| stat(pid)) {
            sum.minor_faults += one.minflt;
            sum.major_faults += one.majflt;
            sum.user_ticks += one.utime;
            sum.kernel_ticks += one.stime;
            sum.add_children(&one);
        }
        if let Some(supervisor) = supervisor.and_then(stat) {
            sum.add_children(&supervisor);
        }
        sum
    }

    fn add_children(&mut self, parent: &Stat) {
        self.minor_faults += parent.cminflt;
        self.major_faults += parent.cmajflt;
        self.user_ticks += parent.cutime.cast_unsigned();
        self.kernel_ticks += parent.cstime.cast_unsigned();
    }
}

/// Returns whether the kernel measures user and kernel time at every entry to the kernel. The
/// kernel does so only on cores without regular ticks (`nohz_full`,
/// Documentation/timers/no_hz.rst). Elsewhere, the kernel splits the exact CPU time by the modes in
/// which ticks found the process.
fn is_exact(pids: &[u32]) -> bool {
    let tickless = fs::read_to_string("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    let tickless = cpus::parse(&tickless).unwrap_or_default();
    !tickless.is_empty() && pids.iter().all(|&pid| runs_only_on(pid, &tickless))
}

fn runs_only_on(pid: u32, cores: &[usize]) -> bool {
    let list = status_field(pid, "Cpus_allowed_list:");
    let allowed = cpus::parse(&list).filter(|allowed| !allowed.is_empty());
    allowed.is_some_and(|allowed| allowed.iter().all(|one| cores.contains(one)))
}

/// Returns the CPU time of each thread of a process, in nanoseconds.
fn thread_times(pid: u32) -> impl Iterator<Item = (u32, u64)> {
    threads(pid).into_iter().filter_map(move |thread| Some((thread, thread_cpu_ns(pid, thread)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_only_stops_and_goes_on_is_not_counted() {
        let times = [1_000_000, 900_000, 0, 15_000, 25_000];
        assert_eq!(workers(times.into_iter()), 3);
        assert_eq!(workers([0, 0].into_iter()), 0);
    }

    #[test]
    fn user_time_is_unknown_where_it_is_not_measured() {
        let edge = |is_exact| Edge {
            sums: Sums { user_ticks: 5, is_exact, ..Sums::default() },
            switches: None,
            migrations: Some(3),
            sockets: None,
            threads: HashMap::new(),
        };
        let events = between(&edge(false), &edge(true));
        assert_eq!((events.user_ns, events.kernel_ns), (None, None));
        assert_eq!((events.migrations, events.voluntary_switches), (Some(0), None));
        let events = between(&edge(true), &edge(true));
        assert_eq!((events.user_ns, events.kernel_ns), (Some(0), Some(0)));
    }
}
