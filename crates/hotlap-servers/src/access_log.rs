//! Access logs: the requests that a server really got, to be sent again.
//!
//! A log becomes a few requests, one for each method and expected status, whose path is a field,
//! and the order in which they are sent with which path. Memory is proportional to the number of
//! distinct paths, plus 8 bytes a line, and 4 for its time.
//!
//! Bodies are not compared: a log does not have them, and learning them would take a few requests
//! for each path.

mod combined;
mod json;
mod reader;
mod record;
mod replay;
mod time;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use reader::{Complaint, LogReader};
use record::{Cause, LONGEST};
pub use replay::{AccessLog, LeftOut, Replay, ReplayOrder};

/// Why an access log cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct AccessLogError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: Option<u64>,
    /// What is wrong with it, and what to do.
    pub what: String,
}

/// Reads a log.
///
/// # Errors
/// When the file cannot be read, is compressed, or has no request that can be sent.
pub fn read(file: &Path, replay: Replay) -> Result<AccessLog, AccessLogError> {
    let wrong = |line, what| AccessLogError { file: file.to_owned(), line, what };
    let log = File::open(file).map_err(|error| wrong(None, format!("cannot read it: {error}")))?;
    parse(BufReader::with_capacity(1 << 20, log), replay).map_err(|(line, what)| wrong(line, what))
}

/// Parses a log.
///
/// # Errors
/// As for [`read`].
pub fn parse(mut log: impl BufRead, replay: Replay) -> Result<AccessLog, Complaint> {
    let failed = |error: io::Error| (None, format!("cannot read it: {error}"));
    // RFC 1952 section 2.3.1 and RFC 8878 section 3.1.1.
    let start = log.fill_buf().map_err(failed)?;
    if start.starts_with(&[0x1f, 0x8b]) || start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Err((None, "it is compressed: unpack it first".to_owned()));
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
            log.skip_until(b'\n').map_err(failed)?;
        }
        reader.line(number, if is_whole { Ok(line.trim_ascii()) } else { Err(Cause::TooLong) });
    }
    reader.finish()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hotlap_load::plan::{DueTimes, Entry, Source};
    use proptest::prelude::*;

    use super::*;
    use crate::contract::Requests;

    const LINES: Replay = Replay { order: ReplayOrder::Lines, unsafe_methods: false };

    fn common(time: &str, request: &str, status: u16) -> String {
        format!("192.0.2.1 - - [24/Nov/2026:{time} +0000] \"{request}\" {status} 12\n")
    }

    fn parsed(log: &str, replay: Replay) -> AccessLog {
        parse(log.as_bytes(), replay).unwrap()
    }

    /// The requests in the order in which they are sent: the name, and the path.
    fn sent(log: &AccessLog) -> Vec<(String, String)> {
        let Requests { asks, fields } = &log.requests;
        let path = |entry: &Entry| match &fields.list[entry.request as usize].source {
            Source::Choice { values, .. } => values[entry.value as usize].clone(),
            other => panic!("{other:?}"),
        };
        let name = |entry: &Entry| asks[entry.request as usize].name.clone().unwrap();
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
        let Source::Choice { values, .. } = &log.requests.fields.list[0].source else { panic!() };
        assert_eq!(values[..], ["/a", "/b"]);
        assert_eq!(log.left_out, LeftOut { of: 7, ..LeftOut::default() });
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
        let cause = "is neither in Common or Combined Log Format nor a JSON object";
        assert_eq!(log.left_out.first, Some((4, cause.to_owned())));
    }

    #[test]
    fn a_log_without_requests_is_an_error_with_a_remedy() {
        let error = |log: &[u8], replay| parse(log, replay).unwrap_err();
        let (line, what) = error(b"\n\xff\xfe\0garbage\n{}\n", LINES);
        assert_eq!(line, Some(2));
        let expected = "0 of 2 lines can be sent: this line is neither in Common or Combined Log";
        assert!(what.starts_with(expected), "{what}");
        assert_eq!(error(b"\n\n", LINES), (None, "the log is empty".to_owned()));
        assert!(error(b"\x1f\x8b\x08", LINES).1.contains("compressed"));
        let post = common("08:00:00", "POST / HTTP/1.1", 200);
        assert!(error(post.as_bytes(), LINES).1.contains("--unsafe-methods"));
        let timed = Replay { order: ReplayOrder::Times { speed: 1.0 }, ..LINES };
        let (line, what) = error(br#"{"request":"GET / HTTP/1.1","status":200}"#, timed);
        assert_eq!((line, what.as_str()), (Some(1), "no line has a time: use --replay order"));
        let missing = read(Path::new("/none/access.log"), LINES).unwrap_err().to_string();
        assert!(missing.starts_with("/none/access.log: cannot read it: "), "{missing}");
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

    /// What is sent is a request line of three parts, whatever the log has.
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

        /// Lines that are nearly right reach further than random bytes.
        #[test]
        fn damaged_lines_are_read_without_a_panic(
            place in 0usize..400, bytes in prop::collection::vec(any::<u8>(), 0..4), times: bool,
        ) {
            let mut log = Vec::new();
            for line in include_str!("access_log/samples.log").lines() {
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
}
