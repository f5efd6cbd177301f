//! `hotlap history`

use crate::cli::HistoryArgs;
use crate::console::Console;
use crate::exit::Exit;

/// Does it.
///
/// # Errors
/// Not there yet.
pub fn run(_args: &HistoryArgs, _console: &Console) -> anyhow::Result<Exit> {
    anyhow::bail!("hotlap history is not built yet")
}
