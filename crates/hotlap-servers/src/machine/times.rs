//! How busy the machine's cores are.

use std::fs;

use serde::{Deserialize, Serialize};

/// Busy, stolen and total time of all cores together, in clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    busy: u64,
    steal: u64,
    all: u64,
}

/// How the cores spent the time between two readings, in per cent of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuShare {
    /// Working.
    pub busy: f64,
    /// Given to other machines by the hypervisor while there was work (steal).
    pub steal: f64,
}

impl CpuTimes {
    /// Reads the counters; `None` where the system does not provide them.
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the first line of `/proc/stat`: proc_stat(5).
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest time is already part of user.
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *ticks.get(..8)? else {
            return None;
        };
        let busy = user + nice + system + irq + softirq;
        Some(Self { busy, steal, all: busy + idle + iowait + steal })
    }

    /// The shares since an earlier reading; zero if no tick has passed.
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
    fn shares_cover_the_time_between_two_readings() {
        let parse = |text| CpuTimes::parse(text).unwrap();
        let before = parse("cpu  100 0 50 800 0 0 0 50 7 0\ncpu0 1");
        let after = parse("cpu  150 0 60 830 0 0 0 60 9 0\ncpu0 1");
        assert_eq!(after.since(&before), CpuShare { busy: 60.0, steal: 10.0 });
        assert_eq!(before.since(&before), CpuShare::default());
        assert_eq!(CpuTimes::parse("intr 5"), None);
    }
}
