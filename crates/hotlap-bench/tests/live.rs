//! The real runner, on a server in the test's own process.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hotlap_bench::lap::Kind;
use hotlap_bench::local::LocalRunner;
use hotlap_bench::participant::{Origin, Participant, Role};
use hotlap_bench::runner::Runner;
use hotlap_load::plan::{Endpoint, Target};
use hotlap_servers::contract::{Contract, Name};
use hotlap_servers::verify::Requirements;

mod setting;
#[path = "../../hotlap-servers/tests/stand_in/mod.rs"]
mod stand_in;
use setting::{load, setting};

const HELLO: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";

/// A server that counts its answers and sets `stop` once `due` more of them are given.
struct Server {
    due: AtomicU64,
    stop: Arc<AtomicBool>,
}

impl Server {
    fn converse(&self, mut stream: TcpStream) {
        let mut rest = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            rest.extend_from_slice(&buffer[..length]);
            while let Some(end) = rest.windows(4).position(|w| w == b"\r\n\r\n") {
                rest.drain(..end + 4);
                if stream.write_all(HELLO).is_err() {
                    return;
                }
                if self.due.fetch_sub(1, Ordering::SeqCst) == 1 {
                    self.stop.store(true, Ordering::SeqCst);
                }
            }
        }
    }
}

fn serve(server: Arc<Server>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let server = server.clone();
            std::thread::spawn(move || server.converse(stream));
        }
    });
    address
}

fn runner(address: SocketAddr, slice: Duration, stop: Arc<AtomicBool>) -> LocalRunner {
    let target = Target { endpoint: Endpoint::Tcp(address), tls: None };
    let participant = Participant {
        name: "it".to_owned(),
        role: Role::Reference,
        start: Origin::Running {
            url: format!("http://{address}/"),
            target,
            host: "test".to_owned(),
        },
        contract: Contract::of(Name::Hello, None),
        requirements: Requirements::Custom,
        version: String::new(),
        counts: None,
        cpus: None,
    };
    let setting = setting(slice, Path::new(""));
    LocalRunner::new(setting, &[participant], &[load()], stop)
}

/// What was measured until then was stored as a lap, and counted.
#[test]
fn a_lap_that_is_cut_short_is_none() {
    let stop = Arc::new(AtomicBool::new(false));
    let server = Arc::new(Server { due: AtomicU64::new(u64::MAX), stop: stop.clone() });
    let hour = Duration::from_secs(3_600);
    let mut runner = runner(serve(server.clone()), hour, stop);
    runner.bring_up(0).expect("it answers");
    server.due.store(1_000, Ordering::SeqCst);
    let cut = runner.whole_lap(0, 0, Kind::Flat).expect_err("it was ended");
    assert_eq!((cut.phase.as_str(), cut.cause.as_str()), ("lap", "it was ended"));
}
