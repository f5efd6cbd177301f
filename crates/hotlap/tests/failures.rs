//! What becomes of a run when its store fails, or when there is no place for it: nothing that was
//! measured is lost, and what is said names the place, the cause and the remedy.

mod scene;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use hotlap::model::{Run, State};
use hotlap::store::Store;
use hotlap_testbed::{HELLO, TestServer};
use scene::{LAPS, hold, record, three};

fn laps(path: &Path, number: u64) -> usize {
    let run = Store::open_existing(path).unwrap().run(number).unwrap();
    assert_eq!((run.state, run.servers.len()), (State::Finished, 5));
    assert!(run.starts.iter().all(|start| !start.warmups.is_empty()));
    run.laps.len()
}

#[test]
fn a_store_that_fails_on_the_way_does_not_lose_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hotlap.db");
    let store = Store::open(&path).unwrap();
    // A table goes missing under the feet of a run: every further write fails.
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("DROP TABLE lap").unwrap();
    let kept = hold(&three(), Some(store));
    assert!(kept.store_failed);
    assert_eq!(kept.run.laps.len(), LAPS);
    let rescued = kept.rescued.expect("it is in a store of its own");
    assert_eq!(rescued.parent(), Some(folder.path()));
    assert_eq!(laps(&rescued, 1), LAPS);
}

/// SQLite goes on writing to a file that was removed, and says nothing.
#[test]
fn a_store_that_is_removed_or_replaced_while_it_runs_is_made_again() {
    for is_replaced in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hotlap.db");
        let store = Store::open(&path).unwrap();
        for name in ["hotlap.db", "hotlap.db-wal", "hotlap.db-shm"] {
            let _ = fs::remove_file(folder.path().join(name));
        }
        if is_replaced {
            // Somebody else's run has the number 1 in the new store.
            let other = Run { seed: 99, ..record(&three()) };
            Store::open(&path).unwrap().begin(&other).unwrap();
        }
        let kept = hold(&three(), Some(store));
        assert!(!kept.store_failed && kept.rescued.is_none());
        let number = kept.run.number.unwrap();
        assert_eq!(number, if is_replaced { 2 } else { 1 });
        assert_eq!(laps(&path, number), LAPS);
        assert_eq!(Store::open(&path).unwrap().last().unwrap(), number);
    }
}

#[test]
fn a_run_that_is_saved_again_keeps_its_number_and_takes_no_other_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hotlap.db");
    let mut kept = hold(&three(), Some(Store::open(&path).unwrap()));
    let mut store = Store::open(&path).unwrap();
    kept.run.laps.truncate(10);
    assert_eq!(store.save(&kept.run).unwrap(), 1);
    assert_eq!(store.run(1).unwrap().laps.len(), 10);
    let other = Run { seed: 99, ..kept.run };
    assert_eq!(store.save(&other).unwrap(), 2);
    assert_eq!(store.run(1).unwrap().laps.len(), 10);
}

/// Needs the permission to mount; where it is missing, `/dev/full` and `ulimit -f` in exports.rs
/// are what remains.
#[test]
fn a_disk_that_is_full_while_it_runs_does_not_lose_the_run() {
    let disk = tempfile::tempdir().unwrap();
    let mount = |arguments: &[&str]| {
        let mut command = Command::new("mount");
        let done = command.args(arguments).arg(disk.path()).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    if !mount(&["-t", "tmpfs", "-o", "size=1m", "hotlap-test"]) {
        eprintln!("NOT TESTED: no permission to mount a small disk");
        return;
    }
    let path = disk.path().join("hotlap.db");
    let store = Store::open(&path).unwrap();
    let filler = disk.path().join("filler");
    let left = fs::write(&filler, vec![0; 4 << 20]);
    // Room for the run to begin, and not for its laps.
    let full = fs::metadata(&filler).unwrap().len();
    fs::OpenOptions::new().write(true).open(&filler).unwrap().set_len(full - 96_000).unwrap();
    let kept = hold(&three(), Some(store));
    let unmounted = Command::new("umount").arg(disk.path()).status();
    assert!(unmounted.unwrap().success());
    assert!(left.is_err() && kept.store_failed);
    let rescued = kept.rescued.expect("it is in a store of its own");
    let count = laps(&rescued, 1);
    fs::remove_file(&rescued).unwrap();
    assert_eq!(count, LAPS);
}

/// Of two first runs at once, one said "table run already exists".
#[test]
fn ten_connections_at_once_make_one_store() {
    let (run, laps) = (record(&three()), hold(&three(), None).run.laps);
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/hotlap.db");
        let barrier = Barrier::new(10);
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    barrier.wait();
                    let mut store = Store::open(&path).unwrap();
                    let number = store.begin(&run).unwrap();
                    for (sequence, lap) in laps.iter().take(5).enumerate() {
                        store.lap(number, sequence, lap).unwrap();
                    }
                });
            }
        });
        let lines = Store::open_existing(&path).unwrap().lines(None).unwrap();
        let counts: Vec<u64> = lines.iter().map(|line| line.laps).collect();
        assert_eq!(counts, [5; 10]);
    }
}

/// The shortest run that there is, with nothing in its environment that says where anything goes.
fn run(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotlap"));
    command.args(["run", url, "--restarts", "1", "--rounds", "1", "--slice", "12ms"]);
    command.args(["--duration", "1s", "-c", "1", "--no-pin", "--color", "never"]);
    for name in ["HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "HOTLAP_CACHE", "XDG_CONFIG_HOME"] {
        command.env_remove(name);
    }
    command.env("HOTLAP_CONFIG", "/dev/null").env("COLUMNS", "100").stdin(Stdio::null());
    command
}

/// Whether it measured and printed, whatever the laps are worth on a busy machine; what it said.
fn measured(output: &Output, url: &str) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let table = String::from_utf8_lossy(&output.stdout);
    let is_shown = table.contains("req/s");
    match output.status.code() {
        Some(0) => assert!(is_shown, "{table}{said}"),
        Some(4) => assert!(is_shown || table.contains("validity checks"), "{table}{said}"),
        _ => panic!("{:?}: {said}", output.status),
    }
    assert!(table.contains(url), "{table}{said}");
    said
}

/// Regression: `load` ended with exit code 3 for such a server, and `run` with 0.
#[test]
fn a_run_in_which_many_requests_fail_ends_with_exit_code_3() {
    let (folder, number) = (tempfile::tempdir().unwrap(), AtomicUsize::new(0));
    let server = TestServer::start(move |mut client| {
        while client.request().is_some() {
            // Not in the checks and probes.
            let at = number.fetch_add(1, Ordering::Relaxed);
            if at > 500 && at.is_multiple_of(20) {
                return client.reset();
            }
            client.send(HELLO);
        }
    });
    let output = run(&server.url()).env("HOME", folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains(" requests failed in the laps with failures"), "{said}");
}

#[test]
fn ten_first_runs_at_once_are_all_stored() {
    let (folder, url) = (tempfile::tempdir().unwrap(), TestServer::responding(HELLO).url());
    let path = folder.path().join("hotlap.db");
    let begin = |_| {
        let mut command = run(&url);
        command.arg("--store").arg(&path).env("HOTLAP_CACHE", folder.path().join("cache"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<_> = (0..10).map(begin).collect();
    for child in all {
        measured(&child.wait_with_output().unwrap(), &url);
    }
    let lines = Store::open_existing(&path).unwrap().lines(None).unwrap();
    assert_eq!(lines.iter().map(|l| l.number).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    let is_over = |state| matches!(state, State::Finished | State::Invalid);
    assert!(lines.iter().all(|line| is_over(line.state) && line.laps > 0));
}

#[test]
fn without_a_home_a_run_says_that_it_is_not_stored_and_uses_a_private_cache() {
    let (folder, url) = (tempfile::tempdir().unwrap(), TestServer::responding(HELLO).url());
    let temporary = folder.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let here = folder.path().join("here");
    fs::create_dir(&here).unwrap();
    let mut command = run(&url);
    let output = command.env("TMPDIR", &temporary).current_dir(&here).output().unwrap();
    let said = measured(&output, &url);
    assert!(said.contains("will not be stored: neither HOME nor XDG_DATA_HOME"), "{said}");
    assert!(said.contains("--store"), "{said}");
    assert_eq!(fs::read_dir(&here).unwrap().count(), 0, "nothing is made where it was started");
    let made: Vec<_> = fs::read_dir(&temporary).unwrap().flatten().collect();
    let name = made[0].file_name().into_string().unwrap();
    assert!(made.len() == 1 && name.starts_with("hotlap-"), "{made:?}");
    assert_eq!(made[0].metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_cache_that_somebody_else_may_have_made_is_refused() {
    let (folder, url) = (tempfile::tempdir().unwrap(), TestServer::responding(HELLO).url());
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let output = run(&url).env("HOTLAP_CACHE", &open).arg("--no-store").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("all users can write to it. Set HOTLAP_CACHE"), "{said}");

    let user = rustix::process::geteuid().as_raw();
    let link = folder.path().join(format!("hotlap-{user}"));
    std::os::unix::fs::symlink(&open, &link).unwrap();
    let output = run(&url).env("TMPDIR", folder.path()).arg("--no-store").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("symbolic link") && said.contains("Set HOTLAP_CACHE"), "{said}");
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
}

#[test]
fn with_a_home_that_cannot_be_written_a_run_works() {
    let (folder, url) = (tempfile::tempdir().unwrap(), TestServer::responding(HELLO).url());
    let (home, temporary) = (folder.path().join("home"), folder.path().join("tmp"));
    for (path, mode) in [(&home, 0o555), (&temporary, 0o1777), (&folder.path().into(), 0o755)] {
        fs::create_dir_all(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    // A folder within a file can be written by nobody, not even by root.
    let within_a_file = Path::new("/dev/null/home");
    for home in [home.as_path(), within_a_file] {
        let mut command = run(&url);
        command.env("HOME", home).env("TMPDIR", &temporary).current_dir(&temporary);
        if rustix::process::geteuid().is_root() {
            command.uid(65_534);
        }
        let output = match command.output() {
            Err(error) => {
                eprintln!("NOT TESTED: another user cannot start hotlap here: {error}");
                return;
            }
            Ok(output) => output,
        };
        let said = measured(&output, &url);
        let warning = format!("will not be stored: cannot write the store {}", home.display());
        assert!(said.contains(&warning) && said.contains("--store"), "{said}");
    }
}

#[test]
fn a_store_that_was_named_and_cannot_be_written_fails_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [file.join("hotlap.db"), "/proc/hotlap/hotlap.db".into()] {
        let output = run("http://127.0.0.1:1/").arg("--store").arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("cannot write the store {}", path.display())), "{said}");
        assert!(said.contains("or use --no-store"), "{said}");
    }
}

/// A store in a folder that may only be read was found out when the run began, after its builds.
#[test]
fn a_store_that_may_only_be_read_is_found_out_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hotlap.db");
    drop(Store::open(&path).unwrap());
    let permit = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    permit(&path, 0o444);
    permit(folder.path(), 0o555);
    let mut command = run("http://127.0.0.1:1/");
    command.arg("--store").arg(&path).current_dir("/").env("TMPDIR", "/tmp");
    if rustix::process::geteuid().is_root() {
        command.uid(65_534);
    }
    let output = command.output();
    permit(folder.path(), 0o755);
    let Ok(output) = output else {
        eprintln!("NOT TESTED: another user cannot start hotlap here");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write the store") && said.contains("--no-store"), "{said}");
}
