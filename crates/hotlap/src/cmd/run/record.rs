//! The record of a run before the first event.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::time::SystemTime;

use fnv::FnvHasher;
use hotlap_bench::experiment::{Experiment, Explain};
use hotlap_bench::participant::{Load, Origin, Participant, Role};
use hotlap_load::plan::{OrderEntry, ValueSource};
use hotlap_servers::contract::{Exchange, Fields};
use hotlap_servers::machine::CpuAllocation;

use super::participants::Participants;
use super::shard;
use super::spec::RunSpec;
use crate::model::{
    Host, Machine, Observing, PowerCertificate, Question, Run, RunSchedule, RunState, Server,
};
use crate::redact;
use crate::text::number::plural;

/// Creates the record of a run that is about to begin. `experiment` is `None` for a stress run
/// without a measurement.
pub fn begin(
    spec: &RunSpec,
    participants: &Participants,
    cores: &CpuAllocation,
    experiment: Option<&Experiment>,
) -> Run {
    let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut host = participants.hosts.facts(Host::of(Machine::describe()));
    host.doubts.extend(cores.notes.iter().cloned());
    if host.controller.is_none() && host.generators.is_empty() {
        host.certificate = PowerCertificate::of_machine(&host.machine.fingerprint);
    }
    host.node = spec.shard.is_some().then(shard::node);
    let is_stressed = |s: &&Server| matches!(s.role, Role::Plain | Role::Reference);
    let servers = participants.servers.iter();
    let (server_cpus, generator_cpus) = cores.by_number();
    // Secrets are redacted, since the record is compared with stored runs, which have none.
    let run = Run {
        number: None,
        began_ms: began.as_millis() as u64,
        took_ms: 0,
        state: RunState::UnderWay,
        command: spec.command.clone(),
        hotlap: env!("CARGO_PKG_VERSION").to_owned(),
        baseline: spec.baseline.clone(),
        suite: spec.suite.clone(),
        question: experiment.map_or(Question::Stress, |_| spec.question),
        about: spec.about.clone(),
        contract: participants.contract.clone(),
        seed: experiment.map_or(0, |experiment| experiment.seed),
        schedule: RunSchedule {
            restarts: experiment.and_then(|e| e.restarts).unwrap_or(0),
            rounds: experiment.and_then(|e| e.rounds).unwrap_or(0),
            slices_ms: experiment.map_or_else(Vec::new, Experiment::slices_ms),
            probed: Vec::new(),
            duration_s: experiment.map_or(0.0, |e| e.budget.as_secs_f64()),
            needed_s: None,
            precision: experiment.and_then(|e| e.precision),
            limit: experiment.and_then(|e| e.limit),
            server_cpus,
            generator_cpus,
            freeze: spec.freeze && experiment.is_some(),
            high_priority: spec.high_priority,
            objectives: spec.objectives.clone(),
            observing: observing(participants, experiment),
        },
        host,
        loads: experiment.map_or_else(Vec::new, |e| loads(&e.loads, &e.participants)),
        servers: match experiment {
            Some(_) => servers.cloned().collect(),
            None => servers.filter(is_stressed).cloned().collect(),
        },
        starts: Vec::new(),
        laps: Vec::new(),
        absent: spec.absent.clone(),
        shard: spec.shard.clone(),
        stress: Vec::new(),
        explain: Vec::new(),
        database: participants.hosts.database.as_ref().map(|setting| setting.facts(&cores.server)),
        pool: None,
    };
    redact::run(run).into_inner()
}

fn observing(participants: &Participants, experiment: Option<&Experiment>) -> Observing {
    let is_explained = experiment.is_some_and(|experiment| experiment.explain != Explain::No);
    let mut observing = Observing::default();
    for (server, participant) in participants.ready.iter().enumerate().filter(|_| is_explained) {
        if let (Origin::Launch(launch), Role::Plain | Role::Reference) =
            (&participant.start, participant.role)
        {
            let set = launch.explain_env.iter().map(|(name, value)| format!("{name}={value}"));
            observing.env.extend(set.map(|variable| (server, variable)));
        }
    }
    observing
}

/// Returns the loads, each with the requests that it sends to these servers.
fn loads(loads: &[Load], participants: &[Participant]) -> Vec<Load> {
    let request = |load: &Load| {
        let mut requests: Vec<String> = Vec::new();
        for participant in participants.iter().filter(|e| e.role != Role::Ceiling) {
            let contract = &participant.contract;
            if let Some(recorded) = recorded(&contract.fields) {
                if !requests.contains(&recorded) {
                    requests.push(recorded);
                }
                continue;
            }
            let sent = |index| load.request.is_none_or(|request| request == index);
            let sent = contract.exchanges.iter().enumerate().filter(|(index, _)| sent(*index));
            for (_, exchange) in sent {
                let request = match contract.is_custom() {
                    false => exchange.name.clone(),
                    true => described(exchange),
                };
                if !requests.contains(&request) {
                    requests.push(request);
                }
            }
        }
        requests.join(", ")
    };
    let described = |load: &Load| Load {
        sends: request(load),
        requests: names(load, participants),
        leaves_database_idle: participants
            .iter()
            .all(|own| own.contract.leaves_database_idle(load.request)),
        ..load.clone()
    };
    loads.iter().map(described).collect()
}

/// Returns the names of the requests that a load sends. Empty if the load sends only one request,
/// or different requests to different servers.
fn names(load: &Load, participants: &[Participant]) -> Vec<String> {
    let of = |participant: &Participant| -> Vec<String> {
        let exchanges = participant.contract.exchanges.iter();
        exchanges.map(|exchange| exchange.name.clone()).collect()
    };
    let all: BTreeSet<Vec<String>> =
        participants.iter().filter(|e| e.role != Role::Ceiling).map(of).collect();
    match (load.request, all.len()) {
        (None, 1) => all.into_iter().next().filter(|names| names.len() > 1).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Describes the requests of an access log by their number and a hash, which distinguishes logs.
/// The hash is the same for every order of the same requests. Paths may contain secrets, so only
/// their lengths are hashed.
fn recorded(fields: &Fields) -> Option<String> {
    let order = fields.order.as_ref()?;
    let length = |entry: &OrderEntry| match &fields.list.get(entry.request as usize)?.source {
        ValueSource::Choice { values, .. } => values.get(entry.value as usize).map(String::len),
        _ => None,
    };
    let hash = |entry: &OrderEntry| {
        let mut hasher = FnvHasher::default();
        hasher.write_u32(entry.request);
        hasher.write_u32(entry.value);
        hasher.write_u64(length(entry).unwrap_or(0) as u64);
        hasher.finish()
    };
    let sum = order.iter().fold(0u64, |sum, entry| sum.wrapping_add(hash(entry)));
    Some(format!("{} (access log {:08x})", plural(order.len(), "logged request"), sum as u32))
}

/// Describes a request to a command or URL by its method and its path. If the request has headers
/// or a body, their hash is added, so that different requests can be told apart. For a header that
/// may contain a secret, only the name is hashed.
fn described(exchange: &Exchange) -> String {
    if exchange.headers.is_empty() && exchange.body.is_empty() {
        return exchange.name.clone();
    }
    let is_secret = |name: &str| {
        let name = name.to_ascii_lowercase();
        redact::is_secret(&name)
            || ["auth", "cookie", "key", "secret", "token"].iter().any(|part| name.contains(part))
    };
    let mut hasher = FnvHasher::default();
    for (name, value) in &exchange.headers {
        let value = if is_secret(name) { "" } else { value };
        hasher.write(format!("{}\n{value}\n", name.to_ascii_lowercase()).as_bytes());
    }
    hasher.write(&exchange.body);
    format!("{} (request {:08x})", exchange.name, hasher.finish() as u32)
}

#[cfg(test)]
mod tests {
    use hotlap_load::plan::Field;
    use hotlap_servers::contract::{Ask, Contract};

    use super::*;

    #[test]
    fn logs_are_told_apart_whatever_their_order() {
        let fields = |values: &[u32], paths: &[&str]| {
            let values = values.iter().map(|value| OrderEntry { request: 0, value: *value });
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            let source = ValueSource::Choice { values: paths.into(), random: false };
            let list = vec![Field::new("path0", source)];
            recorded(&Fields {
                list,
                seed: 0,
                unique: 0,
                order: Some(values.collect::<Vec<_>>().into()),
            })
        };
        let log = fields(&[0, 1, 0], &["/", "/a"]).unwrap();
        assert!(log.starts_with("3 logged requests (access log "), "{log}");
        assert_eq!(fields(&[0, 0, 1], &["/", "/a"]).unwrap(), log);
        assert_ne!(fields(&[0, 1, 1], &["/", "/a"]).unwrap(), log);
        assert_ne!(fields(&[0, 1, 0], &["/", "/ab"]).unwrap(), log);
        assert_eq!(recorded(&Fields::default()), None);
    }

    /// A 32-bit digest that included a header's value would allow guesses to be tested.
    #[test]
    fn the_value_of_a_header_that_is_redacted_is_not_in_the_digest() {
        let request = |name: &str, value: &str| {
            let headers = vec![(name.to_owned(), value.to_owned())];
            described(&Contract::custom(&Ask { headers, ..Ask::default() }).exchanges[0])
        };
        redact::names(&["x-of-this-test".to_owned()]);
        let named = request("X-Of-This-Test", "s3cr3t");
        assert!(named.starts_with("GET / (request "), "{named}");
        assert_eq!(named, request("x-of-this-test", "0th3r"));
        assert_eq!(request("Authorization", "Bearer a"), request("Authorization", "Bearer b"));
        assert_eq!(request("X-Token", "a"), request("X-Token", "b"));
        // Headers without secrets distinguish the loads of two runs.
        assert_ne!(request("X-Other", "s3cr3t"), request("X-Other", "0th3r"));
        assert_ne!(request("X-Of-This-Test", ""), request("X-Other", ""));
    }
}
