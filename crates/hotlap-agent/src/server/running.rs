//! A server that runs on another host.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hotlap_servers::compilers::Compiler;
use hotlap_servers::counters::Counted;
use hotlap_servers::lines;
use hotlap_servers::observe::{Instrument, Observation, ObserveError};
use hotlap_servers::process::Stopped;
use hotlap_servers::running::{LogWait, RunningServer, Sample, State, Unreachable};
use hotlap_servers::sample::{Memory, Switches};

use super::order::{KeptThere, ServerCall, ServerOrder, ServerReport};
use crate::channel::Channel;
use crate::clock::{Clock, Offset, requests_at};
use crate::error::{ChannelError, Fault};

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
    pub(super) fn call(
        &self,
        order: &ServerOrder,
        limit: Duration,
    ) -> Result<ServerReport, ChannelError> {
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

    /// The error of an answer that does not fit the order.
    pub(super) fn confused(&self, phase: &str) -> ChannelError {
        ChannelError {
            command: self.channel.command().to_owned(),
            phase: phase.to_owned(),
            fault: Fault::Malformed("the answer is of another kind than expected".to_owned()),
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

    fn call(&self, call: ServerCall, limit: Duration) -> Option<ServerReport> {
        let result = self.line.call(&ServerOrder::Server { id: self.kept.id, call }, limit);
        result.map_err(|why| self.lose(why)).ok()
    }

    fn lose(&self, why: ChannelError) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    fn lost(&self) -> Option<Unreachable> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.as_ref().map(unreachable)
    }

    fn unobserved(&self) -> ObserveError {
        let lost = self.lost();
        ObserveError {
            what: "the server".into(),
            why: lost.map_or("its agent did not answer".to_owned(), |lost| lost.cause),
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

    fn state(&mut self) -> State {
        let report = self.call(ServerCall::State, CALL);
        match (self.lost(), report) {
            (Some(lost), _) => State::Unreachable(lost),
            (None, Some(ServerReport::State(Some(exit)))) => State::Ended(exit),
            (None, _) => State::Runs,
        }
    }

    fn freeze(&mut self) -> Result<(), String> {
        if self.is_frozen || !self.is_started() {
            return Ok(());
        }
        match self.call(ServerCall::Freeze, CALL) {
            Some(ServerReport::Frozen(result)) => {
                // If it failed, some of its processes may be.
                self.is_frozen = true;
                result
            }
            _ => Ok(()),
        }
    }

    fn thaw(&mut self) {
        if std::mem::take(&mut self.is_frozen) {
            let _ = self.call(ServerCall::Thaw, CALL);
        }
    }

    fn spread(&mut self, on_all: bool) {
        let _ = self.call(ServerCall::Spread { on_all }, CALL);
    }

    fn compiler(&mut self) -> Compiler {
        match self.call(ServerCall::Compiler, CALL) {
            Some(ServerReport::Compiler(compiler)) => compiler,
            _ => Compiler::Unknown,
        }
    }

    fn begin_stop(&mut self, grace: Duration) {
        let _ = self.call(ServerCall::BeginStop { grace }, CALL);
    }

    fn stop(mut self: Box<Self>, grace: Duration) -> Option<Stopped> {
        self.is_over = true;
        match self.call(ServerCall::Stop { grace }, CALL + grace)? {
            ServerReport::Stopped(stopped) => stopped,
            _ => None,
        }
    }

    fn tail(&self) -> Vec<String> {
        match self.call(ServerCall::Tail, CALL) {
            Some(ServerReport::Tail(lines)) => lines,
            _ => Vec::new(),
        }
    }

    /// The agent reads CPU time and clock together. How many requests had been answered by then is
    /// interpolated between the moments before and after the call.
    fn sample(&mut self, requests: &dyn Fn() -> u64) -> Sample {
        let clock = Clock::default();
        let before = (clock.now_ns(), requests());
        let report = self.call(ServerCall::Sample, CALL);
        let after = (clock.now_ns(), requests());
        let now = Instant::now();
        let offset = self.line.offset();
        let silence = self.line.channel.silence().saturating_sub(self.delay() * ROUND_TRIPS);
        let Some(ServerReport::Sample { at_ns, cpu_ns }) = report else {
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
        match self.call(ServerCall::Switches, CALL)? {
            ServerReport::Switches(switches) => switches,
            _ => None,
        }
    }

    fn memory(&mut self) -> Option<Memory> {
        match self.call(ServerCall::Memory, CALL)? {
            ServerReport::Memory(memory) => memory,
            _ => None,
        }
    }

    fn resident(&mut self) -> Option<Memory> {
        match self.call(ServerCall::Resident, CALL)? {
            ServerReport::Memory(memory) => memory,
            _ => None,
        }
    }

    fn begin_counting(&mut self) -> bool {
        matches!(self.call(ServerCall::BeginCounting, CALL), Some(ServerReport::Counting(true)))
    }

    fn end_counting(&mut self) -> Option<Counted> {
        match self.call(ServerCall::EndCounting, CALL)? {
            ServerReport::Counted(counted) => counted,
            _ => None,
        }
    }

    fn lines(&mut self, wait: LogWait) -> u64 {
        if !self.has_log() {
            return 0;
        }
        match self.call(ServerCall::Lines(wait), CALL + lines::LIMIT) {
            Some(ServerReport::Lines(lines)) => lines,
            _ => 0,
        }
    }

    fn instruments(&self) -> (Vec<Instrument>, Vec<ObserveError>) {
        match self.call(ServerCall::Instruments, CALL) {
            Some(ServerReport::Instruments(usable, mut missing)) => {
                let host = self.line.channel.host();
                missing
                    .iter_mut()
                    .for_each(|error| error.why = format!("on {host}: {}", error.why));
                (usable, missing)
            }
            _ => (Vec::new(), vec![self.unobserved()]),
        }
    }

    fn enable(&mut self, instrument: Instrument) -> Result<(), ObserveError> {
        match self.call(ServerCall::Enable(instrument), CALL) {
            Some(ServerReport::Enabled(result)) => result,
            _ => Err(self.unobserved()),
        }
    }

    fn disable(&mut self) {
        let _ = self.call(ServerCall::Disable, CALL);
    }

    fn take(&mut self, instrument: Instrument) -> Result<Observation, ObserveError> {
        match self.call(ServerCall::Take(instrument), SYMBOLS) {
            Some(ServerReport::Seen(result)) => result,
            _ => Err(self.unobserved()),
        }
    }
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.call(ServerCall::Stop { grace: Duration::ZERO }, CALL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::pipe;

    use super::*;
    use crate::hello::Role;
    use crate::serve::{Service, handler, serve};

    const LIMIT: Duration = Duration::from_secs(60);

    /// An agent whose clock is not this machine's.
    struct Ahead(Clock);

    impl Service for Ahead {
        type Order = ServerOrder;

        fn carry_out(&mut self, _: ServerOrder) -> Result<ServerReport, String> {
            Ok(ServerReport::Sample { at_ns: self.0.now_ns(), cpu_ns: Some(7) })
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
