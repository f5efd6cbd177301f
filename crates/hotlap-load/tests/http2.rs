//! Tests of misbehaving HTTP/2 servers, given as bytes. The client must report the same events
//! however the bytes are cut.

#[path = "http2/replay.rs"]
mod replay;
#[path = "http2/scripts.rs"]
mod scripts;
#[path = "http2/server.rs"]
mod server;
#[path = "http2/valid.rs"]
mod valid;

use hotlap_load::http2::{ErrorCode, kind};
use proptest::prelude::*;
use replay::{FIVE, Replay, Seen, agree, replay};
use server::*;

fn after(bytes: &[u8]) -> Replay {
    replay(FIVE, [bytes])
}

#[test]
fn each_misbehaving_server_is_reported_as_it_should_be() {
    assert!(scripts::ALL.len() >= 40, "{}", scripts::ALL.len());
    for (name, bytes, expected) in scripts::ALL.iter() {
        let whole = agree(false, bytes, bytes.chunks(1));
        assert_eq!(whole.text(), *expected, "{name}");
    }
}

#[test]
fn a_window_that_is_never_opened_holds_the_body_back() {
    let sent = |seen: &Replay| -> usize {
        let frames = seen.frames();
        let data = frames.iter().filter(|(header, _)| header.kind == kind::DATA);
        data.map(|(_, payload)| payload.len()).sum()
    };
    // The initial window has 65,535 bytes (RFC 9113 section 6.9.2).
    assert_eq!(sent(&after(&settings(&[]))), 65_535);
    // Opening only one of the two windows is not enough.
    let stream = window_update(9, 34_465);
    assert_eq!(sent(&after(&[settings(&[]), stream.clone()].concat())), 65_535);
    assert_eq!(sent(&after(&[settings(&[]), window_update(0, 34_465)].concat())), 65_535);
    let both = after(&[settings(&[]), stream, window_update(0, 34_465)].concat());
    assert_eq!(sent(&both), 100_000);
    let frames = both.frames();
    assert!(frames.last().unwrap().0.has(END), "the last frame ends the stream");
    // SETTINGS change the windows of streams, here by 34,465 and by 1 − 65,535 bytes.
    let wide = [settings(&[(4, 100_000)]), window_update(0, 1 << 20)].concat();
    assert_eq!(sent(&after(&wide)), 100_000);
    let narrow = [settings(&[(4, 1)]), window_update(9, 65_534), window_update(0, 1 << 20)];
    assert_eq!(sent(&after(&narrow.concat())), 65_535);
    let one_more = [narrow.concat(), window_update(9, 1)].concat();
    assert_eq!(sent(&after(&one_more)), 65_536);
}

#[test]
fn a_complete_response_ends_the_request_whose_body_is_held_back() {
    // After a complete response, the server may reset the stream with NO_ERROR (RFC 9113 section
    // 8.1).
    let bytes = [settings(&[]), headers(9, WHOLE | END, OK), rst_stream(9, 0)].concat();
    let seen = after(&bytes);
    assert_eq!(seen.text(), "head 4 200; end 4");
    let (header, payload) = *seen.frames().last().unwrap();
    assert_eq!((header.kind, header.stream), (kind::RST_STREAM, 9));
    assert_eq!(payload, ErrorCode::CANCEL.0.to_be_bytes());
}

#[test]
fn pings_and_settings_are_answered() {
    let seen = after(&[settings(&[]), ping(), frame(kind::PING, 1, 0, b"ignored!")].concat());
    let frames = seen.frames();
    let [.., (acknowledgement, _), (pong, payload)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((acknowledgement.kind, acknowledgement.flags), (kind::SETTINGS, 1));
    assert_eq!((pong.kind, pong.flags, *payload), (kind::PING, 1, &b"12345678"[..]));
}

#[test]
fn windows_are_refilled_when_more_than_half_of_them_is_used() {
    let mut bytes = [settings(&[]), headers(1, WHOLE, OK)].concat();
    let piece = data(1, 0, &[0; 16_384]);
    // Half of the window is 2^23 − 1 bytes. 512 frames of 2^14 bytes exceed that by one byte.
    bytes.extend(piece.repeat(511));
    assert!(
        after(&bytes)
            .frames()
            .iter()
            .all(|(header, _)| header.stream != 1 || header.kind != kind::WINDOW_UPDATE)
    );
    bytes.extend(piece);
    let seen = after(&bytes);
    let (header, payload) = *seen.frames().last().unwrap();
    assert_eq!((header.kind, header.stream), (kind::WINDOW_UPDATE, 1));
    assert_eq!(payload, (1_u32 << 23).to_be_bytes());
}

#[test]
fn a_smaller_header_table_is_confirmed_once_and_not_used() {
    // The byte 0x20 is a table size update to 0 (RFC 7541 section 4.2).
    let bytes = [settings(&[(1, 0)]), headers(1, WHOLE | END, OK), headers(3, WHOLE | END, OK)];
    let seen = replay(replay::Setup { refills: true, ..FIVE }, [&bytes.concat()[..]]);
    let frames = seen.frames();
    let blocks = frames.iter().filter(|(header, _)| header.kind == kind::HEADERS);
    let blocks: Vec<&[u8]> = blocks.map(|(_, payload)| *payload).collect();
    assert_eq!(blocks.len(), 7);
    let plain = b"\x82\x86\x01\x09localhost\x84\x0f\x2b\x06hotlap";
    assert_eq!(blocks[0], b"\x82\x86\x41\x09localhost\x84\x7a\x06hotlap");
    assert_eq!(blocks[1], b"\x82\x86\xbf\x84\xbe");
    assert_eq!(blocks[5], [&b"\x20"[..], plain].concat());
    assert_eq!(blocks[6], plain);
}

#[test]
fn streams_are_limited_by_the_server_and_end_with_goaway() {
    use hotlap_load::http2::{ClientConnection, Limits, StreamEvent};
    let mut client = ClientConnection::new(Limits { streams: 200, ..Limits::default() });
    let mut out = Vec::new();
    assert_eq!(client.can_open(), 100, "assumed until SETTINGS arrive");
    let take = |client: &mut ClientConnection, bytes: &[u8], out: &mut Vec<u8>| {
        let mut rest = bytes;
        while client.take(&mut rest, out) != StreamEvent::NeedMore {}
    };
    take(&mut client, &settings(&[]), &mut out);
    assert_eq!(client.can_open(), 200);
    take(&mut client, &settings(&[(3, 2)]), &mut out);
    assert_eq!(client.can_open(), 2);
    let request = |client: &mut ClientConnection, tag| {
        client.request(tag, &[0x82], b"", false, &mut Vec::new())
    };
    assert_eq!(request(&mut client, 7), Some(1));
    assert_eq!(request(&mut client, 8), Some(3));
    assert_eq!((client.can_open(), request(&mut client, 9)), (0, None));
    // The server may lower its limit below the number of open streams.
    take(&mut client, &settings(&[(3, 1)]), &mut out);
    assert_eq!(client.can_open(), 0);
    client.cancel(1, &mut out);
    assert!(out.ends_with(&rst_stream(1, 8)));
    assert_eq!(client.can_open(), 0);
    take(&mut client, &[headers(3, WHOLE | END, OK), goaway(3, 0)].concat(), &mut out);
    assert_eq!((client.can_open(), client.open_streams().count()), (0, 0));
}

#[test]
fn a_header_block_longer_than_the_frames_of_the_server_continues_in_further_frames() {
    use hotlap_load::http2::{ClientConnection, Limits};
    let mut client = ClientConnection::new(Limits::default());
    let mut sent = |tag, length, body: &[u8]| {
        let mut out = Vec::new();
        client.request(tag, &vec![0x82; length], body, false, &mut out);
        out
    };
    let part = |length| vec![0x82; length];
    assert_eq!(sent(0, 16_384, b""), headers(1, WHOLE | END, &part(16_384)));
    let two = [headers(3, END, &part(16_384)), continuation(3, WHOLE, &part(1))];
    assert_eq!(sent(1, 16_385, b""), two.concat());
    let three = [
        headers(5, 0, &part(16_384)),
        continuation(5, 0, &part(16_384)),
        continuation(5, WHOLE, &part(7_232)),
        data(5, END, b"body"),
    ];
    assert_eq!(sent(2, 40_000, b"body"), three.concat());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn cuts_make_no_difference_to_misbehaving_servers(
        which in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        refills: bool,
    ) {
        let mut bytes = scripts::ALL[which.index(scripts::ALL.len())].1.clone();
        prop_assume!(!bytes.is_empty());
        bytes.truncate(20_000);
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        agree(refills, &bytes, pieces(&bytes, &cuts));
    }

    /// Once the dynamic table has changed, the same block means a different head (RFC 7541 section
    /// 2.3.3).
    #[test]
    fn a_head_is_reused_only_while_the_table_is_the_same(
        choices in prop::collection::vec((0_u8..8, b'0'..=b'9'), 1..60),
    ) {
        // The first block inserts two fields, at the indices 62 and 63. The byte 0x48 inserts
        // `:status`, and 0x5c inserts `content-length`.
        let first = b"\x5c\x017\x48\x03299".to_vec();
        let blocks = choices.iter().map(|(choice, digit)| match choice {
            0 => vec![0x48, 3, b'2', b'0', *digit],
            1 => vec![0x88, 0x5c, 1, *digit],
            2 => b"\x88\xbe".to_vec(),
            3 => b"\x88\xbf".to_vec(),
            4 => vec![0xbf],
            _ => vec![0xbe],
        });
        let mut bytes = settings(&[]);
        for (number, block) in std::iter::once(first).chain(blocks).enumerate() {
            let stream = number as u32 * 2 + 1;
            bytes.extend(headers(stream, WHOLE, &block));
            bytes.extend(rst_stream(stream, 0));
        }
        let seen = agree(true, &bytes, bytes.chunks(7));
        let is_broken = matches!(seen.events.last(), Some(Seen::Broken { .. }));
        prop_assert!(!is_broken);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        frames in prop::collection::vec(
            (0_u8..12, any::<u8>(), 0_u32..14, prop::collection::vec(any::<u8>(), 0..24)), 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        refills: bool,
    ) {
        let mut all = settings(&[]);
        for (kind, flags, stream, payload) in frames {
            all.extend(frame(kind, flags, stream, &payload));
        }
        all.extend(&bytes);
        agree(refills, &all, pieces(&all, &cuts));
        agree(refills, &bytes, pieces(&bytes, &cuts[..cuts.len() / 2]));
    }
}

/// Cuts bytes into pieces at these places.
fn pieces<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}
