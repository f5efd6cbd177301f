//! Removes the effect of the speed of the server's cores from the windows of a warm-up.

/// By how many per cent a typical server's cost rises if the gauge's system calls take 1% longer.
/// On a busy host, five servers had slopes from 0.6 to 2.9 (docs/rules.md, *Speed of the cores*).
pub const USUAL_SLOPE: f64 = 1.5;

/// The largest slope of a server.
const STEEPEST: f64 = 3.0;

/// Windows this far apart are compared. The speed of the cores changes more from one of them to the
/// other than from a window to the next. A server that warms up changes little meanwhile.
const APART: usize = 3;

/// The usual slope counts as much as compared windows whose squared changes of the gauge have this
/// sum. With windows of 100 ms on a busy host, 20 windows have a sum of 0.15 to 0.4.
const USUAL_WEIGHT: f64 = 0.02;

/// One window of a warm-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GaugedWindow {
    /// The speed of the server, in a unit that is the same for all windows.
    pub speed: f64,
    /// The gauge divided by its usual value: larger if the cores are slower. 1 if unknown.
    pub slowness: f64,
}

/// A window of this speed on cores of the usual speed.
impl From<f64> for GaugedWindow {
    fn from(speed: f64) -> Self {
        Self { speed, slowness: 1.0 }
    }
}

/// Returns the speed of each window at the usual speed of the cores.
pub(super) fn at_usual_speed(windows: &[GaugedWindow]) -> Vec<f64> {
    let slope = slope(windows);
    windows.iter().map(|window| window.speed * window.slowness.powf(slope)).collect()
}

/// Returns by how many per cent the server's cost rises if the gauge's system calls take 1% longer.
/// The slope is a regression of changes on changes, so it does not depend on the server's trend. It
/// is moved toward the usual slope (ridge regression: Hoerl and Kennard, Technometrics 12, 1970).
fn slope(windows: &[GaugedWindow]) -> f64 {
    let (mut squares, mut products) = (USUAL_WEIGHT, USUAL_WEIGHT * USUAL_SLOPE);
    for (window, later) in windows.iter().zip(windows.iter().skip(APART)) {
        let slower = (window.speed / later.speed).ln();
        let gauge = (later.slowness / window.slowness).ln();
        if slower.is_finite() && gauge.is_finite() {
            squares += gauge * gauge;
            products += gauge * slower;
        }
    }
    (products / squares).clamp(0.0, STEEPEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns windows of a server with this slope, which becomes faster by `rise` per window.
    fn windows(slope: f64, rise: f64) -> Vec<GaugedWindow> {
        let window = |i: u32| {
            let slowness = 1.0 + f64::from(i * 7919 % 13) / 60.0;
            let speed = 1000.0 * (rise * f64::from(i)).exp() / slowness.powf(slope);
            GaugedWindow { speed, slowness }
        };
        (0..30).map(window).collect()
    }

    /// Regression test: every server was adjusted by the usual slope. On a busy host, the noise of
    /// a server of slope 0.6 rose from 3.8% to 8.4%, so nobody saw that it became faster.
    #[test]
    fn each_server_has_its_own_slope() {
        for own in [0.6, 1.5, 2.4] {
            for rise in [0.0, 0.004] {
                let found = slope(&windows(own, rise));
                assert!((found - own).abs() < 0.12, "{own}: {found}");
            }
        }
        let speeds = at_usual_speed(&windows(0.6, 0.0));
        assert!(speeds.iter().all(|speed| (speed / 1000.0 - 1.0).abs() < 0.03), "{speeds:?}");
    }

    #[test]
    fn windows_that_tell_nothing_have_the_usual_slope() {
        assert_eq!(slope(&[]), USUAL_SLOPE);
        assert_eq!(slope(&[50.0, 60.0, 70.0, 80.0, 0.0].map(GaugedWindow::from)), USUAL_SLOPE);
    }
}
