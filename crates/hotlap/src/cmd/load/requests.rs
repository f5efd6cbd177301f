//! The requests of `hotlap load` and their expected responses, from flags or a file.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use hotlap_agent::generator::Probe;
use hotlap_load::http::is_token;
use hotlap_load::plan::{DueTimes, ExpectedStatus, Protocol, Request, Target};
use hotlap_load::url::{ResolvedUrl, request_path};
use hotlap_servers::contract::{Ask, Contract, Fields, Requests};
use hotlap_servers::infer::infer;
use hotlap_servers::verify::LIMIT;
use hotlap_servers::{files, requests_file};

use super::access_log;
use crate::cli::LoadArgs;
use crate::cmd::tls;
use crate::exit::{server_failed, usage};
use crate::redact;

/// A server and the requests that are sent to it.
#[derive(Debug)]
pub struct Asked {
    /// The address of the server.
    pub target: Target,
    /// The names of the requests.
    pub names: Vec<String>,
    /// The fields that the requests refer to.
    pub fields: Fields,
    /// When the requests are due, if an access log is replayed with its times.
    pub due: Option<DueTimes>,
    /// Notes about what was left out of an access log.
    notes: Vec<String>,
    host: String,
    contract: Contract,
}

impl Asked {
    /// Reads the flags and the requests file.
    pub fn of(args: &LoadArgs) -> anyhow::Result<Self> {
        let base = args.url.as_deref().map(resolve).transpose()?;
        let mut ask = Ask {
            headers: headers(&args.request.ask.headers)?,
            body: args
                .request
                .ask
                .body
                .as_deref()
                .map(text_or_file)
                .transpose()?
                .unwrap_or_default(),
            status: expected(args.request.ask.expect_status),
            answer: args.request.ask.expect_body.as_deref().map(text_or_file).transpose()?,
            ..Ask::default()
        };
        let has_body = !ask.body.is_empty();
        let usual = if has_body { "POST" } else { "GET" };
        ask.method = method(args.request.ask.method.as_deref().unwrap_or(usual))?;
        let (mut due, mut notes) = (None, Vec::new());
        let (base, requests) = match (&args.request.requests_file, base) {
            (None, Some(base)) if let Some(file) = &args.request.ask.access_log => {
                let speed = args.request.replay_speed.unwrap_or(1.0);
                let replay = args.request.ask.replay;
                let (log, told) = access_log::read(file, replay, args.seed, speed, &ask.headers)?;
                (due, notes) = (log.due, told);
                (base, log.requests)
            }
            (Some(file), base) => {
                let (found, requests) = from_file(file, base, &ask)?;
                let Some(base) = found else {
                    return usage(format!(
                        "{} names no server: give the server's URL on the command line",
                        file.display()
                    ));
                };
                (base, requests)
            }
            (None, Some(base)) => {
                let path = base.path.clone();
                (base, Ask { path, ..ask }.into())
            }
            (None, None) => return usage("name a URL"),
        };
        let mut target = base.target;
        tls::complete(&mut target, &args.tls)?;
        if args.connection.http2 {
            target.protocol = Protocol::Http2;
        }
        let fields = Fields { seed: args.seed, ..requests.fields };
        let contract = Contract::custom_requests(&Requests { fields: fields.clone(), ..requests });
        let names = contract.exchanges.iter().map(|exchange| exchange.name.clone()).collect();
        Ok(Self { target, names, fields, due, notes, host: base.host, contract })
    }

    /// The requests with their expected responses, and notes for the user. The responses are
    /// learned from a few probes, unless `--no-check` was given. Nothing is learned about an access
    /// log, which states the right status of each request.
    pub fn requests(
        &self,
        args: &LoadArgs,
        stop: &AtomicBool,
    ) -> anyhow::Result<(Vec<Request>, Vec<String>)> {
        if args.no_check || self.fields.order.is_some() {
            return Ok((self.unchecked(), self.notes.clone()));
        }
        let inferred = infer(
            &self.target,
            &self.host,
            args.connection.timeout.max(LIMIT),
            &self.contract,
            stop,
        )
        .or_else(|why| server_failed(format!("{}: {why}", self.host)))?;
        Ok((inferred.contract.requests(&self.host, &inferred.responses), inferred.notes))
    }

    /// The probe that a generator on another host sends to learn the expected responses, as
    /// [`Self::requests`] does here. `None` if there is nothing to learn.
    pub fn probe(&self, args: &LoadArgs) -> Option<Probe> {
        let is_known = args.no_check || self.fields.order.is_some();
        (!is_known).then(|| Probe {
            target: self.target.clone(),
            host: self.host.clone(),
            limit: args.connection.timeout.max(LIMIT),
            contract: self.contract.clone(),
        })
    }

    /// Notes about what was left out of an access log.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The requests, without the expected responses that a probe would learn.
    pub fn unchecked(&self) -> Vec<Request> {
        self.contract.unverified_requests(&self.host)
    }
}

/// Resolves a URL. An invalid URL is a usage error.
pub fn resolve(url: &str) -> anyhow::Result<ResolvedUrl> {
    hotlap_load::url::resolve(url).or_else(|e| usage(e.to_string()))
}

/// Parses headers in the form `Name: value`.
pub fn headers(typed: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    for header in typed {
        // The message does not repeat the value, which may be a secret.
        let Some((name, value)) = header.split_once(':') else {
            return usage(format!(
                "a header of {} characters has no colon: write 'Name: value'",
                header.chars().count()
            ));
        };
        let (name, value) = (name.trim(), value.trim());
        // A name is a token (RFC 9110 section 5.1), and a value has no control characters (5.5).
        if !is_token(name) || value.chars().any(char::is_control) {
            return usage(format!(
                "{name:?} is not a valid header name, or its value has control characters: \
                 write 'Name: value'"
            ));
        }
        // A framing header from the user would contradict hotlap's own (RFC 9112 section 6.3).
        if let Some(framing) = FRAMING.iter().find(|own| name.eq_ignore_ascii_case(own)) {
            return usage(format!(
                "hotlap states the length of a body itself: leave out the header {framing}"
            ));
        }
        redact::header(name, value);
        headers.push((name.to_owned(), value.to_owned()));
    }
    Ok(headers)
}

/// The headers that define how a body is delimited.
const FRAMING: [&str; 2] = ["Content-Length", "Transfer-Encoding"];

/// Whether headers in the form `Name: value` ask for a connection per request (RFC 9112 section
/// 9.6), as `--disable-keepalive` does.
pub fn ask_to_close(typed: &[String]) -> bool {
    let asks = |header: &String| {
        header.split_once(':').is_some_and(|(name, value)| {
            let mut options = value.split(',').map(str::trim);
            name.trim().eq_ignore_ascii_case("connection")
                && options.any(|option| option.eq_ignore_ascii_case("close"))
        })
    };
    typed.iter().any(asks)
}

/// Returns the text itself or, after `@`, the contents of a file.
pub fn text_or_file(typed: &str) -> anyhow::Result<Vec<u8>> {
    match typed.strip_prefix('@') {
        Some(file) => files::read(file).with_context(|| format!("cannot read {file}")),
        None => Ok(typed.as_bytes().to_vec()),
    }
}

/// The expected status: the given one, or any 2xx.
pub fn expected(given: Option<u16>) -> ExpectedStatus {
    given.map_or(ExpectedStatus::Success, ExpectedStatus::Exactly)
}

/// Checks a method, which is a token (RFC 9110 section 9.1) of letters, digits and `-`.
pub fn method(typed: &str) -> anyhow::Result<String> {
    match !typed.is_empty() && typed.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        true => Ok(typed.to_owned()),
        false => usage(format!("{typed:?} is not a method: use GET, POST, …")),
    }
}

/// A line of a requests file: `[WEIGHT] [METHOD] URL [BODY]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// The line number in the file, from 1.
    pub number: usize,
    /// How often the request is sent, relative to the others. At least 1.
    pub weight: u32,
    /// The method, if the line has one.
    pub method: Option<&'a str>,
    /// The URL, or a path if the command line names the server.
    pub url: &'a str,
    /// The body, or `@` and the file that contains the body. May be empty.
    pub body: &'a str,
}

/// Returns the lines of a requests file, without comments and blank lines.
pub fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let numbered = (1..).zip(text.lines().map(str::trim));
    let told = numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    told.map(|(number, line)| {
        let (weight, rest) = weight(line);
        let (method, rest) = own_method(rest);
        let (url, body) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        Line { number, weight, method, url, body: body.trim() }
    })
}

/// Reads the requests of a file, and the server that they are sent to. The server is `base`, or the
/// server in full URLs. `common` has the values that lines leave out, and the headers of all
/// requests.
pub fn from_file(
    file: &Path,
    base: Option<ResolvedUrl>,
    common: &Ask,
) -> anyhow::Result<(Option<ResolvedUrl>, Requests)> {
    if file.extension().is_some_and(|extension| extension == "toml") {
        let mut requests = requests_file::read(file).or_else(|e| usage(e.to_string()))?;
        for ask in &mut requests.asks {
            let is_own = |name: &str| ask.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
            let missing = common.headers.iter().filter(|(name, _)| !is_own(name));
            let missing: Vec<_> = missing.cloned().collect();
            ask.headers.iter().for_each(|(name, value)| redact::header(name, value));
            ask.headers.extend(missing);
        }
        return Ok((base, requests));
    }
    let text =
        files::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let (mut base, mut asks) = (base, Vec::new());
    for Line { number, weight, method, url, body } in lines(&text) {
        let wrong = |what: &str| format!("{}:{number}: {what}", file.display());
        let path = if url.starts_with('/') {
            request_path(url, url).or_else(|e| usage(wrong(&e.to_string())))?
        } else {
            let found = hotlap_load::url::resolve(url).or_else(|e| usage(wrong(&e.to_string())))?;
            if base.as_ref().is_some_and(|b| b.target != found.target) {
                return usage(wrong("all requests must go to one server"));
            }
            let path = found.path.clone();
            base.get_or_insert(found);
            path
        };
        let body = if body.is_empty() { common.body.clone() } else { text_or_file(body)? };
        let usual = if body.is_empty() { common.method.as_str() } else { "POST" };
        let method = method.unwrap_or(usual).to_owned();
        asks.push(Ask { weight, method, path, body, ..common.clone() });
    }
    match asks.is_empty() {
        true => usage(format!("{} has no requests", file.display())),
        false => Ok((base, Requests { asks, fields: Fields::default() })),
    }
}

/// Splits a weight off the start of a line. A line without a weight has the weight 1.
fn weight(line: &str) -> (u32, &str) {
    let parted = line.split_once(char::is_whitespace);
    let found = parted.and_then(|(first, rest)| Some((first.parse().ok()?, rest.trim_start())));
    found.filter(|(weight, _)| *weight > 0).unwrap_or((1, line))
}

/// Splits a method off the start of a line, if the line has one.
fn own_method(line: &str) -> (Option<&str>, &str) {
    match line.split_once(char::is_whitespace) {
        Some((first, rest)) if first.bytes().all(|b| b.is_ascii_uppercase()) => {
            (Some(first), rest.trim_start())
        }
        _ => (None, line),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_requests_file_has_weights_methods_and_bodies() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "# mix\n3 http://127.0.0.1:1/a\nPOST /b {\"x\": 1}\n\n2 DELETE /c\n";
        fs::write(file.path(), text).unwrap();
        let (base, requests) = from_file(file.path(), None, &Ask::default()).unwrap();
        assert_eq!(base.unwrap().host, "127.0.0.1:1");
        let told: Vec<(u32, &str, &str, usize)> = requests
            .asks
            .iter()
            .map(|a| (a.weight, a.method.as_str(), a.path.as_str(), a.body.len()))
            .collect();
        assert_eq!(told, [(3, "GET", "/a", 0), (1, "POST", "/b", 8), (2, "DELETE", "/c", 0)]);
    }

    /// Regression: a control character was copied into the request line unchanged.
    #[test]
    fn a_path_with_a_control_character_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "http://127.0.0.1:1/\n/a\u{7f}b\n").unwrap();
        let error = from_file(file.path(), None, &Ask::default()).unwrap_err().to_string();
        let (_, why) = error.split_once(":2: ").unwrap();
        let (_, what) = why.split_once(" has ").unwrap();
        assert_eq!(what, "a space or a control character in its path: write %20 for a space");
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "http://127.0.0.1:1/\nftp://x/\n").unwrap();
        let error = from_file(file.path(), None, &Ask::default()).unwrap_err().to_string();
        assert!(error.contains(":2: "), "{error}");
    }

    #[test]
    fn a_header_that_could_smuggle_another_is_refused() {
        // Regression: these headers were sent next to hotlap's own framing, or instead of it.
        assert!(headers(&["content-length: 10".to_owned()]).is_err());
        assert!(headers(&["Transfer-Encoding: chunked".to_owned()]).is_err());
        let asks = |header: &str| ask_to_close(&[header.to_owned()]);
        assert!(asks("Connection: close") && asks("connection:keep-alive, Close"));
        assert!(!asks("Connection: keep-alive") && !asks("X: close"));
        assert!(headers(&["X: a".to_owned()]).is_ok());
        assert!(headers(&["X a".to_owned()]).is_err());
        assert!(headers(&["X: a\r\nY: b".to_owned()]).is_err());
        assert!(headers(&["X Y: b".to_owned()]).is_err());
    }
}
