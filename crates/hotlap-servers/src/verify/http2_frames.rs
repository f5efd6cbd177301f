//! A connection of the verifier on which each frame of HTTP/2 is sent and read by itself.

use std::time::{Duration, Instant};

use hotlap_load::http2::hpack::Decoder;
use hotlap_load::http2::{FRAME_HEADER, FrameHeader, flags, kind};

use super::client::Wire;

/// What a client sends first (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame that the server sent.
pub(super) struct Frame {
    pub(super) header: FrameHeader,
    pub(super) payload: Vec<u8>,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// With a response: its status, and the length of its body.
    Response(u16, usize),
    /// The server reset the stream.
    Reset,
    /// The server ended the connection, with a GOAWAY or without.
    Closed,
}

/// A connection.
pub(super) struct Frames {
    wire: Wire,
    received: Vec<u8>,
    /// How many of the received bytes are read.
    read: usize,
    decoder: Decoder,
    /// How long the next frame may take.
    limit: Duration,
    /// When the conversation ends, however many frames come.
    ends: Instant,
}

/// A whole conversation may take this many times the limit of a frame.
const CONVERSATION: u32 = 4;

impl Frames {
    /// Begins with these SETTINGS.
    pub(super) fn begin(mut wire: Wire, settings: &[u8], limit: Duration) -> Result<Self, String> {
        wire.send(PREFACE)?;
        let mut frames = Self {
            wire,
            received: Vec::new(),
            read: 0,
            decoder: Decoder::default(),
            limit,
            ends: Instant::now() + limit * CONVERSATION,
        };
        frames.send(kind::SETTINGS, 0, 0, settings)?;
        Ok(frames)
    }

    /// Sends a frame.
    pub(super) fn send(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> Result<(), String> {
        let header = FrameHeader { length: payload.len() as u32, kind, flags, stream };
        self.wire.send(&[&header.bytes()[..], payload].concat())
    }

    /// The next frame. `None` if the connection ends, nothing comes in time, or the conversation
    /// has taken too long. SETTINGS are acknowledged.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, String> {
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

    fn take(&mut self) -> Option<Frame> {
        let bytes = &self.received[self.read..];
        let header = FrameHeader::parse(bytes.first_chunk()?);
        let end = FRAME_HEADER + header.length as usize;
        let payload = bytes.get(FRAME_HEADER..end)?.to_vec();
        self.read += end;
        Some(Frame { header, payload })
    }

    /// Waits for a frame that this accepts.
    pub(super) fn wait_for(
        &mut self,
        what: &str,
        accepts: impl Fn(&Frame) -> bool,
    ) -> Result<Frame, String> {
        while let Some(frame) = self.next()? {
            if accepts(&frame) {
                return Ok(frame);
            }
        }
        match self.wire.over {
            true => Err(format!("the connection closed without {what}")),
            false => Err(format!("no {what} within {} s", self.limit.as_secs_f64())),
        }
    }

    /// Waits for the end of a request.
    pub(super) fn end_of(&mut self, stream: u32) -> Result<End, String> {
        let (mut status, mut length) = (0, 0);
        loop {
            let Some(Frame { header, payload }) = self.next()? else {
                return match self.wire.over {
                    true => Ok(End::Closed),
                    false => Err(format!("no response within {} s", self.limit.as_secs_f64())),
                };
            };
            match header.kind {
                kind::HEADERS => status = self.status(&header, &payload)?,
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

    /// Whether the server, after its response, resets the stream or ends the connection with an
    /// error.
    pub(super) fn is_ended(&mut self, stream: u32) -> Result<bool, String> {
        while let Some(Frame { header, payload }) = self.next()? {
            match header.kind {
                kind::RST_STREAM if header.stream == stream => return Ok(true),
                kind::GOAWAY if error_code(&payload) != Some(0) => return Ok(true),
                _ => {}
            }
        }
        Ok(self.wire.over)
    }

    /// The status in a header block. All blocks are decoded, since each may change the table.
    fn status(&mut self, header: &FrameHeader, payload: &[u8]) -> Result<u16, String> {
        let padding = if header.has(flags::PADDED) { payload.first().copied() } else { None };
        let start =
            usize::from(padding.is_some()) + if header.has(flags::PRIORITY) { 5 } else { 0 };
        let end = payload.len().saturating_sub(usize::from(padding.unwrap_or(0)));
        let block = payload.get(start..end).ok_or("HEADERS with more padding than content")?;
        let mut status = 0;
        let decoded = self.decoder.decode(block, |name, value| {
            if name == b":status" {
                status = String::from_utf8_lossy(value).parse().unwrap_or(0);
            }
        });
        decoded.map_err(|why| format!("a malformed header block: {why}"))?;
        Ok(status)
    }
}

/// The error code of a GOAWAY (RFC 9113 section 6.8).
fn error_code(payload: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*payload.get(4..)?.first_chunk()?))
}
