//! An experiment on three scripted servers, for the tests of the schedule.

use std::path::PathBuf;
use std::time::Duration;

use hotlap_servers::contract::{Contract, Name};
use hotlap_servers::launch::Launch;
use hotlap_servers::verify::Requirements;

use crate::experiment::{Experiment, Past, Place};
use crate::explain::Explain;
use crate::participant::{Load, Origin, Participant, Role};
use crate::scripted::{Script, Scripted};

fn load() -> Load {
    Load::new(64)
}

fn participant(name: &str, role: Role) -> Participant {
    let launch =
        Launch { argv: vec![name.to_owned()], cwd: PathBuf::from("/"), ..Launch::default() };
    Participant {
        name: name.to_owned(),
        role,
        start: Origin::Launch(launch),
        contract: Contract::of(Name::Hello, None),
        requirements: Requirements::Custom,
        version: String::new(),
        counts: None,
        cpus: None,
    }
}

pub fn experiment(restarts: Option<u32>, rounds: Option<u32>) -> Experiment {
    Experiment {
        participants: vec![
            participant("a", Role::Reference),
            participant("a again", Role::Control),
            participant("b", Role::Plain),
        ],
        loads: vec![load()],
        budget: Duration::from_secs(60),
        may_grow: false,
        precision: None,
        restarts,
        rounds,
        slice: None,
        paced: false,
        rate: None,
        objectives: Vec::new(),
        explain: Explain::No,
        seed: 7,
        from: Place::default(),
        past: Past::default(),
    }
}

pub fn runner(scripts: Vec<Script>) -> Scripted {
    Scripted::new(scripts, vec![load()], Duration::from_millis(500))
}

pub fn three() -> Vec<Script> {
    vec![Script::new(1000.0, 9000.0), Script::new(1000.0, 9000.0), Script::new(900.0, 10_000.0)]
}
