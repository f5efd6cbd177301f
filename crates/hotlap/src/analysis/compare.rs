//! Servers compared with each other: pairs of readings, the noise floor, verdicts.

use hotlap_stats::{Criterion, Effect, Estimate, NoiseFloor, Verdict, effect, pairs, verdicts};

use super::{Analysis, Measure, PerMeasure, bias, is_compared};
use crate::model::Run;

/// What one measure says of a server against another; `None` where it says nothing.
pub type Found = Option<(Effect, Verdict)>;

/// Two servers, as indices: the first is compared with the second.
pub type ServerPair = (usize, usize);

/// A server compared with another, in each measure.
#[derive(Debug, Clone, Copy)]
pub struct ServerComparison {
    /// The server's figure over the other's, and the verdict.
    pub found: PerMeasure<Found>,
    /// Why `found` says nothing of requests/s; `None` where it does, and where the two have no
    /// round in common.
    pub limited: Option<Limited>,
}

/// What is known of requests/s where they are a bound, or the rate that the load offers.
#[derive(Debug, Clone, Copy)]
pub enum Limited {
    /// The generator limits the server. Its lower bound over the other's requests/s, if it is
    /// higher by a verdict.
    Server(Option<Effect>),
    /// The generator limits the other. The requests/s over its lower bound, if they are lower by a
    /// verdict.
    Other(Option<Effect>),
    /// The generator limits both, or both serve the rate that the load offers.
    Both,
}

impl ServerComparison {
    /// A comparison that says nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self { found: PerMeasure::default(), limited: None }
    }

    /// The ratio in one measure, if there is a verdict that the two differ.
    #[must_use]
    pub fn difference(&self, measure: Measure) -> Option<Estimate> {
        self.found[measure].filter(|(_, verdict)| verdict.differs()).map(|(effect, _)| effect.ratio)
    }
}

impl Analysis {
    /// Compares every server with the reference.
    pub(super) fn compare_with_reference(&mut self, run: &Run) {
        let is_right = |i: usize| self.servers[i].wrong == 0;
        let Some(reference) = self.reference.filter(|&i| is_right(i)) else { return };
        let others = (0..self.servers.len())
            .filter(|&i| i != reference && is_compared(run, i) && is_right(i));
        let pairs: Vec<ServerPair> = others.map(|i| (i, reference)).collect();
        for ((server, _), against) in pairs.iter().zip(self.compared(&pairs)) {
            self.servers[*server].against = Some(against);
        }
    }

    /// Compares the first server of each pair with the second. The pairs are those that one table
    /// shows: their verdicts are one family, see [`verdicts`].
    #[must_use]
    pub fn compared(&self, pairs: &[ServerPair]) -> Vec<ServerComparison> {
        let comparisons = PerMeasure::of(|measure| {
            let compared = |&(server, other): &ServerPair| self.compared_in(server, other, measure);
            pairs.iter().map(compared).collect()
        });
        let compared = found_in_families(comparisons).into_iter().zip(pairs);
        compared.map(|(found, pair)| self.with_bounds(found, *pair)).collect()
    }

    /// Two servers in one measure; `None` where they have no round in common, and where the
    /// generator hides what the measure would say. Requests/s of a server that the generator limits
    /// are a lower bound, which may still be higher than those of a server that it does not limit.
    pub(super) fn compared_in(
        &self,
        server: usize,
        other: usize,
        measure: Measure,
    ) -> Option<(Criterion, Effect)> {
        let of_both = [&self.servers[server], &self.servers[other]];
        let limited = of_both.iter().filter(|s| s.generator_limited).count();
        let is_hidden = match measure {
            Measure::Rate => limited == 2 || self.keep_up(server, other),
            measure => limited > 0 && measure.is_hidden_by_generator(),
        };
        if is_hidden || of_both.iter().any(|s| s.wrong > 0) {
            return None;
        }
        let pairs = pairs(&self.side(server, measure), &self.side(other, measure));
        let effect = effect(&pairs, self.confidence)?;
        let reference = if Some(server) == self.reference { server } else { other };
        let bias = match measure {
            Measure::Cost => bias::proven_shift(&self.probed, (server, other)),
            _ => 0.0,
        };
        Some((Criterion { bias, ..self.criterion_against(reference, measure) }, effect))
    }

    /// What a difference from `other` must exceed, without bias. The reference counts together with
    /// the A/A control, see [`Self::side`].
    #[must_use]
    pub fn criterion_against(&self, other: usize, measure: Measure) -> Criterion {
        let is_pooled = Some(other) == self.reference && self.control.is_some();
        let floor = self.floor(measure);
        let floor = if is_pooled { floor.against_pooled() } else { floor };
        Criterion { alpha: 1.0 - self.confidence, floor, bias: 0.0, better: measure.better() }
    }

    /// Takes the ratio of requests/s away where it is a bound, and keeps what the bound says.
    fn with_bounds(
        &self,
        mut found: PerMeasure<Found>,
        (server, other): ServerPair,
    ) -> ServerComparison {
        let rate = found[Measure::Rate];
        let by = |verdict| rate.filter(|(_, v)| *v == verdict).map(|(effect, _)| effect);
        let is_limited = |server: usize| self.servers[server].generator_limited;
        let limited = match (is_limited(server), is_limited(other)) {
            (false, false) => self.keep_up(server, other).then_some(Limited::Both),
            (true, false) => Some(Limited::Server(by(Verdict::Better))),
            (false, true) => Some(Limited::Other(by(Verdict::Worse))),
            (true, true) => Some(Limited::Both),
        };
        if limited.is_some() {
            found.requests_per_s = None;
        }
        ServerComparison { found, limited }
    }
}

/// The verdicts of one table, given the comparisons of its pairs in each measure. Which of them are
/// corrected together is said at [`verdicts`].
#[must_use]
pub fn found_in_families(
    compared: PerMeasure<Vec<Option<(Criterion, Effect)>>>,
) -> Vec<PerMeasure<Found>> {
    let pairs = compared[Measure::Rate].len();
    let mut all = Measure::ALL.iter().flat_map(|measure| &compared[*measure]).flatten();
    let has_floor = all.all(|(criterion, _)| criterion.floor != NoiseFloor::NoControl);
    let families: &[&[Measure]] = match has_floor {
        true => &[&[Measure::Rate], &[Measure::Cost], &LATENCY_AND_MEMORY],
        false => &[&[Measure::Rate, Measure::Cost], &LATENCY_AND_MEMORY],
    };
    let mut found = vec![PerMeasure::default(); pairs];
    for family in families {
        let members: Vec<_> = family.iter().flat_map(|m| compared[*m].iter().copied()).collect();
        for (place, one) in judged(members).into_iter().enumerate() {
            found[place % pairs][family[place / pairs]] = one;
        }
    }
    found
}

const LATENCY_AND_MEMORY: [Measure; 3] = [Measure::P50, Measure::P99, Measure::Memory];

/// The verdicts on comparisons that are made together; where nothing can be compared, none.
pub(super) fn judged(compared: Vec<Option<(Criterion, Effect)>>) -> Vec<Found> {
    let known: Vec<(Criterion, Effect)> = compared.iter().flatten().copied().collect();
    let mut verdicts = verdicts(&known).into_iter();
    compared
        .into_iter()
        .map(|c| c.and_then(|(_, effect)| Some((effect, verdicts.next()?))))
        .collect()
}
