//! Collects the lines of a log: distinct requests, their order, and what is left out.

use std::collections::HashMap;

use hotlap_load::plan::{DueTimes, Entry, ExpectedStatus, Field, MAX_BY_REQUEST, Source, shuffle};

use super::record::{Cause, Record};
use super::replay::{AccessLog, LeftOut, Replay, ReplayOrder};
use super::{combined, json};
use crate::contract::{Ask, Fields, Requests};

/// The number of methods that are counted separately; a log may contain anything.
const METHODS: usize = 20;

/// What is wrong with a log, and in which line.
pub(super) type Complaint = (Option<u64>, String);

/// A log while it is read.
pub(super) struct LogReader {
    replay: Replay,
    groups: Vec<Group>,
    entries: Vec<Entry>,
    /// The times of the entries in nanoseconds since 1970, if they matter.
    times_ns: Vec<u64>,
    /// Whether all times are whole seconds.
    has_whole_seconds: bool,
    left_out: LeftOut,
    first: Option<(u64, Cause)>,
}

impl LogReader {
    pub(super) fn new(replay: Replay) -> Self {
        Self {
            replay,
            groups: Vec::new(),
            entries: Vec::new(),
            times_ns: Vec::new(),
            has_whole_seconds: true,
            left_out: LeftOut::default(),
            first: None,
        }
    }

    /// Takes the line with this number, counted from 1.
    pub(super) fn line(&mut self, number: u64, line: Result<&[u8], Cause>) {
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
        self.entries.push(Entry { request: index as u32, value });
        if let Some(time) = time {
            self.times_ns.push(time.ns);
            self.has_whole_seconds &= time.is_whole_second;
        }
        Ok(())
    }

    /// Ends the log.
    pub(super) fn finish(mut self) -> Result<AccessLog, Complaint> {
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
        // The most frequent request comes first: it shows whether a server is up.
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

    /// Why nothing can be sent.
    fn nothing(self) -> Complaint {
        let LeftOut { of, lines, .. } = self.left_out;
        match self.first {
            _ if of == 0 => (None, "the log is empty".to_owned()),
            Some((line, Cause::NoTime)) if lines == of => {
                (Some(line), "no line has a time: use --replay order".to_owned())
            }
            Some((line, cause)) if lines == of => {
                let what = format!(
                    "0 of {of} lines can be sent: this line {cause}. hotlap reads Common and \
                     Combined Log Format, and the JSON of Caddy and nginx"
                );
                (Some(line), what)
            }
            _ => {
                let what = "no request is a GET or a HEAD: --unsafe-methods sends the others";
                (None, what.to_owned())
            }
        }
    }

    /// Sorts the entries by time, and returns their times. If a log has whole seconds only, the
    /// requests of a second are spread evenly over it.
    fn by_time(&mut self) -> Vec<u64> {
        let times = std::mem::take(&mut self.times_ns);
        let mut all: Vec<(u64, Entry)> = times.into_iter().zip(self.entries.drain(..)).collect();
        // A server logs a request when it ends, so the order may differ a little.
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
    if line.starts_with(b"{") { json::parse(line) } else { combined::parse(line) }
}

/// The requests with one method and one expected status.
struct Group {
    method: String,
    status: ExpectedStatus,
    /// The number of each path.
    paths: HashMap<String, u32>,
    /// How often they are in the log.
    count: u64,
}

impl Group {
    /// The request, whose path is the field of that name.
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
        Field { name, source: Source::Choice { values: values.into(), random: false } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::time::Time;

    /// The same request in each format.
    const SAMPLES: &str = include_str!("samples.log");

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

    /// The path of a request in a line of Common Log Format.
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
