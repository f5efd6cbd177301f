//! Defaults of the one who types, from a file: `~/.config/hotlap/config.toml`.
//!
//! Few keys, and none that would change what a suite or a command line says: what is typed wins,
//! and so does what a suite says. A key is here when it belongs to the person or to the machine
//! rather than to a question: which colours, where runs are kept, how long one waits, how the
//! machine is shared out, how one usually loads. What a run takes from here is recorded as if it
//! had been typed, so that the command in its report repeats it anywhere.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Deserializer};

use crate::cli::{Cli, Command, RunArgs, StoreArgs, When};
use crate::exit::usage;
use crate::quantity;

/// What the file may say: each key is the long option of that name, without its dashes.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Colours are a matter of taste and of eyes.
    pub color: Option<When>,
    /// Runs are kept where this user's data are backed up. Relative to the file's folder.
    pub store: Option<PathBuf>,
    /// How long this user waits for a comparison that no suite times.
    #[serde(default, deserialize_with = "span")]
    pub duration: Option<String>,
    /// How sure this user wants to be before it ends early.
    #[serde(default, deserialize_with = "share")]
    pub precision: Option<String>,
    /// How many cores of this machine are the server's.
    pub server_cpus: Option<usize>,
    /// How many connections this user's servers usually have.
    pub connections: Option<usize>,
    /// Headers whose values are secrets, beside the usual ones.
    #[serde(default)]
    pub redact: Vec<String>,
}

impl Settings {
    /// Reads the file that counts for this command line, and fills in what it leaves open.
    ///
    /// # Errors
    /// When the file cannot be read or says what means nothing, with its line.
    pub fn fill(cli: &mut Cli) -> anyhow::Result<()> {
        let inner =
            matches!(cli.command, Command::Supervisor(_) | Command::Ceiling(_) | Command::Known(_));
        if cli.no_config || inner {
            return Ok(());
        }
        Self::find()?.apply(cli);
        Ok(())
    }

    /// The file named by `HOTLAP_CONFIG`, which must be there, or the usual one, which need not.
    fn find() -> anyhow::Result<Self> {
        let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let named = set("HOTLAP_CONFIG");
        let folder = || set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
        let Some(path) = named.clone().or_else(|| Some(folder()?.join("hotlap/config.toml")))
        else {
            return Ok(Self::default());
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::read(&text, &path),
            Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            Err(e) => Err(e).with_context(|| {
                format!("cannot read {} (--no-config goes without it)", path.display())
            }),
        }
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// When a key is unknown or a value means nothing, with file and line.
    pub fn read(text: &str, path: &Path) -> anyhow::Result<Self> {
        let mut settings: Self = match toml::from_str(text) {
            Ok(settings) => settings,
            Err(error) => {
                let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or(""));
                let line = before.matches('\n').count() + 1;
                let what = error.message().replace('\n', " ");
                return usage(format!("{}:{line}: {what}", path.display()));
            }
        };
        if settings.server_cpus == Some(0) || settings.connections == Some(0) {
            return usage(format!(
                "{}: server-cpus and connections are at least 1",
                path.display()
            ));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        settings.store = settings.store.map(|store| folder.join(store));
        Ok(settings)
    }

    /// Fills in what was not typed.
    pub fn apply(&self, cli: &mut Cli) {
        cli.color = cli.color.or(self.color);
        cli.redact.extend(self.redact.iter().cloned());
        match &mut cli.command {
            Command::Run(args) => self.apply_to_run(args),
            Command::Report(args) => self.keep(&mut args.store),
            Command::Compare(args) => self.keep(&mut args.store),
            Command::History(args) => self.keep(&mut args.store),
            _ => {}
        }
    }

    fn keep(&self, args: &mut StoreArgs) {
        if args.store.is_none() {
            args.store.clone_from(&self.store);
        }
    }

    fn apply_to_run(&self, args: &mut RunArgs) {
        if !args.no_store {
            self.keep(&mut args.store);
        }
        if args.suite.is_some() || args.servers.is_empty() {
            return;
        }
        let mut filled = Vec::new();
        let mut fill = |option: &str, value: &dyn Display| {
            filled.extend([format!("--{option}"), value.to_string()]);
        };
        let schedule = &mut args.schedule;
        if let (None, Some(text)) = (schedule.duration, self.duration.as_deref()) {
            schedule.duration = quantity::span(text).ok();
            fill("duration", &text);
        }
        if let (None, Some(text)) = (schedule.precision, self.precision.as_deref()) {
            schedule.precision = quantity::share(text).ok();
            fill("precision", &text);
        }
        if let (None, Some(cpus)) = (schedule.server_cpus, self.server_cpus) {
            schedule.server_cpus = Some(cpus);
            fill("server-cpus", &cpus);
        }
        if let (None, Some(connections)) = (args.shape.connections, self.connections) {
            args.shape.connections = Some(connections);
            fill("connections", &connections);
        }
        args.from_config = filled;
    }
}

fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked(from, |text| quantity::span(text).map(drop))
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked(from, |text| quantity::share(text).map(drop))
}

/// A text that is read with the rules of the command line; it is kept as it is written.
fn checked<'de, D: Deserializer<'de>>(
    from: D,
    check: fn(&str) -> Result<(), String>,
) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(from)?;
    check(&text).map_err(serde::de::Error::custom)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    fn read(text: &str) -> Result<Settings, String> {
        Settings::read(text, Path::new("/home/me/config.toml")).map_err(|e| e.to_string())
    }

    fn filled(line: &str) -> (Cli, String) {
        let settings =
            read("color = 'never'\nstore = 'runs.db'\nduration = '20s'\nconnections = 32");
        let mut cli = cli::typed(line);
        settings.unwrap().apply(&mut cli);
        let words = match &cli.command {
            Command::Run(args) => args.from_config.join(" "),
            _ => String::new(),
        };
        (cli, words)
    }

    #[test]
    fn what_is_typed_wins_and_the_rest_is_recorded() {
        let (cli, words) = filled("hotlap --color always run go/net-http --duration 5s");
        assert_eq!((cli.color, words.as_str()), (Some(When::Always), "--connections 32"));
        let Command::Run(args) = cli.command else { panic!("not a run") };
        assert_eq!(args.schedule.duration, Some(std::time::Duration::from_secs(5)));
        assert_eq!(args.shape.connections, Some(32));
        assert_eq!(args.store.store, Some(PathBuf::from("/home/me/runs.db")));
        assert_eq!(filled("hotlap run go/net-http").1, "--duration 20s --connections 32");
    }

    #[test]
    fn a_suite_says_itself_how_it_is_run() {
        for line in ["hotlap run", "hotlap run --suite app-servers"] {
            let (cli, words) = filled(line);
            let Command::Run(args) = cli.command else { panic!("not a run") };
            assert_eq!((args.schedule.duration, args.shape.connections), (None, None));
            assert_eq!((words.as_str(), args.store.store.is_some()), ("", true));
        }
    }

    #[test]
    fn a_wrong_key_or_value_is_told_with_its_line() {
        let unknown = read("duration = '20s'\ncolour = 'never'\n").unwrap_err();
        assert!(unknown.starts_with("/home/me/config.toml:2: unknown field `colour`"), "{unknown}");
        let wrong = read("\n\nduration = 'soon'\n").unwrap_err();
        assert!(wrong.contains("config.toml:3: `soon` is no unit of time"), "{wrong}");
        assert!(read("server-cpus = -1").unwrap_err().contains("config.toml:1: "));
        assert!(read("connections = 0").unwrap_err().contains("at least 1"));
        assert_eq!(read(""), Ok(Settings::default()));
    }
}
