//! One connection of the verifier: blocking, with every wait bounded.
//!
//! It is deliberately separate from the generator's connections: those are built for speed and give
//! up at the first wrong byte; this one describes in words what it received.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotlap_load::http::{Framing, GrowingResponse, KeepBody};
use hotlap_load::http2::{BlockForm, ClientConnection, ErrorCode, Limits, StreamEvent, encode};
use hotlap_load::plan::{Endpoint, Protocol, Request, Target};
use hotlap_load::tls::{TlsConfig, TlsConnection};

use crate::contract::{Body, Content, Exchange, Response, quoted, quoted_part};
use crate::interrupt;

/// The largest response that the verifier accepts.
const ANSWER_LIMIT: usize = 64 << 20;

/// Why a response is not read to its end.
fn too_large() -> String {
    format!("a response of over {} MiB", ANSWER_LIMIT >> 20)
}

pub struct Wire {
    stream: Stream,
    channel: Option<Box<TlsConnection>>,
    limit: Duration,
    /// What is wrong with the TLS data received.
    fault: Option<String>,
    /// Received but not consumed.
    buf: Vec<u8>,
    /// The server sends no more: it closed or reset the connection, or ended the TLS session.
    pub over: bool,
    /// Why a response delimited by the end of the connection may be truncated, if it may.
    cut: Option<&'static str>,
    /// A head had lines that end in a bare LF; they were accepted like CRLF.
    pub bare_lf: bool,
    /// The state of HTTP/2, if that is the protocol.
    http2: Option<Conversation>,
}

/// Why there is no connection over which to ask.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The server did not accept it, or sent nothing.
    #[error("{0}")]
    Silent(String),
    /// The server speaks another protocol. Waiting does not change that.
    #[error("{0}")]
    OtherProtocol(String),
}

impl From<OpenError> for String {
    fn from(error: OpenError) -> Self {
        error.to_string()
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(piece),
            Self::Unix(stream) => stream.read(piece),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
        }
    }

    fn wait_at_most(&self, limit: Duration) -> io::Result<()> {
        // A timeout of zero would mean none.
        let limit = Some(limit.max(Duration::from_millis(1)));
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(limit),
            Self::Unix(stream) => stream.set_read_timeout(limit),
        }
    }
}

impl Wire {
    /// Connects, and begins with HTTP/2 if that is the protocol. Each later wait takes at most
    /// `limit`.
    pub fn open(target: &Target, limit: Duration) -> Result<Self, OpenError> {
        let mut wire = Self::open_bare(target, limit)?;
        if target.protocol == Protocol::Http2 {
            let mut out = Vec::new();
            wire.http2 = Some(Conversation::begin(&mut out));
            wire.send(&out).map_err(OpenError::Silent)?;
        }
        Ok(wire)
    }

    /// Connects, and leaves the protocol to the caller. Each later wait takes at most `limit`.
    pub(super) fn open_bare(target: &Target, limit: Duration) -> Result<Self, OpenError> {
        let failed = |error: io::Error| OpenError::Silent(format!("no connection: {error}"));
        let stream = match &target.endpoint {
            Endpoint::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, limit).map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                stream.set_write_timeout(Some(limit)).map_err(failed)?;
                Stream::Tcp(stream)
            }
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path).map_err(failed)?;
                stream.set_write_timeout(Some(limit)).map_err(failed)?;
                Stream::Unix(stream)
            }
        };
        let tls = TlsConfig::of(target).map_err(|error| OpenError::Silent(error.to_string()))?;
        let channel = tls.and_then(|tls| tls.connect());
        let mut wire = Self {
            stream,
            channel,
            limit,
            fault: None,
            buf: Vec::new(),
            over: false,
            cut: None,
            bare_lf: false,
            http2: None,
        };
        wire.handshake()?;
        let speaks_it = |channel: &TlsConnection| channel.speaks_http2();
        if target.protocol == Protocol::Http2 && !wire.channel.as_deref().is_none_or(speaks_it) {
            let what = "the server does not offer HTTP/2 (ALPN h2)";
            return Err(OpenError::OtherProtocol(what.to_owned()));
        }
        Ok(wire)
    }

    fn handshake(&mut self) -> Result<(), OpenError> {
        let until = Instant::now() + self.limit;
        let failed = |why: &str| format!("the TLS handshake failed: {why}");
        while self.channel.as_ref().is_some_and(|channel| channel.is_handshaking()) {
            self.flush().map_err(OpenError::Silent)?;
            if !self.fill(until) || self.over {
                return Err(match self.fault.take() {
                    Some(why) => OpenError::OtherProtocol(failed(&why)),
                    None => OpenError::Silent(failed(
                        "the server sent nothing: does this port speak https?",
                    )),
                });
            }
        }
        self.flush().map_err(OpenError::Silent)
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        match &mut self.channel {
            Some(channel) => channel.send(bytes)?,
            None => return self.write(bytes),
        }
        self.flush()
    }

    /// Sends pending TLS data.
    fn flush(&mut self) -> Result<(), String> {
        let mut sealed = Vec::new();
        if let Some(channel) = &mut self.channel {
            channel.drain(&mut sealed);
        }
        self.write(&sealed)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                "the connection was closed before the request was sent".to_owned()
            }
            _ => format!("the request could not be sent: {error}"),
        })
    }

    /// Reads once, waiting until `until` at most. Returns whether something changed.
    fn fill(&mut self, until: Instant) -> bool {
        let mut piece = [0; 16 << 10];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.over || left.is_zero() || self.stream.wait_at_most(left).is_err() {
                return false;
            }
            match self.stream.read(&mut piece) {
                Ok(0) => {
                    self.over = true;
                    self.cut = self.channel.as_ref().map(|_| "ended without TLS's close_notify");
                }
                Ok(length) => match &mut self.channel {
                    Some(channel) => {
                        let read = channel.receive(&piece[..length], &mut self.buf);
                        // After close_notify the server sends no more, whether or not it closes the
                        // TCP connection (RFC 8446 section 6.1).
                        self.over = read.is_err() || channel.peer_has_closed();
                        self.cut = read.is_err().then_some("ended with a TLS error");
                        self.fault = read.err();
                    }
                    None => self.buf.extend_from_slice(&piece[..length]),
                },
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                        continue;
                    }
                    _ => {
                        self.over = true;
                        self.cut = Some("was reset");
                    }
                },
            }
            return true;
        }
    }

    /// Sends a request and returns the response.
    pub fn ask(&mut self, exchange: &Exchange, host: &str) -> Result<Response, String> {
        let body = exchange.content.compared();
        self.ask_into(body, exchange, host, &AtomicBool::new(false))
    }

    /// Sends a request and returns the response, whose body is collected in `body`. Stops waiting
    /// once `stop` is set.
    pub fn ask_into(
        &mut self,
        body: Body,
        exchange: &Exchange,
        host: &str,
        stop: &AtomicBool,
    ) -> Result<Response, String> {
        if let Some(mut conversation) = self.http2.take() {
            let answer = self.converse(&mut conversation, body, exchange, host, stop);
            self.http2 = Some(conversation);
            return answer;
        }
        self.send(&exchange.bytes(host))?;
        self.answer_unless(exchange.is_head(), body, stop)
    }

    /// Sends a request in HTTP/2 and returns the response, or stops waiting once `stop` is set.
    fn converse(
        &mut self,
        conversation: &mut Conversation,
        body: Body,
        exchange: &Exchange,
        host: &str,
        stop: &AtomicBool,
    ) -> Result<Response, String> {
        let scheme = if self.channel.is_some() { "https" } else { "http" };
        let mut out = Vec::new();
        conversation.request(body, exchange, host, scheme, &mut out)?;
        self.send(&out)?;
        let until = Instant::now() + self.limit;
        loop {
            out.clear();
            let read = conversation.read(&mut self.buf, &mut out);
            // If answers to the server's own frames cannot be sent, the next read fails.
            let _ = self.send(&out);
            if let Some(answer) = read? {
                return Ok(answer);
            }
            if self.over {
                return Err(match conversation.has_settings() {
                    true => "the connection closed before the response was complete".to_owned(),
                    false => "the connection closed without a frame of HTTP/2".to_owned(),
                });
            }
            let is_changed = self.fill(until.min(Instant::now() + interrupt::LOOK));
            if !is_changed && !self.over && stop.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            if !is_changed && !self.over && Instant::now() >= until {
                return Err(format!("no complete response within {} s", self.limit.as_secs_f64()));
            }
        }
    }

    /// Receives one response to a request that expects this content.
    pub fn answer(&mut self, is_head: bool, expected: &Content) -> Result<Response, String> {
        self.answer_unless(is_head, expected.compared(), &AtomicBool::new(false))
    }

    /// Receives one response, whose body is collected in `body`. Stops waiting once `stop` is set.
    fn answer_unless(
        &mut self,
        is_head: bool,
        body: Body,
        stop: &AtomicBool,
    ) -> Result<Response, String> {
        let until = Instant::now() + self.limit;
        let mut response = GrowingResponse::into(body);
        // How many bytes of the response were removed from the buffer.
        let mut dropped = 0;
        loop {
            if !response.has_head() {
                self.fix_line_ends();
            }
            match response.read(&self.buf, is_head, self.over) {
                Ok(Some(answer)) => {
                    // Anyone on the path can end a TCP connection (RFC 9112 section 9.8).
                    let cut = self.cut.filter(|_| answer.framing == Framing::UntilClose);
                    if let Some(how) = cut {
                        let got = quoted_part(&self.buf, self.buf.len() + dropped);
                        let why = "so the response may be truncated";
                        return Err(format!("the connection {how}, {why}: {got}"));
                    }
                    self.buf.drain(..answer.consumed);
                    return Ok(answer);
                }
                Ok(None) if self.buf.len() + dropped > ANSWER_LIMIT => {
                    return Err(too_large());
                }
                Ok(None) => dropped += response.drop_read(&mut self.buf),
                Err(_) if self.buf.is_empty() => {
                    return Err("the connection closed without a response".to_owned());
                }
                Err(broken) => {
                    let got = quoted_part(&self.buf, self.buf.len() + dropped);
                    return Err(format!("{broken}: {got}"));
                }
            }
            let is_changed = self.fill(until.min(Instant::now() + interrupt::LOOK));
            if !is_changed && !self.over && stop.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            if !is_changed && !self.over && Instant::now() >= until {
                let waited = self.limit.as_secs_f64();
                return Err(match self.buf.len() + dropped {
                    0 => format!("no response within {waited} s"),
                    length => {
                        let got = quoted_part(&self.buf, length);
                        format!("incomplete response after {waited} s: {got}")
                    }
                });
            }
        }
    }

    /// Waits for this long. Any byte received is an error.
    pub fn quiet(&mut self, wait: Duration) -> Result<(), String> {
        let until = Instant::now() + wait;
        while self.buf.is_empty() && self.fill(until) {}
        match self.buf.len() {
            0 => Ok(()),
            length => Err(format!("{length} unexpected bytes: {}", quoted(&self.buf))),
        }
    }

    /// The first bytes received within this time; `None` if there are none.
    pub fn first_bytes(&mut self, wait: Duration) -> Option<&[u8]> {
        let until = Instant::now() + wait;
        while self.buf.is_empty() && self.fill(until) {}
        (!self.buf.is_empty()).then_some(&self.buf)
    }

    /// The bytes received within this time, as soon as there are any.
    pub(super) fn take_received(&mut self, wait: Duration) -> Vec<u8> {
        self.first_bytes(wait);
        std::mem::take(&mut self.buf)
    }

    /// Waits until the server closes the connection. Any byte before that is an error. Even for
    /// slow responses, the close must follow at once.
    pub fn closed(&mut self) -> Result<(), String> {
        let limit = self.limit.min(super::LIMIT);
        self.quiet(limit)?;
        match self.over {
            true => Ok(()),
            false => Err(format!("still open after {} s", limit.as_secs_f64())),
        }
    }

    /// Closes with a reset, as happens to a client that is killed with unread bytes.
    pub fn reset(self) {
        let socket = match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        };
        // RFC 9293 section 3.10.4 lets a close be an abort; a linger time of zero requests that.
        let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
    }

    /// Rewrites bare LFs in a head as CRLF, and remembers that: one wrong byte should fail the
    /// check of line ends and no other.
    fn fix_line_ends(&mut self) {
        let Some(end) = head_end(&self.buf) else { return };
        let is_bare = |at: usize| self.buf[at] == b'\n' && (at == 0 || self.buf[at - 1] != b'\r');
        if !(0..end).any(is_bare) {
            return;
        }
        let mut mended = Vec::with_capacity(self.buf.len() + 16);
        for at in 0..end {
            if is_bare(at) {
                mended.push(b'\r');
            }
            mended.push(self.buf[at]);
        }
        mended.extend_from_slice(&self.buf[end..]);
        self.buf = mended;
        self.bare_lf = true;
    }
}

/// Where a head ends, including its blank line, whatever its line ends are.
fn head_end(buf: &[u8]) -> Option<usize> {
    let feeds = buf.iter().enumerate().filter(|&(_, &b)| b == b'\n').map(|(at, _)| at);
    for feed in feeds {
        match buf[feed + 1..] {
            [b'\n', ..] => return Some(feed + 2),
            [b'\r', b'\n', ..] => return Some(feed + 3),
            _ => {}
        }
    }
    None
}

/// The state of HTTP/2 on a connection.
struct Conversation {
    client: ClientConnection,
    /// Requests sent.
    requests: u32,
    /// Collects the body of the next response.
    body: Body,
    /// The response that is arriving.
    partial: Option<Partial>,
    /// The code of the server's last GOAWAY.
    goaway: Option<ErrorCode>,
}

/// A response as far as it has arrived.
struct Partial {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Body,
}

/// The header block of a request, which does not use the server's table.
pub(super) fn block(exchange: &Exchange, host: &str, scheme: &str) -> Vec<u8> {
    let Exchange { method, path, headers, body, .. } = exchange;
    let encoded = encode(&[Request::build(method, path, host, headers, body)], scheme);
    encoded.block(0, BlockForm::Plain).constant().unwrap_or_default().to_vec()
}

impl Conversation {
    /// Begins: `out` gets what a connection begins with.
    fn begin(out: &mut Vec<u8>) -> Self {
        let mut client = ClientConnection::new(Limits::default());
        client.keep_fields();
        client.open(out);
        Self { client, requests: 0, body: Body::default(), partial: None, goaway: None }
    }

    /// Whether the server's SETTINGS have arrived: it speaks HTTP/2.
    fn has_settings(&self) -> bool {
        self.client.has_settings()
    }

    /// Appends the frames of a request to `out`.
    fn request(
        &mut self,
        body: Body,
        exchange: &Exchange,
        host: &str,
        scheme: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let block = block(exchange, host, scheme);
        self.requests += 1;
        (self.body, self.partial) = (body, None);
        let stream =
            self.client.request(self.requests, &block, &exchange.body, exchange.is_head(), out);
        match stream {
            Some(_) => Ok(()),
            None => Err("the server takes no more requests on this connection".to_owned()),
        }
    }

    /// Takes the frames that have arrived, up to the end of a response. `out` gets answers to the
    /// server's own frames.
    fn read(
        &mut self,
        received: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Response>, String> {
        let Self { client, body, partial, goaway, .. } = self;
        let bytes = std::mem::take(received);
        let mut rest = bytes.as_slice();
        let answer = loop {
            match client.take(&mut rest, out) {
                StreamEvent::NeedMore => break Ok(None),
                StreamEvent::Head { status, .. } => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let fields = client.fields().iter();
                    let headers = fields.map(|(name, value)| (text(name), value.clone())).collect();
                    *partial = Some(Partial { status, headers, body: std::mem::take(body) });
                }
                StreamEvent::Data { data, .. } => {
                    if let Some(partial) = partial {
                        partial.body.piece(data);
                        if partial.body.len() > ANSWER_LIMIT {
                            break Err(too_large());
                        }
                    }
                }
                StreamEvent::End { .. } => break Ok(partial.take().map(Partial::complete)),
                StreamEvent::Reset { code, .. } => {
                    break Err(format!("the server reset the stream: {code}"));
                }
                StreamEvent::GoAway { code, .. } => *goaway = Some(code),
                StreamEvent::Refused { .. } => {
                    let code = goaway.map_or(String::new(), |code| format!(" {code}"));
                    let text = match client.goaway_text() {
                        "" => String::new(),
                        text => format!(": {text}"),
                    };
                    let why = "the server did not process the request";
                    break Err(format!("{why} (GOAWAY{code}{text})"));
                }
                StreamEvent::Malformed { why, .. } => {
                    break Err(format!("a malformed response: {why}"));
                }
                StreamEvent::Broken { why, .. } if !client.has_settings() => {
                    let got = quoted(&bytes);
                    break Err(format!("the server does not speak HTTP/2 here ({why}): {got}"));
                }
                StreamEvent::Broken { why, .. } => break Err(format!("a protocol error: {why}")),
            }
        };
        *received = rest.to_vec();
        answer
    }
}

impl Partial {
    fn complete(self) -> Response {
        let length = self.body.len() as u64;
        Response {
            status: self.status,
            minor: 1,
            headers: self.headers,
            body: self.body,
            consumed: 0,
            keep_alive: true,
            framing: Framing::Length(length),
            interim: Vec::new(),
        }
    }
}
