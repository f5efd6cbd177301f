//! Documents that state a command state one that there is.

use std::path::{Path, PathBuf};
use std::process::Command;

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
fn the_man_page_knows_every_command_and_option() {
    let page = read("docs/hotlap.1").replace("\\-", "-");
    let top = help(&[]);
    let commands = top.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let name = |line: &str| Some(line.strip_prefix("  ")?.split_whitespace().next()?.to_owned());
    let commands = commands.lines().filter(|l| !l.starts_with("   ")).filter_map(name);
    // `hotlap help COMMAND` is `hotlap COMMAND --help`, and has no help of its own.
    for command in commands.filter(|command| command != "help") {
        assert!(
            page.contains(&format!(".SS hotlap {command}")),
            "no {command} in hotlap.1: packaging/man.py writes it"
        );
        // Examples may show options of other programs.
        let help = help(&[&command]);
        for option in options(help.split("Examples:").next().unwrap()) {
            assert!(
                page.contains(&option),
                "{command}: no {option} in hotlap.1: packaging/man.py writes it"
            );
        }
    }
}
