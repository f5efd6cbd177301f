//! Removes the effect of the speed of the server's cores from the windows of a warm-up.

use crate::core_speed::STEEPEST;

/// By how many per cent a typical server's cost rises if the gauge's system calls take 1% longer.
/// On a busy host, five servers had slopes from 0.6 to 2.9 (docs/rules.md, *Speed of the cores*).
pub const USUAL_SLOPE: f64 = 1.5;

/// The distance, in windows, between two windows that are compared. Over this distance, the speed
/// of the cores changes more than between neighbouring windows. A server that warms up changes
/// little in this time.
const APART: usize = 3;

/// The weight of the slope that is assumed, as a sum of changes of the gauge's logarithm. On a busy
/// host, 20 windows of 100 ms have a sum of about 1.5.
const ASSUMED_WEIGHT: f64 = 0.15;

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

/// Returns the speed that each window would have at the usual speed of the cores.
pub(super) fn at_usual_speed(windows: &[GaugedWindow], slope: f64) -> Vec<f64> {
    windows.iter().map(|window| window.speed * window.slowness.powf(slope)).collect()
}

/// Returns by how many per cent the server's cost rises if the gauge's system calls take 1%
/// longer. The slope is the median of the slopes between compared windows, each weighted by the
/// change of the gauge (least absolute deviations). So a jump of the server's speed has little
/// effect. `assumed` counts as one more slope. The result is at least 0 and at most [`STEEPEST`].
pub(super) fn slope(windows: &[GaugedWindow], assumed: f64) -> f64 {
    let between = |(window, later): (&GaugedWindow, &GaugedWindow)| {
        let gauge = (later.slowness / window.slowness).ln();
        ((window.speed / later.speed).ln() / gauge, gauge.abs())
    };
    let mut slopes: Vec<(f64, f64)> = windows
        .iter()
        .zip(windows.iter().skip(APART))
        .map(between)
        .filter(|(slope, weight)| slope.is_finite() && weight.is_finite())
        .chain([(assumed, ASSUMED_WEIGHT)])
        .collect();
    slopes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = slopes.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let middle = slopes.iter().find(|(_, weight)| {
        left -= weight;
        left <= 0.0
    });
    middle.map_or(assumed, |(slope, _)| slope.clamp(0.0, STEEPEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns windows of a server that has this slope and becomes faster by `rise` per window.
    fn windows(slope: f64, rise: f64) -> Vec<GaugedWindow> {
        let window = |i: u32| {
            let slowness = 1.0 + f64::from(i * 7919 % 13) / 60.0;
            let speed = 1000.0 * (rise * f64::from(i)).exp() / slowness.powf(slope);
            GaugedWindow { speed, slowness }
        };
        (0..30).map(window).collect()
    }

    /// Regression: every server was adjusted by the usual slope. On a busy host, the adjustment
    /// raised the noise of a server of slope 0.6 from 3.8% to 8.4%. This noise hid that the server
    /// became faster.
    #[test]
    fn each_server_has_its_own_slope() {
        for own in [0.6, 1.5, 2.4] {
            for rise in [0.0, 0.004] {
                let found = slope(&windows(own, rise), USUAL_SLOPE);
                assert!((found - own).abs() < 0.15, "{own}: {found}");
            }
        }
        let speeds = at_usual_speed(&windows(0.6, 0.0), 0.6);
        assert!(speeds.iter().all(|speed| (speed / 1000.0 - 1.0).abs() < 1e-9), "{speeds:?}");
    }

    #[test]
    fn code_that_is_compiled_within_a_few_windows_does_not_change_the_slope() {
        let mut windows = windows(0.6, 0.0);
        windows[..5].iter_mut().for_each(|window| window.speed /= 10.0);
        let found = slope(&windows, USUAL_SLOPE);
        assert!((found - 0.6).abs() < 0.12, "{found}");
    }

    #[test]
    fn the_assumed_slope_applies_if_the_gauge_does_not_change() {
        assert_eq!(slope(&[], 0.8), 0.8);
        assert_eq!(slope(&[50.0, 60.0, 70.0, 80.0, 0.0].map(GaugedWindow::from), 0.8), 0.8);
    }
}
