//! Text from servers, builds and other people never reaches a terminal raw. hotlap replaces every
//! character that a terminal would obey with a visible escape. This holds for every command and for
//! both streams.

use hotlap::store::Store;
use hotlap::text::{is_hidden, visible};
use hotlap_testbed::{HELLO, TestServer};
use hotlap_testkit::{Scene, ceiling, program};
use serde_json::Value;

/// A text that sets the title, clears the screen, colours text (as C1 too), reverses the order, and
/// rings the bell.
const EVIL: &str = "\x1b]0;owned\x07\x1b[2J\x1b[31m\u{9b}31m\u{202e}gnp.exe\x7f\x08";

/// A catalogue of three servers: one works, one does not start, and one cannot be built. All of
/// them print [`EVIL`] wherever a server can print something.
struct Bench(Scene);

impl Bench {
    fn new() -> Self {
        let bench = Self(Scene::new());
        let evil = format!("printf '%s\\n' '{EVIL}'");
        let sh = |script: &str| Value::from(vec!["sh", "-c", script]).to_string();
        let serves = Value::from(vec![program().as_str(), "__ceiling"]).to_string();
        let fails = sh(&format!("{evil}; {evil} >&2; exit 3"));
        for (name, build, command) in [
            ("works", sh("true"), serves.as_str()),
            ("ends", sh("true"), fails.as_str()),
            ("unbuilt", fails.clone(), serves.as_str()),
        ] {
            let about = Value::from(format!("A server {EVIL}")).to_string();
            let manifest = format!(
                "about = {about}\nurl = 'https://example.org'\nkind = 'hand-written'\n\
                 contracts = ['hello']\n[toolchain]\nprobe = ['true']\n\
                 install = {{ apt = [], brew = [] }}\nbuild = [{build}]\nversion = {}\n\
                 [run]\ncommand = {command}\n",
                sh(&evil)
            );
            bench.0.write(&format!("servers/sh/{name}/server.toml"), toml_strings(&manifest));
        }
        bench
    }

    /// Runs hotlap with and without colours, and checks all of its output. Returns the output of
    /// the last run.
    fn says(&self, words: &[&str]) -> String {
        let mut said = String::new();
        for color in ["always", "never"] {
            let hotlap = self.0.hotlap("").args(words).args(["--color", color]);
            let printed = hotlap.env("COLUMNS", "200").said();
            said = printed.out + &printed.err;
            assert!(!said.contains("panicked"), "{said}");
            harmless(&said, words);
        }
        said
    }
}

/// Escapes hidden characters that JSON leaves raw, because TOML does not allow all of them in a
/// string.
fn toml_strings(manifest: &str) -> String {
    let escape = |c: char| match c {
        '\n' => c.to_string(),
        c if is_hidden(c) => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    manifest.chars().map(escape).collect()
}

/// Asserts that a terminal obeys no characters except hotlap's own colours.
fn harmless(text: &str, whence: &[&str]) {
    let mut rest = text.to_owned();
    for own in ["0", "1", "2", "31", "32", "33", "1;31"] {
        // In the evil text, U+009B follows a colour that hotlap also uses. U+009B never follows a
        // colour of hotlap itself.
        assert!(!text.contains(&format!("\x1b[{own}m\u{9b}")), "{whence:?}: {text:?}");
        rest = rest.replace(&format!("\x1b[{own}m"), "");
    }
    let raw: String = rest.chars().filter(|c| is_hidden(*c) && *c != '\n').collect();
    assert_eq!(visible(&raw), "", "{whence:?} printed {text:?}");
}

const SHORT: &str =
    "--restarts 1 --rounds 1 --slice 12ms --duration 1s --no-ceiling -c4 --export-json page.json";

#[test]
fn no_command_lets_text_from_outside_reach_a_terminal_raw() {
    let bench = Bench::new();
    let shown = "\\x1b]0;owned\\x07\\x1b[2J";

    let said = bench.says(&["check"]);
    assert!(said.matches(shown).count() >= 3, "version, log and build output: {said}");
    harmless(&bench.says(&["check", "--json"]), &["check --json"]);
    let said = bench.says(&["check", "--build-only"]);
    assert!(said.contains(shown), "{said}");
    bench.says(&["list"]);
    bench.says(&["list", "--json"]);
    bench.says(&["setup"]);
    bench.says(&["setup", "--yes"]);

    let name = format!("mine {EVIL}");
    let fails = format!("sh -c 'printf \"%s\\n\" \"{EVIL}\"; exit 3'");
    let mut run = vec!["run", "sh/works", "sh/ends", "sh/unbuilt", &fails, "--name", &name];
    run.extend(SHORT.split(' '));
    run.extend([
        "--store",
        "hotlap.db",
        "--export-markdown",
        "page.md",
        "--export-csv",
        "page.csv",
    ]);
    run.extend(["--export-html", "page.html", "--export-junit", "page.xml"]);
    run.extend(["--export-github-benchmark", "page.gab", "--export-bencher", "page.bmf"]);
    let said = bench.says(&run);
    assert!(said.contains(shown) && said.contains("exited"), "{said}");
    let pages = bench.0.names("").into_iter().filter(|name| name.starts_with("page."));
    let pages: Vec<String> = pages.collect();
    assert_eq!(pages.len(), 7, "{pages:?}");
    pages.iter().for_each(|page| harmless(&bench.0.read(page).replace('\t', " "), &[page]));

    let stored = Store::open_existing(&bench.0.path("hotlap.db")).unwrap().run(2).unwrap();
    assert!(stored.servers[0].version.contains(EVIL), "the store keeps what it was told");
    for arguments in [
        &["report", "2"][..],
        &["report", "2", "--export-json", "-"],
        &["history"],
        &["history", "--json"],
        &["history", &stored.servers[0].name],
        &["history", EVIL],
        &["compare", "1", "2"],
        &["compare", "1", "2", "--json"],
        &["compare", "--baseline", EVIL],
        &["report", "--store", EVIL],
        &["run", EVIL],
        &["run", "--suite", EVIL],
        &["check", EVIL],
    ] {
        let mut arguments = arguments.to_vec();
        let knows_stores = ["report", "history", "compare"].contains(&arguments[0]);
        if knows_stores && !arguments.contains(&"--store") {
            arguments.extend(["--store", "hotlap.db"]);
        }
        bench.says(&arguments);
    }
}

#[test]
fn a_response_cannot_reach_a_terminal_raw() {
    let head = format!("HTTP/1.1 500 {EVIL}\r\nX-Evil: {EVIL}\r\n");
    let response = format!("{head}Content-Length: {}\r\n\r\n{EVIL}", EVIL.len());
    let url = TestServer::responding(response).url();
    let bench = Bench::new();
    for form in ["human", "wrk", "json", "csv", "hgrm", "hlog"] {
        let said = bench.says(&["load", "--no-check", "-n20", "-c1", "--format", form, &url]);
        assert!(said.contains("\\x1b]0;owned\\x07"), "{said}");
    }
    bench.says(&["load", "-n20", "-c1", &url]);
    let mut run = vec!["run", &url, "--no-store"];
    run.extend(SHORT.split(' '));
    bench.says(&run);
}

/// An agent's host chooses its own name and the text that it prints. As root, the test uses a host
/// with a bad name.
#[test]
fn another_host_cannot_reach_a_terminal_raw() {
    let shown = "\\x1b]0;owned\\x07";
    let bench = Bench::new();
    let url = TestServer::responding(HELLO).url();
    let (hotlap, server) = (program(), ceiling());
    let load = |on: &str| bench.says(&["load", "-n20", "-c1", "--generator-on", on, &url]);
    let run = |option: &str, on: &str| {
        let mut run = vec!["run", option, on, &server, "--no-store", "--details"];
        run.extend(SHORT.split(' '));
        run.extend(["--export-html", "page.html"]);
        bench.says(&run)
    };

    let no_agent = format!("sh -c 'printf \"%s\\n\" \"{EVIL}\"; echo \"{EVIL}\" >&2; exit 255'");
    for said in [load(&no_agent), run("--server-on", &no_agent), run("--generator-on", &no_agent)] {
        assert!(said.contains(&format!("The command printed \"{shown}")), "{said}");
    }

    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: giving a host a name needs root");
        return;
    }
    let script = "printf %s \"$0\" >/proc/sys/kernel/hostname; exec \"$@\"";
    let agent = format!("unshare --uts sh -c '{script}' '{EVIL}' {hotlap}");
    for said in [load(&agent), run("--server-on", &agent), run("--generator-on", &agent)] {
        assert!(said.contains("gnp.exe\\x7f\\x08"), "{said}");
    }
    for file in ["page.json", "page.html"] {
        harmless(&bench.0.read(file).replace('\t', " "), &[file]);
    }
}
