//! Tests of response framing: what a response is, and where it ends. Responses are read in one
//! piece, and cut at every byte.

use hotlap_load::http::{
    Framing, Response, ResponseError, ResponseEvent, ResponseReader, read_response,
};
use proptest::prelude::*;

/// The results of a [`ResponseReader`] that was fed some bytes.
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
fn interim_responses_are_skipped() {
    let a = response(SAMPLES[2]);
    assert_eq!((a.status, a.interim), (204, vec![100, 103]));
}

#[test]
fn what_is_no_head_is_an_error() {
    for (bytes, why) in [
        (&b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"[..], "a head line ends in a bare LF"),
        (b"\n", "not an HTTP/1.x status line"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not an HTTP/1.x status line"),
    ] {
        assert_eq!(framing_error(bytes), why);
    }
}

#[test]
fn an_early_close_is_distinguished_from_bad_framing() {
    for bytes in [&b""[..], b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHell"] {
        assert_eq!(read_response(bytes, false, true), Err(ResponseError::ClosedEarly));
    }
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
