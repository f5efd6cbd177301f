//! `hotlap prove`

use crate::cli::ProveArgs;
use crate::console::Console;
use crate::exit::Exit;

/// Does it.
///
/// # Errors
/// Not there yet.
pub fn run(_args: &ProveArgs, _console: &Console) -> anyhow::Result<Exit> {
    anyhow::bail!("hotlap prove is not built yet")
}
