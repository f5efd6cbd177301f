//! `hotlap run`

use crate::cli::RunArgs;
use crate::console::Console;
use crate::exit::Exit;

/// Does it.
///
/// # Errors
/// Not there yet.
pub fn run(_args: RunArgs, _console: &Console) -> anyhow::Result<Exit> {
    anyhow::bail!("hotlap run is not built yet")
}
