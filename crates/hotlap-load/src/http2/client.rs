//! The state machine of one connection.

mod block;
mod control;
mod receive;
mod send;

use super::encode::Form;
use super::event::{Event, Fault, OpenStream};
use super::frame::{self, ErrorCode, FRAME_HEADER, FrameHeader, kind};
use super::hpack::Decoder;
use super::memo::Memo;
use super::settings::{self, Settings};
use super::streams::{Found, MAX_STREAMS, Streams};
use super::window::{self, ReceiveWindow, SendWindow};

/// How many bytes of answers (to PING, SETTINGS and empty DATA) a server may cause beyond the bytes
/// of bodies, until a request is complete. A PING is answered with 17 bytes, so this allows 3855 of
/// them. A server that measures its bandwidth with a PING for each DATA frame stays below.
const MAX_ANSWERS: usize = 64 * 1024;

/// What a caller allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most streams at a time, 1 to 1024; other numbers become the nearest of these.
    pub streams: u32,
    /// The most streams at a time until the server's SETTINGS have arrived. The standard sets no
    /// limit until then (RFC 9113 section 6.5.2), but a server refuses streams above its own limit.
    pub first_streams: u32,
    /// The size that the shared fields of the requests take in the server's header table:
    /// [`EncodedRequests::table_size`](super::EncodedRequests::table_size).
    pub table_size: u32,
    /// Whether the head of a block that has arrived before is reused. Without it, each block is
    /// decoded: the same events, at a higher cost.
    pub reuses_heads: bool,
}

impl Default for Limits {
    /// 100 streams from the start, no shared fields.
    fn default() -> Self {
        Self { streams: 100, first_streams: 100, table_size: 0, reuses_heads: true }
    }
}

/// What the next bytes are.
#[derive(Debug, Clone, Copy)]
enum State {
    /// A frame header.
    Frame,
    /// The rest of a payload that is buffered until it is complete.
    Payload(FrameHeader),
    /// The length of the padding of a DATA frame on the stream in this slot.
    PadLength { slot: usize, header: FrameHeader },
    /// The rest of a DATA frame: `left` bytes of the body, then padding.
    Data { slot: usize, left: u32, padding: u32, is_end: bool },
    /// Bytes of a payload that are ignored.
    Skip(u32),
    /// Nothing yet: the response in this slot is complete.
    End(usize),
    /// Nothing yet: streams above an identifier are refused, from a slot on.
    Refuse { above: u32, from: usize },
    /// Nothing: the connection is broken or closed.
    Broken(Fault),
}

/// A header block that continues in further frames.
#[derive(Debug, Clone, Copy)]
struct OpenBlock {
    stream: u32,
    is_end: bool,
    /// Frames so far, and their bytes.
    frames: u32,
    bytes: u64,
}

/// The protocol on one connection, without a socket: bytes in, events and bytes out.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    state: State,
    /// The part of a frame header that has arrived, if it does not arrive in one piece.
    header: [u8; FRAME_HEADER],
    header_length: usize,
    /// The part of a payload that has arrived, if it does not arrive in one piece.
    payload: Vec<u8>,
    open_block: Option<OpenBlock>,
    /// The fragments of the open block.
    block: Vec<u8>,
    decoder: Decoder,
    memo: Memo,
    streams: Streams,
    settings: Settings,
    has_settings: bool,
    /// The last stream of the last GOAWAY.
    last_stream: Option<u32>,
    /// The debug data of the last GOAWAY, if it is text.
    goaway_text: String,
    receive: ReceiveWindow,
    send: SendWindow,
    /// Whether a request has inserted the shared fields into the server's table.
    has_inserted: bool,
    /// The table size which the next header block must announce.
    table_update: Option<u32>,
    answers: usize,
    /// The fields of the last header block, if they are kept.
    fields: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

/// The result of one step: an event, nothing yet, or a connection error.
type Step<'a> = Result<Option<Event<'a>>, Fault>;

impl Client {
    /// A connection on which nothing has been sent.
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
            receive: ReceiveWindow::new(window::CONNECTION),
            send: SendWindow::new(window::INITIAL),
            has_inserted: false,
            table_update: None,
            answers: 0,
            fields: None,
        }
    }

    /// Keeps the fields of header blocks from now on, for [`fields`](Self::fields). It costs an
    /// allocation for each, and heads are not [reused](Limits::reuses_heads).
    pub fn keep_fields(&mut self) {
        self.limits.reuses_heads = false;
        self.fields = Some(Vec::new());
    }

    /// Names and values of the last header block that arrived, in order, if they are
    /// [kept](Self::keep_fields).
    pub fn fields(&self) -> &[(Vec<u8>, Vec<u8>)] {
        self.fields.as_deref().unwrap_or_default()
    }

    /// Appends what a connection begins with to `out`. Requests may follow at once.
    pub fn open(&mut self, out: &mut Vec<u8>) {
        settings::write_preface(out);
    }

    /// How many further streams can be opened now: up to the caller's limits and the server's. None
    /// can be opened after a GOAWAY, after the end of the connection, and when the identifiers are
    /// used up.
    pub fn can_open(&self) -> usize {
        let is_over = matches!(self.state, State::Broken(_)) || self.last_stream.is_some();
        if is_over || !self.streams.has_identifiers() {
            return 0;
        }
        let limit = self.limits.streams.min(self.settings.max_streams) as usize;
        limit.saturating_sub(self.streams.open_count())
    }

    /// The form in which the next request must be sent.
    pub fn form(&self) -> Form {
        match (self.limits.table_size, self.has_inserted) {
            (0, _) => Form::Plain,
            (size, _) if size > self.settings.header_table_size => Form::Plain,
            (_, false) => Form::First,
            (_, true) => Form::Later,
        }
    }

    /// Whether the server's SETTINGS have arrived: it speaks HTTP/2.
    pub fn has_settings(&self) -> bool {
        self.has_settings
    }

    /// At most 100 characters of the debug data of the last GOAWAY. Empty if the data is not text.
    pub fn goaway_text(&self) -> &str {
        &self.goaway_text
    }

    /// The requests that are not answered completely, in no particular order.
    pub fn open_streams(&self) -> impl Iterator<Item = OpenStream> {
        self.streams.iter()
    }

    /// How many bytes are buffered now: parts of frames and of header blocks. Bodies of responses
    /// are not buffered.
    pub fn buffered(&self) -> usize {
        self.header_length + self.payload.capacity() + self.block.capacity()
    }

    /// The server has closed the connection. The requests that are not answered are still among the
    /// [open streams](Self::open_streams).
    pub fn close(&mut self) {
        if !matches!(self.state, State::Broken(_)) {
            let (code, why) = (ErrorCode::NO_ERROR, "the connection is closed");
            self.state = State::Broken(Fault { code, why });
        }
    }

    /// Gives up a request, if its stream is open: the caller does not wait for the response any
    /// more. Its tag is free.
    pub fn cancel(&mut self, stream: u32, out: &mut Vec<u8>) {
        let Found::Open(slot) = self.streams.find(stream) else { return };
        if matches!(self.state, State::Broken(_)) {
            self.streams.close(slot, true);
        } else {
            self.reset(slot, ErrorCode::CANCEL, out);
        }
    }

    /// Consumes bytes from the front of `input` up to the next event. Answers, and bodies that flow
    /// control held back, are appended to `out`.
    pub fn take<'a>(&mut self, input: &mut &'a [u8], out: &mut Vec<u8>) -> Event<'a> {
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
                    return Event::Broken { code, why };
                }
            };
            match step {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(fault) => self.fail(fault, out),
            }
        }
    }

    /// A connection error: tells the server, and accepts nothing afterwards.
    #[cold]
    fn fail(&mut self, fault: Fault, out: &mut Vec<u8>) {
        // The last stream of the server's that was processed: none.
        let mut payload = [0; 8];
        payload[4..].copy_from_slice(&fault.code.0.to_be_bytes());
        frame::write(out, kind::GOAWAY, 0, 0, &payload);
        self.state = State::Broken(fault);
    }

    /// Ends a stream early; returns its tag.
    #[cold]
    fn reset(&mut self, slot: usize, code: ErrorCode, out: &mut Vec<u8>) -> u32 {
        frame::write_reset(out, self.streams.at(slot).id, code);
        // The rest of its frame is ignored.
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

    /// A stream error: the response is malformed.
    #[cold]
    fn malformed(&mut self, slot: usize, why: &'static str, out: &mut Vec<u8>) -> Event<'static> {
        let tag = self.reset(slot, ErrorCode::PROTOCOL_ERROR, out);
        Event::Malformed { tag, why }
    }

    /// Accounts for bytes that the server causes without answering a request.
    fn answer(&mut self, bytes: usize) -> Result<(), Fault> {
        self.answers += bytes;
        if self.answers > MAX_ANSWERS {
            return Err(Fault::flood("too many frames that answer no request"));
        }
        Ok(())
    }
}
