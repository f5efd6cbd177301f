//! An access log (`--access-log`): any bytes.

use hotlap_load::plan::{Endpoint, Pace, Plan, Request, ValueSource, Target};
use hotlap_servers::access_log::{AccessLog, Replay, ReplayOrder, parse};
use hotlap_servers::contract::Contract;

/// Reads it in each order; what is left in is a request line of three parts, and a plan for it is
/// valid.
pub fn check(log: &[u8]) {
    let orders =
        [ReplayOrder::Lines, ReplayOrder::Random { seed: 1 }, ReplayOrder::Times { speed: 10.0 }];
    for order in orders {
        for unsafe_methods in [false, true] {
            match parse(log, Replay { order, unsafe_methods }) {
                Ok(read) => check_requests(&read),
                Err((line, what)) => {
                    assert!(!what.is_empty());
                    let lines = log.split(|b| *b == b'\n').count() as u64;
                    assert!(line.is_none_or(|line| (1..=lines).contains(&line)), "{line:?}");
                }
            }
        }
    }
}

fn check_requests(log: &AccessLog) {
    assert!(log.left_out.lines <= log.left_out.of);
    let contract = Contract::custom_requests(&log.requests);
    let fields = &contract.fields;
    let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 1).into());
    let mut plan = Plan::new(Target::plain(endpoint), Request::get("/", "h"));
    plan.requests = contract.unverified_requests("h");
    (plan.fields, plan.order) = (fields.list.clone(), fields.order.clone());
    if let Some(due) = &log.due {
        assert_eq!(Some(due.count()), plan.order.as_ref().map(|order| order.len()));
        plan.pace = Pace::Recorded(due.clone());
    }
    assert_eq!(plan.check(), Ok(()));
    for field in &fields.list {
        let ValueSource::Choice { values, .. } = &field.source else { panic!("{field:?}") };
        for path in values.iter() {
            assert!(path.starts_with('/'), "{path:?}");
            assert!(path.bytes().all(|b| b.is_ascii_graphic()), "{path:?}");
        }
    }
}
