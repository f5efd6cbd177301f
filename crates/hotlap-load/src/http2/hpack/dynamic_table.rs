//! The dynamic table (RFC 7541 sections 2.3.2 and 4).

use std::collections::VecDeque;

/// The initial size of a dynamic table (RFC 9113 section 6.5.2); both sides keep it.
pub(crate) const TABLE_SIZE: u32 = 4096;

/// The size of a field beyond its bytes, in the table (RFC 7541 section 4.1) and in the size of a
/// header list (RFC 9113 section 6.5.2).
pub(crate) const FIELD_OVERHEAD: usize = 32;

/// When the buffer exceeds this, the fields in it, up to 4 KiB, are moved to its front. So each
/// byte is moved at most about once.
const COMPACT_FROM: usize = 8 * 1024;

/// A field: where its name and value begin in the buffer, and their lengths.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    name: usize,
    value: usize,
}

impl Place {
    fn size(self) -> usize {
        self.name + self.value + FIELD_OVERHEAD
    }
}

/// The fields that the other side has inserted, the newest first.
#[derive(Debug)]
pub(super) struct DynamicTable {
    fields: VecDeque<Place>,
    /// Names and values, the oldest first, without gaps.
    buffer: Vec<u8>,
    size: usize,
    max_size: usize,
    changes: u64,
}

impl Default for DynamicTable {
    fn default() -> Self {
        let (fields, buffer) = (VecDeque::new(), Vec::new());
        Self { fields, buffer, size: 0, max_size: TABLE_SIZE as usize, changes: 0 }
    }
}

impl DynamicTable {
    /// How often the table was changed: equal numbers mean equal tables.
    #[inline]
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The field that was inserted `age` insertions before the newest.
    #[inline]
    pub(super) fn field(&self, age: usize) -> Option<(&[u8], &[u8])> {
        let place = self.fields.get(age)?;
        Some(self.buffer[place.start..][..place.name + place.value].split_at(place.name))
    }

    /// Inserts a field. Older ones are removed until it fits; one that never fits only removes all.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        if self.make_room(name.len(), value.len()) {
            let start = self.buffer.len();
            self.buffer.extend_from_slice(name);
            self.push(start, name.len(), value);
        }
    }

    /// Inserts a field with the name of another one in the table, which may be removed by this.
    pub(super) fn insert_named_like(&mut self, age: usize, value: &[u8]) {
        let Some(&named) = self.fields.get(age) else { return };
        if self.make_room(named.name, value.len()) {
            // Removed or not, its bytes stay in the buffer until it is compacted.
            let start = self.buffer.len();
            self.buffer.extend_from_within(named.start..named.start + named.name);
            self.push(start, named.name, value);
        }
    }

    fn push(&mut self, start: usize, name: usize, value: &[u8]) {
        self.buffer.extend_from_slice(value);
        let place = Place { start, name, value: value.len() };
        self.size += place.size();
        self.fields.push_front(place);
        self.compact();
    }

    /// Removes fields until one of these lengths fits; returns whether it does.
    fn make_room(&mut self, name: usize, value: usize) -> bool {
        self.changes += 1;
        let needed = name + value + FIELD_OVERHEAD;
        self.shrink(self.max_size.saturating_sub(needed));
        needed <= self.max_size
    }

    /// Sets the size that the fields may have together.
    pub(super) fn set_max_size(&mut self, max_size: usize) {
        self.changes += 1;
        self.max_size = max_size;
        self.shrink(max_size);
    }

    /// Removes the oldest fields until the rest has at most this size.
    fn shrink(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.fields.pop_back() else { break };
            self.size -= oldest.size();
        }
    }

    fn compact(&mut self) {
        if self.buffer.len() <= COMPACT_FROM {
            return;
        }
        let start = self.fields.back().map_or(self.buffer.len(), |oldest| oldest.start);
        self.buffer.copy_within(start.., 0);
        self.buffer.truncate(self.buffer.len() - start);
        for place in &mut self.fields {
            place.start -= start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(table: &DynamicTable) -> Vec<String> {
        let name = |age| table.field(age).map(|(n, _)| String::from_utf8_lossy(n).into_owned());
        (0..).map_while(name).collect()
    }

    #[test]
    fn the_newest_field_comes_first_and_the_oldest_leaves() {
        // RFC 7541 section 4.1: each of these is 1 + 1 + 32 = 34 bytes.
        let mut table = DynamicTable::default();
        table.set_max_size(34 * 3);
        for name in [b"a", b"b", b"c", b"d"] {
            table.insert(name, b"v");
        }
        assert_eq!(names(&table), ["d", "c", "b"]);
        assert_eq!((table.size, table.field(1)), (102, Some((&b"c"[..], &b"v"[..]))));
        // Section 4.3: a smaller table loses its oldest fields.
        table.set_max_size(101);
        assert_eq!(names(&table), ["d", "c"]);
        // Section 4.4: a field larger than the table empties it, which is not an error.
        table.insert(b"e", &[b'v'; 69]);
        assert_eq!((names(&table).len(), table.size), (0, 0));
        table.insert(b"f", &[b'v'; 68]);
        assert_eq!((names(&table), table.size), (vec!["f".to_owned()], 101));
    }

    #[test]
    fn a_name_may_be_that_of_a_field_which_is_removed() {
        // RFC 7541 section 4.4: the name is used before its field is removed.
        let mut table = DynamicTable::default();
        table.set_max_size(40);
        table.insert(b"name", b"1234");
        table.insert_named_like(0, b"5678");
        assert_eq!(table.field(0), Some((&b"name"[..], &b"5678"[..])));
        assert_eq!(table.field(1), None);
    }

    #[test]
    fn each_change_is_counted() {
        let mut table = DynamicTable::default();
        let mut seen = vec![table.changes()];
        table.insert(b"a", b"b");
        seen.push(table.changes());
        table.insert_named_like(0, b"c");
        seen.push(table.changes());
        table.set_max_size(0);
        seen.push(table.changes());
        table.insert(b"a", b"b");
        seen.push(table.changes());
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
    }

    #[test]
    fn memory_is_bounded_whatever_is_inserted() {
        let mut table = DynamicTable::default();
        for round in 0..10_000_usize {
            let value = vec![round as u8; round * 37 % 4_200];
            table.insert(b"name", &value);
            let fits = value.len() + 36 <= 4_096;
            let expected = fits.then_some((&b"name"[..], &value[..]));
            assert_eq!(table.field(0), expected);
            table.insert_named_like(0, b"x");
            assert!(table.size <= 4_096 && table.buffer.len() <= 3 * 4_096);
        }
        assert!(table.fields.capacity() <= 256 && table.buffer.capacity() <= 16 * 1024);
    }
}
