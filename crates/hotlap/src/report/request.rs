//! One request of a load that sends several, on one server.

use hotlap_stats::Concurrency;
use serde::Serialize;

use super::Row;
use super::figure::{Figure, bare, percentile};
use crate::analysis::latency::known;
use crate::analysis::{Analysis, MeasuredRequest, RequestTimes};
use crate::model::Run;
use crate::text::number::grouped;

/// One of a load's requests, on one server.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct RequestRow {
    /// Name of the server.
    pub server: String,
    /// Name of the request.
    pub request: String,
    /// Requests with a response or a failure, in all laps.
    pub requests: u64,
    /// Their share of all requests to this server, in per cent; `null` if there were none.
    pub share_percent: Option<Figure>,
    /// Failures in all laps, wrong responses included. A failure to connect belongs to no request.
    pub errors: u64,
    /// The common rate at which `p50` and `p99` are response times; `null` if they are the latency
    /// of the load itself.
    pub rate: Option<f64>,
    /// Half are shorter, in milliseconds; `null` if there are too few samples.
    pub p50: Option<Figure>,
    /// 99 % are shorter, in milliseconds; `null` if there are too few samples.
    pub p99: Option<Figure>,
}

impl RequestRow {
    /// The requests to a server, given as an index and as its row of the table. With a common rate,
    /// percentiles are those of laps at this rate, and unknown if the server did not reach it.
    pub(super) fn all_of(
        run: &Run,
        analysis: &Analysis,
        (server, row): (usize, &Row),
        common_rate: Option<f64>,
    ) -> Vec<Self> {
        let load = &run.loads[analysis.load];
        let requests = &analysis.servers[server].requests;
        let all: u64 = requests.iter().map(MeasuredRequest::requests).sum();
        let in_flight = (load.connections * load.pipeline) as u64;
        let latency = |request: &MeasuredRequest| match common_rate {
            None => percentiles(&request.service, Concurrency { in_flight, rate: load.rate }),
            Some(_) if row.at_rate().is_none() => [None, None],
            rate => percentiles(&request.response, Concurrency { in_flight, rate }),
        };
        let of = |request: &MeasuredRequest| {
            let [p50, p99] = latency(request);
            let share = (all > 0).then(|| 100.0 * request.requests() as f64 / all as f64);
            Self {
                server: row.name.clone(),
                request: load.requests[request.place].clone(),
                requests: request.requests(),
                share_percent: share.map(|share| bare(share, format!("{} %", grouped(share, 1)))),
                errors: request.failures,
                rate: common_rate,
                p50,
                p99,
            }
        };
        requests.iter().map(of).collect()
    }
}

/// p50 and p99.
fn percentiles(of: &RequestTimes, concurrency: Concurrency) -> [Option<Figure>; 2] {
    let concurrency = concurrency.of_share(of.stall_share);
    match of.survival.is_empty() {
        true => [None, None],
        false => [0.5, 0.99].map(|q| known(&of.survival, q, concurrency).map(percentile)),
    }
}
