//! The starting grid: what was named becomes servers that can be started. Catalogue servers are
//! probed and built, URLs resolved, commands split; who cannot take part is kept, with the reason.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Context;
use hotlap_harness::catalogue::Catalogue;
use hotlap_harness::contract::{Ask, Contract, Name};
use hotlap_harness::entrant::{Entrant, Launch, Role, Start};
use hotlap_harness::manifest::{self, Kind};
use hotlap_harness::toolchain::{Builder, Event, Unready, probe_all};
use hotlap_harness::verify::Demand;
use hotlap_load::plan::Endpoint;

use crate::cli::{RequestArgs, RunArgs};
use crate::cmd::load::requests::{headers, method, resolve, text_or_file};
use crate::console::Console;
use crate::exit::usage;
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::record::{Retired, Server};
use crate::shelf;

/// Raced when nothing is named, as far as this machine can build them.
const QUICK: [&str; 5] = ["go/net-http", "rust/hyper", "node/http", "java/jetty", "python/epoll"];

/// What the ceiling is called in tables.
const CEILING: &str = "ceiling";

/// Who takes part.
#[derive(Debug)]
pub struct Grid {
    /// Those that can be started, in the race's order.
    pub entrants: Vec<Entrant>,
    /// All of them as records: the entrants in their order, then those that cannot take part.
    pub servers: Vec<Server>,
    /// The contract's name, or what is asked.
    pub contract: String,
}

/// One of the servers named, before it is known whether it can be started.
enum Named {
    Catalogue(Box<manifest::Server>),
    Command(String),
    Url(String),
}

impl Grid {
    /// Makes ready what the command line names.
    ///
    /// # Errors
    /// When a name means nothing, or the request makes no sense.
    pub fn of(args: &RunArgs, interrupt: &Interrupt, console: &Console) -> anyhow::Result<Self> {
        let ask = ask(&args.request)?;
        let contract = contract(args)?;
        let named = named(args, interrupt, console)?;
        let names = names(&named, &args.names)?;
        let mut grid = Self { entrants: Vec::new(), servers: Vec::new(), contract: String::new() };
        let mut out = Vec::new();
        let mut built = build(&named, args, interrupt, console)?;
        for (named, name) in named.iter().zip(&names) {
            let entrant = match named {
                Named::Catalogue(server) => {
                    match built.remove(&server.id).context("a server was not built")? {
                        Ok((launch, version)) => {
                            catalogued(name, server, contract, launch, version)?
                        }
                        Err(why) => {
                            out.push(absent(name, server, why));
                            continue;
                        }
                    }
                }
                Named::Command(command) => commanded(name, command, &ask, args.shell)?,
                Named::Url(url) => running(name, url, &ask, args)?,
            };
            let about = match named {
                Named::Catalogue(server) => server.about.clone(),
                _ => String::new(),
            };
            grid.servers.push(Server { about, ..Server::from(&entrant) });
            grid.entrants.push(entrant);
        }
        grid.contract = grid.title(&ask);
        grid.choose_reference(args.reference.as_deref(), &out)?;
        if !args.schedule.no_ceiling && !grid.all_run_already() {
            grid.add(ceiling()?);
        }
        grid.servers.extend(out);
        Ok(grid)
    }

    /// Whether hotlap starts none of them.
    #[must_use]
    pub fn all_run_already(&self) -> bool {
        let own = |e: &&Entrant| e.role != Role::Ceiling;
        let runs = |e: &Entrant| matches!(e.start, Start::Running { .. });
        self.entrants.iter().filter(own).all(runs)
    }

    fn add(&mut self, entrant: Entrant) {
        self.servers.push(Server::from(&entrant));
        self.entrants.push(entrant);
    }

    /// What all are asked for, in a word or two.
    fn title(&self, ask: &Ask) -> String {
        let mut titles: Vec<String> = Vec::new();
        for entrant in &self.entrants {
            let title = match entrant.contract.name {
                Some(name) => name.to_string(),
                None => format!("{} {}", ask.method, entrant.contract.exchanges[0].path),
            };
            if !titles.contains(&title) {
                titles.push(title);
            }
        }
        titles.join(", ")
    }

    /// The first that can take part, unless another is named; it runs a second time, hidden.
    fn choose_reference(&mut self, named: Option<&str>, out: &[Server]) -> anyhow::Result<()> {
        let found = match named {
            None => (!self.entrants.is_empty()).then_some(0),
            Some(name) => {
                let found = self.entrants.iter().position(|e| e.name == name);
                if found.is_none() && !out.iter().any(|s| s.name == name) {
                    return usage(format!(
                        "--reference names {name}, which is none of the servers"
                    ));
                }
                found
            }
        };
        if let Some(reference) = found.filter(|_| self.entrants.len() > 1) {
            self.entrants[reference].role = Role::Reference;
            self.servers[reference].role = Role::Reference;
            let name = format!("{} (again)", self.entrants[reference].name);
            let double = Entrant { name, role: Role::Double, ..self.entrants[reference].clone() };
            self.add(double);
        }
        Ok(())
    }
}

/// The request for commands and URLs.
fn ask(args: &RequestArgs) -> anyhow::Result<Ask> {
    let body = args.body.as_deref().map(text_or_file).transpose()?.unwrap_or_default();
    let usual = if body.is_empty() { "GET" } else { "POST" };
    let path = args.path.clone().unwrap_or_else(|| "/".to_owned());
    if !path.starts_with('/') || path.chars().any(|c| c.is_control() || c == ' ') {
        return usage(format!("{path:?} is no path: it begins with / and has no blanks"));
    }
    Ok(Ask {
        method: method(args.method.as_deref().unwrap_or(usual))?,
        path,
        headers: headers(&args.headers)?,
        body,
        status: args.expect_status,
        answer: args.expect_body.as_deref().map(text_or_file).transpose()?,
    })
}

fn contract(args: &RunArgs) -> anyhow::Result<Option<Name>> {
    let Some(name) = args.request.contract.as_deref() else { return Ok(None) };
    let all = Name::ALL.map(Name::as_str).join(", ");
    match Name::of(name) {
        Some(name) => Ok(Some(name)),
        None => usage(format!("no contract is called {name}: there are {all}")),
    }
}

/// What each argument means. Nothing named means the quick suite.
fn named(args: &RunArgs, interrupt: &Interrupt, console: &Console) -> anyhow::Result<Vec<Named>> {
    if args.servers.is_empty() {
        return quick(interrupt, console);
    }
    let mut catalogue = None;
    let mut named = Vec::new();
    for argument in &args.servers {
        if is_url(argument) {
            named.push(Named::Url(argument.clone()));
        } else if is_command(argument) {
            named.push(Named::Command(argument.clone()));
        } else {
            let catalogue = match &mut catalogue {
                Some(catalogue) => catalogue,
                none => none.insert(Catalogue::open(&shelf::servers()?)?),
            };
            match catalogue.select(argument) {
                Ok(found) => {
                    named.extend(found.into_iter().map(|s| Named::Catalogue(Box::new(s.clone()))))
                }
                Err(_) if is_program(argument) => named.push(Named::Command(argument.clone())),
                Err(error) => return usage(error.to_string()),
            }
        }
    }
    Ok(named)
}

fn is_url(argument: &str) -> bool {
    argument.contains("://") || argument.starts_with("unix:")
}

/// Whether an argument names no server of the catalogue: a command or a URL.
#[must_use]
pub fn is_stranger(argument: &str) -> bool {
    is_url(argument) || is_command(argument)
}

/// A command or a URL as an entrant, asked for `/` or the URL's own path.
///
/// # Errors
/// When it is neither.
pub fn stranger(argument: &str, shell: bool) -> anyhow::Result<Entrant> {
    if !is_url(argument) {
        return commanded(argument, argument, &Ask::default(), shell);
    }
    let resolved = resolve(argument)?;
    let ask = Ask { path: resolved.path, ..Ask::default() };
    Ok(Entrant {
        name: argument.to_owned(),
        role: Role::Contestant,
        start: Start::Running {
            url: argument.to_owned(),
            target: resolved.target,
            host: resolved.host,
        },
        contract: Contract::stranger(&ask),
        demand: Demand::Stranger,
        version: String::new(),
        counts: None,
    })
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

/// The servers of the quick suite that this machine can build.
fn quick(interrupt: &Interrupt, console: &Console) -> anyhow::Result<Vec<Named>> {
    let catalogue = Catalogue::open(&shelf::servers()?)?;
    let wanted: Vec<&manifest::Server> = QUICK.iter().filter_map(|id| catalogue.find(id)).collect();
    let mut named = Vec::new();
    for (server, probed) in wanted.iter().zip(probe_all(&wanted, interrupt.flag())) {
        match probed {
            Ok(_) => named.push(Named::Catalogue(Box::new((*server).clone()))),
            Err(absence) => console.note(&format!("{} is left out: {absence}", server.id)),
        }
    }
    if named.is_empty() {
        console.note("No toolchain of the quick suite is here: the ceiling runs alone.");
    }
    Ok(named)
}

/// What tables call them: given names first, then their own, each once.
fn names(named: &[Named], given: &[String]) -> anyhow::Result<Vec<String>> {
    if given.len() > named.len() {
        let (given, servers) = (given.len(), named.len());
        return usage(format!(
            "{given} names for {servers} servers: give one each, in their order"
        ));
    }
    let mut names: Vec<String> = Vec::new();
    for (i, named) in named.iter().enumerate() {
        let own = match named {
            Named::Catalogue(server) => &server.id,
            Named::Command(text) | Named::Url(text) => text,
        };
        let wanted = given.get(i).unwrap_or(own).trim();
        let wanted: String = wanted.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
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

type Readied = Result<(Launch, String), Unready>;

/// Builds what comes from the catalogue; with `--setup`, installs what is missing first.
fn build(
    named: &[Named],
    args: &RunArgs,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<BTreeMap<String, Readied>> {
    let mut servers: Vec<&manifest::Server> = Vec::new();
    for named in named {
        if let Named::Catalogue(server) = named
            && !servers.iter().any(|s| s.id == server.id)
        {
            servers.push(server);
        }
    }
    if servers.is_empty() {
        return Ok(BTreeMap::new());
    }
    if args.setup {
        crate::cmd::setup::install(&servers, true, interrupt, console)?;
    }
    let results = build_all(&servers, interrupt, console);
    let launched = servers.iter().zip(results).map(|(server, result)| {
        let ready = result.map(|built| (built.launch(server), built.version.clone()));
        (server.id.clone(), ready)
    });
    Ok(launched.collect())
}

/// Builds servers; results in their order. A live line names what is under way.
#[must_use]
pub fn build_all(
    servers: &[&manifest::Server],
    interrupt: &Interrupt,
    console: &Console,
) -> Vec<Result<hotlap_harness::toolchain::Built, Unready>> {
    let live = Mutex::new(Live::start(console));
    let say = |act: &dyn Fn(&Live)| {
        if let Ok(live) = live.lock() {
            act(&live);
        }
    };
    let cache = shelf::cache();
    let on = |event: Event<'_>| match event {
        Event::Built { server, built } if built.fresh => {
            let took = built.took.as_secs_f64();
            say(&|live| live.say(&format!("built {server} in {took:.0} s")));
        }
        Event::Step { server, command, .. } => {
            say(&|live| live.phase(format!("building {server}: {command}")));
        }
        _ => {}
    };
    Builder { cache: &cache, stop: interrupt.flag(), on: &on }.build_all(servers)
}

/// An entrant from the catalogue, under `wanted` or its usual contract.
///
/// # Errors
/// When it does not answer that contract.
pub fn catalogued(
    name: &str,
    server: &manifest::Server,
    wanted: Option<Name>,
    launch: Launch,
    version: String,
) -> anyhow::Result<Entrant> {
    let usual = server.contracts.iter().copied().find(|c| *c == Name::Hello);
    let contract = wanted.or(usual).or_else(|| server.contracts.first().copied());
    let Some(contract) = contract.filter(|c| server.contracts.contains(c)) else {
        let has = server.contracts.iter().map(|c| c.as_str()).collect::<Vec<_>>().join(", ");
        return usage(format!("{} does not answer that contract: it answers {has}", server.id));
    };
    Ok(Entrant {
        name: name.to_owned(),
        role: Role::Contestant,
        start: Start::Launch(launch),
        contract: Contract::of(contract, server.api.as_ref()),
        demand: Demand::Catalogue { kind: server.kind, keep_alive: server.keep_alive },
        version,
        counts: server.counts.clone(),
    })
}

fn commanded(name: &str, command: &str, ask: &Ask, shell: bool) -> anyhow::Result<Entrant> {
    let argv = if shell {
        ["sh", "-c", command].map(str::to_owned).to_vec()
    } else {
        match shell_words::split(command) {
            Ok(argv) if !argv.is_empty() => argv,
            Ok(_) => return usage("an empty command starts nothing"),
            Err(error) => return usage(format!("{command:?} cannot be split: {error}")),
        }
    };
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    Ok(Entrant {
        name: name.to_owned(),
        role: Role::Contestant,
        start: Start::Launch(Launch { argv, env: BTreeMap::new(), cwd }),
        contract: Contract::stranger(ask),
        demand: Demand::Stranger,
        version: String::new(),
        counts: None,
    })
}

fn running(name: &str, url: &str, ask: &Ask, args: &RunArgs) -> anyhow::Result<Entrant> {
    let mut resolved = resolve(url)?;
    if let Endpoint::Tcp(address) = &resolved.target.endpoint
        && !address.ip().is_loopback()
        && !args.shape.target_is_mine
    {
        return usage(format!(
            "{url} is not on this machine: say --target-is-mine if you may load it"
        ));
    }
    if let Some(tls) = &mut resolved.target.tls {
        tls.insecure = args.request.insecure;
    }
    // A path of the URL's own is what is asked for, unless --path says otherwise.
    let path = args.request.path.clone().unwrap_or(resolved.path);
    Ok(Entrant {
        name: name.to_owned(),
        role: Role::Contestant,
        start: Start::Running { url: url.to_owned(), target: resolved.target, host: resolved.host },
        contract: Contract::stranger(&Ask { path, ..ask.clone() }),
        demand: Demand::Stranger,
        version: String::new(),
        counts: None,
    })
}

/// hotlap itself, as the least server that answers rightly.
fn ceiling() -> anyhow::Result<Entrant> {
    let program = std::env::current_exe().context("cannot find hotlap's own program")?;
    let argv = vec![program.to_string_lossy().into_owned(), "__ceiling".to_owned()];
    Ok(Entrant {
        name: CEILING.to_owned(),
        role: Role::Ceiling,
        start: Start::Launch(Launch { argv, env: BTreeMap::new(), cwd: std::env::temp_dir() }),
        contract: Contract::of(Name::Hello, None),
        demand: Demand::Catalogue { kind: Kind::HandWritten, keep_alive: true },
        version: format!("hotlap {}", env!("CARGO_PKG_VERSION")),
        counts: None,
    })
}

/// A server of the catalogue that cannot take part.
fn absent(name: &str, server: &manifest::Server, why: Unready) -> Server {
    let retired = match why {
        Unready::Absent(absence) => Retired {
            phase: "toolchain".to_owned(),
            cause: format!("{}: {}", absence.command, absence.why),
            last_words: Vec::new(),
            cure: absence.cure,
        },
        Unready::Failed(error) => Retired {
            phase: "build".to_owned(),
            cause: format!("{}: {}", error.what, error.cause),
            last_words: error.last_words,
            cure: error.cure,
        },
    };
    Server {
        name: name.to_owned(),
        role: Role::Contestant,
        command: shell_words::join(&server.command),
        version: String::new(),
        about: server.about.clone(),
        published: None,
        retired: Some(retired),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(texts: &[&str]) -> Vec<Named> {
        texts.iter().map(|t| Named::Command((*t).to_owned())).collect()
    }

    #[test]
    fn equal_commands_get_names_of_their_own() {
        let named = commands(&["node app.js", "node app.js", "node app.js", "ceiling"]);
        let expected = ["node app.js", "node app.js (2)", "node app.js (3)", "ceiling (2)"];
        assert_eq!(names(&named, &[]).unwrap(), expected);
        assert_eq!(names(&named[..2], &["old".to_owned()]).unwrap(), ["old", "node app.js"]);
    }

    #[test]
    fn given_names_must_tell_servers_apart() {
        let named = commands(&["a", "b"]);
        let given = ["x", "x"].map(str::to_owned);
        assert!(names(&named, &given).is_err());
        assert!(names(&named[..1], &given).is_err());
    }

    #[test]
    fn a_command_is_split_as_a_shell_would() {
        let entrant = commanded("a", "python3 -c 'print(1)' $PORT", &Ask::default(), false);
        let Start::Launch(launch) = entrant.unwrap().start else { panic!("not launched") };
        assert_eq!(launch.argv, ["python3", "-c", "print(1)", "$PORT"]);
        assert!(commanded("a", "echo 'open", &Ask::default(), false).is_err());
        let entrant = commanded("a", "echo $PORT | cat", &Ask::default(), true).unwrap();
        let Start::Launch(launch) = entrant.start else { panic!("not launched") };
        assert_eq!(launch.argv, ["sh", "-c", "echo $PORT | cat"]);
    }
}
