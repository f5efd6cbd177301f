//! Receives frames: bodies, and the header blocks of heads, interim responses and trailers.

use super::{ClientConnection, OpenBlock, State, Step, StreamEvent};
use crate::http2::frame::{
    self, ErrorCode, FRAME_HEADER, Fault, FrameHeader, HEADER_LIST, MAX_FRAME, flags, kind,
};
use crate::http2::head::{Head, HeadReader, Meaning};
use crate::http2::streams::Found;

impl ClientConnection {
    /// Reads a frame header, and the whole frame if it is complete.
    #[inline]
    pub(super) fn frame<'a>(&mut self, input: &mut &'a [u8], out: &mut Vec<u8>) -> Step<'a> {
        let whole = input.split_first_chunk().filter(|_| self.header_length == 0);
        let bytes = if let Some((bytes, rest)) = whole {
            *input = rest;
            *bytes
        } else {
            let count = (FRAME_HEADER - self.header_length).min(input.len());
            let (part, rest) = input.split_at(count);
            *input = rest;
            self.header[self.header_length..][..count].copy_from_slice(part);
            self.header_length += count;
            if self.header_length < FRAME_HEADER {
                return Ok(Some(StreamEvent::NeedMore));
            }
            self.header_length = 0;
            self.header
        };
        self.begin(FrameHeader::parse(&bytes), &bytes, input, out)
    }

    /// Begins to read the payload of a frame.
    #[inline]
    fn begin<'a>(
        &mut self,
        header: FrameHeader,
        bytes: &[u8; FRAME_HEADER],
        input: &mut &'a [u8],
        out: &mut Vec<u8>,
    ) -> Step<'a> {
        if !self.has_settings {
            check_first(&header, bytes)?;
        }
        if header.length > MAX_FRAME {
            return Err(Fault::size("a frame of over 16 KiB"));
        }
        if let Some(block) = &self.open_block
            && (header.kind != kind::CONTINUATION || header.stream != block.stream)
        {
            return Err(Fault::protocol("a header block is interrupted by another frame"));
        }
        match header.kind {
            kind::DATA => self.begin_data(header, input, out),
            // Usually, the whole frame has arrived.
            kind::HEADERS if header.length as usize <= input.len() => {
                let (payload, rest) = input.split_at(header.length as usize);
                *input = rest;
                self.headers(header, payload, out)
            }
            kind::PUSH_PROMISE => Err(Fault::protocol("PUSH_PROMISE, though push is disabled")),
            kind::HEADERS..=kind::CONTINUATION => {
                match input.split_at_checked(header.length as usize) {
                    Some((payload, rest)) => {
                        *input = rest;
                        self.whole(header, payload, out)
                    }
                    None => {
                        self.payload.clear();
                        self.state = State::Payload(header);
                        Ok(None)
                    }
                }
            }
            // RFC 9113 section 5.5: frames of unknown types are ignored.
            _ => {
                self.state = State::Skip(header.length);
                Ok(None)
            }
        }
    }

    /// Buffers a payload until it is complete.
    pub(super) fn payload<'a>(
        &mut self,
        header: FrameHeader,
        input: &mut &'a [u8],
        out: &mut Vec<u8>,
    ) -> Step<'a> {
        let missing = header.length as usize - self.payload.len();
        let (part, rest) = input.split_at(missing.min(input.len()));
        *input = rest;
        self.payload.extend_from_slice(part);
        if part.len() < missing {
            return Ok(Some(StreamEvent::NeedMore));
        }
        self.state = State::Frame;
        let payload = std::mem::take(&mut self.payload);
        let step = self.whole(header, &payload, out);
        self.payload = payload;
        step
    }

    /// Handles a complete frame of any type except DATA and PUSH_PROMISE.
    #[cold]
    fn whole(&mut self, header: FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Step<'static> {
        match header.kind {
            kind::HEADERS => self.headers(header, payload, out),
            kind::CONTINUATION => self.continuation(header, payload, out),
            kind::SETTINGS => self.settings(header, payload, out),
            kind::WINDOW_UPDATE => self.window_update(header, payload, out),
            kind::PING => self.ping(header, payload, out),
            kind::RST_STREAM => self.rst_stream(header, payload),
            kind::GOAWAY => self.goaway(header, payload),
            _ => priority(header),
        }
    }

    /// Begins a DATA frame (section 6.1). Flow control counts the whole payload, even if the stream
    /// has ended (section 6.9). The windows are refilled when the frame begins, because bodies are
    /// not buffered.
    #[inline]
    fn begin_data<'a>(
        &mut self,
        header: FrameHeader,
        input: &mut &'a [u8],
        out: &mut Vec<u8>,
    ) -> Step<'a> {
        let found = self.streams.find(header.stream);
        if found == Found::Idle {
            return Err(Fault::protocol("DATA on a stream without a request"));
        }
        if !self.receive.take(header.length) {
            return Err(Fault::flow("more DATA than the window of the connection"));
        }
        if let Some(increment) = self.receive.refill() {
            frame::write_window_update(out, 0, increment);
        }
        self.answers = self.answers.saturating_sub(header.length as usize);
        let is_end = header.has(flags::END_STREAM);
        if header.length == 0 && !is_end {
            self.answer(FRAME_HEADER)?;
        }
        let slot = match found {
            Found::Open(slot) => slot,
            Found::Closed => {
                let (code, why) = (ErrorCode::STREAM_CLOSED, "DATA on a stream that has ended");
                return Err(Fault { code, why });
            }
            _ if header.has(flags::PADDED) && header.length == 0 => return Err(NO_PAD_LENGTH),
            _ => {
                self.state = State::Skip(header.length);
                return Ok(None);
            }
        };
        let stream = self.streams.at(slot);
        stream.bytes += FRAME_HEADER as u64 + u64::from(header.length);
        if !stream.receive.take(header.length) {
            return Err(Fault::flow("more DATA than the window of the stream"));
        }
        if !is_end && let Some(increment) = stream.receive.refill() {
            frame::write_window_update(out, header.stream, increment);
        }
        if !header.has(flags::PADDED) {
            return Ok(match self.check_body(slot, header.length, is_end) {
                None if header.length == 0 || input.is_empty() => {
                    self.continue_body(slot, header.length, 0, is_end);
                    None
                }
                None => self.data(input, slot, header.length, 0, is_end),
                Some(why) => Some(self.malformed_body(slot, header.length, why, out)),
            });
        }
        if header.length == 0 {
            return Err(NO_PAD_LENGTH);
        }
        self.state = State::PadLength { slot, header };
        Ok(None)
    }

    /// Reads the length of the padding of a DATA frame.
    pub(super) fn pad_length<'a>(
        &mut self,
        slot: usize,
        header: FrameHeader,
        input: &mut &'a [u8],
        out: &mut Vec<u8>,
    ) -> Step<'a> {
        let Some((&length, rest)) = input.split_first() else {
            return Ok(Some(StreamEvent::NeedMore));
        };
        *input = rest;
        let padding = u32::from(length);
        let Some(left) = (header.length - 1).checked_sub(padding) else {
            return Err(Fault::protocol("padding that is longer than its frame"));
        };
        let is_end = header.has(flags::END_STREAM);
        Ok(match self.check_body(slot, left, is_end) {
            None => {
                self.continue_body(slot, left, padding, is_end);
                None
            }
            Some(why) => Some(self.malformed_body(slot, left + padding, why, out)),
        })
    }

    /// Checks the length of the body before any of `count` new bytes is passed on. Returns what is
    /// wrong, if anything.
    #[inline(always)]
    fn check_body(&mut self, slot: usize, count: u32, is_end: bool) -> Option<&'static str> {
        let stream = self.streams.at(slot);
        stream.received += u64::from(count);
        match stream.length {
            _ if !stream.has_head => Some("DATA before the head of the response"),
            None => None,
            Some(length) if stream.received == length => None,
            Some(0) => Some("DATA, though the response has no body"),
            Some(length) if stream.received > length => Some("more DATA than content-length"),
            Some(_) => is_end.then_some("less DATA than content-length"),
        }
    }

    /// Ends a stream whose body is wrong, and skips the rest of its frame.
    #[cold]
    fn malformed_body(
        &mut self,
        slot: usize,
        left: u32,
        why: &'static str,
        out: &mut Vec<u8>,
    ) -> StreamEvent<'static> {
        self.state = State::Skip(left);
        self.malformed(slot, why, out)
    }

    /// Sets the next state within a DATA frame: more of the frame, or its end.
    #[inline(always)]
    fn continue_body(&mut self, slot: usize, left: u32, padding: u32, is_end: bool) {
        if left + padding > 0 {
            self.state = State::Data { slot, left, padding, is_end };
        } else if is_end {
            self.state = State::End(slot);
        } else {
            self.state = State::Frame;
        }
    }

    /// Passes on bytes of a body, or skips bytes of the padding after the body.
    #[inline(always)]
    pub(super) fn data<'a>(
        &mut self,
        input: &mut &'a [u8],
        slot: usize,
        left: u32,
        padding: u32,
        is_end: bool,
    ) -> Option<StreamEvent<'a>> {
        if input.is_empty() {
            return Some(StreamEvent::NeedMore);
        }
        let wanted = if left > 0 { left } else { padding };
        let (data, rest) = input.split_at((wanted as usize).min(input.len()));
        *input = rest;
        let count = data.len() as u32;
        if left == 0 {
            self.continue_body(slot, 0, padding - count, is_end);
            return None;
        }
        self.continue_body(slot, left - count, padding, is_end);
        Some(StreamEvent::Data { tag: self.streams.at(slot).tag, data })
    }

    /// Skips bytes of a payload.
    pub(super) fn skip<'a>(&mut self, left: u32, input: &mut &'a [u8]) -> Option<StreamEvent<'a>> {
        let count = (left as usize).min(input.len());
        *input = &input[count..];
        match left - count as u32 {
            0 => {
                self.state = State::Frame;
                None
            }
            left => {
                self.state = State::Skip(left);
                Some(StreamEvent::NeedMore)
            }
        }
    }

    /// Completes a response. If the request's body was not sent completely, the server does not
    /// want the rest (section 8.1), and the stream is reset.
    #[inline]
    pub(super) fn end(&mut self, slot: usize, out: &mut Vec<u8>) -> StreamEvent<'static> {
        self.state = State::Frame;
        self.answers = 0;
        let stream = self.streams.at(slot);
        let (bytes, is_sending) = (stream.bytes, stream.is_sending());
        if is_sending {
            frame::write_reset(out, stream.id, ErrorCode::CANCEL);
        }
        let tag = self.streams.close(slot, is_sending);
        StreamEvent::End { tag, bytes }
    }
}

/// The error of a PADDED frame without a payload.
const NO_PAD_LENGTH: Fault = Fault::size("a padded frame without the length of its padding");

/// Checks that the first frame is SETTINGS (section 3.4).
#[cold]
fn check_first(header: &FrameHeader, bytes: &[u8; FRAME_HEADER]) -> Result<(), Fault> {
    if bytes.starts_with(b"HTTP/") {
        return Err(Fault::protocol("an HTTP/1 response instead of HTTP/2"));
    }
    if header.kind != kind::SETTINGS || header.has(flags::ACK) {
        return Err(Fault::protocol("the first frame is not SETTINGS"));
    }
    Ok(())
}

/// Checks and ignores a PRIORITY frame, which is deprecated (section 6.3).
fn priority(header: FrameHeader) -> Step<'static> {
    match (header.length, header.stream) {
        (_, 0) => Err(Fault::protocol("PRIORITY on stream 0")),
        (5, _) => Ok(None),
        _ => Err(Fault::size("PRIORITY is not 5 bytes long")),
    }
}

/// The maximum number of frames of a header block. Four frames hold 64 KiB, but some servers use
/// smaller frames.
const MAX_FRAMES: u32 = 64;

/// The maximum number of interim responses before a final response. Servers send one or two.
const MAX_INTERIM: u8 = 100;

impl ClientConnection {
    /// Handles HEADERS (section 6.2).
    #[inline]
    pub(super) fn headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Step<'static> {
        let fragment = if header.has(flags::PADDED | flags::PRIORITY) {
            fragment(&header, payload)?
        } else {
            payload
        };
        let bytes = FRAME_HEADER as u64 + u64::from(header.length);
        let is_end = header.has(flags::END_STREAM);
        if header.has(flags::END_HEADERS) {
            return self.complete_block(header.stream, is_end, bytes, fragment, out);
        }
        self.block.clear();
        self.block.extend_from_slice(fragment);
        self.open_block = Some(OpenBlock { stream: header.stream, is_end, frames: 1, bytes });
        Ok(None)
    }

    /// Handles CONTINUATION (section 6.10).
    pub(super) fn continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Step<'static> {
        let Some(open) = &mut self.open_block else {
            return Err(Fault::protocol("CONTINUATION without HEADERS"));
        };
        open.frames += 1;
        open.bytes += FRAME_HEADER as u64 + u64::from(header.length);
        if open.frames > MAX_FRAMES || self.block.len() + payload.len() > HEADER_LIST {
            return Err(Fault::flood("a header block of over 64 KiB or 64 frames"));
        }
        self.block.extend_from_slice(payload);
        if !header.has(flags::END_HEADERS) {
            return Ok(None);
        }
        let OpenBlock { stream, is_end, bytes, .. } = *open;
        self.open_block = None;
        let block = std::mem::take(&mut self.block);
        let step = self.complete_block(stream, is_end, bytes, &block, out);
        self.block = block;
        step
    }

    /// Handles a complete header block.
    #[inline]
    fn complete_block(
        &mut self,
        stream: u32,
        is_end: bool,
        bytes: u64,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Step<'static> {
        match self.streams.find(stream) {
            Found::Open(slot) => {
                let stream = self.streams.at(slot);
                stream.bytes += bytes;
                if stream.has_head {
                    return self.trailers(slot, is_end, block, out);
                }
                let meaning = self.meaning(block)?;
                Ok(self.head(slot, is_end, meaning, out))
            }
            // The decoder's table must stay equal to the server's (section 4.3).
            Found::Abandoned => self.decode(block, true).map(|_| None),
            Found::Closed => {
                let (code, why) = (ErrorCode::STREAM_CLOSED, "HEADERS on a stream that has ended");
                Err(Fault { code, why })
            }
            Found::Idle => Err(Fault::protocol("HEADERS on a stream without a request")),
        }
    }

    /// Returns the meaning of a header block. A block that has arrived before is decoded again
    /// only if the table has changed.
    #[inline]
    fn meaning(&mut self, block: &[u8]) -> Result<Meaning, Fault> {
        if !self.limits.reuses_heads {
            return self.decode(block, false);
        }
        let before = self.decoder.changes();
        if let Some(known) = self.memo.find(block, before) {
            return Ok(known);
        }
        let meaning = self.decode(block, false)?;
        if self.decoder.changes() == before {
            self.memo.keep(block, before, meaning);
        }
        Ok(meaning)
    }

    /// Decodes a header block.
    fn decode(&mut self, block: &[u8], is_trailers: bool) -> Result<Meaning, Fault> {
        let mut reader = HeadReader::new(is_trailers);
        let fields = &mut self.fields;
        if let Some(fields) = fields {
            fields.clear();
        }
        let decoded = self.decoder.decode(block, |name, value| {
            reader.field(name, value);
            if let Some(fields) = fields {
                fields.push((name.to_vec(), value.to_vec()));
            }
        });
        decoded.map_err(|why| Fault { code: ErrorCode::COMPRESSION_ERROR, why })?;
        Ok(reader.finish())
    }

    /// Handles the head of a response (section 8.1).
    #[inline]
    fn head(
        &mut self,
        slot: usize,
        is_end: bool,
        meaning: Meaning,
        out: &mut Vec<u8>,
    ) -> Option<StreamEvent<'static>> {
        let Head { status, length } = match meaning {
            Ok(head) if head.status >= 200 => head,
            Ok(head) => return self.interim(slot, is_end, head.status, out),
            Err(why) => return Some(self.malformed(slot, why, out)),
        };
        let stream = self.streams.at(slot);
        stream.has_head = true;
        // RFC 9110 section 6.4.1: these responses have no content, whatever length they state.
        let is_bodiless = stream.is_head || status == 204 || status == 304;
        stream.length = if is_bodiless { Some(0) } else { length };
        if is_end {
            if stream.length.is_some_and(|length| length > 0) {
                return Some(self.malformed(slot, "less DATA than content-length", out));
            }
            self.state = State::End(slot);
        }
        Some(StreamEvent::Head { tag: stream.tag, status, length, is_end })
    }

    /// Handles an interim response.
    #[cold]
    fn interim(
        &mut self,
        slot: usize,
        is_end: bool,
        status: u16,
        out: &mut Vec<u8>,
    ) -> Option<StreamEvent<'static>> {
        let stream = self.streams.at(slot);
        stream.interim += 1;
        let why = match status {
            // RFC 9113 section 8.6: HTTP/2 has no protocol switching.
            101 => "the server switched protocols (101), which HTTP/2 does not have",
            _ if is_end => "an interim response ends the stream",
            _ if stream.interim > MAX_INTERIM => "over 100 interim responses",
            _ => return None,
        };
        Some(self.malformed(slot, why, out))
    }

    /// Handles trailers (section 8.1).
    #[cold]
    fn trailers(
        &mut self,
        slot: usize,
        is_end: bool,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Step<'static> {
        let meaning = self.decode(block, true)?;
        let stream = self.streams.at(slot);
        let why = match (meaning, stream.length) {
            (Err(why), _) => why,
            _ if !is_end => "trailers that do not end the stream",
            (_, Some(length)) if stream.received < length => "less DATA than content-length",
            _ => {
                self.state = State::End(slot);
                return Ok(None);
            }
        };
        Ok(Some(self.malformed(slot, why, out)))
    }
}

/// Returns the header block fragment in the payload of HEADERS, without padding and priority.
#[cold]
fn fragment<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<&'a [u8], Fault> {
    let (mut fragment, mut padding) = (payload, 0);
    if header.has(flags::PADDED) {
        let (&length, rest) = payload
            .split_first()
            .ok_or(Fault::size("a padded frame without the length of its padding"))?;
        (fragment, padding) = (rest, usize::from(length));
    }
    if header.has(flags::PRIORITY) {
        fragment = fragment.get(5..).ok_or(Fault::size("HEADERS without its priority"))?;
    }
    let length = fragment.len().checked_sub(padding);
    let length = length.ok_or(Fault::protocol("padding that is longer than its frame"))?;
    Ok(&fragment[..length])
}
