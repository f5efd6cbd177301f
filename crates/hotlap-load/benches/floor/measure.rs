//! Runs a load generator once and counts the requests that the server saw, CPU time, instructions
//! and system calls.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::generators::{Generator, is_installed};
use super::server::Server;

/// The result of one run of a load generator.
pub struct Run {
    pub requests: f64,
    pub cpu_us: f64,
    /// The number of voluntary context switches, which is how often the generator slept.
    pub sleeps: f64,
    pub stdout: String,
    pub stderr: String,
    pub is_ok: bool,
}

impl Run {
    pub fn cpu_us_per_request(&self) -> f64 {
        self.cpu_us / self.requests.max(1.0)
    }

    /// Returns the requests per wake-up, if the generator prints how often it woke up.
    pub fn batch(&self) -> Option<f64> {
        self.printed("wakeups").map(|count| self.requests / count)
    }

    /// Returns a figure that this program prints as a load generator, such as `wakeups 123`.
    pub fn printed(&self, name: &str) -> Option<f64> {
        let line = self.stdout.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    }
}

/// Runs a generator, under another program if `under` is not empty. Some generators wait forever
/// for a connection that found the accept queue full, so `limit_s` ends them.
pub fn run(under: &[&str], generator: &Generator, limit_s: u64, server: &Server) -> Run {
    let limit = limit_s.to_string();
    let mut words = vec!["timeout", "--kill-after=5", &limit];
    words.extend(under);
    words.extend(generator.command.iter().map(String::as_str));
    let (before, spent_before) = (server.served(), ChildUsage::by_children());
    let output = Command::new(words[0]).args(&words[1..]).output().expect("a generator");
    let spent = ChildUsage::by_children();
    Run {
        requests: (server.served() - before) as f64,
        cpu_us: spent.cpu_us - spent_before.cpu_us,
        sleeps: spent.sleeps - spent_before.sleeps,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        is_ok: output.status.success(),
    }
}

/// Returns the time limit of a run of this many seconds, which is generous because a counter slows
/// the run down.
pub fn limit_s(seconds: u64) -> u64 {
    seconds * 5 + 30
}

/// Runs each generator once per round, in turn, so that a slow machine slows down all of them.
pub fn rounds(
    generators: &[Generator],
    rounds: usize,
    seconds: u64,
    server: &Server,
) -> Vec<Vec<Run>> {
    let mut runs: Vec<Vec<Run>> = generators.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for offset in 0..generators.len() {
            let at = (offset + round) % generators.len();
            let ran = run(&[], &generators[at], limit_s(seconds), server);
            if !ran.is_ok {
                eprintln!("{} failed: {}", generators[at].name, ran.stderr.trim());
            }
            runs[at].push(ran);
        }
    }
    runs
}

/// The resource usage of all generators that have ended.
struct ChildUsage {
    cpu_us: f64,
    sleeps: f64,
}

impl ChildUsage {
    fn by_children() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        #[expect(unsafe_code, reason = "no safe crate in use offers this call")]
        // SAFETY: `usage` is writable and of the right type, and all zeroes are a valid value.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
            usage.assume_init()
        };
        let micros = |t: libc::timeval| t.tv_sec as f64 * 1e6 + t.tv_usec as f64;
        let cpu_us = micros(usage.ru_utime) + micros(usage.ru_stime);
        Self { cpu_us, sleeps: usage.ru_nvcsw as f64 }
    }
}

/// Counts of events by name.
pub type Counts = BTreeMap<String, f64>;

/// A program that counts instructions or system calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// `perf` with hardware counters, which count user and kernel instructions.
    PerfInstructions,
    /// `perf` with tracepoints of the kernel, which count system calls at little cost.
    PerfCalls,
    /// `strace`, which stops the generator at every system call. The generator becomes slow, so
    /// more responses arrive per wake-up.
    StraceCalls,
    /// `valgrind`, which interprets the generator and counts user instructions only. Callgrind is
    /// as slow as `strace`.
    Callgrind,
}

impl Counter {
    /// Returns the best counter of system calls on this machine.
    pub fn of_calls() -> Option<Self> {
        [Self::PerfCalls, Self::StraceCalls].into_iter().find(|counter| counter.works())
    }

    /// Returns whether the counter works on this machine, by counting in a run of `true`.
    pub fn works(self) -> bool {
        let program = match self {
            Self::PerfInstructions | Self::PerfCalls => "perf",
            Self::StraceCalls => "strace",
            Self::Callgrind => "valgrind",
        };
        let report = report();
        let under = self.under(&report);
        let is_whole = |counts: Counts| match self {
            Self::PerfInstructions => counts.len() == 2 && counts.values().all(|c| *c > 0.0),
            _ => counts.values().any(|c| *c > 0.0),
        };
        let counted = |output: std::process::Output| {
            self.read(&report, &String::from_utf8_lossy(&output.stderr))
        };
        is_installed(program)
            && Command::new(&under[0])
                .args(&under[1..])
                .arg("true")
                .output()
                .is_ok_and(|output| output.status.success() && is_whole(counted(output)))
    }

    /// Returns the name of the counter for the caption of a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::PerfInstructions => "perf's instruction counters",
            Self::PerfCalls => "perf's tracepoints",
            Self::StraceCalls => "strace, which slows the generator down",
            Self::Callgrind => "callgrind, which slows the generator down",
        }
    }

    /// Returns the counts per request, without the start and end of a run. The difference in counts
    /// between a longer and a shorter run is divided by the difference in requests. `None` if the
    /// generator does not run under this counter.
    pub fn per_request(
        self,
        generator: &dyn Fn(u64) -> Option<Generator>,
        (short_s, long_s): (u64, u64),
        server: &Server,
    ) -> Option<Counts> {
        let once = |seconds| {
            let generator = generator(seconds)?;
            let report = report();
            let under = self.under(&report);
            let under: Vec<&str> = under.iter().map(String::as_str).collect();
            let ran = run(&under, &generator, limit_s(seconds), server);
            let counts = self.read(&report, &ran.stderr);
            (ran.is_ok && !counts.is_empty()).then_some((counts, ran.requests))
        };
        let (short, long) = (once(short_s)?, once(long_s)?);
        let requests = long.1 - short.1;
        let beyond = |(name, count): (String, f64)| {
            let before = short.0.get(&name).copied().unwrap_or_default();
            (name, (count - before) / requests)
        };
        (requests > 100.0).then(|| long.0.into_iter().map(beyond).collect())
    }

    fn under(self, report: &Path) -> Vec<String> {
        let report = report.display();
        let line = match self {
            Self::PerfInstructions => {
                format!("perf stat -x, -e instructions:u,instructions:k -o {report} --")
            }
            Self::PerfCalls => format!("perf stat -x, -e {} -o {report} --", tracepoints()),
            Self::StraceCalls => format!("strace -f -c -o {report}"),
            Self::Callgrind => {
                format!("valgrind --tool=callgrind --callgrind-out-file={report}")
            }
        };
        line.split(' ').map(str::to_owned).collect()
    }

    fn read(self, report: &Path, stderr: &str) -> Counts {
        let text = std::fs::read_to_string(report).unwrap_or_default();
        let _ = std::fs::remove_file(report);
        let number = |text: &str| text.replace(',', "").trim().parse::<f64>().ok();
        match self {
            // perf writes lines such as: 12345,,syscalls:sys_enter_read,1000,100.00,,
            Self::PerfInstructions | Self::PerfCalls => {
                let lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
                let named = |f: Vec<&str>| {
                    let name = f.get(2)?.trim_start_matches("syscalls:sys_enter_");
                    Some((name.to_owned(), number(f[0])?))
                };
                lines.filter_map(named).collect()
            }
            // strace writes lines such as: 50.00    0.000012           3         4         1 openat
            Self::StraceCalls => {
                let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
                let named = |f: Vec<&str>| {
                    number(f.first()?)?;
                    let name = if *f.last()? == "total" { ALL } else { f.last()? };
                    Some((name.to_owned(), number(f.get(3)?)?))
                };
                lines.filter_map(named).collect()
            }
            // callgrind prints a line such as: ==123== Collected : 12345
            Self::Callgrind => {
                let collected = stderr.lines().find_map(|line| line.split_once("Collected : "));
                let count = collected.and_then(|(_, count)| number(count));
                count.map(|count| ("instructions:u".to_owned(), count)).into_iter().collect()
            }
        }
    }
}

/// The name under which all system calls are counted together.
pub const ALL: &str = "raw_syscalls:sys_enter";

/// The system calls of load generators, by purpose.
pub const KINDS: [(&str, &[&str]); 5] = [
    ("receive", &["recvfrom", "recvmsg", "read", "readv"]),
    ("send", &["sendto", "sendmsg", "write", "writev"]),
    ("wait", &["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll"]),
    ("epoll_ctl", &["epoll_ctl"]),
    ("io_uring_enter", &["io_uring_enter"]),
];

/// Returns the number of system calls of a kind.
pub fn of_kind(counts: &Counts, kind: &[&str]) -> f64 {
    kind.iter().filter_map(|name| counts.get(*name)).sum()
}

fn tracepoints() -> String {
    let here = |name: &&&str| {
        ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
            .iter()
            .any(|root| Path::new(root).join(format!("events/syscalls/sys_enter_{name}")).exists())
    };
    let names = KINDS.iter().flat_map(|(_, names)| *names).filter(here);
    let known = names.map(|name| format!("syscalls:sys_enter_{name}"));
    known.chain([ALL.to_owned()]).collect::<Vec<_>>().join(",")
}

/// Returns the path of the file that a counter writes. The file is read once, then removed.
fn report() -> PathBuf {
    std::env::temp_dir().join(format!("hotlap-floor-{}", std::process::id()))
}
