//! What is learned of servers that bring no contract.

#[allow(dead_code, reason = "each test file tells lies of its own")]
mod liar;

use hotlap_harness::contract::{Ask, Content, Contract};
use hotlap_harness::learn::{Learned, learn};
use hotlap_harness::verify::{self, Demand, Verifier};
use hotlap_load::plan::{Body, Endpoint, Status, Target};
use liar::{Liar, Lie, Site};

fn target(liar: &Liar) -> Target {
    Target { endpoint: Endpoint::Tcp(liar.address), tls: None }
}

fn learned(site: Site, lie: Lie, ask: &Ask) -> Result<Learned, String> {
    let liar = Liar::start(site, lie);
    learn(&target(&liar), "localhost", &Contract::stranger(ask))
}

#[test]
fn a_fixed_answer_is_the_measure_of_the_next() {
    let learned = learned(Site::Hello, Lie::Nothing, &Ask::default()).unwrap();
    assert_eq!(learned.notes, [""; 0]);
    let exchange = &learned.contract.exchanges[0];
    assert_eq!(exchange.status, Status::Exactly(200));
    assert_eq!(exchange.content, Content::exactly(b"Hello, World!"));
}

#[test]
fn a_clock_is_left_out_of_the_comparison_and_told() {
    let learned = learned(Site::Clock, Lie::Nothing, &Ask::default()).unwrap();
    let Content::Bytes { varies, .. } = &learned.contract.exchanges[0].content else { panic!() };
    assert_eq!(varies.len(), 1);
    assert_eq!((varies[0].start, varies[0].end), (12, 25));
    assert!(learned.notes[0].starts_with("GET /: parts of its answer vary (\"17"));
}

#[test]
fn a_counter_is_told() {
    let learned = learned(Site::Hello, Lie::Counts, &Ask::default()).unwrap();
    assert_eq!(learned.contract.exchanges[0].content, Content::Any);
    assert_eq!(learned.notes.len(), 1);
}

#[test]
fn a_refusal_is_an_error_unless_it_was_asked_for() {
    let ask = Ask { path: "/nowhere".to_owned(), ..Ask::default() };
    assert_eq!(
        learned(Site::Hello, Lie::Nothing, &ask).unwrap_err(),
        "GET /nowhere is answered 404 \"Not Found\": name the right path with --path, or this \
         status with --expect-status 404"
    );
    let ask = Ask { status: Some(404), ..ask };
    assert!(learned(Site::Hello, Lie::Nothing, &ask).is_ok());
}

#[test]
fn an_answer_that_was_named_is_not_learned() {
    let ask = Ask { answer: Some(b"Hi".to_vec()), ..Ask::default() };
    let learned = learned(Site::Hello, Lie::Nothing, &ask).unwrap();
    assert_eq!(learned.contract.exchanges[0].content, Content::exactly(b"Hi"));
}

#[test]
fn what_was_learned_verifies_and_loads() {
    let liar = Liar::start(Site::Clock, Lie::ClosesAfterOne);
    let target = target(&liar);
    let learned = learn(&target, "localhost", &Contract::stranger(&Ask::default())).unwrap();
    let report = verify::verify(&Verifier {
        target: &target,
        host: "localhost",
        contract: &learned.contract,
        demand: Demand::Stranger,
        rude: false,
        limit: verify::LIMIT,
    });
    assert!(report.passed(), "{:#?}", report.required);
    let requests = report.requests(&learned.contract, "localhost");
    assert_eq!(requests.len(), 1);
    assert!(matches!(requests[0].expect.body, Body::Bytes { .. }));
}
