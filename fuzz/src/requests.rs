//! A file of requests (`hotlap load --requests-file`): any text.

use hotlap::cmd::load::requests::lines;
use hotlap_load::http::request;
use hotlap_load::url::{Url, request_path};

/// Reads it; what becomes a request is one, and its request line has three parts.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for line in lines(&text) {
        assert!(line.weight > 0 && !line.url.contains(char::is_whitespace), "{line:?}");
        let method = line.method.unwrap_or("GET");
        let found = match line.url.starts_with('/') {
            true => request_path(line.url, line.url).map(|path| ("localhost".to_owned(), path)),
            false => Url::parse(line.url).map(|url| (url.host, url.path)),
        };
        let Ok((host, path)) = found else { continue };
        let bytes = request(method, &path, &host, &[], line.body.as_bytes());
        let body = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
        let head: Vec<&[u8]> = bytes[..body].split(|b| *b == b'\n').collect();
        // The request line, Host, the length of a body if there is one, the blank line, its end.
        assert_eq!(head.len(), 4 + usize::from(!line.body.is_empty()), "{line:?}");
        assert_eq!(head[0].split(|b| *b == b' ').count(), 3, "{line:?}");
        assert!(head.iter().all(|l| l.iter().all(|b| *b >= b' ' || *b == b'\r')), "{line:?}");
        assert_eq!(&bytes[body..], line.body.as_bytes());
    }
}
