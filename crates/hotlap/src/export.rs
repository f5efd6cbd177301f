//! Files that a report is written to. They are opened before anything is measured, so that a bad
//! path fails early, and rewritten during a run, so that a crash loses nothing. [`sink`] does the
//! writing.

pub mod sink;

use std::path::{Path, PathBuf};

use crate::cli::ExportArgs;
use crate::exit::usage;
use crate::render::{self, Format};
use crate::report::Report;
use sink::Sink;

/// The exports of one run or report.
#[derive(Debug, Default)]
pub struct Exports(Vec<Export>);

/// One file, and its format.
#[derive(Debug)]
struct Export {
    format: Format,
    sink: Sink,
}

impl Exports {
    /// Checks that every export can be written.
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
        let mut exports = Vec::new();
        for (format, path) in asked {
            if let Some(path) = path {
                exports.push(Export { format, sink: Sink::open(path)? });
            }
        }
        let sinks = || exports.iter().map(|e| &e.sink);
        distinct(sinks())?;
        no_inputs(sinks(), std::env::args())?;
        Ok(Self(exports))
    }

    /// Whether one of them is standard output, so that nothing else may be printed there.
    pub fn to_stdout(&self) -> bool {
        self.0.iter().any(|e| e.sink.is_stdout())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Rewrites the files with the results so far. Standard output, pipes and devices are written
    /// only at the end, because they keep everything that is written to them.
    pub fn rewrite(&mut self, report: &Report) -> anyhow::Result<()> {
        self.write(&|format| render::render(report, format), false)
    }

    /// Writes all exports.
    pub fn finish(&mut self, report: &Report) -> anyhow::Result<()> {
        self.finish_with(&|format| render::render(report, format))
    }

    /// Writes all exports with a custom rendering, for reports of another kind.
    pub fn finish_with(&mut self, render: &dyn Fn(Format) -> String) -> anyhow::Result<()> {
        self.write(render, true)
    }

    fn write(&mut self, render: &dyn Fn(Format) -> String, last: bool) -> anyhow::Result<()> {
        let due = self.0.iter_mut().filter(|e| last || e.sink.can_be_rewritten());
        all(due.map(|export| export.sink.write(&render(export.format))))
    }
}

/// Renders a value in one format.
type Renderer<T> = fn(&T) -> String;

/// The exports of any value that has several formats: opened first, written once.
pub struct Texts<T>(Vec<(Sink, Renderer<T>)>);

impl<T> Default for Texts<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Texts<T> {
    /// Checks that a file can be written in one format, if it was requested.
    pub fn open(&mut self, path: Option<&Path>, form: fn(&T) -> String) -> anyhow::Result<()> {
        self.0.extend(path.map(Sink::open).transpose()?.map(|sink| (sink, form)));
        distinct(self.0.iter().map(|(sink, _)| sink))?;
        no_inputs(self.0.iter().map(|(sink, _)| sink), std::env::args())
    }

    /// Whether one of them is standard output, so that nothing else may be printed there.
    pub fn to_stdout(&self) -> bool {
        self.0.iter().any(|(sink, _)| sink.is_stdout())
    }

    /// Writes all exports.
    pub fn write(&mut self, of: &T) -> anyhow::Result<()> {
        all(self.0.iter_mut().map(|(sink, form)| sink.write(&form(of))))
    }
}

/// Returns the first error after all writes: none of them is skipped because another failed.
fn all(written: impl Iterator<Item = anyhow::Result<()>>) -> anyhow::Result<()> {
    let failed: Vec<anyhow::Error> = written.filter_map(Result::err).collect();
    failed.into_iter().next().map_or(Ok(()), Err)
}

/// Refuses an export to a file that the command line also names elsewhere. Such a file is an input,
/// for example a program, a body (`@FILE`) or a requests file, and would be lost.
fn no_inputs<'a>(
    sinks: impl Iterator<Item = &'a Sink>,
    arguments: impl Iterator<Item = String>,
) -> anyhow::Result<()> {
    let mut inputs = Vec::new();
    let mut is_export = false;
    for argument in arguments.skip(1) {
        // `--export-json FILE`, and `--export-json=FILE`.
        if !std::mem::replace(&mut is_export, argument.starts_with("--export"))
            && !argument.starts_with("--export")
        {
            let words =
                argument.split([' ', '=', '\'', '"']).map(|word| word.trim_start_matches('@'));
            let words = words.filter(|word| !word.is_empty());
            inputs.extend(words.flat_map(|word| Path::new(word).canonicalize()));
        }
        is_export &= !argument.contains('=');
    }
    for file in sinks.filter_map(Sink::file) {
        if file.canonicalize().is_ok_and(|file| inputs.contains(&file)) {
            return usage(format!(
                "{} is an input and would be overwritten: name another file for the export",
                file.display()
            ));
        }
    }
    Ok(())
}

/// In one file, two exports would be mixed, or the second would replace the first.
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
            return usage(format!("two exports go to {}: name another file", file.display()));
        }
        files.push(file);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: `--export-json` onto the file of `--body` replaced it.
    #[test]
    fn an_export_never_replaces_an_input() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("body");
        std::fs::write(&file, "hello").unwrap();
        let sink = Sink::open(&file).unwrap();
        let path = file.display().to_string();
        let refused = |arguments: &[String]| {
            let all = std::iter::once("hotlap".to_owned()).chain(arguments.iter().cloned());
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
