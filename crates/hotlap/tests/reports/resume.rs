//! Tests that an interrupted run continues in the same order. No lap is lost, and no lap is
//! measured twice.

use std::path::Path;
use std::time::Duration;

use crate::scene::{Scene, hold_as, record, stressed, three};
use hotlap::cmd::run::{resume, timing};
use hotlap::model::{Controller, Run, RunState};
use hotlap::recorder::Kept;
use hotlap::store::Store;
use hotlap_bench::experiment::Over;
use hotlap_bench::stress::Scenario;

fn hold(scene: &Scene, run: Run, store: &Path, interrupted_at: Option<Duration>) -> Kept {
    let scene = Scene { interrupted_at, ..scene.clone() };
    hold_as(&scene, run, Some(Store::open(store).unwrap()))
}

/// Returns the restart, the round, the place and the server of every lap.
fn laps(run: &Run) -> Vec<(u32, u32, u32, usize)> {
    run.laps.iter().map(|l| (l.restart, l.round, l.place, l.server)).collect()
}

fn suite() -> (Scene, Run) {
    let scene = three();
    let run = Run { suite: Some("mine".to_owned()), ..record(&scene) };
    (scene, run)
}

#[test]
fn an_interrupted_suite_goes_on_with_a_new_restart() {
    let folder = tempfile::tempdir().unwrap();
    let whole = {
        let (scene, run) = suite();
        hold(&scene, run, &folder.path().join("whole.db"), None)
    };
    let path = folder.path().join("cut.db");
    let (mut scene, run) = suite();
    let cut = hold(&scene, run.clone(), &path, Some(Duration::from_secs(12)));
    assert_eq!((cut.over, cut.run.state), (Over::Interrupted, RunState::Interrupted));
    let last = *laps(&cut.run).last().unwrap();
    assert_eq!((last.0, last.1), (1, 3), "it was cut in the second restart");

    let earlier = resume::earlier(&Store::open(&path).unwrap(), "mine").unwrap();
    assert_eq!(laps(&earlier), laps(&cut.run));
    resume::go_on(&mut scene.experiment, &earlier, &run).unwrap();
    // The servers of the second restart have ended, so the run continues with a third restart.
    assert_eq!((scene.experiment.from.restart, scene.experiment.from.round), (2, 0));
    let kept = hold(&scene, Run { state: RunState::UnderWay, ..earlier }, &path, None);
    assert_eq!((kept.over, kept.run.number), (Over::Done, Some(1)));

    let read = Store::open(&path).unwrap().run(1).unwrap();
    assert_eq!(read.state, RunState::Finished);
    assert_eq!(laps(&read)[..cut.run.laps.len()], laps(&cut.run), "no finished lap is lost");
    let rest: Vec<_> = laps(&read)[cut.run.laps.len()..].to_vec();
    let restarts: std::collections::BTreeSet<u32> = rest.iter().map(|lap| lap.0).collect();
    let planned = whole.run.schedule.restarts;
    assert_eq!(restarts.into_iter().collect::<Vec<_>>(), (2..=planned).collect::<Vec<_>>());
    let third = |laps: Vec<(u32, u32, u32, usize)>| -> Vec<_> {
        laps.into_iter().filter(|lap| lap.0 == 2).collect()
    };
    assert_eq!(third(rest), third(laps(&whole.run)), "in the order that it would have had");
    assert!(read.laps.is_sorted_by_key(|l| l.at_ms), "its clock goes on");
    assert!(read.took_ms > cut.run.took_ms);
}

#[test]
fn a_server_that_was_out_stays_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.db");
    let (mut scene, run) = suite();
    scene.scripts[1].dies_at = Some(4);
    hold(&scene, run.clone(), &path, Some(Duration::from_secs(12)));
    let earlier = resume::earlier(&Store::open(&path).unwrap(), "mine").unwrap();
    scene.scripts[1].dies_at = None;
    let before = earlier.laps.iter().filter(|l| l.server == 1).count();
    resume::go_on(&mut scene.experiment, &earlier, &run).unwrap();
    let kept = hold(&scene, Run { state: RunState::UnderWay, ..earlier }, &path, None);
    assert_eq!(kept.run.laps.iter().filter(|l| l.server == 1).count(), before);
    assert!(kept.run.servers[1].failure.is_some());
}

#[test]
fn what_cannot_go_on_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.db");
    let (mut scene, run) = suite();
    let told =
        |suite| resume::earlier(&Store::open(&path).unwrap(), suite).unwrap_err().to_string();
    assert!(told("mine").contains("no run of the suite mine is stored"));
    let cut = hold(&scene, run.clone(), &path, Some(Duration::from_secs(5)));
    let gone = scene.experiment.participants.remove(1).name;
    let error = resume::go_on(&mut scene.experiment, &cut.run, &run).unwrap_err().to_string();
    let expected = format!(
        "run 1 cannot be resumed: {gone} is not among the servers that can run now. Leave out \
         --resume to begin a new run"
    );
    assert_eq!(error, expected);
    let mut moved = run.clone();
    moved.host.controller = Some(Controller::default());
    let error = resume::go_on(&mut scene.experiment, &cut.run, &moved).unwrap_err().to_string();
    assert_eq!(
        error,
        "run 1 cannot be resumed: its servers ran on another host. Give the same --server-on, or \
         none if it had none"
    );
    let mut changed = run;
    changed.loads[0].shape.connections = 1;
    let error = resume::go_on(&mut scene.experiment, &cut.run, &changed).unwrap_err().to_string();
    assert_eq!(
        error,
        "run 1 cannot be resumed: the suite or the options have changed since. Give the same \
         options, or leave out --resume to begin a new run"
    );
    // The figures of each request are stored by place, so the requests must be the same.
    let (mut cut, mut now) = (cut.run, changed);
    now.loads.clone_from(&cut.loads);
    let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    cut.loads[0].requests = names(["user", "order"]);
    now.loads[0].requests = names(["order", "user"]);
    assert!(resume::same_suite(&cut, &now).is_err());
    // An older version did not store the requests.
    cut.loads[0].requests.clear();
    assert!(resume::same_suite(&cut, &now).is_ok());
    let (scene, run) = suite();
    hold(&scene, run, &path, None);
    assert!(told("mine").contains("run 2, the last of the suite mine, is finished"));
}

/// Regression: a run with a part of its stress left was announced as a whole measurement and a
/// whole stress.
#[test]
fn what_is_left_is_announced() {
    let (mut scene, mut run) = suite();
    (scene.experiment.restarts, scene.experiment.rounds) = (None, None);
    let overload: Vec<Scenario> =
        Scenario::all().into_iter().filter(|s| s.name == "overload").collect();
    let said =
        |scene: &Scene, run: &Run| timing::announcement(run, &scene.experiment, &overload, None);
    assert_eq!(
        said(&scene, &run),
        "Measuring 3 servers takes about 88 s: 28 s until all are warmed up, then 60 s \
         (--duration). Stress then takes about 18 s."
    );
    run.number = Some(7);
    scene.experiment.past.spent = Duration::from_secs(20);
    assert!(
        said(&scene, &run).starts_with("Continuing run 7: measuring 3 servers takes about 68 s: ")
    );
    run.stress = vec![stressed("go/net-http")];
    assert_eq!(
        said(&scene, &run),
        "Run 7 is measured. Continuing with its stress scenarios, for about 12 s."
    );
}
