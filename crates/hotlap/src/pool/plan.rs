//! The files of a plan: one for the whole, and a small one for each shard.
//!
//! They are TOML, carry a version, and name other files relative to their own folder, so a folder
//! can be copied to another place.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::division::Group;
use crate::exit::usage;
use crate::model::{Role, Run, Server};

/// The name of the plan's own file.
pub const PLAN: &str = "plan.toml";

/// The version of these files.
const VERSION: u32 = 1;

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// The version of this file.
    pub version: u32,
    /// The version of hotlap that made it.
    pub hotlap: String,
    /// The file of the suite.
    pub suite: PathBuf,
    /// The seed that the division and the seeds of shards follow from.
    pub seed: u64,
    /// The number of shards.
    pub shards: usize,
    /// The server that all others are compared with.
    pub reference: String,
    /// Options of `hotlap run` for every shard.
    pub options: Vec<String>,
    /// Servers that are measured together.
    pub groups: Vec<Group>,
}

/// A shard: one run of some servers of the suite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Shard {
    /// The version of this file.
    pub version: u32,
    /// Its number, from 0.
    pub shard: usize,
    /// The number of shards of the plan.
    pub of: usize,
    /// The file of the suite.
    pub suite: PathBuf,
    /// The seed of its order.
    pub seed: u64,
    /// The server that all others are compared with.
    pub reference: String,
    /// The servers that it measures, the reference first.
    pub servers: Vec<String>,
    /// Options of `hotlap run`.
    pub options: Vec<String>,
}

impl Plan {
    /// A plan of this version.
    pub fn new(suite: PathBuf, seed: u64, reference: String, groups: Vec<Group>) -> Self {
        Self {
            version: VERSION,
            hotlap: env!("CARGO_PKG_VERSION").to_owned(),
            suite,
            seed,
            shards: groups.iter().map(|group| group.shards.len()).sum(),
            reference,
            options: Vec::new(),
            groups,
        }
    }

    /// Reads the plan of a folder.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let file = folder.join(PLAN);
        if !file.exists() {
            return usage(format!(
                "{} has no {PLAN}: give the folder that `hotlap plan` wrote",
                folder.display()
            ));
        }
        let plan: Self = parsed(&file)?;
        is_known(plan.version, &file)?;
        Ok(plan)
    }

    /// Writes the plan and its shards to a folder that has no plan.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let head = "# Written by `hotlap plan`.\n";
        put(&folder.join(PLAN), &format!("{head}{}", toml::to_string(self)?))?;
        for shard in self.each() {
            let (number, of) = (shard.shard, shard.of);
            let head = format!(
                "# Shard {number} of {of} (from 0). Run it: hotlap run --shard shard-{number}.toml\n"
            );
            let file = folder.join(file_of(number));
            put(&file, &format!("{head}{}", toml::to_string(&shard)?))?;
        }
        Ok(())
    }

    /// The shards, by number.
    pub fn each(&self) -> impl Iterator<Item = Shard> {
        let of_group = |group: &Group| {
            let shard = |number: &usize| Shard {
                version: VERSION,
                shard: *number,
                of: self.shards,
                suite: self.suite.clone(),
                seed: super::division::seed_of(self.seed, *number),
                reference: self.reference.clone(),
                servers: group.servers.clone(),
                options: self.options.clone(),
            };
            group.shards.iter().map(shard).collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(of_group)
    }
}

impl Shard {
    /// Reads the file of a shard.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let shard: Self = parsed(file)?;
        is_known(shard.version, file)?;
        if shard.shard >= shard.of || !shard.servers.contains(&shard.reference) {
            return usage(format!("{}: it is not as `hotlap plan` wrote it", file.display()));
        }
        Ok(shard)
    }
}

impl Shard {
    /// Whether a run is the result of this shard, and not of another plan or another shard.
    pub fn check(&self, run: &Run, file: &Path) -> Result<(), String> {
        let is_compared = |server: &&Server| matches!(server.role, Role::Plain | Role::Reference);
        let of_run = run.servers.iter().filter(is_compared).map(|server| &server.name);
        let servers: BTreeSet<&String> = of_run.collect();
        let reference = run.servers.iter().find(|server| server.role == Role::Reference);
        let is_its = run.seed == self.seed
            && reference.is_some_and(|server| server.name == self.reference)
            && servers.iter().all(|server| self.servers.contains(server));
        match is_its {
            true => Ok(()),
            false => Err(format!(
                "{} is not the result of shard {} of this plan: its seed or its servers differ. \
                 Move the file away, and run the shard again",
                file.display(),
                self.shard
            )),
        }
    }
}

/// The name of a shard's file.
pub fn file_of(shard: usize) -> String {
    format!("shard-{shard}.toml")
}

/// Whether a file has the name of a shard's store, see [`store_of`].
pub fn is_store(name: &str) -> bool {
    name.starts_with("shard-") && name.ends_with(".db")
}

/// The name of a shard's store, once it is whole.
pub fn store_of(shard: usize) -> String {
    format!("shard-{shard}.db")
}

fn parsed<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    match toml::from_str(&text) {
        Ok(value) => Ok(value),
        Err(error) => {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or("");
            let line = before.matches('\n').count() + 1;
            let what = error.message().replace('\n', " ");
            usage(format!("{}:{line}: {what}", file.display()))
        }
    }
}

fn is_known(version: u32, file: &Path) -> anyhow::Result<()> {
    if version == VERSION {
        return Ok(());
    }
    usage(format!(
        "{} has version {version}, and this hotlap reads version {VERSION}: use the hotlap that \
         planned it, or plan again",
        file.display()
    ))
}

fn put(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let group = |servers: &[&str], shards: &[usize]| Group {
            servers: servers.iter().map(|name| (*name).to_owned()).collect(),
            shards: shards.to_vec(),
        };
        let groups = vec![group(&["a", "b 'c'"], &[0, 1]), group(&["a", "d\n"], &[2])];
        let options = vec!["--duration".to_owned(), "5s".to_owned()];
        Plan { options, ..Plan::new("mine.toml".into(), 9, "a".to_owned(), groups) }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        plan().write(folder.path()).unwrap();
        assert_eq!(Plan::read(folder.path()).unwrap(), plan());
        let shard = Shard::read(&folder.path().join("shard-2.toml")).unwrap();
        assert_eq!((shard.shard, shard.of, shard.servers[1].as_str()), (2, 3, "d\n"));
        assert_eq!(shard, plan().each().nth(2).unwrap());
        let first = fs::read_to_string(folder.path().join("shard-0.toml")).unwrap();
        let line = "# Shard 0 of 3 (from 0). Run it: hotlap run --shard shard-0.toml\n";
        assert!(first.starts_with(line), "{first}");
    }

    #[test]
    fn a_file_of_another_version_or_an_unknown_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        plan().write(folder.path()).unwrap();
        let file = folder.path().join("shard-0.toml");
        let text = fs::read_to_string(&file).unwrap();
        let refused = |text: &str| {
            fs::write(&file, text).unwrap();
            Shard::read(&file).unwrap_err().to_string()
        };
        let version = refused(&text.replace("version = 1", "version = 2"));
        assert!(version.contains("has version 2, and this hotlap reads version 1"), "{version}");
        let unknown = refused(&format!("colour = 'red'\n{text}"));
        assert!(unknown.contains("shard-0.toml:1: unknown field `colour`"), "{unknown}");
        let other = refused(&text.replace("reference = \"a\"", "reference = \"z\""));
        assert!(other.ends_with("it is not as `hotlap plan` wrote it"), "{other}");
        let none = Plan::read(&folder.path().join("none")).unwrap_err().to_string();
        assert!(none.contains("none has no plan.toml"), "{none}");
    }
}
