//! Tests random command lines, drawn from clap's own definition of the commands. Each line is
//! carried out, or is refused with a sentence, within a time limit. `HOTLAP_SEEDS=20000` tries
//! 20,000 lines.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, CommandFactory};
use hotlap::cli::Cli;
use hotlap::exit::Exit;
use hotlap_testbed::{Random, for_seeds, unused_address};
use hotlap_testkit::{Said, Scene};
use rustix::process::Signal;

/// The time after which a load gets Ctrl-C. A load whose responses nobody checks lasts as long as
/// its options say.
const LOAD: Duration = Duration::from_secs(1);

/// The time limit of every other line. Most lines take milliseconds.
const END: Duration = Duration::from_secs(30);

/// Options that would install something or measure for minutes.
const NEVER: [&str; 2] = ["--yes", "--setup"];

/// Correct values, by the name that the help gives to an option's value.
const RIGHT: [(&str, &[&str]); 13] = [
    ("TIME", &["2s", "50ms", "1m30s"]),
    ("SECONDS", &["1"]),
    ("N", &["1", "2", "200"]),
    ("RATE", &["100", "5k"]),
    ("SHARE", &["5%", "0.01"]),
    ("I/N", &["0/2"]),
    ("LIST", &["0", "0,1"]),
    ("RULE", &["cost +3%", "p99 +10%"]),
    ("GOALS", &["p99 < 10 ms"]),
    ("NAME: VALUE", &["A: b"]),
    ("IP", &["127.0.0.1"]),
    ("METHOD", &["GET", "POST"]),
    ("NAME", &["a", "hello", "quick", "garbage", "name=1,2"]),
];

/// Values that are wrong for most options, or barely right.
const ODD: [&str; 53] = [
    "",
    " ",
    "-",
    "--",
    "-1",
    "0",
    "-0",
    "+1",
    "1e999",
    "-1e999",
    "1e300s",
    "1e-300",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "infinity",
    "0x10",
    "99999",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "18446744073709551615s",
    "0-18446744073709551615",
    "99999-100000",
    "3-1",
    "1e999/2",
    "18446744073709551614/18446744073709551615",
    "0/18446744073709551615",
    "0/0",
    "99999%",
    "%",
    "1M",
    "1e12",
    "1e30M",
    "0.0000001us",
    "1h1h1h",
    "/dev/full",
    "/",
    "/no/such/file",
    "x/y/z.db",
    "@/no/such/file",
    "http://[::1",
    "http://127.0.0.1:99999/",
    "\u{1b}[31m",
    "ü\u{202e}\r\n",
    "=",
    "'\"${x}%s\\",
];

/// Returns a value, which is odd in `odd` of 100 cases.
fn value(random: &mut Random, argument: &Arg, odd: usize) -> OsString {
    if random.is(odd) {
        return match random.below(20) {
            0 => OsString::from_vec(vec![b'a', 0xff, 0xfe]),
            1 => "9".repeat(random.below(100_000)).into(),
            _ => random.one(&ODD).into(),
        };
    }
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        return random.one(&possible).get_name().into();
    }
    let name = argument.get_value_names().and_then(|names| names.first());
    let right = RIGHT.iter().find(|(known, _)| name.is_some_and(|name| name == known));
    random.one(right.map_or(&["1", "2", "a", "x.db", "y.json", "go/net-http"], |(_, v)| v)).into()
}

/// Returns an option as a user may type it, sometimes without its value.
fn option(random: &mut Random, option: &Arg, odd: usize) -> Vec<OsString> {
    let long = option.get_long().map(|long| format!("--{long}"));
    let short = option.get_short().map(|short| format!("-{short}"));
    let name = match (long, short) {
        (Some(long), Some(short)) => random.one(&[long, short]),
        (long, short) => long.or(short).expect("an option has a name"),
    };
    let takes_value = matches!(option.get_action(), ArgAction::Set | ArgAction::Append);
    if takes_value == random.is(3) {
        return vec![name.into()];
    }
    let value = value(random, option, odd);
    if name.starts_with("--") && random.is(50) {
        let mut both = OsString::from(name + "=");
        both.push(value);
        return vec![both];
    }
    vec![name.into(), value]
}

/// Returns a command line that changes nothing outside of its scene.
fn line(random: &mut Random) -> Vec<OsString> {
    let mut root = Cli::command();
    root.build();
    let commands: Vec<&clap::Command> = root.get_subcommands().collect();
    let command = random.one(&commands);
    let mut line: Vec<OsString> = vec![command.get_name().into()];
    let (positional, options): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().partition(|argument| argument.is_positional());
    let is_safe = |option: &&Arg| {
        !NEVER.iter().any(|never| option.get_long().is_some_and(|long| never[2..] == *long))
    };
    let options: Vec<&Arg> = options.into_iter().filter(is_safe).collect();
    // With many odd values, most lines are refused early.
    let odd = random.one(&[5, 15, 30, 90]);
    let mut parts: Vec<Vec<OsString>> = Vec::new();
    for _ in 0..random.below(if options.is_empty() { 1 } else { 6 }) {
        let chosen = random.one(&options);
        parts.push(option(random, chosen, odd));
    }
    let places = if positional.is_empty() { &[0][..] } else { &[0, 1, 1, 1, 2, 3] };
    for _ in 0..random.one(places) {
        let word = match random.is(60) {
            true => format!("http://{}/", unused_address()).into(),
            false => value(random, positional[0], odd),
        };
        parts.push(vec![word]);
    }
    while !parts.is_empty() {
        line.extend(parts.swap_remove(random.below(parts.len())));
    }
    match command.get_name() {
        // Nothing is built, started or measured. The option comes first, because an earlier word
        // could end the options.
        "run" | "capacity" | "explain" => line.insert(1, "--dry-run".into()),
        "selftest" => line.insert(1, "--duration=0".into()),
        _ => {}
    }
    line
}

/// Runs a line until it ends, and returns its output.
fn said(line: &[OsString]) -> Said {
    let scene = Scene::new();
    scene.server("go/net-http", "probe = [\"false\"]", &["false"]);
    let mut running = scene.hotlap("").args(line).without("PORT").start();
    let (began, mut is_told) = (Instant::now(), false);
    while !running.has_ended() {
        let took = began.elapsed();
        if !is_told && took > LOAD && line[0] == "load" {
            running.signal(Signal::INT);
            is_told = true;
        }
        assert!(took < END, "it has not ended: {:?}", running.so_far());
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut said = running.so_far();
    if is_told && said.code.is_none() {
        // On a busy machine, the signal may arrive before hotlap listens for it.
        said.code = Some(Exit::Interrupted as i32);
    }
    said
}

/// Words that no message may contain: a panic, or a value as Rust's `Debug` prints it.
const NO_WORDS: [&str; 10] = [
    "panicked at",
    "RUST_BACKTRACE",
    "Some(",
    "None",
    "Err(",
    "Os {",
    "kind: ",
    "Error {",
    "Error(",
    "Kind(",
];

fn try_one(seed: u64) {
    let line = line(&mut Random::new(seed));
    let said = std::panic::catch_unwind(|| said(&line));
    let mut shown = String::new();
    for word in &line {
        let text = word.to_string_lossy();
        let _ = write!(shown, " {:?}", text.chars().take(60).collect::<String>());
    }
    let Ok(said) = said else { panic!("seed {seed}:{shown}: no end") };
    let for_git_bisect = line.iter().any(|word| word == "--git-bisect");
    let code_of =
        |exit: Exit| if for_git_bisect { exit.for_git_bisect().into() } else { exit as i32 };
    let is_known = |code| Exit::ALL.iter().any(|(exit, _)| code_of(*exit) == code);
    assert!(said.code.is_some_and(is_known), "seed {seed}:{shown}: {said:?}");
    let text = format!("{}{}", said.out, said.err);
    let found = NO_WORDS.iter().find(|words| said.err.contains(**words));
    assert_eq!(found, None, "seed {seed}:{shown}: {text}");
    // A supervisor communicates with hotlap only through its standard input.
    let is_told =
        said.code == Some(0) || line[0] == "__supervisor" || text.split_whitespace().count() > 2;
    assert!(is_told, "seed {seed}:{shown}: {said:?}");
}

#[test]
fn an_unruly_command_line_is_carried_out_or_refused() {
    for_seeds(300, 4, try_one);
}
