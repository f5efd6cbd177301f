//! Import circles between the files of a crate.
//!
//! An arrow goes from a file to each file whose items it names, in a `use` or in a path within the
//! code: `crate::…`, `super::…`, `self::…`, or the name of a child module. Re-exports are followed
//! to the file that defines the item. `mod child;` alone is not an arrow, and neither are unit
//! tests. Files that reach each other by such arrows form a circle. So a parent may use its
//! children, and a child may use its parent's items, but not both.

use std::collections::{BTreeMap, BTreeSet};

/// The source files of a crate, by module path: `[]` is the root, `["worker", "slot"]` is
/// `worker/slot.rs`.
pub struct Crate {
    modules: BTreeMap<Vec<String>, Module>,
}

#[derive(Default)]
struct Module {
    file: String,
    children: BTreeSet<String>,
    /// Re-exported names, with the paths that they stand for.
    exports: BTreeMap<String, Vec<String>>,
    /// All paths in the code, as written, with their line numbers.
    paths: Vec<(usize, Vec<String>)>,
}

/// An arrow from one file to another, and where it is.
type Arrows = BTreeMap<(Vec<String>, Vec<String>), (usize, String)>;

impl Crate {
    /// A crate of these files: paths relative to `src`, and contents. With a `lib.rs`, the program
    /// in `main.rs` is another crate.
    pub fn new(files: &[(String, String)]) -> Self {
        let has_lib = files.iter().any(|(name, _)| name == "lib.rs");
        let mut modules = BTreeMap::new();
        for (name, text) in files {
            if (name == "main.rs" && has_lib) || name.starts_with("bin/") {
                continue;
            }
            modules.insert(module_path(name), Module::read(name, text));
        }
        Self { modules }
    }

    /// One line for each circle: the files in it, and the arrows between them.
    pub fn circles(&self) -> Vec<String> {
        let arrows = self.arrows();
        let reached: BTreeMap<_, _> =
            self.modules.keys().map(|from| (from, reachable(from, &arrows))).collect();
        let mut circles = Vec::new();
        let mut seen = BTreeSet::new();
        for from in self.modules.keys() {
            let circle: BTreeSet<_> =
                reached[from].iter().filter(|to| reached[*to].contains(from)).collect();
            if circle.is_empty() || seen.contains(&circle) {
                continue;
            }
            let within =
                arrows.iter().filter(|((a, b), _)| circle.contains(a) && circle.contains(b));
            let within: Vec<String> = within
                .map(|((a, b), (line, path))| {
                    format!("{}:{line} → {} ({path})", self.modules[a].file, self.modules[b].file)
                })
                .collect();
            circles.push(format!("{} files:\n    {}", circle.len(), within.join("\n    ")));
            seen.insert(circle);
        }
        circles
    }

    fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (from, module) in &self.modules {
            for (line, path) in &module.paths {
                if let Some(to) = self.resolve(from, path, 0)
                    && to != *from
                {
                    arrows.entry((from.clone(), to)).or_insert((*line, path.join("::")));
                }
            }
        }
        arrows
    }

    /// The file that defines what a path in `module` names; `None` if it is not in this crate.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module.split_last()?.1.to_vec(),
            child if self.modules.get(module)?.children.contains(child) => {
                [module, &[child.to_owned()]].concat()
            }
            _ => return None,
        };
        while let Some((name, behind)) = rest.split_first() {
            let here = self.modules.get(&at)?;
            if name == "super" {
                at.pop();
            } else if here.children.contains(name) {
                at.push(name.clone());
            } else if let Some(export) = here.exports.get(name)
                && depth < 8
            {
                return self.resolve(&at, export, depth + 1).or(Some(at));
            } else {
                break;
            }
            rest = behind;
        }
        self.modules.contains_key(&at).then_some(at)
    }
}

/// All files that can be reached from a file by at least one arrow.
fn reachable(from: &[String], arrows: &Arrows) -> BTreeSet<Vec<String>> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from.to_vec()]);
    while let Some(at) = open.pop() {
        for (_, to) in arrows.keys().filter(|(a, _)| *a == at) {
            if found.insert(to.clone()) {
                open.push(to.clone());
            }
        }
    }
    found
}

/// `worker/slot.rs` → `["worker", "slot"]`, `lib.rs` → `[]`.
fn module_path(name: &str) -> Vec<String> {
    let stem = name.trim_end_matches(".rs");
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    match stem {
        "lib" | "main" => Vec::new(),
        _ => stem.split('/').map(str::to_owned).collect(),
    }
}

impl Module {
    fn read(file: &str, text: &str) -> Self {
        let code = blank(text);
        let mut module = Self { file: file.to_owned(), ..Self::default() };
        let tokens = tokens(&code);
        for window in tokens.windows(3) {
            if let [(_, "mod"), (_, name), (_, ";")] = window {
                module.children.insert((*name).to_owned());
            }
        }
        let mut at = 0;
        while at < tokens.len() {
            let (line, token) = tokens[at];
            // Not the captured lifetimes of `impl Trait + use<'a>`.
            if token == "use" && tokens.get(at + 1).is_some_and(|t| t.1 != "<") {
                let is_export = tokens[..at].iter().rev().take_while(|t| t.1 != ";" && t.1 != "}");
                let is_export = is_export.map(|t| t.1).any(|t| t == "pub");
                at += 1;
                let mut found = Vec::new();
                use_tree(&tokens, &mut at, &[], &mut found);
                for (path, name) in found {
                    if is_export {
                        module.exports.insert(name, path.clone());
                    }
                    module.paths.push((line, path));
                }
            } else if is_name(token) && tokens.get(at + 1).is_some_and(|t| t.1 == "::") {
                let mut path = vec![token.to_owned()];
                while let [(_, "::"), (_, name), ..] = tokens[at + 1..]
                    && is_name(name)
                {
                    path.push(name.to_owned());
                    at += 2;
                }
                module.paths.push((line, path));
            }
            at += 1;
        }
        module
    }
}

/// Reads the tree of a `use`: all paths in it, with the names that they get. Ends at its `;`.
fn use_tree(
    tokens: &[(usize, &str)],
    at: &mut usize,
    prefix: &[String],
    found: &mut Vec<(Vec<String>, String)>,
) {
    let mut path = prefix.to_vec();
    while let Some((_, token)) = tokens.get(*at) {
        match *token {
            "::" => {}
            "{" => {
                *at += 1;
                while tokens.get(*at).is_some_and(|t| t.1 != "}") {
                    use_tree(tokens, at, &path, found);
                    if tokens.get(*at).is_some_and(|t| t.1 == ",") {
                        *at += 1;
                    }
                }
                *at += 1;
                return;
            }
            "as" => {
                *at += 1;
                let name = tokens.get(*at).map_or("", |t| t.1).to_owned();
                found.push((path, name));
                *at += 1;
                return;
            }
            "*" => {}
            "," | "}" | ";" => break,
            name => path.push(name.to_owned()),
        }
        *at += 1;
    }
    // `a::{self}` names `a`.
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if path.len() > prefix.len() || !prefix.is_empty() {
        let name = path.last().cloned().unwrap_or_default();
        found.push((path, name));
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::`, and single characters, with their line numbers.
fn tokens(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let length = if c.is_alphanumeric() || c == '_' {
                rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                c.len_utf8()
            };
            if !c.is_whitespace() {
                found.push((number + 1, &rest[..length]));
            }
            rest = &rest[length..];
        }
    }
    found
}

/// The code without its unit tests, comments, and the contents of strings.
fn blank(text: &str) -> String {
    let end = text.find("\nmod tests {").unwrap_or(text.len());
    let mut code = String::new();
    let mut rest = &text[..end];
    while let Some(c) = rest.chars().next() {
        let raw = rest.strip_prefix('r').map(|r| r.len() - r.trim_start_matches('#').len());
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(hashes) = raw
            && rest[1 + hashes..].starts_with('"')
            && !code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
        {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = &rest[2 + hashes..];
            2 + hashes + body.find(&close).map_or(body.len(), |at| at + close.len())
        } else if c == '"' {
            string_length(rest)
        } else if rest.starts_with("'\"'") {
            3
        } else if rest.starts_with("'\\\"'") {
            4
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        code.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
        rest = &rest[skipped..];
    }
    code
}

/// The length of a string literal, quotes included.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !is_escaped => return at + 1,
            _ => is_escaped = c == '\\' && !is_escaped,
        }
    }
    text.len()
}

#[test]
fn circles_are_found_whatever_they_look_like() {
    let circles = |files: &[(&str, &str)]| {
        let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        let files: Vec<_> = files.iter().map(own).collect();
        Crate::new(&files).circles()
    };
    let root = ("lib.rs", "mod a;\nmod b;\npub use a::A;\n");
    let uses = |path: &str| format!("use {path};\nfn f() {{}}\n");
    for back in ["crate::a::A", "super::a::{self, A}", "crate::{b::B, A}", "super::A as X"] {
        let b = uses(back);
        let found = circles(&[root, ("a.rs", "use crate::b;\n"), ("b.rs", &b)]);
        assert_eq!(found.len(), 1, "{back}");
        assert!(found[0].starts_with("2 files:\n    a.rs:1 → b.rs (crate::b)"), "{}", found[0]);
    }
    // A path in the code, and not in a comment, a string or a unit test.
    let b = "/// As crate::a::A.\nfn f() { let s = \"crate::a::A\"; }\n";
    let tests = format!("{b}#[cfg(test)]\nmod tests {{\n    use crate::a::A;\n}}\n");
    assert!(circles(&[root, ("a.rs", "use crate::b;\n"), ("b.rs", &tests)]).is_empty());
    let code = format!("{b}fn g() -> crate::a::A {{ todo() }}\n");
    assert_eq!(circles(&[root, ("a.rs", "use crate::b;\n"), ("b.rs", &code)]).len(), 1);
    // A parent may use its child, and a child its parent, but not both.
    let root = ("lib.rs", "mod a;\n");
    let (up, down) = (("a/c.rs", "use super::A;\n"), ("a.rs", "mod c;\nuse c::C;\n"));
    assert!(circles(&[root, ("a.rs", "mod c;\n"), up]).is_empty());
    assert!(circles(&[root, down, ("a/c.rs", "")]).is_empty());
    assert_eq!(circles(&[root, down, up]).len(), 1);
    // A sibling that the parent re-exports is no item of the parent.
    let parent = ("a.rs", "mod c;\nmod d;\npub use c::C;\npub use d::{D, E as F};\n");
    assert!(
        circles(&[root, parent, ("a/c.rs", "use super::{D, F};\n"), ("a/d.rs", "")]).is_empty()
    );
    // Through three files.
    let root = ("lib.rs", "mod a;\nmod b;\nmod c;\n");
    let (a, b) = (("a.rs", "use crate::b::B;\n"), ("b.rs", "use super::c;\n"));
    let found = circles(&[root, a, b, ("c.rs", "fn f() { crate::a::f() }\n")]);
    assert!(found[0].starts_with("3 files:"), "{found:?}");
}
