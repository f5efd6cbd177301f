//! The bytes of a request.

/// The bytes of an HTTP/1.1 request. `Host` comes first, and `Content-Length` last if there is a
/// body or the method expects one. `headers` may contain either of them instead.
pub fn request(
    method: &str,
    path: &str,
    host: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> Vec<u8> {
    let has = |name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    let mut bytes = format!("{method} {path} HTTP/1.1\r\n");
    if !has("host") {
        bytes += &format!("Host: {host}\r\n");
    }
    for (name, value) in headers {
        bytes += &format!("{name}: {value}\r\n");
    }
    // RFC 9110 section 8.6: a request whose method expects a body should say that it has none.
    let states_length = !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH");
    if states_length && !has("content-length") && !has("transfer-encoding") {
        bytes += &format!("Content-Length: {}\r\n", body.len());
    }
    bytes += "\r\n";
    let mut bytes = bytes.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Whether a text is a token, as the name of a header must be (RFC 9110 section 5.6.2).
pub fn is_token(text: &str) -> bool {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !text.is_empty() && text.chars().all(is_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_letters_digits_and_some_signs() {
        for token in ["X-Id", "a", "9", "!#$%&'*+-.^_`|~"] {
            assert!(is_token(token), "{token}");
        }
        for text in ["", "X Id", "X:", "(a)", "ä", "a\n"] {
            assert!(!is_token(text), "{text}");
        }
    }

    #[test]
    fn a_request_states_the_length_of_its_body_once() {
        let text = |headers: &[(&str, &str)], body: &[u8]| {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let headers: Vec<_> = headers.iter().map(owned).collect();
            String::from_utf8(request("POST", "/", "h", &headers, body)).unwrap()
        };
        let start = "POST / HTTP/1.1\r\nHost: h\r\n";
        assert_eq!(text(&[], b""), format!("{start}Content-Length: 0\r\n\r\n"));
        assert_eq!(request("GET", "/", "h", &[], b""), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(text(&[], b"{}"), format!("{start}Content-Length: 2\r\n\r\n{{}}"));
        let explicit = text(&[("content-LENGTH", "2")], b"{}");
        assert_eq!(explicit, format!("{start}content-LENGTH: 2\r\n\r\n{{}}"));
        let chunked = text(&[("Transfer-Encoding", "chunked")], b"0\r\n\r\n");
        assert_eq!(chunked, format!("{start}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"));
    }
}
