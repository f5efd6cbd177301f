//! Tests of the HTTP/2 conformance checks with a server that follows the rules of flow control.

use std::collections::BTreeMap;

use hotlap_load::plan::{Endpoint, Protocol, Target};
use hotlap_servers::contract::{Ask, Contract};
use hotlap_servers::verify::{self, Requirements, Verifier};
use hotlap_testbed::TestServer;
use hotlap_testbed::http2::{END_HEADERS, END_STREAM, Http2Peer, STATUS_200, frame, kind};

use crate::GOES_ON;

/// The length of each response, which is more than the initial window of a connection.
const LENGTH: i64 = 70_000;

/// The largest frame that a client must accept.
const FRAME: i64 = 16_384;

/// A field of a trailer section: a literal without indexing, `x-a: 1`.
const TRAILERS: &[u8] = b"\x00\x03x-a\x011";

/// SETTINGS_MAX_FRAME_SIZE with its default.
const SETTINGS: &[u8] = &[0, 5, 0, 0, 0x40, 0];

/// A response that is being sent.
struct Sending {
    /// The number of bytes that are left.
    left: i64,
    window: i64,
}

/// Serves an HTTP/2 client, within the windows that the client grants.
fn serve(mut client: Http2Peer) {
    let (mut window, mut initial, mut acknowledged) = (65_535_i64, 65_535_i64, false);
    let mut open: BTreeMap<u32, Sending> = BTreeMap::new();
    while let Some((kind, stream, payload)) = client.other() {
        let number = |bytes: &[u8]| i64::from(u32::from_be_bytes(bytes.try_into().unwrap()));
        match kind {
            kind::SETTINGS if !acknowledged => {
                // SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 section 6.5.2).
                let of_window = payload.chunks_exact(6).find(|s| s.starts_with(&[0, 4]));
                initial = of_window.map_or(initial, |setting| number(&setting[2..]));
                acknowledged = true;
                client.send(&frame(kind::SETTINGS, END_STREAM, 0, &[]));
            }
            kind::PING => {
                client.send(&frame(kind::PING, END_STREAM, 0, &payload));
            }
            kind::HEADERS => {
                open.insert(stream, Sending { left: LENGTH, window: initial });
                client.send(&frame(kind::HEADERS, END_HEADERS, stream, STATUS_200));
            }
            kind::WINDOW_UPDATE if stream == 0 => window += number(&payload),
            kind::WINDOW_UPDATE => {
                if let Some(sending) = open.get_mut(&stream) {
                    sending.window += number(&payload);
                }
            }
            kind::RST_STREAM => drop(open.remove(&stream)),
            _ => {}
        }
        for (stream, sending) in &mut open {
            loop {
                let size = sending.left.min(sending.window).min(window).min(FRAME);
                if size <= 0 {
                    break;
                }
                client.send(&frame(kind::DATA, 0, *stream, &vec![b'x'; size as usize]));
                (sending.left, sending.window) = (sending.left - size, sending.window - size);
                window -= size;
            }
            if sending.left == 0 {
                let flags = END_STREAM | END_HEADERS;
                client.send(&frame(kind::HEADERS, flags, *stream, TRAILERS));
            }
        }
        open.retain(|_, sending| sending.left > 0);
    }
}

/// Regression: the checks never opened a window again, and took trailers for a response without a
/// status. A conforming server thus failed six of nine checks. A server that ignored an oversize
/// frame passed if it stated the default size.
#[test]
fn a_server_with_a_large_body_and_trailers_fails_only_the_checks_of_what_it_accepts() {
    let server = TestServer::start(|client| {
        if let Some(client) = Http2Peer::begin(client, SETTINGS) {
            serve(client);
        }
    });
    let plain = Target::plain(Endpoint::Tcp(server.address()));
    let report = verify::verify(&Verifier {
        target: &Target { protocol: Protocol::Http2, ..plain },
        host: "x",
        contract: &Contract::custom(&Ask::default()),
        requirements: Requirements::Custom,
        rude: true,
        limit: verify::LIMIT,
        pause: verify::PAUSE,
        stop: &GOES_ON,
    });
    assert!(report.passed(), "{:#?}", report.required);
    let missed = report.conformance.iter().filter(|check| !check.pass);
    let missed: Vec<&str> = missed.map(|check| check.name.as_str()).collect();
    let expected = ["even stream", "oversize frame", "upper-case name"];
    assert_eq!(missed, expected, "{:#?}", report.conformance);
    assert_eq!(report.conformance_count(), (9, 12));
}
