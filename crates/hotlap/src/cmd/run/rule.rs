//! `--fail-if "cost +3%"`: the rules that decide which differences count as a failure.
//!
//! A rule fails if the whole interval of the ratio is beyond the limit, and passes if no part of
//! the interval is. Otherwise the rule is undecided, which is not a pass.

use std::fmt;

use crate::analysis::Measure;
use crate::exit::{Exit, usage};
use crate::model::Run;
use crate::quantity;
use crate::report::comparison::RunComparison;
use crate::report::figure::Figure;
use crate::report::verdict::{Judged, reason};
use crate::report::{BrokenRule, CapacityResults, MeasureVerdict, Report, Role, Row};
use crate::text::number;

/// The names of measures in rules, and the sign of a change for the worse. `None` is a capacity.
const NAMES: [(&str, Option<Measure>, char); 8] = [
    ("rps", Some(Measure::Rate), '-'),
    ("cost", Some(Measure::Cost), '+'),
    ("database", Some(Measure::Database), '+'),
    ("total", Some(Measure::Total), '+'),
    ("p50", Some(Measure::P50), '+'),
    ("p99", Some(Measure::P99), '+'),
    ("memory", Some(Measure::Memory), '+'),
    ("capacity", None, '-'),
];

/// One rule of `--fail-if`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// The measure, or `None` for the capacity that a search found.
    measure: Option<Measure>,
    /// The share by which the figure may be worse.
    limit: f64,
}

/// The outcome of the rules, in one sentence each.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ruling {
    /// Rules that a server breaks.
    pub broken: Vec<BrokenRule>,
    /// The reasons why a rule cannot be decided for a server.
    pub unknown: Vec<String>,
    /// Rules that all servers pass, in one sentence each.
    pub kept: Vec<String>,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = NAMES.iter().find(|(_, measure, _)| *measure == self.measure);
        let (name, _, sign) = of.ok_or(fmt::Error)?;
        write!(f, "{name} {sign}{}%", number::rounded(100.0 * self.limit))
    }
}

/// What a rule is applied to: a server, the server it is compared with, and the load.
struct Compared<'a> {
    server: &'a str,
    other: &'a str,
    load: usize,
    /// A text such as ` under POST /bla` if there are several loads, otherwise empty.
    under: &'a str,
    is_offered: bool,
    /// Whether `other` names earlier runs instead of a server of the same run.
    is_of_runs: bool,
}

impl Compared<'_> {
    /// Says that two figures cannot be compared.
    fn has_no_ratio(&self, what: &str) -> String {
        let Self { server, other, is_of_runs, .. } = self;
        match is_of_runs {
            true => format!("the {what} of {server} cannot be compared with {other}"),
            false => format!("{server} and {other} cannot be compared by their {what}"),
        }
    }
}

impl Rule {
    /// Parses a rule, such as `cost +3%`, `rps -5%`, `p50 +10%`, `memory +10%` or `capacity -5%`.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let wrong = || {
            format!(
                "{text:?} is not a rule: write \"cost +3%\", \"rps -5%\", \"p50 +10%\", \"p99 \
                 +10%\" or \"memory +10%\", with a database \"database +5%\" or \"total +5%\", and \
                 with hotlap capacity \"capacity -5%\""
            )
        };
        let Some((name, limit)) = text.trim().split_once(char::is_whitespace) else {
            return usage(wrong());
        };
        let Some(&(_, measure, sign)) = NAMES.iter().find(|(own, ..)| *own == name) else {
            return usage(wrong());
        };
        match limit.trim().strip_prefix(sign).map(quantity::share) {
            Some(Ok(limit)) => Ok(Self { measure, limit }),
            _ => usage(wrong()),
        }
    }

    /// Returns the limit as a ratio of costs. `None` if the rule is about another measure.
    pub fn cost_limit(self) -> Option<f64> {
        (self.measure == Some(Measure::Cost)).then_some(limit_of(self.limit, false))
    }

    /// Returns a warning if the limit of a rule about CPU time per request is finer than the run
    /// can decide. The machine's certificate says how small a difference runs of this duration
    /// find.
    pub fn too_fine(self, run: &Run) -> Option<String> {
        let certificate =
            run.host.certificate.as_ref().filter(|_| self.measure == Some(Measure::Cost))?;
        let duration_s = run.schedule.duration_s;
        let servers = (0..run.servers.len()).filter(|&server| run.is_compared(server)).count();
        let smallest = certificate.smallest_in(duration_s, servers, run.loads.len())?;
        (self.limit < smallest).then(|| {
            format!(
                "--fail-if '{self}' may be too fine for this run. According to the machine's \
                 certificate of {}, the smallest difference that 9 of 10 runs of this length find \
                 is about {}. Raise the limit above that, or set --duration {:.0}m.",
                certificate.day(),
                number::percent(100.0 * smallest),
                (duration_s * (smallest / self.limit).powi(2) / 60.0).ceil()
            )
        })
    }

    /// Returns the first text whose rule does not fit the runs. Capacity rules are for searches,
    /// and all other rules are for other runs.
    pub fn mismatched<'a>(
        texts: &'a [String],
        rules: &[Self],
        is_search: bool,
    ) -> Option<&'a String> {
        let mut both = texts.iter().zip(rules);
        both.find(|(_, rule)| rule.is_about_capacity() != is_search).map(|(text, _)| text)
    }

    /// Whether the rule is about the capacity that a search found.
    pub fn is_about_capacity(self) -> bool {
        self.measure.is_none()
    }

    /// Applies a rule about capacities to each server of a search.
    fn judge_capacity(self, results: &CapacityResults, ruling: &mut Ruling) {
        let Some(other) = results.reference.as_deref() else { return };
        for row in results.rows.iter().filter(|row| row.role == Role::Plain) {
            let under = &results.under;
            let compared = Compared {
                server: &row.name,
                other,
                load: results.load,
                under,
                is_offered: true,
                is_of_runs: false,
            };
            self.hold_capacity(&compared, row.ratio.as_ref().zip(row.judged), ruling);
        }
    }

    /// Applies a rule about capacities to the verdict of one comparison.
    fn hold_capacity(
        self,
        compared: &Compared,
        found: Option<(&Figure, Judged)>,
        ruling: &mut Ruling,
    ) {
        let ratio = found.map(|(ratio, _)| ratio).filter(|ratio| ratio.low.is_some());
        let inconclusive = found.and_then(|(_, judged)| judged.inconclusive());
        let (None, Some(ratio)) = (inconclusive, ratio) else {
            let why = match inconclusive {
                Some(why) => format!(": {}", reason(why)),
                None => ", because a capacity or its interval is unknown".to_owned(),
            };
            ruling.unknown.push(format!(
                "--fail-if cannot be decided{}: {}{why}.",
                compared.under,
                compared.has_no_ratio("capacity")
            ));
            return;
        };
        self.decide(("capacity", true), compared, ratio, ruling);
    }

    /// Decides the rule by the interval of a ratio.
    fn decide(
        self,
        (what, falls): (&str, bool),
        &Compared { server, other, load, under, is_of_runs, .. }: &Compared,
        ratio: &Figure,
        ruling: &mut Ruling,
    ) {
        let figure = ratio.full();
        match Decision::of(self.limit, falls, ratio) {
            Decision::Kept => {}
            Decision::Broken => {
                let sentence = format!(
                    "Regression{under}: {server} has {figure} the {what} of {other} (--fail-if \
                     '{self}')."
                );
                ruling.broken.push(BrokenRule { server: server.to_owned(), load, sentence });
            }
            Decision::Undecided { times } => {
                let more = if is_of_runs { "as many runs" } else { "the --duration" };
                let remedy = match times {
                    Some(times) => format!(" About {times} times {more} would decide it."),
                    None => format!(
                        " The ratio is so close to the limit that more than {MOST_TIMES} times \
                         {more} would be needed."
                    ),
                };
                ruling.unknown.push(format!(
                    "--fail-if is undecided{under}: {server} has {figure} the {what} of {other}, and \
                     the limit of {}× lies within this interval.{remedy}",
                    number::ratio(limit_of(self.limit, falls))
                ));
            }
        }
    }

    /// Applies the rule to each server of a run that is compared with the reference.
    fn judge(self, report: &Report, ruling: &mut Ruling) {
        let Some(measure) = self.measure else {
            return report.capacity.iter().for_each(|found| self.judge_capacity(found, ruling));
        };
        for (table, row) in report.tables.iter().flat_map(|t| t.rows.iter().map(move |r| (t, r))) {
            let Some(other) = table.reference.as_deref() else { continue };
            let compared = Compared {
                server: &row.name,
                other,
                load: table.load,
                under: &table.under,
                is_offered: table.rate.is_some(),
                is_of_runs: false,
            };
            match &row.against {
                Some(against) => {
                    self.hold((measure, &compared), Some(&against.measures[measure]), ruling);
                }
                None if is_compared(row) => self.hold((measure, &compared), None, ruling),
                None => {}
            }
        }
    }

    /// Applies the rule to each server, compared with the same server in earlier runs.
    fn judge_change(self, comparison: &RunComparison, ruling: &mut Ruling) {
        for (load, table) in comparison.tables.iter().enumerate() {
            for server in &table.servers {
                let change = server.changes.iter().find(|change| change.of == self.measure);
                let compared = Compared {
                    server: &server.name,
                    other: &comparison.before.name,
                    load,
                    under: &table.under,
                    is_offered: table.is_offered,
                    is_of_runs: true,
                };
                let found = change.map(|change| &change.found);
                match self.measure {
                    Some(measure) => self.hold((measure, &compared), found, ruling),
                    None => {
                        let found = found.and_then(|f| f.ratio.as_ref().zip(Some(f.judged)));
                        self.hold_capacity(&compared, found, ruling);
                    }
                }
            }
        }
    }

    /// Applies the rule to the verdict of one comparison. Without a verdict, the rule is undecided,
    /// which is not a pass ([`Ruling::exit`]).
    fn hold(
        self,
        (measure, compared): (Measure, &Compared),
        found: Option<&MeasureVerdict>,
        ruling: &mut Ruling,
    ) {
        let &Compared { server, other, under, is_offered, is_of_runs, .. } = compared;
        let what = what(measure, is_offered);
        // If both servers serve the whole offered rate, neither has fewer requests/s than the
        // other.
        if measure == Measure::Rate && found.is_some_and(|found| found.judged == Judged::BothKeepUp)
        {
            return;
        }
        let ratio = found.and_then(|found| Some((found, found.ratio.as_ref()?)));
        let Some((found, ratio)) = ratio.filter(|(_, ratio)| ratio.low.is_some()) else {
            let slices = match measure {
                Measure::P99 => ", or longer slices (--slice 1s),",
                _ => "",
            };
            let why = match is_of_runs {
                true => "too few runs or laps count, responses were wrong, requests had no \
                         response, or the load generator was the limit. A verdict needs three \
                         runs on each side."
                    .to_owned(),
                false => format!(
                    "too few laps count, responses were wrong, requests had no response, or the \
                     load generator was the limit. A longer --duration{slices} may give an \
                     interval."
                ),
            };
            ruling.unknown.push(format!(
                "--fail-if cannot be decided{under}: {}, possibly because {why}",
                compared.has_no_ratio(what)
            ));
            return;
        };
        if let Some(why) = found.judged.inconclusive() {
            ruling.unknown.push(format!(
                "--fail-if cannot be decided{under}: {server} has {} the {what} of {other}, which \
                 is inconclusive: {}.",
                ratio.full(),
                reason(why)
            ));
            return;
        }
        self.decide((what, measure == Measure::Rate), compared, ratio, ruling);
    }
}

/// What the interval of a ratio says about a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Kept,
    Broken,
    /// A run about this many times as long would decide the rule. `None` means more than
    /// [`MOST_TIMES`].
    Undecided {
        times: Option<u32>,
    },
}

/// The largest factor for a longer run that a message suggests.
const MOST_TIMES: f64 = 50.0;

/// The ratio at the limit, for a figure that may fall or rise by the share `limit`.
fn limit_of(limit: f64, falls: bool) -> f64 {
    if falls { 1.0 - limit } else { 1.0 + limit }
}

impl Decision {
    fn of(limit: f64, falls: bool, ratio: &Figure) -> Self {
        let (low, high) = (ratio.low.unwrap_or(0.0), ratio.high.unwrap_or(f64::INFINITY));
        let at = limit_of(limit, falls);
        // How far the two ends of the interval are beyond the limit, the worse end first.
        let (worst, best) = if falls { (at - low, at - high) } else { (high - at, low - at) };
        if best > 0.0 {
            return Self::Broken;
        }
        if worst <= 0.0 {
            return Self::Kept;
        }
        // The width of an interval is inversely proportional to the square root of the time.
        let times = ((high - low) / 2.0 / (ratio.value - at)).powi(2).ceil().max(2.0);
        Self::Undecided { times: (times <= MOST_TIMES).then_some(times as u32) }
    }
}

/// Names a measure in words. At an offered rate, latency means response time.
fn what(measure: Measure, is_offered: bool) -> &'static str {
    match (measure, is_offered) {
        (Measure::Rate, _) => "requests/s",
        (Measure::Cost, _) => "CPU time per request",
        (Measure::Database, _) => "CPU time of the database per request",
        (Measure::Total, _) => "CPU time of server and database per request",
        (Measure::P50, false) => "median service time",
        (Measure::P50, true) => "median response time",
        (Measure::P99, false) => "p99 of service time",
        (Measure::P99, true) => "p99 of response time",
        (Measure::Memory, _) => "memory",
    }
}

impl Ruling {
    /// Applies rules to a run.
    pub fn on(report: &Report, rules: &[Rule]) -> Self {
        let mut ruling = Self::default();
        rules.iter().for_each(|rule| ruling.apply(*rule, |own| rule.judge(report, own)));
        let mut compared = report.tables.iter().filter(|table| table.reference.is_some());
        let searched = report.capacity.iter().any(|found| found.reference.is_some());
        ruling
            .sees_any(rules, searched || compared.any(|table| table.rows.iter().any(is_compared)));
        ruling
    }

    /// Applies rules to a comparison of earlier and later runs.
    pub fn on_change(comparison: &RunComparison, rules: &[Rule]) -> Self {
        let mut ruling = Self::default();
        rules.iter().for_each(|rule| ruling.apply(*rule, |own| rule.judge_change(comparison, own)));
        ruling
    }

    /// Applies a rule, and records a pass.
    fn apply(&mut self, rule: Rule, judge: impl FnOnce(&mut Self)) {
        let before = self.broken.len() + self.unknown.len();
        judge(self);
        if self.broken.len() + self.unknown.len() == before {
            self.kept.push(format!("--fail-if '{rule}' passed."));
        }
    }

    /// Makes all rules undecided if nothing could be compared.
    fn sees_any(&mut self, rules: &[Rule], any: bool) {
        if !rules.is_empty() && !any {
            self.kept.clear();
            self.unknown
                .push("--fail-if cannot be decided: no two servers were compared.".to_owned());
        }
    }

    /// All sentences: first for broken rules, then for undecided rules, then for rules that pass.
    pub fn sentences(&self) -> impl Iterator<Item = &String> {
        let broken = self.broken.iter().map(|broken| &broken.sentence);
        broken.chain(&self.unknown).chain(&self.kept)
    }

    /// The exit code. An undecided rule does not count as a pass.
    pub fn exit(&self) -> Exit {
        match () {
            () if !self.broken.is_empty() => Exit::Regression,
            () if !self.unknown.is_empty() => Exit::Invalid,
            () => Exit::Ok,
        }
    }
}

/// Whether a row's server is compared with the reference.
fn is_compared(row: &Row) -> bool {
    row.role == Role::Plain
}

#[cfg(test)]
mod tests {
    use hotlap_stats::{Estimate, Inconclusive};

    use super::*;
    use crate::report::figure::ratio;

    fn compared(under: &str) -> Compared<'_> {
        let (server, other) = ("new", "old");
        Compared { server, other, load: 0, under, is_offered: false, is_of_runs: false }
    }

    #[test]
    fn rules_are_read() {
        let rule = |measure, limit| Rule { measure: Some(measure), limit };
        assert_eq!(Rule::parse("cost +3%").unwrap(), rule(Measure::Cost, 0.03));
        assert_eq!(Rule::parse("rps -5 %").unwrap(), rule(Measure::Rate, 0.05));
        assert_eq!(Rule::parse("p99 +10%").unwrap(), rule(Measure::P99, 0.1));
        assert_eq!(Rule::parse("capacity -5%").unwrap(), Rule { measure: None, limit: 0.05 });
        let same = ["cost +3%", "rps -5%", "p50 +0.5%", "p99 +10%", "memory +10%", "capacity -5%"];
        assert_eq!(same.map(|text| Rule::parse(text).unwrap().to_string()), same);
        for wrong in
            ["cost", "capacity +5%", "cost 3%", "cost -3%", "rps +5%", "p98 +10%", "cost +x%", ""]
        {
            assert!(Rule::parse(wrong).is_err(), "{wrong}");
        }
    }

    fn verdict(ratio: Figure, judged: Judged) -> MeasureVerdict {
        MeasureVerdict { ratio: Some(ratio), judged, words: String::new() }
    }

    #[test]
    fn a_rule_without_an_interval_is_refused_and_no_pass() {
        let (mut ruling, rule) = (Ruling::default(), Rule::parse("p99 +10%").unwrap());
        rule.hold((Measure::P99, &compared("")), None, &mut ruling);
        assert_eq!(ruling.exit(), Exit::Invalid);
        assert_eq!(
            ruling.unknown[0],
            "--fail-if cannot be decided: new and old cannot be compared by their p99 of service \
             time, possibly because too few laps count, responses were wrong, requests had no \
             response, or the load generator was the limit. A longer --duration, or longer slices \
             (--slice 1s), may give an interval."
        );
    }

    /// Regression: with two restarts, three times the cost passed as "no difference".
    #[test]
    fn a_rule_on_an_inconclusive_comparison_is_no_pass() {
        let ratio = ratio(&Estimate { value: 3.0, low: 2.9, high: 3.1 });
        let exit = |judged| {
            let found = verdict(ratio.clone(), judged);
            let (mut ruling, rule) = (Ruling::default(), Rule::parse("cost +3%").unwrap());
            rule.hold((Measure::Cost, &compared(" under POST /x")), Some(&found), &mut ruling);
            (ruling.exit(), ruling.sentences().cloned().collect::<String>())
        };
        let (code, said) = exit(Judged::Inconclusive { why: Inconclusive::TooFewRestarts });
        assert_eq!(code, Exit::Invalid);
        assert_eq!(
            said,
            "--fail-if cannot be decided under POST /x: new has 3.00× [2.90, 3.10] the CPU time per \
             request of old, which is inconclusive: fewer than three restarts."
        );
        assert_eq!(exit(Judged::Worse).0, Exit::Regression);
    }

    /// Regression: a true difference of 5% passed `cost +3%` in nine of ten noisy runs, because no
    /// difference was proven.
    #[test]
    fn a_rule_passes_only_if_the_whole_interval_keeps_the_limit() {
        let decided = |rule: &str, low, value, high| {
            let rule = Rule::parse(rule).unwrap();
            let falls = rule.measure == Some(Measure::Rate);
            Decision::of(rule.limit, falls, &ratio(&Estimate { value, low, high }))
        };
        let undecided = |times| Decision::Undecided { times };
        assert_eq!(decided("cost +3%", 0.99, 1.0, 1.02), Decision::Kept);
        assert_eq!(decided("cost +3%", 1.04, 1.05, 1.06), Decision::Broken);
        assert_eq!(decided("cost +3%", 0.95, 1.05, 1.15), undecided(Some(25)));
        assert_eq!(decided("cost +3%", 1.02, 1.06, 1.1), undecided(Some(2)));
        assert_eq!(decided("cost +3%", 1.02, 1.03, 1.04), undecided(None));
        assert_eq!(decided("rps -5%", 0.96, 0.98, 1.0), Decision::Kept);
        assert_eq!(decided("rps -5%", 0.90, 0.92, 0.94), Decision::Broken);
        assert_eq!(decided("rps -5%", 0.90, 0.93, 0.96), undecided(Some(3)));
    }

    #[test]
    fn an_undecided_rule_says_what_would_decide_it() {
        let ratio = ratio(&Estimate { value: 1.05, low: 0.97, high: 1.13 });
        let found = verdict(ratio, Judged::NotDecided);
        let (mut ruling, rule) = (Ruling::default(), Rule::parse("cost +3%").unwrap());
        rule.hold((Measure::Cost, &compared("")), Some(&found), &mut ruling);
        assert_eq!(ruling.exit(), Exit::Invalid);
        assert_eq!(
            ruling.unknown,
            [
                "--fail-if is undecided: new has 1.05× [0.97, 1.13] the CPU time per request of old, \
              and the limit of 1.03× lies within this interval. About 16 times the --duration \
              would decide it."
            ]
        );
    }
}
