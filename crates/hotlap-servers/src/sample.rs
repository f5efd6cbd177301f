//! Samples what a server's whole process tree uses: CPU time, context switches, memory.
//!
//! CPU time comes from each process's own CPU clock, which the scheduler keeps in nanoseconds and
//! which includes ended threads. Ended processes are counted too: a process that is waited for
//! hands its CPU time to its parent, up to the supervisor. The kernel reports that share in clock
//! ticks only (10 ms), rounded down, so for a server that starts a process per request the total is
//! accurate to a tick or two per parent; for one whose processes stay, it is exact. If parents do
//! not wait for their children, the last known value of each child counts. Either way a sample is a
//! lower bound and never decreases.

use std::io;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::owner::Owner;
use crate::process::Process;
#[cfg(target_os = "linux")]
use crate::tree::Member;

/// CPU time of a tree since the server was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// When it was read.
    pub at: Instant,
    /// User and kernel mode together, in nanoseconds.
    pub cpu_ns: u64,
}

/// Context switches of a tree since it was started or first sampled, whichever is later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Switches {
    /// A thread blocked.
    pub voluntary: u64,
    /// A thread was preempted.
    pub involuntary: u64,
}

/// Memory of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Sum of resident set sizes, in bytes: a shared page counts once per process.
    pub rss_bytes: u64,
    /// Sum of proportional set sizes, in bytes: a shared page counts once in all. `None` if not
    /// requested or not permitted.
    pub pss_bytes: Option<u64>,
    /// Threads.
    pub threads: u32,
    /// Processes.
    pub processes: u32,
}

/// Samples one server. Keep one sampler for as long as the server runs, because it remembers ended
/// processes.
#[derive(Debug)]
pub struct Sampler {
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nothing to sample with"))]
    tree: platform::Tree,
}

impl Sampler {
    /// A sampler for a server.
    pub fn new(process: &Process) -> Self {
        Self { tree: platform::Tree::new(Some(process.supervisor_pid()), Vec::new()) }
    }

    /// A sampler for the processes that answer: those that hotlap started, if any, and others'
    /// trees. `None` if the processes that answer are unknown.
    pub fn of(owner: &Owner, started: Option<&Process>) -> Option<Self> {
        let tops = owner.others()?;
        Some(Self { tree: platform::Tree::new(started.map(Process::supervisor_pid), tops) })
    }
}

#[cfg(target_os = "linux")]
impl Sampler {
    /// A sampler for the processes below a supervisor, if any, and others' trees.
    pub(crate) fn below(supervisor: Option<u32>, tops: Vec<Member>) -> Self {
        Self { tree: platform::Tree::new(supervisor, tops) }
    }

    /// CPU time. Cheap enough for both edges of a lap: about 1 µs per process while no process or
    /// thread is created on the machine, some tens of µs per process otherwise.
    ///
    /// # Errors
    /// The process table cannot be read, or a process that hotlap did not start has ended, so that
    /// it is unknown what answers in its place.
    pub fn cpu(&mut self) -> io::Result<Cpu> {
        self.tree.cpu()
    }

    /// Its processes, as last seen if the process table cannot be read.
    pub fn pids(&mut self) -> Vec<u32> {
        self.tree.pids()
    }

    /// Context switches. Takes some tens of µs per thread.
    ///
    /// # Errors
    /// The process table cannot be read.
    pub fn switches(&mut self) -> io::Result<Switches> {
        self.tree.switches()
    }

    /// Memory without proportional set sizes. Takes some tens of µs per process.
    ///
    /// # Errors
    /// The process table cannot be read.
    pub fn resident(&mut self) -> io::Result<Memory> {
        self.tree.memory(false)
    }

    /// Memory. The kernel walks all pages of each process and holds up the process meanwhile, so do
    /// not call this during laps.
    ///
    /// # Errors
    /// The process table cannot be read.
    pub fn memory(&mut self) -> io::Result<Memory> {
        self.tree.memory(true)
    }
}

#[cfg(not(target_os = "linux"))]
impl Sampler {
    /// Its processes: unknown on this system.
    pub fn pids(&mut self) -> Vec<u32> {
        Vec::new()
    }

    /// CPU time: unknown on this system.
    ///
    /// # Errors
    /// Always.
    pub fn cpu(&mut self) -> io::Result<Cpu> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Context switches: unknown on this system.
    ///
    /// # Errors
    /// Always.
    pub fn switches(&mut self) -> io::Result<Switches> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Memory: unknown on this system.
    ///
    /// # Errors
    /// Always.
    pub fn resident(&mut self) -> io::Result<Memory> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Memory: unknown on this system.
    ///
    /// # Errors
    /// Always.
    pub fn memory(&mut self) -> io::Result<Memory> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    /// Nothing is known on this system.
    #[derive(Debug)]
    pub(super) struct Tree;

    impl Tree {
        pub(super) fn new(_root: Option<u32>, _tops: Vec<crate::tree::Member>) -> Self {
            Self
        }
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use std::collections::{HashMap, HashSet};
    use std::fs;
    use std::io;
    use std::time::Instant;

    use super::{Cpu, Memory, Switches};
    use crate::tree::{Member, ProcessTree, member};

    /// A tree and its last known figures.
    #[derive(Debug)]
    pub(super) struct Tree {
        root: Option<u32>,
        census: ProcessTree,
        ledger: CpuAccounting,
        /// Of each thread: its process, and the last known value.
        switches: HashMap<u32, Switches>,
        /// Of ended threads: the sum of last known values.
        switches_gone: Switches,
        ns_per_tick: u64,
    }

    /// CPU time of living and ended processes: the arithmetic, without the process table.
    #[derive(Debug, Default)]
    pub(super) struct CpuAccounting {
        /// The last known CPU time of each living process, by id and start time.
        pub(super) living: HashMap<(u32, u64), u64>,
        /// Of processes that ended while watched: the sum of last known values.
        gone_ns: u64,
        /// CPU time that parents had received before the first sample.
        reaped_first_ns: Option<u64>,
        /// CPU time that parents have received so far, rounded down.
        reaped_ns: u64,
        total_ns: u64,
    }

    impl CpuAccounting {
        pub(super) fn end(&mut self, process: (u32, u64)) {
            self.gone_ns += self.living.remove(&process).unwrap_or(0);
        }

        pub(super) fn reaped(&mut self, ns: u64) {
            self.reaped_first_ns.get_or_insert(ns);
            self.reaped_ns = ns;
        }

        /// The last known times of ended processes and the times that parents received are both
        /// lower bounds of what ended processes used, so the larger one is closer.
        pub(super) fn total(&mut self) -> u64 {
            let living: u64 = self.living.values().sum();
            let seen = self.gone_ns + self.reaped_first_ns.unwrap_or(0);
            self.total_ns = self.total_ns.max(living + seen.max(self.reaped_ns));
            self.total_ns
        }
    }

    impl Tree {
        pub(super) fn new(root: Option<u32>, tops: Vec<Member>) -> Self {
            Self {
                root,
                census: ProcessTree::new(root, tops),
                ledger: CpuAccounting::default(),
                switches: HashMap::new(),
                switches_gone: Switches::default(),
                ns_per_tick: 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1),
            }
        }

        pub(super) fn pids(&mut self) -> Vec<u32> {
            let _ = self.census.refresh();
            self.census.members().filter(|member| !member.zombie).map(|m| m.pid).collect()
        }

        pub(super) fn cpu(&mut self) -> io::Result<Cpu> {
            if self.census.refresh()? {
                self.sum_reaped();
            }
            let at = Instant::now();
            if !self.read_clocks() {
                self.census.look()?;
                self.sum_reaped();
            }
            if self.census.has_lost_a_top() {
                return Err(io::ErrorKind::NotFound.into());
            }
            Ok(Cpu { at, cpu_ns: self.ledger.total() })
        }

        /// Reads each member's clock. Returns whether all of them still exist.
        ///
        /// The times that parents received are read before, never after: a process that ends in
        /// between is then missed by one sample rather than counted twice.
        fn read_clocks(&mut self) -> bool {
            let mut all = true;
            for member in self.census.members() {
                match clock::process_ns(member.pid) {
                    Some(ns) => {
                        let key = (member.pid, member.started);
                        let last = self.ledger.living.entry(key).or_default();
                        *last = ns.max(*last);
                    }
                    None => all = false,
                }
            }
            all
        }

        /// Moves processes that left the process table from the living to the ended, and sums the
        /// times that parents, including the supervisor, received from children that they waited
        /// for.
        fn sum_reaped(&mut self) {
            let here: HashSet<(u32, u64)> =
                self.census.members().map(|member| (member.pid, member.started)).collect();
            let gone: Vec<(u32, u64)> =
                self.ledger.living.keys().filter(|key| !here.contains(key)).copied().collect();
            for key in gone {
                self.ledger.end(key);
            }
            let supervisor = self.root.and_then(member).map_or(0, |root| root.reaped_ticks);
            let ticks = self.census.members().map(|member| member.reaped_ticks).sum::<u64>();
            self.ledger.reaped((supervisor + ticks) * self.ns_per_tick);
        }

        pub(super) fn switches(&mut self) -> io::Result<Switches> {
            self.census.refresh()?;
            let mut now = HashMap::new();
            for member in self.census.members() {
                let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", member.pid)) else {
                    continue;
                };
                for task in tasks.filter_map(Result::ok) {
                    let Some(id) = task.file_name().to_str().and_then(|name| name.parse().ok())
                    else {
                        continue;
                    };
                    if let Ok(status) = fs::read_to_string(task.path().join("status")) {
                        let read = Switches {
                            voluntary: field(&status, "voluntary_ctxt_switches:"),
                            involuntary: field(&status, "nonvoluntary_ctxt_switches:"),
                        };
                        now.insert(id, read);
                    }
                }
            }
            for (id, last) in &self.switches {
                // The thread ended, or its id was reused.
                if now.get(id).is_none_or(|now| now.voluntary < last.voluntary) {
                    self.switches_gone.voluntary += last.voluntary;
                    self.switches_gone.involuntary += last.involuntary;
                }
            }
            self.switches = now;
            Ok(self.switches.values().fold(self.switches_gone, |sum, thread| Switches {
                voluntary: sum.voluntary + thread.voluntary,
                involuntary: sum.involuntary + thread.involuntary,
            }))
        }

        pub(super) fn memory(&mut self, proportional: bool) -> io::Result<Memory> {
            self.census.refresh()?;
            let mut memory = Memory { pss_bytes: proportional.then_some(0), ..Memory::default() };
            for member in self.census.members() {
                let Ok(status) = fs::read_to_string(format!("/proc/{}/status", member.pid)) else {
                    continue;
                };
                let threads = u32::try_from(field(&status, "Threads:")).unwrap_or(0);
                let mut rss = field(&status, "VmRSS:");
                // A zombie has no memory.
                if rss == 0 {
                    continue;
                }
                memory.processes += 1;
                memory.threads += threads;
                if proportional {
                    match fs::read_to_string(format!("/proc/{}/smaps_rollup", member.pid)) {
                        Ok(rollup) => {
                            rss = field(&rollup, "Rss:");
                            memory.pss_bytes =
                                memory.pss_bytes.map(|sum| sum + 1024 * field(&rollup, "Pss:"));
                        }
                        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                            memory.pss_bytes = None;
                        }
                        Err(_) => {}
                    }
                }
                memory.rss_bytes += 1024 * rss;
            }
            Ok(memory)
        }
    }

    /// The number after a name at the start of a line; 0 if missing.
    pub(super) fn field(text: &str, name: &str) -> u64 {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    /// Reads the CPU clock of another process, for which there is no safe library.
    pub(super) mod clock {
        #![expect(unsafe_code, reason = "the CPU clock of another process")]

        /// CPU time of all threads that a process ever had, in nanoseconds; `None` if it has ended.
        pub(in super::super) fn process_ns(pid: u32) -> Option<u64> {
            let mut id: libc::clockid_t = 0;
            // SAFETY: `id` is valid for writes; a missing process returns an error.
            if unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &raw mut id) } != 0 {
                return None;
            }
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: `time` is valid for writes; the clock of a missing process returns an error.
            if unsafe { libc::clock_gettime(id, &raw mut time) } != 0 {
                return None;
            }
            let (seconds, ns) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
            Some(seconds.ok()? * 1_000_000_000 + ns.ok()?)
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::platform::{CpuAccounting, clock, field};

    #[test]
    fn an_ended_process_is_counted_exactly_once() {
        let mut ledger = CpuAccounting::default();
        ledger.reaped(500);
        ledger.living.insert((1, 1), 1_000);
        ledger.living.insert((2, 1), 70);
        assert_eq!(ledger.total(), 1_570);
        // It ends after using 75; its parent receives that, rounded down.
        ledger.end((2, 1));
        ledger.reaped(560);
        assert_eq!(ledger.total(), 1_570);
        // The next process was never seen alive.
        ledger.reaped(700);
        assert_eq!(ledger.total(), 1_700);
    }

    #[test]
    fn children_without_a_wait_count_as_last_seen() {
        let mut ledger = CpuAccounting::default();
        ledger.reaped(0);
        ledger.living.insert((2, 1), 70);
        assert_eq!(ledger.total(), 70);
        ledger.end((2, 1));
        ledger.living.insert((3, 1), 5);
        assert_eq!(ledger.total(), 75);
    }

    #[test]
    fn the_clock_of_this_process_always_advances() {
        let first = clock::process_ns(std::process::id()).unwrap();
        let mut sum = 0_u64;
        while clock::process_ns(std::process::id()).unwrap() < first + 2_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(clock::process_ns(std::process::id()).unwrap() >= first + 2_000_000);
    }

    #[test]
    fn a_field_needs_its_full_name_at_the_start_of_a_line() {
        let status = "nonvoluntary_ctxt_switches:\t3\nvoluntary_ctxt_switches:\t7\nVmRSS:\t12 kB\n";
        assert_eq!(field(status, "voluntary_ctxt_switches:"), 7);
        assert_eq!(field(status, "VmRSS:"), 12);
        assert_eq!(field(status, "VmHWM:"), 0);
    }
}
