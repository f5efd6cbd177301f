//! Servers that failed.

use serde::Serialize;

use super::PublishedView;
use crate::analysis::Analysis;
use crate::model::{Role, Run, ServerFailure};

/// A server that failed.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Failed {
    /// Its name in tables.
    pub name: String,
    /// How it was started.
    pub command: String,
    /// The phase, the cause, the last lines of its output, and the remedy.
    #[serde(flatten)]
    pub why: ServerFailure,
    /// Figures published for it elsewhere.
    pub published: Vec<PublishedView>,
}

impl Failed {
    /// The entry for a server of a run, if it failed.
    pub(super) fn of(run: &Run, analyses: &[Analysis], index: usize) -> Option<Self> {
        let server = &run.servers[index];
        let why = server.failure.clone()?;
        // The A/A control is the same program as the reference. If it alone fails, a note says so.
        if server.role == Role::Control {
            return None;
        }
        let published = analyses.iter().flat_map(|a| PublishedView::all_of(run, a, index));
        Some(Self {
            name: server.name.clone(),
            command: server.command.clone(),
            why,
            published: published.collect(),
        })
    }
}
