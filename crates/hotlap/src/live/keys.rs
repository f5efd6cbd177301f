//! `q` during a run: the same as Ctrl-C.
//!
//! Reading single keys needs another terminal mode. The mode is restored when this value is dropped
//! and at the first signal, so that a second signal, which kills hotlap, leaves the terminal
//! usable.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The maximum wait for a key.
const PATIENCE: Duration = Duration::from_millis(100);

/// Watches the keyboard.
pub struct Keys {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Restores the terminal mode.
struct Restore(Termios);

impl Drop for Restore {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

impl Keys {
    /// Watches the keyboard, if standard input is a terminal and hotlap is in its foreground.
    pub fn watch() -> Option<Self> {
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
