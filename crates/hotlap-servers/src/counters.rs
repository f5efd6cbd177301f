//! What the hardware counts of a server: instructions and cycles, where the kernel permits it.
//!
//! The counters are attached to a supervisor before it starts its server, and inherited by every
//! process and thread that comes of it; what ended ones counted is kept. They are off until they
//! are enabled, since a counter that is on is loaded and stored at every context switch, at the
//! server's expense.

use crate::process::Standby;
use serde::{Deserialize, Serialize};

pub use platform::{Counters, Enabled, Tally};

/// What the hardware counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Instructions in user mode.
    pub instructions_user: u64,
    /// Instructions in the kernel; `None` where only user mode may be counted.
    pub instructions_kernel: Option<u64>,
    /// Cycles, in both modes, or in user mode where only that may be counted.
    pub cycles: u64,
}

/// Why there are no counters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no hardware counters: {why}; {remedy}")]
pub struct CountersRefused {
    /// The cause.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

/// A counter as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Reading {
    count: u64,
    /// How long it should have counted, and how long it did: there are fewer counters than
    /// askers, and then the kernel lets them take turns.
    enabled_ns: u64,
    running_ns: u64,
}

impl Reading {
    /// What was counted since an earlier reading, scaled up to the time in which it should have
    /// been: perf_event_open(2), "Reading results". `None` if it never got its turn.
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

    /// Counters of one server.
    #[derive(Debug)]
    pub struct Counters {
        user: Counter,
        kernel: Option<Counter>,
        cycles: Counter,
    }

    /// All counters, as they were read.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Tally {
        user: Reading,
        kernel: Option<Reading>,
        cycles: Reading,
    }

    impl Counters {
        /// Attaches counters, off, to all that a supervisor will start.
        ///
        /// Where the kernel permits counting in user mode only, that is what is counted.
        ///
        /// # Errors
        /// Why there are none, and the remedy.
        pub fn open(standby: &Standby) -> Result<Self, CountersRefused> {
            Self::of(standby.supervisor_pid(), Hardware::INSTRUCTIONS, Hardware::CPU_CYCLES)
        }

        /// Of a process that has one thread so far, and all that comes of it.
        pub(super) fn of<E: Event + Copy>(
            pid: u32,
            instructions: E,
            cycles: E,
        ) -> Result<Self, CountersRefused> {
            let user = open(pid, instructions, true, false).map_err(|error| refused(&error))?;
            let kernel = open(pid, instructions, false, true).ok();
            let both = open(pid, cycles, true, kernel.is_some());
            Ok(Self { user, kernel, cycles: both.map_err(|error| refused(&error))? })
        }

        /// Switches them on in every process of the server, now and to come, until what is returned
        /// is dropped.
        ///
        /// # Errors
        /// The kernel's. They are off then.
        pub fn enable(&mut self) -> io::Result<Enabled<'_>> {
            let enabled = Enabled(self);
            enabled.0.each(Counter::enable)?;
            Ok(enabled)
        }

        /// Reads them.
        ///
        /// # Errors
        /// The kernel's.
        pub fn read(&mut self) -> io::Result<Tally> {
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

    /// Counters that are on. They are switched off when this is dropped, on whatever path.
    #[derive(Debug)]
    pub struct Enabled<'a>(&'a mut Counters);

    impl Enabled<'_> {
        /// Reads them.
        ///
        /// # Errors
        /// The kernel's.
        pub fn read(&mut self) -> io::Result<Tally> {
            self.0.read()
        }
    }

    impl Drop for Enabled<'_> {
        fn drop(&mut self) {
            // One that cannot be switched off does not keep the others on.
            let _ = self.0.user.disable();
            let _ = self.0.kernel.as_mut().map(Counter::disable);
            let _ = self.0.cycles.disable();
        }
    }

    impl Tally {
        /// What was counted since an earlier reading; `None` if a counter never got its turn.
        #[must_use]
        pub fn since(&self, earlier: &Self) -> Option<Counted> {
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

/// Tells the errors of perf_event_open(2) apart by what can be done about them.
#[cfg(target_os = "linux")]
fn refusal(error: &std::io::Error, paranoid: Option<i32>) -> CountersRefused {
    let (why, remedy) = match (error.raw_os_error(), paranoid) {
        (Some(libc::EACCES | libc::EPERM), Some(level)) if level > 2 => (
            format!("the kernel keeps them for the administrator (perf_event_paranoid is {level})"),
            "permit them with: sudo sysctl kernel.perf_event_paranoid=1",
        ),
        (Some(libc::EACCES | libc::EPERM), _) => (
            "a container or a security policy forbids them".to_owned(),
            "run outside of the container, or start it with --cap-add PERFMON and a seccomp profile \
             that permits perf_event_open",
        ),
        (Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV), _) => (
            "the processor shows none here, as in most virtual machines".to_owned(),
            "run on the machine itself, or give the virtual machine a PMU (KVM: -cpu host,pmu=on)",
        ),
        (Some(libc::ENOSYS), _) => (
            "this kernel is built without perf events".to_owned(),
            "use a kernel with CONFIG_PERF_EVENTS",
        ),
        _ => (error.to_string(), "CPU time per request does without them"),
    };
    CountersRefused { why, remedy: remedy.to_owned() }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::io;

    use super::{Counted, CountersRefused, Reading, Standby};

    /// Counters of one server: none here.
    #[derive(Debug)]
    pub enum Counters {}

    /// All counters, as they were read.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Tally(Reading);

    impl Counters {
        /// Attaches counters to all that a supervisor will start.
        ///
        /// # Errors
        /// Always.
        pub fn open(_standby: &Standby) -> Result<Self, CountersRefused> {
            Err(CountersRefused {
                why: "they are read on Linux only".to_owned(),
                remedy: "CPU time per request does without them".to_owned(),
            })
        }

        /// Switches them on.
        ///
        /// # Errors
        /// The kernel's.
        pub fn enable(&mut self) -> io::Result<Enabled<'_>> {
            match *self {}
        }

        /// Reads them.
        ///
        /// # Errors
        /// The kernel's.
        pub fn read(&mut self) -> io::Result<Tally> {
            match *self {}
        }
    }

    /// Counters that are on.
    #[derive(Debug)]
    pub struct Enabled<'a>(&'a mut Counters);

    impl Enabled<'_> {
        /// Reads them.
        ///
        /// # Errors
        /// The kernel's.
        pub fn read(&mut self) -> io::Result<Tally> {
            self.0.read()
        }
    }

    impl Tally {
        /// What was counted since an earlier reading.
        #[must_use]
        pub fn since(&self, earlier: &Self) -> Option<Counted> {
            self.0.since(earlier.0).map(|_| Counted::default())
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{BufRead, BufReader, Error, Write};
    use std::process::{Command, Stdio};

    use perf_event::events::Software;

    use super::*;

    /// A test that is skipped must say so, past the capture of its output.
    fn skipped(refused: &CountersRefused) {
        let line = format!("skipped: nothing was counted: {refused}\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }

    fn reading(count: u64, enabled_ns: u64, running_ns: u64) -> Reading {
        Reading { count, enabled_ns, running_ns }
    }

    #[test]
    fn a_counter_that_took_turns_is_scaled_up() {
        let before = reading(1_000, 100, 100);
        assert_eq!(reading(1_500, 300, 300).since(before), Some(500));
        assert_eq!(reading(1_500, 300, 200).since(before), Some(1_000));
    }

    #[test]
    fn a_counter_that_never_got_its_turn_tells_nothing_rather_than_nought() {
        assert_eq!(reading(0, 300, 0).since(reading(0, 100, 0)), None);
        // The server did not run at all: nought is true.
        assert_eq!(reading(7, 100, 100).since(reading(7, 100, 100)), Some(0));
    }

    #[test]
    fn each_refusal_names_its_cause_and_its_cure() {
        let told =
            |errno, paranoid| refusal(&Error::from_raw_os_error(errno), paranoid).to_string();
        assert_eq!(
            told(libc::EACCES, Some(3)),
            "no hardware counters: the kernel keeps them for the administrator \
             (perf_event_paranoid is 3); permit them with: sudo sysctl kernel.perf_event_paranoid=1"
        );
        assert!(told(libc::EPERM, Some(1)).contains("container"));
        assert!(told(libc::ENOENT, Some(1)).contains("virtual machine"));
        assert!(told(libc::ENOSYS, None).contains("CONFIG_PERF_EVENTS"));
    }

    /// The kernel's own clock in place of the hardware's counters, which not every machine has.
    #[test]
    fn what_a_child_that_ended_used_is_counted_and_only_while_enabled() {
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
            // The script ends with its input.
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
            let mut enabled = counters.enable().unwrap();
            burn();
            let on = enabled.read().unwrap();
            drop(enabled);
            let counted = on.since(&off).unwrap();
            assert!(counted.cycles > 0, "{counted:?}");
            let off = counters.read().unwrap();
            burn();
            assert_eq!(counters.read().unwrap().since(&off).unwrap().cycles, 0);
        }
        drop(go);
        child.wait().unwrap();
    }
}
