//! Expected JSON in a server's own formatting.

use std::ops::Range;

use hotlap_load::plan::escape;
use serde_json::Value;

/// Returns a template in the formatting of a body: its white space and escapes. `filled` is the
/// template with the values that the body has. Returns `None` if the body differs in more than
/// formatting.
pub(super) fn formatted_like(template: &[u8], filled: &[u8], body: &[u8]) -> Option<Vec<u8>> {
    let [templates, filled_ones, own] = [template, filled, body].map(tokens);
    if templates.len() != own.len() || filled_ones.len() != own.len() {
        return None;
    }
    let mut text = Vec::with_capacity(body.len());
    let mut at = 0;
    for ((of_template, of_filled), place) in templates.into_iter().zip(filled_ones).zip(own) {
        text.extend_from_slice(&body[at..place.start]);
        let (known, got) = (&filled[of_filled], &body[place.clone()]);
        match template[of_template.clone()].windows(2).any(|two| two == b"${") {
            true if known == got => text.extend_from_slice(&template[of_template]),
            false if is_same(known, got) => text.extend_from_slice(&escape(got)),
            _ => return None,
        }
        at = place.end;
    }
    text.extend_from_slice(&body[at..]);
    Some(text)
}

/// Returns whether two tokens have the same value, such as `"é"` and `"\u00e9"`.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let value = |token| serde_json::from_slice::<Value>(token).ok();
    one == other || value(one).is_some_and(|one| Some(one) == value(other))
}

/// Splits a JSON text into tokens. Numbers may be placeholders.
fn tokens(text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let length = match &text[at..] {
            [b' ' | b'\t' | b'\r' | b'\n', ..] => {
                at += 1;
                continue;
            }
            [b'"', rest @ ..] => 1 + string(rest),
            [b'$', b'{', rest @ ..] => {
                2 + rest.iter().position(|byte| *byte == b'}').map_or(rest.len(), |end| end + 1)
            }
            [b'{' | b'}' | b'[' | b']' | b':' | b',', ..] => 1,
            rest => {
                let ends = |byte: &u8| b" \t\r\n{}[]:,\"".contains(byte);
                rest.iter().position(ends).unwrap_or(rest.len())
            }
        };
        found.push(at..at + length);
        at += length;
    }
    found
}

/// Returns the length of a string after its first quote, including the last quote.
fn string(rest: &[u8]) -> usize {
    let mut is_escaped = false;
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(template: &str, filled: &str, body: &str) -> Option<String> {
        let text = formatted_like(template.as_bytes(), filled.as_bytes(), body.as_bytes())?;
        Some(String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_template_takes_the_formatting_of_a_body() {
        let (template, filled) = (r#"[{"id":${id},"to":"${name}"}]"#, r#"[{"id":7,"to":"ann"}]"#);
        let of = |body: &str| like(template, filled, body);
        assert_eq!(of(filled).unwrap(), template);
        assert_eq!(
            of("[ {\"id\": 7,\n \"to\" :\"ann\"} ]\n").unwrap(),
            "[ {\"id\": ${id},\n \"to\" :\"${name}\"} ]\n"
        );
        for wrong in [
            r#"[{"id":8,"to":"ann"}]"#,
            r#"[{"id":7,"to":"bob"}]"#,
            r#"[{"id":7,"to":"ann"}"#,
            r#"[{"to":"ann","id":7}]"#,
            r#"[{"id":"7","to":"ann"}]"#,
            "",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_does_not_vary_may_be_escaped() {
        let text = r#"{"message":"フ & é","n":${n}}"#;
        let filled = text.replace("${n}", "1");
        let body = r#"{"message":"\u30d5 \u0026 \u00e9","n":1}"#;
        assert_eq!(like(text, &filled, body).unwrap(), body.replace(":1", ":${n}"));
        // A quote that is written as an escape does not end the text.
        assert_eq!(
            like(r#"["\"",${n}]"#, r#"["\"",1]"#, r#"["\u0022",1]"#).unwrap(),
            r#"["\u0022",${n}]"#
        );
    }
}
