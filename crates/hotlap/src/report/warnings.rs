//! Warnings in words, each with a remedy.

use hotlap_bench::stress::words;
use hotlap_load::Failure;
use hotlap_stats::{Bursts, Estimate};

use crate::analysis::warnings::{ExcludedLaps, ServerWarning, Warning};
use crate::analysis::{Analysis, CapacityAnalysis, Unsteady, warnings};
use crate::model::{Class, Role, Run, Violation};
use crate::report::figure::ratio;
use crate::report::heading::under;
use crate::report::latency::not_reached;
use crate::text::number::{count, grouped, plural, time};

/// All warnings about a run.
pub(super) fn sentences(
    run: &Run,
    analyses: &[Analysis],
    searches: &[CapacityAnalysis],
) -> Vec<String> {
    let found = warnings::warnings(run, analyses, searches);
    let doubts = run.host.doubts.iter().cloned();
    doubts.chain(control(run)).chain(found.iter().map(|w| sentence(run, w))).collect()
}

/// That the A/A control failed, if the reference did not.
fn control(run: &Run) -> Option<String> {
    let of = |role: Role| run.servers.iter().find(|server| server.role == role);
    let (reference, control) = (of(Role::Reference)?, of(Role::Control)?);
    let why = control.failure.as_ref().filter(|_| reference.failure.is_none())?;
    Some(format!(
        "The A/A control, a second copy of {}, failed ({}: {}), so the noise floor is unknown. A \
         server with a fixed port, file or lock cannot run twice. Write $PORT into its command.",
        reference.name, why.phase, why.cause
    ))
}

fn sentence(run: &Run, warning: &Warning) -> String {
    match warning {
        Warning::GeneratorLimited { load, servers } => format!(
            "{}{}: requests/s is a lower bound (≥), because the load generator was busy. Give it \
             more cores (-t 2), or the server fewer (--server-cpus 1).",
            names(run, servers),
            under(run, *load)
        ),
        Warning::DelayedAcknowledgements { load, servers } => format!(
            "{}{}: with all connections busy, hardly any response takes less than 40 ms, although \
             the server is mostly idle. This is how a response looks that is sent in two writes, \
             with the second held back until the first is acknowledged (Nagle's algorithm). The \
             wait limits requests/s. Send it in one write, or set TCP_NODELAY.",
            names(run, servers),
            under(run, *load)
        ),
        Warning::Server { load, server, warning } => of_server(run, *load, *server, warning),
        Warning::DifferentTls(found) => {
            let each =
                found.iter().map(|(tls, servers)| format!("{} ({tls})", names(run, servers)));
            format!(
                "The servers use different ciphers, which cost differently: {}. Configure the same \
                 cipher where you can.",
                each.collect::<Vec<_>>().join(", ")
            )
        }
        Warning::Note { note, servers } => noted(run, note, servers),
    }
}

fn micros(ns: f64) -> String {
    format!("{} µs", grouped(ns / 1e3, 1))
}

/// The warning that a server was not steady.
fn unsteady(name: &str, unsteady: Unsteady) -> String {
    match unsteady {
        Unsteady::AtLimit => format!(
            "{name} was still warming up at the end of its warm-up, which takes a minute at most, so \
             it has no verdict and no rank. Start the server yourself, load it for some minutes, \
             and give its URL instead of its command."
        ),
        Unsteady::Changing { change, last_ns } if change < 0.0 => format!(
            "{name} was still warming up, so it has no verdict and no rank. Its CPU per request \
             fell by {} % within a restart, to {} in the last laps. A longer --duration with \
             --restarts 3 gives it more time.",
            grouped(-100.0 * change, 0),
            micros(last_ns)
        ),
        Unsteady::Changing { change, last_ns } => format!(
            "{name} was not steady, so it has no verdict and no rank. Its CPU per request rose by \
             {} % within a restart, to {} in the last laps. Look for a leak or for a cache \
             that fills up.",
            grouped(100.0 * change, 0),
            micros(last_ns)
        ),
    }
}

fn of_server(run: &Run, load: usize, server: usize, warning: &ServerWarning) -> String {
    let name = format!("{}{}", run.servers[server].name, under(run, load));
    match warning {
        ServerWarning::Unsteady(found) => unsteady(&name, *found),
        ServerWarning::InSlices(ratio) => in_slices(&name, ratio),
        ServerWarning::Bursty(Bursts { factor, rounds, of }) => format!(
            "{name} costs {} times as much as usual in {rounds} of {of} rounds. They count: look \
             for garbage collection, checkpoints or other work that comes in bursts.",
            grouped(*factor, 1)
        ),
        ServerWarning::Failing { failures, requests } => format!(
            "{name}: {} of {} requests failed in the laps with failures. They count: requests/s \
             are its correct responses, and CPU per request is that of all requests.",
            count(*failures),
            count(*requests)
        ),
        ServerWarning::Goaways { connections, reason } => format!(
            "{name} ended {} with an error (GOAWAY {reason}). Look for a limit on streams or on \
             requests per connection in its configuration, and for the cause in its log.",
            plural(*connections as usize, "connection")
        ),
        ServerWarning::Silent(rounds) => format!(
            "{name} sent no response in {}. They count: its requests/s in such a restart are all of \
             its responses ÷ all of its time. Look for what made it wait, for instance in its log.",
            plural(*rounds as usize, "round")
        ),
        ServerWarning::Behind { offered, reached } => format!(
            "{name} did not reach the rate: {} Offer less to compare them.",
            not_reached(*offered, *reached)
        ),
        ServerWarning::LeftOut(left_out) => laps_left_out(&name, left_out),
        ServerWarning::LateWindows { late, windows } if !run.host.generators.is_empty() => format!(
            "{name}: {late} of {windows} windows do not count, because a generator was late, stood \
             still or was lost; the list of laps has the reason of each. Check the generators' \
             hosts, and their connections to here and to the server."
        ),
        ServerWarning::LateWindows { late, windows } => format!(
            "{name}: {late} of {windows} windows do not count, because the load generator sent \
             late. Give it more cores (-t), or use a quieter machine."
        ),
        ServerWarning::MissesBelow { missed, windows } => format!(
            "{name} missed the goal in {missed} of {windows} windows far below its capacity, so \
             something disturbs it at any rate (another process, garbage collection). It may hold \
             more on a quieter machine."
        ),
    }
}

/// The warning that a server costs more or less in slices than alone.
fn in_slices(name: &str, found: &Estimate) -> String {
    let percent = grouped((found.value - 1.0).abs() * 100.0, 0);
    let (what, why) = match found.value > 1.0 {
        true => ("more", "its caches are cold after other servers"),
        false => ("less", "its timers fire before a slice is measured"),
    };
    format!(
        "{name} costs {percent}% {what} CPU per request in slices than alone ({}), possibly because \
         {why}. Comparisons are corrected for it. Longer slices (--slice 1s) show it as it is.",
        ratio(found).spread
    )
}

/// The warning about a server's laps that do not count: the failed validity checks and the remedy;
/// `None` if all count.
pub(super) fn left_out(run: &Run, load: usize, server: usize, are_main: bool) -> Option<String> {
    let left_out = warnings::left_out(run, load, server, are_main)?;
    Some(laps_left_out(&format!("{}{}", run.servers[server].name, under(run, load)), &left_out))
}

fn laps_left_out(name: &str, left_out: &ExcludedLaps) -> String {
    let ExcludedLaps { are_main, laps, checks } = left_out;
    let (kind, rest) = match are_main {
        true => ("", ""),
        false => (" at a common rate", " Requests/s and CPU time are not affected."),
    };
    let out = match (*laps, left_out.count()) {
        (1, 1) => format!("its only lap{kind} does"),
        (all, out) if all == out => format!("all {all} laps{kind} do"),
        (all, 1) => format!("1 of {all} laps{kind} does"),
        (all, out) => format!("{out} of {all} laps{kind} do"),
    };
    let why = match checks.as_slice() {
        [(only, 1)] => violation(only),
        [(only, _)] => format!("{} in the first of them", violation(only)),
        many => {
            let each = |(failed, times): &(Violation, usize)| {
                format!("{times} × {} (first: {})", check(failed).0, violation(failed))
            };
            many.iter().map(each).collect::<Vec<_>>().join(", ")
        }
    };
    let remedy = checks.first().map_or("", |(most, _)| check(most).1);
    format!("{name}: {out} not count: {why}. {remedy}{rest}").trim_end().to_owned()
}

fn names(run: &Run, servers: &[usize]) -> String {
    let names: Vec<&str> = servers.iter().map(|i| run.servers[*i].name.as_str()).collect();
    names.join(", ")
}

/// A note, with the servers that it applies to. The ceiling is not counted, because the user did
/// not name it.
fn noted(run: &Run, note: &str, servers: &[usize]) -> String {
    let is_named = |server: &usize| run.servers[*server].role != Role::Ceiling;
    let mut about: Vec<usize> = servers.iter().copied().filter(is_named).collect();
    if about.is_empty() {
        about = servers.to_vec();
    }
    let all = (0..run.servers.len()).filter(|i| run.is_shown(*i) && is_named(i)).count();
    match about.len() {
        0..=3 => format!("{}: {note}", names(run, &about)),
        n if n >= all => format!("All {n} servers: {note}"),
        n => format!("{n} servers: {note}"),
    }
}

/// The name of a validity check, and the remedy for laps that fail it.
fn check(violation: &Violation) -> (&'static str, &'static str) {
    match violation {
        Violation::LittlesLaw { .. } => (
            "Little's law",
            "Something delayed requests outside of the server: repeat the run while the machine is \
             otherwise idle.",
        ),
        Violation::Connections { most, .. } => (
            "connections",
            most.map_or(
                "Check whether the server limits its connections (backlog, `ulimit -n`), or use \
                 fewer (-c).",
                remedy,
            ),
        ),
        Violation::Streams { .. } => (
            "streams",
            "The server limits the streams of a connection: ask for no more with --streams.",
        ),
        Violation::Bytes { .. } => (
            "bytes",
            "The server sends more or less than its responses: `hotlap check` shows them.",
        ),
        Violation::Generator { .. } => ("generator", "Give the generator more cores (-t)."),
        Violation::Failures { most, .. } => {
            ("failed requests", most.map_or("Look into the server's log.", remedy))
        }
        Violation::WrongAnswers { .. } => (
            "wrong responses",
            "If that response is right, say so with --expect-status and --expect-body, or in the \
             requests file.",
        ),
        Violation::Late { .. } => {
            ("lateness", "Give the generator more cores (-t), or lower the rate.")
        }
        Violation::Generators { .. } => (
            "generators",
            "Check the generators' hosts, and their connections to here and to the server.",
        ),
        // The reason has the remedy.
        Violation::GeneratorLost { .. } => ("generator lost", ""),
        Violation::SideEffect { .. } => (
            "side effect",
            "Check whether the server drops work, and whether `counts` names the right file.",
        ),
        Violation::Silence { .. } => (
            "connection to the servers' host",
            "Check the network between the two hosts, and whether something stops the agent.",
        ),
    }
}

/// The class of a warm-up, in words.
pub(super) fn class(class: Class) -> &'static str {
    match class {
        Class::Flat => "flat",
        Class::WarmedUp => "warmed up",
        Class::SlowingDown => "slowing down",
        Class::NeverSteady => "never steady",
    }
}

/// A failed validity check, as a clause.
pub(super) fn violation(violation: &Violation) -> String {
    match violation {
        Violation::LittlesLaw { off } => format!(
            "connections = rate × latency does not hold (Little's law, {} % off)",
            grouped(*off, 1)
        ),
        Violation::Connections { asked, up, most } => {
            let most = most.map_or_else(String::new, |most| format!(", because: {}", words(most)));
            format!("only {} of {} connections were up{most}", count(*up), count(*asked))
        }
        Violation::Streams { asked, open } => {
            format!("only {} of {} streams were open on a connection", count(*open), count(*asked))
        }
        Violation::Bytes { expected, received } => {
            format!(
                "received {} bytes, but the responses add up to {}",
                count(*received),
                count(*expected)
            )
        }
        Violation::Generator { busy } => {
            format!("the generator was busy {} % of the time", grouped(*busy, 0))
        }
        Violation::Failures { failures, requests, most } => {
            let most = most.map_or_else(String::new, |most| format!(" (most: {})", words(most)));
            format!("{} of {} requests failed{most}", count(*failures), count(*requests))
        }
        Violation::WrongAnswers { wrong, example } => {
            let are = if *wrong == 1 { "response was" } else { "responses were" };
            format!("{} {are} wrong ({example})", count(*wrong))
        }
        Violation::Late { lag_us } => {
            format!("the generator sent {} late (p99)", time(*lag_us / 1e3))
        }
        Violation::Generators { why } => why.clone(),
        Violation::GeneratorLost { why } => format!("a generator was lost: {why}"),
        Violation::SideEffect { expected, counted } => format!(
            "its side effect happened {} times for {} responses",
            count(*counted),
            count(*expected)
        ),
        Violation::Silence { ms } => {
            format!("the servers' host did not answer for {} s", grouped(ms / 1e3, 1))
        }
    }
}

/// The likely cause of failures of one kind, and what to do.
pub fn remedy(failure: Failure) -> &'static str {
    match failure {
        Failure::Refused => {
            "Possibly nothing listens there any more, or the server's accept queue is full: look \
             into the server's log, and try fewer connections (-c)."
        }
        Failure::Reset | Failure::ClosedEarly | Failure::Truncated => {
            "Possibly the server closes connections without announcing it (Connection: close): \
             look into the server's log, or open a connection for each request \
             (--disable-keepalive)."
        }
        Failure::Timeout => {
            "Look into the server's log, and try fewer connections (-c) or a longer --timeout."
        }
        Failure::NoPort => {
            "No local port is free, because a closed connection occupies its port for a minute: \
             keep connections open, or send fewer requests."
        }
        Failure::BadFraming | Failure::WrongBody | Failure::WrongStatus => {
            "The responses differ from the expected ones: `hotlap check` shows them."
        }
        Failure::Tls => "The server ended TLS with an error: look into the server's log.",
        Failure::StreamReset => {
            "The server reset streams: look into the server's log, and try fewer --streams."
        }
        Failure::Other => {
            "A system call failed: check `ulimit -n`, and the network between hotlap and the \
             server."
        }
    }
}
