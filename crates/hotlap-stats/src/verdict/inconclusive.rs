//! Why a comparison may get no verdict.

use serde::Serialize;

/// Fewer restarts than this give no verdict, because an interval must know how much restarts
/// differ. From a single restart there is none. From two restarts it has one degree of freedom and
/// is 12.7 standard errors wide on either side.
pub const MIN_RESTARTS: u32 = 3;

/// Verdicts are withheld if the A/A control differs from the reference with a smaller p-value. It
/// is a diagnostic and no threshold: one in a hundred runs loses its verdicts by chance.
pub const CONTROL_ALPHA: f64 = 0.01;

/// Why a comparison is inconclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Inconclusive {
    /// It has fewer than [`MIN_RESTARTS`] restarts.
    TooFewRestarts,
    /// It was merged from fewer nodes than [`MIN_RESTARTS`].
    TooFewNodes,
    /// The A/A control differs from the reference ([`CONTROL_ALPHA`]): something separates two
    /// copies of one program, and may separate other servers too.
    ControlDiffers,
    /// One of the two servers was not steady.
    NotSteady,
    /// Stored runs are compared, and a side has fewer than [`MIN_RESTARTS`] runs. Each run is one
    /// sample of the machine.
    TooFewRuns,
}
