//! `--dry-run`: describes what a run would do. Toolchains are checked as in `hotlap list`, but no
//! server is built or started, and nothing is stored.

use std::path::PathBuf;
use std::time::Duration;

use hotlap_bench::experiment::{Experiment, Explain};
use hotlap_bench::local::Forecast;
use hotlap_bench::participant::Origin;
use hotlap_servers::build::probe_all;
use hotlap_servers::catalogue::CatalogueServer;

use super::measure::Prepared;
use super::participants::{Builds, Participants, from_catalogue};
use super::spec::server::Source;
use super::spec::{RunSpec, Storage};
use super::timing;
use crate::console::Console;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::model::{Role, Run, Server};
use crate::paths;
use crate::report::{cores_in_words, request_and_load};
use crate::store::Store;
use crate::text::hanging;
use crate::text::number::{percent, plural};

/// Returns the results of the builds, as if every server with an installed toolchain were built.
pub fn probe(spec: &RunSpec, interrupt: &Interrupt) -> Builds {
    let servers = from_catalogue(spec);
    let probed = probe_all(&servers, interrupt.flag());
    let launch = |server: &CatalogueServer| server.launch(server.folder.clone());
    let built = servers.into_iter().zip(probed).map(|(server, probed)| {
        (server.id.clone(), probed.map(|_| (launch(server), String::new())).map_err(Into::into))
    });
    built.collect()
}

/// Prints the plan of a run.
pub fn run(
    spec: &RunSpec,
    participants: &Participants,
    earlier: Option<Run>,
    store: Option<&Store>,
    console: &Console,
) -> anyhow::Result<Exit> {
    let Prepared { experiment, run, .. } = Prepared::new(spec, participants, earlier, console)?;
    let schedule = experiment.map_or_else(Vec::new, |own| schedule(&own, &run, store));
    let mut text = "A dry run: nothing is built, started or stored.\n".to_owned();
    let mut section = |heading: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            text += &format!("\n{heading}:\n");
            lines.iter().for_each(|line| text += &hanging(line, 2, console.width));
        }
    };
    section("Servers", run.servers.iter().map(|server| described(spec, server)).collect());
    section("Loads", run.loads.iter().map(request_and_load).collect());
    section("Schedule", schedule);
    section("Stress", stressed(spec, participants, &run));
    section("Cores", vec![cores(&run)]);
    section("Output", output(spec));
    console.print(&text)?;
    Ok(Exit::Ok)
}

/// Describes a server: its name, its role, and how it would be started.
fn described(spec: &RunSpec, server: &Server) -> String {
    let role = match server.role {
        Role::Plain => "",
        Role::Reference => "reference; ",
        Role::Control => return format!("{}: A/A control", server.name),
        Role::Ceiling => return format!("{}: hotlap's own minimal server", server.name),
    };
    let meant = spec.servers.iter().find(|meant| meant.name == server.name);
    let start = match (&server.failure, meant.map(|meant| &meant.source)) {
        (Some(failure), _) if spec.install && failure.phase == "toolchain" => {
            "to be built after its toolchain is installed".to_owned()
        }
        (Some(failure), _) => {
            format!("cannot take part: {}; {}", failure.cause, failure.remedy)
        }
        (None, Some(Source::Catalogue(own, _))) => match own.toolchain.build.as_slice() {
            [] => "no build needed".to_owned(),
            commands => {
                let commands: Vec<String> = commands.iter().map(shell_words::join).collect();
                format!("built if necessary: {}", commands.join("; "))
            }
        },
        (None, Some(Source::Custom(origin, _))) if matches!(**origin, Origin::Running { .. }) => {
            "runs already".to_owned()
        }
        (None, _) => format!("started with: {}", server.command),
    };
    format!("{}: {role}{start}", server.name)
}

/// Describes the restarts, rounds, slices and time.
fn schedule(experiment: &Experiment, run: &Run, store: Option<&Store>) -> Vec<String> {
    let forecast = timing::forecast(experiment, store);
    let mut lines = match (experiment.objectives.is_empty(), experiment.explain) {
        (true, Explain::Only) => vec![EXPLAINS.to_owned()],
        (true, _) => rounds(experiment, run, &forecast),
        (false, _) => searches(experiment),
    };
    if let Explain::After(time) = experiment.explain {
        lines.push(format!("then {EXPLAINS}, for about {}", seconds(time)));
    }
    if !run.schedule.freeze {
        lines.push("servers are not frozen while others are measured".to_owned());
    }
    lines.push(format!(
        "about {} until all are warmed up, then about {} of measuring",
        seconds(forecast.starting),
        seconds(forecast.whole.saturating_sub(forecast.starting))
    ));
    lines.extend(experiment.precision.map(|share| {
        format!("stops earlier once all intervals are within ± {}", percent(share * 100.0))
    }));
    lines.extend(experiment.limit.map(|limit| {
        match limit > 1.0 {
            true => "stops earlier once --fail-if certainly passes or fails",
            false => "stops earlier once every verdict on CPU time per request is certain",
        }
        .to_owned()
    }));
    lines
}

/// The description of the laps that explain differences.
const EXPLAINS: &str = "plain laps, laps with a CPU profile, and laps with counts of system calls \
                        and kernel events";

/// Describes the goals of a search, and its order.
fn searches(experiment: &Experiment) -> Vec<String> {
    let goals: Vec<String> = experiment.objectives.iter().map(ToString::to_string).collect();
    vec![
        format!("searches for the highest rate that meets {}", goals.join(" and ")),
        format!(
            "open loop with Poisson arrivals, servers in random order (seed {})",
            experiment.seed
        ),
    ]
}

/// Describes the restarts, rounds and slices of a comparison.
fn rounds(experiment: &Experiment, run: &Run, forecast: &Forecast) -> Vec<String> {
    let restarts = experiment.restarts.unwrap_or(forecast.restarts);
    let rounds = experiment.rounds.unwrap_or(forecast.rounds / forecast.restarts.max(1));
    let about = |given: Option<u32>| if given.is_some() { "" } else { "about " };
    let mut lines = Vec::new();
    lines.extend(run.number.map(|number| format!("continues run {number}")));
    lines.push(format!(
        "{}{} of {}{}, in random order (seed {})",
        about(experiment.restarts),
        plural(restarts as usize, "restart"),
        about(experiment.rounds),
        plural(rounds as usize, "round"),
        experiment.seed
    ));
    lines.push(match experiment.slices.first() {
        Some(slice) => format!("slices of {} ms", slice.as_secs_f64() * 1e3),
        None => "slices of 12 ms, or longer ones if a server is slow, or costs more or less in \
             slices of 12 ms than when left running"
            .to_owned(),
    });
    lines
}

fn stressed(spec: &RunSpec, participants: &Participants, run: &Run) -> Vec<String> {
    if spec.scenarios.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = spec.scenarios.iter().map(|s| s.name.as_str()).collect();
    let takes = timing::stress(&participants.ready, &run.stress, &spec.scenarios);
    vec![format!("about {}: {}", seconds(takes), names.join(", "))]
}

fn cores(run: &Run) -> String {
    let schedule = &run.schedule;
    let priority = if schedule.high_priority { ", with high priority" } else { "" };
    match (cores_in_words(&schedule.server_cpus), cores_in_words(&schedule.generator_cpus)) {
        (Some(server), Some(generator)) => {
            format!("server on {server}, generator on {generator}{priority}")
        }
        (Some(server), None) if !run.host.generators.is_empty() => {
            format!("server on {server}, generators on other hosts{priority}")
        }
        _ => format!("server and generator are not pinned{priority}"),
    }
}

/// Lists the store and the exports.
fn output(spec: &RunSpec) -> Vec<String> {
    let store = match &spec.storage {
        Storage::None => None,
        Storage::Usual => paths::store(),
        Storage::File(file) => Some(file.clone()),
    };
    let store =
        store.map_or_else(|| "not stored".to_owned(), |p| format!("store: {}", p.display()));
    let exports = &spec.exports;
    let files: [(&str, &Option<PathBuf>); 8] = [
        ("JSON", &exports.export_json),
        ("Markdown", &exports.export_markdown),
        ("CSV", &exports.export_csv),
        ("HTML", &exports.export_html),
        ("SVG", &exports.export_svg),
        ("JUnit", &exports.export_junit),
        ("github-action-benchmark", &exports.export_github_benchmark),
        ("Bencher", &exports.export_bencher),
    ];
    let named = |(format, file): (&str, &Option<PathBuf>)| {
        Some(format!("{format}: {}", file.as_ref()?.display()))
    };
    std::iter::once(store).chain(files.into_iter().filter_map(named)).collect()
}

fn seconds(time: Duration) -> String {
    format!("{} s", timing::whole_seconds(time))
}
