//! A load that several generators send together.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hotlap_load::outcome::Tick;
use hotlap_load::plan::{Plan, Stop};
use hotlap_load::{Outcome, Progress, Window};
use hotlap_servers::running::Sample;

use crate::channel::{Channel, all, together};
use crate::clock::{Clock, Offset, requests_at};
use crate::error::{ChannelError, ChannelFault};
use crate::generator::{
    AskStatus, Begin, Begun, Collect, End, GeneratorOrder, Hold, Join, Joined, Open, PROMPT, Pause,
    Prepare, Status, StopLoad,
};
use crate::load::{LoadError, LoadOutcome, RunningLoad, ValuesUsed};
use crate::message::Order;
use crate::outcome::{self, Contributions, GeneratorOutcome, Limits, Sampled};

/// The time limit for opening connections, in addition to the plan's timeout.
const READY: Duration = Duration::from_secs(60);

/// How often generators that are opening connections are asked whether they are ready.
const READY_POLL: Duration = Duration::from_millis(5);

/// How long a load may last after its window, in addition to the plan's timeout.
const END: Duration = Duration::from_secs(10);

/// The minimum time between the agreement on a start and the start.
const MARGIN: Duration = Duration::from_millis(100);

/// How often generators are asked whether the load has ended.
const POLL: Duration = Duration::from_millis(20);

/// The number of values of each field that a thread of a lost generator is assumed to have used,
/// because the real number is unknown. The number is enough for 16 s at 1 million requests/s.
const VALUES_OF_LOST: u64 = 1 << 24;

/// Generators, and the part of a load that each generator sends.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) generators: Vec<Arc<Channel>>,
    pub(super) parts: Vec<Plan>,
    /// The number of generators that load. If there is one more, it samples.
    pub(super) loading: usize,
    /// The whole load.
    pub(super) plan: Plan,
}

impl Parts {
    /// Gives each generator its part, and waits until each connection is open or has failed once.
    fn open<O: Order<Report = u64>>(
        &self,
        order: impl Fn(Plan) -> O + Sync,
    ) -> Result<Vec<PartialLoad>, ChannelError> {
        let pairs: Vec<_> = self.generators.iter().zip(&self.parts).collect();
        all(together(&pairs, |(generator, part)| {
            let id = generator.call(order((*part).clone()))?;
            let (channel, is_over) = (Arc::clone(generator), AtomicBool::new(false));
            let load = PartialLoad { channel, id, is_over };
            load.wait_until_ready(READY + part.timeout)?;
            Ok(load)
        }))
    }

    /// Compares the clocks of all generators with this host's.
    fn clocks(&self) -> Result<Vec<Offset>, ChannelError> {
        all(together(&self.generators, |generator| generator.clock(PROMPT)))
    }
}

/// A generator's part of a load. Dropping this value ends the part.
#[derive(Debug)]
struct PartialLoad {
    channel: Arc<Channel>,
    /// The load's number at the generator.
    id: u64,
    /// Whether the generator has been told to end the part.
    is_over: AtomicBool,
}

impl PartialLoad {
    fn call<O: Order<All = GeneratorOrder>>(
        &self,
        order: impl FnOnce(u64) -> O,
    ) -> Result<O::Report, ChannelError> {
        self.channel.call(order(self.id))
    }

    fn status(&self) -> Result<Status, ChannelError> {
        self.call(|id| AskStatus { id })
    }

    /// Waits until each connection of the generator is open or has failed once.
    fn wait_until_ready(&self, limit: Duration) -> Result<(), ChannelError> {
        let deadline = Instant::now() + limit;
        loop {
            let status = self.status()?;
            if status.is_ready {
                return Ok(());
            }
            if status.is_finished {
                // No connection could be opened, and the error of this call is the cause.
                self.call(|id| Join { id })?;
            }
            if Instant::now() > deadline {
                return Err(self.late("opening connections", limit));
            }
            std::thread::sleep(READY_POLL);
        }
    }

    /// Returns the error for a generator that took too long.
    fn late(&self, phase: &str, limit: Duration) -> ChannelError {
        let (command, phase) = (self.channel.command().to_owned(), phase.to_owned());
        ChannelError { command, phase, fault: ChannelFault::Unfinished(limit) }
    }

    fn stop(&self) -> Result<(), ChannelError> {
        self.call(|id| StopLoad { id })
    }

    /// Ends the part and closes its connections. Returns an upper bound on the number of field
    /// values that it used.
    fn end(&self) -> Result<u64, ChannelError> {
        self.is_over.store(true, Ordering::Relaxed);
        self.call(|id| End { id })
    }
}

impl Drop for PartialLoad {
    fn drop(&mut self) {
        if !self.is_over.load(Ordering::Relaxed) {
            // If the generator is lost, its part of the load has ended too.
            let _ = self.end();
        }
    }
}

/// A load that several generators send together. Dropping this value ends the load.
#[derive(Debug)]
pub(super) struct RunningGroup {
    load: Parts,
    /// The part of each generator.
    loads: Vec<PartialLoad>,
    /// When the load's window opens and closes, if it has one window.
    window: Option<Window>,
    /// When the load must have ended. `None` if a number of requests ends the load, or if the load
    /// is held.
    deadline: Option<Instant>,
    /// An upper bound on the number of field values that the load used. Until the load has ended,
    /// this is [`VALUES_OF_LOST`] for each thread.
    used: Arc<AtomicU64>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The offset of each generator's clock in the latest comparison.
    offsets: Vec<Offset>,
    /// The windows of each generator that have not been collected.
    windows: Vec<Vec<Opened>>,
    statuses: Vec<Status>,
    lost: Option<ChannelError>,
}

/// A window of one generator.
#[derive(Debug, Clone, Copy)]
struct Opened {
    begun: Begun,
    /// When the window closes, by the generator's clock. `None` if only the outcome shows it.
    closes_ns: Option<u64>,
}

impl RunningGroup {
    fn new(load: Parts, loads: Vec<PartialLoad>, offsets: Vec<Offset>) -> Self {
        let count = loads.len();
        let used =
            VALUES_OF_LOST * load.parts.iter().map(|part| part.shape.threads as u64).sum::<u64>();
        let state = State {
            offsets,
            windows: vec![Vec::new(); count],
            statuses: vec![Status::default(); count],
            lost: None,
        };
        let used = Arc::new(AtomicU64::new(used));
        Self { load, loads, window: None, deadline: None, used, state: Mutex::new(state) }
    }

    /// Opens all connections and begins to send, on all generators at the same time.
    pub(super) fn begin(load: Parts) -> Result<Self, LoadError> {
        let loads = load.open(|plan| Prepare { plan })?;
        let offsets = load.clocks()?;
        let mut own = Self::new(load, loads, offsets.clone());
        let at_ns = start_ns(&own.load.plan, &offsets);
        let pairs: Vec<_> = own.loads.iter().zip(&offsets).collect();
        let begun = all(together(&pairs, |(load, offset)| {
            load.call(|id| Begin { id, at_ns: offset.to_remote(at_ns) })
        }))?;
        let wait = Duration::from_nanos(at_ns.saturating_sub(Clock::default().now_ns()));
        let begins = Instant::now() + wait;
        own.window = Some(match own.load.plan.stop {
            Stop::After(length) => {
                let opens = begins + own.load.plan.warmup;
                let closes = opens + length;
                own.deadline = Some(closes + own.load.plan.timeout + END);
                Window { opens, closes: Some(closes) }
            }
            Stop::Requests(_) => Window { opens: begins, closes: None },
        });
        let mut state = own.lock();
        let opened = begun.into_iter().map(|begun| vec![Opened { begun, closes_ns: None }]);
        state.windows = opened.collect();
        drop(state);
        Ok(own)
    }

    /// Opens the connections of a load that is held between windows.
    pub(super) fn hold(load: Parts) -> Result<Self, LoadError> {
        let loads = load.open(|plan| Hold { plan })?;
        let offsets = load.clocks()?;
        Ok(Self::new(load, loads, offsets))
    }

    /// Returns the time of each generator's report, in nanoseconds of this host's clock, and how
    /// many requests the generator has completed.
    fn readings(&self) -> Vec<(u64, u64)> {
        let clock = Clock::default();
        let readings = self.each(|load, offset| {
            let asked_ns = clock.now_ns();
            let status = load.status()?;
            // The clocks may have drifted apart since the latest comparison.
            let at_ns = offset.to_local(status.at_ns).clamp(asked_ns, clock.now_ns());
            Ok((at_ns, status))
        });
        let Some(readings) = readings else { return Vec::new() };
        self.lock().statuses = readings.iter().map(|(_, status)| *status).collect();
        readings.into_iter().map(|(at_ns, status)| (at_ns, status.progress.completed())).collect()
    }

    /// Applies a function to the part of each generator at the same time. `None` if a generator is
    /// or was lost, or if the user interrupts.
    fn each<R: Send>(
        &self,
        does: impl Fn(&PartialLoad, Offset) -> Result<R, ChannelError> + Sync,
    ) -> Option<Vec<R>> {
        let state = self.lock();
        if state.lost.is_some() {
            return None;
        }
        let offsets = state.offsets.clone();
        drop(state);
        let pairs: Vec<_> = self.loads.iter().zip(&offsets).collect();
        let results = together(&pairs, |(load, offset)| does(load, **offset));
        all(results).map_err(|error| self.lose(error)).ok()
    }

    fn lose(&self, error: ChannelError) {
        if error.fault == ChannelFault::Interrupted {
            return;
        }
        self.lock().lost.get_or_insert(error);
        // The other generators must not go on loading the server.
        let _ = together(&self.loads, PartialLoad::stop);
    }

    /// Returns the sum of the outcomes of all generators, and what each generator contributed.
    fn merged(&self, after: &[Offset], joined: Vec<Joined>) -> LoadOutcome {
        let loading = self.load.loading;
        let state = self.lock();
        let windows: Vec<Vec<(u64, u64)>> = (0..joined.len())
            .map(|index| {
                let (before, after) = (state.offsets[index], after[index]);
                let closes = |begun: Begun| begun.opens_ns + joined[index].outcome.window_ns;
                let local = |window: &Opened| {
                    let closes_ns = window.closes_ns.unwrap_or_else(|| closes(window.begun));
                    let opens_ns = window.begun.opens_ns;
                    (before.to_local(opens_ns), after.to_local(closes_ns.max(opens_ns)))
                };
                let mut own: Vec<(u64, u64)> = state.windows[index].iter().map(local).collect();
                let agreed: u64 =
                    own.iter().map(|(opens, closes)| closes.saturating_sub(*opens)).sum();
                if let Some((_, last)) = own.last_mut() {
                    // A window that closed late was open for longer than agreed.
                    *last += joined[index].outcome.window_ns.saturating_sub(agreed);
                }
                own
            })
            .collect();
        let limits = match self.window {
            Some(_) => Limits::of(&self.load.plan),
            None => Limits::of_windows(windows.first().map_or(&[], |own| &own[..])),
        };
        let late: Vec<u64> = (state.windows.iter())
            .map(|own| own.iter().map(|window| window.begun.late_ns).max().unwrap_or(0))
            .collect();
        let before = state.offsets.clone();
        drop(state);
        let mut generators: Vec<GeneratorOutcome> = (0..joined.len())
            .map(|index| GeneratorOutcome {
                before: before[index],
                after: after[index],
                late_ns: late[index],
                opened_ns: windows[index].first().map_or(0, |(opened, _)| *opened),
                closed_ns: windows[index].last().map_or(0, |(_, closed)| *closed),
                ..self.generator(index, &joined[index])
            })
            .collect();
        let series: Vec<&[Tick]> =
            joined[..loading].iter().map(|joined| &*joined.outcome.series).collect();
        for (index, generator) in generators.iter_mut().take(loading).enumerate() {
            generator.silent_ns = outcome::silent_ns(&series, index);
        }
        let overlap = outcome::overlap(&generators, &windows);
        let invalid = outcome::judge(&limits, overlap, &generators);
        let mut outcomes: Vec<Outcome> = joined.into_iter().map(|joined| joined.outcome).collect();
        let sampled = generators.drain(loading..).zip(outcomes.drain(loading..)).next();
        let sampled = sampled.map(|(generator, outcome)| Sampled { generator, outcome });
        let sum = outcomes.into_iter().reduce(|mut sum, other| {
            sum.merge(&other);
            sum
        });
        let contributions = Contributions { generators, sampled, overlap, invalid };
        LoadOutcome { outcome: sum.unwrap_or_default(), contributions: Some(contributions) }
    }

    /// Returns the contribution of one generator, without its times.
    fn generator(&self, index: usize, joined: &Joined) -> GeneratorOutcome {
        let (generator, part) = (&self.load.generators[index], &self.load.parts[index]);
        let outcome = &joined.outcome;
        GeneratorOutcome {
            command: generator.command().to_owned(),
            host: generator.host().to_owned(),
            connections: part.shape.connections,
            threads: part.shape.threads,
            share: match index < self.load.loading {
                true => share(&self.load.plan, part),
                false => 0.0,
            },
            responses: outcome.responses,
            failures: outcome.failures.total(),
            sent: outcome.totals.sent,
            paused_ns: joined.paused_ns,
            busy: outcome.busiest(),
            ..GeneratorOutcome::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningLoad for RunningGroup {
    /// Returns at once, because connections are opened before the load begins or is held.
    fn wait_for_window(&self) -> Option<Window> {
        let now = Window { opens: Instant::now(), closes: None };
        self.lost().is_none().then(|| self.window.unwrap_or(now))
    }

    fn open_window(&self, warmup: Duration, length: Duration) {
        let at_ns = Clock::default().now_ns() + warmup.as_nanos() as u64;
        let opened = self.each(|load, offset| {
            let at_ns = offset.to_remote(at_ns);
            let begun = load.call(|id| Open { id, at_ns, length })?;
            Ok(Opened { begun, closes_ns: Some(at_ns + length.as_nanos() as u64) })
        });
        let mut state = self.lock();
        for (windows, opened) in state.windows.iter_mut().zip(opened.unwrap_or_default()) {
            windows.push(opened);
        }
    }

    fn pause(&self, limit: Duration) -> bool {
        let paused = self.each(|load, _| load.call(|id| Pause { id, limit }));
        paused.is_some_and(|all_idle| all_idle.into_iter().all(|is_idle| is_idle))
    }

    fn collect(&self) -> Option<LoadOutcome> {
        let after = self.each(|load, _| load.channel.clock(PROMPT))?;
        let joined = self.each(|load, _| load.call(|id| Collect { id }))?;
        let collected = self.merged(&after, joined);
        let mut state = self.lock();
        state.offsets = after;
        state.windows.iter_mut().for_each(Vec::clear);
        Some(collected)
    }

    /// Interpolates the count between readings before and after the sample, because readings take
    /// a moment.
    fn sample(&self, take: &mut dyn FnMut(&dyn Fn() -> u64) -> Sample) -> Sample {
        let before = self.readings();
        let sample = take(&|| 0);
        let age = Instant::now().saturating_duration_since(sample.at);
        let moment = Clock::default().now_ns().saturating_sub(age.as_nanos() as u64);
        let pairs = before.into_iter().zip(self.readings());
        let requests = pairs.map(|(from, to)| requests_at(moment, from, to)).sum();
        Sample { requests, ..sample }
    }

    fn progress(&self) -> Progress {
        if let Some(statuses) = self.each(|load, _| load.status()) {
            self.lock().statuses = statuses;
        }
        let state = self.lock();
        let unfinished = state.statuses.iter().position(|status| !status.is_finished);
        let mut sum = Progress::default();
        state.statuses.iter().for_each(|status| sum.add(status.progress));
        drop(state);
        if let (Some(index), Some(deadline)) = (unfinished, self.deadline)
            && Instant::now() > deadline
        {
            let limit = self.load.plan.timeout + END;
            self.lose(self.loads[index].late("waiting for the end of the load", limit));
        }
        sum
    }

    fn is_finished(&self) -> bool {
        let state = self.lock();
        state.lost.is_some() || state.statuses.iter().all(|status| status.is_finished)
    }

    fn values_used(&self) -> ValuesUsed {
        let used = Arc::clone(&self.used);
        Box::new(move || used.load(Ordering::Relaxed))
    }

    fn stop(&self) {
        let _ = self.each(|load, _| load.stop());
    }

    fn join(self: Box<Self>) -> Result<LoadOutcome, LoadError> {
        while !self.is_finished() {
            self.progress();
            if !self.is_finished() {
                std::thread::sleep(POLL);
            }
        }
        let joined = self.each(|load, _| load.channel.clock(PROMPT)).and_then(|after| {
            let joined = self.each(|load, _| load.call(|id| Join { id }))?;
            Some(self.merged(&after, joined))
        });
        joined.ok_or_else(|| match self.lost() {
            Some(why) => LoadError::Lost(why),
            None => LoadError::Failed("interrupted while collecting the outcome".to_owned()),
        })
    }

    /// A generator may have been lost during another load.
    fn lost(&self) -> Option<ChannelError> {
        let own = self.lock().lost.clone();
        own.or_else(|| self.loads.iter().find_map(|load| load.channel.closed()))
    }
}

impl Drop for RunningGroup {
    fn drop(&mut self) {
        if let Ok(used) = all(together(&self.loads, PartialLoad::end)) {
            self.used.store(used.iter().sum(), Ordering::Relaxed);
        }
    }
}

/// Returns when to begin, on this host's clock. The time leaves three round trips and a margin for
/// the order to reach every generator. If the plan has a later start time, that time counts.
fn start_ns(plan: &Plan, offsets: &[Offset]) -> u64 {
    // The error of an offset is half of a round trip.
    let error = offsets.iter().map(|offset| offset.error()).max().unwrap_or_default();
    let asked = plan.start_at.and_then(|at| at.duration_since(SystemTime::now()).ok());
    let wait = (MARGIN + 6 * error).max(asked.unwrap_or_default());
    Clock::default().now_ns() + wait.as_nanos() as u64
}

/// Returns the share of the requests that a generator sends, 0 to 1. In a closed loop this is its
/// share of the connections. In an open loop all generators have the same share.
pub(super) fn share(whole: &Plan, part: &Plan) -> f64 {
    match whole.pace.rate() {
        None => part.shape.connections as f64 / whole.shape.connections.max(1) as f64,
        Some(_) => 1.0 / part.part.of.max(1) as f64,
    }
}
