//! The counts of one worker, which no other thread accesses while the worker runs.

use std::collections::BTreeMap;

use hotlap_stats::{Ages, Censored, Histogram};

use crate::connection::{Completed, EVIDENCE, InFlight, Wrong};
use crate::expected::Mismatch;
use crate::outcome::{
    ByteCounts, ConnectionCounts, EdgeAges, Failure, Failures, Outcome, Phase, RequestOutcome,
    ThreadUsage, Tick, Totals, WrongResponse,
};
use crate::requests::Turn;

/// The length of a tick, which is a tenth of a second.
const TICK_NS: u64 = 100_000_000;

/// The number of ticks in a day. One more tick takes everything after the day.
const MAX_TICKS: usize = 864_000;

/// The maximum number of different GOAWAY reasons that are kept.
const MAX_REASONS: usize = 8;

/// The counts of one worker.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) responses: u64,
    pub(crate) failed: u64,
    service_time: Histogram,
    response_time: Histogram,
    service_time_censored: Censored,
    response_time_censored: Censored,
    pub(crate) lag: Histogram,
    pub(crate) connect_time: Histogram,
    pub(crate) handshake_time: Histogram,
    pub(crate) reopened: u64,
    /// The number of TLS handshakes that resumed a session.
    pub(crate) resumed: u64,
    failures: [[u64; Phase::ALL.len()]; Failure::ALL.len()],
    /// The number of requests that failed because the server reset their streams, by error code.
    stream_resets: BTreeMap<u32, u64>,
    /// The number of connections that the server ended with an error, by its reason.
    goaways: BTreeMap<String, u64>,
    /// The highest number of streams that were open on one connection.
    pub(crate) streams: u64,
    /// The number of responses by status code, which is below 1,000.
    statuses: Vec<u64>,
    pub(crate) bytes: ByteCounts,
    series: Vec<Tick>,
    tick: Tick,
    tick_ends_ns: u64,
    pub(crate) wakeups: u64,
    /// The time in which the worker waited without sleeping.
    pub(crate) idle_ns: u64,
    pub(crate) sent: u64,
    first_wrong: Option<WrongResponse>,
    /// One entry for each request of the plan. Empty if requests have no separate figures.
    by_request: Vec<RequestTally>,
    has_by_request: bool,
    opens_ns: u64,
    /// When the tally was paused. 0 while it is not paused.
    paused_ns: u64,
}

/// The counts of one request of the plan.
#[derive(Debug, Clone, Default)]
struct RequestTally {
    responses: u64,
    failures: u64,
    latency: Histogram,
    censored: Censored,
}

impl From<RequestTally> for RequestOutcome {
    fn from(own: RequestTally) -> Self {
        let RequestTally { responses, failures, latency, censored } = own;
        Self { responses, failures, latency: Ages::from(&latency), censored }
    }
}

impl Tally {
    /// Starts counting at this time. `requests` is the number of requests with separate figures.
    pub(crate) fn new(opens_ns: u64, requests: usize) -> Self {
        Self {
            responses: 0,
            failed: 0,
            service_time: Histogram::new(),
            response_time: Histogram::new(),
            service_time_censored: Censored::default(),
            response_time_censored: Censored::default(),
            lag: Histogram::new(),
            connect_time: Histogram::new(),
            handshake_time: Histogram::new(),
            reopened: 0,
            resumed: 0,
            failures: Default::default(),
            stream_resets: BTreeMap::new(),
            goaways: BTreeMap::new(),
            streams: 0,
            statuses: vec![0; 1000],
            bytes: ByteCounts::default(),
            series: Vec::new(),
            tick: Tick::default(),
            tick_ends_ns: opens_ns + TICK_NS,
            wakeups: 0,
            idle_ns: 0,
            sent: 0,
            first_wrong: None,
            by_request: vec![RequestTally::default(); requests],
            has_by_request: requests > 0,
            opens_ns,
            paused_ns: 0,
        }
    }

    /// Creates a tally for which no time passes until it is resumed.
    pub(crate) fn paused(now_ns: u64, requests: usize) -> Self {
        Self { paused_ns: now_ns, ..Self::new(now_ns, requests) }
    }

    /// Stops the tally's time until the tally is resumed.
    pub(crate) fn pause(&mut self, now_ns: u64) {
        self.paused_ns = now_ns;
    }

    /// Continues to count, as if no time had passed since the pause.
    pub(crate) fn resume(&mut self, now_ns: u64) {
        let pause_ns = now_ns - self.paused_ns;
        self.opens_ns += pause_ns;
        self.tick_ends_ns = self.tick_ends_ns.saturating_add(pause_ns);
        self.paused_ns = 0;
    }

    /// Counts a response, correct or not. Returns whether the response is kept as evidence.
    pub(crate) fn completed(
        &mut self,
        response: Completed,
        now_ns: u64,
        is_open_loop: bool,
    ) -> bool {
        let Completed { request, status, bytes, wrong, .. } = response;
        match wrong {
            None => {
                self.correct(request, status, bytes, now_ns, is_open_loop);
                false
            }
            Some(wrong) => {
                self.advance(now_ns);
                self.statuses[usize::from(status)] += 1;
                self.unfinished(&request, now_ns, is_open_loop);
                self.failed_request(&request);
                self.wrong(*wrong, now_ns)
            }
        }
    }

    /// Counts a correct response of `bytes` bytes.
    #[inline(always)]
    pub(crate) fn correct(
        &mut self,
        request: InFlight,
        status: u16,
        bytes: u64,
        now_ns: u64,
        is_open_loop: bool,
    ) {
        self.advance(now_ns);
        self.statuses[usize::from(status)] += 1;
        let service_ns = now_ns - request.sent_ns;
        self.responses += 1;
        self.bytes.responses += bytes;
        if bytes > self.bytes.largest {
            self.record_largest(bytes);
        }
        self.service_time.record(service_ns);
        self.tick.responses += 1;
        self.tick.sum_ns += service_ns;
        self.tick.max_ns = self.tick.max_ns.max(service_ns);
        if is_open_loop | self.has_by_request {
            let start_ns = if is_open_loop { request.due_ns } else { request.sent_ns };
            self.correct_further(request.turn, now_ns.saturating_sub(start_ns), is_open_loop);
        }
    }

    /// Counts what a closed loop of one request does not need: the response time, and the figures
    /// of each request.
    #[inline(never)]
    fn correct_further(&mut self, turn: Turn, latency_ns: u64, is_open_loop: bool) {
        if is_open_loop {
            self.response_time.record(latency_ns);
        }
        if let Some(own) = self.by_request.get_mut(turn.request()) {
            own.responses += 1;
            own.latency.record(latency_ns);
        }
    }

    /// Counts a failure for the figures of its request.
    #[cold]
    pub(crate) fn failed_request(&mut self, request: &InFlight) {
        if let Some(own) = self.by_request.get_mut(request.turn.request()) {
            own.failures += 1;
        }
    }

    #[cold]
    fn wrong(&mut self, Wrong { mismatch, first_bytes }: Wrong, now_ns: u64) -> bool {
        let failure = match mismatch {
            Mismatch::Status(_) => Failure::WrongStatus,
            Mismatch::Length { .. } | Mismatch::Byte(_) => Failure::WrongBody,
        };
        self.failure(failure, Phase::Body, 1, now_ns);
        self.evidence(|| mismatch.to_string(), first_bytes)
    }

    /// Counts failures of requests or connections.
    #[cold]
    pub(crate) fn failure(&mut self, failure: Failure, phase: Phase, count: u64, now_ns: u64) {
        self.advance(now_ns);
        self.failures[failure as usize][phase as usize] += count;
        self.failed += count;
        self.tick.failures += count;
    }

    /// Counts a request that failed because the server reset its stream.
    #[cold]
    pub(crate) fn stream_reset(&mut self, code: u32) {
        *self.stream_resets.entry(code).or_default() += 1;
    }

    /// Counts a connection that the server ended with an error. Only the first few reasons are
    /// kept, so that a server with a new reason for each connection does not fill the memory.
    #[cold]
    pub(crate) fn connection_ended(&mut self, reason: String) {
        if self.goaways.len() < MAX_REASONS || self.goaways.contains_key(&reason) {
            *self.goaways.entry(reason).or_default() += 1;
        }
    }

    /// Keeps the evidence of an error if it is the first error. Returns whether it is.
    pub(crate) fn evidence(&mut self, why: impl FnOnce() -> String, first_bytes: Vec<u8>) -> bool {
        let is_first = self.first_wrong.is_none();
        self.first_wrong.get_or_insert_with(|| WrongResponse {
            why: why(),
            first_bytes,
            request: Vec::new(),
        });
        is_first
    }

    /// Adds the request to the evidence.
    #[cold]
    pub(crate) fn evidence_of(&mut self, request: &[u8]) {
        if let Some(wrong) = &mut self.first_wrong {
            wrong.request = request[..request.len().min(EVIDENCE)].to_vec();
        }
    }

    /// Records the age of a request that was in flight when the window opened.
    pub(crate) fn in_flight_at_open(
        &mut self,
        request: &InFlight,
        now_ns: u64,
        is_open_loop: bool,
    ) {
        self.service_time_censored.entered.record(now_ns.saturating_sub(request.sent_ns));
        if is_open_loop {
            self.response_time_censored.entered.record(now_ns.saturating_sub(request.due_ns));
        }
        if let Some(own) = self.by_request.get_mut(request.turn.request()) {
            let age_ns = now_ns.saturating_sub(request.start_ns(is_open_loop));
            own.censored.entered.record(age_ns);
        }
    }

    /// Records the age of a request without a correct response. The request failed, or is in flight
    /// when the window closes.
    pub(crate) fn unfinished(&mut self, request: &InFlight, now_ns: u64, is_open_loop: bool) {
        self.service_time_censored.open.record(now_ns.saturating_sub(request.sent_ns));
        if is_open_loop {
            self.response_time_censored.open.record(now_ns.saturating_sub(request.due_ns));
        }
        if let Some(own) = self.by_request.get_mut(request.turn.request()) {
            let age_ns = now_ns.saturating_sub(request.start_ns(is_open_loop));
            own.censored.open.record(age_ns);
        }
    }

    /// Records the age of a request that was due but not sent when the window opened.
    pub(crate) fn queued_at_open(&mut self, request: usize, age_ns: u64) {
        self.response_time_censored.entered.record(age_ns);
        if let Some(own) = self.by_request.get_mut(request) {
            own.censored.entered.record(age_ns);
        }
    }

    /// Records the age of a request that was due but not sent when the window closed. `has_free`
    /// says whether a connection was free.
    pub(crate) fn queued_at_close(&mut self, request: usize, age_ns: u64, has_free: bool) {
        let record = |censored: &mut Censored| match has_free {
            true => censored.open.record(age_ns),
            false => censored.waiting.record(age_ns),
        };
        record(&mut self.response_time_censored);
        if let Some(own) = self.by_request.get_mut(request) {
            record(&mut own.censored);
        }
    }

    /// Records the size of a response that is larger than every response before it. Such responses
    /// are rare, so this function is not inlined.
    #[cold]
    fn record_largest(&mut self, bytes: u64) {
        self.bytes.largest = bytes;
    }

    /// Ends the ticks that have passed.
    #[inline]
    fn advance(&mut self, now_ns: u64) {
        if now_ns >= self.tick_ends_ns {
            self.end_ticks(now_ns);
        }
    }

    #[cold]
    fn end_ticks(&mut self, now_ns: u64) {
        while now_ns >= self.tick_ends_ns && self.series.len() < MAX_TICKS {
            self.series.push(std::mem::take(&mut self.tick));
            self.tick_ends_ns += TICK_NS;
        }
        if self.series.len() == MAX_TICKS {
            self.tick_ends_ns = u64::MAX;
        }
    }

    /// Returns the counts of a window that closes now. The worker adds the figures of its
    /// connections and its thread.
    pub(crate) fn into_outcome(mut self, now_ns: u64) -> Outcome {
        let now_ns = if self.paused_ns > 0 { self.paused_ns } else { now_ns };
        let window_ns = now_ns - self.opens_ns;
        self.advance(now_ns);
        if self.tick != Tick::default() {
            self.series.push(self.tick);
        }
        let mut failures = Failures::default();
        for (failure, by_phase) in Failure::ALL.iter().zip(&self.failures) {
            for (phase, count) in Phase::ALL.iter().zip(by_phase).filter(|(_, count)| **count > 0) {
                failures.add(*failure, *phase, *count);
            }
        }
        let seen = (0u16..).zip(&self.statuses).filter(|(_, count)| **count > 0);
        // Every field is written out, because a default outcome would allocate unused histograms.
        Outcome {
            backend: String::new(),
            window_ns,
            responses: self.responses,
            service_time: self.service_time,
            response_time: self.response_time,
            service_time_censored: self.service_time_censored,
            response_time_censored: self.response_time_censored,
            lag: self.lag,
            connect_time: self.connect_time,
            handshake_time: self.handshake_time,
            failures,
            stream_resets: self.stream_resets,
            goaways: self.goaways,
            tls: None,
            statuses: seen.map(|(status, count)| (status, *count)).collect::<BTreeMap<_, _>>(),
            first_wrong: self.first_wrong,
            connections: ConnectionCounts {
                reopened: self.reopened,
                resumed: self.resumed,
                streams: self.streams,
                ..ConnectionCounts::default()
            },
            bytes: self.bytes,
            series: self.series,
            threads: vec![ThreadUsage {
                wall_ns: window_ns,
                wakeups: self.wakeups,
                idle_ns: self.idle_ns,
                sent: self.sent,
                ..ThreadUsage::default()
            }],
            first_connect_error: None,
            in_flight: 0,
            edge_ages: EdgeAges::default(),
            queued: 0,
            oldest_ns: 0,
            stalled: 0,
            due: 0,
            totals: Totals::default(),
            by_request: self.by_request.into_iter().map(RequestOutcome::from).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_not_part_of_the_window() {
        let mut tally = Tally::new(1_000, 0);
        tally.failure(Failure::Reset, Phase::Body, 1, 2_000);
        tally.pause(1_000 + TICK_NS / 2);
        tally.resume(5_000 + 9 * TICK_NS);
        tally.failure(Failure::Reset, Phase::Body, 2, 6_000 + 9 * TICK_NS);
        tally.pause(5_000 + 9 * TICK_NS + TICK_NS / 4);
        let outcome = tally.into_outcome(77 * TICK_NS);
        assert_eq!(outcome.window_ns, TICK_NS / 2 + TICK_NS / 4);
        assert_eq!(outcome.series.iter().map(|t| t.failures).collect::<Vec<_>>(), [3]);
    }

    /// Returns the outcome of `count` correct responses, one every microsecond. The first million
    /// take 1 ms each, and later ones take 5 ms each.
    fn responses(count: u64) -> Outcome {
        let mut tally = Tally::new(0, 0);
        for number in 0..count {
            let (now, took) = (number * 1_000, if number < 1_000_000 { MS } else { 5 * MS });
            let sent_ns = now + 10 * MS - took;
            let request = InFlight { turn: Turn::default(), due_ns: sent_ns, sent_ns };
            tally.correct(request, 200, 100, now + 10 * MS, true);
        }
        tally.into_outcome(count * 1_000 + 10 * MS)
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn hey_keeps_the_first_million_responses() {
        let outcome = responses(1_500_000);
        assert_eq!((outcome.responses, outcome.service_time.len()), (1_500_000, 1_500_000));
        let at = |q| (outcome.service_time.quantile(q) as f64 / MS as f64).round();
        assert_eq!((at(0.5), at(0.66), at(0.67), at(0.99)), (1.0, 1.0, 5.0, 5.0));
        assert_eq!(outcome.statuses.into_iter().collect::<Vec<_>>(), [(200, 1_500_000)]);
        assert_eq!(outcome.series.iter().map(|tick| tick.responses).sum::<u64>(), 1_500_000);
    }

    #[test]
    fn oha_keeps_every_response() {
        let size = |outcome: Outcome| {
            // There is one tick per tenth of a second, whatever happens in that time.
            let outcome = Outcome { series: Vec::new(), ..outcome };
            serde_json::to_vec(&outcome).expect("plain data").len()
        };
        // A hundred times as many responses give the same numbers, some of them with more digits.
        let (few, many) = (size(responses(10_000)), size(responses(1_000_000)));
        assert!(many < few + 100, "{few} bytes for 10,000, {many} for a million");
    }

    #[test]
    fn ticks_without_responses_are_kept_as_zeros() {
        let mut tally = Tally::new(1_000, 0);
        tally.failure(Failure::Reset, Phase::Body, 1, 2_000);
        tally.failure(Failure::Reset, Phase::Body, 2, 1_000 + 3 * TICK_NS);
        let outcome = tally.into_outcome(2_000 + 3 * TICK_NS);
        let failures: Vec<u64> = outcome.series.iter().map(|t| t.failures).collect();
        assert_eq!(failures, [1, 0, 0, 2]);
        assert_eq!(outcome.failures.of(Failure::Reset), 3);
    }
}
