//! HTML as a type, and the tables of a page. Text is escaped when it becomes HTML. Only
//! [`Html::own`] takes text unchanged.

use std::ops::Add;

use crate::text::layout::unbroken;
use crate::text::table::{Cell, Column, Narrow, Table, Tone};
use crate::text::visible_lines;

/// A fragment of an HTML page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Html(String);

/// Creates an element. The values of attributes are escaped.
pub fn el(name: &str, attributes: &[(&str, &str)], content: impl Into<Html>) -> Html {
    Html(format!("<{name}{}>{}</{name}>", in_tag(attributes), content.into().0))
}

/// Renders a sentence. Lines break neither within intervals nor at the hyphens of options.
fn told(sentence: &str) -> Html {
    let is_option = |word: &str| word.trim_start_matches(['(', '`']).starts_with("--");
    let word = |word| match is_option(word) {
        true => el("span", &[("class", "option")], word),
        false => word.into(),
    };
    unbroken(sentence).split_inclusive(' ').map(word).collect()
}

/// Creates several elements of one kind, one for each item.
pub fn els<C: Into<Html>>(name: &str, contents: impl IntoIterator<Item = C>) -> Html {
    contents.into_iter().map(|content| el(name, &[], content)).collect()
}

/// Creates an element of one kind for each sentence.
pub fn sentences(name: &str, sentences: &[String]) -> Html {
    sentences.iter().map(|sentence| el(name, &[], told(sentence))).collect()
}

/// Creates a paragraph with a class. Empty for an empty text.
pub fn paragraph(class: &str, text: &str) -> Html {
    if text.is_empty() { Html::default() } else { el("p", &[("class", class)], told(text)) }
}

fn in_tag(attributes: &[(&str, &str)]) -> String {
    attributes.iter().map(|(name, value)| format!(" {name}=\"{}\"", escaped(value))).collect()
}

/// Escapes hidden characters in JSON, and characters that could end the script element around it.
pub fn json(value: &serde_json::Value) -> Html {
    Html(crate::text::visible_json(&value.to_string()).replace('<', "\\u003c"))
}

/// Escapes text for use between tags and within single or double quotes. Control characters are
/// shown as escapes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible_lines(text).chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}

impl Html {
    /// Takes HTML that this program wrote, which must not contain text from outside.
    pub fn own(html: impl Into<String>) -> Self {
        Self(html.into())
    }

    /// Whether the fragment is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the HTML as text.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl From<&str> for Html {
    fn from(text: &str) -> Self {
        Self(escaped(text))
    }
}

impl From<&String> for Html {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<String> for Html {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl<const N: usize> From<[Html; N]> for Html {
    fn from(parts: [Html; N]) -> Self {
        parts.into_iter().collect()
    }
}

impl From<Option<Html>> for Html {
    fn from(part: Option<Html>) -> Self {
        part.unwrap_or_default()
    }
}

impl FromIterator<Html> for Html {
    fn from_iter<I: IntoIterator<Item = Html>>(parts: I) -> Self {
        Self(parts.into_iter().map(|part| part.0).collect())
    }
}

impl Add for Html {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self.0 += &other.0;
        self
    }
}

/// The parts of a row that are shown in addition to its cells.
pub struct RowExtra {
    /// The number of the row's server on the page.
    pub server: String,
    /// The server's mark, which precedes the name.
    pub mark: Html,
    /// Details, which follow the name.
    pub details: Html,
}

/// Creates a table. Empty if the table has no rows.
pub fn table(table: &Table) -> Html {
    written(table, None, &[])
}

/// Creates a table that is sorted by clicking on a heading, with additional content for each row.
pub fn sortable(table: &Table, label: &str, extras: &[RowExtra]) -> Html {
    written(table, Some(label), extras)
}

fn written(table: &Table, label: Option<&str>, extras: &[RowExtra]) -> Html {
    if table.rows() == 0 {
        return Html::default();
    }
    let columns: Vec<&Column> = table.columns().collect();
    // The first column with names is the heading of each row.
    let name = columns.iter().position(|c| c.narrow == Narrow::Shorten);
    let class = |place: usize| match columns[place].is_right {
        _ if Some(place) == name => Some(("class", "name")),
        true => None,
        false => Some(("class", "left")),
    };
    let heading = |place: usize| {
        let text = columns[place].heading();
        let mut attributes = vec![("scope", "col")];
        attributes.extend(class(place));
        if label.is_none() {
            return el("th", &attributes, text);
        }
        attributes.extend((place == 0).then_some(("aria-sort", "ascending")));
        let text = if text.is_empty() { "#".to_owned() } else { text };
        el("th", &attributes, el("button", &[("type", "button")], text))
    };
    let row = |row: usize| {
        let extra = extras.get(row);
        let cell = |place: usize| {
            let cell = &columns[place].cells[row];
            let mut attributes: Vec<(&str, &str)> = class(place).into_iter().collect();
            if Some(place) == name {
                attributes.push(("scope", "row"));
                let (mark, details) = extra.map_or_else(Default::default, |extra| {
                    (extra.mark.clone(), extra.details.clone())
                });
                return el("th", &attributes, [mark, (&cell.text).into(), details]);
            }
            let by = cell.value.map_or_else(String::new, |value| value.to_string());
            if label.is_some() && columns[place].is_right {
                attributes.push(("data-v", &by));
            }
            el("td", &attributes, content(cell))
        };
        let mut attributes: Vec<(&str, &str)> = tone(table.tone(row)).into_iter().collect();
        attributes.extend(extra.map(|extra| ("data-server", extra.server.as_str())));
        el("tr", &attributes, (0..columns.len()).map(cell).collect::<Html>())
    };
    let head = el("thead", &[], el("tr", &[], (0..columns.len()).map(heading).collect::<Html>()));
    let body = el("tbody", &[], (0..table.rows()).map(row).collect::<Html>());
    let mut region = vec![("class", "wide")];
    let mut class = Vec::new();
    if let Some(label) = label {
        region.extend([("tabindex", "0"), ("role", "region"), ("aria-label", label)]);
        class.push(("class", "sortable"));
    }
    el("div", &region, el("table", &class, head + body))
}

fn content(cell: &Cell) -> Html {
    let text = Html::from(&cell.text);
    match cell.spread.is_empty() {
        true => text,
        false => text + Html::from(" ") + el("small", &[], &cell.spread),
    }
}

fn tone(tone: Tone) -> Option<(&'static str, &'static str)> {
    match tone {
        Tone::Faint => Some(("class", "ceiling")),
        Tone::Bad => Some(("class", "erring")),
        Tone::Plain | Tone::Good | Tone::Warning => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_a_tag_or_leave_its_quotes() {
        let evil = "<script>alert(\"1\")</script> & 'x'\u{7}";
        let safe = "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;x&#39;\\x07";
        let expected = format!("<b title=\"{safe}\">{safe}</b>");
        assert_eq!(el("b", &[("title", evil)], evil).into_string(), expected);
        // The reason why a lap is excluded may contain text from another host.
        let script = json(&serde_json::json!(["</script>\u{202e}\u{2028}"])).into_string();
        assert_eq!(script, "[\"\\u003c/script>\\u202e\\u2028\"]");
    }
}
