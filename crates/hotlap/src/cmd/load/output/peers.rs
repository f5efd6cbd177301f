//! Known defects in the output of other tools, each with a test that hotlap passes. Defects of
//! their engines are in `hotlap-load`'s `tests/peers.rs`.

use hotlap_load::Outcome;
use hotlap_load::plan::{Plan, Request};
use hotlap_stats::Histogram;

use super::{csv, human, json, wrk};
use crate::cmd::load::loaded::Loaded;

/// A load of one connection whose responses took 1 to 1,000,000 µs, each value once.
fn loaded() -> Loaded {
    let mut service = Histogram::new();
    (1..=1_000_000).for_each(|us| service.record(us * 1_000));
    let outcome = Outcome {
        backend: "none".to_owned(),
        window_ns: 1_000_000_000,
        responses: 1_000_000,
        service_time: service,
        ..Outcome::default()
    };
    let target = hotlap_load::url::resolve("http://127.0.0.1:1/").unwrap().target;
    let mut plan = Plan::new(target, Request::get("/", "test"));
    plan.connections = 1;
    Loaded {
        url: "http://127.0.0.1:1/".to_owned(),
        plan,
        names: Vec::new(),
        outcome,
        generators: None,
        opened: std::time::SystemTime::UNIX_EPOCH,
        latency: true,
    }
}

/// The value in a line of the CSV.
fn value(csv: &str, name: &str) -> f64 {
    let line = csv.lines().find_map(|line| line.strip_prefix(&format!("{name},"))).unwrap();
    line.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn the_benchmarker_prints_p9999_as_p99999() {
    let loaded = loaded();
    let service = &serde_json::from_str::<serde_json::Value>(&json(&loaded)).unwrap();
    let service = &service["figures"]["service"];
    let csv = csv(&loaded);
    for (name, ms) in [("p50", 500.0), ("p90", 900.0), ("p99", 990.0), ("p999", 999.0)] {
        let near = |found: f64| (found / ms - 1.0).abs() < 0.001;
        assert!(near(service[format!("{name}_ms")].as_f64().unwrap()), "{name}: {service}");
        assert!(near(value(&csv, &format!("service_{name}"))), "{name}: {csv}");
    }
    let ms = service["p9999_ms"].as_f64().unwrap();
    assert!((ms / 999.9 - 1.0).abs() < 0.001, "{service}");
    assert!(wrk(&loaded).contains("     99%    0.99s"), "{}", wrk(&loaded));
}

#[test]
fn httparena_prints_the_mean_as_p99() {
    let loaded = loaded();
    let (csv, human) = (csv(&loaded), human(&loaded, 80));
    assert!((value(&csv, "service_mean") / 500.0 - 1.0).abs() < 0.001, "{csv}");
    assert!((value(&csv, "service_p99") / 990.0 - 1.0).abs() < 0.001, "{csv}");
    assert!(human.contains("p50 500.2 ms  p90 900.2 ms  p99 990.4 ms  max 1.0 s"), "{human}");
}
