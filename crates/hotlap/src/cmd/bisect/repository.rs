//! A git repository: its commits, and the worktrees in which they are built. The user's checkout,
//! index and branches are never touched.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::{io, thread};

use anyhow::Context;
use hotlap_servers::interrupt::LOOK;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::exit::usage;
use crate::interrupt::Interrupt;

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
    /// The path of the repository. Bisections of different repositories differ in this path.
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

    /// Returns the good commit and all later ones up to the bad one that change these paths, oldest
    /// first. Of a merge, only the branch into which it was merged is followed. Commits without the
    /// good one are left out, so each commit contains the one before.
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
        let mut commits: Vec<Commit> =
            one.lines().chain(later.lines()).filter_map(commit).collect();
        let contains_good =
            |commit: &Commit| git(&["merge-base", "--is-ancestor", &first, &commit.hash]).is_ok();
        let begins = commits.iter().skip(1).position(contains_good).unwrap_or(0);
        commits.drain(1..1 + begins);
        match commits.len() {
            0 | 1 if paths.is_empty() => usage(format!("{good} and {bad} are the same commit")),
            0 | 1 => usage(format!("no commit between {good} and {bad} changes these paths")),
            _ => Ok(commits),
        }
    }

    /// Checks out a commit in a worktree of its own, unless the worktree exists. Returns the folder
    /// in which the commands of the commit start.
    ///
    /// # Errors
    /// The worktree cannot be created.
    pub fn check_out(&self, commit: &Commit, worktree: &Path) -> anyhow::Result<PathBuf> {
        if !worktree.exists() {
            let path = worktree.to_string_lossy();
            // The repository's hooks are meant for the user's own checkouts.
            let no_hooks = ["-c", "core.hooksPath=/dev/null"];
            let add = ["worktree", "add", "--force", "--detach", &path, &commit.hash];
            git(&[&no_hooks[..], &add[..]].concat())?;
        }
        Ok(worktree.join(&self.inside))
    }

    /// Returns the path of the current folder within the repository. Empty for its root.
    pub fn inside(&self) -> &Path {
        &self.inside
    }

    /// Removes a worktree with everything in it, if it exists.
    pub fn remove(&self, worktree: &Path) {
        if !worktree.exists() {
            return;
        }
        let _ = git(&["worktree", "remove", "--force", "--force", &worktree.to_string_lossy()]);
        // git knows nothing of a worktree that it had no time to register.
        let _ = fs::remove_dir_all(worktree);
    }
}

/// Runs git. Returns what it printed, without trailing white space.
fn git(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(arguments).stdin(Stdio::null()).output();
    let output = output.context("cannot start git, which `hotlap bisect` needs")?;
    // The subject of a commit may be empty, so other white space is kept.
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(anyhow::anyhow!("git {}: {}", arguments.join(" "), text(&output.stderr))),
    }
}

/// Runs a shell command in a folder, and writes its output to a log. Returns whether it succeeded.
///
/// # Errors
/// The log cannot be written, or the shell cannot be started.
pub fn build(
    command: &str,
    folder: &Path,
    log: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<bool> {
    let cannot = || format!("cannot write {}", log.display());
    log.parent().map_or(Ok(()), fs::create_dir_all).with_context(cannot)?;
    let out = File::create(log).with_context(cannot)?;
    let both = out.try_clone().with_context(cannot)?;
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder);
    shell.stdin(Stdio::null()).stdout(out).stderr(both);
    Ok(finish(&mut shell, interrupt).context("cannot start a shell")?.success())
}

/// Runs a command to its end. If the user interrupts hotlap, the command is asked to end, too.
///
/// # Errors
/// The command cannot be started.
pub fn finish(command: &mut Command, interrupt: &Interrupt) -> io::Result<ExitStatus> {
    let mut child = command.spawn()?;
    let mut is_told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            if !status.success() {
                // A Ctrl-C reaches both processes, and the command may notice it first.
                thread::sleep(LOOK);
            }
            return Ok(status);
        }
        if interrupt.asked() && !is_told {
            is_told = true;
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            // It may have ended by now.
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        }
        thread::sleep(LOOK);
    }
}
