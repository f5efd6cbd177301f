//! The stress of some servers, as a section of the page.

use super::escaped;
use crate::report::stress::{Stress, StressedServer};

/// The section.
#[must_use]
pub fn render(stress: &Stress) -> String {
    let title = escaped(&stress.title.join(" · "));
    let rows: String = stress.servers.iter().map(rows).collect();
    let rules: String =
        stress.rules.iter().map(|rule| format!("<li>{}</li>", escaped(rule))).collect();
    format!(
        "<section><h2>Stress</h2><p class=\"under\">{title}</p>\
         <div class=\"wide\"><table><thead><tr><th class=\"name\">server</th><th>scenario</th>\
         <th>verdict</th><th>of fair share</th><th>p99</th><th>errors</th>\
         <th class=\"words\">the others</th><th class=\"words\">their errors</th><th>memory</th>\
         <th>threads</th><th>well again after</th><th class=\"words\">published errors</th>\
         <th class=\"words\">why</th></tr></thead><tbody>{rows}</tbody></table></div>\
         <ul>{rules}</ul></section>"
    )
}

fn rows(server: &StressedServer) -> String {
    let name = escaped(&server.name);
    let mut out: String = server
        .lines
        .iter()
        .map(|line| {
            let (published, reasons) = (server.published.join("; "), line.reasons.join("; "));
            let figures = line.figures().into_iter().chain([published.as_str(), &reasons]);
            let cells: String = figures.map(|t| format!("<td>{}</td>", escaped(t))).collect();
            format!("<tr><th scope=\"row\" class=\"name\">{name}</th>{cells}</tr>")
        })
        .collect();
    if let Some(failure) = &server.failure {
        out += &format!(
            "<tr><th scope=\"row\" class=\"name\">{name}</th><td>{}</td>\
             <td colspan=\"11\" class=\"words\">{}</td></tr>",
            escaped(&failure.phase),
            escaped(&failure.cause)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::stress::tests::{overload, report};

    #[test]
    fn every_scenario_of_every_server_is_a_row() {
        assert_eq!(render(&report()).matches("<tr><th scope").count(), 2);
        let page = render(&overload());
        assert!(page.contains("<td>2016: 38 read, 21 write</td>"), "{page}");
    }
}
