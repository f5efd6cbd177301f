//! Text from outside, escaped for printing.
//!
//! Names, versions, log lines, headers and error messages come from servers, builds, files and
//! other people. Sent raw to a terminal, such text can move the cursor, overwrite earlier output,
//! set the window's title or reverse the order of what follows. Everything that hotlap prints
//! passes through a function of this module, which shows hidden characters as escapes (`\x1b`).

use serde::Serialize;

/// Shows text on one line. Hidden characters become escapes, a line end becomes `\n`, and a tab
/// becomes four spaces.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| push(&mut out, c));
    out
}

/// Shows text like [`visible`], but keeps line ends.
pub fn visible_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' { out.push(c) } else { push(&mut out, c) }
    }
    out
}

/// Shows text like [`visible`], but keeps line ends and sequences that set a colour or a weight
/// (SGR, ECMA-48 section 8.3.117). hotlap's renderers use such sequences. Text from outside must
/// pass through [`visible`] before it is combined with them.
pub fn visible_ink(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '\x1b' => ink(rest),
            _ => 0,
        };
        if length > 0 {
            out += &rest[..length];
            rest = &rest[length..];
            continue;
        }
        if c == '\n' {
            out.push(c)
        } else {
            push(&mut out, c)
        }
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// Returns JSON that may be shown on a terminal. Hidden characters, which JSON permits only within
/// strings, are written as `\u` escapes. The JSON keeps its meaning (RFC 8259 section 7).
pub fn visible_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hidden(c) && c != '\n' && c != '\t' {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out += &format!("\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Returns a report as JSON with one value per line, so that two reports can be compared by eye.
///
/// # Panics
/// Panics if the report has a map whose keys are not strings. No report has such a map.
pub fn json(report: &impl Serialize) -> String {
    visible_json(&(serde_json::to_string_pretty(report).expect("a report is plain data") + "\n"))
}

/// Returns the name of a variant without fields, as in JSON: `closed-early`.
pub fn name(variant: &impl Serialize) -> String {
    let value = serde_json::to_value(variant).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// Whether a character is invisible but changes how text is shown. Such characters are controls
/// (C0, DEL and C1), line and paragraph separators, and tags. The marks, embeddings, overrides and
/// isolates of bidirectional text are hidden, too (Unicode Standard Annex 9, section 2).
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
}

fn push(out: &mut String, c: char) {
    match c {
        '\t' => *out += "    ",
        '\n' => *out += "\\n",
        '\r' => *out += "\\r",
        c if c.is_ascii_control() => *out += &format!("\\x{:02x}", u32::from(c)),
        c if is_hidden(c) => *out += &format!("\\u{{{:x}}}", u32::from(c)),
        c => out.push(c),
    }
}

/// Returns the length in bytes of the colour or weight sequence at the start of a text, or 0.
fn ink(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\x1b[") else { return 0 };
    let digits = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b';').count();
    if rest[digits..].starts_with('m') { 2 + digits + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(visible("go\x1b[2J1.24\x07\r"), "go\\x1b[2J1.24\\x07\\r");
        assert_eq!(visible("a\u{9b}31m\u{7f}"), "a\\u{9b}31m\\x7f");
        assert_eq!(visible("nimda\u{202e}exe\u{2066}"), "nimda\\u{202e}exe\\u{2066}");
        assert_eq!(visible("two\nlines\tof µs × 服务器 👩‍🚀"), "two\\nlines    of µs × 服务器 👩‍🚀");
        assert_eq!(visible_lines("two\nli\x1bnes"), "two\nli\\x1bnes");
    }

    #[test]
    fn colours_stay_and_nothing_else_does() {
        let own = "\x1b[1;31mbold\x1b[0m\n";
        assert_eq!(visible_ink(own), own);
        assert_eq!(visible_ink("\x1b[2J\x1b]0;title\x07\x1b"), "\\x1b[2J\\x1b]0;title\\x07\\x1b");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({ "name": "a\u{9b}31m\u{202e}\x7f\n\u{e0041}" });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let shown = visible_json(&text);
        assert!(!shown.chars().any(|c| is_hidden(c) && c != '\n'), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
