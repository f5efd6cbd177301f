//! Conformance checks of HTTP/2: behaviour that is reported but not required. Each check names its
//! rule.

use std::time::{Duration, Instant};

use hotlap_load::http2::hpack::Decoder;
use hotlap_load::http2::{FRAME_HEADER, FrameHeader, MAX_FRAME, flags, kind};

use super::checks::check;
use super::client::{Wire, block};
use super::{Check, Verifier};

/// The time limit for one response.
const LIMIT: Duration = Duration::from_secs(1);

/// The id of a client's first stream.
const FIRST: u32 = 1;

const WHOLE: u8 = flags::END_STREAM | flags::END_HEADERS;

type Outcome = Result<(), String>;

struct Conformance<'a> {
    verifier: &'a Verifier<'a>,
    /// The header block of a request without a body.
    block: Vec<u8>,
    /// The status of the response to that request. 0 if it is unknown.
    status: u16,
}

/// Runs up to twelve checks. The three rude checks are left out if the server is not the user's
/// own. `status` is the status of the response to the contract's first request.
pub(super) fn run(verifier: &Verifier<'_>, status: u16) -> Vec<Check> {
    let main = &verifier.contract.exchanges[0];
    let exchange = if main.body.is_empty() { main.clone() } else { main.readiness() };
    let scheme = if verifier.target.tls.is_some() { "https" } else { "http" };
    let block = block(&exchange, verifier.host, scheme);
    let status = if main.body.is_empty() { status } else { 0 };
    let c = Conformance { verifier, block, status };
    let mut conformance = vec![
        check("SETTINGS first", "the first frame (RFC 9113 section 3.4)", c.settings_first()),
        check("SETTINGS acknowledged", "an ACK (RFC 9113 section 6.5.3)", c.acknowledges()),
        check("PING", "the same bytes, with ACK (RFC 9113 section 6.7)", c.ping()),
        check("unknown frame", "ignored (RFC 9113 section 5.5)", c.unknown_frame()),
        check("CONTINUATION", "accepted (RFC 9113 section 6.10)", c.continuation()),
        check("padding", "accepted (RFC 9113 section 6.2)", c.padding()),
        check("many streams", "all answered (RFC 9113 section 5.1.2)", c.many_streams()),
        check("flow control", "no more DATA than the window (RFC 9113 section 6.9)", c.window()),
        check("reset", "other streams go on (RFC 9113 section 5.4.2)", c.goes_on_after_reset()),
    ];
    if verifier.rude {
        let refused = "an error (RFC 9113 section 5.1.1)";
        conformance.push(check("even stream", refused, c.even_stream()));
        let refused = "FRAME_SIZE_ERROR (RFC 9113 section 4.2)";
        conformance.push(check("oversize frame", refused, c.oversize_frame()));
        let refused = "malformed (RFC 9113 section 8.2.1)";
        conformance.push(check("upper-case name", refused, c.upper_case_name()));
    }
    conformance
}

impl<'a> Conformance<'a> {
    fn open(&self, settings: &[u8]) -> Result<Frames<'a>, String> {
        let Verifier { target, limit, stop, .. } = *self.verifier;
        let limit = limit.min(LIMIT);
        Frames::begin(Wire::open_bare(target, limit, stop)?, settings, limit)
    }

    /// Checks that this stream gets the usual response.
    fn answered(&self, frames: &mut Frames<'_>, stream: u32) -> Outcome {
        match frames.end_of(stream)? {
            End::Response(status, _) if self.status == 0 || status == self.status => Ok(()),
            End::Response(status, _) => Err(format!("status {status}")),
            End::Reset => Err("the stream was reset".to_owned()),
            End::Closed => Err("the connection was closed".to_owned()),
        }
    }

    fn settings_first(&self) -> Outcome {
        match self.open(&[])?.next()? {
            Some(frame) if frame.header.kind == kind::SETTINGS => Ok(()),
            Some(frame) => Err(format!("a frame of type {}", frame.header.kind)),
            None => Err("no frame".to_owned()),
        }
    }

    fn acknowledges(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        frames
            .wait_for("an ACK", |f| f.header.kind == kind::SETTINGS && f.header.has(flags::ACK))
            .map(drop)
    }

    fn ping(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        frames.send(kind::PING, 0, 0, b"hotlap!?")?;
        let answer = frames
            .wait_for("an ACK", |f| f.header.kind == kind::PING && f.header.has(flags::ACK))?;
        match answer.payload == b"hotlap!?" {
            true => Ok(()),
            false => Err(format!("{:?}", answer.payload)),
        }
    }

    fn unknown_frame(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        frames.send(0xfe, 0xff, 0, b"unknown")?;
        frames.send(kind::HEADERS, WHOLE, FIRST, &self.block)?;
        self.answered(&mut frames, FIRST)
    }

    fn continuation(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        let (first, rest) = self.block.split_at(1);
        frames.send(kind::HEADERS, flags::END_STREAM, FIRST, first)?;
        frames.send(kind::CONTINUATION, flags::END_HEADERS, FIRST, rest)?;
        self.answered(&mut frames, FIRST)
    }

    fn padding(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        let padded = [&[7][..], &self.block, &[0; 7]].concat();
        frames.send(kind::HEADERS, WHOLE | flags::PADDED, FIRST, &padded)?;
        self.answered(&mut frames, FIRST)
    }

    fn many_streams(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        let streams: Vec<u32> = (0..10).map(|n| FIRST + 2 * n).collect();
        for stream in &streams {
            frames.send(kind::HEADERS, WHOLE, *stream, &self.block)?;
        }
        // The responses may come in any order.
        let mut open = streams;
        while !open.is_empty() {
            let ended = frames.wait_for("a response to each request", |f| {
                f.header.has(flags::END_STREAM)
                    && matches!(f.header.kind, kind::HEADERS | kind::DATA)
            })?;
            open.retain(|stream| *stream != ended.header.stream);
        }
        Ok(())
    }

    /// Checks that a stream carries at most the one permitted byte before a WINDOW_UPDATE.
    fn window(&self) -> Outcome {
        // SETTINGS_INITIAL_WINDOW_SIZE is one byte.
        let mut frames = self.open(&[0, 4, 0, 0, 0, 1])?;
        frames.holds_window = true;
        frames
            .wait_for("an ACK", |f| f.header.kind == kind::SETTINGS && f.header.has(flags::ACK))?;
        frames.send(kind::HEADERS, WHOLE, FIRST, &self.block)?;
        let first = frames.wait_for("DATA or the end of the response", |f| {
            f.header.stream == FIRST
                && (f.header.kind == kind::DATA || f.header.has(flags::END_STREAM))
        })?;
        if first.header.kind == kind::DATA && first.payload.len() > 1 {
            return Err(format!("{} bytes for a window of 1", first.payload.len()));
        }
        if first.header.has(flags::END_STREAM) {
            return Ok(());
        }
        frames.holds_window = false;
        frames.send(kind::WINDOW_UPDATE, 0, FIRST, &65_535_u32.to_be_bytes())?;
        let last = |f: &Frame| f.header.stream == FIRST && f.header.has(flags::END_STREAM);
        frames.wait_for("the rest of the response after a WINDOW_UPDATE", last).map(drop)
    }

    fn goes_on_after_reset(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        frames.send(kind::HEADERS, WHOLE, FIRST, &self.block)?;
        // The error code is CANCEL.
        frames.send(kind::RST_STREAM, 0, FIRST, &8_u32.to_be_bytes())?;
        frames.send(kind::HEADERS, WHOLE, FIRST + 2, &self.block)?;
        self.answered(&mut frames, FIRST + 2)
    }

    /// Checks that the server does not respond to a wrong request as if the request were right.
    fn refused(&self, frames: &mut Frames<'_>, stream: u32) -> Outcome {
        match frames.end_of(stream)? {
            End::Reset | End::Closed | End::Response(400..=499, _) => Ok(()),
            // Some servers respond before they have read the rest of the request.
            End::Response(status, _) => match frames.is_ended(stream)? {
                true => Ok(()),
                false => Err(format!("status {status}")),
            },
        }
    }

    fn even_stream(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        frames.send(kind::HEADERS, WHOLE, 2, &self.block)?;
        self.refused(&mut frames, 2)
    }

    fn oversize_frame(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        // The frame is larger than the default limit. A server that allows larger frames states its
        // limit in its SETTINGS.
        let size = MAX_FRAME as usize + 1;
        let allowed = frames.wait_for("SETTINGS", |f| f.header.kind == kind::SETTINGS)?;
        let allows_more = |setting: &[u8]| match *setting {
            // SETTINGS_MAX_FRAME_SIZE (RFC 9113 section 6.5.2).
            [0, 5, a, b, c, d] => u32::from_be_bytes([a, b, c, d]) > MAX_FRAME,
            _ => false,
        };
        if allowed.payload.chunks_exact(6).any(allows_more) {
            return Ok(());
        }
        frames.send(kind::HEADERS, flags::END_HEADERS, FIRST, &self.block)?;
        frames.send(kind::DATA, flags::END_STREAM, FIRST, &vec![b'x'; size])?;
        self.refused(&mut frames, FIRST)
    }

    fn upper_case_name(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        // A literal without indexing, with a new name (RFC 7541 section 6.2.2): X-A: 1.
        let field = [&[0, 3][..], b"X-A", &[1], b"1"].concat();
        let block = [&self.block[..], &field].concat();
        frames.send(kind::HEADERS, WHOLE, FIRST, &block)?;
        self.refused(&mut frames, FIRST)
    }
}

/// The bytes that a client sends first (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame that the server sent.
struct Frame {
    header: FrameHeader,
    payload: Vec<u8>,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// The server sent a response, with this status and this length of the body.
    Response(u16, usize),
    /// The server reset the stream.
    Reset,
    /// The server ended the connection, with or without a GOAWAY.
    Closed,
}

/// A connection on which each frame is sent and read separately.
struct Frames<'a> {
    wire: Wire<'a>,
    received: Vec<u8>,
    /// The number of received bytes that have been read.
    read: usize,
    decoder: Decoder,
    /// Whether the client leaves the flow-control windows as they are when it receives DATA.
    holds_window: bool,
    /// The stream that the client has reset, on which it sends nothing more. 0 if there is none.
    reset: u32,
    /// How long the next frame may take.
    limit: Duration,
    /// When the conversation ends, however many frames come.
    ends: Instant,
}

/// The time limit of a whole conversation, as a multiple of the limit for one frame.
const CONVERSATION: u32 = 4;

impl<'a> Frames<'a> {
    /// Begins a conversation with these SETTINGS.
    fn begin(mut wire: Wire<'a>, settings: &[u8], limit: Duration) -> Result<Self, String> {
        wire.send(PREFACE)?;
        let mut frames = Self {
            wire,
            received: Vec::new(),
            read: 0,
            decoder: Decoder::default(),
            holds_window: false,
            reset: 0,
            limit,
            ends: Instant::now() + limit * CONVERSATION,
        };
        frames.send(kind::SETTINGS, 0, 0, settings)?;
        Ok(frames)
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<(), String> {
        let header = FrameHeader { length: payload.len() as u32, kind, flags, stream };
        if kind == kind::RST_STREAM {
            self.reset = stream;
        }
        self.wire.send(&[&header.bytes()[..], payload].concat())
    }

    /// Returns the next frame, acknowledges SETTINGS, and opens the windows again after DATA
    /// unless `holds_window` is set. `None` if the connection ends, nothing comes in time, or the
    /// conversation has taken too long.
    fn next(&mut self) -> Result<Option<Frame>, String> {
        let now = Instant::now();
        if now >= self.ends {
            return Ok(None);
        }
        let until = self.ends.min(now + self.limit);
        loop {
            if let Some(frame) = self.take() {
                let FrameHeader { kind, .. } = frame.header;
                if kind == kind::SETTINGS && !frame.header.has(flags::ACK) {
                    self.send(kind::SETTINGS, flags::ACK, 0, &[])?;
                }
                if kind == kind::DATA && !self.holds_window {
                    self.reopen(&frame.header);
                }
                return Ok(Some(frame));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.wire.over {
                return Ok(None);
            }
            self.received.drain(..std::mem::take(&mut self.read));
            self.received.extend(self.wire.take_received(left));
        }
    }

    /// Opens the flow-control windows again by the length of a DATA frame. Without this, a server
    /// must stop after 65,535 bytes (RFC 9113 section 6.9.2).
    fn reopen(&mut self, data: &FrameHeader) {
        let is_over = data.has(flags::END_STREAM) || data.stream == self.reset;
        let streams = [Some(0), (!is_over).then_some(data.stream)];
        for stream in streams.into_iter().flatten().filter(|_| data.length > 0) {
            // If the server has closed the connection, the next read shows that.
            let _ = self.send(kind::WINDOW_UPDATE, 0, stream, &data.length.to_be_bytes());
        }
    }

    fn take(&mut self) -> Option<Frame> {
        let bytes = &self.received[self.read..];
        let header = FrameHeader::parse(bytes.first_chunk()?);
        let end = FRAME_HEADER + header.length as usize;
        let payload = bytes.get(FRAME_HEADER..end)?.to_vec();
        self.read += end;
        Some(Frame { header, payload })
    }

    /// Waits for a frame for which `accepts` returns true.
    fn wait_for(&mut self, what: &str, accepts: impl Fn(&Frame) -> bool) -> Result<Frame, String> {
        while let Some(frame) = self.next()? {
            if accepts(&frame) {
                return Ok(frame);
            }
        }
        match self.wire.over {
            true => Err(format!("the connection closed without {what}")),
            false => Err(format!("{what} did not arrive within {} s", self.limit.as_secs_f64())),
        }
    }

    fn end_of(&mut self, stream: u32) -> Result<End, String> {
        let (mut status, mut length) = (0, 0);
        loop {
            let Some(Frame { header, payload }) = self.next()? else {
                return match self.wire.over {
                    true => Ok(End::Closed),
                    false => Err(format!("no response within {} s", self.limit.as_secs_f64())),
                };
            };
            match header.kind {
                kind::HEADERS => {
                    let of_block = self.status(&header, &payload)?;
                    // Trailers have no status.
                    status = of_block.filter(|_| header.stream == stream).unwrap_or(status);
                }
                kind::DATA if header.stream == stream => length += payload.len(),
                kind::RST_STREAM if header.stream == stream => return Ok(End::Reset),
                kind::GOAWAY if error_code(&payload) != Some(0) => return Ok(End::Closed),
                _ => {}
            }
            let has_content = matches!(header.kind, kind::HEADERS | kind::DATA);
            if header.stream == stream && has_content && header.has(flags::END_STREAM) {
                return Ok(End::Response(status, length));
            }
        }
    }

    /// Returns whether the server, after its response, resets the stream or ends the connection
    /// with an error.
    fn is_ended(&mut self, stream: u32) -> Result<bool, String> {
        while let Some(Frame { header, payload }) = self.next()? {
            match header.kind {
                kind::RST_STREAM if header.stream == stream => return Ok(true),
                kind::GOAWAY if error_code(&payload) != Some(0) => return Ok(true),
                _ => {}
            }
        }
        Ok(self.wire.over)
    }

    /// Returns the status in a header block, if it has one. All blocks are decoded, since each may
    /// change the table.
    fn status(&mut self, header: &FrameHeader, payload: &[u8]) -> Result<Option<u16>, String> {
        let padding = if header.has(flags::PADDED) { payload.first().copied() } else { None };
        let start =
            usize::from(padding.is_some()) + if header.has(flags::PRIORITY) { 5 } else { 0 };
        let end = payload.len().saturating_sub(usize::from(padding.unwrap_or(0)));
        let block = payload.get(start..end).ok_or("HEADERS with more padding than content")?;
        let mut status = None;
        let decoded = self.decoder.decode(block, |name, value| {
            if name == b":status" {
                status = Some(String::from_utf8_lossy(value).parse().unwrap_or(0));
            }
        });
        decoded.map_err(|why| format!("a malformed header block: {why}"))?;
        Ok(status)
    }
}

/// Returns the error code of a GOAWAY (RFC 9113 section 6.8).
fn error_code(payload: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*payload.get(4..)?.first_chunk()?))
}
