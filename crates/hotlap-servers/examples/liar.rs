//! The lying server of the tests as a program: `liar hello|clock|json LIE` listens on `PORT`.

use std::process::ExitCode;

#[allow(dead_code, reason = "each user tells lies of its own")]
#[path = "../tests/liar/mod.rs"]
mod liar;

use liar::{Liar, Lie, Site};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (site, lie) = match words[..] {
        ["supervisor"] => return hotlap_servers::process::supervisor::main(),
        ["hello", "nothing"] => (Site::Hello, Lie::Nothing),
        ["hello", "logs"] => (Site::Hello, Lie::Logs),
        ["hello", "logs-half"] => (Site::Hello, Lie::LogsHalf),
        ["hello", "wrong-body"] => (Site::Hello, Lie::WrongBody),
        ["json", "nothing"] => (Site::Json, Lie::Nothing),
        _ => return ExitCode::from(64),
    };
    let port = std::env::var("PORT").unwrap_or_default().parse().unwrap_or(0);
    let _liar = Liar::start_on(port, site, lie);
    loop {
        std::thread::park();
    }
}
