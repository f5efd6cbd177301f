//! Wraps paragraphs to a given width.

use super::layout::width_of;
use super::visible;

/// Text in lines of at most `width` columns, indented. A word that is longer than a line is not
/// broken. Control characters are shown as escapes.
pub fn wrap(text: &str, indent: usize, width: usize) -> String {
    let words: Vec<String> = text.split_whitespace().map(visible).collect();
    flow(&words, " ", indent, width)
}

/// The same, but all lines except the first are indented by two more columns.
pub fn hanging(text: &str, indent: usize, width: usize) -> String {
    let lines = wrap(text, indent + 2, width);
    lines.get(2..).unwrap_or_default().to_owned()
}

/// Parts, joined, in lines of at most `width` columns that break only between parts.
pub fn flow(parts: &[String], joint: &str, indent: usize, width: usize) -> String {
    let margin = " ".repeat(indent);
    let mut out = String::new();
    let mut line = String::new();
    for part in parts {
        let longer = width_of(&line) + width_of(joint) + width_of(part);
        if !line.is_empty() && indent + longer > width {
            out += &format!("{margin}{}\n", line.trim_end());
            line.clear();
        } else if !line.is_empty() {
            line += joint;
        }
        line += part;
    }
    if !line.is_empty() {
        out += &format!("{margin}{line}\n");
    }
    out
}

/// The text, with its first letter in upper case.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.map_or_else(String::new, |first| first + letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_show_control_characters() {
        assert_eq!(wrap("one two\nthree\x1b four", 2, 12), "  one two\n  three\\x1b\n  four\n");
        assert_eq!(hanging("one two three", 2, 10), "  one\n    two\n    three\n");
        assert_eq!(wrap("", 2, 10), "");
        assert_eq!(wrap("服务器 服务器 x", 0, 13), "服务器 服务器\nx\n");
    }

    #[test]
    fn a_capital_is_the_first_letter_alone() {
        assert_eq!(capital("which is FASTER?"), "Which is FASTER?");
        assert_eq!(capital(""), "");
    }
}
