//! The command line, as a shell sees it: bad input, pipes, widths, exit codes.

use std::process::{Command, Output, Stdio};

use hotlap_testbed::unused_address;

/// hotlap with a cache and a store of its own, no terminal, and a catalogue of two servers.
struct Shell {
    folder: tempfile::TempDir,
}

impl Shell {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for id in ["go/net-http", "node/http"] {
            let server = folder.path().join("servers").join(id);
            std::fs::create_dir_all(&server).unwrap();
            std::fs::write(server.join("server.toml"), MANIFEST).unwrap();
        }
        Self { folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hotlap"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("HOTLAP_CACHE", self.folder.path().join("cache"))
            .env("XDG_DATA_HOME", self.folder.path().join("data"))
            .env("HOTLAP_SERVERS", self.folder.path().join("servers"))
            .env("XDG_CONFIG_HOME", self.folder.path().join("config"))
            .env_remove("HOTLAP_CONFIG")
            .env_remove("COLUMNS")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs it, expects that exit code, and returns what it said on standard error.
    fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?} said: {said}");
        said
    }

    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?} said: {said}");
        String::from_utf8(output.stdout).unwrap()
    }
}

const MANIFEST: &str = r#"
about     = "A server for a test."
url       = "https://example.org"
kind      = "hand-written"
contracts = ["hello"]
[toolchain]
probe   = ["true"]
install = { apt = [], brew = [] }
build   = []
version = ["echo", "1.0"]
[run]
command = ["sleep", "60"]
"#;

#[test]
fn an_unknown_server_is_answered_with_the_nearest_names() {
    let said = Shell::new().fails(2, &["run", "go/net-htp"]);
    assert!(said.contains("go/net-htp") && said.contains("go/net-http"), "{said}");
}

#[test]
fn a_load_that_makes_no_sense_says_what_does() {
    let shell = Shell::new();
    let url = "http://127.0.0.1:9/";
    for (arguments, word) in [
        (vec!["load", "-c", "0", url], "at least 1"),
        (vec!["load", "-t", "0", url], "at least 1"),
        (vec!["load", "-d", "-1s", url], "cannot be negative"),
        (vec!["load", "-d", "soon", url], "not a unit of time"),
        (vec!["load", "-t", "8", "-c", "4", url], "at most 4 threads"),
        (vec!["load", "-R", "0", url], "positive"),
        (vec!["load", "not a url"], "not a URL"),
        (vec!["load", "example.org"], "host:port"),
        (vec!["load", "-s", "script.lua", url], "--requests-file"),
        (vec!["load", "-H", "no colon", url], "Name: value"),
        (vec!["run", "-c", "0", url], "at least 1"),
        (vec!["run", "-t", "8", "-c", "4", url], "at most 4 threads"),
        (vec!["run", "--duration", "0s", url], "too short"),
        (vec!["run", "--contract", "helo", "go/net-http"], "hello"),
        (vec!["run", "--fail-if", "cost 3%", url], "cost +3%"),
        (vec!["run", "http://"], "has no host"),
        (vec!["run", "--name", "a", "--name", "b", url], "2 names for 1 server"),
        (vec!["run", "http://192.0.2.1/"], "--allow-remote"),
        (vec!["run", "echo 'open"], "cannot be split"),
        (vec!["frobnicate"], "unrecognized subcommand"),
        (vec!["help", "frobnicate"], "unrecognized subcommand"),
        // What is about servers on the command line, without any.
        (vec!["run", "--layers"], "--layers needs servers"),
        (vec!["run", "--name", "a"], "--name needs servers"),
        (vec!["run", "--stress"], "--stress needs servers"),
        (vec!["run", "--stress", "--scenario", "garbage"], "--scenario needs servers"),
        // What servers of the catalogue would ignore.
        (vec!["run", "go/net-http", "--path", "/x"], "--path applies to commands and URLs"),
        (vec!["run", "go/net-http", "-H", "a: b"], "--header applies to commands and URLs"),
        (vec!["run", "go/net-http", "--shell"], "--shell applies to commands"),
        (vec!["run", "go/net-http", "--fail-if", "cost +3%"], "needs at least two servers"),
        (vec!["run", "no-such-server"], "no-such-server is not in the catalogue"),
        (vec!["run", "no-such-server"], "write its path (./no-such-server), or quote it"),
        (vec!["run", "./no-such-server"], "no such file: ./no-such-server"),
        (vec!["check", "no-such-server"], "no-such-server is not in the catalogue"),
        (vec!["list", "--all", "--ready"], "cannot be used with"),
    ] {
        let said = shell.fails(2, &arguments);
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}

#[test]
fn a_path_that_cannot_be_written_is_told_before_anything_is_started() {
    let shell = Shell::new();
    for export in ["--export-json", "--export-markdown", "--export-csv", "--export-html"] {
        let said = shell.fails(1, &["run", "go/net-http", export, "/nowhere/at/all"]);
        assert!(said.contains("/nowhere/at/all") && !said.contains("Measuring"), "{said}");
    }
    let said = shell.fails(1, &["run", "go/net-http", "--store", "/proc/no/store.db"]);
    assert!(said.contains("--store") && said.contains("--no-store"), "{said}");
}

#[test]
fn a_server_that_nobody_runs_is_a_failed_server() {
    let said = Shell::new().fails(3, &["load", "http://127.0.0.1:9/"]);
    assert!(said.contains("127.0.0.1:9"), "{said}");
}

#[test]
fn nothing_stored_yet_says_what_stores_something() {
    let shell = Shell::new();
    for command in ["report", "history"] {
        let said = shell.fails(1, &[command]);
        assert!(said.contains("hotlap run"), "{said}");
    }
}

#[test]
fn a_closed_pipe_is_an_end_and_no_error() {
    let shell = Shell::new();
    let mut list = shell.command(&["list"]);
    let mut list = list.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(list.stdout.take());
    let output = list.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("panicked") && !said.contains("error"), "{said}");
}

#[test]
fn the_catalogue_is_listed_within_80_columns_without_colours() {
    let shell = Shell::new();
    let output = shell.command(&["list"]).env("COLUMNS", "80").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("go/net-http") && text.contains("ready"), "{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    assert!(!text.contains('\x1b'));
}

#[test]
fn help_is_a_command_too() {
    let shell = Shell::new();
    assert!(shell.says(&["help"]).contains("Commands:"));
    assert!(shell.says(&["help", "run"]).contains("--fail-if"));
    assert_eq!(shell.says(&["help", "run"]), shell.says(&["run", "--help"]));
    assert_eq!(shell.says(&["list", "--all", "-q"]), shell.says(&["list", "-q"]));
}

/// Regression: `run -h` listed --fail-if, --save-baseline and --no-store under Request.
#[test]
fn the_help_has_each_option_under_its_heading() {
    let help = Shell::new().says(&["run", "--help"]);
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

/// Every run of a suite whose load offers a rate ended with exit code 4.
#[test]
fn a_suite_whose_load_offers_a_rate_is_measured_at_it() {
    let shell = Shell::new();
    let stub = format!("{} __ceiling", env!("CARGO_BIN_EXE_hotlap"));
    let text = format!(
        "servers = [{{ run = '{stub}', name = 'a' }}, {{ run = '{stub}', name = 'b' }}]\n[[load]]\n\
         connections = 2\nrate = 200\n"
    );
    std::fs::write(shell.folder.path().join("mine.toml"), text).unwrap();
    let run =
        ["run", "--suite", "./mine.toml", "--restarts", "1", "--rounds", "2", "--slice", "48ms"];
    let rest = ["--no-pin", "--no-store", "--no-ceiling", "--export-json", "run.json"];
    let output = shell.run(&[&run[..], &rest[..]].concat());
    let said = [output.stdout, output.stderr].map(|s| String::from_utf8(s).unwrap()).concat();
    let report = std::fs::read_to_string(shell.folder.path().join("run.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let laps = report["laps"].as_array().unwrap();
    // Two servers twice in each of two rounds, and the control in the first.
    assert_eq!(laps.len(), (3 + 2) * 2, "{said}");
    assert!(laps.iter().all(|lap| lap["rate"] == 200.0), "{said}");
    assert_eq!(report["run"]["loads"][0]["request"], "GET /");
    // On a machine that is busy with something else, laps may be late and then do not count.
    let own = |lap: &&serde_json::Value| lap["server"] == "a" && lap["counts"] == true;
    if let Some(lap) = laps.iter().find(own) {
        assert!(said.contains("open loop at 200 req/s"), "{said}");
        assert!(lap["requests_per_s"].as_f64() > Some(0.0), "{said}");
        let rows = report["tables"][0]["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == "a").unwrap();
        assert!(row["requests_per_s"]["value"].as_f64() > Some(0.0), "{said}");
        assert!(row["service"]["rate"] == 200.0, "{said}");
    }
    let code = if laps.iter().all(|lap| lap["counts"] == true) { 0 } else { 4 };
    assert!([Some(0), Some(code)].contains(&output.status.code()), "{said}");
}

/// It was said after each restart.
#[test]
fn a_server_that_does_not_stop_when_asked_is_named_once_a_run() {
    let shell = Shell::new();
    let stub = format!("{} __ceiling", env!("CARGO_BIN_EXE_hotlap"));
    let deaf = format!("sh -c \"trap '' TERM; exec {stub}\"");
    let run = [
        "run",
        &stub,
        &deaf,
        "--name",
        "stops",
        "--name",
        "deaf",
        "--restarts",
        "2",
        "--rounds",
        "1",
    ];
    let rest = ["--slice", "12ms", "-c", "2", "--no-pin", "--no-store", "--no-ceiling"];
    let output = shell.run(&[&run[..], &rest[..]].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    // Exit code 4 says that a busy machine spoiled some laps.
    assert!([Some(0), Some(4)].contains(&output.status.code()), "{said}");
    let told = "deaf: did not stop on SIGTERM and was killed\n";
    assert_eq!(said.matches(told).count(), 1, "{said}");
}

#[test]
fn ids_alone_are_listed_for_scripts() {
    assert_eq!(Shell::new().says(&["list", "-q"]), "go/net-http\nnode/http\n");
}

#[test]
fn a_manifest_with_an_unknown_key_is_named_with_file_and_line() {
    let shell = Shell::new();
    let file = shell.folder.path().join("servers/go/net-http/server.toml");
    std::fs::write(&file, MANIFEST.replace("[run]", "[run]\ncolour = 1")).unwrap();
    let said = shell.fails(2, &["list"]);
    assert!(said.contains("server.toml:") && said.contains("colour"), "{said}");
}

/// Regression: `hotlap list` and `--dry-run` executed the commands of any folder's `servers`.
#[test]
fn the_servers_of_a_folder_that_is_no_checkout_are_not_executed() {
    let shell = Shell::new();
    let probe = format!("[\"touch\", \"{}/probed\"]", shell.folder.path().display());
    let manifest = shell.folder.path().join("servers/go/net-http/server.toml");
    std::fs::write(&manifest, MANIFEST.replace("[\"true\"]", &probe)).unwrap();
    for arguments in [&["list", "go/net-http"][..], &["run", "go/net-http", "--dry-run"]] {
        shell.command(arguments).env_remove("HOTLAP_SERVERS").output().unwrap();
        assert!(!shell.folder.path().join("probed").exists(), "{arguments:?}");
    }
    shell.run(&["list", "go/net-http"]);
    assert!(shell.folder.path().join("probed").exists(), "HOTLAP_SERVERS is an explicit choice");
}

#[test]
fn every_shell_has_its_completions() {
    let shell = Shell::new();
    for name in ["bash", "zsh", "fish"] {
        assert!(shell.says(&["completions", name]).contains("hotlap"));
    }
}

#[test]
fn the_exit_codes_are_in_the_help() {
    let help = Shell::new().says(&["--help"]);
    for (exit, meaning) in hotlap::exit::Exit::ALL {
        assert!(help.contains(&format!("{:>5}  {meaning}", exit as u8)), "{meaning}");
    }
    assert!(!help.contains("__supervisor"));
}

#[test]
fn the_load_generator_and_the_ceiling_meet() {
    let shell = Shell::new();
    let port = unused_address().port();
    let mut ceiling = shell.command(&["__ceiling"]);
    let mut ceiling = ceiling.env("PORT", port.to_string()).env("CPUS", "1").spawn().unwrap();
    let url = format!("http://127.0.0.1:{port}/");
    wait_for(port);
    let wrk = shell.run(&["load", "--format", "wrk", "-c", "4", "-n", "2000", &url]);
    let json = shell.run(&["load", "--format", "json", "-c", "4", "-n", "2000", &url]);
    let log = shell.run(&["load", "--format", "hlog", "-c", "4", "-n", "200", "-R", "9k", &url]);
    let lost = shell.run(&["load", "--no-check", "-c", "4", "-n", "100", &format!("{url}nowhere")]);
    let _ = ceiling.kill();
    let _ = ceiling.wait();
    let text = String::from_utf8(wrk.stdout).unwrap();
    assert!(text.contains("Requests/sec:") && text.contains("Latency"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["figures"]["answers"], 2000);
    assert_eq!(json["figures"]["late"], false);
    // Response times untagged, service times beside them.
    let log = String::from_utf8(log.stdout).unwrap();
    let parts: Vec<&str> = log.lines().filter(|l| !l.starts_with('#')).collect();
    assert!(log.contains("#[StartTime: ") && parts.len() == 2, "{log}");
    assert!(parts[0].starts_with("0.000,") && parts[1].starts_with("Tag=service,0.000,"), "{log}");
    assert_eq!(lost.status.code(), Some(3), "wrong answers must be told by the exit code");
}

fn wait_for(port: u16) {
    let began = std::time::Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed().as_secs() < 120, "nobody listens");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn defaults_of_ones_own_are_read_unless_they_are_not_wanted() {
    let shell = Shell::new();
    let config = shell.folder.path().join("mine.toml");
    let history = |arguments: &[&str]| {
        let output = shell.command(arguments).env("HOTLAP_CONFIG", &config).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert!(history(&["history"]).1.contains("cannot read"), "a file that is named must be there");
    std::fs::write(&config, "store = 'there.db'\n").unwrap();
    let (code, said) = history(&["history"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("there.db"), "relative to the file's folder: {said}");
    assert!(!history(&["history", "--no-config"]).1.contains("there.db"));
    assert!(history(&["history", "--store", "other.db"]).1.contains("other.db"));
    std::fs::write(&config, "color = 'never'\nbudgte = '20s'\n").unwrap();
    let (code, said) = history(&["history"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("mine.toml:2: unknown field `budgte`"), "{said}");
}

#[cfg(unix)]
#[test]
fn a_list_that_is_ended_calls_nothing_unfit_that_it_did_not_ask() {
    use rustix::process::{Pid, Signal, kill_process};
    let shell = Shell::new();
    let asked = shell.folder.path().join("asked");
    let probe = format!("probe = [\"sh\", \"-c\", \"touch '{}'; sleep 60\"]", asked.display());
    for id in ["go/net-http", "node/http"] {
        let manifest = shell.folder.path().join("servers").join(id).join("server.toml");
        let lines = MANIFEST.lines().map(|l| if l.starts_with("probe") { &*probe } else { l });
        std::fs::write(manifest, lines.collect::<Vec<_>>().join("\n")).unwrap();
    }
    let mut command = shell.command(&["list"]);
    let list = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !asked.exists() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    kill_process(Pid::from_child(&list), Signal::INT).unwrap();
    let output = list.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
}

/// `--dry-run` says what a run would do, and does none of it.
#[test]
fn a_dry_run_builds_starts_and_stores_nothing() {
    let shell = Shell::new();
    let there = |name: &str| shell.folder.path().join(name).exists();
    let manifest = shell.folder.path().join("servers/go/net-http/server.toml");
    let build =
        format!("build   = [[\"touch\", '{}']]", shell.folder.path().join("built").display());
    std::fs::write(&manifest, MANIFEST.replace("build   = []", &build)).unwrap();
    let servers = ["run", "go/net-http", "touch started", "--reference", "touch started"];
    let rest = ["--restarts", "3", "--rounds", "2", "--seed", "7", "-c", "8", "--dry-run"];
    let said = shell.says(&[&servers[..], &rest[..], &["--export-json", "out.json"]].concat());
    for words in [
        "go/net-http: built if necessary: touch ",
        "touch started: reference; started with: touch started",
        "touch started (again): A/A control",
        "ceiling: hotlap's own minimal server",
        "GET / 8 connections, keep-alive",
        "3 restarts of 2 rounds, in random order (seed 7)",
        // Four servers: two further starts of 4 s, and six rounds of 3 s.
        "about 26 s of measuring",
        "JSON: out.json",
    ] {
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(words), "{words}: {said}");
    }
    for name in ["built", "started", "out.json", "data", "cache/builds", "cache/logs"] {
        assert!(!there(name), "{name}: {said}");
    }
}

#[test]
fn a_dry_run_ends_with_the_error_of_the_run() {
    let shell = Shell::new();
    let url = "http://127.0.0.1:9/";
    std::fs::write(shell.folder.path().join("mine.toml"), format!("servers = ['{url}']")).unwrap();
    for (code, arguments, word) in [
        (2, vec!["no-such-server"], "is not in the catalogue"),
        (2, vec!["--suite", "./no-such.toml"], "no-such.toml"),
        (2, vec![url, "--fail-if", "cost +3%"], "needs at least two servers"),
        (2, vec![url, "--reference", "other"], "--reference names other"),
        (1, vec![url, "--body", "@no-such-body"], "cannot read no-such-body"),
        (1, vec![url, "--export-json", "/nowhere/at/all"], "/nowhere/at/all"),
        (1, vec!["--suite", "./mine.toml", "--resume"], "no store at"),
    ] {
        let said = shell.fails(code, &[&["run", "--dry-run"][..], &arguments].concat());
        assert!(said.contains(word), "{arguments:?}: {said}");
        assert!(!shell.folder.path().join("data").exists(), "{arguments:?}");
    }
}

/// `leave_out_missing`: one whose toolchain is not here is noted and is no failure; without it, it
/// is shown as failed.
#[test]
fn a_suite_may_leave_out_servers_whose_toolchain_is_missing() {
    let shell = Shell::new();
    let manifest = shell.folder.path().join("servers/go/net-http/server.toml");
    std::fs::write(&manifest, MANIFEST.replace("[\"true\"]", "[\"no-such-program\"]")).unwrap();
    let ceiling = format!("{} __ceiling", env!("CARGO_BIN_EXE_hotlap"));
    let suite = |leave_out: bool| {
        let text = format!(
            "leave_out_missing = {leave_out}\nservers = ['go/net-http', {{ run = '{ceiling}', name \
             = 'mine' }}]\n[[load]]\nconnections = 2\n"
        );
        std::fs::write(shell.folder.path().join("mine.toml"), text).unwrap();
        let run = ["run", "--suite", "./mine.toml", "--restarts", "1", "--rounds", "1"];
        let rest = ["--slice", "48ms", "--no-pin", "--no-store", "--no-ceiling"];
        shell.run(&[&run[..], &rest[..]].concat())
    };
    let output = suite(true);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("go/net-http is left out: no-such-program: "), "{said}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("mine") && !table.contains("go/net-http"), "{table}");
    let output = suite(false);
    assert_eq!(output.status.code(), Some(3));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("go/net-http failed (toolchain)"), "{table}");
}

/// A server that does not speak the load's protocol is neither built nor started, and the others are
/// measured.
#[test]
fn a_run_leaves_out_servers_that_do_not_speak_its_protocol() {
    let shell = Shell::new();
    let manifest = shell.folder.path().join("servers/go/net-http/server.toml");
    let said = shell.says(&["run", "go/net-http", "true x", "--http2", "--dry-run"]);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let why = "go/net-http: cannot take part: it does not speak HTTP/2 without TLS; leave out \
               --http2, or name";
    assert!(said.contains(why) && !said.contains("ceiling"), "{said}");
    let said = shell.says(&["run", "go/net-http", "true x", "--https", "--dry-run"]);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let why = "go/net-http: cannot take part: it does not speak HTTPS; leave out --https, or name";
    assert!(said.contains(why) && !said.contains("ceiling"), "{said}");
    let output = shell.run(&["run", "http://127.0.0.1:1/", "--https"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stderr).trim(),
        "error: http://127.0.0.1:1/ is not https, but the run is over TLS: write https://"
    );

    let http2 = MANIFEST.replace("[toolchain]", "protocols = [\"h2c\"]\n[toolchain]");
    let build = format!("build   = [[\"touch\", '{}/built']]", shell.folder.path().display());
    std::fs::write(&manifest, http2.replace("build   = []", &build)).unwrap();
    let ceiling = format!("{} __ceiling", env!("CARGO_BIN_EXE_hotlap"));
    let servers = ["run", "go/net-http", &ceiling, "--name", "other", "--name", "mine"];
    let load = ["-c", "2", "--restarts", "1", "--rounds", "1", "--slice", "48ms", "--no-pin"];
    let output = shell.run(&[&servers[..], &load[..], &["--no-store", "--no-ceiling"]].concat());
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{table}");
    for words in ["other failed (protocol)", "it does not speak HTTP/1.1", "add --http2", "mine"] {
        assert!(table.contains(words), "{table}");
    }
    assert!(!shell.folder.path().join("built").exists());
}
