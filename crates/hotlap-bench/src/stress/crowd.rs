//! Clients that do not behave: one thread, one event loop, a bounded number of sockets.
//!
//! They are apart from the generator's connections, which know no way to misbehave, and from the
//! verifier's, which come one at a time.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde::{Deserialize, Serialize};

use super::scenario::{Message, Rude};
use hotlap_servers::cpus;

/// What became of rude clients. Each connection counts once in `answered`, `closed`, `silent` or
/// `refused`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fate {
    /// Connections that came up.
    pub connected: u64,
    /// First answers, by status; 0 is what is no HTTP.
    pub answered: BTreeMap<u16, u64>,
    /// Ended by the server without an answer.
    pub closed: u64,
    /// Neither answered nor ended until the client left.
    pub silent: u64,
    /// Never came up.
    pub refused: u64,
    /// Still open when all was over, answered or not.
    pub open: u64,
}

/// How often clients are looked through for what is due.
const TICK: Duration = Duration::from_millis(10);

/// New connections a tick, so that 2,000 clients come in a fifth of a second and no queue of a
/// listening socket overflows only because all came in the same millisecond.
const NEW_A_TICK: usize = 100;

/// A crowd under way. Dropping it sends everybody home.
#[derive(Debug)]
pub(super) struct Crowd {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Fate>>,
}

impl Crowd {
    /// Lets the clients come.
    pub(super) fn gather(
        rude: &Rude,
        messages: Vec<Message>,
        address: SocketAddr,
        cpus: &[usize],
    ) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let mut street = Street {
            poll: Poll::new()?,
            rude: rude.clone(),
            messages,
            address,
            clients: (0..rude.clients).map(|_| Client::default()).collect(),
            fate: Fate::default(),
        };
        let (flag, cpus) = (over.clone(), cpus.to_vec());
        let work = move || {
            if !cpus.is_empty() {
                // Where that is not permitted, the crowd runs where it may.
                let _ = cpus::pin(&cpus);
            }
            street.run(&flag);
            street.fate
        };
        let thread = std::thread::Builder::new().name("crowd".to_owned()).spawn(work)?;
        Ok(Self { over, thread: Some(thread) })
    }

    /// Sends everybody home, and says what became of them.
    pub(super) fn disperse(mut self) -> Fate {
        self.over.store(true, Ordering::Relaxed);
        let fate = self.thread.take().map(JoinHandle::join);
        match fate {
            Some(Ok(fate)) => fate,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Fate::default(),
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Street {
    poll: Poll,
    rude: Rude,
    messages: Vec<Message>,
    address: SocketAddr,
    clients: Vec<Client>,
    fate: Fate,
}

#[derive(Default)]
struct Client {
    stream: Option<TcpStream>,
    is_up: bool,
    /// Bytes sent of what is sent at once, and of what is sent slowly.
    sent: (usize, usize),
    /// When the next byte, or the next visit, is due.
    due: Option<Instant>,
    /// When it came.
    since: Option<Instant>,
    is_answered: bool,
    /// Came, and does not come again.
    is_done: bool,
}

/// What a socket that was ready leads to.
enum Turn {
    Stays,
    /// The server ended it, or it never came up.
    Ended,
    Resets,
}

impl Street {
    fn run(&mut self, over: &AtomicBool) {
        let mut events = Events::with_capacity(1024);
        let mut buffer = vec![0; 64 << 10];
        while !over.load(Ordering::Relaxed) {
            self.tick();
            if let Err(error) = self.poll.poll(&mut events, Some(TICK))
                && error.kind() != ErrorKind::Interrupted
            {
                break;
            }
            for event in &events {
                let place = event.token().0;
                match self.turn(place, &mut buffer) {
                    Turn::Stays => {}
                    Turn::Ended => self.leave(place, true),
                    Turn::Resets => self.reset(place),
                }
            }
        }
        for place in 0..self.clients.len() {
            if self.clients[place].stream.is_some() {
                self.fate.open += u64::from(self.clients[place].is_up);
                self.leave(place, false);
            }
        }
    }

    /// Does what is due.
    fn tick(&mut self) {
        let now = Instant::now();
        let mut new = 0;
        for place in 0..self.clients.len() {
            let client = &self.clients[place];
            let is_due = client.due.is_none_or(|due| due <= now);
            match (&client.stream, client.since) {
                (None, _) if !client.is_done && is_due && new < NEW_A_TICK => {
                    new += 1;
                    self.come(place, now);
                }
                (Some(_), Some(since))
                    if self.rude.patience().is_some_and(|p| since + p <= now) =>
                {
                    self.leave(place, false);
                }
                (Some(_), _) if client.is_up && is_due => {
                    let message = &self.messages[place % self.messages.len()];
                    if client.sent.1 < message.slowly.len() {
                        let byte = [message.slowly[client.sent.1]];
                        self.drip(place, &byte, now);
                    }
                }
                _ => {}
            }
        }
    }

    fn come(&mut self, place: usize, now: Instant) {
        let connected = TcpStream::connect(self.address).and_then(|mut stream| {
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(place), both)?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => {
                let client = Client { stream: Some(stream), since: Some(now), ..Client::default() };
                self.clients[place] = client;
            }
            Err(_) => {
                self.fate.refused += 1;
                self.again(place);
            }
        }
    }

    /// The next byte of a slow client.
    fn drip(&mut self, place: usize, byte: &[u8], now: Instant) {
        let pause = self.rude.pause();
        let client = &mut self.clients[place];
        let Some(stream) = &mut client.stream else { return };
        client.due = Some(now + pause);
        // A socket of no use any more shows in its events.
        if let Ok(1) = stream.write(byte) {
            client.sent.1 += 1;
        }
    }

    /// Something happened to a client's socket.
    fn turn(&mut self, place: usize, buffer: &mut [u8]) -> Turn {
        let message = &self.messages[place % self.messages.len()];
        let client = &mut self.clients[place];
        let Some(stream) = &mut client.stream else { return Turn::Stays };
        if !client.is_up {
            if !matches!(stream.take_error(), Ok(None)) {
                return Turn::Ended;
            }
            match stream.peer_addr() {
                Ok(_) => {
                    let _ = stream.set_nodelay(true);
                    client.is_up = true;
                    self.fate.connected += 1;
                }
                Err(_) => return Turn::Stays,
            }
        }
        while client.sent.0 < message.at_once.len() {
            match stream.write(&message.at_once[client.sent.0..]) {
                Ok(sent) => client.sent.0 += sent,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // What cannot be sent any more may have been answered all the same.
                Err(_) => break,
            }
        }
        loop {
            match stream.read(buffer) {
                Ok(0) => return Turn::Ended,
                Ok(length) => {
                    if !client.is_answered {
                        client.is_answered = true;
                        *self.fate.answered.entry(status(&buffer[..length])).or_default() += 1;
                    }
                    if self.rude.resets {
                        return Turn::Resets;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Turn::Stays,
                Err(_) => return Turn::Ended,
            }
        }
    }

    /// As a client whose process is killed with bytes unread.
    fn reset(&mut self, place: usize) {
        if let Some(stream) = &self.clients[place].stream {
            // RFC 9293 section 3.10.4 lets a close be an abort; lingering for no time asks for
            // that.
            let linger = Some(Duration::ZERO);
            let _ = rustix::net::sockopt::set_socket_linger(stream.as_fd(), linger);
        }
        self.leave(place, false);
    }

    /// A connection is over, by the server or by the client.
    fn leave(&mut self, place: usize, by_server: bool) {
        let client = &mut self.clients[place];
        client.stream = None;
        match (client.is_answered, client.is_up) {
            (true, _) => {}
            (false, false) => self.fate.refused += 1,
            (false, true) if by_server => self.fate.closed += 1,
            (false, true) => self.fate.silent += 1,
        }
        self.again(place);
    }

    /// Comes again after a pause, if this kind of client does.
    fn again(&mut self, place: usize) {
        let client = &mut self.clients[place];
        client.is_done = self.rude.patience_ms.is_none();
        client.due = Some(Instant::now() + self.rude.pause());
    }
}

/// The status of an answer by its first bytes; 0: it is none.
fn status(bytes: &[u8]) -> u16 {
    let is_http = bytes.starts_with(b"HTTP/1.");
    let digits = bytes.get(9..12).filter(|_| is_http);
    digits.and_then(|d| std::str::from_utf8(d).ok()?.parse().ok()).unwrap_or(0)
}

impl Fate {
    /// Connections of which it is known how they ended.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.answered.values().sum::<u64>() + self.closed + self.silent + self.refused
    }

    /// First answers with a status of this hundred: 4 for 400 to 499.
    #[must_use]
    pub fn of_class(&self, hundred: u16) -> u64 {
        let of = self.answered.iter().filter(|(status, _)| *status / 100 == hundred);
        of.map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_from_the_first_bytes_and_what_is_none_is_0() {
        assert_eq!(status(b"HTTP/1.1 431 Request Header Fields Too Large\r\n"), 431);
        assert_eq!(status(b"HTTP/1.0 400"), 400);
        assert_eq!(status(b"HTTP/1.1 4"), 0);
        assert_eq!(status(b"SSH-2.0-OpenSSH"), 0);
    }

    #[test]
    fn answers_are_told_by_their_hundred() {
        let answered = BTreeMap::from([(200, 3), (400, 5), (431, 2), (0, 1)]);
        let fate = Fate { answered, closed: 4, ..Fate::default() };
        assert_eq!((fate.of_class(4), fate.of_class(2), fate.of_class(0)), (7, 3, 1));
        assert_eq!(fate.total(), 15);
    }
}
