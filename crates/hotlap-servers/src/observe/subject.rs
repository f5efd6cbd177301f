//! The processes that are observed.

use std::fs;

use crate::sample::Sampler;
use crate::tree::{Member, ProcessTree};

/// A server's processes: those below a supervisor, which starts them, or trees that run already.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    root: Option<u32>,
    tops: Vec<Member>,
}

impl Subject {
    /// Everything that a supervisor will start.
    pub(super) fn starting(supervisor: u32) -> Self {
        Self { root: Some(supervisor), tops: Vec::new() }
    }

    /// Trees of processes that run already.
    pub(super) fn running(tops: Vec<Member>) -> Self {
        Self { root: None, tops }
    }

    /// The supervisor, which is not observed itself.
    pub(super) fn supervisor(&self) -> Option<u32> {
        self.root
    }

    /// Whether hotlap started it.
    pub(super) fn is_started(&self) -> bool {
        self.root.is_some()
    }

    /// Samples its context switches.
    pub(super) fn sampler(&self) -> Sampler {
        Sampler::below(self.root, self.tops.clone())
    }

    /// Its processes.
    pub(super) fn tree(&self) -> ProcessTree {
        ProcessTree::new(self.root, self.tops.clone())
    }

    /// The processes that run now.
    pub(super) fn processes(&self) -> Vec<u32> {
        let mut tree = self.tree();
        let _ = tree.look();
        tree.members().filter(|member| !member.zombie).map(|member| member.pid).collect()
    }

    /// The threads to which an event is attached, so that all others inherit it: the supervisor's
    /// main thread, which starts the server, or all threads of trees that run already.
    pub(super) fn threads(&self) -> Vec<u32> {
        match self.root {
            Some(supervisor) => vec![supervisor],
            None => self.processes().into_iter().flat_map(threads_of).collect(),
        }
    }
}

/// The threads of a process; none if it has ended.
pub(super) fn threads_of(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect()
}
