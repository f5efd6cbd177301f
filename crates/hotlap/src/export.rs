//! Files that a report is written to. They are opened before anything is measured, so that a bad
//! path fails early. They are rewritten during a run, so that a crash loses little. The module
//! [`sink`] does the writing.

pub mod sink;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::cli::ExportArgs;
use crate::exit::usage;
use crate::render::{Format, render};
use crate::report::Report;
use sink::Sink;

/// A function that renders a value in one format.
type Renderer<T> = Box<dyn Fn(&T) -> String>;

/// The exports of a value in several formats. They are opened first, rewritten while the value
/// grows, and written at the end.
pub struct Exports<T = Report>(Vec<(Sink, Renderer<T>)>);

impl<T> Default for Exports<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl Exports {
    /// Opens the exports of a report, and checks that each one can be written.
    pub fn open(args: &ExportArgs) -> anyhow::Result<Self> {
        let asked = [
            (Format::Json, &args.export_json),
            (Format::Markdown, &args.export_markdown),
            (Format::Csv, &args.export_csv),
            (Format::Html, &args.export_html),
            (Format::Svg, &args.export_svg),
            (Format::Junit, &args.export_junit),
            (Format::Github, &args.export_github_benchmark),
            (Format::Bencher, &args.export_bencher),
        ];
        let mut exports = Self::default();
        for (format, path) in asked {
            exports.add(path.as_deref(), move |report| render(report, format))?;
        }
        Ok(exports)
    }
}

impl<T> Exports<T> {
    /// Adds an export in one format if `path` is given, and checks that the file can be written.
    pub fn add(
        &mut self,
        path: Option<&Path>,
        format: impl Fn(&T) -> String + 'static,
    ) -> anyhow::Result<()> {
        let Some(path) = path else { return Ok(()) };
        self.0.push((Sink::open(path)?, Box::new(format)));
        let sinks = || self.0.iter().map(|(sink, _)| sink);
        distinct(sinks())?;
        no_inputs(sinks(), std::env::args_os())
    }

    /// Whether an export goes to standard output, so that nothing else may be printed there.
    pub fn to_stdout(&self) -> bool {
        self.0.iter().any(|(sink, _)| sink.is_stdout())
    }

    /// Whether there are no exports.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Rewrites the files with the results so far. Standard output, pipes and devices are written
    /// only at the end, because text that was written to them cannot be replaced.
    pub fn rewrite(&mut self, of: &T) -> anyhow::Result<()> {
        self.write(of, false)
    }

    /// Writes all exports.
    pub fn finish(&mut self, of: &T) -> anyhow::Result<()> {
        self.write(of, true)
    }

    fn write(&mut self, of: &T, last: bool) -> anyhow::Result<()> {
        let due = self.0.iter_mut().filter(|(sink, _)| last || sink.can_be_rewritten());
        all(due.map(|(sink, format)| sink.write(&format(of))))
    }
}

/// Returns the first error after all writes. No write is skipped because another write failed.
fn all(written: impl Iterator<Item = anyhow::Result<()>>) -> anyhow::Result<()> {
    let failed: Vec<anyhow::Error> = written.filter_map(Result::err).collect();
    failed.into_iter().next().map_or(Ok(()), Err)
}

/// Refuses an export to a file that the command line also names elsewhere. Such a file is an input,
/// for example a program, a body (`@FILE`) or a requests file. The export would destroy the input.
fn no_inputs<'a>(
    sinks: impl Iterator<Item = &'a Sink>,
    arguments: impl Iterator<Item = OsString>,
) -> anyhow::Result<()> {
    let mut inputs = Vec::new();
    let mut is_export = false;
    for argument in arguments.skip(1) {
        let argument = argument.as_bytes();
        // The command line has `--export-json FILE` or `--export-json=FILE`.
        let begins_export = argument.starts_with(b"--export");
        if !std::mem::replace(&mut is_export, begins_export) && !begins_export {
            let words = argument.split(|byte| b" ='\"".contains(byte));
            let words = words.map(|word| word.strip_prefix(b"@").unwrap_or(word));
            let words = words.filter(|word| !word.is_empty());
            inputs.extend(words.flat_map(|word| Path::new(OsStr::from_bytes(word)).canonicalize()));
        }
        is_export &= !argument.contains(&b'=');
    }
    for file in sinks.filter_map(Sink::file) {
        if file.canonicalize().is_ok_and(|file| inputs.contains(&file)) {
            return usage(format!(
                "{} is also named elsewhere on the command line and would be overwritten: name \
                 another file for the export",
                file.display()
            ));
        }
    }
    Ok(())
}

/// Refuses two exports to one file. They would be mixed, or one would replace the other.
fn distinct<'a>(sinks: impl Iterator<Item = &'a Sink>) -> anyhow::Result<()> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut to_stdout = false;
    for sink in sinks {
        if sink.is_stdout() && std::mem::replace(&mut to_stdout, true) {
            return usage("two exports go to standard output: name a file for one of them");
        }
        let Some(file) = sink.file().map(|f| std::path::absolute(f).unwrap_or(f.to_owned())) else {
            continue;
        };
        if files.contains(&file) {
            return usage(format!(
                "two exports go to {}: name another file for one of them",
                file.display()
            ));
        }
        files.push(file);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: `--export-json` replaced a file that `--body` also named.
    #[test]
    fn an_export_never_replaces_an_input() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("body");
        std::fs::write(&file, "hello").unwrap();
        let sink = Sink::open(&file).unwrap();
        let path = file.display().to_string();
        let refused = |arguments: &[String]| {
            let all = std::iter::once("hotlap").chain(arguments.iter().map(String::as_str));
            let all = all.map(OsString::from);
            no_inputs(std::iter::once(&sink), all).is_err()
        };
        let export = ["--export-json".to_owned(), path.clone()];
        assert!(!refused(&export));
        assert!(!refused(&[format!("--export-json={path}")]));
        for input in [format!("@{path}"), format!("--body=@{path}"), format!("python3 {path} 1")] {
            let all = [&export[..], std::slice::from_ref(&input)].concat();
            assert!(refused(&all), "{input}");
        }
    }
}
