//! Why a plan cannot be run.

/// Why a plan cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A load needs at least one connection.
    #[error("0 connections send nothing: use at least 1")]
    NoConnections,
    /// A load needs at least one thread.
    #[error("0 threads send nothing: use at least 1")]
    NoThreads,
    /// A thread without a connection would be idle.
    #[error(
        "{threads} threads for {connections} connections: a thread needs a connection of its own, \
         so use at most {connections} threads"
    )]
    MoreThreadsThanConnections {
        /// The requested number of threads.
        threads: usize,
        /// The requested number of connections.
        connections: usize,
    },
    /// The plan has no requests.
    #[error("no request to send")]
    NoRequests,
    /// A rate must be positive and finite.
    #[error("a rate of {0} requests/s cannot be kept: use a positive number")]
    BadRate(String),
    /// Another value is out of range; the text says which.
    #[error("{0}")]
    OutOfRange(String),
}
