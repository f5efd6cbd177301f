//! Claims: a measured figure, its true value, and whether the two agree. All functions are pure.

use serde::Serialize;

use crate::text::number;

/// The tolerance of a time, in microseconds. If [`TIME_SHARE`] allows more, that share applies.
const TIME_US: f64 = 20.0;
/// The tolerance of a time, as a share of the true value.
const TIME_SHARE: f64 = 0.01;

/// One figure of one server, with its measured value and its true value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// The server and its load.
    pub server: String,
    /// The name of the figure.
    pub figure: String,
    /// The unit of the values.
    pub unit: Unit,
    /// The measured value, or NaN if there is none.
    pub claimed: f64,
    /// The true value.
    pub real: f64,
    /// The largest accepted difference between the measured value and the true value.
    pub tolerance: f64,
    /// The figure in the least disturbed lap. A noisy neighbour can only make a time longer, so
    /// this value shows whether hotlap or the machine causes a difference.
    pub least: Option<f64>,
    /// The figure as measured by a client without the load generator, at the same rate. This value
    /// shows which part of a difference the machine causes, for instance by taking away cores.
    pub bare: Option<f64>,
}

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Microseconds.
    Us,
    /// A ratio to the reference.
    Ratio,
    /// A count.
    Count,
    /// A share of the whole, from 0 to 1.
    Share,
    /// Requests per second.
    Rate,
}

/// The verdict on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// The figure is within the tolerance.
    Right,
    /// The figure is outside the tolerance because the machine was busy. The least disturbed lap is
    /// within the tolerance, or the minimal client measures as much.
    Disturbed,
    /// The figure is outside the tolerance, and no disturbance explains it.
    Off,
}

impl Claim {
    /// The claim that a figure is `real`, give or take `tolerance`.
    pub fn new(
        (server, figure): (&str, &str),
        unit: Unit,
        claimed: f64,
        real: f64,
        tolerance: f64,
    ) -> Self {
        let (server, figure) = (server.to_owned(), figure.to_owned());
        Self { server, figure, unit, claimed, real, tolerance, least: None, bare: None }
    }

    /// The claim that a time is `real_us`, within the tolerance for times.
    pub fn time(server: &str, figure: &str, claimed_us: f64, real_us: f64) -> Self {
        let tolerance = TIME_US.max(real_us * TIME_SHARE);
        Self::new((server, figure), Unit::Us, claimed_us, real_us, tolerance)
    }

    /// Judges the claim.
    pub fn judge(&self) -> Word {
        if self.is_right(self.claimed) {
            Word::Right
        } else if self.right_at_best().is_some() || self.is_the_machines() {
            Word::Disturbed
        } else {
            Word::Off
        }
    }

    /// Whether a figure is within the tolerance. NaN never is.
    fn is_right(&self, figure: f64) -> bool {
        (figure - self.real).abs() <= self.tolerance
    }

    /// The figure of the least disturbed lap, if that figure is within the tolerance.
    fn right_at_best(&self) -> Option<f64> {
        self.least.filter(|least| self.is_right(*least))
    }

    /// Whether the figure lies between the true value and the minimal client's value.
    fn is_the_machines(&self) -> bool {
        let from = self.real - self.tolerance;
        self.bare.is_some_and(|bare| {
            let tolerance = self.tolerance.max(bare * TIME_SHARE);
            (from..=bare + tolerance).contains(&self.claimed)
        })
    }

    /// Why a claim that is outside its tolerance does not count against hotlap.
    fn excuse(&self) -> String {
        match (self.right_at_best(), self.bare) {
            (Some(least), _) => format!("disturbed ({} at best)", self.text(least)),
            (None, Some(bare)) => format!("disturbed (bare client {})", self.text(bare)),
            (None, None) => "disturbed".to_owned(),
        }
    }

    fn text(&self, value: f64) -> String {
        match self.unit {
            _ if value.is_nan() => "nothing".to_owned(),
            Unit::Us if value.abs() < 10.0 => format!("{value:.2} µs"),
            Unit::Us if value < 100.0 => format!("{value:.1} µs"),
            Unit::Us if value < 10_000.0 => format!("{} µs", number::grouped(value, 0)),
            Unit::Us => format!("{} ms", number::grouped(value / 1e3, 1)),
            Unit::Ratio => format!("{value:.4}×"),
            Unit::Count => number::grouped(value, 0),
            Unit::Rate => format!("{}/s", number::grouped(value, 0)),
            Unit::Share => format!("{:.2}%", value * 100.0),
        }
    }
}

/// Formats all claims as a table, followed by the result in one sentence.
pub fn table(claims: &[Claim]) -> String {
    let mut rows = vec![["", "", "claimed", "true", "allowed", ""].map(str::to_owned)];
    let mut last = "";
    for claim in claims {
        let server = if claim.server == last { "" } else { &claim.server };
        last = &claim.server;
        let word = match claim.judge() {
            Word::Right => "right".to_owned(),
            Word::Disturbed => claim.excuse(),
            Word::Off => "OFF".to_owned(),
        };
        rows.push([
            server.to_owned(),
            claim.figure.clone(),
            claim.text(claim.claimed),
            claim.text(claim.real),
            format!("± {}", claim.text(claim.tolerance)),
            word,
        ]);
    }
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::from(" ");
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            line += &match column {
                0 | 1 | 5 => format!(" {cell:<width$} "),
                _ => format!(" {cell:>width$} "),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text.push('\n');
    text + &format!("  {}\n", sentence(claims))
}

fn sentence(claims: &[Claim]) -> String {
    let count = |word| claims.iter().filter(|c| c.judge() == word).count();
    let all = claims.len();
    match (count(Word::Off), count(Word::Disturbed)) {
        (0, 0) => format!("All {all} figures are right."),
        (0, disturbed) => format!(
            "Disturbed: {disturbed} of {all} figures, possibly by other programs on these cores. \
             Each is\n  right in the quietest lap, or agrees with a bare client."
        ),
        (off, _) => format!(
            "Off: {off} of {all} figures. Do not rely on such figures here until you know why."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Vec<Claim> {
        let hundred = Claim::time("fixed:100", "p50", 113.4, 118.0);
        vec![
            hundred.clone(),
            Claim { figure: "p99".to_owned(), claimed: 431.0, least: Some(121.0), ..hundred },
            Claim::time("fixed:10000", "p99", 10_118.0, 10_018.0),
            Claim::new(("erring:100", "wrong answers"), Unit::Count, 1_234.0, 1_234.0, 2.0),
        ]
    }

    #[test]
    fn a_time_is_right_within_20_us_or_a_hundredth() {
        let right = |claimed, real| Claim::time("", "", claimed, real).judge() == Word::Right;
        assert!(right(120.0, 100.0) && !right(120.1, 100.0));
        assert!(right(9_900.0, 10_000.0) && !right(9_899.0, 10_000.0));
    }

    #[test]
    fn nothing_claimed_is_off() {
        assert_eq!(Claim::time("", "", f64::NAN, 100.0).judge(), Word::Off);
    }

    #[test]
    fn only_the_quietest_lap_excuses_and_only_if_it_is_right() {
        let claim = |least| Claim { least, ..Claim::time("", "", 500.0, 100.0) };
        assert_eq!(claim(Some(110.0)).judge(), Word::Disturbed);
        assert_eq!(claim(Some(130.0)).judge(), Word::Off);
        assert_eq!(claim(None).judge(), Word::Off);
    }

    /// Regression: on a machine whose host took the cores away, p99 was reported as wrong.
    #[test]
    fn what_a_bare_client_finds_too_is_the_machines() {
        let claim = |claimed, bare| {
            let least = Some(claimed);
            Claim { least, bare: Some(bare), ..Claim::time("", "", claimed, 100.0) }
        };
        assert_eq!(claim(170.0, 160.0).judge(), Word::Disturbed);
        assert_eq!(claim(170.0, 160.0).excuse(), "disturbed (bare client 160 µs)");
        assert_eq!(claim(190.0, 160.0).judge(), Word::Off);
        assert_eq!(claim(70.0, 160.0).judge(), Word::Off);
        assert_eq!(claim(f64::NAN, 160.0).judge(), Word::Off);
    }

    #[test]
    fn the_table_sets_claimed_against_true() {
        insta::assert_snapshot!(table(&claims()), @"
                                    claimed     true    allowed
        fixed:100    p50             113 µs   118 µs  ± 20.0 µs  right
                     p99             431 µs   118 µs  ± 20.0 µs  disturbed (121 µs at best)
        fixed:10000  p99            10.1 ms  10.0 ms   ± 100 µs  right
        erring:100   wrong answers    1,234    1,234        ± 2  right

        Disturbed: 1 of 4 figures, possibly by other programs on these cores. Each is
        right in the quietest lap, or agrees with a bare client.
        ");
        let alone = table(&claims()[..1]);
        assert!(alone.ends_with("\n  All 1 figures are right.\n"), "{alone}");
    }

    #[test]
    fn one_claim_that_is_off_is_told() {
        let off = Claim::time("fixed:0", "p50", 90.0, 10.0);
        assert_eq!(
            sentence(&[off]),
            "Off: 1 of 1 figures. Do not rely on such figures here until you know why."
        );
    }
}
