//! Whole runs with scripted laps: race, store, report and every form of it, in milliseconds.

use std::path::PathBuf;
use std::time::Duration;

use hotlap::console::Console;
use hotlap::export::Exports;
use hotlap::record::{Host, Load, Question, Run, Schedule, Server, State};
use hotlap::report::{Form, Report, terminal};
use hotlap::store::Store;
use hotlap::timekeeper::{Kept, Timekeeper};
use hotlap_harness::contract::{Contract, Name};
use hotlap_harness::entrant::{self, Entrant, Launch, Role};
use hotlap_harness::race::{Place, Race};
use hotlap_harness::scripted::{Script, Scripted};
use hotlap_harness::verify::Demand;
use hotlap_load::plan::Reuse;

/// A run as a test tells it.
struct Scene {
    race: Race,
    scripts: Vec<Script>,
    question: Question,
}

fn scene(servers: &[(&str, Role, Script)]) -> Scene {
    let entrant = |(name, role, _): &(&str, Role, Script)| Entrant {
        name: (*name).to_owned(),
        role: *role,
        start: entrant::Start::Launch(Launch {
            argv: vec!["./serve".to_owned(), (*name).to_owned()],
            env: [].into(),
            cwd: PathBuf::from("."),
        }),
        contract: Contract::of(Name::Hello, None),
        demand: Demand::Stranger,
        version: format!("{name} 1.0"),
        counts: None,
    };
    let load = entrant::Load {
        name: String::new(),
        connections: 64,
        threads: 1,
        reuse: Reuse::KeepAlive,
        pipeline: 1,
        request: 0,
    };
    Scene {
        race: Race {
            entrants: servers.iter().map(entrant).collect(),
            loads: vec![load],
            budget: Duration::from_secs(60),
            precision: None,
            heats: Some(3),
            blocks: Some(6),
            lap: Duration::from_millis(20),
            paced: false,
            rate: None,
            seed: 7,
            from: Place::default(),
        },
        scripts: servers.iter().map(|s| s.2.clone()).collect(),
        question: Question::Compare,
    }
}

/// A script whose laps differ a little from one another, the same way in every block.
fn script(rate: f64, cost_ns: f64, megabytes: u64, wobble: &[f64]) -> Script {
    Script {
        rss_bytes: megabytes * 1_000_000,
        wobble: wobble.iter().map(|w| (1.0 + w, 1.0 - w / 5.0)).collect(),
        ..Script::new(rate, cost_ns)
    }
}

fn three() -> Scene {
    let go = script(57_900.0, 16_900.0, 7, &[0.01, -0.02, 0.015, -0.01, 0.005]);
    let node = script(38_300.0, 25_600.0, 131, &[-0.01, 0.02, 0.01, -0.015, 0.0, -0.02, 0.025]);
    let python = script(2_100.0, 470_000.0, 23, &[0.05, -0.05, 0.0, 0.02, -0.03]);
    let double = script(57_900.0, 16_900.0, 7, &[-0.01, 0.01, 0.02, -0.005, 0.0, 0.01, -0.02]);
    let ceiling = script(123_100.0, 7_100.0, 1, &[0.02, -0.01, 0.0, 0.01, -0.02, 0.01, -0.01]);
    scene(&[
        ("go/net-http", Role::Reference, go),
        ("node/http:cluster", Role::Contestant, node),
        ("python3 app.py", Role::Contestant, python),
        ("go/net-http (again)", Role::Double, double),
        ("ceiling", Role::Ceiling, ceiling),
    ])
}

fn record(scene: &Scene) -> Run {
    Run {
        number: None,
        began_ms: 1_795_292_100_000,
        took_ms: 0,
        state: State::UnderWay,
        command: vec!["hotlap".to_owned(), "run".to_owned(), "python3 app.py".to_owned()],
        hotlap: "0.1.0".to_owned(),
        suite: None,
        question: scene.question,
        about: String::new(),
        contract: "hello".to_owned(),
        seed: scene.race.seed,
        schedule: Schedule {
            heats: 3,
            blocks: 6,
            lap_ms: 500.0,
            budget_s: 60.0,
            precision: None,
            server_cpus: vec![0],
            generator_cpus: vec![1],
            freeze: true,
        },
        host: Host {
            os: "Debian GNU/Linux 12".to_owned(),
            kernel: "Linux 6.18".to_owned(),
            arch: "x86_64".to_owned(),
            cpu: "Imaginary CPU".to_owned(),
            cores: 2,
            memory_bytes: 16_000_000_000,
            ..Host::default()
        },
        loads: scene.race.loads.iter().map(Load::from).collect(),
        servers: scene.race.entrants.iter().map(Server::from).collect(),
        starts: Vec::new(),
        laps: Vec::new(),
    }
}

fn hold(scene: &Scene, store: Option<Store>) -> Kept {
    let mut track = Scripted::new(scene.scripts.clone(), scene.race.loads.clone(), scene.race.lap);
    let (mut exports, console) =
        (Exports::default(), Console { quiet: true, ..Console::plain(80) });
    let keeper = Timekeeper::new(record(scene), store, &mut exports, &console).unwrap();
    keeper.keep(&scene.race, &mut track)
}

fn table(scene: &Scene, width: usize) -> String {
    let report = Report::of(&hold(scene, None).run);
    let text = terminal::render(&report, width, false);
    for line in text.lines() {
        assert!(line.chars().count() <= width, "{} columns: {line}", line.chars().count());
    }
    text
}

#[test]
fn the_whole_table_at_120_columns() {
    insta::assert_snapshot!(table(&three(), 120), @r###"

    hello · 64 connections, keep-alive · server on core 0, generator on core 1 · 3 heats × 6 blocks × 0.5 s

                              requests/s  of ceiling  CPU µs/request      p50      p99  memory  errors  checks
    1  go/net-http         57,900 ± 0.3%        47 %    16.9 ± 0.05%   1.1 ms   1.1 ms  7.0 MB       0   14/14
    2  node/http:cluster   38,300 ± 0.5%        31 %    25.6 ± 0.09%   1.7 ms   1.7 ms  131 MB       0   14/14
    3  python3 app.py       2,100 ± 0.3%       1.7 %   470.0 ± 0.05%  30.2 ms  31.8 ms   23 MB       0   14/14
       ceiling            123,200 ± 0.1%       100 %     7.1 ± 0.03%  0.51 ms  0.53 ms  1.0 MB       0   14/14

    go/net-http serves 1.51× [1.50, 1.52] the requests of node/http:cluster, at 0.66× [0.66, 0.66] of its CPU time each.
    go/net-http serves 27.4× [27.4, 27.5] the requests of python3 app.py, at 0.0360× [0.0360, 0.0360] of its CPU time
    each.
    Noise here today: ± 0.7% in requests/s, ± 0.1% in CPU time per request (go/net-http against itself).
    "###);
}

#[test]
fn the_whole_table_at_80_columns() {
    insta::assert_snapshot!(table(&three(), 80), @r###"

    hello · 64 connections, keep-alive · server on core 0, generator on core 1
    3 heats × 6 blocks × 0.5 s

                                               of         CPU µs
                              requests/s  ceiling       /request      p50      p99
    1  go/net-http         57,900 ± 0.3%     47 %   16.9 ± 0.05%   1.1 ms   1.1 ms
    2  node/http:cluster   38,300 ± 0.5%     31 %   25.6 ± 0.09%   1.7 ms   1.7 ms
    3  python3 app.py       2,100 ± 0.3%    1.7 %  470.0 ± 0.05%  30.2 ms  31.8 ms
       ceiling            123,200 ± 0.1%    100 %    7.1 ± 0.03%  0.51 ms  0.53 ms

    go/net-http serves 1.51× [1.50, 1.52] the requests of node/http:cluster, at
    0.66× [0.66, 0.66] of its CPU time each.
    go/net-http serves 27.4× [27.4, 27.5] the requests of python3 app.py, at
    0.0360× [0.0360, 0.0360] of its CPU time each.
    Noise here today: ± 0.7% in requests/s, ± 0.1% in CPU time per request
    (go/net-http against itself).
    "###);
}

#[test]
fn the_whole_table_as_markdown() {
    let report = Report::of(&hold(&three(), None).run);
    insta::assert_snapshot!(report.render(Form::Markdown), @r###"
    # hello

    hello · 64 connections, keep-alive · server on core 0, generator on core 1 · 3 heats × 6 blocks × 0.5 s

    **go/net-http serves 1.51× \[1.50, 1.52\] the requests of node/http:cluster, at 0.66× \[0.66, 0.66\] of its CPU time each.**

    **go/net-http serves 27.4× \[27.4, 27.5\] the requests of python3 app.py, at 0.0360× \[0.0360, 0.0360\] of its CPU time each.**

    |  | server | requests/s | of ceiling | CPU µs/request | avg | stdev | p50 | p99 | max | memory | CPU | errors | checks |
    | --: | :-- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |
    | 1 | go/net-http | 57,900 ± 0.3% | 47 % | 16.9 ± 0.05% | 1.1 ms | 0.11 ms | 1.1 ms | 1.1 ms | 2.3 ms | 7.0 MB | 98 % | 0 | 14/14 |
    | 2 | node/http:cluster | 38,300 ± 0.5% | 31 % | 25.6 ± 0.09% | 1.7 ms | 0.16 ms | 1.7 ms | 1.7 ms | 3.4 ms | 131 MB | 98 % | 0 | 14/14 |
    | 3 | python3 app.py | 2,100 ± 0.3% | 1.7 % | 470.0 ± 0.05% | 30.2 ms | 1.1 ms | 30.2 ms | 31.8 ms | 31.8 ms | 23 MB | 99 % | 0 | 14/14 |
    |  | *ceiling* | 123,200 ± 0.1% | 100 % | 7.1 ± 0.03% | 0.52 ms | 52 µs | 0.51 ms | 0.53 ms | 1.1 ms | 1.0 MB | 87 % | 0 | 14/14 |

    Noise here today: ± 0.7% in requests/s, ± 0.1% in CPU time per request (go/net-http against itself).

    2026-11-21T20:15:00Z · hotlap 0.1.0 · seed 7
    2 × Imaginary CPU, 16 GB, Debian GNU/Linux 12, Linux 6.18
    go/net-http (go/net-http 1.0), node/http:cluster (node/http:cluster 1.0), python3 app.py (python3 app.py 1.0), ceiling (ceiling 1.0)

        hotlap run 'python3 app.py'
    "###);
}

#[test]
fn the_whole_table_as_csv() {
    let report = Report::of(&hold(&three(), None).run);
    insta::assert_snapshot!(report.render(Form::Csv), @r###"
    load,rank,server,role,version,requests_per_s,requests_per_s_low,requests_per_s_high,is_bound,of_ceiling_percent,cpu_us,cpu_us_low,cpu_us_high,instructions_user,instructions_kernel,switches,mean_ms,stdev_ms,p50_ms,p90_ms,p99_ms,p999_ms,max_ms,rate,rate_p50_ms,rate_p99_ms,rss_mb,pss_mb,cpu_percent,errors,ready_ms,steady_ms,laps,laps_left_out
    ,1,go/net-http,reference,go/net-http 1.0,57911.3,57755.5,58067.5,false,47.018,16.8993,16.8901,16.9084,,,0.0996643,1.10445,0.10929,1.08953,1.11718,1.11718,2.2569,2.2569,,,,7,7,97.8704,0,20,0,36,0
    ,2,node/http:cluster,contestant,node/http:cluster 1.0,38343.2,38167.6,38519.5,false,31.098,25.5943,25.5703,25.6183,,,0.0994277,1.66757,0.162681,1.65478,1.68857,1.68857,3.41197,3.41197,,,,131,131,98.135,0,20,0,36,0
    ,3,python3 app.py,contestant,python3 app.py 1.0,2103.79,2097.3,2110.29,false,1.70893,469.985,469.733,470.237,,,0.0951123,30.1896,1.08838,30.1793,31.7686,31.7686,,31.7686,,,,23,23,98.8174,0,20,0,36,0
    ,,ceiling,ceiling,ceiling 1.0,123170,123016,123325,false,100,7.09917,7.09739,7.10095,,,0.0998072,0.519479,0.0522007,0.514815,0.525311,0.525311,1.06189,1.06189,,,,1,1,87.4365,0,20,0,36,0
    "###);
}
