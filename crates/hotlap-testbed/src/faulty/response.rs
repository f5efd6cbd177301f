//! The responses of a faulty server.

use std::fs::File;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::fault::{Fault, Site};
use super::request::{Problem, Request};

/// The state that a server's responses depend on.
#[derive(Debug)]
pub(super) struct Responder {
    pub site: Site,
    pub fault: Fault,
    /// Starts at 7, so that the number changes its length within the first six requests.
    count: AtomicU64,
    /// The first time that was returned.
    first: OnceLock<u64>,
}

/// The bytes of a response.
pub(super) struct Response {
    pub bytes: Vec<u8>,
    /// Whether the connection closes after it.
    pub closes: bool,
}

impl Responder {
    pub fn new(site: Site, fault: Fault) -> Self {
        Self { site, fault, count: AtomicU64::new(7), first: OnceLock::new() }
    }

    pub fn respond(&self, request: &Request) -> Response {
        let fault = self.fault;
        if matches!(request.problem, Some(Problem::Close)) {
            return Response { bytes: Vec::new(), closes: true };
        }
        self.log();
        let is_old = request.version == "HTTP/1.0";
        let (mut status, content_type, body) = self.content(request);
        if fault == Fault::RefusesHttp10 && is_old {
            status = 505;
        }
        let asks_to_close = request.header("connection") == Some("close");
        let mut closes = (is_old && fault != Fault::KeepsHttp10Open)
            || (asks_to_close && fault != Fault::IgnoresConnectionClose)
            || request.problem.is_some();
        let mut head = format!("HTTP/1.1 {status} Whatever\r\nContent-Type: {content_type}\r\n");
        if fault != Fault::NoServerHeader {
            head += "Server: faulty\r\n";
        }
        if fault != Fault::NoDate {
            head += &format!("Date: {}\r\n", self.date());
        }
        let mut payload = body.clone().into_bytes();
        if fault == Fault::ChunksToHttp10 && is_old {
            head += "Transfer-Encoding: chunked\r\n";
            payload = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).into_bytes();
        } else if fault == Fault::NoContentLength {
            closes = true;
        } else {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        if fault == Fault::ClosesAnnounced {
            head += "Connection: close\r\n";
        }
        closes |= matches!(fault, Fault::ClosesUnannounced | Fault::ClosesAnnounced);
        head += "\r\n";
        if fault == Fault::BareLineFeeds {
            head = head.replace("\r\n", "\n");
        }
        if request.method == "HEAD" && fault != Fault::BodyToHead {
            payload.clear();
        }
        Response { bytes: [head.into_bytes(), payload].concat(), closes }
    }

    /// Writes the line for [`Fault::LogsRequests`].
    fn log(&self) {
        let logs = match self.fault {
            Fault::LogsRequests => true,
            Fault::LogsEveryOtherRequest => self.next_number().is_multiple_of(2),
            _ => false,
        };
        if logs {
            let file = File::options().create(true).append(true).open("access.log");
            file.expect("a log").write_all(b"request\n").expect("a log");
        }
    }

    fn date(&self) -> String {
        let now = since_1970().as_secs();
        let shown = match self.fault {
            Fault::WrongDate => now + 3600,
            Fault::StaleDate => self.first_or(now),
            _ => now,
        };
        httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(shown))
    }

    /// Status, content type and body.
    fn content(&self, request: &Request) -> (u16, &'static str, String) {
        let plain = match self.fault {
            Fault::WrongContentType => "text/html",
            _ => "text/plain; charset=utf-8",
        };
        if let Some(Problem::Status(status)) = request.problem {
            return (status, plain, "no".to_owned());
        }
        if self.site == Site::JsonApi {
            return self.json(request);
        }
        let mut path = request.target.as_str();
        if self.fault != Fault::RejectsAbsoluteTarget && path.starts_with("http://") {
            path = path[7..].find('/').map_or("/", |at| &path[7 + at..]);
        }
        if path != "/" && self.fault != Fault::AcceptsAnyPath {
            return (404, plain, "Not Found".to_owned());
        }
        let is_known = matches!(request.method.as_str(), "GET" | "HEAD" | "POST");
        if !is_known && self.fault != Fault::AcceptsAnyMethod {
            return (405, plain, "Method Not Allowed".to_owned());
        }
        let body = match (self.site, self.fault) {
            (_, Fault::WrongBody) => "Hello, world!".to_owned(),
            (_, Fault::CountsRequests) => format!("Hello {}", self.next_number()),
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
                    _ if !is_json && self.fault != Fault::AcceptsAnyMediaType => {
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

    /// Milliseconds since 1970.
    fn clock_ms(&self) -> u64 {
        let ms = u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX);
        match self.fault {
            Fault::StaleClock => self.first_or(ms),
            Fault::WrongClock => ms - 5_000,
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
