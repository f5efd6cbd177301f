//! Receiving header blocks: heads, interim responses and trailers.

use super::{Client, OpenBlock, State, Step};
use crate::http2::event::{Event, Fault};
use crate::http2::frame::{ErrorCode, FRAME_HEADER, FrameHeader, flags};
use crate::http2::head::{Head, HeadReader};
use crate::http2::memo::Meaning;
use crate::http2::settings::HEADER_LIST;
use crate::http2::streams::Found;

/// The most frames of a header block. 64 KiB fit into four; some servers use smaller ones.
const MAX_FRAMES: u32 = 64;

/// The most interim responses before a final one. Servers send one or two.
const MAX_INTERIM: u8 = 100;

impl Client {
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
            // The table must stay that of the server (section 4.3).
            Found::Abandoned => self.decode(block, true).map(|_| None),
            Found::Closed => {
                let (code, why) = (ErrorCode::STREAM_CLOSED, "HEADERS on a stream that has ended");
                Err(Fault { code, why })
            }
            Found::Idle => Err(Fault::protocol("HEADERS on a stream without a request")),
        }
    }

    /// What a header block means: known from before, or decoded.
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
    ) -> Option<Event<'static>> {
        let Head { status, length } = match meaning {
            Ok(head) if head.status >= 200 => head,
            Ok(head) => return self.interim(slot, is_end, head.status, out),
            Err(why) => return Some(self.malformed(slot, why, out)),
        };
        let stream = self.streams.at(slot);
        stream.has_head = true;
        // RFC 9110 section 6.4.1: these have no content, whatever length they state.
        let is_bodiless = stream.is_head || status == 204 || status == 304;
        stream.length = if is_bodiless { Some(0) } else { length };
        if is_end {
            if stream.length.is_some_and(|length| length > 0) {
                return Some(self.malformed(slot, "less DATA than content-length", out));
            }
            self.state = State::End(slot);
        }
        Some(Event::Head { tag: stream.tag, status, length, is_end })
    }

    /// Handles an interim response.
    #[cold]
    fn interim(
        &mut self,
        slot: usize,
        is_end: bool,
        status: u16,
        out: &mut Vec<u8>,
    ) -> Option<Event<'static>> {
        let stream = self.streams.at(slot);
        stream.interim += 1;
        let why = match status {
            // Section 8.6.
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

/// The header block fragment within the payload of HEADERS, without padding and priority.
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
