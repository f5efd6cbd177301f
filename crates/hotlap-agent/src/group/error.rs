//! Why a load of several generators has no outcome.

use crate::error::ChannelError;

/// Why a load of several generators has no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The load cannot be divided.
    #[error("{0}")]
    Division(String),
    /// It could not be started.
    #[error(transparent)]
    Start(#[from] ChannelError),
    /// A generator was lost under load; the counts of the others are not those of the whole load.
    #[error("a generator was lost, so the load has no result: {0}")]
    Lost(ChannelError),
    /// A generator was lost and cannot be started again.
    #[error("a generator was lost and cannot be started again: {0}")]
    Gone(ChannelError),
}
