//! The servers that are known: every folder under a root, looked up by name or pattern.
//!
//! A folder that cannot be read does not hide the others: it is kept as what is wrong with it.

use std::path::{Path, PathBuf};

use crate::manifest::{self, ManifestError, Server};

/// All servers under one root, sorted by id, and what is wrong with the folders that are none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalogue {
    /// Each server followed by its variants.
    pub servers: Vec<Server>,
    /// Folders whose manifest cannot be used.
    pub broken: Vec<ManifestError>,
}

/// What keeps a name from being a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// No catalogue there.
    #[error("catalogue {}: {why}: name the folder that holds <language>/<name>/server.toml",
            root.display())]
    NoRoot {
        /// Where it was looked for.
        root: PathBuf,
        /// The system's word.
        why: String,
    },
    /// No server has this name.
    #[error("no server {name:?} in the catalogue{}", nearest_words(nearest))]
    Unknown {
        /// As typed.
        name: String,
        /// What may have been meant, the nearest first.
        nearest: Vec<String>,
    },
    /// It is there, but its manifest cannot be used.
    #[error(transparent)]
    Broken(#[from] ManifestError),
}

fn nearest_words(nearest: &[String]) -> String {
    match nearest {
        [] => ": hotlap list shows what is there".to_owned(),
        [one] => format!(": did you mean {one}?"),
        [all @ .., last] => format!(": did you mean {} or {last}?", all.join(", ")),
    }
}

impl Catalogue {
    /// Reads every `<language>/<name>/` under `root`. Names that begin with a dot or an underscore
    /// are none.
    ///
    /// # Errors
    /// When `root` cannot be read.
    pub fn open(root: &Path) -> Result<Self, CatalogueError> {
        let no_root = |error: std::io::Error| CatalogueError::NoRoot {
            root: root.to_owned(),
            why: error.to_string(),
        };
        let mut catalogue = Self::default();
        for language in folders(root).map_err(no_root)? {
            for folder in folders(&language).map_err(no_root)? {
                let id = format!("{}/{}", name(&language), name(&folder));
                match manifest::read(&folder, &id) {
                    Ok(servers) => catalogue.servers.extend(servers),
                    Err(error) => catalogue.broken.push(error),
                }
            }
        }
        Ok(catalogue)
    }

    /// The server of exactly this id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.id == id)
    }

    /// All servers that a pattern means: an id; a language; or a pattern in which `*` stands for
    /// any characters and `?` for one. A pattern without a colon leaves variants out only when it
    /// is an id.
    ///
    /// # Errors When nothing matches: with the nearest names, or with what is wrong with the folder
    /// it names.
    pub fn select(&self, pattern: &str) -> Result<Vec<&Server>, CatalogueError> {
        let pattern = pattern.trim_end_matches('/');
        if let Some(server) = self.find(pattern) {
            return Ok(vec![server]);
        }
        let found: Vec<_> = self
            .servers
            .iter()
            .filter(|server| server.language() == pattern || matches(pattern, &server.id))
            .collect();
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

    /// Up to three ids that `name` may have meant.
    #[must_use]
    pub fn nearest(&self, name: &str) -> Vec<String> {
        nearest_of(name, self.servers.iter().map(|server| server.id.as_str()))
    }
}

/// Up to three of `ids` that `name` may have meant: ids that contain it, then those that few edits
/// lead to (a third of its length at most).
pub fn nearest_of<'a>(name: &str, ids: impl Iterator<Item = &'a str>) -> Vec<String> {
    let limit = (name.chars().count() / 3).max(1);
    let mut near: Vec<(usize, usize, &str)> = ids
        .filter_map(|id| {
            let short = id.split_once('/').map_or(id, |(_, short)| short);
            let contains = name.len() >= 2 && id.contains(name);
            let far = edits(name, id).min(edits(name, short));
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

/// Whether `*` and `?` in the pattern can be filled so that it reads as the name.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    p = star + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from one name to the other
/// (optimal string alignment distance: Boytsov, "Indexing methods for approximate dictionary
/// searching", 2011, section 2).
fn edits(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let replaced = last[j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[to.len()]
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

    fn ids(servers: &[&Server]) -> Vec<String> {
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
    fn broken_folders_are_kept_as_what_is_wrong_and_hide_nothing() {
        let (_root, catalogue) = catalogue();
        let broken: Vec<_> = catalogue.broken.iter().map(ToString::to_string).collect();
        assert_eq!(broken.len(), 2);
        assert!(broken[0].ends_with(
            "go/empty/server.toml: no server.toml in this folder: every server needs one"
        ));
        assert!(broken[1].contains("nim/broken/server.toml:1: "));
        assert!(matches!(catalogue.select("nim/broken"), Err(CatalogueError::Broken(_))));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let (_root, catalogue) = catalogue();
        let words = |name: &str| catalogue.select(name).unwrap_err().to_string();
        assert_eq!(
            words("go/net-htpp"),
            "no server \"go/net-htpp\" in the catalogue: did you mean go/net-http?"
        );
        assert_eq!(
            words("hyper"),
            "no server \"hyper\" in the catalogue: did you mean rust/hyper, rust/hyper-0.10 or \
             rust/hyper:fast?"
        );
        assert_eq!(
            words("cobol/cics"),
            "no server \"cobol/cics\" in the catalogue: hotlap list shows what is there"
        );
    }

    #[test]
    fn a_missing_catalogue_says_what_belongs_there() {
        let error = Catalogue::open(Path::new("/nonexistent/servers")).unwrap_err().to_string();
        assert!(error.starts_with("catalogue /nonexistent/servers: No such file"), "{error}");
    }

    #[test]
    fn patterns_match_as_a_shell_would_expect() {
        for (pattern, name, expected) in [
            ("*", "go/x", true),
            ("go/*", "go/x:y", true),
            ("go/?", "go/x", true),
            ("go/?", "go/xy", false),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbxc", false),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn edits_count_swaps_as_one() {
        assert_eq!(edits("htpt", "http"), 1);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
