//! Contracts: the requests that a server must answer, and the exact responses. This module opens
//! no sockets.
//!
//! Each contract has a few requests that are also sent under load ([`Contract::exchanges`]) and
//! some that only verification sends ([`Contract::extras`]). Both the checks of [`crate::verify`]
//! and the comparison under load are derived from the contract.

use std::fmt;
use std::iter::repeat_n;
use std::ops::RangeInclusive;

use hotlap_load::plan::{ExpectedStatus, Request};
use serde::{Deserialize, Serialize};
use serde_json::json;

mod body;
mod exchange;
pub(crate) mod files;
mod template;
mod upload;
mod world;

pub use body::{Body, Response, quoted, quoted_part, union};
use exchange::essence;
pub use exchange::{Content, Exchange, Fields, described};
pub use world::SCHEMA;

/// The names of the contracts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// `GET /` returns `Hello, World!`.
    Hello,
    /// `GET /` returns `Hello World ` and the Unix time in milliseconds.
    Clock,
    /// `GET /api/hello` returns the body that the server's manifest gives.
    Api,
    /// A small JSON application: `GET /bla`, `POST /bla`, and refusal of invalid JSON.
    JsonApi,
    /// `GET /json?name=N` returns a greeting as JSON.
    Json,
    /// `GET /db?id=N` returns a row of a table as JSON.
    Db,
    /// `GET /queries?ids=…` returns 20 rows, each read by a separate statement.
    Queries,
    /// `POST /updates?ids=…&numbers=…` reads 20 rows and changes them.
    Updates,
    /// `GET /fortunes?text=…` returns a page with all rows of a table and one more, with this text.
    Fortunes,
    /// `GET /cached?ids=…` returns 20 rows that the server keeps in memory.
    Cached,
    /// `POST /upload` returns the length and the CRC-32 of its body.
    Upload,
    /// `GET /delay?ms=N` returns after N milliseconds.
    Delay,
    /// `GET /static/1000.txt` returns a file from the folder that `FILES` names.
    Static,
}

impl Name {
    /// All contracts.
    pub const ALL: [Self; 13] = [
        Self::Hello,
        Self::Clock,
        Self::Api,
        Self::JsonApi,
        Self::Json,
        Self::Db,
        Self::Queries,
        Self::Updates,
        Self::Fortunes,
        Self::Cached,
        Self::Upload,
        Self::Delay,
        Self::Static,
    ];

    /// Returns the name in manifests and flags.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Clock => "clock",
            Self::Api => "api",
            Self::JsonApi => "json-api",
            Self::Json => "json",
            Self::Db => "db",
            Self::Queries => "queries",
            Self::Updates => "updates",
            Self::Fortunes => "fortunes",
            Self::Cached => "cached",
            Self::Upload => "upload",
            Self::Delay => "delay",
            Self::Static => "static",
        }
    }

    /// Returns whether a load sends all requests of the contract, because none represents the
    /// others.
    pub fn is_a_mix(self) -> bool {
        matches!(self, Self::Upload | Self::Static)
    }

    /// Returns whether a server must do more than send the same bytes at once, because responses
    /// depend on the requests or come after a delay.
    pub fn asks_for_work(self) -> bool {
        use Name::{Delay, Json, Static, Upload};
        matches!(self, Json | Upload | Delay | Static) || self.needs_database()
    }

    /// Returns whether servers read from a database, or write to it.
    pub fn needs_database(self) -> bool {
        use Name::{Cached, Db, Fortunes, Queries, Updates};
        matches!(self, Db | Queries | Updates | Fortunes | Cached)
    }

    /// Returns the fewest and the most statements for a request of this contract.
    pub(crate) fn statements(self) -> RangeInclusive<u64> {
        match self {
            Self::Queries => 20..=u64::MAX,
            // Each row is read separately, but one statement may change all rows.
            Self::Updates => 21..=u64::MAX,
            Self::Db | Self::Fortunes => 1..=u64::MAX,
            // The rows of `cached` are read only once.
            _ => 0..=0,
        }
    }

    /// Returns the contract with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == name)
    }

    /// Parses a list of contracts, such as `db,queries`.
    ///
    /// # Errors
    /// If a contract does not exist. The error lists all contracts.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        let all = Self::ALL.map(Self::as_str).join(", ");
        let known = |name: &str| {
            Self::of(name).ok_or(format!("unknown contract {name}: choose from {all}"))
        };
        text.split(',').map(|name| known(name.trim())).collect()
    }
}

/// Joins the names of contracts: `db, queries`.
pub fn named(contracts: &[Name]) -> String {
    contracts.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The exact response to `GET /api/hello`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Api {
    /// The body, byte for byte.
    pub body: String,
    /// The media type of the body. In responses, parameters may follow.
    pub content_type: String,
}

/// The requests that a server must answer, and the responses that are right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contract {
    /// The names of the contracts that are combined here. Empty for a command or a URL, whose first
    /// responses define the expected ones.
    pub names: Vec<Name>,
    /// Requests that are sent both before the load and under load. The first is the main request,
    /// which most checks send.
    pub exchanges: Vec<Exchange>,
    /// Requests that are only sent before the load.
    pub extras: Vec<Exchange>,
    /// Whether every kind of server must respond to an unknown path with 404.
    pub knows_paths: bool,
    /// The fields that the requests refer to. Empty if the requests never vary.
    pub fields: Fields,
}

/// A request to a user's command or URL, and as much of the expected response as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The name in tables. If `None`, the method and path.
    pub name: Option<String>,
    /// How often the request is sent, relative to the other requests. At least 1.
    pub weight: u32,
    /// The method.
    pub method: String,
    /// The path and query.
    pub path: String,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The expected status. If any 2xx is expected, later responses must have the same status as
    /// the first.
    pub status: ExpectedStatus,
    /// The expected body. If `None`, the body of the first response.
    pub answer: Option<Vec<u8>>,
}

/// The requests to a user's command or URL.
#[derive(Debug, Clone, PartialEq)]
pub struct Requests {
    /// The requests. There is at least one.
    pub asks: Vec<Ask>,
    /// The fields that the requests refer to. Without any fields, all texts are literal.
    pub fields: Fields,
}

impl From<Ask> for Requests {
    fn from(ask: Ask) -> Self {
        Self { asks: vec![ask], fields: Fields::default() }
    }
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            name: None,
            weight: 1,
            method: "GET".to_owned(),
            path: "/".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            status: ExpectedStatus::Success,
            answer: None,
        }
    }
}

impl Contract {
    /// Returns the contract with this name. `api` is the server's response for the contract `api`.
    pub fn of(name: Name, api: Option<&Api>) -> Self {
        let (exchanges, extras) = match name {
            Name::Json => (vec![world::json()], vec![]),
            Name::Db => (vec![world::db()], vec![]),
            Name::Queries => (vec![world::queries()], vec![]),
            Name::Updates => (vec![world::updates()], vec![]),
            Name::Fortunes => (vec![world::fortunes()], vec![]),
            Name::Cached => (vec![world::cached()], vec![]),
            Name::Upload => (upload::exchanges(), vec![]),
            // The other delays show that the server does not ignore the parameter.
            Name::Delay => (vec![delay(100)], vec![delay(10), delay(500)]),
            Name::Static => (files::exchanges(), files::extras()),
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
        let knows_paths = !matches!(name, Name::Hello | Name::Clock);
        let fields = match name {
            Name::Upload => upload::fields(),
            _ if name == Name::Json || name.needs_database() => world::fields(),
            _ => Fields::default(),
        };
        Self { names: vec![name], exchanges, extras, knows_paths, fields }
    }

    /// Returns a contract with the requests of several contracts, in this order.
    ///
    /// # Panics
    /// If `names` is empty.
    pub fn of_all(names: &[Name], api: Option<&Api>) -> Self {
        let contracts = names.iter().map(|name| Self::of(*name, api));
        let joined = contracts.reduce(|mut all, contract| {
            all.names.extend(contract.names);
            all.exchanges.extend(contract.exchanges);
            all.extras.extend(contract.extras);
            all.knows_paths |= contract.knows_paths;
            all.fields.join(contract.fields.list);
            all
        });
        joined.expect("a contract")
    }

    /// Returns whether the request with this index (every request if `None`) leaves the database
    /// idle. Returns false for a custom contract, which may use the database.
    pub fn leaves_database_idle(&self, request: Option<usize>) -> bool {
        let sent = |index: usize| request.is_none_or(|request| request == index);
        let mut of_sent = self.name_of_each().enumerate().filter(|(index, _)| sent(*index));
        !self.is_custom() && of_sent.all(|(_, name)| *name.statements().end() == 0)
    }

    /// Returns the name of the contract that each exchange is from.
    pub(crate) fn name_of_each(&self) -> impl Iterator<Item = Name> {
        let repeated = |name: &Name| repeat_n(*name, Self::of(*name, None).exchanges.len());
        self.names.iter().flat_map(repeated)
    }

    /// Returns whether the first responses define the expected ones, as for a user's command or
    /// URL.
    pub fn is_custom(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the contract of a user's command or URL, before [`crate::infer`] completes it.
    pub fn custom(ask: &Ask) -> Self {
        Self::custom_requests(&Requests::from(ask.clone()))
    }

    /// Returns the contract of several requests to a user's command or URL, before [`crate::infer`]
    /// completes it.
    pub fn custom_requests(requests: &Requests) -> Self {
        let Requests { asks, fields } = requests;
        let content = |answer: &[u8]| match fields.list.is_empty() {
            true => Content::exactly(answer),
            false => Content::Fields(answer.to_vec()),
        };
        let exchange = |ask: &Ask| Exchange {
            name: ask.name.clone().unwrap_or_else(|| format!("{} {}", ask.method, ask.path)),
            weight: ask.weight,
            method: ask.method.clone(),
            path: ask.path.clone(),
            headers: ask.headers.clone(),
            body: ask.body.clone(),
            status: ask.status,
            media_type: None,
            content_range: None,
            not_before_ms: 0,
            content: ask.answer.as_deref().map_or(Content::Any, content),
        };
        let (exchanges, fields) = (asks.iter().map(exchange).collect(), fields.clone());
        Self { names: Vec::new(), exchanges, extras: Vec::new(), knows_paths: false, fields }
    }

    /// Returns the contract with the values that fields have in the `number`-th request, so that
    /// each request and expected body is fixed. For recorded requests, any status is accepted. The
    /// status may have changed since the recording, and wrong responses are counted under load.
    pub fn with_values(&self, number: u64) -> Self {
        if self.fields.list.is_empty() {
            return self.clone();
        }
        let filled = |exchange: &Exchange| {
            let filled = exchange.with_values(&self.fields, number);
            match self.fields.order {
                Some(_) => Exchange { status: ExpectedStatus::Any, ..filled },
                None => filled,
            }
        };
        Self {
            exchanges: self.exchanges.iter().map(filled).collect(),
            fields: Fields::default(),
            ..self.clone()
        }
    }

    /// Returns the requests to send under load, each with the verified response that later
    /// responses are compared with. `responses` has one response for each exchange. JSON is then
    /// compared byte by byte, in the server's own formatting.
    pub fn requests(&self, host: &str, responses: &[Response]) -> Vec<Request> {
        let both = self.exchanges.iter().zip(responses);
        both.map(|(exchange, answer)| exchange.request(host, Some(answer), &self.fields)).collect()
    }

    /// Returns the requests to send under load, without verified responses. Bodies that only a
    /// response can determine are not compared.
    pub fn unverified_requests(&self, host: &str) -> Vec<Request> {
        self.exchanges.iter().map(|exchange| exchange.request(host, None, &self.fields)).collect()
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
        // A different name catches a server that hard-codes the first name.
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
        weight: 1,
        method: "POST".to_owned(),
        path: "/bla".to_owned(),
        headers: vec![("Content-Type".to_owned(), media_type.to_owned())],
        body: body.to_vec(),
        status: ExpectedStatus::Exactly(status),
        media_type: Some("application/json".to_owned()),
        content_range: None,
        not_before_ms: 0,
        content: Content::Any,
    }
}

fn delay(ms: u64) -> Exchange {
    let content = Content::Json(json!({ "ms": ms }));
    let exchange = Exchange::get(&format!("/delay?ms={ms}"), Some("application/json"), content);
    Exchange { not_before_ms: ms, ..exchange }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use hotlap_load::http::GrowingResponse;
    use hotlap_load::plan::ExpectedBody;

    use super::*;

    fn answer(head: &str, body: &str) -> Response {
        let bytes = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        GrowingResponse::into(Body::default())
            .read(bytes.as_bytes(), false, false)
            .unwrap()
            .unwrap()
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(1_700_000_000_500)
    }

    fn hello(head: &str, body: &str) -> Result<(), String> {
        Contract::of(Name::Hello, None).exchanges[0].check(&answer(head, body), now())
    }

    #[test]
    fn only_requests_that_execute_statements_use_the_database() {
        let of = |name| Contract::of(name, None);
        assert!(of(Name::Json).leaves_database_idle(None));
        assert!(of(Name::Cached).leaves_database_idle(Some(0)));
        assert!(!of(Name::Db).leaves_database_idle(Some(0)));
        let mut both = of(Name::Json);
        both.names.push(Name::Db);
        both.exchanges.extend(of(Name::Db).exchanges);
        let idle = [Some(0), Some(1), None].map(|request| both.leaves_database_idle(request));
        assert_eq!(idle, [true, false, false]);
        assert!(!Contract::custom(&Ask::default()).leaves_database_idle(Some(0)));
    }

    #[test]
    fn hello_needs_status_type_and_every_byte() {
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
            "body \"Hello World 1700000002000\": the time is 1500 ms off"
        );
        assert!(check("Hello World 1700000000").unwrap_err().ends_with("ms off"));
        assert_eq!(check("Hello World").unwrap_err(), "body \"Hello World\"");
        assert!(check("Hello World +1700000000000").is_err());
    }

    #[test]
    fn a_clock_may_differ_only_in_its_digits_under_load() {
        let clock = &Contract::of(Name::Clock, None).exchanges[0];
        let request = clock.request(
            "h",
            Some(&answer("200 OK", "Hello World 1700000000000")),
            &Fields::default(),
        );
        assert_eq!(request.bytes(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        let ExpectedBody::Bytes { bytes, varies } = request.expect.body else { panic!() };
        assert_eq!((bytes.len(), &varies[..]), (25, std::slice::from_ref(&(12..25))));
    }

    /// Regression: a server that compressed the file for each response, and stated the time, failed
    /// under load after a second.
    #[test]
    fn the_time_in_a_gzip_header_may_differ_under_load() {
        let contract = Contract::of(Name::Static, None);
        let exchange = contract.exchanges.last().unwrap();
        let text = "\x1f\x0b\x08\x00TIME\x00\x03and the rest";
        let request = exchange.request("h", Some(&answer("200 OK", text)), &Fields::default());
        let ExpectedBody::Bytes { bytes, varies } = request.expect.body else { panic!() };
        assert_eq!((&bytes[..], &varies[..]), (text.as_bytes(), std::slice::from_ref(&(4..8))));
        let request = exchange.request("h", Some(&answer("200 OK", "short")), &Fields::default());
        assert!(
            matches!(request.expect.body, ExpectedBody::Bytes { varies, .. } if varies.is_empty())
        );
    }

    /// Regression: any Content-Range was accepted, even one that names other bytes.
    #[test]
    fn a_part_of_a_file_needs_its_own_content_range() {
        let part = &Contract::of(Name::Static, None).extras[0];
        let Content::Bytes { bytes, .. } = &part.content else { panic!() };
        let body = std::str::from_utf8(bytes).unwrap();
        let check = |range: &str| {
            let head = format!("206 Partial Content\r\nContent-Type: text/plain{range}");
            part.check(&answer(&head, body), now())
        };
        assert_eq!(check("\r\nContent-Range: bytes 1000-1999/10000"), Ok(()));
        let other = check("\r\nContent-Range: bytes 0-999/10000").unwrap_err();
        assert_eq!(other, "Content-Range bytes 0-999/10000, not bytes 1000-1999/10000");
        assert_eq!(check("").unwrap_err(), "no Content-Range");
    }

    #[test]
    fn json_may_have_any_formatting_and_keeps_it_under_load() {
        let contract = Contract::of(Name::JsonApi, None);
        let said = answer("200 OK\r\nContent-Type: application/json", "{ \"results\": [1, 2, 3] }");
        assert_eq!(contract.exchanges[0].check(&said, now()), Ok(()));
        let ExpectedBody::Bytes { bytes, .. } =
            contract.exchanges[0].request("h", Some(&said), &contract.fields).expect.body
        else {
            panic!()
        };
        assert_eq!(&bytes[..], b"{ \"results\": [1, 2, 3] }");
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
    fn the_response_of_api_comes_from_the_manifest() {
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
