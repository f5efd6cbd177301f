//! Servers whose behaviour a test scripts, one thread a connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hotlap_load::plan::{Endpoint, Request, Stop, Target};
use hotlap_load::{Failure, Outcome, Phase, Plan};

/// The correct response.
pub const HELLO: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nContent-Type: text/plain\r\n\r\nHello, World!";

/// A running server. Its threads end with the process of the test.
pub struct Server {
    pub address: SocketAddr,
    pub accepted: Arc<AtomicUsize>,
    pub requests: Arc<AtomicUsize>,
}

/// An accepted connection.
pub struct Client {
    pub stream: TcpStream,
    /// How many were accepted before.
    pub number: usize,
    requests: Arc<AtomicUsize>,
    rest: Vec<u8>,
}

impl Client {
    /// Reads one request, with a body if it has a `Content-Length`; `None` if the client has
    /// disconnected.
    pub fn request(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.rest.windows(4).position(|w| w == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.rest[..end]).to_lowercase();
                let length = head.lines().find_map(|l| l.strip_prefix("content-length: "));
                let length: usize = length.map_or(0, |l| l.trim().parse().expect("a length"));
                if self.rest.len() >= end + 4 + length {
                    self.requests.fetch_add(1, Ordering::SeqCst);
                    return Some(self.rest.drain(..end + 4 + length).collect());
                }
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.rest.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// Sends bytes; false if the client has disconnected.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Reads until the client disconnects.
    pub fn drain(&mut self) {
        let mut buffer = [0; 65536];
        while matches!(self.stream.read(&mut buffer), Ok(count) if count > 0) {}
    }

    /// Sends the same bytes for every request.
    pub fn respond(&mut self, bytes: &[u8]) {
        while self.request().is_some() && self.send(bytes) {}
    }

    /// Closes the connection with a reset.
    pub fn reset(self) {
        let socket = socket2::SockRef::from(&self.stream);
        socket.set_linger(Some(std::time::Duration::ZERO)).expect("a socket option");
    }
}

impl Server {
    /// A server on a port of its own; `serve` is called for each connection.
    pub fn start(serve: impl Fn(Client) + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0", serve)
    }

    pub fn on(address: &str, serve: impl Fn(Client) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).expect("a port");
        let address = listener.local_addr().expect("an address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(AtomicUsize::new(0));
        let (all, received, serve) = (accepted.clone(), requests.clone(), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                stream.set_nodelay(true).expect("a socket option");
                let (serve, requests) = (serve.clone(), received.clone());
                let number = all.fetch_add(1, Ordering::SeqCst);
                let client = Client { stream, number, requests, rest: Vec::new() };
                std::thread::spawn(move || serve(client));
            }
        });
        Self { address, accepted, requests }
    }

    /// A plan of `requests` requests over `connections` connections; the correct response to each
    /// is
    /// `Hello, World!`.
    pub fn plan(&self, connections: usize, requests: u64) -> Plan {
        let target = Target { endpoint: Endpoint::Tcp(self.address), tls: None };
        let mut plan = Plan::new(target, Request::get("/", "test").expecting(b"Hello, World!"));
        plan.connections = connections;
        plan.stop = Stop::Requests(requests);
        plan.timeout = std::time::Duration::from_secs(30);
        plan
    }
}

/// Correct responses, and failures as (kind, phase, count) in order.
pub fn counts(outcome: &Outcome) -> (u64, Vec<(Failure, Phase, u64)>) {
    let mut failures: Vec<_> =
        outcome.failures.0.iter().map(|f| (f.failure, f.phase, f.count)).collect();
    failures.sort();
    (outcome.responses, failures)
}
