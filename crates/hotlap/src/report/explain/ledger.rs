//! The rows of a ledger, rounded so that they add up, and the sentence of an explanation.

use hotlap_stats::{Estimate, MIN_RESTARTS};
use serde::Serialize;

use crate::analysis::explain::{Amounts, CodeGroup, FunctionLine, GroupLine, is_collector};
use crate::analysis::{Explanation, Measure};
use crate::report::explain::counts::{counted, evidence_of};
use crate::report::figure::difference;
use crate::report::verdict::Judged;
use crate::text::layout::shortened;
use crate::text::number::grouped;
use crate::text::table::{Cell, Tone};

/// The width to which names of functions are shortened on a terminal. All columns except the
/// evidence then fit into 80 characters.
const NAME: usize = 32;

/// The maximum number of functions per group without details: the largest that differ.
const SHOWN: usize = 4;

/// The maximum number of callers that are named for a group.
const CALLERS: usize = 2;

/// The kind of a row of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LedgerKind {
    /// A group of functions.
    Group,
    /// A function of the group above.
    Function,
    /// All other functions of the group above.
    OtherFunctions,
    /// The part of the difference that the profile does not explain.
    NotExplained,
    /// The measured difference.
    Measured,
}

/// A row of the ledger, in microseconds per request.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerRow {
    /// The kind of the row.
    pub kind: LedgerKind,
    /// The name of the group or of the function.
    pub name: String,
    /// The reference's cost. `null` for the part that is not explained.
    pub reference_us: Option<f64>,
    /// The server's cost. `null` for the part that is not explained.
    pub server_us: Option<f64>,
    /// The difference in cost. The groups and the part that is not explained add up to the measured
    /// difference. The functions add up to their group.
    pub difference_us: f64,
    /// The lower end of the difference's interval. `null` without an interval.
    pub low_us: Option<f64>,
    /// The upper end of the difference's interval. `null` without an interval.
    pub high_us: Option<f64>,
    /// Whether the two servers differ in this row.
    pub differs: bool,
    /// What explains the difference. A group has what was counted (`1.00 more write`) or the
    /// callers of its functions, in microseconds (`called by handle 2.1`). A function of the
    /// kernel, a library or the runtime has its caller (`called by handle`).
    pub evidence: String,
    /// The number of functions that the row covers.
    pub functions: usize,
    #[serde(skip)]
    half_width_us: Option<f64>,
    #[serde(skip)]
    digit: Digit,
}

/// The digit to which a ledger is rounded.
#[derive(Debug, Clone, Copy)]
struct Digit(usize);

impl Digit {
    /// Chooses hundredths of a microsecond below 1 ms, tenths below 10 ms, and whole microseconds
    /// above.
    fn of(largest_us: f64) -> Self {
        match largest_us {
            us if us < 1_000.0 => Self(2),
            us if us < 10_000.0 => Self(1),
            _ => Self(0),
        }
    }

    fn unit(self) -> f64 {
        10_f64.powi(-(self.0 as i32))
    }

    fn rounded(self, us: f64) -> f64 {
        // Whole multiples of the unit add up exactly. The division at the end is rounded only once.
        (us / self.unit()).round() / 10_f64.powi(self.0 as i32)
    }

    fn text(self, us: f64) -> String {
        grouped(us, self.0)
    }

    fn signed(self, us: f64) -> String {
        let sign = match us {
            us if us > 0.0 => "+",
            us if us < 0.0 => "−",
            _ => "",
        };
        format!("{sign}{}", grouped(us.abs(), self.0))
    }
}

/// Returns all rows of an explanation. Empty without a profile.
pub(super) fn rows(found: &Explanation) -> Vec<LedgerRow> {
    let Some(ledger) = &found.ledger else { return Vec::new() };
    let digit = Digit::of(found.cost.larger() / 1e3);
    let mut rows = Vec::new();
    let mut explained = 0.0;
    for group in certain_first(found, &ledger.groups) {
        let row = LedgerRow {
            name: name(group.group).to_owned(),
            differs: group.differs,
            evidence: why(found, group),
            functions: group.functions.len() + group.others,
            ..LedgerRow::of(LedgerKind::Group, &group.cost, digit)
        };
        explained += row.difference_us;
        let functions = functions(group, &row, digit);
        rows.push(row);
        rows.extend(functions);
    }
    let measured = LedgerRow {
        name: "measured".to_owned(),
        differs: found.differs,
        ..LedgerRow::of(LedgerKind::Measured, &found.cost, digit)
    };
    let rest = digit.rounded(measured.difference_us - explained);
    rows.push(LedgerRow {
        name: "not explained".to_owned(),
        ..LedgerRow::rest(LedgerKind::NotExplained, rest, Some(&ledger.unexplained), digit)
    });
    rows.push(measured);
    rows
}

/// Returns the groups in which a time or a count differs with certainty, then the other groups.
/// Each part begins with the largest group. Chance can make an uncertain group larger than a
/// certain one.
fn certain_first<'a>(found: &Explanation, groups: &'a [GroupLine]) -> Vec<&'a GroupLine> {
    let is_certain =
        |group: &GroupLine| group.differs || !evidence_of(found, group.group).is_empty();
    let (mut certain, others): (Vec<_>, Vec<_>) = groups.iter().partition(|g| is_certain(g));
    certain.extend(others);
    certain
}

/// Returns the functions of a group. A row for its other functions makes the rows add up to the
/// group.
fn functions(group: &GroupLine, whole: &LedgerRow, digit: Digit) -> Vec<LedgerRow> {
    let mut rows: Vec<LedgerRow> = group
        .functions
        .iter()
        .map(|line| LedgerRow {
            name: line.function.title(),
            differs: line.differs,
            evidence: called_by(line).unwrap_or_default(),
            functions: 1,
            ..LedgerRow::of(LedgerKind::Function, &line.cost, digit)
        })
        .collect();
    match others(&rows, whole, group.others) {
        Some(row) => rows.push(row),
        // The largest function absorbs the rounding error.
        None => {
            let sum: f64 = rows.iter().map(|row| row.difference_us).sum();
            if let Some(first) = rows.first_mut() {
                first.difference_us =
                    digit.rounded(first.difference_us + whole.difference_us - sum);
            }
        }
    }
    rows
}

/// Returns what explains a group: what was counted, or else the callers of its functions.
fn why(found: &Explanation, group: &GroupLine) -> String {
    let counted = evidence_of(found, group.group);
    match counted.is_empty() {
        true => callers(group).unwrap_or_default(),
        false => counted.join(", "),
    }
}

/// Names the callers of a group. `None` if the group does not differ, or if its callers are
/// unknown.
pub(super) fn callers(group: &GroupLine) -> Option<String> {
    let named = group.callers.iter().filter(|_| group.differs).take(CALLERS);
    let named: Vec<String> = named
        .map(|(caller, ns)| format!("{} {}", caller.short_title(), micros(ns.abs() / 1e3)))
        .collect();
    (!named.is_empty()).then(|| format!("called by {}", named.join(", ")))
}

/// Names the caller of a function. `None` if the function does not differ, or if no single caller
/// is known.
pub(super) fn called_by(line: &FunctionLine) -> Option<String> {
    let caller = line.called_by.as_ref().filter(|_| line.differs)?;
    Some(format!("called by {}", caller.short_title()))
}

/// Formats microseconds for a sentence, with one decimal, or with two if the value is below 1.
pub(super) fn micros(us: f64) -> String {
    grouped(us, if us < 0.995 { 2 } else { 1 })
}

/// Returns one row for all functions that are not shown. Their cost is the rest of the group's
/// cost.
fn others(shown: &[LedgerRow], whole: &LedgerRow, count: usize) -> Option<LedgerRow> {
    if count == 0 {
        return None;
    }
    let digit = whole.digit;
    let left = |all: f64, of: &dyn Fn(&LedgerRow) -> f64| {
        digit.rounded(all - shown.iter().map(of).sum::<f64>())
    };
    let of = |all: Option<f64>, of: fn(&LedgerRow) -> Option<f64>| {
        Some(left(all?, &|row| of(row).unwrap_or(0.0)))
    };
    Some(LedgerRow {
        name: match (count, shown.is_empty()) {
            (1, false) => "1 more function".to_owned(),
            (n, false) => format!("{n} more functions"),
            (1, true) => "1 function".to_owned(),
            (n, true) => format!("{n} functions"),
        },
        reference_us: of(whole.reference_us, |row| row.reference_us),
        server_us: of(whole.server_us, |row| row.server_us),
        functions: count,
        ..LedgerRow::rest(
            LedgerKind::OtherFunctions,
            left(whole.difference_us, &|row| row.difference_us),
            None,
            digit,
        )
    })
}

/// Returns all rows with details. Otherwise, each group keeps only its largest functions.
pub(super) fn shown(rows: &[LedgerRow], has_details: bool) -> Vec<LedgerRow> {
    if has_details {
        return rows.to_vec();
    }
    let mut out = Vec::new();
    let mut rest = rows;
    while let [first, after @ ..] = rest {
        let is_own = |row: &&LedgerRow| {
            [LedgerKind::Function, LedgerKind::OtherFunctions].contains(&row.kind)
        };
        let own = after.iter().take_while(is_own).count();
        let (functions, after) = after.split_at(own);
        let large: Vec<LedgerRow> =
            functions.iter().filter(|row| row.differs).take(SHOWN).cloned().collect();
        out.push(first.clone());
        if !large.is_empty() {
            let folded = first.functions - large.len();
            let row = others(&large, first, folded);
            out.extend(large);
            out.extend(row);
        }
        rest = after;
    }
    out
}

/// Returns the name of a group.
pub(super) fn name(group: CodeGroup) -> &'static str {
    match group {
        CodeGroup::KernelNetwork => "kernel network",
        CodeGroup::Notifying => "notifying the receiver",
        CodeGroup::KernelOther => "kernel other",
        CodeGroup::SystemCallEntry => "system call entry",
        CodeGroup::Libc => "libc and allocator",
        CodeGroup::Runtime => "runtime and collector",
        CodeGroup::Application => "application",
    }
}

impl LedgerRow {
    fn of(kind: LedgerKind, cost: &Amounts, digit: Digit) -> Self {
        let us = |ns: f64| digit.rounded(ns / 1e3);
        Self {
            reference_us: Some(us(cost.reference.value)),
            server_us: Some(us(cost.server.value)),
            ..Self::rest(kind, us(cost.difference.value), Some(&cost.difference), digit)
        }
    }

    /// Returns a row that only has a difference, with the interval of an estimate in nanoseconds.
    fn rest(
        kind: LedgerKind,
        difference_us: f64,
        estimate: Option<&Estimate>,
        digit: Digit,
    ) -> Self {
        let bounded = estimate.filter(|estimate| estimate.is_bounded());
        let us = |ns: f64| digit.rounded(ns / 1e3);
        Self {
            kind,
            name: String::new(),
            reference_us: None,
            server_us: None,
            difference_us,
            low_us: bounded.map(|estimate| us(estimate.low)),
            high_us: bounded.map(|estimate| us(estimate.high)),
            differs: false,
            evidence: String::new(),
            functions: 0,
            half_width_us: bounded.map(|estimate| (estimate.high - estimate.low) / 2e3),
            digit,
        }
    }

    /// Returns a cost of this row as a cell.
    pub(super) fn cell(&self, us: Option<f64>) -> Cell {
        us.map_or_else(Cell::default, |us| Cell::from(self.digit.text(us)).sorted_by(us))
    }

    pub(super) fn difference_cell(&self) -> Cell {
        Cell::from(self.digit.signed(self.difference_us)).sorted_by(self.difference_us)
    }

    pub(super) fn half_width_cell(&self) -> Cell {
        Cell::from(self.half_width_us.map_or_else(String::new, |us| self.digit.text(us)))
    }

    pub(super) fn name_cell(&self) -> Cell {
        match self.kind {
            LedgerKind::Function | LedgerKind::OtherFunctions => {
                // HTML and Markdown drop ordinary spaces at the beginning of a cell.
                let indented = format!("\u{a0}\u{a0}{}", self.name);
                let short = shortened(&self.name, NAME);
                Cell::from(indented).shortened_to(format!("  {short}"))
            }
            _ => Cell::from(&self.name),
        }
    }

    pub(super) fn tone(&self) -> Tone {
        match self.kind {
            LedgerKind::Measured => Tone::Plain,
            _ if self.differs => Tone::Plain,
            _ => Tone::Faint,
        }
    }
}

/// The maximum number of groups in the sentence, and of functions for each group.
const GROUPS: usize = 4;
const FUNCTIONS: usize = 2;

/// A group is called garbage collection if the collector causes at least this share of the group's
/// difference.
const COLLECTION: f64 = 0.7;

pub(super) fn sentence([reference, server]: [&str; 2], under: &str, found: &Explanation) -> String {
    let us = found.cost.difference.scaled(1e-3);
    let interval = difference(&us).spread;
    if found.cost.restarts < MIN_RESTARTS {
        let by = difference(&us).full();
        return format!(
            "{server} and {reference}{under}: inconclusive ({by}), because fewer than three \
             restarts have laps that count. A longer --duration gives more."
        );
    }
    if !found.differs {
        let by = difference(&us).full();
        let counts = counted(found, &[]);
        let but = match counts.is_empty() {
            true => String::new(),
            false => format!(" But per request, {server} has {}.", list(&counts)),
        };
        let words = Judged::undecided(&found.cost.ratio()).words(Some(Measure::Cost));
        return format!(
            "{server} and {reference}{under}: CPU time per request {words} ({by}).{but}"
        );
    }
    let (by, more) = (micros(us.value.abs()), if us.value > 0.0 { "more" } else { "less" });
    let groups: Vec<&GroupLine> = found
        .ledger
        .iter()
        .flat_map(|ledger| &ledger.groups)
        .filter(|group| group.differs)
        .take(GROUPS)
        .collect();
    let parts: Vec<String> =
        groups.iter().map(|group| part(found, group, us.value > 0.0)).collect();
    let named: Vec<CodeGroup> = groups.iter().map(|group| group.group).collect();
    let left = counted(found, &named);
    let mut sentence =
        format!("{server} costs {by} µs {more} CPU per request{under} than {reference} {interval}");
    if !parts.is_empty() {
        sentence += &format!(": {}", list(&parts));
    }
    sentence += ".";
    if !left.is_empty() {
        let also = if parts.is_empty() { "" } else { "also " };
        sentence += &format!(" Per request, it {also}has {}.", list(&left));
    }
    sentence
}

/// Describes a group: its difference, its name, and in parentheses what explains the difference.
fn part(found: &Explanation, group: &GroupLine, is_more: bool) -> String {
    let us = group.cost.difference.value / 1e3;
    let sign = if (us > 0.0) == is_more { "" } else { "−" };
    let evidence = evidence_of(found, group.group);
    let is_kernel = matches!(
        group.group,
        CodeGroup::KernelNetwork | CodeGroup::KernelOther | CodeGroup::SystemCallEntry
    );
    let mut why = Vec::new();
    if !is_kernel || evidence.is_empty() {
        why.extend(callers(group));
        let functions = named_functions(group);
        why.extend((!functions.is_empty()).then(|| functions.join(", ")));
    }
    if !evidence.is_empty() {
        why.push(format!("{} per request", list(&evidence)));
    }
    let name = match group.group {
        CodeGroup::Runtime if collects(group) => "garbage collection",
        CodeGroup::Runtime => "the runtime",
        other => name(other),
    };
    let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
    format!("{sign}{} µs in {name}{why}", micros(us.abs()))
}

/// Names the largest functions that differ in the same direction as the group.
fn named_functions(group: &GroupLine) -> Vec<String> {
    let sign = group.cost.difference.value > 0.0;
    let alike = group
        .functions
        .iter()
        .filter(|line| line.differs && (line.cost.difference.value > 0.0) == sign);
    let words = |line: &FunctionLine| {
        let own = micros(line.cost.difference.value.abs() / 1e3);
        format!("{} {own}", line.function.short_title())
    };
    alike.take(FUNCTIONS).map(words).collect()
}

/// Whether garbage collection makes up most of the difference of a group.
fn collects(group: &GroupLine) -> bool {
    let of_collector = group.functions.iter().filter(|line| is_collector(&line.function));
    let sum: f64 = of_collector.map(|line| line.cost.difference.value).sum();
    sum / group.cost.difference.value >= COLLECTION
}

/// Joins items into a list: `a, b and c`.
fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
