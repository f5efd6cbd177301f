//! Servers with TLS, and plans of loads on them.

use std::io::{Read, Write};
use std::sync::Arc;

use hotlap_load::Plan;
use hotlap_load::plan::Tls;
use hotlap_testbed::{Peer, TestServer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::plan::PlanFor;

/// Starts a TLS server that sends these bytes for each request. `before_handshake` is called with
/// the number of each connection, and `before_response` before each response.
pub fn secure(
    config: Arc<ServerConfig>,
    response: &'static [u8],
    before_handshake: impl Fn(usize) + Send + Sync + 'static,
    before_response: impl Fn() + Send + Sync + 'static,
) -> TestServer {
    TestServer::start(move |client: Peer| {
        before_handshake(client.number);
        let connection = ServerConnection::new(config.clone()).expect("a connection");
        let mut stream = StreamOwned::new(connection, client.stream);
        while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
            before_response();
            if stream.write_all(response).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    })
}

/// Returns a plan of a load over TLS that accepts any certificate.
pub fn over_tls(server: &TestServer, connections: usize, requests: u64) -> Plan {
    let mut plan = server.plan(connections, requests);
    plan.target.tls = Some(Tls { insecure: true, ..Tls::with("localhost".to_owned()) });
    plan
}
