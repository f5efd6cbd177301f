//! Feeds bytes to an HTTP/2 client, and records what the client reports and sends. Tests and fuzz
//! targets use this module.

use std::fmt;

use hotlap_load::http2::{
    ClientConnection, EncodedRequests, ErrorCode, FRAME_HEADER, FrameHeader, Limits, StreamEvent,
    encode, kind,
};
use hotlap_load::plan::Request;

/// The length of the body of the request with tag 4, in bytes.
pub const BODY: usize = 100_000;

/// A [`StreamEvent`] without borrowed bytes. Consecutive pieces of a body are joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Head { tag: u32, status: u16, length: Option<u64>, is_end: bool },
    Data { tag: u32, data: Vec<u8> },
    End { tag: u32, bytes: u64 },
    Reset { tag: u32, code: ErrorCode },
    GoAway { last_stream: u32, code: ErrorCode },
    Refused { tag: u32 },
    Malformed { tag: u32, why: &'static str },
    Broken { code: ErrorCode, why: &'static str },
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head { tag, status, length: Some(length), .. } => {
                write!(f, "head {tag} {status} length {length}")
            }
            Self::Head { tag, status, .. } => write!(f, "head {tag} {status}"),
            Self::Data { tag, data } if data.len() > 20 => {
                write!(f, "data {tag} {} bytes", data.len())
            }
            Self::Data { tag, data } => write!(f, "data {tag} {}", data.escape_ascii()),
            Self::End { tag, .. } => write!(f, "end {tag}"),
            Self::Reset { tag, code } => write!(f, "reset {tag} {code}"),
            Self::GoAway { last_stream, code } => write!(f, "goaway {last_stream} {code}"),
            Self::Refused { tag } => write!(f, "refused {tag}"),
            Self::Malformed { tag, why } => write!(f, "malformed {tag}: {why}"),
            Self::Broken { code, why } => write!(f, "{code}: {why}"),
        }
    }
}

/// The record of one replayed connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    pub events: Vec<Seen>,
    /// All bytes that the client sent.
    pub out: Vec<u8>,
    /// The tags of requests that are still open, in ascending order.
    pub open: Vec<u32>,
    /// The number of requests that the client sent.
    pub sent: u32,
}

/// The settings of a replay.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub reuses_heads: bool,
    /// Whether another request is sent whenever one has finished.
    pub refills: bool,
}

/// The setup with five requests in flight. Tags 0, 1 and 2 are GET on streams 1, 3 and 5. Tag 3 is
/// HEAD on stream 7, and tag 4 is POST with a body on stream 9.
pub const FIVE: Setup = Setup { reuses_heads: true, refills: false };

/// Encodes the GET, HEAD and POST requests.
fn requests() -> EncodedRequests {
    let headers = [("user-agent".to_owned(), "hotlap".to_owned())];
    let request =
        |method: &str, body: &[u8]| Request::build(method, "/", "localhost", &headers, body);
    let requests = [request("GET", b""), request("HEAD", b""), request("POST", &[b'b'; BODY])];
    encode(&requests, "http")
}

fn send(
    client: &mut ClientConnection,
    requests: &EncodedRequests,
    tag: u32,
    out: &mut Vec<u8>,
) -> bool {
    let (which, body) = match tag {
        3 => (1, &[][..]),
        4 => (2, &[b'b'; BODY][..]),
        _ => (0, &[][..]),
    };
    let block = requests.block(which, client.form()).constant().expect("it is constant");
    client.request(tag, block, body, tag == 3, out).is_some()
}

/// Sends the five requests, then feeds these pieces to the client as the server's bytes.
pub fn replay<'a>(setup: Setup, pieces: impl IntoIterator<Item = &'a [u8]>) -> Replay {
    let requests = requests();
    let limits = Limits {
        streams: 8,
        table_size: requests.table_size,
        reuses_heads: setup.reuses_heads,
        ..Limits::default()
    };
    let mut client = ClientConnection::new(limits);
    let mut seen = Replay { events: Vec::new(), out: Vec::new(), open: Vec::new(), sent: 5 };
    client.open(&mut seen.out);
    for tag in 0..5 {
        assert!(send(&mut client, &requests, tag, &mut seen.out));
    }
    'pieces: for mut piece in pieces {
        loop {
            let event = client.take(&mut piece, &mut seen.out);
            // The client buffers at most a payload, and a header block of 64 KiB plus the last
            // fragment.
            assert!(client.buffered() <= 256 * 1024, "{}", client.buffered());
            let is_over = !matches!(event, StreamEvent::Head { .. } | StreamEvent::Data { .. });
            match event {
                StreamEvent::NeedMore => {
                    assert!(piece.is_empty());
                    break;
                }
                StreamEvent::Data { tag, data } => {
                    assert!(!data.is_empty());
                    match seen.events.last_mut() {
                        Some(Seen::Data { tag: last, data: all }) if *last == tag => {
                            all.extend_from_slice(data);
                        }
                        _ => seen.events.push(Seen::Data { tag, data: data.to_vec() }),
                    }
                }
                StreamEvent::Broken { code, why } => {
                    seen.events.push(Seen::Broken { code, why });
                    let before = seen.out.len();
                    let again = client.take(&mut &b"more"[..], &mut seen.out);
                    assert_eq!(
                        (again, before),
                        (StreamEvent::Broken { code, why }, seen.out.len())
                    );
                    assert_eq!(client.can_open(), 0);
                    break 'pieces;
                }
                StreamEvent::Head { tag, status, length, is_end } => {
                    seen.events.push(Seen::Head { tag, status, length, is_end });
                }
                StreamEvent::End { tag, bytes } => seen.events.push(Seen::End { tag, bytes }),
                StreamEvent::Reset { tag, code } => seen.events.push(Seen::Reset { tag, code }),
                StreamEvent::GoAway { last_stream, code } => {
                    seen.events.push(Seen::GoAway { last_stream, code });
                }
                StreamEvent::Refused { tag } => seen.events.push(Seen::Refused { tag }),
                StreamEvent::Malformed { tag, why } => {
                    seen.events.push(Seen::Malformed { tag, why })
                }
            }
            if is_over && setup.refills && client.can_open() > 0 {
                assert!(send(&mut client, &requests, seen.sent, &mut seen.out));
                seen.sent += 1;
            }
        }
    }
    client.close();
    seen.open = client.open_streams().map(|stream| stream.tag).collect();
    seen.open.sort_unstable();
    seen
}

impl Replay {
    /// Returns the events in words.
    pub fn text(&self) -> String {
        let events: Vec<String> = self.events.iter().map(ToString::to_string).collect();
        events.join("; ")
    }

    /// Returns the frames that the client sent after its preface.
    pub fn frames(&self) -> Vec<(FrameHeader, &[u8])> {
        let (preface, mut rest) = self.out.split_at(24);
        assert_eq!(preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let mut frames = Vec::new();
        while let Some((header, after)) = rest.split_first_chunk::<FRAME_HEADER>() {
            let header = FrameHeader::parse(header);
            let (payload, after) = after.split_at(header.length as usize);
            frames.push((header, payload));
            rest = after;
        }
        assert!(rest.is_empty(), "what is sent are whole frames");
        frames
    }

    /// Checks what must hold whatever the server sends. Each request ends at most once, and its
    /// events come in order. Errors are reported to the server, and the number of bytes sent is
    /// bounded.
    pub fn check(&self, input: usize) {
        let mut heads = std::collections::BTreeMap::new();
        let mut over = std::collections::BTreeSet::new();
        for event in &self.events {
            let ended = match event {
                Seen::Head { tag, status, length, .. } => {
                    assert!((200..1000).contains(status));
                    assert!(heads.insert(*tag, (*length, 0)).is_none(), "{}", self.text());
                    continue;
                }
                Seen::Data { tag, data } => {
                    let (length, received) = heads.get_mut(tag).expect("data follows a head");
                    *received += data.len() as u64;
                    assert!(length.is_none_or(|length| *received <= length), "{}", self.text());
                    assert!(!over.contains(tag));
                    continue;
                }
                Seen::End { tag, bytes } => {
                    let (length, received) = heads[tag];
                    assert!(length.is_none_or(|l| received == l || received == 0));
                    assert!(*bytes > received);
                    tag
                }
                Seen::Reset { tag, .. } | Seen::Refused { tag } | Seen::Malformed { tag, .. } => {
                    tag
                }
                Seen::GoAway { .. } | Seen::Broken { .. } => continue,
            };
            assert!(over.insert(*ended), "{ended} ends twice: {}", self.text());
        }
        let mut all: Vec<u32> = over.into_iter().chain(self.open.iter().copied()).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..self.sent), "each request is over or open");
        let frames = self.frames();
        let count = |kind| frames.iter().filter(|(header, _)| header.kind == kind).count();
        let malformed = |event: &&Seen| matches!(event, Seen::Malformed { .. });
        assert!(count(kind::RST_STREAM) >= self.events.iter().filter(malformed).count());
        match self.events.last() {
            Some(Seen::Broken { code, .. }) => {
                let (header, payload) = frames.last().expect("there is a frame");
                assert_eq!((header.kind, header.stream), (kind::GOAWAY, 0));
                assert_eq!(payload[4..], code.0.to_be_bytes());
            }
            _ => assert_eq!(count(kind::GOAWAY), 0),
        }
        // The preface takes at most 100 bytes. A request takes less than 64 bytes, and 13 more if
        // it is reset. Each WINDOW_UPDATE, of 13 bytes, may release a DATA frame with a header of 9
        // bytes. Replies to the server's frames take at most 65,536 bytes more than the input. The
        // last GOAWAY takes 17 bytes.
        let body = BODY + 9 * (input / 13 + 100);
        let bound = 100 + (self.sent as usize) * 77 + body + 65_536 + input + 17;
        assert!(self.out.len() <= bound, "{} > {bound}", self.out.len());
    }
}

/// Replays bytes in one piece and in the given pieces, with and without reused heads. All replays
/// must agree.
pub fn agree<'a>(
    refills: bool,
    bytes: &[u8],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Replay {
    let whole = replay(Setup { reuses_heads: true, refills }, [bytes]);
    whole.check(bytes.len());
    let cut = replay(Setup { reuses_heads: true, refills }, pieces);
    assert_eq!(cut.text(), whole.text());
    assert!(cut == whole, "the same events and bytes, however the input is cut");
    let decoded = replay(Setup { reuses_heads: false, refills }, [bytes]);
    assert_eq!(decoded.text(), whole.text());
    assert!(decoded == whole, "the same events and bytes without reused heads");
    whole
}
