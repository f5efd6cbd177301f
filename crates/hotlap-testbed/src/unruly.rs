//! Servers that misbehave at random. Each seed gives a different server, and the same seed always
//! gives the same server.
//!
//! A server responds correctly to its first requests, unless the server speaks TLS. Each later
//! request gets the next action of a short list. An action sends a correct response or mutated,
//! invented or endless bytes, sends nothing, or closes the connection. As a process, a server may
//! also daemonize, stop or kill itself, flood its log, open another port first, or ignore its
//! port.

use std::fmt;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};

use crate::http2::{Http2Peer, frame, kind, response};
use crate::test_server::{HELLO, Peer, TestServer};

/// The body of a correct response.
const BODY: &[u8] = b"Hello, World!";

/// The time after which an endless action ends, so that the threads of a test end too.
const ENDLESS: Duration = Duration::from_secs(20);

/// Calls `test` with one seed after another, with `at_a_time` calls in parallel. The variable
/// `HOTLAP_SEEDS` sets the number of seeds, which is `usual` by default. The variable
/// `HOTLAP_FIRST_SEED` sets the first seed, which is 0 by default.
///
/// # Panics
/// If `test` panics.
pub fn for_seeds(usual: u64, at_a_time: usize, test: impl Fn(u64) + Sync) {
    for_some_seeds(usual, 1, at_a_time, |seeds| test(seeds.start));
}

/// Works like [`for_seeds`], but passes `each` seeds to one call of `test`.
///
/// # Panics
/// If `test` panics.
pub fn for_some_seeds(usual: u64, each: u64, at_a_time: usize, test: impl Fn(Range<u64>) + Sync) {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let first: u64 = number("HOTLAP_FIRST_SEED").unwrap_or(0);
    let end = first + number("HOTLAP_SEEDS").unwrap_or(usual);
    let next = AtomicU64::new(first);
    let work = || {
        loop {
            match next.fetch_add(each, Ordering::Relaxed) {
                seed if seed < end => test(seed..end.min(seed + each)),
                _ => return,
            }
        }
    };
    std::thread::scope(|scope| (0..at_a_time).for_each(|_| drop(scope.spawn(work))));
}

/// Returns the peak resident memory of a process, in bytes. `process` is `self` or a process id.
/// Returns `None` where `/proc` does not state the peak.
pub fn most_memory(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok().map(|kb: u64| kb * 1024)
}

/// A random number generator: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", OOPSLA 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator. The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns one of these values.
    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// Returns true in `percent` of 100 cases.
    pub fn is(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.next() as u8).collect()
    }
}

/// What a server sends in response to a request.
#[derive(Clone)]
enum Action {
    /// A correct response.
    Respond,
    /// A correct response after this many milliseconds.
    Late(u64),
    /// A correct response, after which the connection ends without an announcement.
    RespondAndClose,
    /// Only these bytes.
    Send(Vec<u8>),
    /// These bytes one by one, with a pause in milliseconds before each.
    Drip(Vec<u8>, u64),
    /// The first bytes, and then the second bytes again and again.
    Endless(Vec<u8>, Vec<u8>),
    /// Nothing, while the connection stays open.
    Silence,
    /// The end of the connection, without a response.
    Close,
    /// A reset of the connection.
    Reset,
    /// The end of the server's side of the connection only.
    HalfClose,
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = |bytes: &[u8]| {
            let rest = if bytes.len() > 200 { "..." } else { "" };
            format!(
                "\"{}{rest}\" ({} bytes)",
                bytes[..bytes.len().min(200)].escape_ascii(),
                bytes.len()
            )
        };
        match self {
            Self::Respond => write!(f, "respond"),
            Self::Late(ms) => write!(f, "respond after {ms} ms"),
            Self::RespondAndClose => write!(f, "respond and close"),
            Self::Send(bytes) => write!(f, "send {}", start(bytes)),
            Self::Drip(bytes, ms) => write!(f, "a byte each {ms} ms of {}", start(bytes)),
            Self::Endless(first, again) => {
                write!(f, "send {}, then always {}", start(first), start(again))
            }
            Self::Silence => write!(f, "silence"),
            Self::Close => write!(f, "close"),
            Self::Reset => write!(f, "reset"),
            Self::HalfClose => write!(f, "close one side"),
        }
    }
}

/// What a client gets in response to a request because of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed<'a> {
    /// A correct response.
    Responds,
    /// The first bytes over this time, and then the last bytes again and again.
    Sends(&'a [u8], Duration, &'a [u8]),
    /// Nothing, while the connection stays open.
    Waits,
    /// The end of the connection, without a response.
    Closes,
}

impl Action {
    fn deed(&self) -> Deed<'_> {
        match self {
            Self::Respond | Self::Late(_) | Self::RespondAndClose => Deed::Responds,
            Self::Send(bytes) => Deed::Sends(bytes, Duration::ZERO, &[]),
            Self::Drip(bytes, ms) => {
                Deed::Sends(bytes, Duration::from_millis(bytes.len() as u64 * ms), &[])
            }
            Self::Endless(first, again) => Deed::Sends(first, Duration::ZERO, again),
            Self::Silence => Deed::Waits,
            Self::Close | Self::Reset | Self::HalfClose => Deed::Closes,
        }
    }
}

/// What a server does with a connection after an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// The server responds to the next request.
    Respond,
    /// The server reads requests and sends nothing.
    ReadOn,
    Close,
}

/// The protocol that a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS.
    Http2,
    /// Bytes that look like TLS, without a successful handshake.
    Tls,
}

/// What a process does in addition to sending responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    Plain,
    /// The first process starts a second one and ends.
    Daemonizes,
    /// The process leaves a child that nobody waits for.
    HasChild,
    ListensLate,
    NeverListens,
    OtherPortFirst,
    IgnoresPort,
    FloodsLog,
    EndsAtOnce,
    /// The process ends after some requests.
    Ends,
    /// The process kills itself after some requests.
    IsKilled,
    /// The process stops itself after some requests, until something continues it.
    Stops,
    ClosesItsSocket,
}

/// A server that misbehaves at random.
#[derive(Debug)]
pub struct Unruly {
    /// The protocol that the server speaks.
    pub speaks: Speaks,
    /// The number of requests that get a correct response first, unless the server speaks TLS.
    good: u64,
    /// The actions for the later requests in turn, each with the number of requests that got it.
    actions: Vec<(Action, AtomicU64)>,
    habit: Habit,
    requests: AtomicU64,
    /// The number of requests that came after an action that was the last on its connection.
    unanswered: AtomicU64,
    /// The number of correct responses that were sent completely.
    sent: AtomicU64,
    /// The number of open connections.
    open: AtomicU64,
}

impl Unruly {
    /// Creates the server of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let speaks = match random.below(10) {
            0..6 => Speaks::Http1,
            6..9 => Speaks::Http2,
            _ => Speaks::Tls,
        };
        let good = random.one(&[0, 0, 1, 7, 40, 400]);
        let count = 1 + random.below(4);
        let actions = (0..count).map(|_| (action(&mut random, speaks), 0.into())).collect();
        let habits = [
            Habit::Plain,
            Habit::Daemonizes,
            Habit::HasChild,
            Habit::ListensLate,
            Habit::NeverListens,
            Habit::OtherPortFirst,
            Habit::IgnoresPort,
            Habit::FloodsLog,
            Habit::EndsAtOnce,
            Habit::Ends,
            Habit::IsKilled,
            Habit::Stops,
            Habit::ClosesItsSocket,
        ];
        let habit = if random.is(50) { Habit::Plain } else { random.one(&habits) };
        Self {
            speaks,
            good,
            actions,
            habit,
            requests: 0.into(),
            unanswered: 0.into(),
            sent: 0.into(),
            open: 0.into(),
        }
    }

    /// Starts the server in this process, without the habits of a process.
    pub fn start(self: &Arc<Self>) -> TestServer {
        let own = Arc::clone(self);
        TestServer::start(move |client| own.serve(client))
    }

    /// Returns the number of requests that the server has received.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst) + self.unanswered()
    }

    /// Returns the number of requests that came after an action that was the last on its
    /// connection.
    pub fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::SeqCst)
    }

    /// Returns the number of correct responses that the server has sent completely.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// Returns the actions after the first requests, each with the number of requests that got it.
    pub fn deeds(&self) -> impl Iterator<Item = (Deed<'_>, u64)> {
        self.actions.iter().map(|(action, count)| (action.deed(), count.load(Ordering::SeqCst)))
    }

    /// Returns whether the server is serving a connection. If so, its counts may still change.
    pub fn is_busy(&self) -> bool {
        self.open.load(Ordering::SeqCst) > 0
    }

    fn serve(&self, client: Peer) {
        self.open.fetch_add(1, Ordering::SeqCst);
        let _ = client.stream.set_write_timeout(Some(ENDLESS));
        match self.speaks {
            Speaks::Http1 => self.http1(client),
            Speaks::Http2 => self.http2(client),
            Speaks::Tls => self.tls(client),
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns the action for the next request. Returns `None` for the first requests, which get
    /// correct responses unless the server speaks TLS.
    fn next(&self) -> Option<&Action> {
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        let after = number.checked_sub(self.good)? as usize;
        let (action, count) = &self.actions[after % self.actions.len()];
        count.fetch_add(1, Ordering::SeqCst);
        Some(action)
    }

    /// Counts the further requests until the client disconnects.
    fn read_on<R>(&self, mut request: impl FnMut() -> Option<R>) {
        while request().is_some() {
            self.unanswered.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn http1(&self, mut client: Peer) {
        while client.request().is_some() {
            let action = self.next();
            match self.act(action.unwrap_or(&Action::Respond), &mut client, HELLO) {
                Then::Respond => {}
                Then::ReadOn => return self.read_on(|| client.request()),
                Then::Close => return,
            }
        }
    }

    fn http2(&self, client: Peer) {
        let Some(mut client) = Http2Peer::begin(client, &[]) else { return };
        while let Some(stream) = client.request() {
            let action = match self.next() {
                None => &Action::Respond,
                Some(action) => action,
            };
            // The frames of an action name stream 1, but must be sent on `stream`.
            let for_stream = |bytes: &[u8]| on_stream(bytes, stream);
            let action = match action {
                Action::Send(bytes) => Action::Send(for_stream(bytes)),
                Action::Drip(bytes, ms) => Action::Drip(for_stream(bytes), *ms),
                Action::Endless(first, again) => {
                    Action::Endless(for_stream(first), for_stream(again))
                }
                other => other.clone(),
            };
            match self.act(&action, client.client(), &response(stream, BODY)) {
                Then::Respond => {}
                Then::ReadOn => return self.read_on(|| client.request()),
                Then::Close => return,
            }
        }
    }

    fn tls(&self, mut client: Peer) {
        if client.receive().is_some() {
            let action = self.next().unwrap_or(&self.actions[0].0);
            if self.act(action, &mut client, HELLO) != Then::Close {
                client.drain();
            }
        }
    }

    /// Carries out an action. Returns what happens to the connection next.
    fn act(&self, action: &Action, client: &mut Peer, correct: &[u8]) -> Then {
        let respond = |client: &mut Peer| {
            let is_sent = client.send(correct);
            self.sent.fetch_add(u64::from(is_sent), Ordering::SeqCst);
        };
        match action {
            Action::Respond => respond(client),
            Action::Late(ms) => {
                sleep(Duration::from_millis(*ms));
                respond(client);
            }
            Action::RespondAndClose => {
                respond(client);
                let _ = client.stream.shutdown(Shutdown::Write);
                return Then::ReadOn;
            }
            Action::Send(bytes) => drop(client.send(bytes)),
            Action::Drip(bytes, ms) => drop(bytes.chunks(1).all(|byte| {
                sleep(Duration::from_millis(*ms));
                client.send(byte)
            })),
            Action::Endless(first, again) => {
                let (began, many) = (Instant::now(), again.repeat(1 + 16_384 / again.len().max(1)));
                client.send(first);
                while !many.is_empty() && began.elapsed() < ENDLESS && client.send(&many) {}
                return Then::ReadOn;
            }
            Action::Silence => return Then::ReadOn,
            Action::Close => return Then::Close,
            Action::Reset => {
                let _ = client.stream.set_linger(Some(Duration::ZERO));
                return Then::Close;
            }
            Action::HalfClose => {
                let _ = client.stream.shutdown(Shutdown::Write);
                return Then::ReadOn;
            }
        }
        Then::Respond
    }

    /// Serves at this address, with the habits of a process, until the process ends.
    ///
    /// # Errors
    /// The address is unavailable, or a process cannot be started.
    pub fn run(self, address: SocketAddr, is_again: bool) -> std::io::Result<()> {
        const SOME: Duration = Duration::from_millis(700);
        let mut address = address;
        let again = || {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(std::env::args_os().skip(1)).arg("again").stdin(Stdio::null());
            Ok::<_, std::io::Error>(command)
        };
        match self.habit {
            Habit::Daemonizes if !is_again => return again()?.spawn().map(drop),
            Habit::HasChild if !is_again => {
                Command::new("sleep").arg("30").stdin(Stdio::null()).spawn()?;
            }
            Habit::ListensLate => sleep(SOME),
            Habit::NeverListens => loop {
                sleep(ENDLESS);
            },
            Habit::EndsAtOnce => return Ok(()),
            Habit::OtherPortFirst => {
                let other = TcpListener::bind((address.ip(), 0))?;
                std::thread::spawn(move || {
                    for mut client in other.incoming().flatten() {
                        let _ = client.read(&mut [0; 1024]);
                        let _ = client.write_all(HELLO);
                    }
                });
                sleep(SOME);
            }
            Habit::IgnoresPort => address.set_port(0),
            Habit::FloodsLog => {
                std::thread::spawn(|| {
                    let line = [b'x'; 8_192];
                    while std::io::stdout().write_all(&line).is_ok() {
                        sleep(Duration::from_millis(1));
                    }
                });
            }
            _ => {}
        }
        let own = Arc::new(self);
        let listener = TcpListener::bind(address)?;
        let closing = listener.try_clone()?;
        let _server = TestServer::on(listener, {
            let own = Arc::clone(&own);
            move |client| own.serve(client)
        });
        loop {
            sleep(Duration::from_millis(10));
            if own.requests() < 60 {
                continue;
            }
            match own.habit {
                Habit::Ends => std::process::exit(0),
                Habit::IsKilled => signal(Signal::KILL),
                Habit::Stops => {
                    signal(Signal::STOP);
                    sleep(ENDLESS);
                }
                Habit::ClosesItsSocket => {
                    // Open connections continue.
                    let _ = rustix::net::shutdown(&closing, rustix::net::Shutdown::Both);
                    sleep(ENDLESS);
                }
                _ => {}
            }
        }
    }
}

fn signal(signal: Signal) {
    let _ = kill_process(getpid(), signal);
}

/// Returns the frames with each stream number 1 replaced by `stream`.
fn on_stream(frames: &[u8], stream: u32) -> Vec<u8> {
    let (mut frames, mut at) = (frames.to_vec(), 0);
    while let Some(header) = frames.get_mut(at..at + 9) {
        if header[5..9] == [0, 0, 0, 1] {
            header[5..9].copy_from_slice(&stream.to_be_bytes());
        }
        at += 9 + u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
    }
    frames
}

fn action(random: &mut Random, speaks: Speaks) -> Action {
    let bytes: fn(&mut Random) -> Vec<u8> = match speaks {
        Speaks::Http1 => http1,
        Speaks::Http2 => http2,
        Speaks::Tls => tls,
    };
    match random.below(20) {
        0 => Action::Respond,
        1 => Action::Late(random.below(60) as u64),
        2 => Action::RespondAndClose,
        3 => Action::Silence,
        4 => Action::Close,
        5 => Action::Reset,
        6 => Action::HalfClose,
        7..10 => Action::Endless(bytes(random), repeated(random, speaks)),
        10..12 => Action::Drip(bytes(random), random.below(20) as u64),
        _ => Action::Send(bytes(random)),
    }
}

/// Returns bytes for a server to send again and again.
fn repeated(random: &mut Random, speaks: Speaks) -> Vec<u8> {
    let noise = random.bytes(64);
    match speaks {
        Speaks::Http1 => random.one(&[
            b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(),
            b"1\r\nx\r\n".to_vec(),
            b"A: b\r\n".to_vec(),
            b"x".to_vec(),
            b"\r\n".to_vec(),
            b"0000".to_vec(),
            HELLO.to_vec(),
            noise,
        ]),
        Speaks::Http2 => {
            let kind = random.below(12) as u8;
            random.one(&[
                frame(kind::DATA, 0, 1, b""),
                frame(kind::DATA, 0, 1, b"x"),
                frame(kind::DATA, 8, 1, &[3, 0, 0, 0]),
                frame(kind::PING, 0, 0, b"12345678"),
                frame(kind::SETTINGS, 0, 0, b""),
                frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
                frame(kind::HEADERS, 4, 1, b"\x08\x03100"),
                frame(9, 0, 1, b"\0\x01a\x01b"),
                frame(kind, 0, 1, &noise),
            ])
        }
        Speaks::Tls => [&[22, 3, 3, 0, noise.len() as u8], &noise[..]].concat(),
    }
}

/// Returns bytes that look like HTTP/1.1 responses.
fn http1(random: &mut Random) -> Vec<u8> {
    let mut bytes = if random.is(40) { HELLO.to_vec() } else { invented(random) };
    for _ in 0..random.below(4) {
        mutate(&mut bytes, random);
    }
    bytes
}

fn invented(random: &mut Random) -> Vec<u8> {
    let status = random.one(&[100, 101, 103, 199, 200, 204, 205, 206, 301, 304, 404, 503, 999]);
    let version = random.one(&["HTTP/1.1", "HTTP/1.0", "HTTP/2", "http/1.1", "ICY"]);
    let length = random.one(&[0, 1, 13, 100, 20_000, 300_000]);
    let body: Vec<u8> = BODY.iter().copied().cycle().take(length).collect();
    let mut head = format!("{version} {status} Some\r\n");
    for _ in 0..random.below(4) {
        head += &match random.below(9) {
            0 => format!("Content-Length: {length}\r\n"),
            1 => format!("Content-Length: {}\r\n", random.next()),
            2 => format!("Content-Length: -{length}\r\n"),
            3 => "Connection: close\r\n".to_owned(),
            4 => "Transfer-Encoding: gzip, chunked\r\n".to_owned(),
            5 => "Content-Encoding: gzip\r\n".to_owned(),
            6 => format!("X: {}\r\n", "y".repeat(random.below(70_000))),
            7 => " folded\r\n".to_owned(),
            _ => "Upgrade: h2c\r\n".to_owned(),
        };
    }
    let mut bytes = head.into_bytes();
    if random.is(50) {
        bytes.extend(format!("Content-Length: {length}\r\n\r\n").bytes());
        bytes.extend(body);
        return bytes;
    }
    bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
    let size = random.one(&[1, 13, 4_096, 100_000]);
    for chunk in body.chunks(size) {
        bytes.extend(format!("{:x};a=\"b\"\r\n", chunk.len()).bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    bytes.extend(random.one(&["0\r\n\r\n", "0\r\nA: b\r\n\r\n", "00\r\n\r\n", ""]).bytes());
    bytes
}

/// Changes some bytes at random.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let end = (at + random.below(40)).min(bytes.len());
    match random.below(5) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => drop(bytes.splice(at..at, random.bytes(40))),
        3 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
        _ => bytes[at..end].iter_mut().for_each(|byte| *byte ^= 1 << random.below(8)),
    }
}

/// Returns HTTP/2 frames, about half of them for stream 1.
fn http2(random: &mut Random) -> Vec<u8> {
    let mut frames = Vec::new();
    for _ in 0..1 + random.below(4) {
        let kinds = [0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 200];
        let kind = random.one(&kinds);
        let heads: [&[u8]; 3] = [b"\x88", b"\x08\x03103", b"\x8d"];
        let payload = match kind {
            kind::HEADERS if random.is(70) => random.one(&heads).to_vec(),
            kind::DATA if random.is(70) => BODY.to_vec(),
            _ => random.bytes(300),
        };
        let most: &[u32] = &[1, 1, 1, 1, 0, 2, 3, 0x7fff_ffff];
        frames.extend(frame(kind, random.next() as u8 & 0x2d, random.one(most), &payload));
    }
    if random.is(20) {
        mutate(&mut frames, random);
    }
    frames
}

/// Returns TLS records.
fn tls(random: &mut Random) -> Vec<u8> {
    let mut records = Vec::new();
    for _ in 0..1 + random.below(3) {
        let payload = if random.is(30) { vec![2, 40] } else { random.bytes(300) };
        let length = if random.is(80) { payload.len() } else { random.below(70_000) } as u16;
        records.push(random.one(&[20, 21, 22, 23, 24, 255]));
        records.extend([3, random.below(5) as u8]);
        records.extend(length.to_be_bytes());
        records.extend(payload);
    }
    records
}
