//! Tests what `hotlap explain` prints, exports and stores, with scripted servers.

use std::collections::BTreeMap;

use crate::scene::{Scene, hold, printed, scene, script};
use hotlap::model::{ExplainLap, Question, Run};
use hotlap::render::{Format, render};
use hotlap::report::{LedgerKind, Report};
use hotlap_bench::experiment::Explain;
use hotlap_bench::participant::Role;
use hotlap_bench::scripted::Script;
use hotlap_observe::{Frame, Observation, ObserveError};
use serde_json::Value;

const KERNEL: &str = "kernel";

/// Returns the profile of a small server: its stacks, with nanoseconds per request.
fn profile(handle_ns: f64, write_ns: f64) -> Vec<(Vec<(&'static str, &'static str)>, f64)> {
    let call = [("main", "app"), ("entry_SYSCALL_64", KERNEL)];
    let in_kernel = |name| [&call[..], &[("sock_write_iter", KERNEL), (name, KERNEL)]].concat();
    vec![
        (vec![("main", "app"), ("handle", "app")], handle_ns),
        (vec![("main", "app"), ("malloc", "libc.so.6")], 1_000.0),
        (call.to_vec(), 500.0),
        (in_kernel("tcp_sendmsg_locked"), write_ns),
        (in_kernel("__alloc_skb"), write_ns / 2.0),
    ]
}

/// Returns a server with a profile. The server's costs vary a little from lap to lap.
fn server(handle_ns: f64, write_ns: f64, writes: f64, wobble: &[f64]) -> Script {
    let profile = profile(handle_ns, write_ns);
    let cost_ns = profile.iter().map(|(_, ns)| ns).sum();
    Script {
        profile,
        calls: BTreeMap::from([("write".to_owned(), writes), ("read".to_owned(), 1.0)]),
        faults_and_switches: (0.0, 0.1),
        ..script(30_000.0, cost_ns, 9, wobble)
    }
}

const QUIET: [f64; 7] = [0.01, -0.02, 0.015, -0.01, 0.005, 0.0, 0.02];
const OTHER: [f64; 5] = [-0.01, 0.02, 0.0, 0.01, -0.015];

fn explained(reference: Script, server: Script) -> Scene {
    let mut scene = scene(&[("old", Role::Reference, reference), ("new", Role::Plain, server)]);
    scene.question = Question::Explain;
    scene.experiment.explain = Explain::Only;
    scene.experiment.restarts = Some(6);
    scene.experiment.rounds = Some(4);
    // A lap is as long as an observed lap.
    scene.experiment.slices = vec![hotlap_bench::runner::OBSERVED];
    scene
}

/// Returns two servers. The second one writes twice per request and handles each request more
/// slowly.
pub fn two() -> Scene {
    explained(server(2_000.0, 4_000.0, 1.0, &QUIET), server(3_000.0, 8_000.0, 2.0, &OTHER))
}

#[test]
fn the_ledger_says_where_the_difference_goes() {
    insta::assert_snapshot!(printed(&hold(&two(), None).run, 80), @"

    hello · 64 connections, keep-alive · server on core 0, generator on core 1
    6 restarts · slices of 0.3 s

    new costs 7.0 µs more CPU per request than old [+6.99, +7.01]: 6.0 µs in
    kernel network (1.00 more write per request) and 1.0 µs in application (handle
    1.0).

    CPU µs/request        difference     ±   old    new  per request
    kernel network             +6.00  0.00  6.00  11.99  1.00 more write
      tcp_sendmsg_locked       +4.00  0.00  4.00   8.00  called by main
      __alloc_skb              +2.00  0.00  2.00   4.00  called by main
    application                +1.00  0.00  2.00   3.00
      handle                   +1.00  0.00  2.00   3.00
    libc and allocator          0.00  0.00  1.00   1.00
    system call entry           0.00  0.00  0.50   0.50
    not explained               0.00  0.00
    measured                   +7.00  0.01  9.49  16.49

    per request  difference  ±   old   new
    write             +1.00  0  1.00  2.00

    All functions: --details
    ");
}

/// The printed lines add up to the printed difference, and the functions add up to their group.
#[test]
fn lines_add_up() {
    let report = Report::of(&hold(&two(), None).run);
    let rows = &report.explanations[0].ledger;
    let cents = |us: f64| (us * 100.0).round() as i64;
    let sum = |kinds: &[LedgerKind]| -> i64 {
        let of = rows.iter().filter(|row| kinds.contains(&row.kind));
        of.map(|row| cents(row.difference_us)).sum()
    };
    let measured = sum(&[LedgerKind::Measured]);
    assert!((680..720).contains(&measured), "{measured}");
    assert_eq!(sum(&[LedgerKind::Group, LedgerKind::NotExplained]), measured);
    let functions = sum(&[LedgerKind::Function, LedgerKind::OtherFunctions]);
    assert_eq!(functions, sum(&[LedgerKind::Group]));
}

/// Regression: the cost of waking the generator was printed as the cost of
/// `_raw_spin_unlock_irqrestore` in kernel network.
#[test]
fn waking_the_receiver_has_a_line_and_a_note() {
    let wakes = |ns: f64, wobble: &[f64]| {
        let mut script = server(2_000.0, 4_000.0, 1.0, wobble);
        let sends = ["tcp_sendmsg", "tcp_v4_rcv", "sock_def_readable"];
        let mut stack = vec![("main", "app"), ("entry_SYSCALL_64", KERNEL)];
        stack.extend(sends.map(|name| (name, KERNEL)));
        stack.push(("_raw_spin_unlock_irqrestore", KERNEL));
        script.profile.push((stack, ns));
        script.cost_ns += ns;
        script
    };
    let run = hold(&explained(wakes(300.0, &QUIET), wakes(1_300.0, &OTHER)), None).run;
    let found = Report::of(&run).explanations.remove(0);
    let row = &found.ledger[0];
    assert_eq!((row.name.as_str(), row.difference_us), ("notifying the receiver", 1.0));
    assert_eq!(found.ledger[1].name, "sock_def_readable");
    assert!(
        found.notes.iter().any(|note| note.starts_with("Sending includes notifying the receiver"))
    );
    let report = Report::of(&run);
    for format in [Format::Json, Format::Markdown, Format::Html] {
        assert!(!render(&report, format).contains("_raw_spin_unlock"));
    }
    let alike = hold(&explained(wakes(300.0, &QUIET), wakes(300.0, &OTHER)), None).run;
    assert!(Report::of(&alike).explanations[0].notes.is_empty());
}

/// Regression: the flame graph counted the CPU time of the profiled laps. Where the profiler slowed
/// down one server more than the other, the colours contradicted the ledger.
#[test]
fn the_flame_graph_has_the_costs_of_the_ledger() {
    let mut run = hold(&two(), None).run;
    let expected = Report::of(&run).explanations.remove(0);
    for explains in &mut run.explain {
        let is_profiled = matches!(explains.observation, Some(Observation::Profile(_)));
        if is_profiled && explains.lap.server == 0 {
            let factor = 3 * u64::from(1 + explains.lap.restart);
            spend(explains, |ns| ns * factor);
        }
    }
    let found = Report::of(&run).explanations.remove(0);
    assert_eq!(found.flame, expected.flame);
    let of = |name: &str| found.flame.iter().find(|own| own.name == name).unwrap();
    assert_eq!(of("all").words, "old: 9.49 µs, new: 16.49 µs (+7.00)");
    assert_eq!(of("handle").words, "old: 2.00 µs, new: 3.00 µs (+1.00)");
    assert!(found.flame.iter().all(|own| own.shade >= 0));
}

/// A generator of pseudo-random numbers with mean 0 and standard deviation 1. Each number is the
/// sum of twelve uniform numbers, minus six. The uniform numbers come from a linear congruential
/// generator (Knuth's MMIX).
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn next(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// Returns the run with the noise of a real one. Restarts differ by 1% and laps by 1%. Samples,
/// page faults and system calls scatter like counts.
fn noisy(run: &Run, seed: u64) -> Run {
    let mut noise = Noise(seed);
    (0..20).for_each(|_| _ = noise.uniform());
    let mut run = run.clone();
    let restarts: Vec<[f64; 2]> =
        (0..6).map(|_| [0, 1].map(|_| 1.0 + 0.01 * noise.next())).collect();
    let mut count = |n: u64| (n as f64 + (n as f64).sqrt() * noise.next()).round().max(0.0) as u64;
    for lap in &mut run.explain {
        match &mut lap.observation {
            Some(Observation::Profile(profile)) => {
                // Each function is divided into eight functions and sampled more rarely, as in a
                // real run.
                let stacks = std::mem::take(&mut profile.stacks);
                for (stack, part) in stacks.iter().flat_map(|s| (0..8).map(move |part| (s, part))) {
                    let mut stack = stack.clone();
                    let top = &profile.frames[*stack.frames.last().unwrap() as usize];
                    let function = format!("{}_{part}", top.function);
                    let frame = Frame { function, ..top.clone() };
                    stack.frames.push(profile.frames.len() as u32);
                    stack.samples = count(stack.samples / 64);
                    profile.frames.push(frame);
                    profile.stacks.push(stack);
                }
            }
            Some(Observation::SystemCalls(calls)) => {
                calls.values_mut().for_each(|calls| *calls = count(*calls));
            }
            Some(Observation::Events(events)) => {
                events.voluntary_switches = events.voluntary_switches.map(&mut count);
            }
            None => {}
        }
    }
    for explains in &mut run.explain {
        let (restart, server) = (explains.lap.restart as usize, explains.lap.server);
        let factor = restarts[restart][server] * (1.0 + 0.01 * noise.next());
        spend(explains, |ns| (ns as f64 * factor) as u64);
    }
    run
}

/// Changes the CPU time of a lap.
fn spend(explains: &mut ExplainLap, change: impl Fn(u64) -> u64) {
    let usage = explains.lap.usage.as_mut().expect("the server's usage");
    usage.cpu_ns = usage.cpu_ns.map(change);
}

/// By chance, one explanation in twenty may call a line different, and one in a hundred a count.
/// The limits are binomial with n = 80: 4 ± 3.3 × 1.9 lines and 0.8 ± 3.3 × 0.9 counts.
#[test]
fn lines_of_two_copies_of_a_server_rarely_differ() {
    let same = || server(2_000.0, 4_000.0, 1.0, &[]);
    let run = hold(&explained(same(), same()), None).run;
    let (mut lines, mut counts) = (0, 0);
    for seed in 0..80 {
        let report = Report::of(&noisy(&run, seed));
        let found = &report.explanations[0];
        assert!(found.ledger.len() > 20, "{}", found.ledger.len());
        lines += u32::from(found.ledger.iter().any(|row| row.differs));
        counts += u32::from(found.counts.iter().any(|row| row.differs));
    }
    assert!(lines <= 10 && counts <= 3, "{lines} and {counts} of 80");
}

/// In the noise of a real run, the explanation names a function that makes a request cost 6% more.
#[test]
fn what_is_planted_is_named_in_noise() {
    let run = hold(
        &explained(server(2_000.0, 4_000.0, 1.0, &[]), server(2_600.0, 4_000.0, 1.0, &[])),
        None,
    );
    let named = |seed| {
        let report = Report::of(&noisy(&run.run, seed));
        report.explanations[0].sentence.contains(" µs in application")
    };
    let named = (0..40).filter(|seed| named(*seed)).count();
    assert!(named >= 38, "{named} of 40");
}

#[test]
fn two_copies_of_a_server_do_not_differ_in_any_line() {
    let same = || server(2_000.0, 4_000.0, 1.0, &[]);
    let noisy = |wobble: &[f64]| Script { wobble: script(1.0, 1.0, 1, wobble).wobble, ..same() };
    let report = Report::of(&hold(&explained(noisy(&QUIET), noisy(&OTHER)), None).run);
    let found = &report.explanations[0];
    assert_eq!(
        found.sentence,
        "new and old: CPU time per request equal within ±0.2% (+0.00 µs [−0.00, +0.01])."
    );
    assert!(found.ledger.iter().all(|row| !row.differs) && !found.ledger.is_empty());
    assert!(found.counts.iter().all(|row| !row.differs));
}

/// An additional cheap call costs too little to be measured, but the number of calls is exact.
#[test]
fn a_call_is_named_even_if_its_cost_cannot_be_measured() {
    let mut calls = server(2_000.0, 4_000.0, 1.0, &OTHER);
    calls.calls.insert("getpid".to_owned(), 1.0);
    let report =
        Report::of(&hold(&explained(server(2_000.0, 4_000.0, 1.0, &QUIET), calls), None).run);
    let sentence = &report.explanations[0].sentence;
    assert!(sentence.ends_with(" But per request, new has 1.00 more getpid."), "{sentence}");
}

/// Regression: chance made other lines larger than the line of a cheap call.
#[test]
fn a_group_with_a_certain_count_comes_before_what_chance_makes_larger() {
    let mut calls = server(2_000.0, 4_000.0, 1.0, &[]);
    calls.calls.insert("getpid".to_owned(), 1.0);
    let run = hold(&explained(server(2_000.0, 4_000.0, 1.0, &[]), calls), None).run;
    let is_larger_later = |seed| {
        let report = Report::of(&noisy(&run, seed));
        let ledger = &report.explanations[0].ledger;
        let mut groups = ledger.iter().filter(|row| row.kind == LedgerKind::Group);
        let first = groups.next().unwrap();
        assert_eq!(first.name, "system call entry");
        assert!(first.evidence.ends_with(" more getpid"), "{}", first.evidence);
        groups.any(|row| row.difference_us.abs() > first.difference_us.abs())
    };
    assert!((0..10).filter(|seed| is_larger_later(*seed)).count() > 5);
}

#[test]
fn fewer_than_three_restarts_are_inconclusive() {
    let mut scene = two();
    scene.experiment.restarts = Some(2);
    let report = Report::of(&hold(&scene, None).run);
    let found = &report.explanations[0];
    assert_eq!(found.words, "inconclusive: fewer than three restarts");
    assert!(found.ledger.iter().all(|row| !row.differs));
}

/// The laps that explain the results of a run do not change these results.
#[test]
fn laps_that_explain_count_for_no_other_figure() {
    let mut scene = two();
    scene.question = Question::Compare;
    scene.experiment.restarts = Some(3);
    scene.experiment.explain = Explain::No;
    let without = hold(&scene, None).run;
    scene.experiment.explain = Explain::After(std::time::Duration::from_secs(60));
    let with = hold(&scene, None).run;
    assert!(with.explain.len() > 20 && without.explain.is_empty());
    assert_eq!((&with.laps, &with.starts), (&without.laps, &without.starts));
    let [with, without] = [&with, &without].map(Report::of);
    assert_eq!(format!("{:?}", with.tables), format!("{:?}", without.tables));
    assert_eq!((with.explanations.len(), without.explanations.len()), (1, 0));
    assert_eq!(with.sentences[..without.sentences.len()], without.sentences);
}

#[test]
fn what_cannot_be_observed_is_said_with_what_would_permit_it() {
    let kept = hold(&two(), None).run;
    let mut run = kept.clone();
    run.explain.retain(|lap| !matches!(lap.observation, Some(Observation::Profile(_))));
    for server in [0, 1] {
        run.schedule.observing.missing.push(hotlap::model::Unobserved {
            server,
            error: ObserveError {
                what: "the CPU profile".into(),
                why: "kernel.perf_event_paranoid is 4".to_owned(),
                remedy: "`sudo sysctl kernel.perf_event_paranoid=1` permits it".to_owned(),
            },
        });
    }
    let shown = printed(&run, 80).replace("\n  ", " ");
    assert!(shown.contains("new costs 7.0 µs more CPU per request than old"), "{shown}");
    assert!(shown.contains("Per request, it has 1.00 more write."), "{shown}");
    let warning = "old, new: the CPU profile cannot be observed: kernel.perf_event_paranoid is 4;";
    assert!(shown.contains(warning), "{shown}");
}

#[test]
fn exports_have_the_ledger() {
    let report = Report::of(&hold(&two(), None).run);
    let json: Value = serde_json::from_str(&render(&report, Format::Json)).unwrap();
    let found = &json["explanations"][0];
    assert_eq!(
        (found["reference"].as_str(), found["words"].as_str()),
        (Some("old"), Some("costs more"))
    );
    assert_eq!(found["ledger"][0]["name"].as_str(), Some("kernel network"));
    assert_eq!(found["ledger"][0]["evidence"].as_str(), Some("1.00 more write"));
    let markdown = render(&report, Format::Markdown);
    assert!(markdown.contains("| kernel network | "), "{markdown}");
    let page = render(&report, Format::Html);
    assert!(page.contains("kernel network"));
}
