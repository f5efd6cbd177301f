//! Tests of TLS: servers with a valid, an expired or an untrusted certificate, and servers that
//! break off the handshake or end the connection.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::certificate::{certificate, expired, valid};
use crate::secure::{over_tls as plan, secure};

use crate::plan::{counted, counts, until};
use hotlap_load::plan::{Endpoint, Identity, Protocol, Reuse, Target, Tls};
use hotlap_load::tls::TlsConfig;
use hotlap_load::{Failure, Phase, run};
use hotlap_testbed::{HELLO, Peer, TestServer};
use rustls::{ServerConfig, ServerConnection};

fn server(config: Arc<ServerConfig>, response: &'static [u8]) -> TestServer {
    secure(config, response, |_| {}, || {})
}

/// How a server ends a connection after one response.
#[derive(Clone, Copy)]
enum End {
    /// The server ends TCP only.
    Tcp,
    /// The server sends `close_notify`, then ends TCP.
    Both,
    /// The server sends `close_notify`, and TCP stays open until the client closes it.
    TlsOnly,
}

/// Starts a server that sends one response on each connection and then ends the connection.
fn ends(response: &'static [u8], end: End) -> TestServer {
    let config = valid();
    TestServer::start(move |client: Peer| {
        let connection = ServerConnection::new(config.clone()).expect("a connection");
        let mut stream = rustls::StreamOwned::new(connection, client.stream);
        if !stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
            return;
        }
        let _ = stream.write_all(response);
        if !matches!(end, End::Tcp) {
            stream.conn.send_close_notify();
        }
        let _ = stream.flush();
        match end {
            End::TlsOnly => {}
            End::Tcp | End::Both => stream.sock.shutdown(Shutdown::Write).expect("a close"),
        }
        let _ = stream.sock.read_to_end(&mut Vec::new());
    })
}

#[test]
fn requests_go_over_tls_and_handshakes_are_timed_separately() {
    let config = valid();
    let server = server(config, HELLO);
    let outcome = run(&plan(&server, 3, 100)).expect("a load");
    assert_eq!(counts(&outcome), (100, vec![]));
    // Regression: the bytes that TLS adds were counted too, so no lap over TLS passed its validity
    // check.
    assert_eq!(outcome.bytes.received, 100 * HELLO.len() as u64);
    assert_eq!(outcome.bytes.responses, outcome.bytes.received);
    // Keep-alive connections were opened before the window, but their handshakes are reported.
    assert_eq!((outcome.connect_time.len(), outcome.handshake_time.len()), (3, 3));
    let mut each = plan(&server, 2, 10);
    each.shape.reuse = Reuse::Close;
    let outcome = run(&each).expect("a load");
    assert_eq!(counts(&outcome), (10, vec![]));
    // With a connection per request, only connections opened within the window count. The first two
    // connections were opened before it.
    assert_eq!(outcome.handshake_time.len(), 8);
}

#[test]
fn a_large_response_arrives_over_tls() {
    let config = valid();
    let body = vec![b'x'; 700_000];
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let response: &'static [u8] = [head.as_bytes(), &body].concat().leak();
    let server = server(config, response);
    let mut plan = plan(&server, 2, 10);
    plan.requests[0] = plan.requests[0].clone().expecting(&body);
    assert_eq!(counted(&plan), (10, vec![]));
}

#[test]
fn a_self_signed_or_expired_certificate_is_accepted_only_with_insecure() {
    for config in [valid(), expired()] {
        let server = server(config, HELLO);
        let mut plan = plan(&server, 2, 10);
        assert_eq!(counted(&plan), (10, vec![]));
        plan.target.tls = Some(Tls::with("localhost".to_owned()));
        // A system without trusted certificates reports a different error.
        let why = run(&plan).expect_err("not trusted").to_string();
        assert!(why.contains("certificate"), "{why}");
    }
}

#[test]
fn a_handshake_that_breaks_off_is_a_tls_failure() {
    // The first connection ends at the first request. The others get a response without TLS, or are
    // closed.
    let config = valid();
    let server = TestServer::start(move |mut client: Peer| {
        if client.number == 0 {
            let connection = ServerConnection::new(config.clone()).expect("a connection");
            let mut stream = rustls::StreamOwned::new(connection, client.stream);
            let _ = stream.read(&mut [0; 4096]);
            return;
        }
        let mut hello = [0; 1024];
        let _ = client.stream.read(&mut hello);
        if client.number.is_multiple_of(2) {
            client.send(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let outcome = run(&plan(&server, 1, 5)).expect("a load");
    let (responses, failures) = counts(&outcome);
    assert_eq!(responses, 0);
    assert!(failures.contains(&(Failure::Tls, Phase::Connect, 4)), "{failures:?}");
    assert_eq!(failures.iter().map(|f| f.2).sum::<u64>(), 5);
}

const UNTIL_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nHello, World!";

/// Anyone on the network path can end a TCP connection. Regression: a response that TCP alone ended
/// counted as complete.
#[test]
fn a_body_that_only_tcp_ends_is_truncated() {
    let server = ends(UNTIL_CLOSE, End::Tcp);
    assert_eq!(counted(&plan(&server, 1, 5)), (0, vec![(Failure::Truncated, Phase::Body, 5)]));
    // A response with a length or chunks is complete without the end of the connection.
    let complete: [&[u8]; 2] = [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 13\r\n\r\nHello, World!",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
          d\r\nHello, World!\r\n0\r\n\r\n",
    ];
    for response in complete {
        let server = ends(response, End::Tcp);
        assert_eq!(counted(&plan(&server, 1, 5)), (5, vec![]));
    }
}

#[test]
fn a_body_that_close_notify_ends_is_complete() {
    for end in [End::Both, End::TlsOnly] {
        let server = ends(UNTIL_CLOSE, end);
        assert_eq!(counted(&plan(&server, 1, 5)), (5, vec![]));
    }
    let cut = ends(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nHello, World!", End::TlsOnly);
    assert_eq!(counted(&plan(&cut, 1, 5)), (0, vec![(Failure::ClosedEarly, Phase::Body, 5)]));
}

/// Regression: rustls consumes no bytes after `close_notify`, so the client tried forever.
#[test]
fn bytes_after_close_notify_are_ignored() {
    let mut target = Target::plain(Endpoint::Tcp(([127, 0, 0, 1], 443).into()));
    target.tls = Some(Tls { insecure: true, ..Tls::with("localhost".to_owned()) });
    let config = TlsConfig::of(&target).expect("a configuration").expect("TLS");
    let mut client = config.connect().expect("a client");
    let mut server = ServerConnection::new(valid()).expect("a server");
    let (mut wire, mut plain) = (Vec::new(), Vec::new());
    while client.is_handshaking() || server.is_handshaking() {
        wire.clear();
        client.drain(&mut wire);
        server.read_tls(&mut &wire[..]).expect("bytes");
        server.process_new_packets().expect("a handshake");
        wire.clear();
        while server.write_tls(&mut wire).expect("bytes") > 0 {}
        client.receive(&wire, &mut plain).expect("a handshake");
    }
    server.writer().write_all(b"the end").expect("data");
    server.send_close_notify();
    wire.clear();
    while server.write_tls(&mut wire).expect("bytes") > 0 {}
    wire.extend([0; 100_000]);
    for _ in 0..2 {
        assert_eq!(client.receive(&wire, &mut plain), Ok(()));
    }
    assert!(client.peer_has_closed());
    assert_eq!(plain, b"the end");
}

/// Regression: the client closed only the TCP connection. To a server, this looks like a truncation
/// attack.
#[test]
fn the_client_ends_tls_with_close_notify() {
    let clean = Arc::new(AtomicUsize::new(0));
    let (config, count) = (valid(), clean.clone());
    let server = TestServer::start(move |client: Peer| {
        let connection = ServerConnection::new(config.clone()).expect("a connection");
        let mut stream = rustls::StreamOwned::new(connection, client.stream);
        let mut buffer = [0; 4096];
        let end = loop {
            match stream.read(&mut buffer) {
                Ok(1..) if stream.write_all(HELLO).and_then(|()| stream.flush()).is_ok() => {}
                end => break end,
            }
        };
        // Without `close_notify`, rustls returns an error.
        count.fetch_add(usize::from(matches!(end, Ok(0))), Ordering::SeqCst);
    });
    let mut plan = plan(&server, 1, 5);
    plan.shape.reuse = Reuse::Close;
    assert_eq!(counted(&plan), (5, vec![]));
    until("all connections have ended", || clean.load(Ordering::SeqCst) == 5);
}

#[test]
fn a_given_certificate_is_trusted_and_the_cipher_suite_reported() {
    let certificate = certificate(4096);
    let server = server(certificate.server(), HELLO);
    let mut plan = plan(&server, 2, 10);
    let authorities = vec![certificate.der.clone()];
    plan.target.tls = Some(Tls { authorities, ..Tls::with("localhost".to_owned()) });
    let outcome = run(&plan).expect("a load");
    assert_eq!(counts(&outcome), (10, vec![]));
    let tls = outcome.tls.expect("TLS");
    assert_eq!(tls.version, "TLS 1.3");
    assert!(tls.cipher.starts_with("TLS_"), "{tls:?}");
    for cipher in ["TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"] {
        plan.target.tls.as_mut().expect("TLS").ciphers = vec![cipher.to_owned()];
        let outcome = run(&plan).expect("a load");
        assert_eq!(outcome.tls.expect("TLS").cipher, cipher);
    }
    plan.target.tls.as_mut().expect("TLS").ciphers = vec!["AES".to_owned()];
    let why = run(&plan).expect_err("a cipher suite that is not known").to_string();
    assert!(
        why.contains("unknown cipher suite \"AES\": choose from TLS_AES_256_GCM_SHA384,"),
        "{why}"
    );
    plan.target.tls.as_mut().expect("TLS").ciphers = vec![];
    plan.target.tls.as_mut().expect("TLS").server_name = "elsewhere".to_owned();
    let why = run(&plan).expect_err("another name").to_string();
    assert!(why.contains("certificate"), "{why}");
}

#[test]
fn a_client_identifies_itself_where_the_server_demands_it() {
    let certificate = certificate(4096);
    let server = server(certificate.mutual(), HELLO);
    let mut plan = plan(&server, 1, 5);
    let tls = plan.target.tls.as_mut().expect("TLS");
    let key = certificate.key.clone();
    tls.identity = Some(Identity { chain: vec![certificate.der.clone()], key });
    assert_eq!(counted(&plan), (5, vec![]));
    plan.target.tls.as_mut().expect("TLS").identity = None;
    // In TLS 1.3, a client learns only after its handshake that the server has refused it.
    let refused = run(&plan).map(|outcome| outcome.failures.of(Failure::Tls)).unwrap_or(5);
    assert_eq!(refused, 5);
}

#[test]
fn sessions_are_resumed_only_if_the_plan_says_so() {
    let server = server(valid(), HELLO);
    let mut plan = plan(&server, 1, 20);
    plan.shape.reuse = Reuse::Close;
    let outcome = run(&plan).expect("a load");
    assert_eq!((counts(&outcome), outcome.connections.resumed), ((20, vec![]), 0));
    plan.target.tls.as_mut().expect("TLS").resumes = true;
    let outcome = run(&plan).expect("a load");
    assert_eq!(counts(&outcome), (20, vec![]));
    // The first connection was opened before the window.
    assert_eq!(outcome.connections.resumed, 19);
}

#[test]
fn a_server_that_does_not_agree_to_http2_is_a_tls_failure() {
    let server = server(valid(), HELLO);
    let mut plan = plan(&server, 1, 3);
    plan.target.protocol = Protocol::Http2;
    let why = run(&plan).expect_err("no ALPN").to_string();
    assert!(why.contains("does not offer HTTP/2 (ALPN h2)"), "{why}");
}
