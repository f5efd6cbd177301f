//! The terminal: standard output for results, standard error for everything else.
//!
//! [`Console`] knows whether there is a terminal, how wide it is, and whether to use colours. A
//! closed pipe (`hotlap list | head -1`) ends hotlap without an error. Except in [`Console::data`],
//! secrets are redacted ([`crate::redact`]). Control characters are escaped, except for line ends
//! and hotlap's own colours ([`crate::text`]).

use std::fs::File;
use std::io::ErrorKind::BrokenPipe;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use crate::cli::When;
use crate::exit::{Exit, ServerError, UsageError};
use crate::redact;
use crate::text;

/// The width without a terminal, which is wide enough for most tables.
const WIDE: usize = 120;

/// How hotlap prints to standard output and standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Console {
    /// Whether to use colours on standard output.
    pub color: bool,
    /// Whether to use colours on standard error.
    pub color_err: bool,
    /// Whether to print only results and warnings about validity.
    pub quiet: bool,
    /// Whether standard error is a terminal on which a live line can be drawn.
    pub live: bool,
    /// The width of standard output, in columns.
    pub width: usize,
}

impl Console {
    /// Inspects the terminal and the environment, once.
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

    /// A console without a terminal and without colours, `width` columns wide.
    pub fn plain(width: usize) -> Self {
        Self { color: false, color_err: false, quiet: false, live: false, width }
    }

    /// Prints a result for people to standard output.
    pub fn print(&self, text: &str) -> io::Result<()> {
        write(io::stdout().lock(), &self.shown(text, self.color))
    }

    /// Prints a result to standard output, or to standard error if an export goes to standard
    /// output. `render` is told whether to use colours. In quiet mode, nothing is printed to
    /// standard error.
    pub fn result(
        &self,
        exports_to_stdout: bool,
        render: impl FnOnce(bool) -> String,
    ) -> io::Result<()> {
        if !exports_to_stdout {
            return self.print(&render(self.color));
        }
        if !self.quiet {
            let text = self.shown(&render(self.color_err), self.color_err);
            // The export is written even if nothing reads standard error.
            let _ = write(io::stderr().lock(), &text);
        }
        Ok(())
    }

    /// Prints a result for programs, such as CSV or a completion script, unchanged to standard
    /// output.
    pub fn data(&self, text: &str) -> io::Result<()> {
        write(io::stdout().lock(), text)
    }

    /// Prints a value as JSON to standard output.
    pub fn json(&self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        let text = text::visible_json(&redact::text(&serde_json::to_string_pretty(value)?));
        Ok(self.data(&(text + "\n"))?)
    }

    fn shown(&self, text: &str, color: bool) -> String {
        let text = redact::text(text);
        if color { text::visible_ink(&text) } else { text::visible_lines(&text) }
    }

    /// Prints a message to standard error, unless quiet. A failed write is ignored.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            let _ = write(io::stderr().lock(), &format!("{}\n", self.shown(text, false)));
        }
    }

    /// Prints a warning about validity to standard error, even in quiet mode.
    pub fn warn(&self, text: &str) {
        Self { quiet: false, ..*self }.note(text);
    }

    /// Prints the error that ends hotlap, and returns the exit code. A closed pipe is not an error.
    pub fn log_tail(&self, error: &anyhow::Error) -> Exit {
        let broken = |e: &io::Error| e.kind() == BrokenPipe;
        if error.chain().filter_map(|e| e.downcast_ref()).any(broken) {
            return Exit::Ok;
        }
        let red = if self.color_err { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
        let message = self.shown(&format!("{error:#}"), false);
        let _ = writeln!(io::stderr().lock(), "{}error{}: {message}", red.0, red.1);
        match error {
            e if e.chain().any(|e| e.is::<UsageError>()) => Exit::Usage,
            e if e.chain().any(|e| e.is::<ServerError>()) => Exit::ServerFailed,
            _ => Exit::Error,
        }
    }
}

/// Returns standard input and output for a channel to another program. From then on, all other
/// output goes to standard error.
pub fn channel() -> io::Result<(File, File)> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok((input, output))
}

fn write(mut to: impl Write + AsFd, text: &str) -> io::Result<()> {
    let written = to.write_all(text.as_bytes()).and_then(|()| to.flush());
    written.map_err(|error| if is_closed_terminal(&to, &error) { BrokenPipe.into() } else { error })
}

/// Whether a write failed because the terminal was closed. A failing disk gives the same error.
/// Only the kind of file distinguishes the two, since a closed terminal is no longer a tty.
fn is_closed_terminal(to: &impl AsFd, error: &io::Error) -> bool {
    use rustix::fs::{FileType, fstat};
    let is_device =
        |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
        && fstat(to).is_ok_and(is_device)
}

/// The width, 40 to 400 columns: `COLUMNS`, or the width of the terminal, or [`WIDE`].
fn width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    told.or_else(terminal_width).unwrap_or(WIDE).clamp(40, 400)
}

fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
