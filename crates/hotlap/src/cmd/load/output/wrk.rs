//! wrk's output format, column for column, for scripts that parse it.

use hotlap_load::plan::{Plan, Stop};
use hotlap_load::{Failure, Phase};

use crate::cmd::load::loaded::Loaded;

/// Returns the lines that wrk prints before it measures.
pub fn wrk_head(url: &str, plan: &Plan) -> String {
    let length = match plan.stop {
        Stop::After(time) => scaled(time.as_secs_f64(), &MINUTES, 0),
        Stop::Requests(n) => format!("{n} requests"),
    };
    format!(
        "Running {length} test @ {url}\n  {} threads and {} connections\n",
        plan.shape.threads, plan.shape.connections
    )
}

/// Returns the lines that wrk prints after it has measured.
pub fn wrk(loaded: &Loaded) -> String {
    let (outcome, threads) = (&loaded.outcome, loaded.plan.shape.threads.max(1) as f64);
    let service = &outcome.service_time;
    let us = |ns: f64| micros(ns / 1e3);
    let mut out = String::from("  Thread Stats   Avg      Stdev     Max   +/- Stdev\n");
    let (mean, stdev) = (service.mean(), service.stdev());
    // The cast turns negative values into 0.
    let share = |ns: f64| service.share_within(ns as u64);
    let within = share(mean + stdev) - share(mean - stdev);
    out += &stats_line("Latency", [us(mean), us(stdev), us(service.max() as f64)], within);

    // wrk samples the rate of each thread. hotlap's ticks are sums over all threads, so these
    // figures are the mean per thread.
    let rates: Vec<f64> =
        outcome.series.iter().map(|t| t.responses as f64 * 10.0 / threads).collect();
    let n = rates.len().max(1) as f64;
    // The `sum` of an empty sequence of floats would be −0.
    let mean = rates.iter().fold(0.0, |sum, rate| sum + rate) / n;
    let stdev = (rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)).sqrt();
    let max = rates.iter().copied().fold(0.0, f64::max);
    let within = rates.iter().filter(|r| (**r - mean).abs() <= stdev).count() as f64 / n;
    let metric = |v: f64| scaled(v, &THOUSANDS, 2);
    out += &stats_line("Req/Sec", [metric(mean), metric(stdev), metric(max)], within);

    if loaded.latency {
        out += "  Latency Distribution\n";
        for q in [0.5, 0.75, 0.9, 0.99] {
            let value = padded(&us(service.quantile(q) as f64), 10);
            out += &format!("{:7.0}%{value}\n", q * 100.0);
        }
    }
    out + &wrk_totals(loaded)
}

fn wrk_totals(loaded: &Loaded) -> String {
    let outcome = &loaded.outcome;
    let failures = &outcome.failures;
    let in_phase = |phase, of: &[Failure]| -> u64 {
        let counts = failures.0.iter().filter(|c| c.phase == phase && of.contains(&c.failure));
        counts.map(|c| c.count).sum()
    };
    let broken = [
        Failure::Reset,
        Failure::ClosedEarly,
        Failure::Truncated,
        Failure::BadFraming,
        Failure::StreamReset,
        Failure::NoPort,
        Failure::Other,
    ];
    let failed_to_connect: Vec<Failure> =
        [&broken[..], &[Failure::Refused, Failure::Tls, Failure::Timeout]].concat();
    let missing = outcome.connections.requested.saturating_sub(outcome.connections.established);
    let connect = in_phase(Phase::Connect, &failed_to_connect).max(missing);
    let write = in_phase(Phase::Send, &broken);
    let read: u64 =
        [Phase::FirstByte, Phase::Body, Phase::Idle].map(|p| in_phase(p, &broken)).iter().sum();
    let timeout = failures.of(Failure::Timeout) - in_phase(Phase::Connect, &[Failure::Timeout]);
    let bad: u64 = outcome.statuses.iter().filter(|(s, _)| **s > 399).map(|(_, n)| n).sum();
    let whole: u64 = outcome.statuses.values().sum::<u64>().max(outcome.responses);
    let seconds = loaded.served_s();
    let bytes = outcome.bytes.received as f64;
    let mut out = format!(
        "  {whole} requests in {}, {}B read\n",
        micros(seconds * 1e6),
        scaled(bytes, &BYTES, 2)
    );
    if connect + read + write + timeout > 0 {
        out += &format!(
            "  Socket errors: connect {connect}, read {read}, write {write}, timeout {timeout}\n"
        );
    }
    if bad > 0 {
        out += &format!("  Non-2xx or 3xx responses: {bad}\n");
    }
    out += &format!("Requests/sec: {:9.2}\n", whole as f64 / seconds.max(1e-9));
    out + &format!("Transfer/sec: {:>10}B\n", scaled(bytes / seconds.max(1e-9), &BYTES, 2))
}

fn stats_line(name: &str, [mean, stdev, max]: [String; 3], within: f64) -> String {
    format!(
        "    {name:<10}{}{}{}{:8.2}%\n",
        padded(&mean, 8),
        padded(&stdev, 10),
        padded(&max, 9),
        within * 100.0
    )
}

/// Aligns a text to the right in `width` columns. The last two columns are for the unit.
fn padded(text: &str, width: usize) -> String {
    let unit = text.chars().rev().take(2).take_while(|c| c.is_ascii_alphabetic()).count();
    let blanks = 2 - unit;
    format!("{text:>0$}{1:2$}", width - blanks, "", blanks)
}

/// A system of units: the factor from each unit to the next, and the names of the units.
struct Units(f64, &'static [&'static str]);

const MINUTES: Units = Units(60.0, &["s", "m", "h"]);
const SECONDS: Units = Units(1000.0, &["us", "ms", "s"]);
const THOUSANDS: Units = Units(1000.0, &["", "k", "M", "G", "T", "P"]);
const BYTES: Units = Units(1024.0, &["", "K", "M", "G", "T", "P"]);

fn micros(us: f64) -> String {
    if us >= 1e6 { scaled(us / 1e6, &MINUTES, 2) } else { scaled(us, &SECONDS, 2) }
}

/// Formats a value in the largest unit in which it is at least 0.85, as wrk does.
fn scaled(value: f64, units: &Units, decimals: usize) -> String {
    let (mut value, mut names) = (value, units.1.iter());
    let mut name = names.next().copied().unwrap_or_default();
    for next in names {
        if value < units.0 * 0.85 {
            break;
        }
        value /= units.0;
        name = next;
    }
    format!("{value:.decimals$}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_wrks() {
        let texts = [0.0, 850.0, 849.0, 1_060.0, 33_350.0, 999_999.0, 1_500_000.0].map(micros);
        assert_eq!(texts, ["0.00us", "0.85ms", "849.00us", "1.06ms", "33.35ms", "1.00s", "1.50s"]);
        assert_eq!(micros(90e6), "1.50m");
        assert_eq!(scaled(24_110.0, &THOUSANDS, 2), "24.11k");
        assert_eq!(scaled(132_540_000.0, &BYTES, 2), "126.40M");
        assert_eq!(scaled(30.0, &MINUTES, 0), "30s");
    }

    #[test]
    fn columns_are_wrks() {
        assert_eq!(
            stats_line("Latency", ["1.06ms", "1.01ms", "33.35ms"].map(str::to_owned), 0.9524),
            "    Latency     1.06ms    1.01ms  33.35ms   95.24%\n"
        );
        assert_eq!(
            stats_line("Req/Sec", ["24.11k", "1.99k", "29.31k"].map(str::to_owned), 0.715),
            "    Req/Sec    24.11k     1.99k   29.31k    71.50%\n"
        );
    }
}
