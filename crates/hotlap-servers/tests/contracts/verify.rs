//! Tests of the verifier with servers that have one fault each, which the right check must find.

use crate::GOES_ON;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hotlap_load::plan::{Endpoint, Target};
use hotlap_servers::catalogue::ServerKind;
use hotlap_servers::contract::{Ask, Contract, Fields, Name, Requests};
use hotlap_servers::verify::{self, Findings, Requirements, Verifier};
use hotlap_testbed::{Flaw, Site, TestServer, unused_address};

const FRAMEWORK: Requirements =
    Requirements::Catalogue { kind: ServerKind::Framework, keep_alive: true };

/// The time limit for a response that must come. A hang is an error, but a busy machine is not.
const HANG: Duration = Duration::from_secs(60);

fn verified(site: Site, fault: Flaw, requirements: Requirements) -> Findings {
    // A fault that shows as a missing response takes the whole time limit. A fault that shows as
    // unexpected bytes is seen as soon as the bytes arrive, however late.
    let (limit, pause, rude) = match fault {
        Flaw::Silent | Flaw::DropsPipelined => (verify::LIMIT, verify::PAUSE, true),
        Flaw::RespondsBeforeRequest => (HANG, HANG / 8, true),
        Flaw::RespondsToEachRead => (verify::LIMIT, Duration::from_millis(500), false),
        _ => (HANG, verify::PAUSE, true),
    };
    let server = TestServer::faulty(site, fault);
    let name = match site {
        Site::Hello => Name::Hello,
        Site::Clock => Name::Clock,
        Site::JsonApi => Name::JsonApi,
    };
    let contract = Contract::of(name, None);
    let target = Target::plain(Endpoint::Tcp(server.address()));
    let host = server.address().to_string();
    let verifier = Verifier {
        target: &target,
        host: &host,
        contract: &contract,
        requirements,
        rude,
        limit,
        pause,
        stop: &GOES_ON,
    };
    verify::verify(&verifier)
}

fn failed(report: &Findings) -> Vec<&str> {
    report.failures().map(|check| check.name.as_str()).collect()
}

fn missed(report: &Findings) -> Vec<&str> {
    report.conformance.iter().filter(|check| !check.pass).map(|check| check.name.as_str()).collect()
}

/// Asserts that exactly this required check fails, with this text.
fn finds(site: Site, fault: Flaw, name: &str, got: &str) {
    let report = verified(site, fault, FRAMEWORK);
    assert_eq!(failed(&report), [name], "{fault:?}: {:#?}", report.required);
    let check = report.failures().next().unwrap();
    assert!(check.got.contains(got), "{fault:?}: {check}");
}

#[test]
fn a_correct_server_passes_all_checks() {
    for site in [Site::Hello, Site::Clock, Site::JsonApi] {
        let report = verified(site, Flaw::None, FRAMEWORK);
        assert_eq!(failed(&report), [""; 0], "{site:?}: {:#?}", report.required);
        assert_eq!(missed(&report), [""; 0], "{site:?}: {:#?}", report.conformance);
        assert_eq!(report.conformance_count(), (13, 13));
        assert_eq!(report.ended, None);
    }
}

#[test]
fn a_server_with_one_connection_at_a_time_is_slow_but_not_wrong() {
    let report = verified(Site::Hello, Flaw::OneConnectionAtATime, FRAMEWORK);
    assert!(report.passed(), "{:#?}", report.required);
}

#[test]
fn a_response_before_the_request_ends_the_verification() {
    finds(Site::Hello, Flaw::RespondsBeforeRequest, "silence", "bytes: \"HTTP/1.1 200");
}

#[test]
fn a_wrong_response_is_found_and_shown() {
    finds(Site::Hello, Flaw::WrongBody, "GET /", "body \"Hello, world!\"");
    finds(Site::Hello, Flaw::WrongContentType, "GET /", "Content-Type text/html");
    finds(Site::Hello, Flaw::Silent, "GET /", "no response within 2 s");
}

#[test]
fn a_clock_that_is_stopped_or_off_is_found() {
    finds(Site::Clock, Flaw::StaleClock, "GET /", "the same time for 1.5 s");
    finds(Site::Clock, Flaw::WrongClock, "GET /", "ms off");
}

#[test]
fn a_json_application_that_accepts_anything_is_found() {
    finds(Site::JsonApi, Flaw::AcceptsAnyMediaType, "POST /bla as text/plain", "200 \"{");
}

#[test]
fn missing_framing_is_found() {
    finds(Site::Hello, Flaw::BareLineFeeds, "line ends", "a bare LF");
    let report = verified(Site::Hello, Flaw::NoContentLength, FRAMEWORK);
    assert_eq!(failed(&report), ["framing", "keep-alive", "pipelining"]);
}

#[test]
fn a_server_that_answers_reads_instead_of_requests_is_found() {
    finds_among(Flaw::RespondsToEachRead, "split request", "a response to the first piece alone");
    finds_among(Flaw::RespondsTwice, "split request", "after the response, ");
}

/// Asserts that this check fails with this text. Other checks may fail, too, because the fault
/// affects them.
fn finds_among(fault: Flaw, name: &str, got: &str) {
    let report = verified(Site::Hello, fault, FRAMEWORK);
    let check = report.failures().find(|check| check.name == name);
    let check = check.unwrap_or_else(|| panic!("{fault:?}: {:#?}", report.required));
    assert!(check.got.contains(got), "{fault:?}: {check}");
}

#[test]
fn dropped_and_swapped_responses_are_found() {
    finds(Site::Hello, Flaw::DropsPipelined, "pipelining", "second response: no response");
    finds(Site::Hello, Flaw::SwapsPipelined, "pipelining", "first response: 404");
    finds(Site::JsonApi, Flaw::SwapsPipelined, "pipelining", "first response: body");
}

/// Regression: pipelining counted as broken if the response to the second request varied.
#[test]
fn the_second_of_two_pipelined_responses_may_vary_where_the_contract_lets_it() {
    let server = TestServer::faulty(Site::Hello, Flaw::CountsRequests);
    let target = Target::plain(Endpoint::Tcp(server.address()));
    let asks = vec![Ask::default(), Ask::default()];
    let contract = Contract::custom_requests(&Requests { asks, fields: Fields::default() });
    let report = verify::verify(&Verifier {
        target: &target,
        host: "x",
        contract: &contract,
        requirements: Requirements::Custom,
        rude: false,
        limit: HANG,
        pause: verify::PAUSE,
        stop: &GOES_ON,
    });
    let check = report.conformance.iter().find(|check| check.name == "pipelining").unwrap();
    assert!(check.pass, "{check}");
}

#[test]
fn connections_closed_too_early_or_too_late_are_found() {
    finds(Site::Hello, Flaw::IgnoresConnectionClose, "close", "still open after 2 s");
    finds(Site::Hello, Flaw::KeepsHttp10Open, "HTTP/1.0", "still open after 2 s");
    finds(Site::Hello, Flaw::ChunksToHttp10, "HTTP/1.0", "chunked");
    let report = verified(Site::Hello, Flaw::ClosesUnannounced, FRAMEWORK);
    assert_eq!(failed(&report), ["keep-alive", "pipelining"]);
}

/// Helidon 4 responds to HTTP/1.0 with a 505 by design. Such a refusal is not a wrong response, so
/// it is only reported, and the server may be measured.
#[test]
fn a_server_that_answers_http_1_0_with_505_fails_one_conformance_check() {
    let report = verified(Site::Hello, Flaw::RefusesHttp10, FRAMEWORK);
    assert_eq!(failed(&report), [""; 0], "{:#?}", report.required);
    let refused = report.conformance.iter().find(|check| check.name == "HTTP/1.0");
    assert_eq!(refused.unwrap().got, "505 and a close");
}

#[test]
fn a_server_that_closes_by_design_must_announce_it() {
    let by_design = Requirements::Catalogue { kind: ServerKind::HandWritten, keep_alive: false };
    let report = verified(Site::Hello, Flaw::ClosesAnnounced, by_design);
    assert_eq!(failed(&report), [""; 0], "{:#?}", report.required);
    assert_eq!(report.conformance_count(), (13, 15));
    let report = verified(Site::Hello, Flaw::ClosesUnannounced, by_design);
    assert_eq!(failed(&report), ["says close"]);
}

#[test]
fn a_server_that_bad_clients_can_crash_is_found() {
    finds(Site::Hello, Flaw::DiesOnGarbage, "garbage", "closed without a response");
    finds(Site::Hello, Flaw::DiesOnReset, "reset", "");
    finds(Site::Hello, Flaw::DiesOnHalfARequest, "gone halfway", "");
    let report = verified(Site::Hello, Flaw::DiesOnGarbage, FRAMEWORK);
    let ended = "the server no longer responds after the check \"garbage\"";
    assert_eq!(report.ended.unwrap(), ended);
}

#[test]
fn an_unknown_path_is_required_of_frameworks_and_reported_of_the_others() {
    finds(Site::Hello, Flaw::AcceptsAnyPath, "unknown path", "200 \"Hello, World!\"");
    let bare = Requirements::Catalogue { kind: ServerKind::HandWritten, keep_alive: true };
    let report = verified(Site::Hello, Flaw::AcceptsAnyPath, bare);
    assert!(report.passed());
    assert_eq!(missed(&report), ["unknown path"]);
}

/// Regression: a server without POST passed the check "two lengths" with its 405. A server without
/// a `Server` header, which is optional, failed a check.
#[test]
fn each_conformance_fault_fails_its_own_check_only() {
    let faults = [
        (Flaw::BodyToHead, "HEAD"),
        (Flaw::AcceptsAnyMethod, "unknown method"),
        (Flaw::ClosesOnLargeHeaders, "64 KiB header"),
        (Flaw::TakesChunksForRequests, "chunked body"),
        (Flaw::NoDate, "Date"),
        (Flaw::StaleDate, "Date"),
        (Flaw::WrongDate, "Date"),
        (Flaw::NoContinue, "100-continue"),
        (Flaw::ClosesOnFoldedHeaders, "folded header"),
        (Flaw::AcceptsAnyVersion, "bad version"),
        (Flaw::AcceptsMissingHost, "no Host"),
        (Flaw::AcceptsSpaceBeforeColon, "space before colon"),
        (Flaw::AcceptsTwoLengths, "two lengths"),
        (Flaw::KeepsInvalidOpen, "two lengths"),
        (Flaw::RejectsAbsoluteTarget, "absolute target"),
    ];
    std::thread::scope(|scope| {
        for (fault, name) in faults {
            scope.spawn(move || {
                let report = verified(Site::Hello, fault, FRAMEWORK);
                assert!(report.passed(), "{fault:?}: {:#?}", report.required);
                assert_eq!(missed(&report), [name], "{fault:?}: {:#?}", report.conformance);
            });
        }
    });
}

#[test]
fn a_custom_server_needs_only_silence_and_a_response() {
    let report = verified(Site::Hello, Flaw::ClosesUnannounced, Requirements::Custom);
    assert!(report.passed());
    let names: Vec<_> = report.required.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, ["silence", "GET /"]);
    assert_eq!(missed(&report), ["keep-alive", "pipelining"]);
}

/// Regression: three conformance checks and the check "gone halfway" sent POST to a user's URL,
/// where a POST may change data.
#[test]
fn a_users_server_gets_only_safe_methods_and_the_users_own_request() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&received);
    let server = TestServer::start(move |mut client| {
        while let Some(bytes) = client.receive() {
            log.lock().unwrap().extend(bytes);
            let body = "Hello, World!";
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            client.send(format!("{head}{body}").as_bytes());
        }
    });
    let asks = ["GET", "PUT"].map(|method| {
        let body = if method == "PUT" { b"mine".to_vec() } else { Vec::new() };
        Ask { method: method.to_owned(), body, ..Ask::default() }
    });
    for ask in asks {
        received.lock().unwrap().clear();
        let contract = Contract::custom(&ask);
        let target = Target::plain(Endpoint::Tcp(server.address()));
        verify::verify(&Verifier {
            target: &target,
            host: "x",
            contract: &contract,
            requirements: Requirements::Custom,
            rude: true,
            limit: verify::LIMIT,
            pause: verify::PAUSE,
            stop: &GOES_ON,
        });
        let text = String::from_utf8_lossy(&received.lock().unwrap()).into_owned();
        let has = |method: &str| text.contains(&format!("{method} "));
        let sent = ["GET", "POST", "HOTLAP", "PUT"].map(has);
        assert_eq!(sent, [true, false, false, ask.method == "PUT"], "{text}");
    }
}

#[test]
fn a_refused_connection_is_reported_at_once() {
    let target = Target::plain(Endpoint::Tcp(unused_address()));
    let contract = Contract::of(Name::Hello, None);
    let report = verify::verify(&Verifier {
        target: &target,
        host: "x",
        contract: &contract,
        requirements: FRAMEWORK,
        rude: true,
        limit: HANG,
        pause: HANG,
        stop: &GOES_ON,
    });
    assert!(!report.passed());
    assert!(report.required[0].got.starts_with("cannot connect: "), "{:?}", report.required);
}
