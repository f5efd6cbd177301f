//! A file that `hotlap` is given as the requests of a load, in a folder of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The folder with the file.
pub struct Input {
    folder: tempfile::TempDir,
    name: &'static str,
    option: &'static str,
}

impl Input {
    /// A file of this name and content, which is passed with this option.
    pub fn new(name: &'static str, option: &'static str, content: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(name), content).unwrap();
        Self { folder, name, option }
    }

    /// The path of the file.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join(self.name)
    }

    /// The path of another file beside it.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command with the file and further arguments.
    pub fn hotlap(&self, command: &str, arguments: &[&str]) -> Output {
        let mut hotlap = Command::new(env!("CARGO_BIN_EXE_hotlap"));
        hotlap.args([command, self.option]).arg(self.file()).args(arguments);
        hotlap.env("HOTLAP_CONFIG", "/dev/null").output().unwrap()
    }
}

/// Output as a text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
