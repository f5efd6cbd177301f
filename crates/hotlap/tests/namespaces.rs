//! `hotlap load --generator-on` with hosts of its own for server and generators: network namespaces
//! that are joined by virtual cables. Needs root; skipped otherwise, with a message.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::process::Command;

use hotlap_testbed::{HELLO, TestServer};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

const HOTLAP: &str = env!("CARGO_BIN_EXE_hotlap");

/// Namespaces that are removed when this is dropped: a server with address 10.177.0.1 behind a
/// bridge, and generators with 10.177.0.2 and so on. This test's own network reaches none of them.
struct Hosts(Vec<String>);

impl Hosts {
    /// With this many generators; `Err` with the reason if that is not possible here.
    fn new(generators: usize) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("making network namespaces needs root".to_owned());
        }
        let name = |host: usize| format!("hotlap-{}-{host}", std::process::id());
        let mut hosts = Self(Vec::new());
        for host in 0..=generators {
            ip(&format!("netns add {}", name(host)))?;
            hosts.0.push(name(host));
            ip(&format!("-n {} link set lo up", name(host)))?;
        }
        let server = name(0);
        ip(&format!("-n {server} link add br0 type bridge"))?;
        ip(&format!("-n {server} address add 10.177.0.1/24 dev br0"))?;
        ip(&format!("-n {server} link set br0 up"))?;
        for host in 1..=generators {
            let own = name(host);
            ip(&format!("-n {own} link add eth0 type veth peer name port{host} netns {server}"))?;
            ip(&format!("-n {server} link set port{host} master br0 up"))?;
            ip(&format!("-n {own} address add 10.177.0.{}/24 dev eth0", host + 1))?;
            ip(&format!("-n {own} link set eth0 up"))?;
        }
        Ok(hosts)
    }

    /// A socket that listens on the server's host.
    fn listen(&self) -> TcpListener {
        let namespace = File::open(format!("/run/netns/{}", self.0[0])).unwrap();
        // The thread that makes a socket decides on its network.
        let thread = std::thread::spawn(move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), kind).unwrap();
            TcpListener::bind("10.177.0.1:0").unwrap()
        });
        thread.join().unwrap()
    }

    fn generators(&self) -> impl Iterator<Item = String> {
        self.0[1..].iter().map(|name| format!("ip netns exec {name} {HOTLAP}"))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.0 {
            // With a namespace go its cables.
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|why| format!("ip: {why}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[test]
fn generators_on_other_hosts_count_what_the_server_counts() {
    let hosts = match Hosts::new(2) {
        Ok(hosts) => hosts,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let server = TestServer::on(hosts.listen(), |mut client| {
        while client.request().is_some() {
            client.send(HELLO);
        }
    });
    let run = |arguments: &[&str]| {
        let mut load = Command::new(HOTLAP);
        load.arg("load").env("HOTLAP_CONFIG", "/dev/null");
        hosts.generators().for_each(|typed| {
            load.args(["--generator-on", &typed]);
        });
        let output = load.args(arguments).arg(server.url()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), stderr)
    };
    let (code, stdout, stderr) = run(&["--no-check", "-n10000", "-c8", "--format", "json"]);
    assert_eq!(code, Some(0), "{stderr}");
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["figures"]["answers"], 10_000);
    assert_eq!(server.requests(), 10_000);
    // The server is probed by a generator: this process cannot reach it.
    let (code, stdout, stderr) = run(&["-n100", "-c2"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("100 correct responses, 0 errors"), "{stdout}");
}
