//! Sending requests.

use super::Client;
use crate::http2::encode::Form;
use crate::http2::frame::{self, flags, kind};
use crate::http2::hpack::write_integer;

impl Client {
    /// Sends a request: appends its frames to `out`, except for the part of the body that flow
    /// control holds back, which [`take`](Self::take) appends later. `block` is the header block in
    /// the [form](Self::form) that is due; `is_head` says that it is a HEAD. Returns the stream, or
    /// `None` if [none can be opened](Self::can_open).
    pub fn request(
        &mut self,
        tag: u32,
        block: &[u8],
        body: &[u8],
        is_head: bool,
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        if self.can_open() == 0 {
            return None;
        }
        let form = self.form();
        let slot = self.streams.open(tag, is_head, self.settings.initial_window)?;
        let id = self.streams.at(slot).id;
        self.has_inserted |= form == Form::First;
        let end = if body.is_empty() { flags::END_STREAM } else { 0 };
        match self.table_update.take() {
            None => self.send_block(id, block, end, out),
            Some(size) => {
                // RFC 7541 section 6.3: 001, then the size with a prefix of 5 bits.
                let mut updated = Vec::new();
                write_integer(&mut updated, 0x20, 5, size as usize);
                updated.extend_from_slice(block);
                self.send_block(id, &updated, end, out);
            }
        }
        if !body.is_empty() {
            self.send_new_body(slot, body, out);
        }
        Some(id)
    }

    /// Appends HEADERS, and CONTINUATION if the block is longer than the server's frames.
    fn send_block(&self, id: u32, block: &[u8], end: u8, out: &mut Vec<u8>) {
        let size = self.settings.max_frame as usize;
        if block.len() <= size {
            frame::write(out, kind::HEADERS, end | flags::END_HEADERS, id, block);
            return;
        }
        let (first, rest) = block.split_at(size);
        frame::write(out, kind::HEADERS, end, id, first);
        let last = rest.len().div_ceil(size) - 1;
        for (number, part) in rest.chunks(size).enumerate() {
            let end = if number == last { flags::END_HEADERS } else { 0 };
            frame::write(out, kind::CONTINUATION, end, id, part);
        }
    }

    /// Sends the body of a new request, and keeps the part that flow control holds back.
    fn send_new_body(&mut self, slot: usize, body: &[u8], out: &mut Vec<u8>) {
        let sent = self.send_data(slot, body, out);
        if sent < body.len() {
            self.streams.at(slot).body.extend_from_slice(&body[sent..]);
            self.streams.sending += 1;
        }
    }

    /// Sends of a body what the windows allow; returns how much.
    fn send_data(&mut self, slot: usize, body: &[u8], out: &mut Vec<u8>) -> usize {
        let size = self.settings.max_frame as usize;
        let stream = self.streams.at(slot);
        let mut rest = body;
        while !rest.is_empty() {
            let window = self.send.available().min(stream.send.available());
            let count = window.min(size).min(rest.len());
            if count == 0 {
                break;
            }
            let (part, after) = rest.split_at(count);
            rest = after;
            self.send.take(count);
            stream.send.take(count);
            let end = if rest.is_empty() { flags::END_STREAM } else { 0 };
            frame::write(out, kind::DATA, end, stream.id, part);
        }
        let sent = body.len() - rest.len();
        self.answers = self.answers.saturating_sub(sent);
        sent
    }

    /// Sends more of a body that was held back.
    pub(super) fn send_body(&mut self, slot: usize, out: &mut Vec<u8>) {
        let stream = self.streams.at(slot);
        if !stream.is_sending() {
            return;
        }
        let (body, before) = (std::mem::take(&mut stream.body), stream.sent);
        let sent = self.send_data(slot, &body[before..], out);
        let stream = self.streams.at(slot);
        (stream.body, stream.sent) = (body, before + sent);
        if !stream.is_sending() {
            stream.body.clear();
            stream.sent = 0;
            self.streams.sending -= 1;
        }
    }

    /// Sends more of all bodies that were held back.
    pub(super) fn send_bodies(&mut self, out: &mut Vec<u8>) {
        let mut from = 0;
        while self.streams.sending > 0 && self.send.available() > 0 {
            let Some(slot) = self.streams.next_sending(from) else { break };
            self.send_body(slot, out);
            from = slot + 1;
        }
    }
}
