//! Causes and remedies where perf_event_open(2) refuses an instrument.

use std::io;

use super::observation::ObserveError;

/// The remedy where the system has no such instrument.
pub(super) const GOES_WITHOUT: &str = "the rest is observed without it";

/// Why an event cannot be opened.
pub(super) fn refusal(what: &'static str, error: &io::Error) -> ObserveError {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    of(what, error, paranoid.and_then(|text| text.trim().parse().ok()))
}

fn of(what: &'static str, error: &io::Error, paranoid: Option<i32>) -> ObserveError {
    // The kernel's own setting refuses with EACCES, and a seccomp profile usually with EPERM.
    let is_reserved = |level: &i32| match error.raw_os_error() {
        Some(libc::EACCES) => *level > 1,
        Some(libc::EPERM) => *level > 2,
        _ => false,
    };
    let (why, remedy) = match (error.raw_os_error(), paranoid.filter(is_reserved)) {
        (_, Some(level)) => (
            format!("the kernel reserves it for root (perf_event_paranoid is {level})"),
            "allow it with: sudo sysctl kernel.perf_event_paranoid=1, or run hotlap as root",
        ),
        (Some(libc::EACCES | libc::EPERM), _) => (
            "a container or security policy forbids it".to_owned(),
            "run outside of the container, or start it with --cap-add PERFMON and a seccomp profile \
             that permits perf_event_open",
        ),
        (Some(libc::EMFILE), _) => {
            ("hotlap may not open enough files".to_owned(), "raise the limit with: ulimit -n 65536")
        }
        (Some(libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV), _) => (
            "this kernel is built without it".to_owned(),
            "use a kernel built with CONFIG_PERF_EVENTS",
        ),
        _ => (error.to_string(), GOES_WITHOUT),
    };
    ObserveError { what: what.into(), why, remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_its_cause_and_a_remedy() {
        let told = |errno, level| {
            of("a CPU profile", &io::Error::from_raw_os_error(errno), level).to_string()
        };
        assert_eq!(
            told(libc::EACCES, Some(2)),
            "a CPU profile cannot be observed: the kernel reserves it for root \
             (perf_event_paranoid is 2); allow it with: sudo sysctl kernel.perf_event_paranoid=1, \
             or run hotlap as root"
        );
        assert!(told(libc::EACCES, Some(1)).contains("--cap-add PERFMON"));
        assert!(told(libc::EPERM, Some(2)).contains("--cap-add PERFMON"));
        assert!(told(libc::EMFILE, Some(1)).contains("ulimit -n"));
        assert!(told(libc::ENOSYS, None).contains("CONFIG_PERF_EVENTS"));
    }
}
