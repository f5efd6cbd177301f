//! Ranks: the order of the servers, as far as the verdicts determine one.

use hotlap_stats::{MIN_RESTARTS, Verdict, ranks};

use super::compare::{ServerPair, judged};
use super::{Analysis, Limited, Measure, ServerComparison};
use crate::model::Run;

impl Analysis {
    /// Ranks the servers, see [`ranks`]. Of two servers, the one with more requests/s by a verdict
    /// is better. If the generator limits both, or both serve the full rate of an open loop, it is
    /// the one with less CPU time per request. If the generator limits one, that one is better if
    /// even its lower bound is higher. Servers that sent wrong responses are not ranked.
    ///
    /// For a server that is compared with the reference, the verdict of that comparison is used, so
    /// that a rank never contradicts a sentence. All other pairs are a family of their own.
    pub(super) fn rank(&mut self, run: &Run) {
        let fit: Vec<usize> =
            (0..self.servers.len()).filter(|&i| run.is_compared(i) && self.can_rank(i)).collect();
        if fit.len() < 2 {
            return;
        }
        let places = (0..fit.len()).flat_map(|a| (a + 1..fit.len()).map(move |b| (a, b)));
        let (with_reference, others): (Vec<ServerPair>, Vec<ServerPair>) =
            places.partition(|&(a, b)| [fit[a], fit[b]].map(Some).contains(&self.reference));
        // Pairs in which the first is better.
        let mut decided = Vec::new();
        for (a, b) in with_reference {
            let (server, reference) = if Some(fit[a]) == self.reference { (b, a) } else { (a, b) };
            let Some(against) = self.servers[fit[server]].against else { continue };
            match order(&against) {
                Some(Verdict::Better) => decided.push((server, reference)),
                Some(Verdict::Worse) => decided.push((reference, server)),
                _ => {}
            }
        }
        let is_limited = |place: usize| self.servers[fit[place]].generator_limited;
        let compared = others.iter().map(|&(a, b)| {
            let is_by_cost = (is_limited(a) && is_limited(b)) || self.keep_up(fit[a], fit[b]);
            self.compared_in(fit[a], fit[b], if is_by_cost { Measure::Cost } else { Measure::Rate })
        });
        for (&(a, b), found) in others.iter().zip(judged(compared.collect())) {
            match found.map(|(_, verdict)| verdict) {
                // An exact figure above a lower bound proves nothing.
                Some(Verdict::Better) if is_limited(a) >= is_limited(b) => decided.push((a, b)),
                Some(Verdict::Worse) if is_limited(b) >= is_limited(a) => decided.push((b, a)),
                _ => {}
            }
        }
        for (server, rank) in fit.iter().zip(ranks(fit.len(), &decided)) {
            self.servers[*server].rank = Some(rank);
        }
    }

    /// Whether a server responds correctly, was steady and has enough restarts, and verdicts are
    /// not withheld.
    fn can_rank(&self, server: usize) -> bool {
        let measured = &self.servers[server];
        let is_by_cost = measured.generator_limited || measured.keeps_up;
        let by = if is_by_cost { Measure::Cost } else { Measure::Rate };
        measured.wrong == 0
            && measured.unsteady.is_none()
            && self.rests_on.count(&measured.readings[by]) >= MIN_RESTARTS as usize
            && self.withheld(by).is_none()
    }
}

/// Which of two servers is better, as [`Analysis::rank`] orders them.
fn order(against: &ServerComparison) -> Option<Verdict> {
    let by = |measure| against.found[measure].map(|(_, verdict)| verdict);
    match against.limited {
        None => by(Measure::Rate),
        Some(Limited::Both) => by(Measure::Cost),
        Some(Limited::Server(higher)) => higher.map(|_| Verdict::Better),
        Some(Limited::Other(lower)) => lower.map(|_| Verdict::Worse),
    }
}
