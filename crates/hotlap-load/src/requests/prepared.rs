//! The requests of a plan as a protocol sends them, and the expected responses. A request that does
//! not vary is rendered once, when a worker starts.

use super::Turn;
use super::values::{Rendered, Values};
use crate::expected::ResponseTemplate;
use crate::http2::{BlockForm, EncodedRequests, Template, encode};
use crate::plan::{ExpectedBody, ExpectedResponse, Request, Text};

/// A request that is ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct PreparedRequest {
    /// The bytes that HTTP/1.1 sends. In HTTP/2, these bytes are kept only as evidence of a failed
    /// request.
    pub(super) sent: Rendered,
    pub(crate) is_head: bool,
    /// The expected response, for comparison with the current response.
    pub(crate) expect: ExpectedResponse,
    /// The expected body, if it contains values of fields.
    pub(super) body: Option<Rendered>,
    pub(crate) template: ResponseTemplate,
}

impl PreparedRequest {
    /// Prepares a request. With `closes`, the request announces that the connection will close.
    pub(super) fn new(request: &Request, closes: bool) -> Self {
        let mut expect = request.expect.clone();
        let body = match &expect.body {
            ExpectedBody::Fields(text) => Some(Rendered::new(text, &Text::default())),
            _ => None,
        };
        if body.is_some() {
            expect.body = ExpectedBody::Bytes { bytes: Vec::new().into(), varies: Vec::new() };
        }
        Self {
            sent: Rendered::new(&request.http1(closes), &request.body),
            is_head: request.is_head(),
            expect,
            body,
            template: ResponseTemplate::default(),
        }
    }

    /// Inserts the values of a request into the expected body.
    #[inline(never)]
    pub(super) fn expect_body(&mut self, number: u32, values: &mut Values) {
        let (Some(body), ExpectedBody::Bytes { bytes, .. }) =
            (&mut self.body, &mut self.expect.body)
        else {
            return;
        };
        body.render(number, values);
        let bytes = bytes.make_mut();
        bytes.clear();
        bytes.extend_from_slice(body.bytes());
        self.template.expect_body(bytes);
    }
}

/// The requests of a plan for HTTP/2: header blocks that are encoded once, and bodies.
#[derive(Debug, Clone)]
pub(super) struct Http2Requests {
    encoded: EncodedRequests,
    /// The path and the headers of each request, and its body.
    texts: Vec<(Vec<Rendered>, Rendered)>,
    /// The block that was rendered last.
    block: Vec<u8>,
}

impl Http2Requests {
    /// Encodes requests for `http` or `https`.
    pub(super) fn new(requests: &[Request], is_secure: bool) -> Self {
        let texts = |request: &Request| {
            let text = |text| Rendered::new(text, &request.body);
            let headers = request.headers.iter().map(|(_, value)| text(value));
            (std::iter::once(text(&request.path)).chain(headers).collect(), text(&request.body))
        };
        Self {
            encoded: encode(requests, if is_secure { "https" } else { "http" }),
            texts: requests.iter().map(texts).collect(),
            block: Vec::new(),
        }
    }

    /// Returns the size of the shared fields in the server's header table.
    pub(super) fn table_size(&self) -> u32 {
        self.encoded.table_size
    }

    /// Returns the header block and the body of a request.
    #[inline]
    pub(super) fn get(
        &mut self,
        turn: Turn,
        form: BlockForm,
        values: &mut Values,
    ) -> (&[u8], &[u8]) {
        let (texts, body) = &mut self.texts[turn.request()];
        body.render(turn.number(), values);
        let template = self.encoded.block(turn.request(), form);
        if let Some(block) = template.constant() {
            return (block, body.bytes());
        }
        render(&mut self.block, template, texts, turn.number(), values);
        (&self.block, body.bytes())
    }
}

/// Renders a header block with the values of a request.
#[inline(never)]
fn render(
    block: &mut Vec<u8>,
    template: &Template,
    texts: &mut [Rendered],
    number: u32,
    values: &mut Values,
) {
    block.clear();
    template.render(block, |text, out| {
        let text = &mut texts[text as usize];
        text.render(number, values);
        out.extend_from_slice(text.bytes());
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::hpack::Decoder;
    use crate::plan::{Endpoint, Field, Plan, Target, ValueSource};

    fn decoded(block: &[u8]) -> Vec<String> {
        let mut fields = Vec::new();
        let mut decoder = Decoder::default();
        let read = decoder.decode(block, |name, value| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            fields.push(format!("{}={}", text(name), text(value)));
        });
        assert!(read.is_ok());
        fields
    }

    /// Returns requests for HTTP/2, and the values of the field `id`: 99, 100, 101.
    fn of(request: &Request, fields: &[Field]) -> (Http2Requests, Values) {
        let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 80).into());
        let mut plan = Plan::new(Target::plain(endpoint), request.clone());
        plan.fields = fields.to_vec();
        (Http2Requests::new(&plan.requests, true), Values::new(&plan, &[0], 0))
    }

    #[test]
    fn a_request_becomes_a_header_block_and_a_body() {
        let headers = [("Accept", "*/*"), ("Connection", "close")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let request = Request::build("POST", "/a?b=c", "h:1", &headers, b"body\r\n\r\n");
        let (mut requests, mut values) = of(&request, &[]);
        let (block, body) = requests.get(Turn::default(), BlockForm::Plain, &mut values);
        let expected = [
            ":method=POST",
            ":scheme=https",
            ":authority=h:1",
            ":path=/a?b=c",
            "accept=*/*",
            "content-length=8",
        ];
        assert_eq!(decoded(block), expected);
        assert_eq!(body, b"body\r\n\r\n");
    }

    #[test]
    fn values_of_fields_are_part_of_block_and_body() {
        let fields = [Field::new("id", ValueSource::Counter { from: 99 })];
        let headers = [("X-Id".to_owned(), "<${id}>".to_owned())];
        let body = b"{${id}}${id}";
        let request =
            Request::with_fields("PUT", "/${id}/x", "h", &headers, body, &fields).unwrap();
        let (mut requests, mut values) = of(&request, &fields);
        for (number, id) in [(0, "99"), (1, "100"), (2, "101")] {
            let (block, body) = requests.get(Turn::new(0, number), BlockForm::Plain, &mut values);
            let fields = decoded(block);
            assert_eq!(fields[3], format!(":path=/{id}/x"));
            assert!(fields.contains(&format!("x-id=<{id}>")), "{fields:?}");
            let length = 2 + 2 * id.len();
            assert!(fields.contains(&format!("content-length={length}")), "{fields:?}");
            assert_eq!(body, format!("{{{id}}}{id}").as_bytes());
        }
    }
}
