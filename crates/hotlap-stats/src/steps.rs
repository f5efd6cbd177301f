//! Finds where a level changes along a sequence of versions. Most of the versions are not
//! measured.
//!
//! A version's level is the logarithm of its figure, relative to the first version. Most versions
//! keep the level of the version before. A few change it to a new level, and any level is equally
//! likely a priori. Given measurements of some versions, the forward-backward algorithm (Rabiner,
//! *A tutorial on hidden Markov models*, 1989, section III) yields the probability that a version
//! has a step. Levels are points of a grid, and a new level does not depend on the old one. The
//! computation therefore takes time proportional to the number of versions times the number of
//! points.
//!
//! The next versions to measure divide the probability into equal parts, as in bisection with noisy
//! answers (Horstein, *Sequential transmission using noiseless feedback*, 1963).

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// The expected number of versions with a step, besides the one that is sought.
const MORE_STEPS: f64 = 0.5;

/// A change counts as a step if it is at least this share of the difference between the first and
/// the last version.
const STEP: f64 = 1.0 / 3.0;

/// Two versions differ if this many standard errors lie between them. Three is a convention. With
/// normal errors, equal versions differ by more in 1 of 370 cases.
const DIFFERENT: f64 = 3.0;

/// The share of measurements that are far off, for example because something disturbed them.
const DISTURBED: f64 = 0.02;

/// A disturbed measurement has this many times the usual error.
const DISTURBANCE: f64 = 6.0;

/// The smallest standard error of a measurement, since even builds of the same source differ.
const LEAST_ERROR: f64 = 0.002;

/// How far the parts into which the probability is divided may differ from equal parts.
const TOLERANCE: f64 = 0.02;

/// The number of grid points in the smallest standard error.
const POINTS: f64 = 3.0;

/// The largest number of grid points, apart from rounding.
const MOST_POINTS: usize = 4_001;

/// A measurement of a version.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LevelReading {
    /// The place of the version in the sequence. The first version has place 0.
    pub place: usize,
    /// The logarithm of the version's figure, relative to the first version.
    pub level: f64,
    /// The standard error of the level.
    pub error: f64,
}

impl LevelReading {
    fn with_least_error(&self) -> Self {
        Self { error: self.error.max(LEAST_ERROR), ..*self }
    }
}

/// What is known about the step of one version.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VersionStep {
    /// The probability that the version has a step, in the direction of the last version.
    pub probability: f64,
    /// The expected size of the step, in log units, if there is one.
    pub size: f64,
    /// The standard deviation of the size.
    pub error: f64,
}

impl VersionStep {
    /// Returns a measured change with this size, in log units, and this standard error.
    pub fn measured(size: f64, error: f64) -> Self {
        Self { probability: 1.0, size, error }
    }

    /// Returns whether the change is over three standard errors, so that the two versions differ.
    pub fn is_certain(&self) -> bool {
        self.size.abs() > DIFFERENT * self.error
    }

    /// Returns the mean of some readings of one version, weighted by inverse variance, as a step
    /// from the first version. `None` without readings.
    pub fn mean(readings: &[LevelReading]) -> Option<Self> {
        mean(readings.iter().map(LevelReading::with_least_error))
    }
}

/// The steps of a sequence of versions.
#[derive(Debug, Clone, PartialEq)]
pub struct Steps {
    /// The steps of the versions at places 1, 2 and so on.
    steps: Vec<VersionStep>,
    /// The difference between the first and the last version.
    whole: VersionStep,
}

impl Steps {
    /// Finds the steps of the versions at places 1 to `last`. `None` without a measurement of the
    /// last version, because the size and direction of a step are then unknown.
    pub fn of(last: usize, readings: &[LevelReading]) -> Option<Self> {
        let readings: Vec<LevelReading> =
            readings.iter().map(LevelReading::with_least_error).collect();
        let whole = mean(readings.iter().copied().filter(|reading| reading.place == last))?;
        let grid = Grid::of(&readings);
        let weights: Vec<Vec<f64>> = (1..=last)
            .map(|place| {
                let own = readings.iter().filter(|reading| reading.place == place);
                own.fold(vec![1.0; grid.levels.len()], |weights, reading| {
                    grid.weigh(weights, reading)
                })
            })
            .collect();
        let jump = MORE_STEPS.min(last as f64 / 4.0) / last as f64;
        let least = (STEP * whole.size.abs() / grid.spacing).ceil() as usize;
        let steps = grid.steps(&weights, jump, (least.max(1), whole.size > 0.0));
        Some(Self { steps, whole })
    }

    /// Returns the difference between the first and the last version.
    pub fn whole(&self) -> VersionStep {
        self.whole
    }

    /// Returns what is known about the version at a place, from 1 on.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn at(&self, place: usize) -> VersionStep {
        self.steps[place - 1]
    }

    /// Returns groups of versions that measurements can tell apart, each with the probability that
    /// it has a step. A group ends with a version that can be measured. The last version always
    /// ends a group.
    pub fn groups(&self, can_measure: impl Fn(usize) -> bool) -> Vec<(RangeInclusive<usize>, f64)> {
        let last = self.steps.len();
        let (mut groups, mut first, mut sum) = (Vec::new(), 1, 0.0);
        for place in 1..=last {
            // Two steps in one group are so rare that their probabilities may be added.
            sum += self.at(place).probability;
            if place == last || can_measure(place) {
                groups.push((first..=place, sum.min(1.0)));
                (first, sum) = (place + 1, 0.0);
            }
        }
        groups
    }

    /// Returns the places of one or two versions whose measurement tells the most about where the
    /// step is. `None` if no measurement can tell more, for example because one group has the step
    /// with a probability of at least `sure`.
    pub fn next(&self, can_measure: impl Fn(usize) -> bool, sure: f64) -> Option<Vec<usize>> {
        let open: Vec<(RangeInclusive<usize>, f64)> =
            self.groups(can_measure).into_iter().filter(|(_, p)| *p < sure).collect();
        let sum: f64 = open.iter().map(|(_, probability)| probability).sum();
        let is_found = self.steps.iter().map(|step| step.probability).sum::<f64>() - sum > 0.5;
        if is_found && sum < 0.5 || open.len() < 2 {
            return None;
        }
        let last = self.steps.len();
        let at = |share: f64| {
            let mut below = 0.0;
            let reaches = |(_, probability): &&(RangeInclusive<usize>, f64)| {
                below += probability;
                below >= (share - TOLERANCE) * sum
            };
            open.iter().find(reaches).or(open.last()).map(|(places, _)| *places.end())
        };
        let (low, high) = (at(1.0 / 3.0)?, at(2.0 / 3.0)?);
        // A measurement of the version before the group shows whether the step is earlier.
        let before = |place: usize| {
            let index = open.iter().position(|(places, _)| *places.end() == place);
            let first = index.map_or(place, |index| *open[index].0.start());
            (first > 1).then(|| first - 1)
        };
        let mut places: Vec<usize> = match low == high {
            true => before(low).into_iter().chain([high]).collect(),
            false => vec![low, high],
        };
        // The last version is measured in any case.
        places.retain(|place| *place < last);
        (!places.is_empty()).then_some(places)
    }
}

/// Returns the mean of some readings, weighted by inverse variance. `None` without readings.
fn mean(readings: impl Iterator<Item = LevelReading>) -> Option<VersionStep> {
    let (mut sum, mut weights) = (0.0, 0.0);
    for reading in readings {
        let weight = reading.error.powi(-2);
        sum += weight * reading.level;
        weights += weight;
    }
    (weights > 0.0).then(|| VersionStep::measured(sum / weights, weights.powf(-0.5)))
}

/// The levels that a version may have.
struct Grid {
    levels: Vec<f64>,
    spacing: f64,
    /// The index of level 0, which the first version has.
    zero: usize,
}

impl Grid {
    /// Returns a grid that contains all readings.
    fn of(readings: &[LevelReading]) -> Self {
        let errors = readings.iter().map(|reading| reading.error);
        let (least, most) = errors.fold((f64::MAX, 0.0_f64), |(a, b), e| (a.min(e), b.max(e)));
        let levels = readings.iter().map(|reading| reading.level);
        let (low, high) = levels.fold((0.0_f64, 0.0_f64), |(a, b), l| (a.min(l), b.max(l)));
        let (low, high) = (low - 4.0 * most, high + 4.0 * most);
        let spacing = (least / POINTS).max((high - low) / MOST_POINTS as f64);
        let (zero, above) = ((-low / spacing).ceil() as usize, (high / spacing).ceil() as usize);
        let levels = (0..=zero + above).map(|point| (point as f64 - zero as f64) * spacing);
        Self { levels: levels.collect(), spacing, zero }
    }

    /// Multiplies the weights of all levels by the likelihood of a reading.
    fn weigh(&self, weights: Vec<f64>, reading: &LevelReading) -> Vec<f64> {
        let density = |off: f64, error: f64| (-0.5 * (off / error).powi(2)).exp() / error;
        let likelihood = |level: &f64| {
            let off = level - reading.level;
            (1.0 - DISTURBED) * density(off, reading.error)
                + DISTURBED * density(off, DISTURBANCE * reading.error)
        };
        weights.iter().zip(&self.levels).map(|(weight, l)| weight * likelihood(l)).collect()
    }

    /// Returns the steps, given the weights of all levels for each version after the first. `jump`
    /// is the prior probability of a change. A step spans at least `least` points, upwards or
    /// downwards.
    fn steps(
        &self,
        weights: &[Vec<f64>],
        jump: f64,
        (least, is_up): (usize, bool),
    ) -> Vec<VersionStep> {
        let points = self.levels.len();
        let any = jump / points as f64;
        let mut first = vec![0.0; points];
        first[self.zero] = 1.0;
        let mut forward = vec![first];
        for own in weights {
            let before = &forward[forward.len() - 1];
            let moved = before.iter().map(|p| (1.0 - jump) * p + any);
            forward.push(normalised(moved.zip(own).map(|(p, weight)| p * weight).collect()));
        }
        let mut steps = Vec::with_capacity(weights.len());
        let mut after = vec![1.0; points];
        for (place, own) in weights.iter().enumerate().rev() {
            let before = &forward[place];
            let seen: Vec<f64> = own.iter().zip(&after).map(|(weight, p)| weight * p).collect();
            steps.push(self.step(before, &seen, (jump, any), (least, is_up)));
            let sum: f64 = seen.iter().sum();
            after = normalised(seen.iter().map(|p| (1.0 - jump) * p + any * sum).collect());
        }
        steps.reverse();
        steps
    }

    /// Returns the step from one version to the next. `before` has the probabilities of the earlier
    /// version's levels. `seen` has the likelihood of all readings from the later version on.
    fn step(
        &self,
        before: &[f64],
        seen: &[f64],
        (jump, any): (f64, f64),
        (least, is_up): (usize, bool),
    ) -> VersionStep {
        let points = before.len();
        let all: f64 =
            before.iter().zip(seen).map(|(b, s)| s * ((1.0 - jump) * b + any)).sum::<f64>();
        // `sums` has the moments 0, 1 and 2 of the earlier version's levels, from `least` points
        // below `to` downwards (or above, for a step down). `sizes` has the same moments of the
        // size of a step.
        let (mut sums, mut sizes) = ([0.0; 3], [0.0; 3]);
        for n in least..points {
            let (from, to) = match is_up {
                true => (n - least, n),
                false => (points - 1 - (n - least), points - 1 - n),
            };
            let (own, level) = (self.levels[from], self.levels[to]);
            (0..3).for_each(|power| sums[power] += before[from] * own.powi(power as i32));
            let [sum, first, second] = sums;
            let squares = level * level * sum - 2.0 * level * first + second;
            let weight = seen[to] * any;
            sizes[0] += weight * sum;
            sizes[1] += weight * (level * sum - first);
            sizes[2] += weight * squares;
        }
        let [found, size, square] = sizes;
        if !(all > 0.0 && found > 0.0) {
            return VersionStep { probability: 0.0, size: 0.0, error: 0.0 };
        }
        let size = size / found;
        let error = (square / found - size * size).max(0.0).sqrt();
        VersionStep { probability: (found / all).min(1.0), size, error }
    }
}

fn normalised(mut weights: Vec<f64>) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum.max(f64::MIN_POSITIVE));
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(place: usize, level: f64) -> LevelReading {
        LevelReading { place, level, error: 0.005 }
    }

    fn probabilities(last: usize, readings: &[LevelReading]) -> Vec<f64> {
        let steps = Steps::of(last, readings).unwrap();
        (1..=last).map(|place| steps.at(place).probability).collect()
    }

    #[test]
    fn without_measurements_in_between_every_version_is_equally_likely() {
        let found = probabilities(4, &[reading(4, 0.05)]);
        assert!(found.iter().all(|p| (0.22..0.27).contains(p)), "{found:?}");
        assert_eq!(Steps::of(4, &[reading(3, 0.05)]), None, "the last version is not measured");
    }

    #[test]
    fn measurements_on_both_sides_of_a_version_find_its_step() {
        for direction in [1.0, -1.0] {
            let readings =
                [reading(8, 0.05 * direction), reading(3, 0.001), reading(4, 0.051 * direction)];
            let steps = Steps::of(8, &readings).unwrap();
            assert!(steps.at(4).probability > 0.98, "{steps:?}");
            assert!((steps.at(4).size - 0.05 * direction).abs() < 0.005, "{steps:?}");
            assert!((5..=8).all(|place| steps.at(place).probability < 0.02), "{steps:?}");
            assert_eq!(steps.next(|_| true, 0.95), None);
        }
    }

    #[test]
    fn two_steps_are_both_found() {
        let readings =
            [reading(9, 0.1), reading(2, 0.0), reading(3, 0.05), reading(6, 0.05), reading(7, 0.1)];
        let found = probabilities(9, &readings);
        assert!(found[2] > 0.9 && found[6] > 0.9, "{found:?}");
    }

    #[test]
    fn the_next_measurements_divide_the_probability() {
        let steps = Steps::of(9, &[reading(9, 0.05)]).unwrap();
        assert_eq!(steps.next(|_| true, 0.95), Some(vec![3, 6]));
        // Versions 3 to 6 do not build.
        let can = |place: usize| !(3..=6).contains(&place);
        assert_eq!(steps.next(can, 0.95), Some(vec![2, 7]));
        let steps = Steps::of(9, &[reading(9, 0.05), reading(2, 0.0), reading(7, 0.05)]).unwrap();
        assert_eq!(steps.next(can, 0.95), None, "3 to 7 cannot be told apart");
        let groups = steps.groups(can);
        let (places, probability) = groups.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert!(*places == (3..=7) && *probability > 0.95, "{groups:?}");
    }

    /// A measurement that is far off must not exclude the right version for good.
    #[test]
    fn a_disturbed_measurement_can_be_outvoted() {
        let mut readings = vec![reading(8, 0.05), reading(4, 0.05), reading(5, 0.0)];
        readings.extend([reading(4, 0.0), reading(4, 0.001), reading(5, 0.05), reading(5, 0.05)]);
        readings.extend([reading(4, -0.001), reading(5, 0.049)]);
        assert!(probabilities(8, &readings)[4] > 0.9);
    }
}
