//! The cores that are available to server and generator, the order in which they are allotted, and
//! their division.
//!
//! Hardware threads of one physical core stay together. Performance cores come before efficiency
//! cores. On a machine with several NUMA nodes, only one is used unless the server needs more than
//! half of its hardware threads. With server and generator on different nodes, the figures would
//! include the interconnect. A control group's CPU quota limits how many cores can be busy at all.
//! Beyond the quota, processes are throttled for the rest of each period, which would be measured
//! as the server's latency.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hotlap_observe::cpus::{allowed, list, parse, physical_in};
use serde::{Deserialize, Serialize};

/// The cores that may be allotted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Topology {
    /// The physical cores, the fastest first. Each is a list of its hardware threads.
    cores: Vec<Vec<usize>>,
    /// The number of cores of the fastest kind, which come first.
    fast: usize,
    /// A number for each hardware thread, larger for a faster one. Empty if unknown.
    speeds: BTreeMap<usize, u64>,
    /// Whether the CPU quota leaves cores unused.
    limited: bool,
    /// Sentences that say what was left out and why.
    notes: Vec<String>,
}

/// Returns the topology of the hardware threads that this process may use. `asked` is the number of
/// threads that the user wants for the server. `root` is the folder that contains `/sys` and
/// `/proc`.
fn topology(root: &Path, cpus: &[usize], asked: Option<usize>) -> Topology {
    let mut cores = physical_in(root, cpus);
    let mut notes = one_node(root, &mut cores, asked);
    let speeds = speeds(root, cpus);
    let speed = |core: &Vec<usize>| {
        core.first().and_then(|cpu| speeds.get(cpu)).copied().unwrap_or_default()
    };
    // The sort is stable, so cores of equal speed stay in order.
    cores.sort_by_key(|core| Reverse(speed(core)));
    let note = quota(root).and_then(|quota| within(quota, &mut cores));
    let limited = note.is_some();
    notes.extend(note);
    let fastest = cores.iter().map(speed).max();
    let fast = cores.iter().filter(|core| Some(speed(core)) == fastest).count();
    Topology { cores, fast, speeds, limited, notes }
}

impl Topology {
    /// Puts the fastest hardware threads first. Threads of equal speed are in order of number. On
    /// many machines, the first threads of all physical cores have the lowest numbers, so a server
    /// with few threads gets one thread of each core.
    fn sort(&self, cpus: &mut [usize]) {
        cpus.sort_by_key(|cpu| (Reverse(self.speeds.get(cpu)), *cpu));
    }
}

/// Returns how many hardware threads can be busy all the time under a CPU quota in cores. The
/// result is at least one.
fn threads_within(quota: f64) -> usize {
    // The quota is granted per period, usually 100 ms, so a fraction of a core would be used up
    // before each period ends.
    (quota.max(1.0) + 1e-9).floor() as usize
}

/// Drops the hardware threads that the quota cannot keep busy. Returns a note for the user.
fn within(quota: f64, cores: &mut Vec<Vec<usize>>) -> Option<String> {
    let all: usize = cores.iter().map(Vec::len).sum();
    let most = threads_within(quota);
    if quota < 1.0 {
        let note = format!(
            "the CPU quota is {quota:.2} of a core, and the kernel throttles hotlap and servers \
             once it is used up. Requests/s and latency depend on the quota: compare CPU time per \
             request only"
        );
        keep(cores, most);
        return Some(note);
    }
    (most < all).then(|| {
        keep(cores, most);
        format!(
            "the CPU quota is {quota:.1} cores, so only {most} of {all} hardware threads are used"
        )
    })
}

/// Keeps this many hardware threads. If there are enough cores, one thread per core is kept, since
/// two threads of one core slow each other down. Otherwise, whole cores are kept.
fn keep(cores: &mut Vec<Vec<usize>>, most: usize) {
    let singles = cores.len() >= most;
    cores.truncate(most);
    if singles {
        cores.iter_mut().for_each(|core| core.truncate(1));
        return;
    }
    let mut left = most;
    cores.retain_mut(|core| {
        core.truncate(left);
        left -= core.len();
        !core.is_empty()
    });
}

/// Keeps the cores of the largest NUMA node, unless the server needs more than half of its
/// threads. Returns notes for the user.
fn one_node(root: &Path, cores: &mut Vec<Vec<usize>>, asked: Option<usize>) -> Vec<String> {
    let base = root.join("sys/devices/system/node");
    let online = fs::read_to_string(base.join("online")).ok().and_then(|list| parse(&list));
    let nodes: Vec<(usize, Vec<Vec<usize>>)> = online
        .unwrap_or_default()
        .into_iter()
        .filter_map(|node| {
            let list = fs::read_to_string(base.join(format!("node{node}/cpulist"))).ok()?;
            let list = parse(&list)?;
            let own = cores.iter().filter(|core| core.iter().all(|cpu| list.contains(cpu)));
            let own: Vec<Vec<usize>> = own.cloned().collect();
            (!own.is_empty()).then_some((node, own))
        })
        .collect();
    let largest = nodes.iter().max_by_key(|(node, own)| (own.len(), Reverse(*node)));
    let Some((node, own)) = largest.filter(|(_, own)| nodes.len() > 1 && own.len() > 1) else {
        return Vec::new();
    };
    let threads: usize = own.iter().map(Vec::len).sum();
    if let Some(asked) = asked.filter(|asked| *asked > threads / 2) {
        // The cores are in order of node, so the server is on few nodes. A core without a node is
        // left out.
        *cores = nodes.iter().flat_map(|(_, own)| own.iter().cloned()).collect();
        return vec![format!(
            "hotlap uses {} NUMA nodes, because --server-cpus {asked} is more than half of the \
             {threads} hardware threads of one node. Memory on another node is slower",
            nodes.len()
        )];
    }
    let note = format!(
        "hotlap uses only NUMA node {node}, one of {}. --server-cpus {} or more uses other nodes \
         as well",
        nodes.len(),
        threads / 2 + 1
    );
    *cores = own.clone();
    vec![note]
}

/// Returns a number for each hardware thread, larger for a faster one: the capacity on ARM, and 1
/// or 0 on x86 with two kinds of cores. Empty if the kernel names neither.
fn speeds(root: &Path, cpus: &[usize]) -> BTreeMap<usize, u64> {
    // On x86 with two kinds of cores, the kernel has a PMU for each kind.
    let kind = |name: &str| {
        let list = fs::read_to_string(root.join(format!("sys/devices/{name}/cpus"))).ok()?;
        parse(&list)
    };
    if let (Some(fast), Some(_)) = (kind("cpu_core"), kind("cpu_atom")) {
        return cpus.iter().map(|cpu| (*cpu, u64::from(fast.contains(cpu)))).collect();
    }
    // On ARM, the fastest core has a capacity of 1024.
    let capacity = |cpu: &usize| {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity");
        Some((*cpu, fs::read_to_string(root.join(path)).ok()?.trim().parse().ok()?))
    };
    cpus.iter().filter_map(capacity).collect()
}

/// Returns the CPU quota in cores: the smallest quota of this process's control group and all
/// groups above it.
pub(super) fn quota(root: &Path) -> Option<f64> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let base = root.join("sys/fs/cgroup");
    let least = |base: &Path, own: &str, read: &dyn Fn(&Path) -> Option<f64>| {
        // In a container, this may be the host's path, of which only the root is visible.
        let groups = Path::new(own).ancestors().map(|group| base.join(group));
        groups.filter_map(|group| read(&group)).min_by(f64::total_cmp)
    };
    let word = |path: &Path| Some(fs::read_to_string(path).ok()?.trim().to_owned());
    let second = |group: &Path| {
        let text = word(&group.join("cpu.max"))?;
        let (granted, period) = text.split_once(' ')?;
        Some(granted.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    };
    let first = |group: &Path| {
        // A quota of -1 means unlimited.
        let granted = word(&group.join("cpu.cfs_quota_us"))?.parse::<f64>().ok()?;
        let period = word(&group.join("cpu.cfs_period_us"))?.parse::<f64>().ok()?;
        (granted > 0.0).then(|| granted / period)
    };
    let of = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
        match controllers {
            "" => least(&base, path, &second),
            _ if controllers.split(',').any(|name| name == "cpu") => {
                let mounted = [controllers, "cpu"].map(|name| base.join(name));
                let mounted = mounted.into_iter().find(|folder| folder.exists())?;
                least(&mounted, path, &first)
            }
            _ => None,
        }
    };
    own.lines().filter_map(of).min_by(f64::total_cmp)
}

/// The cores of the server and of the generator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuAllocation {
    /// The server's cores, the fastest first. Empty if the server is not pinned.
    pub server: Vec<usize>,
    /// The generator's cores, the fastest first. Empty if the generator is not pinned.
    pub generator: Vec<usize>,
    /// Whether server and generator share cores that should be separate.
    pub shared: bool,
    /// Notes for the user, as sentences.
    pub notes: Vec<String>,
}

impl CpuAllocation {
    /// Returns the cores of server and generator, sorted. Empty if nothing is pinned.
    pub fn all(&self) -> Vec<usize> {
        let mut all = [&self.server[..], &self.generator].concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the cores of the server and of the generator, each in order of number.
    pub fn by_number(&self) -> (Vec<usize>, Vec<usize>) {
        (by_number(&self.server), by_number(&self.generator))
    }

    /// Returns the cores for a database. If server and generator share cores, the database runs on
    /// the server's cores. Otherwise, a generator with two physical cores or more gives up one. If
    /// the generator has fewer, a server with two physical cores or more gives up one, if
    /// `may_take_servers` is set. In all other cases, the database runs on the server's cores. The
    /// result is empty if nothing is pinned.
    pub fn take_for_database(&mut self, may_take_servers: bool) -> Vec<usize> {
        self.take_in(Path::new("/"), may_take_servers)
    }

    /// `root` is the folder that contains `/sys`.
    fn take_in(&mut self, root: &Path, may_take_servers: bool) -> Vec<usize> {
        let sides = match may_take_servers {
            true => vec![&mut self.generator, &mut self.server],
            false => vec![&mut self.generator],
        };
        if !self.shared {
            for side in sides {
                // A database on one hardware thread of a core would slow down the other thread.
                let mut cores = physical_in(root, side);
                if let Some(last) = cores.pop().filter(|_| !cores.is_empty()) {
                    side.retain(|cpu| !last.contains(cpu));
                    return by_number(&last);
                }
            }
        }
        by_number(&self.server)
    }

    /// Returns the cores for one server: the number, for `CPUS`, and the cores to pin it to. These
    /// are the fastest of the servers' cores. `asked` is the number that the server wants, or
    /// `None` for all. A server that wants more cores than there are is pinned to all of them.
    pub fn of_server(&self, asked: Option<usize>) -> (usize, Vec<usize>) {
        let all = if self.server.is_empty() { available() } else { self.server.len() };
        let cpus = asked.unwrap_or(all);
        (cpus, by_number(&self.server[..cpus.min(self.server.len())]))
    }
}

fn by_number(cpus: &[usize]) -> Vec<usize> {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus
}

/// Divides physical cores between server and generator. On a shared core, server and generator
/// would take turns, and the scheduler's choices would be part of the measurement. Two hardware
/// threads of one physical core share execution units, so they stay on one side.
///
/// `asked` is the number of hardware threads for the server. By default, the server gets half of
/// the cores, rounded down, and only cores of the fastest kind. The generator must not be the
/// bottleneck, so it gets the rest. The result depends only on the arguments.
fn split(topology: &Topology, asked: Option<usize>) -> CpuAllocation {
    let cores = &topology.cores[..];
    let all: usize = cores.iter().map(Vec::len).sum();
    let mut notes = topology.notes.clone();
    if asked == Some(0) {
        notes.push("--server-cpus 0 is ignored: the server needs a core".to_owned());
    }
    let asked = asked.filter(|&count| count > 0);
    if all < 2 {
        notes.push(
            "server and generator share the only core, and requests/s depend on both: compare CPU \
             time per request only. CPU time includes the cost of waking the generator, which \
             sleeps between responses"
                .to_owned(),
        );
        // A quota leaves other cores unused, but using them would get both sides throttled.
        let only = if topology.limited { cores.concat() } else { vec![] };
        return CpuAllocation { server: only.clone(), generator: only, shared: true, notes };
    }
    if let Some(count) = asked.filter(|&count| count >= all) {
        notes.push(format!(
            "--server-cpus {count} leaves none of {all} hardware threads for the generator, so \
             nothing is pinned"
        ));
        return CpuAllocation { server: vec![], generator: vec![], shared: true, notes };
    }
    let (mut server, mut generator) = (Vec::new(), Vec::new());
    if let [only] = cores {
        // Two hardware threads of one physical core are not independent, but they need not take
        // turns.
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
    // Give the server whole physical cores until it has its share. The rest of the last core stays
    // idle rather than go to the generator, for example with 3 threads wanted and 2 per core.
    let share = asked.unwrap_or_else(|| {
        let half = (cores.len() / 2).min(topology.fast.max(1));
        cores[..half].iter().map(Vec::len).sum()
    });
    let fast: usize = cores[..topology.fast].iter().map(Vec::len).sum();
    if share > fast {
        notes.push(format!(
            "the server also runs on slow cores: it needs {share} hardware threads, and the fast \
             cores have {fast}"
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
            "hotlap leaves some hardware threads idle, because the server uses their cores: {}",
            list(&idle)
        ));
    }
    topology.sort(&mut server);
    topology.sort(&mut generator);
    CpuAllocation { server, generator, shared, notes }
}

/// Divides the cores that this process may use.
///
/// If the system does not report them, nothing is pinned, and a note says so.
pub fn split_here(asked: Option<usize>) -> CpuAllocation {
    match allowed() {
        Ok(cpus) => split(&topology(Path::new("/"), &cpus, asked), asked),
        Err(error) => CpuAllocation {
            server: vec![],
            generator: vec![],
            shared: true,
            notes: vec![format!("cannot pin server and generator to cores: {error}")],
        },
    }
}

/// Returns the cores of this machine for servers alone, if the generator is on another machine. The
/// result has the `asked` fastest cores, or all cores that this process may use.
pub fn alone(asked: Option<usize>) -> CpuAllocation {
    let (topology, notes) = match allowed() {
        Ok(cpus) => {
            let mut topology = topology(Path::new("/"), &cpus, asked);
            let notes = std::mem::take(&mut topology.notes);
            (topology, notes)
        }
        Err(error) => (Topology::default(), vec![format!("cannot pin servers to cores: {error}")]),
    };
    let mut server = topology.cores.concat();
    let asked = asked.filter(|&count| count > 0);
    server.truncate(asked.unwrap_or(server.len()));
    topology.sort(&mut server);
    CpuAllocation { server, generator: vec![], shared: false, notes }
}

/// Returns how many hardware threads this process can keep busy within its CPU quota. This is the
/// value of `CPUS` if no cores are allotted to servers.
pub fn available() -> usize {
    let most = quota(Path::new("/")).map_or(usize::MAX, threads_within);
    allowed().map_or(1, |cpus| cpus.len()).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates the files of a machine with this many hardware threads, and other files. With `smt`,
    /// core n has the threads n and n + `threads` / 2.
    fn machine(threads: usize, smt: bool, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let half = threads / 2;
        for cpu in 0..threads {
            let siblings = match smt {
                true => format!("{},{}\n", cpu % half, cpu % half + half),
                false => format!("{cpu}\n"),
            };
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            write(&path, &siblings);
        }
        files.iter().for_each(|(path, text)| write(path, text));
        root
    }

    /// Returns the server's cores, the generator's cores, and the number of notes.
    fn split_of(root: &Path, threads: usize, asked: Option<usize>) -> (String, String, usize) {
        let cpus: Vec<usize> = (0..threads).collect();
        let split = super::split(&topology(root, &cpus, asked), asked);
        (list(&split.server), list(&split.generator), split.notes.len())
    }

    fn divided(server: &str, generator: &str, notes: usize) -> (String, String, usize) {
        (server.to_owned(), generator.to_owned(), notes)
    }

    #[test]
    fn siblings_stay_together() {
        let root = machine(8, true, &[]);
        assert_eq!(split_of(root.path(), 8, None), divided("0-1,4-5", "2-3,6-7", 0));
    }

    #[test]
    fn the_server_gets_performance_cores() {
        let hybrid =
            [("sys/devices/cpu_core/cpus", "4-7\n"), ("sys/devices/cpu_atom/cpus", "0-3\n")];
        let root = machine(8, false, &hybrid);
        assert_eq!(split_of(root.path(), 8, None), divided("4-7", "0-3", 0));
        assert_eq!(split_of(root.path(), 8, Some(2)), divided("4-5", "6-7,0-3", 0));
        // There are two fast cores and six slow ones. All cores of the server are of one kind.
        let few = [("sys/devices/cpu_core/cpus", "6-7"), ("sys/devices/cpu_atom/cpus", "0-5")];
        let root = machine(8, false, &few);
        assert_eq!(split_of(root.path(), 8, None), divided("6-7", "0-5", 0));
        let told_of_both = split_of(root.path(), 8, Some(3));
        assert_eq!(told_of_both, divided("6-7,0", "1-5", 1));
        let capacity = "sys/devices/system/cpu/cpu";
        let files: Vec<(String, &str)> = (0..4)
            .map(|n| (format!("{capacity}{n}/cpu_capacity"), if n < 2 { "446" } else { "1024" }))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        let root = machine(4, false, &files);
        assert_eq!(split_of(root.path(), 4, None), divided("2-3", "0-1", 0));
    }

    #[test]
    fn both_stay_on_one_memory_node_where_they_fit() {
        let nodes = [
            ("sys/devices/system/node/online", "0-1\n"),
            ("sys/devices/system/node/node0/cpulist", "0-7\n"),
            ("sys/devices/system/node/node1/cpulist", "8-15\n"),
        ];
        let root = machine(16, false, &nodes);
        assert_eq!(split_of(root.path(), 16, None), divided("0-3", "4-7", 1));
        assert_eq!(split_of(root.path(), 16, Some(4)), divided("0-3", "4-7", 1));
        assert_eq!(split_of(root.path(), 16, Some(8)), divided("0-7", "8-15", 1));
        // The nodes' cores are numbered alternately.
        let turns = [
            ("sys/devices/system/node/online", "0-1\n"),
            ("sys/devices/system/node/node0/cpulist", "0,2,4,6\n"),
            ("sys/devices/system/node/node1/cpulist", "1,3,5,7\n"),
        ];
        let turns = machine(8, false, &turns);
        assert_eq!(split_of(turns.path(), 8, Some(4)), divided("0,2,4,6", "1,3,5,7", 1));
        // Only some of the cores may be used.
        let cores = topology(root.path(), &[6, 7, 8, 9, 10], None).cores;
        assert_eq!(cores, [[8], [9], [10]]);
        let one = [
            ("sys/devices/system/node/online", "0\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
        ];
        let root = machine(4, false, &one);
        assert_eq!(split_of(root.path(), 4, None), divided("0-1", "2-3", 0));
    }

    #[test]
    fn cores_beyond_the_quota_are_not_used() {
        let second = |max: &'static str| {
            machine(
                64,
                false,
                &[("proc/self/cgroup", "0::/a/b\n"), ("sys/fs/cgroup/a/cpu.max", max)],
            )
        };
        let of = |max| split_of(second(max).path(), 64, None);
        assert_eq!(of("max 100000\n"), divided("0-31", "32-63", 0));
        assert_eq!(of("400000 100000\n"), divided("0-1", "2-3", 1));
        assert_eq!(of("200000 100000\n"), divided("0", "1", 1));
        // With a quota below two cores, both run on the same core.
        assert_eq!(of("150000 100000\n"), divided("0", "0", 2));
        assert_eq!(of("50000 100000\n"), divided("0", "0", 2));
        let root = machine(
            8,
            true,
            &[("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cpu.max", "600000 100000\n")],
        );
        assert_eq!(split_of(root.path(), 8, None), divided("0,4", "1-2,5-6", 1));
    }

    #[test]
    fn quotas_of_both_versions_are_read_along_the_path() {
        let first = machine(
            2,
            false,
            &[
                ("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n"),
                ("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n"),
                ("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "250000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(quota(first.path()), Some(2.5));
        let second = machine(
            2,
            false,
            &[
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/b/cpu.max", "300000 100000\n"),
                ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ],
        );
        assert_eq!(quota(second.path()), Some(1.5));
        assert_eq!(quota(machine(2, false, &[]).path()), None);
        assert_eq!((threads_within(0.5), threads_within(2.0), threads_within(2.9)), (1, 2, 2));
    }

    fn alike(cores: &[&[usize]]) -> Topology {
        let cores: Vec<Vec<usize>> = cores.iter().map(|core| core.to_vec()).collect();
        Topology { fast: cores.len(), cores, ..Topology::default() }
    }

    /// Returns the server's cores, the generator's cores, and whether they are shared.
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

    #[test]
    fn a_database_has_a_core_of_its_own_if_there_are_three() {
        let taken = |server: &[usize], generator: &[usize], may_take_servers| {
            let (server, generator) = (server.to_vec(), generator.to_vec());
            let mut cores = CpuAllocation { server, generator, shared: false, notes: vec![] };
            let own = cores.take_in(machine(3, false, &[]).path(), may_take_servers);
            (own, cores.server, cores.generator)
        };
        assert_eq!(taken(&[0], &[1], true), (vec![0], vec![0], vec![1]));
        assert_eq!(taken(&[0], &[1, 2], true), (vec![2], vec![0], vec![1]));
        assert_eq!(taken(&[0, 1], &[2], true), (vec![1], vec![0], vec![2]));
        // The user asked for two cores.
        assert_eq!(taken(&[0, 1], &[2], false), (vec![0, 1], vec![0, 1], vec![2]));
        assert_eq!(taken(&[], &[], true), (vec![], vec![], vec![]));
    }

    /// Regression: the database got one hardware thread, and the generator kept the other thread of
    /// the same physical core.
    #[test]
    fn a_database_has_all_hardware_threads_of_its_core() {
        let taken = |threads: usize, asked: Option<usize>| {
            let (root, cpus) = (machine(threads, true, &[]), (0..threads).collect::<Vec<_>>());
            let mut cores = split(&topology(root.path(), &cpus, asked), asked);
            let own = cores.take_in(root.path(), asked.is_none());
            (list(&own), list(&cores.server), list(&cores.generator))
        };
        let of = |own: &str, server: &str, generator: &str| {
            (own.to_owned(), server.to_owned(), generator.to_owned())
        };
        assert_eq!(taken(8, None), of("3,7", "0-1,4-5", "2,6"));
        // The generator has only one physical core.
        assert_eq!(taken(8, Some(6)), of("0-2,4-6", "0-2,4-6", "3,7"));
        assert_eq!(taken(4, None), of("0,2", "0,2", "1,3"));
        let mut cores = split(&alike(&[&[0, 4], &[1, 5], &[2, 6], &[3, 7]]), Some(6));
        let own = cores.take_in(machine(8, true, &[]).path(), true);
        assert_eq!((list(&own), list(&cores.server)), ("2,6".to_owned(), "0-1,4-5".to_owned()));
    }

    /// Regression: a server with fewer cores than the others got the cores with the lowest numbers,
    /// which were slow ones.
    #[test]
    fn a_server_with_few_cores_gets_fast_ones() {
        let capacity = |n: usize| {
            let path = format!("sys/devices/system/cpu/cpu{n}/cpu_capacity");
            (path, if n < 4 { "446" } else { "1024" })
        };
        let files: Vec<(String, &str)> = (0..8).map(capacity).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        let (root, cpus) = (machine(8, false, &files), (0..8).collect::<Vec<_>>());
        let split = split(&topology(root.path(), &cpus, Some(6)), Some(6));
        assert_eq!(split.of_server(Some(2)), (2, vec![4, 5]));
        assert_eq!(split.of_server(Some(5)), (5, vec![0, 4, 5, 6, 7]));
        assert_eq!(split.by_number(), (vec![0, 1, 4, 5, 6, 7], vec![2, 3]));
    }
}
