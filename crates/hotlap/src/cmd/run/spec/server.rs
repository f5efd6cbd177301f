//! The servers of a run and their names. Each argument or entry names one or several catalogue
//! servers, a command, or a URL.

use std::path::{Path, PathBuf};

use hotlap_bench::participant::Origin;
use hotlap_bench::suite::Suite;
use hotlap_load::plan::Endpoint;
use hotlap_load::url::is_address;
use hotlap_servers::build::on_path;
use hotlap_servers::catalogue::{self, Catalogue, CatalogueError, meant};
use hotlap_servers::contract::{self, Ask, Name, Requests};
use hotlap_servers::launch::Launch;

use super::command_name;
use super::entry::Entry;
use super::options;
use crate::assets;
use crate::cli::RunArgs;
use crate::cmd::load::requests::resolve;
use crate::cmd::tls;
use crate::exit::usage;
use crate::redact;
use crate::text::is_hidden;
use crate::text::number::plural;

/// The name of the ceiling in tables.
pub const CEILING: &str = "ceiling";

/// A server of the run, before anything is built.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSpec {
    /// The name in tables, which is unique in the run.
    pub name: String,
    /// The index of the entry that names this server.
    pub entry: usize,
    /// Where the server comes from.
    pub source: Source,
}

impl ServerSpec {
    /// Whether a load must send all requests of the server's contract.
    pub fn has_a_mix(&self) -> bool {
        match &self.source {
            Source::Catalogue(_, contracts) => contracts.iter().any(|name| name.is_a_mix()),
            Source::Custom(..) => false,
        }
    }

    /// Whether the server is a URL, which hotlap does not start.
    pub fn runs_already(&self) -> bool {
        match &self.source {
            Source::Custom(start, _) => matches!(**start, Origin::Running { .. }),
            Source::Catalogue(..) => false,
        }
    }
}

/// Where a server comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A server of the catalogue, which is built and must fulfil these contracts.
    Catalogue(Box<catalogue::CatalogueServer>, Vec<Name>),
    /// A command, or the URL of a server that is already running, with the requests to that server.
    Custom(Box<Origin>, Box<Requests>),
}

/// The meaning of an argument.
enum Meaning {
    Catalogue(Box<catalogue::CatalogueServer>),
    Command(String),
    Url(String),
}

impl Meaning {
    fn command(&self) -> Option<&str> {
        if let Self::Command(text) = self { Some(text) } else { None }
    }
}

/// Returns the servers of all entries, in order. A pattern may match several servers.
pub fn servers(
    entries: &[Entry],
    args: &RunArgs,
    suite: Option<&Suite>,
    contracts: &[Name],
    requests: &Requests,
    https: bool,
) -> anyhow::Result<Vec<ServerSpec>> {
    let meant = meanings(entries, suite)?;
    let any = |is: fn(&Meaning) -> bool| meant.iter().any(|(_, meaning)| is(meaning));
    let commands = any(|meaning| matches!(meaning, Meaning::Command(_)));
    let urls = any(|meaning| matches!(meaning, Meaning::Url(_)));
    options::apply_to_servers(args, commands, urls)?;
    let names = names(&meant, entries, &args.common.names)?;
    let server = |((entry, meaning), name): ((usize, Meaning), String)| {
        let source = match meaning {
            Meaning::Catalogue(server) => {
                let contracts = held_to(&server, contracts)?;
                Source::Catalogue(server, contracts)
            }
            Meaning::Command(command) => {
                let origin = Origin::Launch(launch(&command, args.common.start.shell)?);
                Source::Custom(Box::new(origin), Box::new(requests.clone()))
            }
            Meaning::Url(url) => running(url, requests, args, https)?,
        };
        Ok(ServerSpec { name, entry, source })
    };
    meant.into_iter().zip(names).map(server).collect()
}

/// Returns the meanings of each entry, with the index of the entry.
fn meanings(entries: &[Entry], suite: Option<&Suite>) -> anyhow::Result<Vec<(usize, Meaning)>> {
    let mut catalogue = None;
    let mut meant = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let argument = &entry.run;
        let mut push = |meaning| meant.push((index, meaning));
        if is_url(argument) {
            push(Meaning::Url(argument.clone()));
        } else if is_command(argument) {
            push(Meaning::Command(argument.clone()));
        } else {
            let catalogue = match &mut catalogue {
                Some(catalogue) => catalogue,
                none => none.insert(Catalogue::open(&assets::servers()?)?),
            };
            match catalogue.select(argument) {
                Ok(found) => {
                    found.into_iter().for_each(|s| push(Meaning::Catalogue(Box::new(s.clone()))));
                }
                Err(_) if is_program(argument) => push(Meaning::Command(argument.clone())),
                Err(error) => {
                    let what = unknown(&error);
                    return usage(match suite {
                        Some(suite) => suite.wrong(entry.line, what).to_string(),
                        None => what,
                    });
                }
            }
        }
    }
    Ok(meant)
}

/// The error for an argument that is not in the catalogue. The error also says how to write a
/// command.
pub fn unknown(error: &CatalogueError) -> String {
    let CatalogueError::Unknown { name, nearest } = error else { return error.to_string() };
    if name.trim().is_empty() {
        return "the name of a server is empty, possibly because a shell variable is not set: name \
                a server of the catalogue, a command or a URL"
            .to_owned();
    }
    if name.starts_with(['/', '.', '~']) {
        return format!("no such file: {name}");
    }
    let meant = meant(nearest);
    format!(
        "{name} is not in the catalogue ({meant}). For a command, write its path (./{name}), or quote \
         it with its arguments ('{name} --port $PORT')"
    )
}

/// Whether an argument is a URL. A command with a URL among its arguments is not a URL.
pub fn is_url(argument: &str) -> bool {
    let is_scheme = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
    };
    let has_scheme = argument.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme));
    let is_socket = argument.split_once(':').is_some_and(|(scheme, _)| scheme == "unix");
    has_scheme || is_socket || is_address(argument)
}

/// Whether an argument is a command or a URL.
pub fn is_custom(argument: &str) -> bool {
    is_url(argument) || is_command(argument)
}

/// Whether an argument can only be a command: it has several words or is the path of a file.
fn is_command(argument: &str) -> bool {
    let is_path = argument.starts_with(['/', '.', '~']) && Path::new(argument).is_file();
    argument.trim().contains(char::is_whitespace) || is_path
}

/// Whether a single word is the name or the path of a program.
fn is_program(word: &str) -> bool {
    if word.contains('/') {
        return Path::new(word).is_file();
    }
    on_path(word)
}

/// Returns the contracts of a catalogue server: the wanted ones, or its default.
fn held_to(server: &catalogue::CatalogueServer, wanted: &[Name]) -> anyhow::Result<Vec<Name>> {
    let has = &server.contracts;
    if wanted.is_empty() {
        let usual = has.iter().find(|name| **name == Name::Hello).or(has.first());
        return Ok(usual.into_iter().copied().collect());
    }
    match wanted.iter().find(|name| !has.contains(name)) {
        None => Ok(wanted.to_vec()),
        Some(lacking) => usage(format!(
            "{} does not have the contract {lacking}: it has {}",
            server.id,
            contract::named(has)
        )),
    }
}

/// Returns how a command is started, either split into words or by a shell.
fn launch(command: &str, shell: bool) -> anyhow::Result<Launch> {
    redact::command(command);
    let argv = if shell {
        ["sh", "-c", command].map(str::to_owned).to_vec()
    } else {
        match shell_words::split(command) {
            Ok(argv) if !argv.is_empty() => {
                if let Some(what) = shell_part(&argv) {
                    return usage(format!(
                        "{command:?} has {what}, which only a shell understands: add --shell"
                    ));
                }
                argv
            }
            Ok(_) => return usage("the command is empty: give a program to start"),
            Err(error) => return usage(format!("{command:?} cannot be split: {error}")),
        }
    };
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    Ok(Launch { argv, cwd, ..Launch::default() })
}

/// Returns a part of a command that only a shell understands, if there is any.
fn shell_part(argv: &[String]) -> Option<String> {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let first = &argv[0];
    if first.split_once('=').is_some_and(|(name, _)| is_name(name)) {
        return Some(format!("a variable ({first}) before the program"));
    }
    if first == "cd" {
        return Some("cd".to_owned());
    }
    const SIGNS: [&str; 11] = ["&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1", "&>"];
    let sign = argv.iter().find(|word| SIGNS.contains(&word.as_str()) || word.ends_with(';'));
    sign.map(|sign| format!("a {sign:?}"))
}

/// Resolves a server that is already running. `--path` overrides the path of the URL.
fn running(
    url: String,
    requests: &Requests,
    args: &RunArgs,
    https: bool,
) -> anyhow::Result<Source> {
    let mut resolved = resolve(&url)?;
    if let Endpoint::Tcp(address) = &resolved.target.endpoint
        && !address.ip().is_loopback()
        && !args.common.shape.allow_remote
    {
        return usage(format!(
            "{url} is possibly on another machine: pass --allow-remote if you are allowed to load \
             it"
        ));
    }
    let is_plain = resolved.target.tls.is_none();
    if is_plain && https {
        return usage(format!("{url} is not https, but the run is over TLS: write https://"));
    }
    tls::complete(&mut resolved.target, &args.common.tls)?;
    let mut requests = requests.clone();
    if args.common.request.requests_file.is_none()
        && requests.fields.order.is_none()
        && let [ask] = &mut requests.asks[..]
    {
        ask.path = args.common.request.path.clone().unwrap_or(resolved.path);
    }
    let origin = Origin::Running { url, target: resolved.target, host: resolved.host };
    Ok(Source::Custom(Box::new(origin), Box::new(requests)))
}

/// Returns a command with a request for `/`, or a URL with a request for its own path.
pub fn custom(argument: &str, shell: bool) -> anyhow::Result<(Origin, Ask)> {
    if !is_url(argument) {
        return Ok((Origin::Launch(launch(argument, shell)?), Ask::default()));
    }
    let resolved = resolve(argument)?;
    let ask = Ask { path: resolved.path, ..Ask::default() };
    let url = argument.to_owned();
    Ok((Origin::Running { url, target: resolved.target, host: resolved.host }, ask))
}

/// Returns the names in tables. Names from `--name` or the suite take precedence over the servers'
/// own names. Each name is unique.
fn names(
    meant: &[(usize, Meaning)],
    entries: &[Entry],
    given: &[String],
) -> anyhow::Result<Vec<String>> {
    if given.len() > meant.len() {
        let (given, servers) = (plural(given.len(), "name"), plural(meant.len(), "server"));
        return usage(format!(
            "{given} for {servers}: give at most one for each, in the same order"
        ));
    }
    let mut names: Vec<String> = Vec::new();
    let commands: Vec<&str> = meant.iter().filter_map(|(_, meaning)| meaning.command()).collect();
    let mut short = command_name::names(&commands).into_iter();
    for (i, (entry, meaning)) in meant.iter().enumerate() {
        let own = &match meaning {
            Meaning::Catalogue(server) => server.id.clone(),
            Meaning::Command(text) => short.next().unwrap_or_else(|| text.clone()),
            Meaning::Url(text) => text.clone(),
        };
        // A name in a suite applies to one server. If a pattern matches several servers, each keeps
        // its own name.
        let alone = meant.iter().filter(|(e, _)| e == entry).count() == 1;
        let told = entries[*entry].name.as_ref().filter(|_| alone);
        // A name is stored and shown, so credentials in a URL are removed.
        let wanted = redact::text(given.get(i).or(told).unwrap_or(own).trim());
        let wanted: String = wanted.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect();
        if given.get(i).is_some() && names.contains(&wanted) {
            return usage(format!("two servers are named {wanted}: give each its own name"));
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
    use super::super::entry::typed;
    use super::*;

    fn commands(texts: &[&str]) -> (Vec<(usize, Meaning)>, Vec<Entry>) {
        let entries = typed(&texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>(), false);
        let meant = entries.iter().map(|e| Meaning::Command(e.run.clone())).enumerate().collect();
        (meant, entries)
    }

    /// Regression: a command with a URL among its arguments was refused as a URL.
    #[test]
    fn a_url_begins_with_its_scheme() {
        for url in ["http://a/", "https://[::1]:8080/x", "unix:/run/app.sock:/"] {
            assert!(is_url(url), "{url}");
        }
        for command in [
            "./app --db postgres://u@h/x",
            "env DATABASE_URL=postgres://h/x ./app",
            "DB=postgres://h/x ./app",
            "./a://b",
        ] {
            assert!(!is_url(command), "{command}");
        }
    }

    #[test]
    fn what_only_a_shell_understands_is_named() {
        let part = |command: &str| shell_part(&shell_words::split(command).unwrap());
        for command in ["PORT=1 ./app", "cd x && ./app", "./app > log", "./a | cat", "./a; ./b"] {
            assert!(part(command).is_some(), "{command}");
        }
        for command in ["./app --a=1 'x && y'", "env A=1 ./app", "./app -DX=1"] {
            assert_eq!(part(command), None, "{command}");
        }
    }

    #[test]
    fn equal_commands_get_names_of_their_own() {
        let (meant, mut entries) =
            commands(&["node app.js", "node app.js", "node app.js", "ceiling"]);
        let expected = ["node app.js", "node app.js (2)", "node app.js (3)", "ceiling (2)"];
        assert_eq!(names(&meant, &entries, &[]).unwrap(), expected);
        assert_eq!(
            names(&meant[..2], &entries, &["old".to_owned()]).unwrap(),
            ["old", "node app.js"]
        );
        entries[1].name = Some("mine (4 threads)".to_owned());
        assert_eq!(names(&meant[..2], &entries, &[]).unwrap(), ["node app.js", "mine (4 threads)"]);
    }

    #[test]
    fn given_names_must_tell_servers_apart() {
        let (meant, entries) = commands(&["a", "b"]);
        let given = ["x", "x"].map(str::to_owned);
        assert!(names(&meant, &entries, &given).is_err());
        assert!(names(&meant[..1], &entries, &given).is_err());
    }

    #[test]
    fn a_command_is_split_as_a_shell_would() {
        let argv = launch("python3 -c 'print(1)' $PORT", false).unwrap().argv;
        assert_eq!(argv, ["python3", "-c", "print(1)", "$PORT"]);
        assert!(launch("echo 'open", false).is_err());
        let argv = launch("echo $PORT | cat", true).unwrap().argv;
        assert_eq!(argv, ["sh", "-c", "echo $PORT | cat"]);
    }
}
