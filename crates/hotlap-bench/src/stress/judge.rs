//! Derives the impact of a scenario from what was observed, by rules with thresholds.
//!
//! The thresholds are conventions, stated in the report, and deliberately wide. On a busy machine
//! with two cores, the same server varies by tens of per cent within a second. An impact that is
//! found on one machine should also be found on another.

use std::fmt;

use hotlap_load::Failure;
use hotlap_load::outcome::FailureCount;
use serde::{Deserialize, Serialize};

use super::attackers::Fate;

/// The impact of a scenario on a server, from best to worst. The worst impact that applies counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Impact {
    /// No other impact applies.
    Unaffected,
    /// The normal clients had less than [`PACE`] of their fair share of the previous throughput. Or
    /// their p99 was more than [`P99_TIMES`] times the fair p99, and more than [`P99_LEAST_NS`]
    /// above the previous p99.
    Slowed,
    /// The server recovered only in part, or kept resources. Its throughput was less than
    /// [`PACE_AFTER`] of the previous one in each of several measurements. Or it kept more than
    /// [`MEMORY_TIMES`] times its previous memory and [`MEMORY_LEAST_BYTES`] more. Or it kept more
    /// than [`THREADS_TIMES`] times its previous threads and [`THREADS_LEAST`] more. Or it used
    /// more than [`BUSY`] of a core of additional CPU time without requests.
    Degraded,
    /// More than [`ERRORS`] of the normal clients' requests failed, not counting the share that
    /// failed before. Or the normal clients got no response, and no request has failed yet.
    Failing,
    /// The server does not work afterwards: it ended, or sends no correct response within the
    /// limit, or the normal clients still get errors.
    Down,
}

/// The smallest share of its fair throughput at which a server does not count as slowed.
pub const PACE: f64 = 0.5;

/// The smallest share of its previous throughput at which a server counts as recovered. The share
/// is only a third, because a machine that slows down for seconds looks the same.
pub const PACE_AFTER: f64 = 1.0 / 3.0;

/// A p99 above this many times the fair p99 counts as slow, if it also grew by [`P99_LEAST_NS`].
pub const P99_TIMES: f64 = 10.0;

/// A p99 counts as slow only if it grew by more than a tenth of a second. Shorter delays are normal
/// on a busy machine.
pub const P99_LEAST_NS: u64 = 100_000_000;

/// The share of requests that may fail.
pub const ERRORS: f64 = 0.001;

/// The memory that a server may keep, relative to the previous amount.
pub const MEMORY_TIMES: f64 = 2.0;

/// The additional memory that a server may keep in any case, in bytes. Such memory may be garbage
/// that is not collected yet.
pub const MEMORY_LEAST_BYTES: u64 = 64_000_000;

/// The number of threads that a server may keep, relative to the previous number.
pub const THREADS_TIMES: f64 = 2.0;

/// The number of additional threads that a server may keep in any case.
pub const THREADS_LEAST: u32 = 16;

/// The additional share of a core that a server may use without requests.
pub const BUSY: f64 = 0.5;

/// What was observed in one scenario.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Observed {
    /// The normal clients before the attack.
    pub before: ClientService,
    /// The normal clients during the attack.
    pub during: ClientService,
    /// The normal clients after the attack.
    pub after: ClientService,
    /// The attackers, if the attack is a load.
    pub others: Option<ClientService>,
    /// The number of client connections during the attack, divided by the number before. A drop in
    /// throughput by this factor is fair, because all connections share the server.
    pub crowding: f64,
    /// How the attackers' connections ended, unless the attack is a load.
    pub fate: Option<Fate>,
    /// The server's memory and threads before, during and after the attack. `None` if unknown.
    pub held: Option<[Held; 3]>,
    /// The share of a core that the server used without requests, after its warm-up and after the
    /// attack.
    pub idle: Option<[f64; 2]>,
    /// How the server's process ended, if it did.
    pub ended: Option<String>,
    /// Time from the end of the attack to the first correct response on a new connection, in
    /// milliseconds. `None` if there was no such response within the limit.
    pub recovered_ms: Option<f64>,
}

/// How the server served its clients in one phase.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClientService {
    /// Correct responses per second.
    pub requests_per_s: f64,
    /// The number of correct responses.
    #[serde(alias = "answers")] // its name in older stores
    pub responses: u64,
    /// The 99th percentile of the service time, in nanoseconds. 0 without responses.
    pub p99_ns: u64,
    /// Failures by kind and phase.
    pub failures: Vec<FailureCount>,
    /// Requests that were unanswered when the window closed, after more than half of the timeout.
    pub unanswered: u64,
    /// Why no connection was established, if none was.
    pub unreachable: Option<String>,
}

/// Resources that a server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Held {
    /// Resident memory of the server's process tree, in bytes.
    pub rss_bytes: u64,
    /// The number of threads in the server's process tree.
    pub threads: u32,
}

/// The impact of a scenario and the reasons for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The worst impact. Stored runs call the impact a verdict.
    #[serde(rename = "verdict")]
    pub impact: Impact,
    /// The reasons, the worst first. Empty if there was no impact.
    pub reasons: Vec<Reason>,
}

/// A reason for an impact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The server's process ended.
    Ended(String),
    /// There was no correct response on a new connection after the attack.
    Mute,
    /// Requests failed after the attack: the number of failed requests, and of all requests.
    ErrorsAfter(u64, u64),
    /// Throughput after the attack, relative to the throughput before it.
    SlowAfter(f64),
    /// Requests of normal clients failed: the number of failed requests, of all requests, and the
    /// most frequent failure.
    Errors(u64, u64, Option<Failure>),
    /// Memory before and after the attack, in bytes.
    Memory(u64, u64),
    /// Threads before and after the attack.
    Threads(u32, u32),
    /// The share of a core that the server used without requests after the attack.
    Busy(f64),
    /// Throughput of normal clients, relative to their fair share of the previous throughput.
    Pace(f64),
    /// p99 before and during the attack, in nanoseconds.
    P99(u64, u64),
}

/// Judges one scenario by what was observed.
pub fn judge(observed: &Observed) -> Judgement {
    let Observed { before, during, after, .. } = observed;
    let mut reasons = Vec::new();
    if let Some(how) = &observed.ended {
        reasons.push(Reason::Ended(how.clone()));
    } else if observed.recovered_ms.is_none() {
        reasons.push(Reason::Mute);
    } else if after.errs(before) {
        reasons.push(Reason::ErrorsAfter(after.failed(), after.asked()));
    } else if after.requests_per_s < PACE_AFTER * before.requests_per_s {
        reasons.push(Reason::SlowAfter(ratio(after.requests_per_s, before.requests_per_s)));
    }
    if during.errs(before) {
        let most = during.failures.iter().max_by_key(|f| f.count).map(|f| f.failure);
        reasons.push(Reason::Errors(during.failed(), during.asked(), most));
    }
    // A server that has ended keeps no memory or threads.
    if observed.ended.is_none() {
        reasons.extend(observed.kept());
    }
    let crowding = observed.crowding.max(1.0);
    let fair = ratio(during.requests_per_s * crowding, before.requests_per_s);
    if fair < PACE {
        reasons.push(Reason::Pace(fair));
    }
    if during.p99_ns as f64 > before.p99_ns as f64 * crowding * P99_TIMES
        && during.p99_ns > before.p99_ns + P99_LEAST_NS
    {
        reasons.push(Reason::P99(before.p99_ns, during.p99_ns));
    }
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.impact()));
    let impact = reasons.first().map_or(Impact::Unaffected, Reason::impact);
    Judgement { impact, reasons }
}

/// Returns a ratio. The ratio is 1 if the divisor is 0, because there was nothing to lose.
fn ratio(now: f64, then: f64) -> f64 {
    if then > 0.0 { now / then } else { 1.0 }
}

impl Observed {
    fn kept(&self) -> Vec<Reason> {
        let mut kept = Vec::new();
        if let Some([first, _, last]) = self.held {
            let is_large = last.rss_bytes as f64 > MEMORY_TIMES * first.rss_bytes as f64;
            if is_large && last.rss_bytes > first.rss_bytes + MEMORY_LEAST_BYTES {
                kept.push(Reason::Memory(first.rss_bytes, last.rss_bytes));
            }
            let are_many = f64::from(last.threads) > THREADS_TIMES * f64::from(first.threads);
            if are_many && last.threads > first.threads + THREADS_LEAST {
                kept.push(Reason::Threads(first.threads, last.threads));
            }
        }
        if let Some([first, last]) = self.idle
            && last > first + BUSY
        {
            kept.push(Reason::Busy(last));
        }
        kept
    }
}

impl ClientService {
    /// The number of requests that failed or hung. At least 1 if no connection was established.
    pub fn failed(&self) -> u64 {
        let failures: u64 = self.failures.iter().map(|f| f.count).sum();
        (failures + self.unanswered).max(u64::from(self.unreachable.is_some()))
    }

    /// The number of requests that got a correct response, failed or hung.
    pub fn asked(&self) -> u64 {
        self.responses + self.failed()
    }

    fn error_share(&self) -> f64 {
        self.failed() as f64 / self.asked().max(1) as f64
    }

    /// Whether a larger share of requests fails than before. Without any response or failure, all
    /// requests count as failed.
    fn errs(&self, before: &Self) -> bool {
        self.asked() == 0 || self.error_share() > before.error_share() + ERRORS
    }
}

impl Reason {
    /// The impact that follows from this reason.
    pub fn impact(&self) -> Impact {
        match self {
            Self::Ended(_) | Self::Mute | Self::ErrorsAfter(..) => Impact::Down,
            Self::Errors(..) => Impact::Failing,
            Self::SlowAfter(_) | Self::Memory(..) | Self::Threads(..) | Self::Busy(_) => {
                Impact::Degraded
            }
            Self::Pace(_) | Self::P99(..) => Impact::Slowed,
        }
    }
}

impl Impact {
    /// The word for the impact in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unaffected => "unaffected",
            Self::Slowed => "slowed",
            Self::Degraded => "degraded",
            Self::Failing => "failing",
            Self::Down => "down",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let ms = |ns: u64| ns as f64 / 1e6;
        match self {
            Self::Ended(how) => write!(f, "the server {how}"),
            Self::Mute => write!(f, "the server sent no correct response after the attack"),
            Self::ErrorsAfter(_, 0) => {
                f.write_str("normal clients got no response after the attack")
            }
            Self::ErrorsAfter(failed, asked) => {
                write!(f, "{failed} of {asked} requests failed after the attack")
            }
            Self::SlowAfter(share) => write!(
                f,
                "normal clients had only {:.0}% of their earlier throughput after the attack",
                share * 100.0
            ),
            Self::Errors(_, 0, _) => f.write_str("normal clients got no response"),
            Self::Errors(failed, asked, most) => {
                write!(f, "{failed} of {asked} requests from normal clients failed")?;
                most.map_or(Ok(()), |most| write!(f, ", mostly: {}", words(most)))
            }
            Self::Memory(before, after) => {
                let (before, after) = (mb(*before), mb(*after));
                write!(f, "the server still uses {after:.0} MB of memory, up from {before:.0} MB")
            }
            Self::Threads(before, after) => {
                write!(f, "the server still has {after} threads, up from {before}")
            }
            Self::Busy(share) => write!(
                f,
                "after the attack, the server uses {:.0}% of a core although no client sends \
                 requests",
                share * 100.0
            ),
            Self::Pace(share) => {
                write!(f, "normal clients had {:.0}% of their fair throughput", share * 100.0)
            }
            Self::P99(before, during) => {
                write!(f, "p99 went from {:.1} ms to {:.0} ms", ms(*before), ms(*during))
            }
        }
    }
}

/// Describes a kind of failure in words.
pub fn words(failure: Failure) -> &'static str {
    match failure {
        Failure::Refused => "connection refused",
        Failure::Reset => "connection reset",
        Failure::ClosedEarly => "closed early",
        Failure::Timeout => "timeout",
        Failure::BadFraming => "invalid HTTP",
        Failure::WrongBody => "wrong body",
        Failure::WrongStatus => "wrong status",
        Failure::Tls => "TLS",
        Failure::Truncated => "closed without TLS close_notify",
        Failure::StreamReset => "stream reset",
        Failure::NoPort => "no free local port",
        Failure::Other => "system error",
    }
}

#[cfg(test)]
mod tests {
    use hotlap_load::Phase;

    use super::*;

    fn pace(responses: u64, p99_ns: u64, timeouts: u64) -> ClientService {
        let failure =
            FailureCount { failure: Failure::Timeout, phase: Phase::FirstByte, count: timeouts };
        ClientService {
            requests_per_s: responses as f64,
            responses,
            p99_ns,
            failures: (timeouts > 0).then_some(failure).into_iter().collect(),
            ..ClientService::default()
        }
    }

    fn held(rss_mib: u64, threads: u32) -> Held {
        Held { rss_bytes: rss_mib << 20, threads }
    }

    /// Returns the observations of a server that an attack does not affect.
    fn calm() -> Observed {
        Observed {
            before: pace(10_000, 2_000_000, 0),
            during: pace(10_000, 2_000_000, 0),
            after: pace(10_000, 2_000_000, 0),
            crowding: 1.0,
            held: Some([held(20, 4); 3]),
            idle: Some([0.0, 0.0]),
            recovered_ms: Some(1.0),
            ..Observed::default()
        }
    }

    fn judged(observed: Observed) -> (Impact, Vec<String>) {
        let Judgement { impact, reasons } = judge(&observed);
        (impact, reasons.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_server_whose_normal_clients_notice_nothing_is_well() {
        assert_eq!(judged(calm()), (Impact::Unaffected, vec![]));
        // A busy machine affects any server this much, so there is no impact: half the pace, nine
        // times the p99, and a p99 that is 99 ms longer.
        let noisy = Observed {
            during: pace(5_001, 18_000_000, 5),
            after: pace(3_334, 101_000_000, 0),
            held: Some([held(20, 4), held(400, 300), held(80, 20)]),
            idle: Some([0.1, 0.55]),
            ..calm()
        };
        assert_eq!(judged(noisy), (Impact::Unaffected, vec![]));
    }

    #[test]
    fn less_than_half_of_the_throughput_is_suffering() {
        let slow = Observed { during: pace(4_999, 2_000_000, 0), ..calm() };
        let why = "normal clients had 50% of their fair throughput".to_owned();
        assert_eq!(judged(slow), (Impact::Slowed, vec![why]));
    }

    #[test]
    fn a_long_tail_is_suffering_only_if_it_is_many_times_longer_and_long() {
        let tail = |during| judge(&Observed { during: pace(10_000, during, 0), ..calm() }).impact;
        assert_eq!(tail(90_000_000), Impact::Unaffected);
        assert_eq!(tail(103_000_000), Impact::Slowed);
        let slow_before = Observed {
            before: pace(10_000, 60_000_000, 0),
            during: pace(10_000, 500_000_000, 0),
            ..calm()
        };
        assert_eq!(judge(&slow_before).impact, Impact::Unaffected);
    }

    #[test]
    fn with_26_times_the_connections_a_26th_of_the_throughput_is_fair() {
        let shared = |responses, p99| {
            judge(&Observed { during: pace(responses, p99, 0), crowding: 26.0, ..calm() }).impact
        };
        assert_eq!(shared(10_000 / 26, 26 * 2_000_000), Impact::Unaffected);
        assert_eq!(shared(10_000 / 26 / 3, 26 * 2_000_000), Impact::Slowed);
    }

    #[test]
    fn errors_of_normal_clients_are_hurt_beyond_the_share_that_failed_before() {
        let hurt = Observed { during: pace(9_000, 2_000_000, 10), ..calm() };
        let why = "10 of 9010 requests from normal clients failed, mostly: timeout";
        assert_eq!(judged(hurt), (Impact::Failing, vec![why.to_owned()]));
        let as_ever = Observed {
            before: pace(9_000, 2_000_000, 10),
            during: pace(9_000, 2_000_000, 10),
            ..calm()
        };
        assert_eq!(judge(&as_ever).impact, Impact::Unaffected);
    }

    #[test]
    fn silence_is_hurt_even_if_no_request_has_timed_out_yet() {
        let silent = Observed { during: ClientService::default(), ..calm() };
        assert_eq!(judge(&silent).impact, Impact::Failing);
        let unreachable =
            ClientService { unreachable: Some("refused".to_owned()), ..ClientService::default() };
        assert_eq!(judge(&Observed { during: unreachable, ..calm() }).impact, Impact::Failing);
    }

    #[test]
    fn kept_resources_are_a_scar() {
        let scarred = Observed {
            held: Some([held(20, 4), held(300, 204), held(200, 204)]),
            idle: Some([0.0, 0.99]),
            ..calm()
        };
        let why = [
            "the server still uses 210 MB of memory, up from 21 MB",
            "the server still has 204 threads, up from 4",
            "after the attack, the server uses 99% of a core although no client sends requests",
        ];
        assert_eq!(judged(scarred), (Impact::Degraded, why.map(str::to_owned).to_vec()));
        let slower = Observed { after: pace(3_000, 2_000_000, 0), ..calm() };
        let why = "normal clients had only 30% of their earlier throughput after the attack";
        assert_eq!(judged(slower), (Impact::Degraded, vec![why.to_owned()]));
    }

    #[test]
    fn a_server_that_does_not_work_afterwards_is_down_whatever_else_holds() {
        let ended = Observed {
            ended: Some("exited with code 1".to_owned()),
            recovered_ms: None,
            during: pace(100, 2_000_000, 900),
            after: ClientService::default(),
            ..calm()
        };
        let (impact, why) = judged(ended);
        assert_eq!((impact, why[0].as_str()), (Impact::Down, "the server exited with code 1"));
        assert_eq!(why.len(), 3);
        let down = |o: Observed| judge(&o).impact == Impact::Down;
        assert!(down(Observed { recovered_ms: None, ..calm() }));
        assert!(down(Observed { after: pace(9_000, 2_000_000, 100), ..calm() }));
        assert!(down(Observed { after: ClientService::default(), ..calm() }));
    }

    #[test]
    fn impacts_are_ordered_from_the_best_to_the_worst() {
        use Impact::{Degraded, Down, Failing, Slowed, Unaffected};
        let mut all = [Down, Unaffected, Failing, Degraded, Slowed];
        all.sort();
        assert_eq!(all, [Unaffected, Slowed, Degraded, Failing, Down]);
    }
}
