//! The hosts of a test: network namespaces that virtual cables connect. Tests unplug these cables
//! or slow them down. Creating the hosts needs root.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hotlap_testbed::{HELLO, TestServer};
use rustix::ioctl::{Opcode, Setter, ioctl};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{Hotlap, program};

/// Namespaces that are removed when this value is dropped. The server has the address 10.177.0.1
/// and is behind a bridge. The generators have the addresses 10.177.0.2 and so on. The test's own
/// network reaches none of these addresses.
#[derive(Debug)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Creates a host for the server and for each of this many generators. Prints a message and
    /// returns `None` if that is not possible here.
    #[expect(clippy::print_stderr, reason = "a test that is skipped must say so")]
    pub fn new(generators: usize) -> Option<Self> {
        Self::made(generators).inspect_err(|why| eprintln!("skipped: {why}")).ok()
    }

    fn made(generators: usize) -> Result<Self, String> {
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

    /// Replaces the cable of a host with a slow one.
    pub fn slow_cable(&self, host: usize, slow: Slow) {
        let (server, own, port) = (&self.0[0], &self.0[host], format!("port{host}"));
        let set = |arguments: String| ip(&arguments).expect("a cable");
        set(format!("-n {server} link delete {port}"));
        let name = port.clone();
        let there = self.on(0, move || interface(&name)).expect("an interface");
        let here = self.on(host, || interface("eth0")).expect("an interface");
        for (one, other) in [(&there, &here), (&here, &there)] {
            pass(one.try_clone().expect("a file"), other.try_clone().expect("a file"), slow);
        }
        set(format!("-n {server} link set {port} master br0 up"));
        set(format!("-n {own} address add 10.177.0.{}/24 dev eth0", host + 1));
        set(format!("-n {own} link set eth0 up"));
    }

    /// Runs a function on a host, in a new thread. A socket or a process belongs to the network of
    /// the thread that creates it.
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

    /// Starts a server on the first host. The server counts its requests.
    pub fn server(&self) -> TestServer {
        let listener = self.on(0, || TcpListener::bind("10.177.0.1:0").unwrap());
        TestServer::on(listener, |mut client| {
            while client.request().is_some() {
                client.send(HELLO);
            }
        })
    }

    /// Prepares an agent whose channel runs over a cable, as the channel of `ssh` does. Returns
    /// the command that opens the channel from another host. Also returns a receiver, which gets
    /// the agent's process once the agent has been started.
    pub fn over_cable(
        &self,
        host: usize,
        from: usize,
        agent: &Hotlap,
    ) -> (String, mpsc::Receiver<Child>) {
        let listener = self.on(host, || TcpListener::bind("0.0.0.0:0").unwrap());
        let port = listener.local_addr().unwrap().port();
        let namespace = File::open(format!("/run/netns/{}", self.0[host])).unwrap();
        let (started, child) = mpsc::channel();
        let mut agent = agent.command();
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

    /// Unplugs the cable of a host (`down`) or plugs it in again (`up`).
    pub fn cable(&self, host: usize, state: &str) {
        ip(&format!("-n {} link set port{host} {state}", self.0[0])).expect("a cable");
    }

    /// Returns the words that start a command on a host.
    pub fn at(&self, host: usize) -> String {
        format!("ip netns exec {}", self.0[host])
    }

    /// Returns the open TCP sockets of a host for IPv4, as the kernel lists them. A socket is open
    /// if it listens or is connected.
    pub fn sockets(&self, host: usize) -> Vec<String> {
        let table = self.on(host, || std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap());
        let state = |line: &str| line.split_whitespace().nth(3).map(str::to_owned);
        let is_open = |line: &&str| matches!(state(line).as_deref(), Some("01" | "0A"));
        table.lines().filter(is_open).map(str::to_owned).collect()
    }

    /// Returns the command of an agent on a host. The channel of this agent does not run over a
    /// cable.
    pub fn agent(&self, host: usize) -> String {
        format!("{} {}", self.at(host), program())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.0 {
            // The cables of a namespace are removed with it.
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

/// How a slow cable treats packets. This process passes packets between two TAP interfaces,
/// because many kernels cannot delay packets themselves (`netem`).
#[derive(Debug, Clone, Copy)]
pub struct Slow {
    /// The time that a packet takes in each direction.
    pub delay: Duration,
    /// One packet in this many is lost. No packet is lost if the number is 0.
    pub lost_of: u64,
}

/// Creates an interface in the network of the calling thread. The returned file reads and writes
/// the packets of the interface.
#[expect(unsafe_code)]
fn interface(name: &str) -> io::Result<File> {
    /// The request TUNSETIFF. The flags are IFF_TAP and IFF_NO_PI (linux/if_tun.h).
    const SET: Opcode = 0x4004_54ca;
    const FLAGS: u16 = 0x0002 | 0x1000;
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    // A struct ifreq has a name of 16 bytes, the flags, and room for other requests.
    let mut request = [0_u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&FLAGS.to_ne_bytes());
    // SAFETY: the kernel expects a pointer to a struct ifreq, which has 40 bytes.
    unsafe { ioctl(&file, Setter::<SET, _>::new(request)) }?;
    Ok(file)
}

/// Passes packets on in one direction until the interfaces are removed with their networks.
fn pass(mut from: File, mut to: File, slow: Slow) {
    let (packets, due) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        for (at, packet) in due {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            // Packets are lost while an interface is down.
            let _ = to.write_all(&packet);
        }
    });
    std::thread::spawn(move || {
        let mut packet = vec![0; 1 << 16];
        // The constants are from Knuth's MMIX generator.
        let mut random = 1_u64;
        while let Ok(length @ 1..) = from.read(&mut packet) {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let is_lost = slow.lost_of > 0 && (random >> 33).is_multiple_of(slow.lost_of);
            let due = (Instant::now() + slow.delay, packet[..length].to_vec());
            if !is_lost && packets.send(due).is_err() {
                return;
            }
        }
    });
}
