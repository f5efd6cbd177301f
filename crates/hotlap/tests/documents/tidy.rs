//! Rules that Cargo cannot check: which module may import which, and what keeps code readable.

use crate::circles;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Files under a folder of the repository with one of these endings; what is built is none of it.
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

/// Source without its unit tests, which stand at the foot of a file.
fn code(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

/// Fails with one line for each breach.
fn none(rule: &str, breaches: Vec<String>) {
    assert!(breaches.is_empty(), "{rule}:\n  {}", breaches.join("\n  "));
}

fn lines_with(files: &[(String, String)], is_wrong: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut breaches = Vec::new();
    for (name, text) in files {
        for (number, line) in code(text).lines().enumerate() {
            if is_wrong(name, line) {
                breaches.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    breaches
}

#[test]
fn no_file_is_longer_than_900_lines() {
    let long = |(name, text): &(String, String)| {
        let lines = text.lines().count();
        (lines > 900).then(|| format!("{name}: {lines}"))
    };
    none(
        "files have at most 900 lines",
        files("crates", &[".rs"]).iter().filter_map(long).collect(),
    );
}

#[test]
fn no_line_is_longer_than_100_columns() {
    let mut long = Vec::new();
    for (name, text) in files("crates", &[".rs", ".sql"]) {
        for (number, line) in text.lines().enumerate() {
            // An error message is one sentence, and a table in a test is as wide as it is.
            let is_text = line.trim_start().starts_with(['"', '|']) || name.contains("/tests/");
            if line.chars().count() > 100 && !is_text {
                long.push(format!("{name}:{}", number + 1));
            }
        }
    }
    none("lines have at most 100 columns", long);
}

#[test]
fn main_is_a_table_of_contents() {
    let main = fs::read_to_string(root().join("crates/hotlap/src/main.rs")).unwrap();
    assert!(main.lines().count() <= 65);
}

/// A ratchet: long functions that there are may shrink and go, and no further one may come.
#[test]
fn functions_over_70_lines_are_rare() {
    const KNOWN: usize = 6;
    let mut long = Vec::new();
    for (name, text) in files("crates", &[".rs"]).iter().filter(|(n, _)| n.contains("/src/")) {
        let mut began: Option<(usize, usize, String)> = None;
        for (number, line) in code(text).lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let is_head = line.trim_start().split("fn ").next().is_some_and(|before| {
                line.contains("fn ")
                    && before
                        .split_whitespace()
                        .all(|w| w.starts_with("pub") || ["const", "unsafe", "async"].contains(&w))
            });
            match &began {
                None if is_head && !line.trim_end().ends_with(';') => {
                    began = Some((number, indent, line.trim().to_owned()));
                }
                Some((start, at, head)) if line.trim_end() == format!("{}}}", " ".repeat(*at)) => {
                    if number - start + 1 > 70 {
                        long.push(format!(
                            "{name}:{}: {} lines: {head}",
                            start + 1,
                            number - start + 1
                        ));
                    }
                    began = None;
                }
                _ => {}
            }
        }
    }
    assert!(
        long.len() <= KNOWN,
        "{} functions over 70 lines:\n  {}",
        long.len(),
        long.join("\n  ")
    );
}

const CRATES: [&str; 8] = [
    "hotlap-stats",
    "hotlap-load",
    "hotlap-observe",
    "hotlap-servers",
    "hotlap-agent",
    "hotlap-bench",
    "hotlap-testbed",
    "hotlap",
];

#[test]
fn imports_form_no_circles() {
    let mut breaches = Vec::new();
    for name in CRATES {
        let folder = format!("crates/{name}/src");
        let files: Vec<(String, String)> = files(&folder, &[".rs"])
            .into_iter()
            .map(|(path, text)| (path[folder.len() + 1..].to_owned(), text))
            .collect();
        assert!(files.iter().any(|(path, _)| path == "lib.rs"), "no such crate: {name}");
        let circles = circles::Crate::new(&files).circles();
        breaches.extend(circles.into_iter().map(|circle| format!("{name}: {circle}")));
    }
    none("files do not import each other in a circle", breaches);
}

#[test]
fn only_the_store_speaks_sql() {
    let words = ["rusqlite", "SELECT ", "INSERT ", "CREATE TABLE"];
    let files = files("crates", &[".rs"]);
    let breaches = lines_with(&files, |name, line| {
        name.contains("/src/")
            && !name.starts_with("crates/hotlap/src/store")
            && !line.trim_start().starts_with("//")
            && words.iter().any(|w| line.contains(w))
    });
    none("SQL is in the store alone", breaches);
}

#[test]
fn only_the_command_line_knows_clap() {
    let breaches = lines_with(&files("crates", &[".rs"]), |name, line| {
        !name.starts_with("crates/hotlap/src/cli")
            && name.contains("/src/")
            && (line.contains("clap::") || line.contains("clap_complete::"))
            && !line.trim_start().starts_with("//")
    });
    none("clap is in cli alone", breaches);
}

/// What was typed for `run` is read in one place, and is one value from there on.
#[test]
fn only_the_spec_reads_the_flags_of_run() {
    let breaches = lines_with(&files("crates/hotlap/src/cmd/run", &[".rs"]), |name, line| {
        !name.starts_with("crates/hotlap/src/cmd/run/spec") && line.contains("crate::cli")
    });
    none("flags of run end in RunSpec", breaches);
}

#[test]
fn only_one_module_names_the_histogram_library() {
    let breaches = lines_with(&files("crates", &[".rs"]), |name, line| {
        !name.starts_with("crates/hotlap-stats/src/histogram")
            && name.contains("/src/")
            && line.contains("hdrhistogram::")
    });
    none("hdrhistogram is used by the module histogram alone", breaches);
}

/// The modules of the tool that have a fixed place, each with the modules that it may import. What
/// is not listed below a module lies above it or beside it.
const IMPORTS: [(&str, &[&str]); 6] = [
    ("text", &[]),
    ("model", &["redact"]),
    ("store", &["model", "redact"]),
    ("analysis", &["model"]),
    ("report", &["analysis", "model", "text"]),
    ("render", &["report", "text"]),
];

#[test]
fn modules_import_only_those_below_them() {
    let mut breaches = Vec::new();
    for (module, allowed) in IMPORTS {
        let root = format!("crates/hotlap/src/{module}");
        let files = files("crates/hotlap/src", &[".rs"]);
        let mut own = files.iter().filter(|(name, _)| {
            *name == format!("{root}.rs") || name.starts_with(&format!("{root}/"))
        });
        let first = own.next().unwrap_or_else(|| panic!("{root} is gone"));
        for (name, text) in std::iter::once(first).chain(own) {
            let foreign = |import: &String| import != module && !allowed.contains(&&**import);
            let found = imports(code(text)).into_iter().filter(foreign);
            breaches.extend(found.map(|import| format!("{name} imports {import}")));
        }
    }
    none("arrows between modules go down only", breaches);
}

/// The modules of its own crate that a file names: `crate::text::x`, `use crate::{redact, text}`.
fn imports(code: &str) -> Vec<String> {
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let ident = |text: &str| {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        text[..end].to_owned()
    };
    let mut found = Vec::new();
    for after in code.split("crate::").skip(1) {
        match after.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            Some((list, _)) => found.extend(list.split(',').map(|one| ident(one.trim()))),
            None => found.push(ident(after)),
        }
    }
    found.retain(|import| !import.is_empty());
    found
}

#[test]
fn imports_are_found_in_each_form() {
    let code = "use crate::{redact, text::number};\n// crate::no\nlet x = crate::model::Run;";
    assert_eq!(imports(code), ["redact", "text", "model"]);
}

/// Renderers see words and figures, and text nothing of what hotlap measures.
#[test]
fn renderers_cannot_compute() {
    let breaches = lines_with(&files("crates/hotlap/src", &[".rs"]), |name, line| {
        ["render", "text"].iter().any(|m| name.starts_with(&format!("crates/hotlap/src/{m}")))
            && line.contains("hotlap_")
            && !line.trim_start().starts_with("//")
    });
    none("renderers see the finished report only", breaches);
}

#[test]
fn only_commands_and_the_console_know_the_commands() {
    let breaches = lines_with(&files("crates/hotlap/src", &[".rs"]), |name, line| {
        !name.contains("/cmd") && !name.ends_with("main.rs") && line.contains("crate::cmd")
    });
    none("main alone calls cmd", breaches);
}

#[test]
fn libraries_do_not_print() {
    let breaches = lines_with(&files("crates", &[".rs"]), |name, line| {
        name.contains("/src/")
            && !name.starts_with("crates/hotlap/")
            && ["println!", "eprintln!", "print!(", "dbg!"].iter().any(|p| line.contains(p))
            && !line.trim_start().starts_with("//")
    });
    none("only the tool prints", breaches);
}

/// All that is printed passes the one place that shows control characters as escapes and leaves
/// secrets out.
#[test]
fn only_the_console_and_exports_write_to_the_terminal() {
    let breaches = lines_with(&files("crates/hotlap/src", &[".rs"]), |name, line| {
        let ways = ["io::stdout()", "io::stderr()", "println!", "eprint!"];
        !name.ends_with("/console.rs")
            && !name.ends_with("/export/sink.rs")
            && !line.trim_start().starts_with("//")
            && ways.iter().any(|way| line.contains(way))
    });
    none("what is printed goes through console", breaches);
}

#[test]
fn no_file_is_a_junk_drawer() {
    let junk = ["util", "utils", "helper", "helpers", "common", "manager", "misc"];
    let stem = |name: &str| name.rsplit('/').next().unwrap_or(name).replace(".rs", "");
    let breaches = files("crates", &[".rs"])
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| junk.contains(&stem(name).as_str()))
        .collect();
    none("each file is a noun of the domain", breaches);
}

#[test]
fn nothing_is_left_undone_in_the_code() {
    // Spelled apart, so that this file does not trip over itself.
    let words = [["todo", "!("], ["unimplemented", "!("], ["FIX", "ME"], ["XX", "X "]];
    let breaches = lines_with(&files("crates", &[".rs"]), |_, line| {
        words.iter().any(|w| line.contains(&w.concat()))
    });
    none("nothing is left for later", breaches);
}

#[test]
fn public_names_have_no_get() {
    let breaches = lines_with(&files("crates", &[".rs"]), |name, line| {
        name.contains("/src/") && line.contains("fn get_")
    });
    none("a name says what, not that it is got", breaches);
}

#[test]
fn every_folder_of_the_catalogue_is_read() {
    let catalogue = hotlap_servers::catalogue::Catalogue::open(&root().join("servers")).unwrap();
    let broken = catalogue.broken.iter().map(ToString::to_string).collect();
    none("every server.toml parses", broken);
    assert!(!catalogue.servers.is_empty());
}

#[test]
fn the_version_is_in_the_changelog() {
    let changes = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    if let Err(wrong) = first_section(&changes, env!("CARGO_PKG_VERSION")) {
        panic!("CHANGELOG.md: {wrong}");
    }
}

/// The first section is of this version, released or not: `## 0.1.0`, `## Unreleased (0.1.0)`, and
/// has entries.
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

/// The test above passed whatever the version was, as long as the word Unreleased was somewhere.
#[test]
fn a_changelog_of_another_version_is_noticed() {
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
