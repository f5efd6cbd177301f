//! The state machine of one HTTP/2 connection.

mod receive;

use super::encode::BlockForm;
use super::frame::{
    self, CONNECTION_WINDOW, ErrorCode, FRAME_HEADER, Fault, FrameHeader, INITIAL_WINDOW,
    MAX_31_BITS, Settings, flags, kind, write_preface,
};
use super::head::Memo;
use super::hpack::{Decoder, write_integer};
use super::streams::{Found, MAX_STREAMS, OpenStream, ReceiveWindow, SendWindow, Streams};

/// The maximum number of bytes of replies to PING and SETTINGS, and of empty DATA frames, until a
/// response is complete. Bytes of bodies are subtracted from the count. A reply to a PING has 17
/// bytes, so 3855 of them are allowed. A server that measures its bandwidth with a PING for each
/// DATA frame stays below the limit.
const MAX_ANSWERS: usize = 64 * 1024;

/// The limits that the caller sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of streams at a time, from 1 to 1024. Numbers outside of this range are
    /// clamped.
    pub streams: u32,
    /// The maximum number of streams at a time until the server's SETTINGS have arrived. The
    /// standard sets no limit until then (RFC 9113 section 6.5.2), but a server refuses streams
    /// above its own limit.
    pub first_streams: u32,
    /// The size of the requests' shared fields in the server's header table, from
    /// [`EncodedRequests::table_size`](super::EncodedRequests::table_size).
    pub table_size: u32,
    /// Whether the head of a block that has arrived before is reused. Otherwise each block is
    /// decoded, which gives the same events at a higher cost.
    pub reuses_heads: bool,
}

impl Default for Limits {
    /// Returns limits of 100 streams from the start, without shared fields.
    fn default() -> Self {
        Self { streams: 100, first_streams: 100, table_size: 0, reuses_heads: true }
    }
}

/// What the connection reads next.
#[derive(Debug, Clone, Copy)]
enum State {
    /// A frame header.
    Frame,
    /// The rest of a payload, which is buffered until it is complete.
    Payload(FrameHeader),
    /// The length of the padding of a DATA frame, whose stream is in this slot.
    PadLength { slot: usize, header: FrameHeader },
    /// The rest of a DATA frame: `left` bytes of the body, then the padding.
    Data { slot: usize, left: u32, padding: u32, is_end: bool },
    /// Bytes of a payload that are ignored.
    Skip(u32),
    /// Nothing yet, because the response in this slot is complete.
    End(usize),
    /// Nothing yet, because streams above an identifier are refused, starting at a slot.
    Refuse { above: u32, from: usize },
    /// Nothing, because the connection is broken or closed.
    Broken(Fault),
}

/// A header block that continues in further frames.
#[derive(Debug, Clone, Copy)]
struct OpenBlock {
    stream: u32,
    is_end: bool,
    /// The number of frames so far.
    frames: u32,
    /// The number of bytes of the frames so far.
    bytes: u64,
}

/// The protocol on one connection, without a socket. Bytes go in, and events and bytes come out.
#[derive(Debug)]
pub struct ClientConnection {
    limits: Limits,
    state: State,
    /// The part of an incomplete frame header that has arrived.
    header: [u8; FRAME_HEADER],
    header_length: usize,
    /// The part of an incomplete payload that has arrived.
    payload: Vec<u8>,
    open_block: Option<OpenBlock>,
    /// The fragments of the open block.
    block: Vec<u8>,
    decoder: Decoder,
    memo: Memo,
    streams: Streams,
    settings: Settings,
    has_settings: bool,
    /// The last stream in the last GOAWAY.
    last_stream: Option<u32>,
    /// The debug data of the last GOAWAY, if it is text.
    goaway_text: String,
    receive: ReceiveWindow,
    send: SendWindow,
    /// Whether a request has inserted the shared fields into the server's table.
    has_inserted: bool,
    /// The table size that the next header block must announce.
    table_update: Option<u32>,
    answers: usize,
    /// The fields of the last header block, if the caller keeps them.
    fields: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

/// The result of one step: an event, no event yet, or a connection error.
type Step<'a> = Result<Option<StreamEvent<'a>>, Fault>;

impl ClientConnection {
    /// Creates a connection on which nothing has been sent.
    pub fn new(limits: Limits) -> Self {
        let streams = limits.streams.clamp(1, MAX_STREAMS);
        Self {
            limits: Limits { streams, ..limits },
            state: State::Frame,
            header: [0; FRAME_HEADER],
            header_length: 0,
            payload: Vec::new(),
            open_block: None,
            block: Vec::new(),
            decoder: Decoder::default(),
            memo: Memo::default(),
            streams: Streams::new(streams),
            settings: Settings { max_streams: limits.first_streams, ..Settings::default() },
            has_settings: false,
            last_stream: None,
            goaway_text: String::new(),
            receive: ReceiveWindow::new(CONNECTION_WINDOW),
            send: SendWindow::new(INITIAL_WINDOW),
            has_inserted: false,
            table_update: None,
            answers: 0,
            fields: None,
        }
    }

    /// Keeps the fields of header blocks from now on, for [`fields`](Self::fields). Keeping a field
    /// costs allocations, and heads are not [reused](Limits::reuses_heads) any more.
    pub fn keep_fields(&mut self) {
        self.limits.reuses_heads = false;
        self.fields = Some(Vec::new());
    }

    /// Returns the names and values of the last header block that arrived, in order. The result is
    /// empty unless the fields are [kept](Self::keep_fields).
    pub fn fields(&self) -> &[(Vec<u8>, Vec<u8>)] {
        self.fields.as_deref().unwrap_or_default()
    }

    /// Appends the preface of the connection to `out`. Requests may follow at once.
    pub fn open(&mut self, out: &mut Vec<u8>) {
        write_preface(out);
    }

    /// Returns the number of further streams that can be opened now, up to the caller's limits and
    /// the server's. The number is 0 after a GOAWAY, after the end of the connection, and when the
    /// identifiers are used up.
    pub fn can_open(&self) -> usize {
        let is_over = matches!(self.state, State::Broken(_)) || self.last_stream.is_some();
        if is_over || !self.streams.has_identifiers() {
            return 0;
        }
        let limit = self.limits.streams.min(self.settings.max_streams) as usize;
        limit.saturating_sub(self.streams.open_count())
    }

    /// Returns whether an identifier is left for a further stream.
    pub fn has_identifiers(&self) -> bool {
        self.streams.has_identifiers()
    }

    /// Uses up all identifiers of streams except one.
    #[cfg(test)]
    pub(crate) fn skip_identifiers(&mut self) {
        self.streams.skip_identifiers();
    }

    /// Returns the form in which the next request must be sent.
    pub fn form(&self) -> BlockForm {
        match (self.limits.table_size, self.has_inserted) {
            (0, _) => BlockForm::Plain,
            (size, _) if size > self.settings.header_table_size => BlockForm::Plain,
            (_, false) => BlockForm::First,
            (_, true) => BlockForm::Later,
        }
    }

    /// Returns whether the server's SETTINGS have arrived, which shows that the server speaks
    /// HTTP/2.
    pub fn has_settings(&self) -> bool {
        self.has_settings
    }

    /// Returns at most 100 characters of the debug data of the last GOAWAY. The result is empty if
    /// the data is not text.
    pub fn goaway_text(&self) -> &str {
        &self.goaway_text
    }

    /// Returns the requests without a complete response, in no particular order.
    pub fn open_streams(&self) -> impl Iterator<Item = OpenStream> {
        self.streams.iter()
    }

    /// Returns the size of the buffers in bytes. Only parts of frames and of header blocks are
    /// buffered, not the bodies of responses.
    pub fn buffered(&self) -> usize {
        self.header_length + self.payload.capacity() + self.block.capacity()
    }

    /// Handles a close by the server. Unanswered requests stay among the [open
    /// streams](Self::open_streams).
    pub fn close(&mut self) {
        if !matches!(self.state, State::Broken(_)) {
            let (code, why) = (ErrorCode::NO_ERROR, "the connection is closed");
            self.state = State::Broken(Fault { code, why });
        }
    }

    /// Gives up a request if its stream is open. The caller may use the tag again.
    pub fn cancel(&mut self, stream: u32, out: &mut Vec<u8>) {
        let Found::Open(slot) = self.streams.find(stream) else { return };
        if matches!(self.state, State::Broken(_)) {
            self.streams.close(slot, true);
        } else {
            self.reset(slot, ErrorCode::CANCEL, out);
        }
    }

    /// Consumes bytes from the front of `input` up to the next event. Replies to frames, and bodies
    /// that flow control held back, are appended to `out`.
    #[inline]
    pub fn take<'a>(&mut self, input: &mut &'a [u8], out: &mut Vec<u8>) -> StreamEvent<'a> {
        loop {
            let step = match self.state {
                State::Frame => self.frame(input, out),
                State::Data { slot, left, padding, is_end } => {
                    Ok(self.data(input, slot, left, padding, is_end))
                }
                State::End(slot) => Ok(Some(self.end(slot, out))),
                State::Payload(header) => self.payload(header, input, out),
                State::PadLength { slot, header } => self.pad_length(slot, header, input, out),
                State::Skip(left) => Ok(self.skip(left, input)),
                State::Refuse { above, from } => Ok(self.refuse(above, from)),
                State::Broken(Fault { code, why }) => {
                    *input = &[];
                    return StreamEvent::Broken { code, why };
                }
            };
            match step {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(fault) => self.fail(fault, out),
            }
        }
    }

    /// Handles a connection error: tells the server, and accepts nothing afterwards.
    #[cold]
    fn fail(&mut self, fault: Fault, out: &mut Vec<u8>) {
        // The payload starts with the last of the server's streams that was processed, 0 for none.
        let mut payload = [0; 8];
        payload[4..].copy_from_slice(&fault.code.0.to_be_bytes());
        frame::write(out, kind::GOAWAY, 0, 0, &payload);
        self.state = State::Broken(fault);
    }

    /// Ends a stream early. Returns the tag of the request.
    #[cold]
    fn reset(&mut self, slot: usize, code: ErrorCode, out: &mut Vec<u8>) -> u32 {
        frame::write_reset(out, self.streams.at(slot).id, code);
        // The rest of the stream's frame is ignored.
        match self.state {
            State::Data { slot: current, left, padding, .. } if current == slot => {
                self.state = State::Skip(left + padding);
            }
            State::PadLength { slot: current, header } if current == slot => {
                self.state = State::Skip(header.length);
            }
            State::End(current) if current == slot => self.state = State::Frame,
            _ => {}
        }
        self.streams.close(slot, true)
    }

    /// Handles a stream error, which means that the response is malformed.
    #[cold]
    fn malformed(
        &mut self,
        slot: usize,
        why: &'static str,
        out: &mut Vec<u8>,
    ) -> StreamEvent<'static> {
        let tag = self.reset(slot, ErrorCode::PROTOCOL_ERROR, out);
        StreamEvent::Malformed { tag, why }
    }

    /// Adds to the bytes that [`MAX_ANSWERS`] limits. Returns an error if there are too many.
    fn answer(&mut self, bytes: usize) -> Result<(), Fault> {
        self.answers += bytes;
        if self.answers > MAX_ANSWERS {
            return Err(Fault::flood("too many SETTINGS, PING or empty DATA frames"));
        }
        Ok(())
    }
}

/// An event of a [`ClientConnection`](super::ClientConnection). `tag` is the number that the caller
/// gave to the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEvent<'a> {
    /// All bytes are consumed, and nothing else has happened.
    NeedMore,
    /// The head of a final response. Interim responses are checked and skipped.
    Head {
        /// The tag of the request.
        tag: u32,
        /// The status code.
        status: u16,
        /// The value of `content-length`. In a response to a HEAD, the length that the body of a
        /// GET would have.
        length: Option<u64>,
        /// Whether the response ends here. If so, [`StreamEvent::End`] is the next event.
        is_end: bool,
    },
    /// At least one byte of a body. A body never exceeds the length that the head stated.
    Data {
        /// The tag of the request.
        tag: u32,
        /// The bytes of the body.
        data: &'a [u8],
    },
    /// The response is complete and valid. The tag may be used again.
    End {
        /// The tag of the request.
        tag: u32,
        /// The number of bytes of the response's frames on the wire: headers, bodies, padding and
        /// interim responses.
        bytes: u64,
    },
    /// The server ended the stream before the response was complete. The tag may be used again.
    Reset {
        /// The tag of the request.
        tag: u32,
        /// The server's reason for the reset.
        code: ErrorCode,
    },
    /// The server accepts no further requests on this connection. A [`StreamEvent::Refused`]
    /// follows for each request that the server will not answer. The other requests may still be
    /// answered.
    GoAway {
        /// The last stream that the server may have processed.
        last_stream: u32,
        /// The server's reason for ending the connection.
        code: ErrorCode,
    },
    /// The server did not process this request. The tag may be used again.
    Refused {
        /// The tag of the request.
        tag: u32,
    },
    /// The response is malformed, or its stream violates the protocol (RFC 9113 sections 5.4.2 and
    /// 8.1.1). The stream was reset, and the connection continues. The tag may be used again.
    Malformed {
        /// The tag of the request.
        tag: u32,
        /// The reason why the response is malformed.
        why: &'static str,
    },
    /// The server violated the protocol, and the connection cannot be used any more (RFC 9113
    /// section 5.4.1). All further calls return this event again.
    Broken {
        /// The code that was sent to the server.
        code: ErrorCode,
        /// The reason why the connection cannot be used any more.
        why: &'static str,
    },
}

impl ClientConnection {
    /// Handles SETTINGS (section 6.5).
    fn settings(
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
            // RFC 7541 section 4.2: the next header block must confirm the smaller size.
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
    fn ping(&mut self, header: FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Step<'static> {
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
    fn window_update(
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
                Ok(Some(StreamEvent::Malformed { tag, why }))
            }
            Found::Abandoned | Found::Closed => Ok(None),
            Found::Idle => Err(Fault::protocol("WINDOW_UPDATE on a stream without a request")),
        }
    }

    /// Handles RST_STREAM (section 6.4).
    fn rst_stream(&mut self, header: FrameHeader, payload: &[u8]) -> Step<'static> {
        let code = ErrorCode(number(payload, "RST_STREAM is not 4 bytes long")?);
        match self.streams.find(header.stream) {
            Found::Open(slot) => {
                let tag = self.streams.close(slot, false);
                Ok(Some(StreamEvent::Reset { tag, code }))
            }
            Found::Abandoned | Found::Closed => Ok(None),
            Found::Idle => Err(Fault::protocol("RST_STREAM on a stream without a request")),
        }
    }

    /// Handles GOAWAY (section 6.8).
    fn goaway(&mut self, header: FrameHeader, payload: &[u8]) -> Step<'static> {
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
        Ok(Some(StreamEvent::GoAway { last_stream, code: ErrorCode(u32::from_be_bytes(*code)) }))
    }

    /// Reports the next request that the server refuses.
    fn refuse(&mut self, above: u32, from: usize) -> Option<StreamEvent<'static>> {
        let Some(slot) = self.streams.next_above(above, from) else {
            self.state = State::Frame;
            return None;
        };
        self.state = State::Refuse { above, from: slot + 1 };
        // Frames that the server sent before the GOAWAY may still arrive for the stream.
        Some(StreamEvent::Refused { tag: self.streams.close(slot, true) })
    }
}

/// Returns the number in a payload of four bytes.
fn number(payload: &[u8], wrong_size: &'static str) -> Result<u32, Fault> {
    let bytes = payload.try_into().map_err(|_| Fault::size(wrong_size))?;
    Ok(u32::from_be_bytes(bytes))
}

impl ClientConnection {
    /// Sends a request: appends its frames to `out`. If flow control holds back a part of the body,
    /// [`take`](Self::take) appends that part later. `block` is the header block in the
    /// form that [`Self::form`] returns, and `is_head` says whether the request is a HEAD. Returns
    /// the stream, or `None` if [none can be opened](Self::can_open).
    #[inline]
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
        self.has_inserted |= form == BlockForm::First;
        let end = if body.is_empty() { flags::END_STREAM } else { 0 };
        let mut updated = Vec::new();
        let block = match self.table_update.take() {
            None => block,
            Some(size) => {
                // RFC 7541 section 6.3: the bits 001, then the size with a prefix of 5 bits.
                write_integer(&mut updated, 0x20, 5, size as usize);
                updated.extend_from_slice(block);
                &updated
            }
        };
        self.send_block(id, block, end, out);
        if !body.is_empty() {
            self.send_new_body(slot, body, out);
        }
        Some(id)
    }

    /// Appends a HEADERS frame, and CONTINUATION frames if the block is longer than the server's
    /// frames. `end` is END_STREAM if no body follows, and 0 otherwise.
    #[inline]
    fn send_block(&self, id: u32, block: &[u8], end: u8, out: &mut Vec<u8>) {
        let (mut kind, mut flags, mut rest) = (kind::HEADERS, end, block);
        loop {
            let size = rest.len().min(self.settings.max_frame as usize);
            let (part, after) = rest.split_at(size);
            if after.is_empty() {
                return frame::write(out, kind, flags | flags::END_HEADERS, id, part);
            }
            frame::write(out, kind, flags, id, part);
            (kind, flags, rest) = (kind::CONTINUATION, 0, after);
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

    /// Sends as much of a body as the windows allow. Returns the number of bytes sent.
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

    /// Sends more of a request body that was held back.
    fn send_body(&mut self, slot: usize, out: &mut Vec<u8>) {
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

    /// Sends more of all request bodies that were held back.
    fn send_bodies(&mut self, out: &mut Vec<u8>) {
        let mut from = 0;
        while self.streams.sending > 0 && self.send.available() > 0 {
            let Some(slot) = self.streams.next_sending(from) else { break };
            self.send_body(slot, out);
            from = slot + 1;
        }
    }
}
