//! Finds what may be wrong with the figures of a run.

use std::collections::BTreeMap;

use hotlap_load::outcome::Negotiated;
use hotlap_load::{Failures, OpenLoop};
use hotlap_stats::{Bursts, Estimate, OddStarts};

use super::bias::Unsteady;
use super::capacity::{Highest, ServerCapacity, TrialView};
use super::{Analysis, CapacityAnalysis, Measure, MeasuredServer};
use crate::model::{Lap, Probed, Role, Run, Violation};

/// A window of a search is far below the capacity if its rate is below this share of the capacity.
const FAR_BELOW: f64 = 0.8;

/// Late windows of a search cause a warning if at least one in this many windows is late.
const LATE_ONE_IN: usize = 5;

/// A warning to read before trusting the figures. Servers and loads are given by index.
#[derive(Debug, Clone)]
pub enum Warning {
    /// The generator limited these servers.
    GeneratorLimited {
        /// The index of the load.
        load: usize,
        /// The indices of the servers.
        servers: Vec<usize>,
    },
    /// The responses of these servers wait for delayed acknowledgements.
    DelayedAcknowledgements {
        /// The index of the load.
        load: usize,
        /// The indices of the servers.
        servers: Vec<usize>,
    },
    /// A warning about one server under one load.
    Server {
        /// The index of the load.
        load: usize,
        /// The index of the server.
        server: usize,
        /// The problem.
        warning: ServerWarning,
    },
    /// The servers negotiated different TLS versions or cipher suites.
    DifferentTls(Vec<(Negotiated, Vec<usize>)>),
    /// A note that hotlap made when it started these servers.
    Note {
        /// The text of the note.
        note: String,
        /// The indices of the servers.
        servers: Vec<usize>,
    },
}

/// A problem with the figures of one server under one load.
#[derive(Debug, Clone)]
pub enum ServerWarning {
    /// The server was not steady.
    Unsteady(Unsteady),
    /// Probes prove that the server costs more or less in slices than alone, by this ratio.
    InSlices(Estimate),
    /// The server cost far more than usual in some rounds.
    Bursty(Bursts),
    /// The server cost far more or less than usual after some starts.
    OddStarts(OddStarts),
    /// Some requests to the server failed in laps that count.
    Failing {
        /// The failed requests, by kind.
        failures: Failures,
        /// The number of all requests.
        requests: u64,
    },
    /// The server ended HTTP/2 connections with an error.
    Goaways {
        /// The number of connections that the server ended.
        connections: u64,
        /// The code and text of the most frequent GOAWAY.
        reason: String,
    },
    /// The server sent no response in this many rounds.
    Silent(u32),
    /// The server did not serve the full rate of its load, or the common rate.
    Behind {
        /// Requests/s that became due.
        offered: f64,
        /// Requests/s that the server served.
        reached: f64,
        /// Whether the rate is the common rate. Otherwise it is the rate of the load.
        is_common: bool,
        /// Whether the queue grew. Otherwise, failed requests may be the cause.
        has_queue: bool,
    },
    /// Some laps of the server are excluded.
    LeftOut(ExcludedLaps),
    /// Many windows of the server's search are excluded, usually because the generator was late.
    LateWindows {
        /// The number of excluded windows.
        late: usize,
        /// The number of all windows of the server's search.
        windows: usize,
    },
    /// Some windows far below the server's capacity missed a goal.
    MissesBelow {
        /// The number of windows that missed a goal.
        missed: usize,
        /// The number of all windows far below the capacity.
        windows: usize,
    },
}

/// The excluded laps of one or more servers.
#[derive(Debug, Clone)]
pub struct ExcludedLaps {
    /// Whether the laps are main laps. Otherwise they are laps at a common rate, which affect only
    /// response times.
    pub are_main: bool,
    /// The number of all laps of that kind, excluded or not.
    pub laps: usize,
    /// The first failed validity check of each excluded lap. Each kind of check has one example and
    /// the number of laps. The most frequent kind comes first.
    pub checks: Vec<(Violation, usize)>,
}

impl ExcludedLaps {
    /// Returns the number of excluded laps.
    pub fn count(&self) -> usize {
        self.checks.iter().map(|(_, laps)| laps).sum()
    }

    /// Adds the excluded laps of another server.
    pub fn and(mut self, others: Self) -> Self {
        self.laps += others.laps;
        for (check, laps) in others.checks {
            self.add(check, laps);
        }
        self.checks.sort_by_key(|(_, laps)| std::cmp::Reverse(*laps));
        self
    }

    fn add(&mut self, check: Violation, laps: usize) {
        let is_same =
            |known: &Violation| std::mem::discriminant(known) == std::mem::discriminant(&check);
        match self.checks.iter_mut().find(|(known, _)| is_same(known)) {
            Some((_, known)) => *known += laps,
            None => self.checks.push((check, laps)),
        }
    }
}

/// Returns all warnings about a run.
pub fn warnings(run: &Run, analyses: &[Analysis], searches: &[CapacityAnalysis]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for search in searches {
        let load = search.load;
        for server in (0..run.servers.len()).filter(|&server| run.is_shown(server)) {
            let of_server = of_search(&search.servers[server]).into_iter();
            warnings.extend(of_server.map(|warning| Warning::Server { load, server, warning }));
        }
    }
    for analysis in analyses {
        let load = analysis.load;
        let is_limited = |server: usize| analysis.servers[server].generator_limited;
        let limited = shown(run, |s| is_limited(s) && run.servers[s].role != Role::Ceiling);
        warnings.extend(limited.map(|servers| Warning::GeneratorLimited { load, servers }));
        let waiting = shown(run, |server| waits_for_acknowledgements(&analysis.servers[server]));
        warnings.extend(waiting.map(|servers| Warning::DelayedAcknowledgements { load, servers }));
        for server in (0..run.servers.len()).filter(|&server| run.is_shown(server)) {
            let of_server = of_server(run, analysis, server).into_iter();
            warnings.extend(of_server.map(|warning| Warning::Server { load, server, warning }));
        }
    }
    warnings.extend(different_tls(run));
    warnings.extend(notes(run));
    warnings
}

/// Returns what TLS negotiated with a server. `None` without TLS.
pub fn tls(run: &Run, server: usize) -> Option<&Negotiated> {
    let mut warmups = run.starts.iter().filter(|s| s.server == server).flat_map(|s| &s.warmups);
    warmups.find_map(|warmup| warmup.tls.as_ref())
}

fn different_tls(run: &Run) -> Option<Warning> {
    let shown = (0..run.servers.len()).filter(|&server| run.is_shown(server));
    let found = grouped(shown.filter_map(|server| Some((tls(run, server)?.clone(), server))));
    (found.len() > 1).then_some(Warning::DifferentTls(found))
}

/// Groups servers by a value. Groups are in the order of their first servers.
fn grouped<K: PartialEq>(all: impl IntoIterator<Item = (K, usize)>) -> Vec<(K, Vec<usize>)> {
    let mut groups: Vec<(K, Vec<usize>)> = Vec::new();
    for (key, server) in all {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, servers)) => servers.push(server),
            None => groups.push((key, vec![server])),
        }
    }
    groups
}

fn of_search(found: &ServerCapacity) -> Vec<ServerWarning> {
    let windows = found.windows.len();
    let late = found.windows.iter().filter(|window| !window.counts).count();
    let below: Vec<_> = match found.found {
        Highest::Rate(rate) => {
            let is_low = |w: &&TrialView| w.counts && w.rate < rate.value * FAR_BELOW;
            found.windows.iter().filter(is_low).collect()
        }
        Highest::AtLeast(_) | Highest::Below(_) | Highest::Unknown => Vec::new(),
    };
    let missed = below.iter().filter(|window| !window.is_kept()).count();
    [
        (late * LATE_ONE_IN >= windows && late > 0)
            .then_some(ServerWarning::LateWindows { late, windows }),
        (missed > 0).then_some(ServerWarning::MissesBelow { missed, windows: below.len() }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn of_server(run: &Run, analysis: &Analysis, server: usize) -> Vec<ServerWarning> {
    let measured = &analysis.servers[server];
    let reached = measured.level[Measure::Rate].map(|rate| rate.value);
    let behind = analysis.offered.zip(reached).filter(|_| !measured.keeps_up);
    let behind = behind.map(|(offered, reached)| {
        let has_queue = has_queue(run, analysis.load, server);
        ServerWarning::Behind { offered, reached, is_common: false, has_queue }
    });
    let at_common_rate = measured.open_loop.filter(|found| found.is_behind);
    let behind = behind.or(at_common_rate.map(|found| {
        let (offered, reached) = (found.offered_per_s, found.reached_per_s);
        ServerWarning::Behind { offered, reached, is_common: true, has_queue: true }
    }));
    let in_slices = measured.probed.filter(Probed::is_biased).map(|probed| probed.ratio);
    let left_out = |are_main| left_out(run, analysis.load, server, are_main);
    [
        measured.unsteady.map(ServerWarning::Unsteady),
        in_slices.map(ServerWarning::InSlices),
        analysis.bursts(server).map(ServerWarning::Bursty),
        analysis.odd_starts(server).map(ServerWarning::OddStarts),
        failing(run, analysis.load, server).filter(|_| measured.is_measured()),
        goaways(run, analysis.load, server),
        (measured.silent_rounds > 0).then_some(ServerWarning::Silent(measured.silent_rounds)),
        behind,
        // If no lap of any server counts, the sentences with the table give the reason.
        left_out(true).filter(|_| analysis.is_measured()).map(ServerWarning::LeftOut),
        left_out(false).map(ServerWarning::LeftOut),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Whether the queue grew in a server's main laps that count.
fn has_queue(run: &Run, load: usize, server: usize) -> bool {
    let own = |l: &&Lap| l.server == server && l.load == load && run.is_main(l) && l.counts();
    OpenLoop::over(run.laps.iter().filter(own).map(|lap| &lap.outcome))
        .is_some_and(|found| found.is_behind)
}

/// Returns the warning that a server ended connections with an error, with the most frequent error.
fn goaways(run: &Run, load: usize, server: usize) -> Option<ServerWarning> {
    let own = |l: &&Lap| l.server == server && l.load == load && run.is_main(l);
    let mut all = BTreeMap::new();
    for (reason, count) in run.laps.iter().filter(own).flat_map(|lap| &lap.outcome.goaways) {
        *all.entry(reason).or_default() += count;
    }
    let connections = all.values().sum();
    let (reason, _) = all.into_iter().max_by_key(|(_, count): &(_, u64)| *count)?;
    Some(ServerWarning::Goaways { connections, reason: reason.clone() })
}

/// Returns the warning that requests failed in a server's laps that count, including laps at a
/// common rate. `None` without failures.
fn failing(run: &Run, load: usize, server: usize) -> Option<ServerWarning> {
    let own = |l: &&Lap| l.server == server && l.load == load && l.counts();
    let (mut failures, mut responses) = (Failures::default(), 0);
    for lap in run.laps.iter().filter(own) {
        failures.merge(&lap.outcome.failures);
        responses += lap.outcome.responses;
    }
    let requests = responses + failures.total();
    (failures.total() > 0).then_some(ServerWarning::Failing { failures, requests })
}

/// Returns the servers that tables show and for which `holds` is true. `None` without such servers.
fn shown(run: &Run, holds: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
    let servers = (0..run.servers.len()).filter(|&server| run.is_shown(server) && holds(server));
    Some(servers.collect()).filter(|servers: &Vec<usize>| !servers.is_empty())
}

/// Whether responses probably wait for delayed acknowledgements. Nine of ten responses then take at
/// least as long as Linux delays an acknowledgement: 40 ms (`TCP_DELACK_MIN`). The median is hardly
/// longer, although server and database are mostly idle. Until the acknowledgement arrives, Nagle's
/// algorithm holds back the rest of a response (RFC 1122, sections 4.2.3.2 and 4.2.3.4).
fn waits_for_acknowledgements(measured: &MeasuredServer) -> bool {
    let (rate, cost) = (measured.level[Measure::Rate], measured.level[Measure::Cost]);
    let Some((rate, cost)) = rate.zip(cost) else { return false };
    let database = measured.used.database_share.unwrap_or(0.0);
    let busy = rate.value * cost.value / 1e9 + database;
    let ms = |q| measured.service.answered.quantile(q) as f64 / 1e6;
    busy < 0.5 && ms(0.1) >= 39.5 && ms(0.5) < 60.0
}

/// Returns the excluded laps of a server under a load: its main laps, or else its laps at a common
/// rate. `None` if all of these laps count.
pub fn left_out(run: &Run, load: usize, server: usize, are_main: bool) -> Option<ExcludedLaps> {
    let own = |l: &&Lap| l.server == server && l.load == load && run.is_main(l) == are_main;
    let laps: Vec<&Lap> = run.laps.iter().filter(own).collect();
    let mut excluded = ExcludedLaps { are_main, laps: laps.len(), checks: Vec::new() };
    for lap in laps {
        if let Some(check) = lap.failed.iter().find(|violation| violation.invalidates()) {
            excluded.add(check.clone(), 1);
        }
    }
    excluded.checks.sort_by_key(|(_, laps)| std::cmp::Reverse(*laps));
    (!excluded.checks.is_empty()).then_some(excluded)
}

/// Returns the notes from all starts, each note once.
fn notes(run: &Run) -> Vec<Warning> {
    let servers = 0..run.servers.len();
    let own = servers.filter(|server| run.servers[*server].role != Role::Control);
    let all = own.flat_map(|server| notes_of(run, server).into_iter().map(move |n| (n, server)));
    grouped(all).into_iter().map(|(note, servers)| Warning::Note { note, servers }).collect()
}

/// Returns the notes from the starts of one server. Some notes differ only in numbers, such as a
/// port that each start chooses. Only the first of such notes is returned.
pub fn notes_of(run: &Run, server: usize) -> Vec<String> {
    let numberless = |note: &str| note.replace(|c: char| c.is_ascii_digit(), "");
    let mut notes: Vec<String> = Vec::new();
    for note in run.starts.iter().filter(|s| s.server == server).flat_map(|s| &s.ready.notes) {
        if !notes.iter().any(|known| numberless(known) == numberless(note)) {
            notes.push(note.clone());
        }
    }
    notes
}
