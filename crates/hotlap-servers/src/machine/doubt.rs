//! What about a machine makes its figures doubtful.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::host::Machine;

/// CPU time of others, in per cent of the machine, from which it is worth a word. Laps are paired,
/// which cancels a steady tenth; half a core of two is a quarter.
const BUSY_LIMIT: f64 = 10.0;

/// Time taken by the hypervisor, in per cent, from which it is worth a word.
const STEAL_LIMIT: f64 = 1.0;

/// What makes figures doubtful, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// A sentence without its full stop.
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
    /// What makes figures from this machine doubtful just now, most weighty first.
    #[must_use]
    pub fn doubts(&self) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        let mut doubt =
            |what: String, remedy: &str| doubts.push(Doubt { what, remedy: remedy.to_owned() });
        if self.allowed == 1 {
            doubt(
                "server and generator share the only core".to_owned(),
                "compare by CPU time per request, or use a machine with two cores",
            );
        }
        if let Some(quota) = self.quota.filter(|&quota| quota < self.allowed as f64) {
            doubt(
                format!("the container may use {quota:.1} cores' time and is halted beyond it"),
                "lift the CPU limit, and pin the container to whole cores instead (--cpuset-cpus)",
            );
        }
        if let Some(steal) = self.steal.filter(|&steal| steal >= STEAL_LIMIT) {
            doubt(
                format!("the hypervisor gave {steal:.0} % of the CPU time to other machines"),
                "use a machine with cores of its own, or go by CPU time per request",
            );
        }
        match (self.busy, self.pressure) {
            (Some(busy), _) if busy >= BUSY_LIMIT => doubt(
                format!("other programs use {busy:.0} % of the CPU time"),
                "end them (top shows them), or go by CPU time per request",
            ),
            (_, Some(pressure)) if pressure >= BUSY_LIMIT => doubt(
                format!("somebody waited for a core in {pressure:.0} % of the last 10 s"),
                "let other programs finish, or go by CPU time per request",
            ),
            _ => {}
        }
        if self.battery == Some(true) {
            doubt("the machine runs from its battery and saves power".to_owned(), "plug it in");
        }
        if let Some(governor) = self.governor.as_ref().filter(|name| *name != "performance") {
            doubt(
                format!("the frequency governor is {governor}, so that speed follows the load"),
                "sudo cpupower frequency-set -g performance",
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
    fn a_quiet_machine_raises_no_doubt() {
        assert_eq!(quiet().doubts(), []);
    }

    #[test]
    fn each_doubt_comes_with_its_cure() {
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
                "server and generator share the only core; compare by CPU time per request, or use \
                 a machine with two cores",
                "the container may use 0.5 cores' time and is halted beyond it; lift the CPU limit, \
                 and pin the container to whole cores instead (--cpuset-cpus)",
                "the hypervisor gave 4 % of the CPU time to other machines; use a machine with \
                 cores of its own, or go by CPU time per request",
                "other programs use 31 % of the CPU time; end them (top shows them), or go by CPU \
                 time per request",
                "the machine runs from its battery and saves power; plug it in",
                "the frequency governor is powersave, so that speed follows the load; sudo cpupower \
                 frequency-set -g performance",
            ]
        );
    }
}
