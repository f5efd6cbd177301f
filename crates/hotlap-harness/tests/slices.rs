//! Real processes that are frozen, thawed and measured in laps.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotlap_harness::contract::{Contract, Name};
use hotlap_harness::entrant::{Entrant, Launch, Role, Start};
use hotlap_harness::lap::{Gate, Lap};
use hotlap_harness::live::Live;
use hotlap_harness::race::{self, Event, Over, Past, Place, Race};
use hotlap_harness::verify::Demand;

mod stand_in;
use stand_in::{live, load, program};

/// What the stand-in's server spends on a response, in nanoseconds.
const COST: f64 = 200_000.0;

fn entrant(folder: &Path, name: &str, command: &str, role: Role) -> Entrant {
    let launch = Launch {
        argv: ["sh", "-c", &format!("exec $STAND_IN {command}")].map(str::to_owned).into(),
        env: BTreeMap::from([
            ("FOLDER".to_owned(), folder.display().to_string()),
            ("STAND_IN".to_owned(), program().display().to_string()),
        ]),
        cwd: folder.to_owned(),
    };
    Entrant {
        name: name.to_owned(),
        role,
        start: Start::Launch(launch),
        contract: Contract::of(Name::Hello, None),
        demand: Demand::Stranger,
        version: String::new(),
        counts: None,
        cpus: None,
    }
}

/// Runs these for a restart of so many rounds in slices of 12 ms; `watch` sees each slice begin.
fn laps(
    folder: &Path,
    commands: [&str; 2],
    rounds: u32,
    mut watch: impl FnMut(),
) -> (Vec<Lap>, Over) {
    let roles = [Role::Reference, Role::Contestant];
    let entrants: Vec<Entrant> = commands
        .iter()
        .zip(roles)
        .map(|(command, role)| entrant(folder, command, command, role))
        .collect();
    let race = Race {
        entrants,
        loads: vec![load()],
        budget: Duration::from_secs(60),
        precision: None,
        heats: Some(1),
        blocks: Some(rounds),
        slice: Some(Duration::from_millis(12)),
        paced: false,
        rate: None,
        seed: 1,
        from: Place::default(),
        past: Past::default(),
    };
    let setting = live(Duration::from_millis(12), folder);
    let stop = Arc::new(AtomicBool::new(false));
    let mut track = Live::new(setting, &race.entrants, &race.loads, stop);
    let mut laps = Vec::new();
    let over = race::run(&race, &mut track, &mut |event| match event {
        Event::Lapping { .. } => watch(),
        Event::Lap(lap) => laps.push(lap.clone()),
        Event::Retired { entrant, why } => panic!("{entrant} is out: {why:?}"),
        _ => {}
    });
    (laps, over)
}

/// The states of the servers that run with this folder, as `/proc` names them: `T` is stopped.
fn states(folder: &Path) -> Vec<char> {
    let own = format!("FOLDER={}", folder.display());
    let is_server = |pid: &u32| {
        let read = |what| std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let has = |text: Vec<u8>, part: &[u8]| text.windows(part.len()).any(|bytes| bytes == part);
        has(read("environ"), own.as_bytes()) && !has(read("cmdline"), b"warden")
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_server)
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok())
        .filter_map(|stat| stat.rsplit(')').next()?.trim_start().chars().next())
        .collect()
}

#[test]
fn servers_run_in_their_slices_only_and_cost_what_they_cost() {
    let folder = tempfile::tempdir().unwrap();
    let mut frozen = 0;
    let (laps, over) = laps(folder.path(), ["serve $PORT", "serve $PORT"], 2, || {
        let states = states(folder.path());
        assert_eq!(states, ['T', 'T'], "between two slices");
        frozen += 1;
    });
    assert_eq!((over, laps.len()), (Over::Done, 2 * 2 * 2));
    // Eight slices a lap.
    assert_eq!(frozen, 8 * laps.len());
    for lap in &laps {
        let usage = lap.usage.as_ref().expect("it is measured");
        assert_eq!(usage.slices, 8);
        let cost = lap.cost_ns().expect("it answers");
        assert!((COST..2.5 * COST).contains(&cost), "{cost} ns a request");
        let is_wrong = |gate: &Gate| !matches!(gate, Gate::Generator { .. });
        assert!(!lap.failed.iter().any(is_wrong), "{:?}", lap.failed);
    }
    assert_eq!(states(folder.path()), [], "all are stopped at the end");
}

/// A hang that is longer than a slice was answered in none, and so was seen in none.
#[test]
fn a_hang_that_is_longer_than_a_slice_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let (laps, over) = laps(folder.path(), ["serve $PORT", "hang $PORT 150 300"], 4, || {});
    assert_eq!(over, Over::Done);
    let longest_ms = |server: usize| {
        let own = laps.iter().filter(|lap| lap.entrant == server);
        let ages =
            own.map(|lap| lap.outcome.service_censored.open.max().max(lap.outcome.service.max()));
        ages.max().unwrap_or_default() as f64 / 1e6
    };
    assert!(longest_ms(1) > 30.0, "{} ms is less than three slices", longest_ms(1));
}
