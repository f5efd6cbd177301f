//! The hidden commands with which hotlap starts itself: the supervisor of a server, the ceiling,
//! and a test server. So one binary is enough for all of them.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use hotlap_testbed::{Calibrated, Planted, serve_ceiling};

use crate::exit::Exit;

/// The supervisor of one server; it reads its commands from stdin.
///
/// # Errors
/// Never; the exit code says how it ended.
pub fn supervisor() -> anyhow::Result<Exit> {
    match hotlap_servers::process::supervisor::main() {
        code if code == ExitCode::SUCCESS => Ok(Exit::Ok),
        _ => Ok(Exit::Error),
    }
}

/// The ceiling, on port `PORT`, with `CPUS` threads.
///
/// # Errors
/// If `PORT` is not set or the port is not available.
pub fn ceiling() -> anyhow::Result<Exit> {
    serve_ceiling(number("PORT")?, number("CPUS").unwrap_or(1))?;
    Ok(Exit::Ok)
}

/// The test server with the name in the first argument, on port `PORT`.
///
/// # Errors
/// If there is no such server, `PORT` is not set, or the port is not available.
pub fn known(argv: &[OsString]) -> anyhow::Result<Exit> {
    let name = argv.first().map(|a| a.to_string_lossy()).unwrap_or_default();
    let server: Calibrated = name.parse()?;
    server.serve(number("PORT")?, number("CPUS").unwrap_or(1))?;
    Ok(Exit::Ok)
}

/// The server with the planted difference in the first argument, on port `PORT`.
///
/// # Errors
/// If there is no such difference, `PORT` is not set, or the port is not available.
pub fn planted(argv: &[OsString]) -> anyhow::Result<Exit> {
    let name = argv.first().map(|a| a.to_string_lossy()).unwrap_or_default();
    let server: Planted = name.parse()?;
    server.serve(number("PORT")?, number("CPUS").unwrap_or(1))?;
    Ok(Exit::Ok)
}

fn number<T: std::str::FromStr>(name: &str) -> anyhow::Result<T> {
    let text = std::env::var(name).with_context(|| format!("{name} is not set"))?;
    text.parse().ok().with_context(|| format!("{name}={text} is not a valid number"))
}
