//! Why a plan cannot be run.

/// Why a plan cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A load needs at least one connection.
    #[error("a load needs at least 1 connection")]
    NoConnections,
    /// A load needs at least one thread.
    #[error("a load needs at least 1 thread")]
    NoThreads,
    /// A thread without a connection would be idle.
    #[error(
        "{threads} threads for {connections} connections: each thread needs a connection, \
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
    #[error("{0} requests/s is not a valid rate: use a positive number")]
    BadRate(String),
    /// Another value is out of range; the text says which one.
    #[error("{0}")]
    OutOfRange(String),
}
