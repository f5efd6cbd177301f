//! What one worker counts: plain numbers that nobody else writes or reads while it runs.

use std::collections::BTreeMap;

use hotlap_stats::{Censored, Histogram};

use crate::check::Fault;
use crate::connection::{Answer, Flight};
use crate::outcome::{
    Bytes, Connections, Failure, Failures, Outcome, Phase, ThreadUse, Tick, Whole, Wrong,
};

/// Length of a tick: a tenth of a second.
const TICK_NS: u64 = 100_000_000;

/// The most ticks that are kept: a day of them. What is later counts in the last.
const TICKS: usize = 864_000;

/// All failures, in the order of their numbers.
const FAILURES: [Failure; 10] = [
    Failure::Refused,
    Failure::Reset,
    Failure::ClosedEarly,
    Failure::Timeout,
    Failure::BadFraming,
    Failure::WrongAnswer,
    Failure::WrongStatus,
    Failure::Tls,
    Failure::Truncated,
    Failure::Other,
];

/// All phases, in the order of their numbers.
const PHASES: [Phase; 5] =
    [Phase::Connect, Phase::Send, Phase::FirstByte, Phase::Body, Phase::Idle];

/// The counts of one worker.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) answers: u64,
    pub(crate) failed: u64,
    service: Histogram,
    response: Histogram,
    service_censored: Censored,
    response_censored: Censored,
    pub(crate) lag: Histogram,
    pub(crate) connect: Histogram,
    pub(crate) handshake: Histogram,
    pub(crate) reopened: u64,
    failures: [[u64; PHASES.len()]; FAILURES.len()],
    /// By status; below 1,000, as a head says.
    statuses: Vec<u64>,
    pub(crate) bytes: Bytes,
    series: Vec<Tick>,
    tick: Tick,
    tick_ends_ns: u64,
    pub(crate) wakeups: u64,
    pub(crate) sent: u64,
    first_wrong: Option<Wrong>,
    opens_ns: u64,
    /// Since when nothing is counted; 0 while something is.
    paused_ns: u64,
}

impl Tally {
    /// Nothing counted, from this moment on.
    pub(crate) fn new(opens_ns: u64) -> Self {
        Self {
            answers: 0,
            failed: 0,
            service: Histogram::new(),
            response: Histogram::new(),
            service_censored: Censored::default(),
            response_censored: Censored::default(),
            lag: Histogram::new(),
            connect: Histogram::new(),
            handshake: Histogram::new(),
            reopened: 0,
            failures: Default::default(),
            statuses: vec![0; 1000],
            bytes: Bytes::default(),
            series: Vec::new(),
            tick: Tick::default(),
            tick_ends_ns: opens_ns + TICK_NS,
            wakeups: 0,
            sent: 0,
            first_wrong: None,
            opens_ns,
            paused_ns: 0,
        }
    }

    /// Nothing counted, and nothing to count until it is resumed.
    pub(crate) fn paused(now_ns: u64) -> Self {
        Self { paused_ns: now_ns, ..Self::new(now_ns) }
    }

    /// Counts no more, until it is resumed.
    pub(crate) fn pause(&mut self, now_ns: u64) {
        self.paused_ns = now_ns;
    }

    /// Counts on, as if no time had passed since the pause.
    pub(crate) fn resume(&mut self, now_ns: u64) {
        let pause_ns = now_ns - self.paused_ns;
        self.opens_ns += pause_ns;
        self.tick_ends_ns = self.tick_ends_ns.saturating_add(pause_ns);
        self.paused_ns = 0;
    }

    /// An answer, right or wrong.
    pub(crate) fn answer(&mut self, answer: Answer, now_ns: u64, is_paced: bool) {
        match answer.wrong {
            None => self.right(answer.flight, answer.status, answer.bytes, now_ns, is_paced),
            Some((fault, head)) => {
                self.turn(now_ns);
                self.statuses[usize::from(answer.status)] += 1;
                self.open(&answer.flight, now_ns, is_paced);
                self.wrong(fault, head, now_ns);
            }
        }
    }

    /// A right answer of so many bytes.
    #[inline(always)]
    pub(crate) fn right(
        &mut self,
        flight: Flight,
        status: u16,
        bytes: u64,
        now_ns: u64,
        is_paced: bool,
    ) {
        self.turn(now_ns);
        self.statuses[usize::from(status)] += 1;
        let service_ns = now_ns - flight.sent_ns;
        self.answers += 1;
        self.bytes.answered += bytes;
        self.service.record(service_ns);
        if is_paced {
            self.response.record(now_ns.saturating_sub(flight.due_ns));
        }
        self.tick.answers += 1;
        self.tick.sum_ns += service_ns;
        self.tick.max_ns = self.tick.max_ns.max(service_ns);
    }

    #[cold]
    fn wrong(&mut self, fault: Fault, head: Vec<u8>, now_ns: u64) {
        let failure = match fault {
            Fault::Status(_) => Failure::WrongStatus,
            Fault::Length { .. } | Fault::Byte(_) => Failure::WrongAnswer,
        };
        self.failure(failure, Phase::Body, 1, now_ns);
        self.evidence(|| fault.to_string(), head);
    }

    /// A request was under way when the window opened.
    pub(crate) fn entered(&mut self, flight: &Flight, now_ns: u64, is_paced: bool) {
        self.service_censored.entered.record(now_ns.saturating_sub(flight.sent_ns));
        if is_paced {
            self.response_censored.entered.record(now_ns.saturating_sub(flight.due_ns));
        }
    }

    /// A request is not answered right when the window closes, or will never be.
    pub(crate) fn open(&mut self, flight: &Flight, now_ns: u64, is_paced: bool) {
        self.service_censored.open.record(now_ns.saturating_sub(flight.sent_ns));
        if is_paced {
            self.response_censored.open.record(now_ns.saturating_sub(flight.due_ns));
        }
    }

    /// Ages of requests that were due when the window opened, and not sent.
    pub(crate) fn waited(&mut self, ages_ns: impl Iterator<Item = u64>) {
        ages_ns.for_each(|age| self.response_censored.entered.record(age));
    }

    /// Ages of requests that were due when the window closed, and not sent.
    pub(crate) fn waits(&mut self, ages_ns: impl Iterator<Item = u64>) {
        ages_ns.for_each(|age| self.response_censored.waiting.record(age));
    }

    /// Ages of requests that were due when the window closed, and about to be sent.
    pub(crate) fn unsent(&mut self, ages_ns: impl Iterator<Item = u64>) {
        ages_ns.for_each(|age| self.response_censored.open.record(age));
    }

    /// Keeps the first evidence of a wrong or broken answer.
    pub(crate) fn evidence(&mut self, why: impl FnOnce() -> String, head: Vec<u8>) {
        if self.first_wrong.is_none() {
            self.first_wrong = Some(Wrong { why: why(), head });
        }
    }

    /// So many requests or connections failed.
    #[cold]
    pub(crate) fn failure(&mut self, failure: Failure, phase: Phase, count: u64, now_ns: u64) {
        self.turn(now_ns);
        self.failures[failure as usize][phase as usize] += count;
        self.failed += count;
        self.tick.failures += count;
    }

    /// Ends the ticks that are over.
    #[inline]
    fn turn(&mut self, now_ns: u64) {
        if now_ns >= self.tick_ends_ns {
            self.end_ticks(now_ns);
        }
    }

    #[cold]
    fn end_ticks(&mut self, now_ns: u64) {
        while now_ns >= self.tick_ends_ns && self.series.len() < TICKS {
            self.series.push(std::mem::take(&mut self.tick));
            self.tick_ends_ns += TICK_NS;
        }
        if self.series.len() == TICKS {
            self.tick_ends_ns = u64::MAX;
        }
    }

    /// The counts of a window that closes now. What a thread used and what is open still, the
    /// worker adds.
    pub(crate) fn into_outcome(mut self, now_ns: u64, backend: &str) -> Outcome {
        let now_ns = if self.paused_ns > 0 { self.paused_ns } else { now_ns };
        self.turn(now_ns);
        if self.tick != Tick::default() {
            self.series.push(self.tick);
        }
        let mut failures = Failures::default();
        for (failure, by_phase) in FAILURES.iter().zip(&self.failures) {
            for (phase, count) in PHASES.iter().zip(by_phase).filter(|(_, count)| **count > 0) {
                failures.add(*failure, *phase, *count);
            }
        }
        let seen = (0u16..).zip(&self.statuses).filter(|(_, count)| **count > 0);
        Outcome {
            backend: backend.to_owned(),
            window_ns: now_ns - self.opens_ns,
            answers: self.answers,
            service: self.service,
            response: self.response,
            service_censored: self.service_censored,
            response_censored: self.response_censored,
            lag: self.lag,
            connect: self.connect,
            handshake: self.handshake,
            failures,
            statuses: seen.map(|(status, count)| (status, *count)).collect::<BTreeMap<_, _>>(),
            first_wrong: self.first_wrong,
            first_failure: None,
            connections: Connections { reopened: self.reopened, ..Connections::default() },
            bytes: self.bytes,
            in_flight: 0,
            edges: crate::outcome::Edges::default(),
            queued: 0,
            oldest_ns: 0,
            unanswered: 0,
            series: self.series,
            threads: vec![ThreadUse {
                wall_ns: now_ns - self.opens_ns,
                wakeups: self.wakeups,
                sent: self.sent,
                ..ThreadUse::default()
            }],
            due: 0,
            whole: Whole::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_and_phases_are_numbered_as_listed() {
        for (number, failure) in FAILURES.iter().enumerate() {
            assert_eq!(*failure as usize, number);
        }
        for (number, phase) in PHASES.iter().enumerate() {
            assert_eq!(*phase as usize, number);
        }
    }

    #[test]
    fn a_pause_is_no_part_of_the_window() {
        let mut tally = Tally::new(1_000);
        tally.failure(Failure::Reset, Phase::Body, 1, 2_000);
        tally.pause(1_000 + TICK_NS / 2);
        tally.resume(5_000 + 9 * TICK_NS);
        tally.failure(Failure::Reset, Phase::Body, 2, 6_000 + 9 * TICK_NS);
        tally.pause(5_000 + 9 * TICK_NS + TICK_NS / 4);
        let outcome = tally.into_outcome(77 * TICK_NS, "none");
        assert_eq!(outcome.window_ns, TICK_NS / 2 + TICK_NS / 4);
        assert_eq!(outcome.series.iter().map(|t| t.failures).collect::<Vec<_>>(), [3]);
    }

    /// So many right responses, one each microsecond, that take 1 ms, and 5 ms after a million.
    fn responses(count: u64) -> Outcome {
        let mut tally = Tally::new(0);
        for number in 0..count {
            let (now, took) = (number * 1_000, if number < 1_000_000 { MS } else { 5 * MS });
            let sent_ns = now + 10 * MS - took;
            let flight = Flight { request: 0, due_ns: sent_ns, sent_ns };
            tally.right(flight, 200, 100, now + 10 * MS, true);
        }
        tally.into_outcome(count * 1_000 + 10 * MS, "none")
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn hey_keeps_the_first_million_responses() {
        let outcome = responses(1_500_000);
        assert_eq!((outcome.answers, outcome.service.len()), (1_500_000, 1_500_000));
        let at = |q| (outcome.service.quantile(q) as f64 / MS as f64).round();
        assert_eq!((at(0.5), at(0.66), at(0.67), at(0.99)), (1.0, 1.0, 5.0, 5.0));
        assert_eq!(outcome.statuses.into_iter().collect::<Vec<_>>(), [(200, 1_500_000)]);
        assert_eq!(outcome.series.iter().map(|tick| tick.answers).sum::<u64>(), 1_500_000);
    }

    #[test]
    fn oha_keeps_every_response() {
        let size = |outcome: Outcome| {
            // A tick is a tenth of a second, whatever happens in it.
            let outcome = Outcome { series: Vec::new(), ..outcome };
            serde_json::to_vec(&outcome).expect("plain data").len()
        };
        // A hundred times as many responses: as many numbers, some of which have more digits.
        let (few, many) = (size(responses(10_000)), size(responses(1_000_000)));
        assert!(many < few + 100, "{few} bytes for 10,000, {many} for a million");
    }

    #[test]
    fn ticks_without_answers_are_kept_as_zeros() {
        let mut tally = Tally::new(1_000);
        tally.failure(Failure::Reset, Phase::Body, 1, 2_000);
        tally.failure(Failure::Reset, Phase::Body, 2, 1_000 + 3 * TICK_NS);
        let outcome = tally.into_outcome(2_000 + 3 * TICK_NS, "none");
        let failures: Vec<u64> = outcome.series.iter().map(|t| t.failures).collect();
        assert_eq!(failures, [1, 0, 0, 2]);
        assert_eq!(outcome.failures.of(Failure::Reset), 3);
    }
}
