//! Finds the names of the functions at addresses of a process.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Cursor};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};

use crate::call;
use crate::functions::{Elf, Functions, ask_jvm, compiled, jvm_socket, perf_map};
use crate::observation::Frame;

/// The library name of code that a runtime compiled.
const JIT: &str = "jit";

/// The assumed largest size of a function without a name, in bytes.
const SHORT: u64 = 4096;

/// Names the functions of processes.
#[derive(Debug)]
pub(crate) struct Symbols {
    processes: HashMap<u32, Code>,
    /// The files by device and inode. A file that cannot be read has no functions.
    files: HashMap<(i32, i32, u64), Arc<Elf>>,
    /// The names that were already looked up.
    known: HashMap<(u32, u64), Option<Frame>>,
    /// Files that runtimes wrote for hotlap, which are removed on drop. `None` if the files do not
    /// belong to hotlap.
    leftovers: Option<BTreeSet<PathBuf>>,
    /// Whether there was compiled code without any list of names.
    is_unnamed: bool,
}

/// The executable memory of a process.
#[derive(Debug)]
struct Code {
    maps: Vec<MemoryMap>,
    /// All memory of the process, if it may be read.
    memory: Option<File>,
    compiled: Option<Functions>,
}

impl Symbols {
    /// Returns an empty table of names. For a server that hotlap started, the files in which
    /// runtimes list functions are removed on drop.
    pub(crate) fn new(is_started: bool) -> Self {
        Self {
            processes: HashMap::new(),
            files: HashMap::new(),
            known: HashMap::new(),
            leftovers: is_started.then(BTreeSet::new),
            is_unnamed: false,
        }
    }

    /// Remembers the mappings of a process, in case it ends before its symbols are read.
    pub(crate) fn remember(&mut self, pid: u32) {
        if !self.processes.contains_key(&pid)
            && let Some(maps) = executable(pid)
        {
            self.processes.insert(pid, Code { maps, memory: memory(pid), compiled: None });
        }
    }

    /// Reads the mappings and the compiled functions of these processes again, and forgets all
    /// other processes.
    pub(crate) fn refresh(&mut self, pids: impl Iterator<Item = u32>) {
        let mut before = std::mem::take(&mut self.processes);
        self.known.clear();
        self.is_unnamed = false;
        for pid in pids {
            match executable(pid).filter(|maps| !maps.is_empty()) {
                Some(maps) => {
                    let compiled = self.compiled(pid, &maps);
                    self.processes.insert(pid, Code { maps, memory: memory(pid), compiled });
                }
                None => self.processes.extend(before.remove_entry(&pid)),
            }
        }
    }

    /// Returns whether compiled code without any list of names was seen since the last refresh.
    pub(crate) fn is_unnamed(&self) -> bool {
        self.is_unnamed
    }

    /// Returns whether an address is in executable memory of a process, as far as known.
    pub(crate) fn is_code(&self, pid: u32, address: u64) -> bool {
        let code = self.processes.get(&pid);
        code.is_some_and(|code| code.maps.iter().any(|map| contains(map, address)))
    }

    /// Returns whether the instruction before `returns_to` called the function that contains
    /// `inside`.
    pub(crate) fn calls(&mut self, pid: u32, returns_to: u64, inside: u64) -> bool {
        let Some(code) = self.processes.get(&pid) else { return false };
        let read =
            |address, into: &mut [u8]| code.memory.as_ref()?.read_exact_at(into, address).ok();
        match call::target(returns_to, read) {
            Some(call::Target::Function(target)) => {
                match (self.frame(pid, target), self.frame(pid, inside)) {
                    (Some(one), Some(other)) if one.function.starts_with('[') => {
                        one == other && (target..target + SHORT).contains(&inside)
                    }
                    (one, other) => one.is_some() && one == other,
                }
            }
            Some(call::Target::Register) => {
                let start = self.start(code, inside);
                start.is_some_and(|start| !call::keeps_frame(start, read))
            }
            None => false,
        }
    }

    /// Returns the start of the function that contains an address, if its file was read.
    fn start(&self, code: &Code, address: u64) -> Option<u64> {
        let map = code.maps.iter().find(|map| contains(map, address))?;
        let offset = address - map.address.0 + map.offset;
        let (into, _) = self.files.get(&key(map))?.place(offset)?;
        Some(address - into)
    }

    /// Returns the function at an address. `None` if the address is not executable.
    pub(crate) fn frame(&mut self, pid: u32, address: u64) -> Option<Frame> {
        if let Some(known) = self.known.get(&(pid, address)) {
            return known.clone();
        }
        let frame = self.look_up(pid, address);
        self.known.insert((pid, address), frame.clone());
        frame
    }

    fn look_up(&mut self, pid: u32, address: u64) -> Option<Frame> {
        let Some(code) = self.processes.get(&pid) else {
            // The process ended before anything was known about it.
            return Some(named("[ended process]", "unknown"));
        };
        let map = code.maps.iter().find(|map| contains(map, address))?;
        let Some(library) = library(&map.pathname) else {
            let function = code.compiled.as_ref().and_then(|compiled| compiled.at(address));
            self.is_unnamed |= code.compiled.is_none();
            return Some(named(function.unwrap_or("[jit]"), JIT));
        };
        let offset = address - map.address.0 + map.offset;
        let elf = match self.files.get(&key(map)) {
            Some(elf) => Arc::clone(elf),
            None => {
                let elf = Arc::new(read(pid, map).unwrap_or_default());
                self.files.insert(key(map), Arc::clone(&elf));
                elf
            }
        };
        let unnamed = || format!("[{library}]");
        let function = elf.place(offset).map_or_else(unnamed, |(_, name)| name.to_owned());
        Some(Frame { function, library })
    }

    /// Returns the functions that a process's runtime has compiled, if the runtime lists them.
    fn compiled(&mut self, pid: u32, maps: &[MemoryMap]) -> Option<Functions> {
        let list = perf_map(pid);
        if maps.iter().any(|map| library(&map.pathname).as_deref() == Some("libjvm.so")) {
            ask_jvm(pid);
            self.leave(pid, &jvm_socket(&list));
        }
        let compiled = compiled(pid, &list).ok()?;
        self.leave(pid, &list);
        Some(compiled)
    }

    /// Notes a file under the root folder of a process, to be removed on drop. The file must also
    /// exist in hotlap's root folder, because the root folder of the process disappears with the
    /// process.
    fn leave(&mut self, pid: u32, path: &Path) {
        let Some(leftovers) = &mut self.leftovers else { return };
        let here =
            path.strip_prefix(format!("/proc/{pid}/root")).map(|path| Path::new("/").join(path));
        let inode = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
        let is_same = |here: &PathBuf| inode(here).is_some() && inode(here) == inode(path);
        leftovers.extend(here.ok().filter(is_same));
    }
}

impl Drop for Symbols {
    fn drop(&mut self) {
        for path in self.leftovers.iter().flatten() {
            let _ = fs::remove_file(path);
        }
    }
}

fn contains(map: &MemoryMap, address: u64) -> bool {
    (map.address.0..map.address.1).contains(&address)
}

fn named(function: &str, library: &str) -> Frame {
    Frame { function: function.to_owned(), library: library.to_owned() }
}

/// Returns the executable mappings of a process. `None` if the process has ended or may not be
/// inspected.
fn executable(pid: u32) -> Option<Vec<MemoryMap>> {
    let maps = Process::new(pid.cast_signed()).ok()?.maps().ok()?;
    Some(maps.0.into_iter().filter(|map| map.perms.contains(MMPermissions::EXECUTE)).collect())
}

/// Returns the name of the mapped file, without its folders. `None` for memory without a file,
/// which a runtime uses for compiled code.
fn library(path: &MMapPath) -> Option<String> {
    match path {
        MMapPath::Path(path) => {
            let name = path.file_name()?.to_str()?;
            let is_memory = name.starts_with("memfd:") || path.starts_with("/dev/zero");
            let name = name.strip_suffix(" (deleted)").unwrap_or(name);
            (!is_memory).then(|| name.to_owned())
        }
        MMapPath::Vdso => Some("vdso".to_owned()),
        MMapPath::Vsyscall => Some("vsyscall".to_owned()),
        _ => None,
    }
}

/// Returns the memory of a process. `None` if the process has ended or may not be inspected.
fn memory(pid: u32) -> Option<File> {
    File::open(format!("/proc/{pid}/mem")).ok()
}

fn key(map: &MemoryMap) -> (i32, i32, u64) {
    (map.dev.0, map.dev.1, map.inode)
}

/// Reads the symbols of a mapped file.
fn read(pid: u32, map: &MemoryMap) -> io::Result<Elf> {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    match &map.pathname {
        MMapPath::Path(path) => {
            let (start, end) = map.address;
            // This path works even if the file was deleted or replaced, but needs more privileges.
            let mapped = File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
            let inside = || File::open(root.join(path.strip_prefix("/").unwrap_or(path)));
            Elf::read(mapped.or_else(|_| inside())?, &root)
        }
        MMapPath::Vdso => {
            let (start, end) = map.address;
            let mut bytes = vec![0; (end - start) as usize];
            let memory = memory(pid).ok_or(io::ErrorKind::PermissionDenied)?;
            memory.read_exact_at(&mut bytes, start)?;
            Elf::parse(Cursor::new(bytes), &root)
        }
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}
