//! Tests what a report says about servers under stress, in every output.

use std::collections::BTreeMap;

use crate::scene::{record, three};
use hotlap::model::{
    Citation, Published, PublishedFigure, Question, Run, RunState, Server, Subject,
};
use hotlap::render::{Format, render, terminal};
use hotlap::report::Report;
use hotlap_bench::stress::{ClientService, Fate, Held, Observed, StressTrial, judge};
use hotlap_load::Failure;
use hotlap_load::outcome::FailureCount;

fn pace(requests_per_s: f64, p99_ms: u64) -> ClientService {
    let responses = requests_per_s as u64;
    ClientService {
        requests_per_s,
        responses,
        p99_ns: p99_ms * 1_000_000,
        ..ClientService::default()
    }
}

fn trial(scenario: &str, observed: Observed) -> StressTrial {
    StressTrial {
        scenario: scenario.to_owned(),
        about: "somebody comes".to_owned(),
        judgement: judge(&observed),
        observed,
        log_tail: Vec::new(),
    }
}

/// Returns a report on a server that copes with garbage but not with idle clients.
fn two_scenarios() -> Report {
    let held = |mb: u64, threads| Held { rss_bytes: mb * 1_000_000, threads };
    let garbage = Observed {
        before: pace(10_000.0, 1),
        during: pace(9_300.0, 3),
        after: pace(9_900.0, 1),
        crowding: 1.0,
        fate: Some(Fate {
            connected: 260,
            answered: BTreeMap::from([(400, 200), (501, 40)]),
            closed: 20,
            ..Fate::default()
        }),
        held: Some([held(7, 3), held(9, 3), held(8, 3)]),
        idle: Some([0.0, 0.0]),
        recovered_ms: Some(0.4),
        ..Observed::default()
    };
    let idle = Observed {
        during: ClientService { unanswered: 8, ..ClientService::default() },
        after: ClientService::default(),
        fate: Some(Fate { connected: 1000, closed: 1000, refused: 1000, ..Fate::default() }),
        recovered_ms: None,
        ended: Some("exited with code 1".to_owned()),
        held: None,
        ..garbage.clone()
    };
    let mut idle = trial("2,000 idle", idle);
    idle.log_tail = vec!["too many open files".to_owned()];
    let subject = Subject {
        name: "go/net-http".to_owned(),
        version: "go1.24".to_owned(),
        good: 8,
        trials: vec![trial("garbage", garbage), idle],
        failure: None,
        notes: Vec::new(),
    };
    Report::of(&run(vec![subject]))
}

/// Returns a report on two servers under overload alone. One of them has a published figure.
fn overload() -> Report {
    let failures = [(Failure::Reset, 38), (Failure::Timeout, 2)];
    let failures = failures.map(|(failure, count)| FailureCount {
        failure,
        phase: hotlap_load::Phase::FirstByte,
        count,
    });
    let observed = |failures: &[FailureCount]| Observed {
        before: pace(10_000.0, 1),
        during: pace(400.0, 25),
        after: pace(9_900.0, 1),
        others: Some(ClientService { failures: failures.to_vec(), ..pace(9_300.0, 25) }),
        crowding: 26.0,
        recovered_ms: Some(0.4),
        ..Observed::default()
    };
    let subject = |name: &str, failures: &[FailureCount]| Subject {
        name: name.to_owned(),
        version: String::new(),
        good: 8,
        trials: vec![trial("overload", observed(failures))],
        failure: None,
        notes: Vec::new(),
    };
    let mut run = run(vec![subject("node", &failures), subject("go", &[])]);
    let socket_errors = Some([0, 38, 21, 0]);
    let published = Published {
        figure: PublishedFigure { socket_errors, ..PublishedFigure::default() },
        citation: Citation { year: 2016, ..Citation::default() },
        than: None,
    };
    let node = record(&three()).servers.swap_remove(0);
    run.servers.push(Server { name: "node".to_owned(), published: vec![published], ..node });
    Report::of(&run)
}

/// Returns a run that measured only this stress.
fn run(stress: Vec<Subject>) -> Run {
    let (loads, servers, state) = (Vec::new(), Vec::new(), RunState::Finished);
    Run { question: Question::Stress, stress, loads, servers, state, ..record(&three()) }
}

/// Returns the part of the terminal's report that is about the stress.
fn text(report: &Report, width: usize, color: bool) -> String {
    let text = terminal::render(report, width, color);
    let at = text.find("  stress · ").unwrap();
    text[at..].trim_end().to_owned()
}

#[test]
fn two_scenarios_are_a_table_a_server_and_a_sentence() {
    let report = two_scenarios();
    insta::assert_snapshot!(text(&report, 110, false), @"
    stress · 8 normal clients, keep-alive

    go/net-http · go1.24
                              of fair
      scenario    verdict       share              p99  errors  other clients                         memory
      garbage     unaffected      93%  1.0 ms → 3.0 ms       0  200 × 4xx, 40 × 5xx, 20 closed  7 → 9 → 8 MB
      2,000 idle  down             0%                –       8  1,000 closed, 1,000 refused
      2,000 idle: the server exited with code 1; 8 of 8 requests from normal clients failed; normal clients had
      0% of their fair throughput
        | too many open files

    go/net-http withstands 1 of 2 scenarios; down after 2,000 idle.

    slowed: normal clients had under 50% of their fair throughput, or a p99 over 10 times the fair p99 and 100
    ms more than before the attack
    degraded: serves again, but at under a third of its previous throughput, or stays busy, or keeps too much:
    over 2 times its previous memory (and 64 MB more), or over 2 times its previous threads (and 16 more)
    failing: over 0.1% of the normal clients' requests failed
    down: ended, did not serve, or still failed requests once the stress was over
    ");
    let stress = report.stress.as_ref().unwrap();
    assert_eq!(
        stress.sentences,
        ["go/net-http withstands 1 of 2 scenarios; down after 2,000 idle."]
    );
    assert!(!stress.all_stand());
    assert!(text(&report, 80, true).contains("\x1b[31m2,000 idle"));
}

#[test]
fn one_scenario_is_one_table_with_errors_by_kind_and_what_was_published() {
    insta::assert_snapshot!(text(&overload(), 150, false), @"
    stress · overload: somebody comes · 8 normal clients, keep-alive
                          of fair                                                                                            published
      server  verdict       share               p99  errors  other clients     their errors                        recovery  errors
      node    unaffected     104%  1.0 ms → 25.0 ms       0  9,300 requests/s  38 × connection reset, 2 × timeout   0.40 ms  2016: 38 read, 21 write
      go      unaffected     104%  1.0 ms → 25.0 ms       0  9,300 requests/s  none                                 0.40 ms

    slowed: normal clients had under 50% of their fair throughput, or a p99 over 10 times the fair p99 and 100 ms more than before the attack
    degraded: serves again, but at under a third of its previous throughput, or stays busy, or keeps too much: over 2 times its previous memory (and 64
    MB more), or over 2 times its previous threads (and 16 more)
    failing: over 0.1% of the normal clients' requests failed
    down: ended, did not serve, or still failed requests once the stress was over
    ");
    let narrow = text(&overload(), 80, false);
    assert!(narrow.contains("38 × connection reset, 2 × timeout"), "{narrow}");
}

#[test]
fn it_fits_into_80_columns() {
    for report in [two_scenarios(), overload()] {
        let text = text(&report, 80, false);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn markdown_and_the_page_have_the_same_tables_and_remarks() {
    let markdown = render(&two_scenarios(), Format::Markdown);
    let row = "| garbage | unaffected | 93% | 1.0 ms → 3.0 ms | 0 | 200 × 4xx, 40 × 5xx, 20 closed \
               | 7 → 9 → 8 MB | 3 → 3 → 3 | 0.40 ms |\n";
    assert!(markdown.contains(row), "{markdown}");
    assert!(markdown.contains("- 2,000 idle: the server exited with code 1; "), "{markdown}");
    let markdown = render(&overload(), Format::Markdown);
    let row = "| node | unaffected | 104% | 1.0 ms → 25.0 ms | 0 | 9,300 requests/s \
               | 38 × connection reset, 2 × timeout | 0.40 ms \
               | 2016: 38 read, 21 write |\n";
    assert!(markdown.contains(row), "{markdown}");
    let page = render(&overload(), Format::Html);
    assert!(page.contains(">2016: 38 read, 21 write</td>"), "{page}");
    let page = render(&two_scenarios(), Format::Html);
    assert_eq!(page.matches("<th class=\"name\" scope=\"row\">").count(), 2);
    assert!(page.contains("<li>2,000 idle: the server exited with code 1; "), "{page}");
}
