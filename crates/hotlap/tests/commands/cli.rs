//! Tests the command line as a shell sees it: bad input, pipes, widths, and exit codes.

use std::net::Shutdown;

use hotlap_testbed::http2::{Http2Peer, frame, kind, response};
use hotlap_testbed::{HELLO, TestServer, unused_address};
use hotlap_testkit::{Said, Scene, ceiling, flat, until};
use rustix::process::Signal;

/// Returns a scene with a catalogue of two servers.
fn scene() -> Scene {
    let scene = Scene::new();
    for id in ["go/net-http", "node/http"] {
        set(&scene, id, "probe = [\"true\"]");
    }
    scene
}

/// Adds a server with this toolchain to the catalogue, or replaces it.
fn set(scene: &Scene, id: &str, toolchain: &str) {
    scene.server(id, &format!("{toolchain}\nversion = [\"echo\", \"1.0\"]"), &["sleep", "60"]);
}

fn said(scene: &Scene, line: &str) -> Said {
    scene.hotlap(line).said()
}

/// A short run, to which a test adds the servers.
const SHORT: &str =
    "run --restarts 1 --rounds 1 --slice 12ms -c 2 --no-pin --no-store --no-ceiling";

#[test]
fn what_makes_no_sense_says_what_does() {
    let scene = scene();
    for (line, words) in [
        ("load -c 0 URL", "at least 1"),
        ("load -t 0 URL", "at least 1"),
        ("load -d -1s URL", "cannot be negative"),
        ("load -d soon URL", "not a unit of time"),
        ("load -t 8 -c 4 URL", "there are more threads (8) than connections (4)"),
        ("load -R 0 URL", "positive"),
        ("load 'not a url'", "not a URL"),
        ("load example.org", "host:port"),
        ("load -s script.lua URL", "--requests-file"),
        ("load -H 'no colon' URL", "Name: value"),
        ("run -c 0 URL", "at least 1"),
        ("run -t 8 -c 4 URL", "there are more threads (8) than connections (4)"),
        ("run --duration 0s URL", "too short"),
        ("run --contract helo go/net-http", "hello"),
        ("run --fail-if 'cost 3%' URL", "cost +3%"),
        ("run http://", "has no host"),
        ("run --name a --name b URL", "2 names for 1 server"),
        ("run http://192.0.2.1/", "--allow-remote"),
        ("run \"echo 'open\"", "cannot be split"),
        (
            "run http://127.0.0.1:1/ --https",
            "is not https, but the run is over TLS: write https://",
        ),
        ("frobnicate", "unrecognized subcommand"),
        ("help frobnicate", "unrecognized subcommand"),
        // These options need servers on the command line.
        ("run --layers", "--layers needs servers"),
        ("run --name a", "--name needs servers"),
        ("run --stress", "--stress needs servers"),
        ("run --stress --scenario garbage", "--scenario needs servers"),
        // Servers of the catalogue would ignore these options.
        ("run go/net-http --path /x", "--path applies to commands and URLs"),
        ("run go/net-http -H 'a: b'", "--header applies to commands and URLs"),
        // Regression: such a baseline could not be found again.
        ("run cat cat --save-baseline 11-13", "11-13 would mean runs by their numbers"),
        ("bisect --good a --bad b --run cat --races 1", "1 is not in 2.."),
        ("run --shell http://127.0.0.1:9", "--shell applies to commands, but no command is named"),
        ("run go/net-http --shell", "--shell applies to commands"),
        ("run go/net-http --fail-if 'cost +3%'", "needs at least two servers"),
        ("run go/net-htp", "did you mean go/net-http? `hotlap list` shows all servers"),
        ("run no-such-server", "no-such-server is not in the catalogue"),
        ("run no-such-server", "write its path (./no-such-server), or quote it"),
        ("run ./no-such-server", "no such file: ./no-such-server"),
        ("check no-such-server", "no-such-server is not in the catalogue"),
        // Regression: an empty argument matched the whole catalogue and built it.
        ("check ''", "the name of a server is empty"),
        ("run ''", "the name of a server is empty"),
        ("list --all --ready", "cannot be used with"),
    ] {
        said(&scene, &line.replace("URL", "http://127.0.0.1:9/")).fails(2).has(words);
    }
    said(&scene, "load http://127.0.0.1:9/").fails(3).has("127.0.0.1:9");
    // Nothing is stored yet.
    for command in ["report", "history"] {
        said(&scene, command).fails(1).has("hotlap run");
    }
}

/// A commit must not be called bad for any reason other than a regression.
#[test]
fn git_bisect_skips_a_commit_that_fails_and_ends_at_other_errors() {
    let scene = scene();
    let run = |rest: &str| said(&scene, &format!("run --git-bisect --no-store {rest}"));
    run("--fail-if 'cost +3%' --restarts 1 'sh -c \"exit 1\"' 'sh -c \"exit 2\"'").fails(125);
    run("--fail-if 'cost +3%' ./no-such-server cat").fails(128).has("no such file");
    run("cat cat").fails(128).has("--fail-if");
}

/// Regression: a file without an end took all memory or was read for ever.
#[test]
fn a_file_without_an_end_is_an_error() {
    let scene = scene();
    let files = ["--body @/dev/zero", "--cacert /dev/zero", "--requests-file /dev/zero"];
    for file in files {
        let said = said(&scene, &format!("load -n 1 {file} https://127.0.0.1:9/"));
        said.has("larger than 256 MiB");
    }
    said(&scene, "load -n 1 --access-log /dev/zero http://127.0.0.1:9/")
        .fails(2)
        .has("does not end within 67 MB");
    said(&scene, "run --suite /dev/zero").fails(2).has("larger than 256 MiB");
}

#[test]
fn a_path_that_cannot_be_written_is_told_before_anything_is_started() {
    let scene = scene();
    for export in ["--export-json", "--export-markdown", "--export-csv", "--export-html"] {
        let said = said(&scene, &format!("run go/net-http {export} /nowhere/at/all")).fails(1);
        said.has("/nowhere/at/all").lacks("Measuring");
    }
    said(&scene, "run go/net-http --store /proc/no/store.db")
        .fails(1)
        .has("--store")
        .has("--no-store");
}

#[test]
fn a_closed_pipe_is_an_end_and_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let list = scene().hotlap("list").start_with(|list| _ = list.stdout(writer));
    assert_eq!(list.end().succeeds().err, "");
}

#[test]
fn the_catalogue_is_listed_within_80_columns_without_colours() {
    let said = scene().hotlap("list").env("COLUMNS", "80").said();
    let text = said.has("go/net-http").has("ready").out;
    assert!(text.lines().all(|l| l.chars().count() <= 80) && !text.contains('\x1b'), "{text}");
}

#[test]
fn help_is_a_command_too() {
    let scene = scene();
    let out = |line: &str| said(&scene, line).succeeds().out;
    assert!(out("help").contains("Commands:"));
    assert!(out("help run").contains("--fail-if"));
    assert_eq!(out("help run"), out("run --help"));
    assert_eq!(out("list -q"), "go/net-http\nnode/http\n");
    assert_eq!(out("list --all -q"), out("list -q"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(out(&format!("completions {shell}")).contains("hotlap"));
    }
    let help = out("--help");
    for (exit, meaning) in hotlap::exit::Exit::ALL {
        assert!(help.contains(&format!("{:>5}  {meaning}", exit as u8)), "{meaning}");
    }
    assert!(!help.contains("__supervisor"));
}

/// Regression: `run -h` listed --fail-if, --save-baseline and --no-store under Request.
#[test]
fn the_help_has_each_option_under_its_heading() {
    let help = said(&scene(), "run --help").succeeds().out;
    let under = |heading: &str| {
        let section = help.split(&format!("\n{heading}:\n")).nth(1).unwrap();
        let is_inside = |line: &&str| line.is_empty() || line.starts_with(' ');
        section.lines().take_while(is_inside).collect::<Vec<_>>().join("\n")
    };
    assert!(!under("Request").contains("--fail-if") && under("Options").contains("--fail-if"));
    for option in ["--save-baseline", "--no-store", "--store", "--export-json"] {
        assert!(under("Store and exports").contains(option), "{option}: {help}");
        assert!(!under("Request").contains(option), "{option}");
    }
}

/// Regression: every run of a suite whose load offers a rate ended with exit code 4.
#[test]
fn a_suite_whose_load_offers_a_rate_is_measured_at_it() {
    let (scene, stub) = (scene(), ceiling());
    let servers = format!("{{ run = '{stub}', name = 'a' }}, {{ run = '{stub}', name = 'b' }}");
    let load = "[[load]]\nconnections = 2\nrate = 200\n";
    scene.write("mine.toml", format!("servers = [{servers}]\n{load}"));
    let run = scene.hotlap("run --suite ./mine.toml --restarts 1 --rounds 2 --slice 48ms --no-pin");
    let said = run.words("--no-store --no-ceiling --export-json run.json").said().measured();
    let report = scene.json("run.json");
    let laps = report["laps"].as_array().unwrap();
    // Two servers run twice in each of two rounds, and the control runs twice in the first round.
    assert_eq!(laps.len(), (3 + 2) * 2, "{said:?}");
    assert!(laps.iter().all(|lap| lap["rate"] == 200.0), "{said:?}");
    assert_eq!(report["run"]["loads"][0]["sends"], "GET /");
    // On a machine that is busy with something else, laps may be late and are then excluded.
    let own = |lap: &&serde_json::Value| lap["server"] == "a" && lap["counts"] == true;
    if let Some(lap) = laps.iter().find(own) {
        assert!(lap["requests_per_s"].as_f64() > Some(0.0), "{said:?}");
        let rows = report["tables"][0]["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == "a").unwrap();
        assert!(row["requests_per_s"]["value"].as_f64() > Some(0.0), "{said:?}");
        assert!(row["service"]["rate"] == 200.0, "{said:?}");
        said.clone().has("open loop at 200 req/s");
    }
    let all_count = laps.iter().all(|lap| lap["counts"] == true);
    assert!(said.code == Some(0) || !all_count, "{said:?}");
}

/// Regression: the warning was printed after each restart.
#[test]
fn a_server_that_does_not_stop_when_asked_is_named_once_a_run() {
    let deaf = format!("sh -c \"trap '' TERM; exec {}\"", ceiling());
    let short = SHORT.replace("--restarts 1", "--restarts 2");
    let run = Scene::new().hotlap(&short).words("--name stops --name deaf").args([ceiling(), deaf]);
    let said = run.said().measured();
    let told = "deaf: did not stop on SIGTERM and was killed\n";
    assert_eq!(said.err.matches(told).count(), 1, "{said:?}");
}

#[test]
fn a_manifest_with_an_unknown_key_is_named_with_file_and_line() {
    let scene = scene();
    set(&scene, "go/net-http", "probe = [\"true\"]\ncolour = 1");
    said(&scene, "list").fails(2).has("server.toml:").has("colour");
}

/// Regression: `hotlap list` and `--dry-run` executed commands from the folder `servers` of any
/// folder.
#[test]
fn the_servers_of_a_folder_that_is_no_checkout_are_not_executed() {
    let scene = scene();
    set(&scene, "go/net-http", &format!("probe = [\"touch\", \"{}\"]", scene.file("probed")));
    for line in ["list go/net-http", "run go/net-http --dry-run"] {
        scene.hotlap(line).without("HOTLAP_SERVERS").said();
        assert!(!scene.path("probed").exists(), "{line}");
    }
    said(&scene, "list go/net-http");
    assert!(scene.path("probed").exists(), "HOTLAP_SERVERS is an explicit choice");
}

#[test]
fn the_load_generator_and_the_ceiling_meet() {
    let (scene, port) = (scene(), unused_address().port());
    let server = scene.hotlap("__ceiling").env("PORT", port.to_string()).env("CPUS", "1");
    let _server = server.start();
    until("it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let url = format!("http://127.0.0.1:{port}/");
    let load = |words: &str| scene.hotlap("load -c 4").words(words).said();
    load(&format!("--format wrk -n 2000 {url}")).has("Requests/sec:").has("Latency");
    let json = load(&format!("--format json -n 2000 {url}")).json();
    assert_eq!(json["figures"]["responses"], 2000);
    assert_eq!(json["figures"]["late"], false);
    // Response times have no tag, and service times have the tag `service`.
    let log = load(&format!("--format hlog -n 200 -R 9k {url}")).out;
    let parts: Vec<&str> = log.lines().filter(|l| !l.starts_with('#')).collect();
    assert!(log.contains("#[StartTime: ") && parts.len() == 2, "{log}");
    assert!(parts[0].starts_with("0.000,") && parts[1].starts_with("Tag=service,0.000,"), "{log}");
    // The exit code shows that responses were wrong.
    load(&format!("--no-check -n 100 {url}nowhere")).fails(3);
}

#[test]
fn defaults_of_ones_own_are_read_unless_they_are_not_wanted() {
    let scene = scene();
    let said = |line: &str| scene.hotlap(line).env("HOTLAP_CONFIG", scene.path("mine.toml")).said();
    said("history").has("cannot read");
    scene.write("mine.toml", "store = 'there.db'\n");
    // The path is relative to the folder of the file.
    said("history").fails(1).has("there.db");
    said("history --no-config").lacks("there.db");
    said("history --store other.db").has("other.db");
    scene.write("mine.toml", "color = 'never'\nbudgte = '20s'\n");
    said("history").fails(2).has("mine.toml:2: unknown field `budgte`");
    // `__lookup` is a part of hotlap itself and does not read the file.
    said("__lookup").fails(1).has("is no server").lacks("mine.toml");
}

#[test]
fn a_list_that_is_ended_calls_nothing_unfit_that_it_did_not_ask() {
    let scene = scene();
    let probe = format!("[\"sh\", \"-c\", \"touch '{}'; sleep 60\"]", scene.file("asked"));
    for id in ["go/net-http", "node/http"] {
        set(&scene, id, &format!("probe = {probe}"));
    }
    let mut list = scene.hotlap("list").start();
    list.until("it asks", || scene.path("asked").exists());
    list.signal(Signal::INT);
    assert_eq!(list.end().fails(130).out, "");
}

/// `--dry-run` says what a run would do, without doing any of it.
#[test]
fn a_dry_run_builds_starts_and_stores_nothing() {
    let scene = scene();
    let build = format!("build = [[\"touch\", '{}']]", scene.file("built"));
    set(&scene, "go/net-http", &format!("probe = [\"true\"]\n{build}"));
    let servers = "run go/net-http 'touch started' --reference 'touch started' --dry-run";
    scene.write("empty.db", "");
    let rest = "--restarts 3 --rounds 2 --seed 7 -c 8 --export-json out.json --store empty.db";
    let said = said(&scene, &format!("{servers} {rest}")).succeeds();
    for words in [
        "go/net-http: built if necessary: touch ",
        "touch started: reference; started with: touch started",
        "touch started (again): A/A control",
        "ceiling: hotlap's own minimal server",
        "GET / 8 connections, keep-alive",
        "3 restarts of 2 rounds, in random order (seed 7)",
        "s until all are warmed up, then about 21 s of measuring",
        "JSON: out.json",
    ] {
        assert!(said.flat().contains(words), "{words}: {said:?}");
    }
    for name in ["built", "started", "out.json", "data", "cache/builds", "cache/logs"] {
        assert!(!scene.path(name).exists(), "{name}: {said:?}");
    }
    assert_eq!(std::fs::metadata(scene.path("empty.db")).unwrap().len(), 0);
}

#[test]
fn a_dry_run_ends_with_the_error_of_the_run() {
    let scene = scene();
    scene.write("mine.toml", "servers = ['http://127.0.0.1:9/']");
    for (code, line, words) in [
        (2, "no-such-server", "is not in the catalogue"),
        (2, "--suite ./no-such.toml", "no-such.toml"),
        (2, "URL --fail-if 'cost +3%'", "needs at least two servers"),
        (2, "URL --reference other", "--reference names other"),
        (2, "URL --stress --export-junit j.xml", "and --export-html only"),
        (1, "URL --body @no-such-body", "cannot read no-such-body"),
        (1, "URL --export-json /nowhere/at/all", "/nowhere/at/all"),
        (1, "--suite ./mine.toml --resume", "no store at"),
    ] {
        let line = format!("run --dry-run {}", line.replace("URL", "http://127.0.0.1:9/"));
        said(&scene, &line).fails(code).has(words);
        assert!(!scene.path("data").exists(), "{line}");
    }
}

/// With `leave_out_missing`, a server whose toolchain is missing is noted and is not a failure.
/// Without `leave_out_missing`, the server is shown as failed.
#[test]
fn a_suite_may_leave_out_servers_whose_toolchain_is_missing() {
    let scene = scene();
    set(&scene, "go/net-http", "probe = [\"no-such-program\"]");
    let suite = |leave_out: bool| {
        let servers = format!("['go/net-http', {{ run = '{}', name = 'mine' }}]", ceiling());
        let text = format!("leave_out_missing = {leave_out}\nservers = {servers}\n");
        scene.write("mine.toml", text + "[[load]]\nconnections = 2\n");
        scene.hotlap(&SHORT.replace("-c 2", "--suite ./mine.toml")).said()
    };
    let said = suite(true).measured().has("go/net-http is left out: no-such-program: ");
    assert!(said.out.contains("mine") && !said.out.contains("go/net-http"), "{said:?}");
    suite(false).fails(3).has("go/net-http failed (toolchain)");
}

/// Regression: the failure told users of `check` to pass an option that only `run` had.
#[test]
fn a_path_may_respond_with_an_error_on_purpose() {
    let scene = scene();
    let check = |line: &str| scene.hotlap(line).arg(ceiling()).said();
    check("check --path /missing").fails(3).has("--expect-status 404");
    check("check --path /missing --expect-status 404").succeeds();
    let why = "--expect-status applies to commands and URLs";
    said(&scene, "check go/net-http --expect-status 404").fails(2).has(why);
}

/// Regression: a row had 17/24, and nothing named the checks that failed.
#[test]
fn a_row_names_the_optional_checks_that_the_server_fails() {
    let url = TestServer::responding(HELLO).url();
    let said = scene().hotlap("check").arg(&url).said().succeeds();
    let expected = "7/18 11 of 18 optional HTTP/1.1 checks failed: HEAD, unknown path, chunked \
                    body, 100-continue, bad version, no Host, space before colon, two lengths, \
                    Date, close, HTTP/1.0. The server can still be measured. --json shows what \
                    each check expected and got.";
    said.has(expected);
}

/// Regression: only `load` said why a server ended connections over HTTP/2.
#[test]
fn a_run_says_why_a_server_ends_connections() {
    let server = TestServer::start(|client| {
        let Some(mut client) = Http2Peer::begin(client, &[]) else { return };
        for number in 0.. {
            let Some(stream) = client.request() else { return };
            if number == 100 {
                let (last, code) = (stream.to_be_bytes(), 11_u32.to_be_bytes());
                let reason = [&last[..], &code, b"too many requests"].concat();
                client.send(&frame(kind::GOAWAY, 0, 0, &reason));
                // Closing the socket with unread bytes would be a reset.
                let _ = client.client().stream.shutdown(Shutdown::Write);
                return client.client().drain();
            }
            client.send(&response(stream, b"Hello, World!"));
        }
    });
    let said = scene().hotlap(SHORT).words("--http2").arg(server.url()).said();
    said.has("with an error (GOAWAY ENHANCE_YOUR_CALM, \"too many requests\")");
}

/// A server that does not speak the load's protocol is neither built nor started, and the others
/// are measured.
#[test]
fn a_run_leaves_out_servers_that_do_not_speak_its_protocol() {
    let scene = scene();
    for (option, protocol) in [("--http2", "HTTP/2 without TLS"), ("--https", "HTTPS")] {
        let why = format!("it does not speak {protocol}; leave out {option}, or name");
        let said = said(&scene, &format!("run go/net-http 'true x' {option} --dry-run"));
        let cause = format!("go/net-http: cannot take part: {why}");
        said.succeeds().has(&cause).lacks("ceiling");
    }
    let build = format!("build = [[\"touch\", '{}']]", scene.file("built"));
    set(&scene, "go/net-http", &format!("probe = [\"true\"]\n{build}"));
    let manifest = scene.read("servers/go/net-http/server.toml");
    let manifest = manifest.replace("[toolchain]", "protocols = [\"h2c\"]\n[toolchain]");
    scene.write("servers/go/net-http/server.toml", manifest);
    let run = scene.hotlap(SHORT).words("--name other --name mine go/net-http").arg(ceiling());
    let said = run.said().fails(3);
    for words in ["other failed (protocol)", "it does not speak HTTP/1.1", "add --http2", "mine"] {
        assert!(flat(&said.out).contains(words), "{said:?}");
    }
    assert!(!scene.path("built").exists());
}
