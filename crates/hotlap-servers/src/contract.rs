//! The requests that a server must answer, and the exact answers: data, without a socket.
//!
//! Each contract has a few requests that are also sent under load ([`Contract::exchanges`]) and
//! some that only verification sends ([`Contract::extras`]). What is right is said once, here: the
//! checks of [`crate::verify`] and the comparison under load both come from it.

use std::fmt;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use hotlap_load::http::{self, Response};
use hotlap_load::plan::{ExpectedBody, ExpectedResponse, ExpectedStatus, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The contracts by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// `GET /` is answered with `Hello, World!`.
    Hello,
    /// `GET /` is answered with `Hello World ` and the Unix time in milliseconds.
    Clock,
    /// `GET /api/hello` is answered with what the server's manifest says.
    Api,
    /// A small JSON program: `GET /bla`, `POST /bla`, and what is no JSON refused.
    JsonApi,
}

impl Name {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hello, Self::Clock, Self::Api, Self::JsonApi];

    /// As manifests and flags write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Clock => "clock",
            Self::Api => "api",
            Self::JsonApi => "json-api",
        }
    }

    /// The contract of that name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The exact answer to `GET /api/hello`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Api {
    /// Byte for byte.
    pub body: String,
    /// Its media type; parameters may follow.
    pub content_type: String,
}

/// What a server is held to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contract {
    /// Which one; `None` for a command or a URL, whose own first answer is the measure.
    pub name: Option<Name>,
    /// What is asked under load and before it. The first is what every check of manners asks.
    pub exchanges: Vec<Exchange>,
    /// What is asked before load only.
    pub extras: Vec<Exchange>,
    /// Whether an unknown path must be a 404 whatever kind of server it is.
    pub knows_paths: bool,
}

/// A request and its right answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// For tables: `GET /bla`, `POST /bla with broken JSON`.
    pub name: String,
    /// Its method.
    pub method: String,
    /// Its path and query.
    pub path: String,
    /// Its headers, without `Host` and `Content-Length`.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
    /// The right status.
    pub status: ExpectedStatus,
    /// The right media type, parameters aside; `None`: any, or none.
    pub media_type: Option<String>,
    /// The right body.
    pub content: Content,
}

/// What somebody's command or URL is asked, and as much of the right answer as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Its method.
    pub method: String,
    /// Its path and query.
    pub path: String,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
    /// The right status; `None`: 2xx, and then the first.
    pub status: Option<u16>,
    /// The right body; `None`: the first.
    pub answer: Option<Vec<u8>>,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            status: None,
            answer: None,
        }
    }
}

/// Which body is right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Any.
    Any,
    /// These bytes, but for the ranges that vary.
    Bytes {
        /// All of them.
        bytes: Vec<u8>,
        /// Ranges that may differ; in order, not overlapping.
        varies: Vec<Range<usize>>,
    },
    /// `Hello World ` and the Unix time in milliseconds, right to the second.
    Clock,
    /// JSON of this value, written in whatever way.
    Json(Value),
}

/// What stands before the clock.
const CLOCK_PREFIX: &[u8] = b"Hello World ";

/// How far a clock may be off, in milliseconds: it must be right to the second.
const CLOCK_SLACK_MS: i128 = 1_000;

impl Contract {
    /// The contract of that name; `api` is its answer where it is the server's own.
    #[must_use]
    pub fn of(name: Name, api: Option<&Api>) -> Self {
        let (exchanges, extras) = match name {
            Name::Hello => {
                let content = Content::exactly(b"Hello, World!");
                (vec![Exchange::get("/", Some("text/plain"), content)], vec![])
            }
            Name::Clock => (vec![Exchange::get("/", None, Content::Clock)], vec![]),
            Name::Api => {
                let content = api.map_or(Content::Any, |a| Content::exactly(a.body.as_bytes()));
                let media_type = api.map(|api| essence(&api.content_type));
                (vec![Exchange::get("/api/hello", media_type.as_deref(), content)], vec![])
            }
            Name::JsonApi => (json_api(), json_api_refusals()),
        };
        let knows_paths = matches!(name, Name::Api | Name::JsonApi);
        Self { name: Some(name), exchanges, extras, knows_paths }
    }

    /// What somebody's command or URL is held to, before [`crate::infer`] knows more.
    #[must_use]
    pub fn custom(ask: &Ask) -> Self {
        Self::strangers([ask])
    }

    /// The same for several requests.
    #[must_use]
    pub fn strangers<'a>(asks: impl IntoIterator<Item = &'a Ask>) -> Self {
        let exchange = |ask: &Ask| Exchange {
            name: format!("{} {}", ask.method, ask.path),
            method: ask.method.clone(),
            path: ask.path.clone(),
            headers: ask.headers.clone(),
            body: ask.body.clone(),
            status: ask.status.map_or(ExpectedStatus::Success, ExpectedStatus::Exactly),
            media_type: None,
            content: ask.answer.as_deref().map_or(Content::Any, Content::exactly),
        };
        let exchanges = asks.into_iter().map(exchange).collect();
        Self { name: None, exchanges, extras: Vec::new(), knows_paths: false }
    }

    /// The requests to be sent under load, held against the answers that were verified.
    /// `answers` has one for each exchange; the server's own way to write JSON is thereby kept to.
    #[must_use]
    pub fn requests(&self, host: &str, answers: &[Response]) -> Vec<Request> {
        let both = self.exchanges.iter().zip(answers);
        both.map(|(exchange, answer)| exchange.request(host, answer)).collect()
    }
}

fn json_api() -> Vec<Exchange> {
    vec![
        Exchange::get(
            "/bla",
            Some("application/json"),
            Content::Json(json!({ "results": [1, 2, 3] })),
        ),
        post_bla("POST /bla", "application/json", br#"{"name":"x"}"#, 200)
            .answered(Content::Json(json!({ "name": "x" }))),
    ]
}

fn json_api_refusals() -> Vec<Exchange> {
    vec![
        // Another name: a server that has learned the first one by heart is found out.
        post_bla("POST /bla with another name", "application/json", br#"{"name":"y z"}"#, 200)
            .answered(Content::Json(json!({ "name": "y z" }))),
        post_bla("POST /bla as text/plain", "text/plain", br#"{"name":"x"}"#, 406),
        post_bla("POST /bla with broken JSON", "application/json", br#"{"name":"#, 400),
        post_bla("POST /bla with a list", "application/json", br#"["x"]"#, 400),
    ]
}

fn post_bla(name: &str, media_type: &str, body: &[u8], status: u16) -> Exchange {
    Exchange {
        name: name.to_owned(),
        method: "POST".to_owned(),
        path: "/bla".to_owned(),
        headers: vec![("Content-Type".to_owned(), media_type.to_owned())],
        body: body.to_vec(),
        status: ExpectedStatus::Exactly(status),
        media_type: Some("application/json".to_owned()),
        content: Content::Any,
    }
}

impl Exchange {
    fn get(path: &str, media_type: Option<&str>, content: Content) -> Self {
        Self {
            name: format!("GET {path}"),
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            status: ExpectedStatus::Exactly(200),
            media_type: media_type.map(str::to_owned),
            content,
        }
    }

    fn answered(self, content: Content) -> Self {
        Self { content, ..self }
    }

    /// Whether its answer has no body whatever its headers say (RFC 9110 section 9.3.2).
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Whether it only reads (RFC 9110 section 9.2.1), so that it may be sent any number of times.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE")
    }

    /// What a server is asked to see whether it is up: the request itself, or a GET of its path
    /// where the request is not safe to repeat. Then any response will do.
    #[must_use]
    pub fn readiness(&self) -> Self {
        if self.is_safe() {
            return self.clone();
        }
        Self {
            headers: self.headers.clone(),
            status: ExpectedStatus::Any,
            ..Self::get(&self.path, None, Content::Any)
        }
    }

    /// The bytes of the request.
    #[must_use]
    pub fn bytes(&self, host: &str) -> Vec<u8> {
        self.bytes_with(host, &[])
    }

    /// The bytes of the request with more headers.
    #[must_use]
    pub fn bytes_with(&self, host: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let mut headers = self.headers.clone();
        headers.extend(more.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
        http::request(&self.method, &self.path, host, &headers, &self.body)
    }

    /// The request as it is sent under load, held against an answer that was found right.
    #[must_use]
    pub fn request(&self, host: &str, verified: &Response) -> Request {
        let body = match &self.content {
            Content::Any => ExpectedBody::Any,
            Content::Bytes { bytes, varies } => {
                ExpectedBody::Bytes { bytes: bytes.clone(), varies: varies.clone() }
            }
            Content::Clock => {
                let digits = CLOCK_PREFIX.len()..verified.body.len();
                ExpectedBody::Bytes {
                    bytes: verified.body.clone(),
                    varies: Vec::from_iter([digits]),
                }
            }
            Content::Json(_) => {
                ExpectedBody::Bytes { bytes: verified.body.clone(), varies: Vec::new() }
            }
        };
        Request {
            bytes: self.bytes(host),
            is_head: self.is_head(),
            weight: 1,
            expect: ExpectedResponse { status: self.status, body },
        }
    }

    /// What a right answer is, in words.
    #[must_use]
    pub fn expected(&self) -> String {
        let status = match self.status {
            ExpectedStatus::Success => "2xx".to_owned(),
            ExpectedStatus::Exactly(status) => status.to_string(),
            ExpectedStatus::Any => "any status".to_owned(),
        };
        let media_type = self.media_type.as_ref().map(|t| format!(", {t}")).unwrap_or_default();
        let body = match &self.content {
            Content::Any => String::new(),
            Content::Bytes { bytes, varies } => {
                let but = if varies.is_empty() { "" } else { " (parts of it vary)" };
                format!(", {}{but}", quoted(bytes))
            }
            Content::Clock => ", \"Hello World \" and the Unix time in milliseconds".to_owned(),
            Content::Json(value) => format!(", {value}"),
        };
        format!("{status}{media_type}{body}")
    }

    /// Holds an answer against what is right, at this moment.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn check(&self, answer: &Response, now: SystemTime) -> Result<(), String> {
        let right = match self.status {
            ExpectedStatus::Success => (200..300).contains(&answer.status),
            ExpectedStatus::Exactly(status) => answer.status == status,
            ExpectedStatus::Any => true,
        };
        if !right {
            return Err(described(answer));
        }
        let bare = answer.body.is_empty() && matches!(self.content, Content::Any);
        if let (Some(expected), false) = (&self.media_type, bare) {
            match answer.header("content-type").map(String::from_utf8_lossy) {
                Some(got) if essence(&got) == *expected => {}
                Some(got) => return Err(format!("Content-Type {got}")),
                None => return Err("no Content-Type".to_owned()),
            }
        }
        self.content.check(&answer.body, now)
    }
}

impl Content {
    /// Just these bytes.
    #[must_use]
    pub fn exactly(bytes: &[u8]) -> Self {
        Self::Bytes { bytes: bytes.to_vec(), varies: Vec::new() }
    }

    fn check(&self, body: &[u8], now: SystemTime) -> Result<(), String> {
        let right = match self {
            Self::Any => true,
            Self::Bytes { bytes, varies } => {
                let fixed = |at: usize| !varies.iter().any(|range| range.contains(&at));
                bytes.len() == body.len()
                    && bytes.iter().zip(body).enumerate().all(|(at, (a, b))| a == b || !fixed(at))
            }
            Self::Clock => return check_clock(body, now),
            Self::Json(value) => match serde_json::from_slice::<Value>(body) {
                Ok(got) => got == *value,
                Err(error) => return Err(format!("body {} is no JSON: {error}", quoted(body))),
            },
        };
        if right { Ok(()) } else { Err(format!("body {}", quoted(body))) }
    }
}

fn check_clock(body: &[u8], now: SystemTime) -> Result<(), String> {
    let digits = body.strip_prefix(CLOCK_PREFIX).unwrap_or_default();
    let told: Option<i128> = std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok());
    let Some(told) = told.filter(|_| digits.iter().all(u8::is_ascii_digit)) else {
        return Err(format!("body {}", quoted(body)));
    };
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i128);
    match told - now {
        off if off.abs() <= CLOCK_SLACK_MS => Ok(()),
        off => Err(format!("body {}: its clock is {off} ms off", quoted(body))),
    }
}

/// The media type without its parameters, in lower case (RFC 9110 section 8.3.1).
fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// An answer in a few words.
#[must_use]
pub fn described(answer: &Response) -> String {
    match answer.body.len() {
        0 => format!("{} without a body", answer.status),
        _ => format!("{} {}", answer.status, quoted(&answer.body)),
    }
}

/// Bytes as they can be shown in a line: at most 60 of them.
#[must_use]
pub fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 60;
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
    let rest = match bytes.len() {
        ..=SHOWN => String::new(),
        len => format!("… ({len} bytes)"),
    };
    format!("{shown:?}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn answer(head: &str, body: &str) -> Response {
        let bytes = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        http::read_response(bytes.as_bytes(), false, false).unwrap().unwrap()
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(1_700_000_000_500)
    }

    fn hello(head: &str, body: &str) -> Result<(), String> {
        Contract::of(Name::Hello, None).exchanges[0].check(&answer(head, body), now())
    }

    #[test]
    fn hello_is_held_to_status_type_and_every_byte() {
        assert_eq!(hello("200 OK\r\nContent-Type: text/plain", "Hello, World!"), Ok(()));
        let charset = "200 OK\r\nContent-Type: Text/Plain;charset=utf-8";
        assert_eq!(hello(charset, "Hello, World!"), Ok(()));
        let wrong = |head, body| hello(head, body).unwrap_err();
        assert_eq!(wrong("200 OK", "Hello, World!"), "no Content-Type");
        assert_eq!(
            wrong("200 OK\r\nContent-Type: text/html", "Hello, World!"),
            "Content-Type text/html"
        );
        assert_eq!(
            wrong("200 OK\r\nContent-Type: text/plain", "Hello, World!\n"),
            "body \"Hello, World!\\n\""
        );
        assert_eq!(wrong("503 Busy", ""), "503 without a body");
    }

    #[test]
    fn a_clock_must_be_right_to_the_second() {
        let clock = &Contract::of(Name::Clock, None).exchanges[0];
        let check = |body: &str| clock.check(&answer("200 OK", body), now());
        assert_eq!(check("Hello World 1700000000000"), Ok(()));
        assert_eq!(check("Hello World 1700000001500"), Ok(()));
        assert_eq!(
            check("Hello World 1700000002000").unwrap_err(),
            "body \"Hello World 1700000002000\": its clock is 1500 ms off"
        );
        assert!(check("Hello World 1700000000").unwrap_err().ends_with("ms off"));
        assert_eq!(check("Hello World").unwrap_err(), "body \"Hello World\"");
        assert!(check("Hello World +1700000000000").is_err());
    }

    #[test]
    fn a_clock_may_differ_only_in_its_digits_under_load() {
        let clock = &Contract::of(Name::Clock, None).exchanges[0];
        let request = clock.request("h", &answer("200 OK", "Hello World 1700000000000"));
        assert_eq!(request.bytes, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        let ExpectedBody::Bytes { bytes, varies } = request.expect.body else { panic!() };
        assert_eq!((bytes.len(), &varies[..]), (25, std::slice::from_ref(&(12..25))));
    }

    #[test]
    fn json_may_be_written_in_its_own_way_and_is_kept_to_it_under_load() {
        let contract = Contract::of(Name::JsonApi, None);
        let said = answer("200 OK\r\nContent-Type: application/json", "{ \"results\": [1, 2, 3] }");
        assert_eq!(contract.exchanges[0].check(&said, now()), Ok(()));
        let ExpectedBody::Bytes { bytes, .. } =
            contract.exchanges[0].request("h", &said).expect.body
        else {
            panic!()
        };
        assert_eq!(bytes, b"{ \"results\": [1, 2, 3] }");
        let other = answer("200 OK\r\nContent-Type: application/json", "{\"Results\":[1,2,3]}\n");
        assert_eq!(
            contract.exchanges[0].check(&other, now()).unwrap_err(),
            "body \"{\\\"Results\\\":[1,2,3]}\\n\""
        );
    }

    #[test]
    fn a_refusal_without_a_body_needs_no_media_type() {
        let refusal = &Contract::of(Name::JsonApi, None).extras[1];
        assert_eq!(refusal.expected(), "406, application/json");
        assert_eq!(refusal.check(&answer("406 Not Acceptable", ""), now()), Ok(()));
        assert!(refusal.check(&answer("406 Not Acceptable", "no"), now()).is_err());
        assert!(refusal.check(&answer("500 Oops", ""), now()).is_err());
    }

    #[test]
    fn the_answer_of_api_is_what_the_manifest_says() {
        let api = Api {
            body: r#"{"hello":"World!"}"#.to_owned(),
            content_type: "application/json; charset=utf-8".to_owned(),
        };
        let contract = Contract::of(Name::Api, Some(&api));
        assert!(contract.knows_paths);
        assert_eq!(contract.exchanges[0].name, "GET /api/hello");
        assert_eq!(
            contract.exchanges[0].expected(),
            r#"200, application/json, "{\"hello\":\"World!\"}""#
        );
    }
}
