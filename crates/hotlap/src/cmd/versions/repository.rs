//! A git repository: its commits, and the worktrees in which they are built. The user's checkout,
//! index and branches are never touched.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::{io, thread};

use anyhow::Context;
use hotlap_servers::interrupt::LOOK;
use rustix::process::{Pid, Signal, kill_process};

use super::UnlessInterrupted;
use super::session::SessionFolder;
use crate::console::Console;
use crate::exit::usage;
use crate::interrupt::Interrupt;

/// The format of a commit in git's log: its hash, a tab, and its subject.
const FORMAT: &str = "--format=%H%x09%s";

/// The number of digits of a hash that are shown.
const SHORT: usize = 10;

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The whole hash.
    pub hash: String,
    /// The first line of the message.
    pub subject: String,
}

impl Commit {
    /// Parses a line with a hash, a tab and a subject.
    fn of_line(line: &str) -> Option<Self> {
        let (hash, subject) = line.split_once('\t')?;
        Some(Self { hash: hash.to_owned(), subject: subject.to_owned() })
    }

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
        let root =
            git(&["rev-parse", "--show-toplevel"]).or_else(|why| match why.is::<io::Error>() {
                true => Err(why),
                false => usage(format!("{why}. Start hotlap in a git repository")),
            })?;
        let inside = git(&["rev-parse", "--show-prefix"])?;
        Ok(Self { root: root.into(), inside: inside.into() })
    }

    /// Returns the good commit, and the later commits up to the bad one that change these paths,
    /// oldest first. At a merge, only the first parent is followed. Commits that do not contain
    /// the good one are left out, so each commit contains the one before.
    ///
    /// # Errors
    /// A commit does not exist, the good one is not an ancestor of the bad one, or no later commit
    /// changes the paths.
    pub fn commits(&self, good: &str, bad: &str, paths: &[String]) -> anyhow::Result<Vec<Commit>> {
        let (first, last) = (hash_of(good)?, hash_of(bad)?);
        if git(&["merge-base", "--is-ancestor", &first, &last]).is_err() {
            return usage(format!("{good} is not an ancestor of {bad}: name an older commit"));
        }
        let range = format!("{first}..{last}");
        let mut log = vec!["log", "--reverse", "--first-parent", FORMAT, &range, "--"];
        log.extend(paths.iter().map(String::as_str));
        let later = git(&log)?;
        let mut commits: Vec<Commit> = later.lines().filter_map(Commit::of_line).collect();
        commits.insert(0, commit_of(&first)?);
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

    /// Returns the tags from one commit to another, oldest first, each with its commit.
    ///
    /// # Errors
    /// A commit does not exist, or there are fewer than two tags.
    pub fn tags(&self, first: &str, last: &str) -> anyhow::Result<Vec<(String, Commit)>> {
        let (first_hash, last_hash) = (hash_of(first)?, hash_of(last)?);
        let listed =
            git(&["tag", "--sort=creatordate", "--contains", &first_hash, "--merged", &last_hash])?;
        let with_commit =
            |name: &str| Ok((name.to_owned(), commit_of(&hash_of(&format!("refs/tags/{name}"))?)?));
        let tags: Vec<(String, Commit)> =
            listed.lines().map(with_commit).collect::<anyhow::Result<_>>()?;
        match tags.len() {
            0 | 1 => usage(format!(
                "fewer than two tags lie between {first} and {last}: name a longer range"
            )),
            _ => Ok(tags),
        }
    }

    /// Checks out a commit in a separate worktree, unless the worktree exists. Returns the folder
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
        // If git was killed before it registered the worktree, git does not remove the folder.
        let _ = fs::remove_dir_all(worktree);
    }
}

/// Returns the hash of a commit or tag.
fn hash_of(name: &str) -> anyhow::Result<String> {
    let commit = format!("{name}^{{commit}}");
    git(&["rev-parse", "--verify", "--quiet", "--end-of-options", &commit])
        .or_else(|_| usage(format!("{name} is not a commit or tag of this repository")))
}

fn commit_of(hash: &str) -> anyhow::Result<Commit> {
    let line = git(&["log", "-1", FORMAT, hash, "--"])?;
    Commit::of_line(&line).with_context(|| format!("git log printed {line:?}"))
}

/// Runs git. Returns what git printed, without line ends at the end.
fn git(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(arguments).stdin(Stdio::null()).output();
    let output = output.context("cannot start git, which hotlap needs to read commits")?;
    // The subject of a commit may be empty, so other white space is kept.
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(anyhow::anyhow!("git {}: {}", arguments.join(" "), text(&output.stderr))),
    }
}

/// Builds the commits of a session.
#[derive(Debug)]
pub struct CommitBuilder<'a> {
    /// The repository.
    pub repository: &'a Repository,
    /// The folder of the session.
    pub folder: &'a SessionFolder,
    /// The shell command that builds a commit.
    pub command: Option<&'a str>,
    /// The flag that stops a build.
    pub interrupt: &'a Interrupt,
    /// The console for progress messages.
    pub console: &'a Console,
}

impl CommitBuilder<'_> {
    /// Builds a commit in a new worktree, unless an earlier build succeeded. Returns why the commit
    /// cannot be raced, or `None`.
    ///
    /// # Errors
    /// The worktree, the log or the mark of the build cannot be written.
    pub fn build(&self, commit: &Commit) -> anyhow::Result<UnlessInterrupted<Option<String>>> {
        if self.interrupt.asked() {
            return Ok(UnlessInterrupted::Interrupted);
        }
        let worktree = self.folder.worktree(commit);
        if self.folder.is_built(commit) {
            return Ok(UnlessInterrupted::Done(None));
        }
        // An earlier session may have been killed while it checked out or built the commit.
        self.folder.set_built(commit, false)?;
        self.repository.remove(&worktree);
        let folder = self.repository.check_out(commit, &worktree)?;
        let failure = match self.command {
            _ if !folder.is_dir() => {
                Some(format!("it has no folder {}", self.repository.inside().display()))
            }
            None => None,
            Some(command) => {
                let (name, subject) = (commit.short(), &commit.subject);
                self.console.note(&format!("Building {name} ({subject}) …"));
                let log = self.folder.log(commit);
                let succeeds = self.succeeds(command, &folder, &log)?;
                (!succeeds).then(|| format!("it does not build, see {}", log.display()))
            }
        };
        if self.interrupt.asked() {
            return Ok(UnlessInterrupted::Interrupted);
        }
        self.folder.set_built(commit, failure.is_none())?;
        Ok(UnlessInterrupted::Done(failure))
    }

    /// Runs a shell command in a folder, and writes its output to a log.
    fn succeeds(&self, command: &str, folder: &Path, log: &Path) -> anyhow::Result<bool> {
        let cannot = || format!("cannot write {}", log.display());
        log.parent().map_or(Ok(()), fs::create_dir_all).with_context(cannot)?;
        let out = File::create(log).with_context(cannot)?;
        let both = out.try_clone().with_context(cannot)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(folder);
        shell.stdin(Stdio::null()).stdout(out).stderr(both);
        Ok(finish(&mut shell, self.interrupt).context("cannot start a shell")?.success())
    }
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
            // The command may have ended by now.
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        }
        thread::sleep(LOOK);
    }
}
