//! Tests reports on loads that offer a rate, several loads in one run, excluded laps, and wrong
//! responses. The tests check the messages, the tables and the exit codes.

use std::time::Duration;

use crate::scene::{Scene, hold, record, scene, script, three};
use hotlap::cmd::run::rule::{Rule, Ruling};
use hotlap::console::Console;
use hotlap::exit::Exit;
use hotlap::export::Exports;
use hotlap::model::{Run, RunState, ServerFailure, Violation};
use hotlap::recorder::Recorder;
use hotlap::render::{Format, render, terminal};
use hotlap::report::Report;
use hotlap::store::Store;
use hotlap_bench::experiment::Over;
use hotlap_bench::participant::{Load, Role};
use hotlap_load::{Failure, Phase};
use hotlap_stats::Rank;
use hotlap_testkit::flat;
use serde_json::Value;

/// Returns two servers and the control, under one load that offers a rate. The second server costs
/// twice as much as the first.
fn at_a_rate() -> Scene {
    let wobble = [0.01, -0.02, 0.015, -0.01, 0.005];
    let mut scene = scene(&[
        ("lean", Role::Reference, script(50_000.0, 10_000.0, 7, &wobble)),
        ("rich", Role::Plain, script(30_000.0, 20_000.0, 9, &[-0.01, 0.012, 0.0, 0.01])),
        ("lean (again)", Role::Control, script(50_000.0, 10_000.0, 7, &[0.01, 0.0, -0.01])),
    ]);
    scene.experiment.loads[0].rate = Some(2_000.0);
    scene.experiment.slices = vec![Duration::from_millis(500)];
    scene.experiment.paced = true;
    scene
}

/// With several loads, an overview shows each server's CPU time per request under each load.
#[test]
fn several_loads_end_with_an_overview_and_a_shared_sentence_is_said_once() {
    let text = |restarts: u32| {
        let mut scene = three();
        let few = scene.experiment.loads[0].clone();
        let many = |name: &str| Load { name: name.to_owned(), ..few.clone() };
        scene.experiment.loads = vec![many("few"), many("many")];
        scene.experiment.restarts = Some(restarts);
        let report = Report::of(&hold(&scene, None).run);
        for format in [Format::Markdown, Format::Html] {
            assert!(render(&report, format).contains("CPU time per request, relative to go/net"));
        }
        terminal::render(&report, 80, false)
    };
    let overview = |text: &str| {
        let at = text.find("  CPU time per request, relative").unwrap();
        text[at..].to_owned()
    };
    insta::assert_snapshot!(overview(&text(3)), @"
    CPU time per request, relative to go/net-http
    server               few   many
    go/net-http           1×     1×
    node/http:cluster  1.51×  1.51×
    python3 app.py     27.8×  27.8×
    rows in the order of their geometric means
    ");
    let few = text(2);
    assert_eq!(few.matches("A verdict needs at least 3 restarts").count(), 1, "{few}");
    assert!(flat(&overview(&few)).contains("none has a verdict"), "{few}");
}

/// Regression: a load that offers a rate has only paced laps, but no such lap counted. Every run
/// with such a load ended with exit code 4.
#[test]
fn a_load_that_offers_a_rate_is_measured_by_its_laps_at_that_rate() {
    let run = hold(&at_a_rate(), None).run;
    assert!(run.laps.iter().all(|lap| lap.rate() == Some(2_000.0)));
    let report = Report::of(&run);
    insta::assert_snapshot!(terminal::render(&report, 100, false), @"

    hello · 64 connections, keep-alive, 2,000 requests/s offered
    server on core 0, generator on core 1 · 3 restarts · 18 rounds · slices of 0.5 s

       server  req/s  CPU/req    CPU vs reference     p50*     p99*  memory
    1  lean    2,000  10.0 µs           reference  31.7 ms  31.7 ms  7.0 MB
    2  rich    2,000  20.0 µs  2.00× [2.00, 2.00]  31.7 ms  31.7 ms  9.0 MB
    * open loop at 2,000 req/s, latency from when each request was due

    Noise floor (lean against itself): ± 0.00% in requests/s, ± 0.3% in CPU per request.
    No request errors. More figures: --details

    rich: 2.00× the CPU per request of lean [2.00, 2.00].
    ");
    let json: Value = serde_json::from_str(&render(&report, Format::Json)).unwrap();
    let rich = &json["tables"][0]["rows"][1];
    assert_eq!(json["tables"][0]["rate"], 2_000.0);
    assert_eq!((&rich["name"], &rich["service"]["rate"]), (&"rich".into(), &2_000.0.into()));
    assert!(rich["requests_per_s"]["value"].is_f64() && rich["cpu_us"]["value"].is_f64());
    assert!(rich["response"].is_null(), "there are no laps at a common rate");
    let exit = |rule: &str| Ruling::on(&report, &[Rule::parse(rule).unwrap()]).exit();
    assert_eq!(exit("cost +3%"), Exit::Regression);
    assert_eq!(exit("rps -1%"), Exit::Ok, "both serve what is offered");
    assert_eq!(exit("p99 +10%"), Exit::Ok);
}

#[test]
fn a_server_that_does_not_serve_the_rate_is_ranked_last_and_named() {
    let mut run = hold(&at_a_rate(), None).run;
    for lap in &mut run.laps {
        lap.outcome.due = 1_000;
        if lap.server == 1 {
            lap.outcome.responses = 600 + u64::from(lap.place);
        }
    }
    let report = Report::of(&run);
    let ranks: Vec<_> =
        report.tables[0].rows.iter().map(|row| (row.name.as_str(), row.rank)).collect();
    assert_eq!(ranks, [("lean", Some(Rank::only(1))), ("rich", Some(Rank::only(2)))]);
    let told = report.warnings.join("\n");
    let said = "rich did not reach the rate: 1,20";
    assert!(
        told.contains(said) && told.contains("Use a lower rate for the load to compare"),
        "{told}"
    );
    assert!(!told.contains("lean did not"), "{told}");
}

/// If a run has both a closed loop and a rate, laps at a common rate belong to the closed loop.
#[test]
fn a_closed_loop_and_a_rate_in_one_run_keep_their_laps_apart() {
    let mut scene = at_a_rate();
    let closed =
        hotlap_bench::participant::Load { rate: None, ..scene.experiment.loads[0].clone() };
    scene.experiment.loads.push(closed);
    let run = hold(&scene, None).run;
    let main = |load| run.laps.iter().filter(|l| l.load == load && run.is_main(l)).count();
    assert_eq!(main(0), main(1));
    let common: Vec<_> = run.laps.iter().filter(|l| !run.is_main(l)).collect();
    assert!(!common.is_empty() && common.iter().all(|lap| lap.load == 1), "{}", common.len());
    let report = Report::of(&run);
    assert_eq!(report.tables[0].title, "64 connections, keep-alive, 2,000 requests/s offered");
    assert_eq!(report.tables[1].title, "64 connections, keep-alive");
    assert!(report.tables[0].rows[0].response.is_none());
    assert!(report.tables[1].rows[0].response.is_some());
}

/// Returns a run of three servers in a closed loop and then at 5,000 requests/s. The slowest server
/// serves only 2,100 requests/s, and its other requests wait without a connection.
fn at_a_common_rate() -> Run {
    let mut scene = three();
    (scene.experiment.paced, scene.experiment.common_rate) = (true, Some(5_000.0));
    scene.experiment.slices = vec![Duration::from_millis(200)];
    let mut run = hold(&scene, None).run;
    for lap in run.laps.iter_mut().filter(|lap| lap.rate().is_some()) {
        (lap.outcome.window_ns, lap.outcome.due, lap.outcome.responses) =
            (1_000_000_000, 5_000, 5_000);
        if lap.server == 2 {
            (lap.outcome.responses, lap.outcome.in_flight) = (2_100, 64);
            lap.outcome.response_time_censored.waiting = (0..2_836).map(|n| n * 200_000).collect();
        }
    }
    run
}

/// Regression: with `--rate 5000`, response times were compared even for a server that did not
/// reach this rate. No message said so.
#[test]
fn a_server_that_does_not_serve_the_common_rate_is_named_and_its_times_are_not_compared() {
    let report = Report::of(&at_a_common_rate());
    let said = "python3 app.py did not reach the rate: 2,100 of 5,000 requests/s got a \
                response, and the queue grew. Response times at that rate depend on the \
                duration.";
    assert!(report.warnings.iter().any(|w| w.starts_with(said)), "{:#?}", report.warnings);
    assert!(!report.warnings.iter().any(|w| w.contains("node/http:cluster did not")));
    for format in [Format::Markdown, Format::Html] {
        assert!(flat(&render(&report, format)).contains("2,100 of 5,000 requests/s"));
    }
    let text = flat(&terminal::render(&report, 80, false));
    assert!(text.contains(said), "{text}");
    assert!(text.contains("* open loop at 5,000 req/s"), "{text}");
    let wide = terminal::render(&report, 120, false);
    let percentiles = |name: &str| {
        let row = wide.lines().find(|line| line.contains(name)).unwrap();
        row.split("  ").filter(|cell| cell.ends_with(" ms")).count()
    };
    assert_eq!(percentiles("python3 app.py"), 0, "{wide}");
    assert!(percentiles("go/net-http") > 0 && percentiles("node/http:cluster") > 0, "{wide}");
    let json: Value = serde_json::from_str(&render(&report, Format::Json)).unwrap();
    let rows = json["tables"][0]["rows"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    let offered = &row("python3 app.py")["open_loop"];
    assert_eq!((&offered["offered_per_s"], &offered["is_behind"]), (&5_000.0.into(), &true.into()));
    assert_eq!(offered["reached_per_s"], 2_100.0);
    assert_eq!(row("node/http:cluster")["open_loop"]["is_behind"], false);
    let csv = render(&report, Format::Csv);
    let (names, lines) = csv.split_once('\n').unwrap();
    let column = |name: &str| names.split(',').position(|n| n == name).unwrap();
    let field = |server: &str, name: &str| {
        let line = lines.lines().find(|line| line.contains(server)).unwrap();
        line.split(',').nth(column(name)).unwrap().to_owned()
    };
    assert_eq!(field("python3 app.py", "rate_reached"), "2100");
    assert_eq!(field("python3 app.py", "rate_p50_ms"), "");
    assert_ne!(field("node/http:cluster", "rate_p50_ms"), "");
}

/// Returns a run of three servers under two loads. `node/http:cluster` costs half as much as the
/// reference under the first load, and twice as much under the second.
fn under_two_loads() -> Run {
    let mut scene = three();
    scene.experiment.loads[0].name = "GET /".to_owned();
    let second = hotlap_bench::participant::Load {
        name: "POST /x".to_owned(),
        ..scene.experiment.loads[0].clone()
    };
    scene.experiment.loads.push(second);
    let mut run = hold(&scene, None).run;
    for (load, factor) in [(0, 0.5), (1, 2.0)] {
        let of = |lap: &&mut hotlap::model::Lap| lap.load == load && lap.server == 1;
        for lap in run.laps.iter_mut().filter(of) {
            let usage = lap.usage.as_mut().unwrap();
            usage.cpu_ns = Some((16_900.0 * factor * usage.requests as f64) as u64);
        }
    }
    run
}

/// Regression: a server that broke a rule under one load failed under every load, and no message
/// named the load.
#[test]
fn a_regression_under_one_of_two_loads_names_it_and_fails_there_alone() {
    let mut report = Report::of(&under_two_loads());
    let ruling = Ruling::on(&report, &[Rule::parse("memory +2000%").unwrap()]);
    assert_eq!(ruling.exit(), Exit::Ok, "{ruling:?}");
    let ruling = Ruling::on(&report, &[Rule::parse("cost +50%").unwrap()]);
    let node: Vec<_> = ruling.broken.iter().filter(|b| b.server == "node/http:cluster").collect();
    assert_eq!(node.len(), 1, "{node:?}");
    assert!(
        node[0].sentence.starts_with("Regression under POST /x: node/http:cluster has 2.00×"),
        "{}",
        node[0].sentence
    );
    report.broken = vec![node[0].clone()];
    let junit = render(&report, Format::Junit);
    assert!(junit.contains("tests=\"6\" failures=\"1\""), "{junit}");
    let failed = junit.split("<testcase ").find(|case| case.contains("<failure")).unwrap();
    let words = "64 connections, keep-alive";
    assert!(failed.contains(&format!("name=\"node/http:cluster (POST /x: {words})\"")), "{failed}");
}

#[test]
fn each_sentence_of_a_report_on_several_loads_names_its_load() {
    let report = Report::of(&under_two_loads());
    let of = |load: &str| report.sentences.iter().filter(|s| s.starts_with(load)).count();
    assert_eq!((of("GET /: "), of("POST /x: ")), (2, 2), "{:?}", report.sentences);
}

#[test]
fn a_server_that_is_out_fails_under_each_load() {
    let mut scene = three();
    scene.experiment.loads.push(scene.experiment.loads[0].clone());
    scene.scripts[1].dies_at = Some(0);
    let junit = render(&Report::of(&hold(&scene, None).run), Format::Junit);
    assert!(junit.contains("tests=\"6\" failures=\"2\""), "{junit}");
}

#[test]
fn warnings_about_one_of_several_loads_name_it() {
    let mut run = under_two_loads();
    let of = |lap: &&mut hotlap::model::Lap| lap.load == 1 && lap.server == 2;
    for lap in run.laps.iter_mut().filter(of).take(4) {
        lap.failed = vec![Violation::Connections { asked: 64, up: 12, most: None }];
    }
    let told = Report::of(&run).warnings.join("\n");
    let expected = "python3 app.py under POST /x: 4 of 108 laps are excluded: only 12 of 64 \
                    connections were up in the first of them. Check whether the server limits its \
                    connections (backlog, `ulimit -n`), or use fewer (-c).";
    assert!(told.contains(expected), "{told}");
}

/// Regression: each of five servers had its own note with the same remedy.
#[test]
fn warnings_with_the_same_remedy_are_one_that_names_the_servers() {
    let mut run = at_a_common_rate();
    let paced = |lap: &&mut hotlap::model::Lap| lap.rate().is_some() && lap.server < 2;
    for lap in run.laps.iter_mut().filter(paced).filter(|lap| lap.restart == 0) {
        lap.failed = vec![Violation::Late { lag_us: 2_700.0 }];
    }
    for lap in run.laps.iter_mut().filter(|lap| lap.rate().is_none() && lap.server != 1) {
        lap.outcome.failures.add(Failure::Timeout, Phase::FirstByte, 1);
    }
    let told = Report::of(&run).warnings;
    let about = |word: &str| told.iter().filter(|w| w.contains(word)).collect::<Vec<_>>();
    let late = "go/net-http, node/http:cluster: 2 of 6 laps at a common rate are excluded: the \
                generator sent 2.7 ms late (p99) in the first of them. Use a quieter machine. \
                Requests/s and CPU time do not depend on these laps.";
    assert_eq!(about("late"), [late]);
    let failed = "go/net-http: 36 of 426,684 requests timed out. python3 app.py: 36 of 21,400 \
                  requests timed out. ceiling: 6 of 162,972 requests timed out. Failed requests \
                  do not count towards requests/s, but their CPU time counts towards CPU per \
                  request. Percentiles count a failed request with at least \
                  the time that it waited. Look into the server's log, and \
                  try fewer connections (-c) or \
                  a longer --timeout.";
    assert_eq!(about("timed out"), [failed]);
}

/// Regression: the advice for a server on one core was to give it fewer cores.
#[test]
fn fewer_cores_are_advised_only_for_servers_on_several_cores() {
    let mut run = at_a_common_rate();
    run.laps.iter_mut().find(|lap| lap.rate().is_some()).unwrap().failed =
        vec![Violation::Late { lag_us: 2_700.0 }];
    let advises = |run: &Run| Report::of(run).warnings.iter().any(|w| w.contains("--server-cpus"));
    assert!(!advises(&run));
    run.schedule.server_cpus = vec![0, 1];
    assert!(advises(&run));
}

/// Regression: a run in which no lap counted printed a table of dashes and was stored as finished.
#[test]
fn a_run_in_which_no_lap_counts_says_why_and_shows_no_table() {
    let mut run = hold(&three(), None).run;
    let mut seen = vec![0; run.servers.len()];
    for lap in &mut run.laps {
        seen[lap.server] += 1;
        // Every server has more violations of the second kind, so one note covers all servers.
        lap.failed = vec![match seen[lap.server] % 3 {
            0 => Violation::Connections { asked: 64, up: 12, most: None },
            _ => Violation::SideEffect { expected: 90, counted: 30 },
        }];
    }
    run.state = RunState::Invalid;
    let report = Report::of(&run);
    let text = terminal::render(&report, 100, false);
    assert!(!text.contains("CPU") && !text.contains("requests/s"), "{text}");
    let said = flat(&text);
    assert!(said.contains("No lap of this run passed the validity checks"), "{text}");
    assert!(said.contains("All 126 laps failed a validity check"), "{text}");
    let why = "× side effect (first: ";
    let which =
        "go/net-http, node/http:cluster, python3 app.py, ceiling: all 114 laps are excluded";
    assert!(said.contains(which), "{text}");
    assert!(said.contains(why) && said.contains("× connections (first: only 12 of 64"), "{text}");
    assert!(said.contains("Check whether the server drops work"), "{text}");
    assert!(!render(&report, Format::Markdown).contains("| --: |"));
    let junit = render(&report, Format::Junit);
    assert!(junit.contains("errors=\"3\"") && junit.contains("the server drops work"), "{junit}");
}

#[test]
fn a_run_in_which_no_lap_counts_is_stored_as_invalid() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let open = || Store::open(&path).unwrap();
    let mut scene = three();
    scene.scripts.iter_mut().for_each(|script| script.wrong = 5);
    let kept = hold(&scene, Some(open()));
    assert_eq!((kept.run.state, kept.over), (RunState::Invalid, Over::Done));
    assert_eq!(open().run(1).unwrap().state, RunState::Invalid);
}

/// Regression: after an error of hotlap itself, the stored run was still marked as under way.
#[test]
fn a_run_that_an_error_ends_is_stored_as_failed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let open = || Store::open(&path).unwrap();
    let (mut exports, console) = (Exports::default(), Console::plain(80));
    let scene = three();
    let keeper = Recorder::new(record(&scene), Some(open()), &mut exports, &console).unwrap();
    keeper.fail(Over::Done, Duration::from_secs(3));
    let run = open().run(1).unwrap();
    assert_eq!((run.state, run.took_ms), (RunState::Failed, 3_000));
    let text = terminal::render(&Report::of(&run), 100, false);
    assert!(text.contains("An error in hotlap ended this run."), "{text}");
}

/// Regression: a single lap with wrong responses was left out, and the server was ranked by its
/// other laps.
#[test]
fn a_server_with_wrong_responses_is_neither_ranked_nor_compared() {
    let mut run = hold(&three(), None).run;
    let lap = run.laps.iter_mut().find(|lap| lap.server == 1).unwrap();
    lap.failed = vec![Violation::WrongAnswers { wrong: 3, example: "other body".to_owned() }];
    let report = Report::of(&run);
    let row = |name: &str| report.tables[0].rows.iter().find(|row| row.name == name).unwrap();
    let wrong = row("node/http:cluster");
    assert_eq!((wrong.rank, wrong.wrong_responses), (None, 3));
    assert!(wrong.against.is_none() && wrong.requests_per_s.is_some());
    let ranks = ["go/net-http", "python3 app.py"].map(|name| row(name).rank.unwrap());
    assert_eq!(ranks, [Rank::only(1), Rank::only(2)]);
    let said = report.sentences.join("\n");
    assert!(!said.contains("the throughput of node/http:cluster"), "{said}");
    let expected = "node/http:cluster: 3 of its responses were wrong, so it is neither compared nor \
                    ranked.";
    assert!(said.contains(expected), "{said}");
    let ruling = Ruling::on(&report, &[Rule::parse("cost +900%").unwrap()]);
    assert!(ruling.unknown.iter().any(|s| s.contains("node/http:cluster")), "{ruling:?}");
    assert!(render(&report, Format::Junit).contains("message=\"3 wrong responses\""));
}

/// Regression: a server with many wrong responses got figures from its few laps without a wrong
/// response.
#[test]
fn a_server_with_many_wrong_responses_has_no_figures() {
    let mut run = hold(&three(), None).run;
    let own = |lap: &&mut hotlap::model::Lap| lap.server == 1;
    for lap in run.laps.iter_mut().filter(own).skip(2) {
        let wrong = lap.outcome.responses;
        lap.outcome.failures.add(Failure::WrongStatus, Phase::Body, wrong);
        lap.failed = vec![Violation::WrongAnswers { wrong, example: "status 500".to_owned() }];
    }
    let report = Report::of(&run);
    let rows = &report.tables[0].rows;
    let row = rows.iter().find(|row| row.name == "node/http:cluster").unwrap();
    assert!(row.requests_per_s.is_none() && row.cpu_us.is_none(), "{row:?}");
    assert!(row.service.p50.is_none() && row.laps == (0, 36), "{row:?}");
    let text = terminal::render(&report, 100, false);
    let line = text.lines().find(|line| line.contains("node/http:cluster")).unwrap();
    assert!(line.contains("wrong responses"), "{text}");
    let said = flat(&text);
    assert!(said.contains("of its responses were wrong, so it has no figures."), "{text}");
    assert!(said.contains("34 of 36 laps are excluded:") && said.contains("status 500"), "{text}");
}

#[test]
fn nothing_is_compared_with_a_reference_that_answers_wrongly() {
    let mut run = hold(&three(), None).run;
    let lap = run.laps.iter_mut().find(|lap| lap.server == 0).unwrap();
    lap.failed = vec![Violation::WrongAnswers { wrong: 1, example: String::new() }];
    let report = Report::of(&run);
    assert!(report.tables[0].rows.iter().all(|row| row.against.is_none()));
    assert!(
        report.tables[0].rows.iter().all(|row| row.name != "go/net-http" || row.rank.is_none())
    );
    let expected = "go/net-http: 1 of its responses was wrong, so nothing is compared with it.";
    assert!(report.sentences.iter().any(|s| s == expected), "{:?}", report.sentences);
}

/// Regression: the message named a fixed port, whatever the reason for the failure was.
#[test]
fn a_control_that_fails_has_the_remedy_for_a_port_only_if_its_port_is_taken() {
    let mut run = hold(&three(), None).run;
    let control = run.servers.iter().position(|server| server.role == Role::Control).unwrap();
    let mut told = |line: &str| {
        run.servers[control].failure = Some(ServerFailure {
            phase: "start".to_owned(),
            cause: "the server exited with code 1 before its first response".to_owned(),
            log_tail: vec![line.to_owned()],
            remedy: String::new(),
        });
        let found = Report::of(&run).warnings.into_iter().find(|w| w.starts_with("The A/A"));
        found.unwrap().split_once("is unknown. ").unwrap().1.to_owned()
    };
    let remedy = "A server with a fixed port cannot run twice. Put $PORT in its command.";
    assert_eq!(told("OSError: [Errno 98] Address already in use"), remedy);
    assert_eq!(told("Error: listen EADDRINUSE :::8080"), remedy);
    let remedy = "The control printed: the file db.lock is in use";
    assert_eq!(told("the file db.lock is in use"), remedy);
}

/// Regression: a server that chose another port at each start caused a warning at each start.
#[test]
fn a_note_of_every_start_is_told_once_and_the_ceiling_is_not_counted() {
    let mut run = hold(&three(), None).run;
    for (nth, start) in run.starts.iter_mut().enumerate() {
        start.ready.notes = vec![format!("it listens on port {}, not on PORT", 40_000 + nth)];
    }
    let told = |run: &Run| -> Vec<String> {
        let warnings = Report::of(run).warnings;
        warnings.into_iter().filter(|w| w.contains("listens")).collect()
    };
    // Each server that chose another port has one note, and so does the ceiling.
    assert_eq!(told(&run).len(), 4, "{:?}", told(&run));
    run.starts
        .iter_mut()
        .for_each(|start| start.ready.notes = vec!["it listens on port 8".to_owned()]);
    let expected = "go/net-http, node/http:cluster, python3 app.py: it listens on port 8";
    assert_eq!(told(&run), [expected]);
    let mut scene = three();
    for nth in 0..2 {
        scene.experiment.participants.push(hotlap_bench::participant::Participant {
            name: format!("further {nth}"),
            ..scene.experiment.participants[1].clone()
        });
        scene.scripts.push(scene.scripts[1].clone());
    }
    let mut run = hold(&scene, None).run;
    run.starts.iter_mut().for_each(|start| start.ready.notes = vec!["it listens".to_owned()]);
    assert_eq!(told(&run), ["All 5 servers: it listens"]);
}

/// Regression: unknown values were exported as 0.
#[test]
fn what_is_not_known_is_absent_and_not_zero() {
    let mut run = hold(&three(), None).run;
    run.took_ms = 0;
    run.starts[0].ready.ready_ms = None;
    run.starts[0].ready.rss_bytes = None;
    let lap = &mut run.laps[0];
    (lap.outcome.responses, lap.outcome.service_time) = (0, hotlap_stats::Histogram::new());
    lap.outcome.series = vec![hotlap_load::outcome::Tick::default()];
    let json: Value = serde_json::from_str(&render(&Report::of(&run), Format::Json)).unwrap();
    let (start, lap) = (&json["starts"][0], &json["laps"][0]);
    let unknown = [&start["ready_ms"], &start["rss_mb"], &lap["p50_ms"], &lap["max_ms"]];
    assert!(unknown.iter().all(|value| value.is_null()), "{start}\n{lap}");
    assert!(lap["series_mean_ms"][0].is_null() && json["run"]["took_s"].is_null());
    assert_eq!(lap["requests_per_s"], 0.0, "that nothing was answered is known");
}
