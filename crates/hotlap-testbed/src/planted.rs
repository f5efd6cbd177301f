//! Servers that differ from the ceiling in one thing each. hotlap's explanation of a difference is
//! tested with these servers.
//!
//! Except for the second write, planted code is in functions whose names begin with `planted_`. The
//! functions are not inlined, so that a profile shows them.

use std::hint::black_box;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flate2::{Compress, Compression, FlushCompress};
use memmap2::MmapMut;
use rustix::time::{ClockId, clock_gettime};

use crate::event_loop::{Behaviour, NotAServer, ServeError, serve};
use crate::request::{Reply, Request};

/// The CPU time of [`Planted::Arithmetic`] for each response, in nanoseconds.
const ARITHMETIC_NS: u64 = 20_000;

/// The number of pages that [`Planted::Faults`] touches for each response.
const PAGES: usize = 50;

/// The number of bytes that [`Planted::Allocation`] allocates for each response.
const ALLOCATED: usize = 64 << 10;

/// The length of the body of [`Planted::Body`], in bytes.
const BODY: usize = 16 << 10;

/// The one thing in which a server differs from the ceiling, for each response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// No difference. The other servers are compared with this server.
    Nothing,
    /// The server calls getpid(2).
    Getpid,
    /// The server sends the response in two writes instead of one.
    Write,
    /// Another thread writes the response.
    Handover,
    /// The server does arithmetic for 20 µs.
    Arithmetic,
    /// The server maps, touches and unmaps 50 pages.
    Faults,
    /// The server allocates, writes and frees 64 KiB.
    Allocation,
    /// The server takes a lock that another thread holds.
    Lock,
    /// The body has 16 KiB instead of 13 bytes.
    Body,
    /// The server calls stat(2).
    Stat,
    /// The server compresses the body.
    Gzip,
}

impl Planted {
    /// All variants, with the server without a difference first.
    const ALL: [Self; 11] = [
        Self::Nothing,
        Self::Getpid,
        Self::Write,
        Self::Handover,
        Self::Arithmetic,
        Self::Faults,
        Self::Allocation,
        Self::Lock,
        Self::Body,
        Self::Stat,
        Self::Gzip,
    ];

    /// Serves until the process ends, with one event loop per thread. All variants except
    /// [`Planted::Body`] and [`Planted::Gzip`] fulfil the contract `hello`.
    ///
    /// # Errors
    /// The address is unavailable, or the system cannot create an event loop.
    pub fn serve(self, address: SocketAddr, threads: usize) -> Result<(), ServeError> {
        let rounds = if self == Self::Arithmetic { rounds_in(ARITHMETIC_NS) } else { 0 };
        let file = std::env::current_exe()?;
        serve(address, threads, || Server::new(self, rounds, file.clone()))
    }
}

impl FromStr for Planted {
    type Err = NotAServer;

    fn from_str(text: &str) -> Result<Self, NotAServer> {
        NotAServer::or_named(text, &Self::ALL)
    }
}

struct Server {
    kind: Planted,
    /// The rounds of arithmetic for each response.
    rounds: u64,
    /// The file whose metadata [`Planted::Stat`] reads.
    file: PathBuf,
    /// The thread that writes the responses of [`Planted::Handover`].
    writer: Option<Arc<Desk>>,
    /// The thread that holds the lock of [`Planted::Lock`].
    rival: Option<Arc<Rival>>,
    compress: Compress,
    compressed: Vec<u8>,
}

impl Server {
    fn new(kind: Planted, rounds: u64, file: PathBuf) -> Self {
        Self {
            kind,
            rounds,
            file,
            writer: (kind == Planted::Handover).then(Desk::start),
            rival: (kind == Planted::Lock).then(Rival::start),
            compress: Compress::new(Compression::default(), true),
            compressed: Vec::with_capacity(256),
        }
    }
}

impl Behaviour for Server {
    fn respond(&mut self, request: &Request, _: &[u8], out: &mut Vec<u8>) -> Duration {
        match self.kind {
            Planted::Getpid => planted_getpid(),
            Planted::Arithmetic => planted_arithmetic(self.rounds),
            Planted::Faults => planted_faults(),
            Planted::Allocation => planted_allocation(),
            Planted::Stat => planted_stat(&self.file),
            Planted::Lock => self.rival.iter().for_each(|rival| planted_lock(rival)),
            Planted::Nothing
            | Planted::Write
            | Planted::Handover
            | Planted::Body
            | Planted::Gzip => {}
        }
        let is_greeting = request.reply == Reply::Greeting;
        match (self.kind, &self.writer) {
            (Planted::Body, _) if is_greeting => planted_body(out),
            (Planted::Gzip, _) if is_greeting => {
                planted_gzip(&mut self.compress, &mut self.compressed);
                write_greeting(out, "Content-Encoding: deflate\r\n", &self.compressed);
            }
            (_, Some(writer)) => planted_handover(writer, request, out),
            _ => request.reply.write(request.close, out),
        }
        Duration::ZERO
    }

    fn sends_in_two(&self) -> bool {
        self.kind == Planted::Write
    }
}

/// Appends a response to `GET /` with an additional header and this body.
fn write_greeting(out: &mut Vec<u8>, header: &str, body: &[u8]) {
    // Writing to memory does not fail.
    let _ = write!(
        out,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{header}Content-Length: {}\r\n\r\n",
        body.len()
    );
    out.extend_from_slice(body);
}

#[inline(never)]
fn planted_getpid() {
    black_box(rustix::process::getpid());
}

/// Runs a random number generator (xorshift64), because no compiler can leave out any of its
/// rounds.
#[inline(never)]
fn planted_arithmetic(rounds: u64) {
    let mut state = black_box(1_u64);
    let mut left = rounds;
    while left > 0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        left -= 1;
    }
    black_box(state);
}

/// Returns the number of rounds that take `ns` nanoseconds, judged by the fastest of several
/// trials.
fn rounds_in(ns: u64) -> u64 {
    const TRIAL: u64 = 100_000;
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    let trial = |_| {
        let began = now();
        planted_arithmetic(TRIAL);
        (now() - began).max(1)
    };
    (0..20).map(trial).min().map_or(TRIAL, |fastest| ns * TRIAL / fastest.unsigned_abs())
}

#[inline(never)]
fn planted_faults() {
    let page = rustix::param::page_size();
    // Without memory, there are no pages to touch.
    let Ok(mut pages) = MmapMut::map_anon(PAGES * page) else { return };
    pages.iter_mut().step_by(page).for_each(|byte| *byte = 1);
    black_box(&pages);
}

#[inline(never)]
fn planted_allocation() {
    black_box(vec![1_u8; black_box(ALLOCATED)]);
}

#[inline(never)]
fn planted_stat(file: &std::path::Path) {
    let _ = black_box(std::fs::metadata(file));
}

#[inline(never)]
fn planted_body(out: &mut Vec<u8>) {
    const BYTES: [u8; BODY] = [b'x'; BODY];
    write_greeting(out, "", &BYTES);
}

#[inline(never)]
fn planted_gzip(compress: &mut Compress, compressed: &mut Vec<u8>) {
    compress.reset();
    compressed.clear();
    // The buffer has enough room for the compressed body.
    let _ = compress.compress_vec(b"Hello, World!", compressed, FlushCompress::Finish);
}

#[inline(never)]
fn planted_handover(writer: &Desk, request: &Request, out: &mut Vec<u8>) {
    *writer.lock() = Job::Ordered(*request, std::mem::take(out));
    writer.changed.notify_all();
    let done = writer.changed.wait_while(writer.lock(), |job| !matches!(job, Job::Done(_)));
    let mut done = done.unwrap_or_else(PoisonError::into_inner);
    if let Job::Done(bytes) = std::mem::replace(&mut *done, Job::None) {
        *out = bytes;
    }
}

/// Waits for a lock that another thread releases on request. The other thread takes the lock again
/// afterwards.
#[inline(never)]
fn planted_lock(rival: &Rival) {
    rival.ask(Turn::Release);
    drop(rival.contended.lock());
    rival.ask(Turn::Take);
}

/// The place where one thread leaves a job for another.
#[derive(Default)]
struct Desk {
    job: Mutex<Job>,
    changed: Condvar,
}

#[derive(Default)]
enum Job {
    #[default]
    None,
    /// Another thread must append the response to these bytes.
    Ordered(Request, Vec<u8>),
    /// The response has been appended to these bytes.
    Done(Vec<u8>),
}

impl Desk {
    fn start() -> Arc<Self> {
        let desk = Arc::new(Self::default());
        let own = Arc::clone(&desk);
        std::thread::spawn(move || own.work());
        desk
    }

    fn work(&self) {
        loop {
            let job = self.changed.wait_while(self.lock(), |job| !matches!(job, Job::Ordered(..)));
            let mut job = job.unwrap_or_else(PoisonError::into_inner);
            if let Job::Ordered(request, mut out) = std::mem::replace(&mut *job, Job::None) {
                request.reply.write(request.close, &mut out);
                *job = Job::Done(out);
                drop(job);
                self.changed.notify_all();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Job> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of a thread that holds a lock until it is told to release the lock.
#[derive(Default)]
struct Rival {
    contended: Mutex<()>,
    turn: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Turn {
    #[default]
    Take,
    Release,
}

impl Rival {
    fn start() -> Arc<Self> {
        let rival = Arc::new(Self::default());
        let own = Arc::clone(&rival);
        std::thread::spawn(move || {
            loop {
                let held = own.contended.lock();
                own.wait_for(Turn::Release);
                drop(held);
                own.wait_for(Turn::Take);
            }
        });
        rival
    }

    fn ask(&self, turn: Turn) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = turn;
        self.changed.notify_all();
    }

    fn wait_for(&self, turn: Turn) {
        let now = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(now, |now| *now != turn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Parsed, parse};

    fn response(kind: Planted) -> String {
        let Parsed::Complete(request) = parse(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") else {
            panic!("a request")
        };
        let mut server = Server::new(kind, 10, "/".into());
        let mut out = Vec::new();
        // The second response shows that the first response left nothing behind.
        for _ in 0..2 {
            out.clear();
            assert_eq!(server.respond(&request, &[], &mut out), Duration::ZERO);
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn what_is_planted_does_not_change_the_response() {
        let hello = response(Planted::Nothing);
        assert!(hello.ends_with("\r\n\r\nHello, World!"));
        for kind in Planted::ALL {
            if ![Planted::Body, Planted::Gzip].contains(&kind) {
                assert_eq!(response(kind), hello, "{kind:?}");
            }
        }
    }

    #[test]
    fn a_larger_body_and_a_compressed_one_have_their_lengths() {
        assert!(response(Planted::Body).contains("\r\nContent-Length: 16384\r\n\r\nxxx"));
        let gzip = response(Planted::Gzip);
        assert!(gzip.contains("\r\nContent-Encoding: deflate\r\nContent-Length: 21\r\n"), "{gzip}");
    }

    #[test]
    fn every_difference_has_a_name() {
        for kind in Planted::ALL {
            assert_eq!(format!("{kind:?}").to_lowercase().parse(), Ok(kind));
        }
        let told = "sleep".parse::<Planted>().unwrap_err().to_string();
        assert!(told.starts_with("\"sleep\" is no server; use nothing, getpid, "), "{told}");
    }
}
