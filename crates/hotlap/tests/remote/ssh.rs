//! Tests agents over a real `ssh`, with an `sshd` on this machine. Without `sshd` or its client,
//! the tests are skipped.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hotlap_testbed::{HELLO, TestServer};
use hotlap_testkit::{Said, Scene, ceiling, program};
use rustix::process::{Pid, Signal, kill_process};

use crate::{have_costs, laps, short_run};

/// An `sshd` with its own keys, which the client knows as the host `bench2`. The daemon ends when
/// this value is dropped.
struct Sshd {
    scene: Scene,
    daemon: Child,
}

impl Sshd {
    /// Starts an `sshd`. Returns `None`, with a message, if that is not possible.
    fn start() -> Option<Self> {
        let installed = |program: &str| Path::new(program).exists();
        if !installed("/usr/sbin/sshd") || !installed("/usr/bin/ssh-keygen") {
            eprintln!("skipped: there is no sshd");
            return None;
        }
        let scene = Scene::new();
        for key in ["host", "user"] {
            let mut make = Command::new("ssh-keygen");
            make.args(["-q", "-t", "ed25519", "-N", "", "-f", &scene.file(key)]);
            assert!(make.status().unwrap().success());
        }
        if rustix::process::geteuid().is_root() {
            // Debian's `sshd` runs its unprivileged half in this folder.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let (host, user, pid) = (scene.file("host"), scene.file("user"), scene.file("pid"));
        let config = format!(
            "HostKey {host}\nAuthorizedKeysFile {user}.pub\nPidFile {pid}\nStrictModes no\n\
             UsePAM no\nPermitRootLogin yes\nListenAddress 127.0.0.1\n"
        );
        let (daemon, port) = listening(&scene.write("sshd_config", config));
        let name = Command::new("id").arg("-un").output().unwrap().stdout;
        let name = String::from_utf8(name).unwrap();
        let public = scene.read("host.pub");
        let known = scene.write("known", format!("[127.0.0.1]:{port} {public}"));
        let config = format!(
            "Host bench2\nHostName 127.0.0.1\nPort {port}\nUser {name}IdentityFile {user}\n\
             IdentitiesOnly yes\nUserKnownHostsFile {known}\n"
        );
        scene.write("ssh_config", config);
        Some(Self { scene, daemon })
    }

    /// Returns the command that reaches the host.
    fn bench2(&self) -> String {
        format!("ssh -F {} bench2", self.scene.file("ssh_config"))
    }

    /// Returns the command that starts an agent on the host, without the word `agent`. The agent
    /// has the environment of a login and the variables of this test.
    fn agent(&self) -> String {
        let (folder, cache) = (self.scene.folder().display(), self.scene.file("cache"));
        let own = format!("HOTLAP_TEST_SCENE={folder} HOTLAP_CACHE={cache}");
        format!("{} env {own} {}", self.bench2(), program())
    }

    /// Makes a short run of one server on the host.
    fn run(&self, server_on: &str, server: &str) -> Said {
        short_run(&self.scene).args(["--server-on", server_on, server]).said()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Starts an `sshd` with this configuration. Returns the daemon and its port once the daemon
/// listens.
fn listening(config: &str) -> (Child, u16) {
    loop {
        // The port is free unless another process takes it at this moment.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut sshd = Command::new("/usr/sbin/sshd");
        sshd.args(["-D", "-f", config, "-p", &free.port().to_string()]);
        let mut daemon =
            sshd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while daemon.try_wait().unwrap().is_none() {
            if TcpStream::connect(free).is_ok() {
                return (daemon, free.port());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The shell of the other host must not interpret any character of the argument.
#[test]
fn arguments_arrive_over_ssh_as_they_were_typed() {
    const ARGUMENT: &str = "a  b\t'c' \"d\" $HOME `id` \\ * ; & | > x\nsecond line\n é 💥 --flag";
    let Some(sshd) = Sshd::start() else { return };
    let quoted = ARGUMENT.replace('\'', r"'\''");
    let script = format!("printf %s \"$1\" >{}; exec {}", sshd.scene.file("arrived"), ceiling());
    sshd.run(&sshd.agent(), &format!("sh -c '{script}' sh '{quoted}'")).measured();
    assert_eq!(sshd.scene.read("arrived"), ARGUMENT);
    have_costs(&sshd.scene.json("run.json"));
    sshd.scene.is_clean();
}

#[test]
fn generators_over_ssh_send_what_the_server_counts() {
    let Some(sshd) = Sshd::start() else { return };
    let (server, agent) = (TestServer::responding(HELLO), sshd.agent());
    let load = sshd.scene.hotlap("load --no-check -n1000 -c4").arg(server.url());
    load.args(["--generator-on", &agent, "--generator-on", &agent]).said().measured();
    assert_eq!(server.requests(), 1_000);
    sshd.scene.is_clean();
}

/// The channel ends together with `sshd`, as if the host or the network between the two hosts went
/// down.
#[test]
fn a_connection_that_ends_in_a_lap_keeps_the_finished_ones_and_leaves_nothing() {
    let Some(sshd) = Sshd::start() else { return };
    let words = "run --restarts 1 --rounds 2000 -c4 -d600s --no-ceiling --export-json run.json";
    let run = sshd.scene.hotlap(words).args(["--server-on", &sshd.agent(), &ceiling()]);
    let mut running = run.start();
    running.until("no lap", || laps(&sshd.scene) >= 2);
    for session in sessions(sshd.daemon.id()) {
        kill_process(session, Signal::KILL).unwrap();
    }
    running.end().fails(3);
    let export = sshd.scene.json("run.json");
    assert!(export["laps"].as_array().unwrap().len() >= 2);
    let cause = export["failed"][0]["cause"].as_str().unwrap();
    assert!(cause.starts_with(&sshd.agent()) && cause.contains("the agent ended"), "{cause}");
    sshd.scene.is_clean();
}

/// Returns the processes of `sshd` that descend from the daemon and serve its connections.
fn sessions(daemon: u32) -> Vec<Pid> {
    let parent = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse::<i32>().ok()
    };
    let is_sshd = |pid: i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with("sshd"))
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let comes = |mut pid: i32| {
        while let Some(own) = parent(pid).filter(|own| *own > 1) {
            if own as u32 == daemon {
                return true;
            }
            pid = own;
        }
        false
    };
    pids.filter(|pid| is_sshd(*pid) && comes(*pid)).filter_map(Pid::from_raw).collect()
}

#[test]
fn a_host_that_is_not_known_and_a_missing_program_are_told_apart() {
    let Some(sshd) = Sshd::start() else { return };
    sshd.run(&format!("{} /no/such/hotlap", sshd.bench2()), &ceiling())
        .has("/no/such/hotlap")
        .has("Is hotlap installed there? Check it with 'ssh ");
    fs::remove_file(sshd.scene.path("known")).unwrap();
    sshd.run(&sshd.agent(), &ceiling())
        .has("Host key verification failed")
        .has("Check the connection: run 'ssh ");
}
