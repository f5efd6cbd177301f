//! A good server is measured while other servers of the same run misbehave at random, both as
//! processes and in their responses. `HOTLAP_SEEDS=1000` tries 1,000 servers.

use std::ops::Range;
use std::time::{Duration, Instant};

use hotlap_testbed::http2::{Http2Peer, response};
use hotlap_testbed::{Peer, Speaks, TestServer, Unruly, for_some_seeds, most_memory};
use hotlap_testkit::{Hotlap, Said, Scene, ceiling, program};
use serde_json::Value;

/// The number of unruly servers in one run.
const TOGETHER: u64 = 16;

/// The time limit of a run with one unruly server, and the additional time for each further server.
/// The limit covers a start of 4 s, checks, and a warm-up. The checks wait 2 s for each response
/// and may be repeated.
const EACH: Duration = Duration::from_secs(60);

/// The run has no pinning and does not probe for the length of a slice, so that several runs fit on
/// two cores.
const RUN: &str = "run -q --no-store --no-ceiling --no-pin -c 4 --timeout 100ms \
                   --start-timeout 4s -d 1s --restarts 1 --rounds 1 --slice 12ms \
                   --export-json run.json --name good";

const MEMORY: u64 = 300 << 20;

/// Runs hotlap, and returns its output and its peak memory.
fn watched(hotlap: &Hotlap) -> (Said, u64) {
    let mut running = hotlap.start();
    let process = running.pid().as_raw_nonzero().to_string();
    let mut most = 0;
    while !running.has_ended() {
        most = most_memory(&process).unwrap_or(0).max(most);
        std::thread::sleep(Duration::from_millis(20));
    }
    (running.end(), most)
}

/// Measures a good server together with the unruly servers of some seeds.
fn try_some(good: &str, seeds: &[u64], options: &str) {
    if seeds.is_empty() {
        return;
    }
    let scene = Scene::new();
    let name = |seed: &u64| format!("unruly {seed}");
    let names = seeds.iter().flat_map(|seed| ["--name".to_owned(), name(seed)]);
    let command = |seed: &u64| format!("{} __unruly {seed}", program());
    let run = scene.hotlap(RUN).words(options).args(names).arg(good);
    let began = Instant::now();
    let (said, most) = watched(&run.args(seeds.iter().map(command)));
    let took = began.elapsed();
    assert!(took < EACH * seeds.len() as u32, "{seeds:?}: {took:?}\n{said:?}");
    assert!(most < MEMORY, "{seeds:?}: {most} bytes\n{said:?}");
    assert!(matches!(said.code, Some(0 | 3 | 4)), "{seeds:?}: {said:?}");
    assert!(!said.err.contains("panicked"), "{seeds:?}: {said:?}");
    let report = scene.json("run.json");
    let named = |list: &Value, name: &str| -> Option<Value> {
        list.as_array()?.iter().find(|one| one["name"] == name).cloned()
    };
    let rate_of = |row: &Value| row["requests_per_s"]["value"].as_f64();
    let rows = &report["tables"][0]["rows"];
    let rate = named(rows, "good").as_ref().and_then(rate_of);
    assert!(rate.is_some_and(|rate| rate > 0.0), "{seeds:?}: {rate:?}\n{said:?}");
    // Each server is in the table, or its failure is reported. The exit code and the table agree. A
    // failed server or a wrong response is a failure, and a row without figures is no measurement.
    let (mut has_failed, mut lacks_figures) = (false, false);
    for name in seeds.iter().map(name).chain(["good".to_owned()]) {
        let (row, failure) = (named(rows, &name), named(&report["failed"], &name));
        assert!(row.is_some() || failure.is_some(), "{name} is lost: {said:?}");
        has_failed |= failure.is_some();
        has_failed |= row.as_ref().is_some_and(|row| row["wrong_responses"] != 0);
        lacks_figures |= row.is_some_and(|row| rate_of(&row).is_none());
    }
    match said.code {
        Some(0) => assert!(!has_failed && !lacks_figures, "{seeds:?}: {said:?}"),
        Some(4) => assert!(!has_failed && lacks_figures, "{seeds:?}: {said:?}"),
        // A run also fails if more requests failed than the validity checks allow.
        _ => {}
    }
    let left = scene.processes();
    assert!(left.is_empty(), "{seeds:?}: {left:?}\n{said:?}");
}

#[test]
fn a_good_server_has_figures_next_to_unruly_ones() {
    let http2 = TestServer::start(|client: Peer| {
        let Some(mut client) = Http2Peer::begin(client, &[]) else { return };
        while let Some(stream) = client.request() {
            if !client.send(&response(stream, b"Hello, World!")) {
                return;
            }
        }
    });
    for_some_seeds(6, TOGETHER, 4, |seeds: Range<u64>| {
        let speaks_http2 = |seed: &u64| Unruly::new(*seed).speaks == Speaks::Http2;
        let (over_http2, others): (Vec<u64>, Vec<u64>) = seeds.partition(speaks_http2);
        try_some(&ceiling(), &others, "");
        try_some(&http2.url(), &over_http2, "--http2");
    });
}
