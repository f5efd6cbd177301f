//! The catalogue: all servers under a root folder, looked up by name or pattern.
//!
//! A broken manifest does not hide the other servers, because its error is stored separately.

use std::path::{Path, PathBuf};

use strsim::osa_distance;
use wildmatch::WildMatch;

mod manifest;

pub use manifest::{
    CatalogueServer, FILE_NAME, Install, ManifestError, ServerKind, SpokenProtocol, Toolchain,
    Upstream, line_of, parse, read,
};

/// All servers under one root folder, sorted by their folders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalogue {
    /// The servers. Each is followed by its variants.
    pub servers: Vec<CatalogueServer>,
    /// The errors of manifests that cannot be used.
    pub broken: Vec<ManifestError>,
}

/// Why a name does not select a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// The root folder of the catalogue, or the folder of a language, cannot be read.
    #[error(
        "cannot read the catalogue {}: {why}. HOTLAP_SERVERS must name the folder that contains \
         <language>/<name>/server.toml",
        root.display()
    )]
    NoRoot {
        /// The root folder.
        root: PathBuf,
        /// The system's error.
        why: String,
    },
    /// No server has this name.
    #[error("no server {name:?} in the catalogue: {}", meant(nearest))]
    Unknown {
        /// The name as typed.
        name: String,
        /// Similar names, the most similar first.
        nearest: Vec<String>,
    },
    /// The server exists, but its manifest cannot be used.
    #[error(transparent)]
    Broken(#[from] ManifestError),
}

/// Says which servers a name may mean, and how to see all servers.
pub fn meant(nearest: &[String]) -> String {
    let question = did_you_mean(nearest).map_or_else(String::new, |question| question + " ");
    question + "`hotlap list` shows all servers"
}

/// Returns a question: `did you mean a, b or c?`. Returns `None` if `nearest` is empty.
pub fn did_you_mean(nearest: &[String]) -> Option<String> {
    Some(match nearest {
        [] => return None,
        [one] => format!("did you mean {one}?"),
        [all @ .., last] => format!("did you mean {} or {last}?", all.join(", ")),
    })
}

impl Catalogue {
    /// Reads every `<language>/<name>/` under `root`, except names that begin with a dot or an
    /// underscore.
    ///
    /// # Errors
    /// If `root` or the folder of a language cannot be read.
    pub fn open(root: &Path) -> Result<Self, CatalogueError> {
        let no_root = |error: std::io::Error| CatalogueError::NoRoot {
            root: root.to_owned(),
            why: error.to_string(),
        };
        let mut catalogue = Self::default();
        for language in folders(root).map_err(no_root)? {
            for folder in folders(&language).map_err(no_root)? {
                let id = format!("{}/{}", name(&language), name(&folder));
                match read(&folder, &id) {
                    Ok(servers) => catalogue.servers.extend(servers),
                    Err(error) => catalogue.broken.push(error),
                }
            }
        }
        Ok(catalogue)
    }

    /// Returns the server with exactly this id.
    pub fn find(&self, id: &str) -> Option<&CatalogueServer> {
        self.servers.iter().find(|server| server.id == id)
    }

    /// Returns the servers that a pattern selects. The pattern is an id, a language, or a glob. In
    /// a glob, `*` matches any characters and `?` matches one. An id without a colon does not
    /// select its variants, but a language or a glob does.
    ///
    /// # Errors
    /// If nothing matches. The error has the nearest names, or is the error of the broken manifest
    /// that the pattern names.
    pub fn select(&self, pattern: &str) -> Result<Vec<&CatalogueServer>, CatalogueError> {
        let pattern = pattern.trim_end_matches('/');
        if let Some(server) = self.find(pattern) {
            return Ok(vec![server]);
        }
        let glob = WildMatch::new(pattern);
        let is_meant =
            |server: &&CatalogueServer| server.language() == pattern || glob.matches(&server.id);
        let found: Vec<_> = self.servers.iter().filter(is_meant).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let base = pattern.split(':').next().unwrap_or(pattern);
        let broken = self.broken.iter().find(|error| {
            error.file.parent().is_some_and(|folder| folder.ends_with(base)) && base.contains('/')
        });
        Err(broken.map_or_else(
            || CatalogueError::Unknown { name: pattern.to_owned(), nearest: self.nearest(pattern) },
            |error| CatalogueError::Broken(error.clone()),
        ))
    }

    /// Returns up to three ids that are similar to `name`.
    pub fn nearest(&self, name: &str) -> Vec<String> {
        nearest_of(name, self.servers.iter().map(|server| server.id.as_str()))
    }
}

/// Returns up to three of `ids` that are similar to `name`. An id that contains the name ranks
/// like an edit distance of 1. Other ids, with or without the language, may have an edit distance
/// of at most a third of the name's length. A short name may have a distance of 1. Insertions,
/// deletions, replacements and swaps of neighbours count as one edit each.
pub fn nearest_of<'a>(name: &str, ids: impl Iterator<Item = &'a str>) -> Vec<String> {
    let limit = (name.chars().count() / 3).max(1);
    let mut near: Vec<(usize, usize, &str)> = ids
        .filter_map(|id| {
            let short = id.split_once('/').map_or(id, |(_, short)| short);
            let contains = name.len() >= 2 && id.contains(name);
            let far = osa_distance(name, id).min(osa_distance(name, short));
            let rank = if contains { 1 } else { far };
            (contains || far <= limit).then_some((rank, id.len(), id))
        })
        .collect();
    near.sort_unstable();
    near.into_iter().take(3).map(|(_, _, id)| id.to_owned()).collect()
}

fn name(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn folders(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let path = entry?.path();
        if path.is_dir() && !name(&path).starts_with(['.', '_']) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = r#"
about = "A server."
url = "https://example.org"
kind = "hand-written"
contracts = ["hello"]
toolchain = { probe = ["true"] }
run = { command = ["./server"] }
variants.fast = {}
"#;

    fn catalogue() -> (tempfile::TempDir, Catalogue) {
        let root = tempfile::tempdir().unwrap();
        for (id, text) in [
            ("go/net-http", PLAIN),
            ("go/fasthttp", PLAIN),
            ("nim/epoll", PLAIN),
            ("nim/broken", "about = 1\n"),
            ("rust/hyper", PLAIN),
            ("rust/hyper-0.10", PLAIN),
            ("_notes/x", ""),
        ] {
            let folder = root.path().join(id);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("server.toml"), text).unwrap();
        }
        std::fs::create_dir_all(root.path().join("go/empty")).unwrap();
        std::fs::write(root.path().join("README.md"), "").unwrap();
        let catalogue = Catalogue::open(root.path()).unwrap();
        (root, catalogue)
    }

    fn ids(servers: &[&CatalogueServer]) -> Vec<String> {
        servers.iter().map(|server| server.id.clone()).collect()
    }

    #[test]
    fn an_id_a_language_and_a_pattern_select() {
        let (_root, catalogue) = catalogue();
        assert_eq!(ids(&catalogue.select("go/net-http").unwrap()), ["go/net-http"]);
        assert_eq!(ids(&catalogue.select("nim").unwrap()), ["nim/epoll", "nim/epoll:fast"]);
        assert_eq!(
            ids(&catalogue.select("*:fast").unwrap()),
            [
                "go/fasthttp:fast",
                "go/net-http:fast",
                "nim/epoll:fast",
                "rust/hyper:fast",
                "rust/hyper-0.10:fast"
            ]
        );
        assert_eq!(ids(&catalogue.select("go/*http").unwrap()), ["go/fasthttp", "go/net-http"]);
    }

    #[test]
    fn errors_of_broken_manifests_are_kept_and_hide_no_server() {
        let (_root, catalogue) = catalogue();
        let broken: Vec<_> = catalogue.broken.iter().map(ToString::to_string).collect();
        assert_eq!(broken.len(), 2);
        assert!(broken[0].ends_with(
            "go/empty/server.toml: this folder has no server.toml, which every server needs"
        ));
        assert!(broken[1].contains("nim/broken/server.toml:1: "));
        assert!(matches!(catalogue.select("nim/broken"), Err(CatalogueError::Broken(_))));
    }

    #[test]
    fn an_unknown_name_suggests_similar_ones() {
        let (_root, catalogue) = catalogue();
        let words = |name: &str| catalogue.select(name).unwrap_err().to_string();
        assert_eq!(
            words("go/net-htpp"),
            "no server \"go/net-htpp\" in the catalogue: did you mean go/net-http? `hotlap list` \
             shows all servers"
        );
        assert_eq!(
            words("hyper"),
            "no server \"hyper\" in the catalogue: did you mean rust/hyper, rust/hyper-0.10 or \
             rust/hyper:fast? `hotlap list` shows all servers"
        );
        assert_eq!(
            words("cobol/cics"),
            "no server \"cobol/cics\" in the catalogue: `hotlap list` shows all servers"
        );
    }

    #[test]
    fn a_missing_catalogue_is_an_error_that_names_its_folder() {
        let error = Catalogue::open(Path::new("/nonexistent/servers")).unwrap_err().to_string();
        let told = "cannot read the catalogue /nonexistent/servers: No such file";
        assert!(error.starts_with(told), "{error}");
    }

    #[test]
    fn a_pattern_selects_as_in_a_shell() {
        let (_root, catalogue) = catalogue();
        let ids = |pattern: &str| -> Vec<&str> {
            let found = catalogue.select(pattern).unwrap_or_default();
            found.iter().map(|server| server.id.as_str()).collect()
        };
        assert_eq!(ids("*").len(), catalogue.servers.len());
        assert_eq!(ids("go/*http:f*"), ["go/fasthttp:fast", "go/net-http:fast"]);
        assert_eq!(ids("nim/epol?"), ["nim/epoll"]);
        assert!(ids("nim/epo?").is_empty());
        assert!(ids("*a*z").is_empty());
    }

    #[test]
    fn a_swap_of_two_letters_is_one_edit() {
        let (_root, catalogue) = catalogue();
        // A third of five letters, rounded down, allows one edit.
        assert_eq!(catalogue.nearest("hypre"), ["rust/hyper"]);
    }
}
