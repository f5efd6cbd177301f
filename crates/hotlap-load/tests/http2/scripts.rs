//! Scripts of misbehaving servers. Each has a name, the bytes that follow the requests, and the
//! report that the client should make.

use std::sync::LazyLock;

use hotlap_load::http2::kind;

use crate::server::*;

/// A script: its name, the server's bytes, and the client's report in words.
pub type Script = (&'static str, Vec<u8>, String);

/// All scripts. Each script begins with valid SETTINGS, except for the scripts of [`beginnings`].
pub static ALL: LazyLock<Vec<Script>> = LazyLock::new(|| {
    let mut all = beginnings();
    for (name, bytes, expected) in
        [valid(), frames(), streams(), control(), heads(), bodies(), floods()].concat()
    {
        all.push((name, [settings(&[]), bytes].concat(), expected));
    }
    all
});

/// Builds scripts whose reports all begin with `report`.
fn all(report: &str, scripts: Vec<(&'static str, Vec<u8>, &str)>) -> Vec<Script> {
    let script = |(name, bytes, rest)| (name, bytes, format!("{report}{rest}"));
    scripts.into_iter().map(script).collect()
}

fn beginnings() -> Vec<Script> {
    [
        all(
            "",
            vec![("silence", vec![], ""), ("half a frame header", settings(&[])[..5].to_vec(), "")],
        ),
        all(
            "PROTOCOL_ERROR: ",
            vec![
                (
                    "an HTTP/1 response",
                    b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
                    "an HTTP/1 response instead of HTTP/2",
                ),
                (
                    "another protocol",
                    b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
                    "the first frame is not SETTINGS",
                ),
                ("no SETTINGS", headers(1, WHOLE | END, OK), "the first frame is not SETTINGS"),
                ("GOAWAY without SETTINGS", goaway(0, 0), "the first frame is not SETTINGS"),
                (
                    "an acknowledgement first",
                    frame(kind::SETTINGS, 1, 0, &[]),
                    "the first frame is not SETTINGS",
                ),
            ],
        ),
    ]
    .concat()
}

fn valid() -> Vec<Script> {
    all(
        "",
        vec![
            (
                "a response",
                [headers(1, WHOLE, OK_5), data(1, END, b"Hello")].concat(),
                "head 0 200 length 5; data 0 Hello; end 0",
            ),
            (
                "a body in pieces, and an empty end",
                [headers(1, WHOLE, OK), data(1, 0, b"He"), data(1, 0, b"llo"), data(1, END, b"")]
                    .concat(),
                "head 0 200; data 0 Hello; end 0",
            ),
            (
                "padding, priority and unknown frames are ignored",
                [
                    frame(0x42, 0xff, 1, b"anything"),
                    headers(1, WHOLE | PADDED | 0x20, b"\x02\0\0\0\0\0\x88\0\0"),
                    frame(kind::PRIORITY, 0, 99, &[0; 5]),
                    data(1, END | PADDED, b"\x03Hello\0\0\0"),
                ]
                .concat(),
                "head 0 200; data 0 Hello; end 0",
            ),
            (
                "a head in three frames, and trailers",
                [
                    headers(1, 0, &OK_5[..1]),
                    continuation(1, 0, b""),
                    continuation(1, WHOLE, &OK_5[1..]),
                    data(1, 0, b"Hello"),
                    headers(1, WHOLE | END, &literals(&[("grpc-status", "0")])),
                ]
                .concat(),
                "head 0 200 length 5; data 0 Hello; end 0",
            ),
            (
                "interim responses are skipped",
                [
                    headers(1, WHOLE, b"\x08\x03100"),
                    headers(1, WHOLE, b"\x08\x03103\0\x04link\x03</>"),
                    headers(1, WHOLE | END, b"\x89"),
                ]
                .concat(),
                "head 0 204; end 0",
            ),
            (
                "the length of a response to a HEAD",
                [headers(7, WHOLE | END, OK_5), headers(1, WHOLE | END, b"\x8b\x0f\x0d\x015")]
                    .concat(),
                "head 3 200 length 5; end 3; head 0 304 length 5; end 0",
            ),
            (
                "responses in another order, interleaved",
                [
                    headers(5, WHOLE, OK_5),
                    headers(1, WHOLE, OK),
                    data(1, 0, b"a"),
                    data(5, END, b"Hello"),
                    data(1, END, b"b"),
                ]
                .concat(),
                "head 2 200 length 5; head 0 200; data 0 a; data 2 Hello; end 2; data 0 b; end 0",
            ),
        ],
    )
}

fn frames() -> Vec<Script> {
    [
    all("FRAME_SIZE_ERROR: ", vec![
        ("a frame over 16 KiB", data(1, 0, &[0; 16_385]), "a frame of over 16 KiB"),
        ("an unknown frame over 16 KiB", frame(0x42, 0, 0, &[0; 16_385]), "a frame of over 16 KiB"),
        ("padded HEADERS without a length", headers(1, WHOLE | PADDED, b""), "a padded frame without the length of its padding"),
        ("HEADERS with half a priority", headers(1, WHOLE | 0x20, b"\0\0\0\0"), "HEADERS without its priority"),
        ("PRIORITY of 4 bytes", frame(kind::PRIORITY, 0, 1, &[0; 4]), "PRIORITY is not 5 bytes long"),
    ]),
    all("", vec![
        ("half a frame, then silence", headers(1, WHOLE, OK_5)[..11].to_vec(), ""),
        ("half a body, then silence", [headers(1, WHOLE, OK_5), data(1, END, b"Hello")[..12].to_vec()].concat(), "head 0 200 length 5; data 0 Hel"),
        ("DATA of padding alone", [headers(1, WHOLE, OK), data(1, PADDED, b"\x05Hello")].concat(), "head 0 200"),
        ("DATA with more padding than payload", [headers(1, WHOLE, OK), data(1, PADDED, b"\x06Hello")].concat(), "head 0 200; PROTOCOL_ERROR: padding that is longer than its frame"),
        ("padded DATA without a length", [headers(1, WHOLE, OK), data(1, PADDED, b"")].concat(), "head 0 200; FRAME_SIZE_ERROR: a padded frame without the length of its padding"),
        ("CONTINUATION after a complete block", [headers(1, WHOLE, OK), continuation(1, WHOLE, OK)].concat(), "head 0 200; PROTOCOL_ERROR: CONTINUATION without HEADERS"),
    ]),
    all("PROTOCOL_ERROR: ", vec![
        ("HEADERS with more padding than payload", headers(1, WHOLE | PADDED, b"\x02\x88"), "padding that is longer than its frame"),
        ("HEADERS with padding over the priority", headers(1, WHOLE | PADDED | 0x20, b"\x01\0\0\0\0\0"), "padding that is longer than its frame"),
        ("PRIORITY on stream 0", frame(kind::PRIORITY, 0, 0, &[0; 5]), "PRIORITY on stream 0"),
        ("CONTINUATION without HEADERS", continuation(1, WHOLE, OK), "CONTINUATION without HEADERS"),
        ("a block interrupted by DATA", [headers(1, 0, OK), data(1, END, b"")].concat(), "a header block is interrupted by another frame"),
        ("a block interrupted by another stream", [headers(1, 0, OK), continuation(3, WHOLE, b"")].concat(), "a header block is interrupted by another frame"),
        ("a block interrupted by an unknown frame", [headers(1, 0, OK), frame(0x42, 0, 1, b"")].concat(), "a header block is interrupted by another frame"),
        ("a block interrupted by PING", [headers(1, 0, OK), ping()].concat(), "a header block is interrupted by another frame"),
        ("a push", frame(kind::PUSH_PROMISE, WHOLE, 1, &[0, 0, 0, 2, 0x82]), "PUSH_PROMISE, though push is disabled"),
    ]),
    ].concat()
}

fn streams() -> Vec<Script> {
    let early = headers(1, WHOLE | END, OK);
    [
    all("PROTOCOL_ERROR: ", vec![
        ("a response on an even stream", headers(2, WHOLE | END, OK), "HEADERS on a stream without a request"),
        ("a response that was not requested", headers(11, WHOLE | END, OK), "HEADERS on a stream without a request"),
        ("a response on stream 0", headers(0, WHOLE | END, OK), "HEADERS on a stream without a request"),
        ("DATA on stream 0", data(0, 0, b"x"), "DATA on a stream without a request"),
        ("DATA on an even stream", data(4, 0, b"x"), "DATA on a stream without a request"),
        ("RST_STREAM on an idle stream", rst_stream(11, 0), "RST_STREAM on a stream without a request"),
        ("RST_STREAM on stream 0", rst_stream(0, 0), "RST_STREAM on a stream without a request"),
        ("WINDOW_UPDATE on an idle stream", window_update(11, 1), "WINDOW_UPDATE on a stream without a request"),
        ("GOAWAY on a stream", frame(kind::GOAWAY, 0, 1, &[0; 8]), "GOAWAY on a stream"),
    ]),
    all("", vec![
        ("DATA after the end", [early.clone(), data(1, END, b"x")].concat(), "head 0 200; end 0; STREAM_CLOSED: DATA on a stream that has ended"),
        ("HEADERS after the end", [early.clone(), early.clone()].concat(), "head 0 200; end 0; STREAM_CLOSED: HEADERS on a stream that has ended"),
        ("RST_STREAM and WINDOW_UPDATE after the end", [early, rst_stream(1, 0), window_update(1, 1)].concat(), "head 0 200; end 0"),
        ("a reset of each stream", [rst_stream(1, 7), rst_stream(3, 2), rst_stream(5, 99), rst_stream(7, 0), rst_stream(9, 8)].concat(), "reset 0 REFUSED_STREAM; reset 1 INTERNAL_ERROR; reset 2 error code 0x63; reset 3 NO_ERROR; reset 4 CANCEL"),
        ("a reset within a response", [headers(1, WHOLE, OK_5), data(1, 0, b"He"), rst_stream(1, 2)].concat(), "head 0 200 length 5; data 0 He; reset 0 INTERNAL_ERROR"),
        ("DATA after a reset", [rst_stream(1, 2), data(1, END, b"x")].concat(), "reset 0 INTERNAL_ERROR; STREAM_CLOSED: DATA on a stream that has ended"),
        ("frames of a stream that the client has reset are ignored", [headers(1, WHOLE, b""), data(1, 0, b"x"), headers(1, WHOLE | END, OK), headers(3, WHOLE | END, OK)].concat(), "malformed 0: a response without :status; head 1 200; end 1"),
        ("GOAWAY at once", goaway(0, 0), "goaway 0 NO_ERROR; refused 0; refused 1; refused 2; refused 3; refused 4"),
        ("GOAWAY in the middle", [headers(1, WHOLE, OK_5), goaway(3, 11), data(1, END, b"Hello"), headers(5, WHOLE | END, OK), headers(3, WHOLE | END, OK)].concat(), "head 0 200 length 5; goaway 3 ENHANCE_YOUR_CALM; refused 2; refused 3; refused 4; data 0 Hello; end 0; head 1 200; end 1"),
        ("a graceful GOAWAY in two steps", [goaway((1 << 31) - 1, 0), goaway(7, 0)].concat(), "goaway 2147483647 NO_ERROR; goaway 7 NO_ERROR; refused 4"),
        ("a second GOAWAY with a higher stream", [goaway(3, 0), goaway(5, 0)].concat(), "goaway 3 NO_ERROR; refused 2; refused 3; refused 4; PROTOCOL_ERROR: a second GOAWAY with a higher last stream"),
    ]),
    all("FRAME_SIZE_ERROR: ", vec![
        ("a short GOAWAY", frame(kind::GOAWAY, 0, 0, &[0; 7]), "GOAWAY is shorter than 8 bytes"),
    ]),
    ].concat()
}

fn control() -> Vec<Script> {
    [
        all(
            "PROTOCOL_ERROR: ",
            vec![
                ("SETTINGS on a stream", frame(kind::SETTINGS, 0, 1, &[]), "SETTINGS on a stream"),
                (
                    "push enabled by the server",
                    settings(&[(2, 1)]),
                    "the server sets SETTINGS_ENABLE_PUSH",
                ),
                (
                    "a frame size that is too small",
                    settings(&[(5, 16_383)]),
                    "SETTINGS_MAX_FRAME_SIZE is out of range",
                ),
                ("PING on a stream", frame(kind::PING, 0, 1, &[0; 8]), "PING on a stream"),
                ("WINDOW_UPDATE by 0", window_update(0, 0), "WINDOW_UPDATE by 0 on the connection"),
            ],
        ),
        all(
            "FRAME_SIZE_ERROR: ",
            vec![
                (
                    "SETTINGS of 5 bytes",
                    frame(kind::SETTINGS, 0, 0, &[0; 5]),
                    "the length of SETTINGS is not a multiple of 6",
                ),
                (
                    "an acknowledgement with a payload",
                    frame(kind::SETTINGS, 1, 0, &[0; 6]),
                    "an acknowledgement of SETTINGS with a payload",
                ),
                ("PING of 7 bytes", frame(kind::PING, 0, 0, &[0; 7]), "PING is not 8 bytes long"),
                (
                    "RST_STREAM of 5 bytes",
                    frame(kind::RST_STREAM, 0, 1, &[0; 5]),
                    "RST_STREAM is not 4 bytes long",
                ),
                (
                    "WINDOW_UPDATE of 3 bytes",
                    frame(kind::WINDOW_UPDATE, 0, 0, &[0; 3]),
                    "WINDOW_UPDATE is not 4 bytes long",
                ),
            ],
        ),
        all(
            "FLOW_CONTROL_ERROR: ",
            vec![
                (
                    "a window size that is too large",
                    settings(&[(4, 1 << 31)]),
                    "SETTINGS_INITIAL_WINDOW_SIZE is over 2^31 - 1",
                ),
                (
                    "SETTINGS that overflow a window",
                    [window_update(1, 1), settings(&[(4, (1 << 31) - 1)])].concat(),
                    "SETTINGS make a window larger than 2^31 - 1",
                ),
                (
                    "a connection window over 2^31 - 1",
                    [window_update(0, (1 << 31) - 1), window_update(0, (1 << 31) - 1)].concat(),
                    "the window of the connection is over 2^31 - 1",
                ),
            ],
        ),
        all(
            "malformed 0: ",
            vec![
                ("WINDOW_UPDATE by 0 on a stream", window_update(1, 0), "WINDOW_UPDATE by 0"),
                (
                    "a stream window over 2^31 - 1",
                    window_update(1, (1 << 31) - 1),
                    "the window of a stream is over 2^31 - 1",
                ),
            ],
        ),
    ]
    .concat()
}

fn heads() -> Vec<Script> {
    let end = WHOLE | END;
    [
    all("malformed 0: ", vec![
        ("no status", headers(1, end, &literals(&[("server", "x")])), "a response without :status"),
        ("an empty block", headers(1, end, b""), "a response without :status"),
        ("a status twice", headers(1, end, &block(&[(":status", "200")])), ":status occurs twice"),
        ("a late status", headers(1, end, &literals(&[("server", "x"), (":status", "200")])), ":status is not the first field"),
        ("a status of two digits", headers(1, end, &literals(&[(":status", "20")])), ":status is not a three-digit number"),
        ("a status of letters", headers(1, end, &literals(&[(":status", "abc")])), ":status is not a three-digit number"),
        ("a pseudo-header field of requests", headers(1, end, &block(&[(":path", "/")])), "a pseudo-header field other than :status"),
        ("an upper-case name", headers(1, end, &block(&[("Server", "x")])), "a malformed header name"),
        ("a name with a space", headers(1, end, &block(&[("a b", "x")])), "a malformed header name"),
        ("a value with a line break", headers(1, end, &block(&[("a", "x\r\ny")])), "a malformed header value"),
        ("a value with spaces around it", headers(1, end, &block(&[("a", " x")])), "a malformed header value"),
        ("transfer-encoding", headers(1, end, &block(&[("transfer-encoding", "chunked")])), "a header field of HTTP/1.1 connections"),
        ("connection", headers(1, end, &block(&[("connection", "close")])), "a header field of HTTP/1.1 connections"),
        ("101", headers(1, WHOLE, b"\x08\x03101"), "the server switched protocols (101), which HTTP/2 does not have"),
        ("an interim response at the end", headers(1, end, b"\x08\x03103"), "an interim response ends the stream"),
    ]),
    all("COMPRESSION_ERROR: ", vec![
        ("an index that does not exist", headers(1, end, b"\xbe"), "a header field has an index that does not exist"),
        ("a block that is cut off", headers(1, end, b"\x88\x08\x03"), "a header block ends within a field"),
        ("a wrong Huffman code", headers(1, end, b"\x08\x81\xff"), "a Huffman-coded string has wrong padding"),
        ("a header table that is too large", headers(1, end, b"\x3f\xe2\x1f\x88"), "the header table is set to over 4096 bytes"),
        ("a late table size update", headers(1, end, b"\x88\x20"), "a table size update is late, or the third one at the start of its block"),
    ]),
    all("", vec![
        ("a wrong block on a stream that was reset", [headers(1, end, b""), headers(1, end, b"\xbe")].concat(), "malformed 0: a response without :status; COMPRESSION_ERROR: a header field has an index that does not exist"),
        ("the table is kept over a malformed block", [headers(1, end, b"\x40\x01A\x01b"), headers(3, WHOLE, b"\x88\xbe"), headers(5, end, b"\x88")].concat(), "malformed 0: a malformed header name; malformed 1: a malformed header name; head 2 200; end 2"),
    ]),
    ].concat()
}

fn bodies() -> Vec<Script> {
    [
    all("malformed 0: ", vec![
        ("DATA before the head", data(1, END, b"Hello"), "DATA before the head of the response"),
        ("DATA after an interim response", [headers(1, WHOLE, b"\x08\x03100"), data(1, END, b"x")].concat(), "DATA before the head of the response"),
        ("no DATA with a length", headers(1, WHOLE | END, OK_5), "less DATA than content-length"),
        ("conflicting lengths", headers(1, WHOLE, &block(&[("content-length", "5"), ("content-length", "6")])), "conflicting content-length values"),
        (
            "a length that is not a number",
            headers(1, WHOLE, &block(&[("content-length", "-5")])),
            "content-length is not a number",
        ),
    ]),
    all("", vec![
        ("more DATA than the length", [headers(1, WHOLE, OK_5), data(1, 0, b"Hello"), data(1, END, b"!")].concat(), "head 0 200 length 5; data 0 Hello; malformed 0: more DATA than content-length"),
        ("more DATA than the length, in one frame", [headers(1, WHOLE, OK_5), data(1, END, b"Hello!"), headers(3, WHOLE | END, OK)].concat(), "head 0 200 length 5; malformed 0: more DATA than content-length; head 1 200; end 1"),
        ("less DATA than the length", [headers(1, WHOLE, OK_5), data(1, END, b"Hell")].concat(), "head 0 200 length 5; malformed 0: less DATA than content-length"),
        ("trailers before the length is reached", [headers(1, WHOLE, OK_5), data(1, 0, b"Hell"), headers(1, WHOLE | END, b"")].concat(), "head 0 200 length 5; data 0 Hell; malformed 0: less DATA than content-length"),
        ("a body in a response to a HEAD", [headers(7, WHOLE, OK_5), data(7, END, b"Hello")].concat(), "head 3 200 length 5; malformed 3: DATA, though the response has no body"),
        ("a body with a 204", [headers(1, WHOLE, b"\x89"), data(1, END, b"Hello")].concat(), "head 0 204; malformed 0: DATA, though the response has no body"),
        ("a body with a length of 0", [headers(1, WHOLE, b"\x88\x0f\x0d\x010"), data(1, END, b"x")].concat(), "head 0 200 length 0; malformed 0: DATA, though the response has no body"),
        ("trailers with a pseudo-header field", [headers(1, WHOLE, OK), headers(1, WHOLE | END, OK)].concat(), "head 0 200; malformed 0: a pseudo-header field in trailers"),
        ("trailers that do not end the stream", [headers(1, WHOLE, OK), headers(1, WHOLE, &literals(&[("a", "b")]))].concat(), "head 0 200; malformed 0: trailers that do not end the stream"),
        ("upper-case trailers", [headers(1, WHOLE, OK), headers(1, WHOLE | END, &literals(&[("A", "b")]))].concat(), "head 0 200; malformed 0: a malformed header name"),
    ]),
    ].concat()
}

fn floods() -> Vec<Script> {
    // Each of the last 12,000 bytes refers to a field of 4 KiB, so 16 KiB expand to a header list
    // of 47 MiB.
    let mut bomb = vec![0x88, 0x40, 1, b'a', 0x7f, 0xd8, 0x1e];
    bomb.extend([b'v'; 4_055]);
    assert_eq!(bomb.len(), 4_062);
    bomb.extend([0xbe; 12_000]);
    // 65,536 bytes have room for one reply to SETTINGS and 3,854 replies of 17 bytes to PING.
    all(
        "",
        vec![
            ("many PINGs", ping().repeat(3_854), ""),
            (
                "a PING flood",
                ping().repeat(4_000),
                "ENHANCE_YOUR_CALM: too many SETTINGS, PING or empty DATA frames",
            ),
            (
                "PINGs with bodies",
                [headers(1, WHOLE, OK), [ping(), data(1, 0, &[b'x'; 20])].concat().repeat(6_000)]
                    .concat(),
                "head 0 200; data 0 120000 bytes",
            ),
            (
                "a SETTINGS flood",
                settings(&[]).repeat(8_000),
                "ENHANCE_YOUR_CALM: too many SETTINGS, PING or empty DATA frames",
            ),
            (
                "a flood of empty DATA",
                [headers(1, WHOLE, OK), data(1, 0, b"").repeat(8_000)].concat(),
                "head 0 200; ENHANCE_YOUR_CALM: too many SETTINGS, PING or empty DATA frames",
            ),
            (
                "CONTINUATION without end",
                [headers(1, 0, OK), continuation(1, 0, &[0; 16_000]).repeat(100)].concat(),
                "ENHANCE_YOUR_CALM: a header block of over 64 KiB or 64 frames",
            ),
            (
                "empty CONTINUATION without end",
                [headers(1, 0, OK), continuation(1, 0, b"").repeat(1_000)].concat(),
                "ENHANCE_YOUR_CALM: a header block of over 64 KiB or 64 frames",
            ),
            (
                "a flood of interim responses",
                [headers(1, WHOLE, b"\x08\x03103").repeat(1_000), headers(3, WHOLE | END, OK)]
                    .concat(),
                "malformed 0: over 100 interim responses; head 1 200; end 1",
            ),
            (
                "a header table bomb",
                [headers(1, WHOLE | END, &bomb[..16_062]), headers(3, WHOLE | END, b"\x88")]
                    .concat(),
                "malformed 0: over 64 KiB of header fields; head 1 200; end 1",
            ),
        ],
    )
}
