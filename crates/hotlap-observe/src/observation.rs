//! The results of instruments, and the reasons why instruments cannot be used. Both are plain
//! values that can be stored.

use std::borrow::Cow;
use std::collections::BTreeMap;
#[cfg(target_os = "linux")]
use std::io;

use serde::{Deserialize, Serialize};

/// The kinds of instruments. Instruments disturb each other, so a lap has only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Instrument {
    /// Samples of the stacks of all threads that run, at even intervals of CPU time.
    Profile,
    /// System calls, counted by name.
    SystemCalls,
    /// Events that the kernel counts at negligible cost: page faults, context switches, migrations,
    /// and TCP segments.
    Events,
}

/// The result of one instrument in one lap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observation {
    /// The result of [`Instrument::Profile`].
    Profile(Profile),
    /// The result of [`Instrument::SystemCalls`], as counts by name (`epoll_wait`).
    SystemCalls(BTreeMap<String, u64>),
    /// The result of [`Instrument::Events`].
    Events(Events),
}

/// A CPU profile, which says how often each stack was on a core when the sampling clock fired.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Profile {
    /// The CPU time between two samples of one thread, in nanoseconds.
    pub period_ns: u64,
    /// The number of samples that the kernel dropped because a buffer was full.
    pub lost: u64,
    /// Every frame that occurs, once. Stacks refer to frames by index.
    pub frames: Vec<Frame>,
    /// Every stack that was sampled, once, with its number of samples.
    pub stacks: Vec<Stack>,
}

/// A function on a stack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The demangled name of the function, or the name of its library in brackets if the function
    /// is unknown.
    pub function: String,
    /// The file from which the function was loaded (`libc.so.6`), `kernel`, `jit` for code that a
    /// runtime compiled, or `unknown` for a process that ended early.
    pub library: String,
}

/// A stack that was sampled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The process's name as the kernel knows it (`node`).
    pub process: String,
    /// The indices of the frames, outermost first. Frames of the kernel follow the frames of the
    /// process.
    pub frames: Vec<u32>,
    /// The number of samples of this stack.
    pub samples: u64,
}

/// Events that the kernel counts. A count is `None` if it is not permitted or not known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Events {
    /// Page faults that needed no disk.
    pub minor_faults: Option<u64>,
    /// Page faults that read from a disk.
    pub major_faults: Option<u64>,
    /// Context switches that happened because a thread waited.
    pub voluntary_switches: Option<u64>,
    /// Context switches that happened because another thread needed the core.
    pub involuntary_switches: Option<u64>,
    /// Moves of a thread to another core.
    pub migrations: Option<u64>,
    /// TCP segments with data that the server sent.
    pub segments_sent: Option<u64>,
    /// TCP segments with data that the server received.
    pub segments_received: Option<u64>,
    /// CPU time in user mode, in nanoseconds, if the kernel accounts for it exactly.
    pub user_ns: Option<u64>,
    /// CPU time in the kernel, in nanoseconds, if the kernel accounts for it exactly.
    pub kernel_ns: Option<u64>,
    /// The number of threads that did work.
    pub threads: Option<u64>,
}

impl Profile {
    /// Returns the number of all samples.
    pub fn samples(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.samples).sum()
    }

    /// Returns the frames of a stack of this profile, outermost first. The last frame has spent the
    /// time. If the sampling clock saw a function instead of its caller, the stack ends with the
    /// caller.
    pub fn stack<'a>(&'a self, stack: &'a Stack) -> impl DoubleEndedIterator<Item = &'a Frame> {
        let frames = stack.frames.iter().filter_map(|at| self.frames.get(*at as usize));
        let mut frames: Vec<&Frame> = frames.collect();
        let names: Vec<(&str, &str)> =
            frames.iter().map(|f| (f.function.as_str(), f.library.as_str())).collect();
        frames.truncate(frames.len() - seen_instead(&names));
        frames.into_iter()
    }
}

impl Events {
    /// Adds the events of another slice. A sum with an unknown part is unknown. The number of
    /// threads is the larger of the two.
    pub(crate) fn merge(&mut self, other: Self) {
        let sum = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        *self = Self {
            minor_faults: sum(self.minor_faults, other.minor_faults),
            major_faults: sum(self.major_faults, other.major_faults),
            voluntary_switches: sum(self.voluntary_switches, other.voluntary_switches),
            involuntary_switches: sum(self.involuntary_switches, other.involuntary_switches),
            migrations: sum(self.migrations, other.migrations),
            segments_sent: sum(self.segments_sent, other.segments_sent),
            segments_received: sum(self.segments_received, other.segments_received),
            user_ns: sum(self.user_ns, other.user_ns),
            kernel_ns: sum(self.kernel_ns, other.kernel_ns),
            threads: self.threads.zip(other.threads).map(|(one, other)| one.max(other)),
        };
    }
}

/// The library name of functions of the kernel.
pub(crate) const KERNEL: &str = "kernel";

/// The functions in which a section with interrupts off ends, by the beginning of their names.
const ENDS: [&str; 8] = [
    // These functions release a lock that was taken with interrupts off.
    "_raw_spin_unlock_irq",
    "_raw_read_unlock_irq",
    "_raw_write_unlock_irq",
    // This function ends a switch to another thread in `__schedule`.
    "finish_task_switch",
    // These functions start deferred work, and interrupts were off in their callers.
    "handle_softirqs",
    "__do_softirq",
    "do_softirq",
    // This function ends an interrupt.
    "irqentry_exit",
];

/// Returns how many frames at the end of a stack the sampling clock saw instead of their caller.
/// The outermost frame comes first, and each frame is a function and its library. A caller in user
/// mode does not count, because it has not spent the kernel's time.
///
/// The clock is a timer, and a timer cannot interrupt code that runs with interrupts off. A sample
/// of such code is taken where interrupts are switched on again. The time of the functions in
/// [`ENDS`] was therefore spent by their callers. Functions that enter and leave the kernel by a
/// system call switch interrupts on too. Such functions are not listed, because the time before
/// them is spent in entering and leaving.
fn seen_instead(stack: &[(&str, &str)]) -> usize {
    let stands_for_caller = |pair: &&[(&str, &str)]| {
        let ends = ENDS.iter().any(|beginning| pair[1].0.starts_with(beginning));
        ends && pair[0].1 == KERNEL && pair[1].1 == KERNEL
    };
    stack.windows(2).rev().take_while(stands_for_caller).count()
}

/// An instrument that is attached to a server.
pub(crate) trait Device: std::fmt::Debug + Send {
    /// Switches the instrument on.
    fn enable(&mut self) -> Result<(), ObserveError>;

    /// Switches the instrument off.
    fn disable(&mut self);

    /// Returns what the instrument saw since the last call.
    fn take(&mut self) -> Result<Observation, ObserveError>;

    /// Returns what the instrument cannot see on this system, or sees only at a cost.
    fn limits(&self) -> Vec<ObserveError> {
        Vec::new()
    }
}

/// The reason why an instrument cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{what} cannot be observed: {why}; {remedy}")]
pub struct ObserveError {
    /// The thing that would have been observed (`system calls`).
    pub what: Cow<'static, str>,
    /// The reason why it cannot be observed.
    pub why: String,
    /// The remedy, usually the command that would permit the observation.
    pub remedy: String,
}

/// The text in place of a remedy if the cause of a failure is not known.
#[cfg(target_os = "linux")]
pub(crate) const GOES_WITHOUT: &str = "hotlap continues without this instrument";

/// Explains why perf_event_open(2) refuses an event.
#[cfg(target_os = "linux")]
pub(crate) fn refusal(what: &'static str, error: &io::Error) -> ObserveError {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    refusal_at(what, error, paranoid.and_then(|text| text.trim().parse().ok()))
}

#[cfg(target_os = "linux")]
fn refusal_at(what: &'static str, error: &io::Error, paranoid: Option<i32>) -> ObserveError {
    // The kernel's setting refuses with EACCES, and a seccomp profile usually with EPERM.
    let is_reserved = |level: &i32| match error.raw_os_error() {
        Some(libc::EACCES) => *level > 1,
        Some(libc::EPERM) => *level > 2,
        _ => false,
    };
    let (why, remedy) = match (error.raw_os_error(), paranoid.filter(is_reserved)) {
        (_, Some(level)) => (
            format!("the kernel reserves perf events for root (perf_event_paranoid is {level})"),
            "allow them with: sudo sysctl kernel.perf_event_paranoid=1, or run hotlap as root",
        ),
        (Some(libc::EACCES | libc::EPERM), _) => (
            "the kernel refuses perf events, possibly because of a container or a security policy"
                .to_owned(),
            "run hotlap outside of the container, or start the container with --cap-add PERFMON \
             and a seccomp profile that permits perf_event_open",
        ),
        (Some(libc::EMFILE), _) => {
            ("hotlap may not open enough files".to_owned(), "raise the limit with: ulimit -n 65536")
        }
        (Some(libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV), _) => (
            "this kernel does not offer the perf event".to_owned(),
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
    fn a_sum_with_an_unknown_part_is_unknown() {
        let mut one = Events {
            minor_faults: Some(2),
            migrations: Some(1),
            threads: Some(3),
            ..Events::default()
        };
        let other =
            Events { minor_faults: Some(5), migrations: None, threads: Some(2), ..one.clone() };
        one.merge(other);
        assert_eq!((one.minor_faults, one.migrations, one.threads), (Some(7), None, Some(3)));
    }

    /// Returns the function to which a sample of `main` and these functions of the kernel belongs.
    fn spent_by(in_kernel: &[&str]) -> String {
        let kernel = in_kernel.iter().map(|function| (*function, KERNEL));
        let stack: Vec<(&str, &str)> = std::iter::once(("main", "app")).chain(kernel).collect();
        stack[stack.len() - 1 - seen_instead(&stack)].0.to_owned()
    }

    #[test]
    fn time_with_interrupts_off_is_the_callers() {
        let spent = [
            (&["do_syscall_64", "__mod_timer", "_raw_spin_unlock_irqrestore"][..], "__mod_timer"),
            (&["tcp_rcv_established", "sock_def_readable"], "sock_def_readable"),
            (&["net_rx_action", "process_backlog", "_raw_spin_unlock_irq"], "process_backlog"),
            (&["schedule", "__schedule", "finish_task_switch.isra.0"], "__schedule"),
            (
                &["ip_output", "__local_bh_enable_ip", "do_softirq.part.0", "handle_softirqs"],
                "__local_bh_enable_ip",
            ),
            (
                &["asm_sysvec_apic_timer_interrupt", "irqentry_exit_to_user_mode"],
                "asm_sysvec_apic_timer_interrupt",
            ),
        ];
        for (stack, function) in spent {
            assert_eq!(spent_by(stack), function, "{stack:?}");
        }
    }

    #[test]
    fn time_with_interrupts_on_stays_where_it_is() {
        // Interrupts are on in the deferred work that such a function calls.
        assert_eq!(spent_by(&["do_softirq", "handle_softirqs", "net_rx_action"]), "net_rx_action");
        assert_eq!(spent_by(&["tcp_recvmsg", "_raw_spin_unlock_bh"]), "_raw_spin_unlock_bh");
        assert_eq!(spent_by(&["entry_SYSCALL_64", "do_syscall_64"]), "do_syscall_64");
        assert_eq!(spent_by(&[]), "main");
    }

    #[test]
    fn time_in_the_kernel_is_never_given_to_the_program() {
        assert_eq!(spent_by(&["_raw_spin_unlock_irq"]), "_raw_spin_unlock_irq");
        assert_eq!(spent_by(&["do_softirq", "handle_softirqs"]), "do_softirq");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn each_refusal_names_its_cause_and_a_remedy() {
        let told = |errno, level| {
            refusal_at("a CPU profile", &io::Error::from_raw_os_error(errno), level).to_string()
        };
        assert_eq!(
            told(libc::EACCES, Some(2)),
            "a CPU profile cannot be observed: the kernel reserves perf events for root \
             (perf_event_paranoid is 2); allow them with: sudo sysctl \
             kernel.perf_event_paranoid=1, or run hotlap as root"
        );
        assert!(told(libc::EACCES, Some(1)).contains("--cap-add PERFMON"));
        assert!(told(libc::EPERM, Some(2)).contains("--cap-add PERFMON"));
        assert!(told(libc::EMFILE, Some(1)).contains("ulimit -n"));
        assert!(told(libc::ENOSYS, None).contains("CONFIG_PERF_EVENTS"));
    }
}
