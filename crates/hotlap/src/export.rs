//! Files that a report is written to: opened before anything is measured, so that a bad path fails
//! early, and rewritten while a run goes on, so that a crash loses nothing.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cli::ExportArgs;
use crate::report::{Form, Report};

/// The exports of one run or report.
#[derive(Debug, Default)]
pub struct Exports(Vec<Export>);

/// One file and the form of what goes into it.
#[derive(Debug)]
struct Export {
    form: Form,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    Stdout,
    File(PathBuf, File),
}

impl Exports {
    /// Opens every file that was asked for.
    ///
    /// # Errors
    /// Names the file that cannot be opened.
    pub fn open(args: &ExportArgs) -> anyhow::Result<Self> {
        let asked = [
            (Form::Json, &args.export_json),
            (Form::Markdown, &args.export_markdown),
            (Form::Csv, &args.export_csv),
            (Form::Html, &args.export_html),
            (Form::Junit, &args.export_junit),
            (Form::Github, &args.export_gab),
            (Form::Bencher, &args.export_bmf),
        ];
        let mut exports = Vec::new();
        for (form, path) in asked {
            if let Some(path) = path {
                exports.push(Export { form, sink: Sink::open(path)? });
            }
        }
        Ok(Self(exports))
    }

    /// Whether one of them is standard output, so that nothing else may be printed there.
    #[must_use]
    pub fn to_stdout(&self) -> bool {
        self.0.iter().any(|e| matches!(e.sink, Sink::Stdout))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Rewrites the files with what there is by now; standard output waits for the end.
    ///
    /// # Errors
    /// Names the file that cannot be written.
    pub fn rewrite(&mut self, report: &Report) -> anyhow::Result<()> {
        self.write(&|form| report.render(form), false)
    }

    /// Writes all of them.
    ///
    /// # Errors
    /// Names the file that cannot be written.
    pub fn finish(&mut self, report: &Report) -> anyhow::Result<()> {
        self.finish_with(&|form| report.render(form))
    }

    /// Writes all of them with what another kind of report renders.
    ///
    /// # Errors
    /// Names the file that cannot be written.
    pub fn finish_with(&mut self, render: &dyn Fn(Form) -> String) -> anyhow::Result<()> {
        self.write(render, true)
    }

    fn write(&mut self, render: &dyn Fn(Form) -> String, last: bool) -> anyhow::Result<()> {
        for export in &mut self.0 {
            if last || !matches!(export.sink, Sink::Stdout) {
                export.sink.write(&render(export.form))?;
            }
        }
        Ok(())
    }
}

/// How a value is written in one form.
type Renderer<T> = fn(&T) -> String;

/// The exports of anything else that has forms: opened first, written once.
pub struct Texts<T>(Vec<(Sink, Renderer<T>)>);

impl<T> Default for Texts<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Texts<T> {
    /// Opens a file for one form, if it was asked for.
    ///
    /// # Errors
    /// Names the file that cannot be opened.
    pub fn open(&mut self, path: Option<&Path>, form: fn(&T) -> String) -> anyhow::Result<()> {
        self.0.extend(path.map(Sink::open).transpose()?.map(|sink| (sink, form)));
        Ok(())
    }

    /// Whether one of them is standard output.
    #[must_use]
    pub fn to_stdout(&self) -> bool {
        self.0.iter().any(|(sink, _)| matches!(sink, Sink::Stdout))
    }

    /// Writes all of them.
    ///
    /// # Errors
    /// Names the file that cannot be written.
    pub fn write(&mut self, of: &T) -> anyhow::Result<()> {
        self.0.iter_mut().try_for_each(|(sink, form)| sink.write(&form(of)))
    }
}

impl Sink {
    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = std::io::stdout().lock();
                out.write_all(text.as_bytes())?;
                Ok(out.flush()?)
            }
            Self::File(path, file) => {
                overwrite(file, text).with_context(|| format!("cannot write {}", path.display()))
            }
        }
    }

    fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        Ok(Self::File(path.to_owned(), create(path)?))
    }
}

/// Opens a file for writing without emptying it yet: if the run fails early, what was there stays.
///
/// # Errors
/// Names the file, the cause and the cure.
pub fn create(path: &Path) -> anyhow::Result<File> {
    let open = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    open.with_context(|| {
        format!("cannot write {}: name a file in a folder that exists and is yours", path.display())
    })
}

/// Replaces what a file holds. What cannot seek (a pipe, /dev/stdout) is appended to.
fn overwrite(file: &mut File, text: &str) -> std::io::Result<()> {
    if file.seek(SeekFrom::Start(0)).is_ok() {
        let _ = file.set_len(0);
    }
    file.write_all(text.as_bytes())?;
    file.flush()
}
