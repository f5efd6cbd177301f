//! Which files of a crate import each other.
//!
//! An arrow goes from a file to each file whose items it names, in a `use` or in a path within the
//! code: `crate::…`, `super::…`, `self::…`, or the name of a child module. Re-exports are followed
//! to the file that defines the item. `mod child;` alone is not an arrow, and neither are unit
//! tests. Files that reach each other by such arrows form a circle. So a parent may use its
//! children, and a child may use its parent's items, but not both.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The words of a path: of a module, `["worker", "slot"]` is `worker/slot.rs` and `[]` the root.
type Path = Vec<String>;

/// The source files of a crate, by module.
pub struct Crate(BTreeMap<Path, Module>);

#[derive(Default)]
struct Module {
    file: String,
    children: BTreeSet<String>,
    /// Re-exported names, with the paths that they stand for.
    exports: BTreeMap<String, Path>,
    /// All paths in the code, as written.
    paths: Vec<Path>,
}

/// An arrow from one module to another, and the path that makes it.
pub struct Arrow {
    pub from: Path,
    pub to: Path,
    pub text: String,
}

impl Crate {
    /// A crate of these files: paths relative to `src`, and contents. With a `lib.rs`, the program
    /// in `main.rs` is another crate.
    pub fn new(files: &[(String, String)]) -> Self {
        let has_lib = files.iter().any(|(name, _)| name == "lib.rs");
        let is_in = |name: &str| !(name == "main.rs" && has_lib || name.starts_with("bin/"));
        let files = files.iter().filter(|(name, _)| is_in(name));
        Self(files.map(|(name, text)| (module(name), Module::read(name, text))).collect())
    }

    pub fn arrows(&self) -> Vec<Arrow> {
        let mut arrows = BTreeMap::new();
        for (from, module) in &self.0 {
            for path in &module.paths {
                if let Some(to) = self.resolve(from, path, 0).filter(|to| to != from) {
                    arrows.entry((from.clone(), to)).or_insert(path.join("::"));
                }
            }
        }
        arrows
            .into_iter()
            .map(|((from, to), path)| {
                let text = format!("{} → {} ({path})", self.0[&from].file, self.0[&to].file);
                Arrow { from, to, text }
            })
            .collect()
    }

    /// The arrows that are part of a circle.
    pub fn circles(&self) -> Vec<String> {
        let arrows = self.arrows();
        let mut next: BTreeMap<&Path, Vec<&Path>> = BTreeMap::new();
        arrows.iter().for_each(|arrow| next.entry(&arrow.from).or_default().push(&arrow.to));
        let reached = |from| {
            let (mut found, mut open) = (BTreeSet::new(), vec![from]);
            while let Some(at) = open.pop() {
                let next = next.get(at).into_iter().flatten().copied();
                open.extend(next.filter(|to| found.insert(*to)));
            }
            found
        };
        let reached: BTreeMap<_, _> = self.0.keys().map(|from| (from, reached(from))).collect();
        let leads_back = |arrow: &&Arrow| reached[&arrow.to].contains(&arrow.from);
        arrows.iter().filter(leads_back).map(|arrow| arrow.text.clone()).collect()
    }

    /// The file that defines what a path in `module` names; `None` if it is not in this crate.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<Path> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module.split_last()?.1.to_vec(),
            child if self.0.get(module)?.children.contains(child) => {
                [module, &[child.to_owned()]].concat()
            }
            _ => return None,
        };
        while let Some((name, behind)) = rest.split_first() {
            let here = self.0.get(&at)?;
            if name == "super" {
                at.pop();
            } else if here.children.contains(name) {
                at.push(name.clone());
            } else if let Some(export) = here.exports.get(name).filter(|_| depth < 8) {
                return self.resolve(&at, export, depth + 1).or(Some(at));
            } else {
                break;
            }
            rest = behind;
        }
        self.0.contains_key(&at).then_some(at)
    }
}

/// `worker/slot.rs` → `["worker", "slot"]`, `lib.rs` → `[]`.
fn module(name: &str) -> Path {
    let stem = name.trim_end_matches(".rs");
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    match stem {
        "lib" | "main" => Vec::new(),
        _ => stem.split('/').map(str::to_owned).collect(),
    }
}

impl Module {
    fn read(file: &str, text: &str) -> Self {
        let mut tokens = Vec::new();
        flatten(text.parse().unwrap_or_else(|error| panic!("{file}: {error}")), &mut tokens);
        let mut module = Self { file: file.to_owned(), ..Self::default() };
        let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token == text);
        let mut at = 0;
        while at < tokens.len() {
            if is(at, "mod") && is(at + 2, ";") {
                module.children.insert(tokens[at + 1].clone());
            // Not the captured lifetimes of `impl Trait + use<'a>`.
            } else if is(at, "use") && !is(at + 1, "<") {
                let mut before = tokens[..at].iter().rev().take_while(|t| *t != ";" && *t != "}");
                let is_export = before.any(|token| token == "pub");
                at += 1;
                let mut found = Vec::new();
                read_use(&tokens, &mut at, &[], &mut found);
                for (path, name) in found {
                    if is_export {
                        module.exports.insert(name, path.clone());
                    }
                    module.paths.push(path);
                }
            } else if is_name(&tokens[at]) && is(at + 1, "::") {
                let mut path = vec![tokens[at].clone()];
                while is(at + 1, "::") && tokens.get(at + 2).is_some_and(|name| is_name(name)) {
                    path.push(tokens[at + 2].clone());
                    at += 2;
                }
                module.paths.push(path);
            }
            at += 1;
        }
        module
    }
}

/// Reads the tree of a `use`: all paths in it, with the names that they get. Ends at its `;`.
fn read_use(tokens: &[String], at: &mut usize, prefix: &[String], found: &mut Vec<(Path, String)>) {
    let mut path = prefix.to_vec();
    let mut name = None;
    loop {
        match tokens[*at].as_str() {
            "{" => {
                *at += 1;
                while tokens[*at] != "}" {
                    read_use(tokens, at, &path, found);
                    *at += usize::from(tokens[*at] == ",");
                }
                *at += 1;
                return;
            }
            "," | "}" | ";" => break,
            "as" => name = tokens.get(*at + 1).cloned(),
            "::" | "*" | "self" if path.len() > prefix.len() || !prefix.is_empty() => {}
            word if name.is_none() && word != "::" => path.push(word.to_owned()),
            _ => {}
        }
        *at += 1;
    }
    if let Some(last) = path.last().cloned() {
        found.push((path, name.unwrap_or(last)));
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::` and single characters, without comments, literals and unit tests.
fn flatten(stream: TokenStream, tokens: &mut Vec<String>) {
    for tree in stream {
        match tree {
            TokenTree::Ident(name) => tokens.push(name.to_string()),
            TokenTree::Literal(_) => tokens.push("\"\"".to_owned()),
            TokenTree::Punct(c)
                if c.as_char() == ':' && tokens.last().is_some_and(|t| t == ":") =>
            {
                *tokens.last_mut().expect("a colon") = "::".to_owned();
            }
            TokenTree::Punct(c) => tokens.push(c.to_string()),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    _ => ("(", ")"),
                };
                tokens.push(open.to_owned());
                if !tokens.ends_with(&["mod", "tests", "{"].map(str::to_owned)) {
                    flatten(group.stream(), tokens);
                }
                tokens.push(close.to_owned());
            }
        }
    }
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
        assert_eq!((found.len(), found[0].as_str()), (2, "a.rs → b.rs (crate::b)"), "{back}");
    }
    // A path in the code, and not in a comment, a string or a unit test.
    let b = "/// As crate::a::A.\nfn f() { let s = \"crate::a::A\"; }\n";
    let tests = format!("{b}#[cfg(test)]\nmod tests {{\n    use crate::a::A;\n}}\n");
    assert!(circles(&[root, ("a.rs", "use crate::b;\n"), ("b.rs", &tests)]).is_empty());
    let code = format!("{b}fn g() -> crate::a::A {{ todo() }}\n");
    assert_eq!(circles(&[root, ("a.rs", "use crate::b;\n"), ("b.rs", &code)]).len(), 2);
    // A parent may use its child, and a child its parent, but not both.
    let root = ("lib.rs", "mod a;\n");
    let (up, down) = (("a/c.rs", "use super::A;\n"), ("a.rs", "mod c;\nuse c::C;\n"));
    assert!(circles(&[root, ("a.rs", "mod c;\n"), up]).is_empty());
    assert!(circles(&[root, down, ("a/c.rs", "")]).is_empty());
    assert_eq!(circles(&[root, down, up]).len(), 2);
    // A sibling that the parent re-exports is no item of the parent.
    let parent = ("a.rs", "mod c;\nmod d;\npub use c::C;\npub use d::{D, E as F};\n");
    let child = ("a/c.rs", "use super::{D, F};\n");
    assert!(circles(&[root, parent, child, ("a/d.rs", "")]).is_empty());
    // Through three files.
    let root = ("lib.rs", "mod a;\nmod b;\nmod c;\n");
    let (a, b) = (("a.rs", "use crate::b::B;\n"), ("b.rs", "use super::c;\n"));
    assert_eq!(circles(&[root, a, b, ("c.rs", "fn f() { crate::a::f() }\n")]).len(), 3);
}
