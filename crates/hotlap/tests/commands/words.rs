//! Plain English: words that only the authors understood do not come back into what users and
//! contributors read.

use std::fs;
use std::path::{Path, PathBuf};

/// Words and phrases that were replaced, in lower case; each is found as whole words.
const REPLACED: [&str; 24] = [
    "dearer",
    "warden",
    "bout",
    "entrant",
    "contestant",
    "racing",
    "somebody waited",
    "not to be told",
    "is to be told",
    "what is to be said",
    "is told of",
    "are told of",
    "of no steady state",
    "true source",
    "the instrument",
    "held against",
    "good clients",
    "well again",
    "scarred by",
    "noise here today",
    "leave one away",
    "no valid lap counts",
    "whom",
    "nobody named",
];

/// The lines of a text that have a replaced word, with their numbers.
fn found(text: &str) -> Vec<(usize, String)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let has = |line: &str, words: &str| {
        line.match_indices(words).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + words.len()..].chars().next();
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        })
    };
    let lines = text.lines().enumerate().map(|(place, line)| (place + 1, line.to_lowercase()));
    lines.filter(|(_, line)| REPLACED.iter().any(|words| has(line, words))).collect()
}

fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        // Published figures and results quote others; stores and the changelog say what was.
        let is_out = name.starts_with('.')
            || ["target", "node_modules", "results", "CHANGELOG.md", "words.rs", "migrations"]
                .contains(&name.as_str());
        if is_out {
            continue;
        }
        if path.is_dir() {
            files(&path, all);
        } else if [".rs", ".md", ".toml", ".yml", ".sh", ".1"].iter().any(|end| name.ends_with(end))
        {
            all.push(path);
        }
    }
}

#[test]
fn replaced_words_do_not_come_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    files(&root, &mut all);
    assert!(all.len() > 200, "{}", all.len());
    let mut places = Vec::new();
    for path in all {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (line, text) in found(&text) {
            places.push(format!("{}:{line}: {}", path.display(), text.trim()));
        }
    }
    assert!(places.is_empty(), "say it in plain English:\n{}", places.join("\n"));
}

#[test]
fn a_replaced_word_is_found_as_a_whole_word() {
    let text = "It costs more.\nIt is Dearer: see below.\nA workaround, about rungs.\n";
    assert_eq!(found(text), [(2, "it is dearer: see below.".to_owned())]);
}
