//! Shards that really run: a shard is there as a whole or not at all, whatever ends it.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hotlap::store::Store;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const HOTLAP: &str = env!("CARGO_BIN_EXE_hotlap");

/// A plan of three shards of two servers, in a folder.
struct Planned(tempfile::TempDir);

impl Planned {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(schedulers: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let suite = folder.path().join("tiny.toml");
        let server = |name: &str, rounds: u32| {
            format!("{{ run = \"{HOTLAP} __known working:{rounds}\", name = \"{name}\" }}")
        };
        let (one, two) = (server("one", 10), server("two", 900));
        fs::write(&suite, format!("servers = [\n{one},\n{two},\n]\n")).unwrap();
        let planned = Self(folder);
        let plan = planned.command(&["plan", suite.to_str().unwrap(), "--shards", "3"]);
        let into = planned.path("");
        let options = ["--", "--restarts", "1", "--rounds", "1", "--slice", "12ms"];
        let more = [schedulers, &["--into", &into], &options[..]].concat();
        assert!(plan_status(plan, &more), "it is planned");
        planned
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join("pool").join(name).to_str().unwrap().to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(HOTLAP);
        command.args(arguments);
        command.env("TMPDIR", self.0.path()).env("HOTLAP_CACHE", self.0.path().join("cache"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn start(&self, shard: usize, node: &str) -> Child {
        let file = self.path(&format!("shard-{shard}.toml"));
        let mut command = self.command(&["run", "--shard", &file, "-q"]);
        command.env("HOTLAP_NODE", node).spawn().unwrap()
    }

    /// The names in the folder that are not of the plan, and those of unfinished stores.
    fn results(&self) -> Vec<String> {
        let names = |folder: PathBuf| {
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap())
        };
        let is_result = |name: &String| !name.ends_with(".toml");
        let is_left = |name: &String| name.starts_with("hotlap-shard-");
        let pool = names(self.0.path().join("pool")).filter(is_result);
        let mut all: Vec<String> =
            pool.chain(names(self.0.path().to_owned()).filter(is_left)).collect();
        all.sort();
        all
    }
}

fn plan_status(mut command: Command, more: &[&str]) -> bool {
    command.args(more).status().unwrap().success()
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
    let planned = Planned::new();
    // Killed at once, and told to end: neither leaves a result.
    for (signal, code) in [(Signal::KILL, None), (Signal::TERM, Some(130))] {
        let child = planned.start(0, "n1");
        until_it_measures(&planned.0.path().join("cache/logs"));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(exit(child), code);
        let left = planned.results();
        assert!(left.iter().all(|name| name.starts_with("hotlap-shard-")), "{left:?}");
        for name in left {
            fs::remove_dir_all(planned.0.path().join(name)).unwrap();
        }
        fs::remove_dir_all(planned.0.path().join("cache")).unwrap();
    }
    // Two tasks with the same shard: both are done, and one result is there.
    let both = [planned.start(0, "n1"), planned.start(0, "n2")];
    assert_eq!(both.map(exit), [Some(0), Some(0)]);
    assert_eq!(planned.results(), ["shard-0.db"]);
    // What is there is not measured again.
    let store = fs::metadata(planned.path("shard-0.db")).unwrap().modified().unwrap();
    assert_eq!(exit(planned.start(0, "n3")), Some(0));
    assert_eq!(fs::metadata(planned.path("shard-0.db")).unwrap().modified().unwrap(), store);
    // Shards of several nodes end in a merged table.
    assert_eq!(exit(planned.start(1, "n2")), Some(0));
    assert_eq!(exit(planned.start(2, "n3")), Some(0));
    let json = planned.path("merged.json");
    let merge = planned.command(&["merge", &planned.path(""), "--export-json", &json]);
    assert!(plan_status(merge, &[]));
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"one") && names.contains(&"two") && names.contains(&"ceiling"));
    let pool = &report["pool"];
    assert_eq!(pool["shards"].as_array().unwrap().len(), 3);
    let node = pool["shards"][1]["node"].as_str().unwrap();
    assert_eq!(node, "n2");
}

/// The command of the Indexed Job, with the variables that Kubernetes sets. It replaces
/// `$(NAME)` in a command by variables of the container.
#[test]
fn the_command_of_the_kubernetes_job_runs_the_shard_of_its_index() {
    let planned = Planned::with(&["--kubernetes"]);
    let job = fs::read_to_string(planned.path("kubernetes.json")).unwrap();
    let job: Value = serde_json::from_str(&job).unwrap();
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    let mounted = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    let word = |word: &Value| {
        let word = word.as_str().unwrap().replace("$(JOB_COMPLETION_INDEX)", "2");
        word.replace(mounted, planned.path("").trim_end_matches('/'))
    };
    let words: Vec<String> = container["command"].as_array().unwrap().iter().map(word).collect();
    assert_eq!(words[0], "hotlap");
    let words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let mut command = planned.command(&words);
    let node = container["env"][0]["name"].as_str().unwrap();
    command.env("JOB_COMPLETION_INDEX", "2").env(node, "worker-7");
    assert!(plan_status(command, &["-q"]));
    assert_eq!(planned.results(), ["Dockerfile", "kubernetes.json", "shard-2.db"]);
    let store = Store::open_existing(Path::new(&planned.path("shard-2.db"))).unwrap();
    assert_eq!(store.run(1).unwrap().host.node(), Some("worker-7"));
}

#[test]
fn a_shard_whose_suite_has_changed_is_refused() {
    let planned = Planned::new();
    let suite = planned.path("tiny.toml");
    let text = fs::read_to_string(&suite).unwrap().replace("\"two\"", "\"three\"");
    fs::write(&suite, text).unwrap();
    assert_eq!(exit(planned.start(0, "n1")), Some(2));
    assert!(planned.results().is_empty());
}
