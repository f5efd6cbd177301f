//! Tests of probes and verification of servers behind TLS.

use crate::{GOES_ON, certificate};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use hotlap_load::plan::{Endpoint, Target, Tls};
use hotlap_servers::contract::{Ask, Contract};
use hotlap_servers::infer::{Inferred, infer};
use hotlap_testbed::{Peer, TestServer};
use rustls::{ServerConnection, StreamOwned};

/// The time limit for a response. A hang is an error, but a busy machine is not.
const LIMIT: Duration = Duration::from_secs(60);

/// How a server ends a connection after one response.
#[derive(Clone, Copy)]
enum End {
    /// TCP ends, without `close_notify`.
    Tcp,
    /// TCP ends with a reset.
    Reset,
    /// `close_notify` is sent, then TCP ends.
    Both,
    /// `close_notify` is sent, while TCP stays open until the client closes it.
    TlsAlone,
}

/// Starts a server that sends one response on each connection and then ends the connection.
fn ends(response: &'static [u8], end: End) -> TestServer {
    let config = certificate::valid();
    TestServer::start(move |client: Peer| {
        let connection = ServerConnection::new(config.clone()).unwrap();
        let mut stream = StreamOwned::new(connection, client.stream);
        if !stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
            return;
        }
        let _ = stream.write_all(response);
        if matches!(end, End::Both | End::TlsAlone) {
            stream.conn.send_close_notify();
        }
        let _ = stream.flush();
        match end {
            End::TlsAlone => {}
            End::Reset => {
                // A close without lingering is an abort (RFC 9293 section 3.10.4).
                rustix::net::sockopt::set_socket_linger(&stream.sock, Some(Duration::ZERO))
                    .unwrap();
                return;
            }
            End::Tcp | End::Both => stream.sock.shutdown(Shutdown::Write).unwrap(),
        }
        let _ = stream.sock.read_to_end(&mut Vec::new());
    })
}

fn inferred(response: &'static [u8], end: End) -> Result<Inferred, String> {
    let tls = Some(Tls { insecure: true, ..Tls::with("localhost".to_owned()) });
    let server = ends(response, end);
    let target = Target { tls, ..Target::plain(Endpoint::Tcp(server.address())) };
    infer(&target, "localhost", LIMIT, &Contract::custom(&Ask::default()), &GOES_ON)
}

const UNTIL_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nHello, World!";

/// Anyone on the path can end a TCP connection. Regression: such a response passed for a whole one,
/// and then each response under load counted as truncated.
#[test]
fn a_body_that_only_tcp_ends_is_truncated() {
    let why = inferred(UNTIL_CLOSE, End::Tcp).unwrap_err();
    assert_eq!(
        why,
        "GET /: the connection ended without TLS's close_notify, so the response may be truncated: \
         \"HTTP/1.1 200 OK\\r\\n\\r\\nHello, World!\""
    );
    // With its length or its last chunk, a response is complete whatever happens next.
    let whole: [&[u8]; 2] = [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 13\r\n\r\nHello, World!",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
          d\r\nHello, World!\r\n0\r\n\r\n",
    ];
    for response in whole {
        assert_eq!(
            inferred(response, End::Tcp).unwrap().responses[0].body.start(),
            b"Hello, World!"
        );
    }
}

#[test]
fn a_body_that_a_reset_ends_is_truncated() {
    let why = inferred(UNTIL_CLOSE, End::Reset).unwrap_err();
    assert!(why.starts_with("GET /: the connection "), "{why}");
}

/// TCP may stay open after `close_notify`. Regression: verification waited for the full time limit.
#[test]
fn a_body_that_close_notify_ends_is_whole() {
    for end in [End::Both, End::TlsAlone] {
        assert_eq!(inferred(UNTIL_CLOSE, end).unwrap().responses[0].body.start(), b"Hello, World!");
    }
}
