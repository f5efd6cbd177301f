//! Several generators that send one load together.
//!
//! Each opens its part of the connections. Once all are ready, clocks are compared, and all begin
//! at an agreed time, each by its own clock. When the load has ended, clocks are compared again,
//! and the outcomes are merged without loss. What makes the sum wrong is found ([`Invalid`]), and
//! a generator that is lost ends the load.

mod division;
mod outcome;
mod validity;

use std::time::{Duration, Instant, SystemTime};

use hotlap_load::outcome::Tick;
use hotlap_load::plan::{Plan, Stop};
use hotlap_load::{Outcome, Progress};

use crate::clock::{Clock, Offset};
use crate::command::AgentCommand;
use crate::error::{ChannelError, Fault};
use crate::generator::{Begun, Joined, Probe, Probed, Status};
use crate::remote::RemoteGenerator;

pub use division::SAMPLES_PER_S;
pub use outcome::{Contributions, GeneratorOutcome, GroupOutcome, Invalid, Sampled};

/// How long agents may take to answer; `ssh` may have to connect first.
const CONNECT: Duration = Duration::from_secs(30);

/// How long opening connections may take, beyond the plan's timeout.
const READY: Duration = Duration::from_secs(60);

/// How long after its window a load may end, beyond the plan's timeout.
const END: Duration = Duration::from_secs(10);

/// The least time between agreeing on a start and that start.
const MARGIN: Duration = Duration::from_millis(100);

/// How often generators that open connections are asked whether they are ready.
const POLL: Duration = Duration::from_millis(20);

/// Several generators.
#[derive(Debug)]
pub struct Generators {
    /// Those that load, then the one that samples, if there is one.
    all: Vec<RemoteGenerator>,
    has_sampler: bool,
}

/// Why a load of several generators has no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The load cannot be divided.
    #[error("{0}")]
    Division(String),
    /// It could not be started.
    #[error(transparent)]
    Start(#[from] ChannelError),
    /// A generator was lost under load; the counts of the others are not those of the whole load.
    #[error("a generator was lost, so the load has no result: {0}")]
    Lost(ChannelError),
}

impl Generators {
    /// Starts one agent with each command, and one that samples latency while the others load.
    ///
    /// # Errors
    /// The first agent that could not be started, and why.
    pub fn open(
        commands: &[AgentCommand],
        sampler: Option<&AgentCommand>,
    ) -> Result<Self, GroupError> {
        let commands: Vec<&AgentCommand> = commands.iter().chain(sampler).collect();
        let opened = together(&commands, |command| RemoteGenerator::open(command, CONNECT));
        Ok(Self { all: all(opened)?, has_sampler: sampler.is_some() })
    }

    /// These generators, and one that samples latency while the others load.
    #[must_use]
    pub fn of(mut generators: Vec<RemoteGenerator>, sampler: Option<RemoteGenerator>) -> Self {
        let has_sampler = sampler.is_some();
        generators.extend(sampler);
        Self { all: generators, has_sampler }
    }

    /// Probes a server from the first generator's host.
    ///
    /// # Errors
    /// No probe got an acceptable response, or the generator is lost.
    pub fn probe(&self, probe: Probe) -> Result<Probed, GroupError> {
        let first = self.all.first().ok_or_else(|| GroupError::Division(NONE.to_owned()))?;
        Ok(first.probe(probe)?)
    }

    /// Divides a load, opens all connections and begins to send.
    ///
    /// # Errors
    /// The load cannot be divided, or a generator cannot run its part or is lost.
    pub fn start(&self, plan: &Plan) -> Result<Running<'_>, GroupError> {
        let loading = self.all.len() - usize::from(self.has_sampler);
        if loading == 0 {
            return Err(GroupError::Division(NONE.to_owned()));
        }
        let mut parts = division::divide(plan, loading).map_err(GroupError::Division)?;
        if self.has_sampler {
            parts.push(division::sampler(plan).map_err(GroupError::Division)?);
        }
        let pairs: Vec<_> = self.all.iter().zip(&parts).collect();
        all(together(&pairs, |(generator, part)| {
            generator.prepare(part)?;
            wait_until_ready(generator, part)
        }))?;
        let before = all(together(&self.all, RemoteGenerator::clock))?;
        let at_ns = start_ns(plan, &before);
        let pairs: Vec<_> = self.all.iter().zip(&before).collect();
        let begun =
            all(together(&pairs, |(generator, offset)| generator.begin(offset.to_remote(at_ns))))?;
        let last = match plan.stop {
            Stop::After(length) => Some(plan.warmup + length),
            Stop::Requests(_) => None,
        };
        let wait = Duration::from_nanos(at_ns.saturating_sub(Clock::default().now_ns()));
        let deadline = last.map(|last| Instant::now() + wait + last + plan.timeout + END);
        let statuses = vec![Status::default(); self.all.len()];
        let plan = plan.clone();
        let all = &self.all;
        Ok(Running { all, loading, plan, parts, before, begun, deadline, statuses, lost: None })
    }
}

const NONE: &str = "a load needs at least one generator";

/// Waits until a generator has opened its connections.
fn wait_until_ready(generator: &RemoteGenerator, part: &Plan) -> Result<(), ChannelError> {
    let limit = READY + part.timeout;
    let deadline = Instant::now() + limit;
    loop {
        let status = generator.status()?;
        if status.is_ready {
            return Ok(());
        }
        if status.is_finished {
            // No connection could be opened; the error says why.
            generator.join()?;
        }
        if Instant::now() > deadline {
            return Err(late(generator, "opening connections", limit));
        }
        std::thread::sleep(POLL);
    }
}

fn late(generator: &RemoteGenerator, phase: &str, limit: Duration) -> ChannelError {
    ChannelError {
        command: generator.channel().command().to_owned(),
        phase: phase.to_owned(),
        fault: Fault::Late { limit, said: String::new() },
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

/// A load that several generators send. Dropping it leaves the load to the generators, which end it
/// when they are dropped.
#[derive(Debug)]
pub struct Running<'a> {
    all: &'a [RemoteGenerator],
    /// How many of them load; one more samples.
    loading: usize,
    plan: Plan,
    parts: Vec<Plan>,
    before: Vec<Offset>,
    begun: Vec<Begun>,
    /// When the load must have ended; `None` if a number of requests ends it.
    deadline: Option<Instant>,
    statuses: Vec<Status>,
    lost: Option<ChannelError>,
}

impl Running<'_> {
    /// Asks all generators how far they have come, and returns the sum. If one is lost, the load
    /// ends.
    pub fn progress(&mut self) -> Progress {
        if self.lost.is_none() {
            match all(together(self.all, RemoteGenerator::status)) {
                Ok(statuses) => self.statuses = statuses,
                Err(error) => self.lose(error),
            }
        }
        let unfinished = self.statuses.iter().position(|status| !status.is_finished);
        if let (Some(index), Some(deadline)) = (unfinished, self.deadline)
            && self.lost.is_none()
            && Instant::now() > deadline
        {
            self.lose(late(&self.all[index], "waiting for the end of the load", END));
        }
        let mut sum = Progress::default();
        self.statuses.iter().for_each(|status| sum.add(status.progress));
        sum
    }

    /// Whether all generators had ended, or one was lost, when the progress was last asked for.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.lost.is_some() || self.statuses.iter().all(|status| status.is_finished)
    }

    /// Ends the load now and keeps what was measured so far.
    pub fn stop(&mut self) {
        if let Err(error) = all(together(self.all, RemoteGenerator::stop)) {
            self.lose(error);
        }
    }

    fn lose(&mut self, error: ChannelError) {
        self.lost.get_or_insert(error);
        // The server is not loaded any longer than the user waits.
        let _ = together(self.all, RemoteGenerator::stop);
    }

    /// Waits for the end of the load and merges the outcomes.
    ///
    /// # Errors
    /// A generator was lost.
    pub fn join(mut self) -> Result<GroupOutcome, GroupError> {
        while !self.is_finished() {
            self.progress();
            std::thread::sleep(POLL);
        }
        if let Some(error) = self.lost {
            return Err(GroupError::Lost(error));
        }
        let after = all(together(self.all, RemoteGenerator::clock)).map_err(GroupError::Lost)?;
        let joined = all(together(self.all, RemoteGenerator::join)).map_err(GroupError::Lost)?;
        let mut generators: Vec<GeneratorOutcome> = (0..self.all.len())
            .map(|index| self.generator(index, after[index], &joined[index]))
            .collect();
        let series: Vec<&[Tick]> =
            joined[..self.loading].iter().map(|joined| &*joined.outcome.series).collect();
        for (index, generator) in generators.iter_mut().take(self.loading).enumerate() {
            generator.silent_ns = validity::silent_ns(&series, index);
        }
        let invalid = validity::judge(&self.plan, &generators);
        let overlap = validity::overlap(&generators);
        let mut outcomes: Vec<Outcome> = joined.into_iter().map(|joined| joined.outcome).collect();
        let sampled = generators.drain(self.loading..).zip(outcomes.drain(self.loading..)).next();
        let sampled = sampled.map(|(generator, outcome)| Sampled { generator, outcome });
        let outcome = outcomes.into_iter().reduce(|mut sum, other| {
            sum.merge(&other);
            sum
        });
        let contributions = Contributions { generators, sampled, overlap, invalid };
        Ok(GroupOutcome { outcome: outcome.unwrap_or_default(), contributions })
    }

    fn generator(&self, index: usize, after: Offset, joined: &Joined) -> GeneratorOutcome {
        let (generator, before, begun) = (&self.all[index], self.before[index], self.begun[index]);
        let outcome = &joined.outcome;
        GeneratorOutcome {
            command: generator.channel().command().to_owned(),
            host: generator.channel().host().to_owned(),
            connections: self.parts[index].connections,
            threads: self.parts[index].threads,
            share: match index < self.loading {
                true => division::share(&self.plan, &self.parts[index]),
                false => 0.0,
            },
            responses: outcome.responses,
            failures: outcome.failures.total(),
            sent: outcome.totals.sent,
            before,
            after,
            late_ns: begun.late_ns,
            opened_ns: before.to_local(begun.opens_ns),
            closed_ns: after.to_local(begun.opens_ns + outcome.window_ns),
            paused_ns: joined.paused_ns,
            silent_ns: 0,
            busy: outcome.threads.iter().map(|thread| thread.busy()).fold(0.0, f64::max),
        }
    }
}

/// Does something with all of a list at the same time.
fn together<T: Sync, R: Send>(list: &[T], does: impl Fn(&T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = list.iter().map(|one| scope.spawn(|| does(one))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        // A panic is passed on.
        joined.map(|result| result.unwrap_or_else(|why| std::panic::resume_unwind(why))).collect()
    })
}

/// All results, or the first error.
fn all<T>(results: Vec<Result<T, ChannelError>>) -> Result<Vec<T>, ChannelError> {
    results.into_iter().collect()
}
