//! Quantities as people type them: `30s`, `2m`, `500ms`, `1k`, `1%`.
//!
//! This module is separate from `cli` because suite files and `--fail-if` follow the same rules.

use std::collections::HashSet;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use crate::model::Shard;

/// The longest accepted time, a year. Times are added to clocks, which have a limited range.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Parses a duration: a number with a unit (`us`, `ms`, `s`, `m` or `h`), or several such pairs
/// (`2m30s`). A bare number is in seconds, as in wrk.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, rest) = split(text);
    let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, more) = rest.split_at(end);
    let more = match more {
        "" => Duration::ZERO,
        more => duration(more)?,
    };
    let scale = match unit.trim() {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("`{unit}` is not a unit of time: use 500ms, 30s, 2m or 1h")),
    };
    let value: f64 = number.parse().map_err(|_| "a time looks like 500ms, 30s, 2m or 1h")?;
    if value < 0.0 {
        return Err("a time cannot be negative".to_owned());
    }
    let first = Duration::try_from_secs_f64(value * scale);
    let sum = first.ok().and_then(|first| first.checked_add(more));
    sum.filter(|sum| *sum <= LONGEST).ok_or_else(|| format!("{text} is too long: at most 8760h"))
}

/// Parses a duration that must be longer than zero.
pub fn span(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("0 is too short: use a longer time".to_owned()),
        d => Ok(d),
    }
}

/// The numbers of stored runs, such as `11`, `11,13` or `11-13`, at most [`RunNumbers::MOST`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunNumbers(pub Vec<u64>);

impl RunNumbers {
    /// The largest number of runs in a list. The number is limited because each run is read as a
    /// whole.
    pub const MOST: usize = 100;
}

impl FromStr for RunNumbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| format!("{text} is not a list of runs: write 11, 11,13 or 11-13");
        let mut numbers = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let [first, last] = [first, last].map(|n| n.trim().parse::<u64>().map_err(wrong));
            let (first, last) = (first?, last?);
            if first > last {
                return Err(format!("{part} ends before it begins: write {last}-{first}"));
            }
            if last - first >= (Self::MOST - numbers.len()) as u64 {
                return Err(format!("{text} has more than {} runs: name fewer", Self::MOST));
            }
            numbers.extend(first..=last);
        }
        let mut seen = HashSet::new();
        match numbers.iter().find(|number| !seen.insert(**number)) {
            Some(twice) => Err(format!("{text} has run {twice} twice: name each run once")),
            None => Ok(Self(numbers)),
        }
    }
}

/// The number of a shard and the number of all shards, as typed after `--shard`: `0/12` to `11/12`.
/// Shards are counted from 0, like the tasks of a Kubernetes Indexed Job and usually of a Slurm job
/// array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardNumber {
    /// The number of this shard.
    pub number: usize,
    /// The number of all shards.
    pub of: usize,
}

impl FromStr for ShardNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').map(|(number, of)| (number.parse(), of.parse()));
        match parts {
            Some((Ok(_), Ok(of))) if of > Shard::MOST => {
                Err(format!("{of} shards are too many: use at most {}", Shard::MOST))
            }
            Some((Ok(number), Ok(of))) if number < of => Ok(Self { number, of }),
            Some((Ok(_), Ok(of @ 1..))) => {
                Err(format!("shards are counted from 0: write 0/{of} to {}/{of}", of - 1))
            }
            _ => Err(format!("{text} is not a shard: write 0/12 for the first of twelve")),
        }
    }
}

/// Parses a count: digits, or a number with `k` (thousand) or `M` (million), as in wrk.
pub fn count(text: &str) -> Result<usize, String> {
    let (number, unit) = split(text);
    let scale = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        _ => return Err(format!("`{unit}` is not a unit: use 400, 1k or 2M")),
    };
    let value: f64 = number.parse().map_err(|_| "a count looks like 400, 1k or 2M")?;
    let scaled = value * scale;
    if scaled < 0.0 {
        return Err("a count cannot be negative".to_owned());
    }
    if scaled.fract() != 0.0 || scaled > 1e12 {
        return Err(format!("{text} is not a whole number, or too large"));
    }
    Ok(scaled as usize)
}

/// Parses a share, such as `1%`, `0.5 %` or `0.01`, into a fraction.
pub fn share(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number.trim(), 0.01),
        None => (text, 1.0),
    };
    let value: f64 = number.parse().map_err(|_| "a share looks like 1% or 0.01")?;
    if !value.is_finite() || value <= 0.0 {
        return Err("a share is a positive number: 1% or 0.01".to_owned());
    }
    Ok(value * scale)
}

/// Parses a rate in requests per second, such as `5000`, `5k` or `0.5`.
pub fn rate(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text.trim_end_matches("/s"));
    let scale = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        _ => return Err(format!("`{unit}` is not a unit of a rate: use 500, 5k or 1M")),
    };
    let value: f64 = number.parse().map_err(|_| "a rate looks like 500, 5k or 1M")?;
    if !value.is_finite() || value <= 0.0 {
        return Err(format!("a rate must be positive, not {text}"));
    }
    Ok(value * scale)
}

/// Parses a future time within a year, given in seconds since 1970 (UTC).
pub fn moment(text: &str) -> Result<SystemTime, String> {
    let seconds: f64 = text.parse().map_err(|_| "a Unix time is a number of seconds")?;
    let since_1970 = Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())?;
    let moment = SystemTime::UNIX_EPOCH.checked_add(since_1970);
    let left = moment.and_then(|moment| moment.duration_since(SystemTime::now()).ok());
    match (moment, left) {
        (Some(moment), Some(left)) if left <= LONGEST => Ok(moment),
        _ => Err(format!("{text} is not a moment within a year from now: see `date +%s`")),
    }
}

/// Parses a factor, such as `10` or `0.5`.
pub fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => Err("a factor is a positive number: 10 or 0.5".to_owned()),
    }
}

/// Splits a text into a number and its unit.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    (text[..end].trim(), text[end..].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_runs_are_read() {
        let read = |text: &str| text.parse::<RunNumbers>().map(|runs| runs.0);
        assert_eq!(read("11").unwrap(), [11]);
        assert_eq!(read("11-13,20").unwrap(), [11, 12, 13, 20]);
        for wrong in [
            "",
            "main",
            "-3",
            "3-",
            "13-11",
            "1,1",
            "1-2-3",
            "0-18446744073709551615",
            "1-99,200-299",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shards_are_counted_from_0() {
        let read = |text: &str| text.parse::<ShardNumber>();
        assert_eq!(read("0/1"), Ok(ShardNumber { number: 0, of: 1 }));
        assert_eq!(read("11/12").map(|shard| shard.number), Ok(11));
        let wrong = read("12/12").unwrap_err();
        assert_eq!(wrong, "shards are counted from 0: write 0/12 to 11/12");
        for wrong in ["", "3", "0/0", "0/10001", "0/9223372036854775807", "-1/2", "a/2", "1/2/3"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_read_as_wrk_reads_them_and_more() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("2m30s"), Ok(Duration::from_secs(150)));
        assert_eq!(duration("1h 2m 3s"), Ok(Duration::from_secs(3723)));
        assert!(
            duration("2m30x").is_err() && duration("2m-3s").is_err() && duration("30 30").is_err()
        );
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
    }

    #[test]
    fn an_invalid_time_says_what_a_time_looks_like() {
        assert_eq!(duration("-1s"), Err("a time cannot be negative".to_owned()));
        assert!(duration("soon").unwrap_err().contains("not a unit of time"));
        assert!(duration("").unwrap_err().contains("looks like"));
        assert!(span("0s").unwrap_err().contains("too short"));
        assert!(duration("1e300s").is_err() || duration("1e300").is_err());
    }

    #[test]
    fn counts_take_wrks_suffixes() {
        assert_eq!(count("400"), Ok(400));
        assert_eq!(count("1k"), Ok(1000));
        assert_eq!(count("2M"), Ok(2_000_000));
        assert_eq!(count("0"), Ok(0));
        assert!(count("-3").unwrap_err().contains("negative"));
        assert!(count("1.5").unwrap_err().contains("whole"));
        assert!(count("ten").is_err());
    }

    #[test]
    fn shares_and_rates_are_positive() {
        assert_eq!(share("1%"), Ok(0.01));
        assert_eq!(share("0.5 %"), Ok(0.005));
        assert_eq!(share("0.02"), Ok(0.02));
        assert!(share("-1%").is_err());
        assert!(share("nan").is_err());
        assert_eq!(rate("5k"), Ok(5000.0));
        assert_eq!(rate("500/s"), Ok(500.0));
        assert!(rate("0").is_err());
        assert!(rate("inf").is_err());
        assert_eq!(factor("0.5"), Ok(0.5));
        assert!(factor("0").is_err() && factor("nan").is_err() && factor("10x").is_err());
    }
}
