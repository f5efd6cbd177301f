//! Tests whole runs with scripted laps, from the schedule to every form of the report, in
//! milliseconds.

use std::time::Duration;

use crate::scene::{hold, scene, script, table, three};
use hotlap::analysis::{Analysis, Measure};
use hotlap::model::{Citation, Published, PublishedFigure, Question, RunState, Than};
use hotlap::recorder::Kept;
use hotlap::render::{Format, render, terminal};
use hotlap::report::{BrokenRule, Report};
use hotlap_bench::participant::Role;
use hotlap_bench::scripted::Script;
use hotlap_load::outcome::Negotiated;
use serde_json::Value;

#[test]
fn the_whole_table_at_120_columns() {
    insta::assert_snapshot!(table(&three(), 120), @"

    hello · 64 connections, keep-alive · server on core 0, generator on core 1 · 3 restarts · 18 rounds · slices of 20 ms

       server               req/s           vs reference   CPU/req         CPU vs ref.     p50*    p99*  memory
    1  go/net-http         57,900              reference   16.9 µs                   –   1.1 ms  1.1 ms  7.0 MB
    2  node/http:cluster   38,300     0.66× [0.66, 0.67]   25.6 µs  1.51× [1.51, 1.52]   1.7 ms  1.7 ms  131 MB
    3  python3 app.py       2,100  0.036× [0.036, 0.036]  469.9 µs  27.8× [27.8, 27.8]  30.2 ms       –   23 MB
       ceiling            123,300                      –    7.1 µs                   –  0.51 ms       –  1.0 MB
    * closed loop, at saturation
    p99 is left out (–) where it is known only roughly: a longer --duration helps

    Noise floor (go/net-http against itself): ± 1.5% in requests/s, ± 0.3% in CPU per request.
    No request errors. More figures: --details

    node/http:cluster: 0.66× the throughput of go/net-http [0.66, 0.67], 51% more CPU per request [51, 52].
    python3 app.py: 0.036× the throughput of go/net-http [0.036, 0.036], 27.8× the CPU per request [27.8, 27.8].
    ");
}

#[test]
fn the_head_says_how_long_slices_were() {
    let head = |ms| {
        let mut scene = three();
        scene.experiment.slices = vec![Duration::from_millis(ms)];
        let text = table(&scene, 200);
        let line = text.lines().find(|line| line.contains("restarts")).unwrap_or_default();
        line.rsplit(" · ").next().unwrap_or_default().to_owned()
    };
    assert_eq!((head(20), head(300)), ("slices of 20 ms".to_owned(), "slices of 0.3 s".to_owned()));
}

#[test]
fn the_whole_table_at_80_columns() {
    insta::assert_snapshot!(table(&three(), 80), @"

    hello · 64 connections, keep-alive · server on core 0, generator on core 1
    3 restarts · 18 rounds · slices of 20 ms

       server               req/s           vs reference   CPU/req     p50*
    1  go/net-http         57,900              reference   16.9 µs   1.1 ms
    2  node/http:cluster   38,300     0.66× [0.66, 0.67]   25.6 µs   1.7 ms
    3  python3 app.py       2,100  0.036× [0.036, 0.036]  469.9 µs  30.2 ms
       ceiling            123,300                      –    7.1 µs  0.51 ms
    * closed loop, at saturation
    p99 is left out (–) where it is known only roughly: a longer --duration helps

    Noise floor (go/net-http against itself): ± 1.5% in requests/s, ± 0.3% in CPU
    per request.
    No request errors. More figures: --details

    node/http:cluster: 0.66× the throughput of go/net-http [0.66, 0.67], 51% more
    CPU per request [51, 52].
    python3 app.py: 0.036× the throughput of go/net-http [0.036, 0.036], 27.8× the
    CPU per request [27.8, 27.8].
    ");
}

#[test]
fn details_tell_all_that_is_known_of_each_server() {
    let report = Report::of(&hold(&three(), None).run);
    let text = terminal::detailed(&report, 80, false);
    let of_one = text.lines().skip_while(|line| *line != "  node/http:cluster");
    let of_one: Vec<&str> = of_one.take_while(|line| *line != "  python3 app.py").collect();
    insta::assert_snapshot!(of_one.join("\n"), @"
    node/http:cluster
      version: node/http:cluster 1.0
      command: ./serve node/http:cluster
      requests/s: 38,300 ± 0.5%
      requests/s vs reference: 0.66× [0.66, 0.67]: slower
      of ceiling: 28% ± 0.07%
      CPU time per request: 25.6 µs ± 0.09%
      CPU time vs reference: 1.51× [1.51, 1.52]: costs more
      context switches per request: 0.10
      CPU time in laps ÷ alone after warm-up: 1.00× [1.00, 1.00]
      latency under the load: mean 1.7 ms, stdev 0.16 ms, p50 1.7 ms, p90 1.7
        ms, p99 1.7 ms, max 3.4 ms
      memory (RSS, PSS): 131 MB, 131 MB
      CPU use: 98%
      errors: none
      conformance checks passed: 14/14
      time to first response: 20.0 ms
      warm-up: flat, 0 µs
      laps that count: 36 of 36
    ");
    assert!(!text.contains("--details"), "{text}");
}

#[test]
fn the_whole_table_as_markdown() {
    let report = Report::of(&hold(&three(), None).run);
    insta::assert_snapshot!(render(&report, Format::Markdown), @r"
    # hello

    hello · 64 connections, keep-alive · server on core 0, generator on core 1 · 3 restarts · 18 rounds · slices of 20 ms

    **node/http:cluster: 0.66× the throughput of go/net-http \[0.66, 0.67\], 51% more CPU per request \[51, 52\].**

    **python3 app.py: 0.036× the throughput of go/net-http \[0.036, 0.036\], 27.8× the CPU per request \[27.8, 27.8\].**

    |  | server | req/s | vs reference | CPU/req | CPU vs ref. | p50\* | p99\* | memory |
    | --: | :-- | --: | --: | --: | --: | --: | --: | --: |
    | 1 | go/net-http | 57,900 ± 0.3% | reference | 16.9 µs ± 0.05% | – | 1.1 ms | 1.1 ms | 7.0 MB |
    | 2 | node/http:cluster | 38,300 ± 0.5% | 0.66× \[0.66, 0.67\] | 25.6 µs ± 0.09% | 1.51× \[1.51, 1.52\] | 1.7 ms | 1.7 ms | 131 MB |
    | 3 | python3 app.py | 2,100 ± 0.3% | 0.036× \[0.036, 0.036\] | 469.9 µs ± 0.04% | 27.8× \[27.8, 27.8\] | 30.2 ms | – | 23 MB |
    |  | *ceiling* | 123,300 ± 1.4% | – | 7.1 µs ± 0.3% | – | 0.51 ms | – | 1.0 MB |

    \* closed loop, at saturation

    p99 is left out (–) where it is known only roughly: a longer --duration helps

    Noise floor (go/net-http against itself): ± 1.5% in requests/s, ± 0.3% in CPU per request.

    2026-11-21T20:15:00Z · hotlap 0.1.0 · seed 7
    2 × Imaginary CPU, 16 GB, Debian GNU/Linux 12, Linux 6.18
    go/net-http (go/net-http 1.0); node/http:cluster (node/http:cluster 1.0); python3 app.py (python3 app.py 1.0); ceiling (ceiling 1.0)

        hotlap run 'python3 app.py'
    ");
}

#[test]
fn the_whole_table_as_csv() {
    let report = Report::of(&hold(&three(), None).run);
    insta::assert_snapshot!(render(&report, Format::Csv), @"
    load,rank,server,role,version,request,requests,share_percent,requests_per_s,requests_per_s_low,requests_per_s_high,generator_limited,of_ceiling_percent,cpu_us,cpu_us_low,cpu_us_high,database_us,database_us_low,database_us_high,total_us,total_us_low,total_us_high,statements,round_trips,instructions_user,instructions_kernel,switches,mean_ms,stdev_ms,p50_ms,p90_ms,p99_ms,p999_ms,max_ms,rate,rate_reached,rate_p50_ms,rate_p99_ms,rss_mb,pss_mb,cpu_percent,errors,ready_ms,steady_ms,laps,laps_excluded,lower_bounds
    ,1,go/net-http,reference,go/net-http 1.0,,,,57916.6,57766.5,58067.2,false,42.0116,16.8985,16.8898,16.9072,,,,,,,,,,,0.0996643,1.10445,0.10929,1.08953,1.11718,1.11718,,2.2569,,,,,7,7,97.8704,0,20,0,36,0,
    ,2,node/http:cluster,plain,node/http:cluster 1.0,,,,38344.4,38168.4,38521.2,false,27.7257,25.593,25.5691,25.617,,,,,,,,,,,0.0994277,1.66757,0.162681,1.65478,1.68857,1.68857,,3.41197,,,,,131,131,98.135,0,20,0,36,0,
    ,3,python3 app.py,plain,python3 app.py 1.0,,,,2102.78,2096.81,2108.76,false,1.5125,469.937,469.745,470.13,,,,,,,,,,,0.0951123,30.1896,1.08838,30.1793,,,,31.7686,,,,,23,23,98.8174,0,20,0,36,0,
    ,,ceiling,ceiling,ceiling 1.0,,,,123307,121577,125061,false,100,7.0974,7.07728,7.11759,,,,,,,,,,,0.0998175,0.518901,0.0521249,0.509695,0.525311,,,1.06189,,,,,1,1,87.5166,0,20,0,6,0,
    ");
}

#[test]
fn servers_that_cannot_be_told_apart_share_a_rank() {
    let like = |wobble| script(50_000.0, 20_000.0, 10, wobble);
    let text = table(
        &scene(&[
            ("first", Role::Reference, like(&[0.01, -0.02, 0.015, -0.01, 0.005])),
            ("second", Role::Plain, like(&[-0.01, 0.012, 0.01, -0.015, 0.0, -0.02, 0.025])),
            ("first (again)", Role::Control, like(&[0.02, -0.01, 0.0, 0.01, -0.02, 0.01, -0.01])),
        ]),
        120,
    );
    insta::assert_snapshot!(text, @"

    hello · 64 connections, keep-alive · server on core 0, generator on core 1 · 3 restarts · 18 rounds · slices of 20 ms

         server   req/s        vs reference  CPU/req         CPU vs ref.    p50*    p99*  memory
    1–2  first   50,000           reference  20.0 µs                   –  1.3 ms  1.3 ms   10 MB
    1–2  second  50,000  1.00× [0.99, 1.01]  20.0 µs  1.00× [1.00, 1.00]  1.3 ms  1.3 ms   10 MB
    * closed loop, at saturation

    Noise floor (first against itself): ± 2.4% in requests/s, ± 0.5% in CPU per request.
    No request errors. More figures: --details

    second and first: throughput equal within ±0.6% (1.00× [0.99, 1.01]); CPU per request equal within ±0.2% (1.00×
    [1.00, 1.00]).
    ");
}

#[test]
fn percentiles_are_of_the_common_rate_where_there_is_one() {
    let mut paced = three();
    paced.experiment.paced = true;
    paced.experiment.common_rate = Some(20_000.0);
    paced.experiment.slices = vec![Duration::from_millis(500)];
    let text = table(&paced, 120);
    let is_shown = |line: &&str| line.contains("p99*") || line.contains("* open");
    let shown: Vec<&str> = text.lines().filter(is_shown).collect();
    insta::assert_snapshot!(shown.join("\n"), @"
       server               req/s           vs reference   CPU/req         CPU vs ref.    p50*    p99*  memory
    * open loop at 20,000 req/s, latency from when each request was due
    ");
}

#[test]
fn a_row_that_the_generator_limits_is_a_bound_and_is_ordered_by_cpu_time() {
    let mut fast = script(100_000.0, 8_000.0, 1, &[0.01, 0.0, -0.01]);
    fast.busy = 0.97;
    let slow = script(20_000.0, 40_000.0, 9, &[0.01, -0.01, 0.0, 0.02, -0.02]);
    let text = table(&scene(&[("slow", Role::Reference, slow), ("fast", Role::Plain, fast)]), 120);
    insta::assert_snapshot!(text, @"

    hello · 64 connections, keep-alive · server on core 0, generator on core 1 · 3 restarts · 18 rounds · slices of 20 ms

       server      req/s  CPU/req    CPU vs reference     p50*     p99*  memory
    1  fast    ≥ 100,000   8.0 µs  0.20× [0.20, 0.20]  0.63 ms  0.64 ms  1.0 MB
    2  slow       20,000  40.0 µs           reference   3.2 ms        –  9.0 MB
    * closed loop, at saturation
    p99 is left out (–) where it is known only roughly: a longer --duration helps

    No request errors. More figures: --details

    Note: fast: requests/s is a lower bound (≥), because the load generator was busy. Add generators on other hosts
    (--generator-on).

    fast: 80.0% less CPU per request than slow [80.0, 80.0]; throughput at least 4.98×, limited by the load generator.
    The load generator limited 1 server (≥).
    ");
}

#[test]
fn the_control_is_measured_and_not_compared_with_the_others() {
    let run = hold(&three(), None).run;
    let analysis = Analysis::of(&run, 0);
    assert!(analysis.noise_band(Measure::Cost).is_some());
    let rounds = |server: usize| analysis.servers[server].readings[Measure::Cost].len();
    // The A/A control is the last server and takes part in every fourth round.
    assert!(rounds(3) < rounds(0), "{} and {}", rounds(3), rounds(0));
}

#[test]
fn answers_that_wait_for_acknowledgements_are_told_of_where_the_server_waits() {
    // At 64 connections and 1,400 requests/s, each response takes 46 ms.
    let told = |cost_ns: f64| {
        let server = script(1_400.0, cost_ns, 9, &[0.01, -0.01]);
        let servers = [("app", Role::Reference, server.clone()), ("new", Role::Plain, server)];
        let text = table(&scene(&servers), 120);
        let note = text.lines().skip_while(|line| !line.contains("hardly any")).take(3);
        note.collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(told(90_000.0), @"
    Note: app, new: hardly any response takes less than 40 ms, although the server is mostly idle. Possibly a response is
    sent in two writes, and Nagle's algorithm delays the second until the first is acknowledged. Send each response in one
    write, or set TCP_NODELAY. At a lower rate, percentiles may not show the delay.
    ");
    assert_eq!(told(700_000.0), "", "a server that works for that long is only slow");
}

/// Regression: virtual machines that still compiled code during the measurement got an interval and
/// no warning.
#[test]
fn a_server_whose_cost_falls_while_it_is_measured_is_named() {
    let told = |last: f64| {
        let mut server = script(20_000.0, 40_000.0, 9, &[]);
        // Each restart has twelve laps, whose cost goes from 1 to `last`.
        server.wobble = (0..12).map(|n| (1.0, 1.0 + (last - 1.0) * f64::from(n) / 11.0)).collect();
        let text = table(&scene(&[("app", Role::Reference, server)]), 120);
        let note = text.lines().skip_while(|line| !line.contains("Note: app")).take(3);
        note.collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(told(0.6), @"
    Note: app was still warming up: its CPU per request fell by 37% within a restart, to 26.2 µs in the last laps. A
    server that is not steady has no rank, and no verdict except on memory. With --restarts 3 and a longer --duration, the
    server gets more time in each restart.
    ");
    assert_eq!(told(0.95), "", "as much as that a machine drifts");
}

#[test]
fn a_server_that_dies_is_named_with_phase_last_words_and_cure() {
    let good = script(20_000.0, 40_000.0, 9, &[0.01, -0.01, 0.0, 0.02, -0.02]);
    let bad = Script { dies_at: Some(5), ..good.clone() };
    let text = table(&scene(&[("good", Role::Reference, good), ("bad", Role::Plain, bad)]), 80);
    insta::assert_snapshot!(text, @"

    hello · 64 connections, keep-alive · server on core 0, generator on core 1
    3 restarts · 18 rounds · slices of 20 ms

      server   req/s  CPU/req    p50*  memory
      good    20,000  40.0 µs  3.2 ms  9.0 MB
    * closed loop, at saturation
    p99 is not shown, because it is known only roughly: a longer --duration helps

    No request errors. More figures: --details

    bad failed (lap): exited with code 3
      $ ./serve bad
      | out of luck
      see its last lines
    ");
}

#[test]
fn the_hidden_double_of_a_reference_that_failed_is_not_told_of() {
    let mut scene = three();
    for server in [0, 3] {
        scene.scripts[server].dies_at = Some(0);
    }
    let failed = Report::of(&hold(&scene, None).run).failed;
    assert_eq!(failed.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["go/net-http"]);
}

#[test]
fn a_run_where_every_server_failed_still_has_a_report() {
    let bad = Script { dies_at: Some(0), ..Script::new(1.0, 1.0) };
    let scene = scene(&[("a", Role::Plain, bad)]);
    let report = Report::of(&hold(&scene, None).run);
    assert_eq!(report.failed.len(), 1);
    for format in [Format::Json, Format::Markdown, Format::Csv] {
        assert!(render(&report, format).contains('a'));
    }
    insta::assert_snapshot!(table(&scene, 80), @r###"

    hello · 64 connections, keep-alive · server on core 0, generator on core 1

    a failed (start): exited with code 3
      $ ./serve a
      | out of luck
      see its last lines
    "###);
}

#[test]
fn published_figures_stand_beside_what_is_measured() {
    let mut run = hold(&three(), None).run;
    let published = |requests_per_s, doubt: &str| Published {
        figure: PublishedFigure {
            called: "X".to_owned(),
            requests_per_s,
            doubt: doubt.to_owned(),
            ..PublishedFigure::default()
        },
        citation: Citation { year: 2016, source: "a page".to_owned(), ..Citation::default() },
        than: Some(Than { server: 0, requests_per_s: 50_002.84 }),
    };
    run.servers[0].published = vec![published(50_002.84, "")];
    run.servers[1].published = vec![published(115_968.64, "best of three")];
    let report = Report::of(&run);
    let row = |name: &str| report.tables[0].rows.iter().find(|r| r.name == name).unwrap();
    let node = &row("node/http:cluster").published[0];
    assert_eq!(node.sentence, "2016: 2.32× of go/net-http · here: 0.66× [0.66, 0.67]");
    assert_eq!(
        row("go/net-http").published[0].sentence,
        "2016: 1× (the other servers are relative to it)"
    );
    let text = terminal::render(&report, 80, false);
    assert!(text.contains("  Published in 2016: a page\n"), "{text}");
    assert!(
        text.contains("    node/http:cluster (“X”) · 2016: 2.32× of go/net-http · here: 0.66×")
    );
    let markdown = render(&report, Format::Markdown);
    assert!(markdown.contains("| node/http:cluster | X | 115,969 |"), "{markdown}");
    assert!(markdown.contains("| 2.32× | 0.66× \\[0.66, 0.67\\] | best of three |"), "{markdown}");
}

/// Regression: figures that the generator limited were reported as not measured.
#[test]
fn a_bound_is_set_beside_what_was_published() {
    let mut scene = three();
    scene.scripts[1].busy = 0.95;
    let mut run = hold(&scene, None).run;
    let than = |server| Some(Than { server, requests_per_s: 100.0 });
    let published = |than| Published {
        figure: PublishedFigure { requests_per_s: 250.0, ..PublishedFigure::default() },
        citation: Citation { year: 2016, ..Citation::default() },
        than,
    };
    for (server, other) in [(1, 0), (2, 1)] {
        run.servers[server].published = vec![published(than(other))];
    }
    let said = |run: &hotlap::model::Run| -> Vec<String> {
        let report = Report::of(run);
        let all = report.tables[0].rows.iter().flat_map(|r| &r.published);
        all.map(|p| p.sentence.clone()).collect()
    };
    assert_eq!(
        said(&run),
        [
            "2016: 2.50× of go/net-http · here: ≥ 0.66×",
            "2016: 2.50× of node/http:cluster · here: ≤ 0.055×",
        ]
    );
    scene.scripts[0].busy = 0.95;
    run.laps = hold(&scene, None).run.laps;
    assert_eq!(
        said(&run)[0],
        "2016: 2.50× of go/net-http · here: not known, because the load generator limited both \
         servers"
    );
}

#[test]
fn scaling_says_what_each_step_gives_and_where_the_machine_ends() {
    let busy = |busy, rate| Script { busy, ..script(rate, 20_000.0, 5, &[0.01, -0.01]) };
    let at = |rate| busy(0.5, rate);
    let mut scene = scene(&[
        ("a (1 thread)", Role::Reference, at(10_000.0)),
        ("a (2 threads)", Role::Plain, at(15_000.0)),
        ("b", Role::Plain, at(9_000.0)),
        ("c (1 thread)", Role::Plain, at(10_000.0)),
        ("c (2 threads)", Role::Plain, busy(0.95, 15_000.0)),
    ]);
    scene.question = Question::Scale;
    let mut run = hold(&scene, None).run;
    for (server, base, cpus) in [(0, "a", 1), (1, "a", 2), (3, "c", 1), (4, "c", 2)] {
        run.servers[server].cpus = Some((cpus, base.to_owned()));
    }
    let report = Report::of(&run);
    let said: Vec<&str> = report.scaling.iter().map(|s| s.sentence.as_str()).collect();
    assert_eq!(
        said,
        [
            "a over threads: 1: 10,000 · 2: 15,000 (75% of proportion, more threads than cores).",
            "c over threads: 1: 10,000 · 2: ≥ 15,000 (more threads than cores).",
        ]
    );
    let rows = &report.tables[0].rows;
    let beyond = rows.iter().find(|r| r.name == "a (2 threads)").unwrap();
    assert_eq!(beyond.notes, ["more threads than cores: the servers have only one"]);
}

#[test]
fn every_row_holds_its_numbers_and_its_place_among_sixty() {
    let names: Vec<String> = (0..60).map(|i| format!("<script>server {i}</script>")).collect();
    let servers: Vec<(&str, Role, Script)> = names
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let role = if i == 0 { Role::Reference } else { Role::Plain };
            (name.as_str(), role, script(2_000.0 + 100.0 * i as f64, 9_000.0, 5, &[0.01, -0.01]))
        })
        .collect();
    let mut scene = scene(&servers);
    (scene.experiment.restarts, scene.experiment.rounds) = (Some(3), Some(2));
    let report = Report::of(&hold(&scene, None).run);
    assert_eq!(report.tables[0].rows.len(), 60);
    assert!(report.sentences.iter().any(|s| s.contains("The table has 54 more comparisons.")));
    assert!(!render(&report, Format::Markdown).contains("<script>"));
    let text = terminal::render(&report, 80, false);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.lines().count() > 60);
}

/// Servers with different ciphers do different work.
#[test]
fn different_ciphers_are_named() {
    let mut kept = hold(&three(), None);
    let said = |ciphers: [&str; 3], kept: &mut Kept| {
        for start in kept.run.starts.iter_mut().filter(|start| start.server < 4) {
            let cipher = ciphers[start.server % 3].to_owned();
            let tls = Negotiated { version: "TLS 1.3".to_owned(), cipher };
            start.warmups.iter_mut().for_each(|warmup| warmup.tls = Some(tls.clone()));
        }
        let text = terminal::render(&Report::of(&kept.run), 120, false);
        text.lines().skip_while(|l| !l.contains("ciphers")).collect::<Vec<_>>().join("\n")
    };
    let (weak, strong) = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384");
    assert_eq!(said([strong; 3], &mut kept), "");
    insta::assert_snapshot!(said([weak, strong, strong], &mut kept), @"
    Note: The servers use different TLS versions or ciphers, which may not cost the same: go/net-http (TLS 1.3,
    TLS_AES_128_GCM_SHA256), node/http:cluster, python3 app.py (TLS 1.3, TLS_AES_256_GCM_SHA384). Configure the same
    version and cipher where you can.

    node/http:cluster: 0.66× the throughput of go/net-http [0.66, 0.67], 51% more CPU per request [51, 52].
    python3 app.py: 0.036× the throughput of go/net-http [0.036, 0.036], 27.8× the CPU per request [27.8, 27.8].
    ");
}

#[test]
fn an_interrupted_run_says_so() {
    let mut kept = hold(&three(), None);
    kept.run.state = RunState::Interrupted;
    kept.run.laps.truncate(23);
    let text = terminal::render(&Report::of(&kept.run), 80, false);
    assert!(
        text.contains("This run was interrupted. The figures are from 23 laps until then."),
        "{text}"
    );
}

#[test]
fn the_forms_for_ci_hold_every_server_and_no_ceiling() {
    let mut scene = three();
    scene.scripts[1].dies_at = Some(0);
    let mut report = Report::of(&hold(&scene, None).run);
    report.broken.push(BrokenRule {
        server: "python3 app.py".to_owned(),
        load: 0,
        sentence: "Regression: <slow> & \"late\"".to_owned(),
    });
    let junit = render(&report, Format::Junit);
    assert!(junit.contains("tests=\"3\" failures=\"2\" errors=\"0\""), "{junit}");
    assert!(
        junit.contains("<failure message=\"Regression: &lt;slow&gt; &amp; &quot;late&quot;\">")
    );
    assert!(junit.contains("<testcase classname=\"hotlap\" name=\"node/http:cluster\">"));
    assert!(!junit.contains("ceiling"));

    let figures: Value = serde_json::from_str(&render(&report, Format::Github)).unwrap();
    assert_eq!(figures[0]["name"], "go/net-http: CPU time per request");
    assert_eq!((&figures[0]["unit"], &figures[0]["range"]), (&"µs".into(), &"± 0.05%".into()));
    // The first server has four figures. The third server has three, because it has too few samples
    // for a p99.
    assert_eq!(figures.as_array().unwrap().len(), 7);

    let benchmarks: Value = serde_json::from_str(&render(&report, Format::Bencher)).unwrap();
    let throughput = &benchmarks["go/net-http"]["throughput"];
    assert!(throughput["lower_value"].as_f64() < throughput["value"].as_f64());
    assert!(benchmarks.get("node/http:cluster").is_none());
}
