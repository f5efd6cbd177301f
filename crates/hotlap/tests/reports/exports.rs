//! Where exports go: nothing that was there is lost, nothing is left behind.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::scene::{hold, three};
use hotlap::store::Store;
use hotlap_testbed::{HELLO, TestServer};
use serde_json::Value;

fn hotlap(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotlap"));
    command.args(arguments).env("HOTLAP_CONFIG", "/dev/null").env("COLUMNS", "100");
    command
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

/// A store with one run.
fn store(folder: &Path) -> String {
    let path = folder.join("hotlap.db");
    hold(&three(), Some(Store::open(&path).unwrap()));
    path.display().to_string()
}

/// `hotlap load --export-csv - >> results.csv` erased the file.
#[test]
fn an_export_to_standard_output_is_appended_where_the_shell_appends() {
    let (folder, url) = (tempfile::tempdir().unwrap(), TestServer::responding(HELLO).url());
    let path = folder.path().join("results.csv");
    for dash in ["-", "/dev/stdout"] {
        fs::write(&path, "kept\n").unwrap();
        let out = OpenOptions::new().append(true).open(&path).unwrap();
        let mut command = hotlap(&["load", "-n", "20", "-c", "1", &url, "--export-csv", dash]);
        let output = command.stdout(out).output().unwrap();
        let written = fs::read_to_string(&path).unwrap();
        assert!(written.starts_with("kept\nfigure,value,unit\n"), "{dash}: {written}");
        let said = text(output.stderr);
        assert!(said.contains("requests/s") && output.status.success(), "{dash}: {said}");
    }
}

#[test]
fn what_people_read_goes_to_standard_error_while_data_go_to_standard_output() {
    let (folder, url) = (tempfile::tempdir().unwrap(), TestServer::responding(HELLO).url());
    let store = store(folder.path());
    let commands: [&[&str]; 3] = [
        &["load", "-n", "20", "-c", "1", &url, "--export-json", "-"],
        &["report", "--store", &store, "--export-json", "-"],
        &["compare", "1", "--baseline", &store, "--store", &store, "--export-json", "-"],
    ];
    for arguments in commands {
        let output = hotlap(arguments).output().unwrap();
        let (data, said) = (text(output.stdout), text(output.stderr));
        assert!(serde_json::from_str::<Value>(&data).is_ok(), "{arguments:?}: {data}");
        assert!(said.contains("requests/s"), "{arguments:?}: {said}");
        let quiet = hotlap(arguments).arg("-q").output().unwrap();
        assert_eq!(text(quiet.stderr), "", "{arguments:?}");
    }
}

#[test]
fn two_results_for_one_place_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let page = folder.path().join("page").display().to_string();
    let url = "http://127.0.0.1:1/";
    let commands: [&[&str]; 5] = [
        &["report", "--store", &store, "--export-json", "-", "--export-csv", "-"],
        &["report", "--store", &store, "--export-json", &page, "--export-csv", &page],
        &["load", url, "--export-json", "-", "--export-csv", "/dev/stdout"],
        &["load", url, "--format", "json", "--export-csv", "-"],
        &[
            "compare",
            "1",
            "--baseline",
            &store,
            "--store",
            &store,
            "--json",
            "--export-markdown",
            "-",
        ],
    ];
    for arguments in commands {
        let output = hotlap(arguments).output().unwrap();
        let said = text(output.stderr);
        assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()), "{arguments:?}");
        assert!(said.contains("standard output") || said.contains("two exports"), "{said}");
    }
    assert!(!Path::new(&page).exists());
}

#[test]
fn a_target_that_cannot_be_written_fails_before_anything_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for bad in [folder.path().join("none/x"), file.join("x"), "/proc/hotlap/x".into()] {
        let bad = bad.display().to_string();
        // Nobody listens on this port: what is said first is about the file.
        let load = hotlap(&["load", "http://127.0.0.1:1/", "--export-csv", &bad]);
        let run = hotlap(&["run", "http://127.0.0.1:1/", "--no-store", "--export-html", &bad]);
        for mut command in [load, run] {
            let output = command.output().unwrap();
            let said = text(output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains(&format!("cannot write {bad}: ")), "{said}");
            assert!(said.contains("that you can write to"), "{said}");
        }
    }
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn a_run_that_fails_leaves_the_report_of_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("load.csv");
    fs::write(&path, "the last one").unwrap();
    let page = path.display().to_string();
    let output = hotlap(&["load", "http://127.0.0.1:1/", "--export-csv", &page]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(fs::read_to_string(&path).unwrap(), "the last one");
    assert_eq!(names(folder.path()), ["load.csv"]);
}

/// A reader that goes away early took the exports with it.
#[test]
fn a_closed_pipe_does_not_keep_files_from_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let page = folder.path().join("report.md");
    let mut command = hotlap(&["report", "--store", &store, "--export-markdown"]);
    let mut child = command.arg(&page).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    child.wait().unwrap();
    assert!(fs::read_to_string(&page).unwrap().starts_with("# Run 1: hello"));
}

/// The other exports were given up when one could not be written.
#[test]
fn a_full_disk_takes_nothing_from_the_other_exports() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let page = folder.path().join("report.csv");
    let mut command = hotlap(&["report", "--store", &store, "--export-json", "/dev/full"]);
    let output = command.arg("--export-csv").arg(&page).output().unwrap();
    let said = text(output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("cannot write /dev/full: No space left"), "{said}");
    assert!(fs::read_to_string(&page).unwrap().contains("go/net-http"));
    assert!(text(output.stdout).contains("the throughput of go/net-http"));
}

/// An export that could not be written in full replaced the one before it by half of itself.
#[test]
fn an_export_that_does_not_fit_leaves_the_one_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let page = folder.path().join("report.html");
    fs::write(&page, "the last one").unwrap();
    // No file may grow beyond 8 rounds of 512 bytes: the page is larger.
    let script = "ulimit -f 8 && exec \"$0\" report --store \"$1\" --export-html \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_hotlap"), &store]).arg(&page);
    let output = command.env("HOTLAP_CONFIG", "/dev/null").output().unwrap();
    let said = text(output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write") && said.contains("File too large"), "{said}");
    assert_eq!(fs::read_to_string(&page).unwrap(), "the last one");
    let left = names(folder.path());
    assert!(!left.iter().any(|name| name.contains(".tmp")), "{left:?}");
}

#[test]
fn an_interrupted_load_writes_its_exports_and_leaves_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("load.json");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut command = hotlap(&["load", "--no-check", "-d", "60s", "-c", "1", &url]);
    command.arg("--export-json").arg(&path).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Once it sends requests, it listens for signals.
    let (mut stream, _) = listener.accept().unwrap();
    assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    stream.write_all(HELLO).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(names(folder.path()), ["load.json"]);
    let value: Value = serde_json::from_reader(File::open(&path).unwrap()).unwrap();
    assert!(value["figures"]["answers"].is_u64());
}

#[test]
fn named_pipes_and_process_substitution_get_one_document() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    // `cat` says when it has written everything.
    let script = "\"$0\" report --store \"$1\" --export-json >(cat > \"$2\"; touch \"$2.done\") \
                  > /dev/null; while [ ! -e \"$2.done\" ]; do sleep 0.05; done";
    let out = folder.path().join("out.json");
    let mut command = Command::new("bash");
    command.args(["-c", script, env!("CARGO_BIN_EXE_hotlap"), &store]).arg(&out);
    command.env("HOTLAP_CONFIG", "/dev/null");
    let Ok(status) = command.status() else {
        eprintln!("NOT TESTED: no bash here");
        return;
    };
    assert!(status.success());
    let value: Value = serde_json::from_reader(File::open(&out).unwrap()).unwrap();
    assert_eq!(value["run"]["number"], 1);
}
