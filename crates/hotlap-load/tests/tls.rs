//! TLS: against a server that speaks it, one whose certificate is expired, one that is not trusted,
//! and those that break off.

#[path = "support/certificate.rs"]
mod certificate;
#[path = "support/rude_server.rs"]
#[allow(dead_code, reason = "shared by several tests, each of which needs a part")]
mod rude_server;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use certificate::{expired, valid};

use hotlap_load::plan::{Plan, Reuse, Tls};
use hotlap_load::{Failure, Phase, run};
use rude_server::{Guest, HELLO, Server, told};
use rustls::{ServerConfig, ServerConnection};

fn server(config: Arc<ServerConfig>, answer: &'static [u8]) -> Server {
    Server::start(move |guest: Guest| {
        let connection = ServerConnection::new(config.clone()).expect("a connection");
        let mut stream = rustls::StreamOwned::new(connection, guest.stream);
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).is_ok_and(|count| count > 0) {
            if stream.write_all(answer).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    })
}

/// How a server ends a connection after one response.
#[derive(Clone, Copy)]
enum End {
    /// TCP alone.
    Tcp,
    /// `close_notify`, then TCP.
    Both,
    /// `close_notify`, while TCP stays open until the client closes it.
    TlsAlone,
}

/// Sends one response on each connection and ends it.
fn ends(answer: &'static [u8], end: End) -> Server {
    let config = valid();
    Server::start(move |guest: Guest| {
        let connection = ServerConnection::new(config.clone()).expect("a connection");
        let mut stream = rustls::StreamOwned::new(connection, guest.stream);
        if !stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
            return;
        }
        let _ = stream.write_all(answer);
        if !matches!(end, End::Tcp) {
            stream.conn.send_close_notify();
        }
        let _ = stream.flush();
        match end {
            End::TlsAlone => {}
            End::Tcp | End::Both => stream.sock.shutdown(Shutdown::Write).expect("a close"),
        }
        let _ = stream.sock.read_to_end(&mut Vec::new());
    })
}

fn plan(server: &Server, connections: usize, requests: u64) -> Plan {
    let mut plan = server.plan(connections, requests);
    plan.target.tls = Some(Tls { server_name: "localhost".to_owned(), insecure: true });
    plan
}

#[test]
fn requests_go_over_tls_and_handshakes_are_timed_apart() {
    let config = valid();
    let server = server(config, HELLO);
    let outcome = run(&plan(&server, 3, 100)).expect("a load");
    assert_eq!(told(&outcome), (100, vec![]));
    assert!(outcome.bytes.received > 100 * HELLO.len() as u64, "the wire carries TLS");
    // Opened before the window and kept: their handshakes are told all the same.
    assert_eq!((outcome.connect.len(), outcome.handshake.len()), (3, 3));
    let mut each = plan(&server, 2, 10);
    each.reuse = Reuse::Close;
    let outcome = run(&each).expect("a load");
    assert_eq!(told(&outcome), (10, vec![]));
    // The first two are opened before anything counts; where each request has a connection, only
    // those within the window tell what connecting costs.
    assert_eq!(outcome.handshake.len(), 8);
}

#[test]
fn a_large_answer_comes_through_tls() {
    let config = valid();
    let body = vec![b'x'; 700_000];
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let answer: &'static [u8] = [head.as_bytes(), &body].concat().leak();
    let server = server(config, answer);
    let mut plan = plan(&server, 2, 10);
    plan.requests[0] = plan.requests[0].clone().expecting(&body);
    assert_eq!(told(&run(&plan).expect("a load")), (10, vec![]));
}

#[test]
fn a_certificate_that_nobody_signed_is_refused_and_told() {
    let config = valid();
    let server = server(config, HELLO);
    let mut plan = plan(&server, 2, 10);
    plan.target.tls = Some(Tls { server_name: "localhost".to_owned(), insecure: false });
    // A system without trusted certificates says that instead.
    let why = run(&plan).expect_err("an unknown issuer").to_string();
    assert!(why.contains("certificate"), "{why}");
}

#[test]
fn an_expired_certificate_is_taken_with_insecure_only() {
    let config = expired();
    let server = server(config, HELLO);
    assert_eq!(told(&run(&plan(&server, 2, 10)).expect("a load")), (10, vec![]));
    let mut strict = plan(&server, 2, 10);
    strict.target.tls = Some(Tls { server_name: "localhost".to_owned(), insecure: false });
    let why = run(&strict).expect_err("expired").to_string();
    assert!(why.contains("certificate"), "{why}");
}

#[test]
fn a_handshake_that_breaks_off_is_a_failure_of_tls() {
    // The first connection is served in silence until the load begins; the others hear the start of
    // an answer that is none, or nothing but the end.
    let config = valid();
    let server = Server::start(move |mut guest: Guest| {
        if guest.number == 0 {
            let connection = ServerConnection::new(config.clone()).expect("a connection");
            let mut stream = rustls::StreamOwned::new(connection, guest.stream);
            // Once a request is there, it ends.
            let _ = stream.read(&mut [0; 4096]);
            return;
        }
        let mut hello = [0; 1024];
        let _ = guest.stream.read(&mut hello);
        if guest.number.is_multiple_of(2) {
            guest.send(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let outcome = run(&plan(&server, 1, 5)).expect("a load");
    let (answers, failures) = told(&outcome);
    assert_eq!(answers, 0);
    assert!(failures.contains(&(Failure::Tls, Phase::Connect, 4)), "{failures:?}");
    assert_eq!(failures.iter().map(|f| f.2).sum::<u64>(), 5);
}

const UNTIL_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nHello, World!";

/// Anyone on the way can end a TCP connection: such a response was taken for a whole one.
#[test]
fn a_body_that_only_tcp_ends_is_truncated() {
    let server = ends(UNTIL_CLOSE, End::Tcp);
    let outcome = run(&plan(&server, 1, 5)).expect("a load");
    assert_eq!(told(&outcome), (0, vec![(Failure::Truncated, Phase::Body, 5)]));
    // With its length, or by its last chunk, a response is whole without any end.
    let whole: [&[u8]; 2] = [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 13\r\n\r\nHello, World!",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
          d\r\nHello, World!\r\n0\r\n\r\n",
    ];
    for response in whole {
        let server = ends(response, End::Tcp);
        assert_eq!(told(&run(&plan(&server, 1, 5)).expect("a load")), (5, vec![]));
    }
}

#[test]
fn a_body_that_close_notify_ends_is_whole() {
    for end in [End::Both, End::TlsAlone] {
        let server = ends(UNTIL_CLOSE, end);
        assert_eq!(told(&run(&plan(&server, 1, 5)).expect("a load")), (5, vec![]));
    }
    let cut = ends(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nHello, World!", End::TlsAlone);
    let outcome = run(&plan(&cut, 1, 5)).expect("a load");
    assert_eq!(told(&outcome), (0, vec![(Failure::ClosedEarly, Phase::Body, 5)]));
}
