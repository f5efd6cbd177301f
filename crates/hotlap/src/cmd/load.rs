//! `hotlap load`

use crate::cli::LoadArgs;
use crate::console::Console;
use crate::exit::Exit;

/// Does it.
///
/// # Errors
/// Not there yet.
pub fn run(_args: LoadArgs, _console: &Console) -> anyhow::Result<Exit> {
    anyhow::bail!("hotlap load is not built yet")
}
