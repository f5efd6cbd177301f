//! Signals that ask hotlap to end. After the first signal, hotlap stops its servers and keeps
//! finished results. A signal more than a second later ends hotlap at once, and the supervisors
//! end the servers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotlap_servers::process::is_ignored;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::exit::Exit;

/// Signals within this time of the first signal count as one request to end. `timeout` sends
/// SIGTERM to its command, and again to the process group. npm and cargo pass on a Ctrl-C that the
/// terminal has already sent to the whole group.
const SAME: Duration = Duration::from_secs(1);

/// The longest time between the first signal and the end of hotlap, whatever its threads do. An
/// orderly end gives servers 5 s to stop.
const LAST: Duration = Duration::from_secs(60);

/// Makes a write beyond `ulimit -f` fail like a write to a full disk, instead of ending hotlap.
pub fn outlive_limits() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}

/// Ends hotlap after [`LAST`], if hotlap is still running.
fn end_at_last() {
    let waits = || {
        std::thread::sleep(LAST);
        std::process::exit(Exit::Interrupted as i32);
    };
    // If the thread cannot be started, a second signal still ends hotlap.
    let _ = std::thread::Builder::new().name("last".to_owned()).spawn(waits);
}

/// A flag that is set when hotlap should end.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles Ctrl-C, SIGTERM and SIGHUP from now on. Under `nohup`, SIGHUP stays ignored.
    pub fn listen() -> io::Result<Self> {
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup))?;
        let asked = Arc::new(AtomicBool::new(false));
        let own = Self(Arc::clone(&asked));
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut first: Option<Instant> = None;
            for _ in signals.forever() {
                match first {
                    Some(first) if first.elapsed() > SAME => {
                        std::process::exit(Exit::Interrupted as i32);
                    }
                    Some(_) => {}
                    None => {
                        first = Some(Instant::now());
                        asked.store(true, Ordering::Relaxed);
                        end_at_last();
                    }
                }
            }
        })?;
        Ok(own)
    }

    /// Whether hotlap should end.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag, for code that polls it.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// A shared handle to the flag.
    pub fn shared(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
