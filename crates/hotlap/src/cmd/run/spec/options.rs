//! Checks that clap cannot express, because they depend on the suite, the question or the servers.
//! This module also defines what options mean for a question.

use std::time::Duration;

use hotlap_bench::participant::Load;
use hotlap_bench::slo::Objective;
use hotlap_bench::stress::Scenario;
use hotlap_bench::suite::{Question, Suite};
use hotlap_servers::database::{ClusterUrl, Schema};

use super::super::rule::Rule;
use super::DatabaseSpec;
use super::server::{ServerSpec, Source};
use crate::cli::{ExportArgs, RunArgs, Schedule, StartArgs};
use crate::exit::usage;
use crate::redact;
use crate::slo;
use crate::text::number::plural;

/// Rejects the first of these options that was given.
fn refuse(options: &[(&str, bool)], why: impl Fn(&str) -> String) -> anyhow::Result<()> {
    match options.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => usage(why(option)),
    }
}

/// Rejects options about servers if no server is named, because the quick suite would run instead.
pub(super) fn need_servers(args: &RunArgs) -> anyhow::Result<()> {
    let options = [
        ("--explain", args.explain),
        ("--layers", args.layers),
        ("--scenario", !args.scenarios.is_empty()),
        ("--stress", args.stress),
        ("--name", !args.common.names.is_empty()),
    ];
    refuse(&options, |option| {
        format!(
            "{option} needs servers: name them, for example `hotlap run go/net-http 'node app.js' \
             {option} ...`"
        )
    })
}

/// Rejects options that conflict with a suite, and schedules that measure nothing.
pub(super) fn check(args: &RunArgs, suite: Option<&Suite>) -> anyhow::Result<()> {
    if suite.is_some() && !args.common.start.parameters.is_empty() {
        return usage(
            "-L applies to servers on the command line, but a suite names its own servers: leave \
             out -L, or name servers instead of a suite",
        );
    }
    if args.schedule.restarts == Some(0) || args.schedule.rounds == Some(0) {
        return usage("0 restarts or rounds measure nothing: use at least 1");
    }
    Ok(())
}

/// Returns the database of `--with-postgres`, of the suite, or of the servers' contracts.
pub(super) fn database(
    args: &RunArgs,
    suite: Option<&Suite>,
    servers: &[ServerSpec],
) -> anyhow::Result<Option<DatabaseSpec>> {
    let written = || suite?.with_postgres.as_ref();
    let file = args.common.start.with_postgres.as_ref().or_else(written);
    let needs = |server: &&ServerSpec| match &server.source {
        Source::Catalogue(server, _) => server.needs_database(),
        Source::Custom(..) => false,
    };
    let schema = match (file, servers.iter().find(needs)) {
        (None, None) => {
            let start = &args.common.start;
            let own = [
                ("--postgres", start.postgres.is_some()),
                ("--database", start.database.is_some()),
            ];
            refuse(&own, |option| {
                format!("{option} has no effect without --with-postgres: add that option")
            })?;
            return Ok(None);
        }
        (None, Some(_)) => Schema::Contracts,
        (Some(file), None) => match std::fs::File::open(file) {
            Ok(_) => Schema::File(file.clone()),
            Err(error) => {
                return usage(format!("cannot read the SQL file {}: {error}", file.display()));
            }
        },
        (Some(_), Some(server)) => {
            return usage(format!(
                "the contract of {} has tables of its own: leave out --with-postgres (in a suite, \
                 with_postgres)",
                server.name
            ));
        }
    };
    let placement = &args.common.placement;
    refuse(&[("--shard", args.shard.is_some())], |option| {
        format!("servers with a database cannot be measured in shards: leave out {option}")
    })?;
    refuse(&[("--server-on", placement.server_on.is_some())], |option| {
        format!("hotlap creates databases only for servers on this machine: leave out {option}")
    })?;
    let StartArgs { postgres, database, .. } = &args.common.start;
    let url = match database {
        Some(text) => {
            let url: ClusterUrl =
                text.parse().or_else(|why| usage(format!("--database: {why}")))?;
            url.password().iter().for_each(|password| redact::secret(password));
            Some(url)
        }
        None => None,
    };
    Ok(Some(DatabaseSpec { schema, url, programs: postgres.clone() }))
}

/// Rejects options of the load if a suite defines its loads.
pub(super) fn have_no_loads(args: &RunArgs, suite: &Suite) -> anyhow::Result<()> {
    let shape = &args.common.shape;
    let own = [("-c", shape.connections.is_some()), ("-t", shape.threads.is_some())];
    let options: Vec<_> = own.into_iter().chain(shape.connection.given()).collect();
    refuse(&options, |option| {
        format!("the suite {} defines its loads: leave out {option}", suite.name)
    })
}

/// Rejects request options if only catalogue servers are named, because the contract defines their
/// requests. Also rejects `--shell` if no command is named. `commands` and `urls` say whether any
/// server is a command or a URL.
pub(super) fn apply_to_servers(args: &RunArgs, commands: bool, urls: bool) -> anyhow::Result<()> {
    let request = &args.common.request;
    let ask = &request.ask;
    let none = !commands && !urls;
    let options = [
        ("--path", request.path.is_some() && none),
        ("--method", ask.method.is_some() && none),
        ("--header", !ask.headers.is_empty() && none),
        ("--body", ask.body.is_some() && none),
        ("--expect-status", ask.expect_status.is_some() && none),
        ("--expect-body", ask.expect_body.is_some() && none),
        ("--access-log", ask.access_log.is_some() && none),
        ("--requests-file", request.requests_file.is_some() && none),
    ];
    refuse(&options, |option| {
        format!(
            "{option} applies to commands and URLs, but only built-in servers are named. A \
             contract defines their requests (--contract NAME)"
        )
    })?;
    let shell = [("--shell", args.common.start.shell && !commands)];
    refuse(&shell, |_| {
        "--shell applies to commands, but no command is named: leave out --shell".to_owned()
    })
}

/// Rejects generators for a stress run, more generators than connections, and an address without
/// another host.
pub(super) fn have_hosts(
    args: &RunArgs,
    loads: &[Load],
    scenarios: &[Scenario],
) -> anyhow::Result<()> {
    let placement = &args.common.placement;
    let count = placement.generator_on.len();
    if placement.server_address.is_some() && placement.server_on.is_none() && count == 0 {
        return usage(
            "--server-address has no effect without --server-on or --generator-on: add one of them",
        );
    }
    if count > 0 && !scenarios.is_empty() {
        return usage(
            "stress scenarios load the servers from this machine: leave out --generator-on",
        );
    }
    match loads.iter().find(|load| load.shape.connections < count) {
        Some(load) => usage(format!(
            "{} cannot be divided among {count} generators: use at least {count} connections, or \
             fewer generators",
            plural(load.shape.connections, "connection")
        )),
        None => Ok(()),
    }
}

/// Returns the goals of the suite or of `hotlap capacity`. Empty if nothing is searched.
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

/// The precision of a search if neither the flags nor the suite sets one.
pub(super) const PRECISION: f64 = 0.05;

/// The timeout of a request. The timeout is at least twice the limit of each latency goal, so that
/// a request that exceeds a goal is seen to exceed it.
pub(super) fn timeout(timeout: Duration, objectives: &[Objective]) -> Duration {
    let limits = objectives.iter().filter_map(Objective::latency);
    limits.map(|(_, ns)| Duration::from_nanos(ns) * 2).fold(timeout, Duration::max)
}

/// Rejects options that have no meaning for a search.
fn only_for_searches(args: &RunArgs) -> anyhow::Result<()> {
    let schedule = &args.schedule;
    let options = [
        ("--rate", args.rate.is_some()),
        ("--slice", schedule.slice.is_some()),
        ("--rounds", schedule.rounds.is_some()),
        ("--stress", args.stress),
        ("--resume", args.resume),
        ("--save-baseline", args.save_baseline.is_some()),
        ("--export-github-benchmark", args.common.exports.export_github_benchmark.is_some()),
        ("--export-bencher", args.common.exports.export_bencher.is_some()),
    ];
    refuse(&options, |option| {
        format!("{option} does not work with a search for capacities: leave it out")
    })
}

/// Whether the run also explains the differences in cost.
pub(super) fn explains_after(args: &RunArgs, question: Question) -> anyhow::Result<bool> {
    match question {
        Question::Compare | Question::Scale => Ok(args.explain),
        _ if args.explain => usage("--explain works with comparisons only: leave it out"),
        _ => Ok(false),
    }
}

/// Parses the rules of `--fail-if`. Rules about capacities are only for searches, and all other
/// rules are only for other runs.
pub(super) fn rules(args: &RunArgs, question: Question) -> anyhow::Result<Vec<Rule>> {
    let rules: Vec<Rule> =
        args.fail_if.iter().map(|r| Rule::parse(r)).collect::<anyhow::Result<_>>()?;
    let is_search = question == Question::Capacity;
    match Rule::mismatched(&args.fail_if, &rules, is_search) {
        None => Ok(rules),
        Some(text) if is_search => usage(format!(
            "--fail-if {text:?} does not apply to `hotlap capacity`: use a rule like \"capacity \
             -5%\""
        )),
        Some(text) => usage(format!("--fail-if {text:?} needs `hotlap capacity`")),
    }
}

/// Returns the cost ratio that decides when a run with `--stop-early` ends: 1, or the limit of the
/// rule. `None` without `--stop-early`, with several rules, and with a rule about another measure.
pub(super) fn limit(schedule: &Schedule, rules: &[Rule]) -> Option<f64> {
    match rules {
        _ if !schedule.stop_early => None,
        [] => Some(1.0),
        [rule] => rule.cost_limit(),
        _ => None,
    }
}

/// Returns the exports. Rejects formats that cannot show a stress run or an explanation.
pub(super) fn exports(args: &RunArgs, question: Question) -> anyhow::Result<ExportArgs> {
    let table = &args.common.exports;
    let for_tables = [
        &table.export_csv,
        &table.export_svg,
        &table.export_junit,
        &table.export_github_benchmark,
        &table.export_bencher,
    ];
    let verb = match question {
        Question::Stress => "a stress run",
        Question::Explain => "an explanation",
        _ => return Ok(table.clone()),
    };
    if for_tables.iter().any(|file| file.is_some()) {
        return usage(format!(
            "{verb} can be exported with --export-json, --export-markdown and --export-html only"
        ));
    }
    Ok(table.clone())
}
