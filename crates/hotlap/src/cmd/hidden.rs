//! The hidden commands with which hotlap starts itself: the supervisor of a server, the ceiling,
//! and a test server. So one binary is enough for all of them.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::Context;
use hotlap_testbed::{CalibratedServer, Lookup, Planted, Unruly, serve_ceiling};

use crate::console::Console;
use crate::exit::Exit;

/// The supervisor of one server. It reads its commands from stdin.
pub fn supervisor() -> anyhow::Result<Exit> {
    match hotlap_servers::process::supervisor::main() {
        code if code == ExitCode::SUCCESS => Ok(Exit::Ok),
        _ => Ok(Exit::Error),
    }
}

/// The ceiling, on port `PORT` at `HOST`, with `CPUS` threads.
pub fn ceiling() -> anyhow::Result<Exit> {
    serve_ceiling(address()?, number("CPUS").unwrap_or(1))?;
    Ok(Exit::Ok)
}

/// The test server with the name in the first argument, on port `PORT` at `HOST`. With
/// `--alone REQUESTS NAME`, there is no server. Then it prints the nanoseconds that the server's
/// work takes per request, timed in stretches of so many requests.
pub fn known(argv: &[OsString], console: &Console) -> anyhow::Result<Exit> {
    let text = |at: usize| argv.get(at).map(|a| a.to_string_lossy()).unwrap_or_default();
    if text(0) == "--alone" {
        let requests = text(1).parse().context("--alone needs a number of requests")?;
        let server: CalibratedServer = text(2).parse()?;
        console.print(&format!("{}\n", server.alone_ns(requests)))?;
        return Ok(Exit::Ok);
    }
    let server: CalibratedServer = text(0).parse()?;
    server.serve(address()?, number("CPUS").unwrap_or(1))?;
    Ok(Exit::Ok)
}

/// The server with the planted difference in the first argument, on port `PORT` at `HOST`.
pub fn planted(argv: &[OsString]) -> anyhow::Result<Exit> {
    let name = argv.first().map(|a| a.to_string_lossy()).unwrap_or_default();
    let server: Planted = name.parse()?;
    server.serve(address()?, number("CPUS").unwrap_or(1))?;
    Ok(Exit::Ok)
}

/// The server that executes a statement for each response, described by the first argument, on port
/// `PORT` at `HOST`.
pub fn lookup(argv: &[OsString]) -> anyhow::Result<Exit> {
    let text = argv.first().map(|a| a.to_string_lossy()).unwrap_or_default();
    let server: Lookup = text.parse()?;
    server.serve(address()?, number("CPUS").unwrap_or(1))?;
    Ok(Exit::Ok)
}

/// The unruly server whose seed is the first argument, on port `PORT` at `HOST`. The server passes
/// a second argument when it starts itself again.
pub fn unruly(argv: &[OsString]) -> anyhow::Result<Exit> {
    let seed = argv.first().and_then(|seed| seed.to_string_lossy().parse().ok());
    let server = Unruly::new(seed.context("a seed is a number")?);
    server.run(address()?, argv.len() > 1)?;
    Ok(Exit::Ok)
}

/// The address to listen on: `PORT` at `HOST`, by default on loopback.
fn address() -> anyhow::Result<SocketAddr> {
    let host = match std::env::var_os("HOST") {
        Some(_) => number("HOST")?,
        None => IpAddr::from(Ipv4Addr::LOCALHOST),
    };
    Ok(SocketAddr::new(host, number("PORT")?))
}

fn number<T: std::str::FromStr>(name: &str) -> anyhow::Result<T> {
    let text = std::env::var(name).with_context(|| format!("{name} is not set"))?;
    text.parse().ok().with_context(|| format!("{name}={text} is not valid"))
}
