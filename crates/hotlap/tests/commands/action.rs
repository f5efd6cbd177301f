//! Tests the GitHub action. Its shell steps run as on GitHub, with a stand-in for hotlap that
//! records its arguments.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use hotlap_testkit::Scene;

/// A step of `action.yml`, with its name, its environment and its script.
#[derive(Debug, Default)]
struct Step {
    name: String,
    env: Vec<(String, String)>,
    script: String,
}

/// Returns the steps of `action.yml`. The layout of the file is fixed. Steps are indented by 4,
/// their keys by 6, and the variables and the lines of a script by 8.
fn steps() -> Vec<Step> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../action.yml");
    let text = std::fs::read_to_string(path).unwrap();
    let mut steps: Vec<Step> = Vec::new();
    let mut key = "";
    for line in text.lines().skip_while(|line| *line != "  steps:") {
        if let Some(name) = line.strip_prefix("    - name: ") {
            steps.push(Step { name: name.to_owned(), ..Step::default() });
            continue;
        }
        let Some(step) = steps.last_mut() else { continue };
        match (line.strip_prefix("        "), line.strip_prefix("      ")) {
            (Some(inner), _) if key == "env" => {
                let (name, value) = inner.split_once(": ").unwrap();
                step.env.push((name.to_owned(), value.to_owned()));
            }
            (Some(inner), _) if key == "run" => step.script += &format!("{inner}\n"),
            (None, Some(outer)) if !outer.starts_with('#') => {
                key = outer.split(':').next().unwrap();
                let value = outer.split_once(": ").map_or("", |(_, value)| value);
                if key == "run" && value != "|" {
                    step.script = format!("{value}\n");
                }
            }
            _ => {}
        }
    }
    steps
}

/// A GitHub runner: a temporary folder, a `cargo` that installs a stand-in for hotlap, and an older
/// hotlap on PATH.
struct Runner {
    scene: Scene,
    inputs: BTreeMap<&'static str, String>,
    has_cargo: bool,
}

const CARGO: &str = r#"#!/bin/bash
echo "$@" > "$RUNNER_TEMP/cargo.args"
root="${@: -1}"
mkdir -p "$root/bin"
cp "$(dirname "$0")/stub" "$root/bin/hotlap"
"#;

const OLDER: &str = "#!/bin/bash\necho 'an older hotlap was run' >&2\nexit 99\n";

/// A stand-in for hotlap. It writes its arguments to a file, one per line, and writes the report if
/// `REPORT` is `yes`.
const STUB: &str = r##"#!/bin/bash
printf '%s\n' "$@" > "$RUNNER_TEMP/hotlap.args"
while [ $# -gt 0 ]; do
  if [ "$1" = --export-markdown ] && [ "$REPORT" = yes ]; then echo "# the report" > "$2"; fi
  shift
done
exit "$CODE"
"##;

impl Runner {
    fn new() -> Self {
        let scene = Scene::new();
        for (name, text) in [("cargo", CARGO), ("hotlap", OLDER), ("stub", STUB)] {
            scene.write_program(&format!("path/{name}"), text);
        }
        let inputs = [
            ("base", "base/server --port $PORT"),
            ("head", "head/server --port $PORT"),
            ("path", "/health"),
            ("fail-if", "cost +3%\nmemory +10%\n"),
            ("budget", "2m"),
        ];
        let inputs = inputs.map(|(name, value)| (name, value.to_owned()));
        Self { scene, inputs: inputs.into(), has_cargo: true }
    }

    /// Runs a step as GitHub does (`shell: bash`), with this exit code of hotlap.
    fn run(&self, step: &Step, (code, report): (i32, &str)) -> Output {
        let (script, own) = (self.scene.write("step.sh", &step.script), self.scene.file("path"));
        let path = if self.has_cargo { format!("{own}:/usr/bin:/bin") } else { own };
        let mut bash = Command::new("/bin/bash");
        bash.args(["--noprofile", "--norc", "-eo", "pipefail"]).arg(script).env_clear();
        bash.current_dir(self.scene.folder()).env("PATH", path);
        bash.env("CODE", code.to_string()).env("REPORT", report);
        bash.env("RUNNER_TEMP", self.scene.folder());
        bash.env("GITHUB_OUTPUT", self.scene.path("output"));
        bash.env("GITHUB_STEP_SUMMARY", self.scene.path("summary"));
        for (name, value) in &step.env {
            bash.env(name, self.value(value));
        }
        bash.output().unwrap()
    }

    /// Returns what GitHub puts in place of an expression.
    fn value(&self, expression: &str) -> String {
        let name = expression.trim_start_matches("${{ ").trim_end_matches(" }}");
        match name.strip_prefix("inputs.") {
            Some(input) => self.inputs[input].clone(),
            None if name == "github.action_path" => "/the/action".to_owned(),
            None => panic!("no value for {expression}"),
        }
    }

    /// Runs all steps until one fails. Returns the last exit code.
    fn all(&self, hotlap: (i32, &str)) -> Option<i32> {
        let mut code = None;
        for step in steps() {
            let output = self.run(&step, hotlap);
            code = output.status.code();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!said.contains("an older hotlap"), "{}: {said}", step.name);
            if code != Some(0) {
                break;
            }
        }
        code
    }
}

#[test]
fn the_action_runs_its_own_hotlap_with_what_it_is_given() {
    let runner = Runner::new();
    assert_eq!(runner.all((0, "yes")), Some(0));
    let installed = runner.scene.read("cargo.args");
    assert!(installed.contains("--path /the/action/crates/hotlap"), "{installed}");
    let asked = runner.scene.read("hotlap.args");
    let asked: Vec<&str> = asked.lines().collect();
    let report = runner.scene.file("hotlap.md");
    let junit = runner.scene.file("hotlap.xml");
    let expected = [
        &["run", "--name", "base", "--name", "head"][..],
        &["base/server --port $PORT", "head/server --port $PORT", "--reference", "base"],
        &["--path", "/health", "--duration", "2m", "--fail-if", "cost +3%"],
        &["--fail-if", "memory +10%", "--export-markdown", &report, "--export-junit", &junit],
    ];
    assert_eq!(asked, expected.concat());
    assert_eq!(runner.scene.read("output"), format!("report={report}\njunit={junit}\n"));
    assert_eq!(runner.scene.read("summary"), "# the report\n");
}

/// Regression: a missing report turned exit code 2 into 1.
#[test]
fn the_action_ends_with_the_exit_code_of_hotlap() {
    for report in ["yes", "no"] {
        for code in [1, 2, 3, 4, 5] {
            let runner = Runner::new();
            assert_eq!(runner.all((code, report)), Some(code), "a report: {report}");
            assert_eq!(runner.scene.read("summary").is_empty(), report == "no");
        }
    }
}

#[test]
fn an_action_without_rules_passes_none() {
    let mut runner = Runner::new();
    runner.inputs.insert("fail-if", String::new());
    assert_eq!(runner.all((0, "yes")), Some(0));
    assert!(!runner.scene.read("hotlap.args").contains("--fail-if"));
}

#[test]
fn an_action_without_cargo_says_what_to_do() {
    let runner = Runner { has_cargo: false, ..Runner::new() };
    std::fs::remove_file(runner.scene.path("path/cargo")).unwrap();
    let output = runner.run(&steps()[0], (0, "yes"));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("::error::") && said.contains("install Rust"), "{said}");
}
