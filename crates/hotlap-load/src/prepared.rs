//! One request of a plan, ready to be sent, and the response that it expects.

use crate::plan::{ExpectedBody, ExpectedResponse, Insert, Request};
use crate::rendered::Rendered;
use crate::template::ResponseTemplate;
use crate::values::Values;

/// A request that is ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct PreparedRequest {
    /// Its bytes, without the values of fields.
    pub(crate) bytes: Vec<u8>,
    /// Its bytes with the values of fields, if it has any.
    pub(crate) rendered: Option<Rendered>,
    pub(crate) is_head: bool,
    /// What the current response is compared with.
    pub(crate) expect: ExpectedResponse,
    /// The expected body, if it has values of fields.
    pub(crate) body: Option<Rendered>,
    pub(crate) template: ResponseTemplate,
}

impl PreparedRequest {
    /// A request that is ready to be sent; if it `closes` the connection, it says so.
    pub(crate) fn new(request: &Request, closes: bool) -> Self {
        let (mut bytes, mut inserts) = (request.bytes.clone(), request.inserts.clone());
        if closes {
            add_connection_close(&mut bytes, &mut inserts);
        }
        let body_at = bytes.windows(4).position(|w| w == b"\r\n\r\n").map_or(0, |at| at + 4);
        let mut expect = request.expect.clone();
        let body = match &expect.body {
            ExpectedBody::Fields { bytes, inserts } => {
                Some(Rendered::new(bytes.clone(), inserts.clone(), 0))
            }
            _ => None,
        };
        if body.is_some() {
            expect.body = ExpectedBody::Bytes { bytes: Vec::new(), varies: Vec::new() };
        }
        Self {
            rendered: (!inserts.is_empty()).then(|| Rendered::new(bytes.clone(), inserts, body_at)),
            bytes,
            is_head: request.is_head,
            expect,
            body,
            template: ResponseTemplate::default(),
        }
    }

    /// Inserts the values of a request into the expected body.
    #[inline(never)]
    pub(crate) fn expect_body(&mut self, number: u32, values: &mut Values) {
        let (Some(body), ExpectedBody::Bytes { bytes, .. }) =
            (&mut self.body, &mut self.expect.body)
        else {
            return;
        };
        body.render(number, values);
        bytes.clear();
        bytes.extend_from_slice(body.bytes());
        self.template.expect_body(bytes);
    }
}

/// Adds `Connection: close` after the request line, unless there is a `Connection` header.
fn add_connection_close(bytes: &mut Vec<u8>, inserts: &mut [Insert]) {
    const HEADER: &[u8] = b"\r\nConnection: close";
    let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(bytes.len());
    let line = bytes.windows(2).position(|w| w == b"\r\n");
    let mut lines = bytes[..head].split(|&b| b == b'\n').skip(1);
    let is_connection =
        |l: &[u8]| l.get(..11).is_some_and(|name| name.eq_ignore_ascii_case(b"connection:"));
    let Some(line) = line.filter(|_| !lines.any(is_connection)) else { return };
    bytes.splice(line..line, HEADER.iter().copied());
    for insert in inserts.iter_mut().filter(|insert| insert.at > line) {
        insert.at += HEADER.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_close_is_added_once() {
        let closes = b"GET / HTTP/1.1\r\nConnection: close\r\nHost: a\r\n\r\nbody";
        for before in [&b"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody"[..], closes] {
            let mut bytes = before.to_vec();
            add_connection_close(&mut bytes, &mut []);
            assert_eq!(bytes, closes);
        }
    }
}
