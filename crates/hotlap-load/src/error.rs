//! Why a load cannot be run.

use crate::plan::PlanError;

/// Why a load cannot be run. Failures under load are not errors: they are counted in the
/// [`Outcome`](crate::Outcome).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The system refused a resource that the generator needs.
    #[error("{what}: {why}")]
    System {
        /// What the generator tried, and what the user can do about it.
        what: String,
        /// The system's error. Not a source, because the message contains it.
        why: std::io::Error,
    },
    /// A worker thread panicked, which is a bug in the generator. Its counts are lost, so the load
    /// has no result.
    #[error(
        "a bug in the load generator: thread {thread} panicked ({why}); this load has no result, \
         please report it with the command"
    )]
    Panicked {
        /// The name of the thread.
        thread: String,
        /// The message of the panic.
        why: String,
    },
    /// No connection could be opened.
    #[error("cannot connect to {target}: {why}")]
    Unreachable {
        /// The address.
        target: String,
        /// Why the first attempt failed.
        why: String,
    },
}
