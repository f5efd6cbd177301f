//! One connection of the verifier: plain, blocking, every wait bounded.
//!
//! It is separate from the generator's connections on purpose: those are built to be fast and give
//! up at the first wrong byte, this one looks closely and says in words what it saw.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotlap_load::http::{self, Framing, Response};
use hotlap_load::plan::{Endpoint, Target};
use hotlap_load::tls::{TlsConfig, TlsConnection};

use crate::contract::{Exchange, quoted};
use crate::interrupt;

/// An answer of the verifier's requests is small; what is over this is a flood.
const ANSWER_LIMIT: usize = 64 << 20;

pub struct Wire {
    stream: Stream,
    channel: Option<Box<TlsConnection>>,
    limit: Duration,
    /// What is wrong with the TLS that came.
    fault: Option<String>,
    /// Received and not yet taken.
    buf: Vec<u8>,
    /// The server sends no more: it closed the connection or reset it, or TLS says so.
    pub over: bool,
    /// Why a response that ends with the connection may have been cut, where it may.
    cut: Option<&'static str>,
    /// A head had lines that end in a bare LF; they were read as if they ended in CRLF.
    pub bare_lf: bool,
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
        // A limit of zero would mean none.
        let limit = Some(limit.max(Duration::from_millis(1)));
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(limit),
            Self::Unix(stream) => stream.set_read_timeout(limit),
        }
    }
}

impl Wire {
    /// Connects; each later wait takes at most `limit`.
    pub fn open(target: &Target, limit: Duration) -> Result<Self, String> {
        let failed = |error: io::Error| format!("no connection: {error}");
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
        let channel = match &target.tls {
            Some(tls) => TlsConfig::new(tls).map_err(|error| error.to_string())?.connect(),
            None => None,
        };
        let mut wire = Self {
            stream,
            channel,
            limit,
            fault: None,
            buf: Vec::new(),
            over: false,
            cut: None,
            bare_lf: false,
        };
        wire.shake_hands()?;
        Ok(wire)
    }

    fn shake_hands(&mut self) -> Result<(), String> {
        let until = Instant::now() + self.limit;
        while self.channel.as_ref().is_some_and(|channel| channel.is_handshaking()) {
            self.flush()?;
            if !self.fill(until) || self.over {
                let why = self.fault.take().unwrap_or_else(|| "no greeting came".to_owned());
                return Err(format!(
                    "the TLS handshake failed: {why}: does this port speak https, and does this \
                     system trust its certificate (else --insecure)?"
                ));
            }
        }
        self.flush()
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        match &mut self.channel {
            Some(channel) => channel.send(bytes)?,
            None => return self.write(bytes),
        }
        self.flush()
    }

    /// Sends what TLS wants to be sent.
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

    /// Reads once, until `until` at the latest; whether something changed.
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
                        // After close_notify the server sends no more, whether or not it closes
                        // the TCP connection (RFC 8446 section 6.1).
                        self.over = read.is_err() || channel.peer_has_closed();
                        self.cut = read.is_err().then_some("ended with a fault in its TLS");
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
        self.send(&exchange.bytes(host))?;
        self.answer(exchange.is_head())
    }

    /// One answer.
    pub fn answer(&mut self, is_head: bool) -> Result<Response, String> {
        self.answer_unless(is_head, &AtomicBool::new(false))
    }

    /// One answer, unless `stop` is set before it has come.
    pub fn answer_unless(&mut self, is_head: bool, stop: &AtomicBool) -> Result<Response, String> {
        let until = Instant::now() + self.limit;
        loop {
            self.mend();
            match http::read_response(&self.buf, is_head, self.over) {
                Ok(Some(answer)) => {
                    // Anyone on the way can end a TCP connection (RFC 9112 section 9.8).
                    let cut = self.cut.filter(|_| answer.framing == Framing::UntilClose);
                    if let Some(how) = cut {
                        let got = quoted(&self.buf);
                        let why = "so the response may be cut";
                        return Err(format!("the connection {how}, {why}: {got}"));
                    }
                    self.buf.drain(..answer.consumed);
                    return Ok(answer);
                }
                Ok(None) if self.buf.len() > ANSWER_LIMIT => {
                    return Err(format!("an answer of over {} MiB", ANSWER_LIMIT >> 20));
                }
                Ok(None) => {}
                Err(_) if self.buf.is_empty() => {
                    return Err("the connection closed without an answer".to_owned());
                }
                Err(broken) => return Err(format!("{broken}: {}", quoted(&self.buf))),
            }
            let is_changed = self.fill(until.min(Instant::now() + interrupt::LOOK));
            if !is_changed && !self.over && stop.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            if !is_changed && !self.over && Instant::now() >= until {
                let waited = self.limit.as_secs_f64();
                return Err(match self.buf.len() {
                    0 => format!("no answer within {waited} s"),
                    _ => format!("no whole answer within {waited} s: {}", quoted(&self.buf)),
                });
            }
        }
    }

    /// Waits for this long; not a byte may come.
    pub fn quiet(&mut self, wait: Duration) -> Result<(), String> {
        let until = Instant::now() + wait;
        while self.buf.is_empty() && self.fill(until) {}
        match self.buf.len() {
            0 => Ok(()),
            length => Err(format!("{length} bytes: {}", quoted(&self.buf))),
        }
    }

    /// What comes first within this time; `None`: nothing.
    pub fn first_bytes(&mut self, wait: Duration) -> Option<&[u8]> {
        let until = Instant::now() + wait;
        while self.buf.is_empty() && self.fill(until) {}
        (!self.buf.is_empty()).then_some(&self.buf)
    }

    /// Waits until the server closes; not a byte may come before. However long an answer may take,
    /// a close follows it at once.
    pub fn closed(&mut self) -> Result<(), String> {
        let limit = self.limit.min(super::verifier::LIMIT);
        self.quiet(limit)?;
        match self.over {
            true => Ok(()),
            false => Err(format!("still open after {} s", limit.as_secs_f64())),
        }
    }

    /// Goes away with a reset, as a client does whose process was killed with bytes unread.
    pub fn reset(self) {
        let socket = match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        };
        // RFC 9293 section 3.10.4 lets a close be an abort; lingering for no time asks for that.
        let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
    }

    /// Turns a head with bare LFs into one that can be read, and takes note: one wrong byte should
    /// fail the check of line ends and no other.
    fn mend(&mut self) {
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

/// Where a head ends, its blank line included, whatever its line ends are.
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
