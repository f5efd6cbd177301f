//! Tests where a run writes: without a home folder, with a read-only one, or with an unusable store
//! or cache. Each message names the place, the cause and the remedy.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use hotlap::model::RunState;
use hotlap::store::Store;
use hotlap_testbed::{HELLO, TestServer};
use hotlap_testkit::{Hotlap, Said, Scene, flat};

/// Returns the shortest possible run. No environment variable tells hotlap where to write.
fn run(scene: &Scene, url: &str) -> Hotlap {
    let words = "run --restarts 1 --rounds 1 --slice 12ms -d 1s -c 1 --no-pin --color never";
    let names = ["HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "HOTLAP_CACHE", "XDG_CONFIG_HOME"];
    let run = scene.hotlap(words).arg(url).env("COLUMNS", "100").env("HOTLAP_CONFIG", "/dev/null");
    names.into_iter().fold(run, Hotlap::without)
}

/// Asserts that hotlap measured and printed something, even if no lap is valid on a busy machine.
fn measured(said: Said, url: &str) -> Said {
    let is_shown = said.out.contains("req/s");
    let is_invalid = said.code == Some(4) && said.out.contains("validity checks");
    assert!(is_shown || is_invalid, "{said:?}");
    said.measured().has(url)
}

fn permit(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Runs hotlap as a user who is not root. Returns `None`, with a message, if this user cannot start
/// hotlap.
fn as_nobody(run: &Hotlap, folder: &Path) -> Option<Said> {
    let mut command = run.command();
    command.current_dir(folder);
    if rustix::process::geteuid().is_root() {
        command.uid(65_534);
    }
    let output = command.output().inspect_err(|error| {
        eprintln!("NOT TESTED: another user cannot start hotlap here: {error}");
    });
    let output = output.ok()?;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Some(Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) })
}

/// Regression: for a server with many failed requests, `load` ended with exit code 3, but `run`
/// ended with 0.
#[test]
fn a_run_in_which_many_requests_fail_ends_with_exit_code_3() {
    let (scene, number) = (Scene::new(), AtomicUsize::new(0));
    let server = TestServer::start(move |mut client| {
        while client.request().is_some() {
            // The requests of the checks and probes do not fail.
            let at = number.fetch_add(1, Ordering::Relaxed);
            if at > 500 && at.is_multiple_of(20) {
                return client.reset();
            }
            client.send(HELLO);
        }
    });
    let said = run(&scene, &server.url()).env("HOME", scene.folder()).said();
    said.fails(3).has(" requests failed (");
}

#[test]
fn ten_first_runs_at_once_are_all_stored() {
    let (scene, url) = (Scene::new(), TestServer::responding(HELLO).url());
    let run = run(&scene, &url).words("--store hotlap.db").env("HOTLAP_CACHE", scene.path("cache"));
    let all: Vec<_> = (0..10).map(|_| run.start()).collect();
    for running in all {
        measured(running.end(), &url);
    }
    let store = Store::open_existing(&scene.path("hotlap.db")).unwrap();
    let lines = store.lines(None).unwrap();
    assert_eq!(lines.iter().map(|l| l.number).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    let is_over = |state| matches!(state, RunState::Finished | RunState::Invalid);
    assert!(lines.iter().all(|line| is_over(line.state) && line.laps > 0));
}

#[test]
fn without_a_home_a_run_says_that_it_is_not_stored_and_uses_a_private_cache() {
    let (scene, url) = (Scene::new(), TestServer::responding(HELLO).url());
    fs::create_dir(scene.path("tmp")).unwrap();
    let said = run(&scene, &url).env("TMPDIR", scene.path("tmp")).said();
    let said = measured(said, &url).has("--store");
    said.has("will not be stored: neither HOME nor XDG_DATA_HOME");
    assert_eq!(scene.names(""), ["tmp"], "nothing is made where it was started");
    // Regression: the baseline was not saved, and nothing said so.
    let unsaved = run(&scene, &url).words("--save-baseline main").said().fails(2);
    unsaved.has("neither HOME nor XDG_DATA_HOME is set: name a store with --store FILE");
    let made = scene.names("tmp");
    assert!(made.len() == 1 && made[0].starts_with("hotlap-"), "{made:?}");
    let mode = fs::metadata(scene.path("tmp").join(&made[0])).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_cache_that_somebody_else_may_have_made_is_refused() {
    let (scene, url) = (Scene::new(), TestServer::responding(HELLO).url());
    let open = scene.path("open");
    fs::create_dir(&open).unwrap();
    permit(&open, 0o777);
    let run = run(&scene, &url).arg("--no-store");
    let said = run.clone().env("HOTLAP_CACHE", &open).said().fails(1);
    said.has("all users can write to it. Set HOTLAP_CACHE");
    let user = rustix::process::geteuid().as_raw();
    symlink(&open, scene.path(&format!("hotlap-{user}"))).unwrap();
    let said = run.env("TMPDIR", scene.folder()).said().fails(1);
    said.has("symbolic link").has("Set HOTLAP_CACHE");
    assert_eq!(scene.names("open").len(), 0);
}

#[test]
fn with_a_home_that_cannot_be_written_a_run_works() {
    let (scene, url) = (Scene::new(), TestServer::responding(HELLO).url());
    let (home, temporary) = (scene.path("home"), scene.path("tmp"));
    for (path, mode) in [(&home, 0o555), (&temporary, 0o1777), (&scene.path(""), 0o755)] {
        fs::create_dir_all(path).unwrap();
        permit(path, mode);
    }
    // Nobody can write to a folder within a file, not even root.
    for home in [home.as_path(), Path::new("/dev/null/home")] {
        let run = run(&scene, &url).env("HOME", home).env("TMPDIR", &temporary);
        let Some(said) = as_nobody(&run, &temporary) else { return };
        let warning = format!("will not be stored: cannot use the store {}", home.display());
        measured(said, &url).has(&warning).has("--store");
    }
}

#[test]
fn a_store_that_cannot_be_written_is_found_out_first() {
    let scene = Scene::new();
    scene.write("file", "");
    for path in [scene.file("file/hotlap.db"), "/proc/hotlap/hotlap.db".to_owned()] {
        let said = run(&scene, "http://127.0.0.1:1/").args(["--store", &path]).said().fails(1);
        said.has(&format!("cannot use the store {path}")).has("or use --no-store");
    }
    // The store is read-only. Regression: hotlap noticed this problem only when the run began,
    // after its builds.
    let path = scene.path("read/hotlap.db");
    fs::create_dir(scene.path("read")).unwrap();
    drop(Store::open(&path).unwrap());
    permit(&scene.path(""), 0o755);
    permit(&path, 0o444);
    permit(&scene.path("read"), 0o555);
    let run = run(&scene, "http://127.0.0.1:1/").arg("--store").arg(&path).env("TMPDIR", "/tmp");
    let said = as_nobody(&run, Path::new("/"));
    permit(&scene.path("read"), 0o755);
    if let Some(said) = said {
        assert!(flat(&said.err).contains("cannot use the store"), "{said:?}");
        said.fails(1).has("--no-store");
    }
}
