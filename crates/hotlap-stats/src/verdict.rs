//! Verdicts and ranks: which differences between servers count.
//!
//! A verdict needs three things: at least [`LEAST_RESTARTS`] restarts, a p-value that holds even
//! though several comparisons are made ([`holm`]), and a difference larger than what separates two
//! copies of one program ([`Floor`]). Without enough restarts, or where the noise floor is unknown,
//! a comparison is inconclusive.

use serde::{Deserialize, Serialize};

use crate::compare::Effect;

/// Fewer restarts than this give no verdict. Restarts differ, so an interval needs to know by how
/// much: from one restart it says nothing about the next one (72 % of such intervals hold the
/// truth, see `tests/coverage`), and from two it rests on one degree of freedom.
pub const LEAST_RESTARTS: u32 = 3;

/// The A/A control counts as different when even the near end of its interval is further from 1
/// than this share.
pub const CONTROL_DIFFERS: f64 = 0.05;

/// How a server compares with another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// More of the good or less of the bad, beyond the noise.
    Better,
    /// The other way round, beyond the noise.
    Worse,
    /// No difference that could be measured.
    NoDifference,
    /// The data do not permit a verdict.
    Inconclusive(Why),
}

/// Why a comparison is inconclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// It rests on fewer than [`LEAST_RESTARTS`] restarts.
    TooFewRestarts,
    /// The A/A control has no interval from enough restarts, so the noise is unknown.
    NoiseUnknown,
    /// The A/A control differs from the reference ([`CONTROL_DIFFERS`]).
    ControlDiffers,
}

impl Verdict {
    /// Whether the two servers were told apart.
    #[must_use]
    pub fn differs(self) -> bool {
        matches!(self, Self::Better | Self::Worse)
    }
}

/// Which way a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Requests per second.
    Higher,
    /// Cost, latency, memory.
    Lower,
}

/// The noise floor: what separates two copies of one program in this run. The A/A control is the
/// second copy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Floor {
    /// No control takes part; the p-value decides alone.
    NoControl,
    /// A verdict must exceed this many log units, at least 0.
    Known(f64),
    /// There is a control, but no verdict can be based on it.
    Unusable(Why),
}

impl Floor {
    /// The noise floor by the control against the reference; `None` where the two have no round in
    /// common.
    ///
    /// The floor is the far end of the control's interval, so a control that differs by chance, as
    /// one in twenty does, raises the floor by what it differs. A control that surely differs by
    /// more than [`CONTROL_DIFFERS`] is no chance: something separates the two copies that may as
    /// well separate other servers, and the floor cannot say how much of it does.
    #[must_use]
    pub fn of(control: Option<&Effect>) -> Self {
        let usable = control.filter(|c| c.restarts >= LEAST_RESTARTS && c.ratio.is_bounded());
        let Some(control) = usable else { return Self::Unusable(Why::NoiseUnknown) };
        let near = control.ratio.low.ln().max(-control.ratio.high.ln());
        match near > CONTROL_DIFFERS.ln_1p() {
            true => Self::Unusable(Why::ControlDiffers),
            false => Self::Known(control.reach()),
        }
    }

    /// The floor of two runs that are compared, or of two sources of noise: the higher one.
    #[must_use]
    pub fn or_higher(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unusable(why), _) | (_, Self::Unusable(why)) => Self::Unusable(why),
            (Self::Known(a), Self::Known(b)) => Self::Known(a.max(b)),
            (known, Self::NoControl) | (Self::NoControl, known) => known,
        }
    }

    /// The floor times a factor, for a comparison that is more precise than that of the control.
    #[must_use]
    pub fn scaled(self, by: f64) -> Self {
        match self {
            Self::Known(noise) => Self::Known(noise * by),
            other => other,
        }
    }

    /// The floor in log units, where it is known.
    #[must_use]
    pub fn log_units(self) -> Option<f64> {
        match self {
            Self::Known(noise) => Some(noise),
            Self::NoControl | Self::Unusable(_) => None,
        }
    }
}

/// When a difference counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// The largest p-value, corrected for the number of comparisons, that counts (0.05).
    pub alpha: f64,
    /// What separates two copies of one program.
    pub floor: Floor,
    /// Which way the figure is better.
    pub better: Better,
}

/// An effect, and the systematic error that it may contain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// One server against another.
    pub effect: Effect,
    /// By how much the way of measuring may have shifted the ratio, in log units, at least 0. The
    /// A/A control cannot show it, because it shifts both copies of one program alike; a verdict
    /// must exceed it on top of the noise.
    pub bias: f64,
}

impl From<Effect> for Comparison {
    /// Without bias.
    fn from(effect: Effect) -> Self {
        Self { effect, bias: 0.0 }
    }
}

impl Bar {
    /// The verdict on one comparison whose p-value is already corrected for the number of
    /// comparisons.
    ///
    /// The servers differ if `p` is at most alpha, *and* their ratio is further from 1 than the
    /// noise floor and the bias together.
    #[must_use]
    pub fn verdict(&self, Comparison { effect, bias }: &Comparison, p: f64) -> Verdict {
        if effect.restarts < LEAST_RESTARTS {
            return Verdict::Inconclusive(Why::TooFewRestarts);
        }
        let noise = match self.floor {
            Floor::NoControl => 0.0,
            Floor::Known(noise) => noise,
            Floor::Unusable(why) => return Verdict::Inconclusive(why),
        };
        let log_ratio = effect.ratio.value.ln();
        // A NaN on either side must end in "no difference".
        let differs = p <= self.alpha && log_ratio.abs() > noise + bias;
        match self.better {
            _ if !differs => Verdict::NoDifference,
            Better::Higher if log_ratio.is_sign_positive() => Verdict::Better,
            Better::Lower if log_ratio.is_sign_negative() => Verdict::Better,
            _ => Verdict::Worse,
        }
    }
}

/// The verdicts on comparisons that are made together, in their order: each p-value is corrected by
/// [`holm`] for their number.
///
/// # The family of a table
///
/// The sentences of a table state two verdicts a server, on CPU time per request and on requests/s.
/// They are one family: where nothing differs, at most 5 % of tables have a false sentence. Holm's
/// method bounds this within each measure. Across the two, the p-values are not corrected, which
/// keeps the full power for CPU time per request (one server against the reference: p ≤ 0.05).
/// What bounds the family is the noise floor, a second condition that depends on other data than
/// the p-value does: both hold together by chance in 0.3 to 2.5 % of tables in one measure, and in
/// at most 5 % in two (simulated in `tests/coverage/family.rs`). Without a control there is no
/// second condition, and the two measures have to be passed in together.
///
/// Further measures (latency, memory) are a family of their own, and are passed in together.
#[must_use]
pub fn verdicts(comparisons: &[(Bar, Comparison)]) -> Vec<Verdict> {
    let p = holm(&comparisons.iter().map(|(_, c)| c.effect.p).collect::<Vec<_>>());
    comparisons.iter().zip(p).map(|((bar, c), p)| bar.verdict(c, p)).collect()
}

/// The ranks of `count` servers, given the pairs that were told apart as (better, worse) indices:
/// 1 + the number of servers that are better, directly or through others.
///
/// A rank is thus the best place that a server may have, and servers that cannot be told apart
/// may share one. The worse of a pair inherits everything that is better than the better one, so
/// it always has the larger rank, also where a third server was told apart from only one of the two
/// (a, b and c, of which only b and c are told apart: 1, 1, 2). Pairs that contradict each other in
/// a circle say nothing of the order within the circle: its servers share a rank.
#[must_use]
pub fn ranks(count: usize, told: &[(usize, usize)]) -> Vec<u32> {
    let mut beats = vec![vec![false; count]; count];
    for &(better, worse) in told {
        beats[better][worse] = true;
    }
    // The transitive closure (Warshall, "A theorem on Boolean matrices", JACM 9, 1962).
    for via in 0..count {
        let onwards = beats[via].clone();
        for row in beats.iter_mut().filter(|row| row[via]) {
            row.iter_mut().zip(&onwards).for_each(|(to, onward)| *to |= onward);
        }
    }
    let is_better = |a: usize, b: usize| beats[a][b] && !beats[b][a];
    (0..count).map(|b| 1 + (0..count).filter(|&a| is_better(a, b)).count() as u32).collect()
}

/// Holm's correction: the p-values that may be held against one alpha although there are several
/// (Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 1979).
/// The smallest is multiplied by their number, the next by one less, and so on, never below the
/// one before and never above 1.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    // What is not a number says nothing: it counts as 1.
    let p: Vec<f64> = p.iter().map(|&p| if p.is_nan() { 1.0 } else { p }).collect();
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut corrected = vec![1.0; p.len()];
    let mut floor = 0.0_f64;
    for (smaller, &i) in order.iter().enumerate() {
        floor = floor.max(p[i] * (p.len() - smaller) as f64).min(1.0);
        corrected[i] = floor;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compare::{effect, pairs};
    use crate::estimate::{Estimate, Reading};

    /// Five restarts of two rounds around `value`, ± 0.2 %.
    fn server(value: f64) -> Vec<Reading> {
        restarts(5, value)
    }

    fn restarts(count: u32, value: f64) -> Vec<Reading> {
        let wobble = |i: u32| 1.0 + 0.001 * (f64::from(i * 7 % 5) - 2.0);
        let reading = |i| Reading { restart: i / 2, round: i % 2, value: value * wobble(i) };
        (0..2 * count).map(reading).collect()
    }

    /// As `server`, but its wobble is another one.
    fn other(value: f64) -> Vec<Reading> {
        let mut readings = server(value);
        let values: Vec<f64> = readings.iter().map(|r| r.value).collect();
        readings.iter_mut().zip(values.iter().rev()).for_each(|(r, v)| r.value = *v);
        readings
    }

    fn bar(better: Better) -> Bar {
        Bar { alpha: 0.05, floor: Floor::Known(0.002), better }
    }

    fn compared(server: &[Reading], reference: &[Reading]) -> Effect {
        effect(&pairs(server, reference), 0.95).unwrap()
    }

    fn verdict(bar: Bar, effect: Effect) -> Verdict {
        verdicts(&[(bar, effect.into())])[0]
    }

    /// A control from this many restarts, with this interval.
    fn control(restarts: u32, low: f64, high: f64) -> Effect {
        let ratio = Estimate { value: low.midpoint(high), low, high };
        Effect { ratio, p: 0.5, sd_restart: 0.0, sd_round: 0.0, restarts, rounds: 2 * restarts }
    }

    #[test]
    fn better_depends_on_which_way_the_figure_is_good() {
        let effect = compared(&other(110.0), &server(100.0));
        assert_eq!(verdict(bar(Better::Higher), effect), Verdict::Better);
        assert_eq!(verdict(bar(Better::Lower), effect), Verdict::Worse);
        let effect = compared(&other(90.0), &server(100.0));
        assert_eq!(verdict(bar(Better::Higher), effect), Verdict::Worse);
        assert_eq!(verdict(bar(Better::Lower), effect), Verdict::Better);
    }

    #[test]
    fn a_difference_within_the_noise_is_none_however_sure_it_is() {
        let effect = compared(&server(102.0), &server(100.0));
        assert!(effect.p < 1e-6);
        let noisy = Bar { floor: Floor::Known(0.03), ..bar(Better::Higher) };
        assert_eq!(verdict(noisy, effect), Verdict::NoDifference);
        assert_eq!(verdict(bar(Better::Higher), effect), Verdict::Better);
    }

    #[test]
    fn bias_widens_what_a_verdict_must_exceed() {
        let effect = compared(&server(102.0), &server(100.0));
        let with = |bias| verdicts(&[(bar(Better::Higher), Comparison { effect, bias })]);
        assert_eq!(with(0.0), [Verdict::Better]);
        assert_eq!(with(0.03), [Verdict::NoDifference]);
    }

    /// Verdicts were issued from the rounds of a single restart.
    #[test]
    fn fewer_than_three_restarts_are_inconclusive() {
        for count in 1..=4 {
            let effect = compared(&restarts(count, 300.0), &server(100.0));
            let found = verdict(bar(Better::Higher), effect);
            let few = Verdict::Inconclusive(Why::TooFewRestarts);
            assert_eq!(found, if count < 3 { few } else { Verdict::Better }, "{count}");
        }
    }

    /// A noise floor that was unknown counted as 0, so that knowing less made a verdict easier.
    #[test]
    fn a_noise_floor_that_is_unknown_forbids_verdicts() {
        let effect = compared(&server(300.0), &server(100.0));
        for unknown in
            [None, Some(control(3, f64::NEG_INFINITY, f64::INFINITY)), Some(control(2, 0.99, 1.01))]
        {
            let floor = Floor::of(unknown.as_ref());
            let found = verdict(Bar { floor, ..bar(Better::Higher) }, effect);
            assert_eq!(found, Verdict::Inconclusive(Why::NoiseUnknown), "{unknown:?}");
        }
        let none = Bar { floor: Floor::NoControl, ..bar(Better::Higher) };
        assert_eq!(verdict(none, effect), Verdict::Better);
    }

    #[test]
    fn a_control_that_differs_by_chance_raises_the_floor_and_by_far_forbids_verdicts() {
        assert_eq!(Floor::of(Some(&control(3, 1.01, 1.04))), Floor::Known(1.04_f64.ln()));
        let differs = Floor::Unusable(Why::ControlDiffers);
        assert_eq!(Floor::of(Some(&control(3, 1.06, 1.09))), differs);
        assert_eq!(Floor::of(Some(&control(3, 0.91, 0.94))), differs);
    }

    #[test]
    fn of_two_floors_the_higher_counts_and_an_unusable_one_most() {
        let (low, high) = (Floor::Known(0.01), Floor::Known(0.02));
        let unusable = Floor::Unusable(Why::NoiseUnknown);
        assert_eq!(low.or_higher(high), high);
        assert_eq!(Floor::NoControl.or_higher(low), low);
        assert_eq!(high.or_higher(unusable), unusable);
        assert_eq!(unusable.or_higher(Floor::NoControl), unusable);
    }

    #[test]
    fn what_is_not_a_number_is_no_difference() {
        let effect = compared(&server(102.0), &server(100.0));
        let nan = Bar { floor: Floor::Known(f64::NAN), ..bar(Better::Higher) };
        assert_eq!(verdict(nan, effect), Verdict::NoDifference);
        let nan = Comparison { effect, bias: f64::NAN };
        assert_eq!(verdicts(&[(bar(Better::Higher), nan)]), [Verdict::NoDifference]);
    }

    #[test]
    fn a_rank_is_one_more_than_the_number_of_better_servers() {
        assert_eq!(ranks(4, &[(1, 0), (2, 0), (1, 3), (2, 3), (3, 0)]), [4, 1, 1, 3]);
        assert_eq!(ranks(3, &[]), [1, 1, 1]);
        assert_eq!(ranks(0, &[]), [0; 0]);
    }

    /// Two servers that were told apart shared a rank where neither was told from the leader.
    #[test]
    fn servers_that_were_told_apart_share_no_rank_whatever_the_leader() {
        assert_eq!(ranks(3, &[(1, 2)]), [1, 1, 2]);
        // b is better than c, and two are better than b, of which none was told from c.
        assert_eq!(ranks(4, &[(0, 2), (1, 2), (2, 3)]), [1, 1, 3, 4]);
    }

    #[test]
    fn pairs_in_a_circle_share_a_rank() {
        assert_eq!(ranks(4, &[(0, 1), (1, 2), (2, 0), (2, 3)]), [1, 1, 1, 4]);
    }

    #[test]
    fn holm_multiplies_the_smallest_by_their_number() {
        assert_eq!(holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
        assert_eq!(holm(&[0.4, f64::NAN, 0.9]), [1.0, 1.0, 1.0]);
        assert_eq!(holm(&[]), [0.0; 0]);
    }

    #[test]
    fn a_p_value_of_alpha_counts_and_a_ratio_at_the_floor_does_not() {
        let of = |value: f64, p, floor| {
            let ratio = Estimate { value, low: value, high: value };
            let effect = Effect { ratio, p, ..control(5, 1.0, 1.0) };
            Bar { floor, ..bar(Better::Higher) }.verdict(&effect.into(), p)
        };
        assert_eq!(of(2.0, 0.05, Floor::NoControl), Verdict::Better);
        assert_eq!(of(0.5, 0.05, Floor::NoControl), Verdict::Worse);
        assert_eq!(of(2.0, 0.050_001, Floor::NoControl), Verdict::NoDifference);
        assert_eq!(of(1.0, 0.0, Floor::NoControl), Verdict::NoDifference);
        let floor = Floor::Known(2.0_f64.ln());
        assert_eq!(of(2.0, 0.0, floor), Verdict::NoDifference);
        assert_eq!(of(2.001, 0.0, floor), Verdict::Better);
        assert_eq!(of(0.5, 0.0, floor), Verdict::NoDifference);
        assert_eq!(of(0.499, 0.0, floor), Verdict::Worse);
    }

    #[test]
    fn only_better_and_worse_are_a_difference() {
        assert!(Verdict::Better.differs() && Verdict::Worse.differs());
        assert!(!Verdict::NoDifference.differs());
        assert!(!Verdict::Inconclusive(Why::NoiseUnknown).differs());
    }

    #[test]
    fn a_control_that_differs_by_five_percent_is_still_chance() {
        let floor = |low, high| Floor::of(Some(&control(3, low, high)));
        let differs = Floor::Unusable(Why::ControlDiffers);
        assert_eq!(floor(1.049, 1.09), Floor::Known(1.09_f64.ln()));
        assert_eq!(floor(1.051, 1.09), differs);
        // 1 / 1.05 = 0.9524.
        assert_eq!(floor(0.91, 0.953), Floor::Known(-0.91_f64.ln()));
        assert_eq!(floor(0.91, 0.952), differs);
    }

    #[test]
    fn only_a_known_floor_has_a_size() {
        let unusable = Floor::Unusable(Why::ControlDiffers);
        assert_eq!(Floor::Known(0.04).scaled(0.5), Floor::Known(0.02));
        assert_eq!(unusable.scaled(0.5), unusable);
        assert_eq!(Floor::NoControl.scaled(0.5), Floor::NoControl);
        let sizes = [Floor::Known(0.04), unusable, Floor::NoControl].map(Floor::log_units);
        assert_eq!(sizes, [Some(0.04), None, None]);
        assert_eq!(Floor::NoControl.or_higher(Floor::NoControl), Floor::NoControl);
        assert_eq!(Floor::Known(0.01).or_higher(Floor::NoControl), Floor::Known(0.01));
    }

    /// Servers in a hidden order, and any of the pairs that agree with it.
    fn told() -> impl Strategy<Value = (usize, Vec<(usize, usize)>)> {
        let shuffled = (1..9usize).prop_flat_map(|count| {
            (Just((0..count).collect::<Vec<_>>()).prop_shuffle(), any::<u64>())
        });
        shuffled.prop_map(|(order, chosen)| {
            let all = (0..order.len()).flat_map(|a| (a + 1..order.len()).map(move |b| (a, b)));
            let some = all.enumerate().filter(|(bit, _)| chosen >> bit & 1 == 1);
            (order.len(), some.map(|(_, (a, b))| (order[a], order[b])).collect())
        })
    }

    proptest! {
        #[test]
        fn a_rank_never_contradicts_a_pair_that_was_told_apart((count, told) in told()) {
            let ranks = ranks(count, &told);
            for (better, worse) in told {
                prop_assert!(ranks[better] < ranks[worse], "{better} and {worse}: {ranks:?}");
            }
            prop_assert!(ranks.iter().all(|r| (1..=count as u32).contains(r)));
            prop_assert!(ranks.contains(&1));
        }

        #[test]
        fn more_noise_more_bias_or_fewer_restarts_never_make_a_verdict_easier(
            log_ratio in -0.2..0.2, p in 0.0..0.1, noise in 0.0..0.1, bias in 0.0..0.1,
            more in 0.0..0.1, restarts in 1..6u32,
        ) {
            let value = f64::exp(log_ratio);
            let ratio = Estimate { value, low: value, high: value };
            let effect = Effect { p, ratio, restarts, ..control(restarts, 1.0, 1.0) };
            let differs = |noise, bias, restarts| {
                let bar = Bar { floor: Floor::Known(noise), ..bar(Better::Lower) };
                bar.verdict(&Comparison { effect: Effect { restarts, ..effect }, bias }, p).differs()
            };
            if !differs(noise, bias, restarts) {
                prop_assert!(!differs(noise + more, bias, restarts));
                prop_assert!(!differs(noise, bias + more, restarts));
                prop_assert!(!differs(noise, bias, restarts - 1));
            }
        }
    }
}
