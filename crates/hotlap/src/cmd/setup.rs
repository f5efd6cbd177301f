//! `hotlap setup`

use crate::cli::SetupArgs;
use crate::console::Console;
use crate::exit::Exit;

/// Does it.
///
/// # Errors
/// Not there yet.
pub fn run(_args: &SetupArgs, _console: &Console) -> anyhow::Result<Exit> {
    anyhow::bail!("hotlap setup is not built yet")
}
