//! Header compression (RFC 7541): the decoder of responses, and what the encoder of requests needs.
//!
//! The implementation is our own, because the crates for HPACK do not suit a load generator
//! (versions of 2026):
//!
//! - [`loona-hpack`](https://docs.rs/loona-hpack/0.4.3) 0.4.3 is correct, but builds its Huffman
//!   table, a hash map of hash maps, for each string, which takes 16 µs. The crate also accepts
//!   table size updates in the middle of a header block (section 4.2), and cannot tell whether a
//!   block changed the table. The tests compare this decoder with loona-hpack.
//! - [`httlib-hpack`](https://docs.rs/httlib-hpack/0.1.3) 0.1.3 panics on an integer that is cut
//!   off (`ff`), and its Huffman decoder accepts wrong padding (section 5.2).
//!
//! The dynamic table takes at most 22 KiB of memory per connection, which is allocated when needed
//! and then reused.

mod huffman;

use std::collections::VecDeque;

// The decoder (RFC 7541 sections 3 and 6).

/// The maximum number of table size updates at the start of a block: the smallest size and the
/// final size (RFC 7541 section 4.2).
const MAX_UPDATES: usize = 2;

const NO_SUCH_INDEX: &str = "a header field has an index that does not exist";

/// The decoder of one connection, which keeps the dynamic table.
#[derive(Debug, Default)]
pub struct Decoder {
    table: DynamicTable,
    /// The last name that was Huffman-coded, decoded.
    name: Vec<u8>,
    /// The last value that was Huffman-coded, decoded.
    value: Vec<u8>,
}

/// The name of a literal field.
#[derive(Clone, Copy)]
enum Name<'a> {
    /// A raw name in the block or in the static table.
    Bytes(&'a [u8]),
    /// A Huffman-coded name, decoded into the buffer.
    Decoded,
    /// The name of a field in the dynamic table.
    Dynamic(usize),
}

impl Decoder {
    /// Returns how often the dynamic table was changed. If two calls return the same number,
    /// nothing has changed in between. A block that was decoded before, without changing the
    /// number, would then give the same fields again and change nothing.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.table.changes()
    }

    /// Decodes a complete header block and passes on its fields, in order.
    ///
    /// # Errors
    /// The block is malformed, and the text says how. The decoder cannot be used any more.
    pub fn decode(
        &mut self,
        mut block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), &'static str> {
        let mut updates = 0;
        while let Some(&first) = block.first() {
            let is_update = first & 0xe0 == 0x20;
            if first & 0x80 != 0 {
                let index = read_integer(&mut block, 7)?;
                let (name, value) = self.field(index)?;
                field(name, value);
            } else if is_update {
                self.update(read_integer(&mut block, 5)?, updates)?;
                updates += 1;
                continue;
            } else {
                self.literal(&mut block, first & 0x40 != 0, &mut field)?;
            }
            updates = usize::MAX;
        }
        Ok(())
    }

    /// Returns a field of either table (RFC 7541 section 2.3.3).
    #[inline]
    fn field(&self, index: usize) -> Result<(&[u8], &[u8]), &'static str> {
        let found = match index.checked_sub(STATIC_LENGTH + 1) {
            Some(age) => self.table.field(age),
            None => static_field(index),
        };
        found.ok_or(NO_SUCH_INDEX)
    }

    /// Handles a dynamic table size update (RFC 7541 section 6.3), after `updates` others.
    fn update(&mut self, size: usize, updates: usize) -> Result<(), &'static str> {
        if updates >= MAX_UPDATES {
            return Err("a table size update is late, or the third one at the start of its block");
        }
        if size > TABLE_SIZE as usize {
            return Err("the header table is set to over 4096 bytes");
        }
        self.table.set_max_size(size);
        Ok(())
    }

    /// Reads a literal field (RFC 7541 section 6.2), and inserts it into the table if
    /// `is_inserted`.
    fn literal(
        &mut self,
        block: &mut &[u8],
        is_inserted: bool,
        field: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), &'static str> {
        let index = read_integer(block, if is_inserted { 6 } else { 4 })?;
        let name = match index.checked_sub(STATIC_LENGTH + 1) {
            Some(age) => Name::Dynamic(age),
            None if index > 0 => Name::Bytes(static_field(index).ok_or(NO_SUCH_INDEX)?.0),
            None => match string(block, &mut self.name)? {
                Some(name) => Name::Bytes(name),
                None => Name::Decoded,
            },
        };
        let value = match string(block, &mut self.value)? {
            Some(value) => value,
            None => &self.value,
        };
        let bytes = match name {
            Name::Bytes(name) => name,
            Name::Decoded => &self.name,
            Name::Dynamic(age) => self.table.field(age).ok_or(NO_SUCH_INDEX)?.0,
        };
        field(bytes, value);
        match name {
            _ if !is_inserted => {}
            Name::Bytes(name) => self.table.insert(name, value),
            Name::Decoded => self.table.insert(&self.name, value),
            Name::Dynamic(age) => self.table.insert_named_like(age, value),
        }
        Ok(())
    }
}

/// Reads a string (RFC 7541 section 5.2). Returns `None` if the string was decoded into `buffer`.
#[inline]
fn string<'a>(
    block: &mut &'a [u8],
    buffer: &mut Vec<u8>,
) -> Result<Option<&'a [u8]>, &'static str> {
    let is_coded = block.first().is_some_and(|first| first & 0x80 != 0);
    let length = read_integer(block, 7)?;
    let (bytes, rest) = block.split_at_checked(length).ok_or(CUT_OFF)?;
    *block = rest;
    if !is_coded {
        return Ok(Some(bytes));
    }
    buffer.clear();
    huffman::decode(bytes, buffer)?;
    Ok(None)
}

/// The reasons why an integer or a string cannot be read.
const CUT_OFF: &str = "a header block ends within a field";
const TOO_LARGE: &str = "a number in a header block is too large";

/// Reads an integer with a prefix of `bits` bits from the front of `input`. Values up to 2^28 fit,
/// which is far more than a string or an index needs.
#[inline]
fn read_integer(input: &mut &[u8], bits: u8) -> Result<usize, &'static str> {
    let Some((&first, rest)) = input.split_first() else { return Err(CUT_OFF) };
    *input = rest;
    let most = (1 << bits) - 1;
    let value = usize::from(first) & most;
    if value < most { Ok(value) } else { read_rest(input, most) }
}

/// Reads the bytes after the prefix. At most four bytes are read, so that the sum cannot overflow.
fn read_rest(input: &mut &[u8], prefix: usize) -> Result<usize, &'static str> {
    let mut value = prefix;
    for shift in [0, 7, 14, 21] {
        let Some((&byte, rest)) = input.split_first() else { return Err(CUT_OFF) };
        *input = rest;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(TOO_LARGE)
}

/// Appends an integer with a prefix of `bits` bits. `pattern` is the rest of the first byte.
pub(crate) fn write_integer(out: &mut Vec<u8>, pattern: u8, bits: u8, value: usize) {
    let most = (1 << bits) - 1;
    if value < most {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Writes the length of the string from `start` to the end (RFC 7541 section 5.2, raw). The caller
/// has left one byte before `start` for the length. Strings of up to 126 bytes stay where they are.
pub(crate) fn insert_length(out: &mut Vec<u8>, start: usize) {
    let length = out.len() - start;
    if length < 0x7f {
        out[start - 1] = length as u8;
        return;
    }
    out[start - 1] = 0x7f;
    let end = out.len();
    let mut rest = length - 0x7f;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
    let added = out.len() - end;
    out[start..].rotate_right(added);
}

/// The initial size of a dynamic table in bytes (RFC 9113 section 6.5.2). Neither side uses a
/// larger table.
pub(crate) const TABLE_SIZE: u32 = 4096;

/// The size that a field has beyond its bytes, in the table (RFC 7541 section 4.1) and in header
/// lists (RFC 9113 section 6.5.2).
pub(crate) const FIELD_OVERHEAD: usize = 32;

/// If the buffer is longer than this, the fields are moved to its front. They have up to 4 KiB, so
/// each byte is moved at most about once.
const COMPACT_FROM: usize = 8 * 1024;

/// The place of a field: where its name and value begin in the buffer, and their lengths.
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

/// The fields that the server has inserted, the newest first.
#[derive(Debug)]
struct DynamicTable {
    fields: VecDeque<Place>,
    /// The names and values, the oldest first, without gaps.
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
    /// Returns how often the table was changed. Equal numbers mean equal tables.
    #[inline]
    fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the field that was inserted `age` insertions before the newest.
    #[inline]
    fn field(&self, age: usize) -> Option<(&[u8], &[u8])> {
        let place = self.fields.get(age)?;
        Some(self.buffer[place.start..][..place.name + place.value].split_at(place.name))
    }

    /// Inserts a field. Older fields are removed until the new field fits. A field that is too
    /// large for the table only removes all others.
    fn insert(&mut self, name: &[u8], value: &[u8]) {
        if self.make_room(name.len(), value.len()) {
            let start = self.buffer.len();
            self.buffer.extend_from_slice(name);
            self.push(start, name.len(), value);
        }
    }

    /// Inserts a field with the name of another field in the table. The other field may be removed.
    fn insert_named_like(&mut self, age: usize, value: &[u8]) {
        let Some(&named) = self.fields.get(age) else { return };
        if self.make_room(named.name, value.len()) {
            // If the named field was removed, its bytes stay in the buffer until it is compacted.
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

    /// Removes fields until a field with these lengths fits. Returns whether it fits.
    fn make_room(&mut self, name: usize, value: usize) -> bool {
        self.changes += 1;
        let needed = name + value + FIELD_OVERHEAD;
        self.shrink(self.max_size.saturating_sub(needed));
        needed <= self.max_size
    }

    /// Sets the maximum size of all fields together.
    fn set_max_size(&mut self, max_size: usize) {
        self.changes += 1;
        self.max_size = max_size;
        self.shrink(max_size);
    }

    /// Removes the oldest fields until the others have at most this size.
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

/// The number of fields in the static table. The first field of the dynamic table has the next
/// index.
pub(crate) const STATIC_LENGTH: usize = 61;

/// The fields of the static table, in order. The first field has index 1.
const FIELDS: [(&str, &str); STATIC_LENGTH] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Returns the field with an index from 1 to 61.
#[inline]
fn static_field(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = FIELDS.get(index.checked_sub(1)?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// Returns the index of a field in the static table, and whether the whole field matches (`true`)
/// or only its name.
pub(crate) fn find(name: &str, value: Option<&[u8]>) -> Option<(usize, bool)> {
    let is_whole = |field: &(&str, &str)| field.0 == name && value == Some(field.1.as_bytes());
    let whole = FIELDS.iter().position(is_whole).map(|at| (at + 1, true));
    whole.or_else(|| FIELDS.iter().position(|field| field.0 == name).map(|at| (at + 1, false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = Vec<(String, String)>;

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, &'static str> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        decoder.decode(block, |name, value| fields.push((text(name), text(value))))?;
        Ok(fields)
    }

    fn hex(digits: &str) -> Vec<u8> {
        let digits: String = digits.split_whitespace().collect();
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(byte).collect()
    }

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn each_representation_is_decoded() {
        // RFC 7541 appendix C.2: inserted, then without indexing, then never indexed, then indexed.
        let mut decoder = Decoder::default();
        let inserted = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
        let found = decoded(&mut decoder, &hex(inserted));
        assert_eq!(found, Ok(fields(&[("custom-key", "custom-header")])));
        assert_eq!(decoder.changes(), 1);
        let found = decoded(&mut decoder, &hex("040c 2f73 616d 706c 652f 7061 7468"));
        assert_eq!(found, Ok(fields(&[(":path", "/sample/path")])));
        let found = decoded(&mut decoder, &hex("1008 7061 7373 776f 7264 0673 6563 7265 74"));
        assert_eq!(found, Ok(fields(&[("password", "secret")])));
        let found = decoded(&mut decoder, &hex("82be"));
        assert_eq!(found, Ok(fields(&[(":method", "GET"), ("custom-key", "custom-header")])));
        assert_eq!(decoder.changes(), 1, "only the first block changed the table");
    }

    #[test]
    fn responses_with_a_small_table_and_huffman_code_are_decoded() {
        // RFC 7541 appendix C.6, with a table of 256 bytes, so that fields are removed.
        let mut decoder = Decoder::default();
        decoder.table.set_max_size(256);
        let mut expected = fields(&[
            (":status", "302"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
            ("location", "https://www.example.com"),
        ]);
        let first =
            hex("4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 \
             2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3");
        assert_eq!(decoded(&mut decoder, &first), Ok(expected.clone()));
        expected[0].1 = "307".to_owned();
        assert_eq!(decoded(&mut decoder, &hex("4883 640e ffc1 c0bf")), Ok(expected));
        let third =
            hex("88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab \
             77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f \
             9587 3160 65c0 03ed 4ee5 b106 3d50 07");
        let expected = fields(&[
            (":status", "200"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
            ("location", "https://www.example.com"),
            ("content-encoding", "gzip"),
            ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
        ]);
        assert_eq!(decoded(&mut decoder, &third), Ok(expected));
    }

    #[test]
    fn each_error_has_its_message() {
        let of = |bytes: &[u8]| decoded(&mut Decoder::default(), bytes).unwrap_err();
        // Section 6.1: index 0 does not exist. Section 2.3.3: the index is beyond both tables.
        for wrong in [&[0x80][..], &[0xbe], &[0xff, 0x00], &[0x7e, 0x00], &[0x0f, 0x30, 0x00]] {
            assert_eq!(of(wrong), NO_SUCH_INDEX, "{wrong:x?}");
        }
        for cut in [&[0xff][..], &[0x40], &[0x40, 0x01], &[0x40, 0x01, b'a'], &[0x08, 0x03, b'2']] {
            assert_eq!(of(cut), CUT_OFF, "{cut:x?}");
        }
        assert_eq!(of(&[0x08, 0x81, 0xff]), "a Huffman-coded string has wrong padding");
        assert_eq!(of(&[0x3f, 0xe2, 0x1f]), "the header table is set to over 4096 bytes");
        let place = "a table size update is late, or the third one at the start of its block";
        assert_eq!(of(&[0x88, 0x20]), place);
        assert_eq!(of(&[0x20, 0x20, 0x20]), place);
    }

    #[test]
    fn up_to_two_size_updates_may_begin_a_block() {
        // Section 4.2: the smallest size comes first, then the final one. 3f e1 1f is 4096.
        let mut decoder = Decoder::default();
        decoded(&mut decoder, &[0x40, 0x01, b'a', 0x01, b'b']).unwrap();
        let found = decoded(&mut decoder, &[0x20, 0x3f, 0xe1, 0x1f, 0x88]);
        assert_eq!(found, Ok(fields(&[(":status", "200")])));
        assert_eq!(decoded(&mut decoder, &[0xbe]), Err(NO_SUCH_INDEX), "the table was emptied");
    }

    fn written(pattern: u8, bits: u8, value: usize) -> Vec<u8> {
        let mut out = Vec::new();
        write_integer(&mut out, pattern, bits, value);
        out
    }

    #[test]
    fn the_examples_of_the_standard_are_read_and_written() {
        // RFC 7541 appendix C.1.
        for (value, bits, bytes) in
            [(10, 5, &[0x0a][..]), (1337, 5, &[0x1f, 0x9a, 0x0a]), (42, 8, &[0x2a])]
        {
            assert_eq!(written(0, bits, value), bytes);
            assert_eq!(read_integer(&mut &bytes[..], bits), Ok(value));
        }
        // The bits before the prefix are not part of the number.
        assert_eq!(read_integer(&mut &[0xea][..], 5), Ok(10));
        assert_eq!(written(0xe0, 5, 10), [0xea]);
    }

    #[test]
    fn what_is_written_can_be_read() {
        for bits in 1..=8 {
            for value in [0, 1, 14, 15, 16, 30, 31, 127, 128, 254, 255, 256, 16_383, 1 << 27] {
                let bytes = written(0, bits, value);
                assert_eq!(read_integer(&mut &bytes[..], bits), Ok(value), "{value} in {bits}");
                for cut in 0..bytes.len() {
                    assert_eq!(read_integer(&mut &bytes[..cut], bits), Err(CUT_OFF));
                }
            }
        }
    }

    #[test]
    fn an_integer_of_more_than_four_further_bytes_is_too_large() {
        let longest = [0x7f, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(read_integer(&mut &longest[..], 7), Ok((1 << 28) - 1 + 127));
        let endless = [0x7f, 0x80, 0x80, 0x80, 0x80, 0x00];
        assert_eq!(read_integer(&mut &endless[..], 7), Err(TOO_LARGE));
    }

    #[test]
    fn a_length_is_inserted_before_a_string_of_any_length() {
        for length in [0, 1, 126, 127, 128, 254, 255, 300, 20_000] {
            let mut out = vec![9, 0];
            out.extend((0..length).map(|i| i as u8));
            insert_length(&mut out, 2);
            let mut rest = &out[1..];
            assert_eq!(read_integer(&mut rest, 7), Ok(length));
            assert!(rest.iter().copied().eq((0..length).map(|i| i as u8)), "{length}");
        }
    }

    fn names(table: &DynamicTable) -> Vec<String> {
        let name = |age| table.field(age).map(|(n, _)| String::from_utf8_lossy(n).into_owned());
        (0..).map_while(name).collect()
    }

    #[test]
    fn the_newest_field_comes_first_and_the_oldest_leaves() {
        // RFC 7541 section 4.1: each of these fields has 1 + 1 + 32 = 34 bytes.
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

    #[test]
    fn indices_are_those_of_the_standard() {
        // RFC 7541 appendix A.
        assert_eq!(static_field(0), None);
        assert_eq!(static_field(1), Some((&b":authority"[..], &b""[..])));
        assert_eq!(static_field(8), Some((&b":status"[..], &b"200"[..])));
        assert_eq!(static_field(28), Some((&b"content-length"[..], &b""[..])));
        assert_eq!(static_field(61), Some((&b"www-authenticate"[..], &b""[..])));
        assert_eq!(static_field(62), None);
    }

    #[test]
    fn a_whole_field_is_found_before_its_name() {
        assert_eq!(find(":method", Some(b"POST")), Some((3, true)));
        assert_eq!(find(":method", Some(b"PUT")), Some((2, false)));
        assert_eq!(find(":path", None), Some((4, false)));
        assert_eq!(find("user-agent", Some(b"x")), Some((58, false)));
        assert_eq!(find("x-unknown", Some(b"x")), None);
    }
}
