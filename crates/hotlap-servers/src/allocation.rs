//! Divides cores between the server and the load generator.
//!
//! On a shared core they would take turns, and the scheduler's choices would be part of the
//! measurement. Two hardware threads of one physical core share execution units, so they stay on
//! one side.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::topology::{self, Topology};
use hotlap_observe::cpus::{allowed, list};

/// Which cores the server and the generator get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuAllocation {
    /// The server's cores; empty: not pinned.
    pub server: Vec<usize>,
    /// The generator's cores; empty: not pinned.
    pub generator: Vec<usize>,
    /// Whether they share cores that should be separate.
    pub shared: bool,
    /// What the user should know: sentences.
    pub notes: Vec<String>,
}

impl CpuAllocation {
    /// The cores of server and generator, sorted. Empty if nothing is pinned.
    pub fn all(&self) -> Vec<usize> {
        let mut all = [&self.server[..], &self.generator].concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The cores for one server that wants `asked` of them, or all: the number, for `CPUS`, and the
    /// cores to pin it to. A server that wants more than there are is pinned to all.
    pub fn of_server(&self, asked: Option<usize>) -> (usize, &[usize]) {
        let all = if self.server.is_empty() { available() } else { self.server.len() };
        let cpus = asked.unwrap_or(all);
        (cpus, &self.server[..cpus.min(self.server.len())])
    }
}

/// Divides physical cores between server and generator.
///
/// `asked` is the number of hardware threads for the server. By default it gets half of the cores,
/// rounded down and all of the fastest kind; the generator, which must not be the limit, gets the
/// rest. The result depends on the arguments alone.
pub fn split(topology: &Topology, asked: Option<usize>) -> CpuAllocation {
    let cores = &topology.cores[..];
    let all: usize = cores.iter().map(Vec::len).sum();
    let mut notes = topology.notes.clone();
    if asked == Some(0) {
        notes.push("--server-cpus 0 is ignored: the server needs a core".to_owned());
    }
    let asked = asked.filter(|&count| count > 0);
    if all < 2 {
        notes.push(
            "server and generator share the only core: compare CPU time per request only, since \
             requests/s depend on both. The generator sleeps between responses, so CPU time \
             contains the cost of waking it"
                .to_owned(),
        );
        // A quota leaves other cores, but using them would get both throttled.
        let only = if topology.limited { cores.concat() } else { vec![] };
        return CpuAllocation { server: only.clone(), generator: only, shared: true, notes };
    }
    if let Some(count) = asked.filter(|&count| count >= all) {
        notes.push(format!(
            "{count} of {all} cores for the server leave none for the generator; nothing is pinned"
        ));
        return CpuAllocation { server: vec![], generator: vec![], shared: true, notes };
    }
    let (mut server, mut generator) = (Vec::new(), Vec::new());
    if let [only] = cores {
        // Two hardware threads of one physical core: not independent, but they need not take turns.
        let count = asked.unwrap_or(only.len() / 2);
        server.extend(&only[..count]);
        generator.extend(&only[count..]);
        notes.push(
            "server and generator run on hardware threads of one physical core, which slow each \
             other down"
                .to_owned(),
        );
        return CpuAllocation { server, generator, shared: true, notes };
    }
    // Whole physical cores until the server has its share. The rest of the last one (3 threads
    // asked for, 2 per core) stays idle rather than go to the generator.
    let share = asked.unwrap_or_else(|| {
        let half = (cores.len() / 2).min(topology.fast.max(1));
        cores[..half].iter().map(Vec::len).sum()
    });
    let fast: usize = cores[..topology.fast].iter().map(Vec::len).sum();
    if share > fast {
        notes.push(format!(
            "the server runs on fast and slow cores, because only {fast} hardware threads are fast"
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
        notes.push(format!(
            "left idle, because the server uses the other half of the core: {}",
            list(&idle)
        ));
    }
    server.sort_unstable();
    generator.sort_unstable();
    CpuAllocation { server, generator, shared, notes }
}

/// Divides the cores that this process may use.
///
/// If the system does not report them, nothing is pinned, and a note says so.
pub fn split_here(asked: Option<usize>) -> CpuAllocation {
    match allowed() {
        Ok(cpus) => split(&topology::read(Path::new("/"), &cpus, asked), asked),
        Err(error) => CpuAllocation {
            server: vec![],
            generator: vec![],
            shared: true,
            notes: vec![format!("cannot pin server and generator to cores: {error}")],
        },
    }
}

/// The cores of this machine for servers alone, if the generator is on another: `asked` of them,
/// whole physical cores of the fastest kind first, or all that this process may use.
pub fn alone(asked: Option<usize>) -> CpuAllocation {
    let (mut server, notes) = match allowed() {
        Ok(cpus) => {
            let topology = topology::read(Path::new("/"), &cpus, asked);
            (topology.cores.concat(), topology.notes)
        }
        Err(error) => (vec![], vec![format!("cannot pin servers to cores: {error}")]),
    };
    let asked = asked.filter(|&count| count > 0);
    server.truncate(asked.unwrap_or(server.len()));
    server.sort_unstable();
    CpuAllocation { server, generator: vec![], shared: false, notes }
}

/// How many hardware threads this process can keep busy within its CPU quota. For `CPUS` of a
/// server that is not pinned.
pub fn available() -> usize {
    let most = topology::quota(Path::new("/")).map_or(usize::MAX, topology::threads_within);
    allowed().map_or(1, |cpus| cpus.len()).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotlap_observe::cpus::list;

    fn alike(cores: &[&[usize]]) -> Topology {
        let cores: Vec<Vec<usize>> = cores.iter().map(|core| core.to_vec()).collect();
        Topology { fast: cores.len(), cores, limited: false, notes: vec![] }
    }

    /// The server's cores, the generator's, and whether they are shared.
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
    fn one_core_is_shared_with_a_note() {
        assert_eq!(told(&[&[0]], None), close("", ""));
        assert_eq!(split(&alike(&[&[0]]), None).notes.len(), 1);
        assert_eq!(told(&[], Some(3)), close("", ""));
    }

    #[test]
    fn two_cores_are_split_evenly() {
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
        // The other half of the third core stays idle.
        assert_eq!(told(cores, Some(5)), apart("0-2,4-5", "3,7"));
    }

    #[test]
    fn sharing_a_physical_core_is_noted() {
        assert_eq!(told(&[&[0, 1]], None), close("0", "1"));
        assert_eq!(told(&[&[0, 2], &[1, 3]], Some(3)), close("0-2", "3"));
    }

    #[test]
    fn nothing_is_pinned_if_the_server_asks_for_all_cores() {
        assert_eq!(told(&[&[0], &[1]], Some(2)), close("", ""));
        assert_eq!(told(&[&[0], &[1]], Some(0)), apart("0", "1"));
    }
}
