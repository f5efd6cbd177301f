//! Servers that behave or misbehave in one named way.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::faulty::{Fault, Site, serve};
use crate::test_server::TestServer;

impl TestServer {
    /// Sends the same response to every request.
    pub fn responding(response: impl Into<Vec<u8>>) -> Self {
        let response = response.into();
        Self::start(move |mut client| client.respond(&response))
    }

    /// Sends one response on each connection, then closes it.
    pub fn closing(response: impl Into<Vec<u8>>) -> Self {
        let response = response.into();
        Self::start(move |mut client| {
            client.request();
            client.send(&response);
        })
    }

    /// Reads requests and never responds.
    pub fn silent() -> Self {
        Self::start(|mut client| client.drain())
    }

    /// Responds to `after` requests. On the next one it hangs on all connections, once, for
    /// `length`.
    pub fn hanging(after: usize, length: Duration, response: &'static [u8]) -> Self {
        let count = AtomicUsize::new(0);
        let until = Mutex::new(None);
        Self::start(move |mut client| {
            while client.request().is_some() {
                if count.fetch_add(1, Ordering::SeqCst) >= after {
                    let end = *until.lock().expect("sound").get_or_insert(Instant::now() + length);
                    sleep(end.saturating_duration_since(Instant::now()));
                }
                client.send(response);
            }
        })
    }

    /// Has a single worker, which takes `time` per request.
    pub fn one_at_a_time(time: Duration, response: &'static [u8]) -> Self {
        let worker = Mutex::new(());
        Self::start(move |mut client| {
            while client.request().is_some() {
                let _one_at_a_time = worker.lock().expect("sound");
                sleep(time);
                client.send(response);
            }
        })
    }

    /// Serves a contract with a [`Fault`].
    pub fn faulty(site: Site, fault: Fault) -> Self {
        Self::start(serve(site, fault))
    }

    /// The same on a listening socket.
    pub fn faulty_on(listener: impl Into<Socket>, site: Site, fault: Fault) -> Self {
        Self::on(listener, serve(site, fault))
    }
}
