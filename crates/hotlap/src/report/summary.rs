//! A run becomes a report: figures are rounded, rows put in order, servers that failed set apart.
//! What is said in sentences is `sentence`'s, what speaks against the figures `warning`'s.

use hotlap_stats::{
    Concurrency, Effect, Estimate, Inconclusive, NoiseFloor, Verdict, level, median,
};

use super::bias;
use super::figure::{
    self, bare, megabytes, micros, millis, per_second, percent, plural, ratio, rounded,
};
use super::latency::latency;
use super::standing::{Limited, Measure, Measured, Standing};
use super::stress::Stress;
use super::{
    Against, DEARER, ErrorCount, Failed, Figure, Heading, Host, KEEP_UP, LONGER, Lap, MORE, Noise,
    Report, Row, SLOWER, Start, Table, date, ladder, published, scaling, sentence, warning,
};
use crate::record::{self, Question, Role, Run, State};

impl Report {
    /// The report on a run, finished or not.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        let standings: Vec<Standing> =
            (0..run.loads.len()).map(|load| Standing::of(run, load)).collect();
        let tables: Vec<Table> = standings.iter().map(|s| table(run, s)).collect();
        let noise = tables.first().and_then(|t| t.noise.clone());
        let scaling = scaling::scaling(run, &tables);
        let ladder = match run.question {
            Question::Ladder => standings.iter().flat_map(|s| ladder::steps(run, s)).collect(),
            _ => Vec::new(),
        };
        Self {
            schema: 1,
            run: heading(run),
            host: host(&run.host),
            sentences: tables.iter().flat_map(sentences).collect(),
            noise,
            warnings: warning::warnings(run, &standings),
            tables,
            failed: (0..run.servers.len()).filter_map(|i| failed(run, &standings, i)).collect(),
            ladder,
            scaling,
            absent: run.absent.clone(),
            stress: Stress::of(run),
            starts: run.starts.iter().map(|s| Start::of(run, s)).collect(),
            laps: run.laps.iter().map(|l| Lap::of(run, l)).collect(),
            broken: Vec::new(),
        }
    }
}

/// The sentences of a table, each with its load where there are several.
fn sentences(table: &Table) -> impl Iterator<Item = String> {
    table.sentences.iter().map(|said| match table.under.strip_prefix(" under ") {
        Some(load) => format!("{load}: {said}"),
        None => said.clone(),
    })
}

fn heading(run: &Run) -> Heading {
    Heading {
        number: run.number,
        contract: run.contract.clone(),
        title: title(run),
        began: date::utc(run.began_ms),
        took_s: (run.took_ms > 0).then(|| rounded(run.took_ms as f64 / 1e3)),
        state: run.state,
        state_note: state_note(run),
        command: shell_words::join(&run.command),
        hotlap: run.hotlap.clone(),
        baseline: run.baseline.clone(),
        suite: run.suite.clone(),
        about: run.about.clone(),
        question: run.question,
        asked: asked(run.question),
        seed: run.seed,
        loads: run.loads.clone(),
        loads_in_words: run.loads.iter().map(request_and_load).collect(),
        schedule: run.schedule.clone(),
    }
}

/// What is asked, as a question.
fn asked(question: Question) -> &'static str {
    match question {
        Question::Compare => "which is faster?",
        Question::Ladder => "what does each step cost?",
        Question::Scale => "how does it scale?",
        Question::Stress => "what becomes of it when others misbehave?",
    }
}

/// What the state of a run means for its reader; empty when it finished.
pub(super) fn state_note(run: &Run) -> String {
    let laps = run.laps.len();
    match run.state {
        State::Finished => String::new(),
        _ if run.question == Question::Stress => {
            let tried = plural(run.stress.len(), "server");
            format!("This run has not come to its end. This is what became of {tried} by then.")
        }
        State::UnderWay => format!(
            "This run has not ended: it is under way, or hotlap was killed. These are the {laps} \
             laps so far."
        ),
        State::Interrupted => {
            format!("This run was interrupted. These are the {laps} laps until then.")
        }
        State::Invalid => {
            "No lap of this run passed its validity checks: it measured nothing.".to_owned()
        }
        State::Failed => format!(
            "This run was ended by an error of hotlap itself. These are the {laps} laps until then."
        ),
    }
}

/// Contract, load, cores and schedule, in words.
fn title(run: &Run) -> Vec<String> {
    let mut parts = vec![run.contract.clone()];
    if let [load] = run.loads.as_slice() {
        parts.push(load_words(load));
    } else if run.loads.len() > 1 {
        parts.push(format!("{} loads", run.loads.len()));
    }
    let schedule = &run.schedule;
    if let (Some(server), Some(generator)) =
        (cores(&schedule.server_cpus), cores(&schedule.generator_cpus))
    {
        parts.push(format!("server on {server}, generator on {generator}"));
    }
    let heats = run.laps.iter().map(|l| l.heat + 1).max().unwrap_or(0);
    let blocks = run.laps.iter().filter(|l| run.is_main(l)).map(|l| l.block + 1).max();
    if let Some(blocks) = blocks {
        let (heats, blocks) = (plural(heats as usize, "heat"), plural(blocks as usize, "block"));
        parts.push(format!("{heats} × {blocks}"));
        parts.extend(schedule.slice_ms.map(|ms| format!("slices of {}", slice(ms))));
    }
    parts
}

/// `12 ms`, `0.3 s`.
pub(super) fn slice(ms: f64) -> String {
    if ms < 100.0 { format!("{ms} ms") } else { format!("{} s", ms / 1e3) }
}

/// `64 connections, keep-alive`.
pub(super) fn load_words(load: &record::Load) -> String {
    let connections = plural(load.connections, "connection");
    let mut words = match load.keep_alive {
        true => format!("{connections}, keep-alive"),
        false => format!("{connections}, a new one for each request"),
    };
    if load.pipeline > 1 {
        words += &format!(", {} requests in flight on each", load.pipeline);
    }
    if load.threads > 1 {
        words += &format!(", {} generator threads", load.threads);
    }
    if let Some(rate) = load.rate {
        words += &format!(", {} requests/s offered", figure::rate(rate));
    }
    words
}

fn request_and_load(load: &record::Load) -> String {
    format!("{} {}", load.request, load_words(load)).trim_start().to_owned()
}

/// What a load among several is called in a sentence: its name, or what it is; with its request,
/// where the loads differ in it.
pub(super) fn load_name(load: &record::Load, among: &[&record::Load]) -> String {
    let name = if load.name.is_empty() { load_words(load) } else { load.name.clone() };
    let differ = among.iter().any(|other| other.request != load.request);
    match differ && !load.request.is_empty() && name != load.request {
        true => format!("{name}, {}", load.request),
        false => name,
    }
}

/// The same as a title: with what it is in any case.
pub(super) fn load_title(load: &record::Load, among: &[&record::Load]) -> String {
    let (name, words) = (load_name(load, among), load_words(load));
    if load.name.is_empty() { name } else { format!("{name}: {words}") }
}

/// ` under POST /bla`, for a sentence about one of several loads; empty for the only one.
pub(super) fn under(run: &Run, load: usize) -> String {
    let all: Vec<&record::Load> = run.loads.iter().collect();
    match run.loads.get(load).filter(|_| run.loads.len() > 1) {
        Some(load) => format!(" under {}", load_name(load, &all)),
        None => String::new(),
    }
}

/// `core 0`, `cores 0–3`, `cores 0, 2`.
fn cores(cpus: &[usize]) -> Option<String> {
    let (first, last) = (*cpus.first()?, *cpus.last()?);
    Some(match cpus {
        [one] => format!("core {one}"),
        _ if last - first + 1 == cpus.len() => format!("cores {first}–{last}"),
        _ => format!("cores {}", cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    })
}

fn host(host: &record::Host) -> Host {
    let mut parts = Vec::new();
    if host.cores > 0 {
        parts.push(format!("{} × {}", host.cores, host.cpu).trim_end_matches(" × ").to_owned());
    }
    if host.memory_bytes > 0 {
        parts.push(format!("{:.0} GB", host.memory_bytes as f64 / 1e9));
    }
    parts.extend([&host.os, &host.kernel].into_iter().filter(|t| !t.is_empty()).cloned());
    parts.extend(host.virtualisation.clone());
    Host { line: parts.join(", "), facts: host.clone() }
}

fn table(run: &Run, standing: &Standing) -> Table {
    let load = &run.loads[standing.load];
    let shown =
        |i: &usize| run.servers[*i].role != Role::Double && run.servers[*i].retired.is_none();
    let mut order: Vec<usize> = (0..run.servers.len()).filter(shown).collect();
    in_order(run, standing, &mut order);
    let all: Vec<&record::Load> = run.loads.iter().collect();
    Table {
        load: standing.load,
        title: match all.len() {
            1 => String::new(),
            _ => load_title(load, &all),
        },
        under: under(run, standing.load),
        rate: load.rate.map(rounded),
        is_measured: standing.servers.iter().any(is_measured),
        reference: standing.reference.map(|r| run.servers[r].name.clone()),
        noise: noise(run, standing),
        rows: order.into_iter().map(|server| row(run, standing, server)).collect(),
        sentences: sentence::sentences(run, standing),
    }
}

/// Puts servers in the order of the table.
pub(super) fn in_order(run: &Run, standing: &Standing, servers: &mut [usize]) {
    servers.sort_by(|&a, &b| {
        let ((a, figure_a), (b, figure_b)) = (place(run, standing, a), place(run, standing, b));
        a.cmp(&b).then(figure_a.total_cmp(&figure_b))
    });
}

/// Where a row goes: by rank; within a rank those that the generator limits first, by CPU time per
/// request, then the others by requests/s; then those without a rank in the same order, then the
/// ceiling. Layers keep the order of their steps.
fn place(run: &Run, standing: &Standing, server: usize) -> ((u32, u32), f64) {
    let measured = &standing.servers[server];
    let rank = measured.rank.unwrap_or(u32::MAX - 1);
    match (run.servers[server].role, &measured.rate) {
        (Role::Ceiling, _) => ((u32::MAX, 0), 0.0),
        _ if run.question == Question::Ladder => ((0, 0), server as f64),
        (_, Some(_)) if measured.is_bound => {
            ((rank, 0), measured.cost.map_or(f64::MAX, |cost| cost.value))
        }
        (_, Some(rate)) => ((rank, 1), -rate.value),
        (_, None) => ((rank, 2), 0.0),
    }
}

fn row(run: &Run, standing: &Standing, index: usize) -> Row {
    let (server, measured) = (&run.servers[index], &standing.servers[index]);
    let laps: Vec<&record::Lap> =
        run.laps.iter().filter(|l| l.server == index && l.load == standing.load).collect();
    let main: Vec<&record::Lap> = laps.iter().copied().filter(|l| run.is_main(l)).collect();
    let usages = || main.iter().filter_map(|l| l.usage.as_ref());
    let most = |bytes: fn(&hotlap_harness::lap::Usage) -> u64| {
        usages().map(bytes).filter(|b| *b > 0).max().map(|b| megabytes(b as f64))
    };
    let errors_by_kind = errors(&laps);
    let load = &run.loads[standing.load];
    let in_flight = (load.connections * load.pipeline) as u64;
    let concurrency = |rate| Concurrency { in_flight, rate };
    Row {
        rank: measured.rank,
        name: server.name.clone(),
        role: server.role,
        command: server.command.clone(),
        version: server.version.clone(),
        laps: measured.laps,
        is_bound: measured.is_bound,
        requests_per_s: measured.rate.as_ref().map(per_second),
        of_ceiling: of_ceiling(standing, index),
        cpu_us: measured.cost.as_ref().map(|c| micros(&scaled(c, 1e-3))),
        in_slices: bias::in_slices(run, standing.load, index).as_ref().map(ratio),
        of_alone: level(&measured.of_alone, standing.confidence).as_ref().map(ratio),
        instructions_user: instructions(run, standing.load, index, |c| Some(c.instructions_user)),
        instructions_kernel: instructions(run, standing.load, index, |c| c.instructions_kernel),
        switches: switches(&main),
        against: measured.against.and_then(|a| against(run, standing, &a)),
        refused: warning::refused(run, standing.load, index, true).unwrap_or_default(),
        wrong_responses: measured.wrong,
        service: latency(&measured.service, concurrency(load.rate)),
        response: measured
            .response
            .as_ref()
            .map(|(times, rate)| latency(times, concurrency(Some(*rate)))),
        rss_mb: most(|u| u.rss_bytes),
        pss_mb: most(|u| u.pss_bytes.unwrap_or(0)),
        cpu_percent: cpu_percent(&main),
        errors: errors_by_kind.iter().map(|e| e.count).sum(),
        errors_by_kind,
        ready_ms: middle(
            run.starts.iter().filter(|s| s.server == index).filter_map(|s| s.ready_ms),
        ),
        steady_ms: middle(warmups(run, standing.load, index).map(|w| w.steady_ms)),
        warmup: warmups(run, standing.load, index)
            .last()
            .map_or_else(String::new, |w| warning::class(w.class).to_owned()),
        badges: badges(run, index),
        notes: notes(run, standing.load, index),
        published: published::published(run, standing, index),
    }
}

fn of_ceiling(standing: &Standing, server: usize) -> Option<Figure> {
    match standing.ceiling == Some(server) && standing.servers[server].cost.is_some() {
        true => Some(bare(100.0, "100 %".to_owned())),
        false => standing.of_ceiling(server).as_ref().map(percent),
    }
}

fn scaled(estimate: &Estimate, by: f64) -> Estimate {
    Estimate { value: estimate.value * by, low: estimate.low * by, high: estimate.high * by }
}

fn middle(values: impl Iterator<Item = f64>) -> Option<Figure> {
    median(&values.collect::<Vec<_>>()).map(millis)
}

fn warmups(run: &Run, load: usize, server: usize) -> impl Iterator<Item = &record::Warmup> {
    let starts = run.starts.iter().filter(move |s| s.server == server);
    starts.flat_map(|s| &s.warmups).filter(move |w| w.load == load)
}

fn badges(run: &Run, server: usize) -> String {
    let start = run.starts.iter().rev().find(|s| s.server == server && s.badges.1 > 0);
    start.map_or_else(String::new, |s| format!("{}/{}", s.badges.0, s.badges.1))
}

fn notes(run: &Run, load: usize, server: usize) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    notes.extend(run.servers[server].part.cpus.map(|n| scaling::beyond(run, n)));
    notes.push(ladder::side_effect(run, load, server));
    notes.retain(|note| !note.is_empty());
    notes.extend(warning::notes_of(run, server));
    notes
}

fn errors(laps: &[&record::Lap]) -> Vec<ErrorCount> {
    let mut all = hotlap_load::Failures::default();
    for failure in laps.iter().flat_map(|l| &l.failures) {
        all.add(failure.failure, failure.phase, failure.count);
    }
    let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut counts: Vec<ErrorCount> = all
        .0
        .iter()
        .map(|c| ErrorCount {
            kind: word(serde_json::json!(c.failure)),
            phase: word(serde_json::json!(c.phase)),
            count: c.count,
        })
        .collect();
    counts.sort_by_key(|c| std::cmp::Reverse(c.count));
    counts
}

/// A sum over those laps that count, per request.
fn per_request(
    laps: &[&record::Lap],
    figure: impl Fn(&hotlap_harness::lap::Usage) -> Option<u64>,
) -> Option<f64> {
    let usages = laps.iter().filter(|l| l.counts()).filter_map(|l| l.usage);
    let (sum, requests) = usages
        .filter_map(|u| Some((figure(&u)?, u.requests)))
        .fold((0, 0), |(s, r), (n, requests)| (s + n, r + requests));
    (requests > 0).then(|| sum as f64 / requests as f64)
}

/// Instructions a request: the middle one of what was counted after each start's warm-up.
fn instructions(
    run: &Run,
    load: usize,
    server: usize,
    mode: impl Fn(&hotlap_harness::lap::Counted) -> Option<u64>,
) -> Option<Figure> {
    let counts = warmups(run, load, server).filter_map(|w| w.count).filter(|c| c.requests > 0);
    let per = |c: record::Count| Some(mode(&c.counted)? as f64 / c.requests as f64);
    let middle = median(&counts.filter_map(per).collect::<Vec<_>>())?;
    Some(bare(middle, figure::grouped(middle, 0)))
}

fn switches(laps: &[&record::Lap]) -> Option<Figure> {
    let per = per_request(laps, |u| Some(u.switches? + u.preemptions?))?;
    Some(bare(per, format!("{per:.2}")))
}

fn cpu_percent(laps: &[&record::Lap]) -> Option<Figure> {
    let usages = laps.iter().filter(|l| l.counts()).filter_map(|l| l.usage);
    let known = usages.filter_map(|u| Some((u.cpu_ns?, u.wall_ns)));
    let (cpu, wall) = known.fold((0, 0), |(c, w), (cpu, wall)| (c + cpu, w + wall));
    (wall > 0).then(|| {
        let percent = cpu as f64 / wall as f64 * 100.0;
        bare(percent, format!("{} %", figure::grouped(percent, 0)))
    })
}

fn against(run: &Run, standing: &Standing, found: &super::standing::Against) -> Option<Against> {
    let ratio_of = |measure| found.of(measure).map(|(e, _)| ratio(&e.ratio));
    let is_offered = standing.offered.is_some() && matches!(found.limited, Some(Limited::Both));
    let said = |measure| match measure {
        Measure::Rate if is_offered => KEEP_UP.to_owned(),
        _ => verdict(measure, found.of(measure).map(|(_, v)| v)).to_owned(),
    };
    Some(Against {
        reference: run.servers[standing.reference?].name.clone(),
        requests_per_s: ratio_of(Measure::Rate),
        requests_per_s_verdict: said(Measure::Rate),
        cost: ratio_of(Measure::Cost),
        cost_verdict: said(Measure::Cost),
        p50: ratio_of(Measure::P50),
        p50_verdict: said(Measure::P50),
        p99: ratio_of(Measure::P99),
        p99_verdict: said(Measure::P99),
        memory: ratio_of(Measure::Memory),
        memory_verdict: said(Measure::Memory),
    })
}

/// A verdict in the word of its measure.
pub(super) fn verdict(measure: Measure, found: Option<Verdict>) -> &'static str {
    let (better, worse) = match measure {
        Measure::Rate => ("faster", SLOWER),
        Measure::Cost => ("cheaper", DEARER),
        Measure::P50 | Measure::P99 => ("shorter", LONGER),
        Measure::Memory => ("less", MORE),
    };
    match found {
        None => "not to be told",
        Some(Verdict::Inconclusive(Inconclusive::TooFewRestarts)) => {
            "inconclusive: fewer than three restarts"
        }
        Some(Verdict::Inconclusive(Inconclusive::NoiseUnknown)) => {
            "inconclusive: the noise floor is unknown"
        }
        Some(Verdict::Inconclusive(Inconclusive::ControlDiffers)) => {
            "inconclusive: the A/A control differs from the reference"
        }
        Some(Verdict::NoDifference) => "no difference that could be measured",
        Some(Verdict::Better) => better,
        Some(Verdict::Worse) => worse,
    }
}

fn noise(run: &Run, standing: &Standing) -> Option<Noise> {
    let server = run.servers[standing.reference?].name.clone();
    let (rate, cost) = (standing.rate_noise, standing.cost_noise);
    rate.or(cost)?;
    let band = |effect: Option<Effect>, measure| {
        let is_known = standing.floor(measure) != NoiseFloor::Unusable(Inconclusive::NoiseUnknown);
        is_known.then_some(rounded(effect?.far_end().exp_m1()))
    };
    let (rate_band, cost_band) = (band(rate, Measure::Rate), band(cost, Measure::Cost));
    let said: Vec<String> = [(rate_band, "in requests/s"), (cost_band, "in CPU time per request")]
        .into_iter()
        .filter_map(|(band, what)| Some(format!("{} {what}", figure::spread(band?))))
        .collect();
    let sentence = match said.is_empty() {
        true => {
            format!(
                "Noise here today: not known yet ({server} against itself needs more restarts)."
            )
        }
        false => format!("Noise here today: {} ({server} against itself).", said.join(", ")),
    };
    let reference = &standing.servers[standing.reference?];
    let around = |level: Option<Estimate>, band: Option<f64>, by: f64| {
        let (value, band) = (level?.value * by, 1.0 + band?);
        Some((rounded(value / band), rounded(value * band)))
    };
    Some(Noise {
        server,
        requests_per_s_around: around(reference.rate, rate_band, 1.0),
        cost_around: around(reference.cost, cost_band, 1e-3),
        requests_per_s: rate.map(|e| ratio(&e.ratio)),
        cost: cost.map(|e| ratio(&e.ratio)),
        requests_per_s_band: rate_band,
        cost_band,
        sentence,
    })
}

fn failed(run: &Run, standings: &[Standing], index: usize) -> Option<Failed> {
    let server = &run.servers[index];
    let why = server.retired.as_ref()?;
    // Where the reference fails its double does: nobody named it, and it is told once.
    let is_out = |s: &record::Server| s.role == Role::Reference && s.retired.is_some();
    if server.role == Role::Double && run.servers.iter().any(is_out) {
        return None;
    }
    Some(Failed {
        name: server.name.clone(),
        phase: why.phase.clone(),
        command: server.command.clone(),
        cause: why.cause.clone(),
        last_words: why.last_words.clone(),
        cure: why.cure.clone(),
        published: standings.iter().flat_map(|s| published::published(run, s, index)).collect(),
    })
}

/// For sentences: whether a server was measured at all.
pub(super) fn is_measured(measured: &Measured) -> bool {
    measured.rate.is_some()
}
