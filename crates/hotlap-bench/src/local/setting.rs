//! The settings of a runner.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hotlap_servers::allocation::CpuAllocation;
use hotlap_servers::running::ServerHost;

use crate::load_host::LoadHost;

/// How servers are run and laps are measured on this machine.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Length of a slice's window; `None`: the shortest at which every server recovers from being
    /// frozen.
    pub slice: Option<Duration>,
    /// How long servers may be probed at each length that is tried.
    pub probe_limit: Duration,
    /// Timeout of a request; at least [`hotlap_servers::verify::LIMIT`] during verification.
    pub timeout: Duration,
    /// Time limit from a server's start to its first correct response; wrong ones are allowed for
    /// part of that ([`hotlap_servers::start::UNREADY`]).
    pub start_limit: Duration,
    /// How long a server must be level to count as steady, unless it has its earlier speed.
    pub level_for: Duration,
    /// Time limit for a server to become steady.
    pub warm_limit: Duration,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Freezes servers outside of their slices.
    pub freeze: bool,
    /// Counts instructions if the kernel permits it.
    pub counters: bool,
    /// Which cores servers and generator use.
    pub cores: CpuAllocation,
    /// Where servers are started.
    pub host: Arc<dyn ServerHost>,
    /// Where the load comes from.
    pub generator: Arc<dyn LoadHost>,
    /// Which participant each one is compared with and must do the same work as; by default the
    /// reference.
    pub against: BTreeMap<usize, usize>,
}
