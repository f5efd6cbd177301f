//! A load that several generators send.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hotlap_load::outcome::Tick;
use hotlap_load::plan::{Plan, Stop};
use hotlap_load::{Outcome, Progress, Window};

use super::division;
use super::error::GroupError;
use super::outcome::{Contributions, GeneratorOutcome, GroupOutcome, Sampled};
use super::start::{Prepared, late};
use super::validity::{self, Limits};
use crate::clock::{Clock, Offset, requests_at};
use crate::error::ChannelError;
use crate::generator::{Begun, Joined, Status};
use crate::remote::{RemoteGenerator, RemoteLoad};
use crate::together::{all, together};

/// How long after its window a load may end, beyond the plan's timeout.
const END: Duration = Duration::from_secs(10);

/// The least time between agreeing on a start and that start.
const MARGIN: Duration = Duration::from_millis(100);

/// How often generators are asked whether the load has ended.
const POLL: Duration = Duration::from_millis(20);

/// How many values of each field a thread of a generator that is lost may have used at most, if
/// nobody knows: more than it could send in 15 s.
const VALUES_OF_LOST: u64 = 1 << 24;

/// A load that several generators send. Dropping it ends the load.
///
/// As [`hotlap_load::Session`], it has one window ([`Generators::start`](super::Generators::start))
/// or any number of them ([`Generators::hold`](super::Generators::hold)).
#[derive(Debug)]
pub struct Running {
    load: Prepared,
    /// The part of each generator.
    loads: Vec<RemoteLoad>,
    /// When its window opens and closes, if it has one.
    window: Option<Window>,
    /// When the load must have ended; `None` if a number of requests ends it, or it is held.
    deadline: Option<Instant>,
    used: GroupValues,
    state: Mutex<State>,
}

/// How many values of its fields a load of several generators has used.
#[derive(Debug, Clone)]
pub struct GroupValues(Arc<AtomicU64>);

impl GroupValues {
    /// An upper bound, once the load has ended.
    pub fn most(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct State {
    /// The offset of each clock when it was compared last.
    offsets: Vec<Offset>,
    /// The windows that are not collected, of each generator.
    windows: Vec<Vec<Opened>>,
    statuses: Vec<Status>,
    lost: Option<ChannelError>,
}

/// A window of one generator.
#[derive(Debug, Clone, Copy)]
struct Opened {
    begun: Begun,
    /// When it closes, by the generator's clock; `None` if its outcome says so.
    closes_ns: Option<u64>,
}

impl Running {
    fn new(load: Prepared, loads: Vec<RemoteLoad>, offsets: Vec<Offset>) -> Self {
        let count = loads.len();
        let used = VALUES_OF_LOST * load.parts.iter().map(|part| part.threads as u64).sum::<u64>();
        let state = State {
            offsets,
            windows: vec![Vec::new(); count],
            statuses: vec![Status::default(); count],
            lost: None,
        };
        let used = GroupValues(Arc::new(AtomicU64::new(used)));
        Self { load, loads, window: None, deadline: None, used, state: Mutex::new(state) }
    }

    /// Opens all connections and begins to send, all generators at the same time.
    pub(super) fn begin(load: Prepared) -> Result<Self, GroupError> {
        let loads = load.open(RemoteGenerator::prepare)?;
        let offsets = clocks(&load.generators)?;
        let mut own = Self::new(load, loads, offsets.clone());
        let at_ns = start_ns(&own.load.plan, &offsets);
        let pairs: Vec<_> = own.loads.iter().zip(&offsets).collect();
        let begun = all(together(&pairs, |(load, offset)| load.begin(offset.to_remote(at_ns))))?;
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

    /// Opens all connections.
    pub(super) fn hold(load: Prepared) -> Result<Self, GroupError> {
        let loads = load.open(RemoteGenerator::hold)?;
        let offsets = clocks(&load.generators)?;
        Ok(Self::new(load, loads, offsets))
    }

    /// When the window of a load that is not held opens and closes.
    pub fn window(&self) -> Option<Window> {
        self.window
    }

    /// Why a generator was lost, if one was, in this load or in another. The load has ended then.
    pub fn lost(&self) -> Option<ChannelError> {
        let own = self.lock().lost.clone();
        let closed = |load: &RemoteLoad| load.generator().channel().closed();
        own.or_else(|| self.loads.iter().find_map(closed))
    }

    /// What tells how many values of its fields the load used, once it has ended.
    pub fn values_used(&self) -> GroupValues {
        self.used.clone()
    }

    /// Opens a window of a held load on all generators, after `warmup` and for `length`.
    pub fn open_window(&self, warmup: Duration, length: Duration) {
        let at_ns = Clock::default().now_ns() + warmup.as_nanos() as u64;
        let opened = self.each(|load, offset| {
            let at_ns = offset.to_remote(at_ns);
            let begun = load.open_window(at_ns, length)?;
            Ok(Opened { begun, closes_ns: Some(at_ns + length.as_nanos() as u64) })
        });
        let mut state = self.lock();
        for (windows, opened) in state.windows.iter_mut().zip(opened.unwrap_or_default()) {
            windows.push(opened);
        }
    }

    /// Makes all generators of a held load pause, and waits for requests in flight for at most
    /// `limit`. Returns whether none is left.
    pub fn pause(&self, limit: Duration) -> bool {
        let paused = self.each(|load, _| load.pause(limit));
        paused.is_some_and(|all_idle| all_idle.into_iter().all(|is_idle| is_idle))
    }

    /// The outcome of the windows of a held load since the last call; `None` if a generator was
    /// lost.
    pub fn collect(&self) -> Option<GroupOutcome> {
        let after = self.each(|load, _| load.generator().clock())?;
        let joined = self.each(|load, _| load.collect())?;
        let collected = self.merged(&after, joined);
        let mut state = self.lock();
        state.offsets = after;
        state.windows.iter_mut().for_each(Vec::clear);
        Some(collected)
    }

    /// Asks all generators how far they have come, and returns the sum. If one is lost, the load
    /// ends.
    pub fn progress(&self) -> Progress {
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
            self.lose(late(self.loads[index].generator(), "waiting for the end of the load", END));
        }
        sum
    }

    /// Does something that takes a moment, and returns how many requests were answered or had
    /// failed at the moment that it returns: interpolated between readings before and after it.
    pub fn completed_at(&self, act: impl FnOnce() -> Instant) -> u64 {
        let before = self.readings();
        let at = act();
        let age = Instant::now().saturating_duration_since(at);
        let moment = Clock::default().now_ns().saturating_sub(age.as_nanos() as u64);
        let after = self.readings();
        before.into_iter().zip(after).map(|(from, to)| requests_at(moment, from, to)).sum()
    }

    /// How many requests each generator has completed, and when it said so, in nanoseconds of this
    /// host's clock.
    fn readings(&self) -> Vec<(u64, u64)> {
        let clock = Clock::default();
        let readings = self.each(|load, offset| {
            let asked_ns = clock.now_ns();
            let status = load.status()?;
            // The clocks may have drifted apart since they were compared.
            let at_ns = offset.to_local(status.at_ns).clamp(asked_ns, clock.now_ns());
            Ok((at_ns, status))
        });
        let Some(readings) = readings else { return Vec::new() };
        self.lock().statuses = readings.iter().map(|(_, status)| *status).collect();
        readings.into_iter().map(|(at_ns, status)| (at_ns, status.progress.completed())).collect()
    }

    /// Whether all generators had ended, or one was lost, when the progress was last asked for.
    pub fn is_finished(&self) -> bool {
        let state = self.lock();
        state.lost.is_some() || state.statuses.iter().all(|status| status.is_finished)
    }

    /// Ends the load now and keeps what was measured so far.
    pub fn stop(&self) {
        let _ = self.each(|load, _| load.stop());
    }

    /// Waits for the end of the load and merges the outcomes.
    ///
    /// # Errors
    /// A generator was lost.
    pub fn join(self) -> Result<GroupOutcome, GroupError> {
        while !self.is_finished() {
            self.progress();
            if !self.is_finished() {
                std::thread::sleep(POLL);
            }
        }
        let joined = self.each(|load, _| load.generator().clock()).and_then(|after| {
            let joined = self.each(|load, _| load.join())?;
            Some(self.merged(&after, joined))
        });
        joined.ok_or_else(|| GroupError::Lost(self.lost().expect("a generator was lost")))
    }

    /// Does something with the load of each generator at the same time; `None` if one is lost, or
    /// was.
    fn each<R: Send>(
        &self,
        does: impl Fn(&RemoteLoad, Offset) -> Result<R, ChannelError> + Sync,
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
        self.lock().lost.get_or_insert(error);
        // The server is not loaded any longer than the user waits.
        let _ = together(&self.loads, RemoteLoad::stop);
    }

    /// The sum of the outcomes of all generators, and what each contributed.
    fn merged(&self, after: &[Offset], joined: Vec<Joined>) -> GroupOutcome {
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
                    // Windows that closed late were open for longer than agreed.
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
            generator.silent_ns = validity::silent_ns(&series, index);
        }
        let overlap = validity::overlap(&generators, &windows);
        let invalid = validity::judge(&limits, overlap, &generators);
        let mut outcomes: Vec<Outcome> = joined.into_iter().map(|joined| joined.outcome).collect();
        let sampled = generators.drain(loading..).zip(outcomes.drain(loading..)).next();
        let sampled = sampled.map(|(generator, outcome)| Sampled { generator, outcome });
        let outcome = outcomes.into_iter().reduce(|mut sum, other| {
            sum.merge(&other);
            sum
        });
        let contributions = Contributions { generators, sampled, overlap, invalid };
        GroupOutcome { outcome: outcome.unwrap_or_default(), contributions }
    }

    /// What one generator contributed, without its times.
    fn generator(&self, index: usize, joined: &Joined) -> GeneratorOutcome {
        let (generator, part) = (self.loads[index].generator(), &self.load.parts[index]);
        let outcome = &joined.outcome;
        GeneratorOutcome {
            command: generator.channel().command().to_owned(),
            host: generator.channel().host().to_owned(),
            connections: part.connections,
            threads: part.threads,
            share: match index < self.load.loading {
                true => division::share(&self.load.plan, part),
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

impl Drop for Running {
    fn drop(&mut self) {
        let ended = together(&self.loads, RemoteLoad::end);
        if let Ok(used) = all(ended) {
            self.used.0.store(used.iter().sum(), Ordering::Relaxed);
        }
    }
}

/// When to begin, on this host's clock: late enough that every generator knows it before, and at
/// the plan's own time if that is later.
fn start_ns(plan: &Plan, offsets: &[Offset]) -> u64 {
    // The error is half of a round trip.
    let error = offsets.iter().map(|offset| offset.error()).max().unwrap_or_default();
    let asked = plan.start_at.and_then(|at| at.duration_since(SystemTime::now()).ok());
    let wait = (MARGIN + 6 * error).max(asked.unwrap_or_default());
    Clock::default().now_ns() + wait.as_nanos() as u64
}

/// Compares the clocks of generators with this host's.
fn clocks(generators: &[Arc<RemoteGenerator>]) -> Result<Vec<Offset>, ChannelError> {
    all(together(generators, |generator| generator.clock()))
}
