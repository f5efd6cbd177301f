//! What fields that vary cost: user instructions per request, compared with a fixed request of the
//! same size. Counts, so a busy machine does not change them.

use std::time::Duration;

use hotlap_load::plan::{Endpoint, Entry, Field, Request, Source, Stop, Target};
use hotlap_load::{Plan, run};

use super::generators;
use super::measure::Counter;
use super::server::Server;
use super::table::{self, figure};
use super::{Options, number, pin};

/// The fields of each request, as they are printed and as they are passed to the process.
const CASES: [(&str, &str); 9] = [
    ("1 field: integer, 1 to 10,000", "small"),
    ("1 field: integer, 1 to 999,999", "integer"),
    ("1 field: counter", "counter"),
    ("1 field: choice of 1,000", "choice"),
    ("1 field: text of 16", "text"),
    ("1 field: UUID", "uuid"),
    ("access log: 100,000 lines, 50,000 paths", "log"),
    ("5 fields: integers, choice, text", "small,small,small,choice,text"),
    ("5 fields: integer, counter, choice, text, UUID", "small,counter,choice,text,uuid"),
];

/// The paths of the access log.
const PATHS: u32 = 50_000;

pub fn run_all(options: &Options) {
    if !Counter::Callgrind.works() {
        println!("This needs valgrind: apt-get install valgrind");
        return;
    }
    let server = Server::start(13, None);
    pin(1);
    let short = options.seconds.unwrap_or(2);
    let connections = options.connections;
    let count = |connections: usize, form: &str, fields: &str| {
        let generator = |load: generators::Load| {
            let generators::Load { connections: c, seconds: s, .. } = load;
            Some(generators::own("", &format!("as-{form} {} {c} {s} {fields}", server.address)))
        };
        let counter = Counter::Callgrind;
        let mut counts =
            counter.per_request_of(&generator, (short, short * 2), connections, &server)?;
        counts.remove("instructions:u")
    };
    let mut rows = Vec::new();
    for (name, fields) in CASES {
        let mut row = vec![name.to_owned()];
        for connections in [connections, 1] {
            let fixed = count(connections, "fixed", fields);
            let varying = count(connections, "varying", fields);
            let ratio = fixed.zip(varying).map(|(fixed, varying)| varying / fixed);
            row.extend([figure(fixed, 0), figure(varying, 0), figure(ratio, 3)]);
        }
        rows.push(row);
    }
    println!(
        "User instructions per request, by callgrind: a {short} s run taken from one twice as \
         long.\n"
    );
    let many = format!("{connections} connections: fixed");
    table::print(
        &["", &many, "varying", "ratio", "1 connection: fixed", "varying", "ratio"],
        &rows,
    );
}

/// A load generator with fields: ADDRESS CONNECTIONS SECONDS FIELDS. If it is fixed, the request
/// has the first value of each.
pub fn as_generator(words: &[&str], is_fixed: bool) {
    let [address, connections, seconds, fields, ..] = words else { panic!("{words:?}") };
    let endpoint = Endpoint::Tcp(address.parse().expect("an address"));
    let texts: Vec<String> = (0..1_000).map(|n| format!("text{n}")).collect();
    let source = |name: &str| match name {
        "small" => Source::Integer { min: 1, max: 10_000 },
        "integer" => Source::Integer { min: 1, max: 999_999 },
        "counter" => Source::Counter { from: 100_000 },
        "choice" => Source::Choice { values: texts.clone().into(), random: true },
        "text" => Source::Text { length: 16 },
        "uuid" => Source::Uuid,
        "log" => {
            let paths: Vec<String> = (0..PATHS).map(|n| format!("item{n}")).collect();
            Source::Choice { values: paths.into(), random: false }
        }
        _ => panic!("no field {name}"),
    };
    let is_log = *fields == "log";
    let named = fields.split(',').enumerate();
    let fields: Vec<Field> =
        named.map(|(n, field)| Field { name: format!("f{n}"), source: source(field) }).collect();
    let path: String = (0..fields.len()).map(|n| format!("/${{f{n}}}")).collect();
    let path = if is_fixed {
        String::from_utf8(hotlap_load::plan::fill(path.as_bytes(), &fields, 0, 0, 0)).expect("text")
    } else {
        path
    };
    let request = Request::with_fields("GET", &path, address, &[], b"", &fields).expect("fields");
    let request = request.expecting(&super::server::body(13));
    let mut plan = Plan::new(Target::plain(endpoint), request);
    plan.fields = if is_fixed { Vec::new() } else { fields };
    if is_log && !is_fixed {
        // 7,919 is a prime, so that the paths come in no simple order.
        let entry = |n: u32| Entry { request: 0, value: n * 7_919 % PATHS };
        plan.order = Some((0..2 * PATHS).map(entry).collect::<Vec<_>>().into());
    }
    plan.connections = number(connections);
    plan.warmup = Duration::ZERO;
    plan.stop = Stop::After(Duration::from_secs(number(seconds) as u64));
    plan.timeout = Duration::from_secs(20);
    let outcome = run(&plan).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(outcome.failures.total(), 0, "{:?}", outcome.failures);
    println!("responses {}", outcome.responses);
}
