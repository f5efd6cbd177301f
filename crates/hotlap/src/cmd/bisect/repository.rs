//! A git repository: its commits, and the worktrees in which they are built. The user's checkout,
//! index and branches are never touched.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::exit::usage;

/// The number of digits of a hash that are shown.
const SHORT: usize = 10;

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The whole hash.
    pub hash: String,
    /// The first line of the message.
    pub subject: String,
}

impl Commit {
    /// Returns the first digits of the hash.
    pub fn short(&self) -> &str {
        self.hash.get(..SHORT).unwrap_or(&self.hash)
    }
}

/// The repository that contains the current folder.
#[derive(Debug)]
pub struct Repository {
    inside: PathBuf,
    /// The path of the repository, which tells its bisections from those of others.
    pub root: PathBuf,
}

impl Repository {
    /// Finds the repository of the current folder.
    ///
    /// # Errors
    /// There is no repository, or git is not installed.
    pub fn open() -> anyhow::Result<Self> {
        let root = git(&["rev-parse", "--show-toplevel"])
            .or_else(|why| usage(format!("{why}. Start hotlap in a git repository")))?;
        let inside = git(&["rev-parse", "--show-prefix"])?;
        Ok(Self { root: root.into(), inside: inside.into() })
    }

    /// Returns the good commit and all later ones up to the bad one, oldest first. Of a merge, only
    /// the branch into which it was merged is followed, so each commit has one parent.
    ///
    /// # Errors
    /// A commit does not exist, or the good one is not an ancestor of the bad one.
    pub fn commits(&self, good: &str, bad: &str, paths: &[String]) -> anyhow::Result<Vec<Commit>> {
        let hash = |name: &str| {
            let commit = format!("{name}^{{commit}}");
            git(&["rev-parse", "--verify", "--quiet", "--end-of-options", &commit])
                .or_else(|_| usage(format!("{name} is not a commit or tag of this repository")))
        };
        let (first, last) = (hash(good)?, hash(bad)?);
        if git(&["merge-base", "--is-ancestor", &first, &last]).is_err() {
            return usage(format!("{good} is not an ancestor of {bad}: name an older commit"));
        }
        let range = format!("{first}..{last}");
        let format = "--format=%H%x09%s";
        let mut log = vec!["log", "--reverse", "--first-parent", format, &range, "--"];
        log.extend(paths.iter().map(String::as_str));
        let later = git(&log)?;
        let one = git(&["log", "-1", format, &first, "--"])?;
        let commit = |line: &str| {
            let (hash, subject) = line.split_once('\t')?;
            Some(Commit { hash: hash.to_owned(), subject: subject.to_owned() })
        };
        let commits: Vec<Commit> = one.lines().chain(later.lines()).filter_map(commit).collect();
        match commits.len() {
            0 | 1 => usage(format!("no commit between {good} and {bad} changes these paths")),
            _ => Ok(commits),
        }
    }

    /// Checks out a commit in a worktree of its own, unless it exists. Returns the folder in which
    /// the commands of the commit start.
    ///
    /// # Errors
    /// The worktree cannot be created.
    pub fn check_out(&self, commit: &Commit, worktree: &Path) -> anyhow::Result<PathBuf> {
        if !worktree.exists() {
            let path = worktree.to_string_lossy();
            git(&["worktree", "add", "--force", "--detach", &path, &commit.hash])?;
        }
        Ok(worktree.join(&self.inside))
    }

    /// Returns the path of the current folder within the repository. Empty for its root.
    pub fn inside(&self) -> &Path {
        &self.inside
    }

    /// Removes a worktree with everything in it.
    pub fn remove(&self, worktree: &Path) {
        let _ = git(&["worktree", "remove", "--force", "--force", &worktree.to_string_lossy()]);
    }
}

/// Runs git. Returns what it printed, without the last line end.
fn git(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(arguments).stdin(Stdio::null()).output();
    let output = output.context("cannot start git, which `hotlap bisect` needs")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(anyhow::anyhow!("git {}: {}", arguments[0], text(&output.stderr))),
    }
}

/// Runs a shell command in a folder, and writes its output to a log. Returns whether it succeeded.
///
/// # Errors
/// The log cannot be written, or the shell cannot be started.
pub fn build(command: &str, folder: &Path, log: &Path) -> anyhow::Result<bool> {
    let cannot = || format!("cannot write {}", log.display());
    log.parent().map_or(Ok(()), fs::create_dir_all).with_context(cannot)?;
    let out = File::create(log).with_context(cannot)?;
    let both = out.try_clone().with_context(cannot)?;
    let status = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(both)
        .status();
    Ok(status.context("cannot start a shell")?.success())
}
