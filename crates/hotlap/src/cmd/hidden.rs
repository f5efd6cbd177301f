//! What hotlap starts itself as: the supervisor of a server, the ceiling, a server of known
//! behaviour. One binary is enough for all of them.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use hotlap_ceiling::{Hello, Known, serve};

use crate::exit::Exit;

/// The supervisor of one server; its orders come over stdin.
///
/// # Errors
/// None: how it ends is its exit code.
pub fn supervisor() -> anyhow::Result<Exit> {
    match hotlap_servers::process::supervisor::main() {
        code if code == ExitCode::SUCCESS => Ok(Exit::Ok),
        _ => Ok(Exit::Error),
    }
}

/// The ceiling, on `PORT`, with as many threads as `CPUS`.
///
/// # Errors
/// When `PORT` is missing or cannot be had.
pub fn ceiling() -> anyhow::Result<Exit> {
    serve(number("PORT")?, number("CPUS").unwrap_or(1), |_| Hello)?;
    Ok(Exit::Ok)
}

/// The known server that the first argument names, on `PORT`.
///
/// # Errors
/// When it is not known, or `PORT` is missing or cannot be had.
pub fn known(argv: &[OsString]) -> anyhow::Result<Exit> {
    let name = argv.first().map(|a| a.to_string_lossy()).unwrap_or_default();
    let known: Known = name.parse()?;
    serve(number("PORT")?, number("CPUS").unwrap_or(1), |_| {
        hotlap_ceiling::known::AtWork::new(known)
    })?;
    Ok(Exit::Ok)
}

fn number<T: std::str::FromStr>(name: &str) -> anyhow::Result<T> {
    let text = std::env::var(name).with_context(|| format!("{name} is not set"))?;
    text.parse().ok().with_context(|| format!("{name}={text} is no number that fits"))
}
