//! Finds functions by address in ELF files, in the running kernel, and in the code that a runtime
//! compiles.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use object::read::elf::ElfFile64;
use object::{
    Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, ReadCacheOps,
    SymbolKind,
};

use crate::observation::{Frame, KERNEL};
use crate::processes::status_field;

/// The functions of one file or address space, with their addresses.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    /// The start, end and name of each function, sorted by start.
    sorted: Vec<(u64, u64, String)>,
}

impl Functions {
    /// Builds the functions from the start, size and name of each. Of two functions at the same
    /// address, the later one in the list counts. A function without a size reaches to the next
    /// function.
    pub(crate) fn new(list: impl IntoIterator<Item = (u64, u64, String)>) -> Self {
        let mut by_start: HashMap<u64, (u64, String)> = HashMap::new();
        for (start, size, name) in list {
            by_start.insert(start, (size, name));
        }
        let mut sorted: Vec<(u64, u64, String)> =
            by_start.into_iter().map(|(start, (size, name))| (start, size, name)).collect();
        sorted.sort_unstable();
        for at in 0..sorted.len() {
            let next = sorted.get(at + 1).map_or(u64::MAX, |next| next.0);
            let one = &mut sorted[at];
            // From here on, the second value is the end of the function.
            one.1 = if one.1 == 0 { next } else { one.0.saturating_add(one.1).min(next) };
        }
        Self { sorted }
    }

    /// Builds the functions from the list of a runtime that compiles, with the start, size and name
    /// of each. Of functions that overlap, only the latest counts, because the memory of the others
    /// was freed.
    pub(crate) fn latest(list: impl IntoIterator<Item = (u64, u64, String)>) -> Self {
        let mut alive: BTreeMap<u64, (u64, String)> = BTreeMap::new();
        for (start, size, name) in list {
            let end = start.saturating_add(size);
            while let Some((&other, (until, _))) = alive.range(..end).next_back()
                && *until > start
            {
                alive.remove(&other);
            }
            alive.insert(start, (end, name));
        }
        Self { sorted: alive.into_iter().map(|(start, (end, name))| (start, end, name)).collect() }
    }

    /// Returns the name of the function that contains an address.
    pub(crate) fn at(&self, address: u64) -> Option<&str> {
        self.place(address).map(|(_, name)| name)
    }

    /// Returns the offset of an address in the function that contains it, and the name of the
    /// function.
    pub(crate) fn place(&self, address: u64) -> Option<(u64, &str)> {
        let after = self.sorted.partition_point(|(start, ..)| *start <= address);
        let (start, end, name) = self.sorted.get(after.checked_sub(1)?)?;
        (address < *end).then_some((address - start, name.as_str()))
    }

    /// Returns whether there are no functions.
    pub(crate) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

/// Returns a name as its language writes it, without the hash of Rust and the parameters of C++.
pub(crate) fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let cpp = name.starts_with("_Z").then(|| cpp_demangle::Symbol::new(name).ok()).flatten();
    cpp.and_then(|symbol| symbol.demangle_with_options(&options).ok())
        .unwrap_or_else(|| name.to_owned())
}

/// The functions of an ELF file.
#[derive(Debug, Default)]
pub(crate) struct Elf {
    /// The offset in the file, size and address of each part that is loaded.
    parts: Vec<(u64, u64, u64)>,
    functions: Functions,
}

impl Elf {
    /// Reads an executable or a library. If the file has no symbol table, its debug file is read
    /// too: `usr/lib/debug/.build-id/ab/cdef….debug` in the folder `root`.
    ///
    /// # Errors
    /// The file is not a 64-bit ELF file, or cannot be read.
    pub(crate) fn read(file: File, root: &Path) -> io::Result<Self> {
        Self::parse(file, root)
    }

    /// Reads an ELF file from any source, such as a copy of the vDSO that the kernel maps into
    /// every process.
    pub(crate) fn parse(source: impl Read + Seek, root: &Path) -> io::Result<Self> {
        let cache = ReadCache::new(source);
        let elf = open(&cache)?;
        let parts = elf.segments().map(|segment| {
            let (offset, size) = segment.file_range();
            (offset, size, segment.address())
        });
        let mut list: Vec<(u64, u64, String)> = Vec::new();
        if elf.symbols().next().is_none()
            && let Ok(Some(id)) = elf.build_id()
            && let Ok(file) = File::open(debug_file(root, id))
            && let Ok(debug) = open(&ReadCache::new(file))
        {
            list.extend(debug.symbols().filter_map(|symbol| function(&debug, &symbol)));
        }
        list.extend(elf.dynamic_symbols().filter_map(|symbol| function(&elf, &symbol)));
        list.extend(elf.symbols().filter_map(|symbol| function(&elf, &symbol)));
        // If one function has several names (`write`, `__write`), the plainest name counts.
        let underscores = |name: &str| name.len() - name.trim_start_matches('_').len();
        list.sort_by_cached_key(|(.., name)| {
            Reverse((underscores(name), name.len(), name.clone()))
        });
        Ok(Self { parts: parts.collect(), functions: Functions::new(list) })
    }

    /// Returns the function that contains an offset of the file: the distance from the function's
    /// start, and the function's name.
    pub(crate) fn place(&self, offset: u64) -> Option<(u64, &str)> {
        let within = |(start, size, _): &&(u64, u64, u64)| (*start..start + size).contains(&offset);
        let (start, _, address) = self.parts.iter().find(within)?;
        self.functions.place(offset - start + address)
    }
}

fn open<R: ReadCacheOps>(
    cache: &ReadCache<R>,
) -> io::Result<ElfFile64<'_, Endianness, &ReadCache<R>>> {
    ElfFile64::parse(cache).map_err(io::Error::other)
}

/// Returns the start, size and name of a function. Assembly may leave out the type or the size of a
/// symbol. A symbol without a size reaches to the end of its section, or to the next symbol.
fn function<'a>(
    elf: &impl Object<'a>,
    symbol: &impl ObjectSymbol<'a>,
) -> Option<(u64, u64, String)> {
    let is_code = match symbol.kind() {
        SymbolKind::Text => true,
        SymbolKind::Unknown => symbol.size() > 0,
        _ => false,
    };
    let is_here = is_code && symbol.is_definition() && symbol.address() > 0;
    let name = symbol.name().ok().filter(|name| is_here && !name.is_empty())?;
    let size = match symbol.size() {
        0 => {
            let section = elf.section_by_index(symbol.section_index()?).ok()?;
            (section.address() + section.size()).checked_sub(symbol.address())?
        }
        size => size,
    };
    Some((symbol.address(), size, demangled(name)))
}

fn debug_file(root: &Path, id: &[u8]) -> PathBuf {
    use std::fmt::Write;
    let mut hex = String::new();
    id.iter().for_each(|byte| _ = write!(hex, "{byte:02x}"));
    let (first, rest) = hex.split_at(hex.len().min(2));
    root.join("usr/lib/debug/.build-id").join(first).join(format!("{rest}.debug"))
}

/// The functions of the running kernel.
#[derive(Debug)]
pub(crate) struct Kernel(Functions);

/// Returns the functions of the running kernel. The list has about 100,000 lines and is read at the
/// first call.
pub(crate) fn kernel() -> &'static Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    KERNEL.get_or_init(|| {
        Kernel(parse_kallsyms(&fs::read_to_string("/proc/kallsyms").unwrap_or_default()))
    })
}

impl Kernel {
    /// Returns whether the kernel shows its addresses.
    pub(crate) fn is_readable(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the function at an address of the kernel.
    pub(crate) fn frame(&self, address: u64) -> Frame {
        let function = self.0.at(address).unwrap_or("[kernel]").to_owned();
        Frame { function, library: KERNEL.to_owned() }
    }
}

/// Parses lines such as `ffffffff81000000 T _text` and `ffffffffc0000000 t probe [module]`. If the
/// kernel hides its addresses, all of them are zero.
fn parse_kallsyms(text: &str) -> Functions {
    Functions::new(text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address > 0)?;
        let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
        let name = words.next()?.to_owned();
        is_code.then_some((address, 0, name))
    }))
}

/// The time limit for a JVM to write its list. The JVM writes the list at its next safe point,
/// within a few milliseconds. Starting `jcmd` takes most of the time.
const JVM_LIMIT: Duration = Duration::from_secs(10);

/// The largest number of bytes that are read from a list. A list of 100,000 functions has about 10
/// MB.
const LONGEST: u64 = 256 << 20;

/// Returns the path of the file in which a process's runtime lists the functions that it compiles.
/// The file is in the root folder of the process, and is named after the process id that the
/// process itself sees.
///
/// The kernel's tools/perf/Documentation/jit-interface.txt defines the format: one line for each
/// function, `START SIZE NAME`, with hexadecimal numbers, in `/tmp/perf-PID.map`. Node
/// (`--perf-basic-prof`) and Python (`-X perf`) write the file while they compile. A JVM writes it
/// on request.
pub(crate) fn perf_map(pid: u32) -> PathBuf {
    let ids = status_field(pid, "NSpid:");
    let own = ids.split_whitespace().last().and_then(|id| id.parse().ok()).unwrap_or(pid);
    PathBuf::from(format!("/proc/{pid}/root/tmp/perf-{own}.map"))
}

/// Returns the path of the socket at which a JVM takes requests, next to its list. A JVM that is
/// killed leaves the socket behind.
pub(crate) fn jvm_socket(list: &Path) -> PathBuf {
    let name = list.file_stem().unwrap_or_default().to_string_lossy().replace("perf-", ".java_pid");
    list.with_file_name(name)
}

/// Reads the list of a runtime. The list must belong to the process's user or to root, because
/// anyone may write to `/tmp`.
///
/// # Errors
/// There is no list, or the list belongs to another user.
pub(crate) fn compiled(pid: u32, path: &Path) -> io::Result<Functions> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let (meta, process) = (file.metadata()?, fs::metadata(format!("/proc/{pid}"))?);
    if !meta.is_file() || ![0, process.uid()].contains(&meta.uid()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(parse_perf_map(&String::from_utf8_lossy(&bytes)))
}

fn parse_perf_map(text: &str) -> Functions {
    Functions::latest(text.lines().filter_map(|line| {
        let mut words = line.splitn(3, ' ');
        let mut hex = || {
            let word = words.next()?;
            u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
        };
        let (start, size) = (hex()?, hex()?);
        let name = words.next()?.trim();
        (size > 0 && !name.is_empty()).then(|| (start, size, plain(name)))
    }))
}

/// Returns the name of a function without the marks of the compiler that compiled it.
fn plain(name: &str) -> String {
    // V8 writes the kind of the function, then a mark for how it runs: interpreted, baseline,
    // mid-tier or optimized.
    let kinds = ["JS:", "LazyCompile:", "Function:", "Eval:", "Script:"];
    let javascript = kinds.iter().find_map(|kind| name.strip_prefix(kind));
    let Some(function) = javascript else { return name.to_owned() };
    let function = function.trim_start_matches(['~', '^', '+', '*', '\'']);
    match function.strip_prefix(' ') {
        Some(place) => format!("(anonymous) {}", place.trim_start()),
        None => function.to_owned(),
    }
}

/// Asks a JVM to write its list, which JDK 17 and later can do. Returns whether the JVM wrote its
/// list. `jcmd` must be next to the JVM's program or in `PATH`, and the process must not be frozen.
pub(crate) fn ask_jvm(pid: u32) -> bool {
    let own = fs::read_link(format!("/proc/{pid}/exe"));
    let own = own.ok().map(|java| java.with_file_name("jcmd")).filter(|jcmd| jcmd.exists());
    let program = own.unwrap_or_else(|| PathBuf::from("jcmd"));
    let mut command = Command::new(program);
    command.arg(pid.to_string()).arg("Compiler.perfmap");
    command.env_remove("JAVA_TOOL_OPTIONS");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let until = Instant::now() + JVM_LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(10)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_function_that_contains_it() {
        let one = |start, size, name: &str| (start, size, name.to_owned());
        let functions = Functions::new([
            one(0x300, 0, "open_ended"),
            one(0x100, 0x20, "early"),
            one(0x200, 0x80, "old"),
            one(0x200, 0x40, "new"),
            one(0x400, 0x10, "last"),
        ]);
        let at = |address| functions.at(address);
        assert_eq!([at(0xff), at(0x100), at(0x11f)], [None, Some("early"), Some("early")]);
        assert_eq!([at(0x120), at(0x23f), at(0x240)], [None, Some("new"), None]);
        assert_eq!([at(0x3ff), at(0x40f), at(0x410)], [Some("open_ended"), Some("last"), None]);
    }

    #[test]
    fn a_function_ends_where_the_next_one_begins() {
        let one = |start, size, name: &str| (start, size, name.to_owned());
        let functions = Functions::new([one(0x100, 0x100, "long"), one(0x180, 0x10, "inside")]);
        assert_eq!(functions.place(0x17f), Some((0x7f, "long")));
        assert_eq!(functions.place(0x180), Some((0, "inside")));
        assert_eq!(functions.at(0x190), None);
    }

    /// Regression: time in new code was attributed to functions whose memory had been freed. Their
    /// addresses were still listed within the new code.
    #[test]
    fn code_that_was_freed_is_not_there() {
        let one = |start, size, name: &str| (start, size, name.to_owned());
        let functions = Functions::latest([
            one(0x100, 0x40, "before"),
            one(0x150, 0x10, "freed"),
            one(0x170, 0x20, "cut"),
            one(0x200, 0x10, "after"),
            one(0x140, 0x40, "new"),
        ]);
        let at = |address| functions.at(address);
        assert_eq!([at(0x13f), at(0x140), at(0x158)], [Some("before"), Some("new"), Some("new")]);
        assert_eq!([at(0x17f), at(0x180), at(0x20f)], [Some("new"), None, Some("after")]);
    }

    #[test]
    fn names_are_shown_as_in_the_source() {
        assert_eq!(demangled("_RNvCskwGfYPst2Cb_3foo16example_function"), "foo::example_function");
        assert_eq!(demangled("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangled("_ZN2v88internal4Heap4MarkEii"), "v8::internal::Heap::Mark");
        assert_eq!(demangled("epoll_wait"), "epoll_wait");
        assert_eq!(demangled("_Z"), "_Z");
    }

    #[test]
    fn the_functions_of_this_program_are_found_where_they_are() {
        let elf = Elf::read(File::open("/proc/self/exe").unwrap(), Path::new("/")).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let address = debug_file as *const () as u64;
        let offset = maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let hex = |text| u64::from_str_radix(text, 16).ok();
            let (start, end) = (hex(start)?, hex(end)?);
            let offset = hex(rest.split(' ').nth(1)?)?;
            (start..end).contains(&address).then(|| address - start + offset)
        });
        assert_eq!(elf.place(offset.unwrap()), Some((0, "hotlap_observe::functions::debug_file")));
    }

    #[test]
    fn a_debug_file_is_named_by_the_build_id() {
        let path = debug_file(Path::new("/proc/7/root"), &[0xab, 0xcd, 0x01]);
        assert_eq!(path, Path::new("/proc/7/root/usr/lib/debug/.build-id/ab/cd01.debug"));
    }

    #[test]
    fn functions_are_found_and_data_is_not() {
        let text = "ffffffff81000000 T tcp_sendmsg\nffffffff81000100 D jiffies\n\
                    ffffffffc0000000 t probe\t[virtio_net]\n";
        let kernel = Kernel(parse_kallsyms(text));
        assert_eq!(kernel.frame(0xffff_ffff_8100_0110).function, "tcp_sendmsg");
        assert_eq!(kernel.frame(0xffff_ffff_c000_0001).function, "probe");
        assert_eq!(kernel.frame(0x10).function, "[kernel]");
    }

    #[test]
    fn hidden_addresses_are_no_addresses() {
        let kernel = Kernel(parse_kallsyms(
            "0000000000000000 T tcp_sendmsg\n0000000000000000 T udp_sendmsg\n",
        ));
        assert!(!kernel.is_readable());
        assert_eq!(kernel.frame(0xffff_ffff_8100_0110).function, "[kernel]");
    }

    #[test]
    fn lists_of_node_and_of_a_jvm_are_read() {
        let functions = parse_perf_map(
            "3ef414c0 398 JS:*handle /srv/app.js:12:3\n\
             0x00007f1000000000 0x0000000000000200 java.lang.String java.lang.String.trim()\n\
             7f1000000400 0 empty\nnonsense\n",
        );
        assert_eq!(functions.at(0x3ef4_14c0 + 0x397), Some("handle /srv/app.js:12:3"));
        assert_eq!(
            functions.at(0x7f10_0000_01ff),
            Some("java.lang.String java.lang.String.trim()")
        );
        assert_eq!(functions.at(0x7f10_0000_0400), None);
    }

    #[test]
    fn a_function_has_one_name_however_it_is_compiled() {
        let names =
            ["JS:~next router.js:9:1", "JS:^next router.js:9:1", "LazyCompile:*next router.js:9:1"];
        assert_eq!(names.map(plain), ["next router.js:9:1"; 3]);
        assert_eq!(plain("JS:* app.js:3:9"), "(anonymous) app.js:3:9");
        assert_eq!(plain("Builtin:ArrayMap"), "Builtin:ArrayMap");
    }

    #[test]
    fn the_socket_of_a_jvm_is_beside_its_list() {
        let list = Path::new("/proc/7/root/tmp/perf-1.map");
        assert_eq!(jvm_socket(list), Path::new("/proc/7/root/tmp/.java_pid1"));
    }

    #[test]
    fn a_list_that_is_no_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        assert!(compiled(std::process::id(), folder.path()).is_err());
        let path = folder.path().join("perf-1.map");
        fs::write(&path, "10 10 one\n").unwrap();
        assert_eq!(compiled(std::process::id(), &path).unwrap().at(0x18), Some("one"));
    }
}
