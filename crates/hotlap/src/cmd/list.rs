//! `hotlap list`

use crate::cli::ListArgs;
use crate::console::Console;
use crate::exit::Exit;

/// Does it.
///
/// # Errors
/// Not there yet.
pub fn run(_args: &ListArgs, _console: &Console) -> anyhow::Result<Exit> {
    anyhow::bail!("hotlap list is not built yet")
}
