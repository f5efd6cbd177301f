//! The two streams of a channel. A thread writes, so that no call waits for an agent that does not
//! read; another reads. Neither is waited for: each ends when its stream does.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::clock::Clock;
use crate::frame::{self, FrameError};
use crate::message::{ToAgent, ToController};

/// How often the controller tells the agent that it is there.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// What comes from an agent.
#[derive(Debug)]
pub(super) enum Incoming {
    /// The agent's first bytes.
    Marker,
    /// There are none; this came instead.
    NoMarker(Vec<u8>),
    /// A message, and when it had arrived, in nanoseconds of this host's clock.
    Frame { content: Vec<u8>, at_ns: u64 },
    /// Nothing more comes.
    Ended(FrameError),
}

/// Both streams.
#[derive(Debug)]
pub(super) struct Link {
    /// `None` once the link is closed.
    outbox: Option<Sender<Outgoing>>,
    inbox: Receiver<Incoming>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// When the last byte came.
    heard_ns: AtomicU64,
    /// When the last message that is to be stamped was written.
    sent_ns: AtomicU64,
    /// Since when an answer is due: the first message after the last byte that came; 0 if none is.
    due_ns: AtomicU64,
    /// The longest time that an answer took since the last call of [`Link::silence`].
    longest_ns: AtomicU64,
    /// Whether heartbeats are sent.
    heartbeats: AtomicBool,
}

struct Outgoing {
    frame: Vec<u8>,
    is_stamped: bool,
}

impl Link {
    pub(super) fn new(
        output: impl Write + Send + 'static,
        input: impl Read + Send + 'static,
    ) -> Self {
        let (outbox, orders) = mpsc::channel();
        let (answers, inbox) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        shared.heard_ns.store(Clock::default().now_ns(), Ordering::Relaxed);
        let (writing, reading) = (shared.clone(), shared.clone());
        std::thread::spawn(move || write_all(output, &orders, &writing));
        std::thread::spawn(move || read_all(Heard { input, shared: reading }, &answers));
        Self { outbox: Some(outbox), inbox, shared }
    }

    pub(super) fn send(&self, frame: Vec<u8>) {
        self.enqueue(frame, false);
    }

    /// Sends a message and notes when it is written.
    pub(super) fn send_stamped(&self, frame: Vec<u8>) {
        self.enqueue(frame, true);
    }

    /// If the link has ended, the next wait returns why.
    fn enqueue(&self, frame: Vec<u8>, is_stamped: bool) {
        if let Some(outbox) = &self.outbox {
            let _ = outbox.send(Outgoing { frame, is_stamped });
        }
    }

    /// What comes next; `None` if nothing does within `limit`.
    pub(super) fn next(&self, limit: Duration) -> Option<Incoming> {
        match self.inbox.recv_timeout(limit) {
            Ok(incoming) => Some(incoming),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Incoming::Ended(FrameError::Closed)),
        }
    }

    /// Sends heartbeats from now on.
    pub(super) fn keep_alive(&self) {
        self.shared.heartbeats.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_kept_alive(&self) -> bool {
        self.shared.heartbeats.load(Ordering::Relaxed)
    }

    /// When the last byte came.
    pub(super) fn heard_ns(&self) -> u64 {
        self.shared.heard_ns.load(Ordering::Relaxed)
    }

    /// The longest time since the last call in which an answer was due and nothing came. Heartbeats
    /// are answered at once, so a break of the connection is seen but for their interval.
    pub(super) fn silence(&self) -> Duration {
        let longest = self.shared.longest_ns.swap(0, Ordering::Relaxed);
        let present = match self.shared.due_ns.load(Ordering::Relaxed) {
            0 => 0,
            since => Clock::default().now_ns().saturating_sub(since),
        };
        Duration::from_nanos(longest.max(present))
    }

    /// When the last stamped message was written.
    pub(super) fn sent_ns(&self) -> u64 {
        self.shared.sent_ns.load(Ordering::Acquire)
    }

    /// Closes the agent's input once everything is written.
    pub(super) fn close(&mut self) {
        self.outbox = None;
    }
}

impl Shared {
    /// An answer is due from now on. Returns the time.
    fn expect_answer(&self) -> u64 {
        let now_ns = Clock::default().now_ns();
        let _ = self.due_ns.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
        now_ns
    }

    /// Something came.
    fn hear(&self) {
        let now_ns = Clock::default().now_ns();
        self.heard_ns.store(now_ns, Ordering::Relaxed);
        match self.due_ns.swap(0, Ordering::Relaxed) {
            0 => {}
            since => _ = self.longest_ns.fetch_max(now_ns.saturating_sub(since), Ordering::Relaxed),
        }
    }
}

fn write_all(mut output: impl Write, orders: &Receiver<Outgoing>, shared: &Shared) {
    let heartbeat = frame::encode(&ToAgent::<()>::Heartbeat).unwrap_or_default();
    loop {
        let written = match orders.recv_timeout(HEARTBEAT) {
            Ok(Outgoing { frame, is_stamped }) => {
                let now_ns = shared.expect_answer();
                if is_stamped {
                    shared.sent_ns.store(now_ns, Ordering::Release);
                }
                frame::write(&mut output, &frame)
            }
            Err(RecvTimeoutError::Timeout) if shared.heartbeats.load(Ordering::Relaxed) => {
                shared.expect_answer();
                frame::write(&mut output, &heartbeat)
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // The reader notices the end of the agent.
        if written.is_err() {
            return;
        }
    }
}

fn read_all(mut input: impl Read, answers: &Sender<Incoming>) {
    let heartbeat = serde_json::to_vec(&ToController::<()>::Heartbeat).unwrap_or_default();
    let greeting = match frame::skip_to_marker(&mut input) {
        Ok(()) => Incoming::Marker,
        Err(printed) => {
            let _ = answers.send(Incoming::NoMarker(printed));
            return;
        }
    };
    let mut next = greeting;
    while answers.send(next).is_ok() {
        next = loop {
            match frame::read(&mut input) {
                Ok(content) if content == heartbeat => {}
                Ok(content) => {
                    let at_ns = Clock::default().now_ns();
                    break Incoming::Frame { content, at_ns };
                }
                Err(why) => {
                    let _ = answers.send(Incoming::Ended(why));
                    return;
                }
            }
        };
    }
}

/// A stream that notes when something comes, so that a long message is no silence.
struct Heard<R> {
    input: R,
    shared: Arc<Shared>,
}

impl<R: Read> Read for Heard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.shared.hear();
        Ok(count)
    }
}
