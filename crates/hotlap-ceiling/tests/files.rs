//! The ceiling where the system refuses it more open files.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hotlap_ceiling::{Hello, serve};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// In the environment of the child: the port on which it is the server.
const PORT: &str = "CEILING_PORT";

/// Open files of the child, those of the test harness included.
const FILES: u64 = 24;

const CLIENTS: usize = 40;

/// Not a test of its own: what the child runs.
#[test]
fn child() {
    let Ok(port) = std::env::var(PORT) else { return };
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum }).expect("a lower limit");
    serve(port.parse().expect("a port"), 1, |_| Hello).expect("a server");
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a response comes within the limit.
fn is_answered(mut client: &TcpStream, limit: Duration) -> bool {
    client.set_read_timeout(Some(limit)).expect("a socket option");
    client.read(&mut [0; 4096]).is_ok_and(|count| count > 0)
}

/// Clients in the queue when files ran out waited there until another one came.
#[test]
fn clients_that_wait_for_a_file_are_served_when_one_is_free() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    drop(taken);
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "child", "--test-threads=1"]).env(PORT, port.to_string());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a child");
    let _child = Ended(child);
    let connect = || {
        for _ in 0..1_000 {
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
    // They are accepted in order; the first have the files that there are.
    assert!(is_answered(&clients[0], Duration::from_secs(30)), "the first client has a file");
    let at_once = |client: &&TcpStream| is_answered(client, Duration::from_millis(300));
    let served = 1 + clients[1..].iter().take_while(at_once).count();
    assert!(served < FILES as usize, "{served} clients served at once");
    let (first, rest) = clients.split_at(served);
    first.iter().for_each(|client| client.shutdown(std::net::Shutdown::Both).expect("a close"));
    for client in rest {
        assert!(is_answered(client, Duration::from_secs(30)), "a client waits for ever");
        client.shutdown(std::net::Shutdown::Both).expect("a close");
    }
}
