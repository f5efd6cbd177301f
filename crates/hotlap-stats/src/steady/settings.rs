//! The settings of the steady-state detector, for a first warm-up and for later ones.

use super::curve::Class;

/// The settings of [`crate::SteadyDetector`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DetectorSettings {
    /// The number of windows over which the trend must be small: one second, with 100 ms windows.
    pub stretch: usize,
    /// The largest trend over a stretch that counts as steady, as a share of the level.
    pub tolerance: f64,
    /// A server counts as steady once it was level for at least this many windows.
    pub level: usize,
    /// No decision before this many windows.
    pub min_windows: usize,
    /// A decision is made after this many windows at the latest.
    pub max_windows: usize,
    /// Whether the caller can tell when the server's compiler is done. If not, a server that begins
    /// far below its level must stay level for longer.
    pub sees_compiler: bool,
    /// The speed at which the program was steady after an earlier start.
    pub known: Option<KnownSpeed>,
}

/// The speed of a program after an earlier start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KnownSpeed {
    /// Responses, or responses per CPU second.
    pub speed: f64,
    /// A later start is compared with this speed after this many windows.
    pub windows: usize,
}

impl Default for DetectorSettings {
    /// At most 2 % in 10 windows, decided after at most 100. A convention (METHODOLOGY, appendix C,
    /// *Warm-up*); `tests/steady.rs` shows on simulated machines how soon flat servers settle with
    /// it, and how rarely a climbing one does.
    fn default() -> Self {
        Self {
            stretch: 10,
            tolerance: 0.02,
            level: 10,
            min_windows: 0,
            max_windows: 100,
            sees_compiler: false,
            known: None,
        }
    }
}

/// The result of an earlier warm-up of the same program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PreviousWarmup {
    /// How the program became steady.
    pub class: Class,
    /// The number of windows until it was steady, plus a stretch.
    pub needed: usize,
    /// Whether a compiler was seen, or the program became so much faster that it must have one.
    pub compiles: bool,
    /// How many windows came before the first one near the final speed, ignoring single outliers.
    pub filling: usize,
    /// The final speed.
    pub speed: f64,
}

/// A later start of a flat server is compared with an earlier one after at least this many windows:
/// the median of three ignores one that is disturbed.
pub(super) const COMPARED: usize = 3;

impl DetectorSettings {
    /// The settings for another restart of a program. An earlier result shortens a warm-up only
    /// where this start can confirm it:
    ///
    /// - A server with a compiler compiles at every start, so it gets at least the time that it
    ///   needed before. Every other server gets the time that its caches took to fill.
    /// - If the server then has its earlier speed, it is steady. A server with another speed is
    ///   judged again. A server without a compiler must then be level for one stretch.
    pub fn for_restart(&self, previous: &PreviousWarmup) -> Self {
        if previous.class == Class::NeverSteady {
            return *self;
        }
        let (min_windows, level) = match previous.compiles {
            true => (previous.needed.min(self.max_windows), self.level),
            false => (0, self.stretch),
        };
        let windows = min_windows.max(previous.filling + 1).max(COMPARED);
        let known = Some(KnownSpeed { speed: previous.speed, windows });
        Self { min_windows, level, known, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_restart_gets_at_least_what_the_first_one_needed() {
        let settings = DetectorSettings::default();
        let again = |settings: DetectorSettings, class, needed, compiles| {
            let speed = 9.0;
            let previous = PreviousWarmup { class, needed, compiles, filling: 5, speed };
            settings.for_restart(&previous)
        };
        assert_eq!(again(settings, Class::NeverSteady, 30, true), settings);
        let settings = DetectorSettings { level: 30, ..settings };
        for class in [Class::Flat, Class::WarmedUp, Class::SlowingDown] {
            let next = again(settings, class, 40, true);
            assert_eq!((next.min_windows, next.level), (40, 30));
            assert_eq!(next.known, Some(KnownSpeed { speed: 9.0, windows: 40 }));
            assert_eq!(again(settings, class, 300, true).min_windows, 100);
            let next = again(settings, class, 40, false);
            assert_eq!((next.min_windows, next.level), (0, 10));
            assert_eq!(next.known, Some(KnownSpeed { speed: 9.0, windows: 6 }));
        }
    }
}
