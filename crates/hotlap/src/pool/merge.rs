//! Makes one run from the shards of one kind of machine.
//!
//! The merged run has all restarts of all shards, numbered consecutively, and the node of each
//! restart. So all code for runs also works on the merged run, whose intervals rest on nodes
//! ([`crate::analysis::Level`]). Servers are paired within a round, so no ratio compares laps of
//! different nodes.
//!
//! Clocks of different nodes are not compared: the figures of a shard depend only on its own
//! monotonic clock. The times at which runs began are shown, but decide nothing.

use std::collections::BTreeMap;
use std::fmt;

use super::apart::Condition;
use crate::model::{
    Apart, Host, Lap, Machine, MergedShard, Pool, Probed, Role, Run, RunState, Server, Shard, Than,
};
use crate::redact;
use crate::text::number::plural;

/// A shard with a result.
#[derive(Debug)]
pub struct Measured {
    /// The number of the shard, and the plan of its pool.
    pub shard: Shard,
    /// The run of the shard, with merged histograms (`lighten`).
    pub run: Run,
    /// The condition of the shard's node.
    pub condition: Condition,
    /// Why the shard is set apart. `None` if the shard counts.
    pub apart: Option<Apart>,
}

impl Measured {
    /// Determines the condition of a shard, and merges the histograms of its run.
    pub fn new(shard: Shard, mut run: Run) -> Self {
        let condition = Condition::of(&run);
        lighten(&mut run);
        Self { shard, run, condition, apart: None }
    }
}

/// The kind of a machine: the facts that nodes must have in common. Ratios differ between kinds,
/// for example because of a different cache or kernel. So nodes of different kinds are not a
/// sample of one population, and are never merged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    cpu: String,
    arch: String,
    /// The number of logical cores that hotlap may use.
    cores: usize,
    /// The numbers of cores for servers and for the generator. 0 if threads are not pinned.
    divided: (usize, usize),
    /// The kernel's name and the first two numbers of its release: `Linux 6.18`.
    kernel: String,
    virtualisation: String,
    hotlap: String,
}

impl Kind {
    /// Returns the kind of the machine that measured a shard.
    pub fn of(run: &Run) -> Self {
        let (host, schedule) = (&run.host.machine, &run.schedule);
        Self {
            cpu: host.cpu.clone(),
            arch: host.architecture.clone(),
            cores: host.allowed,
            divided: (schedule.server_cpus.len(), schedule.generator_cpus.len()),
            kernel: series(&host.kernel),
            virtualisation: host.virtualisation().unwrap_or_default().to_owned(),
            hotlap: run.hotlap.clone(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} × {} ({}), {}", self.cores, self.cpu, self.arch, self.kernel)?;
        if !self.virtualisation.is_empty() {
            write!(f, ", {}", self.virtualisation)?;
        }
        let (server, generator) = self.divided;
        if server > 0 {
            let cores = plural(server, "core");
            write!(f, ", {cores} for servers and {generator} for the generator")?;
        }
        write!(f, ", hotlap {}", self.hotlap)
    }
}

/// Returns a kernel's name and the first two numbers of its release: `Linux 6.18` for
/// `Linux 6.18.5-cloud`.
fn series(kernel: &str) -> String {
    let mut numbers = kernel.splitn(3, '.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let minor: String = minor.chars().take_while(char::is_ascii_digit).collect();
    if minor.is_empty() { major.to_owned() } else { format!("{major}.{minor}") }
}

/// Merges the histograms of a run's laps into one lap for each server and load, separately for laps
/// at a rate. Each histogram takes 264 KiB, so the histograms of all laps of a hundred shards do
/// not fit into memory. As a result, each shard has only one p50 and one p99 of a server.
///
/// The histograms of all servers are put into the same round, so that the servers can be compared.
/// A server without a lap in that round keeps its histograms in its first lap that counts. Its
/// percentiles are then compared only if that lap has the same restart.
fn lighten(run: &mut Run) {
    let mut rounds = BTreeMap::<(usize, u32, u32), usize>::new();
    for lap in run.laps.iter().filter(|lap| lap.counts()) {
        *rounds.entry((lap.load, lap.restart, lap.round)).or_default() += 1;
    }
    let mut common = BTreeMap::<usize, ((u32, u32), usize)>::new();
    for ((load, restart, round), laps) in rounds {
        let best = common.entry(load).or_default();
        if laps > best.1 {
            *best = ((restart, round), laps);
        }
    }
    let mut places = BTreeMap::<(usize, usize, bool), usize>::new();
    for (index, lap) in run.laps.iter().enumerate().filter(|(_, lap)| lap.counts()) {
        let place = places.entry((lap.server, lap.load, lap.rate().is_some())).or_insert(index);
        let is_common = |lap: &Lap| (lap.restart, lap.round) == common[&lap.load].0;
        if is_common(lap) && !is_common(&run.laps[*place]) {
            *place = index;
        }
    }
    for index in 0..run.laps.len() {
        let lap = &mut run.laps[index];
        let key = (lap.server, lap.load, lap.rate().is_some());
        let counts = lap.counts();
        if places.get(&key) == Some(&index) {
            continue;
        }
        let [service, response, ..] = lap.outcome.histograms_mut().map(std::mem::take);
        let service_censored = std::mem::take(&mut lap.outcome.service_time_censored);
        let response_censored = std::mem::take(&mut lap.outcome.response_time_censored);
        if let Some(place) = places.get(&key).filter(|_| counts) {
            let into = &mut run.laps[*place].outcome;
            into.service_time.merge(&service);
            into.response_time.merge(&response);
            into.service_time_censored.merge(&service_censored);
            into.response_time_censored.merge(&response_censored);
        }
    }
}

/// Merges shards into one run, without shards that are set apart.
pub fn merged(shards: &[Measured], missing: Vec<usize>) -> Result<Run, String> {
    let counting: Vec<&Measured> = shards.iter().filter(|shard| shard.apart.is_none()).collect();
    let Some(first) = counting.first() else {
        let why = "every shard is set apart, so nothing is merged: `hotlap report --store FILE` \
                   shows a shard";
        return Err(why.to_owned());
    };
    let servers = Servers::of(&counting);
    let began_ms = counting.iter().map(|shard| shard.run.began_ms).min().unwrap_or_default();
    let ended_ms = counting.iter().map(|shard| shard.run.began_ms + shard.run.took_ms).max();
    let mut run = Run {
        number: None,
        began_ms,
        took_ms: ended_ms.unwrap_or(began_ms).saturating_sub(began_ms),
        state: RunState::Finished,
        command: redact::command_line(),
        seed: first.shard.seed,
        host: host(&counting),
        servers: servers.servers.clone(),
        baseline: None,
        shard: None,
        starts: Vec::new(),
        laps: Vec::new(),
        stress: Vec::new(),
        explain: Vec::new(),
        database: None,
        pool: None,
        ..first.run.clone()
    };
    let mut pool = Pool {
        planned: first.shard.of,
        missing,
        notes: notes(&counting, &servers),
        shards: shards.iter().map(MergedShard::from).collect(),
        ..Pool::default()
    };
    for shard in &counting {
        if run.loads.len() != shard.run.loads.len()
            || run.loads.iter().zip(&shard.run.loads).any(|(a, b)| !a.is_same(b))
        {
            return Err(format!(
                "shards {} and {} measured different loads: measure one of them again with the \
                 options of the other",
                first.shard.number, shard.shard.number
            ));
        }
        add(&mut run, &mut pool, shard, &servers);
    }
    schedule(&mut run, &counting, &servers);
    run.pool = Some(pool);
    Ok(run)
}

/// Adds the starts and laps of a shard.
fn add(run: &mut Run, pool: &mut Pool, shard: &Measured, servers: &Servers) {
    let own = &shard.run;
    let name = node(own);
    let node = pool.nodes.iter().position(|known| *known == name).unwrap_or_else(|| {
        pool.nodes.push(name);
        pool.nodes.len() - 1
    });
    let offset = pool.node_of.len() as u32;
    let later_ms = own.began_ms.saturating_sub(run.began_ms);
    let index = |server: usize| servers.of_name(&own.servers[server].name);
    for start in &own.starts {
        let (server, restart) = (index(start.server), start.restart + offset);
        run.starts.push(crate::model::Start { server, restart, ..start.clone() });
    }
    for lap in &own.laps {
        let (server, restart) = (index(lap.server), lap.restart + offset);
        run.laps.push(Lap { server, restart, at_ms: lap.at_ms + later_ms, ..lap.clone() });
    }
    let restarts = own.laps.iter().map(|lap| lap.restart + 1).max().unwrap_or(0);
    pool.node_of.extend((0..restarts).map(|_| node as u32));
}

/// The servers of all shards, each server once.
struct Servers {
    servers: Vec<Server>,
    places: BTreeMap<String, usize>,
    /// The failures of servers in single shards: server, shard and cause.
    failures: Vec<(String, usize, String)>,
}

impl Servers {
    /// Collects the servers of all shards. The control and the ceiling come last, as in a run on
    /// one machine. A server counts as failed only if it failed in all shards that measured it.
    fn of(shards: &[&Measured]) -> Self {
        let mut all = Self { servers: Vec::new(), places: BTreeMap::new(), failures: Vec::new() };
        for are_last in [false, true] {
            for shard in shards {
                let own = shard.run.servers.iter();
                let is_last = |role| matches!(role, Role::Control | Role::Ceiling);
                for server in own.filter(|server| is_last(server.role) == are_last) {
                    all.add(shard, server);
                }
            }
        }
        all.failures.retain(|(name, ..)| all.servers[all.places[name]].failure.is_none());
        all
    }

    fn add(&mut self, shard: &Measured, server: &Server) {
        if let Some(why) = &server.failure {
            self.failures.push((server.name.clone(), shard.shard.number, why.cause.clone()));
        }
        let place = *self.places.entry(server.name.clone()).or_insert(self.servers.len());
        let names: Vec<&str> = shard.run.servers.iter().map(|s| s.name.as_str()).collect();
        // Converts an index of the shard into an index of the merged run, if that server is already
        // known.
        let index = |own: usize| self.places.get(names[own]).copied();
        let published = server.published.iter().cloned().map(|figure| crate::model::Published {
            than: figure.than.and_then(|than| Some(Than { server: index(than.server)?, ..than })),
            ..figure
        });
        let on = server.on.and_then(index);
        let merged = Server { published: published.collect(), on, ..server.clone() };
        match self.servers.get_mut(place) {
            None => self.servers.push(merged),
            Some(known) if known.failure.is_some() => *known = merged,
            Some(_) => {}
        }
    }

    fn of_name(&self, name: &str) -> usize {
        self.places[name]
    }
}

/// Returns the name of a shard's node.
pub fn node(run: &Run) -> String {
    run.host.node.clone().unwrap_or_else(|| "unknown node".to_owned())
}

/// Returns the host of the merged run, with the doubts about any node.
fn host(shards: &[&Measured]) -> Host {
    let first = &shards[0].run.host;
    let machines = shards.iter().map(|shard| &shard.run.host.machine);
    let mut doubts: Vec<String> = Vec::new();
    for doubt in shards.iter().flat_map(|shard| &shard.run.host.doubts) {
        // Doubts about a load or a share differ only in their numbers.
        let numberless = |text: &str| text.replace(|c: char| c.is_ascii_digit() || c == '.', "");
        if !doubts.iter().any(|known| numberless(known) == numberless(doubt)) {
            doubts.push(doubt.clone());
        }
    }
    let machine = machines.fold(first.machine.clone(), common);
    Host { machine, doubts, node: None, certificate: None, ..first.clone() }
}

/// Returns a machine without the optional facts in which another machine of its kind differs.
fn common(mut machine: Machine, other: &Machine) -> Machine {
    fn keep<T: PartialEq>(own: &mut Option<T>, other: &Option<T>) {
        own.take_if(|own| Some(&*own) != other.as_ref());
    }
    keep(&mut machine.quota, &other.quota);
    keep(&mut machine.governor, &other.governor);
    keep(&mut machine.turbo, &other.turbo);
    keep(&mut machine.smt, &other.smt);
    keep(&mut machine.battery, &other.battery);
    keep(&mut machine.load, &other.load);
    keep(&mut machine.busy, &other.busy);
    keep(&mut machine.steal, &other.steal);
    if machine.fingerprint != other.fingerprint {
        machine.fingerprint.clear();
    }
    machine
}

fn schedule(run: &mut Run, shards: &[&Measured], servers: &Servers) {
    let schedules = || shards.iter().map(|shard| &shard.run.schedule);
    let mut probes = BTreeMap::<(usize, usize), Vec<Probed>>::new();
    for shard in shards {
        for probed in &shard.run.schedule.probed {
            let server = servers.of_name(&shard.run.servers[probed.participant].name);
            let own = Probed { participant: server, ..*probed };
            probes.entry((server, probed.load)).or_default().push(own);
        }
    }
    // The median of all shards is used, because a probe and its interval describe only one machine.
    let median = |mut own: Vec<Probed>| {
        own.sort_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value));
        own[own.len() / 2]
    };
    if schedules().any(|schedule| schedule.slices_ms != run.schedule.slices_ms) {
        run.schedule.slices_ms.clear();
    }
    run.schedule.restarts = run.laps.iter().map(|lap| lap.restart + 1).max().unwrap_or(0);
    run.schedule.rounds = run.laps.iter().map(|lap| lap.round + 1).max().unwrap_or(0);
    run.schedule.duration_s = schedules().map(|schedule| schedule.duration_s).sum();
    run.schedule.probed = probes.into_values().map(median).collect();
    // A shard may stop early if its own intervals are narrow. Its intervals say nothing about the
    // merged intervals, so the merged intervals need no correction.
    (run.schedule.precision, run.schedule.limit) = (None, None);
}

/// Returns what the reader must know about the shards.
fn notes(shards: &[&Measured], servers: &Servers) -> Vec<String> {
    let mut notes: Vec<String> = servers
        .failures
        .iter()
        .map(|(name, shard, cause)| format!("{name} failed in shard {shard}: {cause}"))
        .collect();
    for server in &servers.servers {
        let mut versions = BTreeMap::<&str, Vec<String>>::new();
        for shard in shards {
            let own = shard.run.servers.iter().find(|own| own.name == server.name);
            if let Some(own) = own.filter(|own| own.failure.is_none()) {
                versions.entry(&own.version).or_default().push(node(&shard.run));
            }
        }
        if versions.len() > 1 {
            let each = versions.iter().map(|(version, nodes)| {
                let mut nodes = nodes.clone();
                nodes.dedup();
                let version = if version.is_empty() { "an unknown version" } else { version };
                format!("{version} on {}", nodes.join(", "))
            });
            notes.push(format!(
                "{} has different versions: {}. Install one of them on all nodes.",
                server.name,
                each.collect::<Vec<_>>().join("; ")
            ));
        }
    }
    let stressed = shards.iter().filter(|shard| !shard.run.stress.is_empty()).count();
    if stressed > 0 {
        notes.push(format!(
            "The stress results of {} are not merged: `hotlap report --store FILE` shows them.",
            plural(stressed, "shard")
        ));
    }
    notes
}

impl From<&Measured> for MergedShard {
    fn from(measured: &Measured) -> Self {
        let run = &measured.run;
        Self {
            shard: measured.shard.number,
            node: node(run),
            restarts: run.laps.iter().map(|lap| lap.restart + 1).max().unwrap_or(0),
            took_ms: run.took_ms,
            noise: measured.condition.noise,
            ceiling_ns: measured.condition.ceiling_ns,
            apart: measured.apart,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_known_by_its_first_two_numbers() {
        let of = ["Linux 6.18.5-cloud", "Linux 6.18", "Linux 6.18-rc1", "Linux 6", ""].map(series);
        assert_eq!(of, ["Linux 6.18", "Linux 6.18", "Linux 6.18", "Linux 6", ""]);
    }
}
