//! Describes the machine: its hardware and system, its load, its cores and their division, and its
//! addresses. Also lists reasons why figures measured on this machine may be unreliable.

use std::fmt;
use std::fs;
use std::hash::Hasher;
use std::path::Path;
use std::time::Duration;

use fnv::FnvHasher;
use hotlap_observe::cpus;
use serde::{Deserialize, Serialize};

mod cores;
mod network;
mod priority;

pub use cores::{CpuAllocation, alone, available, split_here};
pub(crate) use network::free_port;
pub use network::{Network, addresses};
pub use priority::Priority;

/// How long to sample the machine's load before a run.
const WATCH: Duration = Duration::from_millis(200);

/// A description of a machine. `None` means unknown.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// The name of the processor.
    pub cpu: String,
    /// The architecture, such as `x86_64` or `aarch64`.
    pub architecture: String,
    /// The number of physical cores.
    pub cores: usize,
    /// The number of hardware threads.
    pub threads: usize,
    /// The number of hardware threads that this process may use.
    pub allowed: usize,
    /// The CPU quota of the container, in cores.
    pub quota: Option<f64>,
    /// The frequency governor.
    pub governor: Option<String>,
    /// Whether frequencies above nominal are permitted.
    pub turbo: Option<bool>,
    /// Whether cores run two hardware threads each (SMT).
    pub smt: Option<bool>,
    /// The amount of memory, in bytes.
    pub memory_bytes: u64,
    /// The kernel and its release.
    pub kernel: String,
    /// The distribution.
    pub os: String,
    /// Whether the machine runs under a hypervisor.
    pub virtual_machine: bool,
    /// The kind of container that hotlap runs in.
    pub container: Option<String>,
    /// Whether the machine runs on battery.
    pub battery: Option<bool>,
    /// The load average of the last minute.
    pub load: Option<f64>,
    /// The current CPU usage, with hotlap idle, in per cent of the machine.
    pub busy: Option<f64>,
    /// The current share of CPU time that the hypervisor takes, in per cent of the machine.
    pub steal: Option<f64>,
    /// The time in which some task waited for a core over the last 10 s, in per cent (PSI).
    pub pressure: Option<f64>,
    /// A hash of hardware, kernel and distribution. Runs are comparable only if their machines
    /// have the same hash.
    pub fingerprint: String,
}

impl Machine {
    /// Returns the kind of virtual machine or container, if any.
    pub fn virtualisation(&self) -> Option<&str> {
        self.container.as_deref().or(self.virtual_machine.then_some("virtual machine"))
    }

    /// Describes this machine. Call this while hotlap is idle, because it samples the machine for
    /// 0.2 s.
    pub fn describe() -> Self {
        let before = CpuTimes::now();
        std::thread::sleep(WATCH);
        let share = before.zip(CpuTimes::now()).map(|(before, after)| after.since(&before));
        let mut host = Self::read(Path::new("/"));
        let name = rustix::system::uname();
        host.architecture = name.machine().to_string_lossy().into_owned();
        let (system, release) = (name.sysname().to_string_lossy(), name.release());
        host.kernel = format!("{system} {}", release.to_string_lossy());
        host.allowed = cpus::allowed().map_or(host.threads, |cpus| cpus.len());
        if host.threads == 0 {
            host.threads = host.allowed;
            host.cores = host.allowed;
        }
        #[cfg(target_vendor = "apple")]
        host.ask_sysctl();
        host.busy = share.map(|share| share.busy);
        host.steal = share.map(|share| share.steal);
        host.fingerprint = host.hash();
        host
    }

    /// Reads files such as `/proc/cpuinfo` and `/etc/os-release` under `root`.
    fn read(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).ok();
        let word = |path: &str| text(path).map(|text| text.trim().to_owned());
        let info = text("proc/cpuinfo").unwrap_or_default();
        let online = word("sys/devices/system/cpu/online").and_then(|list| cpus::parse(&list));
        let online = online.unwrap_or_default();
        let no_turbo = word("sys/devices/system/cpu/intel_pstate/no_turbo");
        let boost = word("sys/devices/system/cpu/cpufreq/boost");
        Self {
            cpu: named(&info, "model name", ':')
                .or_else(|| arm_name(&info))
                .or_else(|| named(&info, "Hardware", ':'))
                .or_else(|| device_tree(root, "model"))
                .unwrap_or_default(),
            cores: cpus::physical_in(root, &online).len(),
            threads: online.len(),
            quota: cores::quota(root),
            governor: word("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            turbo: no_turbo.map(|no| no == "0").or_else(|| boost.map(|yes| yes == "1")),
            smt: word("sys/devices/system/cpu/smt/active").map(|active| active == "1"),
            memory_bytes: text("proc/meminfo").map_or(0, |text| memory_bytes(&text)),
            os: text("etc/os-release")
                .and_then(|text| named(&text, "PRETTY_NAME", '='))
                .unwrap_or_default(),
            virtual_machine: is_virtual(root, &info),
            container: container(root),
            battery: battery(root),
            load: word("proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
            pressure: text("proc/pressure/cpu")
                .and_then(|text| text.split_once("avg10=")?.1.split(' ').next()?.parse().ok()),
            ..Self::default()
        }
    }

    /// Hashes the properties that make machines comparable. The hash is stored, so it is FNV-1a:
    /// the standard library's hash may change between releases.
    fn hash(&self) -> String {
        let alike = format!(
            "{}\n{}\n{} {}\n{}\n{}\n{}\n{}",
            self.cpu,
            self.architecture,
            self.cores,
            self.threads,
            // Firmware reserves a varying part of the last gigabyte.
            self.memory_bytes >> 30,
            self.kernel,
            self.os,
            self.virtual_machine,
        );
        let mut hasher = FnvHasher::default();
        hasher.write(alike.as_bytes());
        format!("{:016x}", hasher.finish())
    }

    #[cfg(target_vendor = "apple")]
    fn ask_sysctl(&mut self) {
        let ask = |name: &str| {
            let output = std::process::Command::new("sysctl").args(["-n", name]).output().ok()?;
            Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
        };
        self.cpu = ask("machdep.cpu.brand_string").unwrap_or_default();
        self.memory_bytes = ask("hw.memsize").and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        self.os = format!("macOS {}", ask("kern.osproductversion").unwrap_or_default());
        let cores = ask("hw.physicalcpu").and_then(|count| count.parse().ok());
        self.cores = cores.unwrap_or(self.cores);
    }
}

fn memory_bytes(text: &str) -> u64 {
    let value = named(text, "MemTotal", ':').unwrap_or_default();
    value.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

fn container(root: &Path) -> Option<String> {
    let named = fs::read_to_string(root.join("run/systemd/container")).ok();
    let named = named.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    let marked = [(".dockerenv", "docker"), ("run/.containerenv", "podman")];
    let marked = marked.iter().find(|(file, _)| root.join(file).exists());
    named.or_else(|| marked.map(|(_, kind)| (*kind).to_owned()))
}

/// Returns a property of the root of the device tree, on machines without firmware tables.
fn device_tree(root: &Path, property: &str) -> Option<String> {
    let path = root.join("sys/firmware/devicetree/base").join(property);
    let text = fs::read(path).ok()?;
    // The property is a list of strings, each terminated by a zero byte.
    let words = text.split(|&byte| byte == 0).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Names of hypervisors in the firmware's tables.
const HYPERVISORS: [&str; 13] = [
    "QEMU",
    "KVM",
    "VMware",
    "VirtualBox",
    "innotek GmbH",
    "Xen",
    "Bochs",
    "Parallels",
    "BHYVE",
    "Virtual Machine",
    "Google Compute Engine",
    "OpenStack",
    "Apple Virtualization",
];

/// Returns whether this is a virtual machine. On x86, a CPU flag says so. Elsewhere, the firmware
/// does.
fn is_virtual(root: &Path, info: &str) -> bool {
    let flags = named(info, "flags", ':').unwrap_or_default();
    let dmi = |name: &str| fs::read_to_string(root.join("sys/class/dmi/id").join(name)).ok();
    let product = dmi("product_name").unwrap_or_default();
    let vendor = dmi("sys_vendor").unwrap_or_default();
    let is_told = |text: &str| HYPERVISORS.iter().any(|name| text.contains(name));
    // Amazon's machines are virtual unless the product is a bare-metal one, such as `c7g.metal`.
    let is_amazons = vendor.trim() == "Amazon EC2" && !product.contains(".metal");
    flags.split(' ').any(|flag| flag == "hypervisor")
        || root.join("sys/hypervisor/type").exists()
        || root.join("sys/firmware/devicetree/base/hypervisor").exists()
        || device_tree(root, "compatible").is_some_and(|text| text.contains("linux,dummy-virt"))
        || is_amazons
        || is_told(&product)
        || is_told(&vendor)
}

/// Returns whether the machine runs on battery. `None` if no mains supply is known.
fn battery(root: &Path) -> Option<bool> {
    let supplies = fs::read_dir(root.join("sys/class/power_supply")).ok()?;
    let mains = supplies.filter_map(|supply| {
        let path = supply.ok()?.path();
        let kind = fs::read_to_string(path.join("type")).ok()?;
        let online = fs::read_to_string(path.join("online")).ok()?;
        (kind.trim() == "Mains").then(|| online.trim() == "1")
    });
    let mains: Vec<bool> = mains.collect();
    (!mains.is_empty()).then(|| !mains.contains(&true))
}

/// The busy, stolen and total time of all cores together, in clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    busy: u64,
    steal: u64,
    all: u64,
}

/// How the cores spent the time between two readings, in per cent of the time of all cores.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuShare {
    /// The time in which the cores worked.
    pub busy: f64,
    /// The time that the hypervisor gave to other machines while there was work (steal).
    pub steal: f64,
}

impl CpuTimes {
    /// Reads the counters. Returns `None` where the system does not provide them.
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the first line of `/proc/stat` (proc_stat(5)).
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        // The fields are user, nice, system, idle, iowait, irq, softirq and steal. Guest time is
        // already part of user.
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *ticks.get(..8)? else {
            return None;
        };
        let busy = user + nice + system + irq + softirq;
        Some(Self { busy, steal, all: busy + idle + iowait + steal })
    }

    /// Returns the shares since an earlier reading. The shares are zero if no tick has passed.
    pub fn since(&self, earlier: &Self) -> CpuShare {
        let all = self.all.saturating_sub(earlier.all).max(1) as f64;
        let percent = |now: u64, then: u64| 100.0 * now.saturating_sub(then) as f64 / all;
        CpuShare {
            busy: percent(self.busy, earlier.busy),
            steal: percent(self.steal, earlier.steal),
        }
    }
}

/// ARM processors: implementer, part and name, from util-linux's `lscpu-arm.c`. For these
/// processors, `/proc/cpuinfo` has only numbers.
const PARTS: [(u32, u32, &str); 32] = [
    (0x41, 0xd03, "Cortex-A53"),
    (0x41, 0xd05, "Cortex-A55"),
    (0x41, 0xd07, "Cortex-A57"),
    (0x41, 0xd08, "Cortex-A72"),
    (0x41, 0xd09, "Cortex-A73"),
    (0x41, 0xd0a, "Cortex-A75"),
    (0x41, 0xd0b, "Cortex-A76"),
    (0x41, 0xd0c, "Neoverse-N1"),
    (0x41, 0xd0d, "Cortex-A77"),
    (0x41, 0xd40, "Neoverse-V1"),
    (0x41, 0xd41, "Cortex-A78"),
    (0x41, 0xd44, "Cortex-X1"),
    (0x41, 0xd46, "Cortex-A510"),
    (0x41, 0xd47, "Cortex-A710"),
    (0x41, 0xd49, "Neoverse-N2"),
    (0x41, 0xd4a, "Neoverse-E1"),
    (0x41, 0xd4f, "Neoverse-V2"),
    (0x41, 0xd84, "Neoverse-V3"),
    (0x41, 0xd8e, "Neoverse-N3"),
    (0x43, 0x0af, "ThunderX2-99xx"),
    (0x46, 0x001, "A64FX"),
    (0x48, 0xd01, "TaiShan-v110"),
    (0x51, 0x001, "Oryon"),
    (0x61, 0x022, "Icestorm-M1"),
    (0x61, 0x023, "Firestorm-M1"),
    (0x61, 0x028, "Icestorm-M1-Max"),
    (0x61, 0x029, "Firestorm-M1-Max"),
    (0x61, 0x032, "Blizzard-M2"),
    (0x61, 0x033, "Avalanche-M2"),
    (0x6d, 0xd49, "Azure-Cobalt-100"),
    (0xc0, 0xac3, "Ampere-1"),
    (0xc0, 0xac4, "Ampere-1a"),
];

/// Returns the names of the kinds of cores in an ARM machine, each once, in order of appearance.
fn arm_name(info: &str) -> Option<String> {
    let mut kinds: Vec<String> = Vec::new();
    for processor in info.split("\n\n") {
        let number = |name: &str| {
            let text = named(processor, name, ':')?;
            u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
        };
        let (Some(implementer), Some(part)) = (number("CPU implementer"), number("CPU part"))
        else {
            continue;
        };
        let known = PARTS.iter().find(|known| (known.0, known.1) == (implementer, part));
        let kind = known.map_or_else(
            || format!("ARM implementer {implementer:#04x}, part {part:#05x}"),
            |(_, _, name)| (*name).to_owned(),
        );
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    (!kinds.is_empty()).then(|| kinds.join(" + "))
}

/// Returns the value after a name and a separator, without quotes.
fn named(text: &str, name: &str, separator: char) -> Option<String> {
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(separator)?;
        (key.trim() == name).then_some(value)
    })?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// The CPU time of other processes that causes a warning, in per cent of the machine. The same
/// limit applies to the pressure. Laps are paired, which cancels out a steady 10%. On two cores, a
/// process that keeps half of one core busy uses 25%.
const BUSY_LIMIT: f64 = 10.0;

/// The steal that causes a warning, in per cent of the machine.
const STEAL_LIMIT: f64 = 1.0;

/// A reason why figures may be unreliable, with a remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// The reason, as a sentence without its full stop.
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
    /// Returns reasons why figures from this machine may be unreliable now, the most serious first.
    pub fn doubts(&self) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        let mut doubt =
            |what: String, remedy: &str| doubts.push(Doubt { what, remedy: remedy.to_owned() });
        if self.allowed == 1 {
            doubt(
                "only one core is available, which server and generator share on this machine"
                    .to_owned(),
                "compare CPU time per request, or use a machine with two cores",
            );
        }
        if let Some(quota) = self.quota.filter(|&quota| quota < self.allowed as f64) {
            doubt(
                format!("the CPU quota is {quota:.1} cores, so throttling may distort results"),
                "lift the quota, and pin a container to whole cores instead (--cpuset-cpus)",
            );
        }
        if let Some(steal) = self.steal.filter(|&steal| steal >= STEAL_LIMIT) {
            doubt(
                format!(
                    "before the run, the hypervisor gave {steal:.0}% of the CPU time to other \
                     machines"
                ),
                "use a machine with dedicated cores, or compare CPU time per request",
            );
        }
        match (self.busy, self.pressure) {
            (Some(busy), _) if busy >= BUSY_LIMIT => doubt(
                format!("before the run, other processes used {busy:.0}% of the CPU"),
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
            let what = "the machine runs on battery and possibly saves power";
            doubt(what.to_owned(), "plug it in");
        }
        if let Some(governor) = self.governor.as_ref().filter(|name| *name != "performance") {
            doubt(
                format!("the frequency governor is {governor}, so the clock speed may vary"),
                "set it with: sudo cpupower frequency-set -g performance",
            );
        }
        doubts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/cpuinfo", "model name\t: Fast CPU\nflags\t\t: fpu hypervisor lm\n");
        write("proc/meminfo", "MemTotal:       2048 kB\n");
        write("proc/loadavg", "0.25 0.10 0.04 1/123 4567\n");
        write("proc/self/cgroup", "1:cpu:/x\n0::/a/b\n");
        write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
        write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
        write("proc/pressure/cpu", "some avg10=1.50 avg60=0.00 avg300=0.00 total=1\n");
        write("etc/os-release", "NAME=x\nPRETTY_NAME=\"Some Linux 1\"\n");
        write("sys/devices/system/cpu/online", "0-3\n");
        for cpu in 0..4 {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            write(&path, &format!("{},{}\n", cpu % 2, cpu % 2 + 2));
        }
        write("sys/devices/system/cpu/smt/active", "1\n");
        write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
        write("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n");
        write("sys/class/power_supply/AC/type", "Mains\n");
        write("sys/class/power_supply/AC/online", "0\n");
        write("run/systemd/container", "lxc\n");
        let expected = Machine {
            cpu: "Fast CPU".to_owned(),
            cores: 2,
            threads: 4,
            quota: Some(1.5),
            governor: Some("powersave".to_owned()),
            turbo: Some(true),
            smt: Some(true),
            memory_bytes: 2048 * 1024,
            os: "Some Linux 1".to_owned(),
            virtual_machine: true,
            container: Some("lxc".to_owned()),
            battery: Some(true),
            load: Some(0.25),
            pressure: Some(1.5),
            ..Machine::default()
        };
        assert_eq!(Machine::read(root.path()), expected);
    }

    /// Returns what the kernel prints about ARM processors.
    fn arm(parts: &[(&str, &str)]) -> String {
        let processor = |(implementer, part): &(&str, &str)| {
            format!(
                "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd evtstrm\n\
                 CPU implementer\t: {implementer}\nCPU architecture: 8\nCPU variant\t: 0x3\n\
                 CPU part\t: {part}\nCPU revision\t: 1\n\n"
            )
        };
        parts.iter().map(processor).collect()
    }

    /// Regression: ARM machines had no processor name, and virtual machines passed for physical
    /// ones.
    #[test]
    fn arm_processors_have_names() {
        let name = |parts: &[(&str, &str)]| arm_name(&arm(parts)).unwrap_or_default();
        // AWS Graviton2 or an Ampere Altra, a Raspberry Pi 5, a phone, and an unknown processor.
        assert_eq!(name(&[("0x41", "0xd0c"), ("0x41", "0xd0c")]), "Neoverse-N1");
        assert_eq!(name(&[("0x41", "0xd0b")]), "Cortex-A76");
        let both = [("0x41", "0xd05"), ("0x41", "0xd05"), ("0x41", "0xd0b")];
        assert_eq!(name(&both), "Cortex-A55 + Cortex-A76");
        assert_eq!(name(&[("0x61", "0x999")]), "ARM implementer 0x61, part 0x999");
        assert_eq!(name(&[]), "");
    }

    #[test]
    fn a_virtual_machine_is_recognised_by_its_firmware() {
        let told = |files: &[(&str, &str)]| {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let host = Machine::read(root.path());
            (host.cpu, host.virtual_machine)
        };
        let graviton = arm(&[("0x41", "0xd4f")]);
        let product = "sys/class/dmi/id/product_name";
        let amazon = ("sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
        let info = ("proc/cpuinfo", graviton.as_str());
        let is = |virtually| ("Neoverse-V2".to_owned(), virtually);
        assert_eq!(told(&[info, amazon, (product, "c8g.large\n")]), is(true));
        assert_eq!(told(&[info, amazon, (product, "c8g.metal-24xl\n")]), is(false));
        assert_eq!(told(&[info, (product, "KVM Virtual Machine\n")]), is(true));
        assert_eq!(told(&[info, (product, "PowerEdge R6525\n")]), is(false));
        let tree = "sys/firmware/devicetree/base";
        let qemu = (format!("{tree}/compatible"), "linux,dummy-virt\0");
        assert_eq!(told(&[info, (&qemu.0, qemu.1)]), is(true));
        let pi = (format!("{tree}/model"), "Raspberry Pi 5 Model B Rev 1.0\0");
        assert_eq!(told(&[(&pi.0, pi.1)]), ("Raspberry Pi 5 Model B Rev 1.0".to_owned(), false));
    }

    #[test]
    fn a_machine_without_readable_files_is_still_described() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Machine::read(root.path()), Machine::default());
    }

    #[test]
    fn the_fingerprint_does_not_depend_on_the_load() {
        let quiet = Machine { cpu: "A".to_owned(), cores: 4, threads: 8, ..Machine::default() };
        let busy =
            Machine { busy: Some(90.0), load: Some(7.0), battery: Some(true), ..quiet.clone() };
        assert_eq!(busy.hash(), quiet.hash());
        assert_ne!(Machine { cores: 5, ..quiet.clone() }.hash(), quiet.hash());
        // Stored runs contain the hash. If the hash changed, each machine would count as a new
        // machine.
        assert_eq!(Machine::default().hash(), "14d5d75fc729a120");
    }

    #[test]
    fn this_machine_has_cores_memory_and_a_kernel() {
        let host = Machine::describe();
        assert!(host.cores >= 1 && host.threads >= host.cores, "{host:?}");
        assert!(!host.kernel.is_empty() && !host.architecture.is_empty());
        let text = serde_json::to_string(&host).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap().fingerprint, host.fingerprint);
    }

    #[test]
    fn shares_cover_the_time_between_two_readings() {
        let parse = |text| CpuTimes::parse(text).unwrap();
        let before = parse("cpu  100 0 50 800 0 0 0 50 7 0\ncpu0 1");
        let after = parse("cpu  150 0 60 830 0 0 0 60 9 0\ncpu0 1");
        assert_eq!(after.since(&before), CpuShare { busy: 60.0, steal: 10.0 });
        assert_eq!(before.since(&before), CpuShare::default());
        assert_eq!(CpuTimes::parse("intr 5"), None);
    }

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
                "only one core is available, which server and generator share on this machine; \
                 compare CPU time per request, or use a machine with two cores",
                "the CPU quota is 0.5 cores, so throttling may distort results; lift the quota, \
                 and pin a container to whole cores instead (--cpuset-cpus)",
                "before the run, the hypervisor gave 4% of the CPU time to other machines; use a \
                 machine with dedicated cores, or compare CPU time per request",
                "before the run, other processes used 31% of the CPU; stop them (see top), use \
                 --high-priority, or compare CPU time per request, which suffers less",
                "the machine runs on battery and possibly saves power; plug it in",
                "the frequency governor is powersave, so the clock speed may vary; set it \
                 with: sudo cpupower frequency-set -g performance",
            ]
        );
    }
}
