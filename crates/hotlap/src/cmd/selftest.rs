//! `hotlap selftest`: measures test servers of known latency and cost, with the runner that `run`
//! uses, and checks the figures.

pub mod arena;
mod bare;
pub mod claim;
pub mod power;
pub mod trials;

use std::time::Duration;

use anyhow::Context;
use hotlap_servers::machine::Machine;
use hotlap_servers::process::own_program;

use crate::cli::SelftestArgs;
use crate::console::Console;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::live::Live;
use arena::Arena;
use claim::{Claim, Word};

/// The time for the whole selftest, unless the user gives another.
const USUAL: Duration = Duration::from_secs(180);
/// The time for everything except the experiment with the twins.
const OTHERS: Duration = Duration::from_secs(150);
/// The shortest time for the experiment with the twins, which gets the rest of the duration.
const TWINS: Duration = Duration::from_secs(16);

/// The time for the search for the capacities of three queues.
const SEARCH: Duration = Duration::from_secs(60);

/// Runs the selftest. The exit code is [`Exit::Invalid`] if a figure is wrong.
pub fn run(args: &SelftestArgs, console: &Console) -> anyhow::Result<Exit> {
    let interrupt = Interrupt::listen()?;
    let program = own_program().context("cannot find hotlap's own program")?;
    let arena = Arena::new(&program)?;
    if args.power {
        return power::run(args, &arena, &interrupt, console);
    }
    let duration = args.duration.unwrap_or(USUAL).max(OTHERS + TWINS);
    console.note(&format!(
        "Measuring test servers of known latency and cost, for about {} s (--duration).",
        duration.as_secs()
    ));
    let claims = claims(duration, &arena, &interrupt, console);
    if interrupt.asked() {
        return Ok(Exit::Interrupted);
    }
    let claims = claims?;
    tell(args, &claims, console)?;
    let is_off = claims.iter().any(|claim| claim.judge() == Word::Off);
    Ok(if is_off { Exit::Invalid } else { Exit::Ok })
}

/// Runs all trials, one after another.
fn claims(
    duration: Duration,
    arena: &Arena,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Vec<Claim>> {
    let stop = interrupt.shared();
    let live = Live::start(console);
    let mut claims = Vec::new();
    for us in [0, 100, 1_000, 10_000] {
        live.phase(format!("always {us} µs"));
        claims.extend(trials::fixed(arena, us, &stop)?);
    }
    live.phase("1 in 100 at 50 ms".to_owned());
    claims.extend(trials::bimodal(arena, &stop)?);
    live.phase("1 in 100 wrong".to_owned());
    claims.extend(trials::erring(arena, &stop)?);
    live.phase("a pause of a second".to_owned());
    claims.extend(trials::pausing(arena, &stop)?);
    live.phase("the capacity of three queues".to_owned());
    claims.extend(trials::capacities(arena, SEARCH, 1, &stop)?);
    for known in &trials::COSTS {
        live.phase(format!("a known cost: {}", known.name));
        claims.push(trials::known_cost(arena, known, 1, &stop)?);
    }
    live.phase("two equal servers, and one with 3% more CPU".to_owned());
    claims.extend(trials::costlier(arena, duration.saturating_sub(OTHERS), 1, &stop)?);
    Ok(claims)
}

fn tell(args: &SelftestArgs, claims: &[Claim], console: &Console) -> anyhow::Result<()> {
    if args.json {
        let judged: Vec<_> = claims
            .iter()
            .map(|claim| serde_json::json!({ "claim": claim, "verdict": claim.judge() }))
            .collect();
        console.json(&judged)?;
        return Ok(());
    }
    console.print(&format!("\n{}", claim::table(claims)))?;
    for doubt in Machine::describe().doubts() {
        console.note(&format!("  Note: {}: {}", doubt.what, doubt.remedy));
    }
    Ok(())
}
