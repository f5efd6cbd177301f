//! Lets the controller find out which of the agent's addresses it reaches: a socket on all of them
//! sends a secret to whoever connects, and reads nothing. It is open for the search alone.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the thread checks whether the door is closed.
const LOOK: Duration = Duration::from_millis(10);

/// How long a connection may take to accept the secret.
const WRITE: Duration = Duration::from_secs(1);

/// An open door. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Door {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    pub(crate) fn open(secret: String) -> io::Result<Self> {
        // On Linux a socket on all IPv6 addresses is also one on all IPv4 addresses.
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        listener.set_nonblocking(true)?;
        let (port, stop) = (listener.local_addr()?.port(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || tell(&listener, &secret, &stopped));
        Ok(Self { port, stop, thread: Some(thread) })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn tell(listener: &TcpListener, secret: &str, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((mut visitor, _)) => {
                let _ = visitor.set_nonblocking(false);
                let _ = visitor.set_write_timeout(Some(WRITE));
                let _ = visitor.write_all(secret.as_bytes());
            }
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}
