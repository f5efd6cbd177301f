//! How a faulty server parses a request.

use super::fault::Fault;

/// A complete request.
#[derive(Debug)]
pub(super) struct Request {
    pub method: String,
    pub target: String,
    pub version: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub problem: Option<Problem>,
}

/// What a server does with an invalid request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Problem {
    /// It sends this status and closes the connection.
    Status(u16),
    /// It closes the connection without a response.
    Close,
}

/// The result of parsing bytes.
#[derive(Debug)]
pub(super) enum Parsed {
    /// The beginning of a request; its head may expect `100 (Continue)`.
    Incomplete { expects_continue: bool },
    /// A request and its length.
    Complete(Request, usize),
}

impl Request {
    /// `GET /`.
    pub fn plain() -> Self {
        Self {
            method: "GET".to_owned(),
            target: "/".to_owned(),
            version: "HTTP/1.1".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            problem: None,
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    fn refuse(&mut self, status: u16) {
        self.problem = Some(Problem::Status(status));
    }

    /// Parses the head, line by line.
    fn of_head(head: &[u8], fault: Fault) -> Self {
        let mut request = Self::plain();
        let text = String::from_utf8_lossy(head).into_owned();
        let text = match fault {
            Fault::ClosesOnFoldedHeaders => text,
            _ => text.replace("\r\n ", " "),
        };
        let mut lines = text.trim_start().split("\r\n");
        let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let [method, target, version] = words[..] else {
            request.refuse(400);
            return request;
        };
        if !version.starts_with("HTTP/1.") && fault != Fault::AcceptsAnyVersion {
            request.refuse(505);
        }
        for line in lines.filter(|line| !line.is_empty()) {
            let Some((name, value)) = line.split_once(':') else {
                request.problem = Some(Problem::Close);
                continue;
            };
            if name.ends_with(' ') && fault != Fault::AcceptsSpaceBeforeColon {
                request.refuse(400);
                continue;
            }
            let name = name.to_ascii_lowercase();
            let is_second_length = name == "content-length" && request.header(&name).is_some();
            if is_second_length && fault != Fault::AcceptsTwoLengths {
                request.refuse(400);
            }
            request.headers.push((name, value.trim().to_owned()));
        }
        let lacks_host = version == "HTTP/1.1" && request.header("host").is_none();
        if lacks_host && fault != Fault::AcceptsMissingHost {
            request.refuse(400);
        }
        (request.method, request.target) = (method.to_owned(), target.to_owned());
        version.clone_into(&mut request.version);
        request
    }
}

/// Parses the first request in `bytes`.
pub(super) fn parse(bytes: &[u8], fault: Fault) -> Parsed {
    if bytes.len() > 60_000 && fault == Fault::ClosesOnLargeHeaders {
        let request = Request { problem: Some(Problem::Close), ..Request::plain() };
        return Parsed::Complete(request, bytes.len());
    }
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        return Parsed::Incomplete { expects_continue: false };
    };
    let (head, rest) = bytes.split_at(end + 4);
    let mut request = Request::of_head(head, fault);
    let is_chunked = request.header("transfer-encoding").is_some();
    let body = match request.header("content-length").and_then(|value| value.parse().ok()) {
        _ if is_chunked && fault != Fault::TakesChunksForRequests => chunked(rest),
        Some(length) => rest.get(..length).map(|body| (body.to_vec(), length)),
        None => Some((Vec::new(), 0)),
    };
    let Some((body, length)) = body else {
        return Parsed::Incomplete { expects_continue: request.header("expect").is_some() };
    };
    request.body = body;
    Parsed::Complete(request, head.len() + length)
}

/// The content of a chunked body and its length on the wire; `None` if it is incomplete.
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
