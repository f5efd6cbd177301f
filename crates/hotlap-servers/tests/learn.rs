//! What is learned of servers that bring no contract.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hotlap_load::plan::{Endpoint, ExpectedBody, ExpectedStatus, Target};
use hotlap_servers::contract::{Ask, Content, Contract};
use hotlap_servers::infer::{Inferred, infer};
use hotlap_servers::verify::{self, PAUSE, Requirements, Verifier};
use hotlap_testbed::{Fault, Site, TestServer};

/// How long an answer may take: a hang is an error, a busy machine is not.
const LIMIT: Duration = Duration::from_secs(60);

fn target(server: &TestServer) -> Target {
    Target { endpoint: Endpoint::Tcp(server.address()), tls: None }
}

fn inferred(site: Site, fault: Fault, ask: &Ask) -> Result<Inferred, String> {
    let server = TestServer::faulty(site, fault);
    infer(&target(&server), "localhost", LIMIT, &Contract::custom(ask))
}

#[test]
fn a_fixed_answer_is_the_measure_of_the_next() {
    let inferred = inferred(Site::Hello, Fault::None, &Ask::default()).unwrap();
    assert_eq!(inferred.notes, [""; 0]);
    let exchange = &inferred.contract.exchanges[0];
    assert_eq!(exchange.status, ExpectedStatus::Exactly(200));
    assert_eq!(exchange.content, Content::exactly(b"Hello, World!"));
}

#[test]
fn a_clock_is_left_out_of_the_comparison_and_told() {
    let inferred = inferred(Site::Clock, Fault::None, &Ask::default()).unwrap();
    let Content::Bytes { varies, .. } = &inferred.contract.exchanges[0].content else { panic!() };
    assert_eq!(varies.len(), 1);
    assert_eq!((varies[0].start, varies[0].end), (12, 25));
    assert!(inferred.notes[0].starts_with("GET /: parts of its answer vary (\"17"));
}

#[test]
fn a_counter_is_told() {
    let inferred = inferred(Site::Hello, Fault::CountsRequests, &Ask::default()).unwrap();
    assert_eq!(inferred.contract.exchanges[0].content, Content::Any);
    assert_eq!(inferred.notes.len(), 1);
}

#[test]
fn a_refusal_is_an_error_unless_it_was_asked_for() {
    let ask = Ask { path: "/nowhere".to_owned(), ..Ask::default() };
    assert_eq!(
        inferred(Site::Hello, Fault::None, &ask).unwrap_err(),
        "GET /nowhere is answered 404 \"Not Found\": name the right path with --path, or this \
         status with --expect-status 404"
    );
    let ask = Ask { status: Some(404), ..ask };
    assert!(inferred(Site::Hello, Fault::None, &ask).is_ok());
}

#[test]
fn an_answer_that_was_named_is_not_learned() {
    let ask = Ask { answer: Some(b"Hi".to_vec()), ..Ask::default() };
    let inferred = inferred(Site::Hello, Fault::None, &ask).unwrap();
    assert_eq!(inferred.contract.exchanges[0].content, Content::exactly(b"Hi"));
}

#[test]
fn what_was_learned_verifies_and_loads() {
    let server = TestServer::faulty(Site::Clock, Fault::ClosesUnannounced);
    let target = target(&server);
    let inferred = infer(&target, "localhost", LIMIT, &Contract::custom(&Ask::default())).unwrap();
    let report = verify::verify(&Verifier {
        target: &target,
        host: "localhost",
        contract: &inferred.contract,
        requirements: Requirements::Custom,
        rude: false,
        limit: LIMIT,
        pause: PAUSE,
    });
    assert!(report.passed(), "{:#?}", report.required);
    let requests = report.requests(&inferred.contract, "localhost");
    assert_eq!(requests.len(), 1);
    assert!(matches!(requests[0].expect.body, ExpectedBody::Bytes { .. }));
}

/// A server that gives the nth connection a response with the nth status, the last one again and
/// again, closes each connection, and keeps the first lines of the requests, in order. Status 0
/// closes the connection without a response.
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

/// A 500 among the first responses refused the server: "is answered 200 and then 500". Six probes
/// are sent, or fewer where they take too long; the first four within 25 ms.
#[test]
fn probes_that_disagree_leave_the_status_to_be_checked() {
    /// Statuses, which of them is checked, and how so many probes are described.
    type Case = (&'static [u16], ExpectedStatus, fn(usize) -> String);
    let closed = "the connection closed without an answer";
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
        let inferred = infer(&target, "localhost", LIMIT, &contract).unwrap();
        let exchange = &inferred.contract.exchanges[0];
        assert_eq!((exchange.status, &exchange.content), (status, &Content::Any), "{statuses:?}");
        let probes = asked.lock().unwrap().len();
        let closed = if statuses.contains(&0) { closed } else { "" };
        let expected = format!(
            "GET /: its first {probes} requests were answered differently ({}{closed}), so only \
             the status is checked; wrong answers are counted as errors",
            tally(probes)
        );
        assert_eq!(inferred.notes, [expected]);
    }
}

#[test]
fn a_server_that_never_gives_a_right_response_is_refused() {
    let (target, _) = unsteady(&[500]);
    let refused =
        |ask: &Ask| infer(&target, "localhost", LIMIT, &Contract::custom(ask)).unwrap_err();
    assert!(refused(&Ask::default()).starts_with("GET / is answered 500 \"ok\": name the right"));
    let ask = Ask { status: Some(200), ..Ask::default() };
    assert_eq!(refused(&ask), "GET / is answered 500 \"ok\", not with status 200");
    let (target, _) = unsteady(&[0]);
    let silent = infer(&target, "localhost", LIMIT, &Contract::custom(&ask)).unwrap_err();
    assert_eq!(silent, "GET /: the connection closed without an answer");
}

/// It was sent six times.
#[test]
fn a_post_is_sent_once() {
    let (target, asked) = unsteady(&[201]);
    let ask = Ask { method: "POST".to_owned(), body: b"x".to_vec(), ..Ask::default() };
    let inferred = infer(&target, "localhost", LIMIT, &Contract::custom(&ask)).unwrap();
    assert_eq!(*asked.lock().unwrap(), ["POST / HTTP/1.1"]);
    let exchange = &inferred.contract.exchanges[0];
    assert_eq!((exchange.status, &exchange.content), (ExpectedStatus::Exactly(201), &Content::Any));
    assert_eq!(
        inferred.notes,
        ["POST /: POST is not safe to repeat, so it was sent once before the load, and only the \
          status is checked (--expect-body checks the body too)"]
    );
}

/// Each line of a requests file took over a second: a request was probed again and again, with
/// pauses, before the next one was sent at all.
#[test]
fn many_requests_are_learned_in_the_time_of_one() {
    let (target, asked) = unsteady(&[200]);
    let ask = |n| Ask { path: format!("/{n}"), ..Ask::default() };
    let asks: Vec<Ask> = (0..50).map(ask).collect();
    let inferred = infer(&target, "localhost", LIMIT, &Contract::strangers(&asks)).unwrap();
    assert_eq!(inferred.answers.len(), 50);
    let asked = asked.lock().unwrap();
    let lines: Vec<String> = (0..50).map(|n| format!("GET /{n} HTTP/1.1")).collect();
    // Each round of probes has all requests; the last one may be cut short.
    assert!(asked.len() <= 6 * 50);
    for round in asked.chunks(50) {
        assert_eq!(round, &lines[..round.len()]);
    }
}

/// `run` refused a server that gave one wrong response to its checks.
#[test]
fn a_server_that_fails_now_and_then_passes_verification() {
    // Six probes, a look whether it is silent, and the first check.
    let (target, _) = unsteady(&[200, 200, 200, 200, 200, 200, 200, 500, 200]);
    let contract = Contract::custom(&Ask::default());
    let inferred = infer(&target, "localhost", LIMIT, &contract).unwrap();
    let report = verify::verify(&Verifier {
        target: &target,
        host: "localhost",
        contract: &inferred.contract,
        requirements: Requirements::Custom,
        rude: false,
        limit: LIMIT,
        pause: PAUSE,
    });
    assert!(report.passed(), "{:#?}", report.required);
    assert_eq!(report.answers[0].status, 200);
}
