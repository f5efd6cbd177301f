//! Runs the checks of the fuzzer (`fuzz/`) on the repository's own files and on a few thousand
//! changed copies of them. The copies are the same each time.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../../fuzz/src/manifest.rs"]
mod manifest;
#[path = "../../../fuzz/src/requests.rs"]
mod requests;
#[path = "../../../fuzz/src/stored.rs"]
mod stored;
#[path = "../../../fuzz/src/suite.rs"]
mod suite;

/// A generator of numbers from a seed (`SplitMix64`, Steele, Lea, Flood, OOPSLA 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}

/// Texts that parsers often handle wrongly.
const TOKENS: [&[u8]; 24] = [
    b"",
    b"\"",
    b"\"\"\"",
    b"'",
    b"[",
    b"]",
    b"[[",
    b"{",
    b"}",
    b"=",
    b"\n",
    b"\r\n",
    b"\t",
    b"#",
    b"-1",
    b"0",
    b"1e999",
    b"nan",
    b"18446744073709551616",
    b"9223372036854775807",
    b"\xff",
    b"\0",
    "\u{e9}\u{2028}".as_bytes(),
    b"....",
];

/// Makes a few changes: a random byte, a piece that is removed or repeated, a token, or a piece of
/// another seed.
fn change(seed: &[u8], other: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=numbers.below(3) {
        let at = numbers.below(bytes.len() + 1);
        let end = (at + numbers.below(12)).min(bytes.len());
        let from = numbers.below(other.len());
        let piece = &other[from..(from + numbers.below(24)).min(other.len())];
        let new = match numbers.below(5) {
            0 => vec![numbers.byte()],
            1 => Vec::new(),
            2 => bytes[at..end].repeat(2 + numbers.below(3)),
            3 => TOKENS[numbers.below(TOKENS.len())].to_vec(),
            _ => piece.to_vec(),
        };
        bytes.splice(at..end, new);
    }
    bytes
}

/// Checks the seeds and this many changed copies of them.
fn checked(seeds: &[PathBuf], changes: usize, check: fn(&[u8])) {
    assert!(!seeds.is_empty());
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|file| fs::read(file).unwrap()).collect();
    seeds.iter().for_each(|seed| check(seed));
    let mut numbers = Numbers(1);
    for number in 0..changes {
        let other = &seeds[numbers.below(seeds.len())];
        check(&change(&seeds[number % seeds.len()], other, &mut numbers));
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the files in a folder and below it whose path has this ending.
fn files(folder: &Path, ending: &str, depth: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && depth > 0 {
            found.extend(files(&path, ending, depth - 1));
        } else if path.is_file() && path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn no_manifest_is_too_odd() {
    checked(&files(&root().join("servers"), "/server.toml", 2), 4_000, manifest::check);
}

#[test]
fn no_suite_is_too_odd() {
    checked(&files(&root().join("suites"), ".toml", 0), 4_000, suite::check);
}

#[test]
fn no_file_of_requests_is_too_odd() {
    checked(&files(&root().join("fuzz/seeds/requests"), ".txt", 0), 20_000, requests::check);
}

/// Regression: the report panicked at a start of an unknown server, at a negative count, and at a
/// restart with the highest 32-bit number.
#[test]
fn no_stored_run_is_too_odd() {
    const NUMBERS: [i64; 6] = [0, -1, i64::MAX, i64::MIN, 1 << 32, u32::MAX as i64];
    const TEXTS: [&str; 6] = ["", "null", "[]", "{}", "[1e308]", "\u{1b}[2J"];
    let mut numbers = Numbers(1);
    // Two bits determine what happens to the value, and six bits the form of the report.
    let kind = |what: u8, numbers: &mut Numbers| what | numbers.byte() << 2;
    for column in 0..stored::columns() as u8 {
        let texts = TEXTS.iter().map(|text| text.as_bytes().to_vec());
        let whole = NUMBERS.iter().map(|number| number.to_le_bytes().to_vec());
        let broken = [f64::NAN, -1.5, 1e300].map(|number| number.to_bits().to_le_bytes().to_vec());
        stored::check(&[column, 0]);
        for value in texts.chain(whole).chain(broken) {
            stored::check(&[&[column, kind(1, &mut numbers)], &value[..]].concat());
        }
    }
    for _ in 0..400 {
        let (column, place) = (numbers.byte(), numbers.next().to_le_bytes());
        let token = TOKENS[numbers.below(TOKENS.len())];
        let head = [column, kind(2, &mut numbers), place[0], place[1], place[2] % 8];
        stored::check(&[&head, token].concat());
    }
}
