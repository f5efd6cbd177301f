//! The page: what it holds, and what it does in a browser.
//!
//! `HOTLAP_PAGES=DIR` keeps the pages that are made here, to be looked at.

mod browser;
mod scenes;

use std::time::Duration;

use hotlap::model::Question;
use hotlap::render::{Format, render};
use hotlap::report::Report;
use hotlap_bench::explain::Explain;
use hotlap_bench::scripted::Script;
use scenes::Scene;

const EVIL: &str = "</script><script>alert('1')</script>";

fn page(name: &str, scene: &Scene) -> String {
    let page = render(&Report::of(&scene.run()), Format::Html);
    if let Some(folder) = std::env::var_os("HOTLAP_PAGES") {
        let path = std::path::Path::new(&folder).join(format!("{name}.html"));
        std::fs::write(path, &page).unwrap();
    }
    holds_nothing_foreign(&page);
    page
}

/// No address that would be loaded, one document, every script element closed by its own end.
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

#[test]
fn nine_servers_fit_into_a_megabyte_and_the_sentence_comes_first() {
    let page = page("nine", &Scene { published: true, size: (3, 20), ..Scene::of(9) });
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
    let connections = vec![16, 32, 64, 128, 256];
    let page = page("loads", &Scene { connections, size: (3, 4), ..Scene::of(9) });
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
fn one_server_is_told_without_a_comparison() {
    let page = page("one", &Scene { company: false, ..Scene::of(1) });
    assert!(
        page.contains("<h1>go/net-http serves 57,"),
        "{}",
        &page[page.find("<h1>").unwrap()..][..200]
    );
}

#[test]
fn sixty_servers_make_a_page() {
    let page = page("sixty", &Scene { size: (1, 3), ..Scene::of(60) });
    assert_eq!(page.matches("<tr data-server=").count(), 60);
    assert!(page.len() < 4_000_000, "{} bytes", page.len());
}

#[test]
fn a_run_where_every_server_failed_says_so_with_causes_and_cures() {
    let dies = |_, script: Script| Script { dies_at: Some(0), ..script };
    let page = page("failed", &Scene { script: dies, company: false, ..Scene::of(3) });
    assert!(page.contains("<h1>All 3 servers failed: nothing was measured.</h1>"));
    assert_eq!(page.matches("exited with code 3").count(), 3);
    assert_eq!(page.matches("out of luck").count(), 3);
}

#[test]
fn a_run_that_was_interrupted_says_so() {
    let at = Some(Duration::from_secs(6));
    let page = page("interrupted", &Scene { interrupted_at: at, ..Scene::of(3) });
    assert!(page.contains("This run was interrupted. These are its "));
}

#[test]
fn layers_is_drawn_as_steps() {
    let page = page("layers", &Scene { question: Question::Layers, ..Scene::of(5) });
    let charts = charts(&page);
    assert!(
        charts.contains(&"The layers") && charts.contains(&"What each step costs"),
        "{charts:?}"
    );
}

#[test]
fn loads_that_differ_in_connections_are_drawn_as_scaling() {
    let page =
        page("scaling", &Scene { connections: vec![64, 16, 256], size: (2, 3), ..Scene::of(3) });
    assert_eq!(charts(&page)[0], "Scaling");
    let report = Report::of(&Scene { connections: vec![64, 16], ..Scene::of(2) }.run());
    let points: Vec<u64> = report.scaling[0].points.iter().map(|p| p.at).collect();
    assert_eq!(points, [16, 64]);
    let ideal: Vec<f64> = report.scaling[0].points.iter().filter_map(|p| p.ideal).collect();
    assert!((ideal[1] / ideal[0] - 4.0).abs() < 1e-4);
}

/// A server with a profile of two functions, the second one planted.
pub fn profiled(n: usize, script: Script) -> Script {
    let cost = |name| (vec![("main", "app"), (name, "app")], script.cost_ns);
    let profile = if n == 0 { vec![cost("parse")] } else { vec![cost("parse"), cost(EVIL)] };
    Script { profile, ..script }
}

#[test]
fn an_explanation_has_its_ledger_and_a_flame_graph() {
    let explain = Explain::Only;
    let question = Question::Explain;
    let scene = Scene { question, explain, company: false, script: profiled, ..Scene::of(2) };
    let page = page("explain", &scene);
    assert!(
        page.contains("<h1>node/http:cluster costs "),
        "{}",
        &page[page.find("<h1>").unwrap()..][..80]
    );
    assert!(page.contains("class=\"flame\"") && page.contains(">parse</div>"));
    assert!(!page.contains("<script>alert"));
}

#[test]
fn names_that_would_be_tags_are_text() {
    let mut scene = Scene { published: true, ..Scene::of(3) };
    scene.names[1] = EVIL.to_owned();
    scene.script = |n, script| Script { dies_at: (n == 2).then_some(1), ..script };
    scene.names[2] = format!("{EVIL} \"quoted\" & dead");
    let page = page("evil", &scene);
    assert!(!page.contains("<script>alert"));
    assert!(page.contains("&lt;/script&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;"));
}
