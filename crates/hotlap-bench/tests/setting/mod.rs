use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hotlap_bench::load_host::ThisProcess;
use hotlap_bench::local;
use hotlap_bench::participant::Load;
use hotlap_servers::machine::{CpuAllocation, Network};
use hotlap_servers::running::LocalHost;

use crate::stand_in::{LIMIT, supervisor};

/// Settings of real runners in tests: one slice length, no pinning, no probes.
pub fn setting(slice: Duration, logs: &Path) -> local::Setting {
    local::Setting {
        slice: Some(slice),
        probe_limit: Duration::ZERO,
        timeout: LIMIT,
        start_limit: LIMIT,
        level_for: Duration::ZERO,
        warm_limit: Duration::from_secs(1),
        grace: Duration::ZERO,
        freeze: true,
        counters: false,
        cores: CpuAllocation { server: vec![], generator: vec![], shared: true, notes: vec![] },
        host: Arc::new(LocalHost {
            supervisor: supervisor(),
            logs: logs.to_owned(),
            network: Network::loopback(),
        }),
        generator: Arc::new(ThisProcess),
        against: [].into(),
    }
}

/// A load of two keep-alive connections.
pub fn load() -> Load {
    Load::new(2)
}
