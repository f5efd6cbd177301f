//! The environment of a test. A [`Scene`] is a folder for one test, in which hotlap runs as a
//! command ([`Hotlap`], [`Running`], [`Said`]). A test can also have hosts made of network
//! namespaces ([`hosts`]) and a real browser ([`Browser`]).
//!
//! ```no_run
//! # use hotlap_testkit::Scene;
//! let scene = Scene::new();
//! scene.hotlap("load -n 20 http://127.0.0.1:9/").said().fails(3).has("127.0.0.1:9");
//! ```

mod browser;
pub mod hosts;
mod scene;

use std::fs;
use std::time::{Duration, Instant};

pub use browser::Browser;
pub use scene::{Hotlap, Running, Said, Scene, pty};

/// The time limit of a wait. The limit is long, because a hang is an error and a busy machine is
/// not.
pub const LIMIT: Duration = Duration::from_secs(180);

/// Waits until a condition is true.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Joins the lines of a text, so that it does not matter where a terminal wraps them.
pub fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the path of the program `hotlap`, which Cargo builds before the tests of the package
/// `hotlap`.
pub fn program() -> String {
    let test = std::env::current_exe().expect("a test");
    let program = test.ancestors().nth(2).expect("a target folder").join("hotlap");
    assert!(program.exists(), "{} is not built: cargo build -p hotlap", program.display());
    program.display().to_string()
}

/// Returns the command of the server that hotlap contains.
pub fn ceiling() -> String {
    format!("{} __ceiling", program())
}

/// Returns the command that starts an agent on this machine. The last word is the path of hotlap,
/// as in a command that begins with `ssh host`.
pub fn agent() -> String {
    format!("env {}", program())
}

/// Returns the ids and commands of processes that have this text in their environment or command.
/// The text must be unique to the test.
pub fn processes(text: &str) -> Vec<(i32, String)> {
    let has = |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    let of = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let command_text = String::from_utf8_lossy(&command).replace('\0', " ");
        (has(&command) || has(&environment)).then_some((pid, command_text))
    };
    fs::read_dir("/proc").expect("processes").flatten().filter_map(of).collect()
}
