//! Measures whether the live view changes the figures. Experiments with one server alternate
//! between a live view on a pseudo-terminal and no view, and are compared in pairs.
//!
//!     cargo bench -p hotlap --bench view -- [--pairs 10] [--seconds 4] [--lap-ms 250]
//!                 [--connections 64]
//!
//! Ten pairs of four seconds take a minute and a half. The order within a pair changes from pair to
//! pair, so that a machine that gets slower favours neither. The output is the ratio with its
//! interval, and how often the view was drawn. Each experiment counts as a restart of one round.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its table")]

#[cfg(not(unix))]
fn main() {
    println!("There are no pseudo-terminals here: nothing is measured.");
}

#[cfg(unix)]
fn main() {
    unix::main();
}

#[cfg(unix)]
mod unix {
    use std::fs::{File, OpenOptions};
    use std::io::Read;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use hotlap::analysis::{Analysis, Measure};
    use hotlap::cmd::selftest::arena::Arena;
    use hotlap::console::Console;
    use hotlap::export::Exports;
    use hotlap::recorder::Recorder;
    use hotlap_bench::local::LocalRunner;
    use hotlap_bench::participant::Role;
    use hotlap_stats::{Reading, Share, effect, pairs};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{Winsize, tcsetwinsize};

    /// The first word of every drawing.
    const FIRST: &[u8] = b"restart ";

    struct Options {
        pairs: u64,
        seconds: u64,
        lap_ms: u64,
        connections: usize,
    }

    pub fn main() {
        let options = options();
        let terminal = Terminal::open();
        let arena = Arena::new(Path::new(env!("CARGO_BIN_EXE_hotlap"))).expect("an arena");
        // The results with the view (0) and without it (1): requests/s and CPU time per request.
        let mut found = [Vec::new(), Vec::new()];
        let mut looked_on = Duration::ZERO;
        for pair in 0..options.pairs {
            let both = if pair % 2 == 0 { [true, false] } else { [false, true] };
            for is_on in both {
                let began = Instant::now();
                let figures = experiment(&arena, &options, pair, is_on);
                if is_on {
                    looked_on += began.elapsed();
                }
                found[usize::from(!is_on)].push(figures);
            }
            let [(on, _), (off, _)] = [&found[0], &found[1]].map(|f| f[pair as usize]);
            println!("pair {}: {on:.0} requests/s with the view, {off:.0} without", pair + 1);
        }
        println!();
        tell("requests/s", &found, |f| f.0);
        tell("CPU time per request", &found, |f| f.1);
        let (drawn, bytes) = terminal.drawn();
        let seconds = looked_on.as_secs_f64();
        println!(
            "The view was drawn {drawn} times in {seconds:.0} s: {:.1} times a second, {} bytes.",
            drawn as f64 / seconds,
            bytes
        );
        assert!(drawn > 0, "nothing was drawn: the comparison says nothing");
        assert!(drawn as f64 <= seconds * 10.0 + 10.0, "drawn more than ten times a second");
    }

    fn options() -> Options {
        let args: Vec<String> = std::env::args().collect();
        let named = |name: &str, usual: u64| {
            let at = args.iter().position(|a| a == name);
            let value = at.map(|at| args.get(at + 1).unwrap_or_else(|| panic!("{name} wants one")));
            value.map_or(usual, |v| v.parse().unwrap_or_else(|_| panic!("{v} is no number")))
        };
        Options {
            pairs: named("--pairs", 10),
            seconds: named("--seconds", 4),
            lap_ms: named("--lap-ms", 250),
            connections: named("--connections", 64) as usize,
        }
    }

    fn tell(what: &str, [on, off]: &[Vec<(f64, f64)>; 2], of: fn(&(f64, f64)) -> f64) {
        let readings = |found: &[(f64, f64)]| {
            let reading = |(restart, f): (usize, &(f64, f64))| Reading {
                restart: restart as u32,
                round: 0,
                share: Share::whole(of(f)),
            };
            found.iter().enumerate().map(reading).collect::<Vec<_>>()
        };
        match effect(&pairs(&readings(on), &readings(off)), 0.95) {
            None => println!("{what}: two pairs at least are needed for an interval"),
            Some(effect) => {
                let ratio = effect.ratio;
                let same = if ratio.contains(1.0) { "no difference" } else { "a difference" };
                println!(
                    "{what} with the view over without: {:.4} [{:.4}, {:.4}]: {same}",
                    ratio.value, ratio.low, ratio.high
                );
            }
        }
    }

    /// Makes one run as `hotlap run` does, with or without a view.
    fn experiment(arena: &Arena, options: &Options, seed: u64, is_on: bool) -> (f64, f64) {
        let participants = vec![arena.participant("reference", "working:0", Role::Reference)];
        let (lap, budget) =
            (Duration::from_millis(options.lap_ms), Duration::from_secs(options.seconds));
        let experiment =
            arena.experiment(participants, options.connections, Some(lap), budget, seed);
        let setting = arena.setting(&[lap], (budget / 4).max(Duration::from_millis(500)));
        let stop = Arc::new(AtomicBool::new(false));
        let mut runner =
            LocalRunner::new(setting, &experiment.participants, &experiment.loads, stop);
        let mut exports = Exports::default();
        let console = Console { quiet: !is_on, live: is_on, ..Console::plain(80) };
        let keeper = Recorder::new(arena.record(&experiment), None, &mut exports, &console);
        let kept = keeper.expect("a record").keep(&experiment, &mut runner).run;
        let analysis = Analysis::of(&kept, 0);
        let level = |measure| {
            let readings = &analysis.servers[0].readings[measure];
            readings.iter().map(|r| r.share.amount).sum::<f64>() / readings.len().max(1) as f64
        };
        (level(Measure::Rate), level(Measure::Cost))
    }

    /// A pseudo-terminal that nobody sees. Standard error is redirected to it.
    struct Terminal {
        drawn: Arc<AtomicU64>,
        bytes: Arc<AtomicU64>,
    }

    impl Terminal {
        fn open() -> Self {
            let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
            grantpt(&ours).expect("a pseudo-terminal");
            unlockpt(&ours).expect("a pseudo-terminal");
            let name = ptsname(&ours, Vec::new()).expect("its name");
            let path = name.to_str().expect("a path");
            let theirs = OpenOptions::new().read(true).write(true).open(path).expect("its end");
            let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
            tcsetwinsize(&theirs, size).expect("its size");
            rustix::stdio::dup2_stderr(&theirs).expect("a standard error");
            let terminal = Self { drawn: Arc::default(), bytes: Arc::default() };
            let (drawn, bytes) = (Arc::clone(&terminal.drawn), Arc::clone(&terminal.bytes));
            std::thread::spawn(move || read(File::from(ours), &drawn, &bytes));
            terminal
        }

        fn drawn(&self) -> (u64, u64) {
            (self.drawn.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
        }
    }

    /// Reads what is drawn, as a terminal does, and counts the drawings.
    fn read(mut from: File, drawn: &AtomicU64, bytes: &AtomicU64) {
        let mut buffer = [0; 4096];
        let mut tail: Vec<u8> = Vec::new();
        while let Ok(n) = from.read(&mut buffer) {
            bytes.fetch_add(n as u64, Ordering::Relaxed);
            tail.extend_from_slice(&buffer[..n]);
            let found = tail.windows(FIRST.len()).filter(|w| *w == FIRST).count();
            drawn.fetch_add(found as u64, Ordering::Relaxed);
            // The rest is too short for a drawing to be counted twice.
            tail.drain(..tail.len().saturating_sub(FIRST.len() - 1));
        }
    }
}
