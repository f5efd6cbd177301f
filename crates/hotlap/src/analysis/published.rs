//! Published figures beside measured ones. Only ratios can be compared between machines, so each
//! published figure is divided by another one of the same source, and each measured figure by that
//! of the same server.

use hotlap_stats::Estimate;

use super::{Analysis, Measure};
use crate::model::{Published, Run};

/// The ratio to the same server, as measured in this run.
#[derive(Debug, Clone, Copy)]
pub enum MeasuredRatio {
    /// A measured ratio.
    Known(Estimate),
    /// A lower bound, since the generator limited the server.
    AtLeast(f64),
    /// An upper bound, since the generator limited the other server.
    AtMost(f64),
    /// The generator limited both.
    Limited,
    /// One of the two was not measured, or there is no server to compare with.
    Unknown,
}

/// The ratio of a published figure to that of the server that its source compares with; `None` for
/// that server itself, and if there is none.
pub fn ratio_then(server: usize, then: &Published) -> Option<f64> {
    let base = then.than.as_ref().filter(|base| base.server != server)?;
    Some(then.requests_per_s / base.requests_per_s)
}

/// The ratio of a server's requests/s to those of the server that a source compares it with.
pub fn ratio_here(
    run: &Run,
    analysis: &Analysis,
    server: usize,
    then: &Published,
) -> MeasuredRatio {
    let base = then.than.as_ref().map(|base| base.server).filter(|base| *base != server);
    let Some(base) = base.filter(|base| run.is_compared(*base) && run.is_compared(server)) else {
        return MeasuredRatio::Unknown;
    };
    if let Some((effect, _)) = analysis.compared(&[(server, base)])[0].found[Measure::Rate] {
        return MeasuredRatio::Known(effect.ratio);
    }
    let (server, base) = (&analysis.servers[server], &analysis.servers[base]);
    let rates = server.level[Measure::Rate].zip(base.level[Measure::Rate]);
    let ratio = rates.map(|(rate, base)| rate.value / base.value);
    match (server.generator_limited, base.generator_limited, ratio) {
        (true, false, Some(ratio)) => MeasuredRatio::AtLeast(ratio),
        (false, true, Some(ratio)) => MeasuredRatio::AtMost(ratio),
        (true, true, _) => MeasuredRatio::Limited,
        _ => MeasuredRatio::Unknown,
    }
}
