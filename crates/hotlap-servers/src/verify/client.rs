//! A connection of the verifier. Every wait has a time limit, and ends when the user interrupts.
//!
//! This connection is deliberately separate from the generator's connections. The generator's
//! connections are built for speed, and keep only the first bytes of a wrong response. The
//! verifier's connection describes in words what it received.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use hotlap_load::http::{Framing, GrowingResponse, KeepBody};
use hotlap_load::http2::{BlockForm, ClientConnection, ErrorCode, Limits, StreamEvent, encode};
use hotlap_load::plan::{Endpoint, Protocol, Request, Target};
use hotlap_load::tls::{TlsConfig, TlsConnection};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::{SockAddr, Socket, Type};

use crate::contract::{Body, Content, Exchange, Response, quoted, quoted_part};
use crate::interrupt;

/// The largest response that the verifier accepts, in bytes.
const ANSWER_LIMIT: usize = 64 << 20;

/// Returns the reason why a response is not read to its end.
fn too_large() -> String {
    format!("a response of over {} MiB", ANSWER_LIMIT >> 20)
}

pub struct Wire<'a> {
    socket: Socket,
    channel: Option<Box<TlsConnection>>,
    limit: Duration,
    /// Set when the user interrupts.
    stop: &'a AtomicBool,
    /// What is wrong with the TLS data that was received.
    fault: Option<String>,
    /// Bytes that were received but not consumed.
    buf: Vec<u8>,
    /// Whether nothing more is read. The server closed or reset the connection or ended the TLS
    /// session, or the user interrupted.
    pub over: bool,
    /// Why a response that ends with the connection may be truncated. `None` if the response is
    /// complete.
    cut: Option<&'static str>,
    /// Whether a head had lines that end in a bare LF, which was accepted like CRLF.
    pub bare_lf: bool,
    /// The state of HTTP/2. `None` in HTTP/1.1.
    http2: Option<Conversation>,
}

/// Why a connection could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The server did not accept the connection, or sent nothing.
    #[error("{0}")]
    Silent(String),
    /// The server speaks another protocol, so a longer wait would not help.
    #[error("{0}")]
    OtherProtocol(String),
}

impl From<OpenError> for String {
    fn from(error: OpenError) -> Self {
        error.to_string()
    }
}

/// The error of a wait that the user has interrupted.
pub(crate) const INTERRUPTED: &str = "interrupted";

impl<'a> Wire<'a> {
    /// Connects, and sends the start of an HTTP/2 connection if that is the protocol. Each later
    /// wait takes at most `limit`. All waits end once `stop` is set.
    pub fn open(target: &Target, limit: Duration, stop: &'a AtomicBool) -> Result<Self, OpenError> {
        let mut wire = Self::open_bare(target, limit, stop)?;
        if target.protocol == Protocol::Http2 {
            let mut out = Vec::new();
            wire.http2 = Some(Conversation::begin(&mut out));
            wire.send(&out).map_err(OpenError::Silent)?;
        }
        Ok(wire)
    }

    /// Connects like [`Self::open`], but leaves the protocol to the caller.
    pub(super) fn open_bare(
        target: &Target,
        limit: Duration,
        stop: &'a AtomicBool,
    ) -> Result<Self, OpenError> {
        let failed = |error: io::Error| OpenError::Silent(format!("cannot connect: {error}"));
        let address = match &target.endpoint {
            Endpoint::Tcp(address) => SockAddr::from(*address),
            Endpoint::Unix(path) => SockAddr::unix(path).map_err(failed)?,
        };
        let socket = Socket::new(address.domain(), Type::STREAM, None).map_err(failed)?;
        let tls = TlsConfig::of(target).map_err(|error| OpenError::Silent(error.to_string()))?;
        let mut wire = Self {
            socket,
            channel: tls.and_then(|tls| tls.connect()),
            limit,
            stop,
            fault: None,
            buf: Vec::new(),
            over: false,
            cut: None,
            bare_lf: false,
            http2: None,
        };
        wire.connect(&address).map_err(failed)?;
        wire.handshake()?;
        let speaks_it = |channel: &TlsConnection| channel.speaks_http2();
        if target.protocol == Protocol::Http2 && !wire.channel.as_deref().is_none_or(speaks_it) {
            let what = "the server does not offer HTTP/2 (ALPN h2)";
            return Err(OpenError::OtherProtocol(what.to_owned()));
        }
        Ok(wire)
    }

    fn connect(&mut self, address: &SockAddr) -> io::Result<()> {
        self.socket.set_nonblocking(true)?;
        if !address.is_unix() {
            self.socket.set_tcp_nodelay(true)?;
        }
        match self.socket.connect(address) {
            Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
            done => return done,
        }
        if !self.waits_for(PollFlags::OUT, Instant::now() + self.limit) {
            return Err(self.gave_up("connection timed out"));
        }
        self.socket.take_error()?.map_or(Ok(()), Err)
    }

    /// Waits until the socket is ready, or the time is `until`. Returns whether the socket is
    /// ready.
    fn waits_for(&mut self, what: PollFlags, until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.over |= self.is_stopped();
            if self.over || left.is_zero() {
                return false;
            }
            let mut sockets = [PollFd::new(&self.socket, what)];
            let look = Timespec::try_from(left.min(interrupt::LOOK)).ok();
            match poll(&mut sockets, look.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                // The next call of the socket returns the error.
                Ok(_) | Err(_) => return true,
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the error of a wait that was not successful.
    fn gave_up(&self, why: &str) -> io::Error {
        match self.is_stopped() {
            true => io::Error::other(INTERRUPTED),
            false => io::Error::new(ErrorKind::TimedOut, why),
        }
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
                        "the server did not complete it. Does this port speak HTTPS?",
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

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            let sent = match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => Ok(sent),
                Err(Errno::INTR) => Ok(0),
                Err(Errno::AGAIN) => {
                    match self.waits_for(PollFlags::OUT, Instant::now() + self.limit) {
                        true => Ok(0),
                        false => Err(self.gave_up("timed out")),
                    }
                }
                Err(errno) => Err(errno.into()),
            };
            let sent = sent.map_err(|error: io::Error| match error.kind() {
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                    "the connection was closed before the request was sent".to_owned()
                }
                _ => format!("the request could not be sent: {error}"),
            })?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Reads once, and waits for data until the time `until`. Returns whether something changed.
    fn fill(&mut self, until: Instant) -> bool {
        let mut piece = [0; 16 << 10];
        while self.waits_for(PollFlags::IN, until) {
            match rustix::net::recv(&self.socket, &mut piece[..], RecvFlags::empty()) {
                Ok((_, 0)) => {
                    self.over = true;
                    self.cut = self.channel.as_ref().map(|_| "ended without TLS's close_notify");
                }
                Ok((_, length)) => match &mut self.channel {
                    Some(channel) => {
                        let read = channel.receive(&piece[..length], &mut self.buf);
                        // After close_notify, the server sends nothing more, whether or not it
                        // closes the TCP connection (RFC 8446 section 6.1).
                        self.over = read.is_err() || channel.peer_has_closed();
                        self.cut = read.is_err().then_some("ended with a TLS error");
                        self.fault = read.err();
                    }
                    None => self.buf.extend_from_slice(&piece[..length]),
                },
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Err(_) => {
                    self.over = true;
                    self.cut = Some("was reset");
                }
            }
            return true;
        }
        false
    }

    /// Sends a request and returns the response.
    pub fn ask(&mut self, exchange: &Exchange, host: &str) -> Result<Response, String> {
        self.ask_into(exchange.content.compared(), exchange, host)
    }

    /// Sends a request and returns the response, whose body is collected in `body`.
    pub fn ask_into(
        &mut self,
        body: Body,
        exchange: &Exchange,
        host: &str,
    ) -> Result<Response, String> {
        if let Some(mut conversation) = self.http2.take() {
            let answer = self.converse(&mut conversation, body, exchange, host);
            self.http2 = Some(conversation);
            return answer;
        }
        self.send(&exchange.bytes(host))?;
        self.answer_into(body, exchange.is_head())
    }

    /// Sends a request over HTTP/2 and returns the response.
    fn converse(
        &mut self,
        conversation: &mut Conversation,
        body: Body,
        exchange: &Exchange,
        host: &str,
    ) -> Result<Response, String> {
        let scheme = if self.channel.is_some() { "https" } else { "http" };
        let mut out = Vec::new();
        conversation.request(body, exchange, host, scheme, &mut out)?;
        self.send(&out)?;
        let until = Instant::now() + self.limit;
        loop {
            out.clear();
            let read = conversation.read(&mut self.buf, &mut out);
            // If the replies to the server's own frames cannot be sent, the next read fails.
            let _ = self.send(&out);
            if let Some(answer) = read? {
                return Ok(answer);
            }
            if self.over {
                return Err(match conversation.has_settings() {
                    true => "the connection closed before the response was complete".to_owned(),
                    false => {
                        "the connection closed before the server sent an HTTP/2 frame".to_owned()
                    }
                });
            }
            if !self.fill(until) {
                return Err(match self.is_stopped() {
                    true => INTERRUPTED.to_owned(),
                    false => {
                        format!("no complete response within {} s", self.limit.as_secs_f64())
                    }
                });
            }
        }
    }

    /// Receives one response to a request whose expected content is `expected`.
    pub fn answer(&mut self, is_head: bool, expected: &Content) -> Result<Response, String> {
        self.answer_into(expected.compared(), is_head)
    }

    /// Receives one response, whose body is collected in `body`.
    fn answer_into(&mut self, body: Body, is_head: bool) -> Result<Response, String> {
        let until = Instant::now() + self.limit;
        let mut response = GrowingResponse::into(body);
        // The number of bytes of the response that were removed from the buffer.
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
            if !self.fill(until) {
                let waited = self.limit.as_secs_f64();
                return Err(match self.buf.len() + dropped {
                    _ if self.is_stopped() => INTERRUPTED.to_owned(),
                    0 => format!("no response within {waited} s"),
                    length => {
                        let got = quoted_part(&self.buf, length);
                        format!("incomplete response after {waited} s: {got}")
                    }
                });
            }
        }
    }

    /// Waits for this time. Any byte that arrives is an error.
    pub fn quiet(&mut self, wait: Duration) -> Result<(), String> {
        let until = Instant::now() + wait;
        while self.buf.is_empty() && self.fill(until) {}
        match self.buf.len() {
            0 => Ok(()),
            1 => Err(format!("1 unexpected byte: {}", quoted(&self.buf))),
            length => Err(format!("{length} unexpected bytes: {}", quoted(&self.buf))),
        }
    }

    /// Returns the first bytes that arrive within this time. `None` if there are none.
    pub fn first_bytes(&mut self, wait: Duration) -> Option<&[u8]> {
        let until = Instant::now() + wait;
        while self.buf.is_empty() && self.fill(until) {}
        (!self.buf.is_empty()).then_some(&self.buf)
    }

    /// Returns the bytes that arrive within this time, as soon as there are any.
    pub(super) fn take_received(&mut self, wait: Duration) -> Vec<u8> {
        self.first_bytes(wait);
        std::mem::take(&mut self.buf)
    }

    /// Waits until the server closes the connection. Any byte before the close is an error. The
    /// close must come within 2 s, or within the connection's limit if that is shorter.
    pub fn closed(&mut self) -> Result<(), String> {
        let limit = self.limit.min(super::LIMIT);
        self.quiet(limit)?;
        match self.over {
            true => Ok(()),
            false => Err(format!("still open after {} s", limit.as_secs_f64())),
        }
    }

    /// Closes the connection with a reset, as happens when a client with unread bytes is killed.
    pub fn reset(self) {
        // With a linger time of zero, closing the socket aborts the connection (RFC 9293 section
        // 3.10.5).
        let _ = self.socket.set_linger(Some(Duration::ZERO));
    }

    /// Rewrites bare LFs in a head as CRLF, and sets `bare_lf`. A wrong line end should fail only
    /// the check of line ends.
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

/// Returns where a head ends, including its blank line. All kinds of line ends are accepted.
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
    /// The number of requests sent.
    requests: u32,
    /// The body that collects the bytes of the next response.
    body: Body,
    /// The response that is arriving.
    partial: Option<Partial>,
    /// The code of the server's last GOAWAY.
    goaway: Option<ErrorCode>,
}

/// A response that has arrived in part.
struct Partial {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Body,
}

/// Returns the header block of a request. The block does not use the server's table.
pub(super) fn block(exchange: &Exchange, host: &str, scheme: &str) -> Vec<u8> {
    let Exchange { method, path, headers, body, .. } = exchange;
    let encoded = encode(&[Request::build(method, path, host, headers, body)], scheme);
    encoded.block(0, BlockForm::Plain).constant().unwrap_or_default().to_vec()
}

impl Conversation {
    /// Begins a conversation. `out` receives the bytes that start a connection.
    fn begin(out: &mut Vec<u8>) -> Self {
        let mut client = ClientConnection::new(Limits::default());
        client.keep_fields();
        client.open(out);
        Self { client, requests: 0, body: Body::default(), partial: None, goaway: None }
    }

    /// Returns whether the server's SETTINGS have arrived, which show that the server speaks
    /// HTTP/2.
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

    /// Processes the frames that have arrived, up to the end of a response. `out` receives the
    /// replies to the server's own frames.
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

/// Sends a request and returns the response. Returns an error if the response is wrong or takes
/// longer than `limit`. Stops waiting once `stop` is set.
pub fn ask(
    target: &Target,
    host: &str,
    limit: Duration,
    exchange: &Exchange,
    stop: &AtomicBool,
) -> Result<Response, String> {
    let answer = Wire::open(target, limit, stop)?.ask(exchange, host)?;
    exchange.check(&answer, SystemTime::now())?;
    Ok(answer)
}
