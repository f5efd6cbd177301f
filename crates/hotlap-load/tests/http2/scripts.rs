//! Misbehaving servers: name, bytes after the requests, and what the client reports.

use std::sync::LazyLock;

use hotlap_load::http2::kind;

use crate::responses::{bodies, floods, heads};
use crate::server::*;

/// All scripts. Each begins with valid SETTINGS, except for those of [`beginnings`].
pub static ALL: LazyLock<Vec<Script>> = LazyLock::new(all);

pub type Script = (&'static str, Vec<u8>, &'static str);

fn all() -> Vec<Script> {
    let mut all = beginnings();
    for (name, parts, expected) in
        [valid(), frames(), streams(), control(), heads(), bodies(), floods()].concat()
    {
        all.push((name, [settings(&[]), parts.concat()].concat(), expected));
    }
    all
}

pub type Parts = (&'static str, Vec<Vec<u8>>, &'static str);

fn beginnings() -> Vec<Script> {
    let first = "PROTOCOL_ERROR: the first frame is not SETTINGS";
    vec![
        ("silence", vec![], ""),
        ("half a frame header", settings(&[])[..5].to_vec(), ""),
        (
            "an HTTP/1 response",
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            "PROTOCOL_ERROR: a response of HTTP/1 instead of HTTP/2",
        ),
        ("another protocol", b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), first),
        ("no SETTINGS", headers(1, WHOLE | END, OK), first),
        ("GOAWAY without SETTINGS", goaway(0, 0), first),
        ("an acknowledgement first", frame(kind::SETTINGS, 1, 0, &[]), first),
    ]
}

fn valid() -> Vec<Parts> {
    let hello = "head 0 200 length 5; data 0 Hello; end 0";
    vec![
        ("a response", vec![headers(1, WHOLE, OK_5), data(1, END, b"Hello")], hello),
        (
            "a body in pieces, and an empty end",
            vec![headers(1, WHOLE, OK), data(1, 0, b"He"), data(1, 0, b"llo"), data(1, END, b"")],
            "head 0 200; data 0 Hello; end 0",
        ),
        (
            "padding, priority and unknown frames are ignored",
            vec![
                frame(0x42, 0xff, 1, b"anything"),
                headers(1, WHOLE | PADDED | 0x20, b"\x02\0\0\0\0\0\x88\0\0"),
                frame(kind::PRIORITY, 0, 99, &[0; 5]),
                data(1, END | PADDED, b"\x03Hello\0\0\0"),
            ],
            "head 0 200; data 0 Hello; end 0",
        ),
        (
            "a head in three frames, and trailers",
            vec![
                headers(1, 0, &OK_5[..1]),
                continuation(1, 0, b""),
                continuation(1, WHOLE, &OK_5[1..]),
                data(1, 0, b"Hello"),
                headers(1, WHOLE | END, &literals(&[("grpc-status", "0")])),
            ],
            hello,
        ),
        (
            "interim responses are skipped",
            vec![
                headers(1, WHOLE, b"\x08\x03100"),
                headers(1, WHOLE, b"\x08\x03103\0\x04link\x03</>"),
                headers(1, WHOLE | END, b"\x89"),
            ],
            "head 0 204; end 0",
        ),
        (
            "the length of a response to a HEAD",
            vec![headers(7, WHOLE | END, OK_5), headers(1, WHOLE | END, b"\x8b\x0f\x0d\x015")],
            "head 3 200 length 5; end 3; head 0 304 length 5; end 0",
        ),
        (
            "responses in another order, interleaved",
            vec![
                headers(5, WHOLE, OK_5),
                headers(1, WHOLE, OK),
                data(1, 0, b"a"),
                data(5, END, b"Hello"),
                data(1, END, b"b"),
            ],
            "head 2 200 length 5; head 0 200; data 0 a; data 2 Hello; end 2; data 0 b; end 0",
        ),
    ]
}

fn frames() -> Vec<Parts> {
    let padding = "PROTOCOL_ERROR: padding that is longer than its frame";
    let no_length = "FRAME_SIZE_ERROR: a padded frame without the length of its padding";
    let interrupted = "PROTOCOL_ERROR: a header block is interrupted by another frame";
    vec![
        (
            "a frame over 16 KiB",
            vec![data(1, 0, &[0; 16_385])],
            "FRAME_SIZE_ERROR: a frame of over 16 KiB",
        ),
        (
            "an unknown frame over 16 KiB",
            vec![frame(0x42, 0, 0, &[0; 16_385])],
            "FRAME_SIZE_ERROR: a frame of over 16 KiB",
        ),
        ("half a frame, then silence", vec![headers(1, WHOLE, OK_5)[..11].to_vec()], ""),
        (
            "half a body, then silence",
            vec![headers(1, WHOLE, OK_5), data(1, END, b"Hello")[..12].to_vec()],
            "head 0 200 length 5; data 0 Hel",
        ),
        (
            "DATA of padding alone",
            vec![headers(1, WHOLE, OK), data(1, PADDED, b"\x05Hello")],
            "head 0 200",
        ),
        (
            "DATA with more padding than payload",
            vec![headers(1, WHOLE, OK), data(1, PADDED, b"\x06Hello")],
            "head 0 200; PROTOCOL_ERROR: padding that is longer than its frame",
        ),
        (
            "HEADERS with more padding than payload",
            vec![headers(1, WHOLE | PADDED, b"\x02\x88")],
            padding,
        ),
        (
            "HEADERS with padding over the priority",
            vec![headers(1, WHOLE | PADDED | 0x20, b"\x01\0\0\0\0\0")],
            padding,
        ),
        (
            "padded DATA without a length",
            vec![headers(1, WHOLE, OK), data(1, PADDED, b"")],
            "head 0 200; FRAME_SIZE_ERROR: a padded frame without the length of its padding",
        ),
        ("padded HEADERS without a length", vec![headers(1, WHOLE | PADDED, b"")], no_length),
        (
            "HEADERS with half a priority",
            vec![headers(1, WHOLE | 0x20, b"\0\0\0\0")],
            "FRAME_SIZE_ERROR: HEADERS without its priority",
        ),
        (
            "PRIORITY of 4 bytes",
            vec![frame(kind::PRIORITY, 0, 1, &[0; 4])],
            "FRAME_SIZE_ERROR: PRIORITY is not 5 bytes long",
        ),
        (
            "PRIORITY on stream 0",
            vec![frame(kind::PRIORITY, 0, 0, &[0; 5])],
            "PROTOCOL_ERROR: PRIORITY on stream 0",
        ),
        (
            "CONTINUATION without HEADERS",
            vec![continuation(1, WHOLE, OK)],
            "PROTOCOL_ERROR: CONTINUATION without HEADERS",
        ),
        (
            "CONTINUATION after a complete block",
            vec![headers(1, WHOLE, OK), continuation(1, WHOLE, OK)],
            "head 0 200; PROTOCOL_ERROR: CONTINUATION without HEADERS",
        ),
        ("a block interrupted by DATA", vec![headers(1, 0, OK), data(1, END, b"")], interrupted),
        (
            "a block interrupted by another stream",
            vec![headers(1, 0, OK), continuation(3, WHOLE, b"")],
            interrupted,
        ),
        (
            "a block interrupted by an unknown frame",
            vec![headers(1, 0, OK), frame(0x42, 0, 1, b"")],
            interrupted,
        ),
        ("a block interrupted by PING", vec![headers(1, 0, OK), ping()], interrupted),
        (
            "a push",
            vec![frame(kind::PUSH_PROMISE, WHOLE, 1, &[0, 0, 0, 2, 0x82])],
            "PROTOCOL_ERROR: PUSH_PROMISE, though push is disabled",
        ),
    ]
}

fn streams() -> Vec<Parts> {
    let idle = "PROTOCOL_ERROR: HEADERS on a stream without a request";
    let early = headers(1, WHOLE | END, OK);
    vec![
        ("a response on an even stream", vec![headers(2, WHOLE | END, OK)], idle),
        ("a response that was not requested", vec![headers(11, WHOLE | END, OK)], idle),
        ("a response on stream 0", vec![headers(0, WHOLE | END, OK)], idle),
        (
            "DATA on stream 0",
            vec![data(0, 0, b"x")],
            "PROTOCOL_ERROR: DATA on a stream without a request",
        ),
        (
            "DATA on an even stream",
            vec![data(4, 0, b"x")],
            "PROTOCOL_ERROR: DATA on a stream without a request",
        ),
        (
            "RST_STREAM on an idle stream",
            vec![rst_stream(11, 0)],
            "PROTOCOL_ERROR: RST_STREAM on a stream without a request",
        ),
        (
            "RST_STREAM on stream 0",
            vec![rst_stream(0, 0)],
            "PROTOCOL_ERROR: RST_STREAM on a stream without a request",
        ),
        (
            "WINDOW_UPDATE on an idle stream",
            vec![window_update(11, 1)],
            "PROTOCOL_ERROR: WINDOW_UPDATE on a stream without a request",
        ),
        (
            "DATA after the end",
            vec![early.clone(), data(1, END, b"x")],
            "head 0 200; end 0; STREAM_CLOSED: DATA on a stream that has ended",
        ),
        (
            "HEADERS after the end",
            vec![early.clone(), early.clone()],
            "head 0 200; end 0; STREAM_CLOSED: HEADERS on a stream that has ended",
        ),
        (
            "RST_STREAM and WINDOW_UPDATE after the end",
            vec![early, rst_stream(1, 0), window_update(1, 1)],
            "head 0 200; end 0",
        ),
        (
            "a reset of each stream",
            vec![
                rst_stream(1, 7),
                rst_stream(3, 2),
                rst_stream(5, 99),
                rst_stream(7, 0),
                rst_stream(9, 8),
            ],
            "reset 0 REFUSED_STREAM; reset 1 INTERNAL_ERROR; reset 2 error code 0x63; reset 3 NO_ERROR; reset 4 CANCEL",
        ),
        (
            "a reset within a response",
            vec![headers(1, WHOLE, OK_5), data(1, 0, b"He"), rst_stream(1, 2)],
            "head 0 200 length 5; data 0 He; reset 0 INTERNAL_ERROR",
        ),
        (
            "DATA after a reset",
            vec![rst_stream(1, 2), data(1, END, b"x")],
            "reset 0 INTERNAL_ERROR; STREAM_CLOSED: DATA on a stream that has ended",
        ),
        (
            "frames of a stream that the client has reset are ignored",
            vec![
                headers(1, WHOLE, b""),
                data(1, 0, b"x"),
                headers(1, WHOLE | END, OK),
                headers(3, WHOLE | END, OK),
            ],
            "malformed 0: a response without :status; head 1 200; end 1",
        ),
        (
            "GOAWAY at once",
            vec![goaway(0, 0)],
            "goaway 0 NO_ERROR; refused 0; refused 1; refused 2; refused 3; refused 4",
        ),
        (
            "GOAWAY in the middle",
            vec![
                headers(1, WHOLE, OK_5),
                goaway(3, 11),
                data(1, END, b"Hello"),
                headers(5, WHOLE | END, OK),
                headers(3, WHOLE | END, OK),
            ],
            "head 0 200 length 5; goaway 3 ENHANCE_YOUR_CALM; refused 2; refused 3; refused 4; data 0 Hello; end 0; head 1 200; end 1",
        ),
        (
            "a graceful GOAWAY in two steps",
            vec![goaway((1 << 31) - 1, 0), goaway(7, 0)],
            "goaway 2147483647 NO_ERROR; goaway 7 NO_ERROR; refused 4",
        ),
        (
            "a second GOAWAY with a higher stream",
            vec![goaway(3, 0), goaway(5, 0)],
            "goaway 3 NO_ERROR; refused 2; refused 3; refused 4; PROTOCOL_ERROR: a second GOAWAY with a higher last stream",
        ),
        (
            "GOAWAY on a stream",
            vec![frame(kind::GOAWAY, 0, 1, &[0; 8])],
            "PROTOCOL_ERROR: GOAWAY on a stream",
        ),
        (
            "a short GOAWAY",
            vec![frame(kind::GOAWAY, 0, 0, &[0; 7])],
            "FRAME_SIZE_ERROR: GOAWAY is shorter than 8 bytes",
        ),
    ]
}

fn control() -> Vec<Parts> {
    vec![
        (
            "SETTINGS on a stream",
            vec![frame(kind::SETTINGS, 0, 1, &[])],
            "PROTOCOL_ERROR: SETTINGS on a stream",
        ),
        (
            "SETTINGS of 5 bytes",
            vec![frame(kind::SETTINGS, 0, 0, &[0; 5])],
            "FRAME_SIZE_ERROR: the length of SETTINGS is not a multiple of 6",
        ),
        (
            "an acknowledgement with a payload",
            vec![frame(kind::SETTINGS, 1, 0, &[0; 6])],
            "FRAME_SIZE_ERROR: an acknowledgement of SETTINGS with a payload",
        ),
        (
            "push enabled by the server",
            vec![settings(&[(2, 1)])],
            "PROTOCOL_ERROR: the server sets SETTINGS_ENABLE_PUSH",
        ),
        (
            "a frame size that is too small",
            vec![settings(&[(5, 16_383)])],
            "PROTOCOL_ERROR: SETTINGS_MAX_FRAME_SIZE is out of range",
        ),
        (
            "a window size that is too large",
            vec![settings(&[(4, 1 << 31)])],
            "FLOW_CONTROL_ERROR: SETTINGS_INITIAL_WINDOW_SIZE is over 2^31 - 1",
        ),
        (
            "SETTINGS that overflow a window",
            vec![window_update(1, 1), settings(&[(4, (1 << 31) - 1)])],
            "FLOW_CONTROL_ERROR: SETTINGS make a window larger than 2^31 - 1",
        ),
        (
            "PING of 7 bytes",
            vec![frame(kind::PING, 0, 0, &[0; 7])],
            "FRAME_SIZE_ERROR: PING is not 8 bytes long",
        ),
        (
            "PING on a stream",
            vec![frame(kind::PING, 0, 1, &[0; 8])],
            "PROTOCOL_ERROR: PING on a stream",
        ),
        (
            "RST_STREAM of 5 bytes",
            vec![frame(kind::RST_STREAM, 0, 1, &[0; 5])],
            "FRAME_SIZE_ERROR: RST_STREAM is not 4 bytes long",
        ),
        (
            "WINDOW_UPDATE of 3 bytes",
            vec![frame(kind::WINDOW_UPDATE, 0, 0, &[0; 3])],
            "FRAME_SIZE_ERROR: WINDOW_UPDATE is not 4 bytes long",
        ),
        (
            "WINDOW_UPDATE by 0",
            vec![window_update(0, 0)],
            "PROTOCOL_ERROR: WINDOW_UPDATE by 0 on the connection",
        ),
        (
            "WINDOW_UPDATE by 0 on a stream",
            vec![window_update(1, 0)],
            "malformed 0: WINDOW_UPDATE by 0",
        ),
        (
            "a connection window over 2^31 - 1",
            vec![window_update(0, (1 << 31) - 1), window_update(0, (1 << 31) - 1)],
            "FLOW_CONTROL_ERROR: the window of the connection is over 2^31 - 1",
        ),
        (
            "a stream window over 2^31 - 1",
            vec![window_update(1, (1 << 31) - 1)],
            "malformed 0: the window of a stream is over 2^31 - 1",
        ),
    ]
}
