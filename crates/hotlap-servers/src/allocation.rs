//! Which cores the server gets and which the load generator.
//!
//! Both on the same core would take turns, and the scheduler's choice of who is next would be part
//! of what is measured. Two hardware threads of one physical core share its units, so they stay on
//! one side.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cpus::{allowed, list};
use crate::topology::{self, Topology};

/// Who runs where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuAllocation {
    /// The server's cores; none: not pinned.
    pub server: Vec<usize>,
    /// The generator's cores; none: not pinned.
    pub generator: Vec<usize>,
    /// Whether both share cores that should be apart.
    pub shared: bool,
    /// What should be told: sentences.
    pub notes: Vec<String>,
}

impl CpuAllocation {
    /// The cores of one server, which uses `asked` of them or all: how many, for `CPUS`, and those
    /// that it is pinned to. One that is to use more than there are is pinned to all.
    #[must_use]
    pub fn of_server(&self, asked: Option<usize>) -> (usize, &[usize]) {
        let all = if self.server.is_empty() { available() } else { self.server.len() };
        let cpus = asked.unwrap_or(all);
        (cpus, &self.server[..cpus.min(self.server.len())])
    }
}

/// Splits physical cores between server and generator.
///
/// `asked` is how many hardware threads the server should get. Otherwise it gets half of the cores,
/// rounded down and all of the fastest kind, and the generator, which must not be the limit, the
/// rest. The result depends on the arguments alone.
#[must_use]
pub fn split(topology: &Topology, asked: Option<usize>) -> CpuAllocation {
    let cores = &topology.cores[..];
    let all: usize = cores.iter().map(Vec::len).sum();
    let mut notes = topology.notes.clone();
    if asked == Some(0) {
        notes.push("a server needs a core; the default is taken".to_owned());
    }
    let asked = asked.filter(|&count| count > 0);
    if all < 2 {
        notes.push(
            "there is one core, which server and generator share: requests/s are what both reach \
             together, and only CPU time per request is the server's own"
                .to_owned(),
        );
        // Under a quota there are others, which both would be halted for using.
        let only = if topology.limited { cores.concat() } else { vec![] };
        return CpuAllocation { server: only.clone(), generator: only, shared: true, notes };
    }
    if let Some(count) = asked.filter(|&count| count >= all) {
        notes.push(format!(
            "{count} cores for the server leave none of {all} for the generator; nothing is pinned"
        ));
        return CpuAllocation { server: vec![], generator: vec![], shared: true, notes };
    }
    let (mut server, mut generator) = (Vec::new(), Vec::new());
    if let [only] = cores {
        // Two hardware threads of one physical core: not apart, but not taking turns either.
        let count = asked.unwrap_or(only.len() / 2);
        server.extend(&only[..count]);
        generator.extend(&only[count..]);
        notes.push(
            "server and generator run on hardware threads of one physical core and slow each other \
             down"
                .to_owned(),
        );
        return CpuAllocation { server, generator, shared: true, notes };
    }
    // Whole physical cores until the server has its share. What is left of the last one (asked for
    // 3, cores of 2) stays idle rather than serve the other side.
    let share = asked.unwrap_or_else(|| {
        let half = (cores.len() / 2).min(topology.fast.max(1));
        cores[..half].iter().map(Vec::len).sum()
    });
    let fast: usize = cores[..topology.fast].iter().map(Vec::len).sum();
    if share > fast {
        notes.push(format!(
            "the server runs on fast and slow cores, for only {fast} hardware threads are of the \
             fast kind"
        ));
    }
    let (mut idle, mut shared) = (Vec::new(), false);
    for (place, core) in cores.iter().enumerate() {
        let missing = share - server.len();
        let last = place + 1 == cores.len();
        if missing == 0 {
            generator.extend(core);
        } else if last && generator.is_empty() {
            server.extend(&core[..missing.min(core.len() - 1)]);
            generator.extend(&core[missing.min(core.len() - 1)..]);
            shared = true;
            notes.push(
                "the server's last hardware thread shares a physical core with the generator"
                    .to_owned(),
            );
        } else {
            let taken = missing.min(core.len());
            server.extend(&core[..taken]);
            idle.extend(&core[taken..]);
        }
    }
    if !idle.is_empty() {
        notes.push(format!("left idle, for the server has its other half: core {}", list(&idle)));
    }
    server.sort_unstable();
    generator.sort_unstable();
    CpuAllocation { server, generator, shared, notes }
}

/// Splits the cores that this process may use.
///
/// Where the system does not say which those are, nothing is pinned, and the notes say so.
#[must_use]
pub fn split_here(asked: Option<usize>) -> CpuAllocation {
    match allowed() {
        Ok(cpus) => split(&topology::read(Path::new("/"), &cpus, asked), asked),
        Err(error) => CpuAllocation {
            server: vec![],
            generator: vec![],
            shared: true,
            notes: vec![format!("server and generator are not pinned to cores: {error}")],
        },
    }
}

/// How many hardware threads this process can keep busy: those that it may use, as far as its quota
/// of CPU time goes. For `CPUS` of a server that is not pinned.
#[must_use]
pub fn available() -> usize {
    let most = topology::quota(Path::new("/")).map_or(usize::MAX, topology::threads_within);
    allowed().map_or(1, |cpus| cpus.len()).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::list;

    fn alike(cores: &[&[usize]]) -> Topology {
        let cores: Vec<Vec<usize>> = cores.iter().map(|core| core.to_vec()).collect();
        Topology { fast: cores.len(), cores, limited: false, notes: vec![] }
    }

    /// Server's cores, generator's cores, whether shared.
    fn told(cores: &[&[usize]], asked: Option<usize>) -> (String, String, bool) {
        let split = split(&alike(cores), asked);
        (list(&split.server), list(&split.generator), split.shared)
    }

    fn apart(server: &str, generator: &str) -> (String, String, bool) {
        (server.to_owned(), generator.to_owned(), false)
    }

    fn close(server: &str, generator: &str) -> (String, String, bool) {
        (server.to_owned(), generator.to_owned(), true)
    }

    #[test]
    fn one_core_is_shared_and_that_is_said() {
        assert_eq!(told(&[&[0]], None), close("", ""));
        assert_eq!(split(&alike(&[&[0]]), None).notes.len(), 1);
        assert_eq!(told(&[], Some(3)), close("", ""));
    }

    #[test]
    fn two_cores_are_one_each() {
        assert_eq!(told(&[&[0], &[1]], None), apart("0", "1"));
        assert_eq!(told(&[&[4], &[7]], Some(1)), apart("4", "7"));
    }

    #[test]
    fn many_cores_are_halved_and_the_generator_gets_the_odd_one() {
        assert_eq!(told(&[&[0], &[1], &[2], &[3]], None), apart("0-1", "2-3"));
        assert_eq!(told(&[&[0], &[1], &[2]], None), apart("0", "1-2"));
    }

    #[test]
    fn hardware_threads_of_one_core_stay_on_one_side() {
        let cores: &[&[usize]] = &[&[0, 4], &[1, 5], &[2, 6], &[3, 7]];
        assert_eq!(told(cores, None), apart("0-1,4-5", "2-3,6-7"));
        assert_eq!(told(cores, Some(2)), apart("0,4", "1-3,5-7"));
        // The other half of the third core is nobody's.
        assert_eq!(told(cores, Some(5)), apart("0-2,4-5", "3,7"));
    }

    #[test]
    fn sides_that_must_share_a_physical_core_are_told_so() {
        assert_eq!(told(&[&[0, 1]], None), close("0", "1"));
        assert_eq!(told(&[&[0, 2], &[1, 3]], Some(3)), close("0-2", "3"));
    }

    #[test]
    fn more_cores_than_there_are_pin_nothing() {
        assert_eq!(told(&[&[0], &[1]], Some(2)), close("", ""));
        assert_eq!(told(&[&[0], &[1]], Some(0)), apart("0", "1"));
    }
}
