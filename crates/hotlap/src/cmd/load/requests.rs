//! What `hotlap load` sends, and which answers are right: from flags, or from a file.

use std::fs;
use std::path::Path;

use anyhow::Context;
use hotlap_harness::contract::{Ask, Content, Contract, Exchange};
use hotlap_harness::learn::learn;
use hotlap_harness::verify::LIMIT;
use hotlap_load::http;
use hotlap_load::plan::{Body, Expect, Request, Target};
use hotlap_load::target::Resolved;

use crate::cli::LoadArgs;
use crate::exit::{server_failed, usage};
use crate::redact;

/// Whom to ask for what.
#[derive(Debug)]
pub struct Asked {
    /// Where it is.
    pub target: Target,
    host: String,
    asks: Vec<(u32, Ask)>,
}

impl Asked {
    /// Reads flags and file.
    ///
    /// # Errors
    /// When a URL is none, a header or a line makes no sense, or a file cannot be read.
    pub fn of(args: &LoadArgs) -> anyhow::Result<Self> {
        let base = args.url.as_deref().map(resolve).transpose()?;
        let mut ask = Ask {
            headers: headers(&args.request.headers)?,
            body: args.request.body.as_deref().map(text_or_file).transpose()?.unwrap_or_default(),
            status: args.request.expect_status,
            answer: args.request.expect_body.as_deref().map(text_or_file).transpose()?,
            ..Ask::default()
        };
        let has_body = !ask.body.is_empty();
        let usual = if has_body { "POST" } else { "GET" };
        ask.method = method(args.request.method.as_deref().unwrap_or(usual))?;
        let (base, asks) = match (&args.request.requests_file, base) {
            (Some(file), base) => from_file(file, base, &ask)?,
            (None, Some(base)) => {
                let path = base.path.clone();
                (base, vec![(1, Ask { path, ..ask })])
            }
            (None, None) => return usage("name a URL"),
        };
        let mut target = base.target;
        if let Some(tls) = &mut target.tls {
            tls.insecure = args.request.insecure;
        }
        Ok(Self { target, host: base.host, asks })
    }

    /// The requests with their right answers, learned from a few probes unless `--no-check` was
    /// given, and what the user should know.
    ///
    /// # Errors
    /// When the server does not answer, or not as it must.
    pub fn requests(&self, args: &LoadArgs) -> anyhow::Result<(Vec<Request>, Vec<String>)> {
        let mut contract = Contract::strangers(self.asks.iter().map(|(_, ask)| ask));
        let mut notes = Vec::new();
        if !args.no_check {
            let learned = learn(&self.target, &self.host, args.timeout.max(LIMIT), &contract)
                .or_else(|why| server_failed(format!("{}: {why}", self.host)))?;
            contract = learned.contract;
            notes = learned.notes;
        }
        let both = self.asks.iter().zip(&contract.exchanges);
        let requests = both.map(|((weight, ask), exchange)| self.request(*weight, ask, exchange));
        Ok((requests.collect(), notes))
    }

    /// The requests with any 2xx for right.
    #[must_use]
    pub fn unchecked(&self) -> Vec<Request> {
        let request = |(weight, ask): &(u32, Ask)| {
            self.request(*weight, ask, &Contract::stranger(ask).exchanges[0])
        };
        self.asks.iter().map(request).collect()
    }

    fn request(&self, weight: u32, ask: &Ask, exchange: &Exchange) -> Request {
        Request {
            bytes: http::request(&ask.method, &ask.path, &self.host, &ask.headers, &ask.body),
            is_head: ask.method == "HEAD",
            weight,
            expect: Expect { status: exchange.status, body: body(&exchange.content) },
        }
    }
}

fn body(content: &Content) -> Body {
    match content {
        Content::Bytes { bytes, varies } => {
            Body::Bytes { bytes: bytes.clone(), varies: varies.clone() }
        }
        Content::Any | Content::Clock | Content::Json(_) => Body::Any,
    }
}

/// A URL's socket; a URL that is none is the user's error.
///
/// # Errors
/// Says what is wrong with it.
pub fn resolve(url: &str) -> anyhow::Result<Resolved> {
    Target::resolve(url).or_else(|e| usage(e.to_string()))
}

/// Headers as they are typed, `Name: value`.
///
/// # Errors
/// Names the one that is none.
pub fn headers(typed: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    for header in typed {
        // What may be a secret is not repeated.
        let Some((name, value)) = header.split_once(':') else {
            return usage(format!(
                "a header has no colon ({} characters): write 'Name: value'",
                header.chars().count()
            ));
        };
        let (name, value) = (name.trim(), value.trim());
        // RFC 9110 section 5.1: a name is a token; section 5.5: a value has no control characters.
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(token) || value.chars().any(char::is_control) {
            return usage(format!(
                "the header {name:?} is none, or its value has control characters: write 'Name: \
                 value'"
            ));
        }
        redact::header(name, value);
        headers.push((name.to_owned(), value.to_owned()));
    }
    Ok(headers)
}

/// A text, or with `@` in front the file that has it.
///
/// # Errors
/// Names the file that cannot be read.
pub fn text_or_file(typed: &str) -> anyhow::Result<Vec<u8>> {
    match typed.strip_prefix('@') {
        Some(file) => fs::read(file).with_context(|| format!("cannot read {file}")),
        None => Ok(typed.as_bytes().to_vec()),
    }
}

/// A method is a token (RFC 9110 section 9.1).
///
/// # Errors
/// When it is none.
pub fn method(typed: &str) -> anyhow::Result<String> {
    match !typed.is_empty() && typed.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        true => Ok(typed.to_owned()),
        false => usage(format!("{typed:?} is no method: write GET, POST, …")),
    }
}

/// One request a line: `[WEIGHT] [METHOD] URL [BODY]`; a URL may be a path where the command line
/// names the server.
fn from_file(
    file: &Path,
    base: Option<Resolved>,
    common: &Ask,
) -> anyhow::Result<(Resolved, Vec<(u32, Ask)>)> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let (mut base, mut asks) = (base, Vec::new());
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| format!("{}:{}: {what}", file.display(), number + 1);
        let (weight, rest) = weight(line);
        let (own_method, rest) = own_method(rest);
        let (url, body) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let body = body.trim();
        let path = if url.starts_with('/') {
            url.to_owned()
        } else {
            let found = Target::resolve(url).or_else(|e| usage(wrong(&e.to_string())))?;
            if base.as_ref().is_some_and(|b| b.target != found.target) {
                return usage(wrong("all requests must go to one server"));
            }
            let path = found.path.clone();
            base.get_or_insert(found);
            path
        };
        let body = if body.is_empty() { common.body.clone() } else { text_or_file(body)? };
        let usual = if body.is_empty() { common.method.as_str() } else { "POST" };
        let method = own_method.unwrap_or(usual).to_owned();
        asks.push((weight, Ask { method, path, body, ..common.clone() }));
    }
    match base {
        _ if asks.is_empty() => usage(format!("{} holds no request", file.display())),
        None => usage(format!("{} names no server: write whole URLs", file.display())),
        Some(base) => Ok((base, asks)),
    }
}

fn weight(line: &str) -> (u32, &str) {
    match line.split_once(char::is_whitespace) {
        Some((first, rest)) if first.parse::<u32>().is_ok_and(|w| w > 0) => {
            (first.parse().unwrap_or(1), rest.trim_start())
        }
        _ => (1, line),
    }
}

fn own_method(line: &str) -> (Option<&str>, &str) {
    match line.split_once(char::is_whitespace) {
        Some((first, rest)) if first.chars().all(|c| c.is_ascii_uppercase()) => {
            (Some(first), rest.trim_start())
        }
        _ => (None, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requests_file_has_weights_methods_and_bodies() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "# mix\n3 http://127.0.0.1:1/a\nPOST /b {\"x\": 1}\n\n2 DELETE /c\n";
        fs::write(file.path(), text).unwrap();
        let (base, asks) = from_file(file.path(), None, &Ask::default()).unwrap();
        assert_eq!(base.host, "127.0.0.1:1");
        let told: Vec<(u32, &str, &str, usize)> = asks
            .iter()
            .map(|(w, a)| (*w, a.method.as_str(), a.path.as_str(), a.body.len()))
            .collect();
        assert_eq!(told, [(3, "GET", "/a", 0), (1, "POST", "/b", 8), (2, "DELETE", "/c", 0)]);
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
        assert!(headers(&["X: a".to_owned()]).is_ok());
        assert!(headers(&["X a".to_owned()]).is_err());
        assert!(headers(&["X: a\r\nY: b".to_owned()]).is_err());
        assert!(headers(&["X Y: b".to_owned()]).is_err());
    }
}
