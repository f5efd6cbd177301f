//! Tests the GitHub actions. Their shell steps run as on GitHub, with a stand-in for hotlap that
//! records its arguments, and with a stand-in for GitHub's API.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hotlap_testkit::Scene;
use serde_json::{Value, json};

/// A step of an action, with its name, its id, its environment and its script.
#[derive(Debug, Default)]
struct Step {
    name: String,
    id: String,
    env: Vec<(String, String)>,
    script: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap()
}

/// Returns the steps of an action. The layout of the file is fixed. Steps are indented by 4, their
/// keys by 6, and the variables and the lines of a script by 8. Steps that use other actions have
/// no script.
fn steps(action: &str) -> Vec<Step> {
    let text = read(action);
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
                match (key, outer.split_once(": ")) {
                    ("id", Some((_, id))) => id.clone_into(&mut step.id),
                    ("run", Some((_, "|"))) => {}
                    ("run", line) => panic!("{}: {line:?} is not a block", step.name),
                    _ => {}
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
    api: String,
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
if [ "$1" = --version ]; then exit; fi
printf '%s\n' "$@" > "$RUNNER_TEMP/hotlap.args"
if [ "$1" = selftest ]; then
  mkdir -p "$XDG_DATA_HOME/hotlap"
  echo '{"trials":[]}' > "$XDG_DATA_HOME/hotlap/certificate-0123456789abcdef.json"
fi
while [ $# -gt 0 ]; do
  if [ "$1" = --export-markdown ] && [ "$REPORT" = yes ]; then echo "# the report" > "$2"; fi
  if [ "$1" = --export-json ] && [ "$REPORT" = yes ]; then echo "$RUN" > "$2"; fi
  shift
done
exit "$CODE"
"##;

/// What hotlap exports about a run.
const RUN: &str = r#"{"run": {"hotlap": "0.1.0"}, "host": {"machine": {"cpu": "A fast one"}},
  "noise": {"cost": {"band": 0.0123}}, "tables": [{"rows": [{"name": "head", "against":
  {"cost": {"ratio": {"value": 1.05, "low": 1.04, "high": 1.06}}}}]}]}"#;

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
            ("duration", "2m"),
            ("options", "--requests-file\nrequests.toml\n"),
            ("trials", "20"),
            ("token", "secret"),
            ("head-sha", "c0ffee"),
        ];
        let mut inputs = BTreeMap::from(inputs.map(|(name, value)| (name, value.to_owned())));
        inputs.insert("folder", scene.file("hotlap-gate"));
        // Nothing listens on port 9.
        Self { scene, inputs, has_cargo: true, api: "http://127.0.0.1:9".to_owned() }
    }

    /// Runs a step as GitHub does (`shell: bash`), with this exit code of hotlap.
    fn run(&self, folder: &Path, step: &Step, (code, report): (i32, &str)) -> Output {
        let (script, own) = (self.scene.write("step.sh", &step.script), self.scene.file("path"));
        let path = if self.has_cargo { format!("{own}:/usr/bin:/bin") } else { own };
        let mut bash = Command::new("/bin/bash");
        bash.args(["--noprofile", "--norc", "-eo", "pipefail"]).arg(script).env_clear();
        bash.current_dir(self.scene.folder()).env("PATH", path);
        bash.env("CODE", code.to_string()).env("REPORT", report).env("RUN", RUN);
        bash.env("RUNNER_TEMP", self.scene.folder());
        bash.env("XDG_DATA_HOME", self.scene.path("data"));
        bash.env("GITHUB_OUTPUT", self.scene.path("output"));
        bash.env("GITHUB_STEP_SUMMARY", self.scene.path("summary"));
        bash.env("GITHUB_REPOSITORY", "some/app").env("GITHUB_API_URL", &self.api);
        for (name, value) in &step.env {
            bash.env(name, self.value(folder, value));
        }
        bash.output().unwrap()
    }

    /// Returns what GitHub puts in place of an expression.
    fn value(&self, folder: &Path, expression: &str) -> String {
        let name = expression.trim_start_matches("${{ ").trim_end_matches(" }}");
        match name.strip_prefix("inputs.") {
            Some(input) => self.inputs[input].clone(),
            None if name == "github.action_path" => folder.to_string_lossy().into_owned(),
            None if name == "github.event.pull_request.number" => "7".to_owned(),
            None => panic!("no value for {expression}"),
        }
    }

    /// Runs all steps of an action until one fails. Returns the last exit code.
    fn all(&self, action: &str, hotlap: (i32, &str)) -> Option<i32> {
        let folder = root().join(action).parent().unwrap().to_owned();
        let mut code = None;
        for step in steps(action).iter().filter(|step| !step.script.is_empty()) {
            let output = self.run(&folder, step, hotlap);
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
    assert_eq!(runner.all("action.yml", (0, "yes")), Some(0));
    let installed = runner.scene.read("cargo.args");
    assert!(installed.contains("--path crates/hotlap --root "), "{installed}");
    let asked = runner.scene.read("hotlap.args");
    let asked: Vec<&str> = asked.lines().collect();
    let file = |name: &str| runner.scene.file(&format!("hotlap-gate/{name}"));
    let (report, junit, run) = (file("report.md"), file("junit.xml"), file("run.json"));
    let expected = [
        &["run", "--name", "base", "--name", "head"][..],
        &["base/server --port $PORT", "head/server --port $PORT", "--reference", "base"],
        &["--path", "/health", "--duration", "2m", "--stop-early"],
        &["--fail-if", "cost +3%"],
        &[
            "--fail-if",
            "memory +10%",
            "--requests-file",
            "requests.toml",
            "--no-ceiling",
            "--export-markdown",
            &report,
            "--export-junit",
            &junit,
        ],
        &["--export-json", &run],
    ];
    assert_eq!(asked, expected.concat());
    let output = runner.scene.read("output");
    assert!(output.ends_with(&format!("folder={}\n", runner.inputs["folder"])), "{output}");
    assert_eq!(runner.scene.read("hotlap-gate/exit"), "0\n");
    assert_eq!(runner.scene.read("hotlap-gate/number"), "7\n");
    assert_eq!(runner.scene.read("summary"), "# the report\n");
}

/// Regression: a missing report turned exit code 2 into 1.
#[test]
fn the_action_ends_with_the_exit_code_of_hotlap() {
    for report in ["yes", "no"] {
        for code in [1, 2, 3, 4, 5] {
            let runner = Runner::new();
            assert_eq!(runner.all("action.yml", (code, report)), Some(code), "a report: {report}");
            assert_eq!(runner.scene.read("hotlap-gate/exit"), format!("{code}\n"));
            assert_eq!(runner.scene.read("summary").is_empty(), report == "no");
        }
    }
}

#[test]
fn an_action_without_rules_passes_none() {
    let mut runner = Runner::new();
    runner.inputs.insert("fail-if", String::new());
    assert_eq!(runner.all("action.yml", (0, "yes")), Some(0));
    assert!(!runner.scene.read("hotlap.args").contains("--fail-if"));
}

#[test]
fn an_action_without_cargo_says_what_to_do() {
    let runner = Runner { has_cargo: false, ..Runner::new() };
    std::fs::remove_file(runner.scene.path("path/cargo")).unwrap();
    for tool in ["bash", "dirname"] {
        let found = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(tool));
        let found = found.iter().find(|path| path.exists()).unwrap();
        std::os::unix::fs::symlink(found, runner.scene.path(&format!("path/{tool}"))).unwrap();
    }
    let steps = steps("action.yml");
    let install = steps.iter().find(|step| step.name == "Install hotlap").unwrap();
    let output = runner.run(&root(), install, (0, "yes"));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("::error::") && said.contains("install Rust"), "{said}");
}

/// A title, a branch name or an input in a script would be executed by the shell.
#[test]
fn no_script_contains_an_expression() {
    for action in ["action.yml", "gate/publish/action.yml", "gate/certify/action.yml"] {
        let steps = steps(action);
        assert!(steps.iter().any(|step| !step.script.is_empty()), "{action}");
        for Step { name, script, .. } in steps {
            assert!(!script.contains("${{"), "{action}, {name}: {script}");
        }
    }
    for workflow in ["pull-request", "pull-request-publish", "nightly"] {
        let text = read(&format!("docs/{workflow}.yml"));
        let of_script = text.lines().skip_while(|line| !line.trim_start().starts_with("run:"));
        let mut of_script = of_script.take_while(|line| !line.trim_start().starts_with("- uses:"));
        assert!(!of_script.any(|line| line.contains("${{")), "{workflow}");
    }
}

/// What the stand-in for GitHub knows about the repository.
#[derive(Debug, Default)]
struct Repository {
    comments: Vec<Value>,
    /// The files of the branch. `None` if there is no branch.
    files: Option<BTreeMap<String, String>>,
    /// How many writes will be refused because another job was faster.
    conflicts: u32,
    /// The repository of the pull request, if it is a fork.
    of_fork: Option<&'static str>,
}

/// A stand-in for GitHub's API, with one repository.
struct Github {
    repository: Arc<Mutex<Repository>>,
    address: String,
}

impl Github {
    fn start(repository: Repository) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let repository = Arc::new(Mutex::new(repository));
        let own = Arc::clone(&repository);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(&mut stream.unwrap(), &mut own.lock().unwrap());
            }
        });
        Self { repository, address }
    }

    /// Publishes what a runner measured, with this exit code of hotlap.
    fn publish(&self, runner: &mut Runner, code: i32) -> Option<i32> {
        runner.api.clone_from(&self.address);
        assert_eq!(runner.all("action.yml", (code, "yes")), Some(code));
        runner.all("gate/publish/action.yml", (0, ""))
    }

    fn comments(&self) -> Vec<String> {
        let own = self.repository.lock().unwrap();
        own.comments.iter().map(|c| c["body"].as_str().unwrap().to_owned()).collect()
    }

    fn file(&self, name: &str) -> Option<String> {
        self.repository.lock().unwrap().files.as_ref()?.get(name).cloned()
    }
}

/// Responds to one request.
fn serve(stream: &mut TcpStream, repository: &mut Repository) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        let own = head.iter().find(|line| line.to_ascii_lowercase().starts_with(name));
        own.map(|line| line[name.len()..].trim().to_owned())
    };
    assert_eq!(header("authorization:").as_deref(), Some("Bearer secret"));
    let mut body = vec![0; header("content-length:").map_or(0, |n| n.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut words = head[0].split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let path = path.strip_prefix("/repos/some/app/").expect("the repository");
    let (status, value) = answer(repository, method, path, &body);
    let text = value.to_string();
    write!(stream, "HTTP/1.1 {status} X\r\nConnection: close\r\n").unwrap();
    write!(stream, "Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
}

fn answer(own: &mut Repository, method: &str, path: &str, body: &Value) -> (u32, Value) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let of_comment = path.strip_prefix("issues/comments/");
    match (method, path, path.strip_prefix("contents/")) {
        ("GET", "pulls/7", _) => {
            let repo = json!({ "full_name": own.of_fork.unwrap_or("some/app") });
            (200, json!({ "number": 7, "head": { "sha": "c0ffee", "repo": repo } }))
        }
        ("GET", "issues/7/comments", _) => {
            let page: usize = query.rsplit('=').next().unwrap().parse().unwrap();
            let page: Vec<_> = own.comments.iter().skip(100 * (page - 1)).take(100).collect();
            (200, json!(page))
        }
        ("POST", "issues/7/comments", _) => {
            let user = json!({ "login": "github-actions[bot]" });
            let id = own.comments.len();
            own.comments.push(json!({ "id": id, "user": user, "body": body["body"] }));
            (201, json!({}))
        }
        ("PATCH", ..) => {
            let id: usize = of_comment.unwrap().parse().unwrap();
            own.comments[id]["body"] = body["body"].clone();
            (200, json!({}))
        }
        ("GET", _, Some("")) if own.files.is_some() => {
            let names = own.files.iter().flatten().map(|(name, _)| json!({ "name": name }));
            (200, names.collect())
        }
        ("GET", _, Some(file)) => match own.files.as_ref().and_then(|files| files.get(file)) {
            Some(text) => {
                let content = BASE64_STANDARD.encode(text);
                let sha = text.len();
                (200, json!({ "content": content, "encoding": "base64", "sha": sha }))
            }
            None => (404, json!({ "message": "Not Found" })),
        },
        ("PUT", _, Some(file)) => {
            assert_eq!(body["branch"], "hotlap-ledger");
            let Some(files) = &mut own.files else { return (404, json!("no branch")) };
            let known = files.get(file).map_or(Value::Null, |text| json!(text.len()));
            if own.conflicts > 0 || body["sha"] != known {
                own.conflicts = own.conflicts.saturating_sub(1);
                return (409, json!("another job was faster"));
            }
            let text = BASE64_STANDARD.decode(body["content"].as_str().unwrap()).unwrap();
            files.insert(file.to_owned(), String::from_utf8(text).unwrap());
            (200, json!({}))
        }
        ("POST", "git/trees", _) => (201, json!({ "sha": "tree" })),
        ("POST", "git/commits", _) => {
            assert_eq!(body["parents"], json!([]), "the branch has no commit of the code");
            (201, json!({ "sha": "commit" }))
        }
        ("POST", "git/refs", _) => {
            assert_eq!(body["ref"], "refs/heads/hotlap-ledger");
            own.files = Some(BTreeMap::new());
            (201, json!({}))
        }
        _ => panic!("{method} {path}"),
    }
}

#[test]
fn a_pull_request_has_one_comment_and_a_line_in_the_ledger_for_each_run() {
    let github = Github::start(Repository::default());
    let mut runner = Runner::new();
    assert_eq!(github.publish(&mut runner, 5), Some(0));
    let [first] = &github.comments()[..] else { panic!("{:?}", github.comments()) };
    assert!(
        first.starts_with(
            "<!-- hotlap -->\nc0ffee, merged into its base: regression.\n\n# the report\n"
        ),
        "{first}"
    );
    assert!(first.contains("Earlier runs on A fast one: none."), "{first}");
    assert_eq!(github.publish(&mut runner, 0), Some(0));
    let [second] = &github.comments()[..] else { panic!("{:?}", github.comments()) };
    let earlier = "Earlier runs on A fast one: 0 passed, 1 regression, 0 undecided, 0 failed. Their \
                   noise floors are 1.2% to 1.2%.";
    assert!(second.contains(earlier), "{second}");
    let ledger = github.file("ledger.jsonl").unwrap();
    let lines: Vec<Value> = ledger.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let [one, two] = &lines[..] else { panic!("{ledger}") };
    assert_eq!((&one["verdict"], &two["verdict"]), (&json!("regression"), &json!("passed")));
    assert_eq!(two["cost"], json!([1.05, 1.04, 1.06]));
    assert_eq!((&two["commit"], &two["is_fork"]), (&json!("c0ffee"), &json!(false)));
    assert_eq!((&two["noise"], &two["cpu"]), (&json!(0.0123), &json!("A fast one")));
}

#[test]
fn figures_of_another_cpu_model_are_not_compared() {
    let other = json!({ "cpu": "A slow one", "verdict": "passed", "noise": 0.5, "is_fork": false });
    let files = BTreeMap::from([("ledger.jsonl".to_owned(), format!("{other}\n"))]);
    let github = Github::start(Repository { files: Some(files), ..Repository::default() });
    assert_eq!(github.publish(&mut Runner::new(), 0), Some(0));
    let said = &github.comments()[0];
    let left = "Earlier runs on A fast one: none. Runs on other CPU models are not compared: 1.";
    assert!(said.contains(left), "{said}");
}

/// All pull requests write to the ledger, and several may do so at the same time.
#[test]
fn a_line_is_written_again_if_another_job_was_faster() {
    let files = Some(BTreeMap::new());
    let repository = Repository { files, conflicts: 2, ..Repository::default() };
    let github = Github::start(repository);
    assert_eq!(github.publish(&mut Runner::new(), 0), Some(0));
    assert_eq!(github.file("ledger.jsonl").unwrap().lines().count(), 1);
}

/// A folder from a fork may name any pull request.
#[test]
fn a_commit_that_is_not_the_head_of_the_pull_request_publishes_nothing() {
    let github = Github::start(Repository::default());
    let mut runner = Runner::new();
    runner.inputs.insert("head-sha", "0ther".to_owned());
    assert_eq!(github.publish(&mut runner, 0), Some(0));
    assert_eq!((github.comments().len(), github.file("ledger.jsonl")), (0, None));
}

/// A fork may upload any figures, so its runs do not count as earlier runs for other pull requests.
#[test]
fn what_a_fork_measured_is_no_earlier_run() {
    let of_fork = Some("somebody/app");
    let github = Github::start(Repository { of_fork, ..Repository::default() });
    assert_eq!(github.publish(&mut Runner::new(), 0), Some(0));
    assert_eq!(github.publish(&mut Runner::new(), 0), Some(0));
    assert_eq!(github.file("ledger.jsonl").unwrap().lines().count(), 2);
    let said = &github.comments()[0];
    assert!(said.contains("Earlier runs on A fast one: none."), "{said}");
}

/// Regression: after a job that ran out of time, the comment of an earlier push stayed.
#[test]
fn a_run_that_did_not_end_has_failed() {
    let github = Github::start(Repository::default());
    let mut runner = Runner::new();
    runner.scene.write("hotlap-gate/number", "7\n");
    runner.scene.write("hotlap-gate/run.json", "{");
    runner.api.clone_from(&github.address);
    assert_eq!(runner.all("gate/publish/action.yml", (0, "")), Some(0));
    let said = &github.comments()[0];
    assert!(said.contains("failed.\n\nhotlap wrote no report."), "{said}");
}

/// A comment by someone else does not change, even if it starts like the gate's own.
#[test]
fn only_the_own_comment_is_replaced() {
    let comment = |id: usize, login: &str| json!({ "id": id, "user": { "login": login }, "body": "<!-- hotlap -->\nan old text" });
    let mut comments: Vec<Value> = (0..120).map(|id| comment(id, "somebody")).collect();
    comments.push(comment(120, "github-actions[bot]"));
    let github = Github::start(Repository { comments, ..Repository::default() });
    assert_eq!(github.publish(&mut Runner::new(), 0), Some(0));
    let said = github.comments();
    assert_eq!(said.len(), 121);
    assert!(said[120].contains("# the report"), "{}", said[120]);
    assert!(said[..120].iter().all(|body| body.ends_with("an old text")));
}

/// A fork's report is treated as text and mentions nobody. Its figures are numbers or nothing.
#[test]
fn what_a_fork_uploads_is_only_text() {
    let github = Github::start(Repository::default());
    let mut runner = Runner::new();
    assert_eq!(runner.all("action.yml", (0, "yes")), Some(0));
    let long = format!("@somebody &#64;somebody\n{}", "a line\n".repeat(20_000));
    runner.scene.write("hotlap-gate/report.md", long);
    let run = r#"{"host": {"machine": {"cpu": "x\n\u0007y @`id`"}}, "noise": {"cost": {"band": 1e300}},
      "tables": {"rows": 1}}"#;
    runner.scene.write("hotlap-gate/run.json", run);
    runner.api.clone_from(&github.address);
    assert_eq!(runner.all("gate/publish/action.yml", (0, "")), Some(0));
    let said = &github.comments()[0];
    assert!(
        said.contains("@\u{200b}somebody &\u{200b}#64;somebody") && said.len() < 65_536,
        "{}",
        said.len()
    );
    assert!(said.contains("a line\n\nThe report is cut off here. The artifact has the rest.\n"));
    let ledger: Value = serde_json::from_str(&github.file("ledger.jsonl").unwrap()).unwrap();
    assert_eq!((&ledger["cpu"], &ledger["noise"]), (&json!("xy id"), &Value::Null));
    assert_eq!(ledger["cost"], json!([null, null, null]));
}

#[test]
fn certificates_are_kept_at_night_and_restored_by_the_gate() {
    let github = Github::start(Repository::default());
    let mut runner = Runner::new();
    runner.api.clone_from(&github.address);
    assert_eq!(runner.all("gate/certify/action.yml", (0, "")), Some(0));
    let name = "certificate-0123456789abcdef.json";
    assert_eq!(github.file(name).as_deref(), Some("{\"trials\":[]}\n"));
    let asked = runner.scene.read("hotlap.args");
    assert_eq!(asked, "selftest\n--power\n--duration\n2m\n--trials\n20\n");
    let mut runner = Runner::new();
    runner.api.clone_from(&github.address);
    assert_eq!(runner.all("action.yml", (0, "yes")), Some(0));
    assert_eq!(runner.scene.read(&format!("data/hotlap/{name}")), "{\"trials\":[]}\n");
}
