//! The command `hotlap` before it starts, while it runs, and after it has ended.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::NamedTempFile;

use super::Folder;
use crate::{LIMIT, flat, program};

/// A command line of hotlap that has not been started. The command has no terminal and runs in the
/// folder of a scene. The folder holds the store, the cache, the configuration and the catalogue.
#[derive(Debug, Clone)]
pub struct Hotlap {
    folder: Arc<Folder>,
    /// The program and its arguments.
    words: Vec<OsString>,
    /// The environment variables to set. A variable with the value `None` is removed.
    env: Vec<(OsString, Option<OsString>)>,
}

impl Hotlap {
    pub(crate) fn new(folder: &Arc<Folder>, words: &str) -> Self {
        let path = folder.0.path();
        let own = |name: &str| Some(path.join(name).into_os_string());
        let servers = path.join("servers");
        let env = [
            ("HOTLAP_TEST_SCENE", Some(path.as_os_str().to_owned())),
            ("HOTLAP_CACHE", own("cache")),
            ("HOTLAP_SERVERS", servers.is_dir().then(|| servers.into_os_string())),
            ("XDG_DATA_HOME", own("data")),
            ("XDG_CONFIG_HOME", own("config")),
            ("HOTLAP_CONFIG", None),
            ("COLUMNS", None),
        ];
        let env = env.map(|(name, value)| (name.into(), value)).to_vec();
        Self { folder: Arc::clone(folder), words: vec![program().into()], env }.words(words)
    }

    /// Adds words. Spaces separate the words unless they are quoted.
    #[must_use]
    pub fn words(self, words: &str) -> Self {
        self.args(shell_words::split(words).expect("quotes that end"))
    }

    /// Adds a word unchanged.
    #[must_use]
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.words.push(word.as_ref().to_owned());
        self
    }

    /// Adds words unchanged.
    #[must_use]
    pub fn args(mut self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable of the command.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes an environment variable of the command.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.env.push((name.into(), None));
        self
    }

    /// Starts the command through another program, such as `nohup` or `ip netns exec …`.
    #[must_use]
    pub fn under(mut self, starter: &str) -> Self {
        let starter = starter.split_whitespace().map(OsString::from);
        self.words.splice(0..0, starter);
        self
    }

    /// Returns the command as a [`Command`] of the standard library, for settings that this type
    /// does not offer.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).current_dir(self.folder.0.path()).stdin(Stdio::null());
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Starts the command. Its output is kept in files.
    pub fn start(&self) -> Running {
        self.start_with(|_| ())
    }

    /// Starts the command after `set` has made further settings.
    pub fn start_with(&self, set: impl FnOnce(&mut Command)) -> Running {
        let [out, err] = [(); 2].map(|()| NamedTempFile::new().expect("a file"));
        let open = |file: &NamedTempFile| Stdio::from(file.reopen().expect("a file"));
        let mut command = self.command();
        command.stdout(open(&out)).stderr(open(&err));
        set(&mut command);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Running { child, out, err, _folder: Arc::clone(&self.folder) }
    }

    /// Runs hotlap until it ends by itself, and returns what it printed.
    pub fn said(&self) -> Said {
        self.start().end()
    }
}

/// A running hotlap, which is killed when this value is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    out: NamedTempFile,
    err: NamedTempFile,
    _folder: Arc<Folder>,
}

impl Running {
    /// Returns the process id of hotlap.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal to hotlap.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a process");
    }

    /// Returns whether hotlap has ended.
    pub fn has_ended(&mut self) -> bool {
        self.status().is_some()
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// Waits until a condition is true. Panics if hotlap ends first, or after [`LIMIT`].
    pub fn until(&mut self, what: &str, mut so: impl FnMut() -> bool) {
        let since = Instant::now();
        while !so() {
            let goes_on = self.status().is_none() && since.elapsed() < LIMIT;
            assert!(goes_on, "{what}: {:?}", self.so_far());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns what hotlap has printed so far.
    pub fn so_far(&mut self) -> Said {
        let read = |file: &NamedTempFile| {
            String::from_utf8_lossy(&fs::read(file.path()).expect("a file")).into_owned()
        };
        let code = self.status().and_then(|status| status.code());
        Said { code, out: read(&self.out), err: read(&self.err) }
    }

    /// Waits until hotlap ends by itself, and returns what it printed.
    pub fn end(mut self) -> Said {
        let since = Instant::now();
        while !self.has_ended() {
            assert!(since.elapsed() < LIMIT, "it has not ended: {:?}", self.so_far());
            std::thread::sleep(Duration::from_millis(5));
        }
        self.so_far()
    }

    /// Kills hotlap and returns what it printed.
    pub fn kill(mut self) -> Said {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.so_far()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How hotlap ended and what it printed.
#[derive(Debug, Clone)]
pub struct Said {
    /// The exit code. `None` after a signal, or while hotlap is running.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Said {
    /// Asserts that hotlap ended with this exit code.
    #[track_caller]
    pub fn fails(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self
    }

    /// Asserts that hotlap succeeded.
    #[track_caller]
    pub fn succeeds(self) -> Self {
        self.fails(0)
    }

    /// Asserts that hotlap measured something. On a busy machine, every lap may be excluded, which
    /// gives exit code 4. The counts of requests and errors are right even then.
    #[track_caller]
    pub fn measured(self) -> Self {
        assert!(matches!(self.code, Some(0 | 4)), "{:?}: {}{}", self.code, self.out, self.err);
        self
    }

    /// Returns all that hotlap printed, in one line.
    pub fn flat(&self) -> String {
        flat(&format!("{} {}", self.out, self.err))
    }

    /// Asserts that hotlap printed this text, wherever lines were wrapped.
    #[track_caller]
    pub fn has(self, text: &str) -> Self {
        assert!(self.flat().contains(text), "no {text:?} in {}{}", self.out, self.err);
        self
    }

    /// Asserts that hotlap did not print this text.
    #[track_caller]
    pub fn lacks(self, text: &str) -> Self {
        assert!(!self.flat().contains(text), "{text:?} is in {}{}", self.out, self.err);
        self
    }

    /// Parses standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}
