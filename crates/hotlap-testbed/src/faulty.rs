//! A server that either follows its contract and the rules of HTTP or breaks exactly one rule.

use std::fs::File;
use std::io::{ErrorKind, Read, Write as _};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use socket2::Socket;

use crate::test_server::{Peer, TestServer};

/// The contract that a faulty server implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// The contract `hello`.
    Hello,
    /// The contract `clock`.
    Clock,
    /// The contract `json-api`.
    JsonApi,
}

/// What is wrong with a server that otherwise fulfils its contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// No flaw.
    None,
    /// The server sends a response before the request.
    RespondsBeforeRequest,
    /// The lines of a response head end in LF alone.
    BareLineFeeds,
    /// The server keeps the connection open after `Connection: close`.
    IgnoresConnectionClose,
    /// The server keeps the connection open after an HTTP/1.0 request.
    KeepsHttp10Open,
    /// The server responds to each read, whether the request is complete or not.
    RespondsToEachRead,
    /// The server sends every response twice.
    RespondsTwice,
    /// The server responds only to the first of several pipelined requests.
    DropsPipelined,
    /// The server responds to pipelined requests in reverse order.
    SwapsPipelined,
    /// The server closes the connection after each response without announcing it.
    ClosesUnannounced,
    /// The server announces that it closes the connection after each response, and does so.
    ClosesAnnounced,
    /// Only the end of the connection marks the end of a body.
    NoContentLength,
    /// The server serves no further connection after it receives the byte 0xFF.
    DiesOnGarbage,
    /// The server serves no further connection after a reset.
    DiesOnReset,
    /// The server serves no further connection after a client has sent half of a POST request.
    DiesOnHalfARequest,
    /// The body differs in one letter.
    WrongBody,
    /// The `Content-Type` is `text/html`.
    WrongContentType,
    /// The clock always shows the time of the first request.
    StaleClock,
    /// The clock is 5 s slow.
    WrongClock,
    /// The server sends the same response for every path.
    AcceptsAnyPath,
    /// The server never responds.
    Silent,
    /// The server sends chunks to HTTP/1.0 clients.
    ChunksToHttp10,
    /// The server sends 505 to HTTP/1.0 clients.
    RefusesHttp10,
    /// The server sends the body in response to HEAD.
    BodyToHead,
    /// The server sends no `Date`.
    NoDate,
    /// `Date` always shows the time of the first request.
    StaleDate,
    /// `Date` is an hour fast.
    WrongDate,
    /// The server sends no `100 (Continue)`.
    NoContinue,
    /// The server sends the same response for every method.
    AcceptsAnyMethod,
    /// The server accepts every HTTP version.
    AcceptsAnyVersion,
    /// The server accepts requests without `Host`.
    AcceptsMissingHost,
    /// The server mistakes the chunks of a body for requests.
    TakesChunksForRequests,
    /// The server closes the connection on requests of over 60,000 bytes.
    ClosesOnLargeHeaders,
    /// The server accepts two different `Content-Length` headers, and rejects POST.
    AcceptsTwoLengths,
    /// The server keeps the connection open after it rejects a request.
    KeepsInvalidOpen,
    /// The server accepts a space between a header's name and the colon.
    AcceptsSpaceBeforeColon,
    /// The server closes the connection on a folded header.
    ClosesOnFoldedHeaders,
    /// The server rejects its own path if the request target is an absolute URL.
    RejectsAbsoluteTarget,
    /// The server accepts every `Content-Type`.
    AcceptsAnyMediaType,
    /// The server accepts a connection only after the one before has ended.
    OneConnectionAtATime,
    /// The body contains a number that counts the requests.
    CountsRequests,
    /// The server writes a line to `access.log` in its current folder for every request, which is
    /// a feature and not a flaw.
    LogsRequests,
    /// The server writes a line to `access.log` for every other request only.
    LogsEveryOtherRequest,
}

/// The time after which a client that sends nothing is disconnected.
const IDLE: Duration = Duration::from_secs(10);

impl TestServer {
    /// Starts a server for a contract with a [`Flaw`].
    pub fn faulty(site: Site, flaw: Flaw) -> Self {
        Self::start(serve(site, flaw))
    }

    /// Starts a server for a contract with a [`Flaw`] on a listening socket.
    pub fn faulty_on(listener: impl Into<Socket>, site: Site, flaw: Flaw) -> Self {
        Self::on(listener, serve(site, flaw))
    }
}

/// Returns the handler of each connection for [`TestServer::start`].
fn serve(site: Site, flaw: Flaw) -> impl Fn(Peer) + Send + Sync + 'static {
    let server = Server {
        responder: Responder::new(site, flaw),
        is_dead: AtomicBool::new(false),
        turn: Mutex::new(()),
    };
    move |client| server.serve(client)
}

struct Server {
    responder: Responder,
    /// Whether a client has crashed the server.
    is_dead: AtomicBool,
    /// The lock of the connection that is being served. The lock is used if the server serves one
    /// connection at a time.
    turn: Mutex<()>,
}

impl Server {
    fn serve(&self, mut client: Peer) {
        // A crash must happen before the next connection is served, so these servers serve one
        // connection at a time.
        let is_sequential = matches!(
            self.responder.flaw,
            Flaw::OneConnectionAtATime
                | Flaw::DiesOnGarbage
                | Flaw::DiesOnReset
                | Flaw::DiesOnHalfARequest
        );
        let _turn = is_sequential.then(|| self.turn.lock().expect("sound"));
        if self.is_dead.load(Ordering::Relaxed) {
            return;
        }
        client.stream.set_read_timeout(Some(IDLE)).expect("a socket option");
        if self.responder.flaw == Flaw::RespondsBeforeRequest {
            client.send(&self.responder.respond(&Request::plain()).bytes);
        }
        let mut connection =
            Connection { server: self, client, input: Vec::new(), continued: false };
        while connection.read() && connection.respond() {}
    }
}

struct Connection<'a> {
    server: &'a Server,
    client: Peer,
    /// Bytes that are not a complete request yet.
    input: Vec<u8>,
    /// Whether `100 (Continue)` was sent for `input`.
    continued: bool,
}

impl Connection<'_> {
    /// Reads available bytes. Returns false if the connection has ended.
    fn read(&mut self) -> bool {
        let flaw = self.server.responder.flaw;
        let mut buffer = [0; 1 << 17];
        let (length, dies) = match self.client.stream.read(&mut buffer) {
            Ok(0) => (0, flaw == Flaw::DiesOnHalfARequest && self.input.starts_with(b"POST")),
            Ok(length) => {
                let bytes = &buffer[..length];
                self.input.extend_from_slice(bytes);
                (length, flaw == Flaw::DiesOnGarbage && bytes.contains(&0xff))
            }
            Err(error) => {
                (0, flaw == Flaw::DiesOnReset && error.kind() == ErrorKind::ConnectionReset)
            }
        };
        if dies {
            self.server.is_dead.store(true, Ordering::Relaxed);
        }
        length > 0 && !dies
    }

    /// Responds to the requests that were read. Returns false if the connection has ended.
    fn respond(&mut self) -> bool {
        let responder = &self.server.responder;
        match responder.flaw {
            Flaw::Silent => return true,
            Flaw::RespondsToEachRead => {
                self.input.clear();
                self.client.count_request();
                self.client.send(&responder.respond(&Request::plain()).bytes);
                return true;
            }
            _ => {}
        }
        let (mut interim, mut responses, mut closes) = (Vec::new(), Vec::new(), false);
        while !closes && !self.input.is_empty() {
            match parse(&self.input, responder.flaw) {
                Parsed::Complete(request, length) => {
                    self.input.drain(..length);
                    self.continued = false;
                    self.client.count_request();
                    let response = responder.respond(&request);
                    responses.push(response.bytes);
                    closes = response.closes;
                }
                Parsed::Incomplete { expects_continue } => {
                    let continues = expects_continue && responder.flaw != Flaw::NoContinue;
                    if continues && !self.continued {
                        self.continued = true;
                        interim.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    break;
                }
            }
        }
        match responder.flaw {
            Flaw::SwapsPipelined => responses.reverse(),
            Flaw::DropsPipelined => responses.truncate(1),
            Flaw::RespondsTwice => {
                responses = responses.iter().flat_map(|one| [one.clone(), one.clone()]).collect();
            }
            _ => {}
        }
        if !self.client.send(&[interim, responses.concat()].concat()) {
            return false;
        }
        if closes {
            let _ = self.client.stream.shutdown(Shutdown::Write);
        }
        !closes
    }
}

/// A complete request.
#[derive(Debug)]
struct Request {
    method: String,
    target: String,
    version: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    problem: Option<Problem>,
}

/// What a server does with an invalid request.
#[derive(Debug, Clone, Copy)]
enum Problem {
    /// The server sends this status and closes the connection.
    Status(u16),
    /// The server closes the connection without a response.
    Close,
}

/// The result of parsing bytes.
#[derive(Debug)]
enum Parsed {
    /// The beginning of a request, whose head may expect `100 (Continue)`.
    Incomplete { expects_continue: bool },
    /// A complete request and its length in bytes.
    Complete(Request, usize),
}

impl Request {
    /// Returns the request `GET /`.
    fn plain() -> Self {
        Self {
            method: "GET".to_owned(),
            target: "/".to_owned(),
            version: "HTTP/1.1".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            problem: None,
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    fn refuse(&mut self, status: u16) {
        self.problem = Some(Problem::Status(status));
    }

    /// Parses the head, line by line.
    fn of_head(head: &[u8], flaw: Flaw) -> Self {
        let mut request = Self::plain();
        let text = String::from_utf8_lossy(head).into_owned();
        let text = match flaw {
            Flaw::ClosesOnFoldedHeaders => text,
            _ => text.replace("\r\n ", " "),
        };
        let mut lines = text.trim_start().split("\r\n");
        let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let [method, target, version] = words[..] else {
            request.refuse(400);
            return request;
        };
        if !version.starts_with("HTTP/1.") && flaw != Flaw::AcceptsAnyVersion {
            request.refuse(505);
        }
        for line in lines.filter(|line| !line.is_empty()) {
            let Some((name, value)) = line.split_once(':') else {
                request.problem = Some(Problem::Close);
                continue;
            };
            if name.ends_with(' ') && flaw != Flaw::AcceptsSpaceBeforeColon {
                request.refuse(400);
                continue;
            }
            let name = name.to_ascii_lowercase();
            let is_second_length = name == "content-length" && request.header(&name).is_some();
            if is_second_length && flaw != Flaw::AcceptsTwoLengths {
                request.refuse(400);
            }
            request.headers.push((name, value.trim().to_owned()));
        }
        let lacks_host = version == "HTTP/1.1" && request.header("host").is_none();
        if lacks_host && flaw != Flaw::AcceptsMissingHost {
            request.refuse(400);
        }
        (request.method, request.target) = (method.to_owned(), target.to_owned());
        version.clone_into(&mut request.version);
        request
    }
}

/// Parses the first request in `bytes`.
fn parse(bytes: &[u8], flaw: Flaw) -> Parsed {
    if bytes.len() > 60_000 && flaw == Flaw::ClosesOnLargeHeaders {
        let request = Request { problem: Some(Problem::Close), ..Request::plain() };
        return Parsed::Complete(request, bytes.len());
    }
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        return Parsed::Incomplete { expects_continue: false };
    };
    let (head, rest) = bytes.split_at(end + 4);
    let mut request = Request::of_head(head, flaw);
    let is_chunked = request.header("transfer-encoding").is_some();
    let body = match request.header("content-length").and_then(|value| value.parse().ok()) {
        _ if is_chunked && flaw != Flaw::TakesChunksForRequests => chunked(rest),
        Some(length) => rest.get(..length).map(|body| (body.to_vec(), length)),
        None => Some((Vec::new(), 0)),
    };
    let Some((body, length)) = body else {
        return Parsed::Incomplete { expects_continue: request.header("expect").is_some() };
    };
    request.body = body;
    Parsed::Complete(request, head.len() + length)
}

/// Returns the content of a chunked body and its length on the wire. Returns `None` if the body is
/// incomplete.
fn chunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes[at..].windows(2).position(|w| w == b"\r\n")? + at;
        let size = String::from_utf8_lossy(&bytes[at..line]);
        let size = usize::from_str_radix(&size, 16).unwrap_or(0);
        let chunk = line + 2;
        body.extend_from_slice(bytes.get(chunk..chunk + size)?);
        at = chunk + size + 2;
        bytes.get(at - 2..at)?;
        if size == 0 {
            return Some((body, at));
        }
    }
}

/// The state that a server's responses depend on.
#[derive(Debug)]
struct Responder {
    site: Site,
    flaw: Flaw,
    /// The next number to send or to count with. The first number is 7, so that the length of the
    /// number changes within the first six requests.
    count: AtomicU64,
    /// The time of the first response, for a stale clock or a stale `Date`.
    first: OnceLock<u64>,
}

/// The bytes of a response, and what happens after it.
struct Response {
    bytes: Vec<u8>,
    /// Whether the connection closes after the response.
    closes: bool,
}

impl Responder {
    fn new(site: Site, flaw: Flaw) -> Self {
        Self { site, flaw, count: AtomicU64::new(7), first: OnceLock::new() }
    }

    fn respond(&self, request: &Request) -> Response {
        let flaw = self.flaw;
        if matches!(request.problem, Some(Problem::Close)) {
            return Response { bytes: Vec::new(), closes: true };
        }
        self.log();
        let is_old = request.version == "HTTP/1.0";
        let (mut status, content_type, body) = self.content(request);
        if flaw == Flaw::RefusesHttp10 && is_old {
            status = 505;
        }
        let asks_to_close = request.header("connection") == Some("close");
        let mut closes = (is_old && flaw != Flaw::KeepsHttp10Open)
            || (asks_to_close && flaw != Flaw::IgnoresConnectionClose)
            || (request.problem.is_some() && flaw != Flaw::KeepsInvalidOpen);
        let mut head = format!("HTTP/1.1 {status} Whatever\r\nContent-Type: {content_type}\r\n");
        if flaw != Flaw::NoDate {
            head += &format!("Date: {}\r\n", self.date());
        }
        let mut payload = body.clone().into_bytes();
        if flaw == Flaw::ChunksToHttp10 && is_old {
            head += "Transfer-Encoding: chunked\r\n";
            payload = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).into_bytes();
        } else if flaw == Flaw::NoContentLength {
            closes = true;
        } else {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        if flaw == Flaw::ClosesAnnounced {
            head += "Connection: close\r\n";
        }
        closes |= matches!(flaw, Flaw::ClosesUnannounced | Flaw::ClosesAnnounced);
        head += "\r\n";
        if flaw == Flaw::BareLineFeeds {
            head = head.replace("\r\n", "\n");
        }
        if request.method == "HEAD" && flaw != Flaw::BodyToHead {
            payload.clear();
        }
        Response { bytes: [head.into_bytes(), payload].concat(), closes }
    }

    /// Writes a line to `access.log` if the server logs this request.
    fn log(&self) {
        let logs = match self.flaw {
            Flaw::LogsRequests => true,
            Flaw::LogsEveryOtherRequest => self.next_number().is_multiple_of(2),
            _ => false,
        };
        if logs {
            let file = File::options().create(true).append(true).open("access.log");
            file.expect("a log").write_all(b"request\n").expect("a log");
        }
    }

    fn date(&self) -> String {
        let now = since_1970().as_secs();
        let shown = match self.flaw {
            Flaw::WrongDate => now + 3600,
            Flaw::StaleDate => self.first_or(now),
            _ => now,
        };
        httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(shown))
    }

    /// Returns the status, the content type and the body of the response.
    fn content(&self, request: &Request) -> (u16, &'static str, String) {
        let plain = match self.flaw {
            Flaw::WrongContentType => "text/html",
            _ => "text/plain; charset=utf-8",
        };
        if let Some(Problem::Status(status)) = request.problem {
            return (status, plain, "no".to_owned());
        }
        if self.site == Site::JsonApi {
            return self.json(request);
        }
        let mut path = request.target.as_str();
        if self.flaw != Flaw::RejectsAbsoluteTarget && path.starts_with("http://") {
            path = path[7..].find('/').map_or("/", |at| &path[7 + at..]);
        }
        if path != "/" && self.flaw != Flaw::AcceptsAnyPath {
            return (404, plain, "Not Found".to_owned());
        }
        let is_known = match request.method.as_str() {
            "POST" => self.flaw != Flaw::AcceptsTwoLengths,
            method => matches!(method, "GET" | "HEAD"),
        };
        if !is_known && self.flaw != Flaw::AcceptsAnyMethod {
            return (405, plain, "Method Not Allowed".to_owned());
        }
        let body = match (self.site, self.flaw) {
            (_, Flaw::WrongBody) => "Hello, world!".to_owned(),
            (_, Flaw::CountsRequests) => format!("Hello {}", self.next_number()),
            (Site::Clock, _) => format!("Hello World {}", self.clock_ms()),
            _ => "Hello, World!".to_owned(),
        };
        (200, plain, body)
    }

    fn json(&self, request: &Request) -> (u16, &'static str, String) {
        const JSON: &str = "application/json";
        const RESULTS: &str = r#"{"results": [1, 2, 3]}"#;
        let (status, text) = match (request.target.as_str(), request.method.as_str()) {
            ("/bla", "GET" | "HEAD") => (200, RESULTS.to_owned()),
            ("/bla", "POST") => {
                let is_json = request.header("content-type").is_none_or(|t| t == JSON);
                match serde_json::from_slice::<serde_json::Value>(&request.body) {
                    _ if !is_json && self.flaw != Flaw::AcceptsAnyMediaType => {
                        (406, "\"Not Acceptable\"".to_owned())
                    }
                    Ok(value) if value.is_object() => (200, value.to_string()),
                    _ => (400, "\"Bad Request\"".to_owned()),
                }
            }
            ("/bla", _) => (405, "\"Method Not Allowed\"".to_owned()),
            (path, "GET") if path.starts_with("http://") => (200, RESULTS.to_owned()),
            _ => (404, "\"Not Found\"".to_owned()),
        };
        (status, JSON, text)
    }

    /// Returns the time that the server shows, in milliseconds since 1970.
    fn clock_ms(&self) -> u64 {
        let ms = u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX);
        match self.flaw {
            Flaw::StaleClock => self.first_or(ms),
            Flaw::WrongClock => ms - 5_000,
            _ => ms,
        }
    }

    fn first_or(&self, now: u64) -> u64 {
        *self.first.get_or_init(|| now)
    }

    fn next_number(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
