//! Decodes header blocks (RFC 7541 sections 3 and 6).

use super::dynamic_table::{DynamicTable, TABLE_SIZE};
use super::huffman;
use super::integer::{CUT_OFF, read_integer};
use super::static_table::{self, STATIC_LENGTH};

/// How many table size updates a block may begin with: the smallest size and the final one (RFC
/// 7541 section 4.2).
const MAX_UPDATES: usize = 2;

const NO_SUCH_INDEX: &str = "a header field has an index that does not exist";

/// The decoder of one connection: it keeps the dynamic table.
#[derive(Debug, Default)]
pub struct Decoder {
    table: DynamicTable,
    /// The name and the value of a field, if they were Huffman-coded.
    name: Vec<u8>,
    value: Vec<u8>,
}

/// The name of a literal field.
#[derive(Clone, Copy)]
enum Name<'a> {
    /// Raw, in the block or the static table.
    Bytes(&'a [u8]),
    /// Huffman-coded, decoded into the buffer.
    Decoded,
    /// That of a field in the dynamic table.
    Dynamic(usize),
}

impl Decoder {
    /// How often the dynamic table was changed. If two calls return the same number, nothing has
    /// changed in between: a block that was decoded before, without changing the number, would give
    /// the same fields again and change nothing.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.table.changes()
    }

    /// Decodes a complete header block and passes on its fields, in order.
    ///
    /// # Errors
    /// The block is malformed; the text says how. The decoder cannot be used any more.
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

    /// A field of either table (RFC 7541 section 2.3.3).
    #[inline]
    fn field(&self, index: usize) -> Result<(&[u8], &[u8]), &'static str> {
        let found = match index.checked_sub(STATIC_LENGTH + 1) {
            Some(age) => self.table.field(age),
            None => static_table::field(index),
        };
        found.ok_or(NO_SUCH_INDEX)
    }

    /// A dynamic table size update (RFC 7541 section 6.3), after `updates` others.
    fn update(&mut self, size: usize, updates: usize) -> Result<(), &'static str> {
        if updates >= MAX_UPDATES {
            return Err("a table size update is not at the start of its header block");
        }
        if size > TABLE_SIZE as usize {
            return Err("the header table is set to over 4096 bytes");
        }
        self.table.set_max_size(size);
        Ok(())
    }

    /// A literal field (RFC 7541 section 6.2), which is inserted into the table or not.
    fn literal(
        &mut self,
        block: &mut &[u8],
        is_inserted: bool,
        field: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), &'static str> {
        let index = read_integer(block, if is_inserted { 6 } else { 4 })?;
        let name = match index.checked_sub(STATIC_LENGTH + 1) {
            Some(age) => Name::Dynamic(age),
            None if index > 0 => Name::Bytes(static_table::field(index).ok_or(NO_SUCH_INDEX)?.0),
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

/// Reads a string (RFC 7541 section 5.2): raw, or `None` if it was decoded into `buffer`.
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
        // RFC 7541 appendix C.2: inserted, without indexing, never indexed, indexed.
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
        // RFC 7541 appendix C.6, with a table of 256 bytes: fields are removed.
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
        // Section 6.1: index 0; section 2.3.3: beyond both tables.
        for wrong in [&[0x80][..], &[0xbe], &[0xff, 0x00], &[0x7e, 0x00], &[0x0f, 0x30, 0x00]] {
            assert_eq!(of(wrong), NO_SUCH_INDEX, "{wrong:x?}");
        }
        for cut in [&[0xff][..], &[0x40], &[0x40, 0x01], &[0x40, 0x01, b'a'], &[0x08, 0x03, b'2']] {
            assert_eq!(of(cut), CUT_OFF, "{cut:x?}");
        }
        assert_eq!(of(&[0x08, 0x81, 0xff]), "a Huffman-coded string has wrong padding");
        assert_eq!(of(&[0x3f, 0xe2, 0x1f]), "the header table is set to over 4096 bytes");
        let place = "a table size update is not at the start of its header block";
        assert_eq!(of(&[0x88, 0x20]), place);
        assert_eq!(of(&[0x20, 0x20, 0x20]), place);
    }

    #[test]
    fn up_to_two_size_updates_may_begin_a_block() {
        // Section 4.2: the smallest size, then the final one. 3f e1 1f is 4096.
        let mut decoder = Decoder::default();
        decoded(&mut decoder, &[0x40, 0x01, b'a', 0x01, b'b']).unwrap();
        let found = decoded(&mut decoder, &[0x20, 0x3f, 0xe1, 0x1f, 0x88]);
        assert_eq!(found, Ok(fields(&[(":status", "200")])));
        assert_eq!(decoded(&mut decoder, &[0xbe]), Err(NO_SUCH_INDEX), "the table was emptied");
    }
}
