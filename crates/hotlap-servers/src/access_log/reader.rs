//! Collects the lines of a log: distinct requests, their order, and what is left out.

use std::collections::HashMap;

use hotlap_load::plan::{DueTimes, Entry, ExpectedStatus, Field, MAX_BY_REQUEST, Source, shuffle};

use super::record::{Cause, Record};
use super::{AccessLog, Complaint, LeftOut, Replay, ReplayOrder};
use crate::contract::{Ask, Fields, Requests};

/// The number of methods that are counted separately; a log may contain anything.
const METHODS: usize = 20;

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
        let taken = line.and_then(Record::parse).and_then(|record| self.record(record));
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
        let fields = Fields { list, seed: 0, order: Some(self.entries.into()) };
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
                    "this line {cause}, and none of all {of} lines can be sent. Logs in Common or \
                     Combined Log Format, of Caddy, and of nginx in JSON can be read"
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
        // RFC 9110 section 8.6: a request whose method expects a body should say that it has none.
        let has_length = matches!(self.method.as_str(), "POST" | "PUT" | "PATCH");
        let length = has_length.then(|| ("Content-Length".to_owned(), "0".to_owned()));
        Ask {
            name: Some(format!("{} {status}", self.method)),
            method: self.method.clone(),
            path: format!("${{{field}}}"),
            headers: length.into_iter().collect(),
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
