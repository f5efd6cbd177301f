//! `hotlap report`

use crate::cli::ReportArgs;
use crate::console::Console;
use crate::exit::Exit;

/// Does it.
///
/// # Errors
/// Not there yet.
pub fn run(_args: &ReportArgs, _console: &Console) -> anyhow::Result<Exit> {
    anyhow::bail!("hotlap report is not built yet")
}
