//! Tests, in every output, the figures for each request under a load of several different requests.

use std::time::Duration;

use crate::scene::{ORDER, USER, hold, mix, three};
use hotlap::model::{Run, Violation};
use hotlap::render::{Format, render, terminal};
use hotlap::report::{Figure, Report, RequestRow};
use hotlap_load::outcome::RequestOutcome;

/// Returns a run of three servers, their control and the ceiling, under a load of two requests.
pub fn mixed() -> Run {
    let mut run = hold(&three(), None).run;
    mix(&mut run);
    run
}

/// Returns a run like [`mixed`], with additional laps at a common rate.
fn paced() -> Run {
    let mut scene = three();
    scene.experiment.paced = true;
    scene.experiment.common_rate = Some(20_000.0);
    scene.experiment.slices = vec![Duration::from_millis(100)];
    let mut run = hold(&scene, None).run;
    mix(&mut run);
    run
}

fn requests(run: &Run) -> Vec<RequestRow> {
    Report::of(run).tables.swap_remove(0).by_request
}

/// Returns the row for this request to the server `node/http:cluster`, the second one of the scene.
fn of_node(run: &Run, name: &str) -> RequestRow {
    let is_it = |row: &RequestRow| row.server == "node/http:cluster" && row.request == name;
    requests(run).into_iter().find(is_it).unwrap()
}

fn text(figure: &Option<Figure>) -> &str {
    figure.as_ref().map_or("none", |figure| &figure.text)
}

/// Returns the part of a text from this line to the next empty line.
fn section(text: &str, title: &str) -> String {
    let lines = text.lines().skip_while(|line| line.trim() != title);
    lines.take_while(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_terminal_of_80_columns_shows_them_under_details() {
    let report = Report::of(&mixed());
    let details = terminal::detailed(&report, 80, false);
    let expected = "
  Each request
  server             request           requests  share      p50*    p99*
  go/net-http        GET /users/${id}    37,544  90.0%    1.1 ms  1.1 ms
                     POST /orders         4,156  10.0%    5.4 ms       –
  node/http:cluster  GET /users/${id}    24,863  90.1%    1.7 ms  1.7 ms
                     POST /orders         2,745   9.9%    8.3 ms       –
  python3 app.py     GET /users/${id}     1,370  90.5%   30.2 ms       –
                     POST /orders           144   9.5%  151.0 ms       –
  * closed loop, at saturation
  p99 is left out (–) where it is known only roughly: a longer --duration helps
";
    assert_eq!(section(&details, "Each request"), expected.trim_start_matches('\n'));
    let short = terminal::render(&report, 80, false);
    assert!(!short.contains("Each request") && short.contains("each request, and more: --details"));
}

#[test]
fn long_names_fit_into_80_columns() {
    let mut run = mixed();
    run.servers[1].name = "node/http:cluster with a name that goes on and on".to_owned();
    run.loads[0].requests[0] = "GET /api/v1/customers/${id}/orders/${order}/items".to_owned();
    run.laps[0].outcome.by_request[1].failures = 12;
    let details = terminal::detailed(&Report::of(&run), 80, false);
    for line in section(&details, "Each request").lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn markdown_has_them_in_a_table_of_their_own() {
    let text = render(&Report::of(&mixed()), Format::Markdown);
    let start = text.find("### Each request\n").unwrap();
    let lines: Vec<&str> = text[start..].lines().skip(2).take(4).collect();
    let expected = [
        "| server | request | requests | share | p50\\* | p99\\* |",
        "| :-- | :-- | --: | --: | --: | --: |",
        "| go/net-http | GET /users/\\${id} | 37,544 | 90.0% | 1.1 ms | 1.1 ms |",
        "| go/net-http | POST /orders | 4,156 | 10.0% | 5.4 ms | – |",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn csv_has_a_line_for_each_after_that_of_the_server() {
    for (is_paced, run) in [(false, mixed()), (true, paced())] {
        let text = render(&Report::of(&run), Format::Csv);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let of = |line: usize, name: &str| {
            let column = lines[0].iter().position(|column| *column == name).unwrap();
            lines[line][column]
        };
        assert!(lines.iter().all(|line| line.len() == lines[0].len()));
        let named: Vec<(&str, &str)> =
            (1..lines.len()).map(|line| (of(line, "server"), of(line, "request"))).collect();
        let go = [("go/net-http", ""), ("go/net-http", USER), ("go/net-http", ORDER)];
        assert_eq!((named.len(), &named[..3]), (10, &go[..]));
        assert_eq!(named[9], ("ceiling", ""));
        let (latency, other) = match is_paced {
            true => ("rate_p50_ms", "p50_ms"),
            false => ("p50_ms", "rate_p50_ms"),
        };
        for line in [2, 3] {
            assert!(of(line, latency).parse::<f64>().unwrap() > 0.0);
            assert_eq!(of(line, other), "");
            assert_eq!(
                (of(line, "errors"), of(line, "rank"), of(line, "requests_per_s")),
                ("0", "", "")
            );
            assert_eq!(of(line, "rate").is_empty(), !is_paced);
        }
        assert!(of(1, "requests").is_empty() && of(2, "share_percent").starts_with("90.0"));
    }
}

#[test]
fn a_page_has_a_table_that_can_be_sorted() {
    let page = render(&Report::of(&mixed()), Format::Html);
    let start = page.find("<h3>Each request</h3>").unwrap();
    let table = &page[start..start + page[start..].find("</table>").unwrap()];
    assert!(table.contains("aria-label=\"Each request\""));
    assert!(table.contains("<table class=\"sortable\">"));
    assert!(table.contains("<td class=\"left\">POST /orders</td><td data-v=\"4156\">4,156</td>"));
    assert_eq!(table.matches("<tr data-server=").count(), 6);
}

#[test]
fn percentiles_are_response_times_at_the_common_rate_if_it_was_reached() {
    let mut run = paced();
    let rate = run.laps.iter().find_map(|lap| lap.rate()).unwrap();
    let report = Report::of(&run);
    let row = report.tables[0].rows.iter().find(|row| row.name == "node/http:cluster").unwrap();
    let user = of_node(&run, USER);
    assert_eq!(user.rate, Some(rate));
    // `mix` gives this request the times that all requests of the lap had.
    assert_eq!(text(&user.p50), text(&row.response.as_ref().unwrap().p50));
    assert_ne!(text(&user.p50), text(&row.service.p50));
    // A server that does not reach the rate has no percentiles.
    for lap in run.laps.iter_mut().filter(|lap| lap.server == 1 && lap.rate().is_some()) {
        (lap.outcome.due, lap.outcome.in_flight) =
            (lap.outcome.responses * 2, lap.outcome.responses);
        lap.outcome.response_time_censored.waiting = [1_000_000; 500].into_iter().collect();
    }
    let user = of_node(&run, USER);
    assert_eq!((user.rate, text(&user.p50), text(&user.p99)), (Some(rate), "none", "none"));
}

#[test]
fn a_percentile_that_rests_on_unanswered_requests_is_a_lower_bound() {
    let mut run = mixed();
    let orders = run.laps.iter_mut().filter(|lap| lap.server == 1);
    orders.for_each(|lap| {
        lap.outcome.by_request[1].censored.open = [1_200_000_000; 64].into_iter().collect()
    });
    let [user, order] = [USER, ORDER].map(|name| of_node(&run, name));
    assert!(text(&order.p99).starts_with("≥ 1.2 s"), "{order:?}");
    assert_eq!(text(&user.p99), "1.7 ms");
    let csv = render(&Report::of(&run), Format::Csv);
    assert!(csv.lines().any(|line| line.contains(ORDER) && line.ends_with(",p99_ms")));
}

/// Failures come from all laps, but times come only from laps that count, as in the main table.
#[test]
fn laps_that_do_not_count_are_left_out_of_percentiles_but_their_errors_are_shown() {
    let mut run = mixed();
    let before = of_node(&run, ORDER);
    for lap in run.laps.iter_mut().filter(|lap| lap.server == 1 && lap.restart == 1) {
        lap.failed.push(Violation::Connections { asked: 64, up: 63, most: None });
        lap.outcome.by_request[1].failures = 3;
        (0..1_000).for_each(|_| lap.outcome.by_request[1].latency.record(9_000_000_000));
    }
    let after = of_node(&run, ORDER);
    assert_eq!((after.errors, after.requests), (36, before.requests + 36));
    assert_eq!(text(&after.p50), text(&before.p50));
    let details = terminal::detailed(&Report::of(&run), 90, false);
    let header = section(&details, "Each request");
    let header = header.lines().nth(1).unwrap();
    let columns = ["server", "request", "requests", "share", "errors", "p50*", "p99*"];
    assert_eq!(header.split_whitespace().collect::<Vec<_>>(), columns);
    for lap in run.laps.iter_mut().filter(|lap| lap.server == 1) {
        lap.failed.push(Violation::Connections { asked: 64, up: 63, most: None });
    }
    let none = of_node(&run, ORDER);
    assert_eq!((none.errors, text(&none.p50), text(&none.p99)), (36, "none", "none"));
}

/// One stall delays all connections. Nearly all of the delayed requests are of the slow kind, so
/// the slow kind needs as many samples as the whole load does.
#[test]
fn a_request_needs_as_many_samples_as_its_share_of_those_in_flight_takes() {
    let mut run = mixed();
    let times = |count: u64, ns: u64| {
        let latency = (0..count).map(|_| ns).collect();
        RequestOutcome { responses: count, latency, ..RequestOutcome::default() }
    };
    for lap in run.laps.iter_mut().filter(|lap| lap.server == 1) {
        lap.outcome.by_request = vec![times(200, 1_000_000), times(200, 63_000_000)];
    }
    // 36 laps give 7,200 samples of each request. A request on half of the 64 connections needs
    // 11,776 samples, and a request on 63 of them needs 23,184.
    assert_eq!([USER, ORDER].map(|name| text(&of_node(&run, name).p99).to_owned()), ["none"; 2]);
    for lap in run.laps.iter_mut().filter(|lap| lap.server == 1) {
        lap.outcome.by_request = vec![times(400, 1_000_000), times(400, 63_000_000)];
    }
    let p99 = [USER, ORDER].map(|name| text(&of_node(&run, name).p99).to_owned());
    assert_eq!(p99, ["1.0 ms", "none"]);
}

#[test]
fn a_load_of_one_request_has_none() {
    let run = hold(&three(), None).run;
    let report = Report::of(&run);
    assert!(report.tables[0].by_request.is_empty());
    for format in [Format::Markdown, Format::Html] {
        assert!(!render(&report, format).contains("Each request"));
    }
    assert_eq!(render(&report, Format::Csv).lines().count(), 5);
    assert!(!terminal::detailed(&report, 80, false).contains("Each request"));
}
