//! Tests of what is inferred about servers without a contract.

use crate::GOES_ON;
use crate::allocation::allocated;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hotlap_load::plan::{Endpoint, ExpectedBody, ExpectedStatus, Protocol, Target, Tls};
use hotlap_servers::contract::{Ask, Content, Contract, Fields, Requests};
use hotlap_servers::infer::{Inferred, infer};
use hotlap_servers::verify::{self, PAUSE, Requirements, Verifier};
use hotlap_testbed::{Flaw, HELLO, Site, TestServer, unused_address};
use socket2::{Domain, Socket, Type};

/// The time limit for a response. A hang is an error, but a busy machine is not.
const LIMIT: Duration = Duration::from_secs(60);

fn target(server: &TestServer) -> Target {
    Target::plain(Endpoint::Tcp(server.address()))
}

fn inferred(site: Site, fault: Flaw, ask: &Ask) -> Result<Inferred, String> {
    let server = TestServer::faulty(site, fault);
    infer(&target(&server), "localhost", LIMIT, &Contract::custom(ask), &GOES_ON)
}

#[test]
fn later_responses_are_compared_with_a_fixed_one() {
    let inferred = inferred(Site::Hello, Flaw::None, &Ask::default()).unwrap();
    assert_eq!(inferred.notes, [""; 0]);
    let exchange = &inferred.contract.exchanges[0];
    assert_eq!(exchange.status, ExpectedStatus::Exactly(200));
    assert_eq!(exchange.content, Content::exactly(b"Hello, World!"));
}

#[test]
fn a_clock_is_left_out_of_the_comparison_with_a_note() {
    let inferred = inferred(Site::Clock, Flaw::None, &Ask::default()).unwrap();
    let Content::Bytes { varies, .. } = &inferred.contract.exchanges[0].content else { panic!() };
    assert_eq!(varies.len(), 1);
    assert_eq!((varies[0].start, varies[0].end), (12, 25));
    assert!(inferred.notes[0].starts_with("GET /: parts of the response vary (\"17"));
}

#[test]
fn a_counter_is_reported() {
    let inferred = inferred(Site::Hello, Flaw::CountsRequests, &Ask::default()).unwrap();
    assert_eq!(inferred.contract.exchanges[0].content, Content::Any);
    assert_eq!(inferred.notes.len(), 1);
}

#[test]
fn an_error_status_is_an_error_unless_expected() {
    let ask = Ask { path: "/nowhere".to_owned(), ..Ask::default() };
    assert_eq!(
        inferred(Site::Hello, Flaw::None, &ask).unwrap_err(),
        "GET /nowhere: got 404 \"Not Found\". Set the right path with --path, or accept this \
         status with --expect-status 404. In a requests file, use path or expect_status"
    );
    let ask = Ask { status: ExpectedStatus::Exactly(404), ..ask };
    assert!(inferred(Site::Hello, Flaw::None, &ask).is_ok());
}

#[test]
fn an_expected_body_is_not_inferred() {
    let ask = Ask { answer: Some(b"Hi".to_vec()), ..Ask::default() };
    let inferred = inferred(Site::Hello, Flaw::None, &ask).unwrap();
    assert_eq!(inferred.contract.exchanges[0].content, Content::exactly(b"Hi"));
}

#[test]
fn an_inferred_contract_verifies_and_loads() {
    let server = TestServer::faulty(Site::Clock, Flaw::ClosesUnannounced);
    let target = target(&server);
    let inferred =
        infer(&target, "localhost", LIMIT, &Contract::custom(&Ask::default()), &GOES_ON).unwrap();
    let report = verify::verify(&Verifier {
        target: &target,
        host: "localhost",
        contract: &inferred.contract,
        requirements: Requirements::Custom,
        rude: false,
        limit: LIMIT,
        pause: PAUSE,
        stop: &GOES_ON,
    });
    assert!(report.passed(), "{:#?}", report.required);
    let requests = report.requests(&inferred.contract, "localhost");
    assert_eq!(requests.len(), 1);
    assert!(matches!(requests[0].expect.body, ExpectedBody::Bytes { .. }));
}

/// Starts a server that gives the nth connection a response with the nth status. Further
/// connections get the last status. The server closes each connection and keeps the first lines of
/// the requests, in order. Status 0 closes the connection without a response.
fn unsteady(statuses: &'static [u16]) -> (Target, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    let server = TestServer::start(move |mut client| {
        let request = client.request().unwrap_or_default();
        let line = String::from_utf8_lossy(&request).lines().next().unwrap_or("").to_owned();
        kept.lock().unwrap().push(line);
        let status = statuses.get(client.number).or(statuses.last()).copied().unwrap_or(200);
        if status > 0 {
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n");
            client.send(format!("{head}Connection: close\r\n\r\nok").as_bytes());
        }
    });
    (target(&server), asked)
}

/// Regression: a 500 among the first responses was an error. Six probes are sent, or fewer if they
/// take too long. The first four are sent within 25 ms.
#[test]
fn if_probes_disagree_only_the_status_is_checked() {
    /// The statuses, the status that is then checked, and the description of the probes.
    type Case = (&'static [u16], ExpectedStatus, fn(usize) -> String);
    let closed = "the connection closed without a response";
    let ok = ExpectedStatus::Exactly(200);
    let told: [Case; 4] = [
        (&[200, 500, 200], ok, |n| format!("{} × 200, 1 × 500", n - 1)),
        (&[500, 500, 500, 200], ok, |n| format!("{} × 200, 3 × 500", n - 3)),
        (&[200, 0, 200], ok, |n| format!("{} × 200, 1 × ", n - 1)),
        (&[200, 201], ExpectedStatus::Success, |n| format!("1 × 200, {} × 201", n - 1)),
    ];
    for (statuses, status, tally) in told {
        let (target, asked) = unsteady(statuses);
        let contract = Contract::custom(&Ask::default());
        let inferred = infer(&target, "localhost", LIMIT, &contract, &GOES_ON).unwrap();
        let exchange = &inferred.contract.exchanges[0];
        assert_eq!((exchange.status, &exchange.content), (status, &Content::Any), "{statuses:?}");
        let probes = asked.lock().unwrap().len();
        let closed = if statuses.contains(&0) { closed } else { "" };
        let expected = format!(
            "GET /: the first {probes} requests did not get the same response ({}{closed}), so \
             only the status is checked. Wrong responses count as errors",
            tally(probes)
        );
        assert_eq!(inferred.notes, [expected]);
    }
}

#[test]
fn a_server_without_any_right_response_is_an_error() {
    let (target, _) = unsteady(&[500]);
    let refused = |ask: &Ask| {
        infer(&target, "localhost", LIMIT, &Contract::custom(ask), &GOES_ON).unwrap_err()
    };
    assert!(refused(&Ask::default()).starts_with("GET /: got 500 \"ok\". Set the right"));
    let ask = Ask { status: ExpectedStatus::Exactly(200), ..Ask::default() };
    assert_eq!(refused(&ask), "GET /: expected status 200, got 500 \"ok\"");
    let (target, _) = unsteady(&[0]);
    let silent = infer(&target, "localhost", LIMIT, &Contract::custom(&ask), &GOES_ON).unwrap_err();
    assert_eq!(silent, "GET /: the connection closed without a response");
}

/// Regression: a POST was sent six times.
#[test]
fn a_post_is_sent_once() {
    let (target, asked) = unsteady(&[201]);
    let ask = Ask { method: "POST".to_owned(), body: b"x".to_vec(), ..Ask::default() };
    let inferred = infer(&target, "localhost", LIMIT, &Contract::custom(&ask), &GOES_ON).unwrap();
    assert_eq!(*asked.lock().unwrap(), ["POST / HTTP/1.1"]);
    let exchange = &inferred.contract.exchanges[0];
    assert_eq!((exchange.status, &exchange.content), (ExpectedStatus::Exactly(201), &Content::Any));
    assert_eq!(
        inferred.notes,
        ["POST /: POST is not safe to repeat, so hotlap sends the request once before the load. \
          Only the status is checked (--expect-body, or expect_body in a requests file, checks the \
          body too)"]
    );
}

/// Regression: probing took over a second for each line of a requests file. All probes of one
/// request, with their pauses, were sent before the next request.
#[test]
fn many_requests_are_probed_in_the_time_of_one() {
    let (target, asked) = unsteady(&[200]);
    let ask = |n| Ask { path: format!("/{n}"), ..Ask::default() };
    let asks: Vec<Ask> = (0..50).map(ask).collect();
    let requests = Requests { asks, fields: Fields::default() };
    let contract = Contract::custom_requests(&requests);
    let inferred = infer(&target, "localhost", LIMIT, &contract, &GOES_ON).unwrap();
    assert_eq!(inferred.responses.len(), 50);
    let asked = asked.lock().unwrap();
    let lines: Vec<String> = (0..50).map(|n| format!("GET /{n} HTTP/1.1")).collect();
    // Each round of probes sends all requests. The last round may be cut short.
    assert!(asked.len() <= 6 * 50);
    for round in asked.chunks(50) {
        assert_eq!(round, &lines[..round.len()]);
    }
}

/// Regression: `run` rejected a server that gave one wrong response to its checks.
#[test]
fn a_server_that_fails_now_and_then_passes_verification() {
    // The connections are six probes, the silence check, and the first check of the response.
    let (target, _) = unsteady(&[200, 200, 200, 200, 200, 200, 200, 500, 200]);
    let contract = Contract::custom(&Ask::default());
    let inferred = infer(&target, "localhost", LIMIT, &contract, &GOES_ON).unwrap();
    let report = verify::verify(&Verifier {
        target: &target,
        host: "localhost",
        contract: &inferred.contract,
        requirements: Requirements::Custom,
        rude: false,
        limit: LIMIT,
        pause: PAUSE,
        stop: &GOES_ON,
    });
    assert!(report.passed(), "{:#?}", report.required);
    assert_eq!(report.responses[0].status, 200);
}

/// Regression: refused connections counted as responses that differ, so no body was checked.
#[test]
fn a_server_that_listens_a_moment_later_is_waited_for() {
    let address = unused_address();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(150));
        TestServer::on(TcpListener::bind(address).unwrap(), |mut client| client.respond(HELLO))
    });
    let target = Target::plain(Endpoint::Tcp(address));
    let found =
        infer(&target, "localhost", LIMIT, &Contract::custom(&Ask::default()), &GOES_ON).unwrap();
    assert_eq!(found.contract.exchanges[0].content, Content::exactly(b"Hello, World!"));
    assert_eq!(found.notes, [""; 0]);
    drop(later.join());
}

/// Regression: probes waited for a silent server until their limit, even after an interrupt.
#[test]
fn probes_of_a_silent_server_end_when_the_user_interrupts() {
    // The queue holds one connection and is full, so the next connection is never established.
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
    let _queued: Vec<TcpStream> = std::iter::from_fn(|| connect().ok()).collect();
    let accepting = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let accepts = Target::plain(Endpoint::Tcp(accepting.local_addr().unwrap()));
    let secret = Target { tls: Some(Tls::with("localhost".to_owned())), ..accepts.clone() };
    let multiplexed = Target { protocol: Protocol::Http2, ..accepts.clone() };
    let targets = [Target::plain(Endpoint::Tcp(address)), accepts, secret, multiplexed];

    let contract = &Contract::custom(&Ask::default());
    let stop = &AtomicBool::new(false);
    let interrupted = |probe: &(dyn Fn() + Sync)| {
        stop.store(false, Ordering::Relaxed);
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(probe);
            std::thread::sleep(Duration::from_millis(20));
            stop.store(true, Ordering::Relaxed);
        });
        assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    };
    for target in &targets {
        interrupted(&|| {
            let found = infer(target, "localhost", LIMIT, contract, stop);
            assert_eq!(found, Err("interrupted".to_owned()));
        });
        interrupted(&|| {
            let findings = verify::verify(&Verifier {
                target,
                host: "localhost",
                contract,
                requirements: Requirements::Custom,
                rude: true,
                limit: LIMIT,
                pause: PAUSE,
                stop,
            });
            assert!(!findings.passed(), "{findings:?}");
        });
    }
}

/// Regression: after each read, everything that had arrived of a response was read and copied
/// again. Probes of 20 MB took 15 s.
#[test]
fn the_work_of_probes_is_in_proportion_to_the_body() {
    let work = |head: &str, bytes: usize, end: &str| {
        let response = format!("HTTP/1.1 200 OK\r\n{head}\r\n{}{end}", "a".repeat(bytes));
        let server = TestServer::responding(response);
        let before = allocated();
        let contract = Contract::custom(&Ask::default());
        let found = infer(&target(&server), "localhost", LIMIT, &contract, &GOES_ON).unwrap();
        assert_eq!(found.responses[0].body.len(), bytes);
        allocated() - before
    };
    let with_length = |bytes| work(&format!("Content-Length: {bytes}\r\n"), bytes, "");
    let chunked = |bytes| {
        let head = format!("Transfer-Encoding: chunked\r\n\r\n{bytes:x}");
        work(&head, bytes, "\r\n0\r\n\r\n")
    };
    for work in [&with_length as &dyn Fn(usize) -> usize, &chunked] {
        let (small, large) = (work(1 << 20), work(4 << 20));
        assert!(large <= 5 * small, "{small} and {large} bytes allocated");
    }
}
