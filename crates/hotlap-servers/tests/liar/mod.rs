//! An honest HTTP/1.1 server on threads, that can be told to lie in exactly one way.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is wrong with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    Nothing,
    AnswersUnasked,
    BareLf,
    IgnoresClose,
    IgnoresOldVersion,
    AnswersEachPiece,
    AnswersTwice,
    DropsPipelined,
    SwapsPipelined,
    ClosesAfterOne,
    ClosesAndSaysSo,
    EndsWithConnection,
    DiesOfGarbage,
    DiesOfReset,
    DiesHalfway,
    WrongBody,
    WrongType,
    StaleClock,
    WrongClock,
    KnowsAllPaths,
    KnowsNoPath,
    NeverAnswers,
    ChunksForOldClients,
    RefusesOldClients,
    BodyAfterHead,
    NoDate,
    StaleDate,
    WrongDate,
    NoServer,
    NoContinue,
    TakesAnyMethod,
    TakesAnyVersion,
    TakesNoHost,
    ReadsChunksAsRequests,
    RefusesLargeHeaders,
    TakesTwoLengths,
    TakesSpaceBeforeColon,
    DropsFoldedHeaders,
    KnowsNoAbsoluteTarget,
    TakesAnyMediaType,
    OneConnectionAtATime,
    Counts,
    Logs,
    LogsHalf,
}

/// What it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    Hello,
    Clock,
    Json,
}

/// A running server; it ends when it is dropped.
pub struct Liar {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Server {
    lie: Lie,
    site: Site,
    dead: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
}

impl Liar {
    pub fn start(site: Site, lie: Lie) -> Self {
        Self::start_on(0, site, lie)
    }

    pub fn start_on(port: u16, site: Site, lie: Lie) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let thread = std::thread::spawn(move || {
            let (dead, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(7)));
            let server = Server { lie, site, dead, count };
            for stream in listener.incoming() {
                if flag.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), server) = (stream, server.clone()) else { continue };
                if server.dead.load(Ordering::Relaxed) {
                    drop(stream);
                    continue;
                }
                // Those that die are to be dead before the next connection is taken.
                if matches!(
                    lie,
                    Lie::OneConnectionAtATime
                        | Lie::DiesOfGarbage
                        | Lie::DiesOfReset
                        | Lie::DiesHalfway
                ) {
                    server.serve(stream);
                } else {
                    std::thread::spawn(move || server.serve(stream));
                }
            }
        });
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Request {
    method: String,
    target: String,
    version: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    status: u16,
}

impl Request {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

impl Server {
    fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    /// What it was given first.
    fn first(&self, now: u64) -> u64 {
        let kept = self.count.compare_exchange(7, now, Ordering::Relaxed, Ordering::Relaxed);
        kept.map_or_else(|first| first, |_| now)
    }

    fn serve(&self, mut stream: TcpStream) {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut buf = Vec::new();
        if self.lie == Lie::AnswersUnasked {
            let _ = stream.write_all(&self.answer(&Request::plain()).0);
        }
        let mut piece = [0; 1 << 17];
        let mut continued = false;
        loop {
            match stream.read(&mut piece) {
                Ok(0) => {
                    if self.lie == Lie::DiesHalfway && buf.starts_with(b"POST") {
                        self.die();
                    }
                    return;
                }
                Ok(length) => buf.extend_from_slice(&piece[..length]),
                Err(error) => {
                    if self.lie == Lie::DiesOfReset && error.kind() == ErrorKind::ConnectionReset {
                        self.die();
                    }
                    return;
                }
            }
            if self.lie == Lie::DiesOfGarbage && buf.contains(&0xff) {
                self.die();
                return;
            }
            if self.lie == Lie::NeverAnswers {
                continue;
            }
            if self.lie == Lie::AnswersEachPiece {
                let _ = stream.write_all(&self.answer(&Request::plain()).0);
                buf.clear();
                continue;
            }
            let mut answers = Vec::new();
            let mut out = Vec::new();
            let mut close = false;
            while let Some(request) = self.take(&mut buf, &mut continued, &mut out) {
                let (bytes, ends) = self.answer(&request);
                answers.push(bytes);
                close |= ends;
                if close {
                    break;
                }
            }
            match self.lie {
                Lie::SwapsPipelined => answers.reverse(),
                Lie::DropsPipelined => answers.truncate(1),
                Lie::AnswersTwice => {
                    answers = answers.iter().flat_map(|a| [a.clone(), a.clone()]).collect()
                }
                _ => {}
            }
            out.extend(answers.concat());
            if stream.write_all(&out).is_err() {
                return;
            }
            if close {
                let _ = stream.shutdown(Shutdown::Write);
                return;
            }
        }
    }

    /// The first whole request of the buffer.
    fn take(&self, buf: &mut Vec<u8>, continued: &mut bool, out: &mut Vec<u8>) -> Option<Request> {
        if buf.len() > 60_000 && self.lie == Lie::RefusesLargeHeaders {
            return Some(Request { status: 0, ..Request::plain() });
        }
        let end = buf.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
        let mut request = Request::parse(&buf[..end], self.lie);
        let chunked = request.field("transfer-encoding").is_some();
        let mut after = end;
        if chunked && self.lie != Lie::ReadsChunksAsRequests {
            loop {
                let line = buf[after..].windows(2).position(|w| w == b"\r\n")? + after;
                let size = std::str::from_utf8(&buf[after..line]).unwrap();
                let size = usize::from_str_radix(size, 16).unwrap_or(0);
                let from = line + 2;
                request.body.extend_from_slice(buf.get(from..from + size)?);
                buf.get(from + size..from + size + 2)?;
                after = from + size + 2;
                if size == 0 {
                    break;
                }
            }
        } else if let Some(length) = request.field("content-length").and_then(|v| v.parse().ok()) {
            let length: usize = length;
            if buf.len() < end + length {
                if request.field("expect").is_some() && !*continued && self.lie != Lie::NoContinue {
                    *continued = true;
                    out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                }
                return None;
            }
            request.body = buf[end..end + length].to_vec();
            after = end + length;
        }
        buf.drain(..after);
        Some(request)
    }

    fn answer(&self, request: &Request) -> (Vec<u8>, bool) {
        if request.status == 0 {
            return (Vec::new(), true);
        }
        let old = request.version == "HTTP/1.0";
        let (mut status, media_type, body) = self.content(request);
        if self.lie == Lie::RefusesOldClients && old {
            status = 505;
        }
        let count = self.count.load(Ordering::Relaxed);
        if self.lie == Lie::Logs || (self.lie == Lie::LogsHalf && count.is_multiple_of(2)) {
            let file = File::options().create(true).append(true).open("access.log");
            file.unwrap().write_all(b"asked\n").unwrap();
        }
        if self.lie == Lie::LogsHalf {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        let option = request.field("connection").unwrap_or_default();
        let mut close = (old && self.lie != Lie::IgnoresOldVersion)
            || (option == "close" && self.lie != Lie::IgnoresClose)
            || request.status != 200;
        let mut head = format!("HTTP/1.1 {status} Whatever\r\nContent-Type: {media_type}\r\n");
        if self.lie != Lie::NoServer {
            head += "Server: liar\r\n";
        }
        if self.lie != Lie::NoDate {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            head += &format!("Date: {}\r\n", self.date(now));
        }
        let mut payload = body.clone().into_bytes();
        if self.lie == Lie::ChunksForOldClients && old {
            head += "Transfer-Encoding: chunked\r\n";
            payload = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).into_bytes();
        } else if self.lie == Lie::EndsWithConnection {
            close = true;
        } else {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        if self.lie == Lie::ClosesAndSaysSo {
            head += "Connection: close\r\n";
        }
        close |= matches!(self.lie, Lie::ClosesAfterOne | Lie::ClosesAndSaysSo);
        head += "\r\n";
        if self.lie == Lie::BareLf {
            head = head.replace("\r\n", "\n");
        }
        if request.method == "HEAD" && self.lie != Lie::BodyAfterHead {
            payload.clear();
        }
        ([head.into_bytes(), payload].concat(), close)
    }

    fn date(&self, now: u64) -> String {
        let now = match self.lie {
            Lie::WrongDate => now + 3600,
            Lie::StaleDate => self.first(now),
            _ => now,
        };
        httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(now))
    }

    fn content(&self, request: &Request) -> (u16, &'static str, String) {
        let plain =
            if self.lie == Lie::WrongType { "text/html" } else { "text/plain; charset=utf-8" };
        if request.status != 200 {
            return (request.status, plain, "no".to_owned());
        }
        if self.site == Site::Json {
            return self.json(request);
        }
        let mut path = request.target.as_str();
        if self.lie != Lie::KnowsNoAbsoluteTarget && path.starts_with("http://") {
            path = path[7..].find('/').map_or("/", |at| &path[7 + at..]);
        }
        if self.lie == Lie::KnowsNoPath || (path != "/" && self.lie != Lie::KnowsAllPaths) {
            return (404, plain, "Not Found".to_owned());
        }
        let known = matches!(request.method.as_str(), "GET" | "HEAD" | "POST");
        if !known && self.lie != Lie::TakesAnyMethod {
            return (405, plain, "Method Not Allowed".to_owned());
        }
        let body = match (self.site, self.lie) {
            (_, Lie::WrongBody) => "Hello, world!".to_owned(),
            (_, Lie::Counts) => format!("Hello {}", self.count.fetch_add(1, Ordering::Relaxed)),
            (Site::Clock, _) => {
                let ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
                let ms = match self.lie {
                    Lie::StaleClock => u128::from(self.first(u64::try_from(ms).unwrap())),
                    Lie::WrongClock => ms - 5_000,
                    _ => ms,
                };
                format!("Hello World {ms}")
            }
            _ => "Hello, World!".to_owned(),
        };
        (200, plain, body)
    }

    fn json(&self, request: &Request) -> (u16, &'static str, String) {
        let json = "application/json";
        let text = match (request.target.as_str(), request.method.as_str()) {
            ("/bla", "GET" | "HEAD") => r#"{"results": [1, 2, 3]}"#.to_owned(),
            ("/bla", "POST") => {
                let typed = request.field("content-type").is_none_or(|t| t == json);
                if !typed && self.lie != Lie::TakesAnyMediaType {
                    return (406, json, "\"Not Acceptable\"".to_owned());
                }
                match serde_json::from_slice::<serde_json::Value>(&request.body) {
                    Ok(value) if value.is_object() => value.to_string(),
                    _ => return (400, json, "\"Bad Request\"".to_owned()),
                }
            }
            ("/bla", _) => return (405, json, "\"Method Not Allowed\"".to_owned()),
            (path, "GET") if path.starts_with("http://") => r#"{"results": [1, 2, 3]}"#.to_owned(),
            _ => return (404, json, "\"Not Found\"".to_owned()),
        };
        (200, json, text)
    }
}

impl Request {
    fn plain() -> Self {
        let text = |s: &str| s.to_owned();
        Self {
            method: text("GET"),
            target: text("/"),
            version: text("HTTP/1.1"),
            fields: Vec::new(),
            body: Vec::new(),
            status: 200,
        }
    }

    fn parse(head: &[u8], lie: Lie) -> Self {
        let mut request = Self::plain();
        let text = String::from_utf8_lossy(head).into_owned();
        let text = match lie {
            Lie::DropsFoldedHeaders => text,
            _ => text.replace("\r\n ", " "),
        };
        let mut lines = text.trim_start().split("\r\n");
        let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let mut refuse = |status| request.status = status;
        let [method, target, version] = words[..] else {
            refuse(400);
            return request;
        };
        if !version.starts_with("HTTP/1.") && lie != Lie::TakesAnyVersion {
            refuse(505);
        }
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in lines.filter(|line| !line.is_empty()) {
            match line.split_once(':') {
                Some((name, _)) if name.ends_with(' ') && lie != Lie::TakesSpaceBeforeColon => {
                    refuse(400);
                }
                Some((name, value)) => {
                    let name = name.to_ascii_lowercase();
                    let again = fields.iter().any(|(n, _)| *n == name);
                    if again && name == "content-length" && lie != Lie::TakesTwoLengths {
                        refuse(400);
                    }
                    fields.push((name, value.trim().to_owned()));
                }
                // Taken for the end of everything.
                None => refuse(0),
            }
        }
        let has_host = fields.iter().any(|(name, _)| name == "host");
        if version == "HTTP/1.1" && !has_host && lie != Lie::TakesNoHost {
            refuse(400);
        }
        request.method = method.to_owned();
        request.target = target.to_owned();
        request.version = version.to_owned();
        request.fields = fields;
        request
    }
}
