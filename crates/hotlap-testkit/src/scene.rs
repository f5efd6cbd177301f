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

/// The folder. It is there as long as the scene or a command in it is.
#[derive(Debug)]
pub struct Scene(Arc<Folder>);

/// What was started in a folder is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) TempDir);

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

impl Scene {
    /// An empty folder.
    pub fn new() -> Self {
        Self(Arc::new(Folder(tempfile::tempdir().expect("a folder"))))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.0.0.path()
    }

    /// The path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// The path of a file, as a word of a command.
    pub fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file, and the folders above it. Returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, content).expect("a file");
        self.file(name)
    }

    /// Writes a program.
    pub fn write_program(&self, name: &str, script: &str) {
        let path = self.write(name, script);
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a program");
    }

    /// What is in a file. Nothing if there is no such file.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A JSON file.
    pub fn json(&self, name: &str) -> Value {
        let text = fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        serde_json::from_slice(&text).expect("JSON")
    }

    /// The names in the folder, or in one below it.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Adds a server to the catalogue of this scene, with these lines of TOML about its toolchain.
    pub fn server(&self, id: &str, toolchain: &str, command: &[&str]) {
        let manifest = format!(
            "about = \"A server for a test.\"\nurl = \"https://example.org\"\n\
             kind = \"hand-written\"\ncontracts = [\"hello\"]\n\
             [toolchain]\n{toolchain}\n[run]\ncommand = {command:?}\n"
        );
        self.write(&format!("servers/{id}/server.toml"), manifest);
    }

    /// hotlap with these words, which spaces divide unless they are quoted.
    pub fn hotlap(&self, words: &str) -> Hotlap {
        Hotlap::new(&self.0, words)
    }

    /// The store that is used without `--store`.
    pub fn store(&self) -> PathBuf {
        self.path("data/hotlap/hotlap.db")
    }

    /// The processes of this scene that still run.
    pub fn processes(&self) -> Vec<(i32, String)> {
        self.0.processes()
    }

    /// Waits until all of them have ended.
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

/// A new terminal: the end that draws, and the end of the programs in it.
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
