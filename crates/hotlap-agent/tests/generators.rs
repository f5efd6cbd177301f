//! Tests several generators against a server that counts its own requests.

use std::io::pipe;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hotlap_agent::generator::{
    AskStatus, Begin, Collect, Generator, Hold, Join, Open, Pause, Prepare,
};
use hotlap_agent::{
    AgentRole, AgentService, Channel, Clock, Contributions, Generators, LoadError, LoadHost,
    RunningLoad, serve,
};
use hotlap_load::Outcome;
use hotlap_load::plan::{Field, Pace, Plan, Request, Shape, Stop, ValueSource};
use hotlap_load::url;
use hotlap_servers::running::Sample;
use hotlap_testbed::{HELLO, TestServer, unused_address};

/// Starts a generator in this process. Its clock is ahead of the controller's clock.
fn generator(ahead_ns: i64) -> Channel {
    let (agent_input, output) = pipe().expect("a pipe");
    let (input, agent_output) = pipe().expect("a pipe");
    let clock = Clock::shifted(ahead_ns);
    std::thread::spawn(move || {
        let open = |_| Ok(Box::new(Generator::new(clock)) as Box<dyn AgentService>);
        serve(agent_input, agent_output, clock, open, || {})
    });
    let limit = Duration::from_secs(30);
    let name = format!("generator {ahead_ns}");
    Channel::over(&name, AgentRole::Generator, limit, output, input).expect("a channel")
}

fn generators(ahead_ns: &[i64]) -> Generators {
    let channels = ahead_ns.iter().map(|ns| generator(*ns)).collect();
    Generators::over(channels, false).expect("generators")
}

fn plan(url: &str, connections: usize, stop: Stop) -> Plan {
    let target = url::resolve(url).expect("a target").target;
    let request = Request::get("/", "test").expecting(b"Hello, World!");
    let warmup = Duration::ZERO;
    let shape = Shape { connections, ..Shape::default() };
    Plan { shape, stop, warmup, ..Plan::new(target, request) }
}

/// The measurements of several generators.
struct Measured {
    outcome: Outcome,
    contributions: Contributions,
}

fn run(generators: &Generators, plan: &Plan) -> Measured {
    let group = generators.start(plan).expect("a load").join().expect("an outcome");
    let contributions = group.contributions.expect("several generators");
    Measured { outcome: group.outcome, contributions }
}

fn until_ready(generator: &Channel, id: u64) {
    while !generator.call(AskStatus { id }).expect("a status").is_ready {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn merged_counts_equal_those_of_the_server() {
    for count in [1, 2, 4] {
        let server = TestServer::responding(HELLO);
        let plan = plan(&server.url(), 10, Stop::Requests(10_001));
        let group = run(&generators(&vec![0; count]), &plan);
        assert_eq!(group.outcome.responses, 10_001);
        assert_eq!(group.outcome.service_time.len(), 10_001);
        assert_eq!(group.outcome.connections.established, 10);
        assert_eq!(server.requests(), 10_001, "{count} generators");
        let each = group.contributions.generators;
        assert_eq!(each.len(), count);
        assert_eq!(each.iter().map(|own| own.responses).sum::<u64>(), 10_001);
        assert!(each.iter().all(|own| own.responses.abs_diff(10_001 / count as u64) <= 1));
    }
}

/// The load ends in the middle of requests, and all requests that were sent arrive.
#[test]
fn counts_over_a_time_equal_those_of_the_server() {
    let server = TestServer::responding(HELLO);
    let plan = plan(&server.url(), 8, Stop::After(Duration::from_millis(500)));
    let group = run(&generators(&[0, 0, 0]), &plan);
    let sent = group.outcome.totals.sent;
    assert_eq!(group.contributions.generators.iter().map(|own| own.sent).sum::<u64>(), sent);
    let deadline = Instant::now() + Duration::from_secs(30);
    while (server.requests() as u64) < sent && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.requests() as u64, sent);
}

/// Compares the quantiles of the sum with the quantiles of a list of all samples.
#[test]
fn percentiles_equal_those_of_all_samples_together() {
    let server = TestServer::responding(HELLO);
    let group: Vec<Channel> = (0..3).map(|_| generator(0)).collect();
    let mut outcomes = Vec::new();
    // Loads of 1, 2 and 60 connections have very different times, because connections wait for one
    // another.
    for (generator, connections) in group.iter().zip([1, 2, 60]) {
        let plan = plan(&server.url(), connections, Stop::Requests(3_000));
        let id = generator.call(Prepare { plan }).expect("a load");
        until_ready(generator, id);
        generator.call(Begin { id, at_ns: 0 }).expect("a beginning");
        while !generator.call(AskStatus { id }).expect("a status").is_finished {
            std::thread::sleep(Duration::from_millis(1));
        }
        outcomes.push(generator.call(Join { id }).expect("an outcome").outcome);
    }
    let mut samples = Vec::new();
    for outcome in &outcomes {
        for (ns, count) in outcome.service_time.counts() {
            samples.extend(std::iter::repeat_n(ns, count as usize));
        }
    }
    samples.sort_unstable();
    assert_eq!(samples.len(), 9_000);
    let sum = outcomes.into_iter().reduce(|mut sum, other| {
        sum.merge(&other);
        sum
    });
    let sum = sum.expect("outcomes");
    for q in [0.01, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0] {
        let rank = ((q * 9_000.0_f64).ceil() as usize).max(1);
        assert_eq!(sum.service_time.quantile(q), samples[rank - 1], "{q}");
    }
}

#[test]
fn clocks_that_differ_by_seconds_do_not_matter() {
    let server = TestServer::responding(HELLO);
    let plan = plan(&server.url(), 4, Stop::After(Duration::from_secs(1)));
    let group = run(&generators(&[0, 3_000_000_000, -3_000_000_000]), &plan);
    let each = &group.contributions.generators;
    for (own, ahead) in each.iter().zip([0, 3_000_000_000, -3_000_000_000_i64]) {
        for offset in [own.before, own.after] {
            assert!(offset.ns.abs_diff(ahead) <= offset.error_ns, "{own:?}");
        }
        // All windows opened at the same time, except for errors of the clocks and lateness that is
        // reported.
        let apart = own.opened_ns.abs_diff(each[0].opened_ns);
        let late = own.late_ns.max(each[0].late_ns);
        assert!(apart <= own.error_ns() + each[0].error_ns() + late, "{own:?} {:?}", each[0]);
    }
}

/// Returns a server, a load, and the values that the server has received. The path of each request
/// has the next value of a counter, from 1 on.
fn counted() -> (TestServer, Plan, Arc<Mutex<Vec<u64>>>) {
    let values = Arc::new(Mutex::new(Vec::new()));
    let seen = values.clone();
    let server = TestServer::start(move |mut client| {
        while let Some(request) = client.request() {
            let text = String::from_utf8_lossy(&request).into_owned();
            let value = text.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
            seen.lock().expect("no panic").push(value.parse().expect("a number"));
            client.send(HELLO);
        }
    });
    let mut plan = plan(&server.url(), 6, Stop::Requests(600));
    let fields = vec![Field::new("n", ValueSource::Counter { from: 1 })];
    let request = Request::with_fields("GET", "/${n}", "test", &[], b"", &fields);
    (plan.requests, plan.fields, plan.shape.threads) =
        (vec![request.expect("a request")], fields, 2);
    (server, plan, values)
}

/// Every value of a counter is sent once, whichever generator sends it.
#[test]
fn generators_divide_the_values_of_fields() {
    let (_server, plan, values) = counted();
    run(&generators(&[0, 0, 0]), &plan);
    let mut sent = values.lock().expect("no panic").clone();
    sent.sort_unstable();
    assert_eq!(sent, (1..=600).collect::<Vec<u64>>());
}

#[test]
fn a_rate_is_that_of_all_generators_together() {
    let server = TestServer::responding(HELLO);
    let mut plan = plan(&server.url(), 4, Stop::Requests(400));
    plan.pace = Pace::Constant { rate: 2_000.0 };
    let group = run(&generators(&[0, 0]), &plan);
    assert_eq!((group.outcome.responses, group.outcome.due), (400, 400));
    assert_eq!(server.requests(), 400);
    // The last of 400 requests is due after 199.5 ms, whoever sends it. If each generator sent at
    // the whole rate, the last one would be due after 99.5 ms. A generator that begins a little
    // late has a shorter window.
    assert!(group.outcome.window_ns >= 150_000_000, "{}", group.outcome.window_ns);
}

#[test]
fn a_sampler_is_no_part_of_the_sum() {
    let server = TestServer::responding(HELLO);
    let plan = plan(&server.url(), 4, Stop::After(Duration::from_secs(1)));
    let all = Generators::over(vec![generator(0), generator(0), generator(0)], true);
    let all = all.expect("generators");
    let group = run(&all, &plan);
    let sampled = group.contributions.sampled.expect("a sampler");
    // The sampler sends one request every 10 ms for one second.
    assert!((50..500).contains(&sampled.outcome.due), "{}", sampled.outcome.due);
    assert_eq!(sampled.outcome.connections.requested, 1);
    let each = group.contributions.generators;
    assert_eq!(each.len(), 2);
    assert_eq!(each.iter().map(|own| own.responses).sum::<u64>(), group.outcome.responses);
    assert_eq!(group.outcome.connections.requested, 4);
    assert_eq!(group.outcome.due, 0, "the load is a closed loop");
    let counted = Plan { stop: Stop::Requests(10), ..plan };
    assert!(matches!(all.start(&counted), Err(LoadError::Unfit(_))));
}

#[test]
fn a_server_that_cannot_be_reached_is_named_with_the_generator() {
    let address = unused_address();
    let plan = plan(&format!("http://{address}/"), 2, Stop::Requests(1));
    let error = generators(&[0, 7]).start(&plan).expect_err("no server");
    assert!(matches!(error, LoadError::Failed(_)), "{error}");
    let error = error.to_string();
    assert!(error.starts_with("generator 0: while "), "{error}");
    assert!(error.contains(&format!("cannot connect to http://{address}")), "{error}");
}

#[test]
fn a_load_that_is_stopped_keeps_what_was_measured() {
    let server = TestServer::responding(HELLO);
    let plan = plan(&server.url(), 2, Stop::After(Duration::from_secs(3_600)));
    let all = generators(&[0, 0]);
    let running = all.start(&plan).expect("a load");
    while running.progress().responses < 100 {
        assert!(!running.is_finished());
    }
    running.stop();
    let group = running.join().expect("an outcome");
    assert!(group.outcome.responses >= 100);
    // The generators can run another load afterwards.
    let again = Plan { stop: Stop::Requests(10), ..plan };
    assert_eq!(run(&all, &again).outcome.responses, 10);
}

#[test]
fn a_load_that_is_held_has_any_number_of_windows() {
    let server = TestServer::responding(HELLO);
    let ahead_ns = 3_000_000_000;
    let generator = generator(ahead_ns);
    let plan = plan(&server.url(), 2, Stop::After(Duration::from_secs(1)));
    let id = generator.call(Hold { plan }).expect("a load");
    until_ready(&generator, id);
    let limit = Duration::from_secs(30);
    let offset = generator.clock(limit).expect("an offset");
    let length = Duration::from_millis(50);
    for _ in 0..2 {
        for _ in 0..2 {
            let at_ns = offset.to_remote(Clock::default().now_ns()) + 20_000_000;
            let begun = generator.call(Open { id, at_ns, length }).expect("a window");
            assert!(begun.opens_ns >= at_ns, "{begun:?}");
            std::thread::sleep(Duration::from_millis(100));
            assert!(generator.call(Pause { id, limit }).expect("a pause"));
            let before = server.requests();
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(server.requests(), before, "it sent during the pause");
        }
        let outcome = generator.call(Collect { id }).expect("an outcome").outcome;
        assert!(outcome.responses > 0);
        assert_eq!(outcome.service_time.len(), outcome.responses);
        assert!(outcome.window_ns >= 50_000_000, "{}", outcome.window_ns);
    }
    // A window that should have closed long ago is empty.
    let begun = generator.call(Open { id, at_ns: 0, length }).expect("a window");
    assert!(begun.late_ns > 3_000_000_000);
    assert_eq!(generator.call(Join { id }).expect("an outcome").outcome.responses, 0);
}

/// Regression: a generator could have only one load, so a slice of one server was counted for
/// another.
#[test]
fn loads_that_are_held_at_the_same_time_do_not_touch_each_other() {
    let servers = [TestServer::responding(HELLO), TestServer::responding(HELLO)];
    let all = generators(&[0, 0]);
    let hold = |server: &TestServer| {
        let plan = plan(&server.url(), 4, Stop::After(Duration::from_secs(1)));
        let load = all.hold(&plan).expect("a load");
        assert!(load.pause(Duration::from_secs(30)), "{:?}", load.lost());
        load
    };
    let loads = servers.each_ref().map(hold);
    let length = Duration::from_millis(50);
    for own in [0, 1, 1, 0] {
        let before = servers.each_ref().map(|server| server.requests() as u64);
        loads[own].open_window(Duration::ZERO, length);
        std::thread::sleep(length);
        assert!(loads[own].pause(Duration::from_secs(30)), "{:?}", loads[own].lost());
        let sent = loads[own].progress().responses;
        let requests = servers.each_ref().map(|server| server.requests() as u64);
        assert_eq!(sent, requests[own]);
        assert!(requests[own] > before[own]);
        assert_eq!(requests[1 - own], before[1 - own]);
    }
    for (load, server) in loads.iter().zip(&servers) {
        let group = load.collect().expect("an outcome");
        assert_eq!(group.outcome.totals.responses, server.requests() as u64);
    }
}

/// The server counts its requests while windows open and close and the group is paused.
#[test]
fn the_windows_of_several_generators_add_up_to_what_the_server_counted() {
    let server = TestServer::responding(HELLO);
    let plan = plan(&server.url(), 6, Stop::After(Duration::from_secs(1)));
    let all = generators(&[0, 3_000_000_000, -3_000_000_000]);
    let running = all.hold(&plan).expect("a load");
    let (lead_in, length) = (Duration::from_millis(50), Duration::from_millis(100));
    for lap in 1..=2 {
        for _ in 0..2 {
            running.open_window(lead_in, length);
            std::thread::sleep(lead_in + length + Duration::from_millis(20));
            assert!(running.pause(Duration::from_secs(30)), "{:?}", running.lost());
        }
        let group = running.collect().expect("an outcome");
        let each = &group.contributions.expect("several generators").generators;
        assert_eq!(each.iter().map(|own| own.sent).sum::<u64>(), server.requests() as u64, "{lap}");
        assert_eq!(group.outcome.totals.responses, server.requests() as u64);
        assert_eq!(each.iter().map(|own| own.responses).sum::<u64>(), group.outcome.responses);
        assert_eq!(group.outcome.service_time.len(), group.outcome.responses);
        assert_eq!(group.outcome.connections.established, 6);
    }
    let progress = running.progress();
    assert_eq!(progress.responses, server.requests() as u64);
}

/// No request is in flight while the group is paused, so the count does not depend on the moment.
#[test]
fn requests_are_counted_at_a_moment_between_readings() {
    let server = TestServer::responding(HELLO);
    let plan = plan(&server.url(), 2, Stop::After(Duration::from_secs(1)));
    let all = generators(&[0, 3_000_000_000]);
    let running = all.hold(&plan).expect("a load");
    running.open_window(Duration::ZERO, Duration::from_millis(20));
    std::thread::sleep(Duration::from_millis(20));
    let answered = |running: &dyn RunningLoad| {
        let take = |_: &dyn Fn() -> u64| Sample::of(0, Instant::now());
        running.sample(&mut { take }).requests
    };
    let under_way = answered(&*running);
    assert!(running.pause(Duration::from_secs(30)));
    let all_of_them = answered(&*running);
    assert!(under_way <= all_of_them);
    assert_eq!(all_of_them, server.requests() as u64);
}

/// Regression: the next load could have sent the same values again.
#[test]
fn a_load_that_has_ended_says_how_many_values_its_generators_used() {
    let (_server, plan, values) = counted();
    let all = generators(&[0, 0, 0]);
    let finished = all.start(&plan).expect("a load");
    let used = finished.values_used();
    finished.join().expect("an outcome");
    assert!((600..10_000).contains(&used()), "{}", used());
    let held = all.hold(&plan).expect("a load");
    let used = held.values_used();
    held.open_window(Duration::ZERO, Duration::from_millis(50));
    std::thread::sleep(Duration::from_millis(50));
    drop(held);
    let highest = values.lock().expect("no panic").iter().max().copied().expect("values");
    assert!(used() >= highest, "{} and {highest}", used());
}

#[test]
fn generators_reach_this_machine_and_describe_theirs() {
    let all = generators(&[0, 0]);
    let (network, address) = all.find_network(None).expect("an address");
    assert!(address.is_loopback() && !network.is_open());
    let error = all.find_network(Some([192, 0, 2, 1].into())).expect_err("nobody has it");
    assert!(error.starts_with("generator 0: while looking for the servers' address: "), "{error}");
    assert!(error.contains("tried 192.0.2.1"), "{error}");
    let hosts = all.describe().expect("hosts");
    assert_eq!(hosts.len(), 2);
    assert!(hosts.iter().all(|host| host.description.machine.allowed > 0));
    assert!(!cfg!(target_os = "linux") || hosts[0].description.is_this_machine());
}
