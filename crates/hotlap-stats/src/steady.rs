//! When is a server warm? A stated test on lap-like windows.

use serde::{Deserialize, Serialize};

/// How a server came to its steady state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// It was steady from the start.
    Flat,
    /// It became faster, then steady.
    WarmedUp,
    /// It became slower, then steady.
    SlowingDown,
    /// It was not steady when the limit came.
    NeverSteady,
}
