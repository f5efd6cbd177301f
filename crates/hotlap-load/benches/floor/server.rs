//! A small server that runs in a few threads of this process. The threads use edge-triggered epoll
//! and send one response per read. In HTTP/2, the server supports only what load generators need.
//! Each HEADERS frame is a request, and all requests get the same header block and body.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::epoll;
use socket2::{Domain, Socket, Type};

/// Responses below this size, in bytes, are sent in one write.
const SMALL: usize = 16_000;

/// The number of requests that one thread has served. No other count shares its cache line.
#[repr(align(128))]
#[derive(Default)]
struct Count(AtomicU64);

/// A server that runs as long as this process.
pub struct Server {
    pub address: SocketAddr,
    /// The number of streams of each connection. `None` for HTTP/1.1.
    pub streams: Option<usize>,
    served: Vec<Arc<Count>>,
}

impl Server {
    /// Starts a server with one thread on the first core. With `streams`, the server speaks HTTP/2.
    pub fn start(body: usize, streams: Option<usize>) -> Self {
        Self::on(&[0], body, streams)
    }

    /// Starts a server with one thread on each of these cores.
    pub fn on(cpus: &[usize], length: usize, streams: Option<usize>) -> Self {
        let first = listen(0);
        let address = first.local_addr().expect("an address");
        let others = cpus.iter().skip(1).map(|_| listen(address.port()));
        let listeners: Vec<TcpListener> = std::iter::once(first).chain(others).collect();
        let served: Vec<Arc<Count>> = cpus.iter().map(|_| Arc::default()).collect();
        for ((listener, count), cpu) in listeners.into_iter().zip(served.clone()).zip(cpus) {
            let cpu = *cpu;
            std::thread::spawn(move || {
                super::pin(cpu);
                serve(&listener, &count.0, &body(length), streams.is_some());
            });
        }
        Self { address, streams, served }
    }

    /// Returns the number of requests so far, once this number is stable. The server reads the last
    /// requests of a generator after the generator has ended.
    pub fn served(&self) -> u64 {
        let sum = || self.served.iter().map(|count| count.0.load(Ordering::SeqCst)).sum();
        let mut before: u64 = sum();
        loop {
            std::thread::sleep(Duration::from_millis(10));
            match sum() {
                now if now == before => return now,
                now => before = now,
            }
        }
    }
}

/// Returns a body of this length.
pub fn body(length: usize) -> Vec<u8> {
    b"Hello, World!".iter().copied().cycle().take(length).collect()
}

fn listen(port: u16) -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_port(true).expect("a socket option");
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).expect("a port");
    socket.listen(4096).expect("a queue");
    socket.set_nonblocking(true).expect("a socket option");
    socket.into()
}

/// A connection, and the number of bytes of the response that have been sent.
struct Client {
    stream: TcpStream,
    sent: usize,
    http2: Option<Peer>,
}

fn serve(listener: &TcpListener, served: &AtomicU64, body: &[u8], is_http2: bool) {
    let frames = Response::new(body);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let response = [head.as_bytes(), body].concat();
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let data = |n: usize| epoll::EventData::new_u64(n as u64);
    epoll::add(&queue, listener, data(usize::MAX), epoll::EventFlags::IN).expect("epoll");
    let mut clients: Vec<Option<Client>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut events = Vec::with_capacity(1024);
    let mut buffer = vec![0; 65536];
    loop {
        events.clear();
        let spare = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&queue, spare, None).is_err() {
            continue;
        }
        for event in &events {
            let number = event.data.u64() as usize;
            if number == usize::MAX {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).expect("a socket option");
                    stream.set_nodelay(true).expect("a socket option");
                    let place = free.pop().unwrap_or(clients.len());
                    let flags =
                        epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
                    epoll::add(&queue, &stream, data(place), flags).expect("epoll");
                    if place == clients.len() {
                        clients.push(None);
                    }
                    let http2 = is_http2.then(Peer::default);
                    clients[place] = Some(Client { stream, sent: response.len(), http2 });
                }
                continue;
            }
            let Some(client) = &mut clients[number] else { continue };
            let goes_on = match client.http2 {
                None => serve_client(client, &response, &mut buffer, served),
                Some(_) => serve_frames(client, &frames, &mut buffer, served),
            };
            if !goes_on {
                clients[number] = None;
                free.push(number);
            }
        }
    }
}

/// Reads and answers as many frames as possible. Returns false if the client has disconnected.
fn serve_frames(
    client: &mut Client,
    response: &Response,
    buffer: &mut [u8],
    served: &AtomicU64,
) -> bool {
    let Client { stream, http2: Some(peer), .. } = client else { return false };
    loop {
        while peer.sent < peer.out.len() {
            match stream.write(&peer.out[peer.sent..]) {
                Ok(count) => peer.sent += count,
                Err(_) => return true,
            }
        }
        peer.out.clear();
        peer.sent = 0;
        match stream.read(buffer) {
            Ok(count) if count > 0 => {
                served.fetch_add(peer.take(&buffer[..count], response), Ordering::Relaxed);
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return true,
            _ => return false,
        }
    }
}

/// Sends and reads as much as possible. Returns false if the client has disconnected.
fn serve_client(
    client: &mut Client,
    response: &[u8],
    buffer: &mut [u8],
    served: &AtomicU64,
) -> bool {
    loop {
        // Send the rest of the last response first.
        while client.sent < response.len() {
            match client.stream.write(&response[client.sent..]) {
                Ok(count) => client.sent += count,
                Err(_) => return true,
            }
        }
        match client.stream.read(buffer) {
            Ok(count) if count > 0 => {
                served.fetch_add(1, Ordering::Relaxed);
                client.sent = 0;
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return true,
            _ => return false,
        }
        if response.len() < SMALL {
            client.sent = client.stream.write(response).unwrap_or(0);
            return true;
        }
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The HTTP/2 state of one connection.
#[derive(Default)]
struct Peer {
    received: Vec<u8>,
    has_preface: bool,
    /// Bytes to send.
    out: Vec<u8>,
    /// The number of bytes of `out` that have been sent.
    sent: usize,
}

/// A response for any stream, in frames whose stream identifier is 0.
struct Response {
    headers: Vec<u8>,
    data: Vec<Vec<u8>>,
}

impl Response {
    /// Encodes `:status: 200` and `content-length`, both without the dynamic table, and the body.
    fn new(body: &[u8]) -> Self {
        // In RFC 7541, index 8 is `:status: 200`, and index 28 is the name `content-length`. In a
        // literal without indexing, the prefix holds 15 of the index, and another byte holds the
        // rest.
        let length = body.len().to_string();
        let mut block = vec![0x88, 0x0f, 28 - 15, length.len() as u8];
        block.extend_from_slice(length.as_bytes());
        let last = body.len().div_ceil(16_384).max(1) - 1;
        let data = body
            .chunks(16_384)
            .enumerate()
            .map(|(number, part)| frame(DATA, if number == last { END_STREAM } else { 0 }, part));
        Self { headers: frame(HEADERS, END_HEADERS, &block), data: data.collect() }
    }
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

impl Peer {
    /// Takes bytes, answers the frames in them, and returns the number of requests.
    fn take(&mut self, bytes: &[u8], response: &Response) -> u64 {
        self.received.extend_from_slice(bytes);
        let mut at = 0;
        if !self.has_preface {
            if self.received.len() < PREFACE.len() {
                return 0;
            }
            assert!(self.received.starts_with(PREFACE), "not HTTP/2");
            (self.has_preface, at) = (true, PREFACE.len());
            self.out.extend(frame(SETTINGS, 0, &[]));
            // The window is as large as possible, because flow control is not measured.
            self.out.extend(frame(WINDOW_UPDATE, 0, &(0x7fff_0000_u32).to_be_bytes()));
        }
        let mut requests = 0;
        while let Some(header) = self.received.get(at..at + 9) {
            let length =
                usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
            let (kind, flags, stream) = (header[3], header[4], &header[5..9]);
            let Some(payload) = self.received.get(at + 9..at + 9 + length) else { break };
            match kind {
                HEADERS => {
                    requests += 1;
                    for part in std::iter::once(&response.headers).chain(&response.data) {
                        let from = self.out.len() + 5;
                        self.out.extend_from_slice(part);
                        self.out[from..from + 4].copy_from_slice(stream);
                    }
                }
                SETTINGS if flags & ACK == 0 => self.out.extend(frame(SETTINGS, ACK, &[])),
                PING if flags & ACK == 0 => self.out.extend(frame(PING, ACK, payload)),
                _ => {}
            }
            at += 9 + length;
        }
        self.received.drain(..at);
        requests
    }
}
