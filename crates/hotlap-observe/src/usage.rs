//! Samples the CPU time, context switches and memory of a server's whole process tree.
//!
//! CPU time comes from each process's own CPU clock, which the scheduler keeps in nanoseconds and
//! which includes ended threads. Ended processes are counted too, because a parent that waits for a
//! child receives the child's CPU time, up to the supervisor. The kernel reports this part only in
//! clock ticks (10 ms), rounded down. So if a server starts a process per request, the total is
//! accurate to one or two ticks per parent. If no process of a server ends, the total is exact. If
//! parents do not wait for their children, the last known value of each child counts. In each case,
//! a sample is a lower bound and never decreases.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::processes::{self, ProcessTree, Roots};

/// The CPU time of a tree since the server was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// The time of the reading.
    pub at: Instant,
    /// The CPU time in user and kernel mode together, in nanoseconds.
    pub cpu_ns: u64,
}

/// The context switches of a tree, without threads that ended before any sample saw them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Switches {
    /// Context switches of threads that blocked.
    pub voluntary: u64,
    /// Context switches of threads that were preempted.
    pub involuntary: u64,
}

/// The memory of a tree, and the numbers of its threads and processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Memory {
    /// The sum of resident set sizes, in bytes. A shared page counts once per process.
    pub rss_bytes: u64,
    /// The sum of proportional set sizes, in bytes. A shared page counts only once. `None` if not
    /// requested or not permitted.
    pub pss_bytes: Option<u64>,
    /// The number of threads.
    pub threads: u32,
    /// The number of processes.
    pub processes: u32,
}

/// The counts of hardware counters in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HardwareCounts {
    /// Instructions in user mode.
    pub instructions_user: u64,
    /// Instructions in the kernel. `None` if only user mode may be counted.
    pub instructions_kernel: Option<u64>,
    /// Cycles in both modes, or in user mode if only user mode may be counted.
    pub cycles: u64,
}

/// Samples one server. Keep one sampler for as long as the server runs, because the sampler
/// remembers ended processes. On systems other than Linux, all figures are unknown.
#[derive(Debug)]
pub struct Sampler {
    supervisor: Option<u32>,
    tree: ProcessTree,
    ledger: CpuAccounting,
    /// The last known value of each thread.
    switches: HashMap<u32, Switches>,
    /// The sum of the last known values of ended threads.
    switches_gone: Switches,
    ns_per_tick: u64,
}

impl Sampler {
    /// Returns a sampler for the processes of a server.
    pub fn new(roots: Roots) -> Self {
        Self {
            supervisor: roots.supervisor,
            tree: ProcessTree::new(roots),
            ledger: CpuAccounting::default(),
            switches: HashMap::new(),
            switches_gone: Switches::default(),
            ns_per_tick: 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1),
        }
    }

    /// Samples CPU time, which is cheap enough for both edges of a slice. While no process or
    /// thread is created on the machine, a sample takes about 1 µs per process. Otherwise, it
    /// takes tens of µs per process.
    ///
    /// # Errors
    /// The process table cannot be read, or a process that hotlap did not start has ended. The
    /// process that responds in its place is then unknown.
    pub fn cpu(&mut self) -> io::Result<Cpu> {
        supported()?;
        if self.tree.refresh()? {
            self.sum_reaped();
        }
        let at = Instant::now();
        if !self.read_clocks() {
            self.tree.look()?;
            self.sum_reaped();
        }
        if self.tree.has_lost_a_top() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Cpu { at, cpu_ns: self.ledger.total() })
    }

    /// Returns the processes of the server, as last seen if the process table cannot be read.
    pub fn pids(&mut self) -> Vec<u32> {
        let _ = supported().and_then(|()| self.tree.refresh());
        self.tree.pids()
    }

    /// Reads the CPU clock of each member. Returns whether all members still exist.
    ///
    /// The caller reads the times that parents received from children before the clocks. One
    /// sample then misses a process that ends in between, instead of counting it twice.
    fn read_clocks(&mut self) -> bool {
        let mut all = true;
        for member in self.tree.members() {
            match clock::process_ns(member.pid) {
                Some(ns) => {
                    let last = self.ledger.living.entry((member.pid, member.started)).or_default();
                    *last = ns.max(*last);
                }
                None => all = false,
            }
        }
        all
    }

    /// Moves processes that left the process table from the living to the ended. Also sums the
    /// times that parents, including the supervisor, received from children that they waited for.
    fn sum_reaped(&mut self) {
        let here: HashSet<(u32, u64)> =
            self.tree.members().map(|member| (member.pid, member.started)).collect();
        let gone: Vec<(u32, u64)> =
            self.ledger.living.keys().filter(|key| !here.contains(key)).copied().collect();
        for key in gone {
            self.ledger.end(key);
        }
        #[cfg(target_os = "linux")]
        let supervisor = self.supervisor.and_then(processes::member).map_or(0, |s| s.reaped_ticks);
        #[cfg(not(target_os = "linux"))]
        let supervisor = 0;
        let ticks = self.tree.members().map(|member| member.reaped_ticks).sum::<u64>();
        self.ledger.reaped((supervisor + ticks) * self.ns_per_tick);
    }

    /// Samples context switches, which takes tens of µs per thread.
    ///
    /// # Errors
    /// The process table cannot be read.
    pub fn switches(&mut self) -> io::Result<Switches> {
        supported()?;
        self.tree.refresh()?;
        let mut now = HashMap::new();
        for pid in self.tree.members().map(|member| member.pid) {
            for thread in processes::threads(pid) {
                if let Ok(status) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status"))
                {
                    let voluntary = number(&status, "voluntary_ctxt_switches:");
                    let involuntary = number(&status, "nonvoluntary_ctxt_switches:");
                    now.insert(thread, Switches { voluntary, involuntary });
                }
            }
        }
        for (thread, last) in &self.switches {
            // The thread ended, or its id was reused.
            if now.get(thread).is_none_or(|now| now.voluntary < last.voluntary) {
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

    /// Samples memory without proportional set sizes, which takes tens of µs per process.
    ///
    /// # Errors
    /// The process table cannot be read.
    pub fn resident(&mut self) -> io::Result<Memory> {
        self.memory_by(false)
    }

    /// Samples memory. The kernel walks all pages of each process and delays the process during
    /// this time, so do not call this method during laps.
    ///
    /// # Errors
    /// The process table cannot be read.
    pub fn memory(&mut self) -> io::Result<Memory> {
        self.memory_by(true)
    }

    fn memory_by(&mut self, proportional: bool) -> io::Result<Memory> {
        supported()?;
        self.tree.refresh()?;
        let mut memory = Memory { pss_bytes: proportional.then_some(0), ..Memory::default() };
        for member in self.tree.members() {
            let Ok(status) = fs::read_to_string(format!("/proc/{}/status", member.pid)) else {
                continue;
            };
            let mut rss = number(&status, "VmRSS:");
            // A zombie has no memory.
            if rss == 0 {
                continue;
            }
            memory.processes += 1;
            memory.threads += u32::try_from(number(&status, "Threads:")).unwrap_or(0);
            if proportional {
                match fs::read_to_string(format!("/proc/{}/smaps_rollup", member.pid)) {
                    Ok(rollup) => {
                        rss = number(&rollup, "Rss:");
                        memory.pss_bytes =
                            memory.pss_bytes.map(|sum| sum + 1024 * number(&rollup, "Pss:"));
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

/// Fails on systems that do not show the resource usage of processes under `/proc`.
fn supported() -> io::Result<()> {
    match cfg!(target_os = "linux") {
        true => Ok(()),
        false => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// The sums of CPU time of living and ended processes, without access to the process table.
#[derive(Debug, Default)]
struct CpuAccounting {
    /// The last known CPU time of each living process, by id and start time.
    living: HashMap<(u32, u64), u64>,
    /// The sum of the last known values of processes that ended while they were watched.
    gone_ns: u64,
    /// The CPU time that parents had received from children before the first sample.
    reaped_first_ns: Option<u64>,
    /// The CPU time that parents have received from children so far, rounded down.
    reaped_ns: u64,
    total_ns: u64,
}

impl CpuAccounting {
    fn end(&mut self, process: (u32, u64)) {
        self.gone_ns += self.living.remove(&process).unwrap_or(0);
    }

    fn reaped(&mut self, ns: u64) {
        self.reaped_first_ns.get_or_insert(ns);
        self.reaped_ns = ns;
    }

    /// Returns the total CPU time. For ended processes, the last known times and the times that
    /// parents received are both lower bounds. The larger bound is closer to the truth.
    fn total(&mut self) -> u64 {
        let living: u64 = self.living.values().sum();
        let seen = self.gone_ns + self.reaped_first_ns.unwrap_or(0);
        self.total_ns = self.total_ns.max(living + seen.max(self.reaped_ns));
        self.total_ns
    }
}

/// Returns the number after a name at the start of a line, or 0 if it is missing.
fn number(text: &str, name: &str) -> u64 {
    let first = processes::field(text, name).split_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Access to the CPU clock of another process, for which there is no safe library.
mod clock {
    #![cfg_attr(
        target_os = "linux",
        expect(unsafe_code, reason = "the CPU clock of another process")
    )]

    /// Returns the CPU time in nanoseconds of all threads that a process has had, including threads
    /// that have ended. `None` if the process has ended.
    #[cfg(target_os = "linux")]
    pub(super) fn process_ns(pid: u32) -> Option<u64> {
        let mut id: libc::clockid_t = 0;
        // SAFETY: `id` is valid for writes, and a missing process returns an error.
        if unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &raw mut id) } != 0 {
            return None;
        }
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is valid for writes, and the clock of a missing process returns an error.
        if unsafe { libc::clock_gettime(id, &raw mut time) } != 0 {
            return None;
        }
        let (seconds, ns) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
        Some(seconds.ok()? * 1_000_000_000 + ns.ok()?)
    }

    /// Returns `None`, because the clock is unknown on this system.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn process_ns(_pid: u32) -> Option<u64> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{CpuAccounting, clock, number};

    #[test]
    fn an_ended_process_is_counted_exactly_once() {
        let mut ledger = CpuAccounting::default();
        ledger.reaped(500);
        ledger.living.insert((1, 1), 1_000);
        ledger.living.insert((2, 1), 70);
        assert_eq!(ledger.total(), 1_570);
        // The process ends after using 75. Its parent receives this time, rounded down to 60.
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
        assert_eq!(number(status, "voluntary_ctxt_switches:"), 7);
        assert_eq!(number(status, "VmRSS:"), 12);
        assert_eq!(number(status, "VmHWM:"), 0);
    }
}
