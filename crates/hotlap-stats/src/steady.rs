//! When is a server warm? A stated test on lap-like windows.
//!
//! A virtual machine that compiles while it runs answers faster and faster for a while, and not
//! every one of them settles (Barrett, Bolz-Tereick, Killick, Mount and Tratt, "Virtual machine
//! warmup blows hot and cold", OOPSLA 2017, where the classes come from). Their test looks back on
//! a finished run; this one has to say *when to begin*, so it asks the last windows for their trend
//! and, once there is none to speak of, looks back for where the steady part began.

mod line;

use serde::{Deserialize, Serialize};

use crate::estimate::{mad, median};
use line::{Line, climbs};

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
    /// It still rose or fell when the limit came.
    NeverSteady,
}

/// What the windows so far say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Go on warming up.
    NotYet,
    /// Warm-up is over.
    Settled {
        /// The first window of the steady part; the number of windows for [`Class::NeverSteady`].
        since: usize,
        /// How it came there.
        class: Class,
    },
}

/// The test's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// Windows that make up the stretch whose trend must be small: a second of 100 ms windows.
    pub stretch: usize,
    /// The trend over a stretch that is small enough, as a share of the level.
    pub tolerance: f64,
    /// Windows before which nothing is said.
    pub least: usize,
    /// Windows after which the answer is [`Class::NeverSteady`].
    pub limit: usize,
}

impl Default for Test {
    /// 2 % in 10 windows; 10 s of 100 ms windows at most.
    fn default() -> Self {
        Self { stretch: 10, tolerance: 0.02, least: 0, limit: 100 }
    }
}

impl Test {
    /// The test for another start of a program, given what an earlier one has told. A server that
    /// was flat only has to fill its caches, and gets the windows that this took. One that compiles
    /// itself does so again, now sooner and now later: a compiler goes by what it has seen run. It
    /// gets three times what it took to come near its speed then. All others are judged anew, in
    /// the time that it took then: what looked like a climb may have been a neighbour, who will not
    /// be there at every start.
    #[must_use]
    pub fn again(&self, before: &Precedent) -> Self {
        let windows = before.windows.min(self.limit);
        match before.class {
            Class::NeverSteady => *self,
            Class::Flat => Self { limit: self.limit.min(before.filling + 1), ..*self },
            _ if before.compiles => {
                let windows = windows.min((3 * before.filling).max(self.stretch));
                Self { least: windows, limit: windows, ..*self }
            }
            _ => Self { limit: windows.max(self.stretch), ..*self },
        }
    }
}

/// What one start of a program tells of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Precedent {
    /// How it became steady.
    pub class: Class,
    /// How many windows it took to say so.
    pub windows: usize,
    /// Whether it became so much faster that a compiler must have been at work.
    pub compiles: bool,
    /// How many windows came before the first that was about as fast as the last ones, and no
    /// exception.
    pub filling: usize,
}

/// A window that reaches this share of the steady level is about as fast.
const FULL: f64 = 0.9;

/// A server whose first windows reach less than this share of its steady level was not flat.
const BEGUN: f64 = 0.7;

/// One whose first windows reach less than this share compiles itself, and is warmed up for as long
/// as there is time.
const COMPILES: f64 = 1.0 / 3.0;

/// A warm-up under way: windows go in one by one.
///
/// The test: the logarithms of the last n windows are given a line by Theil and Sen's method (the
/// median of the slopes between all pairs, JASA 63, 1968: up to 29 % of the windows may be hit by
/// anything). The server is steady when the line rises or falls by at most the tolerance over a
/// stretch, and when the line itself is known that well: its standard error over a stretch is at
/// most half the tolerance. n is the smallest number, from one stretch up, that knows the line so
/// well, so a noisy machine makes the test wait and not guess; a stretch of a noisy curve that is
/// still bent is steeper at its older end, which errs on the side of waiting. Where noise keeps the
/// line from being known so well, a line that is known to five times the tolerance is enough if it
/// is level within two standard errors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warmup {
    test: Test,
    windows: Vec<f64>,
}

impl Warmup {
    /// A warm-up that is to be judged by `test`.
    #[must_use]
    pub fn new(test: Test) -> Self {
        Self { test, windows: Vec::new() }
    }

    /// The curve so far.
    #[must_use]
    pub fn windows(&self) -> &[f64] {
        &self.windows
    }

    /// What a start that ended like this tells of the next.
    #[must_use]
    pub fn precedent(&self, class: Class) -> Precedent {
        let windows = self.windows.len();
        let last = windows.min(self.test.stretch.max(3));
        let level = median(&self.windows[windows - last..]).unwrap_or(0.0);
        let is_near = |speed: f64| speed >= FULL * level;
        let is_full = |some: &[f64]| is_near(some[0]) && median(some).is_some_and(is_near);
        let filling = self.windows.windows(3).position(is_full).unwrap_or(0);
        Precedent { class, windows, compiles: self.compiles(last), filling }
    }

    /// Takes the next window's speed (answers, or answers per CPU second: more is faster).
    pub fn push(&mut self, speed: f64) -> State {
        self.windows.push(speed);
        self.state()
    }

    /// What the windows so far say. Nothing while there was no answer in any of them, whatever the
    /// limit: whoever asks has to know when to give up.
    #[must_use]
    pub fn state(&self) -> State {
        // What has not answered yet is slow, and not steady.
        let is_silent = self.windows.iter().all(|speed| *speed <= 0.0);
        if self.windows.len() < self.test.least || is_silent {
            return State::NotYet;
        }
        let has_time = self.windows.len() < self.test.limit;
        match self.settled_over().or_else(|| self.hidden_over()) {
            Some(n) if !(has_time && self.compiles(n)) => {
                let (since, class) = self.look_back(n);
                return State::Settled { since, class };
            }
            _ if has_time => return State::NotYet,
            _ => {}
        }
        let (since, class) = self.at_limit();
        State::Settled { since, class }
    }

    /// Whether it is so much faster in the last `n` windows than at first that a compiler must be
    /// at work. It rests between its tiers, and stands in its own queue where it has no core of
    /// its own, so a level is no sign of the end.
    fn compiles(&self, n: usize) -> bool {
        let level = median(&self.windows[self.windows.len() - n..]).unwrap_or(0.0);
        median(&self.windows[..3.min(n)]).is_some_and(|first| first < COMPILES * level)
    }

    /// The number of last windows whose noise hides whatever trend they have, if it does: their
    /// line is known to five times the tolerance over a stretch, and level as far as it is known.
    /// To wait for more would be to wait for the noise to end, and the laps know no better. A
    /// server that is as fast as at first needs one stretch of them, and one that is not two: a
    /// neighbour's burst is level as well, and takes less time than that.
    fn hidden_over(&self) -> Option<usize> {
        let (n, _) = self.known_to(5.0 * self.test.tolerance)?;
        let stretches = if self.look_back(n).1 == Class::Flat { 1 } else { 2 };
        let n = n.max(stretches * self.test.stretch);
        let is_level = || Line::through(&self.logs(n)).is_level();
        (n <= self.windows.len() && is_level()).then_some(n)
    }

    /// What is to be said when no line is known well enough and there is no more time: where the
    /// noise hides whatever trend there is, the machine is to blame and not the server, and the
    /// laps are as noisy. There is a trend if it lies beyond two standard errors, and if each third
    /// of the windows is beyond the one before it: a neighbour's burst lasts for several windows
    /// and bends a line as no independent noise would, but it makes a step and not a climb.
    fn at_limit(&self) -> (usize, Class) {
        let len = self.windows.len();
        let n = (len / 2).max(self.test.stretch).max(3).min(len);
        let line = Line::through(&self.logs(n));
        match line.is_level() || !climbs(&self.logs(n)) {
            true => self.look_back(n),
            false => (len, Class::NeverSteady),
        }
    }

    /// The logarithms of the last `n` windows.
    fn logs(&self, n: usize) -> Vec<f64> {
        let last = &self.windows[self.windows.len() - n..];
        last.iter().map(|v| v.max(f64::MIN_POSITIVE).ln()).collect()
    }

    /// The number of last windows that are steady, if they are.
    fn settled_over(&self) -> Option<usize> {
        let (n, line) = self.known_to(self.test.tolerance / 2.0)?;
        let rise = line.slope * self.test.stretch as f64;
        (rise.abs() <= self.test.tolerance).then_some(n)
    }

    /// The smallest number of last windows, from one stretch up, whose line is known to this
    /// precision over a stretch, and the line.
    fn known_to(&self, precision: f64) -> Option<(usize, Line)> {
        let mut n = self.test.stretch.max(3);
        while n <= self.windows.len() {
            let line = Line::through(&self.logs(n));
            if line.error * self.test.stretch as f64 <= precision {
                return Some((n, line));
            }
            n += 1 + n / 10;
        }
        None
    }

    /// Where the steady part began, given that the last `n` windows are steady: after the last
    /// window whose running median of nine is off the level by more than the noise explains.
    fn look_back(&self, n: usize) -> (usize, Class) {
        let steady = &self.windows[self.windows.len() - n..];
        let level = median(steady).unwrap_or(0.0);
        let noise = mad(steady).unwrap_or(0.0);
        // Five standard errors of a median of nine (1.2533 / √9 = 0.42 each): every window is
        // asked, and a burst moves the median of those it spares.
        let band = (2.0 * self.test.tolerance * level).max(5.0 * 0.42 * noise);
        let smooth = |i: usize| {
            let from = i.saturating_sub(4).min(self.windows.len().saturating_sub(9));
            let to = (from + 9).min(self.windows.len());
            median(&self.windows[from..to]).unwrap_or(0.0)
        };
        // The line tolerates a few older windows that are off; they are not steady all the same.
        let last_off =
            (0..self.windows.len() - n / 2).rev().find(|&i| (smooth(i) - level).abs() > band);
        let begun = median(&self.windows[..self.windows.len().min(5)]).unwrap_or(0.0);
        match last_off {
            // Whatever the noise: who began so far off is not flat, and another start is as slow.
            None if begun < BEGUN * level => (self.windows.len() - n, Class::WarmedUp),
            None if begun * BEGUN > level => (self.windows.len() - n, Class::SlowingDown),
            Some(i) if level - begun > band => (i + 1, Class::WarmedUp),
            Some(i) if begun - level > band => (i + 1, Class::SlowingDown),
            // A server that began at the level and came back to it was disturbed.
            _ => (0, Class::Flat),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::line::zigzag;
    use super::*;

    fn settle(curve: impl Iterator<Item = f64>) -> (usize, usize, Class) {
        let mut warmup = Warmup::new(Test::default());
        for (i, speed) in curve.enumerate() {
            if let State::Settled { since, class } = warmup.push(speed) {
                return (i + 1, since, class);
            }
        }
        panic!("the limit did not end it");
    }

    /// A fixed wobble of ± `share`.
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
    fn one_that_climbs_on_and_on_is_never_steady() {
        let (at, since, class) = settle((0..).map(|i| 1.05_f64.powi(i)));
        assert_eq!((at, since, class), (100, 100, Class::NeverSteady));
    }

    /// On a busy machine every server was "never steady", and each restart waited for the limit to
    /// say so.
    #[test]
    fn noise_that_hides_any_trend_is_no_trend() {
        let noisy = (0..).map(|i| 1000.0 * wobble(i, 0.5));
        assert_eq!(settle(noisy), (26, 0, Class::Flat));
        let climbing = (0..).map(|i| 1000.0 * 1.03_f64.powi(i as i32) * wobble(i, 0.5));
        assert_eq!(settle(climbing), (100, 100, Class::NeverSteady));
    }

    /// A neighbour that takes most of a core for a second here and there made flat servers "never
    /// steady" in one warm-up of three.
    #[test]
    fn bursts_that_last_for_several_windows_are_no_trend() {
        let burst = |i: usize| if (i / 9 * 7919 % 13) < 5 { 0.6 } else { 1.0 };
        let never = (0..100).filter(|shift| {
            let mut warmup = Warmup::new(Test { limit: 45, ..Test::default() });
            let ended = (0..45).find_map(|i| {
                let speed = 1000.0 * burst(i + 3 * shift) * wobble(i + shift, 0.1);
                match warmup.push(speed) {
                    State::Settled { class, .. } => Some(class),
                    State::NotYet => None,
                }
            });
            ended == Some(Class::NeverSteady)
        });
        let never = never.count();
        assert!(never <= 10, "{never} of 100");
    }

    /// A Java server that climbed from 1,000 to 30,000 answers a second was "flat", so noisy was it
    /// at the end, and its later starts were given half a second.
    #[test]
    fn who_began_at_a_tenth_is_not_flat_however_noisy_the_end() {
        let climb = |i: usize| 1.0 + 29.0 * (1.0 - (-(i as f64) / 20.0).exp());
        let mut warmup = Warmup::new(Test { limit: 50, ..Test::default() });
        let noisy = |i: usize| climb(i) * if i > 25 { wobble(i, 0.6) } else { 1.0 };
        let ended = (0..50).find_map(|i| match warmup.push(noisy(i)) {
            State::Settled { class, .. } => Some(class),
            State::NotYet => None,
        });
        assert_ne!(ended, Some(Class::Flat));
    }

    #[test]
    fn nothing_is_settled_before_the_least_number_of_windows() {
        let mut warmup = Warmup::new(Test { least: 30, ..Test::default() });
        let settled = (1..).find(|i| warmup.push(1000.0 * wobble(*i, 0.001)) != State::NotYet);
        assert_eq!((settled, warmup.windows().len()), (Some(30), 30));
        assert_eq!(warmup.windows()[0], 1000.0 * wobble(1, 0.001));
    }

    #[test]
    fn a_burst_after_a_level_start_is_not_a_warm_up() {
        let burst = |i: usize| if (8..16).contains(&i) { 600.0 } else { 1000.0 };
        let (_, since, class) = settle((0..).map(|i| {
            // Too noisy at first to be settled before the burst.
            burst(i) * wobble(i, if i < 8 { 0.4 } else { 0.01 })
        }));
        assert_eq!((since, class), (0, Class::Flat));
    }

    /// A neighbour made flat servers look as if they had warmed up, in two runs of five, and each
    /// later start was given as long: a quarter of the run was measured instead of a half.
    #[test]
    fn what_a_neighbour_makes_of_a_start_is_not_held_against_the_next() {
        let mut first = Warmup::new(Test::default());
        let disturbed = |i: usize| if i < 6 { 600.0 } else { 1000.0 } * wobble(i, 0.01);
        let class = (0..).find_map(|i| match first.push(disturbed(i)) {
            State::Settled { class, .. } => Some(class),
            State::NotYet => None,
        });
        assert_eq!(class, Some(Class::WarmedUp));
        let before = first.precedent(Class::WarmedUp);
        assert!(!before.compiles && before.windows > 10, "{before:?}");
        let mut next = Warmup::new(Test::default().again(&before));
        let settled = (0..10).map(|i| next.push(1000.0 * wobble(i, 0.01))).last();
        assert_eq!(settled, Some(State::Settled { since: 0, class: Class::Flat }));
    }

    #[test]
    fn windows_without_an_answer_do_not_break_it() {
        let once = settle((0..).map(|n| if n == 0 { 50.0 } else { 0.0 }));
        let each_third = settle((0..).map(|n| if n % 3 == 0 { 50.0 } else { 0.0 }));
        assert_eq!((once, each_third), ((10, 0, Class::Flat), (10, 0, Class::Flat)));
    }

    /// Of twelve virtual machines on one core, four were called steady after some four seconds, at
    /// twice the cost that they came down to in the ten seconds after.
    #[test]
    fn a_level_between_two_tiers_of_a_compiler_is_not_the_end() {
        let tiers = |i: usize| match i {
            0..5 => 1_000.0,
            5..40 => 12_000.0,
            _ => 25_000.0,
        };
        let (at, since, class) = settle((0..).map(|i| tiers(i) * wobble(i, 0.02)));
        assert_eq!((at, class), (100, Class::WarmedUp));
        assert!(since >= 40, "{since}");
    }

    /// Node compiles itself within three windows and is flat then, and its later starts were given
    /// the first of these.
    #[test]
    fn another_start_of_a_flat_server_gets_the_windows_that_filling_took() {
        let mut warmup = Warmup::new(Test::default());
        let speeds = [9.0, 14.0, 65.0, 96.0, 96.0, 90.0, 100.0, 94.0, 99.0, 97.0, 92.0, 98.0];
        speeds.iter().for_each(|speed| _ = warmup.push(*speed));
        let flat = warmup.precedent(Class::Flat);
        assert_eq!(flat.filling, 3);
        assert_eq!(Test::default().again(&flat).limit, 4);
    }

    /// A server of which each answer takes over a second was called steady before its first, and
    /// out of the experiment since it had none.
    #[test]
    fn nothing_is_said_before_the_first_answer() {
        let flat = Precedent { class: Class::Flat, windows: 10, compiles: false, filling: 0 };
        for test in [Test::default(), Test::default().again(&flat)] {
            let mut warmup = Warmup::new(test);
            for _ in 0..200 {
                assert_eq!(warmup.push(0.0), State::NotYet);
            }
            assert!(matches!(warmup.push(80.0), State::Settled { .. }));
        }
    }

    fn warmup(windows: Vec<f64>) -> Warmup {
        Warmup { test: Test::default(), windows }
    }

    #[test]
    fn another_start_is_given_what_the_first_one_took() {
        let test = Test { stretch: 10, tolerance: 0.02, least: 0, limit: 100 };
        let again = |class, windows, compiles, filling| {
            let again = test.again(&Precedent { class, windows, compiles, filling });
            assert_eq!((again.stretch, again.tolerance), (10, 0.02));
            (again.least, again.limit)
        };
        assert_eq!(again(Class::NeverSteady, 30, true, 5), (0, 100));
        assert_eq!(again(Class::Flat, 30, true, 5), (0, 6));
        assert_eq!(again(Class::Flat, 30, false, 100), (0, 100));
        for class in [Class::WarmedUp, Class::SlowingDown] {
            // Three times the filling, at least a stretch, at most what it took, and the limit.
            // Node runs at full speed after half a second, and got the twelve seconds of a JVM.
            assert_eq!(again(class, 100, true, 6), (18, 18));
            assert_eq!(again(class, 30, true, 2), (10, 10));
            assert_eq!(again(class, 30, true, 20), (30, 30));
            assert_eq!(again(class, 300, true, 50), (100, 100));
            assert_eq!(again(class, 30, false, 5), (0, 30));
            assert_eq!(again(class, 3, false, 5), (0, 10));
            assert_eq!(again(class, 300, false, 5), (0, 100));
        }
    }

    #[test]
    fn filling_ends_with_a_window_of_nine_tenths_that_is_no_exception() {
        let filling = |first: &[f64]| {
            let precedent = warmup([first, &[1000.0; 10]].concat()).precedent(Class::WarmedUp);
            assert_eq!((precedent.class, precedent.windows), (Class::WarmedUp, first.len() + 10));
            precedent.filling
        };
        assert_eq!(filling(&[]), 0);
        assert_eq!(filling(&[900.0, 900.0, 500.0, 500.0]), 0);
        assert_eq!(filling(&[899.0, 900.0, 900.0]), 1);
        // One fast window among slow ones, and a slow one among fast ones.
        assert_eq!(filling(&[950.0, 500.0, 500.0, 500.0]), 4);
        assert_eq!(filling(&[500.0, 950.0, 500.0]), 1);
        assert_eq!(warmup(Vec::new()).precedent(Class::Flat).filling, 0);
    }

    #[test]
    fn a_third_of_the_level_at_first_is_not_yet_a_compiler() {
        let compiles = |first: &[f64]| {
            warmup([first, &[900.0; 12]].concat()).precedent(Class::WarmedUp).compiles
        };
        assert!(compiles(&[299.0; 3]) && !compiles(&[300.0; 3]));
        // The median of the first three windows.
        assert!(compiles(&[299.0, 900.0, 299.0]) && !compiles(&[900.0, 299.0, 900.0]));
        assert!(compiles(&[299.0, 299.0]) && !compiles(&[299.0]));
        assert!(!warmup(vec![1.0, 9.0]).precedent(Class::WarmedUp).compiles);
    }

    #[test]
    fn a_trend_of_the_tolerance_is_settled_and_of_more_is_not() {
        for (rise, expected) in [(0.0019, true), (-0.0019, true), (0.0021, false), (-0.0021, false)]
        {
            let windows = (0..10).map(|i| (rise * f64::from(i)).exp()).collect();
            let settled = warmup(windows).state() != State::NotYet;
            assert_eq!(settled, expected, "{rise}");
        }
    }

    /// Ten windows of a flat server that alternate by `half` know their line to 1.670 × `half` over
    /// a stretch, and twelve to 1.269 × `half`: five times the tolerance is 0.1.
    #[test]
    fn a_level_line_that_is_known_to_five_times_the_tolerance_is_settled() {
        let settled_after = |half: f64| {
            let mut warmup = Warmup::new(Test::default());
            let logs = zigzag(100, half, 0.0);
            logs.iter().position(|log| warmup.push(log.exp()) != State::NotYet).map(|at| at + 1)
        };
        assert_eq!(settled_after(0.0595), Some(10));
        assert_eq!(settled_after(0.0602), Some(12));
        assert_eq!(settled_after(0.0785), Some(12));
        assert_eq!(settled_after(0.0792), Some(14));
    }

    #[test]
    fn what_is_off_by_twice_the_tolerance_is_not_of_the_steady_part() {
        let steady = [1000.0; 20];
        let after = |first: &[f64]| warmup([first, &steady].concat()).look_back(20);
        assert_eq!(after(&[]), (0, Class::Flat));
        assert_eq!(after(&[960.0; 9]), (0, Class::Flat));
        assert_eq!(after(&[959.0; 9]), (9, Class::WarmedUp));
        assert_eq!(after(&[1040.0; 9]), (0, Class::Flat));
        assert_eq!(after(&[1041.0; 9]), (9, Class::SlowingDown));
        // Four windows of nine do not move their median, five do.
        assert_eq!(after(&[959.0; 4]), (0, Class::Flat));
        assert_eq!(after(&[959.0; 5]), (5, Class::WarmedUp));
        // As far off as that, before and after windows that are further off.
        assert_eq!(after(&[[950.0; 9], [960.0; 9]].concat()), (9, Class::WarmedUp));
        assert_eq!(after(&[[960.0; 9], [950.0; 9]].concat()), (0, Class::Flat));
        assert_eq!(after(&[[1040.0; 9], [1050.0; 9]].concat()), (0, Class::Flat));
        // The newer half of the steady part is not asked.
        let late = [&[900.0; 9][..], &[1000.0; 11], &[900.0; 9]].concat();
        assert_eq!(warmup(late).look_back(20), (9, Class::WarmedUp));
        // At the level first, then not: disturbed.
        assert_eq!(after(&[[1000.0; 9], [500.0; 9]].concat()), (0, Class::Flat));
        // Windows in the older half of the steady part that are off are left out.
        let mut windows = [1000.0; 29];
        windows[..12].fill(900.0);
        assert_eq!(warmup(windows.to_vec()).look_back(20), (12, Class::WarmedUp));
    }

    /// The steady windows alternate between 800 and 1,200: their deviation is 1.4826 × 200, and
    /// what differs by less than 5 × 0.42 × 297 = 623 is not off.
    #[test]
    fn noise_hides_where_the_steady_part_began_and_not_that_it_began_slowly() {
        let steady: Vec<f64> =
            (0..20_usize).map(|i| if i.is_multiple_of(2) { 800.0 } else { 1200.0 }).collect();
        let after = |first: f64| warmup([&[first; 9][..], &steady].concat()).look_back(20);
        assert_eq!(after(370.0), (9, Class::WarmedUp));
        assert_eq!(after(1630.0), (9, Class::SlowingDown));
        // Some windows of the steady part are older than the last 20.
        let off = [&[370.0; 9][..], &steady, &[1000.0; 4]].concat();
        assert_eq!(warmup(off).look_back(20), (9, Class::WarmedUp));
        // Within the noise, and still less than 0.7 of the level or more than 1 / 0.7.
        assert_eq!(after(690.0), (9, Class::WarmedUp));
        assert_eq!(after(710.0), (0, Class::Flat));
        assert_eq!(after(1420.0), (0, Class::Flat));
        assert_eq!(after(1440.0), (9, Class::SlowingDown));
        // It is the first five windows that decide.
        let four = |first: f64| warmup([&[first; 2][..], &steady].concat()).look_back(20);
        assert_eq!(four(100.0), (0, Class::Flat));
    }

    #[test]
    fn at_the_limit_only_a_trend_that_climbs_is_never_steady() {
        // The last half of the windows is asked.
        let class = |last: Vec<f64>| {
            let logs = [vec![0.0; last.len()], last].concat();
            warmup(logs.into_iter().map(f64::exp).collect()).at_limit().1
        };
        let climb = (0..30).map(|i| 0.01 * f64::from(i)).collect();
        assert_eq!(class(climb), Class::NeverSteady);
        // Each third is beyond the one before it, and the line is level within its error.
        let noisy = zigzag(30, 0.3, 0.005);
        assert!(climbs(&noisy) && Line::through(&noisy).is_level());
        assert_ne!(class(noisy), Class::NeverSteady);
        // The line rises, and the last third is where the one before it was.
        let saw: Vec<f64> =
            (0..30).map(|i| 0.01 * f64::from(if i < 20 { i } else { i - 10 })).collect();
        assert!(!climbs(&saw) && !Line::through(&saw).is_level());
        assert_ne!(class(saw), Class::NeverSteady);
    }
}
