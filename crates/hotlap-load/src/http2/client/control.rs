//! Receiving frames that control streams and the connection.

use super::{Client, State, Step};
use crate::http2::event::{Event, Fault};
use crate::http2::frame::{self, ErrorCode, FRAME_HEADER, FrameHeader, MAX_31_BITS, flags, kind};
use crate::http2::streams::Found;

impl Client {
    /// Handles SETTINGS (section 6.5).
    pub(super) fn settings(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Step<'static> {
        if header.stream != 0 {
            return Err(Fault::protocol("SETTINGS on a stream"));
        }
        if header.has(flags::ACK) {
            let is_empty = payload.is_empty();
            let fault = Fault::size("an acknowledgement of SETTINGS with a payload");
            return if is_empty { Ok(None) } else { Err(fault) };
        }
        let before = self.settings;
        self.settings.apply(payload, !self.has_settings)?;
        self.has_settings = true;
        self.answer(FRAME_HEADER)?;
        frame::write(out, kind::SETTINGS, flags::ACK, 0, &[]);
        let table = self.settings.header_table_size;
        if table < before.header_table_size {
            // RFC 7541 section 4.2: the next header block confirms it.
            self.table_update = Some(table);
        }
        let by = i64::from(self.settings.initial_window) - i64::from(before.initial_window);
        if by != 0 {
            if !self.streams.change_windows(by) {
                return Err(Fault::flow("SETTINGS make a window larger than 2^31 - 1"));
            }
            self.send_bodies(out);
        }
        Ok(None)
    }

    /// Handles PING (section 6.7).
    pub(super) fn ping(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Step<'static> {
        if header.stream != 0 {
            return Err(Fault::protocol("PING on a stream"));
        }
        if payload.len() != 8 {
            return Err(Fault::size("PING is not 8 bytes long"));
        }
        if !header.has(flags::ACK) {
            self.answer(FRAME_HEADER + payload.len())?;
            frame::write(out, kind::PING, flags::ACK, 0, payload);
        }
        Ok(None)
    }

    /// Handles WINDOW_UPDATE (section 6.9).
    pub(super) fn window_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Step<'static> {
        let increment = number(payload, "WINDOW_UPDATE is not 4 bytes long")? & MAX_31_BITS;
        if header.stream == 0 {
            if increment == 0 {
                return Err(Fault::protocol("WINDOW_UPDATE by 0 on the connection"));
            }
            if !self.send.change(i64::from(increment)) {
                return Err(Fault::flow("the window of the connection is over 2^31 - 1"));
            }
            self.send_bodies(out);
            return Ok(None);
        }
        match self.streams.find(header.stream) {
            Found::Open(slot) if increment == 0 => {
                Ok(Some(self.malformed(slot, "WINDOW_UPDATE by 0", out)))
            }
            Found::Open(slot) => {
                if self.streams.at(slot).send.change(i64::from(increment)) {
                    self.send_body(slot, out);
                    return Ok(None);
                }
                let tag = self.reset(slot, ErrorCode::FLOW_CONTROL_ERROR, out);
                let why = "the window of a stream is over 2^31 - 1";
                Ok(Some(Event::Malformed { tag, why }))
            }
            Found::Abandoned | Found::Closed => Ok(None),
            Found::Idle => Err(Fault::protocol("WINDOW_UPDATE on a stream without a request")),
        }
    }

    /// Handles RST_STREAM (section 6.4).
    pub(super) fn rst_stream(&mut self, header: FrameHeader, payload: &[u8]) -> Step<'static> {
        let code = ErrorCode(number(payload, "RST_STREAM is not 4 bytes long")?);
        match self.streams.find(header.stream) {
            Found::Open(slot) => {
                let tag = self.streams.close(slot, false);
                Ok(Some(Event::Reset { tag, code }))
            }
            Found::Abandoned | Found::Closed => Ok(None),
            Found::Idle => Err(Fault::protocol("RST_STREAM on a stream without a request")),
        }
    }

    /// Handles GOAWAY (section 6.8).
    pub(super) fn goaway(&mut self, header: FrameHeader, payload: &[u8]) -> Step<'static> {
        if header.stream != 0 {
            return Err(Fault::protocol("GOAWAY on a stream"));
        }
        let Some(([last, code], _)) = payload.as_chunks::<4>().0.split_first_chunk::<2>() else {
            return Err(Fault::size("GOAWAY is shorter than 8 bytes"));
        };
        let last_stream = u32::from_be_bytes(*last) & MAX_31_BITS;
        if self.last_stream.is_some_and(|before| last_stream > before) {
            return Err(Fault::protocol("a second GOAWAY with a higher last stream"));
        }
        self.last_stream = Some(last_stream);
        let text = str::from_utf8(&payload[8..]).unwrap_or_default();
        self.goaway_text = text.chars().filter(|c| !c.is_control()).take(100).collect();
        self.state = State::Refuse { above: last_stream, from: 0 };
        Ok(Some(Event::GoAway { last_stream, code: ErrorCode(u32::from_be_bytes(*code)) }))
    }

    /// Reports the next stream that the server refuses.
    pub(super) fn refuse(&mut self, above: u32, from: usize) -> Option<Event<'static>> {
        let Some(slot) = self.streams.next_above(above, from) else {
            self.state = State::Frame;
            return None;
        };
        self.state = State::Refuse { above, from: slot + 1 };
        // Frames that the server sent before it changed its mind may follow.
        Some(Event::Refused { tag: self.streams.close(slot, true) })
    }
}

/// The number in a payload of four bytes.
fn number(payload: &[u8], wrong_size: &'static str) -> Result<u32, Fault> {
    let bytes = payload.try_into().map_err(|_| Fault::size(wrong_size))?;
    Ok(u32::from_be_bytes(bytes))
}
