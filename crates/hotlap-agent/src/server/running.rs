//! A server that runs on another host.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hotlap_observe::Compiler;
use hotlap_observe::HardwareCounts;
use hotlap_observe::{Instrument, Observation, ObserveError};
use hotlap_observe::{Memory, Switches};
use hotlap_servers::launch::LINES_LIMIT;
use hotlap_servers::process::Stopped;
use hotlap_servers::running::{LogWait, RunningServer, Sample, ServerState, Unreachable};

use super::order::{
    AskCompiler, AskState, BeginCounting, BeginStop, CountLines, Disable, Enable, EndCounting,
    Freeze, Interrupt, KeptThere, ListInstruments, ReadMemory, ReadResident, ReadSwitches,
    SampledThere, Server, ServerCall, ServerOrder, Spread, Stop, Tail, Take, TakeSample, Thaw,
};
use crate::channel::Channel;
use crate::clock::{Clock, Offset, requests_at};
use crate::error::{ChannelError, Fault};
use crate::message::Order;

/// How long a call may take that the agent answers at once: its host may be busy for a moment.
pub(super) const CALL: Duration = Duration::from_secs(10);

/// How long reading an instrument may take: symbols of a large program take seconds.
const SYMBOLS: Duration = Duration::from_secs(60);

/// How many round trips an answer takes at most while nothing is wrong, if a packet is lost.
const ROUND_TRIPS: u32 = 3;

/// A channel and what is known of the clock at its other end.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) channel: Channel,
    pub(super) offset: Mutex<Offset>,
}

impl Line {
    pub(super) fn call<O: Order<All = ServerOrder>>(
        &self,
        order: O,
        limit: Duration,
    ) -> Result<O::Report, ChannelError> {
        self.channel.call(order, limit)
    }

    pub(super) fn offset(&self) -> Offset {
        *self.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A round trip.
    pub(super) fn delay(&self) -> Duration {
        self.offset().error() * 2
    }

    pub(super) fn set_offset(&self, offset: Offset) {
        *self.offset.lock().unwrap_or_else(PoisonError::into_inner) = offset;
    }

    /// The error for a build or a start that goes on although it was interrupted.
    pub(super) fn goes_on(&self) -> ChannelError {
        ChannelError {
            command: self.channel.command().to_owned(),
            phase: Interrupt::PHASE.to_owned(),
            fault: Fault::Refused("the build or start goes on: end it on that host".to_owned()),
        }
    }
}

/// A server that an agent keeps.
#[derive(Debug)]
pub(super) struct RemoteServer {
    line: Arc<Line>,
    kept: KeptThere,
    is_frozen: bool,
    /// The first call that failed; from then on the server counts as lost.
    lost: Mutex<Option<ChannelError>>,
    /// Whether it has been stopped.
    is_over: bool,
}

impl RemoteServer {
    pub(super) fn new(line: &Arc<Line>, kept: KeptThere) -> Self {
        let (line, lost) = (Arc::clone(line), Mutex::new(None));
        Self { line, kept, is_frozen: false, lost, is_over: false }
    }

    fn call<C: Order<All = ServerCall>>(&self, call: C, limit: Duration) -> Option<C::Report> {
        let order = Server { id: self.kept.id, call: call.into_all() }.into_all();
        let result = self.line.channel.ask(&order, C::PHASE, limit);
        result.map_err(|why| self.lose(why)).ok()
    }

    fn lose(&self, why: ChannelError) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    fn lost(&self) -> Option<Unreachable> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.as_ref().map(unreachable)
    }

    /// Why a call was not answered.
    fn unanswered(&self) -> String {
        self.lost().map_or("its agent did not answer".to_owned(), |lost| lost.cause)
    }

    fn unobserved(&self) -> ObserveError {
        ObserveError {
            what: "the server".into(),
            why: self.unanswered(),
            remedy: "repeat it".to_owned(),
        }
    }
}

/// A host that cannot be reached, with the remedy.
pub(super) fn unreachable(why: &ChannelError) -> Unreachable {
    Unreachable {
        cause: why.to_string(),
        remedy: "finished laps are kept; once the host is reached again, repeat the run".to_owned(),
    }
}

impl RunningServer for RemoteServer {
    fn is_started(&self) -> bool {
        self.kept.is_started
    }

    fn is_known(&self) -> bool {
        self.kept.is_known
    }

    fn has_log(&self) -> bool {
        self.kept.has_log
    }

    fn delay(&self) -> Duration {
        self.line.delay()
    }

    fn state(&mut self) -> ServerState {
        let ended = self.call(AskState {}, CALL).flatten();
        match (self.lost(), ended) {
            (Some(lost), _) => ServerState::Unreachable(lost),
            (None, Some(exit)) => ServerState::Ended(exit),
            (None, None) => ServerState::Runs,
        }
    }

    fn freeze(&mut self) -> Result<(), String> {
        if self.is_frozen || !self.is_started() {
            return Ok(());
        }
        // Even if the call fails, some of the server's processes may be frozen.
        self.is_frozen = true;
        self.call(Freeze {}, CALL).unwrap_or_else(|| Err(self.unanswered()))
    }

    fn thaw(&mut self) {
        if std::mem::take(&mut self.is_frozen) {
            self.call(Thaw {}, CALL);
        }
    }

    fn spread(&mut self, on_all: bool) {
        self.call(Spread { on_all }, CALL);
    }

    fn compiler(&mut self) -> Compiler {
        self.call(AskCompiler {}, CALL).unwrap_or(Compiler::Unknown)
    }

    fn begin_stop(&mut self, grace: Duration) {
        self.call(BeginStop { grace }, CALL);
    }

    fn stop(mut self: Box<Self>, grace: Duration) -> Option<Stopped> {
        self.is_over = true;
        self.call(Stop { grace }, CALL + grace).flatten()
    }

    fn tail(&self) -> Vec<String> {
        self.call(Tail {}, CALL).unwrap_or_default()
    }

    /// The agent reads CPU time and clock together. How many requests had been answered by then is
    /// interpolated between the moments before and after the call.
    fn sample(&mut self, requests: &dyn Fn() -> u64) -> Sample {
        let clock = Clock::default();
        let before = (clock.now_ns(), requests());
        let report = self.call(TakeSample {}, CALL);
        let after = (clock.now_ns(), requests());
        let now = Instant::now();
        let offset = self.line.offset();
        let silence = self.line.channel.silence().saturating_sub(self.delay() * ROUND_TRIPS);
        let Some(SampledThere { at_ns, cpu_ns }) = report else {
            return Sample { requests: after.1, at: now, cpu_ns: None, silence };
        };
        let mut moment = offset.to_local(at_ns);
        if moment < before.0 || moment > after.0 {
            // The clocks have drifted apart since they were compared.
            let middle = before.0 + (after.0 - before.0) / 2;
            let ns = at_ns.wrapping_sub(middle) as i64;
            self.line.set_offset(Offset { ns, ..offset });
            moment = middle;
        }
        let age = Duration::from_nanos(after.0.saturating_sub(moment));
        let at = now.checked_sub(age).unwrap_or(now);
        Sample { requests: requests_at(moment, before, after), at, cpu_ns, silence }
    }

    fn switches(&mut self) -> Option<Switches> {
        self.call(ReadSwitches {}, CALL).flatten()
    }

    fn memory(&mut self) -> Option<Memory> {
        self.call(ReadMemory {}, CALL).flatten()
    }

    fn resident(&mut self) -> Option<Memory> {
        self.call(ReadResident {}, CALL).flatten()
    }

    fn begin_counting(&mut self) -> bool {
        self.call(BeginCounting {}, CALL).unwrap_or(false)
    }

    fn end_counting(&mut self) -> Option<HardwareCounts> {
        self.call(EndCounting {}, CALL).flatten()
    }

    fn lines(&mut self, wait: LogWait) -> u64 {
        match self.has_log() {
            true => self.call(CountLines { wait }, CALL + LINES_LIMIT).unwrap_or(0),
            false => 0,
        }
    }

    fn instruments(&self) -> (Vec<Instrument>, Vec<ObserveError>) {
        let Some((usable, mut missing)) = self.call(ListInstruments {}, CALL) else {
            return (Vec::new(), vec![self.unobserved()]);
        };
        let host = self.line.channel.host();
        missing.iter_mut().for_each(|error| error.why = format!("on {host}: {}", error.why));
        (usable, missing)
    }

    fn enable(&mut self, instrument: Instrument) -> Result<(), ObserveError> {
        self.call(Enable { instrument }, CALL).unwrap_or_else(|| Err(self.unobserved()))
    }

    fn disable(&mut self) {
        self.call(Disable {}, CALL);
    }

    fn take(&mut self, instrument: Instrument) -> Result<Observation, ObserveError> {
        self.call(Take { instrument }, SYMBOLS).unwrap_or_else(|| Err(self.unobserved()))
    }
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        if !self.is_over {
            self.call(Stop { grace: Duration::ZERO }, CALL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::pipe;

    use super::*;
    use crate::hello::Role;
    use crate::serve::{Answer, Service, handler, report, serve};

    const LIMIT: Duration = Duration::from_secs(60);

    /// An agent whose clock is not this machine's.
    struct Ahead(Clock);

    impl Service for Ahead {
        type Orders = ServerOrder;

        fn carry_out(&mut self, _: ServerOrder) -> Answer {
            report::<TakeSample>(SampledThere { at_ns: self.0.now_ns(), cpu_ns: Some(7) })
        }
    }

    #[test]
    fn a_sample_is_at_the_right_moment_however_far_the_clock_is_ahead() {
        const AHEAD_NS: i64 = 3_000_000_000;
        let (input, to_agent) = pipe().unwrap();
        let (from_agent, output) = pipe().unwrap();
        let clock = Clock::shifted(AHEAD_NS);
        let open = move |_| Ok(handler(Ahead(clock)));
        let agent = std::thread::spawn(move || serve(input, output, clock, open, || ()));
        let channel = Channel::over("test", Role::Server, LIMIT, to_agent, from_agent).unwrap();
        let offset = Mutex::new(channel.clock(LIMIT).unwrap());
        let kept = KeptThere { id: 0, is_started: true, is_known: true, has_log: false };
        let mut server = RemoteServer::new(&Arc::new(Line { channel, offset }), kept);
        server.is_over = true;
        // The first offset was measured; the second is that of clocks which have drifted apart.
        for known in [server.line.offset(), Offset::default()] {
            server.line.set_offset(known);
            let began = Instant::now();
            let sample = server.sample(&|| 5);
            let took = began.elapsed();
            assert_eq!((sample.requests, sample.cpu_ns), (5, Some(7)));
            assert!(sample.at >= began && sample.at <= began + took, "{sample:?}");
            let off = server.line.offset().ns.abs_diff(AHEAD_NS);
            assert!(off <= known.error_ns.max(took.as_nanos() as u64), "{off} ns");
        }
        drop(server);
        agent.join().unwrap();
    }
}
