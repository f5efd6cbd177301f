//! What the user looks at: standard output for results, standard error for all else.
//!
//! Knows whether there is a terminal, how wide it is, and whether colours are wanted, so that
//! nobody else has to ask. A closed pipe (`hotlap list | head -1`) is an end, not an error.

use std::io::{self, IsTerminal, Write};

use crate::cli::When;
use crate::exit::{Exit, ServerError, UsageError};

/// Columns where there is no terminal: enough for the widest table, so that a file loses nothing.
const WIDE: usize = 120;

/// Where hotlap speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Console {
    /// Whether to colour what goes to standard output.
    pub color: bool,
    /// Whether to colour what goes to standard error.
    pub color_err: bool,
    /// Whether to leave out what was not asked for.
    pub quiet: bool,
    /// Whether standard error is a terminal on which a live line can be drawn.
    pub live: bool,
    /// Columns of standard output.
    pub width: usize,
}

impl Console {
    /// Looks at the terminal and the environment once.
    #[must_use]
    pub fn new(color: When, quiet: bool) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let wanted = |terminal: bool| match color {
            When::Always => true,
            When::Never => false,
            When::Auto => terminal && !set("NO_COLOR") && !dumb,
        };
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        Self {
            color: wanted(out),
            color_err: wanted(err),
            quiet,
            live: err && !dumb && !quiet,
            width: width(),
        }
    }

    /// A console for tests: no terminal, no colour, so many columns.
    #[must_use]
    pub fn plain(width: usize) -> Self {
        Self { color: false, color_err: false, quiet: false, live: false, width }
    }

    /// Prints to standard output.
    ///
    /// # Errors
    /// When it cannot be written, for instance to a closed pipe.
    pub fn print(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// A warning or a hint, on standard error; nothing when quiet. Nobody reading it is no error.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    }

    /// A warning about what was measured, on standard error, also when quiet.
    pub fn warn(&self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// Reports an error that ends hotlap, and says with which code.
    #[must_use]
    pub fn last_words(&self, error: &anyhow::Error) -> Exit {
        let broken = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
        if error.chain().filter_map(|e| e.downcast_ref()).any(broken) {
            return Exit::Ok;
        }
        let red = if self.color_err { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
        let _ = writeln!(io::stderr().lock(), "{}error{}: {error:#}", red.0, red.1);
        match error {
            e if e.chain().any(|e| e.is::<UsageError>()) => Exit::Usage,
            e if e.chain().any(|e| e.is::<ServerError>()) => Exit::ServerFailed,
            _ => Exit::Error,
        }
    }
}

/// `COLUMNS`, or the terminal's width, or enough.
fn width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    told.or_else(terminal_width).unwrap_or(WIDE).clamp(40, 400)
}

#[cfg(unix)]
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(not(unix))]
fn terminal_width() -> Option<usize> {
    None
}
