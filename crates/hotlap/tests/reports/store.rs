//! Tests the store. Values come out as they went in, and laps outlive a crash. If the store fails,
//! no lap is lost, and the error has a remedy.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

use crate::scene::{LAPS, hold, printed, record, stressed, three};
use crate::{by_request, capacity, explain};
use hotlap::model::{Question, Run, RunState, Subject};
use hotlap::redact;
use hotlap::render::terminal;
use hotlap::report::Report;
use hotlap::store::Store;
use hotlap_testkit::Scene;

#[test]
fn what_is_stored_is_what_is_read_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/hotlap.db");
    for (number, scene) in (1..).zip([three(), explain::two(), capacity::two()]) {
        let run = hold(&scene, Some(Store::open(&path).unwrap())).run;
        assert_eq!((run.number, run.state), (Some(number), RunState::Finished));
        let store = Store::open_existing(&path).unwrap();
        let read = store.run(number).unwrap();
        assert_eq!(printed(&read, 80), printed(&run, 80));
        assert!(read == run, "what was read of run {number} differs");
        assert!(store.outline(number).unwrap().explain.is_empty());
    }
    let mut store = Store::open(&path).unwrap();
    let mixed = by_request::mixed();
    let number = store.save(&redact::run(mixed.clone())).unwrap();
    let read = store.run(number).unwrap();
    assert!(read.laps == mixed.laps && read.loads == mixed.loads, "what was read differs");
    let outline = store.outline(number).unwrap();
    assert!(outline.laps.iter().all(|lap| lap.outcome.by_request.is_empty()));
}

#[test]
fn runs_are_numbered_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hotlap.db");
    let store = Store::open(&path).unwrap();
    assert!(store.last().unwrap_err().to_string().contains("no run is stored"));
    for number in [1, 2] {
        let kept = hold(&three(), Some(Store::open(&path).unwrap()));
        assert_eq!(kept.run.number, Some(number));
    }
    assert_eq!(store.last().unwrap(), 2);
    let lines = store.lines(None).unwrap();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0].servers, ["go/net-http", "node/http:cluster", "python3 app.py"]);
    assert_eq!(store.lines(Some("nobody")).unwrap(), []);
    let error = store.run(7).unwrap_err().to_string();
    assert!(error.contains("no run 7") && error.contains("the last one is 2"), "{error}");
}

/// Regression: hotlap announced that sixteen servers start in 68 s, but they took 203 s each time.
#[test]
fn how_a_server_started_last_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hotlap.db");
    let mut scene = three();
    for ready_ms in [500, 700] {
        scene.scripts[1].ready = Duration::from_millis(ready_ms);
        hold(&scene, Some(Store::open(&path).unwrap()));
    }
    let store = Store::open(&path).unwrap();
    let last = store.first_start("node/http:cluster").unwrap().unwrap();
    assert_eq!((last.slices_ms, last.probed), (vec![20.0], vec![]));
    let start = last.start;
    assert_eq!((start.restart, start.ready.ready_ms, start.warmups.len()), (0, Some(700.0), 1));
    assert_eq!(store.first_start("nobody").unwrap(), None);
}

#[test]
fn each_lap_is_there_as_soon_as_it_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hotlap.db");
    let scene = three();
    let laps = hold(&scene, None).run.laps;
    let mut store = Store::open(&path).unwrap();
    let mut run = redact::run(record(&scene));
    let number = store.begin(&run).unwrap();
    run.set(number, |run, number| run.number = Some(number));
    run.add(redact::lap(laps[0].clone()), |run, lap| run.laps.push(lap));
    store.add_lap(&run).unwrap();
    // The run has no end, as if hotlap had been killed. Another process sees the lap and the state.
    let read = Store::open_existing(&path).unwrap().run(number).unwrap();
    assert_eq!(read.state, RunState::UnderWay);
    assert!(read.laps == laps[..1], "what was read differs");
}

/// Regression: `report` and `merge` panicked if a server referred to a server that does not exist.
/// Neither command ended if two layers were on top of each other.
#[test]
fn a_reference_to_no_server_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hotlap.db");
    let mut store = Store::open(&path).unwrap();
    for on in [99, 0] {
        let mut run = record(&three());
        run.servers[0].on = Some(on);
        let number = store.begin(&redact::run(run)).unwrap();
        let error = store.run(number).unwrap_err().to_string();
        assert!(error.contains("server"), "{error}");
    }
}

#[test]
fn what_became_of_servers_under_stress_is_kept_and_shown_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hotlap.db");
    let mut store = Store::open(&path).unwrap();
    let run = Run { question: Question::Stress, ..record(&three()) };
    let number = store.begin(&redact::run(run.clone())).unwrap();
    let all = stressed("go/net-http");
    let first = Subject { trials: Vec::new(), ..all.clone() };
    let run = Run { number: Some(number), ..run };
    let begun = Run { stress: vec![first.clone()], ..run.clone() };
    store.update(&redact::run(begun)).unwrap();
    assert_eq!(store.run(number).unwrap().stress, [first]);
    let ended = Run { stress: vec![all], state: RunState::Finished, ..run };
    store.update(&redact::run(ended)).unwrap();
    let read = Store::open_existing(&path).unwrap().run(number).unwrap();
    assert_eq!(read.stress, [stressed("go/net-http")]);
    let report = Report::of(&Run { loads: Vec::new(), ..read });
    let text = terminal::render(&report, 100, false);
    assert!(text.contains("overload: 200 connections · 8 normal clients"), "{text}");
    assert!(
        text.contains("go/net-http  unaffected           100%       0  10,000 requests/s"),
        "{text}"
    );
}

#[test]
fn what_is_no_store_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    fs::write(&path, "dear diary, ".repeat(500)).unwrap();
    let error = Store::open(&path).unwrap_err().to_string();
    assert!(error.contains("not a store of hotlap") && error.contains("--store"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "dear diary, ".repeat(500));
    let error = Store::open_existing(&folder.path().join("none.db")).unwrap_err().to_string();
    assert!(error.contains("no store at"), "{error}");
}

/// Regression: SQLite waited for the other end of a pipe. SQLite also turned an empty file into a
/// store, although the file was only to be read.
#[test]
fn what_cannot_be_a_store_is_refused_and_an_empty_file_stays_empty() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let pipe = path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    for other in [pipe.as_path(), folder.path(), Path::new("/dev/null")] {
        for error in [Store::open(other).unwrap_err(), Store::open_existing(other).unwrap_err()] {
            assert!(error.to_string().contains("is not a file"), "{error}");
        }
    }
    fs::write(path("empty.db"), "").unwrap();
    let error = Store::open_existing(&path("empty.db")).unwrap_err().to_string();
    assert!(error.contains("no run is stored"), "{error}");
    assert_eq!(fs::metadata(path("empty.db")).unwrap().len(), 0);
}

/// No store of another version exists outside of this project, so no store is converted.
#[test]
fn a_store_of_another_version_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hotlap.db");
    drop(Store::open(&path).unwrap());
    let db = rusqlite::Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    let before = fs::read(&path).unwrap();
    for error in [Store::open(&path).unwrap_err(), Store::open_existing(&path).unwrap_err()] {
        let error = error.to_string();
        assert!(error.contains("has version 99") && error.contains("--store"), "{error}");
    }
    assert!(fs::read(&path).unwrap() == before, "it was changed");
}

#[test]
fn a_database_of_another_program_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE run (number INTEGER); CREATE TABLE notes (note TEXT)").unwrap();
    drop(db);
    let before = fs::read(&path).unwrap();
    let error = Store::open(&path).unwrap_err().to_string();
    assert!(error.contains("another program wrote it") && error.contains("--store"), "{error}");
    assert!(fs::read(&path).unwrap() == before, "it was changed");
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let path = Path::new("/proc/hotlap/hotlap.db");
    let error = Store::open(path).unwrap_err().to_string();
    assert!(error.contains("/proc/hotlap") && error.contains("cannot use the store"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_store_that_may_only_be_read_is_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    // In an address, some characters of this name would have a special meaning.
    let path = folder.path().join("50%? #1.db");
    hold(&three(), Some(Store::open(&path).unwrap()));
    let permit = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    permit(0o555).unwrap();
    let read = Store::open_existing(&path).unwrap().run(1);
    permit(0o755).unwrap();
    assert_eq!(read.unwrap().laps.len(), LAPS);
}

#[test]
fn a_stored_run_is_shown_and_exported_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hotlap.db");
    hold(&three(), Some(Store::open(&path).unwrap()));
    let page = folder.path().join("report.md");
    let report = Scene::new().hotlap("report 1 --store").arg(&path).arg("--export-markdown");
    let text = report.arg(&page).env("COLUMNS", "80").said().succeeds().out;
    assert!(text.contains("Run 1, 2026-11-21 20:15 UTC") && text.contains("of go/net-http"));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(fs::read_to_string(&page).unwrap().starts_with("# Run 1: hello"));
}

fn laps(path: &Path, number: u64) -> usize {
    let run = Store::open_existing(path).unwrap().run(number).unwrap();
    assert_eq!((run.state, run.servers.len()), (RunState::Finished, 5));
    assert!(run.starts.iter().all(|start| !start.warmups.is_empty()));
    run.laps.len()
}

#[test]
fn a_store_that_fails_on_the_way_does_not_lose_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hotlap.db");
    let store = Store::open(&path).unwrap();
    // A table goes missing during the run, so every further write fails.
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("DROP TABLE lap").unwrap();
    let kept = hold(&three(), Some(store));
    assert!(kept.store_failed);
    assert_eq!(kept.run.laps.len(), LAPS);
    let rescued = kept.rescued.expect("it is in a store of its own");
    assert_eq!(rescued.parent(), Some(folder.path()));
    assert_eq!(laps(&rescued, 1), LAPS);
}

/// SQLite continues to write to a file that was removed, without an error.
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
            // In the new store, number 1 is another user's run.
            let other = redact::run(Run { seed: 99, ..record(&three()) });
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
    assert_eq!(store.save(&redact::run(kept.run.clone())).unwrap(), 1);
    assert_eq!(store.run(1).unwrap().laps.len(), 10);
    let other = redact::run(Run { seed: 99, ..kept.run });
    assert_eq!(store.save(&other).unwrap(), 2);
    assert_eq!(store.run(1).unwrap().laps.len(), 10);
}

/// The test needs the permission to mount. Without it, only the tests with `/dev/full` and `ulimit
/// -f` in exports.rs cover a full disk.
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
    // The disk has room for the beginning of the run, but not for its laps.
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

/// Regression: of two first runs at the same time, one failed with "table run already exists".
#[test]
fn ten_connections_at_once_make_one_store() {
    let (run, laps) = (redact::run(record(&three())), hold(&three(), None).run.laps);
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/hotlap.db");
        let barrier = Barrier::new(10);
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    barrier.wait();
                    let mut store = Store::open(&path).unwrap();
                    let mut run = run.clone();
                    run.set(store.begin(&run).unwrap(), |run, number| run.number = Some(number));
                    for lap in laps.iter().take(5) {
                        run.add(redact::lap(lap.clone()), |run, lap| run.laps.push(lap));
                        store.add_lap(&run).unwrap();
                    }
                });
            }
        });
        let lines = Store::open_existing(&path).unwrap().lines(None).unwrap();
        let counts: Vec<u64> = lines.iter().map(|line| line.laps).collect();
        assert_eq!(counts, [5; 10]);
    }
}
