//! `--fail-if "cost +3%"`: when a difference is a failure. Only one beyond the noise can be.

use crate::exit::usage;
use crate::quantity;
use crate::report::{Against, DEARER, Figure, Report, SLOWER};

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    figure: Measure,
    /// The share by which it may be worse.
    limit: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Cost,
    Rate,
}

impl Rule {
    /// Reads `cost +3%` or `rps -5%`.
    ///
    /// # Errors
    /// Says how one looks.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let wrong = || format!("{text:?} is no rule: write \"cost +3%\" or \"rps -5%\"");
        let Some((name, limit)) = text.trim().split_once(char::is_whitespace) else {
            return usage(wrong());
        };
        let (figure, limit) = match (name, limit.trim()) {
            ("cost", limit) => (Measure::Cost, limit.strip_prefix('+')),
            ("rps", limit) => (Measure::Rate, limit.strip_prefix('-')),
            _ => return usage(wrong()),
        };
        match limit.map(quantity::share) {
            Some(Ok(limit)) => Ok(Self { figure, limit }),
            _ => usage(wrong()),
        }
    }

    /// The servers that break it, a sentence each.
    #[must_use]
    pub fn broken(&self, report: &Report) -> Vec<String> {
        let mut broken = Vec::new();
        for row in report.tables.iter().flat_map(|t| &t.rows) {
            let Some(against) = &row.against else { continue };
            if let Some(ratio) = self.breach(against) {
                let what = match self.figure {
                    Measure::Cost => "CPU time per request",
                    Measure::Rate => "requests/s",
                };
                broken.push(format!(
                    "Regression: {} has {} the {what} of {} (--fail-if).",
                    row.name,
                    ratio.full(),
                    against.reference
                ));
            }
        }
        broken
    }

    fn breach<'a>(&self, against: &'a Against) -> Option<&'a Figure> {
        let (ratio, worse) = match self.figure {
            Measure::Cost => (against.cost.as_ref()?, against.cost_verdict == DEARER),
            Measure::Rate => {
                (against.requests_per_s.as_ref()?, against.requests_per_s_verdict == SLOWER)
            }
        };
        let beyond = match self.figure {
            Measure::Cost => ratio.value - 1.0 > self.limit,
            Measure::Rate => 1.0 - ratio.value > self.limit,
        };
        (worse && beyond).then_some(ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let rule = |figure, limit| Rule { figure, limit };
        assert_eq!(Rule::parse("cost +3%").unwrap(), rule(Measure::Cost, 0.03));
        assert_eq!(Rule::parse("rps -5 %").unwrap(), rule(Measure::Rate, 0.05));
        for wrong in ["cost", "cost 3%", "cost -3%", "rps +5%", "p99 +10%", "cost +x%", ""] {
            assert!(Rule::parse(wrong).is_err(), "{wrong}");
        }
    }
}
