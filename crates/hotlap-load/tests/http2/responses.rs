//! Malformed responses and floods: name, frames after the SETTINGS, and what the client reports.

use crate::scripts::Parts;
use crate::server::*;

pub fn heads() -> Vec<Parts> {
    let end = WHOLE | END;
    let one = |fields: &[(&str, &str)]| vec![headers(1, end, &block(fields))];
    let digits = "malformed 0: :status is not a number of three digits";
    let http_1 = "malformed 0: a header field of HTTP/1.1 connections";
    vec![
        (
            "no status",
            vec![headers(1, end, &literals(&[("server", "x")]))],
            "malformed 0: a response without :status",
        ),
        ("an empty block", vec![headers(1, end, b"")], "malformed 0: a response without :status"),
        ("a status twice", one(&[(":status", "200")]), "malformed 0: :status occurs twice"),
        (
            "a late status",
            vec![headers(1, end, &literals(&[("server", "x"), (":status", "200")]))],
            "malformed 0: :status is not the first field",
        ),
        ("a status of two digits", vec![headers(1, end, &literals(&[(":status", "20")]))], digits),
        ("a status of letters", vec![headers(1, end, &literals(&[(":status", "abc")]))], digits),
        (
            "a pseudo-header field of requests",
            one(&[(":path", "/")]),
            "malformed 0: a pseudo-header field other than :status",
        ),
        ("an upper-case name", one(&[("Server", "x")]), "malformed 0: a malformed header name"),
        ("a name with a space", one(&[("a b", "x")]), "malformed 0: a malformed header name"),
        (
            "a value with a line break",
            one(&[("a", "x\r\ny")]),
            "malformed 0: a malformed header value",
        ),
        (
            "a value with spaces around it",
            one(&[("a", " x")]),
            "malformed 0: a malformed header value",
        ),
        ("transfer-encoding", one(&[("transfer-encoding", "chunked")]), http_1),
        ("connection", one(&[("connection", "close")]), http_1),
        (
            "101",
            vec![headers(1, WHOLE, b"\x08\x03101")],
            "malformed 0: the server switched protocols (101), which HTTP/2 does not have",
        ),
        (
            "an interim response at the end",
            vec![headers(1, end, b"\x08\x03103")],
            "malformed 0: an interim response ends the stream",
        ),
        (
            "an index that does not exist",
            vec![headers(1, end, b"\xbe")],
            "COMPRESSION_ERROR: a header field has an index that does not exist",
        ),
        (
            "a block that is cut off",
            vec![headers(1, end, b"\x88\x08\x03")],
            "COMPRESSION_ERROR: a header block ends within a field",
        ),
        (
            "a wrong Huffman code",
            vec![headers(1, end, b"\x08\x81\xff")],
            "COMPRESSION_ERROR: a Huffman-coded string has wrong padding",
        ),
        (
            "a header table that is too large",
            vec![headers(1, end, b"\x3f\xe2\x1f\x88")],
            "COMPRESSION_ERROR: the header table is set to over 4096 bytes",
        ),
        (
            "a late table size update",
            vec![headers(1, end, b"\x88\x20")],
            "COMPRESSION_ERROR: a table size update is not at the start of its header block",
        ),
        (
            "a wrong block on a stream that was reset",
            vec![headers(1, end, b""), headers(1, end, b"\xbe")],
            "malformed 0: a response without :status; COMPRESSION_ERROR: a header field has an index that does not exist",
        ),
        (
            "the table is kept over a malformed block",
            vec![
                headers(1, end, b"\x40\x01A\x01b"),
                headers(3, WHOLE, b"\x88\xbe"),
                headers(5, end, b"\x88"),
            ],
            "malformed 0: a malformed header name; malformed 1: a malformed header name; head 2 200; end 2",
        ),
    ]
}

pub fn bodies() -> Vec<Parts> {
    let less = "malformed 0: less DATA than content-length";
    vec![
        (
            "DATA before the head",
            vec![data(1, END, b"Hello")],
            "malformed 0: DATA before the head of the response",
        ),
        (
            "DATA after an interim response",
            vec![headers(1, WHOLE, b"\x08\x03100"), data(1, END, b"x")],
            "malformed 0: DATA before the head of the response",
        ),
        (
            "more DATA than the length",
            vec![headers(1, WHOLE, OK_5), data(1, 0, b"Hello"), data(1, END, b"!")],
            "head 0 200 length 5; data 0 Hello; malformed 0: more DATA than content-length",
        ),
        (
            "more DATA than the length, in one frame",
            vec![headers(1, WHOLE, OK_5), data(1, END, b"Hello!"), headers(3, WHOLE | END, OK)],
            "head 0 200 length 5; malformed 0: more DATA than content-length; head 1 200; end 1",
        ),
        (
            "less DATA than the length",
            vec![headers(1, WHOLE, OK_5), data(1, END, b"Hell")],
            "head 0 200 length 5; malformed 0: less DATA than content-length",
        ),
        ("no DATA with a length", vec![headers(1, WHOLE | END, OK_5)], less),
        (
            "trailers before the length is reached",
            vec![headers(1, WHOLE, OK_5), data(1, 0, b"Hell"), headers(1, WHOLE | END, b"")],
            "head 0 200 length 5; data 0 Hell; malformed 0: less DATA than content-length",
        ),
        (
            "conflicting lengths",
            vec![headers(1, WHOLE, &block(&[("content-length", "5"), ("content-length", "6")]))],
            "malformed 0: conflicting content-length values",
        ),
        (
            "a length that is no number",
            vec![headers(1, WHOLE, &block(&[("content-length", "-5")]))],
            "malformed 0: content-length is no number",
        ),
        (
            "a body in a response to a HEAD",
            vec![headers(7, WHOLE, OK_5), data(7, END, b"Hello")],
            "head 3 200 length 5; malformed 3: DATA, though the response has no body",
        ),
        (
            "a body with a 204",
            vec![headers(1, WHOLE, b"\x89"), data(1, END, b"Hello")],
            "head 0 204; malformed 0: DATA, though the response has no body",
        ),
        (
            "a body with a length of 0",
            vec![headers(1, WHOLE, b"\x88\x0f\x0d\x010"), data(1, END, b"x")],
            "head 0 200 length 0; malformed 0: DATA, though the response has no body",
        ),
        (
            "trailers with a pseudo-header field",
            vec![headers(1, WHOLE, OK), headers(1, WHOLE | END, OK)],
            "head 0 200; malformed 0: a pseudo-header field in trailers",
        ),
        (
            "trailers that do not end the stream",
            vec![headers(1, WHOLE, OK), headers(1, WHOLE, &literals(&[("a", "b")]))],
            "head 0 200; malformed 0: trailers that do not end the stream",
        ),
        (
            "upper-case trailers",
            vec![headers(1, WHOLE, OK), headers(1, WHOLE | END, &literals(&[("A", "b")]))],
            "head 0 200; malformed 0: a malformed header name",
        ),
    ]
}

pub fn floods() -> Vec<Parts> {
    let flood = "ENHANCE_YOUR_CALM: too many frames that answer no request";
    let block = "ENHANCE_YOUR_CALM: a header block of over 64 KiB or 64 frames";
    // One byte names a field of 4 KiB: a header list of 64 MiB in 16 KiB.
    let mut bomb = vec![0x88, 0x40, 1, b'a', 0x7f, 0xd8, 0x1e];
    bomb.extend([b'v'; 4_055]);
    assert_eq!(bomb.len(), 4_062);
    bomb.extend([0xbe; 12_000]);
    // 65536 bytes / 17 = 3855 answers to PING, and one to SETTINGS.
    vec![
        ("many PINGs", vec![ping().repeat(3_854)], ""),
        ("a PING flood", vec![ping().repeat(4_000)], flood),
        (
            "PINGs with bodies",
            vec![headers(1, WHOLE, OK), [ping(), data(1, 0, &[b'x'; 20])].concat().repeat(6_000)],
            "head 0 200; data 0 120000 bytes",
        ),
        ("a SETTINGS flood", vec![settings(&[]).repeat(8_000)], flood),
        (
            "a flood of empty DATA",
            vec![headers(1, WHOLE, OK), data(1, 0, b"").repeat(8_000)],
            "head 0 200; ENHANCE_YOUR_CALM: too many frames that answer no request",
        ),
        (
            "CONTINUATION without end",
            vec![headers(1, 0, OK), continuation(1, 0, &[0; 16_000]).repeat(100)],
            block,
        ),
        (
            "empty CONTINUATION without end",
            vec![headers(1, 0, OK), continuation(1, 0, b"").repeat(1_000)],
            block,
        ),
        (
            "a flood of interim responses",
            vec![headers(1, WHOLE, b"\x08\x03103").repeat(1_000), headers(3, WHOLE | END, OK)],
            "malformed 0: over 100 interim responses; head 1 200; end 1",
        ),
        (
            "a header table bomb",
            vec![headers(1, WHOLE | END, &bomb[..16_062]), headers(3, WHOLE | END, b"\x88")],
            "malformed 0: over 64 KiB of header fields; head 1 200; end 1",
        ),
    ]
}
