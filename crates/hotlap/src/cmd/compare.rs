//! `hotlap compare`

use crate::cli::CompareArgs;
use crate::console::Console;
use crate::exit::Exit;

/// Does it.
///
/// # Errors
/// Not there yet.
pub fn run(_args: &CompareArgs, _console: &Console) -> anyhow::Result<Exit> {
    anyhow::bail!("hotlap compare is not built yet")
}
