//! Runs the commands of probes and builds, several at a time. When the user interrupts, a build
//! command ends together with everything that it started, and a probe ends together with its
//! process group.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::interrupt;
use crate::process::{Process, ProcessExit, ProcessSetting, StartError, Supervisor};

/// Environment variables of an outer cargo build that would redirect the output of a server's
/// build.
const OUTER: [&str; 2] = ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"];

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The command exited by itself.
    Exited(ExitStatus),
    /// The command was killed because it took longer than this time limit.
    TooLong(Duration),
    /// The command was killed because the user interrupted.
    Stopped,
}

impl Ended {
    pub(super) fn success(self) -> bool {
        matches!(self, Self::Exited(status) if status.success())
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => match status.code() {
                Some(code) => write!(f, "exit code {code}"),
                None => write!(f, "{status}"),
            },
            Self::TooLong(limit) => write!(f, "killed after {} s", limit.as_secs()),
            Self::Stopped => f.write_str("interrupted"),
        }
    }
}

/// The output of a short command.
pub(super) struct Captured {
    pub(super) ended: Ended,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Prepares a command. A relative path of the program is relative to `cwd`, as in a supervised
/// process.
fn command(argv: &[String], cwd: &Path) -> Command {
    let program = Path::new(&argv[0]);
    let mut command = if argv[0].contains('/') && program.is_relative() {
        Command::new(cwd.join(program))
    } else {
        Command::new(program)
    };
    command.args(&argv[1..]).current_dir(cwd).stdin(Stdio::null()).process_group(0);
    OUTER.iter().for_each(|variable| _ = command.env_remove(variable));
    command
}

/// Runs a command with little output, and returns its output.
pub(super) fn capture(
    argv: &[String],
    cwd: &Path,
    limit: Duration,
    stop: &AtomicBool,
) -> io::Result<Captured> {
    let mut child = command(argv, cwd).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().map(reader);
    let stderr = child.stderr.take().map(reader);
    let ended = wait(&mut child, limit, stop)?;
    // A process that inherited the pipe and is still running must not block this function.
    let said = |reader: Option<mpsc::Receiver<String>>| {
        reader.and_then(|r| r.recv_timeout(Duration::from_secs(2)).ok()).unwrap_or_default()
    };
    Ok(Captured { ended, stdout: said(stdout), stderr: said(stderr) })
}

/// Runs a command and appends its output to a log, in the order written. When the command exits,
/// the time is up, the user interrupts, or hotlap is killed, a supervisor ends the command and
/// everything that it started.
pub(super) fn logged(
    argv: &[String],
    cwd: &Path,
    (log, path): (&File, &Path),
    supervisor: &Supervisor,
    limit: Duration,
    stop: &AtomicBool,
) -> io::Result<Ended> {
    let setting = ProcessSetting {
        argv: argv.to_vec(),
        env: BTreeMap::new(),
        cwd: cwd.to_owned(),
        cpus: Vec::new(),
        log: path.to_owned(),
    };
    let supervisor = supervisor.clone().without(&OUTER);
    let started = Process::start_with_log(&setting, &supervisor, log.try_clone()?);
    let mut process = started.map_err(|error| match error {
        StartError::Program { cause, .. } => cause,
        other => io::Error::other(other),
    })?;
    let until = Instant::now() + limit;
    let ended = loop {
        if let Some(exit) = process.wait(interrupt::LOOK) {
            break match exit {
                ProcessExit::Code(code) => Ended::Exited(ExitStatus::from_raw(code << 8)),
                ProcessExit::Signal(signal) => Ended::Exited(ExitStatus::from_raw(signal)),
                ProcessExit::Lost => {
                    return Err(io::Error::other("the supervisor of the command was killed"));
                }
            };
        }
        if stop.load(Ordering::Relaxed) {
            break Ended::Stopped;
        }
        if Instant::now() > until {
            break Ended::TooLong(limit);
        }
    };
    process.stop(Duration::ZERO);
    Ok(ended)
}

fn reader(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.by_ref().take(1 << 20).read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
        let _ = io::copy(&mut pipe, &mut io::sink());
    });
    receiver
}

fn wait(child: &mut Child, limit: Duration, stop: &AtomicBool) -> io::Result<Ended> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::Exited(status));
        }
        let ended = if started.elapsed() > limit {
            Ended::TooLong(limit)
        } else if interrupt::sleep(pause, stop) {
            pause = (pause * 2).min(interrupt::LOOK);
            continue;
        } else {
            Ended::Stopped
        };
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait();
        return Ok(ended);
    }
}

/// Runs a job for each item on at most `threads` threads. The results are in the order of the
/// items.
///
/// # Panics
/// If a job panics.
pub(crate) fn map<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    job: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, job(item)));
        }
    };
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(items.len())).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Runs one job for all items that share a key. A job returns a result for each of its items. The
/// combined results are in the order of all items.
///
/// # Panics
/// If a job panics.
pub(crate) fn map_groups<T: Sync, K: Ord, R: Send>(
    items: &[T],
    key: impl Fn(&T) -> K,
    threads: usize,
    job: impl Fn(&[&T]) -> Vec<R> + Sync,
) -> Vec<R> {
    let mut groups: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        groups.entry(key(item)).or_default().push(index);
    }
    let groups: Vec<Vec<usize>> = groups.into_values().collect();
    let results = map(&groups, threads, |group| {
        job(&group.iter().map(|&index| &items[index]).collect::<Vec<_>>())
    });
    let mut results: Vec<(usize, R)> =
        groups.into_iter().flatten().zip(results.into_iter().flatten()).collect();
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Returns the number of threads that can run at the same time in this process.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        for threads in [0, 1, 3, 200] {
            assert_eq!(map(&items, threads, |item| item + 1), (1..=100).collect::<Vec<_>>());
        }
        assert_eq!(map(&[], 4, |item: &u32| *item), [0; 0]);
    }

    #[test]
    fn the_items_of_a_key_are_one_job() {
        let items = ["b1", "a1", "b2", "c1", "a2"];
        let jobs = AtomicUsize::new(0);
        let results = map_groups(
            &items,
            |item| item.chars().next(),
            2,
            |group| {
                jobs.fetch_add(1, Ordering::Relaxed);
                group.iter().map(|item| format!("{item} of {}", group.len())).collect()
            },
        );
        assert_eq!(results, ["b1 of 2", "a1 of 2", "b2 of 2", "c1 of 1", "a2 of 2"]);
        assert_eq!(jobs.into_inner(), 3);
    }
}
