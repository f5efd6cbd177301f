//! Hardware counters of a server, which count instructions and cycles if the kernel permits it.
//!
//! The counters are attached to a supervisor before it starts its server, and every process and
//! thread of the server inherits them. The counts of ended processes and threads are kept. The
//! counters are off until they are enabled. A counter that is on is saved and restored at every
//! context switch, which costs the server time.

use std::io;

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};

use crate::observation::{ObserveError, refusal};
use crate::usage::HardwareCounts;

const WHAT: &str = "instructions and cycles";

/// The hardware counters of one server.
#[derive(Debug)]
pub struct Counters {
    user: Counter,
    kernel: Option<Counter>,
    cycles: Counter,
    /// The reading when the counters were switched on.
    began: Option<Tally>,
}

/// One reading of all counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tally {
    user: Reading,
    kernel: Option<Reading>,
    cycles: Reading,
}

/// One reading of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Reading {
    count: u64,
    /// The time for which the counter was enabled, and the time for which it actually ran. If there
    /// are more counters than hardware registers, the kernel multiplexes the counters.
    enabled_ns: u64,
    running_ns: u64,
}

impl Reading {
    /// Returns the count since an earlier reading, scaled up for multiplexing (perf_event_open(2),
    /// "Reading results"). `None` if the counter never ran.
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

impl Counters {
    /// Attaches counters, switched off, to all processes that a supervisor will start.
    ///
    /// If the kernel permits counting only in user mode, only user mode is counted.
    ///
    /// # Errors
    /// Counters are unavailable.
    pub fn open(supervisor: u32) -> Result<Self, ObserveError> {
        Self::of(supervisor, Hardware::INSTRUCTIONS, Hardware::CPU_CYCLES)
    }

    /// Attaches counters to a process that has one thread so far, and to everything that the
    /// process will start.
    fn of<E: Event + Copy>(pid: u32, instructions: E, cycles: E) -> Result<Self, ObserveError> {
        let user = open(pid, instructions, true, false).map_err(|error| refused(&error))?;
        let kernel = open(pid, instructions, false, true).ok();
        let both = open(pid, cycles, true, kernel.is_some());
        let cycles = both.map_err(|error| refused(&error))?;
        Ok(Self { user, kernel, cycles, began: None })
    }

    /// Switches the counters on in every present and future process of the server.
    ///
    /// # Errors
    /// The kernel cannot enable or read a counter. The counters are off then.
    pub fn begin(&mut self) -> io::Result<()> {
        let began = self.each(Counter::enable).and_then(|()| self.read());
        if began.is_err() {
            self.switch_off();
        }
        self.began = Some(began?);
        Ok(())
    }

    /// Switches the counters off. Returns the counts since the counters were switched on. `None` if
    /// a counter cannot be read, or never ran.
    pub fn end(&mut self) -> Option<HardwareCounts> {
        let ended = self.read();
        self.switch_off();
        ended.ok()?.since(&self.began.take()?)
    }

    /// Switches the counters off. If one counter cannot be switched off, the others are still
    /// switched off.
    fn switch_off(&mut self) {
        let _ = self.user.disable();
        let _ = self.kernel.as_mut().map(Counter::disable);
        let _ = self.cycles.disable();
    }

    fn read(&mut self) -> io::Result<Tally> {
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
    /// Returns the counts since an earlier reading. `None` if a counter never ran.
    fn since(&self, earlier: &Self) -> Option<HardwareCounts> {
        let kernel = match (self.kernel, earlier.kernel) {
            (Some(now), Some(then)) => Some(now.since(then)?),
            _ => None,
        };
        Some(HardwareCounts {
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

/// Explains why the counters cannot be opened.
fn refused(error: &io::Error) -> ObserveError {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => ObserveError {
            what: WHAT.into(),
            why: "this machine has no PMU that the kernel can use, like most virtual machines"
                .to_owned(),
            remedy: "run on bare metal, or give the virtual machine a PMU (KVM: -cpu host,pmu=on)"
                .to_owned(),
        },
        _ => refusal(WHAT, error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    use perf_event::events::Software;

    use super::*;

    /// Prints that a test was skipped. The line bypasses the capture of output by the test harness.
    fn skipped(refused: &ObserveError) {
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
        // The server did not run at all, so zero is right.
        assert_eq!(reading(7, 100, 100).since(reading(7, 100, 100)), Some(0));
    }

    #[test]
    fn a_machine_without_a_pmu_is_told_of() {
        let told = refused(&io::Error::from_raw_os_error(libc::ENOENT)).to_string();
        assert!(
            told.starts_with("instructions and cycles cannot be observed: this machine has no PMU")
        );
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
