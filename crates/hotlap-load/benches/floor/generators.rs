//! The load generators, as commands. Two of them are this program itself.

use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

use hotlap_load::plan::{
    Endpoint, Field, OrderEntry, Protocol, Request, Stop, Target, ValueSource, fill,
};
use hotlap_load::{Outcome, Plan};
use rustix::event::epoll;
use rustix::net::{RecvFlags, SendFlags};

use super::number;
use super::server::{Server, body};

/// A load generator.
pub struct Generator {
    pub name: &'static str,
    pub command: Vec<String>,
    /// Whether the generator is this program.
    pub is_own: bool,
}

/// The load that a generator makes.
#[derive(Clone, Copy)]
pub struct Load {
    pub connections: usize,
    pub seconds: u64,
    pub body: usize,
}

/// Bodies below this length, in bytes, arrive in one read. The bare loop takes each read for a
/// response.
pub const BARE_LIMIT: usize = 16_000;

/// Returns all load generators that are installed.
pub fn all(load: Load, server: &Server) -> Vec<Generator> {
    let Load { connections: c, seconds: s, body } = load;
    let address = server.address;
    let url = format!("http://{address}/");
    if let Some(streams) = server.streams {
        let mut all = vec![
            own("hotlap", &format!("as-http2 {streams} {address} {c} {s} {body}")),
            peer("h2load", &format!("-t1 -c{c} -m{streams} -D{s} {url}")),
            peer("oha", &format!("--no-tui --http2 -c {c} -p {streams} -z {s}s {url}")),
        ];
        all.retain(|g| g.is_own || is_installed(g.name));
        return all;
    }
    let mut all = vec![
        own("hotlap", &format!("as-hotlap {address} {c} {s} {body}")),
        own("bare loop", &format!("as-bare {address} {c} {s}")),
        peer("wrk", &format!("-t1 -c{c} -d{s}s {url}")),
        peer("gcannon", &format!("{url} -c {c} -t 1 -d {s}s")),
        peer("h2load", &format!("--h1 -t1 -c{c} -D{s} {url}")),
        peer("oha", &format!("--no-tui -c {c} -z {s}s {url}")),
    ];
    all.retain(|g| {
        let is_here = g.is_own || is_installed(g.name);
        is_here && (g.name != "bare loop" || body < BARE_LIMIT)
    });
    all
}

/// Returns this program as a load generator.
pub fn own(name: &'static str, line: &str) -> Generator {
    let program = std::env::current_exe().expect("this program").display().to_string();
    let command = std::iter::once(program).chain(line.split(' ').map(str::to_owned)).collect();
    Generator { name, command, is_own: true }
}

fn peer(name: &'static str, line: &str) -> Generator {
    let words = std::iter::once(name).chain(line.split(' ')).map(str::to_owned);
    Generator { name, command: words.collect(), is_own: false }
}

pub fn is_installed(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(name).is_file())
}

/// The number of paths in the access log.
const PATHS: u32 = 50_000;

/// Returns the plan of a closed loop. The first three words are ADDRESS CONNECTIONS SECONDS.
/// Further words are ignored.
fn plan(words: &[&str], request: Request) -> Plan {
    let [address, connections, seconds, ..] = words else { panic!("{words:?}") };
    let endpoint = Endpoint::Tcp(address.parse().expect("an address"));
    let mut plan = Plan::new(Target::plain(endpoint), request);
    plan.shape.connections = number(connections);
    plan.warmup = Duration::ZERO;
    plan.stop = Stop::After(Duration::from_secs(number(seconds) as u64));
    plan.timeout = Duration::from_secs(20);
    plan
}

fn run(plan: &Plan) -> Outcome {
    let outcome = hotlap_load::run(plan).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(outcome.failures.total(), 0, "{:?}", outcome.failures);
    outcome
}

/// Runs hotlap as a load generator, in HTTP/2 if `streams` is given. The words are
/// ADDRESS CONNECTIONS SECONDS BODY [THREADS [ONE-IN [SOURCE...]]]
pub fn as_hotlap(words: &[&str], streams: Option<usize>) {
    let [address, _, _, length, more @ ..] = words else { panic!("{words:?}") };
    let mut plan = plan(words, Request::get("/", address).expecting(&body(number(length))));
    if let Some(streams) = streams {
        (plan.target.protocol, plan.shape.pipeline) = (Protocol::Http2, streams);
    }
    plan.shape.threads = more.first().map_or(1, |word| number(word));
    plan.check_one_in = more.get(1).map_or(1, |word| number(word) as u32);
    let sources = more.iter().skip(2);
    plan.sources = sources.map(|s| s.parse::<IpAddr>().expect("an address")).collect();
    let outcome = run(&plan);
    println!("wakeups {}", outcome.threads.iter().map(|t| t.wakeups).sum::<u64>());
    println!("established {}", outcome.connections.established);
    println!("responses {}", outcome.responses);
    println!("resident {}", resident_kib());
}

/// Returns the peak resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|p| p.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

/// Runs hotlap as a load generator with fields. The words are ADDRESS CONNECTIONS SECONDS FIELDS. A
/// fixed request has the first value of each field.
pub fn as_fields(words: &[&str], is_fixed: bool) {
    let [address, _, _, fields, ..] = words else { panic!("{words:?}") };
    let texts: Vec<String> = (0..1_000).map(|n| format!("text{n}")).collect();
    let source = |name: &str| match name {
        "small" => ValueSource::Integer { min: 1, max: 10_000 },
        "integer" => ValueSource::Integer { min: 1, max: 999_999 },
        "counter" => ValueSource::Counter { from: 100_000 },
        "choice" => ValueSource::Choice { values: texts.clone().into(), random: true },
        "text" => ValueSource::Text { length: 16 },
        "uuid" => ValueSource::Uuid,
        "log" => {
            let paths: Vec<String> = (0..PATHS).map(|n| format!("item{n}")).collect();
            ValueSource::Choice { values: paths.into(), random: false }
        }
        _ => panic!("no field {name}"),
    };
    let is_log = *fields == "log";
    let named = fields.split(',').enumerate();
    let fields: Vec<Field> =
        named.map(|(n, field)| Field::new(format!("f{n}"), source(field))).collect();
    let path: String = (0..fields.len()).map(|n| format!("/${{f{n}}}")).collect();
    let path = if is_fixed {
        String::from_utf8(fill(path.as_bytes(), &fields, 0, 0, 0)).expect("text")
    } else {
        path
    };
    let request = Request::with_fields("GET", &path, address, &[], b"", &fields).expect("fields");
    let mut plan = plan(words, request.expecting(&body(13)));
    plan.fields = if is_fixed { Vec::new() } else { fields };
    if is_log && !is_fixed {
        // The step of 7,919 is a prime, so the paths come in no simple order.
        let entry = |n: u32| OrderEntry { request: 0, value: n * 7_919 % PATHS };
        plan.order = Some((0..2 * PATHS).map(entry).collect::<Vec<_>>().into());
    }
    let outcome = run(&plan);
    println!("responses {}", outcome.responses);
}

/// Runs the bare loop, the minimum that a load generator must do. The first three words are ADDRESS
/// CONNECTIONS SECONDS. Further words are ignored.
pub fn as_bare(words: &[&str]) {
    let [address, connections, seconds, ..] = words else { panic!("{words:?}") };
    let length = Duration::from_secs(number(seconds) as u64);
    let request = Request::get("/", address).bytes();
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let streams: Vec<TcpStream> = (0..number(connections))
        .map(|_| TcpStream::connect(address).expect("a server"))
        .inspect(|stream| stream.set_nodelay(true).expect("a socket option"))
        .collect();
    for (number, stream) in (0..).zip(&streams) {
        stream.set_nonblocking(true).expect("a socket option");
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&queue, stream, epoll::EventData::new_u64(number), flags).expect("epoll");
        rustix::net::send(stream, &request, SendFlags::NOSIGNAL).expect("a server");
    }
    let mut events = Vec::with_capacity(1024);
    let mut buffer = vec![0; 16384];
    let (begun, mut wakeups) = (Instant::now(), 0u64);
    while begun.elapsed() < length {
        events.clear();
        let spare = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&queue, spare, None).is_err() {
            continue;
        }
        wakeups += 1;
        for event in &events {
            let stream = &streams[event.data.u64() as usize];
            let Ok((_, count)) = rustix::net::recv(stream, &mut buffer[..], RecvFlags::empty())
            else {
                continue;
            };
            assert!(has_blank_line(&buffer[..count]), "no blank line");
            rustix::net::send(stream, &request, SendFlags::NOSIGNAL).expect("a server");
        }
    }
    println!("wakeups {wakeups}");
}

/// Returns whether there is a blank line. The search looks at every fourth byte, unless that byte
/// is part of a line end.
fn has_blank_line(bytes: &[u8]) -> bool {
    let mut at = 3;
    while let Some(byte) = bytes.get(at) {
        at += match byte {
            b'\n' if bytes[at - 3..=at] == *b"\r\n\r\n" => return true,
            b'\n' => 2,
            b'\r' => 1,
            _ => 4,
        };
    }
    false
}
