//! How late the generator itself sends in an open loop.

use std::time::Duration;

use hotlap_load::plan::{Endpoint, Pace, Request, Stop, Target};
use hotlap_load::{Plan, run as load};

use super::server::{Server, body};

pub fn run(rate: f64) {
    let endpoint = Endpoint::Tcp(Server::start(13, None).address);
    let request = Request::get("/", "localhost").expecting(&body(13));
    let paces = [Pace::Constant { rate }, Pace::Poisson { rate, seed: 1 }];
    for (pace, busy_poll) in
        paces.into_iter().flat_map(|pace| [(pace.clone(), true), (pace, false)])
    {
        let mut plan = Plan::new(Target::plain(endpoint.clone()), request.clone());
        plan.cpus = vec![1];
        plan.busy_poll = busy_poll;
        plan.pace = pace.clone();
        plan.stop = Stop::After(Duration::from_secs(3));
        let outcome = load(&plan).expect("a load");
        let us = |ns: u64| ns as f64 / 1e3;
        println!(
            "{pace:?}, {}: {:.1} requests/s; lag p50 {:.1} µs, p99 {:.1}, max {:.1}; service p50 \
             {:.1}, p99 {:.1}; busy {:.0} %",
            if busy_poll { "busy polling" } else { "sleeping" },
            outcome.rate(),
            us(outcome.lag.quantile(0.5)),
            us(outcome.lag.quantile(0.99)),
            us(outcome.lag.max()),
            us(outcome.service_time.quantile(0.5)),
            us(outcome.service_time.quantile(0.99)),
            outcome.threads[0].busy() * 100.0,
        );
    }
}
