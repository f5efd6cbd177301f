//! Keeps secrets out of everything that outlives a run or is shown: the store, exports, pages, the
//! stored command line, and messages.
//!
//! A header's value is a secret if the header's name is one of `USUAL` or ends with one of
//! `ENDINGS`. Headers that `--redact` or the config file names have secret values, too. The user
//! name and password in a URL are secrets. A value is also a secret if it is assigned to a name
//! that ends with one of `ENDINGS`. Such names appear in query strings, bodies, commands and logs.
//!
//! Everything that is recorded or printed has [`MARK`] in place of secrets, even where a server
//! logs a header or sends it back. Requests are sent unchanged. A run that is repeated or resumed
//! takes the true values from its own command line or suite again.
//!
//! The list of secrets belongs to the process, not to a command, because all output needs the list.
//!
//! The store accepts only [`Redacted`] values, and only the functions of this module make them.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{PoisonError, RwLock};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::model::{ExplainLap, Lap, Run};

/// The word that replaces a secret. This word means the same in a shell, in a URL and on a page.
pub const MARK: &str = "REDACTED";

/// Headers whose values are always redacted.
const USUAL: [&str; 10] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "x-api-key",
    "api-key",
    "x-auth-token",
    "x-access-token",
    "x-csrf-token",
    "x-amz-security-token",
];

/// The endings of the names of secrets, in lower case and without separators: `DB_PASSWORD=x`,
/// `?token=x`, `--api-key x`, `"clientSecret": "x"`.
const ENDINGS: [&str; 10] = [
    "password",
    "passwd",
    "pass",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "signature",
];

/// The length of the shortest secret that is looked for in free text. Shorter secrets are redacted
/// only next to their names. In free text, they would match by chance.
const SHORTEST: usize = 6;

#[derive(Debug, Default)]
struct Secrets {
    /// The names of further headers whose values are secrets, in lower case.
    names: Vec<String>,
    /// The known secrets, the longest first. If one secret is part of another, the longer one is
    /// replaced as a whole.
    values: Vec<String>,
}

static SECRETS: RwLock<Secrets> = RwLock::new(Secrets { names: Vec::new(), values: Vec::new() });

/// Adds headers whose values are secrets.
pub fn names(names: &[String]) {
    let mut secrets = SECRETS.write().unwrap_or_else(PoisonError::into_inner);
    secrets.names.extend(names.iter().map(|name| name.trim().to_lowercase()));
}

/// Notes a header of a request. If the header's value is a secret, the value is redacted everywhere
/// from now on.
pub fn header(name: &str, value: &str) {
    if !is_secret(name) {
        return;
    }
    // In `Bearer abc`, the token alone is a secret, too. In `a=1; session=abc`, each value is a
    // secret.
    let parts = value.split([' ', ';', ',']).map(|part| part.split_once('=').map_or(part, |p| p.1));
    learn(std::iter::once(value).chain(parts));
}

/// Notes the secrets that a command, a URL or a body assigns. From now on, these secrets are
/// redacted everywhere, because a server may print them without their names.
pub fn command(text: &str) {
    let mut found = Vec::new();
    assignments(text, |secret| found.push(secret.to_owned()));
    learn(found.iter().map(String::as_str));
}

/// Notes the secrets in this process's command line, and in its environment, which servers inherit.
pub fn surroundings() {
    let typed: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    command(&typed.join(" "));
    let variables = std::env::vars_os().map(|(name, value)| {
        (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
    });
    let secrets: Vec<(String, String)> =
        variables.filter(|(name, _)| names_a_secret(name)).collect();
    learn(secrets.iter().map(|(_, value)| value.as_str()));
}

/// Notes a text that is a secret.
pub fn secret(text: &str) {
    learn(std::iter::once(text));
}

fn learn<'a>(found: impl Iterator<Item = &'a str>) {
    let mut secrets = SECRETS.write().unwrap_or_else(PoisonError::into_inner);
    for secret in found.map(str::trim) {
        let known = secrets.values.iter().any(|v| v == secret);
        let scheme = ["bearer", "basic", "digest", "negotiate"];
        if secret.len() >= SHORTEST && !known && !scheme.contains(&&*secret.to_lowercase()) {
            secrets.values.push(secret.to_owned());
        }
    }
    secrets.values.sort_by_key(|value| std::cmp::Reverse(value.len()));
}

/// Whether the values of this header are secrets.
pub fn is_secret(name: &str) -> bool {
    let name = name.trim().to_lowercase();
    let secrets = SECRETS.read().unwrap_or_else(PoisonError::into_inner);
    USUAL.contains(&name.as_str()) || names_a_secret(&name) || secrets.names.contains(&name)
}

/// Returns a text without known secrets, values that are assigned to names of secrets, and
/// credentials in URLs.
pub fn text(text: &str) -> String {
    let mut out = assignments(&urls(text), |_| {});
    let secrets = SECRETS.read().unwrap_or_else(PoisonError::into_inner);
    for value in &secrets.values {
        if out.contains(value.as_str()) {
            out = out.replace(value.as_str(), MARK);
        }
        // A secret may also appear in its escaped form, within a JSON string.
        let quoted = Value::from(value.as_str()).to_string();
        let quoted = &quoted[1..quoted.len() - 1];
        if quoted != value && out.contains(quoted) {
            out = out.replace(quoted, MARK);
        }
    }
    out
}

/// Returns the words of this command line without secrets, so that they can be typed again. The
/// program is called `hotlap`, whatever its path is.
pub fn command_line() -> Vec<String> {
    let typed = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    words(&std::iter::once("hotlap".to_owned()).chain(typed).collect::<Vec<_>>())
}

/// Returns a command line of hotlap without secrets.
fn words(words: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    let mut is_header = false;
    for word in words {
        let (option, value) = match word.strip_prefix("--header=") {
            Some(value) => ("--header=", value),
            None if is_header => ("", word.as_str()),
            None => match word.split_once('H') {
                // Short options in one word: -H'Name: value', -kH'Name: value', -H='Name: value'.
                Some((before, value)) if is_short(before) => {
                    let value = value.strip_prefix('=').unwrap_or(value);
                    (&word[..word.len() - value.len()], value)
                }
                _ => ("", ""),
            },
        };
        let redacted = match value.split_once(':') {
            Some((name, _)) if is_secret(name) => format!("{option}{name}: {MARK}"),
            _ => word.clone(),
        };
        is_header =
            !is_header && (word == "--header" || word.strip_suffix('H').is_some_and(is_short));
        out.push(text(&redacted));
    }
    out
}

/// Returns a request or a response without the secrets in its head. If the body is text, known
/// secrets are also removed from it.
pub fn message(bytes: &[u8]) -> Vec<u8> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(bytes.len());
    let mut out = Vec::with_capacity(bytes.len());
    for (number, line) in bytes[..end].split(|b| *b == b'\n').enumerate() {
        if number > 0 {
            out.push(b'\n');
        }
        let colon = line.iter().position(|b| *b == b':');
        let name = colon.map(|at| String::from_utf8_lossy(&line[..at]));
        match name.filter(|name| is_secret(name)) {
            Some(name) => {
                out.extend(format!("{name}: {MARK}").bytes());
                out.extend(line.ends_with(b"\r").then_some(b'\r'));
            }
            None => out.extend(bytes_of(line)),
        }
    }
    out.extend(bytes_of(&bytes[end..]));
    out
}

/// Returns bytes without the known secrets if the bytes are text, and unchanged otherwise.
pub fn bytes_of(bytes: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(bytes) {
        Ok(readable) => text(readable).into_bytes(),
        Err(_) => bytes.to_vec(),
    }
}

/// A value without secrets.
#[derive(Debug, Clone, PartialEq)]
pub struct Redacted<T>(T);

impl<T> Deref for Redacted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Redacted<T> {
    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0
    }

    /// Adds a part without secrets. `add` is a plain function, so it cannot capture other values.
    pub fn add<P>(&mut self, part: Redacted<P>, add: fn(&mut T, P)) {
        add(&mut self.0, part.0);
    }

    /// Sets a figure, which contains no text.
    pub fn set<F: Copy>(&mut self, figure: F, set: fn(&mut T, F)) {
        set(&mut self.0, figure);
    }
}

/// Returns a record without secrets in any of its texts.
pub fn record<T: Serialize + DeserializeOwned>(record: T) -> Redacted<T> {
    let Ok(whole) = serde_json::to_value(&record) else { return Redacted(record) };
    // Redacts each text that contains a secret and may change. Counts these texts.
    let redacted = |may_change: &dyn Fn(usize) -> bool| {
        let (mut value, mut count) = (whole.clone(), 0);
        walk(&mut value, &mut |found| {
            let redacted = text(found);
            if redacted != *found {
                if may_change(count) {
                    *found = redacted;
                }
                count += 1;
            }
        });
        (value, count)
    };
    let (all, count) = redacted(&|_| true);
    if count == 0 {
        return Redacted(record);
    }
    let read = |value: Value| serde_json::from_value::<T>(value);
    let read_again = read(all).or_else(|_| {
        // A secret equals the name of an enum's variant, which must stay.
        let is_text = |place: &usize| read(redacted(&|other| other == *place).0).is_ok();
        let texts: BTreeSet<usize> = (0..count).filter(is_text).collect();
        read(redacted(&|place| texts.contains(&place)).0)
    });
    Redacted(read_again.unwrap_or(record))
}

/// Returns a run without secrets.
pub fn run(mut run: Run) -> Redacted<Run> {
    // These fields are not part of the serialized record, so they are put back below.
    let (number, pool) = (run.number, run.pool.take());
    let (laps, explain) = (std::mem::take(&mut run.laps), std::mem::take(&mut run.explain));
    let laps = laps.into_iter().map(|own| lap(own).0).collect();
    let explain = explain.into_iter().map(|own| explain_lap(own).0).collect();
    Redacted(Run { number, laps, explain, pool, ..record(run).0 })
}

/// Returns a lap without secrets in the texts that come from a server. The first wrong response is
/// dropped, because the failed checks already contain it as text.
pub fn lap(mut lap: Lap) -> Redacted<Lap> {
    lap.failed = record(lap.failed).0;
    lap.outcome.first_wrong = None;
    lap.outcome.first_connect_error = record(lap.outcome.first_connect_error).0;
    lap.outcome.goaways = lap.outcome.goaways.iter().map(|(why, n)| (text(why), *n)).collect();
    Redacted(lap)
}

/// Returns an explain lap without secrets.
pub fn explain_lap(explains: ExplainLap) -> Redacted<ExplainLap> {
    Redacted(ExplainLap { lap: lap(explains.lap).0, ..explains })
}

/// Calls `change` for each string in a JSON value.
fn walk(value: &mut Value, change: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(found) => change(found),
        Value::Array(values) => values.iter_mut().for_each(|value| walk(value, change)),
        Value::Object(values) => values.values_mut().for_each(|value| walk(value, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a word is a dash and lower-case letters, such as `-k`, or only a dash.
fn is_short(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| rest.chars().all(|c| c.is_ascii_lowercase()))
}

/// Whether a name ends like the name of a secret.
fn names_a_secret(name: &str) -> bool {
    let name: String =
        name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Returns a text without values that are assigned to names of secrets, and without the values of
/// the usual headers. A value follows `=`, a colon and a quote as in JSON, the colon of a usual
/// header, or an option and a blank. Each value is passed to `found`.
fn assignments(text: &str, mut found: impl FnMut(&str)) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_name) {
        let end = rest[at..].find(|c| !is_name(c)).map_or(rest.len(), |length| at + length);
        // The letter of an escaped line break is not part of a name, as in `\nSet-Cookie`.
        let from = at + usize::from(rest[..at].ends_with('\\'));
        let (name, after) = (&rest[from..end], &rest[end..]);
        out += &rest[..end];
        rest = after;
        let is_header = USUAL.contains(&name.to_lowercase().as_str());
        if !is_header && !names_a_secret(name) {
            continue;
        }
        let Some((sign, end)) = assigned(name, after, is_header) else { continue };
        let value = &after[sign..];
        let length = end.of(value).unwrap_or(value.len());
        out += &after[..sign];
        out += if length == 0 { "" } else { MARK };
        if &value[..length] != MARK {
            found(&value[..length]);
        }
        rest = &value[length..];
    }
    out + rest
}

/// What marks the end of a value.
#[derive(Debug, Clone, Copy)]
enum ValueEnd {
    /// A blank, or a sign that separates values.
    Sign,
    /// This quote, unless a backslash precedes it.
    Quote(char),
    /// A quote that a backslash precedes, because the whole text is within quotes.
    Backslash,
    /// The end of the line, which may be escaped, or a quote.
    Line,
}

impl ValueEnd {
    /// Returns where the value at the start of a text ends. `None` if the value is the whole text.
    fn of(self, value: &str) -> Option<usize> {
        match self {
            Self::Sign => value.find(|c: char| c.is_whitespace() || "&;,'\"`<>)}]".contains(c)),
            Self::Backslash => value.find('\\'),
            Self::Line => value.find(['\r', '\n', '\\', '"', '\'', '`']),
            Self::Quote(quote) => {
                let mut is_escaped = false;
                value.find(|c: char| {
                    let is_end = c == quote && !is_escaped;
                    is_escaped = c == '\\' && !is_escaped;
                    is_end
                })
            }
        }
    }
}

/// Returns the length of the text between a name and its value, and what marks the value's end.
fn assigned(name: &str, after: &str, is_header: bool) -> Option<(usize, ValueEnd)> {
    let bare = after.trim_start_matches(['"', '\'', '\\']);
    let sign = bare.trim_start();
    let value = match sign.chars().next()? {
        '=' => &sign[1..],
        ':' => sign[1..].trim_start(),
        _ if name.starts_with("--") && bare.len() > sign.len() => sign,
        _ => return None,
    };
    let unquoted = value.trim_start_matches('\\');
    let quote = unquoted.chars().next().filter(|c| "\"'".contains(*c));
    // In prose, a colon may follow such a name without a value after it.
    if sign.starts_with(':') && quote.is_none() {
        return is_header.then(|| (after.len() - value.len(), ValueEnd::Line));
    }
    let (value, end) = match quote {
        None => (value, ValueEnd::Sign),
        Some(_) if unquoted.len() < value.len() => (&unquoted[1..], ValueEnd::Backslash),
        Some(quote) => (&unquoted[1..], ValueEnd::Quote(quote)),
    };
    Some((after.len() - value.len(), end))
}

/// Returns a text whose URLs have no user names and passwords (RFC 3986 section 3.2.1).
fn urls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out += before;
        let ends = |c: char| c.is_whitespace() || "/?#\"'`<>\\".contains(c);
        let authority = &after[..after.find(ends).unwrap_or(after.len())];
        rest = match authority.rfind('@') {
            Some(end) if &authority[..end] != MARK => {
                out += MARK;
                &after[end..]
            }
            _ => after,
        };
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words_of: &str) -> String {
        let typed: Vec<String> = words_of.split('|').map(str::to_owned).collect();
        words(&typed).join("|")
    }

    #[test]
    fn a_command_line_keeps_its_form_and_loses_its_secrets() {
        let secrets = [
            ("run|-H|Authorization: Bearer a1|u", "run|-H|Authorization: REDACTED|u"),
            ("run|-HCookie: a=b|u", "run|-HCookie: REDACTED|u"),
            ("run|-qH|cookie:a|u", "run|-qH|cookie: REDACTED|u"),
            // Regression test: this form was stored with its secret.
            ("run|-H=X-Auth-Token:h7|u", "run|-H=X-Auth-Token: REDACTED|u"),
            ("run|-H|X-Session-Token: h7|u", "run|-H|X-Session-Token: REDACTED|u"),
            ("run|--header|X-Api-Key: k|u", "run|--header|X-Api-Key: REDACTED|u"),
            ("run|--header=X-API-KEY: k|u", "run|--header=X-API-KEY: REDACTED|u"),
            ("run|-H|Accept: text/plain|u", "run|-H|Accept: text/plain|u"),
            ("run|--HOST: x|Authorization", "run|--HOST: x|Authorization"),
            ("run|http://me:pw@h:1/p?q", "run|http://REDACTED@h:1/p?q"),
            ("run|./app --db postgres://me:p@ss@db/x", "run|./app --db postgres://REDACTED@db/x"),
            ("run|http://h/me@home|a@b", "run|http://h/me@home|a@b"),
        ];
        for (typed, expected) in secrets {
            assert_eq!(line(typed), expected);
        }
    }

    /// Regression test: passwords in query strings, bodies, commands and logs were stored and
    /// exported.
    #[test]
    fn what_is_assigned_to_the_name_of_a_secret_is_one() {
        for (given, expected) in [
            ("GET /a?token=ab12&page=2", "GET /a?token=REDACTED&page=2"),
            ("env DB_PASSWORD=hunter2 ./app", "env DB_PASSWORD=REDACTED ./app"),
            ("./app --api-key k1 --port 2", "./app --api-key REDACTED --port 2"),
            ("./app --api-key=k1 -v", "./app --api-key=REDACTED -v"),
            (
                r#"{"user":"a","password":"x y","n":1}"#,
                r#"{"user":"a","password":"REDACTED","n":1}"#,
            ),
            (r#"{"clientSecret": "a"}"#, r#"{"clientSecret": "REDACTED"}"#),
            (r#"{\"password\":\"a\"}"#, r#"{\"password\":\"REDACTED\"}"#),
            ("token='a b' c", "token='REDACTED' c"),
        ] {
            assert_eq!(text(given), expected);
            assert_eq!(text(expected), expected, "again");
        }
        let same = ["tokens=5", "token: two", "password", "secret=", "a=1&b=2", "--token"];
        assert_eq!(same.map(text), same);
    }

    /// Regression test: a server printed its token without a name, or responded with a cookie.
    #[test]
    fn what_a_command_assigns_is_a_secret_without_its_name_too() {
        command("env MY_TOKEN=tok-cmd-77 DB_PASS=db-cmd-99 ./app --api-key key-cmd-55");
        assert_eq!(
            text("raw: tok-cmd-77 db-cmd-99, key-cmd-55"),
            "raw: REDACTED REDACTED, REDACTED"
        );
        let quoted = r#"got "HTTP/1.1 200 OK\r\nSet-Cookie: s=abc; Path=/\r\n\r\nHi""#;
        let shown = r#"got "HTTP/1.1 200 OK\r\nSet-Cookie: REDACTED\r\n\r\nHi""#;
        assert_eq!(text(quoted), shown);
        assert_eq!(text(shown), shown, "again");
        assert_eq!(
            text("log: Authorization: Bearer a.b\nnext"),
            "log: Authorization: REDACTED\nnext"
        );
    }

    #[test]
    fn a_secret_is_found_wherever_it_turns_up() {
        header("Authorization", "Bearer tok\"en-4711");
        header("Accept", "text/plain");
        header("Cookie", "lang=en; session=sid-0815-x");
        assert_eq!(text("GET: got tok\"en-4711 back"), "GET: got REDACTED back");
        assert_eq!(text(r#"{"got":"Bearer tok\"en-4711"}"#), r#"{"got":"REDACTED"}"#);
        assert_eq!(text("a line of a log: sid-0815-x"), "a line of a log: REDACTED");
        assert_eq!(text("text/plain, Bearer, lang=en"), "text/plain, Bearer, lang=en");
        let found = record(vec![("sid-0815-x".to_owned(), 1.5)]);
        assert_eq!(*found, [("REDACTED".to_owned(), 1.5)]);
    }

    /// Regression test: a record was stored with all of its secrets if one of them was also the
    /// name of an enum's variant.
    #[test]
    fn a_secret_that_is_the_name_of_a_variant_leaves_the_other_texts_redacted() {
        #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
        enum Kind {
            Azimuth,
        }
        secret("Azimuth");
        let found = record((Kind::Azimuth, "the Azimuth".to_owned()));
        assert_eq!(*found, (Kind::Azimuth, "the REDACTED".to_owned()));
    }

    #[test]
    fn a_message_keeps_all_but_its_secrets() {
        names(&["X-Mine".to_owned()]);
        let sent = "GET / HTTP/1.1\r\nHost: h\r\nx-mine: 1\r\nSet-Cookie: a\r\n\r\nbody: x-mine: 1";
        let shown = "GET / HTTP/1.1\r\nHost: h\r\nx-mine: REDACTED\r\nSet-Cookie: REDACTED\r\n\r\n\
                     body: x-mine: 1";
        assert_eq!(String::from_utf8(message(sent.as_bytes())).unwrap(), shown);
        assert_eq!(message(b"\xff\x00\r\n\r\n\xfe"), b"\xff\x00\r\n\r\n\xfe");
    }
}
