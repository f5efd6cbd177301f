//! What can be typed after `hotlap plan` and `hotlap merge`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::output::ExportArgs;
use crate::quantity;

/// `hotlap plan`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap plan app-servers --shards 6                    the folder app-servers-pool
  hotlap plan ./mine.toml --shards 12 --into pool --slurm
  sbatch pool/slurm.sh && hotlap merge pool
  hotlap plan hello --shards 40 --kubernetes --image registry/hotlap:1
  hotlap plan hello --shards 5 -- --duration 5m         options of hotlap run")]
pub struct PlanArgs {
    /// The suite: a name, or a file
    #[arg(value_name = "SUITE")]
    pub suite: String,
    /// Number of shards: runs of their own, each on one machine
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    pub shards: usize,
    /// How many shards measure each server (default: 5, or --shards if that is less); as many nodes
    /// is what its interval rests on
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    pub nodes_per_server: Option<usize>,
    /// Folder of the plan and the results, on a file system that all nodes share (default:
    /// SUITE-pool)
    #[arg(long, value_name = "FOLDER")]
    pub into: Option<PathBuf>,
    /// Seed of the division and of each shard's order (default: a new one)
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Also write slurm.sh, an array of jobs for sbatch
    #[arg(long, help_heading = "Schedulers")]
    pub slurm: bool,
    /// Two nodes for each shard: the server on the one, the load generator on the other
    #[arg(long, requires = "slurm", help_heading = "Schedulers")]
    pub generator_host: bool,
    /// Also write kubernetes.json, an Indexed Job, and a Dockerfile
    #[arg(long, help_heading = "Schedulers")]
    pub kubernetes: bool,
    /// Image with hotlap and the toolchains of the servers
    #[arg(long, value_name = "IMAGE", default_value = "hotlap:latest")]
    #[arg(help_heading = "Schedulers")]
    pub image: String,
    /// CPUs of a pod, all its own
    #[arg(long, value_name = "N", default_value = "4", value_parser = quantity::count)]
    #[arg(help_heading = "Schedulers")]
    pub cpus: usize,
    /// Time limit of a shard (default: three times its measuring time, and half an hour for builds)
    #[arg(long, value_name = "TIME", value_parser = quantity::span, help_heading = "Schedulers")]
    pub time_limit: Option<Duration>,
    /// Options of `hotlap run` for every shard, after `--`
    #[arg(value_name = "OPTION", last = true)]
    pub options: Vec<String>,
}

/// `hotlap merge`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap merge pool                              what the shards found so far
  hotlap merge pool --export-html page.html      the same as a page
  hotlap merge pool --kind 2                     the second kind of machine")]
pub struct MergeArgs {
    /// The folder that `hotlap plan` wrote
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Which kind of machine, if the shards ran on several: its number in the message
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    pub kind: Option<usize>,
    /// Also print everything known about each server
    #[arg(long)]
    pub details: bool,
    /// Where the report is written to.
    #[command(flatten)]
    pub exports: ExportArgs,
}
