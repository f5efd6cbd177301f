//! Tests the content of the page.
//!
//! `HOTLAP_PAGES=DIR` keeps the pages of these tests in a folder, so that you can look at them.

use std::path::Path;
use std::time::Duration;

use crate::scene::{Scene, hold, many, script};
use hotlap::model::{Citation, Published, PublishedFigure, Question, Than};
use hotlap::render::{Format, render};
use hotlap::report::Report;
use hotlap_bench::experiment::Explain;
use hotlap_bench::participant::{Load, Role};
use hotlap_bench::scripted::Script;
use hotlap_load::outcome::Tick;
use hotlap_load::plan::Protocol;

pub const EVIL: &str = "</script><script>alert('1')</script>";

/// Returns the page of a scene whose servers have published figures.
pub fn page_of(scene: &Scene) -> String {
    let mut run = hold(scene, None).run;
    // Each lap gets as many ticks as a lap of half a second, so that the page is as large as a real
    // one.
    for lap in &mut run.laps {
        let Some(tick) = lap.outcome.series.first().copied() else { continue };
        let ticks = (0..5).map(|n| Tick {
            responses: tick.responses / 5,
            max_ns: tick.max_ns * (2 + (n * 7 + u64::from(lap.round)) % 5),
            sum_ns: tick.sum_ns / 100 * (18 + n),
            ..tick
        });
        lap.outcome.series = ticks.collect();
    }
    for (n, server) in run.servers.iter_mut().enumerate() {
        server.published = vec![Published {
            figure: PublishedFigure {
                requests_per_s: 40_000.0 / (1.0 + n as f64),
                doubt: "best of three".to_owned(),
                ..PublishedFigure::default()
            },
            citation: Citation { year: 2016, source: "a page".to_owned(), ..Citation::default() },
            than: Some(Than { server: 0, requests_per_s: 40_000.0 }),
        }];
    }
    render(&Report::of(&run), Format::Html)
}

fn page(name: &str, scene: &Scene) -> String {
    let page = page_of(scene);
    if let Some(folder) = std::env::var_os("HOTLAP_PAGES") {
        let path = Path::new(&folder).join(format!("{name}.html"));
        std::fs::write(path, &page).unwrap();
    }
    holds_nothing_foreign(&page);
    page
}

/// Asserts that the page is one document, loads nothing from another address, and closes every
/// script element.
fn holds_nothing_foreign(page: &str) {
    for foreign in
        ["src=", "@import", "url(http", "fetch(", "XMLHttpRequest", "http://", "https://"]
    {
        assert!(!page.contains(foreign), "the page has {foreign}");
    }
    assert_eq!(page.matches("<html").count(), 1);
    assert_eq!(page.matches("<script").count(), page.matches("</script>").count());
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert_eq!(page.matches("<figure").count(), page.matches("</figure>").count());
}

fn charts(page: &str) -> Vec<&str> {
    let titles = page.split("<figcaption><b>").skip(1);
    titles.filter_map(|rest| rest.split("</b>").next()).collect()
}

/// Returns a scene with this many servers, restarts and rounds.
fn sized(servers: usize, restarts: u32, rounds: u32) -> Scene {
    let mut scene = many(servers);
    (scene.experiment.restarts, scene.experiment.rounds) = (Some(restarts), Some(rounds));
    scene
}

fn with_loads(mut scene: Scene, connections: &[usize]) -> Scene {
    scene.experiment.loads = connections.iter().map(|count| Load::new(*count)).collect();
    scene
}

#[test]
fn nine_servers_fit_into_a_megabyte_and_the_sentence_comes_first() {
    let page = page("nine", &sized(9, 3, 20));
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    let first = page.find("the throughput of go/net-http").expect("the sentence");
    assert!(first < page.find("<table").unwrap());
    assert_eq!(
        charts(&page),
        [
            "Requests per second",
            "CPU time per request",
            "Requests per second, against the reference",
            "CPU time per request, against the reference",
            "Service time at saturation",
            "Published and measured",
            "Latency over time: the mean",
            "Latency over time: the longest",
            "Latency over time: 99th percentile",
            "Memory over time",
            "CPU over time, % of one core",
            "Warm-up",
        ]
    );
    assert!(page.matches("var(--band)").count() == 4, "a band on each comparison");
}

#[test]
fn nine_servers_under_five_loads_fit_into_a_megabyte() {
    let page = page("loads", &with_loads(sized(9, 3, 1), &[16, 32, 64, 128, 256]));
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    assert_eq!(page.matches("aria-label=\"Results\"").count(), 5);
    assert!(page.contains("<h1>16 connections, keep-alive: "));
    for load in 0..5 {
        assert!(page.contains(&format!("<a href=\"#load-{load}\">")));
        assert!(page.contains(&format!("<section id=\"load-{load}\">")));
    }
    let before = &page[..page.find("<section").unwrap()];
    assert!(before.matches(" the throughput of ").count() < 10, "each load has its own sentences");
}

#[test]
fn sixty_servers_make_a_page() {
    let page = page("sixty", &sized(60, 1, 3));
    assert_eq!(page.matches("<tr data-server=").count(), 60);
    assert!(page.len() < 4_000_000, "{} bytes", page.len());
}

/// The heading depends on the run. For one server, the heading makes no comparison. If every server
/// failed, the page shows causes and remedies.
#[test]
fn the_heading_says_what_the_run_was() {
    let steady = script(57_900.0, 16_900.0, 7, &[0.01, -0.02, 0.015]);
    let one = crate::scene::scene(&[("go/net-http", Role::Reference, steady.clone())]);
    assert!(page("one", &one).contains("<h1>go/net-http serves 5"));
    let dies = || Script { dies_at: Some(0), ..steady.clone() };
    let failed = crate::scene::scene(&[
        ("go/net-http", Role::Reference, dies()),
        ("node/http:cluster", Role::Plain, dies()),
        ("python3 app.py", Role::Plain, dies()),
    ]);
    let page_of_failed = page("failed", &failed);
    assert!(page_of_failed.contains("<h1>All 3 servers failed: nothing was measured.</h1>"));
    assert_eq!(page_of_failed.matches("out of luck").count(), 3);
    let cut = Scene { interrupted_at: Some(Duration::from_secs(6)), ..many(3) };
    assert!(page("interrupted", &cut).contains("This run was interrupted. The figures are from "));
    let layers = page("layers", &Scene { question: Question::Layers, ..many(5) });
    let titles = charts(&layers);
    assert!(titles.contains(&"The layers") && titles.contains(&"What each step costs"));
}

#[test]
fn loads_that_differ_in_connections_are_drawn_as_scaling() {
    let scaling = page("scaling", &with_loads(sized(3, 2, 3), &[64, 16, 256]));
    assert_eq!(charts(&scaling)[0], "Scaling");
    let report = Report::of(&hold(&with_loads(many(2), &[64, 16]), None).run);
    let points: Vec<u64> = report.scaling[0].points.iter().map(|p| p.at).collect();
    assert_eq!(points, [16, 64]);
    let ideal: Vec<f64> = report.scaling[0].points.iter().filter_map(|p| p.ideal).collect();
    assert!((ideal[1] / ideal[0] - 4.0).abs() < 1e-4);
}

/// Regression: a load over HTTP/1.1 and a load with 10 streams of HTTP/2 formed a curve of requests
/// in flight.
#[test]
fn loads_that_differ_in_protocol_are_no_scaling() {
    let mut scene = with_loads(many(2), &[64, 64]);
    scene.experiment.loads[1].shape.pipeline = 10;
    assert!(!Report::of(&hold(&scene, None).run).scaling.is_empty());
    scene.experiment.loads[1].protocol = Protocol::Http2;
    assert!(Report::of(&hold(&scene, None).run).scaling.is_empty());
}

/// Returns two servers with a profile. The second one has an additional function, whose name is
/// [`EVIL`].
pub fn explained() -> Scene {
    let profiled = |cost_ns: f64, functions: &[&'static str]| {
        let cost = |name: &&'static str| (vec![("main", "app"), (*name, "app")], cost_ns);
        let profile = functions.iter().map(cost).collect();
        Script { profile, ..script(57_900.0, cost_ns, 7, &[0.01, -0.02, 0.015]) }
    };
    let mut scene = crate::scene::scene(&[
        ("go/net-http", Role::Reference, profiled(16_900.0, &["parse"])),
        ("node/http:cluster", Role::Plain, profiled(21_970.0, &["parse", EVIL])),
    ]);
    (scene.question, scene.experiment.explain) = (Question::Explain, Explain::Only);
    scene
}

#[test]
fn an_explanation_has_its_ledger_and_a_flame_graph() {
    let page = page("explain", &explained());
    assert!(page.contains("<h1>node/http:cluster costs "));
    assert!(page.contains("class=\"flame\"") && page.contains(">parse</div>"));
    assert!(!page.contains("<script>alert"));
}

#[test]
fn names_that_would_be_tags_are_text() {
    let mut scene = many(3);
    scene.experiment.participants[1].name = EVIL.to_owned();
    scene.experiment.participants[2].name = format!("{EVIL} \"quoted\" & dead");
    scene.scripts[2].dies_at = Some(1);
    let page = page("evil", &scene);
    assert!(!page.contains("<script>alert"));
    assert!(page.contains("&lt;/script&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;"));
}
