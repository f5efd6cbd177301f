//! The contracts `json`, `db`, `queries`, `updates`, `fortunes` and `cached`: requests, right
//! responses, and tables. All but `json` need a database.
//!
//! Ids are fields of the requests, and the number of each row is a function of its id. Therefore,
//! the right body of every request is known, and is compared under load.

use std::ops::RangeInclusive;

use hotlap_load::plan::{Field, ValueSource};

use super::exchange::{Content, Exchange, Fields};

/// The number of rows in the table `world` that are only read. The table has the same number of
/// rows that are changed.
const ROWS: u64 = 10_000;

/// The number of rows in each request of `queries`, `updates` and `cached`.
const MANY: u64 = 20;

/// The SQL that creates the tables and their rows.
pub const SCHEMA: &str = include_str!("world.sql");

/// Returns the number of the row with this id.
fn number(id: u64) -> u64 {
    // 7,919 and 10,000 have no common factor, so the first 10,000 rows have different numbers.
    id * 7_919 % ROWS + 1
}

/// Returns the fields of all requests. `id` and `number` are the id and the number of a row. `id1`
/// and `number1` to `id20` and `number20` are twenty more rows. Each of the twenty rows comes from
/// a separate part of the table, so their ids ascend and never repeat. `changed1` to `changed20`
/// are rows in the other half of the table, and `new1` to `new20` are their new numbers.
pub(super) fn fields() -> Fields {
    let mut list = Vec::new();
    let mut row = |id: String, number_of: String, ids: RangeInclusive<u64>| {
        let numbers: Vec<String> = ids.clone().map(|id| number(id).to_string()).collect();
        let numbers = ValueSource::Choice { values: numbers.into(), random: true };
        let place = list.len();
        list.push(Field::new(id, ValueSource::Integer { min: *ids.start(), max: *ids.end() }));
        list.push(Field { drawn_with: Some(place), ..Field::new(number_of, numbers) });
    };
    let part = |n: u64| (n - 1) * (ROWS / MANY) + 1..=n * (ROWS / MANY);
    row("id".to_owned(), "number".to_owned(), 1..=ROWS);
    (1..=MANY).for_each(|n| row(format!("id{n}"), format!("number{n}"), part(n)));
    for n in 1..=MANY {
        let (min, max) = (ROWS + part(n).start(), ROWS + part(n).end());
        list.push(Field::new(format!("changed{n}"), ValueSource::Integer { min, max }));
        list.push(Field::new(format!("new{n}"), ValueSource::Integer { min: 1, max: ROWS }));
    }
    list.push(Field::new("text", ValueSource::Text { length: 12 }));
    Fields { list, ..Fields::default() }
}

/// Returns a list of placeholders: `${id1},${id2}` and so on.
fn names(what: &str) -> String {
    let names: Vec<String> = (1..=MANY).map(|row| format!("${{{what}{row}}}")).collect();
    names.join(",")
}

/// Returns a JSON list of rows: `[{"id":${id1},"number":${number1}},…]`.
fn rows(id: &str, number: &str) -> Vec<u8> {
    let row = |n| format!("{{\"id\":${{{id}{n}}},\"number\":${{{number}{n}}}}}");
    format!("[{}]", (1..=MANY).map(row).collect::<Vec<_>>().join(",")).into_bytes()
}

fn returns_json(path: &str, text: Vec<u8>) -> Exchange {
    Exchange::get(path, Some("application/json"), Content::JsonText(text))
}

/// Returns a request for a greeting, which is serialised for each request.
pub(super) fn json() -> Exchange {
    let greeting = br#"{"message":"Hello, ${text}!"}"#.to_vec();
    returns_json("/json?name=${text}", greeting).named("GET /json")
}

/// Returns a request for one row by its id.
pub(super) fn db() -> Exchange {
    returns_json("/db?id=${id}", br#"{"id":${id},"number":${number}}"#.to_vec()).named("GET /db")
}

/// Returns a request for many rows, each read by a separate statement.
pub(super) fn queries() -> Exchange {
    let path = format!("/queries?ids={}", names("id"));
    returns_json(&path, rows("id", "number")).named("GET /queries")
}

/// Returns a request for many rows, which the server keeps in memory.
pub(super) fn cached() -> Exchange {
    let path = format!("/cached?ids={}", names("id"));
    returns_json(&path, rows("id", "number")).named("GET /cached")
}

/// Returns a request for many rows, which the server reads and then changes.
pub(super) fn updates() -> Exchange {
    let path = format!("/updates?ids={}&numbers={}", names("changed"), names("new"));
    let exchange = returns_json(&path, rows("changed", "new")).named("POST /updates");
    Exchange { method: "POST".to_owned(), ..exchange }
}

/// Returns a request for a page with all fortunes and one more, which the request brings.
pub(super) fn fortunes() -> Exchange {
    let page = Content::Fortunes(BROUGHT.into());
    Exchange::get("/fortunes?text=${text}", Some("text/html"), page).named("GET /fortunes")
}

/// The message that a request brings. The place of the message among the others does not depend on
/// the field `text`.
const BROUGHT: &str = "Brought by the request: ${text}";

/// The messages of the table `fortune`, by id. `world.sql` has the same messages.
const FORTUNES: [&str; 12] = [
    "A cache is a promise that nobody signed.",
    "The benchmark was right. The question was wrong.",
    "Two clocks never agree; one clock is never wrong.",
    "Any index is free until the first write.",
    "\"It works here\" & other famous last words",
    "Measure twice, deploy once.",
    "フレームワークの速さは、使う人の数ではない。",
    "He who retries without a limit has no friends downstream.",
    "<script>alert(\"This must be escaped.\");</script>",
    "Latency adds up, throughput does not.",
    "No row returned is a row, too.",
    "Yesterday's peak is tomorrow's average.",
];

/// Checks that a page has all fortunes, and the message `brought`, escaped and in the right order.
pub(super) fn check(page: &[u8], brought: &str) -> Result<(), String> {
    let page = std::str::from_utf8(page).map_err(|_| "the page is not valid UTF-8".to_owned())?;
    if !page.trim_start().to_ascii_lowercase().starts_with("<!doctype html>") {
        return Err("the page does not begin with <!DOCTYPE html>".to_owned());
    }
    let mut expected: Vec<(u64, &str)> = (1..).zip(FORTUNES).collect();
    expected.push((0, brought));
    expected.sort_by_key(|(_, message)| *message);
    let cells: Vec<&str> = page
        .split("<td>")
        .skip(1)
        .map(|cell| cell.split("</td>").next().unwrap_or_default().trim())
        .collect();
    if let Some(cell) = cells.iter().find(|cell| cell.contains('<')) {
        return Err(format!("a page with {cell:?}, which is not escaped"));
    }
    if let Some(cell) = cells.iter().find(|cell| has_bare_ampersand(cell)) {
        return Err(format!("a page with {cell:?}, whose & is not escaped"));
    }
    let found: Vec<String> = cells.into_iter().map(unescaped).collect();
    let expected: Vec<String> = expected
        .into_iter()
        .flat_map(|(id, message)| [id.to_string(), message.to_owned()])
        .collect();
    if let Some(place) = (0..expected.len()).find(|place| found.get(*place) != expected.get(*place))
    {
        let cell = found.get(place).map_or("nothing", String::as_str);
        return Err(format!("a page with {cell:?} instead of {:?}", expected[place]));
    }
    match found.len() > expected.len() {
        true => Err(format!("a page with {} cells instead of 26", found.len())),
        false => Ok(()),
    }
}

/// Replaces numeric character references, and `&lt;`, `&gt;`, `&amp;`, `&quot;` and `&apos;`, with
/// their characters (HTML, section 13.5).
fn unescaped(text: &str) -> String {
    let mut parts = text.split('&');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let known = part.split_once(';').and_then(|(name, rest)| Some((character(name)?, rest)));
        match known {
            Some((character, rest)) => {
                plain.push(character);
                plain.push_str(rest);
            }
            None => {
                plain.push('&');
                plain.push_str(part);
            }
        }
    }
    plain
}

/// Returns whether an HTML text has an ampersand that begins no known entity.
fn has_bare_ampersand(text: &str) -> bool {
    let begins =
        |part: &str| part.split_once(';').is_some_and(|(name, _)| character(name).is_some());
    text.split('&').skip(1).any(|part| !begins(part))
}

fn character(name: &str) -> Option<char> {
    let code = |digits: &str, radix| char::from_u32(u32::from_str_radix(digits, radix).ok()?);
    match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => match name.strip_prefix("#x").or_else(|| name.strip_prefix("#X")) {
            Some(digits) => code(digits, 16),
            None => code(name.strip_prefix('#')?, 10),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(edit: impl Fn(String) -> String) -> String {
        let brought = "Brought by the request: x";
        let mut all: Vec<(u64, &str)> = (1..).zip(FORTUNES).chain([(0, brought)]).collect();
        all.sort_by_key(|(_, message)| *message);
        let escaped = |text: &str| {
            let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            text.replace('"', "&#34;").replace('\'', "&#x27;")
        };
        let row = |(id, message): &(u64, &str)| {
            format!("<tr><td>{id}</td>\n<td>{}</td></tr>", escaped(message))
        };
        let rows: String = all.iter().map(row).collect();
        edit(format!("<!DOCTYPE html><html><body><table>{rows}</table></body></html>"))
    }

    #[test]
    fn a_page_must_have_every_row_in_order_and_escaped() {
        let check = |edit: fn(String) -> String| {
            super::check(page(edit).as_bytes(), "Brought by the request: x")
        };
        assert_eq!(check(|page| page), Ok(()));
        assert_eq!(
            check(|page| page.replace("&lt;script", "<script")).unwrap_err(),
            "a page with \"<script&gt;alert(&#34;This must be escaped.&#34;);&lt;/script&gt;\", which \
             is not escaped"
        );
        let bare = check(|page| page.replace("&amp;", "&")).unwrap_err();
        assert!(bare.ends_with("whose & is not escaped"), "{bare}");
        assert!(check(|page| page.replace("request: x", "request: y")).is_err());
        assert!(check(|page| page.replacen("<td>", "", 1)).is_err());
        assert!(check(|page| page + "<td>1</td>").is_err());
        assert!(check(|page| page.replace("<!DOCTYPE html>", "")).is_err());
    }

    /// The table has the rows that the checks expect.
    #[test]
    fn the_schema_has_the_same_rows() {
        for message in FORTUNES {
            assert!(SCHEMA.contains(&format!("'{}'", message.replace('\'', "''"))), "{message}");
        }
        assert!(SCHEMA.contains("id * 7919 % 10000 + 1 FROM generate_series(1, 20000)"));
    }

    /// In every request, the number is the number of the row with that id.
    #[test]
    fn numbers_follow_from_ids() {
        let (exchange, fields) = (db(), fields());
        for request in 0..1_000 {
            let filled = exchange.with_values(&fields, request);
            let id: u64 = filled.path.strip_prefix("/db?id=").unwrap().parse().unwrap();
            let body = format!("{{\"id\":{id},\"number\":{}}}", number(id));
            assert_eq!(filled.content, Content::JsonText(body.into_bytes()));
        }
    }
}
