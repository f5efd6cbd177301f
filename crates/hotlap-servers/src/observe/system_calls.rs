//! System calls, counted by name.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use syscalls::Sysno;

use super::device::Device;
use super::observation::{Observation, ObserveError};
use super::ptrace::Ptrace;
use super::refusal::GOES_WITHOUT;
use super::subject::Subject;
use super::tracepoint::Traced;

const WHAT: &str = "system calls";

/// The key under which records that were lost are counted.
const LOST: &str = "[lost]";

/// Counts a server's system calls.
#[derive(Debug)]
pub(super) struct SystemCalls {
    means: Means,
}

#[derive(Debug)]
enum Means {
    /// By the kernel's tracepoint.
    Tracepoint(Traced),
    /// By stopping the server at each, and why.
    Stops(Ptrace, ObserveError),
}

impl SystemCalls {
    /// Attaches a tracepoint, switched off; where that is not permitted, prepares to trace.
    pub(super) fn open(subject: &Subject) -> Result<Self, ObserveError> {
        let means = match Traced::open(subject) {
            Ok(traced) => Means::Tracepoint(traced),
            Err(why) => {
                may_trace(
                    fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok().as_deref(),
                )?;
                Means::Stops(Ptrace::new(subject), why)
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

/// Whether the kernel's policy permits tracing at all: Documentation/admin-guide/LSM/Yama.rst.
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
            why: "the kernel does not permit tracing it, or another program traces it".to_owned(),
            remedy: "end the other program, or run hotlap as root; in a container, start it with \
                     --cap-add SYS_PTRACE"
                .to_owned(),
        },
        _ => ObserveError {
            what: WHAT.into(),
            why: error.to_string(),
            remedy: GOES_WITHOUT.to_owned(),
        },
    }
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
}
