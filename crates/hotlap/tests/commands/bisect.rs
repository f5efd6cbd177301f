//! Tests `hotlap bisect` on a repository with a known history.

use std::path::Path;
use std::process::Command;

use hotlap_testkit::{Scene, program};

fn git(folder: &Path, words: &[&str]) -> String {
    let identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"];
    let output = Command::new("git").current_dir(folder).args(identity).args(words).output();
    let output = output.expect("git");
    assert!(output.status.success(), "git {words:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Creates a repository. Each commit has a server with the given cost per request, in nanoseconds,
/// and a file `build.sh` with the given command. Returns the scene and the hashes.
fn history(commits: &[(u32, &str)]) -> (Scene, Vec<String>) {
    let scene = Scene::new();
    let folder = scene.folder().to_owned();
    git(&folder, &["init", "--quiet"]);
    let mut hashes = Vec::new();
    for (number, (cost, build)) in commits.iter().enumerate() {
        scene.write("app.sh", format!("exec {} __known costing:{cost}\n", program()));
        scene.write("build.sh", format!("# {number}\n{build}\n"));
        git(&folder, &["add", "app.sh", "build.sh"]);
        git(&folder, &["commit", "--quiet", "--message", &format!("change {number}")]);
        hashes.push(git(&folder, &["rev-parse", "HEAD"]));
    }
    (scene, hashes)
}

const OPTIONS: &str = "--options '--restarts 3 --rounds 1 --slice 12ms --no-pin --no-store'";

/// The figure changes at the commit after one that does not build. The user's checkout stays as it
/// was, and no worktree is left.
#[test]
fn a_commit_that_does_not_build_is_skipped_but_not_ruled_out() {
    let ok = "true";
    let (scene, hashes) = history(&[(20_000, ok), (20_000, "exit 1"), (40_000, ok), (40_000, ok)]);
    scene.write("app.sh", "work in progress");
    let bisect = format!("bisect --good {} --build 'sh build.sh' --run 'sh app.sh'", hashes[0]);
    let said = scene.hotlap(&format!("{bisect} {OPTIONS}")).said().succeeds();
    let [first, last] = [1, 2].map(|n| &hashes[n][..10]);
    said.has(&format!("{first} cannot be measured"))
        .has(&format!("The change is in one of the 2 commits {first} to {last}"));
    assert_eq!(scene.read("app.sh"), "work in progress");
    assert_eq!(git(scene.folder(), &["rev-parse", "HEAD"]), hashes[3]);
    assert_eq!(git(scene.folder(), &["worktree", "list"]).lines().count(), 1);
    scene.is_clean();
}

/// Regression: a good commit on a branch that was merged later was compared with commits from
/// before the merge, which do not contain it.
#[test]
fn only_commits_that_contain_the_good_one_are_searched() {
    let (scene, hashes) = history(&[(20_000, "true"), (20_000, "true"), (20_000, "true")]);
    let run = |words: &[&str]| git(scene.folder(), words);
    run(&["checkout", "--quiet", "-b", "side", &hashes[0]]);
    run(&["commit", "--quiet", "--allow-empty", "--message", "on the side"]);
    run(&["checkout", "--quiet", "-b", "main-line", &hashes[2]]);
    run(&["merge", "--quiet", "--no-ff", "--message", "merge", "side"]);
    run(&["commit", "--quiet", "--allow-empty", "--message", "later"]);
    let said = scene.hotlap("bisect --good side --build false --run 'sh app.sh'").said();
    said.fails(3).has("Searching the 2 commits after");
}

#[test]
fn what_cannot_be_bisected_is_an_error_with_a_remedy() {
    let (scene, hashes) = history(&[(20_000, "true"), (20_000, "true"), (20_000, "false")]);
    let said = |words: &str| scene.hotlap(&format!("bisect --run 'sh app.sh' {words}")).said();
    said("--good v9").fails(2).has("v9 is not a commit or tag of this repository");
    said(&format!("--good HEAD --bad {}", hashes[0])).fails(2).has("is not an ancestor of");
    said(&format!("--good {} no-such-file", hashes[0])).fails(2).has("no commit between");
    said(&format!("--good {} --build 'sh build.sh'", hashes[0])).fails(3).has("does not build");
    let equal = format!("--good {} {OPTIONS}", hashes[0]);
    said(&equal).fails(4).has("No difference was found between the good and the bad commit");
}
