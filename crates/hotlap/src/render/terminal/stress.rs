//! The stress of some servers, for a terminal of any width.

use crate::report::stress::{ScenarioResult, Stress, StressedServer};
use crate::text::layout::{Column, Layout};
use crate::text::wrap;

/// The part of the report, for a terminal of `width` columns.
#[must_use]
pub fn render(stress: &Stress, width: usize, color: bool) -> String {
    let mut out = format!("\n{}", wrap(&stress.title.join(" · "), 2, width));
    if stress.only().is_some() {
        out += &together(stress, width, color);
    }
    for server in &stress.servers {
        if stress.only().is_none() {
            out.push('\n');
        }
        out += &one(server, stress.only().is_none(), width, color);
    }
    out.push('\n');
    for sentence in stress.sentences.iter().filter(|_| stress.only().is_none()) {
        out += &wrap(sentence, 2, width);
    }
    if stress.servers.iter().any(|s| !s.lines.is_empty()) {
        out.push('\n');
        for rule in &stress.rules {
            out += &wrap(rule, 2, width);
        }
    }
    out
}

/// One server: its lines, unless they stand in the table of all, and what is to be told of it.
fn one(server: &StressedServer, is_alone: bool, width: usize, color: bool) -> String {
    let mut out = String::new();
    if is_alone {
        out += &match server.version.is_empty() {
            true => wrap(&server.name, 2, width),
            false => wrap(&format!("{} · {}", server.name, server.version), 2, width),
        };
        if !server.lines.is_empty() {
            out += &table(&server.lines, width, color);
        }
    }
    let of =
        |line: &ScenarioResult| if is_alone { line.scenario.clone() } else { server.name.clone() };
    for line in &server.lines {
        if !line.reasons.is_empty() {
            out += &wrap(&format!("{}: {}", of(line), line.reasons.join("; ")), 4, width);
        }
        for words in &line.log_tail {
            out += &wrap(&format!("| {words}"), 6, width);
        }
    }
    if let Some(failure) = &server.failure {
        let whose = if is_alone { String::new() } else { format!("{}: ", server.name) };
        out += &wrap(&format!("{whose}{}: {}", failure.phase, failure.cause), 4, width);
        for words in &failure.log_tail {
            out += &wrap(&format!("| {words}"), 6, width);
        }
        out += &wrap(&failure.remedy, 4, width);
    }
    for note in &server.notes {
        out += &wrap(&format!("Note: {note}"), 4, width);
    }
    out
}

/// A row a server, where there is one scenario.
fn together(stress: &Stress, width: usize, color: bool) -> String {
    let rows: Vec<(&StressedServer, &ScenarioResult)> =
        stress.servers.iter().filter_map(|s| Some((s, s.lines.first()?))).collect();
    let cells = |of: fn(&ScenarioResult) -> &str| {
        rows.iter().map(|(_, l)| of(l).to_owned()).collect::<Vec<_>>()
    };
    let published: Vec<String> = rows.iter().map(|(s, _)| s.published.join("; ")).collect();
    let mut columns = vec![
        Column::name("", "", rows.iter().map(|(s, _)| s.name.clone()).collect()),
        Column::left("", "", cells(|l| l.verdict)),
        Column::right("the others", "the others", cells(|l| &l.others)).goes(5),
        Column::right("p99", "p99", cells(|l| &l.p99)).goes(4),
        Column::left("errors", "errors", cells(|l| &l.others_errors)),
        Column::right("well again", "well\nagain", cells(|l| &l.recovered)),
        Column::right("memory", "memory", cells(|l| &l.memory)).goes(2),
        Column::right("threads", "threads", cells(|l| &l.threads)).goes(1),
    ];
    if published.iter().any(|p| !p.is_empty()) {
        columns.push(Column::left("published errors", "published\nerrors", published).goes(3));
    }
    let lines: Vec<&ScenarioResult> = rows.iter().map(|(_, line)| *line).collect();
    drawn(&Layout::fit(columns, width.saturating_sub(4)), &lines, color)
}

fn table(lines: &[ScenarioResult], width: usize, color: bool) -> String {
    let cells = |of: fn(&ScenarioResult) -> &str| {
        lines.iter().map(|l| of(l).to_owned()).collect::<Vec<_>>()
    };
    let others = |l: &ScenarioResult| match l.others_errors.as_str() {
        "" | "none" => l.others.clone(),
        errors => format!("{}, {errors}", l.others),
    };
    let columns = vec![
        Column::left("", "", cells(|l| &l.scenario)),
        Column::left("", "", cells(|l| l.verdict)),
        Column::right("of fair share", "of fair\nshare", cells(|l| &l.of_fair_share)),
        Column::right("p99", "p99", cells(|l| &l.p99)),
        Column::right("errors", "errors", cells(|l| &l.errors)),
        Column::left("the others", "the others", lines.iter().map(others).collect()).goes(3),
        Column::right("memory", "memory", cells(|l| &l.memory)).goes(2),
        Column::right("threads", "threads", cells(|l| &l.threads)).goes(1),
    ];
    let lines: Vec<&ScenarioResult> = lines.iter().collect();
    drawn(&Layout::fit(columns, width.saturating_sub(4)), &lines, color)
}

fn drawn(layout: &Layout, lines: &[&ScenarioResult], color: bool) -> String {
    let mut out: String = layout.header().iter().map(|line| format!("    {line}\n")).collect();
    for (line, text) in lines.iter().zip(layout.rows()) {
        let on = match line.verdict {
            _ if !color => "",
            "well" => "\x1b[32m",
            "down" | "hurt" => "\x1b[31m",
            _ => "\x1b[33m",
        };
        let off = if on.is_empty() { "" } else { "\x1b[0m" };
        out += &format!("    {on}{text}{off}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::stress::tests::{overload, report};

    #[test]
    fn a_stress_reads_as_a_table_a_server_and_a_sentence() {
        let text = render(&report(), 100, false);
        let expected = "
  stress · 8 good clients, keep-alive

  go/net-http · go1.24
                      of fair
                        share              p99  errors  the others                            memory
    garbage     well     93 %  1.0 ms → 3.0 ms       0  200 × 4xx, 40 × 5xx, 20 closed  7 → 9 → 8 MB
    2,000 idle  down      0 %                –       8  1,000 closed, 1,000 not let in
    2,000 idle: the server exited with code 1; 8 of 8 requests of good clients failed; good clients
    had 0 % of their fair throughput
      | too many open files

  go/net-http is well under 1 of 2; down after 2,000 idle.

  suffered: good clients had under 50 % of their fair throughput, or a p99 over 10 times the fair
  one and 100 ms longer
  scarred: serves again, but at under a third of its throughput, or keeps over 2 times the memory
  and 64 MB more, over 2 times the threads and 16 more, or stays busy
  hurt: over 0.1 % of the good clients' requests failed
  down: ended, or not well once all was over
";
        assert_eq!(text, expected);
    }

    #[test]
    fn one_scenario_is_one_table_with_errors_by_kind_and_what_was_published() {
        let text = render(&overload(), 120, false);
        let row = |name: &str| {
            text.lines().find(|line| line.starts_with(&format!("    {name} "))).unwrap_or_default()
        };
        assert!(row("node").contains("38 × connection reset, 2 × no answer in time"), "{text}");
        assert!(row("go").contains("none") && row("go").contains("0.40 ms"), "{text}");
        let wide = render(&overload(), 140, false);
        assert!(wide.contains("2016: 38 read, 21 write"), "{wide}");
    }

    #[test]
    fn it_fits_into_80_columns_and_colours_the_verdicts() {
        for stress in [report(), overload()] {
            let text = render(&stress, 80, false);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
        assert!(render(&report(), 80, true).contains("\x1b[31m2,000 idle"));
    }
}
