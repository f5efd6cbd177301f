//! Shards that really run: a shard is there as a whole or not at all, whatever ends it.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hotlap::store::Store;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const HOTLAP: &str = env!("CARGO_BIN_EXE_hotlap");

/// A suite of two servers, and a folder for the results of its shards.
struct Pool(tempfile::TempDir);

impl Pool {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("pool")).unwrap();
        let server = |name: &str, rounds: u32| {
            format!("{{ run = \"{HOTLAP} __known working:{rounds}\", name = \"{name}\" }}")
        };
        let (one, two) = (server("one", 10), server("two", 900));
        let text = format!("servers = [\n{one},\n{two},\n]\n");
        fs::write(folder.path().join("tiny.toml"), text).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.0.path());
        command.env("TMPDIR", self.0.path()).env("HOTLAP_CACHE", self.0.path().join("cache"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn start(&self, shard: usize, node: &str) -> Child {
        let (number, store) = (format!("{shard}/3"), format!("pool/shard-{shard}.db"));
        let place = ["run", "--suite", "./tiny.toml", "--shard", &number, "--store", &store];
        let options = ["--restarts", "1", "--rounds", "1", "--slice", "12ms", "-q"];
        let mut command = self.command(HOTLAP, &[&place[..], &options].concat());
        command.env("HOTLAP_NODE", node).spawn().unwrap()
    }

    /// The results, and the folders of unfinished stores.
    fn results(&self) -> Vec<String> {
        let names = |folder: &Path| {
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap())
        };
        let unfinished = names(self.0.path()).filter(|name| name.starts_with("hotlap-shard-"));
        let mut all: Vec<String> = names(&self.0.path().join("pool")).chain(unfinished).collect();
        all.sort();
        all
    }
}

fn exit(mut child: Child) -> Option<i32> {
    child.wait().unwrap().code()
}

/// Waits until a shard has begun: it has the folder for the output of its servers.
fn until_it_measures(logs: &Path) {
    let until = Instant::now() + Duration::from_secs(60);
    while !fs::read_dir(logs).is_ok_and(|entries| entries.flatten().any(|e| e.path().is_dir())) {
        assert!(Instant::now() < until, "the shard does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_shard_is_there_as_a_whole_or_not_at_all() {
    let pool = Pool::new();
    // Killed at once, and told to end: neither leaves a result.
    for (signal, code) in [(Signal::KILL, None), (Signal::TERM, Some(130))] {
        let child = pool.start(0, "n1");
        until_it_measures(&pool.0.path().join("cache/logs"));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(exit(child), code);
        let left = pool.results();
        assert!(left.iter().all(|name| name.starts_with("hotlap-shard-")), "{left:?}");
        for name in left {
            fs::remove_dir_all(pool.path(&name)).unwrap();
        }
        fs::remove_dir_all(pool.path("cache")).unwrap();
    }
    // Two tasks with the same shard: both are done, and one result is there.
    let both = [pool.start(0, "n1"), pool.start(0, "n2")];
    assert_eq!(both.map(exit), [Some(0), Some(0)]);
    assert_eq!(pool.results(), ["shard-0.db"]);
    // What is there is not measured again.
    let (first, modified) = (pool.path("pool/shard-0.db"), |file: &str| {
        fs::metadata(file).unwrap().modified().unwrap()
    });
    let before = modified(&first);
    assert_eq!(exit(pool.start(0, "n3")), Some(0));
    assert_eq!(modified(&first), before);
    // Shards of several nodes end in a merged table.
    assert_eq!(exit(pool.start(1, "n2")), Some(0));
    assert_eq!(exit(pool.start(2, "n3")), Some(0));
    let json = pool.path("merged.json");
    let status = pool.command(HOTLAP, &["merge", "pool", "--export-json", &json]).status();
    assert!(status.unwrap().success());
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"one") && names.contains(&"two") && names.contains(&"ceiling"));
    assert_eq!(report["pool"]["shards"].as_array().unwrap().len(), 3);
    assert_eq!(report["pool"]["shards"][1]["node"], "n2");
    // What is there and is not this shard is refused, and stays as it is.
    fs::copy(pool.path("pool/shard-1.db"), &first).unwrap();
    let before = modified(&first);
    assert_eq!(exit(pool.start(0, "n1")), Some(2), "another shard");
    fs::copy(pool.path("pool/shard-2.db"), pool.path("pool/shard-0.db")).unwrap();
    let suite = fs::read_to_string(pool.path("tiny.toml")).unwrap();
    fs::write(pool.path("tiny.toml"), suite.replace("\"two\"", "\"three\"")).unwrap();
    assert_eq!(exit(pool.start(2, "n1")), Some(2), "the same shard of another suite");
    assert!(modified(&first) >= before);
}

fn document(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    fs::read_to_string(file).unwrap()
}

/// The command of the Indexed Job, with the variables that Kubernetes sets. It replaces
/// `$(NAME)` in a command by variables of the container.
#[test]
fn the_command_of_the_kubernetes_job_runs_the_shard_of_its_index() {
    let pool = Pool::new();
    let job = document("pool-kubernetes.yaml");
    let words = job.split("command:\n").nth(1).unwrap().lines();
    let words = words.map_while(|line| line.trim_start().strip_prefix("- "));
    let filled = |word: &str| {
        let word = word.trim_matches('"').replace("$(JOB_COMPLETION_INDEX)", "2");
        word.replace("/pool/", "pool/").replace("app-servers", "./tiny.toml")
    };
    let words: Vec<String> = words.map(filled).collect();
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(words.remove(0), "hotlap");
    words.extend(["--restarts", "1", "--rounds", "1", "--slice", "12ms", "-q"]);
    assert!(job.contains("- name: HOTLAP_NODE\n"));
    let mut command = pool.command(HOTLAP, &words);
    assert!(command.env("HOTLAP_NODE", "worker-7").status().unwrap().success(), "{words:?}");
    assert_eq!(pool.results(), ["shard-2.db"]);
    let store = Store::open_existing(Path::new(&pool.path("pool/shard-2.db"))).unwrap();
    assert_eq!(store.run(1).unwrap().host.node.as_deref(), Some("worker-7"));
}

/// The script for an array of Slurm, with the variables that Slurm sets.
#[test]
fn the_slurm_script_runs_the_shard_of_its_task() {
    let pool = Pool::new();
    fs::write(pool.path("pool-slurm.sh"), document("pool-slurm.sh")).unwrap();
    let options = ["pool-slurm.sh", "--restarts", "1", "--rounds", "1", "--slice", "12ms", "-q"];
    let mut command = pool.command("sh", &options);
    command.env("HOTLAP", HOTLAP).env("SUITE", "./tiny.toml").env("SHARDS", "3");
    command.env("SLURM_ARRAY_TASK_ID", "1").env("SLURM_JOB_NUM_NODES", "1");
    assert!(command.env("SLURMD_NODENAME", "n5").status().unwrap().success());
    assert_eq!(pool.results(), ["shard-1.db"]);
    let store = Store::open_existing(Path::new(&pool.path("pool/shard-1.db"))).unwrap();
    assert_eq!(store.run(1).unwrap().host.node.as_deref(), Some("n5"));
}
