//! A faulty server, for tests that start a server as a program. `faulty-server hello|json-api
//! FAULT` listens on `PORT` at `HOST`.

use std::net::TcpListener;
use std::process::ExitCode;

use hotlap_testbed::{Flaw, Site, TestServer};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (site, fault) = match words[..] {
        ["supervisor"] => return hotlap_servers::process::supervisor::main(),
        ["hello", "none"] => (Site::Hello, Flaw::None),
        ["hello", "logs-requests"] => (Site::Hello, Flaw::LogsRequests),
        ["hello", "logs-every-other-request"] => (Site::Hello, Flaw::LogsEveryOtherRequest),
        ["hello", "wrong-body"] => (Site::Hello, Flaw::WrongBody),
        ["json-api", "none"] => (Site::JsonApi, Flaw::None),
        _ => return ExitCode::from(64),
    };
    let port = std::env::var("PORT").unwrap_or_default().parse().unwrap_or(0);
    let host = std::env::var("HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let listener = TcpListener::bind((host.as_str(), port)).unwrap();
    let _server = TestServer::faulty_on(listener, site, fault);
    loop {
        std::thread::park();
    }
}
