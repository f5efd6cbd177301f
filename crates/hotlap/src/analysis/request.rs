//! One request of a load that sends several, on one server.

use hotlap_load::outcome::RequestOutcome;
use hotlap_stats::Survival;

use super::latency::{Times, stall_shares};
use crate::model::Lap;

/// One of a load's requests, on one server.
#[derive(Debug)]
pub struct MeasuredRequest {
    /// Its place among the requests of the load.
    pub place: usize,
    /// Correct responses in all laps.
    pub answers: u64,
    /// Failures in all laps, wrong responses included.
    pub failures: u64,
    /// Service time at saturation, over all laps that count; response time in an open loop.
    pub service: RequestTimes,
    /// Response time at the common rate, over all laps that count; empty if there are none.
    pub response: RequestTimes,
}

/// Times of one request.
#[derive(Debug)]
pub struct RequestTimes {
    /// Their distribution.
    pub survival: Survival,
    /// Its share of the requests that one stall delays, see [`stall_shares`].
    pub stall_share: f64,
}

impl MeasuredRequest {
    /// The first `count` requests of a load, from all laps of a server, those of them that count,
    /// and those at the common rate that count. None if the laps do not tell requests apart.
    pub(super) fn all_of(count: usize, laps: &[&Lap], good: &[&Lap], paced: &[&Lap]) -> Vec<Self> {
        if laps.iter().all(|lap| lap.outcome.by_request.is_empty()) {
            return Vec::new();
        }
        let sum = |place: usize, of: fn(&RequestOutcome) -> u64| -> u64 {
            laps.iter().filter_map(|lap| lap.outcome.by_request.get(place)).map(of).sum()
        };
        let times = times_of(count, good).into_iter().zip(times_of(count, paced));
        let requests = times.enumerate().map(|(place, (service, response))| Self {
            place,
            answers: sum(place, |own| own.responses),
            failures: sum(place, |own| own.failures),
            service,
            response,
        });
        requests.collect()
    }

    /// Requests with a response or a failure, in all laps.
    pub fn requests(&self) -> u64 {
        self.answers + self.failures
    }
}

/// The times of each request, over all of these laps.
fn times_of(count: usize, laps: &[&Lap]) -> Vec<RequestTimes> {
    let merged = |place: usize| {
        let mut times = Times::default();
        for own in laps.iter().filter_map(|lap| lap.outcome.by_request.get(place)) {
            own.latency.add_to(&mut times.answered);
            times.censored.merge(&own.censored);
        }
        times
    };
    let times: Vec<Times> = (0..count).map(merged).collect();
    let shares = stall_shares(&times.iter().map(|times| &times.answered).collect::<Vec<_>>());
    let both = times.iter().zip(shares);
    both.map(|(times, stall_share)| RequestTimes { survival: times.survival(), stall_share })
        .collect()
}
