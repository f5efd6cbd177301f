//! What the tests of processes need as programs: a warden, a hotlap to be killed, servers that use
//! what is known.

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotlap_harness::process::{Process, Setting, Warden, warden};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["warden"] => return warden::main(),
        ["hold", folder, command] => {
            // Where a shell started the tests in the background, this signal is ignored.
            let always = Arc::new(AtomicBool::new(true));
            flag::register_conditional_default(SIGINT, always).unwrap();
            let _server = hold(Path::new(folder), command);
            std::thread::sleep(Duration::from_secs(600));
        }
        ["panic", folder, command] => {
            let _server = hold(Path::new(folder), command);
            panic!("as ordered");
        }
        ["listen"] => listen(),
        ["burn", ms, children] => burn(ms.parse().unwrap(), children.parse().unwrap()),
        _ => return ExitCode::from(64),
    }
    ExitCode::SUCCESS
}

/// A hotlap in short: starts a server and tells its warden's process id.
fn hold(folder: &Path, command: &str) -> Process {
    let setting = Setting {
        argv: ["sh", "-c", command].map(str::to_owned).into(),
        env: [("FOLDER".to_owned(), folder.display().to_string())].into(),
        cwd: folder.to_owned(),
        cpus: vec![],
        log: folder.join("log"),
    };
    let warden = Warden::this_program("warden").unwrap();
    let server = Process::start(&setting, &warden).unwrap();
    let wait = std::time::Instant::now();
    while !folder.join("ready").exists() && wait.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(folder.join("warden.new"), server.warden_pid().to_string()).unwrap();
    std::fs::rename(folder.join("warden.new"), folder.join("warden")).unwrap();
    server
}

/// Listens where nobody told it to, and tells where.
fn listen() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    tell(listener.local_addr().unwrap());
    std::thread::sleep(Duration::from_secs(600));
}

/// Uses CPU time in a thread that ends, has children use as much each, one after another, waits for
/// them, tells its own CPU time, and sleeps until it is stopped.
fn burn(ms: i64, children: u32) {
    std::thread::spawn(move || while used_ns() < ms * 1_000_000 {}).join().unwrap();
    for _ in 0..children {
        let program = std::env::current_exe().unwrap();
        Command::new(program)
            .args(["burn", &ms.to_string(), "0"])
            .env("ONCE", "1")
            .status()
            .unwrap();
    }
    if std::env::var_os("ONCE").is_none() {
        tell(used_ns());
        std::thread::sleep(Duration::from_secs(600));
    }
}

fn tell(what: impl std::fmt::Display) {
    std::io::stdout().write_all(format!("{what}\n").as_bytes()).unwrap();
}

fn used_ns() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
