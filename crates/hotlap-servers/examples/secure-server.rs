//! A server that speaks TLS, for tests that start a server as a program. The server listens on
//! `PORT` at `HOST` with the certificate of `TLS_CERT` and `TLS_KEY`. Without `TLS_CERT` and
//! `TLS_KEY`, the server does not use TLS.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::{env, fs, thread};

use hotlap_load::tls;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\
    Connection: close\r\n\r\nHello, World!";

fn main() -> ExitCode {
    if env::args().nth(1).as_deref() == Some("supervisor") {
        return hotlap_servers::process::supervisor::main();
    }
    let port = env::var("PORT").unwrap_or_default().parse().unwrap_or(0);
    let host = env::var("HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let listener = TcpListener::bind((host.as_str(), port)).unwrap();
    let config = env::var("TLS_CERT").ok().map(|file| config(&file));
    for client in listener.incoming().flatten() {
        let config = config.clone();
        thread::spawn(move || match config {
            None => answer(client),
            Some(config) => {
                let connection = ServerConnection::new(config).unwrap();
                answer(StreamOwned::new(connection, client));
            }
        });
    }
    ExitCode::SUCCESS
}

fn config(certificate: &str) -> Arc<ServerConfig> {
    let read = |file: &str| fs::read(file).unwrap();
    let chain = tls::certificates(&read(certificate)).unwrap().into_iter().map(Into::into);
    let key = tls::private_key(&read(&env::var("TLS_KEY").unwrap())).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.collect(), PrivatePkcs8KeyDer::from(key).into())
        .unwrap();
    Arc::new(config)
}

/// Sends a response to one request, whatever the request is.
fn answer(mut stream: impl Read + Write) {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => request.extend_from_slice(&piece[..count]),
            _ => return,
        }
    }
    let _ = stream.write_all(RESPONSE);
    let _ = stream.flush();
}
