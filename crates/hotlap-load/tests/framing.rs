//! Response framing: what is an answer, where it ends, and what is none, fed in one piece and cut
//! at every byte.

use hotlap_load::http::{Answer, Broken, Event, Framing, Reader, read_answer, request};
use proptest::prelude::*;

/// Everything a [`Reader`] says about some bytes, as one value.
#[derive(Debug, PartialEq, Eq, Default)]
struct Heard {
    answers: Vec<(u16, Vec<u8>, bool)>,
    open: Option<(u16, Vec<u8>, bool)>,
    broken: Option<Broken>,
}

fn hear(pieces: &[&[u8]], is_head: bool) -> Heard {
    let mut reader = Reader::default();
    let mut heard = Heard::default();
    for piece in pieces {
        let mut rest = *piece;
        loop {
            match reader.next(&mut rest, is_head) {
                Ok(Event::More) => break,
                Ok(Event::Head(head)) => {
                    heard.open = Some((head.status, Vec::new(), head.keep_alive));
                }
                Ok(Event::Data(data)) => {
                    heard.open.as_mut().expect("data follows a head").1.extend_from_slice(data);
                }
                Ok(Event::End) => heard.answers.extend(heard.open.take()),
                Err(broken) => {
                    heard.broken = Some(broken);
                    return heard;
                }
            }
        }
    }
    heard
}

fn answer(bytes: &[u8]) -> Answer {
    read_answer(bytes, false, false).expect("sound").expect("whole")
}

fn broken(bytes: &[u8]) -> &'static str {
    match read_answer(bytes, false, true) {
        Err(Broken::Framing(why)) => why,
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
        let whole = hear(&[sample], false);
        let bytes: Vec<&[u8]> = sample.chunks(1).collect();
        assert_eq!(hear(&bytes, false), whole, "byte by byte: {}", sample.escape_ascii());
        for cut in 0..=sample.len() {
            let (left, right) = sample.split_at(cut);
            assert_eq!(hear(&[left, right], false), whole, "cut at {cut}");
        }
    }
}

#[test]
fn an_answer_is_framed_by_its_length() {
    let a = answer(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-A: b\r\n\r\nHelloHTTP/1.1");
    assert_eq!((a.status, a.body.as_slice(), a.consumed), (200, &b"Hello"[..], 51));
    assert_eq!(a.header("x-a"), Some(&b"b"[..]));
    assert!(a.keep_alive);
    assert_eq!(
        read_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHell", false, false),
        Ok(None)
    );
}

#[test]
fn chunks_are_put_together_and_extensions_and_trailers_left_out() {
    let a = answer(SAMPLES[1]);
    assert_eq!(a.body, b"Hello, World!");
    assert_eq!(a.consumed, SAMPLES[1].len());
    assert_eq!(a.framing, Framing::Chunked);
}

#[test]
fn an_answer_without_length_ends_with_its_connection() {
    let bytes = b"HTTP/1.1 200 OK\r\n\r\nall there is";
    assert_eq!(read_answer(bytes, false, false), Ok(None));
    let a = read_answer(bytes, false, true).expect("sound").expect("whole");
    assert_eq!(a.body, b"all there is");
    assert!(!a.keep_alive);
}

#[test]
fn a_head_answer_a_204_and_a_304_have_no_body() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n";
    let a = read_answer(bytes, true, false).expect("sound").expect("whole");
    assert_eq!((a.body.len(), a.consumed, a.keep_alive), (0, bytes.len(), true));
    assert_eq!(answer(b"HTTP/1.1 204 No Content\r\n\r\nrest").consumed, 27);
    assert_eq!(answer(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n").body.len(), 0);
}

#[test]
fn interim_answers_are_skipped_and_an_upgrade_is_none() {
    let a = answer(SAMPLES[2]);
    assert_eq!((a.status, a.interim), (204, vec![100, 103]));
    assert!(broken(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n").contains("101"));
}

#[test]
fn a_connection_stays_as_its_version_and_header_say() {
    let head = |first: &str, second: &str| {
        answer(format!("HTTP/{first} 200 OK\r\nContent-Length: 0\r\n{second}\r\n").as_bytes())
            .keep_alive
    };
    assert!(head("1.1", ""));
    assert!(!head("1.1", "Connection: close\r\n"));
    assert!(!head("1.1", "Connection: x, Close\r\n"));
    assert!(!head("1.0", ""));
    assert!(head("1.0", "Connection: keep-alive\r\n"));
}

#[test]
fn what_breaks_the_rules_is_told_by_name() {
    let two = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nHello";
    assert_eq!(broken(two), "two lengths that differ");
    let both =
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(broken(both), "both Content-Length and Transfer-Encoding");
    assert_eq!(broken(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"), "a head line ends in a bare LF");
    assert_eq!(broken(b"\n"), "no HTTP/1.x status line");
    let negative = b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nHello";
    assert_eq!(broken(negative), "a Content-Length that is no number");
    let huge = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n";
    assert_eq!(broken(huge), "a Content-Length that is no number");
    let chunks = |c: &str| {
        broken(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{c}").as_bytes())
    };
    assert_eq!(chunks("ffffffffffffffff\r\n"), "a chunk size that overflows");
    assert_eq!(chunks("x\r\n"), "a chunk size that is no number");
    assert_eq!(chunks("3\r\nHello\r\n0\r\n\r\n"), "a chunk is longer than its size");
    assert_eq!(
        chunks(&format!("5;{}", "x".repeat(70_000))),
        "64 KiB of chunk extensions or trailers"
    );
    assert_eq!(broken(b"SSH-2.0-OpenSSH_9.2\r\n"), "no HTTP/1.x status line");
}

#[test]
fn a_head_that_never_ends_is_given_up_after_64_kib() {
    let mut bytes = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
    bytes.resize(1 << 20, b'a');
    assert_eq!(broken(&bytes), "the head is over 64 KiB");
    let heard = hear(&bytes.chunks(1000).collect::<Vec<_>>(), false);
    assert_eq!(heard.broken, Some(Broken::Framing("the head is over 64 KiB")));
    let lines = "X: y\r\n".repeat(1 << 17);
    let bytes = format!("HTTP/1.1 200 OK\r\n{lines}");
    assert_eq!(broken(bytes.as_bytes()), "the head is over 64 KiB");
}

#[test]
fn an_end_within_an_answer_is_told_from_bad_framing() {
    for bytes in [&b""[..], b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHell"] {
        assert_eq!(read_answer(bytes, false, true), Err(Broken::ClosedEarly));
    }
}

#[test]
fn equal_lengths_are_one_length() {
    let twice = b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\nok";
    assert_eq!(answer(twice).body, b"ok");
}

#[test]
fn a_request_carries_host_headers_and_length() {
    let headers = [("X-A".to_owned(), "b".to_owned())];
    assert_eq!(
        request("POST", "/bla", "localhost:8080", &headers, b"{}"),
        b"POST /bla HTTP/1.1\r\nHost: localhost:8080\r\nX-A: b\r\nContent-Length: 2\r\n\r\n{}"
    );
    let own = [("host".to_owned(), "other".to_owned())];
    assert_eq!(request("GET", "/", "h", &own, b""), b"GET / HTTP/1.1\r\nhost: other\r\n\r\n");
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_same(
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
        prop_assert_eq!(hear(&pieces, is_head), hear(&[&bytes], is_head));
    }

    #[test]
    fn both_layers_agree(
        bytes in prop::collection::vec(any::<u8>(), 0..40),
        which in 0..SAMPLES.len(),
    ) {
        let mut input = SAMPLES[which].to_vec();
        input.extend_from_slice(&bytes);
        let heard = hear(&[&input], false);
        match read_answer(&input, false, false) {
            Ok(Some(a)) => {
                let first = heard.answers.first().expect("the reader sees it, too");
                prop_assert_eq!(first, &(a.status, a.body, a.keep_alive));
            }
            Ok(None) => prop_assert!(heard.answers.is_empty()),
            Err(why) => prop_assert_eq!(heard.broken, Some(why)),
        }
    }
}
