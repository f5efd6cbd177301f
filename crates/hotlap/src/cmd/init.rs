//! `hotlap init`

use crate::cli::InitArgs;
use crate::console::Console;
use crate::exit::Exit;

/// Does it.
///
/// # Errors
/// Not there yet.
pub fn run(_args: &InitArgs, _console: &Console) -> anyhow::Result<Exit> {
    anyhow::bail!("hotlap init is not built yet")
}
