//! Documents state what the program does: commands that exist, and what is generated is up to date
//! (`UPDATE_DOCUMENTS=1 cargo test -p hotlap --test documents` writes it).

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use hotlap::cli::Cli;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

fn help(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_hotlap"))
        .args(arguments)
        .arg("--help")
        .env("COLUMNS", "80")
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The long options in a text.
fn options(text: &str) -> Vec<String> {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.split(|c: char| !word(c))
        .filter(|w| w.starts_with("--") && w.len() > 3)
        .map(ToOwned::to_owned)
        .collect()
}

#[test]
fn the_action_passes_options_that_there_are() {
    let action = read("action.yml");
    let (run, line) = (help(&["run"]), action.split("hotlap run").nth(1).unwrap());
    let line = line.split("|| code").next().unwrap();
    assert!(options(line).len() >= 5, "{line}");
    for option in options(line) {
        assert!(run.contains(&option), "hotlap run has no {option}");
    }
}

#[test]
fn the_example_workflow_gives_the_action_its_inputs() {
    let (action, example) = (read("action.yml"), read("docs/pull-request.yml"));
    let with = example.split("id: hotlap").nth(1).unwrap().split("- uses").next().unwrap();
    let key = |line: &str| Some(line.strip_prefix("          ")?.split_once(':')?.0.to_owned());
    let inputs: Vec<String> = with.lines().filter_map(key).filter(|k| !k.contains(' ')).collect();
    assert_eq!(inputs, ["base", "head", "path", "fail-if"]);
    for input in inputs {
        assert!(action.contains(&format!("\n  {input}:\n")), "action.yml has no input {input}");
    }
}

#[test]
fn the_man_page_is_up_to_date() {
    is_up_to_date("docs/hotlap.1", &man_page());
}

#[test]
fn the_man_page_has_every_command_and_option() {
    let page = read("docs/hotlap.1").replace("\\-", "-");
    let top = help(&[]);
    let commands = top.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let name = |line: &str| Some(line.strip_prefix("  ")?.split_whitespace().next()?.to_owned());
    let commands = commands.lines().filter(|l| !l.starts_with("   ")).filter_map(name);
    // `hotlap help COMMAND` is `hotlap COMMAND --help`, and has no help of its own.
    for command in commands.filter(|command| command != "help") {
        assert!(page.contains(&format!(".SH \"HOTLAP {}\"", command.to_uppercase())), "{command}");
        // Examples may show options of other programs.
        let help = help(&[&command]);
        for option in options(help.split("Examples:").next().unwrap()) {
            assert!(page.contains(&option), "{command}: no {option}");
        }
    }
}

/// Compares a generated file with the one of the repository, or writes that one.
fn is_up_to_date(name: &str, generated: &str) {
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        std::fs::write(root().join(name), generated).unwrap();
    }
    assert!(
        read(name) == generated,
        "{name} is out of date: UPDATE_DOCUMENTS=1 cargo test -p hotlap --test documents"
    );
}

/// One page: the sections of hotlap itself, then a section for each command.
fn man_page() -> String {
    let mut top = Cli::command();
    top.build();
    let top = in_full(top);
    let about = top.get_about().unwrap().clone();
    let mut page = Vec::new();
    let own = top.clone().about("hyperfine for HTTP servers").long_about(about);
    // Without a date. An empty one would be left out, and the next argument take its place.
    let man = Man::new(with_usage(own)).title("HOTLAP").date(" ").manual("User Commands");
    man.render_title(&mut page).unwrap();
    man.render_name_section(&mut page).unwrap();
    man.render_synopsis_section(&mut page).unwrap();
    man.render_description_section(&mut page).unwrap();
    man.render_options_section(&mut page).unwrap();
    let mut page = String::from_utf8(page).unwrap() + &blocks("SH", &top);
    for command in top.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        // The options of all commands are in the first section.
        let own = in_full(command.clone()).mut_args(|arg| {
            let is_common = arg.is_global_set() || arg.get_id() == "help";
            if is_common { arg.hide(true) } else { arg }
        });
        let man = Man::new(with_usage(own));
        let mut section = Vec::new();
        man.render_description_section(&mut section).unwrap();
        man.render_synopsis_section(&mut section).unwrap();
        man.render_options_section(&mut section).unwrap();
        let section = String::from_utf8(section).unwrap().replace(".SH DESCRIPTION\n", "");
        let heading = format!("HOTLAP {}", command.get_name().to_uppercase());
        page += &Roff::new().control("SH", [heading.as_str()]).to_roff();
        page += &section.replace(".SH ", ".SS ");
        page += &blocks("SS", command);
    }
    let mut files = Roff::new();
    files.control("SH", ["FILES"]);
    for (path, what) in [
        ("~/.local/share/hotlap/hotlap.db", "the stored runs (--store)"),
        ("~/.cache/hotlap", "builds and the unpacked catalogue (HOTLAP_CACHE)"),
        ("~/.config/hotlap/config.toml", "your defaults (HOTLAP_CONFIG, --no-config)"),
    ] {
        files.control("TP", []).text([roman(path)]).text([roman(what)]);
    }
    // Each part begins with these definitions.
    let preamble = page[..page.find(".TH").unwrap()].to_owned();
    preamble.clone() + &page.replace(&preamble, "") + &files.to_roff()
}

/// With the options that only `--help` shows, and not `-h`.
fn in_full(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| arg.hide_short_help(false))
}

/// The synopsis in short, as `--help` shows it.
fn with_usage(command: clap::Command) -> clap::Command {
    let usage = command.clone().render_usage().to_string();
    command.override_usage(usage.trim_start_matches("Usage: ").to_owned())
}

/// The text after the options, as it stands: examples and lists, each with its first line as the
/// heading.
fn blocks(level: &str, command: &clap::Command) -> String {
    let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::new();
    for block in text.split("\n\n").filter(|block| !block.is_empty()) {
        let (heading, lines) = block.split_once('\n').unwrap_or((block, ""));
        roff.control(level, [heading.trim_end_matches(':').to_uppercase().as_str()])
            .control("nf", []);
        for line in lines.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    roff.to_roff()
}
