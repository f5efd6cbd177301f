//! Tests `hotlap timeline` on versions of known cost.

use hotlap_testkit::{Scene, program};

const OPTIONS: &str = "--options '--restarts 3 --rounds 1 --slice 12ms --no-pin --no-store'";

/// The report names the step. A later timeline adds only the new version to two known versions.
#[test]
fn versions_are_on_one_scale_and_only_a_new_one_is_measured_later() {
    let scene = Scene::new();
    let run = format!("--run '{} __known costing:{{version}}'", program());
    let timeline = |versions: &str| {
        scene.hotlap(&format!("timeline --versions {versions} {run} {OPTIONS}")).said().succeeds()
    };
    timeline("20000,20001,40000")
        .has("Race: 20000, 20001, 40000")
        .has("the CPU time per request of 20001.");
    timeline("20000,20001,40000,40001")
        .has("Race: 20000, 40000, 40001")
        .lacks("20001, 40000")
        .has("40000 has");
    scene.is_clean();
}

#[test]
fn versions_that_cannot_be_told_apart_are_refused() {
    let scene = Scene::new();
    let said = |words: &str| scene.hotlap(&format!("timeline {words}")).said();
    said("--versions 1,2 --run 'sh app.sh'").fails(2).has("--run has no {version}");
    said("--versions 1,1 --run 'sh {version}'").fails(2).has("--versions has 1 twice");
    said("v1 --run 'sh app.sh'").fails(2).has("write v1.0..HEAD");
}
