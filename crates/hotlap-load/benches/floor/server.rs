//! A small server: a few threads of this process, edge-triggered, one response per read.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::epoll;
use socket2::{Domain, Socket, Type};

use super::http2_server::{Peer, Response};

/// Responses up to this size are sent in one write.
const SMALL: usize = 16_000;

/// The count of one thread, on its own cache lines.
#[repr(align(128))]
#[derive(Default)]
struct Count(AtomicU64);

/// A server that runs as long as this process.
pub struct Server {
    pub address: SocketAddr,
    /// Streams of each connection, if it speaks HTTP/2.
    pub streams: Option<usize>,
    served: Vec<Arc<Count>>,
}

impl Server {
    /// One thread on the first core. With `streams`, it speaks HTTP/2.
    pub fn start(body: usize, streams: Option<usize>) -> Self {
        Self::on(&[0], body, streams)
    }

    /// One thread on each of these cores.
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

    /// Requests so far, once the number is stable: the last requests of a generator are read after
    /// it has ended.
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

/// A body of this length.
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

/// A connection, and how much of the response is sent.
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

/// Reads frames and answers them, as many as possible; false if the client has disconnected.
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

/// Sends and reads as much as possible; false if the client has disconnected.
fn serve_client(
    client: &mut Client,
    response: &[u8],
    buffer: &mut [u8],
    served: &AtomicU64,
) -> bool {
    loop {
        // The rest of the last response first.
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
