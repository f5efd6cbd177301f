//! Why a load cannot be run.

use crate::plan::PlanError;

/// Why a load cannot be run. Failures under load are not errors: they are counted in the
/// [`Outcome`](crate::Outcome).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The system refused something that the generator needs.
    #[error("{what}: {why}")]
    System {
        /// What the generator tried, and what the user can do about it.
        what: String,
        /// The error of the system. Not a source, since the message contains it.
        why: std::io::Error,
    },
    /// A worker thread panicked, which is a bug of the generator. Its counts are lost, so the load
    /// has no result.
    #[error(
        "thread {thread} of the load generator panicked: {why}: this load has no result; please \
         report it with the command"
    )]
    Panicked {
        /// The name of the thread.
        thread: String,
        /// The message of the panic.
        why: String,
    },
    /// No connection could be opened.
    #[error("no connection to {target}: {why}")]
    Unreachable {
        /// The address.
        target: String,
        /// Why the first attempt failed.
        why: String,
    },
}
