//! The starting grid: what was named becomes servers that can be started. Catalogue servers are
//! probed and built, URLs resolved, commands split; who cannot take part is kept, with the reason.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::Context;
use hotlap_bench::participant::{Entrant, Role, Start};
use hotlap_bench::suite::Question;
use hotlap_load::plan::Endpoint;
use hotlap_servers::contract::{Ask, Contract, Name};
use hotlap_servers::launch::Launch;
use hotlap_servers::manifest::{self, Kind};
use hotlap_servers::process::Warden;
use hotlap_servers::toolchain::{Builder, Event, Unready};
use hotlap_servers::verify::Demand;

use super::card::Card;
use super::named::{CEILING, Named, What, is_url, must_apply, named, names};
use crate::cli::RunArgs;
use crate::cmd::load::requests::resolve;
use crate::console::Console;
use crate::exit::usage;
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::model::{Part, Published, Retired, Server, Than};
use crate::redact;
use crate::shelf;

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

impl Grid {
    /// Makes ready what the command line names.
    ///
    /// # Errors
    /// When a name means nothing, or the request makes no sense.
    pub fn of(
        card: &Card,
        args: &RunArgs,
        interrupt: &Interrupt,
        console: &Console,
    ) -> anyhow::Result<Self> {
        let named = named(card)?;
        must_apply(&named, args)?;
        let names = names(&named, &card.runners, &card.names)?;
        let mut grid = Self { entrants: Vec::new(), servers: Vec::new(), contract: String::new() };
        let (mut out, mut runners) = (Vec::new(), Vec::new());
        let built = build(&named, args, interrupt, console)?;
        for (Named { runner, what }, name) in named.iter().zip(&names) {
            let plain = match what {
                What::Catalogue(server) => {
                    match built.get(&server.id).context("a server was not built")? {
                        Ok((launch, version)) => catalogued(
                            name,
                            server,
                            card.contract,
                            launch.clone(),
                            version.clone(),
                        )?,
                        Err(Unready::Absent(why)) if card.leaves_out_missing() => {
                            console.note(&format!("{} is left out: {why}", server.id));
                            continue;
                        }
                        Err(why) => {
                            out.push((*runner, absent(name, server, why)));
                            continue;
                        }
                    }
                }
                What::Command(command) => commanded(name, command, &card.ask, args.shell)?,
                What::Url(url) => running(name, url, &card.ask, args)?,
            };
            let told = &card.runners[*runner];
            let entrant = Entrant {
                cpus: told.cpus.as_ref().map(|(n, _)| *n).or(card.cpus),
                counts: told.counts.clone().or_else(|| plain.counts.clone()),
                ..plain
            };
            let about = match what {
                What::Catalogue(server) => server.about.clone(),
                _ => String::new(),
            };
            grid.servers.push(Server { about, ..Server::from(&entrant) });
            grid.entrants.push(entrant);
            runners.push(*runner);
        }
        if named.is_empty() || (grid.entrants.is_empty() && card.leaves_out_missing()) {
            console.note("No toolchain of this suite is here: the ceiling runs alone.");
        }
        grid.contract = grid.title(&card.ask);
        let absent: Vec<&str> = out.iter().map(|(_, s)| s.name.as_str()).collect();
        grid.choose_reference(card, &runners, &absent)?;
        if !args.schedule.no_ceiling && !grid.all_run_already() {
            grid.add(ceiling()?);
        }
        // Those in between are the double and the ceiling, which nobody named.
        runners.resize(grid.servers.len(), usize::MAX);
        for (runner, server) in out {
            runners.push(runner);
            grid.servers.push(server);
        }
        grid.assign(card, &runners);
        Ok(grid)
    }

    /// Gives each server its part and its published figures; `runners` says who on the card each
    /// server is.
    fn assign(&mut self, card: &Card, runners: &[usize]) {
        let server = |runner: usize| runners.iter().position(|r| *r == runner);
        for (place, own) in runners.iter().enumerate() {
            let Some(runner) = card.runners.get(*own) else { continue };
            let before = || place.checked_sub(1).filter(|p| runners[*p] == *own);
            self.servers[place].part = Part {
                // Servers that one pattern means stand on each other.
                on: match card.question {
                    Question::Ladder if before().is_some() => before(),
                    _ => runner.on.and_then(|on| runners.iter().rposition(|r| *r == on)),
                },
                cpus: runner.cpus.as_ref().map(|(n, _)| *n),
                base: runner.cpus.as_ref().map_or_else(String::new, |(_, base)| base.clone()),
            };
            let published = runner.published.iter().cloned().map(|p| Published {
                than: p.than.and_then(|t| Some(Than { server: server(t.server)?, ..t })),
                ..p
            });
            self.servers[place].published = published.collect();
        }
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
    fn choose_reference(
        &mut self,
        card: &Card,
        runners: &[usize],
        absent: &[&str],
    ) -> anyhow::Result<()> {
        let first = (!self.entrants.is_empty()).then_some(0);
        let found = match (&card.reference, &card.suite) {
            (Some(name), _) => {
                let known = redact::text(name);
                let found = self.entrants.iter().position(|e| e.name == known);
                if found.is_none() && !absent.contains(&name.as_str()) {
                    return usage(format!(
                        "--reference names {name}, which is none of the servers"
                    ));
                }
                found
            }
            (None, Some(suite)) => runners.iter().position(|r| *r == suite.reference).or(first),
            (None, None) => first,
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
        cpus: None,
    })
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
        if let What::Catalogue(server) = &named.what
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
    let warden = Warden::this_program("__warden").context("cannot find hotlap's own program")?;
    let results = build_all(&servers, &warden, interrupt, console)?;
    let launched = servers.iter().zip(results).map(|(server, result)| {
        let ready = result.map(|built| (built.launch(server), built.version.clone()));
        (server.id.clone(), ready)
    });
    Ok(launched.collect())
}

/// Builds servers; results in their order. A live line names what is under way.
///
/// # Errors
/// When there is no folder to build in.
pub fn build_all(
    servers: &[&manifest::Server],
    warden: &Warden,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Vec<Result<hotlap_servers::toolchain::Built, Unready>>> {
    let live = Mutex::new(Live::start(console));
    let say = |act: &dyn Fn(&Live)| {
        if let Ok(live) = live.lock() {
            act(&live);
        }
    };
    let cache = shelf::cache()?;
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
    Ok(Builder { cache: &cache, warden, stop: interrupt.flag(), on: &on }.build_all(servers))
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
        cpus: None,
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
        cpus: None,
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
        cpus: None,
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
        cpus: None,
    })
}

/// A server of the catalogue that cannot take part.
fn absent(name: &str, server: &manifest::Server, why: &Unready) -> Server {
    let retired = match why {
        Unready::Absent(absence) => Retired {
            phase: "toolchain".to_owned(),
            cause: format!("{}: {}", absence.command, absence.why),
            last_words: Vec::new(),
            cure: absence.cure.clone(),
        },
        Unready::Failed(error) => Retired {
            phase: "build".to_owned(),
            cause: format!("{}: {}", error.what, error.cause),
            last_words: error.last_words.clone(),
            cure: error.cure.clone(),
        },
    };
    Server {
        name: name.to_owned(),
        role: Role::Contestant,
        command: shell_words::join(&server.command),
        version: String::new(),
        about: server.about.clone(),
        published: Vec::new(),
        part: Part::default(),
        retired: Some(retired),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
