//! Tests rules that Cargo cannot check: which module may import which, and what keeps code
//! readable.

use crate::circles::Crate;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the files under a folder of the repository with one of these endings, except for build
/// output.
fn files(folder: &str, endings: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    let mut read: Vec<(String, String)> = found
        .into_iter()
        .filter(|path| endings.iter().any(|e| path.to_string_lossy().ends_with(e)))
        .filter_map(|path| {
            let name = path.strip_prefix(root()).ok()?.to_string_lossy().into_owned();
            Some((name, fs::read_to_string(&path).ok()?))
        })
        .collect();
    read.sort();
    read
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    const BUILT: [&str; 4] = ["target", "node_modules", "corpus", "artifacts"];
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            if !name.starts_with('.') && !BUILT.contains(&name.as_str()) {
                walk(&path, found);
            }
        } else {
            found.push(path);
        }
    }
}

/// Returns a source without its unit tests, which are at the end of a file.
fn code(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

/// Fails with one line for each breach.
fn none(rule: &str, breaches: Vec<String>) {
    assert!(breaches.is_empty(), "{rule}:\n  {}", breaches.join("\n  "));
}

#[test]
fn files_are_short_lines_are_narrow_and_names_are_nouns_of_the_domain() {
    let junk = ["util", "utils", "helper", "helpers", "common", "manager", "misc"];
    let mut breaches = Vec::new();
    for (name, text) in files("crates", &[".rs", ".sql"]) {
        let stem = name.rsplit('/').next().unwrap_or(&name).replace(".rs", "");
        if text.lines().count() > 900 || junk.contains(&stem.as_str()) {
            breaches.push(name.clone());
        }
        for (number, line) in text.lines().enumerate() {
            // Error messages, which are one sentence, and tables in tests may have long lines.
            let is_text = line.trim_start().starts_with(['"', '|'])
                || line.contains("@\"")
                || name.contains("/tests/");
            if line.chars().count() > 100 && !is_text {
                breaches.push(format!("{name}:{}", number + 1));
            }
        }
    }
    none("files have at most 900 lines of at most 100 columns, and speaking names", breaches);
    let main = fs::read_to_string(root().join("crates/hotlap/src/main.rs")).unwrap();
    assert!(main.lines().count() <= 65, "main is a table of contents");
}

/// A ratchet: existing long functions may become shorter or disappear, but no further one may be
/// added.
#[test]
fn functions_over_70_lines_are_rare() {
    const KNOWN: usize = 6;
    let is_head = |line: &str| {
        let before = line.trim_start().split("fn ").next().unwrap_or_default();
        let is_part = |w: &str| w.starts_with("pub") || ["const", "unsafe", "async"].contains(&w);
        line.contains("fn ") && !line.ends_with(';') && before.split_whitespace().all(is_part)
    };
    let mut long = Vec::new();
    for (name, text) in files("crates", &[".rs"]).iter().filter(|(n, _)| n.contains("/src/")) {
        let mut began: Option<(usize, String)> = None;
        for (number, line) in code(text).lines().enumerate() {
            let indent = &line[..line.len() - line.trim_start().len()];
            match &began {
                None if is_head(line) => began = Some((number, format!("{indent}}}"))),
                Some((start, end)) if line.trim_end() == end => {
                    if number - start + 1 > 70 {
                        long.push(format!("{name}:{}: {} lines", start + 1, number - start + 1));
                    }
                    began = None;
                }
                _ => {}
            }
        }
    }
    assert!(long.len() <= KNOWN, "functions over 70 lines:\n  {}", long.join("\n  "));
}

fn crates() -> Vec<(String, Crate)> {
    let folders = fs::read_dir(root().join("crates")).unwrap().flatten();
    let names = folders.map(|folder| folder.file_name().to_string_lossy().into_owned());
    let read = |name: String| {
        let folder = format!("crates/{name}/src");
        let files = files(&folder, &[".rs"]).into_iter();
        let files: Vec<_> =
            files.map(|(path, text)| (path[folder.len() + 1..].to_owned(), text)).collect();
        (name, Crate::new(&files))
    };
    names.map(read).collect()
}

/// The modules of the tool that have a fixed place, each with the only modules that it may import.
/// A module that is not listed here may import any module, but not in a circle.
const IMPORTS: [(&str, &[&str]); 6] = [
    ("text", &[]),
    ("model", &[]),
    ("store", &["model", "redact"]),
    ("analysis", &["model"]),
    ("report", &["analysis", "model", "text"]),
    ("render", &["report", "text"]),
];

#[test]
fn imports_form_no_circles_and_go_down_only() {
    let crates = crates();
    let circles = crates.iter().flat_map(|(name, own)| {
        own.circles().into_iter().map(move |arrow| format!("{name}: {}", arrow.text))
    });
    none("modules do not import each other in a circle", circles.collect());
    let (_, tool) = crates.iter().find(|(name, _)| name == "hotlap").unwrap();
    let arrows = tool.arrows();
    for (module, allowed) in IMPORTS {
        assert!(arrows.iter().any(|arrow| arrow.to == module), "{module} is gone");
        let own = arrows.iter().filter(|arrow| arrow.from == module);
        let foreign = own.filter(|arrow| !allowed.contains(&arrow.to.as_str()));
        let foreign = foreign.map(|arrow| arrow.text.clone()).collect();
        none("arrows between modules go down only", foreign);
    }
}

/// Words that only some files may have in their code. The fields are the rule, the files to which
/// it applies, the exceptions among these files, and the words.
type Belongs =
    (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

const BELONGS: [Belongs; 9] = [
    (
        "only the store, the database of a run and the floor speak SQL",
        &["crates/"],
        &[
            "crates/hotlap/src/store",
            "crates/hotlap-servers/src/database",
            "crates/hotlap-testbed/src/floor.rs",
        ],
        &["rusqlite", "SELECT ", "INSERT ", "CREATE TABLE"],
    ),
    (
        "only the command line knows clap",
        &["crates/"],
        &["crates/hotlap/src/cli"],
        &["clap::", "clap_complete::"],
    ),
    (
        "flags of run end in RunSpec",
        &["crates/hotlap/src/cmd/run/"],
        &["crates/hotlap/src/cmd/run/spec"],
        &["crate::cli"],
    ),
    (
        "hdrhistogram is used by the module histogram alone",
        &["crates/"],
        &["crates/hotlap-stats/src/histogram"],
        &["hdrhistogram::"],
    ),
    (
        "renderers see the finished report, and text nothing of what hotlap measures",
        &["crates/hotlap/src/render", "crates/hotlap/src/text"],
        &[],
        &["hotlap_"],
    ),
    (
        "only commands and main know the commands",
        &["crates/hotlap/src/"],
        &["crates/hotlap/src/cmd", "crates/hotlap/src/main.rs"],
        &["crate::cmd"],
    ),
    (
        "only the tool prints",
        &["crates/"],
        &["crates/hotlap/", "crates/hotlap-testkit/"],
        &["println!", "print!(", "dbg!"],
    ),
    (
        "what is printed goes through console, which shows control characters as escapes and \
         leaves secrets out",
        &["crates/hotlap/src/"],
        &["crates/hotlap/src/console.rs", "crates/hotlap/src/export/sink.rs"],
        &["io::stdout()", "io::stderr()", "println!", "eprint!"],
    ),
    ("a name says what, not that it is got", &["crates/"], &[], &["fn get_"]),
];

#[test]
fn words_stand_only_where_they_belong() {
    let files = files("crates", &[".rs"]);
    for (rule, within, except, words) in BELONGS {
        let mut breaches = Vec::new();
        let begins = |name: &str, with: &[&str]| with.iter().any(|begin| name.starts_with(begin));
        let own = files.iter().filter(|(name, _)| {
            name.contains("/src/") && begins(name, within) && !begins(name, except)
        });
        for (name, text) in own {
            let lines = code(text).lines().enumerate();
            let lines = lines.filter(|(_, line)| !line.trim_start().starts_with("//"));
            let wrong = lines.filter(|(_, line)| words.iter().any(|word| line.contains(word)));
            breaches.extend(wrong.map(|(at, line)| format!("{name}:{}: {}", at + 1, line.trim())));
        }
        none(rule, breaches);
    }
    // The words are in two parts, so that this file does not break the rule itself.
    let words = [["todo", "!("], ["unimplemented", "!("], ["FIX", "ME"], ["XX", "X "]];
    let is_undone =
        |(_, text): &&(String, String)| words.iter().any(|w| text.contains(&w.concat()));
    let undone = files.iter().filter(is_undone).map(|(name, _)| name.clone());
    none("nothing is left for later", undone.collect());
}

/// Words that only the authors understood and that were replaced, in lower case. Only whole words
/// match.
const REPLACED: [&str; 23] = [
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

/// Returns the lines of a text that have a replaced word, with their numbers.
fn replaced(text: &str) -> Vec<(usize, String)> {
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

/// Published figures and results quote other people, and the changelog describes earlier versions.
/// These files may have replaced words.
#[test]
fn replaced_words_do_not_come_back() {
    let all = files("", &[".rs", ".md", ".toml", ".yml", ".sh", ".1"]);
    assert!(all.len() > 200, "{}", all.len());
    let is_ours = |name: &str| {
        !name.starts_with("results/") && name != "CHANGELOG.md" && !name.ends_with("/tidy.rs")
    };
    let mut places = Vec::new();
    for (name, text) in all.iter().filter(|(name, _)| is_ours(name)) {
        let found = replaced(text).into_iter();
        places.extend(found.map(|(line, text)| format!("{name}:{line}: {}", text.trim())));
    }
    none("say it in plain English", places);
    let text = "It costs more.\nIt is Dearer: see below.\nA workaround, about rungs.\n";
    assert_eq!(replaced(text), [(2, "it is dearer: see below.".to_owned())]);
}

#[test]
fn every_folder_of_the_catalogue_is_read() {
    let catalogue = hotlap_servers::catalogue::Catalogue::open(&root().join("servers")).unwrap();
    let broken = catalogue.broken.iter().map(ToString::to_string).collect();
    none("every server.toml parses", broken);
    assert!(!catalogue.servers.is_empty());
}

/// Checks that the first section is about this version and has entries. The heading is `## 0.1.0`
/// after the release and `## Unreleased (0.1.0)` before it.
fn first_section(changes: &str, version: &str) -> Result<(), String> {
    let mut sections = changes.split("\n## ").skip(1);
    let section = sections.next().ok_or("there is no section")?;
    let (head, entries) = section.split_once('\n').ok_or("the first section is empty")?;
    let word = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    if !head.split(|c| !word(c)).any(|part| part == version) {
        return Err(format!("the first section, {head:?}, is not of version {version}"));
    }
    match entries.lines().any(|line| line.starts_with("- ")) {
        true => Ok(()),
        false => Err(format!("{head:?} has no entries")),
    }
}

/// Regression: the check passed for any version as long as the word Unreleased occurred anywhere.
#[test]
fn the_version_is_in_the_changelog() {
    let changes = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    assert_eq!(first_section(&changes, env!("CARGO_PKG_VERSION")), Ok(()));
    let of = |head: &str, entries: &str| {
        first_section(&format!("# Changelog\n\n## {head}\n\n{entries}\n"), "0.2.0")
    };
    assert_eq!(of("Unreleased (0.2.0)", "- a change"), Ok(()));
    assert_eq!(of("0.2.0 (2026-12-01)", "- a change"), Ok(()));
    for head in ["Unreleased (0.1.0)", "Unreleased", "0.1.0", "0.12.0"] {
        assert!(of(head, "- a change").is_err(), "{head}");
    }
    assert!(of("0.2.0", "").is_err());
}

#[test]
fn the_lockfile_stays_small() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let packages = lock.lines().filter(|l| *l == "[[package]]").count();
    assert!(packages < 200, "{packages} packages");
}
