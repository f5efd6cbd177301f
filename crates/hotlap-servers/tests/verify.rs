//! The verifier against servers that lie in exactly one way: the right check finds each out.

#[allow(dead_code, reason = "each test file tells lies of its own")]
mod liar;

use std::time::{Duration, Instant};

use hotlap_load::plan::{Endpoint, Target};
use hotlap_servers::contract::{Contract, Name};
use hotlap_servers::manifest::Kind;
use hotlap_servers::verify::{self, Report, Requirements, Verifier};
use liar::{Liar, Lie, Site};

const FRAMEWORK: Requirements = Requirements::Catalogue { kind: Kind::Framework, keep_alive: true };

fn verified(site: Site, lie: Lie, requirements: Requirements) -> Report {
    let liar = Liar::start(site, lie);
    let name = match site {
        Site::Hello => Name::Hello,
        Site::Clock => Name::Clock,
        Site::Json => Name::JsonApi,
    };
    let contract = Contract::of(name, None);
    let target = Target { endpoint: Endpoint::Tcp(liar.address), tls: None };
    let host = liar.address.to_string();
    let verifier = Verifier {
        target: &target,
        host: &host,
        contract: &contract,
        requirements,
        rude: true,
        limit: verify::LIMIT,
    };
    verify::verify(&verifier)
}

fn failed(report: &Report) -> Vec<&str> {
    report.failures().map(|check| check.name.as_str()).collect()
}

fn missed(report: &Report) -> Vec<&str> {
    report.conformance.iter().filter(|check| !check.pass).map(|check| check.name.as_str()).collect()
}

/// Exactly this required check fails, and this is seen.
fn finds(site: Site, lie: Lie, name: &str, got: &str) {
    let report = verified(site, lie, FRAMEWORK);
    assert_eq!(failed(&report), [name], "{lie:?}: {:#?}", report.required);
    let check = report.failures().next().unwrap();
    assert!(check.got.contains(got), "{lie:?}: {check}");
}

#[test]
fn an_honest_server_passes_everything() {
    for site in [Site::Hello, Site::Clock, Site::Json] {
        let report = verified(site, Lie::Nothing, FRAMEWORK);
        assert_eq!(failed(&report), [""; 0], "{site:?}: {:#?}", report.required);
        assert_eq!(missed(&report), [""; 0], "{site:?}: {:#?}", report.conformance);
        assert_eq!(report.conformance_count(), (14, 14));
        assert_eq!(report.ended, None);
    }
}

#[test]
fn a_server_of_one_connection_at_a_time_is_slow_and_not_wrong() {
    let started = Instant::now();
    let report = verified(Site::Hello, Lie::OneConnectionAtATime, FRAMEWORK);
    assert!(report.passed(), "{:#?}", report.required);
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn an_answer_before_the_request_ends_the_verification() {
    finds(Site::Hello, Lie::AnswersUnasked, "silence", "bytes: \"HTTP/1.1 200");
}

#[test]
fn a_wrong_answer_is_found_and_shown() {
    finds(Site::Hello, Lie::WrongBody, "GET /", "body \"Hello, world!\"");
    finds(Site::Hello, Lie::WrongType, "GET /", "Content-Type text/html");
    finds(Site::Hello, Lie::NeverAnswers, "GET /", "no answer within 2 s");
}

#[test]
fn a_clock_that_stands_or_is_off_is_found() {
    finds(Site::Clock, Lie::StaleClock, "GET /", "the same moment for 1.5 s");
    finds(Site::Clock, Lie::WrongClock, "GET /", "ms off");
}

#[test]
fn a_json_program_that_takes_anything_is_found() {
    finds(Site::Json, Lie::TakesAnyMediaType, "POST /bla as text/plain", "200 \"{");
}

#[test]
fn framing_that_is_none_is_found() {
    finds(Site::Hello, Lie::BareLf, "line ends", "a bare LF");
    let report = verified(Site::Hello, Lie::EndsWithConnection, FRAMEWORK);
    assert_eq!(failed(&report), ["framing", "keep-alive", "pipelining"]);
}

#[test]
fn a_server_that_counts_reads_and_not_requests_is_found() {
    finds_among(Lie::AnswersEachPiece, "split request", "an answer to the first piece alone");
    finds_among(Lie::AnswersTwice, "split request", "after the answer, ");
}

/// This check fails (others may, because the lie cannot be told without theirs), and this is seen.
fn finds_among(lie: Lie, name: &str, got: &str) {
    let report = verified(Site::Hello, lie, FRAMEWORK);
    let check = report.failures().find(|check| check.name == name);
    let check = check.unwrap_or_else(|| panic!("{lie:?}: {:#?}", report.required));
    assert!(check.got.contains(got), "{lie:?}: {check}");
}

#[test]
fn dropped_and_swapped_answers_are_found() {
    finds(Site::Hello, Lie::DropsPipelined, "pipelining", "to the second, no answer");
    finds(Site::Hello, Lie::SwapsPipelined, "pipelining", "to the first, 404");
    finds(Site::Json, Lie::SwapsPipelined, "pipelining", "to the first, body");
}

#[test]
fn connections_that_are_not_kept_or_kept_too_long_are_found() {
    finds(Site::Hello, Lie::IgnoresClose, "close", "still open after 2 s");
    finds(Site::Hello, Lie::IgnoresOldVersion, "HTTP/1.0", "still open after 2 s");
    finds(Site::Hello, Lie::ChunksForOldClients, "HTTP/1.0", "chunks");
    let report = verified(Site::Hello, Lie::ClosesAfterOne, FRAMEWORK);
    assert_eq!(failed(&report), ["keep-alive", "pipelining"]);
}

/// Helidon 4 answers HTTP/1.0 with a 505 by design: no wrong answer, so it is shown and may race.
#[test]
fn a_server_that_refuses_old_clients_in_words_misses_one_conformance_check() {
    let report = verified(Site::Hello, Lie::RefusesOldClients, FRAMEWORK);
    assert_eq!(failed(&report), [""; 0], "{:#?}", report.required);
    let refused = report.conformance.iter().find(|check| check.name == "HTTP/1.0");
    assert_eq!(refused.unwrap().got, "505, and a close");
}

#[test]
fn a_server_that_closes_by_design_must_say_so() {
    let by_design = Requirements::Catalogue { kind: Kind::HandWritten, keep_alive: false };
    let report = verified(Site::Hello, Lie::ClosesAndSaysSo, by_design);
    assert_eq!(failed(&report), [""; 0], "{:#?}", report.required);
    assert_eq!(report.conformance_count(), (14, 16));
    let report = verified(Site::Hello, Lie::ClosesAfterOne, by_design);
    assert_eq!(failed(&report), ["says close"]);
}

#[test]
fn a_server_that_rude_clients_can_end_is_found() {
    finds(Site::Hello, Lie::DiesOfGarbage, "garbage", "closed without an answer");
    finds(Site::Hello, Lie::DiesOfReset, "reset", "");
    finds(Site::Hello, Lie::DiesHalfway, "gone halfway", "");
    let report = verified(Site::Hello, Lie::DiesOfGarbage, FRAMEWORK);
    assert_eq!(report.ended.unwrap(), "it is not well since the check \"garbage\"");
}

#[test]
fn an_unknown_path_is_required_of_frameworks_and_reported_of_the_others() {
    finds(Site::Hello, Lie::KnowsAllPaths, "unknown path", "200 \"Hello, World!\"");
    let bare = Requirements::Catalogue { kind: Kind::HandWritten, keep_alive: true };
    let report = verified(Site::Hello, Lie::KnowsAllPaths, bare);
    assert!(report.passed());
    assert_eq!(missed(&report), ["unknown path"]);
}

#[test]
fn each_conformance_check_is_missed_by_the_server_that_misses_it_and_by_no_other() {
    let lies = [
        (Lie::BodyAfterHead, "HEAD"),
        (Lie::TakesAnyMethod, "unknown method"),
        (Lie::RefusesLargeHeaders, "64 KiB header"),
        (Lie::ReadsChunksAsRequests, "chunked body"),
        (Lie::NoDate, "Date"),
        (Lie::StaleDate, "Date"),
        (Lie::WrongDate, "Date"),
        (Lie::NoServer, "Server"),
        (Lie::NoContinue, "100-continue"),
        (Lie::DropsFoldedHeaders, "folded header"),
        (Lie::TakesAnyVersion, "bad version"),
        (Lie::TakesNoHost, "no Host"),
        (Lie::TakesSpaceBeforeColon, "space before colon"),
        (Lie::TakesTwoLengths, "two lengths"),
        (Lie::KnowsNoAbsoluteTarget, "absolute target"),
    ];
    std::thread::scope(|scope| {
        for (lie, name) in lies {
            scope.spawn(move || {
                let report = verified(Site::Hello, lie, FRAMEWORK);
                assert!(report.passed(), "{lie:?}: {:#?}", report.required);
                assert_eq!(missed(&report), [name], "{lie:?}: {:#?}", report.conformance);
            });
        }
    });
}

#[test]
fn of_a_stranger_only_silence_and_an_answer_are_required() {
    let report = verified(Site::Hello, Lie::ClosesAfterOne, Requirements::Custom);
    assert!(report.passed());
    let names: Vec<_> = report.required.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, ["silence", "GET /"]);
    assert_eq!(missed(&report), ["keep-alive", "pipelining"]);
}

#[test]
fn nobody_there_is_told_and_not_waited_for() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let target = Target { endpoint: Endpoint::Tcp(address), tls: None };
    let contract = Contract::of(Name::Hello, None);
    let report = verify::verify(&Verifier {
        target: &target,
        host: "x",
        contract: &contract,
        requirements: FRAMEWORK,
        rude: true,
        limit: verify::LIMIT,
    });
    assert!(!report.passed());
    assert!(report.required[0].got.starts_with("no connection: "), "{:?}", report.required);
}
