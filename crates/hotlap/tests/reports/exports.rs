//! Tests where exports go. Nothing that was there before is lost, and nothing is left behind.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use crate::scene::{hold, three};
use hotlap::store::Store;
use hotlap_testbed::{HELLO, TestServer};
use hotlap_testkit::{Scene, program};
use rustix::process::Signal;
use serde_json::Value;

/// Returns a folder with a store of one run.
fn stored() -> Scene {
    let scene = Scene::new();
    hold(&three(), Some(Store::open(&scene.path("hotlap.db")).unwrap()));
    scene
}

/// Returns the names in the folder except for the cache.
fn exports(scene: &Scene) -> Vec<String> {
    scene.names("").into_iter().filter(|name| name != "cache").collect()
}

/// Regression: `hotlap load --export-csv - >> results.csv` erased the file.
#[test]
fn an_export_to_standard_output_is_appended_where_the_shell_appends() {
    let (scene, url) = (Scene::new(), TestServer::responding(HELLO).url());
    for dash in ["-", "/dev/stdout"] {
        let results = scene.write("results.csv", "kept\n");
        let out = OpenOptions::new().append(true).open(results).unwrap();
        let load = scene.hotlap("load -n 20 -c 1 --export-csv").args([dash, &url]);
        load.start_with(|load| _ = load.stdout(out)).end().succeeds().has("requests/s");
        let written = scene.read("results.csv");
        assert!(written.starts_with("kept\nfigure,value,unit\n"), "{dash}: {written}");
    }
}

#[test]
fn what_people_read_goes_to_standard_error_while_data_go_to_standard_output() {
    let (scene, url) = (stored(), TestServer::responding(HELLO).url());
    for words in [
        &format!("load -n 20 -c 1 {url} --export-json -"),
        "report --store hotlap.db --export-json -",
        "compare 1 --baseline hotlap.db --store hotlap.db --export-json -",
    ] {
        let said = scene.hotlap(words).said();
        assert!(serde_json::from_str::<Value>(&said.out).is_ok(), "{said:?}");
        assert!(said.err.contains("requests/s"), "{said:?}");
        assert_eq!(scene.hotlap(words).arg("-q").said().err, "", "{words}");
    }
}

#[test]
fn two_results_for_one_place_are_refused() {
    let scene = stored();
    for words in [
        "report --store hotlap.db --export-json - --export-csv -",
        "report --store hotlap.db --export-json page --export-csv page",
        "load http://127.0.0.1:1/ --export-json - --export-csv /dev/stdout",
        "load http://127.0.0.1:1/ --format json --export-csv -",
        "compare 1 --baseline hotlap.db --store hotlap.db --json --export-markdown -",
    ] {
        let said = scene.hotlap(words).said().fails(2);
        assert_eq!(said.out, "", "{words}");
        assert!(said.err.contains("standard output") || said.err.contains("two exports"));
    }
    assert!(!scene.path("page").exists());
}

#[test]
fn a_target_that_cannot_be_written_fails_before_anything_is_sent() {
    let scene = Scene::new();
    let file = scene.write("file", "");
    for bad in [scene.file("none/x"), format!("{file}/x"), "/proc/hotlap/x".to_owned()] {
        // Nobody listens on this port, so the first message must be about the file.
        for words in ["load --export-csv", "run --no-store --export-html"] {
            let hotlap = scene.hotlap(words).args([&bad, "http://127.0.0.1:1/"]);
            let said = hotlap.said().fails(1).has("that you can write to");
            said.has(&format!("cannot write {bad}: "));
        }
    }
    assert_eq!(exports(&scene), ["file"]);
}

#[test]
fn a_run_that_fails_leaves_the_report_of_the_last_one() {
    let scene = Scene::new();
    scene.write("load.csv", "the last one");
    scene.hotlap("load http://127.0.0.1:1/ --export-csv load.csv").said().fails(3);
    assert_eq!(scene.read("load.csv"), "the last one");
    assert_eq!(exports(&scene), ["load.csv"]);
}

/// Regression: exports were lost when the reader of a pipe ended early.
#[test]
fn a_closed_pipe_does_not_keep_files_from_being_written() {
    let scene = stored();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let report = scene.hotlap("report --store hotlap.db --export-markdown report.md");
    report.start_with(|report| _ = report.stdout(writer)).end();
    assert!(scene.read("report.md").starts_with("# Run 1: hello"));
}

/// Regression: if one export could not be written, the other exports were not written either.
#[test]
fn a_full_disk_takes_nothing_from_the_other_exports() {
    let scene = stored();
    let report = scene.hotlap("report --store hotlap.db --export-json /dev/full");
    let said = report.words("--export-csv report.csv").said().fails(1);
    said.has("cannot write /dev/full: No space left").has("the throughput of go/net-http");
    assert!(scene.read("report.csv").contains("go/net-http"));
}

/// Regression: an export that could not be written in full overwrote the previous export with half
/// of itself.
#[test]
fn an_export_that_does_not_fit_leaves_the_one_before_it() {
    let scene = stored();
    scene.write("report.html", "the last one");
    // No file may grow beyond 8 blocks of 512 bytes, but the page is larger.
    let script = "ulimit -f 8 && exec \"$0\" report --store hotlap.db --export-html report.html";
    let mut command = Command::new("sh");
    command.args(["-c", script, &program()]).current_dir(scene.folder());
    let output = command.env("HOTLAP_CONFIG", "/dev/null").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write") && said.contains("File too large"), "{said}");
    assert_eq!(scene.read("report.html"), "the last one");
    let left = scene.names("");
    assert!(!left.iter().any(|name| name.contains(".tmp")), "{left:?}");
}

#[test]
fn an_interrupted_load_writes_its_exports_and_leaves_nothing_else() {
    let scene = Scene::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let load = scene.hotlap("load --no-check -d 60s -c 1 --export-json load.json");
    let load = load.arg(format!("http://{}/", listener.local_addr().unwrap())).start();
    // When hotlap sends requests, it also listens for signals.
    let (mut stream, _) = listener.accept().unwrap();
    assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    stream.write_all(HELLO).unwrap();
    load.signal(Signal::INT);
    load.end().fails(130);
    assert_eq!(exports(&scene), ["load.json"]);
    assert!(scene.json("load.json")["figures"]["responses"].is_u64());
}

#[test]
fn named_pipes_and_process_substitution_get_one_document() {
    let scene = stored();
    // The file `done` shows that `cat` has written everything.
    let script = "\"$0\" report --store hotlap.db --export-json >(cat > out.json; touch done) \
                  > /dev/null; while [ ! -e done ]; do sleep 0.05; done";
    let mut command = Command::new("bash");
    command.args(["-c", script, &program()]).current_dir(scene.folder());
    let Ok(status) = command.env("HOTLAP_CONFIG", "/dev/null").status() else {
        eprintln!("NOT TESTED: no bash here");
        return;
    };
    assert!(status.success());
    assert_eq!(scene.json("out.json")["run"]["number"], 1);
}
