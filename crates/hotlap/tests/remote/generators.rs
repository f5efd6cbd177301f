//! Tests `hotlap run --generator-on`: the load of each lap comes from agents.

use std::time::Duration;

use hotlap_testkit::hosts::Hosts;
use hotlap_testkit::{Hotlap, Running, Said, Scene, agent, ceiling, program};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::{adds_up, laps, named, pids, short_run};

fn with_generators(run: Hotlap, generators: &[String]) -> Hotlap {
    generators.iter().fold(run, |run, typed| run.args(["--generator-on", typed]))
}

/// Returns a short run of one server.
fn run(scene: &Scene, generators: &[String]) -> Hotlap {
    with_generators(short_run(scene), generators).arg(ceiling())
}

#[test]
fn the_load_of_every_lap_comes_from_all_generators() {
    let scene = Scene::new();
    let said = run(&scene, &[agent(), agent()]).arg("--details").said();
    said.has("responses by generator: ").has("The load comes from 2 generators: ");
    let export = scene.json("run.json");
    adds_up(&export, 2);
    let hosts = export["host"]["generators"].as_array().unwrap();
    assert_eq!(hosts.len(), 2);
    assert_eq!(hosts[0]["command"], agent());
    assert!(hosts.iter().all(|own| own["machine"]["allowed"].as_u64().unwrap() > 0), "{hosts:?}");
    // Readings take a round trip, so slices are as long as with a server on another host.
    assert!(export["run"]["schedule"]["slices_ms"][0].as_f64().is_some_and(|ms| ms >= 300.0));
}

#[test]
fn slices_that_are_too_short_for_the_way_to_a_generator_are_lengthened() {
    let scene = Scene::new();
    let said = run(&scene, &[agent()]).words("--slice 1ms").said();
    said.has("Warning: slices are ").has(" long instead of 1.0 ms. A round");
    let slice_ms = scene.json("run.json")["run"]["schedule"]["slices_ms"][0].as_f64().unwrap();
    assert!(slice_ms > 1.0, "{slice_ms}");
}

#[test]
fn a_capacity_is_searched_where_servers_and_generators_are_both_elsewhere() {
    let scene = Scene::new();
    let search = scene.hotlap("capacity --slo p99<1s --restarts 1 -c4 -d5s --export-json run.json");
    let search = with_generators(search, &[agent(), agent()]).args(["--server-on", &agent()]);
    search.arg(ceiling()).said().measured();
    let export = scene.json("run.json");
    adds_up(&export, 2);
    assert_eq!(export["host"]["controller"]["command"], agent());
    assert_eq!(export["capacity"][0]["rows"].as_array().unwrap().len(), 1, "{export}");
}

#[test]
fn what_is_wrong_with_generators_is_named_before_anything_is_started() {
    let scene = Scene::new();
    let failing = "sh -c 'echo No route to host >&2; exit 255' sh".to_owned();
    run(&scene, &vec![agent(); 5])
        .said()
        .fails(2)
        .has("4 connections cannot be divided among 5 generators: use at least 5 connections");
    run(&scene, &[]).words("--server-address 10.0.0.1").said().fails(2).has("--generator-on");
    run(&scene, &[agent(), failing])
        .said()
        .fails(1)
        .has("while connecting: no agent answered")
        .has("No route to host");
}

/// Starts a run with two generators, and waits until the run has some laps. A test can stop or kill
/// one of the generators.
fn under_way(scene: &Scene, generator: &str, rounds: u32) -> Running {
    let words = "run --restarts 1 -c4 -d600s --slice 300ms --no-ceiling --export-json run.json";
    let run = with_generators(scene.hotlap(words), &[agent(), generator.to_owned()]);
    let mut running = run.words(&format!("--rounds {rounds}")).arg(ceiling()).start();
    running.until("no laps", || laps(scene) >= 3);
    running
}

/// Returns the laps that are excluded because of a generator.
fn left_out<'a>(export: &'a Value, why: &str) -> Vec<&'a Value> {
    let laps = export["laps"].as_array().unwrap().iter();
    let because = |lap: &&Value| {
        let doubts = lap["doubts"].as_array().unwrap();
        lap["counts"] == false && doubts.iter().any(|doubt| doubt.as_str().unwrap().contains(why))
    };
    laps.filter(because).collect()
}

/// A stopped generator does not answer and cannot end by itself.
#[test]
fn a_generator_that_is_killed_or_stays_stopped_costs_one_lap_at_most_and_is_started_again() {
    let lose = |signal, rounds, why| {
        let scene = Scene::new();
        let running = under_way(&scene, &named(&scene, "pids"), rounds);
        let [agent] = pids(&scene, "pids")[..] else { panic!("it was started several times") };
        kill_process(agent, signal).unwrap();
        let said = running.end();
        let export = scene.json("run.json");
        let lost = left_out(&export, "a generator was lost: sh -c 'echo $$ >> ");
        // A generator that is lost between two loads costs no lap.
        assert!(lost.len() <= 1, "{said:?}{lost:#?}");
        for lap in &lost {
            let doubt = lap["doubts"][0].as_str().unwrap();
            assert!(doubt.contains("while ") && doubt.contains(why), "{lap}");
        }
        assert_eq!(pids(&scene, "pids").len(), 2, "it was not started again");
        // Each round has two laps.
        let all = export["laps"].as_array().unwrap().len();
        assert!(all >= 2 * rounds as usize, "{said:?}");
        adds_up(&export, 2);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| lose(Signal::KILL, 12, "the agent ended"));
        lose(Signal::STOP, 6, "did not answer within 10s");
    });
}

#[test]
fn a_generator_that_stands_still_makes_its_lap_invalid() {
    let scene = Scene::new();
    let running = under_way(&scene, &named(&scene, "pids"), 12);
    let agent = pids(&scene, "pids")[0];
    kill_process(agent, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    kill_process(agent, Signal::CONT).unwrap();
    let said = running.end();
    let export = scene.json("run.json");
    // The generator stalled in a window or learned of the next window too late.
    let still = [left_out(&export, "stalled for "), left_out(&export, " ms late")].concat();
    assert!(!still.is_empty(), "{said:?}");
    assert_eq!(pids(&scene, "pids").len(), 1, "it was started again");
}

#[test]
fn a_generator_that_cannot_be_started_again_ends_the_run_with_what_is_finished() {
    let scene = Scene::new();
    let file = scene.file("pids");
    let once = format!(
        "sh -c 'test -e {file} && echo The host is down >&2 && exit 1; echo $$ > {file}; \
         exec \"$@\"' sh {}",
        program()
    );
    let running = under_way(&scene, &once, 1000);
    kill_process(pids(&scene, "pids")[0], Signal::KILL).unwrap();
    running.end().fails(3);
    let export = scene.json("run.json");
    assert!(export["laps"].as_array().unwrap().len() >= 4, "{export}");
    let failure = &export["failed"][0];
    let cause = failure["cause"].as_str().unwrap();
    assert!(cause.contains("a generator was lost and cannot be started again: sh -c"), "{cause}");
    assert!(cause.contains("while connecting") && cause.contains("The host is down"), "{cause}");
    assert!(failure["remedy"].as_str().unwrap().contains("repeat the run"), "{failure}");
}

/// Makes a short run that is started on a host.
fn run_on(hosts: &Hosts, host: usize, scene: &Scene, more: &[&str]) -> Said {
    let generators = [hosts.agent(1), hosts.agent(2)];
    run(scene, &generators).args(more).under(&hosts.at(host)).said()
}

#[test]
fn servers_and_generators_may_be_on_several_hosts() {
    let Some(hosts) = Hosts::new(3) else { return };
    let scene = Scene::new();
    run_on(&hosts, 0, &scene, &[]).has("Servers are at 10.177.0.1");
    adds_up(&scene.json("run.json"), 2);
    // Neither the servers nor the generators are on the host on which hotlap is started.
    run_on(&hosts, 3, &scene, &["--server-on", &hosts.agent(0)]);
    let export = scene.json("run.json");
    adds_up(&export, 2);
    assert_eq!(export["host"]["controller"]["address"], "10.177.0.1");
    run_on(&hosts, 0, &scene, &["--server-address", "10.177.0.9"])
        .fails(1)
        .has("while looking for the servers' address")
        .has("tried 10.177.0.9")
        .has("--server-address");
}
