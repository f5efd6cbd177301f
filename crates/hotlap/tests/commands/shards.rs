//! Tests real runs of shards. A shard exists as a whole or not at all, whatever ends its run.

use std::fs;
use std::path::Path;

use hotlap::store::Store;
use hotlap_testkit::{Hotlap, Scene, program};
use rustix::process::Signal;

/// Returns a suite of two servers, with a folder for the results of its shards.
fn pool() -> Scene {
    let scene = Scene::new();
    fs::create_dir(scene.path("pool")).unwrap();
    let known = format!("{} __known working", program());
    let [one, two] = [("one", 10), ("two", 900)]
        .map(|(name, rounds)| format!("{{ run = \"{known}:{rounds}\", name = \"{name}\" }}"));
    scene.write("tiny.toml", format!("servers = [\n{one},\n{two},\n]\n"));
    scene
}

const SHORT: &str = "--restarts 1 --rounds 1 --slice 12ms -q";

fn shard(scene: &Scene, shard: usize, node: &str) -> Hotlap {
    let words = format!("run --suite ./tiny.toml --shard {shard}/3 --store pool/shard-{shard}.db");
    let run = scene.hotlap(&words).words(SHORT).env("HOTLAP_NODE", node);
    run.env("TMPDIR", scene.folder())
}

/// Returns the names of the results and of the folders of unfinished stores.
fn results(scene: &Scene) -> Vec<String> {
    let unfinished = scene.names("").into_iter().filter(|name| name.starts_with("hotlap-shard-"));
    unfinished.chain(scene.names("pool")).collect()
}

fn node_of(scene: &Scene, store: &str) -> Option<String> {
    let run = Store::open_existing(&scene.path(store)).unwrap().run(1).unwrap();
    run.host.node
}

#[test]
fn a_shard_is_there_as_a_whole_or_not_at_all() {
    let scene = pool();
    // Neither a run that is killed at once nor a run that is told to end leaves a result.
    for (signal, code) in [(Signal::KILL, None), (Signal::TERM, Some(130))] {
        let mut running = shard(&scene, 0, "n1").start();
        // The run has created the folder for the output of its servers.
        let has_folder = |name: &String| scene.path("cache/logs").join(name).is_dir();
        running.until("it measures", || scene.names("cache/logs").iter().any(has_folder));
        running.signal(signal);
        assert_eq!(running.end().code, code);
        let left = results(&scene);
        assert!(left.iter().all(|name| name.starts_with("hotlap-shard-")), "{left:?}");
        left.iter().for_each(|name| fs::remove_dir_all(scene.path(name)).unwrap());
        fs::remove_dir_all(scene.path("cache")).unwrap();
    }
    // Two tasks measure the same shard. Both succeed, and there is one result.
    let both = ["n1", "n2"].map(|node| shard(&scene, 0, node).start());
    both.into_iter().for_each(|running| _ = running.end().succeeds());
    assert_eq!(results(&scene), ["shard-0.db"]);
    // A shard whose result exists is not measured again.
    let first = scene.path("pool/shard-0.db");
    let modified = || fs::metadata(&first).unwrap().modified().unwrap();
    let before = modified();
    shard(&scene, 0, "n3").said().succeeds();
    assert_eq!(modified(), before);
    // Shards of several nodes are merged into one table.
    shard(&scene, 1, "n2").said().succeeds();
    shard(&scene, 2, "n3").said().succeeds();
    scene.hotlap("merge pool --export-json merged.json").said().succeeds();
    let report = scene.json("merged.json");
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"one") && names.contains(&"two") && names.contains(&"ceiling"));
    assert_eq!(report["pool"]["shards"].as_array().unwrap().len(), 3);
    assert_eq!(report["pool"]["shards"][1]["node"], "n2");
    // Any other file in place of a shard is refused and stays unchanged.
    fs::copy(scene.path("pool/shard-1.db"), &first).unwrap();
    let before = modified();
    shard(&scene, 0, "n1").said().fails(2);
    assert_eq!(modified(), before, "another shard");
    let suite = scene.read("tiny.toml").replace("\"two\"", "\"three\"");
    scene.write("tiny.toml", suite);
    let third = fs::read(scene.path("pool/shard-2.db")).unwrap();
    shard(&scene, 2, "n1").said().fails(2);
    assert!(fs::read(scene.path("pool/shard-2.db")).unwrap() == third, "a shard of another suite");
}

fn document(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    fs::read_to_string(file).unwrap()
}

/// Runs the command of the Indexed Job with the variables that Kubernetes sets. Kubernetes replaces
/// `$(NAME)` in a command with the container's variables.
#[test]
fn the_command_of_the_kubernetes_job_runs_the_shard_of_its_index() {
    let scene = pool();
    let job = document("pool-kubernetes.yaml");
    let words = job.split("command:\n").nth(1).unwrap().lines();
    let words = words.map_while(|line| line.trim_start().strip_prefix("- "));
    let filled = |word: &str| {
        let word = word.trim_matches('"').replace("$(JOB_COMPLETION_INDEX)", "2");
        word.replace("/pool/", "pool/").replace("app-servers", "./tiny.toml")
    };
    let mut words = words.map(filled);
    assert_eq!(words.next().as_deref(), Some("hotlap"));
    assert!(job.contains("- name: HOTLAP_NODE\n"));
    let run = scene.hotlap("").args(words).words(SHORT).env("HOTLAP_NODE", "worker-7");
    run.said().succeeds();
    assert_eq!(results(&scene), ["shard-2.db"]);
    assert_eq!(node_of(&scene, "pool/shard-2.db").as_deref(), Some("worker-7"));
}

/// Runs the script for a Slurm job array with the variables that Slurm sets.
#[test]
fn the_slurm_script_runs_the_shard_of_its_task() {
    let scene = pool();
    scene.write("hotlap.sh", document("pool-slurm.sh"));
    let mut script = std::process::Command::new("sh");
    script.arg("hotlap.sh").args(SHORT.split(' ')).current_dir(scene.folder());
    script.env("HOTLAP", program()).env("SUITE", "./tiny.toml").env("SHARDS", "3");
    script.env("SLURM_ARRAY_TASK_ID", "1").env("SLURM_JOB_NUM_NODES", "1");
    script.env("SLURMD_NODENAME", "n5").env("HOTLAP_CACHE", scene.path("cache"));
    assert!(script.status().unwrap().success());
    assert_eq!(results(&scene), ["shard-1.db"]);
    assert_eq!(node_of(&scene, "pool/shard-1.db").as_deref(), Some("n5"));
}
