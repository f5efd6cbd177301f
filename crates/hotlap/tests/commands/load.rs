//! Tests what `hotlap load` prints about servers that hang or are overloaded.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hotlap_testbed::{HELLO, TestServer};
use hotlap_testkit::hosts::Hosts;
use hotlap_testkit::{Said, Scene, ceiling, flat};
use rustix::process::Signal;
use serde_json::Value;

/// Returns what `hotlap load` prints with four connections to a server that sends 20 responses and
/// then hangs. A signal ends the load after all connections have waited longer than any response
/// took, and for at least 0.3 s.
fn ended_in_a_hang(words: &str) -> Said {
    let server = TestServer::hanging(20, Duration::from_secs(3_600), HELLO);
    let load = Scene::new().hotlap("load --no-check -c4 -d60s --timeout 60s").words(words);
    let began = Instant::now();
    let mut running = load.arg(server.url()).start();
    running.until("all connections wait", || server.requests() >= 24);
    std::thread::sleep(began.elapsed() + Duration::from_millis(300));
    running.signal(Signal::INT);
    running.end().fails(130)
}

/// Starts a server with one worker, which takes 2 ms for each request. Returns its URL.
fn slow() -> String {
    TestServer::one_at_a_time(Duration::from_millis(2), HELLO).url()
}

fn load(words: &str, url: &str) -> Said {
    Scene::new().hotlap("load --no-check").words(words).arg(url).said()
}

fn line<'a>(text: &'a str, name: &str) -> &'a str {
    let found = text.lines().find(|l| l.trim_start().starts_with(name));
    found.unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn percentiles_that_rest_on_a_hang_are_lower_bounds_in_every_form() {
    let text = ended_in_a_hang("--latency").out;
    let service = line(&text, "service");
    assert!(!line(&text, "50%").contains('≥'), "{text}");
    assert!(service.contains("p99 ≥ ") && service.contains("max ≥ "), "{text}");
    assert!(line(&text, "99%").contains('≥'), "{text}");

    let json = ended_in_a_hang("--format json").json();
    let service = &json["figures"]["service"];
    assert_eq!((&service["count"], &service["unanswered"]), (&20.into(), &4.into()));
    let bounds = ["p90", "p99", "p999", "p9999", "max"];
    assert_eq!(service["lower_bounds"], Value::from(bounds.to_vec()));
    assert!(service["p99_ms"].as_f64().unwrap() >= 290.0, "{service}");
    assert!(json["figures"]["open_loop"].is_null());

    let csv = ended_in_a_hang("--format csv").out;
    assert!(csv.contains("service_p99_is_lower_bound,1,\n"), "{csv}");
    assert!(!csv.contains("service_p50_is_lower_bound"), "{csv}");
}

#[test]
fn a_rate_that_is_not_reached_is_told_with_its_queue() {
    // A slow server is not an error.
    let text = load("-c4 -d1s -R 1000", &slow()).succeeds().out;
    assert!(line(&text, "offered").contains("requests/s, "), "{text}");
    assert!(line(&text, "reached").ends_with("%"), "{text}");
    let queue = line(&text, "queue");
    assert!(queue.contains("requests without a response at the end, +"), "{text}");
    assert!(queue.contains("/s, the oldest for "), "{text}");
    assert!(text.contains("RATE NOT REACHED"), "{text}");
    assert!(line(&text, "response").contains('≥'), "{text}");

    // On a busy machine, the window may close late. The long timeout keeps requests from failing
    // then.
    let json = load("-c4 -d1s --timeout 60s -R 1000 --format json", &slow()).json();
    let (figures, found) = (&json["figures"], &json["figures"]["open_loop"]);
    let number = |name: &str| found[name].as_f64().unwrap();
    assert_eq!(found["is_behind"], true);
    assert!(number("reached_per_s") < 510.0, "{found}");
    assert_eq!(number("due") - number("waiting"), figures["responses"].as_f64().unwrap());
    assert!(number("growth_per_s") >= 480.0, "{found}");

    let wrk = load("-c4 -d1s -R 1000 --format wrk --latency", &slow()).out;
    assert!(!wrk.contains('≥') && wrk.contains("Latency Distribution"), "{wrk}");
}

#[test]
fn an_address_without_a_scheme_is_http() {
    let url = TestServer::responding(HELLO).url();
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let text = load("-c2 -n20", address).succeeds().out;
    assert!(line(&text, "requests/s").ends_with("20 correct responses, 0 errors"), "{text}");
}

/// Regression: only a count showed that some requests had failed.
#[test]
fn a_load_says_what_it_means_that_few_requests_failed() {
    let number = AtomicUsize::new(0);
    let server = TestServer::start(move |mut client| {
        while client.request().is_some() {
            if number.fetch_add(1, Ordering::Relaxed) == 199 {
                return client.reset();
            }
            client.send(HELLO);
        }
    });
    let said = flat(&load("-n 400 -c 2", &server.url()).succeeds().out);
    let expected = "1 of 400 requests failed (connection reset). Percentiles count a failed \
                    request with at least the time that it waited. Possibly the server closes \
                    connections without";
    assert!(said.contains(expected), "{said}");
}

/// Regression: 401 of 600 requests failed, and the exit code was 0.
#[test]
fn a_load_of_which_many_requests_fail_is_not_valid() {
    let number = AtomicUsize::new(0);
    let server = TestServer::start(move |mut client| {
        while client.request().is_some() {
            if number.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
                return client.reset();
            }
            client.send(HELLO);
        }
    });
    let said = load("-n 90 -c 2", &server.url()).fails(3).out;
    assert!(line(&said, "requests/s").contains("60 correct responses, 30 errors"), "{said}");
}

/// Regression: the figures were the mean of a live server and a dead one, and the exit code was 0.
#[test]
fn a_server_that_dies_during_a_load_is_told_in_the_table_and_in_the_exit_code() {
    let is_dead = Arc::new(AtomicBool::new(false));
    let peers_die = Arc::clone(&is_dead);
    let server = TestServer::start(move |mut client| {
        while client.request().is_some() && !peers_die.load(Ordering::SeqCst) {
            client.send(HELLO);
        }
        client.reset();
    });
    let load = Scene::new().hotlap("load --no-check -c2 -d4s").arg(server.url());
    let mut running = load.start();
    running.until("it is loaded", || server.requests() > 10_000);
    is_dead.store(true, Ordering::SeqCst);
    server.close();
    // Fewer than 1 in 100 requests failed, because hotlap pauses after a refused connection.
    let said = running.end().fails(3).has("NOT VALID: the server stopped responding after ");
    assert!(line(&said.out, "error").contains("refused in connect"), "{}", said.out);
    let number = |word: &str| word.replace(',', "").parse::<f64>().unwrap();
    let words: Vec<&str> = line(&said.out, "requests/s").split_whitespace().collect();
    let alive_s = said.err.split("responding after ").nth(1).unwrap().split(' ').next().unwrap();
    let of_alive = number(words[1]) * number(alive_s) / number(words[2]);
    assert!((of_alive - 1.0).abs() < 0.01, "{}{}", said.out, said.err);
}

/// Regression: with few connections, the response times included the time for which the generator
/// was stopped. No message said so.
#[test]
fn a_generator_that_is_stopped_is_late_with_any_number_of_connections() {
    for connections in ["-c1", "-c64"] {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (stopped, count) = (Arc::clone(&is_stopped), AtomicUsize::new(0));
        let server = TestServer::start(move |mut client| {
            while client.request().is_some() {
                // If there is only one connection, it must be in use when the generator is stopped.
                while count.fetch_add(1, Ordering::SeqCst) >= 30 && !stopped.load(Ordering::SeqCst)
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
                client.send(HELLO);
            }
        });
        let load =
            Scene::new().hotlap("load --no-check -d3s -R 200 --format json").words(connections);
        let mut running = load.arg(server.url()).start();
        running.until("it is loaded", || server.requests() > 30);
        running.signal(Signal::STOP);
        is_stopped.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(1));
        running.signal(Signal::CONT);
        let figures = &running.end().succeeds().json()["figures"];
        assert_eq!(figures["late"], true, "{figures}");
        // Of 600 requests, 200 are due while the generator is stopped.
        assert!(figures["lag"]["p90_ms"].as_f64().unwrap() > 500.0, "{figures}");
    }
}

/// Regression: hotlap noticed Ctrl-C only after the probes had timed out.
#[test]
fn ctrl_c_ends_the_probes_of_a_server_that_does_not_respond() {
    for command in ["load", "run"] {
        let server = TestServer::silent();
        let began = Instant::now();
        let hotlap = Scene::new().hotlap(command).words("--timeout 60s").arg(server.url());
        let mut running = hotlap.start();
        running.until("it is probed", || server.accepted() > 0);
        running.signal(Signal::INT);
        running.end().fails(130);
        assert!(began.elapsed() < Duration::from_secs(60), "{command}: {:?}", began.elapsed());
    }
}

/// Returns a host with ten local ports and without IPv6.
fn few_ports() -> Option<Hosts> {
    let hosts = Hosts::new(0)?;
    hosts.on(0, || {
        let set = |name: &str, value| fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
        set("ipv4/ip_local_port_range", "20000 20009");
        set("ipv4/tcp_tw_reuse", "0");
        set("ipv6/conf/all/disable_ipv6", "1");
    });
    Some(hosts)
}

/// Regression: without a free local port, requests failed with `other in connect`, and the exit
/// code was 0. Regression: without an address of the server's family, hotlap said that no local
/// port was free.
#[test]
fn a_load_without_a_free_local_port_says_so_and_is_not_valid() {
    let Some(hosts) = few_ports() else { return };
    // The server listens on a port outside of these ten ports.
    let server = TestServer::on(
        hosts.on(0, || TcpListener::bind("127.0.0.1:9999").unwrap()),
        |mut client| {
            client.respond(HELLO);
        },
    );
    let scene = Scene::new();
    let load = |words: &str| scene.hotlap("load --no-check").words(words).under(&hosts.at(0));
    let said = load("-c 20 -n 60").arg(server.url()).said().fails(3);
    let said = said.has("connected 10 of 20: no local port is free").has("no-port in connect: ");
    said.lacks("other in connect").has("No local port is free, because a closed connection");

    let address = load("-c 1 -n 1 http://[::1]:9/").said().fails(1);
    address.has("Cannot assign requested address").lacks("port is free");
}

/// Regression: the message suggested looking at the responses. In fact, the connections of the
/// verification occupied the ports.
#[test]
fn a_run_without_a_free_local_port_says_so() {
    let Some(hosts) = few_ports() else { return };
    let run = "run --no-store --no-ceiling --no-pin --restarts 1 --rounds 1 --slice 12ms -c 20";
    // The server listens on a port outside of the ten ports.
    let server = format!("env PORT=9999 {}", ceiling());
    let said = Scene::new().hotlap(run).arg(server).under(&hosts.at(0)).said().fails(3);
    let said = said
        .has("cannot reserve a port at 127.0.0.1")
        .has("each closed connection occupies a port");
    said.lacks("shows the server's responses");
}
