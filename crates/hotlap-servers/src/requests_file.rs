//! Requests files: the requests to send to a command or a URL, as users would send them.
//!
//! A TOML file lists requests, each with the expected response, and fields that vary from request
//! to request. A mistake is reported before anything is started, with its line and column if it
//! has a place in the file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use hotlap_load::http::is_token;
use hotlap_load::plan::{ExpectedStatus, Field, MAX_TEXT, Text, ValueSource, escape, has_fields};
use hotlap_load::url::request_path;
use serde::Deserialize;
use toml::Spanned;

use crate::contract::{Ask, Fields, Requests};
use crate::files;

/// Why a requests file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}", file.display(), at.map(|(l, c)| format!(":{l}:{c}")).unwrap_or_default())]
pub struct RequestsFileError {
    /// The path of the file.
    pub file: PathBuf,
    /// The line and the column, both counted from 1.
    pub at: Option<(usize, usize)>,
    /// What is wrong with the file, and what to do.
    pub what: String,
}

/// A requests file, as it is written.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The fields: parts of requests that vary. In path, headers, body and expected body, `${name}`
    /// stands for the value of a field. In one request, a field has the same value in all places.
    /// For a literal `${`, write `$${`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, FieldSource>"))]
    fields: BTreeMap<String, Spanned<FieldSource>>,
    /// The requests. At least one is needed.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<RequestEntry>"))]
    request: Vec<Spanned<RequestEntry>>,
}

/// Where the values of a field come from.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FieldSource {
    /// This number, and then one more for each further value.
    Counter(u64),
    /// Random integers from the first to the second number, each equally likely.
    Integer([u64; 2]),
    /// Random texts from this list.
    Choice(Vec<String>),
    /// The lines of this file in order, and then again from the first. The path is relative to the
    /// requests file.
    Lines(PathBuf),
    /// Random lines of this file.
    RandomLines(PathBuf),
    /// Random UUIDs of version 4.
    Uuid,
    /// A text of this many random letters, digits, `-` and `_`.
    Text(usize),
}

/// A request.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RequestEntry {
    /// The name in tables. By default, the method and path.
    name: Option<String>,
    /// How often the request is sent, relative to the other requests. 1 by default.
    #[cfg_attr(feature = "schema", schemars(with = "Option<u32>"))]
    weight: Option<Spanned<u32>>,
    /// The method. GET by default, or POST with a body.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    method: Option<Spanned<String>>,
    /// The path with the query.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    path: Spanned<String>,
    /// The headers. `Host` and `Content-Length` are added.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, String>"))]
    headers: BTreeMap<String, Spanned<String>>,
    /// The body.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    body: Option<Spanned<String>>,
    /// A file with the body, which is sent as it is. The path is relative to the requests file.
    #[cfg_attr(feature = "schema", schemars(with = "Option<PathBuf>"))]
    body_file: Option<Spanned<PathBuf>>,
    /// The expected status. 200 to 299 by default.
    #[cfg_attr(feature = "schema", schemars(with = "Option<u16>"))]
    expect_status: Option<Spanned<u16>>,
    /// The expected body. By default, the body of the first responses, if it is always the same.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    expect_body: Option<Spanned<String>>,
}

/// What is wrong in a file, and where.
type Complaint = (Option<Range<usize>>, String);

/// Reads a requests file.
///
/// # Errors
/// If the file cannot be read, is not valid TOML, has an unknown key or field, or has a request
/// that cannot be sent.
pub fn read(file: &Path) -> Result<Requests, RequestsFileError> {
    let wrong = |at, what| RequestsFileError { file: file.to_owned(), at, what };
    let text = files::read_to_string(file)
        .map_err(|error| wrong(None, format!("cannot read the file: {error}")))?;
    parse(&text, file.parent().unwrap_or(Path::new(".")))
        .map_err(|(span, what)| wrong(span.map(|span| position(&text, span.start)), what))
}

/// Parses a requests file. `folder` is the folder of its data files.
///
/// # Errors
/// The errors of [`read`].
pub fn parse(text: &str, folder: &Path) -> Result<Requests, Complaint> {
    let document: Document = toml::from_str(text)
        .map_err(|error| (error.span(), error.message().trim_end().to_owned()))?;
    let fields: Vec<Field> = document
        .fields
        .into_iter()
        .map(|(name, source)| field(name, source, folder))
        .collect::<Result<_, _>>()?;
    if document.request.is_empty() {
        return Err((None, "no requests: add a table [[request]] with a path".to_owned()));
    }
    let entries = document.request.into_iter();
    let asks = entries.map(|e| ask(e, folder, &fields)).collect::<Result<_, _>>()?;
    Ok(Requests { asks, fields: Fields { list: fields, ..Fields::default() } })
}

/// Returns the line and the column of a byte offset, both counted from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

fn field(name: String, source: Spanned<FieldSource>, folder: &Path) -> Result<Field, Complaint> {
    let span = source.span();
    let wrong = |what: String| (Some(span.clone()), what);
    if !Field::is_name(&name) {
        return Err(wrong(format!("field {name:?}: use letters, digits, - and _ in its name")));
    }
    let lines = |path: &Path| {
        let path = folder.join(path);
        let text = files::read_to_string(&path)
            .map_err(|e| wrong(format!("field {name}: cannot read {}: {e}", path.display())))?;
        let lines: Vec<String> =
            text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        match lines.is_empty() {
            true => Err(wrong(format!("field {name}: {} has no line with text", path.display()))),
            false => Ok(lines),
        }
    };
    let source = match source.into_inner() {
        FieldSource::Counter(from) => ValueSource::Counter { from },
        FieldSource::Integer([min, max]) if min > max => {
            return Err(wrong(format!("field {name}: {min} is above {max}: write [{max}, {min}]")));
        }
        FieldSource::Integer([min, max]) => ValueSource::Integer { min, max },
        FieldSource::Choice(values) if values.is_empty() => {
            return Err(wrong(format!("field {name}: the list is empty: give at least one text")));
        }
        FieldSource::Choice(values) => ValueSource::Choice { values: values.into(), random: true },
        FieldSource::Lines(path) => {
            ValueSource::Choice { values: lines(&path)?.into(), random: false }
        }
        FieldSource::RandomLines(path) => {
            ValueSource::Choice { values: lines(&path)?.into(), random: true }
        }
        FieldSource::Uuid => ValueSource::Uuid,
        FieldSource::Text(0) => {
            return Err(wrong(format!("field {name}: a text of length 0: use at least 1")));
        }
        FieldSource::Text(length) if length > MAX_TEXT => {
            let what = format!("field {name}: a text of length {length}: use at most {MAX_TEXT}");
            return Err(wrong(what));
        }
        FieldSource::Text(length) => ValueSource::Text { length },
    };
    Ok(Field::new(name, source))
}

fn ask(entry: Spanned<RequestEntry>, folder: &Path, fields: &[Field]) -> Result<Ask, Complaint> {
    let whole = entry.span();
    let entry = entry.into_inner();
    // Checks the placeholders of a text. Without fields, the whole text is literal.
    let text = |text: &Spanned<String>| -> Result<Vec<u8>, Complaint> {
        let bytes = text.get_ref().as_bytes();
        let parsed =
            Text::parse(bytes, fields).map_err(|error| (Some(text.span()), error.to_string()))?;
        Ok(if fields.is_empty() { parsed.constant() } else { bytes.to_vec() })
    };
    let string = |from: &Spanned<String>| {
        text(from).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let path = request_path(entry.path.get_ref(), &string(&entry.path)?)
        .map_err(|error| (Some(entry.path.span()), error.to_string()))?;
    let mut headers = Vec::new();
    for (name, value) in &entry.headers {
        if !is_token(name) || value.get_ref().chars().any(char::is_control) {
            let what =
                format!("{name:?} is not a header name, or its value has control characters");
            return Err((Some(value.span()), what));
        }
        headers.push((name.clone(), string(value)?));
    }
    let body = match (&entry.body, &entry.body_file) {
        (Some(_), Some(file)) => {
            return Err((Some(file.span()), "give body or body_file, not both".to_owned()));
        }
        (Some(body), None) => text(body)?,
        (None, Some(file)) => {
            let path = folder.join(file.get_ref());
            let bytes = files::read(&path).map_err(|error| {
                (Some(file.span()), format!("cannot read {}: {error}", path.display()))
            })?;
            match fields.is_empty() {
                true => bytes,
                // Placeholders in a file are not replaced.
                false => escape(&bytes),
            }
        }
        (None, None) => Vec::new(),
    };
    check_length(&entry, &body, fields)?;
    let usual = if body.is_empty() { "GET" } else { "POST" };
    let method = match &entry.method {
        None => usual.to_owned(),
        Some(method) if is_token(method.get_ref()) => method.get_ref().clone(),
        Some(method) => {
            let what = format!("{:?} is not a method: use GET, POST, …", method.get_ref());
            return Err((Some(method.span()), what));
        }
    };
    let weight = match &entry.weight {
        None => 1,
        Some(weight) if *weight.get_ref() == 0 => {
            return Err((Some(weight.span()), "a weight of 0: use at least 1".to_owned()));
        }
        Some(weight) => *weight.get_ref(),
    };
    let status = match &entry.expect_status {
        Some(status) if !(100..1000).contains(status.get_ref()) => {
            let what = format!("{} is not a status: use 100 to 999", status.get_ref());
            return Err((Some(status.span()), what));
        }
        Some(status) => ExpectedStatus::Exactly(*status.get_ref()),
        None => ExpectedStatus::Success,
    };
    if path.is_empty() {
        return Err((Some(whole), "the path is empty: write / for the root".to_owned()));
    }
    let answer = entry.expect_body.as_ref().map(text).transpose()?;
    Ok(Ask { name: entry.name, weight, method, path, headers, body, status, answer })
}

/// Checks a stated length of the body. The server would read the rest of a longer body as the next
/// request, and would wait for the rest of a shorter body.
fn check_length(entry: &RequestEntry, body: &[u8], fields: &[Field]) -> Result<(), Complaint> {
    let named =
        |(name, _): &(&String, &Spanned<String>)| name.eq_ignore_ascii_case("content-length");
    let Some((_, stated)) = entry.headers.iter().find(named) else { return Ok(()) };
    let what = match stated.get_ref().trim().parse::<usize>() {
        _ if has_fields(body, fields) => {
            "the body varies: leave out Content-Length, which hotlap adds".to_owned()
        }
        Ok(length) if length == body.len() => return Ok(()),
        Ok(length) => format!(
            "Content-Length is {length}, but the body has {} bytes: leave out Content-Length, \
             which hotlap adds",
            body.len()
        ),
        Err(_) => format!("{:?} is not a length: leave out Content-Length", stated.get_ref()),
    };
    Err((Some(stated.span()), what))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn parsed(text: &str) -> Requests {
        parse(text, Path::new("/none")).unwrap()
    }

    /// Returns the error as a user sees it.
    fn error(text: &str) -> String {
        let (span, what) = parse(text, Path::new("/none")).unwrap_err();
        let (line, column) = span.map_or((0, 0), |span| position(text, span.start));
        format!("{line}:{column}: {what}")
    }

    #[test]
    fn a_file_has_requests_and_fields() {
        let file = parsed(
            r#"
[fields]
id = { integer = [1, 10000] }
key = "uuid"

[[request]]
path = "/users/${id}"
weight = 9
expect_body = '{"id":${id}}'

[[request]]
name = "order"
path = "/orders"
headers = { Content-Type = "application/json" }
body = '{"user":${id},"key":"${key}"}'
expect_status = 201
"#,
        );
        let names: Vec<&str> = file.fields.list.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["id", "key"]);
        assert_eq!(file.fields.list[0].source, ValueSource::Integer { min: 1, max: 10_000 });
        assert_eq!(file.fields.list[1].source, ValueSource::Uuid);
        let [user, order] = &file.asks[..] else { panic!("{:?}", file.asks) };
        assert_eq!(
            (user.method.as_str(), user.weight, user.status),
            ("GET", 9, ExpectedStatus::Success)
        );
        assert_eq!(user.answer.as_deref(), Some(&br#"{"id":${id}}"#[..]));
        assert_eq!((order.method.as_str(), order.status), ("POST", ExpectedStatus::Exactly(201)));
        assert_eq!(order.name.as_deref(), Some("order"));
        let header = ("Content-Type".to_owned(), "application/json".to_owned());
        assert_eq!(order.headers, [header]);
    }

    #[test]
    fn lines_come_from_a_file_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("users.txt"), "ann\nbob\n\n").unwrap();
        let text = "fields.user = { lines = \"users.txt\" }\n[[request]]\npath = \"/${user}\"\n";
        let file = parse(text, folder.path()).unwrap();
        let values = ["ann", "bob"].map(str::to_owned).to_vec();
        assert_eq!(
            file.fields.list[0].source,
            ValueSource::Choice { values: values.into(), random: false }
        );
    }

    #[test]
    fn a_body_from_a_file_is_sent_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("body"), "a ${id} $${id}").unwrap();
        let text = "fields.id = \"uuid\"\n[[request]]\npath = \"/\"\nbody_file = \"body\"\n";
        let file = parse(text, folder.path()).unwrap();
        let body = Text::parse(&file.asks[0].body, &file.fields.list);
        assert_eq!(body, Ok("a ${id} $${id}".into()));
    }

    #[test]
    fn without_fields_a_text_is_literal() {
        let file = parsed("[[request]]\npath = \"/$${id}\"\n");
        assert_eq!(file.asks[0].path, "/${id}");
    }

    #[test]
    fn a_mistake_is_named_with_line_and_column() {
        let request = |rest: &str| error(&format!("[[request]]\npath = \"/\"\n{rest}\n"));
        for (found, expected) in [
            (
                error("[[request]]\npath = \"/${user}\"\n"),
                "2:8: unknown field user: no fields are defined",
            ),
            (
                error("fields.id = \"uuid\"\n[[request]]\npath = \"/${user}\"\n"),
                "3:8: unknown field user: the fields are id",
            ),
            (request("headers = { X = \"${id}\" }"), "3:17: unknown field id"),
            (request("expect_body = \"${id}\""), "3:15: unknown field id"),
            (error(""), "0:0: no requests: add a table [[request]]"),
            (request("wait = 1"), "3:1: unknown field `wait`"),
            (error("[[request]]\npath = \"/a b\"\n"), "2:8: "),
            (request("weight = 0"), "3:10: a weight of 0"),
            (request("method = \"GE T\""), "3:10: \"GE T\" is not a method"),
            (request("expect_status = 20"), "3:17: 20 is not a status"),
            (request("body = \"a\"\nbody_file = \"b\""), "4:13: give body or body_file"),
            (request("body_file = \"b\""), "3:13: cannot read /none/b"),
            (
                request("body = \"abc\"\nheaders = { Content-Length = \"2\" }"),
                "4:30: Content-Length is 2, but the body has 3 bytes",
            ),
            (error("fields.a = { choice = [] }"), "1:12: field a: the list is empty"),
            (error("fields.a = { lines = \"x\" }"), "1:12: field a: cannot read /none/x"),
            (error("fields.a = { integer = [2, 1] }"), "1:12: field a: 2 is above 1"),
            (error("fields.a = { text = 0 }"), "1:12: field a: a text of length 0"),
            (error("fields.\"a b\" = \"uuid\""), "1:16: field \"a b\": use letters"),
            (error("fields.a = \"uid\""), "1:12: unknown variant `uid`"),
            (error("[[request]\n"), "1:"),
        ] {
            assert!(found.starts_with(expected), "{found:?} instead of {expected:?}");
        }
    }

    #[test]
    fn a_position_counts_characters() {
        assert_eq!(position("ä\nöx", 5), (2, 2));
        assert_eq!(position("", 0), (1, 1));
    }
}
