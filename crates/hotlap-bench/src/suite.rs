//! Reads suites strictly: servers, loads, the question, and published figures.
//!
//! The file's keys and the resulting suite have separate types, as for manifests. An unknown key,
//! an unknown name, or a published figure for a server that is not in the suite is an error. The
//! error names the file and, if known, the line.

use std::path::Path;

use hotlap_servers::catalogue::{did_you_mean, nearest_of};
use hotlap_servers::files;

mod definition;
mod file;

pub use definition::{
    Absent, Citation, CustomRequest, Loading, Publication, PublishedFigure, Question, STREAMS,
    Suite, SuiteError, SuiteServer, Written,
};

impl Suite {
    /// Opens a suite in the folder by its name, or a file by its path. An argument that contains
    /// `/` or ends in `.toml` is a path.
    ///
    /// # Errors
    /// Fails if there is no such suite, or if the suite is invalid. For an unknown suite, the error
    /// suggests names.
    pub fn open(named: &str, folder: &Path) -> Result<Self, SuiteError> {
        if named.contains('/') || named.ends_with(".toml") {
            return Self::read(Path::new(named));
        }
        let file = folder.join(format!("{named}.toml"));
        match file.is_file() {
            true => Self::read(&file),
            false => Err(unknown(named, folder)),
        }
    }

    /// Reads a suite from a file.
    ///
    /// # Errors
    /// Fails if the file is unreadable or invalid. The error names the file and, if known, the
    /// line.
    pub fn read(file: &Path) -> Result<Self, SuiteError> {
        let text = files::read_to_string(file).map_err(|error| SuiteError::Wrong {
            file: file.to_owned(),
            line: None,
            what: format!("cannot read the file: {error}"),
        })?;
        Self::parse(&text, file)
    }

    /// Parses a suite.
    ///
    /// # Errors
    /// Fails if the suite is invalid. The error names the file and, if known, the line.
    pub fn parse(text: &str, file: &Path) -> Result<Self, SuiteError> {
        file::parse(text, file)
    }
}

/// The names of the suites in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}

fn unknown(name: &str, folder: &Path) -> SuiteError {
    let names = names(folder);
    let nearest = nearest_of(name, names.iter().map(String::as_str));
    let there = did_you_mean(&nearest).unwrap_or_else(|| {
        format!(
            "the built-in suites are {}. For a file of your own, give its path: ./{name}.toml",
            names.join(", ")
        )
    });
    SuiteError::Unknown { name: name.to_owned(), there }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_suite_suggests_similar_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["hello", "layers", "app-servers"] {
            std::fs::write(folder.path().join(format!("{name}.toml")), "servers = ['a']").unwrap();
        }
        let open = |name| Suite::open(name, folder.path()).map(|s| s.name);
        assert_eq!(open("layers").unwrap(), "layers");
        let told = |name| open(name).unwrap_err().to_string();
        assert_eq!(told("layrs"), "there is no suite \"layrs\": did you mean layers?");
        assert_eq!(
            told("zzz"),
            "there is no suite \"zzz\": the built-in suites are app-servers, hello, layers. For a \
             file of your own, give its path: ./zzz.toml"
        );
        assert!(told("./none.toml").starts_with("./none.toml: cannot read the file: "));
    }
}
