//! How long the machine's cores were busy.

use std::fs;

use serde::{Deserialize, Serialize};

/// How long all cores together were busy, stolen and either, in clock ticks since the machine was
/// started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    busy: u64,
    steal: u64,
    all: u64,
}

/// What cores did between two moments, in per cent of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuShare {
    /// They worked.
    pub busy: f64,
    /// The hypervisor gave them to others while there was work.
    pub steal: f64,
}

impl CpuTimes {
    /// So far; `None` where the system does not say.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the first line of `/proc/stat`: proc_stat(5).
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guests' time is in user's already.
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *ticks.get(..8)? else {
            return None;
        };
        let busy = user + nice + system + irq + softirq;
        Some(Self { busy, steal, all: busy + idle + iowait + steal })
    }

    /// What the cores did since; nothing, if no tick passed.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> CpuShare {
        let all = self.all.saturating_sub(earlier.all).max(1) as f64;
        let percent = |now: u64, then: u64| 100.0 * now.saturating_sub(then) as f64 / all;
        CpuShare {
            busy: percent(self.busy, earlier.busy),
            steal: percent(self.steal, earlier.steal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_passed_between_two_moments() {
        let parse = |text| CpuTimes::parse(text).unwrap();
        let before = parse("cpu  100 0 50 800 0 0 0 50 7 0\ncpu0 1");
        let after = parse("cpu  150 0 60 830 0 0 0 60 9 0\ncpu0 1");
        assert_eq!(after.since(&before), CpuShare { busy: 60.0, steal: 10.0 });
        assert_eq!(before.since(&before), CpuShare::default());
        assert_eq!(CpuTimes::parse("intr 5"), None);
    }
}
