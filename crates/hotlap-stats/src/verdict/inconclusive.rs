//! Why a comparison may get no verdict.

/// Fewer restarts than this give no verdict, because an interval must know how much restarts
/// differ. From a single restart it says nothing about the next one: 72 % of such 95 % intervals
/// contain the true ratio (simulated in `tests/coverage`). From two restarts it has one degree of
/// freedom and is 12.7 standard errors wide on either side.
pub const MIN_RESTARTS: u32 = 3;

/// The A/A control counts as different from the reference if even the near end of its interval is
/// further from a ratio of 1 than this. A convention (METHODOLOGY, *Statistics*): the noise floor
/// grows with the control's interval anyway.
pub const MAX_CONTROL_DIFFERENCE: f64 = 0.05;

/// Why a comparison is inconclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inconclusive {
    /// It has fewer than [`MIN_RESTARTS`] restarts.
    TooFewRestarts,
    /// It was merged from fewer nodes than [`MIN_RESTARTS`].
    TooFewNodes,
    /// The A/A control has no interval from [`MIN_RESTARTS`] restarts, so the noise is unknown.
    NoiseUnknown,
    /// The A/A control differs from the reference by more than [`MAX_CONTROL_DIFFERENCE`].
    ControlDiffers,
}
