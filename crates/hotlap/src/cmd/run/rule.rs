//! `--fail-if "cost +3%"`: when a difference is a failure. Only one beyond the noise can be.

use crate::exit::{Exit, usage};
use crate::quantity;
use crate::report::comparison::Comparison;
use crate::report::{Figure, INCONCLUSIVE, Measure, Report, is_worse};

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    measure: Measure,
    /// The share by which it may be worse.
    limit: f64,
}

/// What rules say of a report, a sentence each.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ruling {
    /// Who breaks one, and the sentence.
    pub broken: Vec<(String, String)>,
    /// Of whom it cannot be said, since there is no interval.
    pub unknown: Vec<String>,
}

impl Rule {
    /// Reads `cost +3%`, `rps -5%`, `p50 +10%`, `p99 +10%` or `memory +10%`.
    ///
    /// # Errors
    /// Says how one looks.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let wrong = || {
            format!(
                "{text:?} is no rule: write \"cost +3%\", \"rps -5%\", \"p50 +10%\", \"p99 +10%\" \
                 or \"memory +10%\""
            )
        };
        let Some((name, limit)) = text.trim().split_once(char::is_whitespace) else {
            return usage(wrong());
        };
        let (measure, sign) = match name {
            "rps" => (Measure::Rate, '-'),
            "cost" => (Measure::Cost, '+'),
            "p50" => (Measure::P50, '+'),
            "p99" => (Measure::P99, '+'),
            "memory" => (Measure::Memory, '+'),
            _ => return usage(wrong()),
        };
        match limit.trim().strip_prefix(sign).map(quantity::share) {
            Some(Ok(limit)) => Ok(Self { measure, limit }),
            _ => usage(wrong()),
        }
    }

    /// Holds the servers of a run against its reference.
    fn judge(self, report: &Report, ruling: &mut Ruling) {
        for row in report.tables.iter().flat_map(|t| &t.rows) {
            if let Some(against) = &row.against {
                self.hold((&row.name, &against.reference), against.of(self.measure), ruling);
            }
        }
    }

    /// Holds the servers of one run against themselves in another.
    fn judge_change(self, comparison: &Comparison, ruling: &mut Ruling) {
        let title = crate::report::comparison::title(self.measure);
        for server in comparison.tables.iter().flat_map(|t| &t.servers) {
            let change = server.changes.iter().find(|c| c.measure == title);
            let found = change.map_or((None, ""), |c| (c.ratio.as_ref(), c.verdict.as_str()));
            self.hold((&server.name, &comparison.before.name), found, ruling);
        }
    }

    /// Applies the rule to one comparison, given its ratio and its verdict in words. Where there is
    /// no verdict the rule neither holds nor is broken: that is no pass, see [`Ruling::exit`].
    fn hold(
        self,
        (server, other): (&str, &str),
        (ratio, verdict): (Option<&Figure>, &str),
        ruling: &mut Ruling,
    ) {
        let what = self.what();
        let Some(ratio) = ratio.filter(|r| r.low.is_some()) else {
            ruling.unknown.push(format!(
                "--fail-if cannot be decided: the {what} of {server} has no interval here, because \
                 too few laps count or the load generator limits it. More laps (--budget) may give \
                 one{}.",
                if self.measure == Measure::P99 { ", and longer slices (--slice 1s)" } else { "" }
            ));
            return;
        };
        if let Some(why) = verdict.strip_prefix(INCONCLUSIVE) {
            ruling.unknown.push(format!(
                "--fail-if cannot be decided: {} the {what} of {other} for {server} is \
                 inconclusive{why}.",
                ratio.full()
            ));
            return;
        }
        let beyond = match self.measure {
            Measure::Rate => 1.0 - ratio.value > self.limit,
            _ => ratio.value - 1.0 > self.limit,
        };
        if is_worse(verdict) && beyond {
            let sentence = format!(
                "Regression: {server} has {} the {what} of {other} (--fail-if).",
                ratio.full()
            );
            ruling.broken.push((server.to_owned(), sentence));
        }
    }

    fn what(self) -> &'static str {
        match self.measure {
            Measure::Rate => "requests/s",
            Measure::Cost => "CPU time per request",
            Measure::P50 => "median service time",
            Measure::P99 => "p99 of service time",
            Measure::Memory => "memory",
        }
    }
}

impl Ruling {
    /// What the rules say of a run.
    #[must_use]
    pub fn on(report: &Report, rules: &[Rule]) -> Self {
        let mut ruling = Self::default();
        rules.iter().for_each(|rule| rule.judge(report, &mut ruling));
        ruling
    }

    /// What the rules say of two runs.
    #[must_use]
    pub fn on_change(comparison: &Comparison, rules: &[Rule]) -> Self {
        let mut ruling = Self::default();
        rules.iter().for_each(|rule| rule.judge_change(comparison, &mut ruling));
        ruling
    }

    /// Everything that is to be said.
    pub fn sentences(&self) -> impl Iterator<Item = &String> {
        self.broken.iter().map(|(_, sentence)| sentence).chain(&self.unknown)
    }

    /// The exit code: a rule that cannot be held is no pass.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match () {
            () if !self.broken.is_empty() => Exit::Regression,
            () if !self.unknown.is_empty() => Exit::Invalid,
            () => Exit::Ok,
        }
    }
}

#[cfg(test)]
mod tests {
    use hotlap_stats::Estimate;

    use super::*;
    use crate::report::figure::ratio;

    #[test]
    fn rules_are_read() {
        let rule = |measure, limit| Rule { measure, limit };
        assert_eq!(Rule::parse("cost +3%").unwrap(), rule(Measure::Cost, 0.03));
        assert_eq!(Rule::parse("rps -5 %").unwrap(), rule(Measure::Rate, 0.05));
        assert_eq!(Rule::parse("p99 +10%").unwrap(), rule(Measure::P99, 0.1));
        for wrong in ["cost", "cost 3%", "cost -3%", "rps +5%", "p98 +10%", "cost +x%", ""] {
            assert!(Rule::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_rule_without_an_interval_is_refused_and_no_pass() {
        let (mut ruling, rule) = (Ruling::default(), Rule::parse("p99 +10%").unwrap());
        rule.hold(("new", "old"), (None, "not to be told"), &mut ruling);
        assert_eq!(ruling.exit(), Exit::Invalid);
        assert!(ruling.unknown[0].contains("p99 of service time of new has no interval"));
    }

    /// Two restarts at three times the cost passed as "no difference".
    #[test]
    fn a_rule_on_an_inconclusive_comparison_is_no_pass() {
        let ratio = ratio(&Estimate { value: 3.0, low: 2.9, high: 3.1 });
        let exit = |verdict: &str| {
            let (mut ruling, rule) = (Ruling::default(), Rule::parse("cost +3%").unwrap());
            rule.hold(("new", "old"), (Some(&ratio), verdict), &mut ruling);
            (ruling.exit(), ruling.sentences().cloned().collect::<String>())
        };
        let (code, said) = exit("inconclusive: fewer than three restarts");
        assert_eq!(code, Exit::Invalid);
        assert_eq!(
            said,
            "--fail-if cannot be decided: 3.00× [2.90, 3.10] the CPU time per request of old for \
             new is inconclusive: fewer than three restarts."
        );
        assert_eq!(exit("dearer").0, Exit::Regression);
        assert_eq!(exit("no difference that could be measured"), (Exit::Ok, String::new()));
    }
}
