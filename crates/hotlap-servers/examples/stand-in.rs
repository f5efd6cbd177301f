//! The program that tests of processes start. Its arguments make it a supervisor, a hotlap that
//! will be killed, or a server whose usage is known.

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hotlap_load::plan::Endpoint;
use hotlap_observe::owner;
use hotlap_servers::machine::Priority;
use hotlap_servers::process::{Process, ProcessSetting, Supervisor, own_program, supervisor};
use hotlap_testbed::{Planted, TestServer};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["supervisor"] => return supervisor::main(),
        ["hold", folder, command] => {
            // If a shell started the tests in the background, this signal is ignored.
            let always = Arc::new(AtomicBool::new(true));
            flag::register_conditional_default(SIGINT, always).unwrap();
            let _server = hold(Path::new(folder), &["sh", "-c", command]);
            std::thread::sleep(Duration::from_secs(600));
        }
        ["panic", folder, command] => {
            let _server = hold(Path::new(folder), &["sh", "-c", command]);
            panic!("on request");
        }
        ["replaced", folder] => {
            let file = std::env::current_exe().unwrap();
            std::fs::remove_file(&file).unwrap();
            std::fs::write(file, "another program").unwrap();
            let own = own_program().unwrap();
            let _server = hold(Path::new(folder), &[own.to_str().unwrap(), "ready", folder]);
        }
        ["ready", folder] => std::fs::write(Path::new(folder).join("ready"), "").unwrap(),
        ["listen"] => listen(),
        ["serve", port] => serve(port, Server::default()),
        ["serve", port, "with-parent"] => {
            end_with_parent();
            serve(port, Server::default());
        }
        ["count", port, file] => {
            let file = File::options().create(true).append(true).open(file).unwrap();
            serve(port, Server { count: Some(file), ..Server::default() });
        }
        ["planted", port, name] => {
            let planted: Planted = name.parse().unwrap();
            let port: u16 = port.parse().unwrap();
            planted.serve((Ipv4Addr::LOCALHOST, port).into(), 1).unwrap();
        }
        ["hang", port, file] => {
            serve(port, Server { hang: Some(file.into()), ..Server::default() });
        }
        ["late", port, ms] => {
            let until = Instant::now() + Duration::from_millis(ms.parse().unwrap());
            serve(port, Server { until: Some(until), ..Server::default() });
        }
        ["two", first, status, second, then] => two((first, status), (second, then)),
        ["raise"] => match Priority::raise() {
            Ok(_priority) => {
                tell(std::process::id());
                std::thread::sleep(Duration::from_secs(600));
            }
            Err(error) => tell(error),
        },
        ["daemon", folder] => {
            end_with_parent();
            daemon(Path::new(folder));
        }
        ["owner", address] => {
            let endpoint = Endpoint::Tcp(address.parse().unwrap());
            tell(owner(&endpoint, &[]).note().unwrap());
        }
        ["freeze", folder, command] => freeze(Path::new(folder), command),
        ["burn", ms, children] => {
            let folder = std::env::var_os("FOLDER").map(PathBuf::from);
            burn(ms.parse().unwrap(), children.parse().unwrap(), folder.as_deref());
        }
        _ => return ExitCode::from(64),
    }
    ExitCode::SUCCESS
}

/// Ends this process with its parent. A process without a supervisor must not outlive its test,
/// however the test ends. The kernel kills the process when the thread that started it ends.
fn end_with_parent() {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
}

/// A minimal hotlap: starts a server and writes its supervisor's process id to `FOLDER/supervisor`.
fn hold(folder: &Path, argv: &[&str]) -> Process {
    let setting = ProcessSetting {
        argv: argv.iter().map(ToString::to_string).collect(),
        env: [("FOLDER".to_owned(), folder.display().to_string())].into(),
        cwd: folder.to_owned(),
        cpus: vec![],
        log: folder.join("log"),
    };
    let supervisor = Supervisor::this_program("supervisor").unwrap();
    let server = Process::start(&setting, &supervisor).unwrap();
    let wait = Instant::now();
    while !folder.join("ready").exists() && wait.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(folder.join("supervisor.new"), server.supervisor_pid().to_string()).unwrap();
    std::fs::rename(folder.join("supervisor.new"), folder.join("supervisor")).unwrap();
    server
}

/// Listens on any free port and prints the address.
fn listen() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    tell(listener.local_addr().unwrap());
    std::thread::sleep(Duration::from_secs(600));
}

/// A server that speaks HTTP and uses 0.2 ms of CPU time per response. Each response has a header
/// with the CPU time that the process has used so far.
#[derive(Default)]
struct Server {
    /// The file that receives a byte for each response.
    count: Option<File>,
    /// While this file exists, requests get no response.
    hang: Option<PathBuf>,
    /// Until this time, requests get no response.
    until: Option<Instant>,
}

fn serve(port: &str, server: Server) {
    let _server = TestServer::on(listener(port), move |mut client| {
        while client.request().is_some() {
            let response = server.response();
            client.send(&response);
        }
    });
    loop {
        std::thread::park();
    }
}

fn listener(port: &str) -> TcpListener {
    let port: u16 = port.parse().unwrap();
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap()
}

/// Serves on two ports, each with a different status. The second port opens when the first response
/// on the first port is due, and before that response is sent.
fn two((first, status): (&str, &str), (second, then): (&str, &str)) {
    let [response, later] = [status, then].map(|status| {
        let head = format!("HTTP/1.1 {status} It\r\nContent-Type: text/plain\r\n");
        format!("{head}Content-Length: 13\r\n\r\nHello, World!")
    });
    let (second, server) = (second.to_owned(), OnceLock::new());
    let _first = TestServer::on(listener(first), move |mut client| {
        while client.request().is_some() {
            server.get_or_init(|| {
                let later = later.clone();
                TestServer::on(listener(&second), move |mut client| {
                    client.respond(later.as_bytes());
                })
            });
            client.send(response.as_bytes());
        }
    });
    loop {
        std::thread::park();
    }
}

impl Server {
    fn response(&self) -> Vec<u8> {
        while self.hang.as_deref().is_some_and(Path::exists) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(until) = self.until {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
        let thread_ns = || {
            let time = clock_gettime(ClockId::ThreadCPUTime);
            time.tv_sec * 1_000_000_000 + time.tv_nsec
        };
        let began = thread_ns();
        while thread_ns() < began + 200_000 {}
        if let Some(mut count) = self.count.as_ref() {
            count.write_all(b".").unwrap();
        }
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-CPU-Ns: {:020}\r\n\
             Content-Length: 13\r\n\r\n",
            used_ns()
        );
        [head.as_bytes(), b"Hello, World!"].concat()
    }
}

/// Waits for a port in `FOLDER/request` and starts a server on that port, as a child process.
fn daemon(folder: &Path) {
    let port = loop {
        match std::fs::read_to_string(folder.join("request")) {
            Ok(port) if port.ends_with('\n') => break port,
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let program = std::env::current_exe().unwrap();
    let mut server =
        Command::new(program).args(["serve", port.trim(), "with-parent"]).spawn().unwrap();
    server.wait().unwrap();
}

/// Freezes a server once it is ready and writes the result to `FOLDER/result`.
fn freeze(folder: &Path, command: &str) {
    let mut server = hold(folder, &["sh", "-c", command]);
    let result = match server.freeze() {
        Ok(()) => "frozen".to_owned(),
        Err(error) => error.to_string(),
    };
    let result = format!("{result}\nfrozen: {}\n", server.is_frozen());
    std::fs::write(folder.join("result.new"), result).unwrap();
    std::fs::rename(folder.join("result.new"), folder.join("result")).unwrap();
    let wait = Instant::now();
    while !folder.join("seen").exists() && wait.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Uses CPU time in a thread that ends. Then child processes use as much each, one after another.
/// Prints the CPU time of this process and of its children, and prints both again once
/// `FOLDER/again` exists. Then the process sleeps until it is stopped.
fn burn(ms: i64, children: u32, folder: Option<&Path>) {
    std::thread::spawn(move || while used_ns() < ms * 1_000_000 {}).join().unwrap();
    for _ in 0..children {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new(program);
        child.args(["burn", &ms.to_string(), "0"]).env_remove("FOLDER").status().unwrap();
    }
    let Some(folder) = folder else { return };
    tell(format!("{} {}", used_ns(), used_by_children_ns()));
    while !folder.join("again").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    tell(format!("{} {}", used_ns(), used_by_children_ns()));
    std::thread::sleep(Duration::from_secs(600));
}

fn tell(what: impl std::fmt::Display) {
    std::io::stdout().write_all(format!("{what}\n").as_bytes()).unwrap();
}

fn used_ns() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Returns the CPU time of ended children: user and system time, each rounded down to ticks of 10
/// ms. See proc(5), fields 16 and 17 of `stat`.
fn used_by_children_ns() -> u64 {
    let line = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = line[line.rfind(')').unwrap() + 2..].split(' ');
    let ticks: u64 = fields.skip(13).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    ticks * 10_000_000
}
