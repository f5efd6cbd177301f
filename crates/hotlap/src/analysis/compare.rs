//! The comparison of two servers, and which comparisons are judged together.

use hotlap_stats::{Criterion, Effect, Estimate, Verdict, verdicts};

use super::{Measure, PerMeasure};

/// The effect and verdict of one measure; `None` without a comparison.
pub type Found = Option<(Effect, Verdict)>;

/// Two servers, by index: the first is compared with the second.
pub type ServerPair = (usize, usize);

/// A server compared with another, in each measure.
#[derive(Debug, Clone, Copy)]
pub struct ServerComparison {
    /// The ratio of the server's figure to the other's, and the verdict.
    pub found: PerMeasure<Found>,
    /// Why there is no result for requests/s; `None` if there is one, or if the two have no round
    /// in common.
    pub limited: Option<Limited>,
}

/// What is known of requests/s if they are a bound, or follow the rate of an open loop.
#[derive(Debug, Clone, Copy)]
pub enum Limited {
    /// The generator limits the server. The ratio of its lower bound to the other's requests/s, if
    /// the verdict is that it is higher.
    Server(Option<Effect>),
    /// The generator limits the other server. The ratio to the other's lower bound, if the verdict
    /// is that it is lower.
    Other(Option<Effect>),
    /// The generator limits both, or both serve the full rate of an open loop.
    Both,
}

impl ServerComparison {
    /// An empty comparison.
    pub fn nothing() -> Self {
        Self { found: PerMeasure::default(), limited: None }
    }

    /// The ratio in one measure, if the verdict is that the two differ.
    pub fn difference(&self, measure: Measure) -> Option<Estimate> {
        self.found[measure].filter(|(_, verdict)| verdict.differs()).map(|(effect, _)| effect.ratio)
    }
}

/// The verdicts of one table, given the comparisons of its pairs in each measure. [`verdicts`]
/// explains which of them are corrected together.
pub fn found_in_families(
    compared: PerMeasure<Vec<Option<(Criterion, Effect)>>>,
) -> Vec<PerMeasure<Found>> {
    let pairs = compared[Measure::Rate].len();
    let families: [&[Measure]; 2] = [&[Measure::Rate, Measure::Cost], &LATENCY_AND_MEMORY];
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

/// The verdicts of comparisons that are made together; none if nothing can be compared.
pub(super) fn judged(compared: Vec<Option<(Criterion, Effect)>>) -> Vec<Found> {
    let known: Vec<(Criterion, Effect)> = compared.iter().flatten().copied().collect();
    let mut verdicts = verdicts(&known).into_iter();
    compared
        .into_iter()
        .map(|c| c.and_then(|(_, effect)| Some((effect, verdicts.next()?))))
        .collect()
}
