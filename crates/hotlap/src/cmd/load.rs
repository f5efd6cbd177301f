//! `hotlap load`: the load generator alone, with wrk's flags.

pub mod access_log;
mod loaded;
mod output;
pub mod requests;

use std::time::{Duration, Instant, SystemTime};

use hotlap_agent::{Generators, LoadError, LoadHost, LoadOutcome, ThisProcess};
use hotlap_bench::validity::is_failing;
use hotlap_load::plan::{LoadPart, Pace, Plan, Request, Stop};
use hotlap_load::{Failure, Progress};
use hotlap_observe::cpus;
use hotlap_servers::infer::PROBES;

use crate::cli::{Form, LoadArgs, ReplayMode};
use crate::console::Console;
use crate::exit::{Exit, server_failed, usage};
use crate::export::Exports;
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::redact;
use crate::text::number;
use crate::text::visible;
use loaded::Loaded;
use requests::Asked;

/// The interval at which the progress of a load is read.
const POLL: Duration = Duration::from_millis(50);

/// Runs a load, prints the result, and writes the exports.
pub fn run(args: LoadArgs, console: &Console) -> anyhow::Result<Exit> {
    if let Some(script) = &args.script {
        return usage(format!(
            "{}: hotlap does not run Lua scripts, because a script can cost CPU time for every \
             request. Use --method, --header and --body, or --requests-file for several requests \
             with weights",
            script.display()
        ));
    }
    let mut exports = exports(&args)?;
    let interrupt = Interrupt::listen()?;
    let (mut plan, asked) = plan(&args)?;
    let generators = open(&args, &interrupt);
    if interrupt.asked() {
        return Ok(interrupted(console));
    }
    let generators = generators?;
    let learned = match &generators {
        Some(generators) => learned(&asked, &args, generators),
        None => asked.requests(&args, interrupt.flag()),
    };
    if interrupt.asked() {
        return Ok(interrupted(console));
    }
    let (requests, notes) = learned?;
    plan.requests = requests;
    notes.iter().for_each(|note| console.note(&format!("Note: {note}")));
    let url = args.url.clone().unwrap_or_else(|| "several requests".to_owned());
    if args.format == Form::Wrk {
        console.data(&redact::text(&output::wrk_head(&visible(&url), &plan)))?;
    }
    let host: &dyn LoadHost = generators.as_ref().map_or(&ThisProcess, |group| group);
    let Some(LoadOutcome { outcome, contributions: generators }) =
        drive(host, &plan, &interrupt, console)?
    else {
        return Ok(Exit::Invalid);
    };
    let opened = SystemTime::now() - Duration::from_nanos(outcome.window_ns);
    let (names, latency) = (asked.names, args.latency);
    let loaded = Loaded { url, plan, names, outcome, generators, opened, latency };
    let data = match args.format {
        Form::Human => None,
        Form::Wrk => Some(output::wrk(&loaded)),
        Form::Json => Some(output::json(&loaded)),
        Form::Csv => Some(output::csv(&loaded)),
        Form::Hgrm => Some(output::hgrm(&loaded)),
        Form::Hlog => Some(output::hlog(&loaded)),
    };
    let printed = match data {
        Some(data) => console.data(&redact::text(&data)),
        None => console.result(exports.to_stdout(), |_| output::human(&loaded, console.width)),
    };
    // The exports are written even if the reader of standard output has closed it.
    exports.finish(&loaded)?;
    printed?;
    Ok(verdict(&loaded, &interrupt, console))
}

/// Reports that the load was interrupted before it began.
fn interrupted(console: &Console) -> Exit {
    console.warn("Interrupted before the load began.");
    Exit::Interrupted
}

/// Opens the exports before the load, so that a bad path fails before anything is sent.
fn exports(args: &LoadArgs) -> anyhow::Result<Exports<Loaded>> {
    let asked = &args.exports;
    let mut exports = Exports::default();
    exports.add(asked.export_json.as_deref(), output::json)?;
    exports.add(asked.export_csv.as_deref(), output::csv)?;
    exports.add(asked.export_hgrm.as_deref(), output::hgrm)?;
    exports.add(asked.export_hlog.as_deref(), output::hlog)?;
    if args.format != Form::Human && exports.to_stdout() {
        return usage(
            "--format and an export both write to standard output: leave out --format, or name a \
             file for the export",
        );
    }
    Ok(exports)
}

/// Turns the flags into a plan. The plan does not contain what probes will learn about responses.
fn plan(args: &LoadArgs) -> anyhow::Result<(Plan, requests::Asked)> {
    let (log, ask) = (&args.request, &args.request.ask);
    if ask.access_log.is_none() {
        access_log::needs_log(ask.replay)?;
    }
    if log.replay_speed.is_some() && ask.replay.replay != Some(ReplayMode::Times) {
        return usage("--replay-speed needs the log's times: add --replay times");
    }
    let mut asked = requests::Asked::of(args)?;
    let pace = match (asked.due.take(), args.rate) {
        (Some(_), Some(_)) => {
            return usage(
                "--replay times sends each request at its time in the log: leave out --rate, or \
                 use --replay-speed",
            );
        }
        (Some(due), None) => Pace::Recorded(due),
        (None, None) => Pace::Closed,
        (None, Some(rate)) if args.poisson => Pace::Poisson { rate, seed: args.seed },
        (None, Some(rate)) => Pace::Constant { rate },
    };
    let closes = args.connection.disable_keepalive || requests::ask_to_close(&ask.headers);
    let shape = args.connection.shape(args.connections, args.threads, closes)?;
    let allowed = cpus::allowed().unwrap_or_default();
    let is_missing = |cpu: &&usize| !allowed.is_empty() && !allowed.contains(cpu);
    let cores = args.generator_cpus.iter();
    if let Some(core) = cores.filter(|_| args.generator_on.is_empty()).find(is_missing) {
        return usage(format!(
            "--generator-cpus names core {core}, which is not available here: choose from {}",
            cpus::list(&allowed)
        ));
    }
    let stop = stop(args, &pace);
    if let (Some(rate), Stop::After(time)) = (args.rate, &stop)
        && rate * time.as_secs_f64() < 1.0
    {
        return usage(format!(
            "{rate} requests/s for {} s make less than one request: use -d {}s or more",
            time.as_secs_f64(),
            (1.0 / rate).ceil()
        ));
    }
    let plan = Plan {
        target: asked.target.clone(),
        requests: asked.unchecked(),
        fields: asked.fields.list.clone(),
        seed: asked.fields.seed,
        order: asked.fields.order.clone(),
        unique: 0,
        // An order starts with its first entry, since no probes were sent.
        first_value: if asked.fields.order.is_some() { 0 } else { PROBES },
        shape,
        stop,
        pace,
        warmup: args.warmup,
        timeout: args.connection.timeout,
        check_one_in: args.check_one_in,
        cpus: args.generator_cpus.clone(),
        busy_poll: true,
        sources: args.sources.clone(),
        start_at: args.start_at,
        part: LoadPart::default(),
    };
    // The flags are checked before any request is sent.
    plan.check().or_else(|e| usage(e.to_string()))?;
    Ok((plan, asked))
}

/// The measuring time if the command line gives none.
const DURATION: Duration = Duration::from_secs(10);

/// Determines when the load ends. A replay ends with its last request, if that request is due
/// before the measuring time is over.
fn stop(args: &LoadArgs, pace: &Pace) -> Stop {
    match (args.requests, args.duration, pace) {
        (Some(requests), _, _) => Stop::Requests(requests as u64),
        (None, None, Pace::Recorded(due)) => Stop::Requests(due.count() as u64),
        (None, Some(time), Pace::Recorded(due)) if time > due.span() => {
            Stop::Requests(due.count() as u64)
        }
        (None, time, _) => Stop::After(time.unwrap_or(DURATION)),
    }
}

/// Starts the agents that the flags name. Returns `None` if the flags name none.
fn open(args: &LoadArgs, interrupt: &Interrupt) -> anyhow::Result<Option<Generators>> {
    if args.generator_on.is_empty() {
        return Ok(None);
    }
    let sampler = args.sample_from.as_ref();
    Ok(Some(Generators::open(&args.generator_on, sampler, &interrupt.shared())?))
}

/// Learns the expected responses on the first generator's host, since this host may not reach the
/// server. Returns the requests and notes for the user, like [`Asked::requests`].
fn learned(
    asked: &Asked,
    args: &LoadArgs,
    generators: &Generators,
) -> anyhow::Result<(Vec<Request>, Vec<String>)> {
    let Some(probe) = asked.probe(args) else {
        return Ok((asked.unchecked(), asked.notes().to_vec()));
    };
    let host = probe.host.clone();
    match generators.probe(probe) {
        Ok(learned) => Ok((learned.requests, learned.notes)),
        Err(LoadError::Failed(why)) => server_failed(format!("{host}: {why}")),
        Err(error) => Err(error.into()),
    }
}

/// Runs the load with a live line. Ctrl-C ends the load early and keeps the results so far. If a
/// generator was lost, warns the user and returns `None`.
fn drive(
    host: &dyn LoadHost,
    plan: &Plan,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Option<LoadOutcome>> {
    let load = match host.start(plan) {
        Err(LoadError::Unfit(why)) => return usage(why),
        load => load?,
    };
    let mut view = LoadView::start(plan, console);
    let mut is_stopped = false;
    while !load.is_finished() {
        std::thread::sleep(POLL);
        if interrupt.asked() && !std::mem::replace(&mut is_stopped, true) {
            load.stop();
        }
        view.show(load.progress());
    }
    let joined = load.join();
    view.clear();
    match joined {
        Err(LoadError::Lost(why)) => {
            let what = "a generator was lost, so the load has no result";
            console.warn(&format!("NOT VALID: {what} ({why})"));
            Ok(None)
        }
        joined => Ok(Some(joined?)),
    }
}

/// A live line with the rate so far, and the time left if it is known.
struct LoadView {
    live: Live,
    began: Instant,
}

impl LoadView {
    /// Starts the live line. Nothing is shown if the console has no live view.
    fn start(plan: &Plan, console: &Console) -> Self {
        let quiet = Console { quiet: true, ..*console };
        let live = Live::start(if console.live { console } else { &quiet });
        match (plan.stop, &plan.pace) {
            (Stop::After(time), _) => live.left(plan.warmup + time),
            (Stop::Requests(_), Pace::Recorded(due)) => live.left(due.span()),
            (Stop::Requests(_), _) => {}
        }
        Self { live, began: Instant::now() }
    }

    fn show(&mut self, progress: Progress) {
        let rate = progress.responses as f64 / self.began.elapsed().as_secs_f64();
        let rate = number::rate(rate);
        self.live.phase(format!(
            "{rate} requests/s, {}",
            number::plural(progress.failures as usize, "error")
        ));
    }

    fn clear(&mut self) {
        self.live.clear();
    }
}

/// Returns the exit code, and prints a message if something is wrong.
fn verdict(loaded: &Loaded, interrupt: &Interrupt, console: &Console) -> Exit {
    let outcome = &loaded.outcome;
    if let Some(wrong) = &outcome.first_wrong {
        let head = redact::message(&wrong.first_bytes);
        console.note(&format!("\nThe first wrong response: {}", wrong.why));
        for line in String::from_utf8_lossy(&head).lines().take(8) {
            console.note(&format!("  | {}", visible(line)));
        }
        if loaded.plan.requests.len() > 1 || !loaded.plan.fields.is_empty() {
            let request = redact::message(&wrong.request);
            console.note("The request was:");
            for line in String::from_utf8_lossy(&request).lines().take(8) {
                console.note(&format!("  | {}", visible(line)));
            }
        }
        if outcome.failures.of(Failure::WrongStatus) > 0 {
            console.note(match loaded.plan.order {
                Some(_) => {
                    "Only correct responses are timed. The access log has another status \
                            for this request."
                }
                None => {
                    "Only correct responses are timed. If this status is correct, set \
                     --expect-status, or expect_status in the requests file."
                }
            });
        }
    }
    let wrong = [Failure::WrongBody, Failure::WrongStatus, Failure::BadFraming];
    let wrong: u64 = wrong.into_iter().map(|f| outcome.failures.of(f)).sum();
    for reason in loaded.invalid() {
        console.warn(&format!("\nNOT VALID: {}.", visible(&reason.to_string())));
    }
    let silent_since_s = loaded.silent_since_s();
    if let Some(since_s) = silent_since_s {
        let first = outcome.first_connect_error.as_deref();
        let why = first.map_or_else(String::new, |why| format!(" ({})", visible(why)));
        console.warn(&format!(
            "\nNOT VALID: the server stopped responding after {since_s:.1} s{why}. The requests/s \
             above are from the time before that."
        ));
    }
    let is_failing = is_failing([outcome]);
    if is_failing {
        let percent = 100.0 * outcome.failures.total() as f64 / outcome.requests() as f64;
        console.warn(&format!("\nNOT VALID: {percent:.0}% of the requests failed."));
    }
    match () {
        () if interrupt.asked() => Exit::Interrupted,
        () if wrong > 0 || outcome.responses == 0 => Exit::ServerFailed,
        () if is_failing || silent_since_s.is_some() => Exit::ServerFailed,
        () if !loaded.invalid().is_empty() => Exit::Invalid,
        () => Exit::Ok,
    }
}
