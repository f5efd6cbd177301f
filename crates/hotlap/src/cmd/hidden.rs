//! The hidden commands that start hotlap itself as a supervisor, a ceiling or a test server, so
//! that one binary is enough.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::Context;
use hotlap_testbed::{
    CalibratedServer, Cheat, Lookup, Planted, Unruly, serve_ceiling, serve_floor,
};

use crate::console::Console;
use crate::exit::Exit;

/// Runs a supervisor, which reads its orders from standard input.
pub fn supervisor() -> anyhow::Result<Exit> {
    match hotlap_servers::process::supervisor::main() {
        code if code == ExitCode::SUCCESS => Ok(Exit::Ok),
        _ => Ok(Exit::Error),
    }
}

/// Runs the ceiling, on port `PORT` at `HOST`, with `CPUS` threads.
pub fn ceiling() -> anyhow::Result<Exit> {
    serve_ceiling(address()?, number("CPUS").unwrap_or(1))?;
    Ok(Exit::Ok)
}

/// Runs the test server that the first argument names, on port `PORT` at `HOST`. With `--alone
/// REQUESTS NAME`, prints the nanoseconds per request that the server's work takes without a
/// server. The work is timed in stretches of `REQUESTS` requests.
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

/// Runs the server with the planted difference in the first argument, on port `PORT` at `HOST`.
pub fn planted(argv: &[OsString]) -> anyhow::Result<Exit> {
    let name = argv.first().map(|a| a.to_string_lossy()).unwrap_or_default();
    let server: Planted = name.parse()?;
    server.serve(address()?, number("CPUS").unwrap_or(1))?;
    Ok(Exit::Ok)
}

/// Runs the server that executes a database statement for each response, on port `PORT` at `HOST`.
/// The first argument describes the server.
pub fn lookup(argv: &[OsString]) -> anyhow::Result<Exit> {
    let text = argv.first().map(|a| a.to_string_lossy()).unwrap_or_default();
    let server: Lookup = text.parse()?;
    server.serve(address()?, number("CPUS").unwrap_or(1))?;
    Ok(Exit::Ok)
}

/// Runs the floor, on port `PORT` at `HOST`, with `CPUS` threads. An argument may name a cheat.
pub fn floor(argv: &[OsString]) -> anyhow::Result<Exit> {
    let cheat = argv.first().map_or(Ok(Cheat::None), |name| name.to_string_lossy().parse())?;
    serve_floor(address()?, number("CPUS").unwrap_or(1), cheat)?;
    Ok(Exit::Ok)
}

/// Runs the unruly server, on port `PORT` at `HOST`. The first argument is the seed. The server
/// passes itself a second argument when it restarts itself.
pub fn unruly(argv: &[OsString]) -> anyhow::Result<Exit> {
    let seed = argv.first().and_then(|seed| seed.to_string_lossy().parse().ok());
    let server = Unruly::new(seed.context("a seed is a number")?);
    server.run(address()?, argv.len() > 1)?;
    Ok(Exit::Ok)
}

/// The address to listen on: port `PORT` at `HOST`, which is loopback by default.
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
