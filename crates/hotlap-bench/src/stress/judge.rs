//! From what was observed to its impact: rules with thresholds, and nothing else.
//!
//! The thresholds are conventions, which the report states, and wide on purpose. On a busy machine
//! of two cores the same server differs from itself by tens of per cent within a second; what is
//! found here is to be found there as well.

use std::fmt;

use hotlap_load::Failure;
use hotlap_load::outcome::FailureCount;
use serde::{Deserialize, Serialize};

use super::attackers::Fate;

/// What a scenario does to a server, from the best to the worst. The worst that holds counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Impact {
    /// None of what follows.
    Well,
    /// The good clients had less than [`PACE`] of their fair share of the throughput of before, or
    /// a p99 of over [`P99_TIMES`] times the fair one and [`P99_LEAST_NS`] more than before.
    Suffered,
    /// It serves again, but at less than [`PACE_AFTER`] of its throughput of before in each of a
    /// few looks, or has not given back what the attack took: more than
    /// [`MEMORY_TIMES`] times the memory of before and [`MEMORY_LEAST_BYTES`] more, more than
    /// [`THREADS_TIMES`] times the threads and [`THREADS_LEAST`] more, or it uses over
    /// [`BUSY`] of a core more than before while nothing is asked.
    Scarred,
    /// More than [`ERRORS`] of the good clients' requests failed, beyond the share that failed
    /// before.
    Hurt,
    /// Not well afterwards: it ended, gives no right answer within the limit, or the good clients
    /// meet with errors still.
    Down,
}

/// The least share of its fair throughput that does not count as suffering.
pub const PACE: f64 = 0.5;

/// The least share of its throughput of before at which a server counts as well again: a third,
/// since a machine that slows down for seconds looks the same.
pub const PACE_AFTER: f64 = 1.0 / 3.0;

/// A p99 so many times the fair one counts as suffering, if it is also [`P99_LEAST_NS`] longer.
pub const P99_TIMES: f64 = 10.0;

/// Shorter delays are those of a busy machine: a tenth of a second.
pub const P99_LEAST_NS: u64 = 100_000_000;

/// The share of requests that may fail: one in a thousand.
pub const ERRORS: f64 = 0.001;

/// Memory that may be kept, relative to that of before.
pub const MEMORY_TIMES: f64 = 2.0;

/// Memory that may be kept in any case, in bytes: what a collector of garbage has not got to yet.
pub const MEMORY_LEAST_BYTES: u64 = 64_000_000;

/// Threads that may be kept, relative to those of before.
pub const THREADS_TIMES: f64 = 2.0;

/// Threads that may be kept in any case.
pub const THREADS_LEAST: u32 = 16;

/// The share of a core that may be used more than before while nothing is asked.
pub const BUSY: f64 = 0.5;

/// What was seen of one scenario.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Observed {
    /// The good clients before anybody came.
    pub before: Service,
    /// The good clients while the others were there.
    pub during: Service,
    /// The good clients when they were gone.
    pub after: Service,
    /// The others, where they are good clients too.
    pub others: Option<Service>,
    /// Good connections during over those before: to have so many times less is fair.
    pub crowding: f64,
    /// What became of the others, where they are rude.
    pub fate: Option<Fate>,
    /// What the server held before, during and after; `None` where it cannot be seen.
    pub held: Option<[Held; 3]>,
    /// Share of a core that it used while nothing was asked, at first and at last.
    pub idle: Option<[f64; 2]>,
    /// How the server's process ended, if it did.
    pub ended: Option<String>,
    /// From the end of the attack to the first right answer on a new connection, in milliseconds;
    /// `None`: none came within the limit.
    pub recovered_ms: Option<f64>,
}

/// How the good clients fared in one phase.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Service {
    /// Right answers per second.
    pub requests_per_s: f64,
    /// Right answers.
    pub answers: u64,
    /// 99 of 100 answers came within this, in nanoseconds; 0 without answers.
    pub p99_ns: u64,
    /// Failures by kind and phase.
    pub failures: Vec<FailureCount>,
    /// Asked, and silent for longer than half of the time limit when the window closed.
    pub unanswered: u64,
    /// Why no connection came up, if none did.
    pub unreachable: Option<String>,
}

/// What a server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Held {
    /// Resident memory of its tree, in bytes.
    pub rss_bytes: u64,
    /// Threads of its tree.
    pub threads: u32,
}

/// The impact of a scenario and everything that speaks for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The worst. Stored runs call it a verdict.
    #[serde(rename = "verdict")]
    pub impact: Impact,
    /// Why, the worst first; empty if it is well.
    pub reasons: Vec<Reason>,
}

/// What speaks against a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Its process ended.
    Ended(String),
    /// No right answer came on a new connection once all was over.
    Mute,
    /// Requests failed once all was over: how many of how many.
    ErrorsAfter(u64, u64),
    /// Its throughput once all was over, relative to before.
    SlowAfter(f64),
    /// Requests of good clients failed: how many of how many, and how most of them did.
    Errors(u64, u64, Option<Failure>),
    /// Memory before and after, in bytes.
    Memory(u64, u64),
    /// Threads before and after.
    Threads(u32, u32),
    /// The share of a core that it uses while nothing is asked.
    Busy(f64),
    /// Throughput of good clients relative to their fair share of before.
    Pace(f64),
    /// p99 before and during, in nanoseconds.
    P99(u64, u64),
}

/// Judges one scenario.
#[must_use]
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
    // What an ended server keeps is nothing.
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
    let impact = reasons.iter().map(Reason::impact).max().unwrap_or(Impact::Well);
    Judgement { impact, reasons }
}

/// A ratio whose divisor may be nothing: then there was nothing to lose.
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

impl Service {
    /// Requests that failed, or hung when the window closed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        let failures: u64 = self.failures.iter().map(|f| f.count).sum();
        (failures + self.unanswered).max(u64::from(self.unreachable.is_some()))
    }

    /// Requests of which it is known how they went.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.answers + self.failed()
    }

    fn error_share(&self) -> f64 {
        self.failed() as f64 / self.asked().max(1) as f64
    }

    /// Whether more fails than before. Where neither an answer nor a failure came, all does.
    fn errs(&self, before: &Self) -> bool {
        self.asked() == 0 || self.error_share() > before.error_share() + ERRORS
    }
}

impl Reason {
    /// What it makes of a server.
    #[must_use]
    pub fn impact(&self) -> Impact {
        match self {
            Self::Ended(_) | Self::Mute | Self::ErrorsAfter(..) => Impact::Down,
            Self::Errors(..) => Impact::Hurt,
            Self::SlowAfter(_) | Self::Memory(..) | Self::Threads(..) | Self::Busy(_) => {
                Impact::Scarred
            }
            Self::Pace(_) | Self::P99(..) => Impact::Suffered,
        }
    }
}

impl Impact {
    /// As reports write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Suffered => "suffered",
            Self::Scarred => "scarred",
            Self::Hurt => "hurt",
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
            Self::Mute => write!(f, "no right answer once all was over"),
            Self::ErrorsAfter(failed, asked) => {
                write!(f, "{failed} of {asked} requests failed once all was over")
            }
            Self::SlowAfter(share) => {
                write!(f, "{:.0} % of its throughput once all was over", share * 100.0)
            }
            Self::Errors(failed, asked, most) => {
                write!(f, "{failed} of {asked} requests of good clients failed")?;
                most.map_or(Ok(()), |most| write!(f, ", mostly: {}", words(most)))
            }
            Self::Memory(before, after) => {
                write!(f, "it keeps {:.0} MB, after {:.0} MB before", mb(*after), mb(*before))
            }
            Self::Threads(before, after) => {
                write!(f, "it keeps {after} threads, after {before} before")
            }
            Self::Busy(share) => {
                write!(f, "it uses {:.0} % of a core while nothing is asked", share * 100.0)
            }
            Self::Pace(share) => {
                write!(f, "good clients had {:.0} % of their fair throughput", share * 100.0)
            }
            Self::P99(before, during) => {
                write!(f, "p99 went from {:.1} ms to {:.0} ms", ms(*before), ms(*during))
            }
        }
    }
}

/// How a request failed, in words.
#[must_use]
pub fn words(failure: Failure) -> &'static str {
    match failure {
        Failure::Refused => "connection refused",
        Failure::Reset => "connection reset",
        Failure::ClosedEarly => "closed early",
        Failure::Timeout => "no answer in time",
        Failure::BadFraming => "no HTTP answer",
        Failure::WrongBody => "wrong answer",
        Failure::WrongStatus => "wrong status",
        Failure::Tls => "TLS",
        Failure::Truncated => "closed without TLS close_notify",
        Failure::Other => "the system refused",
    }
}

#[cfg(test)]
mod tests {
    use hotlap_load::Phase;

    use super::*;

    fn pace(answers: u64, p99_ns: u64, timeouts: u64) -> Service {
        let failure =
            FailureCount { failure: Failure::Timeout, phase: Phase::FirstByte, count: timeouts };
        Service {
            requests_per_s: answers as f64,
            answers,
            p99_ns,
            failures: (timeouts > 0).then_some(failure).into_iter().collect(),
            ..Service::default()
        }
    }

    fn held(rss_mib: u64, threads: u32) -> Held {
        Held { rss_bytes: rss_mib << 20, threads }
    }

    /// A server that nothing troubles.
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
    fn a_server_whose_good_clients_notice_nothing_is_well() {
        assert_eq!(judged(calm()), (Impact::Well, vec![]));
        // What a busy machine does to anybody is no impact: nearly half, ninefold, 99 ms more.
        let noisy = Observed {
            during: pace(5_001, 18_000_000, 5),
            after: pace(3_334, 101_000_000, 0),
            held: Some([held(20, 4), held(400, 300), held(80, 20)]),
            idle: Some([0.1, 0.55]),
            ..calm()
        };
        assert_eq!(judged(noisy), (Impact::Well, vec![]));
    }

    #[test]
    fn less_than_half_of_the_throughput_is_suffering() {
        let slow = Observed { during: pace(4_999, 2_000_000, 0), ..calm() };
        let why = "good clients had 50 % of their fair throughput".to_owned();
        assert_eq!(judged(slow), (Impact::Suffered, vec![why]));
    }

    #[test]
    fn a_long_tail_is_suffering_only_if_it_is_many_times_longer_and_long() {
        let tail = |during| judge(&Observed { during: pace(10_000, during, 0), ..calm() }).impact;
        assert_eq!(tail(90_000_000), Impact::Well);
        assert_eq!(tail(103_000_000), Impact::Suffered);
        let slow_before = Observed {
            before: pace(10_000, 60_000_000, 0),
            during: pace(10_000, 500_000_000, 0),
            ..calm()
        };
        assert_eq!(judge(&slow_before).impact, Impact::Well);
    }

    #[test]
    fn who_shares_with_26_times_as_many_may_have_a_26th() {
        let shared = |answers, p99| {
            judge(&Observed { during: pace(answers, p99, 0), crowding: 26.0, ..calm() }).impact
        };
        assert_eq!(shared(10_000 / 26, 26 * 2_000_000), Impact::Well);
        assert_eq!(shared(10_000 / 26 / 3, 26 * 2_000_000), Impact::Suffered);
    }

    #[test]
    fn errors_of_good_clients_are_hurt_and_what_failed_before_does_not_count() {
        let hurt = Observed { during: pace(9_000, 2_000_000, 10), ..calm() };
        let why = "10 of 9010 requests of good clients failed, mostly: no answer in time";
        assert_eq!(judged(hurt), (Impact::Hurt, vec![why.to_owned()]));
        let as_ever = Observed {
            before: pace(9_000, 2_000_000, 10),
            during: pace(9_000, 2_000_000, 10),
            ..calm()
        };
        assert_eq!(judge(&as_ever).impact, Impact::Well);
    }

    #[test]
    fn silence_is_hurt_even_if_no_request_had_the_time_to_fail() {
        let silent = Observed { during: Service::default(), ..calm() };
        assert_eq!(judge(&silent).impact, Impact::Hurt);
        let unreachable = Service { unreachable: Some("refused".to_owned()), ..Service::default() };
        assert_eq!(judge(&Observed { during: unreachable, ..calm() }).impact, Impact::Hurt);
    }

    #[test]
    fn what_is_not_given_back_is_a_scar() {
        let scarred = Observed {
            held: Some([held(20, 4), held(300, 204), held(200, 204)]),
            idle: Some([0.0, 0.99]),
            ..calm()
        };
        let why = [
            "it keeps 210 MB, after 21 MB before",
            "it keeps 204 threads, after 4 before",
            "it uses 99 % of a core while nothing is asked",
        ];
        assert_eq!(judged(scarred), (Impact::Scarred, why.map(str::to_owned).to_vec()));
        let slower = Observed { after: pace(3_000, 2_000_000, 0), ..calm() };
        let why = "30 % of its throughput once all was over".to_owned();
        assert_eq!(judged(slower), (Impact::Scarred, vec![why]));
    }

    #[test]
    fn a_server_that_is_not_well_afterwards_is_down_whatever_else_holds() {
        let ended = Observed {
            ended: Some("exited with code 1".to_owned()),
            recovered_ms: None,
            during: pace(100, 2_000_000, 900),
            after: Service::default(),
            ..calm()
        };
        let (impact, why) = judged(ended);
        assert_eq!((impact, why[0].as_str()), (Impact::Down, "the server exited with code 1"));
        assert_eq!(why.len(), 3);
        let down = |o: Observed| judge(&o).impact == Impact::Down;
        assert!(down(Observed { recovered_ms: None, ..calm() }));
        assert!(down(Observed { after: pace(9_000, 2_000_000, 100), ..calm() }));
        assert!(down(Observed { after: Service::default(), ..calm() }));
    }

    #[test]
    fn impacts_are_ordered_from_the_best_to_the_worst() {
        use Impact::{Down, Hurt, Scarred, Suffered, Well};
        let mut all = [Down, Well, Hurt, Scarred, Suffered];
        all.sort();
        assert_eq!(all, [Well, Suffered, Scarred, Hurt, Down]);
    }
}
