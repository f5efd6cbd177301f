//! Describes the machine and its present state.

use std::fs;
use std::hash::Hasher;
use std::path::Path;
use std::time::Duration;

use fnv::FnvHasher;
use serde::{Deserialize, Serialize};

use super::arm;
use super::field::named;
use super::times::CpuTimes;
use hotlap_observe::cpus;

use crate::topology;

/// How long to sample the machine's load before a run.
const WATCH: Duration = Duration::from_millis(200);

/// A machine. `None` means unknown.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// Physical cores.
    pub cores: usize,
    /// Hardware threads.
    pub threads: usize,
    /// Hardware threads that this process may use.
    pub allowed: usize,
    /// The container's CPU quota, in cores.
    pub quota: Option<f64>,
    /// The frequency governor.
    pub governor: Option<String>,
    /// Whether frequencies above nominal are permitted.
    pub turbo: Option<bool>,
    /// Whether cores run two hardware threads each (SMT).
    pub smt: Option<bool>,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// The kernel and its release.
    pub kernel: String,
    /// The distribution.
    pub os: String,
    /// Runs under a hypervisor.
    pub virtual_machine: bool,
    /// The kind of container that this runs in.
    pub container: Option<String>,
    /// Runs on battery.
    pub battery: Option<bool>,
    /// Load average of the last minute.
    pub load: Option<f64>,
    /// CPU usage just now, with hotlap idle, in per cent of the machine.
    pub busy: Option<f64>,
    /// CPU time taken by the hypervisor just now, in per cent of the machine.
    pub steal: Option<f64>,
    /// Time in which some task waited for a core over the last 10 s, in per cent (PSI).
    pub pressure: Option<f64>,
    /// A hash of hardware, kernel and distribution. Machines with the same hash can be expected to
    /// give the same results.
    pub fingerprint: String,
}

impl Machine {
    /// Describes this machine. Samples it for 0.2 s: call this while hotlap is idle.
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

    /// Reads the files under `/proc` and `/sys`; `root` is their parent folder.
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
                .or_else(|| arm::name(&info))
                .or_else(|| named(&info, "Hardware", ':'))
                .or_else(|| device_tree(root, "model"))
                .unwrap_or_default(),
            cores: cpus::physical_in(root, &online).len(),
            threads: online.len(),
            quota: topology::quota(root),
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

    /// FNV-1a over the properties that make machines comparable. The hash is stored, and the
    /// standard library's may change between releases.
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

/// A property of the root of the device tree, on machines without firmware tables.
fn device_tree(root: &Path, property: &str) -> Option<String> {
    let path = root.join("sys/firmware/devicetree/base").join(property);
    let text = fs::read(path).ok()?;
    // A list of strings, each terminated by a zero byte.
    let words = text.split(|&byte| byte == 0).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Names that hypervisors use in the firmware's tables: a subset of what systemd-detect-virt knows.
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

/// Whether this is a virtual machine: x86 has a CPU flag for it, elsewhere the firmware tells.
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

/// Whether the machine runs on battery; `None` without a known power supply.
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

    /// What the kernel prints about ARM processors.
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

    /// Regression: ARM machines had no processor name, and virtual ones passed for physical ones.
    #[test]
    fn arm_processors_have_names() {
        let name = |parts: &[(&str, &str)]| arm::name(&arm(parts)).unwrap_or_default();
        // AWS Graviton2 and an Ampere Altra; a Raspberry Pi 5; a phone; an unknown one.
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
        // The hash is part of stored runs: a different one would make each machine a new one.
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
}
