//! Tests programs whose files are replaced while hotlap measures them.

use hotlap_testkit::{Scene, ceiling};

/// Regression: after `cargo build` during a run, later restarts measured the new program, and the
/// run did not say so.
#[test]
fn a_program_or_script_that_is_replaced_during_a_run_is_told() {
    let scene = Scene::new();
    let replaced = format!("cp -p \"$0\" $$; mv $$ \"$0\"; exec {}", ceiling());
    scene.write_program("server", &format!("#!/bin/sh\n{replaced}\n"));
    scene.write("app.sh", &replaced);
    let run = "run --restarts 2 --rounds 1 --slice 12ms --no-pin --no-store --no-ceiling ./server";
    let said = scene.hotlap(run).arg("sh app.sh").said().measured();
    said.has("/server was replaced during the run")
        .has("/app.sh was replaced during the run")
        .lacks("/sh was replaced");
}
