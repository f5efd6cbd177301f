//! What may be said of an effect: a verdict only beyond the noise, and ranks that admit ties.

use serde::{Deserialize, Serialize};

use crate::compare::{Effect, effect, pairs};
use crate::estimate::{Reading, level};

/// What may be said of a server against the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// More of the good or less of the bad, beyond the noise.
    Better,
    /// The other way round, beyond the noise.
    Worse,
    /// No difference that could be measured.
    NoDifference,
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

/// When a difference counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// The share of false alarms that is accepted over all comparisons together (0.05).
    pub alpha: f64,
    /// What separates two identical servers today, in log units: [`Effect::reach`] of the reference
    /// against its double; 0 where there is no double.
    pub noise: f64,
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
    /// The verdicts on several servers against one reference, in their order.
    ///
    /// A server differs if its p-value, corrected by [`holm`] for the number of servers, is at most
    /// alpha, *and* its ratio is farther from 1 than the noise and its bias together.
    #[must_use]
    pub fn verdicts(&self, comparisons: &[Comparison]) -> Vec<Verdict> {
        let p = holm(&comparisons.iter().map(|c| c.effect.p).collect::<Vec<_>>());
        comparisons.iter().zip(p).map(|(comparison, p)| self.verdict(comparison, p)).collect()
    }

    /// The verdict on one comparison whose p-value is already corrected.
    fn verdict(&self, Comparison { effect, bias }: &Comparison, p: f64) -> Verdict {
        let log_ratio = effect.ratio.value.ln();
        // A NaN on either side must end in "no difference".
        let differs = p <= self.alpha && log_ratio.abs() > self.noise + bias;
        match self.better {
            _ if !differs => Verdict::NoDifference,
            Better::Higher if log_ratio > 0.0 => Verdict::Better,
            Better::Lower if log_ratio < 0.0 => Verdict::Better,
            _ => Verdict::Worse,
        }
    }

    /// Ranks of several servers from their readings, in their order: 1 is the best, and servers
    /// that cannot be told apart share a rank.
    ///
    /// The rule: servers are put in the order of their levels. The first leads a group. Each next
    /// one joins the group while it cannot be told apart from the *leader*; the first that can
    /// leads the next group, and its rank is its place in the order (1, 1, 3). Comparing with the
    /// leader alone keeps a chain of small steps from joining the first to the last. All pairs are
    /// compared and corrected together; `told` are those that were told apart already, in a smaller
    /// family, and stay so: a rank never takes back what a sentence says. Servers of equal level
    /// keep the order in which they came; one without a reading has no rank.
    #[must_use]
    pub fn ranks(&self, servers: &[Vec<Reading>], told: &[(usize, usize)]) -> Vec<Option<u32>> {
        let sign = if self.better == Better::Higher { -1.0 } else { 1.0 };
        let levels = servers.iter().enumerate();
        let mut order: Vec<(f64, usize)> =
            levels.filter_map(|(i, s)| Some((sign * level(s, 0.95)?.value, i))).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));

        let mut apart = self.apart(servers);
        for &(a, b) in told {
            (apart[a][b], apart[b][a]) = (true, true);
        }
        let mut ranks = vec![None; servers.len()];
        let mut leader: Option<usize> = None;
        for (place, &(_, server)) in order.iter().enumerate() {
            ranks[server] = match leader {
                Some(leader) if !apart[leader][server] => ranks[leader],
                _ => {
                    leader = Some(server);
                    Some(place as u32 + 1)
                }
            };
        }
        ranks
    }

    /// For each two servers, whether they can be told apart.
    fn apart(&self, servers: &[Vec<Reading>]) -> Vec<Vec<bool>> {
        let n = servers.len();
        let mut both = Vec::new();
        for a in 0..n {
            for b in a + 1..n {
                both.push((a, b, effect(&pairs(&servers[a], &servers[b]), 0.95)));
            }
        }
        let p = holm(&both.iter().map(|(.., e)| e.map_or(1.0, |e| e.p)).collect::<Vec<_>>());
        let mut apart = vec![vec![false; n]; n];
        for ((a, b, effect), p) in both.into_iter().zip(p) {
            let differ =
                effect.is_some_and(|e| self.verdict(&e.into(), p) != Verdict::NoDifference);
            apart[a][b] = differ;
            apart[b][a] = differ;
        }
        apart
    }
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
    use super::*;

    /// Five heats of two blocks around `value`, ± 0.2 %.
    fn server(value: f64) -> Vec<Reading> {
        let wobble = |i: u32| 1.0 + 0.001 * (f64::from(i * 7 % 5) - 2.0);
        (0..10).map(|i| Reading { heat: i / 2, block: i % 2, value: value * wobble(i) }).collect()
    }

    /// As `server`, but its wobble is another one.
    fn other(value: f64) -> Vec<Reading> {
        let mut readings = server(value);
        let values: Vec<f64> = readings.iter().map(|r| r.value).collect();
        readings.iter_mut().zip(values.iter().rev()).for_each(|(r, v)| r.value = *v);
        readings
    }

    fn bar(better: Better) -> Bar {
        Bar { alpha: 0.05, noise: 0.002, better }
    }

    #[test]
    fn better_depends_on_which_way_the_figure_is_good() {
        let effects = [effect(&pairs(&other(110.0), &server(100.0)), 0.95).unwrap().into()];
        assert_eq!(bar(Better::Higher).verdicts(&effects), [Verdict::Better]);
        assert_eq!(bar(Better::Lower).verdicts(&effects), [Verdict::Worse]);
    }

    #[test]
    fn a_difference_within_the_noise_is_none_however_sure_it_is() {
        let effects: [Comparison; 1] =
            [effect(&pairs(&server(102.0), &server(100.0)), 0.95).unwrap().into()];
        assert!(effects[0].effect.p < 1e-6);
        let noisy = Bar { noise: 0.03, ..bar(Better::Higher) };
        assert_eq!(noisy.verdicts(&effects), [Verdict::NoDifference]);
        assert_eq!(bar(Better::Higher).verdicts(&effects), [Verdict::Better]);
    }

    #[test]
    fn bias_widens_what_a_verdict_must_exceed() {
        let effect = effect(&pairs(&server(102.0), &server(100.0)), 0.95).unwrap();
        let with = |bias| bar(Better::Higher).verdicts(&[Comparison { effect, bias }]);
        assert_eq!(with(0.0), [Verdict::Better]);
        assert_eq!(with(0.03), [Verdict::NoDifference]);
    }

    #[test]
    fn no_data_and_no_numbers_end_in_no_difference() {
        let one = [Reading { heat: 0, block: 0, value: 300.0 }];
        let effects = [effect(&pairs(&one, &server(100.0)), 0.95).unwrap().into()];
        assert_eq!(bar(Better::Higher).verdicts(&effects), [Verdict::NoDifference]);
        let nan = Bar { noise: f64::NAN, ..bar(Better::Higher) };
        let effects = [effect(&pairs(&server(102.0), &server(100.0)), 0.95).unwrap().into()];
        assert_eq!(nan.verdicts(&effects), [Verdict::NoDifference]);
    }

    #[test]
    fn servers_that_cannot_be_told_apart_share_a_rank() {
        let servers = [server(50.0), server(100.0), other(100.0), Vec::new(), server(80.0)];
        assert_eq!(
            bar(Better::Higher).ranks(&servers, &[]),
            [Some(4), Some(1), Some(1), None, Some(3)]
        );
        assert_eq!(
            bar(Better::Lower).ranks(&servers, &[]),
            [Some(1), Some(3), Some(3), None, Some(2)]
        );
    }

    #[test]
    fn a_chain_of_small_steps_does_not_join_first_and_last() {
        // Neighbours differ by 3 %, less than the noise of 4 %; the first and the third do not.
        let servers = [server(100.0), server(97.0), server(94.0)];
        let noisy = Bar { noise: 0.04, ..bar(Better::Higher) };
        assert_eq!(noisy.ranks(&servers, &[]), [Some(1), Some(1), Some(3)]);
        let told = [(0, 1)];
        assert_eq!(noisy.ranks(&servers, &told), [Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn holm_multiplies_the_smallest_by_their_number() {
        assert_eq!(holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
        assert_eq!(holm(&[0.4, f64::NAN, 0.9]), [1.0, 1.0, 1.0]);
        assert_eq!(holm(&[]), [0.0; 0]);
    }
}
