//! `hotlap check`

use crate::cli::CheckArgs;
use crate::console::Console;
use crate::exit::Exit;

/// Does it.
///
/// # Errors
/// Not there yet.
pub fn run(_args: &CheckArgs, _console: &Console) -> anyhow::Result<Exit> {
    anyhow::bail!("hotlap check is not built yet")
}
