//! Counts system calls by name, with the kernel's tracepoint at the beginning of each call, or by
//! stopping the server at each call.
//!
//! The tracepoint writes a record of 88 bytes for each call, and a thread of hotlap counts the
//! records. A record costs the server about 1 µs on a virtual machine (`observe`, a bench of
//! `hotlap-servers`). The tracepoint is described in tracefs, which only root may read. Counting
//! in the kernel would need an event for each of 350 system calls, all switched at every context
//! switch. The alternative is a histogram trigger, which many kernels are built without.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use perf_event::data::Record;
use perf_event::events::Tracepoint;
use perf_event::{Builder, SampleFlag};
use syscalls::Sysno;

use crate::observation::{Device, GOES_WITHOUT, Observation, ObserveError, refusal};
use crate::processes::Roots;
use crate::ptrace::Ptrace;
use crate::rings::{Rings, to_attach};

const WHAT: &str = "system calls";

const AT_FULL_SPEED: &str = "system calls at full speed";

/// Adds what happens without the tracepoint to the remedy for a refused tracepoint.
fn counted_by_ptrace(mut refused: ObserveError) -> ObserveError {
    refused.remedy += ". hotlap uses ptrace instead, which stops the server at each call. Calls \
                       that depend on timing, such as epoll_wait, are counted too often";
    refused
}

/// The key under which lost records are counted.
const LOST: &str = "[lost]";

/// The instrument that counts a server's system calls.
#[derive(Debug)]
pub(crate) struct SystemCalls {
    means: Means,
}

#[derive(Debug)]
enum Means {
    /// The calls are counted with the kernel's tracepoint.
    Tracepoint(Traced),
    /// The calls are counted by stopping the server at each call. The error says why the tracepoint
    /// cannot be used.
    Stops(Ptrace, ObserveError),
}

impl SystemCalls {
    /// Attaches the tracepoint, switched off. If the tracepoint cannot be used, prepares to use
    /// ptrace instead.
    pub(crate) fn open(roots: &Roots) -> Result<Self, ObserveError> {
        let means = match Traced::open(roots) {
            Ok(traced) => Means::Tracepoint(traced),
            Err(why) => {
                may_trace(
                    fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok().as_deref(),
                )?;
                Means::Stops(Ptrace::new(roots), why)
            }
        };
        Ok(Self { means })
    }
}

impl Device for SystemCalls {
    fn enable(&mut self) -> Result<(), ObserveError> {
        match &mut self.means {
            Means::Tracepoint(traced) => traced.enable(),
            Means::Stops(ptrace, _) => ptrace.enable(),
        }
        .map_err(|error| refused(&error))
    }

    fn disable(&mut self) {
        match &mut self.means {
            Means::Tracepoint(traced) => traced.disable(),
            Means::Stops(ptrace, _) => ptrace.disable(),
        }
    }

    fn take(&mut self) -> Result<Observation, ObserveError> {
        let (by_number, lost) = match &mut self.means {
            Means::Tracepoint(traced) => {
                let counts = traced.take();
                (counts.by_number, counts.lost)
            }
            Means::Stops(ptrace, _) => (ptrace.take(), 0),
        };
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        for (number, count) in by_number {
            *by_name.entry(name(number)).or_insert(0) += count;
        }
        if lost > 0 {
            by_name.insert(LOST.to_owned(), lost);
        }
        Ok(Observation::SystemCalls(by_name))
    }

    fn limits(&self) -> Vec<ObserveError> {
        match &self.means {
            Means::Tracepoint(_) => Vec::new(),
            Means::Stops(_, why) => vec![why.clone()],
        }
    }
}

fn name(number: u64) -> String {
    let known = usize::try_from(number).ok().and_then(Sysno::new);
    known.map_or_else(|| format!("system call {number}"), |known| known.name().to_owned())
}

/// Fails if the kernel's policy permits no tracing, see Documentation/admin-guide/LSM/Yama.rst.
fn may_trace(scope: Option<&str>) -> Result<(), ObserveError> {
    let is_root = rustix::process::geteuid().is_root();
    match scope.map(str::trim) {
        Some("3") => {
            Err(forbidden("the kernel permits no tracing (kernel.yama.ptrace_scope is 3)"))
        }
        Some("2") if !is_root => {
            Err(forbidden("only root may trace (kernel.yama.ptrace_scope is 2)"))
        }
        _ => Ok(()),
    }
}

fn forbidden(why: &str) -> ObserveError {
    let remedy = "run hotlap as root, with tracefs mounted: sudo mount -t tracefs tracefs \
                  /sys/kernel/tracing";
    ObserveError { what: WHAT.into(), why: why.to_owned(), remedy: remedy.to_owned() }
}

fn refused(error: &io::Error) -> ObserveError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => ObserveError {
            what: WHAT.into(),
            why: "the kernel does not permit tracing the server, or another program traces it"
                .to_owned(),
            remedy: "end the other program, or run hotlap as root. If hotlap runs in a container, \
                     start the container with --cap-add SYS_PTRACE"
                .to_owned(),
        },
        _ => ObserveError {
            what: WHAT.into(),
            why: error.to_string(),
            remedy: GOES_WITHOUT.to_owned(),
        },
    }
}

/// The interval at which records are read. A ring of 512 KiB holds 6,000 records, and one core
/// makes at most a few thousand system calls in this time.
const READ_EVERY: Duration = Duration::from_millis(2);

/// The folders at which tracefs is mounted, by default and on older systems.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Counts by number of the system call, and the number of lost records.
#[derive(Debug, Default)]
struct Counts {
    by_number: HashMap<u64, u64>,
    lost: u64,
}

/// The thread that counts records while the tracepoint is on, and the flag that tells it to stop.
type Reader = (Arc<AtomicBool>, JoinHandle<(Rings, Counts)>);

/// The tracepoint for the beginning of system calls, attached to a server.
#[derive(Debug)]
struct Traced {
    /// The rings. `None` while the tracepoint is on, because the reader has them.
    rings: Option<Rings>,
    reader: Option<Reader>,
    counts: Counts,
    supervisor: Option<u32>,
    /// The offset of the number of the system call in a record.
    number_at: usize,
}

impl Traced {
    /// Attaches the tracepoint, switched off.
    fn open(roots: &Roots) -> Result<Self, ObserveError> {
        let (id, number_at) = described().map_err(counted_by_ptrace)?;
        let mut event = Builder::new(Tracepoint::with_id(id));
        event.sample_period(1).include_kernel().sample(SampleFlag::TID | SampleFlag::RAW);
        let rings = Rings::open(&to_attach(roots), &event);
        let refused = |error| counted_by_ptrace(refusal(AT_FULL_SPEED, &error));
        let rings = Some(rings.map_err(refused)?);
        let supervisor = roots.supervisor;
        Ok(Self { rings, reader: None, counts: Counts::default(), supervisor, number_at })
    }

    /// Switches the tracepoint on.
    fn enable(&mut self) -> io::Result<()> {
        let Some(mut rings) = self.rings.take() else { return Ok(()) };
        if let Err(error) = rings.enable() {
            self.rings = Some(rings);
            return Err(error);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (told, supervisor, number_at) = (Arc::clone(&stop), self.supervisor, self.number_at);
        let reader = thread::spawn(move || {
            let mut counts = Counts::default();
            while !told.load(Ordering::Acquire) {
                read(&mut rings, &mut counts, supervisor, number_at);
                thread::park_timeout(READ_EVERY);
            }
            rings.disable();
            read(&mut rings, &mut counts, supervisor, number_at);
            (rings, counts)
        });
        self.reader = Some((stop, reader));
        Ok(())
    }

    /// Switches the tracepoint off.
    fn disable(&mut self) {
        let Some((stop, reader)) = self.reader.take() else { return };
        stop.store(true, Ordering::Release);
        reader.thread().unpark();
        let (rings, counts) =
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.rings = Some(rings);
        self.counts.lost += counts.lost;
        for (number, count) in counts.by_number {
            *self.counts.by_number.entry(number).or_insert(0) += count;
        }
    }

    /// Returns the counts since the last call.
    fn take(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }
}

fn read(rings: &mut Rings, counts: &mut Counts, supervisor: Option<u32>, number_at: usize) {
    let by_number = &mut counts.by_number;
    counts.lost += rings.drain(|record| {
        let Record::Sample(sample) = record else { return };
        let bytes = sample.raw().and_then(|raw| raw.get(number_at..number_at + 8)?.try_into().ok());
        if sample.pid() != supervisor
            && let Some(bytes) = bytes
        {
            *by_number.entry(u64::from_ne_bytes(bytes)).or_insert(0) += 1;
        }
    });
}

/// Returns the tracepoint's number, and the offset of the number of the system call in its records.
fn described() -> Result<(u64, usize), ObserveError> {
    let folders = MOUNTS.map(|mount| Path::new(mount).join("events/raw_syscalls/sys_enter"));
    let mut hidden = false;
    for folder in &folders {
        match (fs::read_to_string(folder.join("id")), fs::read_to_string(folder.join("format"))) {
            (Ok(id), Ok(format)) => {
                if let (Ok(id), Some(at)) = (id.trim().parse(), number_at(&format)) {
                    return Ok((id, at));
                }
            }
            (Err(error), _) if error.kind() == io::ErrorKind::PermissionDenied => hidden = true,
            _ => {}
        }
    }
    let (why, remedy) = if hidden {
        ("only root may read tracefs", "run hotlap as root")
    } else if Path::new(MOUNTS[0]).exists() {
        (
            "tracefs is not mounted, or this kernel is built without tracing of system calls",
            "mount tracefs with `sudo mount -t tracefs tracefs /sys/kernel/tracing`",
        )
    } else {
        (
            "this kernel is built without tracing of system calls, or a container hides it",
            "run hotlap outside of the container, on a kernel built with CONFIG_FTRACE_SYSCALLS",
        )
    };
    Err(ObserveError { what: AT_FULL_SPEED.into(), why: why.to_owned(), remedy: remedy.to_owned() })
}

/// Returns the offset of the field `id`, of 8 bytes, from a description with lines such as
/// `field:long id; offset:8; size:8; signed:1;`.
fn number_at(format: &str) -> Option<usize> {
    let field = format.lines().find(|line| line.trim_start().starts_with("field:long id;"))?;
    let offset = field.split(';').find_map(|part| part.trim().strip_prefix("offset:"))?;
    offset.parse().ok().filter(|_| field.contains("size:8;"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_have_their_names() {
        assert_eq!(name(libc::SYS_epoll_ctl as u64), "epoll_ctl");
        assert_eq!(name(libc::SYS_futex as u64), "futex");
        assert_eq!(name(9_999), "system call 9999");
    }

    #[test]
    fn a_policy_that_forbids_tracing_is_named() {
        assert!(may_trace(None).is_ok());
        assert!(may_trace(Some("1\n")).is_ok());
        let told = may_trace(Some("3\n")).unwrap_err().to_string();
        assert!(told.starts_with("system calls cannot be observed: the kernel permits no tracing"));
    }

    #[test]
    fn the_number_is_found_where_the_kernel_says() {
        let format = "name: sys_enter\nID: 348\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n";
        assert_eq!(number_at(format), Some(8));
        assert_eq!(number_at("\tfield:int id;\toffset:8;\tsize:4;\n"), None);
    }
}
