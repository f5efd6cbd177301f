//! Times in UTC, in the format of RFC 3339.

/// `2026-11-21T20:15:00Z`, from milliseconds since 1970.
pub fn utc(ms: u64) -> String {
    let seconds = ms / 1000;
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// `2026-11-21 20:15`, from milliseconds since 1970.
pub fn short(ms: u64) -> String {
    utc(ms)[..16].replace('T', " ")
}

/// The date of a day since 1970-01-01, by Howard Hinnant's algorithm ("chrono-compatible low-level
/// date algorithms", civil_from_days): years begin in March, so that the leap day comes last.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_in_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_795_292_100_000), "2026-11-21T20:15:00Z");
        assert_eq!(short(1_795_292_100_000), "2026-11-21 20:15");
    }
}
