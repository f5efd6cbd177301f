//! The comparison of two searches: the capacity of each server in both.

use hotlap_stats::{Inconclusive, Verdict};

use super::{
    CAPACITY, Change, ComparedLoad, ComparedServer, Incomparable, RunComparison, Side,
    first_servers,
};
use crate::analysis::runs::{Matched, SearchSides};
use crate::model::Run;
use crate::report::against::MeasureVerdict;
use crate::report::capacity::{capacity_figure, with_interval};
use crate::report::loads::with_load;
use crate::report::sentences::TOO_FEW_RUNS;
use crate::report::verdict::Judged;

/// The goals of a search: `p99 < 10 ms and errors < 0.1 %`.
fn goals(run: &Run) -> String {
    let goals: Vec<String> = run.schedule.objectives.iter().map(ToString::to_string).collect();
    goals.join(" and ")
}

impl RunComparison {
    /// Whether both are searches with the same goals, or neither is one.
    pub(super) fn are_alike(before: (&Run, &str), after: (&Run, &str)) -> Result<(), Incomparable> {
        let search = |(_, name): (&Run, &str), (_, other): (&Run, &str)| {
            Err(Incomparable::Search { name: name.to_owned(), other: other.to_owned() })
        };
        match (before.0.is_search(), after.0.is_search()) {
            (true, false) => search(before, after),
            (false, true) => search(after, before),
            _ if before.0.schedule.objectives == after.0.schedule.objectives => Ok(()),
            _ => Err(Incomparable::Goals {
                before: before.1.to_owned(),
                after: after.1.to_owned(),
                theirs: goals(before.0),
                ours: goals(after.0),
            }),
        }
    }

    pub(super) fn add_search(
        &mut self,
        [before, after]: [Side; 2],
        load: &Matched,
        servers: &[Matched],
        are_many: bool,
    ) {
        let sides = SearchSides::of([before.0, after.0], load);
        let mut table = ComparedLoad::of([before.0, after.0], load, are_many);
        let goals = goals(&after.0[0]);
        table.title = format!("{} · {goals}", table.title);
        let compared = sides.compared(servers);
        let are_few = compared
            .iter()
            .flatten()
            .any(|(_, verdict)| *verdict == Verdict::Inconclusive(Inconclusive::TooFewRuns));
        for (matched, found) in servers.iter().zip(compared) {
            let [old_server, server] = first_servers([before, after], matched);
            let [old, new] = sides.capacities(matched).map(capacity_figure);
            let found = MeasureVerdict::of_capacity(found);
            let change = Change {
                measure: CAPACITY.to_owned(),
                of: None,
                before: old,
                after: new,
                is_worse: found.judged == Judged::Worse,
                found,
            };
            let names = [
                format!("{} of {}", server.name, after.1),
                format!("{} of {}", old_server.name, before.1),
            ];
            let sentence = sentence(&change, &goals, &names);
            self.sentences.push(with_load(&table.under, &sentence));
            table.servers.push(ComparedServer {
                name: server.name.clone(),
                versions: (old_server.version.clone(), server.version.clone()),
                changes: vec![change],
            });
        }
        self.tables.push(table);
        self.need(are_few.then(|| TOO_FEW_RUNS.to_owned()));
    }
}

/// The result for a server in one sentence, given its name in the later search and in the earlier
/// one.
fn sentence(change: &Change, goals: &str, [name, earlier]: &[String; 2]) -> String {
    let (Some(after), Some(ratio)) = (&change.after, &change.found.ratio) else {
        return format!(
            "{name} and {earlier}: not comparable, because a capacity is only a bound or unknown."
        );
    };
    let own = format!("{name} meets {goals} up to {} requests/s", with_interval(after));
    let ratio = ratio.full();
    match change.found.judged {
        Judged::Better | Judged::Worse => format!("{own}: {ratio} the capacity of {earlier}."),
        _ => format!("{own}: {ratio} the capacity of {earlier}, {}.", change.found.words),
    }
}
