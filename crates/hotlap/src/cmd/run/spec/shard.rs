//! The part of a suite that `--shard` selects, with its servers and the reference.

use std::hash::Hasher;

use anyhow::Context;
use fnv::FnvHasher;
use hotlap_bench::suite::{Question, Suite};
use hotlap_servers::files;

use super::server::ServerSpec;
use crate::cli::RunArgs;
use crate::exit::usage;
use crate::model::Shard;
use crate::pool::division::{NODES_PER_SERVER, SEED, divide, seed_of};
use crate::quantity::ShardNumber;
use crate::redact;

/// The seed of a shard, if `--shard` is given.
pub(super) fn seed(args: &RunArgs) -> Option<u64> {
    args.shard.map(|shard| seed_of(args.common.placement.seed.unwrap_or(SEED), shard.number))
}

/// Divides the servers of a suite among its shards, and returns the shard with this number. The
/// servers of a shard are compared with `reference`.
pub(super) fn shard(
    ShardNumber { number, of }: ShardNumber,
    args: &RunArgs,
    suite: &Suite,
    question: Question,
    servers: &[ServerSpec],
    reference: Option<&ServerSpec>,
) -> anyhow::Result<Shard> {
    let Some(reference) = reference.map(|server| server.name.clone()) else {
        let name = &suite.name;
        return usage(format!("the suite {name} has no reference, which every shard must measure"));
    };
    let names: Vec<String> = servers.iter().map(|server| server.name.clone()).collect();
    let suite_hash = hash(suite, &names)?;
    let seed = args.common.placement.seed.unwrap_or(SEED);
    let nodes_per_server = args.nodes_per_server.unwrap_or(NODES_PER_SERVER).min(of);
    let servers = match question {
        Question::Compare => {
            let groups = divide(&names, &reference, of, nodes_per_server, seed);
            let own = groups.into_iter().find(|group| group.shards.contains(&number));
            own.expect("each shard has a group").servers
        }
        // The servers of these questions are compared with each other, so they stay together.
        Question::Layers | Question::Scale => names,
        _ => {
            return usage(format!(
                "the suite {} does not compare servers: `hotlap merge` merges comparisons only",
                suite.name
            ));
        }
    };
    let options = options(args);
    Ok(Shard { number, of, nodes_per_server, seed, suite_hash, options, reference, servers })
}

/// A hash of the suite's file, its requests file and the names of its servers. Access logs are
/// left out because they are large. The loads identify the access logs, and loads are compared
/// separately.
fn hash(suite: &Suite, names: &[String]) -> anyhow::Result<u64> {
    let mut hasher = FnvHasher::default();
    let mut add = |bytes: &[u8]| {
        hasher.write(bytes);
        // The byte 0xff never occurs in UTF-8, so it separates the parts.
        hasher.write_u8(0xff);
    };
    for file in [Some(&suite.file), suite.requests_file.as_ref()].into_iter().flatten() {
        add(&files::read(file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    names.iter().for_each(|name| add(name.as_bytes()));
    Ok(hasher.finish())
}

/// Returns the options that change what is measured. Options of the request and of the load's shape
/// are left out. The loads show these options, and loads are compared separately.
fn options(args: &RunArgs) -> Vec<String> {
    let (schedule, shape) = (&args.schedule, &args.common.shape);
    let (placement, start) = (&args.common.placement, &args.common.start);
    let flag = |option: &str, is_given: bool| is_given.then(|| option.to_owned());
    let options = [
        schedule.duration.map(|time| format!("--duration {time:?}")),
        schedule.precision.map(|share| format!("--precision {share}")),
        flag("--stop-early", schedule.stop_early),
        schedule.slice.map(|time| format!("--slice {time:?}")),
        schedule.restarts.map(|count| format!("--restarts {count}")),
        schedule.rounds.map(|count| format!("--rounds {count}")),
        args.rate.map(|rate| format!("--rate {rate}")),
        Some(format!("--timeout {:?}", shape.connection.timeout)),
        Some(format!("--start-timeout {:?}", shape.start.start_timeout)),
        placement.server_cpus.map(|count| format!("--server-cpus {count}")),
        args.common.request.contract.as_ref().map(|name| format!("--contract {name}")),
        start.prepare.as_ref().map(|command| format!("--prepare {}", redact::text(command))),
        flag("--no-ceiling", schedule.no_ceiling),
        flag("--no-pin", placement.no_pin),
        flag("--no-freeze", placement.no_freeze),
        flag("--high-priority", placement.high_priority),
    ];
    options.into_iter().flatten().collect()
}
