//! Tests that instruments show what a server does for each request, and leave nothing behind.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use hotlap_observe::{Events, Instrument, Observation, Observer, Profile};
use hotlap_servers::process::{Process, Standby};
use hotlap_testbed::unused_address;

use crate::stand_in::{program, setting, supervisor, until};
use tempfile::TempDir;

const REQUESTS: u64 = 2_000;

/// A frozen server with one planted difference.
struct Planted {
    _folder: TempDir,
    process: Process,
    observer: Observer,
    address: SocketAddr,
    client: TcpStream,
}

impl Planted {
    fn start(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (path, address) = (program().display().to_string(), unused_address());
        let port = address.port().to_string();
        let setting = setting(folder.path(), &[&path, "planted", &port, name]);
        let standby = Standby::new(&setting, &supervisor()).unwrap();
        let observer = Observer::open(&standby.roots());
        let mut process = standby.go().unwrap();
        let mut client = None;
        until("it listens", || {
            client = TcpStream::connect(address).ok();
            client.is_some()
        });
        let client = client.unwrap();
        client.set_nodelay(true).unwrap();
        process.freeze().unwrap();
        let mut planted = Self { _folder: folder, process, observer, address, client };
        planted.ask(10);
        planted
    }

    /// Sends requests, one after another, and freezes the server after the last.
    fn ask(&mut self, requests: u64) {
        self.process.thaw().unwrap();
        let mut response = [0; 4096];
        for _ in 0..requests {
            self.client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut length = 0;
            while !response[..length].ends_with(b"Hello, World!") {
                let count = self.client.read(&mut response[length..]).unwrap();
                assert!(count > 0, "it closed the connection");
                length += count;
            }
        }
        self.process.freeze().unwrap();
    }

    /// Returns what an instrument sees during `REQUESTS` requests in two slices. If this machine
    /// does not permit the instrument, checks the message and returns `None`.
    fn observe(&mut self, instrument: Instrument) -> Option<Observation> {
        let (usable, missing) = self.observer.instruments();
        if !usable.contains(&instrument) {
            let error = self.observer.enable(instrument).unwrap_err();
            let told = error.to_string();
            assert!(told.contains(" cannot be observed: ") && told.contains("; "), "{told}");
            assert!(missing.contains(&error), "{told}");
            let line = format!("skipped: nothing was observed: {told}\n");
            std::io::stderr().write_all(line.as_bytes()).unwrap();
            return None;
        }
        for _ in 0..2 {
            self.observer.enable(instrument).unwrap();
            self.ask(REQUESTS / 2);
            self.observer.disable();
            // These requests do not count.
            self.ask(50);
        }
        self.process.thaw().unwrap();
        let seen = self.observer.take(instrument).unwrap();
        self.process.freeze().unwrap();
        Some(seen)
    }

    fn profile(&mut self) -> Option<Profile> {
        match self.observe(Instrument::Profile)? {
            Observation::Profile(profile) => Some(profile),
            other => panic!("{other:?}"),
        }
    }

    fn calls(&mut self) -> Option<BTreeMap<String, u64>> {
        match self.observe(Instrument::SystemCalls)? {
            Observation::SystemCalls(calls) => Some(calls),
            other => panic!("{other:?}"),
        }
    }

    fn events(&mut self) -> Events {
        match self.observe(Instrument::Events).expect("procfs") {
            Observation::Events(events) => events,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the number of samples by innermost function, the largest number first.
fn by_function(profile: &Profile) -> Vec<(u64, String)> {
    let mut by_function: BTreeMap<&str, u64> = BTreeMap::new();
    for stack in &profile.stacks {
        let frame = stack.frames.last().map(|&at| &profile.frames[at as usize]);
        *by_function.entry(frame.map_or("none", |f| &f.function)).or_insert(0) += stack.samples;
    }
    let mut list: Vec<_> = by_function.into_iter().map(|(f, n)| (n, f.to_owned())).collect();
    list.sort_unstable_by(|a, b| b.cmp(a));
    list
}

#[test]
fn the_function_that_takes_most_of_the_time_has_most_of_the_samples() {
    let mut planted = Planted::start("arithmetic");
    let Some(profile) = planted.profile() else { return };
    // Ignore the kernel, which may take longer to wake the server up on a busy machine.
    let is_own = |name: &str| {
        let mut frames = profile.frames.iter().filter(|frame| frame.function == name);
        frames.any(|frame| frame.library != "kernel")
    };
    let mut functions = by_function(&profile);
    functions.retain(|(_, name)| is_own(name));
    assert_eq!(functions[0].1, "hotlap_testbed::planted::planted_arithmetic", "{functions:?}");
    let (planted, all) = (functions[0].0, profile.samples());
    // The planted function takes 20 µs for each request.
    let least = REQUESTS * 20_000 / profile.period_ns / 2;
    assert!(planted >= least, "{planted} of {all} samples, at least {least}: {functions:?}");
    assert_eq!(profile.lost, 0);
    assert!(profile.stacks.iter().all(|stack| stack.process == "stand-in"), "{profile:?}");
}

#[test]
fn every_system_call_is_counted_by_name() {
    let mut planted = Planted::start("getpid");
    let Some(calls) = planted.calls() else { return };
    assert_eq!(calls.get("getpid"), Some(&REQUESTS), "{calls:?}");
    assert_eq!(calls.get("[lost]"), None);
}

#[test]
fn page_faults_are_counted() {
    let events = Planted::start("faults").events();
    let faults = events.minor_faults.unwrap();
    assert!((REQUESTS * 50..REQUESTS * 60).contains(&faults), "{events:?}");
    assert_eq!(events.threads, Some(1), "{events:?}");
}

#[test]
fn segments_are_counted_each_way() {
    let mut planted = Planted::start("write");
    let mut events = Events::default();
    // The segments are unknown while other tests open many connections.
    until("segments are known", || {
        events = planted.events();
        events.segments_sent.is_some() && events.segments_received.is_some()
    });
    let (sent, received) = (events.segments_sent.unwrap(), events.segments_received.unwrap());
    assert!((REQUESTS * 2..REQUESTS * 3).contains(&sent), "{events:?}");
    assert!((REQUESTS..REQUESTS * 2).contains(&received), "{events:?}");
}

#[test]
fn a_hand_over_shows_as_context_switches_of_two_threads() {
    let events = Planted::start("handover").events();
    assert!(events.voluntary_switches.unwrap() > REQUESTS / 2, "{events:?}");
    assert_eq!(events.threads, Some(2), "{events:?}");
}

#[test]
fn a_server_goes_on_after_its_observer_is_dropped_in_a_slice() {
    let instruments = [Instrument::Profile, Instrument::SystemCalls, Instrument::Events];
    for instrument in instruments {
        let mut planted = Planted::start("nothing");
        if planted.observer.enable(instrument).is_err() {
            continue;
        }
        planted.ask(10);
        let Planted { _folder, mut process, observer, address, client } = planted;
        drop(observer);
        process.thaw().unwrap();
        let standby = Standby::new(&setting(_folder.path(), &["true"]), &supervisor()).unwrap();
        let observer = Observer::open(&standby.roots());
        let mut planted = Planted { _folder, process, observer, address, client };
        planted.ask(10);
        let pid = planted.process.pid();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
    }
}

/// The processes of a server that hotlap did not start are observed as well.
#[test]
fn a_server_that_runs_already_is_observed() {
    use hotlap_load::plan::Endpoint;
    use hotlap_observe::owner;
    let mut planted = Planted::start("getpid");
    let owner = owner(&Endpoint::Tcp(planted.address), &[]);
    planted.observer = Observer::open(&owner.roots(None).expect("its owner is known"));
    let Some(calls) = planted.calls() else { return };
    assert_eq!(calls.get("getpid"), Some(&REQUESTS), "{calls:?}");
}
