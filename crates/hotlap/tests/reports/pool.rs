//! Tests `hotlap merge` with shards of scripted laps that seem to come from several nodes.

use std::fs;
use std::path::Path;

use crate::scene::{hold, printed, scene, script};
use hotlap::analysis::{Analysis, Measure};
use hotlap::model::{Run, Shard};
use hotlap::pool::apart::{Condition, apart};
use hotlap::pool::merge::{Measured, merged};
use hotlap::redact;
use hotlap::store::Store;
use hotlap_bench::participant::Role;
use hotlap_stats::Rank;
use hotlap_testkit::{Said, Scene};

/// A node, and the factors by which its shards differ from the shards of other nodes.
#[derive(Clone, Copy)]
struct Node {
    name: &'static str,
    /// How much faster everything is on this node.
    speed: f64,
    /// How much more `b` and `c` cost on this node than elsewhere, relative to the reference.
    b_costs: f64,
    /// How much more the ceiling costs on this node.
    ceiling: f64,
    /// How much more the A/A control costs on this node.
    control: f64,
}

const PLAIN: Node = Node { name: "n1", speed: 1.0, b_costs: 1.0, ceiling: 1.0, control: 1.0 };

/// Returns which shard of a pool of `of` shards a run measured.
fn place(number: usize, of: usize) -> Shard {
    Shard {
        number,
        of,
        nodes_per_server: 3,
        seed: 7,
        suite_hash: 1,
        options: Vec::new(),
        reference: "a".to_owned(),
        servers: Vec::new(),
    }
}

/// Returns the run of one shard: the reference `a`, the servers of its group, and the servers that
/// all shards have.
fn shard(node: Node, servers: &[&str]) -> Run {
    let wobble = |by: f64| [0.01, -0.02, 0.015, -0.01, 0.005].map(|w| w * by);
    let server =
        |cost: f64, by: f64| script(2.0e8 / cost * node.speed, cost / node.speed, 7, &wobble(by));
    let mut all = vec![("a", Role::Reference, server(10_000.0, 1.0))];
    for name in servers {
        let cost = if *name == "b" { 15_000.0 } else { 20_000.0 };
        all.push((name, Role::Plain, server(cost * node.b_costs, 1.5)));
    }
    let again: Vec<f64> = wobble(-1.0).into_iter().rev().chain([0.012]).collect();
    let control =
        script(2.0e4 * node.speed / node.control, 10_000.0 / node.speed * node.control, 7, &again);
    all.push(("a (again)", Role::Control, control));
    all.push(("ceiling", Role::Ceiling, server(5_000.0 * node.ceiling, 0.5)));
    let mut run = hold(&scene(&all), None).run;
    run.host.node = Some(node.name.to_owned());
    run
}

/// Returns a folder with the results of the first shards of a pool of `of` shards.
fn folder(of: usize, runs: &[Run]) -> Scene {
    let scene = Scene::new();
    std::fs::create_dir(scene.path("pool")).unwrap();
    for (number, run) in runs.iter().enumerate() {
        save(run, place(number, of), &scene.path(&format!("pool/shard-{number}.db")));
    }
    scene
}

fn save(run: &Run, shard: Shard, file: &Path) {
    let shard = Some(shard);
    Store::open(file)
        .unwrap()
        .save(&redact::run(Run { number: None, shard, ..run.clone() }))
        .unwrap();
}

fn merge(scene: &Scene, more: &str) -> Said {
    scene.hotlap("merge pool").words(more).env("COLUMNS", "100").said()
}

/// Returns three nodes of different speed. On these nodes, `b` costs about 1.5 times as much as
/// `a`.
fn three_nodes() -> [Node; 3] {
    [
        Node { name: "n1", b_costs: 0.97, control: 0.98, ..PLAIN },
        Node { name: "n2", speed: 1.1, ..PLAIN },
        Node { name: "n3", speed: 0.95, b_costs: 1.03, control: 1.02, ..PLAIN },
    ]
}

fn all(runs: &[Run]) -> Vec<Measured> {
    let measured =
        |(number, run): (usize, &Run)| Measured::new(place(number, runs.len()), run.clone());
    runs.iter().enumerate().map(measured).collect()
}

#[test]
fn a_merged_table_rests_on_nodes() {
    let runs = three_nodes().map(|node| shard(node, &["b"]));
    let run = merged(&all(&runs), vec![]).unwrap();
    let analysis = Analysis::of(&run, 0);
    let (effect, _) = analysis.servers[1].against.unwrap().found[Measure::Cost].unwrap();
    assert_eq!(effect.restarts, 3, "three nodes");
    assert!(effect.ratio.contains(1.5));
    // The interval is ± 7.5%: a standard deviation of 3% ÷ √3 × 4.303 (t with 2 degrees of
    // freedom). On one node, the interval is narrower than ± 1%.
    assert!((effect.ratio.relative_half_width() - 0.0745).abs() < 0.005, "{effect:?}");
    let alone = Analysis::of(&runs[0], 0).servers[1].against.unwrap();
    let (alone, _) = alone.found[Measure::Cost].unwrap();
    assert!(alone.ratio.relative_half_width() < 0.01, "{alone:?}");
    // Every server has as many latencies as before, in fewer histograms.
    let latencies =
        |run: &Run| run.laps.iter().map(|lap| lap.outcome.service_time.len()).sum::<u64>();
    assert_eq!(latencies(&run), runs.iter().map(latencies).sum::<u64>());
    let full = run.laps.iter().filter(|lap| !lap.outcome.service_time.is_empty()).count();
    assert_eq!(full, 3 * 4);
    assert!(analysis.servers[1].against.unwrap().found[Measure::P50].is_some());
    let text = printed(&run, 100);
    for line in
        ["3 nodes with 9 restarts · slices of 20 ms", "3 of 3 shards on 3 nodes (n1, n2, n3)"]
    {
        assert!(text.contains(line), "{line}:\n{text}");
    }
}

#[test]
fn servers_that_no_shard_measured_together_are_ranked_through_the_reference() {
    let nodes = three_nodes();
    let runs =
        [&["b"], &["c"]].into_iter().flat_map(|servers| nodes.map(|node| shard(node, servers)));
    let run = merged(&all(&runs.collect::<Vec<_>>()), vec![]).unwrap();
    let names: Vec<&str> = run.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "a (again)", "ceiling"]);
    let analysis = Analysis::of(&run, 0);
    let ranks: Vec<_> = analysis.servers[..3].iter().map(|server| server.rank.unwrap()).collect();
    assert_eq!(ranks, [1, 2, 3].map(Rank::only));
    // All shards measured the reference. Each other server was measured only by the shards of its
    // group.
    let restarts = |server: usize| {
        let readings = &analysis.servers[server].readings[Measure::Cost];
        readings.iter().map(|r| r.restart).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!([0, 1, 2, 3].map(restarts), [18, 9, 9, 18]);
}

/// Regression: any store in a folder was merged, even a store of another pool, a store of another
/// experiment, or the same shard twice.
#[test]
fn a_store_that_is_not_one_more_shard_of_the_pool_is_refused() {
    let run = shard(three_nodes()[0], &["b"]);
    let folder = folder(3, std::slice::from_ref(&run));
    assert_ne!(merge(&folder, "").code, Some(2));
    let file = folder.path("pool/shard-1.db");
    let own = place(1, 3);
    let others = [
        (Shard { number: 0, ..own.clone() }, "shard-0.db and"),
        (Shard { of: 4, ..own.clone() }, "the number of shards is 4 instead of 3"),
        (Shard { seed: 8, ..own.clone() }, "--seed is 8 instead of 7"),
        (Shard { nodes_per_server: 2, ..own.clone() }, "--nodes-per-server is 2 instead of 3"),
        (Shard { suite_hash: 2, ..own.clone() }, "the suite has the hash 0000000000000002"),
        (Shard { reference: "b".to_owned(), ..own.clone() }, "the reference is b instead of a"),
        (Shard { options: vec!["--rounds 3".to_owned()], ..own }, "options are \"--rounds 3\""),
    ];
    for (shard, why) in others {
        save(&run, shard, &file);
        merge(&folder, "").fails(2).has("shard-1.db").has(why);
        fs::remove_file(&file).unwrap();
    }
    Store::open(&file).unwrap().save(&redact::run(Run { number: None, ..run })).unwrap();
    merge(&folder, "").fails(2).has("shard-1.db is not a shard");
    merge(&self::folder(3, &[]), "").fails(2).has("has no shard (*.db)");
}

/// Regression: each missing shard of a damaged record was listed, and the list took all memory.
#[test]
fn an_impossible_shard_is_refused() {
    let run = shard(three_nodes()[0], &["b"]);
    for impossible in [place(0, usize::MAX / 2), place(0, 0), place(99, 3)] {
        let folder = folder(3, &[]);
        save(&run, impossible, &folder.path("pool/shard-0.db"));
        merge(&folder, "").fails(1).has("shard-0.db is damaged").has("shard");
    }
}

#[test]
fn two_nodes_get_no_verdict() {
    let [one, two, _] = three_nodes();
    let runs = [one, two, one].map(|node| shard(node, &["b"]));
    let said = merge(&folder(3, &runs), "").succeeds();
    said.has("A verdict needs at least 3 nodes")
        .has("Possibly several of their shards ran on the same node");
}

#[test]
fn kinds_of_machines_are_not_merged() {
    let mut runs = three_nodes().map(|node| shard(node, &["b"]));
    runs[2].host.machine.allowed = 64;
    let folder = folder(3, &runs);
    let said = merge(&folder, "").fails(2);
    for part in [
        "whose results are not merged. Choose one with --kind",
        "1: 2 × Imaginary CPU (x86_64), Linux 6.18",
        "(shards 0, 1 on n1, n2)",
        "2: 64 × Imaginary CPU",
        "(shards 2 on n3)",
    ] {
        assert!(said.flat().contains(part), "{part}: {said:?}");
    }
    merge(&folder, "--kind 2").succeeds().has("1 of 3 shards on 1 node (n3)");
    merge(&folder, "--kind 3").fails(2);
    // Kernels that differ only in the patch version are of one kind, but another kernel series is
    // another kind.
    runs[2].host.machine.allowed = 2;
    for (kernel, expected) in [("Linux 6.18.7", 0), ("Linux 6.17", 2)] {
        runs[2].host.machine.kernel = kernel.to_owned();
        merge(&self::folder(3, &runs), "").fails(expected);
    }
}

#[test]
fn shards_on_disturbed_nodes_are_set_apart_and_missing_ones_are_named() {
    let [one, two, three] = three_nodes();
    let slow = Node { name: "n4", ceiling: 1.4, ..PLAIN };
    let noisy = Node { name: "n5", control: 1.1, ..PLAIN };
    let runs = [one, two, three, slow, noisy].map(|node| shard(node, &["b"]));
    let folder = folder(7, &runs);
    let said = merge(&folder, "--export-json merged.json").succeeds();
    for part in [
        "3 of 7 shards on 3 nodes (n1, n2, n3) · 2 set apart · 2 missing",
        "Note: Shard 3 on n4 is set apart: its ceiling",
        "Note: Shard 4 on n5 is set apart: the A/A control",
        "Note: No given file has the results of shards 5,6.",
    ] {
        assert!(said.flat().contains(part), "{part}: {said:?}");
    }
    let report = folder.json("merged.json");
    let pool = &report["pool"];
    assert_eq!(pool["missing"], serde_json::json!([5, 6]));
    assert_eq!(pool["shards"].as_array().unwrap().len(), 5);
    assert_eq!(pool["shards"][0]["apart"], "");
    let difference = &pool["differences"][0];
    assert_eq!((&difference["server"], &difference["nodes"]), (&"b".into(), &3.into()));
    assert!((difference["cost"]["value"].as_f64().unwrap() - 3.0).abs() < 0.1, "{difference}");
    let laps = report["laps"].as_array().unwrap();
    assert_eq!(laps.len(), runs[..3].iter().map(|run| run.laps.len()).sum::<usize>());
}

#[test]
fn every_export_of_a_merged_run_is_written() {
    let runs = three_nodes().map(|node| shard(node, &["b"]));
    let folder = folder(3, &runs);
    let exports = "--export-html p.html --export-csv t.csv --export-markdown t.md";
    merge(&folder, exports).succeeds();
    assert!(folder.read("p.html").contains("3 of 3 shards on 3 nodes"));
    assert_eq!(folder.read("t.csv").lines().count(), 4, "heading, a, b and the ceiling");
    assert!(folder.read("t.md").contains("## Nodes\n\n3 of 3 shards on 3 nodes (n1, n2, n3)\n"));
}

#[test]
fn a_server_that_failed_on_one_node_counts_on_the_others() {
    let mut runs = [PLAIN, three_nodes()[0], three_nodes()[1], three_nodes()[2]]
        .map(|node| shard(node, &["b"]));
    runs[0].host.node = Some("n0".to_owned());
    runs[0].laps.retain(|lap| lap.server != 1);
    runs[0].servers[1].failure = Some(hotlap::model::ServerFailure {
        phase: "start".to_owned(),
        cause: "it ended".to_owned(),
        log_tail: Vec::new(),
        remedy: String::new(),
    });
    let run = merged(&all(&runs), vec![]).unwrap();
    assert_eq!(run.servers[1].failure, None);
    let analysis = Analysis::of(&run, 0);
    assert_eq!(analysis.restarts(1, Measure::Cost), 3);
    assert_eq!(analysis.restarts(0, Measure::Cost), 4);
    assert_eq!(run.pool.unwrap().notes, ["b failed in shard 0: it ended"]);
}

#[test]
fn different_versions_of_a_server_are_noted() {
    let mut runs = [PLAIN, three_nodes()[1]].map(|node| shard(node, &["b"]));
    runs[1].servers[1].version = "b 2.0".to_owned();
    let notes = merged(&all(&runs), vec![]).unwrap().pool.unwrap().notes;
    let expected = "b has different versions: b 1.0 on n1; b 2.0 on n2. Install one of them on all \
                    nodes.";
    assert_eq!(notes, [expected]);
}

#[test]
fn a_run_of_one_machine_is_not_changed_by_being_a_shard() {
    let run = shard(PLAIN, &["b"]);
    let condition = Condition::of(&run);
    assert!(condition.has_reference && condition.noise.is_some());
    assert_eq!(apart(&[condition; 4]), [None; 4]);
    assert!((condition.ceiling_ns.unwrap() / 5_000.0 - 1.0).abs() < 0.01);
}

/// Returns what a dry run prints about a shard of a suite.
fn planned(scene: &Scene, shard: &str) -> Said {
    let run = scene.hotlap("run --suite ./tiny.toml --dry-run --nodes-per-server 3 --store t.db");
    run.args(["--shard", shard]).said()
}

#[test]
fn a_shard_has_the_reference_and_its_part_of_the_suite() {
    let scene = Scene::new();
    let servers = ["one", "two", "three", "four", "five"]
        .map(|name| format!("  {{ run = \"sh {name}\", name = \"{name}\" }},\n"));
    let suite = |head: &str| format!("{head}\nservers = [\n{}]\n", servers.concat());
    scene.write("tiny.toml", suite("reference = \"three\""));
    let shards = [0, 3, 4, 6].map(|number| {
        let text = planned(&scene, &format!("{number}/7")).succeeds().out;
        let servers = text.split("Servers:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
        let name = |line: &str| line.trim().split(':').next().unwrap().to_owned();
        servers.unwrap().lines().map(name).collect::<Vec<_>>()
    });
    assert_eq!(shards[0], shards[1], "the first group of two has four shards");
    assert_eq!(shards[2], shards[3], "and the second one three");
    let mut others: Vec<&String> = shards[0].iter().chain(&shards[2]).collect();
    let is_shared = |name: &&String| ["three", "three (again)", "ceiling"].contains(&name.as_str());
    assert_eq!(others.iter().filter(|name| is_shared(name)).count(), 6, "{shards:?}");
    others.retain(|name| !is_shared(name));
    others.sort();
    assert_eq!(others, ["five", "four", "one", "two"]);
    // Shards that cannot be merged are not measured.
    scene.write("tiny.toml", suite("slo = 'p99<10ms'"));
    planned(&scene, "0/3").fails(2).has("does not compare servers");
}
