//! Tests that the process that responds is measured, whoever started it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use hotlap_bench::lap::LapKind;
use hotlap_bench::local::LocalRunner;
use hotlap_bench::participant::Role;
use hotlap_bench::runner::Runner;
use hotlap_load::plan::Endpoint;
use hotlap_observe::{Owner, owner};
use hotlap_servers::running::{LocalServer, RunningServer, Up};
use hotlap_testbed::unused_address;
use rustix::process::{Pid, Signal, kill_process};

use crate::setting::{as_nobody, load, participant, permit, running, setting, start};
use crate::stand_in::{LIMIT, program, until};

/// The CPU time that the stand-in's server uses per response, in nanoseconds.
const COST: u64 = 200_000;

/// A child process that ends with the test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends this many requests over one connection. Each response reports the server's CPU time.
/// Returns the first and the last of these times, in nanoseconds.
fn ask(address: SocketAddr, times: u32) -> std::io::Result<(u64, u64)> {
    let mut stream = TcpStream::connect(address)?;
    let mut told = Vec::new();
    for _ in 0..times {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")?;
        let mut buffer = Vec::new();
        while !buffer.ends_with(b"Hello, World!") {
            let mut byte = [0; 256];
            let length = stream.read(&mut byte)?;
            if length == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            buffer.extend_from_slice(&byte[..length]);
        }
        let head = String::from_utf8_lossy(&buffer).into_owned();
        let line = head.lines().find_map(|line| line.strip_prefix("X-CPU-Ns: "));
        told.push(line.and_then(|ns| ns.parse().ok()).expect("a number"));
    }
    Ok((told[0], told[told.len() - 1]))
}

/// Compares the measured CPU time with the time that the server itself reports. A time reported
/// before a sample is at most the sampled time, and a time reported after the sample is at least
/// the sampled time. Other load on the machine therefore makes no difference.
fn assert_is_the_servers(started: &mut Up<LocalServer>) {
    let Endpoint::Tcp(address) = started.target.endpoint else { panic!("TCP only") };
    let mut sample = || started.server.sample(&|| 0).cpu_ns.expect("it is measured");
    let (_, before) = ask(address, 1).unwrap();
    let sampled = sample();
    let (first, last) = ask(address, 300).unwrap();
    let measured = sample() - sampled;
    let (after, _) = ask(address, 1).unwrap();
    assert!(last - first >= 299 * COST, "the server uses {COST} ns per request");
    assert!(measured >= last - first, "{measured} of {} ns", last - first);
    // A launcher that ended in the meantime is counted in ticks of 10 ms of two kinds: user and
    // system.
    let most = after - before + 20_000_000;
    assert!(measured <= most, "{measured} instead of at most {most} ns");
}

#[test]
fn a_server_started_directly_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let mut started = start(folder.path(), "exec $STAND_IN serve $PORT", LIMIT).unwrap();
    assert_eq!(started.notes, [""; 0]);
    assert_is_the_servers(&mut started);
}

/// `docker run` and `systemd-run` start servers this way. Regression: the client's CPU time was
/// measured, which is nearly 0.
#[test]
fn a_server_that_a_daemon_starts_is_measured_in_place_of_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = Command::new(program());
    let daemon = Guard(daemon.arg("daemon").arg(folder.path()).spawn().unwrap());
    let script = "echo $PORT > $FOLDER/request; exec sleep 1000";
    let mut started = start(folder.path(), script, LIMIT).unwrap();
    let Owner::Others(tops) = owner(&started.target.endpoint, &[]) else { panic!("no process") };
    // The daemon does not listen itself.
    assert_eq!((tops.len(), tops[0].parent), (1, daemon.0.id()));
    assert!(started.notes.iter().any(|note| note.contains("which hotlap did not start")));
    assert_is_the_servers(&mut started);
    // Nobody knows which process may replace the server, so its CPU time becomes unknown.
    kill_process(pid(tops[0].pid), Signal::KILL).unwrap();
    until("it is gone", || started.server.sample(&|| 0).cpu_ns.is_none());
}

#[test]
fn a_server_whose_launcher_exits_is_still_in_the_tree() {
    let folder = tempfile::tempdir().unwrap();
    let script = "(setsid $STAND_IN serve $PORT &); exit 0";
    let mut started = start(folder.path(), script, LIMIT).unwrap();
    assert_eq!(started.notes, [""; 0]);
    assert_is_the_servers(&mut started);
}

/// Regression: the CPU time of a server at a URL was never known.
#[test]
fn a_url_on_this_machine_has_a_cost() {
    let port = unused_address().port();
    let mut server = Command::new(program());
    let _server = Guard(server.args(["serve", &port.to_string(), "with-parent"]).spawn().unwrap());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    until("it answers", || ask(address, 1).is_ok());
    let mut runner = url(address);
    let ready = runner.bring_up(0).expect("a running server");
    assert!(ready.notes.iter().any(|note| note.contains("stand-in, which hotlap did not start")));
    let warmup = runner.warm(0, 0, &mut |_| ()).expect("a running server");
    assert_eq!(warmup.count, None, "nothing is counted without counters");
    assert_eq!(ready.ready_ms, None, "it ran already");
    // Requests and CPU time are read one after the other, and on a busy machine the server may run
    // in between. A later lap is right in that case.
    until("the cost is at least what the server uses", || {
        let (_, before) = ask(address, 1).unwrap();
        let lap = runner.whole_lap(0, 0, LapKind::Flat).expect("a running server");
        let (after, _) = ask(address, 1).unwrap();
        let cpu_ns = lap.usage.and_then(|usage| usage.cpu_ns).expect("it is measured");
        assert!(cpu_ns <= after - before, "{cpu_ns} instead of at most {} ns", after - before);
        lap.cost_ns().is_some_and(|cost| cost >= COST as f64)
    });
}

fn url(address: SocketAddr) -> LocalRunner {
    let participant = participant("it", Role::Reference, running(address));
    let setting = setting(Duration::from_millis(500), Path::new(""));
    LocalRunner::new(setting, &[participant], &[load()], Arc::default())
}

/// If a process may not be inspected, the note names the user to run as.
#[test]
fn a_server_of_another_user_has_an_unknown_cost() {
    let Some(mut nobody) = as_nobody(&program()) else { return };
    let port = unused_address().port();
    let mut server = Command::new(program());
    let _server = Guard(server.args(["serve", &port.to_string(), "with-parent"]).spawn().unwrap());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    until("it answers", || ask(address, 1).is_ok());
    let output = nobody.arg("owner").arg(address.to_string()).output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().trim(),
        "CPU time is unknown: the socket belongs to a process of user root (0), which hotlap may \
         not inspect. Run hotlap as root or as that user to measure CPU time"
    );
}

/// Regression: a server with a process of another user was reported as frozen while it kept
/// running.
#[test]
fn a_stop_that_is_refused_is_an_error_and_leaves_nothing_stopped() {
    let Some(mut nobody) = as_nobody(&program()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    permit(path, 0o777);
    std::fs::copy("/usr/bin/setpriv", path.join("become")).unwrap();
    permit(&path.join("become"), 0o4755);
    let script = "
        sleep 1000 & echo $! > $FOLDER/own
        $FOLDER/become --reuid=0 --regid=0 --clear-groups sh -c '
            echo $$ > $FOLDER/roots; touch $FOLDER/ready; exec sleep 1001' &
        wait";
    let mut hotlap = Guard(nobody.arg("freeze").arg(path).arg(script).spawn().unwrap());
    until("a stop was tried", || path.join("result").exists());
    let number = |name: &str| -> u32 {
        std::fs::read_to_string(path.join(name)).unwrap().trim().parse().unwrap()
    };
    let (own, roots) = (number("own"), number("roots"));
    let states = [state(own), state(roots)];
    std::fs::write(path.join("seen"), "").unwrap();
    // Only root may kill this process, and the supervisor waits until it has exited.
    kill_process(pid(roots), Signal::KILL).unwrap();
    hotlap.0.wait().unwrap();
    let result = std::fs::read_to_string(path.join("result")).unwrap();
    let expected = [
        format!("({roots}): Operation not permitted (os error 1). Run hotlap"),
        "frozen: false".to_owned(),
    ];
    assert!(expected.iter().all(|line| result.contains(line)), "{result}");
    assert!(!states.contains(&'T'), "{states:?}");
}

fn state(pid: u32) -> char {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    line[line.rfind(')').unwrap() + 2..].chars().next().unwrap()
}

fn pid(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}
