//! Tests the ceiling when file descriptors run out.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hotlap_testbed::{serve_ceiling, unused_address};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The child's environment variable for the port on which it serves.
const PORT: &str = "CEILING_PORT";

/// The child's limit of file descriptors, including the descriptors of the test harness.
const FILES: u64 = 24;

const CLIENTS: usize = 40;

/// Runs in the child process and is not a test itself.
#[test]
fn child() {
    let Ok(port) = std::env::var(PORT) else { return };
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum }).expect("a lower limit");
    let port: u16 = port.parse().expect("a port");
    serve_ceiling((Ipv4Addr::LOCALHOST, port).into(), 1).expect("a server");
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether a response arrives within the limit.
fn is_answered(mut client: &TcpStream, limit: Duration) -> bool {
    client.set_read_timeout(Some(limit)).expect("a socket option");
    client.read(&mut [0; 4096]).is_ok_and(|count| count > 0)
}

/// Regression: clients that were in the queue when file descriptors ran out waited there until
/// another client came.
#[test]
fn clients_that_wait_for_a_file_descriptor_are_served_when_one_is_free() {
    let port = unused_address().port();
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "child", "--test-threads=1"]).env(PORT, port.to_string());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a child");
    let _child = Ended(child);
    let connect = || {
        for _ in 0..10_000 {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(client) => return client,
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        panic!("no server on port {port}");
    };
    let clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect()).collect();
    for mut client in &clients {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
    }
    // Clients are accepted in order, so the first ones get the file descriptors.
    assert!(is_answered(&clients[0], Duration::from_secs(30)), "the first client has no response");
    let at_once = |client: &&TcpStream| is_answered(client, Duration::from_millis(300));
    let served = 1 + clients[1..].iter().take_while(at_once).count();
    assert!(served < FILES as usize, "{served} clients served at once");
    let (first, rest) = clients.split_at(served);
    first.iter().for_each(|client| client.shutdown(std::net::Shutdown::Both).expect("a close"));
    for client in rest {
        assert!(is_answered(client, Duration::from_secs(30)), "a client has no response");
        client.shutdown(std::net::Shutdown::Both).expect("a close");
    }
}
