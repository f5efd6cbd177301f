//! Functions of an ELF file, from its symbol tables and those of its debug file.

use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{
    Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, ReadCacheOps,
    SymbolKind,
};

use super::functions::{Functions, demangled};

/// The functions of an ELF file.
#[derive(Debug, Default)]
pub(super) struct Elf {
    /// Offset in the file, size and address of each part that is loaded.
    parts: Vec<(u64, u64, u64)>,
    functions: Functions,
}

impl Elf {
    /// Reads an executable or a library. `root` is the folder in which its debug file is looked
    /// for: `usr/lib/debug/.build-id/ab/cdef….debug`.
    ///
    /// # Errors
    /// It is not a 64-bit ELF file, or cannot be read.
    pub(super) fn read(file: File, root: &Path) -> io::Result<Self> {
        Self::parse(file, root)
    }

    /// Reads the file that the kernel maps into every process, from a copy of it.
    pub(super) fn parse(source: impl Read + Seek, root: &Path) -> io::Result<Self> {
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
        // Of several names of one function (`write`, `__write`), the plainest counts.
        let underscores = |name: &str| name.len() - name.trim_start_matches('_').len();
        list.sort_by_cached_key(|(.., name)| {
            Reverse((underscores(name), name.len(), name.clone()))
        });
        Ok(Self { parts: parts.collect(), functions: Functions::new(list) })
    }

    /// The function at an offset in the file: how far into it that is, and its name.
    pub(super) fn place(&self, offset: u64) -> Option<(u64, &str)> {
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

/// Start, size and name of a function. Assembly may leave out the type of a symbol, or its size: it
/// reaches to the end of its section then, or to the next symbol.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(
            elf.place(offset.unwrap()),
            Some((0, "hotlap_servers::observe::elf::debug_file"))
        );
    }

    #[test]
    fn a_debug_file_is_named_by_the_build_id() {
        let path = debug_file(Path::new("/proc/7/root"), &[0xab, 0xcd, 0x01]);
        assert_eq!(path, Path::new("/proc/7/root/usr/lib/debug/.build-id/ab/cd01.debug"));
    }
}
