//! The user's defaults, from the file `~/.config/hotlap/config.toml`.
//!
//! The command line and the suite take precedence over the file. The few keys set colours, the
//! store, redacted headers, the usual duration, precision and connections, and the number of cores
//! for the server. Values that affect the measurement are recorded as if they had been typed, so
//! the command in a report repeats the run without the file.

use std::path::{Path, PathBuf};

use anyhow::Context;
use hotlap_servers::catalogue::line_of;
use serde::{Deserialize, Deserializer};

use crate::cli::{Cli, Command, MeasureArgs, RunArgs, StoreArgs, When};
use crate::exit::usage;
use crate::{paths, quantity};

/// The keys of the file. Each key has the name of a long option, without the dashes.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// When to use colours.
    pub color: Option<When>,
    /// Where runs are stored. A relative path is relative to the folder of the configuration file.
    pub store: Option<PathBuf>,
    /// The duration of a run without a suite.
    #[serde(default, deserialize_with = "span")]
    pub duration: Option<String>,
    /// The precision at which a run without a suite ends early.
    #[serde(default, deserialize_with = "share")]
    pub precision: Option<String>,
    /// The number of cores that the server gets.
    pub server_cpus: Option<usize>,
    /// The number of connections of a load.
    pub connections: Option<usize>,
    /// The headers whose values are redacted, in addition to the usual ones.
    #[serde(default)]
    pub redact: Vec<String>,
}

impl Config {
    /// Reads the file and fills in the options that were not typed. With `--no-config`, and for
    /// commands that hotlap itself starts, the file is not read.
    pub fn fill(cli: &mut Cli) -> anyhow::Result<()> {
        if cli.no_config || cli.command.is_inner() {
            return Ok(());
        }
        Self::find()?.apply(cli);
        Ok(())
    }

    /// Reads the file named by `HOTLAP_CONFIG`, which must exist, or the default file if it exists.
    fn find() -> anyhow::Result<Self> {
        let named = paths::from_env("HOTLAP_CONFIG");
        let Some(path) = named.clone().or_else(paths::config) else {
            return Ok(Self::default());
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::read(&text, &path),
            Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            Err(e) => Err(e).with_context(|| {
                format!("cannot read {} (--no-config ignores it)", path.display())
            }),
        }
    }

    /// Parses the text of a configuration file.
    pub fn read(text: &str, path: &Path) -> anyhow::Result<Self> {
        let mut config: Self = match toml::from_str(text) {
            Ok(config) => config,
            Err(error) => {
                let line = line_of(text, error.span().map_or(0, |span| span.start));
                let what = error.message().replace('\n', " ");
                return usage(format!("{}:{line}: {what}", path.display()));
            }
        };
        if config.server_cpus == Some(0) || config.connections == Some(0) {
            return usage(format!(
                "{}: server-cpus and connections must be at least 1",
                path.display()
            ));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        config.store = config.store.map(|store| folder.join(store));
        Ok(config)
    }

    /// Fills in the options that were not typed, and adds the redacted headers.
    pub fn apply(&self, cli: &mut Cli) {
        cli.color = cli.color.or(self.color);
        cli.redact.extend(self.redact.iter().cloned());
        match &mut cli.command {
            Command::Run(args) => self.apply_to_run(args),
            // The duration and the precision in the file are for comparisons. `capacity` and
            // `explain` need other values.
            Command::Capacity(args) => self.apply_to_measure(&mut args.common),
            Command::Explain(args) => self.apply_to_measure(&mut args.common),
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
        if args.suite.is_some() || args.servers.is_empty() {
            return self.apply_to_store(&mut args.common);
        }
        let mut filled = Vec::new();
        let schedule = &mut args.schedule;
        if let (None, Some(text)) = (schedule.duration, &self.duration) {
            schedule.duration = quantity::span(text).ok();
            filled.extend(["--duration".to_owned(), text.clone()]);
        }
        if let (None, Some(text)) = (schedule.precision, &self.precision) {
            schedule.precision = quantity::share(text).ok();
            filled.extend(["--precision".to_owned(), text.clone()]);
        }
        args.common.from_config = filled;
        self.apply_to_measure(&mut args.common);
    }

    /// Fills in the store, the cores and the connections. The cores and the connections are
    /// recorded as words of the command line.
    fn apply_to_measure(&self, args: &mut MeasureArgs) {
        self.apply_to_store(args);
        let asked = [
            ("--server-cpus", &mut args.placement.server_cpus, self.server_cpus),
            ("--connections", &mut args.shape.connections, self.connections),
        ];
        for (option, typed, own) in asked {
            if let (None, Some(value)) = (&typed, own) {
                *typed = Some(value);
                args.from_config.extend([option.to_owned(), value.to_string()]);
            }
        }
    }

    fn apply_to_store(&self, args: &mut MeasureArgs) {
        if !args.no_store {
            self.keep(&mut args.store);
        }
    }
}

fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked(from, |text| quantity::span(text).map(drop))
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked(from, |text| quantity::share(text).map(drop))
}

/// Validates a value by the rules of the command line, and returns the text as written.
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

    fn read(text: &str) -> Result<Config, String> {
        Config::read(text, Path::new("/home/me/config.toml")).map_err(|e| e.to_string())
    }

    fn filled(line: &str) -> (Cli, String) {
        let config = read("color = 'never'\nstore = 'runs.db'\nduration = '20s'\nconnections = 32");
        let mut cli = cli::typed(line);
        config.unwrap().apply(&mut cli);
        let words = match &cli.command {
            Command::Run(args) => args.common.from_config.join(" "),
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
        assert_eq!(args.common.shape.connections, Some(32));
        assert_eq!(args.common.store.store, Some(PathBuf::from("/home/me/runs.db")));
        assert_eq!(filled("hotlap run go/net-http").1, "--duration 20s --connections 32");
    }

    #[test]
    fn a_suite_says_itself_how_it_is_run() {
        for line in ["hotlap run", "hotlap run --suite app-servers"] {
            let (cli, words) = filled(line);
            let Command::Run(args) = cli.command else { panic!("not a run") };
            assert_eq!((args.schedule.duration, args.common.shape.connections), (None, None));
            assert_eq!((words.as_str(), args.common.store.store.is_some()), ("", true));
        }
    }

    #[test]
    fn a_wrong_key_or_value_is_reported_with_its_line() {
        let unknown = read("duration = '20s'\ncolour = 'never'\n").unwrap_err();
        assert!(unknown.starts_with("/home/me/config.toml:2: unknown field `colour`"), "{unknown}");
        let wrong = read("\n\nduration = 'soon'\n").unwrap_err();
        assert!(wrong.contains("config.toml:3: `soon` is not a unit of time"), "{wrong}");
        assert!(read("server-cpus = -1").unwrap_err().contains("config.toml:1: "));
        assert!(read("connections = 0").unwrap_err().contains("at least 1"));
        assert_eq!(read(""), Ok(Config::default()));
    }
}
