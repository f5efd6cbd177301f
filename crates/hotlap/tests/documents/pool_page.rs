//! Tests docs/pool.md. hotlap must understand the page's commands, and the page must show what
//! hotlap prints. `UPDATE_DOCUMENTS=1 cargo test -p hotlap --test documents` updates the page.

use std::path::{Path, PathBuf};

use crate::scene::{hold, printed, three};
use clap::Parser;
use hotlap::cli::Cli;
use hotlap::exit::Exit;
use hotlap::model::{Apart, Run, Shard};
use hotlap::pool::apart::Condition;
use hotlap::pool::division::{NODES_PER_SERVER, SEED, divide};
use hotlap::pool::merge::{Measured, merged};
use hotlap_stats::student;

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pool.md")
}

fn text() -> String {
    std::fs::read_to_string(page()).unwrap()
}

#[test]
fn its_commands_are_understood() {
    let text = text();
    let commands: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("    hotlap ")).collect();
    assert!(commands.len() >= 4, "{commands:?}");
    for command in commands {
        let words = shell_words::split(command).unwrap();
        let parsed = Cli::try_parse_from(std::iter::once("hotlap".to_owned()).chain(words));
        assert!(parsed.is_ok(), "hotlap {command}: {}", parsed.unwrap_err());
    }
}

/// Returns a pool of four nodes. The nodes find nearly the same figures. On the last node, the
/// ceiling costs a third more.
fn pool() -> Run {
    let shard = |(number, (name, differs)): (usize, (&str, f64))| {
        let mut scene = three();
        scene.scripts[1].cost_ns *= 1.0 + differs;
        scene.scripts[1].rate /= 1.0 + differs;
        scene.scripts[2].cost_ns *= 1.0 - differs;
        scene.scripts[2].rate /= 1.0 - differs;
        scene.scripts[3].cost_ns *= 1.0 + differs / 3.0;
        scene.scripts[3].rate /= 1.0 + differs / 2.0;
        let apart = (number == 3).then(|| {
            scene.scripts[4].cost_ns *= 1.33;
            Apart::Ceiling { own: 9_500.0, pool: 7_100.0 }
        });
        let mut run = hold(&scene, None).run;
        run.host.node = Some(name.to_owned());
        let place = Shard {
            number,
            of: 5,
            nodes_per_server: NODES_PER_SERVER,
            seed: SEED,
            suite_hash: 0,
            options: Vec::new(),
            reference: "go/net-http".to_owned(),
            servers: Vec::new(),
        };
        let measured = Measured::new(place, run);
        let condition =
            Condition { noise: Some(0.006), ceiling_ns: Some(7_100.0), ..measured.condition };
        Measured { condition, apart, ..measured }
    };
    let nodes = [("n1", -0.012), ("n2", 0.004), ("n3", 0.01), ("n4", 0.02)];
    let shards: Vec<Measured> = nodes.into_iter().enumerate().map(shard).collect();
    merged(&shards, vec![4]).unwrap()
}

#[test]
fn its_example_is_what_a_merged_run_prints() {
    let printed = format!("```\n{}\n```\n", printed(&pool(), 100).trim_matches('\n'));
    let text = text();
    let (before, rest) = text.split_once("<!-- merged -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- /merged -->\n").unwrap();
    let expected = format!("{before}<!-- merged -->\n{printed}<!-- /merged -->\n{after}");
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        std::fs::write(page(), &expected).unwrap();
    }
    assert!(
        text == expected || self::text() == expected,
        "docs/pool.md is out of date:\n{printed}"
    );
}

#[test]
fn its_figures_are_those_of_the_code() {
    let text = text();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let width = |nodes: f64| student::quantile(0.05, nodes - 1.0) / nodes.sqrt();
    for nodes in [3.0, 4.0, 5.0, 8.0] {
        let figure = format!(
            "{:.2} with {}",
            width(nodes),
            ["three", "four", "five", "", "", "eight"][nodes as usize - 3]
        );
        assert!(words.contains(&figure), "{figure}");
    }
    assert!(words.contains(&format!("{NODES_PER_SERVER} by default")));
    assert!(words.contains(&format!("`--seed` ({SEED} by default)")));
    let names: Vec<String> = (0..90).map(|n| n.to_string()).collect();
    let groups = divide(&names, "0", 50, NODES_PER_SERVER, 1);
    assert_eq!(groups.len(), 10, "{groups:?}");
    assert!(groups.iter().all(|group| (9..=10).contains(&group.servers.len())));
    // The job must treat a pod's exit codes correctly. After 1, 4 and 130, the job tries again.
    let job = std::fs::read_to_string(page().with_file_name("pool-kubernetes.yaml")).unwrap();
    let rule = |action: &str, exit: Exit| {
        let codes = format!("containerName: hotlap, operator: In, values: [{}] }}", exit as u8);
        job.contains(&format!("- action: {action}\n        onExitCodes: {{ {codes}\n"))
    };
    assert!(rule("FailJob", Exit::Usage) && rule("FailIndex", Exit::ServerFailed));
    assert_eq!(job.matches("onExitCodes").count(), 2);
    // The table of exit codes must have all codes that a shard can return.
    for (exit, _) in Exit::ALL.iter().filter(|(exit, _)| *exit != Exit::Regression) {
        let code = *exit as u8;
        let is_row = |line: &str| {
            let cell = line.strip_prefix("| ").and_then(|rest| rest.split(" |").next());
            cell.is_some_and(|cell| cell.split(", ").any(|number| number == code.to_string()))
        };
        assert!(text.lines().any(is_row), "exit code {code}");
    }
}
