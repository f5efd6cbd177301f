//! The starting grid: what was named becomes servers that can be started. Catalogue servers are
//! probed and built, URLs resolved, commands split; who cannot take part is kept, with the reason.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use hotlap_bench::participant::{Origin, Participant, Role};
use hotlap_bench::suite::Question;
use hotlap_load::plan::Endpoint;
use hotlap_servers::contract::{Ask, Contract, Name};
use hotlap_servers::launch::Launch;
use hotlap_servers::manifest::{self, ServerKind};
use hotlap_servers::process::Supervisor;
use hotlap_servers::toolchain::Unready;
use hotlap_servers::verify::Requirements;

use super::card::Card;
use super::named::{CEILING, Named, What, is_url, must_apply, named, names};
use crate::cli::RunArgs;
use crate::cmd::build::build_all;
use crate::cmd::load::requests::resolve;
use crate::console::Console;
use crate::exit::usage;
use crate::interrupt::Interrupt;
use crate::model::{Part, Published, Server, ServerFailure, Than};
use crate::redact;

/// Who takes part.
#[derive(Debug)]
pub struct Grid {
    /// Those that can be started, in the experiment's order.
    pub participants: Vec<Participant>,
    /// All of them as records: the participants in their order, then those that cannot take part.
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
        let mut grid =
            Self { participants: Vec::new(), servers: Vec::new(), contract: String::new() };
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
            let participant = Participant {
                cpus: told.cpus.as_ref().map(|(n, _)| *n).or(card.cpus),
                counts: told.counts.clone().or_else(|| plain.counts.clone()),
                ..plain
            };
            let about = match what {
                What::Catalogue(server) => server.about.clone(),
                _ => String::new(),
            };
            grid.servers.push(Server { about, ..Server::from(&participant) });
            grid.participants.push(participant);
            runners.push(*runner);
        }
        if named.is_empty() || (grid.participants.is_empty() && card.leaves_out_missing()) {
            console.note("No toolchain of this suite is here: the ceiling runs alone.");
        }
        grid.contract = grid.title(&card.ask);
        let absent: Vec<&str> = out.iter().map(|(_, s)| s.name.as_str()).collect();
        grid.choose_reference(card, &runners, &absent)?;
        if !args.schedule.no_ceiling && !grid.all_run_already() {
            grid.add(ceiling()?);
        }
        // Those in between are the control and the ceiling, which nobody named.
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
                    Question::Layers if before().is_some() => before(),
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
        let own = |e: &&Participant| e.role != Role::Ceiling;
        let runs = |e: &Participant| matches!(e.start, Origin::Running { .. });
        self.participants.iter().filter(own).all(runs)
    }

    fn add(&mut self, participant: Participant) {
        self.servers.push(Server::from(&participant));
        self.participants.push(participant);
    }

    /// What all are asked for, in a word or two.
    fn title(&self, ask: &Ask) -> String {
        let mut titles: Vec<String> = Vec::new();
        for participant in &self.participants {
            let title = match participant.contract.name {
                Some(name) => name.to_string(),
                None => format!("{} {}", ask.method, participant.contract.exchanges[0].path),
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
        let first = (!self.participants.is_empty()).then_some(0);
        let found = match (&card.reference, &card.suite) {
            (Some(name), _) => {
                let known = redact::text(name);
                let found = self.participants.iter().position(|e| e.name == known);
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
        if let Some(reference) = found.filter(|_| self.participants.len() > 1) {
            self.participants[reference].role = Role::Reference;
            self.servers[reference].role = Role::Reference;
            let name = format!("{} (again)", self.participants[reference].name);
            let double =
                Participant { name, role: Role::Control, ..self.participants[reference].clone() };
            self.add(double);
        }
        Ok(())
    }
}

/// A command or a URL as a participant, asked for `/` or the URL's own path.
///
/// # Errors
/// When it is neither.
pub fn custom(argument: &str, shell: bool) -> anyhow::Result<Participant> {
    if !is_url(argument) {
        return commanded(argument, argument, &Ask::default(), shell);
    }
    let resolved = resolve(argument)?;
    let ask = Ask { path: resolved.path, ..Ask::default() };
    Ok(Participant {
        name: argument.to_owned(),
        role: Role::Plain,
        start: Origin::Running {
            url: argument.to_owned(),
            target: resolved.target,
            host: resolved.host,
        },
        contract: Contract::custom(&ask),
        requirements: Requirements::Custom,
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
    let supervisor =
        Supervisor::this_program("__supervisor").context("cannot find hotlap's own program")?;
    let results = build_all(&servers, &supervisor, interrupt, console)?;
    let launched = servers.iter().zip(results).map(|(server, result)| {
        let ready = result.map(|built| (built.launch(server), built.version.clone()));
        (server.id.clone(), ready)
    });
    Ok(launched.collect())
}

/// A participant from the catalogue, under `wanted` or its usual contract.
///
/// # Errors
/// When it does not answer that contract.
pub fn catalogued(
    name: &str,
    server: &manifest::Server,
    wanted: Option<Name>,
    launch: Launch,
    version: String,
) -> anyhow::Result<Participant> {
    let usual = server.contracts.iter().copied().find(|c| *c == Name::Hello);
    let contract = wanted.or(usual).or_else(|| server.contracts.first().copied());
    let Some(contract) = contract.filter(|c| server.contracts.contains(c)) else {
        let has = server.contracts.iter().map(|c| c.as_str()).collect::<Vec<_>>().join(", ");
        return usage(format!("{} does not answer that contract: it answers {has}", server.id));
    };
    Ok(Participant {
        name: name.to_owned(),
        role: Role::Plain,
        start: Origin::Launch(launch),
        contract: Contract::of(contract, server.api.as_ref()),
        requirements: Requirements::Catalogue { kind: server.kind, keep_alive: server.keep_alive },
        version,
        counts: server.counts.clone(),
        cpus: None,
    })
}

fn commanded(name: &str, command: &str, ask: &Ask, shell: bool) -> anyhow::Result<Participant> {
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
    Ok(Participant {
        name: name.to_owned(),
        role: Role::Plain,
        start: Origin::Launch(Launch { argv, env: BTreeMap::new(), cwd }),
        contract: Contract::custom(ask),
        requirements: Requirements::Custom,
        version: String::new(),
        counts: None,
        cpus: None,
    })
}

fn running(name: &str, url: &str, ask: &Ask, args: &RunArgs) -> anyhow::Result<Participant> {
    let mut resolved = resolve(url)?;
    if let Endpoint::Tcp(address) = &resolved.target.endpoint
        && !address.ip().is_loopback()
        && !args.shape.allow_remote
    {
        return usage(format!(
            "{url} is not on this machine: say --allow-remote if you may load it"
        ));
    }
    if let Some(tls) = &mut resolved.target.tls {
        tls.insecure = args.request.insecure;
    }
    // A path of the URL's own is what is asked for, unless --path says otherwise.
    let path = args.request.path.clone().unwrap_or(resolved.path);
    Ok(Participant {
        name: name.to_owned(),
        role: Role::Plain,
        start: Origin::Running {
            url: url.to_owned(),
            target: resolved.target,
            host: resolved.host,
        },
        contract: Contract::custom(&Ask { path, ..ask.clone() }),
        requirements: Requirements::Custom,
        version: String::new(),
        counts: None,
        cpus: None,
    })
}

/// hotlap itself, as the least server that answers rightly.
fn ceiling() -> anyhow::Result<Participant> {
    let program = std::env::current_exe().context("cannot find hotlap's own program")?;
    let argv = vec![program.to_string_lossy().into_owned(), "__ceiling".to_owned()];
    Ok(Participant {
        name: CEILING.to_owned(),
        role: Role::Ceiling,
        start: Origin::Launch(Launch { argv, env: BTreeMap::new(), cwd: std::env::temp_dir() }),
        contract: Contract::of(Name::Hello, None),
        requirements: Requirements::Catalogue { kind: ServerKind::HandWritten, keep_alive: true },
        version: format!("hotlap {}", env!("CARGO_PKG_VERSION")),
        counts: None,
        cpus: None,
    })
}

/// A server of the catalogue that cannot take part.
fn absent(name: &str, server: &manifest::Server, why: &Unready) -> Server {
    let failure = match why {
        Unready::Absent(absence) => ServerFailure {
            phase: "toolchain".to_owned(),
            cause: format!("{}: {}", absence.command, absence.why),
            log_tail: Vec::new(),
            remedy: absence.remedy.clone(),
        },
        Unready::Failed(error) => ServerFailure {
            phase: "build".to_owned(),
            cause: format!("{}: {}", error.what, error.cause),
            log_tail: error.log_tail.clone(),
            remedy: error.remedy.clone(),
        },
    };
    Server {
        name: name.to_owned(),
        role: Role::Plain,
        command: shell_words::join(&server.command),
        version: String::new(),
        about: server.about.clone(),
        published: Vec::new(),
        part: Part::default(),
        failure: Some(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_as_a_shell_would() {
        let participant = commanded("a", "python3 -c 'print(1)' $PORT", &Ask::default(), false);
        let Origin::Launch(launch) = participant.unwrap().start else { panic!("not launched") };
        assert_eq!(launch.argv, ["python3", "-c", "print(1)", "$PORT"]);
        assert!(commanded("a", "echo 'open", &Ask::default(), false).is_err());
        let participant = commanded("a", "echo $PORT | cat", &Ask::default(), true).unwrap();
        let Origin::Launch(launch) = participant.start else { panic!("not launched") };
        assert_eq!(launch.argv, ["sh", "-c", "echo $PORT | cat"]);
    }
}
