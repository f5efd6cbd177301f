//! Tests that build real folders, with a shell as the only toolchain.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use hotlap_servers::build::{BuildError, BuildEvent, Builder, Built, Unready};
use hotlap_servers::catalogue::{self, CatalogueServer};

use crate::stand_in::supervisor;

struct Bench {
    root: tempfile::TempDir,
    stop: AtomicBool,
    events: Mutex<Vec<String>>,
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("servers/sh/x")).unwrap();
        fs::write(root.path().join("servers/sh/x/source"), "1").unwrap();
        Self { root, stop: AtomicBool::new(false), events: Mutex::new(Vec::new()) }
    }

    fn servers(&self, toolchain: &str) -> Vec<CatalogueServer> {
        let text = format!(
            "about = \"x\"\nurl = \"https://example.org\"\nkind = \"framework\"\n\
             contracts = [\"hello\"]\n[toolchain]\nprobe = [\"true\"]\n{toolchain}\n"
        );
        let folder = self.root.path().join("servers/sh/x");
        fs::write(folder.join("server.toml"), &text).unwrap();
        catalogue::read(&folder, "sh/x").unwrap()
    }

    fn build(&self, server: &CatalogueServer) -> Result<Built, Unready> {
        let on = |event: BuildEvent<'_>| {
            let line = match event {
                BuildEvent::Waiting { server } => format!("{server} waits"),
                BuildEvent::Step { server, command, number, of } => {
                    format!("{server} {number}/{of} {command}")
                }
                BuildEvent::Built { server, built } => format!("{server} fresh {}", built.fresh),
                BuildEvent::Unready { server, .. } => format!("{server} unready"),
            };
            self.events.lock().unwrap().push(line);
        };
        let cache = self.root.path().join("cache");
        Builder { cache: &cache, supervisor: &supervisor(), stop: &self.stop, on: &on }
            .build(server)
    }

    fn fails(&self, toolchain: &str) -> BuildError {
        match self.build(&self.servers(toolchain)[0]) {
            Err(Unready::Failed(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    fn source(&self) -> std::path::PathBuf {
        self.root.path().join("servers/sh/x/source")
    }
}

const COPIES: &str = "build = [[\"cp\", \"source\", \"server\"]]\n\
                      version = [\"sh\", \"-c\", \"echo; echo v1 >&2\"]\n\
                      [run]\ncommand = [\"./server\"]";

#[test]
fn a_build_is_done_once_in_the_cache_and_leaves_the_tree_alone() {
    let bench = Bench::new();
    let server = &bench.servers(COPIES)[0];
    let first = bench.build(server).unwrap();
    assert!(first.fresh);
    assert_eq!(first.version, "v1");
    assert!(first.folder.starts_with(bench.root.path().join("cache/builds")));
    assert!(first.folder.join("server").exists());
    assert!(!bench.root.path().join("servers/sh/x/server").exists());
    let second = bench.build(server).unwrap();
    assert!(!second.fresh);
    assert_eq!((second.folder, second.version), (first.folder, first.version));
    assert_eq!(
        *bench.events.lock().unwrap(),
        ["sh/x 1/1 cp source server", "sh/x fresh true", "sh/x fresh false"]
    );
}

#[test]
fn a_change_of_source_command_or_probe_is_another_build() {
    let bench = Bench::new();
    let first = bench.build(&bench.servers(COPIES)[0]).unwrap();
    let mut probed = bench.servers(COPIES)[0].clone();
    probed.toolchain.probe = vec![vec!["echo".to_owned(), "2.0".to_owned()]];
    assert_ne!(bench.build(&probed).unwrap().folder, first.folder);
    let other = COPIES.replace("cp", "mv");
    assert_ne!(bench.build(&bench.servers(&other)[0]).unwrap().folder, first.folder);
    fs::write(bench.source(), "2").unwrap();
    let changed = bench.build(&bench.servers(COPIES)[0]).unwrap();
    assert!(changed.fresh);
    assert_ne!(changed.folder, first.folder);
}

#[test]
fn variants_that_differ_only_at_run_time_share_a_build() {
    let bench = Bench::new();
    let servers = bench.servers(&format!("{COPIES}\n[variants.fast]\nenv = {{ A = \"1\" }}"));
    let first = bench.build(&servers[0]).unwrap();
    let second = bench.build(&servers[1]).unwrap();
    assert_eq!((first.folder, second.fresh), (second.folder.clone(), false));
    assert_eq!(second.launch(&servers[1]).env["A"], "1");
}

#[test]
fn a_failed_build_reports_command_last_lines_and_log_and_is_retried() {
    let bench = Bench::new();
    let error = bench.fails(
        "build = [[\"echo\", \"fine\"], [\"sh\", \"-c\", \
         \"seq 30; echo 'x.go:3: expected ;' >&2; exit 7\"]]\n[run]\ncommand = [\"true\"]",
    );
    assert_eq!(
        error.to_string(),
        "sh/x: sh -c 'seq 30; echo '\\''x.go:3: expected ;'\\'' >&2; exit 7': exit code 7"
    );
    assert_eq!(error.log_tail.len(), 12);
    assert_eq!(error.log_tail[11], "x.go:3: expected ;");
    let log = error.remedy.rsplit(' ').next().unwrap();
    assert!(fs::read_to_string(log).unwrap().starts_with("$ echo fine\nfine\n$ sh -c"));
    assert!(!Path::new(&log.replace(".log", "")).exists());
    let again = bench.build(&bench.servers(COPIES)[0]).unwrap();
    assert!(again.fresh);
}

#[test]
fn no_network_a_full_disk_and_a_stale_lockfile_are_told_apart() {
    let bench = Bench::new();
    let says = |words: &str| {
        let toolchain = format!(
            "build = [[\"sh\", \"-c\", \"echo '{words}'; exit 1\"]]\n[run]\ncommand = [\"true\"]"
        );
        bench.fails(&toolchain).remedy
    };
    assert!(says("npm error code EAI_AGAIN").starts_with("a download possibly failed"));
    assert!(says("x.o: No space left on device").starts_with("the disk is full: free space in "));
    assert!(says("npm ci: package.json is not in sync with your lock").starts_with("the lockfile"));
    assert!(says("oops").starts_with("run the command by hand"));
}

#[test]
fn a_program_missing_after_the_build_is_reported_with_its_line() {
    let bench = Bench::new();
    let error = bench.fails("build = [[\"true\"]]\n[run]\ncommand = [\"./server\"]").to_string();
    assert!(
        error.ends_with("sh/x/server.toml:9: command ./server: not produced by the build"),
        "{error}"
    );
}

#[test]
fn a_failing_version_command_fails_the_build() {
    let bench = Bench::new();
    let error = bench.fails(
        "version = [\"sh\", \"-c\", \"echo needs a library; exit 127\"]\n\
         [run]\ncommand = [\"true\"]",
    );
    assert_eq!((error.cause.as_str(), error.log_tail.len()), ("exit code 127", 1));
}

#[test]
fn a_cache_that_cannot_be_written_says_what_to_do() {
    let bench = Bench::new();
    fs::write(bench.root.path().join("cache"), "a file").unwrap();
    let error = bench.fails("[run]\ncommand = [\"true\"]");
    assert!(error.what.ends_with("cache/builds"), "{error:?}");
}

#[test]
fn two_builds_of_one_server_at_once_run_its_commands_once() {
    let bench = Bench::new();
    // The build adds a line to the file `ran` each time that it runs.
    let toolchain = "build = [[\"sh\", \"-c\", \"echo ran >> $OUTSIDE/ran; cp source server\"]]\n\
                     [run]\ncommand = [\"./server\"]"
        .replace("$OUTSIDE", bench.root.path().to_str().unwrap());
    let server = &bench.servers(&toolchain)[0];
    let built = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| bench.build(server).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(built.iter().filter(|built| built.fresh).count(), 1);
    assert_eq!(fs::read_to_string(bench.root.path().join("ran")).unwrap(), "ran\n");
}

#[test]
fn results_are_in_the_order_of_the_servers() {
    let bench = Bench::new();
    let mut servers = bench.servers(COPIES);
    servers.extend(bench.servers("build = [[\"false\"]]\n[run]\ncommand = [\"true\"]"));
    servers.extend(bench.servers(&COPIES.replace("cp", "mv")));
    let servers: Vec<_> = servers.iter().collect();
    let cache = bench.root.path().join("cache");
    let supervisor = supervisor();
    let builder =
        Builder { cache: &cache, supervisor: &supervisor, stop: &bench.stop, on: &|_| {} };
    let built = builder.build_all(&servers);
    assert_eq!(built.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn a_stop_ends_a_build_with_all_of_its_children() {
    let bench = Bench::new();
    let server = &bench.servers(
        "build = [[\"sh\", \"-c\", \"sleep 600 | sleep 600\"]]\n[run]\ncommand = [\"true\"]",
    )[0];
    let stop = &bench.stop;
    let cache = bench.root.path().join("cache");
    let on = |event: BuildEvent<'_>| {
        if matches!(event, BuildEvent::Step { .. }) {
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    };
    match (Builder { cache: &cache, supervisor: &supervisor(), stop, on: &on }.build(server)) {
        Err(Unready::Failed(error)) => assert_eq!(error.cause, "interrupted"),
        other => panic!("{other:?}"),
    }
}
