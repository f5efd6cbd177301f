//! The nodes and shards of a merged run, in words.

use serde::Serialize;

use super::figure::{Figure, bare, cell, micros, text_cell};
use crate::analysis::{Analysis, Measure};
use crate::model::{self, Apart, Run};
use crate::text::number::{grouped, percent, plural, rounded, spread};
use crate::text::table::{Cell, Column, Table};

/// The nodes and shards of a merged run.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolView {
    /// The nodes whose shards count.
    pub nodes: Vec<String>,
    /// The number of shards that count, the number of all shards, and the nodes, in one line.
    pub summary: String,
    /// Every shard that has a result.
    pub shards: Vec<ShardView>,
    /// The numbers of the shards without a result.
    pub missing: Vec<usize>,
    /// How much the nodes differ in each server's ratio to the reference.
    pub differences: Vec<NodeDifference>,
    /// Notes on shards that are set apart, and on anything else to know about the shards.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// A shard with a result.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShardView {
    /// The number of the shard, counted from 0.
    pub shard: usize,
    /// The node that ran the shard.
    pub node: String,
    /// The number of restarts that the shard measured.
    pub restarts: u32,
    /// The time that the shard took, in seconds.
    pub took_s: f64,
    /// The shard's noise floor in CPU time per request or else requests/s, as a share. `null` if
    /// unknown.
    pub noise: Option<f64>,
    /// The CPU time per request of the shard's ceiling, in microseconds. `null` if unknown.
    pub ceiling_us: Option<f64>,
    /// Why the shard is set apart. Empty if the shard counts.
    pub apart: String,
}

/// How much the nodes differ in one server's ratio to the reference.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeDifference {
    /// The index of the load.
    pub load: usize,
    /// The name of the server, with the load if there are several.
    pub server: String,
    /// The number of nodes that the server's ratio rests on.
    pub nodes: u32,
    /// The standard deviation of the requests/s ratio between nodes, in per cent. `null` if
    /// unknown.
    pub requests_per_s: Option<Figure>,
    /// The standard deviation of the CPU time ratio between nodes, in per cent. `null` if unknown.
    pub cost: Option<Figure>,
    /// The standard deviation of the CPU time ratio that restarts alone explain, in per cent.
    pub cost_within: Option<Figure>,
}

impl PoolView {
    pub(super) fn of(run: &Run, analyses: &[Analysis]) -> Option<Self> {
        let pool = run.pool.as_ref()?;
        let counting = pool.shards.iter().filter(|shard| shard.apart.is_none()).count();
        let mut names = pool.nodes.clone();
        names.sort();
        let mut summary = format!(
            "{} of {} on {} ({})",
            counting,
            plural(pool.planned, "shard"),
            plural(names.len(), "node"),
            names.join(", ")
        );
        let set_apart = pool.shards.len() - counting;
        if set_apart > 0 {
            summary += &format!(" · {set_apart} set apart");
        }
        if !pool.missing.is_empty() {
            summary += &format!(" · {} missing", pool.missing.len());
        }
        let differences: Vec<NodeDifference> =
            analyses.iter().flat_map(|analysis| NodeDifference::all_of(run, analysis)).collect();
        let shards: Vec<ShardView> = pool.shards.iter().map(ShardView::from).collect();
        let mut notes: Vec<String> = shards.iter().filter_map(ShardView::note).collect();
        notes.extend(missing(&pool.missing));
        notes.extend(few_nodes(run, analyses));
        notes.extend(pool.notes.iter().cloned());
        let missing = pool.missing.clone();
        Some(Self { nodes: names, summary, shards, missing, differences, notes })
    }

    /// Returns a table of how much the nodes differ, with one row per server and load.
    pub fn table(&self) -> Table {
        let all = || self.differences.iter();
        let nodes = |d: &NodeDifference| Cell::from(d.nodes.to_string());
        Table::new(vec![
            Column::name("between nodes", all().map(|d| &d.server)).required(),
            Column::right("nodes", all().map(nodes)).required(),
            Column::right("req/s", all().map(|d| cell(d.requests_per_s.as_ref()))),
            Column::right("CPU/req", all().map(|d| cell(d.cost.as_ref()))),
            Column::right("by restarts", all().map(|d| text_cell(d.cost_within.as_ref()))),
        ])
    }

    /// Returns the legend of the table.
    pub fn legend(&self) -> &'static str {
        "How much the ratio to the reference differs between nodes: its standard deviation, with \
         its 95% interval. The last column is the part that restarts of one node explain, for \
         CPU/req."
    }
}

impl ShardView {
    fn note(&self) -> Option<String> {
        let why = Some(&self.apart).filter(|why| !why.is_empty())?;
        Some(format!("Shard {} on {} is set apart: {why}", self.shard, self.node))
    }
}

impl From<&model::MergedShard> for ShardView {
    fn from(shard: &model::MergedShard) -> Self {
        Self {
            shard: shard.shard,
            node: shard.node.clone(),
            restarts: shard.restarts,
            took_s: rounded(shard.took_ms as f64 / 1e3),
            noise: shard.noise.map(|noise| rounded(noise.exp_m1())),
            ceiling_us: shard.ceiling_ns.map(|ns| rounded(ns / 1e3)),
            apart: shard.apart.as_ref().map_or_else(String::new, why),
        }
    }
}

/// Returns why a shard is set apart, with a remedy.
fn why(apart: &Apart) -> String {
    let us = |ns: f64| micros(&super::figure::exactly(ns / 1e3)).text;
    match apart {
        Apart::NoReference => "the reference has no laps that count under at least one load. \
                               `hotlap report --store FILE` says why. Remove the store and run \
                               the shard again."
            .to_owned(),
        Apart::ControlDiffers => {
            "the A/A control, the same program as the reference, differs from \
                                  it. Look for what disturbs the node, remove the store and run \
                                  the shard again."
                .to_owned()
        }
        Apart::Noise { own, pool } => format!(
            "its noise floor is {}, and the median of all shards is {}. Look for what else runs \
             on the node, remove the store and run the shard again.",
            spread(own.exp_m1()),
            spread(pool.exp_m1())
        ),
        Apart::Ceiling { own, pool } => format!(
            "its ceiling, the same program everywhere, costs {} µs per request, and the median \
             of all shards is {} µs. Possibly the node has another clock rate, or is shared. \
             Remove the store and run the shard again on another node.",
            us(*own),
            us(*pool)
        ),
    }
}

impl NodeDifference {
    fn all_of(run: &Run, analysis: &Analysis) -> Vec<Self> {
        let of = |server: usize| {
            let found = analysis.node_spread(server);
            let any = found[Measure::Cost].or(found[Measure::Rate])?;
            // Two nodes say almost nothing about how much nodes differ.
            (any.nodes >= hotlap_stats::MIN_RESTARTS).then_some(())?;
            let between = |measure: Measure| Some(in_percent(&found[measure]?.between));
            Some(Self {
                load: analysis.load,
                server: format!(
                    "{}{}",
                    run.servers[server].name,
                    super::heading::under(run, analysis.load)
                ),
                nodes: any.nodes,
                requests_per_s: between(Measure::Rate),
                cost: between(Measure::Cost),
                cost_within: found[Measure::Cost]
                    .map(|found| bare(100.0 * found.within, percent(100.0 * found.within))),
            })
        };
        (0..run.servers.len()).filter_map(of).collect()
    }
}

/// Formats a standard deviation in log units as per cent: `0.8%`, with the interval `[0%, 2.1%]`.
fn in_percent(between: &hotlap_stats::Estimate) -> Figure {
    let found = between.scaled(100.0);
    let end = |value: f64| if value >= 100.0 { "∞".to_owned() } else { percent(value) };
    let spread = format!("[{}, {}]", end(found.low), end(found.high));
    Figure::new(&found, percent(found.value), spread)
}

fn missing(numbers: &[usize]) -> Option<String> {
    if numbers.is_empty() {
        return None;
    }
    let list: Vec<String> = numbers.iter().map(usize::to_string).collect();
    let list = list.join(",");
    Some(match numbers.len() {
        1 => format!(
            "No given file has the result of shard {list}. Unless the file was left out, look into \
             the shard's log, and start the shard again."
        ),
        _ => format!(
            "No given file has the results of shards {list}. Unless files were left out, look into \
             the shards' logs, and start the shards again (with Slurm: sbatch --array={list})."
        ),
    })
}

/// Names the servers that were measured on too few nodes.
fn few_nodes(run: &Run, analyses: &[Analysis]) -> Option<String> {
    let pool = run.pool.as_ref()?;
    let most = pool.nodes.len();
    let count = |server: usize| {
        analyses.iter().map(|a| a.restarts(server, Measure::Rate)).max().unwrap_or(0) as usize
    };
    let few: Vec<(usize, usize)> = (0..run.servers.len())
        .filter(|&server| run.is_compared(server))
        .map(|server| (server, count(server)))
        .filter(|(_, nodes)| *nodes > 0 && *nodes < hotlap_stats::MIN_RESTARTS as usize)
        .collect();
    if few.is_empty() || most < 2 {
        return None;
    }
    let names = few.iter().map(|(server, nodes)| {
        format!("{} ({})", run.servers[*server].name, plural(*nodes, "node"))
    });
    Some(format!(
        "These servers were measured on fewer than {} nodes: {}. Possibly several of their shards \
         ran on the same node, or some shards do not count. Use a pool of more nodes, or submit \
         the shards again one by one.",
        grouped(f64::from(hotlap_stats::MIN_RESTARTS), 0),
        names.collect::<Vec<_>>().join(", ")
    ))
}
