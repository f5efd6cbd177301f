//! Header blocks of requests, encoded once.
//!
//! A benchmark sends a few different requests millions of times. The fields that are the same in
//! all requests are called shared. The first request of a connection inserts the shared fields
//! into the server's dynamic table, and later requests name them by their indices. In later
//! blocks, a shared field usually takes one byte. If the server's table is too small for the
//! shared fields, the blocks do not use the table.

use super::hpack::{FIELD_OVERHEAD, STATIC_LENGTH, TABLE_SIZE, find, insert_length, write_integer};
use crate::plan::{Request, Text};

/// Fields that are left out: the fields of HTTP/1.1 connections (RFC 9113 section 8.2.2), and
/// `host`, which `:authority` replaces (section 8.3.1).
const LEFT_OUT: [&str; 7] = [
    "connection",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

/// Fields with secrets. In literals that are not inserted into the table, these fields are marked
/// as never to be indexed (RFC 7541 section 7.1.3). The mark protects against an attack that needs
/// somebody else's requests on the same connection. All requests here belong to one user.
const SENSITIVE: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// The first bits of a literal field (RFC 7541 section 6.2), and the number of bits of its index.
const INSERTED: (u8, u8) = (0x40, 6);
const NOT_INDEXED: (u8, u8) = (0x00, 4);
const NEVER_INDEXED: (u8, u8) = (0x10, 4);

/// The form of a header block. [`ClientConnection::form`](super::ClientConnection::form) returns
/// the form that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockForm {
    /// The first block of a connection, which inserts the shared fields into the table.
    First,
    /// A later block, which uses the table.
    Later,
    /// A block that neither changes nor uses the table.
    Plain,
}

/// The header blocks of some requests. Any of the requests may be the first of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedRequests {
    /// The forms of each request, in the order in which the requests were given.
    forms: Vec<[Template; 3]>,
    /// The size of the shared fields in a table, in bytes. 0 if there are none.
    pub table_size: u32,
}

impl EncodedRequests {
    /// Returns the block of a request in one form.
    #[inline]
    pub fn block(&self, request: usize, form: BlockForm) -> &Template {
        &self.forms[request][form as usize]
    }
}

/// A header block: constant bytes, and strings that are supplied when the block is sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Bytes(Vec<u8>),
    /// A string that is supplied when the block is sent, by its number. Its length precedes it.
    String(u32),
}

impl Template {
    /// Returns the block if no part of it varies.
    #[inline]
    pub fn constant(&self) -> Option<&[u8]> {
        match &*self.parts {
            [Part::Bytes(bytes)] => Some(bytes),
            _ => None,
        }
    }

    /// Appends the block to `out`. For each value that varies, `value` appends the bytes of the
    /// value to the same buffer. Its first argument is 0 for the path, and otherwise the number of
    /// the header, from 1.
    #[inline]
    pub fn render(&self, out: &mut Vec<u8>, mut value: impl FnMut(u32, &mut Vec<u8>)) {
        for part in &self.parts {
            match part {
                Part::Bytes(bytes) => out.extend_from_slice(bytes),
                Part::String(number) => {
                    // One byte is enough for most lengths.
                    out.push(0);
                    let start = out.len();
                    value(*number, out);
                    insert_length(out, start);
                }
            }
        }
    }

    /// Returns the constant bytes of the last part. Adds such a part if necessary.
    fn bytes(&mut self) -> &mut Vec<u8> {
        if !matches!(self.parts.last(), Some(Part::Bytes(_))) {
            self.parts.push(Part::Bytes(Vec::new()));
        }
        match self.parts.last_mut() {
            Some(Part::Bytes(bytes)) => bytes,
            _ => unreachable!("the last part was made one of bytes"),
        }
    }

    /// Appends a field that is in a table, as its index.
    fn indexed(&mut self, index: usize) {
        write_integer(self.bytes(), 0x80, 7, index);
    }

    /// Appends a literal field. The name is an index if the static table has it.
    fn literal(&mut self, (pattern, bits): (u8, u8), field: &Field) {
        let named = find(&field.name, None).map_or(0, |(index, _)| index);
        write_integer(self.bytes(), pattern, bits, named);
        if named == 0 {
            encode_string(self.bytes(), field.name.as_bytes());
        }
        match &field.value {
            Value::Constant(value) => encode_string(self.bytes(), value),
            Value::Varies(number) => self.parts.push(Part::String(*number)),
        }
    }
}

/// Appends a string with its length, without Huffman coding (RFC 7541 section 5.2).
fn encode_string(out: &mut Vec<u8>, string: &[u8]) {
    write_integer(out, 0, 7, string.len());
    out.extend_from_slice(string);
}

/// A field of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    name: String,
    value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Constant(Vec<u8>),
    /// The number of a value that is supplied when the request is sent. See [`Template::render`].
    Varies(u32),
}

impl Field {
    fn constant(name: &str, value: &[u8]) -> Self {
        Self { name: name.to_owned(), value: Value::Constant(value.to_vec()) }
    }

    fn new(name: &str, number: u32, text: &Text) -> Self {
        let value = match text.varies() {
            true => Value::Varies(number),
            false => Value::Constant(text.constant()),
        };
        Self { name: name.to_ascii_lowercase(), value }
    }

    /// Returns the index of the whole field in the static table.
    fn index(&self) -> Option<usize> {
        let Value::Constant(value) = &self.value else { return None };
        find(&self.name, Some(value)).and_then(|(index, is_whole)| is_whole.then_some(index))
    }

    /// Returns the size of the field in the dynamic table (RFC 7541 section 4.1), if the value is
    /// constant.
    fn size(&self) -> Option<usize> {
        match &self.value {
            Value::Constant(value) => Some(self.name.len() + value.len() + FIELD_OVERHEAD),
            Value::Varies(_) => None,
        }
    }

    fn is_pseudo(&self) -> bool {
        self.name.starts_with(':')
    }
}

/// Returns the fields to send for a request, the pseudo-header fields first (RFC 9113 section
/// 8.3).
fn fields(request: &Request, scheme: &str) -> Vec<Field> {
    let mut numbered = (1..).zip(&request.headers);
    let host = numbered.find(|(_, (name, _))| name.eq_ignore_ascii_case("host"));
    let authority = match host {
        Some((number, (_, value))) => Field::new(":authority", number, value),
        None => Field::constant(":authority", b""),
    };
    let mut fields = vec![
        Field::constant(":method", request.method.as_bytes()),
        Field::constant(":scheme", scheme.as_bytes()),
        authority,
        Field::new(":path", 0, &request.path),
    ];
    let headers = (1..).zip(&request.headers);
    let headers = headers.map(|(number, (name, value))| Field::new(name, number, value));
    fields.extend(headers.filter(|field| !LEFT_OUT.contains(&&*field.name)));
    fields
}

/// Returns the fields that all requests have, that are not in the static table, and that fit into
/// a table of the initial size. The first block of a connection inserts the fields in this order.
/// A field whose name occurs twice in a request is left out, because the order of its values
/// matters.
fn shared(lists: &[Vec<Field>]) -> Vec<Field> {
    let Some(first) = lists.first() else { return Vec::new() };
    let has = |list: &Vec<Field>, field: &Field| {
        list.iter().filter(|other| other.name == field.name).count() == 1 && list.contains(field)
    };
    let mut size = 0;
    let candidates = first.iter().filter(|field| field.index().is_none());
    let shared = candidates.filter(|field| {
        let Some(own) = field.size() else { return false };
        let fits = size + own <= TABLE_SIZE as usize && lists.iter().all(|list| has(list, field));
        size += if fits { own } else { 0 };
        fits
    });
    shared.cloned().collect()
}

/// Encodes requests for the scheme `http` or `https`. A connection may carry any number of the
/// requests, in any order.
pub fn encode(requests: &[Request], scheme: &str) -> EncodedRequests {
    let lists: Vec<Vec<Field>> = requests.iter().map(|r| fields(r, scheme)).collect();
    let shared = shared(&lists);
    let forms = [BlockForm::First, BlockForm::Later, BlockForm::Plain];
    let encoded = |list: &Vec<Field>| forms.map(|form| template(list, &shared, form));
    EncodedRequests {
        forms: lists.iter().map(encoded).collect(),
        table_size: shared.iter().filter_map(Field::size).sum::<usize>() as u32,
    }
}

/// Returns one form of a request: the pseudo-header fields, the other shared fields, and the rest.
fn template(list: &[Field], shared: &[Field], form: BlockForm) -> Template {
    let mut template = Template::default();
    let pseudo = list.iter().filter(|field| field.is_pseudo());
    let common = shared.iter().filter(|field| !field.is_pseudo());
    let rest = list.iter().filter(|field| !field.is_pseudo() && !shared.contains(field));
    for field in pseudo.chain(common).chain(rest) {
        let position = shared.iter().position(|other| other == field);
        match (position, form, field.index()) {
            (Some(_), BlockForm::First, _) => template.literal(INSERTED, field),
            // RFC 7541 section 2.3.3: the newest field has the lowest index.
            (Some(at), BlockForm::Later, _) => template.indexed(STATIC_LENGTH + shared.len() - at),
            (_, _, Some(index)) => template.indexed(index),
            _ if SENSITIVE.contains(&&*field.name) => template.literal(NEVER_INDEXED, field),
            _ => template.literal(NOT_INDEXED, field),
        }
    }
    template
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::hpack::Decoder;
    use crate::plan;

    const AGENT: (&str, &str) = ("User-Agent", "hotlap");

    fn built(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Request {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let headers: Vec<_> = headers.iter().map(owned).collect();
        Request::build(method, path, "h:80", &headers, body)
    }

    fn request(path: &str, headers: &[(&str, &str)]) -> Request {
        built("GET", path, headers, b"")
    }

    fn encode(requests: &[Request]) -> EncodedRequests {
        super::encode(requests, "http")
    }

    fn bytes(encoded: &EncodedRequests, number: usize, form: BlockForm) -> Vec<u8> {
        encoded.block(number, form).constant().unwrap().to_vec()
    }

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        decoder.decode(block, |n, v| found.push(format!("{}={}", text(n), text(v)))).unwrap();
        found
    }

    #[test]
    fn the_first_block_inserts_the_shared_fields_and_later_ones_use_them() {
        let encoded = encode(&[request("/", &[AGENT])]);
        // RFC 7541 section 6.1: 82 is :method GET, 86 is :scheme http, and 84 is :path /. Section
        // 6.2.1: 41 inserts :authority (1), and 7a inserts user-agent (58).
        let first = b"\x82\x86\x41\x04h:80\x84\x7a\x06hotlap";
        assert_eq!(bytes(&encoded, 0, BlockForm::First), first);
        // Index 62 is the newest field, user-agent, and index 63 is :authority.
        assert_eq!(bytes(&encoded, 0, BlockForm::Later), b"\x82\x86\xbf\x84\xbe");
        // Section 6.2.2: 01 is :authority, and 0f 2b is user-agent (58 = 15 + 43).
        let plain = b"\x82\x86\x01\x04h:80\x84\x0f\x2b\x06hotlap";
        assert_eq!(bytes(&encoded, 0, BlockForm::Plain), plain);
        // Section 4.1: the sizes are 10 + 4 + 32 and 10 + 6 + 32 bytes.
        assert_eq!(encoded.table_size, 46 + 48);
    }

    #[test]
    fn any_request_may_be_the_first_of_a_connection() {
        let one = [AGENT, ("accept", "*/*"), ("x-a", "1")];
        let two = [("X-A", "2"), ("Accept", "*/*"), AGENT];
        let encoded = encode(&[request("/one", &one), request("/two", &two)]);
        let expected = |n: usize| {
            let path = ["/one", "/two"][n];
            let list = [":method=GET", ":scheme=http", ":authority=h:80", "accept=*/*"];
            let mut list: Vec<String> = list.map(str::to_owned).to_vec();
            list.insert(3, format!(":path={path}"));
            list.insert(4, "user-agent=hotlap".to_owned());
            list.push(format!("x-a={}", n + 1));
            list
        };
        for order in [[0, 1, 0], [1, 0, 1], [1, 1, 0]] {
            let mut decoder = Decoder::default();
            for (place, number) in order.into_iter().enumerate() {
                let form = if place == 0 { BlockForm::First } else { BlockForm::Later };
                let block = bytes(&encoded, number, form);
                assert_eq!(decoded(&mut decoder, &block), expected(number), "{order:?}");
            }
            assert_eq!(decoder.changes(), 3, "only the first block inserts fields");
            let plain = bytes(&encoded, 0, BlockForm::Plain);
            assert_eq!(decoded(&mut Decoder::default(), &plain), expected(0));
        }
    }

    #[test]
    fn values_that_vary_are_supplied_when_a_request_is_sent() {
        let field = plan::Field::new("id", plan::ValueSource::Uuid);
        let varying = Request::with_fields("GET", "/${id}", "h:80", &[], b"", &[field]).unwrap();
        let encoded = encode(&[varying]);
        let template = encoded.block(0, BlockForm::Later);
        assert_eq!(template.constant(), None);
        let render = |length: usize| {
            let mut out = b"before".to_vec();
            template.render(&mut out, |number, out| {
                assert_eq!(number, 0);
                out.extend(std::iter::repeat_n(b'p', length));
            });
            out
        };
        // The byte 04 is :path, not indexed.
        assert_eq!(render(2), b"before\x82\x86\xbe\x04\x02pp");
        // Section 5.1: the length 200 is encoded as 127 + 73.
        let long = render(200);
        assert_eq!(long[..12], *b"before\x82\x86\xbe\x04\x7f\x49");
        assert_eq!(long[12..], [b'p'; 200]);
        assert_eq!(encoded.table_size, 46, ":authority alone is shared");
    }

    /// Regression: a field in `Host` was left out of `:authority`.
    #[test]
    fn a_host_may_vary() {
        let field = plan::Field::new("id", plan::ValueSource::Uuid);
        let host = ("Host".to_owned(), "${id}".to_owned());
        let varying = Request::with_fields("GET", "/", "h:80", &[host], b"", &[field]).unwrap();
        let encoded = encode(&[varying]);
        let mut out = Vec::new();
        encoded.block(0, BlockForm::Plain).render(&mut out, |number, out| {
            out.extend_from_slice(format!("host {number}").as_bytes());
        });
        let list = [":method=GET", ":scheme=http", ":authority=host 1", ":path=/"];
        assert_eq!(decoded(&mut Decoder::default(), &out), list);
    }

    #[test]
    fn fields_of_http_1_connections_are_left_out_and_the_length_added() {
        let names =
            LEFT_OUT.into_iter().filter(|name| !["host", "transfer-encoding"].contains(name));
        let headers: Vec<(&str, &str)> = names.map(|name| (name, "x")).collect();
        let fields = |headers: &[(&str, &str)]| {
            let post = built("POST", "/", headers, &[b'b'; 12]);
            decoded(&mut Decoder::default(), &bytes(&encode(&[post]), 0, BlockForm::Plain))
        };
        let pseudo = [":method=POST", ":scheme=http", ":authority=h:80", ":path=/"];
        assert_eq!(fields(&headers), [&pseudo[..], &["content-length=12"]].concat());
        assert_eq!(fields(&[("Content-Length", "5")]).last().unwrap(), "content-length=5");
        // The end of the stream is the end of the body.
        assert_eq!(fields(&[("Transfer-Encoding", "chunked")]), pseudo);
    }

    #[test]
    fn secrets_are_never_indexed_unless_they_are_shared() {
        let (one, two) = ([("cookie", "1")], [("cookie", "2")]);
        let encoded = encode(&[request("/", &one), request("/", &two)]);
        // Section 6.2.3: 1f 11 is cookie (32 = 15 + 17), never indexed.
        assert!(bytes(&encoded, 0, BlockForm::Later).ends_with(b"\x1f\x11\x011"));
        let encoded = encode(&[request("/", &one), request("/", &one)]);
        assert!(bytes(&encoded, 0, BlockForm::First).ends_with(b"\x60\x011"));
        assert!(bytes(&encoded, 0, BlockForm::Plain).ends_with(b"\x1f\x11\x011"));
    }

    #[test]
    fn repeated_names_and_what_does_not_fit_are_not_shared() {
        let repeated = [("a", "1"), ("a", "2")];
        let encoded = encode(&[request("/", &repeated)]);
        assert_eq!(encoded.table_size, 46);
        assert!(bytes(&encoded, 0, BlockForm::Later).ends_with(b"\x00\x01a\x011\x00\x01a\x012"));
        // The table has 4096 - 46 = 4050 bytes left for x, whose size is 1 + value + 32.
        let value = "v".repeat(4018);
        let (fits, long) = ([("x", &value[..4017])], [("x", &value[..])]);
        assert_eq!(encode(&[request("/", &fits)]).table_size, 4096);
        assert_eq!(encode(&[request("/", &long)]).table_size, 46);
        assert_eq!(encode(&[]).table_size, 0);
    }
}
