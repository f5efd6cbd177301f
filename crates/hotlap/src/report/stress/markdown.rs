//! The stress of some servers as a page of Markdown.

use super::{Line, StressReport, Stressed};
use crate::report::markdown::escape;

/// The report as Markdown.
#[must_use]
pub fn render(report: &StressReport) -> String {
    let mut out = String::from("# Stress\n\n");
    if !report.about.is_empty() {
        out += &format!("{}\n\n", escape(&report.about));
    }
    out += &format!("{}\n\n", escape(&report.title.join(" · ")));
    if report.interrupted {
        out += "> **Interrupted: what there is by then.**\n\n";
    }
    for sentence in &report.sentences {
        out += &format!("**{}**\n\n", escape(sentence));
    }
    for server in &report.servers {
        out += &one(server);
    }
    for rule in &report.rules {
        out += &format!("- {}\n", escape(rule));
    }
    out += &format!(
        "\n{} · {} · hotlap {}\n\n    {}\n",
        escape(&report.date),
        escape(&report.machine),
        report.hotlap,
        report.command
    );
    out
}

fn one(server: &Stressed) -> String {
    let mut out = format!("## {}\n\n", escape(&server.name));
    if !server.version.is_empty() {
        out += &format!("{}\n\n", escape(&server.version));
    }
    if !server.lines.is_empty() {
        out += "| scenario | verdict | of fair share | p99 | errors | the others | memory \
                | threads | well again after |\n";
        out += "|---|---|---:|---:|---:|---|---:|---:|---:|\n";
        out.extend(server.lines.iter().map(row));
        out.push('\n');
    }
    for line in server.lines.iter().filter(|l| !l.reasons.is_empty()) {
        out += &format!("- {}: {}\n", escape(&line.scenario), escape(&line.reasons.join("; ")));
        for words in &line.last_words {
            out += &format!("  - {}\n", escape(words));
        }
    }
    if let Some(retired) = &server.retired {
        let told = [retired.phase.as_str(), &retired.cause, &retired.cure].map(escape);
        out += &format!("- **{}**: {}: {}\n", told[0], told[1], told[2]);
    }
    for note in &server.notes {
        out += &format!("- Note: {}\n", escape(note));
    }
    out + "\n"
}

fn row(line: &Line) -> String {
    let cells = [
        &line.scenario,
        line.verdict,
        &line.of_fair_share,
        &line.p99,
        &line.errors,
        &line.others,
        &line.memory,
        &line.threads,
        &line.recovered,
    ];
    format!("| {} |\n", cells.map(escape).join(" | "))
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn every_server_has_a_section_and_every_scenario_a_row() {
        let text = render(&report());
        let row = "| garbage | well | 93 % | 1.0 ms → 3.0 ms | 0 | 200 × 4xx, 40 × 5xx, 20 closed \
                   | 7 → 9 → 8 MB | 3 → 3 → 3 | 0.40 ms |\n";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("- 2,000 idle: the server exited with code 1; "), "{text}");
        assert!(text.contains("## nim/jester\n\n- **build**: nim is missing: hotlap setup nim\n"));
    }
}
