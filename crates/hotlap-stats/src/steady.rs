//! Detects when a server is warm, by testing windows of equal length as they arrive.
//!
//! A runtime that compiles while it runs becomes faster for a while, and some programs never
//! settle (Barrett and others, "Virtual machine warmup blows hot and cold", OOPSLA 2017). Their
//! method examines a finished run. hotlap must decide *when to begin*, so it tests the last
//! windows for a trend. Once there is no trend, it looks back for the start of the steady part.

mod curve;
mod gauged;

pub use curve::Class;
use curve::{Curve, Line, climbs};
pub use gauged::{GaugedWindow, USUAL_SLOPE};
use gauged::{at_usual_speed, slope};

/// The state of a warm-up, according to the windows so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SteadyState {
    /// The server is not steady yet.
    NotYet,
    /// The warm-up is over.
    Settled {
        /// The first window of the steady part, or the number of windows for
        /// [`Class::NeverSteady`].
        since: usize,
        /// The way in which the server became steady.
        class: Class,
    },
}

/// A line is fitted to at least this many windows, because a line through two has no error.
const MIN_FOR_LINE: usize = 3;

/// A line is fitted to at most this many windows. A line through n values takes n² / 2 slopes, and
/// a new line is fitted for each window.
const LONGEST_LINE: usize = 100;

/// The error of a longer line over a stretch may be up to this many times the tolerance, by
/// default 10% per second. Stricter limits may apply ([`RULED_OUT`]). The factor is a convention
/// (docs/rules.md, *Warm-up*).
const HIDDEN: f64 = 5.0;

/// A level line rules out a slow climb if its error over a stretch is at most this share of the
/// tolerance. By default, the limit is 0.67% per second. The share is a convention.
const RULED_OUT: f64 = 1.0 / 3.0;

/// The smallest number of stretches in a longer line, see [`SteadyDetector::level_over`].
const STRETCHES: usize = 3;

/// The smallest number of stretches in a longer line for a server that may be compiling unseen, by
/// convention. Such a server has become faster or slower, or is far slower than after an earlier
/// start. Compilers pause between their tiers: the compiler of java/jetty paused for up to three
/// seconds on one core.
const COMPILED: usize = 5;

/// A start is as fast as an earlier start if it reaches at least this share of the earlier speed.
/// The tolerance of 5% is a convention: machines drift by this much within seconds.
const AS_FAST: f64 = 0.95;

/// A start counts as far slower than an earlier start if its speed is below this share of the
/// earlier speed. The share is a convention: machines drift by less. A flat program without a
/// compiler is steady if it reaches this share.
const FAR_BELOW: f64 = 0.8;

/// Detects the steady state of a server during its warm-up, window by window.
///
/// A line is fitted to the logarithms of the last n windows by Theil and Sen's method, which
/// tolerates outliers in up to 29% of the windows. The server is steady if two conditions hold
/// over a stretch ([`DetectorSettings::stretch`]). The slope plus its standard error is at most
/// the tolerance, and the standard error is at most half the tolerance. n is about the smallest
/// number, from [`DetectorSettings::level`] up, for which the error is that small. On a noisy
/// machine, the detector therefore waits instead of guessing. A noisy curve that still bends is
/// steeper at its older end, so the detector errs on the side of waiting too long. If the
/// conditions do not hold, a line over at least three stretches suffices, even if its error is
/// larger. Its slope must be within two standard errors of 0, or within the tolerance together
/// with its error.
///
/// New lines are fitted at each window, so during a slow climb, noise makes some lines look level.
/// Stricter limits therefore apply if no compiler is seen and no earlier speed is known. The error
/// of the longer line must then be at most a third of the tolerance. If the server has become
/// faster or slower, the line must also span at least five stretches. Both limits also apply if
/// the server is far slower than after an earlier start. The longest possible line may have any
/// error.
#[derive(Debug, Clone, PartialEq)]
pub struct SteadyDetector {
    settings: DetectorSettings,
    windows: Vec<GaugedWindow>,
    /// The speed of each window, adjusted to the usual speed of the cores.
    curve: Curve,
}

impl SteadyDetector {
    /// Returns a detector without windows.
    pub fn new(settings: DetectorSettings) -> Self {
        Self { settings, windows: Vec::new(), curve: Curve::default() }
    }

    /// Adds the next window. If no window has a response, there is never a decision, so the caller
    /// must have a limit.
    pub fn push(&mut self, window: GaugedWindow) -> SteadyState {
        self.windows.push(window);
        self.curve = Curve(at_usual_speed(&self.windows, self.slope()));
        self.state()
    }

    /// Returns the slope of the server. Until the windows show it, the slope after an earlier
    /// start counts, or else [`USUAL_SLOPE`].
    fn slope(&self) -> f64 {
        slope(&self.windows, self.settings.known.map_or(USUAL_SLOPE, |known| known.slope))
    }

    /// Summarizes a warm-up of this many windows, steady from the window `since` on, for the next
    /// warm-up of the same program. The detector may have seen only the last windows.
    pub fn summary(&self, class: Class, since: usize, windows: usize) -> PreviousWarmup {
        let last = self.curve.len().min(self.shortest_line());
        let compiles = self.settings.sees_compiler || self.curve.compiles(last);
        let least = if class == Class::Flat && !compiles { FAR_BELOW } else { AS_FAST };
        // If this start was only compared with an earlier start, the earlier figures are kept.
        let judged = self.settings.known.filter(|_| self.is_as_known());
        let (speed, least) = judged
            .map_or_else(|| (self.curve.level(last), least), |known| (known.speed, known.least));
        PreviousWarmup {
            class,
            needed: windows.min(since + self.settings.stretch),
            compiles,
            filling: self.curve.filling(last),
            speed,
            least,
            slope: self.slope(),
        }
    }

    fn state(&self) -> SteadyState {
        // A server without any response so far is slow, not steady.
        if self.curve.len() < self.settings.min_windows || self.curve.is_silent() {
            return SteadyState::NotYet;
        }
        if self.is_as_known() {
            let (since, class) = self.look_back(self.curve.len().min(COMPARED));
            return SteadyState::Settled { since, class };
        }
        let has_time = self.curve.len() < self.settings.max_windows;
        let (since, class) = match self.steady_over() {
            Some(n) => self.look_back(n),
            _ if has_time => return SteadyState::NotYet,
            _ => self.at_limit(),
        };
        SteadyState::Settled { since, class }
    }

    /// Returns whether the server is as fast as after an earlier start.
    fn is_as_known(&self) -> bool {
        let Some(known) = self.settings.known else { return false };
        let windows = self.curve.len();
        let speed = self.curve.level(windows.min(COMPARED));
        windows >= known.windows && speed >= known.least * known.speed
    }

    /// Returns the number of last windows over which the server is steady. `None` if it is not
    /// steady.
    fn steady_over(&self) -> Option<usize> {
        let soon = |error| self.settled_over().or_else(|| self.level_over(STRETCHES, error));
        match self.may_compile() {
            true => self
                .level_over(COMPILED, RULED_OUT)
                .or_else(|| soon(RULED_OUT).filter(|n| !self.has_moved(*n))),
            false => soon(HIDDEN),
        }
    }

    /// Returns whether an unseen compiler may be at work. At a later start, the server's speed
    /// shows whether the compiler is done.
    fn may_compile(&self) -> bool {
        !self.settings.sees_compiler && self.settings.known.is_none_or(|_| self.is_far_below())
    }

    /// Returns whether the server is far slower than after an earlier start.
    fn is_far_below(&self) -> bool {
        let speed = self.curve.level(self.curve.len().min(self.shortest_line()));
        self.settings.known.is_some_and(|known| speed < FAR_BELOW * known.speed)
    }

    /// Returns whether the speed has changed during this warm-up, or is far below the speed after
    /// an earlier start. The last `n` windows seem steady.
    fn has_moved(&self, n: usize) -> bool {
        let has_trend = || {
            let line = self.line(self.curve.len().min(LONGEST_LINE));
            !line.is_level() && self.rise(line.slope.abs()) > self.settings.tolerance
        };
        self.is_far_below() || self.look_back(n).1 != Class::Flat || has_trend()
    }

    /// Returns the number of last windows in the shortest precise line. `None` if no line is
    /// precise, or if the shortest precise line has too large a trend.
    fn settled_over(&self) -> Option<usize> {
        let (n, line) = self.known_to(self.shortest_line(), self.settings.tolerance / 2.0)?;
        self.is_within(&line).then_some(n)
    }

    /// Returns the number of last windows whose line is level or within the tolerance, with an
    /// error of up to `error` times the tolerance. The line has at least this many stretches,
    /// because the error of a slope falls with the number of windows to the power of 1.5. The
    /// speed during a neighbour's burst also looks level, but for a shorter time. If no line is
    /// precise enough, the longest line may have any error. Waiting longer would not help, because
    /// the laps will be just as noisy.
    fn level_over(&self, stretches: usize, error: f64) -> Option<usize> {
        let least = (stretches * self.settings.stretch).max(self.shortest_line());
        let longest = || (self.curve.len() >= LONGEST_LINE).then(|| self.line(LONGEST_LINE));
        let (n, line) = self
            .known_to(least, error * self.settings.tolerance)
            .or_else(|| Some((LONGEST_LINE, longest()?)))?;
        (line.is_level() || self.is_within(&line)).then_some(n)
    }

    /// Returns the decision at the time limit for a server that is not steady by then. A trend
    /// needs a slope beyond two standard errors. The level must also move in the same direction
    /// from each third of the windows to the next. A neighbour's burst lasts for several windows,
    /// so it bends a line more than independent noise would. However, such a burst is a step and
    /// not a climb. Without such a trend, the machine is assumed to be noisy, and the server
    /// counts as steady.
    fn at_limit(&self) -> (usize, Class) {
        let len = self.curve.len();
        let n = (len / 2).max(self.shortest_line()).min(len);
        match self.line(n).is_level() || !climbs(&self.curve.logs(n)) {
            true => self.look_back(n),
            false => (len, Class::NeverSteady),
        }
    }

    /// Returns the smallest number of last windows, from `least` up, whose line has at most this
    /// error over a stretch. Also returns the line.
    fn known_to(&self, least: usize, error: f64) -> Option<(usize, Line)> {
        let mut n = least;
        while n <= self.curve.len().min(LONGEST_LINE) {
            let line = self.line(n);
            if self.rise(line.error) <= error {
                return Some((n, line));
            }
            // n grows by a tenth each time, because a line takes a while to compute.
            n += 1 + n / 10;
        }
        None
    }

    fn line(&self, n: usize) -> Line {
        Line::through(&self.curve.logs(n))
    }

    /// Returns whether a trend is within the tolerance. The decision is tried at each window, so
    /// the slope plus its error must be small.
    fn is_within(&self, line: &Line) -> bool {
        self.rise(line.slope.abs() + line.error) <= self.settings.tolerance
    }

    /// Returns by how much the speed changes over a stretch at this slope.
    fn rise(&self, slope: f64) -> f64 {
        slope * self.settings.stretch as f64
    }

    fn look_back(&self, n: usize) -> (usize, Class) {
        self.curve.look_back(n, self.settings.tolerance)
    }

    /// Returns the smallest number of windows for a line.
    fn shortest_line(&self) -> usize {
        self.settings.level.clamp(MIN_FOR_LINE, LONGEST_LINE)
    }
}

/// The settings of [`SteadyDetector`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DetectorSettings {
    /// The number of windows in a stretch, over which the trend must be small. By default, a
    /// stretch is one second with windows of 100 ms.
    pub stretch: usize,
    /// The largest trend over a stretch that counts as steady, as a share of the level.
    pub tolerance: f64,
    /// The smallest number of windows over which a server must be level to count as steady, at most
    /// 100.
    pub level: usize,
    /// The number of windows before which there is no decision.
    pub min_windows: usize,
    /// The number of windows after which there is a decision at the latest, if any window had a
    /// response.
    pub max_windows: usize,
    /// Whether the caller can tell when the server's compiler is done. If not, a server whose
    /// speed has changed must stay level for longer.
    pub sees_compiler: bool,
    /// The speed at which the program was steady after an earlier start.
    pub known: Option<KnownSpeed>,
}

/// The speed of a program after an earlier start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KnownSpeed {
    /// The speed on cores of the usual speed, in the unit of the windows.
    pub speed: f64,
    /// A later start with at least this share of the speed is steady.
    pub least: f64,
    /// The number of windows after which a later start is compared with this speed.
    pub windows: usize,
    /// By how many per cent the cost rises if the gauge's system calls take 1% longer.
    pub slope: f64,
}

impl Default for DetectorSettings {
    /// A trend of at most 2% in 10 windows, decided after at most 100 windows, by convention
    /// (docs/rules.md, *Warm-up*). On simulated machines, `tests/steady.rs` shows how soon flat
    /// servers settle, and how rarely climbing servers do.
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
    /// The way in which the program became steady.
    pub class: Class,
    /// The number of windows until the program was steady, plus a stretch, but at most all
    /// windows.
    pub needed: usize,
    /// Whether a compiler was seen, or the program became so much faster that it must have a
    /// compiler.
    pub compiles: bool,
    /// The number of windows before the first window near the final speed, ignoring single
    /// outliers.
    pub filling: usize,
    /// The final speed.
    pub speed: f64,
    /// A later start with at least this share of the speed is steady.
    pub least: f64,
    /// By how many per cent the cost rises if the gauge's system calls take 1% longer.
    pub slope: f64,
}

/// A later start is compared with an earlier start after at least this many windows. The median of
/// three windows ignores one disturbed window.
const COMPARED: usize = 3;

impl DetectorSettings {
    /// Returns the settings for another restart of a program. An earlier result shortens a warm-up
    /// only if the new start confirms it:
    ///
    /// - A server with a compiler compiles at every start, so it gets at least the time that it
    ///   needed before. Every other server is compared with the earlier start after the time in
    ///   which its caches filled before.
    /// - A server that is then as fast as after the earlier start is steady. If the server was
    ///   flat and showed no compiler, it may be up to 20% slower. Any other server is judged
    ///   again. Without a compiler, it must be level for one stretch, or for five stretches if it
    ///   is far slower.
    pub fn for_restart(&self, previous: &PreviousWarmup) -> Self {
        if previous.class == Class::NeverSteady {
            return *self;
        }
        let (min_windows, level) = match previous.compiles {
            true => (previous.needed.min(self.max_windows), self.level),
            false => (0, self.stretch),
        };
        let windows = min_windows.max(previous.filling + 1).max(COMPARED);
        let PreviousWarmup { speed, least, slope, .. } = *previous;
        let known = Some(KnownSpeed { speed, least, windows, slope });
        Self { min_windows, level, known, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::curve::zigzag;
    use super::*;

    fn detector(windows: Vec<f64>) -> SteadyDetector {
        SteadyDetector { curve: Curve(windows), ..SteadyDetector::new(DetectorSettings::default()) }
    }

    fn limited(max_windows: usize) -> SteadyDetector {
        let settings = DetectorSettings { max_windows, ..DetectorSettings::default() };
        SteadyDetector::new(settings)
    }

    /// Returns the number of windows after which the detector decides, and the decision.
    fn decided(
        detector: &mut SteadyDetector,
        speeds: impl Iterator<Item = f64>,
    ) -> Option<(usize, usize, Class)> {
        speeds.enumerate().find_map(|(i, speed)| match detector.push(speed.into()) {
            SteadyState::Settled { since, class } => Some((i + 1, since, class)),
            SteadyState::NotYet => None,
        })
    }

    fn settle(curve: impl Iterator<Item = f64>) -> (usize, usize, Class) {
        decided(&mut limited(100), curve).expect("a decision at the limit")
    }

    /// Returns noise of ± `share`, which depends on `i` only.
    fn wobble(i: usize, share: f64) -> f64 {
        1.0 + share * ((i * 7919 % 101) as f64 / 50.0 - 1.0)
    }

    #[test]
    fn a_flat_server_is_steady_after_one_stretch() {
        assert_eq!(settle((0..).map(|i| 1000.0 * wobble(i, 0.01))), (10, 0, Class::Flat));
    }

    #[test]
    fn a_climbing_server_is_not_steady_while_it_climbs() {
        let curve = |i: usize| 1000.0 * (1.0 - 0.5 * (-(i as f64) / 15.0).exp());
        let (at, since, class) = settle((0..).map(|i| curve(i) * wobble(i, 0.01)));
        assert_eq!(class, Class::WarmedUp);
        assert!(at > 30 && since > 20, "settled at {at}, since {since}");
        assert!(curve(at + 10) / curve(at) < 1.025);
    }

    #[test]
    fn a_server_that_falls_and_stays_is_slowing_down() {
        let (_, since, class) =
            settle((0..).map(|i| if i < 6 { 2000.0 } else { 1000.0 } * wobble(i, 0.01)));
        assert_eq!((since, class), (6, Class::SlowingDown));
    }

    #[test]
    fn a_server_that_never_stops_climbing_is_never_steady() {
        let (at, since, class) = settle((0..).map(|i| 1.05_f64.powi(i)));
        assert_eq!((at, since, class), (100, 100, Class::NeverSteady));
    }

    /// Regression: on a busy machine, every server counted as "never steady" after the longest
    /// possible warm-up.
    #[test]
    fn noise_that_hides_any_trend_is_no_trend() {
        let noisy = (0..).map(|i| 1000.0 * wobble(i, 0.5));
        assert_eq!(decided(&mut limited(600), noisy), Some((100, 0, Class::Flat)));
        let climbing = (0..).map(|i| 1000.0 * 1.03_f64.powi(i as i32) * wobble(i, 0.5));
        assert_eq!(settle(climbing), (100, 100, Class::NeverSteady));
    }

    /// Regression: on a quiet machine, a server whose caches filled in a second had a trend of 0.3%
    /// per second afterwards. The trend was significant, so the server was never steady.
    #[test]
    fn a_trend_that_is_known_to_be_small_is_no_climb() {
        let curve = |i: usize| 1.0 - 0.3 * (-(i as f64) / 4.0).exp();
        let speed = |i: usize| 1000.0 * curve(i) * 1.0003_f64.powi(i as i32) * wobble(i, 0.005);
        let (at, _, class) = decided(&mut limited(200), (0..).map(speed)).unwrap();
        assert!(at <= 60 && class == Class::WarmedUp, "{at} {class:?}");
    }

    /// Regression: after three windows, a later start was adjusted by the usual slope, and the
    /// earlier start by its own. On slower cores, a start that had not changed seemed 12% faster.
    #[test]
    fn a_later_start_is_compared_with_the_slope_of_the_earlier_start() {
        let window = |i: usize, slowness: f64| {
            let slowness = slowness * (1.0 + 0.05 * (i % 5) as f64);
            GaugedWindow { speed: 1000.0 / slowness.powf(0.6), slowness }
        };
        let mut first = limited(100);
        let settled = |detector: &mut SteadyDetector, slowness: f64| {
            let mut states = (0..100).map(|i| detector.push(window(i, slowness)));
            1 + states.position(|state| state != SteadyState::NotYet).unwrap()
        };
        let at = settled(&mut first, 1.0);
        let before = first.summary(Class::Flat, 0, at);
        let settings = DetectorSettings::default().for_restart(&before);
        for slowness in [0.75, 1.3] {
            let mut later = SteadyDetector::new(settings);
            assert_eq!(settled(&mut later, slowness), COMPARED);
            let speed = later.curve.level(COMPARED);
            assert!((speed / 1000.0 - 1.0).abs() < 0.02, "{slowness}: {speed}");
        }
    }

    /// Regression: a neighbour occasionally took most of a core for a second. Flat servers then
    /// counted as "never steady" in one of three warm-ups.
    #[test]
    fn bursts_that_last_for_several_windows_are_no_trend() {
        let burst = |i: usize| if (i / 9 * 7919 % 13) < 5 { 0.6 } else { 1.0 };
        let never = (0..100).filter(|shift: &usize| {
            let speed = |i: usize| 1000.0 * burst(i + 3 * shift) * wobble(i + shift, 0.1);
            let decided = decided(&mut limited(45), (0..45).map(speed));
            decided.is_some_and(|(_, _, class)| class == Class::NeverSteady)
        });
        let never = never.count();
        assert!(never <= 10, "{never} of 100");
    }

    /// Regression: a Java server climbed from 1,000 to 30,000 responses/s. The server was so noisy
    /// at the end that it counted as flat, and its later warm-ups took only half a second.
    #[test]
    fn a_server_that_began_at_a_tenth_of_its_speed_is_not_flat_however_noisy_the_end() {
        let climb = |i: usize| 1.0 + 29.0 * (1.0 - (-(i as f64) / 20.0).exp());
        let noisy = |i: usize| climb(i) * if i > 25 { wobble(i, 0.6) } else { 1.0 };
        let (_, _, class) = decided(&mut limited(50), (0..50).map(noisy)).unwrap();
        assert_ne!(class, Class::Flat);
    }

    /// Regression: servers on Node were watched for six seconds at each start, so a run of a minute
    /// had only two restarts. A rule that accepted only equal speeds allowed only three restarts on
    /// a machine that became faster.
    #[test]
    fn a_later_start_is_steady_once_it_has_its_earlier_speed() {
        let usual = DetectorSettings { level: 30, sees_compiler: true, ..Default::default() };
        let climb = |i: usize| 1000.0 * if i < 5 { 0.4 } else { 1.0 } * wobble(i, 0.03);
        let mut first = SteadyDetector::new(usual);
        let (at, since, class) = decided(&mut first, (0..100).map(climb)).unwrap();
        let settings = usual.for_restart(&first.summary(class, since, first.curve.len()));
        let later = |factor: f64| {
            let speeds = (0..100).map(move |i| climb(i) * factor);
            decided(&mut SteadyDetector::new(settings), speeds).unwrap().0
        };
        assert_eq!((at, later(1.0), later(1.2), later(0.8)), (32, 15, 15, 32));
    }

    #[test]
    fn nothing_is_decided_before_the_smallest_number_of_windows() {
        let settings = DetectorSettings { min_windows: 30, ..DetectorSettings::default() };
        let flat = (1..).map(|i| 1000.0 * wobble(i, 0.001));
        let decided = decided(&mut SteadyDetector::new(settings), flat);
        assert_eq!(decided, Some((30, 0, Class::Flat)));
    }

    #[test]
    fn a_burst_after_a_level_start_is_not_a_warm_up() {
        let burst = |i: usize| if (8..16).contains(&i) { 600.0 } else { 1000.0 };
        let (_, since, class) =
            settle((0..).map(|i| burst(i) * wobble(i, if i < 8 { 0.1 } else { 0.01 })));
        assert_eq!((since, class), (0, Class::Flat));
    }

    /// Regression: in two of five runs, a neighbour made flat servers look as if they had warmed
    /// up. Each later warm-up took as long as the first, so laps got a quarter of the run instead
    /// of half.
    #[test]
    fn a_disturbed_warm_up_does_not_lengthen_the_next() {
        let mut first = limited(100);
        let disturbed = |i: usize| if i < 6 { 600.0 } else { 1000.0 } * wobble(i, 0.01);
        let (at, since, class) = decided(&mut first, (0..).map(disturbed)).unwrap();
        assert!(at > 10 && class == Class::WarmedUp, "{at}, {class:?}");
        let before = first.summary(class, since, first.curve.len());
        let mut next = SteadyDetector::new(DetectorSettings::default().for_restart(&before));
        let decided = decided(&mut next, (0..).map(|i| 1000.0 * wobble(i, 0.01)));
        assert_eq!(decided, Some((7, 0, Class::Flat)));
    }

    /// Regression: a later start of Express got a warm-up of half a second, because the first start
    /// had been flat. The measured cost was more than twice the cost three seconds later.
    #[test]
    fn a_later_start_is_flat_at_once_only_if_it_is_as_fast_as_before() {
        let again = |speeds: &[f64]| {
            let mut first = limited(100);
            let (_, since, class) =
                decided(&mut first, (0..).map(|i| 1000.0 * wobble(i, 0.01))).unwrap();
            let before = first.summary(class, since, first.curve.len());
            let mut next = SteadyDetector::new(DetectorSettings::default().for_restart(&before));
            let rest = (0..).map(|i| 1000.0 * wobble(i, 0.01));
            decided(&mut next, speeds.iter().copied().chain(rest)).unwrap()
        };
        assert_eq!(again(&[]), (3, 0, Class::Flat));
        assert_eq!(again(&[1000.0, 500.0, 1000.0]), (3, 0, Class::Flat));
        let (at, since, class) = again(&[400.0; 30]);
        assert!(at > 30 && since >= 26 && class == Class::WarmedUp, "{at} {since} {class:?}");
        assert_eq!(again(&[400.0; 100]).0, 50, "the machine may have become slower");
    }

    #[test]
    fn windows_without_a_response_are_permitted() {
        let once = settle((0..).map(|n| if n == 0 { 50.0 } else { 0.0 }));
        let each_third = settle((0..).map(|n| if n % 3 == 0 { 50.0 } else { 0.0 }));
        assert_eq!((once, each_third), ((10, 0, Class::Flat), (10, 0, Class::Flat)));
    }

    /// Regression: of twelve virtual machines on one core, four counted as steady after about four
    /// seconds. The cost of these four was then twice as high as ten seconds later.
    #[test]
    fn a_level_between_two_tiers_of_a_compiler_is_not_the_end() {
        let tiers = |i: usize| match i {
            0..5 => 1_000.0,
            5..40 => 12_000.0,
            _ => 25_000.0,
        };
        let (at, since, class) = settle((0..).map(|i| tiers(i) * wobble(i, 0.02)));
        assert!((75..100).contains(&at) && class == Class::WarmedUp, "{at} {class:?}");
        assert!((36..=44).contains(&since), "{since}");
        // A server whose compiler is seen need not be level for longer.
        let settings = DetectorSettings { sees_compiler: true, ..DetectorSettings::default() };
        let speeds = (0..).map(|i| tiers(i) * wobble(i, 0.02));
        let (at, ..) = decided(&mut SteadyDetector::new(settings), speeds).unwrap();
        assert!(at < 40, "{at}");
    }

    /// Regression: Node compiles within three windows and is flat afterwards. Later warm-ups of
    /// Node ended within these three windows.
    #[test]
    fn a_later_warm_up_of_a_flat_server_lasts_as_long_as_filling_its_caches_took() {
        let mut detector = limited(100);
        let speeds = [9.0, 14.0, 65.0, 96.0, 96.0, 90.0, 100.0, 94.0, 99.0, 97.0, 92.0, 98.0];
        speeds.iter().for_each(|speed| _ = detector.push((*speed).into()));
        let flat = PreviousWarmup {
            compiles: false,
            ..detector.summary(Class::Flat, 0, detector.curve.len())
        };
        assert_eq!(flat.filling, 3);
        let known = DetectorSettings::default().for_restart(&flat).known.unwrap();
        assert_eq!((known.windows, known.speed), (4, 96.0));
    }

    /// A later start that is only compared often looks flat, although the program warms up.
    #[test]
    fn only_a_judged_start_shows_that_a_program_is_flat() {
        let after = |settings: DetectorSettings, class| {
            let mut detector = SteadyDetector::new(settings);
            (0..20).for_each(|_| _ = detector.push(90.0.into()));
            let shown = detector.summary(class, 0, detector.curve.len());
            (shown.least, settings.for_restart(&shown))
        };
        let settings = DetectorSettings::default();
        assert_eq!(after(settings, Class::Flat).0, FAR_BELOW);
        let compiles = DetectorSettings { sees_compiler: true, ..settings };
        assert_eq!(after(compiles, Class::Flat).0, AS_FAST);
        let (least, later) = after(settings, Class::WarmedUp);
        assert_eq!((least, after(later, Class::Flat).0), (AS_FAST, AS_FAST));
    }

    /// Regression: a server whose responses take over a second counted as steady before its first
    /// response. The server was dropped because it had no response.
    #[test]
    fn nothing_is_decided_before_the_first_response() {
        let flat = PreviousWarmup {
            class: Class::Flat,
            needed: 10,
            compiles: false,
            filling: 0,
            speed: 80.0,
            least: FAR_BELOW,
            slope: 1.5,
        };
        let first = DetectorSettings::default();
        for settings in [first, first.for_restart(&flat)] {
            let mut detector = SteadyDetector::new(settings);
            for _ in 0..200 {
                assert_eq!(detector.push(0.0.into()), SteadyState::NotYet);
            }
            assert!(matches!(detector.push(80.0.into()), SteadyState::Settled { .. }));
        }
    }

    #[test]
    fn a_trend_within_the_tolerance_is_settled_and_a_larger_one_is_not() {
        for (rise, expected) in [(0.0019, true), (-0.0019, true), (0.0021, false), (-0.0021, false)]
        {
            let windows = (0..10).map(|i| (rise * f64::from(i)).exp()).collect();
            let settled = detector(windows).state() != SteadyState::NotYet;
            assert_eq!(settled, expected, "{rise}");
        }
    }

    /// Regression: noise that lasted for one stretch was enough to hide a climb of 3% per second.
    #[test]
    fn a_slow_climb_is_not_hidden_by_noise() {
        let climb = |i: usize| 1000.0 * 1.003_f64.powi(i as i32) * wobble(i, 0.05);
        let (at, ..) = settle((0..).map(climb));
        assert_eq!(at, 100);
    }

    #[test]
    fn at_the_limit_only_a_trend_that_climbs_is_never_steady() {
        // The later half of the windows decides.
        let class = |last: Vec<f64>| {
            let logs = [vec![0.0; last.len()], last].concat();
            detector(logs.into_iter().map(f64::exp).collect()).at_limit().1
        };
        let climb = (0..30).map(|i| 0.01 * f64::from(i)).collect();
        assert_eq!(class(climb), Class::NeverSteady);
        // Each third is higher than the third before it, but the line is level within its error.
        let noisy = zigzag(30, 0.3, 0.005);
        assert!(climbs(&noisy) && Line::through(&noisy).is_level());
        assert_ne!(class(noisy), Class::NeverSteady);
        // The line rises, but the last third is as high as the second.
        let saw: Vec<f64> =
            (0..30).map(|i| 0.01 * f64::from(if i < 20 { i } else { i - 10 })).collect();
        assert!(!climbs(&saw) && !Line::through(&saw).is_level());
        assert_ne!(class(saw), Class::NeverSteady);
    }

    mod settings {
        use super::super::*;

        #[test]
        fn another_restart_gets_at_least_what_the_first_one_needed() {
            let settings = DetectorSettings::default();
            let again = |settings: DetectorSettings, class, needed, compiles| {
                let (speed, least, slope) = (9.0, 0.9, 1.2);
                let previous =
                    PreviousWarmup { class, needed, compiles, filling: 5, speed, least, slope };
                settings.for_restart(&previous)
            };
            assert_eq!(again(settings, Class::NeverSteady, 30, true), settings);
            let settings = DetectorSettings { level: 30, ..settings };
            for class in [Class::Flat, Class::WarmedUp, Class::SlowingDown] {
                let next = again(settings, class, 40, true);
                assert_eq!((next.min_windows, next.level), (40, 30));
                let known =
                    |windows| Some(KnownSpeed { speed: 9.0, least: 0.9, windows, slope: 1.2 });
                assert_eq!(next.known, known(40));
                assert_eq!(again(settings, class, 300, true).min_windows, 100);
                let next = again(settings, class, 40, false);
                assert_eq!((next.min_windows, next.level), (0, 10));
                assert_eq!(next.known, known(6));
            }
        }
    }
}
