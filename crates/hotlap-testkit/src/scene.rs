//! A folder in which a test runs hotlap, with its own store, cache and catalogue.

mod hotlap;

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use tempfile::TempDir;

pub use self::hotlap::{Hotlap, Running, Said};
use crate::{processes, until};

/// The folder of a test. The folder exists as long as the scene or a command in it exists.
#[derive(Debug)]
pub struct Scene(Arc<Folder>);

/// The folder of a scene. Processes that were started in it are killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) TempDir);

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

impl Scene {
    /// Creates an empty folder.
    pub fn new() -> Self {
        Self(Arc::new(Folder(tempfile::tempdir().expect("a folder"))))
    }

    /// Returns the path of the folder.
    pub fn folder(&self) -> &Path {
        self.0.0.path()
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Returns the path of a file in the folder, as a word of a command.
    pub fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file and creates the folders above it. Returns the path of the file.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, content).expect("a file");
        self.file(name)
    }

    /// Writes a script and makes it executable.
    pub fn write_program(&self, name: &str, script: &str) {
        let path = self.write(name, script);
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a program");
    }

    /// Returns the content of a file, or an empty string if there is no such file.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Returns the content of a JSON file.
    pub fn json(&self, name: &str) -> Value {
        let text = fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        serde_json::from_slice(&text).expect("JSON")
    }

    /// Returns the sorted names in a folder. `folder` is relative to the folder of the scene.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Adds a server to the catalogue of this scene. `toolchain` contains the TOML lines of the
    /// table `[toolchain]`.
    pub fn server(&self, id: &str, toolchain: &str, command: &[&str]) {
        let manifest = format!(
            "about = \"A server for a test.\"\nurl = \"https://example.org\"\n\
             kind = \"hand-written\"\ncontracts = [\"hello\"]\n\
             [toolchain]\n{toolchain}\n[run]\ncommand = {command:?}\n"
        );
        self.write(&format!("servers/{id}/server.toml"), manifest);
    }

    /// Returns a command line of hotlap with these words. Spaces separate the words unless they are
    /// quoted.
    pub fn hotlap(&self, words: &str) -> Hotlap {
        Hotlap::new(&self.0, words)
    }

    /// Returns the path of the store that hotlap uses without `--store`.
    pub fn store(&self) -> PathBuf {
        self.path("data/hotlap/hotlap.db")
    }

    /// Returns the processes of this scene that are still running.
    pub fn processes(&self) -> Vec<(i32, String)> {
        self.0.processes()
    }

    /// Waits until all processes of this scene have ended.
    pub fn is_clean(&self) {
        let mut left = Vec::new();
        until("all processes have ended", || {
            left = self.processes();
            left.is_empty()
        });
    }
}

impl Folder {
    fn processes(&self) -> Vec<(i32, String)> {
        processes(&format!("HOTLAP_TEST_SCENE={}", self.0.path().display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for (process, _) in self.processes() {
            let _ = kill_process(Pid::from_raw(process).expect("a process"), Signal::KILL);
        }
    }
}

/// Opens a pseudo-terminal. Returns the terminal's own end and the end for the programs in it.
pub fn pty() -> (OwnedFd, File) {
    let terminal =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&terminal).expect("a terminal");
    unlockpt(&terminal).expect("a terminal");
    let name = ptsname(&terminal, Vec::new()).expect("a terminal");
    let mut open = OpenOptions::new();
    open.read(true).write(true).custom_flags(OFlags::NOCTTY.bits().cast_signed());
    let theirs = open.open(name.to_str().expect("a name")).expect("a terminal");
    (terminal, theirs)
}
