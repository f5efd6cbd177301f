//! Hosts of a test's own: network namespaces that are joined by virtual cables. Needs root.
#![allow(dead_code)]

mod slow;

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use hotlap_testbed::{HELLO, TestServer};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub use slow::Slow;

const HOTLAP: &str = env!("CARGO_BIN_EXE_hotlap");

/// Namespaces that are removed when this is dropped: a server with address 10.177.0.1 behind a
/// bridge, and generators with 10.177.0.2 and so on. This test's own network reaches none of them.
pub struct Hosts(Vec<String>);

impl Hosts {
    /// With this many generators; `Err` with the reason if that is not possible here.
    pub fn new(generators: usize) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("making network namespaces needs root".to_owned());
        }
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let own = format!("hotlap-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let name = |host: usize| format!("{own}-{host}");
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

    /// Replaces the cable of a host by a slow one.
    pub fn slow_cable(&self, host: usize, slow: Slow) -> Result<(), String> {
        let (server, own, port) = (&self.0[0], &self.0[host], format!("port{host}"));
        ip(&format!("-n {server} link delete {port}"))?;
        let name = port.clone();
        let there = self.on(0, move || slow::interface(&name)).map_err(|e| e.to_string())?;
        let here = self.on(host, || slow::interface("eth0")).map_err(|e| e.to_string())?;
        slow::join(&there, &here, slow).map_err(|e| e.to_string())?;
        ip(&format!("-n {server} link set {port} master br0 up"))?;
        ip(&format!("-n {own} address add 10.177.0.{}/24 dev eth0", host + 1))?;
        ip(&format!("-n {own} link set eth0 up"))
    }

    /// Does something on a host, in a thread of its own: the thread that makes a socket or starts a
    /// process decides on its network.
    pub fn on<T: Send + 'static>(
        &self,
        host: usize,
        does: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.0[host])).unwrap();
        let thread = std::thread::spawn(move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), kind).unwrap();
            does()
        });
        thread.join().unwrap()
    }

    /// A server on the first host that counts for itself.
    pub fn server(&self) -> TestServer {
        let listener = self.on(0, || TcpListener::bind("10.177.0.1:0").unwrap());
        TestServer::on(listener, |mut client| {
            while client.request().is_some() {
                client.send(HELLO);
            }
        })
    }

    /// An agent whose channel goes over a cable, as that of `ssh` does: the command that opens the
    /// channel from another host, and the agent's process once it has been started.
    pub fn over_cable(
        &self,
        host: usize,
        from: usize,
        mut agent: Command,
    ) -> (String, mpsc::Receiver<Child>) {
        let listener = self.on(host, || TcpListener::bind("0.0.0.0:0").unwrap());
        let port = listener.local_addr().unwrap().port();
        let namespace = File::open(format!("/run/netns/{}", self.0[host])).unwrap();
        let (started, child) = mpsc::channel();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), kind).unwrap();
            let input = OwnedFd::from(stream.try_clone().unwrap());
            agent.stdin(input).stdout(OwnedFd::from(stream));
            let _ = started.send(agent.stderr(Stdio::null()).spawn().unwrap());
        });
        let script = format!(
            "exec 3<>/dev/tcp/10.177.0.{}/{port}; cat <&3 & cat >&3; kill $! 2>&-",
            host + 1
        );
        (format!("ip netns exec {} bash -c '{script}' bash", self.0[from]), child)
    }

    /// Unplugs the cable of a host (`down`) or plugs it in (`up`).
    pub fn cable(&self, host: usize, state: &str) -> Result<(), String> {
        ip(&format!("-n {} link set port{host} {state}", self.0[0]))
    }

    /// A command that is started on a host.
    pub fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[host], program]);
        command
    }

    /// Sockets of a host that are open: those that listen or are connected, as the kernel lists
    /// them.
    pub fn sockets(&self, host: usize) -> Vec<String> {
        let table = self.on(host, || std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap());
        let state = |line: &str| line.split_whitespace().nth(3).map(str::to_owned);
        let is_open = |line: &&str| matches!(state(line).as_deref(), Some("01" | "0A"));
        table.lines().filter(is_open).map(str::to_owned).collect()
    }

    /// The command of an agent on a host, whose channel does not go over a cable.
    pub fn agent(&self, host: usize) -> String {
        format!("ip netns exec {} {HOTLAP}", self.0[host])
    }

    pub fn generators(&self) -> impl Iterator<Item = String> {
        (1..self.0.len()).map(|host| self.agent(host))
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
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {arguments}: {}", said.trim())),
    }
}

/// Hosts, or `None` with a message if there can be none.
pub fn hosts(generators: usize) -> Option<Hosts> {
    Hosts::new(generators).inspect_err(|why| eprintln!("skipped: {why}")).ok()
}
