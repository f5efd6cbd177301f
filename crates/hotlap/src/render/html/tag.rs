//! HTML as a type: text is escaped when it becomes HTML; only [`Html::own`] takes it unchanged.

use std::ops::Add;

use crate::text::visible_lines;

/// A fragment of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Html(String);

/// An element. The values of attributes are escaped.
pub fn el(name: &str, attributes: &[(&str, &str)], content: impl Into<Html>) -> Html {
    Html(format!("<{name}{}>{}</{name}>", written(attributes), content.into().0))
}

/// Several elements of one kind, one for each item.
pub fn els<C: Into<Html>>(name: &str, contents: impl IntoIterator<Item = C>) -> Html {
    contents.into_iter().map(|content| el(name, &[], content)).collect()
}

/// A paragraph with a class; nothing for an empty text.
pub fn paragraph(class: &str, text: &str) -> Html {
    if text.is_empty() { Html::default() } else { el("p", &[("class", class)], text) }
}

fn written(attributes: &[(&str, &str)]) -> String {
    attributes.iter().map(|(name, value)| format!(" {name}=\"{}\"", escaped(value))).collect()
}

/// JSON for a script element, escaped so that it cannot end the element.
pub fn json(value: &serde_json::Value) -> Html {
    let json = value.to_string();
    Html(json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029"))
}

/// Escapes text for use between tags and within quotes of either kind. Control characters are shown
/// as escapes.
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
    /// HTML written by this program: it must not contain text from outside.
    pub fn own(html: impl Into<String>) -> Self {
        Self(html.into())
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The HTML as text.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_a_tag_or_leave_its_quotes() {
        let evil = "<script>alert(\"1\")</script> & 'x'\u{7}";
        let safe = "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;x&#39;\\x07";
        let expected = format!("<b title=\"{safe}\">{safe}</b>");
        assert_eq!(el("b", &[("title", evil)], evil).into_string(), expected);
        let script = json(&serde_json::json!(["</script>"])).into_string();
        assert_eq!(script, "[\"\\u003c/script>\"]");
    }
}
