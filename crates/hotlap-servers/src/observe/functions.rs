//! Functions by address.

use std::collections::{BTreeMap, HashMap};

/// Functions of one file or address space, and where they are.
#[derive(Debug, Default)]
pub(super) struct Functions {
    /// Start, end and name, by start.
    sorted: Vec<(u64, u64, String)>,
}

impl Functions {
    /// From start, size and name of each, in the order in which they came to be: of two at the same
    /// place, the later one counts. One without a size reaches to the next.
    pub(super) fn new(list: impl IntoIterator<Item = (u64, u64, String)>) -> Self {
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
            // From here on, the second value is the end.
            one.1 = if one.1 == 0 { next } else { one.0.saturating_add(one.1).min(next) };
        }
        Self { sorted }
    }

    /// From start, size and name of each, as a runtime lists what it compiles: of functions that
    /// overlap, the latest is there, and the memory of the others was freed.
    pub(super) fn latest(list: impl IntoIterator<Item = (u64, u64, String)>) -> Self {
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

    /// The name of the function that contains an address.
    pub(super) fn at(&self, address: u64) -> Option<&str> {
        self.place(address).map(|(_, name)| name)
    }

    /// The function that contains an address: how far into it the address is, and its name.
    pub(super) fn place(&self, address: u64) -> Option<(u64, &str)> {
        let after = self.sorted.partition_point(|(start, ..)| *start <= address);
        let (start, end, name) = self.sorted.get(after.checked_sub(1)?)?;
        (address < *end).then_some((address - start, name.as_str()))
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

/// A name as its language writes it, without the hash of Rust and the parameters of C++.
pub(super) fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let cpp = name.starts_with("_Z").then(|| cpp_demangle::Symbol::new(name).ok()).flatten();
    cpp.and_then(|symbol| symbol.demangle_with_options(&options).ok())
        .unwrap_or_else(|| name.to_owned())
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

    /// Regression: time in new code was given to functions whose memory had been freed, because
    /// their addresses were still listed within it.
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
}
