//! Finds the modules of a crate that import each other.
//!
//! A module is a file of the crate's root together with the files of its folder, which may import
//! each other. An arrow goes from a module to each module that it names, in a `use` or in a path
//! within the code. Names that the root re-exports are followed to the module that defines them.
//! The root itself is not a module, and unit tests are ignored. Modules that reach each other by
//! such arrows form a circle.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The words of a path. The module `worker/slot.rs` has the path `["worker", "slot"]`, and the root
/// has `[]`.
type Path = Vec<String>;

/// The source files of a crate, by module.
pub struct Crate(BTreeMap<Path, Module>);

#[derive(Default)]
struct Module {
    file: String,
    children: BTreeSet<String>,
    /// Re-exported names, with the paths that they refer to.
    exports: BTreeMap<String, Path>,
    /// All paths in the code, as written.
    paths: Vec<Path>,
}

/// An arrow from one module to another, with the file and the path that cause it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrow {
    pub from: String,
    pub to: String,
    pub text: String,
}

impl Crate {
    /// Creates a crate of these files, each with its path relative to `src` and its content. If
    /// there is a `lib.rs`, the program in `main.rs` is another crate.
    pub fn new(files: &[(String, String)]) -> Self {
        let has_lib = files.iter().any(|(name, _)| name == "lib.rs");
        let is_in = |name: &str| !(name == "main.rs" && has_lib || name.starts_with("bin/"));
        let files = files.iter().filter(|(name, _)| is_in(name));
        Self(files.map(|(name, text)| (module(name), Module::read(name, text))).collect())
    }

    pub fn arrows(&self) -> BTreeSet<Arrow> {
        let mut arrows = BTreeSet::new();
        for (at, module) in &self.0 {
            let Some(from) = at.first() else { continue };
            for path in &module.paths {
                let is_module = |name: &&String| self.0.contains_key(&vec![(*name).clone()]);
                let named = path.get(1).filter(|name| path[0] == "crate" && is_module(name));
                let to = named.cloned().or_else(|| self.resolve(at, path, 0)?.first().cloned());
                if let Some(to) = to.filter(|to| to != from) {
                    let text = format!("{} → {to} ({})", module.file, path.join("::"));
                    arrows.insert(Arrow { from: from.clone(), to, text });
                }
            }
        }
        arrows
    }

    /// Returns the arrows that are part of a circle.
    pub fn circles(&self) -> Vec<Arrow> {
        let arrows = self.arrows();
        let reaches = |from: &String, to: &String| {
            let (mut found, mut open) = (BTreeSet::new(), vec![from]);
            while let Some(at) = open.pop() {
                let next = arrows.iter().filter(|next| next.from == *at).map(|next| &next.to);
                open.extend(next.filter(|to| found.insert(*to)));
            }
            found.contains(to)
        };
        let pairs: BTreeSet<_> = arrows.iter().map(|arrow| (&arrow.from, &arrow.to)).collect();
        let circles = pairs.into_iter().filter(|(from, to)| reaches(to, from));
        let circles: BTreeSet<_> = circles.map(|(a, b)| (a.clone(), b.clone())).collect();
        let is_in = |arrow: &Arrow| circles.contains(&(arrow.from.clone(), arrow.to.clone()));
        arrows.into_iter().filter(is_in).collect()
    }

    /// Returns the file that defines what a path in `module` names, or `None` if that file is not
    /// in this crate.
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

/// Returns the path of a module: `["worker", "slot"]` for `worker/slot.rs`, and `[]` for `lib.rs`.
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
            // The captured lifetimes of `impl Trait + use<'a>` are not an import.
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

/// Reads all paths in the tree of a `use`, with the names that they get. Ends at the `;` of the
/// `use`.
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

/// Splits code into names, `::` and single characters, without comments, literals and unit tests.
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
                let is_module = tokens.len() > 3 && tokens[tokens.len() - 3] == "mod";
                let head = &tokens[..tokens.len().saturating_sub(3)];
                let test = ["cfg", "(", "test", ")", ")"].map(str::to_owned);
                if !(is_module && head.ends_with(&test)) {
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
        let circles = Crate::new(&files).circles();
        circles.into_iter().map(|arrow| arrow.text).collect::<Vec<_>>()
    };
    let root = ("lib.rs", "mod a;\nmod b;\npub use a::A;\n");
    let uses = |path: &str| format!("use {path};\nfn f() {{}}\n");
    for back in ["crate::a::A", "super::a::{self,}", "crate::{b::B, A,}", "super::A as X"] {
        let b = uses(back);
        let found = circles(&[root, ("a.rs", "use crate::b;\n"), ("b.rs", &b)]);
        assert_eq!((found.len(), found[0].as_str()), (2, "a.rs → b (crate::b)"), "{back}");
    }
    // A path in the code counts, but a path in a comment, a string or a unit test does not.
    let b = "/// As crate::a::A.\nfn f() { let s = \"crate::a::A\"; }\n";
    let tests = format!("{b}#[cfg(test)]\nmod own_tests {{\n    use crate::a::A;\n}}\n");
    assert!(circles(&[root, ("a.rs", "use crate::b;\n"), ("b.rs", &tests)]).is_empty());
    let code = format!("{b}fn g() -> crate::a::A {{ todo() }}\n");
    assert_eq!(circles(&[root, ("a.rs", "use crate::b;\n"), ("b.rs", &code)]).len(), 2);
    // The files of a folder form one module with the file above it.
    let (up, down) = (("a/c.rs", "use super::A;\n"), ("a.rs", "mod c;\nuse c::C;\n"));
    assert!(circles(&[("lib.rs", "mod a;\n"), down, up]).is_empty());
    let (a, c) = (("a.rs", "mod c;\n"), ("a/c.rs", "use crate::b::B;\n"));
    assert_eq!(circles(&[root, a, c, ("b.rs", "use super::a::c::C;\n")]).len(), 2);
    // A circle may go through three modules.
    let root = ("lib.rs", "mod a;\nmod b;\nmod c;\n");
    let (a, b) = (("a.rs", "use crate::b::B;\n"), ("b.rs", "use super::c;\n"));
    assert_eq!(circles(&[root, a, b, ("c.rs", "fn f() { crate::a::f() }\n")]).len(), 3);
}
