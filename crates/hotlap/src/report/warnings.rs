//! Warnings in words, each with a remedy.

use hotlap_bench::stress::words;
use hotlap_load::{Failure, Failures};
use hotlap_stats::{Bursts, OddStarts};

use crate::analysis::warnings::{ExcludedLaps, ServerWarning, Warning};
use crate::analysis::{Analysis, CapacityAnalysis, Unsteady, warnings};
use crate::model::{Class, Role, Run, Violation};
use crate::report::figure::ratio;
use crate::report::heading::under;
use crate::report::latency::{QUEUE_GREW, not_reached};
use crate::text::number::{count, grouped, plural, rate, time};

/// Returns all warnings about a run.
pub(super) fn sentences(
    run: &Run,
    analyses: &[Analysis],
    searches: &[CapacityAnalysis],
) -> Vec<String> {
    let found = warnings::warnings(run, analyses, searches);
    let doubts = run.host.doubts.iter().cloned();
    doubts.chain(control(run)).chain(merged(run, &found)).collect()
}

/// Puts warnings into words. Warnings about servers under one load are merged if their meaning and
/// remedy are the same.
fn merged(run: &Run, found: &[Warning]) -> Vec<String> {
    let mut all: Vec<Said> = Vec::new();
    for warning in found {
        let rest = common(run, warning);
        let Warning::Server { load, server, warning } = warning else {
            all.push(Said { load: 0, servers: Vec::new(), rest });
            continue;
        };
        let own = (*server, warning);
        let is_same =
            |said: &&mut Said| said.load == *load && said.rest == rest && !said.servers.is_empty();
        match all.iter_mut().find(is_same) {
            Some(said) => said.servers.push(own),
            None => all.push(Said { load: *load, servers: vec![own], rest }),
        }
    }
    all.iter().map(|said| said.in_words(run)).collect()
}

/// A warning, which several servers may share.
struct Said<'a> {
    load: usize,
    /// The servers under the load, each with its finding. Empty if `rest` names the servers.
    servers: Vec<(usize, &'a ServerWarning)>,
    /// What the warning means and what to do.
    rest: String,
}

impl Said<'_> {
    fn in_words(&self, run: &Run) -> String {
        let under = under(run, self.load);
        let laps = self.servers.iter().filter_map(|(_, warning)| match warning {
            ServerWarning::LeftOut(laps) => Some(laps.clone()),
            _ => None,
        });
        let mut found: Vec<String> = Vec::new();
        if let Some(laps) = laps.reduce(ExcludedLaps::and) {
            let servers: Vec<usize> = self.servers.iter().map(|(server, _)| *server).collect();
            found.push(format!("{}{under}: {}.", names(run, &servers), laps_excluded(&laps)));
        } else {
            found.extend(self.servers.iter().map(|(server, warning)| {
                format!("{}{under}{}.", run.servers[*server].name, found_of(warning))
            }));
        }
        found.push(self.rest.clone());
        found.join(" ").trim().to_owned()
    }
}

/// Warns that the A/A control failed, if the reference did not fail.
fn control(run: &Run) -> Option<String> {
    let of = |role: Role| run.servers.iter().find(|server| server.role == role);
    let (reference, control) = (of(Role::Reference)?, of(Role::Control)?);
    let why = control.failure.as_ref().filter(|_| reference.failure.is_none())?;
    let remedy = match why.is_port_taken() {
        true => "A server with a fixed port cannot run twice. Put $PORT in its command.".to_owned(),
        false => {
            let last = why.log_tail.last();
            last.map_or_else(String::new, |line| format!("The control printed: {line}"))
        }
    };
    let failed = format!(
        "The A/A control, a second copy of {}, failed ({}: {}), so the noise floor is unknown. \
         {remedy}",
        reference.name, why.phase, why.cause
    );
    Some(failed.trim_end().to_owned())
}

/// Returns a warning in words, without the finding about a single server.
fn common(run: &Run, warning: &Warning) -> String {
    match warning {
        Warning::GeneratorLimited { load, servers } => format!(
            "{}{}: requests/s is a lower bound (≥), because the load generator was busy. {}",
            names(run, servers),
            under(run, *load),
            relief(run, "add generators on other hosts (--generator-on)")
        ),
        Warning::DelayedAcknowledgements { load, servers } => format!(
            "{}{}: hardly any response takes less than 40 ms, although the server is mostly idle. \
             Possibly a response is sent in two writes, and Nagle's algorithm delays the second \
             until the first is acknowledged. Send each response in one write, or set TCP_NODELAY. \
             At a lower rate, percentiles may not show the delay.",
            names(run, servers),
            under(run, *load)
        ),
        Warning::Server { warning, .. } => meaning(run, warning),
        Warning::DifferentTls(found) => {
            let each =
                found.iter().map(|(tls, servers)| format!("{} ({tls})", names(run, servers)));
            format!(
                "The servers use different TLS versions or ciphers, which may not cost the same: \
                 {}. Configure the same version and cipher where you can.",
                each.collect::<Vec<_>>().join(", ")
            )
        }
        Warning::Note { note, servers } => noted(run, note, servers),
    }
}

fn micros(ns: f64) -> String {
    format!("{} µs", grouped(ns / 1e3, 1))
}

/// Returns the finding about one server, as the rest of a sentence that begins with its name.
fn found_of(warning: &ServerWarning) -> String {
    match warning {
        ServerWarning::Unsteady(Unsteady::AtLimit) => " was not steady at the end of its warm-up, \
             which takes a minute at most"
            .to_owned(),
        ServerWarning::Unsteady(Unsteady::Changing { change, last_ns }) => {
            let (what, way) = match *change < 0.0 {
                true => ("still warming up", "fell"),
                false => ("not steady", "rose"),
            };
            format!(
                " was {what}: its CPU per request {way} by {}% within a restart, to {} in the last \
                 laps",
                grouped(100.0 * change.abs(), 0),
                micros(*last_ns)
            )
        }
        ServerWarning::InSlices(found) => format!(
            " costs {}% {} CPU per request in slices than alone ({})",
            grouped((found.value - 1.0).abs() * 100.0, 0),
            if found.value > 1.0 { "more" } else { "less" },
            ratio(found).spread
        ),
        ServerWarning::Bursty(Bursts { factor, rounds, of, .. }) => format!(
            " used {} times its usual CPU time per request in {rounds} of {of} rounds",
            grouped(*factor, 1)
        ),
        ServerWarning::OddStarts(OddStarts { factor, starts, of }) => format!(
            " used {} times its usual CPU time per request after {starts} of {of} starts",
            grouped(*factor, 2)
        ),
        ServerWarning::Failing { failures, requests } => {
            format!(": {}", failed(failures, *requests))
        }
        ServerWarning::Goaways { connections, reason } => format!(
            " ended {} with an error (GOAWAY {reason})",
            plural(*connections as usize, "connection")
        ),
        ServerWarning::Silent(rounds) => {
            format!(" sent no response in {}", plural(*rounds as usize, "round"))
        }
        ServerWarning::Behind { offered, reached, has_queue: true, .. } => {
            format!(" did not reach the rate: {}", not_reached(*offered, *reached))
        }
        ServerWarning::Behind { offered, reached, .. } => format!(
            " did not reach the rate: {} of {} requests/s got a correct response",
            rate(*reached),
            rate(*offered)
        ),
        ServerWarning::LeftOut(laps) => format!(": {}", laps_excluded(laps)),
        ServerWarning::LateWindows { late, windows } => {
            format!(": hotlap excluded {late} of {}", plural(*windows, "window"))
        }
        ServerWarning::MissesBelow { missed, windows } => format!(
            " missed a goal in {missed} of {} far below its capacity",
            plural(*windows, "window")
        ),
    }
}

/// States what a warning means and what to do, for any number of servers.
fn meaning(run: &Run, warning: &ServerWarning) -> String {
    match warning {
        ServerWarning::Unsteady(found) => {
            format!(
                "A server that is not steady has no rank, and no verdict except on memory. {}",
                steadying(found)
            )
        }
        ServerWarning::InSlices(found) => format!(
            "Possibly {}. Comparisons are corrected for this slice bias. Longer slices (--slice \
             1s) reduce it.",
            match found.value > 1.0 {
                true => "the server's caches are cold after other servers",
                false => "the server's timers fire before a slice is measured",
            }
        ),
        ServerWarning::Bursty(_) => "The result includes these rounds. Look for garbage \
             collection, checkpoints or other work that comes in bursts."
            .to_owned(),
        ServerWarning::OddStarts(_) => {
            "The result includes these starts. Possibly the machine was disturbed, or the runtime \
             compiled the same code differently. More --restarts show how often that happens."
                .to_owned()
        }
        ServerWarning::Failing { failures, .. } => {
            let remedy = failures.most().map_or("", remedy);
            format!(
                "Failed requests do not count towards requests/s, but their CPU time counts \
                 towards CPU per request. {FAILED_LATENCY} {remedy}"
            )
        }
        ServerWarning::Goaways { .. } => "Look for a limit on streams or on requests per \
             connection in the server's configuration, and for the cause in the server's log."
            .to_owned(),
        ServerWarning::Silent(_) => "The result includes these rounds: in a restart with a silent \
             round, requests/s are all responses ÷ all of the time. Look for what made the server \
             wait, for instance in the server's log."
            .to_owned(),
        ServerWarning::Behind { is_common, has_queue, .. } => {
            let grew = if *has_queue { QUEUE_GREW } else { "" };
            let rate = if *is_common { "--rate" } else { "rate for the load" };
            format!("{grew} Use a lower {rate} to compare response times.").trim_start().to_owned()
        }
        ServerWarning::LeftOut(laps) => {
            let remedy = laps.checks.first().map(|(most, _)| remedy_of(run, most, laps.are_main));
            let rest = match laps.are_main {
                true => "",
                false => " Requests/s and CPU time do not depend on these laps.",
            };
            format!("{}{rest}", remedy.unwrap_or_default())
        }
        ServerWarning::LateWindows { .. } if !run.host.generators.is_empty() => {
            "A generator was late, stalled or lost. The laps on the page (--export-html) show \
             when. Check the generators' hosts, and their connections to this machine and to the \
             server."
                .to_owned()
        }
        ServerWarning::LateWindows { .. } => late_windows(run),
        ServerWarning::MissesBelow { .. } => "Possibly another process or garbage collection \
             disturbs the server at every rate. On a quieter machine, its capacity may be higher."
            .to_owned(),
    }
}

/// States what to do about a server that was not steady.
fn steadying(found: &Unsteady) -> &'static str {
    match found {
        Unsteady::AtLimit => {
            "Load the server for some minutes before the run: start its command yourself, and give \
             its URL instead."
        }
        Unsteady::Changing { change, .. } if *change < 0.0 => {
            "With --restarts 3 and a longer --duration, the server gets more time in each restart."
        }
        Unsteady::Changing { .. } => "Look for a leak or for a cache that fills up.",
    }
}

/// States why windows of a search are excluded, and what to do, if no generator is on another
/// host.
fn late_windows(run: &Run) -> String {
    let late = match run.host.controller {
        Some(_) => "The load generator sent late, or the servers' host did not answer.",
        None => "The load generator sent late.",
    };
    format!("{late} {}", relief(run, "use a quieter machine"))
}

/// States how failed requests enter percentiles.
pub const FAILED_LATENCY: &str =
    "Percentiles count a failed request with at least the time that it waited.";

/// States how many requests failed, and how: `12 of 3,400 requests timed out`.
pub fn failed(failures: &Failures, requests: u64) -> String {
    let (all, most) = (failures.total(), failures.most());
    let what = match most {
        Some(Failure::Timeout) if failures.of(Failure::Timeout) == all => "timed out".to_owned(),
        Some(only) if failures.of(only) == all => format!("failed ({})", words(only)),
        Some(most) => format!("failed (most often: {})", words(most)),
        None => "failed".to_owned(),
    };
    format!("{} of {} requests {what}", count(all), count(requests))
}

/// Returns the warnings about excluded main laps of these servers. Empty if all laps count.
pub(super) fn left_out(
    run: &Run,
    load: usize,
    servers: impl IntoIterator<Item = usize>,
) -> Vec<String> {
    let found = servers.into_iter().filter_map(|server| {
        let laps = warnings::left_out(run, load, server, true)?;
        Some(Warning::Server { load, server, warning: ServerWarning::LeftOut(laps) })
    });
    merged(run, &found.collect::<Vec<_>>())
}

/// Describes excluded laps and the validity checks that they failed.
fn laps_excluded(left_out: &ExcludedLaps) -> String {
    let ExcludedLaps { are_main, laps, checks } = left_out;
    let kind = if *are_main { "" } else { " at a common rate" };
    let out = match (*laps, left_out.count()) {
        (1, 1) => format!("its only lap{kind} is"),
        (all, out) if all == out => format!("all {all} laps{kind} are"),
        (all, 1) => format!("1 of {all} laps{kind} is"),
        (all, out) => format!("{out} of {all} laps{kind} are"),
    };
    let why = match checks.as_slice() {
        [(only, 1)] => violation(only),
        [(only, _)] => format!("{} in the first of them", violation(only)),
        many => {
            let each = |(failed, times): &(Violation, usize)| {
                format!("{times} × {} (first: {})", check(failed), violation(failed))
            };
            many.iter().map(each).collect::<Vec<_>>().join(", ")
        }
    };
    format!("{out} excluded: {why}")
}

fn names(run: &Run, servers: &[usize]) -> String {
    let names: Vec<&str> = servers.iter().map(|i| run.servers[*i].name.as_str()).collect();
    names.join(", ")
}

/// Returns a note, with the servers that the note applies to. The ceiling is not counted, because
/// the user did not name it.
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

/// States how to relieve a load generator that is too slow, or else what to do. If the server has
/// one core, it cannot give cores to the generator.
fn relief(run: &Run, otherwise: &str) -> String {
    if run.schedule.server_cpus.len() > 1 {
        return format!("Give the server fewer cores (--server-cpus), or {otherwise}.");
    }
    let mut otherwise = otherwise.to_owned();
    otherwise[..1].make_ascii_uppercase();
    otherwise + "."
}

/// Returns the name of a validity check.
fn check(violation: &Violation) -> &'static str {
    match violation {
        Violation::LittlesLaw { .. } => "Little's law",
        Violation::Connections { .. } => "connections",
        Violation::Streams { .. } => "streams",
        Violation::Bytes { .. } => "bytes",
        Violation::Generator { .. } => "generator",
        Violation::Failures { .. } => "failed requests",
        Violation::WrongAnswers { .. } => "wrong responses",
        Violation::Late { .. } => "lateness",
        Violation::Generators { .. } => "generators",
        Violation::GeneratorLost { .. } => "generator lost",
        Violation::SideEffect { .. } => "side effect",
        Violation::Silence { .. } => "connection to the servers' host",
    }
}

/// Returns the remedy for laps that fail a validity check. Main laps can be late only at a rate
/// that the user chose.
fn remedy_of(run: &Run, violation: &Violation, are_main: bool) -> String {
    let remedy = match violation {
        Violation::LittlesLaw { .. } => {
            "Possibly something delayed requests outside of the server: repeat the run while the \
             machine is otherwise idle."
        }
        Violation::Connections { most, .. } => most.map_or(
            "Check whether the server limits its connections (backlog, `ulimit -n`), or use fewer \
             (-c).",
            remedy,
        ),
        Violation::Streams { .. } => {
            "The server limits the streams of a connection: ask for no more with --streams."
        }
        Violation::Bytes { .. } => {
            "The server sends more or fewer bytes than its responses should have: `hotlap check` \
             shows the responses."
        }
        Violation::Generator { .. } => {
            return relief(run, "add generators on other hosts (--generator-on)");
        }
        Violation::Failures { most, .. } => most.map_or("Look into the server's log.", remedy),
        Violation::WrongAnswers { .. } => {
            "If that response is right, say so with --expect-status and --expect-body, or in the \
             requests file."
        }
        Violation::Late { .. } if are_main => {
            return relief(run, "use a lower rate or a quieter machine");
        }
        Violation::Late { .. } => return relief(run, "use a quieter machine"),
        Violation::Generators { .. } => {
            "Check the generators' hosts, and their connections to this machine and to the server."
        }
        // The reason includes the remedy.
        Violation::GeneratorLost { .. } => "",
        Violation::SideEffect { .. } => {
            "Check whether the server drops work, and whether `counts` names the right file."
        }
        Violation::Silence { .. } => {
            "Check the network between the two hosts, and whether something stops the agent."
        }
    };
    remedy.to_owned()
}

/// Returns the class of a warm-up, in words.
pub(super) fn class(class: Class) -> &'static str {
    match class {
        Class::Flat => "flat",
        Class::WarmedUp => "warmed up",
        Class::SlowingDown => "slowing down",
        Class::NeverSteady => "never steady",
    }
}

/// Describes a failed validity check in a clause.
pub(super) fn violation(violation: &Violation) -> String {
    match violation {
        Violation::LittlesLaw { off } => {
            format!(
                "requests in flight differ from rate × latency by {}% (Little's law)",
                grouped(*off, 1)
            )
        }
        Violation::Connections { asked, up, most } => {
            let most = most.map_or_else(String::new, |most| {
                format!(" (most frequent failure: {})", words(most))
            });
            format!("only {} of {} connections were up{most}", count(*up), count(*asked))
        }
        Violation::Streams { asked, open } => {
            format!("only {} of {} streams were open on a connection", count(*open), count(*asked))
        }
        Violation::Bytes { expected, received } => {
            format!(
                "the generator received {} bytes, but the responses add up to {}",
                count(*received),
                count(*expected)
            )
        }
        Violation::Generator { busy } => {
            format!("the generator was busy {}% of the time", grouped(*busy, 0))
        }
        Violation::Failures { failures, requests, most } => {
            let most =
                most.map_or_else(String::new, |most| format!(" (most often: {})", words(most)));
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
            "the side effect happened {} for {}",
            plural(*counted as usize, "time"),
            plural(*expected as usize, "response")
        ),
        Violation::Silence { ms } => {
            format!("the servers' host did not answer for {} s", grouped(ms / 1e3, 1))
        }
    }
}

/// Returns the likely cause of failures of one kind, and what to do.
pub fn remedy(failure: Failure) -> &'static str {
    match failure {
        Failure::Refused => {
            "Possibly the server has stopped listening, or its accept queue is full: look into \
             the server's log, and try fewer connections (-c)."
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
            "The responses differ from the expected ones: `hotlap check` shows the responses."
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
