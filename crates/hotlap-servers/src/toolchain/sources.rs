//! The sources of a server: they determine the name of its build, and are copied to be built.

use std::fs;
use std::hash::Hasher;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fnv::FnvHasher;

use crate::manifest::{FILE_NAME, Server};

/// Folders of a working copy that are not sources.
const LEFTOVERS: [&str; 4] = [".git", "target", "node_modules", "__pycache__"];

/// The files of a folder, sorted, relative to it. Symbolic links are not followed.
fn files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name();
            if LEFTOVERS.iter().any(|leftover| name == *leftover) {
                continue;
            }
            let path = folder.join(&name);
            if entry.file_type()?.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

/// Copies the sources to a folder.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for file in files(from)? {
        let target = to.join(&file);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        let source = from.join(&file);
        if source.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

/// The name of a build: the server's name and a hash of everything that the build depends on. What
/// matters only at run time (command, environment, description) is left out, so variants share a
/// build.
///
/// The hash is 64-bit FNV-1a: builds outlive a hotlap release, and the standard library's hash may
/// change between releases. With a million builds, the chance that two of them share a name is 1 in
/// 4 × 10⁷.
pub(super) fn key(server: &Server, receipt: &str) -> io::Result<String> {
    let mut hasher = FnvHasher::default();
    // Hash the length of each part too, so that parts cannot run into each other.
    let mut add = |part: &[u8]| {
        hasher.write(part);
        hasher.write(&(part.len() as u64).to_le_bytes());
    };
    add(b"1");
    add(std::env::consts::ARCH.as_bytes());
    add(std::env::consts::OS.as_bytes());
    add(receipt.as_bytes());
    for argv in server.toolchain.build.iter().chain([&server.toolchain.version]) {
        add(&(argv.len() as u64).to_le_bytes());
        argv.iter().for_each(|word| add(word.as_bytes()));
    }
    for file in files(&server.folder)? {
        if file == Path::new(FILE_NAME) {
            continue;
        }
        let path = server.folder.join(&file);
        add(file.as_os_str().as_encoded_bytes());
        if path.is_symlink() {
            add(fs::read_link(&path)?.as_os_str().as_encoded_bytes());
        } else {
            add(&[u8::from(path.metadata()?.permissions().mode() & 0o100 != 0)]);
            add(&fs::read(&path)?);
        }
    }
    Ok(format!("{}-{:016x}", server.base_id().replace('/', "-"), hasher.finish()))
}
