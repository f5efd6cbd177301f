//! Tests `hotlap load --generator-on`.

use std::time::Duration;

use hotlap_testbed::{HELLO, TestServer, unused_address};
use hotlap_testkit::hosts::{Hosts, Slow};
use hotlap_testkit::{Hotlap, Running, Scene, agent, program};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{is_gone, named, pids};

/// Returns `hotlap load` with these generators.
fn load(scene: &Scene, generators: &[String], words: &str) -> Hotlap {
    let with = |load: Hotlap, typed: &String| load.args(["--generator-on", typed]);
    generators.iter().fold(scene.hotlap("load"), with).words(words)
}

/// Headers and bodies arrive unchanged, whatever characters they contain.
#[test]
fn generators_send_what_was_typed_as_often_as_the_server_counts() {
    let server = TestServer::start(|mut client| {
        while let Some(request) = client.request() {
            let request = String::from_utf8_lossy(&request).into_owned();
            let is_whole = request.contains("X-Test: a 'b' \"c\" $HOME `d` \\n\r\n")
                && request.ends_with("\r\n\r\nline 1\nline '2'");
            let wrong = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
            client.send(if is_whole { HELLO } else { wrong });
        }
    });
    let typed = ["-H", "X-Test: a 'b' \"c\" $HOME `d` \\n", "--body", "line 1\nline '2'"];
    let load = load(&Scene::new(), &[agent(), agent()], "--no-check -n20000 -c8 --format json");
    let said = load.args(typed).arg(server.url()).said().measured();
    let json = said.json();
    assert_eq!(json["figures"]["responses"], 20_000);
    assert_eq!(json["figures"]["service"]["count"], 20_000);
    assert_eq!(server.requests(), 20_000);
    let each = json["generators"]["each"].as_array().unwrap();
    assert!(each.len() == 2 && each.iter().all(|own| own["responses"] == 10_000), "{json}");
    let invalid = json["generators"]["invalid"].as_array().unwrap();
    assert_eq!(invalid.is_empty(), said.code == Some(0), "{json}");
}

/// Without `--no-check`, a generator probes the server. A login banner is not a fault of the agent.
#[test]
fn people_see_what_each_generator_contributed() {
    let server = TestServer::responding(HELLO);
    let banner = format!("sh -c 'echo Welcome; echo motd >&2; exec \"$@\"' sh {}", program());
    let load = load(&Scene::new(), &[agent(), banner], "-n1000 -c4").arg(server.url());
    let said = load.said().measured().has("1,000 correct responses, 0 errors");
    let is_half = |line: &&str| line.split_whitespace().any(|cell| cell == "500");
    assert_eq!(said.out.lines().filter(is_half).count(), 2, "{}", said.out);
    assert!(server.requests() > 1_000, "there were no probes");
}

#[test]
fn latency_is_sampled_while_generators_load() {
    let (scene, server) = (Scene::new(), TestServer::responding(HELLO));
    let load = load(&scene, &[agent()], "--no-check -c4 -d1s").args(["--sample-from", &agent()]);
    let load = load.arg(server.url());
    load.said().has(" sampled p50 ");
    let said = load.words("--format json").said();
    let json = said.json();
    let known = &json["generators"]["sampler"]["latency"];
    let seen = known["count"].as_u64().unwrap() + known["unanswered"].as_u64().unwrap();
    assert!((50..500).contains(&seen), "{known}{}", said.err);
    assert_eq!(json["generators"]["each"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_wrong_before_a_load_is_named() {
    let (scene, server) = (Scene::new(), TestServer::responding(HELLO));
    let failing = "sh -c 'echo No route to host >&2; exit 255' sh".to_owned();
    let wrong_body = format!("-n100 -c2 --expect-body Bye {}", server.url());
    let nobody = format!("-n100 -c2 http://{}/", unused_address());
    let too_few = "--no-check -n10 -c1 http://127.0.0.1:9/";
    let plain = "--no-check -n100 -c2 http://127.0.0.1:9/";
    for (other, words, code, message) in [
        (agent(), wrong_body.as_str(), 3, "a body of 13 bytes instead of 3"),
        (agent(), &nobody, 3, "while probing the server"),
        (agent(), too_few, 2, "1 connection cannot be divided among 2 generators"),
        (failing, plain, 1, "no agent answered. The command printed \"No route to host\""),
    ] {
        load(&scene, &[agent(), other], words).said().fails(code).has(message);
    }
    let said = scene.hotlap("agent").said().fails(1);
    assert_eq!(said.out, "\0hotlap-agent\0\n", "an agent without a controller");
}

/// The agent of the other version does not end by itself.
#[test]
fn an_agent_of_another_version_is_an_error() {
    let scene = Scene::new();
    let hello = r#"{"protocol":1,"version":"9.9.9","host":"bench2","role":"generator"}"#;
    let frame = [&(hello.len() as u32).to_le_bytes(), hello.as_bytes()].concat();
    let said = scene.write("said", [b"\0hotlap-agent\0\n".as_slice(), &frame].concat());
    let pid = scene.file("pid");
    let other = format!("sh -c 'echo $$ > {pid}; cat {said}; exec sleep 1000' sh");
    let load = load(&scene, &[other], "--no-check -n100 -c2 http://127.0.0.1:9/");
    load.said().fails(1).has("the agent on bench2 is hotlap 9.9.9");
    pids(&scene, "pid").into_iter().for_each(is_gone);
}

/// A long load from two generators whose process ids are known, once the load is under way.
struct UnderWay {
    scene: Scene,
    load: Running,
    server: TestServer,
}

fn under_way(words: &str) -> UnderWay {
    let (scene, server) = (Scene::new(), TestServer::responding(HELLO));
    let generators = ["a", "b"].map(|file| named(&scene, file));
    let words = format!("--no-check -c4 {words} {}", server.url());
    let mut load = load(&scene, &generators, &words).start();
    load.until("no load", || server.requests() > 100);
    UnderWay { scene, load, server }
}

impl UnderWay {
    fn agents(&self) -> [Pid; 2] {
        ["a", "b"].map(|file| pids(&self.scene, file)[0])
    }
}

/// A stopped generator does not answer and cannot end by itself.
#[test]
fn a_generator_that_is_killed_or_stays_stopped_makes_the_load_invalid() {
    let lose = |signal, why| {
        let under_way = under_way("-d1h --format json");
        let agents = under_way.agents();
        kill_process(agents[1], signal).unwrap();
        let said = under_way.load.end().fails(4);
        assert_eq!(said.out, "", "there are no figures");
        said.has("NOT VALID: a generator was lost, so the load has no result (sh -c 'echo $$ >> ")
            .has(&format!("while loading: {why}"));
        agents.into_iter().for_each(is_gone);
        drop(under_way.server);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| lose(Signal::KILL, "the agent ended"));
        lose(Signal::STOP, "the agent did not answer within 10s");
    });
}

#[test]
fn a_generator_that_is_stopped_for_a_while_makes_the_load_invalid() {
    let under_way = under_way("-d3s --format json");
    let [agent, _] = under_way.agents();
    kill_process(agent, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    kill_process(agent, Signal::CONT).unwrap();
    let said = under_way.load.end().fails(4).has("stalled for ");
    let invalid = said.json()["generators"]["invalid"].clone();
    let is_it = |why: &Value| why.as_str().unwrap().contains("stalled");
    assert!(invalid.as_array().unwrap().iter().any(is_it), "{invalid}");
}

#[test]
fn ctrl_c_keeps_what_was_measured_and_ends_the_agents() {
    let under_way = under_way("-d1h --format json");
    let agents = under_way.agents();
    under_way.load.signal(Signal::INT);
    let json = under_way.load.end().fails(130).json();
    assert!(json["figures"]["responses"].as_u64().unwrap() > 0, "{json}");
    agents.into_iter().for_each(is_gone);
}

#[test]
fn agents_end_when_their_controller_is_killed() {
    let under_way = under_way("-d1h");
    let agents = under_way.agents();
    under_way.load.kill();
    agents.into_iter().for_each(is_gone);
}

/// A generator probes the server, because this process cannot reach the server.
#[test]
fn generators_on_other_hosts_count_what_the_server_counts() {
    let Some(hosts) = Hosts::new(2) else { return };
    let (scene, server) = (Scene::new(), hosts.server());
    let load = load(&scene, &[hosts.agent(1), hosts.agent(2)], "-c8").arg(server.url());
    let json = load.clone().words("--no-check -n10000 --format json").said().measured().json();
    assert_eq!(json["figures"]["responses"], 10_000, "{json}");
    assert_eq!(server.requests(), 10_000);
    load.words("-n100").said().measured().has("100 correct responses, 0 errors");
}

/// A round trip takes 100 ms, so clocks are known to within 50 ms. This uncertainty reduces the
/// overlap of the generators' windows. If packets are lost too, a short window has no part that all
/// generators share.
#[test]
fn a_slow_cable_is_no_fault_if_the_window_is_long_enough() {
    let rows = [(0, "-R200 -d5s --format json", false), (100, "-R2000 -d600ms", true)];
    for (lost_of, words, is_invalid) in rows {
        let Some(hosts) = Hosts::new(3) else { return };
        let (scene, server) = (Scene::new(), hosts.server());
        let agent = scene.hotlap("agent");
        let over_cable = |host| hosts.over_cable(host, 3, &agent).0;
        let generators = [1, 2].map(over_cable);
        hosts.slow_cable(1, Slow { delay: Duration::from_millis(50), lost_of });
        let words = format!("--no-check -c4 {words} {}", server.url());
        let said = load(&scene, &generators, &words).said();
        if is_invalid {
            said.fails(4).has("the generators' measurements overlap for ");
        } else {
            let json = said.measured().lacks("the generators' measurements overlap for ").json();
            let each = &json["generators"]["each"];
            assert!(each[0]["before"]["error_ns"].as_u64().unwrap() >= 50_000_000, "{each}");
            let overlap = json["generators"]["overlap"].as_f64().unwrap();
            assert!(overlap > 0.9 && overlap < 0.99, "{overlap}");
        }
        scene.is_clean();
    }
}
