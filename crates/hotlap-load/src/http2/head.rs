//! Reads what a header block says about a response, and checks whether it is valid (RFC 9113
//! sections 8.1, 8.2 and 8.3). Blocks that have arrived before are not decoded again.

use super::frame::HEADER_LIST;
use super::hpack::FIELD_OVERHEAD;

/// The contents of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// The status code.
    pub(super) status: u16,
    /// The value of `content-length`.
    pub(super) length: Option<u64>,
}

/// Whether each byte may occur in a field name (RFC 9113 section 8.2.1): a visible ASCII character
/// that is not an upper-case letter. A colon is allowed only at the start.
static NAME: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        allowed[byte] = !(byte as u8).is_ascii_uppercase() && byte as u8 != b':';
        byte += 1;
    }
    allowed
};

/// Reads the fields of a head or of trailers, in order.
#[derive(Debug)]
pub(super) struct HeadReader {
    is_trailers: bool,
    /// Whether a field other than `:status` has been read.
    has_fields: bool,
    status: Option<u16>,
    length: Option<u64>,
    /// The size of the header list so far, in bytes.
    size: usize,
    /// The first violation.
    wrong: Option<&'static str>,
}

impl HeadReader {
    /// Creates a reader for the fields of one header block.
    pub(super) fn new(is_trailers: bool) -> Self {
        Self { is_trailers, has_fields: false, status: None, length: None, size: 0, wrong: None }
    }

    /// Reads the next field. After a violation, further fields are ignored.
    pub(super) fn field(&mut self, name: &[u8], value: &[u8]) {
        if self.wrong.is_none() {
            self.wrong = self.read(name, value).err();
        }
    }

    fn read(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        self.size += name.len() + value.len() + FIELD_OVERHEAD;
        if self.size > HEADER_LIST {
            return Err("over 64 KiB of header fields");
        }
        if name.first() == Some(&b':') {
            return self.pseudo(name, value);
        }
        self.has_fields = true;
        if name.is_empty() || !name.iter().all(|byte| NAME[usize::from(*byte)]) {
            return Err("a malformed header name");
        }
        if !is_value(value) {
            return Err("a malformed header value");
        }
        match name {
            b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding"
            | b"upgrade" => Err("a header field of HTTP/1.1 connections"),
            b"content-length" if !self.is_trailers => self.content_length(value),
            // gRPC responds to failed calls with HTTP status 200. The error is in the trailers, or
            // in the headers of a response without a body ("gRPC over HTTP2", section Responses).
            b"grpc-status" if value != b"0" => Err("grpc-status is not 0: the call failed"),
            _ => Ok(()),
        }
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if self.is_trailers {
            return Err("a pseudo-header field in trailers");
        }
        if name != b":status" {
            return Err("a pseudo-header field other than :status");
        }
        if self.has_fields {
            return Err(":status is not the first field");
        }
        if self.status.is_some() {
            return Err(":status occurs twice");
        }
        let [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = *value else {
            return Err(":status is not a three-digit number");
        };
        let digit = |byte: u8| u16::from(byte - b'0');
        self.status = Some(digit(a) * 100 + digit(b) * 10 + digit(c));
        Ok(())
    }

    /// Reads the value of `content-length`. Several equal values are allowed, as in HTTP/1.1 (RFC
    /// 9110 section 8.6).
    fn content_length(&mut self, value: &[u8]) -> Result<(), &'static str> {
        for number in value.split(|byte| *byte == b',') {
            let length =
                parse_number(number.trim_ascii()).ok_or("content-length is not a number")?;
            if self.length.is_some_and(|other| other != length) {
                return Err("conflicting content-length values");
            }
            self.length = Some(length);
        }
        Ok(())
    }

    /// Returns the head after its last field. Trailers have the status 0.
    pub(super) fn finish(self) -> Result<Head, &'static str> {
        match (self.wrong, self.status) {
            (Some(why), _) => Err(why),
            (None, None) if !self.is_trailers => Err("a response without :status"),
            (None, status) => Ok(Head { status: status.unwrap_or(0), length: self.length }),
        }
    }
}

/// Returns whether a field value is valid (RFC 9113 section 8.2.1). A valid value has no NUL, CR or
/// LF, and no space or tab at either end.
fn is_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_allowed = |byte: &u8| !matches!(byte, b'\0' | b'\r' | b'\n');
    value.iter().all(is_allowed) && !is_blank(value.first()) && !is_blank(value.last())
}

/// Parses a number of up to 63 bits.
fn parse_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_u64;
    for digit in digits {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    i64::try_from(number).is_ok().then_some(number)
}

/// The number of blocks that are kept, which is enough for a mix of a few requests.
const ENTRIES: usize = 8;

/// The maximum length of a block that is kept. Longer blocks are rare, and comparing them costs
/// more.
const LONGEST: usize = 1024;

/// The meaning of a block: a head, or the reason why the block is malformed.
pub(super) type Meaning = Result<Head, &'static str>;

/// A block and its meaning. The block is empty if the entry is unused.
#[derive(Debug)]
struct Entry {
    block: Vec<u8>,
    meaning: Meaning,
}

/// The blocks of one connection that have arrived before.
///
/// Servers usually respond to the same request with the same header block, until a date changes.
/// The meaning of a block depends only on its bytes and on the dynamic table. Suppose that a block
/// was decoded, and that neither this block nor any later block has changed the table. Then
/// decoding the same bytes again would give the same fields and change nothing. `Decoder::changes`
/// counts the changes of the table, so that one comparison shows whether all entries are still
/// valid.
#[derive(Debug)]
pub(super) struct Memo {
    entries: [Entry; ENTRIES],
    /// The index of the entry that was found or kept last.
    last: usize,
    /// The number of table changes for which the entries are valid.
    changes: u64,
}

impl Default for Memo {
    fn default() -> Self {
        let entry = || Entry { block: Vec::new(), meaning: Err("") };
        Self { entries: std::array::from_fn(|_| entry()), last: 0, changes: 0 }
    }
}

impl Memo {
    /// Returns the meaning of a block, if it is known after this number of table changes.
    #[inline]
    pub(super) fn find(&mut self, block: &[u8], changes: u64) -> Option<Meaning> {
        if changes != self.changes || block.is_empty() {
            return None;
        }
        let last = &self.entries[self.last];
        if last.block == block {
            return Some(last.meaning);
        }
        self.last = self.entries.iter().position(|entry| entry.block == block)?;
        Some(self.entries[self.last].meaning)
    }

    /// Keeps the meaning of a block that did not change the table, in the entry after the last
    /// used entry.
    pub(super) fn keep(&mut self, block: &[u8], changes: u64, meaning: Meaning) {
        if changes != self.changes {
            self.entries.iter_mut().for_each(|entry| entry.block.clear());
            self.changes = changes;
        }
        if block.len() <= LONGEST {
            self.last = (self.last + 1) % ENTRIES;
            let entry = &mut self.entries[self.last];
            entry.block.clear();
            entry.block.extend_from_slice(block);
            entry.meaning = meaning;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(is_trailers: bool, fields: &[(&str, &str)]) -> Result<Head, &'static str> {
        let mut reader = HeadReader::new(is_trailers);
        for (name, value) in fields {
            reader.field(name.as_bytes(), value.as_bytes());
        }
        reader.finish()
    }

    fn head(fields: &[(&str, &str)]) -> Result<Head, &'static str> {
        read(false, fields)
    }

    /// Returns what is wrong with a field after `:status`.
    fn wrong(name: &str, value: &str) -> Option<&'static str> {
        head(&[(":status", "200"), (name, value)]).err()
    }

    #[test]
    fn a_head_has_a_status_and_perhaps_a_length() {
        let ok = (":status", "200");
        assert_eq!(head(&[ok]), Ok(Head { status: 200, length: None }));
        let found = head(&[(":status", "404"), ("content-length", "12"), ("server", "x y")]);
        assert_eq!(found, Ok(Head { status: 404, length: Some(12) }));
        let twice = head(&[ok, ("content-length", "5, 5"), ("content-length", "5")]);
        assert_eq!(twice, Ok(Head { status: 200, length: Some(5) }));
    }

    #[test]
    fn the_status_is_first_once_and_has_three_digits() {
        // RFC 9113 sections 8.3 and 8.3.2.
        assert_eq!(head(&[]), Err("a response without :status"));
        assert_eq!(head(&[("server", "x")]), Err("a response without :status"));
        let late = head(&[("server", "x"), (":status", "200")]);
        assert_eq!(late, Err(":status is not the first field"));
        assert_eq!(wrong(":status", "200"), Some(":status occurs twice"));
        assert_eq!(wrong(":path", "/"), Some("a pseudo-header field other than :status"));
        assert_eq!(wrong(":", ""), Some("a pseudo-header field other than :status"));
        for status in ["", "20", "2000", "2x0", "099", "+20", "200 "] {
            let found = head(&[(":status", status)]);
            assert_eq!(found, Err(":status is not a three-digit number"), "{status:?}");
        }
        assert_eq!(head(&[(":status", "999")]).map(|head| head.status), Ok(999));
    }

    #[test]
    fn names_are_lower_case_and_values_in_one_line() {
        // RFC 9113 section 8.2.1.
        for name in ["", "Server", "a b", "a:b", "a\u{7f}", "é", "a\0", "a\n"] {
            assert_eq!(wrong(name, "x"), Some("a malformed header name"), "{name:?}");
        }
        for value in ["a\0b", "a\rb", "a\nb", " a", "a ", "\ta", "a\t", " "] {
            assert_eq!(wrong("x-a", value), Some("a malformed header value"), "{value:?}");
        }
        for (name, value) in [("x-a", ""), ("x_a!~", "a \t b"), ("x", "é\u{7f}\u{1}")] {
            assert_eq!(wrong(name, value), None, "{name:?} {value:?}");
        }
    }

    #[test]
    fn fields_of_http_1_connections_are_malformed() {
        // RFC 9113 section 8.2.2.
        for name in ["connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"]
        {
            let why = "a header field of HTTP/1.1 connections";
            assert_eq!(wrong(name, "x"), Some(why), "{name}");
            assert_eq!(read(true, &[(name, "x")]), Err(why), "{name}");
        }
    }

    #[test]
    fn a_length_is_one_number_of_63_bits() {
        let most = head(&[(":status", "200"), ("content-length", "9223372036854775807")]);
        assert_eq!(most.map(|head| head.length), Ok(Some(9_223_372_036_854_775_807)));
        for value in ["9223372036854775808", "99999999999999999999", "", "-1", "+1", "1,", "0x1"] {
            let why = Some("content-length is not a number");
            assert_eq!(wrong("content-length", value), why, "{value:?}");
        }
        assert_eq!(wrong("content-length", "1, 2"), Some("conflicting content-length values"));
    }

    #[test]
    fn a_grpc_call_that_failed_is_an_error() {
        let failed = Err("grpc-status is not 0: the call failed");
        assert_eq!(read(true, &[("grpc-status", "13"), ("grpc-message", "x")]), failed);
        assert_eq!(read(false, &[(":status", "200"), ("grpc-status", "12")]), failed);
        assert_eq!(read(true, &[("grpc-status", "0")]), Ok(Head { status: 0, length: None }));
    }

    #[test]
    fn trailers_have_no_pseudo_header_fields() {
        // RFC 9113 section 8.1.
        assert!(read(true, &[("grpc-status", "0"), ("content-length", "x")]).is_ok());
        assert!(read(true, &[]).is_ok());
        let why = "a pseudo-header field in trailers";
        assert_eq!(read(true, &[(":status", "200")]), Err(why));
    }

    #[test]
    fn a_header_list_has_at_most_64_kib() {
        // RFC 9113 section 6.5.2: each field counts 32 bytes more. The field :status 200 counts 42.
        let value = "v".repeat(HEADER_LIST - 42 - 33);
        assert_eq!(wrong("a", &value), None);
        assert_eq!(wrong("ab", &value), Some("over 64 KiB of header fields"));
    }

    const OK: Meaning = Ok(Head { status: 200, length: Some(5) });

    #[test]
    fn a_block_is_known_until_the_table_changes() {
        let mut memo = Memo::default();
        assert_eq!(memo.find(b"a", 0), None);
        memo.keep(b"a", 0, OK);
        memo.keep(b"b", 0, Err("wrong"));
        assert_eq!(memo.find(b"a", 0), Some(OK));
        assert_eq!(memo.find(b"b", 0), Some(Err("wrong")));
        assert_eq!((memo.find(b"c", 0), memo.find(b"", 0)), (None, None));
        assert_eq!(memo.find(b"a", 1), None, "the table has changed");
        memo.keep(b"c", 1, OK);
        assert_eq!((memo.find(b"a", 1), memo.find(b"b", 1)), (None, None));
        assert_eq!(memo.find(b"c", 1), Some(OK));
    }

    #[test]
    fn the_last_few_blocks_of_moderate_length_are_kept() {
        let mut memo = Memo::default();
        for block in 0..=ENTRIES as u8 {
            memo.keep(&[block], 0, OK);
        }
        assert_eq!(memo.find(&[0], 0), None);
        assert!((1..=ENTRIES as u8).all(|block| memo.find(&[block], 0) == Some(OK)));
        memo.keep(&[7; LONGEST + 1], 0, OK);
        assert_eq!(memo.find(&[7; LONGEST + 1], 0), None);
        memo.keep(&[7; LONGEST], 0, OK);
        assert_eq!(memo.find(&[7; LONGEST], 0), Some(OK));
    }
}
