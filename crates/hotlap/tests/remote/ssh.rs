//! Agents over a real `ssh`: an `sshd` on this machine, and its client. Skipped without them.
#![cfg(target_os = "linux")]

use crate::laps;
use crate::processes;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use hotlap_testbed::{HELLO, TestServer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A hang is an error; a busy machine is not.
const LIMIT: Duration = Duration::from_secs(120);

const HOTLAP: &str = env!("CARGO_BIN_EXE_hotlap");

/// An `sshd` with keys of its own, which knows a host called `bench2`. It ends with this.
struct Sshd {
    folder: tempfile::TempDir,
    daemon: Child,
}

impl Sshd {
    /// `None`, with a message, if there can be none.
    fn start() -> Option<Self> {
        let installed = |program: &str| Path::new(program).exists();
        if !installed("/usr/sbin/sshd") || !installed("/usr/bin/ssh-keygen") {
            eprintln!("skipped: there is no sshd");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| folder.path().join(name).display().to_string();
        for key in ["host", "user"] {
            let mut make = Command::new("ssh-keygen");
            make.args(["-q", "-t", "ed25519", "-N", "", "-f", &of(key)]);
            assert!(make.status().unwrap().success());
        }
        if rustix::process::geteuid().is_root() {
            // Where Debian's sshd has its unprivileged half.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let (host, user, pid) = (of("host"), of("user"), of("pid"));
        let config = format!(
            "HostKey {host}\nAuthorizedKeysFile {user}.pub\nPidFile {pid}\nStrictModes no\n\
             UsePAM no\nPermitRootLogin yes\nListenAddress 127.0.0.1\n"
        );
        fs::write(folder.path().join("sshd_config"), config).unwrap();
        let (daemon, port) = listening(&of("sshd_config"));
        let name = Command::new("id").arg("-un").output().unwrap().stdout;
        let name = String::from_utf8(name).unwrap();
        let known = of("known");
        let public = fs::read_to_string(of("host.pub")).unwrap();
        fs::write(&known, format!("[127.0.0.1]:{port} {public}")).unwrap();
        let config = format!(
            "Host bench2\nHostName 127.0.0.1\nPort {port}\nUser {name}IdentityFile {user}\n\
             IdentitiesOnly yes\nUserKnownHostsFile {known}\n"
        );
        fs::write(folder.path().join("ssh_config"), config).unwrap();
        Some(Self { folder, daemon })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command that reaches the host.
    fn bench2(&self) -> String {
        format!("ssh -F {} bench2", self.path("ssh_config").display())
    }

    /// The command that starts an agent there, without `agent`. It has the environment of a login,
    /// to which the cache of this test is added.
    fn agent(&self) -> String {
        format!("{} env HOTLAP_CACHE={} {HOTLAP}", self.bench2(), self.path("cache").display())
    }

    fn hotlap(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(HOTLAP);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("HOTLAP_CACHE", self.path("cache"))
            .env("XDG_DATA_HOME", self.path("data"))
            .env("HOTLAP_CONFIG", "/dev/null");
        command
    }

    /// A short run of one server there.
    fn run(&self, server_on: &str, server: &str) -> Output {
        let run = ["run", "--server-on", server_on, server, "--restarts", "1", "--rounds", "1"];
        let load = ["-c4", "-d1s", "--no-ceiling", "--export-json", "run.json"];
        self.hotlap(&[&run[..], &load[..]].concat()).output().unwrap()
    }

    fn export(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path("run.json")).unwrap()).unwrap()
    }

    /// Nothing that came of this test still runs, here or there.
    fn is_clean(&self) {
        let cache = format!("HOTLAP_CACHE={}", self.path("cache").display());
        until("left over", || processes::with(&cache).is_empty());
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// An `sshd` of this configuration that listens, and its port.
fn listening(config: &str) -> (Child, u16) {
    loop {
        // Free, unless somebody takes it at this moment.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
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

fn until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What hotlap printed, in one line.
fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The shell of the other host sees none of them.
#[test]
fn arguments_arrive_over_ssh_as_they_were_typed() {
    const ARGUMENT: &str = "a  b\t'c' \"d\" $HOME `id` \\ * ; & | > x\nsecond line\n é 💥 --flag";
    let Some(sshd) = Sshd::start() else { return };
    let arrived = sshd.path("arrived").display().to_string();
    let quoted = ARGUMENT.replace('\'', r"'\''");
    let script = format!("printf %s \"$1\" >{arrived}; exec {HOTLAP} __ceiling");
    let output = sshd.run(&sshd.agent(), &format!("sh -c '{script}' sh '{quoted}'"));
    assert!(laps::were_measured(output.status.code()), "{}", told(&output));
    assert_eq!(fs::read_to_string(arrived).unwrap(), ARGUMENT);
    laps::have_costs(&sshd.export());
    sshd.is_clean();
}

#[test]
fn generators_over_ssh_send_what_the_server_counts() {
    let Some(sshd) = Sshd::start() else { return };
    let server = TestServer::responding(HELLO);
    let (agent, url) = (sshd.agent(), server.url());
    let load = ["load", "--generator-on", &agent, "--generator-on", &agent, "--no-check", "-n1000"];
    let output = sshd.hotlap(&[&load[..], &["-c4", &url]].concat()).output().unwrap();
    assert!(laps::were_measured(output.status.code()), "{}", told(&output));
    assert_eq!(server.requests(), 1_000);
    sshd.is_clean();
}

/// As if the host or the network between the two went down: `sshd` ends, and with it the channel.
#[test]
fn a_connection_that_ends_in_a_lap_keeps_the_finished_ones_and_leaves_nothing() {
    let Some(sshd) = Sshd::start() else { return };
    let (agent, server) = (sshd.agent(), format!("{HOTLAP} __ceiling"));
    let run = ["run", "--server-on", &agent, &server, "--restarts", "1", "--rounds", "2000"];
    let load = ["-c4", "-d600s", "--no-ceiling", "--export-json", "run.json"];
    let mut command = sshd.hotlap(&[&run[..], &load[..]].concat());
    let log = fs::File::create(sshd.path("log")).unwrap();
    let hotlap = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let store = sshd.path("data/hotlap/hotlap.db");
    until("no lap", || {
        let db = rusqlite::Connection::open(&store).ok();
        let count = |db: rusqlite::Connection| {
            db.query_row("SELECT count(*) FROM lap", [], |row| row.get::<_, i64>(0)).ok()
        };
        db.and_then(count).is_some_and(|laps| laps >= 2)
    });
    for session in sessions(sshd.daemon.id()) {
        kill_process(session, Signal::KILL).unwrap();
    }
    let output = hotlap.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let export = sshd.export();
    assert!(export["laps"].as_array().unwrap().len() >= 2);
    let cause = export["failed"][0]["cause"].as_str().unwrap();
    assert!(cause.starts_with(&agent) && cause.contains("the agent ended"), "{cause}");
    sshd.is_clean();
}

/// All processes that come of a process: the halves of `sshd` that serve a connection, and what
/// they started.
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
    let mut pids: Vec<i32> =
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let comes = |mut pid: i32| {
        while let Some(own) = parent(pid).filter(|own| *own > 1) {
            if own as u32 == daemon {
                return true;
            }
            pid = own;
        }
        false
    };
    pids.retain(|pid| is_sshd(*pid) && comes(*pid));
    pids.into_iter().filter_map(Pid::from_raw).collect()
}

#[test]
fn a_host_that_is_not_known_and_a_missing_program_are_told_apart() {
    let Some(sshd) = Sshd::start() else { return };
    let server = format!("{HOTLAP} __ceiling");
    let missing = told(&sshd.run(&format!("{} /no/such/hotlap", sshd.bench2()), &server));
    assert!(missing.contains("/no/such/hotlap"), "{missing}");
    assert!(missing.contains("Is hotlap installed there? Check it with 'ssh "), "{missing}");
    fs::remove_file(sshd.path("known")).unwrap();
    let unknown = told(&sshd.run(&sshd.agent(), &server));
    assert!(unknown.contains("Host key verification failed"), "{unknown}");
    assert!(unknown.contains("Check the connection: run 'ssh "), "{unknown}");
}
