//! What all instruments have in common.

use std::fmt::Debug;

use super::observation::{Observation, ObserveError};

/// One instrument, attached to a server.
pub(super) trait Device: Debug + Send {
    /// Switches it on.
    fn enable(&mut self) -> Result<(), ObserveError>;

    /// Switches it off.
    fn disable(&mut self);

    /// What it saw since the last call.
    fn take(&mut self) -> Result<Observation, ObserveError>;

    /// What it cannot see here, or only at a price.
    fn limits(&self) -> Vec<ObserveError> {
        Vec::new()
    }
}
