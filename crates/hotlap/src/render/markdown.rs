//! A report as Markdown, for a separate document or for the summary of a CI job.

use crate::report::comparison::RunComparison;
use crate::report::stress::Stress;
use crate::report::{
    CapacityResults, ExplanationResults, Failed, LayerStep, LoadResults, PoolView, PublishedSource,
    Report, absence,
};
use crate::text::table::{Column, Table, Tone};
use crate::text::{capital, visible};

/// Renders the report as Markdown.
pub fn render(report: &Report) -> String {
    let run = &report.run;
    let number = run.number.map_or_else(String::new, |n| format!("Run {n}: "));
    let name = run.suite.as_ref().unwrap_or(&run.contract);
    let mut out = format!("# {number}{}\n\n", escape(name));
    if run.suite.is_some() {
        out += &format!("*{}*\n\n", capital(run.question_words));
    }
    out += &bold(&report.ruling);
    out += &paragraph(&run.about);
    out += &paragraph(&run.title.join(" · "));
    if !run.state_note.is_empty() {
        out += &format!("> **{}**\n\n", escape(&run.state_note));
    }
    out += &bold(report.shared_sentences());
    if let Some(found) = report.overview() {
        out += &format!("## {}\n\n", escape(&found.title));
        out += &table(&found.table);
        out += &paragraph(found.note);
    }
    for load in &report.tables {
        out += &results(report, load);
    }
    out += &report.capacity.iter().map(capacity).collect::<String>();
    out += &report.explanations.iter().map(explanation).collect::<String>();
    out += &list(report.scaling.iter().map(|scaling| escape(&scaling.sentence)));
    let noise = report.noise.as_ref().filter(|_| report.tables.len() < 2);
    out += &noise.map_or_else(String::new, |noise| paragraph(&noise.sentence));
    out += &report.pool.as_ref().map_or_else(String::new, pool);
    out += &report.stress.as_ref().map_or_else(String::new, stress);
    out += &list(report.failed.iter().map(failure));
    out += &list(report.absent.iter().map(|absent| escape(&absence(absent))));
    out += &list(report.warnings.iter().map(|warning| format!("Note: {}", escape(warning))));
    out + &provenance(report)
}

/// Renders a comparison of stored runs as Markdown.
pub fn comparison(comparison: &RunComparison) -> String {
    let (before, after) = (&comparison.before.name, &comparison.after.name);
    let mut out = format!("# {} against {}\n\n", escape(after), escape(before));
    out += &bold(&comparison.sentences);
    for load in &comparison.tables {
        out += &paragraph(&load.title);
        out += &table(&comparison.table(load));
        out += &paragraph(&load.control);
    }
    let warnings = comparison.warnings.iter();
    out + &warnings.map(|warning| format!("- Note: {}\n", escape(warning))).collect::<String>()
}

fn results(report: &Report, load: &LoadResults) -> String {
    let mut out = String::new();
    if !load.title.is_empty() {
        out += &format!("## {}\n\n", escape(&load.title));
    }
    out += &bold(report.own_sentences(load));
    if load.is_measured {
        out += &table(&load.table());
        load.notes().iter().for_each(|note| out += &paragraph(note));
        let noise = load.noise.as_ref().filter(|_| report.tables.len() > 1);
        out += &noise.map_or_else(String::new, |noise| paragraph(&noise.sentence));
    }
    if !load.by_request.is_empty() {
        out += &format!("### Each request\n\n{}", table(&load.request_table()));
    }
    out += &load.sources().iter().map(published).collect::<String>();
    out + &table(&LayerStep::table(report.steps(load)))
}

fn pool(found: &PoolView) -> String {
    let mut out = format!("## Nodes\n\n{}", paragraph(&found.summary));
    out += &table(&found.table());
    if found.table().rows() > 0 {
        out += &paragraph(found.legend());
    }
    out + &list(found.notes.iter().map(|note| format!("Note: {}", escape(note))))
}

fn capacity(found: &CapacityResults) -> String {
    let mut out = String::new();
    if !found.title.is_empty() {
        out += &format!("## {}\n\n", escape(&found.title));
    }
    out += &bold(&found.sentences);
    out += &table(&found.table());
    out + &found.notes().iter().map(|note| paragraph(note)).collect::<String>()
}

fn explanation(found: &ExplanationResults) -> String {
    let mut out = format!("## {}\n\n", escape(&found.heading()));
    out += &bold(std::slice::from_ref(&found.sentence));
    out += &table(&found.ledger_table(false));
    out += &table(&found.count_table(false));
    out + &found.notes.iter().map(|note| paragraph(note)).collect::<String>()
}

/// Renders a table with all columns that are meant for Markdown. Empty if the table has no rows.
fn table(table: &Table) -> String {
    if table.rows() == 0 {
        return String::new();
    }
    let columns: Vec<_> = table.columns().collect();
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut out = line(columns.iter().map(|c| escape(&c.heading())).collect());
    let align = |is_right| if is_right { "--:" } else { ":--" }.to_owned();
    out += &line(columns.iter().map(|c| align(c.is_right)).collect());
    for row in 0..table.rows() {
        let cell = |column: &Column| {
            let text = escape(&column.cells[row].full());
            match table.tone(row) == Tone::Faint && !column.is_right && !text.is_empty() {
                true => format!("*{text}*"),
                false => text,
            }
        };
        out += &line(columns.iter().copied().map(cell).collect());
    }
    out + "\n"
}

fn published(source: &PublishedSource) -> String {
    let heading = format!("### Published in {}\n\n", source.any.year);
    let about = paragraph(&source.any.source) + &paragraph(&source.circumstances().join("; "));
    heading + &about + &table(&source.table())
}

fn stress(stress: &Stress) -> String {
    let mut out = format!("## Stress\n\n{}", paragraph(&stress.title.join(" · ")));
    out += &bold(stress.summary());
    for section in stress.sections() {
        if !section.title.is_empty() {
            out += &format!("### {}\n\n", escape(&section.title));
        }
        out += &table(&section.table);
        out += &list(section.remarks.iter().map(|remark| {
            let log = remark.log_tail.iter().map(|line| format!("\n  - {}", escape(line)));
            escape(&remark.text) + &log.collect::<String>()
        }));
    }
    out + &list(stress.rules.iter().map(|rule| escape(rule)))
}

fn failure(Failed { name, why, published, .. }: &Failed) -> String {
    let (phase, cause) = (escape(&why.phase), escape(&why.cause));
    let mut out = format!("**{} failed** ({phase}): {cause}", escape(name));
    if !why.remedy.is_empty() {
        let end = if cause.ends_with('.') { "" } else { "." };
        out += &format!("{end} Remedy: {}", escape(&why.remedy));
    }
    if !why.log_tail.is_empty() {
        let lines = why.log_tail.iter().map(|line| format!("\n      {}", visible(line)));
        out += &format!("\n{}\n", lines.collect::<String>());
    }
    let published = published.iter().map(|then| escape(&then.sentence_with_doubt()));
    out + &published.map(|then| format!("\n  - {then}")).collect::<String>()
}

fn provenance(report: &Report) -> String {
    let run = &report.run;
    let mut out = format!("{} · hotlap {} · seed {}\n", run.began, run.hotlap, run.seed);
    if !report.host.line.is_empty() {
        out += &format!("{}\n", escape(&report.host.line));
    }
    // Variants of a server have the same version, so servers are grouped by version.
    let mut versions: Vec<(&str, Vec<String>)> = Vec::new();
    for row in report.tables.iter().take(1).flat_map(|t| &t.rows) {
        match versions.iter_mut().find(|(version, _)| *version == row.version) {
            _ if row.version.is_empty() => {}
            Some((_, names)) => names.push(escape(&row.name)),
            None => versions.push((&row.version, vec![escape(&row.name)])),
        }
    }
    let each = versions
        .iter()
        .map(|(version, names)| format!("{} ({})", names.join(", "), escape(version)));
    let each: Vec<String> = each.collect();
    if !each.is_empty() {
        out += &format!("{}\n", each.join("; "));
    }
    out + &format!("\n    {}\n", visible(&run.command))
}

fn paragraph(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{}\n\n", escape(text)) }
}

fn bold(sentences: &[String]) -> String {
    sentences.iter().map(|sentence| format!("**{}**\n\n", escape(sentence))).collect()
}

/// Renders a list of items that are already escaped. Empty without items.
fn list(items: impl Iterator<Item = String>) -> String {
    let items: String = items.map(|item| format!("- {item}\n")).collect();
    if items.is_empty() { items } else { items + "\n" }
}

/// Escapes a name so that no part is read as Markdown or HTML (CommonMark section 2.4, and `~`, `|`
/// and `$` of GitHub's dialect). Control characters are shown as escapes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' | '~' | '$' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_out_of_its_cell() {
        assert_eq!(escape("<script>|x|\n*y*"), "&lt;script&gt;\\|x\\|\\\\n\\*y\\*");
    }
}
