//! The machine that a run was measured on.

use serde::{Deserialize, Serialize};

/// The fact that names the machine in a pool.
pub const NODE: &str = "node";

/// The machine of the servers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Host {
    /// Operating system and release: `Debian GNU/Linux 12`.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// Architecture: `x86_64`.
    pub arch: String,
    /// The name of the processor.
    pub cpu: String,
    /// The number of logical cores that hotlap may use.
    pub cores: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// The kind of virtual machine or container, if any.
    pub virtualisation: Option<String>,
    /// Further facts, as name and value (governor, boost, load average, …).
    pub facts: Vec<(String, String)>,
    /// Properties that make its figures less reliable.
    pub doubts: Vec<String>,
    /// The machine on which hotlap was started, if servers were started on another one. It
    /// generated the load, unless there are `generators`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<Box<GeneratorHost>>,
    /// The generators of the load, if they were agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generators: Vec<RemoteGenerator>,
}

/// A generator of the load that is an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RemoteGenerator {
    /// The command that started it: `ssh gen1`.
    pub command: String,
    /// The name of its host, as that host calls itself.
    pub name: String,
    /// Its host.
    pub host: Host,
}

/// The machine of the load generator, if servers were started on another one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GeneratorHost {
    /// The command that started the agent on the servers' host: `ssh bench2`.
    pub command: String,
    /// The address at which servers that hotlap started were loaded; `null` if it started none, and
    /// did not reach their host at any.
    pub address: Option<String>,
    /// The generator's machine.
    pub host: Host,
}

impl From<&hotlap_servers::machine::Machine> for Host {
    fn from(host: &hotlap_servers::machine::Machine) -> Self {
        let mut facts = Vec::new();
        let mut fact = |name: &str, value: Option<String>| {
            facts.extend(value.map(|value| (name.to_owned(), value)));
        };
        let yes = |known: Option<bool>| known.map(|k| if k { "yes" } else { "no" }.to_owned());
        fact("physical cores", Some(host.cores.to_string()));
        fact("hardware threads", Some(host.threads.to_string()));
        fact("quota, cores", host.quota.map(|q| format!("{q:.2}")));
        fact("governor", host.governor.clone());
        fact("turbo", yes(host.turbo));
        fact("two threads a core", yes(host.smt));
        fact("on battery", yes(host.battery));
        fact("load average", host.load.map(|l| format!("{l:.2}")));
        fact("busy before the run, %", host.busy.map(|b| format!("{b:.0}")));
        fact("stolen before the run, %", host.steal.map(|s| format!("{s:.1}")));
        fact("fingerprint", Some(host.fingerprint.clone()));
        let machine = host.virtual_machine.then(|| "virtual machine".to_owned());
        Self {
            os: host.os.clone(),
            kernel: host.kernel.clone(),
            arch: host.architecture.clone(),
            cpu: host.cpu.clone(),
            cores: host.allowed as u32,
            memory_bytes: host.memory_bytes,
            virtualisation: host.container.clone().or(machine),
            facts,
            doubts: host.doubts().iter().map(|d| format!("{}: {}", d.what, d.remedy)).collect(),
            generator: None,
            generators: Vec::new(),
        }
    }
}

impl Host {
    /// An identifier of this machine, if known.
    pub fn fingerprint(&self) -> Option<&str> {
        self.fact("fingerprint")
    }

    /// Its name in a pool, if the run is a shard.
    pub fn node(&self) -> Option<&str> {
        self.fact(NODE)
    }

    fn fact(&self, named: &str) -> Option<&str> {
        self.facts.iter().find(|(name, _)| name == named).map(|(_, value)| value.as_str())
    }
}
