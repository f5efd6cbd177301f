//! What each argument of `hotlap run` means: a server of the catalogue, a command, or a URL; and
//! what tables call it.

use std::path::Path;

use hotlap_load::url::is_address;
use hotlap_servers::catalogue::{Catalogue, CatalogueError};
use hotlap_servers::manifest;

use super::card::{Card, Runner};
use crate::assets;
use crate::cli::RunArgs;
use crate::exit::usage;
use crate::redact;
use crate::text::is_hidden;

/// What the ceiling is called in tables.
pub const CEILING: &str = "ceiling";

/// One of the servers named, before it is known whether it can be started.
#[derive(Debug)]
pub struct Named {
    /// Which of the card's runners it is, as an index.
    pub runner: usize,
    /// What it is.
    pub what: What,
}

/// What an argument means.
#[derive(Debug)]
pub enum What {
    /// A server of the catalogue.
    Catalogue(Box<manifest::Server>),
    /// A command.
    Command(String),
    /// The URL of a server that runs already.
    Url(String),
}

/// What each runner means: a pattern may mean several servers.
///
/// # Errors
/// When an argument means nothing, with what may have been meant.
pub fn named(card: &Card) -> anyhow::Result<Vec<Named>> {
    let mut catalogue = None;
    let mut named = Vec::new();
    for (runner, told) in card.runners.iter().enumerate() {
        let argument = &told.run;
        let mut push = |what| named.push(Named { runner, what });
        if is_url(argument) {
            push(What::Url(argument.clone()));
        } else if is_command(argument) {
            push(What::Command(argument.clone()));
        } else {
            let catalogue = match &mut catalogue {
                Some(catalogue) => catalogue,
                none => none.insert(Catalogue::open(&assets::servers()?)?),
            };
            match catalogue.select(argument) {
                Ok(found) => {
                    found.into_iter().for_each(|s| push(What::Catalogue(Box::new(s.clone()))));
                }
                Err(_) if is_program(argument) => push(What::Command(argument.clone())),
                Err(error) => {
                    let what = unknown(&error);
                    return usage(match &card.suite {
                        Some(suite) => suite.wrong(told.line, what).to_string(),
                        None => what,
                    });
                }
            }
        }
    }
    Ok(named)
}

/// What is wrong with an argument that the catalogue does not know, and how a command is written.
#[must_use]
pub fn unknown(error: &CatalogueError) -> String {
    let CatalogueError::Unknown { name, nearest } = error else { return error.to_string() };
    if name.starts_with(['/', '.', '~']) {
        return format!("{name}: there is no such file");
    }
    let meant = match nearest.as_slice() {
        [] => "`hotlap list` shows what is in it".to_owned(),
        [one] => format!("did you mean {one}?"),
        [all @ .., last] => format!("did you mean {} or {last}?", all.join(", ")),
    };
    format!(
        "{name} is not in the catalogue ({meant}). For a command, write its path (./{name}), or quote \
         it with its arguments ('{name} --port $PORT')"
    )
}

/// Refuses options for commands and URLs where there are none: servers of the catalogue are asked
/// what their contract says, and would ignore them.
///
/// # Errors
/// Names the first such option.
pub fn must_apply(named: &[Named], args: &RunArgs) -> anyhow::Result<()> {
    let ask = &args.request;
    let is_command = |named: &Named| matches!(named.what, What::Command(_));
    let is_url = |named: &Named| matches!(named.what, What::Url(_));
    let commands = named.iter().any(is_command);
    let strangers = commands || named.iter().any(is_url);
    let given = [
        ("--path", ask.path.is_some() && !strangers),
        ("--method", ask.method.is_some() && !strangers),
        ("--header", !ask.headers.is_empty() && !strangers),
        ("--body", ask.body.is_some() && !strangers),
        ("--expect-status", ask.expect_status.is_some() && !strangers),
        ("--expect-body", ask.expect_body.is_some() && !strangers),
        ("--shell", args.shell && !commands),
    ];
    match given.iter().find(|(_, is_idle)| *is_idle) {
        None => Ok(()),
        Some((option, _)) => usage(format!(
            "{option} is for commands and URLs, and only servers of the catalogue are named: their \
             requests are those of their contract (--contract NAME)"
        )),
    }
}

/// Whether an argument is a URL.
#[must_use]
pub fn is_url(argument: &str) -> bool {
    argument.contains("://") || argument.starts_with("unix:") || is_address(argument)
}

/// Whether an argument names no server of the catalogue: a command or a URL.
#[must_use]
pub fn is_custom(argument: &str) -> bool {
    is_url(argument) || is_command(argument)
}

/// Whether an argument can be nothing but a command: several words, or a path to a file.
fn is_command(argument: &str) -> bool {
    let is_path = argument.starts_with(['/', '.', '~']) && Path::new(argument).is_file();
    argument.trim().contains(char::is_whitespace) || is_path
}

/// Whether a single word is a program.
fn is_program(word: &str) -> bool {
    if word.contains('/') {
        return Path::new(word).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(word).is_file())
}

/// What tables call them: given names first, then their own, each once.
///
/// # Errors
/// When two servers are given the same name, or more names are given than there are servers.
pub fn names(named: &[Named], runners: &[Runner], given: &[String]) -> anyhow::Result<Vec<String>> {
    if given.len() > named.len() {
        let (given, servers) = (given.len(), named.len());
        return usage(format!(
            "{given} names for {servers} servers: give one each, in their order"
        ));
    }
    let mut names: Vec<String> = Vec::new();
    for (i, Named { runner, what }) in named.iter().enumerate() {
        let own = match what {
            What::Catalogue(server) => &server.id,
            What::Command(text) | What::Url(text) => text,
        };
        // A suite's name is for one server; those of a pattern keep their own.
        let alone = named.iter().filter(|n| n.runner == *runner).count() == 1;
        let told = runners[*runner].name.as_ref().filter(|_| alone);
        // A name is stored and shown: without the credentials of a URL that it may be.
        let wanted = redact::text(given.get(i).or(told).unwrap_or(own).trim());
        let wanted: String = wanted.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect();
        if given.get(i).is_some() && names.contains(&wanted) {
            return usage(format!("two servers are called {wanted}: give each a name of its own"));
        }
        let mut name = wanted.clone();
        let mut again = 2;
        while names.contains(&name) || name == CEILING {
            name = format!("{wanted} ({again})");
            again += 1;
        }
        names.push(name);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(texts: &[&str]) -> (Vec<Named>, Vec<Runner>) {
        let command = |t: &&str| What::Command((*t).to_owned());
        let named = texts.iter().enumerate();
        let named = named.map(|(runner, t)| Named { runner, what: command(t) }).collect();
        let runner = |t: &&str| Runner {
            run: (*t).to_owned(),
            name: None,
            cpus: None,
            on: None,
            counts: None,
            published: Vec::new(),
            line: 0,
        };
        (named, texts.iter().map(runner).collect())
    }

    #[test]
    fn equal_commands_get_names_of_their_own() {
        let (named, mut runners) =
            commands(&["node app.js", "node app.js", "node app.js", "ceiling"]);
        let expected = ["node app.js", "node app.js (2)", "node app.js (3)", "ceiling (2)"];
        assert_eq!(names(&named, &runners, &[]).unwrap(), expected);
        assert_eq!(
            names(&named[..2], &runners, &["old".to_owned()]).unwrap(),
            ["old", "node app.js"]
        );
        runners[1].name = Some("mine (4 threads)".to_owned());
        assert_eq!(names(&named[..2], &runners, &[]).unwrap(), ["node app.js", "mine (4 threads)"]);
    }

    #[test]
    fn given_names_must_tell_servers_apart() {
        let (named, runners) = commands(&["a", "b"]);
        let given = ["x", "x"].map(str::to_owned);
        assert!(names(&named, &runners, &given).is_err());
        assert!(names(&named[..1], &runners, &given).is_err());
    }
}
