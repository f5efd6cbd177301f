//! Reads access logs, so that the requests that a server really got can be sent again.
//!
//! A log becomes a few requests, one for each combination of method and expected status. The path
//! is a field of each request. A list of entries gives the order and the path of each request that
//! is sent. The result takes memory in proportion to the number of distinct paths, plus 8 bytes
//! per line. If the times of the lines are kept, each line takes 4 bytes more.
//!
//! Bodies are not compared. A log does not contain them, and learning them would take a few
//! requests for each path.

mod formats;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::contract::{Ask, Fields, Requests};
use formats::{Time, parse_combined, parse_json};
use hotlap_load::http::is_token;
use hotlap_load::plan::{
    DueTimes, ExpectedStatus, Field, MAX_BY_REQUEST, OrderEntry, ValueSource, shuffle,
};

/// Why an access log cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct AccessLogError {
    /// The path of the log.
    pub file: PathBuf,
    /// The line number, counted from 1.
    pub line: Option<u64>,
    /// What is wrong with the log, and what to do.
    pub what: String,
}

/// Reads a log.
///
/// # Errors
/// If the file cannot be read, is compressed, has an endless line, or has no request that can be
/// sent.
pub fn read(file: &Path, replay: Replay) -> Result<AccessLog, AccessLogError> {
    let wrong = |line, what| AccessLogError { file: file.to_owned(), line, what };
    let log =
        File::open(file).map_err(|error| wrong(None, format!("cannot read the file: {error}")))?;
    parse(BufReader::with_capacity(1 << 20, log), replay).map_err(|(line, what)| wrong(line, what))
}

/// Parses a log.
///
/// # Errors
/// The errors of [`read`].
pub fn parse(mut log: impl BufRead, replay: Replay) -> Result<AccessLog, Complaint> {
    let failed = |error: io::Error| (None, format!("cannot read the file: {error}"));
    // The magic numbers of gzip (RFC 1952 section 2.3.1) and Zstandard (RFC 8878 section 3.1.1).
    let start = log.fill_buf().map_err(failed)?;
    if start.starts_with(&[0x1f, 0x8b]) || start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Err((None, "the log is compressed: unpack it first".to_owned()));
    }
    let (mut reader, mut line) = (LogReader::new(replay), Vec::new());
    for number in 1.. {
        line.clear();
        let read = log.by_ref().take(LONGEST as u64).read_until(b'\n', &mut line);
        if read.map_err(failed)? == 0 {
            break;
        }
        let is_whole = line.ends_with(b"\n") || line.len() < LONGEST;
        if !is_whole {
            let skipped = log.by_ref().take(ENDLESS).skip_until(b'\n').map_err(failed)?;
            if skipped as u64 == ENDLESS {
                return Err((
                    Some(number),
                    format!(
                        "the line does not end within {} MB, so this file is not an access log: \
                         name another file",
                        ENDLESS / 1_000_000
                    ),
                ));
            }
        }
        reader.line(number, if is_whole { Ok(line.trim_ascii()) } else { Err(Cause::TooLong) });
    }
    reader.finish()
}

/// How a log is replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replay {
    /// The order of the requests.
    pub order: ReplayOrder,
    /// Whether methods other than GET and HEAD are sent, too.
    pub unsafe_methods: bool,
}

/// The order in which the requests of a log are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReplayOrder {
    /// The order of the lines.
    Lines,
    /// A random order, with each request as often as in the log.
    Random {
        /// The seed of the order. The same seed gives the same order.
        seed: u64,
    },
    /// Each request at its recorded time.
    Times {
        /// The speed relative to the log. At a speed of 2, the log is replayed twice as fast.
        speed: f64,
    },
}

/// The contents of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessLog {
    /// The requests, and the order in which they are sent.
    pub requests: Requests,
    /// When the requests are due. `None` unless the order is [`ReplayOrder::Times`].
    pub due: Option<DueTimes>,
    /// The lines that are not sent.
    pub left_out: LinesLeftOut,
}

/// The lines of a log that are not sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinesLeftOut {
    /// The number of lines in the log that are not blank.
    pub of: u64,
    /// The number of lines without a request that can be sent.
    pub lines: u64,
    /// The number of the first such line, counted from 1, and its error, such as `has no request`.
    pub first: Option<(u64, String)>,
    /// The number of requests that are left out because of their method, by method. Many methods
    /// are counted together as `others`.
    pub methods: BTreeMap<String, u64>,
}

/// The number of methods that are counted separately. Because a log may contain anything, there is
/// a limit.
const METHODS: usize = 20;

/// The number of a line in a log, and what is wrong with the line or the log.
type Complaint = (Option<u64>, String);

/// The state of the parser while it reads a log.
struct LogReader {
    replay: Replay,
    groups: Vec<Group>,
    entries: Vec<OrderEntry>,
    /// The times of the entries in nanoseconds since 1970. Empty unless the order is
    /// [`ReplayOrder::Times`].
    times_ns: Vec<u64>,
    /// Whether all times are whole seconds.
    has_whole_seconds: bool,
    left_out: LinesLeftOut,
    first: Option<(u64, Cause)>,
}

impl LogReader {
    fn new(replay: Replay) -> Self {
        Self {
            replay,
            groups: Vec::new(),
            entries: Vec::new(),
            times_ns: Vec::new(),
            has_whole_seconds: true,
            left_out: LinesLeftOut::default(),
            first: None,
        }
    }

    /// Adds a line. `number` is the line number, counted from 1.
    fn line(&mut self, number: u64, line: Result<&[u8], Cause>) {
        if line.as_ref().is_ok_and(|line| line.is_empty()) {
            return;
        }
        self.left_out.of += 1;
        let taken = line.and_then(record).and_then(|record| self.record(record));
        if let Err(cause) = taken {
            self.left_out.lines += 1;
            self.first.get_or_insert((number, cause));
        }
    }

    fn record(&mut self, record: Record<'_>) -> Result<(), Cause> {
        let Record { method, path, status, time } = record;
        if !self.replay.unsafe_methods && method != "GET" && method != "HEAD" {
            let known = &mut self.left_out.methods;
            let is_listed = known.len() < METHODS || known.contains_key(method.as_ref());
            let name = if is_listed { method.as_ref() } else { "others" };
            match known.get_mut(name) {
                Some(count) => *count += 1,
                None => _ = known.insert(name.to_owned(), 1),
            }
            return Ok(());
        }
        let time = match (self.replay.order, time) {
            (ReplayOrder::Times { .. }, None) => return Err(Cause::NoTime),
            (ReplayOrder::Times { .. }, time) => time,
            _ => None,
        };
        let is_group = |group: &Group| group.method == method && group.status == status;
        let index = match self.groups.iter().position(is_group) {
            Some(index) => index,
            None if self.groups.len() == MAX_BY_REQUEST => return Err(Cause::ManyKinds),
            None => {
                let method = method.into_owned();
                self.groups.push(Group { method, status, paths: HashMap::new(), count: 0 });
                self.groups.len() - 1
            }
        };
        let group = &mut self.groups[index];
        group.count += 1;
        let next = group.paths.len() as u32;
        let value = match group.paths.get(path.as_ref()) {
            Some(value) => *value,
            None => *group.paths.entry(path.into_owned()).or_insert(next),
        };
        self.entries.push(OrderEntry { request: index as u32, value });
        if let Some(time) = time {
            self.times_ns.push(time.ns);
            self.has_whole_seconds &= time.is_whole_second;
        }
        Ok(())
    }

    /// Returns the contents of the log after its last line.
    fn finish(mut self) -> Result<AccessLog, Complaint> {
        if self.entries.is_empty() {
            return Err(self.nothing());
        }
        self.left_out.first = self.first.take().map(|(line, cause)| (line, cause.to_string()));
        let due = match self.replay.order {
            ReplayOrder::Lines => None,
            ReplayOrder::Random { seed } => {
                shuffle(&mut self.entries, seed);
                None
            }
            ReplayOrder::Times { speed } => Some(DueTimes::new(&self.by_time(), speed)),
        };
        // Put the most frequent request first, because it is sent to find out whether a server is
        // up.
        let mut ranks: Vec<usize> = (0..self.groups.len()).collect();
        ranks.sort_by_key(|index| std::cmp::Reverse(self.groups[*index].count));
        let mut places = vec![0; ranks.len()];
        for (place, index) in (0..).zip(&ranks) {
            places[*index] = place;
        }
        self.entries.iter_mut().for_each(|e| e.request = places[e.request as usize]);
        let mut groups: Vec<Option<Group>> = self.groups.into_iter().map(Some).collect();
        let (mut asks, mut list) = (Vec::new(), Vec::new());
        for group in ranks.into_iter().filter_map(|index| groups[index].take()) {
            let name = format!("path{}", list.len());
            asks.push(group.ask(&name));
            list.push(group.field(name));
        }
        let fields = Fields { list, seed: 0, unique: 0, order: Some(self.entries.into()) };
        Ok(AccessLog { requests: Requests { asks, fields }, due, left_out: self.left_out })
    }

    /// Explains why the log has no request that can be sent.
    fn nothing(self) -> Complaint {
        let LinesLeftOut { of, lines, .. } = self.left_out;
        match self.first {
            _ if of == 0 => (None, "the log is empty".to_owned()),
            Some((line, Cause::NoTime)) if lines == of => {
                let what = format!(
                    "no line can be sent ({of} in all): this line has no time. --replay order \
                     needs no times"
                );
                (Some(line), what)
            }
            Some((line, cause)) if lines == of => {
                let what = format!(
                    "no line can be sent ({of} in all): this line {cause}. hotlap reads the \
                     Common and the Combined Log Format, and the JSON of Caddy and nginx"
                );
                (Some(line), what)
            }
            _ => {
                let what = "no GET or HEAD can be sent: --unsafe-methods sends the other methods";
                (None, what.to_owned())
            }
        }
    }

    /// Sorts the entries by time and returns their times. If all times are whole seconds, the
    /// requests of each second are spread evenly over it.
    fn by_time(&mut self) -> Vec<u64> {
        let times = std::mem::take(&mut self.times_ns);
        let mut all: Vec<(u64, OrderEntry)> =
            times.into_iter().zip(self.entries.drain(..)).collect();
        // A server logs a request when the request ends, so lines may be slightly out of order.
        all.sort_by_key(|(time, _)| *time);
        let mut times_ns = Vec::with_capacity(all.len());
        for second in all.chunk_by(|a, b| a.0 == b.0) {
            let gap_ns = if self.has_whole_seconds { 1_000_000_000 } else { 0 };
            let count = second.len() as u64;
            times_ns.extend((0..count).zip(second).map(|(n, (time, _))| time + gap_ns * n / count));
        }
        self.entries.extend(all.into_iter().map(|(_, entry)| entry));
        times_ns
    }
}

/// Recognises the format of a line, and parses it.
fn record(line: &[u8]) -> Result<Record<'_>, Cause> {
    // Some tools write a byte order mark.
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if line.starts_with(b"{") { parse_json(line) } else { parse_combined(line) }
}

/// The requests with one method and one expected status.
struct Group {
    method: String,
    status: ExpectedStatus,
    /// The paths, each with its index.
    paths: HashMap<String, u32>,
    /// The number of lines with these requests.
    count: u64,
}

impl Group {
    /// Returns the request of the group. `field` is the name of the field that contains its path.
    fn ask(&self, field: &str) -> Ask {
        let status = match self.status {
            ExpectedStatus::Exactly(status) => status.to_string(),
            ExpectedStatus::Success => "2xx".to_owned(),
            ExpectedStatus::Any => "any status".to_owned(),
        };
        Ask {
            name: Some(format!("{} {status}", self.method)),
            method: self.method.clone(),
            path: format!("${{{field}}}"),
            status: self.status,
            ..Ask::default()
        }
    }

    fn field(self, name: String) -> Field {
        let mut values = vec![String::new(); self.paths.len()];
        for (path, number) in self.paths {
            values[number as usize] = path;
        }
        Field::new(name, ValueSource::Choice { values: values.into(), random: false })
    }
}

/// The length limit of a line, in bytes. By default, Apache and nginx accept request lines of up
/// to 8 KiB. Caddy also logs all headers.
const LONGEST: usize = 256 * 1024;

/// A file without a line break in this many bytes, such as `/dev/zero`, is not a log.
const ENDLESS: u64 = 64 << 20;

/// Why a line cannot be sent. Each message continues "line 12 …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Cause {
    #[error("is neither in the Common or Combined Log Format nor a JSON object")]
    Format,
    #[error("is longer than {} KiB", LONGEST / 1024)]
    TooLong,
    #[error("has no request")]
    NoRequest,
    #[error("has a request that is not HTTP")]
    NotHttp,
    #[error("opens a tunnel (CONNECT)")]
    Tunnel,
    #[error("has a request without a path")]
    NoPath,
    #[error("has a space or a control character in its path")]
    Control,
    #[error("has no status")]
    NoStatus,
    #[error("has the status {0}, which a replay cannot get")]
    NoResponse(u16),
    #[error("has no time")]
    NoTime,
    #[error("has a combination of method and status that is not one of the first 100")]
    ManyKinds,
}

/// The request that a line describes.
#[derive(Debug, Clone, PartialEq)]
struct Record<'a> {
    method: Cow<'a, str>,
    /// The path and query, which start with `/` and are ASCII without spaces and control
    /// characters.
    path: Cow<'a, str>,
    status: ExpectedStatus,
    time: Option<Time>,
}

impl<'a> Record<'a> {
    /// Creates a record from the parts that every format has.
    fn new(
        method: Cow<'a, str>,
        target: Cow<'a, [u8]>,
        status: u16,
        time: Option<Time>,
    ) -> Result<Self, Cause> {
        if method == "CONNECT" {
            return Err(Cause::Tunnel);
        }
        if !is_token(&method) {
            return Err(Cause::NotHttp);
        }
        Ok(Self { method, path: path(target)?, status: expected(status)?, time })
    }

    fn into_owned(self) -> Record<'static> {
        Record {
            method: Cow::Owned(self.method.into_owned()),
            path: Cow::Owned(self.path.into_owned()),
            status: self.status,
            time: self.time,
        }
    }
}

/// Splits a request line into method and target. The version may be missing (HTTP/0.9).
fn split(request: Cow<'_, [u8]>) -> Result<(Cow<'_, str>, Cow<'_, [u8]>), Cause> {
    fn parts(request: &[u8]) -> Result<(&str, &[u8]), Cause> {
        if request.is_empty() || request == b"-" {
            return Err(Cause::NoRequest);
        }
        let space = request.iter().position(|b| *b == b' ').ok_or(Cause::NotHttp)?;
        let (method, rest) = (&request[..space], &request[space + 1..]);
        let method = std::str::from_utf8(method).map_err(|_| Cause::NotHttp)?;
        let version = rest.iter().rposition(|b| *b == b' ');
        let end = version.filter(|at| rest[at + 1..].starts_with(b"HTTP/")).unwrap_or(rest.len());
        Ok((method, &rest[..end]))
    }
    Ok(match request {
        Cow::Borrowed(request) => {
            let (method, target) = parts(request)?;
            (Cow::Borrowed(method), Cow::Borrowed(target))
        }
        Cow::Owned(request) => {
            let (method, target) = parts(&request)?;
            (Cow::Owned(method.to_owned()), Cow::Owned(target.to_owned()))
        }
    })
}

/// Returns the path and query of a request target. A request to a proxy has a whole URL as its
/// target (RFC 9112 section 3.2.2). Bytes beyond ASCII are percent-encoded, as in browsers.
fn path(target: Cow<'_, [u8]>) -> Result<Cow<'_, str>, Cause> {
    if target.iter().any(|b| *b <= b' ' || *b == 0x7f) {
        return Err(Cause::Control);
    }
    let is_path = target.starts_with(b"/");
    if is_path && target.is_ascii() {
        return match target {
            Cow::Borrowed(path) => {
                std::str::from_utf8(path).map(Cow::Borrowed).map_err(|_| Cause::NoPath)
            }
            Cow::Owned(path) => String::from_utf8(path).map(Cow::Owned).map_err(|_| Cause::NoPath),
        };
    }
    let mut path = String::with_capacity(target.len());
    let rest = if is_path { target.as_ref() } else { after_authority(&target)? };
    if !rest.starts_with(b"/") {
        path.push('/');
    }
    for byte in rest {
        match byte.is_ascii() {
            true => path.push(char::from(*byte)),
            false => path += &format!("%{byte:02X}"),
        }
    }
    Ok(Cow::Owned(path))
}

/// Returns the part of an `http` or `https` URL after the host and port.
fn after_authority(url: &[u8]) -> Result<&[u8], Cause> {
    let has = |scheme: &[u8]| {
        url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let scheme = if has(b"http://") {
        7
    } else if has(b"https://") {
        8
    } else {
        return Err(Cause::NoPath);
    };
    let authority = &url[scheme..];
    let end = authority.iter().position(|b| b"/?#".contains(b)).unwrap_or(authority.len());
    Ok(&authority[end..])
}

/// Returns the status to expect from a replay, given the status in the log.
fn expected(status: u16) -> Result<ExpectedStatus, Cause> {
    Ok(match status {
        // These statuses depend on conditions and ranges in headers, which the log does not have.
        206 | 304 | 412 | 416 => ExpectedStatus::Success,
        // These statuses depend on the server's state or, for nginx's 499, on a client that left.
        429 | 499 | 500..=599 => ExpectedStatus::Any,
        // A protocol switch needs headers. nginx logs the other statuses for requests that it
        // rejected or left without a response.
        100..=199 | 444 | 494..=498 => return Err(Cause::NoResponse(status)),
        200..=999 => ExpectedStatus::Exactly(status),
        _ => return Err(Cause::NoStatus),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use proptest::prelude::*;

    const LINES: Replay = Replay { order: ReplayOrder::Lines, unsafe_methods: false };

    fn common(time: &str, request: &str, status: u16) -> String {
        format!("192.0.2.1 - - [24/Nov/2026:{time} +0000] \"{request}\" {status} 12\n")
    }

    fn parsed(log: &str, replay: Replay) -> AccessLog {
        parse(log.as_bytes(), replay).unwrap()
    }

    /// Returns the requests in the order in which they are sent, each as its name and path.
    fn sent(log: &AccessLog) -> Vec<(String, String)> {
        let Requests { asks, fields } = &log.requests;
        let path = |entry: &OrderEntry| match &fields.list[entry.request as usize].source {
            ValueSource::Choice { values, .. } => values[entry.value as usize].clone(),
            other => panic!("{other:?}"),
        };
        let name = |entry: &OrderEntry| asks[entry.request as usize].name.clone().unwrap();
        fields.order.as_ref().unwrap().iter().map(|e| (name(e), path(e))).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn requests_are_grouped_by_method_and_status_and_keep_their_order() {
        let log = [
            common("08:00:00", "GET /missing HTTP/1.1", 404),
            common("08:00:00", "GET /a HTTP/1.1", 200),
            common("08:00:01", "HEAD /a HTTP/1.1", 200),
            common("08:00:01", "GET /b HTTP/1.1", 200),
            common("08:00:02", "GET /a HTTP/1.1", 200),
            common("08:00:02", "GET /a HTTP/1.1", 304),
            common("08:00:02", "GET /a HTTP/1.1", 503),
        ];
        let log = parsed(&log.concat(), LINES);
        let expected = [
            ("GET 404", "/missing"),
            ("GET 200", "/a"),
            ("HEAD 200", "/a"),
            ("GET 200", "/b"),
            ("GET 200", "/a"),
            ("GET 2xx", "/a"),
            ("GET any status", "/a"),
        ];
        assert_eq!(sent(&log), pairs(&expected));
        assert_eq!(log.requests.asks[0].name.as_deref(), Some("GET 200"));
        let ValueSource::Choice { values, .. } = &log.requests.fields.list[0].source else {
            panic!()
        };
        assert_eq!(values[..], ["/a", "/b"]);
        assert_eq!(log.left_out, LinesLeftOut { of: 7, ..LinesLeftOut::default() });
    }

    #[test]
    fn other_methods_are_left_out_or_sent_without_bodies() {
        let requests = ["GET / HTTP/1.1", "POST /a HTTP/1.1", "POST /b HTTP/1.1", "DELETE /a"];
        let log = requests.map(|request| common("08:00:00", request, 200)).concat();
        let safe = parsed(&log, LINES);
        assert_eq!(sent(&safe), pairs(&[("GET 200", "/")]));
        let methods = [("POST", 2), ("DELETE", 1)].map(|(name, count)| (name.to_owned(), count));
        assert_eq!(safe.left_out.methods, methods.into());
        assert_eq!(safe.left_out.lines, 0);
        let all = parsed(&log, Replay { unsafe_methods: true, ..LINES });
        assert_eq!(sent(&all)[1..3], pairs(&[("POST 200", "/a"), ("POST 200", "/b")]));
        let post = all.requests.asks.iter().find(|ask| ask.method == "POST").unwrap();
        assert!(post.headers.is_empty(), "the request states its length by itself");
    }

    #[test]
    fn lines_that_cannot_be_sent_are_counted_and_the_first_is_named() {
        let mut log = common("08:00:00", "GET / HTTP/1.1", 200) + "\n\n";
        log += "nonsense\n";
        log += &"x".repeat(3 * LONGEST);
        log += "\n";
        log += &common("08:00:00", "-", 408);
        log += &common("08:00:00", "GET /last", 200);
        let log = parsed(&log, LINES);
        assert_eq!(sent(&log), pairs(&[("GET 200", "/"), ("GET 200", "/last")]));
        assert_eq!((log.left_out.lines, log.left_out.of), (3, 5));
        let cause = "is neither in the Common or Combined Log Format nor a JSON object";
        assert_eq!(log.left_out.first, Some((4, cause.to_owned())));
    }

    #[test]
    fn a_log_without_requests_is_an_error_with_a_remedy() {
        let error = |log: &[u8], replay| parse(log, replay).unwrap_err();
        let (line, what) = error(b"\n\xff\xfe\0garbage\n{}\n", LINES);
        assert_eq!(line, Some(2));
        let expected = "no line can be sent (2 in all): this line is neither in the Common or";
        assert!(what.starts_with(expected), "{what}");
        assert_eq!(error(b"\n\n", LINES), (None, "the log is empty".to_owned()));
        assert!(error(b"\x1f\x8b\x08", LINES).1.contains("compressed"));
        let post = common("08:00:00", "POST / HTTP/1.1", 200);
        assert!(error(post.as_bytes(), LINES).1.contains("--unsafe-methods"));
        let timed = Replay { order: ReplayOrder::Times { speed: 1.0 }, ..LINES };
        let (line, what) = error(br#"{"request":"GET / HTTP/1.1","status":200}"#, timed);
        assert_eq!(line, Some(1));
        let expected =
            "no line can be sent (1 in all): this line has no time. --replay order needs no times";
        assert_eq!(what, expected);
        let missing = read(Path::new("/none/access.log"), LINES).unwrap_err().to_string();
        assert!(missing.starts_with("/none/access.log: cannot read the file: "), "{missing}");
    }

    #[test]
    fn requests_of_one_second_are_spread_over_it() {
        let times = ["08:00:00", "08:00:02", "08:00:02", "08:00:01", "08:00:02", "08:00:02"];
        let line = |(n, time): (usize, &&str)| common(time, &format!("GET /{n} HTTP/1.1"), 200);
        let log: String = times.iter().enumerate().map(line).collect();
        let timed = Replay { order: ReplayOrder::Times { speed: 2.0 }, ..LINES };
        let log = parsed(&log, timed);
        let paths: Vec<String> = sent(&log).into_iter().map(|(_, path)| path).collect();
        assert_eq!(paths, ["/0", "/3", "/1", "/2", "/4", "/5"]);
        let s = 1_000_000_000;
        let expected = [0, s, 2 * s, 2 * s + s / 4, 2 * s + s / 2, 2 * s + s / 4 * 3];
        assert_eq!(log.due, Some(DueTimes::new(&expected, 2.0)));
        assert_eq!(log.due.unwrap().span(), Duration::from_millis(1_375));
    }

    #[test]
    fn times_with_fractions_of_a_second_are_kept() {
        let line =
            |ts: &str| format!("{{\"request\":\"GET / HTTP/1.1\",\"status\":200,\"ts\":{ts}}}\n");
        let log = ["1700000000.25", "1700000000.25", "1700000000.5"].map(line).concat();
        let timed = Replay { order: ReplayOrder::Times { speed: 1.0 }, ..LINES };
        let expected = DueTimes::new(&[0, 0, 250_000_000], 1.0);
        assert_eq!(parsed(&log, timed).due, Some(expected));
    }

    #[test]
    fn a_random_order_has_each_request_as_often_as_the_log() {
        let log: String =
            (0..100).map(|n| common("08:00:00", &format!("GET /{}", n % 7), 200)).collect();
        let random = |seed| {
            let replay = Replay { order: ReplayOrder::Random { seed }, ..LINES };
            sent(&parsed(&log, replay))
        };
        assert_eq!(random(1), random(1));
        assert_ne!(random(1), random(2));
        let (mut some, mut all) = (random(1), sent(&parsed(&log, LINES)));
        assert_ne!(some, all);
        some.sort();
        all.sort();
        assert_eq!(some, all);
    }

    /// Asserts that every entry makes a valid request line, whatever the log contains.
    fn must_be_sendable(log: &[u8], order: ReplayOrder) {
        let Ok(read) = parse(log, Replay { order, unsafe_methods: true }) else { return };
        let lines = log.split(|b| *b == b'\n').count() as u64;
        assert!(read.left_out.lines <= read.left_out.of && read.left_out.of <= lines);
        for (name, path) in sent(&read) {
            assert!(path.starts_with('/'), "{path:?}");
            assert!(path.bytes().all(|b| b.is_ascii_graphic()), "{path:?}");
            assert!(!name.starts_with("CONNECT"), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            log in prop::collection::vec(any::<u8>(), 0..2_000), times: bool,
        ) {
            let order = if times { ReplayOrder::Times { speed: 1.0 } } else { ReplayOrder::Lines };
            must_be_sendable(&log, order);
        }

        /// Damages valid lines, because they get further in the parser than random bytes do.
        #[test]
        fn damaged_lines_are_read_without_a_panic(
            place in 0usize..400, bytes in prop::collection::vec(any::<u8>(), 0..4), times: bool,
        ) {
            let mut log = Vec::new();
            for line in SAMPLES.lines() {
                let mut line = line.as_bytes().to_vec();
                let at = place.min(line.len());
                let end = (at + bytes.len()).min(line.len());
                line.splice(at..end, bytes.iter().copied());
                log.extend(line);
                log.push(b'\n');
            }
            let order = if times { ReplayOrder::Times { speed: 1.0 } } else { ReplayOrder::Lines };
            must_be_sendable(&log, order);
        }
    }

    /// Lines with the same request, one in each format.
    const SAMPLES: &str = include_str!("access_log/samples.log");

    #[test]
    fn every_format_is_recognised() {
        for line in SAMPLES.lines() {
            let record = record(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e}"));
            let Record { method, path, status, time } = record;
            assert_eq!((method.as_ref(), path.as_ref()), ("GET", "/a?b=1"), "{line}");
            assert_eq!(status, ExpectedStatus::Exactly(200), "{line}");
            let expected = Time { ns: 1_795_508_644_000_000_000, is_whole_second: true };
            assert_eq!(time, Some(expected), "{line}");
        }
    }

    /// Parses a line of Common Log Format with `request` in it, and returns the path.
    fn path_of(request: &[u8]) -> Result<String, Cause> {
        let mut line = b"::1 - - [24/Nov/2026:08:24:04 +0000] \"".to_vec();
        line.extend(request);
        line.extend(b"\" 200 1");
        record(&line).map(|record| record.path.into_owned())
    }

    #[test]
    fn targets_become_paths() {
        for (request, expected) in [
            (&b"GET /a\\x22b\\\\c HTTP/1.1"[..], Ok("/a\"b\\c")),
            (br#"GET /say\"hi\" HTTP/1.0"#, Ok("/say\"hi\"")),
            (b"GET /caf\\xc3\\xa9 HTTP/1.1", Ok("/caf%C3%A9")),
            ("GET /café HTTP/1.1".as_bytes(), Ok("/caf%C3%A9")),
            (b"GET /\xff HTTP/1.1", Ok("/%FF")),
            (b"GET /x\\xzz HTTP/1.1", Ok("/x\\xzz")),
            (b"GET http://example.org HTTP/1.1", Ok("/")),
            (b"GET HTTPS://example.org:8443?q HTTP/1.1", Ok("/?q")),
            (b"GET http://[::1]:80/a%20b?c=/d HTTP/1.1", Ok("/a%20b?c=/d")),
            (b"GET ftp://example.org/a HTTP/1.1", Err(Cause::NoPath)),
            (b"OPTIONS * HTTP/1.1", Err(Cause::NoPath)),
            (b"CONNECT example.org:443 HTTP/1.1", Err(Cause::Tunnel)),
            (b"GET /a b HTTP/1.1", Err(Cause::Control)),
            (b"GET /a\\nb HTTP/1.1", Err(Cause::Control)),
            (b"GET /a\\x0d\\x0aX:1 HTTP/1.1", Err(Cause::Control)),
            (b"GET /a\x7fb HTTP/1.1", Err(Cause::Control)),
            (b"\\x16\\x03\\x01\\x02", Err(Cause::NotHttp)),
            (b"G\\x22T / HTTP/1.1", Err(Cause::NotHttp)),
            (b"GET", Err(Cause::NotHttp)),
            (b"GET ", Err(Cause::NoPath)),
            (b"-", Err(Cause::NoRequest)),
            (b"", Err(Cause::NoRequest)),
        ] {
            let name = String::from_utf8_lossy(request);
            assert_eq!(path_of(request), expected.map(str::to_owned), "{name}");
        }
    }

    #[test]
    fn a_status_that_depends_on_more_than_the_request_is_not_exact() {
        let status = |status: &str| {
            let line = format!("::1 - - [24/Nov/2026:08:24:04 +0000] \"GET /\" {status} 1");
            record(line.as_bytes()).map(|record| record.status)
        };
        for exact in [200, 204, 301, 400, 401, 404] {
            assert_eq!(status(&exact.to_string()), Ok(ExpectedStatus::Exactly(exact)));
        }
        for range in ["206", "304", "412", "416"] {
            assert_eq!(status(range), Ok(ExpectedStatus::Success));
        }
        for passing in ["429", "499", "500", "503"] {
            assert_eq!(status(passing), Ok(ExpectedStatus::Any));
        }
        assert_eq!(status("101"), Err(Cause::NoResponse(101)));
        assert_eq!(status("444"), Err(Cause::NoResponse(444)));
        for none in ["-", "000", "99", "2000", "+20", ""] {
            assert_eq!(status(none), Err(Cause::NoStatus), "{none:?}");
        }
    }

    #[test]
    fn hostile_json_is_left_out() {
        let deep = "{\"a\":".repeat(10_000);
        let nested = "{\"request\":{\"method\":".repeat(10_000);
        let lines = ["{", "{}", "{\"status\":200}", "{\"status\":{\"a\":[]},\"uri\":\"/\"}", &deep];
        for line in lines.into_iter().chain([nested.as_str()]) {
            assert!(record(line.as_bytes()).is_err());
        }
        let line = br#"{"request":{"method":"GET","uri":"/a\u0000b"},"status":200}"#;
        assert_eq!(record(line), Err(Cause::Control));
        let line = b"{\"request\":{\"method\":\"GET\",\"uri\":\"/\xff\"},\"status\":200}";
        assert_eq!(record(line), Err(Cause::Format));
        let line = br#"{"request":"GET / HTTP/1.1","status":200,"ts":-1}"#;
        assert_eq!(record(line).unwrap().time, None);
    }
}
