//! The live view: the restart, the phase, the time left, and the servers with their estimates so
//! far. The view is cleared at the end.
//!
//! A separate thread draws the view at most ten times a second, so that measuring never waits for
//! the terminal. Without a terminal, a plain line is printed for each restart instead.

mod board;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::console::Console;
use crate::model::Lap;
use crate::{redact, text};
use board::Board;

/// The time between two updates of the view. Each update draws the text and then the spinner.
const PERIOD: Duration = Duration::from_millis(200);

/// The state that the live view shows.
#[derive(Debug, Default)]
struct Status {
    restart: String,
    phase: String,
    ends: Option<Instant>,
    board: Board,
}

/// A live view of the current state.
pub struct Live {
    console: Console,
    status: Arc<Mutex<Status>>,
    drawing: Option<Drawing>,
    keys: Option<Keys>,
}

struct Drawing {
    bar: ProgressBar,
    thread: JoinHandle<()>,
    ends: Sender<()>,
}

impl Live {
    /// Starts drawing if there is a terminal.
    pub fn start(console: &Console) -> Self {
        let status = Arc::new(Mutex::new(Status::default()));
        let width = console.width;
        let drawing = console.live.then(|| Drawing::start(Arc::clone(&status), width));
        Self { console: *console, status, drawing, keys: None }
    }

    /// Starts drawing the view of an experiment with these servers. A server with an empty name is
    /// hidden. The key `q` ends the run.
    pub fn experiment(console: &Console, names: Vec<String>) -> Self {
        let mut live = Self::start(console);
        live.change(|status| status.board = Board::new(names));
        if live.drawing.is_some() {
            live.keys = Keys::watch();
            let has_keys = live.keys.is_some();
            live.change(|status| status.board.listens(has_keys));
        }
        live
    }

    /// Records that a window of a server's warm-up has ended.
    pub fn warming(&self, server: usize, requests_per_s: f64) {
        self.change(|status| status.board.warming(server, requests_per_s));
    }

    /// Records that a server's lap begins.
    pub fn running(&self, server: usize) {
        self.change(|status| status.board.running(Some(server)));
    }

    /// Records that a lap has ended.
    pub fn lap(&self, lap: &Lap) {
        self.change(|status| status.board.lap(lap));
    }

    /// Records that a restart begins.
    pub fn restart(&self, restart: u32) {
        let restart = format!("restart {}", restart + 1);
        if self.drawing.is_none() {
            self.console.note(&format!("{restart} …"));
        }
        self.change(|status| {
            status.restart = restart;
            status.board.running(None);
        });
    }

    /// Sets the current phase.
    pub fn phase(&self, phase: String) {
        let phase = text::visible(&redact::text(&phase));
        self.change(|status| status.phase = phase);
    }

    /// Sets the time left.
    pub fn left(&self, left: Duration) {
        self.change(|status| status.ends = Some(Instant::now() + left));
    }

    /// Prints a permanent line above the live view.
    pub fn say(&self, text: &str) {
        match &self.drawing {
            Some(drawing) => {
                drawing.bar.println(text::visible_lines(&redact::text(text)));
            }
            None => self.console.note(text),
        }
    }

    /// Clears the live view.
    pub fn clear(&mut self) {
        drop(self.keys.take());
        if let Some(Drawing { bar, thread, ends }) = self.drawing.take() {
            drop(ends);
            let _ = thread.join();
            bar.finish_and_clear();
        }
    }

    fn change(&self, act: impl FnOnce(&mut Status)) {
        act(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Drawing {
    fn start(status: Arc<Mutex<Status>>, width: usize) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        let style = ProgressStyle::with_template("{spinner} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        let (ends, ended) = mpsc::channel();
        let drawn = bar.clone();
        let thread = std::thread::spawn(move || {
            while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let text = status.lock().unwrap_or_else(PoisonError::into_inner).text(width - 1);
                drawn.set_message(text);
                drawn.tick();
            }
        });
        Self { bar, thread, ends }
    }
}

impl Status {
    /// Returns the view in lines of at most `width` columns. The first leaves room for the spinner.
    fn text(&self, width: usize) -> String {
        let line = self.line(Instant::now());
        let first: String = line.chars().take(width.saturating_sub(2)).collect();
        let cut = |line: String| line.chars().take(width).collect();
        let rest: Vec<String> = self.board.lines(width).into_iter().map(cut).collect();
        std::iter::once(first).chain(rest).collect::<Vec<_>>().join("\n")
    }

    fn line(&self, now: Instant) -> String {
        let left = self.ends.map(|ends| {
            let seconds = ends.saturating_duration_since(now).as_secs();
            format!("{seconds} s left")
        });
        let parts = [Some(self.restart.clone()), Some(self.phase.clone()), left];
        let parts: Vec<String> = parts.into_iter().flatten().filter(|p| !p.is_empty()).collect();
        parts.join(" · ")
    }
}

/// The longest time to wait for a key.
const PATIENCE: Duration = Duration::from_millis(100);

/// Watches the keyboard. During a run, the key `q` has the same effect as Ctrl-C.
///
/// Reading single keys needs another terminal mode. The previous mode is restored when this value
/// is dropped and at the first signal. The terminal therefore stays usable after a second signal,
/// which kills hotlap.
struct Keys {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Restores the terminal mode when this value is dropped.
struct Restore(Termios);

impl Drop for Restore {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

impl Keys {
    /// Watches the keyboard if standard input is a terminal and hotlap runs in its foreground.
    fn watch() -> Option<Self> {
        let group = tcgetpgrp(io::stdin()).ok()?;
        (group == rustix::process::getpgrp()).then_some(())?;
        let before = tcgetattr(io::stdin()).ok()?;
        let over = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&over)).ok()?;
        }
        let mut single = before.clone();
        single.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &single).ok()?;
        let restore = Restore(before);
        let watched = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let _restore = restore;
            listen(&watched);
        });
        Some(Self { over, thread: Some(thread) })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(over: &AtomicBool) {
    let patience = PATIENCE.try_into().ok();
    let stdin = io::stdin();
    while !over.load(Ordering::Relaxed) {
        let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
        if !matches!(poll(&mut waiting, patience.as_ref()), Ok(n) if n > 0) {
            continue;
        }
        let mut keys = [0; 16];
        match rustix::io::read(&stdin, &mut keys) {
            Ok(n) if keys[..n].contains(&b'q') => {
                let own = rustix::process::getpid();
                let _ = rustix::process::kill_process(own, rustix::process::Signal::INT);
            }
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_restart_phase_and_what_is_left() {
        let mut status = Status { restart: "restart 2".to_owned(), ..Status::default() };
        let now = Instant::now();
        assert_eq!(status.line(now), "restart 2");
        status.phase = "warming up go/net-http".to_owned();
        status.ends = Some(now + Duration::from_millis(34_900));
        assert_eq!(status.line(now), "restart 2 · warming up go/net-http · 34 s left");
    }
}
