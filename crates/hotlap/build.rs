//! Embeds the catalogue and the suites in the binary, so that `cargo install` gives a tool that
//! works without its checkout. `src/assets.rs` unpacks them.

use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// What builds and package managers leave behind. The catalogue itself has none of these.
const LEFTOVERS: [&str; 8] =
    ["target", "node_modules", "__pycache__", "venv", "nimcache", "_build", "deps", "server"];

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let root = root.join("../..");
    let mut files = Vec::new();
    for folder in ["servers", "suites"] {
        let folder = root.join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        collect(&folder, &mut files);
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    let mut source = String::from("const FILES: &[(&str, &[u8])] = &[\n");
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file.strip_prefix(&root).expect("collected under the root");
        let full = fs::canonicalize(file).expect("it was just listed");
        (name, fs::read(file).expect("it was just listed")).hash(&mut hasher);
        writeln!(source, "    ({name:?}, include_bytes!({full:?})),").expect("a String takes all");
    }
    let key = hasher.finish();
    writeln!(source, "];\nconst KEY: &str = \"{key:016x}\";").expect("a String takes all");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    fs::write(out.join("assets.rs"), source).expect("OUT_DIR is writable");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let hidden = name.starts_with('.') && !name.starts_with(".formatter");
        let left_over = LEFTOVERS.contains(&name.as_ref());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !hidden && !left_over => collect(&path, files),
            Ok(kind) if kind.is_file() && !hidden && !(left_over && path.extension().is_none()) => {
                files.push(path);
            }
            _ => {}
        }
    }
}
