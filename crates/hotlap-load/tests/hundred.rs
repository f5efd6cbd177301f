//! Simulates a hundred generators that load one server (docs/sizing.md). The tests show how skewed
//! clocks and late generators affect the merged outcome.
//!
//! Each generator counts within an agreed window by its own clock. The offset of each clock was
//! measured with some error. The server's log has the true times.

use hotlap_load::Outcome;
use hotlap_stats::Histogram;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const GENERATORS: usize = 100;

/// The rate of each generator, in requests/s.
const RATE: f64 = 2_000.0;

/// The beginning and end of the window, and the length of each load around it, in seconds.
const WINDOW: (f64, f64) = (0.5, 1.5);
const RUNS: f64 = 2.0;

struct Pool {
    /// The standard deviation of the error of each clock's offset, in seconds.
    offset_error: f64,
    /// The number of generators that begin late, and their delay in seconds.
    stragglers: usize,
    late_s: f64,
}

/// Returns the merged outcome, the number of responses that the server sent within the window, and
/// all latencies that the generators counted, in ascending order.
fn merged(pool: &Pool, window: (f64, f64)) -> (Outcome, u64, Vec<u64>) {
    let mut random = Pcg64Mcg::seed_from_u64(100);
    let mut uniform = move || random.random::<f64>();
    let mut all = Outcome::default();
    let (mut served, mut latencies) = (0, Vec::new());
    for generator in 0..GENERATORS {
        // The mean of twelve uniform values is nearly normal, with a variance of 1 / 144.
        let normal = 12.0 * ((0..12).map(|_| uniform()).sum::<f64>() / 12.0 - 0.5);
        let offset = pool.offset_error * normal;
        let starts = if generator < pool.stragglers { pool.late_s } else { 0.0 };
        let mut own =
            Outcome { window_ns: ((window.1 - window.0) * 1e9) as u64, ..Outcome::default() };
        let mut at = uniform() / RATE;
        while at < RUNS {
            let latency_ns = (200_000.0 / (1.0 - 0.999 * uniform())) as u64;
            served += u64::from((window.0..window.1).contains(&at) && at >= starts);
            let seen = at + offset;
            if at >= starts && (window.0..window.1).contains(&seen) {
                own.responses += 1;
                own.service_time.record(latency_ns);
                latencies.push(latency_ns);
            }
            at += 1.0 / RATE;
        }
        all.merge(&own);
    }
    latencies.sort_unstable();
    (all, served, latencies)
}

#[test]
fn merged_counts_and_percentiles_are_those_of_all_samples() {
    let pool = Pool { offset_error: 0.0, stragglers: 0, late_s: 0.0 };
    let (all, served, latencies) = merged(&pool, WINDOW);
    assert_eq!(all.responses, served);
    assert_eq!(all.window_ns, 1_000_000_000);
    let mut together = Histogram::new();
    latencies.iter().for_each(|ns| together.record(*ns));
    assert_eq!(all.service_time, together, "to the last bucket");
    for q in [0.5, 0.99, 0.999] {
        let exact = latencies[(q * latencies.len() as f64) as usize - 1] as f64;
        let found = all.service_time.quantile(q) as f64;
        assert!((found / exact - 1.0).abs() < 0.002, "p{q}: {found}, {exact}");
    }
}

/// A wrong offset moves both edges of a generator's window by the same time. The requests that it
/// misses at one edge are replaced at the other, apart from rounding to whole requests.
#[test]
fn skewed_clocks_move_the_edges_and_hardly_the_counts() {
    for (offset_error, limit) in [(0.001, 1e-4), (0.01, 1e-3)] {
        let pool = Pool { offset_error, stragglers: 0, late_s: 0.0 };
        let (all, served, _) = merged(&pool, WINDOW);
        let error = all.responses as f64 / served as f64 - 1.0;
        assert!(error.abs() <= limit, "{offset_error} s: {error}");
    }
}

/// Three of a hundred generators begin after three quarters of the window. They lose 2.25% of all
/// requests, which looks like a regression. Windows cut to the time that all generators share are
/// shorter, but their rate is right.
#[test]
fn stragglers_bias_the_rate_unless_windows_are_cut() {
    let pool = Pool { offset_error: 0.001, stragglers: 3, late_s: 1.25 };
    let truth = RATE * GENERATORS as f64;
    let (whole, ..) = merged(&pool, WINDOW);
    assert!((whole.rate() / truth - 0.9775).abs() < 0.001, "{}", whole.rate());
    // The margin covers the error of the offsets.
    let (cut, ..) = merged(&pool, (pool.late_s + 0.01, WINDOW.1));
    assert!((cut.rate() / truth - 1.0).abs() < 0.003, "{}", cut.rate());
}
