//! Two runs side by side, as Markdown: a page of its own, or the summary of a job.

use super::escape;
use crate::report::Figure;
use crate::report::comparison::RunComparison;

/// The comparison as Markdown.
#[must_use]
pub fn render(comparison: &RunComparison) -> String {
    let (before, after) = (&comparison.before, &comparison.after);
    let mut out = format!("# {} against {}\n\n", escape(&after.name), escape(&before.name));
    for sentence in &comparison.sentences {
        out += &format!("**{}**\n\n", escape(sentence));
    }
    let full = |figure: &Option<Figure>| figure.as_ref().map_or("–".to_owned(), Figure::full);
    for table in &comparison.tables {
        out += &format!("{}\n\n", escape(&table.title));
        let heads = [escape(&before.name), escape(&after.name)];
        out += &format!("| server |  | {} | {} | ratio |  |\n", heads[0], heads[1]);
        out += "| :-- | :-- | --: | --: | --: | :-- |\n";
        for server in &table.servers {
            for change in &server.changes {
                out += &format!(
                    "| {} | {} | {} | {} | {} | {} |\n",
                    escape(&server.name),
                    change.measure,
                    full(&change.before),
                    full(&change.after),
                    escape(&full(&change.found.ratio)),
                    change.found.verdict
                );
            }
        }
        out.push('\n');
    }
    if !comparison.control.is_empty() {
        out += &format!("{}\n\n", escape(&comparison.control));
    }
    for warning in &comparison.warnings {
        out += &format!("- Note: {}\n", escape(warning));
    }
    out
}
