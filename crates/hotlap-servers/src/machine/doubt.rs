//! Reasons why a machine's figures may be unreliable.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::host::Machine;

/// CPU time of other processes from which to warn, in per cent of the machine. Laps are paired,
/// which cancels a steady 10 %; one process that keeps half of a core busy on two cores is 25 %.
const BUSY_LIMIT: f64 = 10.0;

/// Steal from which to warn, in per cent.
const STEAL_LIMIT: f64 = 1.0;

/// A reason why figures may be unreliable, with a remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// The reason: a sentence without its full stop.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Doubt {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{}; {}", self.what, self.remedy)
    }
}

impl Machine {
    /// Reasons why figures from this machine may be unreliable now, the most serious first.
    pub fn doubts(&self) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        let mut doubt =
            |what: String, remedy: &str| doubts.push(Doubt { what, remedy: remedy.to_owned() });
        if self.allowed == 1 {
            doubt(
                "server and load generator share the only core".to_owned(),
                "compare CPU time per request, or use a machine with two cores",
            );
        }
        if let Some(quota) = self.quota.filter(|&quota| quota < self.allowed as f64) {
            doubt(
                format!("the CPU quota is {quota:.1} cores; throttling distorts results"),
                "lift it, and pin the container to whole cores instead (--cpuset-cpus)",
            );
        }
        if let Some(steal) = self.steal.filter(|&steal| steal >= STEAL_LIMIT) {
            doubt(
                format!(
                    "before the run, the hypervisor gave {steal:.0} % of the CPU time to other \
                     machines"
                ),
                "use a machine with dedicated cores, or compare CPU time per request",
            );
        }
        match (self.busy, self.pressure) {
            (Some(busy), _) if busy >= BUSY_LIMIT => doubt(
                format!("before the run, other processes used {busy:.0} % of the CPU"),
                "stop them (see top), use --high-priority, or compare CPU time per request, which \
                 suffers less",
            ),
            (_, Some(pressure)) if pressure >= BUSY_LIMIT => doubt(
                format!(
                    "in the 10 s before the run, tasks waited for a core for {pressure:.0}% of the time"
                ),
                "let other programs finish, or compare CPU time per request, which suffers less",
            ),
            _ => {}
        }
        if self.battery == Some(true) {
            doubt("the machine runs on battery and saves power".to_owned(), "plug it in");
        }
        if let Some(governor) = self.governor.as_ref().filter(|name| *name != "performance") {
            doubt(
                format!("the frequency governor is {governor}, so clock speed follows load"),
                "set it with: sudo cpupower frequency-set -g performance",
            );
        }
        doubts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Machine {
        Machine {
            cpu: "A".to_owned(),
            cores: 4,
            threads: 8,
            allowed: 8,
            governor: Some("performance".to_owned()),
            busy: Some(1.0),
            steal: Some(0.0),
            pressure: Some(0.0),
            battery: Some(false),
            ..Machine::default()
        }
    }

    #[test]
    fn a_quiet_machine_gives_no_warning() {
        assert_eq!(quiet().doubts(), []);
    }

    #[test]
    fn each_warning_has_a_remedy() {
        let host = Machine {
            allowed: 1,
            quota: Some(0.5),
            governor: Some("powersave".to_owned()),
            busy: Some(31.0),
            steal: Some(4.2),
            battery: Some(true),
            ..quiet()
        };
        let told: Vec<String> = host.doubts().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "server and load generator share the only core; compare CPU time per request, or \
                 use a machine with two cores",
                "the CPU quota is 0.5 cores; throttling distorts results; lift it, \
                 and pin the container to whole cores instead (--cpuset-cpus)",
                "before the run, the hypervisor gave 4 % of the CPU time to other machines; use a \
                 machine with dedicated cores, or compare CPU time per request",
                "before the run, other processes used 31 % of the CPU; stop them (see top), use \
                 --high-priority, or compare CPU time per request, which suffers less",
                "the machine runs on battery and saves power; plug it in",
                "the frequency governor is powersave, so clock speed follows load; set it \
                 with: sudo cpupower frequency-set -g performance",
            ]
        );
    }
}
