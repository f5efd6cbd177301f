//! Where a difference in cost comes from: the ledger, the counts, and a differential flame graph.
//!
//! The graph is made of elements with a position in per cent, so it is as wide as its page. Without
//! its script, it shows its figures in titles; the script searches it and enlarges a part.

use super::table::table;
use super::tag::{Html, el, els, paragraph};
use crate::report::ExplanationResults;
use crate::report::explain::FlameBox;

/// Height of a box, in pixels.
const HEIGHT: usize = 18;

/// The section of one explanation; without its sentence if that is the headline of the page.
pub fn section(found: &ExplanationResults, is_headline: bool) -> Html {
    let all = |content: Html, what: &str| match content.is_empty() {
        true => content,
        false => el("details", &[], els("summary", [what]) + content),
    };
    el(
        "section",
        &[("class", "explain")],
        [
            els("h2", [found.heading()]),
            paragraph("lead", if is_headline { "" } else { &found.sentence }),
            table(&found.ledger_table(false)),
            all(table(&found.ledger_table(true)), "Every function"),
            table(&found.count_table(false)),
            all(table(&found.count_table(true)), "Everything that was counted"),
            flame(found),
            found.notes.iter().map(|note| paragraph("quiet", note)).collect(),
        ],
    )
}

/// The flame graph; nothing without a profile.
fn flame(found: &ExplanationResults) -> Html {
    let Some(depth) = found.flame.iter().map(|own| own.depth).max() else {
        return Html::default();
    };
    let how = format!(
        "Width: CPU time per request in both servers together, callers above what they call. {} \
         spends more where it is orange, less where it is blue. Click a box to enlarge it.",
        found.server
    );
    let search = [
        Html::own("<input type=\"search\" placeholder=\"Search a function\" "),
        Html::own("aria-label=\"Search a function\"> <output></output>"),
    ];
    let height = format!("height:{}px", (depth + 1) * HEIGHT);
    let boxes: Html = found.flame.iter().map(drawn).collect();
    let graph = el(
        "div",
        &[("class", "flame"), ("style", &height), ("aria-label", "Flame graph"), ("role", "img")],
        boxes,
    );
    els("h3", ["Flame graph of the difference"])
        + paragraph("quiet", &how)
        + el("p", &[("class", "search"), ("hidden", "")], search)
        + graph
}

fn drawn(own: &FlameBox) -> Html {
    let kind = if own.shade < 0 { "less" } else { "more" };
    let style = format!(
        "left:{}%;width:{}%;top:{}px;--d:{}%",
        own.left,
        own.width,
        own.depth * HEIGHT,
        own.shade.abs()
    );
    let title = format!("{} · {}", own.name, own.words);
    el("div", &[("class", kind), ("style", &style), ("title", &title)], &own.name)
}
