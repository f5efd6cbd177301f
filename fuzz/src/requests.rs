//! A file of requests (`hotlap load --requests-file`): any text, in both forms.

use std::path::Path;

use hotlap::cmd::load::requests::lines;
use hotlap_load::plan::{Endpoint, Plan, Request, Target};
use hotlap_load::url::{Url, request_path};
use hotlap_servers::contract::Contract;
use hotlap_servers::requests_file;

/// Reads it; what becomes a request is one, and its request line has three parts.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    check_toml(&text);
    for line in lines(&text) {
        assert!(line.weight > 0 && !line.url.contains(char::is_whitespace), "{line:?}");
        let method = line.method.unwrap_or("GET");
        let found = match line.url.starts_with('/') {
            true => request_path(line.url, line.url).map(|path| ("localhost".to_owned(), path)),
            false => Url::parse(line.url).map(|url| (url.host, url.path)),
        };
        let Ok((host, path)) = found else { continue };
        let bytes = Request::build(method, &path, &host, &[], line.body.as_bytes()).bytes();
        let body = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
        let head: Vec<&[u8]> = bytes[..body].split(|b| *b == b'\n').collect();
        // The request line, Host, the length of a body if there is or could be one, the blank line,
        // its end.
        let has_length = !line.body.is_empty() || ["POST", "PUT", "PATCH"].contains(&method);
        assert_eq!(head.len(), 4 + usize::from(has_length), "{line:?}");
        assert_eq!(head[0].split(|b| *b == b' ').count(), 3, "{line:?}");
        assert!(head.iter().all(|l| l.iter().all(|b| *b >= b' ' || *b == b'\r')), "{line:?}");
        assert_eq!(&bytes[body..], line.body.as_bytes());
    }
}

/// What a TOML file describes can be sent, with any values.
fn check_toml(text: &str) {
    let Ok(requests) = requests_file::parse(text, Path::new("/nonexistent")) else { return };
    let contract = Contract::custom_requests(&requests);
    let sent = contract.exchanges.iter().map(|e| e.request("h", None, &contract.fields)).collect();
    let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 1).into());
    let mut plan = Plan::new(Target::plain(endpoint), Request::get("/", "h"));
    (plan.requests, plan.fields) = (sent, contract.fields.list.clone());
    // Only the sum of the weights may be too large.
    if let Err(error) = plan.check() {
        assert!(error.to_string().contains("weights"), "{error}");
    }
    for number in [0, 1, u64::from(u32::MAX)] {
        for exchange in contract.with_values(number).exchanges {
            let bytes = exchange.bytes("h");
            assert!(bytes.windows(4).any(|w| w == b"\r\n\r\n"), "{exchange:?}");
        }
    }
}
