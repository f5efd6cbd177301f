//! The settings of the steady-state detector, for a first warm-up and for later ones.

use super::curve::Class;

/// The settings of [`crate::SteadyDetector`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DetectorSettings {
    /// The number of windows over which the trend must be small: one second, with 100 ms windows.
    pub stretch: usize,
    /// The largest trend over a stretch that counts as steady, as a share of the level.
    pub tolerance: f64,
    /// No decision before this many windows.
    pub min_windows: usize,
    /// A decision is made after this many windows at the latest.
    pub max_windows: usize,
}

impl Default for DetectorSettings {
    /// At most 2 % in 10 windows, decided after at most 100. A convention (METHODOLOGY, appendix C,
    /// *Warm-up*); `tests/steady.rs` shows on simulated machines how soon flat servers settle with
    /// it, and how rarely a climbing one does.
    fn default() -> Self {
        Self { stretch: 10, tolerance: 0.02, min_windows: 0, max_windows: 100 }
    }
}

/// The result of an earlier warm-up of the same program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreviousWarmup {
    /// How the program became steady.
    pub class: Class,
    /// Its number of windows.
    pub windows: usize,
    /// Whether it became so much faster that a compiler must have been at work.
    pub compiles: bool,
    /// How many windows came before the first one near the final speed, ignoring single outliers.
    pub filling: usize,
}

/// A program with a compiler is warmed up for this many times its earlier `filling`. Its compiler
/// depends on what it has seen run, so restarts differ: java/jetty was near its speed after 5 to 11
/// s, node/http:cluster after half a second each time (2026-11-22).
const FILLINGS: usize = 3;

impl DetectorSettings {
    /// The settings for another restart of a program:
    ///
    /// - A flat server only has to fill its caches. It gets the windows that this took.
    /// - A server with a compiler compiles at every start. It gets three times the windows that it
    ///   took to come near its speed.
    /// - All others are judged again, within the time that they took: what looked like
    ///   a warm-up may have been another process on the machine, which need not run at every start.
    #[must_use]
    pub fn for_restart(&self, previous: &PreviousWarmup) -> Self {
        let windows = previous.windows.min(self.max_windows);
        match previous.class {
            Class::NeverSteady => *self,
            Class::Flat => {
                Self { max_windows: self.max_windows.min(previous.filling + 1), ..*self }
            }
            _ if previous.compiles => {
                let windows = windows.min((FILLINGS * previous.filling).max(self.stretch));
                Self { min_windows: windows, max_windows: windows, ..*self }
            }
            _ => Self { max_windows: windows.max(self.stretch), ..*self },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_restart_gets_the_windows_that_the_first_one_took() {
        let settings =
            DetectorSettings { stretch: 10, tolerance: 0.02, min_windows: 0, max_windows: 100 };
        let again = |class, windows, compiles, filling| {
            let previous = PreviousWarmup { class, windows, compiles, filling };
            let again = settings.for_restart(&previous);
            assert_eq!((again.stretch, again.tolerance), (10, 0.02));
            (again.min_windows, again.max_windows)
        };
        assert_eq!(again(Class::NeverSteady, 30, true, 5), (0, 100));
        assert_eq!(again(Class::Flat, 30, true, 5), (0, 6));
        assert_eq!(again(Class::Flat, 30, false, 100), (0, 100));
        for class in [Class::WarmedUp, Class::SlowingDown] {
            // Three times the filling, at least a stretch, at most the earlier windows and the
            // limit. Node runs at full speed after half a second; it used to get the twelve seconds
            // of a JVM.
            assert_eq!(again(class, 100, true, 6), (18, 18));
            assert_eq!(again(class, 30, true, 2), (10, 10));
            assert_eq!(again(class, 30, true, 20), (30, 30));
            assert_eq!(again(class, 300, true, 50), (100, 100));
            assert_eq!(again(class, 30, false, 5), (0, 30));
            assert_eq!(again(class, 3, false, 5), (0, 10));
            assert_eq!(again(class, 300, false, 5), (0, 100));
        }
    }
}
