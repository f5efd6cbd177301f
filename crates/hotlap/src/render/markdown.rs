//! The report as Markdown: a page of its own, or the summary of a job.

pub mod comparison;
mod stress;

use crate::report::published::Source;
use crate::report::{Figure, LoadResults, Report, Role, Row};
use crate::text::{capital, number, visible};

/// The report as Markdown.
#[must_use]
pub fn render(report: &Report) -> String {
    let run = &report.run;
    let number = run.number.map_or_else(String::new, |n| format!("Run {n}: "));
    let name = run.suite.as_ref().unwrap_or(&run.contract);
    let mut out = format!("# {number}{}\n\n", escape(name));
    if run.suite.is_some() {
        out += &format!("*{}*\n\n", capital(run.question_words));
    }
    out += &paragraph(&run.about);
    out += &paragraph(&run.title.join(" · "));
    if !run.state_note.is_empty() {
        out += &format!("> **{}**\n\n", escape(&run.state_note));
    }
    for table in &report.tables {
        if !table.title.is_empty() {
            out += &format!("## {}\n\n", escape(&table.title));
        }
        for sentence in &table.sentences {
            out += &format!("**{}**\n\n", escape(sentence));
        }
        out += &standings(table);
        out += &published(table);
        out += &layers(report, table.load);
    }
    for scaling in &report.scaling {
        out += &format!("- {}\n", escape(&scaling.sentence));
    }
    if !report.scaling.is_empty() {
        out.push('\n');
    }
    if let Some(noise) = &report.noise {
        out += &paragraph(&noise.sentence);
    }
    if let Some(stress) = &report.stress {
        out += &stress::render(stress);
    }
    for failed in &report.failed {
        out += &format!(
            "- **{} failed** ({}): {}",
            escape(&failed.name),
            escape(&failed.why.phase),
            escape(&failed.why.cause)
        );
        if !failed.why.remedy.is_empty() {
            out += &format!(": {}", escape(&failed.why.remedy));
        }
        out.push('\n');
        if !failed.why.log_tail.is_empty() {
            let lines: Vec<String> =
                failed.why.log_tail.iter().map(|l| format!("      {}\n", visible(l))).collect();
            out += &format!("\n{}\n", lines.concat());
        }
        for then in &failed.published {
            out += &format!("  - {}\n", escape(&then.sentence_with_doubt()));
        }
    }
    if !report.failed.is_empty() {
        out.push('\n');
    }
    out += &absent(report);
    for warning in &report.warnings {
        out += &format!("- Note: {}\n", escape(warning));
    }
    if !report.warnings.is_empty() {
        out.push('\n');
    }
    out + &provenance(report)
}

fn paragraph(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{}\n\n", escape(text)) }
}

fn standings(table: &LoadResults) -> String {
    if !table.is_measured {
        return String::new();
    }
    let has = |of: fn(&Row) -> bool| table.rows.iter().any(of);
    let (rated, checked) = (has(|r| r.response.is_some()), has(|r| !r.conformance.is_empty()));
    let mut heads = vec![
        "",
        "server",
        "requests/s",
        "of ceiling",
        "CPU µs/request",
        "avg",
        "stdev",
        "p50",
        "p99",
        "max",
        "memory",
        "CPU",
        "errors",
    ];
    if rated {
        heads.extend(["p50 at rate", "p99 at rate"]);
    }
    if checked {
        heads.push("checks");
    }
    let aligned: Vec<&str> =
        heads.iter().enumerate().map(|(i, _)| if i == 1 { ":--" } else { "--:" }).collect();
    let mut out = format!("| {} |\n| {} |\n", heads.join(" | "), aligned.join(" | "));
    for row in &table.rows {
        let mut cells = cells(row);
        if rated {
            let at = row.response.as_ref();
            cells.push(text(at.and_then(|l| l.p50.as_ref())));
            cells.push(text(at.and_then(|l| l.p99.as_ref())));
        }
        if checked {
            cells.push(row.conformance.clone());
        }
        out += &format!("| {} |\n", cells.join(" | "));
    }
    out.push('\n');
    if let Some(rate) = table.rate {
        out += &format!(
            "Open loop at {} requests/s: latency is counted from the moment a request was due.\n\n",
            number::rate(rate)
        );
    }
    let rates: Vec<f64> = table.rows.iter().filter_map(|r| r.response.as_ref()?.rate).collect();
    if let Some(rate) = rates.first() {
        out += &format!(
            "Latency is from sending at full load; “at rate” is from the moment a request was due, \
             at {} requests/s for all, so that waiting for a slow server counts too.\n\n",
            number::rate(*rate)
        );
    }
    out
}

fn cells(row: &Row) -> Vec<String> {
    let requests = match &row.requests_per_s {
        Some(figure) if row.generator_limited => figure.at_least().full(),
        Some(figure) => figure.full(),
        None => "no lap counts".to_owned(),
    };
    let name = match row.role {
        Role::Ceiling => format!("*{}*", escape(&row.name)),
        _ => escape(&row.name),
    };
    let service = &row.service;
    vec![
        row.rank.map_or_else(String::new, |r| r.to_string()),
        name,
        requests,
        text(row.of_ceiling.as_ref()),
        row.cpu_us.as_ref().map_or_else(String::new, Figure::full),
        text(service.mean.as_ref()),
        text(service.stdev.as_ref()),
        text(service.p50.as_ref()),
        text(service.p99.as_ref()),
        text(service.max.as_ref()),
        text(row.rss_mb.as_ref()),
        text(row.cpu_percent.as_ref()),
        number::count(row.errors),
    ]
}

fn published(table: &LoadResults) -> String {
    let mut out = String::new();
    for page in table.sources() {
        let Source { any, rows } = &page;
        out += &format!("### Published in {}\n\n{}", any.year, paragraph(&any.source));
        out += &paragraph(&page.circumstances().join("; "));
        let than = match any.relative_to.is_empty() {
            true => String::new(),
            false => format!(" of {}", escape(&any.relative_to)),
        };
        out += &format!(
            "| here | there | requests/s then | latency ms (avg/stdev/max) | MB | %CPU | \
             then{than} | here{than} | doubt |\n\
             | :-- | :-- | --: | --: | --: | --: | --: | --: | :-- |\n"
        );
        for (server, then) in rows {
            out += &format!(
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
                escape(server),
                escape(&then.called),
                then.requests_per_s.text,
                then.latency_ms.map_or_else(String::new, |l| l.map(|ms| ms.to_string()).join("/")),
                then.memory_mb.map_or_else(String::new, |mb| mb.to_string()),
                then.cpu_percent.map_or_else(String::new, |p| p.to_string()),
                text(then.ratio_then.as_ref()),
                then.ratio_here.as_ref().map_or_else(String::new, Figure::full),
                escape(&then.doubt)
            );
        }
        out.push('\n');
    }
    out
}

/// Whom the sources published, and who takes no part.
fn absent(report: &Report) -> String {
    let mut out = String::new();
    for absent in &report.absent {
        let figure = absent.requests_per_s.map_or_else(String::new, |r| {
            format!(" ({} requests/s then)", number::grouped(r.round(), 0))
        });
        out += &format!("- Not here: {}{figure}: {}\n", escape(&absent.name), escape(&absent.why));
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

fn layers(report: &Report, load: usize) -> String {
    let steps: Vec<_> = report.layers.iter().filter(|s| s.load == load).collect();
    if steps.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "| step | on | CPU a request | wall time a request | CPU | requests/s | side effect |\n",
    );
    out += "| :-- | :-- | --: | --: | --: | --: | :-- |\n";
    for step in steps {
        let full = |f: &Option<Figure>| f.as_ref().map_or_else(String::new, Figure::full);
        out += &format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            escape(&step.to),
            escape(&step.from),
            full(&step.cpu_us),
            full(&step.wall_us),
            full(&step.cost),
            full(&step.requests_per_s),
            escape(&step.side_effect)
        );
    }
    out.push('\n');
    out
}

fn provenance(report: &Report) -> String {
    let run = &report.run;
    let mut out = format!("{} · hotlap {} · seed {}\n", run.began, run.hotlap, run.seed);
    if !report.host.line.is_empty() {
        out += &format!("{}\n", escape(&report.host.line));
    }
    let mut versions: Vec<String> = Vec::new();
    for row in report.tables.iter().take(1).flat_map(|t| &t.rows) {
        if !row.version.is_empty() {
            versions.push(format!("{} ({})", escape(&row.name), escape(&row.version)));
        }
    }
    if !versions.is_empty() {
        out += &format!("{}\n", versions.join(", "));
    }
    out + &format!("\n    {}\n", visible(&run.command))
}

fn text(figure: Option<&Figure>) -> String {
    figure.map_or_else(String::new, |f| f.text.clone())
}

/// Keeps what a name holds from being read as Markdown or HTML (CommonMark section 2.4, and the
/// `~`, `|` and `$` of GitHub's dialect); hidden characters are shown as escapes.
#[must_use]
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
