//! Tests of valid responses from an encoder that shares no code with the client. The client's
//! decoder of header blocks is also compared with the decoder of another crate.

use std::collections::BTreeMap;

use hotlap_load::http2::hpack::Decoder;
use hotlap_load::http2::kind;
use proptest::prelude::*;

use crate::replay::{Seen, agree};
use crate::server::*;

/// A generated response to one of the five requests.
#[derive(Debug, Clone)]
struct Response {
    status: u16,
    interim: usize,
    fields: Vec<(String, String)>,
    body: Vec<Vec<u8>>,
    states_length: bool,
    trailers: Option<Vec<(String, String)>>,
    padding: Option<u8>,
    has_priority: bool,
    /// The number of frames that each header block is divided into.
    fragments: usize,
}

fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = prop_oneof![
        Just("server".to_owned()),
        Just("date".to_owned()),
        Just("content-type".to_owned()),
        "[a-z][a-z0-9_.~-]{0,12}",
    ]
    .prop_filter("not special", |name| {
        ![
            "connection",
            "proxy-connection",
            "keep-alive",
            "transfer-encoding",
            "upgrade",
            "content-length",
        ]
        .contains(&&**name)
    });
    prop::collection::vec((name, "([!-~]([ -~]{0,40}[!-~])?)?"), 0..5)
}

prop_compose! {
    fn response()(
        status in prop_oneof![Just(200_u16), Just(204), Just(304), Just(404), 200_u16..1000],
        interim in 0_usize..3,
        fields in fields(),
        body in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..4),
        states_length in any::<bool>(),
        trailers in prop::option::of(fields()),
        padding in prop::option::of(0_u8..20),
        has_priority in any::<bool>(),
        fragments in 1_usize..4,
    ) -> Response {
        Response {
            status, interim, fields, body, states_length, trailers, padding, has_priority, fragments,
        }
    }
}

/// Returns the HEADERS and CONTINUATION frames that carry a header block.
fn block_frames(response: &Response, stream: u32, end: u8, block: &[u8]) -> Vec<u8> {
    let size = block.len().div_ceil(response.fragments).max(1);
    let mut parts: Vec<&[u8]> = block.chunks(size).collect();
    if parts.is_empty() {
        parts.push(&[]);
    }
    let (mut flags, mut payload) = (end, Vec::new());
    let padding = response.padding.unwrap_or(0);
    if response.padding.is_some() {
        flags |= PADDED;
        payload.push(padding);
    }
    if response.has_priority {
        flags |= 0x20;
        payload.extend([0x80, 0, 0, 1, 7]);
    }
    payload.extend(parts[0]);
    payload.extend(vec![0; padding.into()]);
    let last = parts.len() - 1;
    let mut bytes = headers(stream, flags | if last == 0 { WHOLE } else { 0 }, &payload);
    for (number, part) in parts.iter().enumerate().skip(1) {
        bytes.extend(continuation(stream, if number == last { WHOLE } else { 0 }, part));
    }
    bytes
}

/// Returns the frames of a response, and the events that the client should report. Frames that must
/// not be separated share an entry.
fn frames(
    response: &Response,
    tag: u32,
    encoder: &mut loona_hpack::Encoder<'_>,
) -> (Vec<Vec<u8>>, Vec<Seen>) {
    let stream = tag * 2 + 1;
    let mut encode = |fields: &[(String, String)]| {
        encoder.encode(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
    };
    let bodiless = tag == 3 || response.status == 204 || response.status == 304;
    let body: Vec<u8> = if bodiless { Vec::new() } else { response.body.concat() };
    let mut frames = Vec::new();
    for _ in 0..response.interim {
        let block = encode(&[(":status".to_owned(), "103".to_owned())]);
        frames.push(block_frames(response, stream, 0, &block));
    }
    let mut head = vec![(":status".to_owned(), response.status.to_string())];
    head.extend(response.fields.iter().cloned());
    if response.states_length {
        head.push(("content-length".to_owned(), body.len().to_string()));
    }
    let ends_at_once = body.is_empty() && response.body.is_empty() && response.trailers.is_none();
    let end = if ends_at_once { END } else { 0 };
    frames.push(block_frames(response, stream, end, &encode(&head)));
    let mut pieces: Vec<&[u8]> = response.body.iter().map(|piece| &**piece).collect();
    if bodiless {
        pieces.iter_mut().for_each(|piece| *piece = &[]);
    }
    for (number, piece) in pieces.iter().enumerate() {
        let is_last = number + 1 == pieces.len() && response.trailers.is_none();
        let end = if is_last { END } else { 0 };
        let bytes = match response.padding {
            None => data(stream, end, piece),
            Some(padding) => {
                let payload = [&[padding][..], piece, &vec![0; padding.into()]].concat();
                data(stream, end | PADDED, &payload)
            }
        };
        frames.push(bytes);
    }
    if let Some(trailers) = &response.trailers {
        frames.push(block_frames(response, stream, END, &encode(trailers)));
    } else if pieces.is_empty() && !ends_at_once {
        frames.push(data(stream, END, b""));
    }
    let bytes = frames.iter().map(Vec::len).sum::<usize>() as u64;
    let length = response.states_length.then_some(body.len() as u64);
    let mut events =
        vec![Seen::Head { tag, status: response.status, length, is_end: ends_at_once }];
    if !body.is_empty() {
        events.push(Seen::Data { tag, data: body });
    }
    events.push(Seen::End { tag, bytes });
    (frames, events)
}

/// Groups the events by request, and joins the pieces of each body.
fn by_tag(events: &[Seen]) -> BTreeMap<u32, Vec<Seen>> {
    let mut all: BTreeMap<u32, Vec<Seen>> = BTreeMap::new();
    for event in events {
        let tag = match event {
            Seen::Head { tag, .. } | Seen::Data { tag, .. } | Seen::End { tag, .. } => *tag,
            other => panic!("{other}"),
        };
        let own = all.entry(tag).or_default();
        match (own.last_mut(), event) {
            (Some(Seen::Data { data: all, .. }), Seen::Data { data, .. }) => all.extend(data),
            _ => own.push(event.clone()),
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Header blocks must be sent in the order in which they were encoded. DATA frames of other
    /// streams may come between header blocks.
    #[test]
    fn valid_responses_are_read_back(
        responses in prop::collection::vec(response(), 5),
        order in Just([0_u32, 1, 2, 3, 4]).prop_shuffle(),
        turns in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut encoder = loona_hpack::Encoder::new();
        let mut bytes = settings(&[]);
        let mut expected = BTreeMap::new();
        let mut waiting: Vec<Vec<Vec<u8>>> = Vec::new();
        for tag in order {
            let (mut frames, events) = frames(&responses[tag as usize], tag, &mut encoder);
            expected.insert(tag, events);
            // Frames up to the last header block stay in order. Later frames of the response may
            // wait.
            let is_block = |frame: &Vec<u8>| frame[3] == kind::HEADERS;
            let last = frames.iter().rposition(is_block).map_or(0, |at| at + 1);
            let rest = frames.split_off(last);
            bytes.extend(frames.concat());
            waiting.push(rest);
            for turn in &turns {
                let queue = turn.index(waiting.len());
                if !waiting[queue].is_empty() && turn.index(3) == 0 {
                    bytes.extend(waiting[queue].remove(0));
                    bytes.extend(frame(0x20, 0, 0, b"ignored"));
                }
            }
        }
        bytes.extend(waiting.concat().concat());
        let seen = agree(false, &bytes, crate::pieces(&bytes, &cuts));
        prop_assert_eq!(by_tag(&seen.events), expected);
        prop_assert!(seen.open.is_empty());
    }

    /// Our decoder and the decoder of `loona_hpack` find the same fields in any header blocks.
    #[test]
    fn both_decoders_agree(
        blocks in prop::collection::vec(prop::collection::vec(representation(), 0..8), 1..8),
        noise in prop::collection::vec(any::<u8>(), 0..12),
    ) {
        let (mut ours, mut theirs) = (Decoder::default(), loona_hpack::Decoder::new());
        theirs.set_max_allowed_table_size(4096);
        let mut blocks: Vec<Vec<u8>> = blocks.iter().map(|block| block.concat()).collect();
        blocks.push(noise);
        for block in blocks {
            let mut found = Vec::new();
            let result = ours.decode(&block, |n, v| found.push((n.to_vec(), v.to_vec())));
            let mut other = Vec::new();
            let their_result = theirs
                .decode_with_cb(&block, |n, v| other.push((n.to_vec(), v.to_vec())));
            use loona_hpack::decoder::DecoderError::SizeUpdateAtEnd;
            match (result, their_result) {
                (Ok(()), Ok(()) | Err(SizeUpdateAtEnd)) => prop_assert_eq!(found, other),
                (Err(_), Err(_)) => {
                    prop_assert!(other.starts_with(&found));
                    break;
                }
                (Err(why), Ok(())) => {
                    prop_assert!(why.contains("at the start"), "{}", why);
                    break;
                }
                (Ok(()), Err(why)) => prop_assert!(false, "accepted: {:?} {}", block, why),
            }
        }
    }
}

/// Generates a representation of a field that is probably valid.
fn representation() -> impl Strategy<Value = Vec<u8>> {
    let string = prop_oneof![
        4 => "[a-z :/0-9]{0,30}".prop_map(|text| [&[text.len() as u8], text.as_bytes()].concat()),
        1 => prop::collection::vec(any::<u8>(), 0..8)
            .prop_map(|bytes| [&[0x80 | bytes.len() as u8], &bytes[..]].concat()),
        1 => Just(b"\x82\x64\x02".to_vec()),
        1 => (0_usize..4_100).prop_map(|length| {
            let rest = length.max(127) - 127;
            let mut bytes = vec![0x7f, 0x80 | (rest & 0x7f) as u8, (rest >> 7) as u8];
            bytes.resize(3 + length.max(127), b'v');
            bytes
        }),
    ];
    let literal =
        (prop_oneof![Just(0x40_u8), Just(0), Just(0x10)], 0_u8..15, string.clone(), string)
            .prop_map(|(pattern, index, name, value)| {
                let name = if index == 0 { name } else { Vec::new() };
                [&[pattern | index][..], &name, &value].concat()
            });
    let named = (62_u8..70, "[a-z]{0,9}").prop_map(|(index, value)| {
        // The index of a name in the dynamic table has 6 bits, so from 63 on it takes a second
        // byte.
        let mut bytes = if index < 63 { vec![0x40 | index] } else { vec![0x7f, index - 63] };
        bytes.push(value.len() as u8);
        bytes.extend(value.as_bytes());
        bytes
    });
    prop_oneof![
        4 => (1_u8..70).prop_map(|index| vec![0x80 | index]),
        6 => literal,
        2 => named,
        1 => prop_oneof![
            Just(vec![0x20]), Just(vec![0x3f, 0xe1, 0x1f]), Just(vec![0x3f, 0x80, 0x02]),
            Just(vec![0x3f, 0xe2, 0x1f]),
        ],
    ]
}
