//! A server that follows its contract and HTTP's rules, or breaks exactly one of them.

mod fault;
mod request;
mod response;

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::test_server::Client;
pub use fault::{Fault, Site};
use request::{Parsed, Request, parse};
use response::Responder;

/// A client that sends nothing for this long is disconnected.
const IDLE: Duration = Duration::from_secs(10);

/// The handler of each connection for [`crate::TestServer::start`].
pub(crate) fn serve(site: Site, fault: Fault) -> impl Fn(Client) + Send + Sync + 'static {
    let server = Server {
        responder: Responder::new(site, fault),
        is_dead: AtomicBool::new(false),
        turn: Mutex::new(()),
    };
    move |client| server.serve(client)
}

struct Server {
    responder: Responder,
    /// Whether a client's bytes have crashed it.
    is_dead: AtomicBool,
    /// Held by the connection being served, if only one is served at a time.
    turn: Mutex<()>,
}

impl Server {
    fn serve(&self, mut client: Client) {
        // A server that may crash must have crashed before it serves the next connection.
        let is_sequential = matches!(
            self.responder.fault,
            Fault::OneConnectionAtATime
                | Fault::DiesOnGarbage
                | Fault::DiesOnReset
                | Fault::DiesOnHalfARequest
        );
        let _turn = is_sequential.then(|| self.turn.lock().expect("sound"));
        if self.is_dead.load(Ordering::Relaxed) {
            return;
        }
        client.stream.set_read_timeout(Some(IDLE)).expect("a socket option");
        if self.responder.fault == Fault::RespondsBeforeRequest {
            client.send(&self.responder.respond(&Request::plain()).bytes);
        }
        let mut connection =
            Connection { server: self, client, input: Vec::new(), continued: false };
        while connection.read() && connection.respond() {}
    }
}

struct Connection<'a> {
    server: &'a Server,
    client: Client,
    /// Bytes that are not a complete request yet.
    input: Vec<u8>,
    /// Whether `100 (Continue)` was sent for `input`.
    continued: bool,
}

impl Connection<'_> {
    /// Reads available bytes; false if the connection has ended.
    fn read(&mut self) -> bool {
        let fault = self.server.responder.fault;
        let mut buffer = [0; 1 << 17];
        let (length, dies) = match self.client.stream.read(&mut buffer) {
            Ok(0) => (0, fault == Fault::DiesOnHalfARequest && self.input.starts_with(b"POST")),
            Ok(length) => {
                let bytes = &buffer[..length];
                self.input.extend_from_slice(bytes);
                (length, fault == Fault::DiesOnGarbage && bytes.contains(&0xff))
            }
            Err(error) => {
                (0, fault == Fault::DiesOnReset && error.kind() == ErrorKind::ConnectionReset)
            }
        };
        if dies {
            self.server.is_dead.store(true, Ordering::Relaxed);
        }
        length > 0 && !dies
    }

    /// Responds to the requests read; false if the connection has ended.
    fn respond(&mut self) -> bool {
        let responder = &self.server.responder;
        match responder.fault {
            Fault::Silent => return true,
            Fault::RespondsToEachRead => {
                self.input.clear();
                self.client.send(&responder.respond(&Request::plain()).bytes);
                return true;
            }
            _ => {}
        }
        let (mut interim, mut responses, mut closes) = (Vec::new(), Vec::new(), false);
        while !closes && !self.input.is_empty() {
            match parse(&self.input, responder.fault) {
                Parsed::Complete(request, length) => {
                    self.input.drain(..length);
                    self.continued = false;
                    let response = responder.respond(&request);
                    responses.push(response.bytes);
                    closes = response.closes;
                }
                Parsed::Incomplete { expects_continue } => {
                    let continues = expects_continue && responder.fault != Fault::NoContinue;
                    if continues && !self.continued {
                        self.continued = true;
                        interim.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    break;
                }
            }
        }
        match responder.fault {
            Fault::SwapsPipelined => responses.reverse(),
            Fault::DropsPipelined => responses.truncate(1),
            Fault::RespondsTwice => {
                responses = responses.iter().flat_map(|one| [one.clone(), one.clone()]).collect();
            }
            _ => {}
        }
        if !self.client.send(&[interim, responses.concat()].concat()) {
            return false;
        }
        if closes {
            let _ = self.client.stream.shutdown(Shutdown::Write);
        }
        !closes
    }
}
