//! Response framing: what a response is and where it ends, read in one piece and cut at every byte.

use hotlap_load::http::{
    Framing, Response, ResponseError, ResponseEvent, ResponseReader, read_response,
};
use proptest::prelude::*;

/// Everything that a [`ResponseReader`] finds in some bytes.
#[derive(Debug, PartialEq, Eq, Default)]
struct Found {
    responses: Vec<(u16, Vec<u8>, bool)>,
    open: Option<(u16, Vec<u8>, bool)>,
    error: Option<ResponseError>,
}

fn read(pieces: &[&[u8]], is_head: bool) -> Found {
    let mut reader = ResponseReader::default();
    let mut found = Found::default();
    for piece in pieces {
        let mut rest = *piece;
        loop {
            match reader.next(&mut rest, is_head) {
                Ok(ResponseEvent::NeedMore) => break,
                Ok(ResponseEvent::Head(head)) => {
                    found.open = Some((head.status, Vec::new(), head.keep_alive));
                }
                Ok(ResponseEvent::Data(data)) => {
                    found.open.as_mut().expect("data follows a head").1.extend_from_slice(data);
                }
                Ok(ResponseEvent::End) => found.responses.extend(found.open.take()),
                Err(error) => {
                    found.error = Some(error);
                    return found;
                }
            }
        }
    }
    found
}

fn response(bytes: &[u8]) -> Response {
    read_response(bytes, false, false).expect("valid").expect("complete")
}

fn framing_error(bytes: &[u8]) -> &'static str {
    match read_response(bytes, false, true) {
        Err(ResponseError::Framing(why)) => why,
        other => panic!("{other:?} instead of bad framing"),
    }
}

const SAMPLES: &[&[u8]] = &[
    b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, World!",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nHello\r\n8\r\n, World!\r\n\
      0\r\nSome: trailer\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No \
      Content\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\
      \r\nb",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: a\r\n  folded\r\nContent-Length: 2\r\n\r\nok",
];

#[test]
fn a_cut_at_any_byte_changes_nothing() {
    for sample in SAMPLES {
        let whole = read(&[sample], false);
        let bytes: Vec<&[u8]> = sample.chunks(1).collect();
        assert_eq!(read(&bytes, false), whole, "byte by byte: {}", sample.escape_ascii());
        for cut in 0..=sample.len() {
            let (left, right) = sample.split_at(cut);
            assert_eq!(read(&[left, right], false), whole, "cut at {cut}");
        }
    }
}

#[test]
fn a_response_ends_after_its_length() {
    let a = response(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-A: b\r\n\r\nHelloHTTP/1.1");
    assert_eq!((a.status, a.body.as_slice(), a.consumed), (200, &b"Hello"[..], 51));
    assert_eq!(a.header("x-a"), Some(&b"b"[..]));
    assert!(a.keep_alive);
    assert_eq!(
        read_response(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHell", false, false),
        Ok(None)
    );
}

#[test]
fn chunks_are_joined_and_extensions_and_trailers_dropped() {
    let a = response(SAMPLES[1]);
    assert_eq!(a.body, b"Hello, World!");
    assert_eq!(a.consumed, SAMPLES[1].len());
    assert_eq!(a.framing, Framing::Chunked);
}

#[test]
fn a_response_without_a_length_ends_with_its_connection() {
    let bytes = b"HTTP/1.1 200 OK\r\n\r\nall there is";
    assert_eq!(read_response(bytes, false, false), Ok(None));
    let a = read_response(bytes, false, true).expect("valid").expect("complete");
    assert_eq!(a.body, b"all there is");
    assert!(!a.keep_alive);
}

#[test]
fn a_response_to_a_head_a_204_and_a_304_have_no_body() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n";
    let a = read_response(bytes, true, false).expect("valid").expect("complete");
    assert_eq!((a.body.len(), a.consumed, a.keep_alive), (0, bytes.len(), true));
    assert_eq!(response(b"HTTP/1.1 204 No Content\r\n\r\nrest").consumed, 27);
    assert_eq!(response(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n").body.len(), 0);
}

#[test]
fn interim_responses_are_skipped_and_an_upgrade_is_an_error() {
    let a = response(SAMPLES[2]);
    assert_eq!((a.status, a.interim), (204, vec![100, 103]));
    assert!(
        framing_error(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n").contains("101")
    );
}

#[test]
fn version_and_header_decide_whether_a_connection_is_kept() {
    let head = |first: &str, second: &str| {
        response(format!("HTTP/{first} 200 OK\r\nContent-Length: 0\r\n{second}\r\n").as_bytes())
            .keep_alive
    };
    assert!(head("1.1", ""));
    assert!(!head("1.1", "Connection: close\r\n"));
    assert!(!head("1.1", "Connection: x, Close\r\n"));
    assert!(!head("1.0", ""));
    assert!(head("1.0", "Connection: keep-alive\r\n"));
}

#[test]
fn each_violation_has_its_message() {
    let two = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nHello";
    assert_eq!(framing_error(two), "conflicting Content-Length values");
    let both =
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(framing_error(both), "both Content-Length and Transfer-Encoding");
    assert_eq!(
        framing_error(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"),
        "a head line ends in a bare LF"
    );
    assert_eq!(framing_error(b"\n"), "not an HTTP/1.x status line");
    let negative = b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nHello";
    assert_eq!(framing_error(negative), "Content-Length is not a number");
    let huge = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n";
    assert_eq!(framing_error(huge), "Content-Length is not a number");
    let chunks = |c: &str| {
        framing_error(
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{c}").as_bytes(),
        )
    };
    assert_eq!(chunks("ffffffffffffffff\r\n"), "a chunk size overflows");
    assert_eq!(chunks("x\r\n"), "a chunk size is not a number");
    assert_eq!(chunks("3\r\nHello\r\n0\r\n\r\n"), "a chunk is longer than its size");
    assert_eq!(
        chunks(&format!("5;{}", "x".repeat(70_000))),
        "over 64 KiB of chunk extensions or trailers"
    );
    assert_eq!(framing_error(b"SSH-2.0-OpenSSH_9.2\r\n"), "not an HTTP/1.x status line");
}

#[test]
fn a_head_of_over_64_kib_is_an_error() {
    let mut bytes = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
    bytes.resize(1 << 20, b'a');
    assert_eq!(framing_error(&bytes), "the head is over 64 KiB");
    let found = read(&bytes.chunks(1000).collect::<Vec<_>>(), false);
    assert_eq!(found.error, Some(ResponseError::Framing("the head is over 64 KiB")));
    let lines = "X: y\r\n".repeat(1 << 17);
    let bytes = format!("HTTP/1.1 200 OK\r\n{lines}");
    assert_eq!(framing_error(bytes.as_bytes()), "the head is over 64 KiB");
}

#[test]
fn an_early_close_is_distinguished_from_bad_framing() {
    for bytes in [&b""[..], b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHell"] {
        assert_eq!(read_response(bytes, false, true), Err(ResponseError::ClosedEarly));
    }
}

#[test]
fn equal_lengths_are_accepted() {
    let twice = b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\nok";
    assert_eq!(response(twice).body, b"ok");
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_same_result(
        which in 0..SAMPLES.len(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        is_head: bool,
    ) {
        let mut bytes = SAMPLES[which].to_vec();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
        prop_assert_eq!(read(&pieces, is_head), read(&[&bytes], is_head));
    }

    #[test]
    fn both_readers_agree(
        bytes in prop::collection::vec(any::<u8>(), 0..40),
        which in 0..SAMPLES.len(),
    ) {
        let mut input = SAMPLES[which].to_vec();
        input.extend_from_slice(&bytes);
        let found = read(&[&input], false);
        match read_response(&input, false, false) {
            Ok(Some(a)) => {
                let first = found.responses.first().expect("the other reader finds it, too");
                prop_assert_eq!(first, &(a.status, a.body, a.keep_alive));
            }
            Ok(None) => prop_assert!(found.responses.is_empty()),
            Err(why) => prop_assert_eq!(found.error, Some(why)),
        }
    }
}
