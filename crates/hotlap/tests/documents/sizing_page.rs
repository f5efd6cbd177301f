//! Tests that every figure that docs/sizing.md computes follows from the other figures of the page.

use std::path::Path;

fn text() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sizing.md");
    std::fs::read_to_string(page).unwrap()
}

/// Returns the cells of the rows of the table with this heading.
fn rows(text: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, rest) = text.split_once(heading).unwrap_or_else(|| panic!("no table {heading}"));
    let lines = rest.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect();
    lines.map(cells).collect()
}

fn number(cell: &str) -> f64 {
    let digits: String = cell.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
    digits.parse().unwrap_or_else(|_| panic!("not a number: {cell}"))
}

/// Asserts that two figures agree within `share`, which is half of the last printed digit. Costs
/// are printed with two digits, and other figures with three.
fn is_about(found: f64, expected: f64, share: f64) {
    assert!((found / expected - 1.0).abs() <= share, "{found} instead of {expected}");
}

#[test]
fn generator_cores_follow_from_costs() {
    let text = text();
    let rows = rows(&text, "| server | server, µs | generator, µs |");
    assert!(rows.len() >= 4, "{rows:?}");
    for row in rows {
        let [server, generator, per_core, rate, cores] = [1, 2, 3, 4, 5].map(|i| number(&row[i]));
        is_about(per_core, generator / server / 0.9, 0.03);
        is_about(rate, 16e6 / server, 0.03);
        is_about(cores, 16.0 * generator / server / 0.9, 0.05);
    }
}

#[test]
fn links_end_where_bytes_fill_them() {
    let text = text();
    let rows = rows(&text, "| link | body of 13 bytes | 1 KiB | 64 KiB | 1 MiB |");
    assert_eq!(rows.len(), 4);
    for row in rows {
        let bytes_per_s = number(&row[0]) * 125e6;
        for (cell, body) in row[1..].iter().zip([13.0, 1024.0, 65_536.0, 1_048_576.0_f64]) {
            let response = body + 137.0;
            let on_the_wire = response + 90.0 * (response / 1448.0).ceil();
            is_about(number(cell), bytes_per_s / on_the_wire, 0.006);
        }
    }
}

#[test]
fn more_generators_make_fewer_laps_count() {
    let text = text();
    let rows = rows(&text, "| | 1 | 10 | 100 |");
    let row = |begins: &str| rows.iter().find(|row| row[0].contains(begins)).unwrap().clone();
    for (begins, late) in [("1 of 1,000", 0.001), ("in 1 of 100", 0.01_f64)] {
        for (cell, generators) in row(begins)[1..].iter().zip([1, 10, 100]) {
            is_about(number(cell), 100.0 * (1.0 - late).powi(generators), 0.001);
        }
    }
    for (cell, generators) in
        row("clocks that are 1 ms off")[1..].iter().zip([1.0, 10.0, 100.0_f64])
    {
        is_about(number(cell), 100.0 * 0.001 * (2.0 / generators).sqrt(), 0.03);
    }
}
