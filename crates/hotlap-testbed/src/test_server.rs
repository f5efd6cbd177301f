//! A server in the test's own process, with one thread per connection. The server follows the
//! test's script or misbehaves in one named way.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use socket2::Socket;

/// The response of the contract `hello`.
pub const HELLO: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";

/// A running server, whose threads end with the test's process.
///
/// The methods panic if the system refuses a socket, because a test cannot continue without it.
#[derive(Debug)]
pub struct TestServer {
    address: Option<SocketAddr>,
    listener: Arc<Socket>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicUsize,
    requests: AtomicUsize,
}

impl TestServer {
    /// Starts a server on a free port of 127.0.0.1. `serve` is called for each connection.
    pub fn start(serve: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"), serve)
    }

    /// Starts a server on a listening socket, which may be a Unix socket.
    pub fn on(listener: impl Into<Socket>, serve: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        let listener: Arc<Socket> = Arc::new(listener.into());
        let address = listener.local_addr().expect("an address").as_socket();
        let (counts, serve) = (Arc::new(Counts::default()), Arc::new(serve));
        let server = Self { address, listener: Arc::clone(&listener), counts: Arc::clone(&counts) };
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                // The option fails on a Unix socket, which does not have it.
                let _ = stream.set_tcp_nodelay(true);
                let number = counts.accepted.fetch_add(1, Ordering::SeqCst);
                let counts = Arc::clone(&counts);
                let (client, serve) =
                    (Peer { stream, number, counts, rest: Vec::new() }, Arc::clone(&serve));
                std::thread::spawn(move || serve(client));
            }
        });
        server
    }

    /// Starts a server that sends the same response to every request.
    pub fn responding(response: impl Into<Vec<u8>>) -> Self {
        let response = response.into();
        Self::start(move |mut client| client.respond(&response))
    }

    /// Starts a server that sends one response on each connection and then closes the connection.
    pub fn closing(response: impl Into<Vec<u8>>) -> Self {
        let response = response.into();
        Self::start(move |mut client| {
            client.request();
            client.send(&response);
        })
    }

    /// Starts a server that reads requests and never responds.
    pub fn silent() -> Self {
        Self::start(|mut client| client.drain())
    }

    /// Starts a server that responds to `after` requests. On the next request, the server hangs
    /// once on all connections, for `length`.
    pub fn hanging(after: usize, length: Duration, response: &'static [u8]) -> Self {
        let count = AtomicUsize::new(0);
        let until = Mutex::new(None);
        Self::start(move |mut client| {
            while client.request().is_some() {
                if count.fetch_add(1, Ordering::SeqCst) >= after {
                    let end = *until.lock().expect("sound").get_or_insert(Instant::now() + length);
                    sleep(end.saturating_duration_since(Instant::now()));
                }
                client.send(response);
            }
        })
    }

    /// Starts a server with a single worker, which takes `time` per request.
    pub fn one_at_a_time(time: Duration, response: &'static [u8]) -> Self {
        let worker = Mutex::new(());
        Self::start(move |mut client| {
            while client.request().is_some() {
                let _one_at_a_time = worker.lock().expect("sound");
                sleep(time);
                client.send(response);
            }
        })
    }

    /// Closes the listening socket, so that no more connections are accepted. Open connections
    /// continue. Without this call, a test with thousands of servers would have too many open
    /// files.
    pub fn close(self) {
        let _ = self.listener.shutdown(Shutdown::Both);
    }

    /// Returns the address of the server.
    ///
    /// # Panics
    /// If the server listens on a Unix socket, which has no such address.
    pub fn address(&self) -> SocketAddr {
        self.address.expect("a TCP socket")
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address())
    }

    /// Returns the number of accepted connections.
    pub fn accepted(&self) -> usize {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    /// Returns the number of requests that the server has read completely.
    pub fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::SeqCst)
    }
}

/// One accepted connection, as the server sees it.
#[derive(Debug)]
pub struct Peer {
    /// The socket of the connection. [`Peer::request`] may have read bytes of later requests from
    /// the socket.
    pub stream: Socket,
    /// The number of connections that the server accepted before this one.
    pub number: usize,
    counts: Arc<Counts>,
    rest: Vec<u8>,
}

impl Peer {
    /// Reads one request, including the body if there is a `Content-Length`. Returns `None` if the
    /// client has disconnected.
    pub fn request(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.rest.windows(4).position(|w| w == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.rest[..end]).to_lowercase();
                let length = head.lines().find_map(|l| l.strip_prefix("content-length: "));
                let length: usize = length.map_or(0, |l| l.trim().parse().expect("a length"));
                if self.rest.len() >= end + 4 + length {
                    self.counts.requests.fetch_add(1, Ordering::SeqCst);
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

    /// Returns the next bytes from the client, or `None` when the client has closed the
    /// connection.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let mut piece = vec![0; 65_536];
        let count = self.stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        piece.truncate(count);
        Some(piece)
    }

    /// Counts a request that was not read by [`request`](Self::request).
    pub fn count_request(&self) {
        self.counts.requests.fetch_add(1, Ordering::SeqCst);
    }

    /// Sends bytes. Returns false if the client has disconnected.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends the same bytes in response to every request.
    pub fn respond(&mut self, bytes: &[u8]) {
        while self.request().is_some() && self.send(bytes) {}
    }

    /// Reads until the client disconnects.
    pub fn drain(&mut self) {
        let mut buffer = [0; 65536];
        while matches!(self.stream.read(&mut buffer), Ok(count) if count > 0) {}
    }

    /// Closes the connection with a reset.
    pub fn reset(self) {
        self.stream.set_linger(Some(Duration::ZERO)).expect("a socket option");
    }
}

/// Returns an address of 127.0.0.1 on which no server listens. The port is below the range that
/// systems give to outgoing connections, so that no client of another test takes the port.
///
/// # Panics
/// If all ports from 10,000 to 29,999 are taken.
pub fn unused_address() -> SocketAddr {
    const FIRST: u16 = 10_000;
    const COUNT: u16 = 20_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Each test process begins at a different port.
    let own = (std::process::id().wrapping_mul(977) % u32::from(COUNT)) as u16;
    let port = |_| {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST + (own + next) % COUNT))
    };
    let is_free = |address: &SocketAddr| TcpListener::bind(address).is_ok();
    (0..COUNT).map(port).find(is_free).expect("a port")
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn requests_are_read_one_by_one_with_their_bodies() {
        let server = TestServer::start(|mut client| {
            while let Some(request) = client.request() {
                client.send(&request[request.len() - 2..]);
            }
        });
        let mut client = TcpStream::connect(server.address()).unwrap();
        let requests = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n";
        client.write_all(requests).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        assert_eq!(received, b"bc\r\n");
        assert_eq!((server.accepted(), server.requests()), (1, 2));
    }
}
