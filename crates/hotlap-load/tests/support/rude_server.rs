//! Servers that behave badly in just the way a test wants, on a thread for each connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hotlap_load::plan::{Endpoint, Request, Stop, Target};
use hotlap_load::{Failure, Outcome, Phase, Plan};

/// What every polite answer here is.
pub const HELLO: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nContent-Type: text/plain\r\n\r\nHello, World!";

/// A server under way. Its threads end with the test's process.
pub struct Server {
    pub address: SocketAddr,
    pub accepted: Arc<AtomicUsize>,
    pub requests: Arc<AtomicUsize>,
}

/// One accepted connection.
pub struct Guest {
    pub stream: TcpStream,
    /// How many were accepted before it.
    pub number: usize,
    requests: Arc<AtomicUsize>,
    rest: Vec<u8>,
}

impl Guest {
    /// Reads one request; `None` when the other side is gone. Bodies go by `Content-Length`.
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

    /// Sends bytes; false when the other side is gone.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Reads until the other side is gone.
    pub fn drain(&mut self) {
        let mut buffer = [0; 65536];
        while matches!(self.stream.read(&mut buffer), Ok(count) if count > 0) {}
    }

    /// Answers every request with the same bytes.
    pub fn answer_all(&mut self, bytes: &[u8]) {
        while self.request().is_some() && self.send(bytes) {}
    }

    /// Closes with a reset instead of an end.
    pub fn reset(self) {
        let socket = socket2::SockRef::from(&self.stream);
        socket.set_linger(Some(std::time::Duration::ZERO)).expect("a socket option");
    }
}

impl Server {
    /// A server on a port of its own; `serve` is called for each connection.
    pub fn start(serve: impl Fn(Guest) + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0", serve)
    }

    pub fn on(address: &str, serve: impl Fn(Guest) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).expect("a port");
        Self::with(listener, serve)
    }

    pub fn with(listener: TcpListener, serve: impl Fn(Guest) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().expect("an address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(AtomicUsize::new(0));
        let (count, asked, serve) = (accepted.clone(), requests.clone(), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                stream.set_nodelay(true).expect("a socket option");
                let (serve, requests) = (serve.clone(), asked.clone());
                let number = count.fetch_add(1, Ordering::SeqCst);
                let guest = Guest { stream, number, requests, rest: Vec::new() };
                std::thread::spawn(move || serve(guest));
            }
        });
        Self { address, accepted, requests }
    }

    /// A plan of `requests` requests over `connections`, each of which must be answered with
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

/// Answers, and failures as (kind, phase, count) in order.
pub fn told(outcome: &Outcome) -> (u64, Vec<(Failure, Phase, u64)>) {
    let mut failures: Vec<_> =
        outcome.failures.0.iter().map(|f| (f.failure, f.phase, f.count)).collect();
    failures.sort();
    (outcome.answers, failures)
}
