//! Hardware counters of a server: instructions and cycles, where the kernel permits it.
//!
//! The counters are attached to a supervisor before it starts its server, and inherited by every
//! process and thread of the server; counts of ended ones are kept. They are off until enabled,
//! because a counter that is on is saved and restored at every context switch, which costs the
//! server time.

use crate::process::Standby;
use serde::{Deserialize, Serialize};

pub use platform::Counters;

/// Counts of one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Instructions in user mode.
    pub instructions_user: u64,
    /// Instructions in the kernel; `None` where only user mode may be counted.
    pub instructions_kernel: Option<u64>,
    /// Cycles, in both modes, or in user mode where only that may be counted.
    pub cycles: u64,
}

/// Why hardware counters are unavailable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("hardware counters are unavailable: {why}; {remedy}")]
pub struct CountersRefused {
    /// The cause.
    pub why: String,
    /// The remedy.
    pub remedy: String,
}

/// One reading of a counter.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Reading {
    count: u64,
    /// How long the counter was enabled, and how long it actually ran: if there are more counters
    /// than hardware registers, the kernel multiplexes them.
    enabled_ns: u64,
    running_ns: u64,
}

#[cfg(target_os = "linux")]
impl Reading {
    /// The count since an earlier reading, scaled up for multiplexing: perf_event_open(2), "Reading
    /// results". `None` if the counter never ran.
    fn since(self, earlier: Self) -> Option<u64> {
        let count = self.count.saturating_sub(earlier.count);
        let enabled = self.enabled_ns.saturating_sub(earlier.enabled_ns);
        let running = self.running_ns.saturating_sub(earlier.running_ns);
        if enabled == 0 || running >= enabled {
            Some(count)
        } else if running == 0 {
            None
        } else {
            let scaled = u128::from(count) * u128::from(enabled) / u128::from(running);
            u64::try_from(scaled).ok()
        }
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use std::io;

    use perf_event::events::{Event, Hardware};
    use perf_event::{Builder, Counter};

    use super::{Counted, CountersRefused, Reading, Standby};

    /// The counters of one server.
    #[derive(Debug)]
    pub struct Counters {
        user: Counter,
        kernel: Option<Counter>,
        cycles: Counter,
        /// The reading when they were switched on.
        began: Option<Tally>,
    }

    /// One reading of all counters.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct Tally {
        user: Reading,
        kernel: Option<Reading>,
        cycles: Reading,
    }

    impl Counters {
        /// Attaches counters, switched off, to everything that a supervisor will start.
        ///
        /// If the kernel permits counting in user mode only, user mode alone is counted.
        ///
        /// # Errors
        /// Counters are unavailable.
        pub fn open(standby: &Standby) -> Result<Self, CountersRefused> {
            Self::of(standby.supervisor_pid(), Hardware::INSTRUCTIONS, Hardware::CPU_CYCLES)
        }

        /// Attaches to a process that has one thread so far, and to everything that it will start.
        pub(super) fn of<E: Event + Copy>(
            pid: u32,
            instructions: E,
            cycles: E,
        ) -> Result<Self, CountersRefused> {
            let user = open(pid, instructions, true, false).map_err(|error| refused(&error))?;
            let kernel = open(pid, instructions, false, true).ok();
            let both = open(pid, cycles, true, kernel.is_some());
            let cycles = both.map_err(|error| refused(&error))?;
            Ok(Self { user, kernel, cycles, began: None })
        }

        /// Switches the counters on in every present and future process of the server.
        ///
        /// # Errors
        /// The kernel's. The counters are off then.
        pub fn begin(&mut self) -> io::Result<()> {
            let began = self.each(Counter::enable).and_then(|()| self.read());
            if began.is_err() {
                self.switch_off();
            }
            self.began = Some(began?);
            Ok(())
        }

        /// Switches the counters off. Returns what they counted since they were switched on; `None`
        /// if one of them never ran.
        pub fn end(&mut self) -> Option<Counted> {
            let ended = self.read();
            self.switch_off();
            ended.ok()?.since(&self.began.take()?)
        }

        /// If one cannot be switched off, still switches off the others.
        fn switch_off(&mut self) {
            let _ = self.user.disable();
            let _ = self.kernel.as_mut().map(Counter::disable);
            let _ = self.cycles.disable();
        }

        pub(super) fn read(&mut self) -> io::Result<Tally> {
            Ok(Tally {
                user: read(&mut self.user)?,
                kernel: self.kernel.as_mut().map(read).transpose()?,
                cycles: read(&mut self.cycles)?,
            })
        }

        fn each(&mut self, act: impl Fn(&mut Counter) -> io::Result<()>) -> io::Result<()> {
            act(&mut self.user)?;
            self.kernel.as_mut().map_or(Ok(()), &act)?;
            act(&mut self.cycles)
        }
    }

    impl Tally {
        /// The counts since an earlier reading; `None` if a counter never ran.
        pub(super) fn since(&self, earlier: &Self) -> Option<Counted> {
            let kernel = match (self.kernel, earlier.kernel) {
                (Some(now), Some(then)) => Some(now.since(then)?),
                _ => None,
            };
            Some(Counted {
                instructions_user: self.user.since(earlier.user)?,
                instructions_kernel: kernel,
                cycles: self.cycles.since(earlier.cycles)?,
            })
        }
    }

    fn open<E: Event>(pid: u32, event: E, user: bool, kernel: bool) -> io::Result<Counter> {
        let mut builder = Builder::new(event);
        builder.observe_pid(pid.cast_signed()).any_cpu().inherit(true).enabled(false);
        builder.exclude_user(!user).exclude_kernel(!kernel).build()
    }

    fn read(counter: &mut Counter) -> io::Result<Reading> {
        let data = counter.read_full()?;
        let ns = |time: Option<std::time::Duration>| {
            time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        };
        Ok(Reading {
            count: data.count(),
            enabled_ns: ns(data.time_enabled()),
            running_ns: ns(data.time_running()),
        })
    }

    fn refused(error: &io::Error) -> CountersRefused {
        let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
        super::refusal(error, paranoid.and_then(|text| text.trim().parse().ok()))
    }
}

/// Maps the errors of perf_event_open(2) to causes and remedies.
#[cfg(target_os = "linux")]
fn refusal(error: &std::io::Error, paranoid: Option<i32>) -> CountersRefused {
    let (why, remedy) = match (error.raw_os_error(), paranoid) {
        (Some(libc::EACCES | libc::EPERM), Some(level)) if level > 2 => (
            format!("the kernel reserves them for root (perf_event_paranoid is {level})"),
            "allow them with: sudo sysctl kernel.perf_event_paranoid=1",
        ),
        (Some(libc::EACCES | libc::EPERM), _) => (
            "a container or security policy forbids them".to_owned(),
            "run outside of the container, or start it with --cap-add PERFMON and a seccomp profile \
             that permits perf_event_open",
        ),
        (Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV), _) => (
            "this machine has no PMU, like most virtual machines".to_owned(),
            "run on bare metal, or give the virtual machine a PMU (KVM: -cpu host,pmu=on)",
        ),
        (Some(libc::ENOSYS), _) => (
            "this kernel is built without perf events".to_owned(),
            "use a kernel built with CONFIG_PERF_EVENTS",
        ),
        _ => (error.to_string(), "CPU time per request is measured without them"),
    };
    CountersRefused { why, remedy: remedy.to_owned() }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::io;

    use super::{Counted, CountersRefused, Standby};

    /// The counters of one server: unavailable on this system.
    #[derive(Debug)]
    pub enum Counters {}

    impl Counters {
        /// Attaches counters to everything that a supervisor will start.
        ///
        /// # Errors
        /// Always.
        pub fn open(_standby: &Standby) -> Result<Self, CountersRefused> {
            Err(CountersRefused {
                why: "they are supported on Linux only".to_owned(),
                remedy: "CPU time per request is measured without them".to_owned(),
            })
        }

        /// Switches them on.
        ///
        /// # Errors
        /// The kernel's.
        pub fn begin(&mut self) -> io::Result<()> {
            match *self {}
        }

        /// Switches them off, and returns what they counted.
        pub fn end(&mut self) -> Option<Counted> {
            match *self {}
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{BufRead, BufReader, Error, Write};
    use std::process::{Command, Stdio};

    use perf_event::events::Software;

    use super::*;

    /// Says that a test was skipped, past the test harness's capture of output.
    fn skipped(refused: &CountersRefused) {
        let line = format!("skipped: nothing was counted: {refused}\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }

    fn reading(count: u64, enabled_ns: u64, running_ns: u64) -> Reading {
        Reading { count, enabled_ns, running_ns }
    }

    #[test]
    fn a_multiplexed_counter_is_scaled_up() {
        let before = reading(1_000, 100, 100);
        assert_eq!(reading(1_500, 300, 300).since(before), Some(500));
        assert_eq!(reading(1_500, 300, 200).since(before), Some(1_000));
    }

    #[test]
    fn a_counter_that_never_ran_is_unknown_rather_than_zero() {
        assert_eq!(reading(0, 300, 0).since(reading(0, 100, 0)), None);
        // The server did not run at all: zero is right.
        assert_eq!(reading(7, 100, 100).since(reading(7, 100, 100)), Some(0));
    }

    #[test]
    fn each_refusal_names_its_cause_and_a_remedy() {
        let told =
            |errno, paranoid| refusal(&Error::from_raw_os_error(errno), paranoid).to_string();
        assert_eq!(
            told(libc::EACCES, Some(3)),
            "hardware counters are unavailable: the kernel reserves them for root \
             (perf_event_paranoid is 3); allow them with: sudo sysctl kernel.perf_event_paranoid=1"
        );
        assert!(told(libc::EPERM, Some(1)).contains("container"));
        assert!(told(libc::ENOENT, Some(1)).contains("virtual machine"));
        assert!(told(libc::ENOSYS, None).contains("CONFIG_PERF_EVENTS"));
    }

    /// Uses the kernel's software clock event, because not every machine has hardware counters.
    #[test]
    fn ended_children_are_counted_but_only_while_enabled() {
        let script = "
            burn() { i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; }
            echo; read go; (burn); echo; read go; (burn); echo; read go; (burn); echo; read go";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut go = child.stdin.take().unwrap();
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
        told.next();
        let counters = Counters::of(child.id(), Software::TASK_CLOCK, Software::TASK_CLOCK);
        if let Err(refused) = &counters {
            // The script ends when its input is closed.
            skipped(refused);
        }
        if let Ok(mut counters) = counters {
            let mut burn = || {
                go.write_all(b"\n").unwrap();
                told.next();
            };
            let start = counters.read().unwrap();
            burn();
            let off = counters.read().unwrap();
            assert_eq!(off.since(&start).unwrap().cycles, 0);
            counters.begin().unwrap();
            burn();
            let counted = counters.end().unwrap();
            assert!(counted.cycles > 0, "{counted:?}");
            let off = counters.read().unwrap();
            burn();
            assert_eq!(counters.read().unwrap().since(&off).unwrap().cycles, 0);
        }
        drop(go);
        child.wait().unwrap();
    }
}
