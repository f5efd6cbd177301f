//! The labels of ticks.

use crate::text::number;

/// A number, short, so that many fit side by side.
pub fn plain(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if v >= 1e6 => format!("{}M", significant(v / 1e6)),
        v if v >= 1e4 => format!("{}k", significant(v / 1e3)),
        v if v >= 100.0 => number::grouped(v, 0),
        v if v >= 10.0 || v.fract() == 0.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// A ratio.
pub fn times(value: f64) -> String {
    format!("{}×", significant(value))
}

/// At most three digits, without trailing zeros.
fn significant(value: f64) -> String {
    let text = match value {
        v if v >= 100.0 => return number::grouped(v, 0),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A duration in milliseconds.
pub fn millis(ms: f64) -> String {
    match ms {
        0.0 => "0".to_owned(),
        ms if ms < 0.1 => format!("{} µs", significant(ms * 1e3)),
        ms if ms < 1e3 => format!("{} ms", significant(ms)),
        ms => format!("{} s", significant(ms / 1e3)),
    }
}

/// A duration in seconds.
pub fn seconds(value: f64) -> String {
    format!("{} s", significant(value))
}

/// Memory in megabytes.
pub fn megabytes(value: f64) -> String {
    format!("{} MB", significant(value))
}

/// A share in per cent.
pub fn percent(value: f64) -> String {
    format!("{value:.0} %")
}

/// A difference.
pub fn signed(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v => format!("{}{}", if v < 0.0 { "−" } else { "+" }, significant(v.abs())),
    }
}

/// `99.9 %`: with as many nines as necessary.
pub fn percentile(share: f64) -> String {
    let nines = -(1.0 - share).log10() - 1e-6;
    let decimals = nines.max(0.0).ceil().min(6.0) as usize;
    let text = format!("{:.*}", decimals.saturating_sub(2), share * 100.0);
    format!("{text} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_have_as_many_nines_as_they_need() {
        let texts = [0.0, 0.5, 0.9, 0.99, 0.999, 0.99999].map(percentile);
        assert_eq!(texts, ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.999 %"]);
    }

    #[test]
    fn ticks_have_no_zeros_at_their_end() {
        assert_eq!(
            [0.5, 1.0, 1.25, 20.0, 1500.0].map(times),
            ["0.5×", "1×", "1.25×", "20×", "1,500×"]
        );
        assert_eq!([-1.5, 0.0, 2.0].map(signed), ["−1.5", "0", "+2"]);
    }
}
