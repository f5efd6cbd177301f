//! Reads a suite file. The file's keys and the suite have separate types. This module expands lists
//! of values, and resolves names to servers and loads.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};

use hotlap_load::PlanError;
use hotlap_load::plan::{CONNECTIONS, Protocol, Reuse, Shape};
use hotlap_servers::catalogue::line_of;
use hotlap_servers::contract;
use hotlap_servers::launch::Counts;
use serde::de::value::MapAccessDeserializer;
use serde::de::{IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::definition::{
    Absent, Citation, CustomRequest, Loading, Publication, PublishedFigure, Question, STREAMS,
    Suite, SuiteError, SuiteServer, Written,
};
use crate::stress::Scenario;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default)]
    about: String,
    question: Option<Spanned<Question>>,
    contract: Option<Spanned<String>>,
    reference: Option<Spanned<String>>,
    duration: Option<Spanned<String>>,
    precision: Option<Spanned<String>>,
    slice: Option<Spanned<String>>,
    slo: Option<Spanned<String>>,
    cpus: Option<Spanned<usize>>,
    #[serde(default)]
    https: bool,
    #[serde(default)]
    leave_out_missing: bool,
    with_postgres: Option<PathBuf>,
    #[serde(default)]
    stress: Vec<Spanned<String>>,
    servers: Spanned<Vec<Spanned<Item>>>,
    #[serde(default)]
    load: Vec<Spanned<LoadKeys>>,
    request: Option<CustomRequest>,
    requests_file: Option<Spanned<PathBuf>>,
    access_log: Option<Spanned<PathBuf>>,
    #[serde(default)]
    published: Vec<SourceKeys>,
    #[serde(default)]
    absent: Vec<Absent>,
}

impl Keys {
    /// The question of the suite. By default, a suite with goals asks for the capacity, and any
    /// other suite for a comparison.
    fn question(&self) -> Question {
        match &self.question {
            Some(question) => *question.get_ref(),
            None if self.slo.is_some() => Question::Capacity,
            None => Question::Compare,
        }
    }
}

/// A server, given as its name alone or as a table.
struct Item(ServerKeys);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerKeys {
    run: String,
    name: Option<String>,
    on: Option<String>,
    #[serde(default)]
    cpus: List<usize>,
    counts: Option<Counts>,
}

/// A protocol, spelled as in suites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum ProtocolKey {
    #[serde(rename = "http/1.1")]
    Http1,
    #[serde(rename = "h2")]
    Http2,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadKeys {
    #[serde(default)]
    name: String,
    #[serde(default)]
    connections: List<usize>,
    #[serde(default)]
    threads: List<usize>,
    #[serde(default)]
    close: List<bool>,
    #[serde(default)]
    pipeline: List<usize>,
    #[serde(default)]
    protocol: List<ProtocolKey>,
    #[serde(default)]
    streams: List<usize>,
    #[serde(default)]
    request: List<String>,
    #[serde(default)]
    rate: List<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceKeys {
    source: String,
    year: u32,
    #[serde(default)]
    machine: String,
    #[serde(default)]
    command: String,
    #[serde(default)]
    doubt: String,
    reference: Option<Spanned<String>>,
    rows: Vec<Spanned<FigureKeys>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureKeys {
    server: String,
    cpus: Option<usize>,
    load: Option<String>,
    called: Option<String>,
    requests_per_s: f64,
    latency_ms: Option<[f64; 3]>,
    memory_mb: Option<f64>,
    cpu_percent: Option<f64>,
    socket_errors: Option<[u64; 4]>,
    #[serde(default)]
    doubt: String,
}

/// One value, or a list of values.
struct List<T>(Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Values<T> {
            type Value = List<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list of values")
            }
            fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<List<T>, E> {
                Ok(List(vec![T::deserialize(value.into_deserializer())?]))
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<List<T>, E> {
                Ok(List(vec![T::deserialize(value.into_deserializer())?]))
            }
            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<List<T>, E> {
                Ok(List(vec![T::deserialize(value.into_deserializer())?]))
            }
            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<List<T>, E> {
                Ok(List(vec![T::deserialize(value.into_deserializer())?]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = seq.next_element()? {
                    values.push(value);
                }
                Ok(List(values))
            }
        }
        deserializer.deserialize_any(Values(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Both;
        impl<'de> Visitor<'de> for Both {
            type Value = Item;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a server's name, or a table with `run`")
            }
            fn visit_str<E>(self, run: &str) -> Result<Item, E> {
                let (name, on, counts) = (None, None, None);
                Ok(Item(ServerKeys { run: run.to_owned(), name, on, cpus: List(vec![]), counts }))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Item, A::Error> {
                ServerKeys::deserialize(MapAccessDeserializer::new(map)).map(Item)
            }
        }
        deserializer.deserialize_any(Both)
    }
}

type Complaint = (Range<usize>, String);

/// Parses a suite file.
pub(super) fn parse(text: &str, file: &Path) -> Result<Suite, SuiteError> {
    let line = |offset: usize| line_of(text, offset);
    let wrong =
        |line: Option<usize>, what: String| SuiteError::Wrong { file: file.to_owned(), line, what };
    let keys: Keys = toml::from_str(text).map_err(|error| {
        wrong(error.span().map(|span| line(span.start)), error.message().replace('\n', " "))
    })?;
    suite(keys, file, &line).map_err(|(span, what)| wrong(Some(line(span.start)), what))
}

fn suite(keys: Keys, file: &Path, line: &dyn Fn(usize) -> usize) -> Result<Suite, Complaint> {
    let servers = entries(&keys, line)?;
    let loads = loads(&keys, line)?;
    let reference = match &keys.reference {
        None => 0,
        Some(named) => find(&servers, named.get_ref(), None)
            .ok_or_else(|| (named.span(), custom("reference", named.get_ref())))?,
    };
    if let Some(cpus) = keys.cpus.as_ref().filter(|c| *c.get_ref() == 0) {
        return Err((cpus.span(), "a server needs at least one core".to_owned()));
    }
    one_source_of_requests(&keys)?;
    if let Some(question) = &keys.question
        && (*question.get_ref() == Question::Capacity) != keys.slo.is_some()
    {
        let what = match keys.slo.is_some() {
            true => "slo works only with the question \"capacity\": leave out one of them",
            false => "the question \"capacity\" needs goals: add slo = \"p99<10ms\"",
        };
        return Err((question.span(), what.to_owned()));
    }
    let question = keys.question();
    if let (Some(asked), Question::Explain) = (&keys.question, question) {
        let what = "a suite cannot ask the question \"explain\": leave out the key, and use \
                    `hotlap run --suite … --explain`";
        return Err((asked.span(), what.to_owned()));
    }
    let contracts = contracts(&keys)?;
    let stress = keys.stress.iter().map(scenario).collect::<Result<_, _>>()?;
    let published = keys
        .published
        .into_iter()
        .map(|source| sourced(source, &servers, &loads, reference))
        .collect::<Result<_, _>>()?;
    let written =
        |text: Spanned<String>| Written { line: line(text.span().start), text: text.into_inner() };
    Ok(Suite {
        name: file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        file: file.to_owned(),
        question,
        about: keys.about.split_whitespace().collect::<Vec<_>>().join(" "),
        contracts,
        reference,
        duration: keys.duration.map(written),
        precision: keys.precision.map(written),
        slice: keys.slice.map(written),
        slo: keys.slo.map(written),
        cpus: keys.cpus.map(Spanned::into_inner),
        https: keys.https,
        leave_out_missing: keys.leave_out_missing,
        with_postgres: keys.with_postgres.map(|path| beside(file, &path)),
        stress,
        servers,
        loads,
        request: keys.request,
        requests_file: keys.requests_file.map(|path| beside(file, path.get_ref())),
        access_log: keys.access_log.map(|path| beside(file, path.get_ref())),
        published,
        absent: keys.absent,
    })
}

/// Checks that at most one key says what to request.
fn one_source_of_requests(keys: &Keys) -> Result<(), Complaint> {
    if let (Some(path), true) = (&keys.requests_file, keys.request.is_some()) {
        let what = "requests_file and [request] exclude each other: put all requests into the file";
        return Err((path.span(), what.to_owned()));
    }
    if let (Some(path), true) =
        (&keys.access_log, keys.request.is_some() || keys.requests_file.is_some())
    {
        let what = "access_log takes the place of requests_file and [request]: leave them out";
        return Err((path.span(), what.to_owned()));
    }
    Ok(())
}

fn contracts(keys: &Keys) -> Result<Vec<contract::Name>, Complaint> {
    let Some(names) = &keys.contract else { return Ok(Vec::new()) };
    contract::Name::list(names.get_ref()).map_err(|what| (names.span(), what))
}

/// Resolves a path that is relative to the folder of the suite file.
fn beside(file: &Path, path: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

fn custom(key: &str, name: &str) -> String {
    format!("{key} names {name:?}, which is not a server of this suite")
}

fn scenario(named: &Spanned<String>) -> Result<Scenario, Complaint> {
    let mut all = Scenario::all();
    match all.iter().position(|s| s.name == *named.get_ref()) {
        Some(found) => Ok(all.swap_remove(found)),
        None => {
            let there: Vec<&str> = all.iter().map(|s| s.name.as_str()).collect();
            let what =
                format!("unknown scenario {:?}: choose from {}", named.get_ref(), there.join(", "));
            Err((named.span(), what))
        }
    }
}

/// Returns the server with this name and, if given, this number of cores.
fn find(entries: &[SuiteServer], name: &str, cpus: Option<usize>) -> Option<usize> {
    entries.iter().position(|e| {
        let named = e.name.as_ref().unwrap_or(&e.run) == name || e.run == name || e.title() == name;
        named && (cpus.is_none() || e.cpus == cpus)
    })
}

fn entries(keys: &Keys, line: &dyn Fn(usize) -> usize) -> Result<Vec<SuiteServer>, Complaint> {
    let items = keys.servers.get_ref();
    if items.is_empty() {
        return Err((keys.servers.span(), "no servers: list at least one".to_owned()));
    }
    let mut entries: Vec<SuiteServer> = Vec::new();
    for item in items {
        let Item(server) = item.get_ref();
        if server.run.trim().is_empty() {
            return Err((item.span(), "a server needs a name or a command".to_owned()));
        }
        if server.cpus.0.contains(&0) {
            return Err((item.span(), "a server needs at least one core".to_owned()));
        }
        let cpus: Vec<Option<usize>> = match server.cpus.0.as_slice() {
            [] => vec![None],
            some => some.iter().copied().map(Some).collect(),
        };
        for cpus in cpus {
            let entry = SuiteServer {
                run: server.run.clone(),
                name: server.name.clone(),
                on: None,
                cpus,
                counts: server.counts.clone(),
                line: line(item.span().start),
            };
            if entries.iter().any(|e| e.title() == entry.title()) {
                let what =
                    format!("{} is listed twice: set another `name` or `cpus`", entry.title());
                return Err((item.span(), what));
            }
            entries.push(entry);
        }
    }
    stand(keys, &mut entries)?;
    Ok(entries)
}

/// Resolves which server each server builds on: the one named by `on` or, in a suite about layers,
/// the previous one.
fn stand(keys: &Keys, entries: &mut [SuiteServer]) -> Result<(), Complaint> {
    let mut own = 0;
    for item in keys.servers.get_ref() {
        let Item(server) = item.get_ref();
        let count = server.cpus.0.len().max(1);
        for place in own..own + count {
            entries[place].on = match &server.on {
                None if keys.question() == Question::Layers => place.checked_sub(1),
                None => None,
                Some(name) => {
                    let found = find(entries, name, entries[place].cpus)
                        .or_else(|| find(entries, name, None))
                        .filter(|found| *found != place);
                    let what =
                        || format!("on names {name:?}, which is not another server of this suite");
                    Some(found.ok_or_else(|| (item.span(), what()))?)
                }
            };
        }
        own += count;
    }
    Ok(())
}

/// The protocols of a load, each with the number of requests in flight on a connection.
fn shapes(keys: &LoadKeys) -> Vec<(Protocol, usize)> {
    let or = |list: &List<usize>, usual: usize| match list.0.is_empty() {
        true => vec![usual],
        false => list.0.clone(),
    };
    let protocols = match keys.protocol.0.is_empty() {
        true => vec![ProtocolKey::Http1],
        false => keys.protocol.0.clone(),
    };
    let of = |protocol| match protocol {
        ProtocolKey::Http1 => (Protocol::Http1, or(&keys.pipeline, 1)),
        ProtocolKey::Http2 => (Protocol::Http2, or(&keys.streams, STREAMS)),
    };
    let each = |(protocol, numbers): (Protocol, Vec<usize>)| {
        numbers.into_iter().map(move |number| (protocol, number))
    };
    protocols.into_iter().map(of).flat_map(each).collect()
}

/// Returns the loads with every combination of their values.
fn loads(keys: &Keys, line: &dyn Fn(usize) -> usize) -> Result<Vec<Loading>, Complaint> {
    fn values<T: Clone>(list: &List<T>) -> Vec<Option<T>> {
        match list.0.is_empty() {
            true => vec![None],
            false => list.0.iter().cloned().map(Some).collect(),
        }
    }
    let mut loads = Vec::new();
    for load in &keys.load {
        let (span, keys) = (load.span(), load.get_ref());
        let nothing = [&keys.connections, &keys.threads, &keys.pipeline, &keys.streams];
        if nothing.iter().any(|list| list.0.contains(&0)) {
            let what = "connections, threads, pipeline and streams must be at least 1".to_owned();
            return Err((span, what));
        }
        if keys.rate.0.iter().any(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return Err((span, "a rate must be a positive number of requests/s".to_owned()));
        }
        for request in values(&keys.request) {
            for close in values(&keys.close) {
                for (protocol, pipeline) in shapes(keys) {
                    for threads in values(&keys.threads) {
                        for connections in values(&keys.connections) {
                            for rate in values(&keys.rate) {
                                loads.push(Loading {
                                    name: keys.name.clone(),
                                    shape: Shape {
                                        connections: connections.unwrap_or(CONNECTIONS),
                                        threads: threads.unwrap_or(1),
                                        reuse: Reuse::of(close.unwrap_or(false)),
                                        pipeline,
                                    },
                                    has_usual_threads: threads.is_none(),
                                    protocol,
                                    request: request.clone(),
                                    rate,
                                    line: line(span.start),
                                });
                            }
                        }
                    }
                }
            }
        }
    }
    for load in &loads {
        let Shape { threads, connections, .. } = load.shape;
        if threads > connections {
            let what = PlanError::MoreThreadsThanConnections { threads, connections }.to_string();
            let at = keys.load.iter().find(|l| line(l.span().start) == load.line);
            return Err((at.map_or(0..0, Spanned::span), what));
        }
    }
    Ok(loads)
}

fn sourced(
    keys: SourceKeys,
    servers: &[SuiteServer],
    loads: &[Loading],
    usual: usize,
) -> Result<Publication, Complaint> {
    let mut rows = Vec::new();
    for row in keys.rows {
        let (span, row) = (row.span(), row.into_inner());
        let Some(entry) = find(servers, &row.server, row.cpus) else {
            let cpus = row.cpus.map_or_else(String::new, |cpus| format!(" with cpus = {cpus}"));
            let what = format!(
                "a published row names {:?}{cpus}, which is not a server of this suite",
                row.server
            );
            return Err((span, what));
        };
        let load = match &row.load {
            None => Some(0),
            Some(name) => {
                loads.iter().position(|l| &l.name == name || l.request.as_ref() == Some(name))
            }
        };
        let Some(load) = load else {
            let name = row.load.unwrap_or_default();
            return Err((span, format!("no load is named {name:?}: set the `name` of one load")));
        };
        rows.push(PublishedFigure {
            entry,
            load,
            called: row.called.unwrap_or_else(|| row.server.clone()),
            requests_per_s: row.requests_per_s,
            latency_ms: row.latency_ms,
            memory_mb: row.memory_mb,
            cpu_percent: row.cpu_percent,
            socket_errors: row.socket_errors,
            doubt: row.doubt,
        });
    }
    let reference = match &keys.reference {
        Some(name) => match find(servers, name.get_ref(), None) {
            None => return Err((name.span(), custom("reference", name.get_ref()))),
            found => found,
        },
        None => rows.iter().any(|row| row.entry == usual).then_some(usual),
    };
    let citation = Citation {
        source: keys.source,
        year: keys.year,
        machine: keys.machine,
        command: keys.command,
        doubt: keys.doubt,
    };
    Ok(Publication { citation, reference, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Suite {
        parse(text, Path::new("suites/mine.toml")).unwrap()
    }

    fn wrong(text: &str) -> String {
        parse(text, Path::new("mine.toml")).unwrap_err().to_string()
    }

    #[test]
    fn the_shortest_suite_is_a_list_of_servers() {
        let suite = read("servers = ['go/net-http', 'node app.js']");
        assert_eq!((suite.name.as_str(), suite.question), ("mine", Question::Compare));
        let titles: Vec<String> = suite.servers.iter().map(SuiteServer::title).collect();
        assert_eq!(titles, ["go/net-http", "node app.js"]);
        assert_eq!((suite.reference, suite.loads.len()), (0, 0));
    }

    #[test]
    fn lists_are_expanded_to_all_combinations() {
        let suite = read(
            "servers = ['b', { run = 'a', cpus = [1, 4] }]\nreference = 'a'\n\
             [[load]]\nconnections = [10, 100]\nclose = [false, true]\n\
             [[load]]\nname = 'post'\nrequest = 'POST /bla'\nrate = 500",
        );
        let titles: Vec<String> = suite.servers.iter().map(SuiteServer::title).collect();
        assert_eq!(titles, ["b", "a (1 thread)", "a (4 threads)"]);
        assert_eq!(suite.reference, 1);
        let loads: Vec<_> =
            suite.loads.iter().map(|l| (l.shape.connections, l.shape.reuse, l.rate)).collect();
        let (kept, new) = (Reuse::KeepAlive, Reuse::Close);
        let crossed = [(10, kept), (100, kept), (10, new), (100, new)].map(|(c, k)| (c, k, None));
        assert_eq!(loads[..4], crossed);
        assert_eq!(loads[4..], [(64, kept, Some(500.0))]);
        assert_eq!(suite.loads[4].request.as_deref(), Some("POST /bla"));
    }

    #[test]
    fn a_step_builds_on_the_one_before_or_the_one_it_names() {
        let suite = read(
            "question = 'layers'\n\
             servers = ['plain', 'json', { run = 'bidi', on = 'plain' },\
             { run = 'log', on = 'json' }]",
        );
        let on: Vec<Option<usize>> = suite.servers.iter().map(|s| s.on).collect();
        assert_eq!(on, [None, Some(0), Some(0), Some(1)]);
    }

    #[test]
    fn published_figures_are_resolved_to_server_load_and_reference() {
        let suite = read(
            "servers = ['a', { run = 'b', name = 'old b', cpus = [1, 2] }]\n\
             [[load]]\nname = 'kept'\n[[load]]\nname = 'new'\nclose = true\n\
             [[published]]\nsource = 'a page'\nyear = 2015\nrows = [\n\
             { server = 'a', requests_per_s = 13746 },\n\
             { server = 'old b', cpus = 2, load = 'new', called = 'B', requests_per_s = 1.5,\
             doubt = 'x' },\n\
             ]\n\
             [[published]]\nsource = 'another'\nyear = 2016\n\
             rows = [{ server = 'b', requests_per_s = 2 }]\n\
             [[absent]]\nname = 'c'\nwhy = 'gone'",
        );
        let rows = &suite.published[0].rows;
        assert_eq!((rows[0].entry, rows[0].load, rows[0].requests_per_s), (0, 0, 13_746.0));
        assert_eq!((rows[1].entry, rows[1].load, rows[1].called.as_str()), (2, 1, "B"));
        assert_eq!((suite.published[0].reference, suite.published[1].reference), (Some(0), None));
        assert_eq!(suite.absent[0].why, "gone");
    }

    #[test]
    fn an_invalid_suite_is_an_error_with_file_and_line() {
        let none = "which is not a server of this suite";
        for (text, told) in [
            ("servers = ['a']\nserver = 1", "mine.toml:2: unknown field `server`, expected"),
            ("\nservers = ['a', { run = 'b', cpu = 1 }]", "mine.toml:2: unknown field `cpu`"),
            ("servers = 'a'", "mine.toml:1: invalid type: string \"a\""),
            ("servers = []", "mine.toml:1: no servers: list at least one"),
            ("servers = ['a']\nquestion = 'why'", "mine.toml:2: unknown variant `why`"),
            ("servers = ['a']\nstress = ['x']", "2: unknown scenario \"x\": choose from overload"),
            ("servers = ['a',\n'a']", "mine.toml:2: a is listed twice: set another `name`"),
            ("servers = ['a']\nreference = 'b'", &format!("2: reference names \"b\", {none}")),
            (
                "servers = ['a',\n{ run = 'b', on = 'x' }]",
                "2: on names \"x\", which is not another server of this suite",
            ),
            (
                "servers = ['a',\n{ run = 'b', on = 'b' }]",
                "2: on names \"b\", which is not another server of this suite",
            ),
            ("servers = ['a']\n[[load]]\nconnections = 0", "mine.toml:2: connections, threads"),
            ("servers = ['a']\n[[load]]\nconnections = 'x'", "mine.toml:3: invalid type: string"),
            (
                "servers = ['a']\n[[load]]\nconnections = 2\nthreads = 4",
                "2: there are more threads (4) than connections",
            ),
            (
                "servers = ['a']\n[[published]]\nsource = ''\nyear = 1\nrows = [\n\
                 { server = 'b', requests_per_s = 1 }]",
                &format!("mine.toml:6: a published row names \"b\", {none}"),
            ),
        ] {
            let error = wrong(text);
            assert!(error.contains(told), "{text}\n{error}");
        }
    }
}
