//! The comparison of two runs: the same statistics as within a run, as far as unpaired laps allow.

use hotlap_stats::{Better, Criterion, Effect, Inconclusive, unpaired};

use super::capacity::CapacityAnalysis;
use super::compare::{Found, found_in_families, judged};
use super::load::for_steady;
use super::{Analysis, Limited, Measure, PerMeasure, ServerComparison, confidence};
use crate::model::{Load, Run};

/// A server or a load that both runs have, by index: before and after.
pub type Matched = (usize, usize);

/// Servers of the same name in both runs; if each run has only one server, these two.
#[must_use]
pub fn matched_servers(before: &Run, after: &Run) -> Vec<Matched> {
    let (old, new) = (compared(before), compared(after));
    if let ([old], [new]) = (&old[..], &new[..]) {
        return vec![(*old, *new)];
    }
    let same = |new: &usize| {
        let name = &after.servers[*new].name;
        Some((*old.iter().find(|&&i| before.servers[i].name == *name)?, *new))
    };
    new.iter().filter_map(same).collect()
}

/// The servers of a run that can be compared, as indices.
#[must_use]
pub fn compared(run: &Run) -> Vec<usize> {
    (0..run.servers.len()).filter(|&i| run.is_compared(i)).collect()
}

/// Loads that both runs have, compared by every property: see [`Load::is_same`].
#[must_use]
pub fn matched_loads(before: &Run, after: &Run) -> Vec<Matched> {
    let mut both: Vec<Matched> = Vec::new();
    for (new, load) in after.loads.iter().enumerate() {
        let is_same = |(old, other): &(usize, &Load)| {
            let is_unknown = load.request.is_empty() || other.request.is_empty();
            let is_taken = both.iter().any(|(taken, _)| taken == old);
            load.is_same(other) && !is_taken && (!is_unknown || share_a_contract(before, after))
        };
        let same = before.loads.iter().enumerate().find(is_same);
        both.extend(same.map(|(old, _)| (old, new)));
    }
    both
}

/// Whether some server of both runs has the same contract, or the same path.
fn share_a_contract(before: &Run, after: &Run) -> bool {
    let theirs = || before.contract.split(", ");
    after.contract.split(", ").any(|own| theirs().any(|other| other == own))
}

/// Both runs under one load.
#[derive(Debug)]
pub struct LoadPair {
    /// The earlier run.
    pub before: Analysis,
    /// The later run.
    pub after: Analysis,
    /// The confidence of every interval.
    confidence: f64,
}

impl LoadPair {
    /// The runs, under a load that both have.
    #[must_use]
    pub fn of(before: &Run, after: &Run, load: Matched) -> Self {
        Self {
            before: Analysis::of(before, load.0),
            after: Analysis::of(after, load.1),
            confidence: confidence(before).max(confidence(after)),
        }
    }

    /// Each server of the later run, compared with itself in the earlier one.
    #[must_use]
    pub fn compared(&self, servers: &[Matched]) -> Vec<ServerComparison> {
        let comparisons = PerMeasure::of(|measure| {
            let compared = |&(old, new): &Matched| {
                let of_both = [&self.before.servers[old], &self.after.servers[new]];
                let criterion = for_steady(self.criterion(measure), &of_both, measure);
                Some((criterion, self.effect((old, new), measure)?))
            };
            servers.iter().map(compared).collect()
        });
        let limited = |&(old, new): &Matched| {
            let keep_up = self.before.servers[old].keeps_up && self.after.servers[new].keeps_up;
            keep_up.then_some(Limited::Both)
        };
        let found = found_in_families(comparisons).into_iter().zip(servers);
        found.map(|(found, pair)| ServerComparison { found, limited: limited(pair) }).collect()
    }

    /// The change of the ceiling's requests/s; the ceiling is the same program in both runs.
    #[must_use]
    pub fn ceiling(&self, measure: Measure) -> Option<Effect> {
        let (old, new) = (self.before.ceiling?, self.after.ceiling?);
        let (old, new) = (&self.before.servers[old], &self.after.servers[new]);
        unpaired(&new.readings[measure], &old.readings[measure], self.confidence)
    }

    /// Whether a percentile of the ceiling is a lower bound in either run, and so does not show
    /// what changed between them.
    fn is_ceiling_a_bound(&self, measure: Measure) -> bool {
        let of_both = [&self.before, &self.after];
        measure != Measure::Rate
            && of_both.iter().any(|run| {
                run.ceiling.is_some_and(|ceiling| run.servers[ceiling].is_lower_bound[measure])
            })
    }

    /// One server in both runs; `None` if the generator limits the measure, or the figure of either
    /// run is a lower bound.
    fn effect(&self, (old, new): Matched, measure: Measure) -> Option<Effect> {
        let (old, new) = (&self.before.servers[old], &self.after.servers[new]);
        let is_limited = old.generator_limited || new.generator_limited;
        let is_hidden = (measure.is_hidden_by_generator() && is_limited)
            || (old.is_lower_bound[measure] || new.is_lower_bound[measure])
            || (measure == Measure::Rate && old.keeps_up && new.keeps_up);
        if is_hidden || old.wrong + new.wrong > 0 {
            return None;
        }
        unpaired(&new.readings[measure], &old.readings[measure], self.confidence)
    }

    /// A difference must exceed the change of the ceiling from one run to the other.
    fn criterion(&self, measure: Measure) -> Criterion {
        let unknown = self.is_ceiling_a_bound(measure).then_some(Inconclusive::ChangeUnknown);
        let withheld = [&self.before, &self.after].map(|run| run.withheld(measure));
        Criterion {
            alpha: 1.0 - self.confidence,
            margin: self.ceiling(measure).map_or(0.0, |change| change.ratio.value.ln().abs()),
            withheld: withheld.into_iter().flatten().next().or(unknown),
            better: measure.better(),
        }
    }
}

/// Two searches under one load.
#[derive(Debug)]
pub struct SearchPair {
    /// The earlier search.
    pub before: CapacityAnalysis,
    /// The later search.
    pub after: CapacityAnalysis,
    /// The confidence of every interval.
    confidence: f64,
}

impl SearchPair {
    /// The searches, under a load that both have.
    #[must_use]
    pub fn of(before: &Run, after: &Run, load: Matched) -> Self {
        Self {
            before: CapacityAnalysis::of(before, load.0),
            after: CapacityAnalysis::of(after, load.1),
            confidence: confidence(before).max(confidence(after)),
        }
    }

    /// The capacity of each server of the later search, compared with its own in the earlier one;
    /// `None` if either is only a bound.
    #[must_use]
    pub fn compared(&self, servers: &[Matched]) -> Vec<Found> {
        let criterion = Criterion {
            alpha: 1.0 - self.confidence,
            margin: 0.0,
            withheld: None,
            better: Better::Higher,
        };
        let effect = |&(old, new): &Matched| {
            let (old, new) = (&self.before.servers[old], &self.after.servers[new]);
            Some((criterion, unpaired(new.readings(), old.readings(), self.confidence)?))
        };
        judged(servers.iter().map(effect).collect())
    }
}
