//! What a run on this machine is told.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hotlap_servers::allocation::CpuAllocation;
use hotlap_servers::process::Supervisor;

/// How servers are run and laps are measured.
#[derive(Debug, Clone)]
pub struct Setting {
    /// How long the window of a slice is; none: the shortest at which every server has recovered
    /// from being frozen.
    pub slice: Option<Duration>,
    /// How long servers may be probed for it, at each length that is tried.
    pub probe_limit: Duration,
    /// How long one request may take; in verification at least [`hotlap_servers::verify::LIMIT`].
    pub timeout: Duration,
    /// How long a server may take from its start to its first correct answer, and wrong answers in
    /// part of that ([`hotlap_servers::start::UNREADY`]).
    pub start_limit: Duration,
    /// How long a server may take to become steady.
    pub warm_limit: Duration,
    /// How long a server may take to end in peace.
    pub grace: Duration,
    /// Freeze the servers that are not in their slice.
    pub freeze: bool,
    /// Count instructions where the kernel permits it.
    pub counters: bool,
    /// Who runs on which cores.
    pub cores: CpuAllocation,
    /// How a supervisor is started.
    pub supervisor: Supervisor,
    /// Where what servers print is kept.
    pub logs: PathBuf,
    /// Whom each server is held against, and is to do the same work as; those that are not named
    /// here, against the reference.
    pub against: BTreeMap<usize, usize>,
}
