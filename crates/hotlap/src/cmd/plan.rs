//! `hotlap plan`: divides a suite into shards, and writes them, and what a scheduler needs, to a
//! folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use hotlap_bench::suite::Suite;

use super::run::participants::from_catalogue;
use super::run::spec::{Reference, RunSpec};
use crate::assets;
use crate::cli::{self, PlanArgs};
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::model::Question;
use crate::pool::division::{Group, NODES_PER_SERVER, divide};
use crate::pool::plan::{PLAN, Plan, is_store};
use crate::pool::{kubernetes, slurm};
use crate::text::number::plural;

/// Plans.
pub fn run(args: &PlanArgs, console: &Console) -> anyhow::Result<Exit> {
    let suite = Suite::open(&args.suite, &assets::suites()?).or_else(|e| usage(e.to_string()))?;
    let spec = planned(args, &suite)?;
    let folder = args.into.clone().unwrap_or_else(|| format!("{}-pool", suite.name).into());
    if folder.join(PLAN).exists() {
        return usage(format!(
            "{} has a plan: run its shards again to complete it (those that are done are left \
             out), or name another folder (--into)",
            folder.display()
        ));
    }
    if let Some(result) = a_result_in(&folder) {
        return usage(format!(
            "{} has the result of another plan ({}): name another folder (--into)",
            folder.display(),
            result.display()
        ));
    }
    let plan = plan(args, &suite, &spec)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = std::path::absolute(&folder)?;
    copy_suite(&suite, &folder)?;
    let written = schedulers(args, &spec, &plan, &folder)?;
    // Last: a folder with a plan is complete.
    plan.write(&folder)?;
    console.print(&summary(&plan, &folder, &written))?;
    Ok(Exit::Ok)
}

/// A result of a shard in a folder.
fn a_result_in(folder: &Path) -> Option<PathBuf> {
    let names = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name());
    names.filter(|name| is_store(&name.to_string_lossy())).map(PathBuf::from).min()
}

/// The run that the suite would be on one machine.
fn planned(args: &PlanArgs, suite: &Suite) -> anyhow::Result<RunSpec> {
    let named = [String::from("--suite"), args.suite.clone()];
    let words: Vec<String> = named.into_iter().chain(args.options.iter().cloned()).collect();
    let spec = RunSpec::new(&cli::run_args(&words).or_else(usage)?)?;
    match spec.question {
        Question::Compare | Question::Layers | Question::Scale => Ok(spec),
        _ => usage(format!(
            "the suite {} does not compare servers: a pool merges comparisons only",
            suite.name
        )),
    }
}

fn plan(args: &PlanArgs, suite: &Suite, spec: &RunSpec) -> anyhow::Result<Plan> {
    let names: Vec<String> = spec.servers.iter().map(|server| server.name.clone()).collect();
    let reference = match spec.reference {
        Reference::Server(server) => Some(server),
        Reference::Entry(entry) => spec.servers.iter().position(|server| server.entry == entry),
    };
    let Some(reference) = reference.and_then(|server| names.get(server)).cloned() else {
        return usage(format!(
            "the suite {} has no reference that all shards can have",
            suite.name
        ));
    };
    // The seed of `spec` is a fresh one.
    let seed = args.seed.unwrap_or(spec.seed);
    let repeats = args.nodes_per_server.unwrap_or(NODES_PER_SERVER).min(args.shards);
    let groups = match spec.question {
        Question::Compare => divide(&names, &reference, args.shards, repeats, seed),
        // A layer is compared with the one below, a number of threads with another one.
        _ => vec![Group { servers: names, shards: (0..args.shards).collect() }],
    };
    let file = PathBuf::from(suite.file.file_name().unwrap_or_default());
    Ok(Plan { options: args.options.clone(), ..Plan::new(file, seed, reference, groups) })
}

/// Copies the suite, and the files beside it that it reads.
fn copy_suite(suite: &Suite, folder: &Path) -> anyhow::Result<()> {
    let beside = suite.file.parent().unwrap_or(Path::new(""));
    let read = [Some(&suite.file), suite.requests_file.as_ref(), suite.access_log.as_ref()];
    for file in read.into_iter().flatten() {
        let Ok(below) = file.strip_prefix(beside) else { continue };
        if below.components().any(|part| part == std::path::Component::ParentDir) {
            return usage(format!(
                "the suite reads {}, which is not below its own folder: name it by an absolute \
                 path that all nodes have",
                file.display()
            ));
        }
        let to = folder.join(below);
        let made = to.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::copy(file, &to).map(drop))
            .with_context(|| format!("cannot copy {} to {}", file.display(), to.display()))?;
    }
    Ok(())
}

/// Writes the files for schedulers, and returns the commands that start the shards.
fn schedulers(
    args: &PlanArgs,
    spec: &RunSpec,
    plan: &Plan,
    folder: &Path,
) -> anyhow::Result<Vec<String>> {
    let put = |name: &str, text: String| {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        anyhow::Ok(shell_words::quote(&file.to_string_lossy()).into_owned())
    };
    let limit = args.time_limit.unwrap_or_else(|| time_limit(spec));
    let mut commands = Vec::new();
    if args.slurm {
        let script = slurm::script(plan, folder, limit, args.generator_host).or_else(usage)?;
        commands.push(format!("sbatch {}", put(slurm::FILE, script)?));
    }
    if args.kubernetes {
        let job = kubernetes::job(plan, &args.image, args.cpus, limit);
        let servers: Vec<&str> = from_catalogue(spec).iter().map(|s| s.id.as_str()).collect();
        put(kubernetes::DOCKERFILE, kubernetes::dockerfile(&servers))?;
        commands.push(format!("kubectl apply -f {}", put(kubernetes::FILE, job)?));
    }
    Ok(commands)
}

/// Three times the measuring time, and half an hour for builds and warm-ups; in whole minutes.
fn time_limit(spec: &RunSpec) -> Duration {
    /// Without a budget, a shard of the usual size: see `timing::usual_budget`.
    const USUAL: Duration = Duration::from_secs(300);
    let minutes = (3 * spec.budget.unwrap_or(USUAL)).as_secs().div_ceil(60) + 30;
    Duration::from_secs(60 * minutes)
}

fn summary(plan: &Plan, folder: &Path, commands: &[String]) -> String {
    let servers: usize = plan.groups.iter().map(|group| group.servers.len() - 1).sum::<usize>() + 1;
    let least = plan.groups.iter().map(|group| group.shards.len()).min().unwrap_or(0);
    let most = plan.groups.iter().map(|group| group.servers.len()).max().unwrap_or(0);
    let mut text = format!(
        "{} in {}, with up to {} each, and the A/A control and the ceiling in all; each server in \
         at least {least}, on as many nodes.\nReference: {}. Written to {}.\n",
        plural(servers, "server"),
        plural(plan.shards, "shard"),
        plural(most, "server"),
        plan.reference,
        folder.display()
    );
    let quoted = shell_words::quote(&folder.to_string_lossy()).into_owned();
    for command in commands {
        text += &format!("  {command}\n");
    }
    if commands.is_empty() {
        text +=
            &format!("  hotlap run --shard {quoted}/shard-0.toml   (and the others, anywhere)\n");
    }
    text + &format!("  hotlap merge {quoted}\n")
}
