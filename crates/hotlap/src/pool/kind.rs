//! The kind of a machine. Ratios differ between kinds for good reasons (another cache, another
//! kernel), so nodes of different kinds are not a sample of anything, and are never merged.

use std::fmt;

use crate::model::Run;
use crate::text::number::plural;

/// What nodes must have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    cpu: String,
    arch: String,
    /// Logical cores that hotlap may use.
    cores: u32,
    /// How many of them servers and generator have; 0 if they are not pinned.
    divided: (usize, usize),
    /// Name and the first two numbers of the release: `Linux 6.18`.
    kernel: String,
    virtualisation: String,
    hotlap: String,
}

impl Kind {
    /// The kind of the machine that measured a shard.
    pub fn of(run: &Run) -> Self {
        let (host, schedule) = (&run.host, &run.schedule);
        Self {
            cpu: host.cpu.clone(),
            arch: host.arch.clone(),
            cores: host.cores,
            divided: (schedule.server_cpus.len(), schedule.generator_cpus.len()),
            kernel: series(&host.kernel),
            virtualisation: host.virtualisation.clone().unwrap_or_default(),
            hotlap: run.hotlap.clone(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} × {} ({}), {}", self.cores, self.cpu, self.arch, self.kernel)?;
        if !self.virtualisation.is_empty() {
            write!(f, ", {}", self.virtualisation)?;
        }
        let (server, generator) = self.divided;
        if server > 0 {
            let cores = plural(server, "core");
            write!(f, ", {cores} for servers and {generator} for the generator")?;
        }
        write!(f, ", hotlap {}", self.hotlap)
    }
}

/// The first two numbers of a release: `Linux 6.18` of `Linux 6.18.5-cloud`.
fn series(kernel: &str) -> String {
    let mut numbers = kernel.splitn(3, '.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let minor: String = minor.chars().take_while(char::is_ascii_digit).collect();
    if minor.is_empty() { major.to_owned() } else { format!("{major}.{minor}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_known_by_its_first_two_numbers() {
        let of = ["Linux 6.18.5-cloud", "Linux 6.18", "Linux 6.18-rc1", "Linux 6", ""].map(series);
        assert_eq!(of, ["Linux 6.18", "Linux 6.18", "Linux 6.18", "Linux 6", ""]);
    }
}
