//! Removes the effect of the speed of the server's cores from the figures of laps.
//!
//! A core may be fast in one lap and slow in the next. A gauge on the same core shows how fast the
//! core was. A regression of figures on gauges predicts what each lap would show at the mean speed
//! (Cochran, "Sampling Techniques", third edition, 1977, chapter 7). Figures and gauges are
//! logarithms. So the slope says by how many per cent a figure changes if a system call takes 1%
//! longer.
//!
//! Programs have different slopes, possibly because some need more memory than others. Each
//! program's own slope is uncertain, so it is moved toward the mean slope. A less certain slope
//! moves further (Morris, "Parametric empirical Bayes inference", JASA 78, 1983). The mean and the
//! variance of slopes are DerSimonian and Laird's ("Meta-analysis in clinical trials", Controlled
//! Clinical Trials 7, 1986).

use std::collections::BTreeMap;

use crate::reading::squares_within;
use crate::student::two_sided_p;

/// Figures are adjusted only if chance alone produces such a mean slope with at most this
/// probability. On a machine of steady speed, figures are hardly ever adjusted.
const ALPHA: f64 = 1e-4;

/// The smallest number of degrees of freedom for a slope.
const LEAST_DF: usize = 8;

/// The upper limit of slopes. On a busy host, five servers had slopes from 0.6 to 2.9.
pub(crate) const STEEPEST: f64 = 4.0;

/// A lap's figure, and how slow the server's cores were during the lap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GaugedLap {
    /// The program that the server runs. Each program has its own slope.
    pub program: usize,
    /// The server and the restart. The server's level may differ between starts.
    pub start: (usize, u32),
    /// The logarithm of the lap's figure: a time, which is longer on a slower core.
    pub figure: f64,
    /// The logarithm of the lap's gauge, minus the mean over all laps on the same machine.
    pub gauge: f64,
}

/// How the figures of servers depend on the speed of their cores.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreSpeed {
    mean: f64,
    /// The slopes of programs with enough laps.
    slopes: BTreeMap<usize, f64>,
}

/// A slope, the variance of its error, and its degrees of freedom.
#[derive(Debug, Clone, Copy)]
struct Slope {
    slope: f64,
    variance: f64,
    df: usize,
}

impl CoreSpeed {
    /// Fits the slopes. Only differences between laps of one restart enter the fit, because the
    /// server itself may differ between restarts. `None` if figures do not depend on the gauge, or
    /// if there are too few laps to tell.
    pub fn of(laps: &[GaugedLap]) -> Option<Self> {
        let mut programs = BTreeMap::<usize, Vec<GaugedLap>>::new();
        for lap in laps.iter().filter(|lap| lap.figure.is_finite() && lap.gauge.is_finite()) {
            programs.entry(lap.program).or_default().push(*lap);
        }
        let (mut own, mut rest) = (BTreeMap::<usize, Slope>::new(), Vec::new());
        for (program, laps) in programs {
            match Slope::of(&laps) {
                Some(slope) => _ = own.insert(program, slope),
                None => rest.extend(laps),
            }
        }
        // Programs with few laps have one slope together, which counts only toward the mean.
        let slopes: Vec<Slope> = own.values().copied().chain(Slope::of(&rest)).collect();
        let (fixed, precision) = mean(&slopes, 0.0)?;
        let df: usize = slopes.iter().map(|slope| slope.df).sum();
        if fixed < 0.0 || two_sided_p(fixed * precision.sqrt(), df as f64) > ALPHA {
            return None;
        }
        // DerSimonian and Laird 1986: the variance of slopes between programs, by moments.
        let spread: f64 = slopes.iter().map(|s| (s.slope - fixed).powi(2) / s.variance).sum();
        let squares: f64 = slopes.iter().map(|s| s.variance.powi(-2)).sum();
        let excess = spread - (slopes.len() - 1) as f64;
        let free = precision - squares / precision;
        let between = if free > 0.0 { (excess / free).max(0.0) } else { 0.0 };
        let (mean, _) = mean(&slopes, between)?;
        let toward_mean = |own: &Slope| {
            let trust = between / (between + own.variance);
            (trust * own.slope + (1.0 - trust) * mean).clamp(0.0, STEEPEST)
        };
        let slopes = own.iter().map(|(program, own)| (*program, toward_mean(own))).collect();
        Some(Self { mean: mean.clamp(0.0, STEEPEST), slopes })
    }

    /// Returns the factor that turns a program's figure into its figure at the mean speed. A
    /// program with too few laps for a slope has the mean slope.
    pub fn factor(&self, program: usize, gauge: f64) -> f64 {
        (-self.slopes.get(&program).unwrap_or(&self.mean) * gauge).exp()
    }
}

/// Returns the mean of slopes and its precision, if the variance between programs is `between`.
/// `None` without slopes.
fn mean(slopes: &[Slope], between: f64) -> Option<(f64, f64)> {
    let (sum, precision) = slopes.iter().fold((0.0, 0.0), |(sum, precision), own| {
        let weight = 1.0 / (own.variance + between);
        (sum + weight * own.slope, precision + weight)
    });
    (precision > 0.0).then(|| (sum / precision, precision))
}

impl Slope {
    /// Fits the slope of laps by least squares, with a separate level for each start of a server.
    fn of(laps: &[GaugedLap]) -> Option<Self> {
        let mut starts = BTreeMap::<(usize, u32), Vec<(f64, f64)>>::new();
        for lap in laps {
            starts.entry(lap.start).or_default().push((lap.gauge, lap.figure));
        }
        let df = laps.len().checked_sub(starts.len() + 1).filter(|df| *df >= LEAST_DF)?;
        let [xx, xy, yy] = squares_within(starts.values());
        if xx <= 0.0 {
            return None;
        }
        let slope = xy / xx;
        let rest = (yy - slope * xy).max(f64::EPSILON) / df as f64;
        Some(Self { slope, variance: rest / xx, df })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns laps of a server whose cost has this slope, on a core whose speed changes. A part of
    /// the cost, at most `noise`, is independent of the gauge.
    fn laps(server: usize, slope: f64, noise: f64) -> impl Iterator<Item = GaugedLap> {
        (0..3).flat_map(move |restart| {
            (0..12).map(move |n: u32| {
                let gauge = 0.1 * f64::from(n * 5 % 12) / 12.0;
                let own = noise * (f64::from(n * 7 % 12) / 6.0 - 1.0);
                let figure = f64::from(restart) + slope * gauge + own;
                GaugedLap { program: server, start: (server, restart), figure, gauge }
            })
        })
    }

    #[test]
    fn a_lap_on_a_slow_core_is_adjusted_to_the_mean_speed() {
        let both: Vec<GaugedLap> = laps(0, 2.0, 0.001).chain(laps(1, 1.0, 0.001)).collect();
        let speed = CoreSpeed::of(&both).unwrap();
        assert!((speed.factor(0, 0.1) - (-0.2_f64).exp()).abs() < 0.002, "{speed:?}");
        assert!((speed.factor(1, -0.1) - 0.1_f64.exp()).abs() < 0.002, "{speed:?}");
        assert_eq!(speed.factor(0, 0.0), 1.0);
        // A program without laps has the mean slope.
        assert!((speed.factor(2, 0.1) - (-0.15_f64).exp()).abs() < 0.002, "{speed:?}");
    }

    #[test]
    fn an_uncertain_slope_is_moved_toward_the_mean() {
        let all: Vec<GaugedLap> =
            [(0, 2.0, 0.001), (1, 1.0, 0.001), (2, 1.5, 0.001), (3, 6.0, 0.3)]
                .into_iter()
                .flat_map(|(server, slope, noise)| laps(server, slope, noise))
                .collect();
        let speed = CoreSpeed::of(&all).unwrap();
        let slope = |server| -speed.factor(server, 1.0).ln();
        assert!((slope(0) - 2.0).abs() < 0.02 && (slope(3) - 1.5).abs() < 0.5, "{speed:?}");
    }

    #[test]
    fn figures_that_do_not_depend_on_the_gauge_are_not_adjusted() {
        assert_eq!(CoreSpeed::of(&laps(0, 0.0, 0.1).collect::<Vec<_>>()), None);
        let steady = laps(0, 2.0, 0.01).map(|lap| GaugedLap { gauge: 0.0, ..lap });
        assert_eq!(CoreSpeed::of(&steady.collect::<Vec<_>>()), None);
        let few: Vec<GaugedLap> = laps(0, 2.0, 0.001).step_by(6).collect();
        assert_eq!(CoreSpeed::of(&few), None, "two laps in each restart");
        // Four such servers have enough laps together.
        let all: Vec<GaugedLap> = (0..4).flat_map(|n| laps(n, 2.0, 0.001).step_by(6)).collect();
        assert!(CoreSpeed::of(&all).is_some());
        assert_eq!(CoreSpeed::of(&[]), None);
    }
}
