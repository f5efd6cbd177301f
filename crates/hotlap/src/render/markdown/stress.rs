//! The stress of some servers, as a part of a page of Markdown.

use super::escape;
use crate::report::stress::{ScenarioResult, Stress, StressedServer};

/// The part of the report as Markdown.
#[must_use]
pub fn render(stress: &Stress) -> String {
    let mut out = format!("## Stress\n\n{}\n\n", escape(&stress.title.join(" · ")));
    match stress.only() {
        Some(_) => out += &together(stress),
        None => {
            for sentence in &stress.sentences {
                out += &format!("**{}**\n\n", escape(sentence));
            }
        }
    }
    for server in &stress.servers {
        out += &one(server, stress.only().is_none());
    }
    for rule in &stress.rules {
        out += &format!("- {}\n", escape(rule));
    }
    out + "\n"
}

/// A row a server, where there is one scenario.
fn together(stress: &Stress) -> String {
    let mut out = String::from(
        "| server | verdict | the others | p99 | errors | well again after | memory | threads \
         | published errors |\n|---|---|---:|---:|---|---:|---:|---:|---|\n",
    );
    for server in &stress.servers {
        let Some(line) = server.lines.first() else { continue };
        let published = server.published.join("; ");
        let cells = [
            &server.name,
            line.verdict,
            &line.others,
            &line.p99,
            &line.others_errors,
            &line.recovered,
            &line.memory,
            &line.threads,
            &published,
        ];
        out += &format!("| {} |\n", cells.map(escape).join(" | "));
    }
    out + "\n"
}

fn one(server: &StressedServer, is_alone: bool) -> String {
    let mut out = String::new();
    if is_alone {
        out += &format!("### {}\n\n", escape(&server.name));
        if !server.version.is_empty() {
            out += &format!("{}\n\n", escape(&server.version));
        }
    }
    if is_alone && !server.lines.is_empty() {
        out += "| scenario | verdict | of fair share | p99 | errors | the others | their errors \
                | memory | threads | well again after |\n";
        out += "|---|---|---:|---:|---:|---|---|---:|---:|---:|\n";
        out.extend(server.lines.iter().map(row));
        out.push('\n');
    }
    let of =
        |line: &ScenarioResult| if is_alone { line.scenario.clone() } else { server.name.clone() };
    for line in server.lines.iter().filter(|l| !l.reasons.is_empty()) {
        out += &format!("- {}: {}\n", escape(&of(line)), escape(&line.reasons.join("; ")));
        for words in &line.log_tail {
            out += &format!("  - {}\n", escape(words));
        }
    }
    if let Some(failure) = &server.failure {
        let told = [server.name.as_str(), &failure.phase, &failure.cause, &failure.remedy];
        let told = told.map(escape);
        out += &format!("- **{}** ({}): {}: {}\n", told[0], told[1], told[2], told[3]);
    }
    for note in &server.notes {
        out += &format!("- Note: {}\n", escape(note));
    }
    if out.is_empty() { out } else { out + "\n" }
}

fn row(line: &ScenarioResult) -> String {
    let cells = line.figures();
    format!("| {} |\n", cells.map(escape).join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::stress::tests::{overload, report};

    #[test]
    fn every_server_has_a_section_and_every_scenario_a_row() {
        let text = render(&report());
        let row = "| garbage | well | 93 % | 1.0 ms → 3.0 ms | 0 | 200 × 4xx, 40 × 5xx, 20 closed \
                   |  | 7 → 9 → 8 MB | 3 → 3 → 3 | 0.40 ms |\n";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("- 2,000 idle: the server exited with code 1; "), "{text}");
    }

    #[test]
    fn one_scenario_is_one_table() {
        let text = render(&overload());
        let row = "| node | well | 9,300 requests/s | 1.0 ms → 25.0 ms \
                   | 38 × connection reset, 2 × no answer in time | 0.40 ms |  |  \
                   | 2016: 38 read, 21 write |\n";
        assert!(text.contains(row), "{text}");
    }
}
