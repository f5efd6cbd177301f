//! The goals of a search for capacities, and what a search needs or rules out.

use std::time::Duration;

use hotlap_bench::slo::Objective;
use hotlap_bench::suite::{Question, Suite};

use super::super::rule::Rule;
use crate::cli::RunArgs;
use crate::exit::usage;
use crate::slo;

/// The goals: those of the suite, or of `hotlap capacity`; none if nothing is searched.
pub(super) fn goals(args: &RunArgs, suite: Option<&Suite>) -> anyhow::Result<Vec<Objective>> {
    let goals = match suite.and_then(|suite| Some((suite, suite.slo.as_ref()?))) {
        None => args.slo.clone(),
        Some((suite, written)) => slo::parse(&written.text)
            .or_else(|error| usage(suite.wrong(written.line, error).to_string()))?,
    };
    if !goals.is_empty() {
        only_for_searches(args)?;
    }
    Ok(goals)
}

/// The precision of a search in a suite that sets none.
pub(super) const PRECISION: f64 = 0.05;

/// The timeout of a request. A request that takes longer than a goal allows must be seen to take
/// longer.
pub(super) fn timeout(timeout: Duration, objectives: &[Objective]) -> Duration {
    let limits = objectives.iter().filter_map(Objective::latency);
    limits.map(|(_, ns)| Duration::from_nanos(ns) * 2).fold(timeout, Duration::max)
}

/// Rejects options that have no meaning for a search.
fn only_for_searches(args: &RunArgs) -> anyhow::Result<()> {
    let schedule = &args.schedule;
    let given = [
        ("--rate", args.rate.is_some()),
        ("--slice", schedule.slice.is_some()),
        ("--rounds", schedule.rounds.is_some()),
        ("--stress", args.stress),
        ("--resume", args.resume),
        ("--save-baseline", args.save_baseline.is_some()),
        ("--export-github-benchmark", args.common.exports.export_github_benchmark.is_some()),
        ("--export-bencher", args.common.exports.export_bencher.is_some()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => {
            usage(format!("{option} does not work with a search for capacities: leave it out"))
        }
    }
}

/// Whether the run also explains the differences in cost.
pub(super) fn explains_after(args: &RunArgs, question: Question) -> anyhow::Result<bool> {
    match question {
        Question::Compare | Question::Scale => Ok(args.explain),
        _ if args.explain => usage("--explain needs a comparison of servers"),
        _ => Ok(false),
    }
}

/// The rules of `--fail-if`. Rules about capacities belong to searches, all others to comparisons.
pub(super) fn rules(args: &RunArgs, question: Question) -> anyhow::Result<Vec<Rule>> {
    let rules: Vec<Rule> =
        args.fail_if.iter().map(|r| Rule::parse(r)).collect::<anyhow::Result<_>>()?;
    let is_search = question == Question::Capacity;
    match args.fail_if.iter().zip(&rules).find(|(_, r)| r.is_about_capacity() != is_search) {
        None => Ok(rules),
        Some((text, _)) if is_search => {
            usage(format!("--fail-if {text:?}: a search only knows \"capacity -5%\""))
        }
        Some((text, _)) => usage(format!("--fail-if {text:?} needs `hotlap capacity`")),
    }
}
