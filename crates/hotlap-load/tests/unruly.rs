//! Tests of loads on servers that misbehave at random. Each load must end in time, without a panic,
//! and must count what the server counts. `HOTLAP_SEEDS=20000` tries 20,000 servers.

#[path = "support/certificate.rs"]
mod certificate;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotlap_load::plan::{Endpoint, Pace, Protocol, Request, Reuse, Stop, Target, Tls};
use hotlap_load::testing::replay;
use hotlap_load::{Failure, Outcome, Phase, Plan, run};
use hotlap_testbed::http2::{frame, kind};
use hotlap_testbed::{Deed, Flaw, Peer, Site, Speaks, TestServer, Unruly, for_seeds, most_memory};
use rustls::ServerConnection;
use socket2::Socket;

use certificate::valid;

/// How much longer a load may take than its planned time.
const BEYOND: Duration = Duration::from_secs(2);

/// Returns the plan for a seed.
fn plan(seed: u64, server: &TestServer, speaks: Speaks) -> Plan {
    let mut target = Target::plain(Endpoint::Tcp(server.address()));
    match speaks {
        Speaks::Http1 => {}
        Speaks::Http2 => target.protocol = Protocol::Http2,
        Speaks::Tls => {
            target.tls = Some(Tls { insecure: true, ..Tls::with("localhost".to_owned()) })
        }
    }
    let mut plan = Plan::new(target, Request::get("/", "test").expecting(b"Hello, World!"));
    plan.shape.connections = 1 + seed as usize % 3;
    plan.warmup = Duration::ZERO;
    plan
}

fn try_one(seed: u64) {
    let unruly = Arc::new(Unruly::new(seed));
    let server = unruly.start();
    let mut plan = plan(seed, &server, unruly.speaks);
    plan.shape.pipeline = [1, 1, 4][seed as usize / 3 % 3];
    plan.timeout = Duration::from_millis(40);
    plan.stop = Stop::After(Duration::from_millis(180));
    match seed % 5 {
        0 if plan.shape.pipeline == 1 => plan.shape.reuse = Reuse::Close,
        1 => plan.pace = Pace::Constant { rate: 500.0 },
        _ => {}
    }
    let began = Instant::now();
    let outcome = run(&plan);
    let took = began.elapsed();
    server.close();
    let limit = plan.timeout + Duration::from_millis(180) + BEYOND;
    assert!(took < limit, "seed {seed}: {took:?}, {unruly:?}");
    let outcome = match outcome {
        Ok(outcome) => outcome,
        // No connection could be opened.
        Err(error) => {
            return assert!(!error.to_string().contains("bug"), "seed {seed}: {error}, {unruly:?}");
        }
    };
    let why = &(seed, &unruly);
    adds_up(&plan, &outcome, why);
    let responses = outcome.totals.responses;
    // A server may respond to requests that it has not read.
    let is_read = plan.shape.pipeline > 1 || responses <= unruly.requests();
    assert!(is_read, "{why:?}: {responses}");
}

/// Returns the number of failures in these phases.
fn in_phase(outcome: &Outcome, phases: &[Phase]) -> u64 {
    let failures = outcome.failures.0.iter().filter(|failure| phases.contains(&failure.phase));
    failures.map(|failure| failure.count).sum()
}

/// Checks that each request that was sent has a response, has failed, or is in flight.
fn adds_up(plan: &Plan, outcome: &Outcome, why: &dyn Debug) {
    // Requests that failed in these phases were sent completely.
    let least = outcome.totals.responses + in_phase(outcome, &[Phase::FirstByte, Phase::Body]);
    // Some of the requests added here were begun but not sent, because their connection was not
    // open.
    let most = least + in_phase(outcome, &[Phase::Send]) + outcome.in_flight;
    let sent = outcome.totals.sent;
    let counts = || format!("{why:?}: {sent} sent, {least} to {most}, {:?}", outcome.failures);
    assert!((least..=most).contains(&sent), "{}", counts());
    let room = plan.shape.in_flight() as u64;
    assert!(outcome.in_flight <= room, "{} in flight: {}", outcome.in_flight, counts());
}

#[test]
fn loads_of_unruly_servers_end_and_add_up() {
    for_seeds(300, 8, try_one);
    let most = most_memory("self");
    assert!(most.is_none_or(|bytes| bytes < 300 << 20), "{most:?}");
}

/// How a load counts an action of a server, if the load reads nothing else at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Meaning {
    Correct,
    Wrong,
    /// The response is correct so far, but never becomes complete.
    Waits,
    Closes,
    /// The count depends on how much the load reads at once, or on when it reads.
    Depends,
}

fn meaning(plan: &Plan, deed: Deed<'_>) -> Meaning {
    let (bytes, takes, again) = match deed {
        Deed::Responds => return Meaning::Correct,
        Deed::Waits => return Meaning::Waits,
        Deed::Closes => return Meaning::Closes,
        Deed::Sends(bytes, takes, again) => (bytes, takes, again),
    };
    // The repeated bytes exceed the limits of a head and of interim responses.
    let repeats = if again.is_empty() { 0 } else { (1 << 20) / again.len() };
    let all = [bytes, &again.repeat(repeats)].concat();
    let is_http2 = plan.target.protocol == Protocol::Http2;
    let settings = if is_http2 { frame(kind::SETTINGS, 0, 0, b"") } else { Vec::new() };
    let found = replay(plan, &[&settings, &all], false);
    let failed = found.failed.first().copied().or(found.broken);
    match (found.responses.first(), failed) {
        _ if takes > plan.timeout / 4 => Meaning::Depends,
        // Earlier frames may change the meaning of later frames.
        _ if is_http2 && plan.shape.reuse == Reuse::KeepAlive => Meaning::Depends,
        (None, Some(_)) => Meaning::Wrong,
        (None, None) => Meaning::Waits,
        // The remaining bytes are the beginning of the next response.
        (Some((_, length, _)), _) if *length < all.len() as u64 && !is_http2 => Meaning::Depends,
        (Some((_, _, true)), _) => Meaning::Correct,
        (Some((_, _, false)), _) => Meaning::Wrong,
    }
}

/// The number of requests, each of which gets a response or fails.
const REQUESTS: u64 = 40;

fn count_one(seed: u64) {
    let unruly = Arc::new(Unruly::new(seed));
    let mut server = unruly.start();
    let is_over_tls = seed % 4 == 3 && unruly.speaks != Speaks::Tls;
    if is_over_tls {
        server = over_tls(server.address());
    }
    let mut plan = plan(seed, &server, unruly.speaks);
    if is_over_tls {
        let tls = Tls { insecure: true, ..Tls::with("localhost".to_owned()) };
        plan.target.tls = Some(tls);
    }
    plan.timeout = Duration::from_millis(400);
    plan.stop = Stop::Requests(REQUESTS);
    plan.shape.reuse = if seed.is_multiple_of(2) { Reuse::Close } else { Reuse::KeepAlive };
    let outcome = run(&plan);
    server.close();
    let Ok(outcome) = outcome else { return };
    let why = format!("seed {seed}: {unruly:?}, {:?}", outcome.failures);
    adds_up(&plan, &outcome, &why);
    assert_eq!(outcome.in_flight, 0, "{why}");
    let (responses, failures) = (outcome.responses, &outcome.failures);
    let fewest = responses + in_phase(&outcome, &[Phase::Send, Phase::FirstByte, Phase::Body]);
    // A failed connection without a request takes the place of a request, if any requests are left.
    let range = fewest..=responses + failures.total();
    assert!(range.contains(&REQUESTS), "{range:?}: {why}");
    let sent = outcome.totals.sent;
    if unruly.speaks == Speaks::Tls {
        return assert_eq!((sent, responses), (0, 0), "{why}");
    }
    let mut count = BTreeMap::<Meaning, u64>::new();
    for (deed, done) in unruly.deeds().filter(|(deed, _)| *deed != Deed::Responds) {
        *count.entry(meaning(&plan, deed)).or_default() += done;
    }
    let count = |meaning| count.get(&meaning).copied().unwrap_or(0);
    // The server needs time to read what has arrived.
    let until = Instant::now() + BEYOND;
    while (unruly.requests() < sent || unruly.is_busy()) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    let (read, correct) = (unruly.requests(), unruly.sent() + count(Meaning::Correct));
    let depends = count(Meaning::Depends);
    if depends > 0 {
        // The server may have closed a connection with a request on it. In HTTP/2, the load sends a
        // request again if the server has not processed it. While the server sends byte by byte, it
        // does not read.
        let most = read + count(Meaning::Closes);
        let is_slow = |(deed, done): (Deed<'_>, u64)| match deed {
            Deed::Sends(_, takes, _) => done > 0 && takes > plan.timeout,
            _ => false,
        };
        assert!(sent <= most || unruly.deeds().any(is_slow), "{sent} sent, {read} read: {why}");
        return assert!(responses <= correct + depends, "{why}");
    }
    assert_eq!(sent, read, "{why}");
    let of = |kinds: &[Failure]| kinds.iter().map(|kind| failures.of(*kind)).sum::<u64>();
    // On a busy machine, a response may come too late.
    let late = of(&[Failure::Timeout]).checked_sub(count(Meaning::Waits));
    let late = late.unwrap_or_else(|| panic!("too few time-outs: {why}"));
    let is = |counted: u64, by_server: u64, what: &str| {
        let range = by_server.saturating_sub(late)..=by_server;
        assert!(range.contains(&counted), "{what}: {counted} instead of {by_server}: {why}");
    };
    is(responses, correct, "correct responses");
    // If bytes break the protocol and the connection ends after them, the load counts whichever it
    // reads first.
    let wrong = [Failure::BadFraming, Failure::WrongStatus, Failure::WrongBody];
    let by_server = unruly.unanswered() + count(Meaning::Closes) + count(Meaning::Wrong);
    let closed = [Failure::ClosedEarly, Failure::Reset, Failure::StreamReset];
    is(of(&wrong) + of(&closed), by_server, "wrong responses and closed connections");
}

/// Starts a TLS server that passes each connection on to the server at this address.
fn over_tls(address: SocketAddr) -> TestServer {
    let mut config = Arc::unwrap_or_clone(valid());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let config = Arc::new(config);
    TestServer::start(move |client: Peer| {
        let server = TcpStream::connect(address).expect("a server");
        let tls = ServerConnection::new(Arc::clone(&config)).expect("a connection");
        client.stream.set_nonblocking(true).expect("a socket option");
        server.set_nonblocking(true).expect("a socket option");
        // If either side disconnects, the other side does too, because both are dropped here.
        if pass_on(tls, &client.stream, &server).is_err() {
            let _ = client.stream.set_linger(Some(Duration::ZERO));
        }
    })
}

/// Passes bytes on in both directions until the client disconnects.
fn pass_on(mut tls: ServerConnection, mut client: &Socket, mut server: &TcpStream) -> Result<()> {
    let would_block = |error: &Error| error.kind() == ErrorKind::WouldBlock;
    let (mut bytes, mut has_ended) = (vec![0; 16_384], false);
    loop {
        match tls.read_tls(&mut client) {
            Ok(0) => return Ok(()),
            Ok(_) => {
                let state = tls.process_new_packets().map_err(Error::other)?;
                let plain = &mut bytes[..state.plaintext_bytes_to_read().min(16_384)];
                tls.reader().read_exact(plain)?;
                server.write_all(plain)?;
            }
            Err(error) if would_block(&error) => std::thread::sleep(Duration::from_micros(100)),
            Err(error) => return Err(error),
        }
        while tls.wants_write()
            && tls
                .write_tls(&mut client)
                .map_or_else(|e| if would_block(&e) { Ok(false) } else { Err(e) }, |_| Ok(true))?
        {
        }
        if has_ended || tls.wants_write() {
            continue;
        }
        match server.read(&mut bytes) {
            Ok(0) => {
                tls.send_close_notify();
                has_ended = true;
            }
            Ok(count) => tls.writer().write_all(&bytes[..count])?,
            Err(error) if would_block(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn a_load_counts_what_the_server_counts() {
    for_seeds(120, 16, count_one);
}

/// Each case has a rule that the server breaks, the number of requests that the load sends at once,
/// and the expected counts.
#[test]
fn a_load_counts_correctly_if_the_server_breaks_one_rule() {
    let all_fail = |failure| (0, Some((failure, REQUESTS)));
    let cases = [
        (Flaw::None, 1, (REQUESTS, None)),
        (Flaw::None, 4, (REQUESTS, None)),
        (Flaw::BareLineFeeds, 1, all_fail(Failure::BadFraming)),
        (Flaw::RespondsToEachRead, 1, (REQUESTS, None)),
        (Flaw::SwapsPipelined, 4, (REQUESTS, None)),
        (Flaw::ClosesAnnounced, 1, (REQUESTS, None)),
        (Flaw::NoContentLength, 1, (REQUESTS, None)),
        (Flaw::OneConnectionAtATime, 1, (REQUESTS, None)),
        (Flaw::WrongBody, 1, all_fail(Failure::WrongBody)),
        (Flaw::WrongBody, 4, all_fail(Failure::WrongBody)),
        (Flaw::CountsRequests, 1, all_fail(Failure::WrongBody)),
    ];
    for (flaw, pipeline, expected) in cases {
        let server = TestServer::faulty(Site::Hello, flaw);
        let mut plan = plan(0, &server, Speaks::Http1);
        (plan.shape.pipeline, plan.stop) = (pipeline, Stop::Requests(REQUESTS));
        let outcome = run(&plan).expect("a load");
        adds_up(&plan, &outcome, &flaw);
        let failures: Vec<_> = outcome.failures.0.iter().map(|f| (f.failure, f.count)).collect();
        let expected = (expected.0, Vec::from_iter(expected.1));
        assert_eq!((outcome.responses, failures), expected, "{flaw:?}");
        assert_eq!(outcome.totals.sent, server.requests() as u64, "{flaw:?}");
    }
    // This server closes the connection before it reads what was sent in the meantime.
    let server = TestServer::faulty(Site::Hello, Flaw::ClosesUnannounced);
    let mut plan = plan(0, &server, Speaks::Http1);
    plan.stop = Stop::Requests(REQUESTS);
    let outcome = run(&plan).expect("a load");
    adds_up(&plan, &outcome, &"closes");
    let closed = outcome.failures.of(Failure::ClosedEarly) + outcome.failures.of(Failure::Reset);
    assert_eq!(closed, outcome.failures.total());
    assert_eq!(outcome.responses, server.requests() as u64);
}
